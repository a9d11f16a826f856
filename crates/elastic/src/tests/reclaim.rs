//! Groups of namespaces that are not written any more are copied into narrower ones.

use zonda_zoned::{
    Blocks, Completion, Duration, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction,
    ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::drive::Fault;
use super::rig::{Rig, bytes, data};
use crate::PoolOptions;

type IsOne = fn(&Operation) -> bool;

/// Blocks of the v-zone that is copied.
const BLOCKS: u64 = 33;

struct Tenants {
    rig: Rig,
    quiet: NamespaceId,
    busy: NamespaceId,
}

fn content(block: u64) -> u8 {
    1 + (block % 250) as u8
}

impl Tenants {
    /// Two namespaces with 8 essentials and 12 spares each, and 4 active v-zones. The first has
    /// written a part of a group of width 4.
    fn new() -> Tenants {
        let drive = Geometry {
            zone_size_blocks: Blocks(32),
            zone_capacity_blocks: Blocks(24),
            zone_count: 100,
            max_active_zones: Some(43),
            max_open_zones: Some(43),
            descriptor_extension_bytes: 0,
            max_transfer_blocks: Blocks(5),
            ..Geometry::tiny()
        };
        let options = PoolOptions { zones_per_vzone: Some(8), essential_zones: Some(16), width_max: Some(8) };
        let mut rig = Rig::new(drive, options);
        let (quiet, busy) = (rig.create("quiet", 4, 4), rig.create("busy one", 4, 4));
        let mut tenants = Tenants { rig, quiet, busy };
        tenants.write(0..BLOCKS);
        assert_eq!(tenants.widths(), [4]);
        tenants
    }

    fn write(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            let payload = bytes(&[content(block)]);
            let written =
                self.rig.execute(self.quiet, Operation::Write { start: Lba(block), blocks: Blocks(1), payload });
            assert_eq!(written.status, Status::Success, "block {block}");
        }
    }

    fn widths(&mut self) -> Vec<u32> {
        let pool = self.rig.device().pool().expect("it is open");
        pool.group_widths(self.quiet, ZoneIndex(0))
    }

    fn reclaimed(&mut self) -> u64 {
        self.rig.device().pool().expect("it is open").reclaimed_groups()
    }

    /// A second, in which the other namespace opens a group.
    fn second(&mut self) -> Vec<Completion> {
        self.rig.now += Duration::from_secs(1);
        let target = ZoneTarget::Zone(Lba(0));
        self.rig.submit(self.busy, Operation::ManageZones { action: ZoneAction::Reset, target });
        let operation = Operation::Write { start: Lba(0), blocks: Blocks(1), payload: data(1, 9) };
        self.rig.submit(self.busy, operation);
        let ended = self.rig.quiesce();
        self.rig.check();
        ended
    }

    /// So long that a group is reclaimed.
    fn wait(&mut self) {
        for _ in 0..6 {
            let ended = self.second();
            assert!(ended.iter().all(|completion| completion.status.is_success()), "{ended:?}");
        }
    }

    fn compare(&mut self, blocks: u64) {
        let table = self.rig.device().pool().expect("it is open").table(self.quiet).expect("it exists");
        let zone = table.zone(ZoneIndex(0));
        assert!(zone.state.is_active(), "{:?}", zone.state);
        assert_eq!(zone.write_pointer_blocks.0, blocks);
        for block in 0..blocks {
            let read = self.rig.execute(self.quiet, Operation::Read { start: Lba(block), blocks: Blocks(1) });
            let Outcome::Data(Payload::Bytes(buffer)) = read.outcome else { panic!("block {block}: {read:?}") };
            assert_eq!(buffer.data[0], content(block), "block {block}");
        }
    }

    fn states_of(&mut self, zones: &[ZoneIndex]) -> Vec<ZoneState> {
        zones.iter().map(|zone| self.rig.drive().state(*zone)).collect()
    }
}

