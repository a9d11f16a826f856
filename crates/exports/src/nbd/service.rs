//! The clients of all exports: passes received bytes to their connections, and executes the effects
//! of these.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use rustix::net::sockopt;
use zonda_nbd::{CloseReason, Connection, Effect, ExportIndex, NbdError, ReadPiece, Reply, Stage};
use zonda_ring::{Address, Ring, Socket};
use zonda_target::{Budget, ConnectionId, DeviceKey, Flow, Progress, UnregisteredAccess};
use zonda_zoned::{Completion, Instant, Status};

use super::admission::Admission;
use super::eviction::{self, Slot};
use super::limits::{HANDSHAKE_MAX, HANDSHAKE_STEPS, PROBE_AFTER, PROBE_INTERVAL, PROBES, STALL_MAX, SWEEP_INTERVAL};
use super::listen::{Listener, SocketFile};
use super::memory::{ClientMemory, MemoryQueue};
use super::snapshot::{NbdExportSnapshot, NbdSnapshot};
use super::table::{Table, TableExport};
use super::tls::Channel;
use super::work::{RequestKind, Requester, Work, WorkEffect};
use crate::drives::Drives;
use crate::events;
use crate::log_limit::LogLimit;
use crate::served::Submitter;
use crate::sockets::{SocketEvent, Sockets};

/// The NBD server.
pub(crate) struct Nbd {
    pub(super) sockets: Sockets,
    /// In the order of the configuration.
    pub(super) places: Vec<Place>,
    /// By portal of the sockets; those that were removed leave an empty place.
    pub(super) portals: Vec<Option<Portal>>,
    pub(super) clients: BTreeMap<ConnectionId, Client>,
    /// Connections so far; the id of the last one.
    numbered: u64,
    connections_max: usize,
    /// Clients whose connections may have effects, most of them once: all replies of one iteration
    /// leave in one send.
    pub(super) dirty: Vec<ConnectionId>,
    pub(super) work: Work,
    pub(super) admission: Admission,
    pub(super) memory: MemoryQueue,
    sweep_at: Instant,
    counts: Counts,
    log_limit: LogLimit,
}

/// One `[[nbd]]`.
pub(super) struct Place {
    /// Never reused.
    pub(super) id: u32,
    /// The exports for new connections.
    pub(super) table: Rc<Table>,
}

/// An address on which clients connect.
pub(super) struct Portal {
    pub(super) place: u32,
    pub(super) address: Address,
    /// Removed when no more connections are accepted.
    file: Option<SocketFile>,
}

/// One connection.
pub(super) struct Client {
    pub(super) machine: Connection,
    /// TLS, once started.
    channel: Option<Channel>,
    peer: String,
    /// Of its address.
    group: u64,
    pub(super) place: u32,
    /// The exports when it connected.
    pub(super) table: Rc<Table>,
    since: Instant,
    /// When it last made progress in its handshake.
    stepped_at: Instant,
    steps_left: u8,
    /// When its last request was received.
    asked_at: Option<Instant>,
    /// Sends in progress, and the bytes of the connection in each.
    unsent: VecDeque<usize>,
    /// When the client last received bytes, or bytes were first sent to it.
    progress_at: Instant,
    /// Its progress in receiving replies and in sending announced data.
    progress: Progress,
    is_paused: bool,
    pub(super) memory: ClientMemory,
}

/// Why a connection was closed.
#[derive(Debug)]
pub(crate) enum End {
    /// The protocol requires it.
    Closed(CloseReason),
    /// The client or the network closed it.
    Disconnected,
    /// The server stops, and does not wait for requests in flight any longer.
    Cut,
    /// Its export was removed from the configuration.
    Removed,
    /// No export was chosen in time, or the slot was needed.
    Handshake,
    /// It was idle, and the slot was needed.
    Evicted,
    /// It receives nothing.
    Stalled,
    /// It is too slow, while others wait for the memory that it holds.
    ShortOfMemory,
    /// TLS failed, or its certificate was rejected.
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
            End::Disconnected => f.write_str("the client disconnected"),
            End::Cut => f.write_str("timeout: requests did not complete before the server stopped"),
            End::Removed => f.write_str("the export was removed"),
            End::Handshake => f.write_str("handshake timeout: the client did not select an export"),
            End::Tls(reason) => write!(f, "TLS failed: {reason}"),
            End::Evicted => f.write_str("idle connection closed to free its slot for a new one"),
            End::ShortOfMemory => f.write_str("the client was too slow, while others waited for its memory"),
            End::Stalled => f.write_str("timeout: the client received nothing; check the client and the network"),
        }
    }
}

