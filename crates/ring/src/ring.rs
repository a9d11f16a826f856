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
use crate::{Backend, Client, Done, Operation, Outcome, RingOptions, Socket, Waker, filled, lane, limits};

/// An event loop of one thread.
///
/// Dropping it cancels what is outstanding and waits until the kernel has let go of all buffers; a file operation under
/// way is waited for. Its clients live on, with everything that was outstanding ended.
pub struct Ring {
    shared: Rc<Shared>,
    waker: Waker,
    backend: Backend,
    fallback_reason: Option<String>,
}

/// What a ring and its clients have in common.
pub(crate) struct Shared {
    core: RefCell<Core>,
    clock: Clock,
    /// The time of a ring in a simulation.
    simulated: Option<Cell<Instant>>,
    /// What else happens in a simulation while a turn waits.
    meanwhile: RefCell<Option<Meanwhile>>,
    id: u64,
}

/// Is told up to when a turn waits, and says when it has ended: then, or later.
type Meanwhile = Rc<dyn Fn(Instant) -> Instant>;

struct Core {
    entries: Entries,
    machine: Machine,
    is_closed: bool,
}

enum Machine {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

static RINGS_MADE: AtomicU64 = AtomicU64::new(0);

impl Ring {
    /// A ring for the calling thread.
    ///
    /// # Errors
    /// `InvalidInput` for options out of their range; what the system says when the backend asked for is refused, or when neither
    /// can be had (too many open files, for instance).
    pub fn new(options: RingOptions) -> io::Result<Ring> {
        Ring::with(options, Uring::new)
    }

    /// A ring in whose time nothing passes but by turns: one that finds nothing ended jumps to its `until`. It makes runs of
    /// devices that end all at once repeatable; what files and sockets do takes no time in it.
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

    /// In a simulation: each turn that is about to jump calls this with the time it jumps to, and jumps to what that returns, if it is later.
    /// So callers that wait in turns can be some of several that share the time; it may take turns itself.
    pub fn set_meanwhile(&self, meanwhile: impl Fn(Instant) -> Instant + 'static) {
        *self.shared.meanwhile.borrow_mut() = Some(Rc::new(meanwhile));
    }

    /// The choice of the backend, with the maker of the first as an argument so that a refusal can be tested.
    #[allow(clippy::needless_pass_by_value)]
    fn with(mut options: RingOptions, make: fn(&RingOptions, Clock, Waker) -> io::Result<Uring>) -> io::Result<Ring> {
        if !(1..=limits::ENTRIES_MAX).contains(&options.entries) {
            return Err(invalid(format!("a ring has 1 to {} entries", limits::ENTRIES_MAX)));
        }
        if !(1..=limits::FILE_THREADS_MAX).contains(&options.file_threads) {
            return Err(invalid(format!("a ring has 1 to {} file threads", limits::FILE_THREADS_MAX)));
        }
        // Whoever polls on the only processor keeps it from those waited for.
        if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
            options.spin = Duration::ZERO;
        }
        let clock = Clock::start();
        let waker = Waker::new()?;
        let attempt = match options.backend {
            Some(Backend::Epoll) => Err("epoll was asked for".to_owned()),
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
            shared: Rc::new(Shared { core, clock, simulated: None, meanwhile: RefCell::default(), id }),
            waker,
            backend,
            fallback_reason,
        })
    }

    /// What it runs on.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why it does not run on io_uring, in words for a log; `None` when it does.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// The time since the ring was made, by `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.simulated.as_ref().map_or_else(|| self.shared.clock.now(), Cell::get)
    }

    /// Another user of this ring.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Rc::clone(&self.shared))
    }

    /// A handle that ends a turn from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Hands over what was submitted, and returns when an operation of any client has ended, when `until` has come, or when the
    /// waker was called, whichever is first. It does not sleep when something has ended already or `until` is past; with `None` and
    /// nothing outstanding it sleeps until the waker is called.
    ///
    /// # Errors
    /// When the kernel refuses to run the loop, for want of memory for instance. Nothing submitted is lost: the next turn
    /// tries again.
    pub fn turn(&self, until: Option<Instant>) -> io::Result<()> {
        let Some(time) = &self.shared.simulated else { return self.shared.turn(until) };
        if self.shared.core.borrow().entries.is_empty() {
            // Nothing else will ever end.
            let until = until.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "nothing is outstanding"))?;
            let meanwhile = self.shared.meanwhile.borrow().clone();
            let ended = meanwhile.map_or(until, |meanwhile| meanwhile(until));
            time.set(time.get().max(until).max(ended));
            return Ok(());
        }
        self.shared.turn(None)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // While a panic unwinds through a turn, the table is in nobody's hands: what it lends is leaked with it.
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
    fn turn(&self, until: Option<Instant>) -> io::Result<()> {
        let core = &mut *self.core.borrow_mut();
        core.machine.turn(&mut core.entries, until)
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

    /// Cancels what a client has outstanding.
    pub(crate) fn abandon(&self, inbox: &Rc<Inbox>) {
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.cancel(Some(inbox));
        }
    }

    /// The work that an operation is, or its end when there is none.
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
                assert!(filled::spare(&buffer) > 0, "a receive has room: nothing received means end of stream");
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
            && let Some(outcome) = file.end_of_nothing()
        {
            self.entries.has_news = true;
            return inbox.push(Done { token, result: Ok(outcome), bytes: 0 });
        }
        let sender = if let Work::Send { socket, .. } = &work { Some(Rc::clone(socket)) } else { None };
        let key = self.entries.insert(inbox, token, work);
        match sender {
            None => self.machine.start(key),
            Some(socket) => {
                if lane::push(&mut self.entries, &socket, key) {
                    self.machine.list_sender(socket);
                }
            }
        }
    }

    /// Cancels what one client has outstanding, or everything.
    fn cancel(&mut self, inbox: Option<&Rc<Inbox>>) {
        for key in self.entries.abandon(inbox) {
            // A send takes those behind it along, so some are gone when their turn comes.
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
    fn turn(&mut self, entries: &mut Entries, until: Option<Instant>) -> io::Result<()> {
        match self {
            Machine::Uring(uring) => uring.turn(entries, until),
            Machine::Epoll(epoll) => epoll.turn(entries, until),
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

    /// Ends everything cancelled; `false` when the kernel keeps memory all the same.
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
    fn where_io_uring_is_refused_epoll_runs_and_says_why() {
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
    fn a_simulated_turn_tells_how_far_it_jumps_before_it_does() {
        let ring = Ring::simulated().unwrap();
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&told);
        ring.set_meanwhile(move |until| {
            heard.borrow_mut().push(until.0);
            Instant(until.0 + 10)
        });
        for (until, ended) in [(5, 15), (3, 15), (9, 19)] {
            ring.turn(Some(Instant(until))).unwrap();
            assert_eq!(ring.now(), Instant(ended));
        }
        assert_eq!(told.borrow().as_slice(), [5, 3, 9]);
    }

    #[test]
    fn simulated_time_passes_in_turns_that_have_nothing_to_wait_for() {
        let ring = Ring::simulated().unwrap();
        assert_eq!(ring.now(), Instant::ZERO);
        let later = Instant::ZERO + Duration::from_secs(3600);
        ring.turn(Some(later)).unwrap();
        assert_eq!(ring.now(), later);
        ring.turn(Some(Instant::ZERO)).unwrap();
        assert_eq!(ring.now(), later, "time does not go back");
        assert_eq!(ring.turn(None).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
