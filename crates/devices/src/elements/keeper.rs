//! The book of an open drive, saved as it goes.

use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use zonda_image::ImageSpec;
use zonda_ring::{Client, Done, File, FileOptions, Operation};
use zonda_ssd::allocation::{ElementBook, ZoneStanding};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Duration, Instant, ZoneIndex};

use super::ELEMENTS_FILE;
use super::format::{encode, slot_bytes};
use super::found::{FoundElements, profile_of_elements};

/// The least time from one save to the next.
const SAVE_INTERVAL: Duration = Duration(1_000_000_000);
/// What saving may take of the disk, in bytes a second: a large table is saved less often.
const SAVE_BYTES_PER_SECOND: u64 = 32 << 20;

/// The elements of a file-backed drive: a book that follows the image's zones, and its file.
pub(crate) struct ElementKeeper {
    book: ElementBook,
    /// Why the elements began anew when the drive was opened.
    anew: Option<String>,
    /// `None`: it cannot be written, and the elements last as long as the drive is open.
    file: Option<Rc<File>>,
    client: Client,
    uuid: [u8; 16],
    slot_bytes: u64,
    /// The slot to be written next, and the sequence of what is on file.
    next_slot: usize,
    sequence: u64,
    /// The book's changes that are on file; `None`: the book is not on file at all.
    saved_changes: Option<u64>,
    phase: Phase,
    next_save_at: Instant,
    /// Something was asked of the drive since it was opened.
    is_used: bool,
    is_at_rest: bool,
    trouble: Option<String>,
    /// Saving fails, and that was told.
    is_failing: bool,
}

/// How far a save is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The slot is written with this many of the book's changes.
    Writing(u64),
    Syncing(u64),
}

impl ElementKeeper {
    /// The elements of an image that has just been opened; `None` where its zones are fixed.
    ///
    /// # Errors
    /// In words, why the elements that the image has cannot be followed.
    pub(crate) fn open(
        directory: &Path,
        spec: &ImageSpec,
        zones: &ZoneTable,
        client: Client,
    ) -> Result<Option<ElementKeeper>, String> {
        let path = directory.join(ELEMENTS_FILE);
        let Some(profile) = profile_of_elements(&path, spec)? else { return Ok(None) };
        let opened = File::open(&path, FileOptions::read_write());
        let FoundElements { book, anew, is_one_slot_lost, next_slot, sequence } =
            FoundElements::read(opened.as_ref(), &profile, &spec.uuid, zones)?;
        let slot_bytes = slot_bytes(&book);
        let mut trouble = Vec::new();
        trouble.extend(anew.as_ref().map(|why| format!("the storage elements begin anew, without wear: {why}")));
        if is_one_slot_lost {
            trouble.push(format!(
                "a copy of the storage elements in {ELEMENTS_FILE} was not written to its end, or damaged; an earlier \
                 one serves"
            ));
        }
        let file = match writable(opened, &path, 2 * slot_bytes) {
            Ok((file, unallocated)) => {
                let in_words = |error| format!("{ELEMENTS_FILE} has no room of its own, and may not be saved: {error}");
                trouble.extend(unallocated.map(in_words));
                Some(Rc::new(file))
            }
            Err(error) => {
                trouble.push(format!("the storage elements cannot be kept: {error}"));
                None
            }
        };
        let trouble = (!trouble.is_empty()).then(|| trouble.join("; "));
        let is_on_file = anew.is_none() && book.changes() == 0;
        Ok(Some(ElementKeeper {
            saved_changes: is_on_file.then_some(0),
            book,
            anew,
            file,
            client,
            uuid: spec.uuid,
            slot_bytes,
            next_slot,
            sequence,
            phase: Phase::Idle,
            next_save_at: Instant::ZERO,
            is_used: false,
            is_at_rest: false,
            trouble,
            is_failing: false,
        }))
    }

    /// The book as it is now.
    pub(crate) fn book(&self) -> &ElementBook {
        &self.book
    }

    /// Why the elements began anew when the drive was opened; `None`: they were found.
    pub(crate) fn anew(&self) -> Option<&str> {
        self.anew.as_deref()
    }

