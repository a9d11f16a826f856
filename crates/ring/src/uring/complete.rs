//! From the completion queue back into the table.

use std::io::{self, ErrorKind};
use std::rc::Rc;

use super::Uring;
use super::sys::{Completion, Event};
use crate::entries::Entries;
use crate::work::{Progress, Work, cancelled};
use crate::{Outcome, Socket, send_queue};

impl Uring {
    /// Takes all completions from the queue.
    pub(super) fn reap(&mut self, entries: &mut Entries) {
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.reap(entries, &mut completions);
        for completion in completions.drain(..) {
            match completion.event {
                Event::Woken => {
                    self.is_waker_armed = false;
                    self.waker.clear();
                    self.is_woken = true;
                }
                Event::Ended(key) => {
                    self.lent -= 1;
                    self.ended(entries, key, completion);
                }
            }
        }
        self.completions = completions;
    }

    fn ended(&mut self, entries: &mut Entries, key: usize, completion: Completion) {
        let entry = entries.get_mut(key);
        let result = match &mut entry.work {
            Work::Send { socket, .. } => {
                let socket = Rc::clone(socket);
                return self.sent(entries, &socket, completion.result);
            }
            Work::Accept { .. } => match completion.result {
                Err(error) if is_transient(&error) => None,
                Err(error) => Some(Err(error)),
                Ok(_) => {
                    let fd = completion.accepted.expect("an accept that succeeds returns a socket");
                    Some(Ok(Outcome::Accepted(Socket::from_fd(fd))))
                }
            },
            Work::Connect { socket } => match completion.result {
                Err(error) if error.kind() == ErrorKind::Interrupted => None,
                Err(error) => Some(Err(error)),
                Ok(_) => Some(socket.end_connect()).map(|ended| {
                    let Work::Connect { socket } = std::mem::replace(&mut entry.work, Work::Taken) else {
                        panic!("a connect is a connect")
                    };
                    ended.map(|()| {
                        Outcome::Connected(Rc::into_inner(socket).expect("the operation holds the only reference"))
                    })
                }),
            },
            Work::Receive { buffer, .. } => match completion.result {
                Err(error) if error.kind() == ErrorKind::Interrupted => None,
                Err(error) => Some(Err(error)),
                Ok(count) => {
                    entry.moved = count as u64;
                    Some(Ok(Outcome::Received(std::mem::take(buffer))))
                }
            },
            Work::File(file) => {
                self.lent_files -= 1;
                let progress = file.advance(completion.result);
                entry.moved = file.moved;
                match progress {
                    Progress::More => None,
                    Progress::Ended(result) => Some(result),
                }
            }
            Work::Taken => panic!("io_uring uses no thread pool"),
        };
        match result {
            Some(result) => entries.finish(key, result),
            None if entry.is_cancelled => entries.finish(key, Err(cancelled())),
            None => self.pending.push_back(key),
        }
    }

    fn sent(&mut self, entries: &mut Entries, socket: &Rc<Socket>, result: io::Result<usize>) {
        send_queue::advance(entries, socket, result);
        send_queue::release(entries, socket);
        if send_queue::wants_listing(socket) {
            self.senders.push(Rc::clone(socket));
        }
    }
}

/// A connection that was closed before it was accepted is no failure of the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}
