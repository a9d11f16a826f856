//! Power loss at every event of small runs: acknowledged commands persist, and the drive continues
//! to work.

use std::collections::BTreeMap;

use crate::support::{CAPACITY, Rig, conventional_drive, drive_of_constants, kib, wide_drive};
use zonda_ssd::Ssd;
use zonda_ssd::profile::{AllocationKind, Profile};
use zonda_zoned::{Blocks, Lba, Operation, Payload, PayloadKind, Prng, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

/// Payload of a run's `number`-th write: one fingerprint per block.
fn prints(number: u64, blocks: u64) -> Payload {
    Payload::Fingerprints((0..blocks).map(|block| number * 1_000 + block + 1).collect())
}

/// A command of a run.
#[derive(Clone, Copy)]
enum Step {
    /// Zone and blocks; the place is the zone's end so far.
    Write(u32, u64),
    Finish(u32),
    Reset(u32),
    /// Runs the drive for so many events.
    Wait(u32),
}

/// Expected state of a zone.
#[derive(Clone, Default)]
struct Known {
    /// Marks of every block since the last reset, kept or lost.
    marks: Vec<u64>,
    acknowledged: u64,
    reset_in_flight: Option<u64>,
    reset_acknowledged: bool,
    finish_acknowledged: bool,
    /// Marks before the last reset, which may reappear if that is lost.
    before: Vec<u64>,
    acknowledged_before: u64,
}

struct Run {
    rig: Rig,
    known: BTreeMap<u32, Known>,
    writes: Vec<(u64, u32, u64, u64)>,
    resets: Vec<(u64, u32)>,
    finishes: Vec<(u64, u32)>,
    events: u64,
    generation: BTreeMap<u32, u64>,
}

impl Run {
    fn new(profile: &Profile) -> Run {
        Run {
            rig: Rig::with(profile, PayloadKind::Fingerprints, 7),
            known: BTreeMap::new(),
            writes: Vec::new(),
            resets: Vec::new(),
            finishes: Vec::new(),
            events: 0,
            generation: BTreeMap::new(),
        }
    }

    /// Plays steps until `events` events have passed; false if the run ended before.
    fn play(&mut self, steps: &[Step], events: u64) -> bool {
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Write(zone, blocks) => {
                    let known = self.known.entry(zone).or_default();
                    let at = known.marks.len() as u64;
                    let payload = prints(number as u64, blocks);
                    let Payload::Fingerprints(marks) = &payload else { unreachable!("prints are fingerprints") };
                    known.marks.extend(marks.iter());
                    let id = self.rig.write_of(zone, at, blocks, payload);
                    let generation = *self.generation.entry(zone).or_default();
                    self.writes.push((id, zone, at + blocks, generation));
                }
                Step::Finish(zone) => {
                    let id = self.rig.finish(zone);
                    self.finishes.push((id, zone));
                }
                Step::Reset(zone) => {
                    let known = self.known.entry(zone).or_default();
                    *known = Known {
                        before: std::mem::take(&mut known.marks),
                        acknowledged_before: known.acknowledged,
                        ..Known::default()
                    };
                    *self.generation.entry(zone).or_default() += 1;
                    let id = self.rig.reset(zone);
                    known.reset_in_flight = Some(id);
                    self.resets.push((id, zone));
                }
                Step::Wait(waits) => {
                    for _ in 0..waits {
                        if self.events == events {
                            return true;
                        }
                        self.step();
                    }
                }
            }
        }
        while self.events < events {
            if !self.step() {
                return false;
            }
        }
        true
    }

    fn step(&mut self) -> bool {
        self.events += 1;
        let continues = self.rig.step();
        for (id, zone, end, generation) in &self.writes {
            let known = self.known.get_mut(zone).expect("a zone that is used is known");
            if self.rig.has_ended(*id) {
                assert!(self.rig.completion(*id).status.is_success());
                if self.generation[zone] == *generation {
                    known.acknowledged = known.acknowledged.max(*end);
                } else {
                    known.acknowledged_before = known.acknowledged_before.max(*end);
                }
            }
        }
        for (id, zone) in &self.resets {
            let known = self.known.get_mut(zone).expect("a zone that is used is known");
            known.reset_acknowledged |= self.rig.has_ended(*id) && known.reset_in_flight == Some(*id);
        }
        for (id, zone) in &self.finishes {
            let known = self.known.get_mut(zone).expect("a zone that is used is known");
            known.finish_acknowledged |= self.rig.has_ended(*id);
        }
        continues
    }

    /// Cuts the power, checks everything, and uses the drive.
    fn cut(self, profile: &Profile, seed: u64) {
        let mut prng = Prng::new(seed);
        let media = self.rig.drive.power_loss(&mut prng);
        let mut rig = Rig::of(Ssd::power_on(profile, media, &prng.fork("again")));
        rig.drive.check_invariants();
        assert_eq!((rig.drive.outstanding(), rig.drive.buffered_bytes()), (0, 0), "nothing is in flight");
        let now = rig.now;
        assert!(!rig.step() && rig.now == now, "and nothing is to come");
        for (zone, known) in &self.known {
            check_zone(&mut rig, *zone, known);
        }
        for zone in self.known.keys() {
            use_zone(&mut rig, *zone);
        }
        rig.run();
        assert_eq!(rig.drive.buffered_bytes(), 0);
    }
}

