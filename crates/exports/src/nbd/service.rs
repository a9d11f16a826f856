//! The clients of all exports: what arrives goes to their machines, what these want is done.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use rustix::net::sockopt;
use zonda_nbd::{CloseReason, Connection, Effect, ExportIndex, NbdError, ReadPiece, Reply, Stage};
use zonda_ring::{Address, Ring, Socket};
use zonda_target::{Budget, ConnectionId, DeviceKey, Flow, Progress, UnregisteredAccess};
use zonda_zoned::{Completion, Instant, Status};

use super::admission::Admission;
use super::crowd::{self, Place};
use super::limits::{HANDSHAKE_MAX, HANDSHAKE_STEPS, PROBE_AFTER, PROBE_INTERVAL, PROBES, STALL_MAX, SWEEP_INTERVAL};
use super::listen::{Listener, SocketFile};
use super::memory::{ClientMemory, MemoryQueue};
use super::snapshot::{NbdExportSnapshot, NbdSnapshot};
use super::table::Table;
use super::tls::Channel;
use super::work::{Asker, RequestKind, Work, WorkEffect};
use crate::drives::Drives;
use crate::events;
use crate::served::Submitter;
use crate::sockets::{SocketEvent, Sockets};

/// The NBD server.
pub(crate) struct Nbd {
    sockets: Sockets,
    tables: Vec<Table>,
    /// The table of each listener.
    portals: Vec<usize>,
    listen: Vec<Address>,
    /// They go when nobody is let in any more.
    files: Vec<SocketFile>,
    pub(super) clients: BTreeMap<ConnectionId, Client>,
    /// Connections so far; the last one's number.
    numbered: u64,
    connections_max: usize,
    /// Those whose machines may want something, most of them once: what is told to a machine in one turn is answered in one
    /// send.
    pub(super) dirty: Vec<ConnectionId>,
    work: Work,
    admission: Admission,
    pub(super) memory: MemoryQueue,
    sweep_at: Instant,
    counts: Counts,
}

/// One connection.
pub(super) struct Client {
    pub(super) machine: Connection,
    /// Once its bytes come in TLS.
    channel: Option<Channel>,
    peer: String,
    /// Of its address.
    group: u64,
    table: usize,
    since: Instant,
    /// When it took a step of its handshake last, and how many of its steps still count.
    stepped_at: Instant,
    steps_left: u8,
    /// When its last request came.
    asked_at: Option<Instant>,
    /// Sends that have not left, and the bytes of the machine in each.
    unsent: VecDeque<usize>,
    /// When the client last took something, or was first sent something.
    progress_at: Instant,
    /// What it takes of what it is sent, and sends of what it has announced.
    progress: Progress,
    is_paused: bool,
    pub(super) memory: ClientMemory,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The machine wants it.
    Closed(CloseReason),
    /// The other side ended it, or the network did.
    Gone,
    /// The server stops, and waits for requests in flight no longer.
    Cut,
    /// No export was chosen in time, or others needed the place.
    Handshake,
    /// Nobody has used it for a while, and others needed the place.
    Crowded,
    /// It takes nothing of what it is sent.
    Stalled,
    /// It takes and sends too little, while others wait for the memory that it holds.
    ShortOfMemory,
    /// Its TLS cannot be followed, or it is not believed.
    Tls(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    refused: u64,
    handshake_timeouts: u64,
    stalled: u64,
    protocol_errors: u64,
    tls_failures: u64,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed(reason) => reason.fmt(f),
            End::Gone => f.write_str("the client hung up"),
            End::Cut => f.write_str("this server stops, and requests did not end in time: they have no answer"),
            End::Handshake => f.write_str("it chose no export in time; a client that lists and leaves, or a stranger"),
            End::Tls(reason) => write!(f, "TLS failed: {reason}"),
            End::Crowded => f.write_str("it was idle, and closed to free its slot for a new connection"),
            End::ShortOfMemory => {
                f.write_str("it took and sent too little, while others waited for the memory that it held")
            }
            End::Stalled => f.write_str("it took nothing of what it was sent; look at the client and the network"),
        }
    }
}

impl Nbd {
    /// A server of these tables for so many connections; each listener is of the table with its index.
    pub(crate) fn new(
        ring: &Ring,
        connections_max: usize,
        tables: Vec<Table>,
        listeners: Vec<(usize, Listener)>,
    ) -> Nbd {
        let mut work = Work::default();
        tables.iter().flat_map(|table| &table.exports).for_each(|export| work.add_device(export.device, export.shape));
        let (mut sockets, mut portals, mut listen, mut files) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (table, listener) in listeners {
            sockets.push(listener.socket);
            portals.push(table);
            listen.push(listener.address);
            files.extend(listener.file);
        }
        Nbd {
            sockets: Sockets::new(ring, sockets),
            tables,
            portals,
            listen,
            files,
            clients: BTreeMap::new(),
            numbered: 0,
            connections_max,
            dirty: Vec::new(),
            work,
            admission: Admission::default(),
            memory: MemoryQueue::default(),
            sweep_at: Instant::ZERO,
            counts: Counts::default(),
        }
    }

