//! [`WriteMonitor`]: the latency of writes to the whole device.

use zonda_zoned::{Duration, Instant};

use super::EznsConfig;
use crate::limits::{EZNS_BLOCK_BYTES, EZNS_BLOCK_LATENCY_MAX, EZNS_BLOCK_LATENCY_MIN};

/// Measures the time in which a zone admits a block: `block_admission_rate` of Algorithm 1, lines 15
/// to 23. The write buffer is shared by all zones, so there is one monitor for all streams.
///
/// The paper does not define the average of a period in which no write has ended. Here such a period
/// changes nothing while a write is in flight; if none is, nothing congests the device, and the
/// initial latency applies again. A latency has a minimum, by which the rate is divided, and a
/// maximum, so that a write waits for a bounded time whatever the device has done before.
#[derive(Debug)]
pub(super) struct WriteMonitor {
    /// The time for a block.
    block_latency: Duration,
    /// The average of the period before this one.
    previous: Duration,
    period_end: Instant,
    /// Of the writes that have ended in this period: the sum of their latencies per block.
    sum: Duration,
    writes: u64,
    in_flight: u32,
}

impl WriteMonitor {
    pub(super) fn new(config: &EznsConfig) -> WriteMonitor {
        WriteMonitor {
            block_latency: config.block_latency,
            previous: config.block_latency,
            period_end: Instant::ZERO + config.monitor_period,
            sum: Duration::ZERO,
            writes: 0,
            in_flight: 0,
        }
    }

    /// The time for a block at `now`.
    pub(super) fn block_latency(&mut self, now: Instant, config: &EznsConfig) -> Duration {
        self.advance(now, config);
        self.block_latency
    }

    pub(super) fn on_released(&mut self, now: Instant, config: &EznsConfig) {
        self.advance(now, config);
        self.in_flight += 1;
    }

    /// The write has ended.
    pub(super) fn on_ended(&mut self, now: Instant, config: &EznsConfig) {
        self.advance(now, config);
        self.on_refused();
    }

    /// The device has refused the write.
    pub(super) fn on_refused(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a write was released before it returns");
    }

    /// A write of `bytes` has taken `latency`.
    pub(super) fn on_latency(&mut self, latency: Duration, bytes: u64) {
        let blocks = bytes.div_ceil(EZNS_BLOCK_BYTES);
        if let Some(of_a_block) = latency.0.checked_div(blocks) {
            self.sum += Duration(of_a_block);
            self.writes += 1;
        }
    }

    /// Ends the periods until `now`.
    fn advance(&mut self, now: Instant, config: &EznsConfig) {
        if now < self.period_end {
            return;
        }
        let period = config.monitor_period.0;
        if let Some(average) = self.sum.0.checked_div(self.writes).map(Duration) {
            self.block_latency = clamp(Duration(self.previous.0.midpoint(average.0)));
            self.previous = average;
            (self.sum, self.writes) = (Duration::ZERO, 0);
            self.period_end += Duration(period);
        }
        if self.period_end <= now {
            // At least one period without the end of a write.
            if self.in_flight == 0 {
                self.block_latency = clamp(config.block_latency);
                self.previous = config.block_latency;
            }
            let periods = now.since(self.period_end).0 / period + 1;
            self.period_end += Duration(periods.saturating_mul(period));
        }
    }
}

fn clamp(latency: Duration) -> Duration {
    latency.clamp(EZNS_BLOCK_LATENCY_MIN, EZNS_BLOCK_LATENCY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor() -> WriteMonitor {
        WriteMonitor::new(&EznsConfig::default())
    }

    fn write(monitor: &mut WriteMonitor, at_millis: u64, micros: u64, kib: u64) {
        let config = EznsConfig::default();
        monitor.on_released(Instant::ZERO + Duration::from_millis(at_millis), &config);
        monitor.on_ended(Instant::ZERO + Duration::from_millis(at_millis), &config);
        monitor.on_latency(Duration::from_micros(micros), kib * 1024);
    }

    fn latency_at(monitor: &mut WriteMonitor, millis: u64) -> u64 {
        monitor.block_latency(Instant::ZERO + Duration::from_millis(millis), &EznsConfig::default()).0 / 1000
    }

    #[test]
    fn a_block_takes_100_us_until_the_first_period_has_ended() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 400, 4);
        assert_eq!(latency_at(&mut monitor, 9), 100);
        assert_eq!(latency_at(&mut monitor, 10), 250, "half of 100 + 400");
    }

    #[test]
    fn the_latency_of_a_block_is_the_average_of_two_periods_of_10_ms() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 300, 4);
        write(&mut monitor, 2, 800, 16);
        assert_eq!(latency_at(&mut monitor, 10), 175, "an average of 300 and 200, after 100");
        write(&mut monitor, 11, 50, 4);
        assert_eq!(latency_at(&mut monitor, 20), 150, "50 after 250");
        write(&mut monitor, 21, 70, 4);
        assert_eq!(latency_at(&mut monitor, 30), 60, "70 after 50");
    }

    #[test]
    fn a_period_without_completions_changes_nothing_while_a_write_is_in_flight() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 900, 4);
        monitor.on_released(Instant(2_000_000), &EznsConfig::default());
        assert_eq!(latency_at(&mut monitor, 75), 500);
        write(&mut monitor, 76, 100, 4);
        assert_eq!(latency_at(&mut monitor, 79), 500);
        assert_eq!(latency_at(&mut monitor, 80), 500, "100 after 900");
        write(&mut monitor, 81, 100, 4);
        assert_eq!(latency_at(&mut monitor, 90), 100);
    }

    #[test]
    fn a_period_without_any_write_restores_the_initial_latency() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 900, 4);
        assert_eq!(latency_at(&mut monitor, 10), 500);
        assert_eq!(latency_at(&mut monitor, 20), 100);
    }

    #[test]
    fn a_latency_is_between_1_ns_and_10_ms() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 100_000_000, 4);
        assert_eq!(latency_at(&mut monitor, 10), 10_000);
        for period in 1..3 {
            write(&mut monitor, 10 * period + 1, 0, 4);
        }
        assert_eq!(monitor.block_latency(Instant(30_000_000), &EznsConfig::default()), Duration(1));
    }

    #[test]
    fn a_command_without_data_does_not_count() {
        let mut monitor = monitor();
        write(&mut monitor, 1, 900, 0);
        write(&mut monitor, 2, 200, 4);
        assert_eq!(latency_at(&mut monitor, 10), 150);
    }
}
