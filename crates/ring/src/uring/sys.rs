//! Memory lent to the kernel: the submission and completion queues. One of the five files with
//! unsafe code.
//!
//! Soundness: a request points into the heap memory of an entry (buffers, pieces), into the slot of a
//! registered buffer that the entry owns, or into the heap memory of a [`Message`] kept here. Lending marks the entry; the table keeps a marked entry, and does not
//! touch its work, until its completion is reaped here and the mark is cleared. If the table is
//! dropped before that, it leaks marked entries, and this module leaks their messages. Moving an
//! entry inside the table moves no heap memory.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use zonda_zoned::Duration;

use crate::entries::Entries;
use crate::registered::Pool;
use crate::work::{FileStep, FileWork, HAS_BUFFER, HOLE, Work, zeros};
use crate::{RegisteredBuffer, filled, limits, send_queue};

/// The two queues shared with the kernel.
pub(super) struct Queue {
    ring: IoUring,
    /// Message headers and vectors that the kernel reads, by the key of the operation.
    messages: BTreeMap<usize, Box<Message>>,
    can_set_length: bool,
    registration: Registration,
}

/// The registered buffers.
enum Registration {
    /// None was requested so far; at most so many bytes.
    Later(usize),
    /// Registered as the buffer with index 0.
    Done(Arc<Pool>),
    /// The kernel has refused, or there are to be none.
    Refused,
}

/// A completion queue entry.
pub(super) struct Completion {
    pub(super) event: Event,
    pub(super) result: io::Result<usize>,
    /// The socket of an accept that succeeded.
    pub(super) accepted: Option<OwnedFd>,
}

pub(super) enum Event {
    /// The waker's event was readable.
    Woken,
    /// The operation with this key has ended in the kernel.
    Ended(usize),
}

/// Several pieces in the layout that the kernel reads.
struct Message {
    header: Header,
    vectors: Vec<Vector>,
}

/// `struct iovec`.
#[repr(C)]
struct Vector {
    base: *const u8,
    length: usize,
}

/// `struct user_msghdr` of Linux.
#[repr(C)]
struct Header {
    name: *const u8,
    name_length: u32,
    vectors: *const Vector,
    vectors_count: usize,
    control: *const u8,
    control_length: usize,
    flags: u32,
}

/// User data of requests that are no operation; keys are far below.
const WOKEN: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

