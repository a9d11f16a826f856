//! The event loop of one server: sockets on one side, drives on the other, the target between them.
//!
//! One thread owns everything here. An iteration dispatches completions of the ring, executes the
//! effects of the target, and polls the drives, until there is nothing left to do; then the ring
//! sleeps.

use std::sync::mpsc::{Receiver, TryRecvError};

use zonda_ring::{Ring, RingOptions};
use zonda_target::{CloseReason, DeviceKey, Effect, Target};
use zonda_zoned::{Completion, CompletionQueue, Duration, Instant};

use crate::apply::Applier;
use crate::auth_pool::AuthPool;
use crate::config::ServerPlan;
use crate::control::{Handle, Request};
use crate::drives::Drives;
use crate::log_limit::LogLimit;
use crate::nbd::{Candidate, Nbd};
use crate::report::{Facts, ZoneMaps};
use crate::served::{Pace, Submitter};
use crate::sockets::{SocketEvent, Sockets};
use crate::start::{Parts, ServeError};
use crate::{events, report, resize};

/// How long outstanding commands may take after a stop request, before connections are closed.
const DRAIN_MAX: Duration = Duration(10_000_000_000);
/// How long the drives may take to close.
pub(crate) const CLOSE_MAX: Duration = Duration(60_000_000_000);
/// How often the health of the drives is reported to the target.
const HEALTH_INTERVAL: Duration = Duration(1_000_000_000);
/// The remedy if the event loop fails.
const LOOP_FAILED: &str = "check the limits of this process (ulimit -a), and start the server again; no acknowledged write is lost: the \
                           drives are recovered when they are next opened";

/// The phase of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No new connections are accepted; the deadline for outstanding commands.
    Draining(Instant),
    /// No host is connected any more; the drives make their data durable. The deadline for that.
    Closing(Instant),
}

/// A server, running in its own thread.
pub(crate) struct Server {
    ring: Ring,
    target: Target,
    sockets: Sockets,
    nbd: Option<Nbd>,
    candidates: Vec<Candidate>,
    drives: Drives,
    /// Drives of removed namespaces that NBD clients still use.
    retiring: Vec<DeviceKey>,
    auth: AuthPool,
    requests: Receiver<Request>,
    facts: Facts,
    /// What it serves.
    plan: ServerPlan,
    phase: Phase,
    health_at: Instant,
    pace: Pace,
    /// When the last iteration began, if the loop did not sleep since.
    began: Option<Instant>,
    log_limit: LogLimit,
    /// Reused in every iteration.
    completions: CompletionQueue,
}

impl Server {
    pub(crate) fn new(parts: Parts, plan: ServerPlan, requests: Receiver<Request>, facts: Facts) -> Server {
        let Parts { ring, target, sockets, nbd, candidates, drives, auth } = parts;
        Server {
            ring,
            target,
            sockets,
            nbd,
            candidates,
            drives,
            retiring: Vec::new(),
            auth,
            requests,
            facts,
            plan,
            phase: Phase::Serving,
            health_at: Instant::ZERO,
            pace: Pace::default(),
            began: None,
            log_limit: LogLimit::default(),
            completions: CompletionQueue::new(),
        }
    }

