//! Takeovers from directories that are older than the volume, and owners that lose members to them
//! briefly.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use zonda_initiator::Holder;
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Duration, Lba, NamespaceId, Operation, Payload, Prng,
    Status, ZonedDevice,
};

use super::lease::LEASE;
use super::owner_tests::{Bench, MIRROR, add_spare, add_spare_as, fail, fail_member};
use super::{TakeoverOptions, VOLUME_FILE, VolumeDrive, VolumeState};
use crate::{DriveError, mock};

/// A volume whose first member has been replaced by a spare since the second directory was copied.
fn bench_with_older_copy(scheme: Scheme) -> Bench {
    let mut bench = Bench::of(scheme);
    let spare = add_spare(&mut bench);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    fail_member(&mut bench);
    assert!(bench.log.contains("the spare ../spare replaces member 0"), "{}", bench.log);
    assert_eq!(state(&bench), VolumeState::Healthy);
    bench.drives.push(spare);
    bench
}

pub(super) fn state(bench: &Bench) -> VolumeState {
    bench.volumes[0].as_ref().expect("it is open").report().state
}

fn holders(bench: &Bench) -> Vec<Option<HostId>> {
    bench.drives.iter().map(|drive| mock::holder(drive).map(|holder| holder.host)).collect()
}

/// The directories that the drives are reserved for.
fn owners(bench: &Bench) -> Vec<Option<[u8; 8]>> {
    holders(bench).into_iter().map(|holder| holder.map(place)).collect()
}

fn take_over(bench: &Bench, directory: &str) -> Result<super::TakeoverReport, DriveError> {
    VolumeDrive::take_over(&bench.above.path().join(directory), TakeoverOptions::default(), &bench.ring)
}

#[test]
fn a_takeover_from_a_directory_that_is_older_than_a_change_of_members_does_not_stop_the_owner() {
    let may_continue = "another server may continue with it: too few of its members 0";
    let cannot_be_used = "it could not be used from here: too few of its members 0, 2, 3 can be reserved";
    for (scheme, unreachable, expected) in [
        (Scheme::raid5(2), vec![2], may_continue),
        (MIRROR, vec![], may_continue),
        (Scheme::raid5(3), vec![3], cannot_be_used),
    ] {
        let mut bench = bench_with_older_copy(scheme);
        let before = holders(&bench);
        bench.cut_off(1, &unreachable);
        let error = bench.try_to_take_over(1, false).expect_err("the owner may continue with the spare");
        assert!(error.message.contains(expected), "{error}");
        assert!(error.help.contains("a newer copy of its directory"), "{error}");
        assert_eq!(holders(&bench), before, "all reservations are restored");
        assert_eq!(bench.write(0, 1, 2), Status::Success);
        bench.run(0, Duration::from_secs(10));
        assert!(!bench.log.contains("is no longer served"), "{}", bench.log);
        assert_eq!((bench.read(0, 0), bench.read(0, 1), state(&bench)), (Ok(1), Ok(2), VolumeState::Healthy));
        let file = fs::read_to_string(bench.directory(1).join(VOLUME_FILE)).expect("it can be read");
        assert!(!file.contains("stays_reserved"), "{file}");
    }
}

/// One more member than the volume can lose has been replaced since the second directory was
/// copied.
fn bench_with_much_older_copy(scheme: Scheme) -> Bench {
    let mut bench = Bench::of(scheme);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    for member in 0..=usize::from(scheme.parity) {
        let spare = add_spare_as(&mut bench, &format!("spare{member}"));
        fail(&mut bench, member);
        assert_eq!(state(&bench), VolumeState::Healthy, "{}", bench.log);
        bench.drives.push(spare);
    }
    bench
}

