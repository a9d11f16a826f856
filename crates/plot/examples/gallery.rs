//! Prints a page with a chart of each kind:
//! `cargo run --release -p zonda-plot --example gallery > gallery.html`. With the name of a chart
//! it prints that one as an SVG file. The figures are made up.

use zonda_plot::{Axis, Chart, Form, LOOKS, Page, Point, Reference, Series, text};

fn main() {
    let charts = [bandwidth(), latency(), tail(), shares(), long()];
    let wanted = std::env::args().nth(1);
    match wanted.and_then(|id| charts.iter().find(|chart| chart.id == id)) {
        Some(chart) => print!("{}", chart.svg()),
        None => {
            let figures: String = charts.iter().map(Chart::figure).collect();
            let main = format!("<header><h1>Charts</h1></header>\n<div class=\"plots\">\n{figures}</div>\n");
            print!("{}", Page { title: "Charts", css: "", main: &main, footer: "Made-up figures." }.html());
        }
    }
}

/// Three series over sizes, with whiskers, published points and a limit.
fn bandwidth() -> Chart {
    let x = Axis::log2("request size", 4096.0, 131_072.0, |bytes| text::round_bytes(bytes as u64));
    let mut chart =
        Chart::new("bandwidth", "Bandwidth by request size", x, Axis::linear("bandwidth (MiB/s)", 3500.0, 5));
    let sizes = [4096.0, 8192.0, 16_384.0, 32_768.0, 65_536.0, 131_072.0];
    let ours = [
        ("read", [310.0, 620.0, 1180.0, 2050.0, 2900.0, 3150.0]),
        ("write", [340.0, 640.0, 1010.0, 1130.0, 1150.0, 1150.0]),
        ("append", [276.0, 515.0, 860.0, 1100.0, 1150.0, 1150.0]),
    ];
    let theirs = [[300.0, 600.0, 1150.0, 2100.0, 2800.0, 3050.0], [350.0, 660.0, 1040.0, 1100.0, 1120.0, 1130.0]];
    for ((name, values), look) in ours.iter().zip(LOOKS) {
        let points = sizes.iter().zip(values).map(|(x, y)| Point::new(*x, *y).with_spread(y * 0.9, y * 1.06));
        chart.series.push(Series::new(*name, look, Form::Line, points));
    }
    for ((values, look), (name, _)) in theirs.iter().zip(LOOKS).zip(ours) {
        let points = sizes.into_iter().zip(*values);
        chart.series.push(Series::new(name, look, Form::Published, points));
    }
    chart.references.push(Reference::line(3200.0, "PCIe 3,200 MiB/s"));
    chart.notes.push("Whiskers span the runs of five seeds.".to_owned());
    chart
}

/// Published curves, on logarithmic axes.
fn latency() -> Chart {
    let x = Axis::log2("outstanding requests", 1.0, 128.0, |depth| text::count(depth as u64));
    let mut chart =
        Chart::new("latency", "Latency by queue depth", x, Axis::latency("mean latency (log scale)", 11e3, 9e5));
    let depths: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    for (index, name) in ["write", "append", "read of 16 KiB", "reset"].into_iter().enumerate() {
        let of = |depth: f64| 11e3 * (index as f64 + 1.0) * depth.powf(0.6);
        let line = |factor: f64| depths.map(|depth| (depth, of(depth) * factor));
        chart.series.push(Series::new(name, LOOKS[index + 3], Form::Line, line(1.0)));
        if index < 3 {
            chart.series.push(Series::new(name, LOOKS[index + 3], Form::PublishedLine, line(1.25)));
        }
    }
    chart
}

/// Names with a point each, and a band.
fn tail() -> Chart {
    let x = Axis::names("policy of the host", ["first fit", "round robin over all zones", "least worn", "hash"]);
    let mut chart = Chart::new("tail", "Tail by policy", x, Axis::between("p99.9 of reads (us)", 80.0, 200.0, 6));
    let points = [118.0, 141.0, 97.0, 175.0].into_iter().enumerate();
    let points = points.map(|(x, y)| Point::new(x as f64, y).with_spread(y - 9.0, y + 14.0));
    chart.series.push(Series::new("zonda", LOOKS[7], Form::Line, points));
    chart.references.push(Reference::band(90.0, 125.0, "what the host allows"));
    chart
}

/// Bars side by side with published values.
fn shares() -> Chart {
    let names = ["host", "padding", "collection", "spill"];
    let x = Axis::names("where bytes went", names);
    let mut chart = Chart::new("shares", "Bytes programmed", x, Axis::linear("share of all bytes (%)", 80.0, 5));
    let all = [[61.0, 22.0, 12.0, 5.0], [72.0, 14.0, 9.0, 5.0], [55.0, 25.0, 14.0, 6.0], [40.0, 30.0, 22.0, 8.0]];
    for ((values, look), name) in all.iter().zip(LOOKS).zip(["small zones", "large zones", "slices", "shared"]) {
        let points = |factor: f64| values.iter().enumerate().map(move |(x, y)| (x as f64, y * factor));
        chart.series.push(Series::new(name, look, Form::Bars, points(1.0)));
        if name != "shared" {
            chart.series.push(Series::new(name, look, Form::PublishedBars, points(0.93)));
        }
    }
    chart
}

/// Many points.
fn long() -> Chart {
    let (x, y) = (Axis::exact("time (s)", 2.5, 6), Axis::linear("completed requests (IOPS)", 1_200_000.0, 5));
    let mut chart = Chart::new("long", "Over time", x, y);
    for (index, look) in LOOKS.into_iter().enumerate() {
        let points = (0..200).map(|step| {
            let time = f64::from(step) / 80.0;
            (time, (index as f64 + 1.0) * 130_000.0 + 40_000.0 * (time * (3.0 + index as f64)).sin())
        });
        chart.series.push(Series::new(format!("job {index}"), look, Form::LongLine, points));
    }
    chart.references.push(Reference::span(0.0, 0.4, "ramp"));
    chart
}
