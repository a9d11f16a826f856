//! `cargo xtask soak HOURS`: runs all long tests with fresh seeds, and writes a report.
//!
//! First the lab, then campaigns until the time is over: long tests in random order, including
//! those in the guest, simulations of each kind, fuzzers, kills, mutants. The report is written
//! after each campaign, so that an aborted run has a report.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::suite::{How, cargo, text_of};

/// Maximum number of hours of a run.
const HOURS_MAX: f64 = 24.0 * 14.0;
/// Seeds per run of the simulator.
const SEEDS_A_CALL: u64 = 2_000;
/// Rounds per run of the kills.
const ROUNDS_A_CALL: u64 = 50;
/// Arguments of the kills, in turn: images, volumes of these levels, owners of a volume, and pools.
const KILL_CALLS: [&[&str]; 8] = [
    &[],
    &["--volumes", "--level", "raid5"],
    &["--owners"],
    &["--pools"],
    &["--volumes", "--level", "raid1"],
    &["--volumes", "--level", "raid6"],
    &["--volumes", "--level", "single"],
    &["--volumes", "--level", "raid01"],
];
/// Minimum number of seconds of a fuzzer.
const FUZZ_SECONDS_MIN: u64 = 10;
/// Kinds of simulated scenarios.
const KINDS: [&str; 7] = ["drive", "network", "files", "volumes", "images", "elastic", "groups"];
/// Share of the remaining time of each campaign, in percent.
const SHARES: [(&str, u32); 5] =
    [("long tests", 30), ("simulations", 30), ("fuzzers", 15), ("kills", 10), ("mutants", 15)];

/// The result of a campaign.
#[derive(Debug)]
struct Entry {
    name: String,
    /// Amount: `12,000 seeds from 17 on`.
    amount: String,
    wall: Duration,
    /// Failures, with the command that repeats each.
    failures: Vec<(String, String)>,
    /// Why it was skipped.
    skipped: Option<String>,
}

struct Soak<'a> {
    root: &'a Path,
    out: PathBuf,
    start: Instant,
    hours: f64,
    /// The next unused seed.
    next_seed: u64,
    entries: Vec<Entry>,
}

