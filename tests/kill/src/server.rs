//! The program `zonda` as a process that is started, killed and restarted.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::loss::RunError;

/// How long a server may take until it listens, and until it has exited.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The state, in a server's greeting, of a drive that needed no recovery.
const CLEAN: &str = "last shutdown: clean";

/// How servers are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its working directory, with the images and its log.
    pub directory: PathBuf,
    /// Whether it must use epoll.
    pub epoll: bool,
}

/// A running server. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Its greeting, up to the line "listening".
    greeting: Vec<String>,
}

/// The path of `zonda`: the named one, or the one next to this program, which is built first if
/// cargo is available.
///
/// # Errors
/// When it is not found, with the path.
pub fn program(named: Option<&Path>) -> Result<PathBuf, RunError> {
    let named = named.map(Path::to_owned).or_else(|| std::env::var_os("ZONDA_PROGRAM").map(PathBuf::from));
    let program = match named {
        Some(program) => program,
        None => beside()?,
    };
    // Servers run in their own directory.
    program.canonicalize().map_err(|error| {
        let shown = program.display();
        let profile = program.parent().map_or("release", profile_of);
        let remedy = format!("build it with cargo build --profile {profile} --package zonda-cli");
        RunError::Failed(format!("cannot find the program {shown} ({error}): {remedy}"))
    })
}

/// Programs are in `<target>/<folder of the profile>`, tests in its `deps`.
fn beside() -> Result<PathBuf, RunError> {
    let own = std::env::current_exe()
        .map_err(|error| RunError::Failed(format!("cannot determine the path of this program: {error}")))?;
    let folder = folder_of(&own).to_owned();
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), folder.parent()) {
        let mut build = Command::new(cargo);
        build.args(["build", "--profile", profile_of(&folder), "--quiet", "--package", "zonda-cli", "--target-dir"]);
        build.arg(target);
        // Variables that cargo sets for a test of its package must not reach the build: build
        // scripts would see a change, and a third of all dependencies would be rebuilt.
        let names = std::env::vars_os().map(|(name, _)| name);
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        for name in names.filter(|name| of_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix))) {
            build.env_remove(name);
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(RunError::Failed("building zonda failed".to_owned()));
        }
    }
    Ok(folder.join("zonda"))
}

/// The folder of the profile that this program was built with.
fn folder_of(program: &Path) -> &Path {
    let folder = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    folder.expect("a program lies in a folder")
}

/// The cargo profile of this folder: its name is that of the profile, except for `dev`.
fn profile_of(folder: &Path) -> &str {
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    }
}

/// A free TCP port of the loopback, outside the ephemeral range: a server must find it free again
/// after each kill.
///
/// # Errors
/// When no port is free.
pub(crate) fn free_port() -> Result<u16, RunError> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 20_000;
    const PORTS: u32 = 12_000;
    // Concurrent runs, in one process or in several, start at different ports. No port is returned
    // twice: the first server may not listen yet.
    let own = std::process::id().wrapping_mul(16);
    let next = || FIRST + own.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)) % PORTS;
    let mut ports = (0..PORTS).map(|_| next() as u16);
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.ok_or_else(|| RunError::Failed("the loopback has no free port".to_owned()))
}

