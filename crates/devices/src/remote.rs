//! [`Remote`]: a namespace of an NVMe/TCP server.

mod subsystems;

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use zonda_initiator::{
    Claimed, Conflict, Effect, Event, Initiator, InitiatorConfig, InitiatorError, QueueId, Reason, State, Step,
};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_nvme::{Nqn, StatusCode};
use zonda_ring::{Address, Bytes, BytesMut, Client, Done, Operation, Outcome, Ring, Socket};
use zonda_zoned::{Command, CompletionQueue, Instant, NamespaceId, Namespaces, QueueFull, ZonedDevice};

use crate::{Drive, DriveError, DriveFacts, NamespaceOptions, NvmeTcpUrl};

/// Size of a receive buffer.
const RECEIVE_BYTES: usize = 256 << 10;
/// With less free space than this, a new buffer is allocated.
const RECEIVE_BYTES_MIN: usize = 32 << 10;
/// Prefix of generated host NQNs.
const HOST_NQN_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

// The token of an operation on the ring: the number of the connection times KINDS, plus one of
// these.
const CONNECT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const KINDS: u64 = 4;

/// A namespace of a server, with its connections on a ring.
///
/// The initiator ([`zonda_initiator::Initiator`]) implements the protocol; this only has the
/// sockets.
pub struct Remote {
    initiator: Initiator,
    /// Empty until the namespace is ready.
    namespaces: Namespaces,
    client: Client,
    url: NvmeTcpUrl,
    host_nqn: Nqn,
    address: SocketAddr,
    /// Connections by a number that is never reused, which identifies late completions of the ring.
    links: HashMap<u64, Link>,
    current: HashMap<QueueId, u64>,
    next_link: u64,
    /// Commands were submitted to the initiator since the last poll: those of a batch are sent
    /// together.
    has_news: bool,
    is_closing: bool,
    /// The end of the namespace was reported.
    has_warned: bool,
}

struct Link {
    queue: QueueId,
    socket: Option<Rc<Socket>>,
    sends_in_flight: u32,
    /// The connection is closed once all sends have completed.
    is_draining: bool,
}

impl Remote {
    /// Connects, and waits until the namespace is ready.
    ///
    /// # Errors
    /// The step that failed, and the remedy.
    pub fn connect(url: &NvmeTcpUrl, options: &NamespaceOptions, ring: &Ring) -> Result<Remote, DriveError> {
        let mut remote = Remote::begin(url, resolve(url)?, options, ring.client(), ring.now())?;
        loop {
            if let Some(result) = remote.poll_ready(ring.now()) {
                return result.map_err(|error| remote.with_subsystems(error, options)).map(|()| remote);
            }
            ring.run_once(remote.initiator.next_timeout())
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
        }
    }

    /// Begins to connect. Only [`poll_ready`](Remote::poll_ready) may be called until that is
    /// complete.
    pub(crate) fn begin(
        url: &NvmeTcpUrl,
        address: SocketAddr,
        options: &NamespaceOptions,
        client: Client,
        now: Instant,
    ) -> Result<Remote, DriveError> {
        let config = config(url, options)?;
        let host_nqn = config.host_nqn.clone();
        let mut remote = Remote {
            initiator: Initiator::new(config),
            namespaces: Namespaces::none(),
            client,
            url: url.clone(),
            host_nqn,
            address,
            links: HashMap::new(),
            current: HashMap::new(),
            next_link: 0,
            has_news: false,
            is_closing: false,
            has_warned: false,
        };
        remote.initiator.start(now);
        remote.work(now);
        Ok(remote)
    }

    /// The error with the subsystems of the server, if it has none of this name.
    fn with_subsystems(&self, error: DriveError, options: &NamespaceOptions) -> DriveError {
        match self.initiator.state() {
            State::Failed(found) if found.reason.is_unknown_subsystem() => {
                let help = config(&self.url, options).map(|config| subsystems::remedy(self.address, config));
                DriveError { help: help.unwrap_or_else(|_| error.help.clone()), ..error }
            }
            _ => error,
        }
    }

