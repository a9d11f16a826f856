//! Hosts that begin to authenticate, as many as they can, beside one that means it. Time passes in milliseconds, and each step
//! of an authentication is computed for some.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_chap::{Group, Hash, HostAuth, HostAuthConfig, Policy, Random, Secret};
use zonda_nvme::fabrics::{AuthenticationCommand, CONTROLLER_ID_DYNAMIC, ConnectCommand, ConnectData};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{FabricsType, HostId, SglDescriptor, SubmissionEntry};
use zonda_zoned::{Duration, Instant};

use super::world::{HOST, SUBSYSTEM, config, nqn, zoned};
use crate::{AuthStep, ConnectionId, Effect, Event, HostAccess, HostEntry, Limits, Target};

const TICK: Duration = Duration::from_millis(1);
/// What a step takes to compute. Two at a time are 667 in a second, fewer than come.
const STEP: Duration = Duration::from_millis(3);
/// A host waits for one step of each of 250 addresses, which two compute, twice; and for its own.
const LONGEST: Duration = Duration::from_millis(2 * 250 * 3 / 2 + 20);

/// Where the flood comes from, by its number, and what it does once its first step is answered.
#[derive(Clone, Copy)]
struct Attackers {
    per_tick: u32,
    address: fn(u32) -> String,
    answer: bool,
}

fn many(number: u32) -> String {
    format!("198.51.100.{}:{number}", number % 250)
}

fn secret() -> Secret {
    Secret::generate(None, [1; 64])
}

/// The host's side, without an exchange of keys: what it costs is told by [`STEP`].
fn host_auth() -> HostAuth {
    let mut config = HostAuthConfig::new(HOST, SUBSYSTEM, secret());
    config.policy = Policy::new(&[Hash::Sha256], &[Group::Null]).expect("a hash and a group");
    HostAuth::new(config, Random::new([9; 32]))
}

fn begin(writer: &mut PduWriter) {
    writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
}

fn connect(writer: &mut PduWriter) {
    let data = ConnectData::new(HostId([7; 16]), CONTROLLER_ID_DYNAMIC, &nqn(SUBSYSTEM), &nqn(HOST));
    in_capsule(writer, ConnectCommand::new(0, 32, 0, 0).into(), &Bytes::copy_from_slice(data.bytes()));
}

fn send_message(writer: &mut PduWriter, message: Vec<u8>) {
    let send = AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32);
    in_capsule(writer, send.into(), &message.into());
}

fn in_capsule(writer: &mut PduWriter, mut entry: SubmissionEntry, data: &Bytes) {
    entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
    writer.command(&entry, data);
}

/// An honest host at one connection, which answers each step within a tick.
struct Host {
    id: ConnectionId,
    reader: PduReader,
    writer: PduWriter,
    auth: HostAuth,
    since: Instant,
    awaits: Awaits,
    received: Bytes,
}

enum Awaits {
    Initialized,
    Connected,
    Sent,
    Received,
}

impl Host {
    fn act(&mut self) {
        while let Some(pdu) = self.reader.next().expect("the target speaks the protocol") {
            match (pdu, &self.awaits) {
                (Pdu::InitializeResponse(_), Awaits::Initialized) => {
                    self.reader.set_digests(Digests::NONE);
                    connect(&mut self.writer);
                    self.awaits = Awaits::Connected;
                }
                (Pdu::ControllerData { data, .. }, Awaits::Received) => self.received = data,
                (Pdu::Response(entry), Awaits::Sent) => {
                    assert!(entry.status_code().is_success(), "{}", entry.status_code());
                    let mut receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
                    receive.data_pointer = SglDescriptor::transport(4096);
                    self.writer.command(&receive.into(), &Bytes::new());
                    self.awaits = Awaits::Received;
                }
                (Pdu::Response(entry), Awaits::Connected | Awaits::Received) => {
                    assert!(entry.status_code().is_success(), "{}", entry.status_code());
                    if !self.received.is_empty() {
                        self.auth.receive(&self.received).expect("both know the secret");
                    }
                    let Some(message) = self.auth.message() else { continue };
                    send_message(&mut self.writer, message);
                    self.awaits = Awaits::Sent;
                }
                (pdu, _) => panic!("{pdu:?}"),
            }
        }
    }
}

struct Flood {
    target: Target,
    now: Instant,
    computed: VecDeque<(Instant, ConnectionId, AuthStep)>,
    came: u32,
    answers: VecDeque<ConnectionId>,
    host: Option<Host>,
    /// How long each of its authentications took, and how often its connection was closed.
    successes: Vec<Duration>,
    failures: usize,
}

