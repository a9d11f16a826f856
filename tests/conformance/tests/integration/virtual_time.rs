//! The devices that run in virtual time.

use zonda_conformance::{Virtual, conformance};
use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, Memory, OperationKind, OperationSet, Paced, When};
use zonda_ssd::Ssd;
use zonda_zoned::{PayloadKind, Prng, Status};

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
