//! The store for reservations of the shared namespace's device, with power losses and failures.

use bytes::Bytes;
use zonda_zoned::{Duration, Instant, Prng};

/// Maximum duration of a save.
const SAVE_NS_MAX: u64 = 3_000_000;

#[derive(Debug)]
pub(crate) struct Store {
    durable: Bytes,
    /// The durable bytes before the last save.
    previous: Bytes,
    pending: Option<Pending>,
    fails: bool,
    prng: Prng,
}

#[derive(Debug)]
struct Pending {
    at: Instant,
    bytes: Bytes,
    /// The device reports an error.
    fails: bool,
    /// The bytes become durable, whatever the device reports.
    is_written: bool,
}

impl Store {
    /// With `fails`, the device sometimes reports an error.
    pub(crate) fn new(fails: bool, prng: Prng) -> Store {
        Store { durable: Bytes::new(), previous: Bytes::new(), pending: None, fails, prng }
    }

    /// The durable bytes.
    pub(crate) fn saved(&self) -> Bytes {
        self.durable.clone()
    }

    /// The durable bytes before the last save.
    pub(crate) fn saved_before(&self) -> Bytes {
        self.previous.clone()
    }

    pub(crate) fn save(&mut self, now: Instant, bytes: Bytes) {
        assert!(self.pending.is_none(), "a device has one save in progress at a time");
        let at = now + Duration(self.prng.below(SAVE_NS_MAX));
        let fails = self.fails && self.prng.chance(1, 12);
        let is_written = !fails || self.prng.chance(1, 2);
        self.pending = Some(Pending { at, bytes, fails, is_written });
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.at)
    }

    /// Ends a save. On failure, returns the bytes that are durable. With `forgets`, it succeeds
    /// without effect.
    pub(crate) fn end(&mut self, forgets: bool) -> Result<(), Bytes> {
        let pending = self.pending.take().expect("a save is in progress");
        if pending.is_written && !forgets {
            self.write(pending.bytes);
        }
        if pending.fails { Err(self.durable.clone()) } else { Ok(()) }
    }

    /// Interrupts a save, at the end of the server or a power loss.
    pub(crate) fn interrupt(&mut self) {
        if let Some(pending) = self.pending.take()
            && self.prng.chance(1, 2)
        {
            self.write(pending.bytes);
        }
    }

    fn write(&mut self, bytes: Bytes) {
        self.previous = std::mem::replace(&mut self.durable, bytes);
    }
}
