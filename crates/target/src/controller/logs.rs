//! Get Log Page.

use bytes::Bytes;
use zonda_nvme::identify::CommandSet;
use zonda_nvme::log::{
    ChangedNamespaceList, ChangedZonePage, CommandEffects, ErrorEntry, FirmwareSlots, GetLogPage, Health, LogPage,
    SmartLog, SupportedLogPages, warning,
};
use zonda_nvme::page::Page;
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_zoned::{Completion, Lba, NamespaceId, Operation, Outcome, Status};

use super::{ALL_NAMESPACES, Controller, ControllerKey, ErrorLocation};
use crate::connection::receive::Answer;
use crate::connection::transfer::check_host_buffer;
use crate::connection::{Request, TransferTag, Work};
use crate::effects::ConnectionId;
use crate::health::DeviceHealth;
use crate::limits::{ERROR_LOG_ENTRIES, LOG_PAGE_BYTES_MAX};
use crate::subsystems::NamespaceIndex;
use crate::target::Target;

const IO_PAGES: [LogPage; 8] = [
    LogPage::SupportedPages,
    LogPage::ErrorInformation,
    LogPage::Smart,
    LogPage::FirmwareSlot,
    LogPage::ChangedNamespaces,
    LogPage::CommandEffects,
    LogPage::ReservationNotification,
    LogPage::ChangedZones,
];
const DISCOVERY_PAGES: [LogPage; 3] = [LogPage::SupportedPages, LogPage::ErrorInformation, LogPage::Discovery];

impl Controller {
    pub(super) fn add_error(&mut self, queue: u16, command_id: u16, status: StatusCode, at: ErrorLocation) {
        self.error_count += 1;
        if self.errors.len() == ERROR_LOG_ENTRIES {
            self.errors.pop_front();
        }
        let field = status.status_field();
        let entry =
            ErrorEntry::of_command(self.error_count, queue, command_id, field, NamespaceId(at.namespace), Lba(at.lba));
        self.errors.push_back(entry);
    }

    fn error_page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(ERROR_LOG_ENTRIES * size_of::<ErrorEntry>());
        for entry in self.errors.iter().rev() {
            page.extend_from_slice(entry.bytes());
        }
        page.resize(ERROR_LOG_ENTRIES * size_of::<ErrorEntry>(), 0);
        page
    }
}

impl Target {
    /// Get Log Page.
    pub(super) fn get_log_page(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let request = request_of(entry);
        let page = LogPage::try_from(request.page).map_err(|_| StatusCode::INVALID_LOG_PAGE)?;
        if request.length_bytes > u64::from(LOG_PAGE_BYTES_MAX) || request.uuid_index != 0 {
            return Err(StatusCode::INVALID_FIELD);
        }
        check_host_buffer(entry, request.length_bytes as u32, false)?;
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        let pages: &[LogPage] = if controller.subsystem.is_some() { &IO_PAGES } else { &DISCOVERY_PAGES };
        if !pages.contains(&page) {
            return Err(StatusCode::INVALID_LOG_PAGE);
        }
        let namespace = entry.namespace.get();
        let bytes = match page {
            LogPage::SupportedPages => SupportedLogPages::of(pages).bytes().to_vec(),
            LogPage::ErrorInformation => controller.error_page(),
            LogPage::Smart => self.smart_page(controller, namespace)?,
            LogPage::FirmwareSlot => {
                let firmware = controller.subsystem.map_or("", |index| &self.subsystems.config_of(index).firmware);
                FirmwareSlots::only(firmware).map_err(|_| StatusCode::INTERNAL_ERROR)?.bytes().to_vec()
            }
            LogPage::ChangedNamespaces => {
                ChangedNamespaceList::of(&controller.events.changed_namespaces).bytes().to_vec()
            }
            LogPage::CommandEffects => self.effects_page(controller, request.command_set)?,
            LogPage::Discovery => {
                let reached_at = self.connections.get(id).and_then(|connection| connection.local.as_deref());
                self.subsystems.discovery_page(&controller.host, controller.portal, reached_at)
            }
            LogPage::ReservationNotification => controller.events.reservation_page().bytes().to_vec(),
            LogPage::ChangedZones => return self.read_changed_zones(id, key, entry),
        };
        let data = window_of(&request, &bytes)?;
        self.respond_with_data(id, entry.command_id.get(), &[data], 0);
        if !request.retain_event {
            let controller = self.controllers.get_mut(key).expect("the controller was just found");
            controller.events.page_read(page);
            self.report_events(key);
        }
        Ok(Answer::Later)
    }

    fn effects_page(&self, controller: &Controller, command_set: u8) -> Result<Vec<u8>, StatusCode> {
        let zoned = self.subsystems.has_zones(controller.subsystem);
        let set = CommandSet::try_from(command_set)
            .ok()
            .filter(|&set| set != CommandSet::Zoned || zoned)
            .ok_or(StatusCode::INVALID_FIELD)?;
        Ok(CommandEffects::of(set).ok_or(StatusCode::INVALID_FIELD)?.bytes().to_vec())
    }

