//! The reservations of hosts are saved durably for each namespace, in the directory of the pool.

use std::fs;

use zonda_devices::{Drive, DriveError, PoolDrive, PoolNamespace, PoolRequest};
use zonda_ring::Bytes;
use zonda_zoned::Instant;

use super::Bench;

const SAVED: &[u8] = b"saved by a server";

fn save(namespace: &mut PoolNamespace, bytes: &'static [u8]) -> bool {
    namespace.save_reservations(Instant::ZERO, Bytes::from_static(bytes));
    namespace.take_reservations_saved().expect("it completes at once")
}

fn saved(pool: &PoolDrive, name: &str) -> Bytes {
    let namespace = pool.namespace(name).expect("it exists");
    namespace.saved_reservations().expect("a pool supports saving them")
}

fn refusal(pool: &PoolDrive, name: &str) -> DriveError {
    pool.namespace(name).err().expect("hosts that are locked out could write")
}

/// The file with the reservations of the only namespace that has some.
fn file_of(bench: &Bench) -> std::path::PathBuf {
    let files = bench.files("pool").into_keys();
    let mut own =
        files.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"reserv")));
    own.next().expect("reservations were saved")
}

/// A pool whose namespace `db` has saved reservations.
fn with_saved() -> (Bench, PoolDrive) {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let mut db = pool.namespace("db").expect("it exists");
    assert_eq!(db.saved_reservations(), Some(Bytes::new()), "a new namespace has none, and supports saving them");
    assert!(save(&mut db, SAVED));
    assert_eq!(db.take_reservations_saved(), None, "the result is reported once");
    drop(db);
    (bench, pool)
}

#[test]
fn saved_reservations_are_those_of_one_namespace_and_are_restored_by_the_next_server() {
    let (bench, pool) = with_saved();
    bench.close_pool(pool);
    let pool = bench.open();
    assert_eq!((saved(&pool, "db"), saved(&pool, "log")), (Bytes::from_static(SAVED), Bytes::new()));
    let mut db = pool.namespace("db").expect("it exists");
    fs::create_dir(bench.at("pool/reservations.new")).expect("it does not exist");
    assert!(!save(&mut db, b"more"), "no file can be written");
    assert_eq!(db.saved_reservations(), Some(Bytes::from_static(SAVED)));
    let warning = db.take_warning().expect("the log has it");
    assert!(warning.starts_with("cannot save a change of reservations: "), "{warning}");
    fs::remove_dir(bench.at("pool/reservations.new")).expect("it was created");
    assert!(save(&mut db, b"") && !file_of_exists(&bench));
    drop(db);
    bench.close_pool(pool);
    assert_eq!(saved(&bench.open(), "db"), Bytes::new());
}

fn file_of_exists(bench: &Bench) -> bool {
    let is_own = |path: &std::path::Path| path.to_string_lossy().contains("reservations-");
    bench.files("pool").into_keys().any(|path| is_own(&path))
}

#[test]
fn a_namespace_whose_reservations_are_damaged_or_lost_is_refused_and_others_are_not() {
    let (bench, pool) = with_saved();
    let place = file_of(&bench);
    let whole = fs::read(&place).expect("it exists");
    let mut damaged = whole.clone();
    *damaged.last_mut().expect("it has bytes") ^= 1;
    let mut of_other = whole.clone();
    of_other[20] ^= 1;
    for (content, words) in [(Some(damaged), "damaged"), (Some(of_other), "damaged"), (None, "are lost")] {
        match content {
            Some(content) => fs::write(&place, content).expect("there is space"),
            None => fs::remove_file(&place).expect("it exists"),
        }
        let error = refusal(&pool, "db");
        assert!(error.message.contains("of namespace \"db\"") && error.message.contains(words), "{error}");
        assert!(error.help.contains("keeps_reservations of"), "{error}");
        assert_eq!(saved(&pool, "log"), Bytes::new());
    }
    bench.close_pool(pool);
    // The remedies: restoring the file from a copy, or removing the entry.
    fs::write(&place, whole).expect("there is space");
    let pool = bench.open();
    assert_eq!(saved(&pool, "db"), Bytes::from_static(SAVED));
    bench.close_pool(pool);
    fs::remove_file(&place).expect("it exists");
    let file = bench.at("pool/pool.toml");
    let text = fs::read_to_string(&file).expect("it exists");
    let line = text.lines().find(|line| line.starts_with("keeps_reservations = [\"")).expect("it lists the namespace");
    fs::write(&file, text.replace(line, "")).expect("there is space");
    assert_eq!(saved(&bench.open(), "db"), Bytes::new());
}

#[test]
fn a_namespace_that_is_deleted_and_created_again_has_no_reservations() {
    let (bench, pool) = with_saved();
    let place = file_of(&bench);
    let before = fs::read(&place).expect("it exists");
    pool.manage(&PoolRequest::Delete { name: "db".to_owned() }, &bench.ring).expect("it is not in use");
    assert!(!place.exists(), "they are removed with the namespace");
    let text = fs::read_to_string(bench.at("pool/pool.toml")).expect("it exists");
    assert!(!text.contains("keeps_reservations"), "{text}");
    bench.add(&pool, "db", 3).expect("there is space");
    assert_eq!(saved(&pool, "db"), Bytes::new());
    bench.close_pool(pool);
    // A file that a crash has left is not that of the new one, which has another UUID.
    fs::write(&place, before).expect("there is space");
    assert_eq!(saved(&bench.open(), "db"), Bytes::new());
}

#[test]
fn reservations_belong_to_a_namespace_whichever_copy_of_the_drive_has_it() {
    let (bench, pool) = with_saved();
    bench.close_pool(pool);
    bench.copy("a", "old");
    let pool = bench.open();
    let mut db = pool.namespace("db").expect("it exists");
    assert!(save(&mut db, b"newer"));
    drop(db);
    bench.close_pool(pool);
    bench.copy("old", "a");
    assert!(bench.refusal().message.contains("old copy"));
    let file = bench.at("pool/pool.toml");
    let text = fs::read_to_string(&file).expect("it exists");
    let epoch = text.lines().find(|line| line.starts_with("epoch = ")).expect("it has one").to_owned();
    fs::write(&file, text.replace(&epoch, "")).expect("there is space");
    // The operator accepts the old copy: hosts that are locked out now stay locked out.
    assert_eq!(saved(&bench.open(), "db"), Bytes::from_static(b"newer"));
}
