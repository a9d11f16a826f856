//! Results of a run as text.

mod drive;
mod elastic;
mod store;
mod volume;

pub(crate) use elastic::groups;
pub(crate) use volume::additions;

use zonda_stack::{ExperimentResult, LayerResult};
use zonda_workload::{EndReason, JobResult, KindResult, LatencySummary, RunResult};

use crate::output::Screen;
use crate::results::{Subject, Zones, wrong_blocks};
use crate::table::Table;
use crate::{units, zone_map};

/// The state of conventional zones, in words.
const CONVENTIONAL: &str = "conventional";

/// Everything `zonda bench` shows of a result.
pub(crate) fn all(subject: Subject<'_>, screen: Screen, wide: bool) -> String {
    let run = subject.run();
    let mut text = heading(subject, screen);
    text += &match subject.store() {
        Some((_, measured)) => store::store(measured, screen),
        None if wide => wide_jobs(run),
        None => jobs(run, screen),
    };
    text += &errors(run, screen);
    text += &verification(run, screen);
    match subject {
        Subject::Simulated(result) => {
            text += &layers(result, screen);
            if let Some(summary) = &result.volume {
                text += &volume::volume(summary, result.drive.block_size_bytes.into(), screen);
            }
            if let Some(pool) = &result.elastic {
                text += &elastic::pool(pool, screen);
            }
            let whose = result.volume.as_ref().map_or_else(
                || "The drive".to_owned(),
                |volume| format!("The drive of member {} (the others are not shown)", volume.drive_of_member),
            );
            text += &format!("\n{}\n{}", screen.bold(&whose), drive::drive(result, screen));
        }
        // A volume, or another namespace of the NVM command set.
        Subject::Live(_) if are_conventional(subject.zones()) => return text,
        Subject::Live(_) => text += &format!("\n{}\n", screen.bold("The zones at the end")),
    }
    let zones = subject.zones();
    if zones.ranges.is_empty() {
        return text + "  unknown: the drive does not respond\n";
    }
    text += if matches!(subject, Subject::Simulated(_)) { "\n" } else { "" };
    text + &zone_map::draw(zones.ranges, zones.capacity_blocks, screen)
}

/// Whether the zones have no states to show.
fn are_conventional(zones: Zones<'_>) -> bool {
    !zones.by_state.is_empty() && zones.by_state.iter().all(|count| count.state == CONVENTIONAL)
}

fn heading(subject: Subject<'_>, screen: Screen) -> String {
    let run = subject.run();
    let ramp = match run.ramp_ns {
        0 => String::new(),
        ramp => format!(", figures from {} on", units::time(ramp)),
    };
    let what = match subject {
        Subject::Simulated(result) => format!("{}: {}", screen.bold(&result.drive.profile), result.drive.title),
        Subject::Live(result) => screen.bold(&result.target),
    };
    let (elapsed, kind) = (units::time(run.elapsed_ns), subject.kind_of_time());
    format!("{what}\n{elapsed} of {kind}{ramp}, seed {}\n\n", run.seed)
}

