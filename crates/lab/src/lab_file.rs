//! Parses and validates the file of an experiment.

use std::collections::BTreeSet;

use zonda_config::{ConfigError, Spanned, did_you_mean_help, parse_with};
use zonda_stack::Profiles;

use crate::expand::{RawPoint, expand, notation};
use crate::limits::{FIRST_SEED_DEFAULT, METRICS_MAX, POINTS_MAX};
use crate::open::{OpenLoad, Variation};
use crate::plan::{PlotPlan, PublishedCurve, ResultPlan};
use crate::point::{Point, PointError};
use crate::spec::{ContradictionSpec, FileSpec, ScaleSpec, checked_seeds};
use crate::{Metric, Paper, papers};

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct LabExperiment {
    /// Unique ID.
    pub id: String,
    /// Title, in a line.
    pub title: String,
    /// The key of the paper that it reproduces results of.
    pub paper: Option<String>,
    /// Place in the paper.
    pub place: Option<String>,
    /// Description of the experiment and its results.
    pub about: String,
    /// Text of the file.
    pub text: String,
    /// Number of runs of each point.
    pub seeds: u32,
    /// The varied parameter.
    pub x: Option<XAxis>,
    /// The names of its curves; an empty name if there is only one.
    pub series: Vec<String>,
    /// The metrics measured.
    pub metrics: Vec<Metric>,
    /// The plots.
    pub plots: Vec<PlotPlan>,
    /// Published points of its curves.
    pub published: Vec<PublishedCurve>,
    /// The results that are compared with published values.
    pub results: Vec<ResultPlan>,
    /// Published values that contradict each other.
    pub contradictions: Vec<ContradictionSpec>,
    /// Loads that the paper leaves open.
    pub open: Vec<OpenLoad>,
    /// The points, curve by curve, each at all values of x.
    pub points: Vec<Point>,
}

/// The varied parameter: the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct XAxis {
    /// In words.
    pub title: String,
    /// Unit; empty for plain numbers and names.
    pub unit: String,
    /// Scale of the axis.
    pub scale: ScaleSpec,
    /// The values in their notation.
    pub labels: Vec<String>,
    /// The values as numbers; on an axis of names, their index.
    pub values: Vec<f64>,
}

/// An error in the file of an experiment.
#[derive(Clone, Debug)]
pub enum LabError {
    /// An error in the file itself.
    File(ConfigError),
    /// The drive or the workload of one of its points is invalid.
    Point {
        /// The point, in words.
        point: String,
        /// Why.
        error: PointError,
    },
}

impl From<ConfigError> for LabError {
    fn from(error: ConfigError) -> LabError {
        LabError::File(error)
    }
}

impl LabExperiment {
    /// Parses the file of an experiment. The profiles that it names are loaded from `profiles`.
    ///
    /// # Errors
    /// The first error.
    pub fn parse(id: &str, text: &str, profiles: &Profiles<'_>) -> Result<LabExperiment, LabError> {
        Ok(LabExperiment::parse_varied(id, text, profiles, None)?.expect("without a variation there are all points"))
    }

    /// The experiment with another value of an open load; `None` if no point has one, because there
    /// is no smaller one.
    ///
    /// # Errors
    /// If a point is invalid with this value.
    pub fn varied(&self, variation: &Variation, profiles: &Profiles<'_>) -> Result<Option<LabExperiment>, LabError> {
        LabExperiment::parse_varied(&self.id, &self.text, profiles, Some(variation))
    }

