//! Waking a loop from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Ends the present or the next [`crate::Ring::run_once`], from any thread. Calls before that
/// iteration count as one.
///
/// What the caller wrote before `wake` is visible to the loop after the iteration. Waking a dropped
/// ring does nothing.
#[derive(Clone, Debug)]
pub struct Waker {
    signal: Arc<Signal>,
}

#[derive(Debug)]
struct Signal {
    event: OwnedFd,
    /// Set from `wake` until the loop has seen it, so that further calls cost no system call.
    raised: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { signal: Arc::new(Signal { event, raised: AtomicBool::new(false) }) })
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        if self.signal.raised.swap(true, Ordering::AcqRel) {
            return;
        }
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&self.signal.event, &1_u64.to_ne_bytes()));
        assert!(matches!(written, Ok(8) | Err(Errno::AGAIN)), "a write to an eventfd succeeds: {written:?}");
    }

    /// Clears the signal. The order matters: a `wake` between the two steps writes nothing, and the
    /// caller sees its effects after this returns.
    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.signal.event, &mut count));
        assert!(matches!(read, Ok(8) | Err(Errno::AGAIN)), "a read of an eventfd succeeds: {read:?}");
        self.signal.raised.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.signal.event.as_fd()
    }
}
