//! A pool whose drive is a namespace of another server reconnects when the connection is lost; one whose
//! drive is of this machine opens it again when it was unplugged and is back.
//!
//! Commands that were in the pool fail, because it is not known which have taken effect; later ones
//! wait. Over the new connection the pool is mounted again before it takes commands: it may find more
//! than it knew of, and must find what it has acknowledged. A drive that lacks some of that, because its
//! machine has lost power or it is an older copy, is not used: hosts would not learn that blocks are
//! missing that they have not flushed.

use zonda_zoned::{CompletionQueue, Duration, Instant, Status, ZonedDevice};

use super::base::PoolBase;
use super::directory::PoolDirectory;
use super::shared::{OpenPool, Phase};
use crate::identifier::may_be_same;
use crate::opening::{OnRing, Opening};
use crate::volume::member_device::MemberDevice;
use crate::{Drive, DriveError};

/// Interval between attempts to connect.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// Connections that were lost, and the attempt to make another one.
#[derive(Default)]
pub(super) struct Reconnect {
    /// Absent in programs that end when the connection is lost.
    pub(super) on_ring: Option<OnRing>,
    opening: Option<Opening>,
    attempt_at: Instant,
    /// The error that was logged last.
    logged: Option<String>,
    /// Why the pool does not continue on what is behind the last connection.
    refusal: Option<String>,
    /// Former connections, until they are closed.
    former: Vec<MemberDevice>,
}

impl Reconnect {
    /// Makes progress with an attempt. Returns the drive once it is open and reserved.
    fn poll(&mut self, now: Instant, directory: &PoolDirectory) -> Option<Result<Box<dyn Drive>, DriveError>> {
        if self.opening.is_none() {
            if now < self.attempt_at {
                return None;
            }
            self.attempt_at = now + ATTEMPT_INTERVAL;
            let on_ring = self.on_ring.as_ref()?.another();
            match directory.access().and_then(|access| Opening::begin(access, on_ring)) {
                Ok(opening) => self.opening = Some(opening),
                Err(error) => return Some(Err(error)),
            }
        }
        let opened = self.opening.as_mut()?.poll(now)?;
        self.opening = None;
        Some(opened)
    }

    /// Whether what was behind the last connection was not the pool as it was left.
    pub(super) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// When to poll, unless the ring wakes the caller before.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.opening {
            Some(opening) => opening.next_timeout(),
            None => self.on_ring.as_ref().map(|_| self.attempt_at),
        }
    }

    /// Closes former connections. The drive stays reserved for the present one.
    pub(super) fn close_former(&mut self, now: Instant) {
        self.former.iter_mut().for_each(|device| device.close_on(now));
        self.former.retain(|device| !device.drive.is_closed());
    }

    /// When to poll for these.
    pub(super) fn former_timeout(&self) -> Option<Instant> {
        self.former.iter().filter_map(ZonedDevice::next_timeout).min()
    }

    fn leave(&mut self, mut device: MemberDevice) {
        device.stay_reserved();
        self.former.push(device);
    }
}

impl OpenPool {
    /// If the connection to the drive is lost, commands in the pool fail, and later ones wait. Returns
    /// whether that has just happened.
    pub(super) fn look_for_lost_connection(&mut self, now: Instant) -> bool {
        let is_lost = self.device.drive().member().drive.is_disconnected();
        if !is_lost {
            return false;
        }
        self.device.lose_drive();
        self.fail_outstanding(Status::NamespaceNotReady);
        let error = self.lost_error();
        self.pending.fail_all(&error);
        if self.phase == Phase::Quiescing || self.reconnect.on_ring.is_none() {
            self.abandon_drive();
            return true;
        }
        self.warnings.push_back(format!("{}: commands of its hosts wait until it is back", error.message));
        self.phase = Phase::Lost;
        self.reconnect.attempt_at = now;
        (self.reconnect.logged, self.reconnect.refusal) = (None, None);
        true
    }

