//! Counts of results by verdict: those of papers and zonda's own, apart.

use serde::Serialize;

use crate::{Row, Verdict};

/// Numbers of results: an object of `zonda lab compare --json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Met.
    pub met: usize,
    /// Within the tolerance, but not with other seeds or loads.
    pub fragile: usize,
    /// Missed.
    pub missed: usize,
    /// Met, and predicted.
    pub predicted_met: usize,
    /// Predicted, met or not.
    pub predicted: usize,
}

/// The counts of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Results that papers published.
    pub published: Tally,
    /// Results of zonda's own experiments, compared with formulas and bounds.
    pub own: Tally,
    /// Published results that no experiment reproduces.
    pub uncovered: usize,
}

impl Tally {
    /// The tally of these results.
    #[must_use]
    pub fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Tally {
        let mut tally = Tally::default();
        for row in rows {
            match row.verdict {
                Verdict::Met => tally.met += 1,
                Verdict::Fragile => tally.fragile += 1,
                Verdict::Missed => tally.missed += 1,
            }
            tally.predicted += usize::from(!row.fitted);
            tally.predicted_met += usize::from(!row.fitted && row.met);
        }
        tally
    }

    /// All results.
    #[must_use]
    pub fn all(&self) -> usize {
        self.met + self.fragile + self.missed
    }
}

impl Counts {
    /// The counts of these results.
    #[must_use]
    pub fn of(rows: &[Row]) -> Counts {
        Counts {
            published: Tally::of(rows.iter().filter(|row| row.published_result)),
            own: Tally::of(rows.iter().filter(|row| !row.published_result)),
            uncovered: crate::uncovered_results().len(),
        }
    }
}
