//! A client for tests, without sockets: it encodes messages of a client, and checks those of a
//! server against the protocol.
//!
//! What is absent: TLS, and any use in a product. It panics if a server violates the protocol.

mod assembly;
mod client;
mod encode;

pub use assembly::{Answer, Failure};
pub use client::{Client, OptionReply};
pub use encode::{Ask, client_flags, info_data, meta_context_data, option, request};
