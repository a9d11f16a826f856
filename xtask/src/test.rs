//! `cargo xtask test`: runs all checks and tests required before a push, and prints a table of
//! steps.
//!
//! After one build, which lints as well, four lanes run concurrently: the Linux guest, which needs
//! a CPU of its own, followed by the tests of volumes and images; documentation and its examples,
//! followed by the simulation; the tests that start the program; and all other tests. The last
//! three run at a lower priority than the guest (`nice`).

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::ledger::{Ledger, Step, Tests, seconds};
use crate::suite::{self, Built, How, TestExecutable, cargo};
use crate::{documentation, layout, levels, names};

/// Budget of each step on two idle CPUs, in seconds; a test compares it with CONTRIBUTING.md.
pub(crate) const BUDGETS_S: &[(&str, u64)] = &[
    ("format", 10),
    ("levels and sizes", 5),
    ("build and lints", 370),
    ("documentation", 130),
    ("examples in documentation", 50),
    ("tests in a Linux guest", 120),
    ("tests of the program", 220),
    ("tests of volumes and images", 215),
    ("other tests", 335),
    ("simulation", 150),
];
/// Budget of all steps, in seconds.
const WHOLE_S: u64 = 720;
/// Tests with a Linux guest.
const GUEST: &str = "full_stack/linux";
/// Tests that start the program: they wait most of the time.
const PROGRAM: &str = "cli/program";
/// Tests of volumes and images: in the lane of the guest, after it has ended.
const STORAGE: &[&str] = &["raid", "image", "devices", "devices/integration"];
/// The longest executables start first.
const LONGEST_FIRST: &[&str] = &["raid", "sim/sim", "full_stack/nbd", "lab/integration"];
/// Default number of seeds of the simulation.
const SIMULATED_SEEDS: u64 = 2000;

/// Runs all steps. `ZONDA_SIM_SEEDS` sets the number of seeds.
pub(crate) fn run(root: &Path) -> ExitCode {
    let start = Instant::now();
    let mut ledger = Ledger::default();
    ledger.push(of_command("format", root, &["fmt", "--all", "--check"], false));
    ledger.push(levels_and_sizes(root));
    let mut built = None;
    ledger.push(timed("build and lints", || match suite::build_and_lint(root) {
        Ok(result) => {
            result.warnings.iter().for_each(|warning| println!("{warning}"));
            let (is_good, cpu) = (result.warnings.is_empty(), result.cpu);
            built = Some(result);
            (is_good, Tests::default(), cpu)
        }
        Err(error) => {
            println!("{error}");
            (false, Tests::default(), Duration::ZERO)
        }
    }));
    if let Some(built) = built {
        ledger.extend(lanes(root, &built));
    }
    report(&ledger, start.elapsed(), Some(Duration::from_secs(WHOLE_S)))
}

