//! The loop: what is common to both backends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use zonda_zoned::{Duration, Instant};

use crate::client::Inbox;
use crate::clock::Clock;
use crate::entries::Entries;
use crate::epoll::Epoll;
use crate::uring::Uring;
use crate::work::{FileStep, FileWork, Pieces, Work, cancelled};
use crate::{
    Backend, Client, Done, Operation, Outcome, RegisteredBuffer, RingOptions, Socket, Waker, filled, limits, send_queue,
};

/// An event loop of one thread.
///
/// Dropping it cancels outstanding operations and waits until the kernel has released all buffers
/// and file operations in progress have ended. Its clients remain valid, with nothing outstanding.
pub struct Ring {
    shared: Rc<Shared>,
    waker: Waker,
    backend: Backend,
    fallback_reason: Option<String>,
}

/// State shared by a ring and its clients.
pub(crate) struct Shared {
    core: RefCell<Core>,
    clock: Clock,
    /// The virtual time of a simulated ring.
    simulated: Option<Cell<Instant>>,
    /// Called before the virtual time advances.
    wait_hook: RefCell<Option<WaitHook>>,
    id: u64,
}

/// Takes the time up to which an iteration waits, and returns when it ends: at that time, or later.
type WaitHook = Rc<dyn Fn(Instant) -> Instant>;

struct Core {
    entries: Entries,
    machine: Machine,
    is_closed: bool,
}

enum Machine {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

/// Why an operation with a registered buffer panics.
const OF_ANOTHER_RING: &str = "a registered buffer is used on the ring that it is of";

static RINGS_MADE: AtomicU64 = AtomicU64::new(0);

impl Ring {
    /// Creates a ring for the calling thread.
    ///
    /// # Errors
    /// `InvalidInput` for options out of range; the error of the system call when the requested
    /// backend is refused, or when neither can be created (too many open files, for instance).
    pub fn new(options: RingOptions) -> io::Result<Ring> {
        Ring::with(options, Uring::new)
    }

    /// Creates a ring with virtual time: an iteration in which no operation has ended advances the
    /// time to its `until`. Runs of simulated devices are then repeatable; files and sockets take
    /// no time.
    ///
    /// # Errors
    /// As of [`new`](Ring::new).
    pub fn simulated() -> io::Result<Ring> {
        let mut ring = Ring::new(RingOptions::on(Backend::Epoll))?;
        if let Some(shared) = Rc::get_mut(&mut ring.shared) {
            shared.simulated = Some(Cell::new(Instant::ZERO));
        }
        Ok(ring)
    }

    /// In virtual time: each iteration that is about to advance the time calls this with the new
    /// time, and advances to the returned time if that is later. So several callers that wait in
    /// `run_once` can share the time; the hook may call `run_once` itself.
    pub fn set_wait_hook(&self, wait_hook: impl Fn(Instant) -> Instant + 'static) {
        *self.shared.wait_hook.borrow_mut() = Some(Rc::new(wait_hook));
    }

