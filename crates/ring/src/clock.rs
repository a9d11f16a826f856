//! The monotonic clock of a ring.

use rustix::time::Timespec;
use zonda_zoned::Instant;

/// `CLOCK_MONOTONIC`, counted from the moment the ring was made.
///
/// It is the standard library's, not that of `rustix`: the latter reads the kernel's vDSO image
/// itself, and dies under valgrind 3.19, which hides that image. Programs that load zonda as a
/// library are run under valgrind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).expect("no process runs for 584 years"))
    }
}

pub(crate) fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 }
}
