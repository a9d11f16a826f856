//! Trims that are processed in portions, and requests in the meantime.

use zonda_zoned::{
    Blocks, Command, CommandId, Duration, Geometry, Instant, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload,
    Prng, Status,
};

use super::failures::{config, crash_and_mount, expect_all, geometry, run_steps};
use crate::format::tombstones_per_block;
use crate::testing::{Drive, Mix, Presence, Request, Simulation};
use crate::{Event, Level, MemberIndex, Scheme, Volume};

/// A simulation with a limit of blocks of trims in flight.
fn simulation(trim_blocks: u64, seed: u64) -> Simulation {
    let prng = Prng::new(seed);
    let drives = (0..4).map(|at| Drive::new(geometry(64), prng.fork(&format!("drive/{at}"))));
    let mut config = config(Scheme::raid5(3));
    config.tuning.trim_blocks = trim_blocks;
    Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration")
}

/// Writes every block, in pieces of `blocks` with as many unwritten ones between them.
fn write_all(simulation: &mut Simulation, blocks: u64, apart: u64) {
    let end = simulation.model.volume_blocks();
    for start in (0..end).step_by((blocks + apart) as usize) {
        while !simulation.submit(&Request::Write { start, blocks: blocks.min(end - start) }).unwrap() {
            simulation.quiesce().unwrap();
        }
    }
    simulation.quiesce().unwrap();
}

#[test]
fn blocks_read_as_zeros_from_the_moment_a_trim_is_taken_and_writes_after_it_stay() {
    for (trim_blocks, seed) in [(1, 1), (7, 2), (40, 3), (300, 4)] {
        let mut simulation = simulation(trim_blocks, seed);
        write_all(&mut simulation, 8, 0);
        let blocks = simulation.model.volume_blocks();
        assert!(simulation.submit(&Request::Trim(vec![(0, blocks)])).unwrap());
        assert_eq!(simulation.model.in_flight(), 1, "it does not complete at once");
        let extent = simulation.volume.extent(Lba(3), Blocks(u64::MAX));
        assert_eq!((extent.blocks.0, extent.is_hole), (blocks - 3, true), "and it is reported as a hole");
        for start in [0, 50, blocks - 9] {
            assert!(simulation.submit(&Request::Write { start, blocks: 3 }).unwrap());
            assert!(simulation.submit(&Request::Read { start: start.saturating_sub(1), blocks: 9 }).unwrap());
        }
        assert!(simulation.submit(&Request::Trim(vec![(40, 20), (blocks / 2, 30)])).unwrap());
        assert!(simulation.submit(&Request::Write { start: 45, blocks: 10 }).unwrap());
        simulation.volume.check_invariants();
        simulation.read_all().unwrap();
        crash_and_mount(&mut simulation);
        simulation.read_all().unwrap();
    }
}

#[test]
fn a_loss_of_power_in_the_middle_leaves_each_block_trimmed_or_not() {
    for steps in 0..60 {
        let mut simulation = simulation(12, steps);
        write_all(&mut simulation, 5, 3);
        assert!(simulation.submit(&Request::Trim(vec![(0, simulation.model.volume_blocks())])).unwrap());
        // No other requests, then some.
        simulation.generated_max = if steps % 2 == 0 { 0 } else { u64::MAX };
        run_steps(&mut simulation, steps * 8);
        crash_and_mount(&mut simulation);
        simulation.generated_max = u64::MAX;
        expect_all(&mut simulation);
        run_steps(&mut simulation, 200);
        expect_all(&mut simulation);
    }
}

#[test]
fn long_trims_one_over_the_other_with_writes_between_them_keep_what_was_promised() {
    for seed in 0..40 {
        let mut simulation = simulation(1 + seed % 30, seed);
        simulation.mix = Mix { trims: 12, large_blocks_max: 600, large_percent: 0, ..Mix::default() };
        let mut prng = Prng::new(seed);
        let blocks = simulation.model.volume_blocks();
        for _ in 0..3 {
            for _ in 0..12 {
                let start = prng.below(blocks);
                let ranges = vec![(start, 1 + prng.below(blocks - start)), (prng.below(blocks / 2), blocks / 2)];
                simulation.submit(&Request::Trim(ranges)).unwrap_or_else(|violation| panic!("{violation}"));
                run_steps(&mut simulation, 60);
                simulation.volume.check_invariants();
            }
            if prng.chance(1, 2) {
                crash_and_mount(&mut simulation);
            }
            expect_all(&mut simulation);
        }
    }
}

