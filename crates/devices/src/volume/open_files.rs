//! The files that this process may still open. A volume that cannot open a member because of that limit
//! would take a healthy member for a missing one, and record that it has failed.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::DriveError;

/// Files of an open drive, with those that are open for a moment only: an image has seven.
const FILES_PER_DRIVE: u64 = 16;

/// Fails if this process may not open as many files as these drives need.
///
/// # Errors
/// The limit and the files that are open are named, with the remedy.
pub(crate) fn must_suffice_for(drives: usize) -> Result<(), DriveError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Without procfs, opening fails later.
    let open = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    match missing(drives as u64, open, limit) {
        0 => Ok(()),
        missing => Err(DriveError::new(
            format!(
                "{drives} drives need up to {} open files; {open} are open, and this process may have {limit}",
                drives as u64 * FILES_PER_DRIVE
            ),
            format!("raise the limit by at least {missing}: ulimit -n, or LimitNOFILE= of a systemd service"),
        )),
    }
}

fn missing(drives: u64, open: u64, limit: u64) -> u64 {
    open.saturating_add(drives.saturating_mul(FILES_PER_DRIVE)).saturating_sub(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_need_sixteen_files_each_besides_those_that_are_open() {
        assert_eq!(missing(3, 16, 64), 0);
        assert_eq!(missing(3, 17, 64), 1);
        assert_eq!(missing(u64::MAX, 17, u64::MAX), 0);
        must_suffice_for(1).expect("tests may open some files");
        let error = must_suffice_for(1 << 40).expect_err("no process may open so many");
        assert!(error.message.contains("this process may have") && error.help.contains("ulimit -n"), "{error}");
    }
}
