//! The files: their names, extents and data in memory, and the size of their metadata.
//!
//! ```text
//! file.rs    a file: its metadata, and how much of them records contain
//! writer.rs  the end of a file that is not on the media yet
//! ```

mod file;
mod writer;

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_zoned::{Status, ZoneIndex};

use crate::catalog::FileMeta;
use crate::extents::Run;
use crate::format::record::{EXTENT_COST_BYTES, FILE_COST_BYTES, Record, RecordBuffer};
use crate::limits::{FILES_MAX, NAME_BYTES_MAX};
use crate::{FileError, FileId, Lifetime, RequestId};

use super::log::{Log, Lsn};
use super::shape::Shape;
pub(super) use file::File;
pub(super) use writer::{ChunkId, Writer};

/// The size that two switches of a migration can add to a snapshot, for the existing copy and for
/// the part in flight: the replaced extent is split in two, with the copy between them.
const SWITCHES_COST_BYTES: u64 = 2 * 2 * EXTENT_COST_BYTES;

/// Owns the files and their names, and the size that a snapshot of them has.
///
/// Whatever changes a name, or the number of extents and chunks of a file, is an operation here, so
/// that the size is always right: a snapshot must fit in half of a metadata zone.
#[derive(Debug)]
pub(super) struct Files {
    files: BTreeMap<FileId, File>,
    names: BTreeMap<String, FileId>,
    next_file: u64,
    /// The log sequence number of the last record that removed a name or gave it to another file.
    names_lsn: Lsn,
    /// The size of a snapshot, with all changes in progress.
    snapshot_bytes: u64,
    snapshot_bytes_max: u64,
    /// Bytes of a snapshot that only migrations may use.
    reserved_bytes: u64,
    block_bytes: u32,
}

/// A write to begin.
#[derive(Debug)]
pub(super) struct ChunkWrite {
    pub(super) chunk: ChunkId,
    pub(super) run: Run,
    pub(super) data: Bytes,
}

/// What a removed file leaves.
#[derive(Debug)]
pub(super) struct Removed {
    /// Its runs on the media, without those of writes in flight.
    pub(super) runs: Vec<Run>,
    pub(super) is_recorded: bool,
    /// The zone that it held.
    pub(super) zone: Option<ZoneIndex>,
    pub(super) is_waiting_for_zone: bool,
    /// Its requests, which will never be served.
    pub(super) requests: Vec<RequestId>,
}

/// A part of a file that refers to a copy now.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) replaced: Vec<Run>,
    /// The log sequence number of the record; `None` if the file is not recorded.
    pub(super) lsn: Option<Lsn>,
}

impl Files {
    pub(super) fn new(shape: &Shape, migrates: bool) -> Files {
        Files {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next_file: 1,
            names_lsn: Lsn::default(),
            snapshot_bytes: shape.empty_snapshot_bytes(),
            snapshot_bytes_max: shape.snapshot_bytes_max,
            // Other requests run between the read of a part that is moved and its switch.
            reserved_bytes: if migrates { SWITCHES_COST_BYTES } else { 0 },
            block_bytes: shape.block_bytes,
        }
    }

    pub(super) fn get(&self, id: FileId) -> Option<&File> {
        self.files.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: FileId) -> Option<&mut File> {
        self.files.get_mut(&id)
    }

    pub(super) fn contains(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FileId, &File)> {
        self.files.iter().map(|(id, file)| (*id, file))
    }

    /// The writer of a file that exists and is open.
    pub(super) fn writer_mut(&mut self, id: FileId) -> Option<&mut Writer> {
        self.files.get_mut(&id).and_then(File::writer_mut)
    }

