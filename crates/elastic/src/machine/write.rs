//! Blocks of a v-zone to the zones of its groups.

use std::ops::Range;

use zonda_zoned::{
    Blocks, Command, Completion, Geometry, Key, Lba, Operation, Outcome, Payload, Status, ZoneIndex, ZoneState,
};

use super::{Op, Pool, Waiter};
use crate::bug::SeededBug;
use crate::group::{Group, Piece};
use crate::payload::{BlockFormat, gather};
use crate::shape::Shape;
use crate::vzone::{Busy, Held, Item, Write};

impl Pool {
    /// Submits a write that can be at the drive as a whole, and waits for nothing in its v-zone: with the
    /// same result as through its items. Returns whether it is one.
    pub(super) fn write_directly(&mut self, namespace: u32, vzone: u32, key: Key<Write>) -> bool {
        if !self.is_started || self.reclaim.is_some() {
            return false;
        }
        let found = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let (capacity, own) = (found.record.zone_capacity_blocks, &mut found.vzones[vzone as usize]);
        if !own.has_nothing_to_do() || !own.is_ready || own.has_failed || own.torn.is_some() {
            return false;
        }
        let Some(group) = own.groups.last() else { return false };
        let write = &mut self.writes[key];
        let range = write.blocks.clone();
        let of_group = group.blocks();
        // One more row than stands may be at the drive in any case.
        let is_near = range.end <= own.written.max(of_group.start) + group.row_blocks();
        if range.end > of_group.end || !is_near && range.end > in_flight_end(&self.shape, group, own.written) {
            return false;
        }
        own.is_unmovable = false;
        own.writes.push_back(key);
        let Some(piece) = group.piece_of_stripe(&range) else {
            self.issue_range(namespace, vzone, key, range);
            return true;
        };
        // As `issue_range` does with the only piece.
        (write.issued, write.outstanding) = (range.end, 1);
        let operation = operation_of(&piece, write, group, &self.drive, self.format);
        let id = self.ops.insert(Op::Write { namespace, vzone, write: key }).into();
        let origin = Pool::origin_of(namespace, group);
        self.outbox.push_back(Command::new(id, self.drive_namespace, operation).with_origin(origin));
        own.issued = own.issued.max(range.end);
        if own.issued >= of_group.end.min(capacity) {
            self.drain_last_group(namespace, vzone);
        }
        true
    }

    /// Submits what has a place. Returns whether that is all of it.
    pub(super) fn issue_write(&mut self, namespace: u32, vzone: u32, key: Key<Write>) -> bool {
        let is_started = self.is_started;
        loop {
            let own = self.vzone(namespace, vzone);
            let (has_failed, is_ready, is_torn) = (own.has_failed, own.is_ready, own.torn.is_some());
            let groups_end = own.groups_end();
            let write = &mut self.writes[key];
            if has_failed || !write.status.is_success() {
                write.issued = write.blocks.end;
                return true;
            }
            if write.issued == write.blocks.end {
                return true;
            }
            let from = write.issued;
            if !is_started {
                return false;
            }
            if is_torn {
                self.begin_repair(namespace, vzone);
                return false;
            }
            if from >= groups_end {
                if self.is_read_only {
                    self.refuse_writes(namespace, vzone, self.status_of_record(false));
                    return false;
                }
                let number = write.number;
                if groups_end == 0 && self.must_wait_for_releases(namespace, vzone, number) {
                    if self.lacks_space {
                        self.refuse_writes(namespace, vzone, Status::CapacityExceeded);
                    }
                    return false;
                }
                self.request_group(namespace, vzone);
                // It may be there at once, and is recorded first.
                return false;
            }
            if !is_ready {
                return false;
            }
            if !self.issue_pieces(namespace, vzone, key) {
                return false;
            }
            let write = &self.writes[key];
            if write.issued == write.blocks.end {
                return true;
            }
        }
    }

    /// Submits blocks of the last group, as many as may be in flight. Returns whether there were any.
    fn issue_pieces(&mut self, namespace: u32, vzone: u32, key: Key<Write>) -> bool {
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        let group = own.groups.last().expect("a v-zone with a place to write has a group");
        let write = &self.writes[key];
        let in_flight_end = in_flight_end(&self.shape, group, own.written);
        let range = write.issued..write.blocks.end.min(group.blocks().end).min(in_flight_end);
        if range.is_empty() {
            return false;
        }
        self.issue_range(namespace, vzone, key, range);
        true
    }

    /// Submits the next blocks of a write, which are in the last group.
    fn issue_range(&mut self, namespace: u32, vzone: u32, key: Key<Write>, range: Range<u64>) {
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let (capacity, own) = (found.record.zone_capacity_blocks, &mut found.vzones[vzone as usize]);
        let group = own.groups.last().expect("a v-zone with a place to write has a group");
        let write = &mut self.writes[key];
        let origin = Pool::origin_of(namespace, group);
        write.issued = range.end;
        let (drive, format) = (&self.drive, self.format);
        let mut submit = |piece: Piece, write: &mut Write| {
            write.outstanding += 1;
            let operation = operation_of(&piece, write, group, drive, format);
            let id = self.ops.insert(Op::Write { namespace, vzone, write: key }).into();
            self.outbox.push_back(Command::new(id, self.drive_namespace, operation).with_origin(origin));
        };
        if let Some(piece) = group.piece_of_stripe(&range) {
            submit(piece, write);
        } else {
            let pieces = &mut self.scratch;
            group.pieces(range.clone(), pieces);
            pieces.drain(..).for_each(|piece| submit(piece, write));
        }
        own.issued = own.issued.max(range.end);
        if own.issued >= own.groups_end().min(capacity) {
            self.drain_last_group(namespace, vzone);
        }
    }

