//! Fetches of consecutive blocks of a member.
//!
//! If the medium cannot read them in one command, they are read one by one (see `singly.rs`): a bad
//! block does not affect the others.

use zonda_zoned::{BlockBuffer, Blocks, Class, Operation, Outcome, Payload, Status};

use super::super::members::{Members, Work};
use super::super::requests::Requests;
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::singly::Singly;
use super::verify::Verifier;
use super::{BlockRead, Computed, Ended, FetchKey, Purpose, Reads, Unreadable};
use crate::format::Record;
use crate::tables::Physical;

/// Consecutive blocks in one or more slots of a zone.
#[derive(Debug)]
pub(in crate::machine) struct Fetch {
    pub(super) place: Physical,
    pub(super) blocks: u32,
    pub(super) purpose: Purpose,
    /// Its blocks are read one by one.
    pub(super) singly: Option<Box<Singly>>,
    /// The result for each block, if any is computed.
    found: Vec<Option<BlockRead>>,
    /// Blocks that are being computed.
    pub(super) repairing: u32,
    /// The member did not return all blocks; not set where it is known to lack them.
    pub(super) is_damaged: bool,
    /// When a loss is to be confirmed: what is known about the unreadable blocks.
    unreadable: Option<Box<Unreadable>>,
}

impl Reads {
    /// Reads consecutive blocks of a member, none of them chunk metadata. Returns the result if it
    /// is known at once.
    #[expect(clippy::too_many_arguments, reason = "the owners that a read reaches, and what is read")]
    pub(in crate::machine) fn fetch(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        place: Physical,
        blocks: u32,
        purpose: Purpose,
    ) -> Option<Ended> {
        segments.add_reader(place.segment);
        let key = self.fetches.insert(Fetch {
            place,
            blocks,
            purpose,
            singly: None,
            found: Vec::new(),
            repairing: 0,
            is_damaged: false,
            unreadable: None,
        });
        let segment = &segments[place.segment];
        let zone = segment.zones[place.member.as_usize()];
        let member = &members[place.member];
        let (Some(zone), true) = (zone, member.is_present() && segment.has(place.member)) else {
            if purpose == Purpose::Confirm {
                // A present member without its zone has lost it; a missing member may hold it,
                // unless it had failed before the segment was opened.
                let is_lost = !members.may_hold(place.member, segment);
                self.fetches[key].unreadable = Some(Box::new(Unreadable { is_lost, ..Unreadable::default() }));
            }
            return self.repair_all(spec, members, segments, requests, key);
        };
        let (offset, blocks) = fetched_range(spec, segments, place, blocks, purpose);
        let start = member.lba(zone, offset);
        let read = Operation::Read { start, blocks: Blocks(u64::from(blocks)) };
        let is_moved = matches!(purpose, Purpose::Move | Purpose::MoveTombstones);
        let class = if is_moved { Class::Background } else { Class::Foreground };
        members.send_as(class, place.member, Work::Fetch { fetch: key }, read);
        None
    }

    /// The member of a fetch has answered. Returns the place if it is to be suspected because of
    /// the answer.
    #[inline]
    pub(in crate::machine) fn on_answer(
        &mut self,
        members: &Members,
        key: FetchKey,
        status: Status,
    ) -> Option<Physical> {
        let fetch = &mut self.fetches[key];
        fetch.is_damaged = members[fetch.place.member].is_present();
        let is_fault = !status.is_success() && status != Status::UnrecoveredReadError;
        (is_fault && fetch.is_damaged).then_some(fetch.place)
    }

