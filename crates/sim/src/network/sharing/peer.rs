//! A host that shares the namespace: an NVMe/TCP host with two queues that sends NVMe commands, not
//! operations of a device.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::fabrics::{
    CONTROLLER_ID_DYNAMIC, Configuration, ConnectCommand, ConnectData, Property, PropertyCommand,
};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{HostId, StatusCode, SubmissionEntry};
use zonda_zoned::{Duration, Instant};

use super::commands::Sent;
use super::history::Number;
use crate::network::simulation::name;

/// Timeout of a connect step or a command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum data length of a PDU to the host.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// Number of entries of its queues.
const QUEUE_ENTRIES: u16 = 16;
/// Indexes of the admin queue and of the I/O queue.
pub(super) const ADMIN: usize = 0;
pub(super) const IO: usize = 1;

/// An action of the host on a connection.
#[derive(Debug)]
pub(super) enum PeerAction {
    Open(usize),
    Send(usize, Vec<Bytes>),
    /// Closes both connections.
    CloseAll,
}

/// An event of the host.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// The host can send commands.
    Ready,
    /// A command has completed: its status and data.
    Ended(Number, StatusCode, Vec<u8>),
    /// The connections are closed, and these commands are lost.
    Lost(Vec<Number>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Connect,
    Enable,
    Status,
    Disable,
    Command(Number),
}

#[derive(Debug)]
struct Flight {
    purpose: Purpose,
    /// Data that the target can request with an R2T.
    data: Bytes,
    /// Data that the target has sent.
    received: Vec<u8>,
    since: Instant,
}

/// One end of a connection.
#[derive(Debug)]
struct Line {
    writer: PduWriter,
    reader: PduReader,
    flights: BTreeMap<u16, Flight>,
    since: Instant,
    is_connected: bool,
}

#[derive(Debug)]
pub(super) struct Peer {
    index: usize,
    host_id: HostId,
    lines: [Option<Line>; 2],
    controller: u16,
    next_command: u16,
    pub(super) actions: Vec<PeerAction>,
    pub(super) events: Vec<PeerEvent>,
}

impl Peer {
    pub(super) fn new(index: usize, host_id: HostId) -> Peer {
        let lines = [None, None];
        Peer { index, host_id, lines, controller: 0, next_command: 1, actions: Vec::new(), events: Vec::new() }
    }

    pub(super) fn is_down(&self) -> bool {
        self.lines.iter().all(Option::is_none)
    }

    pub(super) fn controller(&self) -> u16 {
        self.controller
    }

    pub(super) fn start(&mut self, now: Instant) {
        self.open(ADMIN, now);
    }

    fn open(&mut self, queue: usize, now: Instant) {
        let limits = ReaderLimits { data_bytes: DATA_BYTES_MAX, ..ReaderLimits::default() };
        let (writer, reader) = (PduWriter::new(), PduReader::new(Side::Host, limits));
        self.lines[queue] = Some(Line { writer, reader, flights: BTreeMap::new(), since: now, is_connected: false });
        self.actions.push(PeerAction::Open(queue));
    }

    /// A connection is established.
    pub(super) fn opened(&mut self, queue: usize) {
        let Some(line) = &mut self.lines[queue] else { return };
        line.writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
        self.flush(queue);
    }

    /// Closes both connections, after one is lost or when the host is done.
    pub(super) fn close(&mut self) {
        if self.is_down() {
            return;
        }
        let flights = self.lines.iter_mut().filter_map(Option::take).flat_map(|line| line.flights.into_values());
        let lost = flights.filter_map(|flight| match flight.purpose {
            Purpose::Command(number) => Some(number),
            _ => None,
        });
        self.events.push(PeerEvent::Lost(lost.collect()));
        self.actions.push(PeerAction::CloseAll);
    }

    /// Sends a command to the namespace.
    pub(super) fn send(&mut self, now: Instant, number: Number, command: Sent) {
        let queue = if command.is_admin { ADMIN } else { IO };
        self.command(queue, command.entry, command.data, Purpose::Command(number), now);
    }

    /// Resets the controller.
    pub(super) fn reset(&mut self, now: Instant) {
        let command = PropertyCommand::set(Property::Configuration, 0);
        self.command(ADMIN, command.into(), Bytes::new(), Purpose::Disable, now);
    }

