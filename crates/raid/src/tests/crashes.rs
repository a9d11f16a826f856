//! The power goes at every moment of a small run.

use zonda_zoned::{Geometry, Prng, ZoneState};

use super::failures::{config, expect_all, geometry, go_on, world};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Mix, Presence, World};
use crate::{Level, Scheme, StreamShape, VolumeConfig};

const SCHEMES: [Scheme; 6] = [
    Scheme { level: Level::Raid0, data: 2, parity: 0 },
    Scheme { level: Level::Raid1, data: 1, parity: 1 },
    Scheme { level: Level::Raid01, data: 2, parity: 2 },
    Scheme { level: Level::Raid5, data: 2, parity: 1 },
    Scheme { level: Level::Raid6, data: 2, parity: 2 },
    Scheme { level: Level::ReedSolomon, data: 3, parity: 2 },
];

/// Runs until members have ended so many commands.
fn run_until(world: &mut World, completions: u64) {
    while world.completions < completions {
        world.step(4).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// Names what was under way in a run that panics.
struct Here(Scheme, u16, u64);

impl Drop for Here {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?} with {} bytes of metadata, crash after completion {}", self.0, self.1, self.2);
        }
    }
}

fn expect_mount(world: &mut World, without: u32) {
    world.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

/// Every so many-th of these moments. With two, the two places of metadata share the moments of a scheme.
fn every(step: usize, moments: impl Iterator<Item = u64>, metadata_bytes: u16) -> impl Iterator<Item = u64> {
    let first = if metadata_bytes == 0 { step - 1 } else { 0 };
    moments.skip(first).step_by(step)
}

fn what_was_acknowledged_is_there(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            // All moments of the start, some of what follows, collection included.
            let moments = (12..100).chain((100..1500).step_by(47));
            for completions in every(step, moments, metadata_bytes) {
                let _here = Here(scheme, metadata_bytes, completions);
                let mut world = world(scheme, metadata_bytes, number);
                run_until(&mut world, completions);
                world.crash();
                expect_mount(&mut world, 0);
                expect_all(&mut world);
                go_on(&mut world, 60);
                world.crash();
                expect_mount(&mut world, 0);
                expect_all(&mut world);
            }
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_moment() {
    what_was_acknowledged_is_there(2);
}

fn a_crash_and_the_loss_of_a_member_are_survived(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES).filter(|(_, scheme)| scheme.parity > 0) {
        for metadata_bytes in [64, 0] {
            for completions in every(step, (12..700).step_by(13), metadata_bytes) {
                let _here = Here(scheme, metadata_bytes, completions);
                let mut world = world(scheme, metadata_bytes, number);
                run_until(&mut world, completions);
                let lost = completions as usize % world.drives.len();
                world.suspects = 1 << lost;
                world.crash();
                expect_mount(&mut world, 1 << lost);
                expect_all(&mut world);
                // It comes back, and has missed something: it is not believed.
                go_on(&mut world, 100);
                world.crash();
                expect_mount(&mut world, 0);
                expect_all(&mut world);
                assert!(world.volume.is_degraded());
            }
        }
    }
}

#[test]
fn a_crash_and_the_loss_of_a_member_at_once_are_survived() {
    a_crash_and_the_loss_of_a_member_are_survived(2);
}

fn a_mount_is_begun_again(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            for steps in every(step, 0..60, metadata_bytes) {
                let _here = Here(scheme, metadata_bytes, steps);
                let mut world = world(scheme, metadata_bytes, number);
                run_until(&mut world, 300);
                world.crash();
                world.mount_and_crash(0, steps * 7).unwrap_or_else(|violation| panic!("{violation}"));
                world.mount_and_crash(0, steps * 3).unwrap_or_else(|violation| panic!("{violation}"));
                expect_mount(&mut world, 0);
                expect_all(&mut world);
            }
        }
    }
}

#[test]
fn a_mount_that_is_cut_short_is_begun_again() {
    a_mount_is_begun_again(2);
}

#[test]
fn a_member_that_goes_before_the_crash_stays_out_whatever_the_others_had_time_to_write() {
    for completions in 0..80 {
        let scheme = SCHEMES[3];
        let _here = Here(scheme, 64, completions);
        let mut world = world(scheme, 64, completions);
        run_until(&mut world, 200);
        world.suspects = 1 << 2;
        world.drives[2].set_presence(Presence::Failing);
        let until = world.completions + completions;
        run_until(&mut world, until);
        world.crash();
        world.drives[2].set_presence(Presence::There);
        expect_mount(&mut world, 0);
        expect_all(&mut world);
    }
}

