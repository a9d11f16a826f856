//! ReportZones, and its descriptors.

use crate::{Lba, Outcome, ReportFilter, Status, ZoneAttributes, ZoneDescriptor, ZoneIndex, ZoneReport, ZoneState};

use super::ReferenceDevice;

impl ReferenceDevice {
    /// ReportZones.
    pub(super) fn report(
        &self,
        start: Lba,
        filter: ReportFilter,
        extended: bool,
        partial: bool,
        descriptors_max: u32,
    ) -> Result<Outcome, Status> {
        // 1. Beyond the namespace.
        let first = self.geometry.zone_of(start).ok_or(Status::LbaOutOfRange)?;
        // 2. Extensions that the namespace does not have.
        if extended && self.geometry.descriptor_extension_bytes == 0 {
            return Err(Status::InvalidField);
        }
        // 3. The zones from the first that match.
        let mut matching_zones = 0;
        let mut zones = Vec::new();
        for zone in (first.0..self.geometry.zone_count).map(ZoneIndex) {
            if !self.matches(zone, filter) {
                continue;
            }
            matching_zones += 1;
            if zones.len() < descriptors_max as usize {
                let mut descriptor = self.descriptor(zone);
                if !extended {
                    descriptor.extension = None;
                }
                zones.push(descriptor);
            }
        }
        if partial {
            matching_zones = zones.len() as u64;
        }
        Ok(Outcome::Report(Box::new(ZoneReport { matching_zones, zones })))
    }

    /// A zone's descriptor, with its extension if the namespace has them.
    ///
    /// # Panics
    /// When the zone is beyond the namespace.
    #[must_use]
    pub fn descriptor(&self, zone: ZoneIndex) -> ZoneDescriptor {
        let extension_bytes = self.geometry.descriptor_extension_bytes as usize;
        let held = self.zone(zone);
        ZoneDescriptor {
            zone_type: self.geometry.zone_type(zone),
            state: held.state,
            attributes: ZoneAttributes {
                zrwa_valid: held.zrwa,
                extension_valid: held.extension.is_some(),
                ..ZoneAttributes::default()
            },
            capacity_blocks: self.geometry.zone_capacity_blocks,
            start: self.geometry.zone_start(zone),
            write_pointer: match held.state {
                ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline | ZoneState::NotWritePointer => None,
                _ => Some(held.write_pointer),
            },
            extension: match &held.extension {
                _ if extension_bytes == 0 => None,
                Some(extension) => Some(extension.clone()),
                None => Some(vec![0; extension_bytes].into()),
            },
        }
    }

    /// Whether a zone matches a filter. Conventional zones match only [`ReportFilter::All`].
    fn matches(&self, zone: ZoneIndex, filter: ReportFilter) -> bool {
        match filter {
            ReportFilter::All => true,
            ReportFilter::State(ZoneState::NotWritePointer) => false,
            ReportFilter::State(state) => self.zone(zone).state == state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::testing::{device, manage, open, run, with_conventional, with_zrwa, write};
    use crate::{Geometry, Operation, ZoneAction, ZoneType};

    fn operation(start: u64, filter: ReportFilter) -> Operation {
        Operation::ReportZones { start: Lba(start), filter, extended: false, partial: false, descriptors_max: u32::MAX }
    }

    fn report(device: &mut ReferenceDevice, operation: Operation) -> ZoneReport {
        match run(device, operation).outcome {
            Outcome::Report(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    fn starts(report: &ZoneReport) -> Vec<u64> {
        report.zones.iter().map(|zone| zone.start.0).collect()
    }

    #[test]
    fn a_report_begins_with_the_zone_that_holds_its_start() {
        let mut device = device(Geometry::tiny());
        assert_eq!(starts(&report(&mut device, operation(95, ReportFilter::All))), [80, 96, 112]);
        assert_eq!(run(&mut device, operation(128, ReportFilter::All)).status, Status::LbaOutOfRange);
    }

    #[test]
    fn a_filter_matches_one_state_and_never_a_conventional_zone() {
        let mut device = device(with_conventional());
        write(&mut device, 48, 1);
        open(&mut device, 64);
        let cases = [
            (ZoneState::ImplicitlyOpened, vec![48]),
            (ZoneState::ExplicitlyOpened, vec![64]),
            (ZoneState::NotWritePointer, vec![]),
            (ZoneState::Empty, vec![32, 80, 96, 112]),
        ];
        for (state, expected) in cases {
            let found = report(&mut device, operation(0, ReportFilter::State(state)));
            assert_eq!(starts(&found), expected, "{state}");
        }
        let all = report(&mut device, operation(0, ReportFilter::All));
        assert_eq!((all.zones.len(), all.zones[0].zone_type), (8, ZoneType::Conventional));
    }

    #[test]
    fn a_partial_report_counts_what_it_returns_and_a_whole_one_what_matches() {
        let mut device = device(Geometry::tiny());
        for (partial, expected) in [(true, 3), (false, 6)] {
            let found = report(
                &mut device,
                Operation::ReportZones {
                    start: Lba(32),
                    filter: ReportFilter::All,
                    extended: false,
                    partial,
                    descriptors_max: 3,
                },
            );
            assert_eq!((found.matching_zones, starts(&found)), (expected, vec![32, 48, 64]));
        }
    }

    #[test]
    fn extensions_come_with_an_extended_report_only_and_are_zeros_where_none_was_set() {
        let mut device = device(Geometry::tiny());
        let set = ZoneAction::SetDescriptorExtension { extension: vec![9; 64].into(), zrwa: false };
        manage(&mut device, set, 16);
        let plain = report(&mut device, operation(0, ReportFilter::All));
        assert!(plain.zones[1].attributes.extension_valid);
        assert!(plain.zones.iter().all(|zone| zone.extension.is_none()));
        let extended = Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: true,
            partial: false,
            descriptors_max: 2,
        };
        let found = report(&mut device, extended.clone());
        assert_eq!(found.zones[0].extension.as_deref(), Some(&[0; 64][..]));
        assert_eq!(found.zones[1].extension.as_deref(), Some(&[9; 64][..]));
        let mut without = super::super::testing::device(Geometry { descriptor_extension_bytes: 0, ..Geometry::tiny() });
        assert_eq!(run(&mut without, extended).status, Status::InvalidField);
    }

    #[test]
    fn only_writable_zones_report_a_write_pointer() {
        let mut device = device(Geometry { zrwa: with_zrwa().zrwa, ..with_conventional() });
        manage(&mut device, ZoneAction::Open { zrwa: true }, 32);
        manage(&mut device, ZoneAction::Finish, 48);
        device.degrade(ZoneIndex(4), ZoneState::ReadOnly);
        device.degrade(ZoneIndex(5), ZoneState::Offline);
        let pointers: Vec<Option<Lba>> = (0..7).map(|zone| device.descriptor(ZoneIndex(zone)).write_pointer).collect();
        assert_eq!(pointers, [None, None, Some(Lba(32)), None, None, None, Some(Lba(96))]);
        assert!(device.descriptor(ZoneIndex(2)).attributes.zrwa_valid);
    }
}