/// Builds everything, and runs documentation only.
pub(crate) fn documentation_alone(root: &Path) -> ExitCode {
    match suite::build_and_lint(root) {
        Ok(built) if documentation(root, &built).is_good => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table and the summary.
pub(crate) fn report(ledger: &Ledger, whole: Duration, budget: Option<Duration>) -> ExitCode {
    println!("\n{}", ledger.table(whole, budget));
    let Tests { passed, failed, skipped } = ledger.tests();
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if ledger.is_good() {
        return ExitCode::SUCCESS;
    }
    println!("some steps FAILED: see above");
    ExitCode::FAILURE
}

/// The checks of this program.
pub(crate) fn levels_and_sizes(root: &Path) -> Step {
    timed("levels and sizes", || {
        let findings = [levels::check(root), layout::check(root), names::check(root)].concat();
        findings.iter().for_each(|finding| println!("{finding}"));
        (findings.is_empty(), Tests::default(), Duration::ZERO)
    })
}

/// Documentation, simulated scenarios and tests, concurrently.
fn lanes(root: &Path, built: &Built) -> Vec<Step> {
    let (guest, others): (Vec<&TestExecutable>, Vec<&TestExecutable>) =
        in_order(&built.executables).into_iter().partition(|executable| executable.name == GUEST);
    let (program, others): (Vec<&TestExecutable>, Vec<&TestExecutable>) =
        others.into_iter().partition(|executable| executable.name == PROGRAM);
    let (storage, others): (Vec<&TestExecutable>, Vec<&TestExecutable>) =
        others.into_iter().partition(|executable| STORAGE.contains(&executable.name.as_str()));
    let how = How { program: built.program.clone(), ..How::default() };
    let nice = How { is_nice: true, ..how.clone() };
    thread::scope(|scope| {
        let guest = scope.spawn(|| {
            [group("tests in a Linux guest", &guest, &how), group("tests of volumes and images", &storage, &nice)]
        });
        let program = scope.spawn(|| group("tests of the program", &program, &nice));
        let others = scope.spawn(|| group("other tests", &others, &nice));
        let examples = ["test", "--workspace", "--doc", "--quiet"];
        let mut steps = vec![
            documentation(root, built),
            of_command("examples in documentation", root, &examples, true),
            simulation(root, built),
        ];
        let ended = "a lane prints failures, and does not panic";
        let [guest, storage] = guest.join().expect(ended);
        steps.extend([guest, program.join().expect(ended), storage, others.join().expect(ended)]);
        steps
    })
}

fn in_order(executables: &[TestExecutable]) -> Vec<&TestExecutable> {
    let mut sorted: Vec<&TestExecutable> = executables.iter().collect();
    let place = |name: &str| LONGEST_FIRST.iter().position(|long| *long == name).unwrap_or(LONGEST_FIRST.len());
    sorted.sort_by_key(|executable| place(&executable.name));
    sorted
}

/// Runs executables sequentially.
fn group(name: &str, executables: &[&TestExecutable], how: &How) -> Step {
    timed(name, || {
        let steps: Vec<Step> = executables.iter().map(|executable| executable.run(how)).collect();
        let mut tests = Tests::default();
        steps.iter().for_each(|step| tests.add(step.tests));
        (steps.iter().all(|step| step.is_good), tests, steps.iter().map(|step| step.cpu).sum())
    })
}

fn documentation(root: &Path, built: &Built) -> Step {
    let step = timed("documentation", || {
        let (is_good, cpu) = documentation::check(root, built);
        (is_good, Tests::default(), cpu)
    });
    println!("== documentation: {} in {}", if step.is_good { "passed" } else { "FAILED" }, seconds(step.wall));
    step
}

/// Simulated scenarios from seeds that depend on the commit, so that each commit tests others.
fn simulation(root: &Path, built: &Built) -> Step {
    timed("simulation", || {
        let Some(program) = &built.program else {
            println!("the program zonda was not built");
            return (false, Tests::default(), Duration::ZERO);
        };
        let seeds = std::env::var("ZONDA_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SIMULATED_SEEDS);
        let first = first_seed(root);
        println!("== {seeds} simulated scenarios from seed {first}");
        let mut command = Command::new("nice");
        command.arg("-n10").arg(program).current_dir(root).stdin(Stdio::null());
        command.args(["sim", "--quiet", "--first", &first.to_string(), "--seeds", &seeds.to_string()]);
        let ended = suite::to_the_end("simulation", command);
        println!("{}", ended.text);
        (ended.is_good(), Tests::default(), ended.cpu)
    })
}

/// The first seven digits of the commit ID as a number; 1 without a commit.
fn first_seed(root: &Path) -> u64 {
    let output = Command::new("git").args(["rev-parse", "--short=7", "HEAD"]).current_dir(root).output();
    let commit = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    u64::from_str_radix(&commit, 16).unwrap_or(1)
}

/// A cargo command; its output is shown on failure, or immediately if no other step prints.
pub(crate) fn of_command(name: &str, root: &Path, arguments: &[&str], is_nice: bool) -> Step {
    let step = timed(name, || {
        let mut command = cargo(root);
        if arguments[0] == "test" {
            // It links the libraries of the build.
            command = suite::for_tests(command, root);
        }
        if is_nice {
            let program = command.get_program().to_owned();
            let mut nice = Command::new("nice");
            nice.arg("-n10").arg(program).current_dir(root);
            for (key, value) in command.get_envs() {
                match value {
                    Some(value) => nice.env(key, value),
                    None => nice.env_remove(key),
                };
            }
            command = nice;
        }
        command.args(arguments).stdin(Stdio::null());
        let ended = suite::to_the_end(name, command);
        if !ended.is_good() {
            println!("{}\ncargo {} FAILED", ended.text, arguments.join(" "));
        }
        (ended.is_good(), Tests::of_output(&ended.text), ended.cpu)
    });
    println!("== {name}: {} in {}", if step.is_good { "passed" } else { "FAILED" }, seconds(step.wall));
    step
}

/// Runs a step and measures its time. The body returns whether it passed, its tests, and their CPU
/// time.
pub(crate) fn timed(name: &str, body: impl FnOnce() -> (bool, Tests, Duration)) -> Step {
    let start = Instant::now();
    let (is_good, tests, cpu) = body();
    let budget = BUDGETS_S.iter().find(|(of, _)| *of == name).map(|(_, s)| Duration::from_secs(*s));
    Step { name: name.to_owned(), cpu, wall: start.elapsed(), budget, tests, is_good }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_are_those_of_the_page_for_contributors() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../CONTRIBUTING.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<(String, u64)> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
            .filter_map(|(name, seconds)| Some((name.to_owned(), seconds.parse().ok()?)))
            .collect();
        let budgets: Vec<(String, u64)> = BUDGETS_S.iter().map(|(name, s)| ((*name).to_owned(), *s)).collect();
        assert_eq!(rows, budgets);
    }

    #[test]
    fn steps_within_their_budgets_keep_the_whole_within_its_own() {
        let before = ["format", "levels and sizes", "build and lints"];
        // Steps of a lane run sequentially, lanes concurrently; budgets are for steps that run with
        // the other lanes.
        let lanes: [&[&str]; 4] = [
            &["documentation", "examples in documentation", "simulation"],
            &["tests in a Linux guest", "tests of volumes and images"],
            &["tests of the program"],
            &["other tests"],
        ];
        assert_eq!(before.len() + lanes.concat().len(), BUDGETS_S.len());
        let of = |name: &&str| BUDGETS_S.iter().find(|(of, _)| of == name).expect("each step has a budget").1;
        let sum = |steps: &[&str]| steps.iter().map(of).sum::<u64>();
        let longest = lanes.iter().map(|lane| sum(lane)).max().expect("there are lanes");
        assert!(sum(&before) + longest <= WHOLE_S);
    }

    #[test]
    fn executables_that_take_longest_come_first_and_no_other_is_left_out() {
        let of = |names: &[&str]| names.iter().map(|name| TestExecutable::named(name)).collect::<Vec<_>>();
        let executables = of(&["zoned", "sim/sim", "raid", "ssd"]);
        let names: Vec<&str> = in_order(&executables).iter().map(|executable| executable.name.as_str()).collect();
        assert_eq!(names, ["raid", "sim/sim", "zoned", "ssd"]);
    }
}
