//! Two programs that have directories of one volume, whose members are behind servers.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Lba, NamespaceId, Operation,
    Outcome, Payload, Status, ZonedDevice,
};

use super::lease::LEASE;
use super::{NewVolume, TakeoverOptions, VOLUME_FILE, VolumeDrive, VolumeState};
use crate::{Credentials, Drive, DriveError, Location, shelf};

const BLOCK_BYTES: usize = 512;

/// Directories `a` and `b`, of which the second is a copy of the first.
pub(super) struct Bench {
    pub(super) volumes: [Option<VolumeDrive>; 2],
    pub(super) drives: Vec<PathBuf>,
    pub(super) ring: Ring,
    pub(super) told: String,
    next: u64,
    pub(super) above: TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Before the shelf.
        self.volumes = [None, None];
    }
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::of(Scheme::raid5(2))
    }

    pub(super) fn of(scheme: Scheme) -> Bench {
        shelf::begin();
        let above = TempDir::new().expect("there is room");
        let drives: Vec<PathBuf> = (0..scheme.members()).map(|at| above.path().join(format!("d{at}"))).collect();
        for drive in &drives {
            shelf::add(drive, &shelf::geometry(32));
            shelf::set_remote(drive);
        }
        let new = NewVolume::over(drives.iter().cloned().map(Location::Image).collect(), scheme);
        let ring = Ring::simulated().expect("there is an event loop");
        let volume = VolumeDrive::create(&above.path().join("a"), &new, &ring).expect("they suit");
        let bench = Bench { volumes: [Some(volume), None], drives, ring, told: String::new(), next: 0, above };
        fs::create_dir(bench.directory(1)).expect("there is room");
        fs::copy(bench.directory(0).join(VOLUME_FILE), bench.directory(1).join(VOLUME_FILE)).expect("there is room");
        bench
    }

    pub(super) fn directory(&self, at: usize) -> PathBuf {
        self.above.path().join(["a", "b"][at])
    }

    pub(super) fn open(&mut self, at: usize) -> Result<(), DriveError> {
        let volume = shelf::as_program(at, || VolumeDrive::open(&self.directory(at), &self.ring))?;
        self.volumes[at] = Some(volume);
        Ok(())
    }

    pub(super) fn cut_off(&self, at: usize, drives: &[usize]) {
        drives.iter().for_each(|drive| shelf::set_cut_off(at, &self.drives[*drive], true));
    }

    pub(super) fn mend(&self, at: usize) {
        self.drives.iter().for_each(|drive| shelf::set_cut_off(at, drive, false));
    }

    /// Runs one of the programs for a while; the other one is paused.
    pub(super) fn run(&mut self, at: usize, time: Duration) -> Vec<Completion> {
        let (until, mut ended) = (self.ring.now() + time, Vec::new());
        loop {
            let volume = self.volumes[at].as_mut().expect("it is open");
            let mut completions = CompletionQueue::new();
            volume.poll(self.ring.now(), &mut completions);
            ended.extend(std::iter::from_fn(|| completions.pop()));
            self.told.extend(std::iter::from_fn(|| volume.take_notice()).map(|notice| notice.text + "\n"));
            if self.ring.now() >= until {
                return ended;
            }
            let next = volume.next_wakeup().map_or(until, |next| next.min(until));
            self.ring.turn(Some(next)).expect("time passes");
        }
    }

    /// What becomes of a command.
    pub(super) fn ask(&mut self, at: usize, operation: Operation) -> Completion {
        self.next += 1;
        let command = Command { id: CommandId(self.next), namespace: NamespaceId::FIRST, operation };
        let now = self.ring.now();
        self.volumes[at].as_mut().expect("it is open").submit(now, command).expect("there is room");
        let mut ended = self.run(at, Duration::from_secs(3));
        assert_eq!(ended.len(), 1, "{}", self.told);
        ended.remove(0)
    }

    pub(super) fn write(&mut self, at: usize, lba: u64, byte: u8) -> Status {
        let buffer = BlockBuffer { data: vec![byte; BLOCK_BYTES].into(), metadata: Vec::new().into() };
        let payload = Payload::Bytes(Box::new(buffer));
        self.ask(at, Operation::Write { start: Lba(lba), blocks: Blocks(1), payload }).status
    }

    /// Block 0 is written while the first drive fails, and so is no member any more.
    fn write_without_first_drive(&mut self, at: usize) {
        shelf::set_failing(&self.drives[0], true);
        assert_eq!(self.write(at, 0, 1), Status::Success);
        shelf::set_failing(&self.drives[0], false);
    }

    /// The first byte of a block.
    pub(super) fn read(&mut self, at: usize, lba: u64) -> Result<u8, Status> {
        let completion = self.ask(at, Operation::Read { start: Lba(lba), blocks: Blocks(1) });
        match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Ok(buffer.data[0]),
            _ => Err(completion.status),
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        let now = self.ring.now();
        self.volumes[at].as_mut().expect("it is open").close(now);
        self.run(at, Duration::from_secs(3));
        assert!(self.volumes[at].take().expect("it is open").is_closed());
    }

    pub(super) fn try_to_take_over(
        &self,
        at: usize,
        accepts_missing: bool,
    ) -> Result<super::TakeoverReport, DriveError> {
        let options = TakeoverOptions { accepts_missing, ..TakeoverOptions::default() };
        shelf::as_program(at, || VolumeDrive::take_over(&self.directory(at), options, &self.ring))
    }

    pub(super) fn take_over(&mut self, at: usize) -> super::TakeoverReport {
        self.try_to_take_over(at, false).expect("its members are there")
    }

    pub(super) fn is_held(&self) -> Vec<bool> {
        self.drives.iter().map(|drive: &PathBuf| shelf::holder(Path::new(drive)).is_some()).collect()
    }
}

