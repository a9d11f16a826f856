//! Scenarios of whole volumes: seeds choose what hosts and operators do, when the program crashes, and what the machine does to files.
//!
//! Two volumes share a shelf of drives and their spares. Hosts write and flush; operators have members fail, replace them, add and remove
//! spares; programs are closed, or crash between any two steps, of which a writing of `volume.toml` is one; drives are moved away
//! and back, and fail their commands; `volume.toml` cannot be written for a while, is replaced by an older copy, or its directory is copied and
//! opened beside it. After all of it every block that was acknowledged has to be there, and nothing may have been refused without a
//! reason.
//!
//! Drives are in memory and time is simulated, so a seed gives one run. Members behind servers are no part of it.

mod ledger;
mod operate;
mod owners;
mod run;

use run::Run;

/// Operations of a short run.
const SHORT: u32 = 60;

fn runs(seeds: std::ops::Range<u64>, operations: u32) {
    for seed in seeds {
        if let Err(what) = Run::new(seed).execute(operations) {
            panic!(
                "{what}\nreplay: ZONDA_SCENARIO={seed} cargo test -p zonda-devices --lib scenarios::one_seed -- --nocapture"
            );
        }
    }
}

#[test]
fn whatever_happens_to_volumes_that_share_spares_keeps_what_was_acknowledged() {
    runs(0..50, SHORT);
}

#[test]
fn one_seed() {
    let Some(seed) = std::env::var("ZONDA_SCENARIO").ok().and_then(|text| text.parse().ok()) else { return };
    let mut run = Run::new(seed);
    let result = run.execute(SHORT);
    run.trace.iter().for_each(|line| println!("{line}"));
    result.unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_seed_is_a_run() {
    let traces = [3, 3, 4].map(|seed| {
        let mut run = Run::new(seed);
        run.execute(SHORT).unwrap_or_else(|what| panic!("{what}"));
        run.trace
    });
    assert!(traces[0] == traces[1] && traces[0] != traces[2]);
}

#[test]
#[ignore = "soak"]
fn soak_whatever_happens_to_volumes_that_share_spares_keeps_what_was_acknowledged() {
    let first = std::env::var("ZONDA_SCENARIO").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    runs(first..first + 4000, SHORT);
    runs(first..first + 200, 10 * SHORT);
}
