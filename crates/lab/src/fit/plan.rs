//! Parses a file of measurements and validates it against a profile.

use toml::{Table, Value};
use zonda_config::{ConfigError, Spanned, did_you_mean_help, parse_with};
use zonda_stack::{ErrorSource, Profiles};

use super::limits::{MEASUREMENTS_MAX, PARAMETERS_MAX};
use super::parameter::Parameter;
use super::place;
use super::spec::{FileSpec, MeasurementSpec};
use crate::expand::RawPoint;
use crate::point::{Point, PointError};
use crate::spec::{MetricSpec, checked_seeds};
use crate::{Measurement, Metric};

/// The profile name of the candidate of a try in the job files of its points.
const CANDIDATE: &str = "candidate.toml";

/// A profile, its parameters to be fitted, and the measurements.
#[derive(Clone, Debug)]
pub struct FitPlan {
    pub(super) profile_text: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) measurements: Vec<Measured>,
    pub(super) loads: Vec<Load>,
    pub(super) seeds: u32,
}

/// A measured value of the real drive, and the metric of the model.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) value: f64,
    /// Relative uncertainty.
    pub(super) tolerance: f64,
    /// Indices of the workload and of its metric.
    pub(super) load: usize,
    pub(super) metric: usize,
    /// Its span in the file, and that of its terms.
    pub(super) index: usize,
    pub(super) of: std::ops::Range<usize>,
}

/// A workload, run once for all of its measurements.
#[derive(Clone, Debug)]
pub(super) struct Load {
    drive_set: Table,
    run: Table,
    job: Vec<Table>,
    pub(super) metrics: Vec<Metric>,
}

/// One workload on one candidate, ready to run. Tasks are independent.
#[derive(Clone, Debug)]
pub struct Task {
    point: Point,
    metrics: Vec<Metric>,
    seeds: u32,
}

impl Task {
    /// Runs it.
    #[must_use]
    pub fn measure(&self) -> Measurement {
        self.point.measure(&self.metrics, self.seeds, None)
    }
}

impl FitPlan {
    /// Parses a file of measurements. `profile_text` must be a valid profile.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn parse(profile_text: &str, text: &str) -> Result<FitPlan, ConfigError> {
        let must_contain = "a file of measurements needs a table [fit] with the parameters, and a [[measurement]] for \
                            each number of the real drive";
        let spec: FileSpec = parse_with(text, must_contain)?;
        let seeds = checked_seeds(&spec.fit.seeds)?;
        let parameters = parameters_of(&spec, profile_text)?;
        let mut plan = FitPlan {
            profile_text: profile_text.to_owned(),
            parameters,
            measurements: Vec::new(),
            loads: Vec::new(),
            seeds,
        };
        check_count(&spec)?;
        for (index, measurement) in spec.measurement.iter().enumerate() {
            if plan.measurements.iter().any(|earlier| earlier.name == *measurement.name.get_ref()) {
                let error = ConfigError::at(&measurement.name, "two measurements have this name");
                return Err(error.help("give each another name"));
            }
            plan.add(index, measurement)?;
        }
        for measured in &plan.measurements {
            let at = plan.loads[measured.load].point(profile_text);
            at.map_err(|error| in_file(text, measured.index, &spec.measurement[measured.index].name, &error))?;
        }
        Ok(plan)
    }

    /// Number of parameters.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters.len()
    }

    /// Minimum number of tries: one of the initial profile, and one for each parameter.
    #[must_use]
    pub fn tries_min(&self) -> u32 {
        self.parameters.len() as u32 + 1
    }

    /// Default maximum number of tries.
    #[must_use]
    pub fn tries_default(&self) -> u32 {
        self.tries_min() * super::limits::TRIES_EACH_DEFAULT
    }

    /// All workloads on the profile with these values; `None` if the profile is invalid, or does
    /// not fit a workload.
    pub(super) fn tasks(&self, numbers: &[f64]) -> Option<Vec<Task>> {
        let text = self.candidate(numbers);
        let task = |load: &Load| {
            let point = load.point(&text).ok()?;
            Some(Task { point, metrics: load.metrics.clone(), seeds: self.seeds })
        };
        self.loads.iter().map(task).collect()
    }

    /// The text of the profile with only these values changed.
    pub(super) fn candidate(&self, numbers: &[f64]) -> String {
        let changes = self.parameters.iter().zip(numbers);
        let changes = changes.map(|(parameter, number)| (parameter.place.clone(), parameter.written(*number)));
        super::written::replaced(&self.profile_text, changes.collect())
    }

    fn add(&mut self, index: usize, spec: &MeasurementSpec) -> Result<(), ConfigError> {
        let (value, tolerance) = (*spec.value.get_ref(), *spec.tolerance.get_ref());
        if !(value.is_finite() && value > 0.0) {
            let error = ConfigError::at(&spec.value, "a measured value must be above zero");
            return Err(error.help("residuals are relative: remove measurements that are zero"));
        }
        if !(tolerance > 0.0 && tolerance <= 1.0) {
            let error = ConfigError::at(&spec.tolerance, "not a relative uncertainty");
            return Err(error.help("write a share above 0 and at most 1, like 0.02 for 2%"));
        }
        let metric = Metric::new(&MetricSpec {
            name: spec.name.get_ref().clone(),
            title: None,
            unit: spec.unit.clone(),
            of: spec.of.clone(),
            over: spec.over.clone(),
            during: None,
        })?;
        let mut jobs = Vec::with_capacity(spec.job.len());
        for job in &spec.job {
            let Some(name) = job.get("name").and_then(Value::as_str) else {
                let error = ConfigError::at(&spec.name, "a job of this measurement has no name");
                return Err(error.help("add for example name = \"reader\": \"of\" refers to jobs by name"));
            };
            jobs.push(name);
        }
        if let Some(unknown) = metric.jobs().find(|job| !jobs.contains(job)) {
            let error = ConfigError::at(&spec.of, format!("unknown job \"{unknown}\" in this measurement"));
            return Err(error.help(did_you_mean_help(unknown, &jobs)));
        }
        let is_same = |load: &Load| load.run == spec.run && load.job == spec.job && load.drive_set == spec.drive_set;
        let load = self.loads.iter().position(is_same).unwrap_or_else(|| {
            let (drive_set, run, job) = (spec.drive_set.clone(), spec.run.clone(), spec.job.clone());
            self.loads.push(Load { drive_set, run, job, metrics: Vec::new() });
            self.loads.len() - 1
        });
        let metrics = &mut self.loads[load].metrics;
        metrics.push(metric);
        self.measurements.push(Measured {
            name: spec.name.get_ref().clone(),
            unit: spec.unit.get_ref().clone(),
            value,
            tolerance,
            load,
            metric: metrics.len() - 1,
            index,
            of: spec.of.span(),
        });
        Ok(())
    }
}

