//! The io_uring backend: everything goes through one queue, except sends that the socket accepts at
//! once.
//!
//! A send is tried as a plain system call first, all sends of a socket in one; only the rest goes
//! to the ring. The completion of a send through the ring would end the wait that is meant for the
//! reply, and cost a second enter. Measured with `examples/echo.rs` (4 KiB, queue depth 1, both
//! threads on one processor, Linux 6.18): 15.7 us a round trip, against 16.5 us with all sends
//! through the ring. Asking the kernel to wait for a socket before it tries to receive
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
use crate::{RegisteredBuffer, RingOptions, Socket, Waker, limits, send_queue};

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
    /// Keys of operations that the kernel is to cancel.
    cancels: Vec<usize>,
    /// Sockets with something to send.
    senders: Vec<Rc<Socket>>,
    /// Operations that the kernel owns.
    lent: usize,
    /// Those of them on files: the kernel may need a CPU for a worker thread.
    lent_files: usize,
    /// The submission queue has an entry that should be submitted soon.
    is_urgent: bool,
    /// The last iteration left its receives in the submission queue.
    has_deferred: bool,
    /// Completions of one round, kept for their memory.
    completions: Vec<Completion>,
}

impl Uring {
    pub(crate) fn new(options: &RingOptions, clock: Clock, waker: Waker) -> io::Result<Uring> {
        let mut uring = Uring {
            queue: Queue::new(options.entries, options.registered_bytes)?,
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
            has_deferred: false,
            completions: Vec::new(),
        };
        // A seccomp filter may allow io_uring_setup and refuse io_uring_enter.
        uring.arm_waker();
        uring.queue.enter(0, None)?;
        Ok(uring)
    }

    pub(crate) fn start(&mut self, key: usize) {
        self.pending.push_back(key);
    }

    pub(crate) fn registered_buffer(&mut self, capacity: usize) -> Option<RegisteredBuffer> {
        self.queue.registered_buffer(capacity)
    }

    pub(crate) fn has_registered(&self, buffer: &RegisteredBuffer) -> bool {
        self.queue.has_registered(buffer)
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        self.queue.registered_bytes()
    }

    pub(crate) fn list_sender(&mut self, socket: Rc<Socket>) {
        self.senders.push(socket);
    }

    pub(crate) fn cancel(&mut self, entries: &mut Entries, key: usize) {
        let entry = entries.get(key);
        if let Work::Send { socket, .. } = &entry.work {
            let socket = Rc::clone(socket);
            let error = Errno::CANCELED.raw_os_error();
            if !socket.send_queue.borrow().is_busy {
                return send_queue::fail(entries, &socket, error);
            }
            send_queue::break_off(&socket, error);
            self.cancels.extend(send_queue::front(&socket));
        } else if entry.is_lent {
            self.cancels.push(key);
        }
        // Any other operation waits in `pending`, and ends there.
    }

    pub(crate) fn run_once(&mut self, entries: &mut Entries, until: Option<Instant>) -> io::Result<()> {
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
                return self.submit_staged();
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
            // Sleep if polling has found nothing.
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

    /// Waits until the kernel has returned all buffers; `false` on timeout.
    pub(crate) fn close(&mut self, entries: &mut Entries) -> bool {
        let deadline = self.clock.now() + limits::CLOSE_TIMEOUT;
        while self.lent > 0 {
            let left = deadline.since(self.clock.now());
            if left == Duration::ZERO || self.prepare(entries).is_err() || self.enter(1, Some(left)).is_err() {
                return false;
            }
            self.reap(entries);
        }
        true
    }

    /// Submits staged entries before the iteration ends, without waiting. If they are only receives
    /// and accepts, the next iteration's wait can submit them for free, unless the last one did so
    /// too.
    fn submit_staged(&mut self) -> io::Result<()> {
        if !self.queue.needs_enter() {
            return Ok(());
        }
        if !self.is_urgent && !self.has_deferred {
            self.has_deferred = true;
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
        self.has_deferred = false;
        self.queue.enter(least, timeout)
    }
}
