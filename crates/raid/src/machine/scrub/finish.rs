//! The end of a scrub, when all repairs are complete.

use super::super::Volume;
use super::Scrub;
use crate::bug::SeededBug;
use crate::event::Event;
use crate::shape::Stream;
use crate::tables::SegmentIndex;

impl Volume {
    /// All segments are read: the scrub ends once everything that it has found is repaired or
    /// recorded.
    pub(super) fn finish_scrub(&mut self) {
        self.count_repaired_by_resets();
        let Some(scrub) = &self.scrub else { return };
        let is_done = scrub.repairing.is_empty()
            && self.losses.is_idle()
            && !scrub.damaged.iter().any(|(&sequence, &index)| self.will_be_emptied(index, sequence));
        if !is_done && !self.is_collection_stopped() {
            // A segment that collection empties for space, at the pace of hosts that may be idle,
            // comes before damaged ones.
            let was_paced = self.collector.is_paced();
            self.collector.expedite();
            let does_wait = !scrub.repairing.is_empty() || !self.losses.is_idle();
            if does_wait && !self.collector.is_fetching() {
                // Nothing else will fill the stripe: collection pads its own last one.
                self.stripes.pad(&self.spec, Stream::Relocation);
            }
            if was_paced {
                // No other event may come that lets it continue.
                self.pump_collector();
            }
            return;
        }
        if !self.are_zones_scrubbed() {
            return;
        }
        let Some(scrub) = &self.scrub else { return };
        if !scrub.has_superblocks {
            if !self.spec.has(SeededBug::UnscrubbedSuperblocks) {
                self.members.renew_superblocks();
            }
            if let Some(scrub) = &mut self.scrub {
                scrub.has_superblocks = true;
            }
            self.pump_superblocks();
        }
        if !self.members.is_epoch_durable() {
            return;
        }
        let Some(Scrub { blocks, before, lost_before, .. }) = self.scrub.take() else { return };
        let found = self.damage();
        self.events.push_back(Event::Scrubbed {
            blocks,
            repaired: found.repaired - before.repaired,
            unreadable: found.damaged + found.unreadable,
            lost: found.lost - before.lost,
            known_lost: lost_before.min(self.lost_blocks()),
        });
    }

    fn has_segment(&self, index: SegmentIndex, sequence: u64) -> bool {
        self.segments.get(index).is_some_and(|segment| segment.sequence == sequence)
    }

    /// Whether a damaged segment will be reset. One with blocks that missing members may hold
    /// stays.
    fn will_be_emptied(&self, index: SegmentIndex, sequence: u64) -> bool {
        self.has_segment(index, sequence) && !self.segments[index].has_lost
    }
}
