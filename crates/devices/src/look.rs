//! [`Snapshot`]: an image as recovery would restore it, or a drive of this machine or a namespace of a
//! server as it is, for programs that must not change it.

use std::collections::BTreeMap;
use std::path::Path;

use zonda_image::{FileCommand, Image};
use zonda_zoned::{
    Command, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, Operation, QueueFull, ZoneDescriptor,
    ZonedDevice,
};

use crate::copy_on_write::CopyOnWrite;
use crate::probe::{DriveUser, Probe, written_blocks};
use crate::real::{Overlay, RealDrive};
use crate::sequential_zones::SequentialPart;
use crate::{Access, DriveError, ImageDirectory};
use zonda_raid::Identity;

/// A device on an image or a drive that is opened read-only: writes stay in memory, and are discarded
/// with it. Commands complete at once. If there are both kinds of zones it shows the sequential ones, as
/// [`SequentialZones`] does: volumes and pools use no others.
///
/// [`SequentialZones`]: crate::SequentialZones
pub(crate) struct Snapshot {
    media: Media,
    part: SequentialPart,
    namespaces: Namespaces,
    /// Blocks that were read: the end of each run, by its start.
    read: BTreeMap<u64, u64>,
}

/// What is opened read-only.
enum Media {
    Image { image: Box<Image>, files: Box<CopyOnWrite> },
    Drive(Box<RealDrive<Overlay>>),
}

impl Snapshot {
    fn new(media: Media) -> Snapshot {
        let whole = match &media {
            Media::Image { image, .. } => image.geometry(),
            Media::Drive(drive) => drive.geometry(NamespaceId::FIRST),
        };
        let part = SequentialPart::of(whole);
        let namespaces = Namespaces::single(part.geometry(whole));
        Snapshot { media, part, namespaces, read: BTreeMap::new() }
    }

    /// Opens an image that no other program uses; it cannot be opened for writing until this is
    /// dropped.
    pub(crate) fn open(path: &Path) -> Result<Snapshot, DriveError> {
        let (files, image, _) = CopyOnWrite::over(ImageDirectory::open_shared(path)?)?;
        Ok(Snapshot::new(Media::Image { image: Box::new(image), files: Box::new(files) }))
    }

    /// Opens a drive of this machine that no other program uses, exclusively; or connects to a namespace
    /// of a server, which another host may use as far as its reservations allow.
    pub(crate) fn open_drive(access: &Access) -> Result<Snapshot, DriveError> {
        let overlay = RealDrive::open_overlay(&access.location, &access.options)?;
        Ok(Snapshot::new(Media::Drive(Box::new(overlay))))
    }

    /// Why what was read last may not be what is on the drive: it cannot be read any more.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        match &self.media {
            Media::Image { .. } => None,
            Media::Drive(drive) => drive.unusable(),
        }
    }

    /// The superblock of an image that another program uses, if it can be read meanwhile.
    pub(crate) fn identity_in_use(path: &Path) -> Option<Identity> {
        let (files, image, _) = CopyOnWrite::over(ImageDirectory::open_read_only(path).ok()?).ok()?;
        Snapshot::new(Media::Image { image: Box::new(image), files: Box::new(files) }).identity()
    }

    pub(crate) fn own_geometry(&self) -> &Geometry {
        self.geometry(NamespaceId::FIRST)
    }

    /// The zones as they are now.
    pub(crate) fn zones(&mut self) -> Vec<ZoneDescriptor> {
        let probed = Probe::of_all(self.own_geometry()).run_at_once(self, Instant::ZERO);
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

    /// The superblock of the device.
    pub(crate) fn identity(&mut self) -> Option<Identity> {
        Probe::of_superblock(self.own_geometry()).run_at_once(self, Instant::ZERO)?.identity
    }
}

impl ZonedDevice for Snapshot {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Operation::Read { start, blocks } = &command.operation {
            self.note_read(start.0, start.0 + blocks.0);
        }
        let command = self.part.command_on_drive(command);
        let submitted = match &mut self.media {
            Media::Image { image, files } => image.submit(now, command).map(|()| carry_out(image, files)),
            Media::Drive(drive) => drive.submit(now, command),
        };
        submitted.map_err(|refused| self.part.refused(refused))
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        match &mut self.media {
            Media::Image { image, files } => {
                image.poll(&mut ended);
                carry_out(image, files);
            }
            Media::Drive(drive) => {
                drive.poll(now, &mut ended);
                while !drive.is_quiescent() {
                    drive.poll(now, &mut ended);
                }
            }
        }
        while let Some(completion) = ended.pop() {
            completions.push(self.part.completion_in_part(completion));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Executes the file operations of an image synchronously.
fn carry_out(image: &mut Image, files: &mut CopyOnWrite) {
    while let Some(FileCommand { id, operation }) = image.poll_effect() {
        let result = files.carry_out(operation);
        image.on_completion(id, result);
    }
}

/// The volume or pool that uses an image; `None` where none does, or the image cannot be opened.
#[must_use]
pub fn user_of_image(path: &Path) -> Option<DriveUser> {
    let mut snapshot = Snapshot::open(path).ok()?;
    Probe::of_user(snapshot.own_geometry()).run_at_once(&mut snapshot, Instant::ZERO)?.user()
}
