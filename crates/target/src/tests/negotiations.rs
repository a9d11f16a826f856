//! A flood of authentications beside an honest host. Time advances in milliseconds, and computing a
//! step of an authentication takes several.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_chap::{Group, Hash, HostAuth, HostAuthConfig, Policy, Random, Secret};
use zonda_nvme::fabrics::{AuthenticationCommand, CONTROLLER_ID_DYNAMIC, ConnectCommand, ConnectData};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{FabricsType, HostId, SglDescriptor, SubmissionEntry};
use zonda_zoned::{Duration, Instant};

use super::testbed::{HOST, SUBSYSTEM, config, nqn, zoned};
use crate::{AuthStep, ConnectionId, Effect, Event, HostAccess, HostEntry, Limits, Target};

const TICK: Duration = Duration::from_millis(1);
/// The time to compute a step. Two at a time make 667 per second, fewer than arrive.
const STEP: Duration = Duration::from_millis(3);
/// A host waits twice for one step of each of 250 addresses, computed two at a time, and for its
/// own.
const LONGEST: Duration = Duration::from_millis(2 * 250 * 3 / 2 + 20);

/// The addresses of the flood, by connection number, and whether it continues after the response to
/// its first step.
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

/// The host's side, without Diffie-Hellman: [`STEP`] simulates its cost.
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

/// An honest host with one connection, which answers each step within a tick.
struct Host {
    id: ConnectionId,
    reader: PduReader,
    writer: PduWriter,
    auth: HostAuth,
    since: Instant,
    expected: Expected,
    received: Bytes,
}

enum Expected {
    Initialized,
    Connected,
    Sent,
    Received,
}

impl Host {
    fn process_pdus(&mut self) {
        while let Some(pdu) = self.reader.next().expect("the target speaks the protocol") {
            match (pdu, &self.expected) {
                (Pdu::InitializeResponse(_), Expected::Initialized) => {
                    self.reader.set_digests(Digests::NONE);
                    connect(&mut self.writer);
                    self.expected = Expected::Connected;
                }
                (Pdu::ControllerData { data, .. }, Expected::Received) => self.received = data,
                (Pdu::Response(entry), Expected::Sent) => {
                    assert!(entry.status_code().is_success(), "{}", entry.status_code());
                    let mut receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
                    receive.data_pointer = SglDescriptor::transport(4096);
                    self.writer.command(&receive.into(), &Bytes::new());
                    self.expected = Expected::Received;
                }
                (Pdu::Response(entry), Expected::Connected | Expected::Received) => {
                    assert!(entry.status_code().is_success(), "{}", entry.status_code());
                    if !self.received.is_empty() {
                        self.auth.receive(&self.received).expect("both know the secret");
                    }
                    let Some(message) = self.auth.message() else { continue };
                    send_message(&mut self.writer, message);
                    self.expected = Expected::Sent;
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
    attempts: u32,
    answers: VecDeque<ConnectionId>,
    host: Option<Host>,
    /// How long each of the host's authentications took, and how often its connection was closed.
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
            attempts: 0,
            answers: VecDeque::new(),
            host: None,
            successes: Vec::new(),
            failures: 0,
        }
    }

    /// Runs for a time span in which the host connects again and again.
    fn run(mut self, span: Duration, attackers: Attackers, host: &str) -> Flood {
        let end = self.now + span;
        while self.now < end {
            self.now += TICK;
            if self.target.next_timeout().is_some_and(|at| at <= self.now) {
                self.target.on_timeout(self.now);
            }
            while self.computed.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, id, step) = self.computed.pop_front().expect("it was just found");
                self.target.on_authenticated(self.now, step.run());
                self.answers.extend(attackers.answer.then_some(id));
                self.run_until_idle();
            }
            // Host and attackers alternate in being first in a tick.
            let is_host_first = self.attempts.is_multiple_of(2);
            if is_host_first {
                self.run_host(host);
            }
            (0..attackers.per_tick).for_each(|_| self.connect_attacker(attackers));
            if !is_host_first {
                self.run_host(host);
            }
            if self.attempts.is_multiple_of(50) {
                self.target.check_invariants();
            }
        }
        self
    }

