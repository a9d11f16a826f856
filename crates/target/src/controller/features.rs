//! Get Features and Set Features.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::features::{AsyncEventConfiguration, Feature, FeatureRequest, QueueCounts, Select, notices};
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_zoned::{Instant, NamespaceId};

use super::{ALL_NAMESPACES, Controller, ControllerKey, keep_alive};
use crate::connection::receive::Answer;
use crate::connection::{Reply, transfer::check_host_buffer};
use crate::effects::ConnectionId;
use crate::limits::KEEP_ALIVE_TIMEOUT_MAX_MS;
use crate::subsystems::{NamespaceIndex, Subsystems};
use crate::target::Target;

/// Bit 2 of what Select 011b returns: the feature can be changed (NVMe Base 2.0, Figure 195).
const CHANGEABLE: u64 = 1 << 2;
/// Bit 1: each namespace has its own.
const OF_NAMESPACE: u64 = 1 << 1;
/// The default temperature threshold, in kelvins: the WCTEMP of Identify Controller.
const WARNING_KELVIN: u32 = 343;

/// Feature values that the host has set, as dwords on the wire.
#[derive(Debug)]
pub(super) struct Features {
    arbitration: u32,
    power_management: u32,
    over_temperature: u32,
    under_temperature: u32,
    error_recovery: u32,
    write_atomicity: u32,
    volatile_write_cache: u32,
    /// I/O queues that the host has requested, if it has.
    queues: Option<u32>,
    pub(super) events: AsyncEventConfiguration,
    host_behavior: Box<[u8]>,
    /// Reservation Notification Mask of the namespaces where it is not zero.
    reservation_masks: BTreeMap<NamespaceId, u32>,
}

impl Features {
    pub(super) fn new() -> Features {
        Features {
            // Burst without limit.
            arbitration: 7,
            power_management: 0,
            over_temperature: WARNING_KELVIN,
            under_temperature: 0,
            error_recovery: 0,
            write_atomicity: 0,
            volatile_write_cache: 1,
            queues: None,
            events: AsyncEventConfiguration(0),
            host_behavior: vec![0; 512].into(),
            reservation_masks: BTreeMap::new(),
        }
    }

    /// Whether a composite temperature is at or above the over temperature threshold, or at or
    /// below the under temperature threshold (NVMe Base 2.0, section 5.27.1.3).
    pub(super) fn is_beyond_thresholds(&self, kelvin: u32) -> bool {
        kelvin >= self.over_temperature || kelvin <= self.under_temperature
    }

    /// The reservation notifications of a namespace that the host has masked.
    pub(super) fn reservation_mask(&self, namespace: NamespaceId) -> u32 {
        self.reservation_masks.get(&namespace).copied().unwrap_or(0)
    }

    /// A namespace was removed: another one with this identifier starts with the defaults.
    pub(super) fn forget_namespace(&mut self, namespace: NamespaceId) {
        self.reservation_masks.remove(&namespace);
    }

    /// Namespaces for which the host has set values.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.reservation_masks.keys().copied()
    }

    /// The greatest QID that the host may connect.
    pub(super) fn io_queues(&self, limit: u16) -> u16 {
        self.queues.map_or(limit, |queues| queues.min(u32::from(limit)) as u16)
    }
}

impl Controller {
    /// Indexes of the namespaces that a checked identifier names, as far as they can persist
    /// reservations.
    fn persistent_namespaces(
        &self,
        subsystems: &Subsystems,
        namespace: u32,
    ) -> Result<Vec<NamespaceIndex>, StatusCode> {
        let subsystem = self.subsystem.map(|place| &subsystems[place]).ok_or(StatusCode::INVALID_FIELD)?;
        let can_keep = |place: &NamespaceIndex| subsystems.namespace(*place).persistence.is_possible;
        let places: Vec<NamespaceIndex> = match namespace {
            ALL_NAMESPACES => subsystem.namespaces().filter(can_keep).collect(),
            one => subsystem.namespace(one).into_iter().filter(can_keep).collect(),
        };
        if places.is_empty() { Err(StatusCode::INVALID_FIELD) } else { Ok(places) }
    }