#[test]
fn the_group_of_a_namespace_that_is_not_written_is_copied_and_its_spares_are_lent() {
    let mut tenants = Tenants::new();
    let before = tenants.rig.zones_of(tenants.quiet, 0);
    tenants.wait();
    assert_eq!((tenants.widths(), tenants.reclaimed()), (vec![2, 2], 1), "33 blocks in groups of 28");
    tenants.compare(BLOCKS);
    assert!(tenants.states_of(&before).iter().all(|state| *state != ZoneState::Full), "the old zones were reset");
    let pool = tenants.rig.device().pool().unwrap();
    let share = pool.share(tenants.quiet).unwrap();
    assert_eq!((share.spares_used, share.spares_lent), (0, 12), "{share:?}");
    // It can be written from there, after a mount too.
    tenants.write(BLOCKS..BLOCKS + 5);
    tenants.rig.mount_again();
    tenants.compare(BLOCKS + 5);
    let capacity = tenants.rig.device().geometry(tenants.quiet).zone_capacity_blocks.0;
    tenants.write(BLOCKS + 5..capacity);
    assert_eq!(tenants.widths().iter().sum::<u32>(), 8, "as many zones as before");
}

#[test]
fn a_group_without_blocks_is_dropped() {
    let mut tenants = Tenants::new();
    tenants.write(BLOCKS..56);
    // The next group is recorded, and a block of it is lost with the power.
    tenants.rig.drive().completions_left = 0;
    tenants.rig.mount_again();
    tenants.wait();
    tenants.compare(56);
}

#[test]
fn while_no_other_namespace_could_use_the_spares_nothing_is_copied() {
    let mut tenants = Tenants::new();
    for _ in 0..10 {
        tenants.rig.now += Duration::from_secs(1);
        tenants.rig.quiesce();
    }
    assert_eq!((tenants.widths(), tenants.reclaimed()), (vec![4], 0));
}

#[test]
fn a_namespace_that_is_written_now_and_then_is_not_frozen() {
    let mut tenants = Tenants::new();
    for block in BLOCKS..BLOCKS + 8 {
        tenants.second();
        tenants.second();
        tenants.write(block..block + 1);
    }
    assert_eq!((tenants.widths(), tenants.reclaimed()), (vec![4], 0));
}

/// Runs until the drive stops after so many completions; returns whether that was within the run.
fn stop_after(tenants: &mut Tenants, completions: usize) -> bool {
    tenants.rig.drive().completions_left = completions;
    for _ in 0..6 {
        tenants.second();
    }
    tenants.rig.drive().completions_left == 0
}

/// Completions of the drive in a run with a copy, and in its first part without one.
const COMPLETIONS: std::ops::Range<usize> = 30..400;

#[test]
fn a_crash_at_any_point_leaves_the_old_group_or_the_copy() {
    let (mut old, mut new) = (0, 0);
    for completions in COMPLETIONS {
        for is_lost in [false, true] {
            let mut tenants = Tenants::new();
            let is_stopped = stop_after(&mut tenants, completions);
            // What was flushed stays: the host had its blocks acknowledged, and a mount flushes.
            tenants.rig.mount_after(|drive| {
                if is_lost {
                    drive.lose_power(|zone, flushed, written| if zone.0 % 2 == 0 { flushed } else { written });
                } else {
                    drive.power_cycle();
                }
            });
            tenants.rig.check();
            let found = tenants.widths();
            let pointer = tenants.rig.device().pool().unwrap().table(tenants.quiet).unwrap().zone(ZoneIndex(0));
            let stands = pointer.write_pointer_blocks.0;
            match found.as_slice() {
                [4] => old += 1,
                [2, 2] => new += 1,
                _ => assert!(is_lost && stands < BLOCKS, "{completions}: {found:?}"),
            }
            // The host has not flushed what it has written: only a copy is flushed for sure.
            if !is_lost || found == [2, 2] {
                tenants.compare(BLOCKS);
            }
            if !is_stopped {
                assert!(old > 20 && new > 20, "{old} old, {new} new");
                return;
            }
        }
    }
    panic!("the run has more completions");
}

