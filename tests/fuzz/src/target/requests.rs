//! Commands that an input chooses: valid and invalid ones.

use bytes::Bytes;
use zonda_nvme::fabrics::{Configuration, Property, PropertyCommand};
use zonda_nvme::identify::{CommandSet, IdentifyRequest};
use zonda_nvme::io::{NamespaceFormat, Transfer, decode};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, SubmissionEntry};

use super::exports::{TRANSFER_BYTES, geometries};
use crate::feed::Feed;

/// Opcodes of the I/O commands to choose from, including unknown ones.
const IO: [u8; 16] = [
    IoOpcode::Read.code(),
    IoOpcode::Write.code(),
    IoOpcode::ZoneAppend.code(),
    IoOpcode::Compare.code(),
    IoOpcode::WriteZeroes.code(),
    IoOpcode::Flush.code(),
    IoOpcode::DatasetManagement.code(),
    IoOpcode::ZoneManagementSend.code(),
    IoOpcode::ZoneManagementSend.code(),
    IoOpcode::ZoneManagementReceive.code(),
    IoOpcode::ReservationAcquire.code(),
    IoOpcode::ReservationRelease.code(),
    IoOpcode::ReservationReport.code(),
    IoOpcode::ReservationRegister.code(),
    IoOpcode::Fabrics.code(),
    0xff,
];

/// A property command: the property, whether to set it, and the value.
pub(super) fn property(which: u8, set: u8, word: u16) -> SubmissionEntry {
    const ALL: [Property; 6] = [
        Property::Configuration,
        Property::Status,
        Property::Capabilities,
        Property::Version,
        Property::SubsystemReset,
        Property::ReadyTimeouts,
    ];
    let property = ALL[usize::from(which) % ALL.len()];
    let on = Configuration::enabled(Configuration::CSS_ALL).0;
    let value = match set & 7 {
        0 => return PropertyCommand::get(property).into(),
        1 => on,
        2 => 0,
        // Shutdown notifications.
        3 => on | 1 << 14,
        4 => on | 2 << 14,
        5 => Configuration::enabled(Configuration::CSS_ADMIN_ONLY).0,
        6 => on ^ u32::from(word),
        _ => u32::from(word) << 8,
    };
    let mut command = PropertyCommand::set(property, value.into());
    if set & 0x80 != 0 {
        command.offset = u32::from(word).into();
    }
    command.into()
}

/// An admin command: opcode, namespace, and a number that depends on the command.
pub(super) fn admin(feed: &mut Feed<'_>) -> SubmissionEntry {
    let (which, number, more) = (feed.below(10), feed.u8(), feed.u8());
    let word = feed.u16();
    let opcode = match which {
        0 => AdminOpcode::Identify,
        1 => AdminOpcode::GetLogPage,
        2 => AdminOpcode::GetFeatures,
        3 => AdminOpcode::SetFeatures,
        4 => AdminOpcode::Abort,
        5 => AdminOpcode::AsyncEventRequest,
        6 | 7 => AdminOpcode::KeepAlive,
        _ => return SubmissionEntry::new(number, u32::from(more) << 24 | u32::from(word)),
    };
    let namespace = [0, 1, 2, 3, 4, u32::MAX][usize::from(more & 7) % 6];
    let mut entry = SubmissionEntry::new(opcode.code(), namespace);
    let length = match opcode {
        AdminOpcode::Identify => {
            let request = IdentifyRequest {
                structure: number & 0x1f,
                command_set: if more & 8 == 0 { CommandSet::Zoned as u8 } else { more >> 4 },
                controller_id: word,
                ..IdentifyRequest::default()
            };
            let (dword10, dword11, dword14) = request.encode();
            (entry.cdw10, entry.cdw11, entry.cdw14) = (dword10.into(), dword11.into(), dword14.into());
            4096
        }
        AdminOpcode::GetLogPage => {
            const PAGES: [u8; 10] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x70, 0x80, 0xbf, 0x06];
            let dwords = if word & 0x8000 == 0 { 1023 } else { u32::from(word & 0x0fff) };
            entry.cdw10 = (u32::from(PAGES[usize::from(number) % PAGES.len()]) | dwords << 16).into();
            entry.cdw11 = (u32::from(more >> 7) * 3).into();
            entry.cdw12 = (u32::from(word >> 12 & 7) * 4).into();
            entry.cdw14 = (u32::from(more >> 3 & 3) << 24).into();
            (dwords + 1) * 4
        }
        AdminOpcode::GetFeatures | AdminOpcode::SetFeatures => {
            const FEATURES: [u8; 14] =
                [0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x0f, 0x16, 0x19, 0x81, 0x82, 0x83];
            let feature = FEATURES[usize::from(number) % FEATURES.len()];
            entry.cdw10 = (u32::from(feature) | u32::from(more & 0x70) << 4 | u32::from(more >> 7) << 31).into();
            entry.cdw11 = (u32::from(word) | u32::from(word) << 16).into();
            if feature == 0x16 { 512 } else { 0 }
        }
        AdminOpcode::Abort => {
            entry.cdw10 = (u32::from(number) << 16 | u32::from(word & 3)).into();
            0
        }
        _ => 0,
    };
    // Sometimes a smaller or larger buffer than the command needs.
    let length = if more == 0x5a { length ^ u32::from(word) } else { length };
    entry.data_pointer = SglDescriptor::transport(length);
    entry
}

