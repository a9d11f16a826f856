//! [`Request`]: what a scheduler sees of a command.

use std::ops::Range;

use zonda_zoned::{Blocks, Command, Geometry, Instant, Lba, NamespaceId, Operation, Origin, ZoneTarget};

/// What a scheduler sees of a command: everything but its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The namespace addressed.
    pub namespace: NamespaceId,
    /// Who sent it.
    pub origin: Origin,
    /// What it does.
    pub kind: RequestKind,
    /// The zones that it touches, from the first to behind the last.
    pub zones: Range<u32>,
    /// The blocks that it touches, from the first to behind the last; for a management command
    /// those of its zones.
    pub blocks: Range<u64>,
    /// Bytes that it reads or writes; 0 for a command without data.
    pub bytes: u64,
    /// Whether all its zones are conventional.
    pub is_conventional: bool,
    /// The zones that share flash hardware with it, where that is known.
    pub group: Option<ConflictGroup>,
    /// When it was submitted.
    pub arrival: Instant,
    /// Counts submissions: of two requests, the one that was submitted first has the smaller number.
    pub number: u64,
}

/// Zones with the same number share flash hardware: commands to them delay each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConflictGroup(pub u32);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// Read.
    Read,
    /// Write, Write Zeroes or Deallocate: blocks that the host chooses.
    Write,
    /// Zone Append: blocks that the device chooses.
    Append,
    /// Zone Management Send.
    Manage,
    /// Flush.
    Flush,
    /// Report Zones and the log of changed zones.
    Report,
}

impl RequestKind {
    /// Whether it may change zones or contents.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, RequestKind::Write | RequestKind::Append | RequestKind::Manage)
    }
}

impl Request {
    /// The request of a command to a namespace of this geometry.
    #[must_use]
    pub fn of(command: &Command, geometry: &Geometry, arrival: Instant) -> Request {
        let whole = || 0..geometry.namespace_blocks().0;
        let run = |start: Lba, blocks: Blocks| start.0..start.0.saturating_add(blocks.0);
        let zone_at = |lba: Lba| {
            let start = lba.0 - lba.0 % geometry.zone_size_blocks.0;
            start..start.saturating_add(geometry.zone_size_blocks.0)
        };
        let (kind, blocks, data_blocks) = match &command.operation {
            Operation::Read { start, blocks } => (RequestKind::Read, run(*start, *blocks), blocks.0),
            Operation::Write { start, blocks, .. } | Operation::WriteZeroes { start, blocks } => {
                (RequestKind::Write, run(*start, *blocks), blocks.0)
            }
            Operation::Deallocate { ranges } => {
                let start = ranges.iter().map(|range| range.start.0).min().unwrap_or(0);
                let end = ranges.iter().map(|range| range.start.0.saturating_add(range.blocks.0)).max().unwrap_or(0);
                (RequestKind::Write, start..end, 0)
            }
            Operation::Append { zone_start, blocks, .. } => (RequestKind::Append, zone_at(*zone_start), blocks.0),
            Operation::Flush => (RequestKind::Flush, whole(), 0),
            Operation::ManageZones { target: ZoneTarget::Zone(lba), .. } => (RequestKind::Manage, zone_at(*lba), 0),
            Operation::ManageZones { target: ZoneTarget::All, .. } => (RequestKind::Manage, whole(), 0),
            Operation::ReportZones { start, .. } => (RequestKind::Report, zone_at(*start).start..whole().end, 0),
            Operation::ReadChangedZones => (RequestKind::Report, whole(), 0),
        };
        let bytes = data_blocks.saturating_mul(u64::from(geometry.block_size_bytes));
        let zones = zones_of(&blocks, geometry);
        let is_conventional = zones.end <= geometry.conventional_zone_count;
        let (namespace, origin) = (command.namespace, command.origin);
        Request { namespace, origin, kind, zones, blocks, bytes, is_conventional, group: None, arrival, number: 0 }
    }

