//! Append, sync, close: from a file's buffer to a zone.

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Status};

use crate::bug::SeededBug;
use crate::extents::Run;
use crate::format::record::{EXTENT_COST_BYTES, Record};
use crate::limits::{FILE_WRITES_MAX, WRITE_ATTEMPTS_MAX};
use crate::{FileData, FileError, FileId, FileStore, Outcome, RequestId};

use super::commands::InFlight;
use super::file::{ChunkStage, File, WaitingAppend, WaitingSync, Writer};
use super::log::Waiter;
use super::zones::Holder;

impl FileStore {
    /// Appends data to a file. The request ends when all data are in the file's buffer, possibly
    /// after a wait. If it fails after a part was buffered, that part stays:
    /// [`len_bytes`](FileStore::len_bytes) returns the length.
    pub fn append(&mut self, request: RequestId, file: FileId, data: FileData) {
        if !self.admit_change(request) {
            return;
        }
        let left_bytes = data.len_bytes();
        let data = match data {
            FileData::Bytes(bytes) if self.shape.keeps_bytes() => bytes,
            FileData::Length(1..) if self.shape.keeps_bytes() => {
                let words = "the store keeps contents: append FileData::Bytes, or format it with keeps = None";
                return self.end(request, Err(FileError::Config(words.to_owned())));
            }
            FileData::Bytes(_) | FileData::Length(_) => Bytes::new(),
        };
        let writer = match self.open_writer(file) {
            Ok(writer) => writer,
            Err(error) => return self.end(request, Err(error)),
        };
        writer.appends.push_back(WaitingAppend { request, data, left_bytes });
        self.pump_file(file);
        self.make_progress();
    }

    /// Makes a file durable: the request ends when everything appended before is on the media, and
    /// its metadata too. Its last block is padded, and the next append begins a new block.
    pub fn sync(&mut self, request: RequestId, file: FileId) {
        if !self.admit_change(request) {
            return;
        }
        if let Some(File { writer: None, lsn, .. }) = self.files.get(&file) {
            let lsn = *lsn;
            self.when_durable(lsn, Waiter::Request(request));
        } else if let Err(error) = self.wait_for_data(request, file, false) {
            self.end(request, Err(error));
        }
        self.make_progress();
    }

    /// As [`sync`](FileStore::sync), and the file accepts no more data: its zone is free for
    /// others. If it fails, the file stays open.
    pub fn close(&mut self, request: RequestId, file: FileId) {
        if !self.admit_change(request) {
            return;
        }
        if let Err(error) = self.wait_for_data(request, file, true) {
            self.end(request, Err(error));
        }
        self.make_progress();
    }

    fn wait_for_data(&mut self, request: RequestId, id: FileId, closes: bool) -> Result<(), FileError> {
        let file = self.files.get_mut(&id).ok_or(FileError::NoSuchFile)?;
        let extents_bytes = file.meta.extents.len_bytes();
        let writer = file.writer.as_mut().ok_or(FileError::NotOpen)?;
        if let Some(error) = &writer.broken {
            return Err(error.clone());
        }
        if closes && writer.is_closing {
            return Err(FileError::NotOpen);
        }
        writer.is_closing |= closes;
        let target = extents_bytes + writer.buffered_bytes() + writer.waiting_bytes();
        writer.flush_to = writer.flush_to.max(target);
        writer.syncs.push_back(WaitingSync { request, target, closes });
        self.pump_file(id);
        Ok(())
    }

    /// The writer of an open file.
    fn open_writer(&mut self, file: FileId) -> Result<&mut Writer, FileError> {
        let file = self.files.get_mut(&file).ok_or(FileError::NoSuchFile)?;
        let writer = file.writer.as_deref_mut().filter(|writer| !writer.is_closing).ok_or(FileError::NotOpen)?;
        match &writer.broken {
            Some(error) => Err(error.clone()),
            None => Ok(writer),
        }
    }

