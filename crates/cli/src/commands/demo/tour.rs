//! What the jobs of the tour did, in words.

use zonda_stack::ExperimentResult;
use zonda_workload::{JobResult, RequestKind};

use crate::units;

/// What each job did, and what it shows.
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
        "Eight writers append to a zone each, and go on to the next when it is full: {} at {} MiB/s. A zone of this drive \
         lies on one die, and no zone is written faster than its die can program.",
        units::bytes(appends.bytes),
        units::mib_per_second(appends.bandwidth_bytes_per_second)
    ))
}

fn of_reader(job: &JobResult) -> Option<String> {
    let reads = job.kind(RequestKind::Read)?;
    Some(format!(
        "A reader has 16 requests under way all the time, and gets {} reads done in a second. Half of them take at most {}. \
         One in a hundred takes more than {}: it found its die or its channel at work for somebody else.",
        units::count(reads.iops as u64),
        units::time(reads.latency.p50_ns),
        units::time(reads.latency.p99_ns)
    ))
}

fn of_finisher(result: &ExperimentResult, job: &JobResult) -> Option<String> {
    let finishes = job.kind(RequestKind::Finish)?;
    Some(format!(
        "A writer with nothing more to write finishes {} at 40%. The drive fills up the rest, {} in all, which takes {} each \
         and wears the flash: it wrote {:.2} times what the host did. That is its write amplification.",
        units::counted(finishes.operations, "zone"),
        units::bytes(result.drive.counters.programmed_padding_bytes),
        units::time(finishes.latency.p50_ns),
        result.drive.dlwa
    ))
}

fn of_cleaner(job: &JobResult) -> Option<String> {
    let resets = job.kind(RequestKind::Reset)?;
    Some(format!(
        "A cleaner resets {} full of old data. A reset takes {}, because nothing is erased yet: a die erases when it needs \
         the room.",
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
        "One more writer goes round 16 zones, at most 300 MiB/s; it gets {} MiB/s, because all writers share one write \
         buffer, and that is full. At the end {active} zones are active, and {limit} may be.",
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
