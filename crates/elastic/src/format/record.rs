//! The records of the log. Each replaces what earlier ones say about the same thing.
//!
//! ```text
//! kind 1, the pool:       epoch u64, physical zones of a v-zone u8, slack blocks u32, blocks of the base stripe u32,
//!                         essential zones u32, widest group u8, next reservation u64
//! kind 2, a namespace:    id u32, uuid 16, zones u32, zone size u64, zone capacity u64, active u32, open u32, weight u32,
//!                         transfer u32, append u32, extension bytes u8, bits u8 (0 reads cross zones),
//!                         bytes of the name u8, name
//! kind 3, deleted:        id u32
//! kind 4, a v-zone:       namespace u32, v-zone u32, generation u64, bits u8 (0 finished, 1 has an extension,
//!                         2 read only, 3 offline, 4 finished by the pool), write pointer u64 (where a bit is set),
//!                         groups u8, [extension: bytes u8, bytes], the groups
//!   a group:              log2 of its width u8, stripe blocks u16, jumps u8, zones u32 each, jumps (block of the group u32,
//!                         rows u32) each
//! kind 5, retired:        zone u32, which is not used again
//! ```

use zonda_zoned::{Blocks, Geometry};

use super::codec::{Decoder, Encoder};
use crate::limits::{EXTENSION_BYTES_MAX, JUMPS_MAX, NAME_BYTES_MAX, PHYSICAL_ZONES_MAX};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Pool(PoolRecord),
    Namespace(NamespaceRecord),
    Deleted { namespace: u32 },
    VZone(VZoneRecord),
    Retired { zone: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolRecord {
    pub(crate) epoch: u64,
    pub(crate) zones_per_vzone: u8,
    pub(crate) slack_blocks: u32,
    pub(crate) base_stripe_blocks: u32,
    pub(crate) essential_zones: u32,
    pub(crate) width_max: u8,
    pub(crate) next_reservation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceRecord {
    pub(crate) id: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) name: String,
    pub(crate) zone_count: u32,
    pub(crate) zone_size_blocks: u64,
    pub(crate) zone_capacity_blocks: u64,
    pub(crate) max_active_zones: u32,
    pub(crate) max_open_zones: u32,
    pub(crate) weight: u32,
    pub(crate) max_transfer_blocks: u32,
    pub(crate) max_append_blocks: u32,
    pub(crate) extension_bytes: u8,
    pub(crate) read_across_zones: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VZoneRecord {
    pub(crate) namespace: u32,
    pub(crate) vzone: u32,
    pub(crate) generation: u64,
    pub(crate) is_finished: bool,
    /// Not by its host.
    pub(crate) is_finished_by_pool: bool,
    pub(crate) is_read_only: bool,
    pub(crate) is_offline: bool,
    /// Where the host's writes ended, if it is finished, read only or offline.
    pub(crate) written_blocks: u64,
    pub(crate) extension: Option<Box<[u8]>>,
    pub(crate) groups: Vec<GroupRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) stripe_blocks: u16,
    pub(crate) zones: Vec<u32>,
    /// From this block of the group on, rows stand so many rows further on.
    pub(crate) jumps: Vec<(u32, u32)>,
}

/// Bytes of the record of a v-zone without extension and groups.
pub(crate) const VZONE_BYTES: u32 = 27;

const FINISHED: u8 = 1;
const EXTENSION: u8 = 2;
const READ_ONLY: u8 = 4;
const OFFLINE: u8 = 8;
const BY_POOL: u8 = 16;

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        match self {
            Record::Pool(pool) => {
                to.u8(1).u64(pool.epoch).u8(pool.zones_per_vzone).u32(pool.slack_blocks);
                to.u32(pool.base_stripe_blocks).u32(pool.essential_zones).u8(pool.width_max);
                to.u64(pool.next_reservation);
            }
            Record::Namespace(namespace) => namespace.encode(&mut to),
            Record::Deleted { namespace } => {
                to.u8(3).u32(*namespace);
            }
            Record::VZone(vzone) => vzone.encode(&mut to),
            Record::Retired { zone } => {
                to.u8(5).u32(*zone);
            }
        }
        to.into_bytes()
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<Record> {
        Some(match from.u8()? {
            1 => Record::Pool(PoolRecord {
                epoch: from.u64()?,
                zones_per_vzone: from.u8().filter(|zones| (1..=PHYSICAL_ZONES_MAX).contains(&u32::from(*zones)))?,
                slack_blocks: from.u32()?,
                base_stripe_blocks: from.u32()?,
                essential_zones: from.u32()?,
                width_max: from.u8().filter(|width| width.is_power_of_two())?,
                next_reservation: from.u64()?,
            }),
            2 => Record::Namespace(NamespaceRecord::decode(from)?),
            3 => Record::Deleted { namespace: from.u32()? },
            4 => Record::VZone(VZoneRecord::decode(from)?),
            5 => Record::Retired { zone: from.u32()? },
            _ => return None,
        })
    }
}

