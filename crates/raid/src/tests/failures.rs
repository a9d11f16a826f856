//! Members that fail, one way at a time.

use zonda_zoned::{Blocks, Duration, Geometry, Operation, Payload, Prng, Status, ZoneAction, ZoneState, ZoneTarget};

use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, IsMeant, Presence, Request, World};
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

pub(super) fn world(scheme: Scheme, metadata_bytes: u16, seed: u64) -> World {
    let prng = Prng::new(seed);
    let drives =
        (0..scheme.members()).map(|at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))));
    World::create(config(scheme), drives.collect(), prng.fork("world")).expect("they suit")
}

/// The world goes on for so many steps, and keeps its promises.
pub(super) fn go_on(world: &mut World, steps: u64) {
    for step in 0..steps {
        world.step(6).unwrap_or_else(|violation| panic!("step {step}: {violation}"));
    }
}

/// Everything ends, and everything is there.
pub(super) fn expect_all(world: &mut World) {
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

/// The power goes, and the volume is mounted with all of its members.
pub(super) fn crash_and_mount(world: &mut World) {
    world.crash();
    world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// A world in which everything was written, some of it many times.
fn written(scheme: Scheme, metadata_bytes: u16) -> World {
    let mut world = world(scheme, metadata_bytes, 1);
    let blocks = world.model.volume_blocks();
    for start in (0..blocks).step_by(8) {
        while !world.ask(&Request::Write { start, blocks: 8.min(blocks - start) }).unwrap() {
            world.rest().unwrap();
        }
    }
    go_on(&mut world, 2000);
    world
}

fn given_up(world: &World) -> Vec<(MemberIndex, FailReason)> {
    let member = |event: &Event| match event {
        Event::MemberFailed { member, reason } => Some((*member, *reason)),
        _ => None,
    };
    world.events.iter().filter_map(member).collect()
}

#[test]
fn a_member_that_stops_answering_is_given_up_and_nothing_is_lost() {
    for metadata_bytes in [64, 0] {
        let mut world = written(RAID5, metadata_bytes);
        world.suspects = 0b0010;
        world.drives[1].set_presence(Presence::Silent);
        go_on(&mut world, 1000);
        expect_all(&mut world);
        assert_eq!(given_up(&world), [(MemberIndex(1), FailReason::Silence)]);
        go_on(&mut world, 2000);
        expect_all(&mut world);
    }
}

#[test]
fn a_member_that_fails_every_command_is_given_up_and_nothing_is_lost() {
    for metadata_bytes in [64, 0] {
        let mut world = written(RAID5, metadata_bytes);
        world.suspects = 0b1000;
        world.drives[3].set_presence(Presence::Failing);
        go_on(&mut world, 3000);
        expect_all(&mut world);
        assert_eq!(given_up(&world), [(MemberIndex(3), FailReason::Errors)]);
        assert!(world.volume.counters().reconstructed_blocks > 0);
    }
}

#[test]
fn as_many_members_as_there_are_parities_can_go_one_after_the_other_or_at_once() {
    for pause in [0, 1500] {
        let mut world = written(RAID6, 64);
        world.suspects = 0b0101;
        world.drives[0].set_presence(Presence::Silent);
        go_on(&mut world, pause);
        world.drives[2].set_presence(Presence::Failing);
        go_on(&mut world, 1500);
        expect_all(&mut world);
        assert_eq!(given_up(&world).len(), 2);
    }
}

#[test]
fn with_more_members_gone_than_it_can_do_without_requests_wait_until_one_is_failed_by_command() {
    let presences = [Presence::Silent, Presence::Failing];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for pause in [0, 7, 1000] {
            let mut world = written(RAID5, 64);
            (world.suspects, world.model.is_lost) = (0b0011, true);
            world.drives[0].set_presence(presences[first]);
            go_on(&mut world, pause);
            world.drives[1].set_presence(presences[second]);
            go_on(&mut world, 500);
            world.wait(Duration::from_secs(100)).unwrap();
            assert!(world.events.iter().any(|event| matches!(event, Event::Suspended { .. })), "{:?}", world.events);
            for member in [0, 1] {
                world.volume.fail_member(world.now(), MemberIndex(member));
            }
            world.hear().unwrap();
            world.rest().unwrap_or_else(|violation| panic!("{violation}"));
            assert!(world.events.iter().any(|event| matches!(event, Event::Failed(_))), "{:?}", world.events);
            assert!(world.ask(&Request::Write { start: 0, blocks: 1 }).unwrap());
            assert_eq!(world.model.under_way(), 0, "it is refused at once");
        }
    }
}

#[test]
fn a_volume_without_redundancy_returns_nothing_wrong_and_fails_with_a_member_that_is_failed_by_command() {
    let mut world = written(Scheme { level: Level::Raid0, data: 2, parity: 0 }, 64);
    world.rest().unwrap();
    world.model.is_lost = true;
    for _ in 0..20 {
        let lba = world.drives[0].some_block(METADATA_ZONES).expect("it holds something");
        world.drives[0].rot(lba);
    }
    world.read_all().expect("blocks are right, or errors");
    assert!(world.volume.counters().lost_blocks > 0);
    world.suspects = 0b01;
    world.drives[0].set_presence(Presence::Silent);
    go_on(&mut world, 100);
    world.volume.fail_member(world.now(), MemberIndex(0));
    world.hear().unwrap();
    world.rest().expect("every request ends");
}

/// A data zone of a drive in one of these states.
fn zone_that_is(drive: &Drive, states: &[ZoneState]) -> u32 {
    let mut zones = METADATA_ZONES..drive.geometry().zone_count;
    zones.find(|&zone| states.contains(&drive.zone_state(zone))).expect("there is one")
}

#[test]
fn a_zone_that_dies_open_or_full_costs_neither_blocks_nor_its_member() {
    let open = [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed];
    for metadata_bytes in [64, 0] {
        for states in [&open[..], &[ZoneState::Full], &[ZoneState::Empty]] {
            for to in [ZoneState::ReadOnly, ZoneState::Offline] {
                let mut world = written(RAID5, metadata_bytes);
                let zone = zone_that_is(&world.drives[2], states);
                world.drives[2].degrade(zone, to);
                go_on(&mut world, 4000);
                expect_all(&mut world);
                assert_eq!(given_up(&world), [], "{states:?} to {to}");
                let retired = world.volume.status().members[2].retired_zones;
                assert_eq!(retired, 1, "{states:?} to {to}");
            }
        }
    }
}

#[test]
fn what_was_in_a_zone_that_went_offline_is_moved_to_where_it_has_all_its_chunks() {
    let mut world = written(RAID5, 64);
    world.rest().unwrap();
    let zone = zone_that_is(&world.drives[2], &[ZoneState::Full]);
    world.drives[2].degrade(zone, ZoneState::Offline);
    expect_all(&mut world);
    expect_all(&mut world);
    assert_eq!(world.volume.status().degraded_segments, 0, "{:?}", world.volume.status());
    assert!(world.volume.counters().reconstructed_blocks > 0);
}

#[test]
fn blocks_that_cannot_be_read_or_are_rotten_are_computed_and_written_anew() {
    for (metadata_bytes, rots) in [(64, false), (64, true), (0, false), (0, true)] {
        let mut world = written(RAID5, metadata_bytes);
        world.rest().unwrap();
        for _ in 0..60 {
            let lba = world.drives[1].some_block(METADATA_ZONES).expect("it holds something");
            if rots {
                world.drives[1].rot(lba);
            } else {
                world.drives[1].lose_block(lba);
            }
        }
        expect_all(&mut world);
        assert!(world.volume.counters().mended_blocks > 0);
        // What there was no room for is left to collection.
        world.rest().unwrap();
        expect_all(&mut world);
        let counters = world.volume.counters();
        expect_all(&mut world);
        let now = world.volume.counters();
        assert_eq!(now.mended_blocks, counters.mended_blocks, "they are mended once");
        assert_eq!(now.reconstructed_blocks, counters.reconstructed_blocks, "and not computed again");
        assert_eq!(world.volume.counters().lost_blocks, 0);
        assert_eq!(given_up(&world), []);
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
fn a_header_a_footer_a_chunk_a_finish_or_a_reset_that_fails_costs_neither_blocks_nor_the_member() {
    let kinds: [(&str, IsMeant); 5] = [
        ("header", |_, operation| begins_with(operation, b"ZVSG")),
        ("footer", |_, operation| begins_with(operation, b"ZVFT")),
        ("append", |_, operation| matches!(operation, Operation::Append { .. })),
        ("finish", |geometry, operation| is_management(geometry, operation, &ZoneAction::Finish)),
        ("reset", |geometry, operation| is_management(geometry, operation, &ZoneAction::Reset)),
    ];
    for metadata_bytes in [64, 0] {
        for (name, is_meant) in kinds {
            let mut world = written(RAID5, metadata_bytes);
            world.drives[0].fail_next(2, is_meant);
            for _ in 0..50 {
                go_on(&mut world, 500);
                if world.drives[0].traps_left() == 0 {
                    break;
                }
            }
            go_on(&mut world, 2000);
            expect_all(&mut world);
            assert_eq!(world.drives[0].traps_left(), 0, "{name}s were written");
            assert_eq!(given_up(&world), [], "{name}");
        }
    }
}

#[test]
fn a_member_that_cannot_write_its_superblock_is_given_up() {
    let mut world = written(RAID6, 64);
    world.suspects = 0b0011;
    world.drives[1].fail_next(1, |_, operation| begins_with(operation, b"ZVSB"));
    world.drives[0].set_presence(Presence::Silent);
    go_on(&mut world, 500);
    expect_all(&mut world);
    assert_eq!(given_up(&world).len(), 2);
    assert_eq!(world.volume.status().members[1].state, MemberState::Failed);
}

#[test]
fn a_member_that_can_never_finish_a_zone_is_given_up() {
    let mut world = written(RAID5, 64);
    world.suspects = 0b0001;
    world.drives[0].faults.finishes = 1000;
    // Short of its end a zone is finished when its segment is broken.
    world.drives[0].fail_next(1, |_, operation| matches!(operation, Operation::Append { .. }));
    go_on(&mut world, 3000);
    expect_all(&mut world);
    assert_eq!(given_up(&world), [(MemberIndex(0), FailReason::Errors)]);
}

/// The data zones of a drive that hold nothing.
fn empty_zones(drive: &Drive) -> Vec<u32> {
    (METADATA_ZONES..drive.geometry().zone_count).filter(|&zone| drive.zone_state(zone) == ZoneState::Empty).collect()
}

const RAID0: Scheme = Scheme { level: Level::Raid0, data: 2, parity: 0 };

/// A full world whose first member loses its free zones one after another, all but so many, until writes are refused.
fn worn_out(scheme: Scheme, metadata_bytes: u16, zones_left: usize) -> World {
    let mut world = written(scheme, metadata_bytes);
    if scheme.parity > 0 {
        // Nobody is to spare from here on.
        world.suspects = 1 << scheme.data;
        world.drives[usize::from(scheme.data)].set_presence(Presence::Silent);
        go_on(&mut world, 1000);
        expect_all(&mut world);
    }
    world.model.may_be_full = true;
    world.mix.trims = 0;
    while world.model.refused() == 0 || empty_zones(&world.drives[0]).len() > zones_left {
        let before = world.model.ended();
        let empty = empty_zones(&world.drives[0]);
        if empty.len() > zones_left {
            world.drives[0].degrade(empty[0], ZoneState::ReadOnly);
        }
        go_on(&mut world, 300);
        expect_all(&mut world);
        assert!(world.model.ended() > before && world.model.ended() < 50_000, "writes come to an end");
    }
    world
}

#[test]
fn a_volume_that_is_worn_out_refuses_writes_and_can_be_read() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        for zones_left in 0..4 {
            let mut world = worn_out(scheme, metadata_bytes, zones_left);
            let refused = world.model.refused();
            // Until the segments that are open are full.
            for start in (0..400).map(|round| round * 7 % 64) {
                assert!(world.ask(&Request::Write { start, blocks: 3 }).unwrap());
                world.rest().unwrap_or_else(|violation| panic!("{scheme:?}, {zones_left} left: {violation}"));
            }
            assert!(world.model.refused() > refused, "{scheme:?}, {zones_left} left");
            let status = world.volume.status();
            assert!(status.room_blocks < status.volume_blocks, "{scheme:?}, {zones_left} left: {status:?}");
            expect_all(&mut world);
            let expected = usize::from(scheme.parity);
            assert_eq!(given_up(&world).len(), expected, "{scheme:?}: nobody that is needed");
            assert_eq!(world.volume.counters().lost_blocks, 0);
        }
    }
}

#[test]
fn whatever_zones_wear_out_every_request_ends_and_what_was_acknowledged_can_be_read() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let scheme = if seed % 2 == 0 { RAID0 } else { RAID5 };
        let mut config = config(scheme);
        config.tuning.trim_blocks = 1 + prng.below(200);
        let drives = (0..scheme.members()).map(|at| Drive::new(geometry(64), prng.fork(&format!("drive/{at}"))));
        let mut world = World::create(config, drives.collect(), prng.fork("world")).expect("they suit");
        world.model.may_be_full = true;
        if scheme == RAID5 {
            world.suspects = 0b1000;
            world.drives[3].set_presence(Presence::Silent);
        }
        go_on(&mut world, 3000);
        for round in 0..40 {
            let drive = &mut world.drives[prng.below(u64::from(scheme.data)) as usize];
            let zones: Vec<u32> = (METADATA_ZONES..drive.geometry().zone_count)
                .filter(|&zone| drive.zone_state(zone) != ZoneState::ReadOnly)
                .collect();
            if let Some(&zone) = prng.pick(&zones) {
                drive.degrade(zone, ZoneState::ReadOnly);
            }
            go_on(&mut world, 200);
            if round % 3 == 0 {
                expect_all(&mut world);
            }
        }
        expect_all(&mut world);
        assert_eq!(given_up(&world).len(), usize::from(scheme.parity), "seed {seed}");
        refused += u64::from(world.model.refused() > 0);
    }
    assert_eq!(refused, 20, "all of them had no room in the end");
}

