//! Which runs are made, and in which order.

use zonda_config::{ByteSize, ConfigError};
use zonda_stack::Drive;

use crate::advice::{Advice, LeftOut};
use crate::base::Base;
use crate::candidate::{Candidate, Shape};
use crate::limits::{DRIVE_SHARES_OF_LOAD, DRIVE_SHARES_OF_TRACE, DRIVE_ZONES_MIN};
use crate::load::Load;
use crate::measure::{Measurement, Task};
use crate::score::ranked;

/// The runs that advice on a drive for a load takes.
///
/// Every shape is run with the first threshold of the load. The leading half is then run with the others, except where the
/// limit on active zones was never in the way: no zone has to be finished early there, whatever the threshold.
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
    /// Plans runs of this load on what can be made of this drive.
    ///
    /// # Errors
    /// When nothing can: no zones of this flash would hold the load.
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
            return Err(ConfigError::new(message + &reason).help("take a larger drive with --geometry, or less data"));
        }
        Ok(AdvicePlan { base, load, seed, capacity_bytes, left_out, drives })
    }

    /// How many runs there are, at most.
    #[must_use]
    pub fn runs_max(&self) -> usize {
        let shapes = self.drives.len();
        shapes + shapes.div_ceil(2) * (self.load.goal.thresholds_percent.len() - 1)
    }

    /// Has the runs made by `run`, which may make those that it is given in any order, and chooses.
    ///
    /// # Errors
    /// When no run came to its end.
    pub fn advise(&self, run: &mut dyn FnMut(&[Task<'_>]) -> Vec<Measurement>) -> Result<Advice, ConfigError> {
        let thresholds = self.load.goal.thresholds_percent;
        let first: Vec<Task<'_>> =
            self.drives.iter().map(|(shape, drive)| self.task(*shape, drive, thresholds[0])).collect();
        let mut measurements = run(&first);
        let second: Vec<Task<'_>> =
            self.leading(&measurements).into_iter().flat_map(|shape| self.others(shape)).collect();
        measurements.extend(run(&second));
        if let Some(failed) = measurements.first().filter(|_| measurements.iter().all(|of| of.figures.is_none())) {
            let message = format!("{} comes to its end on no candidate", self.load.name);
            let help = format!("on {}, {}", failed.candidate.shape, failed.end);
            return Err(ConfigError::new(message).help(help));
        }
        Ok(Advice::new(self, measurements))
    }

    /// The leading half of the shapes in which a threshold matters.
    fn leading(&self, measurements: &[Measurement]) -> Vec<Shape> {
        let half = self.drives.len().div_ceil(2);
        let ranked = ranked(measurements, &self.load.goal.weights);
        let leading = ranked.iter().take(half).filter(|of| of.figures.has_met_the_limit());
        leading.map(|of| of.measurement.candidate.shape).collect()
    }

    /// A shape with every threshold but the first.
    fn others(&self, shape: Shape) -> impl Iterator<Item = Task<'_>> {
        let (_, drive) = self.drives.iter().find(|(known, _)| *known == shape).expect("it was run before");
        self.load.goal.thresholds_percent[1..].iter().map(move |threshold| self.task(shape, drive, *threshold))
    }

    fn task(&self, shape: Shape, drive: &Drive, finish_threshold_percent: u8) -> Task<'_> {
        let candidate = Candidate { shape, finish_threshold_percent };
        Task { candidate, drive: drive.clone(), load: self.load, seed: self.seed }
    }
}

/// How much of the drive takes part: what a load never reaches only costs time.
fn capacity(base: &Base, load: &Load<'_>) -> u64 {
    let (appended, live) = load.bytes();
    let shares = if load.is_made() { DRIVE_SHARES_OF_LOAD * appended } else { DRIVE_SHARES_OF_TRACE * live };
    let largest = base.shapes().iter().map(|shape| shape.zone_bytes).max().expect("there are shapes");
    base.capacity_bytes().min(shares.max(DRIVE_ZONES_MIN * largest))
}
