//! [`Null`]: the rules of zones and nothing else.

use std::collections::VecDeque;

use zonda_zoned::zones::{ZoneEffect, ZoneTable};
use zonda_zoned::{
    Command, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Operation, Outcome, Payload, QueueFull,
    Status, ZonedDevice,
};

use crate::limits::NULL_OUTSTANDING_MAX;

/// A device of one namespace that follows the rules of zones in no time at all and keeps no data: every read brings back
/// [`Payload::None`]. Use it as the floor against which the overhead of layers is measured, and in tests that ask only for
/// statuses.
#[derive(Debug)]
pub struct Null {
    zones: ZoneTable,
    ready: VecDeque<(Instant, Completion)>,
    /// Reused, so that management allocates nothing.
    effects: Vec<ZoneEffect>,
}

impl Null {
    /// An empty device.
    ///
    /// # Panics
    /// When the geometry is not valid.
    #[must_use]
    pub fn new(geometry: Geometry) -> Null {
        Null { zones: ZoneTable::new(geometry), ready: VecDeque::new(), effects: Vec::new() }
    }

    /// The zones as they stand.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.zones
    }

    /// The zones, for a test that wants a zone to degrade, or the power to fail.
    #[must_use]
    pub fn zones_mut(&mut self) -> &mut ZoneTable {
        &mut self.zones
    }

    fn execute(&mut self, operation: &Operation) -> Result<Outcome, Status> {
        let zones = &mut self.zones;
        let (block_size, metadata) = (zones.geometry().block_size_bytes, zones.geometry().metadata_bytes);
        match operation {
            Operation::Read { start, blocks } => {
                zones.check_read(*start, *blocks)?;
                return Ok(Outcome::Data(Payload::None));
            }
            Operation::Write { start, blocks, payload } => {
                zones.write(*start, *blocks, payload.fits(blocks.0, block_size, metadata))?;
            }
            Operation::Append { zone_start, blocks, payload } => {
                let grant = zones.append(*zone_start, *blocks, payload.fits(blocks.0, block_size, metadata))?;
                return Ok(Outcome::Appended(grant.start));
            }
            Operation::WriteZeroes { start, blocks } => {
                zones.write_zeroes(*start, *blocks)?;
            }
            Operation::Deallocate { ranges } => zones.check_deallocate(ranges)?,
            Operation::Flush => {}
            Operation::ManageZones { action, target } => {
                self.effects.clear();
                zones.manage(action, *target, &mut self.effects)?;
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
}

impl ZonedDevice for Null {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "a null device has one namespace");
        self.zones.geometry()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.ready.len() >= NULL_OUTSTANDING_MAX {
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

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        for (_, completion) in self.ready.drain(..) {
            completions.push(completion);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.ready.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
    use zonda_zoned::{PayloadKind, Prng};

    use super::*;
    use crate::testing::{poll_ids, read, run_one, write};

    #[test]
    fn a_null_device_ends_every_command_as_the_rules_say() {
        let mut prng = Prng::new(4);
        for seed in 0..40 {
            let geometry = random_geometry(&mut prng);
            let mut device = Null::new(geometry.clone());
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::None);
            let mut source = CommandSource::new(&geometry, PayloadKind::None, Prng::new(seed));
            for _ in 0..1_000 {
                let command = source.next(&oracle);
                let expected = oracle.execute(&command);
                assert_eq!(run_one(&mut device, command), expected);
            }
            device.zones().check_invariants();
        }
    }

    #[test]
    fn a_command_completes_at_the_instant_at_which_it_was_taken() {
        let mut device = Null::new(Geometry::tiny());
        assert_eq!(device.next_wakeup(), None);
        device.submit(Instant(7), write(1, 0, 1)).unwrap();
        assert_eq!(device.next_wakeup(), Some(Instant(7)));
        assert_eq!(poll_ids(&mut device, Instant(7)), [1]);
        assert_eq!(device.next_wakeup(), None);
    }

    #[test]
    fn completions_that_nobody_polls_for_fill_the_device() {
        let mut device = Null::new(Geometry::tiny());
        for id in 0..NULL_OUTSTANDING_MAX as u64 {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
        }
        assert_eq!(device.submit(Instant::ZERO, write(0, 0, 1)), Err(QueueFull(write(0, 0, 1))));
        assert_eq!(poll_ids(&mut device, Instant::ZERO).len(), NULL_OUTSTANDING_MAX);
        device.submit(Instant::ZERO, write(0, 0, 1)).unwrap();
    }
}
