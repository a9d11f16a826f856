//! Memory of the caller that is in use until a command has completed. One of the two files with
//! unsafe code.
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

/// Caller's memory lent to a device; sets a flag when the last reference is dropped.
struct Borrowed {
    memory: CallerMemory,
    released: Arc<AtomicBool>,
}

/// Becomes true when a device has released lent memory.
#[derive(Clone, Debug)]
pub(crate) struct Released(Arc<AtomicBool>);

// SAFETY: it is a pointer and a length. The caller guarantees that the memory stays valid and is
// not written to; then any thread may use it.
unsafe impl Send for CallerMemory {}
// SAFETY: as above; `&CallerMemory` gives reading access only, and only in `Borrowed`.
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// # Safety
    /// `start` points to `length` bytes that stay valid until the caller has the result of the
    /// command. Until then they are not written to, if the command writes to the namespace; if it
    /// reads, only this library accesses them.
    pub(crate) unsafe fn new(start: NonNull<u8>, length: usize) -> CallerMemory {
        CallerMemory { start, length }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Lends it to a device, without a copy.
    pub(crate) fn lend(self) -> (Bytes, Released) {
        let released = Arc::new(AtomicBool::new(false));
        let borrowed = Borrowed { memory: self, released: Arc::clone(&released) };
        (Bytes::from_owner(borrowed), Released(released))
    }

    /// Replaces its content; if `bytes` is shorter, the rest is filled with zeros.
    ///
    /// # Panics
    /// With more bytes than the memory has.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.length, "a read returns no more bytes than requested");
        // SAFETY: the constructor's contract: the memory is valid, and nothing else uses it.
        // `bytes` is a buffer of a device, so the two do not overlap; the second range begins
        // within or at the end of the memory.
        unsafe {
            let start = self.start.as_ptr();
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start.add(bytes.len()).write_bytes(0, self.length - bytes.len());
        }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the constructor's contract, which holds until the caller has the result; the
        // result is withheld until this has been dropped.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.length) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // Release: all reads happen before the caller gets the result.
        self.released.store(true, Ordering::Release);
    }
}

impl Released {
    /// Whether the last reference was dropped.
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
        // SAFETY: `memory` outlives all references, and is not written to before they are dropped.
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
