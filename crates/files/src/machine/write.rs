//! Append, sync, close: from a file's buffer to a zone.

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Status, ZoneIndex};

use crate::bug::SeededBug;
use crate::extents::Run;
use crate::{FileData, FileError, FileId, FileStore, Outcome, RequestId};

use super::commands::InFlight;
use super::files::{ChunkId, ChunkWrite, File, Writer};
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
        if let Err(error) = self
            .files
            .get_mut(file)
            .ok_or(FileError::NoSuchFile)
            .and_then(|file| file.add_append(request, data, left_bytes))
        {
            return self.end(request, Err(error));
        }
        self.pump_file(file);
        self.make_progress();
    }

    /// Makes a file durable: the request ends when everything appended before is on the media, and
    /// its metadata too. Its last block is padded, and the next append begins a new block.
    pub fn sync(&mut self, request: RequestId, file: FileId) {
        if !self.admit_change(request) {
            return;
        }
        if let Some(lsn) = self.files.get(file).filter(|file| file.writer().is_none()).map(File::lsn) {
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
        self.files.get_mut(id).ok_or(FileError::NoSuchFile)?.add_sync(request, closes)?;
        self.pump_file(id);
        Ok(())
    }

    /// Called when a write of data has ended.
    pub(super) fn on_write(&mut self, id: FileId, chunk: ChunkId, run: Run, status: Status) {
        let status = if self.has(SeededBug::IgnoredWriteError) { Status::Success } else { status };
        self.zones.end_write(&run, status.is_success());
        if !status.is_success() {
            self.withdraw_zone(run.zone);
        }
        if !self.files.contains(id) {
            if status.is_success() {
                self.zones.release(&run);
            }
            return;
        }
        if status.is_success() {
            self.files.end_write(id, chunk, run);
        } else if let Some(error) = self.files.fail_write(id, chunk, status) {
            self.fail_file(id, &error);
        }
        self.pump_file(id);
    }

    /// Advances a file: accepts appends, cuts and writes chunks, ends syncs.
    pub(super) fn pump_file(&mut self, id: FileId) {
        let unit_bytes = self.shape.bytes(self.shape.write_blocks);
        loop {
            self.take_appends(id);
            let Some(file) = self.files.get_mut(id) else { return };
            let has_data = file.has_data_to_write(unit_bytes);
            let Some(writer) = file.writer_mut() else { return };
            if !has_data {
                break;
            }
            let Some(zone) = writer.zone() else {
                if !writer.wait_for_zone() {
                    self.placement.wait(Holder::File(id));
                    self.zones.request_assignment();
                }
                break;
            };
            if !self.files.has_space_for_extent() {
                self.fail_file(id, &FileError::NoSpace);
                break;
            }
            self.send_chunk(id, zone);
        }
        self.end_syncs(id);
    }

    /// Moves appends into the buffer as far as it has space.
    fn take_appends(&mut self, id: FileId) {
        let buffer_bytes_max = u64::from(self.config.file_buffer_bytes);
        while let Some(request) = self.files.get_mut(id).and_then(|file| file.take_append(buffer_bytes_max)) {
            self.end(request, Ok(Outcome::None));
        }
    }

    /// Writes a chunk to the zone that the file holds.
    fn send_chunk(&mut self, id: FileId, zone: ZoneIndex) {
        self.use_zone(id);
        let start = self.zones[zone].written;
        let space = (start, self.zones.free_blocks(zone));
        let ChunkWrite { chunk, run, data } = self.files.begin_write(&self.shape, id, zone, space);
        self.zones.begin_write(&run);
        let operation = Operation::Write {
            start: self.shape.lba(zone, run.start),
            blocks: Blocks(u64::from(run.blocks)),
            payload: self.shape.payload(data),
        };
        self.commands.send(InFlight::Write { file: id, chunk, run }, operation);
    }

    /// Notes that a file uses its zone.
    pub(super) fn use_zone(&mut self, id: FileId) {
        let used_at = self.placement.next_use();
        self.files.writer_mut(id).expect("a file with a zone is open").set_used_at(used_at);
    }

    /// Ends the syncs whose data are on the media, once their records are.
    fn end_syncs(&mut self, id: FileId) {
        while let Some(sync) = self.files.get_mut(id).and_then(File::next_sync) {
            if sync.closes {
                self.close_writer(id);
            }
            let lsn = self.files.record(&mut self.log, id);
            if self.has(SeededBug::EarlySync) {
                self.end(sync.request, Ok(Outcome::None));
                continue;
            }
            self.when_durable(lsn, Waiter::Request(sync.request));
        }
    }

    /// Ends the writer: all data are on the media, and no more will come.
    fn close_writer(&mut self, id: FileId) {
        let file = self.files.get_mut(id).expect("the caller has checked the file");
        let Some(mut writer) = file.close() else { return };
        let lsn = self.files.record(&mut self.log, id);
        if let Some(zone) = writer.take_zone() {
            self.zones.clear_holder(zone);
        }
        if writer.is_waiting_for_zone() {
            self.stop_waiting(id);
        }
        for request in writer.into_syncs() {
            self.when_durable(lsn, Waiter::Request(request));
        }
    }

    /// Fails all requests that wait for a file's data. The file stays open, with the data in its
    /// buffer.
    pub(super) fn fail_file(&mut self, id: FileId, error: &FileError) {
        let Some(file) = self.files.get_mut(id) else { return };
        let requests = file.cancel_requests();
        if file.writer().is_some_and(Writer::is_waiting_for_zone) {
            self.stop_waiting(id);
        }
        for request in requests {
            self.end(request, Err(error.clone()));
        }
    }
}
