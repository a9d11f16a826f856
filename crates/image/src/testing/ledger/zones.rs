//! Which states of a zone a crash may leave.

use zonda_zoned::reference::ZoneImage;
use zonda_zoned::{Blocks, ZoneIndex, ZoneState};

use crate::rebuild::implicit_commit;

use super::{Crash, Ledger, Promise, Violation, ZoneChange, ZoneHistory, restarted};

impl Ledger {
    /// The successful changes of a zone: management and writes at a write pointer, behind which the
    /// pointer is.
    ///
    /// With `doubts`, management that failed may have happened: its record may be on the medium all
    /// the same.
    fn effective(&self, zone: u32, doubts: bool) -> ZoneHistory {
        let history = &self.zones[zone as usize];
        let mut effective = ZoneHistory {
            base: history.base.clone(),
            is_pointer_in_doubt: history.is_pointer_in_doubt,
            doubts: Vec::new(),
            changes: Vec::new(),
        };
        let mut stays = None;
        for change in &history.changes {
            let before = effective.changes.last().map_or(&effective.base, |change| &change.image);
            let mut change = change.clone();
            let in_doubt = doubts && change.write_end.is_none();
            if self.events[change.event].failed && !in_doubt && !(change.write_end.is_some() && before.zrwa) {
                if change.write_end.is_some() {
                    stays.get_or_insert(before.write_pointer_blocks);
                }
                continue;
            }
            match stays {
                _ if change.image.state == ZoneState::Empty => stays = None,
                Some(pointer) => change.image.write_pointer_blocks = pointer,
                None => {}
            }
            effective.changes.push(change);
        }
        effective
    }

    /// Checks the state and the write pointer of a zone.
    ///
    /// # Errors
    /// If no allowed sequence of events leads to this state.
    pub fn judge_zone(
        &self,
        index: ZoneIndex,
        found: &ZoneImage,
        crash: Crash,
        finished: bool,
    ) -> Result<(), Violation> {
        if index.0 < self.geometry.conventional_zone_count {
            return Ok(());
        }
        let judged = self.judge_history(index, &self.effective(index.0, false), found, crash, finished);
        let history = &self.zones[index.as_usize()];
        let has_gone_back = found.zrwa && found.write_pointer_blocks < history.base.write_pointer_blocks;
        // Writes that hold have committed what is before their ZRWA; management commits everything.
        let mut held = history.changes.iter().filter(|change| self.holds(change.event, index.0, crash));
        let is_allowed = |change: &ZoneChange| {
            let end = change.write_end.filter(|_| change.image.zrwa);
            end.is_some_and(|end| found.write_pointer_blocks.0 >= implicit_commit(&self.geometry, end))
        };
        if history.is_pointer_in_doubt && has_gone_back && held.clone().all(is_allowed) {
            return Ok(());
        }
        if crash != Crash::None && held.next().is_none() && history.doubts.contains(&restarted(found)) {
            return Ok(());
        }
        let is_in_doubt = crash == Crash::PowerLoss || (crash == Crash::Kill && self.is_management_in_doubt);
        if judged.is_err() && is_in_doubt {
            return self.judge_history(index, &self.effective(index.0, true), found, crash, finished).or(judged);
        }
        judged
    }

    fn judge_history(
        &self,
        index: ZoneIndex,
        history: &ZoneHistory,
        found: &ZoneImage,
        crash: Crash,
        finished: bool,
    ) -> Result<(), Violation> {
        let zone = index.0;
        let found = restarted(found);
        let last = history.changes.iter().rposition(|change| self.holds(change.event, zone, crash));
        let first_image = last.map_or(&history.base, |last| &history.changes[last].image);
        let mut candidates = vec![first_image];
        candidates.extend(history.changes[last.map_or(0, |last| last + 1)..].iter().map(|change| &change.image));
        let capacity = self.geometry.zone_capacity_blocks;
        let matches = |from: &ZoneImage, to: &ZoneImage, low: Blocks| {
            let pointer = found.write_pointer_blocks;
            if !(low..=to.write_pointer_blocks.max(low)).contains(&pointer) {
                return false;
            }
            let mut between = ZoneImage { write_pointer_blocks: pointer, ..from.clone() };
            between.state = if pointer == capacity { ZoneState::Full } else { ZoneState::Closed };
            between.zrwa &= pointer < capacity;
            if restarted(&between) == found {
                return true;
            }
            // Perhaps no active resource was left for it.
            (between.state, between.zrwa) = (ZoneState::Full, false);
            finished && between == found
        };
        for (i, image) in candidates.iter().enumerate() {
            if restarted(image) == found {
                return Ok(());
            }
            // Unflushed blocks of a zone that then became read only may be lost.
            let begins = |image: &&ZoneImage| image.state == ZoneState::Empty;
            let life = candidates[..i].iter().rposition(begins).unwrap_or(0);
            let low = candidates[life].write_pointer_blocks;
            let mut degraded = restarted(image);
            if image.state == ZoneState::ReadOnly
                && (low..=image.write_pointer_blocks).contains(&found.write_pointer_blocks)
            {
                degraded.write_pointer_blocks = found.write_pointer_blocks;
            }
            if degraded == found {
                return Ok(());
            }
            let active = image.state.is_active() || image.state == ZoneState::Empty;
            let next = candidates.get(i + 1).copied().unwrap_or(image);
            // Behind it may be a reset that has not happened.
            let same_life = next.write_pointer_blocks >= image.write_pointer_blocks;
            let to = if same_life { next } else { image };
            if active && matches(image, to, image.write_pointer_blocks) {
                return Ok(());
            }
        }
        // Writes to a ZRWA are carried out in any order: from the last durable management, the
        // pointer is anywhere that the durable writes allow.
        let managed = history
            .changes
            .iter()
            .rposition(|change| self.holds(change.event, zone, crash) && self.events[change.event].management);
        let from = managed.map_or(&history.base, |managed| &history.changes[managed].image);
        let since = &history.changes[managed.map_or(0, |managed| managed + 1)..];
        if from.zrwa {
            let mut low = from.write_pointer_blocks;
            for change in since {
                if let Some(end) = change.write_end.filter(|_| self.holds(change.event, zone, crash)) {
                    low = low.max(Blocks(implicit_commit(&self.geometry, end)));
                }
            }
            let mut to = from;
            for change in since {
                if change.image.zrwa || change.image.state == ZoneState::Full {
                    to = &change.image;
                    if matches(from, to, low) {
                        return Ok(());
                    }
                }
                // Degraded with writes still in flight.
                let mut degraded = change.image.clone();
                degraded.write_pointer_blocks = found.write_pointer_blocks;
                if change.image.state == ZoneState::ReadOnly && degraded == found {
                    return Ok(());
                }
            }
            if matches(from, to, low) {
                return Ok(());
            }
        }
        let shown: Vec<_> = history
            .changes
            .iter()
            .map(|change| (change.event, self.holds(change.event, zone, crash), &change.image))
            .collect();
        let base = &history.base;
        let message =
            format!("{crash:?}: zone {zone} is {found:?}, may be finished: {finished}; {base:?}, then {shown:?}");
        Err(Violation { promise: Promise::Zone, zone: Some(index), message })
    }
}
