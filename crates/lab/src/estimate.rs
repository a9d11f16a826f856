//! A value measured several times.

use serde::Serialize;

/// The mean, minimum and maximum over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub low: f64,
    /// Maximum.
    pub high: f64,
}

impl Estimate {
    /// Of at least one value.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let first = *values.first()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let low = values.iter().copied().fold(first, f64::min);
        let high = values.iter().copied().fold(first, f64::max);
        Some(Estimate { mean, low, high })
    }
}
