//! The checker's ledger: for each zone its certain state, and the effects submitted since, in
//! order.
//!
//! It takes from the oracle only which commands succeed and where an append went. After a power
//! loss [`crate::check::survival`] uses it to decide whether the state of a zone is allowed.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{
    Blocks, CommandId, Geometry, Lba, Operation, Outcome, Payload, ZERO_FINGERPRINT, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget, ZoneType, fingerprint,
};

/// The state of a zone, as far as the checker distinguishes states. Which implicitly opened zones
/// the controller closes to free open resources does not matter: after a power loss they are closed
/// anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Conventional,
    Empty,
    /// Explicitly opened.
    Opened,
    /// Opened by a write when it was empty.
    Written,
    /// Closed by the host or by a power loss, or active with a descriptor extension; maybe
    /// implicitly reopened by a write.
    Closed,
    /// Finished by the host, or full after a power loss. A zone filled by writes keeps its phase.
    Full,
    ReadOnly,
    Offline,
}

/// A zone without its contents.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) phase: Phase,
    /// The lowest and the highest possible offset of the write pointer.
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) zrwa: bool,
    /// Its blocks may be written in any order: it is conventional, or has had a ZRWA since it was
    /// empty.
    pub(crate) is_random: bool,
    pub(crate) extension: Option<Box<[u8]>>,
}

/// A change of a zone by a command that succeeds according to the oracle, or by a degradation.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// The command; `None` for a degradation, which is certain.
    pub(crate) command: Option<CommandId>,
    pub(crate) is_acknowledged: bool,
    pub(crate) change: Change,
}

/// A change of a zone. Offsets are relative to its start.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { first: u64, prints: Box<[u64]> },
    Deallocate { first: u64, blocks: u64 },
    Commit { to: u64 },
    Open { zrwa: bool },
    Close,
    Finish,
    Reset,
    SetExtension { extension: Box<[u8]>, zrwa: bool },
    BecomeReadOnly,
    BecomeOffline,
}

/// The ledger entry of a zone.
#[derive(Clone, Debug)]
pub(crate) struct ZoneEntry {
    /// The certain state; `low` and `high` are equal.
    pub(crate) base: Shape,
    /// The certain fingerprint of each block.
    pub(crate) prints: Vec<u64>,
    pub(crate) effects: VecDeque<Effect>,
    /// The state if every submitted effect is applied.
    now: Shape,
}

/// The ledger of a run.
pub(crate) struct Ledger {
    pub(crate) geometry: Geometry,
    pub(crate) entries: Vec<ZoneEntry>,
    /// The zones that each command in flight changes.
    zones_of: BTreeMap<CommandId, Vec<ZoneIndex>>,
}

impl Change {
    /// The name in event traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Change::Write { .. } => "write",
            Change::Deallocate { .. } => "deallocate",
            Change::Commit { .. } => "flush zrwa",
            Change::Open { .. } => "open",
            Change::Close => "close",
            Change::Finish => "finish",
            Change::Reset => "reset",
            Change::SetExtension { .. } => "set descriptor extension",
            Change::BecomeReadOnly => "read only",
            Change::BecomeOffline => "offline",
        }
    }
}

impl Shape {
    pub(crate) fn empty() -> Shape {
        Shape { phase: Phase::Empty, low: 0, high: 0, zrwa: false, is_random: false, extension: None }
    }

    fn of_new_zone(zone_type: ZoneType) -> Shape {
        match zone_type {
            ZoneType::Conventional => Shape { phase: Phase::Conventional, is_random: true, ..Shape::empty() },
            ZoneType::SequentialWriteRequired => Shape::empty(),
        }
    }

