//! What hosts have reserved of the drive: bytes that the image keeps for whoever serves it, and does not read.
//!
//! New bytes take the place of the old ones by a journal record, synced, or not at all. A record that could not be synced may be
//! on the medium all the same: the checkpoint that a failure asks for makes sure that no later recovery finds it.

use bytes::Bytes;

use crate::format::record::{HEADER_BYTES, Kind};
use crate::limits::RESERVATIONS_BYTES_MAX;

use super::Image;
use super::journal::OwnRecord;
use super::part::KEEPER;

/// The change that is in progress.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    stage: Stage,
    /// What is to be kept; once it is recorded, what is to be kept again if that fails.
    bytes: Bytes,
    ended: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// For the end of a checkpoint.
    Held,
    /// For its journal record.
    Journal,
}

impl Keeping {
    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Whether nobody has been told yet how it ended.
    pub(super) fn has_news(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn is_held(&self) -> bool {
        self.stage == Stage::Held
    }
}

impl Image {
    /// What is kept of reservations; empty where nothing is. While a change is in progress it is what was kept before, or what
    /// is to be kept.
    #[must_use]
    pub fn reservations(&self) -> &[u8] {
        &self.ledger.reservations
    }

    /// Keeps these bytes in place of those that were kept before; none: keeps nothing. They are durable once
    /// [`take_reservations_kept`](Image::take_reservations_kept) says so.
    ///
    /// # Panics
    /// For more than [`RESERVATIONS_BYTES_MAX`] bytes, while another change is in progress, and after [`close`](Image::close).
    pub fn keep_reservations(&mut self, bytes: Bytes) {
        assert!(bytes.len() <= RESERVATIONS_BYTES_MAX, "{} bytes of reservations", bytes.len());
        assert!(self.keeping.is_idle(), "changes of reservations come one after the other");
        assert!(!self.checkpointing.is_closing(), "a drive that is being closed takes no reservations");
        self.keeping = Keeping { stage: Stage::Held, bytes, ended: None };
        self.record_reservations();
        self.run_ready();
    }

    /// How the last change ended, told once: `true`, it survives a loss of power from now on; `false`, a file failed, and what
    /// was kept before is kept still. Then a crash may bring up either, until the next change or checkpoint succeeds;
    /// a checkpoint is begun at once.
    pub fn take_reservations_kept(&mut self) -> Option<bool> {
        self.keeping.ended.take()
    }

    /// Writes the record of a change that is held, if the journal takes it now.
    pub(super) fn record_reservations(&mut self) {
        if !self.keeping.is_held() {
            return;
        }
        let bytes = (HEADER_BYTES + self.keeping.bytes.len()).next_multiple_of(8) as u64;
        if !self.journal_admits(bytes) {
            self.checkpointing.want_if_blocked();
            return;
        }
        self.checkpointing.users += 1;
        let before = Bytes::copy_from_slice(&self.ledger.reservations);
        let kept = std::mem::replace(&mut self.keeping.bytes, before);
        self.keeping.stage = Stage::Journal;
        self.push_record(OwnRecord { head: kept, ..OwnRecord::new(Kind::Reservations, 0, 0) }, KEEPER);
    }

    /// The record of a change is synced, or was not written.
    pub(super) fn on_reservations_recorded(&mut self, recorded: bool) {
        self.checkpointing.users -= 1;
        let before = std::mem::take(&mut self.keeping.bytes);
        if !recorded {
            self.ledger.reservations = before[..].into();
            self.checkpointing.want();
        }
        self.keeping = Keeping { ended: Some(recorded), ..Keeping::default() };
    }

    /// The checkpoint that a change waited for has failed.
    pub(super) fn refuse_reservations(&mut self) {
        if self.keeping.is_held() {
            self.keeping = Keeping { ended: Some(false), ..Keeping::default() };
        }
    }
}
