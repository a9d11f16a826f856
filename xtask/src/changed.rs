//! `cargo xtask changed`: format, lints, and the tests of changed packages.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::ledger::{Ledger, Tests};
use crate::suite::{self, How};
use crate::test::{levels_and_sizes, of_command, report, timed};

/// The cargo command that lints everything.
const LINTS: [&str; 7] = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
/// Executables whose tests start a guest: only `cargo xtask test` runs them.
const TOO_LONG: &[&str] = &["full_stack/linux"];
/// Tests that take more than ten seconds, by a part of their names: only `cargo xtask test` runs
/// them.
const SKIPPED_TESTS: &[&str] = &["the_comparison_with_published_results"];

/// Checks packages that differ from `base`; by default from the last commit, or those of the last
/// commit if nothing differs.
pub(crate) fn run(root: &Path, base: Option<&str>) -> ExitCode {
    let start = Instant::now();
    let files = match files_since(root, base) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let packages = packages_of(root, &files);
    println!("== {} files changed, in {}", files.len(), shown(&packages));
    let mut ledger = Ledger::default();
    ledger.push(of_command("format", root, &["fmt", "--all", "--check"], false));
    ledger.push(levels_and_sizes(root));
    ledger.push(of_command("lints", root, &LINTS, false));
    // Tests of code that does not compile are skipped.
    if ledger.is_good() && !packages.is_empty() {
        let selection: Vec<String> = packages.iter().flat_map(|name| ["--package".to_owned(), name.clone()]).collect();
        match suite::build(root, &selection) {
            Ok(built) => {
                let arguments =
                    SKIPPED_TESTS.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]).collect();
                let how = How { program: built.program.clone(), arguments, ..How::default() };
                for executable in built.executables.iter().filter(|one| !TOO_LONG.contains(&one.name.as_str())) {
                    ledger.push(executable.run(&how));
                }
            }
            Err(error) => {
                println!("{error}");
                ledger.push(timed("build", || (false, Tests::default(), Duration::ZERO)));
            }
        }
    }
    report(&ledger, start.elapsed(), None)
}

fn shown(packages: &BTreeSet<String>) -> String {
    if packages.is_empty() {
        return "no package".to_owned();
    }
    packages.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Paths that differ, including new files.
fn files_since(root: &Path, base: Option<&str>) -> Result<Vec<String>, String> {
    let mut files = git(root, &["diff", "--name-only", base.unwrap_or("HEAD")])?;
    files.extend(git(root, &["ls-files", "--others", "--exclude-standard"])?);
    if files.is_empty() && base.is_none() {
        files = git(root, &["show", "--name-only", "--format=", "HEAD"])?;
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn git(root: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The packages that contain these files.
fn packages_of(root: &Path, files: &[String]) -> BTreeSet<String> {
    files.iter().filter_map(|file| package_of(root, file)).collect()
}

fn package_of(root: &Path, file: &str) -> Option<String> {
    // The manifest of the workspace, above the folder of a package, has no name.
    let folders = Path::new(file).ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty());
    let manifests = folders.map(|folder| std::fs::read_to_string(root.join(folder).join("Cargo.toml")));
    let manifest = manifests.into_iter().find_map(Result::ok)?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?.trim_end_matches('"').to_owned();
    // The fuzzers are a workspace of their own.
    (name != "zonda-fuzz").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_around_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let of = |file: &str| package_of(root, file);
        assert_eq!(of("crates/raid/src/machine/mod.rs").as_deref(), Some("zonda-raid"));
        assert_eq!(of("tests/kill/Cargo.toml").as_deref(), Some("zonda-kill"));
        assert_eq!(of("xtask/src/main.rs").as_deref(), Some("xtask"));
        assert_eq!(of("docs/README.md"), None);
        assert_eq!(of("fuzz/fuzz_targets/fuzz.rs"), None);
    }
}