    pub(super) fn lookup(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Creates an empty file.
    pub(super) fn create(&mut self, name: &str, lifetime: Lifetime) -> Result<FileId, FileError> {
        check_name(name)?;
        if self.names.contains_key(name) {
            return Err(FileError::Exists);
        }
        let cost = cost(name);
        if !self.has_space(cost + EXTENT_COST_BYTES) || self.files.len() >= FILES_MAX || self.next_file == u64::MAX {
            return Err(FileError::TooManyFiles);
        }
        self.snapshot_bytes += cost;
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.files.insert(id, File::new(name, lifetime));
        self.names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Removes a name, and its file.
    pub(super) fn delete(&mut self, name: &str) -> Option<(FileId, Removed)> {
        let id = self.names.remove(name)?;
        Some((id, self.remove(id)))
    }

    /// Gives a file another name, and removes the file that had it. The change is to be recorded.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(FileId, Option<Removed>), FileError> {
        self.check_rename(from, to)?;
        let id = self.names.remove(from).expect("the file was looked up");
        let replaced = self.names.insert(to.to_owned(), id).filter(|&replaced| replaced != id);
        let removed = replaced.map(|replaced| self.remove(replaced));
        self.snapshot_bytes = self.snapshot_bytes + to.len() as u64 - from.len() as u64;
        Ok((id, removed))
    }

    fn check_rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        if !self.names.contains_key(from) {
            return Err(FileError::NoSuchFile);
        }
        check_name(to)?;
        let is_replacing = from != to && self.names.contains_key(to);
        let grows = to.len().saturating_sub(from.len()) as u64;
        if !is_replacing && !self.has_space(grows) {
            return Err(FileError::TooManyFiles);
        }
        Ok(())
    }

    /// Removes a file whose name is removed.
    fn remove(&mut self, id: FileId) -> Removed {
        let file = self.files.remove(&id).expect("a name belongs to a file");
        let meta = file.meta();
        let chunks = file.writer().map_or(0, Writer::chunk_count);
        self.snapshot_bytes -= cost(&meta.name) + EXTENT_COST_BYTES * (meta.extents.count() + chunks) as u64;
        file.into_removed()
    }

    /// Records that a file was deleted. Returns the log sequence number.
    pub(super) fn record_delete(&mut self, log: &mut Log, id: FileId) -> Lsn {
        self.names_lsn = log.push(&Record::Deleted { file: id });
        self.names_lsn
    }

    /// Records a new name of a file. Returns the log sequence number.
    pub(super) fn record_rename(&mut self, log: &mut Log, id: FileId, to: &str) -> Lsn {
        let file = self.files.get_mut(&id).expect("a name belongs to a file");
        self.names_lsn = file.record_rename(log, id, to);
        self.names_lsn
    }

    /// The log sequence number of the last record that removed a name or gave it to another file.
    pub(super) fn names_lsn(&self) -> Lsn {
        self.names_lsn
    }

    /// Records all data of the file that are on the media. Returns the log sequence number of its
    /// last record.
    pub(super) fn record(&mut self, log: &mut Log, id: FileId) -> Lsn {
        self.files.get_mut(&id).expect("the caller has checked the file").record(log, id, self.block_bytes)
    }

    /// Adds the records of all recorded files to a snapshot with this log sequence number, with the
    /// data that have reached the media since. `omitted` is for a seeded bug.
    pub(super) fn write_snapshot(&mut self, records: &mut RecordBuffer, lsn: Lsn, omitted: Option<Run>) {
        for (id, file) in &mut self.files {
            file.write_snapshot(records, *id, lsn, omitted);
        }
        records.push(&Record::SnapshotEnd);
        assert!(records.bytes() as u64 <= self.snapshot_bytes_max, "a snapshot does not exceed its estimate");
    }

    /// Adopts a file that a mount has found.
    pub(super) fn adopt(&mut self, id: FileId, meta: FileMeta) {
        self.snapshot_bytes += cost(&meta.name) + EXTENT_COST_BYTES * meta.extents.count() as u64;
        self.files.insert(id, File::found(meta));
    }

    /// Adopts the names of these files.
    pub(super) fn adopt_names(&mut self, names: BTreeMap<String, FileId>, next_file: u64) -> Result<(), FileError> {
        if self.snapshot_bytes > self.snapshot_bytes_max {
            return Err(FileError::Corrupt("there are more files than the metadata has space for".to_owned()));
        }
        self.names = names;
        self.next_file = next_file;
        Ok(())
    }

