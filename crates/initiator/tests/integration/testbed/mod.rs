//! An initiator and a target, connected by pipes that split bytes at random, with an oracle as
//! device.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests, of which each file uses a part")]

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use zonda_initiator::{Effect, Event, Initiator, InitiatorConfig, QueueId, State};
use zonda_nvme::Nqn;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_target::{
    ConnectionId, DeviceKey, HostAccess, NamespaceConfig, Portal, SubsystemConfig, Target, TargetConfig,
};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Command, Completion, CompletionQueue, Duration, Geometry, Instant, NamespaceId, PayloadKind, Prng};

pub const SUBSYSTEM: &str = "nqn.2014-08.org.example:drive";
pub const HOST: &str = "nqn.2014-08.org.example:host";

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub fn host_config() -> InitiatorConfig {
    InitiatorConfig::new(nqn(HOST), nqn(SUBSYSTEM), [7; 32])
}

/// One subsystem with these namespaces, numbered from 1.
pub fn target_config(geometries: &[Geometry], allow: HostAccess) -> TargetConfig {
    let namespaces = geometries
        .iter()
        .enumerate()
        .map(|(i, geometry)| NamespaceConfig {
            id: NamespaceId(i as u32 + 1),
            device: DeviceKey(i as u32),
            device_namespace: NamespaceId::FIRST,
            geometry: geometry.clone(),
            identity: NamespaceIdentity { uuid: Some([i as u8 + 1; 16]), ..NamespaceIdentity::default() },
            volatile_write_cache: true,
        })
        .collect();
    let subsystem = SubsystemConfig {
        nqn: nqn(SUBSYSTEM),
        serial: "1".to_owned(),
        model: "zonda".to_owned(),
        firmware: "1".to_owned(),
        namespaces,
        allow,
    };
    let portals = vec![Portal { address: "192.0.2.1".to_owned(), service: "4420".to_owned() }];
    let mut config = TargetConfig::new(vec![subsystem], portals, [9; 32]);
    config.digests = Digests::BOTH;
    config
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    chunks: VecDeque<Bytes>,
}

impl Pipe {
    /// Takes up to `most` bytes, over several chunks.
    fn take(&mut self, most: usize) -> Bytes {
        let Some(mut first) = self.chunks.pop_front() else { return Bytes::new() };
        if first.len() >= most {
            let rest = first.split_off(most);
            if !rest.is_empty() {
                self.chunks.push_front(rest);
            }
            return first;
        }
        let mut bytes = BytesMut::from(&first[..]);
        while bytes.len() < most
            && let Some(mut next) = self.chunks.pop_front()
        {
            let rest = next.split_off(next.len().min(most - bytes.len()));
            bytes.extend_from_slice(&next);
            if !rest.is_empty() {
                self.chunks.push_front(rest);
            }
        }
        bytes.freeze()
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

struct Wire {
    connection: ConnectionId,
    to_target: Pipe,
    to_host: Pipe,
    is_paused: bool,
    /// The target has closed the connection; the host is notified when it has read all.
    is_closed: bool,
}

/// A paused host, beside the one that the testbed runs; the target's output is queued for it.
struct Host {
    initiator: Initiator,
    wires: BTreeMap<QueueId, Wire>,
    connecting: Vec<QueueId>,
}

pub struct Testbed {
    pub now: Instant,
    pub initiator: Initiator,
    pub target: Option<Target>,
    config: TargetConfig,
    pub devices: Vec<ReferenceDevice>,
    wires: BTreeMap<QueueId, Wire>,
    /// Connections that the initiator has requested.
    connecting: Vec<QueueId>,
    /// Completions that the device has not delivered yet; they are delivered in any order.
    pending: Vec<(DeviceKey, Completion)>,
    paused: Vec<Host>,
    pub events: Vec<Event>,
    pub completions: CompletionQueue,
    pub prng: Prng,
    /// Bytes delivered at a time, at most.
    pub chunk_max: u64,
    /// One byte of one in so many chunks for the host is corrupted.
    pub damage_one_in: Option<u64>,
}

impl Testbed {
    pub fn new(host: InitiatorConfig, target: TargetConfig, seed: u64) -> Testbed {
        let devices = target.subsystems[0]
            .namespaces
            .iter()
            .map(|namespace| ReferenceDevice::new(namespace.geometry.clone(), PayloadKind::Bytes))
            .collect();
        Testbed {
            now: Instant(1),
            initiator: Initiator::new(host),
            target: Some(Target::new(target.clone()).unwrap()),
            config: target,
            devices,
            wires: BTreeMap::new(),
            connecting: Vec::new(),
            pending: Vec::new(),
            paused: Vec::new(),
            events: Vec::new(),
            completions: CompletionQueue::new(),
            prng: Prng::new(seed),
            chunk_max: 20_000,
            damage_one_in: None,
        }
    }

    /// Starts, and runs until it is connected or has failed.
    pub fn connect(&mut self) -> &State {
        self.initiator.start(self.now);
        self.run_until(|testbed| !matches!(testbed.initiator.state(), State::Connecting(_)));
        self.run_until_idle();
        self.initiator.state()
    }

    /// A testbed whose initiator is connected.
    pub fn connected(host: InitiatorConfig, target: TargetConfig, seed: u64) -> Testbed {
        let mut testbed = Testbed::new(host, target, seed);
        let state = testbed.connect();
        assert_eq!(*state, State::Ready, "{state:?}");
        testbed
    }

    /// Adds a host, which is paused until [`Testbed::change_host`]. Returns its number.
    pub fn add_host(&mut self, config: InitiatorConfig) -> usize {
        self.paused.push(Host { initiator: Initiator::new(config), wires: BTreeMap::new(), connecting: Vec::new() });
        self.paused.len() - 1
    }

    /// Resumes a paused host, and pauses the present one under its number.
    pub fn change_host(&mut self, number: usize) {
        let host = &mut self.paused[number];
        std::mem::swap(&mut self.initiator, &mut host.initiator);
        std::mem::swap(&mut self.wires, &mut host.wires);
        std::mem::swap(&mut self.connecting, &mut host.connecting);
    }

    pub fn paused(&self, number: usize) -> &Initiator {
        &self.paused[number].initiator
    }

    /// Runs until a condition holds.
    pub fn run_until(&mut self, holds: impl Fn(&Testbed) -> bool) {
        for _ in 0..2_000_000 {
            if holds(self) {
                return;
            }
            if !self.step() {
                if holds(self) {
                    return;
                }
                self.pass_time();
            }
        }
        panic!("the condition never holds: {:?}", self.initiator.state());
    }

    /// Runs until only a timeout can continue.
    pub fn run_until_idle(&mut self) {
        while self.step() {}
    }

    /// Advances time to the next timeout.
    pub fn pass_time(&mut self) {
        let of_target = self.target.as_ref().and_then(Target::next_timeout);
        let next = [self.initiator.next_timeout(), of_target].into_iter().flatten().min();
        let next = next.unwrap_or_else(|| panic!("there is no timeout: {:?}", self.initiator.state()));
        self.now = self.now.max(next);
        self.initiator.on_timeout(self.now);
        if let Some(target) = &mut self.target {
            target.on_timeout(self.now);
        }
    }

    pub fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.run_until_idle();
            let of_target = self.target.as_ref().and_then(Target::next_timeout);
            match [self.initiator.next_timeout(), of_target].into_iter().flatten().min() {
                Some(next) if next <= end => self.pass_time(),
                _ => break,
            }
        }
        self.now = end;
    }

