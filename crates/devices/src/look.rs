//! [`LookedAt`]: an image as its next opening would find it, for programs that must not change it. Nothing is written.

use std::path::Path;

use zonda_image::{FileCommand, FileError, FileOperation, Files, Image, ImageFile};
use zonda_ring::Bytes;
use zonda_zoned::{Command, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, ZonedDevice};

use crate::file_backed::unusable_image;
use crate::probe::{Probe, in_words};
use crate::{DriveError, ImageDirectory};
use zonda_raid::Identity;

/// A file's bytes that were changed in memory only. No bytes: zeros.
struct Patch {
    file: ImageFile,
    offset: u64,
    length: u64,
    bytes: Option<Vec<u8>>,
}

/// The files of an image, and what was written to them, which stays in memory.
struct CopyOnWrite {
    below: ImageDirectory,
    /// In the order in which they were made.
    patches: Vec<Patch>,
    /// Lengths that files have been given, or have grown to.
    lengths: [Option<u64>; ImageFile::ALL.len()],
}

/// A device that reads an image and changes nothing: what is written to it is forgotten with it.
pub(crate) struct LookedAt {
    image: Image,
    files: CopyOnWrite,
}

impl LookedAt {
    /// Looks at an image that no other program uses; none can open it until this is dropped.
    pub(crate) fn open(path: &Path) -> Result<LookedAt, DriveError> {
        let below = ImageDirectory::look_alone(path)?;
        let mut files = CopyOnWrite { below, patches: Vec::new(), lengths: Default::default() };
        let (image, _) = zonda_image::open(&mut files).map_err(|error| unusable_image(path, &error))?;
        Ok(LookedAt { image, files })
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
        self.image.submit(now, command)?;
        while let Some(FileCommand { ticket, operation }) = self.image.poll_effect() {
            let result = self.files.carry_out(operation);
            self.image.on_file_done(ticket, result);
        }
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.image.poll(completions);
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
                    self.write_at(file, offset, &piece)?;
                    offset += piece.len() as u64;
                }
                Ok(Bytes::new())
            }
            FileOperation::Sync { .. } => Ok(Bytes::new()),
            FileOperation::PunchHole { file, offset, length } => {
                self.punch_hole(file, offset, length).map(|()| Bytes::new())
            }
        }
    }

    fn add(&mut self, patch: Patch) {
        let end = patch.offset + patch.length;
        let length = self.length(patch.file).unwrap_or(0);
        if patch.bytes.is_some() && end > length {
            self.lengths[patch.file as usize] = Some(end);
        }
        self.patches.push(patch);
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
        let end = offset + wanted as u64;
        for patch in self.patches.iter().filter(|patch| patch.file == file) {
            let (from, to) = (patch.offset.max(offset), (patch.offset + patch.length).min(end));
            if from >= to {
                continue;
            }
            let place = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            match &patch.bytes {
                Some(bytes) => {
                    place.copy_from_slice(&bytes[(from - patch.offset) as usize..(to - patch.offset) as usize]);
                }
                None => place.fill(0),
            }
        }
        Ok(wanted)
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.add(Patch { file, offset, length: bytes.len() as u64, bytes: Some(bytes.to_vec()) });
        Ok(())
    }

    fn sync(&mut self, _file: ImageFile) -> Result<(), FileError> {
        Ok(())
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        // What a later write makes longer again is zeros from here on.
        self.patches.push(Patch { file, offset: length, length: u64::MAX - length, bytes: None });
        self.lengths[file as usize] = Some(length);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        match self.lengths[file as usize] {
            Some(length) => Ok(length),
            None => self.below.length(file),
        }
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.add(Patch { file, offset, length, bytes: None });
        Ok(())
    }
}

/// The volume of which an image is a member, in words; `None` where it is no member, or cannot be looked at: opening it says why.
#[must_use]
pub fn volume_of_image(path: &Path) -> Option<String> {
    LookedAt::open(path).ok()?.identity().as_ref().map(in_words)
}
