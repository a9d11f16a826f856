//! Measurements of an experiment, and evaluation of its results.

use serde::{Deserialize, Serialize};

use crate::plan::{Reduce, ResultPlan, Selector};
use crate::spec::TakeSpec;
use crate::{Estimate, LabExperiment, Measurement};

/// The measurements of all points of an experiment, in their order.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Outcome {
    /// Curve by curve, each at all values of x, as [`LabExperiment::points`].
    pub measurements: Vec<Measurement>,
}

/// The seeds that a value is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seeds {
    Mean,
    Seed(usize),
}

impl Outcome {
    /// A metric of a curve at the value of x with this index.
    #[must_use]
    pub fn estimate(&self, experiment: &LabExperiment, metric: usize, series: usize, x: usize) -> Option<Estimate> {
        self.measurements.get(place(experiment, series, x)?)?.estimate(metric)
    }

    /// Evaluates a result; `None` if a value was not measured. The mean is computed from the means
    /// of the points, the spread from the results of each seed.
    #[must_use]
    pub fn result(&self, experiment: &LabExperiment, plan: &ResultPlan) -> Option<Estimate> {
        let mean = self.number(experiment, plan, Seeds::Mean)?;
        let spread = Estimate::of(&self.by_seed(experiment, plan)?)?;
        Some(Estimate { mean, low: spread.low.min(mean), high: spread.high.max(mean) })
    }

    /// The value of a result with each seed; `None` if a run had no value.
    #[must_use]
    pub fn by_seed(&self, experiment: &LabExperiment, plan: &ResultPlan) -> Option<Vec<f64>> {
        (0..experiment.seeds as usize).map(|seed| self.number(experiment, plan, Seeds::Seed(seed))).collect()
    }

    fn number(&self, experiment: &LabExperiment, plan: &ResultPlan, seeds: Seeds) -> Option<f64> {
        let Some(take) = plan.take else {
            let of = self.selected(experiment, &plan.of, seeds)?;
            let by = match &plan.over {
                Some(selector) => self.selected(experiment, selector, seeds)?,
                None => 1.0,
            };
            let number = plan.affected.map_or(of / by, |share| of_affected(of / by, share));
            return Some(number).filter(|number| number.is_finite());
        };
        let mut curve = self.curve(experiment, &plan.of, seeds)?;
        if let Some(selector) = &plan.over {
            let by = self.curve(experiment, selector, seeds)?;
            curve.retain(|(x, _)| by.iter().any(|(other, _)| other == x));
            for (x, value) in &mut curve {
                *value /= by.iter().find(|(other, _)| other == x)?.1;
            }
        }
        taken(take, &curve, experiment)
    }

    fn selected(&self, experiment: &LabExperiment, selector: &Selector, seeds: Seeds) -> Option<f64> {
        match selector.reduce {
            Reduce::At(x) => self.value(experiment, selector, x, seeds),
            Reduce::Take(take) => taken(take, &self.curve(experiment, selector, seeds)?, experiment),
            Reduce::Whole => None,
        }
    }

    /// The indices of x at which the curve has points, and its values there.
    fn curve(&self, experiment: &LabExperiment, selector: &Selector, seeds: Seeds) -> Option<Vec<(usize, f64)>> {
        let of_curve = experiment.points.iter().filter(|point| point.series == selector.series);
        of_curve.map(|point| Some((point.x, self.value(experiment, selector, point.x, seeds)?))).collect()
    }

    fn value(&self, experiment: &LabExperiment, selector: &Selector, x: usize, seeds: Seeds) -> Option<f64> {
        let measurement = self.measurements.get(place(experiment, selector.series, x)?)?;
        match seeds {
            Seeds::Mean => measurement.estimate(selector.metric).map(|estimate| estimate.mean),
            Seeds::Seed(seed) => measurement.values.get(selector.metric)?.as_ref()?.get(seed).copied(),
        }
    }
}

/// The ratio of rates for the share of the requests that differ, from the ratio for all of them. With
/// one request outstanding, a rate is one over the mean time of a request, and means of parts add.
fn of_affected(ratio: f64, share: f64) -> f64 {
    share / (1.0 / ratio - (1.0 - share))
}

/// The index of the point of a curve at a value of x; `None` if the curve has no such point.
fn place(experiment: &LabExperiment, series: usize, x: usize) -> Option<usize> {
    experiment.points.binary_search_by_key(&(series, x), |point| (point.series, point.x)).ok()
}

fn taken(take: TakeSpec, curve: &[(usize, f64)], experiment: &LabExperiment) -> Option<f64> {
    let values = || curve.iter().map(|(_, value)| *value);
    let most = values().reduce(f64::max)?;
    let taken = match take {
        TakeSpec::Max => most,
        TakeSpec::Min => values().reduce(f64::min)?,
        TakeSpec::Mean => values().sum::<f64>() / curve.len() as f64,
        TakeSpec::Saturates(share) => {
            let x = &experiment.x.as_ref()?.values;
            let reached = curve.iter().filter(|(_, value)| *value >= share * most);
            reached.map(|(place, _)| x[*place]).min_by(f64::total_cmp)?
        }
    };
    taken.is_finite().then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_the_affected_requests_follows_from_that_of_all() {
        // One request in four takes 125 us instead of 100 us.
        let all = 100.0 / (0.75 * 100.0 + 0.25 * 125.0);
        assert!((of_affected(all, 0.25) - 0.8).abs() < 1e-12);
        assert!((of_affected(0.7, 1.0) - 0.7).abs() < 1e-12);
    }
}
