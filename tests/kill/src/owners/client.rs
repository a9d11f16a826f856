//! A host of a volume that another server may take over: it reads, writes and flushes without a
//! pause. No command submitted after a takeover has returned may be acknowledged.
//!
//! Earlier commands may be: a server that is paused between the decision to acknowledge and the
//! send completes the send when it resumes. Then the acknowledgement must be correct: a write is on
//! the members, and a read returns the contents of that time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Lba, NamespaceId, Operation, Prng, QueueFull,
};

use crate::host::{Channel, Tally, contents, is_connection_loss, open};
use crate::load::{Load, Meaning, PlainLoad, Planned};
use crate::loss::{Loss, RunError};
use crate::oracle::PlainHistory;
use crate::stamp::{Contents, Stamper};

/// The longest sleep of a host.
const SLEEP_MAX: zonda_zoned::Duration = zonda_zoned::Duration::from_millis(20);
/// How long a host receives replies that its server sent before a takeover returned.
const DRAIN: zonda_zoned::Duration = zonda_zoned::Duration::from_millis(50);
/// Interval between two attempts of a host whose commands all fail.
const PAUSE: Duration = Duration::from_millis(5);
/// Timeout until a host is connected, and until it returns its history.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum of losses recorded per host.
const LOSSES_MAX: usize = 10;
/// One of this many commands is a read of blocks that were never written, which needs no member.
const UNWRITTEN_EVERY: u64 = 4;

/// The stages of a host, in increasing order.
mod stage {
    /// It owns the volume.
    pub(super) const OWNER: u8 = 0;
    /// It may lose the volume at any moment: commands may fail.
    pub(super) const CONTESTED: u8 = 1;
    /// Another server owns the volume: no command may be acknowledged.
    pub(super) const FENCED: u8 = 2;
    /// The server is about to end.
    pub(super) const ENDING: u8 = 3;
    /// The host stops submitting commands, and ends.
    pub(super) const QUIESCING: u8 = 4;
}

/// A running host, in its own thread.
pub(super) struct Client {
    stage: Arc<AtomicU8>,
    handed: Receiver<PlainHistory>,
    thread: JoinHandle<Result<Done, RunError>>,
}

/// The task of a host.
pub(super) struct Task {
    /// The URL of the volume.
    pub(super) url: String,
    pub(super) history: PlainHistory,
    /// Blocks that are never written: the first, and how many.
    pub(super) unwritten: (u64, u64),
    pub(super) stamper: Stamper,
    pub(super) prng: Prng,
    /// The number of its load in the run.
    pub(super) number: u32,
    pub(super) queue_depth: usize,
}

/// The result of a host.
pub(super) struct Done {
    /// The history of the blocks. Meaningless for a host whose server was fenced: it was returned
    /// then.
    pub(super) history: PlainHistory,
    pub(super) tally: Tally,
    /// Commands refused after another server had taken the volume over.
    pub(super) fenced: u64,
    /// Commands submitted before that and acknowledged later.
    pub(super) late: u64,
    /// The writes among them: number, first block, blocks.
    pub(super) late_writes: Vec<(u64, u64, u64)>,
}

struct Asked {
    name: &'static str,
    meaning: Meaning,
    /// The permitted contents of each block of a read if an earlier write may have failed.
    allowed: Vec<Vec<Contents>>,
    /// It was submitted after a takeover had returned.
    is_fenced: bool,
}

struct Worker {
    stage: Arc<AtomicU8>,
    hand_over: Sender<PlainHistory>,
    load: PlainLoad,
    unwritten: (u64, u64),
    stamper: Stamper,
    prng: Prng,
    queue_depth: usize,
    outstanding: BTreeMap<CommandId, Asked>,
    next_id: u64,
    is_lost: bool,
    is_fenced: bool,
    has_failed: bool,
    tally: Tally,
    fenced: u64,
    late: u64,
    late_writes: Vec<(u64, u64, u64)>,
    losses: Vec<Loss>,
}

