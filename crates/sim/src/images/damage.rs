//! Damage of image files while the drive is stopped, on a copy of them, so that the scenario
//! continues unaffected.
//!
//! Undamaged blocks must be unchanged. A damaged block has its data, or reading it fails; wrong
//! data, and blocks that read as never written, are excused only where
//! `docs/internals/image-format.md` says so, under "What each damage gives".

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_image::testing::{Contents, Crash, Observed, PAGE};
use zonda_image::{Finding, ImageFile, check, inspect};
use zonda_zoned::{BlockBuffer, Blocks, Lba, LbaRange, Operation, Payload, Prng, Status, ZoneIndex, fingerprint};

use super::disk::{Disk, Faults};
use super::drive::Drive;
use super::lives::{Stop, damaged_blocks, describe_stop, refused};
use super::run::ImagesRun;
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Bytes of one copy of the superblock.
const SUPERBLOCK_COPY_BYTES: u64 = 32 << 10;
/// Bytes of a tag of a block without metadata.
const TAG_BYTES: usize = 8;
/// Pages of a journal before its first record.
const MARK_PAGES: usize = 2;
/// Number of random damages after one stop, each on its own copy.
const TRIES: u64 = 3;

/// A kind of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Damage {
    /// Bits of a byte flip.
    Rot {
        file: ImageFile,
        at: usize,
        mask: u8,
    },
    ZeroedPage {
        file: ImageFile,
        page: usize,
    },
    Cut {
        file: ImageFile,
        length: u64,
    },
    /// These files are replaced by a copy from the previous stop.
    OldCopy(&'static [ImageFile]),
}

/// The files at an earlier stop, and the state after the next opening.
pub(super) struct Old {
    pub(super) disk: Disk,
    pub(super) observed: Option<Observed>,
}

/// A block that was overwritten before a kill.
pub(super) struct Overwritten {
    lba: Lba,
    /// Applied twice, it changes nothing.
    damage: Damage,
    how: How,
}

/// What happened to an overwritten block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It was overwritten twice, the second time while a flush began.
    BesideFlush,
    /// It was overwritten twice, damaged while the drive was running, and read.
    DamagedAndRead,
    /// It lost its tag, or got an older one of zeros, and was then overwritten once.
    TagLost,
}

/// The requirement on a drive that is opened with the damage.
enum Requirement {
    /// All blocks are as expected.
    All,
    /// All blocks are as expected, except these, which were damaged in this file.
    AllBut(ImageFile, BTreeSet<Lba>),
    /// The state equals that of the earlier stop.
    Old,
    /// With tags of an earlier stop: blocks written in place in conventional zones are as expected,
    /// or unreadable.
    InPlace,
    /// None: records are lost that cannot be distinguished from records that were never written.
    Nothing,
}

impl Damage {
    fn apply(&self, disk: &mut Disk, old: Option<&Old>) {
        match self {
            Damage::Rot { file, at, mask } => disk.bytes(*file)[*at] ^= mask,
            Damage::ZeroedPage { file, page } => {
                let bytes = disk.bytes(*file);
                let end = bytes.len().min((page + 1) * PAGE);
                bytes[page * PAGE..end].fill(0);
            }
            Damage::Cut { file, length } => disk.bytes(*file).truncate(*length as usize),
            Damage::OldCopy(files) => disk.restore(files, &old.expect("there is an earlier stop").disk),
        }
    }
}

