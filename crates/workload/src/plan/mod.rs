//! Checks jobs against a drive: mistakes are reported here, with their position in the file, and
//! never during a run.

use std::ops::Range;

use zonda_config::{ConfigError, Rate, Spanned, TimeSpan};
use zonda_zoned::{Blocks, Duration, Geometry, PayloadKind, ZoneIndex, ZoneType};

use crate::limits::{JOBS_MAX, SAMPLES_MAX, TIME_MAX_NS, VERIFY_CONVENTIONAL_BLOCKS_MAX};
use crate::{Distribution, JobOperation, JobSpec, Mix, OnFull, RunSpec, TenantSpec, ZoneOrder};

mod check;
#[cfg(test)]
mod guide_tests;
mod namespaces;
#[cfg(test)]
mod tests;

pub use namespaces::NamedNamespace;
use namespaces::{Place, chosen, no_namespace_is_named};
pub(crate) use namespaces::{index_of, is_without_name};

/// Interval of the time series of a run without a time limit.
const SAMPLE_WITHOUT_TIME: Duration = Duration::from_millis(10);
/// Samples in the time series of a run with a time limit.
const SAMPLES_OF_TIME: u64 = 100;

/// Jobs that a drive of one geometry supports.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) geometry: Geometry,
    pub(crate) seed: u64,
    pub(crate) ramp: Duration,
    pub(crate) time: Option<Duration>,
    pub(crate) sample: Duration,
    pub(crate) jobs: Vec<JobPlan>,
    /// The position of `verify = true` in the file.
    verify: Option<Range<usize>>,
    prefill: Vec<(ZoneIndex, Blocks)>,
}

/// One job with all its defaults filled in, in blocks and nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    pub(crate) name: String,
    pub(crate) operation: JobOperation,
    /// The weights of a mix; for a plain write or append job its one operation.
    pub(crate) weights: Mix,
    pub(crate) request_blocks: u64,
    /// Commands that a request is split into, and the blocks of each.
    pub(crate) parts: u64,
    pub(crate) part_blocks: u64,
    pub(crate) queue_depth: u32,
    /// Whether a worker refills its queue only when it is empty.
    pub(crate) is_batch: bool,
    pub(crate) tenant: TenantSpec,
    /// The zones of each worker.
    pub(crate) workers: Vec<Vec<ZoneIndex>>,
    pub(crate) zone_order: ZoneOrder,
    pub(crate) rate: Option<Rate>,
    pub(crate) think_time: Duration,
    pub(crate) start: Duration,
    /// From the start of the run; the limits of job and run together.
    pub(crate) end: Option<Duration>,
    pub(crate) bytes: Option<u64>,
    pub(crate) operations: Option<u64>,
    /// A reader without a limit ends when it has read all its zones.
    pub(crate) one_pass: bool,
    pub(crate) distribution: Distribution,
    pub(crate) on_full: OnFull,
    pub(crate) finish_at_blocks: Option<u64>,
}

impl Plan {
    /// Checks a run against the geometry of the namespace it is to run on.
    ///
    /// # Errors
    /// The first value that is invalid or not supported by this drive, with its position, and the
    /// allowed values.
    pub fn new(run: &RunSpec, jobs: &[Spanned<JobSpec>], geometry: &Geometry) -> Result<Plan, ConfigError> {
        no_namespace_is_named(jobs)?;
        let place = Place { first_zone: 0, geometry, noun: "drive" };
        Plan::over(run, jobs, geometry, |_| Ok(place))
    }

    /// As [`Plan::new`], for jobs that choose one of several namespaces by its name. The plan is for
    /// a device that has their zones as one namespace, in the order of this list.
    ///
    /// # Errors
    /// As there; and a job that names no namespace, if there are several, or one that does not exist.
    ///
    /// # Panics
    /// If the list is empty, or the namespaces differ in more than their number of zones and their
    /// limits on open and active ones.
    pub fn over_namespaces(
        run: &RunSpec,
        jobs: &[Spanned<JobSpec>],
        namespaces: &[NamedNamespace],
    ) -> Result<Plan, ConfigError> {
        Plan::over(run, jobs, &NamedNamespace::joined(namespaces), |job| chosen(namespaces, job))
    }

