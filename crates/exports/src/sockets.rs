//! The connections of one server: received bytes become events, and the target's output is sent.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use zonda_ring::{Address, Bytes, BytesMut, Client, Done, Operation, Outcome, Ring, Socket};
use zonda_target::{ConnectionId, FairQueue, Flow};
use zonda_zoned::{Duration, Instant};

use crate::events;
use crate::served::COMMAND_COST;

/// Connections that one iteration accepts from each listener. With more, the first messages of a
/// connection flood pile up, and hosts whose replies wait behind these are evicted for newer ones.
const ACCEPTS_IN_FLIGHT: u64 = 4;
/// Size of a receive buffer: a few commands with their data. Each connection has its own. With 128
/// KiB, a PDU with as much data never arrived in one piece, and such writes took 12% longer.
pub(crate) const RECEIVE_BYTES: usize = 256 << 10;
/// The same while several connections share the loop: others wait while this much is copied.
const RECEIVE_BYTES_SHARED: usize = 64 << 10;
/// With less free space than this, a new buffer is allocated.
const RECEIVE_BYTES_MIN: usize = 32 << 10;
/// Size of the first buffer of a connection: a handshake is small, and there may be ten thousand.
const RECEIVE_BYTES_FIRST: usize = 4 << 10;
/// The cost of a chunk in addition to its bytes and commands, in bytes.
const CHUNK_COST: u64 = 4 << 10;
/// Approximate number of commands that are processed at once: a chunk of short ones is split into
/// pieces, with those of other connections between them.
const CHUNK_COMMANDS: u64 = 16;
/// The minimum size of a piece.
const PIECE_BYTES_MIN: u64 = 1 << 10;
/// For this many iterations after two connections alternated, the loop counts as shared.
const SHARED_ITERATIONS: u32 = 64;
/// Closing connections, at most; more are closed at once.
const CLOSING_MAX: usize = 256;
/// How long a closing connection may take to receive its last bytes.
const CLOSE_TIMEOUT: Duration = Duration(1_000_000_000);
/// How long the connection of a host that will reconnect stays open after its last replies. Linux
/// discards replies that it has not processed when it sees the end of a connection; after the
/// reconnect it retries those writes, and a zone refuses a write the second time. An emulated Linux
/// guest lost replies in 2 of 8 stops without this time.
const LINGER: Duration = Duration(500_000_000);
/// Delay before the next accept after file descriptors were exhausted.
const ACCEPT_PAUSE: Duration = Duration(100_000_000);
/// After a line of the log about accepts that fail, no other one follows for this long.
const ACCEPT_LOG_INTERVAL: Duration = Duration(60_000_000_000);

/// Tokens: the kind of operation, and the connection.
const ACCEPT: u64 = 1 << 62;
const SEND: u64 = 1 << 61;
const KIND: u64 = ACCEPT | SEND;

/// An event of a socket.
pub(crate) enum SocketEvent {
    /// A host has connected; it has no id yet.
    Accepted { portal: usize, socket: Socket, local: String, peer: String },
    /// Bytes were received, and are queued.
    Arrived { connection: ConnectionId },
    /// Received bytes to be processed.
    Received { connection: ConnectionId, chunk: Bytes },
    /// Bytes were accepted by the kernel.
    Sent { connection: ConnectionId, bytes: usize },
    /// The peer has disconnected.
    Disconnected { connection: ConnectionId },
}

/// All sockets of one server.
pub(crate) struct Sockets {
    client: Client,
    /// By portal; those that were removed leave an empty place.
    listeners: Vec<Option<Rc<Socket>>>,
    connections: HashMap<ConnectionId, Connection>,
    /// Events that are no completions of operations.
    events: VecDeque<SocketEvent>,
    /// Received and not processed. One piece of one chunk per connection: the next is received
    /// after that.
    arrived: FairQueue<(ConnectionId, Bytes)>,
    /// What may be processed in this iteration: bytes, and [`CHUNK_COST`] for each chunk.
    allowance: u64,
    /// The connection whose bytes were processed last.
    last: Option<ConnectionId>,
    iterations_alone: u32,
    iterations_silent: u32,
    /// Closing connections.
    closing: BTreeSet<(Instant, ConnectionId)>,
    /// Accepts that failed for lack of resources, to be retried.
    accept_again: Vec<(Option<Instant>, usize)>,
    /// Why an accept has failed, until it is logged, and until when another one is not.
    accept_error: Option<io::Error>,
    accept_error_logged_until: Instant,
    is_accepting: bool,
    pub(crate) accepted: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Unsent bytes of closing connections.
    closing_bytes: usize,
    /// Connections with a full-size receive buffer.
    buffers: usize,
}