    /// Checks that a feature may be used with a namespace identifier.
    fn check_scope(&self, subsystems: &Subsystems, feature: Feature, namespace: u32) -> Result<(), StatusCode> {
        let is_known = subsystems.namespace_of(self.subsystem, namespace).is_some();
        match namespace {
            // Error Recovery has controller scope here, and hosts use it with that too.
            0 if is_kept_for_namespaces(feature) => Err(StatusCode::INVALID_NAMESPACE),
            0 | ALL_NAMESPACES => Ok(()),
            _ if !is_known => Err(StatusCode::INVALID_NAMESPACE),
            _ if is_of_a_namespace(feature) => Ok(()),
            _ => Err(StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC),
        }
    }

    /// The namespaces that a checked identifier names: one or all.
    fn namespaces_named(&self, subsystems: &Subsystems, namespace: u32) -> Vec<NamespaceId> {
        let Some(subsystem) = self.subsystem.map(|place| &subsystems[place]) else { return Vec::new() };
        match namespace {
            ALL_NAMESPACES => subsystem.namespaces().map(|place| subsystems.namespace(place).id()).collect(),
            one => vec![NamespaceId(one)],
        }
    }

    /// Checks that a controller has a feature.
    fn check_feature(&self, subsystems: &Subsystems, feature: Feature) -> Result<(), StatusCode> {
        let has = match (self.subsystem, feature) {
            (None, _) => matches!(feature, Feature::AsyncEventConfiguration | Feature::KeepAliveTimer),
            // Only with a volatile write cache (NVMe Base 2.0, section 5.27.1.4).
            (Some(place), Feature::VolatileWriteCache) => subsystems[place].volatile_write_cache,
            // Only if a device can persist reservations.
            (Some(place), Feature::ReservationPersistence) => {
                subsystems[place].namespaces().any(|it| subsystems.namespace(it).persistence.is_possible)
            }
            (Some(_), _) => true,
        };
        if has { Ok(()) } else { Err(StatusCode::INVALID_FIELD) }
    }
}

impl Target {
    /// Get Features.
    pub(super) fn get_features(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let request = FeatureRequest::decode(entry.cdw10.get());
        let feature = Feature::try_from(request.feature).map_err(|_| StatusCode::INVALID_FIELD)?;
        let select = Select::try_from(request.select).map_err(|_| StatusCode::INVALID_FIELD)?;
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        controller.check_feature(&self.subsystems, feature)?;
        let namespace = entry.namespace.get();
        controller.check_scope(&self.subsystems, feature, namespace)?;
        if is_kept_for_namespaces(feature) && namespace == ALL_NAMESPACES {
            return Err(StatusCode::INVALID_NAMESPACE);
        }
        let defaults = Features::new();
        let features = match select {
            Select::Supported => {
                let of_namespace = if is_kept_for_namespaces(feature) { OF_NAMESPACE } else { 0 };
                return Ok(Answer::Now(of_namespace | if changeable(feature) { CHANGEABLE } else { 0 }));
            }
            Select::Current => &controller.features,
            // Nothing is saved: what was saved is the default.
            Select::Default | Select::Saved => &defaults,
        };
        let value = match feature {
            Feature::Arbitration => features.arbitration,
            Feature::PowerManagement => features.power_management,
            Feature::TemperatureThreshold => {
                *temperature(features, entry.cdw11.get()).ok_or(StatusCode::INVALID_FIELD)?
            }
            Feature::ErrorRecovery => features.error_recovery,
            Feature::VolatileWriteCache => features.volatile_write_cache,
            Feature::NumberOfQueues => {
                let granted = features.io_queues(self.limits.io_queues);
                QueueCounts { submission: granted.into(), completion: granted.into() }.encode()
            }
            Feature::WriteAtomicity => features.write_atomicity,
            Feature::AsyncEventConfiguration => features.events.0,
            Feature::KeepAliveTimer => match select {
                Select::Current => {
                    controller.keep_alive_timeout.map_or(0, |timeout| (timeout.as_nanos() / 1_000_000) as u32)
                }
                _ => 0,
            },
            Feature::CommandSetProfile => 0,
            Feature::HostBehavior => {
                let data = Bytes::copy_from_slice(&features.host_behavior);
                return self.admin_data(id, entry, data);
            }
            Feature::HostIdentifier => {
                // Over Fabrics, only the identifier of 128 bits exists (EXHID).
                if entry.cdw11.get() & 1 == 0 {
                    return Err(StatusCode::INVALID_FIELD);
                }
                let data = Bytes::copy_from_slice(&controller.host_id.0);
                return self.admin_data(id, entry, data);
            }
            Feature::ReservationNotificationMask => features.reservation_mask(NamespaceId(namespace)),
            Feature::ReservationPersistence => {
                let first = controller.persistent_namespaces(&self.subsystems, namespace)?[0];
                let persists = self.subsystems.namespace(first).reservations().persists();
                u32::from(persists && select == Select::Current)
            }
        };
        Ok(Answer::Now(value.into()))
    }

