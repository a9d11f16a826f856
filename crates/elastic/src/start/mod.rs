//! [`Start`]: makes a pool on an empty drive, or reads one.
//!
//! Steps: the states of all zones; the log, both copies; the first blocks of zones that hold
//! something. Nothing is written before all of it was read.

mod adopt;
mod replay;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use zonda_zoned::{
    Blocks, Command, Completion, Geometry, Instant, Key, Lba, NamespaceId, Operation, Outcome, Payload, PayloadKind,
    ReportFilter, Slab, Status, ZoneIndex, ZoneState,
};

use crate::bug::Seeded;
use crate::format::{BlockError, Owner, PoolId, Reservation};
use crate::limits::{COMMAND_TRIES_MAX, HEADER_BLOCKS, LOG_ZONES};
use crate::log::slots_of;
use crate::machine::Pool;
use crate::shape::PoolOptions;

pub(crate) use replay::{Found, LogRead};

/// Zones of one report.
const REPORT_ZONES: u32 = 1024;
/// Commands at the drive at a time.
const IN_FLIGHT_MAX: usize = 32;

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// A new pool on a drive whose zones are all empty.
    Create {
        /// Its identity.
        id: PoolId,
        /// Choices.
        options: PoolOptions,
    },
    /// The pool that is on the drive.
    Mount {
        /// Which one it must be, if that is known.
        id: Option<PoolId>,
        /// The epoch that it must have reached: a lower one is an old copy of the drive.
        epoch_min: u64,
    },
}

/// Why a pool could not be started. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The drive is not fit for a pool.
    Unfit(String),
    /// A pool is made on an empty drive only.
    NotEmpty {
        /// Zones that are not empty.
        zones: u32,
    },
    /// The drive has no pool.
    NoPool,
    /// The drive has another pool.
    OtherPool(PoolId),
    /// It was written by a later version.
    OtherVersion(u16),
    /// The drive is older than when the pool was last opened: a copy, or a restored backup.
    OldCopy {
        /// The epoch on the drive.
        found: u64,
        /// The last one that is known.
        known: u64,
    },
    /// The drive that a pool was to continue on lacks records that were durable before.
    LacksRecords {
        /// The last block of records on the drive.
        found: u64,
        /// The last one that was durable.
        known: u64,
    },
    /// The drive that a pool was to continue on has fewer blocks than were acknowledged before.
    Lacks {
        /// A namespace that lacks blocks,
        namespace: NamespaceId,
        /// in this zone.
        zone: ZoneIndex,
    },
    /// Records of the log can be read in neither copy.
    LogDamaged(String),
    /// The drive failed.
    Drive(Status),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Unfit(reason) => f.write_str(reason),
            StartError::NotEmpty { zones } => {
                write!(f, "{zones} zones of the drive are not empty, and creating a pool would overwrite them")
            }
            StartError::NoPool => f.write_str("there is no pool on the drive"),
            StartError::OtherPool(_) => f.write_str("the drive has another pool"),
            StartError::OtherVersion(version) => {
                write!(f, "the pool has format version {version}, which this program does not support")
            }
            StartError::OldCopy { found, known } => {
                write!(f, "the drive is an old copy: the pool was opened {known} times, and the drive knows of {found}")
            }
            StartError::LacksRecords { found, known } => write!(
                f,
                "the log of the pool ends with block {found}, and block {known} was written: the drive is an older copy, or \
                 has lost a zone or what was in its cache"
            ),
            StartError::Lacks { namespace, zone } => write!(
                f,
                "zone {} of namespace {namespace} lacks blocks that were acknowledged: the drive has lost power, or is an \
                 older copy",
                zone.0
            ),
            StartError::LogDamaged(what) => write!(f, "the pool's log is damaged: {what}"),
            StartError::Drive(status) => write!(f, "the drive failed while the pool was opened: {status}"),
        }
    }
}

impl std::error::Error for StartError {}

/// The state of a zone of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneFound {
    pub(crate) state: ZoneState,
    /// Blocks before the write pointer; the capacity of a full zone.
    pub(crate) written: u64,
}

/// What a zone says about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderFound {
    pub(crate) reservation: Option<Result<Reservation, BlockError>>,
    pub(crate) owner: Option<Result<Owner, BlockError>>,
}

