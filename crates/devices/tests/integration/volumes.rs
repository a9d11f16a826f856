//! Volumes on images on a real file system.

mod copies;
mod imports;
mod losses;
mod places;
mod reservations;
mod returns;
mod sides;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_devices::{
    Credentials, Drive, DriveError, DriveUser, FileBacked, Location, NewVolume, VolumeDrive, VolumeOpenOptions,
    VolumeReply, VolumeRequest, VolumeState, create_image, sized, user_of_image,
};
use zonda_raid::Scheme;
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Lba, NamespaceId, Operation, Outcome,
    Payload, Status, ZonedDevice,
};

use crate::PROFILES;

/// A directory with drives of forty zones of 1 MiB, and a ring.
struct Bench {
    above: TempDir,
    ring: Ring,
}

impl Bench {
    fn with(drives: &[&str]) -> Bench {
        let bench = Bench {
            above: TempDir::new().expect("there is space"),
            ring: Ring::new(RingOptions::default()).expect("there is an event loop"),
        };
        drives.iter().for_each(|name| bench.make_drive(name));
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.above.path().join(name)
    }

    /// Copies the files of a drive.
    fn copy(&self, from: &str, to: &str) {
        std::fs::create_dir_all(self.at(to)).expect("there is space");
        for entry in std::fs::read_dir(self.at(from)).expect("it exists") {
            let entry = entry.expect("it can be read");
            std::fs::copy(entry.path(), self.at(to).join(entry.file_name())).expect("there is space");
        }
    }

    fn make_drive(&self, name: &str) {
        self.make_drive_as("zn540", name);
    }

    fn make_drive_as(&self, profile: &str, name: &str) {
        let spec = sized(profile, Some(40), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
        create_image(&self.at(name), &spec.plan(&PROFILES).expect("it can be so small")).expect("there is space");
    }

    fn new_volume(&self, members: &[&str], spares: &[&str]) -> NewVolume {
        let locations = |names: &[&str]| names.iter().map(|name| Location::Image(self.at(name))).collect();
        let scheme = Scheme::over(members.len(), None, None).expect("there are enough");
        NewVolume { spares: locations(spares), ..NewVolume::over(locations(members), scheme) }
    }

    fn create(&self, members: &[&str], spares: &[&str]) -> VolumeDrive {
        self.create_at("vol", members, spares)
    }

    fn create_at(&self, name: &str, members: &[&str], spares: &[&str]) -> VolumeDrive {
        VolumeDrive::create(&self.at(name), &self.new_volume(members, spares), &self.ring)
            .expect("the members are suitable")
    }

    fn open(&self) -> VolumeDrive {
        VolumeDrive::open(&self.at("vol"), &self.ring).expect("there is a volume")
    }

    fn execute(&self, volume: &mut VolumeDrive, operation: Operation) -> Completion {
        let mut completions = CompletionQueue::new();
        let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
        volume.submit(self.ring.now(), command).expect("there is a queue slot");
        loop {
            volume.poll(self.ring.now(), &mut completions);
            if let Some(completion) = completions.pop() {
                return completion;
            }
            self.ring.run_once(volume.next_timeout()).expect("the loop works");
        }
    }

    /// 64 KiB pieces, each filled with its number and `salt`.
    fn write(&self, volume: &mut VolumeDrive, pieces: u64, salt: u8) {
        for piece in 0..pieces {
            let data = vec![piece as u8 ^ salt; 65_536].into();
            let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
            let write = Operation::Write { start: Lba(piece * 16), blocks: Blocks(16), payload };
            assert_eq!(self.execute(volume, write).status, Status::Success);
        }
    }

    fn check(&self, volume: &mut VolumeDrive, pieces: u64, salt: u8) {
        for piece in 0..pieces {
            let completion = self.execute(volume, Operation::Read { start: Lba(piece * 16), blocks: Blocks(16) });
            let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else {
                panic!("piece {piece}: {}", completion.status)
            };
            assert!(buffer.data.iter().all(|byte| *byte == piece as u8 ^ salt), "piece {piece}");
        }
    }

    fn wait_until_quiescent(&self, volume: &mut VolumeDrive) {
        let mut completions = CompletionQueue::new();
        loop {
            volume.poll(self.ring.now(), &mut completions);
            if volume.is_quiescent() {
                return;
            }
            self.ring.run_once(volume.next_timeout()).expect("the loop works");
        }
    }

    fn close(&self, mut volume: VolumeDrive) {
        let mut completions = CompletionQueue::new();
        volume.close(self.ring.now());
        while !volume.is_closed() {
            volume.poll(self.ring.now(), &mut completions);
            self.ring.run_once(Some(self.ring.now() + zonda_zoned::Duration(1_000_000))).expect("the loop works");
        }
    }

    fn ask(
        &self,
        volume: &mut VolumeDrive,
        request: &VolumeRequest,
    ) -> Result<zonda_devices::VolumeReport, DriveError> {
        volume.manage(request, &self.ring)
    }
}

fn remove(path: &Path) {
    std::fs::remove_dir_all(path).expect("it existed");
}

fn notices(volume: &mut VolumeDrive) -> String {
    // Members are beside the volume.
    let above = volume.path().parent().expect("it is not the root").display().to_string();
    std::iter::from_fn(|| volume.take_notice()).map(|notice| notice.text.replace(&above, "..") + "\n").collect()
}

#[test]
fn written_blocks_of_a_volume_persist_over_close_and_open() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 100, 1);
    bench.close(volume);
    let mut again = bench.open();
    bench.check(&mut again, 100, 1);
    let report = again.report();
    assert_eq!((report.state, report.can_lose, report.scheme.as_str()), (VolumeState::Healthy, 1, "RAID 5 (2+1)"));
    assert_eq!(report.members[1].at, "../b");
}

