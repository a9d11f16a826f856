//! The checker's own books: of each zone, what is certain, and in order what was asked of it since and is not.
//!
//! They share nothing with the oracle but its verdict on which commands succeed and where an append went. After a loss
//! of power [`crate::check::survival`] decides by them whether what came back is allowed.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{
    Blocks, CommandId, Geometry, Lba, Operation, Outcome, Payload, ZERO_FINGERPRINT, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget, ZoneType, fingerprint,
};

/// What a zone is to the checker. Which open zones the controller closes to make room does not matter to it: after a
/// loss of power an implicitly opened zone and a closed one are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Conventional,
    Empty,
    /// Explicitly opened.
    Opened,
    /// Opened by a write when it was empty.
    Written,
    /// Closed by the host, or active with a descriptor extension, or closed by a loss of power; perhaps reopened by a
    /// write.
    Closed,
    /// Finished by the host, or full and acknowledged as such. A zone that writes fill keeps its phase.
    Full,
    ReadOnly,
    Offline,
}

/// A zone but for its contents.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) phase: Phase,
    /// The least and the greatest offset at which the write pointer can be.
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) zrwa: bool,
    /// Its blocks were not written in order: it is conventional, or has or had a ZRWA since it was empty.
    pub(crate) is_random: bool,
    pub(crate) extension: Option<Box<[u8]>>,
}

/// Something that was asked of a zone, and that succeeded when it was taken; or that happened to it.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// The command; `None` for what the world did, which is certain.
    pub(crate) command: Option<CommandId>,
    pub(crate) is_acknowledged: bool,
    pub(crate) what: What,
}

/// What was asked of a zone. Offsets are from its start.
#[derive(Clone, Debug)]
pub(crate) enum What {
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

/// One zone's page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// What is certain; `low` and `high` are equal.
    pub(crate) base: Shape,
    /// The fingerprint of each block in it.
    pub(crate) prints: Vec<u64>,
    pub(crate) effects: VecDeque<Effect>,
    /// The zone if everything asked of it happens.
    now: Shape,
}

/// The books of a run.
pub(crate) struct Ledger {
    pub(crate) geometry: Geometry,
    pub(crate) pages: Vec<Page>,
    /// The zones that each command under way has to do with.
    zones_of: BTreeMap<CommandId, Vec<ZoneIndex>>,
}

impl What {
    /// A short name for stories.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            What::Write { .. } => "write",
            What::Deallocate { .. } => "deallocate",
            What::Commit { .. } => "flush zrwa",
            What::Open { .. } => "open",
            What::Close => "close",
            What::Finish => "finish",
            What::Reset => "reset",
            What::SetExtension { .. } => "set descriptor extension",
            What::BecomeReadOnly => "becoming read only",
            What::BecomeOffline => "offline",
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

    /// Lets something happen. What is acknowledged has happened for certain, as it was when it was taken.
    pub(crate) fn apply(&mut self, what: &What, is_acknowledged: bool, geometry: &Geometry) {
        match what {
            What::Write { first, prints } => {
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
            What::Deallocate { .. } => {}
            What::Commit { to } => {
                self.high = *to;
                if is_acknowledged {
                    self.low = self.high;
                }
            }
            What::Open { zrwa } => {
                self.phase = Phase::Opened;
                self.give_zrwa(*zrwa);
            }
            What::Close => self.phase = Phase::Closed,
            What::Finish => {
                self.phase = Phase::Full;
                self.low = self.high;
                self.zrwa = false;
            }
            What::Reset => *self = Shape::empty(),
            What::SetExtension { extension, zrwa } => {
                self.phase = Phase::Closed;
                self.extension = Some(extension.clone());
                self.give_zrwa(*zrwa);
            }
            What::BecomeReadOnly => {
                self.phase = Phase::ReadOnly;
                self.zrwa = false;
            }
            What::BecomeOffline => *self = Shape { phase: Phase::Offline, ..Shape::empty() },
        }
    }

    /// Whether writes have filled the zone, or a finish.
    fn is_full(&self, geometry: &Geometry) -> bool {
        self.phase == Phase::Full || self.high == geometry.zone_capacity_blocks.0
    }

    fn is_active(&self, geometry: &Geometry) -> bool {
        matches!(self.phase, Phase::Opened | Phase::Written | Phase::Closed) && !self.is_full(geometry)
    }

    fn give_zrwa(&mut self, zrwa: bool) {
        self.zrwa |= zrwa;
        self.is_random |= zrwa;
    }

    /// Where the write pointer of a zone with a ZRWA is after a write up to `end`.
    fn committed_by(&self, end: u64, geometry: &Geometry) -> u64 {
        let zrwa = geometry.zrwa.expect("a zone has a ZRWA only where the namespace has them");
        let beyond = end.saturating_sub(self.high + zrwa.size_blocks.0);
        let committed = self.high + beyond.next_multiple_of(zrwa.flush_granularity_blocks.0);
        committed.min(geometry.zone_capacity_blocks.0)
    }
}

impl Page {
    fn new(shape: Shape, prints: Vec<u64>) -> Page {
        Page { now: shape.clone(), base: shape, prints, effects: VecDeque::new() }
    }

