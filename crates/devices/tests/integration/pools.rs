//! Pools on images on a real file system.

mod damaged;
mod reservations;
mod scheduled;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_devices::{
    Drive, DriveError, DriveUser, Location, NamespaceSize, NewNamespace, NewPool, NewVolume, PoolDrive, PoolNamespace,
    PoolOptions, PoolReport, PoolRequest, VolumeDrive, create_image, sized, user_of_image,
};
use zonda_raid::Scheme;
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Lba, NamespaceId, Operation, Outcome,
    Payload, Status, ZoneAction, ZoneTarget, ZonedDevice,
};

use crate::PROFILES;

/// A directory with a drive `a` of forty zones of 1 MiB, and a ring.
struct Bench {
    above: TempDir,
    ring: Ring,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            above: TempDir::new().expect("there is space"),
            ring: Ring::new(RingOptions::default()).expect("there is an event loop"),
        };
        bench.make_drive("a");
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.above.path().join(name)
    }

    fn make_drive(&self, name: &str) {
        let spec = sized("zn540", Some(40), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
        create_image(&self.at(name), &spec.plan(&PROFILES).expect("it can be so small")).expect("there is space");
    }

    /// Copies the files of a directory over those of another.
    fn copy(&self, from: &str, to: &str) {
        std::fs::create_dir_all(self.at(to)).expect("there is space");
        for entry in std::fs::read_dir(self.at(from)).expect("it exists") {
            let entry = entry.expect("it can be read");
            std::fs::copy(entry.path(), self.at(to).join(entry.file_name())).expect("there is space");
        }
    }

    fn new_pool(&self) -> NewPool {
        let options = PoolOptions { zones_per_vzone: Some(4), width_max: Some(4), ..PoolOptions::default() };
        NewPool { options, ..NewPool::on(Location::Image(self.at("a"))) }
    }

    fn try_create(&self, new: &NewPool) -> Result<PoolDrive, DriveError> {
        PoolDrive::create(&self.at("pool"), new, &self.ring)
    }

    fn create(&self) -> PoolDrive {
        self.try_create(&self.new_pool()).expect("the drive is suitable")
    }

    /// A pool with the namespaces `db` and `log`, of three zones each.
    fn with_namespaces(&self) -> PoolDrive {
        let pool = self.create();
        for name in ["db", "log"] {
            self.add(&pool, name, 3).expect("there is space");
        }
        pool
    }

    fn open(&self) -> PoolDrive {
        PoolDrive::open(&self.at("pool"), &self.ring).expect("there is a pool")
    }

    fn refusal(&self) -> DriveError {
        PoolDrive::open(&self.at("pool"), &self.ring).err().expect("it cannot be opened")
    }

    fn add(&self, pool: &PoolDrive, name: &str, zones: u32) -> Result<PoolReport, DriveError> {
        let new =
            NewNamespace { name: name.to_owned(), size: NamespaceSize::Zones(zones), max_active_zones: 3, weight: 1 };
        pool.manage(&PoolRequest::Create(new), &self.ring)
    }

    fn execute(&self, drive: &mut PoolNamespace, operation: Operation) -> Completion {
        let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
        drive.submit(self.ring.now(), command).expect("there is a queue slot");
        self.ended(drive)
    }

    fn ended(&self, drive: &mut PoolNamespace) -> Completion {
        let mut completions = CompletionQueue::new();
        loop {
            drive.poll(self.ring.now(), &mut completions);
            if let Some(completion) = completions.pop() {
                return completion;
            }
            self.ring.run_once(drive.next_timeout()).expect("the loop works");
        }
    }

    /// Pieces of 64 KiB from the start of a zone, each filled with its number and `salt`.
    fn write(&self, drive: &mut PoolNamespace, zone: u64, pieces: u64, salt: u8) {
        let start = zone * drive.geometry(NamespaceId::FIRST).zone_size_blocks.0;
        for piece in 0..pieces {
            let write = write(start + piece * 16, piece as u8 ^ salt);
            assert_eq!(self.execute(drive, write).status, Status::Success);
        }
    }

    fn check(&self, drive: &mut PoolNamespace, zone: u64, pieces: u64, salt: u8) {
        let start = zone * drive.geometry(NamespaceId::FIRST).zone_size_blocks.0;
        for piece in 0..pieces {
            let read = Operation::Read { start: Lba(start + piece * 16), blocks: Blocks(16) };
            let completion = self.execute(drive, read);
            let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else {
                panic!("piece {piece}: {}", completion.status)
            };
            assert!(buffer.data.iter().all(|byte| *byte == piece as u8 ^ salt), "piece {piece}");
        }
    }

    /// Closes a namespace, and the pool with the last one.
    fn close(&self, mut drive: PoolNamespace) {
        let mut completions = CompletionQueue::new();
        drive.close(self.ring.now());
        while !drive.is_closed() {
            drive.poll(self.ring.now(), &mut completions);
            self.ring.run_once(Some(self.ring.now() + zonda_zoned::Duration(1_000_000))).expect("the loop works");
        }
        assert_eq!(drive.close_error(), None);
    }

    fn close_pool(&self, pool: PoolDrive) {
        pool.close(&self.ring).expect("it can be closed");
    }

    fn inspect(&self) -> PoolReport {
        PoolReport::inspect(&self.at("pool")).expect("it can be read")
    }

    /// The contents of all files of a directory.
    fn files(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(self.at(name)).expect("it exists");
        entries.map(|entry| entry.expect("it can be read").path()).map(|path| (path.clone(), bytes(&path))).collect()
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it can be read")
}

fn write(start: u64, byte: u8) -> Operation {
    let data = vec![byte; 65_536].into();
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
    Operation::Write { start: Lba(start), blocks: Blocks(16), payload }
}

#[test]
fn what_tenants_have_written_persists_over_close_and_open() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    for (name, salt) in [("db", 1), ("log", 101)] {
        let mut namespace = pool.namespace(name).expect("it exists");
        (0..2).for_each(|zone| bench.write(&mut namespace, zone, 40, salt + zone as u8));
        // It is not closed, as in a crash.
        std::mem::forget(namespace);
    }
    drop(pool);
    // The process keeps the locks, and the files are what a crash leaves.
    for file in ["a", "pool"] {
        bench.copy(file, &format!("crashed/{file}"));
    }
    let crashed = PoolDrive::open(&bench.at("crashed/pool"), &bench.ring).expect("it recovers");
    let names: Vec<String> = crashed.report().namespaces.into_iter().map(|namespace| namespace.name).collect();
    assert_eq!(names, ["db", "log"]);
    let (mut db, mut log) = (crashed.namespace("db").expect("it exists"), crashed.namespace("log").expect("it exists"));
    for zone in 0..2 {
        bench.check(&mut db, zone, 40, 1 + zone as u8);
        bench.check(&mut log, zone, 40, 101 + zone as u8);
    }
    bench.write(&mut db, 2, 3, 7);
    bench.close(db);
    assert!(crashed.is_open(), "a namespace is in use");
    bench.close(log);
    assert!(!crashed.is_open(), "no namespace is in use any more");
    drop(crashed);
    let again = PoolDrive::open(&bench.at("crashed/pool"), &bench.ring).expect("it was closed");
    bench.check(&mut again.namespace("db").expect("it exists"), 2, 3, 7);
    bench.close_pool(again);
}

