//! Creates the files of a new drive.

use crate::format::checkpoint;
use crate::format::entry::Ledger;
use crate::format::layout::Layout;
use crate::format::superblock;
use crate::open::begin_journal;
use crate::{FileError, Files, ImageError, ImageFile, ImageSpec};

/// The sequence of the first checkpoint.
const FIRST_SEQUENCE: u64 = 1;
/// Bytes written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Creates the files of a new drive. The superblock is written last: files without one are not
/// an image, and may be created again.
///
/// State and journal are written out whole, so that a file system that fills up later does not stop
/// management.
///
/// # Errors
/// An invalid specification, an image that already exists, or the error of the operating system.
pub fn create(spec: &ImageSpec, files: &mut dyn Files) -> Result<(), ImageError> {
    let layout = make_files(spec, files)?;
    complete(spec, files, &Ledger::new(layout.zones))
}

/// Creates the files in their full length, without written blocks, checkpoint and superblock.
pub(crate) fn make_files(spec: &ImageSpec, files: &mut dyn Files) -> Result<Layout, ImageError> {
    spec.validate()?;
    match files.length(ImageFile::Superblock) {
        Ok(0) | Err(FileError::Missing) => {}
        Ok(_) => return Err(ImageError::Exists),
        Err(error) => return Err(ImageError::File { file: ImageFile::Superblock, operation: "look for", error }),
    }
    let layout = Layout::new(&spec.geometry, spec.journal_bytes);
    for file in [ImageFile::Data, ImageFile::Tags, ImageFile::State, ImageFile::Journal] {
        let failed = |error| ImageError::File { file, operation: "create", error };
        files.set_length(file, 0).map_err(failed)?;
        files.set_length(file, layout.length(file)).map_err(failed)?;
    }
    write_zeros(files, ImageFile::Journal, layout.length(ImageFile::Journal))?;
    write_zeros(files, ImageFile::State, layout.length(ImageFile::State))?;
    Ok(layout)
}

/// Completes an image whose blocks and tags are written: it is as after a clean shutdown. The
/// superblock is written last.
pub(crate) fn complete(spec: &ImageSpec, files: &mut dyn Files, ledger: &Ledger) -> Result<(), ImageError> {
    let layout = Layout::new(&spec.geometry, spec.journal_bytes);
    for slot in 0..2 {
        let copy = checkpoint::encode(&layout, &spec.uuid, FIRST_SEQUENCE, true, ledger);
        write(files, ImageFile::State, layout.slot_offset(slot), &copy)?;
    }
    for file in [ImageFile::Data, ImageFile::Tags, ImageFile::State] {
        sync(files, file)?;
    }
    begin_journal(files, &spec.uuid, FIRST_SEQUENCE)?;
    let copy = superblock::encode(spec);
    write(files, ImageFile::Superblock, 0, &copy)?;
    write(files, ImageFile::Superblock, copy.len() as u64, &copy)?;
    sync(files, ImageFile::Superblock)
}

fn write_zeros(files: &mut dyn Files, file: ImageFile, length: u64) -> Result<(), ImageError> {
    let zeros = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < length {
        let bytes = (length - offset).min(CHUNK_BYTES as u64);
        write(files, file, offset, &zeros[..bytes as usize])?;
        offset += bytes;
    }
    Ok(())
}

/// Writes, and names the file and the operation in an error.
pub(crate) fn write(files: &mut dyn Files, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
    files.write_at(file, offset, bytes).map_err(|error| ImageError::File { file, operation: "write", error })
}

/// Syncs, and names the file in an error.
pub(crate) fn sync(files: &mut dyn Files, file: ImageFile) -> Result<(), ImageError> {
    files.sync(file).map_err(|error| ImageError::File { file, operation: "sync", error })
}
