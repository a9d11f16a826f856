//! Persist Through Power Loss (NVMe Base 2.0, section 8.19): changes of reservations that wait
//! until they are durable.
//!
//! A change of a namespace that persists its reservations is applied to a copy, and the device
//! saves the copy. Only then does the copy become visible to all hosts, together with its
//! notifications and the completion of the command. Until then nothing has changed, and later
//! reservation commands for the namespace wait. If the device fails to save the copy, the
//! reservations stay unchanged, and the command fails with Write Fault.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nvme::log::ReservationNotice;
use zonda_nvme::reservation::{AcquireAction, PersistChange, ReservationCommand, ReservationKeys};
use zonda_nvme::{HostId, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::requests::{EndedRequest, ReservationRequestKey};
use super::table::{Changes, Reservations};
use crate::connection::receive::Answer;
use crate::effects::{ConnectionId, Effect};
use crate::limits::FENCES_MAX;
use crate::subsystems::{Namespace, NamespaceIndex};
use crate::target::Target;
use crate::{DeviceKey, TargetConfigError};

/// The state of persistence of a namespace's reservations.
#[derive(Debug, Default)]
pub(crate) struct Persistence {
    /// The device can save reservations.
    pub(crate) is_possible: bool,
    /// The change that the device is saving.
    change: Option<Change>,
    /// Commands that were received meanwhile, or while the namespace is paused, in order.
    waiting: VecDeque<(ReservationRequestKey, ReservationAction)>,
    /// The last save has failed, so after a crash the device may restore the state before or after
    /// it. The next change is saved even if it changes nothing.
    is_in_doubt: bool,
}

#[derive(Debug)]
struct Change {
    next: Reservations,
    notices: Vec<(HostId, ReservationNotice)>,
    request: ReservationRequestKey,
    /// The host of a preempt and abort, which completes after the outstanding commands of all other
    /// hosts.
    fences: Option<HostId>,
}

/// The action of a command on the reservations of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReservationAction {
    Command {
        command: ReservationCommand,
        keys: ReservationKeys,
        host: HostId,
    },
    /// Set Features: the Persist Through Power Loss state.
    Persist(bool),
}

impl Persistence {
    /// The requests that wait until an earlier change is saved, or the namespace is resumed.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = ReservationRequestKey> + '_ {
        self.waiting.iter().map(|&(request, _)| request)
    }

    /// Whether the device is saving a change.
    pub(crate) fn is_saving(&self) -> bool {
        self.change.is_some()
    }

    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self, is_paused: bool) {
        assert!(
            self.change.is_some() || is_paused || self.waiting.is_empty(),
            "commands wait only while a change is being saved, or the namespace is paused"
        );
        assert!(
            self.is_possible || (self.change.is_none() && !self.is_in_doubt),
            "only a device that can save reservations has a change in flight or in doubt"
        );
    }

    /// Keys of the requests that are outstanding on this namespace.
    pub(crate) fn requests(&self) -> impl Iterator<Item = ReservationRequestKey> + '_ {
        self.change.iter().map(|change| change.request).chain(self.waiting())
    }
}

impl ReservationAction {
    /// The reservations after the change, and the notifications for other hosts.
    fn apply(&self, before: &Reservations) -> Result<(Reservations, Changes), StatusCode> {
        let mut next = before.clone();
        let changes = match *self {
            ReservationAction::Persist(persists) => {
                next.set_persists(persists);
                Changes::default()
            }
            ReservationAction::Command { command, keys, host } => match command {
                ReservationCommand::Register { action, ignores_key, persist } => {
                    let changes = next.register(host, action, keys, ignores_key)?;
                    match persist {
                        PersistChange::Keep => {}
                        PersistChange::Clear => next.set_persists(false),
                        PersistChange::Set => next.set_persists(true),
                    }
                    changes
                }
                ReservationCommand::Acquire { action, kind } => next.acquire(host, action, kind, keys)?,
                ReservationCommand::Release { action, kind_code } => {
                    next.release(host, action, kind_code, keys.current)?
                }
                ReservationCommand::Report { .. } => unreachable!("a report changes nothing"),
            },
        };
        next.check_invariants();
        Ok((next, changes))
    }

