//! How large a checkpoint can become: it must fit a zone of the log, whatever hosts do.

use super::by_number::ByNumber;
use super::{AdminError, Namespace, Pool, Record, VZone};
use crate::format::{VZONE_BYTES, capacity_of};
use crate::limits::EXTENSION_BYTES_MAX;
use crate::shape::Shape;
use crate::zones::{ZoneUse, Zones};

/// Bytes of the records of a pool and of a namespace, at most.
const POOL_BYTES: u64 = 64;
const NAMESPACE_BYTES: u64 = 160;
/// Bytes of a physical zone in a record: in a group of its own, or retired.
const ZONE_BYTES: u64 = 8;

/// Bytes of a v-zone in a record, without its groups.
fn vzone_bytes(extension_bytes: u8) -> u64 {
    let extension = if extension_bytes > 0 { 1 + u64::from(extension_bytes) } else { 0 };
    u64::from(VZONE_BYTES) + extension
}

impl Pool {
    /// Refuses namespaces whose metadata might not fit: `vzones` more v-zones with such extensions, which
    /// hold `zones` more zones of the drive.
    pub(super) fn check_metadata(&self, vzones: u32, extension_bytes: u8, zones: u64) -> Result<(), AdminError> {
        let mut of_vzones = u64::from(vzones) * vzone_bytes(extension_bytes);
        for own in self.namespaces.values() {
            of_vzones += u64::from(own.record.zone_count) * vzone_bytes(own.record.extension_bytes);
        }
        let zones = (zones + self.promised_zones()).min(self.drive.zone_count.into());
        // Each block has room left for less than the largest record.
        let largest = vzone_bytes(EXTENSION_BYTES_MAX as u8) + u64::from(self.shape.zones_per_vzone) * ZONE_BYTES;
        let of_block = (self.capacity_of_block() + 1).saturating_sub(largest).max(1);
        let bytes = POOL_BYTES + (self.namespaces.len() as u64 + 1) * NAMESPACE_BYTES + of_vzones + zones * ZONE_BYTES;
        let blocks = bytes.div_ceil(of_block);
        if blocks < self.drive.zone_capacity_blocks.0 {
            return Ok(());
        }
        Err(AdminError(format!(
            "the metadata of all namespaces may take {blocks} blocks of {} bytes, and a zone of this drive has {}: make the \
             namespace smaller, or create the pool with more zones of the drive in each of its own",
            self.format.data_bytes, self.drive.zone_capacity_blocks
        )))
    }

    /// Whether the records fit after this v-zone has changed, which jumps have made larger.
    pub(super) fn fits_metadata(&self, namespace: u32, index: u32) -> bool {
        let own: &VZone = &self.namespaces[&namespace].vzones[index as usize];
        let record = Record::VZone(own.record(namespace, index)).encode().len() as u64;
        self.fits(record, self.snapshot_bytes())
    }

    /// Bytes of all records.
    pub(super) fn snapshot_bytes(&self) -> u64 {
        self.snapshot().iter().map(|record| record.encode().len() as u64).sum()
    }

    /// Whether a checkpoint of so many bytes fits, with a record of `record` bytes in it.
    pub(super) fn fits(&self, record: u64, all: u64) -> bool {
        let capacity = self.capacity_of_block();
        let of_block = (capacity + 1).saturating_sub(record).max(1);
        record <= capacity && all.div_ceil(of_block) < self.drive.zone_capacity_blocks.0
    }

    fn capacity_of_block(&self) -> u64 {
        capacity_of(self.format.data_bytes) as u64
    }

    /// The whole state, as a checkpoint has it.
    fn snapshot(&self) -> Vec<Record> {
        let (shape, next) = (&self.shape, self.zones.next_reservation());
        snapshot_of(shape, self.epoch, next, &self.namespaces, &self.zones, self.drive.zone_count)
    }
}

/// The whole state, as records.
pub(super) fn snapshot_of(
    shape: &Shape,
    epoch: u64,
    next_reservation: u64,
    namespaces: &ByNumber<Namespace>,
    zones: &Zones,
    zone_count: u32,
) -> Vec<Record> {
    // Zones that are reserved while the records are on their way have later numbers.
    let mut records = vec![Record::Pool(shape.record(epoch, next_reservation))];
    // An earlier record of a namespace may still come behind these: without its v-zones it would be empty.
    for (id, namespace) in namespaces.iter().filter(|(_, namespace)| !namespace.is_deleted) {
        records.push(Record::Namespace(namespace.record.clone()));
        let vzones = namespace.vzones.iter().enumerate().filter(|(_, vzone)| vzone.is_recorded());
        records.extend(vzones.map(|(index, vzone)| Record::VZone(vzone.record(*id, index as u32))));
    }
    let retired = (0..zone_count).filter(|zone| zones.zone_use(*zone) == ZoneUse::Retired);
    records.extend(retired.map(|zone| Record::Retired { zone }));
    records
}
