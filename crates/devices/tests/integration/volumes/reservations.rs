//! What hosts have reserved of a volume is in its directory, durably, or the volume is refused.

use std::fs;

use zonda_devices::{CheckReport, Drive, VolumeDrive};
use zonda_ring::Bytes;
use zonda_zoned::Instant;

use super::Bench;

const KEPT: &[u8] = b"what a server has kept";

fn keep(volume: &mut VolumeDrive, bytes: &'static [u8]) -> bool {
    volume.keep_reservations(Instant::ZERO, Bytes::from_static(bytes));
    volume.take_reservations_kept().expect("it ends at once")
}

/// A volume that has kept something, and is not used.
fn kept() -> Bench {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    assert_eq!(volume.kept_reservations(), Some(Bytes::new()), "a new volume has none, and can keep some");
    assert!(keep(&mut volume, KEPT));
    assert_eq!(volume.take_reservations_kept(), None, "that is told once");
    // As a server that is killed leaves it.
    drop(volume);
    bench
}

fn open(bench: &Bench) -> Result<VolumeDrive, String> {
    VolumeDrive::open(&bench.at("vol"), &bench.ring).map_err(|error| format!("{}; {}", error.message, error.help))
}

#[test]
fn what_was_kept_is_found_by_the_next_server_and_nothing_once_nothing_is_kept() {
    let bench = kept();
    let mut volume = open(&bench).expect("it is whole");
    assert_eq!(volume.kept_reservations(), Some(Bytes::from_static(KEPT)));
    assert!(keep(&mut volume, b""));
    drop(volume);
    let volume = open(&bench).expect("it is whole");
    assert_eq!(volume.kept_reservations(), Some(Bytes::new()));
    drop(volume);
    fs::remove_file(bench.at("vol/reservations")).expect("it says that nothing is kept");
    assert!(open(&bench).is_ok(), "nothing is lost with it");
}

#[test]
fn a_volume_whose_reservations_are_damaged_lost_or_of_another_volume_is_refused() {
    let bench = kept();
    let place = bench.at("vol/reservations");
    let whole = fs::read(&place).expect("it exists");
    let of_other = {
        let bench = kept();
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
            Some(content) => fs::write(&place, content).expect("there is room"),
            None => fs::remove_file(&place).expect("it exists"),
        }
        let error = open(&bench).err().expect("hosts that were shut out would write");
        assert!(error.contains(words) && error.contains("keeps_reservations"), "{error}");
        let report = CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it can be looked at");
        assert!(!report.is_well() && report.refusal.is_some_and(|(what, _)| what.contains(words)));
    }
    // The remedies: the file from a copy, or no reservation.
    fs::write(&place, whole).expect("there is room");
    assert!(open(&bench).is_ok());
    fs::remove_file(&place).expect("it exists");
    let file = bench.at("vol/volume.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, text.replace("keeps_reservations = true\n", "")).expect("there is room");
    assert_eq!(open(&bench).expect("it is whole").kept_reservations(), Some(Bytes::new()));
}

#[test]
fn what_cannot_be_written_is_not_kept_and_what_was_before_is() {
    let bench = kept();
    let mut volume = open(&bench).expect("it is whole");
    fs::create_dir(bench.at("vol/reservations.new")).expect("there is none");
    assert!(!keep(&mut volume, b"more"));
    assert_eq!(volume.kept_reservations(), Some(Bytes::from_static(KEPT)));
    let notice = std::iter::from_fn(|| volume.take_notice()).find(|notice| notice.text.contains("reservations"));
    assert!(notice.expect("the log has it").is_trouble);
    fs::remove_dir(bench.at("vol/reservations.new")).expect("it was made");
    assert!(keep(&mut volume, b"more"));
    drop(volume);
    assert_eq!(open(&bench).expect("it is whole").kept_reservations(), Some(Bytes::from_static(b"more")));
}
