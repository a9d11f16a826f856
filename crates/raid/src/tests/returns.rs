//! Failed members are re-added with their contents, and catch up.

use zonda_zoned::{Duration, Geometry};

use super::basics::{config, geometry};
use super::bench::{Bench, Slow};
use crate::event::FailReason;
use crate::{Event, Level, MemberIndex, MemberState, Scheme, StreamShape, VolumeConfig, VolumeError};

const MIRROR: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID6: Scheme = Scheme { level: Level::Raid6, data: 3, parity: 2 };

fn grouped(scheme: Scheme, group_stripes: u32) -> VolumeConfig {
    let mut config = config(scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes };
    config
}

fn rebuilt(member: u8) -> Event {
    Event::Rebuilt { member: MemberIndex(member) }
}

fn returned(member: u8) -> Event {
    Event::Readded { member: MemberIndex(member) }
}

/// Why a member is not re-added.
fn refusal(bench: &mut Bench, member: u8) -> VolumeError {
    bench.events.clear();
    loop {
        let refused = bench.events.iter().find_map(|event| match event {
            Event::ReaddRefused { member: other, error } if other.0 == member => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = refused {
            assert_eq!(bench.state(member), MemberState::Failed);
            return error;
        }
        assert!(bench.step(), "it is refused: {:?}", bench.events);
    }
}

/// Blocks that members have written.
fn written(device: &Slow) -> u64 {
    device.written.0
}

#[test]
fn a_readded_member_receives_only_what_it_missed() {
    for scheme in [MIRROR, Scheme::raid5(3), RAID6] {
        for (group_stripes, metadata_bytes) in [(1, 64), (8, 64), (64, 64), (8, 0)] {
            let mut bench = Bench::new(grouped(scheme, group_stripes), metadata_bytes, 31);
            bench.fill();
            bench.run_out();
            let full = bench.device(1).full_zones().len() as u64;
            assert!(full >= 5, "{full} zones");
            let device = bench.pull(1);
            bench.write(0, 3);
            bench.write(5, 16);
            bench.run_out();
            let before = written(&device);
            bench.events.clear();
            bench.reattach(1, device);
            bench.run_until(&returned(1));
            assert_eq!(bench.state(1), MemberState::Rebuilding);
            bench.run_until(&rebuilt(1));
            bench.run_out();
            let given = written(bench.device(1)) - before;
            assert!(given < full * 65 / 2, "{scheme:?} {group_stripes}: {given} blocks, it held {full} zones");
            bench.read_all();
            assert_eq!(bench.volume.volume().counters().reconstructed_blocks, 0, "it holds all of its part");
            bench.survives(0);
            bench.churn(200);
            bench.read_all();
        }
    }
}

#[test]
fn a_member_that_was_away_while_everything_was_rewritten_and_collected_brings_nothing_back() {
    for scheme in [MIRROR, Scheme::raid5(3), RAID6] {
        for (group_stripes, metadata_bytes) in [(1, 64), (8, 64), (8, 0)] {
            let mut bench = Bench::new(grouped(scheme, group_stripes), metadata_bytes, 32);
            bench.fill();
            let device = bench.pull(1);
            bench.churn(300);
            bench.fill();
            bench.churn(300);
            bench.run_out();
            bench.reattach(1, device);
            bench.churn(50);
            bench.run_until(&rebuilt(1));
            bench.read_all();
            bench.survives(0);
            bench.remount();
            bench.read_all();
        }
    }
}

#[test]
fn members_are_readded_in_turn_and_repeatedly() {
    let mut bench = Bench::new(grouped(RAID6, 8), 64, 33);
    bench.fill();
    for _ in 0..2 {
        let (first, second) = (bench.pull(0), bench.pull(3));
        bench.churn(60);
        bench.reattach(3, second);
        bench.churn(20);
        bench.reattach(0, first);
        while bench.volume.volume().is_degraded() {
            bench.churn(5);
        }
        bench.run_out();
    }
    bench.fail(1);
    bench.survives(4);
}

#[test]
fn a_crash_in_the_middle_leaves_a_member_that_is_caught_up_after_the_mount() {
    for scheme in [MIRROR, Scheme::raid5(3)] {
        for metadata_bytes in [64, 0] {
            let mut steps = 0;
            loop {
                let mut bench = Bench::new(grouped(scheme, 8), metadata_bytes, 34);
                bench.fill();
                let device = bench.pull(1);
                bench.churn(150);
                bench.run_out();
                bench.events.clear();
                bench.reattach(1, device);
                bench.steps(steps);
                let has_ended = bench.events.contains(&rebuilt(1));
                bench.remount();
                if bench.state(1) == MemberState::Failed {
                    // It was not recorded yet.
                    let mut device = bench.volume.replace(MemberIndex(1), None).expect("it is present");
                    device.reset.clear();
                    bench.reattach(1, device);
                }
                bench.run_out();
                assert_eq!(bench.state(1), MemberState::Active, "after {steps} steps");
                bench.read_all();
                bench.survives(0);
                if has_ended {
                    break;
                }
                steps += 1 + steps / 6;
            }
            assert!(steps > 50, "{steps} steps are too few to see anything");
        }
    }
}

#[test]
fn a_member_that_fails_while_it_catches_up_can_be_readded_again() {
    for steps in [0, 10, 40, 80, 120, 200] {
        let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 35);
        bench.fill();
        let device = bench.pull(2);
        bench.churn(100);
        bench.reattach(2, device);
        bench.steps(steps);
        let device = bench.pull(2);
        bench.run_out();
        bench.churn(100);
        bench.run_out();
        bench.events.clear();
        bench.reattach(2, device);
        bench.run_until(&rebuilt(2));
        bench.run_out();
        bench.survives(0);
    }
}

#[test]
fn no_zone_is_reset_before_all_members_have_recorded_the_rebuild() {
    let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 36);
    bench.fill();
    let mut device = bench.pull(1);
    bench.churn(200);
    bench.run_out();
    device.reset.clear();
    let epoch = bench.volume.volume().epoch();
    bench.reattach(1, device);
    while bench.device(1).reset.is_empty() {
        assert!(bench.step(), "there is something to be reset");
    }
    assert!(bench.volume.volume().epoch() > epoch, "it is recorded by then");
    bench.run_until(&rebuilt(1));
}

