//! The host's side of one connection: it conforms to the protocol unless the input says otherwise.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zonda_chap::{HostAuth, HostAuthConfig, Random};
use zonda_nvme::fabrics::{AuthenticationCommand, ConnectCommand, ConnectData, ConnectResult, disconnect_command};
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu, PduReader, PduWriter, R2t, ReaderLimits, Side};
use zonda_nvme::{FabricsType, HostId, SglDescriptor, SubmissionEntry};

use super::exports::{HOSTS, secret};
use super::name;

/// Length of the buffer for an authentication message of the controller.
const MESSAGE_BYTES: u32 = 4096;

/// The purpose of an outstanding command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Connect,
    Message,
    Other,
}

pub(super) struct Host {
    pub(super) writer: PduWriter,
    reader: PduReader,
    digests: Digests,
    alignment: u8,
    /// Outstanding commands by identifier: how many, and their purpose.
    outstanding: BTreeMap<u16, (u32, Purpose)>,
    /// Data of writes, by command.
    data: BTreeMap<u16, Bytes>,
    /// R2Ts that have not been answered.
    asked: VecDeque<R2t>,
    pub(super) answers_r2ts: bool,
    /// The host has violated the protocol: then responses are not checked against its commands.
    pub(super) is_wild: bool,
    next_command: u16,
    /// The identifier in the response to Connect; zero before.
    pub(super) controller_id: u16,
    authentication: Option<HostAuth>,
    subsystem: &'static str,
    host_name: &'static str,
    /// Data of the outstanding Authentication Receive.
    message: Vec<u8>,
}

impl Host {
    pub(super) fn new() -> Host {
        let limits = ReaderLimits { data_bytes: 1 << 20, ..ReaderLimits::default() };
        Host {
            writer: PduWriter::new(),
            reader: PduReader::new(Side::Host, limits),
            digests: Digests::NONE,
            alignment: 0,
            outstanding: BTreeMap::new(),
            data: BTreeMap::new(),
            asked: VecDeque::new(),
            answers_r2ts: true,
            is_wild: false,
            next_command: 1,
            controller_id: 0,
            authentication: None,
            subsystem: "",
            host_name: "",
            message: Vec::new(),
        }
    }

    pub(super) fn initialize(&mut self, digests: Digests, alignment: u8, r2t_max: u32) {
        (self.digests, self.alignment) = (digests, alignment);
        self.writer.initialize_request(&InitializeRequest::new(alignment, digests, r2t_max));
    }

    pub(super) fn connect(
        &mut self,
        queue: u16,
        controller: u16,
        subsystem: &'static str,
        host: &'static str,
        attributes: u8,
        timeout_ms: u32,
    ) {
        (self.subsystem, self.host_name) = (subsystem, host);
        let command = ConnectCommand::new(queue, 32, attributes, timeout_ms);
        let number = 7 + HOSTS.iter().position(|known| *known == host).unwrap_or_default() as u8;
        let data = ConnectData::new(HostId([number; 16]), controller, &name(subsystem), &name(host));
        self.start(command.into(), &Bytes::copy_from_slice(data.bytes()), Purpose::Connect);
    }

    /// Sends a command whose data, if any, is returned or solicited by the target.
    pub(super) fn send(&mut self, entry: SubmissionEntry) {
        self.send_with(entry, Bytes::new(), false);
    }

    pub(super) fn send_with(&mut self, mut entry: SubmissionEntry, data: Bytes, in_capsule: bool) {
        if in_capsule && !data.is_empty() {
            entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
            self.start(entry, &data, Purpose::Other);
        } else {
            let command = self.start(entry, &Bytes::new(), Purpose::Other);
            self.data.insert(command, data);
        }
    }

    pub(super) fn disconnect(&mut self) {
        self.send(disconnect_command());
    }

    fn start(&mut self, mut entry: SubmissionEntry, capsule: &Bytes, purpose: Purpose) -> u16 {
        let command = self.next_command;
        self.next_command = self.next_command.wrapping_add(1);
        entry.command_id = command.into();
        self.outstanding.entry(command).or_insert((0, purpose)).0 += 1;
        self.writer.command(&entry, capsule);
        command
    }

