//! Named bounds of fits.

/// Parameters that one fit may change: more are never told apart by the measurements of one desk.
pub const PARAMETERS_MAX: usize = 12;
/// Measurements of one file.
pub const MEASUREMENTS_MAX: usize = 64;
/// Runs of each measurement in a try where the file does not say.
pub const SEEDS_DEFAULT: u32 = 2;
/// Relative uncertainty of a measurement where the file does not say.
pub const TOLERANCE_DEFAULT: f64 = 0.02;
/// Tries for each parameter and one more, where nobody says.
pub const TRIES_EACH_DEFAULT: u32 = 20;
/// Where the file gives no range, a parameter may shrink and grow by this factor.
pub const RANGE_FACTOR: f64 = 4.0;
/// Bytes of which the sizes of a write buffer are multiples after a fit.
pub const SIZE_GRAIN_BYTES: u64 = 4096;

const _: () = assert!(PARAMETERS_MAX <= MEASUREMENTS_MAX && SEEDS_DEFAULT <= crate::limits::SEEDS_MAX);
