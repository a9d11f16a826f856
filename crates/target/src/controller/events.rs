//! Asynchronous events: pending events, events masked until their log page is read, and outstanding
//! Asynchronous Event Requests.

use std::collections::VecDeque;

use zonda_nvme::features::{AsyncEvent, AsyncEventConfiguration, notices};
use zonda_nvme::log::{LogPage, ReservationNotice, ReservationNotification, warning};
use zonda_nvme::page::Page;
use zonda_nvme::{HostId, Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::limits::CHANGED_ZONES_MAX;
use zonda_zoned::{ChangedZoneList, Instant, NamespaceId, Operation, Outcome, Status};

use super::{Controller, ControllerKey};
use crate::DeviceKey;
use crate::connection::receive::Answer;
use crate::effects::ConnectionId;
use crate::health::DeviceHealth;
use crate::limits::{ASYNC_EVENT_REQUESTS, RESERVATION_NOTICES_MAX};
use crate::subsystems::NamespaceIndex;
use crate::subsystems::SubsystemIndex;
use crate::target::{Owner, Target};

/// Events of one controller. An event is reported once, and masked until its log page has been
/// read.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Command identifiers of the outstanding Asynchronous Event Requests, the oldest first.
    requests: Vec<u16>,
    /// Critical warnings of the SMART log that have not been reported.
    warnings: u8,
    /// The temperature is beyond a threshold that the host has set.
    is_temperature_beyond: bool,
    /// A warning was reported, and the SMART log has not been read since.
    smart_masked: bool,
    /// Namespaces that have changed since the list was read.
    pub(super) changed_namespaces: Vec<NamespaceId>,
    namespaces_pending: bool,
    namespaces_masked: bool,
    /// The discovery log has changed, and the event has not been reported.
    discovery_pending: bool,
    discovery_masked: bool,
    /// Changed zones by namespace, in the order of events.
    zones: Vec<ZoneEvents>,
    reservations: ReservationEvents,
}

/// Reservation notifications that the host has not read.
#[derive(Debug, Default)]
struct ReservationEvents {
    /// The oldest first, each with its number.
    waiting: VecDeque<(u64, NamespaceId, ReservationNotice)>,
    /// Number of the newest one.
    count: u64,
    /// The event was reported, and the host has read no notification since.
    masked: bool,
}

/// Zones of one namespace that the controller has transitioned.
#[derive(Debug)]
struct ZoneEvents {
    namespace: NamespaceId,
    pending: bool,
    /// The event was reported, and the list has not been read since.
    masked: bool,
    /// Zones that devices have reported and the host has not read.
    list: ChangedZoneList,
}

