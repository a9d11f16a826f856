//! Rounds of attacks on volumes, with the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use zonda_kill::{Launcher, Loss, RunError, VolumesRun, VolumesSummary, program};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program(None).expect("zonda exists or can be built"));

/// Restores the initial members and `volume.toml` at each start after the first.
const FORGETFUL: &str = r#"#!/bin/sh
if [ "$1" = serve ]; then
    for member in m* tmpfs/first; do
        if [ -d "before/$member" ]; then cp --sparse=always "before/$member"/* "$member/"
        elif [ -d "$member" ]; then mkdir -p "before/$member"; cp --sparse=always "$member"/* "before/$member/"; fi
    done
    if [ -f before/volume.toml ]; then cp before/volume.toml vol/; else cp vol/volume.toml before/; fi
fi
exec PROGRAM "$@"
"#;

/// Refuses its second start, although no member is missing.
const REFUSING: &str = r#"#!/bin/sh
if [ "$1" = serve ]; then
    if [ -d before ]; then echo "error: cannot mount the volume: ../m1, ../m2 are missing or out of date" >&2; exit 1; fi
    mkdir before
fi
exec PROGRAM "$@"
"#;

fn attack(level: &str, rounds: u32, seed: u64) -> VolumesSummary {
    let directory = tempfile::tempdir().expect("there is space for images");
    let launcher = Launcher { program: PROGRAM.clone(), directory: directory.path().to_owned(), epoll: false };
    let level = level.parse().expect("a level");
    let mut run = VolumesRun::new(launcher, level, seed).expect("a volume can be created");
    for round in 0..rounds {
        if let Err(failure) = run.round(round, &mut |line| println!("{line}")) {
            let kept = directory.keep();
            panic!("seed {seed}, round {round}: {failure}; kept in {}", kept.display());
        }
    }
    run.summary().clone()
}

#[test]
fn a_few_rounds_of_faults_show_no_old_data_and_no_error_within_tolerance() {
    let summary = attack("raid5", 8, 1);
    assert_eq!((summary.rounds, summary.volumes), (8, 1));
    // This seed stays within tolerance, except for members that are moved away and back.
    assert_eq!(summary.errors_allowed, 0);
    for kind in ["bytes flipped", "kill", "kill during a rebuild", "member failed", "member moved away", "pause"] {
        assert!(summary.attacks.contains_key(kind), "{kind}: {summary:?}");
    }
    let is_remote = |kind: &&str| kind.contains("remote member");
    assert!(summary.attacks.keys().any(is_remote), "faults of the remote member: {summary:?}");
    assert_eq!(summary.refusals.keys().copied().collect::<Vec<_>>(), ["too few active members"]);
    assert_eq!(summary.starts_after_return, 1);
    assert!(summary.repairs > 0 && summary.tally.writes > 0, "{summary:?}");
}

/// All members are local images: a remote one would not be restored, and contradict the others.
const SEED: u64 = 2;

/// The losses that the first rounds find with a program.
fn losses_of(script: &str) -> Vec<Loss> {
    let directory = tempfile::tempdir().expect("there is space for images");
    let program = directory.path().join("program");
    fs::write(&program, script.replace("PROGRAM", PROGRAM.to_str().expect("a path in UTF-8")))
        .expect("it can be written");
    fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("it can be made executable");
    let launcher = Launcher { program, directory: directory.path().to_owned(), epoll: false };
    let mut run = VolumesRun::new(launcher, "raid5".parse().expect("a level"), SEED).expect("a volume can be created");
    let failure = (0..3).find_map(|round| run.round(round, &mut |_| {}).err());
    let Some(RunError::Lost(losses)) = failure else { panic!("{failure:?}") };
    losses
}

#[test]
fn a_volume_that_returns_older_blocks_is_detected() {
    let losses = losses_of(FORGETFUL);
    assert!(losses[0].place.starts_with("volume, block "), "{}", losses[0]);
    assert_eq!(losses[0].found, "zeros", "{}", losses[0]);
}

#[test]
fn a_volume_that_does_not_start_within_tolerance_is_detected() {
    let losses = losses_of(REFUSING);
    assert_eq!(losses[0].place, "start within tolerance");
    assert!(losses[0].found.contains("missing or out of date"), "{}", losses[0]);
}

fn soak(level: &str) {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_secs();
    let summary = attack(level, 50, seed);
    assert_eq!(summary.rounds, 50);
}

#[test]
#[ignore = "soak"]
fn soak_a_single_member_under_attack() {
    soak("single");
}

#[test]
#[ignore = "soak"]
fn soak_raid0_under_attack() {
    soak("raid0");
}

#[test]
#[ignore = "soak"]
fn soak_raid1_under_attack() {
    soak("raid1");
}

#[test]
#[ignore = "soak"]
fn soak_three_copies_under_attack() {
    soak("raid1-3");
}

#[test]
#[ignore = "soak"]
fn soak_raid01_under_attack() {
    soak("raid01");
}

#[test]
#[ignore = "soak"]
fn soak_raid5_under_attack() {
    soak("raid5");
}

#[test]
#[ignore = "soak"]
fn soak_raid6_under_attack() {
    soak("raid6");
}
