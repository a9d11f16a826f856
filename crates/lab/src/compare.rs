//! Comparison of published results with those of the model.

use serde::Serialize;

use crate::{Basis, Estimate, LabExperiment, Outcome, ResultPlan, Spread, SpreadSummary, Verdict};

/// A published result and that of the model: an object of `zonda lab compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of the published number; stable over time.
    pub id: String,
    /// `device`, `system` or `shape`.
    pub kind: &'static str,
    /// Whether a paper published it; otherwise it is a formula or a bound of the experiment.
    pub published_result: bool,
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
    /// Whether the result is met; a fragile result is not.
    pub met: bool,
    /// Whether it is met, fragile or missed.
    pub verdict: Verdict,
    /// Its spread over seeds and open loads; `null` if it was not measured.
    pub spread: Option<SpreadSummary>,
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
    /// Value of the model over the seeds of these runs.
    #[serde(skip)]
    pub runs: Option<Estimate>,
}

impl Row {
    /// Evaluates a result of an experiment.
    #[must_use]
    pub fn new(experiment: &LabExperiment, outcome: &Outcome, plan: &ResultPlan) -> Row {
        Row::with_spread(experiment, outcome, plan, Spread::builtin(experiment, plan))
    }

    /// Evaluates a result of an experiment with this spread.
    #[must_use]
    pub fn with_spread(
        experiment: &LabExperiment,
        outcome: &Outcome,
        plan: &ResultPlan,
        spread: Option<&Spread>,
    ) -> Row {
        let runs = outcome.result(experiment, plan);
        let ours = runs.map(|estimate| estimate.mean);
        let summary = spread.map(|spread| spread.summary(plan, ours));
        let verdict = Verdict::new(plan, ours, summary.as_ref());
        let basis = experiment.basis(plan);
        let note = match (verdict, spread) {
            (Verdict::Met, _) => String::new(),
            (Verdict::Fragile, Some(spread)) => why_fragile(spread, plan),
            _ if ours.is_none() => "the runs produced no value".to_owned(),
            _ => plan.miss.clone().unwrap_or_default(),
        };
        Row {
            id: plan.id.clone(),
            kind: plan.kind.name(),
            published_result: experiment.paper_of().is_some_and(|paper| paper.is_published),
            unit: plan.unit.clone(),
            published: plan.published,
            ours,
            error: ours.map(|ours| (ours - plan.published) / plan.published),
            tolerance: plan.tolerance,
            at_most: plan.at_most,
            at_least: plan.at_least,
            met: verdict == Verdict::Met,
            verdict,
            spread: summary,
            fitted: basis != Basis::Predicted,
            note,
            basis,
            title: plan.title.clone(),
            experiment: experiment.id.clone(),
            runs,
        }
    }

    /// All results of an experiment, in the order of its file.
    #[must_use]
    pub fn all(experiment: &LabExperiment, outcome: &Outcome) -> Vec<Row> {
        experiment.results.iter().map(|plan| Row::new(experiment, outcome, plan)).collect()
    }
}

/// The seeds and the loads with which a fragile result is not met.
fn why_fragile(spread: &Spread, plan: &ResultPlan) -> String {
    let missed = spread.values.iter().filter(|value| !plan.is_met(**value)).count();
    let mut parts = Vec::new();
    if missed > 0 {
        parts.push(format!("with {missed} of {} seeds", spread.values.len()));
    }
    let loads = spread.loads.iter().filter(|load| !plan.is_met(load.value));
    parts.extend(loads.map(|load| format!("with {} {} ({})", load.key, load.change, three_digits(load.value))));
    format!("Outside of the tolerance {}.", parts.join(", "))
}

fn three_digits(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-6).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
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
