//! The result of a fit.

use nalgebra::DMatrix;
use serde::Serialize;

use super::FitPlan;
use super::parameter::Parameter;
use super::search::{Found, Slopes};
use super::tries::{Tried, Tries};

/// A value closer to a bound than this share of the range, on a logarithmic scale, is at its edge.
const EDGE: f64 = 0.01;
/// Cosine of the angle between the effects of two parameters above which they cannot be
/// distinguished.
const PARALLEL: f64 = 0.98;
/// Maximum number of measurements named for each parameter.
const MOVES_MAX: usize = 2;

/// The result of a fit.
#[derive(Clone, Debug, Serialize)]
pub struct FitReport {
    /// Candidates that were run.
    pub tries: u32,
    /// Runs of workloads, without those that only determine the warm-up.
    pub runs: u64,
    /// Root mean square of the residuals before, in tolerances.
    pub misfit_before: f64,
    /// And after.
    pub misfit_after: f64,
    /// Whether the search was stopped by the maximum number of tries.
    pub is_cut_short: bool,
    /// In the order of the file.
    pub measurements: Vec<FittedMeasurement>,
    /// In the order of the file.
    pub parameters: Vec<FittedParameter>,
    /// Pairs of parameters that these measurements cannot distinguish.
    pub alike: Vec<AlikePair>,
    /// The best values, in the smallest units.
    #[serde(skip)]
    pub(super) numbers: Vec<f64>,
}

/// A measurement, before and after.
#[derive(Clone, Debug, Serialize)]
pub struct FittedMeasurement {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Value of the real drive.
    pub measured: f64,
    /// Its relative uncertainty.
    pub tolerance: f64,
    /// Value of the model before.
    pub before: f64,
    /// And after.
    pub after: f64,
    /// Relative error after.
    pub residual: f64,
    /// The same in tolerances.
    pub residual_in_tolerances: f64,
    /// Whether the error is within the tolerance.
    pub met: bool,
    /// Whether the workload reached a steady state on the model, or ended by itself.
    pub is_steady: bool,
    /// Commands that failed in runs on the model.
    pub errors: u64,
}

/// A parameter, before and after.
#[derive(Clone, Debug, Serialize)]
pub struct FittedParameter {
    /// Its key in the profile.
    pub key: String,
    /// The value in the profile, in its unit.
    pub before: String,
    /// The fitted value.
    pub after: String,
    /// The lower bound.
    pub low: String,
    /// The upper bound.
    pub high: String,
    /// The bound that it is at: `low` or `high`.
    pub at_edge: Option<&'static str>,
    /// Whether no measurement depends on it; then it is unchanged.
    pub is_idle: bool,
    /// Its relative uncertainty, if all tolerances are standard deviations and the others are free;
    /// absent if the measurements do not determine it.
    pub uncertainty: Option<f64>,
    /// The measurements with the strongest dependency.
    pub moves: Vec<Effect>,
}

/// The dependency of a measurement on a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// The measurement's name.
    pub measurement: String,
    /// Relative change of the measurement per relative change of the parameter.
    pub elasticity: f64,
}

/// Two parameters with indistinguishable effects.
#[derive(Clone, Debug, Serialize)]
pub struct AlikePair {
    /// Their keys.
    pub keys: [String; 2],
    /// Whether raising one has the effect of lowering the other.
    pub is_opposite: bool,
}

