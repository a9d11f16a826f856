//! The commands submitted to a drive since it was opened, and so the states allowed after a crash.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Geometry, Lba, Operation, Outcome, Status, ZoneAction, ZoneIndex,
    ZoneState, fingerprint,
};

use super::{Contents, Observed};

mod zones;

/// How a session of a drive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Not at all: the running drive is observed.
    None,
    /// The program was killed; the page cache survives.
    Kill,
    /// The power failed: unsynced changes may be lost, page by page.
    PowerLoss,
    /// A clean shutdown.
    Close,
}

/// The subject of a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// A completion.
    Answer,
    /// The state and the write pointer of a zone.
    Zone,
    /// The contents of a block.
    Block,
}

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its subject.
    pub promise: Promise,
    /// The zone concerned, if it is one.
    pub zone: Option<ZoneIndex>,
    /// A description.
    pub message: String,
}

/// The commands submitted to a drive in one session, and their results.
#[derive(Debug)]
pub struct Ledger {
    pub(crate) geometry: Geometry,
    /// The drive after all submitted commands.
    pub oracle: ReferenceDevice,
    expected: BTreeMap<CommandId, (Completion, usize)>,
    events: Vec<Event>,
    zones: Vec<ZoneHistory>,
    blocks: BTreeMap<Lba, BlockHistory>,
    /// Outstanding Flush commands, each with the events that were acknowledged when it was
    /// submitted.
    flushes: BTreeMap<CommandId, Vec<usize>>,
    is_management_in_doubt: bool,
}

/// What a crash may still decide about earlier sessions.
#[derive(Clone, Copy, Debug)]
pub struct Doubts {
    /// Management whose record was written may have happened, because the record could not be
    /// invalidated.
    pub management: bool,
    /// Zones that failed by themselves may be as they were before: no command acknowledges this
    /// change, and it could not be recorded.
    pub degradations: bool,
}

#[derive(Debug, Default)]
struct Event {
    /// The medium of a zone failed.
    degradation: bool,
    acknowledged: bool,
    durable: bool,
    /// It ended with an error of the files.
    failed: bool,
    /// Zones in which it is durable because a later Finish is.
    durable_in: BTreeSet<u32>,
    /// A management command that is durable when it is acknowledged.
    management: bool,
    finishes: BTreeSet<u32>,
}

#[derive(Debug)]
struct ZoneHistory {
    base: ZoneImage,
    /// A write to its ZRWA failed in an earlier session: a crash may lose its implicit commit.
    is_pointer_in_doubt: bool,
    /// States after management that failed in an earlier session, and may have happened.
    doubts: Vec<ZoneImage>,
    changes: Vec<ZoneChange>,
}

#[derive(Clone, Debug)]
struct ZoneChange {
    event: usize,
    image: ZoneImage,
    /// The end of a write, as an offset in the zone.
    write_end: Option<u64>,
}

#[derive(Debug)]
struct BlockHistory {
    base: u64,
    /// Contents of writes that failed in an earlier session, which may appear after a crash.
    doubts: Vec<u64>,
    /// Changes in earlier sessions.
    changes_before: usize,
    changes: Vec<(usize, u64)>,
}

impl Ledger {
    /// Begins a session of a drive with the state of the oracle, all of it durable.
    #[must_use]
    pub fn new(oracle: ReferenceDevice, geometry: &Geometry) -> Ledger {
        let zones = (0..geometry.zone_count)
            .map(|zone| ZoneHistory {
                base: oracle.image(ZoneIndex(zone)),
                is_pointer_in_doubt: false,
                doubts: Vec::new(),
                changes: Vec::new(),
            })
            .collect();
        let mut blocks = BTreeMap::new();
        for zone in 0..geometry.zone_count {
            let start = geometry.zone_start(ZoneIndex(zone));
            for block in 0..geometry.zone_capacity_blocks.0 {
                let lba = start + Blocks(block);
                let base = oracle.block(lba);
                blocks.insert(lba, BlockHistory { base, doubts: Vec::new(), changes_before: 0, changes: Vec::new() });
            }
        }
        Ledger {
            geometry: geometry.clone(),
            oracle,
            expected: BTreeMap::new(),
            events: Vec::new(),
            zones,
            blocks,
            flushes: BTreeMap::new(),
            is_management_in_doubt: false,
        }
    }