    /// Applies a change. An acknowledged change is applied completely; one that is not, maybe in
    /// part.
    pub(crate) fn apply(&mut self, change: &Change, is_acknowledged: bool, geometry: &Geometry) {
        match change {
            Change::Write { first, prints } => {
                if self.phase == Phase::Conventional {
                    return;
                }
                let end = first + prints.len() as u64;
                self.high = if self.zrwa { self.committed_by(end, geometry) } else { end };
                if self.phase == Phase::Empty {
                    self.phase = Phase::Written;
                }
                if is_acknowledged {
                    self.low = self.high;
                }
            }
            Change::Deallocate { .. } => {}
            Change::Commit { to } => {
                self.high = *to;
                if is_acknowledged {
                    self.low = self.high;
                }
            }
            Change::Open { zrwa } => {
                self.phase = Phase::Opened;
                self.grant_zrwa(*zrwa);
            }
            Change::Close => self.phase = Phase::Closed,
            Change::Finish => {
                self.phase = Phase::Full;
                self.low = self.high;
                self.zrwa = false;
            }
            Change::Reset => *self = Shape::empty(),
            Change::SetExtension { extension, zrwa } => {
                self.phase = Phase::Closed;
                self.extension = Some(extension.clone());
                self.grant_zrwa(*zrwa);
            }
            Change::BecomeReadOnly => {
                self.phase = Phase::ReadOnly;
                self.zrwa = false;
            }
            Change::BecomeOffline => *self = Shape { phase: Phase::Offline, ..Shape::empty() },
        }
    }

    /// Whether the zone is full, by writes or by a Finish.
    fn is_full(&self, geometry: &Geometry) -> bool {
        self.phase == Phase::Full || self.high == geometry.zone_capacity_blocks.0
    }

    fn is_active(&self, geometry: &Geometry) -> bool {
        matches!(self.phase, Phase::Opened | Phase::Written | Phase::Closed) && !self.is_full(geometry)
    }

    fn grant_zrwa(&mut self, zrwa: bool) {
        self.zrwa |= zrwa;
        self.is_random |= zrwa;
    }

    /// Where the write pointer of a zone with a ZRWA is after a write up to `end`.
    fn committed_by(&self, end: u64, geometry: &Geometry) -> u64 {
        let zrwa = geometry.zrwa.expect("only a namespace with ZRWAs grants them");
        let beyond = end.saturating_sub(self.high + zrwa.size_blocks.0);
        let committed = self.high + beyond.next_multiple_of(zrwa.flush_granularity_blocks.0);
        committed.min(geometry.zone_capacity_blocks.0)
    }
}

impl ZoneEntry {
    fn new(shape: Shape, prints: Vec<u64>) -> ZoneEntry {
        ZoneEntry { now: shape.clone(), base: shape, prints, effects: VecDeque::new() }
    }

    /// The offset of the write pointer if every submitted effect is applied.
    pub(crate) fn submitted_blocks(&self) -> u64 {
        self.now.high
    }

    fn push(&mut self, effect: Effect, geometry: &Geometry) {
        self.now.apply(&effect.change, false, geometry);
        self.effects.push_back(effect);
    }

    /// Moves effects that have become certain from the front of the queue to the certain state.
    fn apply_certain(&mut self, geometry: &Geometry) {
        let mut acknowledged_left = self.effects.iter().filter(|effect| effect.is_acknowledged).count();
        while let Some(effect) = self.effects.front() {
            let has_contents = matches!(effect.change, Change::Write { .. } | Change::Deallocate { .. });
            // Management before an acknowledged effect is certain; a write before it may still lose
            // its tail.
            if !effect.is_acknowledged && (has_contents || acknowledged_left == 0) {
                return;
            }
            acknowledged_left -= usize::from(effect.is_acknowledged);
            let effect = self.effects.pop_front().expect("the queue is not empty");
            self.base.apply(&effect.change, true, geometry);
            match effect.change {
                Change::Write { first, prints } => {
                    self.prints[first as usize..][..prints.len()].copy_from_slice(&prints);
                }
                Change::Deallocate { first, blocks } => {
                    self.prints[first as usize..][..blocks as usize].fill(ZERO_FINGERPRINT);
                }
                Change::Reset | Change::BecomeOffline => self.prints.fill(ZERO_FINGERPRINT),
                _ => {}
            }
        }
    }
}

