//! A separate file system for one drive, which can be filled completely.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const BALLAST_CHUNK: usize = 1 << 20;

/// A tmpfs, unmounted when it is dropped.
#[derive(Debug)]
pub(crate) struct Space {
    path: PathBuf,
}

impl Space {
    /// Mounts one of so many MiB on a new directory.
    ///
    /// # Errors
    /// Why that failed.
    pub(crate) fn mount(path: &Path, size_mib: u32) -> Result<Space, String> {
        fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "none"]).arg(path).output();
        let output = mount.map_err(|error| format!("cannot run mount: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Space { path: path.to_owned() })
    }

    /// Fills it to the last page.
    pub(crate) fn fill(&self) {
        let chunk = vec![1; BALLAST_CHUNK];
        let Ok(mut ballast) = File::create(self.path.join("ballast")) else { return };
        // Ends when there is no space left.
        while ballast.write_all(&chunk).is_ok() {}
    }

    /// Copies its contents, which disappear with it.
    pub(crate) fn keep(&self) {
        let kept = self.path.with_extension("kept");
        let copy = Command::new("cp").args(["-a", "--sparse=always"]).arg(&self.path).arg(&kept).status();
        if !copy.is_ok_and(|status| status.success()) {
            eprintln!("cannot copy {} to {}", self.path.display(), kept.display());
        }
    }

    /// Frees the space that `fill` used.
    pub(crate) fn free(&self) {
        // It may not have been filled.
        let _ = fs::remove_file(self.path.join("ballast"));
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // A mount that is left disappears at the next reboot.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}
