//! Data from the host: in the capsule, or solicited with an R2T.

use bytes::Bytes;
use zonda_nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, DataHeader, DigestCheck, FatalStatus, PduError};
use zonda_nvme::{DataPlace, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;
use zonda_zoned::limits::DEALLOCATE_RANGES_MAX;

use super::receive::{Answer, Needed};
use super::requests::HostBytes;
use super::{Held, Request, TransferTag, Work, host_data_bytes_max};
use crate::effects::ConnectionId;
use crate::limits::SHARED_DATA_BYTES_MIN;
use crate::target::Target;

/// Excess bytes that are accepted: a page, as Linux transfers with every Dataset Management.
const SLACK_BYTES: u32 = (DEALLOCATE_RANGES_MAX * zonda_nvme::io::DATASET_RANGE_BYTES) as u32;

/// Where a command's data is.
#[derive(Debug)]
pub(crate) enum HostData {
    /// It came in the capsule.
    InCapsule(Bytes),
    /// So many bytes are to be solicited with an R2T.
    Solicited(u32),
}

/// Finds a command's data.
pub(crate) fn host_data_of(entry: &SubmissionEntry, capsule: &Bytes, needed: Needed) -> Result<HostData, StatusCode> {
    let place = entry.data_place()?;
    let (DataPlace::InCapsule { length, .. } | DataPlace::Transport { length }) = place;
    let fits = match needed {
        Needed::Exactly(bytes) => length == bytes,
        Needed::AtLeast(bytes) => length >= bytes && length <= bytes.max(SLACK_BYTES),
        Needed::Fabrics => (1..=ADMIN_CAPSULE_DATA_BYTES).contains(&length),
    };
    if !fits {
        return Err(StatusCode::DATA_SGL_LENGTH_INVALID);
    }
    match place {
        DataPlace::Transport { .. } => Ok(HostData::Solicited(length)),
        DataPlace::InCapsule { offset, .. } => {
            let available = capsule.len() as u64;
            if offset > available {
                return Err(StatusCode::SGL_OFFSET_INVALID);
            }
            if u64::from(length) > available - offset {
                return Err(StatusCode::DATA_SGL_LENGTH_INVALID);
            }
            Ok(HostData::InCapsule(own(capsule.slice(offset as usize..(offset + u64::from(length)) as usize))))
        }
    }
}

/// Copies small data: see [`SHARED_DATA_BYTES_MIN`].
fn own(data: Bytes) -> Bytes {
    if data.len() < SHARED_DATA_BYTES_MIN { Bytes::copy_from_slice(&data) } else { data }
}

/// Checks that the host's buffer (SGL) is large enough for a command's data; data for the host
/// never travels in a capsule.
pub(crate) fn check_host_buffer(entry: &SubmissionEntry, bytes: u32, exact: bool) -> Result<(), StatusCode> {
    match entry.data_place()? {
        DataPlace::Transport { length } if length == bytes || (!exact && length > bytes) => Ok(()),
        DataPlace::Transport { .. } => Err(StatusCode::DATA_SGL_LENGTH_INVALID),
        DataPlace::InCapsule { .. } => Err(StatusCode::SGL_DESCRIPTOR_TYPE_INVALID),
    }
}

impl Target {
    /// Gets the data of an admin or Fabrics command, and executes the command once the data is
    /// complete.
    pub(crate) fn with_host_data(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
        capsule: &Bytes,
        needed: Needed,
        now: Instant,
    ) -> Result<Answer, StatusCode> {
        match host_data_of(entry, capsule, needed)? {
            HostData::InCapsule(data) => self.command_with_data(now, id, entry, &data),
            HostData::Solicited(bytes) => {
                let request = Request::new(entry.command_id.get(), Work::Command(Box::new(*entry)));
                self.await_data(now, id, request, bytes);
            }
        }
        Ok(Answer::Later)
    }

    /// Adds a request whose data must be solicited.
    pub(crate) fn await_data(&mut self, now: Instant, id: ConnectionId, mut request: Request, bytes: u32) {
        request.expect_data(bytes);
        let is_held = self.is_held(&request);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(tag) = connection.requests.insert(request) else {
            return self.sequence_error(now, id, &[]);
        };
        if is_held {
            return self.hold(id, tag, Held::BeforeMemory);
        }
        connection.requests.wait_for_memory(tag);
        self.start_waiting(id);
    }

    /// An H2CData PDU.
    pub(crate) fn host_data(
        &mut self,
        now: Instant,
        id: ConnectionId,
        header: &DataHeader,
        data: Bytes,
        digest: DigestCheck,
    ) {
        const COMMAND_ID: u32 = 8;
        const TAG: u32 = 10;
        let tag = TransferTag::from_wire(header.tag.get());
        let offset = header.offset.get();
        let limit = host_data_bytes_max(&self.limits);
        assert!(data.len() <= limit as usize, "the reader checks the length");
        let refuse = |status, information| PduError::new(status, information, header.bytes());
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(request) = connection.requests.get(tag).filter(|request| request.is_soliciting()) else {
            return self.fail(now, id, refuse(FatalStatus::InvalidHeaderField, TAG));
        };
        if request.command_id != header.command_id.get() {
            return self.fail(now, id, refuse(FatalStatus::InvalidHeaderField, COMMAND_ID));
        }
        let (end, expected) = (u64::from(offset) + data.len() as u64, request.incoming_bytes() as u64);
        if offset != request.received_bytes() || end > expected {
            return self.fail(now, id, refuse(FatalStatus::DataOutOfRange, 0));
        }
        if header.is_last() && end != expected {
            return self.fail(now, id, refuse(FatalStatus::InvalidHeaderField, 1));
        }
        self.statistics.bytes_received += data.len() as u64;
        connection.progress.moved(data.len());
        let complete = connection.requests.receive(tag, own(data), digest == DigestCheck::Bad);
        connection.limit_reader(&self.limits);
        let Some(HostBytes { data, digest_failed }) = complete else { return };
        let request = connection.requests.get(tag).expect("the request was just found");
        if digest_failed {
            self.statistics.data_digest_errors += 1;
            return self.end_request(id, tag, StatusCode::TRANSIENT_TRANSPORT_ERROR, 0);
        }
        match &request.work {
            Work::Io { .. } => self.start_io(id, tag, data),
            Work::Command(entry) => {
                let entry = **entry;
                self.release_request(id, tag);
                self.command_with_data(now, id, &entry, &data);
                self.start_waiting(id);
            }
            Work::Removed(_) => self.end_request(id, tag, StatusCode::INVALID_NAMESPACE, 0),
            Work::ChangedZones { .. } => unreachable!("reading a log page has no data from the host"),
        }
    }
}
