//! Time and waiting for a load that runs on a real device: the ring's.

use zonda_ring::Ring;
use zonda_zoned::{Instant, LiveClock};

/// The clock of a ring: whoever waits lets the ring's operations go on.
pub struct RingClock<'a>(pub &'a Ring);

impl LiveClock for RingClock<'_> {
    fn now(&mut self) -> Instant {
        self.0.now()
    }

    fn wait(&mut self, until: Option<Instant>) {
        if let Err(error) = self.0.turn(until) {
            // Nothing but a bug, or a kernel out of memory, makes a turn fail; there is no device left to go on with.
            panic!("the event loop failed: {error}");
        }
    }
}
