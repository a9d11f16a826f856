//! The write-ahead log of one memtable.

use super::effect::{Effect, FileKind, Outbox, Owner};
use super::entry::FileNumber;
use super::plan::TreeOptions;

/// A log and the writes that wait for it.
///
/// Records are collected until they fill a block of the drive, because the file store writes no
/// less; then they are appended to the file, and the writes of that moment wait for space in the
/// file's buffer. With `wal_sync`, writes wait until they are on the media: those that arrive
/// during a sync share the next one.
#[derive(Debug)]
pub(super) struct Wal {
    pub(super) file: FileNumber,
    sync: bool,
    unit_bytes: u64,
    /// Records that are not in the file yet.
    gathered_bytes: u64,
    /// Records in the file.
    pub(super) file_bytes: u64,
    stage: Stage,
    /// Clients whose writes are in flight.
    in_flight: Vec<u32>,
    /// Clients whose writes are next.
    next: Vec<u32>,
    /// It accepts no more records.
    ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Appending,
    Syncing,
    Closing,
    Closed,
}

impl Wal {
    pub(super) fn new(options: &TreeOptions, out: &mut Outbox) -> Wal {
        Wal {
            file: out.create(FileKind::Log, options.wal_lifetime),
            sync: options.wal_sync,
            unit_bytes: options.log_unit_bytes,
            gathered_bytes: 0,
            file_bytes: 0,
            stage: Stage::Idle,
            in_flight: Vec::new(),
            next: Vec::new(),
            ending: false,
        }
    }

    /// Adds a record; false if the write must wait.
    #[inline]
    pub(super) fn add(&mut self, client: u32, bytes: u32, out: &mut Outbox) -> bool {
        assert!(!self.ending, "a closing log accepts no record");
        self.gathered_bytes += u64::from(bytes);
        if self.stage == Stage::Idle && !self.is_due() {
            return true;
        }
        self.next.push(client);
        self.write_next(out);
        false
    }

    /// Ends the log: the rest is appended to the file, which is closed.
    pub(super) fn end(&mut self, out: &mut Outbox) {
        self.ending = true;
        self.write_next(out);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Called when the operation in flight has ended. Adds the clients whose writes are complete to
    /// `finished`.
    pub(super) fn on_done(&mut self, out: &mut Outbox, finished: &mut Vec<u32>) {
        match self.stage {
            Stage::Appending if self.sync && !self.ending => {
                self.stage = Stage::Syncing;
                return out.push(Effect::Sync { owner: Owner::Log(self.file), file: self.file });
            }
            // Closing syncs too.
            Stage::Appending if self.sync => self.stage = Stage::Idle,
            Stage::Appending | Stage::Syncing => {
                self.stage = Stage::Idle;
                finished.append(&mut self.in_flight);
            }
            Stage::Closing => {
                self.stage = Stage::Closed;
                finished.append(&mut self.in_flight);
                finished.append(&mut self.next);
            }
            Stage::Idle | Stage::Closed => unreachable!("no operation is in flight"),
        }
        if self.stage == Stage::Idle {
            self.write_next(out);
            if self.stage == Stage::Idle {
                finished.append(&mut self.next);
            }
        }
    }

    /// Whether the collected records must be appended to the file.
    #[inline]
    fn is_due(&self) -> bool {
        self.gathered_bytes >= self.unit_bytes || (self.gathered_bytes > 0 && (self.sync || self.ending))
    }

    fn write_next(&mut self, out: &mut Outbox) {
        if self.stage != Stage::Idle {
            return;
        }
        if self.is_due() {
            let bytes = std::mem::take(&mut self.gathered_bytes);
            self.file_bytes += bytes;
            out.counters.wal_bytes += bytes;
            self.in_flight.append(&mut self.next);
            self.stage = Stage::Appending;
            out.push(Effect::Append { owner: Owner::Log(self.file), file: self.file, bytes });
        } else if self.ending {
            self.stage = Stage::Closing;
            out.push(Effect::Close { owner: Owner::Log(self.file), file: self.file });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::tests::tree_options;

    fn wal(sync: bool) -> (Wal, Outbox) {
        let mut out = Outbox::default();
        let options = TreeOptions { wal_sync: sync, log_unit_bytes: 1_000, ..tree_options() };
        let wal = Wal::new(&options, &mut out);
        out.effects.clear();
        (wal, out)
    }

    fn words(out: &mut Outbox) -> Vec<&'static str> {
        let word = |effect: Effect| match effect {
            Effect::Append { .. } => "append",
            Effect::Sync { .. } => "sync",
            Effect::Close { .. } => "close",
            other => panic!("{other:?} is not for a log"),
        };
        out.effects.drain(..).map(word).collect()
    }

    #[test]
    fn records_are_collected_until_they_fill_a_block() {
        let (mut wal, mut out) = wal(false);
        assert!(wal.add(1, 400, &mut out) && wal.add(1, 400, &mut out));
        assert!(out.effects.is_empty());
        assert!(!wal.add(1, 400, &mut out), "the third makes a block full");
        assert_eq!(
            out.effects.pop_front(),
            Some(Effect::Append { owner: Owner::Log(wal.file), file: wal.file, bytes: 1_200 })
        );
        assert!(!wal.add(2, 400, &mut out), "while it is in flight, others wait");
        let mut finished = Vec::new();
        wal.on_done(&mut out, &mut finished);
        assert_eq!((finished, words(&mut out).len()), (vec![1, 2], 0));
    }

    #[test]
    fn writes_that_arrive_during_a_sync_share_the_next() {
        let (mut wal, mut out) = wal(true);
        let mut finished = Vec::new();
        assert!(!wal.add(1, 10, &mut out));
        wal.on_done(&mut out, &mut finished);
        assert!(!wal.add(2, 10, &mut out) && !wal.add(3, 10, &mut out));
        assert_eq!((words(&mut out), finished.len()), (vec!["append", "sync"], 0));
        wal.on_done(&mut out, &mut finished);
        assert_eq!((words(&mut out), &finished[..]), (vec!["append"], &[1][..]));
        wal.on_done(&mut out, &mut finished);
        wal.on_done(&mut out, &mut finished);
        assert_eq!((words(&mut out), &finished[..]), (vec!["sync"], &[1, 2, 3][..]));
        assert_eq!(out.counters.wal_bytes, 30);
    }

    #[test]
    fn a_closing_log_appends_its_rest_to_the_file() {
        for sync in [false, true] {
            let (mut wal, mut out) = wal(sync);
            let mut finished = Vec::new();
            if !wal.add(1, 500, &mut out) {
                assert!(!wal.add(2, 300, &mut out));
                wal.end(&mut out);
                wal.on_done(&mut out, &mut finished);
                wal.on_done(&mut out, &mut finished);
                wal.on_done(&mut out, &mut finished);
                assert_eq!((words(&mut out), &finished[..]), (vec!["append", "append", "close"], &[1, 2][..]));
            } else {
                wal.end(&mut out);
                wal.on_done(&mut out, &mut finished);
                wal.on_done(&mut out, &mut finished);
                assert_eq!(words(&mut out), ["append", "close"]);
            }
            assert!(wal.is_closed());
            assert_eq!(wal.file_bytes, if sync { 800 } else { 500 });
        }
    }
}
