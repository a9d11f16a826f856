use super::*;
use crate::stamp::Sequence;

const A: Contents = Contents::Write(Sequence(1));
const B: Contents = Contents::Write(Sequence(2));
const C: Contents = Contents::Write(Sequence(3));
const CAPACITY: u64 = 8;

fn found(state: ZoneState, pointer: Option<u64>, written: &[Contents]) -> FoundZone {
    let mut contents = written.to_vec();
    contents.resize(CAPACITY as usize, Contents::Zeros);
    FoundZone { state, pointer, contents }
}

fn closed(written: &[Contents]) -> FoundZone {
    found(ZoneState::Closed, Some(written.len() as u64), written)
}

fn full(written: &[Contents]) -> FoundZone {
    found(ZoneState::Full, None, written)
}

fn empty() -> FoundZone {
    found(ZoneState::Empty, Some(0), &[])
}

/// Two blocks acknowledged, two in flight.
fn half_done() -> ZoneHistory {
    let mut zone = ZoneHistory::new(CAPACITY);
    let first = zone.write(2, A);
    zone.write(2, B);
    zone.acknowledge(first);
    zone
}

fn holds(zone: &ZoneHistory, found: &FoundZone) -> bool {
    zone.clone().resume_from(found).is_ok()
}

#[test]
fn the_write_pointer_is_between_acknowledged_and_submitted_writes() {
    let zone = half_done();
    for (written, fine) in [(&[A][..], false), (&[A, A], true), (&[A, A, B], true), (&[A, A, B, B], true)] {
        assert_eq!(holds(&zone, &closed(written)), fine, "{written:?}");
    }
    assert!(!holds(&zone, &empty()));
    assert!(!holds(&zone, &closed(&[A, A, B, B, B])));
}

#[test]
fn a_block_below_the_write_pointer_has_the_written_contents() {
    let zone = half_done();
    for wrong in [Contents::Zeros, Contents::Torn(Sequence(2)), A, Contents::Foreign] {
        let mismatch = zone.clone().resume_from(&closed(&[A, A, wrong])).unwrap_err();
        assert_eq!((mismatch.block, mismatch.expected), (Some(2), B.to_string()));
    }
}

#[test]
fn blocks_beyond_the_write_pointer_are_zeros() {
    let leftover = found(ZoneState::Closed, Some(2), &[A, A, Contents::Zeros, B]);
    assert_eq!(half_done().resume_from(&leftover).unwrap_err().block, Some(3));
}

#[test]
fn an_acknowledged_reset_holds_and_one_in_flight_may() {
    let mut zone = half_done();
    let reset = zone.reset();
    assert!(holds(&zone, &closed(&[A, A])));
    assert!(holds(&zone, &empty()));
    zone.acknowledge(reset);
    assert!(!holds(&zone, &closed(&[A, A])));
    assert!(holds(&zone, &empty()));
}

#[test]
fn a_write_acknowledged_after_a_reset_implies_the_reset() {
    let mut zone = half_done();
    zone.reset();
    let write = zone.write(1, C);
    assert!(holds(&zone, &closed(&[A, A, B])));
    zone.acknowledge(write);
    assert!(!holds(&zone, &closed(&[A, A, B])));
    assert!(!holds(&zone, &empty()));
    assert!(holds(&zone, &closed(&[C])));
}

#[test]
fn lives_are_not_mixed() {
    let mut zone = half_done();
    zone.reset();
    zone.write(1, C);
    assert!(!holds(&zone, &closed(&[C, A])));
}

#[test]
fn an_acknowledged_finish_leaves_a_full_zone_with_all_earlier_writes() {
    let mut zone = half_done();
    assert!(!holds(&zone, &full(&[A, A])));
    let finish = zone.finish();
    assert!(holds(&zone, &full(&[A, A, B, B])));
    assert!(holds(&zone, &closed(&[A, A, B])));
    zone.acknowledge(finish);
    assert!(holds(&zone, &full(&[A, A, B, B])));
    assert!(!holds(&zone, &full(&[A, A, B])));
    assert!(!holds(&zone, &closed(&[A, A, B, B])));
}

#[test]
fn a_zone_acknowledged_to_its_capacity_is_full() {
    let mut zone = ZoneHistory::new(CAPACITY);
    let all = zone.write(CAPACITY, A);
    assert!(zone.is_full() && zone.free_blocks() == 0);
    assert!(holds(&zone, &closed(&[A; 5])));
    assert!(holds(&zone, &full(&[A; 8])));
    zone.acknowledge(all);
    assert!(!holds(&zone, &closed(&[A; 5])));
    assert!(!holds(&zone, &full(&[A; 7])));
    assert!(holds(&zone, &full(&[A; 8])));
}

#[test]
fn no_zone_is_open_after_a_restart() {
    for state in [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::ReadOnly, ZoneState::Offline] {
        assert_eq!(half_done().resume_from(&found(state, Some(2), &[A, A])).unwrap_err().block, None, "{state}");
    }
    assert!(!holds(&half_done(), &found(ZoneState::Closed, Some(0), &[])));
}

#[test]
fn a_state_found_once_must_not_change() {
    let mut zone = half_done();
    zone.resume_from(&closed(&[A, A, B])).unwrap();
    assert_eq!((zone.pointer(), zone.expected(2), zone.expected(3)), (3, B, Contents::Zeros));
    assert!(!holds(&zone, &closed(&[A, A])));
    assert!(!holds(&zone, &closed(&[A, A, B, B])));
    assert!(holds(&zone, &closed(&[A, A, B])));
    zone.write(1, C);
    assert!(holds(&zone, &closed(&[A, A, B, C])));
}

#[test]
fn written_zeros_count_as_written() {
    let mut zone = ZoneHistory::new(CAPACITY);
    let zeros = zone.write(3, Contents::Zeros);
    zone.acknowledge(zeros);
    assert!(!holds(&zone, &empty()));
    assert!(holds(&zone, &closed(&[Contents::Zeros; 3])));
}
