//! The protocol's messages as bytes. All numbers are in network byte order.
//!
//! The source is the protocol's document, `doc/proto.md` of the project NetworkBlockDevice/nbd;
//! sections are named by their headings there.

pub mod handshake;
pub mod transmission;
