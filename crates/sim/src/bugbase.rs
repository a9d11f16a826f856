//! The bug base: one file per failure, each of which can be replayed.
//!
//! An entry with a seeded bug must fail with the bug and pass without it; an entry without one is
//! of a bug that has been fixed, and must pass. The caller reads and writes the files.
//!
//! An entry replays the scenario that it stores. Its seed and options record how the scenario was
//! generated; of the options, a replay uses only the mode and the bug.

use std::fmt::Write;

use serde::Deserialize;
use zonda_config::ConfigError;

use crate::bug::{bug_by_name, bug_name};
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};
use crate::scenario::{
    DriveScenario, ElasticScenario, FilesScenario, GroupsScenario, ImagesScenario, NetworkScenario, RunText, Scenario,
    ScenarioText, VolumesScenario,
};
use crate::shrink::Shrunk;
use crate::simulate::{AnySimulation, event_trace_of, run_twice};

/// The version of the format of entries. Version 1 had no scenario, and no version.
const FORMAT: u32 = 2;

/// A stored failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BugbaseEntry {
    /// The seed that generated the scenario.
    pub seed: u64,
    /// The options with which the scenario was generated.
    pub options: Options,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// What failed, in words.
    pub failure: String,
    /// The cause, if known.
    pub note: Option<String>,
    /// The scenario that is replayed.
    pub scenario: Scenario,
}

/// The key that every version but the first has.
#[derive(Deserialize)]
struct FormatText {
    format: Option<u32>,
}

/// An entry as stored in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    #[allow(dead_code, reason = "it is checked first, by FormatText")]
    format: u32,
    /// As a string, because TOML integers are signed.
    seed: String,
    mode: String,
    /// Absent for a drive. `world` is the key of older entries.
    #[serde(alias = "world")]
    scenario: Option<String>,
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
    run: Option<RunText>,
    drive: Option<DriveScenario>,
    network: Option<NetworkScenario>,
    files: Option<FilesScenario>,
    volumes: Option<VolumesScenario>,
    images: Option<ImagesScenario>,
    elastic: Option<ElasticScenario>,
    groups: Option<GroupsScenario>,
}

fn one() -> u64 {
    1
}

impl BugbaseEntry {
    /// The entry of a shrunk failure, with the scenario that the seed generates now.
    #[must_use]
    pub fn new(seed: u64, shrunk: &Shrunk) -> BugbaseEntry {
        let mut entry = BugbaseEntry {
            seed,
            options: shrunk.options.clone(),
            kind: shrunk.failure.kind,
            failure: shrunk.failure.message.clone(),
            note: None,
            scenario: Scenario::generate(seed, &shrunk.options),
        };
        let losses = entry.run().power_losses.max(entry.run_without_bug().power_losses);
        entry.scenario.trim(losses);
        entry
    }

    /// Replays the entry, with its bug if it has one.
    #[must_use]
    pub fn run(&self) -> Outcome {
        run_twice(self.seed, &self.simulation(), &self.options)
    }

    /// The event trace of the entry's run; `replay` is the command that replays it.
    #[must_use]
    pub fn event_trace(&self, replay: &str) -> String {
        event_trace_of(self.seed, &self.simulation(), &self.options, replay)
    }

    fn run_without_bug(&self) -> Outcome {
        run_twice(self.seed, &self.simulation(), &Options { bug: None, ..self.options.clone() })
    }

    fn simulation(&self) -> AnySimulation {
        self.scenario.simulation().expect("the scenario was validated when it was parsed")
    }

    /// The name of the entry's file, determined by seed and bug.
    #[must_use]
    pub fn file_name(&self) -> String {
        let what = self.options.bug.map_or_else(|| self.kind.name(), bug_name);
        format!("{what}-{}.toml", self.seed)
    }

