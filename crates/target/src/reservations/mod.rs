//! Reservations: which hosts may use a namespace that they share.
//!
//! [`table::Reservations`] implements the rules for one namespace. This module has the commands
//! that change it, the check of I/O commands against it, and the wait for commands in flight. A
//! reservation lasts as long as the target, unless the namespace's Persist Through Power Loss state
//! is set: see [`persistence`].

mod fences;
mod persistence;
mod requests;
mod table;
#[cfg(test)]
mod table_tests;

use bytes::Bytes;
use zonda_nvme::io::{IoRequest, Transfer};
use zonda_nvme::reservation::{
    CONTROLLER_ID_NONE, RegisteredController, ReservationCommand, ReservationKeys, ReservationStatus,
};
use zonda_nvme::{HostId, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

pub(crate) use persistence::{Persistence, restore};
pub(crate) use requests::{ReservationRequestKey, ReservationRequests};
pub(crate) use table::{Access, Reservations};

use crate::DeviceKey;
use crate::connection::receive::{Answer, Needed};
use crate::connection::transfer::check_host_buffer;
use crate::effects::ConnectionId;
use crate::limits::LOG_PAGE_BYTES_MAX;
use crate::subsystems::NamespaceIndex;
use crate::target::Target;
use persistence::ReservationAction;

impl Target {
    /// A reservation command on an I/O queue. Its keys may not have been received yet.
    pub(crate) fn reservation_command(
        &mut self,
        now: Instant,
        id: ConnectionId,
        entry: &SubmissionEntry,
        command: &ReservationCommand,
        capsule: &Bytes,
    ) -> Result<Answer, StatusCode> {
        match (command, command.transfer()) {
            (ReservationCommand::Report { bytes, extended }, _) => {
                self.report_reservations(id, entry, *bytes, *extended)
            }
            (_, Transfer::FromHost(bytes)) => self.with_host_data(id, entry, capsule, Needed::AtLeast(bytes), now),
            (_, Transfer::None | Transfer::ToHost(_)) => unreachable!("commands other than a report bring keys"),
        }
    }

    /// The keys of a command have been received.
    pub(crate) fn reserve(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
        data: &Bytes,
    ) -> Result<Answer, StatusCode> {
        let command = ReservationCommand::decode(entry)?.ok_or(StatusCode::INVALID_OPCODE)?;
        let (place, host) = self.namespace_and_host(id, entry)?;
        let action = ReservationAction::Command { command, keys: ReservationKeys::read(data), host };
        self.change_reservations(id, entry, &[place], action)
    }

    /// The access of unregistered hosts to a device, over all its namespaces. It changes only when
    /// [`reservation_changes`](Target::reservation_changes) does.
    #[must_use]
    pub fn unregistered_access(&self, device: DeviceKey) -> UnregisteredAccess {
        self.subsystems.of_device(device).fold(UnregisteredAccess::ALL, |all, namespace| {
            // A host over Fabrics never has this identifier.
            let permits = |access| namespace.reservations().permits(HostId([0; 16]), access);
            UnregisteredAccess {
                reads: all.reads && permits(Access::Read),
                writes: all.writes && permits(Access::Write),
            }
        })
    }

    /// How often reservations have changed since the target was created.
    #[must_use]
    pub fn reservation_changes(&self) -> u64 {
        self.subsystems.reservation_changes()
    }

    /// Checks a command of a host against the reservation of a namespace.
    #[inline]
    pub(crate) fn permits(
        &self,
        host: HostId,
        namespace: NamespaceIndex,
        request: &IoRequest,
    ) -> Result<(), StatusCode> {
        if self.subsystems.namespace(namespace).reservations().permits(host, access_of(request)) {
            Ok(())
        } else {
            Err(StatusCode::RESERVATION_CONFLICT)
        }
    }

    /// The same for a command that was accepted earlier and is submitted to the device now.
    #[inline]
    pub(crate) fn still_permits(
        &self,
        id: ConnectionId,
        place: NamespaceIndex,
        request: &IoRequest,
    ) -> Result<(), StatusCode> {
        if self.subsystems.namespace(place).reservations().kind().is_none() {
            return Ok(());
        }
        let host = self.host_of(id).expect("only a connected queue has I/O commands");
        self.permits(host, place, request)
    }

    /// The host of a connected queue.
    pub(crate) fn host_of(&self, id: ConnectionId) -> Option<HostId> {
        let controller = self.connections.get(id)?.controller()?;
        self.controllers.get(controller).map(|controller| controller.host_id)
    }

    fn report_reservations(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
        bytes: u64,
        extended: bool,
    ) -> Result<Answer, StatusCode> {
        // Hosts over Fabrics have identifiers of 128 bits, which do not fit the short form (NVMe
        // Base 2.0, section 7.4).
        if !extended {
            return Err(StatusCode::HOST_ID_INCONSISTENT_FORMAT);
        }
        let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= LOG_PAGE_BYTES_MAX);
        let bytes = bytes.ok_or(StatusCode::INVALID_FIELD)?;
        check_host_buffer(entry, bytes, false)?;
        let (place, _) = self.namespace_and_host(id, entry)?;
        let mut report = self.reservation_status(place).to_bytes(extended);
        report.resize(bytes as usize, 0);
        self.respond_with_data(id, entry.command_id.get(), &[report.into()], 0);
        Ok(Answer::Later)
    }

    /// The registrants of a namespace with their controllers, and the reservation.
    fn reservation_status(&self, place: NamespaceIndex) -> ReservationStatus {
        let namespace = self.subsystems.namespace(place);
        let reservations = namespace.reservations();
        let mut controllers = Vec::new();
        for registrant in reservations.registrants() {
            let of_controller = |controller_id| RegisteredController {
                controller_id,
                host: registrant.host,
                key: registrant.key,
                is_holder: reservations.is_holder(registrant.host),
            };
            let before = controllers.len();
            let all = self.controllers.of(Some(namespace.subsystem()));
            let own = all.filter(|controller| controller.host_id == registrant.host);
            controllers.extend(own.map(|controller| of_controller(controller.id)));
            if controllers.len() == before {
                controllers.push(of_controller(CONTROLLER_ID_NONE));
            }
        }
        ReservationStatus {
            generation: reservations.generation(),
            kind: reservations.kind(),
            persists: reservations.persists(),
            controllers,
        }
    }

    /// The index of the namespace that a command names, and the host that sent it.
    fn namespace_and_host(
        &self,
        id: ConnectionId,
        entry: &SubmissionEntry,
    ) -> Result<(NamespaceIndex, HostId), StatusCode> {
        let controller = self.connections.get(id).and_then(|connection| connection.controller());
        let controller = controller.and_then(|key| self.controllers.get(key)).expect("a queue's controller exists");
        let place = self
            .subsystems
            .namespace_of(controller.subsystem(), entry.namespace.get())
            .ok_or(StatusCode::INVALID_NAMESPACE)?;
        Ok((place, controller.host_id))
    }
}

/// The access that a reservation leaves to unregistered hosts; servers of other protocols restrict
/// their clients to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnregisteredAccess {
    /// They may read.
    pub reads: bool,
    /// They may write.
    pub writes: bool,
}

impl UnregisteredAccess {
    /// There is no reservation.
    pub const ALL: UnregisteredAccess = UnregisteredAccess { reads: true, writes: true };
    /// They may do nothing.
    pub const NONE: UnregisteredAccess = UnregisteredAccess { reads: false, writes: false };
}

/// The access of a command, as reservations distinguish commands.
#[inline]
fn access_of(request: &IoRequest) -> Access {
    match request {
        IoRequest::Read { .. } | IoRequest::Compare { .. } | IoRequest::ReportZones { .. } => Access::Read,
        IoRequest::Write { .. }
        | IoRequest::Append { .. }
        | IoRequest::WriteZeroes { .. }
        | IoRequest::Flush
        | IoRequest::DatasetManagement { .. }
        | IoRequest::ManageZones { .. } => Access::Write,
    }
}
