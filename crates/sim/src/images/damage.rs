//! Files that are damaged while the drive stands still: on a copy of them, so that the scenario goes on as if nothing had happened.
//!
//! What was not hit must be there as ever. What was hit is right, or it is an error; wrong data, and blocks that count as never written,
//! are excused only where `docs/internals/image-format.md` says so, under "What each damage gives".

use std::collections::BTreeSet;

use zonda_image::testing::{Contents, Crash, Observed, PAGE};
use zonda_image::{Finding, ImageFile, check, inspect};
use zonda_zoned::{Blocks, Lba, Prng, Status, ZoneIndex};

use super::disk::{Disk, Faults};
use super::drive::Drive;
use super::lives::{Stop, damaged_blocks, told_stop};
use super::run::ImagesRun;
use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// Bytes of one copy of the superblock.
const SUPERBLOCK_COPY_BYTES: u64 = 32 << 10;
/// Pages of a journal before its first record.
const MARK_PAGES: usize = 2;
/// Damage of one kind that is tried after one stop, each on a copy of its own.
const TRIES: u64 = 3;

/// Something that happens to files.
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
    /// They are brought back from a copy of the stop before.
    OldCopy(&'static [ImageFile]),
}

/// The files at an earlier stop, and what the opening after it found.
pub(super) struct Old {
    pub(super) disk: Disk,
    pub(super) observed: Option<Observed>,
}

/// What must hold of a drive that was opened with the damage.
enum Demand {
    /// Everything is there.
    All,
    /// Everything, but for these blocks of a file.
    AllBut(ImageFile, BTreeSet<Lba>),
    /// As it was then.
    Old,
    /// Tags of an earlier stop: what was written in place in conventional zones is there, or unreadable.
    InPlace,
    /// Records that nobody can tell from those that were never written are gone.
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
            Damage::OldCopy(files) => disk.bring_back(files, &old.expect("there was a stop before").disk),
        }
    }
}

