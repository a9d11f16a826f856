//! Active, open and ZRWA resources (Zoned Namespace Command Set 1.1, 2.1.1.4), and the one place
//! where states change.

use crate::{Status, ZoneIndex, ZoneState};

use super::{Zone, ZoneTable};

/// No neighbour. No zone has this index, because a namespace has at most `u32::MAX` zones.
const NO_ZONE: u32 = u32::MAX;

/// The order in which zones became implicitly opened, as a list threaded through the zones:
/// constant time without any bound on the number of open zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpeningOrder {
    oldest: u32,
    newest: u32,
}

/// A zone's neighbours in the order of implicitly opened zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    pub(super) const NONE: Links = Links { older: NO_ZONE, newer: NO_ZONE };
}

impl OpeningOrder {
    pub(super) const EMPTY: OpeningOrder = OpeningOrder { oldest: NO_ZONE, newest: NO_ZONE };
}

impl ZoneTable {
    /// Whether `zone` can become open, with a ZRWA if requested. Changes nothing; returns the zone
    /// that must be closed to free an open resource.
    pub(super) fn admit(&self, zone: ZoneIndex, with_zrwa: bool) -> Result<Option<ZoneIndex>, Status> {
        let state = self.entry(zone).state;
        if !state.is_active() && self.active >= self.max_active {
            return Err(Status::TooManyActiveZones);
        }
        let mut to_close = None;
        if !state.is_open() && self.open >= self.max_open {
            to_close = Some(self.longest_implicitly_opened().ok_or(Status::TooManyOpenZones)?);
        }
        if with_zrwa && self.zrwa_in_use >= self.zrwa_resources {
            return Err(Status::ZrwaResourcesUnavailable);
        }
        Ok(to_close)
    }

    /// Makes a zone that is not open implicitly opened, and closes another for it if necessary.
    /// Returns that other zone.
    pub(super) fn open_implicitly(&mut self, zone: ZoneIndex) -> Result<Option<ZoneIndex>, Status> {
        let to_close = self.admit(zone, false)?;
        if let Some(other) = to_close {
            self.change_state(other, ZoneState::Closed);
        }
        self.change_state(zone, ZoneState::ImplicitlyOpened);
        Ok(to_close)
    }

    /// Allocates a ZRWA to the zone. The caller has checked that one is free.
    pub(super) fn allocate_zrwa(&mut self, zone: ZoneIndex) {
        let entry = self.entry_mut(zone);
        assert!(!entry.has_zrwa && entry.state.is_active(), "zone {zone} cannot take a ZRWA");
        entry.has_zrwa = true;
        entry.had_zrwa = true;
        self.zrwa_in_use += 1;
    }

    /// Changes the state of a sequential zone, with all consequences: resources, the order of
    /// implicitly opened zones, and the fields that an empty or offline zone loses.
    pub(super) fn change_state(&mut self, zone: ZoneIndex, to: ZoneState) {
        let from = self.entry(zone).state;
        if from == to {
            return;
        }
        if from == ZoneState::ImplicitlyOpened {
            self.leave_opening_order(zone);
        }
        self.open = self.open + u32::from(to.is_open()) - u32::from(from.is_open());
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        self.degraded = self.degraded + u32::from(is_degraded(to)) - u32::from(is_degraded(from));
        let entry = &mut self.zones[zone.as_usize()];
        entry.state = to;
        if entry.has_zrwa && !to.is_active() {
            entry.has_zrwa = false;
            self.zrwa_in_use -= 1;
        }
        if entry.has_extension && matches!(to, ZoneState::Empty | ZoneState::Offline) {
            entry.has_extension = false;
            self.extensions.remove(&zone);
        }
        match to {
            ZoneState::Empty => *self.entry_mut(zone) = Zone::new(crate::ZoneType::SequentialWriteRequired),
            ZoneState::ImplicitlyOpened => self.join_opening_order(zone),
            _ => {}
        }
    }

    /// The zones that are implicitly opened, the one that has been so for longest first.
    pub(super) fn opening_order(&self) -> impl Iterator<Item = ZoneIndex> {
        let mut next = self.longest_implicitly_opened();
        std::iter::from_fn(move || {
            let zone = next?;
            next = zone_of_link(self.entry(zone).links.newer);
            Some(zone)
        })
    }

    fn longest_implicitly_opened(&self) -> Option<ZoneIndex> {
        zone_of_link(self.implicitly_opened.oldest)
    }

    fn join_opening_order(&mut self, zone: ZoneIndex) {
        let newest = std::mem::replace(&mut self.implicitly_opened.newest, zone.0);
        match zone_of_link(newest) {
            Some(other) => self.entry_mut(other).links.newer = zone.0,
            None => self.implicitly_opened.oldest = zone.0,
        }
        self.entry_mut(zone).links = Links { older: newest, newer: NO_ZONE };
    }

    fn leave_opening_order(&mut self, zone: ZoneIndex) {
        let Links { older, newer } = std::mem::replace(&mut self.entry_mut(zone).links, Links::NONE);
        match zone_of_link(older) {
            Some(other) => self.entry_mut(other).links.newer = newer,
            None => self.implicitly_opened.oldest = newer,
        }
        match zone_of_link(newer) {
            Some(other) => self.entry_mut(other).links.older = older,
            None => self.implicitly_opened.newest = older,
        }
    }
}

/// Whether the medium of a zone in this state has failed.
pub(super) fn is_degraded(state: ZoneState) -> bool {
    matches!(state, ZoneState::ReadOnly | ZoneState::Offline)
}

fn zone_of_link(link: u32) -> Option<ZoneIndex> {
    (link != NO_ZONE).then_some(ZoneIndex(link))
}