    /// Called when a write of data has ended.
    pub(super) fn on_write(&mut self, id: FileId, chunk: u64, run: Run, status: Status) {
        let status = if self.has(SeededBug::IgnoredWriteError) { Status::Success } else { status };
        self.zones.end_write(&run, status.is_success());
        if !status.is_success() {
            self.withdraw_zone(run.zone);
        }
        let block_bytes = self.shape.block_bytes;
        let Some(file) = self.files.get_mut(&id) else {
            if status.is_success() {
                self.zones.release(&run);
            }
            return;
        };
        let writer = file.writer.as_mut().expect("a file with a write in flight is open");
        let chunk = writer.chunk_mut(chunk).expect("a chunk stays until it is written");
        if status.is_success() {
            chunk.stage = ChunkStage::Done(run);
            while let Some(run) = writer.pop_done() {
                if !file.meta.extents.push(run, block_bytes) {
                    self.snapshot_bytes -= EXTENT_COST_BYTES;
                }
            }
        } else {
            chunk.stage = ChunkStage::Waiting;
            chunk.attempts += 1;
            if chunk.attempts >= WRITE_ATTEMPTS_MAX {
                let error = FileError::Media { status, what: "writing a file's data to several zones" };
                writer.broken = Some(error.clone());
                self.fail_file(id, &error);
            }
        }
        self.pump_file(id);
    }

    /// Advances a file: accepts appends, cuts and writes chunks, ends syncs.
    pub(super) fn pump_file(&mut self, id: FileId) {
        loop {
            self.take_appends(id);
            let has_metadata_space = self.has_metadata_space(EXTENT_COST_BYTES);
            let Some(file) = self.files.get_mut(&id) else { return };
            let submitted = file.meta.extents.len_bytes();
            let Some(writer) = file.writer.as_mut() else { return };
            let submitted = submitted + writer.chunk_bytes();
            let unit_bytes = self.shape.bytes(self.shape.write_blocks);
            let to_write = writer.first_waiting();
            let cuts = writer.piece_bytes() >= unit_bytes || (writer.piece_bytes() > 0 && submitted < writer.flush_to);
            if to_write.is_none() && !cuts || writer.broken.is_some() || writer.in_flight() >= FILE_WRITES_MAX {
                break;
            }
            let Some(zone) = writer.zone else {
                if !std::mem::replace(&mut writer.is_waiting_for_zone, true) {
                    self.waiting.push_back(Holder::File(id));
                    self.zones.is_changed = true;
                }
                break;
            };
            if !has_metadata_space {
                self.fail_file(id, &FileError::NoSpace);
                break;
            }
            let free = self.zones.free_blocks(zone);
            let index = to_write.unwrap_or_else(|| {
                let blocks = free.min(self.shape.write_blocks);
                let blocks = blocks.min(writer.piece_bytes().div_ceil(u64::from(self.shape.block_bytes)) as u32);
                let padded_bytes = self.shape.bytes(blocks);
                writer.cut(padded_bytes.min(writer.piece_bytes()), padded_bytes);
                self.snapshot_bytes += EXTENT_COST_BYTES;
                writer.chunks.len() - 1
            });
            let blocks = writer.chunks[index].bytes.div_ceil(u64::from(self.shape.block_bytes)) as u32;
            if blocks > free {
                writer.split_chunk(index, free, self.shape.block_bytes);
                self.snapshot_bytes += EXTENT_COST_BYTES;
            }
            self.send_chunk(id, index);
        }
        self.end_syncs(id);
    }

    /// Moves appends into the buffer as far as it has space.
    fn take_appends(&mut self, id: FileId) {
        let buffer_bytes = u64::from(self.config.file_buffer_bytes);
        while let Some(file) = self.files.get_mut(&id)
            && let Some(writer) = file.writer.as_mut()
            && let Some(append) = writer.appends.front_mut()
        {
            let extents_bytes = file.meta.extents.len_bytes();
            let left_bytes = append.left_bytes;
            let mut data = std::mem::take(&mut append.data);
            let request = append.request;
            let count = left_bytes.min(buffer_bytes - writer.buffered_bytes());
            if count < left_bytes {
                let piece = if data.is_empty() { Bytes::new() } else { data.split_to(count as usize) };
                writer.push_piece(piece, count);
                if let Some(append) = writer.appends.front_mut() {
                    append.data = data;
                    append.left_bytes -= count;
                }
                return;
            }
            writer.push_piece(data, count);
            writer.appends.pop_front();
            writer.acknowledged_bytes = extents_bytes + writer.buffered_bytes();
            self.end(request, Ok(Outcome::None));
        }
    }