impl Queue {
    /// Creates a ring with as many of the flags as the kernel supports.
    pub(super) fn new(entries: u32, registered_bytes: usize) -> io::Result<Queue> {
        let ring = make(entries)?;
        let parameters = ring.params();
        if !(parameters.is_feature_ext_arg() && parameters.is_feature_nodrop() && parameters.is_feature_fast_poll()) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is older than Linux 5.11"));
        }
        let mut probe = Probe::new();
        let can_set_length =
            ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Ftruncate::CODE);
        let registration = Registration::Later(registered_bytes);
        Ok(Queue { ring, messages: BTreeMap::new(), can_set_length, registration })
    }

    /// A registered buffer, if one is free.
    pub(super) fn registered_buffer(&mut self, capacity: usize) -> Option<RegisteredBuffer> {
        if let Registration::Later(most) = self.registration {
            self.registration = Registration::of(most, |pool| self.register(pool));
        }
        let Registration::Done(pool) = &self.registration else { return None };
        pool.take(capacity)
    }

    /// Registers a pool.
    fn register(&self, pool: &Pool) -> io::Result<()> {
        let (base, length) = pool.range();
        let vector = Vector { base, length };
        // SAFETY: a `Vector` is a `struct iovec`.
        let vectors = unsafe { std::slice::from_raw_parts((&raw const vector).cast(), 1) };
        // SAFETY: the mapping is the pool's. The kernel pins its pages, so that it needs no mapping
        // afterwards, and writes only where a request tells it to: into slots that are lent.
        unsafe { self.ring.submitter().register_buffers(vectors) }
    }

    pub(super) fn has_registered(&self, buffer: &RegisteredBuffer) -> bool {
        matches!(&self.registration, Registration::Done(pool) if buffer.is_of(pool))
    }

    pub(super) fn registered_bytes(&self) -> usize {
        if let Registration::Done(pool) = &self.registration { pool.range().1 } else { 0 }
    }

    pub(super) fn can_set_length(&self) -> bool {
        self.can_set_length
    }

    /// Stages the operation; `false` when the submission queue is full.
    pub(super) fn lend(&mut self, entries: &mut Entries, key: usize) -> bool {
        if self.ring.submission().is_full() {
            return false;
        }
        let request = match self.describe(entries, key) {
            Described::Plain(request) => request,
            Described::Message(request, message) => {
                self.messages.insert(key, message);
                request
            }
        };
        entries.get_mut(key).is_lent = true;
        // SAFETY: the request points into memory of the entry, which is marked as lent just above
        // (for a send also of those behind it, which stay as long as the front of their send queue
        // does), or of its message, which is stored just above; both stay until `reap` sees the
        // completion of this key.
        let pushed = unsafe { self.ring.submission().push(&request.user_data(key as u64)) };
        pushed.expect("the queue is not full");
        true
    }

    /// Asks the kernel to cancel an operation; `false` when the submission queue is full.
    pub(super) fn cancel(&mut self, key: usize) -> bool {
        let request = opcode::AsyncCancel::new(key as u64).build().user_data(CANCEL);
        // SAFETY: the request points to no memory.
        unsafe { self.ring.submission().push(&request) }.is_ok()
    }

    /// Waits for the waker's event; `false` when the submission queue is full.
    pub(super) fn poll_event(&mut self, event: BorrowedFd<'_>) -> bool {
        let request = poll(event.as_raw_fd(), PollFlags::IN).user_data(WOKEN);
        // SAFETY: the request points to no memory. The descriptor lives as long as the ring: the
        // ring owns a waker.
        unsafe { self.ring.submission().push(&request) }.is_ok()
    }

    /// The completion queue is empty, and no completion waits inside the kernel for an enter.
    pub(super) fn is_quiet(&mut self) -> bool {
        let submission = self.ring.submission();
        let is_calm = !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        is_calm && self.ring.completion().is_empty()
    }

    /// An entry is to be submitted, or a completion waits inside the kernel for an enter.
    pub(super) fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits, and waits for `least` completions for at most `timeout`. A timeout, a signal, and
    /// completions that must be reaped first are no errors: the caller checks the queue again.
    pub(super) fn enter(&mut self, least: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let result = match timeout {
            None => submitter.submit_and_wait(least),
            Some(Duration(ns)) => {
                let time = Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
                submitter.submit_with_args(least, &SubmitArgs::new().timespec(&time))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::TIME | Errno::INTR | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Reaps completions. Bytes received and read are in their buffers afterwards.
    pub(super) fn reap(&mut self, entries: &mut Entries, completions: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let returned = entry.result();
            let result = match usize::try_from(returned) {
                Ok(count) => Ok(count),
                Err(_) => Err(io::Error::from_raw_os_error(-returned)),
            };
            let mut completion = Completion { event: Event::Woken, result, accepted: None };
            match entry.user_data() {
                WOKEN => {}
                CANCEL => continue,
                key => {
                    let key = key as usize;
                    completion.event = Event::Ended(key);
                    self.messages.remove(&key);
                    take_back(entries, key, &mut completion);
                }
            }
            completions.push(completion);
        }
    }

    /// The request for an operation that is not lent.
    fn describe(&mut self, entries: &mut Entries, key: usize) -> Described {
        assert!(!entries.get(key).is_lent, "an operation is submitted once at a time");
        match &mut entries.get_mut(key).work {
            Work::Accept { listener } => {
                let flags = SocketFlags::CLOEXEC.bits() as i32;
                let none = std::ptr::null_mut();
                Described::Plain(opcode::Accept::new(fd_of(listener), none, none.cast()).flags(flags).build())
            }
            Work::Connect { socket } => Described::Plain(poll(fd_of(socket).0, PollFlags::OUT)),
            Work::Receive { socket, buffer } => {
                let fd = fd_of(socket);
                let spare = filled::spare_for_call(buffer);
                Described::Plain(opcode::Recv::new(fd, spare.as_mut_ptr().cast(), spare.len() as u32).build())
            }
            Work::Send { .. } => {
                let Work::Send { socket, .. } = &entries.get(key).work else { panic!("it is a send") };
                let mut slices = Vec::new();
                send_queue::describe(entries, socket, &mut slices);
                let message = Message::new(&slices);
                let flags = (SendFlags::NOSIGNAL.bits()) | WAIT_ALL;
                let header: *const Header = &raw const message.header;
                let request = opcode::SendMsg::new(fd_of(socket), header.cast()).flags(flags).build();
                Described::Message(request, message)
            }
            Work::File(_) => {
                let Work::File(file) = &mut entries.get_mut(key).work else { panic!("it is file work") };
                self.describe_file(file)
            }
            Work::Taken => panic!("io_uring uses no thread pool"),
        }
    }

    fn describe_file(&mut self, file: &mut FileWork) -> Described {
        let fd = Fd(file.fd.as_raw_fd());
        Described::Plain(match &mut file.step {
            FileStep::Read { offset, buffer } => {
                let spare = filled::spare_for_call(buffer);
                opcode::Read::new(fd, spare.as_mut_ptr().cast(), spare.len() as u32).offset(*offset).build()
            }
            FileStep::Write { offset, pieces } => {
                let mut slices = Vec::new();
                pieces.describe(&mut slices);
                if let [slice] = &slices[..] {
                    let length = slice.len().min(limits::BYTES_PER_CALL) as u32;
                    opcode::Write::new(fd, slice.as_ptr(), length).offset(*offset).build()
                } else {
                    let message = Message::new(&slices);
                    let (base, count) = (message.vectors.as_ptr(), message.vectors.len() as u32);
                    let request = opcode::Writev::new(fd, base.cast(), count).offset(*offset).build();
                    return Described::Message(request, message);
                }
            }
            FileStep::ReadRegistered { offset, buffer } => {
                let (start, length) = buffer.as_ref().expect(HAS_BUFFER).spare();
                opcode::ReadFixed::new(fd, start, length as u32, POOL_INDEX).offset(*offset).build()
            }
            FileStep::WriteRegistered { offset, buffer, written } => {
                let left = &buffer.as_ref()[*written..];
                opcode::WriteFixed::new(fd, left.as_ptr(), left.len() as u32, POOL_INDEX).offset(*offset).build()
            }
            FileStep::Zero { offset, length } => {
                let piece = zeros(*length);
                opcode::Write::new(fd, piece.as_ptr(), piece.len() as u32).offset(*offset).build()
            }
            FileStep::Sync { data_only } => {
                let flags = if *data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            FileStep::Punch { offset, length } => {
                opcode::Fallocate::new(fd, *length).offset(*offset).mode(HOLE.bits() as i32).build()
            }
            FileStep::Allocate { offset, length } => {
                let mode = FallocateFlags::KEEP_SIZE.bits() as i32;
                opcode::Fallocate::new(fd, *length).offset(*offset).mode(mode).build()
            }
            FileStep::SetLength { length } => opcode::Ftruncate::new(fd, *length).build(),
        })
    }
}

impl Registration {
    /// Registers `most` bytes, or as many as the user may lock. `register` passes a pool to the kernel.
    fn of(most: usize, register: impl Fn(&Pool) -> io::Result<()>) -> Registration {
        let mut length = if most == 0 { 0 } else { 1 << most.ilog2() };
        while length >= limits::REGISTERED_BYTES_MIN {
            let Ok(pool) = Pool::map(length) else { break };
            match register(&pool) {
                Ok(()) => return Registration::Done(Arc::new(pool)),
                Err(error) if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => length /= 2,
                Err(_) => break,
            }
        }
        Registration::Refused
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.messages.is_empty() {
            std::mem::forget(std::mem::take(&mut self.messages));
        }
    }
}

impl Message {
    /// Describes the pieces in heap memory, which does not move with the box.
    fn new(slices: &[io::IoSlice<'_>]) -> Box<Message> {
        let vectors: Vec<Vector> =
            slices.iter().map(|slice| Vector { base: slice.as_ptr(), length: slice.len() }).collect();
        let header = Header {
            name: std::ptr::null(),
            name_length: 0,
            vectors: vectors.as_ptr(),
            vectors_count: vectors.len(),
            control: std::ptr::null(),
            control_length: 0,
            flags: 0,
        };
        Box::new(Message { header, vectors })
    }
}

enum Described {
    Plain(squeue::Entry),
    /// With the message that the request points to.
    Message(squeue::Entry, Box<Message>),
}

/// `MSG_WAITALL`: the kernel continues by itself after a short send.
const WAIT_ALL: u32 = 0x100;
/// The index of the only registered buffer.
const POOL_INDEX: u16 = 0;

/// Clears the mark of an entry that the kernel has ended, and adds the bytes it wrote to the
/// buffer.
fn take_back(entries: &mut Entries, key: usize, completion: &mut Completion) {
    let entry = entries.get_mut(key);
    assert!(entry.is_lent, "a completed entry was lent");
    entry.is_lent = false;
    let Ok(count) = completion.result else { return };
    match &mut entry.work {
        Work::Receive { buffer, .. } | Work::File(FileWork { step: FileStep::Read { buffer, .. }, .. }) => {
            // SAFETY: the kernel has written `count` bytes from the start of the spare capacity
            // that it was lent, and the buffer was not touched since.
            unsafe { filled::append(buffer, count) };
        }
        Work::File(FileWork { step: FileStep::ReadRegistered { buffer, .. }, .. }) => {
            buffer.as_mut().expect(HAS_BUFFER).append(count);
        }
        Work::Accept { .. } => {
            // SAFETY: the result of an accept is a new descriptor, which nothing else owns.
            completion.accepted = Some(unsafe { OwnedFd::from_raw_fd(count as RawFd) });
        }
        _ => {}
    }
}

/// Creates the ring with the most recent set of flags that the kernel accepts.
fn make(entries: u32) -> io::Result<IoUring> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for level in 0..3 {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(entries.saturating_mul(limits::COMPLETIONS_PER_ENTRY)).dontfork();
        match level {
            // Linux 6.1.
            0 => builder.setup_submit_all().setup_taskrun_flag().setup_single_issuer().setup_defer_taskrun(),
            // Linux 5.19.
            1 => builder.setup_submit_all().setup_taskrun_flag().setup_coop_taskrun(),
            _ => &mut builder,
        };
        result = builder.build(entries);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            _ => break,
        }
    }
    result
}

fn poll(fd: RawFd, flags: PollFlags) -> squeue::Entry {
    opcode::PollAdd::new(Fd(fd), u32::from(flags.bits())).build()
}

fn fd_of(socket: &crate::Socket) -> Fd {
    use std::os::fd::AsFd;
    Fd(socket.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::limits::{REGISTERED_BYTES_DEFAULT, REGISTERED_BYTES_MIN};

    /// The bytes registered if the kernel allows `allowed`, and the sizes of the attempts.
    fn registered(most: usize, allowed: usize, refusal: Errno) -> (usize, Vec<usize>) {
        let attempts = RefCell::new(Vec::new());
        let registration = Registration::of(most, |pool| {
            let length = pool.range().1;
            attempts.borrow_mut().push(length);
            if length <= allowed { Ok(()) } else { Err(refusal.into()) }
        });
        let bytes = if let Registration::Done(pool) = &registration { pool.range().1 } else { 0 };
        (bytes, attempts.into_inner())
    }

    #[test]
    fn as_many_bytes_are_registered_as_the_user_may_lock() {
        const MIB: usize = 1 << 20;
        assert_eq!(registered(32 * MIB, usize::MAX, Errno::NOMEM), (32 * MIB, vec![32 * MIB]));
        assert_eq!(registered(33 * MIB, 8 * MIB, Errno::NOMEM), (8 * MIB, vec![32 * MIB, 16 * MIB, 8 * MIB]));
        let (bytes, attempts) = registered(REGISTERED_BYTES_DEFAULT, 0, Errno::NOMEM);
        assert_eq!((bytes, attempts.last()), (0, Some(&REGISTERED_BYTES_MIN)), "no fewer are worth it");
        assert_eq!(registered(32 * MIB, 8 * MIB, Errno::PERM), (0, vec![32 * MIB]), "fewer are refused, too");
        assert_eq!(registered(REGISTERED_BYTES_MIN - 1, usize::MAX, Errno::NOMEM), (0, vec![]));
        assert_eq!(registered(0, usize::MAX, Errno::NOMEM), (0, vec![]));
    }
}
