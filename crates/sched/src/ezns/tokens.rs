//! [`Tokens`]: how much a stream may write.

use zonda_zoned::{Duration, Instant};

use super::EznsConfig;
use crate::limits::EZNS_BLOCK_BYTES;

/// The tokens of a stream, in bytes (Algorithm 1, lines 11 to 14 and 24 to 27).
///
/// A write needs tokens for its size; one that is larger than the capacity needs a full bucket. It
/// takes tokens for its size in either case, so that the level may become negative, and the rate of a
/// stream does not depend on the size of its writes. The paper does not mention writes of that size.
#[derive(Debug)]
pub(super) struct Tokens {
    /// In bytes with [`FRACTION_BITS`], so that short intervals are not rounded to nothing.
    level: i64,
    refilled: Instant,
}

const FRACTION_BITS: u32 = 10;

/// A longer interval fills any bucket whose level is not negative; streams with a waiting write are
/// refilled more often.
const ELAPSED_MAX: Duration = Duration::from_secs(1);

impl Tokens {
    /// A full bucket. Its first refill comes with its first write, and adds nothing to it.
    pub(super) fn full(width: u32, config: &EznsConfig) -> Tokens {
        Tokens { level: capacity(width, config), refilled: Instant::ZERO }
    }

    /// Adds the tokens since the last refill: for each zone a block in each `block_latency`.
    pub(super) fn refill(&mut self, now: Instant, block_latency: Duration, width: u32, config: &EznsConfig) {
        let elapsed = now.since(self.refilled).min(ELAPSED_MAX);
        let zone_time = elapsed.0 * u64::from(width);
        let (scaled_time, block_latency) = (zone_time * (EZNS_BLOCK_BYTES << FRACTION_BITS), block_latency.0.max(1));
        // Divisions take long: none where nothing is gained, or a full bucket gains nothing.
        if scaled_time < block_latency {
            return;
        }
        let capacity = capacity(width, config);
        if self.level < capacity {
            let gained = i64::try_from(scaled_time / block_latency).unwrap_or(i64::MAX);
            self.level = self.level.saturating_add(gained);
        }
        self.level = self.level.min(capacity);
        self.refilled = now;
    }

    /// Whether a write of this size may be released.
    pub(super) fn admits(&self, bytes: u64, width: u32, config: &EznsConfig) -> bool {
        self.level >= scaled(bytes).min(capacity(width, config))
    }

    /// The level after the last refill.
    pub(super) fn bytes(&self) -> i64 {
        self.level >> FRACTION_BITS
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.level -= scaled(bytes);
    }

    /// The device has refused the write.
    pub(super) fn put_back(&mut self, bytes: u64) {
        self.level += scaled(bytes);
    }
}

fn capacity(width: u32, config: &EznsConfig) -> i64 {
    scaled(config.token_capacity_bytes.saturating_mul(u64::from(width)))
}

/// Sizes are bounded by `EZNS_REQUEST_BYTES_MAX`, capacities by what is useful.
fn scaled(bytes: u64) -> i64 {
    const MOST: u64 = i64::MAX as u64 >> (FRACTION_BITS + 1);
    (bytes.min(MOST) << FRACTION_BITS) as i64
}

const _: () = assert!(ELAPSED_MAX.0 * 255 < u64::MAX / (EZNS_BLOCK_BYTES << FRACTION_BITS), "no product overflows");

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const RATE: Duration = Duration::from_micros(100);

    fn tokens(width: u32) -> Tokens {
        Tokens::full(width, &EznsConfig::default())
    }

    fn admits(tokens: &Tokens, width: u32, bytes: u64) -> bool {
        tokens.admits(bytes, width, &EznsConfig::default())
    }

    fn refill(tokens: &mut Tokens, micros: u64, width: u32) {
        tokens.refill(Instant(micros * 1000), RATE, width, &EznsConfig::default());
    }

    #[test]
    fn a_stream_begins_with_128_kib_for_each_zone() {
        let mut tokens = tokens(2);
        tokens.take(252 * KIB);
        assert!(admits(&tokens, 2, 4 * KIB) && !admits(&tokens, 2, 4 * KIB + 1));
    }

    #[test]
    fn each_zone_adds_a_block_in_each_block_latency() {
        let mut tokens = tokens(2);
        tokens.take(256 * KIB);
        refill(&mut tokens, 1000, 2);
        assert!(admits(&tokens, 2, 80 * KIB) && !admits(&tokens, 2, 80 * KIB + 1), "2 zones * 10 blocks");
        refill(&mut tokens, 1050, 2);
        assert!(admits(&tokens, 2, 84 * KIB) && !admits(&tokens, 2, 84 * KIB + 1));
    }

    #[test]
    fn a_bucket_overflows_at_its_capacity() {
        let mut tokens = tokens(1);
        refill(&mut tokens, 1_000_000, 1);
        tokens.take(128 * KIB);
        assert!(admits(&tokens, 1, 0) && !admits(&tokens, 1, 1));
    }

    #[test]
    fn a_write_larger_than_the_capacity_passes_when_the_bucket_is_full_and_is_paid_for_later() {
        let mut tokens = tokens(1);
        assert!(admits(&tokens, 1, 1024 * KIB));
        tokens.take(1024 * KIB);
        refill(&mut tokens, 22_399, 1);
        assert!(!admits(&tokens, 1, 1), "224 blocks of debt take 22.4 ms");
        refill(&mut tokens, 22_501, 1);
        assert!(admits(&tokens, 1, 4 * KIB) && !admits(&tokens, 1, 1024 * KIB));
        refill(&mut tokens, 25_601, 1);
        assert!(admits(&tokens, 1, 1024 * KIB));
    }

    #[test]
    fn many_short_intervals_add_as_much_as_a_long_one() {
        let mut tokens = tokens(1);
        tokens.take(128 * KIB);
        for now in 1..=100_000 {
            tokens.refill(Instant(now * 10), RATE, 1, &EznsConfig::default());
        }
        assert!(admits(&tokens, 1, 39 * KIB) && !admits(&tokens, 1, 40 * KIB + 1), "10 blocks in 1 ms");
    }

    #[test]
    fn a_refused_write_gets_its_tokens_back() {
        let mut tokens = tokens(1);
        tokens.take(96 * KIB);
        tokens.put_back(96 * KIB);
        assert!(admits(&tokens, 1, 128 * KIB));
    }
}
