//! The product has no mock drives: its drives, files and random numbers are real.

use std::io;
use std::path::Path;

use crate::{Access, Drive, DriveError};

pub(crate) const fn open(_: &Access) -> Option<Result<Box<dyn Drive>, DriveError>> {
    None
}

pub(crate) const fn is_remote(_: &Path) -> bool {
    false
}

pub(crate) const fn can_vanish(_: &Path) -> bool {
    false
}

pub(crate) const fn uuid() -> Option<[u8; 16]> {
    None
}

pub(crate) const fn on_save(_: &Path) -> Option<io::Result<()>> {
    None
}
