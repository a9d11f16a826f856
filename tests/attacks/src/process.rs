//! Child processes: their CPU time and memory, and processes that use as much CPU time.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clock ticks per second (`USER_HZ`), the same on all machines that Linux supports today.
const TICKS_PER_SECOND: f64 = 100.0;
/// The period in which a burner works and sleeps.
const PERIOD: Duration = Duration::from_millis(10);

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts this program with other arguments.
    pub(crate) fn of(program: &Path, arguments: &[String]) -> io::Result<Process> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Process)
    }

    /// CPU time that it has used, in seconds (proc(5): fields 14 and 15 of `stat`).
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        // The name of the program may contain spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        (ticks(14) + ticks(15)) as f64 / TICKS_PER_SECOND
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }

    /// Whether it is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Uses a share of one CPU, until the process is killed.
pub fn burn(share: f64) -> ! {
    let work = PERIOD.mul_f64(share.clamp(0.0, 1.0));
    loop {
        let begin = Instant::now();
        while begin.elapsed() < work {
            std::hint::spin_loop();
        }
        std::thread::sleep(PERIOD.saturating_sub(begin.elapsed()));
    }
}