impl ImagesRun<'_> {
    /// Damages copies of the files, and looks at what becomes of each.
    pub(super) fn damage_copies(&mut self, disk: &Disk, stop: Stop) -> Result<(), Trouble> {
        let events = &self.world.events;
        let mut prng = self.prng.fork("damage");
        let mut all = Vec::new();
        if prng.chance(events.rot_percent, 100) {
            all.extend((0..TRIES).map(|_| rot(disk, &mut prng)));
            all.extend(self.rot_in_place(&mut prng));
            all.extend(self.rot_at_end(&mut prng));
        }
        if prng.chance(events.truncation_percent, 100) {
            let file = *prng.pick(&ImageFile::ALL).expect("there are files");
            let length = disk.clone().bytes(file).len() as u64;
            all.push(Damage::Cut { file, length: prng.below(length) });
        }
        if self.old.is_some() && prng.chance(events.old_copies_percent, 100) {
            let files = [&[ImageFile::State][..], &[ImageFile::Journal], &[ImageFile::Tags], &ImageFile::ALL];
            all.extend(files.map(Damage::OldCopy));
        }
        // What a file that fails has left is judged without any more damage.
        let all = if stop.had_faults { Vec::new() } else { all };
        for damage in all {
            self.faults += 1;
            self.try_damage(disk, stop, &damage).map_err(|trouble| {
                let message = format!("after {}, {damage:x?}: {}", told_stop(stop), trouble.message);
                Trouble { message, ..trouble }
            })?;
        }
        if events.old_copies_percent > 0 {
            self.old = Some(Old { disk: disk.clone(), observed: None });
        }
        Ok(())
    }

    /// Bits of a block of a conventional zone that was overwritten once since the opening: an intent tells what may be there.
    fn rot_in_place(&self, prng: &mut Prng) -> Option<Damage> {
        let geometry = &self.world.geometry;
        let capacity = geometry.zone_capacity_blocks.0;
        let blocks = (0..geometry.conventional_zone_count).map(ZoneIndex).flat_map(|zone| {
            (0..capacity)
                .map(move |block| (geometry.zone_start(zone) + Blocks(block), u64::from(zone.0) * capacity + block))
        });
        let overwritten: Vec<u64> =
            blocks.filter(|(lba, _)| self.ledger.changes(*lba) == 1).map(|(_, place)| place).collect();
        let bytes = u64::from(geometry.block_size_bytes);
        let at = prng.pick(&overwritten)? * bytes + prng.below(bytes);
        Some(Damage::Rot { file: ImageFile::Data, at: at as usize, mask: 1 << prng.below(8) })
    }

    /// Bits of the last block of a zone that is written at its pointer.
    fn rot_at_end(&self, prng: &mut Prng) -> Option<Damage> {
        let geometry = &self.world.geometry;
        let zones = (geometry.conventional_zone_count..geometry.zone_count).map(ZoneIndex);
        let ends: Vec<u64> = zones
            .filter_map(|zone| {
                let pointer = self.ledger.oracle.image(zone).write_pointer_blocks.0;
                Some(u64::from(zone.0) * geometry.zone_capacity_blocks.0 + pointer.checked_sub(1)?)
            })
            .collect();
        let bytes = u64::from(geometry.block_size_bytes);
        let at = prng.pick(&ends)? * bytes + prng.below(bytes);
        Some(Damage::Rot { file: ImageFile::Data, at: at as usize, mask: 1 << prng.below(8) })
    }

    fn try_damage(&mut self, disk: &Disk, stop: Stop, damage: &Damage) -> Result<(), Trouble> {
        let wrong = |message: String| Err(Trouble::new(FailureKind::UndetectedDamage, None, message));
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
                    return wrong(format!("refused, and a check says {checked:?}: {error}"));
                }
                self.hash.mix(2);
                return if may_be_refused(damage, disk, stop) { Ok(()) } else { wrong(format!("refused: {error}")) };
            }
        };
        let is_shown = inspected.as_ref().is_ok_and(|inspection| *drive.image.zones() == inspection.zones);
        if !is_shown && self.bug.is_none() {
            return wrong("the opening finds other zones than an inspection shows".to_owned());
        }
        // A loss of power may have taken back a checkpoint that was copied before it was synced, and another one has its number.
        let is_certain = *damage != Damage::OldCopy(&[ImageFile::State])
            || self.old.as_ref().is_some_and(|old| old.disk.is_synced(ImageFile::State));
        if must_be_refused(damage) && is_certain {
            return wrong("it is opened, and should be refused".to_owned());
        }
        let observed = drive.observe();
        self.hash.mix(3);
        self.judge_damaged(damage, stop, &observed)?;
        let damaged_blocks = checked.as_ref().map_or(Vec::new(), damaged_blocks);
        self.judge_findings(&observed, &damaged_blocks)?;
        let again = Drive::open(drive.kill(), self.bug).map(|mut again| again.observe());
        match again {
            Ok(again) if self.is_same(&observed, &again, damage, stop) => Ok(()),
            Ok(_) => wrong("a second opening finds other zones or blocks than the first".to_owned()),
            Err(refusal) => wrong(format!("a second opening is refused: {}", refusal.1)),
        }
    }

    /// Whether a second opening, after a kill in which nothing was in progress, has found what the first one has. In a ZRWA a block
    /// that was hit may be accepted as it is, and its tag may move the zone's write pointer.
    fn is_same(&self, first: &Observed, second: &Observed, damage: &Damage, stop: Stop) -> bool {
        let geometry = &self.world.geometry;
        let hit = match self.demand_of(damage, stop) {
            Demand::AllBut(_, hit) if geometry.zrwa.is_some() => hit,
            Demand::InPlace => return self.in_place(first).eq(self.in_place(second)),
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

    fn judge_damaged(&self, damage: &Damage, stop: Stop, observed: &Observed) -> Result<(), Trouble> {
        let nobody = BTreeSet::new();
        let (file, hit) = match self.demand_of(damage, stop) {
            Demand::Nothing => return Ok(()),
            Demand::Old => {
                let then = self.old.as_ref().and_then(|old| old.observed.as_ref());
                if then.is_some_and(|then| then != observed) {
                    let message = "files that were brought back together are not as they were".to_owned();
                    return Err(Trouble::new(FailureKind::UndetectedDamage, None, message));
                }
                return Ok(());
            }
            Demand::InPlace => return self.judge_in_place(stop, observed),
            Demand::All => (ImageFile::Superblock, nobody),
            Demand::AllBut(file, hit) => (file, hit),
        };
        let geometry = &self.world.geometry;
        let mut cut = BTreeSet::new();
        for (zone, image) in (0..).map(ZoneIndex).zip(&observed.zones) {
            let Err(violation) = self.ledger.judge_zone(zone, image, stop.crash, true) else { continue };
            let pointer = geometry.zone_start(zone) + image.write_pointer_blocks;
            let may_end_at_hit = stop.crash != Crash::Close && !stop.is_rested && hit.contains(&pointer);
            // In a ZRWA the tags say how far the zone was written, whatever they hold.
            let is_hit = hit.iter().any(|lba| geometry.zone_of(*lba) == Some(zone));
            let is_moved = stop.crash != Crash::Close && file == ImageFile::Tags && geometry.zrwa.is_some() && is_hit;
            if !may_end_at_hit && !is_moved {
                return Err(Trouble::new(FailureKind::UndetectedDamage, zone, violation.message));
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
            let is_told = *contents == Err(Status::UnrecoveredReadError);
            let is_excused = hit.contains(lba) && (is_told || self.may_be_accepted(*lba, contents, stop));
            if !is_behind && !is_excused {
                return Err(Trouble::new(FailureKind::UndetectedDamage, zone, violation.message));
            }
        }
        Ok(())
    }

    /// Blocks that lie in conventional zones and are written in place: there data contradict a tag of zeros that is older.
    fn in_place<'o>(&self, observed: &'o Observed) -> impl Iterator<Item = &'o (Lba, Contents)> {
        let geometry = &self.world.geometry;
        let zones = if self.logs_contents() { 0 } else { geometry.conventional_zone_count };
        let end = geometry.zone_start(ZoneIndex(zones));
        observed.blocks.iter().take_while(move |(lba, _)| *lba < end)
    }

    fn judge_in_place(&self, stop: Stop, observed: &Observed) -> Result<(), Trouble> {
        // What was being overwritten when the drive stopped is accepted as it is.
        if stop.crash != Crash::Close && !stop.is_rested {
            return Ok(());
        }
        for (lba, contents) in self.in_place(observed) {
            let zone = self.world.geometry.zone_of(*lba).expect("it was read");
            let judged = self.ledger.judge_block(*lba, contents, &observed.zones[zone.as_usize()], stop.crash);
            if let (Err(violation), true) = (judged, *contents != Err(Status::UnrecoveredReadError)) {
                return Err(Trouble::new(FailureKind::UndetectedDamage, zone, violation.message));
            }
        }
        Ok(())
    }

    /// Whether contents of overwrites go through the journal.
    fn logs_contents(&self) -> bool {
        let geometry = &self.world.geometry;
        geometry.metadata_bytes > 0 || geometry.block_size_bytes as usize > PAGE
    }

    /// Whether damage of a block may be taken for what was written: where blocks are written in place, and this one was since the opening.
    fn may_be_accepted(&self, lba: Lba, contents: &Contents, stop: Stop) -> bool {
        let geometry = &self.world.geometry;
        if stop.crash == Crash::Close || stop.is_rested || self.logs_contents() {
            return false;
        }
        if geometry.zone_of(lba).is_some_and(|zone| zone.0 >= geometry.conventional_zone_count) {
            return geometry.zrwa.is_some();
        }
        // An intent tells old and new contents, and damage may bring the old ones back. With a second overwrite anything is accepted.
        self.ledger.changes(lba) > 1 || self.ledger.changes(lba) == 1 && self.ledger.has_held(lba, contents)
    }

    fn demand_of(&self, damage: &Damage, stop: Stop) -> Demand {
        let (file, bytes) = match damage {
            Damage::Rot { file, at, .. } => (*file, *at..at + 1),
            Damage::ZeroedPage { file, page } => (*file, page * PAGE..(page + 1) * PAGE),
            Damage::Cut { .. } => return Demand::All,
            Damage::OldCopy([ImageFile::Journal]) if stop.crash == Crash::Close => return Demand::All,
            Damage::OldCopy([ImageFile::Journal]) => return Demand::Nothing,
            Damage::OldCopy([ImageFile::Tags]) => return Demand::InPlace,
            Damage::OldCopy(_) => return Demand::Old,
        };
        let geometry = &self.world.geometry;
        let unit = match file {
            ImageFile::Superblock | ImageFile::State => return Demand::All,
            // Of a journal it is certain how far it was synced when its last mark is on file.
            ImageFile::Journal if stop.crash == Crash::Close || stop.is_idle => return Demand::All,
            ImageFile::Journal => return Demand::Nothing,
            ImageFile::Data => geometry.block_size_bytes as usize,
            ImageFile::Tags => (8 + usize::from(geometry.metadata_bytes)).next_power_of_two(),
        };
        let capacity = geometry.zone_capacity_blocks.0;
        let place = |index: u64| geometry.zone_start(ZoneIndex((index / capacity) as u32)) + Blocks(index % capacity);
        let hit = (bytes.start / unit..bytes.end.div_ceil(unit)).map(|index| place(index as u64));
        Demand::AllBut(file, hit.collect())
    }
}

/// Whether an image may be refused with the damage.
fn may_be_refused(damage: &Damage, disk: &Disk, stop: Stop) -> bool {
    match damage {
        Damage::Rot { file, .. } | Damage::ZeroedPage { file, .. } => match file {
            ImageFile::Data | ImageFile::Tags | ImageFile::Superblock => false,
            // A checkpoint that was being written may have one good copy.
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

/// Whether it must be.
fn must_be_refused(damage: &Damage) -> bool {
    match damage {
        Damage::Rot { .. } | Damage::ZeroedPage { .. } => false,
        Damage::Cut { file, .. } => *file != ImageFile::Superblock,
        Damage::OldCopy(files) => **files == [ImageFile::State],
    }
}

/// A byte or a page of any file; of data and tags one that was written.
fn rot(disk: &Disk, prng: &mut Prng) -> Damage {
    let file = *prng.pick(&ImageFile::ALL).expect("there are files");
    let page = match file {
        // The records of a short life lie in the first pages behind the marks.
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
