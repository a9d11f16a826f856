//! Rounds of servers that take a volume over from each other, with the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use zonda_kill::{Launcher, OwnersRun, OwnersSummary, RunError, program};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program(None).expect("zonda exists or can be built"));

/// Reports a takeover without doing it.
const BOASTING: &str = r#"#!/bin/sh
if [ "$1 $2" = "volume takeover" ]; then echo '{"owner_epoch":9,"drives":[{"at":"all"}]}'; exit 0; fi
exec PROGRAM "$@"
"#;

/// Takes the volume over a second after it has reported so.
const HASTY: &str = r#"#!/bin/sh
if [ "$1 $2" = "volume takeover" ]; then
    echo '{"owner_epoch":9,"drives":[{"at":"all"}]}'
    { sleep 1; PROGRAM "$@"; } >/dev/null 2>&1 &
    exit 0
fi
if [ "$1" = serve ]; then sleep 3; fi
exec PROGRAM "$@"
"#;

fn launcher(directory: &std::path::Path, program: PathBuf) -> Launcher {
    Launcher { program, directory: directory.to_owned(), epoll: false }
}

fn rounds(count: u32, seed: u64) -> OwnersSummary {
    let directory = tempfile::tempdir().expect("there is space for images");
    let mut run = OwnersRun::new(launcher(directory.path(), PROGRAM.clone()), seed).expect("a volume can be created");
    for round in 0..count {
        if let Err(failure) = run.round(round, &mut |line| println!("{line}")) {
            let kept = directory.keep();
            panic!("seed {seed}, round {round}: {failure}; kept in {}", kept.display());
        }
    }
    run.summary().clone()
}

/// The losses that the first rounds find with a program.
fn loss_of(script: &str) -> zonda_kill::Loss {
    let directory = tempfile::tempdir().expect("there is space for images");
    let program = directory.path().join("program");
    fs::write(&program, script.replace("PROGRAM", PROGRAM.to_str().expect("a path in UTF-8")))
        .expect("it can be written");
    fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("it can be made executable");
    let mut run = OwnersRun::new(launcher(directory.path(), program), RUNNING).expect("a volume can be created");
    let failure = (0..3).find_map(|round| run.round(round, &mut |_| {}).err());
    let Some(RunError::Lost(losses)) = failure else { panic!("{failure:?}") };
    losses[0].clone()
}

/// In its first round a server is killed, in the next ones the volume is taken over from a paused
/// one.
const PAUSING: u64 = 14;
/// In its second round the volume is taken over from a running server.
const RUNNING: u64 = 15;

#[test]
fn an_old_owner_acknowledges_nothing_and_the_new_one_has_all_data() {
    let summary = rounds(3, PAUSING);
    assert_eq!(summary.rounds, 3);
    assert!(summary.takeovers > 0 && summary.fenced > 0 && summary.refusals > 0, "{summary:?}");
    for event in ["takeover from a paused owner", "release", "kill"] {
        assert!(summary.events.contains_key(event), "{event}: {summary:?}");
    }
    assert!(summary.tally.writes > 0 && summary.tally.reads > 0, "{summary:?}");
}

#[test]
fn a_takeover_without_effect_is_detected() {
    let loss = loss_of(BOASTING);
    assert!(loss.place.starts_with("start of the owner, side "), "{loss}");
    assert!(loss.found.contains("another server of this volume"), "{loss}");
}

#[test]
#[ignore = "soak"]
fn soak_an_old_owner_that_continues_for_a_while_is_detected() {
    let loss = loss_of(HASTY);
    // By the acknowledgement, or by the effect of a write submitted to the old owner.
    assert!(loss.place.contains(" by the old owner (") || loss.place.starts_with("volume, block "), "{loss}");
}

#[test]
#[ignore = "soak"]
fn soak_owners_that_take_a_volume_over_from_each_other() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_secs();
    assert_eq!(rounds(50, seed).rounds, 50);
}