struct Connection {
    socket: Rc<Socket>,
    flow: Flow,
    /// A chunk of it was not processed, or not completely.
    has_arrived: bool,
    /// The rest of the chunk after the queued piece.
    rest: Bytes,
    /// From the bytes that were processed last.
    bytes_per_command: u64,
    /// The receive buffer, unless a receive uses it.
    buffer: Option<BytesMut>,
    is_paused: bool,
    is_closing: bool,
    /// It is closed at its deadline, not when all is sent.
    is_lingering: bool,
    /// The host has shut down its side.
    has_ended: bool,
    sends_in_flight: u32,
    unsent_bytes: usize,
    /// It has a full-size buffer.
    has_buffer: bool,
}

impl Connection {
    /// Shuts down the sending side once all is sent, and waits for the host to close.
    fn end_sending(&self) {
        if self.is_closing && !self.is_lingering && self.sends_in_flight == 0 {
            // It may be disconnected already.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }
}

impl Sockets {
    pub(crate) fn new(ring: &Ring, listeners: Vec<Socket>) -> Sockets {
        Sockets {
            client: ring.client(),
            listeners: listeners.into_iter().map(|listener| Some(Rc::new(listener))).collect(),
            connections: HashMap::new(),
            events: VecDeque::new(),
            arrived: FairQueue::default(),
            allowance: u64::MAX,
            last: None,
            iterations_alone: SHARED_ITERATIONS,
            iterations_silent: SHARED_ITERATIONS,
            closing: BTreeSet::new(),
            accept_again: Vec::new(),
            accept_error: None,
            accept_error_logged_until: Instant::ZERO,
            is_accepting: false,
            accepted: 0,
            received_bytes: 0,
            sent_bytes: 0,
            closing_bytes: 0,
            buffers: 0,
        }
    }

    /// Starts accepting connections.
    pub(crate) fn accept(&mut self) {
        self.is_accepting = true;
        for portal in 0..self.listeners.len() {
            (0..ACCEPTS_IN_FLIGHT).for_each(|_| self.accept_one(portal));
        }
    }

    /// Adds a listener, and accepts connections on it as on the others. Returns its portal.
    pub(crate) fn add_listener(&mut self, listener: Socket) -> usize {
        let portal = self.listeners.len();
        self.listeners.push(Some(Rc::new(listener)));
        if self.is_accepting {
            (0..ACCEPTS_IN_FLIGHT).for_each(|_| self.accept_one(portal));
        }
        portal
    }

    /// Closes a listener; its connections stay.
    pub(crate) fn remove_listener(&mut self, portal: usize) {
        if let Some(listener) = self.listeners[portal].take() {
            // It ends the accepts in flight, which hold the socket open.
            let _ = listener.shutdown(Shutdown::Both);
        }
    }

    /// Stops accepting connections.
    pub(crate) fn stop_accepting(&mut self) {
        self.is_accepting = false;
        for listener in self.listeners.iter().flatten() {
            // A listener that cannot be shut down is closed with the server.
            let _ = listener.shutdown(Shutdown::Both);
        }
    }

    /// Starts an iteration of the loop, with an allowance for received bytes.
    pub(crate) fn begin_iteration(&mut self, allowance: u64) {
        self.allowance = allowance;
        self.iterations_alone = self.iterations_alone.saturating_add(1);
        self.iterations_silent = self.iterations_silent.saturating_add(1);
    }

    /// How many connections have sent bytes in the last iterations; 2: two or more.
    pub(crate) fn active(&self) -> u32 {
        u32::from(self.iterations_silent < SHARED_ITERATIONS) + u32::from(self.iterations_alone < SHARED_ITERATIONS)
    }

    /// Records how many commands were in processed bytes.
    pub(crate) fn note_commands(&mut self, connection: ConnectionId, bytes: usize, commands: u64) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.bytes_per_command = bytes as u64 / commands.max(1);
        }
    }

