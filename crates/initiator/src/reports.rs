//! Zone reports of any length, in rounds of one command each.

use zonda_nvme::SubmissionEntry;
use zonda_nvme::io::{NamespaceFormat, ZONE_REPORT_UNIT_BYTES, encode};
use zonda_nvme::zns::ReportFormat;
use zonda_zoned::{Lba, NamespaceId, Operation, ReportFilter, ZoneDescriptor, ZoneReport};

use crate::queue::CommandData;

/// The properties of a namespace that a report depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportShape {
    /// The namespace identifier at the target.
    pub(crate) namespace: NamespaceId,
    pub(crate) format: NamespaceFormat,
    pub(crate) zone_size_blocks: u64,
    pub(crate) zone_count: u32,
    /// Bytes that one command returns.
    pub(crate) round_bytes: u32,
}

/// A requested report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportRequest {
    pub(crate) start: Lba,
    pub(crate) filter: ReportFilter,
    pub(crate) extended: bool,
    pub(crate) partial: bool,
    pub(crate) descriptors_max: u32,
}

/// A report in progress.
#[derive(Debug)]
pub(crate) struct ReportRounds {
    request: ReportRequest,
    /// First zone of the next round.
    next_zone: u32,
    /// Descriptors still missing.
    missing: u32,
    requested: u32,
    is_first: bool,
    report: ZoneReport,
}

/// An invalid report: zones out of order, or more than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidReport;

impl ReportShape {
    /// Descriptors that one round returns.
    fn round_descriptors(&self, extended: bool) -> u32 {
        let extension = if extended { self.format.descriptor_extension_bytes } else { 0 };
        let each = ZONE_REPORT_UNIT_BYTES + extension;
        // A single descriptor always fits: the longest extension is 255 units.
        ((self.round_bytes.saturating_sub(ZONE_REPORT_UNIT_BYTES)) / each).max(1)
    }
}

impl ReportRounds {
    /// A report from the zone that holds `request.start`, which lies within the namespace.
    pub(crate) fn new(request: ReportRequest, shape: &ReportShape) -> ReportRounds {
        let next_zone = (request.start.0 / shape.zone_size_blocks) as u32;
        let missing = request.descriptors_max.min(shape.zone_count - next_zone);
        ReportRounds { request, next_zone, missing, requested: 0, is_first: true, report: ZoneReport::default() }
    }

    /// Whether one command returns the whole report.
    pub(crate) fn is_single(&self, shape: &ReportShape) -> bool {
        self.missing <= shape.round_descriptors(self.request.extended)
    }

    /// The command of the next round.
    pub(crate) fn command(&mut self, shape: &ReportShape) -> (SubmissionEntry, CommandData) {
        self.requested = self.missing.min(shape.round_descriptors(self.request.extended));
        let start =
            if self.is_first { self.request.start } else { Lba(u64::from(self.next_zone) * shape.zone_size_blocks) };
        let operation = Operation::ReportZones {
            start,
            filter: self.request.filter,
            extended: self.request.extended,
            // Only the first round counts all zones that match.
            partial: self.request.partial || !self.is_first,
            descriptors_max: self.requested,
        };
        let encoded =
            encode(&operation, shape.namespace, &shape.format).expect("the filter was checked, the length is small");
        let zonda_nvme::io::Transfer::ToHost(bytes) = encoded.transfer else {
            unreachable!("a report is data for the host")
        };
        (encoded.entry, CommandData::ToHost(bytes))
    }

    /// Adds the data of a round. Returns whether it was the last.
    pub(crate) fn take(&mut self, data: &[u8], shape: &ReportShape) -> Result<bool, InvalidReport> {
        let extension_bytes = self.request.extended.then_some(shape.format.descriptor_extension_bytes);
        let partial = self.request.partial || !self.is_first;
        let mut round = ReportFormat { extension_bytes, partial }.parse(data).map_err(|_| InvalidReport)?;
        if self.is_first {
            self.report.matching_zones = round.matching_zones;
        }
        self.is_first = false;
        if round.zones.len() > self.requested as usize {
            return Err(InvalidReport);
        }
        let received = round.zones.len() as u32;
        // The namespace may have grown, which this side does not know yet.
        round.zones.retain(|zone| zone.start.0 / shape.zone_size_blocks < u64::from(shape.zone_count));
        for zone in &round.zones {
            let index = zone.start.0 / shape.zone_size_blocks;
            if !zone.start.0.is_multiple_of(shape.zone_size_blocks) || index < u64::from(self.next_zone) {
                return Err(InvalidReport);
            }
            self.next_zone = index as u32 + 1;
        }
        self.report.zones.append(&mut round.zones);
        // It may have shrunk.
        let left = shape.zone_count.saturating_sub(self.next_zone);
        self.missing = (self.missing - received).min(left);
        Ok(received < self.requested || self.missing == 0)
    }

