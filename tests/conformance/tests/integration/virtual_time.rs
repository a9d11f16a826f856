//! The devices that run in virtual time.

use crate::support::volume::{ModelVolume, RAID1, RAID5, model_volume};
use zonda_conformance::{TestBackend, Virtual, conformance, conformance_of_conventional};
use zonda_layers::{
    Fault, FaultEffect, FaultRule, Matcher, Memory, OperationKind, OperationSet, Paced, Shared, Slice, SliceConfig,
    Trace, When,
};
use zonda_raid::MemberIndex;
use zonda_sched::{Fifo, MqDeadline, MqDeadlineConfig, Scheduled, Scheduler};
use zonda_ssd::Ssd;
use zonda_zoned::{Geometry, NamespaceId, PayloadKind, Prng, Status, ZoneIndex, ZrwaGeometry};

/// Bytes that a drive in memory may store here.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

#[test]
fn the_ssd_model_conforms() {
    let summary = conformance("ssd", &mut |geometry| {
        let (drive, profile) = crate::support::ssd(geometry, PayloadKind::Bytes);
        let backend = Virtual::new(drive)
            .with_power_cycle(move |drive| crate::support::cycle(drive, &profile))
            .with_degrade(Ssd::degrade)
            .with_invariants(Ssd::check_invariants);
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

#[test]
fn the_ssd_model_with_fingerprints_conforms() {
    let summary = conformance("ssd with fingerprints", &mut |geometry| {
        let (drive, profile) = crate::support::ssd(geometry, PayloadKind::Fingerprints);
        let backend = Virtual::new(drive)
            .keeping(PayloadKind::Fingerprints)
            .with_power_cycle(move |drive| crate::support::cycle(drive, &profile))
            .with_degrade(Ssd::degrade);
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

#[test]
fn a_drive_in_memory_conforms() {
    let summary = conformance("memory", &mut |geometry| {
        let backend = Virtual::new(Memory::new(geometry.clone(), MEMORY_BYTES_MAX))
            .with_power_cycle(|mut memory| {
                memory.power_cycle();
                memory
            })
            .with_degrade(Memory::degrade)
            .with_invariants(|memory| memory.zones().check_invariants());
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

#[test]
fn a_drive_in_memory_with_the_times_of_an_ssd_conforms() {
    let summary = conformance("memory paced by an ssd", &mut |geometry| {
        let (model, profile) = crate::support::ssd(geometry, PayloadKind::None);
        let memory = Memory::new(geometry.clone(), MEMORY_BYTES_MAX);
        let backend = Virtual::new(Paced::new(memory, model))
            .with_power_cycle(move |paced| {
                let (mut memory, model) = paced.into_inner();
                memory.power_cycle();
                Paced::new(memory, crate::support::cycle(model, &profile))
            })
            .with_degrade(|paced, zone, to| {
                paced.device_mut().degrade(zone, to);
                paced.model_mut().degrade(zone, to);
            });
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

/// A drive of more zones and resources than this geometry, and the slice of it that has the
/// geometry.
fn drive_around(geometry: &Geometry) -> (Geometry, SliceConfig) {
    let first = ZoneIndex(2);
    let is_conventional = geometry.conventional_zone_count > 0;
    let one_more = |limit: Option<u32>| limit.map(|limit| limit + 1);
    let drive = Geometry {
        zone_count: geometry.zone_count + 3,
        conventional_zone_count: geometry.conventional_zone_count + if is_conventional { first.0 } else { 0 },
        max_active_zones: one_more(geometry.max_active_zones),
        max_open_zones: one_more(geometry.max_open_zones),
        zrwa: geometry.zrwa.map(|zrwa| ZrwaGeometry { resources: zrwa.resources + 1, ..zrwa }),
        ..geometry.clone()
    };
    let config = SliceConfig {
        namespace: NamespaceId::FIRST,
        first,
        count: geometry.zone_count,
        max_active_zones: geometry.max_active_zones,
        max_open_zones: geometry.max_open_zones,
        zrwa_resources: geometry.zrwa.map_or(0, |zrwa| zrwa.resources),
        keeps: PayloadKind::Bytes,
    };
    (drive, config)
}

#[test]
fn a_slice_of_a_drive_conforms() {
    conformance("slice", &mut |geometry| {
        let (drive, config) = drive_around(geometry);
        let slice = Slice::new(Memory::new(drive, MEMORY_BYTES_MAX), config).expect("the drive is larger");
        let backend = Virtual::new(slice)
            .with_power_cycle(move |slice| {
                let mut memory = slice.into_inner();
                memory.power_cycle();
                Slice::new(memory, config).expect("the drive is the same")
            })
            .with_invariants(|slice| slice.zones().check_invariants());
        Some(Box::new(backend))
    });
}

#[test]
fn a_shared_and_traced_drive_conforms() {
    let summary = conformance("shared", &mut |geometry| {
        let shared = Shared::new(Memory::new(geometry.clone(), MEMORY_BYTES_MAX));
        let backend = Virtual::new(Trace::with_capacity(shared, 16))
            .with_power_cycle(|traced| {
                traced.inner().clone().with_inner_mut(Memory::power_cycle);
                Trace::with_capacity(traced.into_inner(), 16)
            })
            .with_degrade(|traced, zone, to| {
                traced.inner().clone().with_inner_mut(|memory| memory.degrade(zone, to));
            });
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

/// An SSD behind a scheduler, with few commands in flight.
fn scheduled(name: &str, scheduler: fn() -> Box<dyn Scheduler>) {
    let summary = conformance(name, &mut |geometry| {
        let (drive, profile) = crate::support::ssd(geometry, PayloadKind::Bytes);
        let around = move |drive| Scheduled::new(drive, scheduler()).with_in_flight_max(3).recording_releases();
        let backend = Virtual::new(around(drive))
            .with_power_cycle(move |device| around(crate::support::cycle(device.into_inner(), &profile)))
            .with_degrade(|device, zone, to| device.inner_mut().degrade(zone, to))
            .with_invariants(Scheduled::check_invariants)
            .with_releases(Scheduled::take_release);
        Some(Box::new(backend))
    });
    assert_eq!(summary.skipped, 0);
}

#[test]
fn an_ssd_behind_a_queue_conforms() {
    scheduled("ssd behind a queue", || Box::new(Fifo::default()));
}

#[test]
fn an_ssd_behind_mq_deadline_conforms() {
    scheduled("ssd behind mq-deadline", || Box::new(MqDeadline::new(MqDeadlineConfig::default())));
}

fn boxed(volume: ModelVolume) -> Box<dyn TestBackend> {
    Box::new(volume)
}

#[test]
fn a_raid5_volume_of_ssds_conforms() {
    let summary =
        conformance_of_conventional("raid5 of ssds", &mut |geometry| model_volume(geometry, RAID5, 64).map(boxed));
    assert_eq!(summary.skipped, 0);
}

#[test]
fn a_raid1_volume_of_ssds_without_metadata_conforms() {
    let summary =
        conformance_of_conventional("raid1 of ssds", &mut |geometry| model_volume(geometry, RAID1, 0).map(boxed));
    assert_eq!(summary.skipped, 0);
}

#[test]
fn a_degraded_raid5_volume_of_ssds_conforms() {
    let summary = conformance_of_conventional("degraded raid5 of ssds", &mut |geometry| {
        model_volume(geometry, RAID5, 64).map(|volume| boxed(volume.degraded(MemberIndex(1))))
    });
    assert_eq!(summary.skipped, 0);
}

/// The failures of a drive in memory with an injected fault.
fn failures_with(effect: FaultEffect, operations: OperationSet) -> String {
    let caught = std::panic::catch_unwind(|| {
        conformance("wrong", &mut |geometry| {
            let memory = Memory::new(geometry.clone(), MEMORY_BYTES_MAX);
            let when = When::Chance { numerator: 1, denominator: 3 };
            let rule = FaultRule { matches: Matcher::operations(operations), when, effect };
            Some(Box::new(Virtual::new(Fault::new(memory, vec![rule], Prng::new(1)))))
        })
    });
    let panic = caught.expect_err("the fault must be detected");
    panic.downcast_ref::<String>().expect("the panic has a message").clone()
}

#[test]
fn a_faulty_device_does_not_conform_and_its_failures_are_reported() {
    let failures = failures_with(FaultEffect::CorruptRead, OperationSet::READ);
    assert!(failures.contains("holds other data than mark"), "{failures}");
    let flush = OperationSet::of(&[OperationKind::Flush]);
    let failures = failures_with(FaultEffect::FailAfter(Status::InternalError), flush);
    assert!(failures.contains("Flush ended with \"internal error\", not with \"success\""), "{failures}");
    let reset = OperationSet::of(&[OperationKind::Reset]);
    let failures = failures_with(FaultEffect::Fail(Status::Success), reset);
    assert!(failures.contains("not empty at Some(0)"), "{failures}");
    let failures = failures_with(FaultEffect::Fail(Status::Success), OperationSet::WRITES);
    assert!(failures.contains("random commands"), "{failures}");
}
