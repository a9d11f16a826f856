//! Zone Management Receive (3.4.2), and the Changed Zone List.

use crate::limits::CHANGED_ZONES_MAX;
use crate::{Blocks, ChangedZoneList, Lba, ReportFilter, Status, ZoneDescriptor, ZoneIndex, ZoneReport, ZoneState};

use super::{Zone, ZoneTable};

impl ZoneTable {
    /// Reports the zones from the one that holds `start` to the last, as far as they match
    /// `filter`, in at most `descriptors_max` descriptors. With `partial` the number of zones
    /// reported is that of the descriptors.
    ///
    /// # Errors
    /// LbaOutOfRange past the namespace; InvalidField for an `extended` report without descriptor
    /// extensions.
    pub fn report(
        &self,
        start: Lba,
        filter: ReportFilter,
        extended: bool,
        partial: bool,
        descriptors_max: u32,
    ) -> Result<ZoneReport, Status> {
        if start.0 >= self.namespace_blocks {
            return Err(Status::LbaOutOfRange);
        }
        if extended && self.geometry.descriptor_extension_bytes == 0 {
            return Err(Status::InvalidField);
        }
        let (first, _) = self.locate(start.0);
        let mut matching =
            (first.0..self.geometry.zone_count).map(ZoneIndex).filter(|&zone| matches_filter(self.entry(zone), filter));
        let zones: Vec<ZoneDescriptor> =
            matching.by_ref().take(descriptors_max as usize).map(|zone| self.descriptor(zone, extended)).collect();
        let unreported = if partial { 0 } else { matching.count() };
        Ok(ZoneReport { matching_zones: (zones.len() + unreported) as u64, zones })
    }

    /// Returns and empties the list of zones that became read only, offline or full by themselves (log
    /// page BFh).
    pub fn take_changed_zones(&mut self) -> ChangedZoneList {
        let changed = std::mem::take(&mut self.changed);
        if changed.len() > CHANGED_ZONES_MAX {
            return ChangedZoneList { overflowed: true, zones: Vec::new() };
        }
        ChangedZoneList { overflowed: false, zones: changed.into_iter().collect() }
    }

    fn descriptor(&self, zone: ZoneIndex, extended: bool) -> ZoneDescriptor {
        let entry = self.entry(zone);
        let start = self.geometry.zone_start(zone);
        let has_write_pointer = entry.state == ZoneState::Empty || entry.state.is_active();
        ZoneDescriptor {
            zone_type: self.geometry.zone_type(zone),
            state: entry.state,
            attributes: entry.attributes(),
            capacity_blocks: self.geometry.zone_capacity_blocks,
            start,
            write_pointer: has_write_pointer.then(|| start + Blocks(entry.write_pointer)),
            extension: extended.then(|| self.extension_or_zeros(zone)),
        }
    }

    fn extension_or_zeros(&self, zone: ZoneIndex) -> Box<[u8]> {
        match self.extensions.get(&zone) {
            Some(extension) => extension.clone(),
            None => vec![0; self.geometry.descriptor_extension_bytes as usize].into(),
        }
    }
}

fn matches_filter(zone: &Zone, filter: ReportFilter) -> bool {
    match filter {
        ReportFilter::All => true,
        ReportFilter::State(state) => state == zone.state && state != ZoneState::NotWritePointer,
    }
}
