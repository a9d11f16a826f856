//! Mistakes are reported with their position and the allowed values.

use super::*;
use crate::parse_jobs;
use zonda_config::unplaced;

/// Sixteen zones of 4 KiB blocks, the first four conventional; 14 active; 128 KiB a command, 64 KiB
/// an append.
fn drive() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(64),
        zone_count: 24,
        conventional_zone_count: 4,
        max_active_zones: Some(14),
        max_open_zones: Some(14),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(16),
        zrwa: None,
        read_across_zones: false,
        descriptor_extension_bytes: 0,
    }
}

fn plan_on(geometry: &Geometry, text: &str) -> Result<Plan, ConfigError> {
    let (run, jobs) = parse_jobs(text)?;
    Plan::new(&run, &jobs, geometry)
}

/// The message, what it points at, and the help.
fn mistake(text: &str) -> (String, String, String) {
    mistake_on(&drive(), text)
}

fn mistake_on(geometry: &Geometry, text: &str) -> (String, String, String) {
    let error = plan_on(geometry, text).expect_err(text);
    let place = error.span.map_or("nothing", |span| &text[span]);
    (error.message, place.to_owned(), error.help.unwrap_or_default())
}

fn job(lines: &str) -> String {
    format!("[run]\ntime = \"1 s\"\n[[job]]\n{lines}\n")
}

fn assert_mistake(text: &str, message: &str, place: &str, help: &str) {
    assert_eq!(mistake(text), (message.to_owned(), place.to_owned(), help.to_owned()), "{text}");
}

#[test]
fn defaults_are_filled_in() {
    let plan = plan_on(
        &drive(),
        "[run]\ntime = \"1 s\"\n[[job]]\noperation = \"append\"\n[[job]]\noperation = \"randread\"\n",
    );
    let plan = plan.unwrap();
    assert_eq!((plan.seed, plan.ramp, plan.sample), (1, Duration::ZERO, Duration::from_millis(10)));
    assert_eq!(plan.job_names().collect::<Vec<_>>(), ["job1", "job2"]);
    let [append, randread] = plan.jobs.as_slice() else { panic!("two jobs") };
    assert_eq!((append.request_blocks, append.queue_depth, append.zone_order), (1, 1, ZoneOrder::Sequential));
    assert_eq!(
        append.workers,
        [(4..24).map(ZoneIndex).collect::<Vec<_>>()],
        "conventional zones do not support append"
    );
    assert_eq!((randread.zone_order, randread.workers[0].len()), (ZoneOrder::Random, 24));
}

#[test]
fn a_larger_block_of_the_drive_is_the_default_request() {
    let geometry = Geometry { block_size_bytes: 16_384, ..drive() };
    assert_eq!(plan_on(&geometry, &job("operation = \"randread\"")).unwrap().jobs[0].request_blocks, 1);
    let geometry = Geometry { block_size_bytes: 512, ..drive() };
    assert_eq!(plan_on(&geometry, &job("operation = \"randread\"")).unwrap().jobs[0].request_blocks, 8);
}

#[test]
fn request_sizes_are_checked_against_the_drive() {
    assert_mistake(
        &job("operation = \"read\"\nblock_size = \"6 KiB\""),
        "a request of 6 KiB is not a multiple of the block size",
        "\"6 KiB\"",
        "write a multiple of the drive's block size, \"4 KiB\"",
    );
    assert_mistake(
        &job("operation = \"append\"\nblock_size = \"128 KiB\""),
        "an append to this drive transfers at most 64 KiB, not 128 KiB",
        "\"128 KiB\"",
        "write block_size = \"64 KiB\" or less, or split the request with stripe = \"64 KiB\"",
    );
    assert_mistake(
        &job("operation = \"write\"\nblock_size = \"1 MiB\""),
        "a command to this drive transfers at most 128 KiB, not 1 MiB",
        "\"1 MiB\"",
        "write block_size = \"128 KiB\" or less, or split the request with stripe = \"128 KiB\"",
    );
    assert!(
        plan_on(
            &drive(),
            &job("operation = \"write\"\nblock_size = \"1 MiB\"\nstripe = \"128 KiB\"\nzones = \"4..8\"")
        )
        .is_ok()
    );
}

