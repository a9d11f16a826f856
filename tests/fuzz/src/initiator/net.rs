//! The environment of an initiator and a target: connections, devices, and the attacker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use zonda_initiator::{Discovery, Effect, Initiator, InitiatorConfig, QueueId, State};
use zonda_target::{ConnectionId, DeviceKey, Effect as TargetEffect, Target};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Command, CommandId, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Operation, PayloadKind, ZoneIndex,
    ZoneState,
};

use crate::target::exports::{config, geometries};

/// Effects of one event: many times more than the small testbed can cause.
const EFFECTS_MAX: usize = 100_000;
/// Bytes of one Send: a queue's worth of the longest transfers would be less.
const SEND_BYTES_MAX: usize = 4 << 20;
/// Longer than every timer.
const VERY_LONG: Duration = Duration::from_secs(2 * 3600);

/// An attack on the bytes from the target at one position.
pub(super) enum Attack {
    Set(u8),
    Flip(u8),
    Number([u8; 8]),
    Insert(Vec<u8>),
    Drop(usize),
    Repeat(usize),
    Cut,
}

pub(super) enum Machine {
    Initiator(Box<Initiator>),
    Discovery(Box<Discovery>),
}

pub(super) struct Net {
    machine: Machine,
    target: Target,
    devices: Vec<ReferenceDevice>,
    now: Instant,
    /// The open connection of each queue.
    links: BTreeMap<QueueId, ConnectionId>,
    /// Chunks in transit from the target.
    to_machine: VecDeque<(ConnectionId, Bytes)>,
    to_target: VecDeque<(ConnectionId, Bytes)>,
    /// Each after so many bytes from the previous one, in order.
    pub(super) attacks: Vec<(usize, Attack)>,
    held: VecDeque<(DeviceKey, Command)>,
    pub(super) hold: bool,
    /// Connections are refused.
    pub(super) refuse: bool,
    submitted: BTreeSet<CommandId>,
    next_command: u64,
    pub(super) succeeded: u32,
}

impl Machine {
    pub(super) fn discovery(config: InitiatorConfig) -> Machine {
        Machine::Discovery(Box::new(Discovery::new(config)))
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Machine::Initiator(initiator) => initiator.poll_effect(),
            Machine::Discovery(discovery) => discovery.poll_effect(),
        }
    }

    fn on_bytes(&mut self, now: Instant, queue: QueueId, chunk: Bytes) {
        match self {
            Machine::Initiator(initiator) => initiator.on_bytes(now, queue, chunk),
            Machine::Discovery(discovery) => discovery.on_bytes(now, queue, chunk),
        }
    }

    fn on_connect(&mut self, now: Instant, queue: QueueId) {
        match self {
            Machine::Initiator(initiator) => initiator.on_connect(now, queue),
            Machine::Discovery(discovery) => discovery.on_connect(now, queue),
        }
    }

    fn on_disconnect(&mut self, now: Instant, queue: QueueId) {
        match self {
            Machine::Initiator(initiator) => initiator.on_disconnect(now, queue, "the connection was cut"),
            Machine::Discovery(discovery) => discovery.on_disconnect(now, queue, "the connection was cut"),
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match self {
            Machine::Initiator(initiator) => initiator.on_timeout(now),
            Machine::Discovery(discovery) => discovery.on_timeout(now),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Initiator(initiator) => initiator.next_timeout(),
            Machine::Discovery(discovery) => discovery.next_timeout(),
        }
    }
}

impl Net {
    pub(super) fn new(machine: Machine, seed: [u8; 32]) -> Net {
        Net {
            machine,
            target: Target::new(config(seed)).expect("a configuration that can be served"),
            devices: geometries().map(|geometry| ReferenceDevice::new(geometry, PayloadKind::Bytes)).into(),
            now: Instant(1_000_000),
            links: BTreeMap::new(),
            to_machine: VecDeque::new(),
            to_target: VecDeque::new(),
            attacks: Vec::new(),
            held: VecDeque::new(),
            hold: false,
            refuse: false,
            submitted: BTreeSet::new(),
            next_command: 0,
            succeeded: 0,
        }
    }

    pub(super) fn start(&mut self) {
        match &mut self.machine {
            Machine::Initiator(initiator) => initiator.start(self.now),
            Machine::Discovery(discovery) => discovery.start(self.now),
        }
        self.run_until_idle();
    }

    /// Restarts the initiator, if it has ended.
    pub(super) fn start_again(&mut self) {
        if let Machine::Initiator(initiator) = &mut self.machine
            && matches!(initiator.state(), State::Failed(_) | State::Closed)
        {
            initiator.start(self.now);
        }
        self.run_until_idle();
    }

    pub(super) fn geometry(&self) -> Option<Geometry> {
        match &self.machine {
            Machine::Initiator(initiator) => initiator.geometry().cloned(),
            Machine::Discovery(_) => None,
        }
    }

