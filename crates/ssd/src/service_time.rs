//! Service times: random, sampled from a distribution.
//!
//! Constants make a model 15 to 35% too fast as soon as two or three clients meet at a resource,
//! because clients never collide. A distribution here is a sum: a constant, a symmetric uniform
//! part, an exponential part, and two rare additions.

use serde::{Deserialize, Serialize};
use zonda_config::TimeSpan;
use zonda_zoned::{Duration, Prng};

use crate::limits::SERVICE_TIME_MAX_NS;

/// The distribution of a service time, as written in a profile. All parts are optional and are
/// added.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceTimeSpec {
    /// A constant.
    #[serde(default)]
    pub base: TimeSpan,
    /// Half the width of a uniform part, which reaches as far below zero as above.
    #[serde(default)]
    pub uniform: TimeSpan,
    /// Mean of an exponential part.
    #[serde(default)]
    pub exponential: TimeSpan,
    /// An addition that only some samples have, such as the slower pages of a cell with several
    /// bits.
    #[serde(default)]
    pub extra: TimeSpan,
    /// The fraction of samples with `extra`, 0 to 1.
    #[serde(default)]
    pub extra_chance: f64,
    /// The largest of rare delays, which are uniform from zero to it.
    #[serde(default)]
    pub rare: TimeSpan,
    /// The fraction of samples with a rare delay, 0 to 1.
    #[serde(default)]
    pub rare_chance: f64,
}

/// A distribution for each range of sizes: a table, or a list of tables with rising `up_to`, the
/// last without.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct BySize(Vec<SizeClass>);

/// One entry of [`BySize`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SizeClass {
    /// The largest size this entry is for; absent in the last.
    pub up_to: Option<zonda_config::ByteSize>,
    /// The distribution.
    pub time: ServiceTimeSpec,
}

/// A distribution prepared for sampling.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceTime {
    base_ns: u64,
    uniform_ns: u64,
    exponential_ns: u64,
    extra_ns: u64,
    extra_threshold: u64,
    rare_ns: u64,
    rare_threshold: u64,
}

/// [`BySize`] prepared for sampling.
#[derive(Clone, Debug)]
pub(crate) struct ServiceTimes {
    classes: Vec<(u64, ServiceTime)>,
}

impl ServiceTimeSpec {
    /// A constant time.
    #[must_use]
    pub fn constant(time: TimeSpan) -> ServiceTimeSpec {
        ServiceTimeSpec { base: time, ..ServiceTimeSpec::default() }
    }

    /// The mean of the distribution, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        let share = |time: TimeSpan, chance: f64| (time.0 as f64 * chance) as u64;
        self.base.0 + self.exponential.0 + share(self.extra, self.extra_chance) + share(self.rare, self.rare_chance) / 2
    }

    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let is_share = |chance: f64| (0.0..=1.0).contains(&chance);
        let is_half = |time: TimeSpan, chance: f64| (time.0 > 0) != (chance > 0.0);
        let parts = [self.base, self.uniform, self.exponential, self.extra, self.rare];
        if parts.iter().any(|part| part.0 > SERVICE_TIME_MAX_NS) {
            Some("must be made of times of at most an hour")
        } else if self.uniform.0 > self.base.0 {
            Some("must have a uniform of at most its base: a time cannot be negative")
        } else if !is_share(self.extra_chance) || !is_share(self.rare_chance) {
            Some("must have extra_chance and rare_chance from 0 to 1")
        } else if is_half(self.extra, self.extra_chance) || is_half(self.rare, self.rare_chance) {
            Some("must have both or neither of extra and extra_chance, and of rare and rare_chance")
        } else {
            None
        }
    }
}

impl BySize {
    /// The classes in rising order.
    #[must_use]
    pub fn classes(&self) -> &[SizeClass] {
        &self.0
    }

    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let (last, before) = self.0.split_last()?;
        let limits: Vec<u64> = before.iter().filter_map(|class| class.up_to.map(|size| size.0)).collect();
        if last.up_to.is_some() {
            return Some("must have no up_to in its last entry, which is for all larger sizes");
        }
        if limits.len() != before.len() || !limits.is_sorted_by(|a, b| a < b) {
            return Some("must have an up_to in every entry but the last, in rising order");
        }
        self.0.iter().find_map(|class| class.time.mistake())
    }
}

