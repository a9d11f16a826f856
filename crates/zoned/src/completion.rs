//! Completions, and the queue that `poll` fills.

use std::collections::VecDeque;

use crate::{ChangedZoneList, CommandId, Lba, Payload, Status, ZoneReport};

/// The completion of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command's own id.
    pub id: CommandId,
    /// The status.
    pub status: Status,
    /// The result.
    pub outcome: Outcome,
}

/// What a successful command returns in addition to its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    #[default]
    None,
    /// Where an append was placed.
    Appended(Lba),
    /// The data of a read, in the kind that the device keeps.
    Data(Payload),
    /// Zone descriptors.
    Report(Box<ZoneReport>),
    /// The Changed Zone List.
    ChangedZones(Box<ChangedZoneList>),
}

/// Completions in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct CompletionQueue {
    entries: VecDeque<Completion>,
}

impl CompletionQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> CompletionQueue {
        CompletionQueue::default()
    }

    /// Adds a completion at the end.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        self.entries.push_back(completion);
    }

    /// Removes and returns the oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// Moves all completions of another queue behind those of this one.
    #[inline]
    pub fn append(&mut self, other: &mut CompletionQueue) {
        if self.entries.is_empty() {
            std::mem::swap(&mut self.entries, &mut other.entries);
        } else {
            self.entries.append(&mut other.entries);
        }
    }

    /// The number of completions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Completion {
    /// A completion without result.
    #[must_use]
    pub fn of(id: CommandId, status: Status) -> Completion {
        Completion { id, status, outcome: Outcome::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(ids: &[u64]) -> CompletionQueue {
        let mut queue = CompletionQueue::new();
        ids.iter().for_each(|id| queue.push(Completion::of(CommandId(*id), Status::Success)));
        queue
    }

    #[test]
    fn completions_that_are_appended_keep_their_order_behind_those_of_the_queue() {
        for own in [&[][..], &[1, 2]] {
            let (mut all, mut other) = (queue(own), queue(&[3, 4]));
            all.append(&mut other);
            let ids: Vec<u64> = std::iter::from_fn(|| all.pop()).map(|completion| completion.id.0).collect();
            assert_eq!((ids, other.len()), ([own, &[3, 4]].concat(), 0));
        }
    }
}