/// An I/O command and its data: operation, namespace, zone, blocks, block in the zone, and with
/// `wild` any fields.
pub(super) fn io(feed: &mut Feed<'_>, wild: bool) -> (SubmissionEntry, Bytes) {
    let opcode = feed.pick(&IO);
    let namespace = feed.below(5) as u32;
    let (zone, count, place) = (feed.u8(), feed.u8(), feed.u8());
    let geometry = &geometries()[namespace as usize % 4];
    let format = NamespaceFormat::of(geometry, TRANSFER_BYTES);
    let mut entry = SubmissionEntry::new(opcode, namespace + 1);
    let zone_start = u64::from(zone & 15) * geometry.zone_size_blocks.0;
    let is_append = opcode == IoOpcode::ZoneAppend.code();
    entry.set_starting_lba(zone_start + if is_append { 0 } else { u64::from(place) % 64 });
    entry.cdw12 = (u32::from(count & 31) | u32::from(count >> 7) << 30).into();
    match IoOpcode::try_from(opcode) {
        Ok(IoOpcode::ZoneManagementSend) => {
            entry.cdw13 = (u32::from(place & 0x17) | u32::from(count >> 5 & 3) << 8).into();
        }
        Ok(IoOpcode::ZoneManagementReceive) => {
            entry.cdw12 = (u32::from(count) * 16 + 15).into();
            entry.cdw13 = (u32::from(place & 1) | u32::from(place >> 1 & 7) << 8 | u32::from(place >> 7) << 16).into();
        }
        Ok(IoOpcode::DatasetManagement) => {
            entry.cdw10 = u32::from(count & 3).into();
            entry.cdw11 = 4.into();
        }
        _ => {}
    }
    let keys = reservation(&mut entry, [zone, count, place]);
    if wild {
        entry.cdw10 = (entry.cdw10.get() ^ u32::from(feed.u16())).into();
        entry.cdw11 = (entry.cdw11.get() ^ u32::from(feed.u8())).into();
        entry.cdw12 = (entry.cdw12.get() ^ u32::from(feed.u8()) << 16).into();
        entry.flags ^= feed.u8() & 0xc3;
    }
    if let Some(keys) = keys {
        return (entry, keys);
    }
    let data = match decode(&entry, &format).map(|request| request.transfer(&format)) {
        Ok(Transfer::FromHost(bytes)) => {
            entry.data_pointer = SglDescriptor::transport(bytes);
            data_of(&entry, bytes, zone_start)
        }
        Ok(Transfer::ToHost(bytes)) => {
            entry.data_pointer = SglDescriptor::transport(bytes);
            Bytes::new()
        }
        _ => Bytes::new(),
    };
    (entry, data)
}

/// Turns an entry with a reservation opcode into a reservation command, and returns its keys. The
/// parameters are type, action with flags, and the current key and the other one in four bits each.
fn reservation(entry: &mut SubmissionEntry, [kind, action, keys]: [u8; 3]) -> Option<Bytes> {
    let number = |key: u8| u64::from(key & 15).to_le_bytes();
    let (flags, action) = (u32::from(action >> 6) << 30, u32::from(action & 15));
    let both = [number(keys >> 4), number(keys)].concat();
    let data = match IoOpcode::try_from(entry.opcode) {
        Ok(IoOpcode::ReservationRegister) => {
            entry.cdw10 = (action | flags).into();
            both
        }
        Ok(IoOpcode::ReservationAcquire) => {
            entry.cdw10 = (action | u32::from(kind & 7) << 8).into();
            both
        }
        Ok(IoOpcode::ReservationRelease) => {
            entry.cdw10 = (action | u32::from(kind & 7) << 8).into();
            number(keys).to_vec()
        }
        Ok(IoOpcode::ReservationReport) => {
            (entry.cdw10, entry.cdw11) = (127.into(), u32::from(kind & 3 == 0).into());
            entry.data_pointer = SglDescriptor::transport(512);
            return Some(Bytes::new());
        }
        _ => return None,
    };
    entry.data_pointer = SglDescriptor::transport(data.len() as u32);
    Some(data.into())
}

/// Data of a write, which differs from block to block, or ranges.
fn data_of(entry: &SubmissionEntry, bytes: u32, zone_start: u64) -> Bytes {
    if entry.opcode != IoOpcode::DatasetManagement.code() {
        return (0..bytes).map(|at| (at / 5) as u8 ^ entry.cdw10.get() as u8).collect::<Vec<u8>>().into();
    }
    let range = [&[0; 4][..], &4u32.to_le_bytes(), &zone_start.to_le_bytes()].concat();
    range.repeat(bytes as usize / range.len()).into()
}
