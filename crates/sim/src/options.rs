//! What a run is told beside its seed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use zonda_files::SeededBug as FilesBug;
use zonda_image::SeededBug as ImageBug;
use zonda_raid::SeededBug as VolumesBug;
use zonda_ssd::SeededBug;

use crate::network::NetworkBug;

/// Where all kinds of worlds are asked for, the remainder of a seed by this decides.
const KINDS_SHARE: u64 = 5;
/// The remainder of those that make a network.
const NETWORK_REMAINDER: u64 = 0;
/// The remainder of those that make a world with files.
const FILES_REMAINDER: u64 = 2;
/// The remainder of those that make a world with a volume.
const VOLUMES_REMAINDER: u64 = 3;
/// The remainder of those that make an image; the others make a drive.
const IMAGES_REMAINDER: u64 = 4;

/// How much is in the world that a seed makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One command at a time over a bare drive, no faults; every zone is held against the oracle after every command.
    Lite,
    /// Everything: layers, queues, faults, zones that degrade, power losses.
    #[default]
    Swarm,
    /// A long run over a bare drive without faults, in which every command must end within a bound.
    Performance,
}

/// What is in a world: a drive with its layers, hosts that reach drives over a network, a store of files, a volume, or an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorldKind {
    /// One host at one drive.
    #[default]
    Drive,
    /// Some hosts, a target, and a network between them.
    Network,
    /// Clients at a store of files on a drive.
    Files,
    /// A redundant volume over several drives.
    Volumes,
    /// A drive that is kept in files.
    Images,
    /// Of five seeds one makes a network, one a store of files, one a volume, one an image, and one a drive.
    All,
}

/// A mistake that is made on purpose, to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// In the drive: there are only worlds of drives then.
    Drive(SeededBug),
    /// Between hosts and drives: there are only worlds of networks then.
    Network(NetworkBug),
    /// In a store of files: there are only worlds with files then.
    Files(FilesBug),
    /// In a volume: there are only worlds with volumes then.
    Volumes(VolumesBug),
    /// In an image: there are only images then.
    Images(ImageBug),
}

/// A part of a world that can be left out, so that a failure is told with as little around it as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Commands that fail or get lost on their way.
    Faults,
    /// Completions that are held back.
    Delays,
    /// The recording layer.
    Trace,
    /// A slice of the drive instead of the whole.
    Slice,
    /// Losses of power.
    PowerLoss,
    /// Zones that become read only or offline by themselves.
    Degradation,
    /// Pauses of the host between commands.
    Pauses,
    /// Zone Random Write Areas.
    Zrwa,
    /// Conventional zones.
    Conventional,
    /// Payloads of bytes; fingerprints are kept instead.
    Bytes,
    /// A mix of operations of the seed's own; the even mix is used instead.
    Mix,
    /// Connections that break.
    Cuts,
    /// Stretches of time in which a network carries nothing, or little.
    Blackholes,
    /// Hosts that die, and come back as new ones; programs of stores that do.
    Deaths,
    /// Hosts that stop reading.
    Stalls,
    /// Servers that die.
    Crashes,
    /// Strangers that send what makes no sense, or nothing.
    Strangers,
    /// Digests of headers and data.
    Digests,
    /// Authentication.
    Authentication,
    /// Hosts that share a namespace by reservations.
    Reservations,
    /// Moving of live data, in a store of files.
    Migration,
    /// Flushes: of a store of files that does not trust a write cache, or of a volume's host.
    Flushes,
    /// Trims, of a volume's host.
    Trims,
    /// Blocks of a volume's members that change by themselves, or cannot be read.
    Rot,
    /// Members of a volume that are pulled, or fail altogether.
    MemberLosses,
    /// Members of a volume that are absent from one mount, and there at the next.
    Absences,
    /// Members of a volume that are replaced.
    Rebuilds,
    /// Scrubs of a volume.
    Scrubs,
    /// Members of a volume that are slower than others.
    SlowMembers,
    /// Caches of a volume's members that may lose what was not flushed.
    Caches,
    /// More members of a volume absent, unreadable or damaged than it tolerates.
    BeyondTolerance,
    /// Members of a volume that are used without each other.
    SplitBrain,
    /// Members of a volume that come back as they were a while ago.
    OldCopies,
    /// A volume's program that does not run for a while, and members that pause though they are needed.
    LongPauses,
    /// Failures that all members of a volume share.
    SharedFailures,
    /// Members of a volume that are lost after a scrub.
    ScrubLosses,
    /// Failures during a rebuild of a volume.
    RebuildFailures,
    /// Resets of zones and reports on zones that fail.
    ResetFaults,
    /// Flushes that do nothing.
    IgnoredFlushes,
    /// Writes that go to another place, or are cut short, and are reported as written.
    MisdirectedWrites,
    /// Creations and openings of an image that are cut short.
    CutOpenings,
    /// A file system without free space, under an image.
    FullDisk,
    /// Files of an image that are cut.
    Truncation,
}

