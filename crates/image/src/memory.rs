//! The files of an image in memory: for examples, tests, and volatile drives.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{FileError, FileOperation, Files, ImageFile};

/// Files that exist as long as this value. Operations do not fail, and a sync does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFiles {
    files: BTreeMap<ImageFile, Vec<u8>>,
}

impl MemoryFiles {
    /// No files.
    #[must_use]
    pub fn new() -> MemoryFiles {
        MemoryFiles::default()
    }

    /// Carries out an operation immediately.
    ///
    /// # Errors
    /// [`FileError::Missing`] without the file, or for a read past its end.
    pub fn carry_out(&mut self, operation: FileOperation) -> Result<Bytes, FileError> {
        match operation {
            FileOperation::Read { file, offset, length } => {
                let mut buffer = vec![0; length];
                let found = self.read_at(file, offset, &mut buffer)?;
                if found < length { Err(FileError::Other("unexpected end of file".into())) } else { Ok(buffer.into()) }
            }
            FileOperation::Write { file, offset, pieces } => {
                let mut at = offset;
                for piece in pieces {
                    self.write_at(file, at, &piece)?;
                    at += piece.len() as u64;
                }
                Ok(Bytes::new())
            }
            FileOperation::Sync { .. } | FileOperation::Allocate { .. } => Ok(Bytes::new()),
            FileOperation::PunchHole { file, offset, length } => {
                self.punch_hole(file, offset, length).map(|()| Bytes::new())
            }
        }
    }

    /// A file's bytes, to be inspected or damaged.
    pub fn bytes_mut(&mut self, file: ImageFile) -> &mut Vec<u8> {
        self.files.entry(file).or_default()
    }
}

impl Files for MemoryFiles {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let bytes = self.files.get(&file).ok_or(FileError::Missing)?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let found = rest.len().min(buffer.len());
        buffer[..found].copy_from_slice(&rest[..found]);
        Ok(found)
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let held = self.files.entry(file).or_default();
        let end = offset as usize + bytes.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, _file: ImageFile) -> Result<(), FileError> {
        Ok(())
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.files.entry(file).or_default().resize(length as usize, 0);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.files.get(&file).map(|bytes| bytes.len() as u64).ok_or(FileError::Missing)
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        let bytes = self.files.get_mut(&file).ok_or(FileError::Missing)?;
        let end = bytes.len().min((offset + length) as usize);
        if let Some(range) = bytes.get_mut(offset as usize..end) {
            range.fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_write_are_contiguous() {
        let mut files = MemoryFiles::default();
        let pieces = ["abc", "de", "f"].map(|piece| Bytes::from_static(piece.as_bytes()));
        let write = FileOperation::Write { file: ImageFile::Journal, offset: 5, pieces: pieces.to_vec() };
        files.carry_out(write).expect("memory has space");
        let read = |offset, length| FileOperation::Read { file: ImageFile::Journal, offset, length };
        assert_eq!(files.carry_out(read(5, 6)).expect("it was written"), "abcdef");
        assert!(files.carry_out(read(6, 6)).is_err(), "the file ends before");
    }
}
