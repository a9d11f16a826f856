//! Tries: runs of the model with other values, each once.

use std::collections::BTreeMap;

use super::{FitPlan, Progress, Task};
use crate::Measurement;

/// The measurements of the model in a try.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) ours: Vec<Ours>,
    /// Root mean square of the residuals, in tolerances.
    pub(super) misfit: f64,
}

/// One measurement of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    pub(super) value: f64,
    pub(super) is_steady: bool,
    pub(super) errors: u64,
}

/// Runs a list of tasks in any order, and returns their measurements in the order of the list.
pub(super) type Run<'a> = dyn FnMut(&[Task], Progress) -> Vec<Measurement> + 'a;

/// All tries of a fit.
pub(super) struct Tries<'a> {
    plan: &'a FitPlan,
    run: &'a mut Run<'a>,
    max: u32,
    /// Results by the notation of the values; `None` for invalid profiles and missing figures.
    seen: BTreeMap<Vec<String>, Option<Tried>>,
    best: Option<(Vec<f64>, Tried)>,
    start_misfit: Option<f64>,
    /// Candidates that were run.
    pub(super) count: u32,
    /// Runs of workloads, without those that only determine the warm-up.
    pub(super) runs: u64,
}

impl<'a> Tries<'a> {
    pub(super) fn new(plan: &'a FitPlan, max: u32, run: &'a mut Run<'a>) -> Tries<'a> {
        Tries { plan, run, max, seen: BTreeMap::new(), best: None, start_misfit: None, count: 0, runs: 0 }
    }

    /// Whether this many more tries are allowed.
    pub(super) fn has_budget_for(&self, more: usize) -> bool {
        self.count as usize + more <= self.max as usize
    }

    /// The values with the smallest misfit so far, and their result.
    pub(super) fn best(&self) -> Option<&(Vec<f64>, Tried)> {
        self.best.as_ref()
    }

    /// Whether these values give a profile that is valid for all workloads.
    pub(super) fn is_possible(&self, numbers: &[f64]) -> bool {
        match self.seen.get(&self.key(numbers)) {
            Some(tried) => tried.is_some(),
            None => self.plan.tasks(numbers).is_some(),
        }
    }

    /// Tries these values.
    pub(super) fn at(&mut self, numbers: &[f64]) -> Option<Tried> {
        self.at_all(std::slice::from_ref(&numbers.to_vec()));
        self.seen.get(&self.key(numbers)).cloned().flatten()
    }

    /// Tries several sets of values at once, which allows to run them in parallel.
    pub(super) fn at_all(&mut self, candidates: &[Vec<f64>]) -> Vec<Option<Tried>> {
        let mut tasks = Vec::new();
        let mut waiting: Vec<(Vec<String>, &Vec<f64>)> = Vec::new();
        for numbers in candidates {
            let key = self.key(numbers);
            if self.seen.contains_key(&key) || waiting.iter().any(|(earlier, _)| *earlier == key) {
                continue;
            }
            match self.plan.tasks(numbers) {
                Some(of_candidate) => {
                    tasks.extend(of_candidate);
                    waiting.push((key, numbers));
                }
                None => {
                    self.seen.insert(key, None);
                }
            }
        }
        if !tasks.is_empty() {
            let progress = self.progress(waiting.len() as u32);
            let measured = (self.run)(&tasks, progress);
            assert_eq!(measured.len(), tasks.len(), "every task is measured");
            self.runs += tasks.len() as u64 * u64::from(self.plan.seeds);
            for ((key, numbers), measured) in waiting.into_iter().zip(measured.chunks(self.plan.loads.len())) {
                self.count += 1;
                let tried = self.plan.tried(measured);
                self.remember(numbers, tried.as_ref());
                self.seen.insert(key, tried);
            }
        }
        candidates.iter().map(|numbers| self.seen.get(&self.key(numbers)).cloned().flatten()).collect()
    }

    fn remember(&mut self, numbers: &[f64], tried: Option<&Tried>) {
        let Some(tried) = tried else { return };
        self.start_misfit.get_or_insert(tried.misfit);
        if self.best.as_ref().is_none_or(|(_, best)| tried.misfit < best.misfit) {
            self.best = Some((numbers.to_vec(), tried.clone()));
        }
    }

    fn progress(&self, in_flight: u32) -> Progress {
        Progress {
            tries: self.count + in_flight,
            tries_max: self.max,
            misfit_before: self.start_misfit,
            misfit: self.best.as_ref().map(|(_, best)| best.misfit),
        }
    }

    fn key(&self, numbers: &[f64]) -> Vec<String> {
        self.plan.parameters.iter().zip(numbers).map(|(parameter, number)| parameter.written(*number)).collect()
    }
}

impl FitPlan {
    /// The result of one candidate; `None` if a figure is missing.
    fn tried(&self, measured: &[Measurement]) -> Option<Tried> {
        let ours = |measurement: &super::plan::Measured| {
            let of_load = measured.get(measurement.load)?;
            let value = of_load.estimate(measurement.metric)?.mean;
            Some(Ours { value, is_steady: of_load.is_steady, errors: of_load.errors })
        };
        let ours: Vec<Ours> = self.measurements.iter().map(ours).collect::<Option<_>>()?;
        let squares: f64 =
            self.measurements.iter().zip(&ours).map(|(measured, ours)| measured.residual(ours.value).powi(2)).sum();
        Some(Tried { misfit: (squares / ours.len() as f64).sqrt(), ours })
    }
}

impl super::plan::Measured {
    /// The residual of a value of the model, in tolerances.
    pub(super) fn residual(&self, ours: f64) -> f64 {
        (ours - self.value) / (self.value * self.tolerance)
    }
}