    /// When to poll next while connecting, unless the ring wakes the caller before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.initiator.next_timeout()
    }

    /// Continues to connect. Returns when the namespace is ready, or why it cannot be used.
    pub(crate) fn poll_ready(&mut self, now: Instant) -> Option<Result<(), DriveError>> {
        self.work(now);
        match self.initiator.state() {
            State::Ready => {}
            State::Failed(error) => {
                return Some(Err(cannot_be_used(&self.url, &self.host_nqn, error)));
            }
            _ => return None,
        }
        let geometry = self.initiator.geometry().expect("the geometry of a ready namespace is known");
        self.namespaces = Namespaces::single(geometry.clone());
        Some(Ok(()))
    }

    /// Passes completions of the ring to the initiator, and effects of the initiator to the ring.
    fn work(&mut self, now: Instant) {
        self.has_news = false;
        while let Some(done) = self.client.next() {
            self.on_done(now, done);
        }
        if self.initiator.next_timeout().is_some_and(|at| at <= now) {
            self.initiator.on_timeout(now);
        }
        while let Some(effect) = self.initiator.poll_effect() {
            match effect {
                Effect::Connect { queue } => self.open(queue),
                Effect::Send { queue, pieces } => self.send(queue, pieces),
                Effect::Close { queue } => self.drain(queue),
                Effect::Event(Event::Resized) => self.resize(),
                // Reconnecting is not enabled, and changed zones are reported by command.
                Effect::Event(Event::Connected { .. } | Event::Lost(_) | Event::ZonesChanged) => {}
            }
        }
    }

    /// The namespace has another size.
    fn resize(&mut self) {
        let Some(geometry) = self.initiator.geometry() else { return };
        match self.namespaces.geometry(NamespaceId::FIRST) {
            // The namespace is not ready yet.
            None => {}
            Some(old) if old.zone_size_blocks == geometry.zone_size_blocks => {
                self.namespaces.resize(NamespaceId::FIRST, geometry.clone());
            }
            // A namespace without zones is a single one here, which has another size.
            Some(_) => {
                self.namespaces.remove(NamespaceId::FIRST);
                self.namespaces.add(NamespaceId::FIRST, geometry.clone());
            }
        }
    }

    fn open(&mut self, queue: QueueId) {
        let number = self.next_link;
        self.next_link += 1;
        self.links.insert(number, Link { queue, socket: None, sends_in_flight: 0, is_draining: false });
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
            link.sends_in_flight += 1;
            self.client.submit(number * KINDS + SEND, Operation::Send { socket: Rc::clone(socket), pieces });
        }
    }

    /// The initiator closes a connection.
    fn drain(&mut self, queue: QueueId) {
        let Some(number) = self.current.remove(&queue) else { return };
        let Some(link) = self.links.get_mut(&number) else { return };
        link.is_draining = true;
        if link.sends_in_flight == 0 {
            self.shutdown(number);
        }
    }

    /// Closes the socket of a connection.
    fn shutdown(&mut self, number: u64) {
        if let Some(socket) = self.links.remove(&number).and_then(|link| link.socket) {
            // It may be disconnected already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn on_done(&mut self, now: Instant, done: Done) {
        let number = done.token / KINDS;
        // Late completions of a closed connection are ignored.
        let Some(link) = self.links.get_mut(&number) else { return };
        let queue = link.queue;
        match done.result {
            Ok(Outcome::Connected(_)) if link.is_draining => self.shutdown(number),
            Ok(Outcome::Connected(socket)) => {
                // Without TCP_NODELAY small commands are delayed; that is no error.
                let _ = socket.set_no_delay(true);
                link.socket = Some(Rc::new(socket));
                self.receive(number, BytesMut::with_capacity(RECEIVE_BYTES));
                self.initiator.on_connect(now, queue);
            }
            Ok(Outcome::Sent) => {
                link.sends_in_flight -= 1;
                if link.is_draining && link.sends_in_flight == 0 {
                    self.shutdown(number);
                }
            }
            Ok(Outcome::Received(mut buffer)) if done.bytes > 0 => {
                let (chunk, is_draining) = (buffer.split().freeze(), link.is_draining);
                self.receive(number, buffer);
                if !is_draining {
                    self.initiator.on_bytes(now, queue, chunk);
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
        let (queue, is_draining) = (link.queue, link.is_draining);
        self.shutdown(number);
        if !is_draining {
            self.current.remove(&queue);
            self.initiator.on_disconnect(now, queue, reason);
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
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.has_news = true;
        self.initiator.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.work(now);
        self.initiator.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.has_news { Some(Instant::ZERO) } else { self.initiator.next_timeout() }
    }
}

impl Drive for Remote {
    /// A host has no access to the state of the drive beyond its namespace.
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

    /// The namespace was removed from its server, or replaced: commands fail with Namespace Not
    /// Ready from then on.
    fn take_warning(&mut self) -> Option<String> {
        match self.initiator.state() {
            State::Failed(InitiatorError {
                reason: reason @ (Reason::NoSuchNamespace | Reason::NamespaceChanged),
                ..
            }) if !self.has_warned => {
                self.has_warned = true;
                Some(format!("{}: {reason}", self.url))
            }
            _ => None,
        }
    }

    fn close(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.initiator.release_claim(now);
            self.work(now);
        }
    }

    fn close_reserved(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.initiator.shutdown(now);
            self.work(now);
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closing && self.links.is_empty()
    }
}

fn cannot_be_used(url: &NvmeTcpUrl, host_nqn: &Nqn, error: &InitiatorError) -> DriveError {
    // The Display of the error ends with the remedy, which is separate here.
    let what = match (&error.reason, error.step) {
        // The reason starts with the address.
        (Reason::Connection { why, .. }, Step::OpenConnection(_)) => format!("cannot connect to {why}"),
        // The step names the queue.
        (Reason::Connection { why, .. }, Step::Negotiate(_) | Step::ConnectQueue(_) | Step::Authenticate(_)) => {
            format!("cannot use {url}: {}: {why}", error.step)
        }
        (Reason::Status { status: StatusCode::CONNECT_INVALID_HOST, .. }, _) => {
            format!("cannot use {url} as host {host_nqn}: {}: {}", error.step, error.reason)
        }
        _ => format!("cannot use {url}: {}: {}", error.step, error.reason),
    };
    match error.reason {
        Reason::Reserved(holder) => DriveError::reserved(what, error.remedy(), holder),
        Reason::Status { status: StatusCode::RESERVATION_CONFLICT, .. } => DriveError::in_use(what, error.remedy()),
        _ => DriveError::new(what, error.remedy()),
    }
}

/// Resolves the address of a server. Blocks on the resolver of the system.
pub(crate) fn resolve(url: &NvmeTcpUrl) -> Result<SocketAddr, DriveError> {
    let unknown = |reason: &dyn std::fmt::Display| {
        DriveError::new(format!("cannot resolve {}: {reason}", url.host), "give another name, or an IP address")
    };
    let mut addresses = (url.host.as_str(), url.port).to_socket_addrs().map_err(|error| unknown(&error))?;
    addresses.next().ok_or_else(|| unknown(&"the name has no address"))
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
    config.step_timeout = options.connect_timeout;
    config.host_secret.clone_from(&options.secret);
    config.controller_secret.clone_from(&options.controller_secret);
    config.check().map_err(|error| DriveError::new(error.to_string(), "change the option, or omit it"))?;
    Ok(config)
}
