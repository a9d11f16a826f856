//! What `zonda volume status --json` and its siblings say.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::disk::Disk;
use crate::loss::{Loss, Trouble};
use crate::server::Launcher;

/// How long members may take to be rebuilt, and a scrub to end.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How long a member that was taken back may be refused.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Size of a volume in bytes.
///
/// # Errors
/// When the command fails.
pub(super) fn volume_bytes(launcher: &Launcher) -> Result<u64, Trouble> {
    let status = status(launcher)?;
    status["volume_bytes"].as_u64().ok_or_else(|| Trouble::Stuck(format!("a status without a size: {status}")))
}

/// Puts new images in the place of members that failed, and waits until all are active.
///
/// # Errors
/// When that does not come about.
pub(super) fn rebuild(launcher: &Launcher, disk: &mut Disk) -> Result<(), Trouble> {
    let deadline = Instant::now() + TIMEOUT;
    // The remote member is taken back, and replaced only if that does not succeed.
    let patience = Instant::now() + PATIENCE;
    let mut said = String::new();
    loop {
        let status = status(launcher)?;
        if status["state"] == "well" && status["rebuild"].is_null() {
            disk.refresh()?;
            disk.remove_unused();
            return Ok(());
        }
        if status["state"] == "lost" || Instant::now() > deadline {
            let found = format!("{status} {said}");
            return Err(Trouble::lost(Loss::new("rebuild", "all members active within 90 s", found)));
        }
        for member in status["members"].as_array().into_iter().flatten() {
            if member["state"] == "failed"
                && let Some(index) = member["member"].as_u64()
            {
                // The volume may have changed since its status; the next one shows it.
                let index = index as usize;
                let taken = if disk.remote() == Some(index) && Instant::now() < patience {
                    take_back(launcher, index)
                } else {
                    let image = disk.create_image(launcher)?;
                    replace(launcher, index, &image)
                };
                if let Err(Trouble::Stuck(error)) = taken {
                    said = error;
                }
            }
        }
        sleep(POLL);
    }
}

/// Scrubs the volume; whether no block is lost.
///
/// # Errors
/// When the scrub cannot be run.
pub(super) fn scrub(launcher: &Launcher) -> Result<bool, Trouble> {
    match launcher.run(&["volume", "scrub", super::disk::VOLUME, "--json"]) {
        Ok(_) => Ok(true),
        Err(Trouble::Stuck(text)) if text.contains("exit status: 1") && text.contains("\"lost\"") => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

/// Puts an image in a member's place, without waiting for the rebuild.
///
/// # Errors
/// When the command fails.
pub(super) fn replace(launcher: &Launcher, member: usize, image: &str) -> Result<(), Trouble> {
    let arguments = ["member", "replace", super::disk::VOLUME, &member.to_string(), "--with", image, "--detach"];
    launcher.run(&arguments).map(|_| ())
}

/// Takes a member back with what it holds, without waiting until it is caught up.
///
/// # Errors
/// When the command fails.
fn take_back(launcher: &Launcher, member: usize) -> Result<(), Trouble> {
    launcher.run(&["member", "re-add", super::disk::VOLUME, &member.to_string(), "--detach"]).map(|_| ())
}

fn status(launcher: &Launcher) -> Result<Value, Trouble> {
    let text = launcher.run(&["volume", "status", super::disk::VOLUME, "--json"]);
    let text = match text {
        // Exit code 1 says that the volume is lost or suspended, which the JSON says too.
        Err(Trouble::Stuck(text)) if text.contains("\"state\"") => text,
        other => other?,
    };
    let json = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| Trouble::Stuck(format!("a status that is not JSON ({error}): {text}")))
}