/// What a run is told beside its seed. The default is a whole swarm run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kind of world.
    pub mode: Mode,
    /// What is in the world.
    pub world: WorldKind,
    /// A bug to plant, to see whether it is found.
    pub bug: Option<Bug>,
    /// At most so many commands of load; the seed's own number if absent.
    pub commands_max: Option<u64>,
    /// At most so many commands at a time; the seed's own number if absent.
    pub queue_depth_max: Option<u32>,
    /// So many times the seed's own number of commands; at least 1.
    pub scale: u64,
    /// What is left out of the world.
    pub without: BTreeSet<Part>,
}

/// A name that is none of those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The name given.
    pub name: String,
    /// Those there are.
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
    pub const ALL: [(&'static str, Part); 43] = [
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
        ("deaths", Part::Deaths),
        ("stalls", Part::Stalls),
        ("crashes", Part::Crashes),
        ("strangers", Part::Strangers),
        ("digests", Part::Digests),
        ("authentication", Part::Authentication),
        ("reservations", Part::Reservations),
        ("migration", Part::Migration),
        ("flushes", Part::Flushes),
        ("trims", Part::Trims),
        ("rot", Part::Rot),
        ("member-losses", Part::MemberLosses),
        ("absences", Part::Absences),
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
        ("cut-openings", Part::CutOpenings),
        ("full-disk", Part::FullDisk),
        ("truncation", Part::Truncation),
    ];

    /// The part's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Part::ALL, self)
    }

    /// Whether worlds of a kind have this part.
    pub(crate) fn is_in(self, kind: WorldKind) -> bool {
        use WorldKind::{Drive, Files, Images, Network, Volumes};
        let kinds: &[WorldKind] = match self {
            Part::Faults | Part::PowerLoss => &[Drive, Network, Files, Volumes, Images],
            Part::Mix => &[Drive, Network, Files, Volumes],
            Part::Delays | Part::Pauses => &[Drive, Network, Files],
            Part::Zrwa => &[Drive, Network, Images],
            Part::Degradation => &[Drive, Files, Volumes, Images],
            Part::Trace => &[Drive, Files],
            Part::Conventional => &[Drive, Files, Images],
            Part::Slice | Part::Bytes => &[Drive],
            Part::Deaths => &[Network, Files, Volumes, Images],
            Part::Reservations => &[Network, Images],
            Part::Rot | Part::OldCopies => &[Volumes, Images],
            Part::CutOpenings | Part::FullDisk | Part::Truncation => &[Images],
            Part::Cuts
            | Part::Blackholes
            | Part::Stalls
            | Part::Crashes
            | Part::Strangers
            | Part::Digests
            | Part::Authentication => &[Network],
            Part::Migration => &[Files],
            Part::Flushes => &[Files, Volumes],
            Part::Trims
            | Part::MemberLosses
            | Part::Absences
            | Part::Rebuilds
            | Part::Scrubs
            | Part::SlowMembers
            | Part::Caches
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

impl WorldKind {
    /// Every kind, with its name.
    pub const ALL: [(&'static str, WorldKind); 6] = [
        ("drive", WorldKind::Drive),
        ("network", WorldKind::Network),
        ("files", WorldKind::Files),
        ("volumes", WorldKind::Volumes),
        ("images", WorldKind::Images),
        ("all", WorldKind::All),
    ];
    /// What `all` was called when there were two kinds; still understood.
    pub const ALL_FORMER_NAME: &'static str = "both";

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&WorldKind::ALL, self)
    }
}

impl FromStr for WorldKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<WorldKind, UnknownName> {
        if name == WorldKind::ALL_FORMER_NAME {
            return Ok(WorldKind::All);
        }
        find("a kind of world", &WorldKind::ALL, name)
    }
}

impl From<SeededBug> for Bug {
    fn from(bug: SeededBug) -> Bug {
        Bug::Drive(bug)
    }
}

impl From<NetworkBug> for Bug {
    fn from(bug: NetworkBug) -> Bug {
        Bug::Network(bug)
    }
}

impl From<FilesBug> for Bug {
    fn from(bug: FilesBug) -> Bug {
        Bug::Files(bug)
    }
}

impl From<VolumesBug> for Bug {
    fn from(bug: VolumesBug) -> Bug {
        Bug::Volumes(bug)
    }
}

impl From<ImageBug> for Bug {
    fn from(bug: ImageBug) -> Bug {
        Bug::Images(bug)
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
        find("a part of a world", &Part::ALL, name)
    }
}

