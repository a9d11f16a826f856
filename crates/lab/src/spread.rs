//! Spreads: how far a result varies with the seed, and with the loads that its paper leaves open.
//!
//! `zonda lab spread` measures them, which takes long; `spreads.toml` keeps those of the built-in
//! experiments.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::{LabExperiment, Outcome, ResultPlan, Variation, builtin_text};

/// Spreads of the results of built-in experiments.
const BUILTIN: &str = include_str!("../spreads.toml");
/// Significant digits of stored values.
const DIGITS: i32 = 6;
/// Relative error of stored values and of means; a result this far outside of its spread is not
/// stale.
const SLACK: f64 = 1e-3;

/// Values of a result with different seeds, and with other values of open loads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The id of the result.
    pub result: String,
    /// The first seed; the others follow it.
    pub first_seed: u64,
    /// The value with each seed.
    pub values: Vec<f64>,
    /// The values with other loads, one of them varied at a time.
    #[serde(default)]
    pub loads: Vec<LoadValue>,
}

/// The value of a result with another load: the mean over the seeds of the experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadValue {
    /// The key of the load, as in `[[open]]`.
    pub key: String,
    /// `-25%`, `+25%`, or the value.
    pub change: String,
    /// The value of the result.
    pub value: f64,
}

/// A spread in comparison with a published value: an object of `zonda lab compare --json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpreadSummary {
    /// Minimum over seeds and loads.
    pub low: f64,
    /// Maximum over seeds and loads.
    pub high: f64,
    /// Number of seeds.
    pub seeds: usize,
    /// Number of seeds with a value within the tolerance.
    pub seeds_met: usize,
    /// Number of varied loads.
    pub loads: usize,
    /// Number of varied loads with a value within the tolerance.
    pub loads_met: usize,
    /// Whether the result does not lie within its spread any more, so that the spread does not
    /// count.
    pub stale: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    spread: Vec<Spread>,
}

impl Spread {
    /// The values of a result in the runs with its own loads; `None` if a run had no value.
    #[must_use]
    pub fn of_seeds(experiment: &LabExperiment, outcome: &Outcome, plan: &ResultPlan) -> Option<Spread> {
        let values = outcome.by_seed(experiment, plan)?.into_iter().map(stored).collect();
        Some(Spread { result: plan.id.clone(), first_seed: experiment.first_seed(), values, loads: Vec::new() })
    }

    /// Adds the value with another load.
    pub fn add(&mut self, variation: &Variation, value: f64) {
        let (key, change) = (variation.key().to_owned(), variation.change());
        self.loads.push(LoadValue { key, change, value: stored(value) });
    }

    /// The comparison with the published value; `ours` is the value of the usual runs, if there
    /// are some.
    #[must_use]
    pub fn summary(&self, plan: &ResultPlan, ours: Option<f64>) -> SpreadSummary {
        let seeds = bounds(self.values.iter().copied());
        let all = bounds(self.values.iter().copied().chain(self.loads.iter().map(|load| load.value)));
        let is_within = |ours: f64| {
            let slack = ours.abs() * SLACK;
            (seeds.0 - slack..=seeds.1 + slack).contains(&ours)
        };
        SpreadSummary {
            low: all.0,
            high: all.1,
            seeds: self.values.len(),
            seeds_met: self.values.iter().filter(|value| plan.is_met(**value)).count(),
            loads: self.loads.len(),
            loads_met: self.loads.iter().filter(|load| plan.is_met(load.value)).count(),
            stale: !ours.is_none_or(is_within),
        }
    }

    /// The stored spread of a result of an unchanged built-in experiment.
    #[must_use]
    pub fn builtin(experiment: &LabExperiment, plan: &ResultPlan) -> Option<&'static Spread> {
        static ALL: OnceLock<Vec<Spread>> = OnceLock::new();
        if builtin_text(&experiment.id) != Some(experiment.text.as_str()) {
            return None;
        }
        let all = ALL.get_or_init(|| Spread::parse(BUILTIN).expect("a test parses spreads.toml"));
        all.iter().find(|spread| spread.result == plan.id)
    }

    /// The spreads of a file like `spreads.toml`.
    ///
    /// # Errors
    /// An invalid file.
    pub fn parse(text: &str) -> Result<Vec<Spread>, toml::de::Error> {
        let file: File = toml::from_str(text)?;
        Ok(file.spread)
    }

    /// A table of a file like `spreads.toml`.
    #[must_use]
    pub fn text(&self) -> String {
        let values: Vec<String> = self.values.iter().map(f64::to_string).collect();
        let (result, first, values) = (&self.result, self.first_seed, values.join(", "));
        let mut text = format!("[[spread]]\nresult = {result:?}\nfirst_seed = {first}\nvalues = [{values}]\n");
        if !self.loads.is_empty() {
            text += "loads = [\n";
            for LoadValue { key, change, value } in &self.loads {
                text += &format!("    {{ key = {key:?}, change = {change:?}, value = {value} }},\n");
            }
            text += "]\n";
        }
        text
    }
}

impl SpreadSummary {
    /// Whether a value is outside of the tolerance.
    #[must_use]
    pub fn crosses(&self) -> bool {
        self.seeds_met < self.seeds || self.loads_met < self.loads
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Rounded to [`DIGITS`].
fn stored(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (DIGITS - 1 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    format!("{value:.digits$}").parse().expect("it is a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_spreads_are_those_of_results_and_have_values() {
        let spreads = Spread::parse(BUILTIN).expect("the file is valid");
        for spread in &spreads {
            assert!(!spread.values.is_empty(), "{}", spread.result);
            assert_eq!(spreads.iter().filter(|other| other.result == spread.result).count(), 1, "{}", spread.result);
        }
    }

    #[test]
    fn a_written_spread_is_read_as_the_same() {
        let loads = vec![LoadValue { key: "run.time".to_owned(), change: "-25%".to_owned(), value: 3.5 }];
        let spread = Spread { result: "a-b".to_owned(), first_seed: 3, values: vec![1.0, 0.25, 2278.0], loads };
        let bare = Spread { loads: Vec::new(), result: "a-c".to_owned(), ..spread.clone() };
        let text = spread.text() + &bare.text();
        assert_eq!(Spread::parse(&text).expect("it is valid"), [spread, bare], "{text}");
    }

    #[test]
    fn stored_values_have_six_digits() {
        assert_eq!(
            [1.234_567_8, 2_278_123.4, 0.001_234_567_8, 0.0].map(stored),
            [1.234_57, 2_278_123.0, 0.001_234_57, 0.0]
        );
    }
}