#[test]
fn a_device_that_is_not_the_member_is_refused_and_stays_as_it_was() {
    let refused = |prepare: &dyn Fn(&mut Bench) -> Slow| {
        let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 37);
        bench.fill();
        let device = prepare(&mut bench);
        let before = written(&device);
        bench.reattach(1, device);
        let error = refusal(&mut bench, 1).to_string();
        assert_eq!(written(bench.device(1)), before, "nothing was written: {error}");
        bench.read_all();
        error
    };
    let wiped = refused(&|bench: &mut Bench| {
        bench.pull(1);
        Slow::new(geometry(64), 1)
    });
    assert!(wiped.contains("no valid superblock of this volume found") && wiped.contains("replace"), "{wiped}");
    let other = refused(&|bench: &mut Bench| {
        bench.pull(1);
        Bench::new(config(MIRROR), 64, 99).volume.replace(MemberIndex(0), None).expect("it is present")
    });
    assert!(other.contains("member 0 of this volume"), "{other}");
    let replaced = refused(&|bench: &mut Bench| {
        let device = bench.pull(1);
        bench.replace(1);
        bench.run_until(&rebuilt(1));
        bench.fail(1);
        device
    });
    assert!(replaced.contains("another device has replaced it"), "{replaced}");
}

#[test]
fn a_member_that_was_used_alone_is_refused() {
    let mut bench = Bench::new(grouped(MIRROR, 8), 64, 38);
    bench.fill();
    let mut device = bench.pull(1);
    bench.churn(20);
    bench.run_out();
    // The other half is mounted alone, and written to.
    let alone = geometry(64);
    let options = crate::MountOptions::of([9; 16]);
    let volume = crate::Volume::mount(vec![None, Some(alone)], config(MIRROR).tuning, options).expect("a mount begins");
    device.ended_all();
    let mut other = crate::VolumeDevice::new(volume, vec![None, Some(device)]);
    let mut now = bench.now;
    while !other.volume().is_ready() {
        other.process(now);
        now = zonda_zoned::ZonedDevice::next_timeout(&other).unwrap_or(now).max(now);
    }
    let device = other.replace(MemberIndex(1), None).expect("it is present");
    bench.reattach(1, device);
    let error = refusal(&mut bench, 1);
    assert!(matches!(error, VolumeError::SplitBrain { .. }), "{error}");
    bench.read_all();
}

#[test]
fn segments_that_were_opened_under_the_numbers_of_collected_ones_are_not_taken_for_them() {
    for crashes in [false, true] {
        let mut bench = Bench::new(grouped(MIRROR, 8), 64, 39);
        // A segment for small requests, and some for large ones, which are filled.
        bench.write(300, 1);
        let fill = |bench: &mut Bench| {
            for start in (0..224).step_by(8) {
                bench.write(start, 8);
                bench.run_out();
            }
        };
        fill(&mut bench);
        bench.run_out();
        let zones = bench.device(1).full_zones();
        assert_eq!(zones.len(), 4, "these segments are full");
        let device = bench.pull(1);
        // Nothing in them is needed any more, and the last segment that a mount finds is the first.
        for start in (0..224).step_by(6) {
            bench.trim(start, 6);
        }
        bench.run_out();
        assert!(bench.device(0).full_zones().is_empty(), "they were collected");
        bench.remount();
        fill(&mut bench);
        bench.run_out();
        bench.events.clear();
        bench.reattach(1, device);
        if crashes {
            let before = written(bench.device(0));
            while written(bench.device(0)) == before {
                assert!(bench.step(), "it is recorded");
            }
            assert!(bench.device(1).reset.is_empty(), "its zones are unchanged");
            bench.remount();
            assert_eq!(bench.state(1), MemberState::Rebuilding);
        }
        bench.run_until(&rebuilt(1));
        assert_eq!(bench.device(1).reset.intersection(&zones).count(), 4, "its zones belong to other segments");
        bench.survives(0);
    }
}

