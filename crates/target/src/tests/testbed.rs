//! The test environment of a target: devices, sockets, and scripted hosts.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zonda_nvme::fabrics::{
    CONTROLLER_ID_DYNAMIC, Capabilities, Configuration, ConnectCommand, ConnectData, Property, PropertyCommand,
};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::io::{Encoded, NamespaceFormat, Transfer, encode};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{HostId, Nqn, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, Completion, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Payload,
    PayloadKind,
};

use crate::{
    AuthStep, CloseReason, ConnectionId, DeviceKey, Effect, Event, Flow, HostAccess, Limits, NamespaceConfig, Portal,
    SubsystemConfig, Target, TargetConfig,
};

pub(super) const SUBSYSTEM: &str = "nqn.2024-01.org.example:drive";
pub(super) const HOST: &str = "nqn.2024-01.org.example:host";

/// Eight zones of 64 blocks of 512 bytes, 48 of them writable.
pub(super) fn zoned() -> Geometry {
    Geometry {
        metadata_bytes: 0,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(48),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(16),
        ..Geometry::tiny()
    }
}

/// The same as a conventional namespace.
pub(super) fn conventional() -> Geometry {
    Geometry { conventional_zone_count: 8, zone_capacity_blocks: Blocks(64), ..zoned() }
}

pub(super) fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub(super) fn config(geometries: &[Geometry], allow: HostAccess) -> TargetConfig {
    let namespaces = geometries.iter().enumerate().map(|(i, geometry)| NamespaceConfig {
        id: NamespaceId(i as u32 + 1),
        device: DeviceKey(i as u32),
        device_namespace: NamespaceId::FIRST,
        geometry: geometry.clone(),
        identity: NamespaceIdentity { uuid: Some([i as u8 + 1; 16]), ..NamespaceIdentity::default() },
        volatile_write_cache: true,
    });
    let subsystem = SubsystemConfig {
        nqn: nqn(SUBSYSTEM),
        serial: "1".to_owned(),
        model: "zonda".to_owned(),
        firmware: "1.0".to_owned(),
        namespaces: namespaces.collect(),
        allow,
    };
    let portal = Portal { address: "192.0.2.1".to_owned(), service: "4420".to_owned() };
    TargetConfig::new(vec![subsystem], vec![portal], [3; 32])
}

/// The completion of a command, with its data.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
    /// The last C2HData PDU replaced the response.
    pub(super) without_capsule: bool,
}

/// The host's end of one connection.
pub(super) struct Wire {
    pub(super) writer: PduWriter,
    pub(super) reader: PduReader,
    pub(super) pdus: VecDeque<Pdu>,
    pub(super) next_command: u16,
    /// Bytes that the target has sent and this host has not read.
    pub(super) unread_bytes: usize,
    /// The host does not read.
    pub(super) frozen: bool,
    pub(super) paused: bool,
}

pub(super) struct Testbed {
    pub(super) target: Target,
    pub(super) now: Instant,
    pub(super) devices: Vec<ReferenceDevice>,
    pub(super) wires: BTreeMap<ConnectionId, Wire>,
    pub(super) closed: BTreeMap<ConnectionId, CloseReason>,
    pub(super) events: Vec<Event>,
    /// Commands in flight at devices, while `hold` is set.
    pub(super) held: VecDeque<(DeviceKey, Command)>,
    pub(super) hold: bool,
    /// Authentication steps that are not computed yet, while `hold_steps` is set.
    pub(super) held_steps: Vec<AuthStep>,
    /// Flows of connections that were closed while devices had their commands.
    pub(super) abandoned: Vec<Flow>,
    pub(super) hold_steps: bool,
    /// Reservations that devices have saved.
    pub(super) saved: BTreeMap<DeviceKey, Bytes>,
    /// Saves in flight, while `hold_saves`.
    pub(super) saving: VecDeque<(DeviceKey, Bytes)>,
    pub(super) hold_saves: bool,
    /// Namespaces of devices that the target does not use any more.
    pub(super) removed: Vec<(DeviceKey, NamespaceId)>,
    /// The commands submitted to devices, by name.
    pub(super) submitted: Vec<&'static str>,
}

