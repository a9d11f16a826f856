//! Sockets under epoll, edge-triggered: an edge makes a socket ready until a call returns `EAGAIN`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::Epoll;
use crate::entries::Entries;
use crate::send_queue::{self, Sending};
use crate::work::Work;
use crate::{Outcome, Socket, filled};

/// The readiness of a socket, and the operations that wait for it.
#[derive(Debug)]
pub(crate) struct Interest {
    /// Its slot in the table of watched sockets.
    slot: Option<usize>,
    /// A receive or an accept is worth trying.
    is_readable: bool,
    /// The end of the stream has been reached or will be: a short receive does not mean that the
    /// socket is empty.
    is_ending: bool,
    /// Operations that wait for it to be readable (or, for a connect, writable), oldest first.
    pub(crate) waiting: VecDeque<usize>,
}

impl Default for Interest {
    fn default() -> Interest {
        Interest { slot: None, is_readable: true, is_ending: false, waiting: VecDeque::new() }
    }
}

impl Interest {
    /// Removes a cancelled operation; `false` when it was not waiting.
    pub(crate) fn forget(&mut self, key: usize) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|&waiting| waiting != key);
        self.waiting.len() < before
    }
}

impl Epoll {
    pub(super) fn send(&mut self, entries: &mut Entries) -> io::Result<()> {
        while let Some(socket) = self.senders.pop() {
            socket.send_queue.borrow_mut().is_listed = false;
            if send_queue::send_now(entries, &socket) == Sending::Blocked {
                socket.send_queue.borrow_mut().is_busy = true;
                self.watch(&socket)?;
            }
        }
        Ok(())
    }

    /// Handles an edge of the socket in `slot`; one of an earlier socket in that slot has no
    /// effect.
    pub(super) fn ready(&mut self, entries: &mut Entries, slot: usize, flags: EventFlags) -> io::Result<()> {
        let Some(socket) = self.watched.get(slot).and_then(std::rc::Weak::upgrade) else { return Ok(()) };
        let is_over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let is_connecting = self.is_connecting(entries, &socket);
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP) || is_over {
            let mut interest = socket.interest.borrow_mut();
            interest.is_readable = true;
            interest.is_ending |= flags.contains(EventFlags::RDHUP) || is_over;
        }
        if flags.contains(EventFlags::OUT) || is_over {
            if is_connecting {
                self.connected(entries, socket);
                return Ok(());
            }
            send_queue::release(entries, &socket);
            if send_queue::wants_listing(&socket) {
                self.senders.push(Rc::clone(&socket));
            }
        }
        self.serve(entries, &socket)
    }

    /// Tries the operations that wait for the socket, until it would block.
    pub(super) fn serve(&mut self, entries: &mut Entries, socket: &Rc<Socket>) -> io::Result<()> {
        let mut interest = socket.interest.borrow_mut();
        while interest.is_readable
            && let Some(&key) = interest.waiting.front()
        {
            let entry = entries.get_mut(key);
            let result = match &mut entry.work {
                // A connect always waits for an edge.
                Work::Connect { .. } => break,
                Work::Accept { listener } => accept(listener),
                Work::Receive { buffer, .. } => {
                    let spare = filled::spare(buffer);
                    filled::receive_now(socket.as_fd(), buffer).map(|count| {
                        entry.moved = count as u64;
                        // A short receive: the socket is empty, and later bytes cause an edge.
                        interest.is_readable = count == spare || count == 0 || interest.is_ending;
                        Outcome::Received(std::mem::take(buffer))
                    })
                }
                _ => panic!("receives, accepts and connects wait for sockets"),
            };
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => interest.is_readable = false,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                result => {
                    interest.waiting.pop_front();
                    entries.finish(key, result);
                }
            }
        }
        let must_watch = !interest.waiting.is_empty();
        drop(interest);
        if must_watch { self.watch(socket) } else { Ok(()) }
    }

    /// Adds the socket to epoll. If it is ready already, that causes an edge too.
    fn watch(&mut self, socket: &Rc<Socket>) -> io::Result<()> {
        let mut interest = socket.interest.borrow_mut();
        let is_mine = |slot: usize| self.watched.get(slot).is_some_and(|known| known.as_ptr() == Rc::as_ptr(socket));
        if interest.slot.is_some_and(is_mine) {
            return Ok(());
        }
        self.sweep();
        let slot = self.watched.insert(Rc::downgrade(socket));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(slot as u64);
        let result = match epoll::add(&self.epoll, socket, data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.epoll, socket, data, flags),
            result => result,
        };
        if result.is_err() {
            self.watched.remove(slot);
        } else {
            interest.slot = Some(slot);
        }
        Ok(result?)
    }

    /// Removes dropped sockets from the table, when it has doubled since the last time.
    fn sweep(&mut self) {
        if self.watched.len() >= self.sweep_at {
            self.watched.retain(|_, socket| socket.strong_count() > 0);
            self.sweep_at = 2 * self.watched.len() + 64;
        }
    }

    fn is_connecting(&self, entries: &Entries, socket: &Socket) -> bool {
        let front = socket.interest.borrow().waiting.front().copied();
        front.is_some_and(|key| matches!(entries.get(key).work, Work::Connect { .. }))
    }

    /// A connection is established or has failed.
    fn connected(&mut self, entries: &mut Entries, socket: Rc<Socket>) {
        let mut interest = socket.interest.borrow_mut();
        let key = interest.waiting.pop_front().expect("a connect waits");
        if let Some(slot) = interest.slot.take() {
            self.watched.remove(slot);
        }
        drop(interest);
        // Its next user may be another ring, so remove it here. An error means that it was not
        // watched.
        let _ = epoll::delete(&self.epoll, &socket);
        entries.get_mut(key).work = Work::Taken;
        let ended = socket.end_connect();
        let socket = Rc::into_inner(socket).expect("the operation holds the only reference");
        entries.finish(key, ended.map(|()| Outcome::Connected(socket)));
    }
}

fn accept(listener: &Socket) -> io::Result<Outcome> {
    // A connection that vanished in between must not leave this call waiting for the next one.
    listener.set_blocking(false)?;
    let fd = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
    Ok(Outcome::Accepted(Socket::from_fd(fd)))
}