#[test]
fn a_paused_takeover_does_not_count_drives_of_members_that_were_replaced() {
    let raid6 = Scheme { level: Level::Raid6, data: 2, parity: 2 };
    for scheme in [Scheme::raid5(2), raid6] {
        for paused_at in 0..24 {
            let mut bench = bench_with_much_older_copy(scheme);
            let before = holders(&bench);
            assert_eq!(before[0], None, "a replaced member is not reserved");
            mock::add_wire(Prng::new(1), false);
            let iterations = Cell::new(0);
            bench.ring.set_wait_hook(move |until| {
                iterations.set(iterations.get() + 1);
                if iterations.get() == paused_at + 1 { until + Duration::from_secs(3) } else { until }
            });
            let error =
                bench.try_to_take_over(1, false).expect_err("the owner has members that are not in this directory");
            assert!(error.message.starts_with("the volume is not taken over, since another server"), "{error}");
            bench.ring.set_wait_hook(|until| until);
            assert_eq!(holders(&bench), before, "all reservations are restored: {scheme} {paused_at}");
            assert_eq!(bench.write(0, 1, 2), Status::Success, "{}", bench.log);
        }
    }
}

#[test]
fn a_takeover_from_an_older_directory_that_reaches_enough_members_succeeds() {
    let mut bench = bench_with_older_copy(Scheme::raid5(2));
    let report = bench.try_to_take_over(1, false).expect("without two of three members the owner cannot continue");
    assert!(report.is_enough, "{report:?}");
    bench.open(1).expect("two of three are enough");
    assert_eq!(bench.read(1, 0), Ok(1));
    assert_eq!(bench.write(0, 1, 2), Status::InternalError);
}

#[test]
fn a_takeover_from_an_older_directory_counts_a_spare_that_has_become_a_member() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    fs::copy(bench.directory(0).join(VOLUME_FILE), bench.directory(1).join(VOLUME_FILE)).expect("there is space");
    fail_member(&mut bench);
    assert_eq!((bench.write(0, 0, 1), state(&bench)), (Status::Success, VolumeState::Healthy));
    bench.cut_off(1, &[2]);
    bench.take_over(1);
    assert!(mock::holder(&spare).is_some());
    bench.open(1).expect("the spare and member 1 are enough");
    assert_eq!(bench.read(1, 0), Ok(1));
}

#[test]
fn a_refused_takeover_keeps_the_reservations_of_an_earlier_takeover_from_another_directory() {
    let mut bench = Bench::of(MIRROR);
    let older = bench.above.path().join("older");
    fs::create_dir(&older).expect("there is space");
    fs::copy(bench.directory(0).join(VOLUME_FILE), older.join(VOLUME_FILE)).expect("there is space");
    let spare = add_spare(&mut bench);
    bench.drives.push(spare);
    fail_member(&mut bench);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    fs::copy(bench.directory(0).join(VOLUME_FILE), bench.directory(1).join(VOLUME_FILE)).expect("there is space");
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.close(1);
    let before = holders(&bench);
    take_over(&bench, "older").expect_err("the spare is not in its directory");
    assert_eq!(holders(&bench), before);
    // The first server was paused all the time.
    assert_eq!(bench.read(0, 9), Err(Status::InternalError), "{}", bench.log);
    bench.open(1).expect("they are reserved for this directory");
    assert_eq!(bench.read(1, 9), Ok(5));
}

#[test]
fn a_takeover_that_reaches_too_few_members_keeps_those_reserved_for_its_directory() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.close(1);
    let before = owners(&bench);
    bench.cut_off(1, &[1]);
    let error = bench.try_to_take_over(1, false).expect_err("another server may continue with member 1");
    assert!(error.message.starts_with("another server may continue with members that cannot be reserved"), "{error}");
    // The first server was paused all the time, and reaches the same members as the second one when
    // it wakes.
    bench.cut_off(0, &[1]);
    bench.run(0, LEASE + LEASE);
    let answered = (bench.write(0, 1, 2), bench.read(0, 9));
    let refused = Status::InternalError;
    assert_eq!(answered, (refused, Err(refused)), "block 9 is not empty any more: {}", bench.log);
    assert_eq!(owners(&bench), before);
    bench.reconnect(1);
    bench.open(1).expect("they are reserved for this directory");
    assert_eq!(bench.read(1, 9), Ok(5));
}

