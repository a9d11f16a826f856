//! Commands of one member: the purpose of each, and since when it has been in flight.
//!
//! Operations, in their order: [`send`](Commands::send) queues a command, [`poll`](Commands::poll)
//! returns it for submission, [`queue_full`](Commands::queue_full) takes it back,
//! [`ended`](Commands::ended) returns its purpose; [`abandon`](Commands::abandon) ends all of them
//! when the member has failed.

use std::collections::VecDeque;

use zonda_zoned::{Class, Command, CommandId, Completion, Duration, Instant, NamespaceId, Operation, Origin};

use super::Work;
use crate::limits::MEMBER_COMMANDS_MAX;

/// Owns the outstanding commands of one member. Ids are never reused, not even by the device that
/// replaces this one: see [`CommandKey`].
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Commands that were not submitted yet.
    outbox: VecDeque<Command>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Slots in use.
    in_flight: usize,
    uses: u32,
    /// When each command was submitted, in that order; completed ones are skipped.
    clock: VecDeque<(Instant, CommandKey)>,
    /// The member's queue is full until the next completion.
    is_blocked: bool,
    /// Since when its queue is full although no command is in flight: counts towards the timeout.
    refused_since: Option<Instant>,
}

/// A command in flight.
#[derive(Debug)]
struct Slot {
    work: Work,
    /// Distinguishes uses of one slot.
    use_number: u32,
}

/// The slot of a command, and which use of all slots it is. A member may return ids that are not in
/// use any more. Bits 0..32 of the id are the slot, bits 32..64 the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommandKey {
    slot: u32,
    use_number: u32,
}

impl From<CommandKey> for CommandId {
    #[inline]
    fn from(key: CommandKey) -> CommandId {
        CommandId(u64::from(key.use_number) << 32 | u64::from(key.slot))
    }
}

impl From<CommandId> for CommandKey {
    #[inline]
    fn from(id: CommandId) -> CommandKey {
        CommandKey { slot: id.0 as u32, use_number: (id.0 >> 32) as u32 }
    }
}

impl Commands {
    /// An empty table whose ids differ from all ids of this one.
    pub(super) fn successor(&self) -> Commands {
        Commands { uses: self.uses, ..Commands::default() }
    }