#[test]
fn stripes_are_checked_against_the_drive_and_the_request() {
    let stripe = |stripe: &str| {
        job(&format!("operation = \"append\"\nzones = \"4..8\"\nblock_size = \"256 KiB\"\nstripe = \"{stripe}\""))
    };
    assert_eq!(mistake(&stripe("6 KiB")).0, "a stripe of 6 KiB is not a multiple of the block size");
    assert_eq!(mistake(&stripe("128 KiB")).2, "write stripe = \"64 KiB\" or less");
    assert_eq!(mistake(&stripe("48 KiB")).0, "a request of 256 KiB is not a multiple of the stripe of 48 KiB");
    assert_mistake(
        &job("operation = \"read\"\nzones = \"0..2\"\nblock_size = \"1 MiB\"\nstripe = \"4 KiB\""),
        "the zones of a worker are smaller than one request",
        "\"4 KiB\"",
        "write a smaller block_size, or use more zones",
    );
    assert_eq!(
        mistake(&job("operation = \"read\"\nblock_size = \"4 MiB\"\nstripe = \"4 KiB\"")).0,
        "this splits a request into 1024 commands, and the maximum is 512"
    );
    assert_eq!(
        mistake(&job("operation = \"read\"\nblock_size = \"8 KiB\"\nstripe = \"4 KiB\"\nzone_order = \"random\"")).1,
        "\"random\""
    );
}

#[test]
fn zones_are_checked_against_the_drive() {
    assert_mistake(
        &job("operation = \"read\"\nzones = \"0..25\""),
        "zone 24 does not exist: the drive has 24 zones",
        "\"0..25\"",
        "write zones within \"0..24\" (the end is exclusive)",
    );
    assert_mistake(
        &job("operation = \"append\"\nzones = \"2..6\""),
        "zone 2 is conventional: it does not support append",
        "\"2..6\"",
        "write zones within \"4..24\" (the end is exclusive)",
    );
    assert_mistake(
        &job("operation = \"randwrite\"\nzones = [0, 9]"),
        "zone 9 must be written sequentially: it does not support randwrite",
        "[0, 9]",
        "write zones within \"0..4\" (the end is exclusive)",
    );
    let sequential = Geometry { conventional_zone_count: 0, ..drive() };
    let (message, place, _) = mistake_on(&sequential, &job("operation = \"randwrite\""));
    assert_eq!(
        (message.as_str(), place.as_str()),
        ("operation = \"randwrite\" is not possible: this drive has no conventional zones", "\"randwrite\"")
    );
    let conventional = Geometry { conventional_zone_count: 24, ..drive() };
    assert!(mistake_on(&conventional, &job("operation = \"reset\"")).0.ends_with("only conventional zones"));
    assert!(plan_on(&conventional, &job("operation = \"write\"")).is_ok());
}

#[test]
fn a_writer_may_not_need_more_active_zones_than_the_drive_supports() {
    assert_mistake(
        &job("operation = \"write\"\nzones = \"4..24\"\nzone_order = \"round-robin\""),
        "this writes 20 zones at a time, and the drive allows 14 active zones",
        "\"4..24\"",
        "use at most 14 zones",
    );
    assert_mistake(
        &job("operation = \"append\"\nzone_order = \"random\""),
        "this writes 20 zones at a time, and the drive allows 14 active zones",
        "\"random\"",
        "add zones = \"4..18\" or fewer, or write zone_order = \"sequential\"",
    );
    assert_mistake(
        &job("operation = \"write\"\nworkers = 15"),
        "this writes 15 zones at a time, and the drive allows 14 active zones",
        "15",
        "write workers = 14 or less",
    );
    let striped = "operation = \"append\"\nblock_size = \"128 KiB\"\nstripe = \"64 KiB\"";
    let message = "this writes 20 zones at a time, and the drive allows 14 active zones";
    assert_mistake(&job(striped), message, "[[job]]", "add zones = \"4..18\" or fewer");
    assert!(plan_on(&drive(), &job(&format!("{striped}\nzones = \"4..18\""))).is_ok());
    assert!(plan_on(&drive(), &job("operation = \"append\"\nworkers = 15\nshare = \"all\"")).is_ok());
}

