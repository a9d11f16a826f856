//! [`Remote`]: a namespace of an NVMe/TCP server.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use zonda_initiator::{
    Claimed, Conflict, Effect, Event, Initiator, InitiatorConfig, InitiatorError, QueueId, Reason, State,
};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_nvme::{Nqn, StatusCode};
use zonda_ring::{Address, Bytes, BytesMut, Client, Done, Operation, Outcome, Ring, Socket};
use zonda_zoned::{Command, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, ZonedDevice};

use crate::{Drive, DriveError, DriveFacts, NamespaceOptions, NvmeTcpUrl};

/// Room for what arrives at once.
const RECEIVE_BYTES: usize = 256 << 10;
/// With less room than this left, a new buffer is taken.
const RECEIVE_BYTES_MIN: usize = 32 << 10;
/// What hosts are called when nobody names them.
const HOST_NQN_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// What an operation on the ring was, in its token: the connection's number, and one of these.
const CONNECT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const KINDS: u64 = 4;

/// A namespace of a server, its connections on a ring.
///
/// All of the protocol is the initiator's ([`zonda_initiator::Initiator`]); this only has the sockets.
pub struct Remote {
    initiator: Initiator,
    geometry: Geometry,
    client: Client,
    url: NvmeTcpUrl,
    address: SocketAddr,
    /// One for each connection ever made: what ends late is told apart by the number.
    links: HashMap<u64, Link>,
    current: HashMap<QueueId, u64>,
    next_link: u64,
    /// The initiator has taken commands that it has not been asked for since: those of a batch leave together.
    has_news: bool,
    is_closing: bool,
}

struct Link {
    queue: QueueId,
    socket: Option<Rc<Socket>>,
    sends_under_way: u32,
    /// It goes when what was sent has left.
    is_leaving: bool,
}

impl Remote {
    /// Connects, and waits until the namespace is ready.
    ///
    /// # Errors
    /// The step that failed, and what to do about it.
    pub fn connect(url: &NvmeTcpUrl, options: &NamespaceOptions, ring: &Ring) -> Result<Remote, DriveError> {
        let mut remote = Remote::begin(url, resolve(url)?, options, ring.client(), ring.now())?;
        loop {
            if let Some(result) = remote.poll_ready(ring.now()) {
                return result.map(|()| remote);
            }
            ring.turn(remote.initiator.next_timeout())
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
        }
    }

    /// Begins to connect. Nothing but [`poll_ready`](Remote::poll_ready) may be called until that is done.
    pub(crate) fn begin(
        url: &NvmeTcpUrl,
        address: SocketAddr,
        options: &NamespaceOptions,
        client: Client,
        now: Instant,
    ) -> Result<Remote, DriveError> {
        let config = config(url, options)?;
        let mut remote = Remote {
            initiator: Initiator::new(config),
            geometry: Geometry::tiny(),
            client,
            url: url.clone(),
            address,
            links: HashMap::new(),
            current: HashMap::new(),
            next_link: 0,
            has_news: false,
            is_closing: false,
        };
        remote.initiator.start(now);
        remote.work(now);
        Ok(remote)
    }

    /// When connecting has to go on without the ring's help.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.initiator.next_timeout()
    }

    /// Goes on connecting; says when the namespace is ready, or why it cannot be used.
    pub(crate) fn poll_ready(&mut self, now: Instant) -> Option<Result<(), DriveError>> {
        self.work(now);
        match self.initiator.state() {
            State::Ready => {}
            State::Failed(error) => {
                return Some(Err(cannot_be_used(&self.url, error)));
            }
            _ => return None,
        }
        let geometry = self.initiator.geometry().expect("a namespace that is ready has told its geometry");
        self.geometry = geometry.clone();
        Some(Ok(()))
    }

    /// Hands what has ended to the initiator, and what it wants to the ring.
    fn work(&mut self, now: Instant) {
        self.has_news = false;
        while let Some(done) = self.client.next() {
            self.on_done(now, done);
        }
        if self.initiator.next_timeout().is_some_and(|at| at <= now) {
            self.initiator.timeout(now);
        }
        while let Some(effect) = self.initiator.poll_effect() {
            match effect {
                Effect::Connect { queue } => self.open(queue),
                Effect::Send { queue, pieces } => self.send(queue, pieces),
                Effect::Close { queue } => self.leave(queue),
                // Reconnecting is not asked for, and zones are reported to whoever asks.
                Effect::Event(Event::Connected { .. } | Event::Lost(_) | Event::ZonesChanged) => {}
            }
        }
    }

    fn open(&mut self, queue: QueueId) {
        let number = self.next_link;
        self.next_link += 1;
        self.links.insert(number, Link { queue, socket: None, sends_under_way: 0, is_leaving: false });
        self.current.insert(queue, number);
        self.client.submit(number * KINDS + CONNECT, Operation::Connect { address: Address::Tcp(self.address) });
    }

    fn send(&mut self, queue: QueueId, pieces: Vec<Bytes>) {
        let Some((number, link)) =
            self.current.get(&queue).and_then(|number| Some((*number, self.links.get_mut(number)?)))
        else {
            return;
        };
        if let Some(socket) = &link.socket {
            link.sends_under_way += 1;
            self.client.submit(number * KINDS + SEND, Operation::Send { socket: Rc::clone(socket), pieces });
        }
    }

    /// The initiator has done with a connection.
    fn leave(&mut self, queue: QueueId) {
        let Some(number) = self.current.remove(&queue) else { return };
        let Some(link) = self.links.get_mut(&number) else { return };
        link.is_leaving = true;
        if link.sends_under_way == 0 {
            self.cut(number);
        }
    }

    /// A connection is no more.
    fn cut(&mut self, number: u64) {
        if let Some(socket) = self.links.remove(&number).and_then(|link| link.socket) {
            // It may be gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn on_done(&mut self, now: Instant, done: Done) {
        let number = done.token / KINDS;
        // Of a connection that is no more, nothing matters.
        let Some(link) = self.links.get_mut(&number) else { return };
        let queue = link.queue;
        match done.result {
            Ok(Outcome::Connected(_)) if link.is_leaving => self.cut(number),
            Ok(Outcome::Connected(socket)) => {
                // Without it small commands wait; they still arrive.
                let _ = socket.set_no_delay(true);
                link.socket = Some(Rc::new(socket));
                self.receive(number, BytesMut::with_capacity(RECEIVE_BYTES));
                self.initiator.connected(now, queue);
            }
            Ok(Outcome::Sent) => {
                link.sends_under_way -= 1;
                if link.is_leaving && link.sends_under_way == 0 {
                    self.cut(number);
                }
            }
            Ok(Outcome::Received(mut buffer)) if done.bytes > 0 => {
                let (chunk, is_leaving) = (buffer.split().freeze(), link.is_leaving);
                self.receive(number, buffer);
                if !is_leaving {
                    self.initiator.received(now, queue, chunk);
                }
            }
            Ok(Outcome::Received(_)) => self.lose(now, number, "the server closed the connection"),
            Ok(_) => {}
            Err(error) => {
                let is_connect = done.token % KINDS == CONNECT;
                let reason = if is_connect { format!("{}: {error}", self.address) } else { error.to_string() };
                self.lose(now, number, &reason);
            }
        }
    }

    fn lose(&mut self, now: Instant, number: u64, reason: &str) {
        let Some(link) = self.links.get(&number) else { return };
        let (queue, is_leaving) = (link.queue, link.is_leaving);
        self.cut(number);
        if !is_leaving {
            self.current.remove(&queue);
            self.initiator.disconnected(now, queue, reason);
        }
    }

    fn receive(&self, link: u64, mut buffer: BytesMut) {
        let Some(socket) = self.links.get(&link).and_then(|link| link.socket.clone()) else { return };
        if buffer.capacity() - buffer.len() < RECEIVE_BYTES_MIN {
            buffer.reserve(RECEIVE_BYTES);
        }
        self.client.submit(link * KINDS + RECEIVE, Operation::Receive { socket, buffer });
    }
}

