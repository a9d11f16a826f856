//! Members whose drives were restored from a copy from before the last mount.

use zonda_devices::{ImportOptions, ImportReport, VolumeReport};
use zonda_raid::Level;

use super::*;

impl Bench {
    /// Replaces the drive by its copy.
    fn restore(&self, copy: &str, name: &str) {
        remove(&self.at(name));
        self.copy(copy, name);
    }

    /// A volume on these drives, and one more mount without writes; the last drive is restored from
    /// before that.
    fn with_older_copy(names: &[&str], level: Level) -> Bench {
        let bench = Bench::with(names);
        let scheme = Scheme::over(names.len(), Some(level), None).expect("there are enough");
        let new = NewVolume { scheme, ..bench.new_volume(names, &[]) };
        let mut volume = VolumeDrive::create(&bench.at("vol"), &new, &bench.ring).expect("the members are suitable");
        bench.write(&mut volume, 10, 1);
        bench.close(volume);
        let last = names[names.len() - 1];
        bench.copy(last, "copy");
        bench.close(bench.open());
        bench.restore("copy", last);
        bench
    }

    fn refusal(&self) -> DriveError {
        VolumeDrive::open(&self.at("vol"), &self.ring).map(|_| ()).expect_err("it is refused")
    }
}

#[test]
fn a_needed_member_from_before_the_last_mount_is_refused_until_that_is_accepted() {
    for (names, level, away) in [(&["a", "b"][..], Level::Raid0, None), (&["a", "b", "c"], Level::Raid5, Some("a"))] {
        let bench = Bench::with_older_copy(names, level);
        if let Some(away) = away {
            remove(&bench.at(away));
        }
        let error = bench.refusal();
        assert!(error.message.contains("missing or out of date"), "{error}");
        assert!(error.help.contains("--accept-older"), "{error}");
        let looked = VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
        assert_eq!(looked.members.last().expect("the list is not empty").state, "failed");
        let accepted = VolumeOpenOptions { accepts_older: true, ..VolumeOpenOptions::default() };
        // Blocks that the last mount relocated may be lost: that is what is accepted.
        let volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("it is accepted");
        bench.close(volume);
        bench.close(bench.open());
    }
}

#[test]
fn a_redundant_member_from_before_the_last_mount_is_treated_as_failed() {
    let bench = Bench::with_older_copy(&["a", "b", "c"], Level::Raid5);
    let mut volume = bench.open();
    bench.check(&mut volume, 10, 1);
    let log = notices(&mut volume);
    assert!(log.contains("member 2 (../c)"), "{log}");
}

#[test]
fn a_copy_of_a_mirror_member_from_before_the_other_one_was_readded_does_not_split_the_volume() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "a".to_owned() }).expect("it is redundant");
    bench.write(&mut volume, 10, 2);
    bench.close(volume);
    bench.copy("b", "copy");
    let mut volume = bench.open();
    bench.ask(&mut volume, &VolumeRequest::Readd { member: "a".to_owned() }).expect("it is the member");
    bench.wait_until_quiescent(&mut volume);
    bench.write(&mut volume, 10, 3);
    assert_eq!(volume.report().state, VolumeState::Healthy);
    bench.close(volume);
    bench.restore("copy", "b");
    for _ in 0..3 {
        let keeps = VolumeOpenOptions { keeps_members: true, ..VolumeOpenOptions::default() };
        let mut volume = VolumeDrive::open_with(&bench.at("vol"), &keeps, &bench.ring).expect("one copy is enough");
        bench.check(&mut volume, 10, 3);
        bench.close(volume);
    }
    let mut volume = bench.open();
    bench.ask(&mut volume, &VolumeRequest::Readd { member: "b".to_owned() }).expect("it was not written independently");
    bench.wait_until_quiescent(&mut volume);
    bench.close(volume);
    remove(&bench.at("a"));
    bench.check(&mut bench.open(), 10, 3);
}

#[test]
fn drives_that_differ_only_by_a_mount_are_imported_by_force() {
    let bench = Bench::with_older_copy(&["a", "b"], Level::Raid0);
    remove(&bench.at("vol"));
    let members = ["b", "a"].iter().map(|name| Location::Image(bench.at(name))).collect();
    let options = ImportOptions { members, ..ImportOptions::default() };
    let error = ImportReport::of(&bench.at("vol"), &options).expect_err("b may be an older copy");
    assert!(
        error.message.contains("an older copy, or not updated by the last assembly") && error.help.contains("--force"),
        "{error}"
    );
    let report = ImportReport::of(&bench.at("vol"), &ImportOptions { force: true, ..options }).expect("it is forced");
    let log = report.warnings.join(" ");
    assert!(log.contains("/b has epoch") && log.contains("an assembly was interrupted"), "{log}");
    bench.close(bench.open());
}