    /// Where the write pointer is if everything asked of the zone happens.
    pub(crate) fn asked_for(&self) -> u64 {
        self.now.high
    }

    fn push(&mut self, effect: Effect, geometry: &Geometry) {
        self.now.apply(&effect.what, false, geometry);
        self.effects.push_back(effect);
    }

    /// Moves from the front what has become certain.
    fn settle(&mut self, geometry: &Geometry) {
        let mut acknowledged_left = self.effects.iter().filter(|effect| effect.is_acknowledged).count();
        while let Some(effect) = self.effects.front() {
            let has_contents = matches!(effect.what, What::Write { .. } | What::Deallocate { .. });
            // Management before anything acknowledged has happened; a write before it may still lose its tail.
            if !effect.is_acknowledged && (has_contents || acknowledged_left == 0) {
                return;
            }
            acknowledged_left -= usize::from(effect.is_acknowledged);
            let effect = self.effects.pop_front().expect("it was there just now");
            self.base.apply(&effect.what, true, geometry);
            match effect.what {
                What::Write { first, prints } => {
                    self.prints[first as usize..][..prints.len()].copy_from_slice(&prints);
                }
                What::Deallocate { first, blocks } => {
                    self.prints[first as usize..][..blocks as usize].fill(ZERO_FINGERPRINT);
                }
                What::Reset | What::BecomeOffline => self.prints.fill(ZERO_FINGERPRINT),
                _ => {}
            }
        }
    }
}

impl Ledger {
    /// The books of a namespace as it leaves the factory.
    pub(crate) fn new(geometry: &Geometry) -> Ledger {
        let prints = vec![ZERO_FINGERPRINT; geometry.zone_size_blocks.0 as usize];
        let page = |zone| Page::new(Shape::of_new_zone(geometry.zone_type(ZoneIndex(zone))), prints.clone());
        Ledger {
            geometry: geometry.clone(),
            pages: (0..geometry.zone_count).map(page).collect(),
            zones_of: BTreeMap::new(),
        }
    }

    /// A command was taken, and will succeed with this outcome.
    pub(crate) fn take(&mut self, id: CommandId, operation: &Operation, outcome: &Outcome) {
        match operation {
            Operation::Write { start, blocks, payload } => self.write(id, *start, *blocks, payload),
            Operation::WriteZeroes { start, blocks } => self.write(id, *start, *blocks, &Payload::None),
            Operation::Append { blocks, payload, .. } => {
                let Outcome::Appended(start) = outcome else { panic!("the oracle says where an append goes") };
                self.write(id, *start, *blocks, payload);
            }
            Operation::Deallocate { ranges } => {
                for range in ranges {
                    for (zone, first, blocks) in self.pieces(range.start, range.blocks) {
                        self.note(id, zone, What::Deallocate { first, blocks });
                    }
                }
            }
            Operation::ManageZones { action, target } => self.manage(id, action, *target),
            Operation::Read { .. } | Operation::Flush | Operation::ReportZones { .. } | Operation::ReadChangedZones => {
            }
        }
    }

    /// The host was told that a command succeeded.
    pub(crate) fn acknowledge(&mut self, id: CommandId) {
        for zone in self.zones_of.remove(&id).unwrap_or_default() {
            let page = &mut self.pages[zone.as_usize()];
            for effect in page.effects.iter_mut().filter(|effect| effect.command == Some(id)) {
                effect.is_acknowledged = true;
            }
            page.settle(&self.geometry);
        }
    }

    /// A command that was taken never left its host: it has not happened.
    pub(crate) fn withdraw(&mut self, id: CommandId) {
        for zone in self.zones_of.remove(&id).unwrap_or_default() {
            self.pages[zone.as_usize()].effects.retain(|effect| effect.command != Some(id));
        }
    }

    /// A zone degraded.
    pub(crate) fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        let what = if to == ZoneState::Offline { What::BecomeOffline } else { What::BecomeReadOnly };
        let page = &mut self.pages[zone.as_usize()];
        page.push(Effect { command: None, is_acknowledged: true, what }, &self.geometry);
        page.settle(&self.geometry);
    }

    /// Nothing is under way below: everything that was taken has happened, whatever the host was told.
    pub(crate) fn settle_all(&mut self) {
        self.zones_of.clear();
        for page in &mut self.pages {
            for effect in &mut page.effects {
                effect.is_acknowledged = true;
            }
            page.settle(&self.geometry);
        }
    }

