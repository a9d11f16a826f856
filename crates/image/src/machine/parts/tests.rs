use bytes::Bytes;

use super::*;
use crate::format::Generation;

const ZONE: ZoneIndex = ZoneIndex(1);

fn part(first: u64, end: u64, work: Work) -> Part {
    Part::new(None, ZONE, Generation(0), first, end, work)
}

fn read(first: u64, end: u64) -> Part {
    part(first, end, Work::Read { place: 0, data: None, tags: None, damage: None })
}

fn write(first: u64, end: u64) -> Part {
    part(first, end, Work::Sequential { data: None, tags: Bytes::new() })
}

fn zeros(first: u64, end: u64) -> Part {
    part(first, end, Work::Zero { tags: Bytes::new() })
}

fn add(parts: &mut Parts, part: Part) -> Key<Part> {
    let key = parts.add(part, &ZoneRun::default(), false);
    parts.check_invariants();
    key
}

fn ready(parts: &mut Parts) -> Vec<Key<Part>> {
    std::iter::from_fn(|| parts.next_ready()).collect()
}

#[test]
fn parts_wait_for_earlier_ones_of_the_same_blocks_and_reads_not_for_reads() {
    let mut parts = Parts::new(3);
    let [first, same, beside] = [read(0, 4), read(2, 6), read(6, 8)].map(|part| add(&mut parts, part));
    let change = add(&mut parts, zeros(3, 5));
    assert_eq!(ready(&mut parts), [first, same, beside]);
    parts.release(first);
    parts.check_invariants();
    assert_eq!(ready(&mut parts), [], "another read is in flight");
    parts.release(same);
    assert_eq!(ready(&mut parts), [change]);
}

#[test]
fn a_write_that_takes_a_resource_waits_for_all_writes_up_to_the_one_that_frees_it() {
    let mut parts = Parts::new(3);
    let [first, last] = [write(0, 4), write(4, 8)].map(|part| add(&mut parts, part));
    parts.frees_resource(last);
    let other = Part { zone: ZoneIndex(2), ..write(0, 1) };
    let waiting = parts.add(other, &ZoneRun::default(), true);
    assert_eq!(ready(&mut parts), [first, last], "writes of a zone are written at the same time");
    parts.release(last);
    assert_eq!(ready(&mut parts), []);
    parts.release(first);
    assert_eq!(ready(&mut parts), [waiting]);
    parts.check_invariants();
}

#[test]
#[should_panic(expected = "a part that ends is released before")]
fn a_part_that_others_may_wait_for_cannot_be_removed() {
    let mut parts = Parts::new(3);
    let key = add(&mut parts, read(0, 4));
    parts.remove(key);
}