impl ImagesRun<'_> {
    /// Damages copies of the files, and checks the result of each.
    pub(super) fn damage_copies(
        &mut self,
        disk: &Disk,
        stop: Stop,
        overwritten: Option<Overwritten>,
    ) -> Result<(), CheckError> {
        let events = &self.simulation.events;
        let mut prng = self.prng.fork("damage");
        let mut all: Vec<Damage> = overwritten.map(|block| block.damage).into_iter().collect();
        if prng.chance(events.rot_percent, 100) {
            all.extend((0..TRIES).map(|_| rot(disk, &mut prng)));
            all.extend(self.rot_in_place(&mut prng));
            all.extend(self.rot_at_end(&mut prng));
        }
        if prng.chance(events.truncation_percent, 100) {
            let file = *prng.pick(&ImageFile::ALL).expect("the list of files is not empty");
            let length = disk.clone().bytes(file).len() as u64;
            all.push(Damage::Cut { file, length: prng.below(length) });
        }
        if self.old.is_some() && prng.chance(events.old_copies_percent, 100) {
            let files = [&[ImageFile::State][..], &[ImageFile::Journal], &[ImageFile::Tags], &ImageFile::ALL];
            all.extend(files.map(Damage::OldCopy));
        }
        // The state after failed file operations is checked without further damage.
        let all = if stop.had_faults { Vec::new() } else { all };
        for damage in all {
            self.faults += 1;
            self.try_damage(disk, stop, &damage).map_err(|error| {
                let message = format!("after {}, {damage:x?}: {}", describe_stop(stop), error.message);
                CheckError { message, ..error }
            })?;
        }
        if events.old_copies_percent > 0 {
            self.old = Some(Old { disk: disk.clone(), observed: None });
        }
        Ok(())
    }

    /// A bit flip in a block of a conventional zone that was overwritten since the opening, and at
    /// most once since it was flushed: an intent records its possible contents.
    fn rot_in_place(&self, prng: &mut Prng) -> Option<Damage> {
        let is_certain = |lba: &Lba| self.ledger.changes(*lba) > 0 && self.ledger.unflushed_changes(*lba) <= 1;
        let overwritten: Vec<Lba> = self.conventional_blocks().filter(is_certain).collect();
        let lba = *prng.pick(&overwritten)?;
        Some(self.rot_of_block(lba, prng))
    }

    fn conventional_blocks(&self) -> impl Iterator<Item = Lba> + '_ {
        let geometry = &self.simulation.geometry;
        let capacity = geometry.zone_capacity_blocks.0;
        let zones = (0..geometry.conventional_zone_count).map(ZoneIndex);
        zones.flat_map(move |zone| (0..capacity).map(move |block| geometry.zone_start(zone) + Blocks(block)))
    }

    fn rot_of_block(&self, lba: Lba, prng: &mut Prng) -> Damage {
        let bytes = u64::from(self.simulation.geometry.block_size_bytes);
        let at = self.place_of(lba) * bytes as usize + prng.below(bytes) as usize;
        Damage::Rot { file: ImageFile::Data, at, mask: 1 << prng.below(8) }
    }

    /// The place of a block in data and tags, counted in blocks.
    fn place_of(&self, lba: Lba) -> usize {
        let geometry = &self.simulation.geometry;
        let zone = geometry.zone_of(lba).expect("the block is in the namespace");
        let block = lba.0 - geometry.zone_start(zone).0;
        (u64::from(zone.0) * geometry.zone_capacity_blocks.0 + block) as usize
    }

    /// Sometimes overwrites a block in place twice before a kill, and either damages it while the
    /// drive is running and idle, and checks that a read fails, or flushes during the second
    /// overwrite; or overwrites a block once that has lost its tag. Returns the block.
    pub(super) fn overwrite_before_kill(&mut self) -> Result<Option<Overwritten>, CheckError> {
        let mut prng = self.prng.fork("overwrites");
        let blocks: Vec<Lba> = self.conventional_blocks().collect();
        let is_chosen = prng.chance(self.simulation.events.rot_percent, 100);
        let Some(&lba) = prng.pick(&blocks).filter(|_| is_chosen && !self.logs_contents()) else { return Ok(None) };
        self.overwrite(lba, &mut prng);
        self.drain()?;
        let damage = self.rot_of_block(lba, &mut prng);
        if prng.chance(1, 3) {
            let tag = self.place_of(lba) * TAG_BYTES;
            let mut older = vec![0; TAG_BYTES];
            if prng.chance(1, 2) {
                let ranges = [LbaRange { start: lba, blocks: Blocks(1) }].into();
                self.submit_own(Operation::Deallocate { ranges });
                self.drain()?;
                older.copy_from_slice(&self.drive().disk.bytes(ImageFile::Tags)[tag..tag + TAG_BYTES]);
                self.overwrite(lba, &mut prng);
                // A flush repeats the intents of overwrites in progress.
                self.drain()?;
            }
            self.flush()?;
            self.drain()?;
            self.faults += 1;
            self.drive().disk.bytes(ImageFile::Tags)[tag..tag + TAG_BYTES].copy_from_slice(&older);
            if prng.chance(1, 2) {
                self.read_damaged(lba)?;
            }
            self.overwrite(lba, &mut prng);
            self.drain()?;
            return Ok(Some(Overwritten { lba, damage, how: How::TagLost }));
        }
        self.overwrite(lba, &mut prng);
        if prng.chance(1, 2) {
            for _ in 0..prng.below(4) {
                self.step();
            }
            self.flush()?;
            return Ok(Some(Overwritten { lba, damage, how: How::BesideFlush }));
        }
        self.drain()?;
        self.faults += 1;
        damage.apply(&mut self.drive().disk, None);
        self.read_damaged(lba)?;
        Ok(Some(Overwritten { lba, damage, how: How::DamagedAndRead }))
    }

    /// Checks that a read of a damaged block fails.
    fn read_damaged(&mut self, lba: Lba) -> Result<(), CheckError> {
        let status = self.drive().run(read_of(lba)).status;
        if status != Status::UnrecoveredReadError {
            let message = format!("a read of damaged block {lba} ends with \"{status}\"");
            return Err(CheckError::new(FailureKind::UndetectedDamage, None, message));
        }
        self.trace.log(self.now, || format!("a read of damaged block {lba} fails"));
        Ok(())
    }

    fn overwrite(&mut self, lba: Lba, prng: &mut Prng) {
        let data: Vec<u8> = (0..self.simulation.geometry.block_size_bytes).map(|_| prng.below(256) as u8).collect();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: Bytes::new() }));
        self.submit_own(Operation::Write { start: lba, blocks: Blocks(1), payload });
    }

    /// Checks that damage that a read had found is not accepted after a kill; then repairs it. A
    /// block that was overwritten after it had lost its tag has no earlier contents, so zeros in its
    /// place are damage.
    pub(super) fn check_overwritten(&mut self, block: &Overwritten, disk: &mut Disk) -> Result<(), CheckError> {
        let mut copy = disk.clone();
        match block.how {
            How::BesideFlush => return Ok(()),
            How::DamagedAndRead => self.read_damage = Some(block.lba),
            How::TagLost => {
                self.lost_tag = Some(block.lba);
                let bytes = self.simulation.geometry.block_size_bytes as usize;
                let start = self.place_of(block.lba) * bytes;
                copy.bytes(ImageFile::Data)[start..start + bytes].fill(0);
            }
        }
        let mut drive = Drive::open(copy, self.bug)
            .map_err(|refusal| refused(format!("after a kill with a damaged block: {}", refusal.1)))?;
        let status = drive.run(read_of(block.lba)).status;
        if status != Status::UnrecoveredReadError {
            let message = format!("{:?}, block {}: after a kill a read ends with \"{status}\"", block.how, block.lba);
            return Err(CheckError::new(FailureKind::UndetectedDamage, None, message));
        }
        if block.how == How::DamagedAndRead {
            block.damage.apply(disk, None);
        }
        Ok(())
    }

    /// Whether a loss of power has undone the overwrite of a block that had lost its tag before: then
    /// its data are earlier ones, and without a tag. If those of the overwrite survived, so did its
    /// intent, and the block must be readable.
    pub(super) fn is_overwrite_of_lost_tag_undone(&mut self, lba: Lba, crash: Crash) -> bool {
        if self.lost_tag != Some(lba) || crash != Crash::PowerLoss {
            return false;
        }
        let bytes = self.simulation.geometry.block_size_bytes as usize;
        let start = self.place_of(lba) * bytes;
        let data = Bytes::copy_from_slice(&self.drive().disk.bytes(ImageFile::Data)[start..start + bytes]);
        let is_new = fingerprint(&data, &[]) == self.ledger.oracle.block(lba);
        !is_new && self.ledger.has_held(lba, &Ok((data, Bytes::new())))
    }

    /// A bit flip in the last written block of a sequential zone.
    fn rot_at_end(&self, prng: &mut Prng) -> Option<Damage> {
        let geometry = &self.simulation.geometry;
        let zones = (geometry.conventional_zone_count..geometry.zone_count).map(ZoneIndex);
        let end_of = |zone: ZoneIndex| {
            let pointer = self.ledger.oracle.image(zone).write_pointer_blocks.0;
            Some(geometry.zone_start(zone) + Blocks(pointer.checked_sub(1)?))
        };
        let ends: Vec<Lba> = zones.filter_map(end_of).collect();
        let lba = *prng.pick(&ends)?;
        Some(self.rot_of_block(lba, prng))
    }

    fn try_damage(&mut self, disk: &Disk, stop: Stop, damage: &Damage) -> Result<(), CheckError> {
        let wrong = |message: String| Err(CheckError::new(FailureKind::UndetectedDamage, None, message));
        let mut copy = disk.clone();
        copy.faults = Faults::default();
        damage.apply(&mut copy, self.old.as_ref());
        let (checked, inspected) = (check(&mut copy, &mut |_| {}), inspect(&mut copy));
        let mut drive = match Drive::open(copy, self.bug) {
            Ok(drive) => drive,
            Err(refusal) => {
                let error = refusal.1;
                let is_same = checked.as_ref().err() == Some(&error) && inspected.as_ref().err() == Some(&error);
                if !is_same && self.bug.is_none() {
                    return wrong(format!("opening is refused with \"{error}\", but a check reports {checked:?}"));
                }
                self.hash.mix(2);
                return if may_be_refused(damage, disk, stop) {
                    Ok(())
                } else {
                    wrong(format!("opening is refused: {error}"))
                };
            }
        };
        let is_shown = inspected.as_ref().is_ok_and(|inspection| *drive.image.zones() == inspection.zones);
        if !is_shown && self.bug.is_none() {
            return wrong("the zones differ between opening and inspection".to_owned());
        }
        // A power loss may have undone a checkpoint that was copied before it was synced, and
        // another one has its number now.
        let is_certain = *damage != Damage::OldCopy(&[ImageFile::State])
            || self.old.as_ref().is_some_and(|old| old.disk.is_synced(ImageFile::State));
        if must_be_refused(damage) && is_certain {
            return wrong("the image is opened, but must be refused".to_owned());
        }
        let observed = drive.observe();
        self.hash.mix(3);
        self.check_damaged(damage, stop, &observed)?;
        let damaged_blocks = checked.as_ref().map_or(Vec::new(), damaged_blocks);
        self.check_findings(&observed, &damaged_blocks)?;
        let again = Drive::open(drive.kill(), self.bug).map(|mut again| again.observe());
        match again {
            Ok(again) if self.is_same(&observed, &again, damage, stop) => Ok(()),
            Ok(_) => wrong("zones or blocks differ between the first and the second opening".to_owned()),
            Err(refusal) => wrong(format!("a second opening is refused: {}", refusal.1)),
        }
    }

    /// Whether a second opening, after a kill with nothing in progress, found the same state as the
    /// first one. In a ZRWA a damaged block may be accepted as it is, and its tag may move the
    /// zone's write pointer.
    fn is_same(&self, first: &Observed, second: &Observed, damage: &Damage, stop: Stop) -> bool {
        let geometry = &self.simulation.geometry;
        let hit = match self.requirement_of(damage, stop) {
            Requirement::AllBut(_, hit) if geometry.zrwa.is_some() => hit,
            Requirement::InPlace => return self.in_place(first).eq(self.in_place(second)),
            _ => return first == second,
        };
        let may_have_zrwa = |zone: ZoneIndex| {
            zone.0 >= geometry.conventional_zone_count && hit.iter().any(|lba| geometry.zone_of(*lba) == Some(zone))
        };
        let zones = (0..).map(ZoneIndex).zip(first.zones.iter().zip(&second.zones));
        let blocks = first.blocks.iter().zip(&second.blocks);
        zones.into_iter().all(|(zone, (first, second))| first == second || may_have_zrwa(zone))
            && blocks.into_iter().all(|(first, second)| {
                first == second || geometry.zone_of(first.0).is_some_and(may_have_zrwa) && hit.contains(&first.0)
            })
    }

    fn check_damaged(&self, damage: &Damage, stop: Stop, observed: &Observed) -> Result<(), CheckError> {
        let none = BTreeSet::new();
        let (file, hit) = match self.requirement_of(damage, stop) {
            Requirement::Nothing => return Ok(()),
            Requirement::Old => {
                let then = self.old.as_ref().and_then(|old| old.observed.as_ref());
                if then.is_some_and(|then| then != observed) {
                    let message =
                        "the state after restoring all files differs from that of the earlier stop".to_owned();
                    return Err(CheckError::new(FailureKind::UndetectedDamage, None, message));
                }
                return Ok(());
            }
            Requirement::InPlace => return self.check_in_place(stop, observed),
            Requirement::All => (ImageFile::Superblock, none),
            Requirement::AllBut(file, hit) => (file, hit),
        };
        let geometry = &self.simulation.geometry;
        let mut cut = BTreeSet::new();
        for (zone, image) in (0..).map(ZoneIndex).zip(&observed.zones) {
            let Err(violation) = self.ledger.judge_zone(zone, image, stop.crash, true) else { continue };
            let pointer = geometry.zone_start(zone) + image.write_pointer_blocks;
            let may_end_at_hit = stop.crash != Crash::Close && !stop.is_flushed && hit.contains(&pointer);
            // In a ZRWA the write pointer follows from the tags, even from damaged ones.
            let is_hit = hit.iter().any(|lba| geometry.zone_of(*lba) == Some(zone));
            let is_moved = stop.crash != Crash::Close && file == ImageFile::Tags && geometry.zrwa.is_some() && is_hit;
            if !may_end_at_hit && !is_moved {
                return Err(CheckError::new(FailureKind::UndetectedDamage, zone, violation.message));
            }
            cut.insert(zone);
        }
        for (lba, contents) in &observed.blocks {
            let zone = geometry.zone_of(*lba).expect("it was read");
            let image = &observed.zones[zone.as_usize()];
            let Err(violation) = self.ledger.judge_block(*lba, contents, image, stop.crash) else { continue };
            let is_zero =
                contents.as_ref().is_ok_and(|(data, metadata)| data.iter().chain(metadata).all(|&byte| byte == 0));
            let offset = Blocks(lba.0 - geometry.zone_start(zone).0);
            let is_behind = cut.contains(&zone) && is_zero && offset >= image.write_pointer_blocks;
            let is_reported = *contents == Err(Status::UnrecoveredReadError);
            let is_excused = hit.contains(lba) && (is_reported || self.may_be_accepted(*lba, contents, stop));
            if !is_behind && !is_excused {
                return Err(CheckError::new(FailureKind::UndetectedDamage, zone, violation.message));
            }
        }
        Ok(())
    }

    /// Blocks of conventional zones that are written in place: their data contradict an older tag
    /// of zeros.
    fn in_place<'o>(&self, observed: &'o Observed) -> impl Iterator<Item = &'o (Lba, Contents)> {
        let geometry = &self.simulation.geometry;
        let zones = if self.logs_contents() { 0 } else { geometry.conventional_zone_count };
        let end = geometry.zone_start(ZoneIndex(zones));
        observed.blocks.iter().take_while(move |(lba, _)| *lba < end)
    }

    fn check_in_place(&self, stop: Stop, observed: &Observed) -> Result<(), CheckError> {
        // Blocks that were being overwritten at the stop are accepted as they are.
        if stop.crash != Crash::Close && !stop.is_flushed {
            return Ok(());
        }
        for (lba, contents) in self.in_place(observed) {
            let zone = self.simulation.geometry.zone_of(*lba).expect("it was read");
            let judged = self.ledger.judge_block(*lba, contents, &observed.zones[zone.as_usize()], stop.crash);
            if let (Err(violation), true) = (judged, *contents != Err(Status::UnrecoveredReadError)) {
                return Err(CheckError::new(FailureKind::UndetectedDamage, zone, violation.message));
            }
        }
        Ok(())
    }

    /// Whether the contents of overwrites are journaled.
    pub(super) fn logs_contents(&self) -> bool {
        let geometry = &self.simulation.geometry;
        geometry.metadata_bytes > 0 || geometry.block_size_bytes as usize > PAGE
    }

    /// Whether a damaged block may be accepted as written: if blocks are written in place, and this
    /// one was since the opening.
    fn may_be_accepted(&self, lba: Lba, contents: &Contents, stop: Stop) -> bool {
        let geometry = &self.simulation.geometry;
        if stop.crash == Crash::Close || stop.is_flushed || self.logs_contents() {
            return false;
        }
        if geometry.zone_of(lba).is_some_and(|zone| zone.0 >= geometry.conventional_zone_count) {
            return geometry.zrwa.is_some();
        }
        // An intent records old and new contents, and damage may restore the old ones. After a
        // second overwrite without a flush before it, any contents are accepted. A power loss may
        // lose the record of a flush.
        let changes = match stop.crash {
            Crash::PowerLoss => self.ledger.changes(lba),
            _ => self.ledger.unflushed_changes(lba),
        };
        match changes {
            0 => false,
            1 => self.ledger.has_held(lba, contents),
            _ => true,
        }
    }

    fn requirement_of(&self, damage: &Damage, stop: Stop) -> Requirement {
        let (file, bytes) = match damage {
            Damage::Rot { file, at, .. } => (*file, *at..at + 1),
            Damage::ZeroedPage { file, page } => (*file, page * PAGE..(page + 1) * PAGE),
            Damage::Cut { .. } => return Requirement::All,
            Damage::OldCopy([ImageFile::Journal]) if stop.crash == Crash::Close => return Requirement::All,
            Damage::OldCopy([ImageFile::Journal]) => return Requirement::Nothing,
            Damage::OldCopy([ImageFile::Tags]) => return Requirement::InPlace,
            Damage::OldCopy(_) => return Requirement::Old,
        };
        let geometry = &self.simulation.geometry;
        let unit = match file {
            ImageFile::Superblock | ImageFile::State => return Requirement::All,
            // How far a journal was synced is certain only if its last mark is written.
            ImageFile::Journal if stop.crash == Crash::Close || stop.is_idle => return Requirement::All,
            ImageFile::Journal => return Requirement::Nothing,
            ImageFile::Data => geometry.block_size_bytes as usize,
            ImageFile::Tags => (8 + usize::from(geometry.metadata_bytes)).next_power_of_two(),
        };
        let capacity = geometry.zone_capacity_blocks.0;
        let place = |index: u64| geometry.zone_start(ZoneIndex((index / capacity) as u32)) + Blocks(index % capacity);
        let hit = (bytes.start / unit..bytes.end.div_ceil(unit)).map(|index| place(index as u64));
        Requirement::AllBut(file, hit.collect())
    }
}