impl Client {
    /// The export that it has chosen.
    pub(super) fn export(&self) -> Option<&Rc<TableExport>> {
        Some(&self.table.exports[usize::from(self.machine.export()?.0)])
    }

    fn is_removed(&self) -> bool {
        self.export().is_some_and(|export| export.is_removed.get())
    }
}

impl Nbd {
    /// Creates a server of these tables with a limit on connections; each listener belongs to the
    /// table with its index.
    pub(crate) fn new(
        ring: &Ring,
        connections_max: usize,
        tables: Vec<Table>,
        listeners: Vec<(usize, Listener)>,
    ) -> Nbd {
        let mut nbd = Nbd {
            sockets: Sockets::new(ring, Vec::new()),
            places: Vec::new(),
            portals: Vec::new(),
            clients: BTreeMap::new(),
            numbered: 0,
            connections_max,
            dirty: Vec::new(),
            work: Work::default(),
            admission: Admission::default(),
            memory: MemoryQueue::default(),
            sweep_at: Instant::ZERO,
            counts: Counts::default(),
            log_limit: LogLimit::default(),
        };
        for (id, table) in (0..).zip(tables) {
            nbd.add_devices(&table);
            nbd.places.push(Place { id, table: Rc::new(table) });
        }
        listeners.into_iter().for_each(|(table, listener)| nbd.add_listener(table as u32, listener));
        nbd
    }

    pub(super) fn add_devices(&mut self, table: &Table) {
        table.exports.iter().for_each(|export| self.work.add_device(export.device, export.shape));
    }

    pub(super) fn add_listener(&mut self, place: u32, listener: Listener) {
        let portal = self.sockets.add_listener(listener.socket);
        assert_eq!(portal, self.portals.len(), "each listener is a portal");
        self.portals.push(Some(Portal { place, address: listener.address, file: listener.file }));
    }

    /// See [`Sockets::begin_iteration`].
    pub(crate) fn begin_iteration(&mut self, allowance: u64) {
        self.sockets.begin_iteration(allowance);
    }

    /// See [`Sockets::active`].
    pub(crate) fn active(&self) -> u32 {
        self.sockets.active()
    }

    /// Starts accepting connections.
    pub(crate) fn accept(&mut self) {
        self.sockets.accept();
    }

    /// One iteration. Returns whether it made progress.
    pub(crate) fn run_once(&mut self, now: Instant, drives: &mut Drives, budget: &mut Budget) -> bool {
        let mut moved = false;
        loop {
            let mut made_progress = false;
            while let Some(event) = self.sockets.next_event() {
                made_progress = true;
                self.on_event(now, event);
            }
            while let Some(effect) = self.work.poll_effect() {
                made_progress = true;
                match effect {
                    WorkEffect::Submit { device, command, .. }
                        if !self.admission.permits(device, &command.operation) =>
                    {
                        self.log_refusal(device, drives);
                        self.work.on_completion(Completion::of(command.id, Status::ReservationConflict));
                    }
                    WorkEffect::Ask { device, job, .. } if !self.admission.permits_reads(device) => {
                        self.log_refusal(device, drives);
                        self.work.refused(job);
                    }
                    WorkEffect::Submit { device, flow, command } => {
                        drives.submit(now, device, Submitter::Nbd, flow, command);
                    }
                    WorkEffect::Abandon { flow } => drives.abandon(flow),
                    WorkEffect::Ask { device, job, start, most } => {
                        self.work.answered(job, drives.get(device).drive().extent(start, most));
                    }
                    WorkEffect::Reply { requester, kind, bytes, result } => {
                        self.on_reply(requester, kind, bytes, result);
                    }
                }
            }
            for id in std::mem::take(&mut self.dirty) {
                self.process(now, id, budget);
            }
            self.release_closed(budget);
            made_progress |= self.wake_waiting(budget);
            if !made_progress {
                return moved || self.sockets.has_backlog();
            }
            moved = true;
        }
    }

    /// Updates the access of clients under reservations of NVMe hosts, if these have changed.
    pub(crate) fn admit(&mut self, changes: u64, access: impl Fn(DeviceKey) -> UnregisteredAccess) {
        let drives = self.places.iter().flat_map(|place| &place.table.exports).map(|export| export.device);
        self.admission.update(changes, drives, access);
    }

    fn log_refusal(&mut self, device: DeviceKey, drives: &Drives) {
        if self.admission.must_log(device) {
            events::nbd_reservation_conflict(&drives.get(device).source);
        }
    }

    /// A command of an NBD client has completed.
    pub(crate) fn on_completion(&mut self, completion: Completion) {
        self.work.on_completion(completion);
    }

