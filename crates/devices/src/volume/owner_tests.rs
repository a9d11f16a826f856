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
use crate::{Credentials, Drive, DriveError, Location, mock};

const BLOCK_BYTES: usize = 512;

/// Directories `a` and `b`, of which the second is a copy of the first.
pub(super) struct Bench {
    pub(super) volumes: [Option<VolumeDrive>; 2],
    pub(super) drives: Vec<PathBuf>,
    pub(super) ring: Ring,
    pub(super) log: String,
    next: u64,
    pub(super) above: TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Before the mock drives.
        self.volumes = [None, None];
    }
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::of(Scheme::raid5(2))
    }

    pub(super) fn of(scheme: Scheme) -> Bench {
        mock::begin();
        let above = TempDir::new().expect("there is space");
        let drives: Vec<PathBuf> = (0..scheme.members()).map(|at| above.path().join(format!("d{at}"))).collect();
        for drive in &drives {
            mock::add(drive, &mock::geometry(32));
            mock::set_remote(drive);
        }
        let new = NewVolume::over(drives.iter().cloned().map(Location::Image).collect(), scheme);
        let ring = Ring::simulated().expect("there is an event loop");
        let volume = VolumeDrive::create(&above.path().join("a"), &new, &ring).expect("the members are suitable");
        let bench = Bench { volumes: [Some(volume), None], drives, ring, log: String::new(), next: 0, above };
        fs::create_dir(bench.directory(1)).expect("there is space");
        fs::copy(bench.directory(0).join(VOLUME_FILE), bench.directory(1).join(VOLUME_FILE)).expect("there is space");
        bench
    }

    pub(super) fn directory(&self, at: usize) -> PathBuf {
        self.above.path().join(["a", "b"][at])
    }

    pub(super) fn open(&mut self, at: usize) -> Result<(), DriveError> {
        let volume = mock::as_program(at, || VolumeDrive::open(&self.directory(at), &self.ring))?;
        self.volumes[at] = Some(volume);
        Ok(())
    }

    pub(super) fn cut_off(&self, at: usize, drives: &[usize]) {
        drives.iter().for_each(|drive| mock::set_cut_off(at, &self.drives[*drive], true));
    }

    pub(super) fn reconnect(&self, at: usize) {
        self.drives.iter().for_each(|drive| mock::set_cut_off(at, drive, false));
    }

    /// Runs one of the programs for a while; the other one is paused.
    pub(super) fn run(&mut self, at: usize, time: Duration) -> Vec<Completion> {
        let (until, mut ended) = (self.ring.now() + time, Vec::new());
        loop {
            let volume = self.volumes[at].as_mut().expect("it is open");
            let mut completions = CompletionQueue::new();
            volume.poll(self.ring.now(), &mut completions);
            ended.extend(std::iter::from_fn(|| completions.pop()));
            let above = self.above.path().display().to_string();
            let notices = std::iter::from_fn(|| volume.take_notice());
            self.log.extend(notices.map(|notice| notice.text.replace(&above, "..") + "\n"));
            if self.ring.now() >= until {
                return ended;
            }
            let next = volume.next_timeout().map_or(until, |next| next.min(until));
            self.ring.run_once(Some(next)).expect("time passes");
        }
    }

    /// Submits a command, and returns its completion.
    pub(super) fn ask(&mut self, at: usize, operation: Operation) -> Completion {
        self.next += 1;
        let command = Command::new(CommandId(self.next), NamespaceId::FIRST, operation);
        let now = self.ring.now();
        self.volumes[at].as_mut().expect("it is open").submit(now, command).expect("there is a queue slot");
        let mut ended = self.run(at, Duration::from_secs(3));
        assert_eq!(ended.len(), 1, "{}", self.log);
        ended.remove(0)
    }

    pub(super) fn write(&mut self, at: usize, lba: u64, byte: u8) -> Status {
        let buffer = BlockBuffer { data: vec![byte; BLOCK_BYTES].into(), metadata: Vec::new().into() };
        let payload = Payload::Bytes(Box::new(buffer));
        self.ask(at, Operation::Write { start: Lba(lba), blocks: Blocks(1), payload }).status
    }

    /// Writes block 0 while the first drive fails, so that its member has failed.
    fn write_without_first_drive(&mut self, at: usize) {
        mock::set_failing(&self.drives[0], true);
        assert_eq!(self.write(at, 0, 1), Status::Success);
        mock::set_failing(&self.drives[0], false);
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
        mock::as_program(at, || VolumeDrive::take_over(&self.directory(at), options, &self.ring))
    }

    pub(super) fn take_over(&mut self, at: usize) -> super::TakeoverReport {
        self.try_to_take_over(at, false).expect("its members are present")
    }

    pub(super) fn is_held(&self) -> Vec<bool> {
        self.drives.iter().map(|drive: &PathBuf| mock::holder(Path::new(drive)).is_some()).collect()
    }
}