/// Chunks that are sent to members before any of them answers.
fn chunks_given(simulation: &mut Simulation) -> usize {
    let mut now = simulation.now();
    let mut given = 0;
    for _ in 0..1000 {
        for member in (0..4).map(MemberIndex) {
            while let Some(command) = simulation.volume.poll_command(now, member) {
                given += usize::from(matches!(command.operation, Operation::Append { .. } | Operation::Write { .. }));
            }
        }
        let Some(due) = simulation.volume.next_timeout().filter(|due| due.0 < 1_000_000_000) else { break };
        now = now.max(due);
        simulation.volume.on_timeout(now);
    }
    given
}

#[test]
fn no_more_blocks_of_a_trim_are_in_flight_than_the_limit() {
    let given = [4, u64::from(u16::MAX)].map(|trim_blocks| {
        let mut simulation = simulation(trim_blocks, 1);
        // Each block takes a tombstone of its own, and a block holds 24 of them.
        write_all(&mut simulation, 1, 1);
        assert!(simulation.submit(&Request::Trim(vec![(0, simulation.model.volume_blocks())])).unwrap());
        chunks_given(&mut simulation)
    });
    assert_eq!(given[0], 4, "one stripe");
    assert!(given[1] > 4, "{given:?}");
}

#[test]
fn tombstones_of_blocks_that_are_apart_share_blocks_as_far_as_they_fit() {
    let mut simulation = simulation(u64::from(u16::MAX), 1);
    write_all(&mut simulation, 1, 1);
    let blocks = simulation.model.volume_blocks();
    assert!(simulation.submit(&Request::Trim(vec![(0, blocks)])).unwrap());
    let tombstones = blocks.div_ceil(2) as usize;
    // Three chunks of two blocks and their parity are a stripe.
    let stripes = tombstones.div_ceil(tombstones_per_block(512)).div_ceil(6);
    assert_eq!(chunks_given(&mut simulation), 4 * stripes);
}

/// A volume without contents that is ready.
fn large_volume(trim_blocks: u64) -> Volume {
    let mut config = config(Scheme { level: crate::Level::Raid0, data: 1, parity: 0 });
    config.tuning.has_contents = false;
    config.tuning.trim_blocks = trim_blocks;
    let geometry =
        Geometry { zone_size_blocks: Blocks(8192), zone_capacity_blocks: Blocks(8192), zone_count: 64, ..geometry(64) };
    let mut drive = Drive::new(geometry.clone(), Prng::new(1));
    let mut volume = Volume::create(config, vec![geometry], [9; 16], &[[1; 16]], false).expect("a valid configuration");
    while volume.poll_event() != Some(Event::Ready) {
        while let Some(command) = volume.poll_command(Instant::ZERO, MemberIndex(0)) {
            drive.submit(command).expect("it is accepted");
        }
        if let Some(completion) = drive.step() {
            volume.on_completion(Instant::ZERO, MemberIndex(0), completion);
        }
    }
    volume
}

#[test]
fn a_trim_of_unwritten_blocks_lets_other_requests_through() {
    let mut volume = large_volume(16_000);
    let blocks = volume.geometry().namespace_blocks().0;
    assert!(blocks > 100_000);
    let command = |id, operation| Command::new(CommandId(id), NamespaceId::FIRST, operation);
    let ranges = [LbaRange { start: Lba(0), blocks: Blocks(blocks) }].into();
    volume.submit(Instant::ZERO, command(1, Operation::Deallocate { ranges })).expect("it is accepted");
    let mut iterations = 0;
    let mut now = Instant::ZERO;
    let ended = loop {
        if let Some(completion) = volume.poll_completion() {
            break completion;
        }
        // A read in each iteration.
        volume
            .submit(now, command(2, Operation::Read { start: Lba(iterations), blocks: Blocks(1) }))
            .expect("it is accepted");
        let read = volume.poll_completion().expect("there is nothing to be read");
        assert_eq!((read.id.0, read.status, read.outcome), (2, Status::Success, Outcome::Data(Payload::None)));
        let due = volume.next_timeout().expect("the trim continues by itself");
        assert!(due > now, "other requests are processed in between");
        now = due;
        volume.on_timeout(now);
        iterations += 1;
    };
    assert_eq!((ended.id.0, ended.status), (1, Status::Success));
    // A thousand blocks per iteration, the first when it was accepted.
    assert_eq!(iterations, blocks.div_ceil(1000) - 1);
    assert_eq!(volume.next_timeout(), None);
}

