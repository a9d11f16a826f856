//! A power loss at every moment of a small run.

use zonda_zoned::{Geometry, Prng, ZoneState};

use super::failures::{config, expect_all, geometry, run_steps, simulation};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Mix, Presence, Simulation};
use crate::{Level, Scheme, StreamShape, VolumeConfig};

const SCHEMES: [Scheme; 6] = [
    Scheme { level: Level::Raid0, data: 2, parity: 0 },
    Scheme { level: Level::Raid1, data: 1, parity: 1 },
    Scheme { level: Level::Raid01, data: 2, parity: 2 },
    Scheme { level: Level::Raid5, data: 2, parity: 1 },
    Scheme { level: Level::Raid6, data: 2, parity: 2 },
    Scheme { level: Level::ReedSolomon, data: 3, parity: 2 },
];

/// Runs until members have completed this many commands.
fn run_until(simulation: &mut Simulation, completions: u64) {
    while simulation.completions < completions {
        simulation.step(4).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// Reports the moment in a run that panics.
struct PanicContext(Scheme, u16, u64);

impl Drop for PanicContext {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?} with {} bytes of metadata, crash after completion {}", self.0, self.1, self.2);
        }
    }
}

fn expect_mount(simulation: &mut Simulation, without: u32) {
    simulation.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

/// Every n-th of these moments. With two, the two kinds of metadata share the moments of a scheme.
fn every(step: usize, moments: impl Iterator<Item = u64>, metadata_bytes: u16) -> impl Iterator<Item = u64> {
    let first = if metadata_bytes == 0 { step - 1 } else { 0 };
    moments.skip(first).step_by(step)
}

fn acknowledged_blocks_survive_crashes(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            // All moments of the start, some of what follows, collection included.
            let moments = (12..100).chain((100..1500).step_by(47));
            for completions in every(step, moments, metadata_bytes) {
                let _context = PanicContext(scheme, metadata_bytes, completions);
                let mut simulation = simulation(scheme, metadata_bytes, number);
                run_until(&mut simulation, completions);
                simulation.crash();
                expect_mount(&mut simulation, 0);
                expect_all(&mut simulation);
                run_steps(&mut simulation, 60);
                simulation.crash();
                expect_mount(&mut simulation, 0);
                expect_all(&mut simulation);
            }
        }
    }
}

#[test]
fn acknowledged_blocks_survive_a_crash_at_any_moment() {
    acknowledged_blocks_survive_crashes(4);
}

fn a_crash_and_the_loss_of_a_member_are_survived(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES).filter(|(_, scheme)| scheme.parity > 0) {
        for metadata_bytes in [64, 0] {
            for completions in every(step, (12..700).step_by(13), metadata_bytes) {
                let _context = PanicContext(scheme, metadata_bytes, completions);
                let mut simulation = simulation(scheme, metadata_bytes, number);
                run_until(&mut simulation, completions);
                let lost = completions as usize % simulation.drives.len();
                simulation.suspects = 1 << lost;
                simulation.crash();
                expect_mount(&mut simulation, 1 << lost);
                expect_all(&mut simulation);
                // It returns, and has missed writes: it is not treated as up to date.
                run_steps(&mut simulation, 100);
                simulation.crash();
                expect_mount(&mut simulation, 0);
                expect_all(&mut simulation);
                assert!(simulation.volume.is_degraded());
            }
        }
    }
}

#[test]
fn a_crash_and_the_loss_of_a_member_at_once_are_survived() {
    a_crash_and_the_loss_of_a_member_are_survived(4);
}

fn a_mount_is_interrupted_and_repeated(step: usize) {
    for (number, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            for steps in every(step, 0..60, metadata_bytes) {
                let _context = PanicContext(scheme, metadata_bytes, steps);
                let mut simulation = simulation(scheme, metadata_bytes, number);
                run_until(&mut simulation, 300);
                simulation.crash();
                simulation.mount_and_crash(0, steps * 7).unwrap_or_else(|violation| panic!("{violation}"));
                simulation.mount_and_crash(0, steps * 3).unwrap_or_else(|violation| panic!("{violation}"));
                expect_mount(&mut simulation, 0);
                expect_all(&mut simulation);
            }
        }
    }
}

#[test]
fn an_interrupted_mount_can_be_repeated() {
    a_mount_is_interrupted_and_repeated(2);
}

#[test]
fn a_member_that_fails_before_a_crash_stays_failed_whatever_the_others_wrote() {
    for completions in 0..80 {
        let scheme = SCHEMES[3];
        let _context = PanicContext(scheme, 64, completions);
        let mut simulation = simulation(scheme, 64, completions);
        run_until(&mut simulation, 200);
        simulation.suspects = 1 << 2;
        simulation.drives[2].set_presence(Presence::Failing);
        let until = simulation.completions + completions;
        run_until(&mut simulation, until);
        simulation.crash();
        simulation.drives[2].set_presence(Presence::Present);
        expect_mount(&mut simulation, 0);
        expect_all(&mut simulation);
    }
}

