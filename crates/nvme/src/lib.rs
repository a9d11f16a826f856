//! NVMe on the wire: the structures of commands, data pages and NVMe/TCP PDUs, and nothing that keeps state about them.
//!
//! Sources: NVMe Base Specification 2.0, NVM Command Set 1.0, Zoned Namespace Command Set 1.1, NVMe/TCP Transport 1.0. Each
//! structure names its section and shows its bytes.
//!
//! - [`SubmissionEntry`], [`CompletionEntry`], [`StatusCode`] and the opcodes are what capsules carry.
//! - [`io`] turns I/O commands into operations on zones, and back.
//! - [`fabrics`] has Connect, properties, and the other Fabrics commands.
//! - [`reservation`] has the commands with which hosts share a namespace, and what they report.
//! - [`identify`], [`log`], [`features`], [`discovery`] and [`zns`] are the data pages that commands return.
//! - [`tcp`] cuts a byte stream into PDUs, and makes PDUs.
//!
//! What is absent: sockets, queues, controllers, time, and any opinion on which command may follow which. PRPs, keyed
//! SGLs, protection information and fused commands are not here either.
//!
//! ```
//! use bytes::Bytes;
//! use zonda_nvme::tcp::{Digests, Pdu, PduReader, PduWriter, ReaderLimits, Side};
//! use zonda_nvme::{IoOpcode, SubmissionEntry};
//!
//! let mut writer = PduWriter::new();
//! writer.command(&SubmissionEntry::new(IoOpcode::Flush.code(), 1), &Bytes::new());
//!
//! let mut reader = PduReader::new(Side::Controller, ReaderLimits::default());
//! reader.set_digests(Digests::NONE);
//! for piece in writer.take() {
//!     reader.push(piece);
//! }
//! assert!(matches!(reader.next(), Ok(Some(Pdu::Command { .. }))));
//! ```
#![forbid(unsafe_code)]

pub mod discovery;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod io;
pub mod log;
mod nqn;
mod opcode;
pub mod page;
mod property;
mod queue_entry;
pub mod reservation;
mod status;
pub mod tcp;
pub mod zns;

pub use nqn::{HostId, NQN_BYTES_MAX, NQN_FIELD_BYTES, Nqn, NqnError};
pub use opcode::{AdminOpcode, FabricsType, IoOpcode, UnknownOpcode};
pub use queue_entry::{CompletionEntry, DataPlace, SglDescriptor, SubmissionEntry};
pub use status::StatusCode;
