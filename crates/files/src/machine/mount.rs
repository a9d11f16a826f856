//! Mounting: find the newest metadata zone with a complete snapshot, read its records, and check
//! them against the zones as the drive reports them.

use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status, ZoneIndex, ZoneState};

use crate::bug::SeededBug;
use crate::catalog::{Catalog, LogReader};
use crate::format::superblock::Superblock;
use crate::{FileError, FileStore};

use super::commands::InFlight;
use super::log::Progress;
use super::start::{Report, Start, Step};
use super::zones::State;

/// The current step of a mount.
#[derive(Debug)]
pub(super) enum MountStep {
    /// Read the first block of each metadata zone.
    ReadSuperblocks { number: usize, found: Vec<Found>, refusal: FileError },
    /// Read the records of the newest, or of the previous one if its snapshot is incomplete.
    ReadRecords { others: Vec<Found>, current: Found, reader: Box<LogReader>, at: u32, end: u32 },
}

/// A metadata zone with a superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    sequence: u64,
    /// The index of the metadata zone.
    number: usize,
    superblock: Superblock,
}

impl FileStore {
    pub(super) fn begin_mount(&mut self, start: &mut Start) -> Result<(), FileError> {
        self.read_superblock(start, 0, Vec::new(), FileError::NotAFileStore)
    }

    fn read_superblock(
        &mut self,
        start: &mut Start,
        from: usize,
        found: Vec<Found>,
        refusal: FileError,
    ) -> Result<(), FileError> {
        let is_written =
            |number: &usize| !matches!(start.reports[*number].state, ZoneState::Empty | ZoneState::Offline);
        let Some(number) = (from..self.log.zones().len()).find(is_written) else {
            return self.choose_log(start, found, refusal);
        };
        self.read_metadata(number, 0, 1);
        start.step = Step::Mount(MountStep::ReadSuperblocks { number, found, refusal });
        Ok(())
    }

    fn read_metadata(&mut self, number: usize, block: u32, blocks: u32) {
        let first = self.shape.lba(self.log.zones()[number], block);
        self.commands.send(InFlight::Start, Operation::Read { start: first, blocks: Blocks(blocks.into()) });
    }

