//! Limits of experiments.

/// Default first seed of a point: the default of `seed` in `[run]`.
pub const FIRST_SEED_DEFAULT: u64 = 1;
/// Number of seeds of a spread.
pub const SPREAD_SEEDS: u32 = 20;
/// Default number of runs of each point.
pub const SEEDS_DEFAULT: u32 = 3;
/// Maximum number of runs of each point.
pub const SEEDS_MAX: u32 = 100;
/// Maximum number of points of an experiment.
pub const POINTS_MAX: usize = 10_000;
/// Maximum number of metrics of an experiment.
pub const METRICS_MAX: usize = 64;
/// Samples of the run that determines the warm-up.
pub const PILOT_SAMPLES: u64 = 500;
/// Maximum factor by which a run without a steady state is extended.
pub const STRETCH_MAX: u64 = 8;
/// Allocations and resets of a zone allocator before it is timed.
pub const ALLOCATION_CYCLES: u32 = 10_000;
/// Number of timed allocations for a median.
pub const ALLOCATIONS_TIMED: usize = 1_001;

const _: () =
    assert!(SEEDS_DEFAULT <= SEEDS_MAX && PILOT_SAMPLES as usize <= zonda_workload::limits::SAMPLES_MAX as usize);
