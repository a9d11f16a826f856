//! Members that were restored from an older copy of the same epoch: their superblocks are as new as
//! those of others.

use super::sides::{refusal, written};
use crate::testing::{Request, Simulation};
use crate::{Level, MemberIndex, Scheme, VolumeError};

const RAID0: Scheme = Scheme { level: Level::Raid0, data: 2, parity: 0 };
const MIRRORED_STRIPE: Scheme = Scheme { level: Level::Raid01, data: 2, parity: 2 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };
const RAID6: Scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };

fn request(simulation: &mut Simulation, request: &Request) {
    assert!(simulation.submit(request).unwrap_or_else(|violation| panic!("{violation}")), "{request:?} is accepted");
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Rewrites each block `from..`, and then trims `trimmed` of them.
fn write_more(simulation: &mut Simulation, from: u64, trimmed: u64) {
    let blocks = simulation.model.volume_blocks();
    for start in (from..blocks - 4).step_by(4) {
        request(simulation, &Request::Write { start, blocks: 4 });
    }
    if trimmed > 0 {
        request(simulation, &Request::Trim(vec![(0, trimmed)]));
    }
    request(simulation, &Request::Flush);
}

/// A simulation in which members `older`, as bits, are as they were before all blocks from `from`
/// on were written and others trimmed.
fn with_older_copies(scheme: Scheme, older: u32, from: u64, trimmed: u64) -> Simulation {
    // Some segments are open, and are filled later.
    let begin = |simulation: &mut Simulation| request(simulation, &Request::Write { start: 0, blocks: 4 });
    with_older_copies_of(written(scheme, 64, 6), older, begin, |simulation| write_more(simulation, from, trimmed))
}

/// The same for any simulation, with steps before the copy is made and after that.
fn with_older_copies_of(
    mut simulation: Simulation,
    older: u32,
    begin: impl Fn(&mut Simulation),
    run_steps: impl Fn(&mut Simulation),
) -> Simulation {
    simulation.suspects = u32::MAX;
    simulation.crash();
    simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    begin(&mut simulation);
    let epoch = simulation.volume.epoch();
    let copies = simulation.drives.clone();
    run_steps(&mut simulation);
    assert_eq!(simulation.volume.epoch(), epoch, "only the contents of segments distinguish the copy from the member");
    simulation.crash();
    for at in (0..copies.len()).filter(|at| older >> at & 1 == 1) {
        simulation.drives[at] = copies[at].clone();
        simulation.drives[at].is_unreliable = true;
    }
    simulation
}

/// Mounts the members except `without`: that is refused, naming these members, or everything
/// acknowledged is readable.
fn expect_refused_or_right(simulation: &mut Simulation, without: u32, missing: u32) -> bool {
    let before = simulation.drives.clone();
    simulation.model.is_lost = true;
    let is_mounted = simulation.mount(without).is_ok();
    simulation.model.is_lost = false;
    if is_mounted {
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        return false;
    }
    simulation.crash();
    simulation.drives = before;
    let VolumeError::TooManyMissing { missing: named, .. } = refusal(simulation, without) else {
        panic!("{:?}", simulation.events)
    };
    let named = named.into_iter().fold(0, |bits, MemberIndex(at)| bits | 1 << at);
    assert_eq!(named, missing, "the error names the members that are missing and the older copies");
    true
}

#[test]
fn older_copies_that_others_contradict_are_missing_and_nothing_is_reset() {
    let cases = [
        (RAID0, 0b10, 0),
        (MIRRORED_STRIPE, 0b0001, 0b0100),
        (RAID5, 0b001, 0b100),
        (RAID5, 0b010, 0b001),
        (RAID6, 0b0011, 0b1000),
    ];
    for (scheme, older, without) in cases {
        let mut simulation = with_older_copies(scheme, older, 0, 0);
        let fresh = (0..simulation.drives.len()).filter(|at| older >> at & 1 == 0);
        let written: Vec<(usize, u64)> = fresh.map(|at| (at, written_blocks(&mut simulation, at))).collect();
        for _ in 0..2 {
            assert!(expect_refused_or_right(&mut simulation, without, older | without), "{scheme:?}");
        }
        for (at, blocks) in written {
            assert_eq!(written_blocks(&mut simulation, at), blocks, "nothing of member {at} was reset");
        }
        if scheme != RAID0 {
            simulation.mount(0).unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
            simulation.read_all().unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        }
    }
}

#[test]
fn a_member_that_comes_back_as_it_was_before_a_mount_is_missing_though_nothing_was_written_since() {
    let cases = [(RAID0, 0b10_u32, 0), (RAID5, 0b010, 0b001), (RAID5, 0b010, 0), (RAID6, 0b0010, 0b1000)];
    for (scheme, older, without) in cases {
        let mut simulation = super::failures::simulation(scheme, 64, 6);
        (simulation.keeps_epochs, simulation.suspects) = (true, u32::MAX);
        request(&mut simulation, &Request::Write { start: 0, blocks: 40 });
        request(&mut simulation, &Request::Flush);
        simulation.crash();
        let copies = simulation.drives.clone();
        simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        for at in (0..copies.len()).filter(|at| older >> at & 1 == 1) {
            simulation.drives[at] = copies[at].clone();
            simulation.drives[at].is_unreliable = true;
        }
        let is_needed = (older | without).count_ones() > u32::from(scheme.parity);
        assert_eq!(expect_refused_or_right(&mut simulation, without, older | without), is_needed, "{scheme:?}");
        if is_needed {
            simulation.crash();
            simulation.options.accepts_older = true;
            simulation.model.accept_losses();
            simulation.mount(without).unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        }
    }
}

fn written_blocks(simulation: &mut Simulation, at: usize) -> u64 {
    let zones = simulation.drives[at].geometry().zone_count;
    (0..zones).map(|zone| simulation.drives[at].count_written(zone)).sum()
}

#[test]
fn what_was_written_since_an_older_copy_never_reads_as_older_or_as_zeros_once_a_group_followed() {
    let mut refused = 0;
    for scheme in [RAID5, RAID0] {
        let without = if scheme == RAID5 { 0b100 } else { 0 };
        let blocks = written(scheme, 64, 6).model.volume_blocks();
        // More than a group: for the last one it is not known what was acknowledged.
        for last in [40, 55, 80, 100, 200] {
            for trimmed in [0, 3, 60] {
                let mut simulation = with_older_copies(scheme, 1, blocks.saturating_sub(last), trimmed);
                refused += u32::from(expect_refused_or_right(&mut simulation, without, 1 | without));
            }
        }
    }
    assert!(refused > 20, "{refused} mounts of 30 are refused");
}

#[test]
fn what_was_trimmed_since_an_older_copy_does_not_come_back() {
    let trim = |simulation: &mut Simulation| {
        for start in 0..40 {
            request(simulation, &Request::Trim(vec![(start, 1)]));
        }
    };
    for without in [0b010, 0b100] {
        // Nothing is collected, and no segment is open when the copy is made: only tombstones are
        // new.
        let mut simulation = super::failures::simulation(RAID5, 64, 6);
        request(&mut simulation, &Request::Write { start: 0, blocks: 40 });
        let mut simulation = with_older_copies_of(simulation, 0b001, |_| (), trim);
        assert!(expect_refused_or_right(&mut simulation, without, 0b001 | without));
    }
}

#[test]
fn members_that_were_resetting_and_opening_segments_at_a_crash_are_no_older_copies() {
    for steps in (0..3000).step_by(37) {
        let mut simulation = written(RAID5, 64, 8);
        for start in (0..simulation.model.volume_blocks() - 8).step_by(8) {
            let _ = simulation
                .submit(&Request::Write { start, blocks: 8 })
                .unwrap_or_else(|violation| panic!("{violation}"));
        }
        let _ = simulation.submit(&Request::Trim(vec![(0, simulation.model.volume_blocks())]));
        for _ in 0..steps {
            simulation.step(1_000_000).unwrap_or_else(|violation| panic!("{violation}"));
        }
        simulation.crash();
        for without in [0b001, 0] {
            simulation.mount(without).unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
            simulation.read_all().unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
            simulation.crash();
        }
    }
}
