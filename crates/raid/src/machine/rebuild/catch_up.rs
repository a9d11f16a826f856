//! Catch-up of a re-added member: zones that it held before are claimed where they are valid, all
//! others are reset. The rest is rebuilt, segment by segment.
//!
//! A segment that was filled while the member took part does not change any more. So its zone is
//! claimed if
//!
//! - its header names this array, this member and a segment that exists and lacks the member's
//!   chunks, with that segment's layout;
//! - the header is as old as the segment or younger (by epoch): a segment that was opened later
//!   under the same sequence is another one;
//! - the zone is full, and its footer is intact: it is written only when all chunks before it are
//!   durable, on all members that took part;
//! - the footer matches the segment's slot table, so that addresses stay valid.
//!
//! Contents are not read: they are verified by later reads, as everywhere.
//!
//! No zone is claimed or reset before all members have recorded that the member is being rebuilt:
//! until then it is in the state in which it failed. And it is not active again before all its
//! other zones are reset, durably. A mount in the meantime sets aside the zones that a member held
//! before (see `mount/headers.rs`), and it is caught up as here.

use std::collections::BTreeMap;

use zonda_zoned::{BlockBuffer, Blocks, Operation, Outcome, Status, ZoneAction};

use super::super::Volume;
use super::super::members::Work;
use super::super::space::Space;
use super::returning::bytes_of;
use super::{RebuildFlush, RebuildStep};
use crate::MemberIndex;
use crate::format::{BlockMeta, Place, SegmentHeader, read_footer_block};
use crate::limits::RETURNED_ZONES_IN_FLIGHT_MAX;
use crate::tables::{Segment, SegmentIndex, SegmentState};

/// A zone that a member held when it returned, and that belongs to no segment.
#[derive(Debug)]
pub(in crate::machine) struct Aside {
    pub(in crate::machine) member: MemberIndex,
    pub(in crate::machine) zone: u32,
    /// It holds an active resource.
    pub(in crate::machine) is_active: bool,
    /// The header of the zone, if it is full.
    pub(in crate::machine) header: Option<SegmentHeader>,
    pub(in crate::machine) step: AsideStep,
}

/// Progress of a zone.
#[derive(Debug)]
pub(in crate::machine) enum AsideStep {
    Waiting,
    /// The footer is being read: these are its entries so far.
    Verifying {
        index: SegmentIndex,
        blocks: u32,
        entries: Vec<BlockMeta>,
    },
    Resetting,
}

/// The future of a zone.
enum Claim {
    /// It may belong to this segment.
    Of(SegmentIndex),
    /// Not known yet.
    Later,
    /// It belongs to no segment.
    None,
}

impl Volume {
    /// Continues with zones that were set aside.
    pub(in super::super) fn pump_catch_up(&mut self) {
        let may_continue = self.is_ready() && self.members.is_epoch_durable() && self.members.may_write(self.now);
        if self.rebuild.aside.is_empty() || !may_continue {
            return;
        }
        let is_in_flight = |aside: &&Aside| !matches!(aside.step, AsideStep::Waiting);
        let mut slots =
            RETURNED_ZONES_IN_FLIGHT_MAX.saturating_sub(self.rebuild.aside.iter().filter(is_in_flight).count());
        if slots == 0 {
            return;
        }
        let by_sequence: BTreeMap<u64, SegmentIndex> =
            self.segments.iter().map(|(index, segment)| (segment.sequence, index)).collect();
        for at in 0..self.rebuild.aside.len() {
            if slots == 0 {
                break;
            }
            if !matches!(self.rebuild.aside[at].step, AsideStep::Waiting) {
                continue;
            }
            match self.claim(at, &by_sequence) {
                Claim::Later => {}
                Claim::Of(index) => {
                    slots -= 1;
                    self.rebuild.aside[at].step = AsideStep::Verifying { index, blocks: 0, entries: Vec::new() };
                    self.read_footer(at);
                }
                Claim::None => {
                    slots -= 1;
                    self.reset_aside(at);
                }
            }
        }
    }

