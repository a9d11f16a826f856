//! Reclaim (eZNS, section 4.4.4): the last group of a v-zone that its host does not write any more is
//! copied into groups of the minimum width, and its spares are free for others.
//!
//! The copy is in no record until it is whole and flushed. Then one record puts it in the place of the
//! old group, and the old zones are reset. A crash before that record leaves the old group, and zones
//! of no v-zone, which a mount resets; a crash after it leaves the copy, and resets the old zones.
//!
//! Reads go to the old group meanwhile. Any other command to the v-zone ends the copy, as an error
//! does: the old group is as it was.

use std::ops::Range;

use zonda_zoned::{
    Blocks, Class, Instant, NamespaceId, Operation, Origin, Outcome, Payload, Status, StreamId, ZoneIndex,
};

use super::by_number::ByNumber;
use super::ending::ResetOf;
use super::{Op, Pool, ReclaimProgress, Waiter};
use crate::balloon::Grant;
use crate::format::Owner;
use crate::group::{Group, Piece};
use crate::limits::{FROZEN_CYCLES, FROZEN_TIME, RECLAIM_BYTES_MAX};
use crate::payload::{Assembly, gather};
use crate::vzone::{Busy, Held, VZone};

/// A v-zone whose last group is being copied.
#[derive(Debug)]
pub(super) struct Reclaim {
    namespace: u32,
    vzone: u32,
    /// The place of the old group.
    index: usize,
    step: Step,
    /// Blocks of the v-zone before this one were copied, or are in groups before.
    copied: u64,
    /// Where the copy ends.
    end: u64,
    /// The groups of the copy.
    groups: Vec<Group>,
    assembly: Assembly,
    /// Commands of this step that have not ended, and the first error.
    outstanding: u32,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// To copy the next blocks; waits for zones if there is no place for them.
    Next,
    Reading(Range<u64>),
    Writing(Range<u64>),
    Flushing,
    /// The copy is whole; reads of the old group have to end.
    Replacing,
    /// Its record is being written.
    Recording,
    /// Waits for commands in flight, and resets the copy.
    Abandoned,
}

/// When a namespace was last written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet {
    /// The number of the next write at the last redistribution.
    next_write: u64,
    since: Option<Instant>,
    /// Redistributions without a write.
    cycles: u32,
}

impl Quiet {
    /// Whether nothing was written since the last redistribution.
    pub(super) fn is_quiet(&self, next_write: u64) -> bool {
        self.since.is_some() && self.next_write == next_write
    }

    fn on_cycle(&mut self, now: Instant, next_write: u64) {
        if self.is_quiet(next_write) {
            self.cycles += 1;
        } else {
            *self = Quiet { next_write, since: Some(now), cycles: 0 };
        }
    }

    fn is_frozen(&self, now: Instant) -> bool {
        self.cycles >= FROZEN_CYCLES && self.since.is_some_and(|since| now.since(since) >= FROZEN_TIME)
    }
}

impl Reclaim {
    /// Zones of the copy.
    pub(super) fn width(&self) -> u32 {
        self.groups.iter().map(Group::width).sum()
    }

    /// How much was copied; `None` for a copy that was abandoned.
    pub(super) fn progress(&self, namespaces: &ByNumber<super::Namespace>) -> Option<ReclaimProgress> {
        let vzone = namespaces.get(&self.namespace)?.vzones.get(self.vzone as usize)?;
        let start = vzone.groups.get(self.index).filter(|_| self.step != Step::Abandoned)?.blocks().start;
        Some(ReclaimProgress {
            namespace: NamespaceId(self.namespace),
            zone: ZoneIndex(self.vzone),
            copied: Blocks(self.copied - start),
            blocks: Blocks(self.end - start),
        })
    }

    fn groups_end(&self) -> Option<u64> {
        self.groups.last().map(|group| group.blocks().end)
    }
}

impl VZone {
    /// Whether the last group has spares, and nothing happens to the v-zone.
    fn can_be_reclaimed(&self) -> bool {
        let is_open = !self.is_finished && !self.has_failed && !self.is_offline && !self.is_damaged;
        let is_last = |held: &Held| held.group + 1 == self.groups.len() && !held.is_draining;
        let has_spares = self.grants.back().is_some_and(|held| is_last(held) && held.grant.spares > 0);
        let is_quiet = self.items.is_empty() && self.busy.is_none() && self.writes.is_empty() && self.endings == 0;
        is_open
            && has_spares
            && is_quiet
            && self.is_ready
            && self.grants.len() == 1
            && self.issued == self.written
            && !self.is_unmovable
    }
}

