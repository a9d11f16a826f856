//! An honest host of a volume that may lose its server to another one: it reads, writes and flushes without a pause. Of what it
//! asks for once a takeover has returned nothing may be acknowledged.
//!
//! What it had asked for before may be: a server that is stopped between the decision to acknowledge and the sending does the latter
//! when it wakes. Then it must be true: a write is on the members, and a read returns what was there when it was asked for.

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
use crate::loss::{Loss, Trouble};
use crate::oracle::PlainHistory;
use crate::stamp::{Contents, Stamper};

/// The longest sleep of a host.
const NAP: zonda_zoned::Duration = zonda_zoned::Duration::from_millis(20);
/// For so long a host takes what its server had sent before a takeover returned.
const DRAIN: zonda_zoned::Duration = zonda_zoned::Duration::from_millis(50);
/// What a host that gets nothing but errors waits between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// Until a host is connected, and until it hands its history over.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Losses that are kept of one host.
const LOSSES_MAX: usize = 10;
/// Of so many commands one is a read of blocks that were never written: no member is asked for them.
const UNWRITTEN_EVERY: u64 = 4;

/// What a host has to expect of its server, as numbers that grow.
mod stage {
    /// It owns the volume.
    pub(super) const OWNER: u8 = 0;
    /// It may lose the volume at any moment: commands may fail.
    pub(super) const CONTESTED: u8 = 1;
    /// Another one owns the volume: nothing may be acknowledged.
    pub(super) const FENCED: u8 = 2;
    /// It is about to end.
    pub(super) const ENDING: u8 = 3;
    /// The host is to end by itself.
    pub(super) const QUIESCING: u8 = 4;
}

/// A host at work, in a thread of its own.
pub(super) struct Client {
    stage: Arc<AtomicU8>,
    handed: Receiver<PlainHistory>,
    thread: JoinHandle<Result<Done, Trouble>>,
}

/// What a host does.
pub(super) struct Task {
    /// Where the volume is.
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

/// What a host has done.
pub(super) struct Done {
    /// What is known of the blocks. Of a host whose server was fenced this is of no use: it was handed over then.
    pub(super) history: PlainHistory,
    pub(super) tally: Tally,
    /// Commands that were refused after another server had taken the volume over.
    pub(super) fenced: u64,
    /// Commands from before that which were acknowledged later.
    pub(super) late: u64,
    /// The writes among them: number, first block, blocks.
    pub(super) late_writes: Vec<(u64, u64, u64)>,
}

struct Asked {
    name: &'static str,
    meaning: Meaning,
    /// What each block of a read may hold if an earlier write has failed.
    allowed: Vec<Vec<Contents>>,
    /// A takeover had returned before it was asked for.
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
    /// Connects, and begins.
    ///
    /// # Errors
    /// When it cannot connect.
    pub(super) fn start(task: Task) -> Result<Client, Trouble> {
        let stage = Arc::new(AtomicU8::new(stage::OWNER));
        let (hand_over, handed) = channel();
        let (tell, connected) = channel();
        let own = stage.clone();
        let thread = thread::spawn(move || {
            let channel = match open(&task.url) {
                Ok(channel) => channel,
                Err(trouble) => {
                    // Whoever waits for the connection takes it from there.
                    let _ = tell.send(Err(trouble.clone()));
                    return Err(trouble);
                }
            };
            let _ = tell.send(Ok(()));
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
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Stuck("a host is not connected after a minute".to_owned())),
        }
    }

    /// From now on commands may fail: a takeover begins.
    pub(super) fn contest(&self) {
        self.stage.store(stage::CONTESTED, Ordering::SeqCst);
    }

    /// A takeover has returned: nothing that is asked from now on may be acknowledged. Returns what was, and what was in flight.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(super) fn fence(&self) -> Result<PlainHistory, Trouble> {
        self.stage.store(stage::FENCED, Ordering::SeqCst);
        self.handed
            .recv_timeout(TIMEOUT)
            .map_err(|_| Trouble::Stuck("a host does not hand over what it knows".to_owned()))
    }

    /// Its server is about to end: the host ends with the connection.
    pub(super) fn expect_end(&self) {
        self.stage.store(stage::ENDING, Ordering::SeqCst);
    }

    /// The host ends once what it has outstanding has ended.
    pub(super) fn quiesce(&self) {
        self.stage.store(stage::QUIESCING, Ordering::SeqCst);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What it found wrong.
    pub(super) fn join(self) -> Result<Done, Trouble> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Worker {
    fn work(mut self, url: &str, channel: Channel) -> Result<Done, Trouble> {
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
                // Before the takeover has returned nothing new is asked: a server that is paused would not greet.
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
            self.take(channel, NAP)?;
            if self.fenced > before {
                sleep(PAUSE);
            }
        }
        if self.losses.is_empty() {
            let Worker { tally, fenced, late, late_writes, .. } = self;
            return Ok(Done { history: self.load.history, tally, fenced, late, late_writes });
        }
        // Whoever waits for the history learns of the losses at the end.
        let _ = self.hand_over.send(self.load.history);
        Err(Trouble::Lost(self.losses))
    }

    /// Takes what was acknowledged before, and hands over what is known.
    fn end_of_ownership(&mut self, channel: Option<&mut Channel>) -> Result<(), Trouble> {
        if let Some(channel) = channel {
            let until = channel.now() + DRAIN;
            while channel.now() < until {
                self.take(channel, zonda_zoned::Duration::from_millis(5))?;
            }
        }
        self.is_fenced = true;
        // Nobody waits for it only if the run has ended.
        let _ = self.hand_over.send(self.load.history.clone());
        Ok(())
    }

    fn submit(&mut self, channel: &mut Channel) -> Result<(), Trouble> {
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
            let command = Command { id, namespace: NamespaceId::FIRST, operation: planned.operation };
            if let Err(QueueFull(_)) = channel.submit(command) {
                return Err(Trouble::Stuck(format!(
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

    fn take(&mut self, channel: &mut Channel, nap: zonda_zoned::Duration) -> Result<(), Trouble> {
        channel.turn(Some(channel.now() + nap)).map_err(|error| Trouble::Stuck(error.to_string()))?;
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
                let what = format!("{} by the only owner ({:?})", asked.name, asked.meaning);
                self.lose(Loss::new(what, "success", completion.status));
            }
            return;
        }
        if asked.is_fenced {
            let what = format!("{} by the old owner ({:?})", asked.name, asked.meaning);
            self.lose(Loss::new(what, "no acknowledgement of what is asked after a takeover", "an acknowledgement"));
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
