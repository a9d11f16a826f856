//! Where the device of the shared namespace keeps reservations, and what a loss of power leaves there.

use bytes::Bytes;
use zonda_zoned::{Duration, Instant, Prng};

/// How long it takes to keep them, at most.
const KEEP_NS_MAX: u64 = 3_000_000;

#[derive(Debug)]
pub(crate) struct Store {
    durable: Bytes,
    /// What was durable before.
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
    /// It has the bytes, whatever it reports.
    is_written: bool,
}

impl Store {
    /// With `fails`, it sometimes reports an error.
    pub(crate) fn new(fails: bool, prng: Prng) -> Store {
        Store { durable: Bytes::new(), previous: Bytes::new(), pending: None, fails, prng }
    }

    /// What a server that starts finds.
    pub(crate) fn found(&self) -> Bytes {
        self.durable.clone()
    }

    /// The same, as it was one change before.
    pub(crate) fn found_before(&self) -> Bytes {
        self.previous.clone()
    }

    pub(crate) fn keep(&mut self, now: Instant, bytes: Bytes) {
        assert!(self.pending.is_none(), "for a device there is one at a time");
        let at = now + Duration(self.prng.below(KEEP_NS_MAX));
        let fails = self.fails && self.prng.chance(1, 12);
        let is_written = !fails || self.prng.chance(1, 2);
        self.pending = Some(Pending { at, bytes, fails, is_written });
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.at)
    }

    /// What was to be kept has been, or not: whether it succeeded, and the bytes that are durable all the same if it did not.
    /// With `forgets`, it reports success and has nothing.
    pub(crate) fn end(&mut self, forgets: bool) -> Result<(), Bytes> {
        let pending = self.pending.take().expect("it is due");
        if pending.is_written && !forgets {
            self.write(pending.bytes);
        }
        if pending.fails { Err(self.durable.clone()) } else { Ok(()) }
    }

    /// The server ends, with its power or without.
    pub(crate) fn cut(&mut self) {
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