#[test]
fn each_namespace_receives_its_own_completions() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let (mut db, mut log) = (pool.namespace("db").expect("it exists"), pool.namespace("log").expect("it exists"));
    let now = bench.ring.now();
    // The same identifier in both, and different results.
    let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
    for (drive, operation) in [(&mut db, write(0, 5)), (&mut log, write(16, 6))] {
        drive.submit(now, Command::new(CommandId(9), NamespaceId::FIRST, operation)).expect("there is a queue slot");
    }
    let ended = bench.ended(&mut db);
    assert_eq!((ended.id, ended.status), (CommandId(9), Status::Success));
    let ended = bench.ended(&mut log);
    assert_eq!((ended.id, ended.status), (CommandId(9), Status::ZoneInvalidWrite), "not at the write pointer");
    let completion = bench.execute(&mut log, read);
    let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { panic!("{}", completion.status) };
    assert!(buffer.data.iter().all(|byte| *byte == 0), "what another tenant has written is not seen");
    let other = Command::new(CommandId(10), NamespaceId(2), Operation::Flush);
    db.submit(now, other).expect("there is a queue slot");
    assert_eq!(bench.ended(&mut db).status, Status::InvalidNamespace, "each sees one namespace, the first");
    let (db_facts, log_facts) = (db.facts(), log.facts());
    assert_eq!((db_facts.written_blocks, db_facts.active_zones), (16, 1));
    assert_eq!((log_facts.written_blocks, log_facts.active_zones), (0, 0));
    assert_ne!(db.identity(), log.identity());
    bench.close(db);
    bench.close(log);
}

