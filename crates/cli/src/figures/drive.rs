//! Counters of a simulated drive as text.

use zonda_ssd::allocation::AllocationFacts;
use zonda_stack::{DriveSummary, ExperimentResult};

use crate::output::Screen;
use crate::units;

/// The counters of the drive.
pub(super) fn drive(result: &ExperimentResult, screen: Screen) -> String {
    let DriveSummary { counters, wear, utilisation, .. } = &result.drive;
    let mut lines: Vec<(&str, String)> = Vec::new();
    let host =
        format!("wrote {}, read {}", units::bytes(counters.host_write_bytes), units::bytes(counters.host_read_bytes));
    lines.push(("host", host));
    let causes = [
        ("padding of finished zones", counters.programmed_padding_bytes),
        ("garbage collection", counters.programmed_gc_bytes),
        ("buffer spills", counters.programmed_spill_bytes),
    ];
    let causes: Vec<String> = causes
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(cause, bytes)| format!("{} for {cause}", units::bytes(*bytes)))
        .collect();
    let own =
        if causes.is_empty() { "wrote no additional data".to_owned() } else { format!("wrote {}", causes.join(", ")) };
    lines.push(("drive", own));
    lines.push(("write amplification", format!("{:.3} (DLWA)", result.drive.dlwa)));
    let zones = format!(
        "{} reset, {} finished before they were full, {} closed by the controller",
        units::count(counters.zone_resets),
        units::count(counters.zone_finishes),
        units::count(counters.zones_closed_by_controller)
    );
    lines.push(("zones", zones));
    let erases = format!(
        "{} of {}; {} to {} per erase block",
        units::counted(counters.erases, "erase"),
        units::counted(wear.units, "erase block"),
        wear.erases_min,
        wear.erases_max
    );
    lines.push(("wear", erases));
    lines.push(("zone allocation", elements(&result.drive.allocation)));
    let elapsed = result.run.drained_ns.max(1) as f64;
    let mean = |busy: &[u64]| busy.iter().map(|&busy| busy as f64).sum::<f64>() / busy.len().max(1) as f64 / elapsed;
    let most = |busy: &[u64]| busy.iter().copied().max().unwrap_or(0) as f64 / elapsed;
    let busy = format!(
        "dies {} (busiest {}), channels {} (busiest {}), link {} out, {} in",
        units::percent(mean(&utilisation.die_busy_ns)),
        units::percent(most(&utilisation.die_busy_ns)),
        units::percent(mean(&utilisation.channel_busy_ns)),
        units::percent(most(&utilisation.channel_busy_ns)),
        units::percent(utilisation.link_out_busy_ns as f64 / elapsed),
        units::percent(utilisation.link_in_busy_ns as f64 / elapsed)
    );
    lines.push(("utilization", busy));
    let waits = format!(
        "{} writes waited for buffer space; reads suspended {}",
        units::count(counters.buffer_waits),
        format_args!("programs and erases {} times", units::count(counters.suspensions))
    );
    lines.push(("buffer and flash", waits));
    let mut text = String::new();
    for (name, line) in lines {
        let body = screen.paragraph(&line, 24);
        text += &format!("  {name:<21} {}", body.trim_start());
    }
    text
}

/// The storage elements in a sentence.
fn elements(facts: &AllocationFacts) -> String {
    let relaxed = match facts.relaxed_allocations {
        0 => String::new(),
        relaxed => format!("; {} beyond the limits on LUNs", units::counted(relaxed, "allocation")),
    };
    let unit = if facts.policy == "fixed" { "erase block" } else { "storage element" };
    format!(
        "{} of {} per zone ({}); of {}, {} written, {} to be erased, {} empty{relaxed}",
        units::counted(facts.elements_per_zone.into(), unit),
        units::bytes(facts.element_bytes),
        facts.policy,
        units::counted(facts.elements, unit),
        units::count(facts.written),
        units::count(facts.invalid),
        units::count(facts.empty),
    )
}
