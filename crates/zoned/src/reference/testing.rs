//! Short names for the commands in the tests of this module.

use crate::{
    Blocks, Command, CommandId, Completion, Geometry, Lba, LbaRange, NamespaceId, Operation, Payload, PayloadKind,
    Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZrwaGeometry,
};

use super::ReferenceDevice;

/// The tiny geometry with one ZRWA of four blocks, committed in twos.
pub(super) fn with_zrwa() -> Geometry {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(4),
        flush_granularity_blocks: Blocks(2),
        resources: 1,
        explicit_flush: true,
    };
    Geometry { zrwa: Some(zrwa), ..Geometry::tiny() }
}

/// The tiny geometry, its first two zones conventional, all of each zone writable.
pub(super) fn with_conventional() -> Geometry {
    Geometry { conventional_zone_count: 2, zone_capacity_blocks: Blocks(16), ..Geometry::tiny() }
}

pub(super) fn device(geometry: Geometry) -> ReferenceDevice {
    ReferenceDevice::new(geometry, PayloadKind::Fingerprints)
}

pub(super) fn run(device: &mut ReferenceDevice, operation: Operation) -> Completion {
    device.execute(&Command::new(CommandId(1), NamespaceId::FIRST, operation))
}

pub(super) fn read(device: &mut ReferenceDevice, start: u64, blocks: u64) -> Status {
    run(device, Operation::Read { start: Lba(start), blocks: Blocks(blocks) }).status
}

/// Writes fingerprints that are not zero.
pub(super) fn write(device: &mut ReferenceDevice, start: u64, blocks: u64) -> Status {
    write_payload(device, start, blocks, prints(start, blocks))
}

pub(super) fn write_payload(device: &mut ReferenceDevice, start: u64, blocks: u64, payload: Payload) -> Status {
    run(device, Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload }).status
}

pub(super) fn write_zeroes(device: &mut ReferenceDevice, start: u64, blocks: u64) -> Status {
    run(device, Operation::WriteZeroes { start: Lba(start), blocks: Blocks(blocks) }).status
}

pub(super) fn append(device: &mut ReferenceDevice, zone_start: u64, blocks: u64) -> Completion {
    let payload = prints(zone_start, blocks);
    run(device, Operation::Append { zone_start: Lba(zone_start), blocks: Blocks(blocks), payload })
}

pub(super) fn deallocate(device: &mut ReferenceDevice, ranges: &[(u64, u64)]) -> Status {
    let ranges = ranges.iter().map(|&(start, blocks)| LbaRange { start: Lba(start), blocks: Blocks(blocks) }).collect();
    run(device, Operation::Deallocate { ranges }).status
}

pub(super) fn manage(device: &mut ReferenceDevice, action: ZoneAction, lba: u64) -> Status {
    run(device, Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(lba)) }).status
}

pub(super) fn manage_all(device: &mut ReferenceDevice, action: ZoneAction) -> Status {
    run(device, Operation::ManageZones { action, target: ZoneTarget::All }).status
}

pub(super) fn open(device: &mut ReferenceDevice, lba: u64) -> Status {
    manage(device, ZoneAction::Open { zrwa: false }, lba)
}

pub(super) fn close(device: &mut ReferenceDevice, lba: u64) -> Status {
    manage(device, ZoneAction::Close, lba)
}

pub(super) fn state(device: &ReferenceDevice, zone: u32) -> ZoneState {
    device.descriptor(ZoneIndex(zone)).state
}

pub(super) fn write_pointer(device: &ReferenceDevice, zone: u32) -> Option<Lba> {
    device.descriptor(ZoneIndex(zone)).write_pointer
}

fn prints(start: u64, blocks: u64) -> Payload {
    Payload::Fingerprints((0..blocks).map(|i| start.wrapping_add(i).wrapping_mul(31) | 1).collect())
}