/// A volume as large as its members allow, on members as small as can be, in which every block was written.
fn full_world(mut config: VolumeConfig, metadata_bytes: u16, seed: u64) -> World {
    let prng = Prng::new(seed);
    let geometry = Geometry { zone_count: 16, ..geometry(metadata_bytes) };
    let members = config.scheme.members();
    let drives = (0..members).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    config.tuning.reserve_percent = 1;
    let mut world = World::create(config, drives.collect(), prng.fork("world")).expect("they suit");
    world.fill().unwrap_or_else(|violation| panic!("{violation}"));
    world.mix = Mix { writes: 20, trims: 1, reads: 1, flushes: 0, large_percent: 30, ..Mix::default() };
    world
}

/// Zones in which nothing was written, on the member that has the fewest.
fn free_zones(world: &World) -> usize {
    let is_free = |drive: &Drive, zone: u32| drive.zone_state(zone) == ZoneState::Empty;
    let free =
        |drive: &Drive| (METADATA_ZONES..drive.geometry().zone_count).filter(|&zone| is_free(drive, zone)).count();
    world.drives.iter().map(free).min().expect("there are members")
}

/// The volume is mounted, and hosts come before it has come to rest.
fn mount(world: &mut World) {
    world.mount_in_haste(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// Everything is there, and the volume can be used.
fn expect_all_for_long(world: &mut World) {
    expect_all(world);
    go_on(world, 4000);
    expect_all(world);
}

#[test]
fn a_nearly_full_volume_survives_crash_after_crash_in_use() {
    for (seed, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            let mut world = full_world(config(scheme), metadata_bytes, seed);
            for crash in 0..60 {
                let _here = Here(scheme, metadata_bytes, crash);
                go_on(&mut world, 20 + crash % 7 * 40);
                world.crash();
                mount(&mut world);
            }
            expect_all_for_long(&mut world);
        }
    }
}

fn a_nearly_full_volume_survives_crashes_of_its_mounts(step: usize) {
    for (seed, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            let mut world = full_world(config(scheme), metadata_bytes, seed);
            for writes in every(step, (4..140).step_by(5), metadata_bytes) {
                let _here = Here(scheme, metadata_bytes, writes);
                go_on(&mut world, 150 + writes);
                world.crash();
                for _ in 0..12 {
                    world.mount_and_crash_in_writes(0, writes).unwrap_or_else(|violation| panic!("{violation}"));
                }
                mount(&mut world);
            }
            expect_all_for_long(&mut world);
        }
    }
}

#[test]
fn a_nearly_full_volume_survives_crash_after_crash_at_any_moment_of_its_mounts() {
    a_nearly_full_volume_survives_crashes_of_its_mounts(2);
}

fn a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(seeds: u64) {
    for seed in 0..seeds {
        let scheme = SCHEMES[3];
        // Many stripes in a segment: there is much that a crash can halve.
        let large = StreamShape { unit_blocks: 1, group_stripes: if seed % 2 == 0 { 1 } else { 8 } };
        let mut world = full_world(VolumeConfig { large, ..config(scheme) }, 64, seed);
        let mut cuts = Prng::new(seed).fork("cuts");
        for round in 0..4 {
            let _here = Here(scheme, 64, round);
            go_on(&mut world, 400);
            world.crash();
            for _ in 0..100 {
                world.mount_and_crash_in_writes(0, cuts.below(240)).unwrap_or_else(|violation| panic!("{violation}"));
                assert!(free_zones(&world) > 0, "seed {seed}: the next mount can write");
            }
            mount(&mut world);
        }
        expect_all(&mut world);
    }
}

#[test]
fn a_nearly_full_volume_is_mounted_after_any_number_of_mounts_that_were_cut_short() {
    a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(6);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_survive_crashes_at_every_moment() {
    what_was_acknowledged_is_there(1);
    a_crash_and_the_loss_of_a_member_are_survived(1);
    a_mount_is_begun_again(1);
    a_nearly_full_volume_survives_crashes_of_its_mounts(1);
    a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(40);
}
