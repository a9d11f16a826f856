//! The results of the tour's jobs, in sentences.

use zonda_stack::ExperimentResult;
use zonda_workload::{JobResult, RequestKind};

use crate::units;

/// The result of each job, with its explanation.
pub(super) fn sentences(result: &ExperimentResult) -> Vec<String> {
    let of_job = |job: &JobResult| match job.name.as_str() {
        "log" => of_log(job),
        "reader" => of_reader(job),
        "finisher" => of_finisher(result, job),
        "cleaner" => of_cleaner(job),
        "fan" => of_fan(result, job),
        _ => None,
    };
    result.run.jobs.iter().filter_map(of_job).collect()
}

fn of_log(job: &JobResult) -> Option<String> {
    let appends = job.kind(RequestKind::Append)?;
    Some(format!(
        "Eight writers append to one zone each, and continue with the next zone when it is full: {} at {} MiB/s. A zone of \
         this drive is on one die, so the program bandwidth of a die limits the write bandwidth of a zone.",
        units::bytes(appends.bytes),
        units::mib_per_second(appends.bandwidth_bytes_per_second)
    ))
}

fn of_reader(job: &JobResult) -> Option<String> {
    let reads = job.kind(RequestKind::Read)?;
    Some(format!(
        "A reader at queue depth 16 completes {} reads per second. The p50 latency is {}, the p99 latency {}: slow reads \
         wait for a die or a channel that is busy with other commands.",
        units::count(reads.iops as u64),
        units::time(reads.latency.p50_ns),
        units::time(reads.latency.p99_ns)
    ))
}

fn of_finisher(result: &ExperimentResult, job: &JobResult) -> Option<String> {
    let finishes = job.kind(RequestKind::Finish)?;
    Some(format!(
        "A writer finishes {} that are 40% full. The drive pads the rest, {} in all, which takes {} per zone and wears the \
         flash: the device-level write amplification (DLWA) is {:.2}.",
        units::counted(finishes.operations, "zone"),
        units::bytes(result.drive.counters.programmed_padding_bytes),
        units::time(finishes.latency.p50_ns),
        result.drive.dlwa
    ))
}

fn of_cleaner(job: &JobResult) -> Option<String> {
    let resets = job.kind(RequestKind::Reset)?;
    Some(format!(
        "A cleaner resets {} with obsolete data. A reset takes {}, because it erases nothing: a die erases flash blocks when \
         it needs them.",
        units::counted(resets.operations, "zone"),
        units::time(resets.latency.p50_ns)
    ))
}

fn of_fan(result: &ExperimentResult, job: &JobResult) -> Option<String> {
    let appends = job.kind(RequestKind::Append)?;
    let active = result.drive.zones_by_state.iter();
    let active =
        active.filter(|count| ["implicitly opened", "explicitly opened", "closed"].contains(&count.state.as_str()));
    let active: u32 = active.map(|count| count.zones).sum();
    let limit = result.drive.max_active_zones?;
    Some(format!(
        "One more writer appends to 16 zones in rotation, at most 300 MiB/s. It reaches {} MiB/s, because all writers share \
         one write buffer, which is full. At the end {active} zones are active; the limit is {limit}.",
        units::mib_per_second(appends.bandwidth_bytes_per_second)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_stack::Experiment;

    #[test]
    fn every_job_of_the_tour_has_its_sentence() {
        let experiment = Experiment::parse(super::super::TOUR, &crate::files::BUILTIN_PROFILES).unwrap();
        let result = experiment.run(&mut |_| {});
        assert_eq!(sentences(&result).len(), result.run.jobs.len());
        assert!(result.run.jobs.iter().all(|job| job.errors.is_empty()));
    }
}