impl Load {
    /// This workload on the drive of `profile_text`.
    fn point(&self, profile_text: &str) -> Result<Point, PointError> {
        let mut drive = Table::new();
        drive.insert("profile".to_owned(), Value::String(CANDIDATE.to_owned()));
        drive.insert("set".to_owned(), Value::Table(self.drive_set.clone()));
        let mut table = Table::new();
        table.insert("drive".to_owned(), Value::Table(drive));
        table.insert("run".to_owned(), Value::Table(self.run.clone()));
        table.insert("job".to_owned(), Value::Array(self.job.iter().cloned().map(Value::Table).collect()));
        let read_file = |_: &str| Ok(profile_text.to_owned());
        Point::new(&RawPoint { series: 0, x: 0, table }, &Profiles::new(&[], &read_file))
    }
}

fn parameters_of(spec: &FileSpec, profile_text: &str) -> Result<Vec<Parameter>, ConfigError> {
    let specs = &spec.fit.parameters;
    let count = specs.get_ref().len();
    if !(1..=PARAMETERS_MAX).contains(&count) {
        let error = ConfigError::at(specs, format!("invalid number of parameters: {count}"));
        return Err(error.help(format!("name 1 to {PARAMETERS_MAX} numbers of the profile")));
    }
    let leaves = place::leaves(profile_text);
    let mut parameters: Vec<Parameter> = Vec::with_capacity(count);
    for spec in specs.get_ref() {
        let parameter = Parameter::new(spec, profile_text, &leaves)?;
        if parameters.iter().any(|earlier| earlier.key == parameter.key) {
            let error = ConfigError::at(&spec.key, format!("duplicate parameter \"{}\"", parameter.key));
            return Err(error.help("remove one of the two"));
        }
        parameters.push(parameter);
    }
    Ok(parameters)
}

fn check_count(spec: &FileSpec) -> Result<(), ConfigError> {
    let (measurements, parameters) = (spec.measurement.len(), spec.fit.parameters.get_ref().len());
    if measurements > MEASUREMENTS_MAX {
        let error = ConfigError::new(format!("too many measurements: {measurements}"));
        return Err(error.help(format!("at most {MEASUREMENTS_MAX} are allowed")));
    }
    if measurements < parameters {
        let message = format!("fewer measurements ({measurements}) than parameters ({parameters})");
        let error = ConfigError::at(&spec.fit.parameters, message);
        return Err(error.help("add at least one [[measurement]] for each parameter, or name fewer parameters"));
    }
    Ok(())
}

/// An error in the job file of a workload, at its position in the file of measurements, or at the
/// name of the measurement if it has none there.
fn in_file(text: &str, index: usize, name: &Spanned<String>, error: &PointError) -> ConfigError {
    let mistake = &error.error.error;
    let place = match (&error.error.source, &mistake.span) {
        (ErrorSource::JobFile, Some(span)) => place::path_at(&error.text, span).and_then(|(path, is_name)| {
            let mut there = vec!["measurement".to_owned(), index.to_string()];
            match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["drive", "set", ..] => {
                    there.push("drive_set".to_owned());
                    there.extend_from_slice(&path[2..]);
                }
                _ => there.extend_from_slice(&path),
            }
            let place = place::find(text, &there)?;
            Some(if is_name { place.name } else { place.value })
        }),
        _ => None,
    };
    match place {
        Some(span) => ConfigError { span: None, ..mistake.clone() }.within(span),
        None => {
            let message = format!("the workload of \"{}\": {}", name.get_ref(), mistake.message);
            ConfigError { message, span: None, help: mistake.help.clone() }.within(name.span())
        }
    }
}
