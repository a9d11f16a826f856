//! The plan of runs.

use zonda_config::{ByteSize, ConfigError};
use zonda_stack::Drive;

use crate::advice::{Advice, LeftOut};
use crate::base::Base;
use crate::candidate::{Candidate, Shape};
use crate::limits::{DRIVE_SHARES_OF_LOAD, DRIVE_SHARES_OF_TRACE, DRIVE_ZONES_MIN};
use crate::load::Load;
use crate::measure::{Measurement, Task};
use crate::score::ranked;

/// The runs needed for advice on a drive for a workload.
///
/// Every shape is run with the first threshold of the workload. The leading half is then run with
/// the others, except for shapes that never reached the limit on active zones: no zone is finished
/// early there with any threshold.
#[derive(Debug)]
pub struct AdvicePlan<'a> {
    pub(crate) base: &'a Base,
    pub(crate) load: &'a Load<'a>,
    pub(crate) seed: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) left_out: Vec<LeftOut>,
    drives: Vec<(Shape, Drive)>,
}

impl<'a> AdvicePlan<'a> {
    /// Plans runs of this workload on all candidates of this drive.
    ///
    /// # Errors
    /// If the workload does not fit on any candidate.
    pub fn new(base: &'a Base, load: &'a Load<'a>, seed: u64) -> Result<AdvicePlan<'a>, ConfigError> {
        let capacity_bytes = capacity(base, load);
        let (mut drives, mut left_out) = (Vec::new(), Vec::new());
        for shape in base.shapes() {
            match base.drive(&shape, capacity_bytes) {
                Ok(drive) => drives.push((shape, drive)),
                Err(error) => left_out.push(LeftOut { shape, reason: error.to_string() }),
            }
        }
        let live = load.bytes().1;
        if drives.is_empty() || live > base.capacity_bytes() {
            let capacity = ByteSize(base.capacity_bytes());
            let message = format!("{} does not fit on {}, which holds {capacity}", load.name, base.profile().name);
            let reason =
                left_out.first().map_or_else(String::new, |first| format!(": {}: {}", first.shape, first.reason));
            return Err(ConfigError::new(message + &reason)
                .help("choose a larger drive with --geometry, or a smaller workload"));
        }
        Ok(AdvicePlan { base, load, seed, capacity_bytes, left_out, drives })
    }

    /// Maximum number of runs.
    #[must_use]
    pub fn runs_max(&self) -> usize {
        let shapes = self.drives.len();
        shapes + shapes.div_ceil(2) * (self.load.goal.thresholds_percent.len() - 1)
    }

    /// Executes the runs with `run`, which can execute the given ones in any order, and ranks the
    /// results.
    ///
    /// # Errors
    /// If no run completed the workload.
    pub fn advise(&self, run: &mut dyn FnMut(&[Task<'_>]) -> Vec<Measurement>) -> Result<Advice, ConfigError> {
        let thresholds = self.load.goal.thresholds_percent;
        let first: Vec<Task<'_>> =
            self.drives.iter().map(|(shape, drive)| self.task(*shape, drive, thresholds[0])).collect();
        let mut measurements = run(&first);
        let second: Vec<Task<'_>> =
            self.leading(&measurements).into_iter().flat_map(|shape| self.others(shape)).collect();
        measurements.extend(run(&second));
        if let Some(failed) = measurements.first().filter(|_| measurements.iter().all(|of| of.figures.is_none())) {
            let message = format!("no candidate completes {}", self.load.name);
            let help = format!("on {}, {}", failed.candidate.shape, failed.end);
            return Err(ConfigError::new(message).help(help));
        }
        Ok(Advice::new(self, measurements))
    }

    /// The leading half of the shapes for which the threshold matters.
    fn leading(&self, measurements: &[Measurement]) -> Vec<Shape> {
        let half = self.drives.len().div_ceil(2);
        let ranked = ranked(measurements, &self.load.goal.weights);
        let leading = ranked.iter().take(half).filter(|of| of.figures.has_met_the_limit());
        leading.map(|of| of.measurement.candidate.shape).collect()
    }

    /// A shape with every threshold but the first.
    fn others(&self, shape: Shape) -> impl Iterator<Item = Task<'_>> {
        let (_, drive) = self.drives.iter().find(|(known, _)| *known == shape).expect("the shape was run before");
        self.load.goal.thresholds_percent[1..].iter().map(move |threshold| self.task(shape, drive, *threshold))
    }

    fn task(&self, shape: Shape, drive: &Drive, finish_threshold_percent: u8) -> Task<'_> {
        let candidate = Candidate { shape, finish_threshold_percent };
        Task { candidate, drive: drive.clone(), load: self.load, seed: self.seed }
    }
}

/// The part of the drive that is simulated: parts that the workload never uses only take time.
fn capacity(base: &Base, load: &Load<'_>) -> u64 {
    let (appended, live) = load.bytes();
    let shares = if load.is_made() { DRIVE_SHARES_OF_LOAD * appended } else { DRIVE_SHARES_OF_TRACE * live };
    let largest = base.shapes().iter().map(|shape| shape.zone_bytes).max().expect("there are shapes");
    base.capacity_bytes().min(shares.max(DRIVE_ZONES_MIN * largest))
}
