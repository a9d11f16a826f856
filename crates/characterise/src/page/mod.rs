//! The report as an HTML page: guidelines, curves, the interference matrix, conflict groups, all
//! figures. It has no scripts and loads nothing from other servers.

mod charts;
mod compared;
mod groups;
mod matrix;
mod schedulers;
mod tables;

use zonda_plot::text::{bytes, count, counted, duration, escape};
use zonda_plot::{Chart, Page};

use crate::load::Kind;
use crate::settings::{Served, Source, zonda_toml};
use crate::{Part, Report, Unmeasured};

/// The page, with another report beside this one if there is one.
#[must_use]
pub fn html(report: &Report, served: &Served, other: Option<&Report>) -> String {
    let section = |id: &str, title: &str, body: String| {
        format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{body}</section>\n")
    };
    let main = [
        header(report),
        section("guidelines", "Guidelines", guidelines(report)),
        compared::section(report, other),
        section("limits", "Limits", limits(report)),
        section("reads", "Reads", part(report, Part::Reads, &charts::reads(report))),
        section("writes", "Writes", part(report, Part::Writes, &charts::writes(report))),
        section("appends", "Appends", part(report, Part::Appends, &charts::appends(report))),
        section(
            "zones",
            "Zone management",
            part(report, Part::Zones, &charts::zones(report)) + &tables::managed(report),
        ),
        section(
            "interference",
            "Interference",
            reason(report, Part::Interference) + &matrix::tables(report) + &figures(&charts::interference(report)),
        ),
        section("groups", "Conflict groups", reason(report, Part::Groups) + &groups::picture(report)),
        section(
            "schedulers",
            "Schedulers",
            reason(report, Part::Schedulers) + &schedulers::table(report) + &figures(&schedulers::charts(report)),
        ),
        section("settings", "Recommended configuration", settings(report, served)),
        section("all", "All figures", tables::parts(report) + &tables::all(report)),
    ]
    .concat();
    let title = format!("Characterisation of {}", report.conditions.target);
    let note = match report.conditions.is_virtual {
        true => "The same program, profile and seed give the same figures.",
        false => "Measured in real time: results vary between runs.",
    };
    let footer = format!("Made by zonda {}. {note}", env!("CARGO_PKG_VERSION"));
    Page { title: &title, css: include_str!("page.css"), main: &main, footer: &footer }.html()
}

fn header(report: &Report) -> String {
    let conditions = &report.conditions;
    let kind = if conditions.is_virtual { "virtual time" } else { "real time" };
    let how = match conditions.is_destructive {
        true => "Zones were written and reset.",
        false => "Only reads were used; what writes to zones needs --destructive.",
    };
    let drive = &report.drive;
    // A stored report may have any numbers.
    let zone_bytes = drive.zone_capacity_blocks.saturating_mul(u64::from(drive.block_size_bytes));
    let interrupted = if report.is_interrupted { " The measurement was interrupted." } else { "" };
    let facts = [
        ("Identity", drive.serial.clone()),
        ("Capacity", bytes(zone_bytes.saturating_mul(u64::from(drive.zone_count)))),
        ("Zones", format!("{} of {}", count(u64::from(drive.zone_count)), bytes(zone_bytes))),
        ("Blocks", bytes(u64::from(drive.block_size_bytes))),
        ("Time", format!("{} of {}", report.elapsed(), zonda_zoned::Duration(conditions.budget_ns))),
        ("Seed", conditions.seed.to_string()),
    ];
    let facts: String =
        facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))).collect();
    let caveat = conditions.caveat().map(|caveat| format!("<p class=\"caveat\">{}</p>\n", escape(caveat)));
    let caveat = caveat.unwrap_or_default();
    format!(
        "<header>\n<p class=\"kind\">zonda characterisation report</p>\n<h1>{}</h1>\n<p class=\"lead\">Measured in \
         {kind}. {how}{interrupted}</p>\n{caveat}<dl class=\"facts\">{facts}</dl>\n</header>\n",
        escape(&conditions.target)
    )
}

fn guidelines(report: &Report) -> String {
    if report.guidelines.is_empty() {
        return "<p class=\"none\">Too little was measured for guidelines.</p>\n".to_owned();
    }
    let items: String = report
        .guidelines
        .iter()
        .map(|guideline| {
            let text = escape(&guideline.text);
            format!("<li>{text} <small>{}</small></li>\n", escape(&guideline.rule))
        })
        .collect();
    format!(
        "<p>Each follows from the figures below by the rule that is named behind it.</p>\n\
         <ul class=\"guidelines\">\n{items}</ul>\n"
    )
}

fn limits(report: &Report) -> String {
    let limits = &report.limits;
    let zones = |limit: Option<u32>| limit.map_or_else(|| "no limit".to_owned(), |limit| count(u64::from(limit)));
    let rows = [
        ("Active zones", zones(limits.max_active_zones)),
        ("Open zones", zones(limits.max_open_zones)),
        ("Largest read or write", bytes(limits.max_transfer_bytes)),
        ("Largest append", bytes(limits.max_append_bytes)),
        ("Metadata of a block", counted(u64::from(limits.metadata_bytes), "byte")),
        ("Conventional zones", count(u64::from(limits.conventional_zones))),
        (
            "Zones with a random write area",
            limits.zrwa_zones.map_or_else(|| "not supported".to_owned(), |zones| count(u64::from(zones))),
        ),
    ];
    let rows: String =
        rows.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))).collect();
    format!("<dl class=\"facts\">{rows}</dl>\n")
}

/// Why a part has no figures, or some of its loads have none.
fn reason(report: &Report, part: Part) -> String {
    let Some(summary) = report.parts.iter().find(|summary| summary.part == part) else { return String::new() };
    if let Some(reason) = &summary.reason {
        return format!("<p class=\"none\">{}</p>\n", escape(&sentence(&reason.to_string())));
    }
    let words = |one: &Unmeasured| {
        let (loads, kinds) = (counted(one.loads(), "load"), one.kinds_words());
        format!("<p class=\"none\">{loads} without figures ({kinds}): {}</p>\n", escape(&one.reason))
    };
    report.unmeasured(part).iter().map(words).collect()
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

fn part(report: &Report, part: Part, charts: &[Chart]) -> String {
    reason(report, part) + &figures(charts)
}

fn figures(charts: &[Chart]) -> String {
    let drawn: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::figure).collect();
    if drawn.is_empty() { String::new() } else { format!("<div class=\"plots\">\n{drawn}</div>\n") }
}

fn settings(report: &Report, served: &Served) -> String {
    let conventional = report.limits.conventional_zones;
    let file = match served.source {
        _ if conventional > 0 && conventional < report.drive.zone_count => "",
        Source::Image(_) | Source::Profile(_) | Source::Device(_) => {
            "<p>A server with this drive; the file is beside this page.</p>\n"
        }
        Source::Remote(_) => "<p>The drive is served by another server; what follows belongs there.</p>\n",
    };
    let text = escape(&zonda_toml(report, served));
    format!("{file}<pre tabindex=\"0\" aria-label=\"zonda.toml\"><code>{text}</code></pre>\n")
}

/// A latency that may be absent.
fn time(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| zonda_plot::text::NOTHING.to_owned(), duration)
}

/// The name of an operation at the start of a title.
fn title_of(kind: Kind) -> String {
    let name = kind.plural();
    name[..1].to_uppercase() + &name[1..]
}
