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
pub(crate) struct Lane {
    /// Keys of the sends, oldest first.
    queue: VecDeque<usize>,
    /// The kernel has the front, or has said that there is no room: nothing else may be sent now.
    pub(crate) is_busy: bool,
    /// The backend knows that there is something to send.
    pub(crate) is_listed: bool,
    /// The error after which the stream has a gap.
    broken: Option<i32>,
}

/// What came of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Nothing is left.
    Idle,
    /// The socket takes no more now.
    Blocked,
}

/// Puts a send at the end of the queue of its socket. `true`: the backend shall list the socket.
pub(crate) fn push(entries: &mut Entries, socket: &Rc<Socket>, key: usize) -> bool {
    let mut lane = socket.lane.borrow_mut();
    if let Some(error) = lane.broken {
        entries.finish(key, Err(io::Error::from_raw_os_error(error)));
        return false;
    }
    lane.queue.push_back(key);
    drop(lane);
    wants_listing(socket)
}

/// The key under which the kernel has the front of the queue.
pub(crate) fn front(socket: &Socket) -> Option<usize> {
    socket.lane.borrow().queue.front().copied()
}

/// The pieces of as many sends as one call takes.
pub(crate) fn describe<'a>(entries: &'a Entries, socket: &Socket, slices: &mut Vec<IoSlice<'a>>) {
    for &key in &socket.lane.borrow().queue {
        if slices.len() == limits::PIECES_PER_CALL {
            break;
        }
        pieces(entries, key).describe(slices);
    }
}

/// Sends until nothing is left or the socket takes no more, without waiting.
pub(crate) fn send_now(entries: &mut Entries, socket: &Socket) -> Sending {
    loop {
        settle(entries, socket);
        if socket.lane.borrow().queue.is_empty() {
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

/// Goes on after a call that sent `result` bytes: ends the sends that are whole, or all of them after an error.
pub(crate) fn advance(entries: &mut Entries, socket: &Socket, result: io::Result<usize>) {
    let mut left = match result {
        Ok(count) => count as u64,
        Err(error) if error.kind() == ErrorKind::Interrupted => return,
        Err(error) => return fail(entries, socket, error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
    };
    while left > 0 {
        let key = front(socket).expect("what was sent is in the queue");
        let Work::Send { pieces, .. } = &mut entries.get_mut(key).work else { panic!("a lane holds sends") };
        let taken = pieces.consume(left);
        entries.get_mut(key).moved += taken;
        left -= taken;
        settle(entries, socket);
    }
}

/// The stream has a gap from here on; what the kernel has comes back first.
pub(crate) fn break_off(socket: &Socket, error: i32) {
    socket.lane.borrow_mut().broken.get_or_insert(error);
}

/// Goes on when the kernel has given back what it had: a lane broken in the meantime ends.
pub(crate) fn release(entries: &mut Entries, socket: &Socket) {
    let mut lane = socket.lane.borrow_mut();
    lane.is_busy = false;
    let broken = lane.broken;
    drop(lane);
    if let Some(error) = broken {
        fail(entries, socket, error);
    }
}

/// Whether the backend shall list the socket, because something is left to send and nothing stands in its way.
pub(crate) fn wants_listing(socket: &Socket) -> bool {
    let mut lane = socket.lane.borrow_mut();
    !lane.queue.is_empty() && !lane.is_busy && !std::mem::replace(&mut lane.is_listed, true)
}

/// Ends every send of the socket, and those to come.
pub(crate) fn fail(entries: &mut Entries, socket: &Socket, error: i32) {
    let mut lane = socket.lane.borrow_mut();
    lane.broken.get_or_insert(error);
    for key in lane.queue.drain(..) {
        entries.finish(key, Err(io::Error::from_raw_os_error(error)));
    }
}

/// Ends the sends at the front that have nothing left.
fn settle(entries: &mut Entries, socket: &Socket) {
    let mut lane = socket.lane.borrow_mut();
    while let Some(&key) = lane.queue.front() {
        if !pieces(entries, key).is_empty() {
            break;
        }
        lane.queue.pop_front();
        entries.finish(key, Ok(Outcome::Sent));
    }
}

fn pieces(entries: &Entries, key: usize) -> &Pieces {
    let Work::Send { pieces, .. } = &entries.get(key).work else { panic!("a lane holds sends") };
    pieces
}
