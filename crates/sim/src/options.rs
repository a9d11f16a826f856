//! Options of a run besides its seed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::bug::{Bug, bug_name};

/// With all kinds of scenarios, the remainder of the seed by this divisor selects the kind.
const KINDS_SHARE: u64 = 6;
/// The remainder that selects a network.
const NETWORK_REMAINDER: u64 = 0;
/// The remainder that selects a file store.
const FILES_REMAINDER: u64 = 2;
/// The remainder that selects a volume.
const VOLUMES_REMAINDER: u64 = 3;
/// The remainder that selects an image.
const IMAGES_REMAINDER: u64 = 4;
/// The remainder that selects a pool; the others select a drive.
const ELASTIC_REMAINDER: u64 = 5;

/// How much is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A bare drive, queue depth 1, no faults; every zone is compared with the oracle after every
    /// command.
    Lite,
    /// Everything: layers, queues, faults, zone degradation, power losses.
    #[default]
    Swarm,
    /// A long run on a bare drive without faults, in which every command must complete within a
    /// limit.
    Performance,
}

/// The kind of scenario: a drive with layers, hosts that reach drives over a network, a file store,
/// a volume, an image, or a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScenarioKind {
    /// One host on one drive.
    #[default]
    Drive,
    /// Hosts, a target, and a network between them.
    Network,
    /// Clients of a file store on a drive.
    Files,
    /// A redundant volume over several drives.
    Volumes,
    /// A file-backed drive image.
    Images,
    /// Tenants of a pool on a drive.
    Elastic,
    /// A scheduler over a drive with hidden conflict groups.
    Groups,
    /// All kinds but the last: of six consecutive seeds one of each.
    All,
}

/// A part of a scenario that can be left out, to reduce a failure to a minimal scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Commands that fail or are lost.
    Faults,
    /// Delayed completions.
    Delays,
    /// The recording layer.
    Trace,
    /// A slice of the drive instead of the whole.
    Slice,
    /// Power losses.
    PowerLoss,
    /// Zones that become read only or offline.
    Degradation,
    /// Pauses of the host between commands.
    Pauses,
    /// Zone Random Write Areas.
    Zrwa,
    /// Conventional zones.
    Conventional,
    /// Devices that store bytes; fingerprints are stored instead.
    Bytes,
    /// A random mix of operations; an even mix is used instead.
    Mix,
    /// Connection resets.
    Cuts,
    /// Periods in which connections carry no data, or little.
    Blackholes,
    /// Hosts that are killed and restarted; processes of file stores, volumes and images too.
    Deaths,
    /// Hosts that stop reading from their connections.
    Stalls,
    /// Servers that are killed.
    Crashes,
    /// Rogue clients, which send garbage or nothing.
    RogueClients,
    /// Header and data digests.
    Digests,
    /// Authentication.
    Authentication,
    /// Hosts that share a namespace by reservations.
    Reservations,
    /// Migration of live data, in a file store.
    Migration,
    /// Flushes: of a file store on a drive with a volatile write cache, or of a volume's host.
    Flushes,
    /// Trims of a volume's host.
    Trims,
    /// Silent corruption and unreadable blocks: of a volume's members, or of an image's files.
    Rot,
    /// Members of a volume that are removed, or fail as a whole.
    MemberLosses,
    /// Members of a volume that are missing at one mount, and present at the next.
    Absences,
    /// Members of a volume that are replaced.
    Rebuilds,
    /// Scrubs of a volume.
    Scrubs,
    /// Members of a volume that are slower than others.
    SlowMembers,
    /// Volatile write caches of a volume's members.
    Caches,
    /// More missing, unreadable or damaged members of a volume than it tolerates.
    BeyondTolerance,
    /// Split brain: two sets of members of a volume that are used separately.
    SplitBrain,
    /// Members of a volume, or files of an image, that are replaced by an earlier copy.
    OldCopies,
    /// Periods in which a volume's process does not run, and pauses of members that are needed.
    LongPauses,
    /// Failures of all members of a volume at once.
    SharedFailures,
    /// Members of a volume that are lost after a scrub.
    ScrubLosses,
    /// Failures during a rebuild of a volume.
    RebuildFailures,
    /// Zone resets and zone reports that fail.
    ResetFaults,
    /// Flushes that succeed without effect.
    IgnoredFlushes,
    /// Misdirected and torn writes that are reported as successful.
    MisdirectedWrites,
    /// Interrupted creations and openings of an image.
    CutOpenings,
    /// A full file system below an image.
    FullDisk,
    /// Truncated files of an image.
    Truncation,
    /// A scheduler between a pool and its drive.
    Scheduler,
    /// Namespaces of a pool that are created, resized and deleted.
    NamespaceChanges,
    /// An image in files below a pool, instead of the drive model.
    Images,
}

