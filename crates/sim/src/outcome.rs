//! How a run ended.

use std::fmt;

use zonda_zoned::{Duration, Instant, ZoneIndex};

use crate::options::{Mode, Options, WorldKind};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed of its world.
    pub seed: u64,
    /// How much is in its world.
    pub mode: Mode,
    /// What is in its world.
    pub world: WorldKind,
    /// Commands of load that the stack took; in a world with files or a volume, requests.
    pub commands: u64,
    /// Events: submissions, and polls of the stack.
    pub events: u64,
    /// Losses of power; in a network, servers that died; in a world with files or an image, programs that died too.
    pub power_losses: u64,
    /// Commands that a fault struck, and zones that degraded; in a network, everything that was done to it.
    pub faults: u64,
    /// Time that passed in the world.
    pub virtual_time: Duration,
    /// Of every submission and completion with its instant, and of everything that was found after a loss of power.
    pub hash: u64,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}

/// What went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of thing.
    pub kind: FailureKind,
    /// What exactly, for a person.
    pub message: String,
    /// When, in the world.
    pub at: Instant,
    /// The zone concerned, as the host counts it, if one is.
    pub zone: Option<ZoneIndex>,
    /// The file concerned, if one is.
    pub file: Option<String>,
    /// The block of a volume concerned, if one is.
    pub block: Option<u64>,
    /// The last commands that touched that zone, or the last of all, the oldest first; in a world with files, the last
    /// requests that named the file; in one with a volume, those that named the block.
    pub tail: Vec<String>,
}

/// What kind of thing went wrong. Shrinking keeps to one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A completion is not what the oracle says.
    WrongAnswer,
    /// A completion of no command under way.
    StrayCompletion,
    /// A command under way, and nobody will ever complete it.
    Starved,
    /// A command took longer than the bound of a performance run, or of a host that nobody disturbed.
    Slow,
    /// Something acknowledged is gone after a loss of power.
    LostWrite,
    /// A zone is in a state, or its write pointer in a place, to which no allowed course of events leads.
    ImpossibleZone,
    /// A block holds neither of the things that it may hold.
    WrongContents,
    /// More zones hold a resource than there are.
    LimitExceeded,
    /// A connection was lost, and nobody had broken it.
    BrokenConnection,
    /// Something is kept for connections that are gone.
    Leak,
    /// A store of files, a volume or an image that was there cannot be mounted or opened any more.
    MountFailed,
    /// A member of a volume that did nothing wrong is given up, or one is believed that has missed something.
    WrongMember,
    /// A member of a volume lacks what was acknowledged, or holds it wrong: the loss of another one would lose it.
    LostRedundancy,
    /// A loss of power would leave on the members of a volume what no mount could tell from damage.
    WrongOrder,
    /// Damage of files is taken for something else, or what is not damaged is lost with it.
    UndetectedDamage,
    /// An assertion failed: a broken invariant of the drive or of a layer.
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
    /// Whether nothing went wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure.is_none()
    }

    /// The verdict in a line, with the command that replays a failure.
    #[must_use]
    pub fn verdict(&self, options: &Options) -> String {
        match &self.failure {
            None => format!(
                "seed {}: good; {} commands, {} power losses, {} faults in {}, hash {:016x}",
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
