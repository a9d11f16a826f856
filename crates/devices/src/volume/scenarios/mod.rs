//! Scenarios of whole volumes: a seed determines the actions of hosts and operators, the crashes of
//! programs, and the injected faults.
//!
//! Two volumes share mock drives and their spares. Hosts write and flush; operators fail and
//! replace members, add and remove spares; programs are closed, or crash between any two steps,
//! including writes of `volume.toml`; drives are moved away and back, and fail their commands;
//! `volume.toml` cannot be written for a while, is replaced by an older copy, or a copy of its
//! directory is opened. At the end every acknowledged block must be present, and no mount may have
//! been refused without a reason.
//!
//! Drives are in memory and time is simulated, so runs are deterministic. Remote members are
//! covered by [`owners`].

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
fn volumes_that_share_spares_keep_acknowledged_writes_under_random_faults() {
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
fn a_seed_determines_a_run() {
    let traces = [3, 3, 4].map(|seed| {
        let mut run = Run::new(seed);
        run.execute(SHORT).unwrap_or_else(|what| panic!("{what}"));
        run.trace
    });
    assert!(traces[0] == traces[1] && traces[0] != traces[2]);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_that_share_spares_keep_acknowledged_writes_under_random_faults() {
    let first = std::env::var("ZONDA_SCENARIO").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    runs(first..first + 4000, SHORT);
    runs(first..first + 200, 10 * SHORT);
}
