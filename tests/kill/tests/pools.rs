//! Rounds of kills of a server of a pool, with the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use zonda_kill::{Launcher, Loss, PoolsRun, PoolsSummary, RunError, program};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program(None).expect("zonda exists or can be built"));

/// Restores the initial drive at each start after the first, and hides that from the pool.
const FORGETFUL: &str = r#"#!/bin/sh
if [ "$1" = serve ]; then
    if [ -d before ]; then
        rm -rf tmpfs/drive; cp -r before tmpfs/drive
        sed -i '/^epoch/d' pool/pool.toml
    else
        cp -r tmpfs/drive before
    fi
fi
exec PROGRAM "$@"
"#;

/// Serves the namespaces of the two tenants under each other's names, from the second start on.
const CONFUSED: &str = r#"#!/bin/sh
if [ "$1" = serve ]; then
    if [ -e served ]; then sed -i 's/name = "a"/name = "x"/; s/name = "b"/name = "a"/; s/name = "x"/name = "b"/' zonda.toml; fi
    touch served
fi
exec PROGRAM "$@"
"#;

/// Reports deletions without doing them.
const BOASTING: &str = r#"#!/bin/sh
if [ "$1 $2" = "namespace delete" ]; then echo "deleted $4"; exit 0; fi
exec PROGRAM "$@"
"#;

fn launcher(directory: &Path, program: PathBuf, epoll: bool) -> Launcher {
    Launcher { program, directory: directory.to_owned(), epoll }
}

fn rounds(count: u32, seed: u64, epoll: bool) -> PoolsSummary {
    let directory = tempfile::tempdir().expect("there is space for images");
    let launcher = launcher(directory.path(), PROGRAM.clone(), epoll);
    let mut run = PoolsRun::new(launcher, seed).expect("a pool can be created");
    for round in 0..count {
        if let Err(failure) = run.round(round, &mut |line| println!("{line}")) {
            let kept = directory.keep();
            panic!("seed {seed}, round {round}: {failure}; kept in {}", kept.display());
        }
    }
    run.summary().clone()
}

/// The losses that the first rounds find with a program.
fn losses_of(script: &str, seed: u64) -> Vec<Loss> {
    let directory = tempfile::tempdir().expect("there is space for images");
    let program = directory.path().join("program");
    fs::write(&program, script.replace("PROGRAM", PROGRAM.to_str().expect("a path in UTF-8")))
        .expect("it can be written");
    fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("it can be made executable");
    let mut run = PoolsRun::new(launcher(directory.path(), program, false), seed).expect("a pool can be created");
    let failure = (0..12).find_map(|round| run.round(round, &mut |line| println!("{line}")).err());
    let Some(RunError::Lost(losses)) = failure else { panic!("{failure:?}") };
    losses
}

/// Aimed at a recall, a reclaim, and a change of the namespaces.
const SHORT: u64 = 10;
/// In its first round both tenants write, and no server is killed while it starts.
const WRITING: u64 = 10;
/// In its second round namespaces are created and deleted.
const DELETING: u64 = 6;

#[test]
fn kills_of_a_server_of_a_pool_lose_nothing() {
    let summary = rounds(3, SHORT, false);
    assert_eq!(summary.rounds, 3);
    assert!(summary.tally.writes > 0 && summary.blocks_verified > 0, "{summary:?}");
}

#[test]
fn a_server_of_a_pool_that_loses_writes_is_detected() {
    let losses = losses_of(FORGETFUL, WRITING);
    let is_of_a_zone = |loss: &Loss| loss.place.contains(", zoned namespace, zone ");
    assert!(losses.iter().all(is_of_a_zone), "{losses:?}");
    assert!(losses[0].expected.contains("write pointer") || losses[0].expected == "a full zone", "{}", losses[0]);
}

#[test]
fn a_server_that_shows_blocks_of_another_tenant_is_detected() {
    let losses = losses_of(CONFUSED, WRITING);
    let leak = losses.iter().find(|loss| loss.expected == "no block of another namespace");
    let leak = leak.unwrap_or_else(|| panic!("{losses:?}"));
    assert!(leak.place.starts_with("a, zone ") && leak.found.starts_with("of namespace b: write "), "{leak}");
}

#[test]
fn a_deletion_without_effect_is_detected() {
    let losses = losses_of(BOASTING, DELETING);
    assert_eq!((losses.len(), &*losses[0].place), (1, "namespaces of the pool"), "{losses:?}");
}

#[test]
#[ignore = "soak"]
fn soak_kills_interrupt_whatever_a_pool_does() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right").as_secs();
    let summary = rounds(100, seed, seed % 2 == 1);
    // A resize and the copy of a group are short.
    for kind in ["overdrive", "recall", "reclaim", "creation", "deletion"] {
        assert!(summary.interrupted.contains_key(kind), "no kill has interrupted a {kind}: {summary:?}");
    }
    assert!(summary.full > 0 || summary.skipped.is_some(), "{summary:?}");
    assert!(summary.kills_at_start > 0 && summary.changes_found > 0, "{summary:?}");
}
