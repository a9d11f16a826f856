//! Pools of namespaces on a simulated drive, from their files to their results.

use zonda_stack::{ElasticNamespace, Experiment, ExperimentResult};

use crate::PROFILES;

/// A small drive of many zones, each on one die. Its write buffer is smaller than a stripe group.
fn drive(active: u32, keys: &str) -> String {
    format!(
        "[drive]\nprofile = \"ezns-small\"\n{keys}\nset = {{ \"geometry.zone_size\" = \"6 MiB\", \
         \"geometry.zone_capacity\" = \"6 MiB\", \"flash.erase_unit\" = \"3 MiB\", \"write_buffer.capacity\" = \"6 MiB\", \"geometry.zones\" = 2048, \
         \"geometry.max_active_zones\" = {active}, \"geometry.max_open_zones\" = {active} }}\n"
    )
}

const TWO: &str = "[elastic]\n[[elastic.namespace]]\nname = \"db\"\nzones = 4\nactive = 4\nweight = 2\n\
                   [[elastic.namespace]]\nname = \"log\"\nzones = 6\nactive = 2\n";

fn run(text: &str) -> ExperimentResult {
    let experiment = Experiment::parse(text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let result = experiment.run(&mut |_| {});
    assert!(!result.has_failed(), "{:?}", result.run.jobs);
    result
}

fn namespaces(result: &ExperimentResult) -> &[ElasticNamespace] {
    &result.elastic.as_ref().expect("the file has [elastic]").namespaces
}

/// Message, line and column, and remedy of the error in a file.
fn mistake(text: &str) -> (String, (usize, usize), String) {
    let error = Experiment::parse(text, &PROFILES).expect_err(text).error;
    let before = &text[..error.span.as_ref().map_or(0, |span| span.start)];
    let column = before.rsplit('\n').next().map_or(0, str::len) + 1;
    (error.message, (before.matches('\n').count() + 1, column), error.help.unwrap_or_default())
}

#[test]
fn jobs_on_two_namespaces_verify_their_data_and_give_the_same_result_twice() {
    let jobs = "[run]\nverify = true\n\
                [[job]]\nname = \"db\"\nnamespace = \"db\"\noperation = \"write\"\nzones = \"0..2\"\nworkers = 2\n\
                block_size = \"64 KiB\"\nbytes = \"24 MiB\"\n\
                [[job]]\nname = \"log\"\nnamespace = \"log\"\noperation = \"append\"\nzones = \"0..2\"\n\
                block_size = \"16 KiB\"\nqueue_depth = 4\nbytes = \"8 MiB\"\n\
                [[job]]\nname = \"queries\"\nnamespace = \"log\"\noperation = \"randread\"\nzones = \"4..5\"\n\
                prefill = 0.1\noperations = 500\n";
    let text = drive(67, "payload = \"bytes\"") + TWO + jobs;
    let result = run(&text);
    assert!(result.run.verified_blocks.is_some_and(|blocks| blocks >= 500), "{:?}", result.run.verified_blocks);
    let [db, log] = namespaces(&result) else { panic!("there are two namespaces") };
    assert_eq!((db.name.as_str(), db.essentials, db.spares_own), ("db", 21, 22), "two thirds, and what is left over");
    assert_eq!((log.name.as_str(), log.essentials, log.spares_own), ("log", 10, 10));
    let groups = |namespace: &ElasticNamespace| namespace.groups.iter().map(|count| count.groups).sum::<u32>();
    assert!(groups(db) >= 2, "each of two writers has a v-zone: {db:?}");
    assert!(groups(log) >= 2, "{log:?}");
    let counters = &result.drive.counters;
    assert!(counters.host_write_bytes > 32 << 20, "the log of the pool and the prefill are on the drive, too");
    assert_eq!(format!("{result:?}"), format!("{:?}", run(&text)));
}

#[test]
fn each_namespace_has_zones_of_its_own() {
    let job = |namespace: &str| {
        format!(
            "[[job]]\nnamespace = \"{namespace}\"\noperation = \"write\"\nzones = 0\nbytes = \"1 MiB\"\nblock_size = \"64 KiB\"\n"
        )
    };
    let result = run(&(drive(67, "") + TWO + &job("db") + &job("log")));
    assert_eq!(result.run.jobs.len(), 2, "both write zone 0, each of its namespace");
    let (message, place, _) = mistake(&(drive(67, "") + TWO + &job("log") + &job("log")));
    assert_eq!((message.as_str(), place), ("zone 0 is also written by the job \"job1\"", (24, 9)));
    let (message, ..) = mistake(&(drive(67, "") + TWO + &job("log").replace("zones = 0", "zones = 6")));
    assert_eq!(message, "zone 6 does not exist: the namespace has 6 zones");
}

#[test]
fn a_job_names_its_namespace_where_there_are_two() {
    let job = "[[job]]\noperation = \"append\"\noperations = 10\n";
    let (message, place, help) = mistake(&(drive(67, "") + TWO + job));
    assert_eq!((message.as_str(), place), ("the job names no namespace, and there are 2", (15, 1)));
    assert_eq!(help, "add a line like namespace = \"db\"");
    let named = job.replace("operations", "namespace = \"dp\"\noperations");
    let (message, place, help) = mistake(&(drive(67, "") + TWO + &named));
    assert_eq!((message.as_str(), place), ("there is no namespace \"dp\"", (17, 13)));
    assert!(help.starts_with("did you mean \"db\"?"), "{help}");
    let one = "[elastic]\n[[elastic.namespace]]\nname = \"a\"\nzones = 4\nactive = 4\n";
    assert_eq!(run(&(drive(67, "") + one + job)).run.jobs[0].kinds[0].operations, 10, "one needs no name");
    let (message, place, _) = mistake(&(drive(67, "") + &named));
    assert_eq!((message.as_str(), place), ("namespaces have names only in a pool", (7, 13)));
}

/// A store of many small files in the namespace `db`, beside another namespace.
const STORE: &str = "[elastic]\nzones_per_vzone = 4\nwidth_max = 4\n\
                     [[elastic.namespace]]\nname = \"log\"\nzones = 6\nactive = 2\n\
                     [[elastic.namespace]]\nname = \"db\"\nzones = 48\nactive = 12\n\
                     [store]\nworkload = \"kvbench-ii\"\nnamespace = \"db\"\noperations = 20000\nfinish_threshold = 0.1\n\
                     write_buffer_size = \"2 MiB\"\ntarget_file_size = \"2 MiB\"\nlevel1_size = \"8 MiB\"\n";

#[test]
fn a_store_runs_on_a_namespace_of_a_pool_to_its_end() {
    let text = drive(67, "payload = \"bytes\"") + STORE;
    let result = run(&text);
    let store = result.store.as_ref().expect("the file has [store]");
    assert_eq!(format!("{:?}", store.ended_by), "Operations", "{store:?}");
    let [log, db] = namespaces(&result) else { panic!("there are two namespaces") };
    assert_eq!(log.groups, [], "nothing is in the other namespace");
    assert!(!db.groups.is_empty(), "{db:?}");
    assert!(result.drive.counters.host_write_bytes > 20_000 * 256, "a put has 512 bytes, and half are puts");
    assert_eq!(format!("{result:?}"), format!("{:?}", run(&text)));
}

#[test]
fn a_store_names_its_namespace_where_there_are_two() {
    let (message, ..) = mistake(&(drive(67, "") + &STORE.replace("namespace = \"db\"\n", "")));
    assert_eq!(message, "the store names no namespace, and there are 2");
    let (message, _, help) = mistake(&(drive(67, "") + &STORE.replace("namespace = \"db\"", "namespace = \"dp\"")));
    assert_eq!(message, "there is no namespace \"dp\"");
    assert!(help.starts_with("did you mean \"db\"?"), "{help}");
    let (message, ..) = mistake(&(drive(67, "") + &STORE[STORE.find("[store]").expect("it has one")..]));
    assert_eq!(message, "namespaces have names only in a pool");
}

#[test]
fn a_pool_that_the_drive_cannot_have_is_refused_at_its_place() {
    let of = |elastic: &str, namespace: &str| {
        drive(67, "")
            + "[elastic]\n"
            + elastic
            + "\n[[elastic.namespace]]\nname = \"a\"\n"
            + namespace
            + "\n[[job]]\noperation = \"append\"\n"
    };
    let (message, place, _) = mistake(&of("zones_per_vzone = 16\nwidth_max = 3", "zones = 4\nactive = 4"));
    assert_eq!(place, (5, 1), "{message}");
    assert!(message.contains("the widest stripe group must be a power of two"), "{message}");
    let (message, place, _) = mistake(&of("", "zones = 4\nactive = 33"));
    assert_eq!(place, (7, 1), "{message}");
    assert!(message.starts_with("the namespace \"a\" cannot be created: 33 active zones are more"), "{message}");
    let (message, place, _) = mistake(&of("", "zones = 4000\nactive = 4"));
    assert!(place == (7, 1) && message.contains("not promised to others"), "{message}");
    let (message, ..) = mistake(&(drive(67, "") + "[elastic]\n[[job]]\noperation = \"append\"\n"));
    assert_eq!(message, "the pool has no namespace");
    let volume = "[volume]\nlevel = \"raid5\"\ndata = 2\n";
    let (message, ..) = mistake(&(of("", "zones = 4\nactive = 4") + volume));
    assert_eq!(message, "[elastic] and [volume] cannot be combined");
}

/// A quarter of the drive of the paper: 32 essentials and 32 spares.
fn four_writers(width_max: u32) -> ExperimentResult {
    run(&(drive(67, "")
        + &format!(
            "[elastic]\nzones_per_vzone = 16\nwidth_max = {width_max}\n\
             [[elastic.namespace]]\nname = \"a\"\nzones = 80\nactive = 16\n\
             [run]\ntime = \"5 s\"\nramp = \"4 s\"\n\
             [[job]]\noperation = \"write\"\nworkers = 4\nblock_size = \"256 KiB\"\nqueue_depth = 16\non_full = \"reset\"\n"
        )))
}

#[test]
fn four_writers_get_groups_of_eight_zones_once_the_average_has_converged() {
    let bytes = |result: &ExperimentResult| result.run.jobs[0].kinds[0].bytes;
    let (wide, narrow) = (four_writers(16), four_writers(4));
    let [namespace] = namespaces(&wide) else { panic!("there is one namespace") };
    assert_eq!((namespace.essentials, namespace.spares_own, namespace.width_min), (32, 32, 2));
    let widest = namespace.groups.last().expect("there are groups");
    assert_eq!(widest.width, 8, "eZNS, figure 26: {:?}", namespace.groups);
    assert!(widest.groups > 20, "not once only: {:?}", namespace.groups);
    assert!((3 * 6..=4 * 6).contains(&namespace.spares_used), "a group of eight has six spares: {namespace:?}");
    let ratio = bytes(&wide) as f64 / bytes(&narrow) as f64;
    // Less than twice: at the end one of the four still has a group of four zones.
    assert!((1.4..2.1).contains(&ratio), "wider groups are faster: {ratio}");
}

/// Bytes that two namespaces read from a drive that both saturate, with a layer over it.
fn bytes_read(weights: [u32; 2], layer: &str) -> [u64; 2] {
    let namespace = |name: &str, weight: u32| {
        format!("[[elastic.namespace]]\nname = \"{name}\"\nzones = 20\nactive = 4\nweight = {weight}\n")
    };
    let job = |namespace: &str| {
        format!(
            "[[job]]\nname = \"{namespace}\"\nnamespace = \"{namespace}\"\noperation = \"randread\"\nzones = \"0..4\"\n\
             block_size = \"16 KiB\"\nworkers = 4\nqueue_depth = 32\n"
        )
    };
    let pool = format!("[elastic]\n{}{}", namespace("a", weights[0]), namespace("b", weights[1]));
    let layer = format!("[[drive.layer]]\nkind = \"scheduler\"\nin_flight = 16\n{layer}\n");
    let text = drive(67, "") + &layer + &pool + "[run]\ntime = \"300 ms\"\nramp = \"100 ms\"\n" + &job("a") + &job("b");
    let jobs = run(&text).run.jobs;
    [jobs[0].kinds[0].bytes, jobs[1].kinds[0].bytes]
}

#[test]
fn namespaces_that_saturate_a_drive_share_its_time_by_their_weights_under_ezns() {
    let ratio = |[a, b]: [u64; 2]| b as f64 / a as f64;
    let ezns = "policy = \"ezns\"\nread_latency_threshold = \"10 ms\"";
    let shared = bytes_read([1, 3], ezns);
    assert!((2.9..3.1).contains(&ratio(shared)), "one to three: {shared:?}");
    let reversed = bytes_read([6, 2], ezns);
    assert!((2.9..3.1).contains(&(1.0 / ratio(reversed))), "by their parts, not by their numbers: {reversed:?}");
    let equal = bytes_read([3, 3], ezns);
    assert!((0.98..1.02).contains(&ratio(equal)), "{equal:?}");
    let fifo = bytes_read([1, 3], "policy = \"none\"");
    assert!((0.9..1.1).contains(&ratio(fifo)), "without it, those who ask for the same get the same: {fifo:?}");
    let total = |[a, b]: [u64; 2]| a + b;
    assert!(total(shared) * 10 >= total(fifo) * 9, "the drive stays busy: {shared:?} {fifo:?}");
}
