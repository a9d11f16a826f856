use super::*;
use crate::bugs::Seeded;

const ZEROS: [u8; TAG_BYTES] = [0x80; TAG_BYTES];

fn intents() -> Intents {
    Intents::new(Seeded::NONE)
}

fn tags(blocks: Range<u64>, before: u8, after: u8) -> Intent {
    let mut pairs = Pairs::new(blocks.clone());
    blocks.for_each(|_| pairs.push(&[before; TAG_BYTES], &[after; TAG_BYTES]));
    pairs.into_intent()
}

/// An overwrite with data, up to its record.
fn record(intents: &mut Intents, intent: &Intent) {
    intents.begin_record();
    intents.end_record(intent);
    intents.check_invariants();
}

#[test]
fn the_second_overwrite_of_a_block_accepts_anything_and_later_ones_need_no_intent() {
    let mut intents = intents();
    assert_eq!(intents.begin_overwrite(&(4..6), true), Need::Tags);
    record(&mut intents, &tags(4..6, 1, 2));
    (4..6).for_each(|lba| intents.note_data(lba, [2; TAG_BYTES]));
    assert_eq!(intents.begin_overwrite(&(4..6), true), Need::Anything);
    assert_eq!(intents.begin_overwrite(&(4..7), true), Need::Tags, "block 6 was not written");
    record(&mut intents, &Intent::anything(4..6));
    assert_eq!(intents.begin_overwrite(&(4..6), true), Need::Nothing);
    assert_eq!(intents.begin_overwrite(&(8..9), false), Need::Zeros);
}

#[test]
fn a_flush_ends_intents_but_not_those_recorded_since_it_began() {
    for (records, left) in [(3, 0), (5, 2)] {
        let mut intents = intents();
        record(&mut intents, &Intent::anything(4..6));
        intents.begin_flush(Vec::new(), 3);
        assert_eq!(intents.begin_overwrite(&(4..6), true), Need::Tags);
        assert!(intents.take_carried().expect("there are intents").is_empty());
        assert_eq!((intents.end_flush(records), intents.are_any_left()), (left, left > 0));
        intents.check_invariants();
    }
}

#[test]
fn a_flush_repeats_the_intent_of_a_write_in_progress_with_the_tags_of_the_write_before_it() {
    let mut intents = intents();
    record(&mut intents, &tags(4..7, 1, 2));
    intents.note_data(4, [2; TAG_BYTES]);
    intents.note_data(5, [2; TAG_BYTES]);
    intents.note_zeros(5..6);
    let own = Intent::anything(4..7);
    record(&mut intents, &own);
    let after = [3; 3 * TAG_BYTES];
    let carried = intents.to_carry(Some(&own), 4..7, Some(&after), |_| ZEROS).expect("it is in progress");
    assert!(carried.is_carried_with_tags());
    let before = [4, 5, 6].map(|lba| carried.before(lba).expect("each block has a pair"));
    assert_eq!(before, [[2; TAG_BYTES], ZEROS, [0xff; TAG_BYTES]], "block 6 was not written since");
    assert!(carried.open().covers(&(6..7)) && !carried.open().covers(&(5..6)));
}

#[test]
fn recorded_damage_is_not_accepted_and_ends_with_the_next_overwrite() {
    let mut intents = intents();
    record(&mut intents, &Intent::anything(4..6));
    intents.begin_damage(&[5]);
    assert!(intents.accept_anything(&(4..5)) && !intents.accept_anything(&(5..6)));
    let mut blocks = RangeSet::default();
    blocks.insert(5..6);
    intents.end_damage(&blocks);
    assert!(intents.have_damage(&[5]) && !intents.have_damage(&[4, 5]));
    intents.begin_overwrite(&(5..6), true);
    assert!(!intents.have_damage(&[5]));
}
