//! An NVMe/TCP host that waits for each completion, or violates the protocol on request.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use rustix::net::{AddressFamily, SocketType};
use zonda_chap::{HostAuth, HostAuthConfig, Policy, Random, Secret};
use zonda_nvme::fabrics::{
    AuthenticationCommand, CONTROLLER_ID_DYNAMIC, Capabilities, Configuration, ConnectCommand, ConnectData,
    ConnectResult, Property, PropertyCommand,
};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{FabricsType, HostId, IoOpcode, Nqn, SglDescriptor, StatusCode, SubmissionEntry};

use crate::BLOCK_BYTES;

/// After this time without a reply, a server has locked its client out.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Entries of each queue.
pub(crate) const QUEUE_ENTRIES: u16 = 128;
/// Bytes that one Authentication Receive requests.
const MESSAGE_BYTES: u32 = 4096;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) command: u16,
    pub(crate) status: StatusCode,
    pub(crate) result: u64,
    pub(crate) data: Bytes,
}

/// One connection.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    reader: PduReader,
    pub(crate) writer: PduWriter,
    /// Data received for commands that have not completed.
    data: VecDeque<(u16, Bytes)>,
    next_command: u16,
    buffer: Vec<u8>,
}

/// A TCP connection from an address of the loopback.
pub(crate) fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn other(what: impl Display) -> io::Error {
    io::Error::other(format!("{what}"))
}

impl Queue {
    /// A connection with completed ICReq/ICResp exchange.
    pub(crate) fn open(from: Ipv4Addr, to: SocketAddr) -> io::Result<Queue> {
        let mut queue = Queue::begin(from, to)?;
        queue.agree()?;
        Ok(queue)
    }

    /// A connection that has sent ICReq.
    pub(crate) fn begin(from: Ipv4Addr, to: SocketAddr) -> io::Result<Queue> {
        let stream = dial(from, to)?;
        let reader = PduReader::new(Side::Host, ReaderLimits::default());
        let writer = PduWriter::new();
        let (data, next_command, buffer) = (VecDeque::new(), 1, vec![0; 64 << 10]);
        let mut queue = Queue { stream, reader, writer, data, next_command, buffer };
        queue.writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
        queue.flush()?;
        Ok(queue)
    }

    fn agree(&mut self) -> io::Result<()> {
        match self.next()? {
            Pdu::InitializeResponse(response) => {
                self.writer.set_options(Digests::NONE, response.data_alignment);
                self.reader.set_digests(Digests::NONE);
                Ok(())
            }
            pdu => Err(other(format!("expected ICResp, received {pdu:?}"))),
        }
    }

    /// Connects a queue of a new controller, or of an existing one. Returns the controller, and
    /// whether it requires authentication.
    pub(crate) fn connect(
        &mut self,
        host: &str,
        subsystem: &str,
        queue: u16,
        controller: Option<u16>,
        keep_alive_ms: u32,
    ) -> io::Result<(u16, bool)> {
        self.start_connect(host, subsystem, queue, controller, keep_alive_ms)?;
        let answer = self.finish()?;
        match ConnectResult::of_success(succeeded(&answer)?.result) {
            ConnectResult::Connected { controller_id, authentication_required } => {
                Ok((controller_id, authentication_required))
            }
            _ => Err(other("Connect succeeded without a controller ID")),
        }
    }

    /// Sends the Connect without waiting.
    pub(crate) fn start_connect(
        &mut self,
        host: &str,
        subsystem: &str,
        queue: u16,
        controller: Option<u16>,
        keep_alive_ms: u32,
    ) -> io::Result<()> {
        let nqn = |name: &str| Nqn::new(name).map_err(other);
        let command = ConnectCommand::new(queue, QUEUE_ENTRIES, 0, keep_alive_ms);
        let controller = controller.unwrap_or(CONTROLLER_ID_DYNAMIC);
        let data = ConnectData::new(HostId([7; 16]), controller, &nqn(subsystem)?, &nqn(host)?);
        self.start(command.into(), &Bytes::copy_from_slice(data.bytes())).map(|_| ())
    }

    /// Authenticates with a secret.
    pub(crate) fn authenticate(
        &mut self,
        host: &str,
        subsystem: &str,
        secret: &Secret,
        policy: &Policy,
    ) -> io::Result<()> {
        let mut config = HostAuthConfig::new(host, subsystem, secret.clone());
        config.policy = policy.clone();
        let mut machine = HostAuth::new(config, Random::new([9; 32]));
        loop {
            let message = machine.message().ok_or_else(|| other("the authentication ended early"))?;
            self.send_message(&message.into())?;
            if machine.is_authenticated() {
                return Ok(());
            }
            let answer = self.receive_message()?;
            machine.receive(&answer).map_err(other)?;
            if machine.is_authenticated() {
                return Ok(());
            }
        }
    }

    pub(crate) fn send_message(&mut self, message: &Bytes) -> io::Result<Answer> {
        self.start_message(message)?;
        let answer = self.finish()?;
        succeeded(&answer)?;
        Ok(answer)
    }

