//! Times of algorithms on the machine that runs the model: the only figures that vary between runs.

use std::collections::{BTreeMap, BTreeSet};

use zonda_raid::StripeTrial;
use zonda_ssd::allocation::AllocationTrial;
use zonda_ssd::profile::Profile;
use zonda_zoned::Prng;

use crate::figures::HostFigure;
use crate::limits::{ALLOCATION_CYCLES, ALLOCATIONS_TIMED};

/// Default number of stripes of a group.
const STRIPE_QUERY_GROUP: u32 = 256;

/// A monotonic clock in nanoseconds.
pub type Clock<'a> = &'a dyn Fn() -> u64;

/// Times on this machine, rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTimes {
    times_ns: BTreeMap<HostFigure, u64>,
}

impl HostTimes {
    /// Times these algorithms. `group_stripes` is that of the volume's segments for small requests,
    /// if there is a volume.
    pub(crate) fn measure(
        figures: impl IntoIterator<Item = HostFigure>,
        profile: &Profile,
        group_stripes: Option<u32>,
        seed: u64,
        clock: Clock<'_>,
    ) -> HostTimes {
        let figures: BTreeSet<HostFigure> = figures.into_iter().collect();
        // The peers of a block of a 3+1 volume.
        let query = |group_stripes| {
            let mut trial = StripeTrial::new(3, 1, group_stripes, Prng::new(seed));
            let find = |trial: &mut StripeTrial| assert!(trial.find_one() > 0, "a block has peers");
            median(clock, &mut trial, find, |_| ())
        };
        let time_ns = |figure| match figure {
            // The allocation of a zone by a drive with long use.
            HostFigure::Allocation => {
                let mut trial = AllocationTrial::new(profile, ALLOCATION_CYCLES, Prng::new(seed));
                median(clock, &mut trial, AllocationTrial::allocate_one, AllocationTrial::release)
            }
            HostFigure::StripeQuery => query(STRIPE_QUERY_GROUP),
            HostFigure::GroupQuery => {
                query(group_stripes.unwrap_or(STRIPE_QUERY_GROUP).min(StripeTrial::GROUP_STRIPES_MAX))
            }
        };
        HostTimes { times_ns: figures.into_iter().map(|figure| (figure, rounded_up(time_ns(figure)))).collect() }
    }

    /// Time in nanoseconds; `None` if it was not measured.
    pub(crate) fn time_ns(&self, figure: HostFigure) -> Option<u64> {
        self.times_ns.get(&figure).copied()
    }
}

/// The median time of an operation that is repeated and undone.
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

/// Rounds up to 1, 2, 5, 10, 20, ...: times on a shared machine are not more precise.
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
    use zonda_profiles::builtin_text;

    #[test]
    fn times_are_rounded_up_to_steps_of_one_two_and_five() {
        assert_eq!([0, 1, 2, 3, 6, 11, 200, 501, 9_068].map(rounded_up), [1, 1, 2, 5, 10, 20, 200, 1_000, 10_000]);
    }

    #[test]
    fn an_allocation_takes_the_time_of_the_clock() {
        let profile = Profile::parse(builtin_text("tiny").expect("it is built in")).expect("it is right");
        let now = Cell::new(0);
        let clock = || now.replace(now.get() + 700);
        let times = HostTimes::measure([HostFigure::Allocation], &profile, None, 1, &clock);
        assert_eq!(times.time_ns(HostFigure::Allocation), Some(1_000));
        assert_eq!(times.time_ns(HostFigure::StripeQuery), None, "it was not requested");
        for (figure, group) in [
            (HostFigure::StripeQuery, None),
            (HostFigure::GroupQuery, Some(16)),
            (HostFigure::GroupQuery, Some(1 << 20)),
        ] {
            let times = HostTimes::measure([figure], &profile, group, 1, &clock);
            assert_eq!(times.time_ns(figure), Some(1_000));
        }
    }
}
