//! One run of loads at the same time: zones are prepared, the load generator runs, and each load
//! gets its figures.

use zonda_config::{Rate, unplaced};
use zonda_sched::{Policy, Scheduled};
use zonda_workload::{EndReason, JobResult, Plan, RequestKind, RunResult, Runner};
use zonda_zoned::{Blocks, Duration, NamespaceId, Status, ZoneIndex};

use crate::characterise::Work;
use crate::finding::{Figures, Finding, counted};
use crate::jobs::{self, PlannedJob};
use crate::plan::Run;
use crate::{Kind, Load, Missing, PrepareFailed};

/// Zones that are reset in a run, at least.
pub(crate) const RESET_ZONES_MIN: usize = 8;
/// Zones that are reset in a run, at most.
const RESET_ZONES_MAX: usize = 2048;
/// The preparation of one run with resets takes at most this part of the budget: one of so many.
pub(crate) const FILL_ONE_IN: u64 = 100;
/// The time of a run, as a share of the time after which resets or finishes would have no zone left.
const ZONES_LAST_PERCENT: u64 = 80;

/// Runs loads for a time, and adds a finding for each.
///
/// # Errors
/// Why there are no figures of any of them.
pub(crate) fn measure(work: &mut Work<'_>, run: &Run, time: Duration) -> Result<(), Missing> {
    let geometry = work.subject.geometry().clone();
    let policy = match run.scheduler {
        None => None,
        Some(scheduler) => Some(scheduler.policy(work.zone_groups.as_ref()).ok_or(Missing::NoGroups)?),
    };
    let planned = planned(work, run, time)?;
    let given = time;
    let time = time_of(work, run, &planned, given);
    if time < PAIR_MIN {
        return Err(Missing::TooFewZones);
    }
    let specs: Vec<_> = planned.iter().map(|job| unplaced(job.spec.clone())).collect();
    let has_ramp = run.loads.iter().any(|load| !load.kind.is_management());
    let plan = Plan::new(&jobs::run_spec(work.seed, time, has_ramp), &specs, &geometry);
    let plan = plan.map_err(|error| Missing::NotSupported(error.message))?;

    let mut fills = work.zones.fills.clone();
    fills.extend(planned.iter().flat_map(|job| &job.fills).copied());
    work.subject.prepare(&fills).map_err(|error| of_preparation(&error))?;
    let payload = work.subject.payload();
    let (device, clock) = work.subject.parts();
    let runner = Runner::new(plan, payload, NamespaceId::FIRST);
    let result = match policy {
        None => runner.run_live(device, clock, &mut |_| {}),
        Some(policy) => {
            let scheduled = Scheduled::new(device, policy.scheduler(&geometry));
            // A server without a scheduler submits all commands that the drive accepts.
            let mut scheduled = match policy {
                Policy::None => scheduled.with_in_flight_max(usize::MAX),
                _ => scheduled,
            };
            runner.run_live(&mut scheduled, clock, &mut |_| {})
        }
    };
    let changed: Vec<ZoneIndex> = planned.into_iter().flat_map(|job| job.changes).collect();
    work.subject.forget(&changed);

    for (place, load) in run.loads.iter().enumerate() {
        let beside = (run.loads.len() > 1).then(|| run.loads[1 - place]);
        // Of two equal loads one stands for both.
        if place == 0 || beside != Some(*load) {
            let finding = Finding::new(run.part, *load, beside, figures(&result, place, load.kind, time < given));
            work.findings.push(finding.behind(run.scheduler));
        }
    }
    Ok(())
}

/// The jobs of the loads, each with zones of its own.
fn planned(work: &Work<'_>, run: &Run, time: Duration) -> Result<Vec<PlannedJob>, Missing> {
    let geometry = work.subject.geometry();
    let mut free = &work.zones.write[..];
    let most = work.zones.write.len() / run.loads.len();
    let mut planned = Vec::new();
    for (place, load) in run.loads.iter().enumerate() {
        let job = match load.kind {
            Kind::Read => jobs::reads(place, load, &work.zones.read, geometry),
            Kind::Write if run.scheduler.is_some() => jobs::lasting_writes(place, load, &mut free, most),
            Kind::Write | Kind::Append => jobs::writes(place, load, &mut free, most, time, geometry),
            Kind::Finish => jobs::finishes(place, &mut free, most, geometry),
            Kind::Reset => {
                let fill = fill_of(load, geometry.zone_capacity_blocks);
                jobs::resets(place, &mut free, reset_zones(work, load, fill, most), fill, geometry)
            }
            Kind::Open | Kind::Close => None,
        };
        let mut job = job.ok_or(Missing::TooFewZones)?;
        if let Some(percent) = load.rate_percent {
            job.spec.rate = Some(unplaced(rate(work, run, load, percent)?));
        }
        planned.push(job);
    }
    Ok(planned)
}

