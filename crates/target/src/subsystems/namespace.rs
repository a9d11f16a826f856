//! A namespace of a subsystem, as the target serves it.
//!
//! Commands, saves and reservation requests refer to a namespace by its [`NamespaceIndex`]. A
//! removed namespace stays in the table until the last of them has completed, and its index is
//! never used again: a namespace that is added meanwhile has another one, even if its identifier is
//! the same.

use std::collections::VecDeque;

use zonda_nvme::io::NamespaceFormat;
use zonda_zoned::{Geometry, NamespaceId};

use super::SubsystemIndex;
use crate::connection::TransferTag;
use crate::controller::ControllerKey;
use crate::effects::ConnectionId;
use crate::health::DeviceHealth;
use crate::reservations::{Persistence, Reservations};
use crate::slots::{OwnedKey, slot_key};
use crate::statistics::NamespaceStatistics;
use crate::{DeviceKey, NamespaceConfig};

slot_key! {
    /// Index of a namespace in the target's table.
    NamespaceIndex
}

impl OwnedKey for NamespaceIndex {}

/// One namespace of one subsystem.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(super) subsystem: SubsystemIndex,
    /// The same as in the configuration, as long as it is not removed.
    pub(super) config: NamespaceConfig,
    pub(super) format: NamespaceFormat,
    pub(super) is_write_protected: bool,
    pub(super) reservations: Reservations,
    pub(crate) persistence: Persistence,
    /// A read of the device's changed zones is in flight.
    pub(crate) is_surveyed: bool,
    pub(super) health: DeviceHealth,
    pub(crate) statistics: NamespaceStatistics,
    phase: NamespacePhase,
    /// Commands at the device.
    commands_at_device: usize,
    /// While it is paused: requests that wait, in order of arrival, by connection and tag.
    pub(super) held: VecDeque<(ConnectionId, TransferTag)>,
    /// While it is paused: controllers whose shutdown waits for a flush, each once.
    pub(super) held_shutdowns: Vec<ControllerKey>,
}

/// Whether a namespace accepts commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamespacePhase {
    /// It does.
    Active,
    /// Commands wait until it is resumed.
    Paused,
    /// It was removed: no host can name it any more.
    Removed,
}

impl Namespace {
    pub(super) fn new(
        subsystem: SubsystemIndex,
        config: NamespaceConfig,
        format: NamespaceFormat,
        restored: (Reservations, Persistence),
    ) -> Namespace {
        let (reservations, persistence) = restored;
        Namespace {
            subsystem,
            config,
            format,
            is_write_protected: false,
            reservations,
            persistence,
            is_surveyed: false,
            health: DeviceHealth::default(),
            statistics: NamespaceStatistics::default(),
            phase: NamespacePhase::Active,
            commands_at_device: 0,
            held: VecDeque::new(),
            held_shutdowns: Vec::new(),
        }
    }

    pub(crate) fn subsystem(&self) -> SubsystemIndex {
        self.subsystem
    }

    /// The same as in the configuration, as long as it is not removed.
    #[inline]
    pub(crate) fn config(&self) -> &NamespaceConfig {
        &self.config
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    #[inline]
    pub(crate) fn format(&self) -> &NamespaceFormat {
        &self.format
    }

    #[inline]
    pub(crate) fn is_write_protected(&self) -> bool {
        self.is_write_protected
    }

    #[inline]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(crate) fn health(&self) -> &DeviceHealth {
        &self.health
    }

    /// Its identifier in the subsystem.
    pub(crate) fn id(&self) -> NamespaceId {
        self.config.id
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.phase == NamespacePhase::Paused
    }

    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        self.phase == NamespacePhase::Removed
    }

    /// Whether a device has this namespace, and it was not removed.
    pub(crate) fn is_served_by(&self, device: DeviceKey) -> bool {
        self.config.device == device && !self.is_removed()
    }

    /// Whether a reservation command can take effect now: the device is saving no earlier one, and
    /// the namespace is not paused.
    pub(crate) fn may_change_reservations(&self) -> bool {
        !self.is_paused() && !self.persistence.is_saving()
    }

    /// Whether its device has a command or a save of it.
    pub(crate) fn is_at_device(&self) -> bool {
        self.commands_at_device > 0 || self.persistence.is_saving()
    }

    /// Lets commands wait.
    pub(crate) fn pause(&mut self) {
        assert!(!self.is_removed(), "hosts cannot name a removed namespace, and nothing resumes it");
        self.phase = NamespacePhase::Paused;
    }

    /// Accepts commands; returns those that have waited, and controllers whose shutdown has.
    pub(crate) fn resume(&mut self) -> (VecDeque<(ConnectionId, TransferTag)>, Vec<ControllerKey>) {
        assert!(!self.is_removed(), "hosts cannot name a removed namespace, and nothing resumes it");
        self.phase = NamespacePhase::Active;
        (std::mem::take(&mut self.held), std::mem::take(&mut self.held_shutdowns))
    }

    /// Accepts no commands any more; returns the controllers whose shutdown waited. The requests
    /// that waited are ended by their connections.
    pub(super) fn remove(&mut self) -> Vec<ControllerKey> {
        assert!(!self.is_removed(), "a namespace is removed once");
        self.phase = NamespacePhase::Removed;
        self.held.clear();
        std::mem::take(&mut self.held_shutdowns)
    }

    /// Lets a request wait until the pause ends.
    pub(crate) fn hold(&mut self, connection: ConnectionId, tag: TransferTag) {
        assert!(self.is_paused(), "a request waits for the end of a pause, or nothing would start it again");
        self.held.push_back((connection, tag));
    }

    /// The requests that wait for the end of the pause.
    pub(crate) fn held(&self) -> impl Iterator<Item = (ConnectionId, TransferTag)> + '_ {
        self.held.iter().copied()
    }

    /// A connection is closed: its requests do not wait any more.
    pub(crate) fn drop_held(&mut self, connection: ConnectionId) {
        self.held.retain(|&(other, _)| other != connection);
    }

    /// Lets the flush of a shutdown wait until the pause ends. False: one waits already, which is
    /// enough for any number of shutdowns before it.
    pub(crate) fn hold_shutdown(&mut self, controller: ControllerKey) -> bool {
        assert!(self.is_paused(), "a shutdown waits for the end of a pause, or it would never complete");
        let is_new = !self.held_shutdowns.contains(&controller);
        if is_new {
            self.held_shutdowns.push(controller);
        }
        is_new
    }

    pub(crate) fn held_shutdowns(&self) -> &[ControllerKey] {
        &self.held_shutdowns
    }

    /// A command was submitted to the device.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        self.commands_at_device += 1;
    }

    /// The device has completed a command.
    #[inline]
    pub(crate) fn completed(&mut self) {
        assert!(self.commands_at_device > 0, "a removed namespace would leave the table before its last command");
        self.commands_at_device -= 1;
    }

    /// Commands at the device.
    pub(crate) fn commands_at_device(&self) -> usize {
        self.commands_at_device
    }
}
