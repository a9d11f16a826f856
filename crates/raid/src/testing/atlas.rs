//! Faults within the promise: never more members affected at a time than a volume can do without, so that any loss is a bug.

use zonda_zoned::{Lba, Prng, ZoneState};

use super::{Drive, Faults, Presence};
use crate::limits::METADATA_ZONES;

/// Who may be hurt, and how much.
#[derive(Clone, Debug)]
pub struct Atlas {
    victims: Vec<usize>,
    /// Zones that may still die, on each victim: a volume needs room.
    zones_left: u32,
    /// Victims of which a superblock was damaged, as bits: two copies of one, on as many members as the volume can do with, are more than
    /// it survives.
    superblocks: u32,
    is_rough: bool,
    blows: Blows,
    /// A victim may be damaged.
    is_hurt: bool,
}

/// Which blows there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blows {
    /// Bits that flip, and blocks that cannot be read.
    pub rot: bool,
    /// Zones that become read only or offline.
    pub zones: bool,
    /// Members that are pulled, or fail.
    pub members: bool,
}

/// What was done to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// A bit of a block was flipped.
    Rot(usize, Lba),
    /// A block cannot be read.
    LostBlock(usize, Lba),
    /// A zone became read only or offline.
    Zone(usize, u32, ZoneState),
    /// The member was pulled, or fails every command.
    Member(usize, Presence),
}

impl Atlas {
    /// Chooses victims: at most `tolerates` of so many members. A rough atlas takes whole members too.
    pub fn draw(prng: &mut Prng, members: usize, tolerates: usize, is_rough: bool, blows: Blows) -> Atlas {
        let mut all: Vec<usize> = (0..members).collect();
        let count = prng.below(tolerates as u64 + 1) as usize;
        let victims = (0..count).map(|_| all.swap_remove(prng.below(all.len() as u64) as usize)).collect();
        Atlas { victims, zones_left: 2, superblocks: 0, is_rough, blows, is_hurt: false }
    }

    /// These members, as bits, were hurt.
    pub(super) fn of_hurt(members: u32, is_rough: bool, blows: Blows) -> Atlas {
        let victims = (0..u32::BITS as usize).filter(|at| members >> at & 1 == 1).collect();
        Atlas { victims, zones_left: 0, superblocks: 0, is_rough, blows, is_hurt: true }
    }

    /// Whether a victim may be damaged.
    #[must_use]
    pub fn is_hurt(&self) -> bool {
        self.is_hurt
    }

    /// A victim may be damaged by what it does itself.
    pub(super) fn set_hurt(&mut self) {
        self.is_hurt = !self.victims.is_empty();
    }

    /// The members that may be hurt, as bits.
    #[must_use]
    pub fn victims(&self) -> u32 {
        self.victims.iter().fold(0, |bits, &victim| bits | 1 << victim)
    }

    /// Faults of a member that goes on: those of the drive's own commands, of victims more than of others.
    pub fn faults(&self, prng: &mut Prng, member: usize) -> Faults {
        let is_victim = self.victims.contains(&member);
        let mut rate = |most: u64| if prng.chance(1, 2) { prng.below(most + 1) } else { 0 };
        // Whoever cannot write superblocks is given up, and what cannot be read is lost: that is for victims.
        let mut faults = Faults { refusals: rate(100), writes: rate(10), ..Faults::default() };
        if is_victim {
            faults.reads = rate(60);
            faults.finishes = rate(30);
            faults.superblocks = rate(30);
            faults.writes = rate(60);
            faults.flushes = rate(20);
        }
        faults
    }

    /// Hurts one of the victims, if there are any.
    pub fn strike(&mut self, prng: &mut Prng, drives: &mut [Drive]) -> Option<Blow> {
        let &victim = prng.pick(&self.victims)?;
        self.is_hurt = true;
        let drive = &mut drives[victim];
        match prng.below(if self.is_rough { 16 } else { 15 }) {
            0..12 if !self.blows.rot => None,
            12..15 if !self.blows.zones => None,
            15.. if !self.blows.members => None,
            0..8 => {
                let lba = drive.some_block(0)?;
                self.superblocks = spend_superblock(self.superblocks, victim, drive.geometry().zone_of(lba)?.0)?;
                drive.rot(lba);
                Some(Blow::Rot(victim, lba))
            }
            8..12 => {
                let lba = drive.some_block(0)?;
                self.superblocks = spend_superblock(self.superblocks, victim, drive.geometry().zone_of(lba)?.0)?;
                drive.lose_block(lba);
                Some(Blow::LostBlock(victim, lba))
            }
            12..15 => {
                self.zones_left = self.zones_left.checked_sub(1)?;
                let first = if self.is_rough { 0 } else { METADATA_ZONES };
                let zones = u64::from(drive.geometry().zone_count - first);
                let zone = first + prng.below(zones) as u32;
                let to = if prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
                if to == ZoneState::Offline {
                    self.superblocks = spend_superblock(self.superblocks, victim, zone)?;
                }
                drive.degrade(zone, to);
                Some(Blow::Zone(victim, zone, to))
            }
            _ => {
                let presence = if prng.chance(1, 2) { Presence::Silent } else { Presence::Failing };
                drive.set_presence(presence);
                Some(Blow::Member(victim, presence))
            }
        }
    }
}

/// The victims of which a superblock was damaged, with this one; `None` if one of it was damaged before. Only that of a metadata zone counts.
fn spend_superblock(damaged: u32, victim: usize, zone: u32) -> Option<u32> {
    let bit = if zone < METADATA_ZONES { 1 << victim } else { 0 };
    (damaged & bit == 0).then_some(damaged | bit)
}