impl Ledger {
    /// The ledger of a new namespace.
    pub(crate) fn new(geometry: &Geometry) -> Ledger {
        let prints = vec![ZERO_FINGERPRINT; geometry.zone_size_blocks.0 as usize];
        let entry = |zone| ZoneEntry::new(Shape::of_new_zone(geometry.zone_type(ZoneIndex(zone))), prints.clone());
        Ledger {
            geometry: geometry.clone(),
            entries: (0..geometry.zone_count).map(entry).collect(),
            zones_of: BTreeMap::new(),
        }
    }

    /// Records a submitted command that will succeed with this outcome.
    pub(crate) fn take(&mut self, id: CommandId, operation: &Operation, outcome: &Outcome) {
        match operation {
            Operation::Write { start, blocks, payload } => self.write(id, *start, *blocks, payload),
            Operation::WriteZeroes { start, blocks } => self.write(id, *start, *blocks, &Payload::None),
            Operation::Append { blocks, payload, .. } => {
                let Outcome::Appended(start) = outcome else { panic!("the oracle returns the LBA of an append") };
                self.write(id, *start, *blocks, payload);
            }
            Operation::Deallocate { ranges } => {
                for range in ranges {
                    for (zone, first, blocks) in self.pieces(range.start, range.blocks) {
                        self.note(id, zone, Change::Deallocate { first, blocks });
                    }
                }
            }
            Operation::ManageZones { action, target } => self.manage(id, action, *target),
            Operation::Read { .. } | Operation::Flush | Operation::ReportZones { .. } | Operation::ReadChangedZones => {
            }
        }
    }

    /// Records that a command completed with success.
    pub(crate) fn acknowledge(&mut self, id: CommandId) {
        for zone in self.zones_of.remove(&id).unwrap_or_default() {
            let entry = &mut self.entries[zone.as_usize()];
            for effect in entry.effects.iter_mut().filter(|effect| effect.command == Some(id)) {
                effect.is_acknowledged = true;
            }
            entry.apply_certain(&self.geometry);
        }
    }

    /// Removes a command that never left its host.
    pub(crate) fn withdraw(&mut self, id: CommandId) {
        for zone in self.zones_of.remove(&id).unwrap_or_default() {
            self.entries[zone.as_usize()].effects.retain(|effect| effect.command != Some(id));
        }
    }