/// A command to the drive, and how often it was sent.
#[derive(Debug)]
struct Question {
    asked: Asked,
    operation: Operation,
    tries: u8,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Report,
    Log { copy: usize, slot: usize, block: u64, blocks: u64 },
    Header { zone: u32, blocks: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Report,
    Log,
    Headers,
    Ended,
}

/// A pool that is being started. The result is a [`Pool`] that has read everything, and whose first
/// commands write its epoch.
#[derive(Debug)]
pub struct Start {
    goal: Goal,
    /// The last block of records that must be there.
    sequence_min: u64,
    drive: Geometry,
    namespace: NamespaceId,
    kind: PayloadKind,
    step: Step,
    asked: Slab<Question>,
    /// Commands to send, beside those that follow from the step.
    queue: VecDeque<Question>,
    zones: Vec<ZoneFound>,
    log: LogRead,
    found: Option<Box<Found>>,
    headers: BTreeMap<u32, HeaderFound>,
    /// Zones whose headers are still to be read.
    to_read: VecDeque<u32>,
    outcome: Option<Result<Pool, StartError>>,
    bug: Seeded,
}

impl Start {
    /// Starts a pool on a namespace of a drive that keeps contents of this kind. Only bytes can be
    /// read again.
    #[must_use]
    pub fn new(goal: Goal, drive: Geometry, namespace: NamespaceId, kind: PayloadKind) -> Start {
        Start::seeded(goal, drive, namespace, kind, Seeded::NONE)
    }

    pub(crate) fn seeded(goal: Goal, drive: Geometry, namespace: NamespaceId, kind: PayloadKind, bug: Seeded) -> Start {
        Start {
            goal,
            sequence_min: 0,
            drive,
            namespace,
            kind,
            step: Step::Report,
            asked: Slab::new(),
            queue: VecDeque::new(),
            zones: Vec::new(),
            log: LogRead::default(),
            found: None,
            headers: BTreeMap::new(),
            to_read: VecDeque::new(),
            outcome: None,
            bug,
        }
    }

    /// A pool that was open is opened again: it must have the records that were durable.
    pub(crate) fn again_after(mut self, before: &Pool) -> Start {
        self.sequence_min = before.durable_sequence();
        self
    }

    /// The pool, or why there is none, once all was read.
    pub fn take_outcome(&mut self) -> Option<Result<Pool, StartError>> {
        self.outcome.take()
    }

    /// The next command to the drive.
    pub fn poll_command(&mut self, _now: Instant) -> Option<Command> {
        if self.asked.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let mut question = self.queue.pop_front().or_else(|| self.next_question())?;
        question.tries += 1;
        let operation = question.operation.clone();
        let key = self.asked.insert(question);
        Some(Command::new(key.into(), self.namespace, operation))
    }

    /// The drive has refused a command.
    pub fn on_queue_full(&mut self, command: Command) {
        let key = Key::of_command(command.id).expect("the drive returns the command that it was given");
        let mut question = self.asked.remove(key);
        (question.tries, question.operation) = (question.tries - 1, command.operation);
        self.queue.push_front(question);
    }

    fn ask(&mut self, asked: Asked, operation: Operation) {
        self.queue.push_back(Question { asked, operation, tries: 0 });
    }

    fn next_question(&mut self) -> Option<Question> {
        match self.step {
            Step::Report if self.asked.is_empty() => {
                let start = Lba(self.drive.zone_start(ZoneIndex(self.zones.len() as u32)).0);
                let filter = ReportFilter::All;
                let descriptors_max = REPORT_ZONES;
                let operation =
                    Operation::ReportZones { start, filter, extended: false, partial: true, descriptors_max };
                Some(Question { asked: Asked::Report, operation, tries: 0 })
            }
            Step::Headers => {
                let zone = self.to_read.pop_front()?;
                let blocks = self.zones[zone as usize].written.min(HEADER_BLOCKS);
                let operation = self.read(zone, 0, blocks);
                Some(Question { asked: Asked::Header { zone, blocks }, operation, tries: 0 })
            }
            _ => None,
        }
    }

    fn read(&self, zone: u32, block: u64, blocks: u64) -> Operation {
        let start = Lba(self.drive.zone_start(ZoneIndex(zone)).0 + block);
        Operation::Read { start, blocks: Blocks(blocks) }
    }

    /// A command has ended.
    pub fn on_completion(&mut self, now: Instant, completion: Completion) {
        let key = Key::of_command(completion.id).expect("the drive returns identifiers that it was given");
        let question = self.asked.remove(key);
        // What one mount takes for damage costs its users a zone until the next.
        if !completion.status.is_success() && question.tries < COMMAND_TRIES_MAX && self.outcome.is_none() {
            self.queue.push_front(question);
            return;
        }
        match (question.asked, completion.outcome) {
            (Asked::Report, Outcome::Report(report)) if completion.status.is_success() => {
                self.zones.extend(report.zones.iter().map(|zone| {
                    let written = match zone.write_pointer {
                        Some(pointer) => pointer.0 - zone.start.0,
                        None if zone.state == ZoneState::Offline => 0,
                        None => zone.capacity_blocks.0,
                    };
                    ZoneFound { state: zone.state, written }
                }));
                if report.zones.is_empty() {
                    self.end(Err(StartError::Drive(Status::InternalError)));
                }
            }
            (Asked::Report, _) => self.end(Err(StartError::Drive(completion.status))),
            (Asked::Log { copy, slot, block, blocks }, outcome) => {
                self.on_log_read(copy, slot, block, blocks, completion.status, outcome);
            }
            (Asked::Header { zone, blocks }, outcome) => self.on_header_read(zone, blocks, completion.status, outcome),
        }
        self.proceed(now);
    }

