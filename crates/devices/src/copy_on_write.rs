//! [`CopyOnWrite`]: the files of an image, opened read-only; writes to them stay in memory.

mod patches;

use std::rc::Rc;

use zonda_config::ByteSize;
use zonda_image::{FileError, FileOperation, Files, Image, ImageFile, RecoveryReport};
use zonda_ring::{Bytes, File};

use crate::file_backed::unusable_image;
use crate::{DriveError, ImageDirectory};
use patches::{EXTENT_BYTES, Patches};

/// Bytes of memory for the changes to one image. The recovery after a crash writes the checkpoint
/// twice, at most the length of the journal, and a little for each repaired block: megabytes,
/// unless the journal was created hundreds of times longer than by default. Beyond the limit writes
/// fail with Capacity Exceeded.
pub(crate) const CHANGED_BYTES_MAX: u64 = 1 << 30;

/// The files of an image, and an overlay in memory with the changes to them.
pub(crate) struct CopyOnWrite {
    below: ImageDirectory,
    patches: [Patches; ImageFile::ALL.len()],
    /// New lengths of files that were resized or extended.
    lengths: [Option<u64>; ImageFile::ALL.len()],
    /// [`CHANGED_BYTES_MAX`]; less in tests.
    changed_bytes_max: u64,
    /// A change exceeded the memory limit.
    is_exhausted: bool,
}

impl CopyOnWrite {
    /// Opens the image in these files; crash recovery is done in memory.
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
                        "cannot open the image in {path} read-only: its recovery changes more than {} of its files, \
                         and the changes have to stay in memory",
                        ByteSize(changed_bytes_max)
                    ),
                    format!("recover it once on the disk: start zonda serve {path} without --read-only, and stop it"),
                ))
            }
            Err(error) => Err(unusable_image(files.below.path(), &error)),
        }
    }

    /// A file as it is on the disk, without the changes that [`apply`](CopyOnWrite::apply) adds.
    pub(crate) fn file(&mut self, file: ImageFile) -> Result<Rc<File>, FileError> {
        self.below.file(file)
    }

    /// Applies the changes to a buffer that was read from the file at `offset`.
    pub(crate) fn apply(&self, file: ImageFile, offset: u64, buffer: &mut [u8]) {
        self.patches[file as usize].apply(offset, buffer);
    }

    /// Executes a file operation of the image synchronously.
    pub(crate) fn carry_out(&mut self, operation: FileOperation) -> Result<Bytes, FileError> {
        match operation {
            FileOperation::Read { file, offset, length } => {
                let mut buffer = vec![0; length];
                let found = self.read_at(file, offset, &mut buffer)?;
                if found < length {
                    return Err(FileError::Other("unexpected end of file".to_owned()));
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
        self.reserve_memory(bytes.len() as u64)?;
        if end > self.length(file).unwrap_or(0) {
            self.lengths[file as usize] = Some(end);
        }
        self.patches[file as usize].write(offset, bytes);
        Ok(())
    }

    /// Fails if a change of so many bytes would exceed the memory limit.
    fn reserve_memory(&mut self, bytes: u64) -> Result<(), FileError> {
        let used: u64 = self.patches.iter().map(Patches::memory_bytes).sum();
        if used + EXTENT_BYTES + bytes > self.changed_bytes_max {
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
        // A later write that extends the file again reads as zeros in between.
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
        self.reserve_memory(0)?;
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
    fn an_image_whose_recovery_exceeds_the_memory_limit_is_refused_with_a_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        create_image_of(directory.path(), &ImageSpec::new(Geometry::tiny(), String::new(), [7; 16]))
            .expect("it is empty");
        let open = |bytes| {
            let below = ImageDirectory::open_shared(directory.path()).expect("no program uses it");
            CopyOnWrite::within(below, bytes)
                .map(|(files, ..)| files.patches.iter().map(Patches::memory_bytes).sum::<u64>())
        };
        let used = open(CHANGED_BYTES_MAX).expect("the limit is not reached");
        assert!(used < 64 << 10, "{used} bytes for an image of eight zones");
        assert_eq!(open(used), Ok(used));
        let error = open(used - 1).expect_err("the last change exceeds the limit");
        assert!(error.message.contains("read-only: its recovery changes more than"), "{error}");
        assert!(error.help.contains("start zonda serve"), "{error}");
    }
}
