//! Incoming requests: their headers, refusals, their data (section "Request types").

use bytes::Bytes;
use zerocopy::FromBytes;

use super::in_flight::{Pending, PendingKind};
use super::{Connection, Expect};
use crate::error::{Fault, NbdError, Refusal};
use crate::export::{Export, ExportIndex};
use crate::limits::{SHARED_DATA_BYTES_MIN, STATUS_REPLY_BYTES_MAX};
use crate::request::{Effect, Operation, Request};
use crate::wire::transmission::{REQUEST_MAGIC, RequestHeader, command, command_flags};

/// The result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transmission {
    pub(super) export: ExportIndex,
    /// Whether BLOCK_STATUS is permitted.
    pub(super) has_allocation: bool,
}

/// A request whose header was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

/// A request that is refused with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    cookie: u64,
    refusal: Refusal,
}

impl Incoming {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of data that it carries or requests.
    fn data_bytes(&self) -> usize {
        match self.command {
            command::READ | command::WRITE => self.length as usize,
            _ => 0,
        }
    }

    /// Bytes that are reserved for it until its reply.
    pub(super) fn reserved_bytes(&self) -> usize {
        match self.command {
            command::BLOCK_STATUS => STATUS_REPLY_BYTES_MAX,
            _ => self.data_bytes(),
        }
    }

    /// Whether it covers no bytes; such a request completes at once.
    fn is_empty(&self) -> bool {
        self.length == 0 && self.command != command::FLUSH
    }
}

impl Connection {
    pub(super) fn take_request_header(&mut self) -> bool {
        let Some(bytes) = self.input.take(size_of::<RequestHeader>()) else { return false };
        let header = RequestHeader::read_from_bytes(&bytes).expect("take returned the bytes of a header");
        if header.magic.get() != REQUEST_MAGIC {
            self.fail(Fault::RequestMagic { found: header.magic.get() });
            return false;
        }
        let incoming = Incoming {
            flags: header.flags.get(),
            command: header.command.get(),
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            length: header.length.get(),
        };
        if incoming.command == command::DISC {
            self.expect = Expect::Nothing;
            self.input.clear();
            self.close_when_drained();
            return false;
        }
        self.expect = Expect::Memory(incoming);
        true
    }

    /// Refuses a request, or reserves memory for it.
    pub(super) fn admit(&mut self, incoming: Incoming) -> bool {
        if let Err(refusal) = self.check(&incoming) {
            let refused = Refused { cookie: incoming.cookie, refusal };
            let left = if incoming.command == command::WRITE { incoming.length } else { 0 };
            self.expect = Expect::SkipWriteData { left, refused };
            return true;
        }
        if incoming.is_empty() {
            self.expect = Expect::RequestHeader;
            self.reply_empty(incoming.command, incoming.cookie);
            return true;
        }
        if !self.is_within_limits(incoming) || self.held_bytes() + incoming.reserved_bytes() > self.allowed_bytes {
            return false;
        }
        self.in_flight.reserve(incoming.reserved_bytes());
        if incoming.command == command::WRITE {
            self.expect = Expect::WriteData(incoming);
        } else {
            self.expect = Expect::RequestHeader;
            self.emit_request(&incoming, Bytes::new());
        }
        true
    }

    pub(super) fn take_write_data(&mut self, incoming: Incoming) -> bool {
        let Some(data) = self.input.take(incoming.length as usize) else { return false };
        self.expect = Expect::RequestHeader;
        let data = if data.len() < SHARED_DATA_BYTES_MIN { Bytes::copy_from_slice(&data) } else { data };
        self.emit_request(&incoming, data);
        true
    }

    pub(super) fn skip_write_data(&mut self, left: u32, refused: Refused) -> bool {
        let left = left - self.input.skip(left);
        if left > 0 {
            self.expect = Expect::SkipWriteData { left, refused };
            return false;
        }
        self.expect = Expect::RequestHeader;
        self.reply_error(refused.cookie, refused.refusal);
        true
    }

    /// The granularity of extents.
    pub(super) fn granularity_bytes(&self) -> u32 {
        let transmission = self.transmission.as_ref().expect("requests arrive after the handshake");
        self.server.export(transmission.export).granularity_bytes()
    }