#[test]
fn the_stripe_that_a_remedy_names_is_accepted() {
    let request = |size: &str| format!("operation = \"write\"\nzones = \"4..18\"\nblock_size = \"{size}\"");
    for (size, stripe) in [("1 MiB", Some("128 KiB")), ("132 KiB", Some("44 KiB")), ("1 GiB", None)] {
        let (_, _, help) = mistake(&job(&request(size)));
        let named = help.split_once("stripe = \"").map(|(_, rest)| rest.trim_end_matches('"'));
        assert_eq!(named, stripe, "{size}: {help}");
        if let Some(stripe) = stripe {
            assert!(plan_on(&drive(), &job(&format!("{}\nstripe = \"{stripe}\"", request(size)))).is_ok());
        }
    }
    // A stripe that is too small for a large request.
    let small = job(&format!("{}\nstripe = \"4 KiB\"", request("3 MiB")));
    assert_eq!(mistake(&small).2, "write stripe = \"128 KiB\", or block_size = \"2 MiB\" or less");
    let small = job(&format!("{}\nstripe = \"4 KiB\"", request("1 GiB")));
    assert_eq!(mistake(&small).2, "write block_size = \"2 MiB\" or less");
}

#[test]
fn a_conventional_namespace_has_no_zones_to_choose() {
    let volume = Geometry { zone_count: 1, conventional_zone_count: 1, ..drive() };
    let (message, place, help) = mistake_on(&volume, &job("operation = \"read\"\nzones = 1"));
    assert_eq!(message, "zone 1 does not exist: the namespace is conventional and has no zones");
    assert_eq!((place.as_str(), help.as_str()), ("1", "remove zones"));
}

#[test]
fn plain_writes_are_kept_apart() {
    assert_mistake(
        &job("operation = \"write\"\nworkers = 2\nshare = \"all\""),
        "several workers cannot share a zone with plain writes",
        "\"all\"",
        "write share = \"split\", or use operation = \"append\"",
    );
    let two = |first: &str, second: &str| {
        job(&format!("operation = \"{first}\"\nzones = \"4..8\"\n[[job]]\noperation = \"{second}\"\nzones = \"7..9\""))
    };
    let help = "give each job its own zones, or let all of them append";
    assert_mistake(&two("write", "write"), "zone 7 is also written by the job \"job1\"", "\"7..9\"", help);
    assert_mistake(&two("append", "write"), "zone 7 is also written by the job \"job1\"", "\"7..9\"", help);
    assert!(plan_on(&drive(), &two("append", "append")).is_ok());
    assert!(plan_on(&drive(), &two("write", "randread")).is_ok());
}

#[test]
fn workers_need_zones_to_split() {
    assert_mistake(
        &job("operation = \"append\"\nzones = \"4..6\"\nworkers = 3"),
        "3 workers cannot split 2 zones",
        "3",
        "write workers = 2 or less, or share = \"all\" where zones can be shared",
    );
    assert_mistake(&job("operation = \"read\"\nqueue_depth = 0"), "0 is out of range", "0", "write 1 to 65535");
}

#[test]
fn a_key_that_does_not_apply_to_an_operation_is_refused() {
    assert_mistake(
        &job("operation = \"reset\"\nblock_size = \"4 KiB\""),
        "block_size does not apply to operation = \"reset\"",
        "\"4 KiB\"",
        "remove it; it applies to read, randread, write, randwrite, append, mix",
    );
    for (lines, message) in [
        ("operation = \"read\"\nmix = { read = 1 }", "mix does not apply to operation = \"read\""),
        ("operation = \"mix\"\nmix = { read = 1 }\nstripe = \"4 KiB\"", "stripe does not apply to operation = \"mix\""),
        ("operation = \"read\"\ndistribution = \"uniform\"", "distribution does not apply to operation = \"read\""),
        ("operation = \"randread\"\non_full = \"next\"", "on_full does not apply to operation = \"randread\""),
        ("operation = \"finish\"\nfinish_at = 0.5", "finish_at does not apply to operation = \"finish\""),
        ("operation = \"open\"\nrate = \"1 MiB/s\"", "a rate in bytes does not apply to operation = \"open\""),
    ] {
        assert_eq!(mistake(&job(lines)).0, message);
    }
    assert!(plan_on(&drive(), &job("operation = \"reset\"\nrate = \"100 IOPS\"")).is_ok());
}

