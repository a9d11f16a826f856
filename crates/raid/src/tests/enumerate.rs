//! All short histories of the smallest volumes, with every crash and every fault. A failure names a
//! case; this command replays it:
//!
//! ```text
//! cargo run -p zonda-raid --example enumerate -- 'raid5/oob/g1/plp/w0 fail0/end/flip 1:16 data'
//! ```

use crate::SeededBug;
use crate::testing::enumerate::{Case, Depth, Op, Report, Setup, What, explore, histories, replay};

/// Known failures.
struct Known {
    /// Words in the names of their kinds.
    words: &'static [&'static str],
    /// One of the causes in these names.
    cause: &'static str,
    /// What is wrong.
    reason: &'static str,
    /// A volume and a history after which it happens.
    after: &'static str,
}

/// Failures that are to be repaired.
const KNOWN: &[Known] = &[];

impl Known {
    /// A kind is `beyond, First, Zeros: absent + data`.
    fn covers(&self, kind: &str) -> bool {
        let (what, causes) = kind.split_once(": ").unwrap_or_default();
        let is_one_of = |words: &str| what.split(", ").any(|word| words.split(' ').any(|other| other == word));
        self.words.iter().all(|words| is_one_of(words)) && causes.split(" + ").any(|cause| cause == self.cause)
    }
}

fn is_known(kind: &str) -> bool {
    KNOWN.iter().any(|known| known.covers(kind))
}

/// Explores all histories of up to `length` operations.
fn of(setup: Setup, length: usize, is_full: bool, depth: Depth) -> Report {
    let alphabet = Op::alphabet(setup.scheme().members(), setup.scheme().parity > 0, is_full);
    let mut report = Report::default();
    for history in (0..=length).flat_map(|length| histories(&alphabet, length)) {
        report.add(explore(setup, &history, depth));
    }
    report
}

fn all(level: &str, groups: &[u32], length: usize, is_full: bool, depth: Depth) -> Report {
    let mut report = Report::default();
    for setup in Setup::all(groups).into_iter().filter(|setup| setup.level() == level) {
        report.add(of(setup, length, is_full, depth));
    }
    report
}

fn expect_none_but_known(mut report: Report) {
    println!("{report}");
    report.found.retain(|kind, _| !is_known(kind));
    assert!(report.found.is_empty(), "promises that were not kept:\n{report}");
}

/// The volumes of a level, each with the offset of its histories, of which it takes every `step`th
/// one. With two steps each history is combined with metadata in both places and both kinds of
/// caches (caches alternate from one volume to the next, so offsets are swapped in every second
/// pair); with four, with one combination.
fn alternating(level: &str, groups: &[u32], step: usize) -> impl Iterator<Item = (Setup, usize)> {
    let setups = Setup::all(groups).into_iter().filter(move |setup| setup.level() == level);
    setups.enumerate().map(move |(number, setup)| (setup, (number + number / step) % step))
}

/// Histories of two operations with one thing wrong, and of one operation with two. Levels share
/// the sizes of groups between them, and the volumes of a level share the histories of two
/// operations. All sizes of each level are tried with all histories, and with longer ones, by
/// `soak_`, which takes long.
fn keeps_its_promises(level: &str, groups: &[u32], step: usize) {
    let mut report = Report::default();
    for (setup, offset) in alternating(level, groups, step) {
        report.add(of(setup, 1, false, Depth::SINGLE));
        let alphabet = Op::alphabet(setup.scheme().members(), setup.scheme().parity > 0, false);
        for history in histories(&alphabet, 2).into_iter().skip(offset).step_by(step) {
            report.add(explore(setup, &history, Depth::SINGLE));
        }
    }
    for setup in Setup::all(&[4]).into_iter().filter(|setup| setup.level() == level && !setup.is_cache_volatile) {
        report.add(of(setup, 1, false, Depth::FAULTS_IN_PAIRS));
    }
    assert!(report.cases > 1_000, "{} cases", report.cases);
    expect_none_but_known(report);
}

#[test]
fn a_single_drive_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("single", &[1, 4], 2);
}

#[test]
fn raid_0_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("raid0", &[1, 4], 4);
}

#[test]
fn raid_1_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("raid1", &[1, 4], 4);
}

#[test]
fn raid_5_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("raid5", &[1], 2);
}

#[test]
fn raid_6_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("raid6", &[4], 4);
}

#[test]
fn raid_10_keeps_its_promises_after_every_short_history() {
    keeps_its_promises("raid10", &[4], 4);
}

