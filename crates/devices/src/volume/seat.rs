//! A member's device, and how many commands are in flight on it.

use zonda_ring::Ring;
use zonda_zoned::{
    Command, Completion, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, Status, ZoneDescriptor, ZoneIndex,
    ZonedDevice,
};

use super::link::Link;
use crate::{Drive, DriveError, FileBacked, Location, NamespaceOptions, Remote, is_volume};

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
}

impl Seat {
    /// Opens a device.
    pub(super) fn open(location: &Location, ring: &Ring) -> Result<Seat, DriveError> {
        refuse_volume(location)?;
        #[cfg(test)]
        if let Some(opened) = crate::shelf::open(location) {
            return opened.map(Seat::of);
        }
        Ok(Seat::of(match location {
            Location::Image(path) => Box::new(FileBacked::open(path, ring)?.0),
            Location::NvmeTcp(url) => Box::new(Remote::connect(url, &NamespaceOptions::default(), ring)?),
        }))
    }

    /// A device that is open, and has no command in flight.
    pub(super) fn of(drive: Box<dyn Drive>) -> Seat {
        Seat { drive, under_way: 0, link: None, refused: Vec::new(), is_awaited: false }
    }

    /// From now on commands that are cut off by the loss of its connection do not fail: they are held for the next connection.
    pub(super) fn hold_when_lost(&mut self) {
        if self.drive.is_remote() && self.link.is_none() {
            self.link = Some(Box::default());
        }
    }

    /// Whether its connection is lost, and commands are held.
    pub(super) fn is_cut_off(&self) -> bool {
        self.link.is_some() && self.drive.is_disconnected()
    }

    /// The same, and the volume knows of it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The volume waits for another connection.
    pub(super) fn set_awaited(&mut self) {
        self.is_awaited = true;
    }

    /// The volume waits for no other connection: what was held fails.
    pub(super) fn fail_held(&mut self) {
        let link = self.link.take();
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
        Seat::of(std::mem::replace(&mut self.drive, drive))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    pub(super) fn own_geometry(&self) -> &Geometry {
        self.drive.geometry(NamespaceId::FIRST)
    }

    /// Goes on with closing; what still ends is of no interest to anybody.
    pub(super) fn close_on(&mut self, now: Instant) {
        self.fail_held();
        let mut completions = CompletionQueue::new();
        self.poll(now, &mut completions);
        if self.is_idle() {
            self.drive.close(now);
            self.drive.poll(now, &mut completions);
        }
    }

    /// Submits what was held, once there is a connection again.
    fn submit_held(&mut self, now: Instant) {
        let Some(link) = self.link.as_mut().filter(|link| !link.held.is_empty() && !self.drive.is_disconnected())
        else {
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
            if !link.held.is_empty() || self.drive.is_disconnected() {
                link.held.push_back(command);
                self.under_way += 1;
                return Ok(());
            }
            link.sent(&command);
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
        match &mut self.link {
            None => self.drive.poll(now, completions),
            Some(link) => {
                let mut ended = CompletionQueue::new();
                self.drive.poll(now, &mut ended);
                let is_lost = self.drive.is_disconnected();
                while let Some(completion) = ended.pop() {
                    let geometry = self.drive.geometry(NamespaceId::FIRST);
                    if let Some(completion) = link.ended(geometry, completion, is_lost) {
                        completions.push(completion);
                    }
                }
            }
        }
        self.under_way -= completions.len() - before;
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.refused.is_empty() { self.drive.next_wakeup() } else { Some(Instant::ZERO) }
    }
}
