//! Limits the log lines that clients without authentication can cause: a flood of connections must
//! not fill the disk that holds the log.

use zonda_zoned::{Duration, Instant};

/// Lines of one log in each interval; the rest are counted.
const LINES_MAX: u32 = 20;
const INTERVAL: Duration = Duration(1_000_000_000);

/// Counts lines.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// The end of the interval.
    until: Instant,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Whether a line may be logged now.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if now >= self.until {
            (self.until, self.lines) = (now + INTERVAL, 0);
        }
        if self.lines == LINES_MAX {
            self.suppressed += 1;
            return false;
        }
        self.lines += 1;
        true
    }

    /// The lines suppressed in an interval that has ended, once.
    pub(crate) fn take_suppressed(&mut self, now: Instant) -> Option<u64> {
        if self.suppressed == 0 || now < self.until {
            return None;
        }
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_counted_once_and_the_next_interval_logs_again() {
        let mut limit = LogLimit::default();
        let at = |ms: u64| Instant(7_000_000_000 + ms * 1_000_000);
        let admitted = (0..500).filter(|ms| limit.admits(at(*ms))).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(limit.take_suppressed(at(999)), None, "the interval has not ended");
        assert_eq!(limit.take_suppressed(at(1000)), Some(500 - u64::from(LINES_MAX)));
        assert_eq!(limit.take_suppressed(at(1001)), None);
        assert!(limit.admits(at(1001)));
    }

    #[test]
    fn lines_below_the_limit_are_all_logged() {
        let mut limit = LogLimit::default();
        assert!((0..100).all(|i| limit.admits(Instant(i * 60_000_000))), "17 lines a second");
        assert_eq!(limit.take_suppressed(Instant(100_000_000_000)), None);
    }
}