    /// Records the degradation of a zone.
    pub(crate) fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        let change = if to == ZoneState::Offline { Change::BecomeOffline } else { Change::BecomeReadOnly };
        let entry = &mut self.entries[zone.as_usize()];
        entry.push(Effect { command: None, is_acknowledged: true, change }, &self.geometry);
        entry.apply_certain(&self.geometry);
    }

    /// Applies every submitted effect: no command is in flight below, so that all are complete,
    /// whatever their completions reported.
    pub(crate) fn apply_all(&mut self) {
        self.zones_of.clear();
        for entry in &mut self.entries {
            for effect in &mut entry.effects {
                effect.is_acknowledged = true;
            }
            entry.apply_certain(&self.geometry);
        }
    }

    /// Sets the certain state of a zone to the state observed after a power loss.
    pub(crate) fn set(&mut self, zone: ZoneIndex, shape: Shape, prints: &[u64]) {
        let mut all = vec![ZERO_FINGERPRINT; self.geometry.zone_size_blocks.0 as usize];
        all[..prints.len()].copy_from_slice(prints);
        self.entries[zone.as_usize()] = ZoneEntry::new(shape, all);
    }

    /// Drops all commands in flight, after a power loss.
    pub(crate) fn forget_commands(&mut self) {
        self.zones_of.clear();
    }

    fn write(&mut self, id: CommandId, start: Lba, blocks: Blocks, payload: &Payload) {
        let prints = self.prints_of(payload, blocks.0);
        let mut done = 0;
        for (zone, first, count) in self.pieces(start, blocks) {
            let prints = prints[done..done + count as usize].into();
            done += count as usize;
            self.note(id, zone, Change::Write { first, prints });
        }
    }

    fn manage(&mut self, id: CommandId, action: &ZoneAction, target: ZoneTarget) {
        match target {
            ZoneTarget::Zone(lba) => {
                let zone = self.geometry.zone_of(lba).expect("the oracle has checked the target");
                let offset = (lba - self.geometry.zone_start(zone)).0;
                self.note(id, zone, change_of(action, offset));
            }
            ZoneTarget::All => {
                for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
                    if self.is_selected(action, &self.entries[zone.as_usize()].now) {
                        self.note(id, zone, change_of(action, 0));
                    }
                }
            }
        }
    }

    /// Whether a Select All affects a zone. Where that depends on whether the controller has closed
    /// the zone in the meantime, returns false: it makes no difference after a power loss.
    fn is_selected(&self, action: &ZoneAction, zone: &Shape) -> bool {
        match action {
            ZoneAction::Close => zone.phase == Phase::Opened && zone.is_active(&self.geometry),
            ZoneAction::Finish => zone.is_active(&self.geometry),
            ZoneAction::Reset => zone.is_active(&self.geometry) || is_sequential_and_full(zone, &self.geometry),
            ZoneAction::Offline => zone.phase == Phase::ReadOnly,
            ZoneAction::Open { .. } => {
                zone.phase == Phase::Closed && zone.high == 0 && !zone.zrwa && zone.extension.is_none()
            }
            ZoneAction::SetDescriptorExtension { .. } | ZoneAction::FlushZrwa => false,
        }
    }

    fn note(&mut self, id: CommandId, zone: ZoneIndex, change: Change) {
        let zones = self.zones_of.entry(id).or_default();
        if !zones.contains(&zone) {
            zones.push(zone);
        }
        let effect = Effect { command: Some(id), is_acknowledged: false, change };
        self.entries[zone.as_usize()].push(effect, &self.geometry);
    }

    /// Splits a range by zones: zone, offset of the first block, number of blocks.
    fn pieces(&self, start: Lba, blocks: Blocks) -> Vec<(ZoneIndex, u64, u64)> {
        let size = self.geometry.zone_size_blocks.0;
        let (mut at, end) = (start.0, start.0 + blocks.0);
        let mut pieces = Vec::new();
        while at < end {
            let count = (end - at).min(size - at % size);
            pieces.push((ZoneIndex((at / size) as u32), at % size, count));
            at += count;
        }
        pieces
    }

    fn prints_of(&self, payload: &Payload, blocks: u64) -> Vec<u64> {
        match payload {
            Payload::None => vec![ZERO_FINGERPRINT; blocks as usize],
            Payload::Fingerprints(prints) => prints.to_vec(),
            Payload::Bytes(buffer) => {
                let (size, metadata) =
                    (self.geometry.block_size_bytes as usize, usize::from(self.geometry.metadata_bytes));
                let block = |at: usize| {
                    fingerprint(&buffer.data[at * size..][..size], &buffer.metadata[at * metadata..][..metadata])
                };
                (0..blocks as usize).map(block).collect()
            }
        }
    }
}

fn is_sequential_and_full(zone: &Shape, geometry: &Geometry) -> bool {
    let can_be_full = matches!(zone.phase, Phase::Opened | Phase::Written | Phase::Closed | Phase::Full);
    can_be_full && zone.is_full(geometry)
}

