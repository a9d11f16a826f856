//! The data structures of the Identify command (NVMe Base 2.0, section 5.17; NVM Command Set 1.0,
//! section 4.1.5; Zoned Namespace Command Set 1.1, section 4.1.5), and the conversions from and to
//! a [`zonda_zoned::Geometry`].

pub mod capabilities;
mod controller;
#[cfg(test)]
mod controller_tests;
mod geometry;
mod independent;
mod linux;
mod lists;
mod namespace;
mod nvm_controller;
mod request;
mod transfer;
mod zns_controller;
mod zns_namespace;

pub use controller::{Controller, ControllerKind, DiscoveryController, IoController, PowerState, VERSION_2_0};
pub use geometry::{ZonedPages, geometry_from};
pub use independent::IndependentNamespace;
pub use linux::{LinuxRefusal, linux_accepts};
pub use lists::{CommandSetVector, NamespaceIdentity, NamespaceList, parse_descriptors, write_descriptors};
pub use namespace::{LbaFormat, NvmNamespace};
pub use nvm_controller::NvmController;
pub use request::{CommandSet, IdentifyRequest, Structure};
pub use transfer::{MEMORY_PAGE_BYTES, transfer_blocks, transfer_exponent};
pub use zns_controller::ZnsController;
pub use zns_namespace::{LbaFormatExtension, ZnsNamespace, zone_resources};

/// Bytes of every Identify data structure (NVMe Base 2.0, section 5.17.1).
pub const IDENTIFY_BYTES: usize = 4096;
/// RESCAP: bits 6:1 all types of reservations; bit 7 IEKEY as in revision 1.3 (Register only). Bit
/// 0 depends on the namespace.
pub(crate) const RESERVATION_CAPABILITIES: u8 = 0b1111_1110;
/// RESCAP bit 0: Persist Through Power Loss is supported.
pub(crate) const RESERVATIONS_CAN_PERSIST: u8 = 1;
