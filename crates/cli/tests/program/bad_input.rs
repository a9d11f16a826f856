//! Invalid input is reported with exit code 2, its position and a remedy.

use std::process::{Command, Stdio};

use super::{assert_golden, file, root, scratch, zonda, zonda_with_input};

const DRIVE: &str = "[drive]\nprofile = \"tiny\"\n";

/// The message about a job file, which must be refused.
fn refusal(job: &str) -> String {
    let ran = zonda_with_input(&["bench", "-"], job);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{job}");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}

fn refused(arguments: &[&str]) -> String {
    let ran = zonda(arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "\"{part}\" is not in:\n{message}");
    }
}

#[test]
fn an_unknown_profile_is_reported_with_its_position_and_a_suggestion() {
    let message = refusal("[drive]\nprofile = \"zn504\"\n[[job]]\noperation = \"read\"\n");
    assert_says(&message, &["unknown profile \"zn504\"", "<stdin>:2:11", "did you mean \"zn540\"?"]);
    assert_says(&refused(&["drive", "show", "zn504"]), &["unknown profile \"zn504\"", "did you mean \"zn540\"?"]);
}

#[test]
fn a_misspelt_key_is_underlined() {
    let message = refusal(&format!("{DRIVE}\n[[job]]\noperation = \"randread\"\nquedepth = 4\noperations = 10\n"));
    assert_golden("misspelt_key.txt", &message);
    assert_says(&message, &["unknown key \"quedepth\"", "<stdin>:6:1", "^^^^^^^^", "did you mean \"queue_depth\"?"]);
}

#[test]
fn a_misspelt_key_of_the_profile_is_underlined() {
    let message =
        refusal(&format!("{DRIVE}[drive.set]\n\"write_buffer.capasity\" = \"2 MiB\"\n[[job]]\noperation = \"read\"\n"));
    assert_says(
        &message,
        &["unknown profile key \"write_buffer.capasity\"", "<stdin>:4:1", "did you mean \"write_buffer.capacity\"?"],
    );
}

#[test]
fn a_zone_out_of_range_is_reported_with_the_valid_range() {
    let message = refusal(&format!("{DRIVE}[[job]]\noperation = \"read\"\nzones = \"10..20\"\n"));
    assert_says(&message, &["zone 16 does not exist", "<stdin>:5:9", "write zones within \"0..16\""]);
}

#[test]
fn an_invalid_block_size_is_reported_with_the_required_multiple() {
    let message = refusal(&format!("{DRIVE}[[job]]\noperation = \"read\"\nblock_size = \"5 kB\"\n"));
    assert_says(
        &message,
        &["not a multiple of the block size", "<stdin>:5:14", "a multiple of the drive's block size, \"4 KiB\""],
    );
}

#[test]
fn an_empty_file_is_reported_with_the_required_tables() {
    assert_says(&refusal(""), &["the file is empty", "--> <stdin>", "[drive]", "[[job]]"]);
}

#[test]
fn a_file_that_cannot_be_read_is_reported_with_the_reason() {
    let directory = scratch("unreadable");
    let missing = directory.join("none.toml");
    let missing = missing.to_str().unwrap();
    assert_says(&refused(&["bench", missing]), &[missing, "no such file", "help: check the path"]);
    let directory_path = directory.to_str().unwrap();
    assert_says(&refused(&["bench", directory_path]), &["is a directory", "name a file in this directory"]);
    let binary = file(&directory, "binary.toml", [b'a', b'\n', 0xff, 0xfe]);
    assert_says(&refused(&["bench", &binary]), &["not valid UTF-8 at byte 2 (line 2)"]);
}