#[test]
fn a_volume_dropped_without_closing_recovers() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 2);
    drop(volume);
    bench.check(&mut bench.open(), 40, 2);
}

#[test]
fn a_drive_whose_files_are_removed_is_replaced_by_the_spare() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    bench.write(&mut volume, 100, 3);
    bench.close(volume);
    remove(&bench.at("b"));
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("member 1 (../b)") && log.contains("the spare ../e replaces member 1"), "{log}");
    bench.check(&mut volume, 100, 3);
    bench.wait_until_quiescent(&mut volume);
    let report = volume.report();
    assert_eq!((report.state, report.members[1].at.as_str(), report.spares.len()), (VolumeState::Healthy, "../e", 0));
    bench.close(volume);
    remove(&bench.at("c"));
    bench.check(&mut bench.open(), 100, 3);
}

#[test]
fn a_member_failed_by_command_is_replaced_by_another_drive_or_by_itself() {
    let bench = Bench::with(&["a", "b", "c", "d"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 60, 4);
    let report = bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    assert_eq!((report.state, report.can_lose), (VolumeState::Degraded, 0));
    let error =
        bench.ask(&mut volume, &VolumeRequest::Fail { member: "c".to_owned() }).expect_err("it cannot lose two");
    assert!(error.message.contains("cannot lose member 2"), "{error}");
    bench.write(&mut volume, 80, 5);
    let replace = |with: &str, may_wipe| VolumeRequest::Replace {
        member: "1".to_owned(),
        with: bench.at(with).display().to_string(),
        credentials: Credentials::default(),
        may_wipe,
    };
    let error = bench.ask(&mut volume, &replace("b", false)).expect_err("it is not empty");
    assert!(error.message.contains("is not empty"), "{error}");
    bench.ask(&mut volume, &replace("d", false)).expect("it is empty");
    bench.wait_until_quiescent(&mut volume);
    assert_eq!(volume.report().state, VolumeState::Healthy);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "d".to_owned() }).expect("it is redundant");
    bench
        .ask(
            &mut volume,
            &VolumeRequest::AddSpare {
                spare: bench.at("b").display().to_string(),
                may_wipe: true,
                credentials: Default::default(),
            },
        )
        .expect("it may be wiped");
    bench.wait_until_quiescent(&mut volume);
    assert_eq!((volume.report().state, volume.report().members[1].at.as_str()), (VolumeState::Healthy, "../b"));
    bench.check(&mut volume, 80, 5);
    bench.close(volume);
    bench.check(&mut bench.open(), 80, 5);
}

