//! Named bounds of experiments.

/// Runs of each point where the file does not say.
pub const SEEDS_DEFAULT: u32 = 3;
/// Runs of each point.
pub const SEEDS_MAX: u32 = 100;
/// Points of an experiment.
pub const POINTS_MAX: usize = 10_000;
/// Metrics of an experiment.
pub const METRICS_MAX: usize = 64;
/// Samples of the run that tells how long the warm-up is.
pub const PILOT_SAMPLES: u64 = 500;
/// By how much a run is made longer when no steady state is seen in it.
pub const STRETCH_MAX: u64 = 8;
/// Allocations and resets that a zone allocator has seen before it is timed.
pub const ALLOCATION_CYCLES: u32 = 10_000;
/// Allocations that are timed for one median.
pub const ALLOCATIONS_TIMED: usize = 1_001;

const _: () =
    assert!(SEEDS_DEFAULT <= SEEDS_MAX && PILOT_SAMPLES as usize <= zonda_workload::limits::SAMPLES_MAX as usize);
