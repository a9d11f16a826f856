//! The fields of an Identify command (NVMe Base 2.0, section 5.17).

/// Controller or Namespace Structure (CNS): the structures that this crate supports (NVMe Base 2.0,
/// section 5.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Structure {
    /// 00h: Identify Namespace of the NVM Command Set, for zoned namespaces too.
    Namespace = 0x00,
    /// 01h: Identify Controller.
    Controller = 0x01,
    /// 02h: the active namespaces, whatever their command set.
    ActiveNamespaces = 0x02,
    /// 03h: the identifiers of one namespace.
    NamespaceDescriptors = 0x03,
    /// 05h: Identify Namespace specific to an I/O command set.
    CommandSetNamespace = 0x05,
    /// 06h: Identify Controller specific to an I/O command set.
    CommandSetController = 0x06,
    /// 07h: the active namespaces of one I/O command set.
    CommandSetActiveNamespaces = 0x07,
    /// 08h: namespace data that is independent of the command set.
    IndependentNamespace = 0x08,
    /// 1Ch: the combinations of I/O command sets that can be on together.
    CommandSets = 0x1c,
}

/// Command Set Identifier (CSI) (NVMe Base 2.0, section 5.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum CommandSet {
    /// 00h: NVM.
    Nvm = 0x00,
    /// 01h: Key Value. Met in descriptors of other controllers; never offered here.
    KeyValue = 0x01,
    /// 02h: Zoned Namespace.
    Zoned = 0x02,
}

/// The fields of an Identify command, with raw codes: the controller refuses unknown ones.
///
/// ```text
/// Dword 10  07:00 structure (CNS)   31:16 controller identifier (CNTID)
/// Dword 11  15:00 specific identifier   31:24 command set (CSI)
/// Dword 14  06:00 UUID index
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentifyRequest {
    /// Controller or Namespace Structure (CNS); see [`Structure`].
    pub structure: u8,
    /// Controller Identifier (CNTID).
    pub controller_id: u16,
    /// CNS Specific Identifier.
    pub specific_id: u16,
    /// Command Set Identifier (CSI); see [`CommandSet`].
    pub command_set: u8,
    /// UUID Index.
    pub uuid_index: u8,
}

impl IdentifyRequest {
    /// The request for one structure of one command set.
    #[must_use]
    pub fn of(structure: Structure, command_set: CommandSet) -> IdentifyRequest {
        IdentifyRequest { structure: structure as u8, command_set: command_set as u8, ..IdentifyRequest::default() }
    }

    /// Reads the command dwords 10, 11 and 14.
    #[must_use]
    pub fn decode(dword10: u32, dword11: u32, dword14: u32) -> IdentifyRequest {
        IdentifyRequest {
            structure: dword10 as u8,
            controller_id: (dword10 >> 16) as u16,
            specific_id: dword11 as u16,
            command_set: (dword11 >> 24) as u8,
            uuid_index: (dword14 & 0x7f) as u8,
        }
    }

    /// The command dwords 10, 11 and 14.
    #[must_use]
    pub fn encode(&self) -> (u32, u32, u32) {
        (
            u32::from(self.structure) | u32::from(self.controller_id) << 16,
            u32::from(self.specific_id) | u32::from(self.command_set) << 24,
            u32::from(self.uuid_index & 0x7f),
        )
    }
}

impl TryFrom<u8> for Structure {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<Structure, u8> {
        Ok(match code {
            0x00 => Structure::Namespace,
            0x01 => Structure::Controller,
            0x02 => Structure::ActiveNamespaces,
            0x03 => Structure::NamespaceDescriptors,
            0x05 => Structure::CommandSetNamespace,
            0x06 => Structure::CommandSetController,
            0x07 => Structure::CommandSetActiveNamespaces,
            0x08 => Structure::IndependentNamespace,
            0x1c => Structure::CommandSets,
            _ => return Err(code),
        })
    }
}

impl TryFrom<u8> for CommandSet {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<CommandSet, u8> {
        Ok(match code {
            0x00 => CommandSet::Nvm,
            0x01 => CommandSet::KeyValue,
            0x02 => CommandSet::Zoned,
            _ => return Err(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_for_the_zoned_namespace_structure_has_the_codes_of_the_specification() {
        let request = IdentifyRequest::of(Structure::CommandSetNamespace, CommandSet::Zoned);
        assert_eq!(request.encode(), (0x05, 0x0200_0000, 0));
    }

    #[test]
    fn every_request_survives_its_dwords() {
        let request = IdentifyRequest {
            structure: 0x13,
            controller_id: 0xfffe,
            specific_id: 0x1234,
            command_set: 2,
            uuid_index: 0x55,
        };
        let (dword10, dword11, dword14) = request.encode();
        assert_eq!(IdentifyRequest::decode(dword10, dword11, dword14), request);
    }

    #[test]
    fn codes_survive_and_unknown_codes_are_returned() {
        let mut known = 0;
        for code in 0..=u8::MAX {
            match Structure::try_from(code) {
                Ok(structure) => {
                    assert_eq!(structure as u8, code);
                    known += 1;
                }
                Err(unknown) => assert_eq!(unknown, code),
            }
            assert_eq!(CommandSet::try_from(code).map_or_else(|unknown| unknown, |set| set as u8), code);
        }
        assert_eq!(known, 9);
        assert_eq!(CommandSet::try_from(3), Err(3));
    }
}