    /// Chooses the backend; the constructor of the first is an argument so that a refusal can be
    /// tested.
    #[allow(clippy::needless_pass_by_value)]
    fn with(mut options: RingOptions, make: fn(&RingOptions, Clock, Waker) -> io::Result<Uring>) -> io::Result<Ring> {
        if !(1..=limits::ENTRIES_MAX).contains(&options.entries) {
            return Err(invalid(format!("entries of a ring must be 1 to {}", limits::ENTRIES_MAX)));
        }
        if !(1..=limits::FILE_THREADS_MAX).contains(&options.file_threads) {
            return Err(invalid(format!("file threads of a ring must be 1 to {}", limits::FILE_THREADS_MAX)));
        }
        if options.registered_bytes > limits::REGISTERED_BYTES_MAX {
            let message = format!("registered bytes of a ring must be at most {}", limits::REGISTERED_BYTES_MAX);
            return Err(invalid(message));
        }
        // Polling on the only CPU delays the threads that are waited for.
        if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
            options.spin = Duration::ZERO;
        }
        let clock = Clock::start();
        let waker = Waker::new()?;
        let attempt = match options.backend {
            Some(Backend::Epoll) => Err("epoll was requested".to_owned()),
            Some(Backend::IoUring) => Ok(make(&options, clock, waker.clone())?),
            None => make(&options, clock, waker.clone()).map_err(|error| format!("io_uring is refused: {error}")),
        };
        let (machine, backend, fallback_reason) = match attempt {
            Ok(uring) => (Machine::Uring(Box::new(uring)), Backend::IoUring, None),
            Err(reason) => {
                let epoll = Epoll::new(&options, clock, waker.clone())?;
                (Machine::Epoll(Box::new(epoll)), Backend::Epoll, Some(reason))
            }
        };
        let core = RefCell::new(Core { entries: Entries::default(), machine, is_closed: false });
        let id = RINGS_MADE.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Ring {
            shared: Rc::new(Shared { core, clock, simulated: None, wait_hook: RefCell::default(), id }),
            waker,
            backend,
            fallback_reason,
        })
    }

    /// The backend in use.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why it does not run on io_uring, as text for a log; `None` when it does.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// The time since the ring was created, by `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.simulated.as_ref().map_or_else(|| self.shared.clock.now(), Cell::get)
    }

    /// Another user of this ring.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Rc::clone(&self.shared))
    }

    /// Memory that is mapped and pinned for registered buffers, in bytes.
    #[must_use]
    pub fn registered_bytes(&self) -> usize {
        match &self.shared.core.borrow().machine {
            Machine::Uring(uring) => uring.registered_bytes(),
            Machine::Epoll(_) => 0,
        }
    }

    /// A handle that ends [`run_once`](Ring::run_once) from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs one iteration of the loop: submits operations, and returns when an operation of any
    /// client has ended, when `until` is reached, or when the waker was called, whichever is first.
    /// It does not sleep when an operation has ended already or `until` is past; with `None` and
    /// nothing outstanding it sleeps until the waker is called.
    ///
    /// # Errors
    /// When a system call of the loop fails, for lack of memory for instance. Nothing submitted is
    /// lost: the next iteration tries again.
    pub fn run_once(&self, until: Option<Instant>) -> io::Result<()> {
        let Some(time) = &self.shared.simulated else { return self.shared.run_once(until) };
        if self.shared.core.borrow().entries.is_empty() {
            // No other operation will ever end.
            let until = until.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "nothing is outstanding"))?;
            let wait_hook = self.shared.wait_hook.borrow().clone();
            let ended = wait_hook.map_or(until, |wait_hook| wait_hook(until));
            time.set(time.get().max(until).max(ended));
            return Ok(());
        }
        self.shared.run_once(None)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // While a panic unwinds through an iteration, the table is borrowed: what it lends is
        // leaked with it.
        if let Ok(mut core) = self.shared.core.try_borrow_mut() {
            core.close();
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl Shared {
    fn run_once(&self, until: Option<Instant>) -> io::Result<()> {
        let core = &mut *self.core.borrow_mut();
        core.machine.run_once(&mut core.entries, until)
    }

    pub(crate) fn submit(&self, inbox: &Rc<Inbox>, token: u64, operation: Operation) {
        let core = &mut *self.core.borrow_mut();
        if core.is_closed {
            return inbox.push(Done { token, result: Err(cancelled()), bytes: 0 });
        }
        match self.begin(operation) {
            Ok(work) => core.insert(inbox, token, work),
            Err(result) => {
                inbox.push(Done { token, result: *result, bytes: 0 });
                core.entries.has_news = true;
            }
        }
    }

    pub(crate) fn registered_buffer(&self, capacity: usize) -> Option<RegisteredBuffer> {
        let core = &mut *self.core.borrow_mut();
        match &mut core.machine {
            Machine::Uring(uring) if !core.is_closed && capacity > 0 => uring.registered_buffer(capacity),
            _ => None,
        }
    }

    /// Cancels the outstanding operations of a client.
    pub(crate) fn abandon(&self, inbox: &Rc<Inbox>) {
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.cancel(Some(inbox));
        }
    }

    /// The work of an operation, or its result when it has ended already.
    fn begin(&self, operation: Operation) -> Result<Work, Box<io::Result<Outcome>>> {
        Ok(match operation {
            Operation::Accept(listener) => {
                listener.tie_to(self.id);
                Work::Accept { listener }
            }
            Operation::Connect { address } => match Socket::begin_connect(&address) {
                Ok((socket, false)) => Work::Connect { socket: Rc::new(socket) },
                Ok((socket, true)) => {
                    return Err(Box::new(socket.end_connect().map(|()| Outcome::Connected(socket))));
                }
                Err(error) => return Err(Box::new(Err(error))),
            },
            Operation::Receive { socket, buffer } => {
                assert!(filled::spare(&buffer) > 0, "a receive needs spare capacity: zero bytes mean end of stream");
                socket.tie_to(self.id);
                Work::Receive { socket, buffer }
            }
            Operation::Send { socket, pieces } => {
                socket.tie_to(self.id);
                Work::Send { socket, pieces: Pieces::new(pieces) }
            }
            Operation::Read { file, offset, buffer } => {
                Work::File(FileWork::new(file.share(), FileStep::Read { offset, buffer }))
            }
            Operation::Write { file, offset, pieces } => {
                let pieces = Pieces::new(pieces);
                Work::File(FileWork::new(file.share(), FileStep::Write { offset, pieces }))
            }
            Operation::ReadRegistered { file, offset, buffer } => {
                let buffer = Some(buffer);
                Work::File(FileWork::new(file.share(), FileStep::ReadRegistered { offset, buffer }))
            }
            Operation::WriteRegistered { file, offset, buffer } => {
                let step = FileStep::WriteRegistered { offset, buffer, written: 0 };
                Work::File(FileWork::new(file.share(), step))
            }
            Operation::Sync { file, data_only } => {
                Work::File(FileWork::new(file.share(), FileStep::Sync { data_only }))
            }
            Operation::PunchHole { file, offset, length } => {
                Work::File(FileWork::new(file.share(), FileStep::Punch { offset, length }))
            }
            Operation::Allocate { file, offset, length } => {
                Work::File(FileWork::new(file.share(), FileStep::Allocate { offset, length }))
            }
            Operation::SetLength { file, length } => {
                Work::File(FileWork::new(file.share(), FileStep::SetLength { length }))
            }
        })
    }
}

