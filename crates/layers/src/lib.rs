//! Small devices that wrap a device, each a [`ZonedDevice`](zonda_zoned::ZonedDevice) itself, so
//! that they stack anywhere.
//!
//! ```text
//!   host                          each layer accepts a command from above and passes it down, or returns it;
//!    |  commands   ^ completions  completions go up through the same layers
//!   Trace          |              records and hashes commands and completions
//!   Delay          |              delays completions
//!   Fault          |              fails, damages and drops commands
//!   Slice          |              a range of zones as a namespace, with a share of the limits
//!   Shared         |              one of several handles on the drive below
//!   Paced          |              gives a device the latencies of a model
//!    v             |
//!   drive                         Memory stores every byte without latency; Null stores nothing
//! ```
//!
//! A layer adds no latency of its own, takes random numbers only from its own generator, and
//! preserves the order of submission in which commands take effect. Policy is not part of this
//! crate: the caller that builds a stack decides who shares a drive, and which faults are injected
//! when.
//!
//! ```
//! use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, Null, OperationSet, Trace, When};
//! use zonda_zoned::{
//!     Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Payload, Prng, Status,
//!     ZonedDevice,
//! };
//!
//! let first_write_fails = FaultRule {
//!     matches: Matcher::operations(OperationSet::WRITES),
//!     when: When::Once,
//!     effect: FaultEffect::Fail(Status::WriteFault),
//! };
//! let drive = Null::new(Geometry::tiny());
//! let mut stack = Trace::new(Fault::new(drive, vec![first_write_fails], Prng::new(1)));
//! let write = |id| {
//!     let operation = Operation::Write { start: Lba(0), blocks: Blocks(4), payload: Payload::None };
//!     Command::new(CommandId(id), NamespaceId::FIRST, operation)
//! };
//! for id in 1..=2 {
//!     stack.submit(Instant(id), write(id)).expect("the queue is not full");
//!     stack.poll(Instant(id), &mut CompletionQueue::new());
//! }
//! let lines: Vec<String> = stack.events().map(|event| event.to_string()).collect();
//! assert_eq!(lines[1], "00000000.000000001 completed #1 write: write fault after 0 ns");
//! assert_eq!(lines[3], "00000000.000000002 completed #2 write: success after 0 ns");
//! ```
#![forbid(unsafe_code)]

mod delay;
mod fault;
mod immediate;
mod kind;
pub mod limits;
mod memory;
mod null;
mod outstanding;
mod paced;
mod rules;
mod shared;
mod slice;
mod sparse;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trace;

pub use delay::{Delay, DelayRule};
pub use fault::{Fault, FaultEffect, FaultRule};
pub use kind::{OperationKind, OperationSet};
pub use memory::Memory;
pub use null::Null;
pub use paced::Paced;
pub use rules::{Matcher, RuleCounters, When};
pub use shared::Shared;
pub use slice::{Slice, SliceConfig, SliceError};
pub use trace::{Trace, TraceCounters, TraceEvent, TraceKind, TraceTarget};

use outstanding::earlier;
