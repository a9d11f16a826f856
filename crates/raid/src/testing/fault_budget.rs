//! Injected faults within the redundancy: never more members affected at a time than a volume
//! tolerates, so that any loss is a bug.

use std::fmt;

use zonda_zoned::{Lba, Prng, ZoneState};

use super::{Drive, Faults, Presence};
use crate::limits::METADATA_ZONES;

/// Which members may be damaged, and how much.
#[derive(Clone, Debug)]
pub struct FaultBudget {
    victims: Vec<usize>,
    /// Zones that may still fail, on each victim: a volume needs space.
    zones_left: u32,
    /// Victims with a damaged superblock, as bits: two damaged copies of one, on as many members as
    /// the volume tolerates, are more than it survives.
    superblocks: u32,
    is_rough: bool,
    injected_faults: InjectedFaultKinds,
    /// A victim may be damaged.
    may_have_damage: bool,
}

/// Which kinds of faults are injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedFaultKinds {
    /// Bits that flip, and blocks that cannot be read.
    pub rot: bool,
    /// Zones that become read only or offline.
    pub zones: bool,
    /// Members that are removed, or fail.
    pub members: bool,
}

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A bit of a block was flipped.
    Rot(usize, Lba),
    /// A block cannot be read.
    LostBlock(usize, Lba),
    /// A zone became read only or offline.
    Zone(usize, u32, ZoneState),
    /// The member was removed, or fails every command.
    Member(usize, Presence),
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InjectedFault::Rot(member, lba) => write!(f, "member {member}: block {lba} corrupted"),
            InjectedFault::LostBlock(member, lba) => write!(f, "member {member}: block {lba} unreadable"),
            InjectedFault::Zone(member, zone, state) => write!(f, "member {member}: zone {zone} {state}"),
            InjectedFault::Member(member, presence) => write!(f, "member {member}: {presence}"),
        }
    }
}

impl FaultBudget {
    /// Chooses victims: at most `tolerates` of `members`. If `is_rough`, whole members may fail
    /// too.
    pub fn choose(
        prng: &mut Prng,
        members: usize,
        tolerates: usize,
        is_rough: bool,
        injected_faults: InjectedFaultKinds,
    ) -> FaultBudget {
        let mut all: Vec<usize> = (0..members).collect();
        let count = prng.below(tolerates as u64 + 1) as usize;
        let victims = (0..count).map(|_| all.swap_remove(prng.below(all.len() as u64) as usize)).collect();
        FaultBudget { victims, zones_left: 2, superblocks: 0, is_rough, injected_faults, may_have_damage: false }
    }

    /// The budget after these members, as bits, may have been damaged.
    pub(super) fn of_damaged(members: u32, is_rough: bool, injected_faults: InjectedFaultKinds) -> FaultBudget {
        let victims = (0..u32::BITS as usize).filter(|at| members >> at & 1 == 1).collect();
        FaultBudget { victims, zones_left: 0, superblocks: 0, is_rough, injected_faults, may_have_damage: true }
    }

    /// Whether a victim may be damaged.
    #[must_use]
    pub fn may_have_damage(&self) -> bool {
        self.may_have_damage
    }

    /// A victim may be damaged by its own faults.
    pub(super) fn mark_damaged(&mut self) {
        self.may_have_damage = !self.victims.is_empty();
    }

    /// The members that may be damaged, as bits.
    #[must_use]
    pub fn victims(&self) -> u32 {
        self.victims.iter().fold(0, |bits, &victim| bits | 1 << victim)
    }

    /// Random faults of a running member's commands, more of them on victims.
    pub fn faults(&self, prng: &mut Prng, member: usize) -> Faults {
        let is_victim = self.victims.contains(&member);
        let mut rate = |most: u64| if prng.chance(1, 2) { prng.below(most + 1) } else { 0 };
        // A member that cannot write superblocks is failed, and what cannot be read is lost: only
        // victims get these faults.
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

    /// Injects a fault into a random victim, if there is any.
    pub fn inject(&mut self, prng: &mut Prng, drives: &mut [Drive]) -> Option<InjectedFault> {
        let &victim = prng.pick(&self.victims)?;
        self.may_have_damage = true;
        let drive = &mut drives[victim];
        match prng.below(if self.is_rough { 16 } else { 15 }) {
            0..12 if !self.injected_faults.rot => None,
            12..15 if !self.injected_faults.zones => None,
            15.. if !self.injected_faults.members => None,
            0..8 => {
                let lba = drive.some_block(0)?;
                self.superblocks = use_up_superblock(self.superblocks, victim, drive.geometry().zone_of(lba)?.0)?;
                drive.rot(lba);
                Some(InjectedFault::Rot(victim, lba))
            }
            8..12 => {
                let lba = drive.some_block(0)?;
                self.superblocks = use_up_superblock(self.superblocks, victim, drive.geometry().zone_of(lba)?.0)?;
                drive.lose_block(lba);
                Some(InjectedFault::LostBlock(victim, lba))
            }
            12..15 => {
                self.zones_left = self.zones_left.checked_sub(1)?;
                let first = if self.is_rough { 0 } else { METADATA_ZONES };
                let zones = u64::from(drive.geometry().zone_count - first);
                let zone = first + prng.below(zones) as u32;
                let to = if prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
                if to == ZoneState::Offline {
                    self.superblocks = use_up_superblock(self.superblocks, victim, zone)?;
                }
                drive.degrade(zone, to);
                Some(InjectedFault::Zone(victim, zone, to))
            }
            _ => {
                let presence = if prng.chance(1, 2) { Presence::Unresponsive } else { Presence::Failing };
                drive.set_presence(presence);
                Some(InjectedFault::Member(victim, presence))
            }
        }
    }
}

/// The victims with a damaged superblock including this one; `None` if it had one already. Only
/// zones of superblocks count.
fn use_up_superblock(damaged: u32, victim: usize, zone: u32) -> Option<u32> {
    let bit = if zone < METADATA_ZONES { 1 << victim } else { 0 };
    (damaged & bit == 0).then_some(damaged | bit)
}
