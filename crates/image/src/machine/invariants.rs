//! The invariants of a running drive, recomputed from scratch.

use zonda_zoned::ZoneIndex;

use crate::format::entry::RecordedState;

use super::Image;
use super::parts::Stage;

impl Image {
    /// Checks all invariants. Takes time in proportion to zones and commands.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        self.table.check_invariants();
        self.operations.check_invariants(&self.parts);
        self.parts.check_invariants();
        for (zone, run) in (0..).map(ZoneIndex).zip(&self.zones) {
            assert!(
                run.failed.is_none() || self.parts.first_write(zone).is_some(),
                "zone {zone} failed without a write"
            );
            let entry = &self.ledger.entries[zone.as_usize()];
            if !self.layout.is_conventional(zone) && !entry.had_zrwa && entry.state != RecordedState::Offline {
                assert!(
                    entry.durable <= run.on_file,
                    "zone {zone}: synced to {}, on file {}",
                    entry.durable,
                    run.on_file
                );
            }
        }
        let held = self.parts.iter().filter(|(_, part)| part.stage == Stage::Held).count();
        assert_eq!(held, self.checkpointing.holds(), "parts held for a checkpoint");
        self.journal.check_invariants(self.parts.iter().map(|(_, part)| part.reserved_bytes).sum());
        self.intents.check_invariants();
        self.flush.check_invariants();
        self.commands.check_invariants(self.parts.iter().filter_map(|(_, part)| part.command));
    }
}
