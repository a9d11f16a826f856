//! Host requests. A request takes effect when it is accepted: what a read returns is fixed then.

use bytes::Bytes;
use zonda_zoned::{Command, CommandId, Instant, Operation, Payload, QueueFull, Status};

use super::map::{Map, Reach};
use super::members::Waiter;
use super::requests::{Answer, RequestKey};
use super::{Phase, Volume};
use crate::bug::SeededBug;
use crate::limits::{BUFFERED_BLOCKS_MAX, REQUEST_BLOCKS_MAX};
use crate::shape::Stream;

impl Volume {
    /// Submits a host command. Zone management ends with [`Status::InvalidField`]: the volume's
    /// zones are conventional.
    ///
    /// # Errors
    /// [`QueueFull`] returns the command; it can be submitted again after the next completion.
    pub fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.advance_to(now);
        match self.admit(&command.operation) {
            Admission::Full => return Err(QueueFull(command)),
            Admission::Refused(status) => {
                self.requests.refuse(command.id, status);
                return Ok(());
            }
            Admission::Taken => {}
        }
        let Command { id, operation, .. } = command;
        self.has_progress |= !matches!(operation, Operation::Read { .. } | Operation::Write { .. });
        match operation {
            Operation::Read { start, blocks } => self.accept_read(id, start.0, blocks.0),
            Operation::Write { start, blocks, payload } => {
                let (map, mut reach) = self.map_and_reach();
                map.trim_before(&mut reach, start.0, blocks.0);
                self.accept_write(id, start.0, blocks.0, payload);
            }
            Operation::WriteZeroes { start, blocks } => {
                self.map.begin_trim(&mut self.requests, id, &[(start.0, blocks.0)]);
            }
            Operation::Deallocate { ranges } => {
                let ranges: Vec<(u64, u64)> = ranges.iter().map(|range| (range.start.0, range.blocks.0)).collect();
                self.map.begin_trim(&mut self.requests, id, &ranges);
            }
            Operation::Flush => self.accept_flush(id),
            _ => unreachable!("others were refused"),
        }
        self.make_progress_if_woken();
        Ok(())
    }

    fn admit(&self, operation: &Operation) -> Admission {
        match &self.phase {
            Phase::Ready => {}
            Phase::Starting(_) => return Admission::Refused(Status::NamespaceNotReady),
            Phase::Failed(_) => return Admission::Refused(Status::InternalError),
        }
        let is_inside = |start: u64, blocks: u64| {
            start.checked_add(blocks).is_some_and(|end| end <= self.spec.geometry.namespace_blocks().0)
        };
        let refusal = match operation {
            Operation::Read { start, blocks } | Operation::Write { start, blocks, .. } => {
                if blocks.0 == 0 || blocks.0 > REQUEST_BLOCKS_MAX {
                    Some(Status::InvalidField)
                } else if !is_inside(start.0, blocks.0) {
                    Some(Status::LbaOutOfRange)
                } else if !self.payload_fits(operation) {
                    Some(Status::DataTransferError)
                } else {
                    None
                }
            }
            Operation::WriteZeroes { start, blocks } => {
                (!is_inside(start.0, blocks.0)).then_some(Status::LbaOutOfRange)
            }
            Operation::Deallocate { ranges } => {
                let all_inside = ranges.iter().all(|range| is_inside(range.start.0, range.blocks.0));
                (!all_inside).then_some(Status::LbaOutOfRange)
            }
            Operation::Flush => None,
            _ => Some(Status::InvalidField),
        };
        if let Some(status) = refusal {
            return Admission::Refused(status);
        }
        let (blocks, ranges) = match operation {
            // Each block may need a tombstone before it.
            Operation::Write { blocks, .. } if self.map.has_trims() => (2 * blocks.0 as usize, 1),
            Operation::Write { blocks, .. } => (blocks.0 as usize, 0),
            Operation::WriteZeroes { .. } => (0, 1),
            Operation::Deallocate { ranges } => (0, ranges.len()),
            // Other operations take no blocks.
            _ => (0, 0),
        };
        let has_space = self.requests.has_space()
            && self.stripes.buffered_blocks() + blocks <= BUFFERED_BLOCKS_MAX
            && (ranges == 0 || self.map.has_space_for_trim(ranges));
        if !has_space {
            return Admission::Full;
        }
        Admission::Taken
    }

    fn payload_fits(&self, operation: &Operation) -> bool {
        let Operation::Write { blocks, payload, .. } = operation else { return true };
        !matches!(payload, Payload::Fingerprints(_)) && payload.fits(blocks.0, self.spec.geometry.block_size_bytes, 0)
    }

    fn accept_write(&mut self, id: CommandId, start: u64, blocks: u64, payload: Payload) {
        let tuning = &self.spec.config.tuning;
        let is_large = tuning.large_segments > 0 && blocks >= u64::from(tuning.large_from_blocks);
        let stream = if is_large { Stream::Large } else { Stream::Small };
        let request = self.requests.begin_write(id, blocks);
        let data = match payload {
            Payload::Bytes(buffer) => buffer.data,
            _ if self.spec.has_contents() && blocks == 1 => self.spec.zeros.clone(),
            _ if self.spec.has_contents() => Bytes::from(vec![0; blocks as usize * self.spec.shape.block_bytes]),
            _ => Bytes::new(),
        };
        let (map, mut reach) = self.map_and_reach();
        map.write(&mut reach, stream, request, (start, blocks), &data);
    }

    /// The map, and the other owners that writes and trims need.
    #[inline]
    pub(super) fn map_and_reach(&mut self) -> (&mut Map, Reach<'_>) {
        let Volume { spec, segments, stripes, requests, map, now, .. } = self;
        (map, Reach { spec, segments, stripes, requests, now: *now })
    }

    /// Processes the next portion of trims, and completes trims.
    pub(super) fn pump_trims(&mut self) {
        let (map, mut reach) = self.map_and_reach();
        map.pump_trims(&mut reach);
        while let Some(request) = self.map.next_ended_trim(&self.requests) {
            self.end_part(request, 1, Status::Success);
        }
    }

    fn accept_flush(&mut self, id: CommandId) {
        self.stripes.pad_all(&self.spec);
        let request = self.requests.begin(id, 1, Answer::Flush);
        let stripes = self.stripes.add_flush(request);
        self.requests.add_parts(request, stripes);
        self.end_part(request, 1, Status::Success);
    }

    /// Some parts of a request have completed.
    #[inline]
    pub(super) fn end_part(&mut self, request: RequestKey, parts: u64, status: Status) {
        let flushes = self.spec.is_cache_volatile() && self.is_ready() && !self.spec.has(SeededBug::DryFlush);
        if self.requests.end_part(&self.spec, request, parts, status, flushes) {
            self.when_durable(Waiter::Request(request));
        }
    }

    /// The volume is lost: outstanding requests would never complete.
    pub(super) fn end_all_requests(&mut self) {
        self.map.forget_trims();
        self.requests.end_all(Status::InternalError);
    }
}

enum Admission {
    Taken,
    Full,
    Refused(Status),
}
