//! Runs programs with a time limit, after which a program is killed with all of its descendants.
//!
//! Output goes to a file and not through a pipe, so that background processes do not block, and the
//! output of a program that hangs is available.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The unit of times in `/proc/PID/stat`: USER_HZ is 100 on every processor that Linux runs Rust
/// on.
const TICK: Duration = Duration::from_millis(10);

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if it was stopped at its limit.
    pub(crate) status: Option<ExitStatus>,
    /// Both outputs; on failure, followed by the status or the killed processes.
    pub(crate) text: String,
    /// User and system CPU time of the program and of the children that it waited for.
    pub(crate) cpu: Duration,
}

impl Ended {
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs a program, at most until `until`. Its output goes to this file, which is removed if the
/// program succeeds.
///
/// # Errors
/// If the file cannot be created or read, or the program cannot be started.
pub(crate) fn run(mut command: Command, output: &Path, until: Instant) -> io::Result<Ended> {
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder)?;
    }
    let start = Instant::now();
    let file = File::create(output)?;
    command.stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn()?;
    let (status, cpu, stopped) = wait(&mut child, until)?;
    let mut bytes = Vec::new();
    File::open(output)?.read_to_end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    match status {
        Some(status) if status.success() => {}
        Some(status) => text += &format!("\n{status}\n"),
        None => {
            text += &format!("\nstopped: not finished after {:.0} s. Processes:\n", start.elapsed().as_secs_f64());
            stopped.iter().for_each(|(id, command)| text += &format!("   {id} {command}\n"));
        }
    }
    let ended = Ended { status, text, cpu };
    if ended.is_good() {
        fs::remove_file(output)?;
    }
    Ok(ended)
}

/// Runs a program without a limit, and returns its standard output as `text`. Its standard error is
/// inherited.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn read(mut command: Command) -> io::Result<Ended> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut bytes = Vec::new();
    child.stdout.take().expect("it is a pipe").read_to_end(&mut bytes)?;
    let forever = Instant::now() + Duration::from_secs(365 * 24 * 3600);
    let (status, cpu, _) = wait(&mut child, forever)?;
    Ok(Ended { status, text: String::from_utf8_lossy(&bytes).into_owned(), cpu })
}