impl Launcher {
    /// Runs `zonda` to completion, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, RunError> {
        let failed = |what: String| RunError::Failed(format!("zonda {}: {what}", arguments.join(" ")));
        let output = Command::new(&self.program).args(arguments).current_dir(&self.directory).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(failed(format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))))
    }

    /// Starts a server, and waits until hosts can connect.
    ///
    /// # Errors
    /// When it exits, or does not listen in time; with the last lines of its log.
    pub(crate) fn start(&self, arguments: &[String]) -> Result<Server, RunError> {
        self.listening(self.spawn(arguments, &["--quiet"])?)
    }

    /// The same, with a server that logs the requests of operators.
    ///
    /// # Errors
    /// As for [`start`](Launcher::start).
    pub(crate) fn start_logging(&self, arguments: &[String]) -> Result<Server, RunError> {
        self.listening(self.spawn(arguments, &[])?)
    }

    /// Waits until hosts can connect.
    fn listening(&self, mut child: Child) -> Result<Server, RunError> {
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("its output is a pipe");
        // Reads until the server exits, so that it never writes to a closed pipe.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The receiver is dropped after the greeting.
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + TIMEOUT;
        let mut server = Server { child, greeting: Vec::new() };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else {
                let ended = server.child.try_wait().ok().flatten();
                let ended = ended.map_or_else(|| "timeout".to_owned(), |status| status.to_string());
                let log = self.last_of_log();
                return Err(RunError::Failed(format!("the server does not listen ({ended})\n{log}")));
            };
            let listens = line.starts_with("listening");
            server.greeting.push(line);
            if listens {
                return Ok(server);
            }
        }
    }

    /// Starts a server that may refuse to serve; returns the error then.
    ///
    /// # Errors
    /// When it neither listens nor exits in time, or was killed by a signal.
    pub(crate) fn start_or_refuse(&self, arguments: &[String]) -> Result<Result<Server, String>, RunError> {
        let before = self.log_bytes();
        match self.start(arguments) {
            Ok(server) => Ok(Ok(server)),
            Err(failure) => {
                let said = self.log_since(before);
                if said.contains("panicked") || !said.contains("error: ") {
                    return Err(failure);
                }
                Ok(Err(said))
            }
        }
    }

    /// Starts a server and kills it a little later, whatever its progress.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start_and_kill(&self, arguments: &[String], after: Duration) -> Result<(), RunError> {
        let mut child = self.spawn(arguments, &["--quiet"])?;
        thread::sleep(after);
        // It may have exited by itself; then the next start shows why.
        let _ = child.kill();
        child.wait().map_err(|error| RunError::Failed(format!("cannot wait for the server: {error}")))?;
        Ok(())
    }

    fn spawn(&self, arguments: &[String], options: &[&str]) -> Result<Child, RunError> {
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(|error| RunError::Failed(format!("{}: {error}", self.log().display())))?;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--http", "off"]).args(options).args(arguments);
        if self.epoll {
            command.arg("--epoll");
        }
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command.spawn().map_err(|error| RunError::Failed(format!("{}: {error}", self.program.display())))
    }

    fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Bytes of the standard error of all servers so far.
    pub(crate) fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.log()).map_or(0, |metadata| metadata.len())
    }

    /// The standard error of the servers from this byte on.
    pub(crate) fn log_since(&self, first: u64) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(first))?;
            log.read_to_end(&mut bytes)
        });
        // A log that does not exist yet is empty.
        read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Starts `zonda` with these arguments, and returns the process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn begin(&self, arguments: &[String]) -> Result<Child, RunError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.directory).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.map_err(|error| RunError::Failed(format!("zonda {}: {error}", arguments.join(" "))))
    }

    /// The end of the standard error of the servers.
    #[must_use]
    pub fn last_of_log(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Server {
    /// Whether all its drives had been shut down cleanly.
    #[must_use]
    pub(crate) fn all_clean(&self) -> bool {
        self.namespaces().all(|line| line.ends_with(CLEAN))
    }

    /// The state of its drives, a line each.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.greeting.iter().map(|line| line.trim()).filter(|line| line.starts_with("namespace "))
    }

    /// Its event loop backend.
    #[must_use]
    pub(crate) fn backend(&self) -> &'static str {
        if self.greeting.iter().any(|line| line.contains("(io_uring)")) { "io_uring" } else { "epoll" }
    }

    /// Stops the process, and resumes it after a while.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), RunError> {
        self.signal(Signal::STOP)?;
        thread::sleep(time);
        self.signal(Signal::CONT)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), RunError> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|error| RunError::Failed(format!("cannot send signal {} to the server: {error}", signal.as_raw())))
    }

    /// Sends SIGKILL; dropping the server waits until it has exited.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub(crate) fn kill_at_once(&self) -> Result<(), RunError> {
        let sent = kill_process(Pid::from_child(&self.child), Signal::KILL);
        sent.map_err(|error| RunError::Failed(format!("cannot kill the server: {error}")))
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// When it had exited by itself.
    pub(crate) fn kill(mut self) -> Result<(), RunError> {
        self.must_run()?;
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|error| RunError::Failed(format!("cannot kill the server: {error}")))
    }

    /// Stops it with SIGTERM, and waits until it has exited.
    ///
    /// # Errors
    /// When it had exited by itself, or does not exit.
    pub(crate) fn stop(mut self) -> Result<ExitStatus, RunError> {
        self.must_run()?;
        let asked = kill_process(Pid::from_child(&self.child), Signal::TERM);
        asked.map_err(|error| RunError::Failed(format!("cannot send SIGTERM to the server: {error}")))?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(RunError::Failed("timeout: the server did not stop".to_owned()))
    }

    fn must_run(&mut self) -> Result<(), RunError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(RunError::Failed(format!("the server had exited by itself: {status}"))),
            Err(error) => Err(RunError::Failed(format!("cannot wait for the server: {error}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_built_in_the_profile_of_the_test_that_runs() {
        let profile = |test: &str| profile_of(folder_of(Path::new(test))).to_owned();
        assert_eq!(profile("/z/target/debug/deps/linux-0123"), "dev");
        assert_eq!(profile("/z/target/release/deps/linux-0123"), "release");
        assert_eq!(profile("/z/target/soak/deps/linux-0123"), "soak");
        // A program that is not a test is not in `deps`.
        assert_eq!(profile("/z/target/debug/kill-rounds"), "dev");
    }
}
