//! The connections of one server: what arrives goes up as events, what the target sends goes down.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use zonda_ring::{Address, Bytes, BytesMut, Client, Done, Operation, Outcome, Ring, Socket};
use zonda_target::{ConnectionId, FairQueue, Flow};
use zonda_zoned::{Duration, Instant};

use crate::served::COMMAND_COST;

/// Connections that one turn takes from each listener. Where there are more, the first messages of a flood pile up, and hosts whose
/// answers wait behind these lose their places to those that come meanwhile.
const ACCEPTS_UNDER_WAY: u64 = 4;
/// Room for what arrives at once: a few commands with their data. Each connection has a buffer of its own. With 128 KiB, a PDU with as
/// much data never came in one piece, and such writes took 12% longer.
pub(crate) const RECEIVE_BYTES: usize = 256 << 10;
/// The same while several connections share the loop: others wait while so much is copied.
const RECEIVE_BYTES_SHARED: usize = 64 << 10;
/// With less room than this left, a new buffer is taken.
const RECEIVE_BYTES_MIN: usize = 32 << 10;
/// The first buffer of a connection: a handshake is small, and there may be ten thousand.
const RECEIVE_BYTES_FIRST: usize = 4 << 10;
/// What a chunk costs beside its bytes and commands, in bytes.
const CHUNK_COST: u64 = 4 << 10;
/// Commands that one chunk brings, about: a chunk of short ones is handed over in pieces, others between them.
const CHUNK_COMMANDS: u64 = 16;
/// The least bytes of a piece.
const PIECE_BYTES_MIN: u64 = 1 << 10;
/// So many turns after two connections took turns, the loop is still shared.
const SHARED_TURNS: u32 = 64;
/// Connections that take their leave, at most; more are cut.
const LEAVING_MAX: usize = 256;
/// A connection that is closed gets this long to take what it was sent last.
const FAREWELL: Duration = Duration(1_000_000_000);
/// With its last answers sent, the connection of a host that is to come back stays for this. Linux throws away the answers
/// that it has not looked at when it sees the end of a connection; after the reconnect it sends their writes again, and a
/// write to a zone that has been executed is refused the second time. Linux as a guest, emulated, lost answers in 2 of 8
/// stops without this time.
const LINGER: Duration = Duration(500_000_000);
/// After the system had no more file descriptors, the next connection is tried for after this.
const ACCEPT_PAUSE: Duration = Duration(100_000_000);

/// Tokens: what the operation was, and for whom.
const ACCEPT: u64 = 1 << 62;
const SEND: u64 = 1 << 61;
const KIND: u64 = ACCEPT | SEND;

/// Something that happened on a socket.
pub(crate) enum SocketEvent {
    /// A host has connected; nobody has a name for it yet.
    Accepted { portal: usize, socket: Socket, local: String, peer: String },
    /// Bytes have come, and wait for their turn.
    Arrived { connection: ConnectionId },
    /// Bytes have come, and it is their turn.
    Received { connection: ConnectionId, chunk: Bytes },
    /// Bytes are with the kernel.
    Sent { connection: ConnectionId, bytes: usize },
    /// The connection has ended from the other side.
    Gone { connection: ConnectionId },
}

/// All sockets of one server.
pub(crate) struct Sockets {
    client: Client,
    listeners: Vec<Rc<Socket>>,
    connections: HashMap<ConnectionId, Connection>,
    /// Events for which no operation ended.
    events: VecDeque<SocketEvent>,
    /// What has come and was not handed over. Of each connection one piece of one chunk: the next is received when that is.
    arrived: FairQueue<(ConnectionId, Bytes)>,
    /// What may be handed over in this turn of the loop: bytes, and [`CHUNK_COST`] for each chunk.
    allowance: u64,
    /// Whose bytes were handed over last, and turns since they were another's than those before.
    last: Option<ConnectionId>,
    turns_alone: u32,
    turns_silent: u32,
    /// Those that take their leave.
    leaving: BTreeSet<(Instant, ConnectionId)>,
    /// Accepts that failed for want of resources, to be tried again.
    accept_again: Vec<(Option<Instant>, usize)>,
    is_accepting: bool,
    pub(crate) accepted: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Of connections that take their leave, what they have not taken of what they were sent.
    leaving_bytes: usize,
    /// Connections with a whole receive buffer, beyond the first.
    buffers: usize,
}