    /// Answers the oldest R2T; `how` 0: correctly, else with a part, or with a wrong offset or tag.
    pub(super) fn answer(&mut self, how: u8, change: u16) {
        let Some(r2t) = self.asked.pop_front() else { return };
        let (command, mut tag) = (r2t.command_id.get(), r2t.tag.get());
        let (mut offset, mut length) = (r2t.offset.get(), r2t.length.get());
        let mut last = true;
        match how & 7 {
            0 => {}
            1 => {
                // In two parts, the second of which may never come.
                length = 1 + u32::from(change) % length.max(1);
                last = length == r2t.length.get();
                if !last {
                    let mut rest = r2t;
                    rest.offset = (offset + length).into();
                    rest.length = (r2t.length.get() - length).into();
                    self.asked.push_front(rest);
                }
            }
            2 => offset = offset.wrapping_add(change.into()),
            3 => tag ^= change,
            4 => length += 1 + u32::from(change & 0xff),
            5 => last = false,
            6 => self.asked.push_back(r2t),
            _ => length = length.saturating_sub(u32::from(change)).max(1),
        }
        self.is_wild |= how & 7 > 1;
        let whole = self.data.get(&command).cloned().unwrap_or_default();
        let mut data = whole.get(offset as usize..).unwrap_or_default().to_vec();
        data.resize(length.max(1) as usize, 0xa5);
        self.writer.host_data(command, tag, offset, &[data.into()], last);
    }

    /// The next step of authentication: the host has both secrets (2, 3), none (4, 5), or does not
    /// authenticate the target.
    pub(super) fn authenticate(&mut self, knowledge: u8) {
        let (subsystem, host_name) = (self.subsystem, self.host_name);
        let machine = self.authentication.get_or_insert_with(|| {
            let known = if knowledge & 4 == 0 { 1 } else { 3 };
            let mut config = HostAuthConfig::new(host_name, subsystem, secret(known));
            config.controller_secret = (knowledge & 1 == 0).then(|| secret(2));
            // Without Diffie-Hellman, since an exponentiation takes more time than everything else
            // together.
            let groups = [zonda_chap::Group::Null];
            config.policy = zonda_chap::Policy::new(&zonda_chap::Hash::ALL, &groups).expect("a valid policy");
            HostAuth::new(config, Random::new([knowledge; 32]))
        });
        if let Some(message) = machine.message() {
            let mut entry: SubmissionEntry =
                AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
            entry.data_pointer = SglDescriptor::in_capsule(0, message.len() as u32);
            self.start(entry, &message.into(), Purpose::Other);
        } else {
            self.message.clear();
            let entry = AuthenticationCommand::new(FabricsType::AuthenticationReceive, MESSAGE_BYTES);
            self.start(entry.into(), &Bytes::new(), Purpose::Message);
        }
    }

    /// Reads received bytes.
    pub(super) fn read(&mut self, pieces: Vec<Bytes>) {
        for piece in pieces {
            self.reader.push(piece);
        }
        while let Some(pdu) = self.reader.next().expect("the target conforms to the protocol") {
            self.take(pdu);
        }
    }

    fn take(&mut self, pdu: Pdu) {
        match pdu {
            Pdu::InitializeResponse(response) => {
                let digests = Digests::from_code(response.digests);
                assert!(self.is_wild || digests.and(self.digests) == digests, "only requested digests are enabled");
                self.reader.set_digests(digests);
                self.writer.set_options(digests, response.data_alignment);
            }
            Pdu::ReadyToTransfer(r2t) => {
                assert!(r2t.length.get() > 0, "an R2T solicits at least one byte");
                self.asked.push_back(r2t);
                if self.answers_r2ts {
                    self.answer(0, 0);
                }
            }
            Pdu::ControllerData { header, data, .. } => {
                let command = header.command_id.get();
                self.check_known(command);
                if matches!(self.outstanding.get(&command), Some((_, Purpose::Message))) {
                    self.message.extend_from_slice(&data);
                }
                if header.is_success() {
                    self.end(command);
                }
            }
            Pdu::Response(entry) => {
                let command = entry.command_id.get();
                self.check_known(command);
                let purpose = self.outstanding.get(&command).map(|(_, purpose)| *purpose);
                if purpose == Some(Purpose::Connect) && entry.status_code().is_success() {
                    let result = ConnectResult::of_success(entry.result.get());
                    if let ConnectResult::Connected { controller_id, .. } = result {
                        self.controller_id = controller_id;
                    }
                }
                self.end(command);
            }
            Pdu::ControllerTermination(_) => {}
            other => panic!("a target must not send {other:?}"),
        }
    }

    fn check_known(&self, command: u16) {
        assert!(self.is_wild || self.outstanding.contains_key(&command), "command {command} is not outstanding");
    }

    fn end(&mut self, command: u16) {
        let Some((count, purpose)) = self.outstanding.get_mut(&command) else { return };
        *count -= 1;
        let (is_over, purpose) = (*count == 0, *purpose);
        if is_over {
            self.outstanding.remove(&command);
            self.data.remove(&command);
        }
        if purpose == Purpose::Message
            && let Some(machine) = &mut self.authentication
        {
            let message = std::mem::take(&mut self.message);
            let _ = machine.receive(&message);
        }
    }
}
