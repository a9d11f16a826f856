//! The reservations of hosts are saved durably in the directory of a volume; if they are lost, the
//! mount is refused.

use std::fs;

use zonda_devices::{CheckReport, Drive, VolumeDrive};
use zonda_ring::Bytes;
use zonda_zoned::Instant;

use super::Bench;

const SAVED: &[u8] = b"saved by a server";

fn save(volume: &mut VolumeDrive, bytes: &'static [u8]) -> bool {
    volume.save_reservations(Instant::ZERO, Bytes::from_static(bytes));
    volume.take_reservations_saved().expect("it completes at once")
}

/// An unused volume with saved reservations.
fn with_saved() -> Bench {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    assert_eq!(volume.saved_reservations(), Some(Bytes::new()), "a new volume has none, and supports saving them");
    assert!(save(&mut volume, SAVED));
    assert_eq!(volume.take_reservations_saved(), None, "the result is reported once");
    // As left by a killed server.
    drop(volume);
    bench
}

fn open(bench: &Bench) -> Result<VolumeDrive, String> {
    VolumeDrive::open(&bench.at("vol"), &bench.ring).map_err(|error| format!("{}; {}", error.message, error.help))
}

#[test]
fn saved_reservations_are_restored_by_the_next_server_and_can_be_removed() {
    let bench = with_saved();
    let mut volume = open(&bench).expect("it is intact");
    assert_eq!(volume.saved_reservations(), Some(Bytes::from_static(SAVED)));
    assert!(save(&mut volume, b""));
    drop(volume);
    let volume = open(&bench).expect("it is intact");
    assert_eq!(volume.saved_reservations(), Some(Bytes::new()));
    drop(volume);
    fs::remove_file(bench.at("vol/reservations")).expect("the file exists");
    assert!(open(&bench).is_ok(), "it had no reservations");
}

#[test]
fn a_volume_whose_reservations_are_damaged_lost_or_of_another_volume_is_refused() {
    let bench = with_saved();
    let place = bench.at("vol/reservations");
    let whole = fs::read(&place).expect("it exists");
    let of_other = {
        let bench = with_saved();
        fs::read(bench.at("vol/reservations")).expect("it exists")
    };
    let mut damaged = whole.clone();
    *damaged.last_mut().expect("it has bytes") ^= 1;
    let cases = [
        (Some(damaged), "damaged"),
        (Some(whole[..20].to_vec()), "damaged"),
        (Some([&whole[..], &[0; 5000]].concat()), "damaged"),
        (Some(of_other), "another volume"),
        (None, "lost"),
    ];
    for (content, words) in cases {
        match content {
            Some(content) => fs::write(&place, content).expect("there is space"),
            None => fs::remove_file(&place).expect("it exists"),
        }
        let error = open(&bench).err().expect("hosts that are locked out could write");
        assert!(error.contains(words) && error.contains("keeps_reservations"), "{error}");
        let report = CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it is not in use");
        assert!(!report.is_healthy() && report.refusal.is_some_and(|(what, _)| what.contains(words)));
    }
    // The remedies: restoring the file from a copy, or removing all reservations.
    fs::write(&place, whole).expect("there is space");
    assert!(open(&bench).is_ok());
    fs::remove_file(&place).expect("it exists");
    let file = bench.at("vol/volume.toml");
    let text = fs::read_to_string(&file).expect("it exists");
    fs::write(&file, text.replace("keeps_reservations = true\n", "")).expect("there is space");
    assert_eq!(open(&bench).expect("it is intact").saved_reservations(), Some(Bytes::new()));
}

#[test]
fn reservations_that_cannot_be_saved_leave_the_previous_ones() {
    let bench = with_saved();
    let mut volume = open(&bench).expect("it is intact");
    fs::create_dir(bench.at("vol/reservations.new")).expect("it does not exist");
    assert!(!save(&mut volume, b"more"));
    assert_eq!(volume.saved_reservations(), Some(Bytes::from_static(SAVED)));
    let notice = std::iter::from_fn(|| volume.take_notice()).find(|notice| notice.text.contains("reservations"));
    assert!(notice.expect("the log has it").is_warning);
    fs::remove_dir(bench.at("vol/reservations.new")).expect("it was created");
    assert!(save(&mut volume, b"more"));
    drop(volume);
    assert_eq!(open(&bench).expect("it is intact").saved_reservations(), Some(Bytes::from_static(b"more")));
}