    /// The entry as the text of its file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.write().expect("writing to a string cannot fail")
    }

    /// Parses an entry.
    ///
    /// # Errors
    /// The first syntax error, unknown name or invalid value.
    pub fn parse(text: &str) -> Result<BugbaseEntry, ConfigError> {
        let FormatText { format } = zonda_config::parse(text)?;
        if format != Some(FORMAT) {
            let found =
                format.map_or_else(|| "no key \"format\"".to_owned(), |format| format!("\"format = {format}\""));
            let message =
                format!("not a stored failure of this version: it has {found}, expected \"format = {FORMAT}\"");
            let help = "name a file that zonda sim SEED --shrink wrote, such as those in sim/bugbase; if an older version wrote \
                        this one, repeat zonda sim with its seed and --shrink";
            return Err(ConfigError::new(message).help(help));
        }
        let entry: EntryText = zonda_config::parse(text)?;
        let (seed, options, kind) = entry.header()?;
        let EntryText { failure, note, run, drive, network, files, volumes, images, elastic, groups, .. } = entry;
        let scenario =
            Scenario::of_text(ScenarioText { run, drive, network, files, volumes, images, elastic, groups })?;
        let (stated, actual) = (options.scenario_of(seed), scenario.kind());
        if stated != actual {
            let message = format!(
                "mode, scenario and bug are of kind {}, the stored scenario is of kind {}",
                stated.name(),
                actual.name()
            );
            return Err(mistake(&message));
        }
        Ok(BugbaseEntry { seed, options, kind, failure, note, scenario })
    }

    /// Replays the entry, and checks that it fails or passes as it must.
    ///
    /// # Errors
    /// The difference between the expected and the actual result.
    pub fn check(&self) -> Result<(), String> {
        if let Some(failure) = self.run_without_bug().failure {
            return Err(format!("expected to pass without a seeded bug, but fails: {failure}"));
        }
        if self.options.bug.is_none() {
            return Ok(());
        }
        match self.run().failure {
            Some(failure) if failure.kind == self.kind => Ok(()),
            Some(failure) => Err(format!("expected to fail with {}, but fails: {failure}", self.kind.name())),
            None => Err(format!("expected to fail with {}, but passes", self.kind.name())),
        }
    }

    fn write(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let options = &self.options;
        writeln!(text, "# {}", options.replay_command(self.seed))?;
        writeln!(text, "format = {FORMAT}")?;
        writeln!(text, "seed = \"{}\"\nmode = \"{}\"", self.seed, options.mode.name())?;
        let scenario = options.scenario_of(self.seed);
        if options.bug.is_none() && scenario != ScenarioKind::Drive {
            writeln!(text, "scenario = \"{}\"", scenario.name())?;
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
        let scenario = toml::to_string_pretty(&self.scenario.to_text()).expect("a scenario can be serialized");
        writeln!(text, "\n{scenario}")?;
        text.truncate(text.trim_end().len());
        text.push('\n');
        Ok(text)
    }
}

