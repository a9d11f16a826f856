//! Instants and durations, in whole nanoseconds.
//!
//! Sums saturate at the end of time, 584 years after the start: a load or a profile with absurd
//! times stops there. Negative differences are bugs, and panic.
//!
//! Crates below level 3 read no clock: every event comes with an [`Instant`]. In simulation it is
//! relative to the start of the run, in production to the start of the process.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);

    /// The span since `earlier`, or zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// A duration of zero.
    pub const ZERO: Duration = Duration(0);

    /// A span of `microseconds`.
    #[must_use]
    pub const fn from_micros(microseconds: u64) -> Duration {
        Duration(microseconds * 1_000)
    }

    /// A span of `milliseconds`.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Duration {
        Duration(milliseconds * 1_000_000)
    }

    /// A span of `seconds`.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds * 1_000_000_000)
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds, for reports only: the model itself never computes with floating-point
    /// time.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time `bytes` take at `bytes_per_second`, rounded up to the next nanosecond.
    ///
    /// # Panics
    /// When `bytes_per_second` is zero: a resource without bandwidth is a configuration error
    /// caught earlier.
    #[must_use]
    pub fn of_transfer(bytes: u64, bytes_per_second: u64) -> Duration {
        assert!(bytes_per_second > 0, "a transfer needs a bandwidth");
        let nanoseconds = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_second));
        Duration(u64::try_from(nanoseconds).expect("a transfer ends within 584 years"))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        self.0 = self.0.saturating_add(span.0);
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0 - other.0)
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, times: u64) -> Duration {
        Duration(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Duration {
    /// Three significant digits in a suitable unit: `412 ns`, `93.1 us`, `2.28 ms`, `1.50 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        write!(f, "{value:.decimals$} {unit}")
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_prints_three_significant_digits_in_a_suitable_unit() {
        let printed: Vec<String> =
            [0, 412, 9_994, 93_100, 2_278_000, 1_500_000_000].map(|ns| Duration(ns).to_string()).into();
        assert_eq!(printed, ["0 ns", "412 ns", "9.99 us", "93.1 us", "2.28 ms", "1.50 s"]);
    }

    #[test]
    fn sums_saturate_at_the_end_of_time() {
        let end = Instant(u64::MAX);
        assert_eq!(Instant(u64::MAX - 1) + Duration(5), end);
        assert_eq!(
            (Duration(u64::MAX) + Duration(1), Duration(1 << 40) * (1 << 40)),
            (Duration(u64::MAX), Duration(u64::MAX))
        );
    }

    #[test]
    fn a_transfer_time_rounds_up_and_does_not_overflow() {
        assert_eq!(Duration::of_transfer(16 << 10, 600 << 20), Duration(26_042));
        assert_eq!(Duration::of_transfer(1, 3_000_000_000), Duration(1));
        assert_eq!(Duration::of_transfer(1 << 42, 1 << 30), Duration::from_secs(4096));
    }
}
