//! Errors in experiments are reported with their position and a remedy.

use proptest::prelude::*;
use zonda_profiles::BUILTIN;
use zonda_stack::{ErrorSource, Experiment, Profiles, StackError};

use crate::PROFILES;

const JOB: &str = "[[job]]\noperation = \"append\"\nzones = \"0..2\"\noperations = 10\n";

fn error_of(text: &str) -> StackError {
    Experiment::parse(text, &PROFILES).expect_err(text)
}

/// The error in a drive with these lines: its message, its position, and its help.
fn mistake(drive: &str) -> (String, String, String) {
    let text = format!("[drive]\nprofile = \"tiny\"\n{drive}\n\n{JOB}");
    let StackError { error, source } = error_of(&text);
    assert_eq!(source, ErrorSource::JobFile);
    let place = error.span.map_or("nothing", |span| &text[span]).to_owned();
    (error.message, place, error.help.unwrap_or_default())
}

fn assert_mistake(drive: &str, message: &str, place: &str, help: &str) {
    let (got_message, got_place, got_help) = mistake(drive);
    assert_eq!((got_message.as_str(), got_place.as_str()), (message, place), "{drive}");
    assert!(got_help.contains(help), "{drive}: {got_help}");
}

#[test]
fn an_unknown_profile_is_reported_with_a_suggestion_and_all_profiles() {
    let error = error_of(&format!("[drive]\nprofile = \"zn504\"\n{JOB}")).error;
    assert_eq!(error.message, "unknown profile \"zn504\"");
    assert_eq!(error.span, Some(18..25));
    let help = error.help.unwrap();
    assert!(help.starts_with("did you mean \"zn540\"? known: ezns-small, zn540,"), "{help}");
    assert!(help.ends_with("or a path that ends in .toml"), "{help}");
}

#[test]
fn a_file_without_a_drive_or_without_a_job_has_a_remedy() {
    let error = error_of(JOB).to_string();
    let help = "missing table [drive]: add [drive] with a line like profile = \"zn540\"";
    assert!(error.starts_with(help) && error.contains("zonda bench --target"), "{error}");
    assert_eq!(error_of("").error.message, "the file is empty");
    assert_eq!(error_of("[drive]\nprofile = \"tiny\"\n").error.message, "the file has no job");
}

#[test]
fn reads_can_be_verified_only_where_the_drive_keeps_bytes() {
    let file =
        |payload: &str| format!("[drive]\nprofile = \"tiny\"\npayload = \"{payload}\"\n[run]\nverify = true\n{JOB}");
    for payload in ["none", "fingerprints"] {
        let text = file(payload);
        let error = error_of(&text).error;
        assert_eq!(error.message, "reads cannot be verified: the drive does not store the written data");
        assert_eq!(error.span.map(|span| &text[span]), Some("true"));
        assert!(error.help.expect("a remedy").contains("payload = \"bytes\""));
    }
    Experiment::parse(&file("bytes"), &PROFILES).expect("a drive that keeps bytes can be verified");
}

#[test]
fn a_key_that_the_profile_does_not_have_names_the_nearest_dotted_key() {
    for (key, nearest) in [
        ("write_buffer.capasity", "write_buffer.capacity"),
        ("writebuffer.capacity", "write_buffer.capacity"),
        ("parallelism", "zones.parallelism"),
        ("geometry.zone", "geometry.zones"),
        ("flash.program.mean", "flash.program"),
    ] {
        let (message, place, help) = mistake(&format!("[drive.set]\n\"{key}\" = 1"));
        assert_eq!(message, format!("unknown profile key \"{key}\""));
        assert_eq!(place, format!("\"{key}\""));
        assert!(help.starts_with(&format!("did you mean \"{nearest}")), "{key}: {help}");
    }
    assert_mistake("set = { sources = { flash = \"me\" } }", "unknown profile key \"sources.flash\"", "sources", "");
}

#[test]
fn an_invalid_value_is_reported_at_its_position() {
    assert_mistake(
        "[drive.set]\n\"write_buffer.capacity\" = \"8 Mib\"",
        "\"write_buffer.capacity\" is not valid for this profile: \"8 Mib\" is not a size",
        "\"8 Mib\"",
        "did you mean \"8 MiB\"?",
    );
    assert_mistake(
        "[drive.set]\n\"link.read_overhead\" = \"5 us\"\n\"zones.parallelism\" = 3",
        "zones.parallelism must divide the number of dies (4)",
        "3",
        "",
    );
    assert_mistake(
        "[drive.set]\n\"flash.read.base\" = \"1 us\"",
        "\"flash.read\" is a list, which has no key \"base\"",
        "\"flash.read.base\"",
        "set the whole of \"flash.read\"",
    );
    assert_mistake(
        "[drive.set]\n\"geometry.zones\" = 4\ngeometry.zones = 5",
        "\"geometry.zones\" is set twice",
        "geometry",
        "remove one of the two",
    );
}