    /// Checks each job against its place in the zones of `geometry`.
    fn over<'a>(
        run: &RunSpec,
        jobs: &[Spanned<JobSpec>],
        geometry: &Geometry,
        place_of: impl Fn(&Spanned<JobSpec>) -> Result<Place<'a>, ConfigError>,
    ) -> Result<Plan, ConfigError> {
        if jobs.is_empty() {
            let help = "add a table [[job]] with a line like operation = \"randread\"";
            return Err(ConfigError::new("the file has no job").help(help));
        }
        if let Some(excess) = jobs.get(JOBS_MAX) {
            return Err(ConfigError::at(excess, format!("{} jobs are too many", jobs.len()))
                .help(format!("at most {JOBS_MAX} are allowed; use workers for copies of a job")));
        }
        let mut plan = Plan::of_run(run, geometry)?;
        let mut places = Vec::new();
        for (index, place) in jobs.iter().enumerate() {
            let own = place_of(place)?;
            let job = check::job(place, index, plan.time, &own)?;
            places.push(own);
            if plan.jobs.iter().any(|other| other.name == job.name) {
                let message = format!("two jobs have the name \"{}\"", job.name);
                let error = match &place.get_ref().name {
                    Some(name) => ConfigError::at(name, message),
                    None => ConfigError::at(place, message),
                };
                return Err(error.help("give each job its own name: results are reported by name"));
            }
            plan.jobs.push(job);
        }
        check_writers_apart(&plan.jobs, jobs, &places, geometry)?;
        plan.prefill = prefill(&plan.jobs, jobs, &places, geometry)?;
        plan.verify_fits()?;
        Ok(plan)
    }

    /// Whether reads are verified.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.verify.is_some()
    }

    /// Checks whether the run is possible on a device that keeps this kind of payload.
    ///
    /// # Errors
    /// When reads are to be verified, and the device does not keep bytes.
    pub fn check_payload(&self, keeps: PayloadKind) -> Result<(), ConfigError> {
        match &self.verify {
            Some(place) if keeps != PayloadKind::Bytes => {
                Err(ConfigError::new("reads cannot be verified: the drive does not store the written data")
                    .within(place.clone())
                    .help("write payload = \"bytes\" under [drive], or verify = false"))
            }
            _ => Ok(()),
        }
    }

    /// The zones that any job uses, in the order of their indices.
    #[must_use]
    pub fn zones_used(&self) -> Vec<ZoneIndex> {
        let mut zones: Vec<ZoneIndex> = self.jobs.iter().flat_map(JobPlan::zones).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// How many blocks of which zones must be written before the run, from their starts; a zone
    /// that is not listed must be empty. A zone written to its capacity is expected to be full.
    #[must_use]
    pub fn prefill(&self) -> Vec<(ZoneIndex, Blocks)> {
        self.prefill.clone()
    }

    /// The time limit of the run, if the file sets one.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.time
    }

    /// The names of the jobs, in the order of the file.
    pub fn job_names(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().map(|job| job.name.as_str())
    }

    fn of_run(run: &RunSpec, geometry: &Geometry) -> Result<Plan, ConfigError> {
        let ramp = time(&run.ramp)?.unwrap_or(Duration::ZERO);
        let limit = positive_time(&run.time)?;
        if let (Some(place), Some(limit)) = (&run.ramp, limit)
            && ramp >= limit
        {
            return Err(ConfigError::at(place, format!("the ramp of {ramp} is not shorter than the run of {limit}"))
                .help("write a ramp shorter than time: only the time after the ramp is measured"));
        }
        let sample = match (positive_time(&run.sample)?, limit) {
            (Some(sample), _) => sample,
            (None, Some(limit)) => Duration((limit.0 / SAMPLES_OF_TIME).max(1)),
            (None, None) => SAMPLE_WITHOUT_TIME,
        };
        if let (Some(place), Some(limit)) = (&run.sample, limit)
            && limit.0.div_ceil(sample.0) > SAMPLES_MAX
        {
            let least = TimeSpan(limit.0.div_ceil(SAMPLES_MAX));
            let message = format!("this requires {} samples", limit.0.div_ceil(sample.0));
            return Err(ConfigError::at(place, message)
                .help(format!("write at least \"{least}\": at most {SAMPLES_MAX} samples")));
        }
        let geometry = geometry.clone();
        let verify = run.verify.as_ref().filter(|place| *place.get_ref()).map(Spanned::span);
        Ok(Plan { geometry, seed: run.seed, ramp, time: limit, sample, jobs: Vec::new(), verify, prefill: Vec::new() })
    }

    /// Checks the number of conventional blocks: verification needs a record for each.
    fn verify_fits(&self) -> Result<(), ConfigError> {
        let Some(place) = &self.verify else { return Ok(()) };
        let conventional = |zone: &ZoneIndex| self.geometry.zone_type(*zone) == ZoneType::Conventional;
        let zones = self.zones_used().iter().filter(|zone| conventional(zone)).count() as u64;
        let blocks = zones.saturating_mul(self.geometry.zone_capacity_blocks.0);
        if blocks <= VERIFY_CONVENTIONAL_BLOCKS_MAX {
            return Ok(());
        }
        let message = format!("the jobs use {blocks} blocks of conventional zones, too many to be verified");
        let help = format!("at most {VERIFY_CONVENTIONAL_BLOCKS_MAX} are possible: use fewer conventional zones");
        Err(ConfigError::new(message).within(place.clone()).help(help))
    }
}

impl JobPlan {
    /// Whether the job writes or appends to sequential zones, or to conventional ones from start to
    /// end.
    pub(crate) fn writes_forward(&self) -> bool {
        self.weights.write > 0 || self.weights.append > 0
    }

