//! Test executables: built once by cargo and run here, which measures their times, and allows cargo
//! to build documentation concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ledger::{Step, Tests, seconds};
use crate::process::{self, Ended};

/// Maximum number of characters of the output of a failed executable that are printed.
const SHOWN_BYTES_MAX: usize = 200_000;
/// Timeout of a command of a step: the longest takes seven minutes on a slow machine with the
/// others running.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(20 * 60);

/// A test executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestExecutable {
    /// The package without `zonda-`, and the target: `raid`, `ssd/integration`.
    pub(crate) name: String,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
    path: PathBuf,
}

/// The result of a build.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) executables: Vec<TestExecutable>,
    /// The path of the program `zonda`, if it was built.
    pub(crate) program: Option<PathBuf>,
    /// The path of the library of each package, by package ID.
    pub(crate) libraries: BTreeMap<String, PathBuf>,
    /// Warnings of compilers, without duplicates.
    pub(crate) warnings: BTreeSet<String>,
    /// CPU time of compilers.
    pub(crate) cpu: Duration,
}

/// Builds the test executables of some packages (`["--package", "zonda-raid"]`).
///
/// # Errors
/// If cargo fails; it has printed the reason.
pub(crate) fn build(root: &Path, selection: &[String]) -> Result<Built, String> {
    let mut command = cargo(root);
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(selection);
    built_by(command)
}

/// Builds and lints everything in the workspace: Clippy is the compiler (docs/decisions/0016).
///
/// # Errors
/// If cargo fails; the messages of the compilers.
pub(crate) fn build_and_lint(root: &Path) -> Result<Built, String> {
    let mut command = for_tests(cargo(root), root);
    command.args(["build", "--workspace", "--lib", "--bins", "--examples", "--tests", "--message-format=json"]);
    built_by(command)
}

fn built_by(command: Command) -> Result<Built, String> {
    let ended = process::read(command).map_err(|error| format!("cannot start cargo: {error}"))?;
    let (built, errors) = built(&ended.text);
    if !ended.is_good() {
        return Err(format!("{errors}cargo did not succeed"));
    }
    Ok(Built { cpu: ended.cpu, ..built })
}

/// The same cargo command, with the compiler of tests for the workspace: Clippy, which reports its
/// lints in the same pass. Cargo keeps its artifacts separate from those of the ordinary compiler.
pub(crate) fn for_tests(mut command: Command, root: &Path) -> Command {
    command.env("RUSTC_WORKSPACE_WRAPPER", root.join("scripts/test-compiler"));
    command
}

/// Cargo at the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    without_own_package(&mut command);
    command
}

/// Removes variables about the package of this program: build scripts would detect a change and run
/// again.
fn without_own_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
}

/// The artifacts, and the errors.
fn built(messages: &str) -> (Built, String) {
    let mut built = Built::default();
    let mut errors = String::new();
    for line in messages.lines() {
        // Lines that are not messages of cargo are ignored.
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let text = message["message"]["rendered"].as_str().unwrap_or_default();
        match message["message"]["level"].as_str() {
            // The last message of a target only counts the others.
            Some("warning") if !text.trim_end().ends_with(" emitted") => {
                built.warnings.insert(text.to_owned());
            }
            Some("error") => errors += text,
            _ => {}
        }
        if let (Some(id), Some(path)) = (message["package_id"].as_str(), library_of(&message)) {
            built.libraries.insert(id.to_owned(), path);
        }
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else { continue };
        if message["profile"]["test"] != true {
            if message["target"]["name"] == "zonda" {
                built.program = Some(path);
            }
            continue;
        }
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(manifest).to_owned();
        built.executables.push(TestExecutable { name: name_of(&folder, &message["target"]), folder, path });
    }
    built.executables.sort_by(|a, b| a.name.cmp(&b.name));
    (built, errors)
}

/// The file that dependents are compiled with, if the artifact is a library: those of the workspace
/// are in two places.
fn library_of(message: &Value) -> Option<PathBuf> {
    let is_library = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "lib" || kind == "proc-macro");
    let is_tested = message["profile"]["test"] == true;
    let files: Vec<&str> = message["filenames"].as_array()?.iter().filter_map(Value::as_str).collect();
    let ending = |ending: &str| files.iter().find(|file| file.ends_with(ending)).map(PathBuf::from);
    ending(".rmeta").or_else(|| ending(".rlib")).or_else(|| ending(".so")).filter(|_| is_library && !is_tested)
}

fn name_of(folder: &Path, target: &Value) -> String {
    let package = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kind = target["kind"][0].as_str().unwrap_or_default();
    match kind {
        "test" => format!("{package}/{}", target["name"].as_str().unwrap_or_default()),
        "bin" => format!("{package}/bin"),
        _ => package,
    }
}

/// Options for running an executable.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// Arguments for libtest.
    pub(crate) arguments: Vec<String>,
    /// Whether it runs at a lower priority.
    pub(crate) is_nice: bool,
    /// The program that tests start.
    pub(crate) program: Option<PathBuf>,
}

impl TestExecutable {
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> TestExecutable {
        TestExecutable { name: name.to_owned(), folder: PathBuf::new(), path: PathBuf::new() }
    }

