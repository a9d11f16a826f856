//! The drive: bytes programmed, utilisation of the hardware, and counters.

use zonda_plot::text::{bytes, count, counted, duration, escape, number, round_bytes};
use zonda_stack::{DriveSummary, LayerResult};

use super::percent;
use crate::results::Subject;

/// Maximum number of bars of a chart; with more units, several share a bar.
const BARS_MAX: usize = 128;

/// The section about the drive, or about the namespace of an existing drive.
pub(super) fn section(subject: Subject<'_>) -> String {
    let zones = subject.zones();
    let limit = |zones: Option<u32>| zones.map_or_else(|| "any number".to_owned(), |zones| count(zones.into()));
    let shape = format!(
        "{} with a capacity of {} each, in blocks of {}; {} may be active and {} open at a time",
        counted(zones.count(), "zone"),
        round_bytes(zones.capacity_bytes()),
        round_bytes(zones.block_size_bytes.into()),
        limit(zones.max_active),
        limit(zones.max_open),
    );
    match subject {
        Subject::Simulated(result) => format!(
            "<p>Profile {}: {shape}.</p>\n\
             <h3>Bytes programmed</h3>\n{}{}<h3>Utilisation</h3>\n{}<h3>Counters</h3>\n{}{}",
            escape(&result.drive.profile),
            programmed(&result.drive),
            super::amplification::section(result),
            utilisation(&result.drive, result.run.drained_ns),
            counters(&result.drive),
            layers(&result.layers),
        ),
        Subject::Live(result) => format!("<p>{}: {shape}.</p>\n", escape(&result.target)),
    }
}

/// A bar of what was programmed to flash, and a table of the same numbers.
fn programmed(drive: &DriveSummary) -> String {
    let counters = &drive.counters;
    let parts = [
        ("host", "host data", "at their final location", counters.programmed_host_bytes),
        ("padding", "padding", "to fill zones that were finished", counters.programmed_padding_bytes),
        ("collection", "garbage collection", "in conventional zones", counters.programmed_gc_bytes),
        ("spill", "spill", "of host data, because the write buffer was full", counters.programmed_spill_bytes),
    ];
    let total: u64 = parts.iter().map(|(.., part_bytes)| part_bytes).sum();
    let host = format!(
        "<p>The host wrote {}; the drive programmed {} to flash: a write amplification (DLWA) of {}.</p>\n",
        bytes(counters.host_write_bytes),
        bytes(total),
        number(drive.dlwa),
    );
    if total == 0 {
        return host;
    }
    let share = |part_bytes: u64| part_bytes as f64 / total as f64;
    let mut x = 0.0;
    let mut segments = String::new();
    let mut words = Vec::new();
    for (class, name, _, part_bytes) in parts.iter().filter(|(.., part_bytes)| *part_bytes > 0) {
        let width = share(*part_bytes) * 1000.0;
        let title = format!("{name}: {}, {}", bytes(*part_bytes), percent(share(*part_bytes)));
        segments += &format!(
            "<g class=\"{class}\"><title>{title}</title><rect x=\"{x:.1}\" width=\"{width:.1}\" height=\"36\"/>\
             <rect class=\"pattern\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"36\" \
             fill=\"url(#pattern-{class})\"/></g>"
        );
        x += width;
        words.push(title);
    }
    let rows: String = parts
        .iter()
        .map(|(class, name, remark, part_bytes)| {
            let swatch = format!(
                "<svg class=\"bytes swatch\" viewBox=\"0 0 28 16\" width=\"28\" height=\"16\" \
                 aria-hidden=\"true\"><g class=\"{class}\">\
                 <rect width=\"28\" height=\"16\"/>\
                 <rect class=\"pattern\" width=\"28\" height=\"16\" fill=\"url(#pattern-{class})\"/></g></svg>"
            );
            let (part, part_share) = (bytes(*part_bytes), percent(share(*part_bytes)));
            format!(
                "<tr><th scope=\"row\">{swatch}{name} <small>{remark}</small></th><td>{part}</td>\
                     <td>{part_share}</td></tr>\n"
            )
        })
        .collect();
    let patterns = "<defs>\
        <pattern id=\"pattern-host\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"/>\
        <pattern id=\"pattern-padding\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
        <path d=\"M-2 2 2-2M0 8 8 0M6 10 10 6\"/></pattern>\
        <pattern id=\"pattern-collection\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
        <circle cx=\"4\" cy=\"4\" r=\"1.6\"/></pattern>\
        <pattern id=\"pattern-spill\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
        <path d=\"M4 0V8\"/></pattern></defs>";
    format!(
        "{host}<svg class=\"bytes\" viewBox=\"0 0 1000 36\" role=\"img\" aria-labelledby=\"bytes-title bytes-desc\">\
         <title id=\"bytes-title\">Bytes programmed to flash</title>\
         <desc id=\"bytes-desc\">{}.</desc>{patterns}{segments}</svg>\n\
         <table class=\"numbers parts\"><thead><tr><th scope=\"col\">Programmed</th><th scope=\"col\">Bytes</th>\
         <th scope=\"col\">Share</th></tr></thead>\n<tbody>{rows}</tbody></table>\n",
        words.join("; ")
    )
}