#[test]
fn a_takeover_does_not_count_an_empty_spare_as_a_member() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    bench.drives.push(spare);
    fs::copy(bench.directory(0).join(VOLUME_FILE), bench.directory(1).join(VOLUME_FILE)).expect("there is space");
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    // During the takeover each side loses the members that the other one reaches, and the old owner
    // uses its spare.
    let (drives, now) = (bench.drives.clone(), bench.ring.now());
    let owner = Rc::new(RefCell::new(bench.volumes[0].take().expect("it is open")));
    let old_owner = Rc::clone(&owner);
    once_reserved(&bench, 0, move || {
        [1, 2].iter().for_each(|at: &usize| mock::set_cut_off(0, &drives[*at], true));
        [0, 3].iter().for_each(|at: &usize| mock::set_cut_off(1, &drives[*at], true));
        (0..3).for_each(|_| mock::as_program(0, || old_owner.borrow_mut().poll(now, &mut CompletionQueue::new())));
    });
    assert!(bench.take_over(1).is_enough, "without two of three members the owner cannot continue");
    bench.ring.set_wait_hook(|until| until);
    bench.volumes[0] = Rc::into_inner(owner).map(RefCell::into_inner);
    bench.run(0, Duration::from_secs(10));
    assert_eq!(state(&bench), VolumeState::TakenOver, "{}", bench.log);
    bench.open(1).expect("two of three are enough");
    bench.volumes[0] = None;
    bench.reconnect(0);
    let error = bench.try_to_take_over(0, false).expect_err("the present member 1 is not in its directory");
    assert!(error.message.contains("it could not be used from here: too few of its members 1"), "{error}");
    assert_eq!((bench.write(1, 1, 2), bench.read(1, 0)), (Status::Success, Ok(1)), "{}", bench.log);
}

#[test]
fn a_spare_in_an_older_directory_does_not_count_as_an_unknown_member() {
    let mut bench = bench_with_older_copy(Scheme::raid5(2));
    let unused = bench.above.path().join("unused");
    mock::add(&unused, &mock::geometry(32));
    mock::set_remote(&unused);
    let file = bench.directory(1).join(VOLUME_FILE);
    let text = fs::read_to_string(&file).expect("it can be read").replace("spare = []\n", "");
    fs::write(&file, text + "\n[[spare]]\nat = \"../unused\"\n").expect("there is space");
    let before = holders(&bench);
    bench.cut_off(1, &[2]);
    let error = bench.try_to_take_over(1, false).expect_err("the owner may continue with members 0 and 2");
    assert!(error.message.contains("another server may continue with it: too few of its members 0, 2"), "{error}");
    assert_eq!((holders(&bench), mock::holder(&unused)), (before, None), "all reservations are restored");
    assert_eq!(bench.write(0, 1, 2), Status::Success);
}

#[test]
fn a_takeover_of_a_volume_without_redundancy_is_refused_unless_it_reaches_all_members() {
    let mut bench = Bench::of(Scheme { level: Level::Raid0, data: 3, parity: 0 });
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let before = holders(&bench);
    bench.cut_off(1, &[1]);
    let error = bench.try_to_take_over(1, false).expect_err("no server could use it then");
    assert!(error.message.starts_with("the volume could not be used from here, since too many members"), "{error}");
    assert_eq!(holders(&bench), before);
    assert_eq!((bench.write(0, 1, 2), bench.log.as_str()), (Status::Success, ""), "its owner is not affected");
}

/// Another host preempts the reservation of a drive, and hosts of the volume write.
pub(super) fn seize_during_write(bench: &mut Bench, drive: usize) -> zonda_initiator::Holder {
    let (path, now): (PathBuf, _) = (bench.drives[drive].clone(), bench.ring.now());
    let holder = mock::holder(&path).expect("it is reserved");
    mock::seize(&path);
    for lba in 0..4 {
        let buffer = BlockBuffer { data: vec![7; 512].into(), metadata: Vec::new().into() };
        let payload = Payload::Bytes(Box::new(buffer));
        let operation = Operation::Write { start: Lba(lba), blocks: Blocks(1), payload };
        let command = Command::new(CommandId(1_000_000 + lba), NamespaceId::FIRST, operation);
        bench.volumes[0].as_mut().expect("it is open").submit(now, command).expect("there is a queue slot");
    }
    holder
}

