//! An experiment: a drive and its workload.

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned, TimeSpan, parse_with, unplaced};
use zonda_raid::VolumeDevice;
use zonda_ssd::Ssd;
use zonda_ssd::description::Profiles;
use zonda_workload::lsm::{StorePlan, StoreResult, StoreRunner, StoreSpec};
use zonda_workload::{JobSpec, Plan, Progress, RunResult, RunSpec, Runner, prepare};
use zonda_zoned::{Duration, Geometry, Instant, NamespaceId, Prng, ZoneType, ZonedDevice};

use crate::drive::DriveNode;
use crate::drive_series::DriveSample;
use crate::elastic::{ElasticSample, ElasticSpec, ElasticSummary, Joined, PoolPlan, VirtualClock};
use crate::hints::hinted;
use crate::prepare::{Preparation, finish_rebuild, power_on_drive, power_on_volume};
use crate::series::Series;
use crate::volume::VolumeSpec;
use crate::{Drive, DriveSpec, DriveSummary, ExperimentResult, LayerResult, Node, Stack, StackError, VolumeSummary};

/// Version of the layout of [`ExperimentResult`].
const RESULT_FORMAT: u32 = 1;
/// Default sample interval of a store.
const STORE_SAMPLE: Duration = Duration(100_000_000);

/// A validated drive and workload.
#[derive(Clone, Debug)]
pub struct Experiment {
    drive: Drive,
    /// The device that the workload uses: this drive, or a volume of such drives.
    device: DriveNode,
    /// The geometry of the device.
    geometry: Geometry,
    /// What happens to the volume before the run.
    preparation: Option<Box<Preparation>>,
    /// The pool on the drive, whose namespaces the jobs use.
    pool: Option<Box<PoolPlan>>,
    run: RunSpec,
    load: Load,
}

/// The workload.
#[derive(Clone, Debug)]
enum Load {
    Jobs {
        jobs: Vec<Spanned<JobSpec>>,
        plan: Box<Plan>,
    },
    Store(Box<StorePlan>),
    /// No host I/O: only a rebuild of a volume.
    Rebuild,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    drive: Option<DriveSpec>,
    volume: Option<Spanned<VolumeSpec>>,
    elastic: Option<Spanned<ElasticSpec>>,
    #[serde(default)]
    run: RunSpec,
    #[serde(default)]
    job: Vec<Spanned<JobSpec>>,
    store: Option<Spanned<StoreSpec>>,
}

impl Experiment {
    /// Parses a file. The profile that it names is loaded from `profiles`.
    ///
    /// # Errors
    /// The first error in the text, in a profile, or in a job that the drive cannot execute.
    pub fn parse(text: &str, profiles: &Profiles<'_>) -> Result<Experiment, StackError> {
        let must_contain = "a job file needs a table [drive] with a line like profile = \"zn540\", and at least one table \
                            [[job]] with a line like operation = \"append\", or a table [store] with a line like \
                            workload = \"kvbench-ii\"";
        let mut file: File = parse_with(text, must_contain).map_err(hinted)?;
        let Some(drive) = file.drive.take() else {
            let error = ConfigError::new("missing table [drive]");
            let help = "add [drive] with a line like profile = \"zn540\"; to run the jobs of this file on an existing drive, \
                        use zonda bench --target";
            return Err(error.help(help).into());
        };
        let drive = Drive::new(&drive, profiles)?;
        let (device, geometry, mut preparation) = match &file.volume {
            None => (drive.node.clone(), drive.geometry().clone(), None),
            Some(volume) => {
                let checked = VolumeSpec::check(volume, &drive)?;
                (checked.node, checked.geometry, Some(Box::new(checked.preparation)))
            }
        };
        let mut pool = match &file.elastic {
            None => None,
            Some(elastic) => Some(Box::new(pool_plan(elastic, &file, &drive)?)),
        };
        let load = match (&file.store, &mut preparation) {
            (Some(store), None) => Load::Store(Box::new(store_plan(store, &file, &drive, pool.as_deref_mut())?)),
            (Some(store), Some(_)) => {
                let error = ConfigError::at(store, "[store] needs zones, which a volume does not have");
                return Err(error.help("remove [volume] or [store]").into());
            }
            (None, Some(preparation)) if preparation.rebuilds && file.job.is_empty() => Load::Rebuild,
            (None, preparation) => {
                let plan = plan_of(&file.run, &file.job, &geometry, pool.as_deref())?;
                plan.check_payload(drive.keeps())?;
                match preparation {
                    None if pool.is_some() => {}
                    None => prefill_fits(&plan, &drive)?,
                    // Blocks that jobs read are written before the run.
                    Some(preparation) => {
                        let prefill = plan.prefill();
                        let end = prefill.iter().map(|(zone, blocks)| geometry.zone_start(*zone).0 + blocks.0).max();
                        preparation.fill_blocks = preparation.fill_blocks.max(end.unwrap_or(0));
                    }
                }
                Load::Jobs { jobs: file.job, plan: Box::new(plan) }
            }
        };
        Ok(Experiment { drive, device, geometry, preparation, pool, run: file.run, load })
    }

