//! The superblock log of one member: two zones at its start.
//!
//! Where enough zones may be active, each superblock is written to both zones, one after the other.
//! A full zone is reset and rewritten only while the other one holds the newest superblock. Members
//! with few active zones, and those with one failed metadata zone, have two copies of each
//! superblock in one zone instead, written by one command; the former fill one zone after the
//! other. Either way one damaged block loses nothing.
//! Either way one damaged block costs nothing.

use zonda_zoned::Geometry;

use crate::limits::METADATA_ZONES;

const _: () = assert!(METADATA_ZONES == 2, "a superblock goes to two zones");

/// Owns the position of a member's next superblock.
#[derive(Debug)]
pub(in crate::machine) struct MetadataLog {
    zones: [LogZone; 2],
    /// The zone that holds the newest superblock.
    current: u32,
    /// Whether both zones may be active at once.
    is_mirrored: bool,
    /// Whether the second zone holds an active resource, too.
    is_mirror_open: bool,
    /// Whether neither zone holds an active resource, though one is counted: none was written since
    /// the device was found.
    is_idle: bool,
    round: Round,
}

/// One of the two zones.
#[derive(Clone, Copy, Debug, Default)]
struct LogZone {
    /// The next block to be written.
    next: u32,
    /// It is not written any more until the next mount.
    has_failed: bool,
    /// It was offline or read only when the device was found.
    is_dead: bool,
    /// It is retried after a failure, and may hold an active resource.
    may_be_active: bool,
}

/// A superblock that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Zones that it is still to be written to, as bits.
    left: u32,
    /// The zone of the command in flight.
    zone: u32,
    /// Whether one zone has it.
    is_written: bool,
    /// The command in flight finishes the zone.
    is_finishing: bool,
}

/// The next step of writing a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum LogStep {
    /// The zone is full, and the other one holds the newest superblock.
    Reset { zone: u32 },
    /// The zone may be active, and only one of the two may be.
    Finish { zone: u32 },
    /// This many copies of the superblock are written in a row.
    Write { zone: u32, offset: u32, copies: u32 },
    /// At least one zone has it.
    Done,
    /// No zone can take it.
    Failed,
}

impl MetadataLog {
    /// The log of a device of which both zones are empty.
    pub(in crate::machine) fn empty(geometry: &Geometry) -> MetadataLog {
        MetadataLog::found(geometry, [(0, false); 2], 0, [false; 2])
    }

    /// The log that a mount found: for each zone the number of written blocks, and whether it is
    /// offline or read only; the zone of the newest superblock; which zones are active.
    pub(in crate::machine) fn found(
        geometry: &Geometry,
        zones: [(u32, bool); 2],
        current: u32,
        active: [bool; 2],
    ) -> MetadataLog {
        let is_mirrored = is_mirrored(geometry);
        MetadataLog {
            zones: zones.map(|(next, is_dead)| LogZone { next, has_failed: is_dead, is_dead, may_be_active: false }),
            current,
            is_mirrored,
            is_mirror_open: is_mirrored && active == [true; 2],
            is_idle: active == [false; 2],
            round: Round::default(),
        }
    }

    /// Zones that hold an active resource, or may hold one.
    pub(in crate::machine) fn active_zones(&self) -> u32 {
        1 + u32::from(self.is_mirror_open)
    }

    /// Whether none of its zones is active on the device, though one is counted: it may be full, or
    /// its last writes were lost.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Whether superblocks are to be written to a second zone as soon as another zone may be
    /// active.
    pub(in crate::machine) fn lacks_mirror(&self) -> bool {
        self.is_mirrored && !self.is_mirror_open && !self.zones.iter().any(|zone| zone.has_failed)
    }

    /// Begins to write a superblock. Returns whether the second zone becomes active for that, if it
    /// `may`.
    pub(super) fn begin(&mut self, geometry: &Geometry, may_open: bool) -> bool {
        let opens = self.lacks_mirror() && may_open;
        self.is_mirror_open |= opens;
        let capacity = geometry.zone_capacity_blocks.0;
        let left = self.zone(other(self.current));
        if u64::from(self.zone(self.current).next) >= capacity && left.has_failed && !left.is_dead {
            // The failure may have been transient, and long ago: only if it fails again no zone is
            // left.
            self.forgive();
        }
        let left = if self.is_mirror_open {
            (0..METADATA_ZONES).filter(|&zone| !self.zone(zone).has_failed).fold(0, |left, zone| left | 1 << zone)
        } else {
            let is_full = u64::from(self.zone(self.current).next) >= capacity;
            let zone = if is_full || self.zone(self.current).has_failed { other(self.current) } else { self.current };
            if self.zone(zone).has_failed { 0 } else { 1 << zone }
        };
        self.round = Round { left, zone: self.current, is_written: false, is_finishing: false };
        opens
    }