#[test]
fn a_pool_in_use_is_refused_by_its_directory_and_by_its_drive() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let error = bench.refusal();
    assert!(error.is_in_use && error.message.contains("is in use by another program"), "{error}");
    let error = PoolReport::inspect(&bench.at("pool")).expect_err("its drive is locked");
    assert!(error.is_in_use, "{error}");
    // A copy of the directory is not locked, but the drive is.
    std::fs::create_dir(bench.at("copy")).expect("there is space");
    std::fs::copy(bench.at("pool/pool.toml"), bench.at("copy/pool.toml")).expect("there is space");
    let error = PoolDrive::open(&bench.at("copy"), &bench.ring).err().expect("its drive is locked");
    assert!(error.is_in_use, "{error}");
    let namespace = pool.namespace("db").expect("it exists");
    let error = pool.namespace("db").err().expect("it is in use");
    assert!(error.is_in_use, "{error}");
    drop(namespace);
    bench.close_pool(pool);
    bench.close_pool(PoolDrive::open(&bench.at("copy"), &bench.ring).expect("both are unlocked"));
}

#[test]
fn an_old_copy_of_the_drive_is_refused_and_nothing_is_written_to_it() {
    let bench = Bench::new();
    bench.close_pool(bench.with_namespaces());
    bench.copy("a", "old");
    bench.close_pool(bench.open());
    bench.copy("a", "new");
    bench.copy("old", "a");
    let before = bench.files("a");
    let error = bench.refusal();
    assert!(error.message.contains("old copy") && error.help.contains("epoch = 2"), "{error}");
    let error = PoolReport::inspect(&bench.at("pool")).expect_err("it is an old copy");
    assert!(error.message.contains("old copy"), "{error}");
    let data = |files: &BTreeMap<PathBuf, Vec<u8>>| {
        files.iter().find(|(path, _)| path.ends_with("data.zonda")).map(|(_, bytes)| bytes.clone())
    };
    assert!(data(&before).is_some() && data(&before) == data(&bench.files("a")), "no block was written");
    bench.copy("new", "a");
    bench.close_pool(bench.open());
}

