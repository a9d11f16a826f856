//! The key figures at the top of the page.

use zonda_plot::text::{bytes, count, counted, duration, escape, mebibytes, number, rate};
use zonda_workload::{JobResult, RequestKind};

use crate::results::{Subject, wrong_blocks};

/// The key figures. Rates are of all jobs together over the time from the end of the ramp to the
/// end of the last job.
pub(super) fn cards(subject: Subject<'_>) -> String {
    let (run, all_zones) = (subject.run(), subject.zones());
    let measured_ns = run.elapsed_ns.saturating_sub(run.ramp_ns);
    let per_second = |total: u64| if measured_ns == 0 { 0.0 } else { total as f64 * 1e9 / measured_ns as f64 };
    let moved = |kinds: &[RequestKind]| -> u64 {
        run.jobs.iter().flat_map(|job| &job.kinds).filter(|of| kinds.contains(&of.kind)).map(|of| of.bytes).sum()
    };
    let (read, written) = (moved(&[RequestKind::Read]), moved(&[RequestKind::Write, RequestKind::Append]));
    let operations: u64 = run.jobs.iter().flat_map(|job| &job.kinds).map(|of| of.operations).sum();
    let errors: u64 = run.jobs.iter().map(JobResult::error_count).sum();
    let within = duration(measured_ns);
    let bandwidth = |name: &str, total: u64| {
        card(name, &mebibytes(per_second(total)), "MiB/s", &format!("{} in {within}", bytes(total)))
    };
    let of_errors = if errors == 0 { "no errors".to_owned() } else { format!("<em>{}</em>", counted(errors, "error")) };
    let iops = format!("{} in {within}, {of_errors}", counted(operations, "operation"));
    let states: String = all_zones
        .by_state
        .iter()
        .map(|of| format!("<li><b>{}</b> {}</li>", count(of.zones.into()), escape(&of.state)))
        .collect();
    let zones = count(all_zones.count());
    let mut cards = vec![
        "<dl class=\"cards\">\n".to_owned(),
        bandwidth("Read", read),
        bandwidth("Write", written),
        card("IOPS", &rate(per_second(operations)), "", &iops),
    ];
    if let Some(verified) = run.verified_blocks {
        let note = match wrong_blocks(&run.jobs) {
            0 => "no mismatch".to_owned(),
            wrong => format!("<em>{} wrong</em>", count(wrong)),
        };
        cards.push(card("Verified", &count(verified), if verified == 1 { "block" } else { "blocks" }, &note));
    }
    match subject {
        Subject::Simulated(result) => {
            if let Some(volume) = &result.volume {
                cards.extend(super::volume::cards(volume, result.drive.block_size_bytes.into()));
            }
            let drive = &result.drive;
            let device = format!("{} by the drive itself", bytes(drive.counters.device_write_bytes()));
            let wear = match drive.wear.erases_max {
                0 => counted(drive.wear.units, "erase block"),
                most => {
                    format!("{}, at most {} per block", counted(drive.wear.units, "erase block"), count(most.into()))
                }
            };
            cards.push(card("DLWA", &number(drive.dlwa), "", &device));
            cards.push(card("Erases", &count(drive.counters.erases), "", &wear));
        }
        Subject::Live(result) => {
            let note = format!("on the client, {} in total", duration(result.client.cpu_ns));
            cards.push(card("CPU time per request", &duration(result.client.per_request_ns()), "", &note));
        }
    }
    cards.push(format!("<div class=\"card\"><dt>Zones</dt><dd><b>{zones}</b><ul>{states}</ul></dd></div>\n</dl>\n"));
    cards.concat()
}

/// One figure.
pub(super) fn card(name: &str, value: &str, unit: &str, note: &str) -> String {
    format!("<div class=\"card\"><dt>{name}</dt><dd><b>{value}</b> {unit}<small>{note}</small></dd></div>\n")
}