    /// The zones received so far.
    pub(crate) fn zones(&self) -> &[ZoneDescriptor] {
        &self.report.zones
    }

    /// The whole report.
    pub(crate) fn finish(mut self) -> ZoneReport {
        let received = self.report.zones.len() as u64;
        // A count below the number of descriptors is an error of the target; the descriptors count.
        self.report.matching_zones =
            if self.request.partial { received } else { self.report.matching_zones.max(received) };
        self.report
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::zones::ZoneTable;
    use zonda_zoned::{Blocks, Geometry, ZoneState};

    use super::*;

    fn geometry() -> Geometry {
        Geometry { zone_count: 100, max_active_zones: None, max_open_zones: None, ..Geometry::tiny() }
    }

    fn shape(round_bytes: u32) -> ReportShape {
        let geometry = geometry();
        ReportShape {
            namespace: NamespaceId(7),
            format: NamespaceFormat::of(&geometry, 1 << 20),
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_count: geometry.zone_count,
            round_bytes,
        }
    }

    /// Runs a report against a table of zones; returns the number of rounds, too.
    fn run(zones: &ZoneTable, request: ReportRequest, shape: &ReportShape) -> (ZoneReport, u32) {
        let mut rounds = ReportRounds::new(request, shape);
        for round in 1.. {
            let (entry, data) = rounds.command(shape);
            assert_eq!(entry.namespace.get(), 7);
            let CommandData::ToHost(bytes) = data else { panic!("{data:?}") };
            assert!(bytes <= shape.round_bytes);
            let decoded = zonda_nvme::io::decode(&entry, &shape.format).unwrap();
            let zonda_nvme::io::IoRequest::ReportZones { start, filter, extended, partial, descriptors_max, .. } =
                decoded
            else {
                panic!("{entry:?}")
            };
            let report = zones.report(start, filter, extended, partial, descriptors_max).unwrap();
            let format = ReportFormat { extension_bytes: extended.then_some(64), partial };
            let page = format.write(&report, bytes as usize).unwrap();
            if rounds.take(&page, shape) == Ok(true) {
                return (rounds.finish(), round);
            }
        }
        unreachable!()
    }

    #[test]
    fn rounds_return_the_same_report_as_one_command() {
        let mut zones = ZoneTable::new(geometry());
        for zone in [3, 4, 50, 99] {
            zones.write(Lba(zone * 16), Blocks(2), true).unwrap();
        }
        let states = [ReportFilter::All, ReportFilter::State(ZoneState::ImplicitlyOpened)];
        for filter in states {
            for (extended, partial) in [(false, false), (false, true), (true, false), (true, true)] {
                for descriptors_max in [0, 1, 3, 7, 99, 100, u32::MAX] {
                    for start in [0, 5, 16 * 4, 16 * 99] {
                        let start = Lba(start);
                        let request = ReportRequest { start, filter, extended, partial, descriptors_max };
                        let expected = zones.report(start, filter, extended, partial, descriptors_max).unwrap();
                        let (report, rounds) = run(&zones, request, &shape(64 * 5));
                        assert_eq!(report, expected, "{request:?}");
                        assert!(rounds <= 51);
                        assert_eq!(run(&zones, request, &shape(1 << 16)), (expected, 1));
                    }
                }
            }
        }
    }

    #[test]
    fn zones_out_of_order_are_invalid_and_those_beyond_the_end_are_ignored() {
        let zones = ZoneTable::new(geometry());
        let all = zones.report(Lba(0), ReportFilter::All, false, false, 4).unwrap();
        let shape = shape(1 << 16);
        let request = ReportRequest {
            start: Lba(16),
            filter: ReportFilter::All,
            extended: false,
            partial: false,
            descriptors_max: 4,
        };
        let take = |zones: &[usize], shift: u64| {
            let mut rounds = ReportRounds::new(request, &shape);
            rounds.command(&shape);
            let mut report = ZoneReport { matching_zones: zones.len() as u64, zones: Vec::new() };
            for &zone in zones {
                let mut zone = all.zones[zone].clone();
                zone.start.0 += shift;
                zone.write_pointer = Some(zone.start);
                report.zones.push(zone);
            }
            let page = ReportFormat { extension_bytes: None, partial: false }.write(&report, 1024).unwrap();
            rounds.take(&page, &shape)
        };
        assert_eq!(take(&[1, 2], 0), Ok(true));
        assert_eq!(take(&[1], 1600), Ok(true));
        for (zones, shift) in [(&[0][..], 0), (&[2, 1], 0), (&[1, 1], 0), (&[1], 1), (&[1, 2, 3, 3, 3], 0)] {
            assert_eq!(take(zones, shift), Err(InvalidReport), "{zones:?} {shift}");
        }
        let mut rounds = ReportRounds::new(request, &shape);
        rounds.command(&shape);
        assert_eq!(rounds.take(&[0; 63], &shape), Err(InvalidReport));
    }
}