#[test]
fn a_scrub_reports_the_blocks_that_it_read() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 200, 6);
    let fast = zonda_devices::RateLimit::AtMost("10 GiB/s".parse().expect("a rate"));
    let rates = VolumeRequest::Rates { rebuild: None, scrub: Some(fast) };
    bench.ask(&mut volume, &rates).expect("the rate is valid");
    bench.ask(&mut volume, &VolumeRequest::Scrub).expect("it can be read");
    bench.wait_until_quiescent(&mut volume);
    let scrub = volume.report().last_scrub.expect("it has ended");
    assert!(scrub.blocks > 2000 && scrub.repaired == 0 && scrub.lost == 0, "{scrub:?}");
}

#[test]
fn a_volume_is_not_created_on_drives_that_are_not_empty() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 1, 0);
    bench.close(volume);
    let mut new = bench.new_volume(&["a", "b", "c"], &[]);
    let other = bench.at("other");
    let error = VolumeDrive::create(&other, &new, &bench.ring).map(|_| ()).expect_err("they are a volume");
    assert!(error.message.contains("is not empty") && error.help.contains("--force"), "{error}");
    assert!(!other.exists(), "the directory is removed");
    new.may_wipe = true;
    bench.close(VolumeDrive::create(&other, &new, &bench.ring).expect("they may be wiped"));
    let error =
        VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("they are of another volume now");
    assert!(error.message.contains("belongs to another volume, which is named \"other\""), "{error}");
}

#[test]
fn a_refused_creation_or_mount_closes_the_images_that_it_has_opened() {
    let bench = Bench::with(&["a", "b", "c", "x"]);
    let is_clean = |name: &str| FileBacked::open(&bench.at(name), &bench.ring).expect("it is not in use").1.clean;
    bench.close(bench.create_at("other", &["x"], &[]));
    let new = bench.new_volume(&["a", "b", "x"], &[]);
    let error = VolumeDrive::create(&bench.at("vol"), &new, &bench.ring).map(|_| ()).expect_err("x is not empty");
    assert!(error.message.contains("is not empty"), "{error}");
    assert!(is_clean("a") && is_clean("b"), "the creation was refused");
    for name in ["a", "b"] {
        remove(&bench.at(name));
        bench.make_drive(name);
    }
    bench.close(bench.create(&["a", "b", "c"], &[]));
    std::fs::rename(bench.at("b"), bench.at("b2")).expect("it can be moved");
    std::fs::rename(bench.at("c"), bench.at("c2")).expect("it can be moved");
    assert!(VolumeDrive::open(&bench.at("vol"), &bench.ring).is_err(), "two members are missing");
    assert!(is_clean("a"), "the mount was refused");
}

#[test]
fn a_member_that_another_program_uses_does_not_fail_but_the_mount_is_refused() {
    let bench = Bench::with(&["a", "b", "c"]);
    bench.close(bench.create(&["a", "b", "c"], &[]));
    let (_held, _) = zonda_devices::FileBacked::open(&bench.at("b"), &bench.ring).expect("it is unlocked");
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("it is in use");
    assert!(error.is_in_use && error.message.contains('b'), "{error}");
}

#[test]
fn one_drive_without_parity_is_a_conventional_drive() {
    let bench = Bench::with(&["a"]);
    let mut volume = bench.create(&["a"], &[]);
    // Overwrites, of more data than the capacity of the drive.
    for salt in 0..5 {
        bench.write(&mut volume, 250, salt);
    }
    bench.check(&mut volume, 250, 4);
    assert_eq!(volume.report().scheme, "RAID 0 (1+0)");
    assert!(volume.report().volume_bytes >= 250 * 65_536);
}

