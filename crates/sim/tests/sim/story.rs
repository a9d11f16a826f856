//! The story of one seed, word for word.
#![allow(clippy::disallowed_methods, reason = "the story is kept in a file, which only this test reads and writes")]

use std::fs;
use std::path::PathBuf;

use zonda_sim::{Options, bug_by_name, story};

fn told() -> String {
    let bug = bug_by_name("torn-block").expect("it is a seeded bug");
    story(0, &Options { commands_max: Some(200), ..Options::default().with_bug(bug) })
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sim/story.txt")
}

#[test]
fn the_story_of_a_torn_block_is_told_as_before() {
    assert_eq!(told(), fs::read_to_string(file()).unwrap(), "see the_story_is_written_again");
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored the_story_is_written`, and read what has changed.
#[test]
#[ignore = "writes a file"]
fn the_story_is_written_again() {
    fs::write(file(), told()).unwrap();
}
