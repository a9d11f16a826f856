//! The epoll backend: sockets are tried first and waited for when they would block; files are for a
//! pool of threads.

mod file_pool;
mod sockets;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use slab::Slab;
use zonda_zoned::{Duration, Instant};

use crate::clock::{Clock, timespec};
use crate::entries::Entries;
use crate::work::{Work, cancelled};
use crate::{RingOptions, Socket, Waker, limits, send_queue};

use file_pool::FilePool;
pub(crate) use sockets::Interest;

/// User data of events that belong to no socket; slots are far below.
const WOKEN: u64 = u64::MAX;
const FILES: u64 = u64::MAX - 1;
const TIMER: u64 = u64::MAX - 2;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// Ends a wait to the nanosecond; epoll itself counts in milliseconds on older kernels.
    timer: OwnedFd,
    /// The expiry of the timer.
    timer_at: Option<Instant>,
    clock: Clock,
    spin: Duration,
    waker: Waker,
    is_woken: bool,
    files: FilePool,
    /// Sockets that epoll watches, by slot. Slots of dropped sockets are swept from time to time.
    watched: Slab<Weak<Socket>>,
    /// The number of slots at which to sweep.
    sweep_at: usize,
    /// Keys of operations that have not been tried yet.
    pending: VecDeque<usize>,
    /// Sockets with something to send.
    senders: Vec<Rc<Socket>>,
    /// The last iteration did not call `epoll_wait`.
    has_deferred: bool,
    events: Vec<Event>,
}

impl Epoll {
    pub(crate) fn new(options: &RingOptions, clock: Clock, waker: Waker) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let files = FilePool::new(options.file_threads)?;
        let marks = [(waker.event(), WOKEN), (files.event(), FILES)];
        for (fd, mark) in marks {
            epoll::add(&epoll, fd, EventData::new_u64(mark), EventFlags::IN)?;
        }
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll {
            epoll,
            timer,
            timer_at: None,
            clock,
            spin: options.spin,
            waker,
            is_woken: false,
            files,
            watched: Slab::new(),
            sweep_at: 64,
            pending: VecDeque::new(),
            senders: Vec::new(),
            has_deferred: false,
            events: Vec::with_capacity(limits::EVENTS_PER_WAIT),
        })
    }

    pub(crate) fn start(&mut self, key: usize) {
        self.pending.push_back(key);
    }

    pub(crate) fn list_sender(&mut self, socket: Rc<Socket>) {
        self.senders.push(socket);
    }

    pub(crate) fn cancel(&mut self, entries: &mut Entries, key: usize) {
        match &entries.get(key).work {
            Work::Send { socket, .. } => {
                let socket = Rc::clone(socket);
                send_queue::fail(entries, &socket, Errno::CANCELED.raw_os_error());
            }
            Work::Accept { listener: socket } | Work::Receive { socket, .. } | Work::Connect { socket } => {
                // An operation that was not tried yet is in `pending`, and ends there.
                if socket.interest.borrow_mut().forget(key) {
                    entries.finish(key, Err(cancelled()));
                }
            }
            // A thread that has begun finishes, and its result is dropped.
            Work::Taken => self.files.cancel(key),
            Work::File(_) => {}
        }
    }

    pub(crate) fn run_once(&mut self, entries: &mut Entries, until: Option<Instant>) -> io::Result<()> {
        let mut has_looked = false;
        let mut spin_until = None;
        loop {
            self.prepare(entries)?;
            if entries.has_news || self.is_woken {
                // Operations that end at once must not starve the others, so every second iteration
                // calls epoll.
                if !has_looked && self.has_deferred {
                    self.wait(entries, true)?;
                }
                self.has_deferred = !has_looked && !self.has_deferred;
                entries.has_news = false;
                self.is_woken = false;
                return Ok(());
            }
            let now = self.clock.now();
            let is_over = until.is_some_and(|until| until <= now);
            if is_over && has_looked {
                return Ok(());
            }
            let is_spinning = now < *spin_until.get_or_insert(now + self.spin);
            if !is_over && !is_spinning {
                self.set_timer(now, until)?;
            }
            self.wait(entries, is_over || is_spinning)?;
            has_looked = true;
        }
    }

    /// Ends everything, and waits for file operations in progress.
    pub(crate) fn close(&mut self, entries: &mut Entries) -> bool {
        for (key, work, result) in self.files.close() {
            entries.get_mut(key).is_lent = false;
            entries.get_mut(key).moved = work.moved;
            entries.finish(key, result);
        }
        for key in entries.keys() {
            entries.get_mut(key).is_lent = false;
            entries.finish(key, Err(cancelled()));
        }
        true
    }

    /// Tries new operations.
    fn prepare(&mut self, entries: &mut Entries) -> io::Result<()> {
        self.send(entries)?;
        while let Some(key) = self.pending.pop_front() {
            let entry = entries.get_mut(key);
            if entry.is_cancelled {
                entries.finish(key, Err(cancelled()));
                continue;
            }
            match &entry.work {
                Work::Accept { listener: socket } | Work::Receive { socket, .. } | Work::Connect { socket } => {
                    let socket = Rc::clone(socket);
                    socket.interest.borrow_mut().waiting.push_back(key);
                    self.serve(entries, &socket)?;
                }
                _ => {
                    let Work::File(file) = std::mem::replace(&mut entry.work, Work::Taken) else {
                        panic!("sends are in their send queues")
                    };
                    entry.is_lent = true;
                    self.files.submit(key, file);
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, entries: &mut Entries, at_once: bool) -> io::Result<()> {
        self.events.clear();
        let zero = timespec(0);
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), at_once.then_some(&zero)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = std::mem::take(&mut self.events);
        let mut result = Ok(());
        for event in events.drain(..) {
            match event.data.u64() {
                WOKEN => {
                    self.waker.clear();
                    self.is_woken = true;
                }
                FILES => self.reap_files(entries),
                TIMER => self.timer_at = None,
                slot => result = result.and(self.ready(entries, slot as usize, event.flags)),
            }
        }
        self.events = events;
        result
    }

    fn reap_files(&mut self, entries: &mut Entries) {
        for (key, work, result) in self.files.reap() {
            let entry = entries.get_mut(key);
            entry.is_lent = false;
            entry.moved = work.moved;
            entries.finish(key, result);
        }
    }

    /// The timer stays armed over iterations with the same deadline; one that expires early, for an
    /// earlier deadline, costs one more iteration.
    fn set_timer(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        let Some(until) = until else { return Ok(()) };
        if self.timer_at == Some(until) {
            return Ok(());
        }
        let setting =
            Itimerspec { it_interval: timespec(0), it_value: timespec(until.since(now).min(limits::SLEEP_MAX).0) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.timer_at = Some(until);
        Ok(())
    }
}