#[test]
fn a_mix_needs_weights() {
    assert_eq!(mistake(&job("operation = \"mix\"")).1, "\"mix\"");
    assert_eq!(mistake(&job("operation = \"mix\"\nmix = {}")).0, "the mix is empty");
    let (message, place, help) = mistake(&job("operation = \"mix\"\nmix = { reed = 1 }"));
    assert_eq!((message.as_str(), place.as_str()), ("unknown key \"reed\"", "reed"));
    assert_eq!(help, "did you mean \"read\"? allowed here: read, write, append");
}

#[test]
fn a_job_without_an_end_is_refused() {
    let (message, place, help) = mistake("[[job]]\noperation = \"randread\"\n");
    assert_eq!((message.as_str(), place.as_str()), ("the job \"job1\" never ends", "[[job]]"));
    assert!(help.starts_with("write time = \"10 s\" under [run]"));
    for lines in ["operation = \"append\"\non_full = \"reset\"", "operation = \"mix\"\nmix = { read = 1 }"] {
        assert!(mistake(&format!("[[job]]\n{lines}\n")).0.ends_with("never ends"));
    }
    for lines in [
        "operation = \"append\"",
        "operation = \"read\"",
        "operation = \"reset\"",
        "operation = \"randread\"\ntime = \"1 s\"",
    ] {
        assert!(plan_on(&drive(), &format!("[[job]]\n{lines}\n")).is_ok(), "{lines}");
    }
}

#[test]
fn times_that_leave_no_measurement_are_refused() {
    assert_mistake(
        "[run]\ntime = \"1 s\"\nramp = \"2 s\"\n[[job]]\noperation = \"read\"\n",
        "the ramp of 2.00 s is not shorter than the run of 1.00 s",
        "\"2 s\"",
        "write a ramp shorter than time: only the time after the ramp is measured",
    );
    assert_mistake(
        "[run]\ntime = \"10 s\"\nsample = \"1 us\"\n[[job]]\noperation = \"read\"\n",
        "this requires 10000000 samples",
        "\"1 us\"",
        "write at least \"100 us\": at most 100000 samples",
    );
    assert_eq!(mistake(&job("operation = \"read\"\nstart = \"1 s\"")).1, "\"1 s\"");
    assert_eq!(mistake(&job("operation = \"read\"\ntime = 0")).0, "the time is zero");
    assert_eq!(mistake(&job("operation = \"read\"\nthink_time = \"9000 h\"")).0, "the time is longer than a year");
    assert_eq!(mistake(&job("operation = \"read\"\noperations = 0")).0, "the job would have nothing to do");
    assert_eq!(mistake(&job("operation = \"read\"\nbytes = 0")).1, "0");
}

#[test]
fn random_orders_and_distributions_go_together() {
    assert_mistake(
        &job("operation = \"randread\"\nzone_order = \"sequential\""),
        "a random job never completes a zone",
        "\"sequential\"",
        "write zone_order = \"random\" or \"round-robin\"",
    );
    assert_eq!(
        mistake(&job("operation = \"randread\"\nzone_order = \"round-robin\"\ndistribution = { zipf = 0.9 }")).0,
        "the distribution also selects the zone"
    );
    for (distribution, message, place) in [
        ("{ zipf = 1.2 }", "zipf = 1.2 is out of range", "{ zipf = 1.2 }"),
        ("\"zipf\"", "\"zipf\" is not a distribution", "\"zipf\""),
        ("{ hot = 0.2 }", "this is not a distribution", "{ hot = 0.2 }"),
        ("{ hot = 2.0, of = 0.5 }", "2 is not a fraction", "2.0"),
        ("{ zip = 0.9 }", "unknown key \"zip\"", "zip"),
        ("7", "\"distribution\" must be \"uniform\", { zipf = 0.99 } or { hot = 0.2, of = 0.8 }, not 7", "7"),
    ] {
        let (got, at, _) = mistake(&job(&format!("operation = \"randread\"\ndistribution = {distribution}")));
        assert_eq!((got.as_str(), at.as_str()), (message, place));
    }
}