/// The zone holds the marks it may hold, and no fewer than were acknowledged.
fn check_zone(rig: &mut Rig, zone: u32, known: &Known) {
    let view = rig.drive.zone(ZoneIndex(zone));
    let pointer = view.write_pointer_blocks.0;
    assert!(!view.state.is_open(), "zone {zone} is {}", view.state);
    let start = rig.lba(zone, 0);
    let found = rig.prints(start, 64);
    let may_be_before = known.reset_in_flight.is_some() && !known.reset_acknowledged && known.acknowledged == 0;
    let holds = |marks: &[u64], acknowledged: u64| {
        let expected =
            |block: usize| if (block as u64) < pointer { marks.get(block).copied().unwrap_or(u64::MAX) } else { 0 };
        pointer >= acknowledged.min(64)
            && pointer <= marks.len() as u64
            && found.iter().enumerate().all(|(block, mark)| *mark == expected(block))
    };
    let is_new = holds(&known.marks, known.acknowledged);
    let is_old = may_be_before && holds(&known.before, known.acknowledged_before);
    assert!(
        is_new || is_old,
        "zone {zone}: {} at {pointer}, acknowledged {} of {}, holds {found:?}",
        view.state,
        known.acknowledged,
        known.marks.len()
    );
    if known.finish_acknowledged && !may_be_before && known.reset_in_flight.is_none() {
        assert_eq!(view.state, ZoneState::Full, "zone {zone} was finished");
    }
}

/// A zone takes writes, a finish and a reset, and all of them end.
fn use_zone(rig: &mut Rig, zone: u32) {
    let view = rig.drive.zone(ZoneIndex(zone));
    let mut ids = Vec::new();
    if view.state != ZoneState::Full {
        ids.push(rig.write(zone, view.write_pointer_blocks.0, 5));
    }
    ids.extend([rig.finish(zone), rig.reset(zone), rig.write(zone, 0, 48)]);
    rig.run();
    for id in ids {
        assert!(rig.completion(id).status.is_success(), "zone {zone}: {:?}", rig.completion(id).status);
    }
}

/// The drive with zones of two segments, built of elements of every kind.
fn with_every_element(profile: &Profile) -> Vec<Profile> {
    let parallelism = profile.zones.parallelism;
    let mut profile = profile.clone();
    profile.flash.erase_unit = kib(1536 / 2 / u64::from(parallelism));
    let kinds = ["fixed", "superblock", "block", "vchunk-2", "hchunk-2"];
    let fits = |kind: &&str| parallelism > 1 || !["superblock", "vchunk-2"].contains(kind);
    let of_kind = |kind: &str| {
        let mut profile = profile.clone();
        profile.zones.allocation = AllocationKind::from_text(kind).expect("the name of a policy");
        profile
    };
    let mut profiles: Vec<Profile> = kinds.into_iter().filter(fits).map(of_kind).collect();
    let mut uneven = of_kind("block");
    (uneven.zones.luns_eligible, uneven.zones.luns_min) = (Some(4), Some(1));
    profiles.push(uneven);
    profiles
}

/// Cuts a run at each of its events, with several random results of the commands in flight.
fn cut_everywhere(profile: &Profile, steps: &[Step]) {
    for events in 0.. {
        let mut continues = true;
        for seed in 0..4 {
            let mut run = Run::new(profile);
            continues = run.play(steps, events);
            run.cut(profile, seed * 1_000 + events);
        }
        if !continues {
            assert!(events >= 30, "the run is worth cutting: {events} events");
            return;
        }
    }
}