#[test]
fn a_member_of_another_volume_is_named_and_used_only_by_force() {
    let bench = Bench::with(&["a", "b", "c", "x", "y"]);
    bench.close(bench.create_at("other", &["x", "y"], &[]));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    let at = |name: &str| bench.at(name).display().to_string();
    let spare = |may_wipe| VolumeRequest::AddSpare { spare: at("y"), may_wipe, credentials: Default::default() };
    let error = bench.ask(&mut volume, &spare(false)).expect_err("it is a member");
    assert!(error.message.contains("is member 1 of the volume \"other\"") && error.help.contains("--force"), "{error}");
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    let replace = |may_wipe| VolumeRequest::Replace {
        member: "1".to_owned(),
        with: at("x"),
        may_wipe,
        credentials: Default::default(),
    };
    let error = bench.ask(&mut volume, &replace(false)).expect_err("it is a member");
    assert!(error.message.contains("is member 0 of the volume \"other\""), "{error}");
    bench.ask(&mut volume, &replace(true)).expect("it is forced");
    bench.wait_until_quiescent(&mut volume);
    assert_eq!(volume.report().state, VolumeState::Healthy);
}

#[test]
fn a_drive_that_could_replace_no_member_is_refused_as_a_spare_of_a_new_volume() {
    let bench = Bench::with(&["a", "b", "c"]);
    let spec = sized("zn540", Some(20), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    create_image(&bench.at("small"), &spec.plan(&PROFILES).expect("it can be so small")).expect("there is space");
    let new = bench.new_volume(&["a", "b", "c"], &["small"]);
    let created = VolumeDrive::create(&bench.at("vol"), &new, &bench.ring);
    let Err(error) = created else { panic!("the spare has half of the zones") };
    let text = error.to_string();
    assert!(text.contains("small") && text.contains("20 zones, but at least 40 are needed"), "{text}");
    assert!(!bench.at("vol").exists(), "nothing was made");
    bench.close(bench.create(&["a", "b", "c"], &[]));
}

#[test]
fn a_spare_added_by_force_is_still_one_after_the_next_mount() {
    let bench = Bench::with(&["a", "b", "c", "x"]);
    bench.close(bench.create_at("other", &["x"], &[]));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    let spare = VolumeRequest::AddSpare {
        spare: bench.at("x").display().to_string(),
        may_wipe: true,
        credentials: Default::default(),
    };
    bench.ask(&mut volume, &spare).expect("it is forced");
    bench.close(volume);
    let mut volume = bench.open();
    assert_eq!((volume.report().spares, notices(&mut volume).as_str()), (vec!["../x".to_owned()], ""));
}

#[test]
fn a_spare_that_became_a_member_of_another_volume_is_not_wiped() {
    let bench = Bench::with(&["a", "b", "c", "e", "y"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    bench.write(&mut volume, 20, 7);
    bench.close(volume);
    let mut other = bench.create_at("other", &["e", "y"], &[]);
    bench.write(&mut other, 20, 8);
    bench.close(other);
    remove(&bench.at("b"));
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("the spare ../e is not used: it is member 0 of the volume \"other\""), "{log}");
    assert_eq!(volume.report().state, VolumeState::Degraded);
    bench.check(&mut volume, 20, 7);
    bench.close(volume);
    let mut other = VolumeDrive::open(&bench.at("other"), &bench.ring).expect("it is intact");
    assert_eq!(other.report().state, VolumeState::Healthy);
    bench.check(&mut other, 20, 8);
}

#[test]
fn a_spare_that_replaced_a_member_without_an_update_of_the_file_is_that_member() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    let file = bench.at("vol").join("volume.toml");
    let before = std::fs::read(&file).expect("it exists");
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    bench.wait_until_quiescent(&mut volume);
    bench.write(&mut volume, 60, 9);
    bench.close(volume);
    // As left by a program that could not write it.
    std::fs::write(&file, before).expect("there is space");
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("the spare ../e has replaced member 1 (../b) before"), "{log}");
    let report = volume.report();
    assert_eq!((report.state, report.members[1].at.as_str(), report.spares.len()), (VolumeState::Healthy, "../e", 0));
    bench.close(volume);
    remove(&bench.at("c"));
    bench.check(&mut bench.open(), 60, 9);
}