    fn on_log_read(&mut self, copy: usize, slot: usize, block: u64, blocks: u64, status: Status, outcome: Outcome) {
        let bytes = bytes_of(status, outcome);
        let zone = slots_of(copy)[slot];
        if bytes.is_none() && blocks > 1 {
            // One block that cannot be read says nothing of the others.
            for single in block..block + blocks {
                let asked = Asked::Log { copy, slot, block: single, blocks: 1 };
                let operation = self.read(zone, single, 1);
                self.ask(asked, operation);
            }
            return;
        }
        let size = self.drive.block_size_bytes as usize;
        for index in 0..blocks {
            let part = bytes.as_ref().and_then(|bytes| bytes.get(index as usize * size..(index as usize + 1) * size));
            // The write pointer of a zone that is read only is not known: behind it are blanks.
            let is_behind = self.zones[zone as usize].state == ZoneState::ReadOnly;
            if !(is_behind && part.is_some_and(|part| part.iter().all(|byte| *byte == 0))) {
                self.log.add(copy, slot, block + index, part);
            }
        }
    }

    fn on_header_read(&mut self, zone: u32, blocks: u64, status: Status, outcome: Outcome) {
        let bytes = bytes_of(status, outcome);
        if bytes.is_none() && blocks > 1 && status == Status::UnrecoveredReadError {
            // The first block alone may still be read; the second is damaged.
            self.headers.entry(zone).or_default().owner = Some(Err(BlockError::Damaged));
            let operation = self.read(zone, 0, 1);
            self.ask(Asked::Header { zone, blocks: 1 }, operation);
            return;
        }
        let pool = self.found.as_ref().expect("headers are read after the log").id;
        let size = self.drive.block_size_bytes as usize;
        let block = |index: usize| {
            let part = bytes.as_ref().and_then(|bytes| bytes.get(index * size..(index + 1) * size));
            part.ok_or(BlockError::Damaged)
        };
        let found = self.headers.entry(zone).or_default();
        found.reservation = Some(block(0).and_then(|block| Reservation::of_block(pool, block)));
        if blocks > 1 {
            found.owner = Some(block(1).and_then(|block| Owner::of_block(pool, block)));
        }
    }

    /// Goes on to the next step once the present one has nothing left to ask.
    fn proceed(&mut self, now: Instant) {
        if self.step == Step::Report && self.zones.len() as u32 >= self.drive.zone_count {
            match self.goal {
                Goal::Create { id, options } => {
                    let pool = self.create(now, id, options);
                    self.end(pool);
                }
                Goal::Mount { .. } => {
                    self.step = Step::Log;
                    self.ask_for_log();
                }
            }
        }
        let is_quiet = self.asked.is_empty() && self.queue.is_empty();
        if self.step == Step::Log && is_quiet {
            let Goal::Mount { id, epoch_min } = self.goal else { unreachable!("a log is read to mount") };
            match self.log.replay(id, epoch_min, self.bug) {
                Ok(found) if found.sequence < self.sequence_min => {
                    let known = self.sequence_min;
                    self.end(Err(StartError::LacksRecords { found: found.sequence, known }));
                }
                Ok(found) => {
                    self.found = Some(Box::new(found));
                    self.step = Step::Headers;
                    let holds_something = |zone: &u32| self.zones[*zone as usize].written > 0;
                    self.to_read = (LOG_ZONES..self.drive.zone_count).filter(holds_something).collect();
                }
                Err(error) => self.end(Err(error)),
            }
        }
        let is_quiet = self.asked.is_empty() && self.queue.is_empty() && self.to_read.is_empty();
        if self.step == Step::Headers && is_quiet {
            let pool = self.adopt(now);
            self.end(pool);
        }
    }

    fn ask_for_log(&mut self) {
        let chunk = self.drive.max_transfer_blocks.0;
        for copy in 0..crate::limits::LOG_COPIES {
            for (slot, zone) in slots_of(copy).into_iter().enumerate() {
                let written = self.zones[zone as usize].written;
                for block in (0..written).step_by(chunk as usize) {
                    let blocks = chunk.min(written - block);
                    let operation = self.read(zone, block, blocks);
                    self.ask(Asked::Log { copy, slot, block, blocks }, operation);
                }
            }
        }
    }

    fn end(&mut self, outcome: Result<Pool, StartError>) {
        self.step = Step::Ended;
        self.queue.clear();
        self.to_read.clear();
        self.outcome.get_or_insert(outcome);
    }
}

fn bytes_of(status: Status, outcome: Outcome) -> Option<bytes::Bytes> {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) if status.is_success() => Some(buffer.data),
        _ => None,
    }
}
