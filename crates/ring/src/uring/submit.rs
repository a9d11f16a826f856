//! From the table into the submission queue.

use std::io;
use std::rc::Rc;

use super::Uring;
use crate::entries::Entries;
use crate::send_queue::{self, Sending};
use crate::work::{FileStep, Progress, Work, cancelled};

impl Uring {
    /// Sends what can be sent at once, and stages the rest.
    pub(super) fn prepare(&mut self, entries: &mut Entries) -> io::Result<()> {
        self.arm_waker();
        self.send(entries)?;
        while let Some(key) = self.pending.pop_front() {
            if entries.get(key).is_cancelled {
                entries.finish(key, Err(cancelled()));
            } else if !self.truncate_now(entries, key) {
                self.lend(entries, key)?;
            }
        }
        while let Some(key) = self.cancels.pop() {
            if !self.queue.cancel(key) {
                self.cancels.push(key);
                self.enter(0, None)?;
            }
            self.is_urgent = true;
        }
        Ok(())
    }

    pub(super) fn arm_waker(&mut self) {
        if !self.is_waker_armed {
            self.is_waker_armed = self.queue.poll_event(self.waker.event());
        }
    }

    fn send(&mut self, entries: &mut Entries) -> io::Result<()> {
        while let Some(socket) = self.senders.pop() {
            socket.send_queue.borrow_mut().is_listed = false;
            if send_queue::send_now(entries, &socket) == Sending::Blocked {
                let key = send_queue::front(&socket).expect("a blocked send is in the queue");
                socket.send_queue.borrow_mut().is_busy = true;
                self.lend(entries, key)?;
            }
        }
        Ok(())
    }

    /// Stages one operation. If the submission queue is full, its entries are submitted first.
    fn lend(&mut self, entries: &mut Entries, key: usize) -> io::Result<()> {
        while !self.queue.lend(entries, key) {
            if let Err(error) = self.enter(0, None) {
                self.put_back(entries, key);
                return Err(error);
            }
        }
        self.lent += 1;
        self.lent_files += usize::from(matches!(entries.get(key).work, Work::File(_)));
        self.is_urgent |= !matches!(entries.get(key).work, Work::Receive { .. } | Work::Accept { .. });
        Ok(())
    }

    /// The kernel accepted nothing: the next iteration tries again.
    fn put_back(&mut self, entries: &Entries, key: usize) {
        if let Work::Send { socket, .. } = &entries.get(key).work {
            socket.send_queue.borrow_mut().is_busy = false;
            if send_queue::wants_listing(socket) {
                self.senders.push(Rc::clone(socket));
            }
        } else {
            self.pending.push_front(key);
        }
    }

    /// Sets the length of a file synchronously where the ring cannot (before Linux 6.9). It is
    /// rare, and changes only metadata.
    fn truncate_now(&mut self, entries: &mut Entries, key: usize) -> bool {
        if self.queue.can_set_length() {
            return false;
        }
        let Work::File(file) = &mut entries.get_mut(key).work else { return false };
        let FileStep::SetLength { length } = file.step else { return false };
        let result = rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&file.fd, length));
        let Progress::Ended(result) = file.advance(result.map(|()| 0).map_err(io::Error::from)) else {
            panic!("one call sets a length")
        };
        entries.finish(key, result);
        true
    }
}
