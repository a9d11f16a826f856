//! A device that stores written data by reference, without copying.
//!
//! A device in memory copies data, which takes more CPU time than most layers above it. This device
//! stands for hardware with DMA: measurements over it show the CPU time of the layers above.

use bytes::{Bytes, BytesMut};
use zonda_layers::Null;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CompletionQueue, Geometry, Instant, Lba, Namespaces, Operation, Outcome, Payload,
    QueueFull, Status, ZonedDevice,
};

/// The rules of zones, and references to written data. Zones that are reset keep them until they
/// are written again.
pub(crate) struct ReferenceDevice {
    rules: Null,
    zone_blocks: u64,
    block_bytes: usize,
    metadata_bytes: usize,
    /// For each block the data of its write, at the first block of the write; and the offset from
    /// that block.
    pieces: Vec<Vec<Option<BlockBuffer>>>,
    behind: Vec<Vec<u16>>,
    completions: CompletionQueue,
    /// Reused buffer.
    ended: CompletionQueue,
    is_forgetful: bool,
}

impl ReferenceDevice {
    pub(crate) fn new(geometry: Geometry) -> ReferenceDevice {
        let (zones, blocks) = (geometry.zone_count as usize, geometry.zone_size_blocks.0 as usize);
        ReferenceDevice {
            zone_blocks: geometry.zone_size_blocks.0,
            block_bytes: geometry.block_size_bytes as usize,
            metadata_bytes: usize::from(geometry.metadata_bytes),
            pieces: vec![vec![None; blocks]; zones],
            behind: vec![vec![0; blocks]; zones],
            completions: CompletionQueue::new(),
            ended: CompletionQueue::new(),
            is_forgetful: false,
            rules: Null::new(geometry),
        }
    }

    /// From now on no data is stored: buffers are free as soon as a command completes, as after
    /// DMA.
    pub(crate) fn forget(&mut self) {
        self.is_forgetful = true;
        self.pieces.iter_mut().flatten().for_each(|piece| *piece = None);
    }

    // Not inlined, so that its cost does not depend on the code around it.
    #[inline(never)]
    fn keep(&mut self, start: Lba, blocks: Blocks, buffer: BlockBuffer) {
        let (zone, first) = ((start.0 / self.zone_blocks) as usize, (start.0 % self.zone_blocks) as usize);
        for at in 0..blocks.0 as usize {
            self.behind[zone][first + at] = at as u16;
        }
        self.pieces[zone][first] = Some(buffer);
    }

    /// The contents of blocks, in one piece if they were written together.
    #[inline(never)]
    fn find(&self, start: Lba, blocks: Blocks) -> BlockBuffer {
        let zone = (start.0 / self.zone_blocks) as usize;
        let (mut at, end) = ((start.0 % self.zone_blocks) as usize, (start.0 % self.zone_blocks + blocks.0) as usize);
        let part = |at: usize| {
            let behind = usize::from(self.behind[zone][at]);
            let Some(piece) = &self.pieces[zone][at - behind] else {
                let zeros = |bytes: usize| Bytes::from(vec![0; bytes]);
                return (1, zeros(self.block_bytes), zeros(self.metadata_bytes));
            };
            let count = (piece.data.len() / self.block_bytes - behind).min(end - at);
            let of = |bytes: &Bytes, size: usize| bytes.slice(behind * size..(behind + count) * size);
            (count, of(&piece.data, self.block_bytes), of(&piece.metadata, self.metadata_bytes))
        };
        let (count, data, metadata) = part(at);
        if at + count == end {
            return BlockBuffer { data, metadata };
        }
        let mut gathered = BytesMut::with_capacity((end - at) * self.block_bytes);
        let mut gathered_metadata = BytesMut::with_capacity((end - at) * self.metadata_bytes);
        while at < end {
            let (count, data, metadata) = part(at);
            gathered.extend_from_slice(&data);
            gathered_metadata.extend_from_slice(&metadata);
            at += count;
        }
        BlockBuffer { data: gathered.freeze(), metadata: gathered_metadata.freeze() }
    }
}

impl ZonedDevice for ReferenceDevice {
    fn namespaces(&self) -> &Namespaces {
        self.rules.namespaces()
    }

    fn submit(&mut self, now: Instant, mut command: Command) -> Result<(), QueueFull> {
        let (id, blocks) = (command.id, command.operation.blocks());
        let buffer = match &mut command.operation {
            Operation::Write { payload, .. } | Operation::Append { payload, .. } => match std::mem::take(payload) {
                Payload::Bytes(buffer) => Some(*buffer),
                _ => None,
            },
            _ => None,
        };
        let place = match &command.operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => Some(*start),
            _ => None,
        };
        let is_read = matches!(command.operation, Operation::Read { .. });
        // The queue is never full: every completion is fetched at once.
        self.rules.submit(now, command)?;
        self.rules.poll(now, &mut self.ended);
        let Some(mut completion) = self.ended.pop() else { return Ok(()) };
        assert_eq!(completion.id, id, "a command completes before the next one is submitted");
        if completion.status == Status::Success {
            let start = match completion.outcome {
                Outcome::Appended(start) => Some(start),
                _ => place,
            };
            match (start, buffer) {
                (Some(start), Some(buffer)) if !self.is_forgetful => self.keep(start, blocks, buffer),
                (Some(start), None) if is_read => {
                    completion.outcome = Outcome::Data(Payload::Bytes(Box::new(self.find(start, blocks))));
                }
                _ => {}
            }
        }
        self.completions.push(completion);
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        while let Some(completion) = self.completions.pop() {
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        (!self.completions.is_empty()).then_some(Instant::ZERO)
    }
}