fn read_of(lba: Lba) -> Operation {
    Operation::Read { start: lba, blocks: Blocks(1) }
}

/// Whether opening an image with this damage may be refused.
fn may_be_refused(damage: &Damage, disk: &Disk, stop: Stop) -> bool {
    match damage {
        Damage::Rot { file, .. } | Damage::ZeroedPage { file, .. } => match file {
            ImageFile::Data | ImageFile::Tags | ImageFile::Superblock => false,
            // A checkpoint that was being written may have a single valid copy.
            ImageFile::State => {
                let is_state = |finding: &Finding| *finding == Finding::Copy { file: ImageFile::State };
                check(&mut disk.clone(), &mut |_| {}).is_ok_and(|report| report.findings.iter().any(is_state))
            }
            ImageFile::Journal => stop.crash != Crash::Close,
        },
        Damage::Cut { file, length } => *file != ImageFile::Superblock || *length < SUPERBLOCK_COPY_BYTES,
        Damage::OldCopy(files) => **files == [ImageFile::State],
    }
}

/// Whether opening an image with this damage must be refused.
fn must_be_refused(damage: &Damage) -> bool {
    match damage {
        Damage::Rot { .. } | Damage::ZeroedPage { .. } => false,
        Damage::Cut { file, .. } => *file != ImageFile::Superblock,
        Damage::OldCopy(files) => **files == [ImageFile::State],
    }
}

/// Damage of a byte or a page of any file; of data and tags, in an allocated page.
fn rot(disk: &Disk, prng: &mut Prng) -> Damage {
    let file = *prng.pick(&ImageFile::ALL).expect("the list of files is not empty");
    let page = match file {
        // The records of a short life are in the first pages after the marks.
        ImageFile::Journal if prng.chance(3, 4) => MARK_PAGES + prng.below(2) as usize,
        _ => prng.pick(&disk.allocated(file)).copied().unwrap_or(0),
    };
    if prng.chance(1, 4) {
        return Damage::ZeroedPage { file, page };
    }
    let length = disk.clone().bytes(file).len();
    let at = (page * PAGE + prng.below(PAGE as u64) as usize).min(length - 1);
    Damage::Rot { file, at, mask: 1 << prng.below(8) }
}
