//! What a run is told beside its seed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use zonda_ssd::SeededBug;

/// What kind of world a seed makes.
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
}

/// What a run is told beside its seed. The default is a whole swarm run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kind of world.
    pub mode: Mode,
    /// A bug to plant in the drive, to see whether it is found.
    pub bug: Option<SeededBug>,
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
    pub const ALL: [(&'static str, Part); 11] = [
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
    ];

    /// The part's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Part::ALL, self)
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

/// The seeded bug of this name.
///
/// # Errors
/// With the names there are.
pub fn bug_by_name(name: &str) -> Result<SeededBug, UnknownName> {
    find("a seeded bug", &SeededBug::ALL, name)
}

/// The name of a seeded bug.
#[must_use]
pub fn bug_name(bug: SeededBug) -> &'static str {
    name_of(&SeededBug::ALL, bug)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Swarm,
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

    /// The same with a bug planted.
    #[must_use]
    pub fn with_bug(self, bug: SeededBug) -> Options {
        Options { bug: Some(bug), ..self }
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
        assert!(SeededBug::ALL.iter().all(|(name, bug)| bug_by_name(name) == Ok(*bug) && bug_name(*bug) == *name));
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
            bug: Some(SeededBug::TornBlock),
            commands_max: Some(40),
            queue_depth_max: Some(2),
            without: [Part::Slice, Part::Faults].into(),
            ..Options::default()
        };
        let expected = "zonda sim 7 --swarm --bug torn-block --commands 40 --queue-depth 2 --without faults,slice";
        assert_eq!(options.replay_command(7), expected);
    }
}
