//! The table of steps of a run, with their times, budgets and tests.

use std::fmt::Write as _;
use std::time::Duration;

/// A completed step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Name, in two or three words.
    pub(crate) name: String,
    /// Elapsed time.
    pub(crate) wall: Duration,
    /// CPU time of its processes, which hardly depends on the load of the machine, unlike `wall`.
    pub(crate) cpu: Duration,
    /// Maximum time on two idle CPUs, if any.
    pub(crate) budget: Option<Duration>,
    /// Tests that passed, failed and were skipped.
    pub(crate) tests: Tests,
    /// Whether it passed.
    pub(crate) is_good: bool,
}

/// Counts of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tests {
    /// Sums up the result lines of `cargo test` in this output: `test result: ok. 3 passed; 0
    /// failed; 1 ignored; ...`.
    pub(crate) fn of_output(output: &str) -> Tests {
        let mut sum = Tests::default();
        for line in output.lines().filter_map(|line| line.trim().strip_prefix("test result:")) {
            let count = |word: &str| {
                let before = line.split(word).next().filter(|before| before.len() < line.len())?;
                before.trim_end().rsplit(' ').next()?.parse::<u64>().ok()
            };
            sum.passed += count(" passed").unwrap_or(0);
            sum.failed += count(" failed").unwrap_or(0);
            sum.skipped += count(" ignored").unwrap_or(0);
        }
        sum
    }

    pub(crate) fn add(&mut self, other: Tests) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The steps of one run, in the order in which they ended.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    steps: Vec<Step>,
}

impl Ledger {
    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(crate) fn extend(&mut self, steps: Vec<Step>) {
        self.steps.extend(steps);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.is_good)
    }

    pub(crate) fn tests(&self) -> Tests {
        let mut sum = Tests::default();
        self.steps.iter().for_each(|step| sum.add(step.tests));
        sum
    }

    pub(crate) fn cpu(&self) -> Duration {
        self.steps.iter().map(|step| step.cpu).sum()
    }

    /// The table. Steps run concurrently, so that their sum exceeds `whole`, which can have a
    /// budget, too.
    pub(crate) fn table(&self, whole: Duration, budget: Option<Duration>) -> String {
        let widest = self.steps.iter().map(|step| step.name.len()).max().unwrap_or(0).max("all steps".len());
        let mut text = format!(
            "{:<widest$}  {:>8}  {:>8}  {:>8}  {:>6}  {:>7}\n",
            "step", "cpu", "wall", "budget", "tests", "skipped"
        );
        for step in &self.steps {
            let times = (step.cpu, step.wall, step.budget);
            let _ = writeln!(text, "{}", row(&step.name, widest, times, step.tests, step.is_good));
        }
        let _ = writeln!(text, "{}", row("all steps", widest, (self.cpu(), whole, budget), self.tests(), true));
        text
    }
}

/// CPU time, elapsed time, and budget.
type Times = (Duration, Duration, Option<Duration>);

fn row(name: &str, widest: usize, (cpu, wall, budget): Times, tests: Tests, is_good: bool) -> String {
    let count = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    let (cpu_text, wall_text, budget_text) = (seconds(cpu), seconds(wall), budget.map(seconds).unwrap_or_default());
    let (run, skipped) = (count(tests.passed + tests.failed), count(tests.skipped));
    let text = format!("{name:<widest$}  {cpu_text:>8}  {wall_text:>8}  {budget_text:>8}  {run:>6}  {skipped:>7}");
    let mark = match budget {
        _ if !is_good => "  FAILED",
        Some(budget) if wall > budget => "  over its budget",
        _ => "",
    };
    format!("{}{mark}", text.trim_end())
}

/// `71.3 s`
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, wall_s: u64, budget_s: u64, passed: u64, is_good: bool) -> Step {
        let tests = Tests { passed, ..Tests::default() };
        let budget = (budget_s > 0).then(|| Duration::from_secs(budget_s));
        let (cpu, wall) = (Duration::from_secs(wall_s / 2), Duration::from_secs(wall_s));
        Step { name: name.to_owned(), cpu, wall, budget, tests, is_good }
    }

    #[test]
    fn closing_lines_add_up() {
        let output = "running 3 tests\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s\n\
                      test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Tests::of_output(output), Tests { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(Tests::of_output("no such line"), Tests::default());
    }

    #[test]
    fn the_table_shows_failed_steps_and_those_over_budget() {
        let mut ledger = Ledger::default();
        ledger.extend(vec![step("format", 3, 10, 0, true), step("unit tests", 120, 90, 40, true)]);
        ledger.push(step("lints", 60, 0, 0, false));
        let expected = "\
step             cpu      wall    budget   tests  skipped
format         1.0 s     3.0 s    10.0 s
unit tests    60.0 s   120.0 s    90.0 s      40  over its budget
lints         30.0 s    60.0 s  FAILED
all steps     91.0 s   180.0 s                40
";
        assert_eq!(ledger.table(Duration::from_secs(180), None), expected);
        let with_budget = expected.replace("180.0 s                40", "180.0 s   170.0 s      40  over its budget");
        assert_eq!(ledger.table(Duration::from_secs(180), Some(Duration::from_secs(170))), with_budget);
        assert!(!ledger.is_good());
    }
}
