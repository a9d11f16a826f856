//! [`Zones`]: what each physical zone is used for, and which are reserved ahead.
//!
//! Zones are reserved one after the other by writing their first block, which binds them to a die,
//! and a stripe group takes them in that order: so a drive that goes from die to die gives a group
//! no die twice (eZNS, sections 4.2 and 4.3). A reserved zone is active on the drive.

use std::collections::VecDeque;

use crate::limits::RESERVED_MAX;

/// What a physical zone is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneUse {
    /// Empty.
    Free,
    /// Its first block is being written, or stands.
    Reserved,
    /// In a stripe group.
    Group { namespace: u32, vzone: u32 },
    /// Of no v-zone any more, to be reset.
    Leaving,
    /// Being reset.
    Resetting,
    /// Of the log.
    Log,
    /// Not used again: it failed.
    Retired,
    /// Holds something that is not ours, or that could not be read; not written.
    SetAside,
}

/// Numbers of zones by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCounts {
    /// Empty zones.
    pub free: u32,
    /// Zones that are reserved ahead.
    pub reserved: u32,
    /// Zones in stripe groups.
    pub in_groups: u32,
    /// Zones that are being reset.
    pub resetting: u32,
    /// Zones that failed.
    pub retired: u32,
    /// Zones with something that is not the pool's, or that could not be read.
    pub set_aside: u32,
}

#[derive(Debug)]
pub(crate) struct Zones {
    uses: Vec<ZoneUse>,
    /// The number of each zone's last reservation.
    reservations: Vec<u64>,
    free: VecDeque<u32>,
    /// In the order of their reservation, and flushes that had begun when the first block stood.
    reserved: VecDeque<(u32, Option<u64>)>,
    /// Flushes that have begun,
    flushes: u64,
    /// and the last of these that has ended.
    last_flushed: u64,
    next_reservation: u64,
    /// Active zones that groups and reservations may have.
    active_max: u32,
    /// Active zones of groups.
    active_in_groups: u32,
    /// The same when the pool was mounted.
    active_at_mount: u32,
    /// Of these, those of groups that are only being finished or reset.
    draining: u32,
    /// Zones of no group that may be active, because a command to them has failed.
    doubtful: u32,
}

const _: () = assert!(
    size_of::<ZoneUse>() + size_of::<u64>() + size_of::<u32>() + size_of::<(u32, Option<u64>)>() <= 64,
    "a physical zone takes at most 64 bytes: its use, its reservation, and a place in each list"
);

impl Zones {
    /// All zones are of the log, or set aside until [`set`](Zones::set) says otherwise.
    pub(crate) fn new(zone_count: u32, log_zones: u32, active_max: u32, next_reservation: u64) -> Zones {
        let initial = |zone| if zone < log_zones { ZoneUse::Log } else { ZoneUse::SetAside };
        Zones {
            uses: (0..zone_count).map(initial).collect(),
            reservations: vec![0; zone_count as usize],
            free: VecDeque::new(),
            reserved: VecDeque::new(),
            flushes: 0,
            last_flushed: 0,
            next_reservation,
            active_max,
            active_in_groups: 0,
            active_at_mount: 0,
            draining: 0,
            doubtful: 0,
        }
    }

    pub(crate) fn zone_use(&self, zone: u32) -> ZoneUse {
        self.uses[zone as usize]
    }

    pub(crate) fn next_reservation(&self) -> u64 {
        self.next_reservation
    }

    pub(crate) fn reservation(&self, zone: u32) -> u64 {
        self.reservations[zone as usize]
    }

    /// What a mount has found.
    pub(crate) fn set(&mut self, zone: u32, to: ZoneUse, reservation: u64) {
        assert_eq!(self.uses[zone as usize], ZoneUse::SetAside, "a mount decides on each zone once");
        self.uses[zone as usize] = to;
        self.reservations[zone as usize] = reservation;
        if to == ZoneUse::Free {
            self.free.push_back(zone);
        }
    }

