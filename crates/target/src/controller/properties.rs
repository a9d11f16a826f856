//! Controller properties: capabilities, and the enabling, reset and shutdown of a controller.

use zonda_nvme::fabrics::{Capabilities, Configuration, ControllerStatus, Property, PropertyCommand, VERSION_2_0};
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_zoned::{Instant, Operation};

use super::{Controller, ControllerKey, events::Events, features::Features};
use crate::connection::Reply;
use crate::subsystems::NamespaceIndex;
use crate::target::{Owner, Target};

/// CAP.TO: the controller is ready at once; hosts wait up to 7.5 s for it all the same.
const READY_TIMEOUT_500MS: u8 = 15;

impl Target {
    /// Property Get.
    pub(crate) fn property_get(&self, key: ControllerKey, entry: &SubmissionEntry) -> Reply {
        let command = PropertyCommand::from(*entry);
        let property = property_of(&command)?;
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        Ok(match property {
            Property::Capabilities => self.capabilities(controller).value(),
            Property::Version => VERSION_2_0.into(),
            Property::Configuration => controller.configuration.0.into(),
            Property::Status => controller.status.0.into(),
            Property::ReadyTimeouts => READY_TIMEOUT_500MS.into(),
            Property::SubsystemReset => return Err(StatusCode::INVALID_FIELD),
        })
    }

    /// Property Set.
    pub(crate) fn property_set(&mut self, now: Instant, key: ControllerKey, entry: &SubmissionEntry) -> Reply {
        let command = PropertyCommand::from(*entry);
        match property_of(&command)? {
            Property::Configuration => {
                self.configure(now, key, Configuration(command.value.get() as u32));
                Ok(0)
            }
            _ => Err(StatusCode::INVALID_FIELD),
        }
    }

    /// A flush of a shutdown has completed, or none was needed.
    pub(crate) fn shutdown_progress(&mut self, key: ControllerKey) {
        let Some(controller) = self.controllers.get_mut(key) else { return };
        controller.flushes -= 1;
        if controller.flushes == 0 && controller.status.0 & ControllerStatus::SHUTDOWN_IN_FLIGHT != 0 {
            controller.status.0 &= !ControllerStatus::SHUTDOWN_IN_FLIGHT;
            controller.status.0 |= ControllerStatus::SHUTDOWN_COMPLETE;
        }
    }

    fn capabilities(&self, controller: &Controller) -> Capabilities {
        let zoned = self.subsystems.has_zones(controller.subsystem);
        Capabilities {
            queue_entries_max: self.limits.queue_entries - 1,
            ready_timeout_500ms: READY_TIMEOUT_500MS,
            nvm_command_set: true,
            all_command_sets: zoned,
            no_io_command_set: false,
            // With a bit set here Linux would enable controllers independently of their media,
            // without a benefit.
            ready_modes: 0,
        }
    }

    /// CC was written.
    fn configure(&mut self, now: Instant, key: ControllerKey, new: Configuration) {
        let Some(controller) = self.controllers.get(key) else { return };
        let old = controller.configuration;
        let acceptable = self.accepts(controller, new);
        let controller = self.controllers.get_mut(key).expect("the controller was just found");
        controller.configuration = new;
        if new.is_enabled() && !old.is_enabled() {
            controller.status.0 = if acceptable { ControllerStatus::READY } else { ControllerStatus::FATAL };
        }
        let notified = new.shutdown_notification() != 0 && old.shutdown_notification() == 0;
        if !new.is_enabled() && old.is_enabled() {
            self.reset(now, key);
        }
        if notified {
            self.shut_down_controller(key);
        }
    }

    /// Whether a controller can be enabled with a configuration.
    fn accepts(&self, controller: &Controller, new: Configuration) -> bool {
        let capabilities = self.capabilities(controller);
        let command_set = match new.command_set() {
            Configuration::CSS_NVM => true,
            // Linux requests all command sets only where they are offered; a discovery controller
            // has no I/O queues.
            Configuration::CSS_ALL => capabilities.all_command_sets || controller.subsystem.is_none(),
            Configuration::CSS_ADMIN_ONLY => controller.subsystem.is_none(),
            _ => false,
        };
        // Entry sizes apply to I/O queues only.
        let sizes = new.submission_entry_size() == 6 && new.completion_entry_size() == 4;
        command_set && (sizes || controller.subsystem.is_none()) && new.page_size() == 0 && new.arbitration() == 0
    }

    /// EN was cleared: closes the I/O queues, and resets the features.
    fn reset(&mut self, now: Instant, key: ControllerKey) {
        self.close_io_queues(now, key);
        let Some(controller) = self.controllers.get_mut(key) else { return };
        let admin = controller.admin_queue();
        controller.status = ControllerStatus::default();
        controller.features = Features::new();
        controller.events = Events::default();
        if let Some(admin) = admin {
            self.reservation_requests.abort_all_of(admin);
        }
    }

    /// SHN was set: flushes volatile data, then completes the shutdown.
    fn shut_down_controller(&mut self, key: ControllerKey) {
        let Some(controller) = self.controllers.get_mut(key) else { return };
        controller.status.0 &= !ControllerStatus::SHUTDOWN_COMPLETE;
        controller.status.0 |= ControllerStatus::SHUTDOWN_IN_FLIGHT;
        let volatile: Vec<NamespaceIndex> = match controller.subsystem {
            Some(place) => self.subsystems[place]
                .namespaces()
                .filter(|&namespace| self.subsystems.namespace(namespace).config().volatile_write_cache)
                .collect(),
            None => Vec::new(),
        };
        // One more than the flushes, removed once all are submitted.
        controller.flushes += 1;
        for namespace in volatile {
            let served = self.subsystems.namespace_mut(namespace);
            if !served.is_paused() {
                self.submit(Owner::Shutdown(key), namespace, Operation::Flush);
            } else if !served.hold_shutdown(key) {
                continue;
            }
            self.controllers.get_mut(key).expect("the controller was just found").flushes += 1;
        }
        self.shutdown_progress(key);
    }
}

/// The property that a command names, if the size is right.
fn property_of(command: &PropertyCommand) -> Result<Property, StatusCode> {
    let property = Property::at(command.offset.get()).ok_or(StatusCode::INVALID_FIELD)?;
    let size_bytes = if command.size & 0b111 == 1 { 8 } else { 4 };
    if command.size & 0b111 > 1 || size_bytes != property.size_bytes() {
        return Err(StatusCode::INVALID_FIELD);
    }
    Ok(property)
}