    /// The request of a command to a namespace that does not exist: it touches nothing.
    #[must_use]
    pub fn to_nowhere(command: &Command, arrival: Instant) -> Request {
        Request {
            namespace: command.namespace,
            origin: command.origin,
            kind: RequestKind::Report,
            zones: 0..0,
            blocks: 0..0,
            bytes: 0,
            is_conventional: false,
            group: None,
            arrival,
            number: 0,
        }
    }

    /// Whether this request must take effect after an earlier one that still waits. Of one namespace:
    ///
    /// - what changes zones keeps its order in each zone, except writes to separate blocks of
    ///   conventional zones;
    /// - a read keeps its order with writes of its blocks and with management of its zones;
    /// - a flush keeps its order with everything that changes something;
    /// - a report keeps its order with changes of the zones that it reports.
    ///
    /// A read and an append to its zone have no order: the host does not know the blocks of the
    /// append before it has completed.
    #[must_use]
    pub fn must_wait_for(&self, earlier: &Request) -> bool {
        use RequestKind::{Append, Flush, Manage, Read, Report, Write};
        if self.namespace != earlier.namespace {
            return false;
        }
        let share_zones = || overlap_u32(&self.zones, &earlier.zones);
        let share_blocks = || self.blocks.start < earlier.blocks.end && earlier.blocks.start < self.blocks.end;
        match (earlier.kind, self.kind) {
            (Read | Report | Flush, Read | Report | Flush) | (Read, Append) | (Append, Read) => false,
            (Flush, _) | (_, Flush) => true,
            (Read, Write) | (Write, Read) => share_blocks(),
            (Write, Write) if self.is_conventional && earlier.is_conventional => share_blocks(),
            (Read | Report | Write | Append | Manage, Read | Report | Write | Append | Manage) => share_zones(),
        }
    }

    /// Whether it touches so many zones that it is compared with every request.
    pub(crate) fn is_wide(&self) -> bool {
        self.zones.len() > crate::limits::NARROW_ZONES_MAX as usize
    }

    /// The zone that a write to a sequential zone starts in. Linux has one write outstanding in
    /// each such zone.
    pub(crate) fn written_zone(&self) -> Option<(NamespaceId, u32)> {
        let is_written = self.kind == RequestKind::Write && !self.is_conventional;
        is_written.then_some((self.namespace, self.zones.start))
    }
}

/// Zones behind the end of the namespace count as its last one: the device will reject the command.
fn zones_of(blocks: &Range<u64>, geometry: &Geometry) -> Range<u32> {
    let size = geometry.zone_size_blocks.0;
    let last = u64::from(geometry.zone_count) - 1;
    let first = blocks.start / size;
    // Nearly all commands are to one zone, and divisions take long.
    let is_one = blocks.end <= first.saturating_add(1).saturating_mul(size);
    let first = first.min(last);
    let end = if is_one { first + 1 } else { blocks.end.div_ceil(size).min(last + 1).max(first + 1) };
    first as u32..end as u32
}

