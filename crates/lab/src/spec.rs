//! The file of an experiment, as deserialized. `docs/guide/experiments.md` is the reference.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use toml::{Table, Value};
use zonda_config::{ConfigError, Spanned, TimeSpan, one_or_several};

use crate::limits::{SEEDS_DEFAULT, SEEDS_MAX};
use crate::open::OpenSpec;

/// The file: the drive and the workload of a job file, varied parameters, metrics and results.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSpec {
    pub(crate) title: String,
    /// The key of a paper, for an experiment that reproduces one of its measurements.
    pub(crate) paper: Option<Spanned<String>>,
    /// Place in the paper: a table or figure.
    pub(crate) place: Option<String>,
    /// Description of the experiment and its results.
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) statistics: StatisticsSpec,
    pub(crate) drive: Option<Table>,
    #[serde(default)]
    pub(crate) run: Table,
    #[serde(default)]
    pub(crate) job: Vec<Table>,
    pub(crate) store: Option<Table>,
    pub(crate) volume: Option<Table>,
    pub(crate) elastic: Option<Table>,
    pub(crate) x: Option<Spanned<XSpec>>,
    #[serde(default)]
    pub(crate) series: Vec<Spanned<SeriesSpec>>,
    #[serde(default)]
    pub(crate) metric: Vec<Spanned<MetricSpec>>,
    #[serde(default)]
    pub(crate) plot: Vec<Spanned<PlotSpec>>,
    #[serde(default)]
    pub(crate) published: Vec<Spanned<PublishedSpec>>,
    #[serde(default)]
    pub(crate) result: Vec<Spanned<ResultSpec>>,
    #[serde(default)]
    pub(crate) contradiction: Vec<ContradictionSpec>,
    #[serde(default)]
    pub(crate) open: Vec<OpenSpec>,
}

/// `[statistics]`: the number of runs of each point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StatisticsSpec {
    pub(crate) seeds: Spanned<u32>,
}

/// `[x]`: the parameter varied along the horizontal axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct XSpec {
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) unit: String,
    pub(crate) values: Vec<Spanned<Value>>,
    #[serde(default)]
    pub(crate) scale: ScaleSpec,
    /// Keys that are set to the value; in a text, `{}` is replaced by it.
    #[serde(default)]
    pub(crate) set: BTreeMap<Spanned<String>, Value>,
    /// Keys that are set to the first, second, ... item of a list at the first, second, ... value.
    #[serde(default)]
    pub(crate) each: BTreeMap<Spanned<String>, Spanned<Vec<Value>>>,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleSpec {
    /// Equal steps.
    #[default]
    Linear,
    /// Powers of ten.
    Log,
    /// Powers of two.
    Log2,
    /// Categories, in their order.
    Names,
}

/// `[[series]]`: one curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesSpec {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) set: BTreeMap<Spanned<String>, Value>,
    /// As in [`XSpec`], for this curve only.
    #[serde(default)]
    pub(crate) each: BTreeMap<Spanned<String>, Spanned<Vec<Value>>>,
    /// Values of x at which this curve has no point.
    #[serde(default)]
    pub(crate) except: Vec<Spanned<Value>>,
}

/// `[[metric]]`: a figure of each run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricSpec {
    pub(crate) name: String,
    /// Title; default the name.
    pub(crate) title: Option<String>,
    pub(crate) unit: Spanned<String>,
    pub(crate) of: Spanned<Terms>,
    pub(crate) over: Option<Spanned<Terms>>,
    /// The part of the run that it covers, from and until two times after its start: a mean over the
    /// samples in between. Default the whole run without its warm-up.
    pub(crate) during: Option<Spanned<(TimeSpan, TimeSpan)>>,
}

/// One term or several, which are added.
#[derive(Clone, Debug)]
pub(crate) struct Terms(Vec<String>);

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Terms, D::Error> {
        one_or_several(deserializer, "a term in quotes").map(Terms)
    }
}

