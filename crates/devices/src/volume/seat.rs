//! A member's device, and how many commands are in flight on it.

use zonda_initiator::Holder;
use zonda_ring::Ring;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation,
    QueueFull, ReportFilter, Status, ZoneDescriptor, ZoneIndex, ZonedDevice,
};

use super::bugs::{OwnerBug, is_planted};
use super::link::Link;
use crate::{Access, Drive, DriveError, FileBacked, Location, Remote, is_volume};

/// A device in a member's place, or beside it.
pub(super) struct Seat {
    pub(super) drive: Box<dyn Drive>,
    under_way: usize,
    /// Of a device behind a connection: what goes on over the next one if this one is lost.
    link: Option<Box<Link>>,
    /// Commands that end without having been submitted.
    refused: Vec<Completion>,
    /// The volume knows that the connection is lost.
    is_awaited: bool,
    is_remote: bool,
    /// The drive was reserved over this connection or an earlier one.
    is_claimed: bool,
    /// A command was refused since another host has reserved the drive. The volume does not see such ends.
    is_refused: bool,
    /// By whom, if that is known.
    refused_by: Option<Holder>,
    /// When that came to be known.
    refused_at: Instant,
    /// After that the drive has answered again: the other host has given it back.
    is_given_back: bool,
    /// The connection stands, and is not used any more.
    is_severed: bool,
    stays_reserved: bool,
    /// When the question was asked whose the drive is that is not answered yet.
    asked_at: Option<Instant>,
    /// The same of the last one that was answered well.
    confirmed_at: Option<Instant>,
}

/// The question whose the drive is. Volumes count their commands from below.
const CONFIRM: CommandId = CommandId(u64::MAX);

impl Seat {
    /// Opens a device.
    pub(super) fn open(access: &Access, ring: &Ring) -> Result<Seat, DriveError> {
        refuse_volume(&access.location)?;
        #[cfg(test)]
        if let Some(opened) = crate::shelf::open(access) {
            return opened.map(Seat::of);
        }
        Ok(Seat::of(match &access.location {
            Location::Image(path) => Box::new(FileBacked::open(path, ring)?.0),
            Location::NvmeTcp(url) => Box::new(Remote::connect(url, &access.options, ring)?),
        }))
    }

    /// A device that is open, and has no command in flight.
    pub(super) fn of(drive: Box<dyn Drive>) -> Seat {
        Seat {
            is_remote: drive.is_remote(),
            is_claimed: drive.claimed().is_some(),
            drive,
            under_way: 0,
            link: None,
            refused: Vec::new(),
            is_awaited: false,
            is_refused: false,
            refused_by: None,
            refused_at: Instant::ZERO,
            is_given_back: false,
            is_severed: false,
            stays_reserved: false,
            asked_at: None,
            confirmed_at: None,
        }
    }

    /// Whether a server has the drive.
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether the drive was reserved for this program. It stays so while its connection is lost: another host may have it by then, and
    /// nothing may be answered as if nobody could.
    pub(super) fn is_claimed(&self) -> bool {
        self.is_claimed
    }

    /// Whether another host has the drive.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Another host has the drive, as a new connection has shown.
    pub(super) fn set_refused(&mut self, by: Holder) {
        (self.is_refused, self.refused_by) = (true, Some(by));
    }

    /// Whether another host had the drive, and it answers this one again.
    pub(super) fn is_given_back(&self) -> bool {
        self.is_given_back
    }

