//! The event queue.
//!
//! One event is one 128-bit number: time, then the order of scheduling, then kind and subject.
//! Comparing numbers is all that the heap does; a few hundred pending events stay in the
//! first-level cache. (A calendar queue wins above some ten thousand pending events, which no drive
//! has: at most one for each die, channel, link and command.)

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonda_zoned::{CommandId, Instant, Key};

use crate::pending::CommandKey;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of work of a command on a firmware core ends.
    FirmwareEnd(CommandKey),
    /// The parallel time of a command ends.
    CommandTimer(CommandKey),
    /// A die's sensing, program, erase or slice ends, unless it was rescheduled since.
    DieEnd(u32),
    /// The transfer on a channel ends.
    ChannelEnd(u32),
    /// The transfer from the host ends.
    LinkInEnd,
    /// The transfer to the host ends.
    LinkOutEnd,
    /// A stage of a reset that holds back programs may end.
    ResetEnd,
}

/// Bits of an event's subject.
const SUBJECT_BITS: u32 = 21;
/// Bits of an event's kind.
const KIND_BITS: u32 = 3;
/// Bits of the order of scheduling: enough for 10^12 events.
const ORDER_BITS: u32 = 64 - SUBJECT_BITS - KIND_BITS;

const _: () = assert!(crate::limits::COMMANDS_MAX < 1 << SUBJECT_BITS);
const _: () = assert!((crate::limits::DIES_MAX as usize) < 1 << SUBJECT_BITS);

/// Events by time, and by order of scheduling within one instant.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<u128>>,
    scheduled: u64,
}

impl EventQueue {
    #[inline]
    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        let (kind, subject) = match event {
            Event::FirmwareEnd(command) => (0, command.index()),
            Event::CommandTimer(command) => (1, command.index()),
            Event::DieEnd(die) => (2, die),
            Event::ChannelEnd(channel) => (3, channel),
            Event::LinkInEnd => (4, 0),
            Event::LinkOutEnd => (5, 0),
            Event::ResetEnd => (6, 0),
        };
        assert!(self.scheduled < 1 << ORDER_BITS, "a run ends before 2^40 events");
        let low = (self.scheduled << (SUBJECT_BITS + KIND_BITS)) | (kind << SUBJECT_BITS) | u64::from(subject);
        self.scheduled += 1;
        self.heap.push(Reverse(u128::from(at.0) << 64 | u128::from(low)));
    }

    /// The instant of the earliest event.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(key)| Instant((key >> 64) as u64))
    }

    /// Takes the earliest event that is due at `now`, with its instant.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Event)> {
        let at = self.next_at()?;
        if at > now {
            return None;
        }
        let Reverse(key) = self.heap.pop()?;
        let low = key as u64;
        let subject = (low & ((1 << SUBJECT_BITS) - 1)) as u32;
        let event = match low >> SUBJECT_BITS & ((1 << KIND_BITS) - 1) {
            0 => Event::FirmwareEnd(command_of(subject)),
            1 => Event::CommandTimer(command_of(subject)),
            2 => Event::DieEnd(subject),
            3 => Event::ChannelEnd(subject),
            4 => Event::LinkInEnd,
            5 => Event::LinkOutEnd,
            6 => Event::ResetEnd,
            kind => unreachable!("no event has kind {kind}"),
        };
        Some((at, event))
    }
}

/// The command whose key has this index.
#[inline]
fn command_of(index: u32) -> CommandKey {
    Key::of_command(CommandId(u64::from(index))).expect("the subject of such an event is the index of a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_within_one_instant_in_order_of_scheduling() {
        let mut queue = EventQueue::default();
        queue.schedule(Instant(20), Event::LinkInEnd);
        queue.schedule(Instant(10), Event::DieEnd(7));
        queue.schedule(Instant(10), Event::CommandTimer(command_of(3)));
        queue.schedule(Instant(10), Event::FirmwareEnd(command_of(9)));
        assert_eq!(queue.next_at(), Some(Instant(10)));
        let due: Vec<Event> = std::iter::from_fn(|| queue.pop_due(Instant(15))).map(|(_, event)| event).collect();
        assert_eq!(due, [Event::DieEnd(7), Event::CommandTimer(command_of(3)), Event::FirmwareEnd(command_of(9))]);
        assert_eq!(queue.pop_due(Instant(20)), Some((Instant(20), Event::LinkInEnd)));
        assert_eq!(queue.next_at(), None);
    }
}
