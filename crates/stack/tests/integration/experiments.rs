//! Experiments from their files to their results.

use zonda_profiles::{BUILTIN, builtin_text};
use zonda_ssd::profile::Source;
use zonda_stack::{Experiment, ExperimentResult, LayerResult, Profiles};
use zonda_workload::RequestKind;

use crate::PROFILES;

fn run(text: &str) -> ExperimentResult {
    let experiment = Experiment::parse(text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
    experiment.run(&mut |_| {})
}

fn tiny(drive: &str, job: &str) -> ExperimentResult {
    run(&format!("[drive]\nprofile = \"tiny\"\n{drive}\n[[job]]\n{job}\n"))
}

#[test]
fn the_same_file_gives_the_same_result_and_another_seed_another() {
    let text = "[drive]\nprofile = \"tiny\"\n[[job]]\noperation = \"randread\"\noperations = 500\nqueue_depth = 4\n";
    let experiment = Experiment::parse(text, &PROFILES).unwrap();
    let run = |seed| format!("{:?}", experiment.clone().with_seed(seed).run(&mut |_| {}));
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_scheduler_lets_reads_pass_writes_that_wait() {
    let jobs = "[[job]]\nname = \"writers\"\noperation = \"append\"\nzones = \"0..4\"\nblock_size = \"64 KiB\"\n\
                queue_depth = 32\nbytes = \"16 MiB\"\n\
                [[job]]\nname = \"reader\"\noperation = \"randread\"\nzones = \"8..16\"\noperations = 60\n";
    let with = |policy: &str| {
        let layer = format!("[[drive.layer]]\nkind = \"scheduler\"\nin_flight = 2\n{policy}\n");
        run(&format!("[drive]\nprofile = \"zn540\"\nset = {{ \"geometry.zones\" = 64 }}\n{layer}{jobs}"))
    };
    let p95 = |result: &ExperimentResult| result.run.jobs[1].kind(RequestKind::Read).unwrap().latency.p95_ns;
    // A batch of writes would go on while a read waits.
    let (none, deadline) = (with("policy = \"none\""), with("policy = \"mq-deadline\"\nfifo_batch = 1"));
    assert!(p95(&deadline) * 3 < p95(&none) * 2, "{} and {}", p95(&deadline), p95(&none));
    let [LayerResult::Scheduler { policy: "mq-deadline", submitted, waited, waiting_max, .. }] = &deadline.layers[..]
    else {
        panic!("{:?}", deadline.layers)
    };
    assert!(waited <= submitted && *waited > 0 && *waiting_max >= 16, "{:?}", deadline.layers);
}

#[test]
fn a_scheduler_by_measured_groups_keeps_all_channels_busy() {
    // Each of eight processes reads 64 pages at a time, all of them from one channel.
    let zones: Vec<String> = (0..8).map(|process| format!("\"{process}..1024 step 8\"")).collect();
    let job = format!(
        "[[job]]\noperation = \"randread\"\nzones = [{}]\nworkers = 8\nshare = \"ranges\"\ntenant = \"worker\"\n\
         block_size = \"64 KiB\"\nqueue_depth = 64\nbatch = true\n",
        zones.join(", ")
    );
    let bytes = |policy: &str| {
        let layer = format!("[[drive.layer]]\nkind = \"scheduler\"\nin_flight = 8\n{policy}\n");
        let drive = "[drive]\nprofile = \"bae-small\"\nset = { \"geometry.zones\" = 1024 }\n";
        let result = run(&format!("{drive}{layer}[run]\ntime = \"400 ms\"\n{job}"));
        let [LayerResult::Scheduler { policy, .. }] = &result.layers[..] else { panic!("{:?}", result.layers) };
        (*policy, result.run.jobs[0].kind(RequestKind::Read).unwrap().bytes)
    };
    let (none, fair) = (bytes("policy = \"none\""), bytes("policy = \"interference\""));
    assert_eq!((none.0, fair.0), ("none", "interference"));
    // The run begins with trials of the table, in the order of arrival.
    assert!(fair.1 > none.1 * 2, "one channel at a time: {} and {}", none.1, fair.1);
    let ezns = bytes("policy = \"interference\"\nwithin = \"ezns\"\nread_latency_threshold = \"2 ms\"");
    assert_eq!(ezns.0, "interference+ezns");
    assert!(ezns.1 > none.1 * 2, "{} and {}", none.1, ezns.1);
}

#[test]
fn conflict_groups_of_a_slice_are_those_of_its_zones() {
    let layers = "[[drive.layer]]\nkind = \"slice\"\nfirst = 3\ncount = 512\n\
                  [[drive.layer]]\nkind = \"scheduler\"\npolicy = \"interference\"\nin_flight = 8\n";
    // Zones 5, 13, ... of the slice are on the first channel.
    let bytes = |zones: &str| {
        let job =
            format!("[[job]]\noperation = \"randread\"\nzones = {zones}\nqueue_depth = 64\nblock_size = \"64 KiB\"\n");
        let drive = "[drive]\nprofile = \"bae-small\"\nset = { \"geometry.zones\" = 1024 }\n";
        let result = run(&format!("{drive}{layers}[run]\ntime = \"50 ms\"\n{job}"));
        result.run.jobs[0].kind(RequestKind::Read).unwrap().bytes
    };
    assert!(bytes("\"0..512\"") > bytes("\"5..512 step 8\"") * 3);
}

#[test]
fn the_scheduler_of_ezns_keeps_a_narrow_writer_from_filling_the_write_buffer() {
    let jobs = "[[job]]\nname = \"wide\"\noperation = \"write\"\nzones = \"0..120\"\nworkers = 15\n\
                block_size = \"512 KiB\"\nstripe = \"64 KiB\"\n\
                [[job]]\nname = \"narrow\"\noperation = \"write\"\nzones = \"120..122\"\n\
                block_size = \"512 KiB\"\nstripe = \"256 KiB\"\n";
    let wide = |policy: &str| {
        let layer = format!("[[drive.layer]]\nkind = \"scheduler\"\npolicy = \"{policy}\"\n");
        let result = run(&format!("[drive]\nprofile = \"ezns-small\"\n{layer}[run]\ntime = \"1 s\"\n{jobs}"));
        result.run.jobs[0].kind(RequestKind::Write).unwrap().bytes
    };
    let (none, ezns) = (wide("none"), wide("ezns"));
    assert!(ezns > none * 2, "{ezns} and {none}");
}

#[test]
fn a_number_that_is_set_changes_the_drive() {
    let job = "operation = \"append\"\nzones = \"0..1\"\nblock_size = \"64 KiB\"";
    let slow = tiny("[drive.set]\n\"flash.program.base\" = \"6 ms\"\nflash.program.uniform = \"0 us\"", job);
    assert!(slow.run.elapsed_ns > 3 * tiny("", job).run.elapsed_ns, "{} ns", slow.run.elapsed_ns);
    let unlimited = "set = { geometry = { zones = 40, max_active_zones = 20, max_open_zones = 20 } }";
    assert_eq!(tiny(unlimited, job).drive.max_active_zones, Some(20));
}

#[test]
fn a_key_that_the_profile_leaves_out_can_be_set() {
    let job = "operation = \"randread\"\noperations = 10";
    let text = format!("[drive]\nprofile = \"zn540\"\nset = {{ \"write_buffer.cap\" = \"6 MiB\" }}\n[[job]]\n{job}\n");
    let experiment = Experiment::parse(&text, &PROFILES).unwrap();
    let profile = experiment.drive().profile();
    assert_eq!(profile.write_buffer.cap.map(|cap| cap.0), Some(6 << 20));
    assert_eq!(profile.sources.of("write_buffer.cap").map(Source::words), Some("set in the job file"));
}

#[test]
fn a_list_that_is_set_loses_the_sources_of_its_old_parts() {
    let tiny = builtin_text("tiny").unwrap();
    let mine = format!("{tiny}\"flash.read.1\" = {{ fitted = [], how = \"a trace\" }}\n");
    let set = "\"flash.read\" = [{ time = { base = \"1 us\" } }]\n\"flash.program.base\" = \"500 us\"\n";
    let text = format!(
        "[drive]\nprofile = \"./mine.toml\"\n[drive.set]\n{set}[[job]]\noperation = \"randread\"\noperations = 10\n"
    );
    let read = |_: &str| Ok(mine.clone());
    let experiment = Experiment::parse(&text, &Profiles::new(BUILTIN, &read)).unwrap();
    let profile = experiment.drive().profile();
    let words = |key: &str| profile.sources.of(key).map(Source::words);
    assert_eq!(words("flash.read.0.time.base"), Some("set in the job file"));
    assert_eq!(words("flash.program.base"), Some("set in the job file"));
    assert_eq!(words("flash.program.uniform"), Some("ordinary TLC flash, rounded"));
    assert_eq!(profile.fitted_numbers(), Vec::<String>::new());
}

#[test]
fn data_written_through_layers_is_read_back() {
    let result = run(
        "[drive]\nprofile = \"tiny\"\npayload = \"bytes\"\n[[drive.layer]]\nkind = \"delay\"\nfixed = \"5 us\"\n\
                      [run]\nverify = true\n[[job]]\noperation = \"mix\"\nmix = { read = 1, append = 1 }\nzones = \"0..4\"\n\
                      on_full = \"reset\"\nqueue_depth = 4\noperations = 4000\n",
    );
    assert!(result.run.verified_blocks.is_some_and(|blocks| blocks > 1_000), "{:?}", result.run.verified_blocks);
    assert!(!result.run.has_failed());
}

#[test]
fn a_delay_makes_every_read_later_by_as_much() {
    let job = "operation = \"read\"\nzones = \"0..1\"\nblock_size = \"16 KiB\"";
    let plain = tiny("", job);
    let late = tiny("[[drive.layer]]\nkind = \"delay\"\nfixed = \"1 ms\"\noperations = [\"read\"]", job);
    let mean = |result: &ExperimentResult| result.run.jobs[0].kind(RequestKind::Read).unwrap().latency.mean_ns;
    assert_eq!(mean(&late) - mean(&plain), 1_000_000);
    assert_eq!(late.layers, [LayerResult::Delay { matched: 96, struck: 96 }]);
}

#[test]
fn a_fault_fails_the_commands_it_is_about() {
    let fault = "[[drive.layer]]\nkind = \"fault\"\nstatus = \"unrecovered read error\"\nwhen = { every = 10 }\nzones = \"0..1\"";
    let result = tiny(fault, "operation = \"read\"\nzones = \"0..2\"");
    let job = &result.run.jobs[0];
    assert_eq!(job.error_count(), 38);
    assert_eq!(job.errors[0].status.to_string(), "unrecovered read error");
    assert_eq!(result.layers, [LayerResult::Fault { matched: 384, struck: 38 }]);
}

#[test]
fn a_slice_shows_its_zones_as_zones_from_zero_on() {
    let slice = "[[drive.layer]]\nkind = \"slice\"\nfirst = 4\ncount = 3\nmax_active_zones = 2";
    let result = tiny(slice, "operation = \"append\"\nprefill = 0.5\nzones = \"1..3\"\nblock_size = \"16 KiB\"");
    assert_eq!(result.run.jobs[0].error_count(), 0);
    let full: Vec<(u32, u32)> = result
        .drive
        .zones
        .iter()
        .filter(|range| range.state == "full")
        .map(|range| (range.first, range.count))
        .collect();
    assert_eq!(full, [(5, 2)]);
    assert_eq!(result.layers, [LayerResult::Slice { zones: 3, shown_full: 0 }]);
}

#[test]
fn a_trace_counts_and_keeps_the_last_events() {
    let result = tiny("[[drive.layer]]\nkind = \"trace\"\nevents = 2", "operation = \"read\"\nzones = \"0..1\"");
    let [LayerResult::Trace { hash, operations, events }] = &result.layers[..] else { panic!("{:?}", result.layers) };
    assert_eq!((hash.len(), operations.len(), operations[0].submitted, events.len()), (16, 1, 384, 2));
    assert!(events[1].contains("completed #"), "{events:?}");
}

#[test]
fn layers_stand_around_the_drive_in_the_order_of_the_file() {
    // The trace above the delay sees its millisecond; the trace below does not.
    let latency_ns = |layers: &str| -> u64 {
        let result = tiny(layers, "operation = \"read\"\noperations = 1\nzones = \"0..1\"");
        let events = result.layers.into_iter().find_map(|layer| match layer {
            LayerResult::Trace { events, .. } => Some(events),
            _ => None,
        });
        let event = events.expect("there is a trace").pop().expect("it has seen the read");
        let (_, latency) = event.split_once(" after ").expect("the last event is the completion");
        latency.trim_end_matches(" ns").parse().expect("a number of nanoseconds")
    };
    let (delay, trace) =
        ("[[drive.layer]]\nkind = \"delay\"\nfixed = \"1 ms\"\n", "[[drive.layer]]\nkind = \"trace\"\n");
    assert!(latency_ns(&format!("{delay}{trace}")) > 1_000_000);
    assert!(latency_ns(&format!("{trace}{delay}")) < 1_000_000);
}

#[test]
fn bytes_and_fingerprints_are_kept_when_asked_for() {
    for payload in ["none", "fingerprints", "bytes"] {
        let result = tiny(&format!("payload = \"{payload}\""), "operation = \"append\"\noperations = 20");
        assert_eq!(result.run.jobs[0].error_count(), 0, "{payload}");
    }
}