impl Events {
    /// Removes an Asynchronous Event Request; returns whether it was outstanding.
    pub(super) fn withdraw(&mut self, command_id: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|&request| request != command_id);
        self.requests.len() < before
    }

    fn zones_of(&mut self, namespace: NamespaceId) -> &mut ZoneEvents {
        let place = self.zones.iter().position(|events| events.namespace == namespace).unwrap_or_else(|| {
            let list = ChangedZoneList::default();
            self.zones.push(ZoneEvents { namespace, pending: false, masked: false, list });
            self.zones.len() - 1
        });
        &mut self.zones[place]
    }

    /// The next pending event that the host has enabled.
    fn next(&mut self, wants: AsyncEventConfiguration) -> Option<AsyncEvent> {
        if self.warnings != 0 && !self.smart_masked && wants.wants_warning(self.warnings) {
            let warnings = std::mem::take(&mut self.warnings);
            self.smart_masked = true;
            return Some(if warnings & warning::SPARE_LOW != 0 {
                AsyncEvent::spare_below_threshold()
            } else if warnings & !warning::TEMPERATURE == 0 {
                AsyncEvent::temperature_threshold()
            } else {
                AsyncEvent::reliability_degraded()
            });
        }
        if self.namespaces_pending && !self.namespaces_masked && wants.wants(notices::NAMESPACE_ATTRIBUTE) {
            self.namespaces_pending = false;
            self.namespaces_masked = true;
            return Some(AsyncEvent::namespace_attribute_changed());
        }
        if self.discovery_pending && !self.discovery_masked && wants.wants(notices::DISCOVERY_LOG_PAGE) {
            self.discovery_pending = false;
            self.discovery_masked = true;
            return Some(AsyncEvent::discovery_log_changed());
        }
        // The configuration has no bit for these; they are filtered by the notification mask of
        // each namespace.
        if !self.reservations.waiting.is_empty() && !self.reservations.masked {
            self.reservations.masked = true;
            return Some(AsyncEvent::reservation_notification());
        }
        if wants.wants(notices::ZONE_DESCRIPTOR)
            && let Some(events) = self.zones.iter_mut().find(|events| events.pending && !events.masked)
        {
            events.pending = false;
            events.masked = true;
            return Some(AsyncEvent::zone_descriptor_changed(events.namespace));
        }
        None
    }

    /// Unmasks the events of a log page that the host has read.
    pub(super) fn page_read(&mut self, page: LogPage) {
        match page {
            LogPage::Smart => self.smart_masked = false,
            LogPage::ChangedNamespaces => {
                self.namespaces_masked = false;
                // The host has read of every change so far.
                self.namespaces_pending = false;
                self.changed_namespaces.clear();
            }
            LogPage::Discovery => self.discovery_masked = false,
            LogPage::ReservationNotification => {
                self.reservations.waiting.pop_front();
                self.reservations.masked = false;
            }
            _ => {}
        }
    }

    /// The oldest reservation notification that has not been read; an empty page if there is none.
    pub(super) fn reservation_page(&self) -> ReservationNotification {
        let waiting = &self.reservations.waiting;
        waiting.front().map_or_else(ReservationNotification::empty, |&(count, namespace, notice)| {
            ReservationNotification::of(count, notice, namespace, waiting.len() - 1)
        })
    }

    fn add_reservation(&mut self, namespace: NamespaceId, notice: ReservationNotice) {
        let reservations = &mut self.reservations;
        if reservations.waiting.len() == RESERVATION_NOTICES_MAX {
            reservations.waiting.pop_front();
        }
        reservations.count += 1;
        reservations.waiting.push_back((reservations.count, namespace, notice));
    }

    /// A namespace has been added or removed, or its Identify data has changed.
    pub(super) fn note_namespace(&mut self, namespace: NamespaceId) {
        self.namespaces_pending = true;
        if !self.changed_namespaces.contains(&namespace) {
            self.changed_namespaces.push(namespace);
        }
    }

    /// A namespace was removed: drops its events, which another one with this identifier must not
    /// report.
    pub(super) fn forget_namespace(&mut self, namespace: NamespaceId) {
        self.zones.retain(|events| events.namespace != namespace);
        self.reservations.waiting.retain(|&(_, of, _)| of != namespace);
    }

    /// A namespace has only so many zones from now on.
    pub(super) fn truncate_zones(&mut self, namespace: NamespaceId, zone_count: u32) {
        for events in self.zones.iter_mut().filter(|events| events.namespace == namespace) {
            events.list.zones.retain(|zone| zone.0 < zone_count);
        }
    }

    /// The namespaces that it has events or notifications of.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        let of_reservations = self.reservations.waiting.iter().map(|&(_, namespace, _)| namespace);
        self.zones.iter().map(|events| events.namespace).chain(of_reservations)
    }

    /// The changed zones of a namespace. `clear` empties the list and unmasks the event.
    pub(super) fn changed_zones(&mut self, namespace: NamespaceId, clear: bool) -> ChangedZoneList {
        let events = self.zones_of(namespace);
        if !clear {
            return events.list.clone();
        }
        events.masked = false;
        events.pending = false;
        std::mem::take(&mut events.list)
    }

    /// Adds changed zones of a namespace that a device has reported.
    fn add_changed_zones(&mut self, namespace: NamespaceId, news: &ChangedZoneList) {
        let list = &mut self.zones_of(namespace).list;
        list.zones.extend_from_slice(&news.zones);
        list.zones.sort_unstable();
        list.zones.dedup();
        list.overflowed |= news.overflowed || list.zones.len() > CHANGED_ZONES_MAX;
        if list.overflowed {
            list.zones.clear();
        }
    }
}

impl Target {
    /// Zones of a device have transitioned to read only or offline without a command.
    pub fn on_zones_changed(&mut self, _now: Instant, device: DeviceKey) {
        self.raise(device, |events, namespace| events.zones_of(namespace).pending = true);
    }