impl NamespaceRecord {
    /// The namespace as hosts see it, on a drive of this geometry.
    pub(crate) fn geometry(&self, drive: &Geometry) -> Geometry {
        Geometry {
            block_size_bytes: drive.block_size_bytes,
            metadata_bytes: drive.metadata_bytes,
            zone_size_blocks: Blocks(self.zone_size_blocks),
            zone_capacity_blocks: Blocks(self.zone_capacity_blocks),
            zone_count: self.zone_count,
            conventional_zone_count: 0,
            max_active_zones: Some(self.max_active_zones),
            max_open_zones: Some(self.max_open_zones),
            max_transfer_blocks: Blocks(self.max_transfer_blocks.into()),
            max_append_blocks: Blocks(self.max_append_blocks.into()),
            zrwa: None,
            read_across_zones: self.read_across_zones,
            descriptor_extension_bytes: self.extension_bytes.into(),
        }
    }

    fn encode(&self, to: &mut Encoder) {
        to.u8(2).u32(self.id).raw(&self.uuid).u32(self.zone_count);
        to.u64(self.zone_size_blocks).u64(self.zone_capacity_blocks);
        to.u32(self.max_active_zones).u32(self.max_open_zones).u32(self.weight);
        to.u32(self.max_transfer_blocks).u32(self.max_append_blocks);
        to.u8(self.extension_bytes).u8(u8::from(self.read_across_zones));
        to.u8(self.name.len() as u8).raw(self.name.as_bytes());
    }

    fn decode(from: &mut Decoder<'_>) -> Option<NamespaceRecord> {
        let (id, uuid, zone_count) = (from.u32()?, from.id()?, from.u32()?);
        let (zone_size_blocks, zone_capacity_blocks) = (from.u64()?, from.u64()?);
        let (max_active_zones, max_open_zones, weight) = (from.u32()?, from.u32()?, from.u32()?);
        let (max_transfer_blocks, max_append_blocks) = (from.u32()?, from.u32()?);
        let (extension_bytes, bits) = (from.u8()?, from.u8()?);
        let length = from.u8().map(usize::from).filter(|length| *length <= NAME_BYTES_MAX)?;
        let name = std::str::from_utf8(from.raw(length)?).ok()?.to_owned();
        Some(NamespaceRecord {
            id,
            uuid,
            name,
            zone_count,
            zone_size_blocks,
            zone_capacity_blocks,
            max_active_zones,
            max_open_zones,
            weight,
            max_transfer_blocks,
            max_append_blocks,
            extension_bytes,
            read_across_zones: bits & 1 != 0,
        })
    }
}