    /// Whether received bytes are left for the next iteration.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Whether received bytes of a connection are queued.
    pub(crate) fn has_arrived(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_some_and(|entry| entry.has_arrived)
    }

    /// The next event. Received bytes come last, those of each address in turn, within the
    /// allowance.
    pub(crate) fn next_event(&mut self) -> Option<SocketEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(done) = self.client.next() else { return self.next_arrived() };
            if let Some(event) = self.on_done(done) {
                return Some(event);
            }
        }
    }

    fn next_arrived(&mut self) -> Option<SocketEvent> {
        if self.allowance == 0 {
            return None;
        }
        let (cost, (connection, chunk)) = self.arrived.pop()?;
        self.allowance = self.allowance.saturating_sub(cost);
        self.iterations_silent = 0;
        if self.last.replace(connection) != Some(connection) {
            self.iterations_alone = 0;
        }
        self.queue_piece(connection);
        if let Some(entry) = self.connections.get_mut(&connection)
            && !entry.has_arrived
            && !entry.is_paused
        {
            self.receive(connection);
        }
        Some(SocketEvent::Received { connection, chunk })
    }

    /// Queues the next piece of a connection's received bytes.
    fn queue_piece(&mut self, connection: ConnectionId) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        entry.has_arrived = !entry.rest.is_empty();
        if entry.has_arrived {
            let most = entry.bytes_per_command.saturating_mul(CHUNK_COMMANDS).max(PIECE_BYTES_MIN);
            let piece = entry.rest.split_to(entry.rest.len().min(most as usize));
            let commands = piece.len() as u64 / entry.bytes_per_command.max(1);
            self.arrived.push(
                entry.flow,
                CHUNK_COST + piece.len() as u64 + commands * COMMAND_COST,
                (connection, piece),
            );
        }
    }

    /// Adds a connection that got its id, and starts to receive.
    pub(crate) fn insert(&mut self, connection: ConnectionId, peer: &str, socket: Socket) {
        // Without it small replies are delayed, not lost.
        let _ = socket.set_no_delay(true);
        let new = Connection {
            socket: Rc::new(socket),
            flow: Flow { group: Flow::group_of(peer), queue: connection.0 },
            has_arrived: false,
            rest: Bytes::new(),
            bytes_per_command: u64::MAX,
            buffer: Some(BytesMut::with_capacity(RECEIVE_BYTES_FIRST)),
            is_paused: false,
            is_closing: false,
            is_lingering: false,
            has_ended: false,
            sends_in_flight: 0,
            unsent_bytes: 0,
            has_buffer: false,
        };
        let earlier = self.connections.insert(connection, new);
        assert!(earlier.is_none(), "connection ids are unique");
        self.receive(connection);
    }

    /// Sends all pieces, after earlier ones.
    pub(crate) fn send(&mut self, connection: ConnectionId, pieces: Vec<Bytes>) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        entry.sends_in_flight += 1;
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        entry.unsent_bytes += bytes;
        if entry.is_closing {
            self.closing_bytes += bytes;
        }
        self.client.submit(SEND | connection.0, Operation::Send { socket: Rc::clone(&entry.socket), pieces });
    }

    /// Stops receiving, after the receive in progress.
    pub(crate) fn pause(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.is_paused = true;
        }
    }

    /// Resumes receiving.
    pub(crate) fn resume(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.is_paused = false;
            self.receive(connection);
        }
    }

    /// Closes a connection when all was sent and the host has closed it too, or after a timeout.
    /// With `lingering` the sending side is not shut down. It causes no more events.
    pub(crate) fn close(&mut self, now: Instant, connection: ConnectionId, lingering: bool) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        entry.is_closing = true;
        entry.has_arrived = false;
        entry.rest = Bytes::new();
        self.arrived.remove(entry.flow);
        self.closing_bytes += entry.unsent_bytes;
        entry.is_lingering = lingering;
        if self.closing.len() >= CLOSING_MAX {
            return self.cut(connection);
        }
        let stay = if lingering && entry.sends_in_flight == 0 { LINGER } else { CLOSE_TIMEOUT };
        self.closing.insert((now + stay, connection));
        entry.end_sending();
        // It may have been paused.
        self.receive(connection);
    }

    /// Closes all connections now.
    pub(crate) fn cut_all(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            let was_closing = self.connections[&connection].is_closing;
            self.cut(connection);
            if !was_closing {
                self.events.push_back(SocketEvent::Disconnected { connection });
            }
        }
    }

    /// Handles expired timeouts.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, connection)) = self.closing.first()
            && at <= now
        {
            self.cut(connection);
        }
        if let Some(error) = self.accept_error.take().filter(|_| now >= self.accept_error_logged_until) {
            events::accept_failed(&error);
            self.accept_error_logged_until = now + ACCEPT_LOG_INTERVAL;
        }
        for (at, portal) in std::mem::take(&mut self.accept_again) {
            match at {
                Some(at) if at <= now => self.accept_one(portal),
                Some(at) => self.accept_again.push((Some(at), portal)),
                None => self.accept_again.push((Some(now + ACCEPT_PAUSE), portal)),
            }
        }
    }

    /// The next timeout.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let closing = self.closing.first().map(|(at, _)| *at);
        closing.into_iter().chain(self.accept_again.iter().filter_map(|(at, _)| *at)).min()
    }

    /// Whether no host is connected.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Unsent bytes of closing connections.
    pub(crate) fn closing_bytes(&self) -> usize {
        self.closing_bytes
    }

    /// Bytes of receive buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.connections.len() * RECEIVE_BYTES_FIRST + self.buffers * RECEIVE_BYTES
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    fn on_done(&mut self, done: Done) -> Option<SocketEvent> {
        match done.token & KIND {
            ACCEPT => self.on_accept((done.token & !KIND) as usize, done.result),
            SEND => self.on_sent(ConnectionId(done.token & !KIND), done.result.is_ok(), done.bytes),
            _ => self.on_received(ConnectionId(done.token), done.result, done.bytes),
        }
    }

    fn on_accept(&mut self, portal: usize, result: io::Result<Outcome>) -> Option<SocketEvent> {
        if !self.is_accepting || self.listeners[portal].is_none() {
            return None;
        }
        match result {
            Ok(Outcome::Accepted(socket)) => {
                self.accept_one(portal);
                self.accepted += 1;
                let peer = socket.peer_address().map_or_else(|_| "unknown".to_owned(), |address| address.to_string());
                let local = match socket.local_address() {
                    Ok(Address::Tcp(address)) => address.ip().to_canonical().to_string(),
                    _ => String::new(),
                };
                Some(SocketEvent::Accepted { portal, socket, local, peer })
            }
            Ok(_) => unreachable!("an accept returns a socket"),
            Err(error) => {
                // No descriptors, no memory, or a host that disconnected before it was accepted:
                // retry.
                self.accept_again.push((None, portal));
                self.accept_error = (error.kind() != io::ErrorKind::ConnectionAborted).then_some(error);
                None
            }
        }
    }

    fn on_sent(&mut self, connection: ConnectionId, succeeded: bool, bytes: u64) -> Option<SocketEvent> {
        self.sent_bytes += bytes;
        let entry = self.connections.get_mut(&connection)?;
        entry.sends_in_flight -= 1;
        entry.unsent_bytes -= bytes as usize;
        if entry.is_closing {
            self.closing_bytes -= bytes as usize;
            if !succeeded || (entry.sends_in_flight == 0 && entry.has_ended) {
                self.cut(connection);
            } else {
                entry.end_sending();
            }
            return None;
        }
        if !succeeded {
            self.cut(connection);
            return Some(SocketEvent::Disconnected { connection });
        }
        Some(SocketEvent::Sent { connection, bytes: bytes as usize })
    }

    fn on_received(
        &mut self,
        connection: ConnectionId,
        result: io::Result<Outcome>,
        bytes: u64,
    ) -> Option<SocketEvent> {
        self.received_bytes += bytes;
        let entry = self.connections.get_mut(&connection)?;
        match result {
            // Input of closing connections is discarded, but unread bytes would turn the close into
            // a reset, with which hosts lose the last replies.
            Ok(Outcome::Received(mut buffer)) if bytes > 0 && entry.is_closing => {
                buffer.clear();
                entry.buffer = Some(buffer);
                self.receive(connection);
                None
            }
            Ok(Outcome::Received(mut buffer)) if bytes > 0 => {
                entry.rest = buffer.split().freeze();
                entry.buffer = Some(buffer);
                self.queue_piece(connection);
                Some(SocketEvent::Arrived { connection })
            }
            // A host that has shut down its side may still read the last replies.
            Ok(_) if entry.is_closing && entry.sends_in_flight > 0 => {
                entry.has_ended = true;
                None
            }
            _ => {
                let was_closing = entry.is_closing;
                self.cut(connection);
                (!was_closing).then_some(SocketEvent::Disconnected { connection })
            }
        }
    }

    fn accept_one(&self, portal: usize) {
        if let Some(listener) = &self.listeners[portal] {
            self.client.submit(ACCEPT | portal as u64, Operation::Accept(Rc::clone(listener)));
        }
    }

    /// Starts a receive, unless one is in progress.
    fn receive(&mut self, connection: ConnectionId) {
        let is_shared = self.active() > 1;
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        if entry.has_arrived {
            return;
        }
        let Some(mut buffer) = entry.buffer.take() else { return };
        let free = buffer.capacity() - buffer.len();
        if free < RECEIVE_BYTES_MIN && (free == 0 || free != RECEIVE_BYTES_FIRST) {
            // Reuses the memory if no reference to it is left.
            buffer.reserve(if is_shared { RECEIVE_BYTES_SHARED } else { RECEIVE_BYTES });
            self.buffers += usize::from(!entry.has_buffer);
            entry.has_buffer = true;
        }
        self.client.submit(connection.0, Operation::Receive { socket: Rc::clone(&entry.socket), buffer });
    }

    /// Removes a connection; its operations end by themselves.
    fn cut(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.remove(&connection) {
            // It may be disconnected already.
            let _ = entry.socket.shutdown(Shutdown::Both);
            self.buffers -= usize::from(entry.has_buffer);
            self.arrived.remove(entry.flow);
            if entry.is_closing {
                self.closing_bytes -= entry.unsent_bytes;
            }
            self.closing.retain(|(_, closing)| *closing != connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;
    use zonda_ring::RingOptions;

    #[test]
    fn short_commands_of_one_connection_are_processed_in_pieces_and_others_between_them() {
        let ring = Ring::new(RingOptions::default()).expect("an event loop");
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let listener = Socket::listen(&Address::Tcp(any)).expect("a port is free");
        let Ok(Address::Tcp(address)) = listener.local_address() else { panic!("a TCP listener") };
        let mut sockets = Sockets::new(&ring, vec![listener]);
        sockets.accept();
        let mut hosts: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        let mut accepted = 0;
        while accepted < 2 {
            ring.run_once(None).expect("the event loop works");
            while let Some(event) = sockets.next_event() {
                let SocketEvent::Accepted { socket, peer, .. } = event else { panic!("no host has sent anything") };
                sockets.insert(ConnectionId(accepted), &peer, socket);
                accepted += 1;
            }
        }
        // According to the last bytes of both, a command has 64 bytes.
        (0..2).for_each(|id| sockets.note_commands(ConnectionId(id), 640, 10));
        hosts[0].write_all(&[7; 3 << 10]).expect("the server reads");
        hosts[1].write_all(&[7; 64]).expect("the server reads");
        let mut received = Vec::new();
        sockets.begin_iteration(u64::MAX);
        while sockets.received_bytes < (3 << 10) + 64 {
            ring.run_once(None).expect("the event loop works");
            while let Some(done) = sockets.client.next() {
                let event = sockets.on_done(done);
                assert!(matches!(event, Some(SocketEvent::Arrived { .. })), "bytes are queued");
            }
        }
        while let Some(SocketEvent::Received { connection, chunk }) = sockets.next_event() {
            received.push((chunk.len(), sockets.connections[&connection].flow.queue));
        }
        let short = received.iter().position(|(bytes, _)| *bytes == 64).expect("the short command was received");
        assert!(short <= 1, "it waits for one piece of the other: {received:?}");
        assert_eq!(received.iter().filter(|(bytes, _)| *bytes == PIECE_BYTES_MIN as usize).count(), 3, "{received:?}");
        assert_eq!(sockets.active(), 2);
        (0..SHARED_ITERATIONS).for_each(|_| sockets.begin_iteration(u64::MAX));
        assert_eq!(sockets.active(), 0);
    }
}