#[test]
fn an_error_in_the_changed_profile_points_at_the_change() {
    let (message, place, _) =
        mistake("[drive.set]\n\"link.read_overhead\" = \"5 us\"\n\"geometry.zone_size\" = \"1 MiB\"");
    assert!(message.contains("geometry.zone_capacity"), "{message}");
    assert_eq!(place, "\"1 MiB\"");
    // Zones and limits are valid only together; the error is in the dies.
    let together = "\"geometry.zones\" = 2\n\"geometry.max_active_zones\" = 20\n\"geometry.max_open_zones\" = 20\n";
    let (message, place, _) = mistake(&format!("[drive.set]\n{together}\"flash.dies_per_channel\" = 7"));
    assert!(message.contains("zones.parallelism must divide"), "{message}");
    assert_eq!(place, "7");
}

#[test]
fn an_error_in_a_layer_is_reported_at_its_position() {
    let layer = |lines: &str| format!("[[drive.layer]]\n{lines}");
    for (lines, message, place, help) in [
        ("kind = \"dealy\"", "unknown value \"dealy\" for \"kind\"", "\"dealy\"", "did you mean \"delay\"?"),
        ("kind = \"delay\"", "the layer has no delay", "[[drive.layer]]", "add a line like fixed = \"100 us\""),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\nevents = 3",
            "unknown key \"events\"",
            "events",
            "allowed here: operations, zones, when, chance, fixed, spread",
        ),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\noperations = [\"red\"]",
            "unknown operation \"red\"",
            "\"red\"",
            "did you mean \"read\"?",
        ),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\nzones = \"10..17\"",
            "zone 16 does not exist: the namespace has 16 zones",
            "\"10..17\"",
            "use zones of 0..16",
        ),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\nzones = [1, 3]",
            "the zones of a layer must be one range without gaps",
            "[1, 3]",
            "add a layer for each range",
        ),
        ("kind = \"delay\"\nfixed = \"1 us\"\nchance = 2.0", "2 is not a probability", "2.0", "from 0.0 to 1.0"),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\nwhen = \"often\"",
            "\"often\" is not a valid condition",
            "\"often\"",
            "{ every",
        ),
        (
            "kind = \"fault\"",
            "the layer has no status for failed commands",
            "[[drive.layer]]",
            "status = \"write fault\"",
        ),
        (
            "kind = \"fault\"\nstatus = \"write falt\"",
            "unknown status \"write falt\"",
            "\"write falt\"",
            "did you mean \"write fault\"?",
        ),
        ("kind = \"trace\"\nevents = 9999999", "too many events: 9999999", "9999999", "write 0 to 262144"),
        ("kind = \"scheduler\"", "the layer has no policy", "[[drive.layer]]", "policy = \"mq-deadline\""),
        (
            "kind = \"scheduler\"\npolicy = \"none\"\nfifo_batch = 4",
            "policy = \"none\" has no parameters",
            "4",
            "remove this line",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"mq-deadline\"\nzone_width = 4",
            "this is a parameter of policy = \"ezns\"",
            "4",
            "remove this line, or write policy = \"ezns\"",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"ezns\"\nzone_width = 0",
            "zone_width must not be 0",
            "0",
            "write at least zone_width = 1",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"interference\"\nblock_latency = \"10 us\"",
            "this is a parameter of policy = \"ezns\"",
            "\"10 us\"",
            "remove this line, or write policy = \"ezns\"",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"ezns\"\nwithin = \"fair\"",
            "this is a parameter of policy = \"interference\"",
            "\"fair\"",
            "remove this line, or write policy = \"interference\"",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"mq-deadline\"\nin_flight = 0",
            "in_flight must not be 0",
            "0",
            "in_flight = 1",
        ),
        ("kind = \"slice\"", "the layer has no number of zones", "[[drive.layer]]", "count = 16"),
        (
            "kind = \"slice\"\nfirst = 10\ncount = 7",
            "invalid slice: it has zones 10 to 16, but the last zone of the device is 15",
            "7",
            "reduce count, or start at a lower zone (first); docs/guide/stacks.md",
        ),
        (
            "kind = \"slice\"\ncount = 4\nmax_active_zones = 100",
            "invalid slice: max_active_zones = 100 exceeds 4, the limit of the device",
            "100",
            "set max_active_zones to at most 4",
        ),
        (
            "kind = \"slice\"\ncount = 4\nmax_open_zones = 100",
            "invalid slice: max_open_zones = 100 exceeds 3, the limit of the device",
            "100",
            "set max_open_zones to at most 3",
        ),
        (
            "kind = \"scheduler\"\npolicy = { a = 1, b = 2 }",
            "\"policy\" must be \"none\", \"mq-deadline\", \"ezns\" or \"interference\", not a table",
            "{ a = 1, b = 2 }",
            "",
        ),
        (
            "kind = \"scheduler\"\npolicy = \"mq-deadlin\"",
            "unknown value \"mq-deadlin\" for \"policy\"",
            "\"mq-deadlin\"",
            "did you mean \"mq-deadline\"? allowed here: none, mq-deadline, ezns, interference",
        ),
        (
            "kind = \"delay\"\nfixed = \"1 us\"\nzones = \"0..2, 4\"",
            "\"0..2, 4\" is not a number, a range or a list",
            "\"0..2, 4\"",
            "write a range like \"0..16\", and add a layer for each range",
        ),
    ] {
        assert_mistake(&layer(lines), message, place, help);
    }
}