fn overlap_u32(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::{CommandId, LbaRange, Payload, ReportFilter, ZoneAction};

    fn request(operation: Operation) -> Request {
        let geometry = Geometry { conventional_zone_count: 2, zone_capacity_blocks: Blocks(16), ..Geometry::tiny() };
        Request::of(&Command::new(CommandId(0), NamespaceId::FIRST, operation), &geometry, Instant(7))
    }

    fn read(start: u64, blocks: u64) -> Request {
        request(Operation::Read { start: Lba(start), blocks: Blocks(blocks) })
    }

    fn write(start: u64, blocks: u64) -> Request {
        request(Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::None })
    }

    fn append(zone: u64) -> Request {
        request(Operation::Append { zone_start: Lba(zone * 16), blocks: Blocks(1), payload: Payload::None })
    }

    fn reset(zone: u64) -> Request {
        request(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(zone * 16)) })
    }

    #[test]
    fn changes_of_one_zone_keep_their_order_and_those_of_two_do_not() {
        let (one, other) = (3 * 16, 4 * 16);
        for earlier in [write(one, 1), append(3), reset(3)] {
            for later in [write(one + 1, 1), append(3), reset(3)] {
                assert!(later.must_wait_for(&earlier), "{later:?} after {earlier:?}");
            }
            for later in [write(other, 1), append(4), reset(4)] {
                assert!(!later.must_wait_for(&earlier), "{later:?} after {earlier:?}");
            }
        }
        assert!(write(one + 15, 2).must_wait_for(&reset(4)), "it reaches into zone 4");
    }

    #[test]
    fn writes_of_a_conventional_zone_keep_their_order_where_they_share_blocks() {
        assert!(write(4, 2).must_wait_for(&write(5, 1)));
        assert!(!write(4, 1).must_wait_for(&write(5, 1)));
        let trim = |start, blocks| {
            request(Operation::Deallocate { ranges: [LbaRange { start: Lba(start), blocks: Blocks(blocks) }].into() })
        };
        assert!(trim(0, 8).must_wait_for(&write(5, 1)));
        assert!(!trim(0, 5).must_wait_for(&write(5, 1)));
    }

    #[test]
    fn a_read_keeps_its_order_with_writes_of_its_blocks_and_management_of_its_zone() {
        assert!(read(48, 2).must_wait_for(&write(49, 1)) && write(49, 1).must_wait_for(&read(48, 2)));
        assert!(!read(48, 1).must_wait_for(&write(49, 1)) && !write(49, 1).must_wait_for(&read(48, 1)));
        assert!(read(48, 1).must_wait_for(&reset(3)) && reset(3).must_wait_for(&read(48, 1)));
        assert!(!read(48, 1).must_wait_for(&append(3)) && !append(3).must_wait_for(&read(48, 1)));
        assert!(!read(48, 1).must_wait_for(&read(48, 1)));
    }

    #[test]
    fn a_flush_keeps_its_order_with_changes_of_any_zone_and_not_with_reads() {
        let flush = request(Operation::Flush);
        for change in [write(48, 1), append(7), reset(5), write(0, 1)] {
            assert!(flush.must_wait_for(&change) && change.must_wait_for(&flush), "{change:?}");
        }
        assert!(!flush.must_wait_for(&read(48, 1)) && !read(48, 1).must_wait_for(&flush));
        assert!(!flush.must_wait_for(&flush));
    }

    #[test]
    fn a_report_keeps_its_order_with_changes_of_the_zones_that_it_reports() {
        let report = request(Operation::ReportZones {
            start: Lba(64),
            filter: ReportFilter::All,
            extended: false,
            partial: false,
            descriptors_max: 9,
        });
        assert!(report.must_wait_for(&write(64, 1)) && append(7).must_wait_for(&report));
        assert!(!report.must_wait_for(&write(48, 1)) && !reset(3).must_wait_for(&report));
        assert!(!report.must_wait_for(&read(64, 1)));
    }

    #[test]
    fn the_size_of_a_request_is_that_of_its_data() {
        assert_eq!([read(1, 3), write(2, 5), append(7), reset(3)].map(|request| request.bytes), [1536, 2560, 512, 0]);
        assert_eq!(request(Operation::Flush).bytes, 0);
        let ranges = [LbaRange { start: Lba(0), blocks: Blocks(9) }].into();
        assert_eq!(request(Operation::Deallocate { ranges }).bytes, 0);
        assert_eq!(read(0, u64::MAX).bytes, u64::MAX);
    }

    #[test]
    fn blocks_that_do_not_exist_are_in_the_last_zone() {
        assert_eq!(read(u64::MAX, 8).zones, 7..8);
        assert_eq!(read(127, 99).zones, 7..8);
        assert_eq!(read(0, 0).zones, 0..1);
    }
}