    /// Verifies the result of a fetch; missing blocks are computed.
    #[expect(clippy::too_many_arguments, reason = "the owners that a read reaches, and what has come")]
    pub(in crate::machine) fn on_fetch(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        key: FetchKey,
        status: Status,
        outcome: Outcome,
    ) -> Option<Ended> {
        let Fetch { place, blocks, purpose, .. } = self.fetches[key];
        let (from, count) = fetched_range(spec, segments, place, blocks, purpose);
        if !status.is_success() {
            let is_medium = status == Status::UnrecoveredReadError && members[place.member].is_present();
            if is_medium && count > 1 && spec.has_contents() && self.read_singly(members, segments, key, from) {
                return None;
            }
            if is_medium && count == 1 {
                self.damaged.push(place);
            }
            if purpose == Purpose::Confirm {
                self.fetches[key].unreadable =
                    Some(Box::new(Unreadable { is_lost: is_medium, ..Unreadable::default() }));
            }
            return self.repair_all(spec, members, segments, requests, key);
        }
        if !spec.has_contents() {
            return Some(self.end_fetch(segments, key, Vec::new()));
        }
        let Outcome::Data(Payload::Bytes(buffer)) = outcome else {
            return self.repair_all(spec, members, segments, requests, key);
        };
        if buffer.data.len() != count as usize * spec.shape.block_bytes {
            return self.repair_all(spec, members, segments, requests, key);
        }
        self.take_fetched(spec, members, segments, requests, key, buffer, &[])
    }

    /// Verifies the result of a fetch; missing blocks are computed. `failed` has the status of
    /// unreadable blocks of the buffer; none if it is empty.
    #[expect(clippy::too_many_arguments, reason = "the owners that a read reaches, and what has come")]
    #[inline]
    pub(super) fn take_fetched(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        key: FetchKey,
        buffer: Box<BlockBuffer>,
        failed: &[Option<Status>],
    ) -> Option<Ended> {
        let Fetch { place, blocks, purpose, .. } = self.fetches[key];
        let (from, _) = fetched_range(spec, segments, place, blocks, purpose);
        let block_bytes = spec.shape.block_bytes;
        let skip = (place.offset - from) as usize;
        let expected = match purpose {
            Purpose::Host { lba, .. } => Some(lba),
            _ => None,
        };
        let verifier = Verifier { spec, members, segments };
        let block_at = |at: u32| Physical { offset: place.offset + at, ..place };
        let failure = |at: usize| failed.get(at).copied().flatten();
        let record = |at: u32| {
            failure(skip + at as usize).map_or_else(
                || verifier.verify(block_at(at), &buffer, skip, at as usize, expected.map(|lba| lba + u64::from(at))),
                |_| None,
            )
        };
        if let Purpose::Host { request, at, .. } = purpose
            && (0..blocks).all(|at| record(at).is_some())
        {
            // Verified.
            requests.add_buffer(request, at, buffer);
            return Some(self.end_fetch(segments, key, Vec::new()));
        }
        let contents = |at: u32| {
            let from = (skip + at as usize) * block_bytes;
            buffer.data.slice(from..from + block_bytes)
        };
        let block = |at: u32| record(at).map(|record| Ok((contents(at), record)));
        let found: Vec<_> = (0..blocks).map(block).collect();
        if found.iter().all(Option::is_some) {
            return Some(self.end_fetch(segments, key, found.into_iter().flatten().collect()));
        }
        for at in (0..blocks).filter(|&at| found[at as usize].is_none()) {
            let is_damaged = match failure(skip + at as usize) {
                Some(status) => status == Status::UnrecoveredReadError,
                None => verifier.is_damaged(block_at(at), &contents(at), &buffer, at as usize),
            };
            if is_damaged {
                self.damaged.push(block_at(at));
            }
        }
        let is_metadata_damaged = match failure(0) {
            Some(status) => status == Status::UnrecoveredReadError,
            None => verifier.is_metadata_damaged(place, &buffer),
        };
        if skip > 0 && is_metadata_damaged {
            self.damaged.push(Physical { offset: from, ..place });
        }
        if purpose == Purpose::Confirm {
            let meta = verifier.metadata_of(place, &buffer, 0);
            let record = meta.map(|meta| Record::from_bytes(&meta.record));
            let status = failure(skip);
            let is_lost = status.is_none_or(|status| status == Status::UnrecoveredReadError);
            // Checksums in memory prove that the block is intact where nothing else is left to
            // prove it.
            let is_proven = status.is_none() && verifier.is_proven(place, &contents(0));
            let proven = is_proven.then(|| contents(0));
            self.fetches[key].unreadable =
                Some(Box::new(Unreadable { is_lost: is_lost && !is_proven, record, proven }));
        }
        self.fetches[key].found = found;
        self.repair_missing(spec, members, segments, requests, key)
    }

