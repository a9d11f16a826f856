//! Members that were used without each other, and outdated members.

use zonda_zoned::{Geometry, Prng};

use super::failures::{config, geometry};
use crate::testing::{Drive, Request, Simulation};
use crate::{Event, MemberIndex, MemberState, MountOptions, Scheme, VolumeError};

pub(super) const RAID1: Scheme = Scheme { level: crate::Level::Raid1, data: 1, parity: 1 };
pub(super) const RAID6: Scheme = Scheme { level: crate::Level::Raid6, data: 2, parity: 2 };

/// A simulation with superblocks in both metadata zones of each member, in which every block was
/// written.
pub(super) fn written(scheme: Scheme, metadata_bytes: u16, seed: u64) -> Simulation {
    let geometry = Geometry { max_active_zones: Some(8), max_open_zones: Some(8), ..geometry(metadata_bytes) };
    let prng = Prng::new(seed);
    let drives = (0..scheme.members()).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    let mut simulation =
        Simulation::create(config(scheme), drives.collect(), prng.fork("world")).expect("a valid configuration");
    simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
    simulation.suspects = u32::MAX;
    simulation
}

/// Why the volume cannot be mounted. Members are then as after a crash.
pub(super) fn refusal(simulation: &mut Simulation, without: u32) -> VolumeError {
    simulation.model.is_lost = true;
    simulation.mount(without).expect_err("the mount is refused");
    simulation.model.is_lost = false;
    let error = simulation.events.iter().find_map(|event| match event {
        Event::Failed(error) => Some(error.clone()),
        _ => None,
    });
    simulation.crash();
    error.expect("an event has the reason")
}

