//! Encodes messages of a client, valid or not.

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::wire::handshake::{OPTION_MAGIC, OptionHeader};
use crate::wire::transmission::{REQUEST_MAGIC, RequestHeader};

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// See [`crate::wire::transmission::command`].
    pub command: u16,
    /// See [`crate::wire::transmission::command_flags`].
    pub flags: u16,
    /// The client's cookie.
    pub cookie: u64,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// The client's flags, its first bytes.
#[must_use]
pub fn client_flags(flags: u32) -> Bytes {
    Bytes::copy_from_slice(&flags.to_be_bytes())
}

/// An option with its data.
#[must_use]
pub fn option(option: u32, data: &[u8]) -> Bytes {
    let header = OptionHeader { magic: OPTION_MAGIC.into(), option: option.into(), length: (data.len() as u32).into() };
    [header.as_bytes(), data].concat().into()
}

/// Data of INFO and GO: see [`crate::wire::handshake::info`].
#[must_use]
pub fn info_data(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[must_use]
pub fn meta_context_data(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&string(query)));
    data
}

/// A request, followed by its data, which only a WRITE has.
#[must_use]
pub fn request(ask: Ask, data: &[u8]) -> Bytes {
    let header = RequestHeader {
        magic: REQUEST_MAGIC.into(),
        flags: ask.flags.into(),
        command: ask.command.into(),
        cookie: ask.cookie.into(),
        offset: ask.offset.into(),
        length: ask.length.into(),
    };
    [header.as_bytes(), data].concat().into()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}