/// Options of a run besides its seed. The default is a swarm run with every part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The mode.
    pub mode: Mode,
    /// The kind of scenario.
    pub scenario: ScenarioKind,
    /// The seeded bug, if any.
    pub bug: Option<Bug>,
    /// Maximum number of commands; by default the number generated from the seed.
    pub commands_max: Option<u64>,
    /// Maximum queue depth; by default the depth generated from the seed.
    pub queue_depth_max: Option<u32>,
    /// Factor for the number of commands generated from the seed; at least 1.
    pub scale: u64,
    /// Parts to leave out of the scenario.
    pub without: BTreeSet<Part>,
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What the name should denote, with its article.
    pub what: &'static str,
    /// The name given.
    pub name: String,
    /// The valid names.
    pub known: Vec<&'static str>,
}

impl Mode {
    /// Every mode, with its name.
    pub const ALL: [(&'static str, Mode); 3] =
        [("lite", Mode::Lite), ("swarm", Mode::Swarm), ("performance", Mode::Performance)];

    /// The mode's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Mode::ALL, self)
    }
}

impl Part {
    /// Every part, with its name.
    pub const ALL: [(&'static str, Part); 46] = [
        ("faults", Part::Faults),
        ("delays", Part::Delays),
        ("trace", Part::Trace),
        ("slice", Part::Slice),
        ("power-loss", Part::PowerLoss),
        ("degradation", Part::Degradation),
        ("pauses", Part::Pauses),
        ("zrwa", Part::Zrwa),
        ("conventional", Part::Conventional),
        ("bytes", Part::Bytes),
        ("mix", Part::Mix),
        ("cuts", Part::Cuts),
        ("blackholes", Part::Blackholes),
        ("kills", Part::Deaths),
        ("stalls", Part::Stalls),
        ("crashes", Part::Crashes),
        ("rogue-clients", Part::RogueClients),
        ("digests", Part::Digests),
        ("authentication", Part::Authentication),
        ("reservations", Part::Reservations),
        ("migration", Part::Migration),
        ("flushes", Part::Flushes),
        ("trims", Part::Trims),
        ("rot", Part::Rot),
        ("member-losses", Part::MemberLosses),
        ("missing-members", Part::Absences),
        ("rebuilds", Part::Rebuilds),
        ("scrubs", Part::Scrubs),
        ("slow-members", Part::SlowMembers),
        ("caches", Part::Caches),
        ("beyond-tolerance", Part::BeyondTolerance),
        ("split-brain", Part::SplitBrain),
        ("old-copies", Part::OldCopies),
        ("long-pauses", Part::LongPauses),
        ("shared-failures", Part::SharedFailures),
        ("scrub-losses", Part::ScrubLosses),
        ("rebuild-failures", Part::RebuildFailures),
        ("reset-faults", Part::ResetFaults),
        ("ignored-flushes", Part::IgnoredFlushes),
        ("misdirected-writes", Part::MisdirectedWrites),
        ("interrupted-opens", Part::CutOpenings),
        ("full-disk", Part::FullDisk),
        ("truncation", Part::Truncation),
        ("schedulers", Part::Scheduler),
        ("namespace-changes", Part::NamespaceChanges),
        ("images", Part::Images),
    ];

    /// Former names, which are still accepted: stored scenarios have them.
    pub const FORMER_NAMES: [(&'static str, Part); 4] = [
        ("deaths", Part::Deaths),
        ("strangers", Part::RogueClients),
        ("absences", Part::Absences),
        ("cut-openings", Part::CutOpenings),
    ];

    /// The part's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Part::ALL, self)
    }

    /// Whether scenarios of a kind can have this part.
    pub(crate) fn is_in(self, kind: ScenarioKind) -> bool {
        use ScenarioKind::{Drive, Elastic, Files, Groups, Images, Network, Volumes};
        let kinds: &[ScenarioKind] = match self {
            Part::Faults => &[Drive, Network, Files, Volumes, Images, Elastic, Groups],
            Part::PowerLoss => &[Drive, Network, Files, Volumes, Images, Elastic],
            Part::Mix => &[Drive, Network, Files, Volumes, Elastic],
            Part::Delays => &[Drive, Network, Files, Elastic, Groups],
            Part::Pauses => &[Drive, Network, Files, Elastic],
            Part::Zrwa => &[Drive, Network, Images],
            Part::Degradation => &[Drive, Files, Volumes, Images, Elastic, Groups],
            Part::Trace => &[Drive, Files],
            Part::Conventional => &[Drive, Files, Images],
            Part::Slice | Part::Bytes => &[Drive],
            Part::Deaths => &[Network, Files, Volumes, Images, Elastic],
            Part::Reservations => &[Network, Images],
            Part::Rot | Part::OldCopies => &[Volumes, Images],
            Part::CutOpenings => &[Images, Elastic],
            Part::FullDisk | Part::Truncation => &[Images],
            Part::Scheduler => &[Elastic, Groups],
            Part::NamespaceChanges | Part::Images => &[Elastic],
            Part::Caches => &[Volumes, Elastic],
            Part::Cuts
            | Part::Blackholes
            | Part::Stalls
            | Part::Crashes
            | Part::RogueClients
            | Part::Digests
            | Part::Authentication => &[Network],
            Part::Migration => &[Files],
            Part::Flushes => &[Files, Volumes, Elastic],
            Part::Trims
            | Part::MemberLosses
            | Part::Absences
            | Part::Rebuilds
            | Part::Scrubs
            | Part::SlowMembers
            | Part::BeyondTolerance
            | Part::SplitBrain
            | Part::LongPauses
            | Part::SharedFailures
            | Part::ScrubLosses
            | Part::RebuildFailures
            | Part::ResetFaults
            | Part::IgnoredFlushes
            | Part::MisdirectedWrites => &[Volumes],
        };
        kinds.contains(&kind)
    }
}

impl ScenarioKind {
    /// Every kind, with its name.
    pub const ALL: [(&'static str, ScenarioKind); 8] = [
        ("drive", ScenarioKind::Drive),
        ("network", ScenarioKind::Network),
        ("files", ScenarioKind::Files),
        ("volumes", ScenarioKind::Volumes),
        ("images", ScenarioKind::Images),
        ("elastic", ScenarioKind::Elastic),
        ("groups", ScenarioKind::Groups),
        ("all", ScenarioKind::All),
    ];
    /// The former name of `all`, still accepted.
    pub const ALL_FORMER_NAME: &'static str = "both";

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&ScenarioKind::ALL, self)
    }
}

impl FromStr for ScenarioKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<ScenarioKind, UnknownName> {
        if name == ScenarioKind::ALL_FORMER_NAME {
            return Ok(ScenarioKind::All);
        }
        find("a kind of scenario", &ScenarioKind::ALL, name)
    }
}

