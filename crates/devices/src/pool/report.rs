//! [`PoolReport`]: the state of a pool and its namespaces.

use serde::{Deserialize, Serialize};
use zonda_elastic::{Activity, Pool, ReclaimProgress, Share};
use zonda_zoned::{Geometry, NamespaceId, ZoneIndex};

use crate::{DriveFacts, random};

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReport {
    /// The UUID of the pool.
    pub pool: String,
    /// The location of its drive, as in `pool.toml`.
    pub drive: String,
    /// Counts the programs that have opened it.
    pub epoch: u64,
    /// The scheduler before the drive; `None` without one, or while no server uses the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Both copies of its log have failed: nothing can be written any more.
    pub is_read_only: bool,
    /// It is being opened again, after its drive has lacked space or its log has failed: hosts wait.
    #[serde(default)]
    pub is_reopening: bool,
    /// The connection to its drive is lost, and is being made again: hosts wait.
    #[serde(default)]
    pub is_disconnected: bool,
    /// What its drive's server has is not the pool as it was left: hosts wait.
    #[serde(default)]
    pub is_drive_refused: bool,
    /// Another server has taken the pool over: commands of its hosts fail here.
    #[serde(default)]
    pub is_taken_over: bool,
    /// Writes have failed because the drive had no space.
    #[serde(default)]
    pub lacks_space: bool,
    /// Copies of its log that can be written, of two.
    #[serde(default)]
    pub log_copies: u32,
    /// Physical zones of a zone of a namespace.
    pub zones_per_vzone: u32,
    /// The most bytes that a zone of a namespace holds.
    pub zone_capacity_bytes: u64,
    /// Active zones that suffice for the write bandwidth of the drive.
    pub essential_zones: u32,
    /// Active zones beyond.
    pub spare_zones: u32,
    /// The widest stripe group.
    pub width_max: u32,
    /// Zones of the drive.
    #[serde(default)]
    pub drive_zones: u64,
    /// What its zones hold; a server of an earlier version does not say it.
    #[serde(default)]
    pub drive_capacity_bytes: u64,
    /// Zones of the drive for the log of the pool.
    #[serde(default)]
    pub log_zones: u64,
    /// Physical zones that namespaces can have together.
    pub usable_zones: u64,
    /// Physical zones that are promised to namespaces.
    pub promised_zones: u64,
    /// Physical zones in stripe groups.
    pub zones_in_groups: u32,
    /// Active zones of the drive in stripe groups.
    #[serde(default)]
    pub active_in_groups: u32,
    /// Active zones of the drive that stripe groups could have at once.
    #[serde(default)]
    pub active_left: u32,
    /// Empty physical zones.
    #[serde(default)]
    pub zones_free: u32,
    /// Physical zones that are being reset.
    #[serde(default)]
    pub zones_resetting: u32,
    /// Physical zones that may be active although they are in no stripe group, because a command to them
    /// has failed.
    #[serde(default)]
    pub zones_doubtful: u32,
    /// Physical zones that have failed.
    pub zones_retired: u32,
    /// Physical zones with contents that are not the pool's, or that could not be read.
    pub zones_set_aside: u32,
    /// The zone whose last stripe group is being copied into narrower ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimReport>,
    /// Stripe groups that were copied since the pool was opened.
    #[serde(default)]
    pub reclaimed_groups: u64,
    /// In the order of their identifiers.
    pub namespaces: Vec<PoolNamespaceReport>,
}

/// The progress of a copy that reclaims spares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimReport {
    /// The name of the namespace.
    pub namespace: String,
    /// The zone of the namespace.
    pub zone: u32,
    /// Bytes that were copied,
    pub copied_bytes: u64,
    /// of this many.
    pub bytes: u64,
}

/// Zones in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonesInState {
    /// The state, in words.
    pub state: String,
    /// How many.
    pub zones: u32,
}

/// The state of a namespace of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolNamespaceReport {
    /// Its identifier in the pool.
    #[serde(default)]
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its UUID, which hosts see.
    pub uuid: String,
    /// Zones.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_capacity_bytes: u64,
    /// Bytes of all zones.
    pub size_bytes: u64,
    /// Bytes below write pointers.
    pub written_bytes: u64,
    /// Zones in each state; states without a zone are left out.
    #[serde(default)]
    pub zones_by_state: Vec<ZonesInState>,
    /// Zones whose writes wait for a stripe group: the drive has no active zone left, or no empty one.
    #[serde(default)]
    pub waiting_zones: u32,
    /// Zones that hold an active resource.
    pub active_zones: u32,
    /// The most zones that may be active.
    pub max_active_zones: u32,
    /// Its part of the active zones of the drive, relative to that of others.
    pub weight: u32,
    /// Active zones of the drive that are always available to it.
    pub essentials: u32,
    /// Spares of its own, including those that it has lent.
    pub spares_own: u32,
    /// Its own spares that others have.
    pub spares_lent: u32,
    /// Spares of others that it has.
    pub spares_leased: u32,
    /// Spares in its stripe groups that can still be written.
    pub spares_used: u32,
    /// Its stripe groups that can still be written, the narrowest first.
    #[serde(default)]
    pub writable_groups: Vec<PoolGroupCount>,
}

/// Stripe groups of one width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolGroupCount {
    /// Physical zones of each.
    pub width: u32,
    /// How many there are.
    pub groups: u32,
}

