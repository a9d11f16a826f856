//! A file of measurements, as deserialized. `docs/guide/fit-a-drive.md` is the reference.

use serde::Deserialize;
use toml::{Table, Value};
use zonda_config::Spanned;

use super::limits::{SEEDS_DEFAULT, TOLERANCE_DEFAULT};
use crate::spec::Terms;

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSpec {
    pub(super) fit: FitSpec,
    #[serde(default)]
    pub(super) measurement: Vec<MeasurementSpec>,
}

/// `[fit]`: the parameters, and the number of runs of each measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FitSpec {
    #[serde(default = "seeds_default")]
    pub(super) seeds: Spanned<u32>,
    pub(super) parameters: Spanned<Vec<ParameterSpec>>,
}

/// A parameter of the profile, and its bounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParameterSpec {
    pub(super) key: Spanned<String>,
    pub(super) low: Option<Spanned<Value>>,
    pub(super) high: Option<Spanned<Value>>,
}

/// `[[measurement]]`: a measured value of the real drive, and its workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasurementSpec {
    pub(super) name: Spanned<String>,
    pub(super) value: Spanned<f64>,
    pub(super) unit: Spanned<String>,
    pub(super) of: Spanned<Terms>,
    pub(super) over: Option<Spanned<Terms>>,
    /// Relative uncertainty.
    #[serde(default = "tolerance_default")]
    pub(super) tolerance: Spanned<f64>,
    #[serde(default)]
    pub(super) run: Table,
    #[serde(default)]
    pub(super) job: Vec<Table>,
    /// Keys of the profile that this workload overrides.
    #[serde(default)]
    pub(super) drive_set: Table,
}

fn seeds_default() -> Spanned<u32> {
    zonda_config::unplaced(SEEDS_DEFAULT)
}

fn tolerance_default() -> Spanned<f64> {
    zonda_config::unplaced(TOLERANCE_DEFAULT)
}
