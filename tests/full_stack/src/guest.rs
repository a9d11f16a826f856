//! A Linux guest, which runs scripts one after the other.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::console::Console;
use crate::job::Job;
use crate::root;

/// Exit status of `scripts/guest/build` where the guest is not available.
const NOT_AVAILABLE: i32 = 77;
/// Lines of a failed guest's console that a failure shows.
const SHOWN_LINES: usize = 60;
/// How long a guest may take to boot, and how long a script may run, on a machine that is also busy
/// with other tests.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum lifetime of a guest: all scripts of a soak take less.
const LIFETIME_S: u32 = 3600;
/// Printed by the guest before it accepts a job, and after a job with its exit status
/// (guest/agent.sh).
const READY: &str = "GUEST-READY";
const DONE: &str = "GUEST-DONE ";

/// A booting or running guest. Dropped, it is turned off.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    input: ChildStdin,
    /// Lines of its console; disconnected when the guest exits.
    lines: Receiver<String>,
    /// The directory that is `/test` in the guest.
    _folder: TempDir,
    kernel_log: PathBuf,
    error_log: PathBuf,
}

/// Builds the guest if necessary, or prints on the terminal that the test is skipped, and why.
///
/// # Panics
/// If the guest cannot be built, or is not available and `ZONDA_GUEST=require`.
#[must_use]
pub fn guest_or_skip(test: &str) -> bool {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let mode = std::env::var("ZONDA_GUEST").unwrap_or_default();
    assert!(matches!(mode.as_str(), "" | "skip" | "require"), "ZONDA_GUEST must be skip or require, not {mode}");
    let reason = if mode == "skip" {
        "ZONDA_GUEST=skip".to_owned()
    } else {
        match BUILT.get_or_init(build) {
            Ok(()) => return true,
            Err(reason) => reason.clone(),
        }
    };
    assert!(mode != "require", "ZONDA_GUEST=require, but {reason}");
    // Not eprintln: the test runner captures that of tests that pass. In one write: tests run
    // concurrently.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
    false
}

/// Builds the guest, which is fast if it is up to date.
fn build() -> Result<(), String> {
    let script = root().join("scripts/guest/build");
    let output = Command::new(&script).output().unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(NOT_AVAILABLE) => Err(words.lines().last().unwrap_or("the guest is not available").to_owned()),
        _ => panic!("scripts/guest/build: {}\n{words}", output.status),
    }
}

/// The folder of logs, of the last run.
fn logs() -> PathBuf {
    let logs = root().join("target/guest/logs");
    fs::create_dir_all(&logs).expect("the folder of logs can be created");
    logs
}

