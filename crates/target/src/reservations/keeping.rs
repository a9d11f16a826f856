//! Persist Through Power Loss (NVMe Base 2.0, section 8.19): changes of reservations that wait until they are durable.
//!
//! A change of a namespace that keeps its reservations is carried out on a copy, the device is asked to keep that, and only then
//! does it take the place of what all hosts see: together with its notifications and the answer. Until then nothing has
//! changed, and the next commands about the namespace's reservations wait their turn. A device that could not keep it leaves
//! everything as it was; the command ends with Write Fault.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nvme::log::ReservationNotice;
use zonda_nvme::reservation::{AcquireAction, PersistChange, ReservationCommand, ReservationKeys};
use zonda_nvme::{HostId, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::table::{Changes, Reservations};
use crate::connection::receive::Answer;
use crate::effects::{ConnectionId, Effect};
use crate::limits::{FENCES_MAX, RESERVATION_ASKS_MAX};
use crate::target::Target;
use crate::{DeviceKey, TargetConfig, TargetConfigError};

/// Whether and how far a namespace keeps its reservations.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The device can keep them.
    pub(crate) is_possible: bool,
    /// The device has been asked to keep it.
    change: Option<Change>,
    /// Commands that came meanwhile, in their order.
    waiting: VecDeque<(u64, Wanted)>,
    /// A change has failed, and since then none has succeeded: what the device would bring up after a crash may be either. The next change is kept even if it changes nothing.
    is_in_doubt: bool,
}

#[derive(Debug)]
struct Change {
    next: Reservations,
    notices: Vec<(HostId, ReservationNotice)>,
    /// Whose it is.
    ask: u64,
    /// The host whose answer then waits for the commands of all others.
    fences: Option<HostId>,
}

/// A command about reservations that has not been answered.
#[derive(Debug)]
pub(crate) struct Ask {
    connection: ConnectionId,
    entry: SubmissionEntry,
    /// Namespaces where it has not ended.
    left: usize,
    /// The first that went wrong.
    status: Result<(), StatusCode>,
    /// Its controller was reset: it is not answered, and what has not begun never does.
    is_aborted: bool,
}

/// What a command does to the reservations of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Command {
        command: ReservationCommand,
        keys: ReservationKeys,
        host: HostId,
    },
    /// Set Features: the Persist Through Power Loss state.
    Persist(bool),
}

impl Keeping {
    /// # Panics
    /// When something does not hold.
    pub(crate) fn check_invariants(&self) {
        assert!(self.change.is_some() || self.waiting.is_empty(), "a command waits only for another one");
        assert!(self.is_possible || (self.change.is_none() && !self.is_in_doubt), "a device keeps what it can");
    }

    /// Commands of hosts that have not ended here.
    pub(crate) fn asks(&self) -> impl Iterator<Item = u64> + '_ {
        self.change.iter().map(|change| change.ask).chain(self.waiting.iter().map(|&(ask, _)| ask))
    }
}

impl Ask {
    /// On how many namespaces it has not ended.
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}

impl Wanted {
    /// The reservations with the change, and what others have to hear of it.
    fn carry_out(&self, before: &Reservations) -> Result<(Reservations, Changes), StatusCode> {
        let mut next = before.clone();
        let changes = match *self {
            Wanted::Persist(persists) => {
                next.set_persists(persists);
                Changes::default()
            }
            Wanted::Command { command, keys, host } => match command {
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
            Wanted::Persist(true)
                | Wanted::Command { command: ReservationCommand::Register { persist: PersistChange::Set, .. }, .. }
        )
    }

    /// The host whose answer waits for the commands of all others.
    fn fences(&self) -> Option<HostId> {
        match *self {
            Wanted::Command {
                command: ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, .. },
                host,
                ..
            } => Some(host),
            _ => None,
        }
    }
}

/// What a namespace starts with: what its device has kept.
pub(crate) fn restore(
    config: &TargetConfig,
    device: DeviceKey,
    subject: impl Fn() -> String,
) -> Result<(Reservations, Keeping), TargetConfigError> {
    let Some(kept) = config.kept_reservations.get(&device) else { return Ok(Default::default()) };
    let mut reservations = Reservations::restore(kept).map_err(|why| TargetConfigError {
        subject: format!("{}, reservations that the device has kept", subject()),
        remedy: format!("{why}: serve it with the zonda that wrote them, or bring the whole image back from a copy"),
    })?;
    // What cannot be written keeps no change, and a host must not believe that it does.
    let is_possible = !config.write_protected.contains(&device);
    reservations.set_persists(is_possible && reservations.persists());
    Ok((reservations, Keeping { is_possible, ..Keeping::default() }))
}

impl Target {
    /// A device has kept what [`Effect::KeepReservations`] asked for, durably; or could not.
    ///
    /// # Panics
    /// When the device was not asked.
    pub fn reservations_kept(&mut self, now: Instant, device: DeviceKey, kept: bool) {
        let is_asked = |it: &crate::target::Namespace| it.device == device && it.keeping.change.is_some();
        let place = self.namespaces.iter().position(is_asked).expect("a device keeps what it was given") as u32;
        let change = self.namespaces[place as usize].keeping.change.take().expect("the change was just here");
        self.namespaces[place as usize].keeping.is_in_doubt = !kept;
        let mut ended = vec![self.connection_of(change.ask)];
        if kept {
            self.install(place, change);
        } else {
            self.end_ask(change.ask, Err(StatusCode::WRITE_FAULT));
        }
        while self.namespaces[place as usize].keeping.change.is_none()
            && let Some((ask, wanted)) = self.namespaces[place as usize].keeping.waiting.pop_front()
        {
            let connection = self.connection_of(ask);
            ended.push(connection);
            let is_aborted = self.asks.get(ask).is_some_and(|ask| ask.is_aborted);
            if self.connections.get(connection.0).is_some() && !is_aborted {
                self.begin_change(place, ask, wanted);
            } else {
                // What had not begun when its queue ended never does.
                self.end_ask(ask, Err(StatusCode::ABORT_REQUESTED));
            }
        }
        self.close_drained(now, ended);
    }

