//! Exit codes: 0 success, 1 the run failed, 2 invalid input or usage.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::server::Server;
use super::{file, json_in, output_in, output_of, root, scratch, zonda, zonda_in};

/// Answers every request about the volume in `vol` of this directory, as its server would, until
/// the test ends.
fn answer_for_volume(directory: &Path, answer: String) {
    let volume = directory.join("vol");
    std::fs::create_dir_all(&volume).expect("it can be made");
    let _ = std::fs::remove_file(volume.join("control"));
    let listener = UnixListener::bind(volume.join("control")).expect("the address is free");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = String::new();
            let asked = stream.try_clone().and_then(|read| BufReader::new(read).read_line(&mut request));
            // Some clients only check whether a server is running.
            if asked.is_ok_and(|bytes| bytes > 0) {
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
}

/// A report of a volume in state "healthy".
fn report() -> Value {
    let directory = scratch("exit-report");
    output_in(
        &directory,
        &["drive", "create", "a", "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"],
    );
    output_in(&directory, &["volume", "create", "vol", "--members", "a"]);
    json_in(&directory, &["volume", "status", "vol", "--json"])
}

#[test]
fn exit_codes_are_explained_in_the_help_and_in_the_guide() {
    let help = output_of(&["--help"]);
    assert!(help.contains("Exit codes: 0 success; 1 the run failed; 2 invalid input or usage."), "{help}");
    let guide = std::fs::read_to_string(root().join("docs/guide/first-steps.md")).expect("the guide can be read");
    let guide = guide.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(guide.contains("Exit codes: 0 success, 1 the run failed, 2 the input or usage is invalid."));
}

#[test]
fn invalid_usage_and_input_give_2_and_no_standard_output() {
    let directory = scratch("exit-input");
    let wrong = file(&directory, "wrong.toml", "[drive]\nprofile = \"tiny\"\n[[job]]\noperation = \"fly\"\n");
    for arguments in [
        &["fly"][..],
        &["bench", "--fly"],
        &["bench"],
        &["bench", &wrong],
        &["bench", "none.toml"],
        &["drive", "show", "none"],
        &["volume", "status", "none"],
        &["zone", "report", "none"],
        &["serve", "none", "--listen", "127.0.0.1:0", "--http", "off"],
    ] {
        let ran = zonda_in(&directory, arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(zonda(&["drive", "profiles"]).code, Some(0));
}

#[test]
fn a_failure_not_caused_by_the_input_gives_1() {
    let directory = scratch("exit-broken");
    for answer in ["", "\n", "nonsense\n"] {
        answer_for_volume(&directory, answer.to_owned());
        for arguments in
            [&["volume", "status", "vol"][..], &["volume", "scrub", "vol"], &["member", "fail", "vol", "0"]]
        {
            let ran = zonda_in(&directory, arguments);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{arguments:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("no answer from the server of the volume"), "{}", ran.stderr);
        }
    }
    // A request that the server refuses is invalid input.
    let refusal = json!({ "error": { "message": "there is no such member", "help": "name another" } });
    answer_for_volume(&directory, format!("{refusal}\n"));
    let ran = zonda_in(&directory, &["member", "fail", "vol", "9"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn a_lost_volume_and_lost_blocks_give_1_and_the_report_is_printed() {
    let directory = scratch("exit-lost");
    let healthy = report();
    let code = |report: &Value, arguments: &[&str]| {
        answer_for_volume(&directory, format!("{}\n", json!({ "report": report })));
        let ran = zonda_in(&directory, arguments);
        assert!(ran.stdout.contains("vol"), "{arguments:?} prints no report: {}", ran.stderr);
        ran.code
    };
    let mut lost = healthy.clone();
    lost["state"] = "lost".into();
    let mut data_lost = healthy.clone();
    data_lost["state"] = "data lost".into();
    data_lost["lost_blocks"] = 3.into();
    let mut lost_blocks = healthy.clone();
    lost_blocks["last_scrub"] = json!({ "blocks": 10, "repaired": 1, "lost": 1 });
    let mut repaired = healthy.clone();
    repaired["last_scrub"] = json!({ "blocks": 10, "repaired": 1, "lost": 0 });
    let mut degraded = healthy.clone();
    degraded["state"] = "degraded".into();
    let (status, scrub) = (&["volume", "status", "vol"][..], &["volume", "scrub", "vol"][..]);
    let replace = &["member", "replace", "vol", "0", "--with", "b"][..];
    for (report, arguments, expected) in [
        (&healthy, status, 0),
        (&degraded, status, 0),
        (&lost, status, 1),
        (&lost, &["volume", "status", "vol", "--json"], 1),
        (&lost, &["volume", "status", "vol", "--wait"], 1),
        (&data_lost, status, 1),
        (&data_lost, scrub, 1),
        (&healthy, scrub, 0),
        (&repaired, scrub, 0),
        (&lost_blocks, scrub, 1),
        (&lost, scrub, 1),
        (&healthy, replace, 0),
        (&lost, replace, 1),
    ] {
        assert_eq!(code(report, arguments), Some(expected), "{arguments:?} of {report}");
    }
}

#[test]
fn a_volume_whose_only_member_is_disconnected_is_reported_as_suspended() {
    let directory = scratch("exit-gone");
    output_in(
        &directory,
        &["drive", "create", "a", "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"],
    );
    let far = Server::start(&directory, &["a"]);
    output_in(&directory, &["volume", "create", "vol", "--members", far.url(0)]);
    let server = Server::start(&directory, &["vol"]);
    assert_eq!(zonda_in(&directory, &["volume", "status", "vol"]).code, Some(0));
    far.kill();
    let job = file(&directory, "job.toml", "[[job]]\noperation = \"randwrite\"\noperations = 100\n");
    let ran = zonda_in(&directory, &["bench", &job, "--target", server.url(0), "--yes", "--quiet", "--json"]);
    assert_eq!(ran.code, Some(1), "the run failed, not its input: {}", ran.stderr);
    let ran = zonda_in(&directory, &["volume", "status", "vol", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    assert_eq!((ran.code, &report["state"]), (Some(1), &"suspended".into()), "{report}");
}
