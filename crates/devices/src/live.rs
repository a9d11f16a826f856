//! [`RingClock`]: the clock of a ring, for workloads on real devices.

use zonda_ring::Ring;
use zonda_zoned::{Instant, LiveClock};

/// The clock of a ring: waiting runs the operations of the ring.
pub struct RingClock<'a>(pub &'a Ring);

impl LiveClock for RingClock<'_> {
    fn now(&mut self) -> Instant {
        self.0.now()
    }

    fn wait(&mut self, until: Option<Instant>) {
        if let Err(error) = self.0.run_once(until) {
            // Nothing but a bug, or a kernel out of memory, makes it fail; the device is lost then.
            panic!("the event loop failed: {error}");
        }
    }
}