    /// The same experiment with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Experiment {
        self.run.seed = seed;
        self.replan("only the seed has changed");
        self
    }

    /// The same experiment of another length: `time`, `ramp` and `sample` of `[run]`.
    ///
    /// # Panics
    /// If the ramp is not shorter than the time, or the series would exceed its maximum number of
    /// samples.
    #[must_use]
    pub fn with_times(mut self, time: TimeSpan, ramp: TimeSpan, sample: TimeSpan) -> Experiment {
        self.run.time = Some(unplaced(time));
        self.run.ramp = Some(unplaced(ramp));
        self.run.sample = Some(unplaced(sample));
        self.replan("only times have changed");
        self
    }

    fn replan(&mut self, why: &str) {
        if let Load::Jobs { jobs, plan } = &mut self.load {
            **plan = plan_of(&self.run, jobs, &self.geometry, self.pool.as_deref()).expect(why);
        }
    }

    /// The time limit of the run; `None` if its jobs end by themselves.
    #[must_use]
    pub fn time(&self) -> Option<TimeSpan> {
        self.run.time.as_ref().map(|time| *time.get_ref())
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// The jobs; `None` for a store or a rebuild alone.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match &self.load {
            Load::Jobs { plan, .. } => Some(plan),
            Load::Store(_) | Load::Rebuild => None,
        }
    }

    /// Stripes per group in segments for small requests of the volume, if there is a volume.
    #[must_use]
    pub fn group_stripes(&self) -> Option<u32> {
        match self.device.base() {
            Node::Volume(volume) => Some(volume.config.small.group_stripes),
            _ => None,
        }
    }

    /// Runs the experiment, in virtual time from zero. Calls `progress` at the end of each sample
    /// interval.
    #[must_use]
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> ExperimentResult {
        let prng = Prng::new(self.run.seed);
        if let Some(preparation) = &self.preparation {
            return self.run_on_volume(preparation, &prng, progress);
        }
        if let Some(pool) = &self.pool {
            return self.run_on_pool(pool, &prng, progress);
        }
        let prefill = self.plan().map(Plan::prefill).unwrap_or_default();
        let mut series = Series::new();
        if self.device.layers().next().is_none() {
            // The static type of the drive allows inlining into the loop.
            let drive = self.drive.power_on(&prng, &prefill);
            let drive = drive.expect("the number of partly written zones was checked when the file was parsed");
            let (run, store, drive) =
                self.run_on(drive, Instant::ZERO, &mut observer(&mut series, |drive| drive), progress);
            return self.result(run, store, series, &drive, Vec::new(), None);
        }
        let stack = power_on_drive(&self.device, &prefill, &prng);
        let (run, store, stack) = self.run_on(stack, Instant::ZERO, &mut observer(&mut series, Stack::drive), progress);
        self.result(run, store, series, stack.drive(), stack.layer_results(), None)
    }

    fn run_on_volume(
        &self,
        preparation: &Preparation,
        prng: &Prng,
        progress: &mut dyn FnMut(Progress),
    ) -> ExperimentResult {
        fn volume_of(stack: &mut Stack<Ssd>) -> &mut VolumeDevice<Stack<Ssd>> {
            stack.volume_mut().expect("below the layers is the volume")
        }
        let (mut device, start) = power_on_volume(&self.device, preparation, prng);
        let before = volume_of(&mut device).volume().counters();
        let mut series = Series::new();
        let (mut run, store, mut device) = match self.load {
            Load::Rebuild => (RunResult::without_jobs(self.run.seed, 0), None, device),
            _ => self.run_on(device, start, &mut observer(&mut series, Stack::drive), progress),
        };
        let volume = volume_of(&mut device);
        let mut rebuild_ns = None;
        if preparation.rebuilds {
            rebuild_ns = finish_rebuild(volume, start, Instant(start.0 + run.drained_ns));
            run.drained_ns = run.drained_ns.max(rebuild_ns.unwrap_or(0));
        }
        let summary = VolumeSummary::of(volume, before, rebuild_ns);
        self.result(run, store, series, device.drive(), device.layer_results(), Some(summary))
    }

    fn run_on_pool(&self, pool: &PoolPlan, prng: &Prng, progress: &mut dyn FnMut(Progress)) -> ExperimentResult {
        let (mut device, mut start) = pool.create(power_on_drive(&self.device, &[], prng), self.drive.keeps());
        // The zones of the drive are the pool's: what jobs read is written through it.
        if let Some(plan) = self.plan().filter(|plan| !plan.prefill().is_empty()) {
            let mut clock = VirtualClock(start);
            let prepared = prepare(plan, self.drive.keeps(), NamespaceId::FIRST, &mut device, &mut clock, &mut |_| {});
            prepared.expect("a drive without faults completes the writes of a plan that was checked");
            start = clock.0;
        }
        let mut series = Series::new();
        let mut pool_series = Series::new();
        let mut observe = |at: Duration, device: &Joined<Stack<Ssd>>| {
            series.observe(|| DriveSample::of(at, device.drive().drive()));
            pool_series.observe(|| ElasticSample::of(at, device));
        };
        let (run, store, device) = self.run_on(device, start, &mut observe, progress);
        let pool_series = pool_series.end(ElasticSample::of(Duration(run.drained_ns), &device));
        let elastic = Some(ElasticSummary::of(&device, pool, pool_series));
        let (drive, layers) = (device.drive().drive(), device.drive().layer_results());
        ExperimentResult { elastic, ..self.result(run, store, series, drive, layers, None) }
    }

    /// Runs the load on a device. Calls `observe` with the device at the end of each sample interval.
    fn run_on<D: ZonedDevice>(
        &self,
        mut device: D,
        start: Instant,
        observe: &mut dyn FnMut(Duration, &D),
        progress: &mut dyn FnMut(Progress),
    ) -> (RunResult, Option<StoreResult>, D) {
        match &self.load {
            Load::Jobs { plan, .. } => {
                let mut runner = Runner::new((**plan).clone(), self.drive.keeps(), NamespaceId::FIRST);
                if self.pool.is_some() {
                    runner = runner.prepared();
                }
                let run = runner.run_observed(&mut device, start, &mut |report, device| {
                    observe(report.elapsed, device);
                    progress(report);
                });
                (run, None, device)
            }
            Load::Rebuild => unreachable!("a rebuild alone has no host workload"),
            Load::Store(plan) => {
                let runner = StoreRunner::new(plan, self.run.seed);
                let sample = self.run.sample.as_ref().map_or(STORE_SAMPLE, |sample| Duration(sample.get_ref().0));
                let (store, device) = runner.run(device, start, Some(sample), &mut |report, device| {
                    observe(report.elapsed, device);
                    progress(Progress {
                        elapsed: report.elapsed,
                        time: None,
                        operations: report.sample.operations,
                        bytes: report.sample.host_write_bytes + report.sample.host_read_bytes,
                        fraction: Some(report.fraction),
                    });
                });
                (RunResult::without_jobs(self.run.seed, store.drained_ns), Some(store), device)
            }
        }
    }

    fn result(
        &self,
        run: RunResult,
        store: Option<StoreResult>,
        series: Series<DriveSample>,
        drive: &Ssd,
        layers: Vec<LayerResult>,
        volume: Option<VolumeSummary>,
    ) -> ExperimentResult {
        ExperimentResult {
            format: RESULT_FORMAT,
            drive_series: series.end(DriveSample::of(Duration(run.drained_ns), drive)),
            run,
            store,
            volume,
            elastic: None,
            drive: DriveSummary::of(drive),
            layers,
        }
    }
}