    pub fn submit(&mut self, command: Command) {
        self.initiator.submit(self.now, command).expect("the queue is not full");
    }

    /// Cuts a connection, as seen from both sides.
    pub fn cut(&mut self, queue: QueueId) {
        if let Some(wire) = self.wires.remove(&queue) {
            if let Some(target) = &mut self.target {
                target.on_disconnect(self.now, wire.connection);
            }
            self.initiator.on_disconnect(self.now, queue, "connection reset by peer");
        }
    }

    /// Crashes the server: completions are lost, connections are closed, devices stay as they are.
    pub fn crash(&mut self) {
        self.target = None;
        self.pending.clear();
        let queues: Vec<QueueId> = self.wires.keys().copied().collect();
        self.wires.clear();
        for queue in queues {
            self.initiator.on_disconnect(self.now, queue, "connection reset by peer");
        }
    }

    /// Restarts the server.
    pub fn restart(&mut self) {
        self.target = Some(Target::new(self.config.clone()).unwrap());
    }

    pub fn queues(&self) -> Vec<QueueId> {
        self.wires.keys().copied().collect()
    }

    /// Executes one random event of those that can happen now; returns whether there was one.
    pub fn step(&mut self) -> bool {
        self.now = Instant(self.now.0 + 10);
        self.host_effects();
        self.target_effects();
        self.initiator.check_invariants();
        self.initiator.poll(self.now, &mut self.completions);
        enum Choice {
            Open(usize),
            ToTarget(QueueId),
            ToHost(QueueId),
            Closed(QueueId),
            Complete(usize),
        }
        let mut choices = Vec::new();
        choices.extend((0..self.connecting.len()).map(Choice::Open));
        for (&queue, wire) in &self.wires {
            if !wire.to_target.is_empty() && !wire.is_paused && !wire.is_closed {
                choices.push(Choice::ToTarget(queue));
            }
            if !wire.to_host.is_empty() {
                choices.push(Choice::ToHost(queue));
            } else if wire.is_closed {
                choices.push(Choice::Closed(queue));
            }
        }
        choices.extend((0..self.pending.len()).map(Choice::Complete));
        if choices.is_empty() {
            return false;
        }
        let chosen = self.prng.below(choices.len() as u64) as usize;
        let most = 1 + self.prng.below(self.chunk_max) as usize;
        match choices[chosen] {
            Choice::Open(index) => self.open(index),
            Choice::ToTarget(queue) => {
                let wire = self.wires.get_mut(&queue).unwrap();
                let chunk = wire.to_target.take(most);
                let connection = wire.connection;
                self.target.as_mut().unwrap().on_bytes(self.now, connection, chunk);
            }
            Choice::ToHost(queue) => {
                let wire = self.wires.get_mut(&queue).unwrap();
                let chunk = wire.to_host.take(most);
                if let Some(target) = &mut self.target {
                    target.on_sent(self.now, wire.connection, chunk.len());
                }
                let chunk = self.damage(chunk);
                self.initiator.on_bytes(self.now, queue, chunk);
            }
            Choice::Closed(queue) => {
                self.wires.remove(&queue);
                self.initiator.on_disconnect(self.now, queue, "closed by the server");
            }
            Choice::Complete(index) => {
                let (device, completion) = self.pending.swap_remove(index);
                self.target.as_mut().unwrap().on_completion(self.now, device, completion);
            }
        }
        true
    }