    /// Passes a valid request to the caller.
    fn emit_request(&mut self, incoming: &Incoming, data: Bytes) {
        let &Incoming { offset, length, .. } = incoming;
        let fua = incoming.has(command_flags::FUA);
        let mut kind = PendingKind::Plain;
        let operation = match incoming.command {
            command::READ => {
                kind = PendingKind::Read { offset, length, unfragmented: incoming.has(command_flags::DF) };
                Operation::Read { offset, length }
            }
            command::WRITE => Operation::Write { offset, data, fua },
            command::FLUSH => Operation::Flush,
            command::TRIM => Operation::Trim { offset, length, fua },
            command::WRITE_ZEROES => {
                let (may_trim, fast) = (!incoming.has(command_flags::NO_HOLE), incoming.has(command_flags::FAST_ZERO));
                kind = if fast { PendingKind::FastZeroes } else { kind };
                Operation::WriteZeroes { offset, length, fua, may_trim, fast }
            }
            command::BLOCK_STATUS => {
                let one = incoming.has(command_flags::REQ_ONE);
                kind = PendingKind::Status { length, one };
                Operation::BlockStatus { offset, length, one }
            }
            _ => unreachable!("other commands are refused"),
        };
        let pending = Pending { cookie: incoming.cookie, kind, data_bytes: incoming.reserved_bytes() };
        let id = self.in_flight.insert(pending);
        self.effects.push_back(Effect::Request(Request { id, operation }));
    }

    /// Checks whether a request is valid.
    fn check(&self, incoming: &Incoming) -> Result<(), Refusal> {
        let transmission = self.transmission.as_ref().expect("requests arrive after the handshake");
        let export = self.server.export(transmission.export);
        if self.is_shutting_down {
            return Err(NbdError::Shutdown.into());
        }
        check_flags(incoming, export, self.structured_replies)?;
        match incoming.command {
            command::FLUSH if incoming.offset != 0 || incoming.length != 0 => {
                return invalid("offset and length of FLUSH must be 0");
            }
            command::FLUSH => return Ok(()),
            command::WRITE | command::TRIM | command::WRITE_ZEROES if export.read_only => {
                return Err(Refusal { error: NbdError::NotPermitted, message: "the export is read-only" });
            }
            command::BLOCK_STATUS if !transmission.has_allocation => {
                return invalid("no metadata context was selected for this export");
            }
            command::BLOCK_STATUS if incoming.length == 0 => {
                return invalid("the length of BLOCK_STATUS must not be 0");
            }
            _ => {}
        }
        check_range(incoming, export)
    }
}

/// Checks whether a command and its flags are supported.
fn check_flags(incoming: &Incoming, export: &Export, structured_replies: bool) -> Result<(), Refusal> {
    let own = match incoming.command {
        command::READ if structured_replies => command_flags::DF,
        command::READ | command::WRITE | command::FLUSH | command::TRIM => 0,
        command::WRITE_ZEROES if export.fast_zero => command_flags::NO_HOLE | command_flags::FAST_ZERO,
        command::WRITE_ZEROES => command_flags::NO_HOLE,
        command::BLOCK_STATUS => command_flags::REQ_ONE,
        command::CACHE => return invalid("CACHE is not supported"),
        _ => return invalid("the command is not supported"),
    };
    // FUA is permitted on any command; it has no effect where nothing is written.
    if incoming.flags & !(own | command_flags::FUA) != 0 {
        return invalid("the command does not support this flag, or the server did not offer it");
    }
    Ok(())
}

/// Checks a range against the size and the block sizes of the export.
fn check_range(incoming: &Incoming, export: &Export) -> Result<(), Refusal> {
    let &Incoming { offset, length, .. } = incoming;
    if incoming.data_bytes() > export.maximum_block_bytes as usize {
        return invalid("longer than the maximum block size");
    }
    if offset.checked_add(u64::from(length)).is_none_or(|end| end > export.size_bytes) {
        let error = match incoming.command {
            command::WRITE | command::WRITE_ZEROES => NbdError::NoSpace,
            _ => NbdError::Invalid,
        };
        return Err(Refusal { error, message: "the range ends beyond the end of the export" });
    }
    let granularity = u64::from(export.granularity_bytes());
    if !(offset | u64::from(length)).is_multiple_of(granularity) {
        return invalid("offset or length is not a multiple of the minimum block size");
    }
    Ok(())
}

fn invalid(message: &'static str) -> Result<(), Refusal> {
    Err(Refusal { error: NbdError::Invalid, message })
}