    /// Reads the changed zones of a device after a command failed with an error that may leave a
    /// zone read only or offline.
    pub(crate) fn suspect_zones(&mut self, place: NamespaceIndex, status: Status) {
        let is_suspect = matches!(status, Status::WriteFault | Status::ZoneIsReadOnly | Status::ZoneIsOffline);
        let namespace = self.subsystems.namespace_mut(place);
        let is_served = !namespace.is_removed() && !self.draining;
        if is_suspect && namespace.format().zoned && !namespace.is_surveyed && is_served {
            namespace.is_surveyed = true;
            self.submit(Owner::Survey(place), place, Operation::ReadChangedZones);
        }
    }

    /// A device has returned its changed zones: notifies hosts, if there are any.
    pub(crate) fn surveyed(&mut self, place: NamespaceIndex, outcome: Outcome) {
        let surveyed = self.subsystems.namespace_mut(place);
        surveyed.is_surveyed = false;
        let (is_removed, zone_count) = (surveyed.is_removed(), surveyed.config().geometry.zone_count);
        let Outcome::ChangedZones(mut news) = outcome else { return };
        // The namespace may have shrunk meanwhile.
        news.zones.retain(|zone| zone.0 < zone_count);
        if !is_removed && (news.overflowed || !news.zones.is_empty()) {
            self.note_changed_zones(place, &news);
            let namespace = self.subsystems.namespace(place);
            let (subsystem, namespace) = (namespace.subsystem(), namespace.id());
            for key in self.controllers.keys() {
                let controller = self.controllers.get_mut(key).expect("the key is in the table");
                if controller.subsystem == Some(subsystem) {
                    controller.events.zones_of(namespace).pending = true;
                    self.report_events(key);
                }
            }
        }
    }

    /// Adds changed zones to the lists of all controllers that have the namespace.
    pub(super) fn note_changed_zones(&mut self, place: NamespaceIndex, news: &ChangedZoneList) {
        let namespace = self.subsystems.namespace(place);
        let (subsystem, namespace) = (namespace.subsystem(), namespace.id());
        for key in self.controllers.keys() {
            let controller = self.controllers.get_mut(key).expect("the key is in the table");
            if controller.subsystem == Some(subsystem) {
                controller.events.add_changed_zones(namespace, news);
            }
        }
    }

    /// The Identify data of a device's namespace, or the commands that it can serve, have changed.
    pub fn on_namespace_changed(&mut self, _now: Instant, device: DeviceKey) {
        self.raise(device, Events::note_namespace);
    }

    /// Sets the health of a device, and reports a new warning to hosts.
    pub fn set_health(&mut self, _now: Instant, device: DeviceKey, health: DeviceHealth) {
        let news = self.subsystems.set_health(device, health);
        if news != 0 {
            self.raise(device, |events, _| events.warnings |= news);
        }
        for key in self.controllers.keys() {
            self.watch_temperature(key);
        }
    }

    /// Notifies hosts of changes of their registrations and reservations of a namespace, unless
    /// they have masked them.
    pub(crate) fn notify_of_reservations(&mut self, place: NamespaceIndex, notices: &[(HostId, ReservationNotice)]) {
        let namespace = self.subsystems.namespace(place);
        if namespace.is_removed() {
            return;
        }
        let (subsystem, namespace) = (namespace.subsystem(), namespace.id());
        for &(host, notice) in notices {
            for key in self.controllers.keys() {
                let controller = self.controllers.get_mut(key).expect("the key is in the table");
                let is_concerned = controller.subsystem == Some(subsystem) && controller.host_id == host;
                if is_concerned && controller.features.reservation_mask(namespace) & notice.mask() == 0 {
                    controller.events.add_reservation(namespace, notice);
                    self.report_events(key);
                }
            }
        }
    }

    /// Warns a host whose threshold the temperature has crossed, once until it is back within the
    /// thresholds.
    pub(super) fn watch_temperature(&mut self, key: ControllerKey) {
        let controller = self.controllers.get(key).expect("the key is in the table");
        let is_beyond = self.is_temperature_beyond(controller);
        let controller = self.controllers.get_mut(key).expect("the controller was just found");
        let is_news = is_beyond && !controller.events.is_temperature_beyond;
        controller.events.is_temperature_beyond = is_beyond;
        if is_news {
            controller.events.warnings |= warning::TEMPERATURE;
            self.report_events(key);
        }
    }

