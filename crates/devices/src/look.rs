//! [`ImageSnapshot`]: an image as recovery would restore it, for programs that must not change it.

use std::collections::BTreeMap;
use std::path::Path;

use zonda_image::{FileCommand, Image};
use zonda_zoned::{
    Command, CompletionQueue, Geometry, Instant, Namespaces, Operation, QueueFull, ZoneDescriptor, ZonedDevice,
};

use crate::copy_on_write::CopyOnWrite;
use crate::probe::{DriveUser, Probe, written_blocks};
use crate::{DriveError, ImageDirectory};
use zonda_raid::Identity;

/// A device on an image that is opened read-only: writes stay in memory, and are discarded with it.
pub(crate) struct ImageSnapshot {
    image: Image,
    namespaces: Namespaces,
    files: CopyOnWrite,
    /// Blocks that were read: the end of each run, by its start.
    read: BTreeMap<u64, u64>,
}

impl ImageSnapshot {
    fn new(image: Image, files: CopyOnWrite) -> ImageSnapshot {
        let namespaces = Namespaces::single(image.geometry().clone());
        ImageSnapshot { image, namespaces, files, read: BTreeMap::new() }
    }

    /// Opens an image that no other program uses; it cannot be opened for writing until this is
    /// dropped.
    pub(crate) fn open(path: &Path) -> Result<ImageSnapshot, DriveError> {
        let (files, image, _) = CopyOnWrite::over(ImageDirectory::open_shared(path)?)?;
        Ok(ImageSnapshot::new(image, files))
    }

    /// The superblock of an image that another program uses, if it can be read meanwhile.
    pub(crate) fn identity_in_use(path: &Path) -> Option<Identity> {
        let (files, image, _) = CopyOnWrite::over(ImageDirectory::open_read_only(path).ok()?).ok()?;
        ImageSnapshot::new(image, files).identity()
    }

    pub(crate) fn own_geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    /// The zones as they are now.
    pub(crate) fn zones(&mut self) -> Vec<ZoneDescriptor> {
        let probed = Probe::of_all(self.image.geometry()).run_at_once(self, Instant::ZERO);
        probed.map_or_else(Vec::new, |probed| probed.zones)
    }

    /// The number of blocks read that were written when the zones had these descriptors.
    pub(crate) fn read_blocks(&self, zones: &[ZoneDescriptor]) -> u64 {
        let of_zone = |zone: &ZoneDescriptor| {
            let (start, end) = (zone.start.0, zone.start.0 + written_blocks(zone));
            let before = self.read.range(..start).next_back();
            let runs = before.into_iter().chain(self.read.range(start..end));
            runs.map(|(from, to)| (*to).min(end).saturating_sub((*from).max(start))).sum::<u64>()
        };
        zones.iter().map(of_zone).sum()
    }

    /// Records a read of a run of blocks. Adjacent runs are merged.
    fn note_read(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        while let Some((&from, &to)) = self.read.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.read.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.read.insert(start, end);
    }

    /// Executes the file operations of the image synchronously.
    fn carry_out(&mut self) {
        while let Some(FileCommand { id, operation }) = self.image.poll_effect() {
            let result = self.files.carry_out(operation);
            self.image.on_completion(id, result);
        }
    }

    /// The superblock of the image.
    pub(crate) fn identity(&mut self) -> Option<Identity> {
        Probe::of_superblock(self.image.geometry()).run_at_once(self, Instant::ZERO)?.identity
    }
}

impl ZonedDevice for ImageSnapshot {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Operation::Read { start, blocks } = &command.operation {
            self.note_read(start.0, start.0 + blocks.0);
        }
        self.image.submit(now, command)?;
        self.carry_out();
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.image.poll(completions);
        self.carry_out();
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The volume or pool that uses an image; `None` where none does, or the image cannot be opened.
#[must_use]
pub fn user_of_image(path: &Path) -> Option<DriveUser> {
    let mut snapshot = ImageSnapshot::open(path).ok()?;
    Probe::of_user(snapshot.image.geometry()).run_at_once(&mut snapshot, Instant::ZERO)?.user()
}
