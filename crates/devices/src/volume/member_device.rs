//! [`MemberDevice`]: the device of a member or spare, with its connection and its commands in flight.

use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Namespaces,
    Operation, QueueFull, ReportFilter, Status, ZoneDescriptor, ZoneIndex, ZonedDevice,
};

use super::bugs::{OwnerBug, is_seeded};
use super::link::Link;
use crate::opening::open_drive;
use crate::{Access, Drive, DriveError, Location, SequentialZones, is_volume, mock};

/// The device of a member or spare.
pub(crate) struct MemberDevice {
    pub(crate) drive: Box<dyn Drive>,
    in_flight: usize,
    /// For a member that can vanish: what is resubmitted over the next connection, or to the drive that
    /// is opened again.
    link: Option<Box<Link>>,
    /// The geometry that the volume uses. A drive that grows keeps it here.
    geometry: Box<Geometry>,
    /// The drive has only so many zones left, which was not logged yet.
    shrunk_to: Option<u32>,
    /// Completions of commands that were not submitted.
    refused: Vec<Completion>,
    /// The volume was notified that the connection is lost.
    is_awaited: bool,
    is_remote: bool,
    /// Whether it can disappear without failing.
    can_vanish: bool,
    /// The drive was reserved over this connection or an earlier one.
    is_claimed: bool,
    /// A command has failed with Reservation Conflict. The volume does not see such completions.
    is_refused: bool,
    /// The host that holds the reservation, if known.
    refused_by: Option<Holder>,
    /// When the first conflict occurred, of the last contest.
    refused_at: Instant,
    /// A later command has succeeded: the reservation of this host was restored.
    is_restored: bool,
    /// The connection still exists, but is not used any more.
    is_severed: bool,
    /// Whether the volume must know who holds the drive before it fails with its connection.
    is_asked_about: bool,
    /// What is known of the holder since the connection was lost.
    inquiry: Option<Inquiry>,
    /// Completions of commands that were aborted with the connection, until the holder is known.
    withheld: Vec<Completion>,
    stays_reserved: bool,
    /// When the outstanding request to confirm the reservation was submitted.
    asked_at: Option<Instant>,
    /// When the last successful request to confirm was submitted.
    confirmed_at: Option<Instant>,
}

/// Who holds a drive whose connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inquiry {
    /// Its server has not answered yet, or another host holds it.
    Pending,
    /// This host.
    Own,
    /// Its server does not answer.
    Unreachable,
}

/// Identifier of the command that confirms the reservation. Those of volumes ascend from 0.
const CONFIRM: CommandId = CommandId(u64::MAX);

impl MemberDevice {
    /// Opens a device.
    pub(crate) fn open(access: &Access, ring: &Ring) -> Result<MemberDevice, DriveError> {
        refuse_volume(&access.location)?;
        if let Some(opened) = mock::open(access) {
            return opened.map(MemberDevice::of);
        }
        open_drive(&access.location, &access.options, ring).map(MemberDevice::of)
    }

    /// Wraps an open device without commands in flight. Its sequential zones are used.
    pub(crate) fn of(drive: Box<dyn Drive>) -> MemberDevice {
        let drive = SequentialZones::of(drive);
        MemberDevice {
            is_remote: drive.is_remote(),
            can_vanish: drive.can_vanish(),
            is_claimed: drive.claimed().is_some(),
            geometry: Box::new(drive.geometry(NamespaceId::FIRST).clone()),
            shrunk_to: None,
            drive,
            in_flight: 0,
            link: None,
            refused: Vec::new(),
            is_awaited: false,
            is_refused: false,
            refused_by: None,
            refused_at: Instant::ZERO,
            is_restored: false,
            is_severed: false,
            is_asked_about: false,
            inquiry: None,
            withheld: Vec::new(),
            stays_reserved: false,
            asked_at: None,
            confirmed_at: None,
        }
    }

    /// Whether it is a namespace of a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether it can disappear without failing, and be opened again.
    pub(crate) fn can_vanish(&self) -> bool {
        self.can_vanish
    }