#[test]
fn a_copy_of_the_directory_of_a_volume_that_is_served_does_not_open_and_disturbs_nobody() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let error = bench.open(1).expect_err("it is served");
    assert!(error.message.contains("is reserved by another server of this volume, owner epoch 1"), "{error}");
    assert!(error.help.contains("zonda volume takeover"), "{error}");
    assert_eq!((bench.write(0, 1, 2), bench.read(0, 0)), (Status::Success, Ok(1)));
    assert_eq!(bench.told, "");
}

#[test]
fn a_program_that_was_killed_is_followed_by_the_next_from_its_directory_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.volumes[0] = None;
    assert!(bench.open(1).is_err(), "a copy has to be told");
    bench.open(0).expect("it holds the lock: the other is dead");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_volume_that_is_closed_is_anybodys() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    assert_eq!(bench.is_held(), [true; 3]);
    bench.close(0);
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(1).expect("nobody has it");
    assert_eq!(bench.read(1, 0), Ok(1));
}

#[test]
fn a_server_that_was_paused_while_its_volume_was_taken_over_answers_nothing_any_more() {
    // Blocks that were never written are answered without a member.
    for operation in [0, 1, 2] {
        let mut bench = Bench::new();
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        let report = bench.take_over(1);
        let from = Some("another server of this volume, owner epoch 1".to_owned());
        let taken = |drive: &super::TakenDrive| {
            drive.taken_from.as_ref().and_then(|text| text.split(" (host").next().map(str::to_owned))
        };
        assert!(report.drives.len() == 3 && report.drives.iter().all(|drive| taken(drive) == from), "{report:?}");
        assert_eq!(report.owner_epoch, 2);
        bench.open(1).expect("it was taken over");
        assert_eq!((bench.read(1, 0), bench.write(1, 9, 5)), (Ok(1), Status::Success));
        let status = match operation {
            0 => bench.write(0, 1, 2),
            1 => bench.read(0, 9).expect_err("block 9 is not empty any more"),
            _ => bench.ask(0, Operation::Flush).status,
        };
        assert_eq!(status, Status::InternalError);
        assert!(
            bench.told.contains("has been taken over by another server of this volume, owner epoch"),
            "{}",
            bench.told
        );
        let report = bench.volumes[0].as_ref().expect("it is open").report();
        assert_eq!(report.state, VolumeState::TakenOver);
        assert_eq!(bench.write(0, 1, 2), Status::InternalError);
        assert_eq!((bench.read(1, 1), bench.read(1, 9)), (Ok(0), Ok(5)));
        assert_eq!(bench.volumes[1].as_ref().expect("it is open").report().state, VolumeState::Well);
    }
}

#[test]
fn a_server_that_is_idle_notices_that_its_volume_was_taken_over() {
    let mut bench = Bench::new();
    bench.run(0, Duration::from_secs(5));
    bench.take_over(1);
    bench.run(0, LEASE);
    assert!(bench.told.contains("is not served any more"), "{}", bench.told);
}