    /// The next step for the superblock.
    pub(super) fn next(&mut self, geometry: &Geometry) -> LogStep {
        let capacity = geometry.zone_capacity_blocks.0;
        let has_space = |log: &MetadataLog, zone: u32| u64::from(log.zone(zone).next) < capacity;
        let left = (0..METADATA_ZONES).filter(|&zone| self.round.left >> zone & 1 == 1);
        // A zone with the newest superblock is not reset before another zone holds one as new.
        let best = left
            .filter(|&zone| !self.zone(zone).has_failed && (has_space(self, zone) || zone != self.current))
            .min_by_key(|&zone| (!has_space(self, zone), zone == self.current));
        let Some(zone) = best else {
            return if self.round.is_written { LogStep::Done } else { LogStep::Failed };
        };
        let before = self.zone(other(zone));
        if !self.is_mirror_open && before.may_be_active && !before.has_failed {
            (self.round.zone, self.round.is_finishing) = (other(zone), true);
            return LogStep::Finish { zone: other(zone) };
        }
        self.round.zone = zone;
        if !has_space(self, zone) || (!self.is_mirror_open && zone != self.current && self.zone(zone).next > 0) {
            return LogStep::Reset { zone };
        }
        let offset = self.zone(zone).next;
        let space = (capacity - u64::from(offset)).min(u64::from(u32::MAX)) as u32;
        // Fills the zone to its end, so that it is not active any more when another one is.
        let copies = match space {
            _ if self.is_mirror_open && !self.zone(other(zone)).has_failed => 1,
            3 => 3,
            _ => space.min(2),
        };
        let copies = u64::from(copies).min(geometry.max_transfer_blocks.0) as u32;
        self.zone_mut(zone).next += copies;
        LogStep::Write { zone, offset, copies }
    }

    /// The zone of the command in flight was reset, or finished.
    pub(super) fn was_managed(&mut self) {
        let is_finished = std::mem::take(&mut self.round.is_finishing);
        let zone = self.zone_mut(self.round.zone);
        zone.may_be_active = false;
        if !is_finished {
            zone.next = 0;
        }
    }

    /// The zone of the command in flight holds the superblock, durably.
    pub(super) fn was_written(&mut self) {
        self.current = self.round.zone;
        self.is_idle = false;
        self.round.left &= !(1 << self.round.zone);
        self.round.is_written = true;
    }

    /// The command in flight has failed.
    pub(super) fn has_failed(&mut self) {
        self.round.is_finishing = false;
        self.zone_mut(self.round.zone).has_failed = true;
        self.round.left &= !(1 << self.round.zone);
        if self.round.is_written {
            // The other zone has one copy, and now needs two.
            self.round.left |= 1 << other(self.round.zone);
        }
    }

    /// Retries zones that have failed. Their contents are unknown: they count as full, and are
    /// reset.
    pub(super) fn forgive(&mut self) {
        for zone in self.zones.iter_mut().filter(|zone| zone.has_failed) {
            *zone = LogZone { next: u32::MAX, has_failed: false, may_be_active: true, ..*zone };
        }
    }

    fn zone(&self, zone: u32) -> LogZone {
        self.zones[zone as usize]
    }

    fn zone_mut(&mut self, zone: u32) -> &mut LogZone {
        &mut self.zones[zone as usize]
    }
}

fn other(zone: u32) -> u32 {
    METADATA_ZONES - 1 - zone
}