impl ZonedDevice for Remote {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "a connection has one namespace");
        &self.geometry
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.has_news = true;
        self.initiator.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.work(now);
        self.initiator.poll(now, completions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.has_news { Some(Instant::ZERO) } else { self.initiator.next_timeout() }
    }
}

impl Drive for Remote {
    /// A host knows nothing of the drive beyond its namespace.
    fn facts(&self) -> DriveFacts {
        DriveFacts::default()
    }

    fn media_errors(&self) -> u64 {
        0
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn identity(&self) -> Option<&NamespaceIdentity> {
        self.initiator.identity()
    }

    fn claimed(&self) -> Option<Claimed> {
        self.initiator.claimed().copied()
    }

    fn conflict(&self) -> Option<Conflict> {
        self.initiator.conflict().copied()
    }

    fn is_disconnected(&self) -> bool {
        matches!(self.initiator.state(), State::Failed(_))
    }

    fn close(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.initiator.give_back(now);
            self.work(now);
        }
    }

    fn close_reserved(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.initiator.shut_down(now);
            self.work(now);
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closing && self.links.is_empty()
    }
}

fn cannot_be_used(url: &NvmeTcpUrl, error: &InitiatorError) -> DriveError {
    // Its own words end with the remedy, which is said beside the message here.
    let what = format!("{url} cannot be used: {}: {}", error.step, error.reason);
    match error.reason {
        Reason::Reserved(holder) => DriveError::reserved(what, error.remedy(), holder),
        Reason::Status { status: StatusCode::RESERVATION_CONFLICT, .. } => DriveError::in_use(what, error.remedy()),
        _ => DriveError::new(what, error.remedy()),
    }
}

/// The address of a server. Waits for the system's resolver.
pub(crate) fn resolve(url: &NvmeTcpUrl) -> Result<SocketAddr, DriveError> {
    let unknown = |reason: &dyn std::fmt::Display| {
        DriveError::new(
            format!("nobody knows the address of {}: {reason}", url.host),
            "write another name, or the address itself",
        )
    };
    let mut addresses = (url.host.as_str(), url.port).to_socket_addrs().map_err(|error| unknown(&error))?;
    addresses.next().ok_or_else(|| unknown(&"it has none"))
}

fn config(url: &NvmeTcpUrl, options: &NamespaceOptions) -> Result<InitiatorConfig, DriveError> {
    let seed = crate::random::bytes::<32>()?;
    let host_nqn = match &options.host_nqn {
        Some(name) => name.clone(),
        None => {
            let uuid = crate::random::uuid_text(&crate::random::uuid()?);
            Nqn::new(&format!("{HOST_NQN_PREFIX}{uuid}")).expect("a UUID makes a name")
        }
    };
    let mut config = InitiatorConfig::new(host_nqn, url.subsystem.clone(), seed);
    config.namespace = url.namespace;
    config.host_id = options.host_id;
    config.claim = options.claim;
    config.io_queues = options.io_queues;
    config.queue_depth = options.queue_depth;
    config.digests = if options.digests { Digests::BOTH } else { Digests::NONE };
    config.step_timeout = options.patience;
    config.host_secret.clone_from(&options.secret);
    config.controller_secret.clone_from(&options.controller_secret);
    config.check().map_err(|error| DriveError::new(error.to_string(), "change the option, or leave it out"))?;
    Ok(config)
}
