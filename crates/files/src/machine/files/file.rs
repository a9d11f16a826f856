//! A file at run time: its metadata, and how much of them records contain.

use bytes::Bytes;

use crate::catalog::FileMeta;
use crate::extents::{ExtentList, Run};
use crate::format::record::{Record, RecordBuffer};
use crate::machine::log::{Log, Lsn};
use crate::machine::shape::Shape;
use crate::{FileError, FileId, Lifetime, RequestId};

use super::writer::{ChunkId, WaitingSync, Writer};
use super::{Removed, Switched};

/// A file.
#[derive(Debug)]
pub(in crate::machine) struct File {
    /// Its extents are those whose writes have ended, as have all before them.
    meta: FileMeta,
    /// Records contain it.
    is_recorded: bool,
    /// Bytes at its start whose extents are recorded.
    recorded_bytes: u64,
    /// Records contain it as closed.
    is_recorded_closed: bool,
    /// The log sequence number of its last record.
    lsn: Lsn,
    /// Present while it accepts data.
    writer: Option<Box<Writer>>,
}

impl File {
    pub(super) fn new(name: &str, lifetime: Lifetime) -> File {
        let extents = ExtentList::default();
        File {
            meta: FileMeta { name: name.to_owned(), lifetime, extents, is_closed: false },
            is_recorded: false,
            is_recorded_closed: false,
            recorded_bytes: 0,
            lsn: Lsn::default(),
            writer: Some(Box::default()),
        }
    }

    /// A file that a mount has found.
    pub(super) fn found(meta: FileMeta) -> File {
        let len_bytes = meta.extents.len_bytes();
        let writer = (!meta.is_closed).then(|| Box::new(Writer::behind(len_bytes)));
        File {
            is_recorded: true,
            is_recorded_closed: meta.is_closed,
            recorded_bytes: len_bytes,
            lsn: Lsn::default(),
            writer,
            meta,
        }
    }

    pub(in crate::machine) fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// The log sequence number of its last record.
    pub(in crate::machine) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Its end that is not on the media, while it accepts data.
    pub(in crate::machine) fn writer(&self) -> Option<&Writer> {
        self.writer.as_deref()
    }

    pub(in crate::machine) fn writer_mut(&mut self) -> Option<&mut Writer> {
        self.writer.as_deref_mut()
    }

