//! The test environment of a target: devices, sockets and hosts.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nvme::reservation::SavedReservations;
use zonda_target::{ConnectionId, DeviceHealth, DeviceKey, Effect, Target};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Command, Duration, Instant, PayloadKind, ZoneIndex, ZoneState, ZoneType};

pub(super) use super::exports::{HOSTS, SUBSYSTEMS};
use super::exports::{OUTGOING_BYTES, PERSISTENT_DEVICE, TRANSFER_BYTES, config, geometries};
use super::host::Host;

/// Effects of one event: many times more than the small testbed can cause.
const EFFECTS_MAX: usize = 100_000;
/// Bytes that may wait besides those of the limit: one transfer with its headers, and responses of
/// accepted commands.
const OUTGOING_SLACK_BYTES: usize = 2 * TRANSFER_BYTES as usize + (32 << 10);

/// A connection, and the contents of its socket buffers.
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
    /// Changes of the next bytes that the host writes: offsets and values.
    pub(super) changes: Vec<u8>,
}

pub(super) struct Testbed {
    pub(super) target: Target,
    pub(super) now: Instant,
    pub(super) devices: Vec<ReferenceDevice>,
    pub(super) wires: Vec<Wire>,
    held: VecDeque<(DeviceKey, Command)>,
    /// The device with a save in flight, while `hold` is set.
    saving: Option<DeviceKey>,
    pub(super) hold: bool,
}

impl Testbed {
    pub(super) fn new(seed: [u8; 32]) -> Testbed {
        Testbed {
            target: Target::new(config(seed)).expect("a configuration that can be served"),
            now: Instant(1_000_000),
            devices: geometries().map(|geometry| ReferenceDevice::new(geometry, PayloadKind::Bytes)).into(),
            wires: Vec::new(),
            held: VecDeque::new(),
            saving: None,
            hold: false,
        }
    }

    /// Opens a connection; returns its index.
    pub(super) fn open(&mut self) -> Option<usize> {
        let id = self.target.on_connect(self.now, 0, "192.0.2.9:5000")?;
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
        self.run_until_idle();
        self.wires.iter().position(|wire| wire.id == id)
    }

    /// Runs an action of a host, and sends its output.
    pub(super) fn host(&mut self, wire: usize, action: impl FnOnce(&mut Host)) {
        action(&mut self.wires[wire].host);
        self.run_until_idle();
    }

    /// Sends arbitrary bytes.
    pub(super) fn raw(&mut self, wire: usize, bytes: Vec<u8>) {
        let wire = &mut self.wires[wire];
        wire.host.is_wild = true;
        wire.to_target.push_back(bytes.into());
        self.run_until_idle();
    }

    /// Controller identifiers that hosts have received.
    pub(super) fn controllers(&self) -> Vec<u16> {
        self.wires.iter().map(|wire| wire.host.controller_id).filter(|&id| id != 0).collect()
    }

    pub(super) fn close_socket(&mut self, wire: usize) {
        let wire = self.wires.remove(wire);
        self.target.on_disconnect(self.now, wire.id);
        self.run_until_idle();
    }

    pub(super) fn until_timeout(&self) -> Duration {
        self.target
            .next_timeout()
            .map_or(Duration::ZERO, |due| if due > self.now { due.since(self.now) } else { Duration::ZERO })
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now += span;
        self.target.on_timeout(self.now);
        assert!(self.target.next_timeout().is_none_or(|due| due > self.now), "expired timers were processed");
        self.run_until_idle();
    }

    /// Devices complete commands that they hold, the oldest first or the newest first.
    pub(super) fn release(&mut self, most: usize, newest_first: bool) {
        // A save that had to wait for another is requested at once.
        for _ in 0..=most {
            let Some(device) = self.saving.take() else { break };
            self.target.on_reservations_saved(self.now, device, !newest_first);
            self.run_until_idle();
        }
        for _ in 0..most.min(self.held.len()) {
            let next = if newest_first { self.held.pop_back() } else { self.held.pop_front() };
            let Some((device, command)) = next else { break };
            self.complete(device, &command);
            self.run_until_idle();
        }
    }

