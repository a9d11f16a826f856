//! A device, and the helpers that test it.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Lba, NamespaceId, Operation,
    Outcome, Payload, PayloadKind, QueueFull, ReportFilter, Status, ZoneAction, ZoneDescriptor, ZoneIndex, ZoneReport,
    ZoneState, ZoneTarget,
};

use crate::TestBackend;

/// Waits without a completion after which a command counts as lost.
const WAITS_MAX: u32 = 10_000_000;

/// Why a check ends early.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// The backend does not support it.
    Skipped(String),
    /// The device violates a rule.
    Failed(String),
}

pub(crate) type Verdict = Result<(), Stop>;

/// Fails a check unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::rig::Stop::Failed(format!($($why)+)));
        }
    };
}
pub(crate) use ensure;

/// A device, and commands to it one at a time. Zones are counted from the first sequential one, or
/// from the first one if all are conventional.
pub(crate) struct Rig {
    pub(crate) backend: Box<dyn TestBackend>,
    pub(crate) geometry: Geometry,
    next_id: u64,
}

impl Rig {
    pub(crate) fn new(backend: Box<dyn TestBackend>, geometry: Geometry) -> Rig {
        assert_eq!(*backend.geometry(NamespaceId::FIRST), geometry, "the backend has the requested geometry");
        Rig { backend, geometry, next_id: 0 }
    }

    /// Capacity of a zone, in blocks.
    pub(crate) fn capacity(&self) -> u64 {
        self.geometry.zone_capacity_blocks.0
    }

    /// A block of a sequential zone.
    pub(crate) fn lba(&self, zone: u32, block: u64) -> Lba {
        self.geometry.zone_start(self.index(zone)) + Blocks(block)
    }

    pub(crate) fn index(&self, zone: u32) -> ZoneIndex {
        let Geometry { zone_count, conventional_zone_count, .. } = self.geometry;
        ZoneIndex(zone + if conventional_zone_count < zone_count { conventional_zone_count } else { 0 })
    }

    /// Runs commands with a queue depth of `depth`, and returns their completions in the order of
    /// the commands.
    pub(crate) fn run_all(&mut self, operations: Vec<Operation>, depth: usize) -> Result<Vec<Completion>, Stop> {
        let depth = depth.min(self.backend.queue_depth_max());
        let first = self.next_id;
        let mut ended: Vec<Option<Completion>> = vec![None; operations.len()];
        let (mut submitted, mut in_flight, mut waits) = (0, 0, 0);
        let mut operations = operations.into_iter();
        let mut held = None;
        let mut completions = CompletionQueue::new();
        loop {
            let now = self.backend.now();
            while in_flight < depth {
                let Some(operation) = held.take().or_else(|| operations.next()) else { break };
                let command = Command::new(CommandId(self.next_id), NamespaceId::FIRST, operation);
                if !self.backend.carries(&command) {
                    return Err(Stop::Skipped("the backend cannot encode such a command".to_owned()));
                }
                if let Err(QueueFull(command)) = self.backend.submit(now, command) {
                    held = Some(command.operation);
                    break;
                }
                self.next_id += 1;
                submitted += 1;
                in_flight += 1;
            }
            if in_flight == 0 && held.is_none() {
                break;
            }
            self.backend.wait();
            let now = self.backend.now();
            self.backend.poll(now, &mut completions);
            waits = if completions.is_empty() { waits + 1 } else { 0 };
            ensure!(waits < WAITS_MAX, "{in_flight} of {submitted} commands do not complete");
            while let Some(completion) = completions.pop() {
                let place = completion.id.0.checked_sub(first).and_then(|place| ended.get_mut(place as usize));
                let Some(place) = place.filter(|place| place.is_none()) else {
                    return Err(Stop::Failed(format!("command {} completes, but is not in flight", completion.id)));
                };
                *place = Some(completion);
                in_flight -= 1;
            }
        }
        self.backend.check_invariants();
        Ok(ended.into_iter().flatten().collect())
    }

    /// Runs one command.
    pub(crate) fn run(&mut self, operation: Operation) -> Result<Completion, Stop> {
        let ended = self.run_all(vec![operation], 1)?;
        Ok(ended.into_iter().next().expect("one command has one completion"))
    }

    /// Runs one command, and checks its status.
    pub(crate) fn expect(&mut self, operation: Operation, status: Status) -> Verdict {
        let shown = shown(&operation);
        if let Some(why) = self.unsupported(&operation, status) {
            return Err(Stop::Skipped(why.to_owned()));
        }
        let got = self.run(operation)?.status;
        ensure!(got == status, "{shown} ended with \"{got}\", not with \"{status}\"");
        Ok(())
    }

