//! [`Null`]: a zoned device that stores no data.

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, Lba, Namespaces, Payload, QueueFull, ZoneIndex, ZonedDevice,
};

use crate::immediate::{Contents, Immediate};
use crate::limits::NULL_OUTSTANDING_MAX;

/// A zoned device of one namespace without latency that stores no data: every read returns
/// [`Payload::None`]. Use it as the baseline to measure the overhead of layers, and in tests that
/// check only statuses.
#[derive(Debug)]
pub struct Null {
    inner: Immediate<Nothing>,
}

/// No contents.
#[derive(Debug)]
struct Nothing;

impl Null {
    /// An empty device.
    ///
    /// # Panics
    /// When the geometry is not valid.
    #[must_use]
    pub fn new(geometry: Geometry) -> Null {
        Null { inner: Immediate::new(geometry, Nothing) }
    }

    /// The zone table.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.inner.zones
    }

    /// The zone table, for tests that degrade zones or cut power.
    #[must_use]
    pub fn zones_mut(&mut self) -> &mut ZoneTable {
        &mut self.inner.zones
    }
}

impl ZonedDevice for Null {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.inner.submit(now, command)
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.inner.poll(completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

impl Contents for Nothing {
    const OUTSTANDING_MAX: usize = NULL_OUTSTANDING_MAX;

    fn takes(&self, _payload: &Payload) -> bool {
        true
    }

    fn has_ample_space(&self, _payload: &Payload, _blocks: Blocks) -> bool {
        true
    }

    fn has_space(&self, _start: Lba, _blocks: Blocks) -> bool {
        true
    }

    fn write(&mut self, _start: Lba, _blocks: Blocks, _payload: &Payload) {}

    fn read(&self, _start: Lba, _blocks: Blocks) -> Payload {
        Payload::None
    }

    fn zero(&mut self, _start: Lba, _blocks: Blocks) {}

    fn erase(&mut self, _zone: ZoneIndex) {}
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
    use zonda_zoned::{PayloadKind, Prng};

    use super::*;
    use crate::testing::{poll_ids, read, run_one, write};

    #[test]
    fn every_status_equals_the_oracles() {
        let mut prng = Prng::new(4);
        for seed in 0..40 {
            let geometry = random_geometry(&mut prng);
            let mut device = Null::new(geometry.clone());
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::None);
            let mut source = CommandSource::new(&geometry, PayloadKind::None, Prng::new(seed));
            for _ in 0..1_000 {
                let command = source.next(&oracle);
                let expected = oracle.execute(&command);
                assert_eq!(run_one(&mut device, command), expected);
            }
            device.zones().check_invariants();
        }
    }

    #[test]
    fn a_command_completes_at_the_instant_of_its_submission() {
        let mut device = Null::new(Geometry::tiny());
        assert_eq!(device.next_timeout(), None);
        device.submit(Instant(7), write(1, 0, 1)).unwrap();
        assert_eq!(device.next_timeout(), Some(Instant(7)));
        assert_eq!(poll_ids(&mut device, Instant(7)), [1]);
        assert_eq!(device.next_timeout(), None);
    }

    #[test]
    fn unpolled_completions_fill_the_queue() {
        let mut device = Null::new(Geometry::tiny());
        for id in 0..NULL_OUTSTANDING_MAX as u64 {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
        }
        assert_eq!(device.submit(Instant::ZERO, write(0, 0, 1)), Err(QueueFull(write(0, 0, 1))));
        assert_eq!(poll_ids(&mut device, Instant::ZERO).len(), NULL_OUTSTANDING_MAX);
        device.submit(Instant::ZERO, write(0, 0, 1)).unwrap();
    }
}
