//! Processes beside this one: what they take, and processes that take as much.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ticks of the kernel's clock in a second (`USER_HZ`), which is the same on all machines that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;
/// A burner works and rests within this.
const PERIOD: Duration = Duration::from_millis(10);

/// A process that ends with this.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts this program with other arguments.
    pub(crate) fn of(program: &Path, arguments: &[String]) -> io::Result<Process> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Process)
    }

    /// Processor time that it has taken, in seconds (proc(5): fields 14 and 15 of `stat`).
    pub(crate) fn processor_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        // The name of the program may have spaces in it.
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

    /// Whether it is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes a share of one processor, until the process is killed.
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
