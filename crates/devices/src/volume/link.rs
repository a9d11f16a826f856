//! [`Link`]: the outstanding commands and acknowledged writes of a device that can vanish, so that I/O continues
//! over another connection when the first one is lost, or on a drive that is plugged in again.

use std::collections::{BTreeMap, HashMap, VecDeque};

use zonda_zoned::{
    Command, CommandId, Completion, Geometry, Lba, Operation, Outcome, Status, ZoneAction, ZoneDescriptor, ZoneIndex,
    ZoneState, ZoneTarget,
};

/// The commands of one device that are resubmitted over the next connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    in_flight: HashMap<CommandId, Command>,
    /// Commands that failed with Reservation Conflict. They had no effect. Command identifiers of
    /// volumes ascend, so these are in order.
    refused: BTreeMap<CommandId, Command>,
    /// For each zone that was written since the device was opened, by its start: the end of the
    /// acknowledged writes.
    acknowledged: BTreeMap<Lba, Lba>,
    /// Commands to submit over the next connection, in order.
    pub(super) held: VecDeque<Command>,
}

/// Whether a command is idempotent.
fn is_repeatable(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. } | Operation::ReportZones { .. } | Operation::Flush)
}

impl Link {
    /// A command was submitted.
    pub(super) fn sent(&mut self, command: &Command) {
        let earlier = self.in_flight.insert(command.id, command.clone());
        // Only one of the two would be resubmitted over the next connection.
        assert!(earlier.is_none(), "command {} is in flight twice", command.id);
    }

    /// The device had no queue slot for a command.
    pub(super) fn not_sent(&mut self, command: &Command) {
        let sent = self.in_flight.remove(&command.id);
        // It would complete once more when the connection is lost.
        assert!(sent.is_some(), "command {} was refused, but not sent", command.id);
    }

    /// A command has failed with Reservation Conflict: it is resubmitted later.
    pub(super) fn conflicted(&mut self, id: CommandId) {
        self.refused.extend(self.in_flight.remove(&id).map(|command| (id, command)));
    }

    /// Whether commands have failed with Reservation Conflict.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether all commands that are not repeatable have completed.
    pub(super) fn is_answered(&self) -> bool {
        self.in_flight.values().all(|command| is_repeatable(&command.operation))
    }

    /// Whether no command is in flight on the present connection.
    pub(super) fn is_quiescent(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Commands that have not completed for the volume.
    pub(super) fn outstanding(&self) -> usize {
        self.in_flight.len() + self.refused.len() + self.held.len()
    }

    /// Queues the refused commands for the next connection, before later ones.
    pub(super) fn hold_refused(&mut self) {
        for (_, command) in std::mem::take(&mut self.refused).into_iter().rev() {
            self.held.push_front(command);
        }
    }

    /// A command has completed. If `is_lost`, since the connection was lost, a repeatable one is
    /// held for the next connection. Returns the completion otherwise.
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
            // If it has failed, the state of the zone is unknown.
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

    /// Aborts all outstanding commands as if the connection were lost. Returns the completions of
    /// those that cannot be repeated.
    pub(super) fn cut_off(&mut self, geometry: &Geometry) -> Vec<Completion> {
        let mut in_flight: Vec<CommandId> = self.in_flight.keys().copied().collect();
        in_flight.sort_unstable();
        let cut_off = in_flight.into_iter().map(|id| Completion::of(id, Status::AbortedPowerLoss));
        let ended = cut_off.filter_map(|completion| self.ended(geometry, completion, true)).collect();
        self.hold_refused();
        ended
    }

    /// Blocks up to `end`, exclusive, were acknowledged.
    fn acknowledge(&mut self, geometry: &Geometry, end: Lba) {
        let Some(zone) = geometry.zone_of(Lba(end.0 - 1)) else { return };
        let known = self.acknowledged.entry(geometry.zone_start(zone)).or_insert(end);
        *known = end.max(*known);
    }

    /// The first zone in which a device lacks acknowledged blocks, or that should be full (`full`)
    /// and is not.
    pub(super) fn lacking(
        &self,
        geometry: &Geometry,
        zones: &[ZoneDescriptor],
        mut full: impl Iterator<Item = ZoneIndex>,
    ) -> Option<ZoneIndex> {
        let found = |zone: ZoneIndex| zones.get(zone.0 as usize);
        let has_crashed = |zone: &ZoneDescriptor| matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
        let lacks_full =
            |zone: &ZoneIndex| found(*zone).is_none_or(|of| of.state != ZoneState::Full && !has_crashed(of));
        let lacks = |(start, end): (&Lba, &Lba)| {
            let zone = geometry.zone_of(*start)?;
            let has_all = |of: &ZoneDescriptor| {
                let written = of.write_pointer.filter(|_| of.state != ZoneState::Empty);
                of.state == ZoneState::Full || has_crashed(of) || written.is_some_and(|pointer| pointer >= *end)
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
        Command::new(CommandId(id), NamespaceId::FIRST, operation)
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
    fn repeatable_commands_are_held_when_the_connection_is_lost_and_others_fail() {
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
    fn all_commands_in_flight_are_held_or_fail_when_a_connection_is_aborted() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let read = Operation::Read { start: Lba(3), blocks: Blocks(1) };
        for (id, operation) in [(3, Operation::Flush), (1, read.clone()), (2, write(0, 4))] {
            link.sent(&command(id, operation));
        }
        assert_eq!(link.cut_off(&geometry), [Completion::of(CommandId(2), Status::AbortedPowerLoss)]);
        assert_eq!(link.held, [command(1, read), command(3, Operation::Flush)]);
        assert_eq!(link.cut_off(&geometry), [], "no command is in flight");
    }

    #[test]
    fn refused_commands_are_held_in_order_and_before_later_ones() {
        let (geometry, mut link) = (Geometry::tiny(), Link::default());
        let commands = [command(1, write(0, 4)), command(2, write(4, 4)), command(3, Operation::Flush)];
        commands.iter().for_each(|command| link.sent(command));
        link.conflicted(CommandId(2));
        assert!(!link.is_answered(), "the first one may still be executed");
        link.conflicted(CommandId(1));
        assert!(link.is_answered() && link.has_refused());
        link.held.push_back(command(4, write(8, 4)));
        assert_eq!(link.cut_off(&geometry), []);
        let [first, second, flush] = commands;
        assert_eq!(link.held, [first, second, command(4, write(8, 4)), flush]);
    }

    #[test]
    fn a_device_that_lacks_acknowledged_blocks_or_a_full_zone_is_detected() {
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