fn change_of(action: &ZoneAction, offset: u64) -> Change {
    match action {
        ZoneAction::Close => Change::Close,
        ZoneAction::Finish => Change::Finish,
        ZoneAction::Open { zrwa } => Change::Open { zrwa: *zrwa },
        ZoneAction::Reset => Change::Reset,
        ZoneAction::Offline => Change::BecomeOffline,
        ZoneAction::SetDescriptorExtension { extension, zrwa } => {
            Change::SetExtension { extension: extension.clone(), zrwa: *zrwa }
        }
        ZoneAction::FlushZrwa => Change::Commit { to: offset + 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(ledger: &mut Ledger, id: u64, place: u64, prints: &[u64]) {
        let payload = Payload::Fingerprints(prints.into());
        let blocks = Blocks(prints.len() as u64);
        let operation = Operation::Append { zone_start: Lba(0), blocks, payload };
        ledger.take(CommandId(id), &operation, &Outcome::Appended(Lba(place)));
    }

    fn manage(ledger: &mut Ledger, id: u64, action: ZoneAction, target: ZoneTarget) {
        ledger.take(CommandId(id), &Operation::ManageZones { action, target }, &Outcome::None);
    }

    #[test]
    fn effects_acknowledged_out_of_order_become_certain_in_order() {
        let mut ledger = Ledger::new(&Geometry::tiny());
        append(&mut ledger, 1, 0, &[1, 2]);
        append(&mut ledger, 2, 2, &[3]);
        ledger.acknowledge(CommandId(2));
        assert_eq!((ledger.entries[0].base.low, ledger.entries[0].effects.len()), (0, 2));
        ledger.acknowledge(CommandId(1));
        assert_eq!((ledger.entries[0].base.low, ledger.entries[0].effects.len()), (3, 0));
        assert_eq!(ledger.entries[0].prints[..4], [1, 2, 3, 0]);
    }

    #[test]
    fn a_select_all_affects_the_zones_in_its_states() {
        let mut ledger = Ledger::new(&Geometry::tiny());
        append(&mut ledger, 1, 0, &[1]);
        manage(&mut ledger, 2, ZoneAction::Open { zrwa: false }, ZoneTarget::Zone(Lba(16)));
        manage(&mut ledger, 3, ZoneAction::Finish, ZoneTarget::All);
        manage(&mut ledger, 4, ZoneAction::Reset, ZoneTarget::All);
        let counts: Vec<usize> = ledger.entries.iter().map(|entry| entry.effects.len()).collect();
        assert_eq!(counts, [3, 3, 0, 0, 0, 0, 0, 0]);
        ledger.apply_all();
        assert!(ledger.entries.iter().all(|entry| entry.base.phase == Phase::Empty && entry.effects.is_empty()));
    }

    #[test]
    fn a_write_across_zones_is_recorded_in_each() {
        let geometry = Geometry {
            conventional_zone_count: 2,
            zone_capacity_blocks: Geometry::tiny().zone_size_blocks,
            ..Geometry::tiny()
        };
        let mut ledger = Ledger::new(&geometry);
        let payload = Payload::Fingerprints([1, 2, 3].into());
        let write = Operation::Write { start: Lba(14), blocks: Blocks(3), payload };
        ledger.take(CommandId(1), &write, &Outcome::None);
        ledger.acknowledge(CommandId(1));
        assert_eq!(ledger.entries[0].prints[13..], [0, 1, 2]);
        assert_eq!(ledger.entries[1].prints[..2], [3, 0]);
    }

    #[test]
    fn a_write_beyond_a_zrwa_commits_whole_granules() {
        let zrwa = zonda_zoned::ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 1,
            explicit_flush: true,
        };
        let mut ledger = Ledger::new(&Geometry { zrwa: Some(zrwa), ..Geometry::tiny() });
        manage(&mut ledger, 1, ZoneAction::Open { zrwa: true }, ZoneTarget::Zone(Lba(0)));
        append(&mut ledger, 2, 3, &[1, 2]);
        assert_eq!(ledger.entries[0].submitted_blocks(), 2);
        manage(&mut ledger, 3, ZoneAction::FlushZrwa, ZoneTarget::Zone(Lba(5)));
        assert_eq!(ledger.entries[0].submitted_blocks(), 6);
        assert_eq!(ledger.entries[0].base.low, 0, "nothing is acknowledged");
    }
}
