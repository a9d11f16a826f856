//! What holds at any moment: limits, spares, and the owners of zones.

use std::collections::BTreeMap;

use zonda_zoned::{NamespaceId, ZoneIndex};

use super::host::Stage;
use super::run::{Device, ElasticRun};
use crate::observe::CheckError;
use crate::outcome::FailureKind;

impl ElasticRun<'_> {
    /// Checks what a host and the owner of a pool can see.
    pub(super) fn check(&mut self) -> Result<(), CheckError> {
        let Some(pool) = self.device.as_ref().and_then(Device::pool) else { return Ok(()) };
        pool.check_invariants();
        let wrong = |kind, message: String| Err(CheckError::new(kind, None, message));
        let (mut own, mut lent, mut leased, mut has_all) = (0, 0, 0, true);
        let mut owners: BTreeMap<ZoneIndex, (NamespaceId, u32)> = BTreeMap::new();
        let listed: Vec<NamespaceId> = pool.namespaces().iter().map(|(id, _)| id).collect();
        for id in &listed {
            let share = pool.share(*id).expect("it is listed");
            own += share.spares_own;
            lent += share.spares_lent;
            leased += share.spares_leased;
            let table = pool.table(*id).expect("it is listed");
            let geometry = table.geometry();
            let limits = [
                ("active", geometry.max_active_zones, table.active_zones()),
                ("open", geometry.max_open_zones, table.open_zones()),
            ];
            for (what, limit, number) in limits {
                if limit.is_some_and(|limit| number > limit) {
                    return wrong(FailureKind::LimitExceeded, format!("namespace {id} has {number} {what} zones"));
                }
            }
            for zone in 0..geometry.zone_count {
                for physical in pool.physical_zones(*id, ZoneIndex(zone)) {
                    if let Some((other, before)) = owners.insert(physical, (*id, zone)) {
                        let message = format!(
                            "zone {physical} of the drive is in zone {before} of namespace {other} and in zone {zone} of \
                             namespace {id}"
                        );
                        return wrong(FailureKind::WrongContents, message);
                    }
                }
            }
        }
        for tenant in &self.tenants {
            has_all &= !matches!(tenant.stage, Stage::Deleting | Stage::Creating);
            let Some(geometry) = pool.table(tenant.id).map(|table| table.geometry().clone()) else { continue };
            let capacity = geometry.zone_capacity_blocks.0;
            let active = tenant.zones.iter().filter(|zone| zone.is_active(capacity)).count() as u32;
            // The error of a write that has found no space arrives after another zone may have become active.
            let is_late = self.lacked_space || self.simulation.faults.full_every > 0;
            if geometry.max_active_zones.is_some_and(|limit| active > limit) && tenant.stage == Stage::Live && !is_late
            {
                let message = format!("namespace {}: the host has made {active} zones active", tenant.id);
                return wrong(FailureKind::LimitExceeded, message);
            }
        }
        let spares = pool.shape().spare_zones;
        let is_conserved = listed.is_empty() || !has_all || own == spares;
        if !is_conserved || (has_all && lent != leased) {
            let message =
                format!("the drive has {spares} spares; namespaces own {own}, have lent {lent} and leased {leased}");
            return wrong(FailureKind::LimitExceeded, message);
        }
        Ok(())
    }

    /// Checks what holds while nothing is in flight.
    pub(super) fn check_quiescent(&mut self) -> Result<(), CheckError> {
        self.check()?;
        let pool = self.pool();
        let counts = pool.zone_counts();
        let mut in_groups = pool.zones_of_copies();
        for (id, geometry) in pool.namespaces().iter() {
            let own: usize = (0..geometry.zone_count).map(|zone| pool.physical_zones(id, ZoneIndex(zone)).len()).sum();
            in_groups += own as u32;
            let table = pool.table(id).expect("it is listed");
            let share = pool.share(id).expect("it is listed");
            let is_explained = !self.touched.is_empty() || self.lacked_space;
            if table.active_zones() == 0 && share.spares_used > 0 && !is_explained {
                let message = format!("namespace {id} has no active zone, and uses {} spares", share.spares_used);
                return Err(CheckError::new(FailureKind::Leak, None, message));
            }
        }
        if self.touched.is_empty()
            && !self.is_read_only
            && (counts.in_groups != in_groups || counts.retired + counts.set_aside > 0)
        {
            let message = format!("{in_groups} zones of the drive are in v-zones, and the pool counts {counts:?}");
            return Err(CheckError::new(FailureKind::Leak, None, message));
        }
        Ok(())
    }
}