fn mount(simulation: &mut Simulation, without: u32) {
    simulation.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

fn write_and_crash(simulation: &mut Simulation) {
    for start in [0, 5, 20] {
        assert!(simulation.submit(&Request::Write { start, blocks: 3 }).expect("it is accepted"));
    }
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    simulation.crash();
}

fn indices(members: &[u8]) -> Vec<MemberIndex> {
    members.iter().copied().map(MemberIndex).collect()
}

#[test]
fn members_used_without_each_other_are_refused_together_and_each_side_keeps_its_contents() {
    for (scheme, first, second) in [(RAID1, &[0][..], &[1][..]), (RAID6, &[0, 1], &[2, 3])] {
        for first_is_newer in [false, true] {
            let mut simulation = written(scheme, 64, 1);
            simulation.crash();
            let bits = |members: &[u8]| members.iter().fold(0, |bits, member| bits | 1 << member);
            if first_is_newer {
                // One more epoch.
                simulation.mount_and_crash(bits(second), 10_000).expect("it begins");
            }
            mount(&mut simulation, bits(second));
            write_and_crash(&mut simulation);
            // The model knows one side only: the writes of the second one contradict the guarantees
            // to the first one.
            simulation.mount(bits(first)).expect_err("members that have missed writes are active");
            assert!(
                simulation.volume.is_ready(),
                "the mount cannot know that the others continued: {:?}",
                simulation.events
            );
            let epoch = simulation.volume.epoch();
            simulation.crash();
            simulation.options.newest_epoch = Some(epoch);
            let error = refusal(&mut simulation, 0);
            let VolumeError::SplitBrain { newest, other, .. } = error else { panic!("{error}") };
            let mut sides = [newest, other];
            sides.sort();
            assert_eq!(sides, [indices(first), indices(second)]);
            simulation.options = MountOptions::default();
            mount(&mut simulation, bits(second));
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn members_that_are_older_than_the_caller_knows_are_refused() {
    let mut simulation = written(RAID1, 64, 2);
    assert_eq!(simulation.volume.epoch(), 2);
    simulation.crash();
    mount(&mut simulation, 0b10);
    let newest = simulation.volume.epoch();
    assert!(newest > 2);
    write_and_crash(&mut simulation);
    simulation.options.newest_epoch = Some(newest);
    assert_eq!(refusal(&mut simulation, 0b01), VolumeError::OlderThanKnown { found: 2, known: newest });
    simulation.options = MountOptions { seen_epoch: Some(newest), ..MountOptions::default() };
    assert_eq!(refusal(&mut simulation, 0b01), VolumeError::OlderThanKnown { found: 2, known: newest });
    mount(&mut simulation, 0);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_change_of_members_that_only_one_of_them_knows_is_no_side_of_its_own() {
    let mut simulation = written(RAID6, 64, 3);
    simulation.crash();
    // Member 3 is missing, and only one of the others has recorded it.
    let mut has_one = false;
    for steps in 0..2000 {
        let before: Vec<u64> = simulation.drives.iter().map(|drive| drive.count_written(1)).collect();
        let mut attempt = simulation.drives.clone();
        simulation.mount_and_crash(0b1000, steps).expect("it begins");
        let informed: Vec<usize> = (0..3).filter(|&at| simulation.drives[at].count_written(1) > before[at]).collect();
        if informed == [0] {
            has_one = true;
            break;
        }
        std::mem::swap(&mut simulation.drives, &mut attempt);
    }
    assert!(has_one, "a mount is cut short between two superblocks");
    mount(&mut simulation, 0b0001);
    write_and_crash(&mut simulation);
    mount(&mut simulation, 0);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

fn bits(members: &[u8]) -> u32 {
    members.iter().fold(0, |bits, member| bits | 1 << member)
}

/// The members that the volume does not use, as bits.
fn failed(simulation: &Simulation) -> u32 {
    let members = simulation.volume.status().members;
    (0..)
        .zip(&members)
        .filter(|(_, member)| member.state == MemberState::Failed)
        .fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Both sides continued alone; the model has the guarantees to the first one. Returns the epoch of
/// each.
fn diverged(scheme: Scheme, first: &[u8], second: &[u8], second_is_newer: bool) -> (Simulation, [u64; 2]) {
    let mut simulation = written(scheme, 64, 4);
    simulation.crash();
    mount(&mut simulation, bits(second));
    write_and_crash(&mut simulation);
    let of_first = simulation.volume.epoch();
    if second_is_newer {
        simulation.options =
            MountOptions { newest_epoch: Some(of_first + 5), accepts_older: true, ..simulation.options };
    }
    simulation.mount(bits(first)).expect_err("members that have missed writes are active");
    let of_second = simulation.volume.epoch();
    simulation.crash();
    simulation.options = MountOptions::default();
    (simulation, [of_first, of_second])
}

const DIVERGED: [(Scheme, &[u8], &[u8]); 3] = [(RAID1, &[0], &[1]), (RAID1, &[1], &[0]), (RAID6, &[2, 3], &[0, 1])];

#[test]
fn the_side_that_is_chosen_is_kept_and_later_mounts_do_not_refuse_for_the_other_one() {
    for (scheme, first, second) in DIVERGED {
        for second_is_newer in [false, true] {
            let (mut simulation, epochs) = diverged(scheme, first, second, second_is_newer);
            let known = epochs[0].max(epochs[1]);
            let before: Vec<u64> = second.iter().map(|&at| simulation.drives[usize::from(at)].writes()).collect();
            simulation.options = MountOptions {
                newest_epoch: Some(known),
                accepts_side: Some(MemberIndex(first[0])),
                ..simulation.options
            };
            mount(&mut simulation, 0);
            let chosen = simulation.volume.epoch();
            assert!(chosen > known, "epoch {chosen} is newer than those of both sides, {epochs:?}");
            assert_eq!(failed(&simulation), bits(second));
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
            write_and_crash(&mut simulation);
            let after: Vec<u64> = second.iter().map(|&at| simulation.drives[usize::from(at)].writes()).collect();
            assert_eq!(before, after, "nothing is written to the other side");

            simulation.options = MountOptions { newest_epoch: Some(chosen), ..MountOptions::default() };
            for without in [0, bits(second), 1 << second[0], 0] {
                mount(&mut simulation, without);
                assert_eq!(failed(&simulation), bits(second));
                simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
                simulation.crash();
            }
            assert!(matches!(refusal(&mut simulation, bits(first)), VolumeError::OlderThanKnown { .. }));

            // Empty, they replace their old selves.
            mount(&mut simulation, 0);
            for &member in second {
                simulation.replace(usize::from(member)).unwrap_or_else(|violation| panic!("{violation}"));
            }
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
            assert_eq!(failed(&simulation), 0);
            write_and_crash(&mut simulation);
            mount(&mut simulation, bits(first));
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn a_member_of_the_other_side_that_was_missing_when_a_side_was_chosen_is_rejected_with_it() {
    let (mut simulation, _) = diverged(RAID6, &[0, 1], &[2, 3], true);
    simulation.options.accepts_side = Some(MemberIndex(1));
    mount(&mut simulation, 0b1000);
    write_and_crash(&mut simulation);
    simulation.options = MountOptions::default();
    mount(&mut simulation, 0);
    assert_eq!(failed(&simulation), 0b1100);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_side_that_was_rejected_and_is_used_again_is_refused_again() {
    let (mut simulation, _) = diverged(RAID1, &[0], &[1], true);
    simulation.options.accepts_side = Some(MemberIndex(0));
    mount(&mut simulation, 0);
    let chosen = simulation.volume.epoch();
    simulation.crash();
    simulation.options = MountOptions { newest_epoch: Some(chosen), accepts_older: true, ..MountOptions::default() };
    simulation.mount(0b01).expect_err("the model does not know of this side");
    let again = simulation.volume.epoch();
    assert!(simulation.volume.is_ready() && again > chosen, "{again} is newer than {chosen}: {:?}", simulation.events);
    simulation.crash();
    simulation.options = MountOptions { newest_epoch: Some(again), ..MountOptions::default() };
    let error = refusal(&mut simulation, 0);
    let expected = (indices(&[1]), again, indices(&[0]), chosen);
    let VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } = error else { panic!("{error}") };
    assert_eq!((newest, newest_epoch, other, other_epoch), expected);
    simulation.options.accepts_side = Some(MemberIndex(0));
    mount(&mut simulation, 0);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_choice_that_a_crash_interrupts_is_made_or_not_and_can_be_repeated() {
    let (mut has_refused, mut has_mounted) = (false, false);
    for steps in (0..400).step_by(7) {
        let (mut simulation, _) = diverged(RAID6, &[1, 2], &[0, 3], false);
        simulation.options.accepts_side = Some(MemberIndex(2));
        simulation.mount_and_crash(0, steps).expect("it begins");
        let left = simulation.drives.clone();
        simulation.options = MountOptions::default();
        simulation.model.is_lost = true;
        let is_made = simulation.mount(0).is_ok();
        simulation.model.is_lost = false;
        has_mounted |= is_made;
        has_refused |= !is_made;
        if is_made {
            assert_eq!(failed(&simulation), 0b1001);
        }
        simulation.crash();
        simulation.drives = left;
        simulation.options.accepts_side = Some(MemberIndex(2));
        mount(&mut simulation, 0);
        assert_eq!(failed(&simulation), 0b1001);
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
    assert!(has_refused && has_mounted, "some crashes come before the choice is written, others after it");
}

#[test]
fn a_member_that_is_on_no_side_cannot_be_chosen() {
    let scheme = Scheme { level: crate::Level::Raid1, data: 1, parity: 2 };
    let mut simulation = written(scheme, 64, 5);
    simulation.crash();
    // Member 2 is outdated, then the others diverge.
    mount(&mut simulation, 0b100);
    simulation.crash();
    for without in [0b110, 0b101] {
        simulation.model.is_lost = true;
        simulation.mount(without).ok();
        simulation.crash();
    }
    simulation.model.is_lost = false;
    simulation.options.accepts_side = Some(MemberIndex(2));
    let VolumeError::Config(text) = refusal(&mut simulation, 0) else { panic!("the request is invalid") };
    assert!(text.contains("cannot keep the side of member 2"), "{text}");
    // Without a split brain the option has no effect.
    simulation.mount(0b001).expect_err("the model knows of one side only");
    assert!(simulation.volume.is_ready(), "{:?}", simulation.events);
    assert_eq!(failed(&simulation), 0b101);
}

#[test]
fn a_member_that_is_being_replaced_when_the_power_fails_is_no_side_of_its_own() {
    for steps in (0..240).step_by(3) {
        let mut simulation = written(RAID1, 64, 4);
        simulation.suspects = 1;
        simulation.replace(0).expect("it is accepted");
        for _ in 0..steps {
            simulation.step(1_000_000).unwrap_or_else(|violation| panic!("{violation}"));
        }
        simulation.crash();
        mount(&mut simulation, 0);
        simulation.read_all().unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
    }
}

#[test]
fn a_member_that_is_an_older_copy_of_itself_is_missing_and_beyond_tolerance_the_mount_is_refused() {
    for (scheme, is_tolerated) in [(Scheme::raid5(3), false), (RAID6, true)] {
        let mut simulation = written(scheme, 64, 6);
        let older = simulation.drives[2].clone();
        simulation.fail(1).unwrap_or_else(|violation| panic!("{violation}"));
        write_and_crash(&mut simulation);
        simulation.options = MountOptions { newest_epoch: Some(simulation.volume.epoch()), ..MountOptions::default() };
        simulation.drives[2] = older;
        if is_tolerated {
            mount(&mut simulation, 0);
            assert_eq!(failed(&simulation), 0b0110);
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        } else {
            let error = refusal(&mut simulation, 0);
            assert!(matches!(error, VolumeError::TooManyMissing { .. }), "{error}");
        }
    }
}
