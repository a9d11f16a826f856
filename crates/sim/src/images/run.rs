//! One run of a scenario with an image: life after life, each with its load, its faults and its end.

use std::collections::{BTreeMap, BTreeSet};

use zonda_image::testing::{Ledger, Promise, Violation};
use zonda_image::{Counters, FileOperation, ImageFile};
use zonda_layers::OperationKind;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{
    Command, CommandId, Duration, Instant, NamespaceId, Operation, PayloadKind, Prng, Status, ZoneIndex, ZoneTarget,
};

use super::ImageBug;
use super::damage::Old;
use super::disk::Faults;
use super::drive::Drive;
use super::world::ImagesWorld;
use crate::hash::Hash;
use crate::options::{Bug, Options, WorldKind};
use crate::outcome::{FailureKind, Outcome};
use crate::story::{End, Teller, Told};
use crate::survey::Trouble;

/// Own flushes of the tester in the books of a life count down from here.
const FLUSH_IDS: u64 = 1 << 39;

/// One run of a scenario, with everything that changes in it.
pub(crate) struct ImagesRun<'w> {
    pub(super) world: &'w ImagesWorld,
    options: &'w Options,
    /// Absent before the first opening and between two lives.
    pub(super) drive: Option<Drive>,
    pub(super) ledger: Ledger,
    source: CommandSource,
    pub(super) prng: Prng,
    pub(super) kept: Kept,
    /// The counters when the drive was last opened.
    pub(super) counters: Counters,
    /// What may fail in this life.
    pub(super) may_fail: MayFail,
    /// A command has failed because a file did, and nobody has looked at what became of it.
    pub(super) has_failed: bool,
    /// A sync of data or tags has failed in this life: no flush can promise anything.
    pub(super) has_failed_sync: bool,
    /// Zones that have become read only because what a failed write left could not be cleared.
    pub(super) given_up: BTreeSet<ZoneIndex>,
    /// Blocks are lost because an overwrite failed and could not be repaired either: nothing more can be said of them.
    pub(super) is_over: bool,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) teller: Teller,
    pub(super) commands: u64,
    /// Commands that have not ended.
    in_progress: BTreeMap<CommandId, OperationKind>,
    own_ids: u64,
    pub(super) crashes: u64,
    pub(super) faults: u64,
    pub(super) bug: Option<ImageBug>,
    /// The files at the stop before.
    pub(super) old: Option<Old>,
}

/// What hosts must put up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayFail {
    Nothing,
    /// What needs space, and what comes behind that.
    ForWantOfSpace,
    Anything,
}

/// What the drive was told to keep of reservations.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) now: Vec<u8>,
    /// While nobody knows whether it is kept; after a failure, what a crash may bring up.
    pub(super) next: Vec<Vec<u8>>,
    pub(super) is_changing: bool,
}

