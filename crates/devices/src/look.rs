//! [`LookedAt`]: an image as its next opening would find it, for programs that must not change it. Nothing is written.

use std::collections::BTreeMap;
use std::path::Path;

use zonda_image::{FileCommand, FileError, FileOperation, Files, Image, ImageFile};
use zonda_ring::Bytes;
use zonda_zoned::{
    Command, CompletionQueue, Geometry, Instant, NamespaceId, Operation, QueueFull, ZoneDescriptor, ZonedDevice,
};

use crate::file_backed::unusable_image;
use crate::patches::Patches;
use crate::probe::{Probe, in_words, written_blocks};
use crate::{DriveError, ImageDirectory};
use zonda_raid::Identity;

/// Bytes of changes that are kept for one image. More ends writes with Capacity Exceeded.
const CHANGED_BYTES_MAX: u64 = 1 << 30;

/// The files of an image, and what was written to them, which stays in memory.
struct CopyOnWrite {
    below: ImageDirectory,
    patches: [Patches; ImageFile::ALL.len()],
    /// Lengths that files have been given, or have grown to.
    lengths: [Option<u64>; ImageFile::ALL.len()],
}

/// A device that reads an image and changes nothing: what is written to it is forgotten with it.
pub(crate) struct LookedAt {
    image: Image,
    files: CopyOnWrite,
    /// Blocks that were read: the end of each run, by its start.
    read: BTreeMap<u64, u64>,
}

impl LookedAt {
    /// Looks at an image that no other program uses; none can open it until this is dropped.
    pub(crate) fn open(path: &Path) -> Result<LookedAt, DriveError> {
        let below = ImageDirectory::look_alone(path)?;
        let mut files = CopyOnWrite { below, patches: Default::default(), lengths: Default::default() };
        let (image, _) = zonda_image::open(&mut files).map_err(|error| unusable_image(path, &error))?;
        Ok(LookedAt { image, files, read: BTreeMap::new() })
    }

    /// Whose superblock an image has that another program uses, as far as that can be read meanwhile.
    pub(crate) fn identity_in_use(path: &Path) -> Option<Identity> {
        let below = ImageDirectory::look(path).ok()?;
        let mut files = CopyOnWrite { below, patches: Default::default(), lengths: Default::default() };
        let (image, _) = zonda_image::open(&mut files).ok()?;
        LookedAt { image, files, read: BTreeMap::new() }.identity()
    }

    /// The zones as they are now.
    pub(crate) fn zones(&mut self) -> Vec<ZoneDescriptor> {
        let probed = Probe::of_all(self.image.geometry()).poll(self, Instant::ZERO).and_then(Result::ok);
        probed.map_or_else(Vec::new, |probed| probed.zones)
    }

    /// How many blocks were read that were written when the zones were like this.
    pub(crate) fn read_blocks(&self, zones: &[ZoneDescriptor]) -> u64 {
        let of_zone = |zone: &ZoneDescriptor| {
            let (start, end) = (zone.start.0, zone.start.0 + written_blocks(zone));
            let before = self.read.range(..start).next_back();
            let runs = before.into_iter().chain(self.read.range(start..end));
            runs.map(|(from, to)| (*to).min(end).saturating_sub((*from).max(start))).sum::<u64>()
        };
        zones.iter().map(of_zone).sum()
    }

    /// A run of blocks is read. Runs that touch are one.
    fn note_read(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        while let Some((&from, &to)) = self.read.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.read.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.read.insert(start, end);
    }

    /// What the image asks of its files is done at once.
    fn carry_out(&mut self) {
        while let Some(FileCommand { ticket, operation }) = self.image.poll_effect() {
            let result = self.files.carry_out(operation);
            self.image.on_file_done(ticket, result);
        }
    }

    /// Whose superblock the image has.
    pub(crate) fn identity(&mut self) -> Option<Identity> {
        let mut probe = Probe::of_superblock(self.image.geometry());
        // Its commands end at once.
        probe.poll(self, Instant::ZERO)?.ok()?.identity
    }
}

impl ZonedDevice for LookedAt {
    fn geometry(&self, _namespace: NamespaceId) -> &Geometry {
        self.image.geometry()
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

    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}

impl CopyOnWrite {
    fn carry_out(&mut self, operation: FileOperation) -> Result<Bytes, FileError> {
        match operation {
            FileOperation::Read { file, offset, length } => {
                let mut buffer = vec![0; length];
                let found = self.read_at(file, offset, &mut buffer)?;
                if found < length {
                    return Err(FileError::Other("the file ends too early".to_owned()));
                }
                Ok(buffer.into())
            }
            FileOperation::Write { file, mut offset, pieces } => {
                for piece in pieces {
                    let length = piece.len() as u64;
                    self.write(file, offset, piece)?;
                    offset += length;
                }
                Ok(Bytes::new())
            }
            FileOperation::Sync { .. } | FileOperation::Allocate { .. } => Ok(Bytes::new()),
            FileOperation::PunchHole { file, offset, length } => {
                self.punch_hole(file, offset, length).map(|()| Bytes::new())
            }
        }
    }

    fn write(&mut self, file: ImageFile, offset: u64, bytes: Bytes) -> Result<(), FileError> {
        let kept: u64 = self.patches.iter().map(Patches::bytes).sum();
        let end = offset + bytes.len() as u64;
        if kept + bytes.len() as u64 > CHANGED_BYTES_MAX {
            return Err(FileError::StorageFull);
        }
        if end > self.length(file).unwrap_or(0) {
            self.lengths[file as usize] = Some(end);
        }
        self.patches[file as usize].write(offset, bytes);
        Ok(())
    }
}

impl Files for CopyOnWrite {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let length = self.length(file)?;
        let wanted = (buffer.len() as u64).min(length.saturating_sub(offset)) as usize;
        let buffer = &mut buffer[..wanted];
        let found = match self.below.read_at(file, offset, buffer) {
            Ok(found) => found,
            Err(FileError::Missing) => 0,
            Err(error) => return Err(error),
        };
        buffer[found..].fill(0);
        self.patches[file as usize].apply(offset, buffer);
        Ok(wanted)
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.write(file, offset, Bytes::copy_from_slice(bytes))
    }

    fn sync(&mut self, _file: ImageFile) -> Result<(), FileError> {
        Ok(())
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        // What a later write makes longer again is zeros from here on.
        self.patches[file as usize].zero(length, u64::MAX);
        self.lengths[file as usize] = Some(length);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        match self.lengths[file as usize] {
            Some(length) => Ok(length),
            None => self.below.length(file),
        }
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let below = self.below.next_data(file, offset)?;
        Ok(below.into_iter().chain(self.patches[file as usize].next(offset)).min())
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.patches[file as usize].zero(offset, offset.saturating_add(length));
        Ok(())
    }
}

/// The volume of which an image is a member, in words; `None` where it is no member, or cannot be looked at: opening it says why.
#[must_use]
pub fn volume_of_image(path: &Path) -> Option<String> {
    LookedAt::open(path).ok()?.identity().as_ref().map(in_words)
}