struct Connection {
    socket: Rc<Socket>,
    flow: Flow,
    /// A chunk of it was not handed over, or not all of it.
    has_arrived: bool,
    /// What of the chunk follows the piece that waits.
    rest: Bytes,
    /// As the bytes that were handed over last had it.
    bytes_per_command: u64,
    /// Here unless a receive has it.
    buffer: Option<BytesMut>,
    is_paused: bool,
    is_leaving: bool,
    /// It leaves at its time, and not when all is sent.
    is_lingering: bool,
    /// The host sends no more.
    has_ended: bool,
    sends_under_way: u32,
    unsent_bytes: usize,
    /// It has more than the first buffer.
    has_buffer: bool,
}

impl Connection {
    /// Tells the host that no more comes once all is sent; its own end is then waited for.
    fn end_sending(&self) {
        if self.is_leaving && !self.is_lingering && self.sends_under_way == 0 {
            // It may be gone already.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }
}

impl Sockets {
    pub(crate) fn new(ring: &Ring, listeners: Vec<Socket>) -> Sockets {
        Sockets {
            client: ring.client(),
            listeners: listeners.into_iter().map(Rc::new).collect(),
            connections: HashMap::new(),
            events: VecDeque::new(),
            arrived: FairQueue::default(),
            allowance: u64::MAX,
            last: None,
            turns_alone: SHARED_TURNS,
            turns_silent: SHARED_TURNS,
            leaving: BTreeSet::new(),
            accept_again: Vec::new(),
            is_accepting: false,
            accepted: 0,
            received_bytes: 0,
            sent_bytes: 0,
            leaving_bytes: 0,
            buffers: 0,
        }
    }

    /// Begins to take connections.
    pub(crate) fn accept(&mut self) {
        self.is_accepting = true;
        for portal in 0..self.listeners.len() {
            (0..ACCEPTS_UNDER_WAY).for_each(|_| self.accept_one(portal));
        }
    }

    /// Takes no more connections.
    pub(crate) fn stop_accepting(&mut self) {
        self.is_accepting = false;
        for listener in &self.listeners {
            // A listener that cannot be shut down is closed with the server.
            let _ = listener.shutdown(Shutdown::Both);
        }
    }

    /// A turn of the loop begins: so much of what hosts have sent may be handed over.
    pub(crate) fn begin_turn(&mut self, allowance: u64) {
        self.allowance = allowance;
        self.turns_alone = self.turns_alone.saturating_add(1);
        self.turns_silent = self.turns_silent.saturating_add(1);
    }

    /// How many connections have sent something in the last turns; 2: two or more.
    pub(crate) fn active(&self) -> u32 {
        u32::from(self.turns_silent < SHARED_TURNS) + u32::from(self.turns_alone < SHARED_TURNS)
    }

    /// Bytes that were handed over were so many commands.
    pub(crate) fn note_commands(&mut self, connection: ConnectionId, bytes: usize, commands: u64) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.bytes_per_command = bytes as u64 / commands.max(1);
        }
    }

    /// Whether something has come that waits for the next turn.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Whether something has come of a connection that waits for its turn.
    pub(crate) fn has_arrived(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_some_and(|entry| entry.has_arrived)
    }

    /// The next thing that has happened. Bytes of hosts come last, those of each address in turn, as many as this turn allows.
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
        self.turns_silent = 0;
        if self.last.replace(connection) != Some(connection) {
            self.turns_alone = 0;
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

    /// What has come of a connection has its place among what others have sent, as much as is handed over at once.
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

    /// A connection has its name, and may speak.
    pub(crate) fn insert(&mut self, connection: ConnectionId, peer: &str, socket: Socket) {
        // Without it small answers wait; they still arrive.
        let _ = socket.set_no_delay(true);
        let new = Connection {
            socket: Rc::new(socket),
            flow: Flow { group: Flow::group_of(peer), queue: connection.0 },
            has_arrived: false,
            rest: Bytes::new(),
            bytes_per_command: u64::MAX,
            buffer: Some(BytesMut::with_capacity(RECEIVE_BYTES_FIRST)),
            is_paused: false,
            is_leaving: false,
            is_lingering: false,
            has_ended: false,
            sends_under_way: 0,
            unsent_bytes: 0,
            has_buffer: false,
        };
        let earlier = self.connections.insert(connection, new);
        assert!(earlier.is_none(), "a connection's number is its own");
        self.receive(connection);
    }

    /// Sends all of it, after what was sent before.
    pub(crate) fn send(&mut self, connection: ConnectionId, pieces: Vec<Bytes>) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        entry.sends_under_way += 1;
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        entry.unsent_bytes += bytes;
        if entry.is_leaving {
            self.leaving_bytes += bytes;
        }
        self.client.submit(SEND | connection.0, Operation::Send { socket: Rc::clone(&entry.socket), pieces });
    }

