//! Remedies that fit the cause: what they propose is not refused for the same reason.

use std::fs;

use super::remedies::{SERVE, help, make, refusal};
use super::server::Server;
use super::{file, output_in, scratch, zonda_in};

#[test]
fn values_of_the_command_line_are_refused_with_their_own_limits() {
    let directory = scratch("fitting-values");
    output_in(&directory, &["drive", "create", "plain", "--profile", "conventional", "--zones", "4"]);
    let job = file(&directory, "job.toml", "[[job]]\noperation = \"read\"\nblock_size = \"4KiB\"\n");
    for (arguments, words, wrong) in [
        (&["drive", "create", "n", "--zones", "-4"][..], "cannot be negative", "-- -4"),
        (&["bench", &job, "--target", "plain", "--queues", "500"], "1..=64", "io_queues"),
        (&["bench", &job, "--target", "plain", "--depth", "0"], "1..=4095", "queue_depth"),
        (&["bench", &job, "--target", "plain", "--depth", "100000"], "1..=4095", "0..="),
        (&["zone", "finish", "plain", "3..x"], "must be the number of a zone, such as 7, or several", "invalid digit"),
        (
            &["drive", "create", "n", "--allocation", "vchunk-0"],
            "vchunk-N or hchunk-N with N of 1 or more",
            "--zones or",
        ),
    ] {
        let ran = zonda_in(&directory, arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words) && !ran.stderr.contains(wrong), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn locations_that_are_no_drive_are_not_to_be_created() {
    let directory = scratch("fitting-locations");
    let report = |location: &str| refusal(&directory, &["zone", "report", location]);
    let (error, help) = report("nvme-tcp:/127.0.0.1/nqn.2026-01.io.zonda:a");
    assert!(error.contains("is not a URL: two slashes follow \"nvme-tcp:\""), "{error}");
    assert_eq!(help, "give nvme-tcp://127.0.0.1/nqn.2026-01.io.zonda:a");
    let (error, help) = report("nvme-tcp://127.0.0.1/nqn.2014-08.org.nvmexpress.discovery");
    assert!(error.contains("is the discovery service, which has no namespaces"), "{error}");
    assert!(help.starts_with("give the NQN of a subsystem"), "{help}");
    let (_, help) = report("nope.toml");
    assert!(help.contains("not a .toml file") && !help.contains("drive create"), "{help}");
    let job = file(
        &directory,
        "job.toml",
        "[drive]\nprofile = \"tiny\"\n\n[[job]]\noperation = \"append\"\nblock_size = \"4KiB\"\nbytes = \"64KiB\"\n",
    );
    let (error, help) = refusal(&directory, &["lab", "run", &job]);
    assert!(error.contains("is a job file, not an experiment") && help.contains("zonda bench"), "{error} {help}");
    output_in(&directory, &["bench", &job, "--quiet"]);
}

#[test]
fn a_member_and_its_volume_cannot_be_served_together() {
    let directory = make("fitting-both");
    let (error, help) = refusal(&directory, &[&["serve", "a", "vol", "--force"], &SERVE[..]].concat());
    assert!(
        error.contains("member 0 of the volume \"vol\"") && error.contains("which this command serves, too"),
        "{error}"
    );
    assert_eq!(help, "serve either vol or a: only one of them can use the image");
}

#[test]
fn a_volume_that_is_not_served_is_rebuilt_by_the_command_in_the_remedy() {
    let directory = make("fitting-rebuild");
    output_in(&directory, &["volume", "spare", "add", "vol", "d"]);
    let failed = output_in(&directory, &["member", "fail", "vol", "b"]);
    let next = "the spare d will replace member 1 (b); the rebuild runs while the volume is served: zonda serve vol\n";
    assert!(failed.ends_with(next), "{failed}");
    let cannot = help(&directory, &["member", "fail", "vol", "c"]);
    assert!(cannot.contains("let the spare replace the failed member first"), "{cannot}");
    let spare = help(&directory, &["member", "replace", "vol", "b", "--with", "d"]);
    for help in [&cannot, &spare] {
        assert!(help.contains("zonda volume status vol --wait --assemble"), "{help}");
    }
    let report = output_in(&directory, &["volume", "status", "vol", "--wait", "--assemble"]);
    assert!(report.contains("healthy"), "{report}");
    let failed = output_in(&directory, &["member", "fail", "vol", "c"]);
    assert!(failed.contains("no spare replaces member 2 (c), and the volume can lose 0 more members"), "{failed}");
}

#[test]
fn a_volume_whose_file_is_lost_or_lacks_a_key_is_served_after_the_remedy() {
    let directory = make("fitting-file");
    let place = directory.join("vol/volume.toml");
    let text = fs::read_to_string(&place).expect("it is there");
    let without: String =
        text.lines().filter(|line| !line.starts_with("format")).map(|line| format!("{line}\n")).collect();
    fs::write(&place, &without).expect("it can be written");
    let help = help(&directory, &["volume", "status", "vol"]);
    assert!(help.starts_with("add a line format = 1; "), "{help}");
    fs::write(&place, format!("format = 1\n{without}")).expect("it can be written");
    Server::start(&directory, &["vol"]).stop();
    fs::remove_file(&place).expect("it is there");
    let (_, help) = refusal(&directory, &[&["serve", "vol"], &SERVE[..]].concat());
    assert!(help.contains("zonda volume import vol --members, with the drives of the volume"), "{help}");
    output_in(&directory, &["volume", "import", "vol", "--members", "a,b,c"]);
    Server::start(&directory, &["vol"]).stop();
}

#[test]
fn an_import_of_both_sides_of_a_split_volume_asks_for_the_side() {
    let directory = make("fitting-split");
    for drive in ["e", "f"] {
        let size = ["--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"];
        output_in(&directory, &[&["drive", "create", drive], &size[..]].concat());
    }
    output_in(&directory, &["volume", "create", "mirror", "--members", "e,f", "--level", "1"]);
    let at = |drive: &str| directory.join(drive);
    for (gone, option) in [("f", None), ("e", Some("--accept-older"))] {
        fs::rename(at(gone), at("away")).expect("it is there");
        let arguments: Vec<&str> = ["mirror"].into_iter().chain(option).collect();
        Server::start(&directory, &arguments).stop();
        fs::rename(at("away"), at(gone)).expect("it is there");
    }
    let imported = output_in(&directory, &["volume", "import", "new", "--members", "e,f", "--force"]);
    assert!(imported.contains("zonda serve new --keep-side MEMBER"), "{imported}");
    Server::start(&directory, &["new", "--keep-side", "f"]).stop();
}
