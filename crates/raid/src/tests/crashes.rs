//! The power goes at every moment of a small run.

use super::failures::{expect_all, go_on, world};
use crate::testing::{Presence, World};
use crate::{Level, Scheme};

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

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_moment() {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            // All moments of the start, some of what follows, collection included.
            for completions in (12..100).chain((100..1500).step_by(47)) {
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
fn a_crash_and_the_loss_of_a_member_at_once_are_survived() {
    for (number, scheme) in (0..).zip(SCHEMES).filter(|(_, scheme)| scheme.parity > 0) {
        for metadata_bytes in [64, 0] {
            for completions in (12..700).step_by(13) {
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
fn a_mount_that_is_cut_short_is_begun_again() {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            for steps in 0..60 {
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