    /// The state, for messages.
    #[cfg(test)]
    pub(super) fn description(&self) -> String {
        match &self.machine {
            Machine::Initiator(initiator) => format!("{:?}", initiator.state()),
            Machine::Discovery(discovery) => format!("{:?} {:?}", discovery.step(), discovery.result()),
        }
    }

    pub(super) fn submit(&mut self, operation: Operation) {
        let Machine::Initiator(initiator) = &mut self.machine else { return };
        self.next_command += 1;
        let id = CommandId(self.next_command);
        let command = Command::new(id, NamespaceId::FIRST, operation);
        if initiator.submit(self.now, command).is_ok() {
            self.submitted.insert(id);
        }
        self.run_until_idle();
    }

    pub(super) fn until_timeout(&self) -> Duration {
        let due = self.machine.next_timeout().unwrap_or(self.now);
        if due > self.now { due.since(self.now) } else { Duration::ZERO }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now += span;
        self.machine.on_timeout(self.now);
        self.target.on_timeout(self.now);
        self.run_until_idle();
    }

    pub(super) fn release(&mut self, most: usize, newest_first: bool) {
        for _ in 0..most.min(self.held.len()) {
            let next = if newest_first { self.held.pop_back() } else { self.held.pop_front() };
            let Some((device, command)) = next else { break };
            self.complete(device, &command);
            self.run_until_idle();
        }
    }

    /// The attacker sends forged bytes as the target.
    pub(super) fn inject(&mut self, queue: usize, bytes: Vec<u8>) {
        if let Some(queue) = self.queue(queue) {
            self.machine.on_bytes(self.now, queue, bytes.into());
            self.run_until_idle();
        }
    }

    pub(super) fn disconnect(&mut self, queue: usize) {
        if let Some(queue) = self.queue(queue) {
            self.cut(queue);
            self.run_until_idle();
        }
    }

    pub(super) fn degrade(&mut self, which: u8) {
        let state = if which & 0x80 == 0 { ZoneState::ReadOnly } else { ZoneState::Offline };
        self.devices[0].degrade(ZoneIndex(u32::from(which & 7)), state);
        self.target.on_zones_changed(self.now, DeviceKey(0));
        self.run_until_idle();
    }

    pub(super) fn shutdown(&mut self) {
        if let Machine::Initiator(initiator) = &mut self.machine {
            initiator.shutdown(self.now);
        }
        self.run_until_idle();
    }

    /// Ends the run: every submitted command has completed once.
    pub(super) fn finish(mut self) {
        self.refuse = true;
        while let Some(queue) = self.queue(0) {
            self.cut(queue);
        }
        self.run_until_idle();
        self.pass(VERY_LONG);
        self.shutdown();
        assert!(self.submitted.is_empty(), "every command completes: {:?}", self.submitted);
        match &self.machine {
            Machine::Initiator(initiator) => assert_eq!(initiator.outstanding(), 0),
            Machine::Discovery(discovery) => assert!(discovery.result().is_some(), "a discovery has a result"),
        }
        assert_eq!(self.machine.next_timeout(), None, "no timeout is left");
    }

    fn queue(&self, place: usize) -> Option<QueueId> {
        let queues = self.links.keys();
        queues.copied().nth(place % self.links.len().max(1))
    }

    fn queue_of(&self, connection: ConnectionId) -> Option<QueueId> {
        self.links.iter().find(|(_, known)| **known == connection).map(|(queue, _)| *queue)
    }

    /// Cuts the connection of a queue, for both sides.
    fn cut(&mut self, queue: QueueId) {
        if let Some(connection) = self.links.remove(&queue) {
            self.target.on_disconnect(self.now, connection);
            self.machine.on_disconnect(self.now, queue);
        }
    }

    /// Executes all effects of both sides until there are none left.
    fn run_until_idle(&mut self) {
        let mut effects = 0;
        loop {
            self.check();
            effects += 1;
            assert!(effects < EFFECTS_MAX, "the number of effects is bounded");
            if let Some(effect) = self.machine.poll_effect() {
                self.execute_effect(effect);
            } else if let Some(effect) = self.target.poll_effect() {
                self.execute_target_effect(effect);
            } else if let Some((connection, chunk)) = self.to_target.pop_front() {
                self.target.on_bytes(self.now, connection, chunk);
            } else if let Some((connection, chunk)) = self.to_machine.pop_front() {
                self.forward(connection, chunk);
            } else {
                break;
            }
        }
        self.take_completions();
    }

    fn check(&mut self) {
        if let Machine::Initiator(initiator) = &self.machine {
            initiator.check_invariants();
            assert!(initiator.outstanding() <= 64, "{} commands are outstanding", initiator.outstanding());
        }
        self.target.check_invariants();
    }