#[test]
fn what_a_volume_that_is_worn_out_has_acknowledged_is_there_after_a_crash() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        let mut world = worn_out(scheme, metadata_bytes, 2);
        crash_and_mount(&mut world);
        expect_all(&mut world);
    }
}

#[test]
fn a_member_that_is_worn_out_goes_before_a_write_is_refused_where_it_can_be_spared() {
    for metadata_bytes in [64, 0] {
        let mut world = written(RAID5, metadata_bytes);
        world.suspects = 0b0001;
        for _ in 0..100 {
            if let Some(&zone) = empty_zones(&world.drives[0]).first() {
                world.drives[0].degrade(zone, ZoneState::ReadOnly);
            }
            go_on(&mut world, 300);
            expect_all(&mut world);
            if !given_up(&world).is_empty() {
                break;
            }
        }
        assert_eq!(given_up(&world), [(MemberIndex(0), FailReason::Errors)]);
        go_on(&mut world, 1000);
        expect_all(&mut world);
    }
}

#[test]
fn a_trim_makes_room_in_a_volume_that_is_worn_out() {
    for (scheme, metadata_bytes) in [(RAID0, 64), (RAID0, 0), (RAID5, 64)] {
        let mut world = worn_out(scheme, metadata_bytes, 2);
        let (refused, blocks) = (world.model.refused(), world.model.volume_blocks());
        assert!(world.ask(&Request::Trim(vec![(blocks / 4, blocks / 2)])).unwrap());
        world.rest().unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        assert_eq!(world.model.refused(), refused, "{scheme:?}: the trim finds room");
        world.volume.check_invariants();
        for start in (blocks / 4..blocks / 2).step_by(8) {
            assert!(world.ask(&Request::Write { start, blocks: 4 }).unwrap());
            world.rest().unwrap();
        }
        assert_eq!(world.model.refused(), refused, "{scheme:?}: and there is room for writes again");
        expect_all(&mut world);
        crash_and_mount(&mut world);
        expect_all(&mut world);
    }
}

