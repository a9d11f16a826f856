//! A namespace of a subsystem, as the target serves it.
//!
//! Commands, saves and reservation requests refer to a namespace by its [`NamespaceIndex`]. A
//! removed namespace stays in the table until the last of them has completed, and its index is
//! never used again: a namespace that is added meanwhile has another one, even if its identifier is
//! the same.

use std::collections::VecDeque;

use zonda_nvme::io::NamespaceFormat;
use zonda_zoned::NamespaceId;

use crate::connection::TransferTag;
use crate::controller::ControllerKey;
use crate::effects::ConnectionId;
use crate::health::DeviceHealth;
use crate::reservations::{Persistence, Reservations};
use crate::slots::{OwnedKey, slot_key};
use crate::statistics::NamespaceStatistics;
use crate::subsystem::SubsystemIndex;
use crate::{DeviceKey, NamespaceConfig};

slot_key! {
    /// Index of a namespace in the target's table.
    NamespaceIndex
}

impl OwnedKey for NamespaceIndex {}

/// One namespace of one subsystem.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) subsystem: SubsystemIndex,
    /// The same as in the configuration, as long as it is not removed.
    pub(crate) config: NamespaceConfig,
    pub(crate) format: NamespaceFormat,
    pub(crate) is_write_protected: bool,
    pub(crate) reservations: Reservations,
    pub(crate) persistence: Persistence,
    /// A read of the device's changed zones is in flight.
    pub(crate) is_surveyed: bool,
    pub(crate) health: DeviceHealth,
    pub(crate) statistics: NamespaceStatistics,
    pub(crate) phase: NamespacePhase,
    /// Commands at the device.
    pub(crate) commands_at_device: usize,
    /// While it is paused: requests that wait, in order of arrival, by connection and tag.
    pub(crate) held: VecDeque<(ConnectionId, TransferTag)>,
    /// While it is paused: controllers whose shutdown waits for a flush, each once.
    pub(crate) held_shutdowns: Vec<ControllerKey>,
}

/// Whether a namespace accepts commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespacePhase {
    /// It does.
    Active,
    /// Commands wait until it is resumed.
    Paused,
    /// It was removed: no host can name it any more.
    Removed,
}

impl Namespace {
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
}