/// A table with a chart for each resource.
fn utilisation(drive: &DriveSummary, time_ns: u64) -> String {
    if time_ns == 0 {
        return "<p class=\"none\">No time passed.</p>\n".to_owned();
    }
    let busy = &drive.utilisation;
    let shares = |busy_ns: &[u64]| -> Vec<f64> { busy_ns.iter().map(|ns| *ns as f64 / time_ns as f64).collect() };
    let mut rows = vec![
        ("dies".to_owned(), shares(&busy.die_busy_ns)),
        ("channels".to_owned(), shares(&busy.channel_busy_ns)),
        ("link from the host".to_owned(), shares(&[busy.link_in_busy_ns])),
        ("link to the host".to_owned(), shares(&[busy.link_out_busy_ns])),
    ];
    let servers = shares(&busy.firmware_busy_ns);
    rows.extend(
        servers.iter().enumerate().map(|(index, share)| (format!("firmware server {}", index + 1), vec![*share])),
    );
    let rows: String =
        rows.iter().filter(|(_, shares)| !shares.is_empty()).map(|(name, shares)| row(name, shares)).collect();
    let cores = if servers.iter().any(|share| *share > 1.0) {
        " One with several cores can be busy for more than 100% of the time; its chart ends at the next whole \
         core."
    } else {
        ""
    };
    format!(
        "<p>Busy time over the {} until the last command completed. In the charts, the height or \
         width is from 0% to 100%. A firmware server is a queue of the controller, whose cores process the commands of the \
         host.{cores}</p>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"Busy times\" tabindex=\"0\">\
         <table class=\"numbers usage\"><thead><tr><th scope=\"col\">Resource</th><th scope=\"col\">Mean</th>\
         <th scope=\"col\">Each of them</th><th scope=\"col\">Least</th><th scope=\"col\">Most</th>\
         <th scope=\"col\">Number</th></tr></thead>\n\
         <tbody>{rows}</tbody></table></div>\n",
        duration(time_ns)
    )
}

fn row(name: &str, shares: &[f64]) -> String {
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let range = if shares.len() == 1 { ["", ""].map(str::to_owned) } else { [percent(least), percent(most)] };
    format!(
        "<tr><th scope=\"row\">{name}</th><td>{}</td><td class=\"picture\">{}</td><td>{}</td><td>{}</td>\
         <td>{}</td></tr>\n",
        percent(mean),
        if shares.len() == 1 { bar(name, shares[0]) } else { bars(name, shares) },
        range[0],
        range[1],
        count(shares.len() as u64),
    )
}

/// A horizontal bar for one unit.
fn bar(name: &str, share: f64) -> String {
    let width = share / share.ceil().max(1.0) * 100.0;
    format!(
        "<svg class=\"meter\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>{name}: {}</title>\
         <rect class=\"track\" width=\"100\" height=\"10\"/>\
         <rect class=\"busy\" width=\"{width:.2}\" height=\"10\"/></svg>",
        percent(share)
    )
}

