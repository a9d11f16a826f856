//! Creation of images by several processes at once, and by a process that is killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::server::Server;
use super::{Ran, output_in, refused_in, scratch, zonda_in};

const CREATE: [&str; 7] = ["drive", "create", "a/b/drive", "--zones", "16", "--zone-capacity", "1MiB"];

/// Starts to create an image.
fn begin(directory: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonda"));
    command.args(CREATE).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for its end.
fn end(child: Child) -> Ran {
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn assert_whole(directory: &Path) {
    let checked = output_in(directory, &["drive", "check", "a/b/drive", "--quiet"]);
    assert!(checked.contains("a/b/drive: no damage, 0 blocks verified"), "{checked}");
    output_in(directory, &["zone", "finish", "a/b/drive", "3"]);
}

#[test]
fn a_creation_that_is_killed_at_any_moment_can_be_repeated() {
    let directory = scratch("creation-killed");
    let began = Instant::now();
    assert_eq!(end(begin(&directory)).code, Some(0));
    // Some are killed before they start, some after they have completed.
    let longest = began.elapsed() * 5 / 4;
    let mut unfinished = 0;
    for round in 0..40 {
        std::fs::remove_dir_all(directory.join("a")).expect("it was made");
        let mut child = begin(&directory);
        let delay: Duration = longest * round / 40;
        std::thread::sleep(delay);
        child.kill().expect("it is a child of ours");
        child.wait().expect("it ends");
        let shown = zonda_in(&directory, &["zone", "report", "a/b/drive"]);
        if shown.code != Some(0) {
            unfinished += usize::from(shown.stderr.contains("its creation was interrupted"));
            let words = ["its creation was interrupted", "there is no image", "there is no directory"];
            assert!(words.iter().any(|words| shown.stderr.contains(words)), "after {delay:?}: {}", shown.stderr);
            let ran = end(begin(&directory));
            assert_eq!(ran.code, Some(0), "after {delay:?}: {}", ran.stderr);
        }
        assert_whole(&directory);
    }
    assert!(unfinished > 0, "none was killed in the middle");
}

#[test]
fn of_two_processes_that_create_an_image_one_succeeds_and_the_other_is_refused() {
    for round in 0..20 {
        let directory = scratch("creation-twice");
        let both = [begin(&directory), begin(&directory)].map(end);
        let codes = both.each_ref().map(|ran| ran.code);
        assert!(codes == [Some(0), Some(2)] || codes == [Some(2), Some(0)], "round {round}: {codes:?}");
        for ran in both.iter().filter(|ran| ran.code == Some(2)) {
            let words = ["holds an image already", "being created by another program"];
            assert!(words.iter().any(|words| ran.stderr.contains(words)), "{}", ran.stderr);
        }
        assert_whole(&directory);
    }
}

#[test]
fn a_server_is_not_disturbed_by_attempts_to_create_an_image_in_its_directory() {
    let directory = scratch("creation-served");
    assert_eq!(end(begin(&directory)).code, Some(0));
    let server = Server::start(&directory, &["a/b/drive"]);
    for _ in 0..3 {
        assert!(refused_in(&directory, &CREATE).contains("holds an image already"));
    }
    // Also with a marker of an interrupted creation.
    std::fs::write(directory.join("a/b/drive/creating.zonda"), "not complete").expect("the disk has space");
    assert!(refused_in(&directory, &CREATE).contains("in use by another program"));
    std::fs::remove_file(directory.join("a/b/drive/creating.zonda")).expect("it is there");
    output_in(&directory, &["zone", "finish", server.url(0), "3"]);
    server.stop();
    let checked = output_in(&directory, &["drive", "check", "a/b/drive", "--quiet"]);
    assert!(checked.contains("no damage"), "{checked}");
}

#[test]
fn a_server_completes_an_interrupted_creation_of_its_default_drive() {
    let directory = scratch("creation-default");
    std::fs::create_dir(directory.join("zonda-drive")).expect("the disk has space");
    std::fs::write(directory.join("zonda-drive/creating.zonda"), "not complete").expect("the disk has space");
    std::fs::write(directory.join("zonda-drive/state.zonda"), "half a st").expect("the disk has space");
    Server::start(&directory, &[]).stop();
    assert!(!directory.join("zonda-drive/creating.zonda").exists());
}
