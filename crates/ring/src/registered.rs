//! Buffers that the kernel has pinned once for all requests (`IORING_REGISTER_BUFFERS`). One of the
//! five files with unsafe code.
//!
//! A ring on io_uring registers one mapping, the pool, as one buffer; requests name any range of it.
//! It is divided into slots of a few sizes. A [`RegisteredBuffer`] is a slot.
//!
//! Soundness: the offset of a slot is either in the list of free slots or in exactly one
//! `RegisteredBuffer`, which may access that range of the mapping and keeps the mapping alive. A
//! buffer of a request that the kernel has is in an entry of the table that is marked as lent: the
//! entry, and with it the slot, stays until the completion is reaped, or is leaked. Then the slot is
//! never free again, and the mapping stays. The kernel writes only behind the filled part, which is all
//! that can be read here.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::limits::{REGISTERED_BYTES_MAX, REGISTERED_BYTES_MIN, REGISTERED_SLOT_BYTES};

/// Sizes of slots.
const CLASSES: usize = REGISTERED_SLOT_BYTES.len();

/// The mapping, and which slots of it are free. Each class of slots has an equal part of it.
pub(crate) struct Pool {
    base: NonNull<u8>,
    length: usize,
    /// Offsets of the free slots, by class.
    free: Mutex<[Vec<u32>; CLASSES]>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and the pool itself accesses none of it.
unsafe impl Send for Pool {}
// SAFETY: its methods by shared reference access the list alone, which has a lock.
unsafe impl Sync for Pool {}

/// A page-aligned buffer whose memory the kernel has pinned, of [`Client::registered_buffer`]. Where it
/// is dropped, on any thread and also after the ring, its memory is free for others.
///
/// [`Client::registered_buffer`]: crate::Client::registered_buffer
pub struct RegisteredBuffer {
    pool: Arc<Pool>,
    class: usize,
    /// Of the slot in the pool, in bytes.
    offset: u32,
    /// Bytes that it may hold.
    capacity: usize,
    /// Bytes that it holds.
    filled: usize,
}

impl Pool {
    /// Maps a pool, whose slots are all free.
    pub(crate) fn map(length: usize) -> io::Result<Pool> {
        assert!((REGISTERED_BYTES_MIN..=REGISTERED_BYTES_MAX).contains(&length) && length.is_power_of_two());
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let base: NonNull<u8> = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero");
        // SAFETY: it is the mapping of just above. A child process has no use for it, and would make this
        // process copy the pages that are pinned. Without the advice there is just that.
        let _ = unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxDontFork) };
        let part = length / CLASSES;
        let free = std::array::from_fn(|class| {
            let (start, bytes) = (class * part, REGISTERED_SLOT_BYTES[class]);
            (start..start + part).step_by(bytes).map(|offset| offset as u32).rev().collect()
        });
        Ok(Pool { base, length, free: Mutex::new(free) })
    }

    /// Address and length, for the registration.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.base.as_ptr(), self.length)
    }

    /// A buffer for this many bytes, not zero; `None` if no slot of the smallest size that suffices is
    /// free.
    pub(crate) fn take(self: &Arc<Pool>, capacity: usize) -> Option<RegisteredBuffer> {
        let class = REGISTERED_SLOT_BYTES.iter().position(|&bytes| capacity <= bytes)?;
        let offset = self.lock()[class].pop()?;
        Some(RegisteredBuffer { pool: Arc::clone(self), class, offset, capacity, filled: 0 })
    }

    /// A thread that panics does so between two changes of the list.
    fn lock(&self) -> MutexGuard<'_, [Vec<u32>; CLASSES]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: no buffer exists, as each keeps the pool. The kernel needs no mapping for what it has
        // pinned. An error would leave the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

impl RegisteredBuffer {
    /// Whether it is of this pool.
    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they are more than the spare capacity.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.spare().1, "the buffer has space for {} bytes", self.spare().1);
        // SAFETY: the spare capacity is within the slot, which belongs to this buffer alone, and `bytes`
        // are not in it.
        unsafe { self.spare().0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.filled += bytes.len();
    }

    /// Address and length of the spare capacity.
    pub(crate) fn spare(&self) -> (*mut u8, usize) {
        // SAFETY: the filled part is within the slot, and the slot within the mapping.
        let start = unsafe { self.pool.base.as_ptr().add(self.offset as usize + self.filled) };
        (start, self.capacity - self.filled)
    }

    /// Takes the first `count` bytes of the spare capacity into the buffer. What the kernel has not
    /// written there is of earlier uses, or zeros.
    pub(crate) fn append(&mut self, count: usize) {
        assert!(count <= self.spare().1, "the kernel stays within the spare capacity");
        self.filled += count;
    }

    /// The same bytes, shared.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for RegisteredBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the filled part is within the slot and the mapping, whose pages are zeros at first;
        // neither the kernel nor another buffer writes there.
        unsafe { std::slice::from_raw_parts(self.pool.base.as_ptr().add(self.offset as usize), self.filled) }
    }
}