impl<'w> ImagesRun<'w> {
    pub(crate) fn new(world: &'w ImagesWorld, options: &'w Options, teller: Teller) -> ImagesRun<'w> {
        let bug = match options.bug {
            Some(Bug::Images(bug)) => Some(bug),
            _ => None,
        };
        let geometry = &world.geometry;
        ImagesRun {
            drive: None,
            ledger: Ledger::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes), geometry),
            source: CommandSource::new(geometry, PayloadKind::Bytes, world.root.fork("commands")),
            prng: world.root.fork("run"),
            kept: Kept::default(),
            counters: Counters::default(),
            may_fail: MayFail::Nothing,
            has_failed: false,
            has_failed_sync: false,
            given_up: BTreeSet::new(),
            is_over: false,
            now: Instant::ZERO,
            hash: Hash::default(),
            teller,
            commands: 0,
            in_progress: BTreeMap::new(),
            own_ids: FLUSH_IDS,
            crashes: 0,
            faults: 0,
            bug,
            old: None,
            world,
            options,
        }
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<(), Trouble> {
        let (disk, stop) = self.create()?;
        self.begin_life(disk, stop)?;
        for life in 0..self.world.load.lives {
            self.load(life)?;
            let (disk, crash) = self.stop()?;
            self.damage_copies(&disk, crash)?;
            self.begin_life(disk, crash)?;
            if self.is_over || self.commands >= self.world.load.commands {
                break;
            }
        }
        Ok(())
    }

    /// The verdict on what was run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            world: WorldKind::Images,
            commands: self.commands,
            events: self.now.0,
            power_losses: self.crashes,
            faults: self.faults,
            virtual_time: Duration(self.now.0),
            hash: self.hash.value(),
            failure: None,
        }
    }

    pub(super) fn drive(&mut self) -> &mut Drive {
        self.drive.as_mut().expect("the drive is open while it is asked for something")
    }

    /// Commands, with what goes wrong meanwhile, until they are enough or one has failed and the drive is to stop.
    fn load(&mut self, life: u64) -> Result<(), Trouble> {
        let world = self.world;
        let mut prng = world.root.fork(&format!("life/{life}"));
        let mut commands = prng.below(world.load.commands_of_life + 1);
        let depth = 1 + prng.below(world.load.queue_depth) as usize;
        let mut faults = self.draw_faults(&mut prng);
        let degrades_at = prng.chance(world.events.degradations_percent, 100).then(|| prng.below(commands + 1));
        let is_full_at = prng.chance(world.events.full_disk_percent, 100).then(|| prng.below(commands + 1));
        self.drive().disk.faults = faults;
        self.may_fail = if faults == Faults::default() { MayFail::Nothing } else { MayFail::Anything };
        (self.has_failed, self.has_failed_sync) = (false, false);
        let mut asked = 0;
        while asked < commands && self.commands < world.load.commands {
            let has_room = self.ledger.outstanding() < depth;
            if has_room && (self.drive().is_waiting() || self.prng.chance(1, 3)) {
                if is_full_at == Some(asked) {
                    faults.is_full = true;
                    self.drive().disk.faults.is_full = true;
                    if self.may_fail == MayFail::Nothing {
                        self.may_fail = MayFail::ForWantOfSpace;
                    }
                    self.teller.tell(self.now, || "the file system is full".to_owned());
                }
                if degrades_at == Some(asked) {
                    self.degrade();
                }
                asked += 1;
                self.ask();
            } else {
                self.step();
            }
            self.take_completions()?;
            if self.has_failed {
                let goes_on = self.go_on_after_failure(&mut faults)?;
                if !goes_on {
                    return Ok(());
                }
                // A drive whose commands fail all the time gets no further.
                commands = commands.saturating_sub(8);
            }
        }
        Ok(())
    }

    fn draw_faults(&mut self, prng: &mut Prng) -> Faults {
        if !prng.chance(self.world.events.faults_percent, 100) {
            return Faults::default();
        }
        let files = [ImageFile::Data, ImageFile::Tags, ImageFile::Journal, ImageFile::State];
        if prng.chance(1, 4) {
            // One sync, and all goes on as if nothing had been.
            let file = prng.pick(&files[..3]).copied();
            return Faults { file, syncs: 1 + prng.below(3), once: true, ..Faults::default() };
        }
        let one_in = |prng: &mut Prng| if prng.chance(1, 2) { 0 } else { 1 + prng.below(30) };
        Faults {
            file: prng.chance(3, 4).then(|| *prng.pick(&files).expect("there are files")),
            writes: one_in(prng),
            syncs: one_in(prng),
            reads: if prng.chance(1, 3) { 1 + prng.below(30) } else { 0 },
            once: prng.chance(2, 3),
            is_full: false,
        }
    }

    /// Submits the next command of the load.
    fn ask(&mut self) {
        let command = loop {
            let command = self.source.next(&self.ledger.oracle);
            // Of a command to all zones that fails in one of them while it is in progress in others, no oracle knows the rest.
            let is_select_all = matches!(command.operation, Operation::ManageZones { target: ZoneTarget::All, .. });
            if !is_select_all || self.may_fail == MayFail::Nothing {
                break command;
            }
        };
        self.commands += 1;
        self.submit(command);
        if self.world.load.has_reservations && self.prng.chance(1, 12) && !self.kept.is_changing {
            let bytes = vec![self.prng.below(256) as u8; self.prng.below(4001) as usize];
            self.drive().image.keep_reservations(bytes.clone().into());
            self.drive().collect();
            self.kept.next.push(bytes);
            self.kept.is_changing = true;
        }
        if self.prng.chance(1, 100) {
            self.drive().image.checkpoint();
            self.drive().collect();
        }
        if self.prng.chance(1, 50) {
            self.drive().image.check_invariants();
        }
    }

    fn submit(&mut self, command: Command) {
        self.now = Instant(self.now.0 + 1);
        self.hash.submission(self.now, &command);
        let told = Told::new(command.id, &command.operation, &self.world.geometry, self.now);
        self.in_progress.insert(command.id, told.kind);
        self.teller.taken(told);
        self.ledger.submitted(&command);
        let now = self.now;
        self.drive().submit(now, command);
    }

    /// Carries out one file operation, if one is out.
    pub(super) fn step(&mut self) -> bool {
        self.now = Instant(self.now.0 + 1);
        let mut prng = self.prng.clone();
        let stepped = self.drive().step(&mut prng);
        self.prng = prng;
        stepped
    }

    pub(super) fn take_completions(&mut self) -> Result<(), Trouble> {
        let failed = std::mem::take(&mut self.drive().disk.failed);
        self.faults += failed.len() as u64;
        for failed in &failed {
            let operation = &failed.operation;
            let is_sync = matches!(operation, FileOperation::Sync { .. });
            self.has_failed_sync |= is_sync && matches!(operation.file(), ImageFile::Data | ImageFile::Tags);
            self.teller.tell(self.now, || format!("{}: {}", brief(operation), failed.error));
        }
        for completion in self.drive().poll() {
            self.hash.completion(self.now, &completion);
            self.teller.ended(completion.id, End::Completed(self.now, completion.status));
            let kind = self.in_progress.remove(&completion.id);
            let may_fail = self.may_fail != MayFail::Nothing;
            let is_as_expected = self.ledger.completed(&completion, may_fail).map_err(broken)?;
            if !is_as_expected && self.may_fail == MayFail::ForWantOfSpace {
                self.judge_want_of_space(kind, completion.status)?;
            }
            self.has_failed |= !is_as_expected;
        }
        if let Some(is_kept) = self.drive().image.take_reservations_kept() {
            self.kept.is_changing = false;
            if is_kept {
                self.kept.now = self.kept.next.pop().expect("a change ends once");
                self.kept.next.clear();
            } else if self.may_fail != MayFail::Anything {
                return Err(Trouble::new(FailureKind::WrongAnswer, None, "reservations are not kept".to_owned()));
            }
        }
        Ok(())
    }

    /// On a full file system a write that fails says so, and nothing fails but writes and what comes behind them.
    fn judge_want_of_space(&self, kind: Option<OperationKind>, status: Status) -> Result<(), Trouble> {
        let needs_space = matches!(
            kind,
            Some(OperationKind::Write | OperationKind::Append | OperationKind::WriteZeroes | OperationKind::Deallocate)
        );
        if needs_space && status != Status::CapacityExceeded || kind == Some(OperationKind::Flush) {
            let message = format!("a {kind:?} on a full file system ended with \"{status}\"");
            return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }

    /// Everything that is in progress ends.
    pub(super) fn drain(&mut self) -> Result<(), Trouble> {
        while self.step() {
            self.take_completions()?;
        }
        self.take_completions()?;
        let outstanding = self.ledger.outstanding();
        if outstanding > 0 || !self.drive().image.is_idle() {
            let message = format!("{outstanding} commands never end, though no file operation is in progress");
            return Err(Trouble::new(FailureKind::Starved, None, message));
        }
        self.drive().image.check_invariants();
        Ok(())
    }
}

