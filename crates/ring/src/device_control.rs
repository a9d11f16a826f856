//! Requests to a block device beside reads and writes (`ioctl`). They block, so they are for threads
//! beside the loop. One of the three files with unsafe code.
//!
//! The structures and numbers are those of `linux/blkzoned.h`. Their bytes are the caller's.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::File;

/// The block layer's requests for zones: group and number (`linux/blkzoned.h`).
const GROUP: u8 = 0x12;
const REPORT: u8 = 130;
/// Bytes of `struct blk_zone_report` before its zones, and of one `struct blk_zone`.
const REPORT_HEADER_BYTES: usize = 16;
const ZONE_BYTES: usize = 64;

/// A request to change the state of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneRequest {
    /// `BLKRESETZONE`.
    Reset,
    /// `BLKOPENZONE`.
    Open,
    /// `BLKCLOSEZONE`.
    Close,
    /// `BLKFINISHZONE`.
    Finish,
}

impl ZoneRequest {
    fn number(self) -> u8 {
        match self {
            ZoneRequest::Reset => 131,
            ZoneRequest::Open => 134,
            ZoneRequest::Close => 135,
            ZoneRequest::Finish => 136,
        }
    }
}

impl File {
    /// Fills `report`, a `struct blk_zone_report` whose header the caller has written: `BLKREPORTZONE`.
    /// Blocks.
    ///
    /// # Errors
    /// `InvalidInput` for a buffer smaller than its header says; otherwise the error of `ioctl(2)`:
    /// `ENOTTY` for a file that is not a zoned block device, ...
    pub fn report_zones(&self, report: &mut [u8]) -> io::Result<()> {
        let zones = report.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes) as usize;
        let wanted = zones.checked_mul(ZONE_BYTES).and_then(|bytes| bytes.checked_add(REPORT_HEADER_BYTES));
        if wanted.is_none_or(|wanted| report.len() < wanted) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let request = OfBytes { opcode: opcode::read_write::<[u64; 2]>(GROUP, REPORT), bytes: report };
        // SAFETY: the request reads and writes a `struct blk_zone_report` and at most as many zones as
        // its header says, all of which are in the buffer.
        Ok(unsafe { rustix::ioctl::ioctl(self.as_fd(), request) }?)
    }

    /// Changes the state of the zones in a range of sectors of 512 bytes. Blocks.
    ///
    /// # Errors
    /// The error of `ioctl(2)`.
    pub fn change_zones(&self, request: ZoneRequest, sector: u64, sectors: u64) -> io::Result<()> {
        // `struct blk_zone_range`.
        let mut range = [0; 16];
        range[..8].copy_from_slice(&sector.to_ne_bytes());
        range[8..].copy_from_slice(&sectors.to_ne_bytes());
        let request = OfBytes { opcode: opcode::write::<[u64; 2]>(GROUP, request.number()), bytes: &mut range };
        // SAFETY: the request reads a `struct blk_zone_range`, which is the buffer.
        Ok(unsafe { rustix::ioctl::ioctl(self.as_fd(), request) }?)
    }
}

/// A request whose argument is a pointer to these bytes.
struct OfBytes<'a> {
    opcode: Opcode,
    bytes: &'a mut [u8],
}

// SAFETY: the pointer is valid for reads and writes of the buffer, which is borrowed exclusively. That
// the driver stays within it is the duty of the callers above.
unsafe impl Ioctl for OfBytes<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileOptions;

    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!(opcode::read_write::<[u64; 2]>(GROUP, REPORT), 0xc010_1282);
        let numbers = [ZoneRequest::Reset, ZoneRequest::Open, ZoneRequest::Close, ZoneRequest::Finish]
            .map(|request| opcode::write::<[u64; 2]>(GROUP, request.number()));
        assert_eq!(numbers, [0x4010_1283, 0x4010_1286, 0x4010_1287, 0x4010_1288]);
    }

    #[test]
    fn a_report_larger_than_its_buffer_and_a_file_without_zones_are_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(file.path(), FileOptions::read_write()).unwrap();
        let mut report = [0; 16 + 64];
        report[8..12].copy_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(file.report_zones(&mut report).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        report[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        let not_a_device = Some(rustix::io::Errno::NOTTY.raw_os_error());
        assert_eq!(file.report_zones(&mut report).unwrap_err().raw_os_error(), not_a_device);
        assert_eq!(file.change_zones(ZoneRequest::Reset, 0, 8).unwrap_err().raw_os_error(), not_a_device);
    }
}
