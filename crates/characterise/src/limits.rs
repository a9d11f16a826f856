//! Named limits of a characterisation.

use zonda_zoned::Duration;

/// The shortest run of a load; what has less time is not measured.
pub const RUN_MIN: Duration = Duration::from_millis(20);
/// The longest run of a load. Runs beside a finish are longer, because a finish may take a second.
pub const RUN_MAX: Duration = Duration::from_secs(1);
/// The longest run of a load that finishes zones.
pub const FINISH_RUN_MAX: Duration = Duration::from_secs(4);
/// A run is measured after this percentage of its time: write buffers are full then.
pub const RAMP_PERCENT: u64 = 40;
/// Intervals of a run, whose scatter gives the uncertainty of its throughput.
pub const INTERVALS: u64 = 20;
/// The smallest request of a curve.
pub const SIZE_MIN_BYTES: u64 = 4 << 10;
/// The largest request of a curve.
pub const SIZE_MAX_BYTES: u64 = 2 << 20;
/// The size of requests in the interference matrix, as in the published measurements.
pub const MATRIX_SIZE_BYTES: u64 = 8 << 10;
/// The large request of curves over zones.
pub const LARGE_SIZE_BYTES: u64 = 128 << 10;
/// Outstanding reads and appends of curves over the depth.
pub const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Outstanding large reads of each zone in curves over the number of zones.
pub const READS_OF_ZONE: u32 = 4;
/// Zones that are read.
pub const READ_ZONES_MAX: usize = 64;
/// A zone is read if it has at least this share of the data of the fullest one: one in so many.
pub const READ_ZONE_ONE_IN: u64 = 2;
/// Zones that are written at once in a curve.
pub const WRITE_ZONES_MAX: u32 = 32;
/// Depths of reads in the interference matrix, as in the published measurements.
pub const MATRIX_READ_DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// Writers in the interference matrix.
pub const MATRIX_WRITERS: [u32; 4] = [1, 3, 5, 7];
/// Depths of appends in the interference matrix.
pub const MATRIX_APPEND_DEPTHS: [u32; 3] = [1, 3, 5];
/// The size of requests in the comparison of schedulers.
pub const SCHEDULER_SIZE_BYTES: u64 = 16 << 10;
/// Outstanding reads in the comparison of schedulers, at most.
pub const SCHEDULER_READS: u32 = 64;
/// Outstanding writes in the comparison of schedulers, of all writers together, at most: more than a
/// scheduler releases to the drive, so that commands wait for it.
pub const SCHEDULER_WRITES: u32 = 512;
/// Slow drives get fewer: what they complete in this time, and at least one in so many of the above,
/// which is more than the queue of a SATA disk has.
pub const SCHEDULER_QUEUE_TIME: Duration = Duration::from_millis(100);
/// See [`SCHEDULER_QUEUE_TIME`].
pub const SCHEDULER_ONE_IN: u32 = 8;
/// Writers in the comparison of schedulers, each in a zone of its own.
pub const SCHEDULER_WRITERS_MAX: u32 = 8;
/// The longest run of a scheduler.
pub const SCHEDULER_RUN_MAX: Duration = Duration::from_millis(500);
/// A scheduler is recommended only if reads and writes together keep this share of the best
/// throughput.
pub const SCHEDULER_THROUGHPUT_MIN: f64 = 0.9;
/// Rates to which reads, writes and appends are limited beside each other, in percent of their
/// throughput alone.
pub const MATRIX_RATES_PERCENT: [u32; 3] = [25, 50, 75];
/// Zones that a characterisation resets and writes, at least: if fewer are empty, others lose their
/// data.
pub const SCRATCH_ZONES_MIN: usize = 64;
/// Bytes of the empty zones that it resets and writes.
pub const SCRATCH_BYTES: u64 = 64 << 30;
/// Zones that it resets and writes, at most.
pub const SCRATCH_ZONES_MAX: usize = 4096;
/// Writes of the preparation that are outstanding, each to another zone.
pub const FILL_ZONES: usize = 8;
/// Bytes of a write of the preparation.
pub const FILL_WRITE_BYTES: u64 = 128 << 10;
/// The bandwidth that the preparation is assumed to have before it is known, in bytes a second.
pub const FILL_BYTES_PER_SECOND: u64 = 500_000_000;
/// Fills of zones that are finished, in percent; 0 is one block, 100 all but one.
pub const FINISH_FILLS: [u32; 5] = [0, 25, 50, 75, 100];
/// Fills of zones that are reset, in percent.
pub const RESET_FILLS: [u32; 3] = [0, 50, 100];
/// Zones of one fill whose management commands are measured.
pub const MANAGED_ZONES_MAX: u32 = 8;
/// A command that takes longer has failed.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Zones in one report of zones.
pub const REPORT_ZONES_MAX: u32 = 4096;
/// A difference between two reports below this share is none, however small the scatter is.
pub const CHANGE_MIN: f64 = 0.05;
/// The same for latencies, whose tails vary more.
pub const LATENCY_CHANGE_MIN: f64 = 0.10;
/// A difference counts from so many standard errors on.
pub const CHANGE_ERRORS: f64 = 3.0;
/// A curve is saturated where it reaches this share of its maximum.
pub const SATURATED: f64 = 0.9;
/// One operation beats another where it is faster by this factor.
pub const BETTER: f64 = 1.05;
/// It pays to finish late where the finish of an empty zone takes longer by this factor.
pub const FINISH_PAYS: u64 = 4;
/// Operations disturb each other where the throughput falls below this share of that alone.
pub const DISTURBED: f64 = 0.8;
/// The tail is disturbed where p99 grows by this factor.
pub const TAIL_DISTURBED: f64 = 2.0;

const _: () = assert!(RUN_MIN.0 < RUN_MAX.0 && RUN_MAX.0 < FINISH_RUN_MAX.0, "a run has a shortest time");
const _: () = assert!(SCHEDULER_WRITES as usize > zonda_sched::limits::IN_FLIGHT_MAX, "commands wait");
const _: () = assert!(RAMP_PERCENT < 100, "a part of each run is measured");
