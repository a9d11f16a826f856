//! The I/O schedulers beside each other: readers beside writers.

use zonda_plot::text::{duration, escape, mebibytes, rate};
use zonda_plot::{Axis, Chart, Form, LOOKS, Look, Point, Series, Size};

use crate::choice::{Compared, choice, compared_schedulers};
use crate::limits::SCHEDULER_THROUGHPUT_MIN;
use crate::{Figures, Report};

/// What each scheduler gives to both loads.
pub(super) fn table(report: &Report) -> String {
    let compared = compared_schedulers(report);
    let Some(first) = compared.first() else { return String::new() };
    let chosen = choice(report, |_| true).map(|chosen| chosen.scheduler);
    let cells = |figures: &Figures| {
        let (iops, median, p99) = (rate(figures.per_second), duration(figures.p50_ns), duration(figures.p99_ns));
        format!("<td>{iops}</td><td>{}</td><td>{}</td>", escape(&median), escape(&p99))
    };
    let row = |compared: &Compared| {
        let words = if chosen == Some(compared.scheduler) { "recommended" } else { "" };
        format!(
            "<tr><th>{}</th>{}{}<td>{}</td><td class=\"words\">{words}</td></tr>\n",
            compared.scheduler,
            cells(&compared.reads),
            cells(&compared.writes),
            mebibytes(compared.bytes_per_second())
        )
    };
    let rows: String = compared.iter().map(row).collect();
    let head = "<th>in a second</th><th>median</th><th>p99</th>";
    format!(
        "<p>The same load behind each scheduler of a server: {}, beside {}. The rule takes the lowest p99 of reads among \
         the schedulers whose throughput, of reads and writes together, is at least {} of the best, and the simpler one \
         of two that are nearly equal. All but none release at most {} commands to the drive: beside so many writes, reads may \
         wait for one of these slots.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Schedulers\"><table class=\"numbers\">\n<thead><tr><th></th><th colspan=\"3\">reads</th>\
         <th colspan=\"3\">writes</th><th>together</th><th></th></tr>\n<tr><th></th>{head}{head}<th>MiB/s</th><th></th>\
         </tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
        escape(&first.read.words()),
        escape(&first.write.words()),
        zonda_plot::text::percent(SCHEDULER_THROUGHPUT_MIN),
        zonda_sched::limits::IN_FLIGHT_MAX
    )
}

/// Tails and throughputs as bars.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let compared = compared_schedulers(report);
    if compared.len() < 2 {
        return Vec::new();
    }
    let milliseconds = |figures: &Figures| figures.p99_ns as f64 / 1e6;
    let mebibytes = |figures: &Figures| figures.bytes_per_second / f64::from(1 << 20);
    let reads: Bars<'_> = ("reads", &|compared| milliseconds(&compared.reads));
    let writes: Bars<'_> = ("writes", &|compared| milliseconds(&compared.writes));
    let read: Bars<'_> = ("reads", &|compared| mebibytes(&compared.reads));
    let written: Bars<'_> = ("writes", &|compared| mebibytes(&compared.writes));
    let throughputs = [(LOOKS[0], read), (LOOKS[1], written)];
    vec![
        chart("schedulers-reads", "p99 of reads", "p99 (ms)", &compared, &[(LOOKS[0], reads)]),
        chart("schedulers-writes", "p99 of writes", "p99 (ms)", &compared, &[(LOOKS[1], writes)]),
        chart("schedulers-throughput", "Throughput", "bandwidth (MiB/s)", &compared, &throughputs),
    ]
}

/// The name of a series, and its value of a scheduler.
type Bars<'a> = (&'a str, &'a dyn Fn(&Compared) -> f64);

fn chart(id: &str, title: &str, unit: &str, compared: &[Compared], bars: &[(Look, Bars<'_>)]) -> Chart {
    let values = bars.iter().flat_map(|(_, (_, value))| compared.iter().map(value));
    let most = values.fold(0.0, f64::max);
    let names = Axis::names("scheduler", compared.iter().map(|compared| compared.scheduler.name()));
    let mut chart = Chart::new(id, title, names, Axis::linear(unit, most, 5));
    chart.size = Size { width: 420, height: 240 };
    for (look, (name, value)) in bars {
        let points = compared.iter().enumerate().map(|(place, compared)| Point::new(place as f64, value(compared)));
        chart.series.push(Series::new(*name, *look, Form::Bars, points));
    }
    let words = compared.iter().map(|compared| {
        let of = bars.iter().map(|(_, (name, value))| format!("{name} {}", zonda_plot::text::number(value(compared))));
        format!("{}: {}.", compared.scheduler, of.collect::<Vec<_>>().join(", "))
    });
    chart.description = words.collect::<Vec<_>>().join(" ");
    chart
}
