//! Replays a seed, or a stored entry of the bug base.

use std::str::FromStr;

use zonda_sim::BugbaseEntry;

use super::{SimArgs, Verdict};
use crate::errors::Failure;
use crate::files;
use crate::output::{print, print_json};

/// The file name extension of an entry.
const ENTRY_SUFFIX: &str = ".toml";

/// A seed or an entry to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    Seed(u64),
    /// The path of an entry.
    Entry(String),
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Replay, String> {
        if text.ends_with(ENTRY_SUFFIX) {
            return Ok(Replay::Entry(text.to_owned()));
        }
        text.parse()
            .map(Replay::Seed)
            .map_err(|_| format!("must be a seed (an unsigned 64-bit integer) or the path of a {ENTRY_SUFFIX} file"))
    }
}

/// Replays an entry with the scenario in its file.
pub(super) fn entry(path: &str, args: &SimArgs) -> Result<(), Failure> {
    if let Some(option) = args.generator_options().first() {
        let message = format!("{option} cannot be used with a stored failure: the file defines the scenario");
        return Err(Failure::input(message, format!("leave out {option}, or give a seed instead of the file")));
    }
    let text = files::read_text(path, "stored failures are in the directory sim/bugbase of zonda's sources")?;
    let entry = BugbaseEntry::parse(&text).map_err(|error| Failure::in_file(&error, path, &text))?;
    let outcome = entry.run();
    let command = format!("zonda sim {path}");
    if args.json {
        print_json(&Verdict { replay: command, ..Verdict::of(&outcome, &entry.options) })?;
    } else {
        print(&format!("{}\n", entry.event_trace(&command).trim_end()))?;
        if let Some(note) = &entry.note {
            print(&format!("\nNote: {note}\n"))?;
        }
    }
    if outcome.is_good() { Ok(()) } else { Err(Failure::Run) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_seed_and_a_toml_path_an_entry() {
        assert_eq!("18446744073709551615".parse(), Ok(Replay::Seed(u64::MAX)));
        assert_eq!("a/42.toml".parse(), Ok(Replay::Entry("a/42.toml".to_owned())));
        assert!("42.json".parse::<Replay>().is_err());
    }
}