    fn parse_varied(
        id: &str,
        text: &str,
        profiles: &Profiles<'_>,
        variation: Option<&Variation>,
    ) -> Result<Option<LabExperiment>, LabError> {
        let must_contain = "an experiment needs a title, the tables [drive] and [[job]] of a job file, and at least one [[metric]], and \
                            can vary parameters in [x] and [[series]]";
        let spec: FileSpec = parse_with(text, must_contain)?;
        let paper = spec.paper.as_ref().map(known_paper).transpose()?;
        let seeds = checked_seeds(&spec.statistics.seeds)?;
        let x = spec.x.as_ref().map(|x| XAxis::new(x.get_ref())).transpose()?;
        let metrics = metrics_of(&spec)?;
        let mut series: Vec<String> = spec.series.iter().map(|series| series.get_ref().name.clone()).collect();
        if let Some((_, twice)) =
            spec.series.iter().enumerate().find(|(index, one)| series[..*index].contains(&one.get_ref().name))
        {
            return Err(ConfigError::at(twice, "two series have this name").help("give each another name").into());
        }
        if series.is_empty() {
            series.push(String::new());
        }
        let parts = crate::plan::Parts { x: x.as_ref(), series: &series, metrics: &metrics };
        let plots = spec.plot.iter().map(|plot| PlotPlan::new(plot.get_ref(), parts)).collect::<Result<_, _>>()?;
        let published =
            spec.published.iter().map(|curve| PublishedCurve::new(curve, parts)).collect::<Result<_, _>>()?;
        let results = spec.result.iter().map(|result| ResultPlan::new(result, parts)).collect::<Result<_, _>>()?;
        let mut raw = expand(&spec)?;
        let tables: Vec<&toml::Table> = raw.iter().map(|raw| &raw.table).collect();
        let open = spec.open.iter().map(|open| OpenLoad::new(open, &spec, &tables)).collect::<Result<_, _>>()?;
        if let Some(variation) = variation {
            let mut has_changed = false;
            for point in &mut raw {
                has_changed |= variation.apply(&mut point.table)?;
            }
            if !has_changed {
                return Ok(None);
            }
        }
        let points = points_of(&raw, x.as_ref(), &series, profiles)?;
        check_parts(&spec, &points)?;
        Ok(Some(LabExperiment {
            id: id.to_owned(),
            title: spec.title,
            paper,
            place: spec.place,
            about: spec.about,
            text: text.to_owned(),
            seeds,
            x,
            series,
            metrics,
            plots,
            published,
            results,
            contradictions: spec.contradiction,
            open,
            points,
        }))
    }

    /// The same experiment with only the points that some of its results need, by their indices.
    #[must_use]
    pub fn for_results(mut self, results: &[usize]) -> LabExperiment {
        let plans: Vec<&ResultPlan> = results.iter().map(|result| &self.results[*result]).collect();
        self.points.retain(|point| plans.iter().any(|plan| plan.needs(point.series, point.x)));
        self
    }

    /// The first seed of its points.
    #[must_use]
    pub fn first_seed(&self) -> u64 {
        self.points.first().map_or(FIRST_SEED_DEFAULT, Point::first_seed)
    }

    /// Whether a result is a time of the machine that runs the model.
    #[must_use]
    pub fn is_of_host(&self, result: &ResultPlan) -> bool {
        result.metrics().any(|metric| self.metrics[metric].host_figures().next().is_some())
    }

    /// The paper or set that it belongs to: it names it, and its id begins with the key, so that a
    /// modified copy under another name does not count.
    #[must_use]
    pub fn paper_of(&self) -> Option<&'static Paper> {
        let is_named_for = |key: &str| self.id.strip_prefix(key).is_some_and(|rest| rest.starts_with('-'));
        papers::PAPERS.iter().find(|paper| self.paper.as_deref() == Some(paper.key) && is_named_for(paper.key))
    }

    /// The names of the profiles of its drives.
    #[must_use]
    pub fn profiles(&self) -> BTreeSet<&str> {
        self.points.iter().map(|point| point.experiment().drive().profile().name.as_str()).collect()
    }
}

impl XAxis {
    fn new(spec: &crate::spec::XSpec) -> Result<XAxis, ConfigError> {
        let mut values = Vec::with_capacity(spec.values.len());
        for (place, value) in spec.values.iter().enumerate() {
            let number = match value.get_ref() {
                _ if spec.scale == ScaleSpec::Names => Some(place as f64),
                toml::Value::Integer(number) => Some(*number as f64),
                toml::Value::Float(number) => Some(*number),
                _ => None,
            };
            let fits = |number: &f64| number.is_finite() && (spec.scale == ScaleSpec::Linear || *number >= 0.0);
            let Some(number) = number.filter(fits) else {
                let error = ConfigError::at(value, "not a number for this axis");
                return Err(error.help("write numbers; names need scale = \"names\""));
            };
            values.push(number);
        }
        if let Some(twice) = (1..values.len()).find(|place| values[..*place].contains(&values[*place])) {
            let error = ConfigError::at(&spec.values[twice], "duplicate value of x");
            return Err(error.help("list it once: each configuration is run with several seeds anyway"));
        }
        if values.is_empty() {
            return Err(ConfigError::new("[x] has no values").help("write for example values = [1, 2, 4]"));
        }
        let labels = spec.values.iter().map(|value| notation(value.get_ref())).collect();
        Ok(XAxis { title: spec.title.clone(), unit: spec.unit.clone(), scale: spec.scale, labels, values })
    }
}