#[test]
fn where_nothing_can_be_written_trims_end_with_an_error_too() {
    for metadata_bytes in [64, 0] {
        let mut world = worn_out(RAID0, metadata_bytes, 2);
        for zone in METADATA_ZONES..world.drives[0].geometry().zone_count {
            if world.drives[0].zone_state(zone) != ZoneState::ReadOnly {
                world.drives[0].degrade(zone, ZoneState::ReadOnly);
            }
        }
        let (refused, blocks) = (world.model.refused(), world.model.volume_blocks());
        for _ in 0..3 {
            assert!(world.ask(&Request::Trim(vec![(0, blocks)])).unwrap());
            assert!(world.ask(&Request::Write { start: 5, blocks: 1 }).unwrap());
            assert!(world.ask(&Request::Flush).unwrap());
            expect_all(&mut world);
        }
        assert!(world.model.refused() >= refused + 6, "all of them");
        assert_eq!(given_up(&world), [], "it can still be read");
    }
}

#[test]
fn zone_management_is_refused_and_a_range_beyond_the_end_too() {
    let mut world = world(RAID5, 64, 1);
    let blocks = world.model.volume_blocks();
    let command = |operation| zonda_zoned::Command {
        id: zonda_zoned::CommandId(7),
        namespace: zonda_zoned::NamespaceId::FIRST,
        operation,
    };
    let refused = [
        (Operation::Read { start: zonda_zoned::Lba(blocks), blocks: Blocks(1) }, Status::LbaOutOfRange),
        (Operation::Read { start: zonda_zoned::Lba(u64::MAX), blocks: Blocks(2) }, Status::LbaOutOfRange),
        (Operation::Read { start: zonda_zoned::Lba(0), blocks: Blocks(0) }, Status::InvalidField),
        (Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All }, Status::InvalidField),
    ];
    for (operation, status) in refused {
        world.volume.submit(world.now(), command(operation)).expect("there is room");
        assert_eq!(world.volume.poll_completion().map(|completion| completion.status), Some(status));
    }
}

