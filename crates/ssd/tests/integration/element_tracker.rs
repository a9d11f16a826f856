//! The element tracker: compared with the model, over restarts, and over crashes.

use crate::support::Rig;
use crate::support::elements::{Shape, profile_of};
use zonda_ssd::allocation::{
    ElementRecord, ElementState, ElementTable, ElementTableError, ElementTracker, ZoneDisposition, ZoneUsage,
};
use zonda_ssd::profile::Profile;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Payload, PayloadKind, Prng, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

/// Drives with every kind of element, two of them with conventional zones; their writes are
/// programmed before they complete.
fn drives() -> Vec<Profile> {
    let wide = Shape { luns: 4, slots: 4, rows: 2, zones: 5 };
    let pairs = Shape { luns: 4, slots: 2, rows: 4, zones: 6 };
    let drives = [
        (wide, "allocation = \"fixed\"", 0),
        (wide, "allocation = \"superblock\"", 0),
        (wide, "allocation = \"block\"", 1),
        (wide, "allocation = \"vchunk-2\"", 0),
        (wide, "allocation = \"hchunk-2\"", 0),
        (pairs, "allocation = \"block\"\nplacement = \"round-robin\"", 2),
        (pairs, "allocation = \"block\"\nluns_eligible = 4\nluns_min = 3", 0),
        (pairs, "allocation = \"hchunk-2\"\nluns_eligible = 4\nluns_min = 1", 0),
    ];
    let made = drives.into_iter().map(|(shape, lines, conventional)| {
        let mut profile = profile_of(shape, lines);
        profile.write_buffer.early_completion = false;
        profile.geometry.conventional_zones = conventional;
        profile
    });
    made.collect()
}

/// A zone command of a host.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { zone: u32, blocks: u64 },
    Finish(u32),
    Reset(u32),
    Offline(u32),
}

/// A host with random steps, and the present state of the zones.
struct Host {
    zones: ZoneTable,
    prng: Prng,
}

impl Host {
    fn new(profile: &Profile, seed: u64) -> Host {
        Host { zones: ZoneTable::new(profile.geometry()), prng: Prng::new(seed) }
    }

    /// A step that is valid, after it was applied.
    fn step(&mut self) -> Step {
        loop {
            let step = self.random_step();
            if self.take(step) {
                return step;
            }
        }
    }

    fn random_step(&mut self) -> Step {
        let geometry = self.zones.geometry();
        let (first, count) = (geometry.conventional_zone_count, geometry.zone_count);
        let zone = first + self.prng.below(u64::from(count - first)) as u32;
        match self.prng.below(40) {
            0..30 => Step::Write { zone, blocks: 1 + self.prng.below(geometry.max_transfer_blocks.0) },
            30..34 => Step::Finish(zone),
            34..39 => Step::Reset(zone),
            _ if self.prng.chance(1, 10) => Step::Offline(zone),
            _ => Step::Reset(zone),
        }
    }

    fn take(&mut self, step: Step) -> bool {
        let start = |zone: u32| self.zones.geometry().zone_start(ZoneIndex(zone));
        let mut effects = Vec::new();
        match step {
            Step::Write { zone, blocks } => {
                let pointer = self.zones.zone(ZoneIndex(zone)).write_pointer_blocks;
                if pointer + Blocks(blocks) > self.zones.geometry().zone_capacity_blocks {
                    return false;
                }
                self.zones.write(start(zone) + pointer, Blocks(blocks), true).is_ok()
            }
            Step::Finish(zone) => {
                let target = ZoneTarget::Zone(start(zone));
                self.zones.manage(&ZoneAction::Finish, target, &mut effects).is_ok() && !effects.is_empty()
            }
            Step::Reset(zone) => {
                let target = ZoneTarget::Zone(start(zone));
                self.zones.manage(&ZoneAction::Reset, target, &mut effects).is_ok() && !effects.is_empty()
            }
            Step::Offline(zone) => {
                let was = self.zones.zone(ZoneIndex(zone)).state;
                self.zones.degrade(ZoneIndex(zone), ZoneState::Offline);
                was != ZoneState::Offline
            }
        }
    }

    fn update(&self, tracker: &mut ElementTracker, step: Step) {
        let (Step::Write { zone, .. } | Step::Finish(zone) | Step::Reset(zone) | Step::Offline(zone)) = step;
        let zone = ZoneIndex(zone);
        tracker.update(zone, &ZoneUsage::of(&self.zones.zone(zone), self.zones.geometry()));
    }
}

