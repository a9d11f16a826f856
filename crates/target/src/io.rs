//! I/O commands: from the capsule to the device, and from its completion to the host.

use bytes::Bytes;
use zonda_nvme::io::{self, IoRequest, Transfer};
use zonda_nvme::reservation::ReservationCommand;
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_zoned::{Completion, Instant, Operation, Outcome, Status};

use crate::compare;
use crate::connection::receive::{Answer, Needed};
use crate::connection::transfer::{HostData, check_host_buffer, host_data_of};
use crate::connection::{Held, Request, Stage, TransferTag, Work};
use crate::controller::ControllerKey;
use crate::effects::ConnectionId;
use crate::read_data::{read_pieces, report_bytes};
use crate::subsystems::NamespaceIndex;
use crate::target::{CommandKey, Owner, Target};

impl Target {
    /// An I/O command on a connected I/O queue.
    #[inline]
    pub(crate) fn io_command(
        &mut self,
        now: Instant,
        id: ConnectionId,
        controller: ControllerKey,
        entry: &SubmissionEntry,
        capsule: &Bytes,
    ) {
        match ReservationCommand::decode(entry) {
            Ok(None) => {}
            Ok(Some(command)) => return self.take_reservation(now, id, controller, entry, &command, capsule),
            Err(status) => return self.refuse(id, entry, status),
        }
        match self.accept_io(controller, entry, capsule) {
            Ok((request, data)) => self.take_io(now, id, request, data),
            Err(status) => self.refuse(id, entry, status),
        }
    }

    /// Checks an I/O command, and finds its data.
    fn accept_io(
        &self,
        controller: ControllerKey,
        entry: &SubmissionEntry,
        capsule: &Bytes,
    ) -> Result<(Request, HostData), StatusCode> {
        let controller = self.controllers.get(controller).expect("a queue's controller exists");
        if !controller.takes_io() {
            return Err(StatusCode::COMMAND_SEQUENCE_ERROR);
        }
        let namespace = self
            .subsystems
            .namespace_of(controller.subsystem(), entry.namespace.get())
            .ok_or(StatusCode::INVALID_NAMESPACE)?;
        let format = self.subsystems.namespace(namespace).format();
        if format.zoned && !controller.has_zones() {
            return Err(StatusCode::IO_COMMAND_SET_NOT_ENABLED);
        }
        let request = io::decode(entry, format)?;
        self.permits(controller.host_id, namespace, &request)?;
        if self.subsystems.namespace(namespace).is_write_protected() && changes(&request) {
            return Err(StatusCode::NAMESPACE_WRITE_PROTECTED);
        }
        let mut taken = Request::io(entry.command_id.get(), request, namespace);
        let data = match request.transfer(format) {
            Transfer::None => HostData::InCapsule(Bytes::new()),
            Transfer::ToHost(bytes) => {
                check_host_buffer(entry, bytes, matches!(request, IoRequest::Read { .. }))?;
                taken.expect_out(bytes);
                HostData::InCapsule(Bytes::new())
            }
            Transfer::FromHost(bytes) => {
                if matches!(request, IoRequest::Compare { .. }) {
                    taken.add_scratch(bytes as usize);
                }
                let needed = if request.takes_longer_data() { Needed::AtLeast(bytes) } else { Needed::Exactly(bytes) };
                host_data_of(entry, capsule, needed)?
            }
        };
        Ok((taken, data))
    }

    fn take_reservation(
        &mut self,
        now: Instant,
        id: ConnectionId,
        controller: ControllerKey,
        entry: &SubmissionEntry,
        command: &ReservationCommand,
        capsule: &Bytes,
    ) {
        let controller = self.controllers.get(controller).expect("a queue's controller exists");
        let answer = if controller.takes_io() {
            self.reservation_command(now, id, entry, command, capsule)
        } else {
            Err(StatusCode::COMMAND_SEQUENCE_ERROR)
        };
        match answer {
            Ok(Answer::Later) => {}
            Ok(Answer::Now(result)) => self.respond(id, entry.command_id.get(), StatusCode::SUCCESS, result),
            Err(status) => self.refuse(id, entry, status),
        }
    }

    fn take_io(&mut self, now: Instant, id: ConnectionId, mut request: Request, data: HostData) {
        match data {
            HostData::Solicited(bytes) => self.await_data(now, id, request, bytes),
            HostData::InCapsule(data) => {
                let is_held = self.is_held(&request);
                let Some(connection) = self.connections.get_mut(id) else { return };
                request.add_scratch(data.len());
                let waits = request.returns_data();
                match connection.requests.insert(request) {
                    Some(tag) if waits && is_held => self.hold(id, tag, Held::BeforeMemory),
                    Some(tag) if waits => {
                        connection.requests.wait_for_memory(tag);
                        self.start_waiting(id);
                    }
                    Some(tag) => {
                        connection.requests.start_at_once(tag);
                        self.start_io(id, tag, data);
                    }
                    None => self.sequence_error(now, id, &[]),
                }
            }
        }
    }

