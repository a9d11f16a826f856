//! The bits of the capability fields of Identify Controller (NVMe Base 2.0, Figure 275) that this
//! stack sets or reads.

/// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC), byte 76.
pub mod sharing {
    /// Bit 0: the subsystem may have more than one port.
    pub const MULTIPLE_PORTS: u8 = 1 << 0;
    /// Bit 1: the subsystem may have more than one controller. Without it Linux refuses a second
    /// one.
    pub const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
}

/// Controller Attributes (CTRATT), bytes 99:96.
pub mod attributes {
    /// Bit 0: 128-bit host identifiers, which Fabrics requires.
    pub const LONG_HOST_IDENTIFIER: u32 = 1 << 0;
    /// Bit 6, TBKAS: any command restarts the keep alive timer.
    pub const TRAFFIC_KEEPS_ALIVE: u32 = 1 << 6;
    /// Bit 16, MEM: MDTS and the other size limits do not count metadata.
    pub const LIMITS_EXCLUDE_METADATA: u32 = 1 << 16;
}

/// Log Page Attributes (LPA), byte 261.
pub mod log_attributes {
    /// Bit 0: SMART for each namespace.
    pub const NAMESPACE_SMART: u8 = 1 << 0;
    /// Bit 1: Commands Supported and Effects. Linux reads it only then, and without it zones are
    /// read only.
    pub const COMMAND_EFFECTS: u8 = 1 << 1;
    /// Bit 2: offsets, and lengths of more than 12 bits, in Get Log Page.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Bit 5: Supported Log Pages *and* Feature Identifiers Supported and Effects *and* scopes in
    /// the effects.
    pub const SUPPORTED_PAGES_AND_SCOPES: u8 = 1 << 5;
}

/// Optional NVM Command Support (ONCS), bytes 521:520.
pub mod optional_commands {
    /// Bit 0: Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Bit 1: Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Bit 2: Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Bit 3: Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Bit 4: the Save bit of Set Features and the Select field of Get Features.
    pub const FEATURE_SAVE_AND_SELECT: u16 = 1 << 4;
    /// Bit 5: reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Bit 6: the Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Bit 7: Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Bit 8: Copy.
    pub const COPY: u16 = 1 << 8;
}

/// Volatile Write Cache (VWC), byte 525.
pub mod write_cache {
    /// Bit 0: there is a volatile write cache, so Flush has an effect.
    pub const PRESENT: u8 = 1 << 0;
    /// Bits 2:1 = 10b: Flush does not support the broadcast namespace FFFFFFFFh.
    pub const FLUSH_ONE_NAMESPACE: u8 = 0b10 << 1;
    /// Bits 2:1 = 11b: Flush with namespace FFFFFFFFh flushes all namespaces.
    pub const FLUSH_ALL_NAMESPACES: u8 = 0b11 << 1;
}

/// SGL Support (SGLS), bytes 539:536.
pub mod sgl_support {
    /// Bits 1:0 = 01b: SGLs, without alignment. Linux refuses a Fabrics controller without SGLs.
    pub const SUPPORTED: u32 = 0b01;
    /// Bit 2: keyed data block descriptors, for RDMA. Never set here.
    pub const KEYED: u32 = 1 << 2;
    /// Bit 20: the address of a descriptor may be an offset: data within the capsule.
    pub const OFFSET_ADDRESS: u32 = 1 << 20;
    /// Bit 21: Transport SGL Data Block descriptors.
    pub const TRANSPORT_DATA_BLOCK: u32 = 1 << 21;
}
