//! Persistent reservations, as two hosts see them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use zonda_nbd::NbdError;
use zonda_nbd::testing::{Answer, Ask, Client};
use zonda_nbd::wire::transmission::command;
use zonda_nvme::fabrics::{
    CONTROLLER_ID_DYNAMIC, Configuration, ConnectCommand, ConnectData, Property, PropertyCommand,
};
use zonda_nvme::reservation::{
    AcquireAction, PersistChange, RegisterAction, ReleaseAction, ReservationCommand, ReservationKey, ReservationKeys,
    ReservationStatus, ReservationType,
};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{HostId, IoOpcode, Nqn, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_ring::Bytes;

use super::server::Server;
use super::{output_in, scratch};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const CONFLICT: StatusCode = StatusCode::RESERVATION_CONFLICT;
const BLOCK_BYTES: usize = 4096;

/// One queue of a host, a command at a time.
struct Queue {
    stream: TcpStream,
    writer: PduWriter,
    reader: PduReader,
}

/// A host with a controller and an I/O queue.
pub(super) struct Host {
    /// Keeps the controller alive.
    _admin: Queue,
    io: Queue,
    key: u64,
}

impl Queue {
    fn connect(address: &str, subsystem: &Nqn, number: u8, queue: u16, controller: u16) -> (Queue, u16) {
        let stream = TcpStream::connect(address).expect("it listens");
        let limits = ReaderLimits { data_bytes: 1 << 20, ..ReaderLimits::default() };
        let mut opened = Queue { stream, writer: PduWriter::new(), reader: PduReader::new(Side::Host, limits) };
        opened.writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
        opened.flush();
        assert!(matches!(opened.next(), Pdu::InitializeResponse(_)));
        opened.writer.set_options(Digests::NONE, 0);
        opened.reader.set_digests(Digests::NONE);
        let host = Nqn::new(&format!("nqn.2024-01.org.example:host-{number}")).expect("a name");
        let data = ConnectData::new(HostId([number; 16]), controller, subsystem, &host);
        let command = ConnectCommand::new(queue, 31, 0, if queue == 0 { 60_000 } else { 0 });
        let (status, result, _) = opened.execute(command.into(), data.bytes());
        assert_eq!(status, SUCCESS);
        (opened, result as u16)
    }

    /// Status, result and data of a command; its own data is in the capsule.
    fn execute(&mut self, entry: SubmissionEntry, data: &[u8]) -> (StatusCode, u64, Vec<u8>) {
        self.send(entry, data);
        let mut found = Vec::new();
        loop {
            match self.next() {
                Pdu::ControllerData { data, .. } => found.extend_from_slice(&data),
                Pdu::Response(answer) => return (answer.status_code(), answer.result.get(), found),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a command without waiting for its completion.
    fn send(&mut self, mut entry: SubmissionEntry, data: &[u8]) {
        entry.command_id = 1.into();
        if !data.is_empty() {
            entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
        }
        self.writer.command(&entry, &Bytes::copy_from_slice(data));
        self.flush();
    }

    fn flush(&mut self) {
        for piece in self.writer.take() {
            self.stream.write_all(&piece).expect("the connection holds");
        }
    }

    fn next(&mut self) -> Pdu {
        let mut bytes = vec![0; 64 << 10];
        loop {
            if let Some(pdu) = self.reader.next().expect("the server speaks the protocol") {
                return pdu;
            }
            let count = self.stream.read(&mut bytes).expect("the connection holds");
            assert!(count > 0, "the server has closed the connection");
            self.reader.push(Bytes::copy_from_slice(&bytes[..count]));
        }
    }
}

impl Host {
    /// Connects to the first namespace of a server, which has no zones.
    pub(super) fn connect(server: &Server, number: u8) -> Host {
        Host::connect_with(server, 0, number, Configuration::CSS_NVM)
    }

    /// Connects to a zoned namespace, which is the first one of its subsystem; `index` counts the
    /// namespaces of the server.
    pub(super) fn connect_to(server: &Server, index: usize, number: u8) -> Host {
        Host::connect_with(server, index, number, Configuration::CSS_ALL)
    }

    fn connect_with(server: &Server, index: usize, number: u8, command_sets: u8) -> Host {
        let url = server.url(index).strip_prefix("nvme-tcp://").expect("a URL").to_owned();
        let (address, name) = url.split_once('/').expect("a URL with a subsystem");
        let subsystem = Nqn::new(name.split('?').next().expect("there is a first one")).expect("a name");
        let (mut admin, controller) = Queue::connect(address, &subsystem, number, 0, CONTROLLER_ID_DYNAMIC);
        let enabled = Configuration::enabled(command_sets).0;
        assert_eq!(admin.execute(PropertyCommand::set(Property::Configuration, enabled.into()).into(), &[]).0, SUCCESS);
        let (io, _) = Queue::connect(address, &subsystem, number, 1, controller);
        Host { _admin: admin, io, key: u64::from(number) }
    }

    fn reserve(&mut self, command: &ReservationCommand, current: u64, other: u64) -> StatusCode {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) };
        self.io.execute(entry_of(command), &keys.to_bytes()).0
    }

    pub(super) fn register(&mut self, persist: PersistChange) -> StatusCode {
        let action = RegisterAction::Register;
        self.reserve(&ReservationCommand::Register { action, ignores_key: false, persist }, 0, self.key)
    }

    pub(super) fn acquire(&mut self, action: AcquireAction, victim: u64) -> StatusCode {
        let kind = ReservationType::WriteExclusive;
        self.reserve(&ReservationCommand::Acquire { action, kind }, self.key, victim)
    }

    /// Reserves the namespace so that no other host can read it, either.
    pub(super) fn acquire_exclusive(&mut self) -> StatusCode {
        let kind = ReservationType::ExclusiveAccess;
        self.reserve(&ReservationCommand::Acquire { action: AcquireAction::Acquire, kind }, self.key, 0)
    }

    pub(super) fn report(&mut self) -> ReservationStatus {
        let mut entry = entry_of(&ReservationCommand::Report { bytes: 4096, extended: true });
        entry.data_pointer = SglDescriptor::transport(4096);
        let (status, _, data) = self.io.execute(entry, &[]);
        assert_eq!(status, SUCCESS);
        ReservationStatus::read(&data, true).expect("a report")
    }

    /// Writes a block at the start of a zone.
    pub(super) fn write(&mut self, lba: u64) -> StatusCode {
        let mut entry = SubmissionEntry::new(IoOpcode::Write.code(), 1);
        (entry.cdw10, entry.cdw11) = ((lba as u32).into(), ((lba >> 32) as u32).into());
        self.io.execute(entry, &vec![self.key as u8; BLOCK_BYTES]).0
    }

    pub(super) fn read(&mut self, lba: u64) -> (StatusCode, u8) {
        let mut entry = SubmissionEntry::new(IoOpcode::Read.code(), 1);
        (entry.cdw10, entry.cdw11) = ((lba as u32).into(), ((lba >> 32) as u32).into());
        entry.data_pointer = SglDescriptor::transport(BLOCK_BYTES as u32);
        let (status, _, data) = self.io.execute(entry, &[]);
        (status, data.first().copied().unwrap_or_default())
    }
}

fn entry_of(command: &ReservationCommand) -> SubmissionEntry {
    let (opcode, [dword10, dword11]) = command.encode();
    let mut entry = SubmissionEntry::new(opcode.code(), 1);
    (entry.cdw10, entry.cdw11) = (dword10.into(), dword11.into());
    entry
}

fn make_drive(directory: &Path) {
    output_in(directory, &["drive", "create", "drive", "--profile", "conventional", "--zones", "2"]);
}

fn serve(directory: &Path, options: &[&str]) -> Server {
    serve_one(directory, "drive", options)
}

fn serve_one(directory: &Path, name: &str, options: &[&str]) -> Server {
    Server::start(directory, &[&[name, "--listen", "127.0.0.1:0", "--http", "off"], options].concat())
}

/// A client of the export `drive`, a request at a time.
pub(super) struct NbdClient {
    stream: UnixStream,
    pub(super) client: Client,
}

impl NbdClient {
    pub(super) fn open(directory: &Path) -> NbdClient {
        let stream = UnixStream::connect(directory.join("nbd.sock")).expect("it listens");
        let mut opened = NbdClient { stream, client: Client::new() };
        let bytes = [opened.client.flags(), opened.client.go("drive")].concat();
        opened.stream.write_all(&bytes).expect("the connection holds");
        while !opened.client.is_in_transmission() {
            opened.receive();
        }
        opened
    }

    fn receive(&mut self) {
        let mut bytes = vec![0; 64 << 10];
        let count = self.stream.read(&mut bytes).expect("the connection holds");
        assert!(count > 0, "the server has closed the connection");
        self.client.on_bytes(&bytes[..count]);
    }

    pub(super) fn ask(&mut self, command: u16, length: usize, data: &[u8]) -> Result<Answer, NbdError> {
        let ask = Ask { command, flags: 0, cookie: 1, offset: 0, length: length as u32 };
        let bytes = self.client.ask(ask, data);
        self.stream.write_all(&bytes).expect("the connection holds");
        loop {
            if let Some((_, result)) = self.client.finished() {
                return result.map_err(|failure| failure.error);
            }
            self.receive();
        }
    }

    pub(super) fn write(&mut self, byte: u8) -> Result<(), NbdError> {
        self.ask(command::WRITE, BLOCK_BYTES, &vec![byte; BLOCK_BYTES]).map(|_| ())
    }

    pub(super) fn flush(&mut self) -> Result<(), NbdError> {
        self.ask(command::FLUSH, 0, &[]).map(|_| ())
    }

    pub(super) fn read(&mut self) -> Result<u8, NbdError> {
        match self.ask(command::READ, BLOCK_BYTES, &[])? {
            Answer::Data(data) => Ok(data[0]),
            other => panic!("{other:?}"),
        }
    }
}

/// Registrants by host and key, and who holds the reservation.
pub(super) fn hosts_of(status: &ReservationStatus) -> Vec<(u8, u64, bool)> {
    status.controllers.iter().map(|it| (it.host.0[0], it.key.0, it.is_holder)).collect()
}

#[test]
fn a_persistent_reservation_survives_kill_and_stop_and_excludes_other_hosts() {
    let directory = scratch("reservations");
    make_drive(&directory);
    let server = serve(&directory, &[]);
    let (mut owner, mut other) = (Host::connect(&server, 1), Host::connect(&server, 2));
    assert_eq!(owner.register(PersistChange::Set), SUCCESS);
    assert_eq!(owner.acquire(AcquireAction::Acquire, 0), SUCCESS);
    assert_eq!((owner.write(0), other.write(1)), (SUCCESS, CONFLICT));
    server.kill();
    // With simulated latency: the reservations are those of the image.
    let server = serve(&directory, &["--timing", "profile"]);
    let mut other = Host::connect(&server, 2);
    assert_eq!((other.write(1), other.read(0)), (CONFLICT, (SUCCESS, 1)));
    let found = other.report();
    assert_eq!((found.kind, found.persists), (Some(ReservationType::WriteExclusive), true));
    assert_eq!(hosts_of(&found), [(1, 1, true)], "before it is back");
    let mut owner = Host::connect(&server, 1);
    assert_eq!(owner.write(1), SUCCESS);
    // The other host preempts, and that survives as well.
    assert_eq!((other.register(PersistChange::Keep), other.acquire(AcquireAction::Preempt, 1)), (SUCCESS, SUCCESS));
    server.kill();
    let server = serve(&directory, &[]);
    let (mut owner, mut other) = (Host::connect(&server, 1), Host::connect(&server, 2));
    assert_eq!((owner.write(1), other.write(1)), (CONFLICT, SUCCESS));
    assert_eq!(hosts_of(&owner.report()), [(2, 2, true)]);
    server.stop();
    let server = serve(&directory, &[]);
    let (mut owner, mut other) = (Host::connect(&server, 1), Host::connect(&server, 2));
    assert_eq!((owner.write(1), other.write(1)), (CONFLICT, SUCCESS));
    // Without persistence, the reservation ends with the server.
    assert_eq!(other.register(PersistChange::Clear), SUCCESS);
    assert_eq!(owner.write(1), CONFLICT);
    server.kill();
    let server = serve(&directory, &[]);
    let mut owner = Host::connect(&server, 1);
    assert_eq!((owner.write(1), hosts_of(&owner.report())), (SUCCESS, vec![]));
    server.stop();
    assert!(output_in(&directory, &["drive", "check", "drive"]).contains("no damage"));
}

#[test]
fn a_kill_during_a_preemption_leaves_the_old_or_the_new_holder() {
    let directory = scratch("reservations-cut");
    make_drive(&directory);
    let server = serve(&directory, &[]);
    let [mut first, mut second] = [1, 2].map(|number| Host::connect(&server, number));
    assert_eq!((first.register(PersistChange::Set), second.register(PersistChange::Set)), (SUCCESS, SUCCESS));
    assert_eq!(first.acquire(AcquireAction::Acquire, 0), SUCCESS);
    server.kill();
    let mut holder = 1;
    for round in 0..8 {
        let server = serve(&directory, &[]);
        let [first, second] = [1, 2].map(|number| Host::connect(&server, number));
        let mut taker = if holder == 1 { second } else { first };
        // The host that was preempted last registers again.
        assert_eq!(taker.register(PersistChange::Keep), SUCCESS);
        let preempt =
            ReservationCommand::Acquire { action: AcquireAction::Preempt, kind: ReservationType::WriteExclusive };
        let keys = ReservationKeys { current: ReservationKey(taker.key), other: ReservationKey(holder) };
        taker.io.send(entry_of(&preempt), &keys.to_bytes());
        std::thread::sleep(std::time::Duration::from_micros(150 * round));
        server.kill();
        let server = serve(&directory, &[]);
        let [mut first, mut second] = [1, 2].map(|number| Host::connect(&server, number));
        let before = if holder == 1 { [(1, 1, true), (2, 2, false)] } else { [(2, 2, true), (1, 1, false)] };
        let found = hosts_of(&first.report());
        assert!(found == before || found == [(taker.key as u8, taker.key, true)], "round {round}: {found:?}");
        let (_, now, _) = found.into_iter().find(|&(.., is_holder)| is_holder).expect("there is a holder");
        holder = now;
        let expected = if holder == 1 { (SUCCESS, CONFLICT) } else { (CONFLICT, SUCCESS) };
        assert_eq!((first.write(0), second.write(0)), expected, "round {round}");
        server.kill();
    }
}

#[test]
fn a_reservation_of_a_volume_survives_kill_and_stop_and_excludes_other_hosts() {
    let directory = scratch("reservations-of-a-volume");
    for name in ["a", "b", "c"] {
        let size = ["--zones", "24", "--zone-capacity", "1MiB"];
        output_in(&directory, &[&["drive", "create", name, "--profile", "zn540"], &size[..]].concat());
    }
    output_in(&directory, &["volume", "create", "vol", "--members", "a,b,c"]);
    let server = serve_one(&directory, "vol", &[]);
    let (mut owner, mut other) = (Host::connect(&server, 1), Host::connect(&server, 2));
    assert_eq!((owner.register(PersistChange::Set), other.register(PersistChange::Keep)), (SUCCESS, SUCCESS));
    assert_eq!(owner.acquire(AcquireAction::Acquire, 0), SUCCESS);
    assert_eq!((owner.write(0), other.write(1)), (SUCCESS, CONFLICT));
    server.kill();
    let server = serve_one(&directory, "vol", &[]);
    let mut other = Host::connect(&server, 2);
    assert_eq!((other.write(1), other.read(0)), (CONFLICT, (SUCCESS, 1)));
    assert_eq!(hosts_of(&other.report()), [(1, 1, true), (2, 2, false)]);
    assert_eq!(other.acquire(AcquireAction::Preempt, 1), SUCCESS);
    server.stop();
    let server = serve_one(&directory, "vol", &[]);
    let (mut owner, mut other) = (Host::connect(&server, 1), Host::connect(&server, 2));
    assert_eq!((owner.write(1), other.write(1)), (CONFLICT, SUCCESS));
    server.stop();
    assert!(output_in(&directory, &["volume", "check", "vol"]).contains("healthy"));
}

/// NBD clients count as hosts that are not registered.
#[test]
fn nbd_clients_are_excluded_by_a_reservation_also_after_the_server_was_killed() {
    let directory = scratch("reservations-and-nbd");
    make_drive(&directory);
    let over_nbd = ["--nbd", "unix:nbd.sock"];
    let server = serve(&directory, &over_nbd);
    let mut host = Host::connect(&server, 1);
    let mut client = NbdClient::open(&directory);
    assert_eq!((client.write(7), client.read()), (Ok(()), Ok(7)));
    assert_eq!(host.register(PersistChange::Set), SUCCESS);
    assert_eq!(client.write(8), Ok(()), "registrations alone exclude no host");
    assert_eq!(host.acquire(AcquireAction::Acquire, 0), SUCCESS);
    let refused = Err(NbdError::NotPermitted);
    assert_eq!((client.write(9), client.flush(), client.read()), (refused, refused, Ok(8)));
    server.kill();
    let server = serve(&directory, &over_nbd);
    let mut client = NbdClient::open(&directory);
    assert_eq!((client.write(9), client.read()), (refused, Ok(8)));
    let mut host = Host::connect(&server, 1);
    let kind = ReservationType::ExclusiveAccess;
    let exclusive = ReservationCommand::Acquire { action: AcquireAction::Preempt, kind };
    assert_eq!(host.reserve(&exclusive, 1, 1), SUCCESS);
    assert_eq!((client.write(9), client.read()), (refused, Err(NbdError::NotPermitted)));
    let clear = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
    assert_eq!(host.reserve(&clear, 1, 0), SUCCESS);
    assert_eq!((client.write(9), client.read()), (Ok(()), Ok(9)));
    drop(client);
    let log = server.stop();
    assert_eq!(log.matches("NBD request refused").count(), 1, "{log}");
}

#[test]
fn a_drive_in_memory_has_no_persistent_reservations() {
    let directory = scratch("reservations-in-memory");
    let arguments = ["--memory", "conventional", "--zones", "2", "--listen", "127.0.0.1:0", "--http", "off"];
    let server = Server::start(&directory, &arguments);
    let mut host = Host::connect(&server, 1);
    assert_eq!(host.register(PersistChange::Set), StatusCode::INVALID_FIELD);
    assert_eq!((host.register(PersistChange::Keep), host.report().persists), (SUCCESS, false));
    server.stop();
}