#[test]
fn a_write_ends_the_copy_and_takes_its_place() {
    let (mut ended, mut after) = (0, 0);
    for completions in COMPLETIONS {
        let mut tenants = Tenants::new();
        let is_stopped = stop_after(&mut tenants, completions);
        tenants.rig.submit(
            tenants.quiet,
            Operation::Write { start: Lba(BLOCKS), blocks: Blocks(1), payload: bytes(&[content(BLOCKS)]) },
        );
        tenants.rig.drive().completions_left = usize::MAX;
        tenants.rig.quiesce();
        tenants.rig.check();
        tenants.compare(BLOCKS + 1);
        if tenants.reclaimed() == 0 {
            ended += 1;
        } else {
            after += 1;
        }
        tenants.rig.mount_again();
        tenants.compare(BLOCKS + 1);
        if !is_stopped {
            assert!(ended > 20 && after > 5, "{ended} before the end of the copy, {after} after it");
            return;
        }
    }
    panic!("the run has more completions");
}

#[test]
fn an_error_during_the_copy_ends_it_and_the_old_group_stays() {
    let is_read = |operation: &Operation| matches!(operation, Operation::Read { .. });
    // Only a copy writes several blocks at once here.
    let is_write = |operation: &Operation| matches!(operation, Operation::Write { blocks, .. } if blocks.0 > 1);
    let faults: [(IsOne, Status); 2] = [(is_read, Status::UnrecoveredReadError), (is_write, Status::InternalError)];
    for (is_one, status) in faults {
        for number in 0..8 {
            let mut tenants = Tenants::new();
            let left = std::cell::Cell::new(number);
            let matches = move |operation: &Operation| {
                let is_it = is_one(operation) && left.get() == 0;
                left.set(left.get() - i32::from(is_one(operation)));
                is_it
            };
            tenants.rig.drive().faults.push(Fault { matches: Box::new(matches), times: 1, status });
            tenants.wait();
            tenants.compare(BLOCKS);
            assert_eq!((tenants.widths(), tenants.reclaimed()), (vec![4], 0), "{status}, {number}");
            let pool = tenants.rig.device().pool().unwrap();
            assert_eq!(pool.zone_counts().resetting, 0, "the zones of the copy were reset");
            tenants.rig.mount_again();
            tenants.compare(BLOCKS);
            // It is not tried again before the next write; that begins a new time without writes.
            tenants.write(BLOCKS..BLOCKS + 1);
            tenants.wait();
            tenants.compare(BLOCKS + 1);
            assert_eq!(tenants.reclaimed(), 1);
        }
    }
}

#[test]
fn a_namespace_can_be_deleted_while_its_group_is_copied() {
    for completions in COMPLETIONS.step_by(3) {
        let mut tenants = Tenants::new();
        let is_stopped = stop_after(&mut tenants, completions);
        let (now, quiet) = (tenants.rig.now, tenants.quiet);
        let deleted = tenants.rig.device().delete_namespace(now, quiet);
        tenants.rig.drive().completions_left = usize::MAX;
        tenants.rig.quiesce();
        tenants.rig.check();
        if deleted.is_ok() {
            assert!(tenants.rig.device().pool().unwrap().share(quiet).is_none());
        }
        if !is_stopped {
            return;
        }
    }
    panic!("the run has more completions");
}

#[test]
fn an_operator_sees_how_far_a_copy_is() {
    let mut seen = Vec::new();
    for completions in COMPLETIONS {
        let mut tenants = Tenants::new();
        let is_stopped = stop_after(&mut tenants, completions);
        let activity = tenants.rig.device().activity().expect("it is open");
        assert!(!activity.is_reopening && !activity.lacks_space && activity.doubtful_zones == 0, "{activity:?}");
        if let Some(progress) = activity.reclaim {
            assert_eq!((progress.namespace, progress.zone, progress.blocks.0), (tenants.quiet, ZoneIndex(0), BLOCKS));
            seen.push(progress.copied.0);
        }
        if !is_stopped {
            assert_eq!(activity.reclaim, None, "it is complete");
            break;
        }
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&BLOCKS)), "{seen:?}");
}