    /// Whether the drive was reserved for this program. This stays set while the connection is
    /// lost: another host may have reserved it by then, and commands must not be completed as if
    /// that were impossible.
    pub(crate) fn is_claimed(&self) -> bool {
        self.is_claimed
    }

    /// Whether no host had reserved the drive before this program did.
    pub(crate) fn was_free(&self) -> bool {
        self.drive.claimed().is_some_and(|claimed| claimed.preempted.is_none())
    }

    /// Whether another host has reserved the drive.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Why commands that read it may not complete: another host has reserved it, or the connection is lost.
    pub(crate) fn why_unreadable(&self) -> Option<DriveError> {
        let (what, help) = match (self.is_refused, self.drive.is_disconnected()) {
            (true, _) => ("another host has reserved the drive while it was read", "see its owner, and try again"),
            (false, true) => ("the drive was lost while it was read", "start its server, or plug it in, and try again"),
            (false, false) => return None,
        };
        Some(DriveError::new(what, help))
    }

    /// When the last contest for the drive began.
    pub(super) fn refused_at(&self) -> Instant {
        self.refused_at
    }

    /// Another host has reserved the drive, as a new connection has reported.
    pub(super) fn set_refused(&mut self, by: Holder) {
        (self.is_refused, self.refused_by) = (true, Some(by));
    }

