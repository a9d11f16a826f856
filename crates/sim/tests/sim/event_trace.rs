//! The event trace of one seed, word for word.
#![allow(clippy::disallowed_methods, reason = "the trace is stored in a file, which only this test reads and writes")]

use std::fs;
use std::path::PathBuf;

use zonda_sim::{Options, bug_by_name, event_trace};

fn event_trace_of_torn_block() -> String {
    let bug = bug_by_name("torn-block").expect("torn-block is a seeded bug");
    event_trace(0, &Options { commands_max: Some(200), ..Options::default().with_bug(bug) })
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sim/event_trace.txt")
}

#[test]
fn the_event_trace_of_a_torn_block_is_as_stored() {
    assert_eq!(
        event_trace_of_torn_block(),
        fs::read_to_string(file()).unwrap(),
        "see the_event_trace_is_written_again"
    );
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored the_event_trace_is_written`, and
/// review the changes.
#[test]
#[ignore = "writes a file"]
fn the_event_trace_is_written_again() {
    fs::write(file(), event_trace_of_torn_block()).unwrap();
}