impl Guest {
    /// Starts a guest, which boots while the caller continues.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn boot(memory_mib: u32) -> Guest {
        Guest::boot_with(memory_mib, &[], &[])
    }

    /// Starts a guest with these programs in `/test`, and with these arguments of QEMU.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn boot_with(memory_mib: u32, programs: &[PathBuf], qemu: &[String]) -> Guest {
        static BOOTED: AtomicU32 = AtomicU32::new(0);
        let number = BOOTED.fetch_add(1, Ordering::Relaxed) + 1;
        let log = |kind: &str| logs().join(format!("guest-{number}.{kind}"));
        let (kernel_log, error_log) = (log("kernel"), log("errors"));
        let folder = folder();
        for program in programs {
            strip(program, &folder.path().join(program.file_name().expect("a program has a name")));
        }
        let mut child = Command::new(root().join("scripts/guest/run"))
            .args(["--timeout", &LIFETIME_S.to_string(), "--memory", &memory_mib.to_string(), "--until-eof"])
            .arg("--kernel-log")
            .arg(&kernel_log)
            .arg(folder.path())
            .arg("--")
            .args(qemu)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&error_log).expect("a log can be created"))
            .spawn()
            .expect("scripts/guest/run starts");
        let input = child.stdin.take().expect("the input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            // Lines may contain bytes of a failing disk: not always UTF-8.
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Guest { child, input, lines, _folder: folder, kernel_log, error_log }
    }

    /// Runs a job to completion. Its log has this name.
    ///
    /// For every line `HOST: request` that the script prints, `on_request` executes the request;
    /// then the script continues.
    ///
    /// # Errors
    /// If the script fails: the end of its console. The guest is ready for the next job.
    ///
    /// # Panics
    /// If the guest exits, or the script does not end in time; with the end of the console. Or if
    /// `on_request` panics. The guest must not be used again.
    pub fn run(&mut self, name: &str, job: &Job, mut on_request: impl FnMut(&str)) -> Result<Console, String> {
        let mut record = Record::new(name);
        self.wait_for(&mut record, READY, BOOT_TIMEOUT, |_| {});
        let mut input = &self.input;
        // A guest that has exited does not read it, which the wait below detects.
        let _ = input.write_all(job.text().as_bytes());
        let mut record = Record::new(name);
        let done = self.wait_for(&mut record, DONE, SCRIPT_TIMEOUT, |line| {
            if let Some(request) = line.strip_prefix("HOST: ") {
                on_request(request);
                let _ = writeln!(input, "done");
            }
        });
        match done.split(' ').nth(1) {
            Some("0") => Ok(record.console),
            status => Err(self.failure(&record, &format!("{} in the guest: exit status {status:?}", job.script()))),
        }
    }

    /// Reads the console up to the line that begins with this text, which is returned.
    fn wait_for(&self, record: &mut Record, words: &str, timeout: Duration, mut on_line: impl FnMut(&str)) -> String {
        let deadline = Instant::now() + timeout;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with(words) => return line,
                Ok(line) => {
                    record.push(&line);
                    on_line(&line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}", self.failure(record, &format!("no {words} from the guest in {timeout:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{}", self.failure(record, "the guest has exited")),
            }
        }
    }

    fn failure(&self, record: &Record, what: &str) -> String {
        let errors = fs::read_to_string(&self.error_log).unwrap_or_default();
        let (console, kernel) = (record.path.display(), self.kernel_log.display());
        format!("{what}\n{}\n{errors}\nlogs: {console} {kernel}", record.tail())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The script stops QEMU on SIGTERM; after SIGKILL it could not remove its files.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        }
        let _ = self.child.wait();
    }
}

/// The output of a script: in memory, and in a log that can be read while it runs.
struct Record {
    path: PathBuf,
    file: File,
    console: Console,
}

impl Record {
    fn new(name: &str) -> Record {
        let path = logs().join(format!("{name}.console"));
        let file = File::create(&path).expect("a log can be created");
        Record { path, file, console: Console::default() }
    }

    fn push(&mut self, line: &str) {
        writeln!(self.file, "{line}").expect("a log can be written");
        self.console.push(line.to_owned());
    }

    fn tail(&self) -> String {
        let text = self.console.text();
        let skipped = text.lines().count().saturating_sub(SHOWN_LINES);
        text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }
}

/// Copies a program without its symbols, if binutils are installed: a guest reads it from a disk into
/// memory.
fn strip(program: &Path, copy: &Path) {
    let status = Command::new("strip").arg("-o").arg(copy).arg(program).status();
    if !status.is_ok_and(|status| status.success()) {
        fs::copy(program, copy).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    }
}

/// All scripts, with the agent as the first one to run.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder can be created");
    let scripts = root().join("tests/full_stack/guest");
    let entries = fs::read_dir(&scripts).unwrap_or_else(|error| panic!("{}: {error}", scripts.display()));
    for entry in entries {
        let name = entry.expect("a folder can be listed").file_name();
        let copy = if name == "agent.sh" { folder.path().join("run.sh") } else { folder.path().join(&name) };
        fs::copy(scripts.join(&name), copy).expect("a script can be copied");
    }
    folder
}
