//! A client for tests, without sockets: it makes a client's bytes, and holds a server's against the protocol.
//!
//! What is absent: TLS, and any use in a product. A server that breaks the protocol makes it panic.

mod assembly;
mod client;
mod encode;

pub use assembly::{Answer, Failure};
pub use client::{Client, OptionReply};
pub use encode::{Ask, client_flags, info_data, meta_context_data, option, request};