    /// Makes the connection again, and mounts the pool over it.
    pub(super) fn reconnect(&mut self, now: Instant) {
        let Some(opened) = self.reconnect.poll(now, &self.directory) else { return };
        let claimed = opened.and_then(|drive| match drive.claimed() {
            Some(claimed) => Ok((drive, Some(claimed))),
            None if !drive.is_remote() => self.must_be_same(&*drive).map(|()| (drive, None)),
            None => Err(DriveError::new("its server does not support reservations any more", "")),
        });
        match claimed {
            Ok((drive, claimed)) => {
                claimed.iter().for_each(|claimed| self.directory.note_claimed(claimed));
                let mut device = MemberDevice::of(drive);
                if self.directory.stays_reserved() {
                    device.stay_reserved();
                }
                let base = PoolBase::over(device, &self.options.scheduler);
                let before = self.device.continue_on(base);
                self.reconnect.leave(before.into_member());
                self.share_by_weights();
                self.ownership.begin_again(now);
                self.phase = Phase::Open;
            }
            Err(DriveError { holder: Some(holder), .. }) => self.end_as_taken(Some(holder), now),
            Err(error) => self.log_attempt(&error.message, "commands of its hosts wait"),
        }
    }

    /// Refuses another drive of this machine, such as a copy. The mount verifies what is on it.
    fn must_be_same(&self, drive: &dyn Drive) -> Result<(), DriveError> {
        match may_be_same(self.device.drive().member().drive.identity(), drive.identity()) {
            true => Ok(()),
            false => Err(DriveError::new("it is another drive: its identifiers (NGUID, EUI-64, UUID) differ", "")),
        }
    }

    /// What is behind a new connection is not the pool as it was left: another attempt follows.
    pub(super) fn look_for_refusal(&mut self, now: Instant) {
        let Some(error) = self.device.error().map(ToString::to_string) else { return };
        self.log_attempt(&error, "a restart of this server mounts what the drive has");
        self.reconnect.refusal = Some(error);
        self.phase = Phase::Lost;
        self.reconnect.attempt_at = now + ATTEMPT_INTERVAL;
    }

    /// Logs why the pool does not continue, once, and what its operator may want to know.
    fn log_attempt(&mut self, why: &str, note: &str) {
        if self.reconnect.logged.as_deref() != Some(why) {
            self.reconnect.logged = Some(why.to_owned());
            let drive = self.directory.shown_drive();
            self.warnings.push_back(format!(
                "the pool does not continue on {drive}: {why}; another attempt follows each second: {note}"
            ));
        }
    }

    /// Closes a pool whose drive cannot be reached.
    pub(super) fn abandon_drive(&mut self) {
        self.reconnect.opening = None;
        self.refuse_held(Status::NamespaceNotReady);
        self.close_error = Some(self.lost_error().message);
        self.phase = Phase::Closing;
    }

    /// The error for a pool whose drive is not connected.
    pub(super) fn lost_error(&self) -> DriveError {
        if let Some(why) = &self.reconnect.refusal {
            return DriveError::new(
                format!("the pool does not continue on its drive {}: {why}", self.directory.shown_drive()),
                "restore the drive as it was; if it is lost, restart the server of the pool, which mounts what there is",
            );
        }
        if !self.device.drive().member().is_remote() {
            return DriveError::new(
                format!("the drive {} of the pool is missing", self.directory.shown_drive()),
                "plug in the drive again: the pool continues",
            );
        }
        DriveError::new(
            format!("the connection to the drive {} of the pool is lost", self.directory.shown_drive()),
            "start the server of the drive again: the pool reconnects",
        )
    }

    /// Polls connections that are being closed; completions are ignored.
    pub(super) fn poll_former(&mut self, now: Instant) {
        self.reconnect.close_former(now);
        if self.phase == Phase::Lost {
            self.device.drive_mut().member_mut().poll(now, &mut CompletionQueue::new());
        }
    }
}
