//! Operations that may need several commands: Write Zeroes and deallocation.

use zonda_nvme::io::{DATASET_RANGE_BYTES, encode_ranges};
use zonda_zoned::limits::{COMMAND_BLOCKS_MAX, DEALLOCATE_RANGES_MAX};
use zonda_zoned::{Blocks, Lba, LbaRange, Operation, Payload, ReportFilter, Status, ZoneDescriptor, ZoneState};

use super::{Begin, Namespace, Wire, Work};
use crate::queue::{CommandData, HostData};
use crate::reports::{ReportRequest, ReportRounds};

/// Pieces of one range: a controller that accepts only tiny ranges is not worth the memory.
const MAX_PIECES: u64 = 1 << 16;

impl Namespace {
    /// Write Zeroes in as many pieces as the controller needs. It must succeed or fail as a whole,
    /// so several pieces are preceded by a zone report; no other command of this host is executed
    /// in between.
    pub(super) fn write_zeroes(&self, start: Lba, blocks: Blocks) -> Result<Begin, Status> {
        self.check_blocks(start, blocks, Blocks(u64::MAX))?;
        let lasting = blocks.0 > self.zeroes_piece_blocks();
        if lasting && self.format.zoned {
            let filter = ReportFilter::All;
            let request = ReportRequest { start, filter, extended: false, partial: true, descriptors_max: 1 };
            let mut report = Box::new(ReportRounds::new(request, &self.report));
            let wire = report.command(&self.report);
            return Ok(Begin::Send { work: Work::CheckBeforeZeroes { report, start, blocks }, wire, lasting });
        }
        let (mut next, mut left) = (start, blocks.0);
        let wire = self.zeroes_command(&mut next, &mut left).expect("there are blocks")?;
        Ok(Begin::Send { work: Work::WriteZeroes { next, left }, wire, lasting })
    }

    /// Checks Write Zeroes against the present state of the zone, except the limits of open and
    /// active zones, which the target checks with the first piece.
    pub(super) fn check_zeroes(&self, zone: &ZoneDescriptor, start: Lba, blocks: Blocks) -> Result<(), Status> {
        match zone.state {
            ZoneState::Full => return Err(Status::ZoneIsFull),
            ZoneState::ReadOnly => return Err(Status::ZoneIsReadOnly),
            ZoneState::Offline => return Err(Status::ZoneIsOffline),
            _ => {}
        }
        let write_pointer = zone.write_pointer.ok_or(Status::InternalError)?;
        // The write pointer comes from the target, so computations with it must not overflow.
        let distance = start.0.checked_sub(write_pointer.0).ok_or(Status::ZoneInvalidWrite)?;
        let is_in_place = match self.geometry.zrwa.filter(|_| zone.attributes.zrwa_valid) {
            Some(zrwa) => distance + blocks.0 <= 2 * zrwa.size_blocks.0,
            None => distance == 0,
        };
        if !is_in_place {
            return Err(Status::ZoneInvalidWrite);
        }
        let capacity_end = zone.start + self.geometry.zone_capacity_blocks;
        if start + blocks > capacity_end { Err(Status::ZoneBoundaryError) } else { Ok(()) }
    }

    fn zeroes_piece_blocks(&self) -> u64 {
        self.write_zeroes_blocks.unwrap_or(self.geometry.max_transfer_blocks.0).min(COMMAND_BLOCKS_MAX)
    }

    pub(super) fn zeroes_command(&self, next: &mut Lba, left: &mut u64) -> Option<Result<Wire, Status>> {
        let blocks = Blocks((*left).min(self.zeroes_piece_blocks()));
        if blocks.0 == 0 {
            return None;
        }
        let start = *next;
        *next = *next + blocks;
        *left -= blocks.0;
        let (operation, data) = if self.write_zeroes_blocks.is_some() {
            (Operation::WriteZeroes { start, blocks }, CommandData::None)
        } else {
            let zeros = HostData::Zeros(blocks.0 as u32 * self.format.block_bytes());
            (Operation::Write { start, blocks, payload: Payload::None }, CommandData::FromHost(zeros))
        };
        Some(self.encode(&operation).map(|entry| (entry, data)))
    }

    pub(super) fn deallocate(&self, ranges: &[LbaRange]) -> Result<Begin, Status> {
        if ranges.is_empty() || ranges.len() > DEALLOCATE_RANGES_MAX {
            return Err(Status::InvalidField);
        }
        for range in ranges {
            self.check_blocks(range.start, range.blocks, Blocks(u64::MAX))?;
        }
        let limits = self.deallocate.ok_or(Status::InvalidField)?;
        let most = limits.range_blocks.min(limits.blocks).max(1);
        let mut pieces = Vec::with_capacity(ranges.len());
        for range in ranges {
            if range.blocks.0.div_ceil(most) > MAX_PIECES {
                return Err(Status::InvalidField);
            }
            let (mut start, mut left) = (range.start, range.blocks.0);
            while left > 0 {
                let blocks = Blocks(left.min(most));
                pieces.push(LbaRange { start, blocks });
                start = start + blocks;
                left -= blocks.0;
            }
        }
        let mut next = 0;
        let wire = self.deallocate_command(&pieces, &mut next).expect("there is a range")?;
        let lasting = next < pieces.len();
        Ok(Begin::Send { work: Work::Deallocate { ranges: pieces, next }, wire, lasting })
    }

    /// The command with the next ranges, as many as one command may have.
    pub(super) fn deallocate_command(&self, ranges: &[LbaRange], next: &mut usize) -> Option<Result<Wire, Status>> {
        let limits = self.deallocate.expect("the controller can deallocate");
        let mut left = limits.blocks;
        let fits = |range: &&LbaRange| {
            let fits = range.blocks.0 <= left;
            left = left.saturating_sub(range.blocks.0);
            fits
        };
        let count = ranges[*next..].iter().take(limits.ranges.max(1)).take_while(fits).count();
        if count == 0 {
            return None;
        }
        let some: Box<[LbaRange]> = ranges[*next..*next + count].into();
        *next += count;
        let data = encode_ranges(&some);
        assert_eq!(data.len(), count * DATASET_RANGE_BYTES, "every range has its bytes");
        let operation = Operation::Deallocate { ranges: some };
        Some(self.encode(&operation).map(|entry| (entry, CommandData::FromHost(HostData::Bytes(data.into())))))
    }
}
