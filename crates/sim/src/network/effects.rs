//! Executes the effects of the state machines: bytes to and from pipes, commands to drives.

use bytes::Bytes;
use zonda_initiator::{Effect as HostEffect, Event as HostEvent, QueueId};
use zonda_target::{ConnectionId, Effect};

use super::bugs::NetworkBug;
use super::link::{Link, Owner};
use super::run::NetworkRun;
use crate::observe::CheckError;

/// How much of a host's first bytes a rogue client can replay: ICReq, and a Connect with its data.
const CAPTURED_BYTES_MAX: usize = 1_224;

impl NetworkRun<'_> {
    /// Executes the effects of all state machines, until there are none left.
    pub(super) fn run_effects(&mut self) -> Result<(), CheckError> {
        loop {
            let mut has_moved = self.target_effects();
            for host in 0..self.hosts.len() {
                has_moved |= self.host_effects(host);
                self.with_host(host, super::host::Host::collect)?;
                has_moved |= self.host_effects(host);
            }
            has_moved |= self.sharing_effects()?;
            has_moved |= self.pump();
            if !has_moved {
                break;
            }
        }
        self.links.retain(|_, link| !link.is_closed());
        Ok(())
    }

    fn target_effects(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(effect) = self.server.target.as_mut().and_then(|target| target.poll_effect()) {
            has_moved = true;
            match effect {
                Effect::Send { connection, pieces } => self.send_down(connection, pieces),
                Effect::Pause { connection } => self.of_connection(connection, |link| link.is_paused = true),
                Effect::Resume { connection } => self.of_connection(connection, |link| link.is_paused = false),
                Effect::Close { connection, reason } => {
                    self.trace.log(self.now, || format!("the target closes connection {connection}: {reason}"));
                    self.of_connection(connection, |link| {
                        link.connection = None;
                        link.is_paused = false;
                        link.down.close();
                    });
                    self.server.connection_lost(self.now);
                }
                Effect::Submit { device, command, .. } => {
                    self.hash.mix(command.id.0 ^ u64::from(device.0) << 56);
                    self.server.submit(self.now, device, command);
                }
                Effect::SaveReservations { bytes, .. } => {
                    let store = self.server.store.as_mut().expect("the target saves reservations of this device only");
                    store.save(self.now, bytes);
                }
                Effect::NamespaceRemoved { .. } => unreachable!("a simulation removes no namespaces"),
                Effect::Authenticate { connection } => {
                    let target = self.server.target.as_mut().expect("its effects are being executed");
                    if let Some(step) = target.auth_step(connection) {
                        target.on_authenticated(self.now, step.run());
                    }
                }
                // A simulation submits commands to devices at once, so that none can be abandoned.
                Effect::Abandon { .. } | Effect::Event(_) => {}
            }
        }
        has_moved
    }

    fn send_down(&mut self, connection: ConnectionId, pieces: Vec<Bytes>) {
        let others =
            self.links.values().filter(|link| link.connection.is_some_and(|other| other != connection)).count();
        if self.bug == Some(NetworkBug::MisdeliveredResponse) && others > 0 && self.bug_prng.chance(1, 60) {
            let bytes = pieces.iter().map(Bytes::len).sum();
            let chosen = self.bug_prng.below(others as u64) as usize;
            let is_other = |link: &&mut Link| link.connection.is_some_and(|other| other != connection);
            let other = self.links.values_mut().filter(is_other).nth(chosen).expect("they were counted");
            other.down.push(pieces);
            other.foreign_bytes += bytes;
            let target = self.server.target.as_mut().expect("it has just sent");
            return target.on_sent(self.now, connection, bytes);
        }
        self.of_connection(connection, |link| link.down.push(pieces));
    }

    fn of_connection(&mut self, connection: ConnectionId, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.values_mut().find(|link| link.connection == Some(connection)) {
            change(link);
        }
    }

    pub(super) fn host_effects(&mut self, host: usize) -> bool {
        let mut has_moved = false;
        while let Some(effect) = self.hosts[host].machine.as_mut().and_then(|machine| machine.poll_effect()) {
            has_moved = true;
            match effect {
                HostEffect::Connect { queue } => {
                    let epoch = self.hosts[host].epoch;
                    let id = self.open_link(Owner::Host { host, queue, epoch });
                    if self.captured_from.is_none() && queue == QueueId::ADMIN {
                        self.captured_from = Some(id);
                    }
                }
                HostEffect::Send { queue, pieces } => {
                    if let Some(link) = self.link_of(host, queue) {
                        link.up.push(pieces);
                    }
                }
                HostEffect::Close { queue } => {
                    if let Some(link) = self.link_of(host, queue) {
                        link.host_closes();
                    }
                }
                HostEffect::Event(HostEvent::Lost(error)) => {
                    self.trace.log(self.now, || format!("host {host}: {error}"));
                }
                HostEffect::Event(_) => {}
            }
        }
        has_moved
    }

    fn link_of(&mut self, host: usize, queue: QueueId) -> Option<&mut Link> {
        let is_it =
            |owner: Owner| matches!(owner, Owner::Host { host: of, queue: its, .. } if of == host && its == queue);
        self.links.values_mut().rev().find(|link| link.host_end && is_it(link.owner))
    }

    /// Moves queued bytes into the pipes.
    fn pump(&mut self) -> bool {
        let mut has_moved = false;
        for link in self.links.values_mut() {
            link.up.pump(self.now);
            let pumped = link.down.pump(self.now);
            let foreign = link.foreign_bytes.min(pumped);
            link.foreign_bytes -= foreign;
            let sent = pumped - foreign;
            if sent == 0 {
                continue;
            }
            if self.bug == Some(NetworkBug::ForgottenSent) && self.bug_prng.chance(1, 30) {
                continue;
            }
            if let (Some(connection), Some(target)) = (link.connection, &mut self.server.target) {
                target.on_sent(self.now, connection, sent);
                has_moved = true;
            }
        }
        has_moved
    }

    pub(super) fn open_link(&mut self, owner: Owner) -> u64 {
        let id = self.next_link;
        self.next_link += 1;
        let shapes =
            *self.pipe_prng.pick(&self.simulation.pipes).expect("a network has at least one kind of connection");
        let link = Link::new(owner, self.now, shapes, &self.simulation.root.fork(&format!("link/{id}")));
        self.links.insert(id, link);
        id
    }

    /// A connection request arrives at the target.
    pub(super) fn link_opens(&mut self, id: u64) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("it is due");
        link.opens_at = None;
        let target = self.server.target.as_mut();
        link.connection = target.and_then(|target| target.on_connect(now, 0, "192.0.2.9:50000"));
        let is_taken = link.connection.is_some();
        if !is_taken {
            link.host_end = false;
        }
        if let Owner::Sharing { host, queue } = link.owner {
            return self.sharing_opened(host, queue, id, is_taken);
        }
        if let Owner::Host { host, queue, .. } = link.owner
            && let Some(machine) = &mut self.hosts[host].machine
        {
            match is_taken {
                true => machine.on_connect(now, queue),
                false => machine.on_disconnect(now, queue, "connection refused"),
            }
        }
    }

    /// Bytes arrive at the target.
    pub(super) fn link_up(&mut self, id: u64) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("it is due");
        if link.up.is_at_end() {
            link.up.take_end();
            return self.target_loses(id);
        }
        let chunk = link.up.read(now);
        self.hash.mix(now.0 ^ id << 48 ^ (chunk.len() as u64) << 1);
        if self.captured_from == Some(id) && self.captured.len() < CAPTURED_BYTES_MAX {
            let missing = CAPTURED_BYTES_MAX - self.captured.len();
            self.captured.extend_from_slice(&chunk[..chunk.len().min(missing)]);
        }
        match (link.connection, &mut self.server.target) {
            (Some(connection), Some(target)) => {
                if !link.host_end {
                    let bytes = chunk.len();
                    self.trace
                        .log(now, || format!("the target receives {bytes} B of a connection that its host has closed"));
                }
                target.on_bytes(now, connection, chunk);
            }
            // A server whose machine is down does not answer.
            (_, None) => {}
            _ => link.answer_to_host(now),
        }
    }

    /// Bytes arrive at the host.
    pub(super) fn link_down(&mut self, id: u64) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("it is due");
        if link.down.is_at_end() {
            link.down.take_end();
            return self.host_loses(id, "closed by the server");
        }
        let chunk = link.down.read(now);
        self.hash.mix(now.0 ^ id << 48 ^ (chunk.len() as u64) << 1 ^ 1);
        match link.owner {
            _ if !link.host_end => link.answer_to_target(now),
            Owner::Host { host, queue, .. } => {
                let machine = self.hosts[host].machine.as_mut().expect("a host with a connection has a state machine");
                machine.on_bytes(now, queue, chunk);
            }
            Owner::Sharing { host, queue } => self.sharing_received(host, queue, id, chunk),
            Owner::Rogue => {}
        }
    }

    /// The target is notified that a connection is lost.
    pub(super) fn target_loses(&mut self, id: u64) {
        let link = self.links.get_mut(&id).expect("it is due");
        link.target_reset_at = None;
        link.down.forget_waiting();
        link.down.close();
        if let (Some(connection), Some(target)) = (link.connection.take(), &mut self.server.target) {
            target.on_disconnect(self.now, connection);
            self.server.connection_lost(self.now);
        }
    }

    /// A host is notified that a connection is lost.
    pub(super) fn host_loses(&mut self, id: u64, reason: &str) {
        let link = self.links.get_mut(&id).expect("it is due");
        link.host_reset_at = None;
        if !std::mem::replace(&mut link.host_end, false) {
            return;
        }
        link.up.forget_waiting();
        link.up.close();
        if let Owner::Sharing { host, queue } = link.owner {
            return self.sharing_loses(host, queue, id);
        }
        if let Owner::Host { host, queue, .. } = link.owner
            && let Some(machine) = &mut self.hosts[host].machine
        {
            machine.on_disconnect(self.now, queue, reason);
        }
    }
}
