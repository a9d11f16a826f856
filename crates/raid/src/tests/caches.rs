//! Members with volatile caches.

use zonda_zoned::{Operation, Prng};

use super::failures::{config, expect_all, geometry, run_steps};
use super::script::{Kind, Script, plain_config};
use crate::testing::{Drive, Request, Simulation};
use crate::{Event, FailReason, Level, MemberIndex, Scheme};

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 3, parity: 1 };

pub(super) fn volatile_simulation(scheme: Scheme, metadata_bytes: u16, seed: u64) -> Simulation {
    let prng = Prng::new(seed);
    let drive = |at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))).with_volatile_cache();
    let mut config = config(scheme);
    config.tuning.is_cache_volatile = true;
    Simulation::create(config, (0..scheme.members()).map(drive).collect(), prng.fork("world"))
        .expect("a valid configuration")
}

fn submit(simulation: &mut Simulation, request: &Request) {
    assert!(simulation.submit(request).unwrap_or_else(|violation| panic!("{violation}")), "it is accepted");
}

fn quiesce(simulation: &mut Simulation) {
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
}

fn mount(simulation: &mut Simulation, without: u32) {
    simulation.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn flushed_blocks_survive_a_crash_at_any_moment() {
    let schemes =
        [RAID5, Scheme { level: Level::Raid0, data: 2, parity: 0 }, Scheme { level: Level::Raid1, data: 1, parity: 1 }];
    for (seed, scheme) in (0..).zip(schemes) {
        for metadata_bytes in [64, 0] {
            for completions in (20..1500).step_by(61) {
                let mut simulation = volatile_simulation(scheme, metadata_bytes, seed);
                while simulation.completions < completions {
                    simulation.step(4).unwrap_or_else(|violation| panic!("{violation}"));
                }
                for _ in 0..2 {
                    simulation.crash();
                    mount(&mut simulation, 0);
                    expect_all(&mut simulation);
                    run_steps(&mut simulation, 100);
                }
            }
        }
    }
}

#[test]
fn flushed_blocks_survive_a_crash_and_the_loss_of_a_member_at_once() {
    for completions in (20..900).step_by(17) {
        let mut simulation = volatile_simulation(RAID5, 64, completions);
        while simulation.completions < completions {
            simulation.step(4).unwrap_or_else(|violation| panic!("{violation}"));
        }
        let lost = completions as usize % simulation.drives.len();
        simulation.suspects = 1 << lost;
        simulation.crash();
        mount(&mut simulation, 1 << lost);
        expect_all(&mut simulation);
    }
}

#[test]
fn blocks_acknowledged_before_a_kill_are_read_after_it_and_survive_a_later_power_loss() {
    for completions in (20..900).step_by(53) {
        let mut simulation = volatile_simulation(RAID5, 64, completions);
        while simulation.completions < completions {
            simulation.step(4).unwrap_or_else(|violation| panic!("{violation}"));
        }
        simulation.kill();
        mount(&mut simulation, 0);
        expect_all(&mut simulation);
        simulation.crash();
        mount(&mut simulation, 0);
        expect_all(&mut simulation);
    }
}

#[test]
fn a_member_whose_flush_fails_is_failed_and_no_flushed_block_is_lost() {
    let mut simulation = volatile_simulation(RAID5, 64, 1);
    simulation.suspects = 1 << 1;
    submit(&mut simulation, &Request::Write { start: 3, blocks: 2 });
    quiesce(&mut simulation);
    simulation.drives[1].fail_next(1, |_, operation| *operation == Operation::Flush);
    submit(&mut simulation, &Request::Flush);
    quiesce(&mut simulation);
    assert!(simulation.events.contains(&Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Errors }));
    simulation.crash();
    mount(&mut simulation, 0);
    expect_all(&mut simulation);
}

#[test]
fn one_round_of_flushes_serves_all_who_wait() {
    let mut simulation = volatile_simulation(RAID5, 64, 1);
    let flushes = |simulation: &Simulation| simulation.drives[0].flushes();
    let before = flushes(&simulation);
    for _ in 0..20 {
        submit(&mut simulation, &Request::Flush);
    }
    quiesce(&mut simulation);
    assert!(
        (1..=2).contains(&(flushes(&simulation) - before)),
        "the first has a round of its own, the others one together"
    );
}

#[test]
fn members_without_volatile_caches_are_never_flushed() {
    let mut simulation = super::failures::simulation(RAID5, 64, 1);
    run_steps(&mut simulation, 2000);
    submit(&mut simulation, &Request::Flush);
    quiesce(&mut simulation);
    assert!(simulation.drives.iter().all(|drive| drive.flushes() == 0));
}

/// Block 0 with version 1 is the only block left in segment 1; the next stripe is the first of
/// segment 3. Members have volatile caches.
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
            // Before any block is moved.
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
