//! A stripe is durable: the map learns of it, and requests end.
//!
//! Until then the contents it replaces stay where they are: a crash must find them. A block may be written again while it is
//! on its way, so each block remembers what it replaces, and whichever version becomes durable first takes over from there.

use zonda_zoned::Status;

use super::Volume;
use super::write::{Block, NO_REQUEST, Source, Ticket};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{TOMBSTONE_LBA, Tombstone};
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, SegmentIndex};

impl Volume {
    pub(super) fn commit(&mut self, index: u32, segment_index: SegmentIndex) {
        let stripe = &mut self.stripes[index];
        let number = stripe.number;
        for member in 0..self.spec.members() {
            if stripe.present >> member & 1 == 0 {
                stripe.slots[member] = self.segments.place_absent(MemberIndex(member as u8), segment_index, number);
            }
        }
        self.segments.note_metadata(&self.spec, segment_index, &self.stripes[index]);
        // The stripe stays in its place while its blocks are published: older versions refer to it.
        let count = self.stripes[index].blocks.len();
        let mut ended = std::mem::take(&mut self.spare.ended);
        for at in 0..count {
            let place = self.place_of(index, segment_index, at as u32);
            let block = &mut self.stripes[index].blocks[at];
            let lba = block.lba;
            let source = std::mem::replace(&mut block.source, Source::Host { request: NO_REQUEST });
            match source {
                Source::Host { request } => {
                    self.publish(lba, index, at as u32, place);
                    self.buffered_blocks -= 1;
                    match ended.last_mut() {
                        _ if request == NO_REQUEST => {}
                        Some((last, parts)) if *last == request => *parts += 1,
                        _ => ended.push((request, 1)),
                    }
                }
                Source::Moved { from, sequence, ticket } => self.publish_moved(lba, (from, sequence), place, ticket),
                Source::Trim { request, tombstones, olds } => {
                    self.segments.add_tombstones(place, tombstones.len() as u32);
                    self.trims.arrived(olds.len());
                    let lbas = tombstones.iter().flat_map(Tombstone::lbas);
                    self.stripes[index].blocks[at].source = Source::Trim { request, tombstones: Vec::new(), olds };
                    for (place_in_olds, lba) in lbas.enumerate() {
                        self.publish_trimmed(lba, index, at as u32, place_in_olds, segment_index);
                    }
                    self.buffered_blocks -= 1;
                    ended.push((request, 1));
                }
                Source::MovedTombstones { from, tombstones, ticket } => {
                    self.segments.add_tombstones(place, tombstones.len() as u32);
                    for range in tombstones {
                        for lba in range.lbas() {
                            // Behind a newer version too: that one may be withdrawn.
                            self.replace(lba, Address::trimmed(from), Address::trimmed(segment_index));
                        }
                    }
                    self.arrived(ticket);
                }
            }
        }
        let mut stripe = self.stripes.remove(index);
        ended.extend(stripe.flushes.drain(..).map(|request| (request, 1)));
        self.reuse(stripe);
        self.segments.stripe_complete(&self.spec, &mut self.members, segment_index, number);
        for (request, parts) in ended.drain(..) {
            self.end_part(request, parts, Status::Success);
        }
        self.spare.ended = ended;
    }

    fn place_of(&self, index: u32, segment: SegmentIndex, block: u32) -> Physical {
        let stripe = &self.stripes[index];
        let (member, block) = self.holder(stripe, block);
        let offset = self.segments[segment].layout.offset_of(stripe.slots[member.as_usize()], block);
        Physical { segment, member, offset }
    }

    /// A host's block is durable at `place`.
    fn publish(&mut self, lba: u64, stripe: u32, block: u32, place: Physical) {
        let entry = &mut self.stripes[stripe].blocks[block as usize];
        if entry.is_superseded {
            return;
        }
        let old = std::mem::take(&mut entry.old);
        self.retire(lba, old);
        self.take_over(lba, Address::buffered(stripe, block), Address::media(place));
        self.segments.set_live(place);
    }

    /// A block trimmed is durably so.
    fn publish_trimmed(&mut self, lba: u64, stripe: u32, block: u32, at: usize, segment: SegmentIndex) {
        let Source::Trim { olds, .. } = &mut self.stripes[stripe].blocks[block as usize].source else {
            unreachable!("the block holds tombstones")
        };
        let old = std::mem::replace(&mut olds[at], Address::SUPERSEDED);
        if old == Address::SUPERSEDED {
            return;
        }
        self.retire(lba, old);
        self.take_over(lba, Address::buffered(stripe, block), Address::trimmed(segment));
    }

