//! Metadata must fit a zone of the log.

use zonda_zoned::{Blocks, Geometry, NamespaceId, Status, ZoneAction, ZoneIndex, ZoneState, ZonedDevice};

use super::rig::{Rig, TENANT, manage, write};
use crate::{NamespaceConfig, PoolEvent, PoolOptions};

/// Many zones of 24 blocks of 512 bytes, one of them in a zone of a namespace.
fn small_zones(zone_count: u32) -> Rig {
    let drive = Geometry {
        zone_size_blocks: Blocks(32),
        zone_capacity_blocks: Blocks(24),
        zone_count,
        max_active_zones: Some(32),
        max_open_zones: Some(32),
        ..Geometry::tiny()
    };
    Rig::new(drive, PoolOptions { zones_per_vzone: Some(1), width_max: Some(1), ..PoolOptions::default() })
}

/// The largest namespace that the pool accepts with this active v-zones.
fn create_largest(rig: &mut Rig, active: u32) -> u32 {
    let config = |zones| NamespaceConfig::new("largest", [1; 16], zones, active);
    let now = rig.now;
    let largest = (1..600).rev().find(|zones| rig.device().create_namespace(now, &config(*zones)).is_ok());
    rig.quiesce();
    largest.expect("one zone fits")
}

#[test]
fn a_namespace_whose_metadata_may_not_fit_a_zone_of_the_log_is_refused() {
    let mut rig = small_zones(600);
    let now = rig.now;
    let refused = rig.device().create_namespace(now, &NamespaceConfig::new("large", [1; 16], 500, 2)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the metadata of all namespaces may take 51 blocks of 512 bytes, and a zone of this drive has 24: make the \
         namespace smaller, or create the pool with more zones of the drive in each of its own"
    );
    let zones = create_largest(&mut rig, 2);
    assert!(zones > 100, "{zones}");
    let refused = rig.device().resize_namespace(now, NamespaceId(1), 500).unwrap_err();
    assert!(refused.to_string().starts_with("the metadata of all namespaces may take"), "{refused}");
}

#[test]
fn the_metadata_of_the_largest_namespace_fits_when_all_its_zones_are_written_reset_and_written() {
    let mut rig = small_zones(600);
    let zones = create_largest(&mut rig, 2);
    let (size, capacity) = (rig.zone_size(TENANT), rig.device().geometry(TENANT).zone_capacity_blocks.0);
    for round in 1..4 {
        for zone in 0..u64::from(zones) {
            assert_eq!(rig.execute(TENANT, write(zone * size, capacity.min(8), round)).status, Status::Success);
            assert_eq!(rig.execute(TENANT, manage(zone * size, ZoneAction::Finish)).status, Status::Success);
        }
        rig.mount_again();
        assert!((0..zones).all(|zone| rig.state(zone) == ZoneState::Full), "round {round}");
        for zone in (0..u64::from(zones)).filter(|_| round < 3) {
            assert_eq!(rig.execute(TENANT, manage(zone * size, ZoneAction::Reset)).status, Status::Success);
        }
    }
    rig.check();
}

#[test]
fn a_pool_whose_metadata_has_outgrown_its_log_becomes_read_only() {
    let mut rig = small_zones(2_000);
    let zones = create_largest(&mut rig, 2);
    let size = rig.zone_size(TENANT);
    for zone in 0..u64::from(zones) {
        assert_eq!(rig.execute(TENANT, write(zone * size, 8, 7)).status, Status::Success);
        assert_eq!(rig.execute(TENANT, manage(zone * size, ZoneAction::Finish)).status, Status::Success);
    }
    // Each other zone of the drive fails, and is listed.
    for zone in (6..2_000).rev() {
        if rig.drive().state(ZoneIndex(zone)) == ZoneState::Empty {
            rig.drive().degrade(ZoneIndex(zone), ZoneState::Offline);
        }
    }
    rig.mount_again();
    let mut statuses = Vec::new();
    for zone in 0..u64::from(zones) {
        statuses.push(rig.execute(TENANT, manage(zone * size, ZoneAction::Reset)).status);
        statuses.push(rig.execute(TENANT, write(zone * size, 8, 8)).status);
    }
    let events: Vec<PoolEvent> = std::iter::from_fn(|| rig.device().poll_event()).collect();
    let is_read_only = rig.device().pool().expect("it is open").is_read_only();
    assert!(is_read_only == events.contains(&PoolEvent::ReadOnly) && is_read_only, "{events:?}");
    assert!(statuses.contains(&Status::InternalError));
}
