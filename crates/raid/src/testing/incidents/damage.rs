//! More members are damaged than the volume tolerates: blocks are lost, but never wrong.

use zonda_zoned::{Lba, Prng, ZoneState};

use super::super::{Promise, SwarmRun, Violation};
use super::places;
use crate::VolumeError;
use crate::limits::METADATA_ZONES;

/// With no more active zones than this a rebuild may wait for ever.
const FEW_ACTIVE_ZONES: u32 = 4;
/// Maximum steps of load between damage and the next event.
const LOAD_STEPS: u64 = 300;

impl SwarmRun {
    /// Blocks are unreadable during a mount, and readable afterwards. A refused mount has changed
    /// nothing.
    pub(super) fn unreadable_blocks(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.repair_members()?;
        // Transient read errors may make two mounts disagree about a write that was in flight.
        self.flush()?;
        self.stop(prng);
        self.damage_members(prng, true);
        self.simulation.suspects = self.all_members();
        self.simulation.model.is_lost = true;
        if self.try_mount(0)?.is_some() {
            self.make_readable();
            self.simulation.model.is_lost = false;
            self.simulation.suspects = 0;
            self.mount(0)?;
            return self.simulation.read_all();
        }
        self.simulation.read_each()?;
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        self.make_readable();
        if self.mount_damaged(0)? {
            self.resolve_losses()?;
        }
        Ok(())
    }

    /// Blocks are corrupted or become unreadable, and zones are lost.
    pub(super) fn damage_beyond_tolerance(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        if prng.chance(1, 2) {
            self.repair_members()?;
        }
        let rebuilds = self.tolerates() > 0 && prng.chance(1, 4) && !self.has_few_active_zones();
        if rebuilds {
            // Beyond unresponsive members the volume tolerates no more.
            self.repair_members()?;
        }
        self.simulation.suspects = self.all_members();
        self.simulation.model.is_lost = true;
        if rebuilds && self.inactive() == 0 {
            let member = prng.below(self.members() as u64) as usize;
            self.simulation.replace(member)?;
            self.load(prng.below(LOAD_STEPS))?;
        }
        let while_down = prng.chance(1, 2);
        if !while_down {
            self.damage_members(prng, false);
        }
        self.load(prng.below(LOAD_STEPS))?;
        let stays_up = !while_down && prng.chance(1, 3);
        if !stays_up {
            self.stop(prng);
            if while_down {
                self.damage_members(prng, false);
            }
            if !self.mount_damaged(0)? {
                return Ok(());
            }
        }
        self.resolve_losses()?;
        // Without redundancy, damaged blocks that are not needed stay damaged, and a mount cannot
        // know that they were not needed.
        self.is_over |= self.tolerates() == 0;
        Ok(())
    }

    /// Mounts a damaged volume; if that is refused because of losses, they are accepted. Returns
    /// whether anything is left of it.
    fn mount_damaged(&mut self, without: u32) -> Result<bool, Violation> {
        let Some(refused) = self.try_mount(without)? else {
            self.simulation.read_each()?;
            return Ok(true);
        };
        let knew = self.simulation.options.newest_epoch;
        self.simulation.options.accepts_losses = true;
        let again = self.try_mount(without)?;
        self.simulation.options.accepts_losses = false;
        if let Some(error) = again {
            // Members that have lost all their superblocks are missing.
            self.simulation.trace(|| format!("the volume is lost: {error}"));
            if matches!(error, VolumeError::UnidentifiedLosses { .. }) {
                let what = format!("the mount is refused although losses are accepted: {error}");
                return Err(Violation::new(Promise::Mounts, what));
            }
            self.is_over = true;
            return Ok(false);
        }
        self.simulation.trace(|| format!("losses were accepted: {refused}, known epoch {knew:?}"));
        self.simulation.model.accept_losses();
        self.simulation.read_each()?;
        // A second mount, without accepting anything, has the same result.
        self.outcome.crashes += 1;
        self.simulation.crash();
        if let Some(error) = self.try_mount(without)? {
            let what = format!("accepted losses are refused again: {error}");
            return Err(Violation::new(Promise::Mounts, what));
        }
        if self.simulation.model.is_cache_volatile {
            // Unflushed writes may be visible to a mount that loses other blocks.
            self.simulation.model.accept_losses();
        }
        self.simulation.read_each()?;
        Ok(true)
    }

    /// Damages more members than the volume tolerates, permanently or temporarily.
    fn damage_members(&mut self, prng: &mut Prng, is_temporary: bool) {
        let count = self.tolerates() + 1 + prng.below((self.members() - self.tolerates()) as u64) as usize;
        let members = self.some_members(prng, self.all_members(), count);
        let blocks = if prng.chance(1, 3) { 10 + prng.below(60) } else { 1 + prng.below(4) };
        let has_superblocks = self.swarm.is_rough && prng.chance(1, 3) && !self.has_few_active_zones();
        let first = if has_superblocks { 0 } else { METADATA_ZONES };
        let has_zones = self.swarm.injected_faults.zones && !is_temporary && prng.chance(1, 6);
        self.simulation.trace(|| format!("damage to about {blocks} blocks of each of members {:?}", places(members)));
        let mut same: Vec<Lba> = Vec::new();
        let is_same = prng.chance(1, 2);
        for at in places(members) {
            let drive = &mut self.simulation.drives[at];
            for number in 0..blocks as usize {
                let known = same.get(number).copied().filter(|lba| is_same && drive.has_block(*lba));
                let Some(lba) = known.or_else(|| drive.aimed_block(prng, first)) else { break };
                if same.len() == number {
                    same.push(lba);
                }
                if is_temporary || prng.chance(1, 3) {
                    drive.lose_block(lba);
                } else {
                    drive.rot(lba);
                }
                self.outcome.injected_faults += 1;
                self.simulation.journal.trace(self.simulation.before, || format!("damage: member {at}, block {lba}"));
            }
            let zone = METADATA_ZONES + prng.below(u64::from(drive.geometry().zone_count - METADATA_ZONES)) as u32;
            if has_zones && prng.chance(1, 2) {
                // An empty zone that went offline makes later mounts refuse.
                drive.degrade(zone, ZoneState::ReadOnly);
                self.simulation
                    .journal
                    .trace(self.simulation.before, || format!("damage: member {at}, zone {zone} is read only"));
            }
        }
    }

    /// Whether a rebuild of lost blocks may find no zone that it may activate.
    fn has_few_active_zones(&self) -> bool {
        self.swarm
            .geometries
            .iter()
            .any(|geometry| geometry.max_active_zones.is_some_and(|most| most <= FEW_ACTIVE_ZONES))
    }

    fn make_readable(&mut self) {
        self.simulation.trace(|| "unreadable blocks are readable again".to_owned());
        self.simulation.drives.iter_mut().for_each(super::super::Drive::make_readable);
    }
}