#[test]
fn a_device_in_place_of_a_file_is_refused_and_not_read_without_end() {
    let directory = scratch("endless");
    let zero = "/dev/zero: is a character device, not a regular file";
    for arguments in [
        &["bench", "/dev/zero"][..],
        &["serve", "--config", "/dev/zero"],
        &["drive", "show", "/dev/zero"],
        &["probe", "model:tiny", "--budget", "1ms", "--compare", "/dev/zero"],
        &["advise", "--geometry", "tiny", "--trace", "/dev/zero"],
        &["zone", "report", "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.zonda:a", "--secret-file", "/dev/zero"],
    ] {
        assert_says(&refused(arguments), &["is a character device, not a regular file"]);
    }
    let subsystem = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n[[subsystem.namespace]]\n";
    let namespace = "memory = { profile = \"tiny\" }\nscheduler = \"interference\"\ngroups = \"/dev/zero\"\n";
    let listen = "[server]\nlisten = [\"127.0.0.1:0\"]\n";
    let plan = file(&directory, "zonda.toml", format!("{listen}{subsystem}{namespace}"));
    assert_says(&refused(&["serve", "--config", &plan]), &[zero, "help: measure the drive with zonda probe"]);
}

#[cfg(unix)]
#[test]
fn a_file_without_read_permission_is_reported_as_such() {
    use std::os::unix::fs::PermissionsExt;
    let directory = scratch("locked");
    let locked = file(&directory, "locked.toml", DRIVE);
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&locked).is_ok() {
        return; // root can read everything.
    }
    assert_says(&refused(&["bench", &locked]), &["permission denied", "make the file readable"]);
}

#[test]
fn an_error_in_a_profile_of_the_user_points_into_that_file() {
    let directory = scratch("own_profile");
    let text = zonda_profiles::builtin_text("tiny").unwrap();
    file(&directory, "mine.toml", text.replace("zones = 16", "zoness = 16"));
    let job = file(&directory, "job.toml", "[drive]\nprofile = \"mine.toml\"\n[[job]]\noperation = \"read\"\n");
    let line = 1 + text.lines().position(|line| line == "zones = 16").unwrap();
    let place = format!("mine.toml:{line}:1");
    assert_says(&refused(&["bench", &job]), &["unknown key \"zoness\"", &place, "did you mean \"zones\"?"]);
    let profile = directory.join("mine.toml");
    assert_says(&refused(&["drive", "show", profile.to_str().unwrap()]), &["unknown key \"zoness\"", &place]);
    let job = file(&directory, "job.toml", "[drive]\nprofile = \"none.toml\"\n[[job]]\noperation = \"read\"\n");
    assert_says(&refused(&["bench", &job]), &["cannot read profile \"none.toml\": no such file", "job.toml:2:11"]);
}

#[test]
fn a_profile_path_is_relative_to_the_job_file() {
    let directory = scratch("beside");
    file(&directory, "mine.toml", zonda_profiles::builtin_text("tiny").unwrap());
    let job =
        file(&directory, "job.toml", "[drive]\nprofile = \"mine.toml\"\n[[job]]\noperation = \"read\"\nzones = 0\n");
    assert_eq!(zonda(&["bench", &job, "--quiet"]).code, Some(0));
}

#[test]
fn a_directory_for_results_that_cannot_be_created_is_reported_before_the_run() {
    let directory = scratch("occupied");
    let occupied = file(&directory, "file", "");
    let message = refused(&["bench", "examples/append.toml", "--out", &occupied]);
    assert_says(&message, &["cannot create directory", "choose a writable directory"]);
}

#[test]
fn invalid_usage_is_refused() {
    assert_says(&refused(&["sim", "--seeds", "0"]), &["--seeds", "0 is not in 1.."]);
    assert_says(&refused(&["sim", "--threads", "0"]), &["--threads", "0 is not in 1.."]);
    assert_says(&refused(&["sim", "--lite", "--swarm"]), &["cannot be used with"]);
    assert_says(&refused(&["sim", "7", "--seeds", "3"]), &["cannot be used with"]);
    assert_says(&refused(&["sim", "--bug", "typo"]), &["invalid value 'typo'", "lost-wakeup"]);
    assert_says(
        &refused(&["sim", "--first", "18446744073709551615"]),
        &["exceed the largest seed", "a smaller --first"],
    );
    assert_says(&refused(&["bench"]), &["JOB.toml", "Usage: zonda bench"]);
    assert_says(&refused(&["bnech"]), &["unrecognized subcommand 'bnech'", "'bench'"]);
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonda"));
    command.args(["bench", "examples/tour.toml", "--json", "--quiet"]).current_dir(root());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
