//! A point of an experiment: a drive and a workload, run to a steady state with several seeds.

use serde::{Deserialize, Serialize};
use zonda_config::TimeSpan;
use zonda_stack::{Experiment, ExperimentResult, Profiles, StackError};
use zonda_workload::JobResult;

use crate::expand::RawPoint;
use crate::host::{Clock, HostTimes};
use crate::limits::{FIRST_SEED_DEFAULT, PILOT_SAMPLES, STRETCH_MAX};
use crate::steady::{WarmUp, warm_up};
use crate::{Estimate, Metric};

/// A validated point.
#[derive(Clone, Debug)]
pub struct Point {
    /// Index of the curve.
    pub series: usize,
    /// Index of the value of x.
    pub x: usize,
    text: String,
    experiment: Experiment,
    first_seed: u64,
}

/// The measurements of the runs of a point.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measurement {
    /// For each metric, the values for each seed, or `None` if a run had no value.
    pub values: Vec<Option<Vec<f64>>>,
    /// Detected length of the warm-up; zero for runs that end by themselves, which are measured
    /// completely.
    pub warm_up_ns: u64,
    /// Length of each run including the warm-up; zero for runs that end by themselves.
    pub time_ns: u64,
    /// Whether a steady state was detected, or the run ends by itself.
    pub is_steady: bool,
    /// Commands that failed, in all runs.
    pub errors: u64,
    /// The first job that failed in a run, with its errors.
    pub failure: Option<String>,
}

impl Point {
    /// # Errors
    /// An error in the job file of this point. Its position is in [`Point::text`].
    pub(crate) fn new(raw: &RawPoint, profiles: &Profiles<'_>) -> Result<Point, PointError> {
        let text = toml::to_string(&raw.table).expect("a parsed table can be serialized");
        let seed = raw.table.get("run").and_then(|run| run.get("seed")).and_then(toml::Value::as_integer);
        let first_seed = seed.map_or(FIRST_SEED_DEFAULT, i64::cast_unsigned);
        match Experiment::parse(&text, profiles) {
            Ok(experiment) => Ok(Point { series: raw.series, x: raw.x, text, experiment, first_seed }),
            Err(error) => Err(PointError { error: Box::new(error), text }),
        }
    }

    /// The job file of this point, which `zonda bench` can run.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The drive and the workload.
    #[must_use]
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The first seed: `seed` of `[run]`. The others follow it.
    #[must_use]
    pub fn first_seed(&self) -> u64 {
        self.first_seed
    }

    /// Runs it with `seeds` seeds from [`Point::first_seed`] on. The first run, which is not counted, determines the
    /// length of the warm-up; if it was too short, it is repeated with twice the length.
    ///
    /// Without a clock, figures of the host have no values.
    #[must_use]
    pub fn measure(&self, metrics: &[Metric], seeds: u32, clock: Option<Clock<'_>>) -> Measurement {
        let seeds = (self.first_seed, seeds);
        let measured = |experiment, times| measured(metrics, seeds, experiment, times, clock);
        let Some(TimeSpan(time_ns)) = self.experiment.time() else {
            return measured(self.experiment.clone(), (0, 0, true));
        };
        let mut stretched_ns = time_ns;
        let mut warm = WarmUp::NotSeen;
        let mut factor = 1;
        while factor <= STRETCH_MAX {
            stretched_ns = time_ns * factor;
            let pilot = self.with_times(stretched_ns, 0, stretched_ns / PILOT_SAMPLES).with_seed(self.first_seed);
            warm = warm_up(&pilot.run(&mut |_| {}).run);
            if warm != WarmUp::NotSeen {
                break;
            }
            factor *= 2;
        }
        let (ramp_ns, is_steady) = match warm {
            WarmUp::Ended { after_ns } => (after_ns, true),
            WarmUp::NotSeen => (stretched_ns / 2, false),
        };
        let experiment = self.with_times(stretched_ns, ramp_ns, stretched_ns);
        measured(experiment, (ramp_ns, stretched_ns, is_steady))
    }

    /// The same experiment with another length.
    fn with_times(&self, time_ns: u64, ramp_ns: u64, sample_ns: u64) -> Experiment {
        self.experiment.clone().with_times(TimeSpan(time_ns), TimeSpan(ramp_ns), TimeSpan(sample_ns.max(1)))
    }
}

/// Measures an experiment with each seed, from the first seed and their number.
fn measured(
    metrics: &[Metric],
    (first_seed, seeds): (u64, u32),
    experiment: Experiment,
    (warm_up_ns, time_ns, is_steady): (u64, u64, bool),
    clock: Option<Clock<'_>>,
) -> Measurement {
    let mut values: Vec<Option<Vec<f64>>> = vec![Some(Vec::with_capacity(seeds as usize)); metrics.len()];
    let (mut errors, mut failure) = (0, None);
    let mut experiment = experiment;
    for seed in (0..u64::from(seeds)).map(|place| first_seed.wrapping_add(place)) {
        experiment = experiment.with_seed(seed);
        let result: ExperimentResult = experiment.run(&mut |_| {});
        let figures = metrics.iter().flat_map(Metric::host_figures);
        let (profile, group) = (experiment.drive().profile(), experiment.group_stripes());
        let host = clock.map(|clock| HostTimes::measure(figures, profile, group, seed, clock));
        let host = host.unwrap_or_default();
        errors += result.run.jobs.iter().map(JobResult::error_count).sum::<u64>();
        failure = failure.or_else(|| result.run.jobs.iter().find(|job| job.has_failed()).map(in_words));
        let store = result.store.as_ref().filter(|store| store.has_failed());
        failure = failure.or_else(|| store.map(|store| format!("store: {}", store.ended_by)));
        for (metric, values) in metrics.iter().zip(&mut values) {
            match metric.value(&result, &host) {
                Some(value) => values.iter_mut().for_each(|values| values.push(value)),
                None => *values = None,
            }
        }
    }
    Measurement { values, warm_up_ns, time_ns, is_steady, errors, failure }
}

/// Why a job failed.
fn in_words(job: &JobResult) -> String {
    let failed = job.errors.iter().map(|error| format!("{} {} failed with: {}", error.count, error.kind, error.status));
    format!("job {}: {}", job.name, failed.collect::<Vec<_>>().join("; "))
}

impl Measurement {
    /// A metric over the seeds.
    #[must_use]
    pub fn estimate(&self, metric: usize) -> Option<Estimate> {
        Estimate::of(self.values.get(metric)?.as_ref()?)
    }
}

/// Why a point cannot be run.
#[derive(Clone, Debug)]
pub struct PointError {
    /// The error, with a position in [`PointError::text`].
    pub error: Box<StackError>,
    /// The job file of the point: the experiment with the values of x and of the curve filled in.
    pub text: String,
}
