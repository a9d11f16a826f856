//! A drive model as a subject, in virtual time.

use zonda_profiler::VirtualClock;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Blocks, Duration, Geometry, LiveClock, NamespaceId, PayloadKind, Prng, ZoneIndex, ZonedDevice};

use crate::{PrepareFailed, Subject};

/// A simulated drive. Its zones are full at first, filled in the order of their numbers. For each
/// load it begins as a new drive, whose zones are filled without time passing.
pub struct ModelSubject {
    profile: Profile,
    geometry: Geometry,
    prng: Prng,
    drive: Ssd,
    clock: VirtualClock,
    scratch: Vec<ZoneIndex>,
}

impl ModelSubject {
    /// A drive of this profile. With `may_write`, its zones may be written and reset.
    #[must_use]
    pub fn new(profile: Profile, may_write: bool, seed: u64) -> ModelSubject {
        let prng = Prng::new(seed);
        let drive = Ssd::new(&profile, PayloadKind::None, &prng);
        let geometry = drive.geometry(NamespaceId::FIRST).clone();
        let zones = geometry.conventional_zone_count..geometry.zone_count;
        let scratch = if may_write { zones.map(ZoneIndex).collect() } else { Vec::new() };
        let clock = VirtualClock::default();
        let mut subject = ModelSubject { profile, geometry, prng, drive, clock, scratch };
        let full: Vec<(ZoneIndex, Blocks)> = subject.readable();
        subject.prepare(&full).expect("full zones hold no active resource");
        subject
    }
}

impl Subject for ModelSubject {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn payload(&self) -> PayloadKind {
        PayloadKind::None
    }

    fn readable(&self) -> Vec<(ZoneIndex, Blocks)> {
        (0..self.geometry.zone_count).map(|zone| (ZoneIndex(zone), self.geometry.zone_capacity_blocks)).collect()
    }

    fn scratch(&self) -> &[ZoneIndex] {
        &self.scratch
    }

    fn active_max(&self) -> u32 {
        self.geometry.max_active_zones.unwrap_or(u32::MAX)
    }

    fn preparation(&self, _fills: &[(ZoneIndex, Blocks)]) -> Duration {
        Duration::ZERO
    }

    fn prepare(&mut self, fills: &[(ZoneIndex, Blocks)]) -> Result<(), PrepareFailed> {
        self.drive = Ssd::new(&self.profile, PayloadKind::None, &self.prng);
        // A drive that may only be read keeps its data.
        let mut fills = if self.scratch.is_empty() { self.readable() } else { fills.to_vec() };
        // In the order of their numbers, which decides on dies where they are taken in turn.
        fills.sort_unstable_by_key(|(zone, _)| *zone);
        for (zone, blocks) in fills {
            let filled = self.drive.prefill(zone, blocks);
            filled.map_err(|status| PrepareFailed { zone, operation: "fill", status })?;
        }
        Ok(())
    }

    fn forget(&mut self, _zones: &[ZoneIndex]) {}

    fn parts(&mut self) -> (&mut dyn ZonedDevice, &mut dyn LiveClock) {
        (&mut self.drive, &mut self.clock)
    }
}