    pub(super) fn on_piece_written(&mut self, namespace: u32, vzone: u32, key: Key<Write>, status: Status) {
        if status.is_success() && self.end_directly(namespace, vzone, key) {
            return;
        }
        let is_ignored = self.bug.has(SeededBug::ForgottenFailure);
        self.note_space(namespace, vzone, status);
        let write = &mut self.writes[key];
        write.outstanding -= 1;
        if write.status.is_success() && !is_ignored {
            write.status = status;
        }
        if write.outstanding == 0 {
            self.end_writes(namespace, vzone);
            if !self.vzone(namespace, vzone).has_nothing_to_do() {
                self.pump(namespace, vzone);
            }
        }
    }

    /// Ends a write whose last piece has been written, if all before it have ended and nothing follows from
    /// that but its completion: with the same result as [`end_writes`](Pool::end_writes). Returns whether it is
    /// one.
    #[inline]
    fn end_directly(&mut self, namespace: u32, vzone: u32, key: Key<Write>) -> bool {
        let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while it has writes");
        let (capacity, own) = (found.record.zone_capacity_blocks, &mut found.vzones[vzone as usize]);
        let write = &self.writes[key];
        let is_good = write.status.is_success() && write.refusal.is_none() && !own.has_failed;
        let is_last = write.outstanding == 1 && write.issued == write.blocks.end;
        if !is_good || !is_last || own.writes.front() != Some(&key) || !own.has_nothing_to_do() {
            return false;
        }
        let has_ended = |next: &Key<Write>| self.writes[*next].outstanding == 0;
        if own.writes.get(1).is_some_and(has_ended) || !found.flushes.is_empty() || found.releases.has_commands() {
            return false;
        }
        let (id, number, end) = (write.id, write.number, write.blocks.end);
        let ends_group = |held: &Held| own.groups[held.group].blocks().end.min(capacity) <= end;
        if own.grants.front().is_some_and(ends_group) {
            return false;
        }
        let outcome = write.appended.map_or(Outcome::None, Outcome::Appended);
        own.written = end;
        own.writes.pop_front();
        found.writes.remove(number);
        self.writes.discard(key);
        self.completions.push(Completion { id, status: Status::Success, outcome });
        true
    }

    /// The writes that wait in a v-zone find no place. Nothing of them was submitted but the beginning of
    /// the first: the v-zone goes on behind it, unless its host has done something else with it.
    pub(super) fn refuse_writes(&mut self, namespace: u32, vzone: u32, status: Status) {
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let own = &mut found.vzones[vzone as usize];
        if own.groups_end() > own.issued {
            // They have a place.
            return;
        }
        let is_plain = own.items.iter().all(|item| matches!(item, Item::Write(_) | Item::Read { .. }));
        let can_go_on = is_plain && own.busy.is_none() && !own.has_failed && own.torn.is_none();
        if !can_go_on || !found.table.truncate(ZoneIndex(vzone), Blocks(own.issued)) {
            // Nothing is wrong with what stands: that is found when the pool is opened again.
            own.lacks_space |= !own.has_failed;
            self.lacks_space = true;
            self.fail(namespace, vzone, None);
            return self.pump(namespace, vzone);
        }
        let stands = own.issued;
        let waiting = std::mem::take(&mut own.items);
        for item in waiting {
            let Item::Write(key) = item else {
                own.items.push_back(item);
                continue;
            };
            let write = &mut self.writes[key];
            write.refusal = Some(status);
            write.issued = write.issued.min(stands);
            if own.writes.back() != Some(&key) {
                own.writes.push_back(key);
            }
        }
        self.withdraw_request(namespace, vzone);
        self.end_writes(namespace, vzone);
        self.pump(namespace, vzone);
    }

