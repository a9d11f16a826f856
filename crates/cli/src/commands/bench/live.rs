//! Jobs in real time, on an existing namespace.

use rustix::time::{ClockId, clock_gettime};
use zonda_devices::{Connection, RingClock};
use zonda_workload::{Plan, PrepareError, RunResult, Runner, prepare};
use zonda_zoned::{NamespaceId, PayloadKind};

use crate::commands::connect;
use crate::errors::Failure;
use crate::progress::Progress;
use crate::results::{ClientCost, LiveResult, NamespaceSummary};
use crate::units;

/// Prepares the zones of the plan, runs its jobs and reports the zones. **The data in the zones of
/// the jobs is lost.** A drive failure during the run is part of the result.
pub(crate) fn run_on(
    connection: &mut Connection,
    target: &str,
    plan: &Plan,
    quiet: bool,
) -> Result<LiveResult, Failure> {
    make_ready(connection, plan, quiet)?;
    let (run, client) = measure(connection, plan, quiet);
    let descriptors = match connect::all_descriptors(connection) {
        Ok(descriptors) => descriptors,
        // The result already reports why the drive failed.
        Err(_) if run.has_failed() => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let namespace = NamespaceSummary::of(&descriptors, connection.geometry());
    Ok(LiveResult::new(target.to_owned(), run, namespace, client))
}

fn make_ready(connection: &mut Connection, plan: &Plan, quiet: bool) -> Result<(), Failure> {
    let mut bar = Progress::new(quiet);
    let (device, ring) = connection.parts();
    let prepared =
        prepare(plan, PayloadKind::Bytes, NamespaceId::FIRST, device, &mut RingClock(ring), &mut |progress| {
            let (done, all) = (progress.bytes_written, progress.bytes_to_write);
            let (reset, to_reset) = (progress.zones_reset, progress.zones_to_reset);
            let share = if all > 0 { done as f64 / all as f64 } else { reset as f64 / to_reset.max(1) as f64 };
            bar.show(Some(share), || {
                let zones = units::counted(to_reset, "zone");
                let written = if all > 0 {
                    format!(", {} of {} written", units::bytes(done), units::bytes(all))
                } else {
                    String::new()
                };
                format!("preparing: {reset} of {zones} reset{written}")
            });
        });
    bar.finish();
    prepared.map_err(|error: PrepareError| Failure::input(error.to_string(), connect::remedy(error.status)))
}

fn measure(connection: &mut Connection, plan: &Plan, quiet: bool) -> (RunResult, ClientCost) {
    let mut bar = Progress::new(quiet);
    let (device, ring) = connection.parts();
    let runner = Runner::new(plan.clone(), PayloadKind::Bytes, NamespaceId::FIRST).prepared();
    let mut completed = 0;
    let before = cpu_ns();
    let run = runner.run_live(device, &mut RingClock(ring), &mut |progress| {
        completed = progress.operations;
        bar.show(progress.fraction, || {
            let (elapsed, requests) = (progress.elapsed, units::counted(progress.operations, "request"));
            format!("{elapsed}, {requests}, {}", units::bytes(progress.bytes))
        });
    });
    let cpu_ns = cpu_ns() - before;
    bar.finish();
    // The callback is not called for the last interval.
    let counted: u64 = run.jobs.iter().flat_map(|job| &job.kinds).map(|kind| kind.operations).sum();
    (run, ClientCost { cpu_ns, requests: completed.max(counted) })
}

/// CPU time of this process so far.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPU time of a run on the client, in a sentence.
pub(crate) fn cost(result: &LiveResult) -> String {
    let client = result.client;
    let share = client.cpu_ns as f64 / result.run.drained_ns.max(1) as f64;
    format!(
        "CPU time of the client: {} per request ({} for {}, {} of one CPU)",
        units::time(client.per_request_ns()),
        units::time(client.cpu_ns),
        units::counted(client.requests, "request"),
        units::percent(share)
    )
}