impl Testbed {
    pub(super) fn of(config: TargetConfig) -> Testbed {
        let geometries = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        let devices = geometries.map(|it| ReferenceDevice::new(it.geometry.clone(), PayloadKind::Bytes)).collect();
        Testbed {
            target: Target::new(config).unwrap(),
            now: Instant(1_000_000),
            devices,
            wires: BTreeMap::new(),
            closed: BTreeMap::new(),
            events: Vec::new(),
            held: VecDeque::new(),
            hold: false,
            held_steps: Vec::new(),
            abandoned: Vec::new(),
            hold_steps: false,
            saved: BTreeMap::new(),
            saving: VecDeque::new(),
            hold_saves: false,
            removed: Vec::new(),
            submitted: Vec::new(),
        }
    }

    /// One zoned namespace, any host.
    pub(super) fn new() -> Testbed {
        Testbed::of(config(&[zoned()], HostAccess::Any))
    }

    pub(super) fn with_limits(change: impl FnOnce(&mut Limits)) -> Testbed {
        let mut config = config(&[zoned()], HostAccess::Any);
        change(&mut config.limits);
        Testbed::of(config)
    }

    /// Opens a TCP connection, without any PDU.
    pub(super) fn open(&mut self) -> ConnectionId {
        self.open_from("192.0.2.9:5000")
    }

    /// The same from any address.
    pub(super) fn open_from(&mut self, peer: &str) -> ConnectionId {
        let id = self.target.on_connect(self.now, 0, peer).expect("a slot is free");
        let limits = ReaderLimits { data_bytes: 4 << 20, ..ReaderLimits::default() };
        let wire = Wire {
            writer: PduWriter::new(),
            reader: PduReader::new(Side::Host, limits),
            pdus: VecDeque::new(),
            next_command: 1,
            unread_bytes: 0,
            frozen: false,
            paused: false,
        };
        self.wires.insert(id, wire);
        self.run_until_idle();
        id
    }

    /// ICReq and ICResp.
    pub(super) fn initialize(&mut self, id: ConnectionId, digests: Digests, alignment: u8) {
        self.wire(id).writer.initialize_request(&InitializeRequest::new(alignment, digests, 1));
        self.push(id);
        let Some(Pdu::InitializeResponse(response)) = self.wire(id).pdus.pop_front() else {
            panic!("an ICResp answers an ICReq")
        };
        assert_eq!(response.digests, digests.code());
        let wire = self.wire(id);
        wire.writer.set_options(digests, response.data_alignment);
        wire.reader.set_digests(digests);
    }

    /// Connects a queue of a host, of a new controller (`None`) or of an existing one.
    pub(super) fn connect_as(
        &mut self,
        id: ConnectionId,
        host: &str,
        subsystem: &str,
        queue: u16,
        controller: Option<u16>,
        attributes: u8,
    ) -> Answer {
        self.connect_with_id(id, HostId([7; 16]), host, subsystem, queue, controller, attributes)
    }

    /// The same with a host identifier.
    #[allow(clippy::too_many_arguments)] // Each is a field of Connect.
    pub(super) fn connect_with_id(
        &mut self,
        id: ConnectionId,
        host_id: HostId,
        host: &str,
        subsystem: &str,
        queue: u16,
        controller: Option<u16>,
        attributes: u8,
    ) -> Answer {
        let command = ConnectCommand::new(queue, 32, attributes, if queue == 0 { 5000 } else { 0 });
        let controller = controller.unwrap_or(CONTROLLER_ID_DYNAMIC);
        let data = ConnectData::new(host_id, controller, &nqn(subsystem), &nqn(host));
        self.execute_in_capsule(id, command.into(), Bytes::copy_from_slice(data.bytes()))
    }

    /// A connected and enabled admin queue, and its controller identifier.
    pub(super) fn admin_with(&mut self, digests: Digests) -> (ConnectionId, u16) {
        let id = self.open();
        self.initialize(id, digests, 0);
        let answer = self.connect_as(id, HOST, SUBSYSTEM, 0, None, 0);
        assert_eq!(answer.status, StatusCode::SUCCESS);
        self.enable(id);
        (id, answer.result as u16)
    }

