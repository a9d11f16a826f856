//! Comparison of published results with those of the model.

use serde::Serialize;

use crate::{Basis, Estimate, LabExperiment, Outcome, ResultPlan};

/// A published result and that of the model: an object of `zonda lab compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of the published number; stable over time.
    pub id: String,
    /// `device`, `system` or `shape`.
    pub kind: &'static str,
    /// Of both numbers.
    pub unit: String,
    /// Published value.
    pub published: f64,
    /// Value of the model; `null` if the runs produced none.
    pub ours: Option<f64>,
    /// (ours - published) / published.
    pub error: Option<f64>,
    /// Maximum relative error at which the result is met.
    pub tolerance: f64,
    /// Whether the published value is an upper bound: lower values are met.
    pub at_most: bool,
    /// Whether the published value is a lower bound: higher values are met.
    pub at_least: bool,
    /// Whether the result is met.
    pub met: bool,
    /// Whether something was set with this result or another one of the same figure in view;
    /// otherwise the result is a prediction. [`Row::basis`] has the details.
    pub fitted: bool,
    /// Why it is not met; empty if it is.
    pub note: String,
    /// The basis of the result.
    pub basis: Basis,
    /// In words.
    #[serde(skip)]
    pub title: String,
    /// The experiment of the result.
    #[serde(skip)]
    pub experiment: String,
    /// Value of the model over the seeds.
    #[serde(skip)]
    pub spread: Option<Estimate>,
}

impl Row {
    /// Evaluates a result of an experiment.
    #[must_use]
    pub fn new(experiment: &LabExperiment, outcome: &Outcome, plan: &ResultPlan) -> Row {
        let spread = outcome.result(experiment, plan);
        let ours = spread.map(|estimate| estimate.mean);
        let error = ours.map(|ours| (ours - plan.published) / plan.published);
        let met = error.is_some_and(|error| {
            (plan.at_least || error <= plan.tolerance) && (plan.at_most || error >= -plan.tolerance)
        });
        let basis = experiment.basis(plan);
        let note = match (met, ours) {
            (true, _) => String::new(),
            (false, None) => "the runs produced no value".to_owned(),
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
    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            crate::KindSpec::Device => "device",
            crate::KindSpec::System => "system",
            crate::KindSpec::Shape => "shape",
        }
    }
}
