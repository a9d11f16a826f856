//! The NBD server as a state machine: bytes in, bytes and block requests out.
//!
//! A [`Server`] has [`Export`]s. The caller passes to each [`Connection`] the bytes received from
//! its client ([`Connection::on_bytes`]), the number of bytes sent to it ([`Connection::on_sent`]) and
//! the results of its requests ([`Connection::reply`], in any order); the connection emits
//! [`Effect`]s. It stops reading ([`Connection::wants_bytes`]) while its limits are reached.
//!
//! It supports the fixed newstyle handshake, structured replies and `base:allocation`, as in
//! `doc/proto.md` of the project NetworkBlockDevice/nbd. `docs/internals/nbd.md` lists its messages
//! and refusals.
//!
//! What is absent: sockets, clocks (deadlines of a handshake are the caller's), TLS itself, the
//! exports' devices; oldstyle handshakes, extended headers, CACHE, RESIZE.
//!
//! ```
//! use bytes::Bytes;
//! use zonda_nbd::testing::{Answer, Client};
//! use zonda_nbd::{Effect, Export, Operation, Reply, Server, ServerConfig};
//!
//! let server = Server::new(ServerConfig::new(vec![Export::new("disk", 1 << 20)]))?;
//! let mut connection = server.connect();
//! let mut client = Client::new();
//! connection.on_bytes(client.hello("disk"));
//! connection.on_bytes(client.read(7, 4096, 4));
//! while let Some(effect) = connection.poll_effect() {
//!     match effect {
//!         Effect::Send(pieces) => {
//!             client.on_bytes(&pieces.concat());
//!             connection.on_sent(pieces.iter().map(Bytes::len).sum());
//!         }
//!         Effect::Open(index) => assert_eq!(server.export(index).name, "disk"),
//!         Effect::Request(request) => {
//!             assert_eq!(request.operation, Operation::Read { offset: 4096, length: 4 });
//!             connection.reply(request.id, Ok(Reply::data(Bytes::from_static(b"zone"))));
//!         }
//!         Effect::StartTls | Effect::Close(_) => unreachable!("not requested"),
//!     }
//! }
//! assert_eq!(client.finished(), Some((7, Ok(Answer::Data(b"zone".to_vec())))));
//! # Ok::<(), zonda_nbd::ServerConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod connection;
mod error;
mod export;
mod input;
pub mod limits;
mod output;
mod request;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod wire;

pub use connection::{Connection, Stage};
pub use error::{CloseReason, Fault, NbdError};
pub use export::{Export, ExportIndex};
pub use limits::Limits;
pub use request::{Effect, Extent, Operation, ReadPiece, Reply, Request, RequestId};
pub use server::{Server, ServerConfig, ServerConfigError, TlsPolicy};