fn known_paper(key: &Spanned<String>) -> Result<String, ConfigError> {
    match papers::PAPERS.iter().find(|paper| paper.key == key.get_ref()) {
        Some(paper) => Ok(paper.key.to_owned()),
        None => {
            let keys: Vec<&str> = papers::PAPERS.iter().map(|paper| paper.key).collect();
            let error = ConfigError::at(key, format!("unknown paper \"{}\"", key.get_ref()));
            Err(error.help(did_you_mean_help(key.get_ref(), &keys)))
        }
    }
}

fn metrics_of(spec: &FileSpec) -> Result<Vec<Metric>, ConfigError> {
    if spec.metric.is_empty() {
        let error = ConfigError::new("missing table [[metric]]");
        return Err(error.help("add one, like name = \"bandwidth\", unit = \"MiB/s\", of = \"readers.read.bandwidth\""));
    }
    if spec.metric.len() > METRICS_MAX {
        return Err(ConfigError::new(format!("more than {METRICS_MAX} metrics")));
    }
    let jobs: Vec<&str> = spec.job.iter().filter_map(|job| job.get("name").and_then(toml::Value::as_str)).collect();
    let mut metrics: Vec<Metric> = Vec::with_capacity(spec.metric.len());
    for metric_spec in &spec.metric {
        let metric = Metric::new(metric_spec.get_ref())?;
        if let Some(unknown) = metric.jobs().find(|job| !jobs.contains(job)) {
            let error = ConfigError::at(&metric_spec.get_ref().of, format!("unknown job \"{unknown}\""));
            return Err(error.help(did_you_mean_help(unknown, &jobs)));
        }
        if metrics.iter().any(|earlier| earlier.name == metric.name) {
            return Err(ConfigError::at(metric_spec, format!("two metrics are named \"{}\"", metric.name)));
        }
        metrics.push(metric);
    }
    Ok(metrics)
}

/// A run with a time limit has no samples: its length follows from the warm-up.
fn check_parts(spec: &FileSpec, points: &[Point]) -> Result<(), ConfigError> {
    let part = spec.metric.iter().find_map(|metric| metric.get_ref().during.as_ref());
    match part {
        Some(place) if points.iter().any(|point| point.experiment().time().is_some()) => {
            let error = ConfigError::at(place, "\"during\" needs runs that end by themselves");
            Err(error.help("remove \"time\" from [run], and give it to the jobs"))
        }
        _ => Ok(()),
    }
}

fn points_of(
    raw: &[RawPoint],
    x: Option<&XAxis>,
    series: &[String],
    profiles: &Profiles<'_>,
) -> Result<Vec<Point>, LabError> {
    if raw.len() > POINTS_MAX {
        let error = ConfigError::new(format!("too many configurations: {}", raw.len()));
        return Err(error.help(format!("at most {POINTS_MAX} are allowed")).into());
    }
    raw.iter()
        .map(|raw| {
            let name = point_name(x, series, raw.series, raw.x);
            Point::new(raw, profiles).map_err(|error| LabError::Point { point: name, error })
        })
        .collect()
}

/// A point in words.
pub(crate) fn point_name(x: Option<&XAxis>, series: &[String], of_series: usize, at: usize) -> String {
    let mut parts = Vec::new();
    if !series[of_series].is_empty() {
        parts.push(series[of_series].clone());
    }
    if let Some(x) = x {
        let unit = if x.unit.is_empty() { String::new() } else { format!(" {}", x.unit) };
        parts.push(format!("{} {}{unit}", x.title, x.labels[at]));
    }
    if parts.is_empty() { "its only configuration".to_owned() } else { parts.join(", ") }
}
