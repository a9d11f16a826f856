//! [`MemoryDrive`] and [`PacedDrive`]: volatile drives, and drives with the latencies of a real
//! one.

use zonda_layers::{Memory, Paced};
use zonda_zoned::{Blocks, Command, CompletionQueue, Geometry, Instant, Namespaces, QueueFull, ZoneState, ZonedDevice};

use crate::drive::{as_the_drive_below, visit_table};
use crate::{Drive, DriveFacts, Model};

/// A drive in memory.
#[derive(Debug)]
pub struct MemoryDrive {
    memory: Memory,
    is_closed: bool,
}

/// A drive with the latencies of a model.
pub struct PacedDrive {
    paced: Paced<Box<dyn Drive>, Model>,
}

impl MemoryDrive {
    /// An empty drive that uses at most this much memory for contents.
    ///
    /// # Panics
    /// When the geometry is not valid.
    #[must_use]
    pub fn new(geometry: Geometry, bytes_max: u64) -> MemoryDrive {
        MemoryDrive { memory: Memory::new(geometry, bytes_max), is_closed: false }
    }
}

impl PacedDrive {
    /// `drive` with the latencies of `model`, which must have the same zone states.
    #[must_use]
    pub fn new(drive: Box<dyn Drive>, model: Model) -> PacedDrive {
        PacedDrive { paced: Paced::new(drive, model) }
    }

    fn drive(&self) -> &dyn Drive {
        &**self.paced.device()
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        &mut **self.paced.device_mut()
    }
}

impl ZonedDevice for MemoryDrive {
    fn namespaces(&self) -> &Namespaces {
        self.memory.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closed, "a drive that is closed takes no commands");
        self.memory.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.memory.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.memory.next_timeout()
    }
}

impl Drive for MemoryDrive {
    fn facts(&self) -> DriveFacts {
        DriveFacts::of_zones(self.memory.zones())
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        visit_table(self.memory.zones(), visit);
    }

    fn media_errors(&self) -> u64 {
        0
    }

    fn close(&mut self, _now: Instant) {
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl ZonedDevice for PacedDrive {
    fn namespaces(&self) -> &Namespaces {
        self.paced.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.paced.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.paced.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.paced.next_timeout()
    }
}

impl Drive for PacedDrive {
    as_the_drive_below!(drive, drive_mut);

    fn facts(&self) -> DriveFacts {
        self.paced.device().facts()
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        self.drive().visit_zones(visit);
    }

    fn close(&mut self, now: Instant) {
        self.paced.device_mut().close(now);
    }
}