#[test]
fn zones_in_which_a_drive_chose_another_order_than_the_table_has_after_a_mount_are_rebuilt() {
    let mut bench = Bench::new(grouped(MIRROR, 8), 64, 43);
    for lba in 0..200 {
        bench.write(lba, 1);
    }
    bench.run_out();
    let full = bench.device(1).full_zones().len();
    assert!(full >= 2, "{full} zones are full");
    let device = bench.pull(1);
    bench.run_out();
    bench.remount();
    bench.run_out();
    let before = written(&device);
    bench.events.clear();
    bench.reattach(1, device);
    bench.run_until(&rebuilt(1));
    assert!(written(bench.device(1)) - before > 60, "a zone at least is written");
    bench.read_all();
    assert_eq!(bench.volume.volume().counters().reconstructed_blocks, 0, "every block is in its place");
    bench.survives(0);
}

#[test]
fn the_fourth_failure_within_ten_minutes_is_flapping_and_an_operator_forgives_it() {
    let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 40);
    bench.fill();
    let timed_out = Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Timeout };
    let flapping = Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Flapping };
    for expected in [&timed_out, &timed_out, &timed_out, &flapping] {
        bench.device(1).is_unresponsive = true;
        bench.write(0, 1);
        bench.run_until(expected);
        let mut device = bench.volume.replace(MemberIndex(1), None).expect("it is present");
        assert_eq!(
            bench.volume.volume().status().members[1].failed,
            Some(match expected {
                Event::MemberFailed { reason, .. } => *reason,
                _ => unreachable!(),
            })
        );
        device.is_unresponsive = false;
        device.ended_all();
        bench.run_out();
        bench.volume.volume_mut().forgive_flapping(MemberIndex(if expected == &flapping { 1 } else { 0 }));
        bench.reattach(1, device);
        bench.run_until(&rebuilt(1));
        bench.run_out();
    }
    bench.device(1).is_unresponsive = true;
    bench.write(0, 1);
    bench.run_until(&timed_out);
}

#[test]
fn a_member_that_stops_answering_again_and_again_is_failed_unless_the_volume_needs_it() {
    for is_needed in [false, true] {
        let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 41);
        bench.fill();
        if is_needed {
            bench.fail(2);
            bench.run_out();
        }
        bench.events.clear();
        let since = bench.now;
        // For eight of ten seconds, which is less than the timeout.
        while bench.now.since(since) < Duration::from_secs(200) && bench.events.is_empty() {
            bench.device(1).pauses_until = Some(bench.now + Duration::from_secs(8));
            for _ in 0..20 {
                bench.write(0, 1);
                bench.wait(Duration::from_millis(500));
            }
        }
        let took = bench.now.since(since).as_secs_f64();
        if !is_needed {
            let flapping = Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Flapping };
            assert_eq!(bench.events, [flapping]);
            assert!((30.0..70.0).contains(&took), "after {took} s");
        } else {
            assert_eq!(bench.events, [], "the volume needs it");
        }
        bench.run_out();
        bench.read_all();
    }
}

#[test]
fn a_member_that_stops_answering_is_reported_as_stalled_until_it_answers() {
    let mut bench = Bench::new(grouped(Scheme::raid5(3), 8), 64, 41);
    bench.fill();
    let stalled = |bench: &Bench| -> Vec<bool> {
        bench.volume.volume().status().members.iter().map(|member| member.is_stalled).collect()
    };
    bench.device(1).pauses_until = Some(bench.now + Duration::from_secs(5));
    bench.write(0, 1);
    bench.wait(Duration::from_millis(500));
    assert_eq!(stalled(&bench), [false; 4], "half a second is no stall");
    for _ in 0..3 {
        bench.write(0, 1);
        bench.wait(Duration::from_secs(1));
    }
    assert_eq!(stalled(&bench), [false, true, false, false]);
    bench.wait(Duration::from_secs(3));
    bench.run_out();
    assert_eq!(stalled(&bench), [false; 4], "it has answered, and nothing is in flight");
}

#[test]
fn an_unsuitable_geometry_and_a_member_that_has_not_failed_are_refused_at_once() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 42);
    let now = bench.now;
    let volume = bench.volume.volume_mut();
    let error = volume.readd_member(now, MemberIndex(1), geometry(64)).expect_err("it is active");
    assert!(error.to_string().contains("is in use"), "{error}");
    let device = bench.pull(1);
    let volume = bench.volume.volume_mut();
    let smaller = Geometry { zone_count: 20, ..geometry(64) };
    let error = volume.readd_member(now, MemberIndex(1), smaller).expect_err("it is another device");
    assert!(error.to_string().contains("does not suit"), "{error}");
    bench.reattach(1, device);
    let volume = bench.volume.volume_mut();
    let error = volume.readd_member(now, MemberIndex(1), geometry(64)).expect_err("it is being re-added");
    assert!(error.to_string().contains("being re-added already"), "{error}");
    bench.run_until(&rebuilt(1));
}
