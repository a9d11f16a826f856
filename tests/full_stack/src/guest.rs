//! A Linux guest that runs one script.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::console::Console;
use crate::root;

/// What `scripts/guest/build` ends with where the guest cannot be had.
const CANNOT_BE_HAD: i32 = 77;
/// Lines of a failed guest's console that a failure shows.
const SHOWN_LINES: usize = 60;

/// A guest that has not been booted yet.
#[derive(Debug)]
pub struct Guest {
    name: String,
    script: String,
    variables: String,
    files: Vec<(String, String)>,
    timeout_s: u32,
    memory_mib: u32,
}

/// Ends the guest whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The script turns QEMU off when it is asked to end; SIGKILL would not let it tidy up.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        }
        let _ = self.0.wait();
    }
}

/// Makes sure that there is a guest to boot, or says on the terminal that the test is skipped, and why.
///
/// # Panics
/// If the guest cannot be built, or cannot be had here and `ZONDA_GUEST=require`.
#[must_use]
pub fn guest_or_skip(test: &str) -> bool {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let wish = std::env::var("ZONDA_GUEST").unwrap_or_default();
    assert!(matches!(wish.as_str(), "" | "skip" | "require"), "ZONDA_GUEST is skip or require, not {wish}");
    let reason = if wish == "skip" {
        "ZONDA_GUEST=skip".to_owned()
    } else {
        match BUILT.get_or_init(build) {
            Ok(()) => return true,
            Err(reason) => reason.clone(),
        }
    };
    assert!(wish != "require", "ZONDA_GUEST=require, but {reason}");
    // Not eprintln: the test runner swallows that of tests that pass. In one piece: tests run side by side.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
    false
}

/// Builds the guest, which takes a moment when it is there already.
fn build() -> Result<(), String> {
    let script = root().join("scripts/guest/build");
    let output = Command::new(&script).output().unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(CANNOT_BE_HAD) => Err(words.lines().last().unwrap_or("the guest cannot be had here").to_owned()),
        _ => panic!("scripts/guest/build: {}\n{words}", output.status),
    }
}

impl Guest {
    /// A guest that runs `guest/SCRIPT`. Its logs have this name.
    #[must_use]
    pub fn new(name: &str, script: &str) -> Guest {
        Guest {
            name: name.to_owned(),
            script: script.to_owned(),
            variables: String::new(),
            files: Vec::new(),
            timeout_s: 180,
            memory_mib: 1024,
        }
    }

    /// Gives the script a variable.
    ///
    /// # Panics
    /// If the value has a single quote in it.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Guest {
        assert!(!value.contains('\''), "{name} cannot be quoted: {value}");
        self.variables += &format!("{name}='{value}'\n");
        self
    }

    /// Gives the guest a file, in `/test`.
    #[must_use]
    pub fn file(mut self, name: &str, contents: &str) -> Guest {
        self.files.push((name.to_owned(), contents.to_owned()));
        self
    }

    /// Memory, in MiB (1024).
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Guest {
        self.memory_mib = memory_mib;
        self
    }

    /// Boots the guest and waits for the end of its script.
    ///
    /// For every line `HOST: request` of the script, `on_request` does what it asks for; then the script goes on.
    ///
    /// # Panics
    /// If the script fails, or does not end in time; the last lines of its console are shown.
    pub fn run(self, mut on_request: impl FnMut(&str)) -> Console {
        let folder = self.folder();
        let logs = root().join("target/guest/logs");
        fs::create_dir_all(&logs).expect("the folder of logs can be made");
        let log = |kind: &str| logs.join(format!("{}.{kind}", self.name));
        let child = Command::new(root().join("scripts/guest/run"))
            .args(["--timeout", &self.timeout_s.to_string(), "--memory", &self.memory_mib.to_string()])
            .arg("--log")
            .arg(log("console"))
            .arg("--kernel-log")
            .arg(log("kernel"))
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log("errors")).expect("a log can be made"))
            .spawn()
            .expect("scripts/guest/run starts");
        let mut running = Running(child);
        let mut answers = running.0.stdin.take().expect("the input is a pipe");
        let output = BufReader::new(running.0.stdout.take().expect("the output is a pipe"));
        let mut console = Console::default();
        // Lines may hold what a failing disk gave: not always UTF-8.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if let Some(request) = line.strip_prefix("HOST: ") {
                on_request(request);
                // A guest that has died does not read it: its end is told below.
                let _ = writeln!(answers, "done");
            }
            console.push(line);
        }
        let status = running.0.wait().expect("the guest's script can be waited for");
        if !status.success() {
            let text = console.text();
            let skipped = text.lines().count().saturating_sub(SHOWN_LINES);
            let tail: Vec<&str> = text.lines().skip(skipped).collect();
            let errors = fs::read_to_string(log("errors")).unwrap_or_default();
            panic!(
                "{} in the guest: {status}\n{}\n{errors}\nlogs: {}",
                self.script,
                tail.join("\n"),
                log("*").display()
            );
        }
        console
    }

    /// What becomes `/test` in the guest.
    fn folder(&self) -> TempDir {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let write = |name: &str, contents: &str| {
            fs::write(folder.path().join(name), contents).expect("a temporary file can be written");
        };
        for name in ["lib.sh", self.script.as_str()] {
            let path: PathBuf = root().join("tests/full_stack/guest").join(name);
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            write(name, &text);
        }
        write("variables.sh", &self.variables);
        write("run.sh", &format!(". /test/variables.sh\n. /test/lib.sh\n. /test/{}\n", self.script));
        for (name, contents) in &self.files {
            write(name, contents);
        }
        folder
    }
}