    /// Whether another host had reserved the drive, and the reservation of this host was restored.
    pub(super) fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// Whether all commands that are not repeatable have completed.
    pub(super) fn is_answered(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_answered())
    }

    /// Abandons the connection, after another host had reserved the drive for a while: refused
    /// commands are held for the next connection, and outstanding ones are aborted, as if the
    /// connection were lost.
    pub(super) fn sever(&mut self) {
        (self.is_severed, self.is_refused, self.is_restored) = (true, false, false);
        self.asked_at = None;
        if let Some(link) = &mut self.link {
            self.refused.extend(link.cut_off(&self.geometry));
        }
    }

    /// The host that has reserved the drive; `None` while that may still become known.
    pub(crate) fn refused_by(&self) -> Option<Option<Holder>> {
        let conflict = self.drive.conflict().unwrap_or_default();
        let is_known = self.refused_by.is_some() || conflict.is_answered || self.drive.is_disconnected();
        is_known.then_some(self.refused_by.or(conflict.holder))
    }

    /// When the last successful confirmation of the reservation was requested.
    pub(crate) fn confirmed_at(&self) -> Option<Instant> {
        self.confirmed_at
    }

    /// Requests a confirmation that the drive is still reserved for this program.
    pub(crate) fn confirm(&mut self, now: Instant) {
        if !self.is_claimed() || self.asked_at.is_some() || self.is_lost() {
            return;
        }
        let operation = Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: 1,
        };
        let command = Command::new(CONFIRM, NamespaceId::FIRST, operation);
        self.asked_at = self.drive.submit(now, command).is_ok().then_some(now);
    }

    /// Handles a completion that the volume must not see. Returns whether it is one.
    fn intercepts(&mut self, now: Instant, completion: &Completion) -> bool {
        if completion.status == Status::ReservationConflict && !self.is_refused {
            (self.is_refused, self.refused_at) = (true, now);
        }
        if completion.id == CONFIRM {
            let asked_at = self.asked_at.take();
            if completion.status.is_success() && self.is_refused {
                // A request from before the conflict may complete late.
                self.is_restored |= asked_at > Some(self.refused_at);
            } else if completion.status.is_success() {
                self.confirmed_at = if is_seeded(OwnerBug::LeaseFromAnswer) { Some(now) } else { asked_at };
            }
        }
        // A write to a zone fails if an earlier one in that zone was refused.
        let is_behind_refused = completion.status == Status::ZoneInvalidWrite
            && self.is_refused
            && self.link.as_ref().is_some_and(|link| link.has_refused());
        let is_refused = completion.status == Status::ReservationConflict || is_behind_refused;
        if let Some(link) = self.link.as_mut().filter(|_| is_refused) {
            link.conflicted(completion.id);
        }
        completion.id == CONFIRM || is_refused
    }

    /// Holds commands for the next connection, from now on, instead of failing them when the
    /// connection is lost. With `is_asked_about`, aborted commands do not complete before the
    /// holder of the drive is known.
    pub(super) fn hold_when_lost(&mut self, is_asked_about: bool) {
        if self.can_vanish && self.link.is_none() {
            self.link = Some(Box::default());
        }
        self.is_asked_about = is_asked_about && self.is_claimed;
    }

    /// Whether the volume must know who holds the drive before it fails with its connection.
    pub(super) fn is_asked_about(&self) -> bool {
        self.is_asked_about
    }

    /// What is known of the holder since the connection was lost.
    pub(super) fn inquiry(&self) -> Option<Inquiry> {
        self.inquiry
    }

    pub(super) fn set_inquiry(&mut self, inquiry: Inquiry) {
        self.inquiry = Some(inquiry);
        if inquiry == Inquiry::Own {
            (self.is_refused, self.refused_by) = (false, None);
        }
    }

    /// Completes the commands that were aborted with the connection.
    pub(super) fn complete_withheld(&mut self) {
        self.refused.append(&mut self.withheld);
    }

    /// Whether a request to confirm the reservation has not completed for so long.
    pub(super) fn is_silent(&self, now: Instant, longest: Duration) -> bool {
        self.asked_at.is_some_and(|at| now >= at + longest)
    }

    /// Whether its connection is lost, and commands are held.
    pub(super) fn is_cut_off(&self) -> bool {
        self.link.is_some() && self.is_lost()
    }

    fn withholds(&self) -> bool {
        self.is_asked_about && self.link.is_some() && !self.is_awaited
    }

    fn is_lost(&self) -> bool {
        self.is_severed || self.drive.is_disconnected()
    }

    /// Whether the connection is lost, and the volume waits for another one.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The volume waits for another connection.
    pub(super) fn set_awaited(&mut self) {
        // Without it the commands of the volume would fail instead of waiting for the connection.
        assert!(self.link.is_some(), "a device that holds no commands is awaited");
        self.is_awaited = true;
        self.complete_withheld();
    }

    /// The volume does not wait any more: it is notified that the connection is lost.
    pub(super) fn stop_awaiting(&mut self) {
        self.is_awaited = false;
    }

    /// Fails the held commands: the volume does not wait for another connection.
    pub(super) fn fail_held(&mut self) {
        self.is_awaited = false;
        self.complete_withheld();
        let mut link = self.link.take();
        link.iter_mut().for_each(|link| link.hold_refused());
        let held = link.into_iter().flat_map(|link| link.held);
        self.refused.extend(held.map(|command| Completion::of(command.id, Status::NamespaceNotReady)));
    }

    /// The first zone in which a device lacks blocks that this one has acknowledged, or that should
    /// be full (`full`) and is not.
    pub(super) fn lacking(&self, zones: &[ZoneDescriptor], full: impl Iterator<Item = ZoneIndex>) -> Option<ZoneIndex> {
        self.link.as_ref().and_then(|link| link.lacking(self.own_geometry(), zones, full))
    }

    /// Whether two devices have the same namespace identifier: they are one drive at two addresses.
    pub(super) fn is_same_drive(&self, other: &MemberDevice) -> bool {
        let (Some(own), Some(other)) = (self.drive.identity(), other.drive.identity()) else { return false };
        (own.uuid.is_some() && own.uuid == other.uuid)
            || (own.nguid.is_some() && own.nguid == other.nguid)
            || (own.eui64.is_some() && own.eui64 == other.eui64)
    }

    /// Continues over another connection to the same device. Returns the previous one.
    pub(super) fn reconnect(&mut self, new: MemberDevice) -> MemberDevice {
        self.is_awaited = false;
        let is_quiescent = self.link.as_ref().is_none_or(|link| link.is_quiescent());
        // The new connection cannot complete them, so their hosts would wait forever.
        assert!(is_quiescent, "commands are in flight on a connection that is replaced");
        let MemberDevice { drive, geometry, .. } = new;
        let expected = Geometry { zone_count: geometry.zone_count, ..(*self.geometry).clone() };
        // Addresses of the volume would mean other blocks.
        assert_eq!(*geometry, expected, "the drive behind a new connection has the zones of the one before");
        self.link.iter_mut().for_each(|link| link.hold_refused());
        (self.is_severed, self.is_refused, self.is_restored) = (false, false, false);
        (self.refused_by, self.asked_at, self.inquiry) = (None, None, None);
        self.complete_withheld();
        self.is_claimed |= drive.claimed().is_some();
        let mut before = MemberDevice::of(std::mem::replace(&mut self.drive, drive));
        // It may still be connected. The drive stays reserved for the new one.
        before.stay_reserved();
        before
    }

    /// Panics if the state contradicts itself.
    pub(super) fn check_invariants(&self) {
        let of_link = self.link.as_ref().map_or(0, |link| link.outstanding());
        // Commands from before the link was made are in flight on the drive alone.
        let known = of_link + self.refused.len() + self.withheld.len();
        assert!(known <= self.in_flight, "{known} commands would complete, but {} are in flight", self.in_flight);
        assert!(self.link.is_some() || !self.is_awaited, "a device that holds no commands is awaited");
        assert!(self.can_vanish || self.link.is_none(), "an image has no connection to lose");
        assert!(self.is_claimed || self.confirmed_at.is_none(), "a reservation that was not acquired is confirmed");
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.asked_at.is_none()
    }

    pub(crate) fn own_geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Stops using a drive that has shrunk: the volume may have data in the zones that are missing.
    fn look_for_shrinking(&mut self) {
        let found = self.drive.namespaces().geometry(NamespaceId::FIRST);
        let zone_count = found.map_or(0, |geometry| geometry.zone_count);
        if zone_count < self.geometry.zone_count && !self.is_severed {
            self.shrunk_to = Some(zone_count);
            self.sever();
        }
    }

    /// The next warning of the drive.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        let before = self.geometry.zone_count;
        let shrunk = self.shrunk_to.take().map(|left| {
            format!("the drive has {left} of {before} zones left, and is not used any more: restore its size")
        });
        shrunk.or_else(|| self.drive.take_warning())
    }

    /// Keeps the reservation when the drive is closed, for the next program of this directory.
    pub(crate) fn stay_reserved(&mut self) {
        self.stays_reserved = true;
    }

    /// Continues to close; completions are ignored.
    pub(crate) fn close_on(&mut self, now: Instant) {
        self.fail_held();
        let mut completions = CompletionQueue::new();
        self.poll(now, &mut completions);
        if self.is_idle() {
            if self.stays_reserved {
                self.drive.close_reserved(now);
            } else {
                self.drive.close(now);
            }
            self.drive.poll(now, &mut completions);
        }
    }

    /// Submits the held commands, once there is a connection again.
    fn submit_held(&mut self, now: Instant) {
        let Some(link) = self.link.as_mut().filter(|link| {
            let is_lost = self.is_severed || self.drive.is_disconnected();
            !link.held.is_empty() && !is_lost && !self.is_refused
        }) else {
            return;
        };
        while let Some(command) = link.held.pop_front() {
            link.sent(&command);
            if let Err(QueueFull(command)) = self.drive.submit(now, command) {
                link.not_sent(&command);
                link.held.push_front(command);
                return;
            }
        }
    }
}