    fn persists(&self) -> bool {
        matches!(
            self,
            ReservationAction::Persist(true)
                | ReservationAction::Command {
                    command: ReservationCommand::Register { persist: PersistChange::Set, .. },
                    ..
                }
        )
    }

    /// The host of a preempt and abort, which completes after the outstanding commands of all other
    /// hosts.
    fn fences(&self) -> Option<HostId> {
        match *self {
            ReservationAction::Command {
                command: ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, .. },
                host,
                ..
            } => Some(host),
            _ => None,
        }
    }
}

/// The initial reservations of a namespace: those that its device has saved.
pub(crate) fn restore(
    saved: Option<&Bytes>,
    is_write_protected: bool,
    subject: impl Fn() -> String,
) -> Result<(Reservations, Persistence), TargetConfigError> {
    let Some(saved) = saved else { return Ok(Default::default()) };
    let mut reservations = Reservations::restore(saved).map_err(|why| TargetConfigError {
        subject: format!("{}, saved reservations of the device", subject()),
        remedy: format!("{why}: use the version of zonda that saved them, or restore the whole image from a backup"),
    })?;
    // A write protected device cannot save changes, so hosts must not see Persist Through Power
    // Loss as enabled.
    let is_possible = !is_write_protected;
    reservations.set_persists(is_possible && reservations.persists());
    Ok((reservations, Persistence { is_possible, ..Persistence::default() }))
}

impl Target {
    /// A device has saved the bytes of [`Effect::SaveReservations`] durably, or has failed to
    /// (`saved` is false).
    ///
    /// # Panics
    /// If the device has no save in flight.
    pub fn on_reservations_saved(&mut self, now: Instant, device: DeviceKey, saved: bool) {
        let is_saving = |it: &Namespace| it.config().device == device && it.persistence.is_saving();
        let place = self.subsystems.namespaces().find(|(_, it)| is_saving(it)).map(|(place, _)| place);
        let place = place.expect("a device saves only what was requested");
        let change = self.subsystems.namespace_mut(place).persistence.change.take().expect("the change was just found");
        self.subsystems.namespace_mut(place).persistence.is_in_doubt = !saved;
        let mut ended = vec![self.reservation_requests.connection_of(change.request)];
        if saved {
            self.subsystems.note_saved(device, || change.next.to_saved().into());
            self.install(place, change);
        } else {
            self.complete_request(change.request, Err(StatusCode::WRITE_FAULT));
        }
        ended.extend(self.begin_waiting(place));
        self.close_drained(now, ended);
        self.finish_removal(place);
    }

    /// A namespace was resumed: its reservation commands have waited.
    pub(crate) fn continue_reservations(&mut self, now: Instant, place: NamespaceIndex) {
        let ended = self.begin_waiting(place);
        self.close_drained(now, ended);
    }

    /// The namespace was removed, or the target drains: the reservation commands that wait end.
    pub(crate) fn end_waiting_reservations(&mut self, place: NamespaceIndex, status: StatusCode) {
        for (request, _) in std::mem::take(&mut self.subsystems.namespace_mut(place).persistence.waiting) {
            self.complete_request(request, Err(status));
        }
    }

