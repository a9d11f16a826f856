//! What takes time on the machine that runs the model: the only figures that differ from run to run.

use zonda_raid::StripeTrial;
use zonda_ssd::allocation::AllocationTrial;
use zonda_ssd::profile::Profile;
use zonda_zoned::Prng;

use crate::limits::{ALLOCATION_CYCLES, ALLOCATIONS_TIMED};

/// A clock: nanoseconds since some moment.
pub type Clock<'a> = &'a dyn Fn() -> u64;

/// Times on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTimes {
    /// Median of the allocation of a zone by a drive that has seen much use, rounded up.
    pub(crate) allocation_ns: u64,
    /// Median of a query of the compact stripe table: the peers of a block of a 3+1 volume in a group of 256, rounded up.
    pub(crate) stripe_query_ns: u64,
}

impl HostTimes {
    /// What the drive's own algorithms take.
    pub(crate) fn measure(profile: &Profile, seed: u64, clock: Clock<'_>) -> HostTimes {
        let mut trial = AllocationTrial::new(profile, ALLOCATION_CYCLES, Prng::new(seed));
        let allocation_ns = median(clock, &mut trial, AllocationTrial::allocate_one, AllocationTrial::give_back);
        let mut stripes = StripeTrial::new(3, 1, 256, Prng::new(seed));
        let find = |trial: &mut StripeTrial| assert!(trial.find_one() > 0, "a block has peers");
        let query_ns = median(clock, &mut stripes, find, |_| ());
        HostTimes { allocation_ns: rounded_up(allocation_ns), stripe_query_ns: rounded_up(query_ns) }
    }
}

/// The median time of something that is done again and again, each time after it was undone.
fn median<T>(clock: Clock<'_>, trial: &mut T, work: impl Fn(&mut T), undo: impl Fn(&mut T)) -> u64 {
    let mut times: Vec<u64> = (0..ALLOCATIONS_TIMED)
        .map(|_| {
            let started = clock();
            work(trial);
            let time = clock().saturating_sub(started);
            undo(trial);
            time
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The next of 1, 2, 5, 10, 20, ...: times of a shared machine mean no more than that.
fn rounded_up(time_ns: u64) -> u64 {
    let mut power = 1u64;
    loop {
        if let Some(step) = [1, 2, 5].into_iter().map(|digit| digit * power).find(|step| *step >= time_ns) {
            return step;
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use zonda_ssd::profile::builtin_text;

    #[test]
    fn times_are_rounded_up_to_steps_of_one_two_and_five() {
        assert_eq!([0, 1, 2, 3, 6, 11, 200, 501, 9_068].map(rounded_up), [1, 1, 2, 5, 10, 20, 200, 1_000, 10_000]);
    }

    #[test]
    fn an_allocation_takes_as_long_as_the_clock_says() {
        let profile = Profile::parse(builtin_text("tiny").expect("it is built in")).expect("it is right");
        let now = Cell::new(0);
        let clock = || now.replace(now.get() + 700);
        assert_eq!(HostTimes::measure(&profile, 1, &clock), HostTimes { allocation_ns: 1_000, stripe_query_ns: 1_000 });
    }
}
