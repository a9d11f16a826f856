//! End-to-end tests of the program: its output, files and exit codes.

mod advise;
mod bad_input;
mod bench;
mod bench_target;
mod creation;
mod drive;
mod elements;
mod embed;
mod examples;
mod exit_codes;
mod first_steps;
mod fit;
mod images;
mod lab;
mod misplaced;
mod mixed_zones;
mod open_files;
mod ownership;
mod pool;
mod pool_hosts;
mod pool_takeover;
mod probe;
mod read_only;
mod refused;
mod reload;
mod remedies;
mod remedies_fitting;
mod remedies_followed;
mod reservations;
mod restarts;
mod secrets;
mod serve;
mod server;
mod sim;
mod terminal;
mod top;
mod volume;
mod volume_on_pools;

use std::fmt::Display;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The exit code and the output of a command.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `zonda` from the root of the workspace.
fn zonda(arguments: &[&str]) -> Ran {
    zonda_with_input(arguments, "")
}

/// Runs `zonda` from this directory, so that paths in its output are the same everywhere.
fn zonda_in(directory: &Path, arguments: &[&str]) -> Ran {
    run(directory, arguments, "")
}

/// Runs `zonda` with this on its standard input.
fn zonda_with_input(arguments: &[&str], input: &str) -> Ran {
    run(&root(), arguments, input)
}

fn run(directory: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonda"));
    command.args(arguments).current_dir(directory).env_remove("NO_COLOR").env_remove("JOURNAL_STREAM");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that fails before it reads closes its end of the pipe.
    let _ = child.stdin.take().expect("the input is a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the program ends");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    }
}

/// Runs `zonda`, which must succeed, and returns its output.
fn output_of(arguments: &[&str]) -> String {
    let ran = zonda(arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

/// Runs `zonda` from this directory; it must succeed.
fn output_in(directory: &Path, arguments: &[&str]) -> String {
    let ran = zonda_in(directory, arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// The error message of `zonda`, run from this directory: exit code 2, no standard output, and a
/// remedy.
fn refused_in(directory: &Path, arguments: &[&str]) -> String {
    let ran = zonda_in(directory, arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let remedy = ran.stderr.lines().find_map(|line| line.split_once("= help:")).map(|(_, help)| help.trim());
    assert!(remedy.is_some_and(|help| !help.is_empty()), "{arguments:?}, no remedy: {}", ran.stderr);
    ran.stderr
}

fn json_of(arguments: &[&str]) -> serde_json::Value {
    json_in(&root(), arguments)
}

fn json_in(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = output_in(directory, arguments);
    assert_eq!(output.lines().count(), 1, "one object, and nothing else");
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{output}"))
}

/// Timeout of conditions: long, for slow machines.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Polling interval: each poll may start a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the condition holds; fails after the timeout.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(WAIT_MAX, || holds().then_some(()).ok_or(what));
}

/// Waits until `look` succeeds; fails with its last error after the timeout.
fn wait_for<T, E: Display>(at_most: Duration, mut look: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(reason) => assert!(began.elapsed() < at_most, "not after {} s: {reason}", at_most.as_secs()),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory for the files of one test, removed when it is dropped.
struct Scratch(tempfile::TempDir);

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

/// A directory for the files of one test, empty, and that of no other run of the tests.
fn scratch(test: &str) -> Scratch {
    let name = format!("{test}-");
    let made = tempfile::Builder::new().prefix(&name).tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    Scratch(made.expect("the scratch directory can be made"))
}

/// Writes a file for one test, and returns its path.
fn file(directory: &Path, name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    std::fs::write(&path, contents).expect("the file can be written");
    path.to_str().expect("the path is UTF-8").to_owned()
}

/// The text with every number as `#`, every unit of time as `t` and of size as `B`, and every run
/// of spaces or dashes as one: what is left of a measurement when it is made again.
fn without_numbers(text: &str) -> String {
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| {
            let mut shape: String =
                word.chars().map(|c| if c.is_ascii_digit() || c == ',' { '#' } else { c }).collect();
            for doubled in ["##", "--", "#.#"] {
                while shape.contains(doubled) {
                    shape = shape.replace(doubled, &doubled[..1]);
                }
            }
            match shape.as_str() {
                "ns" | "us" | "ms" | "s" => "t".to_owned(),
                // With a comma behind it.
                "ns#" | "us#" | "ms#" | "s#" => "t#".to_owned(),
                "KiB" | "MiB" | "GiB" => "B".to_owned(),
                _ => shape,
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|line| words(line) + "\n").collect()
}

/// The golden file of this name; empty where there is none.
fn golden(name: &str) -> String {
    std::fs::read_to_string(golden_path(name)).unwrap_or_default()
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares a text with `tests/golden/NAME`, or writes it there if `ZONDA_UPDATE_GOLDEN` is set.
fn assert_golden(name: &str, text: &str) {
    if std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() {
        std::fs::write(golden_path(name), text).expect("the golden file can be written");
        return;
    }
    assert_eq!(text, golden(name), "{name} differs; ZONDA_UPDATE_GOLDEN=1 rewrites it");
}
