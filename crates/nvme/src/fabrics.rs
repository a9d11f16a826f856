//! Fabrics commands and the controller properties they reach.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::nqn::NQN_FIELD_BYTES;
pub use crate::property::{Capabilities, Configuration, ControllerStatus, Property, VERSION_2_0};
use crate::{AdminOpcode, FabricsType, HostId, Nqn, SglDescriptor, SubmissionEntry};

/// CNTLID of a Connect that leaves the choice to the subsystem (dynamic controller model).
pub const CONTROLLER_ID_DYNAMIC: u16 = 0xffff;

/// SECP of the authentication commands: NVMe (SPC-5, security protocol E9h).
pub const SECURITY_PROTOCOL_NVME: u8 = 0xe9;

/// SPSP0 and SPSP1 of the authentication commands (NVMe Base 2.0, Figures 379 and 382).
pub const SECURITY_PROTOCOL_SPECIFIC: [u8; 2] = [0x01, 0x01];

/// Connect command (NVMe Base 2.0, Figure 387).
///
/// ```text
///  0 opcode 7Fh   1 flags   2..4 command identifier   4 type 01h   5..24 reserved   24..40 SGL
/// 40..42 record format   42..44 queue   44..46 SQ size, zero-based   46 attributes   47 reserved
/// 48..52 keep alive timeout in milliseconds   52..64 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectCommand {
    /// 7Fh.
    pub opcode: u8,
    /// As in every submission queue entry.
    pub flags: u8,
    /// Command identifier.
    pub command_id: U16,
    /// 01h.
    pub fabrics_type: u8,
    /// Zeros.
    pub reserved_5: [u8; 19],
    /// Where the Connect data is.
    pub data_pointer: SglDescriptor,
    /// RECFMT: 0.
    pub record_format: U16,
    /// QID: 0 is the admin queue.
    pub queue_id: U16,
    /// SQSIZE: entries of the queue, minus one.
    pub queue_size: U16,
    /// CATTR: priority in 1:0, disable SQ flow control in 2, deletion of single I/O queues in 3.
    pub attributes: u8,
    /// Zero.
    pub reserved_47: u8,
    /// KATO, of an admin queue only; zero disables the timer.
    pub keep_alive_timeout_ms: U32,
    /// Zeros.
    pub reserved_52: [u8; 12],
}

const _: () = assert!(size_of::<ConnectCommand>() == 64);

/// Data of the Connect command (NVMe Base 2.0, Figure 388).
///
/// ```text
///   0..16 host identifier    16..18 controller    18..256 reserved
/// 256..512 subsystem NQN    512..768 host NQN    768..1024 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: [`CONTROLLER_ID_DYNAMIC`] for a new controller, else that of the I/O queue's
    /// controller.
    pub controller_id: U16,
    /// Zeros.
    pub reserved_18: [u8; 238],
    /// SUBNQN.
    pub subsystem_nqn: [u8; NQN_FIELD_BYTES],
    /// HOSTNQN.
    pub host_nqn: [u8; NQN_FIELD_BYTES],
    /// Zeros.
    pub reserved_768: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

/// Property Set and Property Get (NVMe Base 2.0, Figures 393 and 396).
///
/// ```text
///  0..40 as in Connect, type 00h or 04h    40 size: 0 is 4 bytes, 1 is 8 bytes    41..44 reserved
/// 44..48 offset    48..56 value (of a set)    56..64 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PropertyCommand {
    /// 7Fh.
    pub opcode: u8,
    /// As in every submission queue entry.
    pub flags: u8,
    /// Command identifier.
    pub command_id: U16,
    /// 00h sets, 04h gets.
    pub fabrics_type: u8,
    /// Zeros.
    pub reserved_5: [u8; 35],
    /// ATTRIB, bits 2:0: 0 is a property of 4 bytes, 1 one of 8.
    pub size: u8,
    /// Zeros.
    pub reserved_41: [u8; 3],
    /// OFST.
    pub offset: U32,
    /// VALUE; of a 4-byte property the low half.
    pub value: U64,
    /// Zeros.
    pub reserved_56: [u8; 8],
}

