//! Named limits. None of them is a latency: what separates zones that share hardware from zones
//! that do not is measured on the drive.

use zonda_zoned::Duration;

/// Reads of the target and outstanding reads of each loaded zone, in the attempts of the
/// calibration: the first that separates is used.
///
/// The load is the same in all: how much slower a zone is beside its own reads grows with it, and
/// how much slower it is beside another zone of its channel does not.
pub const SHAPES: [(u32, u32); 3] = [(4, 2), (16, 2), (48, 2)];
/// Outstanding reads of each of several loaded zones. More would fill what all zones share.
pub const SET_LOAD_DEPTHS: [u32; 2] = [1, 2];
/// Outstanding reads that show the bandwidth of a zone.
pub const SIZING_DEPTH: u32 = 8;
/// Reads of each zone of a pair, one outstanding, in the published algorithm: few, but so
/// many that one slow page does not halve the bandwidth.
pub const PAIR_READS: u32 = 16;
/// Zones loaded at once in a probe.
pub const LOAD_ZONES_MAX: u32 = 64;
/// The largest read of a probe: a zone over all dies of a large drive is busy with a few of them.
pub const READ_BYTES_MAX: u64 = 2 << 20;
/// The smallest read of a probe.
pub const READ_BYTES_MIN: u64 = 4 << 10;
/// A zone needs data for this many different reads, so that reads of a probe are of separate
/// blocks.
pub const READS_OF_ZONE_MIN: u64 = 4;
/// Probes of each size of read, from which the size is chosen.
pub const SIZING_PROBES: u32 = 5;
/// The size of reads is the smallest that reaches this percentage of the best bandwidth.
pub const SIZING_PERCENT: u64 = 90;
/// Zones that the first calibration measures.
pub const CALIBRATION_ZONES: usize = 64;
/// Samples of each kind for the first estimates, and for sets of loaded zones. No measurement can
/// count for more than one in so many: what is rarer cannot be known from them.
pub const CALIBRATION_SAMPLES: usize = 64;
/// Samples of each kind for pairs of zones, once groups are known.
pub const PAIR_SAMPLES: usize = 200;
/// Repetitions of a probe until its result counts as undecided.
pub const TRIES_MAX: u32 = 16;
/// Standard deviations between the two kinds of samples, so that probes decide; with fewer, a longer
/// probe is tried.
pub const SEPARATION_GOOD: f64 = 4.0;
/// With fewer than this, no number of repetitions within [`TRIES_MAX`] decides.
pub const SEPARATION_MIN: f64 = 1.25;
/// Standard deviations for sets of loaded zones: with fewer, repetitions cost more than a search in
/// smaller sets.
pub const SET_SEPARATION_MIN: f64 = 2.5;
/// Groups with several zones, from which zones of the same and of different groups are measured for
/// comparison.
pub const PAIR_GROUPS: usize = 3;
/// Where zones that share hardware are expected, between a zone alone (0) and one that loads itself
/// (1), as long as no pair of them is known: from a quarter of that slowdown on, zones share
/// hardware.
pub const WIDE_CENTER: f64 = 0.5;
/// The spread of that expectation, as a share of the same slowdown.
pub const WIDE_SPREAD: f64 = 0.25;
/// A slowdown up to this share of the same is minor: what all zones share causes it.
pub const MINOR_SLOWDOWN: f64 = 0.1;
/// The smallest spread of the logarithm of a latency: clocks and timers are not better than 1%.
pub const SPREAD_MIN: f64 = 0.01;
/// Evidence for the group of a zone, in nats: wrong once in 10,000.
pub const EVIDENCE_HIGH: f64 = 9.22;
/// Evidence against interference with other zones than those of its group: wrong once in 100.
pub const EVIDENCE_CONTROL: f64 = 4.6;
/// Evidence for a step of a search, whose result is confirmed: wrong once in 20.
pub const EVIDENCE_STEP: f64 = 3.0;
/// Sets of groups that seem to share hardware with a zone although none of them does, until the zone
/// is left unknown. Among a hundred groups a few sets are slow by chance.
pub const FALSE_ALARMS_MAX: u32 = 6;
/// Random zones that are measured first. If all of them share one group, the drive has one.
pub const ONE_GROUP_ZONES: usize = 64;
/// Zones without a new group after which all groups count as found, beside two for each group.
pub const DISCOVERY_ZONES: usize = 16;
/// Loaded zones that a zone is compared with, as a control beside its own group.
pub const CONTROL_ZONES_MAX: u32 = 4;
/// Failed commands until a zone is left unknown.
pub const ERRORS_MAX: u32 = 2;
/// A command that takes longer has failed.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Zones in one report.
pub const REPORT_ZONES_MAX: u32 = 4096;
/// Zones of the largest table: as many as a simulated drive has, and ten times those of the largest
/// disks.
pub const TABLE_ZONES_MAX: u64 = 1 << 20;
/// Bytes of a zone in a stored table: `null` twice, a letter and an entry of its own in `unknown`,
/// with numbers of seven digits.
pub const TABLE_ZONE_BYTES_MAX: u64 = 80;
/// Bytes of a stored table beside its zones: the drive, whose serial number may be a URL.
pub const TABLE_HEAD_BYTES_MAX: u64 = 4096;
/// Bytes of the largest stored table; a longer file is none.
pub const TABLE_BYTES_MAX: u64 = TABLE_ZONES_MAX * TABLE_ZONE_BYTES_MAX + TABLE_HEAD_BYTES_MAX;
/// Measured zones of which the order of allocation must have predicted all but a few, before it
/// stands for zones that were not measured.
pub const RULE_CHECKS_MIN: u32 = 32;
/// Of so many predictions one may be wrong.
pub const RULE_CHECKS_PER_MISS: u32 = 50;
/// The confidence of a group that was not measured is at most this.
pub const INFERRED_CONFIDENCE_MAX: f64 = 0.99;
/// One zone in this number may be undecided; with more, the distributions do not describe the drive.
pub const DOUBTFUL_ONE_IN: usize = 10;
/// The confidence in all groups is at most this if more zones are undecided, and in a group that has
/// less than a quarter of the zones of others.
pub const DOUBTFUL_CONFIDENCE_MAX: f64 = 0.9;
/// A group whose confidence is at least this counts as certain.
pub const HIGH_CONFIDENCE: f64 = 0.9999;

const _: () = assert!(ERRORS_MAX > 1, "a single error may be transient");
const _: () = assert!(INFERRED_CONFIDENCE_MAX < HIGH_CONFIDENCE, "only measured groups are certain");
