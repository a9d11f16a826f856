//! The invariants of a store.

use std::collections::BTreeMap;

use zonda_zoned::ZoneIndex;

use crate::FileStore;
use crate::extents::Run;
use crate::format::record::EXTENT_COST_BYTES;

use super::Phase;
use super::commands::InFlight;
use super::names::cost;
use super::zones::{Holder, State};

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
        self.reads.check_invariants();
        self.check_files();
        self.check_zones();
        self.check_claims();
        self.check_counts();
    }

    fn check_files(&self) {
        let block_bytes = self.shape.block_bytes;
        let mut snapshot_bytes = self.shape.empty_snapshot_bytes();
        assert_eq!(self.names.len(), self.files.len(), "every file has one name");
        for (name, id) in &self.names {
            let file = &self.files[id];
            assert_eq!(&file.meta.name, name, "a name belongs to its file");
            file.meta.extents.check_invariants(block_bytes);
            let mut extents = file.meta.extents.count();
            assert!(file.recorded_bytes <= file.meta.extents.len_bytes(), "records contain only data on the media");
            if let Some(writer) = &file.writer {
                writer.check_invariants(self.shape.keeps_bytes(), block_bytes);
                extents += writer.chunks.len();
                let is_waiting = self.waiting.contains(&Holder::File(*id));
                assert_eq!(is_waiting, writer.is_waiting_for_zone, "a writer that waits for a zone is in the queue");
                assert!(!is_waiting || writer.zone.is_none(), "a writer with a zone does not wait for one");
                assert!(writer.buffered_bytes() <= u64::from(self.config.file_buffer_bytes), "a buffer is bounded");
            } else {
                assert!(file.meta.is_closed, "a file without a writer is closed");
            }
            snapshot_bytes += cost(name) + EXTENT_COST_BYTES * extents as u64;
        }
        assert_eq!(self.snapshot_bytes, snapshot_bytes, "the bytes of a snapshot");
        assert!(snapshot_bytes <= self.shape.snapshot_bytes_max, "a snapshot fits");
    }

    fn check_zones(&self) {
        let mut active = 0;
        for (zone, entry) in self.zones.iter() {
            active += u32::from(entry.state.is_active());
            assert!(entry.written <= self.shape.capacity_blocks, "zone {zone} is written within its capacity");
            match entry.holder {
                None => {}
                Some(holder) => {
                    assert!(self.zones.free_blocks(zone) > 0, "held zone {zone} is writable");
                    let held = match holder {
                        Holder::File(id) => self.files[&id].writer.as_ref().and_then(|writer| writer.zone),
                        Holder::Migration => self.migrator.target,
                    };
                    assert_eq!(held, Some(zone), "holder and zone know each other");
                }
            }
            if matches!(entry.state, State::Finishing | State::Resetting { .. } | State::Empty) {
                assert!(entry.writes == 0 && entry.holder.is_none(), "no write is in flight to zone {zone}");
            }
            if matches!(entry.state, State::Resetting { .. } | State::Empty) && !entry.is_doubtful {
                assert!(entry.live_blocks == 0 && entry.pins == 0, "zone {zone} has no live data");
            }
        }
        assert_eq!(self.zones.active_count(), active, "active zones are counted");
        if let Some(limit) = self.shape.active_max {
            let healthy = self.zones.iter().all(|(_, entry)| !entry.is_doubtful);
            assert!(active <= limit || !healthy, "{active} zones are active, the limit is {limit}");
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
        for file in self.files.values() {
            file.meta.extents.iter().for_each(|extent| claim(&extent.run));
            file.chunk_runs().for_each(|run| claim(&run));
        }
        if self.log.failed.is_none() {
            self.log.releases().for_each(&mut claim);
        }
        self.migrator.copy().into_iter().for_each(&mut claim);
        let mut writes = 0;
        for in_flight in self.commands.iter() {
            match in_flight {
                InFlight::Write { file, run, .. } => {
                    writes += 1;
                    if !self.files.contains_key(file) {
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
            if self.log.failed.is_none() {
                assert_eq!((entry.live_blocks, entry.live_bytes), claimed, "live data in zone {zone}");
            }
        }
    }

    fn check_counts(&self) {
        let of_files: usize =
            self.files.values().filter_map(|file| file.writer.as_ref()).map(|writer| writer.requests()).sum();
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
