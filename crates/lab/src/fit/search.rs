//! The search: least squares by Levenberg and Marquardt's method, in the logarithms of the
//! parameters.
//!
//! A parameter within bounds becomes a free one by a sine, as in MINUIT (James and Roos, Computer
//! Physics Communications 10, 1975): the free one is an angle, and its sine reaches from the lower
//! bound to the upper one on a logarithmic scale. Derivatives are differences over a step that is
//! wider than the noise of the runs. Sines and logarithms are those of `libm`, which are the same
//! on every machine.

use std::cell::RefCell;
use std::f64::consts::FRAC_PI_2;

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use super::FitPlan;
use super::parameter::Parameter;
use super::tries::{Tried, Tries};

/// Relative step of the differences.
const STEP: f64 = 0.03;
/// Elasticity below which a measurement counts as independent of a parameter.
const ELASTICITY_MIN: f64 = 0.004;
/// Maximum residual, in tolerances, at which the search ends.
const ENOUGH: f64 = 0.1;
/// Residuals of a candidate that cannot be run, in tolerances: worse than any valid one.
const REFUSED: f64 = 1e9;
/// Angles are shifted by this, so that they are never near zero: the method takes steps and
/// tolerances relative to them.
const SHIFT: f64 = 2.0;
/// No start is nearer to its bounds than this angle: there the derivative would be zero.
const START_MARGIN: f64 = 0.3;
/// The first step, relative to the shifted angles: about a third of the way to a bound.
const FIRST_STEP: f64 = 0.25;
/// Relative change of the shifted angles below which the search ends: some thousandth of a
/// parameter.
const STEP_MIN: f64 = 5e-4;
/// Relative gain below which the search ends.
const GAIN_MIN: f64 = 1e-3;

/// Elasticity of each measurement with respect to each parameter. Rows are measurements.
#[derive(Clone, Debug)]
pub(super) struct Slopes {
    pub(super) elasticity: DMatrix<f64>,
}

/// State shared by the calls of the method.
struct Search<'a, 'b> {
    plan: &'a FitPlan,
    tries: &'b mut Tries<'a>,
    slopes: Slopes,
    is_cut_short: bool,
}

/// The result of a search other than its tries.
pub(super) struct Found {
    /// Elasticities at the best values, or near them if no tries were left.
    pub(super) slopes: Slopes,
    /// Whether it was stopped by the maximum number of tries.
    pub(super) is_cut_short: bool,
}

/// The problem in the form that the method requires.
struct Problem<'a, 'b, 'c> {
    search: &'c RefCell<Search<'a, 'b>>,
    angles: DVector<f64>,
}

/// Searches from the values of the profile, whose try gave `before`. The best values are then those
/// of `tries`.
pub(super) fn search<'a>(plan: &'a FitPlan, tries: &mut Tries<'a>, before: &Tried) -> Found {
    let start: Vec<f64> = plan.parameters.iter().map(|parameter| parameter.start).collect();
    let slopes = slopes_at(plan, tries, &start, before);
    let search = RefCell::new(Search { plan, tries, slopes, is_cut_short: false });
    let angles = DVector::from_iterator(start.len(), plan.parameters.iter().map(Parameter::start_angle));
    let method = LevenbergMarquardt::new()
        .with_scale_diag(false)
        .with_stepbound(FIRST_STEP)
        .with_xtol(STEP_MIN)
        .with_ftol(GAIN_MIN)
        .with_gtol(0.0);
    let _ = method.minimize(Problem { search: &search, angles });
    let Search { tries, slopes, is_cut_short, .. } = search.into_inner();
    let best = tries.best().cloned().filter(|_| tries.has_budget_for(plan.parameters.len()));
    let slopes = best.map_or(slopes, |(numbers, tried)| slopes_at(plan, tries, &numbers, &tried));
    Found { slopes, is_cut_short }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_, '_, '_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, angles: &DVector<f64>) {
        self.angles.copy_from(angles);
    }

    fn params(&self) -> DVector<f64> {
        self.angles.clone()
    }

    /// `None`, which ends the search, if all residuals are small or no try is left.
    fn residuals(&self) -> Option<DVector<f64>> {
        let search = &mut *self.search.borrow_mut();
        let is_enough = |tried: &Tried| search.plan.residuals(tried).all(|residual| residual.abs() < ENOUGH);
        if search.tries.best().is_some_and(|(_, best)| is_enough(best)) || !search.has_budget_for(1) {
            return None;
        }
        let numbers = numbers_at(search.plan, &self.angles);
        let count = search.plan.measurements.len();
        Some(match search.tries.at(&numbers) {
            Some(tried) => DVector::from_iterator(count, search.plan.residuals(&tried)),
            None => DVector::repeat(count, REFUSED),
        })
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let search = &mut *self.search.borrow_mut();
        let plan = search.plan;
        let numbers = numbers_at(plan, &self.angles);
        if !search.has_budget_for(plan.parameters.len() + 1) {
            return None;
        }
        let here = search.tries.at(&numbers)?;
        let slopes = slopes_at(plan, search.tries, &numbers, &here);
        let jacobian = DMatrix::from_fn(plan.measurements.len(), plan.parameters.len(), |row, column| {
            let by_angle = plan.parameters[column].slope(self.angles[column]);
            slopes.elasticity[(row, column)] / plan.measurements[row].tolerance * by_angle
        });
        search.slopes = slopes;
        Some(jacobian)
    }
}

