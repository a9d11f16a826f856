//! Writes, from the client to log and memtable.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonda_zoned::Instant;

use super::{Answer, OldWal, Store};
use crate::lsm::effect::{Effect, Waker};
use crate::lsm::entry::{Entry, Key, Stamp};
use crate::lsm::memtable::Memtable;
use crate::lsm::stall::Obstacle;
use crate::lsm::wal::Wal;

/// A write of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    client: u32,
    key: Key,
    is_put: bool,
}

impl Store {
    /// Puts or deletes a key; `None` if the answer comes later.
    pub(in crate::lsm) fn write(&mut self, now: Instant, client: u32, key: Key, is_put: bool) -> Option<Answer> {
        let write = Write { client, key, is_put };
        if self.waiting.is_empty() && self.next_obstacle(now).is_none() {
            return self.apply(now, write);
        }
        self.waiting.push_back(write);
        if self.waiting.len() == 1 {
            self.release_writes(now);
        }
        None
    }

    /// Continues waiting writes, as far as possible.
    pub(super) fn release_writes(&mut self, now: Instant) {
        while !self.waiting.is_empty() {
            let obstacle = self.next_obstacle(now);
            self.stall.note(now, obstacle, &mut self.out);
            match obstacle {
                None => {
                    let write = self.waiting.pop_front().expect("the queue is not empty");
                    let answer = self.apply(now, write);
                    self.answers.extend(answer.map(|answer| (write.client, answer)));
                }
                Some(Obstacle::Stopped) => return,
                Some(Obstacle::Slowed(at)) => {
                    if self.stall.must_wake(at) {
                        self.out.push(Effect::Wake { at, waker: Waker::Writes });
                    }
                    return;
                }
            }
        }
        self.stall.note(now, None, &mut self.out);
    }

    /// What the next write must wait for. Replaces a full memtable first.
    fn next_obstacle(&mut self, now: Instant) -> Option<Obstacle> {
        if self.memtable.bytes >= self.options.write_buffer_bytes && self.immutables.len() < self.options.memtables_max
        {
            self.switch_memtable(now);
        }
        self.stall.obstacle(now, self.immutables.len(), self.version.level(0).len(), &self.options)
    }

    fn apply(&mut self, now: Instant, write: Write) -> Option<Answer> {
        let format = self.options.table.entry;
        self.sequence += 1;
        let stamp = if write.is_put { Stamp::put(self.sequence) } else { Stamp::tombstone(self.sequence) };
        self.memtable.insert(Entry { key: write.key, stamp }, &format);
        if let Some(oracle) = &mut self.oracle {
            note(oracle, write.key, stamp);
        }
        let user_bytes = format.user_bytes(stamp);
        self.out.counters.user_bytes += u64::from(user_bytes);
        self.stall.on_write(now, user_bytes, self.immutables.len(), self.version.level(0).len(), &self.options);
        self.wal.add(write.client, format.log_bytes(stamp), &mut self.out).then_some(Answer::Written)
    }

    fn switch_memtable(&mut self, now: Instant) {
        let wal = Wal::new(&self.options, &mut self.out);
        let memtable = std::mem::replace(&mut self.memtable, Memtable::new(wal.file));
        self.immutables.push_back(Arc::new(memtable));
        let mut old = std::mem::replace(&mut self.wal, wal);
        old.end(&mut self.out);
        self.old_wals.push(OldWal { wal: old, is_flushed: false });
        self.start_jobs(now);
    }

    /// Deletes logs that are closed and whose memtables are tables now.
    pub(super) fn release_logs(&mut self) {
        let (gone, kept): (Vec<OldWal>, Vec<OldWal>) =
            self.old_wals.drain(..).partition(|old| old.is_flushed && old.wal.is_closed());
        self.old_wals = kept;
        gone.iter().for_each(|old| self.delete(old.wal.file));
    }
}

/// Updates the map that reads are compared with.
fn note(oracle: &mut BTreeMap<Key, Stamp>, key: Key, stamp: Stamp) {
    if stamp.is_put() {
        oracle.insert(key, stamp);
    } else {
        oracle.remove(&key);
    }
}
