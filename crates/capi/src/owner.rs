//! The thread that has an image or a connection, for all handles that share it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use slab::Slab;
use zonda_devices::{Connection, DriveError, Location, NamespaceOptions};
use zonda_ring::Waker;
use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Geometry, NamespaceId, Operation, QueueFull};

/// Requests taken before the device is turned again, so that a busy handle does not keep the others waiting.
const REQUESTS_AT_A_TIME: usize = 256;

/// A handle, to its owner. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(u64);

/// What handles ask of an owner.
pub(crate) enum Request {
    /// A new handle, and where its completions go.
    Join(ClientId, Sender<Completion>),
    /// A command of a handle; `token` is the completion's id.
    Submit { client: ClientId, token: u64, operation: Operation },
    /// A handle is closed, with nothing under way.
    Leave(ClientId),
    /// The last handle is closed.
    Close,
}

/// The owner, from outside.
pub(crate) struct Owner {
    requests: Sender<Request>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<Result<(), DriveError>>>>,
    geometry: Geometry,
    clients: AtomicU64,
}

/// Wakes the owner if it sleeps.
struct Bell {
    waker: Waker,
    asleep: AtomicBool,
}

/// The owner's books.
struct Desk {
    requests: Receiver<Request>,
    bell: Arc<Bell>,
    clients: BTreeMap<ClientId, Sender<Completion>>,
    /// What the device has; the key is the command's id there.
    under_way: Slab<(ClientId, u64)>,
    /// What the device had no room for, in order.
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
            let bell = Arc::new(Bell { waker: connection.parts().1.waker(), asleep: AtomicBool::new(false) });
            let _ = opened.send(Ok((connection.geometry().clone(), Arc::clone(&bell))));
            drop(opened);
            Desk::new(inbox, bell).serve(connection)
        });
        let thread = thread.map_err(|error| {
            DriveError::new(format!("no thread can be started: {error}"), "see how many processes there may be")
        })?;
        let (geometry, bell) = opening.recv().unwrap_or_else(|_| Err(failed()))?;
        Ok(Owner { requests, bell, thread: Mutex::new(Some(thread)), geometry, clients: AtomicU64::new(0) })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A new handle, and where its completions come.
    pub(crate) fn join(&self) -> (ClientId, Receiver<Completion>) {
        let client = ClientId(self.clients.fetch_add(1, Ordering::Relaxed));
        let (replies, completions) = channel();
        self.send(Request::Join(client, replies));
        (client, completions)
    }

    /// Puts a request before the owner, which may be asleep. An owner that has failed drops it; who waits for an answer
    /// learns that from the end of his channel.
    pub(crate) fn send(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    /// Wakes the owner if it sleeps; what was sent before is seen.
    pub(crate) fn ring_bell(&self) {
        // Pairs with the fence in `Desk::sleep`: either the owner sees the request, or this sees it asleep.
        fence(Ordering::SeqCst);
        if self.bell.asleep.load(Ordering::Relaxed) {
            self.bell.waker.wake();
        }
    }

    /// Closes the namespace. Nobody else uses it.
    pub(crate) fn close(self) -> Result<(), DriveError> {
        self.send(Request::Close);
        self.ring_bell();
        let thread = self.thread.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let thread = thread.expect("it is joined here only");
        thread.join().unwrap_or_else(|_| Err(failed()))
    }
}

impl Desk {
    fn new(requests: Receiver<Request>, bell: Arc<Bell>) -> Desk {
        Desk {
            requests,
            bell,
            clients: BTreeMap::new(),
            under_way: Slab::new(),
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
            self.hand_over(&mut connection);
            connection.poll(&mut completions);
            is_busy |= self.deliver(&mut completions);
            if self.is_closing && self.under_way.is_empty() && self.waiting.is_empty() {
                return connection.close();
            }
            if is_busy {
                let now = connection.now();
                connection.turn(Some(now))?;
            } else {
                self.sleep(&mut connection)?;
            }
        }
    }

    /// Sleeps until the device or a handle has something.
    fn sleep(&mut self, connection: &mut Connection) -> Result<(), DriveError> {
        self.bell.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Owner::ring_bell`.
        fence(Ordering::SeqCst);
        let result = match self.next_request() {
            Some(request) => {
                self.take(request);
                Ok(())
            }
            None => connection.turn(None),
        };
        self.bell.asleep.store(false, Ordering::Relaxed);
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
            Request::Submit { client, token, operation } => {
                let id = CommandId(self.under_way.insert((client, token)) as u64);
                self.waiting.push_back(Command { id, namespace: NamespaceId::FIRST, operation });
            }
            Request::Leave(client) => {
                self.clients.remove(&client);
            }
            Request::Close => self.is_closing = true,
        }
    }

    fn hand_over(&mut self, connection: &mut Connection) {
        while let Some(command) = self.waiting.pop_front() {
            if let Err(QueueFull(command)) = connection.submit(command) {
                self.waiting.push_front(command);
                return;
            }
        }
    }

    /// Sends completions to their handles; whether there were any.
    fn deliver(&mut self, completions: &mut CompletionQueue) -> bool {
        let is_busy = !completions.is_empty();
        while let Some(mut completion) = completions.pop() {
            let (client, token) = self.under_way.remove(completion.id.0 as usize);
            completion.id = CommandId(token);
            if let Some(replies) = self.clients.get(&client) {
                let _ = replies.send(completion);
            }
        }
        is_busy
    }
}

/// The thread is gone.
pub(crate) fn failed() -> DriveError {
    DriveError::new(
        "the thread that has the namespace has failed",
        "close all its handles, open it again, and report it",
    )
}
