//! Completions that hosts must not see yet.
//!
//! If the epoch in which members have changed is not in `volume.toml`, the next mount could accept
//! members that are out of date; and if another owner may have the volume, a write may be lost with
//! the members that it went to ([`LostMembers`](super::lost_members::LostMembers)).

use zonda_zoned::{Completion, CompletionQueue, Instant, Status};

use super::VolumeDrive;
use super::drive::{Phase, SAVE_INTERVAL_WAITING};

impl VolumeDrive {
    /// Whether `volume.toml` has the newest epoch in which the state of a member changed. I/O does
    /// not wait for the epoch of the mount, which only serves to detect older copies of members.
    pub(super) fn is_epoch_saved(&self) -> bool {
        let volume = self.on.volume();
        !volume.is_ready() || Some(volume.changed_epoch()) <= self.directory.saved_epoch()
    }

    /// Completes commands of hosts, unless they wait.
    pub(super) fn release(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let is_held = !self.is_epoch_saved();
        if is_held && !self.is_held {
            let file = super::VOLUME_FILE;
            self.notify(true, format!("I/O is suspended: members have changed, and {file} cannot be written"));
            self.save_again_at = Some(now + SAVE_INTERVAL_WAITING);
        } else if self.is_held && !is_held {
            self.notify(false, format!("I/O is resumed: {} is written", super::VOLUME_FILE));
        }
        self.is_held = is_held;
        let waits = is_held || self.awaits_holders(now);
        while let Some(completion) = if waits && self.phase == Phase::Open { None } else { self.held.pop() } {
            // When the volume is closed, the result of the command is unknown.
            let failed = Completion::of(completion.id, Status::InternalError);
            completions.push(if waits { failed } else { completion });
        }
    }

    /// Whether hosts wait until `volume.toml` can be written.
    pub(super) fn is_waiting_for_file(&self) -> bool {
        self.is_held
    }
}
