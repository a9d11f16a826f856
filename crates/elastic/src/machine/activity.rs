//! What a pool is doing, and what it lacks: for operators.

use zonda_zoned::{Blocks, NamespaceId, ZoneIndex};

use super::Pool;

/// What a pool is doing, and what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// It is being opened again, or waits for its last commands before that: hosts wait.
    pub is_reopening: bool,
    /// A write has failed because the drive had no space, or a record of the log.
    pub lacks_space: bool,
    /// Active zones of the drive in stripe groups.
    pub active_in_groups: u32,
    /// Active zones of the drive that stripe groups could have at once.
    pub active_left: u32,
    /// Zones in no stripe group that may be active all the same, because a command to them has failed:
    /// they count as active until the drive reports their state.
    pub doubtful_zones: u32,
    /// The v-zone whose last group is being copied into narrower ones.
    pub reclaim: Option<ReclaimProgress>,
}

/// The progress of a copy that reclaims spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimProgress {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The v-zone.
    pub zone: ZoneIndex,
    /// Blocks that were copied,
    pub copied: Blocks,
    /// of this many.
    pub blocks: Blocks,
}

impl Pool {
    /// What the pool is doing, and what it lacks.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity {
            is_reopening: self.is_paused,
            lacks_space: self.lacks_space || self.log_lacks_space || self.no_space_until.is_some(),
            active_in_groups: self.zones.active_in_groups(),
            active_left: self.zones.obtainable(),
            doubtful_zones: self.zones.doubtful(),
            reclaim: self.reclaim.as_ref().and_then(|reclaim| reclaim.progress(&self.namespaces)),
        }
    }

    /// V-zones of a namespace whose writes wait for a stripe group, because no active zone of the drive
    /// is left for one, or no empty zone.
    #[must_use]
    pub fn waiting_vzones(&self, namespace: NamespaceId) -> u32 {
        let vzones = self.namespaces.get(&namespace.0).map_or(&[][..], |own| &own.vzones);
        vzones.iter().filter(|vzone| vzone.wants_group).count() as u32
    }
}
