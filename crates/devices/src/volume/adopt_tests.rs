//! Drives that are refused as members or spares.

use std::path::{Path, PathBuf};

use zonda_raid::Scheme;
use zonda_zoned::{Duration, Status};

use super::owner_tests::{Bench, fail_member};
use super::{VolumeDrive, VolumeRequest};
use crate::{Credentials, DriveError, mock};

/// A remote drive with this number of zones.
fn add_drive(bench: &Bench, name: &str, zones: u32) -> PathBuf {
    let drive = bench.above.path().join(name);
    mock::add(&drive, &mock::geometry(zones));
    mock::set_remote(&drive);
    drive
}

fn ask(bench: &mut Bench, at: usize, request: &VolumeRequest) -> Result<(), DriveError> {
    let volume: &mut VolumeDrive = bench.volumes[at].as_mut().expect("it is open");
    let answer = mock::as_program(at, || volume.manage(request, &bench.ring)).map(|_| ());
    mock::as_program(at, || bench.run(at, Duration::from_secs(5)));
    answer
}

fn replace(drive: &Path) -> VolumeRequest {
    let with = drive.display().to_string();
    VolumeRequest::Replace { member: "0".to_owned(), with, may_wipe: true, credentials: Credentials::default() }
}

fn add_spare(drive: &Path) -> VolumeRequest {
    let spare = drive.display().to_string();
    VolumeRequest::AddSpare { spare, may_wipe: true, credentials: Credentials::default() }
}

#[test]
fn a_drive_that_cannot_replace_a_member_is_refused_alike_as_a_member_and_as_a_spare_and_released() {
    for is_taken_over in [false, true] {
        let mut bench = Bench::of(Scheme::raid5(2));
        fail_member(&mut bench);
        let at = usize::from(is_taken_over);
        if is_taken_over {
            std::fs::copy(bench.directory(0).join("volume.toml"), bench.directory(1).join("volume.toml"))
                .expect("there is space");
            bench.take_over(1);
            bench.open(1).expect("it was taken over");
        }
        let small = add_drive(&bench, "small", 16);
        let expected = "the drive does not suit the volume: it has 16 zones, but at least 32 are needed";
        for request in [replace(&small), add_spare(&small)] {
            let error = ask(&mut bench, at, &request).expect_err("it is too small");
            assert!(error.message.contains(expected), "{error}");
            assert_eq!(error.help, "name another drive");
            assert_eq!(mock::holder(&small), None, "it is released");
        }
        let suited = add_drive(&bench, "suited", 32);
        ask(&mut bench, at, &add_spare(&suited)).expect("it is suited");
        assert!(mock::holder(&suited).is_some());
        assert_eq!(mock::as_program(at, || bench.write(at, 0, 1)), Status::Success);
    }
}