#[test]
fn acknowledged_writes_survive_power_loss_at_any_event() {
    let steps = [
        Step::Write(0, 5),
        Step::Write(1, 30),
        Step::Write(0, 20),
        Step::Wait(4),
        Step::Write(2, 13),
        Step::Write(0, 3),
        Step::Wait(10),
        Step::Write(1, 30),
        Step::Write(2, 13),
    ];
    cut_everywhere(&drive_of_constants(), &steps);
    cut_everywhere(&wide_drive(), &steps);
    for profile in [with_every_element(&drive_of_constants()), with_every_element(&wide_drive())].concat() {
        cut_everywhere(&profile, &steps);
    }
}

#[test]
fn a_drive_without_early_completion_and_with_a_full_buffer_keeps_them_too() {
    let mut profile = drive_of_constants();
    profile.write_buffer.early_completion = false;
    profile.write_buffer.capacity = kib(48);
    let steps = [
        Step::Write(0, 5),
        Step::Write(1, 30),
        Step::Write(4, 20),
        Step::Wait(8),
        Step::Write(0, 13),
        Step::Write(5, 7),
    ];
    cut_everywhere(&profile, &steps);
}

#[test]
fn finishes_and_resets_are_atomic_at_power_loss_at_any_event() {
    let steps = [
        Step::Write(0, 20),
        Step::Write(1, 40),
        Step::Wait(6),
        Step::Finish(0),
        Step::Wait(3),
        Step::Reset(1),
        Step::Write(2, 12),
        Step::Wait(20),
        Step::Reset(0),
        Step::Write(0, 9),
    ];
    cut_everywhere(&wide_drive(), &steps);
    let steps_in_two_segments = [
        Step::Write(0, 60),
        Step::Write(0, 60),
        Step::Write(0, 60),
        Step::Write(1, 13),
        Step::Wait(40),
        Step::Write(0, 30),
        Step::Finish(0),
        Step::Wait(9),
        Step::Finish(1),
        Step::Wait(12),
        Step::Reset(0),
        Step::Write(2, 12),
        Step::Wait(20),
        Step::Reset(1),
        Step::Write(1, 9),
    ];
    for mut profile in with_every_element(&wide_drive()) {
        cut_everywhere(&profile, &steps);
        // As many elements as zones need: what is freed is used again at once.
        profile.geometry.zones = 3;
        cut_everywhere(&profile, &steps_in_two_segments);
    }
}

#[test]
fn a_finish_undone_by_power_loss_keeps_its_elements_and_one_that_persists_frees_them() {
    for profile in with_every_element(&wide_drive()).into_iter().filter(|p| p.zones.allocation != AllocationKind::Fixed)
    {
        let mut outcomes = [0, 0];
        for seed in 0..20 {
            let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
            rig.write_of(0, 0, 5, prints(1, 5));
            rig.run();
            rig.finish(0);
            rig.step();
            let media = rig.drive.power_loss(&mut Prng::new(seed));
            let rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(seed)));
            rig.drive.check_invariants();
            let facts = rig.drive.allocation();
            let owned = facts.allocated + facts.written;
            match rig.drive.zone(ZoneIndex(0)).state {
                ZoneState::Full => {
                    assert_eq!((owned, facts.allocated), (facts.written, 0), "only what is written is kept");
                    assert!(owned < u64::from(facts.elements_per_zone));
                    outcomes[0] += 1;
                }
                _ => {
                    assert_eq!(owned, u64::from(facts.elements_per_zone), "the zone can be written on");
                    outcomes[1] += 1;
                }
            }
        }
        assert!(outcomes.iter().all(|count| *count >= 3), "{outcomes:?}");
    }
}

#[test]
fn power_loss_leaves_any_part_of_a_write_in_flight() {
    let profile = drive_of_constants();
    let mut losses = BTreeMap::new();
    for seed in 0..100 {
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
        rig.prefill(0, 20);
        rig.write_of(0, 20, 4, prints(1, 4));
        let media = rig.drive.power_loss(&mut Prng::new(seed));
        let rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(seed)));
        *losses.entry(rig.drive.zone(ZoneIndex(0)).write_pointer_blocks.0).or_insert(0) += 1;
    }
    assert_eq!(losses.keys().copied().collect::<Vec<u64>>(), [20, 21, 22, 23, 24]);
    assert!(losses.values().all(|&count| count > 10), "as often as any other: {losses:?}");
}

