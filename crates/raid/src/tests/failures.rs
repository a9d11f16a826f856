//! Failing members, one kind of failure at a time.

use zonda_zoned::{Blocks, Duration, Geometry, Operation, Payload, Prng, Status, ZoneAction, ZoneState, ZoneTarget};

use crate::limits::METADATA_ZONES;
use crate::testing::{CommandFilter, Drive, Presence, Request, Simulation};
use crate::{Event, FailReason, Level, MemberIndex, MemberState, Scheme, StreamShape, VolumeConfig};

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 3, parity: 1 };
const RAID6: Scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };

pub(super) fn geometry(metadata_bytes: u16) -> Geometry {
    Geometry {
        metadata_bytes,
        zone_size_blocks: Blocks(40),
        zone_capacity_blocks: Blocks(37),
        zone_count: 18,
        max_active_zones: Some(5),
        max_open_zones: Some(5),
        max_transfer_blocks: Blocks(8),
        max_append_blocks: Blocks(4),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    }
}

pub(super) fn config(scheme: Scheme) -> VolumeConfig {
    let mut config = VolumeConfig::new("small", scheme);
    config.small = StreamShape { unit_blocks: 2, group_stripes: 8 };
    config.large = StreamShape { unit_blocks: 4, group_stripes: 1 };
    config.tuning.large_from_blocks = 8;
    config.tuning.reserve_percent = 40;
    config
}

pub(super) fn simulation(scheme: Scheme, metadata_bytes: u16, seed: u64) -> Simulation {
    let prng = Prng::new(seed);
    let drives =
        (0..scheme.members()).map(|at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))));
    Simulation::create(config(scheme), drives.collect(), prng.fork("world")).expect("a valid configuration")
}

/// Runs this many steps, and checks all guarantees.
pub(super) fn run_steps(simulation: &mut Simulation, steps: u64) {
    for step in 0..steps {
        simulation.step(6).unwrap_or_else(|violation| panic!("step {step}: {violation}"));
    }
}

/// Everything completes, and everything is readable.
pub(super) fn expect_all(simulation: &mut Simulation) {
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

/// A power loss, and a mount with all members.
pub(super) fn crash_and_mount(simulation: &mut Simulation) {
    simulation.crash();
    simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// A simulation in which everything was written, some of it many times.
fn written(scheme: Scheme, metadata_bytes: u16) -> Simulation {
    let mut simulation = simulation(scheme, metadata_bytes, 1);
    let blocks = simulation.model.volume_blocks();
    for start in (0..blocks).step_by(8) {
        while !simulation.submit(&Request::Write { start, blocks: 8.min(blocks - start) }).unwrap() {
            simulation.quiesce().unwrap();
        }
    }
    run_steps(&mut simulation, 2000);
    simulation
}

fn failed_members(simulation: &Simulation) -> Vec<(MemberIndex, FailReason)> {
    let member = |event: &Event| match event {
        Event::MemberFailed { member, reason } => Some((*member, *reason)),
        _ => None,
    };
    simulation.events.iter().filter_map(member).collect()
}

#[test]
fn a_member_that_stops_answering_is_failed_and_nothing_is_lost() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes);
        simulation.suspects = 0b0010;
        simulation.drives[1].set_presence(Presence::Unresponsive);
        run_steps(&mut simulation, 1000);
        expect_all(&mut simulation);
        assert_eq!(failed_members(&simulation), [(MemberIndex(1), FailReason::Timeout)]);
        run_steps(&mut simulation, 2000);
        expect_all(&mut simulation);
    }
}

#[test]
fn a_member_that_fails_every_command_is_failed_and_nothing_is_lost() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes);
        simulation.suspects = 0b1000;
        simulation.drives[3].set_presence(Presence::Failing);
        run_steps(&mut simulation, 3000);
        expect_all(&mut simulation);
        assert_eq!(failed_members(&simulation), [(MemberIndex(3), FailReason::Errors)]);
        assert!(simulation.volume.counters().reconstructed_blocks > 0);
    }
}

#[test]
fn as_many_members_as_parity_chunks_can_fail_one_after_another_or_at_once() {
    for pause in [0, 1500] {
        let mut simulation = written(RAID6, 64);
        simulation.suspects = 0b0101;
        simulation.drives[0].set_presence(Presence::Unresponsive);
        run_steps(&mut simulation, pause);
        simulation.drives[2].set_presence(Presence::Failing);
        run_steps(&mut simulation, 1500);
        expect_all(&mut simulation);
        assert_eq!(failed_members(&simulation).len(), 2);
    }
}

