//! What a run measured, as text.

use zonda_stack::{DriveSummary, ExperimentResult, LayerResult};
use zonda_workload::{EndReason, JobResult, KindResult, LatencySummary};

use crate::output::Screen;
use crate::table::Table;
use crate::{units, zone_map};

/// Everything `zonda bench` shows of a result.
pub(crate) fn all(result: &ExperimentResult, screen: Screen, wide: bool) -> String {
    let mut text = heading(result, screen);
    text += &if wide { wide_jobs(result) } else { jobs(result, screen) };
    text += &errors(result, screen);
    text += &layers(result, screen);
    text += &format!("\n{}\n", screen.bold("The drive"));
    text += &drive(result, screen);
    text += "\n";
    text += &zone_map::draw(&result.drive, screen);
    text
}

fn heading(result: &ExperimentResult, screen: Screen) -> String {
    let run = &result.run;
    let ramp = match run.ramp_ns {
        0 => String::new(),
        ramp => format!(", figures from {} on", units::time(ramp)),
    };
    let name = screen.bold(&result.drive.profile);
    let elapsed = units::time(run.elapsed_ns);
    format!("{name}: {}\n{elapsed} of virtual time{ramp}, seed {}\n\n", result.drive.title, run.seed)
}

/// Throughput and latency of each job, in two tables that fit most screens.
pub(crate) fn jobs(result: &ExperimentResult, screen: Screen) -> String {
    let mut throughput =
        Table::new(&["job", "command", ">count", ">moved", ">MiB/s", ">IOPS", "the job ended because"]);
    let mut latency = Table::new(&["job", "latency of", ">mean", ">p50", ">p95", ">p99", ">p99.9", ">p99.99", ">max"]);
    for (job, kind, is_first) in lines(result) {
        let name = if is_first { job.name.as_str() } else { "" };
        let ended = if is_first { ended(job) } else { String::new() };
        let Some(kind) = kind else {
            throughput.row(&[name, "-", "0", "-", "-", "-", &ended]);
            continue;
        };
        let [count, moved, bandwidth, iops] = throughput_of(kind);
        throughput.row(&[name, kind.kind.name(), &count, &moved, &bandwidth, &iops, &ended]);
        let mut cells = vec![name.to_owned(), kind.kind.name().to_owned()];
        cells.extend(latency_of(&kind.latency));
        latency.row(&cells);
    }
    let mut text = throughput.render(screen, 0);
    if !latency.is_empty() {
        text += &format!("\n{}", latency.render(screen, 0));
    }
    text
}

/// The same in one table, however wide.
fn wide_jobs(result: &ExperimentResult) -> String {
    let mut table = Table::new(&[
        "job",
        "command",
        ">count",
        ">moved",
        ">MiB/s",
        ">IOPS",
        ">mean",
        ">p50",
        ">p95",
        ">p99",
        ">p99.9",
        ">p99.99",
        ">max",
        ">started",
        ">ended",
        "the job ended because",
    ]);
    for (job, kind, is_first) in lines(result) {
        let mut cells = vec![if is_first { job.name.clone() } else { String::new() }];
        match kind {
            Some(kind) => {
                cells.push(kind.kind.name().to_owned());
                cells.extend(throughput_of(kind));
                cells.extend(latency_of(&kind.latency));
            }
            None => cells.extend(std::iter::repeat_n("-".to_owned(), 12)),
        }
        cells.extend([units::time(job.started_ns), units::time(job.ended_ns)]);
        cells.push(if is_first { ended(job) } else { String::new() });
        table.row(&cells);
    }
    table.render_wide(0)
}

/// A line for each kind of command of each job, and for a job without any.
fn lines(result: &ExperimentResult) -> impl Iterator<Item = (&JobResult, Option<&KindResult>, bool)> {
    result.run.jobs.iter().flat_map(|job| {
        let kinds = job.kinds.iter().enumerate().map(move |(index, kind)| (job, Some(kind), index == 0));
        kinds.chain(job.kinds.is_empty().then_some((job, None, true)))
    })
}