/// The status and the CPU time; if the time was over, no status and the killed processes.
fn wait(child: &mut Child, until: Instant) -> io::Result<(Option<ExitStatus>, Duration, BTreeMap<u32, String>)> {
    let file = format!("/proc/{}/stat", child.id());
    loop {
        // A zombie has its times until it is waited for, so that they are read before.
        let stat = fs::read_to_string(&file)?;
        let (state, cpu) = state_and_cpu_of(&stat).unwrap_or_default();
        if state == "Z" {
            return Ok((Some(child.wait()?), cpu, BTreeMap::new()));
        }
        if Instant::now() >= until {
            let running = with_descendants(child.id());
            let ids = running.keys().map(u32::to_string);
            // A process that has ended in the meantime is not an error.
            Command::new("kill").arg("-9").args(ids).stderr(Stdio::null()).status()?;
            child.wait()?;
            return Ok((None, cpu, running));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A process and its descendants: commands by process ID.
fn with_descendants(root: u32) -> BTreeMap<u32, String> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let ids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for id in ids {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(id);
        }
    }
    let (mut found, mut to_visit) = (BTreeMap::new(), vec![root]);
    while let Some(id) = to_visit.pop() {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        found.insert(id, String::from_utf8_lossy(&command).replace('\0', " ").trim_end().to_owned());
        to_visit.extend(children.remove(&id).unwrap_or_default());
    }
    found
}

/// The parent from `/proc/PID/stat`: the number, the name in parentheses, the state, the parent
/// (proc(5)).
fn parent_of(stat: &str) -> Option<u32> {
    // A name can contain parentheses and spaces.
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

/// The state, and the times of the process and of children that it waited for (utime, stime,
/// cutime, cstime).
fn state_and_cpu_of(stat: &str) -> Option<(&str, Duration)> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u32>().ok()).sum::<Option<u32>>()?;
    Some((fields[0], TICK * ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null());
        shell
    }

    fn output_file(test: &str) -> std::path::PathBuf {
        crate::suite::output_file(&format!("process-{test}"))
    }

    /// A killed process may still run for a short time, and is then a zombie.
    fn has_exited(id: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }

    #[test]
    fn a_program_that_times_out_is_stopped_with_its_children_and_its_output_is_kept() {
        let file = output_file("hangs");
        let until = Instant::now() + Duration::from_secs(2);
        let ended = run(shell("echo begun; sh -c 'echo $$; sleep 1000; true'; true"), &file, until).expect("sh starts");
        assert!(ended.status.is_none() && !ended.is_good());
        let lines: Vec<&str> = ended.text.lines().collect();
        assert_eq!(lines[0], "begun", "{}", ended.text);
        assert!(
            ended.text.contains("stopped: not finished after 2 s.") && ended.text.contains("sleep 1000\n"),
            "{}",
            ended.text
        );
        let gone_by = Instant::now() + Duration::from_secs(30);
        while !has_exited(lines[1]) {
            assert!(Instant::now() < gone_by, "its child still runs");
            thread::sleep(LOOK_EVERY);
        }
        assert!(fs::read_to_string(&file).expect("it stays").starts_with("begun\n"));
        fs::remove_file(file).expect("it is there");
    }

    #[test]
    fn background_processes_of_a_program_do_not_block() {
        let file = output_file("leaves");
        let start = Instant::now();
        let ended = run(shell("sleep 100 & echo $!"), &file, start + Duration::from_secs(60)).expect("sh starts");
        assert!(ended.is_good() && start.elapsed() < Duration::from_secs(50), "{ended:?}");
        Command::new("kill").arg(ended.text.trim()).status().expect("there is kill");
        assert!(!file.exists(), "the output of a successful program is removed");
    }

    #[test]
    fn a_failure_keeps_both_outputs_in_their_order() {
        let file = output_file("fails");
        let ended =
            run(shell("echo one; echo two >&2; echo three; exit 3"), &file, Instant::now() + Duration::from_secs(60));
        let ended = ended.expect("sh starts");
        assert_eq!(
            (ended.status.and_then(|status| status.code()), ended.text.as_str()),
            (Some(3), "one\ntwo\nthree\n\nexit status: 3\n")
        );
        assert_eq!(fs::read_to_string(&file).expect("it stays"), "one\ntwo\nthree\n");
        fs::remove_file(file).expect("it is there");
    }

    #[test]
    fn the_parent_of_a_process_with_parentheses_in_its_name_is_found() {
        assert_eq!(parent_of("17 (a) b) S 4) S 12 17 17 0"), Some(12));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn the_cpu_time_is_that_of_the_program_and_its_children() {
        let stat = "17 (a) b) Z 4 17 17 0 -1 4227084 9 9 9 9 1 20 300 4000 20 0 1 0 5 0 0";
        assert_eq!(state_and_cpu_of(stat), Some(("Z", Duration::from_millis(43_210))));
        assert_eq!(state_and_cpu_of("17 (a) Z 4"), None);

        let until = Instant::now() + Duration::from_secs(60);
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let ended = run(shell(&format!("sh -c '{busy}'; true")), &output_file("busy"), until).expect("sh starts");
        assert!(ended.is_good() && ended.cpu >= TICK, "{ended:?}");
        let ended = read(shell(&format!("{busy}; echo done"))).expect("sh starts");
        assert!(ended.is_good() && ended.text == "done\n" && ended.cpu >= TICK, "{ended:?}");
        let ended = run(shell("sleep 0.3"), &output_file("idle"), until).expect("sh starts");
        assert!(ended.is_good() && ended.cpu < Duration::from_millis(300), "{ended:?}");
    }
}