    /// Begins the changes that wait, up to one that the device must save; returns the connections
    /// whose changes have begun or ended.
    fn begin_waiting(&mut self, place: NamespaceIndex) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        while self.subsystems.namespace(place).may_change_reservations()
            && let Some((request, action)) = self.subsystems.namespace_mut(place).persistence.waiting.pop_front()
        {
            let connection = self.reservation_requests.connection_of(request);
            ended.push(connection);
            let is_aborted = self.reservation_requests.is_aborted(request);
            if self.connections.get(connection).is_some() && !is_aborted {
                self.begin_change(place, request, action);
            } else {
                // Changes that had not begun when their queue was closed are dropped.
                self.complete_request(request, Err(StatusCode::ABORT_REQUESTED));
            }
        }
        ended
    }

    /// Changes the reservations of namespaces, now or after the commands that wait, and completes
    /// after the last of them.
    pub(super) fn change_reservations(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionEntry,
        places: &[NamespaceIndex],
        action: ReservationAction,
    ) -> Result<Answer, StatusCode> {
        if action.persists() && !places.iter().all(|&place| self.subsystems.namespace(place).persistence.is_possible) {
            return Err(StatusCode::INVALID_FIELD);
        }
        // One more than the namespaces, removed once all have begun or are queued.
        let request = self.reservation_requests.insert(connection, entry, places.len() + 1);
        let request = request.ok_or(StatusCode::COMMAND_INTERRUPTED)?;
        for &place in places {
            if self.subsystems.namespace(place).may_change_reservations() {
                self.begin_change(place, request, action);
            } else {
                self.subsystems.namespace_mut(place).persistence.waiting.push_back((request, action));
            }
        }
        self.complete_request(request, Ok(()));
        Ok(Answer::Later)
    }

    /// Sets the Persist Through Power Loss state of namespaces whose devices can save reservations.
    pub(crate) fn persist_reservations(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionEntry,
        places: &[NamespaceIndex],
        persists: bool,
    ) -> Result<Answer, StatusCode> {
        self.change_reservations(connection, entry, places, ReservationAction::Persist(persists))
    }

    /// Closes those of these connections that drain and are idle.
    pub(super) fn close_drained(&mut self, now: Instant, connections: Vec<ConnectionId>) {
        for connection in connections {
            if self.is_draining(connection) {
                self.close_if_idle(now, connection);
            }
        }
    }

    fn begin_change(&mut self, place: NamespaceIndex, request: ReservationRequestKey, action: ReservationAction) {
        let fences = action.fences();
        let namespace = self.subsystems.namespace(place);
        let (next, changes) = match action.apply(namespace.reservations()) {
            Ok(_) if fences.is_some() && self.fences_and_saving() >= FENCES_MAX => {
                return self.complete_request(request, Err(StatusCode::COMMAND_INTERRUPTED));
            }
            Ok(changed) => changed,
            Err(status) => return self.complete_request(request, Err(status)),
        };
        let saved = next.to_saved();
        let (before, in_doubt) = (namespace.reservations().to_saved(), namespace.persistence.is_in_doubt);
        let must_wait = saved != before || in_doubt;
        let change = Change { next, notices: changes.notices, request, fences };
        if must_wait {
            let device = namespace.config().device;
            self.subsystems.namespace_mut(place).persistence.change = Some(change);
            self.effects.push_back(Effect::SaveReservations { device, bytes: Bytes::from(saved) });
        } else {
            self.install(place, change);
        }
    }

    /// Makes a change visible to all hosts at once.
    fn install(&mut self, place: NamespaceIndex, change: Change) {
        let Change { next, notices, request, fences } = change;
        self.subsystems.set_reservations(place, next);
        self.notify_of_reservations(place, &notices);
        match fences {
            Some(host) => self.fence(request, place, host),
            None => self.complete_request(request, Ok(())),
        }
    }

    /// The number of preemptions that wait for commands of other hosts, or will once they are
    /// saved.
    fn fences_and_saving(&self) -> usize {
        let fences = |it: &Namespace| it.persistence.change.as_ref().is_some_and(|it| it.fences.is_some());
        self.reservation_requests.fences() + self.subsystems.namespaces().filter(|(_, it)| fences(it)).count()
    }

    /// A command has ended on one of its namespaces; it completes after the last of them.
    pub(super) fn complete_request(&mut self, key: ReservationRequestKey, status: Result<(), StatusCode>) {
        let Some(EndedRequest { connection, entry, status }) = self.reservation_requests.end_one(key, status) else {
            return;
        };
        match status {
            // A disconnected host gets no response.
            Ok(()) => self.respond(connection, entry.command_id.get(), StatusCode::SUCCESS, 0),
            Err(status) => self.refuse(connection, &entry, status),
        }
    }
}