#[test]
fn an_owner_continues_with_a_member_whose_reservation_was_preempted_and_restored() {
    for scheme in [Scheme::raid5(2), MIRROR] {
        let mut bench = Bench::of(scheme);
        let holder = seize_during_write(&mut bench, 1);
        let mut ended = bench.run(0, Duration::from_secs(1));
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(bench.run(0, Duration::from_secs(20)));
        assert_eq!(ended.len(), 4, "{}", bench.log);
        assert!(ended.iter().all(|ended| ended.status == Status::Success), "{ended:?} {}", bench.log);
        assert!(bench.log.contains("member 1 (../d1) was briefly reserved by another host"), "{}", bench.log);
        assert_eq!(state(&bench), VolumeState::Healthy, "{}", bench.log);
        assert_eq!(mock::holder(&bench.drives[1]).map(|now| now.host), Some(holder.host));
        for lba in 0..4 {
            assert_eq!(bench.read(0, lba), Ok(7));
        }
    }
}

#[test]
fn a_degraded_volume_waits_for_a_preempted_member_and_continues_with_it() {
    let mut bench = Bench::new();
    fail_member(&mut bench);
    assert_eq!((bench.write(0, 0, 1), state(&bench)), (Status::Success, VolumeState::Degraded));
    let holder = seize_during_write(&mut bench, 1);
    let ended = bench.run(0, Duration::from_secs(1));
    assert_eq!(ended, [], "they wait");
    mock::set_holder(&bench.drives[1], Some(holder));
    let ended = bench.run(0, Duration::from_secs(20));
    assert_eq!(ended.len(), 4, "{}", bench.log);
    assert!(ended.iter().all(|ended| ended.status == Status::Success), "{ended:?} {}", bench.log);
    assert_eq!((bench.read(0, 3), state(&bench)), (Ok(7), VolumeState::Degraded), "{}", bench.log);
}

#[test]
fn an_owner_waits_long_for_a_member_that_is_not_enough_for_another_owner() {
    for (scheme, is_degraded) in [(Scheme::raid5(2), false), (Scheme::raid5(2), true), (Scheme::raid5(3), false)] {
        let mut bench = Bench::of(scheme);
        if is_degraded {
            fail_member(&mut bench);
        }
        let before = state(&bench);
        let holder = seize_during_write(&mut bench, 1);
        let mut ended = bench.run(0, Duration::from_secs(15));
        assert_ne!(state(&bench), VolumeState::TakenOver, "{}", bench.log);
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(bench.run(0, Duration::from_secs(5)));
        assert_eq!(ended.len(), 4, "{}", bench.log);
        assert!(ended.iter().all(|ended| ended.status == Status::Success), "{ended:?} {}", bench.log);
        assert_eq!((bench.read(0, 3), state(&bench)), (Ok(7), before), "{}", bench.log);
    }
}

#[test]
fn an_owner_does_not_wait_long_while_too_few_members_confirm() {
    let mut bench = Bench::of(Scheme::raid5(2));
    seize_during_write(&mut bench, 1);
    // The holder of member 1 may have reserved this one, too.
    bench.cut_off(0, &[2]);
    mock::as_program(0, || bench.run(0, LEASE + LEASE));
    assert_eq!(state(&bench), VolumeState::TakenOver, "{}", bench.log);
}

#[test]
fn a_volume_is_suspended_while_io_waits_for_a_member_that_another_host_has_reserved() {
    for scheme in [MIRROR, Scheme::raid5(2)] {
        let mut bench = Bench::of(scheme);
        let holder = seize_during_write(&mut bench, 1);
        bench.run(0, Duration::from_secs(1));
        let report = bench.volumes[0].as_ref().expect("it is open").report();
        assert_eq!(report.state, VolumeState::Suspended, "{scheme}");
        let states: Vec<&str> = report.members.iter().map(|member| member.state.as_str()).collect();
        assert_eq!(states[..2], ["active", "suspended"], "{scheme}");
        assert_eq!(report.members[1].suspended.as_deref(), Some("is reserved by another host"));
        mock::set_holder(&bench.drives[1], Some(holder));
        bench.run(0, Duration::from_secs(5));
        assert_eq!(state(&bench), VolumeState::Healthy, "{}", bench.log);
    }
}