    /// A write has failed, the one with this number or the oldest that has not ended: the v-zone is read
    /// only from its first block on. One that has found no space is closed, or finished if it was full and
    /// no v-zone can become active.
    pub(super) fn fail(&mut self, namespace: u32, vzone: u32, number: Option<u64>) {
        let number = number.or_else(|| self.oldest_write(namespace, vzone));
        let own = self.vzone(namespace, vzone);
        own.has_failed = true;
        own.torn = None;
        self.withdraw_request(namespace, vzone);
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let (own, zone) = (&found.vzones[vzone as usize], ZoneIndex(vzone));
        // A reset that has taken effect forgives the failure.
        if own.items.iter().any(|item| matches!(item, Item::Reset(..))) {
            return;
        }
        let state = found.table.zone(zone).state;
        let is_cut = own.finish_waits() || !(state.is_active() || state == ZoneState::Full) || {
            self.truncate(namespace, vzone)
        };
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let own = &mut found.vzones[vzone as usize];
        if own.lacks_space && !is_cut && state == ZoneState::Full {
            // Another v-zone has become active instead of it.
            (own.is_finished, own.is_finished_by_pool) = (true, true);
            found.table.finish_by_controller_at(zone, Blocks(own.written));
        }
        own.lacks_space &= is_cut;
        // Of one that lacks space and holds blocks, the table says what a mount will find.
        let is_counted = own.lacks_space && own.written > 0;
        if !own.lacks_space && !own.is_finished_by_pool {
            found.table.degrade(zone, ZoneState::ReadOnly);
        }
        let own = &mut found.vzones[vzone as usize];
        if own.failure.is_none() {
            let number = number.unwrap_or(found.next_write);
            found.next_write = found.next_write.max(number + 1);
            own.failure = Some(number);
            found.releases.add_failure(number, if is_counted { found.next_write } else { u64::MAX });
        }
    }

    /// A record without which the v-zone cannot be written is not durable.
    pub(super) fn fail_unrecorded(&mut self, namespace: u32, vzone: u32) {
        let status = self.status_of_record(false);
        self.note_space(namespace, vzone, status);
        self.fail(namespace, vzone, None);
    }

    fn oldest_write(&self, namespace: u32, vzone: u32) -> Option<u64> {
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        let waiting = own.items.iter().filter_map(|item| if let Item::Write(key) = item { Some(key) } else { None });
        own.writes.iter().chain(waiting).map(|key| self.writes[*key].number).min()
    }

    /// Moves the write pointer of a v-zone back to what stands. A full one becomes closed, which needs an
    /// active v-zone: of those that lack space, the ones that wait for it give theirs back.
    fn truncate(&mut self, namespace: u32, vzone: u32) -> bool {
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let (own, zone) = (&found.vzones[vzone as usize], ZoneIndex(vzone));
        let (lacks_space, stands) = (own.lacks_space, Blocks(own.written));
        if found.table.truncate(zone, stands) {
            return true;
        }
        if !lacks_space {
            return false;
        }
        for other in std::mem::take(&mut found.waiting_for_releases) {
            self.refuse_writes(namespace, other, Status::CapacityExceeded);
        }
        let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        // Another write of it may have failed meanwhile.
        found.vzones[vzone as usize].is_finished_by_pool || found.table.truncate(zone, stands)
    }

    /// All writes of a v-zone that has failed have ended: its resources are released once that is
    /// recorded.
    pub(super) fn close_failed(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        let is_due = own.has_failed && !own.lacks_space && (own.failure.is_some() || !own.grants.is_empty());
        if is_due && own.writes.is_empty() && own.busy.is_none() && own.endings == 0 {
            own.busy = Some(Busy::Fail);
            self.record_vzone(namespace, vzone, Waiter::Fail { namespace, vzone });
        }
    }

    pub(super) fn on_fail_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        let own = self.vzone(namespace, vzone);
        assert_eq!(own.busy.take(), Some(Busy::Fail), "the v-zone waits for its record");
        // Without a record a mount would take finished zones for written ones: they stay open.
        if is_durable {
            self.end_all_groups(namespace, vzone);
        }
        self.end_failure(namespace, vzone);
        self.pump(namespace, vzone);
    }

    /// No mount finds the v-zone active, or none will follow that could be told.
    pub(super) fn end_failure(&mut self, namespace: u32, vzone: u32) {
        if let Some(number) = self.vzone(namespace, vzone).failure.take() {
            let own = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
            assert!(own.releases.remove_failure(number), "a failure is released once");
            self.pump_waiting(namespace);
        }
    }
}

/// The block of a v-zone up to which its last group may be at the drive, if the blocks before `written`
/// stand.
fn in_flight_end(shape: &Shape, group: &Group, written: u64) -> u64 {
    let first = group.blocks().start;
    let row = written.saturating_sub(first) / group.row_blocks();
    let rows = row + 1 + shape.rows_in_flight(group.stripe_blocks());
    first + rows * group.row_blocks()
}

/// The command to the drive for a piece of a write.
fn operation_of(piece: &Piece, write: &mut Write, group: &Group, drive: &Geometry, format: BlockFormat) -> Operation {
    let start = Lba(drive.zone_start(ZoneIndex(piece.zone)).0 + piece.zone_block);
    let blocks = Blocks(piece.blocks);
    if write.is_zeroes {
        return Operation::WriteZeroes { start, blocks };
    }
    let first = write.blocks.start;
    let payload = match &write.payload {
        Payload::None => Payload::None,
        _ if piece.blocks == write.blocks.end - first => std::mem::take(&mut write.payload),
        payload => {
            let runs: Vec<(u64, u64)> = group.runs(piece).map(|(_, block, blocks)| (block - first, blocks)).collect();
            gather(payload, &runs, format)
        }
    };
    Operation::Write { start, blocks, payload }
}