impl FromStr for Mode {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Mode, UnknownName> {
        find("a mode", &Mode::ALL, name)
    }
}

impl FromStr for Part {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Part, UnknownName> {
        match Part::FORMER_NAMES.iter().find(|(former, _)| *former == name) {
            Some((_, part)) => Ok(*part),
            None => find("a part of a scenario", &Part::ALL, name),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Swarm,
            scenario: ScenarioKind::Drive,
            bug: None,
            commands_max: None,
            queue_depth_max: None,
            scale: 1,
            without: BTreeSet::new(),
        }
    }
}

impl Options {
    /// A run with every part, in this mode.
    #[must_use]
    pub fn of(mode: Mode) -> Options {
        Options { mode, ..Options::default() }
    }

    /// A swarm run of this kind of scenario.
    #[must_use]
    pub fn of_scenario(scenario: ScenarioKind) -> Options {
        Options { scenario, ..Options::default() }
    }

    /// The same run with a seeded bug.
    #[must_use]
    pub fn with_bug(self, bug: impl Into<Bug>) -> Options {
        Options { bug: Some(bug.into()), ..self }
    }

    /// The kind of scenario of a seed: a seeded bug implies its kind, and modes other than swarm
    /// have drives only.
    #[must_use]
    pub fn scenario_of(&self, seed: u64) -> ScenarioKind {
        match (self.bug, self.scenario) {
            (Some(Bug::Drive(_)), _) => ScenarioKind::Drive,
            (Some(Bug::Network(_)), _) => ScenarioKind::Network,
            (Some(Bug::Files(_)), _) => ScenarioKind::Files,
            (Some(Bug::Volumes(_)), _) => ScenarioKind::Volumes,
            (Some(Bug::Images(_)), _) => ScenarioKind::Images,
            (Some(Bug::Elastic(_)), _) => ScenarioKind::Elastic,
            (Some(Bug::Groups(_)), _) => ScenarioKind::Groups,
            _ if self.mode != Mode::Swarm => ScenarioKind::Drive,
            (None, ScenarioKind::All) => match seed % KINDS_SHARE {
                NETWORK_REMAINDER => ScenarioKind::Network,
                FILES_REMAINDER => ScenarioKind::Files,
                VOLUMES_REMAINDER => ScenarioKind::Volumes,
                IMAGES_REMAINDER => ScenarioKind::Images,
                ELASTIC_REMAINDER => ScenarioKind::Elastic,
                _ => ScenarioKind::Drive,
            },
            (None, kind) => kind,
        }
    }