#[test]
fn an_owner_whose_member_is_not_restored_loses_the_volume() {
    for (scheme, most) in [(MIRROR, LEASE), (Scheme::raid5(2), Duration::from_secs(19))] {
        let mut bench = Bench::of(scheme);
        seize_during_write(&mut bench, 1);
        bench.run(0, most);
        assert_ne!(state(&bench), VolumeState::TakenOver, "{}", bench.log);
        bench.run(0, LEASE);
        must_have_lost(&mut bench);
    }
}

fn must_have_lost(bench: &mut Bench) {
    assert_eq!(state(bench), VolumeState::TakenOver, "{}", bench.log);
    assert!(bench.log.contains("is no longer served"), "{}", bench.log);
    assert_eq!(bench.write(0, 0, 1), Status::InternalError);
}

#[test]
fn an_owner_all_of_whose_members_are_preempted_loses_the_volume_at_once() {
    let mut bench = Bench::new();
    bench.drives.iter().for_each(|drive| mock::seize(drive));
    bench.run(0, LEASE);
    assert_eq!(state(&bench), VolumeState::TakenOver, "{}", bench.log);
}

/// Calls `happens` as soon as a takeover from the second directory has reserved this drive, before
/// the next one. It is paused meanwhile.
fn once_reserved(bench: &Bench, drive: usize, happens: impl Fn() + 'static) {
    mock::add_wire(Prng::new(1), false);
    let (path, before) = (bench.drives[drive].clone(), mock::holder(&bench.drives[drive]));
    let has_happened = Cell::new(false);
    bench.ring.set_wait_hook(move |until| {
        if mock::holder(&path) != before && !has_happened.replace(true) {
            happens();
            return until + LEASE + LEASE;
        }
        until
    });
}

/// A third directory, like the second one.
fn third_directory(bench: &Bench) -> PathBuf {
    let third = bench.above.path().join("c");
    fs::create_dir(&third).expect("there is space");
    fs::copy(bench.directory(0).join(VOLUME_FILE), third.join(VOLUME_FILE)).expect("there is space");
    third
}

#[test]
fn a_takeover_that_was_paused_while_another_one_succeeded_does_not_preempt_the_new_owner() {
    for (scheme, paused_at) in [(Scheme::raid5(2), 0), (Scheme::raid5(2), 1), (MIRROR, 0), (Scheme::raid5(3), 2)] {
        let mut bench = Bench::of(scheme);
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        let third = third_directory(&bench);
        let taken = third.clone();
        once_reserved(&bench, paused_at, move || {
            let ring = Ring::simulated().expect("there is an event loop");
            let other = VolumeDrive::take_over(&taken, TakeoverOptions::default(), &ring);
            assert!(other.expect("it is the newest").is_enough);
        });
        let error = bench.try_to_take_over(1, false).expect_err("it was preempted");
        assert!(error.message.starts_with("preempted by another takeover: /"), "{error}");
        bench.ring.set_wait_hook(|until| until);
        let holders = holders(&bench);
        assert!(holders[0].is_some() && holders.iter().all(|holder| holder.map(place) == holders[0].map(place)));
        let other = VolumeDrive::open(&third, &bench.ring).expect("it owns the volume");
        assert_eq!(other.report().state, VolumeState::Healthy);
    }
}

fn place(host: HostId) -> [u8; 8] {
    host.0[..8].try_into().expect("it has as many bytes")
}

#[test]
fn a_takeover_that_began_before_another_one_does_not_preempt_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let (third, drives) = (third_directory(&bench), bench.drives.clone());
    // The other one has reserved some of the drives that this one has yet to preempt, and continues
    // later.
    let newer = mock::holder(&drives[2])
        .map(|holder| Holder { host: HostId([0xcc; 16]), key: ReservationKey(holder.key.0 + 7) });
    let before = holders(&bench);
    let contested = drives[2].clone();
    once_reserved(&bench, 1, move || mock::set_holder(&contested, newer));
    let error = bench.try_to_take_over(1, false).expect_err("it was preempted");
    assert!(error.message.contains("/d2 is now reserved by another server of this volume"), "{error}");
    assert_eq!(holders(&bench), [before[0], before[1], newer.map(|holder| holder.host)]);
    bench.ring.set_wait_hook(|until| until);
    let other = VolumeDrive::take_over(&third, TakeoverOptions::default(), &bench.ring);
    assert!(other.expect("no other owner is newer").is_enough);
}

