//! The invariants of a running drive, recomputed from scratch.

use zonda_zoned::ZoneIndex;

use crate::format::Generation;
use crate::format::entry::RecordedState;

use super::Image;
use super::part::{Stage, Work};

impl Image {
    /// Checks all invariants. Takes time in proportion to zones and commands.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        self.table.check_invariants();
        self.operations.check_invariants(&self.parts);
        let mut in_zones = 0;
        for (zone, run) in (0..).map(ZoneIndex).zip(&self.zones) {
            in_zones += run.parts.len();
            let parts = || run.parts.iter().map(|&key| &self.parts[key]);
            assert!(parts().all(|part| part.zone == zone && !part.released), "parts of zone {zone}");
            assert_eq!(run.exclusive as usize, parts().filter(|part| part.is_exclusive()).count(), "zone {zone}");
            let overwrites = parts().filter(|part| matches!(part.work, Work::Overwrite { .. } | Work::Zero { .. }));
            assert_eq!(run.overwrites as usize, overwrites.count(), "zone {zone}");
            let order = run.order.iter().map(|&key| &self.parts[key]).filter(|part| !part.doomed);
            let order: Vec<(Generation, u64)> = order.map(|part| (part.generation, part.first)).collect();
            let in_order = |pair: &[(Generation, u64)]| pair[0].0 != pair[1].0 || pair[0].1 < pair[1].1;
            assert!(order.windows(2).all(in_order), "writes of zone {zone}, generation and first block: {order:?}");
            assert!(run.failed.is_none() || !run.order.is_empty(), "zone {zone} failed without a write");
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
        let unreleased = self.parts.iter().filter(|(_, part)| !part.released).count();
        assert_eq!(in_zones, unreleased, "every part is with its zone");
        let held = self.parts.iter().filter(|(_, part)| part.stage == Stage::Held).count();
        assert_eq!(held, self.checkpointing.holds(), "parts held for a checkpoint");
        for (key, part) in self.parts.iter() {
            let blockers = self.parts.iter().map(|(_, other)| other.waiters.iter().filter(|&&w| w == key).count());
            assert_eq!(part.blockers as usize, blockers.sum::<usize>(), "part {key:?} waits");
        }
        self.commands.check_invariants(self.parts.iter().filter_map(|(_, part)| part.command));
    }
}