/// A volume as large as its members allow, on members of minimum size, in which every block was
/// written.
fn full_simulation(mut config: VolumeConfig, metadata_bytes: u16, seed: u64) -> Simulation {
    let prng = Prng::new(seed);
    let geometry = Geometry { zone_count: 16, ..geometry(metadata_bytes) };
    let members = config.scheme.members();
    let drives = (0..members).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    config.tuning.reserve_percent = 1;
    let mut simulation =
        Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration");
    simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
    simulation.mix = Mix { writes: 20, trims: 1, reads: 1, flushes: 0, large_percent: 30, ..Mix::default() };
    simulation
}

/// Unwritten zones, on the member that has the fewest.
fn free_zones(simulation: &Simulation) -> usize {
    let is_free = |drive: &Drive, zone: u32| drive.zone_state(zone) == ZoneState::Empty;
    let free =
        |drive: &Drive| (METADATA_ZONES..drive.geometry().zone_count).filter(|&zone| is_free(drive, zone)).count();
    simulation.drives.iter().map(free).min().expect("there are members")
}

/// Mounts the volume, and hosts write before it is quiescent.
fn mount(simulation: &mut Simulation) {
    simulation.mount_until_ready(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// Everything is readable, and the volume can be used.
fn expect_all_for_long(simulation: &mut Simulation) {
    expect_all(simulation);
    run_steps(simulation, 4000);
    expect_all(simulation);
}

#[test]
fn a_nearly_full_volume_survives_crash_after_crash_in_use() {
    for (seed, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            let mut simulation = full_simulation(config(scheme), metadata_bytes, seed);
            for crash in 0..60 {
                let _context = PanicContext(scheme, metadata_bytes, crash);
                run_steps(&mut simulation, 20 + crash % 7 * 40);
                simulation.crash();
                mount(&mut simulation);
            }
            expect_all_for_long(&mut simulation);
        }
    }
}

fn a_nearly_full_volume_survives_crashes_of_its_mounts(step: usize) {
    for (seed, scheme) in (0..).zip(SCHEMES) {
        for metadata_bytes in [64, 0] {
            let mut simulation = full_simulation(config(scheme), metadata_bytes, seed);
            for writes in every(step, (4..140).step_by(5), metadata_bytes) {
                let _context = PanicContext(scheme, metadata_bytes, writes);
                run_steps(&mut simulation, 150 + writes);
                simulation.crash();
                for _ in 0..12 {
                    simulation.mount_and_crash_in_writes(0, writes).unwrap_or_else(|violation| panic!("{violation}"));
                }
                mount(&mut simulation);
            }
            expect_all_for_long(&mut simulation);
        }
    }
}

#[test]
fn a_nearly_full_volume_survives_crash_after_crash_at_any_moment_of_its_mounts() {
    a_nearly_full_volume_survives_crashes_of_its_mounts(4);
}

fn a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(seeds: u64) {
    for seed in 0..seeds {
        let scheme = SCHEMES[3];
        // Many stripes per segment: a crash can interrupt many.
        let large = StreamShape { unit_blocks: 1, group_stripes: if seed % 2 == 0 { 1 } else { 8 } };
        let mut simulation = full_simulation(VolumeConfig { large, ..config(scheme) }, 64, seed);
        let mut cuts = Prng::new(seed).fork("cuts");
        for round in 0..4 {
            let _context = PanicContext(scheme, 64, round);
            run_steps(&mut simulation, 400);
            simulation.crash();
            for _ in 0..100 {
                simulation
                    .mount_and_crash_in_writes(0, cuts.below(240))
                    .unwrap_or_else(|violation| panic!("{violation}"));
                assert!(free_zones(&simulation) > 0, "seed {seed}: the next mount can write");
            }
            mount(&mut simulation);
        }
        expect_all(&mut simulation);
    }
}

#[test]
fn a_nearly_full_volume_is_mounted_after_any_number_of_mounts_that_were_cut_short() {
    a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(3);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_survive_crashes_at_every_moment() {
    acknowledged_blocks_survive_crashes(1);
    a_crash_and_the_loss_of_a_member_are_survived(1);
    a_mount_is_interrupted_and_repeated(1);
    a_nearly_full_volume_survives_crashes_of_its_mounts(1);
    a_nearly_full_volume_is_mounted_after_mounts_that_were_cut_short(40);
}
