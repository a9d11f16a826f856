//! The event trace of a simulation: notable events, and the requests with their results.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{CommandId, Instant, Status};

use super::Request;

/// Requests, and writes of the watched block, that are retained.
const ENTRIES_MAX: usize = 2048;

/// The event trace of a simulation. It costs little unless it is recorded.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    is_recording: bool,
    watched: Option<u64>,
    lines: Vec<(Instant, String)>,
    entries: VecDeque<Entry>,
    /// Writes of the watched block, by member and command.
    in_flight: BTreeMap<(usize, CommandId), String>,
}

#[derive(Clone, Debug)]
struct Entry {
    at: Instant,
    what: EntryKind,
}

#[derive(Clone, Debug)]
enum EntryKind {
    Request { id: CommandId, request: Request, end: Option<End> },
    Medium(String),
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Completed(Instant, Status),
    Lost,
}

impl Journal {
    /// A trace that also records notable events, and every write of the `watched` block to a
    /// member.
    #[must_use]
    pub fn recording(watched: Option<u64>) -> Journal {
        Journal { is_recording: true, watched, ..Journal::default() }
    }

    /// Notable events so far, each with its time.
    #[must_use]
    pub fn lines(&self) -> &[(Instant, String)] {
        &self.lines
    }

    /// The last events of a block, or the last requests of all, the oldest first; at most `most`.
    #[must_use]
    pub fn tail(&self, lba: Option<u64>, most: usize) -> Vec<String> {
        let is_selected = |entry: &&Entry| match &entry.what {
            EntryKind::Request { request, .. } => lba.is_none_or(|lba| request.touches(lba)),
            EntryKind::Medium(_) => lba.is_some() && lba == self.watched,
        };
        let mut tail: Vec<String> = self.entries.iter().rev().filter(is_selected).take(most).map(Entry::line).collect();
        tail.reverse();
        tail
    }

    /// The block whose writes to members are recorded.
    pub(super) fn watched(&self) -> Option<u64> {
        self.watched
    }

    pub(super) fn trace(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.is_recording {
            self.lines.push((now, line()));
        }
    }

    pub(super) fn submitted(&mut self, now: Instant, id: CommandId, request: &Request) {
        self.push(now, EntryKind::Request { id, request: request.clone(), end: None });
    }

    pub(super) fn ended(&mut self, now: Instant, ended: CommandId, status: Status) {
        let entry = self.entries.iter_mut().rev().find_map(|entry| match &mut entry.what {
            EntryKind::Request { id, end, .. } if *id == ended => Some(end),
            _ => None,
        });
        if let Some(end) = entry {
            *end = Some(End::Completed(now, status));
        }
    }

    /// The volume stopped: outstanding requests are lost.
    pub(super) fn lost(&mut self, now: Instant, why: &str) {
        for entry in &mut self.entries {
            if let EntryKind::Request { end, .. } = &mut entry.what
                && end.is_none()
            {
                *end = Some(End::Lost);
            }
        }
        for (_, what) in std::mem::take(&mut self.in_flight) {
            self.push(now, EntryKind::Medium(format!("{what}: in flight at {why}")));
        }
        if self.watched.is_some() {
            self.push(now, EntryKind::Medium(why.to_owned()));
        }
    }

    /// A member was sent a write of the watched block.
    pub(super) fn sent(&mut self, member: usize, command: CommandId, what: String) {
        self.in_flight.insert((member, command), what);
    }

    /// A member has completed a command.
    pub(super) fn completed(&mut self, now: Instant, member: usize, command: CommandId, how: impl FnOnce() -> String) {
        if let Some(what) = self.in_flight.remove(&(member, command)) {
            self.push(now, EntryKind::Medium(format!("{what}: {}", how())));
        }
    }

    fn push(&mut self, at: Instant, what: EntryKind) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at, what });
    }
}

impl Entry {
    fn line(&self) -> String {
        let text = match &self.what {
            EntryKind::Medium(text) => format!("  {text}"),
            EntryKind::Request { id, request, end } => {
                let end = match end {
                    None => "in flight".to_owned(),
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
        let mut journal = Journal::recording(Some(4));
        let at = |ns| Instant(ns);
        journal.submitted(at(1), CommandId(1), &Request::Write { start: 2, blocks: 3 });
        journal.submitted(at(2), CommandId(2), &Request::Trim(vec![(9, 1), (1, 2)]));
        journal.ended(at(5), CommandId(1), Status::Success);
        journal.sent(0, CommandId(7), "version 1 to member 0".to_owned());
        journal.submitted(at(6), CommandId(3), &Request::Read { start: 4, blocks: 1 });
        journal.lost(at(7), "power loss");
        let tail = journal.tail(Some(4), 9);
        assert_eq!(tail.len(), 4, "{tail:?}");
        assert!(tail[0].contains("write of 3 blocks at 2: success"), "{tail:?}");
        assert!(tail[1].contains("lost with the volume") && tail[2].contains("in flight at power loss"), "{tail:?}");
        assert_eq!(journal.tail(None, 2).len(), 2);
    }
}