#[test]
fn zone_numbers_are_those_of_the_layer_below() {
    let slice = "[[drive.layer]]\nkind = \"slice\"\nfirst = 8\ncount = 4\n";
    let delay = "[[drive.layer]]\nkind = \"delay\"\nfixed = \"1 us\"\nzones = \"3..5\"\n";
    assert_mistake(&format!("{slice}{delay}"), "zone 4 does not exist: the namespace has 4 zones", "\"3..5\"", "0..4");
    let text = format!("[drive]\nprofile = \"tiny\"\n{delay}{slice}{JOB}");
    assert!(Experiment::parse(&text, &PROFILES).is_ok());
}

#[test]
fn an_error_in_a_profile_file_is_reported_in_that_file() {
    let text = format!("[drive]\nprofile = \"./mine.toml\"\n{JOB}");
    let read = |path: &str| {
        assert_eq!(path, "./mine.toml");
        Ok("name = \"mine\"\ntitel = \"x\"\n".to_owned())
    };
    let error = Experiment::parse(&text, &Profiles::new(BUILTIN, &read)).unwrap_err();
    assert!(error.to_string().starts_with("./mine.toml: unknown key \"titel\": did you mean \"title\"?"), "{error}");
    let ErrorSource::Profile { path, text: profile } = &error.source else { panic!("not about the profile: {error}") };
    assert_eq!((path.as_str(), &profile[error.error.span.clone().unwrap()]), ("./mine.toml", "titel"));

    let no_such_file = |_: &str| Err("no such file".to_owned());
    let StackError { error, source } = Experiment::parse(&text, &Profiles::new(BUILTIN, &no_such_file)).unwrap_err();
    assert_eq!(error.message, "cannot read profile \"./mine.toml\": no such file");
    assert_eq!((&text[error.span.unwrap()], source), ("\"./mine.toml\"", ErrorSource::JobFile));
}

#[test]
fn a_drive_that_does_not_fit_into_memory_is_refused() {
    for (key, value, what) in [
        ("geometry.zones", "4000000000", "4000000000 zones"),
        ("geometry.zone_capacity", "\"12 TiB\"\n\"geometry.zone_size\" = \"16 TiB\"", "erase units in a zone"),
    ] {
        let (message, _, help) = mistake(&format!("[drive.set]\n\"{key}\" = {value}"));
        assert!(message.contains(what) && message.ends_with("too large"), "{message}");
        assert!(help.starts_with("the maximum is"), "{help}");
    }
    assert_mistake("set = { geometry.zones = 2000000 }", "a drive with 2000000 zones is too large", "geometry", "");
}

#[test]
fn a_very_long_key_is_refused() {
    let key = ["a"; 30_000].join(".");
    let (message, _, help) = mistake(&format!("[drive.set]\n\"{key}\" = 1"));
    assert_eq!(message, "the key has too many names");
    assert!(help.contains("drive show"), "{help}");
}

#[test]
fn jobs_that_together_need_too_many_partly_written_zones_are_refused() {
    let job = |zones: &str| {
        format!("[[job]]\noperation = \"randread\"\noperations = 1\nprefill = 0.5\nzones = \"{zones}\"\n")
    };
    let text = format!("[drive]\nprofile = \"tiny\"\n{}{}", job("0..3"), job("3..6"));
    let error = error_of(&text).error;
    assert!(error.message.contains("leaves 6 zones partly written"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn errors_about_any_changed_value_have_a_valid_position(
        group in "geometry|flash|link|zones|write_buffer|firmware|conventional|x",
        name in "zones|zone_size|program|read|capacity|cap|parallelism|servers|[a-z]{0,3}",
        value in "[0-9]{1,10}|\"[0-9]{1,4} (KiB|us)\"|true|\\[\\]|\\{ base = \"1 us\" \\}|-1|1\\.5",
    ) {
        let text = format!("[drive]\nprofile = \"tiny\"\n[drive.set]\n\"{group}.{name}\" = {value}\n{JOB}");
        if let Err(StackError { error, .. }) = Experiment::parse(&text, &PROFILES) {
            let place = error.span.and_then(|span| text.get(span));
            prop_assert!(place.is_some() || error.message.contains("zone"), "{}\n{text}", error.message);
        }
    }
}
