//! Fitting: numbers of a profile, chosen so that the model meets what was measured on a real drive.
//!
//! A file names the parameters and has the measurements, each with the load that gave it. [`FitPlan::parse`] checks it
//! against a profile, and [`FitPlan::fit`] searches: every try runs all loads on the profile with other numbers, with
//! the same seeds, so that the same files give the same fit. [`FitReport`] says what was met, which parameter each
//! measurement depends on, and what the measurements cannot tell. `docs/guide/fit-a-drive.md` is the reference.
//!
//! What is absent: threads. Whoever fits runs the [`Task`]s, which do not depend on each other.

pub mod limits;
mod parameter;
mod place;
mod plan;
mod report;
mod search;
mod spec;
#[cfg(test)]
mod tests;
mod tries;
mod written;

pub use plan::{FitPlan, Task};
pub use report::{AlikePair, Effect, FitReport, FittedMeasurement, FittedParameter};

use zonda_config::ConfigError;

use crate::Measurement;
use tries::Tries;

/// How far a fit has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Tries, with those that are about to be run.
    pub tries: u32,
    /// The most that are allowed.
    pub tries_max: u32,
    /// Root of the mean square of all residuals of the profile as it is, in tolerances; absent in the first try.
    pub misfit_before: Option<f64>,
    /// The least so far.
    pub misfit: Option<f64>,
}

impl FitPlan {
    /// Searches with at most so many tries, but at least [`FitPlan::tries_min`]. `run` measures all tasks that it is
    /// given, in any order, and returns what they gave in theirs.
    ///
    /// # Errors
    /// When a measurement has no figure on the profile as it is, at its place in the file.
    pub fn fit<'a>(
        &'a self,
        tries_max: u32,
        run: &'a mut (dyn FnMut(&[Task], Progress) -> Vec<Measurement> + 'a),
    ) -> Result<FitReport, ConfigError> {
        let start: Vec<f64> = self.parameters.iter().map(|parameter| parameter.start).collect();
        let mut first: Vec<Measurement> = Vec::new();
        let mut run_first = |tasks: &[Task], progress: Progress| {
            let measured = run(tasks, progress);
            if first.is_empty() {
                first.clone_from(&measured);
            }
            measured
        };
        let mut tries = Tries::new(self, tries_max.max(self.tries_min()), &mut run_first);
        let Some(before) = tries.at(&start) else {
            drop(tries);
            let missing = self.measurements.iter().find(|of| first[of.load].estimate(of.metric).is_none());
            let of = missing.map_or(0..0, |measured| measured.of.clone());
            let error =
                ConfigError::new("the load gives no such figure: nothing of this kind was completed").within(of);
            return Err(error.help("see whether the job does this operation, and whether the run is long enough"));
        };
        let found = search::search(self, &mut tries, &before);
        Ok(report::report(self, &tries, &before, &found))
    }
}