#[test]
fn a_zone_change_in_flight_persists_once_a_later_command_that_depends_on_it_is_acknowledged() {
    type Submit = fn(&mut Rig) -> u64;
    let cases: [(&str, u64, Submit, Submit, ZoneState); 3] = [
        ("finish", 20, |rig| rig.finish(0), |rig| rig.finish(0), ZoneState::Full),
        ("reset", 20, |rig| rig.reset(0), |rig| rig.reset(0), ZoneState::Empty),
        (
            "write to the capacity",
            CAPACITY - 32,
            |rig| rig.write_of(0, CAPACITY - 32, 32, prints(1, 32)),
            |rig| rig.finish(0),
            ZoneState::Full,
        ),
    ];
    let profile = drive_of_constants();
    for (name, blocks, first, second, expected) in cases {
        for seed in 0..10 {
            let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
            rig.prefill(0, blocks);
            let first = first(&mut rig);
            let second = second(&mut rig);
            while !rig.has_ended(second) {
                assert!(rig.step());
            }
            assert!(rig.completion(second).status.is_success());
            assert!(!rig.has_ended(first), "{name}: power goes while the first command is in flight");
            let media = rig.drive.power_loss(&mut Prng::new(seed));
            let rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(seed)));
            rig.drive.check_invariants();
            assert_eq!(rig.drive.zone(ZoneIndex(0)).state, expected, "{name}, seed {seed}");
        }
    }
}

#[test]
fn power_loss_does_not_undo_a_change_of_a_zone_that_has_failed_since() {
    type Submit = fn(&mut Rig) -> u64;
    let submits: [Submit; 2] = [|rig| rig.finish(0), |rig| rig.reset(0)];
    let profile = drive_of_constants();
    for submit in submits {
        for state in [ZoneState::ReadOnly, ZoneState::Offline] {
            for seed in 0..10 {
                let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
                rig.prefill(0, 20);
                let command = submit(&mut rig);
                assert!(!rig.has_ended(command), "power goes while it is in flight");
                rig.drive.degrade(ZoneIndex(0), state);
                let media = rig.drive.power_loss(&mut Prng::new(seed));
                let rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(seed)));
                rig.drive.check_invariants();
                assert_eq!(rig.drive.zone(ZoneIndex(0)).state, state, "seed {seed}");
            }
        }
    }
}

#[test]
fn blocks_of_a_random_write_area_survive_power_loss_at_any_event() {
    for profile in with_every_element(&drive_of_constants()) {
        cut_random_write_areas(&profile);
    }
}

fn cut_random_write_areas(profile: &Profile) {
    for events in 0..200 {
        let mut rig = Rig::with(profile, PayloadKind::Fingerprints, 3);
        rig.manage(0, ZoneAction::Open { zrwa: true });
        let mut left = events;
        let mut ids = Vec::new();
        let mut continues = true;
        for round in 0..4 {
            ids.push(rig.write_of(0, 0, 8, prints(round, 8)));
            let waits = if round == 3 { left } else { left.min(6) };
            for _ in 0..waits {
                continues = rig.step();
            }
            left -= waits;
            if round == 1 {
                // A second area beside it, committed in part.
                ids.push(rig.write_of(0, 8, 8, prints(50, 8)));
            }
        }
        let acknowledged = (0..4).rev().find(|round| rig.has_ended(ids[[0, 1, 3, 4][*round as usize]]));
        let mut prng = Prng::new(events);
        let media = rig.drive.power_loss(&mut prng);
        let mut rig = Rig::of(Ssd::power_on(profile, media, &prng));
        let found = rig.prints(Lba(0), 8);
        for (block, mark) in found.iter().enumerate() {
            let round = (*mark > 0).then(|| mark / 1_000);
            assert!(round >= acknowledged, "block {block} holds write {round:?}, acknowledged was {acknowledged:?}");
            assert!(*mark == 0 || mark % 1_000 == block as u64 + 1);
        }
        let target = ZoneTarget::Zone(Lba(7));
        rig.submit(Operation::ManageZones { action: ZoneAction::FlushZrwa, target });
        rig.run();
        use_zone_after_commit(&mut rig);
        if !continues {
            break;
        }
    }
}

