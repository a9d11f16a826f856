//! What happened in a world, for a person: events of note, and what became of the requests.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{CommandId, Instant, Status};

use super::Request;

/// Requests, and writes of a block that is watched, that are remembered.
const ENTRIES_MAX: usize = 2048;

/// What happened in a world. It costs little as long as nobody listens.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    listens: bool,
    watched: Option<u64>,
    lines: Vec<(Instant, String)>,
    entries: VecDeque<Entry>,
    /// Writes of the block that is watched, by member and command.
    under_way: BTreeMap<(usize, CommandId), String>,
}

#[derive(Clone, Debug)]
struct Entry {
    at: Instant,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Asked { id: CommandId, request: Request, end: Option<End> },
    Medium(String),
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Completed(Instant, Status),
    Lost,
}

impl Journal {
    /// One that remembers events of note too, and every write of one block to a member, if one is to be watched.
    #[must_use]
    pub fn listening(watched: Option<u64>) -> Journal {
        Journal { listens: true, watched, ..Journal::default() }
    }

    /// Events of note so far, each with its time.
    #[must_use]
    pub fn lines(&self) -> &[(Instant, String)] {
        &self.lines
    }

    /// The last that happened to a block, or the last requests of all, the oldest first; at most `most`.
    #[must_use]
    pub fn tail(&self, lba: Option<u64>, most: usize) -> Vec<String> {
        let is_told = |entry: &&Entry| match &entry.what {
            What::Asked { request, .. } => lba.is_none_or(|lba| request.touches(lba)),
            What::Medium(_) => lba.is_some() && lba == self.watched,
        };
        let mut tail: Vec<String> = self.entries.iter().rev().filter(is_told).take(most).map(Entry::line).collect();
        tail.reverse();
        tail
    }

    /// The block whose way to the members is told.
    pub(super) fn watched(&self) -> Option<u64> {
        self.watched
    }

    pub(super) fn tell(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.listens {
            self.lines.push((now, line()));
        }
    }

    pub(super) fn asked(&mut self, now: Instant, id: CommandId, request: &Request) {
        self.push(now, What::Asked { id, request: request.clone(), end: None });
    }

    pub(super) fn ended(&mut self, now: Instant, ended: CommandId, status: Status) {
        let entry = self.entries.iter_mut().rev().find_map(|entry| match &mut entry.what {
            What::Asked { id, end, .. } if *id == ended => Some(end),
            _ => None,
        });
        if let Some(end) = entry {
            *end = Some(End::Completed(now, status));
        }
    }

    /// The volume is gone, and with it what it was asked for.
    pub(super) fn lost(&mut self, now: Instant, why: &str) {
        for entry in &mut self.entries {
            if let What::Asked { end, .. } = &mut entry.what
                && end.is_none()
            {
                *end = Some(End::Lost);
            }
        }
        for (_, what) in std::mem::take(&mut self.under_way) {
            self.push(now, What::Medium(format!("{what}: under way when {why}")));
        }
        if self.watched.is_some() {
            self.push(now, What::Medium(why.to_owned()));
        }
    }

    /// A member is given a write of the block that is watched.
    pub(super) fn given(&mut self, member: usize, command: CommandId, what: String) {
        self.under_way.insert((member, command), what);
    }

    /// A member has ended a command.
    pub(super) fn done(&mut self, now: Instant, member: usize, command: CommandId, how: impl FnOnce() -> String) {
        if let Some(what) = self.under_way.remove(&(member, command)) {
            self.push(now, What::Medium(format!("{what}: {}", how())));
        }
    }

    fn push(&mut self, at: Instant, what: What) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at, what });
    }
}

impl Entry {
    fn line(&self) -> String {
        let text = match &self.what {
            What::Medium(text) => format!("  {text}"),
            What::Asked { id, request, end } => {
                let end = match end {
                    None => "under way".to_owned(),
                    Some(End::Completed(at, status)) => format!("{status} after {}", at.since(self.at)),
                    Some(End::Lost) => "lost with the volume".to_owned(),
                };
                format!("request {}, {request}: {end}", id.0)
            }
        };
        format!("{} {text}", self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_block_has_the_requests_that_touch_it_and_how_they_ended() {
        let mut journal = Journal::listening(Some(4));
        let at = |ns| Instant(ns);
        journal.asked(at(1), CommandId(1), &Request::Write { start: 2, blocks: 3 });
        journal.asked(at(2), CommandId(2), &Request::Trim(vec![(9, 1), (1, 2)]));
        journal.ended(at(5), CommandId(1), Status::Success);
        journal.given(0, CommandId(7), "version 1 to member 0".to_owned());
        journal.asked(at(6), CommandId(3), &Request::Read { start: 4, blocks: 1 });
        journal.lost(at(7), "the power goes");
        let tail = journal.tail(Some(4), 9);
        assert_eq!(tail.len(), 4, "{tail:?}");
        assert!(tail[0].contains("write of 3 blocks at 2: success"), "{tail:?}");
        assert!(
            tail[1].contains("lost with the volume") && tail[2].contains("under way when the power goes"),
            "{tail:?}"
        );
        assert_eq!(journal.tail(None, 2).len(), 2);
    }
}