/// `[[plot]]`: a plot of the page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlotSpec {
    pub(crate) title: String,
    pub(crate) metrics: Spanned<Vec<String>>,
    #[serde(default)]
    pub(crate) across: AcrossSpec,
    #[serde(default)]
    pub(crate) scale: ScaleSpec,
    /// Curves of this plot; default all.
    pub(crate) series: Option<Spanned<Vec<String>>>,
    /// A note below.
    #[serde(default)]
    pub(crate) note: String,
}

/// The horizontal axis of a plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcrossSpec {
    /// The varied parameter.
    #[default]
    X,
    /// The metrics, in their order, for example percentiles.
    Metrics,
}

/// `[[published]]`: published points of a curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedSpec {
    pub(crate) metric: Spanned<String>,
    pub(crate) series: Option<Spanned<String>>,
    /// Pairs of a value of x and the published value.
    pub(crate) points: Spanned<Vec<(Value, f64)>>,
}

/// `[[result]]`: a published result, and how to compute it from the runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultSpec {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) published: f64,
    pub(crate) tolerance: f64,
    #[serde(default)]
    pub(crate) kind: KindSpec,
    pub(crate) of: Spanned<SelectorSpec>,
    pub(crate) over: Option<Spanned<SelectorSpec>>,
    /// With two curves: how their point-by-point ratio is reduced to a value.
    pub(crate) take: Option<Spanned<TakeSpec>>,
    /// Whether an unpublished parameter of the workload was chosen near this result.
    #[serde(default)]
    pub(crate) load_chosen: bool,
    /// The structure or the value of the model that was chosen with this result in view, if it is
    /// not among the sources of the profile.
    pub(crate) model_chosen: Option<String>,
    /// The share of the requests in which `of` and `over` differ, for a ratio of rates with one
    /// request outstanding; the result is the ratio of these requests alone.
    pub(crate) affected: Option<Spanned<f64>>,
    /// Whether the published value is an upper bound: lower values are met.
    #[serde(default)]
    pub(crate) at_most: bool,
    /// Whether the published value is a lower bound.
    #[serde(default)]
    pub(crate) at_least: bool,
    /// Why it is not met.
    pub(crate) miss: Option<String>,
}

/// The kind of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindSpec {
    /// A property of the drive.
    #[default]
    Device,
    /// The gain of a system over its baseline.
    System,
    /// An order or a trend.
    Shape,
}

/// A value, or a curve: metric, series and value of x.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SelectorSpec {
    pub(crate) metric: Spanned<String>,
    pub(crate) series: Option<Spanned<String>>,
    pub(crate) at: Option<Spanned<Value>>,
    pub(crate) take: Option<Spanned<TakeSpec>>,
}

/// How a curve is reduced to a value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakeSpec {
    /// Its highest value.
    Max,
    /// Its lowest value.
    Min,
    /// The mean of its values.
    Mean,
    /// The first value of x at which it reaches this share of its highest value.
    Saturates(f64),
}

/// `[[contradiction]]`: published values that contradict each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContradictionSpec {
    /// Ids of results, or places in papers.
    pub between: Vec<String>,
    /// Why they contradict each other.
    pub because: String,
    /// The value that the profile follows.
    pub follows: String,
    /// What the other value would require.
    pub other_needs: String,
}

impl Default for StatisticsSpec {
    fn default() -> StatisticsSpec {
        StatisticsSpec { seeds: zonda_config::unplaced(SEEDS_DEFAULT) }
    }
}

/// The number of seeds, if valid.
pub(crate) fn checked_seeds(seeds: &Spanned<u32>) -> Result<u32, ConfigError> {
    let count = *seeds.get_ref();
    if !(1..=SEEDS_MAX).contains(&count) {
        let error = ConfigError::at(seeds, format!("invalid number of seeds: {count}"));
        return Err(error.help(format!("write a number from 1 to {SEEDS_MAX}")));
    }
    Ok(count)
}

impl Terms {
    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }
}