    /// A record could not be written, nor the zeros over it: management that failed may have happened,
    /// and a kill shows it as well as a power loss.
    pub fn doubt_management(&mut self) {
        self.is_management_in_doubt = true;
    }

    /// Begins a new session on a drive that keeps running: journaled contents of failed overwrites
    /// may still appear after a crash, and what `doubts` names.
    #[must_use]
    pub fn renewed(&self, oracle: ReferenceDevice, doubts: Doubts) -> Ledger {
        let mut renewed = Ledger::new(oracle, &self.geometry);
        for (lba, history) in &self.blocks {
            let block = renewed.blocks.get_mut(lba).expect("every block has a history");
            block.changes_before = history.changes_before + history.changes.len();
            let failed = history.changes.iter().filter(|(event, _)| self.events[*event].failed);
            block.doubts.extend(history.doubts.iter().copied().chain(failed.map(|(_, print)| *print)));
        }
        for (zone, history) in renewed.zones.iter_mut().zip(&self.zones) {
            let has_failed = history.changes.iter().any(|change| self.events[change.event].failed);
            zone.is_pointer_in_doubt = zone.base.zrwa && (has_failed || history.is_pointer_in_doubt);
            if doubts.management {
                let failed = history.changes.iter().filter(|change| {
                    let Event { failed, management, .. } = &self.events[change.event];
                    *failed && *management
                });
                zone.doubts = failed.map(|change| restarted(&change.image)).chain(history.doubts.clone()).collect();
            }
        }
        if doubts.degradations {
            (0..self.geometry.zone_count).for_each(|zone| self.doubt_degradation(zone, &mut renewed));
        }
        renewed
    }

    /// If the medium of a zone failed, its earlier state and contents may appear after a crash.
    fn doubt_degradation(&self, zone: u32, renewed: &mut Ledger) {
        let history = &self.zones[zone as usize];
        let Some(at) = history.changes.iter().position(|change| self.events[change.event].degradation) else { return };
        let before = at.checked_sub(1).map_or(&history.base, |before| &history.changes[before].image);
        let event = history.changes[at].event;
        renewed.zones[zone as usize].doubts.push(restarted(before));
        let start = self.geometry.zone_start(ZoneIndex(zone));
        for lba in (0..self.geometry.zone_capacity_blocks.0).map(|block| start + Blocks(block)) {
            let earlier = &self.blocks[&lba];
            let prints = earlier.changes.iter().filter(|(at, _)| *at < event).map(|(_, print)| *print);
            let block = renewed.blocks.get_mut(&lba).expect("every block has a history");
            block.doubts.extend(prints.chain([earlier.base]));
        }
    }

    /// Commands that have not ended.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }

    /// Notes a submitted command.
    pub fn submitted(&mut self, command: &Command) {
        let before: Vec<ZoneImage> = self.images();
        let completion = self.oracle.execute(command);
        let event = self.events.len();
        self.events.push(Event::default());
        if command.operation == Operation::Flush && completion.status.is_success() {
            let acknowledged = (0..event).filter(|&event| self.events[event].acknowledged).collect();
            self.flushes.insert(command.id, acknowledged);
        }
        if completion.status.is_success() {
            self.note(event, &command.operation, &completion.outcome, &before);
        }
        self.expected.insert(command.id, (completion, event));
    }

    /// Notes that the medium of a zone has failed.
    pub fn degraded(&mut self, zone: ZoneIndex, state: ZoneState) {
        let before: Vec<ZoneImage> = self.images();
        self.oracle.degrade(zone, state);
        let event = self.events.len();
        self.events.push(Event { degradation: true, ..Event::default() });
        self.note(event, &Operation::Flush, &Outcome::None, &before);
    }