/// Timeout of releasing reservations.
const RELEASE_MAX: Duration = Duration(2_000_000_000);
/// Timeout of closing images.
const CLOSE_IMAGES_MAX: Duration = Duration(20_000_000_000);

/// Closes devices that are not used after all, and releases the reservations that were newly
/// acquired, so that they do not lock out the owner. Reservations that this directory had before
/// stay: they may be what locks out another owner.
pub(super) fn release_acquired(devices: impl IntoIterator<Item = MemberDevice>, ring: &Ring) {
    let closes = |device: &MemberDevice| is_seeded(OwnerBug::AllReleased) || !device.is_remote() || device.was_free();
    release(devices.into_iter().filter(closes).collect(), ring);
}

/// Closes devices, and releases their reservations. Blocks until that is done.
pub(crate) fn release(mut devices: Vec<MemberDevice>, ring: &Ring) {
    let now = ring.now();
    loop {
        devices.iter_mut().for_each(|device| device.close_on(ring.now()));
        devices.retain(|device| !device.drive.is_closed());
        let has_images = devices.iter().any(|device| !device.is_remote());
        let until = now + if has_images { CLOSE_IMAGES_MAX } else { RELEASE_MAX };
        let next = devices.iter().filter_map(ZonedDevice::next_timeout).min();
        // If this fails, the next program of this directory preempts the remaining reservations.
        if devices.is_empty()
            || ring.now() >= until
            || ring.run_once(Some(next.map_or(until, |at| at.min(until)))).is_err()
        {
            return;
        }
    }
}

