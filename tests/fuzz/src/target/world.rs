//! The world around a target: devices, sockets and hosts.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nvme::reservation::SavedReservations;
use zonda_target::{ConnectionId, DeviceHealth, DeviceKey, Effect, Target};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Command, Duration, Instant, PayloadKind, ZoneIndex, ZoneState, ZoneType};

use super::host::Host;
pub(super) use super::place::{HOSTS, SUBSYSTEMS};
use super::place::{KEEPER, OUTGOING_BYTES, TRANSFER_BYTES, config, geometries};

/// Effects of one event: many times what the small world can want.
const EFFECTS_MAX: usize = 100_000;
/// Bytes that may wait beside those of the limit: one transfer with its headers, and answers of commands that were taken.
const OUTGOING_SLACK_BYTES: usize = 2 * TRANSFER_BYTES as usize + (32 << 10);

/// A connection, and what lies in its sockets.
pub(super) struct Wire {
    pub(super) id: ConnectionId,
    pub(super) host: Host,
    /// Written by the host, not read by the target, which has paused.
    to_target: VecDeque<Bytes>,
    /// Sent by the target, not read by the host.
    to_host: VecDeque<Bytes>,
    pub(super) frozen: bool,
    paused: bool,
    closed: bool,
    /// Offset and value, and so on, for the next bytes that the host writes.
    pub(super) changes: Vec<u8>,
}

pub(super) struct World {
    pub(super) target: Target,
    pub(super) now: Instant,
    pub(super) devices: Vec<ReferenceDevice>,
    pub(super) wires: Vec<Wire>,
    held: VecDeque<(DeviceKey, Command)>,
    /// A device is keeping reservations, while `hold`.
    keeping: Option<DeviceKey>,
    pub(super) hold: bool,
}

impl World {
    pub(super) fn new(seed: [u8; 32]) -> World {
        World {
            target: Target::new(config(seed)).expect("a configuration that can be served"),
            now: Instant(1_000_000),
            devices: geometries().map(|geometry| ReferenceDevice::new(geometry, PayloadKind::Bytes)).into(),
            wires: Vec::new(),
            held: VecDeque::new(),
            keeping: None,
            hold: false,
        }
    }

    /// A new connection; its place.
    pub(super) fn open(&mut self) -> Option<usize> {
        let id = self.target.connected(self.now, 0, "192.0.2.9:5000")?;
        self.wires.push(Wire {
            id,
            host: Host::new(),
            to_target: VecDeque::new(),
            to_host: VecDeque::new(),
            frozen: false,
            paused: false,
            closed: false,
            changes: Vec::new(),
        });
        self.settle();
        self.wires.iter().position(|wire| wire.id == id)
    }

    /// A host does something, and what it writes is sent.
    pub(super) fn host(&mut self, wire: usize, deed: impl FnOnce(&mut Host)) {
        deed(&mut self.wires[wire].host);
        self.settle();
    }

    /// Bytes that no host should send.
    pub(super) fn raw(&mut self, wire: usize, bytes: Vec<u8>) {
        let wire = &mut self.wires[wire];
        wire.host.is_wild = true;
        wire.to_target.push_back(bytes.into());
        self.settle();
    }

    /// Identifiers of the controllers that hosts were told of.
    pub(super) fn controllers(&self) -> Vec<u16> {
        self.wires.iter().map(|wire| wire.host.controller_id).filter(|&id| id != 0).collect()
    }

    pub(super) fn vanish(&mut self, wire: usize) {
        let wire = self.wires.remove(wire);
        self.target.disconnected(self.now, wire.id);
        self.settle();
    }

    pub(super) fn until_timeout(&self) -> Duration {
        self.target
            .next_timeout()
            .map_or(Duration::ZERO, |due| if due > self.now { due.since(self.now) } else { Duration::ZERO })
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now += span;
        self.target.timeout(self.now);
        assert!(self.target.next_timeout().is_none_or(|due| due > self.now), "what was due has been done");
        self.settle();
    }

    /// Devices complete commands that they have held back, the oldest first or the newest first.
    pub(super) fn release(&mut self, most: usize, newest_first: bool) {
        // What is kept while something else was waiting comes at once.
        for _ in 0..=most {
            let Some(device) = self.keeping.take() else { break };
            self.target.reservations_kept(self.now, device, !newest_first);
            self.settle();
        }
        for _ in 0..most.min(self.held.len()) {
            let next = if newest_first { self.held.pop_back() } else { self.held.pop_front() };
            let Some((device, command)) = next else { break };
            self.complete(device, &command);
            self.settle();
        }
    }

    pub(super) fn zones_changed(&mut self, device: usize) {
        self.target.zones_changed(self.now, DeviceKey(device as u32));
        self.settle();
    }

    pub(super) fn namespace_changed(&mut self, device: usize) {
        self.target.namespace_changed(self.now, DeviceKey(device as u32));
        self.settle();
    }

    pub(super) fn set_health(&mut self, device: usize, health: DeviceHealth) {
        self.target.set_health(self.now, DeviceKey(device as u32), health);
        self.settle();
    }

