//! Namespaces that change while a host uses them.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::testbed::{SUBSYSTEM, Testbed, host_config, nqn, target_config};
use zonda_initiator::{Event, InitiatorConfig, Reason, State, Step};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_target::{DeviceKey, HostAccess, NamespaceConfig, NamespaceOptions};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, CommandId, Duration, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, PayloadKind,
    ReportFilter, Status, ZoneIndex,
};

const FIRST: NamespaceId = NamespaceId(1);
const MOST: u32 = 40;

fn zoned(zone_count: u32) -> Geometry {
    Geometry {
        zone_size_blocks: Blocks(32),
        zone_capacity_blocks: Blocks(30),
        zone_count,
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(16),
        max_active_zones: None,
        max_open_zones: None,
        ..Geometry::tiny()
    }
}

fn conventional(zone_count: u32) -> Geometry {
    Geometry {
        zone_capacity_blocks: Blocks(32),
        conventional_zone_count: zone_count,
        zrwa: None,
        descriptor_extension_bytes: 0,
        ..zoned(zone_count)
    }
}

/// A host of namespaces of this kind, the devices of which have 40 zones.
fn connected(geometry: fn(u32) -> Geometry, zone_count: u32) -> Testbed {
    let host = InitiatorConfig { io_queues: 2, ..host_config() };
    let target = target_config(&[geometry(zone_count), geometry(zone_count)], HostAccess::Any);
    let mut testbed = Testbed::connected(host, target, 5);
    testbed.devices.fill(ReferenceDevice::new(geometry(MOST), PayloadKind::Bytes));
    testbed.events.clear();
    testbed
}

fn resize(testbed: &mut Testbed, id: NamespaceId, geometry: Geometry) {
    let now = testbed.now;
    testbed.target.as_mut().unwrap().resize_namespace(now, &nqn(SUBSYSTEM), id, geometry).unwrap();
}

/// Executes one command.
fn run(testbed: &mut Testbed, operation: Operation) -> (Status, Outcome) {
    testbed.submit(Command::new(CommandId(7), NamespaceId::FIRST, operation));
    testbed.run_until_idle();
    let completion = testbed.completions.pop().unwrap();
    (completion.status, completion.outcome)
}

fn read(testbed: &mut Testbed, lba: Lba) -> Status {
    run(testbed, Operation::Read { start: lba, blocks: Blocks(1) }).0
}

fn report_all() -> Operation {
    Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: u32::MAX,
    }
}

#[test]
fn a_zoned_namespace_that_grows_or_shrinks_is_used_in_its_new_size() {
    let mut testbed = connected(zoned, 12);
    for (zone_count, written) in [(20, 19), (MOST, 39), (3, 2), (12, 11)] {
        resize(&mut testbed, FIRST, zoned(zone_count));
        testbed.run_until_idle();
        assert_eq!(std::mem::take(&mut testbed.events), [Event::Resized]);
        let geometry = testbed.initiator.geometry().unwrap().clone();
        assert_eq!(geometry, zoned(zone_count));
        let append = Operation::Append {
            zone_start: geometry.zone_start(ZoneIndex(written)),
            blocks: Blocks(1),
            payload: Payload::None,
        };
        assert_eq!(run(&mut testbed, append).0, Status::Success);
        let (status, Outcome::Report(report)) = run(&mut testbed, report_all()) else { panic!("a report") };
        assert_eq!((status, report.zones.len()), (Status::Success, zone_count as usize));
        assert_eq!(read(&mut testbed, geometry.zone_start(ZoneIndex(zone_count))), Status::LbaOutOfRange);
    }
    assert_eq!(testbed.initiator.statistics().losses, 0);
}

#[test]
fn a_conventional_namespace_changes_its_size_too() {
    let mut testbed = connected(conventional, 8);
    for blocks in [16 * 32, 4 * 32] {
        resize(&mut testbed, FIRST, conventional(blocks / 32));
        testbed.run_until_idle();
        assert_eq!(std::mem::take(&mut testbed.events), [Event::Resized]);
        let geometry = testbed.initiator.geometry().unwrap();
        assert_eq!((geometry.zone_count, geometry.namespace_blocks()), (1, Blocks(blocks.into())));
        let last = Lba(u64::from(blocks) - 1);
        assert_eq!(read(&mut testbed, last), Status::Success);
        assert_eq!(read(&mut testbed, Lba(last.0 + 1)), Status::LbaOutOfRange);
    }
}

#[test]
fn a_change_of_another_namespace_is_none_of_this_one() {
    let mut testbed = connected(zoned, 12);
    resize(&mut testbed, NamespaceId(2), zoned(20));
    testbed.run_until_idle();
    assert_eq!((&testbed.events[..], testbed.initiator.geometry()), (&[][..], Some(&zoned(12))));
    // The next event arrives, because the list of changes was read.
    resize(&mut testbed, FIRST, zoned(20));
    testbed.run_until_idle();
    assert_eq!(testbed.events, [Event::Resized]);
}