#[test]
fn a_spare_is_not_wiped_before_the_file_has_it_as_a_member() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    bench.write(&mut volume, 40, 10);
    // A directory with the name of the new file: it cannot be written.
    let in_the_way = bench.at("vol").join("volume.toml.new");
    std::fs::create_dir(&in_the_way).expect("there is space");
    volume.fail_unsaved(1, &bench.ring);
    bench.wait_until_quiescent(&mut volume);
    let log = notices(&mut volume);
    assert!(log.contains("the spare ../e cannot replace member 1 yet") && log.contains("cannot write"));
    let report = volume.report();
    assert_eq!((report.state, report.spares), (VolumeState::Degraded, vec!["../e".to_owned()]));
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    let later = bench.ring.now() + zonda_zoned::Duration(11_000_000_000);
    volume.poll(later, &mut CompletionQueue::new());
    let text = std::fs::read_to_string(bench.at("vol").join("volume.toml")).expect("it exists");
    assert!(text.contains("at = \"../e\"\nstate = \"joining\"") && !text.contains("../b"), "{text}");
    drop(volume);
    // Killed before it was wiped: the next mount may wipe it.
    let mut volume = bench.open();
    bench.wait_until_quiescent(&mut volume);
    assert_eq!((volume.report().state, volume.report().members[1].at.as_str()), (VolumeState::Healthy, "../e"));
    bench.check(&mut volume, 40, 10);
}

#[test]
fn members_that_are_older_than_the_epoch_in_the_file_are_refused() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 20, 11);
    bench.close(volume);
    bench.close(bench.open());
    let file = bench.at("vol").join("volume.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    let line = text.lines().find(|line| line.starts_with("epoch = ")).expect("the epoch is kept");
    let newer = text.replace(line, "epoch = 1000");
    std::fs::write(&file, &newer).expect("there is space");
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("they are older");
    let first = format!("0 ({})", bench.at("a").display());
    assert!(error.message.contains("the volume has reached 1000") && error.help.contains(&first), "{error}");
    assert!(error.help.contains("--accept-older"), "{error}");
    let accepted = VolumeOpenOptions { accepts_losses: true, ..VolumeOpenOptions::default() };
    let error = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).map(|_| ()).expect_err("not for this");
    assert!(error.message.contains("the volume has reached 1000"), "{error}");
    std::fs::write(&file, &text).expect("there is space");
    bench.check(&mut bench.open(), 20, 11);
    // The member that was active last is lost for good.
    std::fs::write(&file, newer).expect("there is space");
    let accepted = VolumeOpenOptions { accepts_older: true, ..VolumeOpenOptions::default() };
    let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("it is accepted");
    let log = notices(&mut volume);
    assert!(log.contains("older members are accepted: the volume had reached epoch 1000"), "{log}");
    bench.check(&mut volume, 20, 11);
    bench.close(volume);
    bench.check(&mut bench.open(), 20, 11);
}

