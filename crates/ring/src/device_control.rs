//! Requests to a block device beside reads and writes, and to an NVMe namespace (`ioctl`). They block, so they are for threads
//! beside the loop. One of the five files with unsafe code.
//!
//! The structures and numbers are those of `linux/blkzoned.h` and
//! `linux/nvme_ioctl.h`. Their bytes are the caller's.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::{File, NvmeAnswer, NvmeCommand};

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

/// A command to the controller of a namespace, or to the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmeTarget {
    /// `NVME_IOCTL_ADMIN64_CMD`.
    Admin,
    /// `NVME_IOCTL_IO64_CMD`.
    Io,
}

impl File {
    /// The identifier of the namespace whose device is open: `NVME_IOCTL_ID`.
    ///
    /// # Errors
    /// The error of `ioctl(2)`: `ENOTTY` for a file that is not an NVMe namespace.
    pub fn nvme_namespace(&self) -> io::Result<u32> {
        // SAFETY: the request has no argument, and returns a number.
        Ok(unsafe { rustix::ioctl::ioctl(self.as_fd(), NamespaceId) }?)
    }

    /// Executes a command that returns data, which overwrites `data`, all or in part. Blocks.
    ///
    /// # Errors
    /// `InvalidInput` for an opcode that sends data; otherwise the error of `ioctl(2)`.
    pub fn nvme_receive(&self, to: NvmeTarget, command: &NvmeCommand, data: &mut [u8]) -> io::Result<NvmeAnswer> {
        let (true, Ok(length)) = (command[0] & 0b11 == 0b10, u32::try_from(data.len())) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // `struct nvme_passthru_cmd64`.
        let mut bytes = [0; 80];
        bytes[..64].copy_from_slice(command);
        bytes[2..4].fill(0);
        bytes[16..24].fill(0);
        bytes[24..32].copy_from_slice(&(data.as_mut_ptr() as u64).to_ne_bytes());
        bytes[32..36].fill(0);
        bytes[36..40].copy_from_slice(&length.to_ne_bytes());
        let number = if to == NvmeTarget::Admin { 0x47 } else { 0x48 };
        let opcode = opcode::read_write::<[u64; 10]>(b'N', number);
        // SAFETY: the request reads and writes a `struct nvme_passthru_cmd64`, which is the buffer, and
        // writes the data, which is borrowed exclusively and as long as the command says: the opcode
        // transfers from the controller to the host.
        let status = unsafe { rustix::ioctl::ioctl(self.as_fd(), Answered(OfBytes { opcode, bytes: &mut bytes })) }?;
        let result = u64::from_ne_bytes(bytes[72..].try_into().expect("eight bytes"));
        Ok(NvmeAnswer { status: status as u16, result })
    }
}

/// `NVME_IOCTL_ID`.
struct NamespaceId;

// SAFETY: the request has no argument.
unsafe impl Ioctl for NamespaceId {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(b'N', 0x40)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(output as u32)
    }
}

/// A request whose return value is a status.
struct Answered<'a>(OfBytes<'a>);

// SAFETY: as of the request inside.
unsafe impl Ioctl for Answered<'_> {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_ptr()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<IoctlOutput> {
        Ok(output)
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
        assert_eq!(opcode::read_write::<[u64; 10]>(b'N', 0x47), 0xc050_4e47);
        assert_eq!(NamespaceId.opcode(), 0x4e40);
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
        assert_eq!(file.nvme_namespace().unwrap_err().raw_os_error(), not_a_device);
        let mut command = [0; 64];
        command[0] = 0x06;
        let identify = |command: &NvmeCommand| file.nvme_receive(NvmeTarget::Admin, command, &mut [0; 64]).unwrap_err();
        assert_eq!(identify(&command).raw_os_error(), not_a_device);
        command[0] = 0x01;
        assert_eq!(identify(&command).kind(), io::ErrorKind::InvalidInput, "a write sends data");
    }
}
