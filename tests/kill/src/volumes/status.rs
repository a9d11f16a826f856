//! The output of `zonda volume status --json` and related commands.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::disk::Disk;
use crate::loss::{Loss, RunError};
use crate::server::Launcher;

/// Timeout of a rebuild and a scrub.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How long a re-added member may be refused.
const READD_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Size of a volume in bytes.
///
/// # Errors
/// When the command fails.
pub(super) fn volume_bytes(launcher: &Launcher) -> Result<u64, RunError> {
    let status = status(launcher)?;
    status["volume_bytes"].as_u64().ok_or_else(|| RunError::Failed(format!("a status without a size: {status}")))
}

/// Replaces failed members by new images, and waits until all are active.
///
/// # Errors
/// On timeout.
pub(super) fn rebuild(launcher: &Launcher, disk: &mut Disk) -> Result<(), RunError> {
    let deadline = Instant::now() + TIMEOUT;
    // The remote member is re-added, and replaced only if that fails.
    let readd_deadline = Instant::now() + READD_TIMEOUT;
    let mut said = String::new();
    loop {
        let status = status(launcher)?;
        if status["state"] == "healthy" && status["rebuild"].is_null() {
            disk.refresh()?;
            disk.remove_unused();
            return Ok(());
        }
        if status["state"] == "lost" || Instant::now() > deadline {
            let found = format!("{status} {said}");
            return Err(RunError::lost(Loss::new("rebuild", "all members active within 90 s", found)));
        }
        for member in status["members"].as_array().into_iter().flatten() {
            if member["state"] == "failed"
                && let Some(index) = member["member"].as_u64()
            {
                // The volume may have changed since its status; the next one shows it.
                let index = index as usize;
                let taken = if disk.remote() == Some(index) && Instant::now() < readd_deadline {
                    readd(launcher, index)
                } else {
                    let image = disk.create_image(launcher)?;
                    replace(launcher, index, &image)
                };
                if let Err(RunError::Failed(error)) = taken {
                    said = error;
                }
            }
        }
        sleep(POLL);
    }
}

/// Scrubs the volume; returns whether no block is lost.
///
/// # Errors
/// When the scrub fails.
pub(super) fn scrub(launcher: &Launcher) -> Result<bool, RunError> {
    match launcher.run(&["volume", "scrub", super::disk::VOLUME, "--json"]) {
        Ok(_) => Ok(true),
        Err(RunError::Failed(text)) if text.contains("exit status: 1") && text.contains("\"lost\"") => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Replaces a member by an image, without waiting for the rebuild.
///
/// # Errors
/// When the command fails.
pub(super) fn replace(launcher: &Launcher, member: usize, image: &str) -> Result<(), RunError> {
    let arguments = ["member", "replace", super::disk::VOLUME, &member.to_string(), "--with", image, "--detach"];
    launcher.run(&arguments).map(|_| ())
}

/// Re-adds a member with its data, without waiting for the resynchronization.
///
/// # Errors
/// When the command fails.
fn readd(launcher: &Launcher, member: usize) -> Result<(), RunError> {
    launcher.run(&["member", "re-add", super::disk::VOLUME, &member.to_string(), "--detach"]).map(|_| ())
}

fn status(launcher: &Launcher) -> Result<Value, RunError> {
    let text = launcher.run(&["volume", "status", super::disk::VOLUME, "--json"]);
    let text = match text {
        // Exit code 1: the volume is lost or suspended, which the JSON shows too.
        Err(RunError::Failed(text)) if text.contains("\"state\"") => text,
        other => other?,
    };
    let json = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(json)
        .map_err(|error| RunError::Failed(format!("the status is not valid JSON ({error}): {text}")))
}