    pub(super) fn degrade(&mut self, device: usize, zone: ZoneIndex, state: ZoneState) {
        if geometries()[device].zone_type(zone) == ZoneType::SequentialWriteRequired {
            self.devices[device].degrade(zone, state);
            self.zones_changed(device);
        }
    }

    pub(super) fn drain(&mut self) {
        self.target.drain(self.now);
        self.settle();
    }

    /// The host reads so many bytes of what it has left unread.
    pub(super) fn thaw(&mut self, wire: usize, bytes: usize) {
        let at = &mut self.wires[wire];
        at.frozen = bytes != usize::MAX;
        let id = at.id;
        let mut read = 0;
        while read < bytes
            && let Some(mut piece) = at.to_host.pop_front()
        {
            if piece.len() > bytes - read {
                at.to_host.push_front(piece.split_off(bytes - read));
            }
            read += piece.len();
            at.host.read(vec![piece]);
        }
        self.target.sent(self.now, id, read);
        self.settle();
    }

    /// Carries everything to where it goes, until nobody wants anything more.
    fn settle(&mut self) {
        let mut effects = 0;
        loop {
            self.target.check_invariants();
            while let Some(effect) = self.target.poll_effect() {
                effects += 1;
                assert!(effects < EFFECTS_MAX, "the target comes to rest");
                self.carry_out(effect);
            }
            self.target.check_invariants();
            if !self.deliver() {
                break;
            }
        }
        self.wires.retain(|wire| !wire.closed);
    }

    /// Brings the target what the first host has written that it reads from; says whether there was any.
    fn deliver(&mut self) -> bool {
        for wire in self.wires.iter_mut().filter(|wire| !wire.closed) {
            wire.collect();
            if !wire.paused
                && let Some(chunk) = wire.to_target.pop_front()
            {
                self.target.received(self.now, wire.id, chunk);
                return true;
            }
        }
        false
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { connection, pieces } => {
                let Some(wire) = self.wire_of(connection) else { return };
                assert!(!wire.closed, "nothing is sent after the end");
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                assert!(bytes > 0, "something is sent");
                if wire.frozen {
                    wire.to_host.extend(pieces);
                    let unread: usize = wire.to_host.iter().map(Bytes::len).sum();
                    assert!(unread <= OUTGOING_BYTES + OUTGOING_SLACK_BYTES, "{unread} bytes wait for a host");
                } else {
                    wire.host.read(std::mem::take(&mut wire.to_host).into());
                    wire.host.read(pieces);
                    self.target.sent(self.now, connection, bytes);
                }
            }
            Effect::Pause { connection } => {
                if let Some(wire) = self.wire_of(connection) {
                    assert!(!std::mem::replace(&mut wire.paused, true), "paused once");
                }
            }
            Effect::Resume { connection } => {
                if let Some(wire) = self.wire_of(connection) {
                    assert!(std::mem::replace(&mut wire.paused, false), "resumed after a pause");
                }
            }
            Effect::Close { connection, .. } => {
                if let Some(wire) = self.wire_of(connection) {
                    assert!(!std::mem::replace(&mut wire.closed, true), "closed once");
                }
            }
            Effect::KeepReservations { device, bytes } => {
                assert!(device == KEEPER && self.keeping.is_none(), "one device is asked, once at a time");
                assert!(bytes.is_empty() || SavedReservations::read(&bytes).is_ok(), "what is kept can be read");
                if self.hold {
                    self.keeping = Some(device);
                } else {
                    self.target.reservations_kept(self.now, device, true);
                }
            }
            Effect::Authenticate { connection } => {
                if let Some(step) = self.target.auth_step(connection) {
                    self.target.authenticated(self.now, step.run());
                }
            }
            Effect::Submit { device, command, .. } => {
                if self.hold {
                    self.held.push_back((device, command));
                } else {
                    self.complete(device, &command);
                }
            }
            Effect::Abandon { .. } => {}
            Effect::Event(event) => assert!(!event.to_string().is_empty()),
        }
    }

    fn wire_of(&mut self, id: ConnectionId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    fn complete(&mut self, device: DeviceKey, command: &Command) {
        let completion = self.devices[device.0 as usize].execute(command);
        self.target.completed(self.now, device, completion);
    }
}

impl Wire {
    /// Takes what the host has written, with the changes that are due, in one chunk or several.
    fn collect(&mut self) {
        for piece in self.host.writer.take() {
            if self.changes.is_empty() {
                self.to_target.push_back(piece);
                continue;
            }
            self.host.is_wild = true;
            let mut bytes = piece.to_vec();
            for change in std::mem::take(&mut self.changes).chunks_exact(3) {
                let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
                bytes[offset] = change[2];
                // The stream comes in pieces, too.
                let rest = Bytes::from(bytes.split_off(offset));
                self.to_target.push_back(bytes.into());
                bytes = rest.to_vec();
            }
            self.to_target.push_back(bytes.into());
        }
    }
}
