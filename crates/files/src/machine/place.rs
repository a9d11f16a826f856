//! Placement: a file writes to the zone whose data are expected to be deleted with the file's.

use std::collections::VecDeque;

use zonda_zoned::ZoneIndex;

use crate::{FileError, FileId, FileStore, Lifetime};

use super::files::Writer;
use super::zones::{Holder, State, Zone};

/// Owns the queue of holders that wait for a zone, and the order in which zones were used.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The longest waiting first.
    waiting: VecDeque<Holder>,
    /// Counts uses of zones, to find the least recently used one.
    uses: u64,
    /// Assignments of zones that did not match, since the mount.
    relaxed_matches: u64,
}

impl Placement {
    /// A holder waits for a zone, behind all others.
    pub(super) fn wait(&mut self, holder: Holder) {
        self.waiting.push_back(holder);
    }

    /// A holder waits for a zone, before all others.
    pub(super) fn wait_first(&mut self, holder: Holder) {
        self.waiting.push_front(holder);
    }

    /// A holder does not wait any more.
    pub(super) fn stop_waiting(&mut self, holder: Holder) {
        self.waiting.retain(|other| *other != holder);
    }

    /// The number of the next use of a zone; greater is later.
    pub(super) fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Assignments of zones that did not match, since the mount.
    pub(super) fn relaxed_matches(&self) -> u64 {
        self.relaxed_matches
    }

    /// The holders that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Holder> {
        self.waiting.iter().copied()
    }
}

/// How to serve a holder that needs a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Use a partly written zone.
    Take { zone: ZoneIndex, is_relaxed: bool },
    /// Open an empty zone.
    Open(ZoneIndex),
    /// Finish this zone to free an active resource.
    Finish(ZoneIndex),
    /// Wait: an active resource will be free soon.
    Soon,
    /// Every zone with free blocks has another holder.
    Held,
    /// Wait: an operation in progress will free space.
    Later,
    /// No space, and none expected.
    None,
}

/// How well a zone matches a file; smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It lives longer, by this much; or neither has a lifetime.
    Distance(u8),
    /// They live equally long.
    Equal,
    None,
}

impl Fit {
    fn of(file: Lifetime, zone: Lifetime) -> Fit {
        let is_set = |lifetime| lifetime > Lifetime::None;
        match (is_set(file), is_set(zone)) {
            (false, false) => Fit::Distance(0),
            (true, true) if zone > file => Fit::Distance(zone as u8 - file as u8),
            (true, true) if zone == file => Fit::Equal,
            _ => Fit::None,
        }
    }
}

impl FileStore {
    /// Assigns zones to waiting holders, in their order, as far as possible. Returns whether a wait
    /// has ended.
    pub(super) fn place_waiting(&mut self) -> bool {
        if self.placement.waiting.is_empty() || !self.zones.take_change() {
            return false;
        }
        let mut slots_coming = self.slots_coming();
        let mut has_ended = false;
        let mut held_up = None;
        let mut index = 0;
        while let Some(&holder) = self.placement.waiting.get(index) {
            match self.choose(holder, slots_coming) {
                Choice::Take { zone, is_relaxed } => {
                    self.placement.relaxed_matches += u64::from(is_relaxed);
                    self.assign_zone(index, zone);
                    has_ended = true;
                    continue;
                }
                Choice::Open(zone) => {
                    self.open_zone(zone, self.lifetime_of(holder));
                    self.assign_zone(index, zone);
                    has_ended = true;
                    continue;
                }
                Choice::Finish(zone) => self.finish(zone),
                Choice::Soon => slots_coming -= 1,
                Choice::Held => held_up = held_up.or(Some(index)),
                Choice::Later => {}
                Choice::None => {
                    self.fail_waiter(holder);
                    has_ended = true;
                    continue;
                }
            }
            index += 1;
        }
        if let Some(index) = held_up
            && !has_ended
            && self.is_quiescent()
        {
            has_ended = self.reassign_idle_zone(index);
        }
        // A holder with a new zone may not be able to write: then no completion would trigger
        // another check of the others.
        if has_ended {
            self.zones.request_assignment();
        }
        has_ended
    }

