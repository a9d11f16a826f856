//! [`Window`]: how many reads of a stream may be in flight.

use zonda_zoned::Duration;

use super::EznsConfig;
use crate::limits::EZNS_WINDOW_ROUNDS;

/// The congestion window of a stream, in commands (Algorithm 1, lines 1 to 10).
///
/// The window grows by α × io_count / cwnd with each completion below the threshold. As in Swift, on
/// which the paper bases the algorithm, io_count is here the number of completions: 1. With α = 1/8
/// the sum over 8 × cwnd completions is 1, and the window grows in such steps.
///
/// The algorithm compares each completion with the threshold. Reads beside programs have a tail far
/// above their mean: one in a hundred held windows at their minimum, where reads waited in the host and
/// the drive had no fewer programs to suspend. Here the mean of [`EZNS_WINDOW_ROUNDS`] × cwnd completions
/// decides: above the threshold there is a queue that a smaller window shortens.
///
/// Commands that were outstanding at a decrease report the congestion that caused it. Therefore a
/// decrease is followed by as many completions without effect as the new window has commands.
#[derive(Debug)]
pub(super) struct Window {
    commands: u32,
    /// Rounds below the threshold since the last change; a round has a completion for each command.
    good_rounds: u32,
    /// The completions that decide next, and the sum of their latencies.
    completions: u32,
    sum: Duration,
    /// Completions still to be ignored after a decrease.
    hold: u32,
}

impl Window {
    /// The window of a stream that is striped over `width` zones: a command for each.
    pub(super) fn new(width: u32) -> Window {
        Window { commands: width, good_rounds: 0, completions: 0, sum: Duration::ZERO, hold: 0 }
    }

    /// The most reads that may be in flight.
    pub(super) fn commands(&self) -> u32 {
        self.commands
    }

    /// The maximum follows the width of the stream.
    pub(super) fn set_width(&mut self, width: u32, config: &EznsConfig) {
        self.commands = self.commands.clamp(config.window_min(width), config.window_max(width));
    }

    /// A read has taken `latency`.
    pub(super) fn on_latency(&mut self, latency: Duration, width: u32, config: &EznsConfig) {
        if self.hold > 0 {
            self.hold -= 1;
            return;
        }
        self.sum = Duration(self.sum.0.saturating_add(latency.0));
        self.completions += 1;
        // The window may have become smaller with the width of the stream.
        if self.completions < self.commands.saturating_mul(EZNS_WINDOW_ROUNDS) {
            return;
        }
        let mean = Duration(self.sum.0 / u64::from(self.completions));
        (self.completions, self.sum) = (0, Duration::ZERO);
        if mean > config.read_latency_threshold {
            let scaled = u64::from(self.commands).saturating_mul(config.read_latency_threshold.0);
            let commands = scaled / mean.0.saturating_mul(2);
            let commands = u32::try_from(commands).expect("a decrease leaves less than the window");
            self.commands = commands.max(config.window_min(width));
            self.hold = self.commands;
            self.good_rounds = 0;
        } else if self.commands < config.window_max(width) {
            self.good_rounds += EZNS_WINDOW_ROUNDS;
            if self.good_rounds >= config.window_increase {
                self.commands += 1;
                self.good_rounds = 0;
            }
        }
    }

    pub(super) fn check_invariants(&self, width: u32, config: &EznsConfig) {
        let limits = config.window_min(width)..=config.window_max(width);
        assert!(limits.contains(&self.commands), "a window has 1 to 4 commands for each zone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Duration = Duration::from_micros(500);

    fn after(width: u32, latencies: impl IntoIterator<Item = Duration>) -> u32 {
        let mut window = Window::new(width);
        for latency in latencies {
            window.on_latency(latency, width, &EznsConfig::default());
            window.check_invariants(width, &EznsConfig::default());
        }
        window.commands()
    }

    fn good(count: usize) -> impl Iterator<Item = Duration> {
        std::iter::repeat_n(GOOD, count)
    }

    #[test]
    fn a_window_begins_with_a_command_for_each_zone() {
        assert_eq!(Window::new(2).commands(), 2);
    }

    #[test]
    fn a_window_grows_by_one_with_eight_good_completions_for_each_command() {
        assert_eq!(after(2, good(15)), 2);
        assert_eq!(after(2, good(16)), 3);
        assert_eq!(after(2, good(16 + 23)), 3);
        assert_eq!(after(2, good(16 + 24)), 4);
    }

    #[test]
    fn a_window_ends_at_four_commands_for_each_zone() {
        assert_eq!(after(1, good(8 + 16 + 24)), 4);
        assert_eq!(after(1, good(10_000)), 4);
        assert_eq!(after(8, good(100_000)), 32);
    }

    /// A window of four zones that has grown to its maximum, 16.
    fn grown(latencies: impl IntoIterator<Item = Duration>) -> u32 {
        after(4, good(8 * (4..16).sum::<usize>()).chain(latencies))
    }

    /// The completions that decide at a window.
    fn rounds(commands: usize, latency: Duration) -> impl Iterator<Item = Duration> {
        std::iter::repeat_n(latency, 4 * commands)
    }

    #[test]
    fn slow_reads_shrink_the_window_by_twice_the_ratio_to_the_threshold() {
        let micros = Duration::from_micros;
        assert_eq!(grown([]), 16);
        assert_eq!(grown(rounds(16, Duration(500_001))), 7, "16 * 500 / 1000.002");
        assert_eq!(grown(rounds(16, micros(625))), 6, "16 * 500 / 1250 = 6.4");
        assert_eq!(grown(rounds(16, micros(1000))), 4);
    }

    #[test]
    fn a_few_slow_reads_among_fast_ones_are_no_congestion() {
        let tail = |slow: usize| std::iter::repeat_n(Duration::from_micros(900), slow);
        let fast = |count| std::iter::repeat_n(Duration::from_micros(200), count);
        assert_eq!(grown(tail(27).chain(fast(64 - 27))), 16, "a mean of 495 us");
        assert_eq!(grown(tail(28).chain(fast(64 - 28))), 7, "16 * 500 / (2 * 506)");
    }

    #[test]
    fn a_command_for_each_zone_is_always_allowed() {
        let micros = Duration::from_micros;
        assert_eq!(grown(rounds(16, micros(3000))), 4, "not 16 * 500 / 6000 = 1.3");
        assert_eq!(grown(rounds(16, micros(100_000))), 4);
        assert_eq!(grown(rounds(16, Duration(u64::MAX))), 4);
        assert_eq!(after(1, good(8 * 6).chain(rounds(4, micros(3000)))), 1);
    }

    #[test]
    fn after_a_decrease_as_many_completions_as_the_window_has_commands_have_no_effect() {
        let micros = Duration::from_micros(600);
        let slow = || rounds(16, micros);
        let more = |count| std::iter::repeat_n(micros, count);
        assert_eq!(grown(slow()), 6, "16 * 500 / 1200");
        assert_eq!(grown(slow().chain(more(6 + 23))), 6);
        assert_eq!(grown(slow().chain(more(6 + 24))), 4);
        assert_eq!(grown(slow().chain(good(6 + 47))), 6);
        assert_eq!(grown(slow().chain(good(6 + 48))), 7);
    }

    #[test]
    fn a_decrease_begins_the_count_of_good_rounds_again() {
        let slow = || rounds(4, Duration::from_micros(1000));
        assert_eq!(after(4, good(16).chain(slow()).chain(good(4 + 31))), 4);
        assert_eq!(after(4, good(16).chain(slow()).chain(good(4 + 32))), 5);
    }
}