impl Search<'_, '_> {
    fn has_budget_for(&mut self, more: usize) -> bool {
        self.is_cut_short |= !self.tries.has_budget_for(more);
        !self.is_cut_short
    }
}

impl FitPlan {
    /// The residuals of a try, in tolerances.
    pub(super) fn residuals<'a>(&'a self, tried: &'a Tried) -> impl Iterator<Item = f64> + 'a {
        self.measurements.iter().zip(&tried.ours).map(|(measured, ours)| measured.residual(ours.value))
    }
}

impl Parameter {
    /// Natural logarithms of the bounds.
    fn logs(&self) -> (f64, f64) {
        (libm::log(self.low), libm::log(self.high))
    }

    fn start_angle(&self) -> f64 {
        let (low, high) = self.logs();
        let share = (libm::log(self.start) - low) / (high - low);
        let most = FRAC_PI_2 - START_MARGIN;
        SHIFT + libm::asin((2.0 * share - 1.0).clamp(-1.0, 1.0)).clamp(-most, most)
    }

    fn at_angle(&self, angle: f64) -> f64 {
        let (low, high) = self.logs();
        self.rounded(libm::exp(low + (high - low) * (1.0 + libm::sin(angle - SHIFT)) / 2.0))
    }

    /// Change of the logarithm with the angle.
    fn slope(&self, angle: f64) -> f64 {
        let (low, high) = self.logs();
        (high - low) * libm::cos(angle - SHIFT) / 2.0
    }

    /// The value one step up or down, rounded to a short notation.
    fn step(&self, number: f64, up: bool) -> f64 {
        let step = (number * STEP).max(self.grain(number));
        self.rounded(if up { number + step } else { number - step })
    }
}

fn numbers_at(plan: &FitPlan, angles: &DVector<f64>) -> Vec<f64> {
    plan.parameters.iter().zip(angles.iter()).map(|(parameter, angle)| parameter.at_angle(*angle)).collect()
}

/// Elasticities at these values, which gave `here`. Zero for a parameter that can go neither up nor
/// down.
fn slopes_at(plan: &FitPlan, tries: &mut Tries<'_>, numbers: &[f64], here: &Tried) -> Slopes {
    let steps: Vec<Option<Vec<f64>>> = (0..numbers.len())
        .map(|column| {
            [true, false].into_iter().find_map(|up| {
                let mut there = numbers.to_vec();
                there[column] = plan.parameters[column].step(numbers[column], up);
                (there[column] != numbers[column] && tries.is_possible(&there)).then_some(there)
            })
        })
        .collect();
    tries.at_all(&steps.iter().flatten().cloned().collect::<Vec<_>>());
    let mut elasticity = DMatrix::zeros(plan.measurements.len(), numbers.len());
    for (column, there) in steps.into_iter().enumerate() {
        let Some(there) = there else { continue };
        let Some(tried) = tries.at(&there) else { continue };
        let change = libm::log(there[column] / numbers[column]);
        for (row, measured) in plan.measurements.iter().enumerate() {
            let slope = (tried.ours[row].value - here.ours[row].value) / measured.value / change;
            elasticity[(row, column)] = if slope.abs() < ELASTICITY_MIN { 0.0 } else { slope };
        }
    }
    Slopes { elasticity }
}
