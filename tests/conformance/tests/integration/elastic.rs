//! A namespace of a pool conforms as every zoned namespace does.

use zonda_conformance::{Virtual, conformance};
use zonda_elastic::{ElasticDevice, Goal, NamespaceConfig, PoolId, PoolOptions};
use zonda_layers::Memory;
use zonda_zoned::{Blocks, CompletionQueue, Geometry, Instant, NamespaceId, PayloadKind, ZonedDevice};

const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Physical zones of a v-zone.
const ZONES_PER_VZONE: u32 = 4;

/// A drive on which v-zones of this geometry have several physical zones.
fn drive_for(geometry: &Geometry) -> Geometry {
    let capacity = Blocks((geometry.zone_capacity_blocks.0 * 5 / 8 + 16).next_multiple_of(8));
    Geometry {
        zone_size_blocks: capacity,
        zone_capacity_blocks: capacity,
        zone_count: 6 + (geometry.zone_count + 8) * ZONES_PER_VZONE,
        max_active_zones: Some(32),
        max_open_zones: Some(32),
        descriptor_extension_bytes: 0,
        zrwa: None,
        ..geometry.clone()
    }
}

fn quiesce(device: &mut ElasticDevice<Memory>) {
    for _ in 0..100 {
        device.poll(Instant::ZERO, &mut CompletionQueue::new());
    }
}

/// A pool on a new drive with one namespace of this geometry; `None` if no pool can have it.
fn pool(geometry: &Geometry) -> Option<ElasticDevice<Memory>> {
    let options = PoolOptions { zones_per_vzone: Some(ZONES_PER_VZONE), width_max: Some(4), ..PoolOptions::default() };
    let goal = Goal::Create { id: PoolId([3; 16]), options };
    let mut device = ElasticDevice::new(Memory::new(drive_for(geometry), MEMORY_BYTES_MAX), goal, PayloadKind::Bytes);
    quiesce(&mut device);
    let active = geometry.max_active_zones?;
    let config = NamespaceConfig {
        zone_capacity_blocks: Some(geometry.zone_capacity_blocks),
        zone_size_blocks: Some(geometry.zone_size_blocks),
        max_open_zones: geometry.max_open_zones,
        max_transfer_blocks: Some(geometry.max_transfer_blocks),
        max_append_blocks: Some(geometry.max_append_blocks),
        descriptor_extension_bytes: geometry.descriptor_extension_bytes,
        read_across_zones: geometry.read_across_zones,
        ..NamespaceConfig::new("tenant", [1; 16], geometry.zone_count, active)
    };
    let id = device.create_namespace(Instant::ZERO, &config).ok()?;
    quiesce(&mut device);
    assert_eq!((id, device.geometry(id)), (NamespaceId::FIRST, geometry));
    Some(device)
}

fn mounted_again(device: ElasticDevice<Memory>) -> ElasticDevice<Memory> {
    let mut memory = device.into_drive();
    memory.power_cycle();
    let goal = Goal::Mount { id: Some(PoolId([3; 16])), epoch_min: 1 };
    let mut device = ElasticDevice::new(memory, goal, PayloadKind::Bytes);
    quiesce(&mut device);
    assert_eq!(device.error(), None);
    device
}

#[test]
fn an_elastic_namespace_conforms() {
    let summary = conformance("elastic", &mut |geometry| {
        if geometry.conventional_zone_count > 0 || geometry.zrwa.is_some() {
            return None;
        }
        let backend = Virtual::new(pool(geometry)?)
            .with_power_cycle(mounted_again)
            .forgetting_untouched_zones()
            .with_invariants(|device| device.pool().expect("it is open").check_invariants());
        Some(Box::new(backend))
    });
    assert!(summary.passed > 60, "{summary:?}");
}
