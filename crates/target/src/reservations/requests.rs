//! Reservation commands that have not completed, and the preemptions among them that wait for
//! commands of other hosts.
//!
//! Preempt and abort: a device cannot abort a command. So the preemption completes only when all
//! commands of other hosts at the device have completed, including those of closed connections: the
//! preempting host then reads data that no longer changes.

use std::collections::BTreeSet;

use zonda_nvme::{StatusCode, SubmissionEntry};

use crate::effects::ConnectionId;
use crate::limits::{FENCES_MAX, RESERVATION_REQUESTS_MAX};
use crate::slots::{Slots, slot_key};
use crate::target::CommandKey;

slot_key! {
    ReservationRequestKey
}

/// Reservation commands that wait for a device to save a change, or for commands of other hosts to
/// complete.
#[derive(Debug)]
pub(crate) struct ReservationRequests {
    slots: Slots<ReservationRequestKey, ReservationRequest>,
    /// Preemptions that wait for commands at devices, in order of arrival.
    fences: Vec<Fence>,
}

/// A reservation command that has not completed.
#[derive(Debug)]
struct ReservationRequest {
    connection: ConnectionId,
    entry: SubmissionEntry,
    /// Namespaces on which it is outstanding.
    left: usize,
    /// The first error, if any.
    status: Result<(), StatusCode>,
    /// Its controller was reset: it gets no response, and changes that have not begun are dropped.
    is_aborted: bool,
}

/// A preemption that waits.
#[derive(Debug)]
struct Fence {
    request: ReservationRequestKey,
    /// Commands at devices.
    waits_for: BTreeSet<CommandKey>,
}

/// A command that has ended on all its namespaces, and gets a response.
#[derive(Debug)]
pub(super) struct EndedRequest {
    pub(super) connection: ConnectionId,
    pub(super) entry: SubmissionEntry,
    pub(super) status: Result<(), StatusCode>,
}

impl ReservationRequests {
    pub(crate) fn new() -> ReservationRequests {
        ReservationRequests { slots: Slots::new(), fences: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Adds a command that is outstanding on so many namespaces. `None`: the table is full.
    pub(super) fn insert(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionEntry,
        left: usize,
    ) -> Option<ReservationRequestKey> {
        if self.slots.len() >= RESERVATION_REQUESTS_MAX {
            return None;
        }
        let request = ReservationRequest { connection, entry: *entry, left, status: Ok(()), is_aborted: false };
        Some(self.slots.insert(request))
    }

    /// The connection of an outstanding request.
    pub(super) fn connection_of(&self, key: ReservationRequestKey) -> ConnectionId {
        self.slots.get(key).expect("an outstanding request is in the table").connection
    }

    pub(super) fn is_aborted(&self, key: ReservationRequestKey) -> bool {
        self.slots.get(key).expect("an outstanding request is in the table").is_aborted
    }

    /// Whether a connection has an outstanding reservation command.
    pub(crate) fn has_any_of(&self, connection: ConnectionId) -> bool {
        self.slots.values().any(|request| request.connection == connection)
    }

    /// A controller is reset: its admin queue stays open, and the reservation commands on it end
    /// without a response.
    pub(crate) fn abort_all_of(&mut self, connection: ConnectionId) {
        for request in self.slots.values_mut() {
            request.is_aborted |= request.connection == connection;
        }
    }

    /// A command has ended on one of its namespaces. Returns it after the last of them, unless it
    /// was aborted.
    pub(super) fn end_one(
        &mut self,
        key: ReservationRequestKey,
        status: Result<(), StatusCode>,
    ) -> Option<EndedRequest> {
        let request = self.slots.get_mut(key).expect("a request ends once on each namespace");
        request.left -= 1;
        request.status = request.status.and(status);
        if request.left > 0 {
            return None;
        }
        // The fence would complete a request of another host in this slot.
        assert!(self.fences.iter().all(|fence| fence.request != key), "a request ends after its preemption");
        let ended = self.slots.remove(key).expect("the request was just found");
        let ReservationRequest { connection, entry, status, is_aborted, .. } = ended;
        (!is_aborted).then_some(EndedRequest { connection, entry, status })
    }

    /// A preemption waits for commands at devices.
    pub(super) fn wait_for(&mut self, request: ReservationRequestKey, commands: BTreeSet<CommandKey>) {
        assert!(!commands.is_empty(), "nothing would end the wait for no command");
        self.fences.push(Fence { request, waits_for: commands });
    }

    /// How many preemptions wait.
    pub(super) fn fences(&self) -> usize {
        self.fences.len()
    }

    /// A device has completed a command: preemptions do not wait for it any more.
    #[inline]
    pub(super) fn pass(&mut self, command: CommandKey) {
        for fence in &mut self.fences {
            fence.waits_for.remove(&command);
        }
    }

    /// A preemption that waits for nothing any more.
    #[inline]
    pub(super) fn pop_passed(&mut self) -> Option<ReservationRequestKey> {
        let over = self.fences.iter().position(|fence| fence.waits_for.is_empty())?;
        Some(self.fences.remove(over).request)
    }

    /// `on_namespaces`: the requests that wait on a namespace, once for each.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(
        &self,
        on_namespaces: impl Iterator<Item = ReservationRequestKey>,
        is_at_device: impl Fn(CommandKey) -> bool,
    ) {
        assert!(self.slots.len() <= RESERVATION_REQUESTS_MAX, "reservation commands are within their limit");
        assert!(self.fences.len() <= FENCES_MAX, "preemptions that wait are within their limit");
        let waiting: Vec<_> = on_namespaces.chain(self.fences.iter().map(|fence| fence.request)).collect();
        for (key, request) in self.slots.iter() {
            let count = waiting.iter().filter(|&&other| other == key).count();
            assert_eq!(request.left, count, "a request waits on as many namespaces as it counts");
        }
        assert!(waiting.iter().all(|&key| self.slots.get(key).is_some()), "a waiting change has a request");
        for fence in &self.fences {
            assert!(!fence.waits_for.is_empty(), "a preemption that waits for no command has completed");
            assert!(
                fence.waits_for.iter().all(|&command| is_at_device(command)),
                "a preemption waits for commands at devices"
            );
        }
    }
}
