//! The files of a damaged image: unreadable parts match no block, and nothing is written.

use crate::format::layout::Layout;
use crate::format::tag::LOST_BYTE;
use crate::limits::PAGE_BYTES;
use crate::{FileError, Files, ImageFile};

/// Presents files in their full length, whatever is left of them.
///
/// Missing or unreadable tags are replaced by tags that match no block. Missing data are a read
/// error. A missing part is not a hole.
pub(super) struct DamagedFiles<'a> {
    files: &'a mut dyn Files,
    layout: Layout,
}

impl<'a> DamagedFiles<'a> {
    pub(super) fn new(files: &'a mut dyn Files, layout: Layout) -> DamagedFiles<'a> {
        DamagedFiles { files, layout }
    }

    /// The real length of a file; 0 for a missing one.
    pub(super) fn found_length(&mut self, file: ImageFile) -> u64 {
        self.files.length(file).unwrap_or(0)
    }

    /// A whole file, with zeros where it cannot be read, and whether all of it could be read.
    pub(super) fn whole(&mut self, file: ImageFile) -> (Vec<u8>, bool) {
        let mut bytes = vec![0; self.layout.length(file) as usize];
        let is_read = self.fill(file, 0, &mut bytes, 0);
        (bytes, is_read)
    }

    /// Reads, and fills what cannot be read. Returns whether nothing had to be filled.
    fn fill(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8], filler: u8) -> bool {
        if let Ok(found) = self.files.read_at(file, offset, buffer) {
            buffer[found..].fill(filler);
            return found == buffer.len();
        }
        let mut at = 0;
        while at < buffer.len() {
            let page_end = (offset + at as u64 + 1).next_multiple_of(PAGE_BYTES) - offset;
            let end = buffer.len().min(page_end as usize);
            let page = &mut buffer[at..end];
            let found = self.files.read_at(file, offset + at as u64, page).unwrap_or(0);
            page[found..].fill(filler);
            at = end;
        }
        false
    }
}

impl Files for DamagedFiles<'_> {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if file != ImageFile::Tags {
            return self.files.read_at(file, offset, buffer);
        }
        self.fill(file, offset, buffer, LOST_BYTE);
        Ok(buffer.len())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        Ok(self.layout.length(file))
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let end = self.found_length(file).max(offset);
        let missing = (end < self.layout.length(file)).then_some(end);
        match self.files.next_data(file, offset) {
            Ok(found) => Ok(found.or(missing)),
            Err(_) => Ok(Some(offset)),
        }
    }

    fn write_at(&mut self, _file: ImageFile, _offset: u64, _bytes: &[u8]) -> Result<(), FileError> {
        Err(never_written())
    }

    fn sync(&mut self, _file: ImageFile) -> Result<(), FileError> {
        Err(never_written())
    }

    fn set_length(&mut self, _file: ImageFile, _length: u64) -> Result<(), FileError> {
        Err(never_written())
    }

    fn punch_hole(&mut self, _file: ImageFile, _offset: u64, _length: u64) -> Result<(), FileError> {
        Err(never_written())
    }
}

fn never_written() -> FileError {
    FileError::Other("a repair does not write to the damaged image".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::spec;
    use crate::{MemoryFiles, create};
    use zonda_zoned::Geometry;

    #[test]
    fn a_missing_part_is_neither_a_hole_nor_zeros_and_nothing_can_be_written() {
        let spec = spec(Geometry::tiny());
        let layout = Layout::new(&spec.geometry, spec.journal_bytes);
        let mut files = MemoryFiles::new();
        create(&spec, &mut files).unwrap();
        let whole = layout.length(ImageFile::Tags);
        files.bytes_mut(ImageFile::Tags).truncate(20);
        files.bytes_mut(ImageFile::Data).truncate(512);
        let mut damaged = DamagedFiles::new(&mut files, layout);
        assert_eq!(damaged.length(ImageFile::Tags), Ok(whole));
        assert_eq!(damaged.found_length(ImageFile::Tags), 20);
        let mut tags = [1; 24];
        assert_eq!(damaged.read_at(ImageFile::Tags, 0, &mut tags), Ok(24));
        assert_eq!((&tags[..20], &tags[20..]), (&[0; 20][..], &[LOST_BYTE; 4][..]));
        assert_eq!(damaged.read_at(ImageFile::Data, 0, &mut [0; 1024]), Ok(512));
        assert_eq!(damaged.next_data(ImageFile::Data, 4096), Ok(Some(4096)));
        assert!(damaged.write_at(ImageFile::Tags, 0, &[1]).is_err() && damaged.sync(ImageFile::Tags).is_err());
        assert!(damaged.set_length(ImageFile::Tags, 0).is_err() && damaged.punch_hole(ImageFile::Tags, 0, 9).is_err());
    }
}
