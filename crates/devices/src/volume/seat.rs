//! A member's device, and how many commands are in flight on it.

use zonda_ring::Ring;
use zonda_zoned::{Command, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, ZonedDevice};

use crate::{Drive, DriveError, FileBacked, Location, NamespaceOptions, Remote, is_volume};

/// A device in a member's place, or beside it.
pub(super) struct Seat {
    pub(super) drive: Box<dyn Drive>,
    under_way: usize,
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
        Seat { drive, under_way: 0 }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    pub(super) fn own_geometry(&self) -> &Geometry {
        self.drive.geometry(NamespaceId::FIRST)
    }

    /// Goes on with closing; what still ends is of no interest to anybody.
    pub(super) fn close_on(&mut self, now: Instant) {
        let mut completions = CompletionQueue::new();
        self.poll(now, &mut completions);
        if self.is_idle() {
            self.drive.close(now);
            self.drive.poll(now, &mut completions);
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
        self.drive.submit(now, command)?;
        self.under_way += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.drive.poll(now, completions);
        self.under_way -= completions.len() - before;
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.drive.next_wakeup()
    }
}