    /// A command may have changed this zone.
    pub(crate) fn on_zone(&mut self, zone: ZoneIndex, zones: &ZoneTable) {
        self.is_used = true;
        if zone.0 >= zones.geometry().conventional_zone_count {
            self.book.bring(zone, &ZoneStanding::of(&zones.zone(zone), zones.geometry()));
        }
    }

    /// A command may have changed all zones.
    pub(crate) fn on_zones(&mut self, zones: &ZoneTable) {
        self.is_used = true;
        self.book.bring_all(zones);
    }

    /// What went wrong since this was last asked.
    pub(crate) fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Goes on with a save, and begins one when there is something to save and its time has come.
    pub(crate) fn poll(&mut self, now: Instant, zones: &ZoneTable) {
        self.collect();
        if self.wants_save() && now >= self.next_save_at {
            self.save(now, zones);
        }
    }

    /// When a save will begin.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.wants_save().then_some(self.next_save_at)
    }

    /// The drive has come to rest: what is left to be saved is saved. To be called again until that has ended.
    pub(crate) fn end(&mut self, now: Instant, zones: &ZoneTable) {
        if self.is_at_rest || self.phase != Phase::Idle {
            return;
        }
        self.is_at_rest = true;
        if self.file.is_some() && (self.is_used || self.wants_save()) {
            self.save(now, zones);
        }
    }

    /// Whether [`end`](Self::end) has come to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_at_rest && self.phase == Phase::Idle
    }

    fn wants_save(&self) -> bool {
        let is_saved = self.saved_changes == Some(self.book.changes());
        self.file.is_some() && self.phase == Phase::Idle && !is_saved
    }

    /// Writes the book over the older of the two slots.
    fn save(&mut self, now: Instant, zones: &ZoneTable) {
        let Some(file) = &self.file else { return };
        // What the image took back after an error, no command has told.
        self.book.bring_all(zones);
        let bytes = encode(&self.book.record(), &self.uuid, self.sequence.wrapping_add(1));
        assert!(bytes.len() as u64 <= self.slot_bytes, "a slot holds whatever a book has to say");
        let least = Duration(bytes.len() as u64 * 1_000_000_000 / SAVE_BYTES_PER_SECOND);
        self.next_save_at = now + SAVE_INTERVAL.max(least);
        let offset = self.next_slot as u64 * self.slot_bytes;
        self.client.submit(0, Operation::Write { file: Rc::clone(file), offset, pieces: vec![bytes] });
        self.phase = Phase::Writing(self.book.changes());
    }

    fn collect(&mut self) {
        while let Some(Done { result, .. }) = self.client.next() {
            self.phase = match (result, self.phase, &self.file) {
                (Ok(_), Phase::Writing(changes), Some(file)) => {
                    self.client.submit(0, Operation::Sync { file: Rc::clone(file), data_only: true });
                    Phase::Syncing(changes)
                }
                (Ok(_), Phase::Syncing(changes), _) => {
                    self.saved_changes = Some(changes);
                    self.sequence = self.sequence.wrapping_add(1);
                    self.next_slot = 1 - self.next_slot;
                    self.is_failing = false;
                    Phase::Idle
                }
                (Ok(_), ..) => unreachable!("an operation that ends was begun"),
                (Err(error), ..) => {
                    self.on_failure(&error);
                    Phase::Idle
                }
            };
        }
    }

    /// The other slot has what was saved before; this one is tried again in its time.
    fn on_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let words = format!("the storage elements cannot be saved for now: {ELEMENTS_FILE}: {error}");
            self.trouble.get_or_insert(words);
        }
    }
}

/// The file, made if it is missing, with the length that it must have. All of its blocks are allocated, as `create` does: one that was brought back
/// from a copy may have holes, and a file system that is full later could not fill them. Why that could not be done comes beside it.
fn writable(opened: io::Result<File>, path: &Path, length: u64) -> io::Result<(File, Option<io::Error>)> {
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::open(path, FileOptions { create: true, ..FileOptions::read_write() })?
        }
        opened => opened?,
    };
    if file.length()? != length {
        file.set_length(length)?;
    }
    let allocated = match retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, length)) {
        // Such a file system has no blocks to be had beforehand.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => None,
        Err(error) => Some(error.into()),
    };
    Ok((file, allocated))
}