    /// Whether a snapshot has space for so many more bytes.
    fn has_space(&self, bytes: u64) -> bool {
        self.snapshot_bytes + bytes + self.reserved_bytes <= self.snapshot_bytes_max
    }

    /// Whether a snapshot has space for one more extent of a file.
    pub(super) fn has_space_for_extent(&self) -> bool {
        self.has_space(EXTENT_COST_BYTES)
    }

    /// Whether a snapshot has space for moving another part of a file.
    pub(super) fn has_space_for_switches(&self) -> bool {
        self.snapshot_bytes + SWITCHES_COST_BYTES <= self.snapshot_bytes_max
    }

    /// Begins the next write of a file, which has data to write, at block `start` of a zone with
    /// `free` blocks from there on.
    pub(super) fn begin_write(
        &mut self,
        shape: &Shape,
        id: FileId,
        zone: ZoneIndex,
        (start, free): (u32, u32),
    ) -> ChunkWrite {
        assert!(free > 0, "a file holds a zone only while it is writable");
        let writer = self.files.get_mut(&id).and_then(File::writer_mut).expect("the file has data to write");
        let before = writer.chunk_count();
        let write = writer.begin_write(shape, zone, start, free);
        self.snapshot_bytes += EXTENT_COST_BYTES * (writer.chunk_count() - before) as u64;
        write
    }

    /// A write of a file has succeeded.
    pub(super) fn end_write(&mut self, id: FileId, chunk: ChunkId, run: Run) {
        let file = self.files.get_mut(&id).expect("the caller has checked the file");
        let merged = file.end_write(chunk, run, self.block_bytes);
        self.snapshot_bytes -= EXTENT_COST_BYTES * merged as u64;
    }

    /// A write of a file has failed. Returns the error if it is not attempted again.
    pub(super) fn fail_write(&mut self, id: FileId, chunk: ChunkId, status: Status) -> Option<FileError> {
        self.writer_mut(id).expect("a file with a write in flight is open").fail_write(chunk, status)
    }

    /// Lets the bytes of a file from `offset` on refer to `run`, a copy of them.
    pub(super) fn switch(&mut self, log: &mut Log, id: FileId, offset: u64, run: Run) -> Switched {
        let file = self.files.get_mut(&id).expect("the caller has checked the file");
        let before = file.meta().extents.count() as u64;
        let switched = file.switch(log, id, offset, run, self.block_bytes);
        let after = file.meta().extents.count() as u64;
        self.snapshot_bytes = self.snapshot_bytes + EXTENT_COST_BYTES * after - EXTENT_COST_BYTES * before;
        switched
    }

    pub(super) fn check_invariants(&self, shape: &Shape, buffer_bytes_max: u32) {
        let mut snapshot_bytes = shape.empty_snapshot_bytes();
        assert_eq!(self.names.len(), self.files.len(), "every file has one name");
        for (name, id) in &self.names {
            let file = &self.files[id];
            assert_eq!(&file.meta().name, name, "a name belongs to its file");
            assert!(id.0 < self.next_file, "the number of a file is not used again");
            file.check_invariants(shape, buffer_bytes_max);
            let chunks = file.writer().map_or(0, Writer::chunk_count);
            snapshot_bytes += cost(name) + EXTENT_COST_BYTES * (file.meta().extents.count() + chunks) as u64;
        }
        assert_eq!(self.snapshot_bytes, snapshot_bytes, "the bytes of a snapshot");
        assert!(snapshot_bytes <= self.snapshot_bytes_max, "a snapshot fits");
    }
}

impl std::ops::Index<FileId> for Files {
    type Output = File;
    fn index(&self, id: FileId) -> &File {
        &self.files[&id]
    }
}

/// Bytes of a file with this name in a snapshot, without its extents.
fn cost(name: &str) -> u64 {
    FILE_COST_BYTES + name.len() as u64
}

fn check_name(name: &str) -> Result<(), FileError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(FileError::NameTooLong) }
}