    fn damage(&mut self, chunk: Bytes) -> Bytes {
        let Some(one_in) = self.damage_one_in.filter(|_| !chunk.is_empty()) else { return chunk };
        if !self.prng.chance(1, one_in) {
            return chunk;
        }
        let mut bytes = chunk.to_vec();
        let place = self.prng.below(bytes.len().min(200) as u64) as usize;
        bytes[place] =
            if self.prng.chance(1, 2) { self.prng.next_u64() as u8 } else { bytes[place] ^ 1 << self.prng.below(8) };
        bytes.into()
    }

    fn open(&mut self, index: usize) {
        let queue = self.connecting.swap_remove(index);
        let connection = self.target.as_mut().and_then(|target| target.on_connect(self.now, 0, "192.0.2.9:50000"));
        let Some(connection) = connection else {
            self.initiator.on_disconnect(self.now, queue, "connection refused");
            return;
        };
        let wire = Wire {
            connection,
            to_target: Pipe::default(),
            to_host: Pipe::default(),
            is_paused: false,
            is_closed: false,
        };
        self.wires.insert(queue, wire);
        self.initiator.on_connect(self.now, queue);
    }

    fn host_effects(&mut self) {
        while let Some(effect) = self.initiator.poll_effect() {
            match effect {
                Effect::Connect { queue } => self.connecting.push(queue),
                Effect::Send { queue, pieces } => {
                    assert!(pieces.iter().all(|piece| !piece.is_empty()));
                    if let Some(wire) = self.wires.get_mut(&queue) {
                        wire.to_target.chunks.extend(pieces);
                    }
                }
                Effect::Close { queue } => {
                    self.connecting.retain(|&other| other != queue);
                    if let Some(mut wire) = self.wires.remove(&queue)
                        && let Some(target) = &mut self.target
                    {
                        while !wire.is_closed && !wire.to_target.is_empty() {
                            target.on_bytes(self.now, wire.connection, wire.to_target.take(usize::MAX));
                        }
                        target.on_disconnect(self.now, wire.connection);
                    }
                }
                Effect::Event(event) => self.events.push(event),
            }
        }
    }

    fn target_effects(&mut self) {
        let Some(target) = &mut self.target else { return };
        while let Some(effect) = target.poll_effect() {
            use zonda_target::Effect as Of;
            let hosts = std::iter::once(&mut self.wires).chain(self.paused.iter_mut().map(|host| &mut host.wires));
            let mut wires = hosts.flat_map(BTreeMap::values_mut);
            let mut wire = |connection: ConnectionId| wires.find(|wire| wire.connection == connection);
            match effect {
                Of::Send { connection, pieces } => {
                    wire(connection).into_iter().for_each(|wire| wire.to_host.chunks.extend(pieces.clone()));
                }
                Of::Pause { connection } => wire(connection).into_iter().for_each(|wire| wire.is_paused = true),
                Of::Resume { connection } => wire(connection).into_iter().for_each(|wire| wire.is_paused = false),
                Of::Close { connection, .. } => wire(connection).into_iter().for_each(|wire| wire.is_closed = true),
                Of::Authenticate { connection } => {
                    if let Some(step) = target.auth_step(connection) {
                        target.on_authenticated(self.now, step.run());
                    }
                }
                Of::Submit { device, command, .. } => {
                    let completion = self.devices[device.0 as usize].execute(&command);
                    self.pending.push((device, completion));
                }
                Of::SaveReservations { .. } => unreachable!("no device saves reservations"),
                Of::NamespaceRemoved { .. } => {}
                Of::Abandon { .. } | Of::Event(_) => {}
            }
        }
    }
}