    pub(super) fn admin(&mut self) -> (ConnectionId, u16) {
        self.admin_with(Digests::NONE)
    }

    pub(super) fn enable(&mut self, id: ConnectionId) {
        let all = Capabilities::from_value(self.get(id, Property::Capabilities)).all_command_sets;
        let set = if all { Configuration::CSS_ALL } else { Configuration::CSS_NVM };
        let on = Configuration::enabled(set).0;
        self.set(id, Property::Configuration, on.into());
        assert_eq!(self.get(id, Property::Status) & 1, 1, "ready");
    }

    /// An I/O queue.
    pub(super) fn io_with(&mut self, controller: u16, queue: u16, digests: Digests, attributes: u8) -> ConnectionId {
        let id = self.open();
        self.initialize(id, digests, 0);
        let answer = self.connect_as(id, HOST, SUBSYSTEM, queue, Some(controller), attributes);
        assert_eq!(answer.status, StatusCode::SUCCESS);
        id
    }

    /// Creates a controller with one I/O queue, and returns the I/O queue.
    pub(super) fn io(&mut self) -> ConnectionId {
        let (_, controller) = self.admin();
        self.io_with(controller, 1, Digests::NONE, 0)
    }

    pub(super) fn get(&mut self, id: ConnectionId, property: Property) -> u64 {
        let answer = self.execute(id, PropertyCommand::get(property).into(), Bytes::new());
        assert_eq!(answer.status, StatusCode::SUCCESS);
        answer.result
    }

    pub(super) fn set(&mut self, id: ConnectionId, property: Property, value: u64) {
        let answer = self.execute(id, PropertyCommand::set(property, value).into(), Bytes::new());
        assert_eq!(answer.status, StatusCode::SUCCESS);
    }

    /// Executes an operation on a namespace; data of writes is sent after an R2T.
    pub(super) fn operate(&mut self, id: ConnectionId, namespace: u32, operation: &Operation) -> Answer {
        let (entry, data) = self.encoded(namespace, operation);
        self.execute(id, entry, data)
    }

    pub(super) fn encoded(&self, namespace: u32, operation: &Operation) -> (SubmissionEntry, Bytes) {
        let geometry = self.geometry(namespace);
        let format = NamespaceFormat::of(&geometry, 1 << 20);
        let Encoded { entry, transfer } = encode(operation, NamespaceId(namespace), &format).unwrap();
        let data = match (transfer, operation) {
            (
                Transfer::FromHost(_),
                Operation::Write { payload: Payload::Bytes(buffer), .. }
                | Operation::Append { payload: Payload::Bytes(buffer), .. },
            ) => zonda_nvme::io::interleave(buffer, &format),
            (Transfer::FromHost(_), Operation::Deallocate { ranges }) => zonda_nvme::io::encode_ranges(ranges).into(),
            (Transfer::FromHost(bytes), _) => vec![0x5a; bytes as usize].into(),
            _ => Bytes::new(),
        };
        (entry, data)
    }

    /// The geometry of a namespace of the subsystem; [`zoned`] if there is none.
    pub(super) fn geometry(&self, namespace: u32) -> Geometry {
        let subsystem = self.target.config().subsystems.iter().find(|it| it.nqn.as_str() == SUBSYSTEM);
        let namespaces = subsystem.into_iter().flat_map(|it| &it.namespaces);
        namespaces.into_iter().find(|it| it.id.0 == namespace).map_or_else(zoned, |it| it.geometry.clone())
    }

    /// Sends a command with in-capsule data, and waits for its completion.
    #[allow(clippy::needless_pass_by_value)] // Callers make the data on the spot.
    pub(super) fn execute_in_capsule(&mut self, id: ConnectionId, mut entry: SubmissionEntry, data: Bytes) -> Answer {
        entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
        let command = self.start(id, entry, &data);
        self.finish(id, command, Bytes::new())
    }

    /// Sends a command, sends its data after an R2T, and waits for its completion.
    pub(super) fn execute(&mut self, id: ConnectionId, entry: SubmissionEntry, data: Bytes) -> Answer {
        let command = self.start(id, entry, &Bytes::new());
        self.finish(id, command, data)
    }

