//! Operations that an input chooses, most of them valid.

use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Lba, LbaRange, Operation, Payload, ReportFilter, ZoneAction, ZoneTarget,
};

use crate::feed::Feed;

/// One operation: its kind, zone, and block in the zone.
pub(crate) fn operation(feed: &mut Feed<'_>, geometry: &Geometry) -> Operation {
    let kind = feed.u8();
    let zone = u64::from(feed.u8()) % u64::from(geometry.zone_count + 1);
    let zone_start = Lba(zone * geometry.zone_size_blocks.0);
    let start = Lba(zone_start.0 + u64::from(feed.u8()) % (geometry.zone_size_blocks.0 + 1));
    let blocks = Blocks(1 + u64::from(kind >> 4));
    let target = if kind & 0xf0 == 0xf0 { ZoneTarget::All } else { ZoneTarget::Zone(zone_start) };
    let manage = |action| Operation::ManageZones { action, target };
    match kind & 0x0f {
        0..=2 => Operation::Read { start, blocks },
        3 | 4 => Operation::Write { start, blocks, payload: payload(blocks, geometry, kind) },
        5 | 6 => Operation::Append { zone_start, blocks, payload: payload(blocks, geometry, kind) },
        7 => Operation::WriteZeroes { start, blocks },
        8 => Operation::Flush,
        9 => Operation::Deallocate { ranges: [LbaRange { start, blocks }].into() },
        10 => manage(ZoneAction::Reset),
        11 => manage(ZoneAction::Finish),
        12 => manage(ZoneAction::Open { zrwa: kind & 0x10 != 0 }),
        13 => manage(ZoneAction::Close),
        14 => Operation::ReportZones {
            start,
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: false,
            descriptors_max: 64,
        },
        _ if kind & 0x10 == 0 => manage(ZoneAction::FlushZrwa),
        _ => {
            let extension = vec![kind; geometry.descriptor_extension_bytes as usize].into();
            manage(ZoneAction::SetDescriptorExtension { extension, zrwa: kind & 0x20 != 0 })
        }
    }
}

fn payload(blocks: Blocks, geometry: &Geometry, byte: u8) -> Payload {
    let data = vec![byte; blocks.bytes(geometry.block_size_bytes) as usize].into();
    let metadata = vec![byte; blocks.0 as usize * usize::from(geometry.metadata_bytes)].into();
    Payload::Bytes(Box::new(BlockBuffer { data, metadata }))
}
