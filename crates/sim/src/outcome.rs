//! The outcome of a run.

use std::fmt;

use zonda_zoned::{Duration, Instant, ZoneIndex};

use crate::options::{Mode, Options, ScenarioKind};

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The mode.
    pub mode: Mode,
    /// The kind of scenario.
    pub scenario: ScenarioKind,
    /// Commands of the load that the stack accepted; in a scenario with files or a volume,
    /// requests.
    pub commands: u64,
    /// Events: submissions, and polls of the stack.
    pub events: u64,
    /// Power losses; in a network, kills of the server; in a scenario with files, a volume or an
    /// image, process kills too.
    pub power_losses: u64,
    /// Commands on which a fault was injected, and zones that degraded; in a network, all injected
    /// faults.
    pub faults: u64,
    /// Virtual time of the run.
    pub virtual_time: Duration,
    /// Hash of every submission and completion with its instant, and of the state found after each
    /// power loss.
    pub hash: u64,
    /// The failure, if the run failed.
    pub failure: Option<Failure>,
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// What failed, in words.
    pub message: String,
    /// When, in virtual time.
    pub at: Instant,
    /// The zone concerned, in the host's numbering, if any.
    pub zone: Option<ZoneIndex>,
    /// The file concerned, if any.
    pub file: Option<String>,
    /// The block of a volume concerned, if any.
    pub block: Option<u64>,
    /// The last commands that touched that zone, or the last of all, oldest first; in a scenario
    /// with files, the last requests that named the file; with a volume, those that named the
    /// block.
    pub tail: Vec<String>,
}

/// The kind of a failure. Shrinking preserves the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A completion differs from the oracle's.
    WrongAnswer,
    /// A completion of a command that is not in flight.
    StrayCompletion,
    /// A command in flight never completes.
    Starved,
    /// A command took longer than allowed in a performance run, or for a host without injected
    /// faults.
    Slow,
    /// An acknowledged write is missing after a power loss.
    LostWrite,
    /// A zone state or write pointer that no allowed sequence of events explains.
    ImpossibleZone,
    /// A block has none of the allowed contents.
    WrongContents,
    /// More zones are active, open or have a ZRWA than the limit allows.
    LimitExceeded,
    /// A connection was lost though no fault was injected.
    BrokenConnection,
    /// Resources of closed connections are not released.
    Leak,
    /// An existing file store, volume or image cannot be mounted or opened.
    MountFailed,
    /// A healthy member of a volume was failed, or a stale one was accepted.
    WrongMember,
    /// A member of a volume lacks acknowledged data or has wrong data: the loss of another member
    /// would lose it.
    LostRedundancy,
    /// A power loss would leave the members of a volume in a state that a mount cannot distinguish
    /// from damage.
    WrongOrder,
    /// Damage of files is not detected, or undamaged data are lost with it.
    UndetectedDamage,
    /// An assertion failed: an invariant of the drive or of a layer is violated.
    Panic,
    /// Two runs of the same seed differed.
    NotRepeatable,
}

impl FailureKind {
    /// Every kind, with its name.
    pub const ALL: [(&'static str, FailureKind); 17] = [
        ("wrong-answer", FailureKind::WrongAnswer),
        ("stray-completion", FailureKind::StrayCompletion),
        ("starved", FailureKind::Starved),
        ("slow", FailureKind::Slow),
        ("lost-write", FailureKind::LostWrite),
        ("impossible-zone", FailureKind::ImpossibleZone),
        ("wrong-contents", FailureKind::WrongContents),
        ("limit-exceeded", FailureKind::LimitExceeded),
        ("broken-connection", FailureKind::BrokenConnection),
        ("leak", FailureKind::Leak),
        ("mount-failed", FailureKind::MountFailed),
        ("wrong-member", FailureKind::WrongMember),
        ("lost-redundancy", FailureKind::LostRedundancy),
        ("wrong-order", FailureKind::WrongOrder),
        ("undetected-damage", FailureKind::UndetectedDamage),
        ("panic", FailureKind::Panic),
        ("not-repeatable", FailureKind::NotRepeatable),
    ];

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = FailureKind::ALL.iter().find(|(_, kind)| *kind == self);
        found.map(|(name, _)| *name).expect("every kind is listed with its name")
    }

    /// The kind of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<FailureKind> {
        FailureKind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

impl Outcome {
    /// Whether the run passed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure.is_none()
    }

    /// The verdict in one line; for a failure, with the command that replays it.
    #[must_use]
    pub fn verdict(&self, options: &Options) -> String {
        match &self.failure {
            None => format!(
                "seed {}: passed; {} commands, {} power losses, {} faults in {}, hash {:016x}",
                self.seed, self.commands, self.power_losses, self.faults, self.virtual_time, self.hash
            ),
            Some(failure) => {
                format!("seed {}: {failure}\n  replay with: {}", self.seed, options.replay_command(self.seed))
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.kind.name(), self.at, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_by_its_name() {
        assert!(FailureKind::ALL.iter().all(|(name, kind)| FailureKind::by_name(name) == Some(*kind)));
    }
}