    /// What `me` was for the map, or for the next version on its way, `address` is from now on.
    pub(super) fn take_over(&mut self, lba: u64, me: Address, address: Address) {
        assert!(self.replace(lba, me, address), "a version that was not superseded is in the chain of its block");
    }

    /// Whether a place is that of a version of this block, as far as is known.
    pub(super) fn refers_to(&mut self, lba: u64, place: Address) -> bool {
        lba < self.map.len() as u64 && self.reference_to(lba, place).is_some()
    }

    /// Puts `address` in the place of `me` in the chain of a block's versions, if it is there.
    fn replace(&mut self, lba: u64, me: Address, address: Address) -> bool {
        self.reference_to(lba, me).map(|reference| *reference = address).is_some()
    }

    /// Where `me` stands in the chain of a block's versions, if it is there.
    fn reference_to(&mut self, lba: u64, me: Address) -> Option<&mut Address> {
        let mut entry = self.map[lba as usize];
        if entry == me {
            return Some(&mut self.map[lba as usize]);
        }
        while matches!(entry.location(), Location::Buffered { .. }) {
            let old = *self.old_of(lba, entry);
            if old == me {
                return Some(self.old_of(lba, entry));
            }
            entry = old;
        }
        None
    }

    /// What a version on its way replaces.
    fn old_of(&mut self, lba: u64, entry: Address) -> &mut Address {
        let Location::Buffered { stripe, block } = entry.location() else {
            unreachable!("a version that was not superseded is in the chain of its block")
        };
        let block = &mut self.stripes[stripe].blocks[block as usize];
        match &mut block.source {
            Source::Trim { tombstones, olds, .. } => {
                let mut before = 0;
                for range in tombstones.iter() {
                    if range.lbas().contains(&lba) {
                        return &mut olds[before + (lba - range.lba) as usize];
                    }
                    before += range.blocks as usize;
                }
                unreachable!("a trim on its way covers the blocks that refer to it")
            }
            _ => &mut block.old,
        }
    }

    /// A version is not needed any more: a newer one is durable.
    pub(super) fn retire(&mut self, lba: u64, old: Address) {
        let mut old = old;
        loop {
            match old.location() {
                Location::Nowhere | Location::Trimmed { .. } => return,
                Location::Media(place) => {
                    self.segments.set_dead(place);
                    return;
                }
                Location::Buffered { stripe, block } => {
                    let is_trim = matches!(self.stripes[stripe].blocks[block as usize].source, Source::Trim { .. });
                    let next = self.old_of(lba, old);
                    let before = *next;
                    if is_trim {
                        *next = Address::SUPERSEDED;
                    } else {
                        *next = Address::NOWHERE;
                        self.stripes[stripe].blocks[block as usize].is_superseded = true;
                    }
                    old = before;
                }
            }
        }
    }

    /// A moved block is durable in its new place. If a newer version is on its way, that one replaces the new place.
    fn publish_moved(&mut self, lba: u64, (from, sequence): (Address, u64), place: Physical, ticket: Ticket) {
        let is_there = match from.location() {
            Location::Media(source) => {
                self.segments.get(source.segment).is_some_and(|segment| segment.sequence == sequence)
            }
            _ => true,
        };
        if is_there && self.replace(lba, from, Address::media(place)) {
            if let Location::Media(source) = from.location() {
                self.segments.set_dead(source);
            }
            self.segments.set_live(place);
        } else if self.spec.has(SeededBug::StaleRelocation) {
            let newer = std::mem::replace(&mut self.map[lba as usize], Address::media(place));
            self.retire(lba, newer);
            self.segments.set_live(place);
        }
        if let (Ticket::Mend, Location::Media(source)) = (ticket, from.location()) {
            self.segments.reader_left(source.segment);
        }
        self.arrived(ticket);
    }

    fn arrived(&mut self, ticket: Ticket) {
        match ticket {
            Ticket::Collector => self.collector.arrived(),
            Ticket::Mend => self.counters.mended_blocks += 1,
            Ticket::Start => self.moved_at_start(),
        }
    }
}

impl Block {
    /// A block that is moved.
    pub(super) fn moved(lba: u64, timestamp: u64, from: Address, sequence: u64, ticket: Ticket) -> Block {
        let source = Source::Moved { from, sequence, ticket };
        Block { lba, timestamp, source, old: Address::NOWHERE, is_superseded: false }
    }

    pub(super) fn tombstones(source: Source, timestamp: u64) -> Block {
        Block { lba: TOMBSTONE_LBA, timestamp, source, old: Address::NOWHERE, is_superseded: false }
    }
}

impl Volume {
    /// The stream that moved blocks go to.
    pub(super) const MOVED_TO: Stream = Stream::Relocation;
}