fn use_zone_after_commit(rig: &mut Rig) {
    let (finish, reset) = (rig.finish(0), rig.reset(0));
    rig.run();
    assert!([finish, reset].iter().all(|id| rig.completion(*id).status.is_success()));
    assert_eq!(rig.drive.buffered_bytes(), 0);
}

#[test]
fn acknowledged_blocks_of_conventional_zones_survive_power_loss_at_any_event() {
    let profile = conventional_drive();
    for events in (0..1_200).step_by(3) {
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 3);
        let mut prng = Prng::new(events);
        let mut written: Vec<(u64, u64, u64)> = Vec::new();
        for number in 0..60 {
            let at = prng.below(4 * CAPACITY);
            let blocks = 1 + prng.below(12);
            let payload = Payload::Fingerprints((0..blocks).map(|_| number + 1).collect());
            let id = rig.submit(Operation::Write { start: Lba(at), blocks: Blocks(blocks), payload });
            written.push((id, at, blocks));
        }
        for _ in 0..events {
            rig.step();
        }
        // Of each block: the newest acknowledged write, and all that came after it.
        let ended: Vec<bool> = written.iter().map(|(id, ..)| rig.has_ended(*id)).collect();
        let media = rig.drive.power_loss(&mut prng);
        let mut rig = Rig::of(Ssd::power_on(&profile, media, &prng.fork("again")));
        assert_eq!((rig.drive.outstanding(), rig.drive.buffered_bytes()), (0, 0));
        let found: Vec<u64> = (0..4 * CAPACITY).step_by(64).flat_map(|at| rig.prints(Lba(at), 64)).collect();
        for (block, mark) in found.iter().enumerate() {
            let covers = |(_, at, blocks): &(u64, u64, u64)| (*at..at + blocks).contains(&(block as u64));
            let newest = written.iter().zip(&ended).rposition(|(write, ended)| *ended && covers(write));
            let floor = newest.map_or(0, |number| number as u64 + 1);
            assert!(*mark >= floor, "block {block} holds write {mark}, {floor} was acknowledged");
            assert!(*mark == 0 || covers(&written[*mark as usize - 1]), "block {block} holds another's write {mark}");
        }
        for at in (0..4 * CAPACITY).step_by(64) {
            rig.submit(Operation::Write { start: Lba(at), blocks: Blocks(64), payload: Payload::None });
        }
        rig.run();
    }
}

#[test]
fn power_loss_leaves_the_old_or_the_new_contents_of_each_block_that_an_overwrite_in_flight_covers() {
    let profile = conventional_drive();
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 3);
        let write = |mark| {
            let payload = Payload::Fingerprints(vec![mark; 8].into());
            Operation::Write { start: Lba(0), blocks: Blocks(8), payload }
        };
        rig.submit(write(1));
        rig.run();
        let overwrite = rig.submit(write(2));
        assert!(!rig.has_ended(overwrite));
        let media = rig.drive.power_loss(&mut Prng::new(seed));
        let mut rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(seed)));
        found.extend(rig.prints(Lba(0), 8));
    }
    assert_eq!(found.into_iter().collect::<Vec<u64>>(), [1, 2]);
}

#[test]
fn a_reset_of_all_zones_is_decided_zone_by_zone() {
    let profile = drive_of_constants();
    let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 3);
    for zone in 0..16 {
        rig.write_of(zone, 0, 12, prints(u64::from(zone), 12));
    }
    rig.run();
    rig.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All });
    let media = rig.drive.power_loss(&mut Prng::new(1));
    let mut rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(2)));
    let mut kept = 0;
    for zone in 0..16 {
        let view = rig.drive.zone(ZoneIndex(zone));
        let start = rig.lba(zone, 0);
        let found = rig.prints(start, 12);
        let Payload::Fingerprints(marks) = prints(u64::from(zone), 12) else { unreachable!("prints are fingerprints") };
        match view.write_pointer_blocks.0 {
            0 => assert_eq!((view.state, found), (ZoneState::Empty, vec![0; 12])),
            pointer => {
                assert_eq!((view.state, pointer, found), (ZoneState::Closed, 12, marks.to_vec()));
                kept += 1;
            }
        }
        use_zone(&mut rig, zone);
    }
    assert!((1..16).contains(&kept), "{kept}");
}
