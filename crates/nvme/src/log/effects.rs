//! Commands Supported and Effects, 05h (NVMe Base 2.0, section 5.16.1.6).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::identify::CommandSet;
use crate::page::Page;

/// The supported commands and their effects. One page for each I/O command set.
///
/// ```text
/// 0 admin command 00h (ACS0) | ... | 1020 ACS255 | 1024 I/O command 00h (IOCS0) | ... | 2044 IOCS255 | 2048 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandEffects {
    /// Admin Commands Supported, by opcode; bits of [`effect`].
    pub admin: [U32; 256],
    /// I/O Commands Supported, by opcode; bits of [`effect`].
    pub io: [U32; 256],
    _reserved_2048: [u8; 2048],
}

const _: () = assert!(size_of::<CommandEffects>() == 4096);

/// Bits of one command.
pub mod effect {
    /// Bit 0, CSUPP: the command is supported. If Zone Append is not supported, Linux makes the
    /// device read only.
    pub const SUPPORTED: u32 = 1 << 0;
    /// Bit 1, LBCC: changes the contents of blocks.
    pub const CONTENT_CHANGE: u32 = 1 << 1;
    /// Bit 2, NCC: changes the Identify data of a namespace.
    pub const NAMESPACE_CHANGE: u32 = 1 << 2;
    /// Bit 3, NIC: changes the inventory of namespaces.
    pub const INVENTORY_CHANGE: u32 = 1 << 3;
    /// Bit 4, CCC: changes the Identify data of the controller.
    pub const CONTROLLER_CHANGE: u32 = 1 << 4;
}

impl Page for CommandEffects {
    const NAME: &'static str = "Commands Supported and Effects Log";
}

impl CommandEffects {
    /// The commands of a Fabrics I/O controller for one command set; `None` for an unsupported one.
    ///
    /// Admin: Get Log Page, Identify, Abort, Set and Get Features, Asynchronous Event Request, Keep
    /// Alive. I/O: Flush, Write, Read, Compare, Write Zeroes, Dataset Management, those of
    /// reservations; for zones also Zone Management Send and Receive and Zone Append. No command
    /// needs exclusive execution.
    #[must_use]
    pub fn of(command_set: CommandSet) -> Option<CommandEffects> {
        let zone_commands: &[(u8, u32)] = match command_set {
            CommandSet::Nvm => &[],
            CommandSet::Zoned => &ZONE_COMMANDS,
            CommandSet::KeyValue => return None,
        };
        let mut page = CommandEffects::empty();
        for opcode in ADMIN_COMMANDS {
            page.admin[usize::from(opcode)] = effect::SUPPORTED.into();
        }
        for &(opcode, effects) in NVM_COMMANDS.iter().chain(zone_commands) {
            page.io[usize::from(opcode)] = (effect::SUPPORTED | effects).into();
        }
        Some(page)
    }

    /// Whether an I/O command with this opcode is supported.
    #[must_use]
    pub fn has_io(&self, opcode: u8) -> bool {
        self.io[usize::from(opcode)].get() & effect::SUPPORTED != 0
    }
}

/// Opcodes of NVMe Base 2.0, chapter 5.
const ADMIN_COMMANDS: [u8; 7] = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
/// Opcodes of NVM Command Set 1.0, section 3.1.
const NVM_COMMANDS: [(u8, u32); 10] = [
    (0x00, 0),
    (0x01, effect::CONTENT_CHANGE),
    (0x02, 0),
    (0x05, 0),
    (0x08, effect::CONTENT_CHANGE),
    (0x09, effect::CONTENT_CHANGE),
    (0x0d, 0),
    (0x0e, 0),
    (0x11, 0),
    (0x15, 0),
];
/// Opcodes of Zoned Namespace Command Set 1.1, section 3.2.
const ZONE_COMMANDS: [(u8, u32); 3] = [(0x79, effect::CONTENT_CHANGE), (0x7a, 0), (0x7d, effect::CONTENT_CHANGE)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(CommandEffects { admin: 0..=1023, io: 1024..=2047 });
    }

    #[test]
    fn zone_commands_belong_to_zoned_namespaces_only() {
        let nvm = CommandEffects::of(CommandSet::Nvm).unwrap();
        let zoned = CommandEffects::of(CommandSet::Zoned).unwrap();
        for opcode in [0x79, 0x7a, 0x7d] {
            assert!(zoned.has_io(opcode) && !nvm.has_io(opcode), "{opcode:#x}");
        }
        assert_eq!(zoned.bytes()[1024 + 4 * 0x7d], 0b11, "Zone Append changes contents");
        assert_eq!(nvm.bytes()[4 * 0x18], 1, "Keep Alive");
        assert!([0x0d, 0x0e, 0x11, 0x15].iter().all(|&opcode| nvm.has_io(opcode)), "reservations");
        assert_eq!(CommandEffects::of(CommandSet::KeyValue), None);
    }
}
