//! A server under test.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::wait_until;

/// `zonda serve`, running.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// Its greeting as JSON.
    pub(crate) greeting: Value,
}

impl Server {
    /// Starts it in this directory, on ports that the system chooses.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Server {
        Server::start_with_log(directory, arguments, Stdio::piped())
    }

    /// The same, with a log of which no line can be written.
    pub(crate) fn start_without_log(directory: &Path, arguments: &[&str]) -> Server {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        Server::start_with_log(directory, arguments, full.into())
    }

    pub(crate) fn start_with_log(directory: &Path, arguments: &[&str], log: Stdio) -> Server {
        let (child, line) = spawn(directory, &[arguments, &["--json"]].concat(), log);
        Server { child, greeting: serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}\n{line}")) }
    }

    /// The URL of a namespace, counted over all subsystems.
    pub(crate) fn url(&self, index: usize) -> &str {
        let namespaces = self.greeting["subsystems"].as_array().expect("it is a list").iter().flat_map(|subsystem| {
            subsystem["namespaces"]
                .as_array()
                .expect("it is a list")
                .iter()
                .map(|namespace| namespace["url"].as_str().expect("it is text"))
        });
        namespaces.collect::<Vec<_>>()[index]
    }

    /// The address of NVMe/TCP, `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        let (_, rest) = self.url(0).split_once("://").expect("it is a URL");
        rest.split('/').next().expect("it has a host").to_owned()
    }

    /// The address of its metrics.
    pub(crate) fn http(&self) -> &str {
        self.greeting["http"].as_str().expect("it has HTTP")
    }

    /// The body of an answer.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http()).expect("it listens");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("the connection holds");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the connection holds");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        answer.split_once("\r\n\r\n").expect("it is HTTP").1.to_owned()
    }

    /// Waits until the server has noticed that all hosts are disconnected.
    pub(crate) fn wait_until_alone(&self) {
        let is_alone = || {
            let status: Value = serde_json::from_str(&self.get("/status.json")).expect("it is JSON");
            let sessions = status["subsystems"].as_array().expect("there are some").iter().map(|of| &of["sessions"]);
            status["connections"] == 0 && sessions.into_iter().all(|of| of.as_array().is_some_and(Vec::is_empty))
        };
        wait_until("all hosts are disconnected", is_alone);
    }

    pub(crate) fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.process(), signal).expect("it runs");
    }

    /// Stops it with SIGTERM; it must end well. Returns its log.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (status, log) = self.wait();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Ends it with SIGKILL, and returns as soon as the process has ended.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it had already ended: {status}");
    }

    /// Waits until the process ends.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let log = self.child.stderr.take().map_or(String::new(), rest_of);
        (self.child.wait().expect("it ends"), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Cleans up after a failed test; otherwise the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server prints when it starts, as a person sees it; and its log.
pub(crate) fn greeting_in(directory: &Path, arguments: &[&str]) -> (String, String) {
    let (mut child, mut text) = spawn(directory, arguments, Stdio::piped());
    let mut output = BufReader::new(child.stdout.take().expect("it was kept"));
    while !text.contains("listening on") {
        assert!(output.read_line(&mut text).expect("it is UTF-8") > 0, "{text}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let log = rest_of(child.stderr.take().expect("it was kept"));
    assert!(child.wait().expect("it ends").success(), "{log}");
    (text, log)
}

/// Starts a server and reads its first line.
fn spawn(directory: &Path, arguments: &[&str], log: Stdio) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonda"));
    command.arg("serve").args(arguments).current_dir(directory).env_remove("NO_COLOR").env_remove("JOURNAL_STREAM");
    if !arguments.contains(&"--listen") && !arguments.contains(&"--config") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if !arguments.contains(&"--http") {
        command.args(["--http", "127.0.0.1:0"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().expect("the program starts");
    // Byte by byte, to leave the rest of the output in the pipe.
    let (mut line, mut byte) = (Vec::new(), [0]);
    let output = child.stdout.as_mut().expect("the output is a pipe");
    while line.last() != Some(&b'\n') {
        match output.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "the pipe can be read: {error}"),
        }
    }
    if line.is_empty() {
        panic!("{arguments:?}: {}", rest_of(child.stderr.take().expect("it was kept")));
    }
    (child, String::from_utf8(line).expect("output is UTF-8"))
}

fn rest_of(mut stream: ChildStderr) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("messages are UTF-8");
    text
}
