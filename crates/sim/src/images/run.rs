//! One run of an image scenario: several lives, each with a load, faults and an end.

use std::collections::{BTreeMap, BTreeSet};

use zonda_image::testing::{Ledger, Promise, Violation};
use zonda_image::{Counters, FileOperation, ImageFile};
use zonda_layers::OperationKind;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{
    Command, CommandId, Duration, Instant, Lba, NamespaceId, Operation, PayloadKind, Prng, Status, ZoneIndex,
    ZoneTarget,
};

use super::ImageBug;
use super::damage::Old;
use super::disk::Faults;
use super::drive::Drive;
use super::simulation::ImagesSimulation;
use crate::bug::Bug;
use crate::event_trace::{CommandRecord, End, EventTrace};
use crate::hash::Hash;
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// Ids of the tester's own commands start here.
const OWN_IDS: u64 = 1 << 39;

/// The state of one run of a scenario.
pub(crate) struct ImagesRun<'s> {
    pub(super) simulation: &'s ImagesSimulation,
    options: &'s Options,
    /// `None` before the first opening and between two lives.
    pub(super) drive: Option<Drive>,
    pub(super) ledger: Ledger,
    source: CommandSource,
    pub(super) prng: Prng,
    pub(super) reservations: ReservationState,
    /// The counters at the last opening.
    pub(super) counters: Counters,
    /// Which commands may fail in this life.
    pub(super) may_fail: MayFail,
    /// A command failed because of a file operation, and the state is not yet checked.
    pub(super) has_failed: bool,
    /// A sync of data or tags failed in this life: no flush can succeed any more.
    pub(super) has_failed_sync: bool,
    /// Zones that became read only because a failed write could not be cleared.
    pub(super) failed_zones: BTreeSet<ZoneIndex>,
    /// Failed writes of records in this life: after two, a record could not be invalidated.
    pub(super) failed_records: u64,
    /// Failed writes of checkpoints and records in this life: after one, a zone that failed may not
    /// be recorded yet.
    pub(super) failed_state_writes: u64,
    /// A block in which a read found damage before the stop, and which was repaired since.
    pub(super) read_damage: Option<Lba>,
    /// A flushed block whose tag was lost before the stop, and which was overwritten since.
    pub(super) lost_tag: Option<Lba>,
    /// Blocks are lost because an overwrite failed and could not be repaired: the run ends.
    pub(super) is_unrecoverable: bool,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) trace: EventTrace,
    pub(super) commands: u64,
    /// Commands that have not ended.
    in_progress: BTreeMap<CommandId, OperationKind>,
    own_ids: u64,
    pub(super) crashes: u64,
    pub(super) faults: u64,
    pub(super) bug: Option<ImageBug>,
    /// The files at the previous stop.
    pub(super) old: Option<Old>,
}

/// Which commands may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayFail {
    Nothing,
    /// Commands that need space, and those that follow them.
    OutOfSpace,
    Anything,
}

/// The reservations that the drive was requested to save.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservationState {
    pub(super) now: Vec<u8>,
    /// Changes in progress; after a failed save, also what a crash may restore.
    pub(super) next: Vec<Vec<u8>>,
    pub(super) is_changing: bool,
}