impl ImagesRun<'_> {
    /// A flush of the tester itself, which the books of the life have.
    pub(super) fn flush(&mut self) {
        self.own_ids += 1;
        let id = CommandId(self.own_ids);
        self.submit(Command { id, namespace: NamespaceId::FIRST, operation: Operation::Flush });
    }
}

/// A promise that was not kept as what went wrong.
pub(super) fn broken(violation: Violation) -> Trouble {
    let kind = match violation.promise {
        Promise::Answer => FailureKind::WrongAnswer,
        Promise::Zone => FailureKind::ImpossibleZone,
        Promise::Block => FailureKind::WrongContents,
    };
    Trouble::new(kind, violation.zone, violation.message)
}

/// A file operation as it is told.
pub(super) fn brief(operation: &FileOperation) -> String {
    let file = operation.file();
    match operation {
        FileOperation::Read { offset, length, .. } => format!("read of {length} bytes of {file} at {offset}"),
        FileOperation::Write { offset, pieces, .. } => {
            let length: usize = pieces.iter().map(bytes::Bytes::len).sum();
            format!("write of {length} bytes of {file} at {offset}")
        }
        FileOperation::Sync { .. } => format!("sync of {file}"),
        FileOperation::PunchHole { offset, length, .. } => format!("hole of {length} bytes in {file} at {offset}"),
        FileOperation::Allocate { offset, length, .. } => format!("space of {length} bytes in {file} at {offset}"),
    }
}
