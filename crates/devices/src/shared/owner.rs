//! The thread that owns an image or a connection, for all handles on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use zonda_ring::Waker;
use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Geometry, Key, QueueFull, Slab};

use crate::{Connection, DriveError, Location, NamespaceOptions};

/// Requests processed before the device is polled again, so that a busy handle does not starve the
/// others.
const REQUESTS_AT_A_TIME: usize = 256;

/// The id of a handle at its owner. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(u64);

/// Requests of handles to an owner.
pub(crate) enum Request {
    /// A new handle, with the channel for its completions.
    Join(ClientId, Sender<Completion>),
    /// A command of a handle.
    Submit(ClientId, Command),
    /// A handle is closed; completions of its outstanding commands are dropped.
    Leave(ClientId),
    /// The last handle is closed.
    Close,
}

/// The handles' side of an owner.
pub(crate) struct Owner {
    requests: Sender<Request>,
    waker: Arc<OwnerWaker>,
    thread: Mutex<Option<JoinHandle<Result<(), DriveError>>>>,
    geometry: Geometry,
    clients: AtomicU64,
}

/// Wakes the owner if it sleeps.
struct OwnerWaker {
    ring: Waker,
    asleep: AtomicBool,
}

/// State of the owner thread.
struct OwnerThread {
    requests: Receiver<Request>,
    waker: Arc<OwnerWaker>,
    clients: BTreeMap<ClientId, Sender<Completion>>,
    /// The handle of each command submitted to the device, and the command's id there; the key is
    /// its id at the device.
    in_flight: Slab<(ClientId, CommandId)>,
    /// Commands that wait for a slot of the device, in order.
    waiting: VecDeque<Command>,
    is_closing: bool,
}

impl Owner {
    /// Starts the thread, and waits until the namespace is open.
    pub(crate) fn start(location: &Location, options: &NamespaceOptions) -> Result<Owner, DriveError> {
        let (location, options) = (location.clone(), options.clone());
        let (requests, inbox) = channel();
        let (opened, opening) = channel();
        let thread = std::thread::Builder::new().name("zonda-owner".to_owned()).spawn(move || {
            let mut connection = match Connection::open(&location, &options) {
                Ok(connection) => connection,
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return Ok(());
                }
            };
            let waker = Arc::new(OwnerWaker { ring: connection.parts().1.waker(), asleep: AtomicBool::new(false) });
            let _ = opened.send(Ok((connection.geometry().clone(), Arc::clone(&waker))));
            drop(opened);
            OwnerThread::new(inbox, waker).serve(connection)
        });
        let thread = thread.map_err(|error| {
            DriveError::new(
                format!("cannot start a thread: {error}"),
                "raise the limits on threads and memory (ulimit -u, -v)",
            )
        })?;
        let (geometry, waker) = opening.recv().unwrap_or_else(|_| Err(failed()))?;
        Ok(Owner { requests, waker, thread: Mutex::new(Some(thread)), geometry, clients: AtomicU64::new(0) })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Adds a handle, and returns the channel of its completions.
    pub(crate) fn join(&self) -> (ClientId, Receiver<Completion>) {
        let client = ClientId(self.clients.fetch_add(1, Ordering::Relaxed));
        let (replies, completions) = channel();
        self.send(Request::Join(client, replies));
        (client, completions)
    }

    /// Queues a request for the owner, without waking it. An owner that has failed drops it; a
    /// caller that waits for the answer then sees its channel disconnected.
    pub(crate) fn send(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    /// Wakes the owner if it sleeps; it sees all requests sent before.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `OwnerThread::sleep`: either the owner sees the request, or this
        // sees it asleep.
        fence(Ordering::SeqCst);
        if self.waker.asleep.load(Ordering::Relaxed) {
            self.waker.ring.wake();
        }
    }

    /// Closes the namespace. No other handle uses it.
    pub(crate) fn close(self) -> Result<(), DriveError> {
        self.send(Request::Close);
        self.wake();
        let thread = self.thread.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let thread = thread.expect("it is joined here only");
        thread.join().unwrap_or_else(|_| Err(failed()))
    }
}

impl OwnerThread {
    fn new(requests: Receiver<Request>, waker: Arc<OwnerWaker>) -> OwnerThread {
        OwnerThread {
            requests,
            waker,
            clients: BTreeMap::new(),
            in_flight: Slab::new(),
            waiting: VecDeque::new(),
            is_closing: false,
        }
    }

    fn serve(mut self, mut connection: Connection) -> Result<(), DriveError> {
        let mut completions = CompletionQueue::new();
        loop {
            let mut is_busy = false;
            for _ in 0..REQUESTS_AT_A_TIME {
                let Some(request) = self.next_request() else { break };
                self.take(request);
                is_busy = true;
            }
            self.submit_waiting(&mut connection);
            connection.poll(&mut completions);
            is_busy |= self.deliver(&mut completions);
            if self.is_closing && self.in_flight.is_empty() && self.waiting.is_empty() {
                return connection.close();
            }
            if is_busy {
                let now = connection.now();
                connection.run_once(Some(now))?;
            } else {
                self.sleep(&mut connection)?;
            }
        }
    }

    /// Sleeps until an event of the device or a request of a handle.
    fn sleep(&mut self, connection: &mut Connection) -> Result<(), DriveError> {
        self.waker.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Owner::wake`.
        fence(Ordering::SeqCst);
        let result = match self.next_request() {
            Some(request) => {
                self.take(request);
                Ok(())
            }
            None => connection.run_once(None),
        };
        self.waker.asleep.store(false, Ordering::Relaxed);
        result
    }

    fn next_request(&mut self) -> Option<Request> {
        match self.requests.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) if self.is_closing => None,
            Err(TryRecvError::Disconnected) => Some(Request::Close),
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Join(client, replies) => {
                self.clients.insert(client, replies);
            }
            Request::Submit(client, command) => {
                let id = CommandId::from(self.in_flight.insert((client, command.id)));
                self.waiting.push_back(command.with_id(id));
            }
            Request::Leave(client) => {
                self.clients.remove(&client);
            }
            Request::Close => self.is_closing = true,
        }
    }

    fn submit_waiting(&mut self, connection: &mut Connection) {
        while let Some(command) = self.waiting.pop_front() {
            if let Err(QueueFull(command)) = connection.submit(command) {
                self.waiting.push_front(command);
                return;
            }
        }
    }

    /// Sends completions to their handles; returns whether there were any.
    fn deliver(&mut self, completions: &mut CompletionQueue) -> bool {
        let is_busy = !completions.is_empty();
        while let Some(mut completion) = completions.pop() {
            let key = Key::of_command(completion.id).expect("the device returns identifiers that it was given");
            let (client, id) = self.in_flight.remove(key);
            completion.id = id;
            if let Some(replies) = self.clients.get(&client) {
                let _ = replies.send(completion);
            }
        }
        is_busy
    }
}

/// The error after the thread has exited.
pub(crate) fn failed() -> DriveError {
    DriveError::new(
        "the thread that owns the namespace has failed",
        "close all its handles, open it again, and report the bug",
    )
}