    /// A block of a fetch was computed, or could not be. Returns the result after the last one.
    pub(in crate::machine) fn computed(
        &mut self,
        spec: &Spec,
        segments: &mut Segments,
        requests: &mut Requests,
        computed: Computed,
    ) -> Option<Ended> {
        let Computed { fetch: key, at, block, is_hopeless } = computed;
        let fetch = &mut self.fetches[key];
        if let Some(unreadable) = &mut fetch.unreadable {
            unreadable.is_lost &= is_hopeless;
        }
        let before = fetch.found[at as usize].replace(block);
        assert!(before.is_none(), "only missing blocks are computed, each once");
        fetch.repairing -= 1;
        if fetch.repairing > 0 {
            return None;
        }
        let found: Vec<_> = std::mem::take(&mut fetch.found).into_iter().flatten().collect();
        if let Purpose::Host { request, at, lba } = fetch.purpose {
            let mut status = Status::Success;
            for (number, block) in (0..).zip(&found) {
                match block {
                    Ok(_) if !spec.has_contents() => {}
                    Ok((data, record)) if record.lba == lba + u64::from(number) => {
                        requests.add_data(request, at + number, data.clone());
                    }
                    Ok(_) => status = Status::UnrecoveredReadError,
                    Err(error) => {
                        self.unreadable_blocks += 1;
                        status = *error;
                    }
                }
            }
            requests.set_error(request, status);
        }
        Some(self.end_fetch(segments, key, found))
    }

    fn repair_all(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        key: FetchKey,
    ) -> Option<Ended> {
        let blocks = self.fetches[key].blocks as usize;
        self.fetches[key].found = vec![None; blocks];
        self.repair_missing(spec, members, segments, requests, key)
    }

    /// Starts to compute the blocks that were not found.
    fn repair_missing(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        key: FetchKey,
    ) -> Option<Ended> {
        let missing: Vec<u32> =
            (0..).zip(&self.fetches[key].found).filter(|(_, found)| found.is_none()).map(|(at, _)| at).collect();
        self.fetches[key].repairing = missing.len() as u32;
        let place = self.fetches[key].place;
        let mut ended = None;
        for at in missing {
            let target = Physical { offset: place.offset + at, ..place };
            if let Some(computed) = self.repair(spec, members, segments, (key, at), target) {
                ended = self.computed(spec, segments, requests, computed);
            }
        }
        ended
    }

    #[inline]
    fn end_fetch(&mut self, segments: &mut Segments, key: FetchKey, found: Vec<BlockRead>) -> Ended {
        let Fetch { place, blocks, purpose, unreadable, repairing, .. } = self.fetches.remove(key);
        assert_eq!(repairing, 0, "a fetch ends after its last block");
        self.has_progress |= !matches!(purpose, Purpose::Host { .. });
        segments.reader_left(place.segment);
        Ended { place, blocks, purpose, found, unreadable }
    }
}

/// The range to read for some blocks: with metadata in band their chunk's metadata too, if they are
/// needed.
#[inline]
fn fetched_range(spec: &Spec, segments: &Segments, place: Physical, blocks: u32, purpose: Purpose) -> (u32, u32) {
    if !spec.shape.is_in_band || matches!(purpose, Purpose::Host { .. }) {
        return (place.offset, blocks);
    }
    let layout = segments[place.segment].layout;
    let (slot, _) = layout.place_of(place.offset);
    let first = layout.slot_offset(slot);
    (first, place.offset + blocks - first)
}
