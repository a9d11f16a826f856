//! Files that detect forbidden operations.

use zonda_image::{FileError, Files, ImageFile, MemoryFiles};

/// Operations of one procedure on a small image; many times what any of them needs.
const OPERATIONS_MAX: u32 = 200_000;

/// Panics at a read past the end of a file, at a write to read-only files, and at a procedure that
/// does not end.
pub(super) struct Watched<'a> {
    files: &'a mut MemoryFiles,
    is_read_only: bool,
    operations: u32,
}

impl<'a> Watched<'a> {
    pub(super) fn new(files: &'a mut MemoryFiles) -> Watched<'a> {
        Watched { files, is_read_only: false, operations: 0 }
    }

    pub(super) fn read_only(self) -> Watched<'a> {
        Watched { is_read_only: true, ..self }
    }

    fn count(&mut self, writes: bool) {
        assert!(!(writes && self.is_read_only), "inspection writes nothing");
        self.operations += 1;
        assert!(self.operations < OPERATIONS_MAX, "a procedure on a small image ends");
    }

    fn check_range(&mut self, file: ImageFile, offset: u64, length: u64) {
        // The superblock is read before its length is known, so its file may be shorter.
        if file != ImageFile::Superblock
            && let Ok(whole) = self.files.length(file)
        {
            let end = offset.checked_add(length).expect("the end of a range does not overflow");
            assert!(end <= whole, "{file}: {offset}..{end} of {whole} bytes");
        }
    }
}

impl Files for Watched<'_> {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.count(false);
        self.check_range(file, offset, buffer.len() as u64);
        self.files.read_at(file, offset, buffer)
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.count(true);
        self.check_range(file, offset, bytes.len() as u64);
        self.files.write_at(file, offset, bytes)
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.count(true);
        self.files.sync(file)
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.count(true);
        self.files.set_length(file, length)
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.count(false);
        self.files.length(file)
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.count(true);
        self.check_range(file, offset, length);
        self.files.punch_hole(file, offset, length)
    }
}
