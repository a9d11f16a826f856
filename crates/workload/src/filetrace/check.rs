//! Checks that a trace can be executed line by line: which files exist, and which of them are open.

use std::collections::BTreeMap;

use super::entry::{FileName, FileOperation};
use super::limits::FILES_MAX;

/// The files that a trace has created so far.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    files: BTreeMap<FileName, FileState>,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct FileState {
    is_open: bool,
    bytes: u64,
}

/// The error of an operation, and its remedy.
pub(super) struct Misuse {
    pub(super) message: String,
    pub(super) help: &'static str,
}

impl FileTable {
    /// The interned name, so that a file that occurs repeatedly is in memory once.
    pub(super) fn interned(&self, name: &str) -> FileName {
        self.files.get_key_value(name).map_or_else(|| name.into(), |(known, _)| known.clone())
    }

    /// The maximum number of bytes in files at one time.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Executes an operation.
    pub(super) fn apply(&mut self, operation: &FileOperation) -> Result<(), Misuse> {
        match operation {
            FileOperation::Create { file, .. } => self.create(file),
            FileOperation::Append { file, bytes } => {
                self.open(file)?.bytes += bytes;
                self.bytes += bytes;
                self.bytes_max = self.bytes_max.max(self.bytes);
                Ok(())
            }
            FileOperation::Sync { file } => self.open(file).map(|_| ()),
            FileOperation::Close { file } => {
                self.open(file)?.is_open = false;
                Ok(())
            }
            FileOperation::Read { file, .. } => self.existing(file).map(|_| ()),
            FileOperation::Rename { file, to } => self.rename(file, to),
            FileOperation::Delete { file } => {
                self.existing(file)?;
                self.remove(file);
                Ok(())
            }
            FileOperation::Think { .. } => Ok(()),
        }
    }

    fn create(&mut self, file: &FileName) -> Result<(), Misuse> {
        if self.files.contains_key(file) {
            let message = format!("file {file} already exists");
            return Err(Misuse { message, help: "delete it first, or choose another name" });
        }
        if self.files.len() == FILES_MAX {
            let message = format!("the maximum of {FILES_MAX} files is reached");
            return Err(Misuse { message, help: "delete some before you create more" });
        }
        self.files.insert(file.clone(), FileState { is_open: true, bytes: 0 });
        Ok(())
    }

    fn rename(&mut self, file: &FileName, to: &FileName) -> Result<(), Misuse> {
        if file == to {
            let message = format!("{file} is renamed to itself");
            return Err(Misuse { message, help: "write another name, or remove the line" });
        }
        let state = *self.existing(file)?;
        self.remove(to);
        self.files.remove(file);
        self.files.insert(to.clone(), state);
        Ok(())
    }

    fn remove(&mut self, file: &FileName) {
        self.bytes -= self.files.remove(file).map_or(0, |state| state.bytes);
    }

    fn existing(&mut self, file: &FileName) -> Result<&mut FileState, Misuse> {
        let help = "create it first; names are case-sensitive";
        self.files.get_mut(file).ok_or_else(|| Misuse { message: format!("file {file} does not exist"), help })
    }

    fn open(&mut self, file: &FileName) -> Result<&mut FileState, Misuse> {
        let state = self.existing(file)?;
        if state.is_open {
            return Ok(state);
        }
        let message = format!("{file} is closed and accepts no more data");
        Err(Misuse { message, help: "close a file after its last append and sync" })
    }
}