    /// Runs it; prints a line if it passes, and its output if it fails.
    pub(crate) fn run(&self, how: &How) -> Step {
        let start = Instant::now();
        let ended = to_the_end(&self.name, self.command(how));
        let (wall, is_good, text) = (start.elapsed(), ended.is_good(), ended.text);
        let tests = Tests::of_output(&text);
        if is_good {
            let (cpu, wall) = (seconds(ended.cpu), seconds(wall));
            println!("   {:<24} {:>5} tests  {cpu:>8} cpu  {wall:>8}", self.name, tests.passed);
            // Output of a passing test that bypasses libtest's capture is shown: a test that was
            // skipped, and why.
            text.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("   {line}"));
        } else {
            println!("{}\n   {} FAILED after {}", tail(&text), self.name, seconds(wall));
        }
        Step { name: self.name.clone(), cpu: ended.cpu, wall, budget: None, tests, is_good }
    }

    /// The command that repeats one of its ignored tests.
    pub(crate) fn command_again(&self, test: &str) -> String {
        let target = match self.name.split_once('/') {
            Some((_, "bin")) => "--bins".to_owned(),
            Some((_, target)) => format!("--test {target}"),
            None => "--lib".to_owned(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(""));
        let folder = self.folder.strip_prefix(root).unwrap_or(&self.folder).display();
        format!("cargo test --manifest-path {folder}/Cargo.toml {target} -- --ignored --exact {test}")
    }

    pub(crate) fn command(&self, how: &How) -> Command {
        let mut command = if how.is_nice { Command::new("nice") } else { Command::new(&self.path) };
        if how.is_nice {
            command.arg("-n10").arg(&self.path);
        }
        without_own_package(&mut command);
        command.args(&how.arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        if let Some(program) = &how.program {
            command.env("ZONDA_PROGRAM", program);
        }
        command
    }
}

/// The file for the output of a step, in the target directory. It is kept if the step fails.
pub(crate) fn output_file(step: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).unwrap_or(Path::new("target"));
    target.join("test-output").join(format!("{}-{}.txt", step.replace(['/', ' '], "-"), std::process::id()))
}

/// Runs a command of a step; on failure, its output ends with the reason.
pub(crate) fn to_the_end(step: &str, command: Command) -> Ended {
    let program = command.get_program().to_owned();
    process::run(command, &output_file(step), Instant::now() + COMMAND_TIME_MAX).unwrap_or_else(|error| {
        let text = format!("cannot run {}: {error}", program.display());
        Ended { status: None, text, cpu: Duration::ZERO }
    })
}

/// Standard output followed by standard error.
pub(crate) fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(SHOWN_BYTES_MAX);
    let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_and_the_program_are_parsed_from_the_output_of_cargo() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/ssd/Cargo.toml","target":{"kind":["test"],"name":"integration"},"profile":{"test":true},"executable":"/w/t/integration-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/raid/Cargo.toml","target":{"kind":["lib"],"name":"zonda_raid"},"profile":{"test":true},"executable":"/w/t/raid-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/raid/Cargo.toml","target":{"kind":["lib"],"name":"zonda_raid"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"zonda"},"profile":{"test":false},"executable":"/w/t/zonda"}
no message"#;
        let (built, errors) = built(messages);
        assert_eq!(errors, "");
        let names: Vec<&str> = built.executables.iter().map(|executable| executable.name.as_str()).collect();
        assert_eq!(names, ["raid", "ssd/integration"]);
        assert_eq!(built.executables[0].folder, Path::new("/w/crates/raid"));
        assert_eq!(built.program.as_deref(), Some(Path::new("/w/t/zonda")));
    }

    #[test]
    fn libraries_are_identified_by_their_packages_and_those_of_tests_are_excluded() {
        let messages = r#"{"package_id":"b#1","target":{"kind":["lib"]},"profile":{"test":false},"filenames":["/t/libb.rlib","/t/deps/libb-1.rmeta"]}
{"package_id":"b#1","target":{"kind":["lib"]},"profile":{"test":true},"filenames":["/t/deps/b-2"]}
{"package_id":"p#1","target":{"kind":["proc-macro"]},"profile":{"test":false},"filenames":["/t/deps/libp-3.so"]}
{"package_id":"d#1","target":{"kind":["lib","cdylib"]},"profile":{"test":false},"filenames":["/t/deps/libd-4.so","/t/deps/libd-4.rlib"]}
{"package_id":"c#1","target":{"kind":["bin"]},"profile":{"test":false},"filenames":["/t/c"]}"#;
        let (built, _) = built(messages);
        let expected = [("b#1", "/t/deps/libb-1.rmeta"), ("d#1", "/t/deps/libd-4.rlib"), ("p#1", "/t/deps/libp-3.so")];
        assert_eq!(built.libraries, expected.map(|(id, path)| (id.to_owned(), PathBuf::from(path))).into());
    }

    #[test]
    fn a_warning_of_two_targets_is_counted_once_and_errors_are_kept() {
        let messages = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: a\n"}}
{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: a\n"}}
{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: 2 warnings emitted\n"}}
{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: b\n"}}
{"reason":"compiler-message","message":{"level":"error","rendered":"error: c\n"}}"#;
        let (built, errors) = built(messages);
        assert_eq!(built.warnings.into_iter().collect::<Vec<_>>(), ["warning: a\n", "warning: b\n"]);
        assert_eq!(errors, "error: c\n");
    }

    #[test]
    fn one_test_of_an_executable_is_run_again_by_the_folder_of_its_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
        let again = |name: &str, folder: &str| {
            let executable = TestExecutable { folder: root.join(folder), ..TestExecutable::named(name) };
            executable.command_again("a::soak_b")
        };
        let expected = "cargo test --manifest-path crates/raid/Cargo.toml --lib -- --ignored --exact a::soak_b";
        assert_eq!(again("raid", "crates/raid"), expected);
        let expected = "cargo test --manifest-path crates/sim/Cargo.toml --test sim -- --ignored --exact a::soak_b";
        assert_eq!(again("sim/sim", "crates/sim"), expected);
    }

    #[test]
    fn a_long_output_is_cut_between_characters() {
        let text = "ü".repeat(SHOWN_BYTES_MAX);
        assert!(tail(&text).len() <= SHOWN_BYTES_MAX);
        assert_eq!(tail("short"), "short");
    }
}