    /// A drive has another size, in bytes. NBD cannot notify clients: a client sees the new size when
    /// it connects again, and until then no request reaches beyond the smaller of the two.
    pub(crate) fn resize(&mut self, device: DeviceKey, size_bytes: u64) {
        self.work.resize_device(device, size_bytes);
        for place in &mut self.places {
            place.table = Rc::new(place.table.resized(device, size_bytes));
        }
    }

    /// Handles expired timeouts.
    pub(crate) fn expire(&mut self, now: Instant, budget: &Budget) {
        self.sockets.expire(now);
        events::suppressed(&mut self.log_limit, now);
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

    /// Stops accepting connections, completes requests in flight, and closes each connection after
    /// its last reply.
    pub(crate) fn drain(&mut self) {
        self.sockets.stop_accepting();
        self.portals.iter_mut().flatten().for_each(|portal| portal.file = None);
        let all: Vec<ConnectionId> = self.clients.keys().copied().collect();
        for id in all {
            if let Some(client) = self.clients.get_mut(&id) {
                client.machine.shutdown();
            }
            self.dirty.push(id);
        }
    }

    /// Closes all connections now.
    pub(crate) fn cut_all(&mut self, now: Instant) {
        let all: Vec<ConnectionId> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(now, id, &End::Cut));
        self.sockets.cut_all();
    }