#[test]
fn an_interrupted_creation_is_continued_from_each_of_its_steps_by_the_same_command() {
    let bench = Bench::with(&["a", "b", "c"]);
    let vol = bench.at("vol");
    let new = bench.new_volume(&["a", "b", "c"], &[]);
    // Killed when it had created the directory and the lock.
    std::fs::create_dir(&vol).expect("there is space");
    std::fs::write(vol.join("lock"), "").expect("there is space");
    // While it wrote the file.
    std::fs::write(vol.join("volume.toml.new"), "format").expect("there is space");
    bench.close(VolumeDrive::create(&vol, &new, &bench.ring).expect("there was no volume"));
    let complete = std::fs::read_to_string(vol.join("volume.toml")).expect("it exists");
    assert!(!complete.contains("creating"), "{complete}");
    let creating = complete.replacen("reserve_percent", "state = \"creating\"\nreserve_percent", 1);
    for wiped in [&["a", "b", "c"][..], &["b", "c"], &["c"], &[]] {
        // Some members have their superblock, others do not.
        for name in wiped {
            remove(&bench.at(name));
            bench.make_drive(name);
        }
        std::fs::write(vol.join("volume.toml"), &creating).expect("there is space");
        let error = VolumeDrive::open(&vol, &bench.ring).map(|_| ()).expect_err("it is not complete");
        assert!(error.message.contains("was interrupted") && error.help.contains("volume create"), "{error}");
        let mut volume = VolumeDrive::create(&vol, &new, &bench.ring).expect("it is continued");
        bench.write(&mut volume, 10, 12);
        bench.check(&mut volume, 10, 12);
        bench.close(volume);
    }
    let error = VolumeDrive::create(&vol, &new, &bench.ring).map(|_| ()).expect_err("it is complete");
    assert!(error.message.contains("holds a volume already"), "{error}");
}

#[test]
fn a_creation_whose_file_cannot_be_written_changes_no_member_and_leaves_no_files() {
    let bench = Bench::with(&["a", "b", "c"]);
    let vol = bench.at("vol");
    std::fs::create_dir_all(vol.join("volume.toml.new")).expect("there is space");
    let new = bench.new_volume(&["a", "b", "c"], &[]);
    let error = VolumeDrive::create(&vol, &new, &bench.ring).map(|_| ()).expect_err("it cannot be written");
    assert!(error.message.contains("cannot write"), "{error}");
    std::fs::remove_dir(vol.join("volume.toml.new")).expect("it is empty");
    bench.close(VolumeDrive::create(&vol, &new, &bench.ring).expect("all members are empty"));
}

#[test]
fn a_copy_of_the_directory_does_not_open_the_members_of_a_volume_in_use() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    let copy = bench.at("copy");
    std::fs::create_dir(&copy).expect("there is space");
    std::fs::copy(bench.at("vol").join("volume.toml"), copy.join("volume.toml")).expect("there is space");
    let error = VolumeDrive::open(&copy, &bench.ring).map(|_| ()).expect_err("its members are in use");
    assert!(error.is_in_use && error.message.contains("is in use by another program"), "{error}");
    bench.write(&mut volume, 5, 13);
    bench.check(&mut volume, 5, 13);
}

#[test]
fn commands_complete_while_a_server_that_does_not_respond_is_being_added_as_a_spare() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = silent.local_addr().expect("it is bound").port();
    let spare = format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.zonda:silent");
    let began = std::time::Instant::now();
    let request = VolumeRequest::AddSpare { spare, may_wipe: false, credentials: Default::default() };
    let VolumeReply::Pending(id) = volume.ask(&request, &bench.ring) else {
        panic!("the connection cannot fail so soon")
    };
    bench.write(&mut volume, 10, 14);
    bench.check(&mut volume, 10, 14);
    assert!(volume.take_answer().is_none() && began.elapsed() < std::time::Duration::from_secs(9));
    assert!(matches!(volume.ask(&VolumeRequest::Report, &bench.ring), VolumeReply::Done(answer) if answer.is_ok()));
    // A long time later.
    volume.poll(bench.ring.now() + zonda_zoned::Duration(30_000_000_000), &mut CompletionQueue::new());
    let (answered, answer) = volume.take_answer().expect("there is a timeout");
    let error = answer.expect_err("the server does not respond");
    assert!(answered == id && error.to_string().contains("127.0.0.1"), "{error}");
    assert_eq!(volume.report().spares, Vec::<String>::new());
}