#[test]
fn exactly_one_of_two_concurrent_takeovers_succeeds() {
    for scheme in [Scheme::raid5(2), Scheme::raid5(3)] {
        for begins_at in 0..scheme.members() {
            for unreachable in 0..scheme.members() {
                let mut bench = Bench::of(scheme);
                assert_eq!(bench.write(0, 0, 1), Status::Success);
                let third = third_directory(&bench);
                bench.cut_off(1, &[unreachable]);
                let other: Rc<RefCell<Option<bool>>> = Rc::default();
                let ended = Rc::clone(&other);
                let begins_at = if begins_at == unreachable { (begins_at + 1) % scheme.members() } else { begins_at };
                once_reserved(&bench, begins_at, move || {
                    let ring = Ring::simulated().expect("there is an event loop");
                    let taken =
                        mock::as_program(2, || VolumeDrive::take_over(&third, TakeoverOptions::default(), &ring));
                    *ended.borrow_mut() = Some(taken.is_ok_and(|report| report.is_enough));
                });
                let own = bench.try_to_take_over(1, false).is_ok_and(|report| report.is_enough);
                let other = other.borrow().expect("it has ended");
                assert!(own != other, "{scheme} {begins_at} {unreachable}: {own} {other}");
            }
        }
    }
}

#[test]
fn a_takeover_that_reserves_too_few_members_restores_their_reservations() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let before = holders(&bench);
    let (unreachable, waits_until) = (bench.drives[1].clone(), bench.ring.now() + LEASE);
    bench.ring.set_wait_hook(move |until| {
        mock::set_cut_off(1, &unreachable, until >= waits_until);
        until
    });
    let report = bench.try_to_take_over(1, false).expect("it was reached at first");
    assert!(!report.is_enough, "{report:?}");
    assert_eq!(holders(&bench)[0], before[0], "{report:?}");
    assert_eq!(
        report.drives[0].error.as_deref(),
        Some("its previous reservation was restored, since too few members could be reserved")
    );
}

#[test]
fn a_member_that_a_takeover_did_not_reach_is_preempted_when_it_is_back() {
    for is_served_without in [false, true] {
        let mut bench = Bench::new();
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        bench.cut_off(1, &[2]);
        assert!(bench.take_over(1).is_enough, "without two of three members the owner cannot continue");
        if is_served_without {
            bench.open(1).expect("two of three are enough");
            assert_eq!(bench.write(1, 1, 2), Status::Success);
            bench.volumes[1] = None;
        }
        bench.reconnect(1);
        bench.open(1).expect("the holder of the member has lost the volume");
        assert_eq!((bench.read(1, 0), bench.write(1, 2, 3)), (Ok(1), Status::Success));
        bench.run(1, Duration::from_secs(20));
        assert!(
            bench.log.contains("member 2 (../d2) was still reserved by another server of this volume"),
            "{}",
            bench.log
        );
        let report = bench.volumes[1].as_ref().expect("it is open").report();
        assert_eq!(report.state, VolumeState::Healthy, "{}", bench.log);
        let owners = owners(&bench);
        assert!(owners[0].is_some() && owners[1] == owners[0] && owners[2] == owners[0]);
        assert_eq!(bench.write(0, 3, 4), Status::InternalError);
    }
}

#[test]
fn a_mount_does_not_preempt_a_newer_owner_or_without_a_quorum() {
    for (scheme, is_newer) in [(Scheme::raid5(2), true), (MIRROR, false)] {
        let mut bench = Bench::of(scheme);
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        let last = scheme.members() - 1;
        bench.cut_off(1, &[last]);
        assert!(bench.try_to_take_over(1, true).expect("it was accepted").is_enough);
        bench.reconnect(1);
        if is_newer {
            let older = mock::holder(&bench.drives[last]).expect("it is reserved");
            let key = ReservationKey(older.key.0 + 7);
            mock::set_holder(&bench.drives[last], Some(Holder { key, ..older }));
        }
        let before = holders(&bench);
        let error = bench.open(1).expect_err("that owner may use the volume");
        assert!(error.message.contains("is reserved by another server of this volume"), "{error}");
        assert_eq!(holders(&bench)[last], before[last]);
    }
}
