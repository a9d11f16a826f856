//! Latencies of many requests, and their quantiles.

use std::time::Duration;

/// Latencies in order of completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    microseconds: Vec<u32>,
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.microseconds.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    pub(crate) fn append(&mut self, mut other: Latencies) {
        self.microseconds.append(&mut other.microseconds);
    }

    pub(crate) fn count(&self) -> usize {
        self.microseconds.len()
    }

    /// A quantile of the latencies, in microseconds; 0 without requests.
    pub(crate) fn quantile(&mut self, share: f64) -> u32 {
        self.microseconds.sort_unstable();
        let place = (self.microseconds.len() as f64 * share).ceil() as usize;
        self.microseconds.get(place.saturating_sub(1)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_latency_that_this_share_does_not_exceed() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.99), 0);
        (1..=200).rev().for_each(|latency| latencies.add(Duration::from_micros(latency)));
        assert_eq!([0.5, 0.99, 1.0].map(|share| latencies.quantile(share)), [100, 198, 200]);
    }
}
