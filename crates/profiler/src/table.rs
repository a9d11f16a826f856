//! [`GroupTable`]: the conflict group of each zone, and how sure that is.

use zonda_zoned::{Duration, Status, ZoneIndex};

use crate::limits::HIGH_CONFIDENCE;

/// Zones of one group share flash hardware: commands to them delay each other. Groups are numbered
/// from zero by their first zones: that of group 0 is before that of group 1, whatever was found first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What was measured of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupTable {
    /// What the measurement shows in all.
    pub verdict: Verdict,
    /// One entry for each zone of the namespace.
    pub zones: Vec<ZoneEntry>,
    /// The effort.
    pub effort: Effort,
}

/// What the measurement of a drive shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Zones of different groups do not disturb each other.
    Groups {
        /// The number of groups.
        groups: u32,
    },
    /// All measured zones disturb each other, as if each were on all dies: grouping makes no sense.
    OneGroup,
    /// Reads of a zone do not delay other reads of the same zone, or by less than they vary: no
    /// groups can be measured.
    NoInterference,
    /// Not enough zones could be measured to tell.
    NotMeasured,
}

/// The group of a zone, or why it is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ZoneEntry {
    /// The zone belongs to a group.
    Known {
        /// Which.
        group: GroupId,
        /// On which grounds.
        evidence: Evidence,
    },
    /// It is not known to which group the zone belongs.
    Unknown(UnknownReason),
}

/// The grounds for the group of a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// The zone was measured beside zones of this group and of others.
    Measured {
        /// The probability that the group is right, from 0 to 1.
        confidence: f64,
    },
    /// The order in which the drive allocates zones predicts the group, and did so for other zones
    /// that were measured. This one was not.
    Inferred {
        /// The share of predictions that were right, from 0 to 1.
        confidence: f64,
    },
    /// One measurement on one side of a threshold, which gives no confidence.
    Threshold,
}

/// Why the group of a zone is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownReason {
    /// The zone is empty: there is nothing to read, and the drive may choose its dies only at the
    /// first write.
    Empty,
    /// The zone has too little data.
    TooLittleData,
    /// The zone is offline.
    Offline,
    /// Commands to the zone failed with this status.
    Failed(Status),
    /// A command to the zone did not complete in time.
    TimedOut,
    /// The measurements vary too much.
    Noise,
    /// Reads of the zone do not delay each other: its data do not come from flash.
    NotFromFlash,
    /// The zone is slow beside zones of several groups: it shares hardware with all of them, or is
    /// slow by itself.
    SeveralGroups,
    /// Measurements contradict each other.
    Contradiction,
    /// The zone was not measured: the time was over, or the verdict does not need it.
    NotMeasured,
}

/// What a measurement has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Probes, including those of the calibration and repetitions.
    pub probes: u64,
    /// Commands.
    pub commands: u64,
    /// Time from the first command to the last completion.
    pub elapsed: Duration,
}

impl GroupTable {
    /// The entry of a zone; [`UnknownReason::NotMeasured`] for a zone that does not exist.
    #[must_use]
    pub fn entry(&self, zone: ZoneIndex) -> ZoneEntry {
        self.zones.get(zone.as_usize()).copied().unwrap_or(ZoneEntry::Unknown(UnknownReason::NotMeasured))
    }

    /// The group of a zone, if it is known and zones have groups on this drive.
    #[must_use]
    pub fn group(&self, zone: ZoneIndex) -> Option<GroupId> {
        match (self.verdict, self.entry(zone)) {
            (Verdict::Groups { .. }, ZoneEntry::Known { group, .. }) => Some(group),
            _ => None,
        }
    }

    /// The number of groups; 0 if zones have none on this drive.
    #[must_use]
    pub fn groups(&self) -> u32 {
        match self.verdict {
            Verdict::Groups { groups } => groups,
            Verdict::OneGroup | Verdict::NoInterference | Verdict::NotMeasured => 0,
        }
    }
}

impl ZoneEntry {
    /// Whether the group was measured, and is wrong once in 10,000 at most.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        matches!(self, ZoneEntry::Known { evidence: Evidence::Measured { confidence }, .. } if *confidence >= HIGH_CONFIDENCE)
    }
}

impl Evidence {
    /// The probability that the group is right; `None` if it was not estimated.
    #[must_use]
    pub fn confidence(&self) -> Option<f64> {
        match self {
            Evidence::Measured { confidence } | Evidence::Inferred { confidence } => Some(*confidence),
            Evidence::Threshold => None,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Groups { groups } => write!(f, "{groups} conflict groups"),
            Verdict::OneGroup => f.write_str("all zones share the same hardware: groups make no sense on this drive"),
            Verdict::NoInterference => f.write_str("no interference: reads of one zone do not delay each other"),
            Verdict::NotMeasured => f.write_str("not measured: too few zones can be read"),
        }
    }
}

impl std::fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            UnknownReason::Empty => "empty",
            UnknownReason::TooLittleData => "too little data",
            UnknownReason::Offline => "offline",
            UnknownReason::Failed(status) => return write!(f, "failed: {status}"),
            UnknownReason::TimedOut => "a command timed out",
            UnknownReason::Noise => "measurements vary too much",
            UnknownReason::NotFromFlash => "its data do not come from flash",
            UnknownReason::SeveralGroups => "slow beside several groups",
            UnknownReason::Contradiction => "contradictory measurements",
            UnknownReason::NotMeasured => "not measured",
        })
    }
}