    /// Writes a chunk to the zone that the file holds, which has space for it.
    fn send_chunk(&mut self, id: FileId, index: usize) {
        let file = self.files.get_mut(&id).expect("the caller has checked the file");
        let writer = file.writer.as_mut().expect("the file has a chunk");
        let zone = writer.zone.expect("the file holds a zone");
        self.uses += 1;
        writer.used_at = self.uses;
        let chunk = &mut writer.chunks[index];
        let blocks = chunk.bytes.div_ceil(u64::from(self.shape.block_bytes)) as u32;
        let padding = (self.shape.bytes(blocks) - chunk.bytes) as u32;
        let run = Run { zone, start: self.zones[zone].written, blocks, padding };
        chunk.stage = ChunkStage::InFlight(run);
        let payload = self.shape.payload(chunk.data.clone());
        let in_flight = InFlight::Write { file: id, chunk: chunk.number, run };
        self.zones.begin_write(&run);
        if self.zones.free_blocks(zone) == 0 {
            writer.zone = None;
        }
        let start = self.shape.lba(zone, run.start);
        self.commands.send(in_flight, Operation::Write { start, blocks: Blocks(u64::from(blocks)), payload });
    }

    /// Ends the syncs whose data are on the media, once their records are.
    fn end_syncs(&mut self, id: FileId) {
        while let Some(file) = self.files.get_mut(&id)
            && let Some(writer) = file.writer.as_mut()
            && let Some(sync) = writer.syncs.front().copied()
            && sync.target <= file.meta.extents.len_bytes()
        {
            writer.syncs.pop_front();
            if sync.closes {
                self.close_writer(id);
            }
            let lsn = self.record_file(id);
            if self.has(SeededBug::EarlySync) {
                self.end(sync.request, Ok(Outcome::None));
                continue;
            }
            self.when_durable(lsn, Waiter::Request(sync.request));
        }
    }

    /// Ends the writer: all data are on the media, and no more will come.
    fn close_writer(&mut self, id: FileId) {
        let file = self.files.get_mut(&id).expect("the caller has checked the file");
        file.meta.is_closed = true;
        let Some(mut writer) = file.writer.take() else { return };
        assert!(writer.buffered_bytes() == 0 && writer.appends.is_empty(), "a close comes behind all appends");
        let lsn = self.record_file(id);
        if let Some(zone) = writer.zone.take() {
            self.zones.clear_holder(zone);
        }
        if writer.is_waiting_for_zone {
            self.stop_waiting(id);
        }
        for sync in writer.syncs {
            self.when_durable(lsn, Waiter::Request(sync.request));
        }
    }

    /// Records all data of the file that are on the media. Returns the LSN of the last record.
    pub(super) fn record_file(&mut self, id: FileId) -> u64 {
        let file = self.files.get_mut(&id).expect("the caller has checked the file");
        let meta = &file.meta;
        if !file.is_recorded {
            file.is_recorded = true;
            file.lsn = self.log.push(&Record::Created { file: id, lifetime: meta.lifetime, name: &meta.name });
        }
        let len_bytes = meta.extents.len_bytes();
        if file.recorded_bytes < len_bytes {
            let runs = meta.extents.runs_from(file.recorded_bytes, self.shape.block_bytes);
            file.lsn = self.log.push_extents(id, runs);
            file.recorded_bytes = len_bytes;
        }
        if meta.is_closed && !file.is_recorded_closed {
            file.is_recorded_closed = true;
            file.lsn = self.log.push(&Record::Closed { file: id });
        }
        file.lsn
    }

    /// Fails all requests that wait for a file's data. The file stays open, with the data in its
    /// buffer.
    pub(super) fn fail_file(&mut self, id: FileId, error: &FileError) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let extents_bytes = file.meta.extents.len_bytes();
        let Some(writer) = file.writer.as_mut() else { return };
        let appends = std::mem::take(&mut writer.appends);
        let syncs = std::mem::take(&mut writer.syncs);
        writer.flush_to = 0;
        writer.is_closing = false;
        writer.acknowledged_bytes = extents_bytes + writer.buffered_bytes();
        if writer.is_waiting_for_zone {
            self.stop_waiting(id);
        }
        for append in appends {
            self.end(append.request, Err(error.clone()));
        }
        for sync in syncs {
            self.end(sync.request, Err(error.clone()));
        }
    }
}
