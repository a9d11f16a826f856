//! The network to remote drives: commands and completions arrive with random delays, in order.
//!
//! Commands arrive even if the program is paused or killed meanwhile; they are lost with the
//! connection.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use zonda_nvme::HostId;
use zonda_zoned::{Command, Completion, Instant, Prng, Status};

use super::MockMedia;

/// The maximum delay of most commands and completions.
const DELAY_NS: u64 = 1_000_000;
/// The maximum delay of one in [`SLOW_ONE_IN`]; of one in as many of these it is
/// [`STALLED_DELAY_NS`].
const SLOW_DELAY_NS: u64 = 300_000_000;
const STALLED_DELAY_NS: u64 = 4_000_000_000;
/// The ratio of slow commands, by run.
const SLOW_ONE_IN: [u64; 3] = [3, 8, 24];

/// All connections to the mock drives of a thread.
pub(super) struct Wire {
    prng: Prng,
    slow_one_in: u64,
    now: Instant,
    connections: u64,
    sent_count: u64,
    /// By time of arrival.
    in_flight: BTreeMap<(Instant, u64), Sent>,
    /// By connection.
    answers: BTreeMap<u64, Vec<(Instant, Completion)>>,
    /// Programs and drives between which all traffic is dropped silently.
    silent: BTreeSet<(usize, PathBuf)>,
    /// The commands between them.
    parked: Vec<Sent>,
    /// When the last command of a connection arrives, and its completion.
    last: BTreeMap<u64, (Instant, Instant)>,
    /// Bug of a server: a preemption does not abort the outstanding commands of the preempted host.
    never_aborts: bool,
}

/// A command in flight.
struct Sent {
    connection: u64,
    from: Sender,
    path: PathBuf,
    command: Command,
    answer_at: Instant,
    /// It is executed regardless of the present reservation.
    is_past_fence: bool,
}

/// The sender of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) program: usize,
    pub(super) host: HostId,
    /// The number of lost connections of the drive when this one was made.
    pub(super) lost_connections: Option<u32>,
}

impl Wire {
    pub(super) fn new(mut prng: Prng, never_aborts: bool) -> Wire {
        Wire {
            slow_one_in: *prng.pick(&SLOW_ONE_IN).expect("the list is not empty"),
            prng,
            now: Instant::ZERO,
            connections: 0,
            sent_count: 0,
            in_flight: BTreeMap::new(),
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
        self.in_flight.insert((arrives, self.sent_count), Sent { answer_at, ..sent });
    }

    pub(super) fn is_silent(&self, program: usize, path: &Path) -> bool {
        !self.silent.is_empty() && self.silent.contains(&(program, path.to_owned()))
    }

    /// Parks all traffic between a program and a drive, or delivers what was parked.
    pub(super) fn set_silent(&mut self, program: usize, path: &Path, is_silent: bool) {
        if is_silent {
            self.silent.insert((program, path.to_owned()));
            let is_meant = |sent: &Sent| sent.from.program == program && sent.path == path;
            let in_flight = std::mem::take(&mut self.in_flight);
            for (at, sent) in in_flight {
                if is_meant(&sent) {
                    self.parked.push(sent);
                } else {
                    self.in_flight.insert(at, sent);
                }
            }
            return;
        }
        self.silent.remove(&(program, path.to_owned()));
        for sent in std::mem::take(&mut self.parked) {
            if self.is_silent(sent.from.program, &sent.path) { self.parked.push(sent) } else { self.begin(sent) }
        }
    }

    /// When the next completion of a connection arrives.
    pub(super) fn next_answer(&self, connection: u64, program: usize, path: &Path) -> Option<Instant> {
        if self.is_silent(program, path) {
            return None;
        }
        let in_flight = self.in_flight.values().filter(|sent| sent.connection == connection).map(|sent| sent.answer_at);
        let answers = self.answers.get(&connection).into_iter().flatten().map(|(at, _)| *at);
        in_flight.chain(answers).min()
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

    /// Another host has preempted the holder of this drive.
    pub(super) fn preempted(&mut self, path: &Path) {
        let never_aborts = self.never_aborts;
        let there = self.in_flight.values_mut().chain(&mut self.parked).filter(|sent| sent.path == path);
        there.for_each(|sent| sent.is_past_fence |= never_aborts);
    }

    /// Executes the commands that have arrived by `now`.
    pub(super) fn advance(&mut self, now: Instant, drives: &mut BTreeMap<PathBuf, MockMedia>) {
        self.now = self.now.max(now);
        while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Sent { connection, from, path, command, answer_at, is_past_fence } = entry.remove();
            let Some(media) = drives.get_mut(&path) else { continue };
            if media.lost_connections != from.lost_connections {
                continue;
            }
            let is_others = media.holder.is_some_and(|holder| holder.host != from.host);
            let completion = if is_others && !is_past_fence {
                Completion::of(command.id, Status::ReservationConflict)
            } else if media.is_failing {
                Completion::of(command.id, Status::InternalError)
            } else {
                media.device.borrow_mut().execute(&command)
            };
            self.answers.entry(connection).or_default().push((answer_at, completion));
        }
    }

    /// Takes the completions that have arrived.
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
