//! The handshake up to an option and its data (sections "Newstyle negotiation", "Fixed newstyle
//! negotiation").

use zerocopy::{FromBytes, IntoBytes};

use super::{Connection, Expect, Tls};
use crate::error::{CloseReason, Fault};
use crate::limits::{MESSAGE_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, STRING_BYTES_MAX};
use crate::server::TlsPolicy;
use crate::wire::handshake::{
    Greeting, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, flags, option, reply,
};

/// The handshake flags that the client has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientFlags {
    pub(super) fixed_newstyle: bool,
    pub(super) no_zeroes: bool,
}

/// An error reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionRefusal {
    kind: u32,
    message: &'static str,
}

impl OptionRefusal {
    pub(super) const fn new(kind: u32, message: &'static str) -> OptionRefusal {
        assert!(kind & reply::ERROR != 0 && message.len() <= MESSAGE_BYTES_MAX);
        OptionRefusal { kind, message }
    }
}

const UNKNOWN_OPTION: OptionRefusal = OptionRefusal::new(reply::ERR_UNSUP, "the option is not supported");
const EXTENDED_HEADERS: OptionRefusal =
    OptionRefusal::new(reply::ERR_UNSUP, "extended headers are not supported; use structured replies");
const TOO_BIG: OptionRefusal =
    OptionRefusal::new(reply::ERR_TOO_BIG, "the data of an option may have at most 65536 bytes");
const NO_DATA: OptionRefusal = OptionRefusal::new(reply::ERR_INVALID, "this option has no data");
const TLS_FIRST: OptionRefusal = OptionRefusal::new(reply::ERR_TLS_REQD, "TLS is required: send STARTTLS first");
const NO_TLS: OptionRefusal = OptionRefusal::new(reply::ERR_POLICY, "TLS is not configured on this server");
const TLS_TWICE: OptionRefusal = OptionRefusal::new(reply::ERR_INVALID, "TLS is already active");
const NO_LIST: OptionRefusal =
    OptionRefusal::new(reply::ERR_POLICY, "this server does not list its exports; specify an export name");

const _: () = assert!(OPTION_BYTES_MAX == 65_536, "the text of TOO_BIG");

impl Connection {
    /// Sends the greeting.
    pub(super) fn greet(&mut self) {
        let flags = flags::FIXED_NEWSTYLE | flags::NO_ZEROES;
        let greeting = Greeting { nbd_magic: NBD_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() };
        self.output.copy(greeting.as_bytes());
    }

    pub(super) fn take_client_flags(&mut self) -> bool {
        let Some(bytes) = self.input.take(4) else { return false };
        let flags = u32::from_be_bytes(bytes[..].try_into().expect("take returned four bytes"));
        if flags & !u32::from(flags::FIXED_NEWSTYLE | flags::NO_ZEROES) != 0 {
            self.fail(Fault::ClientFlags { flags });
            return false;
        }
        self.client = ClientFlags {
            fixed_newstyle: flags & u32::from(flags::FIXED_NEWSTYLE) != 0,
            no_zeroes: flags & u32::from(flags::NO_ZEROES) != 0,
        };
        self.expect = Expect::OptionHeader;
        true
    }

    pub(super) fn take_option_header(&mut self) -> bool {
        let Some(bytes) = self.input.take(size_of::<OptionHeader>()) else { return false };
        let header = OptionHeader::read_from_bytes(&bytes).expect("take returned the bytes of a header");
        let (option, length) = (header.option.get(), header.length.get());
        self.options += 1;
        let fault = if header.magic.get() != OPTION_MAGIC {
            Some(Fault::OptionMagic { found: header.magic.get() })
        } else if self.options > OPTIONS_MAX {
            Some(Fault::TooManyOptions)
        } else if !self.client.fixed_newstyle && option != option::EXPORT_NAME {
            Some(Fault::NotFixedNewstyle { option })
        } else if option == option::EXPORT_NAME && length as usize > STRING_BYTES_MAX {
            Some(Fault::NameTooLong { length_bytes: length })
        } else {
            None
        };
        if let Some(fault) = fault {
            self.fail(fault);
            return false;
        }
        match option {
            // The client may disconnect before it has read the reply, and the data of the option
            // have no meaning.
            option::ABORT => {
                self.reply_to_option(option, reply::ACK, &[]);
                let unknown = self.unknown_export.take().map(|name| CloseReason::UnknownExport { name });
                self.close(unknown.unwrap_or(CloseReason::Aborted));
            }
            option::EXPORT_NAME if self.needs_tls() => self.close(CloseReason::TlsRequired),
            _ => {
                self.expect = match self.refusal(option, length) {
                    Some(refusal) => Expect::SkipOption { option, left: length, refusal },
                    None => Expect::OptionData { option, length },
                }
            }
        }
        true
    }

    /// Why an option is refused regardless of its data.
    fn refusal(&self, option: u32, length: u32) -> Option<OptionRefusal> {
        if self.needs_tls() && option != option::STARTTLS {
            return Some(TLS_FIRST);
        }
        match option {
            option::STARTTLS if length > 0 => Some(NO_DATA),
            option::STARTTLS if self.tls == Tls::On => Some(TLS_TWICE),
            option::STARTTLS if self.server.config().tls == TlsPolicy::Off => Some(NO_TLS),
            option::LIST | option::STRUCTURED_REPLY if length > 0 => Some(NO_DATA),
            option::LIST if !self.server.config().may_list => Some(NO_LIST),
            option::INFO | option::GO | option::LIST_META_CONTEXT | option::SET_META_CONTEXT
                if length > OPTION_BYTES_MAX =>
            {
                Some(TOO_BIG)
            }
            option::EXPORT_NAME
            | option::STARTTLS
            | option::LIST
            | option::STRUCTURED_REPLY
            | option::INFO
            | option::GO
            | option::LIST_META_CONTEXT
            | option::SET_META_CONTEXT => None,
            option::EXTENDED_HEADERS => Some(EXTENDED_HEADERS),
            _ => Some(UNKNOWN_OPTION),
        }
    }

    fn needs_tls(&self) -> bool {
        self.server.config().tls == TlsPolicy::Required && self.tls != Tls::On
    }

    pub(super) fn take_option_data(&mut self, option: u32, length: u32) -> bool {
        let Some(data) = self.input.take(length as usize) else { return false };
        self.expect = Expect::OptionHeader;
        self.option(option, &data);
        true
    }

    pub(super) fn skip_option(&mut self, option: u32, left: u32, refusal: OptionRefusal) -> bool {
        let left = left - self.input.skip(left);
        if left > 0 {
            self.expect = Expect::SkipOption { option, left, refusal };
            return false;
        }
        // A SET_META_CONTEXT that fails still replaces the earlier selection.
        if option == option::SET_META_CONTEXT {
            self.allocation_of = None;
        }
        self.expect = Expect::OptionHeader;
        self.refuse_option(option, refusal);
        true
    }

    pub(super) fn refuse_option(&mut self, option: u32, refusal: OptionRefusal) {
        self.reply_to_option(option, refusal.kind, &[refusal.message.as_bytes()]);
    }

    pub(super) fn reply_to_option(&mut self, option: u32, kind: u32, data: &[&[u8]]) {
        let length: usize = data.iter().map(|part| part.len()).sum();
        let header = OptionReplyHeader {
            magic: OPTION_REPLY_MAGIC.into(),
            option: option.into(),
            kind: kind.into(),
            length: (length as u32).into(),
        };
        self.output.copy(header.as_bytes());
        data.iter().for_each(|part| self.output.copy(part));
    }
}
