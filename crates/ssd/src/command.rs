//! Command submission: the immediate effect on zones and contents.

use zonda_zoned::zones::{WriteGrant, ZoneEffect, ZoneSnapshot};
use zonda_zoned::{
    Blocks, Command, Duration, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload, PayloadKind, Status,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use crate::bug::SeededBug;
use crate::pending::{BlockUndo, CommandFlags, Kind, PendingCommand, Undo, ZoneUndo};
use crate::ssd::Ssd;

impl Ssd {
    /// Applies a command and sends it to its firmware server.
    pub(crate) fn take_command(&mut self, command: Command) {
        let mut pending = PendingCommand {
            id: command.id,
            kind: Kind::Short,
            status: Status::Success,
            outcome: Outcome::None,
            zone: ZoneIndex(0),
            generation: 0,
            offset_bytes: 0,
            bytes: 0,
            flags: CommandFlags::default(),
            parts: 0,
            buffer_group: 0,
            arrived_bytes: 0,
            committed_bytes: 0,
            serial_left: Duration::ZERO,
            exclusive: Duration::ZERO,
            mapping_bytes: 0,
            finishing: Vec::new(),
            undo: None,
        };
        let result = if command.namespace == NamespaceId::FIRST {
            self.apply(command.operation, &mut pending)
        } else {
            Err(Status::InvalidNamespace)
        };
        if let Err(status) = result {
            pending.kind = Kind::Short;
            pending.status = status;
            pending.outcome = Outcome::None;
        }
        let index = self.commands.insert(pending);
        self.enter_firmware(index);
    }

    fn apply(&mut self, operation: Operation, pending: &mut PendingCommand) -> Result<(), Status> {
        match operation {
            Operation::Read { start, blocks } => self.apply_read(start, blocks, pending),
            Operation::Write { start, blocks, payload } => {
                let fits = self.store.takes(&payload, blocks.0);
                let grant = self.zones.write(start, blocks, fits)?;
                pending.kind = Kind::Write;
                self.apply_write(grant, blocks, &payload, pending);
                Ok(())
            }
            Operation::WriteZeroes { start, blocks } => {
                let grant = self.zones.write_zeroes(start, blocks)?;
                pending.kind = Kind::WriteZeroes;
                self.apply_write(grant, blocks, &Payload::None, pending);
                Ok(())
            }
            Operation::Append { zone_start, blocks, payload } => {
                let fits = self.store.takes(&payload, blocks.0);
                let grant = self.zones.append(zone_start, blocks, fits)?;
                pending.kind = Kind::Append;
                let mut placed = grant.start;
                if self.bug.has(SeededBug::AppendReturnsWrongPlace) && grant.filled {
                    placed = Lba(placed.0 - u64::from(placed.0 > 0));
                }
                pending.outcome = Outcome::Appended(placed);
                self.apply_write(grant, blocks, &payload, pending);
                Ok(())
            }
            Operation::Deallocate { ranges } => {
                self.zones.check_deallocate(&ranges)?;
                self.apply_deallocate(&ranges);
                Ok(())
            }
            Operation::Flush => Ok(()),
            Operation::ManageZones { action, target } => self.apply_management(&action, target, pending),
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                let report = self.zones.report(start, filter, extended, partial, descriptors_max)?;
                pending.outcome = Outcome::Report(Box::new(report));
                Ok(())
            }
            Operation::ReadChangedZones => {
                pending.outcome = Outcome::ChangedZones(Box::new(self.zones.take_changed_zones()));
                Ok(())
            }
        }
    }

    fn apply_read(&mut self, start: Lba, blocks: Blocks, pending: &mut PendingCommand) -> Result<(), Status> {
        self.zones.check_read(start, blocks)?;
        let zone = self.geometry.zone_of(start).expect("a read that was allowed starts in a zone");
        pending.kind = Kind::Read;
        pending.zone = zone;
        pending.generation = self.zone_map.generation(zone);
        pending.offset_bytes = (start - self.geometry.zone_start(zone)).bytes(self.geometry.block_size_bytes);
        pending.bytes = blocks.bytes(self.geometry.block_size_bytes);
        self.counters.host_read_bytes += pending.bytes;
        pending.outcome = Outcome::Data(if self.store.kind() == PayloadKind::None {
            Payload::None
        } else {
            self.store.read(pieces_by_zone(self.geometry.zone_size_blocks, start, blocks))
        });
        Ok(())
    }

    fn apply_write(&mut self, grant: WriteGrant, blocks: Blocks, payload: &Payload, pending: &mut PendingCommand) {
        let zone = grant.zone;
        self.counters.zones_closed_by_controller += u64::from(grant.closed.is_some());
        if let Some(closed) = grant.closed {
            self.zone_map.count_change(closed);
        }
        pending.zone = zone;
        pending.offset_bytes = grant.offset_blocks.bytes(self.geometry.block_size_bytes);
        pending.bytes = blocks.bytes(self.geometry.block_size_bytes);
        pending.flags.is_conventional = zone.0 < self.geometry.conventional_zone_count;
        let is_first = grant.offset_blocks == Blocks::ZERO && !pending.flags.is_conventional;
        pending.flags.opens_zone = grant.opened || is_first;
        self.counters.host_write_bytes += pending.bytes;
        if grant.overwrites {
            self.keep_overwritten(grant.start, blocks, pending);
        }
        let mut skip = 0;
        for (zone, first, count) in pieces_by_zone(self.geometry.zone_size_blocks, grant.start, blocks) {
            self.store.write(zone, first, count, payload, skip);
            skip += count;
        }
        self.zone_map.count_change(zone);
        pending.generation = self.zone_map.generation(zone);
        if pending.flags.is_conventional {
            return;
        }
        self.ensure_run(zone);
        let run = self.zone_map.run_mut(zone);
        run.writes_in_flight += 1;
        if grant.overwrites {
            let view = self.zones.zone(zone);
            // A ZRWA: blocks that this write moves out of it are committed, and go to flash with
            // it.
            pending.flags.is_zrwa = true;
            pending.committed_bytes = run.take_committed_bytes(&view, self.timing.block_bytes);
        }
    }

    /// Keeps what a write replaces, until the write is acknowledged.
    fn keep_overwritten(&mut self, start: Lba, blocks: Blocks, pending: &mut PendingCommand) {
        if self.store.kind() == PayloadKind::None {
            return;
        }
        let mut undo = Box::new(Undo::default());
        for (zone, first, count) in pieces_by_zone(self.geometry.zone_size_blocks, start, blocks) {
            self.commit_earlier_overwrites(zone, first, count);
            for block in first..first + count {
                let before = self.store.save(zone, block).expect("a store that keeps payloads saves blocks");
                undo.blocks.push(BlockUndo { zone, block, before });
            }
        }
        self.overwrites_in_flight += 1;
        pending.undo = Some(undo);
    }

    /// An earlier write to these blocks that is still in flight can no longer be undone: its
    /// contents are what the later write is undone to.
    fn commit_earlier_overwrites(&mut self, zone: ZoneIndex, first: u64, count: u64) {
        if self.overwrites_in_flight == 0 {
            return;
        }
        let (from, to) = ((zone, first), (zone, first + count));
        let mut emptied = 0;
        for command in self.commands.values_mut() {
            let Some(undo) = &mut command.undo else { continue };
            // Blocks are in order: most commands are excluded by the first comparison.
            let (lowest, highest) = (undo.blocks.first(), undo.blocks.last());
            let is_near = lowest.is_some_and(|kept| (kept.zone, kept.block) < to)
                && highest.is_some_and(|kept| (kept.zone, kept.block) >= from);
            if !is_near {
                continue;
            }
            let before = undo.blocks.len();
            undo.blocks.retain(|kept| !(from..to).contains(&(kept.zone, kept.block)));
            emptied += u32::from(before > 0 && undo.blocks.is_empty());
        }
        self.overwrites_in_flight -= emptied;
    }

    fn apply_deallocate(&mut self, ranges: &[LbaRange]) {
        for range in ranges {
            for (zone, first, count) in pieces_by_zone(self.geometry.zone_size_blocks, range.start, range.blocks) {
                self.zone_map.count_change(zone);
                self.commit_earlier_overwrites(zone, first, count);
                for block in first..first + count {
                    self.store.zero(zone, block);
                }
            }
        }
        if let Some(conventional) = &mut self.conventional {
            for range in ranges {
                conventional.deallocate(range.start.0..range.start.0 + range.blocks.0);
            }
        }
    }

    fn apply_management(
        &mut self,
        action: &ZoneAction,
        target: ZoneTarget,
        pending: &mut PendingCommand,
    ) -> Result<(), Status> {
        let before = self.snapshots(target);
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        let result = self.zones.manage(action, target, &mut effects);
        if result.is_ok() {
            let mut undo = Undo::default();
            for effect in &effects {
                self.apply_effect(effect, action, &before, pending, &mut undo);
            }
            pending.undo = (!undo.zones.is_empty()).then(|| Box::new(undo));
            if effects.is_empty() {
                self.confirm_zone(target);
            }
        }
        self.effects = effects;
        result
    }

    /// The zone of a command already was in the requested state: the command that changed it,
    /// acknowledged or not, is persistent, and is not undone by a power loss once this command is
    /// acknowledged.
    fn confirm_zone(&mut self, target: ZoneTarget) {
        let ZoneTarget::Zone(block) = target else { return };
        let zone = self.geometry.zone_of(block).expect("a command that was allowed names a zone");
        self.zone_map.count_change(zone);
        let view = self.zones.zone(zone);
        if let Some(run) = self.zone_map.get_mut(zone).filter(|_| view.state == ZoneState::Full) {
            run.acknowledged_blocks = run.acknowledged_blocks.max(view.write_pointer_blocks.0);
        }
    }

    /// The zones that an action may change, as they are before it.
    fn snapshots(&self, target: ZoneTarget) -> Vec<(ZoneIndex, ZoneSnapshot)> {
        let zones = match target {
            ZoneTarget::Zone(lba) => self.geometry.zone_of(lba).into_iter().collect(),
            ZoneTarget::All => (0..self.geometry.zone_count).map(ZoneIndex).collect::<Vec<_>>(),
        };
        zones.into_iter().map(|zone| (zone, self.zones.snapshot(zone))).collect()
    }

    fn apply_effect(
        &mut self,
        effect: &ZoneEffect,
        action: &ZoneAction,
        before: &[(ZoneIndex, ZoneSnapshot)],
        pending: &mut PendingCommand,
        undo: &mut Undo,
    ) {
        let zone = effect.zone();
        let generation = self.zone_map.generation(zone);
        let mut contents = None;
        match effect {
            ZoneEffect::Reset { written_blocks, was_full, .. } => {
                pending.kind = Kind::Reset;
                pending.serial_left += self.reset_cost(*written_blocks, *was_full);
                pending.zone = zone;
                pending.exclusive += self.share_of_zone(self.timing.reset.exclusive_whole_zone, *written_blocks);
                pending.mapping_bytes += self.timing.reset.mapping_bytes_per_block * written_blocks.0;
                self.counters.zone_resets += 1;
                if !self.bug.has(SeededBug::ResetKeepsContents) {
                    contents = self.store.take(zone);
                }
                self.reset_zone(zone);
            }
            ZoneEffect::Finished { .. } => {
                pending.kind = Kind::Finish;
                self.counters.zone_finishes += 1;
                self.ensure_run(zone);
                pending.finishing.push((zone, generation));
                if self.bug.has(SeededBug::FinishForgetsTail) {
                    self.forget_tail(zone);
                }
            }
            ZoneEffect::Committed { .. } => {
                self.ensure_run(zone);
                let view = self.zones.zone(zone);
                let run = self.zone_map.run_mut(zone);
                pending.zone = zone;
                pending.generation = generation;
                pending.committed_bytes = run.take_committed_bytes(&view, self.timing.block_bytes);
            }
            ZoneEffect::Offlined { .. } => self.retire_zone(zone),
            ZoneEffect::Closed { .. } if !matches!(action, ZoneAction::Close) => {
                self.counters.zones_closed_by_controller += 1;
            }
            ZoneEffect::Opened { .. } | ZoneEffect::Closed { .. } | ZoneEffect::ExtensionSet { .. } => {}
        }
        self.zone_map.count_change(zone);
        let takes_back = !matches!(effect, ZoneEffect::Committed { .. } | ZoneEffect::Offlined { .. });
        let known = before.binary_search_by_key(&zone, |(zone, _)| *zone).ok().filter(|_| takes_back);
        if let Some(place) = known {
            let before = &before[place].1;
            undo.zones.push(ZoneUndo {
                zone,
                before: before.clone(),
                contents,
                changes: self.zone_map.changes(zone),
                generation,
            });
        }
    }

    fn reset_cost(&mut self, written: Blocks, was_full: bool) -> Duration {
        let reset = &self.timing.reset;
        let mut cost = reset.serial.draw(&mut self.prngs.firmware);
        cost += self.share_of_zone(reset.serial_whole_zone, written);
        if written.0 > 0 && !was_full {
            cost += reset.serial_partly_written;
        }
        cost
    }

    /// The part of a whole zone's time that is due to so many blocks.
    fn share_of_zone(&self, whole: Duration, written: Blocks) -> Duration {
        let capacity = u128::from(self.geometry.zone_capacity_blocks.0);
        Duration((u128::from(whole.0) * u128::from(written.0) / capacity) as u64)
    }
}

/// Consecutive blocks as pieces of zones: zone, first block in it, count.
pub(crate) fn pieces_by_zone(
    zone_size: Blocks,
    start: Lba,
    blocks: Blocks,
) -> impl Iterator<Item = (ZoneIndex, u64, u64)> {
    let (mut at, end) = (start.0, start.0 + blocks.0);
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (zone, first) = (at / zone_size.0, at % zone_size.0);
            let count = (end - at).min(zone_size.0 - first);
            at += count;
            (ZoneIndex(zone as u32), first, count)
        })
    })
}