#[test]
fn a_server_whose_connections_were_lost_meanwhile_is_refused_when_it_makes_them_again() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.drives.iter().for_each(|drive| shelf::disconnect(drive));
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    bench.run(0, Duration::from_secs(30));
    assert!(bench.told.contains("is not served any more"), "{}", bench.told);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::TakenOver);
    assert_eq!((bench.read(1, 0), bench.write(1, 0, 3)), (Ok(1), Status::Success));
}

#[test]
fn a_server_whose_connections_were_all_lost_while_it_was_paused_answers_nothing_before_it_has_them_again() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.drives.iter().for_each(|drive| shelf::disconnect(drive));
    // Block 9 is not empty any more, and the old server needs no member to know that it was.
    assert_eq!(bench.read(0, 9), Err(Status::InternalError), "{}", bench.told);
}

#[test]
fn a_mount_that_is_refused_gives_back_what_it_has_reserved() {
    let mut bench = Bench::new();
    bench.close(0);
    bench.drives[..2].iter().for_each(|drive| shelf::set_away(drive, true));
    assert!(bench.open(0).is_err(), "too few members are there");
    assert_eq!(bench.is_held(), [false; 3]);
}

#[test]
fn a_spare_that_two_volumes_name_is_the_ones_that_opened_it_first() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    let other = bench.above.path().join("other");
    let member = bench.above.path().join("d9");
    shelf::add(&member, &shelf::geometry(32));
    shelf::set_remote(&member);
    let new = NewVolume {
        may_wipe: true,
        ..NewVolume::over(vec![Location::Image(member)], Scheme::over(1, None, None).expect("there is one"))
    };
    let mut second = VolumeDrive::create(&other, &new, &bench.ring).expect("it suits");
    for may_wipe in [false, true] {
        let request = super::VolumeRequest::AddSpare {
            spare: spare.display().to_string(),
            may_wipe,
            credentials: Credentials::default(),
        };
        let error = second.manage(&request, &bench.ring).expect_err("another volume has it");
        assert!(error.message.contains("is reserved by"), "{error}");
    }
    drop(second);
}

pub(super) const MIRROR: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

#[test]
fn half_of_a_mirror_is_taken_over_only_if_an_operator_says_that_nobody_uses_the_other_half() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[1]);
    let error = bench.try_to_take_over(1, false).expect_err("the owner may go on with member 1");
    assert!(
        error.message.starts_with("another server may go on with members that cannot be taken: member 1"),
        "{error}"
    );
    assert!(error.help.contains("zonda volume takeover --accept-missing"), "{error}");
    assert_eq!((bench.write(0, 1, 2), bench.told.as_str()), (Status::Success, ""), "its owner has noticed nothing");
    bench.volumes[0] = None;
    let report = bench.try_to_take_over(1, true).expect("it is accepted");
    assert!(report.drives[0].error.is_none() && report.drives[1].error.is_some(), "{report:?}");
    bench.open(1).expect("it is accepted");
    assert_eq!((bench.read(1, 0), bench.read(1, 1), bench.write(1, 2, 3)), (Ok(1), Ok(2), Status::Success));
    assert_eq!(bench.volumes[1].as_ref().expect("it is open").report().state, VolumeState::Degraded);
    bench.close(1);
    bench.open(1).expect("it is the last owner, and knows that member 1 has failed");
}

#[test]
fn half_of_a_mirror_of_stripes_is_not_taken_over_either() {
    let mut bench = Bench::of(Scheme { level: Level::Raid01, data: 2, parity: 2 });
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    for half in [[0, 1], [2, 3], [0, 3], [1, 2]] {
        bench.cut_off(1, &half);
        let error = bench.try_to_take_over(1, false).expect_err("the owner may go on with these");
        assert!(error.message.starts_with("another server may go on"), "{error}");
        bench.mend(1);
    }
    assert_eq!((bench.write(0, 1, 2), bench.told.as_str()), (Status::Success, ""), "its owner has noticed nothing");
}

