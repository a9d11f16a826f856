//! [`PoolZone`]: what each zone of the drive of a pool is used for, for reports.

use zonda_elastic::ZoneRole;
use zonda_zoned::{Blocks, ZoneIndex, ZoneState};

use super::shared::OpenPool;

/// A zone of the drive of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolZone {
    /// What the pool uses it for.
    pub role: ZoneRole,
    /// Its state, and its blocks below the write pointer; `None` if the drive is a namespace of
    /// another server.
    pub state: Option<(ZoneState, Blocks)>,
}

impl OpenPool {
    /// The zones of the drive, in order.
    pub(super) fn zones(&self) -> Vec<PoolZone> {
        let pool = self.pool();
        let roles = (0..self.drive_geometry().zone_count).map_while(|zone| pool.zone_role(ZoneIndex(zone)));
        let mut zones: Vec<PoolZone> = roles.map(|role| PoolZone { role, state: None }).collect();
        let mut next = zones.iter_mut();
        self.device.drive().member().drive.visit_zones(&mut |state, written| {
            if let Some(zone) = next.next() {
                zone.state = Some((state, written));
            }
        });
        zones
    }
}