#[test]
fn a_drive_that_is_used_otherwise_is_refused_unless_it_may_be_wiped() {
    let bench = Bench::new();
    bench.close_pool(bench.with_namespaces());
    let Some(DriveUser::Pool(uuid)) = user_of_image(&bench.at("a")) else { panic!("a pool uses it") };
    assert_eq!(uuid, bench.inspect().pool);
    let create = |may_wipe: bool, drive: &str| {
        let new = NewPool { may_wipe, ..NewPool::on(Location::Image(bench.at(drive))) };
        PoolDrive::create(&bench.at("other"), &new, &bench.ring)
    };
    let error = create(false, "a").err().expect("it holds a pool");
    assert!(error.message.contains(&format!("it is the drive of the pool {uuid}")), "{error}");
    assert!(!bench.at("other").exists(), "nothing is left");
    bench.close_pool(create(true, "a").expect("it may be wiped"));
    let error = bench.refusal();
    assert!(error.message.contains("the drive has the pool"), "{error}");
    std::fs::remove_dir_all(bench.at("other")).expect("it exists");
    bench.make_drive("b");
    let scheme = Scheme::over(1, None, None).expect("one is enough");
    let new = NewVolume::over(vec![Location::Image(bench.at("b"))], scheme);
    let mut volume = VolumeDrive::create(&bench.at("vol"), &new, &bench.ring).expect("the drive is empty");
    volume.close(bench.ring.now());
    while !volume.is_closed() {
        volume.poll(bench.ring.now(), &mut CompletionQueue::new());
        bench.ring.run_once(Some(bench.ring.now() + zonda_zoned::Duration(1_000_000))).expect("the loop works");
    }
    drop(volume);
    let error = create(false, "b").err().expect("it is a member");
    assert!(error.message.contains("member 0 of the volume \"vol\""), "{error}");
    let error = create(false, "vol").err().expect("a volume has no zones");
    assert!(error.message.contains("is a volume, not a zoned drive"), "{error}");
}

#[test]
fn an_interrupted_creation_is_continued_with_the_same_identity() {
    let bench = Bench::new();
    bench.close_pool(bench.create());
    let uuid = bench.inspect().pool;
    // What a crash leaves after the log was begun, and before pool.toml says that it is complete.
    let file = bench.at("pool/pool.toml");
    let text = String::from_utf8(bytes(&file)).expect("it is text").replace("epoch = 1", "state = \"creating\"");
    std::fs::write(&file, text).expect("there is space");
    let error = bench.refusal();
    assert!(error.message.contains("was interrupted") && error.help.contains("repeat zonda pool create"), "{error}");
    bench.close_pool(bench.try_create(&bench.new_pool()).expect("it continues"));
    assert_eq!(bench.inspect().pool, uuid);
    bench.close_pool(bench.open());
}

#[test]
fn a_promise_that_the_drive_cannot_keep_is_refused_when_it_is_made() {
    let bench = Bench::new();
    let pool = bench.create();
    // 34 zones for data, of which 4 are in reserve: seven zones of four each.
    assert_eq!((pool.report().usable_zones, pool.report().zones_per_vzone), (30, 4));
    let error = bench.add(&pool, "db", 8).expect_err("seven fit");
    assert_eq!(
        error.message,
        "cannot create the namespace \"db\": 8 zones (23.5 MiB) are more than the 7 zones (20.56 MiB) that are not promised to others"
    );
    assert_eq!(error.help, "make it 7 zones (20.56 MiB) at most, make other namespaces smaller, or delete one");
    bench.add(&pool, "db", 7).expect("seven fit");
    bench.add(&pool, "log", 1).expect_err("there is no space left");
    let resize = |zones| {
        let request = PoolRequest::Resize { name: "db".to_owned(), size: NamespaceSize::Zones(zones) };
        pool.manage(&request, &bench.ring)
    };
    assert_eq!(resize(6).expect("zones at the end are empty").promised_zones, 24);
    let report = bench.add(&pool, "log", 1).expect("there is space now");
    let active = report.namespace("log").map(|own| own.max_active_zones);
    assert_eq!(active, Some(3), "it may grow to more zones than it has now");
    let error = resize(7).expect_err("log has it");
    assert!(error.message.contains("\"db\": 7 zones (20.56 MiB) are more than the 6 zones (17.62 MiB)"), "{error}");
    assert_eq!(error.help, "make other namespaces smaller, or delete one");
    let error = bench.add(&pool, "log", 1).expect_err("it exists");
    assert!(error.message.contains("has a namespace \"log\" already"), "{error}");
    let delete = PoolRequest::Delete { name: "log".to_owned() };
    assert_eq!(pool.manage(&delete, &bench.ring).expect("it is not in use").namespaces.len(), 1);
    let error = pool.manage(&delete, &bench.ring).expect_err("it is deleted");
    assert!(error.is_missing && error.help.contains("the pool has \"db\""), "{error}");
    bench.close_pool(pool);
    let report = bench.inspect();
    assert_eq!((report.namespaces[0].name.as_str(), report.namespaces[0].zones, report.promised_zones), ("db", 6, 24));
}

