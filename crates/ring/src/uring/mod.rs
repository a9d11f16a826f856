//! The io_uring backend: everything through one queue, but for sends that the socket takes at once.
//!
//! A send is tried as a plain system call first, all sends of a socket in one; only what the socket does not take goes to the
//! ring. The end of a send through the ring would end the wait that is meant for the answer, and cost a second enter. Measured
//! with `examples/echo.rs` (4 KiB, queue depth 1, both threads on one processor, Linux 6.18): 15.7 us a round trip, against 16.5
//! us with all sends through the ring. Asking the kernel to wait for a socket before it tries to receive
//! (`IORING_RECVSEND_POLL_FIRST`) gained nothing, so that is not done.

mod complete;
mod submit;
mod sys;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use rustix::io::Errno;
use zonda_zoned::{Duration, Instant};

use crate::clock::Clock;
use crate::entries::Entries;
use crate::spin::Spin;
use crate::work::Work;
use crate::{RingOptions, Socket, Waker, lane, limits};

use sys::{Completion, Queue};

pub(crate) struct Uring {
    queue: Queue,
    clock: Clock,
    spin: Spin,
    waker: Waker,
    /// The ring waits for the waker's event.
    is_waker_armed: bool,
    is_woken: bool,
    /// Keys of operations that are not with the kernel yet.
    pending: VecDeque<usize>,
    /// Keys of operations that the kernel shall cancel.
    cancels: Vec<usize>,
    /// Sockets with something to send.
    senders: Vec<Rc<Socket>>,
    /// Operations that the kernel has.
    lent: usize,
    /// Those of them on files: the kernel may need a processor for a worker thread.
    lent_files: usize,
    /// Something is in the submission queue that gains by being handed over soon.
    is_urgent: bool,
    /// The last turn left its receives in the submission queue.
    has_put_off: bool,
    /// Completions of one round, kept for their memory.
    completions: Vec<Completion>,
}

impl Uring {
    pub(crate) fn new(options: &RingOptions, clock: Clock, waker: Waker) -> io::Result<Uring> {
        let mut uring = Uring {
            queue: Queue::new(options.entries)?,
            clock,
            spin: Spin::new(options.spin),
            waker,
            is_waker_armed: false,
            is_woken: false,
            pending: VecDeque::new(),
            cancels: Vec::new(),
            senders: Vec::new(),
            lent: 0,
            lent_files: 0,
            is_urgent: false,
            has_put_off: false,
            completions: Vec::new(),
        };
        // A filter on system calls may allow the making of a ring, and refuse its use.
        uring.arm_waker();
        uring.queue.enter(0, None)?;
        Ok(uring)
    }

    pub(crate) fn start(&mut self, key: usize) {
        self.pending.push_back(key);
    }

    pub(crate) fn list_sender(&mut self, socket: Rc<Socket>) {
        self.senders.push(socket);
    }

    pub(crate) fn cancel(&mut self, entries: &mut Entries, key: usize) {
        let entry = entries.get(key);
        if let Work::Send { socket, .. } = &entry.work {
            let socket = Rc::clone(socket);
            let error = Errno::CANCELED.raw_os_error();
            if !socket.lane.borrow().is_busy {
                return lane::fail(entries, &socket, error);
            }
            lane::break_off(&socket, error);
            self.cancels.extend(lane::front(&socket));
        } else if entry.is_lent {
            self.cancels.push(key);
        }
        // What is neither waits in `pending`, and ends there.
    }

    pub(crate) fn turn(&mut self, entries: &mut Entries, until: Option<Instant>) -> io::Result<()> {
        let mut has_looked = false;
        let mut waiting_since = None;
        loop {
            self.prepare(entries)?;
            self.reap(entries);
            self.prepare(entries)?;
            if entries.has_news || self.is_woken {
                entries.has_news = false;
                self.is_woken = false;
                self.end_wait(waiting_since);
                return self.hand_over();
            }
            let now = self.clock.now();
            let left = until.map_or(limits::SLEEP_MAX, |until| until.since(now).min(limits::SLEEP_MAX));
            if left == Duration::ZERO {
                if has_looked {
                    self.end_wait(waiting_since);
                    return Ok(());
                }
                has_looked = true;
                self.enter_if_needed()?;
                continue;
            }
            // What polling has not brought is slept for.
            let may_spin = waiting_since.is_none() && self.lent_files == 0;
            let budget = if may_spin { self.spin.budget() } else { Duration::ZERO };
            waiting_since.get_or_insert(now);
            if budget == Duration::ZERO {
                self.enter(1, Some(left))?;
            } else {
                self.poll_until(now + budget.min(left))?;
            }
        }
    }

    /// Waits until the kernel has given everything back; `false` when it keeps something for too long.
    pub(crate) fn close(&mut self, entries: &mut Entries) -> bool {
        let patience = self.clock.now() + limits::CLOSE_PATIENCE;
        while self.lent > 0 {
            let left = patience.since(self.clock.now());
            if left == Duration::ZERO || self.prepare(entries).is_err() || self.enter(1, Some(left)).is_err() {
                return false;
            }
            self.reap(entries);
        }
        true
    }

    /// Submits before the turn ends, without waiting. When only receives and accepts are there, the next turn's wait can
    /// take them along for free, as long as that happens once in a row.
    fn hand_over(&mut self) -> io::Result<()> {
        if !self.queue.needs_enter() {
            return Ok(());
        }
        if !self.is_urgent && !self.has_put_off {
            self.has_put_off = true;
            return Ok(());
        }
        self.enter(0, None)
    }

    fn end_wait(&mut self, since: Option<Instant>) {
        if let Some(since) = since {
            self.spin.waited(self.clock.now().since(since));
        }
    }

    /// Polls the completion queue.
    fn poll_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.enter_if_needed()?;
        while self.queue.is_quiet() && self.clock.now() < deadline {
            std::hint::spin_loop();
        }
        self.enter_if_needed()
    }

    fn enter_if_needed(&mut self) -> io::Result<()> {
        if self.queue.needs_enter() { self.enter(0, None) } else { Ok(()) }
    }

    fn enter(&mut self, least: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.is_urgent = false;
        self.has_put_off = false;
        self.queue.enter(least, timeout)
    }
}
