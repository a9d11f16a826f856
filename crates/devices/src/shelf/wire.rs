//! The network to drives of servers: commands arrive some time after they were sent, in their order, and answers some time after that.
//!
//! What a program has sent arrives although the program is paused or killed meanwhile; with its connection it is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zonda_nvme::HostId;
use zonda_zoned::{Command, Completion, Instant, Prng, Status};

use super::Kept;

/// Most commands take up to this long to arrive, and as long to be answered.
const DELAY_NS: u64 = 1_000_000;
/// One in [`SLOW_ONE_IN`] takes up to this long, one in as many of these [`STALLED_DELAY_NS`].
const SLOW_DELAY_NS: u64 = 300_000_000;
const STALLED_DELAY_NS: u64 = 4_000_000_000;
const SLOW_ONE_IN: u64 = 24;

/// All connections of a thread's shelf.
pub(super) struct Wire {
    prng: Prng,
    now: Instant,
    connections: u64,
    sent_count: u64,
    /// By when they arrive.
    under_way: BTreeMap<(Instant, u64), Sent>,
    /// By connection.
    answers: BTreeMap<u64, Vec<(Instant, Completion)>>,
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
    pub(super) host: HostId,
    /// How many connections the drive had lost when this one was made.
    pub(super) lost_connections: Option<u32>,
}

impl Wire {
    pub(super) fn new(prng: Prng, never_aborts: bool) -> Wire {
        Wire {
            prng,
            now: Instant::ZERO,
            connections: 0,
            sent_count: 0,
            under_way: BTreeMap::new(),
            answers: BTreeMap::new(),
            last: BTreeMap::new(),
            never_aborts,
        }
    }

    pub(super) fn connect(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    /// Sends a command. Returns when its answer comes.
    pub(super) fn send(
        &mut self,
        now: Instant,
        connection: u64,
        path: &Path,
        from: Sender,
        command: Command,
    ) -> Instant {
        self.now = self.now.max(now);
        let (arrived, answered) = self.last.get(&connection).copied().unwrap_or_default();
        let arrives = Instant(self.now.0 + self.delay()).max(arrived);
        let answer_at = Instant(arrives.0 + self.delay()).max(answered);
        self.last.insert(connection, (arrives, answer_at));
        self.sent_count += 1;
        let sent = Sent { connection, from, path: path.to_owned(), command, answer_at, is_past_fence: false };
        self.under_way.insert((arrives, self.sent_count), sent);
        answer_at
    }

    fn delay(&mut self) -> u64 {
        let most = match (self.prng.chance(1, SLOW_ONE_IN), self.prng.chance(1, SLOW_ONE_IN)) {
            (true, true) => STALLED_DELAY_NS,
            (true, false) => SLOW_DELAY_NS,
            _ => DELAY_NS,
        };
        self.prng.below(most)
    }

    /// Another host has preempted the one that had this drive.
    pub(super) fn preempted(&mut self, path: &Path) {
        let never_aborts = self.never_aborts;
        let there = self.under_way.values_mut().filter(|sent| sent.path == path);
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
    pub(super) fn take_answers(&mut self, connection: u64) -> Vec<Completion> {
        let now = self.now;
        let Some(answers) = self.answers.get_mut(&connection) else { return Vec::new() };
        let (come, later) = std::mem::take(answers).into_iter().partition(|(at, _)| *at <= now);
        *answers = later;
        let come: Vec<(Instant, Completion)> = come;
        come.into_iter().map(|(_, completion)| completion).collect()
    }
}