    /// Called when a read of the mount has ended.
    pub(super) fn on_mount_step(
        &mut self,
        start: &mut Start,
        step: MountStep,
        status: Status,
        outcome: Outcome,
    ) -> Result<(), FileError> {
        if !status.is_success() {
            return Err(FileError::Media { status, what: "reading the metadata" });
        }
        let data = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) => buffer.data,
            // A drive that keeps no contents has no metadata.
            _ => bytes::Bytes::new(),
        };
        match step {
            MountStep::ReadSuperblocks { number, mut found, mut refusal } => {
                match Superblock::decode(&data) {
                    Ok((sequence, superblock)) => found.push(Found { sequence, number, superblock }),
                    Err(other @ FileError::OtherVersion { .. }) => refusal = other,
                    // It became read only after a reset, before it was written again.
                    Err(_) if is_never_written(start.reports[number], &data) => {}
                    Err(_) if refusal == FileError::NotAFileStore => {
                        let words = format!("metadata zone {} has no superblock", self.log.zones()[number]);
                        refusal = FileError::Corrupt(words);
                    }
                    Err(_) => {}
                }
                self.read_superblock(start, number + 1, found, refusal)
            }
            MountStep::ReadRecords { others, current, mut reader, at, end } => {
                for (number, block) in (at..).zip(data.chunks(self.shape.block_bytes as usize)) {
                    if self.has(SeededBug::LostLogTail) && number + 1 == end && reader.catalog.is_complete {
                        reader.whole += 1;
                        continue;
                    }
                    reader.feed(block)?;
                }
                let next = at + (data.len() / self.shape.block_bytes as usize).max(1) as u32;
                self.read_records(start, others, current, reader, next, end)
            }
        }
    }

    /// The superblocks are read: begins with the newest.
    fn choose_log(&mut self, start: &mut Start, mut found: Vec<Found>, refusal: FileError) -> Result<(), FileError> {
        if found.is_empty() {
            // Without any superblock the drive is not damaged: it was never formatted.
            let is_foreign = matches!(refusal, FileError::Corrupt(_));
            return Err(if is_foreign { FileError::NotAFileStore } else { refusal });
        }
        if refusal != FileError::NotAFileStore {
            return Err(refusal);
        }
        found.sort_by_key(|found| found.sequence);
        self.read_log(start, found)
    }

    /// Reads the last of these; the older ones are used if its snapshot is incomplete.
    fn read_log(&mut self, start: &mut Start, mut others: Vec<Found>) -> Result<(), FileError> {
        // An interrupted format leaves no store.
        let current = others.pop().ok_or(FileError::NotAFileStore)?;
        if current.superblock.facts != self.shape.facts {
            let words = "the file store was formatted on a drive of another geometry: mount it on that drive";
            return Err(FileError::Config(words.to_owned()));
        }
        let report = start.reports[current.number];
        let end = report.written.unwrap_or(self.shape.capacity_blocks);
        let reader = Box::new(LogReader::new(self.shape.data_zones(), current.sequence));
        self.read_records(start, others, current, reader, 1, end)
    }

    fn read_records(
        &mut self,
        start: &mut Start,
        others: Vec<Found>,
        current: Found,
        reader: Box<LogReader>,
        at: u32,
        end: u32,
    ) -> Result<(), FileError> {
        if at < end {
            self.read_metadata(current.number, at, self.shape.read_blocks.min(end - at));
            start.step = Step::Mount(MountStep::ReadRecords { others, current, reader, at, end });
            return Ok(());
        }
        let whole = reader.whole;
        if reader.catalog.is_complete {
            return self.adopt(start, &current, reader.catalog, whole, end);
        }
        if start.reports[current.number].written.is_some() && whole < end {
            let words = format!("block {whole} of the newest metadata is damaged");
            return Err(FileError::Corrupt(words));
        }
        self.read_log(start, others)
    }

    /// Adopts the records, which are consistent, if they match the zones.
    fn adopt(
        &mut self,
        start: &mut Start,
        current: &Found,
        catalog: Catalog,
        whole: u32,
        end: u32,
    ) -> Result<(), FileError> {
        catalog.check_overlaps().map_err(FileError::Corrupt)?;
        self.adopt_zones(&start.reports, &catalog);
        for (id, meta) in catalog.files {
            for extent in meta.extents.iter() {
                self.check_extent(&start.reports, &meta.name, extent.run.zone, extent.run.end())?;
                self.zones.claim(&extent.run);
            }
            self.files.adopt(id, meta);
        }
        self.files.adopt_names(catalog.names, catalog.next_file)?;
        self.uuid = current.superblock.uuid;
        self.log.adopt(current.number, current.sequence, end);
        for zone in self.shape.data_zones().indices() {
            self.zones.touch(zone);
        }
        start.step = Step::WriteSnapshot;
        self.await_readiness();
        let report = start.reports[current.number];
        let progress = match report.state {
            // The records end at the write pointer that the drive reports: they continue there.
            _ if whole == end => self.log.resume(&mut self.commands),
            state if state.is_active() => {
                self.log.leave_zone(&self.shape, &mut self.commands);
                Progress::None
            }
            _ => self.log.begin_snapshot(&self.shape, &mut self.commands),
        };
        self.on_log_progress(progress);
        Ok(())
    }

    /// Adopts the data zones as the drive reports them.
    fn adopt_zones(&mut self, reports: &[Report], catalog: &Catalog) {
        let log_zones = self.log.zones().len();
        let zones = self.shape.data_zones().indices();
        for ((zone, report), facts) in zones.zip(&reports[log_zones..]).zip(&catalog.zones) {
            if report.state == ZoneState::Empty {
                continue;
            }
            self.zones.adopt(zone, facts.lifetime, (report.state, report.written), facts.finished);
            let entry = &self.zones[zone];
            if entry.state == State::Active && entry.written == 0 {
                // Opened by another program and not written: a reset frees its active resource.
                self.reset(zone);
            }
        }
    }

    /// Checks that the drive has the recorded data of a file in a zone.
    fn check_extent(&mut self, reports: &[Report], name: &str, zone: ZoneIndex, end: u32) -> Result<(), FileError> {
        let report = reports[(zone.0 - self.shape.first_log) as usize];
        let readable = match report.state {
            ZoneState::Empty => 0,
            state if state.is_active() => report.written.unwrap_or(0),
            _ => self.shape.capacity_blocks,
        };
        if end > readable {
            return Err(FileError::Corrupt(format!(
                "file {name:?} has data up to block {end} of zone {zone}, but the zone is written only up to block {readable}"
            )));
        }
        // Also if a record of a finish has less, or the drive does not report a write pointer.
        self.zones.note_written(zone, end);
        Ok(())
    }
}

/// Whether a metadata zone with this first block was never written. The drive does not report this
/// for a read-only zone.
fn is_never_written(report: Report, first_block: &[u8]) -> bool {
    report.state == ZoneState::ReadOnly && first_block.iter().all(|byte| *byte == 0)
}