/// Runs for about this many hours.
pub(crate) fn run(root: &Path, hours: &str) -> ExitCode {
    let hours = match hours.parse::<f64>() {
        Ok(hours) if hours > 0.0 && hours <= HOURS_MAX => hours,
        _ => {
            eprintln!("{hours} is not a number of hours between 0 and {HOURS_MAX} (0.5 is half an hour)");
            return ExitCode::from(2);
        }
    };
    let out = root.join("out/soak");
    if let Err(error) = fs::create_dir_all(&out) {
        eprintln!("cannot create {}: {error}", out.display());
        return ExitCode::from(2);
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A thousand seeds for each millisecond, so that runs share no seeds.
    let next_seed = since_epoch.as_secs() * 1_000_000;
    let mut soak = Soak { root, out, start: Instant::now(), hours, next_seed, entries: Vec::new() };
    soak.everything();
    let failures: usize = soak.entries.iter().map(|entry| entry.failures.len()).sum();
    println!("{}", soak.report());
    println!("{}", soak.tally());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Soak<'_> {
    fn everything(&mut self) {
        if !self.once("build", "cargo", &["build", "--release", "--package", "zonda-cli", "--package", "zonda-kill"]) {
            return;
        }
        let lab = self.out.join("lab").display().to_string();
        self.once("lab", &self.program(), &["lab", "run", "--all", "--quiet", "--out", &lab]);
        let end = self.start + Duration::from_secs_f64(self.hours * 3600.0);
        let left = end.saturating_duration_since(Instant::now());
        for (name, percent) in SHARES {
            let until = Instant::now() + left * percent / 100;
            match name {
                "long tests" => self.long_tests(until),
                "simulations" => self.simulations(until),
                "fuzzers" => self.fuzzers(until),
                "kills" => self.kills(until),
                _ => self.mutants(until),
            }
        }
    }

    fn program(&self) -> String {
        self.root.join("target/release/zonda").display().to_string()
    }

    /// Runs a command with its output in `out/soak/NAME.log`. Returns whether it succeeded, its
    /// exit code and output.
    fn call(&self, name: &str, program: &str, arguments: &[&str]) -> (bool, Option<i32>, String) {
        let mut command = if program == "cargo" { cargo(self.root) } else { Command::new(program) };
        let output = command.args(arguments).current_dir(self.root).stdin(Stdio::null()).output();
        let (code, text) = match &output {
            Ok(output) => (output.status.code(), text_of(output)),
            Err(error) => (None, format!("cannot start {program}: {error}")),
        };
        let log = self.log(name);
        let old = fs::read_to_string(&log).unwrap_or_default();
        if let Err(error) = fs::write(&log, format!("{old}$ {program} {}\n{text}\n", arguments.join(" "))) {
            eprintln!("cannot write {}: {error}", log.display());
        }
        (code == Some(0), code, text)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.out.join(format!("{}.log", name.replace(' ', "-")))
    }

    fn begin(&self, name: &str) -> Instant {
        println!("== {name}");
        let _ = fs::remove_file(self.log(name));
        Instant::now()
    }

    fn end(&mut self, entry: Entry) {
        match &entry.skipped {
            Some(why) => println!("   skipped: {why}"),
            None => {
                let state = if entry.failures.is_empty() { "passed" } else { "FAILED" };
                println!("   {state}: {} in {:.0} s", entry.amount, entry.wall.as_secs_f64());
            }
        }
        self.entries.push(entry);
        let path = self.out.join("report.md");
        if let Err(error) = fs::write(&path, self.report()) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }

    /// A campaign with a single command.
    fn once(&mut self, name: &str, program: &str, arguments: &[&str]) -> bool {
        let start = self.begin(name);
        let (is_good, _, text) = self.call(name, program, arguments);
        let tests = crate::ledger::Tests::of_output(&text);
        let amount = match tests.passed + tests.failed {
            0 => "once".to_owned(),
            count => format!("{count} tests"),
        };
        let failures =
            if is_good { vec![] } else { vec![(failed_tests(&text), format!("{program} {}", arguments.join(" ")))] };
        self.end(Entry { name: name.to_owned(), amount, wall: start.elapsed(), failures, skipped: None });
        is_good
    }

    /// Built as by `make test`; they start the release build of the program.
    fn long_tests(&mut self, until: Instant) {
        let start = self.begin("long tests");
        let (mut amount, mut failures) = ("none".to_owned(), Vec::new());
        match crate::suite::build_and_lint(self.root) {
            Ok(built) => {
                let how = How { program: Some(PathBuf::from(self.program())), ..How::default() };
                let seed = self.next_seed;
                let outcome = crate::long_tests::run(&built.executables, &how, (until, seed), &self.out);
                (amount, failures) = (outcome.amount(), outcome.failures);
            }
            Err(error) => failures.push((error, "cargo build --workspace --tests".to_owned())),
        }
        self.end(Entry { name: "long tests".to_owned(), amount, wall: start.elapsed(), failures, skipped: None });
    }

    /// Simulates each kind in turn, until the time is over.
    fn simulations(&mut self, until: Instant) {
        for kind in KINDS {
            self.begin(&format!("simulation of {kind}"));
        }
        let mut entries: Vec<Entry> = KINDS
            .iter()
            .map(|kind| Entry {
                name: format!("simulation of {kind}"),
                amount: String::new(),
                wall: Duration::ZERO,
                failures: Vec::new(),
                skipped: None,
            })
            .collect();
        let mut seeds = [0; KINDS.len()];
        let bugbase = self.out.join("bugbase").display().to_string();
        while Instant::now() < until {
            for (index, kind) in KINDS.iter().enumerate() {
                let start = Instant::now();
                let (first, count) = (self.next_seed, SEEDS_A_CALL);
                self.next_seed += count;
                let arguments = [
                    "sim",
                    "--quiet",
                    "--scenario",
                    kind,
                    "--first",
                    &first.to_string(),
                    "--seeds",
                    &count.to_string(),
                    "--shrink",
                    "--out",
                    &bugbase,
                ];
                let (is_good, _, text) = self.call(&entries[index].name.clone(), &self.program(), &arguments);
                seeds[index] += count;
                entries[index].wall += start.elapsed();
                if !is_good {
                    let last = text.lines().rev().find(|line| line.contains("zonda sim")).unwrap_or("see the log");
                    entries[index].failures.push((format!("seeds from {first} on"), last.trim().to_owned()));
                }
            }
        }
        for (mut entry, seeds) in entries.into_iter().zip(seeds) {
            entry.amount = format!("{seeds} seeds");
            self.end(entry);
        }
    }

    /// Fuzzes all targets, two at a time.
    fn fuzzers(&mut self, until: Instant) {
        let start = self.begin("fuzzers");
        let script = self.root.join("scripts/fuzz").display().to_string();
        let targets = fs::read_to_string(self.root.join("fuzz/targets")).unwrap_or_default();
        let targets = targets.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count() as u64;
        let left = until.saturating_duration_since(Instant::now()).as_secs();
        let seconds = (left * 2 / targets.max(1)).max(FUZZ_SECONDS_MIN);
        let (is_good, code, text) = self.call("fuzzers", &script, &["--seconds", &seconds.to_string()]);
        let replays = text.lines().map(str::trim).filter(|line| line.starts_with("replay:"));
        let mut failures: Vec<(String, String)> =
            replays.map(|line| ("an input".to_owned(), line.to_owned())).collect();
        // 77: fuzzers are not available on this machine.
        let skipped = (code == Some(77)).then(|| why_skipped(&text));
        if !is_good && skipped.is_none() && failures.is_empty() {
            failures.push(("scripts/fuzz".to_owned(), "see the log".to_owned()));
        }
        let amount = format!("{targets} targets, {seconds} s each");
        self.end(Entry { name: "fuzzers".to_owned(), amount, wall: start.elapsed(), failures, skipped });
    }

    fn kills(&mut self, until: Instant) {
        let start = self.begin("kills");
        let program = self.root.join("target/release/kill-rounds").display().to_string();
        let (mut rounds, mut failures) = (0, Vec::new());
        for options in KILL_CALLS.iter().cycle() {
            if Instant::now() >= until {
                break;
            }
            let seed = self.next_seed.to_string();
            self.next_seed += 1;
            let kept = self.out.join(format!("kills-{seed}"));
            let kept_text = kept.display().to_string();
            let count = ROUNDS_A_CALL.to_string();
            let mut arguments = vec!["--seed", &seed, "--rounds", &count, "--directory", &kept_text];
            arguments.extend(*options);
            let (is_good, _, _) = self.call("kills", &program, &arguments);
            rounds += ROUNDS_A_CALL;
            if is_good {
                let _ = fs::remove_dir_all(&kept);
            } else {
                let replay = format!(
                    "kill-rounds {}",
                    arguments[..4].iter().chain(&arguments[6..]).copied().collect::<Vec<_>>().join(" ")
                );
                failures.push((format!("seed {seed}, images kept in {kept_text}"), replay));
            }
        }
        let amount = format!("{rounds} rounds");
        self.end(Entry { name: "kills".to_owned(), amount, wall: start.elapsed(), failures, skipped: None });
    }

    /// Tests a random sample of mutants. Survivors are not failures: their share is compared with
    /// the limit in CONTRIBUTING.md.
    fn mutants(&mut self, until: Instant) {
        let start = self.begin("mutants");
        let script = self.root.join("scripts/mutants").display().to_string();
        let seconds = until.saturating_duration_since(Instant::now()).as_secs().to_string();
        let seed = self.next_seed.to_string();
        let (is_good, code, text) = self.call("mutants", &script, &["--seconds", &seconds, "--seed", &seed]);
        let skipped = (code == Some(77)).then(|| why_skipped(&text));
        let failures = if is_good || skipped.is_some() {
            vec![]
        } else {
            vec![("more survive than CONTRIBUTING.md allows".to_owned(), format!("scripts/mutants --seed {seed}"))]
        };
        let amount = text.lines().last().unwrap_or_default().to_owned();
        self.end(Entry { name: "mutants".to_owned(), amount, wall: start.elapsed(), failures, skipped });
    }

    /// The numbers of campaigns that passed and were skipped, and of failures.
    fn tally(&self) -> String {
        let skipped = self.entries.iter().filter(|entry| entry.skipped.is_some()).count();
        let failed = self.entries.iter().filter(|entry| !entry.failures.is_empty()).count();
        let failures: usize = self.entries.iter().map(|entry| entry.failures.len()).sum();
        format!("{} passed, {skipped} skipped, {failures} failed", self.entries.len() - skipped - failed)
    }

    fn report(&self) -> String {
        let hours = self.start.elapsed().as_secs_f64() / 3600.0;
        let mut text = format!("# Soak: {hours:.2} of {:.2} hours\n\n", self.hours);
        text += "| campaign | amount | seconds | failures |\n|---|---|---|---|\n";
        for entry in &self.entries {
            let state = match &entry.skipped {
                Some(why) => format!("skipped: {why}"),
                None => entry.failures.len().to_string(),
            };
            let _ = writeln!(text, "| {} | {} | {:.0} | {state} |", entry.name, entry.amount, entry.wall.as_secs_f64());
        }
        for entry in self.entries.iter().filter(|entry| !entry.failures.is_empty()) {
            let _ = writeln!(text, "\n## {}\n\nLog: {}\n", entry.name, self.log(&entry.name).display());
            for (what, replay) in &entry.failures {
                let _ = writeln!(text, "- {what}\n\n  `{replay}`");
            }
        }
        text
    }
}

/// Why a script ended with 77, from its last line: `fuzz: skipped: WHY`.
fn why_skipped(text: &str) -> String {
    let last = text.lines().last().unwrap_or_default();
    last.split_once(": skipped: ").map_or(last, |(_, why)| why).to_owned()
}

/// The names of the failed tests, from the output of `cargo test`.
fn failed_tests(text: &str) -> String {
    let failed = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let names: Vec<&str> = failed.collect();
    if names.is_empty() { "failed".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_to_all_of_the_time() {
        assert_eq!(SHARES.iter().map(|(_, percent)| percent).sum::<u32>(), 100);
    }

    #[test]
    fn the_report_shows_failures_and_the_command_to_repeat_them() {
        let mut soak = Soak {
            root: Path::new("/w"),
            out: PathBuf::from("/w/out/soak"),
            start: Instant::now(),
            hours: 2.0,
            next_seed: 0,
            entries: Vec::new(),
        };
        let entry = |name: &str, failures: Vec<(String, String)>, skipped: Option<&str>| Entry {
            name: name.to_owned(),
            amount: "4 rounds".to_owned(),
            wall: Duration::from_secs(61),
            failures,
            skipped: skipped.map(str::to_owned),
        };
        let failure = ("seed 7".to_owned(), "kill-rounds --seed 7".to_owned());
        soak.entries = vec![entry("kills", vec![failure], None), entry("fuzzers", vec![], Some("no C++ compiler"))];
        assert_eq!(soak.tally(), "0 passed, 1 skipped, 1 failed");
        let expected = "# Soak: 0.00 of 2.00 hours

| campaign | amount | seconds | failures |
|---|---|---|---|
| kills | 4 rounds | 61 | 1 |
| fuzzers | 4 rounds | 61 | skipped: no C++ compiler |

## kills

Log: /w/out/soak/kills.log

- seed 7

  `kill-rounds --seed 7`
";
        assert_eq!(soak.report(), expected);
    }

    #[test]
    fn the_reason_of_a_skip_is_the_last_line_of_a_script_without_its_name() {
        assert_eq!(why_skipped("fuzz: installing\nfuzz: skipped: no C++ compiler"), "no C++ compiler");
        assert_eq!(why_skipped("no line like that"), "no line like that");
    }

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed_tests("test a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED"), "a::c, d");
        assert_eq!(failed_tests("error: linking"), "failed");
    }
}
