//! The search: least squares by Levenberg and Marquardt's method, in the logarithms of the parameters.
//!
//! A parameter within bounds becomes a free one by a sine, as in MINUIT (James and Roos, Computer Physics
//! Communications 10, 1975): the free one is an angle, and its sine reaches from the lower bound to the upper one on a
//! logarithmic scale. Derivatives are differences over a step that is wider than the noise of the runs. Sines and
//! logarithms are those of `libm`, which are the same on every machine.

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
/// A parameter that changes a measurement by less than this share of its own change does not move it.
const ELASTICITY_MIN: f64 = 0.004;
/// All residuals below this many tolerances: nothing is left to gain.
const ENOUGH: f64 = 0.1;
/// Residuals of a candidate that cannot be run, in tolerances: worse than any other.
const REFUSED: f64 = 1e9;
/// Angles are shifted by this, so that they are never near zero: the method takes steps and tolerances relative to them.
const SHIFT: f64 = 2.0;
/// No start is nearer to its bounds than this angle: there the derivative would be zero.
const START_MARGIN: f64 = 0.3;
/// The first step, relative to the shifted angles: about a third of the way to a bound.
const FIRST_STEP: f64 = 0.25;
/// Relative change of the shifted angles below which the search ends: some thousandth of a parameter.
const STEP_MIN: f64 = 5e-4;
/// Relative gain below which the search ends.
const GAIN_MIN: f64 = 1e-3;

/// By how much each measurement changes with each parameter: relative change by relative change. Rows are measurements.
#[derive(Clone, Debug)]
pub(super) struct Slopes {
    pub(super) elasticity: DMatrix<f64>,
}

/// What is shared by the calls of the method.
struct Search<'a, 'b> {
    plan: &'a FitPlan,
    tries: &'b mut Tries<'a>,
    slopes: Slopes,
    is_cut_short: bool,
}

/// What a search leaves beside its tries.
pub(super) struct Found {
    /// How measurements change with parameters at the best numbers, or near them where there were no tries left to see.
    pub(super) slopes: Slopes,
    /// Whether it was ended by the number of tries.
    pub(super) is_cut_short: bool,
}

/// The problem as the method sees it.
struct Problem<'a, 'b, 'c> {
    search: &'c RefCell<Search<'a, 'b>>,
    angles: DVector<f64>,
}

/// Searches from the profile's own numbers, which were tried and gave `before`. The best numbers are then those of
/// `tries`.
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
    let best = tries.best().cloned().filter(|_| tries.has_room_for(plan.parameters.len()));
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

    /// None, which ends the search, when there is nothing to gain or no try left.
    fn residuals(&self) -> Option<DVector<f64>> {
        let search = &mut *self.search.borrow_mut();
        let is_enough = |tried: &Tried| search.plan.residuals(tried).all(|residual| residual.abs() < ENOUGH);
        if search.tries.best().is_some_and(|(_, best)| is_enough(best)) || !search.has_room_for(1) {
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
        if !search.has_room_for(plan.parameters.len() + 1) {
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
    fn has_room_for(&mut self, more: usize) -> bool {
        self.is_cut_short |= !self.tries.has_room_for(more);
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

    /// A number one step away that can be written, up or down.
    fn step(&self, number: f64, up: bool) -> f64 {
        let step = (number * STEP).max(self.grain(number));
        self.rounded(if up { number + step } else { number - step })
    }
}

fn numbers_at(plan: &FitPlan, angles: &DVector<f64>) -> Vec<f64> {
    plan.parameters.iter().zip(angles.iter()).map(|(parameter, angle)| parameter.at_angle(*angle)).collect()
}

/// How measurements change with parameters at these numbers, which gave `here`. A parameter that can go neither up nor
/// down moves nothing.
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