    /// Set Features of Reservation Persistence (NVMe Base 2.0, section 5.27.1.27), which takes
    /// effect once the device has saved it.
    pub(super) fn set_reservation_persistence(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        if FeatureRequest::decode(entry.cdw10.get()).save {
            return Err(StatusCode::FEATURE_NOT_SAVEABLE);
        }
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        let namespace = entry.namespace.get();
        controller.check_feature(&self.subsystems, Feature::ReservationPersistence)?;
        controller.check_scope(&self.subsystems, Feature::ReservationPersistence, namespace)?;
        let places = controller.persistent_namespaces(&self.subsystems, namespace)?;
        // The change could only be saved once the commands of the namespace are resumed.
        if places.iter().any(|&place| self.subsystems.namespace(place).is_paused()) {
            return Err(StatusCode::COMMAND_INTERRUPTED);
        }
        self.persist_reservations(id, entry, &places, entry.cdw11.get() & 1 != 0)
    }

    /// Set Features, with its data where it has any.
    pub(crate) fn set_features(
        &mut self,
        now: Instant,
        key: ControllerKey,
        entry: &SubmissionEntry,
        data: &Bytes,
    ) -> Reply {
        let request = FeatureRequest::decode(entry.cdw10.get());
        let feature = Feature::try_from(request.feature).map_err(|_| StatusCode::INVALID_FIELD)?;
        if request.save {
            return Err(StatusCode::FEATURE_NOT_SAVEABLE);
        }
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        controller.check_feature(&self.subsystems, feature)?;
        controller.check_scope(&self.subsystems, feature, entry.namespace.get())?;
        let namespaces = controller.namespaces_named(&self.subsystems, entry.namespace.get());
        let limit = self.limits.io_queues;
        let supported = match controller.subsystem {
            Some(_) => notices::NAMESPACE_ATTRIBUTE | notices::ZONE_DESCRIPTOR | 0xff,
            None => notices::DISCOVERY_LOG_PAGE,
        };
        let controller = self.controllers.get_mut(key).expect("the controller was just found");
        let has_io_queues = controller.queues().count() > 1;
        let features = &mut controller.features;
        let value = entry.cdw11.get();
        match feature {
            Feature::Arbitration => features.arbitration = value,
            // There is one power state.
            Feature::PowerManagement if value & 0x1f != 0 => return Err(StatusCode::INVALID_FIELD),
            Feature::PowerManagement => features.power_management = value,
            Feature::TemperatureThreshold => {
                match value >> 16 & 0x3f {
                    0x00 => features.over_temperature = value & 0xffff,
                    0x10 => features.under_temperature = value & 0xffff,
                    _ => return Err(StatusCode::INVALID_FIELD),
                }
                self.watch_temperature(key);
            }
            // Errors for deallocated blocks (DULBE) are not offered.
            Feature::ErrorRecovery if value >> 16 & 1 != 0 => return Err(StatusCode::INVALID_FIELD),
            Feature::ErrorRecovery => features.error_recovery = value,
            Feature::WriteAtomicity => features.write_atomicity = value & 1,
            Feature::NumberOfQueues => {
                let wanted = QueueCounts::decode(value);
                if wanted.is_too_many() {
                    return Err(StatusCode::INVALID_FIELD);
                }
                // The number of queues is fixed once the first is connected (NVMe Base 2.0, section
                // 5.27.1.5).
                if has_io_queues {
                    return Err(StatusCode::COMMAND_SEQUENCE_ERROR);
                }
                let granted = wanted.submission.min(wanted.completion).min(limit.into());
                features.queues = Some(granted);
                return Ok(QueueCounts { submission: granted, completion: granted }.encode().into());
            }
            Feature::AsyncEventConfiguration => {
                features.events = AsyncEventConfiguration(value & supported);
                self.report_events(key);
            }
            Feature::KeepAliveTimer => {
                if value > KEEP_ALIVE_TIMEOUT_MAX_MS {
                    return Err(StatusCode::KEEP_ALIVE_TIMEOUT_INVALID);
                }
                let timeout = keep_alive::timeout_for(controller.subsystem.is_none(), value);
                self.controllers.set_keep_alive(now, key, timeout);
            }
            Feature::HostBehavior => {
                let Some(data) = data.get(..512) else { return Err(StatusCode::DATA_SGL_LENGTH_INVALID) };
                features.host_behavior = data.into();
            }
            // The only combination of command sets.
            Feature::CommandSetProfile if value & 0x1ff == 0 => {}
            Feature::CommandSetProfile => return Err(StatusCode::IO_COMMAND_SET_COMBINATION_REJECTED),
            // The cache is the device's, and cannot be changed here.
            Feature::VolatileWriteCache => return Err(StatusCode::FEATURE_NOT_CHANGEABLE),
            Feature::ReservationNotificationMask => {
                for namespace in namespaces {
                    features.reservation_masks.insert(namespace, value & RESERVATION_NOTICES);
                }
            }
            Feature::ReservationPersistence => unreachable!("set_reservation_persistence handles it"),
            // Connect sets it, over Fabrics (NVMe Base 2.0, section 5.27.1.25).
            Feature::HostIdentifier => return Err(StatusCode::COMMAND_SEQUENCE_ERROR),
        }
        Ok(0)
    }

