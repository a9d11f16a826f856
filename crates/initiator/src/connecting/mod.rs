//! Connects to a namespace: procedures, each of which sends one command at a time and waits for its
//! completion.
//!
//! [`Handshake`] connects one queue, [`Enabling`] enables the controller, [`Identification`]
//! identifies controller and namespace, [`Claiming`] reserves the namespace, [`Survey`] reports the
//! zones. The initiator runs them in this order; discovery uses the first two. Later, [`Refresh`]
//! identifies a namespace that has changed.

pub(crate) mod claiming;
mod enabling;
mod handshake;
mod identification;
mod refresh;
mod survey;

use zonda_nvme::{AdminOpcode, SubmissionEntry};
use zonda_zoned::Instant;

pub(crate) use claiming::Claiming;
pub(crate) use enabling::Enabling;
pub(crate) use handshake::{Handshake, HandshakeOptions};
pub(crate) use identification::{Identification, Remote};
pub(crate) use refresh::Refresh;
pub(crate) use survey::{Survey, geometry_of};

use crate::error::Reason;
use crate::queue::{CommandData, Ended, Owner, Queue};

/// The progress of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for a completion or a timeout.
    More,
    /// It is complete.
    Done,
}

/// An admin command with all other fields zero.
fn admin(opcode: AdminOpcode, namespace: u32) -> SubmissionEntry {
    SubmissionEntry::new(opcode.code(), namespace)
}

/// Sends a command of a step. A queue slot is free: a step has one command at a time, and queues
/// reserve a slot for it.
fn send(queue: &mut Queue, now: Instant, entry: SubmissionEntry, data: CommandData) {
    queue.submit(now, Owner::Procedure, entry, data);
}

/// Returns an error unless the command has succeeded.
pub(crate) fn succeeded(ended: &Ended) -> Result<(), Reason> {
    if !ended.status.is_success() {
        let Ended { status, result, do_not_retry, .. } = *ended;
        return Err(Reason::Status { status, result, do_not_retry });
    }
    if ended.is_damaged { Err(Reason::Damaged) } else { Ok(()) }
}