    pub(super) fn zones_changed(&mut self, device: usize) {
        self.target.on_zones_changed(self.now, DeviceKey(device as u32));
        self.run_until_idle();
    }

    pub(super) fn namespace_changed(&mut self, device: usize) {
        self.target.on_namespace_changed(self.now, DeviceKey(device as u32));
        self.run_until_idle();
    }

    pub(super) fn set_health(&mut self, device: usize, health: DeviceHealth) {
        self.target.set_health(self.now, DeviceKey(device as u32), health);
        self.run_until_idle();
    }

    pub(super) fn degrade(&mut self, device: usize, zone: ZoneIndex, state: ZoneState) {
        if geometries()[device].zone_type(zone) == ZoneType::SequentialWriteRequired {
            self.devices[device].degrade(zone, state);
            self.zones_changed(device);
        }
    }

    pub(super) fn drain(&mut self) {
        self.target.shutdown(self.now);
        self.run_until_idle();
    }

    /// The host reads so many of its unread bytes.
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
        self.target.on_sent(self.now, id, read);
        self.run_until_idle();
    }

    /// Executes all effects of target and hosts until there are none left.
    fn run_until_idle(&mut self) {
        let mut effects = 0;
        loop {
            self.target.check_invariants();
            while let Some(effect) = self.target.poll_effect() {
                effects += 1;
                assert!(effects < EFFECTS_MAX, "the number of effects is bounded");
                self.execute_effect(effect);
            }
            self.target.check_invariants();
            if !self.deliver() {
                break;
            }
        }
        self.wires.retain(|wire| !wire.closed);
    }

    /// Delivers the output of the first host that the target reads from; returns whether there was
    /// any.
    fn deliver(&mut self) -> bool {
        for wire in self.wires.iter_mut().filter(|wire| !wire.closed) {
            wire.collect();
            if !wire.paused
                && let Some(chunk) = wire.to_target.pop_front()
            {
                self.target.on_bytes(self.now, wire.id, chunk);
                return true;
            }
        }
        false
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send { connection, pieces } => {
                let Some(wire) = self.wire_of(connection) else { return };
                assert!(!wire.closed, "nothing is sent after Close");
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                assert!(bytes > 0, "a Send is not empty");
                if wire.frozen {
                    wire.to_host.extend(pieces);
                    let unread: usize = wire.to_host.iter().map(Bytes::len).sum();
                    assert!(unread <= OUTGOING_BYTES + OUTGOING_SLACK_BYTES, "{unread} bytes wait for a host");
                } else {
                    wire.host.read(std::mem::take(&mut wire.to_host).into());
                    wire.host.read(pieces);
                    self.target.on_sent(self.now, connection, bytes);
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
            Effect::SaveReservations { device, bytes } => {
                assert!(
                    device == PERSISTENT_DEVICE && self.saving.is_none(),
                    "only the persistent device has saves, one at a time"
                );
                assert!(
                    bytes.is_empty() || SavedReservations::read(&bytes).is_ok(),
                    "saved reservations can be parsed"
                );
                if self.hold {
                    self.saving = Some(device);
                } else {
                    self.target.on_reservations_saved(self.now, device, true);
                }
            }
            Effect::Authenticate { connection } => {
                if let Some(step) = self.target.auth_step(connection) {
                    self.target.on_authenticated(self.now, step.run());
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
            Effect::NamespaceRemoved { .. } => unreachable!("no namespace is removed"),
        }
    }

    fn wire_of(&mut self, id: ConnectionId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    fn complete(&mut self, device: DeviceKey, command: &Command) {
        let completion = self.devices[device.0 as usize].execute(command);
        self.target.on_completion(self.now, device, completion);
    }
}

impl Wire {
    /// Takes the output of the host, with the changes that are due, in one chunk or several.
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
                // The stream is split, too.
                let rest = Bytes::from(bytes.split_off(offset));
                self.to_target.push_back(bytes.into());
                bytes = rest.to_vec();
            }
            self.to_target.push_back(bytes.into());
        }
    }
}