    fn claim(&self, at: usize, by_sequence: &BTreeMap<u64, SegmentIndex>) -> Claim {
        let aside = &self.rebuild.aside[at];
        let Some(header) = &aside.header else { return Claim::None };
        let Some(&index) = by_sequence.get(&header.segment) else { return Claim::None };
        let segment = &self.segments[index];
        if segment.has(aside.member) || !is_of(header, segment) || !segment.slots.are_all_packed() {
            return Claim::None;
        }
        let is_verified = |other: &Aside| {
            other.member == aside.member
                && matches!(&other.step, AsideStep::Verifying { index: verified, .. } if *verified == index)
        };
        match segment.state {
            SegmentState::Sealed if self.is_worked_on(index) || self.rebuild.aside.iter().any(is_verified) => {
                Claim::Later
            }
            SegmentState::Sealed => Claim::Of(index),
            SegmentState::Closing => Claim::Later,
            SegmentState::Opening | SegmentState::Open | SegmentState::Resetting => Claim::None,
        }
    }

    fn read_footer(&mut self, at: usize) {
        let Aside { member, zone, step, .. } = &self.rebuild.aside[at];
        let AsideStep::Verifying { index, blocks: known, .. } = step else { return };
        let (member, zone) = (*member, *zone);
        let layout = &self.segments[*index].layout;
        let blocks = (layout.footer_blocks - known).min(self.spec.shape.transfer_blocks);
        let start = self.members[member].lba(zone, layout.footer_offset() + known);
        let read = Operation::Read { start, blocks: Blocks(u64::from(blocks)) };
        self.members.send(member, Work::Rebuild(RebuildStep::Verify { zone }), read);
    }

    /// A read of blocks of the footer of a zone that may be claimed has ended.
    pub(super) fn on_verify(&mut self, member: MemberIndex, zone: u32, status: Status, outcome: Outcome) {
        self.wake();
        let is_meant = |aside: &Aside| (aside.member, aside.zone) == (member, zone);
        let Some(at) = self.rebuild.aside.iter().position(is_meant) else { return };
        let array = self.spec.array;
        let block_bytes = self.spec.shape.block_bytes;
        let aside = &mut self.rebuild.aside[at];
        let (AsideStep::Verifying { index, blocks, entries }, Some(header)) = (&mut aside.step, &aside.header) else {
            return;
        };
        let place = Place { array, segment: header.segment, member: member.0 };
        let index = *index;
        let has_read = bytes_of(status, outcome)
            .is_some_and(|buffer| take_footer(&place, &buffer, block_bytes, (blocks, &mut *entries)));
        let segment = self.segments.get(index);
        let is_still = |segment: &&Segment| {
            segment.sequence == header.segment && segment.state == SegmentState::Sealed && !segment.has(member)
        };
        let Some(segment) = segment.filter(is_still).filter(|_| has_read) else {
            aside.step = AsideStep::Waiting;
            aside.header = None;
            return;
        };
        if *blocks < segment.layout.footer_blocks {
            return self.read_footer(at);
        }
        if !matches_slots(segment, member, entries) {
            aside.step = AsideStep::Waiting;
            aside.header = None;
            return;
        }
        let (footer, entries) = (*blocks, std::mem::take(entries));
        self.rebuild.aside.swap_remove(at);
        self.segments.rebuilt(index, member, zone, footer, &entries);
        self.collector.on_loss_recorded(index);
        self.segments.add_candidate(index);
        if self.rebuild.member == Some(member) {
            self.rebuild.done += 1;
        }
        self.zone_left_aside(member);
    }

    fn reset_aside(&mut self, at: usize) {
        let aside = &mut self.rebuild.aside[at];
        aside.step = AsideStep::Resetting;
        let (member, zone) = (aside.member, aside.zone);
        let reset = self.members[member].manage(zone, ZoneAction::Reset);
        self.members.send(member, Work::Rebuild(RebuildStep::ResetAside { zone }), reset);
    }

