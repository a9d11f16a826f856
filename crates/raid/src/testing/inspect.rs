//! Inspection of the members' media, which hosts cannot see.

use zonda_zoned::{Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, ZoneIndex, ZoneState};

use super::{Drive, Promise, Simulation, Violation};
use crate::MemberState;
use crate::limits::METADATA_ZONES;
use crate::machine::{Inconsistency, MediaRead};

/// How strictly media are inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Injected damage is not the volume's fault.
    Excusing,
    /// Right after a scrub nothing that is needed may be damaged.
    Strict,
}

impl Simulation {
    /// Compares the media with the state that the volume assumes: everything that it has
    /// acknowledged is on all members that it relies on.
    ///
    /// # Errors
    /// The inconsistency, as [`Promise::Redundancy`].
    pub fn inspect(&mut self, strictness: Strictness) -> Result<(), Violation> {
        if self.model.is_lost || !self.volume.is_ready() {
            return Ok(());
        }
        let Simulation { volume, drives, .. } = self;
        let inconsistencies = volume.inconsistencies_on_media(false, &mut |member, lba| {
            drives[usize::from(member.0)].read_block(lba, strictness)
        });
        if let Some(violation) = violation_of(&inconsistencies) {
            return Err(violation);
        }
        for (at, member) in volume.status().members.iter().enumerate() {
            let drive = &drives[at];
            let reasons = drive.dead_zones() + drive.failed_resets;
            if member.state != MemberState::Failed && member.retired_zones > reasons {
                let retired = member.retired_zones;
                let what = format!("member {at}: {retired} zones are retired, but only {reasons} have failed");
                return Err(Violation::new(Promise::Redundancy, what));
            }
        }
        Ok(())
    }
}

/// The first inconsistency.
pub(super) fn violation_of(inconsistencies: &[Inconsistency]) -> Option<Violation> {
    let Inconsistency { member, lba, what } = inconsistencies.first()?;
    let what = format!("member {}, block {lba}: {what}", member.0);
    Some(Violation::new(Promise::Redundancy, what))
}

impl Drive {
    /// Zones that can never be written again.
    fn dead_zones(&self) -> u32 {
        let is_dead = |zone: &u32| matches!(self.zone_state(*zone), ZoneState::Offline | ZoneState::ReadOnly);
        (0..self.geometry().zone_count).filter(is_dead).count() as u32
    }

    /// Reads a block for inspection.
    pub(super) fn read_block(&mut self, lba: Lba, strictness: Strictness) -> MediaRead {
        let zone = self.geometry().zone_of(lba).map_or(0, |zone| zone.0);
        let is_excused = strictness == Strictness::Excusing && (self.is_unreliable || self.damaged.contains(&lba))
            || self.zone_state(zone) == ZoneState::Offline
            || zone < METADATA_ZONES && self.failed_superblocks > 0;
        if is_excused {
            return MediaRead::Excused;
        }
        let offset = lba.0 - self.geometry().zone_start(ZoneIndex(zone)).0;
        // Most blocks of the zones of superblocks are blank.
        let is_blank = zone < METADATA_ZONES && offset >= self.count_written(zone);
        if is_blank || self.unreadable.contains(&lba) {
            return MediaRead::Unreadable;
        }
        let operation = Operation::Read { start: lba, blocks: Blocks(1) };
        let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
        match self.device.execute(&command).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => MediaRead::Block(buffer.data, buffer.metadata),
            _ => MediaRead::Unreadable,
        }
    }
}
