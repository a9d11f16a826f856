//! Takes commands of hosts apart: the table of the namespace decides, v-zones get what follows.

use std::ops::Range;

use zonda_zoned::zones::ZoneEffect;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Key, Lba, LbaRange, Operation, Origin, Outcome, Payload, PayloadKind,
    QueueFull, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use super::{Host, HostResult, Instant, Namespace, Op, Pool};
use crate::bug::SeededBug;
use crate::limits::COMMANDS_MAX;
use crate::payload::{Assembly, BlockFormat};
use crate::vzone::{Item, Write};

impl Pool {
    /// Takes a command of a host.
    ///
    /// # Errors
    /// [`QueueFull`] returns the command while as many as the pool takes are in flight.
    pub fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.advance(now);
        if self.commands() >= COMMANDS_MAX || self.is_paused {
            return Err(QueueFull(command));
        }
        let Command { id, namespace, operation, .. } = command;
        let is_there = self.listed.geometry(namespace).is_some();
        if !is_there {
            self.completions.push(Completion::of(id, Status::InvalidNamespace));
            return Ok(());
        }
        let operation = match operation {
            Operation::Read { start, blocks } if self.read_directly(id, namespace.0, start, blocks) => return Ok(()),
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Append { .. } => {
                if let Err(status) = self.write(id, namespace.0, operation) {
                    self.completions.push(Completion::of(id, status));
                }
                return Ok(());
            }
            operation => operation,
        };
        // One part stands for the command itself, so that it does not end while it is taken apart.
        let host = Host { id, parts: 1, status: Status::Success, result: HostResult::Nothing };
        let host = self.hosts.insert(host);
        let status = self.take_apart(host, namespace.0, operation).err().unwrap_or(Status::Success);
        self.end_part(host, status);
        Ok(())
    }

    fn take_apart(&mut self, host: Key<Host>, namespace: u32, operation: Operation) -> Result<(), Status> {
        let own = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let table = &mut own.table;
        match operation {
            Operation::Read { start, blocks } => {
                table.check_read(start, blocks)?;
                self.read(host, namespace, start, blocks);
            }
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Append { .. } => {
                unreachable!("a write is taken as a whole")
            }
            Operation::Deallocate { ranges } => {
                table.check_deallocate(&ranges)?;
                self.deallocate(host, namespace, &ranges);
            }
            Operation::Flush => self.flush(host, namespace),
            Operation::ManageZones { action, target } => self.manage(host, namespace, &action, target)?,
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                let report = table.report(start, filter, extended, partial, descriptors_max)?;
                self.hosts[host].result = HostResult::Outcome(Outcome::Report(Box::new(report)));
            }
            Operation::ReadChangedZones => {
                let changed = table.take_changed_zones();
                self.hosts[host].result = HostResult::Outcome(Outcome::ChangedZones(Box::new(changed)));
            }
        }
        Ok(())
    }

    /// Commands of hosts that have not ended.
    #[inline]
    pub(super) fn commands(&self) -> usize {
        self.hosts.len() + self.direct_reads + self.writes.len()
    }

    /// A part of a command has ended. The first error is the command's.
    pub(super) fn end_part(&mut self, key: Key<Host>, status: Status) {
        let host = &mut self.hosts[key];
        if host.status.is_success() {
            host.status = status;
        }
        host.parts -= 1;
        if host.parts > 0 {
            return;
        }
        let Host { id, status, result, .. } = self.hosts.remove(key);
        let outcome = match result {
            _ if !status.is_success() => Outcome::None,
            HostResult::Nothing => Outcome::None,
            HostResult::Outcome(outcome) => outcome,
            HostResult::Read(assembly) => Outcome::Data(assembly.into_payload()),
        };
        self.completions.push(Completion { id, status, outcome });
    }

    /// Takes the next v-zone with written blocks from the rest of a run of blocks: the v-zone, these
    /// blocks of it, and where they begin. What is not written reads as zeros.
    fn next_written_part(&self, namespace: u32, rest: &mut Range<u64>) -> Option<(u32, Range<u64>, u64)> {
        let own = &self.namespaces[&namespace];
        let size = own.record.zone_size_blocks;
        while rest.start < rest.end {
            let at = rest.start;
            let (zone, offset) = ((at / size) as u32, at % size);
            let length = (size - offset).min(rest.end - at);
            rest.start += length;
            let written = own.table.readable_blocks(ZoneIndex(zone)).0;
            if offset < written {
                return Some((zone, offset..(offset + length).min(written), at));
            }
        }
        None
    }

    fn read(&mut self, host: Key<Host>, namespace: u32, start: Lba, blocks: Blocks) {
        self.hosts[host].result = HostResult::Read(Assembly::new(self.kind, blocks.0, self.format));
        let mut rest = start.0..start.0 + blocks.0;
        while let Some((vzone, blocks, at)) = self.next_written_part(namespace, &mut rest) {
            self.hosts[host].parts += 1;
            let at = at - start.0;
            if self.vzone(namespace, vzone).has_nothing_to_do() {
                // It would be the only item.
                self.issue_read(namespace, vzone, host, blocks, at);
            } else {
                self.add_item(namespace, vzone, Item::Read { host, blocks, at });
            }
        }
    }

    fn deallocate(&mut self, host: Key<Host>, namespace: u32, ranges: &[LbaRange]) {
        for LbaRange { start, blocks } in ranges {
            let mut rest = start.0..start.0 + blocks.0;
            while let Some((vzone, blocks, _)) = self.next_written_part(namespace, &mut rest) {
                self.hosts[host].parts += 1;
                self.add_item(namespace, vzone, Item::Deallocate { host, blocks });
            }
        }
    }

    /// Takes a command that writes: it goes to one v-zone, as a whole.
    fn write(&mut self, id: CommandId, namespace: u32, operation: Operation) -> Result<(), Status> {
        let own = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let table = &mut own.table;
        let (is_zeroes, is_append) =
            (matches!(operation, Operation::WriteZeroes { .. }), matches!(operation, Operation::Append { .. }));
        let (grant, blocks, payload) = match operation {
            Operation::Write { start, blocks, payload } => {
                (table.write(start, blocks, fits(&payload, blocks, self.format, self.kind))?, blocks, payload)
            }
            Operation::WriteZeroes { start, blocks } => (table.write_zeroes(start, blocks)?, blocks, Payload::None),
            Operation::Append { zone_start, blocks, payload } => {
                (table.append(zone_start, blocks, fits(&payload, blocks, self.format, self.kind))?, blocks, payload)
            }
            _ => unreachable!("the command writes"),
        };
        let number = own.next_write;
        own.next_write += 1;
        own.writes.add(number);
        if grant.filled {
            own.releases.add_command(number);
        }
        let range = grant.offset_blocks.0..grant.offset_blocks.0 + blocks.0;
        let write = Write {
            id,
            appended: is_append.then_some(grant.start),
            number,
            issued: range.start,
            blocks: range,
            outstanding: 0,
            status: Status::Success,
            refusal: None,
            payload,
            is_zeroes,
        };
        let write = self.writes.insert(write);
        if !self.write_directly(namespace, grant.zone.0, write) {
            self.add_item(namespace, grant.zone.0, Item::Write(write));
        }
        Ok(())
    }

    /// The drive flushes once the writes before it have ended: then no block is missing before one
    /// that was acknowledged.
    fn flush(&mut self, host: Key<Host>, namespace: u32) {
        self.hosts[host].parts += 1;
        let own = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let before = own.next_write;
        own.flushes.push_back((before, host));
        self.release_flushes(namespace);
    }

    pub(super) fn release_flushes(&mut self, namespace: u32) {
        let Some(own) = self.namespaces.get_mut(&namespace) else { return };
        if own.flushes.is_empty() {
            return;
        }
        let mut ready = Vec::new();
        while let Some((before, host)) = own.flushes.front()
            && own.writes.first().is_none_or(|oldest| oldest >= *before)
        {
            ready.push(*host);
            own.flushes.pop_front();
        }
        for host in ready {
            if self.bug.has(SeededBug::DryFlush) {
                self.end_part(host, Status::Success);
                continue;
            }
            self.issue(Op::HostFlush { host }, Operation::Flush, Origin::default());
        }
    }

    fn manage(
        &mut self,
        host: Key<Host>,
        namespace: u32,
        action: &ZoneAction,
        target: ZoneTarget,
    ) -> Result<(), Status> {
        let own = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let mut effects = Vec::new();
        own.table.manage(action, target, &mut effects)?;
        let repeated = match self.bug.has(SeededBug::UnawaitedRepeat) {
            true => Vec::new(),
            false => own.repeated(action, target, &effects),
        };
        let is_recorded =
            |effect: &&ZoneEffect| !matches!(effect, ZoneEffect::Opened { .. } | ZoneEffect::Closed { .. });
        let changed = effects.iter().filter(is_recorded).map(|effect| effect.zone().0);
        for vzone in changed.chain(repeated) {
            let own = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
            let number = own.next_write;
            own.next_write += 1;
            let item = match action {
                ZoneAction::Finish => Item::Finish(host, number),
                ZoneAction::Reset => Item::Reset(host, number),
                ZoneAction::SetDescriptorExtension { extension, .. } => {
                    Item::Record(host, number, Some(extension.clone()))
                }
                ZoneAction::Offline => {
                    own.vzones[vzone as usize].is_offline = true;
                    Item::Record(host, number, None)
                }
                _ => unreachable!("an Open or a Close is not recorded, and v-zones have no ZRWA"),
            };
            if matches!(item, Item::Finish(..) | Item::Reset(..)) {
                own.releases.add_command(number);
            }
            self.hosts[host].parts += 1;
            self.add_item(namespace, vzone, item);
        }
        Ok(())
    }
}