/// Members that return are caught up: whatever they missed, and whenever the power fails meanwhile.
/// Each volume takes these histories.
fn keeps_its_promises_when_members_come_back(level: &str, setups: impl Iterator<Item = (Setup, usize)>, step: usize) {
    let histories = [
        "w0 fail0 w1 readd",
        "fill fail0 w0 readd",
        "fill w1 fail0 fill fill readd",
        "fill away0 w0 fill back",
        "fill fail0 w1 readdcut10 w0",
        "fill w1 fail0 fill trim readdcut25 w0",
        "fill fail0 fill readd fail1",
        "fill away0 fill fill back w0 away0 w1 back",
        "fill fail0 w0 readdcut18 away0 fill back",
    ];
    // A mirror of two of which one returns after the other one has: if the zone of its newest
    // superblock is lost as well, it cannot be distinguished from one that was used alone.
    let one_by_one = (level != "raid1").then_some("fill away0 fill fill back away1 w0 back");
    let mut report = Report::default();
    for (setup, first) in setups {
        for history in histories.into_iter().chain(one_by_one).skip(first).step_by(step) {
            let case: Case = format!("{setup}/{history}/end").parse().expect("the name of a history");
            let before = report.histories;
            report.add(explore(setup, &case.history, Depth::SINGLE));
            assert!(report.histories > before || !report.found.is_empty(), "{setup}/{history} does something");
        }
    }
    expect_none_but_known(report);
}

#[test]
fn raid_1_keeps_its_promises_when_members_come_back() {
    keeps_its_promises_when_members_come_back("raid1", alternating("raid1", &[4], 4), 4);
}

#[test]
fn raid_5_keeps_its_promises_when_members_come_back() {
    keeps_its_promises_when_members_come_back("raid5", alternating("raid5", &[1], 4), 4);
}

#[test]
fn raid_6_keeps_its_promises_when_members_come_back() {
    keeps_its_promises_when_members_come_back("raid6", alternating("raid6", &[4], 4), 4);
}

fn soak(level: &str) {
    expect_none_but_known(all(level, &[1, 2, 4], 4, false, Depth::SINGLE));
    expect_none_but_known(all(level, &[1, 2, 4], 2, true, Depth::PAIRS));
    expect_none_but_known(all(level, &[2], 5, false, Depth::SINGLE));
}

#[test]
#[ignore = "soak"]
fn soak_levels_without_redundancy_keep_their_promises_after_every_history() {
    soak("single");
    soak("raid0");
}

#[test]
#[ignore = "soak"]
fn soak_mirrors_keep_their_promises_after_every_history() {
    soak("raid1");
    soak("raid10");
}

#[test]
#[ignore = "soak"]
fn soak_parity_keeps_its_promises_after_every_history() {
    soak("raid5");
    soak("raid6");
}

#[test]
#[ignore = "soak"]
fn soak_volumes_keep_their_promises_when_members_come_back() {
    for level in ["raid1", "raid5", "raid6", "raid10"] {
        let setups = Setup::all(&[1, 2, 4]).into_iter().filter(|setup| setup.level() == level);
        keeps_its_promises_when_members_come_back(level, setups.map(|setup| (setup, 0)), 1);
    }
}

#[test]
fn failures_that_are_known_have_not_been_repaired() {
    for known in KNOWN {
        let is_meant = |kind: &String| known.covers(kind);
        let is_found = explored(known.after, Depth::PAIRS).iter().any(is_meant);
        assert!(is_found, "\"{}\" is repaired: remove it from the list", known.reason);
    }
}

/// The kinds of failures after a history, by its name.
fn explored(after: &str, depth: Depth) -> Vec<String> {
    let case: Case = format!("{after}/end").parse().expect("the name of a history");
    explore(case.setup, &case.history, depth).found.into_keys().collect()
}

#[test]
fn a_case_is_replayed_by_its_name() {
    for name in [
        "single/oob/g1/plp//end",
        "raid5/oob/g2/volatile/w0 w1 trim flush fail0/crash 2 torn 0/flip 2:17 metadata",
        "raid6/inband/g4/volatile/ww away0 remount/crash 3 back 1 0/absent 0+2",
        "raid10/inband/g1/plp/fill wwcut3/end/offline 3:2/swapped 0 1",
        "raid6/oob/g1/plp/fill/end/split 0+1 2+3",
        "raid5/oob/g1/plp/w0/scrub/flip 1:18 both",
    ] {
        let case: Case = name.parse().expect("the name of a case");
        assert_eq!(case.to_string(), name);
    }
    for name in ["raid5/oob/g1/plp/w0", "raid7/oob/g1/plp/w0/end", "raid5/oob/g1/plp/w9/end", "raid5/oob/g0/plp/w0/end"]
    {
        assert!(name.parse::<Case>().is_err(), "{name}");
    }
    let case: Case = "raid5/oob/g4/plp/w0 w1/end/absent 1".parse().expect("the name of a case");
    assert_eq!(replay(&case), Ok(()));
    let seeded = Case { setup: case.setup.with_bug(SeededBug::WrongParity), ..case };
    assert!(replay(&seeded).is_err(), "the parity is wrong, and a member is absent");
}

/// A rebuild of a member that had failed: longer than other histories here, and with a crash and a
/// member absent it covers what they do not.
#[test]
fn a_rebuild_that_is_cut_short_while_another_member_is_absent_keeps_its_promises() {
    for after in ["raid1/oob/g1/plp/w0 fail0 rebuild", "raid5/oob/g4/plp/w0 fail0 rebuild"] {
        let case: Case = format!("{after}/end").parse().expect("the name of a history");
        expect_none_but_known(explore(case.setup, &case.history, Depth::FAULTS_IN_PAIRS));
    }
}

