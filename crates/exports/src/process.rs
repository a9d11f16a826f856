//! The identity of a process.

use std::fs;
use std::io;

/// When a process started, in clock ticks since the machine was booted (`starttime` in
/// `/proc/PID/stat`, proc_pid_stat(5)). A process that has the identifier of an earlier one started
/// later.
///
/// # Errors
/// If the process does not exist, or `/proc` cannot be read.
pub fn started_ticks(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat has another format"))
}

/// The second field is the name of the program in parentheses, which may contain anything.
fn parse(text: &str) -> Option<u64> {
    const FIELD: usize = 22;
    const NAME: usize = 2;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(FIELD - NAME - 1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_read_whatever_the_name_of_the_program_is() {
        let fields: Vec<String> = (3..=52).map(|field| (field * 10).to_string()).collect();
        assert_eq!(parse(&format!("7 (a) b (c) {}", fields.join(" "))), Some(220));
        assert_eq!((parse("7 (a) 1 2"), parse("")), (None, None));
        let own = started_ticks(std::process::id()).expect("this process runs");
        assert!(own > 0 && started_ticks(std::process::id()).is_ok_and(|again| again == own));
    }
}