pub(super) fn report(plan: &FitPlan, tries: &Tries<'_>, before: &Tried, found: &Found) -> FitReport {
    let (numbers, after) = tries.best().expect("the initial profile was tried");
    let count = plan.parameters.len();
    let slopes = &found.slopes;
    let weighted = DMatrix::from_fn(plan.measurements.len(), count, |row, column| {
        slopes.elasticity[(row, column)] / plan.measurements[row].tolerance
    });
    let uncertainties = uncertainties(&weighted);
    let parameters = plan.parameters.iter().enumerate().map(|(column, parameter)| {
        let effects = effects(plan, slopes, column);
        FittedParameter {
            key: parameter.key.clone(),
            before: parameter.shown(parameter.start),
            after: parameter.shown(numbers[column]),
            low: parameter.shown(parameter.low),
            high: parameter.shown(parameter.high),
            at_edge: edge(parameter, numbers[column]),
            is_idle: effects.is_empty(),
            uncertainty: uncertainties[column],
            moves: effects,
        }
    });
    FitReport {
        tries: tries.count,
        runs: tries.runs,
        misfit_before: before.misfit,
        misfit_after: after.misfit,
        is_cut_short: found.is_cut_short,
        measurements: measurements(plan, before, after),
        parameters: parameters.collect(),
        alike: alike(plan, &weighted),
        numbers: numbers.clone(),
    }
}

fn measurements(plan: &FitPlan, before: &Tried, after: &Tried) -> Vec<FittedMeasurement> {
    let rows = plan.measurements.iter().zip(before.ours.iter().zip(&after.ours));
    rows.map(|(measured, (before, after))| {
        let in_tolerances = measured.residual(after.value);
        FittedMeasurement {
            name: measured.name.clone(),
            unit: measured.unit.clone(),
            measured: measured.value,
            tolerance: measured.tolerance,
            before: before.value,
            after: after.value,
            residual: in_tolerances * measured.tolerance,
            residual_in_tolerances: in_tolerances,
            met: in_tolerances.abs() <= 1.0,
            is_steady: after.is_steady,
            errors: after.errors,
        }
    })
    .collect()
}

/// The strongest effects of a parameter; empty if no measurement depends on it.
fn effects(plan: &FitPlan, slopes: &Slopes, column: usize) -> Vec<Effect> {
    let of = slopes.elasticity.column(column);
    let mut effects: Vec<Effect> = plan
        .measurements
        .iter()
        .zip(of.iter())
        .filter(|(_, elasticity)| **elasticity != 0.0)
        .map(|(measured, elasticity)| Effect { measurement: measured.name.clone(), elasticity: *elasticity })
        .collect();
    effects.sort_by(|left, right| right.elasticity.abs().total_cmp(&left.elasticity.abs()));
    effects.truncate(MOVES_MAX);
    effects
}

fn edge(parameter: &Parameter, number: f64) -> Option<&'static str> {
    let share = libm::log(number / parameter.low) / libm::log(parameter.high / parameter.low);
    match share {
        _ if share < EDGE => Some("low"),
        _ if share > 1.0 - EDGE => Some("high"),
        _ => None,
    }
}

/// Standard deviations of the logarithms of the parameters, from the inverse of the normal
/// equations.
fn uncertainties(weighted: &DMatrix<f64>) -> Vec<Option<f64>> {
    let active: Vec<usize> = (0..weighted.ncols()).filter(|column| weighted.column(*column).norm() > 0.0).collect();
    let some = weighted.select_columns(&active);
    let inverse = (some.transpose() * &some).try_inverse();
    let mut all = vec![None; weighted.ncols()];
    for (place, column) in active.into_iter().enumerate() {
        let variance = inverse.as_ref().map(|inverse| inverse[(place, place)]);
        all[column] = variance.filter(|variance| variance.is_finite() && *variance > 0.0).map(f64::sqrt);
    }
    all
}

fn alike(plan: &FitPlan, weighted: &DMatrix<f64>) -> Vec<AlikePair> {
    let mut pairs = Vec::new();
    for left in 0..weighted.ncols() {
        for right in left + 1..weighted.ncols() {
            let (one, other) = (weighted.column(left), weighted.column(right));
            let norms = one.norm() * other.norm();
            let cosine = if norms > 0.0 { one.dot(&other) / norms } else { 0.0 };
            if cosine.abs() > PARALLEL {
                let keys = [left, right].map(|column| plan.parameters[column].key.clone());
                pairs.push(AlikePair { keys, is_opposite: cosine < 0.0 });
            }
        }
    }
    pairs
}