impl VZoneRecord {
    fn encode(&self, to: &mut Encoder) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bits = bit(self.is_finished, FINISHED)
            | bit(self.extension.is_some(), EXTENSION)
            | bit(self.is_read_only, READ_ONLY)
            | bit(self.is_offline, OFFLINE)
            | bit(self.is_finished_by_pool, BY_POOL);
        to.u8(4).u32(self.namespace).u32(self.vzone).u64(self.generation).u8(bits).u64(self.written_blocks);
        to.u8(self.groups.len() as u8);
        if let Some(extension) = &self.extension {
            to.u8(extension.len() as u8).raw(extension);
        }
        for group in &self.groups {
            to.u8(group.zones.len().ilog2() as u8).u16(group.stripe_blocks).u8(group.jumps.len() as u8);
            group.zones.iter().for_each(|zone| {
                to.u32(*zone);
            });
            group.jumps.iter().for_each(|(row, shift)| {
                to.u32(*row).u32(*shift);
            });
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<VZoneRecord> {
        let (namespace, vzone, generation) = (from.u32()?, from.u32()?, from.u64()?);
        let (bits, written_blocks) = (from.u8()?, from.u64()?);
        let group_count = from.u8().filter(|groups| u32::from(*groups) <= PHYSICAL_ZONES_MAX)?;
        let extension = match bits & EXTENSION {
            0 => None,
            _ => {
                let length = from.u8().map(usize::from).filter(|length| *length <= EXTENSION_BYTES_MAX)?;
                Some(from.raw(length)?.into())
            }
        };
        let groups = (0..group_count).map(|_| GroupRecord::decode(from)).collect::<Option<Vec<_>>>()?;
        Some(VZoneRecord {
            namespace,
            vzone,
            generation,
            is_finished: bits & FINISHED != 0,
            is_finished_by_pool: bits & BY_POOL != 0,
            is_read_only: bits & READ_ONLY != 0,
            is_offline: bits & OFFLINE != 0,
            written_blocks,
            extension,
            groups,
        })
    }
}

impl GroupRecord {
    fn decode(from: &mut Decoder<'_>) -> Option<GroupRecord> {
        let width = 1u32.checked_shl(from.u8()?.into()).filter(|width| *width <= PHYSICAL_ZONES_MAX)?;
        let stripe_blocks = from.u16().filter(|blocks| *blocks > 0)?;
        let jumps = from.u8().filter(|jumps| usize::from(*jumps) <= JUMPS_MAX)?;
        let zones = (0..width).map(|_| from.u32()).collect::<Option<Vec<_>>>()?;
        let jumps = (0..jumps).map(|_| Some((from.u32()?, from.u32()?))).collect::<Option<Vec<_>>>()?;
        Some(GroupRecord { stripe_blocks, zones, jumps })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SMALL_BLOCK_BYTES;
    use super::super::log_block::capacity_of;
    use super::*;

    fn group(width: u32, jumps: usize) -> GroupRecord {
        let jumps = (0..jumps as u32).map(|row| (row * 10, row + 1)).collect();
        GroupRecord { stripe_blocks: 8, zones: (100..100 + width).collect(), jumps }
    }

    fn vzone(groups: Vec<GroupRecord>) -> VZoneRecord {
        let extension = Some(vec![7; EXTENSION_BYTES_MAX].into());
        VZoneRecord {
            namespace: 1,
            vzone: 2,
            generation: 3,
            written_blocks: 9,
            extension,
            groups,
            ..Default::default()
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let pool = PoolRecord {
            epoch: 1,
            zones_per_vzone: 16,
            slack_blocks: 192,
            base_stripe_blocks: 8,
            essential_zones: 128,
            width_max: 16,
            next_reservation: 77,
        };
        let namespace = NamespaceRecord {
            id: 5,
            uuid: [9; 16],
            name: "db".to_owned(),
            zone_count: 40,
            zone_size_blocks: 512,
            zone_capacity_blocks: 400,
            max_active_zones: 16,
            max_open_zones: 16,
            weight: 2,
            max_transfer_blocks: 128,
            max_append_blocks: 64,
            extension_bytes: 64,
            read_across_zones: true,
        };
        let finished = VZoneRecord { is_finished: true, extension: None, ..vzone(vec![group(2, 0), group(8, 3)]) };
        let by_pool = VZoneRecord { is_finished_by_pool: true, ..finished.clone() };
        for record in [
            Record::Pool(pool),
            Record::Namespace(namespace),
            Record::Deleted { namespace: 5 },
            Record::VZone(vzone(vec![])),
            Record::VZone(finished),
            Record::VZone(by_pool),
            Record::Retired { zone: 1234 },
        ] {
            let bytes = record.encode();
            let mut from = Decoder::new(&bytes);
            assert_eq!(Record::decode(&mut from), Some(record.clone()));
            assert!(from.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Record::decode(&mut Decoder::new(&bytes[..length])), None, "{length} bytes of {record:?}");
            }
        }
    }

    #[test]
    fn the_record_of_a_v_zone_without_groups_has_its_length() {
        let record = Record::VZone(VZoneRecord { extension: None, ..vzone(vec![]) });
        assert_eq!(record.encode().len(), VZONE_BYTES as usize);
        let record = Record::VZone(VZoneRecord { extension: None, ..vzone(vec![group(1, 0)]) });
        assert_eq!(record.encode().len(), VZONE_BYTES as usize + 8, "a zone in a group of its own");
    }

    #[test]
    fn the_largest_records_fit_the_smallest_block() {
        let narrow = vzone((0..PHYSICAL_ZONES_MAX).map(|_| group(1, 0)).collect());
        let torn = vzone((0..4).map(|_| group(4, JUMPS_MAX / 2)).collect());
        for record in [narrow, torn] {
            let bytes = Record::VZone(record).encode();
            assert!(bytes.len() <= capacity_of(SMALL_BLOCK_BYTES), "{} bytes", bytes.len());
        }
    }
}