#[test]
fn with_more_members_missing_than_tolerated_requests_wait_until_one_is_failed_by_command() {
    let presences = [Presence::Unresponsive, Presence::Failing];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for pause in [0, 7, 1000] {
            let mut simulation = written(RAID5, 64);
            (simulation.suspects, simulation.model.is_lost) = (0b0011, true);
            simulation.drives[0].set_presence(presences[first]);
            run_steps(&mut simulation, pause);
            simulation.drives[1].set_presence(presences[second]);
            run_steps(&mut simulation, 500);
            simulation.wait(Duration::from_secs(100)).unwrap();
            assert!(
                simulation.events.iter().any(|event| matches!(event, Event::Suspended { .. })),
                "{:?}",
                simulation.events
            );
            for member in [0, 1] {
                simulation.volume.fail_member(simulation.now(), MemberIndex(member));
            }
            simulation.check_output().unwrap();
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
            assert!(simulation.events.iter().any(|event| matches!(event, Event::Failed(_))), "{:?}", simulation.events);
            assert!(simulation.submit(&Request::Write { start: 0, blocks: 1 }).unwrap());
            assert_eq!(simulation.model.in_flight(), 0, "it is refused at once");
        }
    }
}

#[test]
fn a_volume_without_redundancy_returns_nothing_wrong_and_fails_with_a_member_that_is_failed_by_command() {
    let mut simulation = written(Scheme { level: Level::Raid0, data: 2, parity: 0 }, 64);
    simulation.quiesce().unwrap();
    simulation.model.is_lost = true;
    for _ in 0..20 {
        let lba = simulation.drives[0].some_block(METADATA_ZONES).expect("it holds written blocks");
        simulation.drives[0].rot(lba);
    }
    simulation.read_all().expect("blocks are right, or errors");
    assert!(simulation.volume.counters().lost_blocks > 0);
    simulation.suspects = 0b01;
    simulation.drives[0].set_presence(Presence::Unresponsive);
    run_steps(&mut simulation, 100);
    simulation.volume.fail_member(simulation.now(), MemberIndex(0));
    simulation.check_output().unwrap();
    simulation.quiesce().expect("every request ends");
}

/// A data zone of a drive in one of these states.
fn zone_that_is(drive: &Drive, states: &[ZoneState]) -> u32 {
    let mut zones = METADATA_ZONES..drive.geometry().zone_count;
    zones.find(|&zone| states.contains(&drive.zone_state(zone))).expect("there is one")
}

#[test]
fn a_zone_that_fails_open_or_full_loses_neither_blocks_nor_its_member() {
    let open = [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed];
    for metadata_bytes in [64, 0] {
        for states in [&open[..], &[ZoneState::Full], &[ZoneState::Empty]] {
            for to in [ZoneState::ReadOnly, ZoneState::Offline] {
                let mut simulation = written(RAID5, metadata_bytes);
                let zone = zone_that_is(&simulation.drives[2], states);
                simulation.drives[2].degrade(zone, to);
                run_steps(&mut simulation, 4000);
                expect_all(&mut simulation);
                assert_eq!(failed_members(&simulation), [], "{states:?} to {to}");
                let retired = simulation.volume.status().members[2].retired_zones;
                assert_eq!(retired, 1, "{states:?} to {to}");
            }
        }
    }
}

#[test]
fn blocks_of_a_zone_that_went_offline_are_moved_to_complete_stripes() {
    let mut simulation = written(RAID5, 64);
    simulation.quiesce().unwrap();
    let zone = zone_that_is(&simulation.drives[2], &[ZoneState::Full]);
    simulation.drives[2].degrade(zone, ZoneState::Offline);
    expect_all(&mut simulation);
    expect_all(&mut simulation);
    assert_eq!(simulation.volume.status().degraded_segments, 0, "{:?}", simulation.volume.status());
    assert!(simulation.volume.counters().reconstructed_blocks > 0);
}

