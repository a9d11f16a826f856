//! Zone Management Send (3.4.3): the state machine as the host drives it.

use crate::{Blocks, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::write::check_writable;
use super::{ZoneEffect, ZoneTable};

impl ZoneTable {
    /// Applies an action to one zone or to all zones in a matching state, and adds the changes to
    /// `effects`, in order. A zone that the controller closes to free an open resource is a
    /// [`ZoneEffect::Closed`] before the [`ZoneEffect::Opened`]. Select All acts in the order of
    /// the zones.
    ///
    /// # Errors
    /// In the order of the rules of ManageZones; nothing has changed then, and `effects` is as it
    /// was.
    pub fn manage(
        &mut self,
        action: &ZoneAction,
        target: ZoneTarget,
        effects: &mut Vec<ZoneEffect>,
    ) -> Result<(), Status> {
        let ZoneTarget::Zone(target) = target else { return self.manage_all(action, effects) };
        if target.0 >= self.namespace_blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (zone, offset) = self.locate(target.0);
        if self.is_conventional(zone) || (offset != 0 && *action != ZoneAction::FlushZrwa) {
            return Err(Status::InvalidField);
        }
        let state = self.entry(zone).state;
        match action {
            ZoneAction::Close => match state {
                ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened => self.close(zone, effects),
                ZoneState::Closed => {}
                _ => return Err(Status::InvalidZoneStateTransition),
            },
            ZoneAction::Finish => match state {
                ZoneState::Empty | ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed => {
                    self.finish(zone, effects);
                }
                ZoneState::Full => {}
                _ => return Err(Status::InvalidZoneStateTransition),
            },
            ZoneAction::Open { zrwa: false } => match state {
                ZoneState::Empty | ZoneState::Closed | ZoneState::ImplicitlyOpened => {
                    self.open_explicitly(zone, false, effects)?;
                }
                ZoneState::ExplicitlyOpened => {}
                _ => return Err(Status::InvalidZoneStateTransition),
            },
            ZoneAction::Open { zrwa: true } => self.open_with_zrwa(zone, effects)?,
            ZoneAction::Reset => match state {
                ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed | ZoneState::Full => {
                    self.reset(zone, effects);
                }
                ZoneState::Empty => {}
                _ => return Err(Status::InvalidZoneStateTransition),
            },
            ZoneAction::Offline => match state {
                ZoneState::ReadOnly => self.take_offline(zone, effects),
                ZoneState::Offline => {}
                _ => return Err(Status::InvalidZoneStateTransition),
            },
            ZoneAction::SetDescriptorExtension { extension, zrwa } => {
                self.set_extension(zone, extension, *zrwa, effects)?;
            }
            ZoneAction::FlushZrwa => self.flush_zrwa(zone, offset, effects)?,
        }
        Ok(())
    }

    fn manage_all(&mut self, action: &ZoneAction, effects: &mut Vec<ZoneEffect>) -> Result<(), Status> {
        match action {
            ZoneAction::Close => self.for_each(ZoneState::is_open, |table, zone| table.close(zone, effects)),
            ZoneAction::Finish => self.for_each(ZoneState::is_active, |table, zone| table.finish(zone, effects)),
            ZoneAction::Reset => self.for_each(
                |state| state.is_active() || state == ZoneState::Full,
                |table, zone| table.reset(zone, effects),
            ),
            ZoneAction::Offline => {
                self.for_each(|state| state == ZoneState::ReadOnly, |table, zone| table.take_offline(zone, effects));
            }
            ZoneAction::Open { zrwa: false } => {
                // The active zones are the open and the closed ones, all of which would be open.
                if self.active > self.max_open {
                    return Err(Status::TooManyOpenZones);
                }
                self.for_each(
                    |state| state == ZoneState::Closed,
                    |table, zone| {
                        table.change_state(zone, ZoneState::ExplicitlyOpened);
                        effects.push(ZoneEffect::Opened { zone });
                    },
                );
            }
            ZoneAction::Open { zrwa: true } | ZoneAction::SetDescriptorExtension { .. } | ZoneAction::FlushZrwa => {
                return Err(Status::InvalidField);
            }
        }
        Ok(())
    }

    /// Acts on every sequential zone in a state that is `wanted`, in the order of the zones.
    fn for_each(&mut self, wanted: impl Fn(ZoneState) -> bool, mut act: impl FnMut(&mut ZoneTable, ZoneIndex)) {
        for zone in (self.geometry.conventional_zone_count..self.geometry.zone_count).map(ZoneIndex) {
            if wanted(self.entry(zone).state) {
                act(self, zone);
            }
        }
    }

    fn close(&mut self, zone: ZoneIndex, effects: &mut Vec<ZoneEffect>) {
        self.change_state(zone, ZoneState::Closed);
        effects.push(ZoneEffect::Closed { zone });
    }

    fn finish(&mut self, zone: ZoneIndex, effects: &mut Vec<ZoneEffect>) {
        self.change_state(zone, ZoneState::Full);
        let entry = self.entry_mut(zone);
        entry.finished_by_host = true;
        effects.push(ZoneEffect::Finished { zone, written_blocks: Blocks(entry.written) });
    }

    fn reset(&mut self, zone: ZoneIndex, effects: &mut Vec<ZoneEffect>) {
        let before = *self.entry(zone);
        self.change_state(zone, ZoneState::Empty);
        effects.push(ZoneEffect::Reset {
            zone,
            written_blocks: Blocks(before.written),
            was_full: before.state == ZoneState::Full,
            finished_by_host: before.finished_by_host,
        });
    }

    fn take_offline(&mut self, zone: ZoneIndex, effects: &mut Vec<ZoneEffect>) {
        self.change_state(zone, ZoneState::Offline);
        effects.push(ZoneEffect::Offlined { zone });
    }

    fn open_explicitly(
        &mut self,
        zone: ZoneIndex,
        with_zrwa: bool,
        effects: &mut Vec<ZoneEffect>,
    ) -> Result<(), Status> {
        if let Some(other) = self.admit(zone, with_zrwa)? {
            self.close(other, effects);
        }
        self.change_state(zone, ZoneState::ExplicitlyOpened);
        if with_zrwa {
            self.allocate_zrwa(zone);
        }
        effects.push(ZoneEffect::Opened { zone });
        Ok(())
    }

    fn open_with_zrwa(&mut self, zone: ZoneIndex, effects: &mut Vec<ZoneEffect>) -> Result<(), Status> {
        if self.geometry.zrwa.is_none() {
            return Err(Status::InvalidField);
        }
        match self.entry(zone).state {
            ZoneState::Empty => self.open_explicitly(zone, true, effects),
            ZoneState::ReadOnly | ZoneState::Offline => Err(Status::InvalidZoneStateTransition),
            _ => Err(Status::InvalidZoneOperation),
        }
    }

    fn set_extension(
        &mut self,
        zone: ZoneIndex,
        extension: &[u8],
        with_zrwa: bool,
        effects: &mut Vec<ZoneEffect>,
    ) -> Result<(), Status> {
        let length = self.geometry.descriptor_extension_bytes as usize;
        if length == 0 || extension.len() != length || (with_zrwa && self.geometry.zrwa.is_none()) {
            return Err(Status::InvalidField);
        }
        if self.entry(zone).state != ZoneState::Empty {
            return Err(Status::InvalidZoneStateTransition);
        }
        if self.active >= self.max_active {
            return Err(Status::TooManyActiveZones);
        }
        if with_zrwa && self.zrwa_in_use >= self.zrwa_resources {
            return Err(Status::ZrwaResourcesUnavailable);
        }
        self.change_state(zone, ZoneState::Closed);
        self.entry_mut(zone).has_extension = true;
        self.extensions.insert(zone, extension.into());
        if with_zrwa {
            self.allocate_zrwa(zone);
        }
        effects.push(ZoneEffect::ExtensionSet { zone });
        Ok(())
    }

    /// Commits the ZRWA up to and including the block at `offset`.
    fn flush_zrwa(&mut self, zone: ZoneIndex, offset: u64, effects: &mut Vec<ZoneEffect>) -> Result<(), Status> {
        let Some(zrwa) = self.geometry.zrwa.filter(|zrwa| zrwa.explicit_flush) else {
            return Err(Status::InvalidField);
        };
        let entry = self.entry(zone);
        check_writable(entry)?;
        if !entry.has_zrwa {
            return Err(Status::InvalidZoneOperation);
        }
        let write_pointer = entry.write_pointer;
        let limit = self.geometry.zone_capacity_blocks.0.min(write_pointer + zrwa.size_blocks.0);
        if !(write_pointer..limit).contains(&offset)
            || !(offset + 1 - write_pointer).is_multiple_of(zrwa.flush_granularity_blocks.0)
        {
            return Err(Status::InvalidField);
        }
        if !entry.state.is_open() {
            if let Some(other) = self.open_implicitly(zone)? {
                effects.push(ZoneEffect::Closed { zone: other });
            }
            effects.push(ZoneEffect::Opened { zone });
        }
        self.move_write_pointer(zone, offset + 1);
        effects.push(ZoneEffect::Committed { zone });
        Ok(())
    }
}
