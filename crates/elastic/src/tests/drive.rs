//! A drive in memory that has a volatile write cache, fails commands, and has a short queue.

use std::collections::{BTreeMap, VecDeque};

use zonda_layers::Memory;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces,
    Operation, Outcome, Payload, QueueFull, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

const MEMORY_BYTES_MAX: u64 = 1 << 26;

/// Commands that fail: which, how many, and with which status.
pub(super) struct Fault {
    pub(super) matches: Box<dyn Fn(&Operation) -> bool>,
    pub(super) times: u32,
    pub(super) status: Status,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// A bit is flipped, and the drive does not notice.
    Flip,
    /// It cannot be read.
    Unreadable,
}

pub(super) struct TestDrive {
    memory: Memory,
    geometry: Geometry,
    /// Blocks of each zone that a power loss keeps.
    flushed: Vec<u64>,
    ready: VecDeque<Completion>,
    pub(super) faults: Vec<Fault>,
    pub(super) damaged: BTreeMap<u64, Damage>,
    /// Failing commands whose completions come after all others.
    pub(super) late: Option<fn(&Operation) -> bool>,
    held: VecDeque<Completion>,
    /// Commands that it accepts at a time.
    pub(super) depth: usize,
    /// Completions until it stops, as if its power were cut.
    pub(super) completions_left: usize,
}

impl TestDrive {
    pub(super) fn new(geometry: Geometry) -> TestDrive {
        TestDrive {
            memory: Memory::new(geometry.clone(), MEMORY_BYTES_MAX),
            flushed: vec![0; geometry.zone_count as usize],
            geometry,
            ready: VecDeque::new(),
            faults: Vec::new(),
            damaged: BTreeMap::new(),
            late: None,
            held: VecDeque::new(),
            depth: usize::MAX,
            completions_left: usize::MAX,
        }
    }

    pub(super) fn state(&self, zone: ZoneIndex) -> ZoneState {
        self.memory.zones().zone(zone).state
    }

    pub(super) fn written(&self, zone: ZoneIndex) -> u64 {
        self.memory.zones().readable_blocks(zone).0
    }

    pub(super) fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        self.memory.degrade(zone, to);
    }

    /// Forgets what is in flight, and keeps all that was written.
    pub(super) fn power_cycle(&mut self) {
        self.memory.power_cycle();
        self.ready.clear();
        self.held.clear();
        self.completions_left = usize::MAX;
    }

    /// Loses cached blocks: of each zone stays what `keep` returns for its flushed and written blocks.
    pub(super) fn lose_power(&mut self, mut keep: impl FnMut(ZoneIndex, u64, u64) -> u64) {
        let before = std::mem::replace(&mut self.memory, Memory::new(self.geometry.clone(), MEMORY_BYTES_MAX));
        let mut before = TestDrive { memory: before, ..TestDrive::new(self.geometry.clone()) };
        self.power_cycle();
        for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
            let found = before.memory.zones().zone(zone);
            let (state, pointer) = (found.state, found.write_pointer_blocks.0);
            let written = before.memory.zones().readable_blocks(zone).0;
            let is_finished = state == ZoneState::Full && pointer < self.geometry.zone_capacity_blocks.0;
            let start = self.geometry.zone_start(zone);
            let flushed = self.flushed[zone.as_usize()].min(written);
            let kept = keep(zone, flushed, written);
            assert!((flushed..=written).contains(&kept), "a power loss keeps what was flushed");
            for at in 0..kept {
                let from = Lba(start.0 + at);
                let Outcome::Data(payload) = before.execute(Operation::Read { start: from, blocks: Blocks(1) }) else {
                    panic!("a read returns data")
                };
                self.execute(Operation::Write { start: from, blocks: Blocks(1), payload });
            }
            if is_finished {
                let target = ZoneTarget::Zone(start);
                self.execute(Operation::ManageZones { action: ZoneAction::Finish, target });
            }
            if matches!(state, ZoneState::ReadOnly | ZoneState::Offline) {
                self.memory.degrade(zone, state);
            }
            self.flushed[zone.as_usize()] = kept;
        }
        self.power_cycle();
    }

    fn damage(&self, mut completion: Completion, blocks: std::ops::Range<u64>) -> Completion {
        let size = self.geometry.block_size_bytes as usize;
        for (lba, damage) in self.damaged.range(blocks.clone()) {
            match (&mut completion.outcome, damage) {
                (_, Damage::Unreadable) => return Completion::of(completion.id, Status::UnrecoveredReadError),
                (Outcome::Data(Payload::Bytes(buffer)), Damage::Flip) => {
                    let mut data = buffer.data.to_vec();
                    data[(lba - blocks.start) as usize * size + 40] ^= 4;
                    buffer.data = data.into();
                }
                _ => {}
            }
        }
        completion
    }

    fn execute(&mut self, operation: Operation) -> Outcome {
        let command = Command::new(CommandId(u64::MAX), NamespaceId::FIRST, operation);
        self.memory.submit(Instant(0), command).expect("one at a time");
        let mut ended = CompletionQueue::new();
        self.memory.poll(Instant(0), &mut ended);
        let ended = ended.pop().expect("a drive in memory is fast");
        assert!(ended.status.is_success(), "{ended:?}");
        ended.outcome
    }
}

impl ZonedDevice for TestDrive {
    fn namespaces(&self) -> &Namespaces {
        self.memory.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.ready.len() >= self.depth || self.completions_left == 0 {
            return Err(QueueFull(command));
        }
        let fault = self.faults.iter_mut().find(|fault| fault.times > 0 && (fault.matches)(&command.operation));
        if let Some(fault) = fault {
            fault.times -= 1;
            let is_late = self.late.is_some_and(|is_late| is_late(&command.operation));
            let queue = if is_late { &mut self.held } else { &mut self.ready };
            queue.push_back(Completion::of(command.id, fault.status));
            return Ok(());
        }
        let is_flush = matches!(command.operation, Operation::Flush);
        let reset = match &command.operation {
            Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } => {
                self.geometry.zone_of(*start)
            }
            _ => None,
        };
        let read = match &command.operation {
            Operation::Read { start, blocks } => Some(start.0..start.0 + blocks.0),
            _ => None,
        };
        self.memory.submit(now, command)?;
        let mut ended = CompletionQueue::new();
        self.memory.poll(now, &mut ended);
        if let Some(blocks) = read
            && self.damaged.range(blocks.clone()).next().is_some()
        {
            let completion = ended.pop().expect("a drive in memory is fast");
            self.ready.push_back(self.damage(completion, blocks));
            return Ok(());
        }
        self.ready.extend(std::iter::from_fn(|| ended.pop()));
        if is_flush {
            let zones = (0..self.geometry.zone_count).map(ZoneIndex);
            self.flushed = zones.map(|zone| self.memory.zones().readable_blocks(zone).0).collect();
        }
        if let Some(zone) = reset {
            self.flushed[zone.as_usize()] = 0;
        }
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        if self.completions_left > 0
            && let Some(completion) = self.ready.pop_front().or_else(|| self.held.pop_front())
        {
            self.completions_left -= 1;
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let has_any = !self.ready.is_empty() || !self.held.is_empty();
        (self.completions_left > 0 && has_any).then_some(Instant::ZERO)
    }
}