#[test]
fn unreadable_and_corrupt_blocks_are_reconstructed_and_rewritten() {
    for (metadata_bytes, rots) in [(64, false), (64, true), (0, false), (0, true)] {
        let mut simulation = written(RAID5, metadata_bytes);
        simulation.quiesce().unwrap();
        for _ in 0..60 {
            let lba = simulation.drives[1].some_block(METADATA_ZONES).expect("it holds written blocks");
            if rots {
                simulation.drives[1].rot(lba);
            } else {
                simulation.drives[1].lose_block(lba);
            }
        }
        expect_all(&mut simulation);
        assert!(simulation.volume.counters().repaired_blocks > 0);
        // Blocks for which there was no space are left to collection.
        simulation.quiesce().unwrap();
        expect_all(&mut simulation);
        let counters = simulation.volume.counters();
        expect_all(&mut simulation);
        let now = simulation.volume.counters();
        assert_eq!(now.repaired_blocks, counters.repaired_blocks, "they are repaired once");
        assert_eq!(now.reconstructed_blocks, counters.reconstructed_blocks, "and not computed again");
        assert_eq!(simulation.volume.counters().lost_blocks, 0);
        assert_eq!(failed_members(&simulation), []);
    }
}

fn begins_with(operation: &Operation, magic: &[u8]) -> bool {
    let Operation::Write { payload: Payload::Bytes(buffer), .. } = operation else { return false };
    buffer.data.starts_with(magic)
}

fn is_management(geometry: &Geometry, operation: &Operation, wanted: &ZoneAction) -> bool {
    let Operation::ManageZones { action, target: ZoneTarget::Zone(start) } = operation else { return false };
    action == wanted && geometry.zone_of(*start).is_some_and(|zone| zone.0 >= METADATA_ZONES)
}

#[test]
fn a_header_a_footer_a_chunk_a_finish_or_a_reset_that_fails_loses_neither_blocks_nor_the_member() {
    let kinds: [(&str, CommandFilter); 5] = [
        ("header", |_, operation| begins_with(operation, b"ZVSG")),
        ("footer", |_, operation| begins_with(operation, b"ZVFT")),
        ("append", |_, operation| matches!(operation, Operation::Append { .. })),
        ("finish", |geometry, operation| is_management(geometry, operation, &ZoneAction::Finish)),
        ("reset", |geometry, operation| is_management(geometry, operation, &ZoneAction::Reset)),
    ];
    for metadata_bytes in [64, 0] {
        for (name, is_meant) in kinds {
            let mut simulation = written(RAID5, metadata_bytes);
            simulation.drives[0].fail_next(2, is_meant);
            for _ in 0..50 {
                run_steps(&mut simulation, 500);
                if simulation.drives[0].planned_failures_left() == 0 {
                    break;
                }
            }
            run_steps(&mut simulation, 2000);
            expect_all(&mut simulation);
            assert_eq!(simulation.drives[0].planned_failures_left(), 0, "{name}s were written");
            assert_eq!(failed_members(&simulation), [], "{name}");
        }
    }
}

#[test]
fn a_member_that_cannot_write_its_superblock_is_failed() {
    let mut simulation = written(RAID6, 64);
    simulation.suspects = 0b0011;
    simulation.drives[1].fail_next(1, |_, operation| begins_with(operation, b"ZVSB"));
    simulation.drives[0].set_presence(Presence::Unresponsive);
    run_steps(&mut simulation, 500);
    expect_all(&mut simulation);
    assert_eq!(failed_members(&simulation).len(), 2);
    assert_eq!(simulation.volume.status().members[1].state, MemberState::Failed);
}

#[test]
fn a_member_that_can_never_finish_a_zone_is_failed() {
    let mut simulation = written(RAID5, 64);
    simulation.suspects = 0b0001;
    simulation.drives[0].faults.finishes = 1000;
    // A zone is finished before it is full when its segment is broken.
    simulation.drives[0].fail_next(1, |_, operation| matches!(operation, Operation::Append { .. }));
    run_steps(&mut simulation, 3000);
    expect_all(&mut simulation);
    assert_eq!(failed_members(&simulation), [(MemberIndex(0), FailReason::Errors)]);
}

/// The empty data zones of a drive.
fn empty_zones(drive: &Drive) -> Vec<u32> {
    (METADATA_ZONES..drive.geometry().zone_count).filter(|&zone| drive.zone_state(zone) == ZoneState::Empty).collect()
}

const RAID0: Scheme = Scheme { level: Level::Raid0, data: 2, parity: 0 };

