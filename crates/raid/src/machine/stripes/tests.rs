//! Unit tests of stripes, without hosts and drives.

use bytes::Bytes;
use zonda_zoned::{Instant, Status};

use super::super::address::Address;
use super::super::fixtures::{end_next, key, members, spec};
use super::super::members::Work;
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::{Block, Source, StripeKey, Stripes};
use crate::MemberIndex;
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::shape::Stream;

const START: Instant = Instant(5);

fn push(spec: &Spec, stripes: &mut Stripes, lba: u64) -> (StripeKey, u32) {
    stripes.buffer(1);
    let block = Block::of_host(lba, lba, key(0), Address::NOWHERE);
    stripes.push(spec, START, Stream::Small, block, Bytes::from(vec![lba as u8; 512]))
}

#[test]
fn a_stripe_waits_for_a_segment_when_it_is_full_or_has_waited_for_blocks_too_long() {
    let (spec, mut stripes) = (spec(1, false), Stripes::new());
    assert_eq!((push(&spec, &mut stripes, 1).1, push(&spec, &mut stripes, 2).1), (0, 1));
    assert!(stripes.has_progress() && stripes.ready(Stream::Small).len() == 1, "two blocks are a stripe");
    push(&spec, &mut stripes, 3);
    stripes.check_invariants(&spec);
    let due = stripes.padding_due(&spec, Stream::Small).expect("a stripe is filling");
    stripes.pad_late(&spec, Instant(due.0 - 1));
    assert_eq!(stripes.filling_blocks(Stream::Small), 1, "it is not late");
    stripes.pad_late(&spec, due);
    assert_eq!((stripes.ready(Stream::Small).len(), stripes.padding_blocks()), (2, 1));
    assert_eq!((stripes.buffered_blocks(), stripes.add_flush(key(7))), (3, 2), "a flush waits for both");
    stripes.check_invariants(&spec);
}

#[test]
fn a_stripe_of_which_a_chunk_fails_is_the_first_to_be_written_again() {
    let (spec, mut stripes, mut segments) = (spec(1, false), Stripes::new(), Segments::new());
    let mut members = members(&spec);
    segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
    let segment = segments.open(Stream::Small)[0];
    for member in spec.member_indices() {
        end_next(&mut members, member, Status::Success).expect("a header");
        segments.on_header(&spec, &mut members, segment);
    }
    for lba in 0..4 {
        push(&spec, &mut stripes, lba);
    }
    let first = stripes.next_ready(Stream::Small).expect("two are ready");
    for attempt in 1..=WRITE_ATTEMPTS_MAX {
        stripes.issue(&spec, &mut members, &mut segments, START, first, segment);
        assert_eq!(stripes[first].pending, 3, "each member has a chunk");
        for member in spec.member_indices() {
            let (work, _) = end_next(&mut members, member, Status::Success).expect("a chunk");
            assert!(matches!(work, Work::Chunk { stripe } if stripe == first));
            let slot = (member != MemberIndex(1)).then_some(stripes[first].number);
            stripes.chunk_ended(first, member, slot);
        }
        assert_eq!((stripes[first].pending, stripes[first].present, stripes[first].failed), (0, 0b101, 0b010));
        assert_eq!(stripes.take_back(first), (segment, attempt == WRITE_ATTEMPTS_MAX), "so often it is not the zones");
        stripes.write_again(first);
        stripes.check_invariants(&spec);
        assert_eq!(stripes.next_ready(Stream::Small), Some(first));
    }
}

#[test]
fn a_stripe_holds_trims_from_the_first_tombstones_of_hosts_on() {
    let (spec, mut stripes) = (spec(1, false), Stripes::new());
    let (stripe, _) = push(&spec, &mut stripes, 1);
    assert!(!stripes.holds_trim(stripe), "a block of a host is no trim");
    stripes.buffer(1);
    let source = Source::Trim { request: key(0), tombstones: Vec::new(), olds: Vec::new() };
    let (same, _) = stripes.push(&spec, START, Stream::Small, Block::tombstones(source, 2), Bytes::from(vec![0; 512]));
    assert_eq!(same, stripe);
    assert!(stripes.holds_trim(stripe));
}

#[test]
fn the_memory_of_a_returned_list_is_reused() {
    let mut stripes = Stripes::new();
    let mut list = stripes.take_list();
    list.reserve(100);
    let capacity = list.capacity();
    stripes.return_list(list);
    assert_eq!(stripes.take_list().capacity(), capacity);
}
