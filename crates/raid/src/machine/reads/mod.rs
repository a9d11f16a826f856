//! Reads: blocks by place, verified, and reconstructed from the rest of their stripe where they are
//! lost or wrong.
//!
//! ```text
//! fetch.rs   consecutive blocks of a member
//! singly.rs  the same one by one, if they cannot be read together
//! repair.rs  one block from the rest of its stripe
//! verify.rs  verification of a block by its metadata
//! ```

mod fetch;
mod repair;
mod singly;
mod verify;

use bytes::Bytes;
use zonda_zoned::{Key, Slab, Status};

use super::members::Members;
use super::requests::RequestKey;
use super::segments::Segments;
use crate::format::Record;
use crate::tables::{Physical, SegmentIndex};

use fetch::Fetch;
use repair::Repair;
pub(super) use singly::Singly;
pub(super) use verify::record_in_memory;

/// Owns the reads in flight: blocks that are fetched, and those that are computed. The segment that
/// is read from does not change.
///
/// The course of a read: [`fetch`](Reads::fetch); [`on_answer`](Reads::on_answer) and
/// [`on_fetch`](Reads::on_fetch) when the member has answered; for each missing block
/// [`on_source_answer`](Reads::on_source_answer) and [`on_source`](Reads::on_source), then
/// [`computed`](Reads::computed). The call that completes the last block returns the result.
#[derive(Debug, Default)]
pub(super) struct Reads {
    fetches: Slab<Fetch>,
    repairs: Slab<Repair>,
    /// Blocks that were reconstructed from the rest of their stripe.
    reconstructed_blocks: u64,
    /// Unreadable blocks of host reads, counted each time.
    unreadable_blocks: u64,
    /// Damaged blocks that are to be counted.
    damaged: Vec<Physical>,
    /// Something has changed that others may wait for.
    has_progress: bool,
}

/// A fetch in flight.
pub(super) type FetchKey = Key<Fetch>;

/// A block that is being computed.
pub(super) type RepairKey = Key<Repair>;

/// The purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A host request: these are its blocks from `at`, and logical blocks from `lba`.
    Host {
        request: RequestKey,
        at: u32,
        lba: u64,
    },
    Move,
    MoveTombstones,
    /// An unreadable block is read again to confirm that it is lost.
    Confirm,
    /// A mount moves torn blocks, or reads tombstones.
    Mount,
}

/// Contents and record of a block, or the error.
pub(super) type BlockRead = Result<(Bytes, Record), Status>;

/// The result of a read. A host request has its blocks already.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) place: Physical,
    pub(super) blocks: u32,
    pub(super) purpose: Purpose,
    pub(super) found: Vec<BlockRead>,
    /// What is known of a block that was to be confirmed, and cannot be read.
    pub(super) unreadable: Option<Box<Unreadable>>,
}

/// A block that cannot be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Unreadable {
    /// It never will be: no chunk that could help is on a missing member, or failed for another
    /// reason than its medium.
    pub(super) is_lost: bool,
    /// Its own record, if its metadata are intact.
    pub(super) record: Option<Record>,
    /// Its contents, if these are intact and only their description is damaged.
    pub(super) proven: Option<Bytes>,
}

/// A block of a fetch that was computed, or could not be.
#[derive(Debug)]
pub(super) struct Computed {
    fetch: FetchKey,
    at: u32,
    block: BlockRead,
    /// For a block that could not be computed: the chunks of other members, as they are now, never
    /// suffice.
    is_hopeless: bool,
}

impl Reads {
    /// The place and contents for a rewrite of a block that its member did not return intact.
    pub(super) fn wants_repair(
        &self,
        members: &Members,
        segments: &Segments,
        computed: &Computed,
    ) -> Option<(Physical, Record, Bytes)> {
        let Ok((data, record)) = &computed.block else { return None };
        let fetch = &self.fetches[computed.fetch];
        let place = fetch.place;
        let is_of_host = matches!(fetch.purpose, Purpose::Host { .. });
        // Chunks that a member lacks are written by a rebuild or collection.
        let is_readable = members[place.member].is_present() && segments[place.segment].has(place.member);
        let target = Physical { offset: place.offset + computed.at, ..place };
        (is_of_host && is_readable && fetch.is_damaged).then(|| (target, *record, data.clone()))
    }