    /// Why the device cannot carry out an operation that other devices can.
    fn unsupported(&self, operation: &Operation, expected: Status) -> Option<&'static str> {
        let has_extensions = self.geometry.descriptor_extension_bytes > 0;
        match operation {
            Operation::Deallocate { .. } if expected.is_success() && !self.backend.deallocates() => {
                Some("the backend refuses deallocations")
            }
            Operation::ManageZones { action: ZoneAction::SetDescriptorExtension { .. }, .. }
                if expected != Status::InvalidField && !has_extensions =>
            {
                Some("the backend has no descriptor extensions")
            }
            _ => None,
        }
    }

    /// Contents that differ for each mark and block.
    pub(crate) fn payload(&self, mark: u64, blocks: u64) -> Payload {
        match self.backend.keeps() {
            PayloadKind::None => Payload::None,
            PayloadKind::Fingerprints => Payload::Fingerprints((0..blocks).map(|block| mark + block).collect()),
            PayloadKind::Bytes => {
                let mut buffer = (Vec::new(), Vec::new());
                for block in 0..blocks {
                    let (data, metadata) = self.contents(mark + block);
                    buffer.0.extend(data);
                    buffer.1.extend(metadata);
                }
                Payload::Bytes(Box::new(BlockBuffer { data: buffer.0.into(), metadata: buffer.1.into() }))
            }
        }
    }

    /// Data and metadata of a block with a mark; zeros for 0.
    fn contents(&self, mark: u64) -> (Vec<u8>, Vec<u8>) {
        let byte = |place: usize| if mark == 0 { 0 } else { (mark as usize * 31 + place * 7 + place / 256) as u8 | 1 };
        let data = (0..self.geometry.block_size_bytes as usize).map(byte).collect();
        let metadata = (0..usize::from(self.geometry.metadata_bytes)).map(|place| byte(place + 11)).collect();
        (data, metadata)
    }

    pub(crate) fn write_at(&self, start: Lba, blocks: u64, mark: u64) -> Operation {
        Operation::Write { start, blocks: Blocks(blocks), payload: self.payload(mark, blocks) }
    }

    pub(crate) fn append_to(&self, zone: u32, blocks: u64, mark: u64) -> Operation {
        let zone_start = self.lba(zone, 0);
        Operation::Append { zone_start, blocks: Blocks(blocks), payload: self.payload(mark, blocks) }
    }

    /// Writes at a block of a sequential zone.
    pub(crate) fn write(&mut self, zone: u32, block: u64, blocks: u64, mark: u64, status: Status) -> Verdict {
        let operation = self.write_at(self.lba(zone, block), blocks, mark);
        self.expect(operation, status)
    }

    pub(crate) fn append(&mut self, zone: u32, blocks: u64, mark: u64, status: Status) -> Verdict {
        let operation = self.append_to(zone, blocks, mark);
        self.expect(operation, status)
    }

    /// Writes a zone from one block to another, marked `mark` and up from the first block.
    pub(crate) fn fill(&mut self, zone: u32, from: u64, to: u64, mark: u64) -> Verdict {
        let step = self.geometry.max_transfer_blocks.0;
        let mut block = from;
        while block < to {
            let blocks = step.min(to - block);
            self.write(zone, block, blocks, mark + (block - from), Status::Success)?;
            block += blocks;
        }
        Ok(())
    }

    pub(crate) fn manage(&mut self, action: ZoneAction, zone: u32, status: Status) -> Verdict {
        let target = ZoneTarget::Zone(self.lba(zone, 0));
        self.expect(Operation::ManageZones { action, target }, status)
    }

    pub(crate) fn manage_all(&mut self, action: ZoneAction, status: Status) -> Verdict {
        self.expect(Operation::ManageZones { action, target: ZoneTarget::All }, status)
    }

    pub(crate) fn report(
        &mut self,
        start: Lba,
        filter: ReportFilter,
        extended: bool,
        partial: bool,
        descriptors_max: u32,
    ) -> Result<ZoneReport, Stop> {
        if extended && self.geometry.descriptor_extension_bytes == 0 {
            return Err(Stop::Skipped("the backend has no descriptor extensions".to_owned()));
        }
        let report = Operation::ReportZones { start, filter, extended, partial, descriptors_max };
        let ended = self.run(report)?;
        match ended.outcome {
            Outcome::Report(report) => Ok(*report),
            other => Err(Stop::Failed(format!("a report returned {other:?} and \"{}\"", ended.status))),
        }
    }

    /// The reported descriptor of a sequential zone.
    pub(crate) fn zone(&mut self, zone: u32) -> Result<ZoneDescriptor, Stop> {
        let mut report = self.report(self.lba(zone, 0), ReportFilter::All, false, true, 1)?;
        ensure!(report.zones.len() == 1, "a report of one zone has {} descriptors", report.zones.len());
        Ok(report.zones.remove(0))
    }

    /// Checks state and write pointer of a sequential zone.
    pub(crate) fn expect_zone(&mut self, zone: u32, state: ZoneState, write_pointer: Option<u64>) -> Verdict {
        let got = self.zone(zone)?;
        let start = self.lba(zone, 0);
        ensure!(got.start == start, "the descriptor of zone {zone} starts at {}, not at {start}", got.start);
        let pointer = got.write_pointer.map(|pointer| pointer.0.wrapping_sub(start.0));
        ensure!(
            got.state == state && pointer == write_pointer,
            "zone {zone} is {} with its write pointer at {pointer:?}, not {state} at {write_pointer:?}",
            got.state
        );
        Ok(())
    }

    /// Checks the marks of consecutive blocks.
    pub(crate) fn expect_marks(&mut self, start: Lba, marks: &[u64]) -> Verdict {
        if self.backend.keeps() == PayloadKind::None {
            return Err(Stop::Skipped("the backend stores no contents".to_owned()));
        }
        let step = self.geometry.max_transfer_blocks.0;
        for (piece, marks) in marks.chunks(step as usize).enumerate() {
            let start = start + Blocks(piece as u64 * step);
            let blocks = marks.len() as u64;
            let ended = self.run(Operation::Read { start, blocks: Blocks(blocks) })?;
            ensure!(ended.status.is_success(), "a read of {blocks} blocks at {start} ended with \"{}\"", ended.status);
            let Outcome::Data(payload) = ended.outcome else {
                return Err(Stop::Failed(format!("a read at {start} returned no data")));
            };
            if let Payload::Fingerprints(prints) = &payload {
                ensure!(**prints == *marks, "blocks from {start} have the fingerprints {prints:?}, not {marks:?}");
                continue;
            }
            let buffer = self.bytes_of(payload, blocks)?;
            for (block, &mark) in marks.iter().enumerate() {
                let (data, metadata) = self.contents(mark);
                let (size, metadata_size) = (data.len(), metadata.len());
                ensure!(
                    buffer.data[block * size..][..size] == data[..],
                    "block {} holds other data than mark {mark}",
                    start.0 + block as u64
                );
                ensure!(
                    buffer.metadata[block * metadata_size..][..metadata_size] == metadata[..],
                    "block {} has other metadata than mark {mark}",
                    start.0 + block as u64
                );
            }
        }
        Ok(())
    }

    /// Checks the marks of blocks of a sequential zone.
    pub(crate) fn expect_blocks(&mut self, zone: u32, block: u64, marks: &[u64]) -> Verdict {
        self.expect_marks(self.lba(zone, block), marks)
    }

    /// Power cycles the device.
    pub(crate) fn cycle_power(&mut self) -> Verdict {
        if self.backend.power_cycle() {
            self.backend.check_invariants();
            return Ok(());
        }
        Err(Stop::Skipped("the backend cannot be power cycled".to_owned()))
    }

    /// Skips the check unless the number of active zones is limited.
    pub(crate) fn has_limits(&self) -> Verdict {
        match self.geometry.max_active_zones {
            Some(_) => Ok(()),
            None => Err(Stop::Skipped("the namespace has no limit of active zones".to_owned())),
        }
    }

    /// Skips the check unless reads must not cross the boundaries of zones.
    pub(crate) fn forbids_reads_across_zones(&self) -> Verdict {
        if self.geometry.read_across_zones {
            return Err(Stop::Skipped("the namespace allows reads across zones".to_owned()));
        }
        Ok(())
    }

    /// Skips the check unless the backend preserves closed, unwritten zones over a power loss.
    pub(crate) fn remembers_untouched_zones(&self) -> Verdict {
        if self.backend.remembers_untouched_zones() {
            return Ok(());
        }
        Err(Stop::Skipped("the backend restores a closed zone without a write as empty".to_owned()))
    }

    /// Degrades a sequential zone.
    pub(crate) fn degrade(&mut self, zone: u32, to: ZoneState) -> Verdict {
        if self.backend.degrade(self.index(zone), to) {
            return Ok(());
        }
        Err(Stop::Skipped("the backend cannot degrade zones".to_owned()))
    }

    /// The data of a read, as bytes; no payload means zeros.
    fn bytes_of(&self, payload: Payload, blocks: u64) -> Result<BlockBuffer, Stop> {
        let (size, metadata) = (self.geometry.block_size_bytes, self.geometry.metadata_bytes);
        ensure!(payload.fits(blocks, size, metadata), "a read of {blocks} blocks returned a payload of another size");
        match payload {
            Payload::Bytes(buffer) => Ok(*buffer),
            Payload::None => Ok(zeros(&self.geometry, blocks)),
            Payload::Fingerprints(_) => unreachable!("fingerprints have been compared before"),
        }
    }
}

/// Blocks of zeros.
pub(crate) fn zeros(geometry: &Geometry, blocks: u64) -> BlockBuffer {
    let bytes = |each: u64| vec![0; (blocks * each) as usize].into();
    BlockBuffer {
        data: bytes(u64::from(geometry.block_size_bytes)),
        metadata: bytes(u64::from(geometry.metadata_bytes)),
    }
}

/// An operation without its contents, for messages.
pub(crate) fn shown(operation: &Operation) -> String {
    match operation {
        Operation::Write { start, blocks, .. } => format!("a write of {blocks} blocks at {start}"),
        Operation::Append { zone_start, blocks, .. } => format!("an append of {blocks} blocks to {zone_start}"),
        Operation::Deallocate { ranges } => format!("a deallocation of {} ranges", ranges.len()),
        other => format!("{other:?}"),
    }
}