/// A rate in percent of the throughput of a load that was measured alone.
fn rate(work: &Work<'_>, run: &Run, load: &Load, percent: u32) -> Result<Rate, Missing> {
    let finding = alone(work, run, &load.unlimited()).ok_or(Missing::NoTime)?;
    let figures = finding.figures.ok_or_else(|| finding.missing.clone().unwrap_or(Missing::NoTime))?;
    let per_second = figures.per_second * f64::from(percent) / 100.0;
    Ok(Rate::OperationsPerSecond((per_second as u64).max(1)))
}

/// The finding of a load that ran alone before.
fn alone<'a>(work: &'a Work<'_>, run: &Run, load: &Load) -> Option<&'a Finding> {
    let is_it = |finding: &&Finding| finding.part == run.part && finding.load == *load && finding.beside.is_none();
    work.findings.iter().find(is_it)
}

/// Blocks of a zone that is so full.
pub(crate) fn fill_of(load: &Load, capacity: Blocks) -> Blocks {
    let percent = u64::from(load.fill_percent.unwrap_or(0));
    Blocks(capacity.0 * percent / 100)
}

/// As many zones as can be filled in the time for that. Partly written zones are active.
fn reset_zones(work: &Work<'_>, load: &Load, fill: Blocks, most: usize) -> usize {
    let affordable = Duration(work.budget_part(FILL_ONE_IN));
    let active = match load.fill_percent {
        Some(1..=99) => work.subject.active_max().saturating_sub(ZONES_BESIDE) as usize,
        _ => usize::MAX,
    };
    let most = most.min(RESET_ZONES_MAX).min(active.max(1));
    let mut count = RESET_ZONES_MIN.min(most);
    while count * 2 <= most {
        let zones: Vec<_> = work.zones.write.iter().take(count * 2).map(|zone| (*zone, fill)).collect();
        if work.subject.preparation(&zones) > affordable {
            break;
        }
        count *= 2;
    }
    count
}

/// With so few zones that a pair would run for less than this, it would show a write buffer that
/// fills.
const PAIR_MIN: Duration = Duration::from_millis(5);

/// Active zones that are left for loads beside resets of partly written zones.
const ZONES_BESIDE: u32 = 8;

/// Resets and finishes must last until the end of the run: their rates alone are known.
fn time_of(work: &Work<'_>, run: &Run, planned: &[PlannedJob], time: Duration) -> Duration {
    let mut time = time;
    if run.loads.len() < 2 {
        return time;
    }
    for (load, job) in run.loads.iter().zip(planned) {
        if !load.kind.is_management() {
            continue;
        }
        if let Some(figures) = alone(work, run, load).and_then(|finding| finding.figures) {
            let lasts_ns = job.changes.len() as f64 / figures.per_second.max(1e-9) * 1e9;
            time = time.min(Duration((lasts_ns.min(1e18) as u64) * ZONES_LAST_PERCENT / 100));
        }
    }
    Duration(time.0.max(1))
}

/// `is_limited`: whether the zones have made the run shorter than its share of the budget.
fn figures(result: &RunResult, place: usize, kind: Kind, is_limited: bool) -> Result<Figures, Missing> {
    let job: &JobResult = &result.jobs[place];
    if let Some(of_kind) = job.kind(counted(kind)) {
        return Ok(Figures::of_job(of_kind, &intervals(result, place, job)));
    }
    // A finisher that cannot finish is not excused by the blocks that it has written.
    let counts = |error: &RequestKind| *error == counted(kind) || kind == Kind::Finish;
    match (job.errors.iter().find(|error| counts(&error.kind)), job.ended_by) {
        (Some(error), _) => Err(of_status(error.status)),
        (None, EndReason::ZonesDone | EndReason::ZoneFull) => Err(Missing::ZonesUsedUp),
        (None, _) if is_limited => Err(Missing::ZonesUsedUp),
        (None, _) => Err(Missing::NoneCompleted),
    }
}

/// Requests in a second in each whole interval in which the job was measured.
fn intervals(result: &RunResult, place: usize, job: &JobResult) -> Vec<f64> {
    let from = result.ramp_ns.max(job.started_ns);
    let is_measured = |start_ns: u64, length_ns: u64| start_ns >= from && start_ns + length_ns <= job.ended_ns;
    let samples = result.series.iter().filter(|sample| is_measured(sample.start_ns, sample.length_ns));
    samples.map(|sample| sample.jobs[place].operations as f64 * 1e9 / sample.length_ns.max(1) as f64).collect()
}

/// A status that a drive without the operation returns is no failure.
pub(crate) fn of_status(status: Status) -> Missing {
    match status {
        Status::InvalidField | Status::InvalidZoneOperation => Missing::NotSupported(status.to_string()),
        _ => Missing::Failed(status.to_string()),
    }
}

pub(crate) fn of_preparation(error: &PrepareFailed) -> Missing {
    Missing::Failed(error.to_string())
}
