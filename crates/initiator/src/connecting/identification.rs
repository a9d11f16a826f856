//! Identifies the controller and the namespace, and requests I/O queues.

use zonda_nvme::fabrics::Capabilities;
use zonda_nvme::features::{AsyncEventConfiguration, Feature, FeatureRequest, QueueCounts, notices};
use zonda_nvme::identify::capabilities::{attributes, optional_commands};
use zonda_nvme::identify::{
    CommandSet, Controller, ControllerKind, IDENTIFY_BYTES, IdentifyRequest, NamespaceIdentity, NvmController,
    NvmNamespace, Structure, ZnsController, ZnsNamespace, parse_descriptors,
};
use zonda_nvme::page::Page;
use zonda_nvme::{AdminOpcode, StatusCode};
use zonda_zoned::Instant;

use super::{Progress, admin, send, succeeded};
use crate::InitiatorConfig;
use crate::config::Order;
use crate::error::Reason;
use crate::limits::TRANSFER_BYTES_MIN;
use crate::queue::{CommandData, Ended, Queue};
use crate::state::Step;

/// The events that this initiator handles.
const EVENTS: u32 = notices::ZONE_DESCRIPTOR | notices::NAMESPACE_ATTRIBUTE;

/// The properties of the target, except its zones.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) capabilities: Capabilities,
    pub(crate) controller: Box<Controller>,
    pub(crate) identity: NamespaceIdentity,
    pub(crate) namespace: Box<NvmNamespace>,
    /// Absent for a namespace of the NVM command set.
    pub(crate) zoned: Option<Box<(ZnsNamespace, ZnsController)>>,
    /// Limits of Write Zeroes and Dataset Management; absent if the controller reports none.
    pub(crate) limits: Option<Box<NvmController>>,
    /// I/O queues that the controller grants.
    pub(crate) queues: u16,
}

/// The admin commands between "ready" and the first I/O queue.
#[derive(Debug)]
pub(crate) struct Identification {
    step: Step,
    controller_id: u16,
    command_set: CommandSet,
    zoned_namespace: Option<Box<ZnsNamespace>>,
    remote: Remote,
}

impl Identification {
    pub(crate) fn start(
        now: Instant,
        queue: &mut Queue,
        capabilities: Capabilities,
        controller_id: u16,
    ) -> Identification {
        identify(now, queue, Structure::Controller, CommandSet::Nvm, 0);
        Identification {
            step: Step::IdentifyController,
            controller_id,
            command_set: CommandSet::Nvm,
            zoned_namespace: None,
            remote: Remote {
                capabilities,
                controller: Box::new(Controller::empty()),
                identity: NamespaceIdentity::default(),
                namespace: Box::new(NvmNamespace::empty()),
                zoned: None,
                limits: None,
                queues: 0,
            },
        }
    }

    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// The properties, once it is done.
    pub(crate) fn into_remote(self) -> Remote {
        self.remote
    }

    pub(crate) fn ended(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        config: &InitiatorConfig,
        ended: &Ended,
    ) -> Result<Progress, Reason> {
        let namespace = config.namespace.0;
        match self.step {
            Step::IdentifyController => {
                succeeded(ended)?;
                *self.remote.controller = Controller::parse(&ended.data)?;
                self.check_controller(config)?;
                identify(now, queue, Structure::NamespaceDescriptors, CommandSet::Nvm, namespace);
                self.step = Step::IdentifyDescriptors;
            }
            Step::IdentifyDescriptors => {
                self.command_set = self.described(ended)?;
                identify(now, queue, Structure::Namespace, CommandSet::Nvm, namespace);
                self.step = Step::IdentifyNamespace;
            }
            Step::IdentifyNamespace => {
                namespace_exists(ended)?;
                *self.remote.namespace = NvmNamespace::parse(&ended.data)?;
                if self.remote.namespace.size_blocks.get() == 0 {
                    return Err(Reason::NoSuchNamespace);
                }
                identify(now, queue, Structure::CommandSetController, CommandSet::Nvm, 0);
                self.step = Step::IdentifyNvmController;
            }
            Step::IdentifyNvmController => {
                // Older controllers do not support this structure, and report no limits.
                if ended.status.is_success() && !ended.is_damaged {
                    self.remote.limits = Some(Box::new(NvmController::parse(&ended.data)?));
                }
                if self.command_set == CommandSet::Zoned {
                    identify(now, queue, Structure::CommandSetNamespace, CommandSet::Zoned, namespace);
                    self.step = Step::IdentifyZonedNamespace;
                } else {
                    self.request_queues(now, queue, config);
                }
            }
            Step::IdentifyZonedNamespace => {
                succeeded(ended)?;
                self.zoned_namespace = Some(Box::new(ZnsNamespace::parse(&ended.data)?));
                identify(now, queue, Structure::CommandSetController, CommandSet::Zoned, 0);
                self.step = Step::IdentifyZonedController;
            }
            Step::IdentifyZonedController => {
                succeeded(ended)?;
                let controller = ZnsController::parse(&ended.data)?;
                let namespace = self.zoned_namespace.take().expect("the namespace was identified before");
                self.remote.zoned = Some(Box::new((*namespace, controller)));
                self.request_queues(now, queue, config);
            }
            Step::RequestQueues => {
                succeeded(ended)?;
                let given = QueueCounts::decode(ended.result as u32);
                let least = given.submission.min(given.completion);
                self.remote.queues = u16::try_from(least).unwrap_or(u16::MAX).min(config.io_queues);
                if self.remote.queues == 0 {
                    return Err(Reason::Lacks("I/O queues"));
                }
                let events = self.remote.controller.async_events.get() & EVENTS;
                if events == 0 {
                    return Ok(Progress::Done);
                }
                let events = AsyncEventConfiguration(events).0;
                set_feature(now, queue, Feature::AsyncEventConfiguration, events);
                self.step = Step::RequestEvents;
            }
            Step::RequestEvents => {
                succeeded(ended)?;
                return Ok(Progress::Done);
            }
            step => unreachable!("{step} is not a step of identification"),
        }
        Ok(Progress::More)
    }

