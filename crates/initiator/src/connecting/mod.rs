//! From nothing to a namespace that takes commands: sub-procedures, each of which sends a command and waits for its end.
//!
//! [`Handshake`] brings one queue up, [`Enabling`] turns the controller on, [`Identification`] learns what it is and what
//! the namespace is, [`Claiming`] makes it this host's alone, [`Survey`] looks at the zones. The initiator strings them together; discovery uses the first two.

pub(crate) mod claiming;
mod enabling;
mod handshake;
mod identification;
mod survey;

use zonda_nvme::{AdminOpcode, SubmissionEntry};
use zonda_zoned::Instant;

pub(crate) use claiming::Claiming;
pub(crate) use enabling::Enabling;
pub(crate) use handshake::{Handshake, HandshakeOptions};
pub(crate) use identification::{Identification, Remote};
pub(crate) use survey::{Survey, geometry_of};

use crate::error::Reason;
use crate::queue::{CommandData, Ended, Owner, Queue};

/// How far a sub-procedure has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for something.
    More,
    /// It has reached its end.
    Done,
}

/// An admin command, all else zero.
fn admin(opcode: AdminOpcode, namespace: u32) -> SubmissionEntry {
    SubmissionEntry::new(opcode.code(), namespace)
}

/// Sends a command of a step. There is room: a step has one command at a time, and queues keep a place for it.
fn send(queue: &mut Queue, now: Instant, entry: SubmissionEntry, data: CommandData) {
    queue.submit(now, Owner::Procedure, entry, data);
}

/// A command must have succeeded.
pub(crate) fn succeeded(ended: &Ended) -> Result<(), Reason> {
    if !ended.status.is_success() {
        let Ended { status, result, do_not_retry, .. } = *ended;
        return Err(Reason::Status { status, result, do_not_retry });
    }
    if ended.is_damaged { Err(Reason::Damaged) } else { Ok(()) }
}