/// Vertical bars, one for each unit, or for several adjacent units if there are many.
fn bars(name: &str, shares: &[f64]) -> String {
    let per_bar = shares.len().div_ceil(BARS_MAX);
    let groups: Vec<&[f64]> = shares.chunks(per_bar).collect();
    let width = groups.len() * 10;
    // The chart is stretched: with fewer bars, the gap must be narrower to have the same size on
    // the screen.
    let gap = (groups.len() as f64 * 0.04).clamp(0.2, 2.0);
    let bars: String = groups
        .iter()
        .enumerate()
        .map(|(place, group)| {
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            let height = mean.clamp(0.0, 1.0) * 100.0;
            let first = place * per_bar;
            let last = first + group.len() - 1;
            let which = if first == last { first.to_string() } else { format!("{first} to {last}") };
            format!(
                "<rect class=\"busy\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\">\
                 <title>{which}: {}</title></rect>",
                (place * 10) as f64 + gap / 2.0,
                100.0 - height,
                10.0 - gap,
                percent(mean)
            )
        })
        .collect();
    let together = if per_bar == 1 { String::new() } else { format!(", {per_bar} in a bar") };
    format!(
        "<svg class=\"meter tall\" viewBox=\"0 0 {width} 100\" preserveAspectRatio=\"none\" role=\"img\">\
         <title>{name}{together}</title>\
         <rect class=\"track\" width=\"{width}\" height=\"100\"/>{bars}</svg>"
    )
}

fn counters(drive: &DriveSummary) -> String {
    let (counters, wear) = (&drive.counters, &drive.wear);
    let number = count;
    let entries = [
        ("read by the host", bytes(counters.host_read_bytes)),
        ("read from flash for it", bytes(counters.flash_read_bytes)),
        ("commands completed", number(counters.commands_completed)),
        ("commands refused", number(counters.commands_refused)),
        ("programs", number(counters.programs)),
        ("erases", number(counters.erases)),
        ("suspensions for reads", number(counters.suspensions)),
        ("writes that waited for buffer space", number(counters.buffer_waits)),
        ("zones reset", number(counters.zone_resets)),
        ("zones finished before they were full", number(counters.zone_finishes)),
        ("zones closed by the controller", number(counters.zones_closed_by_controller)),
        ("erase blocks", number(wear.units)),
        ("maximum erases of an erase block", number(wear.erases_max.into())),
        ("minimum erases of an erase block", number(wear.erases_min.into())),
    ];
    let entries: String =
        entries.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")).collect();
    format!("<dl class=\"counters\">\n{entries}</dl>\n")
}

/// The counters of the layers around the drive; empty without layers.
fn layers(layers: &[LayerResult]) -> String {
    if layers.is_empty() {
        return String::new();
    }
    let of_rule =
        |matched: u64, struck: u64| format!("{} matched, applied to {}", counted(matched, "command"), count(struck));
    let rows: String = layers
        .iter()
        .enumerate()
        .map(|(place, layer)| {
            let (kind, seen) = match layer {
                LayerResult::Delay { matched, struck } => ("delay", of_rule(*matched, *struck)),
                LayerResult::Fault { matched, struck } => ("fault", of_rule(*matched, *struck)),
                LayerResult::Trace { hash, operations, .. } => {
                    let submitted = operations.iter().map(|of| of.submitted).sum();
                    ("trace", format!("{}, hash {}", counted(submitted, "command"), escape(hash)))
                }
                LayerResult::Scheduler { policy, submitted, waited, waiting_max, table, .. } => (
                    *policy,
                    format!(
                        "{}, {} waited, at most {} at a time{}",
                        counted(*submitted, "command"),
                        count(*waited),
                        count(*waiting_max),
                        table.map_or_else(String::new, |table| format!("; {table}"))
                    ),
                ),
                LayerResult::Slice { zones, shown_full } => {
                    ("slice", format!("{}, {} shown as full", counted((*zones).into(), "zone"), count(*shown_full)))
                }
            };
            let place = place + 1;
            format!(
                "<tr><th scope=\"row\">{place}</th><td class=\"words\">{kind}</td>\
                     <td class=\"words\">{seen}</td></tr>\n"
            )
        })
        .collect();
    format!(
        "<h3>Layers around the drive</h3>\n<table class=\"numbers layers\"><thead><tr>\
         <th scope=\"col\">From inside</th>\
         <th scope=\"col\" class=\"words\">Layer</th><th scope=\"col\" class=\"words\">Commands</th></tr></thead>\n\
         <tbody>{rows}</tbody></table>\n"
    )
}
