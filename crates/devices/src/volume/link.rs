//! [`Link`]: what a device behind a connection has in flight and has acknowledged, so that I/O goes on over another connection when the
//! first one is lost.

use std::collections::{BTreeMap, HashMap, VecDeque};

use zonda_zoned::{
    Command, CommandId, Completion, Geometry, Lba, Operation, Outcome, Status, ZoneAction, ZoneDescriptor, ZoneIndex,
    ZoneState, ZoneTarget,
};

/// Owns the commands of one device that are repeated over the next connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    in_flight: HashMap<CommandId, Command>,
    /// Commands that the device has refused, since another host had it. They had no effect. Volumes count their commands, so these are in order.
    refused: BTreeMap<CommandId, Command>,
    /// For each zone that was written since the device was opened, by its start: the end of what was acknowledged.
    acknowledged: BTreeMap<Lba, Lba>,
    /// Commands for the next connection, in their order.
    pub(super) held: VecDeque<Command>,
}

/// Whether a command changes nothing, or nothing more when it is done twice.
fn is_repeatable(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. } | Operation::ReportZones { .. } | Operation::Flush)
}

impl Link {
    /// A command is submitted.
    pub(super) fn sent(&mut self, command: &Command) {
        self.in_flight.insert(command.id, command.clone());
    }

    /// The device had no queue slot for a command.
    pub(super) fn taken_back(&mut self, command: &Command) {
        self.in_flight.remove(&command.id);
    }

    /// A command was refused, since another host has the device: it waits.
    pub(super) fn was_refused(&mut self, id: CommandId) {
        self.refused.extend(self.in_flight.remove(&id).map(|command| (id, command)));
    }

    /// Whether commands have been refused.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether the device has answered all that may not be repeated.
    pub(super) fn is_answered(&self) -> bool {
        self.in_flight.values().all(|command| is_repeatable(&command.operation))
    }

    /// What was refused goes on over the next connection, before what came later.
    pub(super) fn hold_refused(&mut self) {
        for (_, command) in std::mem::take(&mut self.refused).into_iter().rev() {
            self.held.push_front(command);
        }
    }

    /// A command has ended; with `is_lost`, since the connection is lost: one that can be repeated is held for the next one, and has not
    /// ended. Returns its completion otherwise.
    pub(super) fn ended(&mut self, geometry: &Geometry, completion: Completion, is_lost: bool) -> Option<Completion> {
        let Some(command) = self.in_flight.remove(&completion.id) else { return Some(completion) };
        let was_cut_off = matches!(completion.status, Status::AbortedPowerLoss | Status::NamespaceNotReady);
        match &command.operation {
            operation if is_repeatable(operation) && is_lost && was_cut_off => {
                self.held.push_back(command);
                return None;
            }
            Operation::Write { start, blocks, .. } if completion.status.is_success() => {
                self.acknowledge(geometry, *start + *blocks);
            }
            Operation::Append { blocks, .. } if completion.status.is_success() => {
                if let Outcome::Appended(first) = completion.outcome {
                    self.acknowledge(geometry, first + *blocks);
                }
            }
            // Also of one that has failed it is not known what it left.
            Operation::ManageZones { action: ZoneAction::Reset | ZoneAction::Offline, target } => match target {
                ZoneTarget::All => self.acknowledged.clear(),
                ZoneTarget::Zone(start) => {
                    self.acknowledged.remove(start);
                }
            },
            _ => {}
        }
        Some(completion)
    }

    /// Everything in flight ends as if the connection were lost. Returns what cannot be repeated over the next one.
    pub(super) fn cut_off(&mut self, geometry: &Geometry) -> Vec<Completion> {
        let mut in_flight: Vec<CommandId> = self.in_flight.keys().copied().collect();
        in_flight.sort_unstable();
        let cut_off = in_flight.into_iter().map(|id| Completion::of(id, Status::AbortedPowerLoss));
        let ended = cut_off.filter_map(|completion| self.ended(geometry, completion, true)).collect();
        self.hold_refused();
        ended
    }

    /// Blocks up to this one, which is behind the last of them, were acknowledged.
    fn acknowledge(&mut self, geometry: &Geometry, end: Lba) {
        let Some(zone) = geometry.zone_of(Lba(end.0 - 1)) else { return };
        let known = self.acknowledged.entry(geometry.zone_start(zone)).or_insert(end);
        *known = end.max(*known);
    }

    /// The first zone in which a device lacks blocks that were acknowledged, or that are in one of the `full` zones.
    pub(super) fn lacking(
        &self,
        geometry: &Geometry,
        zones: &[ZoneDescriptor],
        mut full: impl Iterator<Item = ZoneIndex>,
    ) -> Option<ZoneIndex> {
        let found = |zone: ZoneIndex| zones.get(zone.0 as usize);
        let is_dead = |zone: &ZoneDescriptor| matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
        let lacks_full = |zone: &ZoneIndex| found(*zone).is_none_or(|of| of.state != ZoneState::Full && !is_dead(of));
        let lacks = |(start, end): (&Lba, &Lba)| {
            let zone = geometry.zone_of(*start)?;
            let has_all = |of: &ZoneDescriptor| {
                let written = of.write_pointer.filter(|_| of.state != ZoneState::Empty);
                of.state == ZoneState::Full || is_dead(of) || written.is_some_and(|pointer| pointer >= *end)
            };
            (!found(zone).is_some_and(has_all)).then_some(zone)
        };
        self.acknowledged.iter().find_map(lacks).or_else(|| full.find(lacks_full))
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, NamespaceId, Payload};