    /// A mounted group can be written.
    pub(crate) fn adopt_active(&mut self, width: u32) {
        self.active_in_groups += width;
    }

    /// A mount has counted all: it may have found more than it may have, such as groups of which some
    /// zones are finished.
    pub(crate) fn end_mount(&mut self) {
        self.active_at_mount = self.active_in_groups;
    }

    /// A zone that is not the pool's to reset is active.
    pub(crate) fn lose_active(&mut self) {
        self.active_max = self.active_max.saturating_sub(1);
    }

    /// Zones of no group that may be active.
    pub(crate) fn doubtful(&self) -> u32 {
        self.doubtful
    }

    /// A zone that is in no group, or not for long, may stay active.
    pub(crate) fn begin_doubt(&mut self) {
        self.doubtful += 1;
    }

    /// It is not active.
    pub(crate) fn end_doubt(&mut self) {
        self.doubtful = self.doubtful.checked_sub(1).expect("a zone was in doubt");
    }

    /// Whether no zone is left that a group could be made of.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.free.is_empty() && self.reserved.is_empty()
    }

    /// Active zones that groups may have, without those that failures may have taken.
    pub(crate) fn active_usable(&self) -> u32 {
        self.active_max.saturating_sub(self.doubtful)
    }

    pub(crate) fn are_any_resetting(&self) -> bool {
        self.uses.contains(&ZoneUse::Resetting)
    }

    pub(crate) fn active_in_groups(&self) -> u32 {
        self.active_in_groups
    }

    /// Active zones that a group could have now, those reserved ahead included.
    pub(crate) fn active_remaining(&self) -> u32 {
        self.active_max.saturating_sub(self.active_in_groups + self.doubtful)
    }

    /// Zones that could be reserved for a group: the reserved ones, and free ones while the drive
    /// has active resources.
    pub(crate) fn obtainable(&self) -> u32 {
        self.active_remaining().min(self.reserved.len() as u32 + self.free.len() as u32)
    }

    /// The same, once the groups that only have to end have ended.
    pub(crate) fn obtainable_soon(&self) -> u32 {
        let active = self.active_max.saturating_sub(self.active_in_groups - self.draining + self.doubtful);
        active.min(self.reserved.len() as u32 + self.free.len() as u32)
    }

    /// The next zone to reserve, and the number of the reservation, while there are fewer than
    /// `at_least` or fewer than are kept ahead.
    pub(crate) fn reserve_next(&mut self, at_least: u32) -> Option<(u32, u64)> {
        let wanted = RESERVED_MAX.max(at_least).min(self.active_remaining());
        if self.reserved.len() as u32 >= wanted {
            return None;
        }
        let zone = self.free.pop_front()?;
        let number = self.next_reservation;
        self.next_reservation += 1;
        self.uses[zone as usize] = ZoneUse::Reserved;
        self.reservations[zone as usize] = number;
        self.reserved.push_back((zone, None));
        Some((zone, number))
    }

    /// The first block of a reserved zone stands, or could not be written: then the zone is retired.
    pub(crate) fn on_reserved(&mut self, zone: u32, is_written: bool) {
        let place = self.reserved.iter().position(|(other, _)| *other == zone);
        let place = place.expect("a zone whose first block was written is reserved");
        if is_written {
            self.reserved[place].1 = Some(self.flushes);
        } else {
            self.reserved.remove(place);
            self.uses[zone as usize] = ZoneUse::Retired;
        }
    }

    /// The drive lacks space for the first block of a reserved zone, which stays empty.
    pub(crate) fn on_no_space(&mut self, zone: u32) {
        self.reserved.retain(|(other, _)| *other != zone);
        self.uses[zone as usize] = ZoneUse::Free;
        self.free.push_front(zone);
    }

    /// The drive allows fewer active zones than were counted on, and a reserved zone has none.
    pub(crate) fn on_resource_missing(&mut self, zone: u32) {
        self.reserved.retain(|(other, _)| *other != zone);
        self.uses[zone as usize] = ZoneUse::Free;
        self.free.push_front(zone);
        self.active_max = self.active_max.saturating_sub(1);
    }

    /// A flush of the drive begins. Returns its number.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes
    }

    /// The flush of this number has succeeded: first blocks that stood when it began are durable.
    pub(crate) fn end_flush(&mut self, number: u64) {
        self.last_flushed = self.last_flushed.max(number);
    }

    /// Whether nothing but a flush is missing for a group of this width.
    pub(crate) fn must_flush(&self, width: u32) -> bool {
        let mut next = self.reserved.iter().take(width as usize);
        self.reserved.len() >= width as usize && next.all(|(_, written)| written.is_some())
    }

    /// Takes the next zones for a group of this width; `None` until the first blocks of so many are
    /// durable. Otherwise a record that a power loss happens to leave could name a zone that has lost
    /// its first block, as one that has lost its data would.
    pub(crate) fn take(&mut self, width: u32, namespace: u32, vzone: u32) -> Option<Vec<u32>> {
        let is_ready = |written: &Option<u64>| written.is_some_and(|flushes| flushes < self.last_flushed);
        let ready = self.reserved.iter().take(width as usize).filter(|(_, written)| is_ready(written)).count();
        if ready < width as usize {
            return None;
        }
        let taken: Vec<u32> = self.reserved.drain(..width as usize).map(|(zone, _)| zone).collect();
        for zone in &taken {
            self.uses[*zone as usize] = ZoneUse::Group { namespace, vzone };
        }
        self.active_in_groups += width;
        Some(taken)
    }

    /// Nothing of a group is left to submit, but to finish or reset its zones.
    pub(crate) fn begin_draining(&mut self, width: u32) {
        self.draining += width;
        assert!(self.draining <= self.active_in_groups, "a group drains once");
    }

    /// The zones of a group that was draining are finished or reset.
    pub(crate) fn release_active(&mut self, width: u32) {
        self.draining = self.draining.checked_sub(width).expect("a group's zones are released once");
        self.active_in_groups = self.active_in_groups.checked_sub(width).expect("a draining group is active");
    }

    pub(crate) fn draining(&self) -> u32 {
        self.draining
    }

    /// A zone of a group is not written and not reset until the next mount.
    pub(crate) fn set_aside(&mut self, zone: u32) {
        self.uses[zone as usize] = ZoneUse::SetAside;
    }

    pub(crate) fn begin_reset(&mut self, zone: u32) {
        self.uses[zone as usize] = ZoneUse::Resetting;
    }

    /// A reset has ended; a zone that cannot be reset is retired.
    pub(crate) fn on_reset(&mut self, zone: u32, is_reset: bool) {
        assert_eq!(self.uses[zone as usize], ZoneUse::Resetting, "zone {zone} is reset once");
        self.uses[zone as usize] = if is_reset { ZoneUse::Free } else { ZoneUse::Retired };
        if is_reset {
            self.free.push_back(zone);
        }
    }

    pub(crate) fn counts(&self) -> ZoneCounts {
        let mut counts = ZoneCounts::default();
        for zone_use in &self.uses {
            match zone_use {
                ZoneUse::Free => counts.free += 1,
                ZoneUse::Reserved => counts.reserved += 1,
                ZoneUse::Group { .. } => counts.in_groups += 1,
                ZoneUse::Leaving | ZoneUse::Resetting => counts.resetting += 1,
                ZoneUse::Retired => counts.retired += 1,
                ZoneUse::SetAside => counts.set_aside += 1,
                ZoneUse::Log => {}
            }
        }
        counts
    }

    /// # Panics
    /// If the lists disagree with the uses, or the drive would have too many active zones.
    pub(crate) fn check_invariants(&self) {
        let counts = self.counts();
        assert_eq!(counts.free as usize, self.free.len(), "every free zone is in the list");
        assert_eq!(counts.reserved as usize, self.reserved.len(), "every reserved zone is in the list");
        let active = self.active_in_groups + counts.reserved;
        let max = self.active_max.max(self.active_at_mount);
        assert!(active <= max, "{active} zones are active, and the drive allows {max}");
    }
}
