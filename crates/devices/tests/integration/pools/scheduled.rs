//! A pool with a scheduler before its drive, and with the latencies of its profile.

use zonda_devices::{PoolDrive, PoolOpenOptions, PoolRequest};
use zonda_sched::{EznsConfig, MqDeadlineConfig, Policy};
use zonda_zoned::{Blocks, Duration, Lba, Operation, Status};

use super::Bench;

#[test]
fn tenants_use_a_pool_through_a_scheduler_and_what_they_write_is_there_without_it() {
    let bench = Bench::new();
    let pool = bench.create();
    bench.add(&pool, "db", 3).expect("there is space");
    bench.close_pool(pool);
    let policies = [Policy::Ezns(EznsConfig::default()), Policy::MqDeadline(MqDeadlineConfig::default())];
    for (zone, scheduler) in policies.into_iter().enumerate() {
        let (zone, name, salt) = (zone as u64, ["ezns", "mq-deadline"][zone], 10 * zone as u8 + 1);
        let options = PoolOpenOptions { scheduler, is_paced: false };
        let pool = PoolDrive::open_with(&bench.at("pool"), &options, &bench.ring).expect("there is a pool");
        assert_eq!((pool.options(), pool.report().scheduler.as_deref()), (options, Some(name)));
        bench.add(&pool, "log", 3).expect("there is space");
        let (mut db, mut log) = (pool.namespace("db").expect("it exists"), pool.namespace("log").expect("it exists"));
        bench.write(&mut db, zone, 40, salt);
        bench.write(&mut log, zone, 20, salt + 1);
        bench.check(&mut db, zone, 40, salt);
        assert_eq!(bench.execute(&mut log, Operation::Flush).status, Status::Success);
        drop((db, log));
        bench.close_pool(pool);
        let pool = bench.open();
        assert_eq!(pool.report().scheduler, None);
        bench.check(&mut pool.namespace("db").expect("it exists"), zone, 40, salt);
        bench.check(&mut pool.namespace("log").expect("it exists"), zone, 20, salt + 1);
        pool.manage(&PoolRequest::Delete { name: "log".to_owned() }, &bench.ring).expect("it is not in use");
        bench.close_pool(pool);
    }
}

#[test]
fn a_pool_has_the_latencies_of_the_profile_of_its_drive() {
    let bench = Bench::new();
    let pool = bench.with_namespaces();
    let mut db = pool.namespace("db").expect("it exists");
    bench.write(&mut db, 0, 40, 3);
    bench.close(db);
    drop(pool);
    let options = PoolOpenOptions { scheduler: Policy::Ezns(EznsConfig::default()), is_paced: true };
    let pool = PoolDrive::open_with(&bench.at("pool"), &options, &bench.ring).expect("there is a pool");
    let mut db = pool.namespace("db").expect("it exists");
    let before = bench.ring.now();
    for block in (0..100).rev() {
        let read = Operation::Read { start: Lba(block * 6), blocks: Blocks(1) };
        assert_eq!(bench.execute(&mut db, read).status, Status::Success);
    }
    // One after the other, each from flash: 73 us each according to the profile.
    assert!(bench.ring.now().since(before) >= Duration::from_micros(100 * 50), "it cannot be faster than its dies");
    bench.check(&mut db, 0, 40, 3);
    bench.write(&mut db, 1, 40, 4);
    bench.check(&mut db, 1, 40, 4);
    bench.close(db);
    drop(pool);
    let pool = bench.open();
    bench.check(&mut pool.namespace("db").expect("it exists"), 1, 40, 4);
    bench.close_pool(pool);
}
