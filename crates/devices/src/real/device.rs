//! A drive of this machine by its device file, whatever its driver.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use zonda_ring::{Client, FileOptions, Ring, Waker};

use super::kernel_zoned::{KernelZoned, PreparedBlockDevice};
use super::nvme_passthrough::PreparedNamespace;
use crate::{Drive, DriveError};

/// For what a device file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMode {
    /// Nothing is written: the kernel refuses writes.
    ReadOnly,
    /// Reads, writes and zone management.
    ReadWrite,
}

impl DeviceMode {
    pub(super) fn file_options(self) -> FileOptions {
        match self {
            DeviceMode::ReadOnly => FileOptions::read_only(),
            DeviceMode::ReadWrite => FileOptions::read_write(),
        }
    }
}

/// Opens a zoned drive of this machine by its device file, exclusively. Blocks until the state of its
/// zones is known.
///
/// # Errors
/// When it does not exist, is no zoned drive, is in use or must not be opened; with the remedy.
pub fn open_device(path: &Path, mode: DeviceMode, ring: &Ring) -> Result<Box<dyn Drive>, DriveError> {
    PreparedDevice::open(path, mode)?.attach(ring.client(), ring.waker())
}

/// A block device without zones as a zoned drive whose zones are all full, or all empty: read and
/// written as one, for benchmarks. Zones cannot be managed.
///
/// # Errors
/// The error of `open(2)`.
#[cfg(feature = "testing")]
pub fn device_without_zones(
    path: &Path,
    geometry: &zonda_zoned::Geometry,
    is_full: bool,
    ring: &Ring,
) -> std::io::Result<Box<dyn Drive>> {
    let options = FileOptions { direct: true, ..FileOptions::read_write() };
    let file = zonda_ring::File::open(path, options)?;
    let state = if is_full { zonda_zoned::ZoneState::Full } else { zonda_zoned::ZoneState::Empty };
    let found = super::FoundZone::new(state, zonda_zoned::Blocks::ZERO);
    Ok(Box::new(KernelZoned::without_zones(file, geometry, &found, ring)))
}

/// A drive of this machine that was opened, and is not attached to a ring yet. The ring may belong to
/// another thread.
pub(crate) enum PreparedDevice {
    Block(Box<PreparedBlockDevice>),
    Namespace(Box<PreparedNamespace>),
}

impl PreparedDevice {
    /// Opens a drive, and reads the state of its zones. Blocks.
    pub(crate) fn open(path: &Path, mode: DeviceMode) -> Result<PreparedDevice, DriveError> {
        let kind = std::fs::metadata(path).map(|found| found.file_type());
        if kind.is_ok_and(|kind| kind.is_char_device()) {
            return Ok(PreparedDevice::Namespace(Box::new(PreparedNamespace::open(path, mode)?)));
        }
        Ok(PreparedDevice::Block(Box::new(PreparedBlockDevice::open(path, mode)?)))
    }

    /// Attaches the drive to a ring.
    pub(crate) fn attach(self, client: Client, waker: Waker) -> Result<Box<dyn Drive>, DriveError> {
        Ok(match self {
            PreparedDevice::Block(prepared) => Box::new(KernelZoned::of(*prepared, client, waker)),
            PreparedDevice::Namespace(prepared) => Box::new(prepared.attach(waker)?),
        })
    }
}
