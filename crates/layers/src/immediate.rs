//! [`Immediate`]: a device that completes every command at once. [`crate::Null`] and
//! [`crate::Memory`] are based on it, and differ only in what they store.

use std::collections::VecDeque;

use zonda_zoned::zones::{ZoneEffect, ZoneTable};
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation, Outcome,
    Payload, QueueFull, Status, ZoneIndex,
};

/// The contents that a device stores. Ranges are within the namespace.
pub(crate) trait Contents {
    /// Maximum number of completions that wait to be polled for.
    const OUTSTANDING_MAX: usize;

    /// Whether payloads of this kind can be stored.
    fn takes(&self, payload: &Payload) -> bool;

    /// A quick check: whether there is enough space for a payload of this many blocks at any
    /// address.
    fn has_ample_space(&self, payload: &Payload, blocks: Blocks) -> bool;

    /// Whether there is enough space for these blocks.
    fn has_space(&self, start: Lba, blocks: Blocks) -> bool;

    /// Writes blocks. The payload matches their number.
    fn write(&mut self, start: Lba, blocks: Blocks, payload: &Payload);

    /// Reads blocks.
    fn read(&self, start: Lba, blocks: Blocks) -> Payload;

    /// Zeroes blocks.
    fn zero(&mut self, start: Lba, blocks: Blocks);

    /// Zeroes a whole zone.
    fn erase(&mut self, zone: ZoneIndex);
}

/// A device of one namespace without latency.
#[derive(Debug)]
pub(crate) struct Immediate<C> {
    namespaces: Namespaces,
    pub(crate) zones: ZoneTable,
    pub(crate) contents: C,
    ready: VecDeque<(Instant, Completion)>,
    /// Reused, so that management allocates nothing.
    effects: Vec<ZoneEffect>,
}

impl<C: Contents> Immediate<C> {
    pub(crate) fn new(geometry: Geometry, contents: C) -> Immediate<C> {
        Immediate {
            namespaces: Namespaces::single(geometry.clone()),
            zones: ZoneTable::new(geometry),
            contents,
            ready: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub(crate) fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.ready.len() >= C::OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let result = if command.namespace == NamespaceId::FIRST {
            self.execute(&command.operation)
        } else {
            Err(Status::InvalidNamespace)
        };
        let completion = match result {
            Ok(outcome) => Completion { id: command.id, status: Status::Success, outcome },
            Err(status) => Completion::of(command.id, status),
        };
        self.ready.push_back((now, completion));
        Ok(())
    }

    pub(crate) fn poll(&mut self, completions: &mut CompletionQueue) {
        for (_, completion) in self.ready.drain(..) {
            completions.push(completion);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.ready.front().map(|(at, _)| *at)
    }

    /// Power cycle: completions that are not yet polled for are lost, though their commands have
    /// taken effect.
    pub(crate) fn power_cycle(&mut self) {
        self.zones.power_cycle();
        self.ready.clear();
    }

    fn execute(&mut self, operation: &Operation) -> Result<Outcome, Status> {
        let zones = &mut self.zones;
        match operation {
            Operation::Read { start, blocks } => {
                zones.check_read(*start, *blocks)?;
                return Ok(Outcome::Data(self.contents.read(*start, *blocks)));
            }
            Operation::Write { start, blocks, payload } => {
                let fits = self.contents.takes(payload) && fits(zones.geometry(), payload, *blocks);
                if !self.contents.has_ample_space(payload, *blocks) && self.lacks_space(fits, *start, *blocks) {
                    let refusal = self.zones.clone().write(*start, *blocks, fits).err();
                    return Err(refusal.unwrap_or(Status::WriteFault));
                }
                self.zones.write(*start, *blocks, fits)?;
                self.contents.write(*start, *blocks, payload);
            }
            Operation::Append { zone_start, blocks, payload } => {
                let fits = self.contents.takes(payload) && fits(zones.geometry(), payload, *blocks);
                if !self.contents.has_ample_space(payload, *blocks)
                    && let Some(zone) = zones.geometry().zone_of(*zone_start)
                {
                    let place = zones.geometry().zone_start(zone) + zones.zone(zone).write_pointer_blocks;
                    if self.lacks_space(fits, place, *blocks) {
                        let refusal = self.zones.clone().append(*zone_start, *blocks, fits).err();
                        return Err(refusal.unwrap_or(Status::WriteFault));
                    }
                }
                let grant = self.zones.append(*zone_start, *blocks, fits)?;
                self.contents.write(grant.start, *blocks, payload);
                return Ok(Outcome::Appended(grant.start));
            }
            Operation::WriteZeroes { start, blocks } => {
                zones.write_zeroes(*start, *blocks)?;
                self.contents.zero(*start, *blocks);
            }
            Operation::Deallocate { ranges } => {
                zones.check_deallocate(ranges)?;
                for range in ranges {
                    self.contents.zero(range.start, range.blocks);
                }
            }
            Operation::Flush => {}
            Operation::ManageZones { action, target } => {
                self.effects.clear();
                zones.manage(action, *target, &mut self.effects)?;
                for effect in &self.effects {
                    if let ZoneEffect::Reset { zone, .. } | ZoneEffect::Offlined { zone } = effect {
                        self.contents.erase(*zone);
                    }
                }
            }
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                let report = zones.report(*start, *filter, *extended, *partial, *descriptors_max)?;
                return Ok(Outcome::Report(Box::new(report)));
            }
            Operation::ReadChangedZones => {
                return Ok(Outcome::ChangedZones(Box::new(zones.take_changed_zones())));
            }
        }
        Ok(Outcome::None)
    }

    /// Whether there is not enough space for a valid payload. Ranges outside the namespace are left
    /// to the zone rules.
    fn lacks_space(&self, fits: bool, start: Lba, blocks: Blocks) -> bool {
        let end = start.0.checked_add(blocks.0);
        let is_inside = end.is_some_and(|end| end <= self.zones.geometry().namespace_blocks().0);
        fits && is_inside && !self.contents.has_space(start, blocks)
    }
}

#[inline]
fn fits(geometry: &Geometry, payload: &Payload, blocks: Blocks) -> bool {
    payload.fits(blocks.0, geometry.block_size_bytes, geometry.metadata_bytes)
}
