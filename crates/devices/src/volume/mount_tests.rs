//! What a mount that takes long reports.

use super::sides_tests::Bench;
use super::{VolumeDrive, VolumeOpenOptions};
use crate::shelf;

#[test]
fn a_mount_that_waits_for_space_says_where_and_goes_on_once_it_is_freed() {
    let mut waited = 0;
    // Some crashes leave the mount something to write.
    for steps in 1..30 {
        let bench = Bench::new();
        let mut volume = VolumeDrive::open(&bench.vol(), &bench.ring).expect("there is a volume");
        shelf::crash_in(Some(steps));
        bench.write(&mut volume);
        drop(volume);
        shelf::revive();
        let set_all =
            |is_out_of_space| (0..3).for_each(|at| shelf::set_out_of_space(&bench.drive(at), is_out_of_space));
        set_all(true);
        let mut told: Vec<String> = Vec::new();
        let opened =
            VolumeDrive::open_watched(&bench.vol(), &VolumeOpenOptions::default(), &bench.ring, &mut |notice| {
                if told.len() == 3 {
                    set_all(false);
                }
                told.push(notice.text);
            });
        drop(opened.expect("there is space again"));
        if told.len() < 3 {
            continue;
        }
        waited += 1;
        let waits = "the mount waits: there is no space for member ";
        assert!(told[0].starts_with(waits) && told[0].ends_with("): free space where it is kept"), "{told:?}");
        assert!(told[1].starts_with("mounting for 5 s: "), "{told:?}");
        assert_eq!(told.iter().filter(|text| text.starts_with(waits)).count(), 1, "it is told once: {told:?}");
    }
    assert!(waited > 0, "a mount has waited");
}
