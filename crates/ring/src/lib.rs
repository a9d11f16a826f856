//! One event loop for a thread: sockets, files and a clock on io_uring, or on epoll where io_uring
//! is refused.
//!
//! A [`Ring`] belongs to the thread that created it. A [`Client`] submits [`Operation`]s and
//! collects [`Done`]s; [`Ring::run_once`] is the only place that sleeps. Buffers belong to an
//! operation from `submit` until it has ended. Operations complete as a whole: a short send or a
//! short write is continued inside the ring.
//!
//! # Order
//! Sends on one socket leave in the order of submission. Everything else is unordered: two writes
//! of one file that overlap must not be outstanding together.
//!
//! # What is absent
//! No protocol, no policy, no interpretation of bytes: no retries, no timeouts of operations (a
//! caller shuts the socket down), no buffer pools but that of registered buffers, no limits on what a
//! peer may request. The one bound of operations, [`limits::OPERATIONS_MAX`], catches callers that have
//! none of their own.
//!
//! # Unsafe code
//! It lives in five files: `filled.rs` (bytes that the kernel wrote become part of a buffer),
//! `uring/sys.rs` (memory lent to the kernel) and `device_control.rs` (requests to block devices and to
//! NVMe namespaces), `passthrough.rs` (memory lent to an NVMe device) and `registered.rs` (memory that the
//! kernel has pinned). The rest of the crate denies it.
//!
//! ```
//! use std::rc::Rc;
//! use zonda_ring::{Bytes, BytesMut, Operation, Outcome, Ring, RingOptions, Socket};
//!
//! # fn main() -> std::io::Result<()> {
//! let ring = Ring::new(RingOptions::default())?;
//! let client = ring.client();
//! let (left, right) = Socket::pair()?;
//! client.submit(1, Operation::Receive { socket: Rc::new(right), buffer: BytesMut::with_capacity(16) });
//! client.submit(2, Operation::Send { socket: Rc::new(left), pieces: vec![Bytes::from("hello, "), Bytes::from("ring")] });
//! while client.outstanding() > 0 {
//!     ring.run_once(None)?;
//!     while let Some(done) = client.next() {
//!         match done.result? {
//!             Outcome::Received(buffer) => assert_eq!(&buffer[..], b"hello, ring"),
//!             outcome => assert!(matches!(outcome, Outcome::Sent)),
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod address;
mod client;
mod clock;
mod device_control;
mod entries;
mod epoll;
mod file;
mod filled;
pub mod limits;
mod operation;
mod options;
mod passthrough;
mod registered;
mod ring;
mod send_queue;
mod socket;
mod spin;
mod uring;
mod waker;
mod work;

pub use address::Address;
pub use bytes::{Bytes, BytesMut};
pub use client::Client;
pub use device_control::{NvmeTarget, ZoneRequest};
pub use file::{File, FileOptions};
pub use operation::{Done, Operation, Outcome};
pub use options::{Backend, RingOptions};
pub use passthrough::{CommandData, NvmeAnswer, NvmeCommand, PassthroughDone, PassthroughQueue};
pub use registered::RegisteredBuffer;
pub use ring::Ring;
pub use socket::Socket;
pub use waker::Waker;
