//! Identify.

use bytes::Bytes;
use zonda_nvme::identify::{
    self, CommandSet, CommandSetVector, IdentifyRequest, IndependentNamespace, NamespaceList, NvmController,
    NvmNamespace, Structure, ZnsController, ZnsNamespace, write_descriptors,
};
use zonda_nvme::page::{Page, PageError};
use zonda_nvme::{Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::{Geometry, NamespaceId};

use super::{Controller, ControllerKey};
use crate::config::NamespaceConfig;
use crate::connection::receive::Answer;
use crate::effects::ConnectionId;
use crate::limits::{ASYNC_EVENT_REQUESTS, ERROR_LOG_ENTRIES, KEEP_ALIVE_GRANULARITY_100MS, Limits};
use crate::subsystems::{NamespaceIndex, Subsystems, TransferLimits, is_zoned};
use crate::target::Target;

/// Firmware revision of the discovery controller.
const DISCOVERY_FIRMWARE: &str = "1.0";
/// Identifiers from here on name no namespace (NVMe Base 2.0, section 5.17.2.2).
const NAMESPACE_LIST_END: u32 = 0xffff_fffe;

impl Target {
    /// Identify.
    pub(super) fn identify(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let request = IdentifyRequest::decode(entry.cdw10.get(), entry.cdw11.get(), entry.cdw14.get());
        let structure = Structure::try_from(request.structure).map_err(|_| StatusCode::INVALID_FIELD)?;
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        let (subsystems, limits) = (&self.subsystems, &self.limits);
        let page = match controller.subsystem {
            Some(_) => controller.identify_io(subsystems, limits, structure, &request, entry.namespace.get())?,
            None if structure == Structure::Controller => controller.identify_discovery(limits)?,
            None => return Err(StatusCode::INVALID_FIELD),
        };
        self.admin_data(id, entry, page)
    }
}

impl Controller {
    fn identify_io(
        &self,
        subsystems: &Subsystems,
        limits: &Limits,
        structure: Structure,
        request: &IdentifyRequest,
        namespace: u32,
    ) -> Result<Bytes, StatusCode> {
        let command_set = CommandSet::try_from(request.command_set);
        match structure {
            Structure::Controller => self.identify_controller(subsystems, limits),
            Structure::Namespace => match self.visible(subsystems, namespace)? {
                Some(config) => {
                    page(NvmNamespace::from_geometry(&config.geometry, &config.identity).map(|mut page| {
                        if self.keeps_reservations(subsystems, namespace) {
                            page.set_reservations_can_persist();
                        }
                        page.attributes = u8::from(self.is_write_protected(subsystems, namespace));
                        page
                    }))
                }
                None => Ok(nothing()),
            },
            Structure::IndependentNamespace => match self.visible(subsystems, namespace)? {
                Some(_) => {
                    let is_write_protected = self.is_write_protected(subsystems, namespace);
                    let mut page = IndependentNamespace::new(true, is_write_protected);
                    if self.keeps_reservations(subsystems, namespace) {
                        page.set_reservations_can_persist();
                    }
                    Ok(copy(&page))
                }
                None => Ok(nothing()),
            },
            Structure::NamespaceDescriptors => {
                let config = self.visible(subsystems, namespace)?.ok_or(StatusCode::INVALID_NAMESPACE)?;
                Ok(write_descriptors(&config.identity, command_set_of(&config.geometry)).into())
            }
            Structure::ActiveNamespaces => self.active(subsystems, namespace, None),
            Structure::CommandSetActiveNamespaces => {
                let set = self.offered(subsystems, command_set)?;
                self.active(subsystems, namespace, Some(set))
            }
            Structure::CommandSetNamespace => {
                let set = self.offered(subsystems, command_set)?;
                let Some(config) = self.visible(subsystems, namespace)? else { return Ok(nothing()) };
                if command_set_of(&config.geometry) != set && set == CommandSet::Zoned {
                    return Err(StatusCode::INVALID_FIELD);
                }
                match set {
                    CommandSet::Zoned => page(ZnsNamespace::from_geometry(&config.geometry)),
                    // For the NVM command set this structure describes only protection information,
                    // which is not supported.
                    _ => Ok(nothing()),
                }
            }
            Structure::CommandSetController => match self.offered(subsystems, command_set)? {
                CommandSet::Zoned => {
                    let mut page = ZnsController::empty();
                    page.append_limit_exponent = self.transfer_limits(subsystems).append;
                    Ok(copy(&page))
                }
                _ => {
                    let mut page = NvmController::empty();
                    page.write_zeroes_exponent = self.transfer_limits(subsystems).write_zeroes;
                    Ok(copy(&page))
                }
            },
            Structure::CommandSets => {
                let zoned = subsystems.has_zones(self.subsystem);
                let sets: &[CommandSet] =
                    if zoned { &[CommandSet::Nvm, CommandSet::Zoned] } else { &[CommandSet::Nvm] };
                Ok(copy(&CommandSetVector::of(sets)))
            }
        }
    }

    fn identify_controller(&self, subsystems: &Subsystems, limits: &Limits) -> Result<Bytes, StatusCode> {
        let place = self.subsystem.expect("an I/O controller has a subsystem");
        let (known, subsystem) = (&subsystems[place], subsystems.config_of(place));
        page(identify::Controller::io(&identify::IoController {
            serial_number: &subsystem.serial,
            model_number: &subsystem.model,
            firmware_revision: &subsystem.firmware,
            subsystem_nqn: subsystem.nqn.as_str(),
            controller_id: self.id,
            namespaces_max: known.namespaces_max().max(1),
            max_transfer_exponent: known.limits.transfer,
            volatile_write_cache: known.volatile_write_cache,
            flush_all_namespaces: false,
            in_capsule_data_bytes: limits.in_capsule_bytes,
            max_outstanding_commands: limits.queue_entries,
            async_event_requests: ASYNC_EVENT_REQUESTS as u8,
            error_log_entries: ERROR_LOG_ENTRIES as u8,
            keep_alive_granularity_100ms: KEEP_ALIVE_GRANULARITY_100MS,
            traffic_keeps_alive: true,
            total_capacity_bytes: known.capacity_bytes,
        }))
    }

    fn identify_discovery(&self, limits: &Limits) -> Result<Bytes, StatusCode> {
        page(identify::Controller::discovery(&identify::DiscoveryController {
            firmware_revision: DISCOVERY_FIRMWARE,
            subsystem_nqn: Nqn::DISCOVERY,
            controller_id: self.id,
            max_transfer_exponent: 0,
            max_outstanding_commands: limits.queue_entries,
            async_event_requests: ASYNC_EVENT_REQUESTS as u8,
            keep_alive_granularity_100ms: KEEP_ALIVE_GRANULARITY_100MS,
        }))
    }

    /// The namespaces above an identifier, of one command set or of all that are enabled.
    fn active(&self, subsystems: &Subsystems, above: u32, set: Option<CommandSet>) -> Result<Bytes, StatusCode> {
        if above >= NAMESPACE_LIST_END {
            return Err(StatusCode::INVALID_NAMESPACE);
        }
        let place = self.subsystem.ok_or(StatusCode::INVALID_FIELD)?;
        let active: Vec<NamespaceId> = subsystems
            .config_of(place)
            .namespaces
            .iter()
            .filter(|config| {
                let own = command_set_of(&config.geometry);
                (own == CommandSet::Nvm || self.has_zones()) && set.is_none_or(|set| set == own)
            })
            .map(|config| config.id)
            .collect();
        Ok(copy(&NamespaceList::above(NamespaceId(above), &active)))
    }

    /// A namespace of the controller; `None` for a valid identifier without a namespace.
    fn visible<'a>(&self, subsystems: &'a Subsystems, id: u32) -> Result<Option<&'a NamespaceConfig>, StatusCode> {
        let place = self.subsystem.ok_or(StatusCode::INVALID_FIELD)?;
        let Some(namespace) = subsystems[place].namespace(id) else {
            let possible = (1..=subsystems[place].namespaces_max()).contains(&id);
            return if possible { Ok(None) } else { Err(StatusCode::INVALID_NAMESPACE) };
        };
        let config = subsystems.namespace(namespace).config();
        let enabled = command_set_of(&config.geometry) == CommandSet::Nvm || self.has_zones();
        Ok(enabled.then_some(config))
    }

    fn keeps_reservations(&self, subsystems: &Subsystems, id: u32) -> bool {
        self.place_of(subsystems, id).is_some_and(|place| subsystems.namespace(place).persistence.is_possible)
    }

    /// NSATTR bit 0, the same in both Identify structures of a namespace.
    fn is_write_protected(&self, subsystems: &Subsystems, id: u32) -> bool {
        let place = self.place_of(subsystems, id).expect("a visible namespace has a place");
        let namespace = subsystems.namespace(place);
        namespace.is_write_protected() || namespace.health().read_only
    }

    fn place_of(&self, subsystems: &Subsystems, id: u32) -> Option<NamespaceIndex> {
        subsystems.namespace_of(self.subsystem, id)
    }

    /// A command set that the controller offers and the host has enabled.
    fn offered(&self, subsystems: &Subsystems, set: Result<CommandSet, u8>) -> Result<CommandSet, StatusCode> {
        let zoned = subsystems.has_zones(self.subsystem);
        match set {
            Ok(CommandSet::Nvm) => Ok(CommandSet::Nvm),
            Ok(CommandSet::Zoned) if zoned && self.has_zones() => Ok(CommandSet::Zoned),
            _ => Err(StatusCode::INVALID_FIELD),
        }
    }

    fn transfer_limits(&self, subsystems: &Subsystems) -> TransferLimits {
        let place = self.subsystem.expect("an I/O controller has a subsystem");
        subsystems[place].limits
    }
}

fn command_set_of(geometry: &Geometry) -> CommandSet {
    if is_zoned(geometry) { CommandSet::Zoned } else { CommandSet::Nvm }
}

/// A structure of zeros, for a valid identifier without a namespace.
fn nothing() -> Bytes {
    static NOTHING: [u8; identify::IDENTIFY_BYTES] = [0; identify::IDENTIFY_BYTES];
    Bytes::from_static(&NOTHING)
}

fn copy(page: &impl Page) -> Bytes {
    Bytes::copy_from_slice(page.bytes())
}

/// A page that the checks of the configuration guarantee to be valid.
fn page<P: Page>(page: Result<P, PageError>) -> Result<Bytes, StatusCode> {
    page.map(|page| copy(&page)).map_err(|_| StatusCode::INTERNAL_ERROR)
}