/// Throughput and latency of each job, in two tables that fit most screens.
pub(crate) fn jobs(run: &RunResult, screen: Screen) -> String {
    let mut throughput = Table::new(&["job", "command", ">count", ">moved", ">MiB/s", ">IOPS", "end reason"]);
    let mut latency = Table::new(&["job", "latency of", ">mean", ">p50", ">p95", ">p99", ">p99.9", ">p99.99", ">max"]);
    for (job, kind, is_first) in lines(run) {
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

/// Throughput and latency of each job in one wide table.
fn wide_jobs(run: &RunResult) -> String {
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
        "end reason",
    ]);
    for (job, kind, is_first) in lines(run) {
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

/// A row for each kind of command of each job, and one for a job without commands.
fn lines(run: &RunResult) -> impl Iterator<Item = (&JobResult, Option<&KindResult>, bool)> {
    run.jobs.iter().flat_map(|job| {
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
        EndReason::Errors { .. } | EndReason::Refused => format!("FAILED: {}", job.ended_by),
        _ => format!("{} ({})", job.ended_by, units::time(job.ended_ns)),
    }
}

fn errors(run: &RunResult, screen: Screen) -> String {
    let mut table = Table::new(&["job", "command", "failed with", ">times"]);
    for job in &run.jobs {
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

/// The result of verification, if it was enabled.
fn verification(run: &RunResult, screen: Screen) -> String {
    let Some(verified) = run.verified_blocks else { return String::new() };
    if verified == 0 {
        return "\nVerified 0 blocks: no job read a written block.\n".to_owned();
    }
    let verified = units::counted(verified, "block");
    if wrong_blocks(&run.jobs) == 0 {
        return format!("\nVerified {verified}: no mismatch.\n");
    }
    let mut table = Table::new(&["job", ">blocks", "first wrong block", ">found at"]);
    for job in &run.jobs {
        let Some(wrong) = &job.verify_errors else { continue };
        let (first, at) = (wrong.first.to_string(), units::time(wrong.first.at_ns));
        table.row(&[job.name.as_str(), &units::count(wrong.blocks), &first, &at]);
    }
    let title = screen.bold("FAILED: wrong blocks");
    format!("\n{title}\n{}  of {verified} verified\n", table.render(screen, 2))
}

fn layers(result: &ExperimentResult, screen: Screen) -> String {
    if result.layers.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", screen.bold("Layers, innermost first"));
    let of_rule = |name: &str, struck: u64, matched: u64| {
        format!("{name}: applied to {} of {}", units::count(struck), units::counted(matched, "command"))
    };
    for layer in &result.layers {
        let line = match layer {
            LayerResult::Delay { matched, struck } => of_rule("delay", *struck, *matched),
            LayerResult::Fault { matched, struck } => of_rule("fault", *struck, *matched),
            LayerResult::Scheduler { policy, submitted, waited, waiting_max, table, .. } => format!(
                "scheduler {policy}: {} of {} waited, at most {} at a time{}",
                units::count(*waited),
                units::counted(*submitted, "command"),
                units::count(*waiting_max),
                table.map_or_else(String::new, |table| format!("; {table}"))
            ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_stack::Experiment;
    use zonda_workload::{Finding, VerifyError, VerifyErrors};

    const PLAIN: Screen = Screen { width: 80, colour: false };

    fn verified_run() -> ExperimentResult {
        let text = "[drive]\nprofile = \"tiny\"\npayload = \"bytes\"\n[run]\nverify = true\n\
                    [[job]]\nname = \"reader\"\noperation = \"randread\"\nzones = \"0..2\"\noperations = 1200\n";
        Experiment::parse(text, &crate::files::BUILTIN_PROFILES).unwrap().run(&mut |_| {})
    }

    #[test]
    fn a_run_with_verification_shows_the_number_of_verified_blocks() {
        let text = all(Subject::Simulated(&verified_run()), PLAIN, false);
        assert!(text.contains("\nVerified 1,200 blocks: no mismatch.\n"), "{text}");
    }

    #[test]
    fn wrong_blocks_are_counted_and_the_first_is_shown() {
        let mut result = verified_run();
        let first = VerifyError { lba: 4711, zone: 3, at_ns: 1_200_000, found: Finding::Zeros };
        result.run.jobs[0].verify_errors = Some(VerifyErrors { blocks: 12, first });
        for width in [60, 80, 100] {
            let text = all(Subject::Simulated(&result), Screen { width, ..PLAIN }, false);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in ["FAILED: wrong blocks", "reader 12 block 4711 of zone 3: zeros,", "of 1,200 blocks verified"] {
                assert!(words.contains(part), "{part} is not in\n{text}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}\n{text}");
        }
        assert!(result.run.has_failed());
    }

    #[test]
    fn a_job_whose_commands_were_refused_has_failed() {
        let mut result = verified_run();
        result.run.jobs[0].ended_by = EndReason::Refused;
        let text = jobs(&result.run, PLAIN);
        assert!(text.contains("FAILED: the device accepted no"), "{text}");
    }
}