/// Whether what is at the location can disappear without failing.
pub(super) fn can_vanish_at(location: &Location) -> bool {
    match location {
        Location::Image(path) => mock::can_vanish(path),
        Location::Device(_) | Location::NvmeTcp(_) => true,
    }
}

/// Whether the location is a namespace of a server.
pub(crate) fn is_behind_server(location: &Location) -> bool {
    match location {
        Location::Image(path) => mock::is_remote(path),
        Location::Device(_) => false,
        Location::NvmeTcp(_) => true,
    }
}

/// Refuses a volume as a member.
pub(super) fn refuse_volume(location: &Location) -> Result<(), DriveError> {
    match location {
        Location::Image(path) if is_volume(path) => Err(DriveError::new(
            format!("{} is a volume itself", path.display()),
            "name zoned drives: their directories, or nvme-tcp:// URLs",
        )),
        _ => Ok(()),
    }
}

impl ZonedDevice for MemberDevice {
    fn namespaces(&self) -> &Namespaces {
        self.drive.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Some(link) = &mut self.link {
            // Commands after a refused one must wait, to keep the order.
            if !link.held.is_empty() || self.is_severed || self.is_refused || self.drive.is_disconnected() {
                link.held.push_back(command);
                self.in_flight += 1;
                return Ok(());
            }
            link.sent(&command);
        } else if self.is_severed {
            self.refused.push(Completion::of(command.id, Status::NamespaceNotReady));
            self.in_flight += 1;
            return Ok(());
        }
        if let Err(QueueFull(command)) = self.drive.submit(now, command) {
            self.link.iter_mut().for_each(|link| link.not_sent(&command));
            return Err(QueueFull(command));
        }
        self.in_flight += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.submit_held(now);
        self.refused.drain(..).for_each(|refused| completions.push(refused));
        if self.can_vanish {
            let mut ended = CompletionQueue::new();
            self.drive.poll(now, &mut ended);
            if self.is_remote {
                self.look_for_shrinking();
            }
            if self.is_severed {
                // These commands were aborted, and have completed for the volume.
                ended = CompletionQueue::new();
            }
            let is_lost = self.drive.is_disconnected();
            while let Some(mut completion) = ended.pop() {
                if self.is_remote && self.intercepts(now, &completion) {
                    continue;
                }
                if is_lost && !self.is_remote && !completion.status.is_success() {
                    // The drive was unplugged: what fails with it may have taken effect or not.
                    completion = Completion::of(completion.id, Status::AbortedPowerLoss);
                }
                let completion = match &mut self.link {
                    Some(link) => link.ended(&self.geometry, completion, is_lost),
                    None => Some(completion),
                };
                let was_aborted =
                    |of: &Completion| matches!(of.status, Status::AbortedPowerLoss | Status::NamespaceNotReady);
                match completion {
                    Some(completion) if is_lost && self.withholds() && was_aborted(&completion) => {
                        self.withheld.push(completion);
                    }
                    completion => completion.into_iter().for_each(|completion| completions.push(completion)),
                }
            }
        } else {
            self.drive.poll(now, completions);
        }
        self.in_flight -= completions.len() - before;
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.refused.is_empty() { self.drive.next_timeout() } else { Some(Instant::ZERO) }
    }
}