impl Namespace {
    /// The v-zones that are already as this action leaves them, and not yet durably: what made them so is
    /// in progress, or its record has failed. A command that repeats it must not end before it.
    fn repeated(&self, action: &ZoneAction, target: ZoneTarget, effects: &[ZoneEffect]) -> Vec<u32> {
        let after = match action {
            ZoneAction::Finish => ZoneState::Full,
            ZoneAction::Reset => ZoneState::Empty,
            ZoneAction::Offline => ZoneState::Offline,
            _ => return Vec::new(),
        };
        let zones = match target {
            ZoneTarget::All => 0..self.vzones.len() as u32,
            ZoneTarget::Zone(start) => match self.table.geometry().zone_of(start) {
                Some(ZoneIndex(zone)) => zone..zone + 1,
                None => 0..0,
            },
        };
        let is_repeated = |zone: &u32| {
            self.vzones[*zone as usize].has_pending_changes()
                && self.table.zone(ZoneIndex(*zone)).state == after
                && effects.iter().all(|effect| effect.zone().0 != *zone)
        };
        zones.filter(is_repeated).collect()
    }
}

/// Whether the drive accepts the payload: it cannot make bytes of fingerprints.
fn fits(payload: &Payload, blocks: Blocks, format: BlockFormat, kind: PayloadKind) -> bool {
    let is_kept = !matches!((kind, payload), (PayloadKind::Bytes, Payload::Fingerprints(_)));
    is_kept && payload.fits(blocks.0, format.data_bytes as u32, format.metadata_bytes as u16)
}