impl EntryText {
    /// The seed, the options, and the kind of failure.
    fn header(&self) -> Result<(u64, Options, FailureKind), ConfigError> {
        let seed = self
            .seed
            .parse()
            .map_err(|_| mistake(&format!("seed = \"{}\" is not an unsigned 64-bit integer", self.seed)))?;
        let mut options = Options { scale: self.scale, ..Options::default() };
        options.mode = self.mode.parse().map_err(|error| mistake(&format!("mode: {error}")))?;
        if let Some(scenario) = &self.scenario {
            options.scenario = scenario.parse().map_err(|error| mistake(&format!("scenario: {error}")))?;
        }
        let bug = self.bug.as_ref().map(|bug| bug_by_name(bug)).transpose();
        options.bug = bug.map_err(|error| mistake(&error.to_string()))?;
        options.commands_max = self.commands;
        options.queue_depth_max = self.queue_depth;
        for part in &self.without {
            options.without.insert(part.parse().map_err(|error| mistake(&format!("without: {error}")))?);
        }
        let kind = FailureKind::by_name(&self.kind);
        let kind = kind.ok_or_else(|| mistake(&format!("kind = \"{}\" is not a kind of failure", self.kind)))?;
        Ok((seed, options, kind))
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
    use crate::shrink::shrink;
    use crate::simulate::run;

    fn entry() -> BugbaseEntry {
        let options = Options {
            bug: Some(SeededBug::LostWakeup.into()),
            commands_max: Some(12),
            queue_depth_max: Some(2),
            without: [Part::Trace, Part::Slice].into(),
            ..Options::default()
        };
        let failure = "it said \"\\no\"\nand a bell \u{7}".to_owned();
        let note = Some("no task is woken".to_owned());
        let scenario = Scenario::generate(u64::MAX, &options);
        BugbaseEntry { seed: u64::MAX, options, kind: FailureKind::Starved, failure, note, scenario }
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
    fn an_unknown_name_is_an_error() {
        for (from, to) in [("swarm", "swam"), ("starved", "stuck"), ("lost-wakeup", "lost"), ("\"trace\"", "\"t\"")] {
            let text: String = entry().to_toml().lines().skip(1).map(|line| format!("{line}\n")).collect();
            assert!(BugbaseEntry::parse(&text.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn an_entry_that_no_longer_fails_is_an_error() {
        let options = Options { commands_max: Some(1), ..entry().options };
        let scenario = Scenario::generate(1, &options);
        let entry = BugbaseEntry { options, seed: 1, scenario, ..entry() };
        assert_eq!(entry.check(), Err("expected to fail with starved, but passes".to_owned()));
    }

    #[test]
    fn an_entry_of_another_version_is_refused_with_its_version() {
        let refused = |text: &str| BugbaseEntry::parse(text).unwrap_err().message;
        let text = entry().to_toml();
        let newer = refused(&text.replace("format = 2\n", "format = 3\nnews = 1\n"));
        assert_eq!(newer, "not a stored failure of this version: it has \"format = 3\", expected \"format = 2\"");
        let first = refused(&text.replace("format = 2\n", ""));
        assert_eq!(first, "not a stored failure of this version: it has no key \"format\", expected \"format = 2\"");
    }

    #[test]
    fn an_unknown_or_missing_key_of_an_entry_is_named() {
        let text = entry().to_toml();
        let unknown = BugbaseEntry::parse(&text.replace("format = 2\n", "format = 2\nsurprise = 1\n")).unwrap_err();
        assert!(unknown.message.contains("surprise"), "{unknown:?}");
        let missing = BugbaseEntry::parse(&text.replace("kind = \"starved\"\n", "")).unwrap_err();
        assert!(missing.message.contains("kind"), "{missing:?}");
    }

    #[test]
    fn a_seeded_bug_of_a_volume_needs_a_volume_scenario() {
        let text = entry().to_toml().replace("bug = \"lost-wakeup\"", "bug = \"wrong-parity\"");
        let error = BugbaseEntry::parse(&text).unwrap_err();
        assert_eq!(error.message, "mode, scenario and bug are of kind volumes, the stored scenario is of kind drive");
    }

    /// The seed records the origin of a scenario. When it generates another one, the entry still
    /// replays its own.
    #[test]
    fn an_entry_replays_its_scenario_whatever_its_seed_would_generate_now() {
        let options = Options::default().with_bug(SeededBug::LostWakeup);
        let (seed, failure) =
            (0..500).find_map(|seed| Some((seed, run(seed, &options).failure?))).expect("it is found");
        let entry = BugbaseEntry::new(seed, &shrink(seed, &options, failure.kind).expect("it fails"));
        let whole = entry.run();
        assert_eq!(whole, run(seed, &entry.options));
        let changed =
            BugbaseEntry::parse(&entry.to_toml().replacen(&format!("seed = \"{seed}\""), "seed = \"7777\"", 1));
        let changed = changed.expect("only the seed has changed");
        assert_ne!(Scenario::generate(changed.seed, &changed.options), changed.scenario);
        assert_eq!(changed.check(), Ok(()));
        assert_eq!(Outcome { seed, ..changed.run() }, whole);
    }
}