    /// The rules, the first that applies deciding:
    ///
    /// 1. a partly written zone without a holder that lives longer, by as little as possible;
    /// 2. an empty zone, if an active resource is free;
    /// 3. at the limit of active zones, finish the fullest zone without a holder, if it is full
    ///    enough;
    /// 4. a zone without a holder with the same lifetime, or else the nearest one.
    fn choose(&self, holder: Holder, slots_coming: u32) -> Choice {
        let lifetime = self.lifetime_of(holder);
        let may_hold = self.may_hold(lifetime);
        let free = || {
            self.zones
                .iter()
                .filter(|(zone, entry)| may_hold && entry.holder.is_none() && self.zones.free_blocks(*zone) > 0)
        };
        let fit = |entry: &Zone| Fit::of(lifetime, entry.lifetime);
        let best = free().min_by_key(|(zone, entry)| (fit(entry), self.zones.free_blocks(*zone)));
        if let Some((zone, entry)) = best
            && matches!(fit(entry), Fit::Distance(_))
        {
            return Choice::Take { zone, is_relaxed: false };
        }
        if let Some(empty) = self.empty_for(holder)
            && may_hold
        {
            if self.may_open(lifetime) {
                return Choice::Open(empty);
            }
            if slots_coming > 0 {
                return Choice::Soon;
            }
            let fullest = free().filter(|(_, entry)| entry.writes == 0).max_by_key(|(_, entry)| entry.written);
            let threshold = u64::from(self.config.finish_threshold_percent);
            if let Some((zone, entry)) = fullest
                && u64::from(entry.written) * 100 >= threshold * u64::from(self.shape.capacity_blocks)
            {
                return Choice::Finish(zone);
            }
        }
        let nearest = free().min_by_key(|(zone, entry)| {
            (fit(entry), (entry.lifetime as u8).abs_diff(lifetime as u8), self.zones.free_blocks(*zone))
        });
        if let Some((zone, _)) = nearest {
            return Choice::Take { zone, is_relaxed: true };
        }
        if self.zones.iter().any(|(zone, _)| self.zones.free_blocks(zone) > 0) {
            return Choice::Held;
        }
        if self.expects_space() || (holder != Holder::Migration && self.may_migrate()) {
            return Choice::Later;
        }
        Choice::None
    }

    /// Whether holders of this lifetime may hold one more zone: at small limits one is reserved for
    /// short-lived files.
    fn may_hold(&self, lifetime: Lifetime) -> bool {
        let Some(limit) = self.shape.active_max.filter(|_| self.shape.has_reserve && lifetime != Lifetime::Short)
        else {
            return true;
        };
        let held = self
            .zones
            .iter()
            .filter(|(_, entry)| entry.holder.is_some_and(|holder| self.lifetime_of(holder) != Lifetime::Short));
        (held.count() as u32) + 1 < limit
    }

    /// Whether a holder of this lifetime may open one more zone.
    fn may_open(&self, lifetime: Lifetime) -> bool {
        let Some(limit) = self.shape.active_max else { return true };
        let is_short =
            |(_, entry): (ZoneIndex, &Zone)| entry.state == State::Active && entry.lifetime == Lifetime::Short;
        let keeps_reserve = self.shape.has_reserve && lifetime != Lifetime::Short && !self.zones.iter().any(is_short);
        self.zones.active_count() + u32::from(keeps_reserve) < limit
    }

    /// The next empty zone. The last one is reserved for migration, if it is enabled.
    fn empty_for(&self, holder: Holder) -> Option<ZoneIndex> {
        let is_last = self.zones.empty_count() == 1;
        let is_reserved = is_last && self.config.migration.is_some() && holder != Holder::Migration;
        self.zones.first_empty().filter(|_| !is_reserved)
    }