impl Pool {
    /// Groups that were copied into narrower ones since the pool was opened.
    #[must_use]
    pub fn reclaimed_groups(&self) -> u64 {
        self.reclaimed_groups
    }

    /// Zones of the drive that hold a copy of a group, and are not in its v-zone yet.
    #[must_use]
    pub fn zones_of_copies(&self) -> u32 {
        self.reclaim.as_ref().map_or(0, Reclaim::width)
    }

    /// Looks for a group whose spares another namespace could use. Called with each redistribution.
    pub(super) fn consider_reclaim(&mut self) {
        for own in self.namespaces.values_mut() {
            own.quiet.on_cycle(self.now, own.next_write);
        }
        if self.reclaim.is_some() || self.is_read_only {
            return;
        }
        let candidates = self.namespaces.iter().filter(|(id, own)| {
            let is_frozen = own.is_listed && !own.is_leaving && own.quiet.is_frozen(self.now);
            is_frozen && self.balloon.share(**id).spares_used > 0 && self.balloon.is_wanted(self.now, **id)
        });
        let of_namespace = |(id, own): (&u32, &super::Namespace)| {
            let place = own.vzones.iter().position(VZone::can_be_reclaimed);
            place.map(|vzone| (*id, vzone as u32))
        };
        let found = candidates.into_iter().find_map(of_namespace);
        if let Some((namespace, vzone)) = found {
            self.begin_reclaim(namespace, vzone);
        }
    }

    fn begin_reclaim(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        let index = own.groups.len() - 1;
        let (copied, end) = (own.groups[index].blocks().start, own.written);
        self.reclaim = Some(Reclaim {
            namespace,
            vzone,
            index,
            step: Step::Next,
            copied,
            end,
            groups: Vec::new(),
            assembly: Assembly::Nothing,
            outstanding: 0,
            status: Status::Success,
        });
        self.continue_reclaim();
    }

    /// Does what comes next, once the commands of the last step have ended.
    pub(super) fn continue_reclaim(&mut self) {
        let Some(reclaim) = &mut self.reclaim else { return };
        if reclaim.outstanding > 0 {
            return;
        }
        if !reclaim.status.is_success() && reclaim.step != Step::Abandoned {
            // It is tried again once the v-zone was written again.
            let (namespace, vzone) = (reclaim.namespace, reclaim.vzone);
            reclaim.step = Step::Abandoned;
            self.vzone(namespace, vzone).is_unmovable = true;
        }
        let Some(reclaim) = &mut self.reclaim else { return };
        match reclaim.step.clone() {
            Step::Next if reclaim.copied == reclaim.end => {
                (reclaim.step, reclaim.outstanding) = (Step::Flushing, 1);
                self.issue(Op::ReclaimWrite, Operation::Flush, Origin::default());
            }
            Step::Next if reclaim.groups_end().is_none_or(|end| end == reclaim.copied) => self.add_reclaim_group(),
            Step::Next => self.read_for_reclaim(),
            Step::Reading(range) => self.write_for_reclaim(range),
            Step::Writing(range) => {
                (reclaim.copied, reclaim.step) = (range.end, Step::Next);
                self.continue_reclaim();
            }
            Step::Flushing => {
                reclaim.step = Step::Replacing;
                let (namespace, vzone) = (reclaim.namespace, reclaim.vzone);
                let before = self.vzone(namespace, vzone).busy.replace(Busy::Reclaim);
                assert_eq!(before, None, "other items of the v-zone end the copy");
                self.continue_reclaim();
            }
            Step::Replacing => self.replace_group(),
            Step::Recording => {}
            Step::Abandoned => self.reset_copy(),
        }
    }