/// The zones of a tracker that are not offline.
fn writable(tracker: &ElementTracker) -> Vec<Option<ZoneUsage>> {
    let zones = tracker.record().zones.into_iter();
    zones.map(|zone| Some(zone).filter(|zone| zone.disposition != ZoneDisposition::Offline)).collect()
}

#[test]
fn the_tracker_has_the_same_table_as_a_model_that_gets_one_command_after_the_other() {
    for (index, profile) in drives().iter().enumerate() {
        let (mut host, mut tracker) = (Host::new(profile, index as u64), ElementTracker::new(profile));
        let mut rig = Rig::with(profile, PayloadKind::None, 1);
        for count in 0..400 {
            let step = host.step();
            let command = match step {
                Step::Write { zone, blocks } => {
                    let end = host.zones.zone(ZoneIndex(zone)).write_pointer_blocks.0;
                    Some(rig.write_of(zone, end - blocks, blocks, Payload::None))
                }
                Step::Finish(zone) => Some(rig.finish(zone)),
                Step::Reset(zone) => Some(rig.reset(zone)),
                Step::Offline(zone) => {
                    rig.drive.degrade(ZoneIndex(zone), ZoneState::Offline);
                    None
                }
            };
            rig.run();
            assert!(command.is_none_or(|id| rig.completion(id).status.is_success()), "{step:?}");
            host.update(&mut tracker, step);
            let policy = &tracker.facts().policy;
            assert_eq!(tracker.table(), rig.drive.elements(), "{policy}, step {count}: {step:?}");
            assert_eq!(tracker.padding_bytes(), rig.drive.counters().programmed_padding_bytes, "{policy}, {step:?}");
        }
        assert!(tracker.padding_bytes() > 0 && tracker.wear().erases > 0, "there was something to count");
        assert_eq!(tracker.facts(), rig.drive.allocation());
    }
}

#[test]
fn a_tracker_that_is_restored_from_an_up_to_date_record_is_unchanged() {
    for (index, profile) in drives().iter().enumerate() {
        let (mut host, mut tracker) = (Host::new(profile, 100 + index as u64), ElementTracker::new(profile));
        for _ in 0..300 {
            let step = host.step();
            host.update(&mut tracker, step);
            let record = tracker.record();
            let bytes = record.table.to_bytes();
            assert!(bytes.len() as u64 <= tracker.table_bytes_max());
            let table = ElementTable::from_bytes(&bytes).expect("the bytes are whole");
            let again = ElementTracker::restore(profile, &ElementRecord { table, ..record.clone() }, &host.zones);
            let again = again.expect("the record is of this drive");
            assert_eq!((again.record(), again.changes()), (record, 0), "{step:?}");
            tracker = again;
        }
    }
}

#[test]
fn after_a_crash_the_zones_keep_their_elements_and_changes_since_the_record_are_applied() {
    let profiles = drives();
    for seed in 0..600 {
        let profile = &profiles[seed as usize % profiles.len()];
        let (mut host, mut tracker) = (Host::new(profile, 1_000 + seed), ElementTracker::new(profile));
        for _ in 0..seed % 97 {
            let step = host.step();
            host.update(&mut tracker, step);
        }
        let record = tracker.record();
        let mut was_reset = vec![false; record.zones.len()];
        let first = profile.geometry.conventional_zones;
        let (wear, padding_bytes) = (tracker.wear(), tracker.padding_bytes());
        for _ in 0..seed % 13 {
            let step = host.step();
            host.update(&mut tracker, step);
            if let Step::Reset(zone) = step {
                was_reset[(zone - first) as usize] = true;
            }
        }
        let found = ElementTracker::restore(profile, &record, &host.zones).expect("the record is of this drive");
        found.check_invariants();
        assert!(found.wear().erases >= wear.erases && found.padding_bytes() >= padding_bytes);
        let table = found.table();
        for (index, was_reset) in was_reset.into_iter().enumerate() {
            let (before, after) = (&record.table.zones[index], &table.zones[index]);
            let view = host.zones.zone(ZoneIndex(first + index as u32));
            if !was_reset && !before.is_empty() && record.zones[index].written_bytes > 0 {
                // A FINISH since then released those behind the written data.
                assert!(!after.is_empty() && before.starts_with(after), "{seed}, zone {index}: {before:?}, {after:?}");
            }
            let is_retired = after.iter().any(|place| table.elements[*place as usize].state == ElementState::Retired);
            assert!(!is_retired || view.state == ZoneState::Offline, "{seed}, zone {index}");
        }
        assert_eq!(writable(&found), writable(&tracker), "seed {seed}");
    }
}

