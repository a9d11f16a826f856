//! The pool on the page: the active zones of its namespaces over time, and their shares at the end.

use zonda_plot::text::{count, counted, escape};
use zonda_plot::{Axis, Chart, LOOKS};
use zonda_stack::{ActiveZones, ElasticSummary};

use super::amplification::curve;
use super::plots::{self, highest};
use crate::figures::groups;

/// The section of the pool.
pub(super) fn section(pool: &ElasticSummary) -> String {
    let charts = [
        chart(pool, "available-zones", "Active zones available to each namespace", "active zones", |zones| {
            zones.available
        }),
        chart(pool, "spares-in-use", "Spares in stripe groups", "spares", |zones| zones.spares_used),
    ];
    let figures: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::figure).collect();
    let note = match pool.namespaces.len().saturating_sub(LOOKS.len()) {
        0 => String::new(),
        more => format!(
            "<div class=\"notes\"><p>The charts show the first {}; the table also has the other {}.</p></div>\n",
            counted(LOOKS.len() as u64, "namespace"),
            count(more as u64)
        ),
    };
    format!(
        "<section aria-labelledby=\"pool\">\n<h2 id=\"pool\">Pool</h2>\n<p>{}. A namespace may use its essentials and its \
         spares; while it begins no stripe groups, it lends its spares to the others.</p>\n\
         <div class=\"plots\">\n{figures}</div>\n{note}{}</section>\n",
        what_it_divides(pool),
        table(pool)
    )
}

fn what_it_divides(pool: &ElasticSummary) -> String {
    format!(
        "The active zones of the drive are {} and {}, which are divided among {} by weight",
        counted(pool.essential_zones.into(), "essential"),
        counted(pool.spare_zones.into(), "spare"),
        counted(pool.namespaces.len() as u64, "namespace"),
    )
}

fn chart(pool: &ElasticSummary, id: &str, title: &str, unit: &str, of: fn(&ActiveZones) -> u32) -> Chart {
    let values =
        |place: usize| pool.series.iter().map(move |sample| (sample.at_ns, f64::from(of(&sample.namespaces[place]))));
    let named = pool.namespaces.iter().enumerate().take(LOOKS.len());
    let series = named.map(|(place, namespace)| curve(&namespace.name, place, values(place))).collect::<Vec<_>>();
    let of_curve = |place: usize, name: &str| {
        let last = pool.series.last().map_or(0, |sample| of(&sample.namespaces[place]));
        format!("{name}: {} at the end.", counted(last.into(), "zone"))
    };
    let names = pool.namespaces.iter().enumerate().take(LOOKS.len());
    let description: Vec<String> = names.map(|(place, namespace)| of_curve(place, &namespace.name)).collect();
    let end_ns = pool.series.last().map_or(0, |sample| sample.at_ns) as f64;
    let y = Axis::linear(unit, highest(&series), 5);
    Chart { description: description.join(" "), ..plots::over_time(id, title, series, y, end_ns) }
}

fn table(pool: &ElasticSummary) -> String {
    const COLUMNS: [&str; 9] = [
        "Namespace",
        "V-zones",
        "Weight",
        "Essentials",
        "Spares",
        "Lent",
        "Leased",
        "In use",
        "Stripe groups (number x width)",
    ];
    let header: String = COLUMNS.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let rows = pool.namespaces.iter().map(|of| {
        let numbers =
            [of.zones, of.weight, of.essentials, of.spares_own, of.spares_lent, of.spares_leased, of.spares_used];
        let cells: String = numbers.iter().map(|number| format!("<td>{}</td>", count((*number).into()))).collect();
        format!(
            "<tr><th scope=\"row\">{}</th>{cells}<td class=\"words\">{}</td></tr>\n",
            escape(&of.name),
            groups(&of.groups)
        )
    });
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Namespaces of the pool at the end\">\
         <table class=\"numbers jobs\">\n<thead><tr>{header}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        rows.collect::<String>()
    )
}