/// After any damage while a volume is in use, a scrub leaves none that is needed.
#[test]
fn a_scrub_leaves_no_damage_after_any_short_history() {
    let mut report = Report::default();
    for setup in Setup::all(&[1, 4]).into_iter().filter(|setup| !setup.is_cache_volatile) {
        for history in [&[Op::WriteTwo][..], &[Op::Fill, Op::Trim]] {
            report.add(explore(setup, history, Depth::SCRUBS));
        }
    }
    assert!(report.cases > 1_000, "{} cases", report.cases);
    expect_none_but_known(report);
}

#[test]
fn damage_behind_the_last_stripe_of_a_rebuilt_zone_is_not_taken_for_a_stripe() {
    for name in
        ["raid5/oob/g1/plp/fill fail0 w0 rebuild/end/flip 0:28 data", "raid1/oob/g1/plp/fill fail0 w0 rebuild/end"]
    {
        let case: Case = name.parse().expect("the name of a case");
        let found = explore(case.setup, &case.history, Depth { crashes: false, ..Depth::SINGLE }).found;
        assert!(found.is_empty(), "{name}: {:?}", found.keys());
    }
}

/// Seeded bugs, each with a history that finds it.
const SEEDED: &[(SeededBug, &str, Depth)] = &[
    (SeededBug::HastyAcknowledgement, "raid0/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::WrongParity, "raid5/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::WrongChunk, "raid1/oob/g4/plp/w0 w1", Depth::SINGLE),
    (SeededBug::FooterWrongSlot, "raid1/oob/g2/plp/ww", Depth::SINGLE),
    (SeededBug::DryFlush, "raid1/oob/g4/volatile/flush", Depth::SINGLE),
    (SeededBug::EagerRetirement, "raid1/oob/g1/plp/ww ww", Depth::SINGLE),
    (SeededBug::StaleTimestamps, "raid0/oob/g1/plp/w0 w0 w0", Depth::SINGLE),
    (SeededBug::BelievedStaleMember, "raid1/oob/g1/plp/w0 fail0", Depth::SINGLE),
    (SeededBug::ForgottenEpoch, "raid1/oob/g1/plp/w0 fail0", Depth::SINGLE),
    (SeededBug::RebuildingCounts, "raid1/oob/g1/plp/w0 fail0 rebuild", Depth::FAULTS_IN_PAIRS),
    (SeededBug::UnreadableHeaderReset, "single/oob/g1/plp/w0", Depth::FAULTS_IN_PAIRS),
    (SeededBug::SingleHeader, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::SingleSuperblock, "single/oob/g1/plp/", Depth::SINGLE),
    (SeededBug::DamageTakenForCut, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::UncountedStripes, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::IgnoredTombstones, "single/oob/g1/plp/w0 trim", Depth::SINGLE),
    (SeededBug::UnrefusedLosses, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::ForgottenAcceptance, "single/oob/g1/volatile/w0", Depth::SINGLE),
    (SeededBug::DroppedSegment, "raid0/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::UncountedZone, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::UndetectedSplit, "raid1/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::OlderEpoch, "raid1/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::HalfRebuiltZone, "raid1/oob/g1/plp/fill fail0 rebuild", Depth::SINGLE),
    (SeededBug::UnwrittenMarker, "single/oob/g1/plp/w0", Depth::SINGLE),
    (SeededBug::DroppedMarker, "raid0/oob/g1/plp/w1", Depth::SINGLE),
    (SeededBug::IgnoredFlushError, "single/oob/g4/volatile/w0 flushfail", Depth::SINGLE),
    (SeededBug::LateMarker, "single/oob/g1/plp/w0", Depth::SCRUBS),
    (SeededBug::UncheckedFooters, "raid1/oob/g1/plp/fill", Depth::SCRUBS),
    (SeededBug::UnscrubbedOpen, "raid1/oob/g1/plp/w0", Depth::SCRUBS),
    (SeededBug::UnscrubbedSuperblocks, "raid1/oob/g1/plp/w0", Depth::SCRUBS),
];

/// Every kind of bug is found: by crashes, damage, absent members, lost caches, and later
/// operations.
#[test]
fn seeded_bugs_are_found_after_short_histories() {
    for &(bug, after, depth) in SEEDED {
        let case: Case = format!("{after}/end").parse().expect("the name of a history");
        // By a violated guarantee, and by nothing else.
        let found = |setup: Setup| {
            let mut found = explore(setup, &case.history, depth).found;
            found.retain(|kind, found| !is_known(kind) && !matches!(found.failure.what, What::Panics | What::Hangs));
            found.into_keys().next()
        };
        assert!(found(case.setup.with_bug(bug)).is_some(), "{bug:?}");
        assert_eq!(found(case.setup), None, "without {bug:?}");
    }
}