    /// Whether it has ended or refused all that must not be done twice.
    pub(super) fn is_answered(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_answered())
    }

    /// Another host had the drive for a while. It is connected to again: what it has refused meanwhile is held for that, and what it has not
    /// answered is cut off, as if the connection were lost.
    pub(super) fn sever(&mut self) {
        (self.is_severed, self.is_refused, self.is_given_back) = (true, false, false);
        self.asked_at = None;
        if let Some(link) = &mut self.link {
            self.refused.extend(link.cut_off(self.drive.geometry(NamespaceId::FIRST)));
        }
    }

    /// Who has the drive; `None` while that may still become known.
    pub(super) fn refused_by(&self) -> Option<Option<Holder>> {
        let conflict = self.drive.conflict().unwrap_or_default();
        let is_known = self.refused_by.is_some() || conflict.is_answered || self.drive.is_disconnected();
        is_known.then_some(self.refused_by.or(conflict.holder))
    }

    /// When the drive was last asked whose it is, and said that it is this program's.
    pub(super) fn confirmed_at(&self) -> Option<Instant> {
        self.confirmed_at
    }

    /// Asks the drive whether it is still this program's.
    pub(super) fn confirm(&mut self, now: Instant) {
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
        let command = Command { id: CONFIRM, namespace: NamespaceId::FIRST, operation };
        self.asked_at = self.drive.submit(now, command).is_ok().then_some(now);
    }

    /// Whether the end of a command is not for the volume.
    fn keeps(&mut self, now: Instant, completion: &Completion) -> bool {
        if completion.status == Status::ReservationConflict && !self.is_refused {
            (self.is_refused, self.refused_at) = (true, now);
        }
        if completion.id == CONFIRM {
            let asked_at = self.asked_at.take();
            if completion.status.is_success() && self.is_refused {
                // What was asked before may be answered late.
                self.is_given_back |= asked_at > Some(self.refused_at);
            } else if completion.status.is_success() {
                self.confirmed_at = if is_planted(OwnerBug::LeaseFromAnswer) { Some(now) } else { asked_at };
            }
        }
        // A write to a zone in which an earlier one was refused cannot be done either.
        let is_behind_refused = completion.status == Status::ZoneInvalidWrite
            && self.is_refused
            && self.link.as_ref().is_some_and(|link| link.has_refused());
        let is_refused = completion.status == Status::ReservationConflict || is_behind_refused;
        if let Some(link) = self.link.as_mut().filter(|_| is_refused) {
            link.was_refused(completion.id);
        }
        completion.id == CONFIRM || is_refused
    }

    /// From now on commands that are cut off by the loss of its connection do not fail: they are held for the next connection.
    pub(super) fn hold_when_lost(&mut self) {
        if self.drive.is_remote() && self.link.is_none() {
            self.link = Some(Box::default());
        }
    }

    /// Whether its connection is lost, and commands are held.
    pub(super) fn is_cut_off(&self) -> bool {
        self.link.is_some() && self.is_lost()
    }

    fn is_lost(&self) -> bool {
        self.is_severed || self.drive.is_disconnected()
    }

    /// The same, and the volume knows of it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The volume waits for another connection.
    pub(super) fn set_awaited(&mut self) {
        self.is_awaited = true;
    }

    /// It is not waited for any more: the volume is told that its connection is lost.
    pub(super) fn await_no_more(&mut self) {
        self.is_awaited = false;
    }

    /// The volume waits for no other connection: what was held fails.
    pub(super) fn fail_held(&mut self) {
        let mut link = self.link.take();
        link.iter_mut().for_each(|link| link.hold_refused());
        let held = link.into_iter().flat_map(|link| link.held);
        self.refused.extend(held.map(|command| Completion::of(command.id, Status::NamespaceNotReady)));
    }

    /// The first zone in which a device lacks blocks that this one has acknowledged, or that are in one of the `full` zones.
    pub(super) fn lacking(&self, zones: &[ZoneDescriptor], full: impl Iterator<Item = ZoneIndex>) -> Option<ZoneIndex> {
        self.link.as_ref().and_then(|link| link.lacking(self.own_geometry(), zones, full))
    }

    /// Whether two devices are one, reached under two names.
    pub(super) fn is_same_drive(&self, other: &Seat) -> bool {
        let (Some(own), Some(other)) = (self.drive.identity(), other.drive.identity()) else { return false };
        (own.uuid.is_some() && own.uuid == other.uuid)
            || (own.nguid.is_some() && own.nguid == other.nguid)
            || (own.eui64.is_some() && own.eui64 == other.eui64)
    }

    /// Goes on over another connection to the same device. Returns the first one.
    pub(super) fn reconnect(&mut self, drive: Box<dyn Drive>) -> Seat {
        self.is_awaited = false;
        self.link.iter_mut().for_each(|link| link.hold_refused());
        (self.is_severed, self.is_refused, self.is_given_back) = (false, false, false);
        (self.refused_by, self.asked_at) = (None, None);
        self.is_claimed |= drive.claimed().is_some();
        let mut before = Seat::of(std::mem::replace(&mut self.drive, drive));
        // It may still stand. The drive stays reserved for the new one.
        before.stay_reserved();
        before
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.asked_at.is_none()
    }

    pub(super) fn own_geometry(&self) -> &Geometry {
        self.drive.geometry(NamespaceId::FIRST)
    }

    /// The drive stays reserved for this program's successors when it is closed.
    pub(super) fn stay_reserved(&mut self) {
        self.stays_reserved = true;
    }

    /// Goes on with closing; what still ends is of no interest to anybody.
    pub(super) fn close_on(&mut self, now: Instant) {
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

    /// Submits what was held, once there is a connection again.
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
                link.taken_back(&command);
                link.held.push_front(command);
                return;
            }
        }
    }
}

