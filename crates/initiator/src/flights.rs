//! Commands of the user: accepted, held while earlier commands conflict, sent, completed.

use std::collections::VecDeque;

use zonda_zoned::{Command, CommandId, Completion, Instant, Key, NamespaceId, Outcome, QueueFull, Slab, Status};

use crate::Initiator;
use crate::io::{Begin, Next, Wire, Work};
use crate::order::{Access, Kind};
use crate::queue::{CommandData, Ended, Owner};
use crate::state::State;

/// Slots of the admin queue that are reserved for keep alive, events and other commands of the
/// initiator.
const ADMIN_RESERVE: usize = 8;

/// A command of the user.
#[derive(Debug)]
pub(crate) struct Flight {
    id: CommandId,
    work: Work,
    access: Access,
    /// All its data has been sent.
    is_data_sent: bool,
    /// While it is held: the command to send.
    wire: Option<Box<Wire>>,
}

/// Owns the outstanding commands of the user.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// The commands that the I/O queues of the present connection can hold.
    capacity: usize,
    table: Slab<Flight>,
    /// Held commands, in the order of submission.
    held: VecDeque<Key<Flight>>,
}

impl Flights {
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        assert_eq!(self.len(), 0, "the table is empty before every connection");
        self.capacity = capacity;
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Removes all commands; returns whether each was sent.
    pub(crate) fn take_all(&mut self) -> Vec<(CommandId, bool)> {
        self.held.clear();
        let flights = std::mem::take(&mut self.table);
        flights.iter().map(|(_, flight)| (flight.id, flight.wire.is_none())).collect()
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.len() <= self.capacity, "the queues can hold every outstanding command");
        let unsent = self.table.iter().filter(|(_, flight)| flight.wire.is_some()).count();
        assert_eq!(unsent, self.held.len(), "a flight with an unsent command is held");
        assert!(self.held.iter().all(|&held| self.table[held].wire.is_some()), "a held flight has it still");
    }

    fn insert(&mut self, flight: Flight) -> Key<Flight> {
        assert!(self.len() < self.capacity, "a command is refused while the queues can hold no more");
        self.table.insert(flight)
    }

    /// Adds a flight behind the held ones, with the command to send later.
    fn hold(&mut self, key: Key<Flight>, wire: Wire) {
        let before = self.table[key].wire.replace(Box::new(wire));
        assert!(before.is_none(), "a flight is held once");
        self.held.push_back(key);
    }
}

impl Initiator {
    /// Submits a command. Without a connection it completes at once with
    /// [`Status::NamespaceNotReady`].
    ///
    /// # Errors
    /// [`QueueFull`] returns the command if as many are outstanding as the queues can hold.
    pub fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.flights.len() + self.completions.len() >= self.flights.capacity.max(1) {
            return Err(QueueFull(command));
        }
        if command.namespace != NamespaceId::FIRST {
            self.answer(command.id, Status::InvalidNamespace, Outcome::None);
            return Ok(());
        }
        let (State::Ready, Some(namespace), Some(lanes)) = (&self.state, &self.namespace, &self.lanes) else {
            self.answer(command.id, Status::NamespaceNotReady, Outcome::None);
            return Ok(());
        };
        match namespace.begin(&command.operation) {
            Begin::Answer(status, outcome) => self.answer(command.id, status, outcome),
            Begin::Send { work, wire, lasting } => {
                let access = lanes.access_of(&command.operation);
                let access = if lasting { lanes.lasting(access) } else { access };
                let flight = Flight { id: command.id, work, access, is_data_sent: true, wire: None };
                let key = self.flights.insert(flight);
                if self.may_send(&access, &wire.1) {
                    self.send_first(now, key, wire);
                } else {
                    self.statistics.held += 1;
                    self.hold(key, wire);
                }
            }
        }
        Ok(())
    }

    /// All data of a write has been sent: other commands may follow.
    pub(crate) fn data_sent(&mut self, key: Key<Flight>) {
        let flight = &mut self.flights.table[key];
        if !std::mem::replace(&mut flight.is_data_sent, true) {
            let access = flight.access;
            self.lanes.as_mut().expect("commands are accepted").data_sent(&access);
        }
    }

    /// A command of a flight has completed.
    pub(crate) fn flight_ended(&mut self, now: Instant, key: Key<Flight>, ended: Ended) {
        let namespace = self.namespace.as_ref().expect("commands are accepted");
        let flight = &mut self.flights.table[key];
        assert!(flight.wire.is_none(), "a held flight has no command in flight that could complete");
        match namespace.ended(&mut flight.work, ended) {
            Next::Send((entry, data)) => {
                let queue = queue_of(&flight.access);
                self.queues[queue].submit(now, Owner::Flight(key), entry, data);
            }
            Next::Done(status, outcome) => {
                let flight = self.flights.table.remove(key);
                self.lanes.as_mut().expect("commands are accepted").end(&flight.access, flight.is_data_sent);
                if status == Status::ReservationConflict {
                    self.report_conflict(now);
                }
                self.answer(flight.id, status, outcome);
            }
        }
    }

    /// Sends the held commands that do not conflict any more.
    pub(crate) fn send_held(&mut self, now: Instant) {
        if self.flights.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.flights.held);
        let accesses = held.iter().map(|&key| self.flights.table[key].access);
        self.lanes.as_mut().expect("commands are accepted").clear_held(accesses);
        for key in held {
            let flight = &mut self.flights.table[key];
            let access = flight.access;
            let wire = flight.wire.take().expect("a held flight has a command to send");
            if self.may_send(&access, &wire.1) {
                self.send_first(now, key, *wire);
            } else {
                self.hold(key, *wire);
            }
        }
    }

    #[inline]
    fn may_send(&self, access: &Access, data: &CommandData) -> bool {
        let index = queue_of(access);
        let queue = &self.queues[index];
        let reserve = if index == 0 { ADMIN_RESERVE } else { 0 };
        let is_solicited = matches!(data, CommandData::FromHost(data) if !queue.fits_capsule(data));
        let lanes = self.lanes.as_ref().expect("commands are accepted");
        queue.is_open()
            && queue.outstanding() + reserve < usize::from(queue.depth())
            && lanes.may_start(access, is_solicited, queue.has_unsent())
    }

    #[inline]
    fn send_first(&mut self, now: Instant, key: Key<Flight>, (entry, data): Wire) {
        let flight = &mut self.flights.table[key];
        let access = flight.access;
        let is_data_sent = self.queues[queue_of(&access)].submit(now, Owner::Flight(key), entry, data);
        flight.is_data_sent = is_data_sent;
        self.lanes.as_mut().expect("commands are accepted").start(&access, is_data_sent);
        if self.scan_at.is_none() {
            self.scan_at = Some(now + self.config.command_timeout);
        }
    }

    fn hold(&mut self, key: Key<Flight>, wire: Wire) {
        self.flights.hold(key, wire);
        let access = self.flights.table[key].access;
        self.lanes.as_mut().expect("commands are accepted").hold(&access);
    }

    #[inline]
    fn answer(&mut self, id: CommandId, status: Status, outcome: Outcome) {
        self.statistics.commands += 1;
        self.statistics.errors += u64::from(!status.is_success());
        self.completions.push(Completion { id, status, outcome });
    }
}

/// The Changed Zone List is read over the admin queue, everything else over I/O queues.
#[inline]
fn queue_of(access: &Access) -> usize {
    if access.kind == Kind::Apart { 0 } else { usize::from(access.queue) + 1 }
}
