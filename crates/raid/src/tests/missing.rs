//! A member that is being rebuilt does not substitute for a missing one.

use super::basics::config;
use super::bench::Bench;
use crate::{Event, Level, MemberIndex, MemberState, Scheme, VolumeError};

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };
const RAID6: Scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };
const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const MIRRORED_STRIPE: Scheme = Scheme { level: Level::Raid01, data: 2, parity: 2 };

/// A volume whose members `replaced` have failed and were replaced, and are being rebuilt slowly.
fn rebuilding(scheme: Scheme, replaced: &[u8]) -> Bench {
    let mut config = config(scheme);
    config.tuning.rebuild_blocks_per_second = Some(10_000);
    let mut bench = Bench::new(config, 64, 31);
    bench.fill();
    bench.churn(300);
    bench.run_out();
    for &member in replaced {
        bench.fail(member);
        bench.churn(100);
        bench.run_out();
    }
    replaced.iter().for_each(|&member| bench.replace(member));
    while bench.volume.volume().status().rebuild.is_none_or(|(done, _)| done < 3) {
        assert!(bench.step());
    }
    for &member in replaced {
        assert_eq!(bench.state(member), MemberState::Rebuilding);
    }
    bench
}

fn indices(members: &[u8]) -> Vec<MemberIndex> {
    members.iter().copied().map(MemberIndex).collect()
}

/// Mounts the members, and returns why that failed, if it did.
fn remount(bench: &mut Bench) -> Option<VolumeError> {
    bench.events.clear();
    bench.begin_remount();
    loop {
        match bench.events.iter().find(|event| matches!(event, Event::Ready | Event::Failed(_))) {
            Some(Event::Failed(error)) => return Some(error.clone()),
            Some(_) => return None,
            None => assert!(bench.step(), "a mount ends: {:?}", bench.events),
        }
    }
}

/// Without the members `away` the volume is not mounted; with them everything is readable, also
/// after the rebuild.
fn expect_refused_without(scheme: Scheme, replaced: &[u8], away: &[u8]) {
    let mut bench = rebuilding(scheme, replaced);
    let tolerates = bench.volume.volume().code_tolerates();
    let pulled: Vec<_> = away.iter().map(|&at| bench.volume.replace(MemberIndex(at), None)).collect();
    for _ in 0..3 {
        let (missing, rebuilding) = (indices(away), indices(replaced));
        let error = VolumeError::TooManyMissing { tolerates, missing, rebuilding };
        assert_eq!(remount(&mut bench), Some(error), "{scheme:?} without {away:?}");
    }
    for (&at, device) in away.iter().zip(pulled) {
        bench.volume.replace(MemberIndex(at), device);
    }
    assert_eq!(remount(&mut bench), None, "{scheme:?}: all of them are back");
    bench.read_all();
    while replaced.iter().any(|&at| bench.state(at) == MemberState::Rebuilding) {
        assert!(bench.step());
    }
    bench.survives(away[0]);
}

#[test]
fn a_mount_without_a_member_that_a_rebuild_needs_is_refused_until_it_is_back() {
    expect_refused_without(RAID5, &[1], &[2]);
    expect_refused_without(Scheme::raid5(3), &[1], &[3]);
    expect_refused_without(RAID1, &[0], &[1]);
    expect_refused_without(MIRRORED_STRIPE, &[0], &[2]);
}

#[test]
fn a_mount_of_raid_6_counts_members_that_are_missing_and_those_that_are_rebuilt() {
    expect_refused_without(RAID6, &[1], &[2, 3]);
    expect_refused_without(RAID6, &[0, 1], &[2]);
    // It tolerates the loss of one of each.
    let mut bench = rebuilding(RAID6, &[1]);
    bench.volume.replace(MemberIndex(2), None);
    assert_eq!(remount(&mut bench), None);
    bench.read_all();
}

#[test]
fn a_member_that_goes_away_for_a_moment_during_a_rebuild_costs_no_block() {
    for scheme in [RAID5, RAID1, Scheme::raid5(3)] {
        let mut bench = rebuilding(scheme, &[1]);
        bench.events.clear();
        bench.device(0).is_unresponsive = true;
        for _ in 0..10_000 {
            if bench.events.iter().any(|event| matches!(event, Event::Failed(_))) || !bench.step() {
                break;
            }
        }
        assert_eq!(bench.volume.volume().counters().lost_blocks, 0, "nothing is recorded as lost");
        bench.device(0).is_unresponsive = false;
        assert_eq!(remount(&mut bench), None, "{scheme:?}");
        bench.read_all();
        while bench.state(1) == MemberState::Rebuilding {
            assert!(bench.step());
        }
        bench.survives(0);
    }
}

/// A mount of RAID 6 in which two members fail, after this many steps. Returns by how many epochs
/// the volume is newer then; `None` if the mount had begun to write before.
fn epochs_of_a_mount_that_loses_two_members(steps: u32) -> Option<u64> {
    let mut bench = Bench::new(config(RAID6), 64, 31);
    bench.churn(40);
    bench.run_out();
    let before = bench.volume.volume().epoch();
    bench.begin_remount();
    let written: Vec<_> = (0..4).map(|member| bench.device(member).written).collect();
    for member in [1, 2] {
        bench.steps(if member == 1 { steps } else { 1 });
        let has_written = (0..4).any(|at| {
            bench.volume.member(MemberIndex(at)).is_some_and(|device| device.written != written[usize::from(at)])
        });
        if has_written || bench.volume.volume().is_ready() {
            return None;
        }
        bench.fail(member);
    }
    while !bench.volume.volume().is_ready() {
        assert!(bench.step(), "a mount ends: {:?}", bench.events);
    }
    bench.read_all();
    Some(bench.volume.volume().epoch() - before)
}

#[test]
fn what_a_mount_finds_of_members_is_recorded_in_one_epoch_once_it_has_read_all() {
    let mut mounts = 0;
    while let Some(epochs) = epochs_of_a_mount_that_loses_two_members(mounts * 3) {
        assert_eq!(epochs, 1, "after {} steps", mounts * 3);
        mounts += 1;
    }
    assert!(mounts > 6, "they fail while superblocks, headers and segments are read: {mounts}");
}
