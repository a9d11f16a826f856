//! Widths of stripe groups while v-zones are written.

use zonda_zoned::{Blocks, Geometry, Lba, NamespaceId, Operation, ZoneAction, ZoneIndex, ZoneTarget, ZonedDevice};

use super::rig::{Rig, data};
use crate::{PoolOptions, ZoneRole};

const WRITERS: u64 = 4;

/// A namespace of 8 active v-zones on a drive of 16 essentials and 24 spares: with 4 writers, 6 spares
/// fall to each, and a group has a width of 8. The active zones of 5 such groups are all that the drive
/// allows.
fn rig() -> (Rig, NamespaceId) {
    let drive = Geometry {
        zone_size_blocks: Blocks(32),
        zone_capacity_blocks: Blocks(24),
        zone_count: 300,
        max_active_zones: Some(43),
        max_open_zones: Some(43),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    };
    let options = PoolOptions { zones_per_vzone: Some(16), essential_zones: Some(16), width_max: Some(8) };
    let mut rig = Rig::new(drive, options);
    let namespace = rig.create("a", 8, 8);
    (rig, namespace)
}

fn reset_all(rig: &mut Rig, namespace: NamespaceId) {
    for zone in 0..WRITERS {
        let start = Lba(zone * rig.zone_size(namespace));
        let target = ZoneTarget::Zone(start);
        rig.submit(namespace, Operation::ManageZones { action: ZoneAction::Reset, target });
    }
    assert!(rig.quiesce().iter().all(|completion| completion.status.is_success()));
}

/// Writes the v-zones of all writers to their end, the writers at the same block, with so many
/// commands of each in flight.
fn write_all(rig: &mut Rig, namespace: NamespaceId, depth: u64) {
    let (size, chunk) = (rig.zone_size(namespace), 7);
    let chunks = rig.device().geometry(namespace).zone_capacity_blocks.0 / chunk;
    for first in (0..chunks).step_by(depth as usize) {
        // The drive takes them once all are submitted, so that they are in flight together.
        rig.drive().completions_left = 0;
        for index in first..(first + depth).min(chunks) {
            for zone in 0..WRITERS {
                let start = Lba(zone * size + index * chunk);
                rig.submit(namespace, Operation::Write { start, blocks: Blocks(chunk), payload: data(chunk, 1) });
            }
        }
        rig.drive().completions_left = usize::MAX;
        assert!(rig.quiesce().iter().all(|completion| completion.status.is_success()));
        rig.check();
    }
}

fn widths(rig: &mut Rig, namespace: NamespaceId) -> Vec<Vec<u32>> {
    let pool = rig.device().pool().expect("it is open");
    (0..WRITERS as u32).map(|zone| pool.group_widths(namespace, ZoneIndex(zone))).collect()
}

/// eZNS, Figure 26: four writers, each overdriven to a width of 8.
#[test]
fn writers_that_change_groups_at_the_same_moment_keep_their_width() {
    for depth in [1, 4, 32] {
        let (mut rig, namespace) = rig();
        for round in 0..40 {
            write_all(&mut rig, namespace, depth);
            // The moving average begins at the 8 v-zones that may be active.
            if round > 25 {
                assert_eq!(widths(&mut rig, namespace), vec![vec![8, 8]; 4], "depth {depth}, round {round}");
            }
            reset_all(&mut rig, namespace);
        }
    }
}

#[test]
fn the_groups_that_can_be_written_and_the_roles_of_zones_follow_the_writers() {
    let (mut rig, namespace) = rig();
    for zone in 0..3 {
        let start = Lba(zone * rig.zone_size(namespace));
        rig.submit(namespace, Operation::Write { start, blocks: Blocks(4), payload: data(4, 1) });
    }
    rig.quiesce();
    let pool = rig.device().pool().expect("it is open");
    let widths: Vec<u32> = (0..3).flat_map(|zone| pool.group_widths(namespace, ZoneIndex(zone))).collect();
    let writable = pool.writable_groups(namespace);
    assert_eq!(writable.values().sum::<u32>(), 3, "a group for each writer");
    assert_eq!(writable.iter().map(|(width, groups)| width * groups).sum::<u32>(), widths.iter().sum::<u32>());
    let roles: Vec<ZoneRole> = (0..300).map_while(|zone| pool.zone_role(ZoneIndex(zone))).collect();
    let count = |role| roles.iter().filter(|found| **found == role).count() as u32;
    let counts = pool.zone_counts();
    assert_eq!((roles.len(), pool.zone_role(ZoneIndex(300))), (300, None));
    assert_eq!(count(ZoneRole::Group(namespace)), widths.iter().sum::<u32>());
    assert_eq!((count(ZoneRole::Log), count(ZoneRole::Free)), (6, counts.free));
    assert!(counts.reserved > 0 && count(ZoneRole::Reserved) == counts.reserved, "{counts:?}");
    // A full v-zone has no group that can be written.
    let capacity = rig.device().geometry(namespace).zone_capacity_blocks;
    for start in (4..capacity.0).step_by(7) {
        let blocks = (capacity.0 - start).min(7);
        let start = Lba(start);
        rig.submit(namespace, Operation::Write { start, blocks: Blocks(blocks), payload: data(blocks, 1) });
    }
    rig.quiesce();
    let pool = rig.device().pool().expect("it is open");
    assert_eq!(pool.writable_groups(namespace).values().sum::<u32>(), 2);
    assert!(pool.group_widths(namespace, ZoneIndex(0)).iter().sum::<u32>() >= 16, "its zones are still its own");
}
