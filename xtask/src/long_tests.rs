//! Long tests, in random order until the time is over: each in a process, two at a time.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::process;
use crate::suite::{How, TestExecutable};

/// Prefix of their names, after the module.
pub(crate) const PREFIX: &str = "soak_";
/// Number of concurrent tests.
const WORKERS: usize = 2;

/// Results of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    /// Failures, with the command that repeats each.
    pub(crate) failures: Vec<(String, String)>,
    /// Tests that were stopped when the time was over.
    pub(crate) unended: Vec<String>,
    /// Number of tests that were not started.
    pub(crate) left: usize,
}

impl Outcome {
    /// `12 tests passed, 1 failed; no time for 30; not ended: a, b`.
    pub(crate) fn amount(&self) -> String {
        let mut text = format!("{} tests passed", self.passed);
        if !self.failures.is_empty() {
            text += &format!(", {} failed", self.failures.len());
        }
        if self.left > 0 {
            text += &format!("; no time for {}", self.left);
        }
        if !self.unended.is_empty() {
            text += &format!("; not ended: {}", self.unended.join(", "));
        }
        text
    }
}

/// Runs the long tests of these executables until the time is over. Their output goes to `folder`,
/// and is kept if a test fails or is stopped.
pub(crate) fn run(executables: &[TestExecutable], how: &How, (until, seed): (Instant, u64), folder: &Path) -> Outcome {
    let mut tests: Vec<(usize, String)> = (0..executables.len())
        .flat_map(|at| names(executables, at, how).into_iter().map(move |name| (at, name)))
        .collect();
    shuffle(&mut tests, seed);
    let queue = Mutex::new(VecDeque::from(tests));
    let outcome = Mutex::new(Outcome::default());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while Instant::now() < until {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((at, name)) = next else { return };
                    let ended = run_one(&executables[at], &name, how, until, folder);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    match ended {
                        Ok(Some(status)) if status.success() => outcome.passed += 1,
                        Ok(Some(status)) => outcome.failures.push((
                            format!("{name} of {}: {status}, output in {}", executables[at].name, log(folder, &name)),
                            executables[at].command_again(&name),
                        )),
                        Ok(None) => outcome.unended.push(name),
                        Err(error) => outcome
                            .failures
                            .push((format!("cannot start {name}: {error}"), executables[at].command_again(&name))),
                    }
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.left = queue.into_inner().unwrap_or_else(PoisonError::into_inner).len();
    outcome.failures.sort();
    outcome.unended.sort();
    outcome
}

fn names(executables: &[TestExecutable], at: usize, how: &How) -> Vec<String> {
    let how = How { arguments: ["--list", "--ignored", PREFIX].map(str::to_owned).to_vec(), ..how.clone() };
    let listed = executables[at].command(&how).output().map(|output| output.stdout).unwrap_or_default();
    listed_tests(&String::from_utf8_lossy(&listed))
}

/// The names in the output of `--list`: `a::b: test`.
fn listed_tests(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// `None` if it was stopped because the time was over.
fn run_one(
    executable: &TestExecutable,
    name: &str,
    how: &How,
    until: Instant,
    folder: &Path,
) -> std::io::Result<Option<ExitStatus>> {
    let how = How { arguments: ["--ignored", "--exact", name].map(str::to_owned).to_vec(), ..how.clone() };
    Ok(process::run(executable.command(&how), Path::new(&log(folder, name)), until)?.status)
}

fn log(folder: &Path, name: &str) -> String {
    folder.join(format!("{}.log", name.replace("::", "-"))).display().to_string()
}

/// A random order by seed.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for end in (1..items.len()).rev() {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        items.swap(end, ((word ^ word >> 31) % (end as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_parsed_from_the_list_of_an_executable() {
        let text = "a::soak_one: test\nb::soak_two: test\nc: benchmark\n\n2 tests, 1 benchmarks\n";
        assert_eq!(listed_tests(text), ["a::soak_one", "b::soak_two"]);
    }

    #[test]
    fn each_seed_has_its_order_and_none_loses_an_item() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..40).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_ne!(shuffled(1), shuffled(2));
        assert_eq!(shuffled(1), shuffled(1));
        let mut items = shuffled(3);
        items.sort_unstable();
        assert_eq!(items, (0..40).collect::<Vec<u32>>());
    }

    #[test]
    fn steps_that_could_not_be_run_are_reported() {
        let outcome = Outcome { passed: 12, failures: Vec::new(), unended: vec!["a".to_owned()], left: 30 };
        assert_eq!(outcome.amount(), "12 tests passed; no time for 30; not ended: a");
        assert_eq!(Outcome { passed: 3, ..Outcome::default() }.amount(), "3 tests passed");
    }
}
