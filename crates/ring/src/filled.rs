//! Bytes that the kernel wrote into spare capacity become part of the buffer. One of the five files
//! with unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use bytes::BytesMut;
use rustix::net::RecvFlags;

use crate::limits;

/// Receives the bytes that have arrived into the spare capacity, without waiting.
pub(crate) fn receive_now(fd: BorrowedFd<'_>, buffer: &mut BytesMut) -> io::Result<usize> {
    let ((filled, _), _) = rustix::net::recv(fd, spare_for_call(buffer), RecvFlags::DONTWAIT)?;
    let count = filled.len();
    // SAFETY: `recv` has written the first `count` bytes of the spare capacity.
    unsafe { append(buffer, count) };
    Ok(count)
}

/// Reads from `offset` into the spare capacity; blocks.
pub(crate) fn read_at(fd: BorrowedFd<'_>, buffer: &mut BytesMut, offset: u64) -> io::Result<usize> {
    let (filled, _) = rustix::io::pread(fd, spare_for_call(buffer), offset)?;
    let count = filled.len();
    // SAFETY: `pread` has written the first `count` bytes of the spare capacity.
    unsafe { append(buffer, count) };
    Ok(count)
}

/// The spare capacity that one call may fill.
pub(crate) fn spare_for_call(buffer: &mut BytesMut) -> &mut [MaybeUninit<u8>] {
    let spare = buffer.spare_capacity_mut();
    let count = spare.len().min(limits::BYTES_PER_CALL);
    &mut spare[..count]
}

/// Spare capacity of a buffer, in bytes.
pub(crate) fn spare(buffer: &BytesMut) -> usize {
    buffer.capacity() - buffer.len()
}

/// Takes the first `count` bytes of the spare capacity into the buffer.
///
/// # Safety
/// Those bytes have been written.
pub(crate) unsafe fn append(buffer: &mut BytesMut, count: usize) {
    assert!(count <= spare(buffer), "the kernel stays within the spare capacity");
    // SAFETY: the caller says that the bytes up to the new length are written; the length is within
    // the capacity.
    unsafe { buffer.set_len(buffer.len() + count) };
}