#[test]
fn a_copy_of_the_directory_of_a_served_volume_does_not_open_and_does_not_disturb_the_server() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let error = bench.open(1).expect_err("it is served");
    assert!(error.message.contains("is reserved by another server of this volume, owner epoch 1"), "{error}");
    assert!(error.help.contains("zonda volume takeover"), "{error}");
    assert_eq!((bench.write(0, 1, 2), bench.read(0, 0)), (Status::Success, Ok(1)));
    assert_eq!(bench.log, "");
}

#[test]
fn the_next_program_of_the_directory_opens_a_volume_at_once_after_a_kill() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.volumes[0] = None;
    assert!(bench.open(1).is_err(), "a copy needs a takeover");
    bench.open(0).expect("it holds the lock: the other program has exited");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_closed_volume_is_not_reserved() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    assert_eq!(bench.is_held(), [true; 3]);
    bench.close(0);
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(1).expect("it is not reserved");
    assert_eq!(bench.read(1, 0), Ok(1));
}

#[test]
fn a_server_that_was_paused_during_a_takeover_completes_no_command_any_more() {
    // Reads of blocks that were never written need no member.
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
            bench.log.contains("has been taken over by another server of this volume, owner epoch"),
            "{}",
            bench.log
        );
        let report = bench.volumes[0].as_ref().expect("it is open").report();
        assert_eq!(report.state, VolumeState::TakenOver);
        assert_eq!(bench.write(0, 1, 2), Status::InternalError);
        assert_eq!((bench.read(1, 1), bench.read(1, 9)), (Ok(0), Ok(5)));
        assert_eq!(bench.volumes[1].as_ref().expect("it is open").report().state, VolumeState::Healthy);
    }
}

#[test]
fn an_idle_server_detects_that_its_volume_was_taken_over() {
    let mut bench = Bench::new();
    bench.run(0, Duration::from_secs(5));
    bench.take_over(1);
    bench.run(0, LEASE);
    assert!(bench.log.contains("is no longer served"), "{}", bench.log);
}

#[test]
fn a_server_whose_connections_were_lost_during_a_takeover_is_refused_when_it_reconnects() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.drives.iter().for_each(|drive| mock::disconnect(drive));
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    bench.run(0, Duration::from_secs(30));
    assert!(bench.log.contains("is no longer served"), "{}", bench.log);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::TakenOver);
    assert_eq!((bench.read(1, 0), bench.write(1, 0, 3)), (Ok(1), Status::Success));
}

#[test]
fn a_server_that_lost_all_connections_while_paused_completes_no_command_before_it_reconnects() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.drives.iter().for_each(|drive| mock::disconnect(drive));
    // Block 9 is not empty any more, and the old server needs no member to know that it was.
    assert_eq!(bench.read(0, 9), Err(Status::InternalError), "{}", bench.log);
}

#[test]
fn a_refused_mount_releases_its_reservations() {
    let mut bench = Bench::new();
    bench.close(0);
    bench.drives[..2].iter().for_each(|drive| mock::set_away(drive, true));
    assert!(bench.open(0).is_err(), "too few members are present");
    assert_eq!(bench.is_held(), [false; 3]);
}

#[test]
fn a_spare_of_two_volumes_belongs_to_the_one_that_opens_it_first() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    let other = bench.above.path().join("other");
    let member = bench.above.path().join("d9");
    mock::add(&member, &mock::geometry(32));
    mock::set_remote(&member);
    let new = NewVolume {
        may_wipe: true,
        ..NewVolume::over(vec![Location::Image(member)], Scheme::over(1, None, None).expect("one member is enough"))
    };
    let mut second = VolumeDrive::create(&other, &new, &bench.ring).expect("the member is suitable");
    for may_wipe in [false, true] {
        let request = super::VolumeRequest::AddSpare {
            spare: spare.display().to_string(),
            may_wipe,
            credentials: Credentials::default(),
        };
        let error = second.manage(&request, &bench.ring).expect_err("another volume has reserved it");
        assert!(error.message.contains("is reserved by"), "{error}");
    }
    drop(second);
}

