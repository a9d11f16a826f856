//! The invariants of a store.

use std::collections::BTreeMap;

use zonda_zoned::ZoneIndex;

use crate::FileStore;
use crate::extents::Run;

use super::Phase;
use super::commands::InFlight;
use super::files::Writer;
use super::zones::Holder;

impl FileStore {
    /// Asserts the invariants, which hold between any two events. Takes time in proportion to all
    /// files and zones.
    ///
    /// # Panics
    /// If an invariant is violated: the store has a bug.
    pub fn check_invariants(&self) {
        if !matches!(self.phase, Phase::Ready) || self.seeded.is_any() {
            return;
        }
        self.commands.check_invariants();
        self.log.check_invariants(&self.shape);
        self.reads.check_invariants();
        self.files.check_invariants(&self.shape, self.config.file_buffer_bytes);
        self.zones.check_invariants(self.shape.active_max);
        self.migrator.check_invariants();
        self.check_holders();
        self.check_waiting();
        self.check_claims();
        self.check_counts();
    }

    /// Each holder that notes that it waits is in the queue once, and no other one is.
    fn check_waiting(&self) {
        let mut says_waiting: Vec<Holder> = self
            .files
            .iter()
            .filter(|(_, file)| file.writer().is_some_and(Writer::is_waiting_for_zone))
            .map(|(id, _)| Holder::File(id))
            .collect();
        says_waiting.extend(self.migrator.is_waiting_for_zone().then_some(Holder::Migration));
        let mut waiting: Vec<Holder> = self.placement.waiting().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, says_waiting, "a holder that waits for a zone is in the queue");
    }

    fn check_holders(&self) {
        for (zone, entry) in self.zones.iter() {
            let held = match entry.holder {
                None => continue,
                Some(Holder::File(id)) => self.files[id].writer().and_then(Writer::zone),
                Some(Holder::Migration) => self.migrator.target(),
            };
            assert_eq!(held, Some(zone), "holder and zone know each other");
        }
    }

    /// Blocks in use belong to files, to copies, or to extents that records still contain.
    fn check_claims(&self) {
        let mut claims: BTreeMap<ZoneIndex, (u32, u64)> = BTreeMap::new();
        let mut claim = |run: &Run| {
            let entry = claims.entry(run.zone).or_default();
            entry.0 += run.blocks;
            entry.1 += run.bytes(self.shape.block_bytes);
        };
        for (_, file) in self.files.iter() {
            file.runs().for_each(|run| claim(&run));
        }
        if self.log.failed().is_none() {
            self.log.releases().for_each(&mut claim);
        }
        self.migrator.copy().into_iter().for_each(&mut claim);
        let mut writes = 0;
        for in_flight in self.commands.iter() {
            match in_flight {
                InFlight::Write { file, run, .. } => {
                    writes += 1;
                    if !self.files.contains(*file) {
                        claim(run);
                    }
                }
                InFlight::MigrationWrite { run } => {
                    writes += 1;
                    claim(run);
                }
                _ => {}
            }
        }
        assert_eq!(
            self.zones.iter().map(|(_, entry)| entry.writes as usize).sum::<usize>(),
            writes,
            "writes in flight are counted in their zones"
        );
        for (zone, entry) in self.zones.iter() {
            let claimed = claims.get(&zone).copied().unwrap_or_default();
            if self.log.failed().is_none() {
                assert_eq!((entry.live_blocks, entry.live_bytes), claimed, "live data in zone {zone}");
            }
        }
    }

    fn check_counts(&self) {
        let of_files: usize = self.files.iter().filter_map(|(_, file)| file.writer()).map(Writer::requests).sum();
        let requests = of_files + self.log.requests() + self.reads.len();
        assert_eq!(self.requests.outstanding(), requests, "every outstanding request waits for an event");
        let mut pins: BTreeMap<ZoneIndex, u32> = BTreeMap::new();
        for in_flight in self.commands.iter() {
            if let InFlight::Read { zone, .. } = in_flight {
                *pins.entry(*zone).or_default() += 1;
            }
        }
        if let Some(zone) = self.migrator.pinned() {
            *pins.entry(zone).or_default() += 1;
        }
        for (zone, entry) in self.zones.iter() {
            assert_eq!(entry.pins, pins.get(&zone).copied().unwrap_or(0), "reads in zone {zone}");
        }
    }
}
