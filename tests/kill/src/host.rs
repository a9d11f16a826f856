//! A host: one connection in one thread, which executes a load until the connection is lost.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::Serialize;
use zonda_devices::{Connection, DriveError, Location, NamespaceOptions};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Instant, Lba, NamespaceId, Operation, Outcome,
    Payload, QueueFull, Status,
};

use crate::load::{Load, Meaning};
use crate::loss::{Loss, RunError};
use crate::nbd::{NbdHost, SCHEME};
use crate::oracle::Change;
use crate::pace::Pace;
use crate::stamp::{BLOCK_BYTES, Contents, Stamper};

/// The longest sleep of a host.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The same of a host whose pace changes.
const PACED_SLEEP_MAX: Duration = Duration::from_millis(2);
/// The maximum of losses recorded per host.
const LOSSES_MAX: usize = 10;

/// Counts of the commands of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Acknowledged writes, appends and zeros.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Acknowledged resets.
    pub resets: u64,
    /// Acknowledged finishes.
    pub finishes: u64,
    /// Verified reads.
    pub reads: u64,
    /// Acknowledged opens, closes and flushes.
    pub others: u64,
    /// Commands in flight at the end, whose outcome is unknown.
    pub in_flight: u64,
    /// Commands that ended with an error where errors were allowed.
    pub errors: u64,
}

/// One host of a load.
pub(crate) struct Host<'a> {
    /// Its namespace.
    pub(crate) url: &'a str,
    /// The maximum of its outstanding commands.
    pub(crate) queue_depth: usize,
    /// Generates and recognizes the blocks of the namespace.
    pub(crate) stamper: &'a Stamper,
    /// Its load.
    pub(crate) load: &'a mut dyn Load,
    /// Which commands may fail.
    pub(crate) errors: Errors,
    /// How fast it submits commands; without it, as fast as they complete.
    pub(crate) pace: Option<&'a Pace>,
}

/// Which commands of a host may end with an error before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// None.
    Never,
    /// Writes, for lack of space.
    Space,
    /// Commands to a zone that lacks space, once one has found none; not reads.
    ZoneSpace,
    /// Any.
    Any,
}

/// Synchronizes the start of all hosts, and the time from which errors are expected.
struct RunState {
    begin: Barrier,
    ending: AtomicBool,
    /// The connections are lost, or will be without anything else that has to be done.
    ended: AtomicBool,
}

struct Session<'a, 'b> {
    state: &'a RunState,
    host: Host<'b>,
    in_flight: BTreeMap<CommandId, (&'static str, Meaning)>,
    tally: Tally,
    losses: Vec<Loss>,
    /// The connection was lost, or an error was found.
    is_over: bool,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.resets += other.resets;
        self.finishes += other.finishes;
        self.reads += other.reads;
        self.others += other.others;
        self.in_flight += other.in_flight;
        self.errors += other.errors;
    }
}

/// Runs the loads of all hosts while `during` runs, and until their connections are lost, which
/// `end` causes.
///
/// # Errors
/// When a connection fails, is lost too early, or a command has an unexpected result; or the error
/// of `during` or `end`.
pub(crate) fn run_all(
    hosts: Vec<Host<'_>>,
    during: impl FnOnce() -> Result<(), RunError>,
    end: impl FnOnce() -> Result<(), RunError>,
) -> Result<Tally, RunError> {
    let begin = Barrier::new(hosts.len() + 1);
    let state = RunState { begin, ending: AtomicBool::new(false), ended: AtomicBool::new(false) };
    let state = &state;
    let (ended, tallies) = thread::scope(|scope| {
        let threads: Vec<_> = hosts.into_iter().map(|host| scope.spawn(move || run(host, state))).collect();
        state.begin.wait();
        let during = during();
        state.ending.store(true, Ordering::SeqCst);
        let ended = during.and(end());
        state.ended.store(true, Ordering::SeqCst);
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        (ended, threads.into_iter().map(join).collect::<Vec<Result<Tally, RunError>>>())
    });
    let mut sum = Tally::default();
    let (mut losses, mut failed) = (Vec::new(), ended.err());
    for tally in tallies {
        match tally {
            Ok(tally) => sum += tally,
            Err(RunError::Lost(of_host)) => losses.extend(of_host),
            Err(of_host) => failed = failed.or(Some(of_host)),
        }
    }
    match failed {
        // Losses of hosts are more informative than the exit status of the server.
        _ if !losses.is_empty() => Err(RunError::Lost(losses)),
        Some(failed) => Err(failed),
        None => Ok(sum),
    }
}

