//! [`CopyOnWrite`]: the files of an image, with what is written to them in memory. The files themselves are only read.

use std::rc::Rc;

use zonda_config::ByteSize;
use zonda_image::{FileError, FileOperation, Files, Image, ImageFile, RecoveryReport};
use zonda_ring::{Bytes, File};

use crate::file_backed::unusable_image;
use crate::patches::{EXTENT_BYTES, Patches};
use crate::{DriveError, ImageDirectory};

/// Bytes of memory for the changes to one image. Opening one that was killed writes the checkpoint twice, at most as much as the
/// journal holds, and a little for each repaired block: megabytes, unless the journal was made hundreds of times longer than by
/// default. More ends writes with Capacity Exceeded.
const CHANGED_BYTES_MAX: u64 = 1 << 30;

/// The files of an image, and what was written to them, which stays in memory.
pub(crate) struct CopyOnWrite {
    below: ImageDirectory,
    patches: [Patches; ImageFile::ALL.len()],
    /// Lengths that files have been given, or have grown to.
    lengths: [Option<u64>; ImageFile::ALL.len()],
    /// [`CHANGED_BYTES_MAX`]; less in tests.
    changed_bytes_max: u64,
    /// A change had no place in memory.
    is_exhausted: bool,
}

impl CopyOnWrite {
    /// The image in these files as its next opening would find it: what a crash has left is repaired in memory.
    pub(crate) fn over(below: ImageDirectory) -> Result<(CopyOnWrite, Image, RecoveryReport), DriveError> {
        CopyOnWrite::within(below, CHANGED_BYTES_MAX)
    }

    fn within(
        below: ImageDirectory,
        changed_bytes_max: u64,
    ) -> Result<(CopyOnWrite, Image, RecoveryReport), DriveError> {
        let (patches, lengths) = Default::default();
        let mut files = CopyOnWrite { below, patches, lengths, changed_bytes_max, is_exhausted: false };
        match zonda_image::open(&mut files) {
            Ok((image, report)) => Ok((files, image, report)),
            Err(_) if files.is_exhausted => {
                let path = files.below.path().display();
                Err(DriveError::new(
                    format!(
                        "the image in {path} cannot be opened read-only: its recovery changes more than {} of its files, and that \
                         would have to stay in memory",
                        ByteSize(changed_bytes_max)
                    ),
                    format!(
                        "let it recover once on the disk: start zonda serve {path} without --read-only, and stop it"
                    ),
                ))
            }
            Err(error) => Err(unusable_image(files.below.path(), &error)),
        }
    }

    /// A file as it is on the disk. What [`apply`](CopyOnWrite::apply) puts over it is missing.
    pub(crate) fn file(&mut self, file: ImageFile) -> Result<Rc<File>, FileError> {
        self.below.file(file)
    }

    /// Puts what was written over what the file has from `offset` on.
    pub(crate) fn apply(&self, file: ImageFile, offset: u64, buffer: &mut [u8]) {
        self.patches[file as usize].apply(offset, buffer);
    }

    /// Does what an image asks for, at once.
    pub(crate) fn carry_out(&mut self, operation: FileOperation) -> Result<Bytes, FileError> {
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
        let end = offset + bytes.len() as u64;
        self.make_room(bytes.len() as u64)?;
        if end > self.length(file).unwrap_or(0) {
            self.lengths[file as usize] = Some(end);
        }
        self.patches[file as usize].write(offset, bytes);
        Ok(())
    }

    /// Whether a change of so many bytes may be kept.
    fn make_room(&mut self, bytes: u64) -> Result<(), FileError> {
        let kept: u64 = self.patches.iter().map(Patches::memory_bytes).sum();
        if kept + EXTENT_BYTES + bytes > self.changed_bytes_max {
            self.is_exhausted = true;
            return Err(FileError::StorageFull);
        }
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
        self.make_room(0)?;
        self.patches[file as usize].zero(offset, offset.saturating_add(length));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use zonda_image::ImageSpec;
    use zonda_zoned::Geometry;

    use super::*;
    use crate::create_image_of;

    #[test]
    fn an_image_whose_recovery_takes_more_memory_than_allowed_is_refused_in_words() {
        let directory = tempfile::tempdir().expect("a directory");
        create_image_of(directory.path(), &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16]))
            .expect("it is empty");
        let open = |bytes| {
            let below = ImageDirectory::look_alone(directory.path()).expect("no program uses it");
            CopyOnWrite::within(below, bytes)
                .map(|(files, ..)| files.patches.iter().map(Patches::memory_bytes).sum::<u64>())
        };
        let taken = open(CHANGED_BYTES_MAX).expect("there is memory");
        assert!(taken < 64 << 10, "{taken} bytes for an image of eight zones");
        assert_eq!(open(taken), Ok(taken));
        let error = open(taken - 1).expect_err("the last change has no place");
        assert!(error.message.contains("cannot be opened read-only: its recovery changes more than"), "{error}");
        assert!(error.help.contains("start zonda serve"), "{error}");
    }
}
