//! [`Ownership`]: a pool completes commands only while it is known that its drive is reserved for
//! it, as a volume does ([`crate::volume::lease`]).
//!
//! Most commands of hosts go to the drive, where they fail with Reservation Conflict once another
//! owner has it. Some do not: reads of blocks that were never written, and reports of zones. So the
//! drive must have confirmed within the last [`LEASE`] that it is reserved for this pool; until then
//! commands wait. A takeover waits for the same time before the pool is used.

use std::collections::VecDeque;

use zonda_initiator::Holder;
use zonda_zoned::{Command, Completion, CompletionQueue, Instant, QueueFull, Status, ZonedDevice};

use super::shared::{OpenPool, Phase, UserId};
use crate::DriveError;
use crate::volume::lease::{ASK_INTERVAL, LEASE, NAME_MAX};
use crate::volume::member_device::MemberDevice;

/// Whether a pool may complete commands.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// When to request a confirmation next.
    ask_at: Instant,
    /// Commands that wait for a confirmation, with the identifiers of their users.
    held: VecDeque<(UserId, Command)>,
    /// Another owner has the pool; its holder, if that is known.
    taken_by: Option<Option<Holder>>,
}

/// Whether commands may be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The pool is the owner.
    Own,
    /// That has to be confirmed.
    Unconfirmed,
    /// The connection is lost: nothing is confirmed any more.
    Lost,
}

impl Ownership {
    pub(super) fn is_taken(&self) -> bool {
        self.taken_by.is_some()
    }

    fn known(&self, drive: &MemberDevice, now: Instant) -> Known {
        let is_confirmed = || drive.confirmed_at().is_some_and(|at| now < at + LEASE);
        if drive.drive.is_disconnected() {
            Known::Lost
        } else if !drive.is_remote() || is_confirmed() {
            Known::Own
        } else {
            Known::Unconfirmed
        }
    }

    /// Whether the drive is known to be reserved for this pool.
    pub(super) fn is_confirmed(&self, drive: &MemberDevice, now: Instant) -> bool {
        self.known(drive, now) == Known::Own
    }

    /// Whether a command may be submitted now, and none waits.
    pub(super) fn holds(&self, drive: &MemberDevice, now: Instant) -> bool {
        self.held.is_empty() && self.known(drive, now) == Known::Own
    }

    pub(super) fn hold(&mut self, user: UserId, command: Command) {
        self.held.push_back((user, command));
    }

    /// Nothing is confirmed yet over a new connection.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.ask_at = now;
    }

    /// When to poll, for a pool that is open.
    pub(super) fn next_timeout(&self, drive: &MemberDevice) -> Option<Instant> {
        if !drive.drive.is_disconnected() { drive.is_remote().then_some(self.ask_at) } else { Some(Instant::ZERO) }
    }
}

impl OpenPool {
    /// Requests a confirmation when that is due, and submits the commands that waited for one.
    pub(super) fn keep_ownership(&mut self, now: Instant) {
        let drive = self.device.drive_mut().member_mut();
        if drive.is_remote() && self.ownership.ask_at <= now {
            self.ownership.ask_at = now + ASK_INTERVAL;
            drive.confirm(now);
        }
        match self.ownership.known(self.device.drive().member(), now) {
            Known::Unconfirmed | Known::Lost => {}
            Known::Own => {
                while let Some((user, command)) = self.ownership.held.pop_front() {
                    if let Err(QueueFull(command)) = self.pass_on(now, user, command) {
                        self.ownership.held.push_front((user, command));
                        break;
                    }
                }
            }
        }
    }

    pub(super) fn refuse_held(&mut self, status: Status) {
        for (user, command) in std::mem::take(&mut self.ownership.held) {
            self.complete(user, Completion::of(command.id, status));
        }
    }

    /// If a command has failed with Reservation Conflict, another owner has the pool: nothing is
    /// written any more, and every command of a host fails. Returns whether that is so.
    pub(super) fn look_for_conflict(&mut self, now: Instant) -> bool {
        if !self.device.drive().member().is_refused() {
            return false;
        }
        self.phase = Phase::TakenOver(now + NAME_MAX);
        self.fail_as_taken(None);
        true
    }

    fn fail_as_taken(&mut self, holder: Option<Holder>) {
        self.ownership.taken_by = Some(holder);
        self.refuse_held(Status::InternalError);
        self.fail_outstanding(Status::InternalError);
        let error = self.taken_error();
        self.pending.fail_all(&error);
    }

    /// Logs the new owner, once it is known, and closes the connection: the reservation of the new
    /// owner stays.
    pub(super) fn end_ownership(&mut self, now: Instant) {
        let Phase::TakenOver(until) = self.phase else { return };
        let drive = self.device.drive_mut().member_mut();
        drive.poll(now, &mut CompletionQueue::new());
        let Some(holder) = drive.refused_by().or((now >= until).then_some(None)) else { return };
        self.end_as_taken(holder, now);
    }

    /// Another owner has the pool.
    pub(super) fn end_as_taken(&mut self, holder: Option<Holder>, now: Instant) {
        self.fail_as_taken(holder);
        self.device.drive_mut().member_mut().drive.close_reserved(now);
        self.phase = Phase::Closing;
        let error = self.taken_error();
        self.warnings.push_back(format!(
            "the pool is no longer served: {}; writes acknowledged before are safe. {}",
            error.message, error.help
        ));
    }

    /// The error for a pool that another owner has.
    pub(super) fn taken_error(&self) -> DriveError {
        let by = match self.ownership.taken_by.flatten() {
            Some(holder) => format!("has been taken over by {}", self.directory.shown(&holder)),
            None => "is no longer reserved for this pool".to_owned(),
        };
        DriveError::new(
            format!("the drive {} of the pool {by}", self.directory.shown_drive()),
            format!(
                "To serve the pool from here again, stop both servers, and run: zonda pool takeover {}",
                self.directory.path().display()
            ),
        )
    }
}
