//! The order of sends on one socket: a queue, of which the front goes to the kernel as one message.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::entries::Entries;
use crate::work::{Pieces, Work};
use crate::{Outcome, Socket, limits};

/// The sends of one socket.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Keys of the sends, oldest first.
    queue: VecDeque<usize>,
    /// The kernel has the front, or its buffer is full: nothing else may be sent now.
    pub(crate) is_busy: bool,
    /// The socket is in the backend's list of senders.
    pub(crate) is_listed: bool,
    /// The error after which the stream has a gap.
    broken: Option<i32>,
}

/// The result of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Nothing is left.
    Idle,
    /// The socket accepts no more now.
    Blocked,
}

/// Appends a send to the queue of its socket. `true`: the backend must list the socket.
pub(crate) fn push(entries: &mut Entries, socket: &Rc<Socket>, key: usize) -> bool {
    let mut send_queue = socket.send_queue.borrow_mut();
    if let Some(error) = send_queue.broken {
        entries.finish(key, Err(io::Error::from_raw_os_error(error)));
        return false;
    }
    send_queue.queue.push_back(key);
    drop(send_queue);
    wants_listing(socket)
}

/// The key under which the kernel has the front of the queue.
pub(crate) fn front(socket: &Socket) -> Option<usize> {
    socket.send_queue.borrow().queue.front().copied()
}

/// The pieces of as many sends as one call takes.
pub(crate) fn describe<'a>(entries: &'a Entries, socket: &Socket, slices: &mut Vec<IoSlice<'a>>) {
    for &key in &socket.send_queue.borrow().queue {
        if slices.len() == limits::PIECES_PER_CALL {
            break;
        }
        pieces(entries, key).describe(slices);
    }
}

/// Sends until nothing is left or the socket accepts no more, without waiting.
pub(crate) fn send_now(entries: &mut Entries, socket: &Socket) -> Sending {
    loop {
        complete_sent(entries, socket);
        if socket.send_queue.borrow().queue.is_empty() {
            return Sending::Idle;
        }
        let mut slices = Vec::with_capacity(16);
        describe(entries, socket, &mut slices);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::AGAIN) => return Sending::Blocked,
            result => advance(entries, socket, result.map_err(io::Error::from)),
        }
    }
}

/// Continues after a call that sent `result` bytes: ends the complete sends, or all of them after
/// an error.
pub(crate) fn advance(entries: &mut Entries, socket: &Socket, result: io::Result<usize>) {
    let mut left = match result {
        Ok(count) => count as u64,
        Err(error) if error.kind() == ErrorKind::Interrupted => return,
        Err(error) => return fail(entries, socket, error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
    };
    while left > 0 {
        let key = front(socket).expect("what was sent is in the queue");
        let Work::Send { pieces, .. } = &mut entries.get_mut(key).work else { panic!("a send queue holds sends") };
        let taken = pieces.consume(left);
        entries.get_mut(key).moved += taken;
        left -= taken;
        complete_sent(entries, socket);
    }
}

/// Marks that the stream has a gap from here on; the kernel returns its operation first.
pub(crate) fn break_off(socket: &Socket, error: i32) {
    socket.send_queue.borrow_mut().broken.get_or_insert(error);
}

/// Continues when the kernel has returned its operation: a queue broken meanwhile fails.
pub(crate) fn release(entries: &mut Entries, socket: &Socket) {
    let mut send_queue = socket.send_queue.borrow_mut();
    send_queue.is_busy = false;
    let broken = send_queue.broken;
    drop(send_queue);
    if let Some(error) = broken {
        fail(entries, socket, error);
    }
}

/// Whether the backend must list the socket, because a send is left and none is in progress.
pub(crate) fn wants_listing(socket: &Socket) -> bool {
    let mut send_queue = socket.send_queue.borrow_mut();
    !send_queue.queue.is_empty() && !send_queue.is_busy && !std::mem::replace(&mut send_queue.is_listed, true)
}

/// Fails every send of the socket, queued and future.
pub(crate) fn fail(entries: &mut Entries, socket: &Socket, error: i32) {
    let mut send_queue = socket.send_queue.borrow_mut();
    send_queue.broken.get_or_insert(error);
    for key in send_queue.queue.drain(..) {
        entries.finish(key, Err(io::Error::from_raw_os_error(error)));
    }
}

/// Completes the sends at the front that have no bytes left.
fn complete_sent(entries: &mut Entries, socket: &Socket) {
    let mut send_queue = socket.send_queue.borrow_mut();
    while let Some(&key) = send_queue.queue.front() {
        if !pieces(entries, key).is_empty() {
            break;
        }
        send_queue.queue.pop_front();
        entries.finish(key, Ok(Outcome::Sent));
    }
}

fn pieces(entries: &Entries, key: usize) -> &Pieces {
    let Work::Send { pieces, .. } = &entries.get(key).work else { panic!("a send queue holds sends") };
    pieces
}