    /// Whether the scenario has a part.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// The command that replays this run.
    #[must_use]
    pub fn replay_command(&self, seed: u64) -> String {
        let mut command = format!("zonda sim {seed} --{}", self.mode.name());
        if self.bug.is_none() && self.scenario_of(seed) != ScenarioKind::Drive {
            command += &format!(" --scenario {}", self.scenario_of(seed).name());
        }
        if let Some(bug) = self.bug {
            command += &format!(" --bug {}", bug_name(bug));
        }
        if let Some(commands) = self.commands_max {
            command += &format!(" --commands {commands}");
        }
        if let Some(depth) = self.queue_depth_max {
            command += &format!(" --queue-depth {depth}");
        }
        if self.scale != 1 {
            command += &format!(" --scale {}", self.scale);
        }
        if !self.without.is_empty() {
            let names: Vec<&str> = self.without.iter().map(|part| part.name()).collect();
            command += &format!(" --without {}", names.join(","));
        }
        command
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}: must be one of {}", self.name, self.what, self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

pub(crate) fn find<T: Copy>(what: &'static str, all: &[(&'static str, T)], name: &str) -> Result<T, UnknownName> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| UnknownName {
        what,
        name: name.to_owned(),
        known: all.iter().map(|(known, _)| *known).collect(),
    })
}

pub(crate) fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map(|(name, _)| *name).expect("every value is listed with its name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_ssd::SeededBug;

    use crate::bug::{bug_by_name, bugs};

    #[test]
    fn every_name_reads_back() {
        assert!(Mode::ALL.iter().all(|(name, mode)| name.parse() == Ok(*mode)));
        assert!(Part::ALL.iter().all(|(name, part)| name.parse() == Ok(*part)));
        assert!(ScenarioKind::ALL.iter().all(|(name, kind)| name.parse() == Ok(*kind)));
        assert_eq!(ScenarioKind::ALL_FORMER_NAME.parse(), Ok(ScenarioKind::All));
        assert!(bugs().iter().all(|(name, bug)| bug_by_name(name) == Ok(*bug) && bug_name(*bug) == *name));
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_valid_names() {
        let error = "fast".parse::<Mode>().unwrap_err();
        assert_eq!(error.to_string(), "\"fast\" is not a mode: must be one of lite, swarm, performance");
    }

    #[test]
    fn the_replay_command_has_every_option_that_differs_from_the_default() {
        assert_eq!(Options::default().replay_command(7), "zonda sim 7 --swarm");
        let options = Options {
            bug: Some(SeededBug::TornBlock.into()),
            commands_max: Some(40),
            queue_depth_max: Some(2),
            without: [Part::Slice, Part::Faults].into(),
            ..Options::default()
        };
        let expected = "zonda sim 7 --swarm --bug torn-block --commands 40 --queue-depth 2 --without faults,slice";
        assert_eq!(options.replay_command(7), expected);
        let all = Options::of_scenario(ScenarioKind::All);
        assert_eq!(all.replay_command(6), "zonda sim 6 --swarm --scenario network");
        assert_eq!(all.replay_command(7), "zonda sim 7 --swarm");
        assert_eq!(all.replay_command(8), "zonda sim 8 --swarm --scenario files");
        assert_eq!(all.replay_command(9), "zonda sim 9 --swarm --scenario volumes");
        assert_eq!(all.replay_command(10), "zonda sim 10 --swarm --scenario images");
        assert_eq!(all.replay_command(11), "zonda sim 11 --swarm --scenario elastic");
    }
}