    pub(super) fn on_aside_reset(&mut self, member: MemberIndex, zone: u32, status: Status) {
        self.wake();
        let is_meant = |aside: &Aside| (aside.member, aside.zone) == (member, zone);
        let Some(at) = self.rebuild.aside.iter().position(is_meant) else { return };
        if status == Status::CapacityExceeded {
            self.rebuild.aside[at].step = AsideStep::Waiting;
            return;
        }
        let Aside { is_active, .. } = self.rebuild.aside.swap_remove(at);
        self.members[member].zone_reset_ended(zone, is_active, status);
        self.zone_left_aside(member);
        // The reset is to leave the cache before the member is active.
        self.rebuild.flush = RebuildFlush::Wanted;
        if !status.is_success() {
            self.members[member].count_error();
            let verdict = Space::is_out_of_zones(&self.spec, &self.members, member);
            self.apply_verdict(member, verdict);
        }
    }

    /// Whether a re-added member that lacks its part of a segment has zones that were not checked
    /// yet.
    pub(in super::super) fn has_zones_aside(&self, index: SegmentIndex) -> bool {
        let segment = self.segments.get(index);
        segment.is_some_and(|segment| self.rebuild.aside.iter().any(|aside| !segment.has(aside.member)))
    }

    /// Once no zone of a member is set aside any more, unreadable blocks are checked again.
    fn zone_left_aside(&mut self, member: MemberIndex) {
        if !self.is_catching_up(member) {
            self.segments.forget_all_lost();
        }
    }

    /// Whether zones of a member are still set aside.
    pub(super) fn is_catching_up(&self, member: MemberIndex) -> bool {
        self.rebuild.aside.iter().any(|aside| aside.member == member)
    }

    /// Active zones of a member that are set aside.
    pub(in super::super) fn aside_active(&self, member: MemberIndex) -> u32 {
        self.rebuild.aside.iter().filter(|aside| aside.member == member && aside.is_active).count() as u32
    }
}

/// Whether a zone with this header was written as part of a segment, and not of another one with
/// the same sequence number.
fn is_of(header: &SegmentHeader, segment: &Segment) -> bool {
    let layout = &segment.layout;
    let (epoch, timestamp) = segment.opened;
    let is_as_old = header.epoch > epoch || (header.epoch, header.timestamp) == (epoch, timestamp);
    is_as_old
        && header.copies == layout.header_blocks
        && header.stream == segment.stream as u8
        && header.unit_blocks == layout.unit_blocks
        && header.group_stripes == layout.group_stripes
        && header.stripes == layout.stripes
        && header.is_in_band == (layout.meta_blocks > 0)
        && header.zones.len() == segment.zones.len()
}

/// Adds blocks of a footer to the known entries. Returns whether they are the expected ones.
fn take_footer(
    place: &Place,
    buffer: &BlockBuffer,
    block_bytes: usize,
    (blocks, entries): (&mut u32, &mut Vec<BlockMeta>),
) -> bool {
    for block in buffer.data.chunks(block_bytes) {
        match read_footer_block(place, block) {
            Some((first, found)) if first as usize == entries.len() => entries.extend(found),
            _ => return false,
        }
        *blocks += 1;
    }
    true
}

/// Whether a footer has an entry for each block, and matches the slot table.
fn matches_slots(segment: &Segment, member: MemberIndex, entries: &[BlockMeta]) -> bool {
    let payload = segment.layout.payload_blocks() as usize;
    entries.len() == segment.layout.entries() as usize
        && (0..).zip(entries.chunks(payload)).all(|(slot, metas)| {
            let stripe = segment.slots.stripe_at(member, slot);
            metas.iter().all(|meta| Some(meta.stripe) == stripe)
        })
}
