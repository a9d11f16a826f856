//! Fitting: parameters of a profile, chosen so that the model meets measurements of a real drive.
//!
//! A file names the parameters and lists the measurements, each with its workload.
//! [`FitPlan::parse`] validates it against a profile, and [`FitPlan::fit`] searches: every try runs
//! all workloads on the profile with other values, with the same seeds, so that the same files give
//! the same fit. [`FitReport`] has the residuals, the parameters that each measurement depends on,
//! and the parameters that are undetermined. `docs/guide/fit-a-drive.md` is the reference.
//!
//! Not part of this module: threads. The caller runs the [`Task`]s, which are independent.

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

/// Progress of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Tries so far, including those in progress.
    pub tries: u32,
    /// Maximum number of tries.
    pub tries_max: u32,
    /// Root mean square of the residuals of the initial profile, in tolerances; absent in the first
    /// try.
    pub misfit_before: Option<f64>,
    /// The minimum so far.
    pub misfit: Option<f64>,
}

impl FitPlan {
    /// Searches with at most `tries_max` tries, but at least [`FitPlan::tries_min`]. `run` measures
    /// all tasks that it is given, in any order, and returns the results in the order of the tasks.
    ///
    /// # Errors
    /// If a measurement has no value on the initial profile, with its position in the file.
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
            let error = ConfigError::new("the workload completed no such command").within(of);
            return Err(error.help("check the operation of the job and the length of the run"));
        };
        let found = search::search(self, &mut tries, &before);
        Ok(report::report(self, &tries, &before, &found))
    }
}