impl Core {
    fn insert(&mut self, inbox: &Rc<Inbox>, token: u64, mut work: Work) {
        if let Work::File(file) = &mut work
            && let Some(outcome) = file.outcome_if_empty()
        {
            self.entries.has_news = true;
            return inbox.push(Done { token, result: Ok(outcome), bytes: 0 });
        }
        if let Work::File(file) = &work
            && let Some(buffer) = file.registered_buffer()
        {
            let Machine::Uring(uring) = &self.machine else { panic!("{OF_ANOTHER_RING}") };
            assert!(uring.has_registered(buffer), "{OF_ANOTHER_RING}");
        }
        let sender = if let Work::Send { socket, .. } = &work { Some(Rc::clone(socket)) } else { None };
        let key = self.entries.insert(inbox, token, work);
        match sender {
            None => self.machine.start(key),
            Some(socket) => {
                if send_queue::push(&mut self.entries, &socket, key) {
                    self.machine.list_sender(socket);
                }
            }
        }
    }

    /// Cancels the outstanding operations of one client, or of all.
    fn cancel(&mut self, inbox: Option<&Rc<Inbox>>) {
        for key in self.entries.abandon(inbox) {
            // A send takes those behind it along, so some have ended already.
            if self.entries.contains(key) {
                self.machine.cancel(&mut self.entries, key);
            }
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.cancel(None);
        if !self.machine.close(&mut self.entries) {
            self.entries.leak();
        }
        for key in self.entries.keys() {
            self.entries.finish(key, Err(cancelled()));
        }
    }
}

impl Machine {
    fn run_once(&mut self, entries: &mut Entries, until: Option<Instant>) -> io::Result<()> {
        match self {
            Machine::Uring(uring) => uring.run_once(entries, until),
            Machine::Epoll(epoll) => epoll.run_once(entries, until),
        }
    }

    fn start(&mut self, key: usize) {
        match self {
            Machine::Uring(uring) => uring.start(key),
            Machine::Epoll(epoll) => epoll.start(key),
        }
    }

    fn list_sender(&mut self, socket: Rc<Socket>) {
        match self {
            Machine::Uring(uring) => uring.list_sender(socket),
            Machine::Epoll(epoll) => epoll.list_sender(socket),
        }
    }

    fn cancel(&mut self, entries: &mut Entries, key: usize) {
        match self {
            Machine::Uring(uring) => uring.cancel(entries, key),
            Machine::Epoll(epoll) => epoll.cancel(entries, key),
        }
    }

    /// Ends all cancelled operations; `false` when the kernel has not released their memory.
    fn close(&mut self, entries: &mut Entries) -> bool {
        match self {
            Machine::Uring(uring) => uring.close(entries),
            Machine::Epoll(epoll) => epoll.close(entries),
        }
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_io_uring_is_refused_epoll_runs_and_reports_why() {
        let refuse = |_: &RingOptions, _: Clock, _: Waker| Err(io::ErrorKind::PermissionDenied.into());
        let ring = Ring::with(RingOptions::default(), refuse).unwrap();
        assert_eq!(ring.backend(), Backend::Epoll);
        assert_eq!(ring.fallback_reason(), Some("io_uring is refused: permission denied"));
        let asked = Ring::with(RingOptions::on(Backend::IoUring), refuse);
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for (entries, file_threads) in [(0, 1), (limits::ENTRIES_MAX + 1, 1), (1, 0), (1, limits::FILE_THREADS_MAX + 1)]
        {
            let options = RingOptions { entries, file_threads, ..RingOptions::default() };
            assert_eq!(Ring::new(options).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_simulated_iteration_calls_the_hook_with_the_new_time_before_it_advances() {
        let ring = Ring::simulated().unwrap();
        let calls = Rc::new(RefCell::new(Vec::new()));
        let recorded = Rc::clone(&calls);
        ring.set_wait_hook(move |until| {
            recorded.borrow_mut().push(until.0);
            Instant(until.0 + 10)
        });
        for (until, ended) in [(5, 15), (3, 15), (9, 19)] {
            ring.run_once(Some(Instant(until))).unwrap();
            assert_eq!(ring.now(), Instant(ended));
        }
        assert_eq!(calls.borrow().as_slice(), [5, 3, 9]);
    }

    #[test]
    fn simulated_time_advances_in_iterations_with_nothing_outstanding() {
        let ring = Ring::simulated().unwrap();
        assert_eq!(ring.now(), Instant::ZERO);
        let later = Instant::ZERO + Duration::from_secs(3600);
        ring.run_once(Some(later)).unwrap();
        assert_eq!(ring.now(), later);
        ring.run_once(Some(Instant::ZERO)).unwrap();
        assert_eq!(ring.now(), later, "time does not go back");
        assert_eq!(ring.run_once(None).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