impl PoolReport {
    /// The state of a pool on a drive of this geometry at this location.
    pub(super) fn of(pool: &Pool, activity: Activity, drive: &Geometry, location: &str) -> PoolReport {
        let (shape, counts) = (pool.shape(), pool.zone_counts());
        let lost = u64::from(counts.retired) + u64::from(counts.set_aside);
        let ids: Vec<NamespaceId> = pool.namespaces().iter().map(|(id, _)| id).collect();
        PoolReport {
            pool: random::uuid_text(&pool.id().0),
            drive: location.to_owned(),
            epoch: pool.epoch(),
            scheduler: None,
            is_read_only: pool.is_read_only(),
            is_reopening: activity.is_reopening,
            is_disconnected: false,
            is_drive_refused: false,
            is_taken_over: false,
            lacks_space: activity.lacks_space,
            log_copies: pool.log_copies() as u32,
            zones_per_vzone: shape.zones_per_vzone,
            zone_capacity_bytes: shape.vzone_capacity_blocks().bytes(drive.block_size_bytes),
            essential_zones: shape.essential_zones,
            spare_zones: shape.spare_zones,
            width_max: shape.width_max,
            drive_zones: drive.zone_count.into(),
            drive_capacity_bytes: u64::from(drive.zone_count)
                * drive.zone_capacity_blocks.bytes(drive.block_size_bytes),
            log_zones: zonda_elastic::limits::LOG_ZONES.into(),
            usable_zones: u64::from(shape.promised_max()).saturating_sub(lost),
            promised_zones: pool.promised_zones(),
            zones_in_groups: counts.in_groups,
            active_in_groups: activity.active_in_groups,
            active_left: activity.active_left,
            zones_free: counts.free,
            zones_resetting: counts.resetting,
            zones_doubtful: activity.doubtful_zones,
            zones_retired: counts.retired,
            zones_set_aside: counts.set_aside,
            reclaim: activity.reclaim.and_then(|progress| reclaim(pool, drive, progress)),
            reclaimed_groups: pool.reclaimed_groups(),
            namespaces: ids.into_iter().filter_map(|id| namespace(pool, id)).collect(),
        }
    }

    /// What keeps its hosts from reading or writing, and what to do.
    pub fn problems(&self) -> impl Iterator<Item = &'static str> {
        let one_copy = self.log_copies == 1 && !self.is_read_only && !self.lacks_space;
        let is_reopening = self.is_reopening && !self.is_disconnected && !self.is_taken_over;
        [
            (
                self.is_taken_over,
                "taken over by another server: its hosts get errors here. Stop this server, and connect them to the other one",
            ),
            (
                self.is_drive_refused,
                "the drive's server has an older copy or another drive: hosts wait. Start it with the right one; the log says what \
                 is missing",
            ),
            (
                self.is_disconnected && !self.is_drive_refused,
                "the connection to the drive is lost: hosts wait. Start the server of the drive again; the pool reconnects",
            ),
            (
                self.is_read_only && !self.lacks_space,
                "read-only: both copies of the log on the drive have failed. Copy the data to another drive",
            ),
            (
                one_copy,
                "one of the two copies of the log on the drive has failed: if the other one fails, the pool is read-only",
            ),
            (
                self.lacks_space,
                "writes fail: the drive has no space. Free space on its file system; the pool is then opened again",
            ),
            (is_reopening, "being opened again: hosts wait"),
        ]
        .into_iter()
        .filter_map(|(applies, text)| applies.then_some(text))
    }

    /// The namespace of this name.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&PoolNamespaceReport> {
        self.namespaces.iter().find(|namespace| namespace.name == name)
    }
}

fn reclaim(pool: &Pool, drive: &Geometry, progress: ReclaimProgress) -> Option<ReclaimReport> {
    Some(ReclaimReport {
        namespace: pool.namespace_config(progress.namespace)?.name,
        zone: progress.zone.0,
        copied_bytes: progress.copied.bytes(drive.block_size_bytes),
        bytes: progress.blocks.bytes(drive.block_size_bytes),
    })
}

fn namespace(pool: &Pool, id: NamespaceId) -> Option<PoolNamespaceReport> {
    let (config, table, share) = (pool.namespace_config(id)?, pool.table(id)?, pool.share(id)?);
    let Share { essentials, spares_own, spares_lent, spares_leased, spares_used, .. } = share;
    let geometry = table.geometry();
    let states = DriveFacts::of_zones(table).zones_by_state;
    let written: u64 = (0..geometry.zone_count).map(|zone| table.zone(ZoneIndex(zone)).written_blocks.0).sum();
    let groups = pool.writable_groups(id).into_iter();
    Some(PoolNamespaceReport {
        id: id.0,
        name: config.name,
        uuid: random::uuid_text(&config.uuid),
        zones: geometry.zone_count,
        zone_capacity_bytes: geometry.zone_capacity_bytes(),
        size_bytes: geometry.zone_capacity_bytes() * u64::from(geometry.zone_count),
        written_bytes: written * u64::from(geometry.block_size_bytes),
        zones_by_state: states
            .into_iter()
            .map(|(state, zones)| ZonesInState { state: state.to_string(), zones })
            .collect(),
        waiting_zones: pool.waiting_vzones(id),
        active_zones: table.active_zones(),
        max_active_zones: config.max_active_zones,
        weight: config.weight,
        essentials,
        spares_own,
        spares_lent,
        spares_leased,
        spares_used,
        writable_groups: groups.map(|(width, groups)| PoolGroupCount { width, groups }).collect(),
    })
}