    /// Sends a write without its data, which the target must solicit; returns its identifier.
    pub(super) fn start_write(&mut self, id: ConnectionId, start: u64, blocks: u64) -> u16 {
        let (entry, _) = self.encoded(1, &write(start, blocks, 1));
        self.start(id, entry, &Bytes::new())
    }

    /// How many R2Ts the target has sent.
    pub(super) fn r2ts_received(&mut self, id: ConnectionId) -> usize {
        self.wire(id).pdus.iter().filter(|pdu| matches!(pdu, Pdu::ReadyToTransfer(_))).count()
    }

    /// Sends a command; returns its identifier.
    pub(super) fn start(&mut self, id: ConnectionId, mut entry: SubmissionEntry, capsule: &Bytes) -> u16 {
        let wire = self.wire(id);
        let command = wire.next_command;
        wire.next_command += 1;
        entry.command_id = command.into();
        wire.writer.command(&entry, capsule);
        self.push(id);
        command
    }

    /// Acts as the host until a command has completed. PDUs of other commands stay queued.
    #[allow(clippy::needless_pass_by_value)] // Callers make the data on the spot.
    pub(super) fn finish(&mut self, id: ConnectionId, command: u16, data: Bytes) -> Answer {
        let mut found = Vec::new();
        let mut others = VecDeque::new();
        loop {
            let Some(pdu) = self.wire(id).pdus.pop_front() else {
                panic!("command {command} has not ended, {:?}", self.closed.get(&id))
            };
            match pdu {
                Pdu::ReadyToTransfer(r2t) if r2t.command_id.get() == command => {
                    let (offset, length) = (r2t.offset.get() as usize, r2t.length.get() as usize);
                    let asked = data.slice(offset..offset + length);
                    // Two PDUs, to test their reassembly.
                    let half = (length / 2).max(1);
                    let wire = self.wire(id);
                    let tag = r2t.tag.get();
                    wire.writer.host_data(command, tag, offset as u32, &[asked.slice(..half)], half == length);
                    if half < length {
                        wire.writer.host_data(command, tag, (offset + half) as u32, &[asked.slice(half..)], true);
                    }
                    self.push(id);
                }
                Pdu::ControllerData { header, data, .. } if header.command_id.get() == command => {
                    assert_eq!(header.offset.get() as usize, found.len());
                    found.extend_from_slice(&data);
                    if header.is_success() {
                        self.restore(id, others);
                        let status = StatusCode::SUCCESS;
                        return Answer { status, result: 0, data: found, without_capsule: true };
                    }
                }
                Pdu::Response(entry) if entry.command_id.get() == command => {
                    self.restore(id, others);
                    return Answer {
                        status: entry.status_code(),
                        result: entry.result.get(),
                        data: found,
                        without_capsule: false,
                    };
                }
                other => others.push_back(other),
            }
        }
    }

    fn restore(&mut self, id: ConnectionId, mut others: VecDeque<Pdu>) {
        let wire = self.wire(id);
        others.append(&mut wire.pdus);
        wire.pdus = others;
    }

    /// Delivers the PDUs that the host has written.
    pub(super) fn push(&mut self, id: ConnectionId) {
        for piece in self.wire(id).writer.take() {
            self.send(id, piece);
        }
    }

    /// Delivers bytes.
    pub(super) fn send(&mut self, id: ConnectionId, bytes: Bytes) {
        self.target.on_bytes(self.now, id, bytes);
        self.target.check_invariants();
        self.run_until_idle();
    }

