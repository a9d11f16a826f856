//! Zones that cannot be measured are unknown, with the reason, and do not spoil the others.

use zonda_layers::{Fault, FaultEffect, FaultRule};
use zonda_zoned::{Blocks, Status, ZoneState};

use super::*;

const ZONES: u32 = 400;

fn faulty(rules: Vec<(Matcher, When, FaultEffect)>) -> Fault<Ssd> {
    let drive = full_drive(&profile("bae-small", ZONES), Filled::InOrder, 1);
    let rules = rules.into_iter().map(|(matches, when, effect)| FaultRule { matches, when, effect });
    Fault::new(drive, rules.collect(), Prng::new(1))
}

fn reads() -> Matcher {
    Matcher::operations(zonda_layers::OperationSet::READ)
}

fn zones(from: u32, to: u32) -> Matcher {
    reads().in_zones(ZoneIndex(from)..ZoneIndex(to))
}

fn score_of(table: &GroupTable, device: &Fault<Ssd>) -> Score {
    score(table, &|zone| true_group(device.inner(), zone))
}

#[test]
fn zones_whose_reads_fail_are_unknown_with_the_status() {
    let failed = FaultEffect::Fail(Status::UnrecoveredReadError);
    let mut device = faulty(vec![(zones(3, 20), When::Always, failed)]);
    let table = measure(&mut device, config(Strategy::Search, 1));
    let expected = ZoneEntry::Unknown(UnknownReason::Failed(Status::UnrecoveredReadError));
    assert!((3..20).all(|zone| table.entry(ZoneIndex(zone)) == expected));
    let score = score_of(&table, &device);
    assert_eq!((table.groups(), score.wrong, score.unknown), (8, 0, 17), "{score:?}");
}

#[test]
fn baselines_that_fail_later_are_replaced() {
    // Baselines are read more often than other zones: half of the zones of each group fail then.
    let failed = FaultEffect::Fail(Status::UnrecoveredReadError);
    let fragile = (0..ZONES).filter(|zone| zone / 8 % 2 == 0);
    let late = fragile.map(|zone| (zones(zone, zone + 1), When::After(200), failed)).collect();
    let mut device = faulty(late);
    let table = measure(&mut device, config(Strategy::Search, 1));
    let score = score_of(&table, &device);
    let lost = ZoneEntry::Unknown(UnknownReason::Failed(Status::UnrecoveredReadError));
    assert!(table.zones.contains(&lost), "baselines have failed");
    assert_eq!(score.certain_and_wrong, 0, "{score:?}");
    assert!(score.right >= ZONES * 6 / 10, "{score:?}");
}

#[test]
fn rare_errors_are_repeated() {
    let rare = When::Chance { numerator: 1, denominator: 5_000 };
    let mut device = faulty(vec![(reads(), rare, FaultEffect::Fail(Status::InternalError))]);
    let table = measure(&mut device, config(Strategy::Search, 1));
    let score = score_of(&table, &device);
    assert_eq!((table.groups(), score.wrong), (8, 0), "{score:?}");
    assert!(score.unknown <= ZONES / 20 && device.counters()[0].struck > 2, "{score:?}");
}

#[test]
fn a_zone_whose_reads_do_not_complete_is_unknown_and_the_others_are_measured() {
    let mut device = faulty(vec![(zones(7, 8), When::Always, FaultEffect::Drop)]);
    let table = measure(&mut device, config(Strategy::Search, 1));
    assert_eq!(table.entry(ZoneIndex(7)), ZoneEntry::Unknown(UnknownReason::TimedOut));
    let score = score_of(&table, &device);
    assert_eq!((table.groups(), score.wrong, score.unknown), (8, 0, 1), "{score:?}");
}

#[test]
fn a_drive_that_does_not_report_its_zones_is_an_error() {
    let reports = Matcher::operations(zonda_layers::OperationSet::ALL);
    let mut device = faulty(vec![(reports, When::Once, FaultEffect::Fail(Status::InternalError))]);
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let mut profiler = Profiler::new(&geometry, config(Strategy::Search, 1));
    let result = run(&mut profiler, &mut device, &mut VirtualClock::default(), &mut |_, _| {});
    assert_eq!(result, Err(ReportFailed(Status::InternalError)));
}

#[test]
fn slow_zones_do_not_join_a_group_with_confidence() {
    let drive = full_drive(&profile("bae-small", ZONES), Filled::InOrder, 1);
    let rule = DelayRule {
        matches: zones(0, 40),
        when: When::Always,
        fixed: Duration::from_micros(150),
        spread: Duration::from_micros(50),
    };
    let mut device = Delay::new(drive, vec![rule], Prng::new(1));
    let table = measure(&mut device, config(Strategy::Search, 1));
    let score = score(&table, &|zone| true_group(device.inner(), zone));
    assert_eq!(score.certain_and_wrong, 0, "{score:?}");
    assert!(score.right >= ZONES - 40, "{score:?}");
}

#[test]
fn zones_without_enough_data_are_unknown_and_the_others_are_measured() {
    let profile = profile("bae-small", ZONES);
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    let capacity = profile.geometry().zone_capacity_blocks;
    for zone in 0..ZONES {
        let blocks = match zone % 4 {
            0 => Blocks(0),
            1 => Blocks(8),
            _ => capacity,
        };
        drive.prefill(ZoneIndex(zone), blocks).expect("few zones are active");
    }
    drive.degrade(ZoneIndex(2), ZoneState::Offline);
    drive.degrade(ZoneIndex(3), ZoneState::ReadOnly);
    let table = measure(&mut drive, config(Strategy::Search, 1));
    let entry = |zone| table.entry(ZoneIndex(zone));
    let unknown = [0, 1, 2].map(entry);
    let expected = [UnknownReason::Empty, UnknownReason::TooLittleData, UnknownReason::Offline].map(ZoneEntry::Unknown);
    assert_eq!(unknown, expected);
    assert!(entry(3).is_certain(), "a zone that is read only can be read");
    let score = score(&table, &|zone| drive.dies_of_zone(zone).first().map_or(u32::MAX, |die| u32::from(die.0) % 8));
    assert_eq!((score.wrong, score.unknown), (0, ZONES / 2 + 1), "{score:?}");
}