#[test]
fn a_copy_does_not_mount_the_half_of_a_mirror_that_its_owner_has_given_up() {
    let mut bench = Bench::of(MIRROR);
    bench.write_without_first_drive(0);
    bench.volumes[0] = None;
    assert_eq!(bench.is_held(), [false, true]);
    bench.cut_off(1, &[1]);
    let error = bench.open(1).expect_err("member 1 has what was written last");
    assert!(
        error.message.contains("cannot ask members 1 (../d1): another server may use the volume with them"),
        "{error}"
    );
    assert_eq!(bench.is_held(), [false, true]);
    bench.open(0).expect("it is the last owner");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_directory_whose_volume_was_mounted_from_another_one_since_is_like_a_copy() {
    let mut bench = Bench::of(MIRROR);
    bench.close(0);
    bench.open(1).expect("nobody has it");
    bench.write_without_first_drive(1);
    bench.close(1);
    bench.cut_off(0, &[1]);
    let error = bench.open(0).expect_err("its half is out of date");
    assert!(error.message.contains("not known to be the one that the volume was last used from"), "{error}");
    bench.mend(0);
    bench.open(0).expect("all members are there");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_server_that_reaches_one_member_that_a_takeover_did_not_answers_nothing_any_more() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[2]);
    let report = bench.take_over(1);
    assert!(report.drives[2].error.is_some(), "{report:?}");
    bench.open(1).expect("two of three are enough");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    // Nothing but the member that was not taken answers, and says that it is still this owner's.
    bench.cut_off(0, &[0, 1]);
    let read = Operation::Read { start: Lba(9), blocks: Blocks(1) };
    let command = Command { id: CommandId(u64::MAX - 9), namespace: NamespaceId::FIRST, operation: read };
    let now = bench.ring.now();
    bench.volumes[0].as_mut().expect("it is open").submit(now, command).expect("there is room");
    let ended = shelf::as_program(0, || bench.run(0, Duration::from_secs(60)));
    assert_eq!(ended, [], "it holds what it does not know");
    bench.mend(0);
    let ended = shelf::as_program(0, || bench.run(0, Duration::from_secs(30)));
    assert_eq!(ended.first().map(|ended| ended.status), Some(Status::InternalError), "{}", bench.told);
}

#[test]
fn a_server_that_wakes_when_its_successor_has_stopped_is_refused_all_the_same() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.close(1);
    assert_eq!(bench.is_held(), [true; 3], "the members stay reserved");
    assert_eq!((bench.read(0, 9), bench.write(0, 1, 2)), (Err(Status::InternalError), Status::InternalError));
    bench.volumes[0] = None;
    assert!(bench.open(0).is_err(), "it has to be told");
    bench.open(1).expect("it is the one that they are reserved for");
    assert_eq!((bench.read(1, 1), bench.read(1, 9)), (Ok(0), Ok(5)));
}

#[test]
fn members_that_stay_reserved_are_released_when_an_operator_says_so() {
    let mut bench = Bench::new();
    bench.volumes[0] = None;
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    bench.close(1);
    let options = TakeoverOptions { releases: true, ..TakeoverOptions::default() };
    VolumeDrive::take_over(&bench.directory(1), options, &bench.ring).expect("they are there");
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(0).expect("nobody has it");
    bench.close(0);
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(1).expect("nobody has it");
    bench.close(1);
    assert_eq!(bench.is_held(), [false; 3], "they do not stay reserved any more");
}

#[test]
fn a_takeover_that_another_one_overtakes_says_so() {
    let mut bench = Bench::new();
    bench.volumes[0] = None;
    let directories = [bench.directory(0), bench.directory(1)];
    // While the first one waits, the second one takes all.
    let ring = Rc::new(std::mem::replace(&mut bench.ring, Ring::simulated().expect("there is an event loop")));
    let (inner, second, is_done) = (Rc::downgrade(&ring), directories[1].clone(), Cell::new(false));
    ring.set_meanwhile(move |until| {
        if !is_done.replace(true) {
            let ring = inner.upgrade().expect("it is used");
            VolumeDrive::take_over(&second, TakeoverOptions::default(), &ring).expect("they are there");
        }
        until
    });
    let error =
        VolumeDrive::take_over(&directories[0], TakeoverOptions::default(), &ring).expect_err("it has lost all");
    let expected =
        "another takeover has overtaken this one: ../d0 has been taken meanwhile by another server of this volume";
    assert!(error.message.starts_with(expected), "{error}");
    let report = VolumeDrive::take_over(&directories[0], TakeoverOptions::default(), &ring).expect("they are there");
    assert!(report.is_enough && report.drives.iter().all(|drive| drive.error.is_none()), "{report:?}");
}

#[test]
fn a_mount_that_is_refused_keeps_what_was_taken_over_before() {
    let mut bench = Bench::new();
    bench.take_over(1);
    bench.cut_off(1, &[1, 2]);
    assert!(bench.open(1).is_err(), "too few members are there");
    assert_eq!(bench.is_held(), [true; 3]);
    assert_eq!(bench.write(0, 0, 1), Status::InternalError);
}