    fn connect_attacker(&mut self, attackers: Attackers) {
        // Attackers whose message was processed send another, invalid one.
        while let Some(id) = self.answers.pop_front().filter(|id| self.host.as_ref().is_none_or(|host| host.id != *id))
        {
            let mut writer = PduWriter::new();
            send_message(&mut writer, vec![0xee; 16]);
            self.send(id, &mut writer);
        }
        self.attempts += 1;
        let peer = (attackers.address)(self.attempts);
        let id = self.target.on_connect(self.now, 0, &peer).expect("a silent connection is evicted");
        self.run_until_idle();
        let mut writer = PduWriter::new();
        begin(&mut writer);
        connect(&mut writer);
        send_message(&mut writer, host_auth().message().expect("the host begins"));
        self.send(id, &mut writer);
    }

    fn run_host(&mut self, peer: &str) {
        let mut host = self.host.take().unwrap_or_else(|| {
            let id = self.target.on_connect(self.now, 0, peer).expect("a silent connection is evicted");
            let mut writer = PduWriter::new();
            begin(&mut writer);
            let reader = PduReader::new(Side::Host, ReaderLimits::default());
            let (auth, since) = (host_auth(), self.now);
            Host { id, reader, writer, auth, since, expected: Expected::Initialized, received: Bytes::new() }
        });
        host.process_pdus();
        let (id, mut writer) = (host.id, std::mem::take(&mut host.writer));
        self.host = Some(host);
        self.send(id, &mut writer);
        if let Some(host) = &mut self.host {
            host.writer = writer;
        }
    }

    fn send(&mut self, id: ConnectionId, writer: &mut PduWriter) {
        for piece in writer.take() {
            self.target.on_bytes(self.now, id, piece);
        }
        self.run_until_idle();
    }

    fn run_until_idle(&mut self) {
        while let Some(effect) = self.target.poll_effect() {
            let is_hosts = |id| self.host.as_ref().is_some_and(|host| host.id == id);
            match effect {
                Effect::Send { connection, pieces } => {
                    self.target.on_sent(self.now, connection, pieces.iter().map(Bytes::len).sum());
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
                    let host = self.host.take().expect("it was just found");
                    self.successes.push(self.now.since(host.since));
                    self.target.on_disconnect(self.now, connection);
                }
                Effect::Close { .. } | Effect::Event(_) => {}
                effect => panic!("{effect:?}"),
            }
        }
    }
}

#[test]
fn hosts_that_begin_to_authenticate_and_fall_silent_lock_out_no_other() {
    let attackers = Attackers { per_tick: 1, address: many, answer: false };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert_eq!((flood.attempts, flood.failures), (5000, 0));
    let longest = flood.successes.iter().max().expect("the host has authenticated");
    assert!(flood.successes.len() >= 5 && *longest < LONGEST, "{:?}", flood.successes);
}

#[test]
fn hosts_that_answer_with_invalid_messages_lock_out_no_other() {
    let attackers = Attackers { per_tick: 2, address: many, answer: true };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert_eq!((flood.attempts, flood.failures), (10_000, 0));
    let longest = flood.successes.iter().max().expect("the host has authenticated");
    assert!(flood.successes.len() >= 5 && *longest < LONGEST, "{:?}", flood.successes);
}

#[test]
fn a_host_at_the_address_of_such_a_flood_gets_its_share_of_the_steps() {
    // One step at a time is computed for the address: 333 per second, of 1000 that arrive.
    let attackers = Attackers { per_tick: 1, address: |number| format!("192.0.2.9:{number}"), answer: false };
    let flood = Flood::new().run(Duration::from_secs(5), attackers, "192.0.2.9:5000");
    assert!(flood.successes.len() >= 3, "{:?}, {} failed", flood.successes, flood.failures);
}