impl ServiceTime {
    pub(crate) fn new(spec: &ServiceTimeSpec) -> ServiceTime {
        let threshold = |chance: f64| (chance * 2f64.powi(64)) as u64;
        assert!(spec.mistake().is_none(), "the profile was checked: its distributions are valid");
        ServiceTime {
            base_ns: spec.base.0 - spec.uniform.0,
            uniform_ns: spec.uniform.0 * 2,
            exponential_ns: spec.exponential.0,
            extra_ns: spec.extra.0,
            extra_threshold: threshold(spec.extra_chance),
            rare_ns: spec.rare.0,
            rare_threshold: threshold(spec.rare_chance),
        }
    }

    /// Samples a time.
    #[inline]
    pub(crate) fn draw(&self, prng: &mut Prng) -> Duration {
        let mut time_ns = self.base_ns;
        if self.uniform_ns > 0 {
            time_ns += prng.below(self.uniform_ns + 1);
        }
        if self.exponential_ns > 0 {
            time_ns += prng.exponential(self.exponential_ns);
        }
        if self.extra_threshold > 0 && prng.next_u64() < self.extra_threshold {
            time_ns += self.extra_ns;
        }
        if self.rare_threshold > 0 && prng.next_u64() < self.rare_threshold {
            time_ns += prng.below(self.rare_ns + 1);
        }
        Duration(time_ns)
    }
}

impl ServiceTimes {
    pub(crate) fn new(spec: &BySize) -> ServiceTimes {
        let classes = spec.classes().iter();
        ServiceTimes {
            classes: classes
                .map(|class| (class.up_to.map_or(u64::MAX, |size| size.0), ServiceTime::new(&class.time)))
                .collect(),
        }
    }

    /// Samples a time for `bytes` bytes; zero if the profile gives none.
    #[inline]
    pub(crate) fn draw(&self, bytes: u64, prng: &mut Prng) -> Duration {
        for (up_to, time) in &self.classes {
            if bytes <= *up_to {
                return time.draw(prng);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(spec: &ServiceTimeSpec) -> u64 {
        let (time, mut prng) = (ServiceTime::new(spec), Prng::new(1));
        (0..100_000).map(|_| time.draw(&mut prng).0).sum::<u64>() / 100_000
    }

    #[test]
    fn the_mean_of_the_samples_is_the_mean_of_the_distribution() {
        let spec = ServiceTimeSpec {
            base: TimeSpan(50_000),
            uniform: TimeSpan(12_000),
            exponential: TimeSpan(9_000),
            extra: TimeSpan(12_300),
            extra_chance: 0.28,
            rare: TimeSpan(504_000),
            rare_chance: 0.01,
        };
        let (measured, expected) = (mean_of(&spec), spec.mean_ns());
        assert!(measured.abs_diff(expected) < expected / 100, "{measured} for {expected}");
    }

    #[test]
    fn a_constant_distribution_always_samples_the_same() {
        let time = ServiceTime::new(&ServiceTimeSpec::constant(TimeSpan(7)));
        let mut prng = Prng::new(1);
        assert!((0..100).all(|_| time.draw(&mut prng) == Duration(7)));
    }

    #[test]
    fn classes_have_rising_limits_and_no_two_the_same_one() {
        let class = |up_to: Option<u64>| SizeClass {
            up_to: up_to.map(zonda_config::ByteSize),
            time: ServiceTimeSpec::constant(TimeSpan(1)),
        };
        let mistake = |limits: &[Option<u64>]| BySize(limits.iter().map(|limit| class(*limit)).collect()).mistake();
        assert_eq!(mistake(&[Some(4096), Some(8192), None]), None);
        for limits in [&[Some(4096), Some(4096), None][..], &[Some(8192), Some(4096), None], &[None, Some(1), None]] {
            assert!(mistake(limits).is_some_and(|mistake| mistake.contains("rising order")), "{limits:?}");
        }
        assert!(mistake(&[Some(4096)]).is_some_and(|mistake| mistake.contains("no up_to in its last entry")));
    }

    #[test]
    fn a_size_takes_the_first_class_that_holds_it() {
        let class = |up_to: Option<u64>, ns| SizeClass {
            up_to: up_to.map(zonda_config::ByteSize),
            time: ServiceTimeSpec::constant(TimeSpan(ns)),
        };
        let times = ServiceTimes::new(&BySize(vec![class(Some(4096), 1), class(None, 2)]));
        let mut prng = Prng::new(1);
        assert_eq!([512, 4096, 4097].map(|bytes| times.draw(bytes, &mut prng).0), [1, 1, 2]);
        assert_eq!(ServiceTimes::new(&BySize::default()).draw(1, &mut prng), Duration::ZERO);
    }
}