/// Whether a device can have two superblock zones active, besides those that a volume needs.
pub(in crate::machine) fn is_mirrored(geometry: &Geometry) -> bool {
    geometry.max_active_zones.is_none_or(|max| max >= crate::limits::MIRRORED_LOG_ACTIVE_ZONES_MIN)
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Blocks;

    use super::*;

    fn geometry(max_active_zones: Option<u32>, capacity: u64) -> Geometry {
        Geometry {
            max_active_zones,
            max_open_zones: None,
            zone_size_blocks: Blocks(capacity),
            zone_capacity_blocks: Blocks(capacity),
            ..Geometry::tiny()
        }
    }

    /// Writes a superblock, and returns the commands that it took.
    fn write(log: &mut MetadataLog, geometry: &Geometry) -> Vec<LogStep> {
        let mut steps = Vec::new();
        log.begin(geometry, true);
        loop {
            let step = log.next(geometry);
            steps.push(step);
            match step {
                LogStep::Reset { zone } => {
                    assert_ne!(zone, log.current, "the newest superblock is not reset");
                    log.was_managed();
                }
                LogStep::Finish { .. } => log.was_managed(),
                LogStep::Write { .. } => log.was_written(),
                LogStep::Done | LogStep::Failed => return steps,
            }
        }
    }

    #[test]
    fn a_superblock_goes_to_both_zones_and_full_ones_are_reset_one_after_the_other() {
        let geometry = geometry(None, 2);
        let mut log = MetadataLog::empty(&geometry);
        for offset in 0..2 {
            let steps = write(&mut log, &geometry);
            let to = |zone| LogStep::Write { zone, offset, copies: 1 };
            assert!(steps == [to(0), to(1), LogStep::Done] || steps == [to(1), to(0), LogStep::Done], "{steps:?}");
        }
        let steps = write(&mut log, &geometry);
        let (first, second) = (other(log.current), log.current);
        let to = |zone| LogStep::Write { zone, offset: 0, copies: 1 };
        let reset = |zone| LogStep::Reset { zone };
        assert_eq!(steps, [reset(first), to(first), reset(second), to(second), LogStep::Done]);
    }

    #[test]
    fn where_few_zones_may_be_active_a_superblock_is_written_twice_to_one_zone_after_the_other() {
        let geometry = geometry(Some(3), 5);
        let mut log = MetadataLog::empty(&geometry);
        let to = |zone, offset, copies| LogStep::Write { zone, offset, copies };
        assert_eq!(write(&mut log, &geometry), [to(0, 0, 2), LogStep::Done]);
        assert_eq!(write(&mut log, &geometry), [to(0, 2, 3), LogStep::Done]);
        assert_eq!(write(&mut log, &geometry), [to(1, 0, 2), LogStep::Done]);
        write(&mut log, &geometry);
        assert_eq!(write(&mut log, &geometry), [LogStep::Reset { zone: 0 }, to(0, 0, 2), LogStep::Done]);
        assert_eq!(log.active_zones(), 1);
    }

    #[test]
    fn where_few_zones_may_be_active_one_that_failed_is_finished_before_the_other_one_is_written() {
        let geometry = geometry(Some(3), 9);
        let mut log = MetadataLog::empty(&geometry);
        write(&mut log, &geometry);
        log.begin(&geometry, true);
        assert_eq!(log.next(&geometry), LogStep::Write { zone: 0, offset: 2, copies: 2 });
        log.has_failed();
        assert_eq!(log.next(&geometry), LogStep::Failed);
        log.forgive();
        let (finish, to) = (LogStep::Finish { zone: 0 }, |zone, offset| LogStep::Write { zone, offset, copies: 2 });
        assert_eq!(write(&mut log, &geometry), [finish, to(1, 0), LogStep::Done], "zone 0 may be active");
        assert_eq!(write(&mut log, &geometry), [to(1, 2), LogStep::Done]);
    }

    #[test]
    fn a_zone_that_fails_leaves_the_other_one_with_two_copies_until_that_is_full() {
        let geometry = geometry(None, 4);
        let mut log = MetadataLog::empty(&geometry);
        log.begin(&geometry, true);
        assert_eq!(log.next(&geometry), LogStep::Write { zone: 1, offset: 0, copies: 1 });
        log.has_failed();
        assert_eq!(log.next(&geometry), LogStep::Write { zone: 0, offset: 0, copies: 2 });
        log.was_written();
        assert_eq!(log.next(&geometry), LogStep::Done);
        assert_eq!(write(&mut log, &geometry), [LogStep::Write { zone: 0, offset: 2, copies: 2 }, LogStep::Done]);
        log.begin(&geometry, true);
        assert_eq!(log.next(&geometry), LogStep::Reset { zone: 1 }, "it is tried once more");
        log.has_failed();
        assert_eq!(log.next(&geometry), LogStep::Failed, "its only superblock is not reset");
    }

    #[test]
    fn a_zone_that_failed_for_a_moment_is_written_again_once_the_other_one_is_full() {
        let geometry = geometry(None, 4);
        let mut log = MetadataLog::empty(&geometry);
        log.begin(&geometry, true);
        log.next(&geometry);
        log.has_failed();
        let to = |zone, offset, copies| LogStep::Write { zone, offset, copies };
        assert_eq!(log.next(&geometry), to(0, 0, 2));
        log.was_written();
        assert_eq!(write(&mut log, &geometry), [to(0, 2, 2), LogStep::Done]);
        let reset = |zone| LogStep::Reset { zone };
        let steps = [reset(1), to(1, 0, 1), reset(0), to(0, 0, 1), LogStep::Done];
        assert_eq!(write(&mut log, &geometry), steps);
    }
}
