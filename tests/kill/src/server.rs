//! The program `zonda` as a process that is started, killed and started again.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::loss::Trouble;

/// How long a server may take until it listens, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a server says of a drive that needed no recovery.
const CLEAN: &str = "shut down in order";

/// How servers are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Where it runs: the images are here, and its log.
    pub directory: PathBuf,
    /// Whether it must use epoll.
    pub epoll: bool,
}

/// A server that listens. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Its greeting, up to the line that says that it listens.
    greeting: Vec<String>,
}

/// `zonda`: the one that was named, or the one beside this program, which is built first where cargo is at hand.
///
/// # Errors
/// Where it was looked for.
pub fn program(named: Option<&Path>) -> Result<PathBuf, Trouble> {
    let named = named.map(Path::to_owned).or_else(|| std::env::var_os("ZONDA_PROGRAM").map(PathBuf::from));
    let program = match named {
        Some(program) => program,
        None => beside()?,
    };
    // Servers run in a directory of their own.
    program.canonicalize().map_err(|error| {
        let shown = program.display();
        let profile = program.parent().map_or("release", profile_of);
        let remedy = format!("cargo build --profile {profile} --package zonda-cli makes it");
        Trouble::Stuck(format!("no program {shown} ({error}): {remedy}"))
    })
}

/// Programs lie in `<target>/<folder of the profile>`, tests in its `deps`.
fn beside() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe().map_err(|error| Trouble::Stuck(format!("this program has no path: {error}")))?;
    let folder = folder_of(&own).to_owned();
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), folder.parent()) {
        let mut build = Command::new(cargo);
        build.args(["build", "--profile", profile_of(&folder), "--quiet", "--package", "zonda-cli", "--target-dir"]);
        build.arg(target);
        // What cargo tells a test of its package is not for what it builds: build scripts would see a change, and a third of all
        // dependencies be built anew.
        let names = std::env::vars_os().map(|(name, _)| name);
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        for name in names.filter(|name| of_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix))) {
            build.env_remove(name);
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Trouble::Stuck("zonda cannot be built".to_owned()));
        }
    }
    Ok(folder.join("zonda"))
}

/// The folder of the profile that this program was built with.
fn folder_of(program: &Path) -> &Path {
    let folder = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    folder.expect("a program lies in a folder")
}

/// The cargo profile whose programs lie in this folder: its name is the profile's, but for `dev`.
fn profile_of(folder: &Path) -> &str {
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    }
}

/// A TCP port of the loopback that was free a moment ago, of those that the system gives to nobody who connects: a server
/// must find it free again after each kill.
///
/// # Errors
/// When there is none.
pub(crate) fn free_port() -> Result<u16, Trouble> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 20_000;
    const PORTS: u32 = 12_000;
    // Runs that go on at the same time, in one process or in several, begin at different places. No port is returned twice: the first
    // server may not listen yet.
    let own = std::process::id().wrapping_mul(16);
    let next = || FIRST + own.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)) % PORTS;
    let mut ports = (0..PORTS).map(|_| next() as u16);
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.ok_or_else(|| Trouble::Stuck("the loopback has no free port".to_owned()))
}