    /// Sends a message of an authentication without waiting.
    pub(crate) fn start_message(&mut self, message: &Bytes) -> io::Result<u16> {
        let mut entry: SubmissionEntry =
            AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
        entry.data_pointer = SglDescriptor::in_capsule(0, message.len() as u32);
        self.start(entry, message)
    }

    pub(crate) fn receive_message(&mut self) -> io::Result<Bytes> {
        let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, MESSAGE_BYTES);
        let answer = self.execute(receive.into(), &Bytes::new())?;
        succeeded(&answer)?;
        Ok(answer.data)
    }

    /// Enables the controller of an admin queue.
    pub(crate) fn enable(&mut self) -> io::Result<()> {
        let answer = self.execute(PropertyCommand::get(Property::Capabilities).into(), &Bytes::new())?;
        let all = Capabilities::from_value(succeeded(&answer)?.result).all_command_sets;
        let set = if all { Configuration::CSS_ALL } else { Configuration::CSS_NVM };
        let on = PropertyCommand::set(Property::Configuration, Configuration::enabled(set).0.into());
        succeeded(&self.execute(on.into(), &Bytes::new())?).map(|_| ())
    }

    /// Sends a command; returns its identifier.
    pub(crate) fn start(&mut self, mut entry: SubmissionEntry, capsule: &Bytes) -> io::Result<u16> {
        let command = self.next_command;
        self.next_command = self.next_command.wrapping_add(1).max(1);
        entry.command_id = command.into();
        self.writer.command(&entry, capsule);
        self.flush()?;
        Ok(command)
    }

    /// Waits for the completion of any command; data of writes are zeros.
    pub(crate) fn finish(&mut self) -> io::Result<Answer> {
        loop {
            match self.next()? {
                Pdu::ControllerData { header, data, .. } => {
                    let command = header.command_id.get();
                    if header.is_success() {
                        return Ok(Answer { command, status: StatusCode::SUCCESS, result: 0, data });
                    }
                    self.data.push_back((command, data));
                }
                Pdu::Response(entry) => {
                    let command = entry.command_id.get();
                    let place = self.data.iter().position(|(other, _)| *other == command);
                    let data =
                        place.and_then(|place| self.data.remove(place)).map_or_else(Bytes::new, |(_, data)| data);
                    return Ok(Answer { command, status: entry.status_code(), result: entry.result.get(), data });
                }
                Pdu::ReadyToTransfer(r2t) => {
                    let zeros = Bytes::from(vec![0; r2t.length.get() as usize]);
                    self.writer.host_data(r2t.command_id.get(), r2t.tag.get(), r2t.offset.get(), &[zeros], true);
                    self.flush()?;
                }
                pdu => return Err(other(format!("{pdu:?}"))),
            }
        }
    }

    /// Sends a command, and waits for its completion.
    pub(crate) fn execute(&mut self, entry: SubmissionEntry, capsule: &Bytes) -> io::Result<Answer> {
        self.start(entry, capsule)?;
        self.finish()
    }

    /// Sends buffered PDUs.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.writer.take().concat())
    }

    /// The next PDU.
    pub(crate) fn next(&mut self) -> io::Result<Pdu> {
        loop {
            if let Some(pdu) = self.reader.next().map_err(|error| other(format!("{error:?}")))? {
                return Ok(pdu);
            }
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.reader.push(Bytes::copy_from_slice(&self.buffer[..count])),
            }
        }
    }
}

/// An admin queue and one I/O queue of a host, authenticated if it has a secret.
pub(crate) fn attach(
    from: Ipv4Addr,
    to: SocketAddr,
    host: &str,
    subsystem: &str,
    secret: Option<&Secret>,
) -> io::Result<(Queue, Queue)> {
    let prove = |queue: &mut Queue, is_asked: bool| match secret {
        Some(secret) if is_asked => queue.authenticate(host, subsystem, secret, &Policy::modest()),
        _ => Ok(()),
    };
    let mut admin = Queue::open(from, to)?;
    let (controller, is_asked) = admin.connect(host, subsystem, 0, None, 0)?;
    prove(&mut admin, is_asked)?;
    admin.enable()?;
    let mut io = Queue::open(from, to)?;
    let (_, is_asked) = io.connect(host, subsystem, 1, Some(controller), 0)?;
    prove(&mut io, is_asked)?;
    Ok((admin, io))
}

/// A read or a write of namespace 1.
pub(crate) fn transfer(opcode: IoOpcode, block: u64, blocks: u64) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode.code(), 1);
    entry.set_starting_lba(block);
    entry.cdw12 = (blocks as u32 - 1).into();
    entry.data_pointer = SglDescriptor::transport((blocks as usize * BLOCK_BYTES) as u32);
    entry
}

fn succeeded(answer: &Answer) -> io::Result<&Answer> {
    if answer.status == StatusCode::SUCCESS { Ok(answer) } else { Err(other(answer.status)) }
}
