//! The basis of a result: what was set with it in view, in the drive's profile or in the workload.

use serde::Serialize;
use zonda_ssd::profile::SourceKind;

use crate::{LabExperiment, ResultPlan};

/// How the profile of a drive and the workload depend on a result; a dependent result is weak
/// evidence for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// No dependency: the model predicts the result.
    Predicted,
    /// A parameter of the workload that is not published, or the structure of the model, was chosen
    /// with the result in view.
    Chosen,
    /// A value of the profile was derived from another result of the same experiment, or fitted to
    /// it.
    SameFigure,
    /// A value of the profile was computed from the result, without running the model.
    Derived,
    /// A value of the profile was chosen by running the model until it met the result.
    Fitted,
}

impl Basis {
    /// The name of the basis.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Basis::Predicted => "predicted",
            Basis::Chosen => "chosen",
            Basis::SameFigure => "same figure",
            Basis::Derived => "derived",
            Basis::Fitted => "fitted",
        }
    }
}

impl LabExperiment {
    /// The basis of a result: the weakest that applies.
    #[must_use]
    pub fn basis(&self, result: &ResultPlan) -> Basis {
        let sources = self.points.iter().flat_map(|point| point.experiment().drive().profile().sources.iter());
        let mut basis = if self.has_choice(result) { Basis::Chosen } else { Basis::Predicted };
        for (_, source) in sources {
            let is_of = |id: &String| *id == result.id;
            let is_beside = |id: &String| self.results.iter().any(|other| other.id == *id);
            let of_source = match source.kind() {
                SourceKind::Given | SourceKind::Assumed => Basis::Predicted,
                SourceKind::Fitted if source.results().iter().any(is_of) => Basis::Fitted,
                SourceKind::Derived if source.results().iter().any(is_of) => Basis::Derived,
                SourceKind::Fitted | SourceKind::Derived if source.results().iter().any(is_beside) => Basis::SameFigure,
                SourceKind::Fitted | SourceKind::Derived => Basis::Predicted,
            };
            basis = basis.max(of_source);
        }
        basis
    }

    /// Whether a load or a structure was chosen that the result depends on.
    fn has_choice(&self, result: &ResultPlan) -> bool {
        let place = self.results.iter().position(|other| other.id == result.id);
        let is_open = self.open.iter().any(|open| place.is_some_and(|place| open.results.contains(&place)));
        result.load_chosen || result.model_chosen.is_some() || is_open
    }
}