    /// Whether the job ends without a time limit.
    pub(crate) fn ends_without_time(&self) -> bool {
        self.bytes.is_some()
            || self.operations.is_some()
            || self.one_pass
            || self.operation.is_management()
            || (self.writes_forward() && self.on_full != OnFull::Reset)
    }

    fn zones(&self) -> impl Iterator<Item = ZoneIndex> {
        self.workers.iter().flatten().copied()
    }
}

/// A time of at most a year.
fn time(value: &Option<Spanned<TimeSpan>>) -> Result<Option<Duration>, ConfigError> {
    let Some(place) = value else { return Ok(None) };
    let nanoseconds = place.get_ref().0;
    if nanoseconds > TIME_MAX_NS {
        return Err(ConfigError::at(place, "the time is longer than a year").help("write at most \"8760 h\""));
    }
    Ok(Some(Duration(nanoseconds)))
}

/// A time of at most a year, and above zero.
fn positive_time(value: &Option<Spanned<TimeSpan>>) -> Result<Option<Duration>, ConfigError> {
    match (time(value)?, value) {
        (Some(Duration::ZERO), Some(place)) => {
            Err(ConfigError::at(place, "the time is zero").help("write a time above zero, or remove it"))
        }
        (time, _) => Ok(time),
    }
}

/// Checks that no two jobs write to one sequential zone by plain writes, which would be out of
/// order.
fn check_writers_apart(
    plans: &[JobPlan],
    jobs: &[Spanned<JobSpec>],
    places: &[Place<'_>],
    geometry: &Geometry,
) -> Result<(), ConfigError> {
    let mut writer_of_zone: Vec<Option<usize>> = vec![None; geometry.zone_count as usize];
    for (index, plan) in plans.iter().enumerate().filter(|(_, plan)| plan.writes_forward()) {
        for zone in plan.zones().filter(|&zone| geometry.zone_type(zone) == ZoneType::SequentialWriteRequired) {
            let Some(other) = writer_of_zone[zone.as_usize()].replace(index) else { continue };
            if other == index || (plan.weights.write == 0 && plans[other].weights.write == 0) {
                continue;
            }
            let zone = zone.0 - places[index].first_zone;
            let message = format!("zone {zone} is also written by the job \"{}\"", plans[other].name);
            let job = &jobs[index];
            let error = match &job.get_ref().zones {
                Some(zones) => ConfigError::at(zones, message),
                None => ConfigError::at(job, message),
            };
            return Err(error.help("give each job its own zones, or let all of them append"));
        }
    }
    Ok(())
}

/// The highest prefill of each zone over all jobs. A default prefill does not apply to zones that a
/// job writes.
fn prefill(
    plans: &[JobPlan],
    jobs: &[Spanned<JobSpec>],
    places: &[Place<'_>],
    geometry: &Geometry,
) -> Result<Vec<(ZoneIndex, Blocks)>, ConfigError> {
    let capacity = geometry.zone_capacity_blocks.0;
    let mut is_written = vec![false; geometry.zone_count as usize];
    for zone in plans.iter().filter(|plan| plan.writes_forward()).flat_map(JobPlan::zones) {
        is_written[zone.as_usize()] = true;
    }
    let mut blocks = vec![0; geometry.zone_count as usize];
    for ((plan, job), place) in plans.iter().zip(jobs).zip(places) {
        let wanted = job.get_ref().prefill.as_ref();
        let default_full = matches!(plan.operation, JobOperation::Read | JobOperation::Randread | JobOperation::Reset);
        let share = wanted.map_or(if default_full { 1.0 } else { 0.0 }, |prefill| prefill.get_ref().0);
        let fill = ((share * capacity as f64) as u64).min(capacity);
        for zone in plan.zones().filter(|zone| wanted.is_some() || !is_written[zone.as_usize()]) {
            blocks[zone.as_usize()] = fill.max(blocks[zone.as_usize()]);
        }
        let partial = |(zone, &blocks): (usize, &u64)| {
            (1..capacity).contains(&blocks)
                && geometry.zone_type(ZoneIndex(zone as u32)) == ZoneType::SequentialWriteRequired
        };
        let own = blocks.iter().enumerate().filter(|&(zone, _)| place.zones().contains(&(zone as u32)));
        let active = own.filter(|&entry| partial(entry)).count();
        if let (Some(at), Some(max)) = (wanted, place.geometry.max_active_zones)
            && active > max as usize
        {
            let noun = place.noun;
            let message =
                format!("this leaves {active} zones partly written, and the {noun} allows {max} active zones");
            return Err(ConfigError::at(at, message).help(format!("use at most {max} zones, or prefill = true")));
        }
    }
    let filled = blocks.into_iter().enumerate().filter(|&(_, blocks)| blocks > 0);
    Ok(filled.map(|(zone, blocks)| (ZoneIndex(zone as u32), Blocks(blocks))).collect())
}