impl Launcher {
    /// Runs `zonda` to its end, and returns what it prints.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, Trouble> {
        let stuck = |what: String| Trouble::Stuck(format!("zonda {}: {what}", arguments.join(" ")));
        let output = Command::new(&self.program).args(arguments).current_dir(&self.directory).output();
        let output = output.map_err(|error| stuck(error.to_string()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(stuck(format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))))
    }

    /// Starts a server, and waits until hosts can connect.
    ///
    /// # Errors
    /// When it ends, or does not listen in time; with the last lines of its log.
    pub(crate) fn start(&self, arguments: &[String]) -> Result<Server, Trouble> {
        let mut child = self.spawn(arguments)?;
        let (tell, told) = channel();
        let output = child.stdout.take().expect("its output is a pipe");
        // Goes on to the end of the server, so that no line of it finds a closed pipe.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody waits after the first lines.
                let _ = tell.send(line);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        let mut server = Server { child, greeting: Vec::new() };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = told.recv_timeout(left) else {
                let ended = server.child.try_wait().ok().flatten();
                let log = self.last_of_log();
                return Err(Trouble::Stuck(format!("the server does not listen ({ended:?})\n{log}")));
            };
            let listens = line.starts_with("listening");
            server.greeting.push(line);
            if listens {
                return Ok(server);
            }
        }
    }

    /// Starts a server that may refuse what it is to serve: then why.
    ///
    /// # Errors
    /// When it neither listens nor ends in time, or was killed by a signal.
    pub(crate) fn start_or_refuse(&self, arguments: &[String]) -> Result<Result<Server, String>, Trouble> {
        let before = std::fs::metadata(self.log()).map_or(0, |metadata| metadata.len());
        match self.start(arguments) {
            Ok(server) => Ok(Ok(server)),
            Err(trouble) => {
                let log = std::fs::read(self.log()).unwrap_or_default();
                let said = String::from_utf8_lossy(&log[(before as usize).min(log.len())..]).into_owned();
                if said.contains("panicked") || !said.contains("error: ") {
                    return Err(trouble);
                }
                Ok(Err(said))
            }
        }
    }

    /// Starts a server and kills it a little later, wherever it has come to.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start_and_kill(&self, arguments: &[String], after: Duration) -> Result<(), Trouble> {
        let mut child = self.spawn(arguments)?;
        thread::sleep(after);
        // It may have ended by itself, and then the next start says why.
        let _ = child.kill();
        child.wait().map_err(|error| Trouble::Stuck(format!("a server cannot be waited for: {error}")))?;
        Ok(())
    }

    fn spawn(&self, arguments: &[String]) -> Result<Child, Trouble> {
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(|error| Trouble::Stuck(format!("{}: {error}", self.log().display())))?;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--http", "off", "--quiet"]).args(arguments);
        if self.epoll {
            command.arg("--epoll");
        }
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command.spawn().map_err(|error| Trouble::Stuck(format!("{}: {error}", self.program.display())))
    }

    fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// What servers have said on their standard error, its end.
    #[must_use]
    pub fn last_of_log(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Server {
    /// Whether all its drives were found as an orderly stop leaves them.
    #[must_use]
    pub(crate) fn found_all_in_order(&self) -> bool {
        self.namespaces().all(|line| line.ends_with(CLEAN))
    }

    /// How its drives were found, a line each.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.greeting.iter().map(|line| line.trim()).filter(|line| line.starts_with("namespace "))
    }

    /// Which event loop it has.
    #[must_use]
    pub(crate) fn backend(&self) -> &'static str {
        if self.greeting.iter().any(|line| line.contains("(io_uring)")) { "io_uring" } else { "epoll" }
    }

    /// Stops the process where it is, and has it go on after a while.
    ///
    /// # Errors
    /// When that is not possible.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Trouble> {
        self.signal(Signal::STOP)?;
        thread::sleep(time);
        self.signal(Signal::CONT)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When that is not possible.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Trouble> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|error| Trouble::Stuck(format!("the server cannot be sent {signal:?}: {error}")))
    }

    /// Sends SIGKILL; dropping the server waits for its end.
    ///
    /// # Errors
    /// When that is not possible.
    pub(crate) fn kill_at_once(&self) -> Result<(), Trouble> {
        let sent = kill_process(Pid::from_child(&self.child), Signal::KILL);
        sent.map_err(|error| Trouble::Stuck(format!("the server cannot be killed: {error}")))
    }

    /// Ends it with SIGKILL.
    ///
    /// # Errors
    /// When it had ended by itself.
    pub(crate) fn kill(mut self) -> Result<(), Trouble> {
        self.must_run()?;
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|error| Trouble::Stuck(format!("the server cannot be killed: {error}")))
    }

    /// Asks it to end with SIGTERM, and waits until it has.
    ///
    /// # Errors
    /// When it had ended by itself, or does not end.
    pub(crate) fn stop(mut self) -> Result<ExitStatus, Trouble> {
        self.must_run()?;
        let asked = kill_process(Pid::from_child(&self.child), Signal::TERM);
        asked.map_err(|error| Trouble::Stuck(format!("the server cannot be asked to stop: {error}")))?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(Trouble::Stuck("the server was asked to stop and goes on".to_owned()))
    }

    fn must_run(&mut self) -> Result<(), Trouble> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(Trouble::Stuck(format!("the server had ended by itself: {ended:?}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
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
        // A program that is no test has no `deps`.
        assert_eq!(profile("/z/target/debug/kill-rounds"), "dev");
    }
}