    /// Changes the reservations of namespaces, now or in its turn, and answers when all is done.
    pub(super) fn change_reservations(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionEntry,
        places: &[u32],
        wanted: Wanted,
    ) -> Result<Answer, StatusCode> {
        if wanted.persists() && !places.iter().all(|&place| self.namespaces[place as usize].keeping.is_possible) {
            return Err(StatusCode::INVALID_FIELD);
        }
        if self.asks.len() >= RESERVATION_ASKS_MAX {
            return Err(StatusCode::COMMAND_INTERRUPTED);
        }
        // It is one more until all namespaces are on their way.
        let ask = self.asks.insert(Ask {
            connection,
            entry: *entry,
            left: places.len() + 1,
            status: Ok(()),
            is_aborted: false,
        });
        for &place in places {
            let keeping = &mut self.namespaces[place as usize].keeping;
            if keeping.change.is_some() {
                keeping.waiting.push_back((ask, wanted));
            } else {
                self.begin_change(place, ask, wanted);
            }
        }
        self.end_ask(ask, Ok(()));
        Ok(Answer::Later)
    }

    /// Sets the Persist Through Power Loss state of namespaces that can keep their reservations.
    pub(crate) fn persist_reservations(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionEntry,
        places: &[u32],
        persists: bool,
    ) -> Result<Answer, StatusCode> {
        self.change_reservations(connection, entry, places, Wanted::Persist(persists))
    }

    /// A controller is reset: its admin queue stays, and the commands on it end without an answer.
    pub(crate) fn abort_asks(&mut self, id: ConnectionId) {
        for key in self.asks.keys() {
            let ask = self.asks.get_mut(key).expect("the key is of the table");
            ask.is_aborted |= ask.connection == id;
        }
    }

    /// Whether a command of a connection about reservations has not been answered.
    pub(crate) fn has_asked(&self, id: ConnectionId) -> bool {
        self.asks.iter().any(|(_, ask)| ask.connection == id)
    }

    /// While the target drains: closes the connections of these that nothing keeps open any more.
    pub(super) fn close_drained(&mut self, now: Instant, connections: Vec<ConnectionId>) {
        if self.draining {
            connections.into_iter().for_each(|connection| self.close_if_idle(now, connection));
        }
    }

    /// Whose a command is that has not been answered.
    pub(super) fn connection_of(&self, ask: u64) -> ConnectionId {
        self.asks.get(ask).expect("a command that is not answered is in the table").connection
    }

    fn begin_change(&mut self, place: u32, ask: u64, wanted: Wanted) {
        let fences = wanted.fences();
        let namespace = &self.namespaces[place as usize];
        let (next, changes) = match wanted.carry_out(&namespace.reservations) {
            Ok(_) if fences.is_some() && self.fences_and_those_to_come() >= FENCES_MAX => {
                return self.end_ask(ask, Err(StatusCode::COMMAND_INTERRUPTED));
            }
            Ok(changed) => changed,
            Err(status) => return self.end_ask(ask, Err(status)),
        };
        let kept = next.to_kept();
        let (before, in_doubt) = (namespace.reservations.to_kept(), namespace.keeping.is_in_doubt);
        let must_wait = kept != before || in_doubt;
        let change = Change { next, notices: changes.notices, ask, fences };
        if must_wait {
            let device = namespace.device;
            self.namespaces[place as usize].keeping.change = Some(change);
            self.effects.push_back(Effect::KeepReservations { device, bytes: Bytes::from(kept) });
        } else {
            self.install(place, change);
        }
    }

    /// A change takes effect, for all hosts at once.
    fn install(&mut self, place: u32, change: Change) {
        let Change { next, notices, ask, fences } = change;
        self.namespaces[place as usize].reservations = next;
        self.reservation_changes += 1;
        self.notify_of_reservations(place, &notices);
        match fences {
            Some(host) => self.fence(ask, place, host),
            None => self.end_ask(ask, Ok(())),
        }
    }

    /// Preemptions that wait for commands of others, and those that will when they are durable.
    fn fences_and_those_to_come(&self) -> usize {
        let fences = |it: &&crate::target::Namespace| it.keeping.change.as_ref().is_some_and(|it| it.fences.is_some());
        self.fences.len() + self.namespaces.iter().filter(fences).count()
    }

    /// A command has ended on one of its namespaces; it is answered after the last of them.
    pub(super) fn end_ask(&mut self, key: u64, status: Result<(), StatusCode>) {
        let ask = self.asks.get_mut(key).expect("an ask ends once on each namespace");
        ask.left -= 1;
        ask.status = ask.status.and(status);
        if ask.left > 0 {
            return;
        }
        let Ask { connection, entry, status, is_aborted, .. } = self.asks.remove(key).expect("the ask was just here");
        if is_aborted {
            return;
        }
        match status {
            // A host that is gone hears nothing.
            Ok(()) => self.respond(connection, entry.command_id.get(), StatusCode::SUCCESS, 0),
            Err(status) => self.refuse(connection, &entry, status),
        }
    }
}