    /// The next damaged block that was found.
    pub(super) fn next_damaged(&mut self) -> Option<Physical> {
        self.damaged.pop()
    }

    pub(super) fn reconstructed_blocks(&self) -> u64 {
        self.reconstructed_blocks
    }

    pub(super) fn unreadable_blocks(&self) -> u64 {
        self.unreadable_blocks
    }

    pub(super) fn has_progress(&self) -> bool {
        self.has_progress
    }

    pub(super) fn clear_progress(&mut self) {
        self.has_progress = false;
    }

    /// The segment of each fetch in flight, for checks.
    pub(super) fn fetched(&self) -> impl Iterator<Item = SegmentIndex> + '_ {
        self.fetches.iter().map(|(_, fetch)| fetch.place.segment)
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, segments: &Segments) {
        for (_, fetch) in self.fetches.iter() {
            assert!(segments[fetch.place.segment].readers > 0, "a segment that is read from stays");
        }
        let repairing: u32 = self.fetches.iter().map(|(_, fetch)| fetch.repairing).sum();
        assert_eq!(repairing as usize, self.repairs.len(), "each block that is computed is one of a fetch");
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Instant, Outcome};

    use super::super::fixtures::{end_next, members, spec};
    use super::super::members::Work;
    use super::super::requests::{Answer, Requests};
    use super::*;
    use crate::MemberIndex;
    use crate::shape::Stream;

    #[test]
    fn a_block_whose_member_fails_the_read_is_computed_from_all_others_and_lost_without_them() {
        let spec = spec(1, false);
        let (mut members, mut segments) = (members(&spec), Segments::new());
        segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        for member in spec.member_indices() {
            end_next(&mut members, member, Status::Success).expect("a header");
            segments.on_header(&spec, &mut members, index);
        }
        let number = segments.begin_stripe(index, Instant::ZERO);
        for member in spec.member_indices() {
            segments.place_absent(member, index, number);
        }
        let (mut reads, mut requests) = (Reads::default(), Requests::default());
        let request = requests.begin(CommandId(1), 1, Answer::Pieces { bytes: 512, pieces: Vec::new() });
        let offset = segments[index].layout.slot_offset(0);
        let place = Physical { segment: index, member: MemberIndex(0), offset };
        let purpose = Purpose::Host { request, at: 0, lba: 3 };
        assert!(reads.fetch(&spec, &mut members, &mut segments, &mut requests, place, 1, purpose).is_none());
        reads.check_invariants(&segments);
        let bad = Status::UnrecoveredReadError;
        let Some((Work::Fetch { fetch }, _)) = end_next(&mut members, place.member, bad) else { panic!("a fetch") };
        assert_eq!(reads.on_answer(&members, fetch, bad), None, "a medium error is not the zone's or the member's");
        let none = Outcome::None;
        assert!(reads.on_fetch(&spec, &mut members, &mut segments, &mut requests, fetch, bad, none).is_none());
        reads.check_invariants(&segments);
        let mut ended = None;
        for member in [1, 2].map(MemberIndex) {
            let Some((Work::Source { repair, source }, _)) = end_next(&mut members, member, bad) else {
                panic!("each other member is read")
            };
            if let Some(computed) = reads.on_source(&spec, &mut members, &segments, repair, source, bad, &Outcome::None)
            {
                assert!(reads.wants_repair(&members, &segments, &computed).is_none(), "nothing can be written");
                ended = reads.computed(&spec, &mut segments, &mut requests, computed);
            }
        }
        let ended = ended.expect("no member is left");
        assert_eq!((ended.place, reads.unreadable_blocks(), segments[index].readers), (place, 1, 0));
        requests.end_part(&spec, request, 1, Status::Success, false);
        assert_eq!(requests.poll().map(|completion| completion.status), Some(bad));
        reads.check_invariants(&segments);
    }
}
