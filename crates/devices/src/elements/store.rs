//! [`ElementStore`]: the storage elements of an open drive, saved periodically.

use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use zonda_image::ImageSpec;
use zonda_ring::{Client, Done, File, FileOptions, Operation};
use zonda_ssd::allocation::{ElementTracker, ZoneUsage};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Duration, Instant, ZoneIndex};

use super::ELEMENTS_FILE;
use super::format::{encode, slot_bytes};
use super::load::{LoadedElements, profile_of_elements};

/// The least time from one save to the next.
const SAVE_INTERVAL: Duration = Duration(1_000_000_000);
/// Disk bandwidth for saving, in bytes per second: a large table is saved less often.
const SAVE_BYTES_PER_SECOND: u64 = 32 << 20;

/// The elements of a file-backed drive: a tracker that follows the zones of the image, and its
/// file.
pub(crate) struct ElementStore {
    tracker: ElementTracker,
    /// Why the elements were reset when the drive was opened.
    reset_reason: Option<String>,
    /// `None`: it cannot be written, and the elements are lost when the drive is closed.
    file: Option<Rc<File>>,
    client: Client,
    uuid: [u8; 16],
    slot_bytes: u64,
    /// The slot to be written next, and the sequence number of the saved one.
    next_slot: usize,
    sequence: u64,
    /// The number of changes of the tracker that are saved; `None`: the tracker was never saved.
    saved_changes: Option<u64>,
    phase: Phase,
    next_save_at: Instant,
    /// Commands were submitted since the drive was opened.
    is_used: bool,
    is_quiescent: bool,
    warning: Option<String>,
    /// Saving fails, and a warning was issued.
    is_failing: bool,
}

/// The stage of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The slot is being written with this many changes of the tracker.
    Writing(u64),
    Syncing(u64),
}

impl ElementStore {
    /// Loads the elements of an image that has just been opened; `None` where its zones are fixed.
    ///
    /// # Errors
    /// Why this program does not support the elements of the image.
    pub(crate) fn open(
        directory: &Path,
        spec: &ImageSpec,
        zones: &ZoneTable,
        client: Client,
    ) -> Result<Option<ElementStore>, String> {
        let path = directory.join(ELEMENTS_FILE);
        let Some(profile) = profile_of_elements(&path, spec)? else { return Ok(None) };
        let opened = File::open(&path, FileOptions::read_write());
        let LoadedElements { tracker, reset_reason, is_one_slot_lost, next_slot, sequence } =
            LoadedElements::read(opened.as_ref(), &profile, &spec.uuid, zones)?;
        let slot_bytes = slot_bytes(&tracker);
        let mut warning = Vec::new();
        warning.extend(
            reset_reason.as_ref().map(|why| format!("the storage elements are reset, and their wear is lost: {why}")),
        );
        if is_one_slot_lost {
            warning.push(format!(
                "one copy of the storage elements in {ELEMENTS_FILE} is incomplete or damaged; the earlier one is used"
            ));
        }
        let file = match writable(opened, &path, 2 * slot_bytes) {
            Ok((file, unallocated)) => {
                let describe =
                    |error| format!("cannot allocate the blocks of {ELEMENTS_FILE}, and saving may fail: {error}");
                warning.extend(unallocated.map(describe));
                Some(Rc::new(file))
            }
            Err(error) => {
                warning.push(format!("cannot save the storage elements: {error}"));
                None
            }
        };
        let warning = (!warning.is_empty()).then(|| warning.join("; "));
        let is_on_file = reset_reason.is_none() && tracker.changes() == 0;
        Ok(Some(ElementStore {
            saved_changes: is_on_file.then_some(0),
            tracker,
            reset_reason,
            file,
            client,
            uuid: spec.uuid,
            slot_bytes,
            next_slot,
            sequence,
            phase: Phase::Idle,
            next_save_at: Instant::ZERO,
            is_used: false,
            is_quiescent: false,
            warning,
            is_failing: false,
        }))
    }

    /// The present state of the elements.
    pub(crate) fn tracker(&self) -> &ElementTracker {
        &self.tracker
    }

    /// Why the elements were reset when the drive was opened; `None`: they were loaded.
    pub(crate) fn reset_reason(&self) -> Option<&str> {
        self.reset_reason.as_deref()
    }

    /// A command may have changed this zone.
    pub(crate) fn on_zone(&mut self, zone: ZoneIndex, zones: &ZoneTable) {
        self.is_used = true;
        if zone.0 >= zones.geometry().conventional_zone_count {
            self.tracker.update(zone, &ZoneUsage::of(&zones.zone(zone), zones.geometry()));
        }
    }

    /// A command may have changed all zones.
    pub(crate) fn on_zones(&mut self, zones: &ZoneTable) {
        self.is_used = true;
        self.tracker.update_all(zones);
    }

    /// The next warning for the log.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Continues a save, and begins one when there are changes and the interval has elapsed.
    pub(crate) fn poll(&mut self, now: Instant, zones: &ZoneTable) {
        self.collect();
        if self.wants_save() && now >= self.next_save_at {
            self.save(now, zones);
        }
    }

    /// When the next save begins.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.wants_save().then_some(self.next_save_at)
    }

    /// The drive is quiescent: saves the remaining changes. To be called until
    /// [`has_ended`](Self::has_ended).
    pub(crate) fn end(&mut self, now: Instant, zones: &ZoneTable) {
        if self.is_quiescent || self.phase != Phase::Idle {
            return;
        }
        self.is_quiescent = true;
        if self.file.is_some() && (self.is_used || self.wants_save()) {
            self.save(now, zones);
        }
    }

    /// Whether [`end`](Self::end) is complete.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_quiescent && self.phase == Phase::Idle
    }

    fn wants_save(&self) -> bool {
        let is_saved = self.saved_changes == Some(self.tracker.changes());
        self.file.is_some() && self.phase == Phase::Idle && !is_saved
    }

    /// Overwrites the older of the two slots.
    fn save(&mut self, now: Instant, zones: &ZoneTable) {
        let Some(file) = &self.file else { return };
        // What the image reverted after an error is not visible in any command.
        self.tracker.update_all(zones);
        let bytes = encode(&self.tracker.record(), &self.uuid, self.sequence.wrapping_add(1));
        assert!(bytes.len() as u64 <= self.slot_bytes, "a slot fits the longest record");
        let least = Duration(bytes.len() as u64 * 1_000_000_000 / SAVE_BYTES_PER_SECOND);
        self.next_save_at = now + SAVE_INTERVAL.max(least);
        let offset = self.next_slot as u64 * self.slot_bytes;
        self.client.submit(0, Operation::Write { file: Rc::clone(file), offset, pieces: vec![bytes] });
        self.phase = Phase::Writing(self.tracker.changes());
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

    /// The other slot has the previous save; this one is retried after the interval.
    fn on_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let words = format!("cannot save the storage elements, retrying: {ELEMENTS_FILE}: {error}");
            self.warning.get_or_insert(words);
        }
    }
}

/// Opens the file, creates it if it is missing, and sets its length. Allocates all of its blocks,
/// as `create` does: a file restored from a copy may be sparse, and a file system that is full
/// later could not fill the holes. Returns the error of the allocation beside the file.
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
        // The file system does not support allocation.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => None,
        Err(error) => Some(error.into()),
    };
    Ok((file, allocated))
}