    /// A zone was looked at after a loss of power, and is this.
    pub(crate) fn set(&mut self, zone: ZoneIndex, shape: Shape, prints: &[u64]) {
        let mut kept = vec![ZERO_FINGERPRINT; self.geometry.zone_size_blocks.0 as usize];
        kept[..prints.len()].copy_from_slice(prints);
        self.pages[zone.as_usize()] = Page::new(shape, kept);
    }

    /// Everything under way is forgotten: the power went.
    pub(crate) fn forget_commands(&mut self) {
        self.zones_of.clear();
    }

    fn write(&mut self, id: CommandId, start: Lba, blocks: Blocks, payload: &Payload) {
        let prints = self.prints_of(payload, blocks.0);
        let mut done = 0;
        for (zone, first, count) in self.pieces(start, blocks) {
            let prints = prints[done..done + count as usize].into();
            done += count as usize;
            self.note(id, zone, What::Write { first, prints });
        }
    }

    fn manage(&mut self, id: CommandId, action: &ZoneAction, target: ZoneTarget) {
        match target {
            ZoneTarget::Zone(lba) => {
                let zone = self.geometry.zone_of(lba).expect("the oracle has checked the target");
                let offset = (lba - self.geometry.zone_start(zone)).0;
                self.note(id, zone, what_of(action, offset));
            }
            ZoneTarget::All => {
                for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
                    if self.concerns(action, &self.pages[zone.as_usize()].now) {
                        self.note(id, zone, what_of(action, 0));
                    }
                }
            }
        }
    }

    /// Whether a Select All is about a zone. Where that depends on whether the controller has closed the zone in the
    /// meantime, the answer is no: it makes no difference after a loss of power.
    fn concerns(&self, action: &ZoneAction, zone: &Shape) -> bool {
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

    fn note(&mut self, id: CommandId, zone: ZoneIndex, what: What) {
        let zones = self.zones_of.entry(id).or_default();
        if !zones.contains(&zone) {
            zones.push(zone);
        }
        let effect = Effect { command: Some(id), is_acknowledged: false, what };
        self.pages[zone.as_usize()].push(effect, &self.geometry);
    }

    /// Blocks as pieces of zones: zone, first block in it, count.
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

fn what_of(action: &ZoneAction, offset: u64) -> What {
    match action {
        ZoneAction::Close => What::Close,
        ZoneAction::Finish => What::Finish,
        ZoneAction::Open { zrwa } => What::Open { zrwa: *zrwa },
        ZoneAction::Reset => What::Reset,
        ZoneAction::Offline => What::BecomeOffline,
        ZoneAction::SetDescriptorExtension { extension, zrwa } => {
            What::SetExtension { extension: extension.clone(), zrwa: *zrwa }
        }
        ZoneAction::FlushZrwa => What::Commit { to: offset + 1 },
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
    fn what_is_acknowledged_out_of_order_becomes_certain_in_order() {
        let mut ledger = Ledger::new(&Geometry::tiny());
        append(&mut ledger, 1, 0, &[1, 2]);
        append(&mut ledger, 2, 2, &[3]);
        ledger.acknowledge(CommandId(2));
        assert_eq!((ledger.pages[0].base.low, ledger.pages[0].effects.len()), (0, 2));
        ledger.acknowledge(CommandId(1));
        assert_eq!((ledger.pages[0].base.low, ledger.pages[0].effects.len()), (3, 0));
        assert_eq!(ledger.pages[0].prints[..4], [1, 2, 3, 0]);
    }

    #[test]
    fn a_select_all_is_about_the_zones_in_its_states() {
        let mut ledger = Ledger::new(&Geometry::tiny());
        append(&mut ledger, 1, 0, &[1]);
        manage(&mut ledger, 2, ZoneAction::Open { zrwa: false }, ZoneTarget::Zone(Lba(16)));
        manage(&mut ledger, 3, ZoneAction::Finish, ZoneTarget::All);
        manage(&mut ledger, 4, ZoneAction::Reset, ZoneTarget::All);
        let counts: Vec<usize> = ledger.pages.iter().map(|page| page.effects.len()).collect();
        assert_eq!(counts, [3, 3, 0, 0, 0, 0, 0, 0]);
        ledger.settle_all();
        assert!(ledger.pages.iter().all(|page| page.base.phase == Phase::Empty && page.effects.is_empty()));
    }

    #[test]
    fn a_write_over_zones_is_noted_in_each() {
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
        assert_eq!(ledger.pages[0].prints[13..], [0, 1, 2]);
        assert_eq!(ledger.pages[1].prints[..2], [3, 0]);
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
        assert_eq!(ledger.pages[0].asked_for(), 2);
        manage(&mut ledger, 3, ZoneAction::FlushZrwa, ZoneTarget::Zone(Lba(5)));
        assert_eq!(ledger.pages[0].asked_for(), 6);
        assert_eq!(ledger.pages[0].base.low, 0, "nothing is acknowledged");
    }
}