    /// Carries out effects of the target until there are none left.
    pub(super) fn run_until_idle(&mut self) {
        while let Some(effect) = self.target.poll_effect() {
            self.target.check_invariants();
            match effect {
                Effect::Send { connection, pieces } => self.deliver(connection, pieces),
                Effect::Pause { connection } => {
                    let wire = self.wire(connection);
                    assert!(!wire.paused, "paused once");
                    wire.paused = true;
                }
                Effect::Resume { connection } => {
                    let wire = self.wire(connection);
                    assert!(wire.paused, "resumed after a pause");
                    wire.paused = false;
                }
                Effect::Close { connection, reason } => {
                    assert!(self.closed.insert(connection, reason).is_none(), "closed once");
                }
                Effect::Submit { device, command, .. } => {
                    self.submitted.push(command.operation.name());
                    if self.hold {
                        self.held.push_back((device, command));
                    } else {
                        self.complete(device, &command);
                    }
                }
                Effect::NamespaceRemoved { device, device_namespace } => {
                    self.removed.push((device, device_namespace));
                }
                Effect::Abandon { flow } => self.abandoned.push(flow),
                Effect::SaveReservations { device, bytes } => {
                    self.saving.push_back((device, bytes));
                    if !self.hold_saves {
                        self.complete_save(true);
                    }
                }
                Effect::Authenticate { connection } => {
                    let step = self.target.auth_step(connection);
                    if self.hold_steps {
                        self.held_steps.extend(step);
                    } else if let Some(step) = step {
                        self.target.on_authenticated(self.now, step.run());
                    }
                }
                Effect::Event(event) => self.events.push(event),
            }
        }
    }

    fn deliver(&mut self, id: ConnectionId, pieces: Vec<Bytes>) {
        let wire = self.wires.get_mut(&id).expect("a connection that was opened");
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        for piece in pieces {
            wire.reader.push(piece);
        }
        if wire.frozen {
            wire.unread_bytes += bytes;
            return;
        }
        while let Some(pdu) = wire.reader.next().expect("the target speaks the protocol") {
            wire.pdus.push_back(pdu);
        }
        self.target.on_sent(self.now, id, bytes);
        self.target.check_invariants();
    }

    /// The host resumes reading.
    pub(super) fn thaw(&mut self, id: ConnectionId) {
        let wire = self.wire(id);
        wire.frozen = false;
        let bytes = std::mem::take(&mut wire.unread_bytes);
        while let Some(pdu) = wire.reader.next().expect("the target speaks the protocol") {
            wire.pdus.push_back(pdu);
        }
        self.target.on_sent(self.now, id, bytes);
        self.target.check_invariants();
        self.run_until_idle();
    }

    pub(super) fn complete(&mut self, device: DeviceKey, command: &Command) {
        let completion: Completion = self.devices[device.0 as usize].execute(command);
        self.target.on_completion(self.now, device, completion);
        self.target.check_invariants();
    }

    /// A device completes its oldest save, with success or failure.
    pub(super) fn complete_save(&mut self, succeeds: bool) {
        let (device, bytes) = self.saving.pop_front().expect("a save is in flight");
        if succeeds {
            self.saved.insert(device, bytes);
        }
        self.target.on_reservations_saved(self.now, device, succeeds);
        self.target.check_invariants();
        self.run_until_idle();
    }

    /// Devices complete the commands that they hold.
    pub(super) fn release(&mut self) {
        self.hold = false;
        while let Some((device, command)) = self.held.pop_front() {
            self.complete(device, &command);
            self.run_until_idle();
        }
    }

    pub(super) fn close_socket(&mut self, id: ConnectionId) {
        self.target.on_disconnect(self.now, id);
        self.target.check_invariants();
        self.run_until_idle();
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now += span;
        if self.target.next_timeout().is_some_and(|due| due <= self.now) {
            self.target.on_timeout(self.now);
        }
        self.target.check_invariants();
        self.run_until_idle();
    }

    pub(super) fn wire(&mut self, id: ConnectionId) -> &mut Wire {
        self.wires.get_mut(&id).expect("a connection that was opened")
    }
}

/// Bytes that differ from block to block.
pub(super) fn pattern(blocks: u64, block_bytes: usize, seed: u8) -> Bytes {
    (0..blocks as usize * block_bytes).map(|i| (i / 7) as u8 ^ (i >> 9) as u8 ^ seed).collect::<Vec<u8>>().into()
}

pub(super) fn write(start: u64, blocks: u64, seed: u8) -> Operation {
    let data = pattern(blocks, 512, seed);
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }));
    Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload }
}

pub(super) fn read(start: u64, blocks: u64) -> Operation {
    Operation::Read { start: Lba(start), blocks: Blocks(blocks) }
}