    /// A host does something with the v-zone: it stays as it is.
    pub(super) fn abandon_reclaim(&mut self, namespace: u32, vzone: u32) {
        let is_its = |reclaim: &&mut Reclaim| (reclaim.namespace, reclaim.vzone) == (namespace, vzone);
        if let Some(reclaim) = self.reclaim.as_mut().filter(is_its)
            && !matches!(reclaim.step, Step::Replacing | Step::Recording | Step::Abandoned)
        {
            reclaim.step = Step::Abandoned;
            self.continue_reclaim();
        }
    }

    /// Takes zones for the next part of the copy, unless hosts wait for some.
    fn add_reclaim_group(&mut self) {
        let Some(reclaim) = &mut self.reclaim else { return };
        if self.granting.is_some() || !self.arbiter.is_empty() {
            // They may wait for the active zones that the copy has.
            if !reclaim.groups.is_empty() {
                reclaim.step = Step::Abandoned;
                self.continue_reclaim();
            }
            return;
        }
        let (namespace, vzone, index) = (reclaim.namespace, reclaim.vzone, reclaim.index + reclaim.groups.len());
        let width = self.balloon.share(namespace).width_min;
        if self.zones.obtainable() < width {
            return;
        }
        self.reserve(width);
        let Some(zones) = self.take_zones(width, namespace, vzone) else { return };
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        let generation = own.generation;
        for (place, zone) in zones.iter().enumerate() {
            let reservation = self.reservation_of(*zone);
            let owner = Owner { reservation, namespace, vzone, generation, group: index as u8, place: place as u8 };
            let operation = self.write_of_block(*zone, 1, owner.to_block(self.id, self.format.data_bytes));
            self.issue_for_reclaim(Op::ReclaimWrite, operation, zones[0], width);
        }
        let (stripe_blocks, blocks_per_zone) = (self.shape.stripe_blocks(width, width), self.shape.blocks_per_zone);
        let reclaim = self.reclaim.as_mut().expect("it was just looked at");
        reclaim.groups.push(Group::new(zones, stripe_blocks, reclaim.copied, blocks_per_zone));
    }

    fn issue_for_reclaim(&mut self, op: Op, operation: Operation, stream: u32, width: u32) {
        let reclaim = self.reclaim.as_mut().expect("the command is of its copy");
        reclaim.outstanding += 1;
        let origin = Origin {
            class: Class::Background,
            tenant: Pool::tenant_of(NamespaceId(reclaim.namespace)),
            stream: StreamId(stream),
            stream_width: width as u8,
        };
        self.issue(op, operation, origin);
    }

    fn read_for_reclaim(&mut self) {
        let (kind, format) = (self.kind, self.format);
        let at_once = RECLAIM_BYTES_MAX / format.data_bytes as u64;
        let at_once = at_once.clamp(1, self.drive.max_transfer_blocks.0);
        let reclaim = self.reclaim.as_mut().expect("a copy is being made");
        let own = &self.namespaces[&reclaim.namespace].vzones[reclaim.vzone as usize];
        let group = &own.groups[reclaim.index];
        let place_end = reclaim.groups_end().expect("there is a place for the next blocks");
        let range = reclaim.copied..(reclaim.copied + at_once).min(reclaim.end).min(place_end);
        reclaim.assembly = Assembly::new(kind, range.end - range.start, format);
        reclaim.step = Step::Reading(range.clone());
        let (stream, width) = (group.zones()[0], group.width());
        let mut pieces = Vec::new();
        group.pieces(range, &mut pieces);
        for piece in pieces {
            let start = self.zone_lba(piece.zone, piece.zone_block);
            let operation = Operation::Read { start, blocks: Blocks(piece.blocks) };
            self.issue_for_reclaim(Op::ReclaimRead { piece }, operation, stream, width);
        }
    }

    pub(super) fn on_reclaim_read(&mut self, piece: &Piece, status: Status, outcome: Outcome) {
        let format = self.format;
        let reclaim = self.reclaim.as_mut().expect("a copy ends after its reads");
        reclaim.outstanding -= 1;
        let mut status = status;
        // The groups of a copy that was abandoned may be others by now.
        if let Step::Reading(range) = &reclaim.step
            && status.is_success()
        {
            let group = &self.namespaces[&reclaim.namespace].vzones[reclaim.vzone as usize].groups[reclaim.index];
            let Outcome::Data(payload) = outcome else { unreachable!("a successful read returns data") };
            let runs = group.runs(piece).map(|(offset, block, blocks)| (offset, block - range.start, blocks));
            if !reclaim.assembly.add(&payload, runs, format) {
                status = Status::InternalError;
            }
        }
        if reclaim.status.is_success() {
            reclaim.status = status;
        }
        self.continue_reclaim();
    }

