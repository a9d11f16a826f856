//! Hosts that look again at a zone in which a write has found no space, and go on with what they find.

use zonda_elastic::testing::{Content, Crash};
use zonda_zoned::{NamespaceId, ZoneIndex, ZoneState};

use super::host::Stage;
use super::run::ElasticRun;
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// One in so many steps looks, if there is anything to look at.
const LOOKS_EVERY: u64 = 12;

impl ElasticRun<'_> {
    /// Looks at a zone again, now and then. Before a pool that lacks space is opened again, more may stand
    /// than it says.
    pub(super) fn look_again(&mut self) -> Result<(), CheckError> {
        let Some((id, zone)) = self.zone_to_look_at() else { return Ok(()) };
        let before = self.reopenings_of(id, zone);
        let found = self.observe(id)?;
        // What was read may be from before and from after.
        if before.is_none() || self.reopenings_of(id, zone) != before {
            return Ok(());
        }
        let Some(place) = self.tenants.iter().position(|tenant| tenant.id == id) else { return Ok(()) };
        let Some(found) = found.get(zone) else { return Ok(()) };
        if found.blocks.contains(&Content::Unreadable) {
            // What it holds is not known.
            return Ok(());
        }
        let is_excused = self.is_excused(place, zone);
        self.trace.log(self.now, || format!("the host of namespace {id} looks at zone {zone}: {}", found.state));
        let (tag, index) = (self.tenants[place].tag, ZoneIndex(zone as u32));
        let own = &mut self.tenants[place].zones[zone];
        let (crashes, reopenings, finish) = (own.crashes, own.reopenings, own.now.finish);
        own.adopt(found, Crash::Kill, tag, zone as u64, is_excused).map_err(|message| {
            CheckError::new(FailureKind::LostWrite, index, format!("namespace {id}, zone {zone}: {message}"))
        })?;
        if own.now.finish == Some(true) && finish != Some(true) {
            // It was not acknowledged, or the pool has finished it.
            own.now.finish = Some(false);
        }
        // Blocks of a write that has failed may stand in a full zone, and are not durable before a flush.
        own.now.is_cut |= found.state == ZoneState::Full;
        // Nothing was torn by it.
        (own.crashes, own.reopenings) = (crashes.min(own.crashes), reopenings.min(own.reopenings));
        Ok(())
    }

    fn zone_to_look_at(&mut self) -> Option<(NamespaceId, usize)> {
        let pool = self.pool();
        let may_have_more = pool.activity().lacks_space || pool.is_read_only();
        if may_have_more || pool.is_paused() || !pool.is_started() || !self.stalled.is_empty() {
            return None;
        }
        let live = self.tenants.iter().filter(|tenant| tenant.stage == Stage::Live);
        let zones = live.flat_map(|tenant| {
            let waits = tenant.zones.iter().enumerate().filter(|(_, zone)| zone.is_suspended && !zone.has_failed);
            waits.map(|(zone, _)| (tenant.id, zone))
        });
        let is_quiet = |(id, zone): &(NamespaceId, usize)| {
            !self.flights.values().any(|flight| flight.namespace() == Some(*id) && flight.zone() == Some(*zone))
        };
        let zones: Vec<(NamespaceId, usize)> = zones.filter(is_quiet).collect();
        if zones.is_empty() || !self.prng.chance(1, LOOKS_EVERY) {
            return None;
        }
        self.prng.pick(&zones).copied()
    }

    fn reopenings_of(&self, id: NamespaceId, zone: usize) -> Option<u32> {
        let tenant = self.tenants.iter().find(|tenant| tenant.id == id)?;
        tenant.zones.get(zone).filter(|zone| zone.is_suspended && !zone.has_failed).map(|zone| zone.reopenings)
    }
}