    /// Submits an I/O command whose data is complete to its device.
    pub(crate) fn start_io(&mut self, id: ConnectionId, tag: TransferTag, data: Bytes) {
        let request = self.request_mut(id, tag);
        let Some(Request { work: Work::Io { request, namespace, .. }, .. }) = request else {
            unreachable!("an I/O command that starts is in the table");
        };
        let (place, io) = (*namespace, *request);
        if self.subsystems.namespace(place).is_paused() {
            let request = self.request_mut(id, tag);
            request.expect("the request was just found").keep(data);
            return self.hold(id, tag, Held::WithData);
        }
        // While the command waited for its data or for memory, another host may have preempted this
        // one.
        if let Err(status) = self.still_permits(id, place, &io) {
            return self.end_request(id, tag, status, 0);
        }
        let request = self.connections.get_mut(id).and_then(|connection| connection.requests.get_mut(tag));
        let Some(Request { work: Work::Io { request, stage, compare, .. }, .. }) = request else {
            unreachable!("the request was just found");
        };
        let served = self.subsystems.namespace(place);
        if matches!(request, IoRequest::Compare { .. }) {
            *compare = data.clone();
        }
        let operation = if reads(request) && request.force_unit_access() && served.config().volatile_write_cache {
            // The data that a read or a compare with FUA returns must be durable.
            *stage = Stage::FlushBefore;
            Ok(Some(Operation::Flush))
        } else {
            request.into_operation(data, served.format())
        };
        match operation {
            Ok(Some(operation)) => self.submit_for_request(id, tag, place, operation),
            Ok(None) => self.end_request(id, tag, StatusCode::SUCCESS, 0),
            Err(status) => self.end_request(id, tag, status, 0),
        }
    }

    /// Submits a command of a request to the device.
    pub(crate) fn submit_for_request(
        &mut self,
        id: ConnectionId,
        tag: TransferTag,
        namespace: NamespaceIndex,
        operation: Operation,
    ) {
        let key = self.submit(Owner::Request(id, tag), namespace, operation);
        self.request_mut(id, tag).expect("a request that is submitted is in the table").submitted(key);
    }

    pub(crate) fn request(&self, id: ConnectionId, tag: TransferTag) -> Option<&Request> {
        self.connections.get(id)?.requests.get(tag)
    }

    #[inline]
    pub(crate) fn request_mut(&mut self, id: ConnectionId, tag: TransferTag) -> Option<&mut Request> {
        self.connections.get_mut(id)?.requests.get_mut(tag)
    }

    /// A device has completed a command of a request.
    #[inline]
    pub(crate) fn device_completed(
        &mut self,
        id: ConnectionId,
        tag: TransferTag,
        key: CommandKey,
        completion: Completion,
    ) {
        let request = self.request_mut(id, tag);
        let request = request.expect("a command whose request was removed has no owner");
        request.device_completed(key);
        let (io, place, stage) = match &mut request.work {
            Work::Io { request, namespace, stage, result, .. } => {
                if let Outcome::Appended(lba) = completion.outcome {
                    *result = lba.0;
                }
                (*request, *namespace, *stage)
            }
            Work::ChangedZones { .. } => return self.changed_zones_read(id, tag, completion),
            Work::Command(_) | Work::Removed(_) => unreachable!("these are not submitted to devices"),
        };
        if completion.status != Status::Success {
            let statistics = &mut self.subsystems.namespace_mut(place).statistics;
            statistics.errors += 1;
            statistics.media_errors += u64::from(completion.status.code_type() == 2);
            self.suspect_zones(place, completion.status);
            return self.end_request(id, tag, completion.status.into(), 0);
        }
        match stage {
            // A preemption that waited for the flush completes before the read starts.
            Stage::FlushBefore => match self.still_permits(id, place, &io) {
                Ok(()) => self.next_stage(id, tag, place, Stage::Itself, io),
                Err(status) => self.end_request(id, tag, status, 0),
            },
            Stage::Itself if io.force_unit_access() && self.needs_flush(place, &io) => {
                self.next_stage(id, tag, place, Stage::FlushAfter, io);
            }
            Stage::Itself | Stage::FlushAfter => self.io_succeeded(id, tag, place, io, completion.outcome),
        }
    }

    /// Whether FUA needs a flush, because the device has a volatile write cache.
    fn needs_flush(&self, namespace: NamespaceIndex, io: &IoRequest) -> bool {
        self.subsystems.namespace(namespace).config().volatile_write_cache && !reads(io)
    }

