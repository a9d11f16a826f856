//! Published numbers against ours.

use serde::Serialize;

use crate::{Basis, Estimate, LabExperiment, Outcome, ResultPlan};

/// One published number against ours: an object of `zonda lab compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of the published number; stable over time.
    pub id: String,
    /// `device`, `system` or `shape`.
    pub kind: &'static str,
    /// Of both numbers.
    pub unit: String,
    /// What was published.
    pub published: f64,
    /// What the model comes to; `null` if it comes to nothing.
    pub ours: Option<f64>,
    /// (ours - published) / published.
    pub error: Option<f64>,
    /// The error within which the number is met.
    pub tolerance: f64,
    /// Whether what was published is a bound, and ours is met below it as well.
    pub at_most: bool,
    /// The published value is a lower bound: what is above it is met.
    pub at_least: bool,
    /// Whether the number is met.
    pub met: bool,
    /// Whether a number of the drive's profile was fitted to this result or derived from it, or a number of the load chosen
    /// near it; else it is a prediction. Which of these, [`Row::basis`] tells.
    pub fitted: bool,
    /// Why it is not met; empty if it is.
    pub note: String,
    /// Which of these, or that it is a prediction.
    pub basis: Basis,
    /// In words.
    #[serde(skip)]
    pub title: String,
    /// The experiment that it is a result of.
    #[serde(skip)]
    pub experiment: String,
    /// Ours, over the seeds.
    #[serde(skip)]
    pub spread: Option<Estimate>,
}

impl Row {
    /// What a result of an experiment comes to.
    #[must_use]
    pub fn new(experiment: &LabExperiment, outcome: &Outcome, plan: &ResultPlan) -> Row {
        let spread = outcome.result(experiment, plan);
        let ours = spread.map(|estimate| estimate.mean);
        let error = ours.map(|ours| (ours - plan.published) / plan.published);
        let met = error.is_some_and(|error| {
            (plan.at_least || error <= plan.tolerance) && (plan.at_most || error >= -plan.tolerance)
        });
        let chosen = if plan.load_chosen { Basis::Chosen } else { Basis::Predicted };
        let basis = experiment.basis(&plan.id).max(chosen);
        let note = match (met, ours) {
            (true, _) => String::new(),
            (false, None) => "the runs came to nothing".to_owned(),
            (false, Some(_)) => plan.miss.clone().unwrap_or_default(),
        };
        Row {
            id: plan.id.clone(),
            kind: plan.kind.name(),
            unit: plan.unit.clone(),
            published: plan.published,
            ours,
            error,
            tolerance: plan.tolerance,
            at_most: plan.at_most,
            at_least: plan.at_least,
            met,
            fitted: basis != Basis::Predicted,
            note,
            basis,
            title: plan.title.clone(),
            experiment: experiment.id.clone(),
            spread,
        }
    }

    /// All results of an experiment, in the order of its file.
    #[must_use]
    pub fn all(experiment: &LabExperiment, outcome: &Outcome) -> Vec<Row> {
        experiment.results.iter().map(|plan| Row::new(experiment, outcome, plan)).collect()
    }
}

impl crate::KindSpec {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            crate::KindSpec::Device => "device",
            crate::KindSpec::System => "system",
            crate::KindSpec::Shape => "shape",
        }
    }
}
