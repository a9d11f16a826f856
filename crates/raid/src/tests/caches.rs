//! Members that may lose what they have acknowledged, until they are flushed.

use zonda_zoned::{Operation, Prng};

use super::failures::{config, expect_all, geometry, go_on};
use super::script::{Kind, Script, plain_config};
use crate::testing::{Drive, Request, World};
use crate::{Event, FailReason, Level, MemberIndex, Scheme};

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 3, parity: 1 };

pub(super) fn volatile_world(scheme: Scheme, metadata_bytes: u16, seed: u64) -> World {
    let prng = Prng::new(seed);
    let drive = |at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))).with_volatile_cache();
    let mut config = config(scheme);
    config.tuning.is_cache_volatile = true;
    World::create(config, (0..scheme.members()).map(drive).collect(), prng.fork("world")).expect("they suit")
}

fn ask(world: &mut World, request: &Request) {
    assert!(world.ask(request).unwrap_or_else(|violation| panic!("{violation}")), "there is room");
}

fn rest(world: &mut World) {
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
}

fn mount(world: &mut World, without: u32) {
    world.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn what_was_flushed_is_there_after_a_crash_at_any_moment() {
    let schemes =
        [RAID5, Scheme { level: Level::Raid0, data: 2, parity: 0 }, Scheme { level: Level::Raid1, data: 1, parity: 1 }];
    for (seed, scheme) in (0..).zip(schemes) {
        for metadata_bytes in [64, 0] {
            for completions in (20..1500).step_by(61) {
                let mut world = volatile_world(scheme, metadata_bytes, seed);
                while world.completions < completions {
                    world.step(4).unwrap_or_else(|violation| panic!("{violation}"));
                }
                for _ in 0..2 {
                    world.crash();
                    mount(&mut world, 0);
                    expect_all(&mut world);
                    go_on(&mut world, 100);
                }
            }
        }
    }
}

#[test]
fn what_was_flushed_survives_a_crash_and_the_loss_of_a_member_at_once() {
    for completions in (20..900).step_by(17) {
        let mut world = volatile_world(RAID5, 64, completions);
        while world.completions < completions {
            world.step(4).unwrap_or_else(|violation| panic!("{violation}"));
        }
        let lost = completions as usize % world.drives.len();
        world.suspects = 1 << lost;
        world.crash();
        mount(&mut world, 1 << lost);
        expect_all(&mut world);
    }
}

#[test]
fn a_volume_that_dies_with_the_power_on_shows_what_was_acknowledged_and_a_later_crash_does_not_take_it_back() {
    for completions in (20..900).step_by(53) {
        let mut world = volatile_world(RAID5, 64, completions);
        while world.completions < completions {
            world.step(4).unwrap_or_else(|violation| panic!("{violation}"));
        }
        world.die();
        mount(&mut world, 0);
        expect_all(&mut world);
        world.crash();
        mount(&mut world, 0);
        expect_all(&mut world);
    }
}

#[test]
fn a_member_whose_flush_fails_is_given_up_and_nothing_that_was_flushed_is_lost() {
    let mut world = volatile_world(RAID5, 64, 1);
    world.suspects = 1 << 1;
    ask(&mut world, &Request::Write { start: 3, blocks: 2 });
    rest(&mut world);
    world.drives[1].fail_next(1, |_, operation| *operation == Operation::Flush);
    ask(&mut world, &Request::Flush);
    rest(&mut world);
    assert!(world.events.contains(&Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Errors }));
    world.crash();
    mount(&mut world, 0);
    expect_all(&mut world);
}

#[test]
fn one_round_of_flushes_serves_all_who_wait() {
    let mut world = volatile_world(RAID5, 64, 1);
    let flushes = |world: &World| world.drives[0].flushes();
    let before = flushes(&world);
    for _ in 0..20 {
        ask(&mut world, &Request::Flush);
    }
    rest(&mut world);
    assert!((1..=2).contains(&(flushes(&world) - before)), "the first has a round of its own, the others one together");
}

#[test]
fn members_without_volatile_caches_are_never_flushed() {
    let mut world = super::failures::world(RAID5, 64, 1);
    go_on(&mut world, 2000);
    ask(&mut world, &Request::Flush);
    rest(&mut world);
    assert!(world.drives.iter().all(|drive| drive.flushes() == 0));
}

/// Block 0 with version 1 is all that is left of segment 1; the next stripe is the first of segment 3. Members have volatile caches.
fn before_a_new_segment() -> Script {
    let mut config = plain_config(RAID5);
    config.tuning.is_cache_volatile = true;
    let mut script = Script::create(config);
    script.write(0, 3, 1);
    let mut version = 1;
    while script.count(Kind::Footer, 2) == 0 {
        version += 1;
        script.write(1, 3, version);
    }
    let flush = script.submit(Operation::Flush);
    assert!(script.has_ended(flush));
    assert_eq!(script.host_segment(), 2);
    script
}

#[test]
fn no_stripe_is_written_to_a_segment_before_its_headers_are_durable_on_all_members() {
    for slow in 0..4 {
        let mut script = before_a_new_segment();
        script.hold(move |sent| sent.kind == Kind::Flush && sent.member == slow);
        let write = script.write(0, 3, 2);
        assert_eq!(script.count(Kind::Header, 3), 4, "a segment is opened for the stripe");
        assert_eq!(script.count(Kind::Chunk, 3), 0, "headers are durable before any stripe that depends on them");
        assert!(!script.has_ended(write));
        script.release();
        assert_eq!(script.count(Kind::Chunk, 3), 4);
        assert!(script.has_ended(write));
    }
}

#[test]
fn a_header_that_a_crash_takes_does_not_take_what_was_flushed_before() {
    for loser in 0..4 {
        for absent in (0..4).filter(|&absent| absent != loser) {
            let mut script = before_a_new_segment();
            script.hold(move |sent| sent.kind == Kind::Flush && sent.member == loser);
            script.write(0, 3, 2);
            script.crash(&[loser]);
            // As far as that comes before any block is moved.
            script.hold(|sent| sent.kind == Kind::Chunk);
            script.mount(&[]);
            script.crash(&[]);
            script.hold(|_| false);
            script.mount(&[absent]);
            let version = script.version(0);
            assert!([1, 2].contains(&version), "version 1 of block 0 was flushed, and is lost");
        }
    }
}