/// So long may it take to give back what was reserved.
const GIVE_BACK_MAX: Duration = Duration(2_000_000_000);

/// Lets go of devices that are not used after all: what was free before is given back, so that it does not keep its owner out. What was reserved
/// before from here stays so: it may be what keeps another owner out.
pub(super) fn give_back(seats: impl IntoIterator<Item = Seat>, ring: &Ring) {
    let was_free = |seat: &Seat| seat.drive.claimed().is_some_and(|claimed| claimed.preempted.is_none());
    release(seats.into_iter().filter(|seat| is_planted(OwnerBug::AllGivenBack) || was_free(seat)).collect(), ring);
}

/// Closes devices, and gives back what was reserved. Waits for it.
pub(super) fn release(mut seats: Vec<Seat>, ring: &Ring) {
    let until = ring.now() + GIVE_BACK_MAX;
    while !seats.is_empty() && ring.now() < until {
        seats.iter_mut().for_each(|seat| seat.close_on(ring.now()));
        seats.retain(|seat| !seat.drive.is_closed());
        let next = seats.iter().filter_map(ZonedDevice::next_wakeup).min();
        // Whoever comes next takes over what this program has left behind.
        if !seats.is_empty() && ring.turn(Some(next.map_or(until, |at| at.min(until)))).is_err() {
            return;
        }
    }
}

/// Whether a server has what is there.
pub(super) fn is_behind_server(location: &Location) -> bool {
    match location {
        #[cfg(test)]
        Location::Image(path) => crate::shelf::is_remote(path),
        #[cfg(not(test))]
        Location::Image(_) => false,
        Location::NvmeTcp(_) => true,
    }
}

/// No member is a volume itself.
pub(super) fn refuse_volume(location: &Location) -> Result<(), DriveError> {
    match location {
        Location::Image(path) if is_volume(path) => Err(DriveError::new(
            format!("{} is a volume itself", path.display()),
            "name zoned drives: their directories, or nvme-tcp:// URLs",
        )),
        _ => Ok(()),
    }
}

impl ZonedDevice for Seat {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.drive.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Some(link) = &mut self.link {
            // Behind a command that was refused nothing is done before that is.
            if !link.held.is_empty() || self.is_severed || self.is_refused || self.drive.is_disconnected() {
                link.held.push_back(command);
                self.under_way += 1;
                return Ok(());
            }
            link.sent(&command);
        } else if self.is_severed {
            self.refused.push(Completion::of(command.id, Status::NamespaceNotReady));
            self.under_way += 1;
            return Ok(());
        }
        if let Err(QueueFull(command)) = self.drive.submit(now, command) {
            self.link.iter_mut().for_each(|link| link.taken_back(&command));
            return Err(QueueFull(command));
        }
        self.under_way += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.submit_held(now);
        self.refused.drain(..).for_each(|refused| completions.push(refused));
        if self.is_remote {
            let mut ended = CompletionQueue::new();
            self.drive.poll(now, &mut ended);
            if self.is_severed {
                // It was cut off, and has ended for the volume.
                ended = CompletionQueue::new();
            }
            let is_lost = self.drive.is_disconnected();
            while let Some(completion) = ended.pop() {
                if self.keeps(now, &completion) {
                    continue;
                }
                let geometry = self.drive.geometry(NamespaceId::FIRST);
                let completion = match &mut self.link {
                    Some(link) => link.ended(geometry, completion, is_lost),
                    None => Some(completion),
                };
                completion.into_iter().for_each(|completion| completions.push(completion));
            }
        } else {
            self.drive.poll(now, completions);
        }
        self.under_way -= completions.len() - before;
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.refused.is_empty() { self.drive.next_wakeup() } else { Some(Instant::ZERO) }
    }
}