    pub(in crate::machine) fn len_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(self.meta.extents.len_bytes(), |writer| writer.acknowledged_bytes())
    }

    /// All its runs: its extents, and those of chunks, which belong to it like these.
    pub(in crate::machine) fn runs(&self) -> impl Iterator<Item = Run> {
        let extents = self.meta.extents.iter().map(|extent| extent.run);
        extents.chain(self.writer.iter().flat_map(|writer| writer.chunk_runs()))
    }

    /// Adds an append that waits for the buffer. `data` is empty if contents are not kept.
    pub(in crate::machine) fn add_append(
        &mut self,
        request: RequestId,
        data: Bytes,
        bytes: u64,
    ) -> Result<(), FileError> {
        let writer = self.writer.as_mut().ok_or(FileError::NotOpen)?;
        writer.add_append(request, data, bytes)
    }

    /// Adds a sync or close that waits for all data of the appends so far.
    pub(in crate::machine) fn add_sync(&mut self, request: RequestId, closes: bool) -> Result<(), FileError> {
        let written_bytes = self.meta.extents.len_bytes();
        let writer = self.writer.as_mut().ok_or(FileError::NotOpen)?;
        writer.add_sync(request, closes, written_bytes)
    }

    /// Moves data of appends into the buffer as far as it has space. Returns the next append that
    /// is completely in it.
    pub(in crate::machine) fn take_append(&mut self, buffer_bytes_max: u64) -> Option<RequestId> {
        let written_bytes = self.meta.extents.len_bytes();
        self.writer.as_mut()?.take_append(buffer_bytes_max, written_bytes)
    }

    /// Whether there are data to write now: a unit of a write, or those that a sync waits for.
    pub(in crate::machine) fn has_data_to_write(&self, unit_bytes: u64) -> bool {
        let written_bytes = self.meta.extents.len_bytes();
        self.writer.as_ref().is_some_and(|writer| writer.has_data_to_write(unit_bytes, written_bytes))
    }

    /// The next sync whose data are on the media.
    pub(in crate::machine) fn next_sync(&mut self) -> Option<WaitingSync> {
        let written_bytes = self.meta.extents.len_bytes();
        self.writer.as_mut()?.next_sync(written_bytes)
    }

    /// Ends all waiting requests, and returns them. The file stays open, with the data in its
    /// buffer.
    pub(in crate::machine) fn cancel_requests(&mut self) -> Vec<RequestId> {
        let written_bytes = self.meta.extents.len_bytes();
        self.writer.as_mut().map_or_else(Vec::new, |writer| writer.cancel_requests(written_bytes))
    }

    /// The file accepts no more data: all of them are on the media. Returns its writer.
    pub(in crate::machine) fn close(&mut self) -> Option<Box<Writer>> {
        self.meta.is_closed = true;
        self.writer.take().inspect(|writer| writer.assert_drained())
    }

    /// A chunk is on the media. Returns the number of chunks that became a part of an extent
    /// instead of an extent of their own.
    pub(super) fn end_write(&mut self, chunk: ChunkId, run: Run, block_bytes: u32) -> usize {
        let writer = self.writer.as_mut().expect("a file with a write in flight is open");
        writer.end_write(chunk, run);
        let mut merged = 0;
        while let Some(run) = writer.pop_done() {
            merged += usize::from(!self.meta.extents.push(run, block_bytes));
        }
        merged
    }

    /// What is left of a file that is removed.
    pub(super) fn into_removed(mut self) -> Removed {
        let mut removed = Removed {
            runs: self.meta.extents.iter().map(|extent| extent.run).collect(),
            is_recorded: self.is_recorded,
            zone: None,
            is_waiting_for_zone: false,
            requests: Vec::new(),
        };
        if let Some(mut writer) = self.writer.take() {
            // Writes in flight are released when they end.
            removed.runs.extend(writer.done_runs());
            removed.zone = writer.take_zone();
            removed.is_waiting_for_zone = writer.is_waiting_for_zone();
            removed.requests = writer.cancel_requests(0);
        }
        removed
    }

    /// Records all data that are on the media. Returns the log sequence number of its last record.
    pub(super) fn record(&mut self, log: &mut Log, id: FileId, block_bytes: u32) -> Lsn {
        self.record_name(log, id);
        let len_bytes = self.meta.extents.len_bytes();
        if self.recorded_bytes < len_bytes {
            let runs = self.meta.extents.runs_from(self.recorded_bytes, block_bytes);
            self.lsn = log.push_extents(id, runs);
            self.recorded_bytes = len_bytes;
        }
        if self.meta.is_closed && !self.is_recorded_closed {
            self.is_recorded_closed = true;
            self.lsn = log.push(&Record::Closed { file: id });
        }
        self.lsn
    }

    fn record_name(&mut self, log: &mut Log, id: FileId) {
        if !self.is_recorded {
            self.is_recorded = true;
            let FileMeta { lifetime, name, .. } = &self.meta;
            self.lsn = log.push(&Record::Created { file: id, lifetime: *lifetime, name });
        }
    }

    /// Changes the name, and records that. Returns the log sequence number.
    pub(super) fn record_rename(&mut self, log: &mut Log, id: FileId, to: &str) -> Lsn {
        self.record_name(log, id);
        to.clone_into(&mut self.meta.name);
        self.lsn = log.push(&Record::Renamed { file: id, name: to });
        self.lsn
    }

    /// Replaces the runs of the bytes from `offset` on by `run`, and records that if the file is
    /// recorded.
    pub(super) fn switch(&mut self, log: &mut Log, id: FileId, offset: u64, run: Run, block_bytes: u32) -> Switched {
        if self.is_recorded && self.recorded_bytes < offset + run.bytes(block_bytes) {
            self.record(log, id, block_bytes);
        }
        let replaced = self.meta.extents.replace(offset, run, block_bytes);
        let replaced = replaced.expect("whole blocks of one extent were copied");
        let lsn = self.is_recorded.then(|| log.push(&Record::Moved { file: id, offset, run }));
        self.lsn = lsn.unwrap_or(self.lsn);
        Switched { replaced, lsn }
    }

    /// Adds the records of a recorded file to a snapshot, which contains it as it is now.
    pub(super) fn write_snapshot(&mut self, records: &mut RecordBuffer, id: FileId, lsn: Lsn, omitted: Option<Run>) {
        if !self.is_recorded {
            return;
        }
        let FileMeta { name, lifetime, extents, is_closed } = &self.meta;
        records.push(&Record::Created { file: id, lifetime: *lifetime, name });
        let runs = extents.iter().map(|extent| extent.run);
        records.push_extents(id, runs.filter(|run| Some(*run) != omitted));
        if *is_closed {
            records.push(&Record::Closed { file: id });
        }
        self.is_recorded_closed = *is_closed;
        self.recorded_bytes = extents.len_bytes();
        self.lsn = lsn;
    }

    pub(super) fn check_invariants(&self, shape: &Shape, buffer_bytes_max: u32) {
        self.meta.extents.check_invariants(shape.block_bytes);
        assert!(self.recorded_bytes <= self.meta.extents.len_bytes(), "records contain only data on the media");
        assert!(!self.is_recorded_closed || self.meta.is_closed, "a file that is recorded as closed is closed");
        assert_eq!(self.writer.is_none(), self.meta.is_closed, "a file accepts data until it is closed");
        if let Some(writer) = &self.writer {
            writer.check_invariants(shape.keeps_bytes(), shape.block_bytes);
            assert!(writer.buffered_bytes() <= u64::from(buffer_bytes_max), "a buffer is bounded");
        }
    }
}
