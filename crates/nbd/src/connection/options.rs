//! Handling of each option (section "Option types").

use bytes::Bytes;
use zerocopy::IntoBytes;

use super::handshake::OptionRefusal;
use super::requests::Transmission;
use super::{Connection, Expect, Tls};
use crate::error::{CloseReason, Fault};
use crate::export::ExportIndex;
use crate::limits::STRING_BYTES_MAX;
use crate::request::Effect;
use crate::wire::handshake::{
    BASE_ALLOCATION, EXPORT_NAME_ZEROES, ExportNameReply, INFO_REQUEST_BYTES, InfoBlockSize, InfoExport, info, option,
    reply,
};

/// The id of `base:allocation` in replies to BLOCK_STATUS.
pub(super) const ALLOCATION_ID: u32 = 1;
/// Queries all contexts of the namespace `base`.
const BASE_WILDCARD: &[u8] = b"base:";

const MALFORMED: OptionRefusal =
    OptionRefusal::new(reply::ERR_INVALID, "the lengths in the option do not match its data");
const UNKNOWN_EXPORT: OptionRefusal =
    OptionRefusal::new(reply::ERR_UNKNOWN, "no such export; LIST reports the exports");
const NOT_STRUCTURED: OptionRefusal =
    OptionRefusal::new(reply::ERR_INVALID, "metadata contexts need structured replies: send STRUCTURED_REPLY first");

impl Connection {
    pub(super) fn option(&mut self, option: u32, data: &Bytes) {
        match option {
            option::EXPORT_NAME => self.export_name(data),
            option::LIST => self.list(),
            option::STARTTLS => self.start_tls(),
            option::INFO | option::GO => self.info(option, data),
            option::STRUCTURED_REPLY => {
                self.structured_replies = true;
                self.reply_to_option(option, reply::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data),
            _ => unreachable!("unknown options are skipped"),
        }
    }

    fn export_name(&mut self, name: &[u8]) {
        let Some(index) = self.server.find(name) else {
            let name = String::from_utf8_lossy(name).into_owned();
            return self.close(CloseReason::UnknownExport { name });
        };
        let export = self.server.export(index);
        let flags = export.transmission_flags(self.structured_replies);
        let reply = ExportNameReply { size: export.size_bytes.into(), flags: flags.into() };
        self.output.copy(reply.as_bytes());
        if !self.client.no_zeroes {
            self.output.zeros(EXPORT_NAME_ZEROES);
        }
        self.begin_transmission(index);
    }

    fn list(&mut self) {
        let server = self.server.clone();
        for export in &server.config().exports {
            let name = export.name.as_bytes();
            let length = (name.len() as u32).to_be_bytes();
            self.reply_to_option(option::LIST, reply::SERVER, &[&length, name, export.description.as_bytes()]);
        }
        self.reply_to_option(option::LIST, reply::ACK, &[]);
    }

    /// Nothing negotiated before TLS remains in force: a man in the middle may have injected it.
    fn start_tls(&mut self) {
        if !self.input.is_empty() {
            return self.fail(Fault::PlaintextBehindStartTls);
        }
        self.structured_replies = false;
        self.allocation_of = None;
        self.reply_to_option(option::STARTTLS, reply::ACK, &[]);
        self.flush_output();
        self.effects.push_back(Effect::StartTls);
        self.tls = Tls::Starting;
    }

    fn info(&mut self, option: u32, data: &[u8]) {
        let Some((name, wanted)) = info_request(data) else { return self.refuse_option(option, MALFORMED) };
        let Some(index) = self.server.find(name) else {
            self.unknown_export = (option == option::GO).then(|| String::from_utf8_lossy(name).into_owned());
            return self.refuse_option(option, UNKNOWN_EXPORT);
        };
        self.unknown_export = None;
        let server = self.server.clone();
        let export = server.export(index);
        let flags = export.transmission_flags(self.structured_replies);
        let size = InfoExport { kind: info::EXPORT.into(), size: export.size_bytes.into(), flags: flags.into() };
        self.reply_to_option(option, reply::INFO, &[size.as_bytes()]);
        // Block sizes are sent even if not requested: a client that receives them obeys them.
        let blocks = InfoBlockSize {
            kind: info::BLOCK_SIZE.into(),
            minimum: export.minimum_block_bytes.into(),
            preferred: export.preferred_block_bytes.into(),
            maximum: export.maximum_block_bytes.into(),
        };
        self.reply_to_option(option, reply::INFO, &[blocks.as_bytes()]);
        if wanted.contains(info::NAME) || name != export.name.as_bytes() {
            self.reply_to_option(option, reply::INFO, &[&info::NAME.to_be_bytes(), export.name.as_bytes()]);
        }
        if wanted.contains(info::DESCRIPTION) && !export.description.is_empty() {
            let kind = info::DESCRIPTION.to_be_bytes();
            self.reply_to_option(option, reply::INFO, &[&kind, export.description.as_bytes()]);
        }
        self.reply_to_option(option, reply::ACK, &[]);
        if option == option::GO {
            self.begin_transmission(index);
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            self.allocation_of = None;
        }
        let Some((name, queries)) = meta_context_request(data) else { return self.refuse_option(option, MALFORMED) };
        if !self.structured_replies {
            return self.refuse_option(option, NOT_STRUCTURED);
        }
        let Some(index) = self.server.find(name) else { return self.refuse_option(option, UNKNOWN_EXPORT) };
        let is_listed = !is_set && (queries.is_empty() || queries.contains(&BASE_WILDCARD));
        if is_listed || queries.contains(&BASE_ALLOCATION) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            self.reply_to_option(option, reply::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION]);
            self.allocation_of = if is_set { Some(index) } else { self.allocation_of };
        }
        self.reply_to_option(option, reply::ACK, &[]);
    }

    fn begin_transmission(&mut self, index: ExportIndex) {
        let has_allocation = self.structured_replies && self.allocation_of == Some(index);
        self.transmission = Some(Transmission { export: index, has_allocation });
        self.expect = Expect::RequestHeader;
        self.effects.push_back(Effect::Open(index));
    }
}

/// Information requests of a client, two bytes each.
struct InfoRequests<'a>(&'a [u8]);

impl InfoRequests<'_> {
    fn contains(&self, kind: u16) -> bool {
        self.0.chunks_exact(INFO_REQUEST_BYTES).any(|request| request == kind.to_be_bytes())
    }
}

/// The name and the information requests; `None` when the lengths do not match.
fn info_request(mut data: &[u8]) -> Option<(&[u8], InfoRequests<'_>)> {
    let name = string(&mut data)?;
    let (count, requests) = data.split_first_chunk::<2>()?;
    let is_whole = requests.len() == usize::from(u16::from_be_bytes(*count)) * INFO_REQUEST_BYTES;
    is_whole.then_some((name, InfoRequests(requests)))
}

/// The export's name and the queries; `None` when the lengths do not match.
fn meta_context_request(mut data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let name = string(&mut data)?;
    let count = number(&mut data)?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(string(&mut data)?);
    }
    data.is_empty().then_some((name, queries))
}

/// Takes a 32-bit number from the front.
fn number(data: &mut &[u8]) -> Option<u32> {
    let (number, rest) = data.split_first_chunk::<4>()?;
    *data = rest;
    Some(u32::from_be_bytes(*number))
}

/// Takes a string from the front, preceded by its length.
fn string<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(data)? as usize;
    if length > STRING_BYTES_MAX {
        return None;
    }
    let (string, rest) = data.split_at_checked(length)?;
    *data = rest;
    Some(string)
}