impl<'s> ImagesRun<'s> {
    pub(crate) fn new(simulation: &'s ImagesSimulation, options: &'s Options, trace: EventTrace) -> ImagesRun<'s> {
        let bug = match options.bug {
            Some(Bug::Images(bug)) => Some(bug),
            _ => None,
        };
        let geometry = &simulation.geometry;
        ImagesRun {
            drive: None,
            ledger: Ledger::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes), geometry),
            source: CommandSource::new(geometry, PayloadKind::Bytes, simulation.root.fork("commands")),
            prng: simulation.root.fork("run"),
            reservations: ReservationState::default(),
            counters: Counters::default(),
            may_fail: MayFail::Nothing,
            has_failed: false,
            has_failed_sync: false,
            failed_zones: BTreeSet::new(),
            failed_records: 0,
            failed_state_writes: 0,
            read_damage: None,
            lost_tag: None,
            is_unrecoverable: false,
            now: Instant::ZERO,
            hash: Hash::default(),
            trace,
            commands: 0,
            in_progress: BTreeMap::new(),
            own_ids: OWN_IDS,
            crashes: 0,
            faults: 0,
            bug,
            old: None,
            simulation,
            options,
        }
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        let (disk, stop) = self.create()?;
        self.begin_life(disk, stop)?;
        for life in 0..self.simulation.load.lives {
            self.load(life)?;
            let (disk, stop, overwritten) = self.stop()?;
            self.damage_copies(&disk, stop, overwritten)?;
            self.begin_life(disk, stop)?;
            if self.is_unrecoverable || self.commands >= self.simulation.load.commands {
                break;
            }
        }
        Ok(())
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Images,
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
        self.drive.as_mut().expect("the drive is open during a life")
    }

    /// Runs the commands of a life with its faults, until all are done or the drive stops after a
    /// failed command.
    fn load(&mut self, life: u64) -> Result<(), CheckError> {
        let simulation = self.simulation;
        let mut prng = simulation.root.fork(&format!("life/{life}"));
        let mut commands = prng.below(simulation.load.commands_of_life + 1);
        let depth = 1 + prng.below(simulation.load.queue_depth) as usize;
        let mut faults = self.generate_faults(&mut prng);
        let degrades_at = prng.chance(simulation.events.degradations_percent, 100).then(|| prng.below(commands + 1));
        let is_full_at = prng.chance(simulation.events.full_disk_percent, 100).then(|| prng.below(commands + 1));
        self.drive().disk.faults = faults;
        self.may_fail = if faults == Faults::default() { MayFail::Nothing } else { MayFail::Anything };
        (self.has_failed, self.has_failed_sync) = (false, false);
        let mut submitted = 0;
        while submitted < commands && self.commands < simulation.load.commands {
            let has_slot = self.ledger.outstanding() < depth;
            if has_slot && (self.drive().is_idle() || self.prng.chance(1, 3)) {
                if is_full_at == Some(submitted) {
                    faults.is_full = true;
                    self.drive().disk.faults.is_full = true;
                    if self.may_fail == MayFail::Nothing {
                        self.may_fail = MayFail::OutOfSpace;
                    }
                    self.trace.log(self.now, || "the file system is full".to_owned());
                }
                if degrades_at == Some(submitted) {
                    self.degrade();
                }
                submitted += 1;
                self.submit_next();
            } else {
                self.step();
            }
            self.take_completions()?;
            if self.has_failed {
                let continues = self.continue_after_failure(&mut faults)?;
                if !continues {
                    return Ok(());
                }
                // Bounds a life in which commands fail all the time.
                commands = commands.saturating_sub(8);
            }
        }
        Ok(())
    }

    fn generate_faults(&mut self, prng: &mut Prng) -> Faults {
        if !prng.chance(self.simulation.events.faults_percent, 100) {
            return Faults::default();
        }
        let files = [ImageFile::Data, ImageFile::Tags, ImageFile::Journal, ImageFile::State];
        if prng.chance(1, 4) {
            // A single sync fails, and the life continues.
            let file = prng.pick(&files[..3]).copied();
            return Faults { file, syncs: 1 + prng.below(3), once: true, ..Faults::default() };
        }
        let one_in = |prng: &mut Prng| if prng.chance(1, 2) { 0 } else { 1 + prng.below(30) };
        Faults {
            file: prng.chance(3, 4).then(|| *prng.pick(&files).expect("the list of files is not empty")),
            writes: one_in(prng),
            syncs: one_in(prng),
            reads: if prng.chance(1, 3) { 1 + prng.below(30) } else { 0 },
            once: prng.chance(2, 3),
            is_full: false,
        }
    }

    /// Submits the next command of the load.
    fn submit_next(&mut self) {
        let command = loop {
            let command = self.source.next(&self.ledger.oracle);
            // The result of a Select All that fails in one zone while others are in progress cannot
            // be predicted.
            let is_select_all = matches!(command.operation, Operation::ManageZones { target: ZoneTarget::All, .. });
            if !is_select_all || self.may_fail == MayFail::Nothing {
                break command;
            }
        };
        self.commands += 1;
        self.submit(command);
        if self.simulation.load.has_reservations && self.prng.chance(1, 12) && !self.reservations.is_changing {
            let bytes = vec![self.prng.below(256) as u8; self.prng.below(4001) as usize];
            self.drive().image.save_reservations(bytes.clone().into());
            self.drive().collect();
            self.reservations.next.push(bytes);
            self.reservations.is_changing = true;
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
        let record = CommandRecord::new(command.id, &command.operation, &self.simulation.geometry, self.now);
        self.in_progress.insert(command.id, record.kind);
        self.trace.command_submitted(record);
        self.ledger.submitted(&command);
        let now = self.now;
        self.drive().submit(now, command);
    }

    /// Executes one file operation, if one is in progress.
    pub(super) fn step(&mut self) -> bool {
        self.now = Instant(self.now.0 + 1);
        let mut prng = self.prng.clone();
        let stepped = self.drive().step(&mut prng);
        self.prng = prng;
        stepped
    }

    pub(super) fn take_completions(&mut self) -> Result<(), CheckError> {
        let failed = std::mem::take(&mut self.drive().disk.failed);
        self.faults += failed.len() as u64;
        for failed in &failed {
            let operation = &failed.operation;
            let is_sync = matches!(operation, FileOperation::Sync { .. });
            self.has_failed_sync |= is_sync && matches!(operation.file(), ImageFile::Data | ImageFile::Tags);
            self.failed_records += u64::from(operation.file() == ImageFile::Journal);
            let is_state = matches!(operation.file(), ImageFile::State | ImageFile::Journal);
            self.failed_state_writes += u64::from(is_state);
            self.trace.log(self.now, || format!("{}: {}", describe_operation(operation), failed.error));
        }
        for completion in self.drive().poll() {
            self.hash.completion(self.now, &completion);
            self.trace.command_ended(completion.id, End::Completed(self.now, completion.status));
            let kind = self.in_progress.remove(&completion.id);
            let may_fail = self.may_fail != MayFail::Nothing;
            let is_as_expected = self.ledger.completed(&completion, may_fail).map_err(broken)?;
            if !is_as_expected && self.may_fail == MayFail::OutOfSpace {
                self.check_out_of_space(kind, completion.status)?;
            }
            self.has_failed |= !is_as_expected;
        }
        if let Some(is_saved) = self.drive().image.take_reservations_saved() {
            self.reservations.is_changing = false;
            if is_saved {
                self.reservations.now = self.reservations.next.pop().expect("one change is in progress");
                self.reservations.next.clear();
            } else if self.may_fail != MayFail::Anything {
                return Err(CheckError::new(FailureKind::WrongAnswer, None, "reservations are not saved".to_owned()));
            }
        }
        Ok(())
    }

    /// Checks a failed command on a full file system: a write must fail with Capacity Exceeded, and
    /// only writes and commands that follow them may fail.
    fn check_out_of_space(&self, kind: Option<OperationKind>, status: Status) -> Result<(), CheckError> {
        let needs_space = matches!(
            kind,
            Some(OperationKind::Write | OperationKind::Append | OperationKind::WriteZeroes | OperationKind::Deallocate)
        );
        if needs_space && status != Status::CapacityExceeded || kind == Some(OperationKind::Flush) {
            let message = format!(
                "a {} on a full file system completed with \"{status}\"",
                kind.map_or("command", OperationKind::name)
            );
            return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }

    /// Waits until every command and file operation has completed.
    pub(super) fn drain(&mut self) -> Result<(), CheckError> {
        while self.step() {
            self.take_completions()?;
        }
        self.take_completions()?;
        let outstanding = self.ledger.outstanding();
        if outstanding > 0 || !self.drive().image.is_idle() {
            let message = format!("{outstanding} commands never complete, though no file operation is in progress");
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        self.drive().image.check_invariants();
        Ok(())
    }
}

impl ImagesRun<'_> {
    /// Submits a command of the tester, which the ledger records.
    pub(super) fn submit_own(&mut self, operation: Operation) {
        self.own_ids += 1;
        let id = CommandId(self.own_ids);
        self.submit(Command::new(id, NamespaceId::FIRST, operation));
    }
}

/// The error of a violation.
pub(super) fn broken(violation: Violation) -> CheckError {
    let kind = match violation.promise {
        Promise::Answer => FailureKind::WrongAnswer,
        Promise::Zone => FailureKind::ImpossibleZone,
        Promise::Block => FailureKind::WrongContents,
    };
    CheckError::new(kind, violation.zone, violation.message)
}

/// Describes a file operation for the trace.
pub(super) fn describe_operation(operation: &FileOperation) -> String {
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