impl Drop for RegisteredBuffer {
    fn drop(&mut self) {
        self.pool.lock()[self.class].push(self.offset);
    }
}

impl fmt::Debug for RegisteredBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegisteredBuffer { capacity, filled, .. } = self;
        f.debug_struct("RegisteredBuffer").field("capacity", capacity).field("filled", filled).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pool() -> Arc<Pool> {
        Arc::new(Pool::map(REGISTERED_BYTES_MIN).unwrap())
    }

    /// All buffers for so many bytes.
    fn take_all(pool: &Arc<Pool>, capacity: usize) -> Vec<RegisteredBuffer> {
        std::iter::from_fn(|| pool.take(capacity)).collect()
    }

    #[test]
    fn the_slots_are_page_aligned_within_the_mapping_and_overlap_nowhere() {
        let pool = pool();
        let (base, length) = pool.range();
        let slots: Vec<_> = REGISTERED_SLOT_BYTES.iter().flat_map(|&bytes| take_all(&pool, bytes)).collect();
        let mut ranges: Vec<_> = slots.iter().map(|slot| (slot.spare().0.addr(), slot.spare().1)).collect();
        ranges.sort_unstable();
        let mut end = base.addr();
        for (start, bytes) in ranges {
            assert!(start >= end && start % 4096 == 0, "{start:#x}");
            end = start + bytes;
        }
        assert_eq!(end, base.addr() + length, "all of it is used");
    }

    #[test]
    fn a_buffer_is_from_the_smallest_slots_that_suffice_until_those_are_exhausted() {
        let pool = pool();
        let part = REGISTERED_BYTES_MIN / CLASSES;
        for (index, bytes) in REGISTERED_SLOT_BYTES.into_iter().enumerate() {
            let least = if index == 0 { 1 } else { REGISTERED_SLOT_BYTES[index - 1] + 1 };
            let all = take_all(&pool, least);
            assert_eq!(all.len(), part / bytes, "slots of {bytes} bytes");
            assert!(pool.take(bytes).is_none());
            drop(all);
            assert_eq!(take_all(&pool, bytes).len(), part / bytes, "they are free again");
        }
        assert!(pool.take(REGISTERED_SLOT_BYTES[CLASSES - 1] + 1).is_none(), "no slot is that large");
    }

    #[test]
    fn bytes_that_are_dropped_on_another_thread_free_their_slot() {
        let pool = pool();
        let mut all = take_all(&pool, 4096);
        let count = all.len();
        let mut buffer = all.pop().unwrap();
        buffer.extend_from_slice(b"a thread");
        let bytes = buffer.freeze();
        let piece = bytes.slice(2..);
        drop(bytes);
        assert!(pool.take(4096).is_none(), "a slice of it exists");
        std::thread::spawn(move || assert_eq!(&piece[..], b"thread")).join().unwrap();
        let again = pool.take(4096).expect("it is free");
        assert_eq!(again.as_ref(), b"", "nothing of an earlier use can be read");
        drop((all, again));
        assert_eq!(take_all(&pool, 4096).len(), count);
    }

    #[test]
    fn threads_that_take_and_free_slots_never_have_the_same_one() {
        let pool = pool();
        let threads: Vec<_> = (0..4_u8)
            .map(|mark| {
                let pool = Arc::clone(&pool);
                std::thread::spawn(move || {
                    for round in 0..200_usize {
                        let mut buffers: Vec<_> = (0..16).filter_map(|_| pool.take(128 << 10)).collect();
                        for buffer in &mut buffers {
                            buffer.extend_from_slice(&[mark; 64]);
                        }
                        let frozen: Vec<_> = buffers.into_iter().map(RegisteredBuffer::freeze).collect();
                        assert!(frozen.iter().all(|bytes| bytes[..] == [mark; 64]), "round {round}");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let offsets: BTreeSet<u32> = pool.lock().iter().flatten().copied().collect();
        assert_eq!(offsets.len(), pool.lock().iter().map(Vec::len).sum::<usize>(), "each is free once");
    }

    #[test]
    fn the_mapping_lives_as_long_as_the_last_buffer() {
        let pool = pool();
        let mut buffer = pool.take(16 << 10).unwrap();
        buffer.extend_from_slice(&[7; 16 << 10]);
        drop(pool);
        let bytes = buffer.freeze();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