    /// Checks what Fabrics requires, and what this initiator needs; as Linux does.
    fn check_controller(&self, config: &InitiatorConfig) -> Result<(), Reason> {
        let controller = &self.remote.controller;
        let lacks = |what| Err(Reason::Lacks(what));
        if controller.kind == ControllerKind::Discovery as u8 {
            return lacks("namespaces: it is a discovery controller");
        }
        if controller.controller_id.get() != self.controller_id {
            return lacks("a constant controller identifier (CNTLID)");
        }
        if config.keep_alive.is_some() && controller.keep_alive_granularity_100ms.get() == 0 {
            return lacks("keep alive (KAS)");
        }
        if controller.command_capsule_16b.get() < 4 {
            return lacks("command capsules of at least 64 bytes (IOCCSZ)");
        }
        if controller.response_capsule_16b.get() < 1 {
            return lacks("response capsules of 16 bytes (IORCSZ)");
        }
        if controller.sgl_support.get() & 0b11 == 0 {
            return lacks("SGLs (SGLS)");
        }
        if controller.in_capsule_offset_16b.get() != 0 {
            return lacks("in-capsule data directly after the command (ICDOFF)");
        }
        Ok(())
    }

    /// The namespace's command set. A controller without identification descriptors supports only
    /// the NVM command set.
    fn described(&mut self, ended: &Ended) -> Result<CommandSet, Reason> {
        if ended.status == StatusCode::INVALID_FIELD && !self.remote.capabilities.all_command_sets {
            return Ok(CommandSet::Nvm);
        }
        namespace_exists(ended)?;
        let (identity, command_set) = parse_descriptors(&ended.data)?;
        self.remote.identity = identity;
        match command_set.unwrap_or(CommandSet::Nvm as u8) {
            code if code == CommandSet::Nvm as u8 => Ok(CommandSet::Nvm),
            code if code == CommandSet::Zoned as u8 => Ok(CommandSet::Zoned),
            code => Err(Reason::CommandSet(code)),
        }
    }

    fn request_queues(&mut self, now: Instant, queue: &mut Queue, config: &InitiatorConfig) {
        let count = u32::from(config.io_queues);
        let counts = QueueCounts { submission: count, completion: count };
        set_feature(now, queue, Feature::NumberOfQueues, counts.encode());
        self.step = Step::RequestQueues;
    }
}

impl Remote {
    /// The largest transfer of a page, in bytes: MDTS, and the limit of this side.
    pub(crate) fn page_bytes_max(&self, config: &InitiatorConfig) -> u32 {
        let exponent = u32::from(self.controller.max_transfer_exponent);
        let limit =
            if exponent == 0 { u32::MAX } else { 4096u32.checked_shl(exponent).filter(|&b| b > 0).unwrap_or(u32::MAX) };
        limit.min(config.transfer_bytes_max).max(TRANSFER_BYTES_MIN)
    }

    /// Data that fits the command capsules of I/O queues.
    pub(crate) fn capsule_data_bytes(&self) -> u32 {
        self.controller.in_capsule_data_bytes()
    }

    /// Whether any command restarts the controller's keep alive timer.
    pub(crate) fn traffic_keeps_alive(&self) -> bool {
        self.controller.has_attributes(attributes::TRAFFIC_KEEPS_ALIVE)
    }

    pub(crate) fn has_write_zeroes(&self) -> bool {
        self.controller.optional_commands.get() & optional_commands::WRITE_ZEROES != 0
    }

    pub(crate) fn has_deallocate(&self) -> bool {
        self.controller.optional_commands.get() & optional_commands::DATASET_MANAGEMENT != 0
            && self.namespace.deallocated_blocks_read_zeros()
    }

    /// How the order of commands can be ensured; zonda's own target is recognised by its model
    /// number.
    pub(crate) fn order(&self) -> Order {
        let is_own = self.controller.model_number().starts_with("zonda");
        if is_own { Order::Arrival } else { Order::Completion }
    }
}

pub(super) fn identify(now: Instant, queue: &mut Queue, structure: Structure, command_set: CommandSet, namespace: u32) {
    let mut entry = admin(AdminOpcode::Identify, namespace);
    let (dword10, dword11, dword14) = IdentifyRequest::of(structure, command_set).encode();
    entry.cdw10 = dword10.into();
    entry.cdw11 = dword11.into();
    entry.cdw14 = dword14.into();
    send(queue, now, entry, CommandData::ToHost(IDENTIFY_BYTES as u32));
}

fn set_feature(now: Instant, queue: &mut Queue, feature: Feature, value: u32) {
    let mut entry = admin(AdminOpcode::SetFeatures, 0);
    entry.cdw10 = FeatureRequest { feature: feature as u8, ..FeatureRequest::default() }.encode().into();
    entry.cdw11 = value.into();
    send(queue, now, entry, CommandData::None);
}

/// As [`succeeded`], but Invalid Namespace has its own reason; some controllers return Invalid
/// Field.
pub(super) fn namespace_exists(ended: &Ended) -> Result<(), Reason> {
    if ended.status == StatusCode::INVALID_NAMESPACE {
        return Err(Reason::NoSuchNamespace);
    }
    succeeded(ended)
}