/// Samples the drive of a device.
fn observer<D>(series: &mut Series<DriveSample>, drive_of: fn(&D) -> &Ssd) -> impl FnMut(Duration, &D) {
    move |at, device| series.observe(|| DriveSample::of(at, drive_of(device)))
}

/// Jobs on a device of this geometry, or on the namespaces of a pool.
fn plan_of(
    run: &RunSpec,
    jobs: &[Spanned<JobSpec>],
    geometry: &Geometry,
    pool: Option<&PoolPlan>,
) -> Result<Plan, ConfigError> {
    match pool {
        Some(pool) => Plan::over_namespaces(run, jobs, &pool.namespaces),
        None => Plan::new(run, jobs, geometry),
    }
}

/// A pool is on one drive.
fn pool_plan(elastic: &Spanned<ElasticSpec>, file: &File, drive: &Drive) -> Result<PoolPlan, ConfigError> {
    if file.volume.is_some() {
        let error = ConfigError::at(elastic, "[elastic] and [volume] cannot be combined");
        return Err(error.help("remove [volume] or [elastic]"));
    }
    ElasticSpec::check(elastic, drive)
}

/// A store ends by itself, and cannot be combined with jobs. It has one namespace of a pool to itself.
fn store_plan(
    store: &Spanned<StoreSpec>,
    file: &File,
    drive: &Drive,
    pool: Option<&mut PoolPlan>,
) -> Result<StorePlan, ConfigError> {
    if let Some(job) = file.job.first() {
        let error = ConfigError::at(job, "[store] and [[job]] cannot be combined");
        return Err(error.help("remove one of them"));
    }
    let refuse = |place: std::ops::Range<usize>, key: &str| {
        let error =
            ConfigError { span: Some(place), ..ConfigError::new(format!("{key} is not supported for a store")) };
        Err(error.help("remove it: a store ends after its number of operations, and all of them are counted"))
    };
    match &file.run {
        RunSpec { time: Some(time), .. } => return refuse(time.span(), "time"),
        RunSpec { ramp: Some(ramp), .. } => return refuse(ramp.span(), "ramp"),
        RunSpec { verify: Some(verify), .. } => return refuse(verify.span(), "verify"),
        _ => {}
    }
    if let Some(sample) = file.run.sample.as_ref().filter(|sample| sample.get_ref().0 == 0) {
        return Err(
            ConfigError::at(sample, "the sample interval must not be zero").help("write a time like \"100 ms\"")
        );
    }
    match pool {
        None => StorePlan::new(store, drive.geometry()),
        Some(pool) => {
            let (plan, namespace) = StorePlan::over_namespaces(store, &pool.namespaces)?;
            pool.used = Some(namespace);
            Ok(plan)
        }
    }
}

/// Jobs are validated separately; here all of them together are checked against the limit on active
/// zones.
fn prefill_fits(plan: &Plan, drive: &Drive) -> Result<(), ConfigError> {
    let geometry = drive.geometry();
    let Some(max) = geometry.max_active_zones else { return Ok(()) };
    let prefill = plan.prefill();
    let partly = prefill.iter().filter(|(zone, blocks)| {
        geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired && *blocks < geometry.zone_capacity_blocks
    });
    let active = partly.count();
    if active <= max as usize {
        return Ok(());
    }
    let message = format!(
        "the jobs need {active} partly written zones before the run, and the drive allows only {max} active zones"
    );
    Err(ConfigError::new(message).help("write prefill = true or false in some of the jobs, or use fewer zones"))
}
