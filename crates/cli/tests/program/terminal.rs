//! A program under test on a terminal of its own.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// `zonda` on a terminal of 24 lines and 80 columns, which `script` (util-linux) provides.
pub(crate) struct OnTerminal {
    child: Child,
    directory: PathBuf,
    /// What it has drawn.
    output: Arc<Mutex<Vec<u8>>>,
}

/// How a program has ended, and what it has left of its terminal.
pub(crate) struct Ended {
    pub(crate) code: String,
    /// What was drawn, with its control sequences.
    pub(crate) output: String,
    /// Whether the terminal has the modes from before.
    pub(crate) is_restored: bool,
}

impl OnTerminal {
    /// Starts it in this directory, where its files must not be in use by another.
    pub(crate) fn start(directory: &Path, arguments: &str) -> OnTerminal {
        let run = format!(
            "stty rows 24 cols 80\nstty -g > modes-before\nsh -c 'echo $$ > pid; exec \"$ZONDA\" {arguments}'\n\
             echo $? > code\nstty -g > modes-after\n"
        );
        fs::write(directory.join("run.sh"), run).expect("the disk has space");
        let mut command = Command::new("script");
        command.args(["-qec", "sh run.sh", "/dev/null"]).current_dir(directory);
        command.env("ZONDA", env!("CARGO_BIN_EXE_zonda")).env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("util-linux is installed");
        let mut stdout = child.stdout.take().expect("the output is a pipe");
        let output = Arc::new(Mutex::new(Vec::new()));
        let drawn = Arc::clone(&output);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                drawn.lock().expect("no thread panics").extend_from_slice(&bytes[..count]);
            }
        });
        OnTerminal { child, directory: directory.to_owned(), output }
    }

    /// How many bytes it has drawn so far.
    pub(crate) fn drawn_bytes(&self) -> usize {
        self.output.lock().expect("no thread panics").len()
    }

    /// What it has drawn after so many bytes, with its control sequences.
    fn output(&self, from: usize) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no thread panics")[from..]).into_owned()
    }

    /// Waits until it has drawn this, counted from `from` bytes of the output on.
    pub(crate) fn wait_for(&self, text: &str, from: usize) {
        wait_until(text, || self.output(from).contains(text));
    }

    /// The same for a word that it may have drawn in parts, because only characters that differ are
    /// drawn: SIGCONT makes it draw everything again.
    pub(crate) fn wait_for_redrawn(&self, word: &str, from: usize) {
        wait_until(word, || {
            self.signal(Signal::CONT);
            self.output(from).contains(word)
        });
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().expect("the input is a pipe");
        input.write_all(keys.as_bytes()).expect("it runs");
        input.flush().expect("it runs");
    }

    /// Sends a signal to the program itself.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = fs::read_to_string(self.directory.join("pid")).expect("it has started");
        let pid = Pid::from_raw(pid.trim().parse().expect("it is a number")).expect("it is not 0");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        wait_until("the program has ended", || self.child.try_wait().expect("it is a child").is_some());
        let file = |name: &str| fs::read_to_string(self.directory.join(name)).expect("the shell has written it");
        Ended {
            code: file("code").trim().to_owned(),
            is_restored: file("modes-before") == file("modes-after"),
            output: self.output(0),
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Cleans up after a failed test; otherwise the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