    fn take_completions(&mut self) {
        let Machine::Initiator(initiator) = &mut self.machine else { return };
        let mut completions = CompletionQueue::new();
        initiator.poll(self.now, &mut completions);
        while let Some(completion) = completions.pop() {
            assert!(
                self.submitted.remove(&completion.id),
                "{:?} completes once, after it was submitted",
                completion.id
            );
            self.succeeded += u32::from(completion.status.is_success());
        }
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Connect { queue } => {
                assert!(!self.links.contains_key(&queue), "a queue has one connection");
                let connection = if self.refuse { None } else { self.target.on_connect(self.now, 0, "192.0.2.9:5000") };
                match connection {
                    None => self.machine.on_disconnect(self.now, queue),
                    Some(connection) => {
                        self.links.insert(queue, connection);
                        self.machine.on_connect(self.now, queue);
                    }
                }
            }
            Effect::Send { queue, pieces } => {
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                assert!((1..=SEND_BYTES_MAX).contains(&bytes), "{bytes} bytes at once");
                if let Some(&connection) = self.links.get(&queue) {
                    self.to_target.extend(pieces.into_iter().map(|piece| (connection, piece)));
                }
            }
            Effect::Close { queue } => {
                // Bytes sent before are delivered.
                if let Some(connection) = self.links.remove(&queue) {
                    let (last, rest) = std::mem::take(&mut self.to_target)
                        .into_iter()
                        .partition::<VecDeque<_>, _>(|(known, _)| *known == connection);
                    self.to_target = rest;
                    for (_, chunk) in last {
                        self.target.on_bytes(self.now, connection, chunk);
                    }
                    self.target.on_disconnect(self.now, connection);
                }
            }
            Effect::Event(event) => assert!(!event.to_string().is_empty()),
        }
    }

    fn execute_target_effect(&mut self, effect: TargetEffect) {
        match effect {
            TargetEffect::Send { connection, pieces } => {
                let bytes = pieces.iter().map(Bytes::len).sum();
                self.to_machine.extend(pieces.into_iter().map(|piece| (connection, piece)));
                self.target.on_sent(self.now, connection, bytes);
            }
            TargetEffect::Close { connection, .. } => {
                // Bytes that the target has sent before are delivered.
                let (last, rest) = std::mem::take(&mut self.to_machine)
                    .into_iter()
                    .partition::<VecDeque<_>, _>(|(known, _)| *known == connection);
                self.to_machine = rest;
                for (_, chunk) in last {
                    self.forward(connection, chunk);
                }
                if let Some(queue) = self.queue_of(connection) {
                    self.cut(queue);
                }
            }
            TargetEffect::SaveReservations { device, .. } => self.target.on_reservations_saved(self.now, device, true),
            TargetEffect::Authenticate { connection } => {
                if let Some(step) = self.target.auth_step(connection) {
                    self.target.on_authenticated(self.now, step.run());
                }
            }
            TargetEffect::Submit { device, command, .. } => {
                if self.hold {
                    self.held.push_back((device, command));
                } else {
                    self.complete(device, &command);
                }
            }
            TargetEffect::Pause { .. }
            | TargetEffect::Resume { .. }
            | TargetEffect::Abandon { .. }
            | TargetEffect::Event(_) => {}
            TargetEffect::NamespaceRemoved { .. } => unreachable!("no namespace is removed"),
        }
    }

    /// Delivers a chunk to the initiator, with the attacks that are due.
    fn forward(&mut self, connection: ConnectionId, mut chunk: Bytes) {
        while let Some((gap, _)) = self.attacks.first()
            && *gap < chunk.len()
        {
            let (gap, attack) = self.attacks.remove(0);
            let mut before = chunk.split_to(gap).to_vec();
            match attack {
                Attack::Set(value) => {
                    before.push(value);
                    chunk = chunk.slice(1..);
                }
                Attack::Flip(value) => {
                    before.push(chunk[0] ^ value);
                    chunk = chunk.slice(1..);
                }
                Attack::Number(number) => {
                    let length = chunk.len().min(8);
                    before.extend_from_slice(&number[..length]);
                    chunk = chunk.slice(length..);
                }
                Attack::Insert(bytes) => before.extend_from_slice(&bytes),
                Attack::Drop(length) => chunk = chunk.slice(length.min(chunk.len())..),
                Attack::Repeat(length) => before.extend_from_slice(&chunk[..length.min(chunk.len())]),
                Attack::Cut => {
                    self.deliver(connection, before.into());
                    if let Some(queue) = self.queue_of(connection) {
                        self.cut(queue);
                    }
                    return;
                }
            }
            self.deliver(connection, before.into());
        }
        if let Some((gap, _)) = self.attacks.first_mut() {
            *gap -= chunk.len();
        }
        self.deliver(connection, chunk);
    }

    fn deliver(&mut self, connection: ConnectionId, chunk: Bytes) {
        if let Some(queue) = self.queue_of(connection) {
            self.machine.on_bytes(self.now, queue, chunk);
        }
    }

    fn complete(&mut self, device: DeviceKey, command: &Command) {
        let completion = self.devices[device.0 as usize].execute(command);
        self.target.on_completion(self.now, device, completion);
    }
}