    /// Completes an admin command with data, if the host's buffer is large enough.
    pub(super) fn admin_data(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
        data: Bytes,
    ) -> Result<Answer, StatusCode> {
        check_host_buffer(entry, data.len() as u32, false)?;
        self.respond_with_data(id, entry.command_id.get(), &[data], 0);
        Ok(Answer::Later)
    }
}

/// The bits of the Reservation Notification Mask.
const RESERVATION_NOTICES: u32 = 0b1110;

/// Whether a feature has namespace scope (NVMe Base 2.0, Figure 317).
fn is_of_a_namespace(feature: Feature) -> bool {
    matches!(feature, Feature::ErrorRecovery | Feature::ReservationNotificationMask | Feature::ReservationPersistence)
}

/// Whether this target keeps a value of the feature for each namespace.
fn is_kept_for_namespaces(feature: Feature) -> bool {
    matches!(feature, Feature::ReservationNotificationMask | Feature::ReservationPersistence)
}

fn changeable(feature: Feature) -> bool {
    !matches!(feature, Feature::VolatileWriteCache | Feature::HostIdentifier)
}

/// The composite temperature's threshold that a dword selects; there are no other sensors.
fn temperature(features: &Features, dword: u32) -> Option<&u32> {
    match dword >> 16 & 0x3f {
        0x00 => Some(&features.over_temperature),
        0x10 => Some(&features.under_temperature),
        _ => None,
    }
}
