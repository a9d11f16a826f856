//! Reports of a volume whose members are on full file systems.

use zonda_zoned::Duration;

use super::sides_tests::Bench;
use super::{VolumeDrive, VolumeReply, VolumeRequest, VolumeState};
use crate::mock;

fn notices(volume: &mut VolumeDrive) -> Vec<String> {
    std::iter::from_fn(|| volume.take_notice()).map(|notice| notice.text).collect()
}

#[test]
fn a_volume_that_has_no_space_to_record_a_failed_member_is_suspended_and_names_members_and_cause() {
    let bench = Bench::new();
    let mut volume = VolumeDrive::open(&bench.vol(), &bench.ring).expect("there is a volume");
    (0..3).for_each(|at| mock::set_out_of_space(&bench.drive(at), true));
    let reply = volume.ask(&VolumeRequest::Fail { member: "0".to_owned() }, &bench.ring);
    assert!(matches!(reply, VolumeReply::Pending(_)));
    bench.wait(&mut volume, Duration::from_secs(20));
    let report = volume.report();
    assert_eq!(report.state, VolumeState::Suspended);
    let members: Vec<_> =
        report.members.iter().map(|member| (member.suspended.as_deref(), member.lacks_space)).collect();
    let waits = (Some("has no space left on its file system"), true);
    assert_eq!(members, [(None, false), waits, waits]);
    assert_eq!(
        report.members.iter().map(|member| member.errors).max(),
        Some(0),
        "lack of space is no error of a member"
    );
    let log = notices(&mut volume);
    let suspended = "has no space left to record the states of the members: free space on its file system";
    let count = |log: &[String], end: &str| log.iter().filter(|text| text.ends_with(end)).count();
    assert_eq!(count(&log, suspended), 1, "{log:?}");
    (0..3).for_each(|at| mock::set_out_of_space(&bench.drive(at), false));
    bench.wait(&mut volume, Duration::from_secs(2));
    assert_eq!(volume.report().state, VolumeState::Degraded);
    let log = notices(&mut volume);
    assert_eq!(count(&log, "I/O is resumed: the states of the members are recorded"), 1, "{log:?}");
}