const _: () = assert!(size_of::<PropertyCommand>() == 64);

/// Authentication Send and Receive (NVMe Base 2.0, Figures 379 and 382).
///
/// ```text
///  0..24 as in Connect, type 05h or 06h    24..40 SGL    40 reserved    41 SPSP0    42 SPSP1    43 SECP
/// 44..48 transfer or allocation length          48..64 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AuthenticationCommand {
    /// 7Fh.
    pub opcode: u8,
    /// As in every submission queue entry.
    pub flags: u8,
    /// Command identifier.
    pub command_id: U16,
    /// 05h sends, 06h receives.
    pub fabrics_type: u8,
    /// Zeros.
    pub reserved_5: [u8; 19],
    /// The data pointer of the message.
    pub data_pointer: SglDescriptor,
    /// Zero.
    pub reserved_40: u8,
    /// SPSP0: 01h.
    pub protocol_specific_0: u8,
    /// SPSP1: 01h.
    pub protocol_specific_1: u8,
    /// SECP: E9h.
    pub security_protocol: u8,
    /// TL of a send, AL of a receive.
    pub length: U32,
    /// Zeros.
    pub reserved_48: [u8; 16],
}

const _: () = assert!(size_of::<AuthenticationCommand>() == 64);

/// Disconnect (NVMe Base 2.0, Figure 391): only the record format, in bytes 40..42, which must be
/// zero.
#[must_use]
pub fn disconnect_command() -> SubmissionEntry {
    SubmissionEntry::new(AdminOpcode::Fabrics.code(), u32::from(FabricsType::Disconnect.code()))
}

impl ConnectCommand {
    /// CATTR bit 2: the host ignores SQ head pointers, and the controller may leave responses out
    /// (C2HData SUCCESS).
    pub const DISABLE_FLOW_CONTROL: u8 = 0x04;

    /// The command for a queue of `entries` entries, its data in the capsule.
    #[must_use]
    pub fn new(queue_id: u16, entries: u16, attributes: u8, keep_alive_timeout_ms: u32) -> ConnectCommand {
        let mut entry = SubmissionEntry::new(AdminOpcode::Fabrics.code(), u32::from(FabricsType::Connect.code()));
        entry.data_pointer = SglDescriptor::in_capsule(0, size_of::<ConnectData>() as u32);
        let mut command: ConnectCommand = zerocopy::transmute!(entry);
        command.queue_id = queue_id.into();
        command.queue_size = entries.saturating_sub(1).into();
        command.attributes = attributes;
        command.keep_alive_timeout_ms = keep_alive_timeout_ms.into();
        command
    }
}

impl ConnectData {
    /// Reads the data from the start of `bytes`; `None` if there are fewer than 1,024.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<ConnectData> {
        ConnectData::read_from_prefix(bytes).ok().map(|(data, _)| data)
    }

    /// The data as it travels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The data of a Connect.
    #[must_use]
    pub fn new(host_id: HostId, controller_id: u16, subsystem: &Nqn, host: &Nqn) -> ConnectData {
        ConnectData {
            host_id: host_id.0,
            controller_id: controller_id.into(),
            reserved_18: [0; 238],
            subsystem_nqn: subsystem.to_field(),
            host_nqn: host.to_field(),
            reserved_768: [0; 256],
        }
    }
}

impl PropertyCommand {
    /// A Property Get.
    #[must_use]
    pub fn get(property: Property) -> PropertyCommand {
        PropertyCommand::of(FabricsType::PropertyGet, property, 0)
    }

    /// A Property Set.
    #[must_use]
    pub fn set(property: Property, value: u64) -> PropertyCommand {
        PropertyCommand::of(FabricsType::PropertySet, property, value)
    }

    fn of(fabrics_type: FabricsType, property: Property, value: u64) -> PropertyCommand {
        let entry = SubmissionEntry::new(AdminOpcode::Fabrics.code(), u32::from(fabrics_type.code()));
        let mut command: PropertyCommand = zerocopy::transmute!(entry);
        command.size = u8::from(property.size_bytes() == 8);
        command.offset = property.offset().into();
        command.value = value.into();
        command
    }
}

