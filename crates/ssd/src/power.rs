//! Power loss: acknowledged commands persist, each command in flight may or may not, everything
//! else is lost.
//!
//! The write buffer of the modelled drives survives a power loss, as in drives for data centres. A
//! write that was not acknowledged may be lost, block by block, but a zone has no holes: its write
//! pointer ends up somewhere between the acknowledged and the submitted blocks.

use std::collections::BTreeSet;

use zonda_zoned::{Blocks, PayloadKind, Prng, ZoneIndex, ZoneState};

use crate::bug::SeededBug;
use crate::media::Media;
use crate::pending::{Kind, PendingCommand, Undo};
use crate::ssd::Ssd;
use crate::store::BlockContents;
use crate::zone_run::ZoneRun;

impl Ssd {
    /// Cuts the power. The result of each command in flight is chosen by `prng`, within the
    /// guarantees of the drive.
    #[must_use]
    pub fn power_loss(mut self, prng: &mut Prng) -> Media {
        // First, so that a zone that is open again after an undo is not closed for others.
        self.zones.power_cycle();
        self.decide_management(prng);
        self.decide_overwrites(prng);
        self.decide_writes(prng);
        self.misbehave(prng);
        self.complete_runs();
        Media {
            zones: self.zones,
            zone_map: self.zone_map,
            allocator: self.allocator,
            conventional: self.conventional,
            store: self.store,
            counters: self.counters,
            bug: self.bug,
        }
    }

    /// Management commands in flight are undone or kept, zone by zone, the latest first. One whose
    /// zone has been changed since is kept.
    fn decide_management(&mut self, prng: &mut Prng) {
        let undos: Vec<Box<Undo>> = {
            let mut commands: Vec<_> =
                self.commands.values_mut().filter(|command| command.undo.is_some()).map(|c| (c.id, c)).collect();
            commands.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
            commands
                .into_iter()
                .filter(|(_, command)| command.undo.as_ref().is_some_and(|undo| !undo.zones.is_empty()))
                .filter_map(|(_, command)| command.undo.take())
                .collect()
        };
        for undo in undos {
            for entry in undo.zones {
                let has_changed = self.zone_map.changes(entry.zone) != entry.changes;
                if has_changed || prng.chance(1, 2) || !self.zones.restore(entry.zone, &entry.before) {
                    continue;
                }
                if self.zones.zone(entry.zone).state.is_open() {
                    self.zones.power_cycle();
                }
                if let Some(contents) = entry.contents {
                    self.store.put_back(entry.zone, Some(contents));
                }
                if self.zone_map.generation(entry.zone) == entry.generation {
                    continue;
                }
                // An undone reset: its zone holds the data written before, acknowledged or not.
                self.zone_map.end_generations(entry.zone);
                self.zone_map.remove(entry.zone);
            }
        }
    }

    /// Overwritten blocks of writes in flight are restored to their earlier contents, or keep the
    /// new ones.
    fn decide_overwrites(&mut self, prng: &mut Prng) {
        if self.store.kind() == PayloadKind::None {
            return;
        }
        let tears = self.bug.has(SeededBug::TornBlock);
        // Data written before a reset are lost, regardless of the writes to the zone in flight.
        let map = &self.zone_map;
        let is_current = |command: &PendingCommand| map.generation(command.zone) == command.generation;
        let undos: Vec<Box<Undo>> = self
            .commands
            .values_mut()
            .filter(|command| command.kind != Kind::Short && is_current(command))
            .filter_map(|command| command.undo.take())
            .collect();
        for block in undos.iter().flat_map(|undo| &undo.blocks) {
            if prng.chance(1, 2) {
                self.store.restore(block.zone, block.block, &block.before);
            } else if tears && let BlockContents::Fingerprint(print) = block.before {
                self.store.restore(block.zone, block.block, &BlockContents::Fingerprint(print ^ 0xdead_beef));
            }
        }
    }

    /// The write pointer of each zone with writes in flight ends up somewhere between the
    /// acknowledged and the submitted blocks.
    fn decide_writes(&mut self, prng: &mut Prng) {
        let forgets = self.bug.has(SeededBug::EarlyAcknowledgement);
        let mut zones: BTreeSet<ZoneIndex> = BTreeSet::new();
        for (_, command) in self.commands.iter() {
            let is_current = self.zone_map.generation(command.zone) == command.generation;
            if command.kind.is_write() && is_current && !command.flags.is_conventional && !command.flags.is_zrwa {
                zones.insert(command.zone);
            }
        }
        if forgets {
            zones = self.zone_map.runs().map(|(zone, _)| zone).collect();
        }
        for zone in zones {
            let view = self.zones.zone(zone);
            let Some(run) = self.zone_map.get(zone) else { continue };
            let is_finished =
                view.state == ZoneState::Full && view.write_pointer_blocks < self.geometry.zone_capacity_blocks;
            let is_sequential = matches!(
                view.state,
                ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed | ZoneState::Full
            );
            if is_finished || !is_sequential || view.attributes.zrwa_valid {
                continue; // A finish that is kept keeps the writes before it.
            }
            let (from, to) = (run.acknowledged_blocks, view.write_pointer_blocks.0);
            let pointer = from + prng.below(to - from + 1);
            if pointer < to && self.zones.truncate(zone, Blocks(pointer)) {
                for block in pointer..to {
                    self.store.zero(zone, block);
                }
            }
        }
    }

    /// Seeded bugs that show only after power-on.
    fn misbehave(&mut self, prng: &mut Prng) {
        if !self.bug.has(SeededBug::LostWritePointer) {
            return;
        }
        let written: Vec<ZoneIndex> = (0..self.geometry.zone_count)
            .map(ZoneIndex)
            .filter(|zone| {
                let view = self.zones.zone(*zone);
                view.state.is_active() && !view.attributes.zrwa_valid && view.write_pointer_blocks.0 > 0
            })
            .collect();
        if let Some(zone) = prng.pick(&written) {
            let pointer = self.zones.zone(*zone).write_pointer_blocks.0 - 1;
            let _ = self.zones.truncate(*zone, Blocks(pointer));
        }
    }

    /// Data in the buffer are programmed with the power reserve of the drive; all zones are
    /// consistent.
    fn complete_runs(&mut self) {
        if let Some(conventional) = &mut self.conventional {
            conventional.complete_in_flight();
        }
        let block_bytes = self.timing.block_bytes;
        for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
            let written = self.zones.readable_blocks(zone).0 * block_bytes;
            let is_conventional = zone.0 < self.geometry.conventional_zone_count;
            let run = self.zone_map.remove(zone);
            if is_conventional {
                continue;
            }
            let is_full = self.zones.zone(zone).state == ZoneState::Full;
            if written == 0 {
                if is_full {
                    self.allocator.release_untouched(zone, 0);
                }
                continue;
            }
            let stripe = run.map_or_else(|| self.allocator.allocate(zone), |run| run.stripe);
            self.allocator.prefill(zone, written);
            if is_full {
                self.allocator.release_untouched(zone, written);
            }
            let mut run = ZoneRun::programmed(stripe, written, block_bytes);
            run.committed_blocks = self.zones.zone(zone).write_pointer_blocks.0.min(run.committed_blocks);
            run.arrived_bytes = run.committed_blocks * block_bytes;
            self.zone_map.insert(zone, run);
        }
    }
}