    /// Reads no more of it, once what is under way has come.
    pub(crate) fn pause(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.is_paused = true;
        }
    }

    /// Reads on.
    pub(crate) fn resume(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.is_paused = false;
            self.receive(connection);
        }
    }

    /// Ends a connection when it has taken what it was sent and its host has ended it too, or after a while. With `lingering`
    /// the host is not told that it is to end. No event of it comes any more.
    pub(crate) fn close(&mut self, now: Instant, connection: ConnectionId, lingering: bool) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        entry.is_leaving = true;
        entry.has_arrived = false;
        entry.rest = Bytes::new();
        self.arrived.remove(entry.flow);
        self.leaving_bytes += entry.unsent_bytes;
        entry.is_lingering = lingering;
        if self.leaving.len() >= LEAVING_MAX {
            return self.cut(connection);
        }
        let stay = if lingering && entry.sends_under_way == 0 { LINGER } else { FAREWELL };
        self.leaving.insert((now + stay, connection));
        entry.end_sending();
        // It may have been paused.
        self.receive(connection);
    }

    /// Ends all connections now.
    pub(crate) fn cut_all(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            let was_leaving = self.connections[&connection].is_leaving;
            self.cut(connection);
            if !was_leaving {
                self.events.push_back(SocketEvent::Gone { connection });
            }
        }
    }

    /// What is due.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, connection)) = self.leaving.first()
            && at <= now
        {
            self.cut(connection);
        }
        for (at, portal) in std::mem::take(&mut self.accept_again) {
            match at {
                Some(at) if at <= now => self.accept_one(portal),
                Some(at) => self.accept_again.push((Some(at), portal)),
                None => self.accept_again.push((Some(now + ACCEPT_PAUSE), portal)),
            }
        }
    }

    /// When the next thing is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let leaving = self.leaving.first().map(|(at, _)| *at);
        leaving.into_iter().chain(self.accept_again.iter().filter_map(|(at, _)| *at)).min()
    }

    /// Whether no host is connected.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Bytes that are held for connections that take their leave.
    pub(crate) fn leaving_bytes(&self) -> usize {
        self.leaving_bytes
    }

    /// Bytes of the buffers in which connections receive.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.connections.len() * RECEIVE_BYTES_FIRST + self.buffers * RECEIVE_BYTES
    }

    /// How many are connected.
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
        if !self.is_accepting {
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
            Ok(_) => unreachable!("an accept brings a socket"),
            Err(_) => {
                // No descriptors, no memory, or a host that was gone before it was taken: others may have more luck.
                self.accept_again.push((None, portal));
                None
            }
        }
    }

    fn on_sent(&mut self, connection: ConnectionId, is_well: bool, bytes: u64) -> Option<SocketEvent> {
        self.sent_bytes += bytes;
        let entry = self.connections.get_mut(&connection)?;
        entry.sends_under_way -= 1;
        entry.unsent_bytes -= bytes as usize;
        if entry.is_leaving {
            self.leaving_bytes -= bytes as usize;
            if !is_well || (entry.sends_under_way == 0 && entry.has_ended) {
                self.cut(connection);
            } else {
                entry.end_sending();
            }
            return None;
        }
        if !is_well {
            self.cut(connection);
            return Some(SocketEvent::Gone { connection });
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
            // Nobody hears those that take their leave, but what is left unread would turn the end of the connection into a
            // reset, with which hosts lose the last answers.
            Ok(Outcome::Received(mut buffer)) if bytes > 0 && entry.is_leaving => {
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
            // Who says no more may still listen to the last answers.
            Ok(_) if entry.is_leaving && entry.sends_under_way > 0 => {
                entry.has_ended = true;
                None
            }
            _ => {
                let was_leaving = entry.is_leaving;
                self.cut(connection);
                (!was_leaving).then_some(SocketEvent::Gone { connection })
            }
        }
    }

    fn accept_one(&self, portal: usize) {
        self.client.submit(ACCEPT | portal as u64, Operation::Accept(Rc::clone(&self.listeners[portal])));
    }

    /// Lets the next bytes come, unless they are waited for already.
    fn receive(&mut self, connection: ConnectionId) {
        let is_shared = self.active() > 1;
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        if entry.has_arrived {
            return;
        }
        let Some(mut buffer) = entry.buffer.take() else { return };
        let room = buffer.capacity() - buffer.len();
        if room < RECEIVE_BYTES_MIN && (room == 0 || room != RECEIVE_BYTES_FIRST) {
            // Takes the old memory again if nobody looks at it any more.
            buffer.reserve(if is_shared { RECEIVE_BYTES_SHARED } else { RECEIVE_BYTES });
            self.buffers += usize::from(!entry.has_buffer);
            entry.has_buffer = true;
        }
        self.client.submit(connection.0, Operation::Receive { socket: Rc::clone(&entry.socket), buffer });
    }

    /// The connection is no more; its operations end by themselves.
    fn cut(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connections.remove(&connection) {
            // It may be gone already.
            let _ = entry.socket.shutdown(Shutdown::Both);
            self.buffers -= usize::from(entry.has_buffer);
            self.arrived.remove(entry.flow);
            if entry.is_leaving {
                self.leaving_bytes -= entry.unsent_bytes;
            }
            self.leaving.retain(|(_, leaving)| *leaving != connection);
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
    fn short_commands_of_one_connection_are_handed_over_in_pieces_and_others_between_them() {
        let ring = Ring::new(RingOptions::default()).expect("the machine has an event loop");
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let listener = Socket::listen(&Address::Tcp(any)).expect("a port is free");
        let Ok(Address::Tcp(address)) = listener.local_address() else { panic!("a TCP listener") };
        let mut sockets = Sockets::new(&ring, vec![listener]);
        sockets.accept();
        let mut hosts: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        let mut accepted = 0;
        while accepted < 2 {
            ring.turn(None).expect("the loop turns");
            while let Some(event) = sockets.next_event() {
                let SocketEvent::Accepted { socket, peer, .. } = event else { panic!("nobody has spoken") };
                sockets.insert(ConnectionId(accepted), &peer, socket);
                accepted += 1;
            }
        }
        // As the last bytes of both had it, a command has 64 bytes.
        (0..2).for_each(|id| sockets.note_commands(ConnectionId(id), 640, 10));
        hosts[0].write_all(&[7; 3 << 10]).expect("the server reads");
        hosts[1].write_all(&[7; 64]).expect("the server reads");
        let mut received = Vec::new();
        sockets.begin_turn(u64::MAX);
        while sockets.received_bytes < (3 << 10) + 64 {
            ring.turn(None).expect("the loop turns");
            while let Some(done) = sockets.client.next() {
                let event = sockets.on_done(done);
                assert!(matches!(event, Some(SocketEvent::Arrived { .. })), "bytes wait for their turn");
            }
        }
        while let Some(SocketEvent::Received { connection, chunk }) = sockets.next_event() {
            received.push((chunk.len(), sockets.connections[&connection].flow.queue));
        }
        let short = received.iter().position(|(bytes, _)| *bytes == 64).expect("the short command came");
        assert!(short <= 1, "it waits for one piece of the other: {received:?}");
        assert_eq!(received.iter().filter(|(bytes, _)| *bytes == PIECE_BYTES_MIN as usize).count(), 3, "{received:?}");
        assert_eq!(sockets.active(), 2);
        (0..SHARED_TURNS).for_each(|_| sockets.begin_turn(u64::MAX));
        assert_eq!(sockets.active(), 0);
    }
}