impl AuthenticationCommand {
    /// A send or a receive of `length` bytes; the data pointer is one of transport data and may be
    /// replaced.
    #[must_use]
    pub fn new(fabrics_type: FabricsType, length: u32) -> AuthenticationCommand {
        let mut entry = SubmissionEntry::new(AdminOpcode::Fabrics.code(), u32::from(fabrics_type.code()));
        entry.data_pointer = SglDescriptor::transport(length);
        let mut command: AuthenticationCommand = zerocopy::transmute!(entry);
        command.protocol_specific_0 = SECURITY_PROTOCOL_SPECIFIC[0];
        command.protocol_specific_1 = SECURITY_PROTOCOL_SPECIFIC[1];
        command.security_protocol = SECURITY_PROTOCOL_NVME;
        command.length = length.into();
        command
    }

    /// Whether the fields name the NVMe authentication protocol.
    #[must_use]
    pub fn is_nvme_authentication(&self) -> bool {
        self.security_protocol == SECURITY_PROTOCOL_NVME
            && [self.protocol_specific_0, self.protocol_specific_1] == SECURITY_PROTOCOL_SPECIFIC
    }
}

/// A command is a submission queue entry whose fields have other names: the same 64 bytes.
macro_rules! entries {
    ($($command:ident),*) => {$(
        impl From<$command> for SubmissionEntry {
            fn from(command: $command) -> SubmissionEntry {
                zerocopy::transmute!(command)
            }
        }

        impl From<SubmissionEntry> for $command {
            fn from(entry: SubmissionEntry) -> $command {
                zerocopy::transmute!(entry)
            }
        }
    )*};
}

entries!(ConnectCommand, PropertyCommand, AuthenticationCommand);

/// Result of a Connect (NVMe Base 2.0, Figure 389): DW0 after success, or after an invalid
/// parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectResult {
    /// The queue is connected.
    Connected {
        /// CNTLID.
        controller_id: u16,
        /// AUTHREQ, ATR: in-band authentication is required.
        authentication_required: bool,
    },
    /// A field of the command (IATTR 0), by its offset (IPO).
    InvalidCommandField(u16),
    /// A field of the data (IATTR 1), by its offset (IPO).
    InvalidDataField(u16),
}

impl ConnectResult {
    /// DW0 of a successful Connect: ATR is bit 17 (NVMe Base 2.0, Figure 389), ASCR, never set
    /// here, bit 18.
    const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

    /// DW0 and DW1 of the completion.
    #[must_use]
    pub fn value(self) -> u64 {
        match self {
            ConnectResult::Connected { controller_id, authentication_required } => {
                let required = if authentication_required { ConnectResult::AUTHENTICATION_REQUIRED } else { 0 };
                u64::from(controller_id) | required
            }
            ConnectResult::InvalidCommandField(offset) => u64::from(offset),
            ConnectResult::InvalidDataField(offset) => u64::from(offset) | 1 << 16,
        }
    }

    /// Reads DW0 of a successful Connect. Secure channels (ASCR) count as authentication here.
    #[must_use]
    pub fn of_success(result: u64) -> ConnectResult {
        ConnectResult::Connected { controller_id: result as u16, authentication_required: result >> 17 & 0b11 != 0 }
    }

    /// Reads DW0 of a Connect that was refused for a parameter, or for the host.
    #[must_use]
    pub fn of_refusal(result: u64) -> ConnectResult {
        let offset = result as u16;
        if result >> 16 & 1 == 0 {
            ConnectResult::InvalidCommandField(offset)
        } else {
            ConnectResult::InvalidDataField(offset)
        }
    }