    use super::*;

    fn command(id: u64, operation: Operation) -> Command {
        Command { id: CommandId(id), namespace: NamespaceId::FIRST, operation }
    }

    fn write(start: u64, blocks: u64) -> Operation {
        Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::None }
    }

    fn report(geometry: &Geometry, written: &[u64]) -> Vec<ZoneDescriptor> {
        let mut zones = zonda_zoned::zones::ZoneTable::new(geometry.clone());
        for (zone, blocks) in (0..).zip(written.iter().copied()) {
            let start = geometry.zone_start(ZoneIndex(zone));
            for at in 0..blocks {
                zones.write(Lba(start.0 + at), Blocks(1), true).expect("it is the next block");
            }
        }
        let all = zonda_zoned::ReportFilter::All;
        zones.report(Lba(0), all, false, true, geometry.zone_count).expect("there are zones").zones
    }

    #[test]
    fn what_can_be_repeated_is_held_when_the_connection_is_lost_and_all_else_ends() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let read = Operation::Read { start: Lba(3), blocks: Blocks(1) };
        for (id, operation) in [(1, read.clone()), (2, write(0, 4)), (3, Operation::Flush)] {
            link.sent(&command(id, operation));
        }
        let cut_off = |id| Completion::of(CommandId(id), Status::AbortedPowerLoss);
        assert!(link.ended(&geometry, cut_off(1), true).is_none());
        assert_eq!(link.ended(&geometry, cut_off(2), true).map(|ended| ended.id), Some(CommandId(2)));
        assert!(link.ended(&geometry, cut_off(3), true).is_none());
        assert_eq!(link.held, [command(1, read.clone()), command(3, Operation::Flush)]);
        link.sent(&command(4, read));
        let failed = Completion::of(CommandId(4), Status::UnrecoveredReadError);
        assert!(link.ended(&geometry, failed, true).is_some(), "the device has answered");
    }

    #[test]
    fn all_that_is_in_flight_when_a_connection_is_given_up_is_held_or_ends() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let read = Operation::Read { start: Lba(3), blocks: Blocks(1) };
        for (id, operation) in [(3, Operation::Flush), (1, read.clone()), (2, write(0, 4))] {
            link.sent(&command(id, operation));
        }
        assert_eq!(link.cut_off(&geometry), [Completion::of(CommandId(2), Status::AbortedPowerLoss)]);
        assert_eq!(link.held, [command(1, read), command(3, Operation::Flush)]);
        assert_eq!(link.cut_off(&geometry), [], "nothing is in flight any more");
    }

    #[test]
    fn what_was_refused_is_held_as_it_was_in_its_order_and_before_what_came_later() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let commands = [command(1, write(0, 4)), command(2, write(4, 4)), command(3, Operation::Flush)];
        commands.iter().for_each(|command| link.sent(command));
        link.was_refused(CommandId(2));
        assert!(!link.is_answered(), "the first one may be done still");
        link.was_refused(CommandId(1));
        assert!(link.is_answered() && link.has_refused());
        link.held.push_back(command(4, write(8, 4)));
        assert_eq!(link.cut_off(&geometry), []);
        let [first, second, flush] = commands;
        assert_eq!(link.held, [first, second, command(4, write(8, 4)), flush]);
    }

    #[test]
    fn a_device_that_lacks_what_was_acknowledged_or_a_full_zone_is_found_out() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let start = geometry.zone_start(ZoneIndex(1));
        link.sent(&command(1, write(start.0, 4)));
        assert!(link.ended(&geometry, Completion::of(CommandId(1), Status::Success), false).is_some());
        // This one was not acknowledged.
        link.sent(&command(2, write(start.0 + 4, 2)));
        assert!(link.ended(&geometry, Completion::of(CommandId(2), Status::AbortedPowerLoss), true).is_some());
        let lacking = |link: &Link, written: &[u64], full: &[u32]| {
            link.lacking(&geometry, &report(&geometry, written), full.iter().copied().map(ZoneIndex))
        };
        assert_eq!(lacking(&link, &[0, 4], &[]), None);
        assert_eq!(lacking(&link, &[0, 6], &[]), None);
        for older in [0, 3] {
            assert_eq!(lacking(&link, &[0, older], &[]), Some(ZoneIndex(1)));
        }
        let capacity = geometry.zone_capacity_blocks.0;
        assert_eq!(lacking(&link, &[capacity, 4], &[0]), None);
        assert_eq!(lacking(&link, &[capacity - 1, 4], &[0]), Some(ZoneIndex(0)));
        let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) };
        link.sent(&command(3, reset));
        assert!(link.ended(&geometry, Completion::of(CommandId(3), Status::Success), false).is_some());
        assert_eq!(lacking(&link, &[0, 0], &[]), None);
    }
}