    /// Start of the oldest outstanding command or connect step.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let lines = self.lines.iter().flatten();
        let waits = lines.flat_map(|line| {
            let connects = (!line.is_connected).then_some(line.since);
            line.flights.values().map(|flight| flight.since).chain(connects)
        });
        waits.min()
    }

    fn command(&mut self, queue: usize, mut entry: SubmissionEntry, data: Bytes, purpose: Purpose, now: Instant) {
        let Some(line) = &mut self.lines[queue] else { return };
        let id = self.next_command;
        self.next_command = id.checked_add(1).unwrap_or(1);
        entry.command_id = id.into();
        let capsule = if purpose == Purpose::Connect { data.clone() } else { Bytes::new() };
        line.writer.command(&entry, &capsule);
        line.flights.insert(id, Flight { purpose, data, received: Vec::new(), since: now });
        self.flush(queue);
    }

    fn flush(&mut self, queue: usize) {
        if let Some(line) = &mut self.lines[queue] {
            self.actions.push(PeerAction::Send(queue, line.writer.take()));
        }
    }

    /// Processes received bytes.
    pub(super) fn on_bytes(&mut self, now: Instant, queue: usize, chunk: Bytes) {
        if let Some(line) = &mut self.lines[queue] {
            line.reader.push(chunk);
        }
        while let Some(line) = &mut self.lines[queue] {
            match line.reader.next() {
                Ok(Some(pdu)) => self.take(now, queue, pdu),
                Ok(None) => return,
                // Invalid bytes, such as those of another connection.
                Err(_) => return self.close(),
            }
        }
    }

    fn take(&mut self, now: Instant, queue: usize, pdu: Pdu) {
        let line = self.lines[queue].as_mut().expect("the connection exists, it was just read from");
        match pdu {
            Pdu::InitializeResponse(response) => {
                line.writer.set_options(Digests::NONE, response.data_alignment);
                line.reader.set_digests(Digests::NONE);
                let controller = if queue == ADMIN { CONTROLLER_ID_DYNAMIC } else { self.controller };
                let command = ConnectCommand::new(queue as u16, QUEUE_ENTRIES, 0, 0);
                let host = name(&format!("sharing-{}", self.index));
                let data = ConnectData::new(self.host_id, controller, &name("drive"), &host);
                self.command(queue, command.into(), Bytes::copy_from_slice(data.bytes()), Purpose::Connect, now);
            }
            Pdu::ReadyToTransfer(asked) => {
                let (id, offset, length) =
                    (asked.command_id.get(), asked.offset.get() as usize, asked.length.get() as usize);
                let data = line.flights.get(&id).and_then(|flight| flight.data.get(offset..offset + length));
                let Some(data) = data.map(Bytes::copy_from_slice) else { return self.close() };
                line.writer.host_data(id, asked.tag.get(), offset as u32, &[data], true);
                self.flush(queue);
            }
            Pdu::ControllerData { header, data, .. } => {
                let id = header.command_id.get();
                if let Some(flight) = line.flights.get_mut(&id) {
                    flight.received.extend_from_slice(&data);
                }
                if header.is_success() {
                    self.end(now, queue, id, StatusCode::SUCCESS, 0);
                }
            }
            Pdu::Response(entry) => {
                self.end(now, queue, entry.command_id.get(), entry.status_code(), entry.result.get());
            }
            _ => self.close(),
        }
    }

    fn end(&mut self, now: Instant, queue: usize, id: u16, status: StatusCode, result: u64) {
        let line = self.lines[queue].as_mut().expect("the connection exists, it was just read from");
        let Some(flight) = line.flights.remove(&id) else { return self.close() };
        if let Purpose::Command(number) = flight.purpose {
            return self.events.push(PeerEvent::Ended(number, status, flight.received));
        }
        if status != StatusCode::SUCCESS {
            return self.close();
        }
        match flight.purpose {
            Purpose::Connect => {
                line.is_connected = true;
                if queue == IO {
                    return self.events.push(PeerEvent::Ready);
                }
                self.controller = result as u16;
                let on = Configuration::enabled(Configuration::CSS_ALL).0;
                let command = PropertyCommand::set(Property::Configuration, on.into());
                self.command(ADMIN, command.into(), Bytes::new(), Purpose::Enable, now);
            }
            Purpose::Enable => {
                self.command(ADMIN, PropertyCommand::get(Property::Status).into(), Bytes::new(), Purpose::Status, now);
            }
            Purpose::Status if result & 1 == 1 => self.open(IO, now),
            Purpose::Status | Purpose::Disable | Purpose::Command(_) => self.close(),
        }
    }
}