    fn next_stage(
        &mut self,
        id: ConnectionId,
        tag: TransferTag,
        namespace: NamespaceIndex,
        next: Stage,
        io: IoRequest,
    ) {
        let operation = match (next, io) {
            (Stage::Itself, IoRequest::Read { start, blocks, .. } | IoRequest::Compare { start, blocks, .. }) => {
                Operation::Read { start, blocks }
            }
            _ => Operation::Flush,
        };
        self.submit_for_request(id, tag, namespace, operation);
        if let Some(Request { work: Work::Io { stage, .. }, .. }) = self.request_mut(id, tag) {
            *stage = next;
        }
    }

    /// Completes an I/O command that the device has executed.
    fn io_succeeded(
        &mut self,
        id: ConnectionId,
        tag: TransferTag,
        place: NamespaceIndex,
        io: IoRequest,
        outcome: Outcome,
    ) {
        let served = self.subsystems.namespace_mut(place);
        let format = *served.format();
        let statistics = &mut served.statistics;
        let data_bytes = |blocks: zonda_zoned::Blocks| blocks.bytes(format.block_size_bytes);
        match io {
            IoRequest::Read { blocks, .. } => {
                statistics.reads += 1;
                statistics.read_bytes += data_bytes(blocks);
                match read_pieces(outcome, blocks, &format) {
                    Some(pieces) => self.end_request_with_data(id, tag, &pieces),
                    None => self.end_request(id, tag, StatusCode::INTERNAL_ERROR, 0),
                }
            }
            IoRequest::Compare { blocks, .. } => {
                statistics.reads += 1;
                statistics.read_bytes += data_bytes(blocks);
                let found = read_pieces(outcome, blocks, &format);
                let status = match (found, self.host_copy(id, tag)) {
                    (Some(found), host) if compare::same(&found, &host) => StatusCode::SUCCESS,
                    (Some(_), _) => StatusCode::COMPARE_FAILURE,
                    (None, _) => StatusCode::INTERNAL_ERROR,
                };
                self.end_request(id, tag, status, 0);
            }
            IoRequest::Write { blocks, .. } | IoRequest::Append { blocks, .. } => {
                statistics.writes += 1;
                statistics.written_bytes += data_bytes(blocks);
                let result = self.result_of(id, tag);
                self.end_request(id, tag, StatusCode::SUCCESS, result);
            }
            IoRequest::ReportZones { bytes, extended, partial, .. } => {
                statistics.others += 1;
                match report_bytes(outcome, bytes, extended, partial, self.subsystems.namespace(place).geometry()) {
                    Some(report) => self.end_request_with_data(id, tag, &[report]),
                    None => self.end_request(id, tag, StatusCode::INTERNAL_ERROR, 0),
                }
            }
            IoRequest::WriteZeroes { .. }
            | IoRequest::Flush
            | IoRequest::DatasetManagement { .. }
            | IoRequest::ManageZones { .. } => {
                statistics.others += 1;
                self.end_request(id, tag, StatusCode::SUCCESS, 0);
            }
        }
    }

    /// The host's data of a compare.
    fn host_copy(&self, id: ConnectionId, tag: TransferTag) -> Bytes {
        match self.request(id, tag) {
            Some(Request { work: Work::Io { compare, .. }, .. }) => compare.clone(),
            _ => unreachable!("a compare that completes is in the table"),
        }
    }

    /// DW0 and DW1 of an I/O command's completion.
    fn result_of(&self, id: ConnectionId, tag: TransferTag) -> u64 {
        match self.request(id, tag) {
            Some(Request { work: Work::Io { result, .. }, .. }) => *result,
            _ => unreachable!("a write that completes is in the table"),
        }
    }
}

/// Whether a request reads data from the device.
fn reads(request: &IoRequest) -> bool {
    matches!(request, IoRequest::Read { .. } | IoRequest::Compare { .. })
}

/// Whether a write protected namespace refuses a request. Every Zone Management Send may change the
/// state of a zone. A Dataset Management without deallocation is only a hint.
fn changes(request: &IoRequest) -> bool {
    match request {
        IoRequest::Write { .. }
        | IoRequest::Append { .. }
        | IoRequest::WriteZeroes { .. }
        | IoRequest::ManageZones { .. }
        | IoRequest::DatasetManagement { deallocate: true, .. } => true,
        IoRequest::Read { .. }
        | IoRequest::Compare { .. }
        | IoRequest::ReportZones { .. }
        | IoRequest::Flush
        | IoRequest::DatasetManagement { deallocate: false, .. } => false,
    }
}