    /// Notes a completion. Returns false if the command failed although it succeeds on the oracle,
    /// as it may with `faults`.
    ///
    /// # Errors
    /// If this completion is not allowed.
    pub fn completed(&mut self, completion: &Completion, faults: bool) -> Result<bool, Violation> {
        let wrong = |message| Violation { promise: Promise::Answer, zone: None, message };
        let Some((expected, event)) = self.expected.remove(&completion.id) else {
            return Err(wrong(format!("command {} has ended, and was not in progress", completion.id)));
        };
        if faults && expected.status.is_success() && !completion.status.is_success() {
            let possible = matches!(
                completion.status,
                Status::WriteFault | Status::CapacityExceeded | Status::InternalError | Status::UnrecoveredReadError
            );
            if !possible {
                return Err(wrong(brief(completion, &expected)));
            }
            self.flushes.remove(&completion.id);
            self.events[event].failed = true;
            return Ok(false);
        }
        // A read behind a failed write returns the earlier contents.
        let may_differ = faults && matches!(expected.outcome, Outcome::Data(_));
        if !may_differ && *completion != expected {
            return Err(wrong(brief(completion, &expected)));
        }
        if !completion.status.is_success() {
            return Ok(true);
        }
        for flushed in self.flushes.remove(&completion.id).unwrap_or_default() {
            self.events[flushed].durable = true;
        }
        self.events[event].acknowledged = true;
        self.events[event].durable |= self.events[event].management;
        // Finish syncs what was written before it.
        for zone in self.events[event].finishes.clone() {
            for change in &self.zones[zone as usize].changes {
                if change.event < event && !self.events[change.event].failed {
                    self.events[change.event].durable_in.insert(zone);
                }
            }
        }
        Ok(true)
    }

    fn images(&self) -> Vec<ZoneImage> {
        (0..self.geometry.zone_count).map(|zone| self.oracle.image(ZoneIndex(zone))).collect()
    }

    fn note(&mut self, event: usize, operation: &Operation, outcome: &Outcome, before: &[ZoneImage]) {
        let written: Vec<(u64, u64)> = match (operation, outcome) {
            (Operation::Append { blocks, .. }, Outcome::Appended(start)) => vec![(start.0, blocks.0)],
            (Operation::Write { start, blocks, .. } | Operation::WriteZeroes { start, blocks }, _) => {
                vec![(start.0, blocks.0)]
            }
            (Operation::Deallocate { ranges }, _) => {
                ranges.iter().map(|range| (range.start.0, range.blocks.0)).collect()
            }
            _ => Vec::new(),
        };
        let is_write = !written.is_empty() && !matches!(operation, Operation::Deallocate { .. });
        let erases = match operation {
            Operation::ManageZones { action, .. } => {
                self.events[event].management = !matches!(action, ZoneAction::Close | ZoneAction::Open { zrwa: false });
                true
            }
            Operation::Flush => true,
            _ => false,
        };
        let size = self.geometry.zone_size_blocks.0;
        for (zone, before) in (0..self.geometry.zone_count).zip(before) {
            let image = self.oracle.image(ZoneIndex(zone));
            let start = u64::from(zone) * size;
            let write_end = written
                .first()
                .filter(|_| is_write)
                .map(|(first, blocks)| first + blocks)
                .filter(|&end| end > start && end <= start + size)
                .map(|end| end - start);
            // That a zone was closed to free a resource for another does not prove that its own
            // writes have ended.
            if restarted(&image) == restarted(before) && write_end.is_none() {
                continue;
            }
            let finish = matches!(operation, Operation::ManageZones { action: ZoneAction::Finish, .. });
            if finish && image.state == ZoneState::Full {
                self.events[event].finishes.insert(zone);
            }
            if erases && matches!(image.state, ZoneState::Empty | ZoneState::Offline) {
                for block in 0..self.geometry.zone_capacity_blocks.0 {
                    self.blocks
                        .get_mut(&Lba(start + block))
                        .expect("every block has a history")
                        .changes
                        .push((event, 0));
                }
            }
            self.zones[zone as usize].changes.push(ZoneChange { event, image, write_end });
        }
        for (start, blocks) in written {
            for lba in (start..start + blocks).map(Lba) {
                let print = self.oracle.block(lba);
                if let Some(history) = self.blocks.get_mut(&lba) {
                    history.changes.push((event, print));
                }
            }
        }
    }

    /// Whether an event must have happened.
    fn holds(&self, event: usize, zone: u32, crash: Crash) -> bool {
        let Event { acknowledged, durable, durable_in, .. } = &self.events[event];
        match crash {
            Crash::None | Crash::Kill | Crash::Close => *acknowledged,
            Crash::PowerLoss => *durable || durable_in.contains(&zone),
        }
    }

    /// Checks the state of a drive after a crash. `finished` are zones that may have become full
    /// for lack of an active resource.
    ///
    /// # Errors
    /// The first violated guarantee.
    pub fn judge(&self, observed: &Observed, crash: Crash, finished: &[ZoneIndex]) -> Result<(), Violation> {
        for (zone, image) in (0..).map(ZoneIndex).zip(&observed.zones) {
            self.judge_zone(zone, image, crash, finished.contains(&zone))?;
        }
        observed.blocks.iter().try_for_each(|(lba, contents)| {
            let zone = self.zone_of(*lba);
            self.judge_block(*lba, contents, &observed.zones[zone.as_usize()], crash)
        })
    }

