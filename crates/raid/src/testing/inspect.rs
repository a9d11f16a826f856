//! A look at the members' media themselves, which hosts do not have.

use zonda_zoned::{Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, ZoneIndex, ZoneState};

use super::{Drive, Promise, Violation, World};
use crate::MemberState;
use crate::limits::METADATA_ZONES;
use crate::machine::{Look, Wrong};

/// How a look at the media is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Blocks that were damaged are not the volume's fault.
    Excusing,
    /// Right after a scrub nothing that is needed is damaged.
    Strict,
}

impl World {
    /// Compares what is on the members with what the volume takes to be there: all that it has acknowledged is on all members that it
    /// counts on.
    ///
    /// # Errors
    /// What is wrong, of promise [`Promise::Redundancy`].
    pub fn inspect(&mut self, strictness: Strictness) -> Result<(), Violation> {
        if self.model.is_lost || !self.volume.is_ready() {
            return Ok(());
        }
        let World { volume, drives, .. } = self;
        let wrong =
            volume.wrong_on_media(false, &mut |member, lba| drives[usize::from(member.0)].look(lba, strictness));
        if let Some(violation) = violation_of(&wrong) {
            return Err(violation);
        }
        for (at, member) in volume.status().members.iter().enumerate() {
            let drive = &drives[at];
            let reasons = drive.dead_zones() + drive.failed_resets;
            if member.state != MemberState::Failed && member.retired_zones > reasons {
                let retired = member.retired_zones;
                let what = format!("member {at}: {retired} zones are out of use, and {reasons} have failed");
                return Err(Violation::new(Promise::Redundancy, what));
            }
        }
        Ok(())
    }
}

/// The first of what is wrong.
pub(super) fn violation_of(wrong: &[Wrong]) -> Option<Violation> {
    let Wrong { member, lba, what } = wrong.first()?;
    let what = format!("member {}, block {lba}: {what}", member.0);
    Some(Violation::new(Promise::Redundancy, what))
}

impl Drive {
    /// Zones that can never be written again.
    fn dead_zones(&self) -> u32 {
        let is_dead = |zone: &u32| matches!(self.zone_state(*zone), ZoneState::Offline | ZoneState::ReadOnly);
        (0..self.geometry().zone_count).filter(is_dead).count() as u32
    }

    /// A look at a block.
    pub(super) fn look(&mut self, lba: Lba, strictness: Strictness) -> Look {
        let zone = self.geometry().zone_of(lba).map_or(0, |zone| zone.0);
        let is_excused = strictness == Strictness::Excusing && (self.is_unreliable || self.damaged.contains(&lba))
            || self.zone_state(zone) == ZoneState::Offline
            || zone < METADATA_ZONES && self.failed_superblocks > 0;
        if is_excused {
            return Look::Excused;
        }
        let offset = lba.0 - self.geometry().zone_start(ZoneIndex(zone)).0;
        // Of the many blocks of the zones of superblocks most are blank.
        let is_blank = zone < METADATA_ZONES && offset >= self.count_written(zone);
        if is_blank || self.unreadable.contains(&lba) {
            return Look::Unreadable;
        }
        let operation = Operation::Read { start: lba, blocks: Blocks(1) };
        let command = Command { id: CommandId(0), namespace: NamespaceId::FIRST, operation };
        match self.device.execute(&command).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Look::Block(buffer.data, buffer.metadata),
            _ => Look::Unreadable,
        }
    }
}