pub(super) const MIRROR: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

#[test]
fn half_of_a_mirror_is_taken_over_only_if_an_operator_confirms_that_the_other_half_is_not_in_use() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[1]);
    let error = bench.try_to_take_over(1, false).expect_err("the owner may continue with member 1");
    assert!(
        error.message.starts_with("another server may continue with members that cannot be reserved: member 1"),
        "{error}"
    );
    assert!(error.help.contains("zonda volume takeover --accept-missing"), "{error}");
    assert_eq!((bench.write(0, 1, 2), bench.log.as_str()), (Status::Success, ""), "its owner is not affected");
    bench.volumes[0] = None;
    let report = bench.try_to_take_over(1, true).expect("it is accepted");
    assert!(report.drives[0].error.is_none() && report.drives[1].error.is_some(), "{report:?}");
    bench.open(1).expect("it is accepted");
    assert_eq!((bench.read(1, 0), bench.read(1, 1), bench.write(1, 2, 3)), (Ok(1), Ok(2), Status::Success));
    assert_eq!(bench.volumes[1].as_ref().expect("it is open").report().state, VolumeState::Degraded);
    bench.close(1);
    bench.open(1).expect("it is the last owner, and has recorded that member 1 has failed");
}

#[test]
fn half_of_a_raid01_volume_is_not_taken_over_either() {
    let mut bench = Bench::of(Scheme { level: Level::Raid01, data: 2, parity: 2 });
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    for half in [[0, 1], [2, 3], [0, 3], [1, 2]] {
        bench.cut_off(1, &half);
        let error = bench.try_to_take_over(1, false).expect_err("the owner may continue with these");
        assert!(error.message.starts_with("another server may continue"), "{error}");
        bench.reconnect(1);
    }
    assert_eq!((bench.write(0, 1, 2), bench.log.as_str()), (Status::Success, ""), "its owner is not affected");
}

#[test]
fn a_takeover_without_both_members_of_a_pair_is_not_enough_although_half_of_the_members_are_there() {
    let mut bench = Bench::of(Scheme { level: Level::Raid01, data: 2, parity: 2 });
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.volumes[0] = None;
    for (missing, is_enough) in [([1, 3], false), ([0, 2], false), ([2, 3], true)] {
        bench.cut_off(1, &missing);
        let report = bench.try_to_take_over(1, true).expect("the operator has confirmed it");
        assert_eq!(report.is_enough, is_enough, "without {missing:?}: {report:?}");
        assert_eq!(bench.open(1).is_ok(), is_enough, "without {missing:?}");
        bench.reconnect(1);
    }
    assert_eq!(bench.read(1, 0), Ok(1));
}

#[test]
fn a_copy_does_not_mount_the_half_of_a_mirror_that_has_failed_for_its_owner() {
    let mut bench = Bench::of(MIRROR);
    bench.write_without_first_drive(0);
    bench.volumes[0] = None;
    assert_eq!(bench.is_held(), [false, true]);
    bench.cut_off(1, &[1]);
    let error = bench.open(1).expect_err("member 1 has the last write");
    assert!(
        error.message.contains("cannot reach member 1 (")
            && error.message.contains("/d1): another server may have assembled"),
        "{error}"
    );
    assert_eq!(bench.is_held(), [false, true]);
    bench.open(0).expect("it is the last owner");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_directory_whose_volume_was_mounted_from_another_one_since_is_treated_as_a_copy() {
    let mut bench = Bench::of(MIRROR);
    bench.close(0);
    bench.open(1).expect("it is not reserved");
    bench.write_without_first_drive(1);
    bench.close(1);
    bench.cut_off(0, &[1]);
    let error = bench.open(0).expect_err("its half is out of date");
    assert!(error.message.contains("since it was last assembled from this directory"), "{error}");
    bench.reconnect(0);
    bench.open(0).expect("all members are present");
    assert_eq!(bench.read(0, 0), Ok(1));
}

#[test]
fn a_server_that_reaches_only_a_member_that_a_takeover_did_not_completes_no_command() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[2]);
    let report = bench.take_over(1);
    assert!(report.drives[2].error.is_some(), "{report:?}");
    bench.open(1).expect("two of three are enough");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    // Only the member that was not taken over responds, and confirms that it is still reserved for
    // this owner.
    bench.cut_off(0, &[0, 1]);
    let read = Operation::Read { start: Lba(9), blocks: Blocks(1) };
    let command = Command::new(CommandId(u64::MAX - 9), NamespaceId::FIRST, read);
    let now = bench.ring.now();
    bench.volumes[0].as_mut().expect("it is open").submit(now, command).expect("there is a queue slot");
    let ended = mock::as_program(0, || bench.run(0, Duration::from_secs(60)));
    assert_eq!(ended, [], "it holds the command until members confirm");
    bench.reconnect(0);
    let ended = mock::as_program(0, || bench.run(0, Duration::from_secs(30)));
    assert_eq!(ended.first().map(|ended| ended.status), Some(Status::InternalError), "{}", bench.log);
}