fn run(host: Host<'_>, state: &RunState) -> Result<Tally, RunError> {
    let connection = open(host.url);
    // Also without a connection, or the others would wait forever.
    state.begin.wait();
    let mut connection = connection?;
    let mut session = Session {
        state,
        host,
        in_flight: BTreeMap::new(),
        tally: Tally::default(),
        losses: Vec::new(),
        is_over: false,
    };
    session.work(&mut connection)?;
    if session.losses.is_empty() { Ok(session.tally) } else { Err(RunError::Lost(session.losses)) }
}

/// How a host is connected.
pub(crate) enum Channel {
    /// To a namespace, over NVMe/TCP.
    Nvme(Box<Connection>),
    /// To an export, over NBD.
    Nbd(Box<NbdHost>),
}

impl Channel {
    /// The time since it was created.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Channel::Nvme(connection) => connection.now(),
            Channel::Nbd(host) => host.now(),
        }
    }

    /// Submits a command.
    ///
    /// # Errors
    /// [`QueueFull`] returns the command.
    pub(crate) fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        match self {
            Channel::Nvme(connection) => return connection.submit(command),
            Channel::Nbd(host) => host.submit(command),
        }
        Ok(())
    }

    /// Sleeps until an event, or until the deadline.
    ///
    /// # Errors
    /// When the event loop fails.
    pub(crate) fn run_once(&mut self, until: Option<Instant>) -> Result<(), DriveError> {
        match self {
            Channel::Nvme(connection) => return connection.run_once(until),
            Channel::Nbd(host) => host.run_once(until),
        }
        Ok(())
    }

    /// Appends completions.
    pub(crate) fn poll(&mut self, completions: &mut CompletionQueue) {
        match self {
            Channel::Nvme(connection) => connection.poll(completions),
            Channel::Nbd(host) => host.poll(completions),
        }
    }

    /// Closes the connection; errors are ignored, since all reads have completed.
    pub(crate) fn close(self) {
        if let Channel::Nvme(connection) = self {
            let _ = connection.close();
        }
    }
}

/// Connects to a URL.
///
/// # Errors
/// When the connection fails.
pub(crate) fn open(url: &str) -> Result<Channel, RunError> {
    if url.starts_with(SCHEME) {
        return NbdHost::open(url).map(|host| Channel::Nbd(Box::new(host)));
    }
    connect(url).map(|connection| Channel::Nvme(Box::new(connection)))
}

/// Connects to a namespace.
///
/// # Errors
/// When the connection fails.
pub(crate) fn connect(url: &str) -> Result<Connection, RunError> {
    let location: Location = url.parse().map_err(|error| RunError::Failed(format!("{url}: {error}")))?;
    Connection::open(&location, &NamespaceOptions::default()).map_err(|error| RunError::Failed(error.to_string()))
}

impl Session<'_, '_> {
    fn work(&mut self, connection: &mut Channel) -> Result<(), RunError> {
        let queue_depth = self.host.queue_depth;
        let failed = |error: DriveError| RunError::Failed(error.to_string());
        let mut completions = CompletionQueue::new();
        let mut next_id = 0;
        while !self.is_over || !self.in_flight.is_empty() {
            while !self.is_over && self.in_flight.len() < queue_depth && self.may_submit() {
                let planned = self.host.load.next();
                next_id += 1;
                let id = CommandId(next_id);
                self.in_flight.insert(id, (planned.operation.name(), planned.meaning));
                let command = Command::new(id, NamespaceId::FIRST, planned.operation);
                if let Err(QueueFull(_)) = connection.submit(command) {
                    return Err(RunError::Failed(format!(
                        "the queue of the connection is smaller than {queue_depth} commands"
                    )));
                }
            }
            let sleep = if self.host.pace.is_some() { PACED_SLEEP_MAX } else { SLEEP_MAX };
            connection.run_once(Some(connection.now() + sleep)).map_err(failed)?;
            connection.poll(&mut completions);
            while let Some(completion) = completions.pop() {
                self.on_completion(&completion);
            }
        }
        Ok(())
    }

