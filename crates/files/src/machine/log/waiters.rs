//! Actions when records are durable.

use std::collections::VecDeque;

use crate::extents::Run;
use crate::{FileError, RequestId};

use super::Lsn;

/// Owns what waits for records, and how many of them are durable.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Waiters, each with its LSN, in the order of LSNs.
    waiters: VecDeque<(Lsn, Waiter)>,
    /// Every record with an LSN up to this one is durable.
    durable: Lsn,
}

/// The action when records are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Waiter {
    /// End a request.
    Request(RequestId),
    /// Free extents of a file.
    Release(Vec<Run>),
    /// The store is formatted or mounted.
    Ready,
}

/// Whether an action has to wait.
#[must_use]
#[derive(Debug)]
pub(in crate::machine) enum Wait {
    Begun,
    /// The records are durable already.
    Durable(Waiter),
    /// The records will never be durable.
    Never(Waiter, FileError),
}

impl Waiters {
    pub(super) fn add(&mut self, lsn: Lsn, waiter: Waiter, failed: Option<&FileError>) -> Wait {
        if lsn <= self.durable {
            return Wait::Durable(waiter);
        }
        if let Some(error) = failed {
            return Wait::Never(waiter, error.clone());
        }
        let behind = self.waiters.iter().rev().take_while(|(other, _)| *other > lsn).count();
        self.waiters.insert(self.waiters.len() - behind, (lsn, waiter));
        Wait::Begun
    }

    pub(super) fn become_durable(&mut self, lsn: Lsn) {
        assert!(lsn >= self.durable, "what is durable stays so");
        self.durable = lsn;
    }

    pub(super) fn next_durable(&mut self) -> Option<Waiter> {
        self.waiters.pop_front_if(|(lsn, _)| *lsn <= self.durable).map(|(_, waiter)| waiter)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.waiters).into_iter().map(|(_, waiter)| waiter)
    }

    pub(super) fn lose_request(&mut self) {
        self.waiters.pop_front_if(|(_, waiter)| matches!(waiter, Waiter::Request(_)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn has_releases(&self) -> bool {
        self.waiters.iter().any(|(_, waiter)| matches!(waiter, Waiter::Release(_)))
    }

    pub(super) fn releases(&self) -> impl Iterator<Item = &Run> {
        self.waiters
            .iter()
            .filter_map(|(_, waiter)| if let Waiter::Release(runs) = waiter { Some(runs) } else { None })
            .flatten()
    }

    pub(super) fn requests(&self) -> usize {
        self.waiters.iter().filter(|(_, waiter)| matches!(waiter, Waiter::Request(_))).count()
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.waiters.iter().is_sorted_by_key(|(lsn, _)| *lsn), "actions run in the order of the log");
        let first = self.waiters.front();
        assert!(first.is_none_or(|(lsn, _)| *lsn > self.durable), "an action runs when its records are durable");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64) -> Waiter {
        Waiter::Request(RequestId(number))
    }

    #[test]
    fn actions_run_in_the_order_of_their_records_and_those_of_one_record_in_their_own() {
        let mut waiters = Waiters::default();
        for (lsn, number) in [(3, 1), (1, 2), (3, 3), (2, 4)] {
            assert!(matches!(waiters.add(Lsn(lsn), request(number), None), Wait::Begun));
            waiters.check_invariants();
        }
        waiters.become_durable(Lsn(2));
        let ended: Vec<Waiter> = std::iter::from_fn(|| waiters.next_durable()).collect();
        assert_eq!(ended, [request(2), request(4)]);
        waiters.check_invariants();
        assert!(matches!(waiters.add(Lsn(2), request(5), None), Wait::Durable(_)));
        waiters.become_durable(Lsn(9));
        let ended: Vec<Waiter> = std::iter::from_fn(|| waiters.next_durable()).collect();
        assert_eq!(ended, [request(1), request(3)]);
    }

    #[test]
    fn after_a_failure_only_records_that_are_durable_are_waited_for() {
        let mut waiters = Waiters::default();
        waiters.become_durable(Lsn(5));
        let error = FileError::NoSpace;
        assert!(matches!(waiters.add(Lsn(5), request(1), Some(&error)), Wait::Durable(_)));
        assert!(matches!(waiters.add(Lsn(6), request(2), Some(&error)), Wait::Never(_, FileError::NoSpace)));
        assert!(waiters.is_empty());
    }
}