#[test]
fn a_server_that_wakes_after_its_successor_has_stopped_is_still_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    assert_eq!(bench.write(1, 9, 5), Status::Success);
    bench.close(1);
    assert_eq!(bench.is_held(), [true; 3], "the members stay reserved");
    assert_eq!((bench.read(0, 9), bench.write(0, 1, 2)), (Err(Status::InternalError), Status::InternalError));
    bench.volumes[0] = None;
    assert!(bench.open(0).is_err(), "it needs a takeover");
    bench.open(1).expect("they are reserved for this directory");
    assert_eq!((bench.read(1, 1), bench.read(1, 9)), (Ok(0), Ok(5)));
}

#[test]
fn members_that_stay_reserved_are_released_by_a_takeover_with_release() {
    let mut bench = Bench::new();
    bench.volumes[0] = None;
    bench.take_over(1);
    bench.open(1).expect("it was taken over");
    bench.close(1);
    let options = TakeoverOptions { releases: true, ..TakeoverOptions::default() };
    VolumeDrive::take_over(&bench.directory(1), options, &bench.ring).expect("they are present");
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(0).expect("it is not reserved");
    bench.close(0);
    assert_eq!(bench.is_held(), [false; 3]);
    bench.open(1).expect("it is not reserved");
    bench.close(1);
    assert_eq!(bench.is_held(), [false; 3], "they are not reserved any more");
}

#[test]
fn a_takeover_that_is_preempted_by_another_one_reports_it() {
    let mut bench = Bench::new();
    bench.volumes[0] = None;
    let directories = [bench.directory(0), bench.directory(1)];
    // While the first one waits, the second one preempts all.
    let ring = Rc::new(std::mem::replace(&mut bench.ring, Ring::simulated().expect("there is an event loop")));
    let (inner, second, is_done) = (Rc::downgrade(&ring), directories[1].clone(), Cell::new(false));
    ring.set_wait_hook(move |until| {
        if !is_done.replace(true) {
            let ring = inner.upgrade().expect("it is in use");
            VolumeDrive::take_over(&second, TakeoverOptions::default(), &ring).expect("they are present");
        }
        until
    });
    let error =
        VolumeDrive::take_over(&directories[0], TakeoverOptions::default(), &ring).expect_err("it has lost all drives");
    let drive = bench.drives[0].display();
    let expected = format!("preempted by another takeover: {drive} is now reserved by another server of this volume");
    assert!(error.message.starts_with(&expected), "{error}");
    let report = VolumeDrive::take_over(&directories[0], TakeoverOptions::default(), &ring).expect("they are present");
    assert!(report.is_enough && report.drives.iter().all(|drive| drive.error.is_none()), "{report:?}");
}

#[test]
fn a_refused_mount_keeps_the_reservations_of_an_earlier_takeover() {
    let mut bench = Bench::new();
    bench.take_over(1);
    bench.cut_off(1, &[1, 2]);
    assert!(bench.open(1).is_err(), "too few members are present");
    assert_eq!(bench.is_held(), [true; 3]);
    assert_eq!(bench.write(0, 0, 1), Status::InternalError);
}

/// Adds a remote spare to the first volume.
pub(super) fn add_spare(bench: &mut Bench) -> PathBuf {
    add_spare_as(bench, "spare")
}