#[test]
fn zones_that_cannot_be_reset_at_a_mount_stay_counted_among_the_active_ones() {
    for seed in 0..20 {
        let mut world = world(RAID5, 64, seed);
        go_on(&mut world, 300 + seed * 10);
        world.crash();
        let is_reset: IsMeant = |geometry, operation| {
            let Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } = operation
            else {
                return false;
            };
            geometry.zone_of(*start).is_some_and(|zone| zone.0 >= METADATA_ZONES)
        };
        world.drives.iter_mut().for_each(|drive| drive.fail_next(2, is_reset));
        world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        // Two of five are stuck at most: with those that the volume opens there are never more active than may be, or members
        // would be given up for it.
        go_on(&mut world, 1500);
        expect_all(&mut world);
        assert!(!world.volume.is_degraded(), "seed {seed}");
    }
}

#[test]
fn a_header_that_cannot_be_read_at_once_is_read_again_and_its_zone_is_kept() {
    for metadata_bytes in [64, 0] {
        let mut world = written(RAID5, metadata_bytes);
        world.crash();
        let is_header: IsMeant = |geometry, operation| {
            let Operation::Read { start, .. } = operation else { return false };
            let zone = geometry.zone_of(*start).filter(|zone| zone.0 >= METADATA_ZONES);
            zone.is_some_and(|zone| geometry.zone_start(zone) == *start)
        };
        world.drives[1].fail_next(3, is_header);
        world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(world.drives[1].traps_left(), 0);
        assert_eq!(world.volume.status().degraded_segments, 0, "no zone of member 1 is lost");
        expect_all(&mut world);
    }
}
