//! NVMe on the wire: the structures of commands, data pages and NVMe/TCP PDUs, without any state.
//!
//! Sources: NVMe Base Specification 2.0, NVM Command Set 1.0, Zoned Namespace Command Set 1.1,
//! NVMe/TCP Transport 1.0. Each structure names its section and shows its bytes.
//!
//! - [`SubmissionEntry`], [`CompletionEntry`], [`StatusCode`] and the opcodes are the contents of
//!   capsules.
//! - [`io`] converts between I/O commands and operations on zones.
//! - [`fabrics`] has Connect, properties, and the other Fabrics commands.
//! - [`reservation`] has the reservation commands and their reports.
//! - [`identify`], [`log`], [`features`], [`discovery`] and [`zns`] are the data pages that
//!   commands return.
//! - [`tcp`] splits a byte stream into PDUs, and writes PDUs.
//!
//! Not included: sockets, queues, controllers, time, and the allowed order of commands. PRPs, keyed
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