    /// Zones that are about to free their active resource.
    fn slots_coming(&self) -> u32 {
        self.zones.iter().filter(|(_, entry)| self.zones.is_freeing_resource(entry)).count() as u32
    }

    /// Whether an operation in progress will free space, or may.
    fn expects_space(&self) -> bool {
        let coming = |entry: &Zone| match entry.state {
            State::Finishing | State::Resetting { .. } => true,
            State::Active | State::Full => entry.is_dead() || entry.is_doubtful,
            State::Empty | State::Retired { .. } => false,
        };
        self.log.has_releases() || self.zones.iter().any(|(_, entry)| coming(entry))
    }

    /// Whether no operation is in progress that can end a wait.
    fn is_quiescent(&self) -> bool {
        !self.commands.has_data_writes() && !self.migrator.is_busy() && !self.expects_space()
    }

    /// While no write is in flight, no file releases its zone. So reassigns the zone of the least
    /// recently written file, which has no data to write now, to a waiting holder.
    fn reassign_idle_zone(&mut self, index: usize) -> bool {
        let used_at = |id: &FileId| self.files[*id].writer().map_or(0, Writer::used_at);
        let holders =
            self.zones.iter().filter(|(zone, _)| self.zones.free_blocks(*zone) > 0).filter_map(|(zone, entry)| {
                let Some(Holder::File(id)) = entry.holder else { return None };
                Some((used_at(&id), zone, id))
            });
        let Some((_, zone, id)) = holders.min() else { return false };
        if let Some(writer) = self.files.writer_mut(id) {
            writer.take_zone();
        }
        self.zones.take_from_holder(zone);
        self.placement.relaxed_matches += 1;
        self.assign_zone(index, zone);
        true
    }

    /// Assigns a zone to a waiting holder.
    fn assign_zone(&mut self, index: usize, zone: ZoneIndex) {
        let holder = self.placement.waiting.remove(index).expect("a holder waits there");
        self.zones.hold(zone, holder);
        match holder {
            Holder::File(id) => {
                self.files.writer_mut(id).expect("a file that waits for a zone is open").hold(zone);
                self.use_zone(id);
                self.pump_file(id);
            }
            Holder::Migration => self.on_migration_zone(zone),
        }
    }

    /// Ends the wait of a holder without a zone.
    fn fail_waiter(&mut self, holder: Holder) {
        match holder {
            Holder::File(id) => self.fail_file(id, &FileError::NoSpace),
            Holder::Migration => {
                self.placement.stop_waiting(Holder::Migration);
                self.abort_migration();
            }
        }
    }

    /// Removes a file from the waiting holders.
    pub(super) fn stop_waiting(&mut self, id: FileId) {
        self.placement.stop_waiting(Holder::File(id));
        if let Some(writer) = self.files.writer_mut(id) {
            writer.stop_waiting_for_zone();
        }
    }

    fn lifetime_of(&self, holder: Holder) -> Lifetime {
        match holder {
            Holder::File(id) => self.files[id].meta().lifetime,
            Holder::Migration => self.migrator.lifetime(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_lived_zone_fits_and_the_nearest_fits_best() {
        use Lifetime::{Extreme, Long, Medium, Short};
        assert!(Fit::of(Short, Medium) < Fit::of(Short, Long));
        assert!(Fit::of(Medium, Extreme) < Fit::of(Medium, Medium));
        assert_eq!(Fit::of(Long, Long), Fit::Equal);
        assert_eq!(Fit::of(Long, Medium), Fit::None);
        assert_eq!(Fit::of(Extreme, Short), Fit::None);
    }

    #[test]
    fn a_file_without_a_lifetime_fits_only_zones_without_one() {
        use Lifetime::{None, NotSet, Short};
        assert_eq!(Fit::of(NotSet, None), Fit::Distance(0));
        assert_eq!(Fit::of(None, Short), Fit::None);
        assert_eq!(Fit::of(Short, NotSet), Fit::None);
    }
}