    /// How many writes of a block were submitted since the drive was opened.
    #[must_use]
    pub fn changes(&self, lba: Lba) -> usize {
        self.blocks.get(&lba).map_or(0, |history| history.changes_before + history.changes.len())
    }

    /// How many writes of a block were submitted since the drive was opened, other than those that
    /// had ended when a successful flush began.
    #[must_use]
    pub fn unflushed_changes(&self, lba: Lba) -> usize {
        let of = |history: &BlockHistory| {
            let unflushed = history.changes.iter().filter(|(event, _)| !self.events[*event].durable);
            history.changes_before + unflushed.count()
        };
        self.blocks.get(&lba).map_or(0, of)
    }

    /// The allowed contents of a block, as fingerprints.
    #[must_use]
    pub fn allowed(&self, lba: Lba, crash: Crash) -> Vec<u64> {
        let zone = self.zone_of(lba);
        let history = &self.blocks[&lba];
        let last = history.changes.iter().rposition(|(event, _)| self.holds(*event, zone.0, crash));
        let from = last.map_or(0, |last| last + 1);
        let mut allowed: Vec<u64> = history.changes[from..].iter().map(|(_, print)| *print).collect();
        match last {
            Some(last) => allowed.push(history.changes[last].1),
            None => allowed.extend(history.doubts.iter().copied().chain([history.base])),
        }
        allowed
    }

    /// Checks the contents of a block.
    ///
    /// # Errors
    /// If they are not allowed.
    pub fn judge_block(&self, lba: Lba, contents: &Contents, zone: &ZoneImage, crash: Crash) -> Result<(), Violation> {
        let wrong = |message| {
            let message = format!("{crash:?}: block {lba}, zone {zone:?}: {message}");
            Err(Violation { promise: Promise::Block, zone: Some(self.zone_of(lba)), message })
        };
        match contents {
            Ok((data, metadata)) => {
                let (print, allowed) = (fingerprint(data, metadata), self.allowed(lba, crash));
                if allowed.contains(&print) {
                    return Ok(());
                }
                let BlockHistory { base, changes, .. } = &self.blocks[&lba];
                wrong(format!("its contents are {print:x}, allowed are {allowed:x?}; changes {changes:x?} of {base:x}"))
            }
            Err(Status::ZoneIsOffline) if zone.state == ZoneState::Offline => Ok(()),
            Err(status) => wrong(format!("it cannot be read: {status}")),
        }
    }

    /// Whether these are contents that a block has had since the drive was opened, or before.
    #[must_use]
    pub fn has_held(&self, lba: Lba, contents: &Contents) -> bool {
        let BlockHistory { base, changes, .. } = &self.blocks[&lba];
        contents.as_ref().is_ok_and(|(data, metadata)| {
            let print = fingerprint(data, metadata);
            print == *base || changes.iter().any(|(_, other)| *other == print)
        })
    }

    /// Whether a write of the block has failed.
    #[must_use]
    pub fn has_failed_write(&self, lba: Lba) -> bool {
        self.blocks[&lba].changes.iter().any(|(event, _)| self.events[*event].failed)
    }

    fn zone_of(&self, lba: Lba) -> ZoneIndex {
        self.geometry.zone_of(lba).expect("blocks that are looked at are in the namespace")
    }
}

/// A difference, without contents of blocks in full.
fn brief(found: &Completion, expected: &Completion) -> String {
    let cut = |completion: &Completion| format!("{completion:?}").chars().take(300).collect::<String>();
    format!("{} instead of {}", cut(found), cut(expected))
}

/// A zone after a restart. A zone that was only opened or closed is empty again.
fn restarted(image: &ZoneImage) -> ZoneImage {
    let mut image = image.clone();
    let untouched = image.write_pointer_blocks == Blocks(0) && image.extension.is_none() && !image.zrwa;
    if image.state.is_active() {
        image.state = if untouched { ZoneState::Empty } else { ZoneState::Closed };
    }
    if image.state == ZoneState::Offline {
        image.write_pointer_blocks = Blocks(0);
    }
    image
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
