//! The network to drives of servers: commands arrive some time after they were sent, in their order, and answers some time after that.
//!
//! What a program has sent arrives although the program is paused or killed meanwhile; with its connection it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use zonda_nvme::HostId;
use zonda_zoned::{Command, Completion, Instant, Prng, Status};

use super::Kept;

/// Most commands take up to this long to arrive, and as long to be answered.
const DELAY_NS: u64 = 1_000_000;
/// One in some takes up to this long, one in as many of these [`STALLED_DELAY_NS`].
const SLOW_DELAY_NS: u64 = 300_000_000;
const STALLED_DELAY_NS: u64 = 4_000_000_000;
/// How many, by run.
const SLOW_ONE_IN: [u64; 3] = [3, 8, 24];

/// All connections of a thread's shelf.
pub(super) struct Wire {
    prng: Prng,
    slow_one_in: u64,
    now: Instant,
    connections: u64,
    sent_count: u64,
    /// By when they arrive.
    under_way: BTreeMap<(Instant, u64), Sent>,
    /// By connection.
    answers: BTreeMap<u64, Vec<(Instant, Completion)>>,
    /// Between these programs and drives nothing arrives, and nobody is told.
    silent: BTreeSet<(usize, PathBuf)>,
    /// What was sent there.
    parked: Vec<Sent>,
    /// When the last command of a connection arrives, and when its answer does.
    last: BTreeMap<u64, (Instant, Instant)>,
    /// Mistake of a server: a host that preempts another one does not abort what that has under way.
    never_aborts: bool,
}

/// A command on its way.
struct Sent {
    connection: u64,
    from: Sender,
    path: PathBuf,
    command: Command,
    answer_at: Instant,
    /// It is done, whoever has the drive by then.
    is_past_fence: bool,
}

/// What a command comes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) program: usize,
    pub(super) host: HostId,
    /// How many connections the drive had lost when this one was made.
    pub(super) lost_connections: Option<u32>,
}

impl Wire {
    pub(super) fn new(mut prng: Prng, never_aborts: bool) -> Wire {
        Wire {
            slow_one_in: *prng.pick(&SLOW_ONE_IN).expect("there are some"),
            prng,
            now: Instant::ZERO,
            connections: 0,
            sent_count: 0,
            under_way: BTreeMap::new(),
            answers: BTreeMap::new(),
            silent: BTreeSet::new(),
            parked: Vec::new(),
            last: BTreeMap::new(),
            never_aborts,
        }
    }

    pub(super) fn connect(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    pub(super) fn send(&mut self, now: Instant, connection: u64, path: &Path, from: Sender, command: Command) {
        self.now = self.now.max(now);
        let sent =
            Sent { connection, from, path: path.to_owned(), command, answer_at: Instant::ZERO, is_past_fence: false };
        if self.is_silent(from.program, path) { self.parked.push(sent) } else { self.begin(sent) }
    }

    fn begin(&mut self, sent: Sent) {
        let (arrived, answered) = self.last.get(&sent.connection).copied().unwrap_or_default();
        let arrives = Instant(self.now.0 + self.delay()).max(arrived);
        let answer_at = Instant(arrives.0 + self.delay()).max(answered);
        self.last.insert(sent.connection, (arrives, answer_at));
        self.sent_count += 1;
        self.under_way.insert((arrives, self.sent_count), Sent { answer_at, ..sent });
    }

    pub(super) fn is_silent(&self, program: usize, path: &Path) -> bool {
        !self.silent.is_empty() && self.silent.contains(&(program, path.to_owned()))
    }

    /// Nothing arrives any more between a program and a drive, or all that was sent meanwhile does.
    pub(super) fn set_silent(&mut self, program: usize, path: &Path, is_silent: bool) {
        if is_silent {
            self.silent.insert((program, path.to_owned()));
            let is_meant = |sent: &Sent| sent.from.program == program && sent.path == path;
            let under_way = std::mem::take(&mut self.under_way);
            for (at, sent) in under_way {
                if is_meant(&sent) {
                    self.parked.push(sent);
                } else {
                    self.under_way.insert(at, sent);
                }
            }
            return;
        }
        self.silent.remove(&(program, path.to_owned()));
        for sent in std::mem::take(&mut self.parked) {
            if self.is_silent(sent.from.program, &sent.path) { self.parked.push(sent) } else { self.begin(sent) }
        }
    }

    /// When the next answer comes over a connection.
    pub(super) fn next_answer(&self, connection: u64, program: usize, path: &Path) -> Option<Instant> {
        if self.is_silent(program, path) {
            return None;
        }
        let under_way = self.under_way.values().filter(|sent| sent.connection == connection).map(|sent| sent.answer_at);
        let answers = self.answers.get(&connection).into_iter().flatten().map(|(at, _)| *at);
        under_way.chain(answers).min()
    }

    fn delay(&mut self) -> u64 {
        let one_in = self.slow_one_in;
        let most = match (self.prng.chance(1, one_in), self.prng.chance(1, one_in)) {
            (true, true) => STALLED_DELAY_NS,
            (true, false) => SLOW_DELAY_NS,
            _ => DELAY_NS,
        };
        self.prng.below(most)
    }

    /// Another host has preempted the one that had this drive.
    pub(super) fn preempted(&mut self, path: &Path) {
        let never_aborts = self.never_aborts;
        let there = self.under_way.values_mut().chain(&mut self.parked).filter(|sent| sent.path == path);
        there.for_each(|sent| sent.is_past_fence |= never_aborts);
    }

    /// What arrives until now is done.
    pub(super) fn advance(&mut self, now: Instant, drives: &mut BTreeMap<PathBuf, Kept>) {
        self.now = self.now.max(now);
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Sent { connection, from, path, command, answer_at, is_past_fence } = entry.remove();
            let Some(kept) = drives.get_mut(&path) else { continue };
            if kept.lost_connections != from.lost_connections {
                continue;
            }
            let is_others = kept.holder.is_some_and(|holder| holder.host != from.host);
            let completion = if is_others && !is_past_fence {
                Completion::of(command.id, Status::ReservationConflict)
            } else if kept.is_failing {
                Completion::of(command.id, Status::InternalError)
            } else {
                kept.device.borrow_mut().execute(&command)
            };
            self.answers.entry(connection).or_default().push((answer_at, completion));
        }
    }

    /// Answers that have come.
    pub(super) fn take_answers(&mut self, connection: u64, program: usize, path: &Path) -> Vec<Completion> {
        let now = self.now;
        if self.is_silent(program, path) {
            return Vec::new();
        }
        let Some(answers) = self.answers.get_mut(&connection) else { return Vec::new() };
        let (come, later) = std::mem::take(answers).into_iter().partition(|(at, _)| *at <= now);
        *answers = later;
        let come: Vec<(Instant, Completion)> = come;
        come.into_iter().map(|(_, completion)| completion).collect()
    }
}