#[test]
fn a_drive_without_a_record_gets_new_elements_for_its_data() {
    for profile in drives() {
        let (mut host, mut tracker) = (Host::new(&profile, 9), ElementTracker::new(&profile));
        for _ in 0..100 {
            let step = host.step();
            host.update(&mut tracker, step);
        }
        let new = ElementTracker::from_zones(&profile, &host.zones);
        new.check_invariants();
        assert_eq!(new.wear().erases, 0);
        assert_eq!(writable(&new), writable(&tracker));
        assert_eq!((new.facts().written, new.facts().allocated), (tracker.facts().written, tracker.facts().allocated));
    }
}

#[test]
fn a_record_that_is_ahead_of_a_zone_going_offline_restores_the_elements_of_the_zone() {
    let profile = &drives()[2];
    let zone = ZoneIndex(1);
    let mut zones = ZoneTable::new(profile.geometry());
    zones.write(profile.geometry().zone_start(zone), Blocks(4), true).expect("the zone is empty");
    let mut tracker = ElementTracker::from_zones(profile, &zones);
    tracker.offline(zone);
    assert_eq!(tracker.facts().retired, 8);
    let mut tracker = ElementTracker::restore(profile, &tracker.record(), &zones).expect("the record is of this drive");
    assert_eq!((tracker.facts().retired, tracker.facts().written), (0, 8));
    tracker.written(zone, 192 << 10);
    tracker.reset(zone);
    assert_eq!(tracker.facts().invalid, 8);
}

#[test]
fn a_record_of_another_drive_is_refused_and_an_inconsistent_one_breaks_nothing() {
    let profiles = drives();
    let (block, chunks) = (&profiles[6], &profiles[7]);
    let zones = ZoneTable::new(block.geometry());
    let refusal =
        ElementTracker::restore(chunks, &ElementTracker::new(block).record(), &zones).expect_err("another drive");
    assert!(
        refusal.to_string().contains("belongs to another drive: its zones are allocated by \"block\""),
        "{refusal}"
    );
    let short = ElementRecord { zones: Vec::new(), ..ElementTracker::new(block).record() };
    let refusal = ElementTracker::restore(block, &short, &zones).expect_err("it has no zones");
    assert_eq!(refusal, ElementTableError::OtherDrive("it has 0 zones, not 6".to_owned()));

    let mut prng = Prng::new(5);
    for seed in 0..2_000 {
        let profile = &profiles[seed as usize % profiles.len()];
        let (mut host, mut tracker) = (Host::new(profile, seed), ElementTracker::new(profile));
        for _ in 0..prng.below(40) {
            let step = host.step();
            host.update(&mut tracker, step);
        }
        let mut record = tracker.record();
        for zone in &mut record.zones {
            if prng.chance(1, 2) {
                let dispositions = [
                    ZoneDisposition::Writable,
                    ZoneDisposition::Finished,
                    ZoneDisposition::ReadOnly,
                    ZoneDisposition::Offline,
                ];
                *zone = ZoneUsage {
                    written_bytes: prng.below(1 << 20),
                    disposition: *prng.pick(&dispositions).expect("some"),
                };
            }
        }
        let mut tracker = ElementTracker::restore(profile, &record, &host.zones).expect("the table is valid");
        for _ in 0..40 {
            let step = host.step();
            host.update(&mut tracker, step);
            tracker.update_all(&host.zones);
        }
    }
}

#[test]
fn the_predicted_padding_of_a_finish_is_exact() {
    for profile in drives() {
        let mut tracker = ElementTracker::new(&profile);
        let zone = ZoneIndex(profile.geometry.conventional_zones);
        for percent in [0, 10, 50, 99] {
            let bytes = profile.geometry.zone_capacity.0 * percent / 100 / 4096 * 4096;
            let (before, expected) = (tracker.padding_bytes(), tracker.padding_of(bytes));
            tracker.written(zone, bytes);
            tracker.finished(zone);
            assert_eq!(tracker.padding_bytes() - before, expected, "{} at {percent}%", tracker.facts().policy);
            tracker.reset(zone);
        }
    }
}