impl Flood {
    fn new() -> Flood {
        let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret()), controller_secret: None };
        let mut config = config(&[zoned()], HostAccess::Hosts(vec![entry]));
        config.limits = Limits { transfer_bytes: config.limits.transfer_bytes, ..Limits::default() };
        Flood {
            target: Target::new(config).expect("it can be served"),
            now: Instant(1_000_000),
            computed: VecDeque::new(),
            came: 0,
            answers: VecDeque::new(),
            host: None,
            successes: Vec::new(),
            failures: 0,
        }
    }

    /// The host connects again and again, for so long.
    fn run(mut self, span: Duration, attackers: Attackers, host: &str) -> Flood {
        let end = self.now + span;
        while self.now < end {
            self.now += TICK;
            if self.target.next_timeout().is_some_and(|at| at <= self.now) {
                self.target.timeout(self.now);
            }
            while self.computed.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, id, step) = self.computed.pop_front().expect("it was just there");
                self.target.authenticated(self.now, step.run());
                self.answers.extend(attackers.answer.then_some(id));
                self.settle();
            }
            // Now one is the first of a tick, now the other.
            let is_hosts_turn = self.came.is_multiple_of(2);
            if is_hosts_turn {
                self.host_acts(host);
            }
            (0..attackers.per_tick).for_each(|_| self.knock(attackers));
            if !is_hosts_turn {
                self.host_acts(host);
            }
            if self.came.is_multiple_of(50) {
                self.target.check_invariants();
            }
        }
        self
    }

    fn knock(&mut self, attackers: Attackers) {
        // Those whose message was looked at send one more, which is wrong.
        while let Some(id) = self.answers.pop_front().filter(|id| self.host.as_ref().is_none_or(|host| host.id != *id))
        {
            let mut writer = PduWriter::new();
            send_message(&mut writer, vec![0xee; 16]);
            self.send(id, &mut writer);
        }
        self.came += 1;
        let peer = (attackers.address)(self.came);
        let id = self.target.connected(self.now, 0, &peer).expect("a silent one gives way");
        self.settle();
        let mut writer = PduWriter::new();
        begin(&mut writer);
        connect(&mut writer);
        send_message(&mut writer, host_auth().message().expect("the host begins"));
        self.send(id, &mut writer);
    }

    fn host_acts(&mut self, peer: &str) {
        let mut host = self.host.take().unwrap_or_else(|| {
            let id = self.target.connected(self.now, 0, peer).expect("a silent one gives way");
            let mut writer = PduWriter::new();
            begin(&mut writer);
            let reader = PduReader::new(Side::Host, ReaderLimits::default());
            let (auth, since) = (host_auth(), self.now);
            Host { id, reader, writer, auth, since, awaits: Awaits::Initialized, received: Bytes::new() }
        });
        host.act();
        let (id, mut writer) = (host.id, std::mem::take(&mut host.writer));
        self.host = Some(host);
        self.send(id, &mut writer);
        if let Some(host) = &mut self.host {
            host.writer = writer;
        }
    }

    fn send(&mut self, id: ConnectionId, writer: &mut PduWriter) {
        for piece in writer.take() {
            self.target.received(self.now, id, piece);
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(effect) = self.target.poll_effect() {
            let is_hosts = |id| self.host.as_ref().is_some_and(|host| host.id == id);
            match effect {
                Effect::Send { connection, pieces } => {
                    self.target.sent(self.now, connection, pieces.iter().map(Bytes::len).sum());
                    if is_hosts(connection)
                        && let Some(host) = &mut self.host
                    {
                        pieces.into_iter().for_each(|piece| host.reader.push(piece));
                    }
                }
                Effect::Authenticate { connection } => {
                    let step = self.target.auth_step(connection);
                    self.computed.extend(step.map(|step| (self.now + STEP, connection, step)));
                }
                Effect::Close { connection, .. } if is_hosts(connection) => {
                    self.host = None;
                    self.failures += 1;
                }
                Effect::Event(Event::Authenticated { connection, .. }) if is_hosts(connection) => {
                    let host = self.host.take().expect("it was just there");
                    self.successes.push(self.now.since(host.since));
                    self.target.disconnected(self.now, connection);
                }
                Effect::Close { .. } | Effect::Event(_) => {}
                effect => panic!("{effect:?}"),
            }
        }
    }
}

#[test]
fn hosts_that_begin_to_authenticate_and_are_silent_keep_no_other_out() {
    let attackers = Attackers { per_tick: 1, address: many, answer: false };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert_eq!((flood.came, flood.failures), (5000, 0));
    let longest = flood.successes.iter().max().expect("the host has authenticated");
    assert!(flood.successes.len() >= 5 && *longest < LONGEST, "{:?}", flood.successes);
}

#[test]
fn nor_do_those_that_answer_with_what_is_wrong() {
    let attackers = Attackers { per_tick: 2, address: many, answer: true };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert_eq!((flood.came, flood.failures), (10_000, 0));
    let longest = flood.successes.iter().max().expect("the host has authenticated");
    assert!(flood.successes.len() >= 5 && *longest < LONGEST, "{:?}", flood.successes);
}

#[test]
fn a_host_at_the_address_of_such_a_flood_gets_its_part_of_the_steps() {
    // One computes for the address: 333 in a second, of 1000 that come.
    let attackers = Attackers { per_tick: 1, address: |number| format!("192.0.2.9:{number}"), answer: false };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert!(flood.successes.len() >= 3, "{:?}, {} failed", flood.successes, flood.failures);
}