    /// A paused host submits after the end, too: it would not notice otherwise that its connection is
    /// lost.
    fn may_submit(&self) -> bool {
        self.host.pace.is_none_or(Pace::admits) || self.state.ended.load(Ordering::SeqCst)
    }

    fn on_completion(&mut self, completion: &Completion) {
        let (name, meaning) = self.in_flight.remove(&completion.id).expect("each command ends once");
        if completion.status.is_success() {
            self.on_success(name, &meaning, &completion.outcome);
            return;
        }
        if self.may_fail(name, completion.status) {
            self.tally.errors += 1;
            self.host.load.fail(&meaning);
            return;
        }
        // The status with which the initiator ends commands after a connection was lost.
        let is_loss = is_connection_loss(completion.status);
        self.is_over = true;
        self.tally.in_flight += 1;
        if !is_loss || !self.state.ending.load(Ordering::SeqCst) {
            self.lose(Loss::new(format!("{name} ({meaning})"), "success", completion.status));
        }
    }

    fn on_success(&mut self, name: &'static str, meaning: &Meaning, outcome: &Outcome) {
        self.host.load.acknowledge(meaning);
        match meaning {
            Meaning::Zone { zone, change, blocks, placed } => {
                match change {
                    Change::Write { .. } => self.count_write(*blocks),
                    Change::Finish { .. } => self.tally.finishes += 1,
                    Change::Reset { .. } => self.tally.resets += 1,
                }
                if let Some(place) = placed
                    && *outcome != Outcome::Appended(*place)
                {
                    let expected = format!("its place at LBA {place}");
                    self.lose(Loss::new(format!("{name} to zone {zone}"), expected, format!("{outcome:?}")));
                }
            }
            Meaning::Overwrite { blocks, .. } => self.count_write(*blocks),
            Meaning::Read { start, expected } => {
                self.tally.reads += 1;
                // A failed write may have been executed or not.
                if self.tally.errors > 0 || self.host.errors == Errors::Any {
                    return;
                }
                let found = contents(self.host.stamper, *start, expected.len() as u64, outcome);
                for ((lba, expected), found) in (start.0..).zip(expected).zip(found) {
                    if *expected != found {
                        self.lose(Loss::new(format!("read of LBA {lba} under load"), expected, found));
                    }
                }
            }
            Meaning::Flush(_) | Meaning::Nothing => self.tally.others += 1,
        }
    }

    fn may_fail(&self, name: &str, status: Status) -> bool {
        match self.host.errors {
            Errors::Never => false,
            Errors::Space => status == Status::CapacityExceeded && name != "read",
            // Writes behind one that has found none are at a wrong place; a zone whose Reset was not recorded
            // is offline until the pool was opened again; and another may have become active instead of it.
            Errors::ZoneSpace => {
                let follows = matches!(
                    status,
                    Status::ZoneInvalidWrite
                        | Status::InvalidZoneStateTransition
                        | Status::ZoneIsOffline
                        | Status::ZoneIsFull
                        | Status::TooManyActiveZones
                );
                (status == Status::CapacityExceeded && name != "read") || (follows && self.tally.errors > 0)
            }
            Errors::Any => !is_connection_loss(status),
        }
    }

    fn count_write(&mut self, blocks: u64) {
        self.tally.writes += 1;
        self.tally.written_bytes += blocks * BLOCK_BYTES as u64;
    }

    fn lose(&mut self, loss: Loss) {
        self.is_over = true;
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(loss);
        }
    }
}

/// Whether a command failed because its connection was lost.
pub(crate) fn is_connection_loss(status: Status) -> bool {
    matches!(status, Status::AbortedPowerLoss | Status::NamespaceNotReady)
}

