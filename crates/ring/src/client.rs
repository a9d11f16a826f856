//! Clients: they submit operations and collect completions.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use crate::ring::Shared;
use crate::{Done, Operation, RegisteredBuffer};

/// One user of a ring, with an inbox of its own: its tokens mean nothing to other clients.
///
/// Dropping a client cancels its outstanding operations. Their memory is freed when the kernel has
/// released it, in a later iteration of the loop or when the ring is dropped. A socket with
/// unfinished sends among them is broken: see [`Operation::Send`].
pub struct Client {
    shared: Rc<Shared>,
    inbox: Rc<Inbox>,
}

/// Completions of one client.
#[derive(Default)]
pub(crate) struct Inbox {
    ended: RefCell<VecDeque<Done>>,
    outstanding: Cell<usize>,
}

impl Client {
    /// Another user of the same ring.
    #[must_use]
    pub fn another(&self) -> Client {
        Client::new(Rc::clone(&self.shared))
    }

    pub(crate) fn new(shared: Rc<Shared>) -> Client {
        Client { shared, inbox: Rc::default() }
    }

    /// Submits an operation; it starts in the next iteration at the latest. `token` is returned in
    /// its [`Done`].
    ///
    /// Errors of the operating system are in the [`Done`]. After the ring was dropped every
    /// operation ends with `ECANCELED`.
    ///
    /// # Panics
    /// With more than [`crate::limits::OPERATIONS_MAX`] operations outstanding on the ring; with a
    /// receive whose buffer has no spare capacity; with a socket or a
    /// registered buffer of another ring.
    pub fn submit(&self, token: u64, operation: Operation) {
        self.inbox.outstanding.set(self.inbox.outstanding.get() + 1);
        self.shared.submit(&self.inbox, token, operation);
    }

    /// A buffer for `capacity` bytes, not zero, whose memory the kernel has pinned. It may be used by any
    /// client of this ring, and dropped on any thread, also after the ring.
    ///
    /// `None`, and buffers of the caller's own are the alternative: when no buffer of the size is free;
    /// when `capacity` is more than the largest of [`crate::limits::REGISTERED_SLOT_BYTES`]; on epoll;
    /// when the kernel refuses to register buffers, for want of lockable memory for instance
    /// (`RLIMIT_MEMLOCK`); with too small a [`registered_bytes`](crate::RingOptions); after the ring was
    /// dropped.
    #[must_use]
    pub fn registered_buffer(&self, capacity: usize) -> Option<RegisteredBuffer> {
        self.shared.registered_buffer(capacity)
    }

    /// The next operation that has ended, in the order in which they ended.
    #[must_use]
    pub fn next(&self) -> Option<Done> {
        let done = self.inbox.ended.borrow_mut().pop_front()?;
        self.inbox.outstanding.set(self.inbox.outstanding.get() - 1);
        Some(done)
    }

    /// Operations submitted whose completion was not yet taken with [`Client::next`].
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.inbox.outstanding.get()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.abandon(&self.inbox);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("outstanding", &self.outstanding()).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(crate) fn push(&self, done: Done) {
        self.ended.borrow_mut().push_back(done);
    }
}