#[test]
fn a_namespace_in_use_grows_and_cannot_be_deleted() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let mut db = pool.namespace("db").expect("it exists");
    bench.write(&mut db, 2, 4, 1);
    let resize = |zones| {
        let request = PoolRequest::Resize { name: "db".to_owned(), size: NamespaceSize::Zones(zones) };
        pool.manage(&request, &bench.ring)
    };
    resize(4).expect("there is space");
    db.poll(bench.ring.now(), &mut CompletionQueue::new());
    assert_eq!(db.geometry(NamespaceId::FIRST).zone_count, 4, "its user sees the new size");
    bench.write(&mut db, 3, 4, 2);
    let error = resize(2).expect_err("zones would lose data");
    assert!(error.message.contains("is not empty"), "{error}");
    let delete = PoolRequest::Delete { name: "db".to_owned() };
    let error = pool.manage(&delete, &bench.ring).expect_err("it is in use");
    assert!(error.is_in_use && error.help.contains("zonda reload"), "{error}");
    bench.check(&mut db, 2, 4, 1);
    let log = pool.namespace("log").expect("it exists");
    bench.close(db);
    pool.manage(&delete, &bench.ring).expect("it is not in use any more");
    bench.close(log);
}

#[test]
fn a_deleted_namespace_leaves_nothing_for_one_of_the_same_name() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let log = pool.namespace("log").expect("it exists");
    let mut db = pool.namespace("db").expect("it exists");
    bench.write(&mut db, 0, 8, 1);
    let uuid = db.identity().cloned();
    bench.close(db);
    pool.manage(&PoolRequest::Delete { name: "db".to_owned() }, &bench.ring).expect("it is not in use");
    bench.add(&pool, "db", 3).expect("there is space");
    let mut db = pool.namespace("db").expect("it exists");
    assert_ne!(db.identity().cloned(), uuid, "it is another namespace");
    let completion = bench.execute(&mut db, Operation::Read { start: Lba(0), blocks: Blocks(16) });
    let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { panic!("{}", completion.status) };
    assert!(buffer.data.iter().all(|byte| *byte == 0));
    bench.write(&mut db, 0, 2, 9);
    bench.check(&mut db, 0, 2, 9);
    bench.close(db);
    bench.close(log);
}

#[test]
fn a_report_of_a_pool_that_is_not_in_use_writes_nothing() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let mut db = pool.namespace("db").expect("it exists");
    bench.write(&mut db, 0, 8, 1);
    let finish = Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(Lba(0)) };
    assert_eq!(bench.execute(&mut db, finish).status, Status::Success);
    bench.close(db);
    drop(pool);
    let (drive, directory) = (bench.files("a"), bench.files("pool"));
    let report = bench.inspect();
    assert_eq!((report.epoch, report.drive.as_str()), (1, "../a"));
    assert_eq!(report.namespaces[0].written_bytes, 8 << 16);
    assert_eq!(bench.inspect(), report);
    assert!(bench.files("a") == drive && bench.files("pool") == directory, "a file has changed");
    let pool = bench.open();
    let mounted = pool.report();
    assert_eq!(mounted, PoolReport { epoch: 2, ..report });
    bench.close_pool(pool);
}

#[test]
fn a_drive_that_has_moved_is_missing_until_its_path_is_corrected() {
    let bench = Bench::new();
    bench.close_pool(bench.with_namespaces());
    std::fs::rename(bench.at("a"), bench.at("b")).expect("a user can");
    let error = bench.refusal();
    assert!(error.is_missing && error.help.contains("pool/pool.toml"), "{error}");
    let file = bench.at("pool/pool.toml");
    let text = String::from_utf8(bytes(&file)).expect("it is text").replace("\"../a\"", "\"../b\"");
    std::fs::write(&file, text).expect("there is space");
    bench.close_pool(bench.open());
}
