//! Volumes of simulated drives, from their files to their results.

use zonda_stack::{Experiment, ExperimentResult, LayerResult, VolumeSummary};

use crate::PROFILES;

fn run(text: &str) -> ExperimentResult {
    let experiment = Experiment::parse(text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
    experiment.run(&mut |_| {})
}

fn volume(result: &ExperimentResult) -> &VolumeSummary {
    result.volume.as_ref().expect("the file has [volume]")
}

/// Three members of sixteen zones; tiny's 16 bytes of metadata are too few, so that metadata is in
/// band.
fn tiny(drive: &str, keys: &str, rest: &str) -> String {
    format!(
        "[drive]\nprofile = \"tiny\"\n{drive}\n[volume]\nlevel = \"raid5\"\ndata = 2\nsize = \"4 MiB\"\nsmall_unit = \"8 KiB\"\n\
         small_group = 8\nlarge_unit = \"32 KiB\"\n{keys}\n{rest}"
    )
}

const MIXED: &str = "[run]\nverify = true\n[[job]]\noperation = \"randwrite\"\noperations = 4000\nqueue_depth = 8\n[[job]]\noperation = \"randread\"\noperations = 1000\nstart = \"1 s\"\n";

#[test]
fn data_written_to_a_volume_is_read_back_with_and_without_a_failed_member() {
    for (metadata, fail) in [("", ""), ("", "fail = [1]"), ("set = { \"geometry.metadata_bytes\" = 64 }", "fail = [0]")]
    {
        let result = run(&tiny(&format!("payload = \"bytes\"\n{metadata}"), fail, MIXED));
        assert!(!result.has_failed(), "{:?}", result.run.jobs);
        assert!(result.run.verified_blocks.is_some_and(|blocks| blocks > 500), "{:?}", result.run.verified_blocks);
        let volume = volume(&result);
        assert_eq!(volume.volume_bytes, 4 << 20);
        assert!(volume.collected_segments > 0, "the volume is written several times over: {volume:?}");
        assert_eq!(volume.reconstructed_blocks > 0, !fail.is_empty(), "{volume:?}");
    }
}

#[test]
fn results_are_deterministic_and_do_not_depend_on_the_payload() {
    let with = |payload: &str| {
        tiny(payload, "fill = \"2 MiB\"", "[[job]]\noperation = \"randread\"\nzones = \"0..1\"\noperations = 300\n")
    };
    let result = |payload: &str| format!("{:?}", run(&with(payload)).run);
    assert_eq!(result("payload = \"none\""), result("payload = \"none\""));
    let read = |payload: &str| run(&with(payload)).run.jobs[0].kinds[0].operations;
    assert_eq!(read("payload = \"none\""), read("payload = \"bytes\""));
}

#[test]
fn an_overwritten_volume_collects_garbage_from_the_start_of_the_run() {
    let run_with = |payload: &str, keys: &str| {
        let job = "[[job]]\noperation = \"randwrite\"\noperations = 600\nqueue_depth = 4\n";
        volume(&run(&tiny(payload, &format!("fill = \"4 MiB\"\n{keys}"), job))).clone()
    };
    for payload in ["", "payload = \"bytes\""] {
        let (fresh, aged) = (run_with(payload, ""), run_with(payload, "overwrite = \"12 MiB\""));
        assert_eq!(aged.host_blocks, 600, "writes before the run are not counted");
        assert!(aged.collected_segments > fresh.collected_segments, "{aged:?} and {fresh:?}");
        let skewed = run_with(payload, "overwrite = \"12 MiB\"\noverwrite_distribution = { hot = 0.1, of = 0.9 }");
        assert_ne!(skewed, aged, "places follow the given distribution");
    }
}

#[test]
fn the_run_waits_for_the_end_of_a_rebuild_with_and_without_jobs() {
    let alone = run(&tiny("", "fill = \"3 MiB\"\nfail = [2]\nrebuild = true", ""));
    let took = volume(&alone).rebuild_ns.expect("it was rebuilt");
    assert!(took > 1_000_000 && alone.run.drained_ns == took, "{took} ns");
    let job = "[[job]]\noperation = \"randread\"\nzones = \"0..1\"\noperations = 20\n";
    let beside = run(&tiny("", "fill = \"3 MiB\"\nfail = [2]\nrebuild = true", job));
    assert!(volume(&beside).rebuild_ns.is_some_and(|took| took > beside.run.elapsed_ns));
    assert_eq!(beside.run.jobs[0].kinds[0].operations, 20);
}

#[test]
fn groups_allow_concurrent_stripes_and_cpu_time_limits_them() {
    let rate = |keys: &str| {
        let text = format!(
            "[drive]\nprofile = \"zn540-zapraid\"\n[volume]\nlevel = \"raid5\"\ndata = 3\nsize = \"1 GiB\"\nlarge_segments = 0\n{keys}\n\
             [[job]]\noperation = \"randwrite\"\nzones = \"0..4\"\nblock_size = \"4 KiB\"\nqueue_depth = 16\noperations = 3000\n"
        );
        run(&text).run.jobs[0].kinds[0].iops
    };
    let (alone, grouped) = (rate("small_group = 1"), rate("small_group = 256"));
    assert!(grouped > 1.5 * alone, "{grouped} and {alone} a second");
    // Four commands of 10 us each for three blocks.
    assert!(rate("small_group = 256\ncommand_time = \"10 us\"") < 75_100.0);
}

#[test]
fn errors_in_a_volume_are_reported_at_their_position() {
    let error = |keys: &str, rest: &str| {
        let text = tiny("", keys, rest);
        let error = Experiment::parse(&text, &PROFILES).expect_err("the volume is invalid").error;
        let place = error.span.clone().map(|span| text[span].to_owned()).unwrap_or_default();
        (error.message, error.help.unwrap_or_default(), place)
    };
    let job = "[[job]]\noperation = \"randread\"\n";
    let (message, help, place) = error("fail = [7]", job);
    assert_eq!(
        (message.as_str(), help.as_str(), place.as_str()),
        ("the volume has 3 members", "members are numbered from 0", "7")
    );
    let (message, help, _) = error("fail = [0, 1]", job);
    assert_eq!((message.as_str(), help.as_str()), ("the volume cannot lose 2 members", "fail at most 1"));
    let (message, ..) = error("rebuild = true", job);
    assert_eq!(message, "a rebuild needs exactly one failed member");
    let (message, _, place) = error("fill = \"1 GiB\"", job);
    assert_eq!((message.as_str(), place.as_str()), ("the volume has only 4194304 bytes", "\"1 GiB\""));
    let (message, help, _) = error("overwrite = \"1 MiB\"", job);
    assert_eq!(message, "overwrite needs a filled volume");
    assert_eq!(help, "set fill to the size of the part that is written first");
    let (message, ..) = error("flush_interval = \"1 ms\"\nlarge_from = \"5 kB\"", job);
    assert_eq!(message, "the size is not a multiple of the block size");
    let (message, ..) = error("parity = 2", job);
    assert!(message.starts_with("RAID 5 does not support 2 data and 2 parity members"), "{message}");
    let (message, ..) = error("", "[store]\nworkload = \"kvbench-ii\"\n");
    assert_eq!(message, "[store] needs zones, which a volume does not have");
}

#[test]
fn layers_over_a_volume_see_the_requests_of_jobs() {
    let layers = "[[volume.layer]]\nkind = \"trace\"\n\
                  [[volume.layer]]\nkind = \"delay\"\nfixed = \"1 ms\"\noperations = [\"read\"]\n";
    let job = "[[job]]\noperation = \"randread\"\noperations = 50\n";
    let (plain, layered) = (run(&tiny("", "", job)), run(&tiny("", layers, job)));
    let mean = |result: &ExperimentResult| result.run.jobs[0].kinds[0].latency.mean_ns;
    assert_eq!(mean(&layered) - mean(&plain), 1_000_000);
    let [LayerResult::Trace { operations, .. }, delay] = &layered.layers[..] else {
        panic!("two layers, the innermost first: {:?}", layered.layers)
    };
    assert_eq!((operations.len(), operations[0].operation, operations[0].submitted), (1, "read", 50));
    assert_eq!(*delay, LayerResult::Delay { matched: 50, struck: 50 });
}

#[test]
fn layers_of_one_member_affect_this_member_alone() {
    let delay = |tables: &str| {
        let job = "[[job]]\noperation = \"randread\"\noperations = 400\n";
        let result = run(&tiny("", tables, job));
        result.run.jobs[0].kinds[0].latency
    };
    let slow = "kind = \"delay\"\nfixed = \"10 ms\"\noperations = [\"read\"]\n";
    let none = delay("");
    let one = delay(&format!("[[volume.member]]\nindex = 1\n[[volume.member.layer]]\n{slow}"));
    let all = delay(
        &(0..3)
            .map(|index| format!("[[volume.member]]\nindex = {index}\n[[volume.member.layer]]\n{slow}"))
            .collect::<String>(),
    );
    assert!(all.p50_ns > 10_000_000 && one.p50_ns < 1_000_000, "{} and {} ns", all.p50_ns, one.p50_ns);
    assert!(one.max_ns > 10_000_000 && none.max_ns < 10_000_000, "{} and {} ns", one.max_ns, none.max_ns);
}

#[test]
fn a_member_that_fails_reads_is_repaired_from_the_others() {
    let fault = "[[volume.member]]\nindex = 0\n[[volume.member.layer]]\nkind = \"fault\"\n\
                 status = \"unrecovered read error\"\noperations = [\"read\"]\nchance = 0.1\n";
    let result = run(&tiny("payload = \"bytes\"", fault, MIXED));
    assert!(!result.has_failed(), "{:?}", result.run.jobs);
    assert!(volume(&result).reconstructed_blocks > 0, "{:?}", volume(&result));
}

#[test]
fn faults_of_all_members_before_the_run_fail_its_jobs() {
    let fault = "payload = \"bytes\"\n[[drive.layer]]\nkind = \"fault\"\nstatus = \"write fault\"\n";
    let result = run(&tiny(fault, "fill = \"2 MiB\"\nfail = [0]\nrebuild = true", MIXED));
    assert!(result.has_failed() && result.run.jobs[0].error_count() > 0, "{:?}", result.run.jobs);
}

#[test]
fn a_volume_that_lost_a_member_by_faults_before_the_run_may_refuse_a_replacement() {
    let fault = "fill = \"2 MiB\"\nfail = [0]\nrebuild = true\n[[volume.member]]\nindex = 1\n[[volume.member.layer]]\n\
                 kind = \"fault\"\nstatus = \"write fault\"\noperations = [\"writes\"]\n";
    let job = "[[job]]\noperation = \"randread\"\noperations = 100\n";
    let result = run(&tiny("payload = \"bytes\"", fault, job));
    assert_eq!(volume(&result).rebuild_ns, None, "{:?}", volume(&result));
}

#[test]
fn errors_in_layers_of_a_volume_are_reported_at_their_position() {
    let error = |tables: &str| {
        let text = tiny("", tables, "[[job]]\noperation = \"randread\"\n");
        let error = Experiment::parse(&text, &PROFILES).expect_err("the volume is invalid").error;
        (error.message, error.span.map(|span| text[span].to_owned()).unwrap_or_default())
    };
    let is = |message: &str, place: &str| (message.to_owned(), place.to_owned());
    let delay = "kind = \"delay\"\nfixed = \"1 us\"\nzones = 20\n";
    let zone = "zone 20 does not exist: the namespace has 16 zones";
    let member = |index: u8| format!("[[volume.member]]\nindex = {index}\n");
    assert_eq!(error(&format!("{}[[volume.member.layer]]\n{delay}", member(1))), is(zone, "20"));
    assert_eq!(error(&member(3)), is("the volume has 3 members", "3"));
    assert_eq!(error(&(member(1) + &member(1))), is("member 1 has two tables", "1"));
    let zone = "zone 20 does not exist: the namespace has 1 zones";
    assert_eq!(error(&format!("[[volume.layer]]\n{delay}")), is(zone, "20"));
    let slice = "[[volume.layer]]\nkind = \"slice\"\ncount = 1\n";
    assert_eq!(error(slice), is("a slice needs zones, which a volume does not have", "[[volume.layer]]"));
    let many = "[[volume.layer]]\nkind = \"trace\"\n".repeat(17);
    assert_eq!(error(&many), is("too many layers: 17", "[[volume.layer]]"));
}