pub(super) fn add_spare_as(bench: &mut Bench, name: &str) -> PathBuf {
    let spare = bench.above.path().join(name);
    mock::add(&spare, &mock::geometry(32));
    mock::set_remote(&spare);
    let request = super::VolumeRequest::AddSpare {
        spare: spare.display().to_string(),
        may_wipe: false,
        credentials: Credentials::default(),
    };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it is not in use");
    spare
}

pub(super) fn fail_member(bench: &mut Bench) {
    fail(bench, 0);
}

pub(super) fn fail(bench: &mut Bench, member: usize) {
    let request = super::VolumeRequest::Fail { member: member.to_string() };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it is redundant");
    bench.run(0, Duration::from_secs(10));
}

/// The number of spares, and of those that cannot be reached.
fn spares(bench: &Bench) -> (usize, usize) {
    let report = bench.volumes[0].as_ref().expect("it is open").report();
    (report.spares.len(), report.unreachable_spares.len())
}

#[test]
fn a_spare_whose_connection_is_lost_is_reconnected_and_still_reserved() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    let holder = mock::holder(&spare).expect("it is reserved");
    mock::disconnect(&spare);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 0), "{}", bench.log);
    assert_eq!(mock::holder(&spare).expect("it is reserved").host, holder.host);
    assert_eq!(bench.log.matches("the spare ../spare can be reached again").count(), 1, "{}", bench.log);
    fail_member(&mut bench);
    assert!(bench.log.contains("the spare ../spare replaces member 0"), "{}", bench.log);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Healthy, "{}", bench.log);
}

#[test]
fn an_unreachable_spare_is_reported_once_and_replaces_a_member_when_it_is_back() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    mock::set_away(&spare, true);
    mock::disconnect(&spare);
    bench.run(0, Duration::from_secs(90));
    assert_eq!(spares(&bench), (1, 1));
    assert_eq!(bench.log.matches("the spare ../spare cannot be reached").count(), 1, "{}", bench.log);
    fail_member(&mut bench);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Degraded);
    mock::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Healthy, "{}", bench.log);
    assert_eq!(spares(&bench), (0, 0));
}

#[test]
fn a_spare_that_is_missing_at_the_mount_is_retried_and_can_be_removed_meanwhile() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    bench.close(0);
    mock::set_away(&spare, true);
    bench.open(0).expect("a volume does not need a spare");
    bench.run(0, Duration::from_secs(1));
    assert_eq!(spares(&bench), (1, 1));
    mock::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 0), "{}", bench.log);
    mock::set_away(&spare, true);
    mock::disconnect(&spare);
    bench.run(0, Duration::from_secs(30));
    let request = super::VolumeRequest::RemoveSpare { spare: "spare".to_owned() };
    bench.volumes[0].as_mut().expect("it is open").manage(&request, &bench.ring).expect("it is a spare");
    mock::set_away(&spare, false);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (0, 0));
    let file = fs::read_to_string(bench.directory(0).join(VOLUME_FILE)).expect("it can be read");
    assert!(!file.contains("spare\""), "{file}");
}

#[test]
fn a_spare_that_another_host_has_reserved_is_not_used_and_the_volume_continues() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    mock::seize(&spare);
    bench.run(0, Duration::from_secs(30));
    assert_eq!(spares(&bench), (1, 1), "{}", bench.log);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().reserved_spares, ["../spare"]);
    fail_member(&mut bench);
    assert_eq!(bench.volumes[0].as_ref().expect("it is open").report().state, VolumeState::Degraded, "{}", bench.log);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
}

#[test]
fn a_spare_that_has_become_a_member_of_another_volume_is_released_for_it() {
    let mut bench = Bench::new();
    let spare = add_spare(&mut bench);
    bench.close(0);
    let other = bench.above.path().join("other");
    let scheme = Scheme::over(1, None, None).expect("one member is enough");
    let new = NewVolume { may_wipe: true, ..NewVolume::over(vec![Location::Image(spare.clone())], scheme) };
    bench.volumes[1] = Some(VolumeDrive::create(&other, &new, &bench.ring).expect("the member is suitable"));
    bench.close(1);
    bench.open(0).expect("a volume does not need a spare");
    bench.run(0, Duration::from_secs(30));
    assert!(bench.log.contains("the spare ../spare is not used: it is member 0 of"), "{}", bench.log);
    assert_eq!(mock::holder(&spare), None, "its volume can reserve it");
    VolumeDrive::open(&other, &bench.ring).expect("its member is not reserved");
}