impl Client {
    /// Connects, and starts.
    ///
    /// # Errors
    /// When it cannot connect.
    pub(super) fn start(task: Task) -> Result<Client, RunError> {
        let stage = Arc::new(AtomicU8::new(stage::OWNER));
        let (hand_over, handed) = channel();
        let (sender, connected) = channel();
        let own = stage.clone();
        let thread = thread::spawn(move || {
            let channel = match open(&task.url) {
                Ok(channel) => channel,
                Err(failure) => {
                    // The waiting thread returns the error.
                    let _ = sender.send(Err(failure.clone()));
                    return Err(failure);
                }
            };
            let _ = sender.send(Ok(()));
            let load = PlainLoad::new(task.history, &task.stamper, task.prng.fork("load"), (task.number, 0));
            let worker = Worker {
                stage: own,
                hand_over,
                load,
                unwritten: task.unwritten,
                stamper: task.stamper,
                prng: task.prng.fork("unwritten"),
                queue_depth: task.queue_depth,
                outstanding: BTreeMap::new(),
                next_id: 0,
                is_lost: false,
                is_fenced: false,
                has_failed: false,
                tally: Tally::default(),
                fenced: 0,
                late: 0,
                late_writes: Vec::new(),
                losses: Vec::new(),
            };
            worker.work(&task.url, channel)
        });
        match connected.recv_timeout(TIMEOUT) {
            Ok(Ok(())) => Ok(Client { stage, handed, thread }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(RunError::Failed("timeout: a host did not connect within 60 s".to_owned())),
        }
    }

    /// A takeover begins: from now on commands may fail.
    pub(super) fn contest(&self) {
        self.stage.store(stage::CONTESTED, Ordering::SeqCst);
    }

    /// A takeover has returned: no command submitted from now on may be acknowledged. Returns the
    /// history.
    ///
    /// # Errors
    /// When the host does not respond.
    pub(super) fn fence(&self) -> Result<PlainHistory, RunError> {
        self.stage.store(stage::FENCED, Ordering::SeqCst);
        self.handed
            .recv_timeout(TIMEOUT)
            .map_err(|_| RunError::Failed("timeout: a host did not return its history".to_owned()))
    }

    /// The server is about to end: the host ends with the connection.
    pub(super) fn expect_end(&self) {
        self.stage.store(stage::ENDING, Ordering::SeqCst);
    }

    /// The host ends once its outstanding commands have completed.
    pub(super) fn quiesce(&self) {
        self.stage.store(stage::QUIESCING, Ordering::SeqCst);
    }

    /// Waits until the host has ended.
    ///
    /// # Errors
    /// The losses that it found.
    pub(super) fn join(self) -> Result<Done, RunError> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Worker {
    fn work(mut self, url: &str, channel: Channel) -> Result<Done, RunError> {
        let mut channel = Some(channel);
        loop {
            let stage = self.stage.load(Ordering::SeqCst);
            let is_over = match stage {
                stage::ENDING => self.is_lost,
                stage::QUIESCING => self.outstanding.is_empty(),
                _ => false,
            };
            if is_over || !self.losses.is_empty() {
                break;
            }
            if stage == stage::FENCED && !self.is_fenced {
                self.end_of_ownership(channel.as_mut())?;
            }
            if self.is_lost {
                channel = None;
                sleep(PAUSE);
                // Do not reconnect before the takeover has returned: a paused server does not
                // respond.
                if self.is_fenced && stage == stage::FENCED {
                    channel = open(url).ok();
                    self.is_lost = channel.is_none();
                }
                continue;
            }
            let Some(channel) = &mut channel else { continue };
            let before = self.fenced;
            if stage != stage::QUIESCING {
                self.submit(channel)?;
            }
            self.take(channel, SLEEP_MAX)?;
            if self.fenced > before {
                sleep(PAUSE);
            }
        }
        if self.losses.is_empty() {
            let Worker { tally, fenced, late, late_writes, .. } = self;
            return Ok(Done { history: self.load.history, tally, fenced, late, late_writes });
        }
        // The losses are returned at the end.
        let _ = self.hand_over.send(self.load.history);
        Err(RunError::Lost(self.losses))
    }

    /// Processes earlier acknowledgements, and returns the history.
    fn end_of_ownership(&mut self, channel: Option<&mut Channel>) -> Result<(), RunError> {
        if let Some(channel) = channel {
            let until = channel.now() + DRAIN;
            while channel.now() < until {
                self.take(channel, zonda_zoned::Duration::from_millis(5))?;
            }
        }
        self.is_fenced = true;
        // The receiver is dropped only if the run has ended.
        let _ = self.hand_over.send(self.load.history.clone());
        Ok(())
    }

    fn submit(&mut self, channel: &mut Channel) -> Result<(), RunError> {
        while self.outstanding.len() < self.queue_depth {
            let planned = if self.prng.below(UNWRITTEN_EVERY) == 0 { self.read_unwritten() } else { self.load.next() };
            let allowed = match &planned.meaning {
                Meaning::Read { start, expected } if start.0 < self.load.history.blocks() => {
                    let blocks = start.0..start.0 + expected.len() as u64;
                    blocks.map(|block| self.load.history.possible(block)).collect()
                }
                Meaning::Read { expected, .. } => expected.iter().map(|&contents| vec![contents]).collect(),
                _ => Vec::new(),
            };
            self.next_id += 1;
            let id = CommandId(self.next_id);
            self.outstanding.insert(
                id,
                Asked { name: planned.operation.name(), meaning: planned.meaning, allowed, is_fenced: self.is_fenced },
            );
            let command = Command::new(id, NamespaceId::FIRST, planned.operation);
            if let Err(QueueFull(_)) = channel.submit(command) {
                return Err(RunError::Failed(format!(
                    "a connection has no queue slot for {} commands",
                    self.queue_depth
                )));
            }
        }
        Ok(())
    }

    fn read_unwritten(&mut self) -> Planned {
        let (first, count) = self.unwritten;
        let blocks = 1 + self.prng.below(8);
        let start = Lba(first + self.prng.below(count - blocks));
        let expected = vec![Contents::Zeros; blocks as usize];
        Planned {
            operation: Operation::Read { start, blocks: Blocks(blocks) },
            meaning: Meaning::Read { start, expected },
        }
    }

    fn take(&mut self, channel: &mut Channel, sleep_max: zonda_zoned::Duration) -> Result<(), RunError> {
        channel.run_once(Some(channel.now() + sleep_max)).map_err(|error| RunError::Failed(error.to_string()))?;
        let mut completions = CompletionQueue::new();
        channel.poll(&mut completions);
        while let Some(completion) = completions.pop() {
            self.on_completion(&completion);
        }
        Ok(())
    }

    fn on_completion(&mut self, completion: &Completion) {
        let asked = self.outstanding.remove(&completion.id).expect("each command ends once");
        let stage = self.stage.load(Ordering::SeqCst);
        if !completion.status.is_success() {
            self.is_lost |= is_connection_loss(completion.status);
            self.has_failed = true;
            self.tally.in_flight += u64::from(!self.is_fenced);
            self.fenced += u64::from(self.is_fenced);
            if matches!(stage, stage::OWNER | stage::QUIESCING) {
                let what = format!("{} by the only owner ({})", asked.name, asked.meaning);
                self.lose(Loss::new(what, "success", completion.status));
            }
            return;
        }
        if asked.is_fenced {
            let what = format!("{} by the old owner ({})", asked.name, asked.meaning);
            self.lose(Loss::new(
                what,
                "no acknowledgement of commands submitted after a takeover",
                "an acknowledgement",
            ));
            return;
        }
        if self.is_fenced {
            self.late += 1;
            if let Meaning::Overwrite { write, first, blocks } = asked.meaning {
                self.late_writes.push((write, first, blocks));
            }
        }
        self.load.acknowledge(&asked.meaning);
        let tally = &mut self.tally;
        match &asked.meaning {
            Meaning::Read { start, expected } => {
                tally.reads += 1;
                let found = contents(&self.stamper, *start, expected.len() as u64, &completion.outcome);
                let blocks = (start.0..).zip(expected).zip(&asked.allowed).zip(found);
                let is_wrong = |(((_, expected), allowed), found): &(((u64, &Contents), &Vec<Contents>), Contents)| {
                    if self.has_failed { !allowed.contains(found) } else { *expected != found }
                };
                let wrong: Vec<Loss> = blocks
                    .filter(is_wrong)
                    .map(|(((lba, expected), _), found)| {
                        Loss::new(format!("read of LBA {lba} under load"), expected, found)
                    })
                    .collect();
                wrong.into_iter().for_each(|loss| self.lose(loss));
            }
            Meaning::Overwrite { blocks, .. } => {
                tally.writes += 1;
                tally.written_bytes += blocks * crate::stamp::BLOCK_BYTES as u64;
            }
            _ => tally.others += 1,
        }
    }

    fn lose(&mut self, loss: Loss) {
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(loss);
        }
    }
}
