//! A host: one connection in one thread, that carries a load out until the connection is lost.

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
use crate::loss::{Loss, Trouble};
use crate::nbd::{NbdHost, SCHEME};
use crate::oracle::Change;
use crate::stamp::{BLOCK_BYTES, Contents, Stamper};

/// The longest sleep of a host.
const NAP: Duration = Duration::from_millis(100);
/// Losses that are kept of one host.
const LOSSES_MAX: usize = 10;

/// What hosts have done.
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
    /// Commands under way at the end, whose fate is unknown.
    pub in_flight: u64,
    /// Commands that ended with an error where errors were allowed.
    pub errors: u64,
}

/// One host of a load.
pub(crate) struct Host<'a> {
    /// Its namespace.
    pub(crate) url: &'a str,
    /// Commands that it has under way.
    pub(crate) queue_depth: usize,
    /// Knows the blocks of the namespace.
    pub(crate) stamper: &'a Stamper,
    /// What it asks for.
    pub(crate) load: &'a mut dyn Load,
    /// Which commands may fail.
    pub(crate) errors: Errors,
}

/// Which commands of a host may end with an error before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// None.
    Never,
    /// Those that write, for want of space.
    Space,
    /// Any.
    Any,
}

/// When all hosts begin, and when errors are to be expected.
struct Gate {
    begin: Barrier,
    ending: AtomicBool,
}

struct Session<'a, 'b> {
    gate: &'a Gate,
    host: Host<'b>,
    under_way: BTreeMap<CommandId, (&'static str, Meaning)>,
    tally: Tally,
    losses: Vec<Loss>,
    /// The connection is gone, or something is wrong.
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

/// Has all hosts carry out their loads while `during` runs, and until their connections are lost, which `end` is called for.
///
/// # Errors
/// When a connection cannot be made, is lost before its time, or a command does not end as it must; or what
/// `during` and `end` said.
pub(crate) fn run_all(
    hosts: Vec<Host<'_>>,
    during: impl FnOnce() -> Result<(), Trouble>,
    end: impl FnOnce() -> Result<(), Trouble>,
) -> Result<Tally, Trouble> {
    let gate = Gate { begin: Barrier::new(hosts.len() + 1), ending: AtomicBool::new(false) };
    let gate = &gate;
    let (ended, tallies) = thread::scope(|scope| {
        let threads: Vec<_> = hosts.into_iter().map(|host| scope.spawn(move || run(host, gate))).collect();
        gate.begin.wait();
        let during = during();
        gate.ending.store(true, Ordering::SeqCst);
        let ended = during.and(end());
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        (ended, threads.into_iter().map(join).collect::<Vec<Result<Tally, Trouble>>>())
    });
    let mut sum = Tally::default();
    let (mut losses, mut stuck) = (Vec::new(), ended.err());
    for tally in tallies {
        match tally {
            Ok(tally) => sum += tally,
            Err(Trouble::Lost(of_host)) => losses.extend(of_host),
            Err(of_host) => stuck = stuck.or(Some(of_host)),
        }
    }
    match stuck {
        // What hosts saw before says more than how the server ended.
        _ if !losses.is_empty() => Err(Trouble::Lost(losses)),
        Some(stuck) => Err(stuck),
        None => Ok(sum),
    }
}

fn run(host: Host<'_>, gate: &Gate) -> Result<Tally, Trouble> {
    let connection = open(host.url);
    // Also without a connection, or the others would wait for ever.
    gate.begin.wait();
    let mut connection = connection?;
    let mut session =
        Session { gate, host, under_way: BTreeMap::new(), tally: Tally::default(), losses: Vec::new(), is_over: false };
    session.work(&mut connection)?;
    if session.losses.is_empty() { Ok(session.tally) } else { Err(Trouble::Lost(session.losses)) }
}

/// How a host is connected.
pub(crate) enum Channel {
    /// To a namespace, over NVMe/TCP.
    Nvme(Box<Connection>),
    /// To an export, over NBD.
    Nbd(Box<NbdHost>),
}

impl Channel {
    /// The time since it was made.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Channel::Nvme(connection) => connection.now(),
            Channel::Nbd(host) => host.now(),
        }
    }

    /// Takes a command.
    ///
    /// # Errors
    /// [`QueueFull`] hands the command back.
    pub(crate) fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        match self {
            Channel::Nvme(connection) => return connection.submit(command),
            Channel::Nbd(host) => host.submit(command),
        }
        Ok(())
    }

    /// Sleeps until something has come, or so long.
    ///
    /// # Errors
    /// When the event loop fails.
    pub(crate) fn turn(&mut self, until: Option<Instant>) -> Result<(), DriveError> {
        match self {
            Channel::Nvme(connection) => return connection.turn(until),
            Channel::Nbd(host) => host.turn(until),
        }
        Ok(())
    }

    /// Adds what has ended.
    pub(crate) fn poll(&mut self, completions: &mut CompletionQueue) {
        match self {
            Channel::Nvme(connection) => connection.poll(completions),
            Channel::Nbd(host) => host.poll(completions),
        }
    }

    /// What was read has been read, however the connection ends.
    pub(crate) fn close(self) {
        if let Channel::Nvme(connection) = self {
            let _ = connection.close();
        }
    }
}