    /// The name of the invalid field; `None` if the result does not name one.
    #[must_use]
    pub fn field_name(self) -> Option<&'static str> {
        use connect_offsets as at;
        match self {
            ConnectResult::InvalidCommandField(at::RECORD_FORMAT) => Some("the record format (RECFMT)"),
            ConnectResult::InvalidCommandField(at::QUEUE_ID) => Some("the queue identifier (QID)"),
            ConnectResult::InvalidCommandField(at::QUEUE_SIZE) => Some("the queue size (SQSIZE)"),
            ConnectResult::InvalidCommandField(at::ATTRIBUTES) => Some("the attributes (CATTR)"),
            ConnectResult::InvalidCommandField(at::KEEP_ALIVE_TIMEOUT) => Some("the keep alive timeout (KATO)"),
            ConnectResult::InvalidDataField(at::HOST_ID) => Some("the host identifier (HOSTID)"),
            ConnectResult::InvalidDataField(at::CONTROLLER_ID) => Some("the controller identifier (CNTLID)"),
            ConnectResult::InvalidDataField(at::SUBSYSTEM_NQN) => Some("the subsystem NQN (SUBNQN)"),
            ConnectResult::InvalidDataField(at::HOST_NQN) => Some("the host NQN (HOSTNQN)"),
            _ => None,
        }
    }
}

/// Offsets into the Connect command and data, for [`ConnectResult`].
pub mod connect_offsets {
    /// RECFMT, in the command.
    pub const RECORD_FORMAT: u16 = 40;
    /// QID, in the command.
    pub const QUEUE_ID: u16 = 42;
    /// SQSIZE, in the command.
    pub const QUEUE_SIZE: u16 = 44;
    /// CATTR, in the command.
    pub const ATTRIBUTES: u16 = 46;
    /// KATO, in the command.
    pub const KEEP_ALIVE_TIMEOUT: u16 = 48;
    /// HOSTID, in the data.
    pub const HOST_ID: u16 = 0;
    /// CNTLID, in the data.
    pub const CONTROLLER_ID: u16 = 16;
    /// SUBNQN, in the data.
    pub const SUBSYSTEM_NQN: u16 = 256;
    /// HOSTNQN, in the data.
    pub const HOST_NQN: u16 = 512;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_fields_of_connect_have_the_offsets_that_results_name() {
        assert_eq!(offset_of!(ConnectCommand, record_format) as u16, connect_offsets::RECORD_FORMAT);
        assert_eq!(offset_of!(ConnectCommand, queue_id) as u16, connect_offsets::QUEUE_ID);
        assert_eq!(offset_of!(ConnectCommand, queue_size) as u16, connect_offsets::QUEUE_SIZE);
        assert_eq!(offset_of!(ConnectCommand, attributes) as u16, connect_offsets::ATTRIBUTES);
        assert_eq!(offset_of!(ConnectCommand, keep_alive_timeout_ms) as u16, connect_offsets::KEEP_ALIVE_TIMEOUT);
        assert_eq!(offset_of!(ConnectData, controller_id) as u16, connect_offsets::CONTROLLER_ID);
        assert_eq!(offset_of!(ConnectData, subsystem_nqn) as u16, connect_offsets::SUBSYSTEM_NQN);
        assert_eq!(offset_of!(ConnectData, host_nqn) as u16, connect_offsets::HOST_NQN);
    }

    #[test]
    fn the_other_commands_have_the_layout_of_the_specification() {
        assert_eq!(offset_of!(PropertyCommand, size), 40);
        assert_eq!(offset_of!(PropertyCommand, offset), 44);
        assert_eq!(offset_of!(PropertyCommand, value), 48);
        assert_eq!(offset_of!(AuthenticationCommand, data_pointer), 24);
        assert_eq!(offset_of!(AuthenticationCommand, security_protocol), 43);
        assert_eq!(offset_of!(AuthenticationCommand, length), 44);
        let set = PropertyCommand::set(Property::Configuration, 0x46_0001);
        let bytes = SubmissionEntry::from(set);
        assert_eq!(bytes.as_bytes()[..8], [0x7f, 0x40, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.as_bytes()[40..52], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0]);
    }

