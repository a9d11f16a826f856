//! Operations that complete locally: those without an NVMe encoding, and zone operations on a
//! conventional namespace.

use zonda_zoned::{
    Lba, Outcome, ReportFilter, Status, ZoneAction, ZoneAttributes, ZoneDescriptor, ZoneReport, ZoneState, ZoneTarget,
    ZoneType,
};

use super::{Begin, Namespace, Work};
use crate::reports::{ReportRequest, ReportRounds};

impl Namespace {
    /// Completes zone management that has no NVMe encoding, or that a conventional namespace does
    /// not support.
    pub(super) fn answer_management(&self, action: &ZoneAction, target: ZoneTarget) -> Option<Status> {
        if let ZoneTarget::Zone(lba) = target
            && self.geometry.zone_of(lba).is_none()
        {
            return Some(Status::LbaOutOfRange);
        }
        if let ZoneAction::SetDescriptorExtension { extension, .. } = action {
            let bytes = self.geometry.descriptor_extension_bytes;
            if bytes == 0 || extension.len() != bytes as usize {
                return Some(Status::InvalidField);
            }
        }
        if self.format.zoned {
            return None;
        }
        // A conventional namespace: single zones have no states, and Select All matches none.
        let needs_more = matches!(
            action,
            ZoneAction::SetDescriptorExtension { .. } | ZoneAction::FlushZrwa | ZoneAction::Open { zrwa: true }
        );
        Some(if target == ZoneTarget::All && !needs_more { Status::Success } else { Status::InvalidField })
    }

    pub(super) fn report(&self, request: ReportRequest) -> Result<Begin, Status> {
        self.geometry.zone_of(request.start).ok_or(Status::LbaOutOfRange)?;
        if request.extended && self.geometry.descriptor_extension_bytes == 0 {
            return Err(Status::InvalidField);
        }
        let answer = |report| Ok(Begin::Answer(Status::Success, Outcome::Report(Box::new(report))));
        if request.filter == ReportFilter::State(ZoneState::NotWritePointer) {
            return answer(ZoneReport::default());
        }
        if !self.format.zoned {
            return answer(self.conventional_report(&request));
        }
        let mut rounds = ReportRounds::new(request, &self.report);
        let lasting = !rounds.is_single(&self.report);
        let wire = rounds.command(&self.report);
        Ok(Begin::Send { work: Work::Report(Box::new(rounds)), wire, lasting })
    }

    /// A conventional namespace is one conventional zone that never changes.
    fn conventional_report(&self, request: &ReportRequest) -> ZoneReport {
        if request.filter != ReportFilter::All {
            return ZoneReport::default();
        }
        let zone = ZoneDescriptor {
            zone_type: ZoneType::Conventional,
            state: ZoneState::NotWritePointer,
            attributes: ZoneAttributes::default(),
            capacity_blocks: self.geometry.zone_capacity_blocks,
            start: Lba(0),
            write_pointer: None,
            extension: None,
        };
        let zones: Vec<ZoneDescriptor> = std::iter::once(zone).take(request.descriptors_max as usize).collect();
        ZoneReport { matching_zones: if request.partial { zones.len() as u64 } else { 1 }, zones }
    }
}