/// A connection to what a URL names.
///
/// # Errors
/// Why there is none.
pub(crate) fn open(url: &str) -> Result<Channel, Trouble> {
    if url.starts_with(SCHEME) {
        return NbdHost::open(url).map(|host| Channel::Nbd(Box::new(host)));
    }
    connect(url).map(|connection| Channel::Nvme(Box::new(connection)))
}

/// A connection to a namespace.
///
/// # Errors
/// Why there is none.
pub(crate) fn connect(url: &str) -> Result<Connection, Trouble> {
    let location: Location = url.parse().map_err(|error| Trouble::Stuck(format!("{url}: {error:?}")))?;
    Connection::open(&location, &NamespaceOptions::default()).map_err(|error| Trouble::Stuck(error.to_string()))
}

impl Session<'_, '_> {
    fn work(&mut self, connection: &mut Channel) -> Result<(), Trouble> {
        let queue_depth = self.host.queue_depth;
        let stuck = |error: DriveError| Trouble::Stuck(error.to_string());
        let mut completions = CompletionQueue::new();
        let mut next_id = 0;
        while !self.is_over || !self.under_way.is_empty() {
            while !self.is_over && self.under_way.len() < queue_depth {
                let planned = self.host.load.next();
                next_id += 1;
                let id = CommandId(next_id);
                self.under_way.insert(id, (planned.operation.name(), planned.meaning));
                let command = Command { id, namespace: NamespaceId::FIRST, operation: planned.operation };
                if let Err(QueueFull(_)) = connection.submit(command) {
                    return Err(Trouble::Stuck(format!("a connection has no room for {queue_depth} commands")));
                }
            }
            connection.turn(Some(connection.now() + NAP)).map_err(stuck)?;
            connection.poll(&mut completions);
            while let Some(completion) = completions.pop() {
                self.on_completion(&completion);
            }
        }
        Ok(())
    }

    fn on_completion(&mut self, completion: &Completion) {
        let (name, meaning) = self.under_way.remove(&completion.id).expect("each command ends once");
        if completion.status.is_success() {
            self.on_success(name, &meaning, &completion.outcome);
            return;
        }
        if self.may_fail(name, completion.status) {
            self.tally.errors += 1;
            return;
        }
        // How the initiator ends what was under way when a connection was lost, and what comes after.
        let is_loss = is_connection_loss(completion.status);
        self.is_over = true;
        self.tally.in_flight += 1;
        if !is_loss || !self.gate.ending.load(Ordering::SeqCst) {
            self.lose(Loss::new(format!("{name} ({meaning:?})"), "success", completion.status));
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
                // A write that failed may be there or not.
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

/// Whether a command ended with its connection, and not for a reason of its own.
pub(crate) fn is_connection_loss(status: Status) -> bool {
    matches!(status, Status::AbortedPowerLoss | Status::NamespaceNotReady)
}

/// What a read has found.
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
) -> Result<Vec<Vec<Contents>>, Trouble> {
    const AT_ONCE: usize = 8;
    let mut found: Vec<Vec<Contents>> = vec![Vec::new(); ranges.len()];
    let (mut begun, mut under_way) = (0, 0);
    let mut completions = CompletionQueue::new();
    while begun < ranges.len() || under_way > 0 {
        while begun < ranges.len() && under_way < AT_ONCE {
            let (start, blocks) = ranges[begun];
            let operation = Operation::Read { start, blocks: Blocks(blocks) };
            let command = Command { id: CommandId(begun as u64), namespace: NamespaceId::FIRST, operation };
            connection.submit(command).map_err(|_| Trouble::Stuck("a connection has no room".to_owned()))?;
            (begun, under_way) = (begun + 1, under_way + 1);
        }
        connection.turn(None).map_err(|error| Trouble::Stuck(error.to_string()))?;
        connection.poll(&mut completions);
        while let Some(Completion { id, status, outcome }) = completions.pop() {
            under_way -= 1;
            let (start, blocks) = ranges[id.0 as usize];
            if !status.is_success() {
                return Err(Trouble::lost(Loss::new(
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
) -> Result<Vec<Option<Vec<Contents>>>, Trouble> {
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
            let command = Command { id: CommandId(begun as u64), namespace: NamespaceId::FIRST, operation };
            connection.submit(command).map_err(|_| Trouble::Stuck("a connection has no room".to_owned()))?;
            (begun, outstanding) = (begun + 1, outstanding + 1);
        }
        connection.turn(Some(connection.now() + NAP)).map_err(|error| Trouble::Stuck(error.to_string()))?;
        connection.poll(&mut completions);
        while let Some(Completion { id, status, outcome }) = completions.pop() {
            outstanding -= 1;
            deadline = connection.now() + TIMEOUT;
            let (start, blocks) = ranges[id.0 as usize];
            if is_connection_loss(status) {
                return Err(Trouble::lost(Loss::new(format!("read from LBA {start}"), "contents or an error", status)));
            }
            found[id.0 as usize] = status.is_success().then(|| contents(stamper, start, blocks, &outcome));
        }
        if connection.now() > deadline {
            return Err(Trouble::lost(Loss::new("reads after a start", "an end within 60 s", "none")));
        }
    }
    Ok(found)
}
