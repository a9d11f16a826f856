//! Progress reports of long mounts.

use super::sides_tests::Bench;
use super::{VolumeDrive, VolumeOpenOptions};
use crate::mock;

#[test]
fn a_mount_that_waits_for_space_names_the_member_and_continues_once_space_is_freed() {
    let mut waited = 0;
    // After some crashes the mount has to write.
    for steps in 1..30 {
        let bench = Bench::new();
        let mut volume = VolumeDrive::open(&bench.vol(), &bench.ring).expect("there is a volume");
        mock::crash_in(Some(steps));
        bench.write(&mut volume);
        drop(volume);
        mock::restart();
        let set_all = |is_out_of_space| (0..3).for_each(|at| mock::set_out_of_space(&bench.drive(at), is_out_of_space));
        set_all(true);
        let mut log: Vec<String> = Vec::new();
        let opened =
            VolumeDrive::open_watched(&bench.vol(), &VolumeOpenOptions::default(), &bench.ring, &mut |notice| {
                if log.len() == 3 {
                    set_all(false);
                }
                log.push(notice.text);
            });
        drop(opened.expect("there is space again"));
        if log.len() < 3 {
            continue;
        }
        waited += 1;
        let waits = "assembly waits: no space is left for member ";
        assert!(log[0].starts_with(waits) && log[0].ends_with("): free space on its file system"), "{log:?}");
        assert!(log[1].starts_with("assembling for 5 s: "), "{log:?}");
        assert_eq!(log.iter().filter(|text| text.starts_with(waits)).count(), 1, "it is reported once: {log:?}");
    }
    assert!(waited > 0, "a mount has waited");
}
