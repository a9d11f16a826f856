//! The verdict about a result: whether the model meets the published value, and does so with other
//! seeds and loads.

use serde::Serialize;

use crate::{ResultPlan, SpreadSummary};

/// The verdict about a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance, with all seeds and loads that were run.
    Met,
    /// Within the tolerance, but not with other seeds, or with other values of loads that the paper
    /// leaves open.
    Fragile,
    /// Outside of the tolerance.
    Missed,
}

impl Verdict {
    /// `spread` is that of the result, if it was measured; a stale one does not count.
    #[must_use]
    pub fn new(plan: &ResultPlan, ours: Option<f64>, spread: Option<&SpreadSummary>) -> Verdict {
        match ours.is_some_and(|ours| plan.is_met(ours)) {
            false => Verdict::Missed,
            true if spread.is_some_and(|spread| !spread.stale && spread.crosses()) => Verdict::Fragile,
            true => Verdict::Met,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Fragile => "fragile",
            Verdict::Missed => "missed",
        }
    }
}

impl ResultPlan {
    /// Whether a value is within the tolerance of the published one, or on the right side of a
    /// bound.
    #[must_use]
    pub fn is_met(&self, value: f64) -> bool {
        let error = (value - self.published) / self.published;
        (self.at_least || error <= self.tolerance) && (self.at_most || error >= -self.tolerance)
    }
}
