//! A whole file: a drive and what is done to it.

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned, TimeSpan, parse_with, unplaced};
use zonda_workload::{JobSpec, Plan, Progress, RunSpec, Runner};
use zonda_zoned::{Duration, Instant, NamespaceId, Prng, ZoneType};

use crate::drive_series::DriveSeries;
use crate::{Drive, DriveSpec, DriveSummary, ExperimentResult, StackError};

/// Version of the layout of [`ExperimentResult`].
const RESULT_FORMAT: u32 = 1;

/// A drive and a load that fit each other: everything that can be wrong has been looked for.
#[derive(Clone, Debug)]
pub struct Experiment {
    drive: Drive,
    run: RunSpec,
    jobs: Vec<Spanned<JobSpec>>,
    plan: Plan,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    drive: Option<DriveSpec>,
    #[serde(default)]
    run: RunSpec,
    #[serde(default)]
    job: Vec<Spanned<JobSpec>>,
}

impl Experiment {
    /// Reads a file. A profile that the file names by a path is read through `read_file`, which returns the profile's
    /// text, or says in a few words why it cannot.
    ///
    /// # Errors
    /// The first mistake: in the text, in a profile, in what the jobs ask of the drive.
    pub fn parse(text: &str, read_file: &dyn Fn(&str) -> Result<String, String>) -> Result<Experiment, StackError> {
        let must_contain = "an experiment is a table [drive] with a line like profile = \"zn540\", and at least one table \
                            [[job]] with a line like operation = \"append\"";
        let file: File = parse_with(text, must_contain)?;
        let Some(drive) = file.drive else {
            let error = ConfigError::new("there is no table [drive]");
            let help = "add [drive] with a line like profile = \"zn540\"; on a drive that is there, without simulation, \
                        zonda bench --target runs the jobs of this file";
            return Err(error.help(help).into());
        };
        let drive = drive.check(read_file)?;
        let plan = Plan::new(&file.run, &file.job, drive.geometry())?;
        plan.check_payload(drive.keeps())?;
        let experiment = Experiment { drive, run: file.run, jobs: file.job, plan };
        experiment.prefill_fits()?;
        Ok(experiment)
    }

    /// The same experiment with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Experiment {
        self.run.seed = seed;
        self.plan = Plan::new(&self.run, &self.jobs, self.drive.geometry()).expect("only the seed is another");
        self
    }

    /// The same experiment of another length: `time`, `ramp` and `sample` of `[run]`.
    ///
    /// # Panics
    /// When the ramp is not shorter than the time, or the series would have more samples than there can be.
    #[must_use]
    pub fn with_times(mut self, time: TimeSpan, ramp: TimeSpan, sample: TimeSpan) -> Experiment {
        self.run.time = Some(unplaced(time));
        self.run.ramp = Some(unplaced(ramp));
        self.run.sample = Some(unplaced(sample));
        self.plan = Plan::new(&self.run, &self.jobs, self.drive.geometry()).expect("only times are others");
        self
    }

    /// When the run ends; `None` if its jobs end by themselves.
    #[must_use]
    pub fn time(&self) -> Option<TimeSpan> {
        self.run.time.as_ref().map(|time| *time.get_ref())
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// The load.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries it out, in virtual time from zero. The end of each sample interval is told to `progress`.
    #[must_use]
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> ExperimentResult {
        let prng = Prng::new(self.run.seed);
        let prefill = self.plan.prefill();
        let drive = self.drive.power_on(&prng, &prefill);
        let mut drive = drive.expect("the zones to be partly written were counted when the file was read");
        let runner = Runner::new(self.plan.clone(), self.drive.keeps(), NamespaceId::FIRST);
        let mut drive_series = DriveSeries::new();
        if !self.drive.has_layers() {
            // The type of the drive is known here, so that its calls are compiled into the loop.
            let run = runner.run_observed(&mut drive, Instant::ZERO, &mut |told, drive| {
                drive_series.observe(told.elapsed, drive);
                progress(told);
            });
            return ExperimentResult {
                format: RESULT_FORMAT,
                drive_series: drive_series.end(Duration(run.drained_ns), &drive),
                run,
                drive: DriveSummary::of(&drive),
                layers: Vec::new(),
            };
        }
        let mut stack = self.drive.stack(drive, &prng);
        let run = runner.run_observed(&mut stack, Instant::ZERO, &mut |told, stack| {
            drive_series.observe(told.elapsed, stack.drive());
            progress(told);
        });
        ExperimentResult {
            format: RESULT_FORMAT,
            drive_series: drive_series.end(Duration(run.drained_ns), stack.drive()),
            run,
            drive: DriveSummary::of(stack.drive()),
            layers: stack.layer_results(),
        }
    }

    /// The jobs are checked one by one; all of them together must not leave too many zones partly written either.
    fn prefill_fits(&self) -> Result<(), ConfigError> {
        let geometry = self.drive.geometry();
        let Some(max) = geometry.max_active_zones else { return Ok(()) };
        let prefill = self.plan.prefill();
        let partly = prefill.iter().filter(|(zone, blocks)| {
            geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired && *blocks < geometry.zone_capacity_blocks
        });
        let active = partly.count();
        if active <= max as usize {
            return Ok(());
        }
        let message = format!(
            "the jobs together ask for {active} zones that are partly written before the run, and the drive allows {max} \
             active zones"
        );
        Err(ConfigError::new(message).help("write prefill = true or false in some of the jobs, or use fewer zones"))
    }
}