    /// Whether no client is connected and no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.sockets.is_empty() && self.work.is_idle()
    }

    /// Bytes held for closed connections.
    pub(crate) fn outside_bytes(&self) -> usize {
        self.sockets.closing_bytes() + self.work.orphaned_bytes()
    }

    /// Bytes of receive buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.sockets.buffer_bytes()
    }

    pub(crate) fn snapshot(&self) -> NbdSnapshot {
        let mut exports = Vec::new();
        for (at, Place { table, .. }) in self.places.iter().enumerate() {
            for index in (0..table.exports.len() as u16).map(ExportIndex) {
                let (export, behind) = table.export(index);
                let uses = |client: &&Client| client.export().is_some_and(|export| Rc::ptr_eq(export, behind));
                exports.push(NbdExportSnapshot {
                    table: at as u32,
                    name: export.name.clone(),
                    nqn: behind.nqn.clone(),
                    namespace: behind.namespace.0,
                    size_bytes: export.size_bytes,
                    read_only: export.read_only,
                    connections: self.clients.values().filter(uses).count() as u64,
                    requests: behind.counters.borrow().snapshot(),
                });
            }
        }
        NbdSnapshot {
            listen: self.portals.iter().flatten().map(|portal| portal.address.to_string()).collect(),
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
            // Eviction checks the sockets for queued bytes.
            SocketEvent::Arrived { .. } => {}
            SocketEvent::Received { connection, chunk } => {
                self.on_received(now, connection, chunk);
            }
            SocketEvent::Sent { connection, .. } => {
                if let Some(client) = self.clients.get_mut(&connection) {
                    let bytes = client.unsent.pop_front().expect("the bytes were sent");
                    client.progress_at = now;
                    client.progress.moved(bytes);
                    client.machine.on_sent(bytes);
                    self.dirty.push(connection);
                }
            }
            SocketEvent::Disconnected { connection } => self.end(now, connection, &End::Disconnected),
        }
    }

    fn on_received(&mut self, now: Instant, id: ConnectionId, chunk: Bytes) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.steps_left > 0 && client.machine.stage() == Stage::Handshake {
            (client.stepped_at, client.steps_left) = (now, client.steps_left - 1);
        }
        // A client that has to receive replies makes no progress by sending more requests.
        if client.unsent.is_empty() {
            client.progress.moved(chunk.len());
        }
        self.dirty.push(id);
        let Some(channel) = &mut client.channel else { return client.machine.on_bytes(chunk) };
        let plain = channel.on_bytes(&chunk);
        // TLS's own messages: its handshake, or an alert.
        let answer = channel.outgoing();
        if !answer.is_empty() {
            client.unsent.push_back(0);
            self.sockets.send(id, answer);
        }
        match plain {
            Ok(plain) => client.machine.on_bytes(plain),
            Err(reason) => self.end(now, id, &End::Tls(reason)),
        }
    }

    fn on_accepted(&mut self, now: Instant, portal: usize, socket: Socket, peer: String) {
        let place = self.portals[portal].as_ref().map(|portal| portal.place);
        let Some(place) = self.places.iter().find(|of| Some(of.id) == place) else { return };
        let (place, table) = (place.id, Rc::clone(&place.table));
        if self.clients.len() >= self.connections_max && !self.evict_for(now, &peer) {
            self.counts.refused += 1;
            return events::connection_refused(&peer, &mut self.log_limit, now);
        }
        probe(&socket);
        self.numbered += 1;
        // Clients of Unix sockets have no address.
        let peer = if peer == "unix:" { format!("unix client {}", self.numbered) } else { peer };
        let id = ConnectionId(self.numbered);
        let mut machine = table.server.connect();
        let memory = ClientMemory::new(&mut machine);
        let client = Client {
            machine,
            channel: None,
            group: Flow::group_of(&peer),
            peer,
            place,
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

    /// Evicts a connection for a new one from a peer, if possible.
    fn evict_for(&mut self, now: Instant, peer: &str) -> bool {
        let places = self.clients.iter().map(|(id, client)| Slot {
            id: *id,
            address: eviction::address_of(&client.peer),
            is_half_open: client.machine.stage() == Stage::Handshake,
            has_asked: client.asked_at.is_some(),
            is_busy: client.machine.requests_in_flight() > 0,
            waits: self.sockets.has_arrived(*id),
            active_at: client.asked_at.unwrap_or(client.stepped_at),
        });
        let places: Vec<Slot<'_, ConnectionId>> = places.collect();
        let newcomer = if peer == "unix:" { "unix" } else { eviction::address_of(peer) };
        let Some(id) = eviction::choose_victim(&places, newcomer, now) else { return false };
        let is_half_open = places.iter().any(|place| place.id == id && place.is_half_open);
        self.end(now, id, if is_half_open { &End::Handshake } else { &End::Evicted });
        true
    }

    fn on_reply(&mut self, requester: Requester, kind: RequestKind, bytes: u64, result: Result<Reply, NbdError>) {
        let Some(client) = self.clients.get_mut(&requester.connection) else { return };
        let export = client.export().expect("requests follow the choice of an export");
        let succeeded = match &result {
            Ok(Reply::Read(pieces)) => !pieces.iter().any(|piece| matches!(piece, ReadPiece::Failed { .. })),
            Ok(_) => true,
            Err(_) => false,
        };
        export.counters.borrow_mut().answered(kind, bytes, succeeded);
        client.machine.reply(requester.request, result);
        if self.dirty.last() != Some(&requester.connection) {
            self.dirty.push(requester.connection);
        }
    }

    /// Executes the effects of a connection, within its memory.
    fn process(&mut self, now: Instant, id: ConnectionId, budget: &mut Budget) {
        loop {
            self.process_machine(now, id);
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

    fn process_machine(&mut self, now: Instant, id: ConnectionId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let table = Rc::clone(&client.table);
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
                    let (export, behind) = table.export(index);
                    if behind.is_removed.get() {
                        return self.end(now, id, &End::Removed);
                    }
                    events::nbd_opened(&client.peer, &export.name, client.machine.is_encrypted());
                }
                Effect::Request(request) => {
                    let index = client.machine.export().expect("requests follow the choice of an export");
                    let (_, behind) = table.export(index);
                    client.asked_at = Some(now);
                    let requester = Requester { connection: id, group: client.group, request: request.id };
                    self.work.begin(behind.device, requester, request.operation);
                }
                Effect::Close(CloseReason::Shutdown) if client.is_removed() => return self.end(now, id, &End::Removed),
                Effect::Close(reason) => return self.end(now, id, &End::Closed(reason)),
            }
        }
    }

    /// Closes a connection; its requests in flight are abandoned.
    fn end(&mut self, now: Instant, id: ConnectionId, end: &End) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.work.abandon(id);
        self.memory.close(std::mem::take(&mut client.memory));
        match end {
            End::Closed(CloseReason::Fault(_)) => self.counts.protocol_errors += 1,
            End::Handshake => self.counts.handshake_timeouts += 1,
            End::Stalled | End::ShortOfMemory => self.counts.stalled += 1,
            End::Tls(_) => self.counts.tls_failures += 1,
            End::Closed(_) | End::Disconnected | End::Cut | End::Removed | End::Evicted => {}
        }
        events::nbd_closed(&client.peer, client.machine.export().is_some(), end, &mut self.log_limit, now);
        if !matches!(end, End::Disconnected) {
            if let Some(channel) = &mut client.channel {
                self.sockets.send(id, channel.finish());
            }
            self.sockets.close(now, id, false);
        }
    }
}

/// Enables TCP keepalive, which detects that a client's machine is down. Unix sockets need none.
fn probe(socket: &Socket) {
    // Without it a dead connection stays until the server writes to it.
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, PROBE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(socket, PROBE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, PROBES);
}
