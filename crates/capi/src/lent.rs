//! Memory of the caller that is used until a command has ended. One of the two rooms with unsafe code.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

/// Memory that the caller may not touch until it has the result of a command.
#[derive(Debug)]
pub(crate) struct CallerMemory {
    start: NonNull<u8>,
    length: usize,
}

/// Caller's memory on its way through a device; tells when the last reference to it has gone.
struct Lent {
    memory: CallerMemory,
    released: Arc<AtomicBool>,
}

/// Becomes true when a device has let go of lent memory.
#[derive(Clone, Debug)]
pub(crate) struct Released(Arc<AtomicBool>);

// SAFETY: it is a pointer and a length. The caller promised that the memory stays and that nobody writes to it; which
// thread uses it does not matter then.
unsafe impl Send for CallerMemory {}
// SAFETY: as above; `&CallerMemory` gives reading access only, and only in `Lent`.
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// # Safety
    /// `start` points to `length` bytes that stay until the caller has the result of the command. Until then nobody writes to
    /// them, if the command writes them to the namespace; nobody but this library reads or writes them, if it reads.
    pub(crate) unsafe fn new(start: NonNull<u8>, length: usize) -> CallerMemory {
        CallerMemory { start, length }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Lends it to a device, without a copy.
    pub(crate) fn lend(self) -> (Bytes, Released) {
        let released = Arc::new(AtomicBool::new(false));
        let lent = Lent { memory: self, released: Arc::clone(&released) };
        (Bytes::from_owner(lent), Released(released))
    }

    /// Replaces what is in it; where `bytes` are fewer, the rest becomes zeros.
    ///
    /// # Panics
    /// With more bytes than there is room for.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.length, "a read brings as many bytes as were asked for");
        // SAFETY: the constructor's promise: the memory is there, and nobody else uses it. `bytes` is a buffer of a device, so the
        // two do not overlap; the second range begins within or at the end of the memory.
        unsafe {
            let start = self.start.as_ptr();
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start.add(bytes.len()).write_bytes(0, self.length - bytes.len());
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the constructor's promise, which holds until the caller has the result; and that is held back until this
        // has been dropped.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.length) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Release: whatever was read has been read before the caller learns of it.
        self.released.store(true, Ordering::Release);
    }
}

impl Released {
    /// Whether the last reference has gone.
    pub(crate) fn is_true(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_with_its_last_reference() {
        let mut memory = [1_u8, 2, 3, 4];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: `memory` outlives all references, and is not written to before they are gone.
        let (bytes, released) = unsafe { CallerMemory::new(start, 4) }.lend();
        let tail = bytes.slice(2..);
        drop(bytes);
        assert!(!released.is_true());
        assert_eq!(tail, [3, 4][..]);
        drop(tail);
        assert!(released.is_true());
    }

    #[test]
    fn a_short_read_leaves_zeros_and_nothing_old() {
        let mut memory = [7_u8; 4];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: `memory` outlives it, and is read afterwards only.
        unsafe { CallerMemory::new(start, 4) }.fill(&[1, 2]);
        assert_eq!(memory, [1, 2, 0, 0]);
    }
}