    /// SMART of one namespace or, with 0 or FFFFFFFFh, of all.
    fn smart_page(&self, controller: &Controller, namespace: u32) -> Result<Vec<u8>, StatusCode> {
        let place = controller.subsystem.ok_or(StatusCode::INVALID_LOG_PAGE)?;
        // Per-namespace health is not supported (LPA bit 0), but a valid identifier is no error.
        if !matches!(namespace, 0 | ALL_NAMESPACES) && self.subsystems[place].namespace(namespace).is_none() {
            return Err(StatusCode::INVALID_NAMESPACE);
        }
        let mut health = Health {
            spare_percent: 100,
            spare_threshold_percent: DeviceHealth::SPARE_THRESHOLD_PERCENT,
            error_log_entries: controller.error_count.into(),
            ..Health::default()
        };
        if self.is_temperature_beyond(controller) {
            health.warnings |= warning::TEMPERATURE;
        }
        for namespace in self.subsystems[place].namespaces() {
            let device = self.subsystems.namespace(namespace).health();
            health.warnings |= device.warnings();
            health.temperature_kelvin = health.temperature_kelvin.max(device.temperature_kelvin);
            health.spare_percent = health.spare_percent.min(device.spare_percent);
            health.used_percent = health.used_percent.max(device.used_percent);
            health.power_cycles = health.power_cycles.max(device.power_cycles.into());
            health.power_on_hours = health.power_on_hours.max(device.power_on_hours.into());
            health.unsafe_shutdowns += u128::from(device.unsafe_shutdowns);
        }
        for counts in self.subsystems.statistics_of(place) {
            health.read_bytes += u128::from(counts.read_bytes);
            health.written_bytes += u128::from(counts.written_bytes);
            health.read_commands += u128::from(counts.reads);
            health.write_commands += u128::from(counts.writes);
            health.media_errors += u128::from(counts.media_errors);
        }
        Ok(SmartLog::of(&health).bytes().to_vec())
    }

    /// Changed Zone List: reads the new changes from the device first.
    fn read_changed_zones(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        let namespace = self
            .subsystems
            .namespace_of(controller.subsystem, entry.namespace.get())
            .ok_or(StatusCode::INVALID_NAMESPACE)?;
        if !self.subsystems.namespace(namespace).format().zoned {
            return Err(StatusCode::INVALID_FIELD);
        }
        if self.subsystems.namespace(namespace).is_paused() {
            return self.known_changed_zones(id, key, entry, namespace);
        }
        let work = Work::ChangedZones { entry: Box::new(*entry), namespace };
        let request = Request::new(entry.command_id.get(), work);
        let connection = self.connections.get_mut(id).expect("a connection that sends a command exists");
        let tag = connection.requests.insert(request).ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        self.submit_for_request(id, tag, namespace, Operation::ReadChangedZones);
        Ok(Answer::Later)
    }

    /// Changed Zone List of a paused namespace: the changes that the target already has.
    fn known_changed_zones(
        &mut self,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
        place: NamespaceIndex,
    ) -> Result<Answer, StatusCode> {
        let request = request_of(entry);
        let namespace = self.subsystems.namespace(place).id();
        let controller = self.controllers.get_mut(key).expect("a queue's controller exists");
        let list = controller.events.changed_zones(namespace, false);
        let data =
            window_of(&request, ChangedZonePage::of(&list, self.subsystems.namespace(place).geometry()).bytes())?;
        if !request.retain_event {
            let controller = self.controllers.get_mut(key).expect("the controller was just found");
            controller.events.changed_zones(namespace, true);
        }
        self.respond_with_data(id, entry.command_id.get(), &[data], 0);
        Ok(Answer::Later)
    }

    /// The device has returned its changed zones: adds them to the lists of all controllers that
    /// have the namespace, and returns this controller's.
    pub(crate) fn changed_zones_read(&mut self, id: ConnectionId, tag: TransferTag, completion: Completion) {
        let connection = self.connections.get(id).expect("a request's connection exists");
        let Some(Request { work: Work::ChangedZones { entry, namespace }, .. }) = connection.requests.get(tag) else {
            unreachable!("the request is for changed zones")
        };
        let (entry, place) = (**entry, *namespace);
        let key = connection.controller().expect("a request belongs to a queue");
        let Outcome::ChangedZones(mut news) = completion.outcome else {
            let status = if completion.status == Status::Success { Status::InternalError } else { completion.status };
            return self.end_request(id, tag, status.into(), 0);
        };
        let request = request_of(&entry);
        let list = if self.subsystems.namespace(place).is_removed() {
            // The lists of controllers are of another namespace with this identifier, if any.
            *news
        } else {
            let zone_count = self.subsystems.namespace(place).geometry().zone_count;
            news.zones.retain(|zone| zone.0 < zone_count);
            self.note_changed_zones(place, &news);
            let namespace = self.subsystems.namespace(place).id();
            let controller = self.controllers.get_mut(key).expect("a queue's controller exists");
            controller.events.changed_zones(namespace, !request.retain_event)
        };
        let page = ChangedZonePage::of(&list, self.subsystems.namespace(place).geometry());
        match window_of(&request, page.bytes()) {
            Ok(data) => self.end_request_with_data(id, tag, &[data]),
            Err(status) => self.end_request(id, tag, status, 0),
        }
    }
}

fn request_of(entry: &SubmissionEntry) -> GetLogPage {
    GetLogPage::decode([&entry.cdw10, &entry.cdw11, &entry.cdw12, &entry.cdw13, &entry.cdw14].map(|dword| dword.get()))
}

/// The part of a page that was requested, with zeros after the page's end.
fn window_of(request: &GetLogPage, page: &[u8]) -> Result<Bytes, StatusCode> {
    let window = request.window(page).ok_or(StatusCode::INVALID_FIELD)?;
    let mut data = window.to_vec();
    data.resize(request.length_bytes as usize, 0);
    Ok(data.into())
}
