//! Limits of fits.

/// Maximum number of parameters of a fit: more cannot be distinguished by a practical set of
/// measurements.
pub const PARAMETERS_MAX: usize = 12;
/// Maximum number of measurements of a file.
pub const MEASUREMENTS_MAX: usize = 64;
/// Default number of runs of each measurement in a try.
pub const SEEDS_DEFAULT: u32 = 2;
/// Default relative uncertainty of a measurement.
pub const TOLERANCE_DEFAULT: f64 = 0.02;
/// Default number of tries for each parameter, plus one.
pub const TRIES_EACH_DEFAULT: u32 = 20;
/// Default factor by which a parameter may decrease and increase.
pub const RANGE_FACTOR: f64 = 4.0;
/// Bytes of which the sizes of a write buffer are multiples after a fit.
pub const SIZE_GRAIN_BYTES: u64 = 4096;

const _: () = assert!(PARAMETERS_MAX <= MEASUREMENTS_MAX && SEEDS_DEFAULT <= crate::limits::SEEDS_MAX);
