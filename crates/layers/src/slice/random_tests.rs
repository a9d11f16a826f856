//! Random commands: slices are compared with separate devices, and with their underlying device.

use std::collections::BTreeMap;
use zonda_zoned::Geometry;

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{Prng, ReportFilter, ZoneDescriptor, ZoneState, ZrwaGeometry};

use super::*;
use crate::testing::{Narrow, command, poll_all, run_until_idle};
use crate::{Fault, FaultEffect, FaultRule, Matcher, Shared, When};

/// A slice, and a separate device that it must be equivalent to.
struct Tenant<D> {
    slice: Slice<D>,
    config: SliceConfig,
    alone: ReferenceDevice,
    source: CommandSource,
    expected: BTreeMap<CommandId, Completion>,
}

impl<D: ZonedDevice> Tenant<D> {
    fn new(inner: D, config: SliceConfig, geometry: &Geometry, prng: Prng) -> Tenant<D> {
        Tenant {
            slice: Slice::new(inner, config).unwrap(),
            alone: ReferenceDevice::new(geometry.clone(), config.keeps),
            source: CommandSource::new(geometry, config.keeps, prng),
            expected: BTreeMap::new(),
            config,
        }
    }

    /// Submits one random command to both; returns the slice's refusal.
    fn submit_one(&mut self, now: Instant, waiting: &mut Option<Command>) -> bool {
        let command = waiting.take().unwrap_or_else(|| {
            let command = self.source.next(&self.alone);
            self.expected.insert(command.id, self.alone.execute(&command));
            command
        });
        match self.slice.submit(now, command.clone()) {
            Ok(()) => true,
            Err(QueueFull(refused)) => {
                assert_eq!(refused, command, "returned unchanged");
                *waiting = Some(refused);
                false
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        for completion in poll_all(&mut self.slice, now) {
            assert_eq!(Some(&completion), self.expected.remove(&completion.id).as_ref());
        }
    }

    fn check_against(&self, device: &ReferenceDevice) {
        self.slice.zones().check_invariants();
        let geometry = self.slice.geometry(NamespaceId::FIRST);
        let offset = geometry.zone_start(self.config.first).0;
        for zone in 0..self.config.count {
            let of_device = device.descriptor(ZoneIndex(self.config.first.0 + zone));
            assert_eq!(moved(of_device, offset), self.alone.descriptor(ZoneIndex(zone)));
        }
        for lba in 0..geometry.namespace_blocks().0 {
            assert_eq!(device.block(Lba(lba + offset)), self.alone.block(Lba(lba)), "block {lba}");
        }
    }
}

/// A device for two slices of this geometry and some further zones, without spare resources.
fn device_for_two(slice: &Geometry, prng: &mut Prng) -> (Geometry, [SliceConfig; 2]) {
    let gap = prng.below(3) as u32;
    let keeps = [PayloadKind::None, PayloadKind::Fingerprints, PayloadKind::Bytes][prng.below(3) as usize];
    // Conventional zones come first in a namespace: with some of its own, a slice must begin among
    // them, and only the first of two slices can hold the end of them.
    let first = SliceConfig {
        namespace: NamespaceId::FIRST,
        first: ZoneIndex(gap),
        count: slice.zone_count,
        max_active_zones: slice.max_active_zones,
        max_open_zones: slice.max_open_zones,
        zrwa_resources: slice.zrwa.map_or(0, |zrwa| zrwa.resources),
        keeps,
    };
    let second = SliceConfig { first: ZoneIndex(2 * gap + slice.zone_count), ..first };
    let device = Geometry {
        zone_count: 3 * gap + 2 * slice.zone_count,
        conventional_zone_count: if slice.conventional_zone_count > 0 {
            gap + slice.conventional_zone_count
        } else {
            0
        },
        max_active_zones: slice.max_active_zones.map(|max| 2 * max),
        max_open_zones: slice.max_open_zones.map(|max| 2 * max),
        zrwa: slice.zrwa.map(|zrwa| ZrwaGeometry { resources: 2 * zrwa.resources, ..zrwa }),
        ..slice.clone()
    };
    SliceConfig::check_together(&device, &[first, second]).unwrap();
    (device, [first, second])
}

#[test]
fn two_slices_of_one_device_are_each_like_a_device_of_their_own() {
    let mut prng = Prng::new(20);
    for seed in 0..60 {
        let geometry = random_geometry(&mut prng);
        let (device, configs) = device_for_two(&geometry, &mut prng);
        let untouched = ReferenceDevice::new(device.clone(), configs[0].keeps);
        let slots = 1 + prng.below(6) as usize;
        let shared = Shared::new(Narrow::new(ReferenceDevice::new(device.clone(), configs[0].keeps), slots));
        let mut tenants = configs.map(|config| {
            let own = config.geometry(&device).unwrap();
            Tenant::new(shared.clone(), config, &own, prng.fork(&format!("tenant/{seed}/{}", config.first)))
        });
        let mut waiting = [None, None];
        let mut left = 1_500;
        for step in 0u64.. {
            let now = Instant(step);
            let index = prng.below(2) as usize;
            if left > 0 && prng.chance(2, 3) {
                left -= u32::from(tenants[index].submit_one(now, &mut waiting[index]));
            } else {
                tenants[index].poll(now);
            }
            if left == 700 {
                left -= 1;
                lose_a_zone(&shared, &mut tenants, &mut waiting, now);
            }
            if left == 0 {
                for (tenant, waiting) in tenants.iter_mut().zip(&mut waiting) {
                    if waiting.is_some() {
                        tenant.submit_one(now, waiting);
                    }
                }
                if waiting.iter().all(Option::is_none) && tenants.iter().all(|tenant| tenant.expected.is_empty()) {
                    break;
                }
            }
            assert!(step < 200_000, "commands are stuck: {:?}", tenants.map(|tenant| tenant.expected));
        }
        shared.with_inner(|narrow| {
            let device = &narrow.inner;
            tenants.iter().for_each(|tenant| tenant.check_against(device));
            for zone in (0..device.geometry(NamespaceId::FIRST).zone_count).map(ZoneIndex) {
                let inside = |config: &SliceConfig| (config.first.0..config.first.0 + config.count).contains(&zone.0);
                if !configs.iter().any(inside) {
                    assert_eq!(device.image(zone), untouched.image(zone), "zone {zone} belongs to no slice");
                }
            }
        });
    }
}

/// Completes all commands, makes the last zone of each tenant read only on both of its devices, and
/// lets the slice detect it.
fn lose_a_zone(
    shared: &Shared<Narrow<ReferenceDevice>>,
    tenants: &mut [Tenant<Shared<Narrow<ReferenceDevice>>>; 2],
    waiting: &mut [Option<Command>; 2],
    now: Instant,
) {
    for (tenant, waiting) in tenants.iter_mut().zip(waiting) {
        while waiting.is_some() || !tenant.expected.is_empty() {
            if waiting.is_some() {
                tenant.submit_one(now, waiting);
            }
            tenant.poll(now);
        }
        let last = ZoneIndex(tenant.config.count - 1);
        if last.0 < tenant.alone.geometry(NamespaceId::FIRST).conventional_zone_count {
            continue;
        }
        tenant.alone.degrade(last, ZoneState::ReadOnly);
        shared.clone().with_inner_mut(|narrow| {
            narrow.inner.degrade(ZoneIndex(tenant.config.first.0 + last.0), ZoneState::ReadOnly);
        });
        let notice = command(u64::MAX, Operation::ReadChangedZones);
        let expected = tenant.alone.execute(&notice);
        tenant.expected.insert(notice.id, expected);
        while tenant.slice.submit(now, notice.clone()).is_err() {
            tenant.poll(now);
        }
        while !tenant.expected.is_empty() {
            tenant.poll(now);
        }
    }
}

#[test]
fn the_table_equals_the_device_after_any_failure() {
    let mut prng = Prng::new(77);
    for seed in 0..40 {
        let geometry = random_geometry(&mut prng);
        let (device, [config, _]) = device_for_two(&geometry, &mut prng);
        let rules = [FaultEffect::Fail(Status::InternalError), FaultEffect::FailAfter(Status::WriteFault)]
            .map(|effect| FaultRule {
                matches: Matcher::default(),
                when: When::Chance { numerator: 1, denominator: 12 },
                effect,
            })
            .to_vec();
        let inner = Fault::new(ReferenceDevice::new(device, config.keeps), rules, Prng::new(seed));
        let own = config.geometry(inner.geometry(NamespaceId::FIRST)).unwrap();
        let mut tenant = Tenant::new(inner, config, &own, Prng::new(seed));
        let mut agreed = 0;
        for step in 0..600 {
            for _ in 0..=prng.below(4) {
                let command = tenant.source.next(&tenant.alone);
                tenant.alone.execute(&command);
                tenant.slice.submit(Instant(step), command).unwrap();
            }
            run_until_idle(&mut tenant.slice, Instant(step));
            tenant.slice.zones().check_invariants();
            if !tenant.slice.resync.unknown.is_empty() {
                continue;
            }
            agreed += count_agreeing_zones(&tenant, &own, seed);
        }
        assert!(agreed > 300 * u64::from(config.count), "{agreed} of {} zones", 600 * config.count);
    }
}

fn count_agreeing_zones(tenant: &Tenant<Fault<ReferenceDevice>>, own: &Geometry, seed: u64) -> u64 {
    let first = tenant.config.first;
    let of_slice = tenant.slice.zones().report(
        Lba(0),
        ReportFilter::All,
        own.descriptor_extension_bytes > 0,
        true,
        tenant.config.count,
    );
    let mut agreed = 0;
    for (zone, of_slice) in (first.0..).map(ZoneIndex).zip(of_slice.unwrap().zones) {
        let of_device = tenant.slice.inner().inner().descriptor(zone);
        let shown_full =
            of_slice.state == ZoneState::Full && of_device.state.is_active() && tenant.slice.shown_full() > 0;
        if shown_full {
            continue;
        }
        let zeros =
            (own.descriptor_extension_bytes > 0).then(|| vec![0; own.descriptor_extension_bytes as usize].into());
        let extension = tenant.slice.inner().inner().image(zone).extension.or(zeros);
        let of_device = ZoneDescriptor { extension, ..moved(of_device, own.zone_start(first).0) };
        assert_eq!(of_slice, of_device, "seed {seed}, zone {zone} of the device");
        agreed += 1;
    }
    agreed
}

/// The descriptor of a zone of the device, in the addresses of a slice that begins `offset` blocks
/// into it.
fn moved(mut descriptor: ZoneDescriptor, offset: u64) -> ZoneDescriptor {
    descriptor.start = Lba(descriptor.start.0 - offset);
    descriptor.write_pointer = descriptor.write_pointer.map(|lba| Lba(lba.0 - offset));
    descriptor
}