/// A full simulation whose first member loses its free zones one after another, all but
/// `zones_left`, until writes are refused.
fn out_of_space(scheme: Scheme, metadata_bytes: u16, zones_left: usize) -> Simulation {
    let mut simulation = written(scheme, metadata_bytes);
    if scheme.parity > 0 {
        // No member can be spared from here on.
        simulation.suspects = 1 << scheme.data;
        simulation.drives[usize::from(scheme.data)].set_presence(Presence::Unresponsive);
        run_steps(&mut simulation, 1000);
        expect_all(&mut simulation);
    }
    simulation.model.may_be_full = true;
    simulation.mix.trims = 0;
    while simulation.model.refused() == 0 || empty_zones(&simulation.drives[0]).len() > zones_left {
        let before = simulation.model.ended();
        let empty = empty_zones(&simulation.drives[0]);
        if empty.len() > zones_left {
            simulation.drives[0].degrade(empty[0], ZoneState::ReadOnly);
        }
        run_steps(&mut simulation, 300);
        expect_all(&mut simulation);
        assert!(
            simulation.model.ended() > before && simulation.model.ended() < 50_000,
            "writes are refused in the end"
        );
    }
    simulation
}

#[test]
fn a_volume_out_of_space_refuses_writes_and_can_be_read() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        for zones_left in 0..4 {
            let mut simulation = out_of_space(scheme, metadata_bytes, zones_left);
            let refused = simulation.model.refused();
            // Until the open segments are full.
            for start in (0..400).map(|round| round * 7 % 64) {
                assert!(simulation.submit(&Request::Write { start, blocks: 3 }).unwrap());
                simulation.quiesce().unwrap_or_else(|violation| panic!("{scheme:?}, {zones_left} left: {violation}"));
            }
            assert!(simulation.model.refused() > refused, "{scheme:?}, {zones_left} left");
            let status = simulation.volume.status();
            assert!(status.writable_blocks < status.volume_blocks, "{scheme:?}, {zones_left} left: {status:?}");
            expect_all(&mut simulation);
            let expected = usize::from(scheme.parity);
            assert_eq!(failed_members(&simulation).len(), expected, "{scheme:?}: no needed member");
            assert_eq!(simulation.volume.counters().lost_blocks, 0);
        }
    }
}

#[test]
fn whichever_zones_fail_every_request_completes_and_acknowledged_blocks_can_be_read() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let scheme = if seed % 2 == 0 { RAID0 } else { RAID5 };
        let mut config = config(scheme);
        config.tuning.trim_blocks = 1 + prng.below(200);
        let drives = (0..scheme.members()).map(|at| Drive::new(geometry(64), prng.fork(&format!("drive/{at}"))));
        let mut simulation =
            Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration");
        simulation.model.may_be_full = true;
        if scheme == RAID5 {
            simulation.suspects = 0b1000;
            simulation.drives[3].set_presence(Presence::Unresponsive);
        }
        run_steps(&mut simulation, 3000);
        for round in 0..40 {
            let drive = &mut simulation.drives[prng.below(u64::from(scheme.data)) as usize];
            let zones: Vec<u32> = (METADATA_ZONES..drive.geometry().zone_count)
                .filter(|&zone| drive.zone_state(zone) != ZoneState::ReadOnly)
                .collect();
            if let Some(&zone) = prng.pick(&zones) {
                drive.degrade(zone, ZoneState::ReadOnly);
            }
            run_steps(&mut simulation, 200);
            if round % 3 == 0 {
                expect_all(&mut simulation);
            }
        }
        expect_all(&mut simulation);
        assert_eq!(failed_members(&simulation).len(), usize::from(scheme.parity), "seed {seed}");
        refused += u64::from(simulation.model.refused() > 0);
    }
    assert_eq!(refused, 20, "all of them found no space in the end");
}

#[test]
fn blocks_that_a_volume_out_of_space_acknowledged_survive_a_crash() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        let mut simulation = out_of_space(scheme, metadata_bytes, 2);
        crash_and_mount(&mut simulation);
        expect_all(&mut simulation);
    }
}

#[test]
fn a_redundant_member_out_of_zones_is_failed_before_a_write_is_refused() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes);
        simulation.suspects = 0b0001;
        for _ in 0..100 {
            if let Some(&zone) = empty_zones(&simulation.drives[0]).first() {
                simulation.drives[0].degrade(zone, ZoneState::ReadOnly);
            }
            run_steps(&mut simulation, 300);
            expect_all(&mut simulation);
            if !failed_members(&simulation).is_empty() {
                break;
            }
        }
        assert_eq!(failed_members(&simulation), [(MemberIndex(0), FailReason::Errors)]);
        run_steps(&mut simulation, 1000);
        expect_all(&mut simulation);
    }
}

