//! Structures and constants of the header, in Rust. `tests/c_program.rs` compares their sizes with
//! a C compiler's.

use std::ffi::{c_char, c_void};

/// `zonda_options`; see the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RawOptions {
    pub api_version: u32,
    pub sharing: u32,
    pub host_nqn: *const c_char,
    pub secret: *const c_char,
    pub controller_secret: *const c_char,
    pub digests: u32,
    pub io_queues: u16,
    pub queue_depth: u16,
    pub connect_timeout_ms: u32,
    pub spin_us: u32,
    pub reserved: [u64; 4],
}

/// `zonda_geometry`; see the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RawGeometry {
    pub block_size_bytes: u32,
    pub metadata_bytes: u32,
    pub zone_size_blocks: u64,
    pub zone_capacity_blocks: u64,
    pub zone_count: u32,
    pub conventional_zone_count: u32,
    pub max_active_zones: u32,
    pub max_open_zones: u32,
    pub max_transfer_blocks: u64,
    pub max_append_blocks: u64,
    pub zrwa_size_blocks: u64,
    pub zrwa_flush_granularity_blocks: u64,
    pub zrwa_count: u32,
    pub read_across_zones: u32,
    pub reserved: [u64; 4],
}

/// `zonda_zone`; see the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RawZone {
    pub start: u64,
    pub capacity_blocks: u64,
    pub write_pointer: u64,
    pub zone_type: u8,
    pub state: u8,
    pub attributes: u8,
    pub reserved: [u8; 5],
}

/// `zonda_command`; see the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RawCommand {
    pub opcode: u32,
    pub flags: u32,
    pub lba: u64,
    pub blocks: u64,
    pub data: *mut c_void,
    pub data_bytes: usize,
    pub metadata: *mut c_void,
    pub metadata_bytes: usize,
    pub user_data: *mut c_void,
    pub reserved: [u64; 2],
}

/// `zonda_result`; see the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct RawResult {
    pub user_data: *mut c_void,
    pub bytes: u64,
    pub lba: u64,
    pub error: i32,
    pub status: u16,
    pub reserved: u16,
}

/// `ZONDA_NO_WRITE_POINTER`.
pub const NO_WRITE_POINTER: u64 = u64::MAX;
/// `ZONDA_STATUS_NONE`.
pub const STATUS_NONE: u16 = 0xffff;
/// `ZONDA_ALL_ZONES`.
pub const ALL_ZONES: u32 = 1;
/// `ZONDA_ALLOCATE_ZRWA`.
pub const ALLOCATE_ZRWA: u32 = 2;

/// `zonda_command.opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Opcode {
    Read = 1,
    Write = 2,
    Append = 3,
    WriteZeroes = 4,
    Deallocate = 5,
    Flush = 6,
    ZoneOpen = 16,
    ZoneClose = 17,
    ZoneFinish = 18,
    ZoneReset = 19,
    ZoneOffline = 20,
    ZoneFlushZrwa = 21,
}

impl Opcode {
    /// All opcodes.
    pub const ALL: [Opcode; 12] = [
        Opcode::Read,
        Opcode::Write,
        Opcode::Append,
        Opcode::WriteZeroes,
        Opcode::Deallocate,
        Opcode::Flush,
        Opcode::ZoneOpen,
        Opcode::ZoneClose,
        Opcode::ZoneFinish,
        Opcode::ZoneReset,
        Opcode::ZoneOffline,
        Opcode::ZoneFlushZrwa,
    ];

    /// Its name in NVMe.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Read => "Read",
            Opcode::Write => "Write",
            Opcode::Append => "Zone Append",
            Opcode::WriteZeroes => "Write Zeroes",
            Opcode::Deallocate => "Deallocate",
            Opcode::Flush => "Flush",
            Opcode::ZoneOpen => "Open Zone",
            Opcode::ZoneClose => "Close Zone",
            Opcode::ZoneFinish => "Finish Zone",
            Opcode::ZoneReset => "Reset Zone",
            Opcode::ZoneOffline => "Offline Zone",
            Opcode::ZoneFlushZrwa => "Flush ZRWA",
        }
    }

    /// The opcode with a number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Opcode> {
        Opcode::ALL.into_iter().find(|opcode| *opcode as u32 == number)
    }
}

/// `zonda_options.sharing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Images are shared, servers are not.
    Auto,
    /// An owner thread, shared by all handles of the process.
    Yes,
    /// The handle owns the connection.
    No,
}

impl RawCommand {
    /// A command whose other fields are zero.
    #[must_use]
    pub fn new(opcode: Opcode) -> RawCommand {
        RawCommand {
            opcode: opcode as u32,
            flags: 0,
            lba: 0,
            blocks: 0,
            data: std::ptr::null_mut(),
            data_bytes: 0,
            metadata: std::ptr::null_mut(),
            metadata_bytes: 0,
            user_data: std::ptr::null_mut(),
            reserved: [0; 2],
        }
    }
}