    /// Whether the hottest device of a controller's namespaces is beyond a threshold of its host.
    pub(super) fn is_temperature_beyond(&self, controller: &Controller) -> bool {
        let Some(subsystem) = controller.subsystem.map(|place| &self.subsystems[place]) else { return false };
        let temperatures = subsystem.namespaces().map(|it| self.subsystems.namespace(it).health().temperature_kelvin);
        temperatures.max().is_some_and(|hottest| controller.features.is_beyond_thresholds(hottest.into()))
    }

    /// Asynchronous Event Request: stays outstanding until there is an event to report.
    pub(super) fn async_event_request(
        &mut self,
        key: ControllerKey,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let controller = self.controllers.get_mut(key).expect("a queue's controller exists");
        if controller.events.requests.len() >= ASYNC_EVENT_REQUESTS {
            return Err(StatusCode::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        controller.events.requests.push(entry.command_id.get());
        self.report_events(key);
        Ok(Answer::Later)
    }

    /// Reports pending events to a host, as far as it has outstanding requests.
    pub(super) fn report_events(&mut self, key: ControllerKey) {
        let Some(controller) = self.controllers.get_mut(key) else { return };
        let Some(admin) = controller.admin_queue() else { return };
        let mut events: Vec<(u16, AsyncEvent)> = Vec::new();
        while !controller.events.requests.is_empty()
            && let Some(event) = controller.events.next(controller.features.events)
        {
            events.push((controller.events.requests.remove(0), event));
        }
        self.complete_event_requests(admin, &events);
    }

    fn complete_event_requests(&mut self, admin: ConnectionId, events: &[(u16, AsyncEvent)]) {
        for (command_id, event) in events {
            self.respond(admin, *command_id, StatusCode::SUCCESS, event.encode());
        }
    }

    /// A namespace of a subsystem has been added, removed or changed: notifies hosts.
    pub(crate) fn note_namespace_change(&mut self, subsystem: SubsystemIndex, namespace: NamespaceId) {
        self.with_controllers_of(Some(subsystem), |controller| controller.events.note_namespace(namespace));
    }

    /// A namespace was removed: its events and features end.
    pub(crate) fn forget_namespace(&mut self, subsystem: SubsystemIndex, namespace: NamespaceId) {
        self.with_controllers_of(Some(subsystem), |controller| {
            controller.events.forget_namespace(namespace);
            controller.features.forget_namespace(namespace);
        });
        self.watch_temperatures_of(subsystem);
    }

    /// A namespace has only so many zones from now on.
    pub(crate) fn truncate_changed_zones(&mut self, subsystem: SubsystemIndex, namespace: NamespaceId, zones: u32) {
        self.with_controllers_of(Some(subsystem), |controller| controller.events.truncate_zones(namespace, zones));
    }

    /// The discovery log page of these hosts has changed.
    pub(crate) fn note_discovery_change(&mut self, is_concerned: impl Fn(&Nqn) -> bool) {
        self.subsystems.note_discovery_change();
        self.with_controllers_of(None, |controller| {
            controller.events.discovery_pending |= is_concerned(&controller.host);
        });
    }

    /// Changes the controllers of a subsystem, or of the discovery service (`None`), and reports
    /// the events that they have then.
    fn with_controllers_of(&mut self, subsystem: Option<SubsystemIndex>, change: impl Fn(&mut Controller)) {
        for key in self.controllers.keys() {
            let controller = self.controllers.get_mut(key).expect("the key is in the table");
            if controller.subsystem == subsystem {
                change(controller);
                self.report_events(key);
            }
        }
    }

    fn watch_temperatures_of(&mut self, subsystem: SubsystemIndex) {
        for key in self.controllers.keys() {
            if self.controllers.get(key).is_some_and(|controller| controller.subsystem == Some(subsystem)) {
                self.watch_temperature(key);
            }
        }
    }

    /// Records an event of each namespace of a device with every controller that has it, and
    /// notifies hosts.
    fn raise(&mut self, device: DeviceKey, note: impl Fn(&mut Events, NamespaceId)) {
        for key in self.controllers.keys() {
            let controller = self.controllers.get_mut(key).expect("the key is in the table");
            let mut noted = false;
            for namespace in self.subsystems.of_device(device) {
                if controller.subsystem == Some(namespace.subsystem()) {
                    note(&mut controller.events, namespace.id());
                    noted = true;
                }
            }
            if noted {
                self.report_events(key);
            }
        }
    }
}