    /// Queues a command.
    #[inline]
    pub(super) fn send(&mut self, work: Work, class: Class, operation: Operation) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.uses = self.uses.wrapping_add(1);
        let key = CommandKey { slot, use_number: self.uses };
        self.slots[slot as usize] = Some(Slot { work, use_number: key.use_number });
        self.in_flight += 1;
        let origin = Origin { class, ..Origin::default() };
        self.outbox.push_back(Command::new(key.into(), NamespaceId::FIRST, operation).with_origin(origin));
    }

    /// The next command to submit; none while the member's queue is full.
    #[inline]
    pub(super) fn poll(&mut self, now: Instant) -> Option<Command> {
        if self.is_blocked || self.in_flight - self.outbox.len() >= MEMBER_COMMANDS_MAX {
            return None;
        }
        let command = self.outbox.pop_front()?;
        self.clock.push_back((now, command.id.into()));
        Some(command)
    }

    /// The member's queue was full.
    pub(super) fn queue_full(&mut self, now: Instant, command: Command) {
        let key = CommandKey::from(command.id);
        if !self.is_in_flight(key) {
            // It was abandoned meanwhile.
            return;
        }
        self.clock.retain(|&(_, other)| other != key);
        self.outbox.push_front(command);
        // With nothing in flight there is no completion to wait for.
        self.is_blocked = self.in_flight > self.outbox.len();
        if !self.is_blocked {
            self.refused_since.get_or_insert(now);
        }
    }

    /// The purpose of a completed command; `None` if it was abandoned.
    #[inline]
    pub(super) fn ended(&mut self, completion: &Completion) -> Option<Work> {
        self.is_blocked = false;
        self.refused_since = None;
        let key = CommandKey::from(completion.id);
        let entry = self.slots.get_mut(key.slot as usize)?;
        if entry.as_ref().is_none_or(|slot| slot.use_number != key.use_number) {
            return None;
        }
        let slot = entry.take()?;
        self.free.push(key.slot);
        self.in_flight -= 1;
        while self.clock.front().is_some_and(|&(_, key)| !self.is_in_flight(key)) {
            self.clock.pop_front();
        }
        Some(slot.work)
    }

    /// Ends all commands without a completion, and returns their purposes.
    pub(super) fn abandon(&mut self) -> Vec<Work> {
        self.outbox.clear();
        self.clock.clear();
        self.is_blocked = false;
        self.refused_since = None;
        self.free.clear();
        self.in_flight = 0;
        self.slots.drain(..).flatten().map(|slot| slot.work).collect()
    }

    /// Whether commands wait to be submitted.
    pub(super) fn has_waiting(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether all commands have ended.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether the member's queue is full until the next completion.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The purposes of outstanding commands.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Work> {
        self.slots.iter().flatten().map(|slot| &slot.work)
    }

    /// When the oldest command times out.
    pub(super) fn answer_due(&self, timeout: Duration) -> Option<Instant> {
        let unanswered = self.clock.front().map(|&(since, _)| since);
        unanswered.into_iter().chain(self.refused_since).min().map(|since| since + timeout)
    }

    /// Completions were not processed for a while: the timeouts of commands are extended by that.
    pub(super) fn excuse_timeouts(&mut self, now: Instant, by: Duration) {
        let times = self.clock.iter_mut().map(|(since, _)| since).chain(&mut self.refused_since);
        times.for_each(|since| *since = (*since + by).min(now).max(*since));
    }

    fn is_in_flight(&self, key: CommandKey) -> bool {
        let slot = self.slots.get(key.slot as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.use_number == key.use_number)
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.slots.iter().flatten().count(), self.in_flight, "commands in flight");
        assert_eq!(self.slots.len(), self.in_flight + self.free.len(), "every slot is free or in use");
        assert!(self.outbox.iter().all(|command| self.is_in_flight(command.id.into())), "what waits has a slot");
        assert!(!self.is_blocked || self.in_flight > self.outbox.len(), "a full queue has commands in flight");
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Outcome, Status};

    use super::*;

    const TIMEOUT: Duration = Duration(100);

    fn ended(commands: &mut Commands, id: CommandId) -> Option<Work> {
        let work = commands.ended(&Completion { id, status: Status::Success, outcome: Outcome::None });
        commands.check_invariants();
        work
    }

    #[test]
    fn a_command_completes_once_and_differs_from_later_uses_of_its_slot() {
        let mut commands = Commands::default();
        commands.send(Work::Flush, Class::Foreground, Operation::Flush);
        let first = commands.poll(Instant(1)).expect("one waits");
        assert!(matches!(ended(&mut commands, first.id), Some(Work::Flush)));
        commands.send(Work::Superblock, Class::Foreground, Operation::Flush);
        assert!(ended(&mut commands, first.id).is_none(), "its slot is another command's");
        let second = commands.poll(Instant(2)).expect("one waits");
        assert!(matches!(ended(&mut commands, second.id), Some(Work::Superblock)));
    }

    #[test]
    fn completions_of_a_replaced_device_end_no_command_of_its_successor() {
        let mut commands = Commands::default();
        commands.send(Work::Flush, Class::Foreground, Operation::Flush);
        let old = commands.poll(Instant(1)).expect("one waits");
        let mut commands = commands.successor();
        commands.send(Work::Flush, Class::Foreground, Operation::Flush);
        assert!(ended(&mut commands, old.id).is_none());
    }

    #[test]
    fn a_full_queue_is_retried_after_the_next_completion() {
        let mut commands = Commands::default();
        commands.send(Work::Flush, Class::Foreground, Operation::Flush);
        commands.send(Work::Superblock, Class::Foreground, Operation::Flush);
        let first = commands.poll(Instant(1)).expect("one waits");
        let second = commands.poll(Instant(1)).expect("one waits");
        commands.queue_full(Instant(1), second.clone());
        assert!(commands.is_blocked() && commands.poll(Instant(2)).is_none());
        ended(&mut commands, first.id);
        assert_eq!(commands.poll(Instant(3)).map(|command| command.id), Some(second.id));
    }

    #[test]
    fn a_queue_that_is_full_with_nothing_in_flight_counts_towards_the_timeout() {
        let mut commands = Commands::default();
        commands.send(Work::Flush, Class::Foreground, Operation::Flush);
        let command = commands.poll(Instant(5)).expect("one waits");
        commands.queue_full(Instant(7), command);
        assert!(!commands.is_blocked(), "no completion will come");
        assert_eq!(commands.answer_due(TIMEOUT), Some(Instant(107)));
    }

    #[test]
    fn the_oldest_outstanding_command_determines_when_its_member_times_out() {
        let mut commands = Commands::default();
        for at in [1, 2] {
            commands.send(Work::Flush, Class::Foreground, Operation::Flush);
            commands.poll(Instant(at)).expect("one waits");
        }
        assert_eq!(commands.answer_due(TIMEOUT), Some(Instant(101)));
        assert_eq!(commands.abandon().len(), 2);
        commands.check_invariants();
        assert_eq!(commands.answer_due(TIMEOUT), None);
    }
}