#[test]
fn a_trim_frees_space_in_a_volume_out_of_space() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        let mut simulation = out_of_space(scheme, metadata_bytes, 2);
        let (refused, blocks) = (simulation.model.refused(), simulation.model.volume_blocks());
        assert!(simulation.submit(&Request::Trim(vec![(blocks / 4, blocks / 2)])).unwrap());
        simulation.quiesce().unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        assert_eq!(simulation.model.refused(), refused, "{scheme:?}: the trim finds space");
        simulation.volume.check_invariants();
        for start in (blocks / 4..blocks / 2).step_by(8) {
            assert!(simulation.submit(&Request::Write { start, blocks: 4 }).unwrap());
            simulation.quiesce().unwrap();
        }
        assert_eq!(simulation.model.refused(), refused, "{scheme:?}: and there is space for writes again");
        expect_all(&mut simulation);
        crash_and_mount(&mut simulation);
        expect_all(&mut simulation);
    }
}

#[test]
fn where_nothing_can_be_written_trims_end_with_an_error_too() {
    for metadata_bytes in [64, 0] {
        let mut simulation = out_of_space(RAID0, metadata_bytes, 2);
        for zone in METADATA_ZONES..simulation.drives[0].geometry().zone_count {
            if simulation.drives[0].zone_state(zone) != ZoneState::ReadOnly {
                simulation.drives[0].degrade(zone, ZoneState::ReadOnly);
            }
        }
        let (refused, blocks) = (simulation.model.refused(), simulation.model.volume_blocks());
        for _ in 0..3 {
            assert!(simulation.submit(&Request::Trim(vec![(0, blocks)])).unwrap());
            assert!(simulation.submit(&Request::Write { start: 5, blocks: 1 }).unwrap());
            assert!(simulation.submit(&Request::Flush).unwrap());
            expect_all(&mut simulation);
        }
        assert!(simulation.model.refused() >= refused + 6, "all of them");
        assert_eq!(failed_members(&simulation), [], "it can still be read");
    }
}

#[test]
fn zone_management_is_refused_and_a_range_beyond_the_end_too() {
    let mut simulation = simulation(RAID5, 64, 1);
    let blocks = simulation.model.volume_blocks();
    let command =
        |operation| zonda_zoned::Command::new(zonda_zoned::CommandId(7), zonda_zoned::NamespaceId::FIRST, operation);
    let refused = [
        (Operation::Read { start: zonda_zoned::Lba(blocks), blocks: Blocks(1) }, Status::LbaOutOfRange),
        (Operation::Read { start: zonda_zoned::Lba(u64::MAX), blocks: Blocks(2) }, Status::LbaOutOfRange),
        (Operation::Read { start: zonda_zoned::Lba(0), blocks: Blocks(0) }, Status::InvalidField),
        (Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All }, Status::InvalidField),
    ];
    for (operation, status) in refused {
        simulation.volume.submit(simulation.now(), command(operation)).expect("it is accepted");
        assert_eq!(simulation.volume.poll_completion().map(|completion| completion.status), Some(status));
    }
}

#[test]
fn zones_that_cannot_be_reset_at_a_mount_stay_counted_among_the_active_ones() {
    for seed in 0..20 {
        let mut simulation = simulation(RAID5, 64, seed);
        run_steps(&mut simulation, 300 + seed * 10);
        simulation.crash();
        let is_reset: CommandFilter = |geometry, operation| {
            let Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } = operation
            else {
                return false;
            };
            geometry.zone_of(*start).is_some_and(|zone| zone.0 >= METADATA_ZONES)
        };
        simulation.drives.iter_mut().for_each(|drive| drive.fail_next(2, is_reset));
        simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        // Two of five are stuck at most: with those that the volume opens there are never more
        // active than allowed, or members would be failed for it.
        run_steps(&mut simulation, 1500);
        expect_all(&mut simulation);
        assert!(!simulation.volume.is_degraded(), "seed {seed}");
    }
}

#[test]
fn a_header_that_cannot_be_read_at_once_is_read_again_and_its_zone_is_kept() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes);
        simulation.crash();
        let is_header: CommandFilter = |geometry, operation| {
            let Operation::Read { start, .. } = operation else { return false };
            let zone = geometry.zone_of(*start).filter(|zone| zone.0 >= METADATA_ZONES);
            zone.is_some_and(|zone| geometry.zone_start(zone) == *start)
        };
        simulation.drives[1].fail_next(3, is_header);
        simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(simulation.drives[1].planned_failures_left(), 0);
        assert_eq!(simulation.volume.status().degraded_segments, 0, "no zone of member 1 is lost");
        expect_all(&mut simulation);
    }
}
