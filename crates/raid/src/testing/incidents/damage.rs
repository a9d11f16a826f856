//! More members are damaged than the volume tolerates: blocks are lost, but never wrong.

use zonda_zoned::{Lba, Prng, ZoneState};

use super::super::{Promise, SwarmRun, Violation};
use super::places;
use crate::VolumeError;
use crate::limits::METADATA_ZONES;

/// With no more active zones a rebuild may wait for ever.
const FEW_ACTIVE_ZONES: u32 = 4;
/// Steps of load between damage and what comes next, at most.
const LOAD_STEPS: u64 = 300;

impl SwarmRun {
    /// Blocks cannot be read while the volume is mounted, and then they can. What was refused has changed nothing.
    pub(super) fn unreadable_blocks(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.make_whole()?;
        // Reads that fail for a while make a mount and the next one take a write that was in flight for different things.
        self.flush()?;
        self.stop(prng);
        self.damage_members(prng, true);
        self.world.suspects = self.all_members();
        self.world.model.is_lost = true;
        if self.try_mount(0)?.is_some() {
            self.make_readable();
            self.world.model.is_lost = false;
            self.world.suspects = 0;
            self.mount(0)?;
            return self.world.read_all();
        }
        self.world.read_each()?;
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        self.make_readable();
        if self.mount_damaged(0)? {
            self.settle_losses()?;
        }
        Ok(())
    }

    /// Blocks rot, cannot be read any more, and zones are lost.
    pub(super) fn damage_beyond_tolerance(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        if prng.chance(1, 2) {
            self.make_whole()?;
        }
        let rebuilds = self.tolerates() > 0 && prng.chance(1, 4) && !self.has_few_active_zones();
        if rebuilds {
            // Of members that do not answer the volume tolerates no more.
            self.make_whole()?;
        }
        self.world.suspects = self.all_members();
        self.world.model.is_lost = true;
        if rebuilds && self.inactive() == 0 {
            let member = prng.below(self.members() as u64) as usize;
            self.world.replace(member)?;
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
        self.settle_losses()?;
        // Without redundancy what is damaged and not needed stays as it is, and a mount cannot know that it was not needed.
        self.is_over |= self.tolerates() == 0;
        Ok(())
    }

    /// Mounts a volume that is damaged; if that is refused for losses, they are accepted. Says whether there is anything left of it.
    fn mount_damaged(&mut self, without: u32) -> Result<bool, Violation> {
        let Some(refused) = self.try_mount(without)? else {
            self.world.read_each()?;
            return Ok(true);
        };
        let knew = self.world.options.newest_epoch;
        self.world.options.accepts_losses = true;
        let again = self.try_mount(without)?;
        self.world.options.accepts_losses = false;
        if let Some(error) = again {
            // Members that have lost all their superblocks are missing.
            self.world.tell(|| format!("nothing is left: {error}"));
            if matches!(error, VolumeError::UnidentifiedLosses { .. }) {
                let what = format!("the losses are accepted, and the mount is refused: {error}");
                return Err(Violation::new(Promise::Mounts, what));
            }
            self.is_over = true;
            return Ok(false);
        }
        self.world.tell(|| format!("losses were accepted: {refused}, known epoch {knew:?}"));
        self.world.model.accept_losses();
        self.world.read_each()?;
        // It is mounted again, without anything that is accepted, and is the same.
        self.outcome.crashes += 1;
        self.world.crash();
        if let Some(error) = self.try_mount(without)? {
            let what = format!("losses that were accepted are refused again: {error}");
            return Err(Violation::new(Promise::Mounts, what));
        }
        if self.world.model.is_cache_volatile {
            // What was not flushed may count for a mount that loses other blocks.
            self.world.model.accept_losses();
        }
        self.world.read_each()?;
        Ok(true)
    }

    /// Damages more members than the volume can do without, for good or for a while.
    fn damage_members(&mut self, prng: &mut Prng, is_temporary: bool) {
        let count = self.tolerates() + 1 + prng.below((self.members() - self.tolerates()) as u64) as usize;
        let members = self.some_members(prng, self.all_members(), count);
        let blocks = if prng.chance(1, 3) { 10 + prng.below(60) } else { 1 + prng.below(4) };
        let has_superblocks = self.swarm.is_rough && prng.chance(1, 3) && !self.has_few_active_zones();
        let first = if has_superblocks { 0 } else { METADATA_ZONES };
        let has_zones = self.swarm.blows.zones && !is_temporary && prng.chance(1, 6);
        self.world.tell(|| format!("members {:?} are damaged, about {blocks} blocks of each", places(members)));
        let mut same: Vec<Lba> = Vec::new();
        let is_same = prng.chance(1, 2);
        for at in places(members) {
            let drive = &mut self.world.drives[at];
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
                self.outcome.blows += 1;
                self.world.journal.tell(self.world.before, || format!("damage: member {at}, block {lba}"));
            }
            let zone = METADATA_ZONES + prng.below(u64::from(drive.geometry().zone_count - METADATA_ZONES)) as u32;
            if has_zones && prng.chance(1, 2) {
                // One that is offline and held nothing refuses mounts from then on.
                drive.degrade(zone, ZoneState::ReadOnly);
                self.world.journal.tell(self.world.before, || format!("damage: member {at}, zone {zone} is read only"));
            }
        }
    }

    /// Whether a rebuild of blocks that are lost may find no zone that it may have active.
    fn has_few_active_zones(&self) -> bool {
        self.swarm
            .geometries
            .iter()
            .any(|geometry| geometry.max_active_zones.is_some_and(|most| most <= FEW_ACTIVE_ZONES))
    }

    fn make_readable(&mut self) {
        self.world.tell(|| "blocks that could not be read can be read".to_owned());
        self.world.drives.iter_mut().for_each(super::super::Drive::make_readable);
    }
}