/// A spare of a server for the first volume.
pub(super) fn add_spare(bench: &mut Bench) -> PathBuf {
    add_spare_as(bench, "spare")
}

pub(super) fn add_spare_as(bench: &mut Bench, name: &str) -> PathBuf {
    let spare = bench.above.path().join(name);
    shelf::add(&spare, &shelf::geometry(32));
    shelf::set_remote(&spare);
    let request = super::VolumeRequest::AddSpare {
        spare: spare.display().to_string(),
        may_wipe: false,
        credentials: Credentials::default(),
    };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it is free");
    spare
}

pub(super) fn fail_member(bench: &mut Bench) {
    fail(bench, 0);
}

pub(super) fn fail(bench: &mut Bench, member: usize) {
    let request = super::VolumeRequest::Fail { member: member.to_string() };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it can do without");
    bench.run(0, Duration::from_secs(10));
}

/// How many spares there are, and how many of these cannot be reached.
fn spares(bench: &Bench) -> (usize, usize) {
    let report = bench.volumes[0].as_ref().expect("it is open").report();
    (report.spares.len(), report.unreachable_spares.len())
}

#[test]
fn a_spare_whose_connection_is_lost_while_it_waits_is_connected_to_again_and_still_reserved() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    let holder = shelf::holder(&spare).expect("it is reserved");
    shelf::disconnect(&spare);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 0), "{}", bench.told);
    assert_eq!(shelf::holder(&spare).expect("it is reserved").host, holder.host);
    assert_eq!(bench.told.matches("the spare ../spare can be reached again").count(), 1, "{}", bench.told);
    fail_member(&mut bench);
    assert!(bench.told.contains("the spare ../spare takes the place of member 0"), "{}", bench.told);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Well, "{}", bench.told);
}

#[test]
fn a_spare_that_cannot_be_reached_is_told_once_and_steps_in_when_it_is_back() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    shelf::set_away(&spare, true);
    shelf::disconnect(&spare);
    bench.run(0, Duration::from_secs(90));
    assert_eq!(spares(&bench), (1, 1));
    assert_eq!(bench.told.matches("the spare ../spare cannot be reached").count(), 1, "{}", bench.told);
    fail_member(&mut bench);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Degraded);
    shelf::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Well, "{}", bench.told);
    assert_eq!(spares(&bench), (0, 0));
}

#[test]
fn a_spare_that_is_away_at_the_start_is_looked_for_and_can_be_removed_meanwhile() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    bench.close(0);
    shelf::set_away(&spare, true);
    bench.open(0).expect("a volume can do without a spare");
    bench.run(0, Duration::from_secs(1));
    assert_eq!(spares(&bench), (1, 1));
    shelf::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 0), "{}", bench.told);
    shelf::set_away(&spare, true);
    shelf::disconnect(&spare);
    bench.run(0, Duration::from_secs(30));
    let request = super::VolumeRequest::RemoveSpare { spare: "spare".to_owned() };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it is a spare");
    shelf::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (0, 0));
    let file = fs::read_to_string(bench.directory(0).join(VOLUME_FILE)).expect("it can be read");
    assert!(!file.contains("spare\""), "{file}");
}

#[test]
fn a_spare_that_another_host_has_taken_is_not_used_and_the_volume_goes_on() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    shelf::seize(&spare);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 1), "{}", bench.told);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().reserved_spares, ["../spare"]);
    fail_member(&mut bench);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Degraded, "{}", bench.told);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
}

#[test]
fn a_spare_that_has_become_a_member_of_another_volume_is_given_back_to_it() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    bench.close(0);
    let other = bench.above.path().join("other");
    let scheme = Scheme::over(1, None, None).expect("there is one");
    let new = NewVolume { may_wipe: true, ..NewVolume::over(vec![Location::Image(spare.clone())], scheme) };
    bench.volumes[1] = Some(VolumeDrive::create(&other, &new, &bench.ring).expect("it suits"));
    bench.close(1);
    bench.open(0).expect("a volume can do without a spare");
    bench.run(0, Duration::from_secs(30));
    assert!(bench.told.contains("the spare ../spare is not used: it is member 0 of"), "{}", bench.told);
    assert_eq!(shelf::holder(&spare), None, "its volume may have it");
    VolumeDrive::open(&other, &bench.ring).expect("nobody has its member");
}