#[test]
fn commands_in_flight_while_the_size_changes_complete_and_the_last_size_counts() {
    let mut testbed = connected(zoned, 12);
    let mut next = 0;
    for round in 0..600 {
        let zone_count = 1 + testbed.prng.below(u64::from(MOST)) as u32;
        if round % 3 == 0 {
            resize(&mut testbed, FIRST, zoned(zone_count));
        }
        let zone = testbed.prng.below(u64::from(MOST)) as u32;
        let start = zoned(MOST).zone_start(ZoneIndex(zone));
        let filter = if next % 2 == 0 { ReportFilter::All } else { ReportFilter::State(zonda_zoned::ZoneState::Empty) };
        let operation = match next % 4 {
            0 => Operation::Append { zone_start: start, blocks: Blocks(1), payload: Payload::None },
            1 => Operation::Read { start, blocks: Blocks(1) },
            2 => Operation::WriteZeroes { start, blocks: Blocks(1) },
            _ => Operation::ReportZones { start: Lba(0), filter, extended: false, partial: false, descriptors_max: 40 },
        };
        next += 1;
        let _ = testbed.initiator.submit(testbed.now, Command::new(CommandId(next), NamespaceId::FIRST, operation));
        for _ in 0..testbed.prng.below(12) {
            testbed.step();
        }
        while let Some(completion) = testbed.completions.pop() {
            assert_ne!(completion.status, Status::InternalError, "round {round}");
        }
    }
    resize(&mut testbed, FIRST, zoned(9));
    testbed.run_until_idle();
    assert_eq!(*testbed.initiator.state(), State::Ready);
    assert_eq!(testbed.initiator.geometry(), Some(&zoned(9)));
}

/// Removes the namespace, and adds another with its identifier.
fn replace(testbed: &mut Testbed, geometry: Geometry, uuid: [u8; 16]) {
    let now = testbed.now;
    let target = testbed.target.as_mut().unwrap();
    target.remove_namespace(now, &nqn(SUBSYSTEM), FIRST).unwrap();
    let other = NamespaceConfig {
        id: FIRST,
        device: DeviceKey(7),
        device_namespace: NamespaceId::FIRST,
        geometry,
        identity: NamespaceIdentity { uuid: Some(uuid), ..NamespaceIdentity::default() },
        volatile_write_cache: true,
    };
    target.add_namespace(now, &nqn(SUBSYSTEM), other, NamespaceOptions::default()).unwrap();
}

#[test]
fn a_namespace_that_is_removed_or_replaced_ends_the_session() {
    let halved = Geometry { zone_size_blocks: Blocks(64), ..zoned(12) };
    let remove = |testbed: &mut Testbed| {
        let now = testbed.now;
        testbed.target.as_mut().unwrap().remove_namespace(now, &nqn(SUBSYSTEM), FIRST).unwrap();
    };
    type Change<'a> = &'a dyn Fn(&mut Testbed);
    let cases: [(Change<'_>, Reason); 4] = [
        (&remove, Reason::NoSuchNamespace),
        (&|testbed| replace(testbed, zoned(12), [9; 16]), Reason::NamespaceChanged),
        (&|testbed| replace(testbed, halved.clone(), [1; 16]), Reason::NamespaceChanged),
        (&|testbed| replace(testbed, conventional(12), [1; 16]), Reason::NamespaceChanged),
    ];
    for (change, expected) in cases {
        let mut testbed = connected(zoned, 12);
        change(&mut testbed);
        testbed.run_until_idle();
        let State::Failed(error) = testbed.initiator.state() else { panic!("{:?}", testbed.initiator.state()) };
        assert_eq!((error.step, &error.reason), (Step::Serve, &expected));
        assert_eq!(read(&mut testbed, Lba(0)), Status::NamespaceNotReady);
    }
}

#[test]
fn a_namespace_that_was_resized_while_the_host_was_away_has_its_new_size_after_reconnecting() {
    let reconnect = Some(Duration::from_secs(1));
    let host = InitiatorConfig { reconnect, ..host_config() };
    let mut testbed = Testbed::connected(host, target_config(&[zoned(12)], HostAccess::Any), 6);
    let queues = testbed.queues();
    queues.into_iter().for_each(|queue| testbed.cut(queue));
    resize(&mut testbed, FIRST, zoned(20));
    testbed.run_until(|testbed| *testbed.initiator.state() == State::Ready);
    testbed.run_until_idle();
    assert_eq!((testbed.initiator.geometry(), testbed.events.last()), (Some(&zoned(20)), Some(&Event::Resized)));
}