#[test]
fn the_highest_prefill_applies_and_a_default_excludes_the_zones_of_writers() {
    let text = "[run]\ntime = \"1 s\"\n\
                [[job]]\noperation = \"append\"\nzones = \"4..6\"\n\
                [[job]]\noperation = \"randread\"\nzones = \"5..8\"\n\
                [[job]]\noperation = \"finish\"\nzones = \"7..9\"\nprefill = 0.5\n";
    let prefill = plan_on(&drive(), text).unwrap().prefill();
    assert_eq!(prefill, [(ZoneIndex(6), Blocks(64)), (ZoneIndex(7), Blocks(64)), (ZoneIndex(8), Blocks(32))]);
    let text = job("operation = \"randread\"\nzones = \"4..20\"\nprefill = 0.5");
    assert_eq!(mistake(&text).0, "this leaves 16 zones partly written, and the drive allows 14 active zones");
    assert!(plan_on(&drive(), &job("operation = \"randread\"\nprefill = false")).unwrap().prefill().is_empty());
    assert_eq!(mistake(&job("operation = \"randread\"\nprefill = 1.5")).2, "write a number from 0.0 to 1.0");
    assert_eq!(
        mistake(&job("operation = \"randread\"\nprefill = \"full\"")).0,
        "\"prefill\" must be true, false, or a number from 0.0 to 1.0, not the text \"full\""
    );
}

#[test]
fn finish_at_is_refused_for_zones_that_cannot_be_finished() {
    assert_mistake(
        &job("operation = \"append\"\nfinish_at = 0.01"),
        "nothing would be written before the zone is finished",
        "0.01",
        "write a larger fraction, or use operation = \"finish\" for empty zones",
    );
    assert_eq!(
        mistake(&job("operation = \"write\"\nzones = \"3..5\"\nfinish_at = 0.5")).0,
        "a conventional zone cannot be finished"
    );
}

#[test]
fn names_are_different() {
    let text = "[run]\ntime = \"1 s\"\n[[job]]\nname = \"a\"\noperation = \"read\"\n[[job]]\nname = \"a\"\noperation = \"read\"\n";
    let error = plan_on(&drive(), text).unwrap_err();
    assert_eq!(error.message, "two jobs have the name \"a\"");
    assert_eq!(error.span.unwrap().start, text.rfind("\"a\"").unwrap());
}

#[test]
fn a_file_without_jobs_is_refused_with_the_missing_part() {
    assert_eq!(mistake("[run]\nseed = 2\n").0, "the file has no job");
    assert_eq!(parse_jobs("").unwrap_err().message, "the file is empty");
    assert_eq!(mistake("[[job]]\nname = \"x\"\n").0, "missing key \"operation\" in [[job]] number 1");
    let (message, place, help) = mistake(&job("operation = \"randread\"\nquedepth = 4"));
    assert_eq!((message.as_str(), place.as_str()), ("unknown key \"quedepth\"", "quedepth"));
    assert!(
        help.starts_with("did you mean \"queue_depth\"? allowed here: name, namespace, operation, mix, block_size"),
        "{help}"
    );
}

#[test]
fn programs_make_jobs_without_a_file() {
    let spec = JobSpec { operations: Some(unplaced(10)), ..JobSpec::new(JobOperation::Randread) };
    assert!(Plan::new(&RunSpec::default(), &[unplaced(spec)], &drive()).is_ok());
    let spec = JobSpec { queue_depth: Some(unplaced(0)), ..JobSpec::new(JobOperation::Append) };
    assert_eq!(Plan::new(&RunSpec::default(), &[unplaced(spec)], &drive()).unwrap_err().span, None);
}
