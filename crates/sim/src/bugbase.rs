//! The bugbase: failures that were found, each a small file that replays.
//!
//! An entry with a planted bug must fail with the bug and be good without; an entry without one is of a bug that has
//! been fixed, and must be good. Whoever calls reads and writes the files.

use std::fmt::Write;

use serde::Deserialize;
use zonda_config::ConfigError;

use crate::options::{Options, WorldKind, bug_by_name, bug_name};
use crate::outcome::{FailureKind, Outcome};
use crate::shrink::Shrunk;
use crate::simulate::run;

/// A failure that was found, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BugbaseEntry {
    /// The seed of the world.
    pub seed: u64,
    /// What makes the run, with the seed.
    pub options: Options,
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// What exactly failed, for a person.
    pub failure: String,
    /// What the reason was, if somebody has found out.
    pub note: Option<String>,
}

/// An entry as it stands in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    /// As text, because a TOML integer has one bit less.
    seed: String,
    mode: String,
    /// Absent for a drive.
    world: Option<String>,
    bug: Option<String>,
    commands: Option<u64>,
    queue_depth: Option<u32>,
    #[serde(default = "one")]
    scale: u64,
    #[serde(default)]
    without: Vec<String>,
    kind: String,
    failure: String,
    note: Option<String>,
}

fn one() -> u64 {
    1
}

impl BugbaseEntry {
    /// The entry of a failure that was made small.
    #[must_use]
    pub fn new(seed: u64, shrunk: &Shrunk) -> BugbaseEntry {
        BugbaseEntry {
            seed,
            options: shrunk.options.clone(),
            kind: shrunk.failure.kind,
            failure: shrunk.failure.message.clone(),
            note: None,
        }
    }

    /// A name for the entry's file, the same for the same seed and bug.
    #[must_use]
    pub fn file_name(&self) -> String {
        let what = self.options.bug.map_or_else(|| self.kind.name(), bug_name);
        format!("{what}-{}.toml", self.seed)
    }

