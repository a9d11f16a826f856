//! A few rounds, with the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use zonda_kill::{Launcher, Run, RunError, program};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program(None).expect("zonda exists or can be built"));

/// Restores the initial image at each start after the first.
const FORGETFUL: &str = r#"#!/bin/sh
if [ "$1" = serve ]; then
    if [ -d before ]; then rm -rf zoned; cp -r before zoned; else cp -r zoned before; fi
fi
exec PROGRAM "$@"
"#;

fn three_rounds(epoll: bool) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launcher = Launcher { program: PROGRAM.clone(), directory: directory.path().to_owned(), epoll };
    let mut run = Run::new(launcher, 1).expect("images can be created");
    for round in 0..3 {
        run.round(round, &mut |line| println!("{line}")).expect("nothing is lost");
    }
    let summary = run.summary();
    assert_eq!((summary.rounds, summary.kills), (3, 3));
    assert!(summary.tally.writes > 0, "{summary:?}");
}

#[test]
fn three_kills_under_load_lose_nothing() {
    three_rounds(false);
}

#[test]
fn three_kills_of_a_server_on_epoll_lose_nothing() {
    three_rounds(true);
}

#[test]
fn a_server_that_loses_writes_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let forgetful = directory.path().join("forgetful");
    let text = FORGETFUL.replace("PROGRAM", PROGRAM.to_str().unwrap());
    fs::write(&forgetful, text).unwrap();
    fs::set_permissions(&forgetful, Permissions::from_mode(0o700)).unwrap();
    let launcher = Launcher { program: forgetful, directory: directory.path().to_owned(), epoll: false };
    let mut run = Run::new(launcher, 3).unwrap();
    // A first load may be too short for an acknowledgement. This seed kills no server while it
    // starts.
    let failure = (0..3).find_map(|round| run.round(round, &mut |_| {}).err());
    let Some(RunError::Lost(losses)) = failure else { panic!("{failure:?}") };
    assert!(losses[0].place.starts_with("zoned namespace, zone "), "{}", losses[0]);
    assert!(losses[0].expected.contains("write pointer") || losses[0].expected == "a full zone", "{}", losses[0]);
}