/// The contents that a read returned.
pub(crate) fn contents(stamper: &Stamper, start: Lba, blocks: u64, outcome: &Outcome) -> Vec<Contents> {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) => {
            let blocks = (start.0..).zip(buffer.data.chunks_exact(BLOCK_BYTES));
            blocks.map(|(lba, block)| stamper.read(Lba(lba), block)).collect()
        }
        Outcome::Data(Payload::None) => vec![Contents::Zeros; blocks as usize],
        _ => vec![Contents::Foreign; blocks as usize],
    }
}

/// Reads a range, several commands at a time.
///
/// # Errors
/// A block that cannot be read.
pub(crate) fn read_all(
    connection: &mut Channel,
    stamper: &Stamper,
    ranges: &[(Lba, u64)],
) -> Result<Vec<Vec<Contents>>, RunError> {
    const AT_ONCE: usize = 8;
    let mut found: Vec<Vec<Contents>> = vec![Vec::new(); ranges.len()];
    let (mut begun, mut in_flight) = (0, 0);
    let mut completions = CompletionQueue::new();
    while begun < ranges.len() || in_flight > 0 {
        while begun < ranges.len() && in_flight < AT_ONCE {
            let (start, blocks) = ranges[begun];
            let operation = Operation::Read { start, blocks: Blocks(blocks) };
            let command = Command::new(CommandId(begun as u64), NamespaceId::FIRST, operation);
            connection
                .submit(command)
                .map_err(|_| RunError::Failed("the queue of the connection is full".to_owned()))?;
            (begun, in_flight) = (begun + 1, in_flight + 1);
        }
        connection.run_once(None).map_err(|error| RunError::Failed(error.to_string()))?;
        connection.poll(&mut completions);
        while let Some(Completion { id, status, outcome }) = completions.pop() {
            in_flight -= 1;
            let (start, blocks) = ranges[id.0 as usize];
            if !status.is_success() {
                return Err(RunError::lost(Loss::new(
                    format!("read of {blocks} blocks from LBA {start}"),
                    "success",
                    status,
                )));
            }
            found[id.0 as usize] = contents(stamper, start, blocks, &outcome);
        }
    }
    Ok(found)
}

/// Reads each range; a range that ends with an error is `None`.
///
/// # Errors
/// When reads do not end.
pub(crate) fn read_what_can_be(
    connection: &mut Channel,
    stamper: &Stamper,
    ranges: &[(Lba, u64)],
) -> Result<Vec<Option<Vec<Contents>>>, RunError> {
    const AT_ONCE: usize = 8;
    const TIMEOUT: Duration = Duration::from_millis(60_000);
    let mut found = vec![None; ranges.len()];
    let (mut begun, mut outstanding) = (0, 0);
    let mut completions = CompletionQueue::new();
    let mut deadline = connection.now() + TIMEOUT;
    while begun < ranges.len() || outstanding > 0 {
        while begun < ranges.len() && outstanding < AT_ONCE {
            let (start, blocks) = ranges[begun];
            let operation = Operation::Read { start, blocks: Blocks(blocks) };
            let command = Command::new(CommandId(begun as u64), NamespaceId::FIRST, operation);
            connection
                .submit(command)
                .map_err(|_| RunError::Failed("the queue of the connection is full".to_owned()))?;
            (begun, outstanding) = (begun + 1, outstanding + 1);
        }
        connection.run_once(Some(connection.now() + SLEEP_MAX)).map_err(|error| RunError::Failed(error.to_string()))?;
        connection.poll(&mut completions);
        while let Some(Completion { id, status, outcome }) = completions.pop() {
            outstanding -= 1;
            deadline = connection.now() + TIMEOUT;
            let (start, blocks) = ranges[id.0 as usize];
            if is_connection_loss(status) {
                return Err(RunError::lost(Loss::new(
                    format!("read from LBA {start}"),
                    "contents or an error",
                    status,
                )));
            }
            found[id.0 as usize] = status.is_success().then(|| contents(stamper, start, blocks, &outcome));
        }
        if connection.now() > deadline {
            return Err(RunError::lost(Loss::new("reads after a start", "completions within 60 s", "none")));
        }
    }
    Ok(found)
}
