//! Failures of the medium of zones, and recovery from a power loss.

use crate::{Blocks, Status, ZoneIndex, ZoneState};

use super::{Zone, ZoneSnapshot, ZoneTable};

impl ZoneTable {
    /// The medium of a zone fails: the zone becomes read only or offline, releases its resources,
    /// and enters the Changed Zone List. An offline zone stays as it is.
    ///
    /// # Panics
    /// For a conventional zone, and for a state other than read only and offline.
    pub fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        assert!(!self.is_conventional(zone), "zone {zone} is conventional and cannot degrade");
        assert!(matches!(to, ZoneState::ReadOnly | ZoneState::Offline), "zone {zone} cannot degrade to {to}");
        if self.entry(zone).state == ZoneState::Offline {
            return;
        }
        self.change_state(zone, to);
        self.changed.insert(zone);
    }

    /// The controller cannot continue a zone (a zone active excursion): an active zone becomes full
    /// where its write pointer stands, releases its resources, and enters the Changed Zone List.
    ///
    /// # Panics
    /// If the zone is not active.
    pub fn finish_by_controller(&mut self, zone: ZoneIndex) {
        let state = self.entry(zone).state;
        assert!(state.is_active(), "zone {zone} is {state}, and cannot be finished by the controller");
        self.change_state(zone, ZoneState::Full);
        self.entry_mut(zone).finished_by_controller = true;
        self.changed.insert(zone);
    }

    /// The same for a zone that is empty, or full by being written, and that holds only the blocks up to
    /// `write_pointer_blocks`: without the active resource that it would need as a closed one.
    ///
    /// # Panics
    /// If the zone is in another state, and for a pointer past the capacity.
    pub fn finish_by_controller_at(&mut self, zone: ZoneIndex, write_pointer_blocks: Blocks) {
        let entry = *self.entry(zone);
        let is_possible = matches!(entry.state, ZoneState::Empty | ZoneState::Full) && !entry.finished_by_host;
        assert!(is_possible, "zone {zone} is {}, and cannot be finished at a block", entry.state);
        assert!(write_pointer_blocks <= self.geometry.zone_capacity_blocks, "zone {zone} has not so many blocks");
        self.change_state(zone, ZoneState::Full);
        let entry = self.entry_mut(zone);
        (entry.write_pointer, entry.written) = (write_pointer_blocks.0, write_pointer_blocks.0);
        entry.finished_by_controller = true;
        self.changed.insert(zone);
    }

    /// A power cycle: open zones are closed, or empty if the host has only opened them. A ZRWA
    /// stays with its zone. The Changed Zone List is emptied.
    pub fn power_cycle(&mut self) {
        for zone in (self.geometry.conventional_zone_count..self.geometry.zone_count).map(ZoneIndex) {
            let entry = self.entry(zone);
            let untouched = entry.write_pointer == 0 && !entry.has_extension && !entry.has_zrwa;
            match entry.state {
                ZoneState::ExplicitlyOpened if untouched => self.change_state(zone, ZoneState::Empty),
                ZoneState::ExplicitlyOpened | ZoneState::ImplicitlyOpened => {
                    self.change_state(zone, ZoneState::Closed);
                }
                _ => {}
            }
        }
        self.changed.clear();
    }

    /// A snapshot of a zone, for [`restore`](ZoneTable::restore).
    ///
    /// # Panics
    /// When there is no such zone.
    #[must_use]
    pub fn snapshot(&self, zone: ZoneIndex) -> ZoneSnapshot {
        ZoneSnapshot { zone: *self.entry(zone), extension: self.extensions.get(&zone).cloned() }
    }

    /// Restores a zone. Returns false, and changes nothing, if that would exceed the limit of
    /// active zones or the ZRWA resources; the resources that the zone holds now count as free. If
    /// it would exceed the limit of open zones, the zone becomes closed: no other zone is closed
    /// for it. A zone that becomes implicitly opened is the newest of them. The Changed Zone List
    /// stays.
    ///
    /// # Panics
    /// When one of the zone and the snapshot is conventional and the other is not.
    #[must_use = "a zone that cannot be restored has not changed"]
    pub fn restore(&mut self, zone: ZoneIndex, snapshot: &ZoneSnapshot) -> bool {
        let now = *self.entry(zone);
        let then = snapshot.zone;
        assert_eq!(
            self.is_conventional(zone),
            then.state == ZoneState::NotWritePointer,
            "the snapshot is of a zone of another type than zone {zone}"
        );
        let mut state = then.state;
        if state.is_active() && self.active - u32::from(now.state.is_active()) >= self.max_active {
            return false;
        }
        let zrwa_of_others = self.zrwa_in_use - u32::from(now.has_zrwa);
        if then.has_zrwa && zrwa_of_others >= self.zrwa_resources {
            return false;
        }
        if state.is_open() && self.open - u32::from(now.state.is_open()) >= self.max_open {
            state = ZoneState::Closed;
        }
        self.change_state(zone, state);
        self.zrwa_in_use = zrwa_of_others + u32::from(then.has_zrwa);
        let entry = self.entry_mut(zone);
        *entry = Zone { state, links: entry.links, ..then };
        match &snapshot.extension {
            Some(extension) => self.extensions.insert(zone, extension.clone()),
            None => self.extensions.remove(&zone),
        };
        true
    }

    /// Gives a zone the descriptor extension that it had; an empty zone becomes closed by it. Returns
    /// false, and changes nothing, if no active resource is free for that.
    ///
    /// # Panics
    /// For a conventional zone, and for an extension of another length than the geometry's.
    #[must_use = "a zone without a free resource has not changed"]
    pub fn restore_extension(&mut self, zone: ZoneIndex, extension: Box<[u8]>) -> bool {
        assert!(!self.is_conventional(zone), "zone {zone} is conventional and has no extension");
        assert_eq!(extension.len(), self.geometry.descriptor_extension_bytes as usize, "bytes of an extension");
        if self.entry(zone).state == ZoneState::Empty {
            if self.active >= self.max_active {
                return false;
            }
            self.change_state(zone, ZoneState::Closed);
        }
        self.entry_mut(zone).has_extension = true;
        self.extensions.insert(zone, extension);
        true
    }

    /// A power loss tore a write: moves the write pointer of a sequential zone back, to at most
    /// where it is. A zone that was full by being written is closed again. With the pointer at its
    /// start and without a descriptor extension, a zone becomes empty. A read only or offline zone
    /// stays so.
    ///
    /// Returns false, and changes nothing, if a full zone must become closed and no active resource
    /// is free.
    ///
    /// # Panics
    /// For a conventional zone, a pointer further on than the present one, a zone that was finished
    /// by the host or the controller, and a zone that has or had a ZRWA since it was empty: restore a snapshot of
    /// these.
    #[must_use = "a zone that cannot be truncated has not changed"]
    pub fn truncate(&mut self, zone: ZoneIndex, write_pointer_blocks: Blocks) -> bool {
        let entry = *self.entry(zone);
        let to = write_pointer_blocks.0;
        assert!(!self.is_conventional(zone), "zone {zone} is conventional and has no write pointer to move");
        assert!(!entry.had_zrwa, "zone {zone} has a ZRWA or had one: restore a snapshot instead");
        assert!(!entry.finished_by_host, "zone {zone} was finished by the host: restore a snapshot instead");
        assert!(!entry.finished_by_controller, "zone {zone} was finished by the controller");
        assert!(to <= entry.write_pointer, "zone {zone} cannot be truncated forward to {to}");
        let state = match entry.state {
            ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline => entry.state,
            ZoneState::Full if to == entry.write_pointer => ZoneState::Full,
            _ if to == 0 && !entry.has_extension => ZoneState::Empty,
            ZoneState::Full if self.active >= self.max_active => return false,
            ZoneState::Full => ZoneState::Closed,
            active => active,
        };
        self.change_state(zone, state);
        let entry = self.entry_mut(zone);
        entry.write_pointer = to;
        entry.written = to;
        true
    }

    /// Prefills a zone, as if the host had written it up to `write_pointer_blocks` and closed it:
    /// full at the capacity, closed below, and empty still at 0. In a conventional zone only the
    /// high-water mark of writes rises.
    ///
    /// # Errors
    /// TooManyActiveZones if the zone would be closed and no active resource is free; nothing has
    /// changed then.
    ///
    /// # Panics
    /// For a sequential zone that is not empty, and for a pointer past the capacity.
    pub fn set_written(&mut self, zone: ZoneIndex, write_pointer_blocks: Blocks) -> Result<(), Status> {
        let to = write_pointer_blocks.0;
        let capacity = self.geometry.zone_capacity_blocks.0;
        assert!(to <= capacity, "zone {zone} holds {capacity} blocks, not {to}");
        if self.is_conventional(zone) {
            let entry = self.entry_mut(zone);
            entry.written = entry.written.max(to);
            return Ok(());
        }
        let state = self.entry(zone).state;
        assert!(state == ZoneState::Empty, "zone {zone} is {state}: only an empty zone can be filled");
        if to == 0 {
            return Ok(());
        }
        if to < capacity && self.active >= self.max_active {
            return Err(Status::TooManyActiveZones);
        }
        self.change_state(zone, if to == capacity { ZoneState::Full } else { ZoneState::Closed });
        let entry = self.entry_mut(zone);
        entry.write_pointer = to;
        entry.written = to;
        Ok(())
    }
}