    fn write_for_reclaim(&mut self, range: Range<u64>) {
        let reclaim = self.reclaim.as_mut().expect("a copy is being made");
        let payload = std::mem::replace(&mut reclaim.assembly, Assembly::Nothing).into_payload();
        let group = reclaim.groups.last().expect("there is a place for the next blocks").clone();
        reclaim.step = Step::Writing(range.clone());
        let mut pieces = Vec::new();
        group.pieces(range.clone(), &mut pieces);
        for piece in pieces {
            let runs: Vec<(u64, u64)> =
                group.runs(&piece).map(|(_, block, blocks)| (block - range.start, blocks)).collect();
            let payload = match &payload {
                Payload::None => Payload::None,
                payload => gather(payload, &runs, self.format),
            };
            let start = self.zone_lba(piece.zone, piece.zone_block);
            let operation = Operation::Write { start, blocks: Blocks(piece.blocks), payload };
            self.issue_for_reclaim(Op::ReclaimWrite, operation, group.zones()[0], group.width());
        }
    }

    pub(super) fn on_reclaim_written(&mut self, status: Status) {
        let reclaim = self.reclaim.as_mut().expect("a copy ends after its writes");
        reclaim.outstanding -= 1;
        if reclaim.status.is_success() {
            reclaim.status = status;
        }
        self.continue_reclaim();
    }

    /// Puts the copy in the place of the old group. It is flushed; so a checkpoint of the log that has
    /// it before its record is right, too.
    fn replace_group(&mut self) {
        let reclaim = self.reclaim.as_mut().expect("a copy was made");
        let (namespace, vzone, index) = (reclaim.namespace, reclaim.vzone, reclaim.index);
        let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while its v-zones are in use");
        let own = &mut found.vzones[vzone as usize];
        if own.reads > 0 {
            return;
        }
        reclaim.step = Step::Recording;
        let copy = std::mem::take(&mut reclaim.groups);
        let mut held = own.grants.pop_back().expect("the old group has resources");
        let old = own.groups.pop().expect("the old group is the last one");
        assert_eq!((held.group, own.groups.len()), (index, index), "the old group is the last one");
        for (place, group) in copy.into_iter().enumerate() {
            let grant = Grant { width: group.width(), spares: 0 };
            own.grants.push_back(Held { group: index + place, grant, is_draining: false });
            own.groups.push(group);
        }
        own.torn = None;
        self.drain(namespace, &mut held);
        self.leaving_copies += held.grant.width;
        assert!(self.to_reclaim.is_empty(), "one group is reclaimed at a time");
        self.to_reclaim.extend(old.zones());
        self.record_vzone(namespace, vzone, Waiter::Reclaim { namespace, vzone });
    }

    pub(super) fn on_reclaim_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        self.reclaim = None;
        let zones = std::mem::take(&mut self.to_reclaim);
        // Without the record a mount finds the old group, which must be there then.
        if is_durable {
            self.reclaimed_groups += 1;
            for zone in zones {
                self.reset_zone(zone, ResetOf::Copy);
            }
        }
        let own = self.vzone(namespace, vzone);
        assert_eq!(own.busy.take(), Some(Busy::Reclaim), "the v-zone waits for its record");
        if is_durable {
            self.end_groups(namespace, vzone);
        }
        self.pump(namespace, vzone);
        self.serve();
    }

    /// Resets the zones of a copy that is in no record.
    fn reset_copy(&mut self) {
        let reclaim = self.reclaim.take().expect("a copy was abandoned");
        for group in &reclaim.groups {
            self.zones.begin_draining(group.width());
            self.leaving_copies += group.width();
            for zone in group.zones() {
                self.reset_zone(*zone, ResetOf::Copy);
            }
        }
    }

    /// A zone of a copy that was abandoned, or of a group that was copied, is reset or retired.
    pub(super) fn on_copy_reset(&mut self) {
        self.leaving_copies -= 1;
        self.zones.release_active(1);
    }
}