    /// See [`Sockets::begin_turn`].
    pub(crate) fn begin_turn(&mut self, allowance: u64) {
        self.sockets.begin_turn(allowance);
    }

    /// See [`Sockets::active`].
    pub(crate) fn active(&self) -> u32 {
        self.sockets.active()
    }

    /// Begins to take connections.
    pub(crate) fn accept(&mut self) {
        self.sockets.accept();
    }

    /// Everything that can be done now. Returns whether anything was.
    pub(crate) fn turn(&mut self, now: Instant, drives: &mut Drives, budget: &mut Budget) -> bool {
        let mut moved = false;
        loop {
            let mut goes_on = false;
            while let Some(event) = self.sockets.next_event() {
                goes_on = true;
                self.on_event(now, event);
            }
            while let Some(effect) = self.work.poll_effect() {
                goes_on = true;
                match effect {
                    WorkEffect::Submit { device, command, .. }
                        if !self.admission.permits(device, &command.operation) =>
                    {
                        self.tell_refusal(device, drives);
                        self.work.completed(Completion::of(command.id, Status::ReservationConflict));
                    }
                    WorkEffect::Ask { device, job, .. } if !self.admission.permits_reads(device) => {
                        self.tell_refusal(device, drives);
                        self.work.refused(job);
                    }
                    WorkEffect::Submit { device, flow, command } => {
                        drives.submit(now, device, Submitter::Nbd, flow, command);
                    }
                    WorkEffect::Abandon { flow } => drives.abandon(flow),
                    WorkEffect::Ask { device, job, start, most } => {
                        self.work.answered(job, drives.get(device).drive().extent(start, most));
                    }
                    WorkEffect::Reply { asker, kind, bytes, result } => self.on_reply(asker, kind, bytes, result),
                }
            }
            for id in std::mem::take(&mut self.dirty) {
                self.settle(now, id, budget);
            }
            self.release_closed(budget);
            goes_on |= self.wake_waiting(budget);
            if !goes_on {
                return moved || self.sockets.has_backlog();
            }
            moved = true;
        }
    }

    /// What reservations of NVMe hosts leave to the clients, as of so many changes of them.
    pub(crate) fn admit(&mut self, changes: u64, access: impl Fn(DeviceKey) -> UnregisteredAccess) {
        let drives = self.tables.iter().flat_map(|table| &table.exports).map(|export| export.device);
        self.admission.update(changes, drives, access);
    }

    fn tell_refusal(&mut self, device: DeviceKey, drives: &Drives) {
        if self.admission.is_news(device) {
            events::nbd_reserved(&drives.get(device).source);
        }
    }

    /// A drive has ended a command of ours.
    pub(crate) fn completed(&mut self, completion: Completion) {
        self.work.completed(completion);
    }

    /// What is due.
    pub(crate) fn expire(&mut self, now: Instant, budget: &Budget) {
        self.sockets.expire(now);
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_INTERVAL;
        let overdue = |client: &mut Client| {
            if client.machine.stage() == Stage::Handshake && now.since(client.since) > HANDSHAKE_MAX {
                return Some(End::Handshake);
            }
            if !client.unsent.is_empty() && now.since(client.progress_at) > STALL_MAX {
                return Some(End::Stalled);
            }
            let owes_progress = !client.unsent.is_empty() || client.machine.requests_in_flight() == 0;
            let pool_bytes = client.memory.pool_bytes(budget);
            let is_stalled = budget.has_waiting() && client.progress.is_stalled(pool_bytes, owes_progress);
            is_stalled.then_some(End::ShortOfMemory)
        };
        let ends: Vec<_> =
            self.clients.iter_mut().filter_map(|(id, client)| overdue(client).map(|end| (*id, end))).collect();
        ends.into_iter().for_each(|(id, end)| self.end(now, id, &end));
    }