    #[test]
    fn results_of_connect_name_the_field() {
        let result = ConnectResult::Connected { controller_id: 9, authentication_required: true };
        assert_eq!((result.value(), ConnectResult::of_success(result.value())), (0x2_0009, result));
        assert_eq!(ConnectResult::InvalidDataField(256).value(), 0x1_0100);
        for refusal in [ConnectResult::InvalidDataField(0), ConnectResult::InvalidCommandField(44)] {
            assert_eq!(ConnectResult::of_refusal(refusal.value()), refusal);
            assert!(refusal.field_name().is_some());
        }
        assert_eq!(ConnectResult::of_refusal(0).field_name(), None);
    }

    #[test]
    fn a_connect_has_the_layout_of_the_specification() {
        let command = ConnectCommand::new(0x0102, 0x0304, ConnectCommand::DISABLE_FLOW_CONTROL, 0x0506_0708);
        let entry = SubmissionEntry::from(command);
        let bytes = entry.as_bytes();
        assert_eq!(bytes[..5], [0x7f, 0x40, 0, 0, 1]);
        assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1], "1,024 bytes in the capsule");
        assert_eq!(bytes[40..52], [0, 0, 2, 1, 3, 3, 4, 0, 8, 7, 6, 5], "SQSIZE is zero-based");
        assert_eq!(ConnectCommand::from(entry), command);
        let nqn = |name: &str| Nqn::new(&format!("nqn.2014-08.org.nvmexpress:{name}")).unwrap();
        let data = ConnectData::new(HostId([9; 16]), 0x0102, &nqn("subsystem"), &nqn("host"));
        let bytes = data.bytes();
        assert_eq!((&bytes[..16], &bytes[16..18]), (&[9; 16][..], &[2, 1][..]));
        assert_eq!(bytes[256..512], nqn("subsystem").to_field());
        assert_eq!(bytes[512..768], nqn("host").to_field());
        assert_eq!((ConnectData::read(bytes), ConnectData::read(&bytes[..1023])), (Some(data), None));
    }

    #[test]
    fn the_fabrics_commands_have_the_types_and_fields_of_the_specification() {
        let bytes = |entry: SubmissionEntry| entry.as_bytes().to_vec();
        let get = bytes(PropertyCommand::get(Property::Capabilities).into());
        assert_eq!((get[4], &get[40..56]), (4, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]));
        let get = bytes(PropertyCommand::get(Property::Status).into());
        assert_eq!((get[4], &get[40..48]), (4, &[0, 0, 0, 0, 0x1c, 0, 0, 0][..]));
        for (fabrics_type, code) in [(FabricsType::AuthenticationSend, 5), (FabricsType::AuthenticationReceive, 6)] {
            let command = AuthenticationCommand::new(fabrics_type, 0x0102);
            assert!(command.is_nvme_authentication());
            let bytes = bytes(command.into());
            assert_eq!((bytes[0], bytes[4], &bytes[40..48]), (0x7f, code, &[0, 1, 1, 0xe9, 2, 1, 0, 0][..]));
            assert_eq!(bytes[32..40], [2, 1, 0, 0, 0, 0, 0, 0x5a]);
            for byte in [41, 42, 43] {
                let mut other = bytes.clone();
                other[byte] ^= 1;
                let command = AuthenticationCommand::read_from_bytes(&other).unwrap();
                assert!(!command.is_nvme_authentication(), "byte {byte}");
            }
        }
        assert_eq!(bytes(disconnect_command())[..8], [0x7f, 0x40, 0, 0, 8, 0, 0, 0]);
    }

    #[test]
    fn a_connect_that_succeeds_requires_authentication_by_bit_17_or_18() {
        for (result, required) in [(0x0_ffff, false), (0x1_ffff, false), (0x2_ffff, true), (0x4_ffff, true)] {
            let expected = ConnectResult::Connected { controller_id: 0xffff, authentication_required: required };
            assert_eq!(ConnectResult::of_success(result), expected, "{result:x}");
        }
        assert_eq!(ConnectResult::InvalidCommandField(42).value(), 42);
    }
}