#[test]
fn a_write_that_failed_out_of_space_does_not_reappear_after_its_block_was_trimmed() {
    for was_trimmed_before in [false, true] {
        let mut simulation = super::failures::simulation(Scheme::raid5(2), 64, 3);
        let complete = |simulation: &mut Simulation, request: Request| {
            assert!(
                simulation.submit(&request).unwrap_or_else(|violation| panic!("{violation}")),
                "{request:?} is accepted"
            );
            simulation.wait(Duration::from_millis(100)).unwrap_or_else(|violation| panic!("{violation}"));
        };
        complete(&mut simulation, Request::Write { start: 40, blocks: 1 });
        if was_trimmed_before {
            complete(&mut simulation, Request::Write { start: 7, blocks: 1 });
            complete(&mut simulation, Request::Trim(vec![(7, 1)]));
        }
        // Two members of three have their chunk: the stripe can be decoded.
        simulation.model.may_be_full = true;
        simulation.drives[2].set_presence(Presence::Full);
        complete(&mut simulation, Request::Write { start: 7, blocks: 1 });
        assert_eq!(simulation.model.refused(), 1, "the write ends with Capacity Exceeded");
        simulation.drives[2].set_presence(Presence::Present);
        simulation.wait(Duration::from_secs(2)).unwrap_or_else(|violation| panic!("{violation}"));
        complete(&mut simulation, Request::Trim(vec![(7, 1)]));
        complete(&mut simulation, Request::Flush);
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// Submits a request as soon as it is accepted.
fn submit(simulation: &mut Simulation, request: &Request) {
    while !simulation.submit(request).unwrap() {
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// A volume on a single drive with zones of 20 blocks, and hardly more space than its blocks take.
fn simulation_of_small_zones(seed: u64, metadata_bytes: u16, zone_count: u32, unit_blocks: u32) -> Simulation {
    let zone_blocks = Blocks(20);
    let geometry = Geometry {
        zone_size_blocks: zone_blocks,
        zone_capacity_blocks: zone_blocks,
        zone_count,
        max_active_zones: None,
        max_open_zones: None,
        ..geometry(metadata_bytes)
    };
    let mut config = config(Scheme { level: Level::Raid0, data: 1, parity: 0 });
    config.small.unit_blocks = unit_blocks;
    config.large.unit_blocks = unit_blocks;
    config.tuning.reserve_percent = 1;
    config.tuning.large_segments = 0;
    let prng = Prng::new(seed);
    let drive = Drive::new(geometry, prng.fork("drive"));
    Simulation::create(config, vec![drive], prng.fork("world")).expect("the drive suits")
}

#[test]
fn segments_full_of_tombstones_of_blocks_that_were_written_since_are_collected_when_a_write_waits_for_space() {
    // The tombstones of a cycle fill more than a segment without other blocks.
    let mut simulation = simulation_of_small_zones(1, 64, 110, 2);
    let blocks = simulation.model.volume_blocks();
    let every_other: Vec<(u64, u64)> = (0..blocks).step_by(2).map(|lba| (lba, 1)).collect();
    let per_block = tombstones_per_block(simulation.drives[0].geometry().block_size_bytes);
    for cycle in 0..70 {
        for &(start, blocks) in &every_other {
            submit(&mut simulation, &Request::Write { start, blocks });
        }
        simulation.quiesce().unwrap_or_else(|violation| panic!("cycle {cycle}: {violation}"));
        every_other.chunks(per_block).for_each(|ranges| submit(&mut simulation, &Request::Trim(ranges.to_vec())));
    }
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    crash_and_mount(&mut simulation);
    simulation.read_all().unwrap();
}

#[test]
fn tombstones_of_blocks_that_are_written_and_trimmed_again_and_again_do_not_add_up() {
    for seed in 0..4 {
        let mut simulation = simulation_of_small_zones(seed, 0, 14, 3);
        let mut prng = Prng::new(seed).fork("load");
        let blocks = simulation.model.volume_blocks();
        for _ in 0..6000 {
            let start = prng.below(blocks);
            let request = match prng.below(3) {
                0 => Request::Trim(vec![(start, 1)]),
                _ => Request::Write { start, blocks: 1 },
            };
            submit(&mut simulation, &request);
            if prng.chance(1, 4) {
                for _ in 0..prng.below(50) {
                    simulation.step(u64::MAX).unwrap_or_else(|violation| panic!("{violation}"));
                }
            }
        }
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        crash_and_mount(&mut simulation);
        simulation.read_all().unwrap();
    }
}