fn throughput_of(kind: &KindResult) -> [String; 4] {
    let of_bytes = |text: String| if kind.bytes == 0 { "-".to_owned() } else { text };
    [
        units::count(kind.operations),
        of_bytes(units::bytes(kind.bytes)),
        of_bytes(units::mib_per_second(kind.bandwidth_bytes_per_second)),
        units::digits(kind.iops),
    ]
}

fn latency_of(latency: &LatencySummary) -> [String; 7] {
    latency.columns_ns().map(units::time)
}

fn ended(job: &JobResult) -> String {
    match job.ended_by {
        EndReason::Errors { .. } => format!("FAILED: {}", job.ended_by),
        _ => format!("{} ({})", job.ended_by, units::time(job.ended_ns)),
    }
}

fn errors(result: &ExperimentResult, screen: Screen) -> String {
    let mut table = Table::new(&["job", "command", "failed with", ">times"]);
    for job in &result.run.jobs {
        for error in &job.errors {
            let status = error.status.to_string();
            table.row(&[job.name.as_str(), error.kind.name(), &status, &units::count(error.count)]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n{}\n{}", screen.bold("Commands that failed"), table.render(screen, 2))
}

fn layers(result: &ExperimentResult, screen: Screen) -> String {
    if result.layers.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", screen.bold("Layers, the innermost first"));
    let of_rule = |name: &str, struck: u64, matched: u64| {
        format!("{name}: struck at {} of {}", units::count(struck), units::counted(matched, "command"))
    };
    for layer in &result.layers {
        let line = match layer {
            LayerResult::Delay { matched, struck } => of_rule("delay", *struck, *matched),
            LayerResult::Fault { matched, struck } => of_rule("fault", *struck, *matched),
            LayerResult::Slice { zones, .. } => format!("slice: {}", units::counted(u64::from(*zones), "zone")),
            LayerResult::Trace { hash, operations, .. } => {
                let commands: u64 = operations.iter().map(|operation| operation.submitted).sum();
                format!("trace: {}, hash {hash}", units::counted(commands, "command"))
            }
        };
        text += &format!("  {line}\n");
    }
    text
}

/// What the drive counted.
fn drive(result: &ExperimentResult, screen: Screen) -> String {
    let DriveSummary { counters, wear, utilisation, .. } = &result.drive;
    let mut lines: Vec<(&str, String)> = Vec::new();
    let host =
        format!("wrote {}, read {}", units::bytes(counters.host_write_bytes), units::bytes(counters.host_read_bytes));
    lines.push(("the host", host));
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
    let own = if causes.is_empty() {
        "wrote nothing of its own accord".to_owned()
    } else {
        format!("wrote {}", causes.join(", "))
    };
    lines.push(("the drive", own));
    lines.push(("write amplification", format!("{:.3} (DLWA)", result.drive.dlwa)));
    let zones = format!(
        "{} reset, {} finished before they were full, {} closed by the drive to make room",
        units::count(counters.zone_resets),
        units::count(counters.zone_finishes),
        units::count(counters.zones_closed_by_controller)
    );
    lines.push(("zones", zones));
    let erases = format!(
        "{} of {}; {} to {} each",
        units::counted(counters.erases, "erase"),
        units::counted(wear.units, "unit"),
        wear.erases_min,
        wear.erases_max
    );
    lines.push(("wear", erases));
    let elapsed = result.run.drained_ns.max(1) as f64;
    let mean = |busy: &[u64]| busy.iter().map(|&busy| busy as f64).sum::<f64>() / busy.len().max(1) as f64 / elapsed;
    let most = |busy: &[u64]| busy.iter().copied().max().unwrap_or(0) as f64 / elapsed;
    let busy = format!(
        "dies {} (the busiest {}), channels {} ({}), link {} out, {} in",
        units::percent(mean(&utilisation.die_busy_ns)),
        units::percent(most(&utilisation.die_busy_ns)),
        units::percent(mean(&utilisation.channel_busy_ns)),
        units::percent(most(&utilisation.channel_busy_ns)),
        units::percent(utilisation.link_out_busy_ns as f64 / elapsed),
        units::percent(utilisation.link_in_busy_ns as f64 / elapsed)
    );
    lines.push(("busy", busy));
    let waits = format!(
        "{} writes waited for room; reads interrupted {}",
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