    /// The entry as the text of its file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.write().expect("a string takes what is written to it")
    }

    /// Reads an entry back.
    ///
    /// # Errors
    /// A mistake in the text, or a name that there is not.
    pub fn parse(text: &str) -> Result<BugbaseEntry, ConfigError> {
        let entry: EntryText = zonda_config::parse(text)?;
        let seed = entry.seed.parse().map_err(|_| mistake(&format!("seed = \"{}\" is not a number", entry.seed)))?;
        let mut options = Options { scale: entry.scale, ..Options::default() };
        options.mode = entry.mode.parse().map_err(|error| mistake(&format!("mode: {error}")))?;
        if let Some(world) = entry.world {
            options.world = world.parse().map_err(|error| mistake(&format!("world: {error}")))?;
        }
        options.bug =
            entry.bug.map(|bug| bug_by_name(&bug)).transpose().map_err(|error| mistake(&error.to_string()))?;
        options.commands_max = entry.commands;
        options.queue_depth_max = entry.queue_depth;
        for part in &entry.without {
            options.without.insert(part.parse().map_err(|error| mistake(&format!("without: {error}")))?);
        }
        let kind = FailureKind::by_name(&entry.kind);
        let kind = kind.ok_or_else(|| mistake(&format!("kind = \"{}\" is not a kind of failure", entry.kind)))?;
        Ok(BugbaseEntry { seed, options, kind, failure: entry.failure, note: entry.note })
    }

    /// Replays the entry.
    ///
    /// # Errors
    /// What is not as the entry says.
    pub fn check(&self) -> Result<(), String> {
        // Without the bug, the world is of the same kind.
        let world = self.options.world_of(self.seed);
        let good = Options { bug: None, world, ..self.options.clone() };
        let outcome = run(self.seed, &good);
        if !outcome.is_good() {
            return Err(outcome.verdict(&good));
        }
        if self.options.bug.is_none() {
            return Ok(());
        }
        let Outcome { failure, .. } = run(self.seed, &self.options);
        match failure {
            Some(failure) if failure.kind == self.kind => Ok(()),
            Some(failure) => Err(format!("it must fail with {}, and fails with {failure}", self.kind.name())),
            None => Err(format!("it must fail with {}, and is good", self.kind.name())),
        }
    }

    fn write(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let options = &self.options;
        writeln!(text, "# {}", options.replay_command(self.seed))?;
        writeln!(text, "seed = \"{}\"\nmode = \"{}\"", self.seed, options.mode.name())?;
        let world = options.world_of(self.seed);
        if options.bug.is_none() && world != WorldKind::Drive {
            writeln!(text, "world = \"{}\"", world.name())?;
        }
        if let Some(bug) = options.bug {
            writeln!(text, "bug = \"{}\"", bug_name(bug))?;
        }
        if let Some(commands) = options.commands_max {
            writeln!(text, "commands = {}", commands.min(i64::MAX as u64))?;
        }
        if let Some(depth) = options.queue_depth_max {
            writeln!(text, "queue_depth = {depth}")?;
        }
        if options.scale != 1 {
            writeln!(text, "scale = {}", options.scale)?;
        }
        if !options.without.is_empty() {
            let names: Vec<String> = options.without.iter().map(|part| format!("\"{}\"", part.name())).collect();
            writeln!(text, "without = [{}]", names.join(", "))?;
        }
        writeln!(text, "kind = \"{}\"\nfailure = {}", self.kind.name(), quoted(&self.failure))?;
        if let Some(note) = &self.note {
            writeln!(text, "note = {}", quoted(note))?;
        }
        Ok(text)
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted += "\\n",
            control if control.is_control() => quoted += &format!("\\u{:04X}", control as u32),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn mistake(message: &str) -> ConfigError {
    ConfigError { message: message.to_owned(), span: None, help: None }
}

#[cfg(test)]
mod tests {
    use zonda_ssd::SeededBug;

    use super::*;
    use crate::options::Part;

    fn entry() -> BugbaseEntry {
        let options = Options {
            bug: Some(SeededBug::LostWakeup.into()),
            commands_max: Some(12),
            queue_depth_max: Some(2),
            without: [Part::Trace, Part::Slice].into(),
            ..Options::default()
        };
        let failure = "it said \"\\no\"\nand a bell \u{7}".to_owned();
        let note = Some("nobody is woken".to_owned());
        BugbaseEntry { seed: u64::MAX, options, kind: FailureKind::Starved, failure, note }
    }

    #[test]
    fn an_entry_reads_back_as_it_was_written() {
        assert_eq!(BugbaseEntry::parse(&entry().to_toml()).unwrap(), entry());
        let plain = BugbaseEntry { options: Options::default(), note: None, ..entry() };
        assert_eq!(BugbaseEntry::parse(&plain.to_toml()).unwrap(), plain);
        assert_eq!(entry().file_name(), "lost-wakeup-18446744073709551615.toml");
        assert_eq!(plain.file_name(), "starved-18446744073709551615.toml");
    }

    #[test]
    fn an_entry_begins_with_the_command_that_replays_it() {
        let expected = "# zonda sim 18446744073709551615 --swarm --bug lost-wakeup --commands 12 --queue-depth 2 \
                        --without trace,slice";
        assert_eq!(entry().to_toml().lines().next(), Some(expected));
    }

    #[test]
    fn a_name_that_there_is_not_is_a_mistake() {
        for (from, to) in [("swarm", "swam"), ("starved", "stuck"), ("lost-wakeup", "lost"), ("\"trace\"", "\"t\"")] {
            let text: String = entry().to_toml().lines().skip(1).map(|line| format!("{line}\n")).collect();
            assert!(BugbaseEntry::parse(&text.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn an_entry_that_no_longer_fails_says_so() {
        let entry = BugbaseEntry { options: Options { commands_max: Some(1), ..entry().options }, seed: 1, ..entry() };
        assert_eq!(entry.check(), Err("it must fail with starved, and is good".to_owned()));
    }
}