    /// Serves until a stop is requested.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        self.sockets.accept();
        if let Some(nbd) = &mut self.nbd {
            nbd.accept();
        }
        loop {
            let now = self.ring.now();
            // The time includes system calls, which copy what is sent and received.
            self.begin_iteration(self.began.map_or(Duration::ZERO, |began| now.since(began)));
            self.on_requests(now);
            let moved = self.run_once(now);
            self.began = moved.then_some(now);
            if self.step(now)? {
                return Ok(());
            }
            let until = if moved { Some(now) } else { self.next_timeout() };
            self.ring
                .run_once(until)
                .map_err(|error| ServeError::new(format!("the event loop failed: {error}"), LOOP_FAILED))?;
        }
    }

    /// Sets the allowance of the next iteration, from the duration of the last one.
    fn begin_iteration(&mut self, took: Duration) {
        let active = self.sockets.active() + self.nbd.as_ref().map_or(0, Nbd::active);
        let allowance = self.pace.next(took, active > 1);
        self.sockets.begin_iteration(allowance);
        if let Some(nbd) = &mut self.nbd {
            nbd.begin_iteration(allowance);
        }
        self.drives.begin_iteration(allowance);
    }

    /// One iteration. Returns whether it made progress, or work is left.
    fn run_once(&mut self, now: Instant) -> bool {
        let mut moved = self.sockets.has_backlog();
        while let Some(event) = self.sockets.next_event() {
            moved = true;
            match event {
                SocketEvent::Accepted { portal, socket, local, peer } => {
                    match self.target.on_connect(now, portal, &peer) {
                        Some(connection) => {
                            self.target.on_local_address(connection, &local);
                            self.sockets.insert(connection, &peer, socket);
                        }
                        None => events::connection_refused(&peer, &mut self.log_limit, now),
                    }
                }
                SocketEvent::Arrived { connection } => self.target.on_arrival(connection),
                SocketEvent::Received { connection, chunk } => {
                    let (bytes, commands) = (chunk.len(), self.target.commands_received());
                    self.target.on_bytes(now, connection, chunk);
                    self.sockets.note_commands(connection, bytes, self.target.commands_received() - commands);
                }
                SocketEvent::Sent { connection, bytes } => self.target.on_sent(now, connection, bytes),
                SocketEvent::Disconnected { connection } => self.target.on_disconnect(now, connection),
            }
        }
        while let Some(ended) = self.auth.next() {
            moved = true;
            self.target.on_authenticated(now, ended);
        }
        if self.target.next_timeout().is_some_and(|at| at <= now) {
            self.target.on_timeout(now);
        }
        moved |= self.on_effects(now);
        let mut on_completed = |device, submitter, completion: Completion| match (submitter, &mut self.nbd) {
            (Submitter::Target, _) => self.target.on_completion(now, device, completion),
            (Submitter::Nbd, Some(nbd)) => nbd.on_completion(completion),
            (Submitter::Nbd, None) => unreachable!("no NBD server is configured"),
        };
        moved |= self.drives.poll(now, &mut self.completions, &mut on_completed);
        while let Some((device, geometry)) = self.drives.next_resized() {
            resize::resize(now, &mut self.target, self.nbd.as_mut(), &self.drives, device, &geometry);
        }
        while let Some((device, saved)) = self.drives.next_saved() {
            self.target.on_reservations_saved(now, device, saved);
        }
        moved |= self.on_effects(now);
        // Memory released by NVMe/TCP and NBD is available to both.
        let outside = self.sockets.closing_bytes() + self.nbd.as_ref().map_or(0, Nbd::outside_bytes);
        // Registered buffers hold data that is also held for a connection, but do not shrink when they are
        // free.
        let outside = outside + self.ring.registered_bytes();
        self.target.budget_mut().set_outside(outside);
        self.target.resume(now);
        moved | self.on_effects(now)
    }

    fn on_effects(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(effect) = self.target.poll_effect() {
            moved = true;
            match effect {
                Effect::Send { connection, pieces } => self.sockets.send(connection, pieces),
                Effect::Pause { connection } => self.sockets.pause(connection),
                Effect::Resume { connection } => self.sockets.resume(connection),
                Effect::Close { connection, reason } => {
                    events::closed(&reason);
                    self.sockets.close(now, connection, reason == CloseReason::Draining);
                }
                Effect::Submit { device, flow, command } => {
                    self.drives.submit(now, device, Submitter::Target, flow, command);
                }
                Effect::Abandon { flow } => self.drives.abandon(flow),
                Effect::SaveReservations { device, bytes } => self.drives.save_reservations(now, device, bytes),
                Effect::NamespaceRemoved { device, .. } => self.retiring.push(device),
                Effect::Authenticate { connection } => {
                    if let Some(step) = self.target.auth_step(connection) {
                        self.auth.begin(step);
                    }
                }
                Effect::Event(event) => events::log(&event, &mut self.log_limit, now),
            }
        }
        if let Some(nbd) = &mut self.nbd {
            let target = &self.target;
            nbd.admit(target.reservation_changes(), |device| target.unregistered_access(device));
            moved |= nbd.run_once(now, &mut self.drives, self.target.budget_mut());
        }
        moved
    }

    fn on_requests(&mut self, now: Instant) {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Snapshot(zones, answer)) => {
                    let nbd = self.nbd.as_ref();
                    let mut snapshot =
                        report::snapshot(now, &self.facts, &self.ring, &self.target, &self.sockets, nbd, &self.drives);
                    if zones == ZoneMaps::Included {
                        report::add_zone_maps(&mut snapshot, &self.facts, &self.drives);
                    }
                    // The requester may have timed out.
                    let _ = answer.send(snapshot);
                }
                Ok(Request::Volume(volume, request, answer)) => {
                    self.drives.ask(&volume, &request, answer, &self.ring);
                }
                Ok(Request::Pool(pool, request, answer)) => self.drives.ask_pool(now, &pool, &request, answer),
                Ok(Request::Reload(plan, answer)) => {
                    // The requester may have timed out.
                    let _ = answer.send(self.reload(now, *plan));
                }
                Ok(Request::SetConfiguration(configuration)) => self.facts.configuration = Some(configuration),
                Ok(Request::Stop) => self.stop(now),
                Err(TryRecvError::Empty) => return,
                // All handles were dropped, so no stop can be requested any more.
                Err(TryRecvError::Disconnected) => return self.stop(now),
            }
        }
    }

    /// Changes to another plan. Returns the changes as text.
    fn reload(&mut self, now: Instant, plan: ServerPlan) -> Result<Vec<String>, ServeError> {
        if self.phase != Phase::Serving {
            return Err(ServeError::new("the server is stopping", "start it again with the new configuration"));
        }
        let mut applier = Applier {
            ring: &self.ring,
            target: &mut self.target,
            drives: &mut self.drives,
            layout: &mut self.facts.layout,
            candidates: &mut self.candidates,
            nbd: self.nbd.as_mut(),
        };
        let lines = applier.apply(now, &self.plan, &plan)?;
        self.plan = plan;
        Ok(lines)
    }

    /// Begins to close drives whose namespaces were removed, after the requests of NBD clients.
    fn retire_unused(&mut self) {
        let (nbd, drives) = (&mut self.nbd, &mut self.drives);
        self.retiring.retain(|device| {
            let is_used = nbd.as_ref().is_some_and(|nbd| nbd.uses(*device));
            if !is_used {
                nbd.iter_mut().for_each(|nbd| nbd.forget(*device));
                drives.retire(*device);
            }
            is_used
        });
    }

    fn stop(&mut self, now: Instant) {
        if self.phase == Phase::Serving {
            self.sockets.stop_accepting();
            self.target.shutdown(now);
            if let Some(nbd) = &mut self.nbd {
                nbd.drain();
            }
            self.phase = Phase::Draining(now + DRAIN_MAX);
        }
    }

    /// Handles timeouts and the shutdown. Returns true when the server has stopped.
    fn step(&mut self, now: Instant) -> Result<bool, ServeError> {
        self.sockets.expire(now);
        events::suppressed(&mut self.log_limit, now);
        self.drives.log_notices();
        self.drives.answer();
        self.drives.answer_pools();
        self.retire_unused();
        self.drives.advance_retired(now);
        if let Some(nbd) = &mut self.nbd {
            nbd.expire(now, self.target.budget_mut());
        }
        if now >= self.health_at {
            self.health_at = now + HEALTH_INTERVAL;
            self.drives.report_health(now, &mut self.target);
        }
        match self.phase {
            Phase::Serving => Ok(false),
            Phase::Draining(until) => {
                if now >= until {
                    self.sockets.cut_all();
                    self.nbd.iter_mut().for_each(|nbd| nbd.cut_all(now));
                }
                let are_hosts_gone = self.sockets.is_empty() && self.nbd.as_ref().is_none_or(Nbd::is_idle);
                let is_quiescent = are_hosts_gone && self.drives.is_idle();
                if is_quiescent || now >= until {
                    // No host is connected any more; a volume may hold commands that never end.
                    self.drives.advance_close(now);
                    self.phase = Phase::Closing(now + CLOSE_MAX);
                }
                Ok(false)
            }
            Phase::Closing(until) => {
                if now >= until {
                    return Err(ServeError::new(
                        "timeout: the drives did not close",
                        "no acknowledged write is lost: the drives are recovered when they are next opened",
                    ));
                }
                self.drives.advance_close(now);
                if !self.drives.are_closed() {
                    return Ok(false);
                }
                self.drives.log_notices();
                match self.drives.log_close_errors() {
                    None => Ok(true),
                    Some(sources) => Err(ServeError::new(
                        format!("the last flush failed: {sources}: writes since the previous flush may be lost"),
                        "see the log for the reason, and check the drives: zonda drive check, zonda volume scrub",
                    )),
                }
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Serving => None,
            Phase::Draining(until) | Phase::Closing(until) => Some(until),
        };
        let nbd = self.nbd.as_ref().and_then(Nbd::next_timeout);
        let timeouts =
            [phase, self.target.next_timeout(), self.drives.next_timeout(), self.sockets.next_timeout(), nbd];
        timeouts.into_iter().flatten().chain([self.health_at]).min()
    }
}

/// Creates the ring of a server.
pub(crate) fn ring(epoll: bool, spin: Duration, registered_bytes: usize) -> Result<Ring, ServeError> {
    let backend = epoll.then_some(zonda_ring::Backend::Epoll);
    Ring::new(RingOptions { backend, spin, registered_bytes, ..RingOptions::default() }).map_err(|error| {
        ServeError::new(format!("cannot create the event loop: {error}"), "raise the limit of open files (ulimit -n)")
    })
}

/// Creates a handle for a server with this ring, and the channel of its requests.
pub(crate) fn handle(ring: &Ring) -> (Handle, Receiver<Request>) {
    Handle::new(ring.waker())
}
