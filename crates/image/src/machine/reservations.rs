//! Saved reservations of hosts: opaque bytes that the image stores for the server of the drive.
//!
//! A synced journal record replaces the old bytes. A record that could not be synced may be on the
//! medium all the same: after a failure a checkpoint ensures that no later recovery finds it.

use bytes::Bytes;

use crate::format::record::{HEADER_BYTES, Kind};
use crate::limits::RESERVATIONS_BYTES_MAX;

use super::Image;
use super::journal::{OwnRecord, Waiter};

/// The change that is in progress.
#[derive(Debug, Default)]
pub(super) struct ReservationsChange {
    stage: Stage,
    /// The new bytes; once they are recorded, the old bytes, to be restored if that fails.
    bytes: Bytes,
    ended: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Waits for the end of a checkpoint.
    Held,
    /// Waits for its journal record.
    Journal,
}

impl ReservationsChange {
    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Whether its result has not been reported yet.
    pub(super) fn has_unreported_result(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn is_held(&self) -> bool {
        self.stage == Stage::Held
    }
}

impl Image {
    /// The saved reservations; empty for none. While a change is in progress these are the old
    /// bytes or the new ones.
    #[must_use]
    pub fn reservations(&self) -> &[u8] {
        &self.ledger.reservations
    }

    /// Saves these bytes in place of the old ones; empty for none. They are durable once
    /// [`take_reservations_saved`](Image::take_reservations_saved) returns `Some(true)`.
    ///
    /// # Panics
    /// For more than [`RESERVATIONS_BYTES_MAX`] bytes, while another change is in progress, and
    /// after [`shutdown`](Image::shutdown).
    pub fn save_reservations(&mut self, bytes: Bytes) {
        assert!(bytes.len() <= RESERVATIONS_BYTES_MAX, "{} bytes of reservations", bytes.len());
        assert!(self.reservations_change.is_idle(), "only one change of reservations may be in progress");
        assert!(!self.checkpointing.is_closing(), "a drive that is being closed accepts no reservations");
        self.reservations_change = ReservationsChange { stage: Stage::Held, bytes, ended: None };
        self.record_reservations();
        self.run_ready();
    }

    /// The result of the last change, reported once: `true`, it survives a loss of power from now
    /// on; `false`, a file failed, and the old bytes stay. Then a crash may restore either, until
    /// the next change or checkpoint succeeds; a checkpoint begins immediately.
    pub fn take_reservations_saved(&mut self) -> Option<bool> {
        self.reservations_change.ended.take()
    }

    /// Writes the record of a held change, if the journal admits it now.
    pub(super) fn record_reservations(&mut self) {
        if !self.reservations_change.is_held() {
            return;
        }
        let bytes = (HEADER_BYTES + self.reservations_change.bytes.len()).next_multiple_of(8) as u64;
        if !self.journal_admits(bytes) {
            self.checkpointing.want_if_blocked();
            return;
        }
        self.checkpointing.enter();
        let before = Bytes::copy_from_slice(&self.ledger.reservations);
        let new = std::mem::replace(&mut self.reservations_change.bytes, before);
        self.reservations_change.stage = Stage::Journal;
        self.push_record(OwnRecord { head: new, ..OwnRecord::new(Kind::Reservations) }, Waiter::Reservations);
    }

    /// Called when the record of a change is synced, or was not written.
    pub(super) fn on_reservations_recorded(&mut self, recorded: bool) {
        self.checkpointing.leave();
        let before = std::mem::take(&mut self.reservations_change.bytes);
        if !recorded {
            self.ledger.reservations = before[..].into();
            self.checkpointing.want();
        }
        self.reservations_change = ReservationsChange { ended: Some(recorded), ..ReservationsChange::default() };
    }

    /// Fails a change because the checkpoint that it waited for has failed.
    pub(super) fn refuse_reservations(&mut self) {
        if self.reservations_change.is_held() {
            self.reservations_change = ReservationsChange { ended: Some(false), ..ReservationsChange::default() };
        }
    }
}