    /// When [`Nbd::expire`] has to be called next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let sweep = (!self.clients.is_empty()).then_some(self.sweep_at);
        sweep.into_iter().chain(self.sockets.next_timeout()).min()
    }

    /// Lets nobody in any more, answers what is under way, and closes each connection after its last answer.
    pub(crate) fn drain(&mut self) {
        self.sockets.stop_accepting();
        self.files.clear();
        let all: Vec<ConnectionId> = self.clients.keys().copied().collect();
        for id in all {
            if let Some(client) = self.clients.get_mut(&id) {
                client.machine.shutdown();
            }
            self.dirty.push(id);
        }
    }

    /// Ends all connections now.
    pub(crate) fn cut_all(&mut self, now: Instant) {
        let all: Vec<ConnectionId> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(now, id, &End::Cut));
        self.sockets.cut_all();
    }

    /// Whether nobody is connected and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.sockets.is_empty() && self.work.is_idle()
    }

    /// Bytes that are held for clients that are gone.
    pub(crate) fn outside_bytes(&self) -> usize {
        self.sockets.leaving_bytes() + self.work.orphaned_bytes()
    }

    /// Bytes of the buffers in which clients are received.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.sockets.buffer_bytes()
    }

    pub(crate) fn snapshot(&self) -> NbdSnapshot {
        let mut exports = Vec::new();
        for (place, table) in self.tables.iter().enumerate() {
            for index in (0..table.exports.len() as u16).map(ExportIndex) {
                let (export, behind) = table.export(index);
                let uses = |client: &&Client| client.table == place && client.machine.export() == Some(index);
                exports.push(NbdExportSnapshot {
                    table: place as u32,
                    name: export.name.clone(),
                    nqn: behind.nqn.clone(),
                    namespace: behind.namespace.0,
                    size_bytes: export.size_bytes,
                    read_only: export.read_only,
                    connections: self.clients.values().filter(uses).count() as u64,
                    requests: behind.counters.snapshot(),
                });
            }
        }
        NbdSnapshot {
            listen: self.listen.iter().map(ToString::to_string).collect(),
            connections: self.clients.len() as u64,
            connections_accepted: self.sockets.accepted,
            connections_refused: self.counts.refused,
            handshake_timeouts: self.counts.handshake_timeouts,
            stalled: self.counts.stalled,
            protocol_errors: self.counts.protocol_errors,
            tls_failures: self.counts.tls_failures,
            received_bytes: self.sockets.received_bytes,
            sent_bytes: self.sockets.sent_bytes,
            exports,
        }
    }

    fn on_event(&mut self, now: Instant, event: SocketEvent) {
        match event {
            SocketEvent::Accepted { portal, socket, peer, .. } => self.on_accepted(now, portal, socket, peer),
            // Whoever needs its place asks the sockets.
            SocketEvent::Arrived { .. } => {}
            SocketEvent::Received { connection, chunk } => {
                self.on_received(now, connection, chunk);
            }
            SocketEvent::Sent { connection, .. } => {
                if let Some(client) = self.clients.get_mut(&connection) {
                    let bytes = client.unsent.pop_front().expect("what has left was sent");
                    client.progress_at = now;
                    client.progress.moved(bytes);
                    client.machine.sent(bytes);
                    self.dirty.push(connection);
                }
            }
            SocketEvent::Gone { connection } => self.end(now, connection, &End::Gone),
        }
    }

    fn on_received(&mut self, now: Instant, id: ConnectionId, chunk: Bytes) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.steps_left > 0 && client.machine.stage() == Stage::Handshake {
            (client.stepped_at, client.steps_left) = (now, client.steps_left - 1);
        }
        // Who is to take replies makes no progress by asking for more.
        if client.unsent.is_empty() {
            client.progress.moved(chunk.len());
        }
        self.dirty.push(id);
        let Some(channel) = &mut client.channel else { return client.machine.received(chunk) };
        let plain = channel.received(&chunk);
        // Its own part of a handshake, or why it gives up.
        let answer = channel.outgoing();
        if !answer.is_empty() {
            client.unsent.push_back(0);
            self.sockets.send(id, answer);
        }
        match plain {
            Ok(plain) => client.machine.received(plain),
            Err(reason) => self.end(now, id, &End::Tls(reason)),
        }
    }

    fn on_accepted(&mut self, now: Instant, portal: usize, socket: Socket, peer: String) {
        if self.clients.len() >= self.connections_max && !self.make_room(now, &peer) {
            self.counts.refused += 1;
            return events::no_room(&peer);
        }
        probe(&socket);
        let table = self.portals[portal];
        self.numbered += 1;
        // Unix sockets of clients have no names.
        let peer = if peer == "unix:" { format!("unix client {}", self.numbered) } else { peer };
        let id = ConnectionId(self.numbered);
        let mut machine = self.tables[table].server.connect();
        let memory = ClientMemory::new(&mut machine);
        let client = Client {
            machine,
            channel: None,
            group: Flow::group_of(&peer),
            peer,
            table,
            since: now,
            stepped_at: now,
            steps_left: HANDSHAKE_STEPS,
            asked_at: None,
            unsent: VecDeque::new(),
            progress_at: now,
            progress: Progress::default(),
            is_paused: false,
            memory,
        };
        self.sockets.insert(id, &client.peer, socket);
        self.clients.insert(id, client);
        self.dirty.push(id);
    }

    /// Ends a connection in favour of one from a peer, if there is one that gives way.
    fn make_room(&mut self, now: Instant, peer: &str) -> bool {
        let places = self.clients.iter().map(|(id, client)| Place {
            id: *id,
            address: crowd::address_of(&client.peer),
            is_half_open: client.machine.stage() == Stage::Handshake,
            has_asked: client.asked_at.is_some(),
            is_busy: client.machine.requests_in_flight() > 0,
            waits: self.sockets.has_arrived(*id),
            active_at: client.asked_at.unwrap_or(client.stepped_at),
        });
        let places: Vec<Place<'_, ConnectionId>> = places.collect();
        let newcomer = if peer == "unix:" { "unix" } else { crowd::address_of(peer) };
        let Some(id) = crowd::gives_way(&places, newcomer, now) else { return false };
        let is_half_open = places.iter().any(|place| place.id == id && place.is_half_open);
        self.end(now, id, if is_half_open { &End::Handshake } else { &End::Crowded });
        true
    }

    fn on_reply(&mut self, asker: Asker, kind: RequestKind, bytes: u64, result: Result<Reply, NbdError>) {
        let Some(client) = self.clients.get_mut(&asker.connection) else { return };
        let index = client.machine.export().expect("requests come after an export was chosen");
        let is_well = match &result {
            Ok(Reply::Read(pieces)) => !pieces.iter().any(|piece| matches!(piece, ReadPiece::Failed { .. })),
            Ok(_) => true,
            Err(_) => false,
        };
        self.tables[client.table].exports[usize::from(index.0)].counters.answered(kind, bytes, is_well);
        client.machine.reply(asker.request, result);
        if self.dirty.last() != Some(&asker.connection) {
            self.dirty.push(asker.connection);
        }
    }

    /// Does what a connection's machine wants, as far as there is memory for it.
    fn settle(&mut self, now: Instant, id: ConnectionId, budget: &mut Budget) {
        loop {
            self.settle_machine(now, id);
            let Some(client) = self.clients.get_mut(&id) else { return };
            if !self.memory.divide(id, client, budget) {
                break;
            }
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        let is_paused = !client.machine.wants_bytes();
        if is_paused != client.is_paused {
            client.is_paused = is_paused;
            if is_paused { self.sockets.pause(id) } else { self.sockets.resume(id) }
        }
    }

    fn settle_machine(&mut self, now: Instant, id: ConnectionId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let table = &self.tables[client.table];
        while let Some(effect) = client.machine.poll_effect() {
            match effect {
                Effect::Send(pieces) => {
                    if client.unsent.is_empty() {
                        client.progress_at = now;
                    }
                    client.unsent.push_back(pieces.iter().map(Bytes::len).sum());
                    let pieces = match &mut client.channel {
                        Some(channel) => channel.send(pieces),
                        None => pieces,
                    };
                    self.sockets.send(id, pieces);
                }
                Effect::StartTls => client.channel = table.tls.as_ref().map(Channel::new),
                Effect::Open(index) => {
                    let (export, _) = table.export(index);
                    events::nbd_opened(&client.peer, &export.name, client.machine.is_encrypted());
                }
                Effect::Request(request) => {
                    let index = client.machine.export().expect("requests come after an export was chosen");
                    let (_, behind) = table.export(index);
                    client.asked_at = Some(now);
                    let asker = Asker { connection: id, group: client.group, request: request.id };
                    self.work.begin(behind.device, asker, request.operation);
                }
                Effect::Close(reason) => return self.end(now, id, &End::Closed(reason)),
            }
        }
    }

    /// A connection ends; what is under way for it is nobody's any more.
    fn end(&mut self, now: Instant, id: ConnectionId, end: &End) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.work.abandon(id);
        self.memory.close(std::mem::take(&mut client.memory));
        match end {
            End::Closed(CloseReason::Fault(_)) => self.counts.protocol_errors += 1,
            End::Handshake => self.counts.handshake_timeouts += 1,
            End::Stalled | End::ShortOfMemory => self.counts.stalled += 1,
            End::Tls(_) => self.counts.tls_failures += 1,
            End::Closed(_) | End::Gone | End::Cut | End::Crowded => {}
        }
        events::nbd_closed(&client.peer, client.machine.export().is_some(), end);
        if !matches!(end, End::Gone) {
            if let Some(channel) = &mut client.channel {
                self.sockets.send(id, channel.finish());
            }
            self.sockets.close(now, id, false);
        }
    }
}

/// Has the kernel find out, in the end, that a client's machine is gone. Unix sockets need and take no such thing.
fn probe(socket: &Socket) {
    // Without it the connection stays until the server writes to it.
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, PROBE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(socket, PROBE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, PROBES);
}