/// Every bug that can be planted, with its name.
#[must_use]
pub fn bugs() -> Vec<(&'static str, Bug)> {
    let of_drives = SeededBug::ALL.iter().map(|(name, bug)| (*name, Bug::Drive(*bug)));
    let of_networks = NetworkBug::ALL.iter().map(|(name, bug)| (*name, Bug::Network(*bug)));
    let of_files = FilesBug::ALL.iter().map(|(name, bug)| (*name, Bug::Files(*bug)));
    let of_volumes = VolumesBug::ALL.iter().map(|(name, bug)| (*name, Bug::Volumes(*bug)));
    let of_images = ImageBug::ALL.iter().map(|(name, bug)| (*name, Bug::Images(*bug)));
    of_drives.chain(of_networks).chain(of_files).chain(of_volumes).chain(of_images).collect()
}

/// The bug of this name.
///
/// # Errors
/// With the names there are.
pub fn bug_by_name(name: &str) -> Result<Bug, UnknownName> {
    find("a bug that can be planted", &bugs(), name)
}

/// The name of a bug.
#[must_use]
pub fn bug_name(bug: impl Into<Bug>) -> &'static str {
    name_of(&bugs(), bug.into())
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Swarm,
            world: WorldKind::Drive,
            bug: None,
            commands_max: None,
            queue_depth_max: None,
            scale: 1,
            without: BTreeSet::new(),
        }
    }
}

impl Options {
    /// A whole run in a mode.
    #[must_use]
    pub fn of(mode: Mode) -> Options {
        Options { mode, ..Options::default() }
    }

    /// A whole run of this kind of world.
    #[must_use]
    pub fn of_world(world: WorldKind) -> Options {
        Options { world, ..Options::default() }
    }

    /// The same with a bug planted.
    #[must_use]
    pub fn with_bug(self, bug: impl Into<Bug>) -> Options {
        Options { bug: Some(bug.into()), ..self }
    }

    /// What is in the world of a seed: a bug decides by where it is, and only whole worlds have more than a drive.
    #[must_use]
    pub fn world_of(&self, seed: u64) -> WorldKind {
        match (self.bug, self.world) {
            (Some(Bug::Drive(_)), _) => WorldKind::Drive,
            (Some(Bug::Network(_)), _) => WorldKind::Network,
            (Some(Bug::Files(_)), _) => WorldKind::Files,
            (Some(Bug::Volumes(_)), _) => WorldKind::Volumes,
            (Some(Bug::Images(_)), _) => WorldKind::Images,
            _ if self.mode != Mode::Swarm => WorldKind::Drive,
            (None, WorldKind::All) => match seed % KINDS_SHARE {
                NETWORK_REMAINDER => WorldKind::Network,
                FILES_REMAINDER => WorldKind::Files,
                VOLUMES_REMAINDER => WorldKind::Volumes,
                IMAGES_REMAINDER => WorldKind::Images,
                _ => WorldKind::Drive,
            },
            (None, kind) => kind,
        }
    }

    /// Whether a part of the world is there.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// The command that makes this run again.
    #[must_use]
    pub fn replay_command(&self, seed: u64) -> String {
        let mut command = format!("zonda sim {seed} --{}", self.mode.name());
        if self.bug.is_none() && self.world_of(seed) != WorldKind::Drive {
            command += &format!(" --world {}", self.world_of(seed).name());
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
        write!(f, "\"{}\" is not {}: there are {}", self.name, self.what, self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

fn find<T: Copy>(what: &'static str, all: &[(&'static str, T)], name: &str) -> Result<T, UnknownName> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| UnknownName {
        what,
        name: name.to_owned(),
        known: all.iter().map(|(known, _)| *known).collect(),
    })
}

fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map(|(name, _)| *name).expect("every value is listed with its name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        assert!(Mode::ALL.iter().all(|(name, mode)| name.parse() == Ok(*mode)));
        assert!(Part::ALL.iter().all(|(name, part)| name.parse() == Ok(*part)));
        assert!(WorldKind::ALL.iter().all(|(name, kind)| name.parse() == Ok(*kind)));
        assert_eq!(WorldKind::ALL_FORMER_NAME.parse(), Ok(WorldKind::All));
        assert!(bugs().iter().all(|(name, bug)| bug_by_name(name) == Ok(*bug) && bug_name(*bug) == *name));
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let error = "fast".parse::<Mode>().unwrap_err();
        assert_eq!(error.to_string(), "\"fast\" is not a mode: there are lite, swarm, performance");
    }

    #[test]
    fn the_replay_command_says_everything_that_differs_from_a_whole_run() {
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
        let all = Options::of_world(WorldKind::All);
        assert_eq!(all.replay_command(5), "zonda sim 5 --swarm --world network");
        assert_eq!(all.replay_command(6), "zonda sim 6 --swarm");
        assert_eq!(all.replay_command(7), "zonda sim 7 --swarm --world files");
        assert_eq!(all.replay_command(8), "zonda sim 8 --swarm --world volumes");
        assert_eq!(all.replay_command(9), "zonda sim 9 --swarm --world images");
    }
}
