//! All short histories of a small pool: all points at which they can be cut, and all single damages of
//! the metadata that they leave (CrashMonkey and ACE, OSDI 2018, for pools).

use zonda_zoned::{
    Blocks, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget, ZonedDevice,
};

use super::drive::Damage;
use super::rig::Rig;
use crate::PoolOptions;
use crate::bug::SeededBug;
use crate::format::{Body, LogBlock};
use crate::limits::{HEADER_BLOCKS, LOG_ZONES};
use crate::testing::{BlockTag, Content, Crash, TenantZone, ZoneFound};

const TENANT: NamespaceId = NamespaceId(1);
const TAG: u64 = 1;
const ZONES: u32 = 3;

/// An operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Write(u32),
    Fill(u32),
    Finish(u32),
    Reset(u32),
    Flush,
    /// Another namespace is created, or deleted if it exists.
    Other,
}

const OPS: [Op; 7] = [Op::Write(0), Op::Write(1), Op::Fill(0), Op::Finish(0), Op::Reset(0), Op::Flush, Op::Other];

/// Histories of this number of operations.
fn histories(length: usize) -> Vec<Vec<Op>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        all = all.into_iter().flat_map(|history| OPS.map(|op| [history.clone(), vec![op]].concat())).collect();
    }
    all
}

/// A pool, and what its host knows.
struct Testbed {
    rig: Rig,
    zones: Vec<TenantZone>,
    next_write: u64,
    other: Option<NamespaceId>,
}

impl Testbed {
    fn new() -> Testbed {
        let geometry = Geometry {
            zone_size_blocks: Blocks(32),
            zone_capacity_blocks: Blocks(24),
            zone_count: 24,
            max_active_zones: Some(12),
            max_open_zones: Some(12),
            descriptor_extension_bytes: 0,
            ..Geometry::tiny()
        };
        let options = PoolOptions { zones_per_vzone: Some(2), width_max: Some(2), ..PoolOptions::default() };
        let mut rig = Rig::new(geometry, options);
        rig.create("tenant", ZONES, 2);
        let zones = (0..ZONES).map(|_| TenantZone::default()).collect();
        Testbed { rig, zones, next_write: 1, other: None }
    }

    fn capacity(&mut self) -> u64 {
        self.rig.device().geometry(TENANT).zone_capacity_blocks.0
    }

    fn state(&mut self, zone: u32) -> ZoneState {
        self.rig.device().pool().expect("it is open").table(TENANT).expect("it exists").zone(ZoneIndex(zone)).state
    }

    /// Executes an operation. Returns whether it has ended.
    fn act(&mut self, op: Op) -> bool {
        let capacity = self.capacity();
        match op {
            Op::Write(zone) => self.write(zone, 3),
            Op::Fill(zone) => (0..capacity).step_by(4).all(|_| self.write(zone, 4)),
            Op::Finish(zone) if self.state(zone).is_active() => {
                self.zones[zone as usize].now.finish = Some(false);
                let has_ended = self.manage(zone, ZoneAction::Finish);
                if has_ended {
                    let own = &mut self.zones[zone as usize].now;
                    (own.finish, own.flushed) = (Some(true), own.acknowledged);
                }
                has_ended
            }
            Op::Reset(zone) if self.state(zone) != ZoneState::Empty => {
                self.zones[zone as usize].begin_reset();
                let has_ended = self.manage(zone, ZoneAction::Reset);
                if has_ended {
                    self.zones[zone as usize].before = None;
                }
                has_ended
            }
            Op::Finish(_) | Op::Reset(_) => true,
            Op::Flush => {
                let has_ended = self.submit(Operation::Flush);
                for zone in self.zones.iter_mut().filter(|_| has_ended) {
                    zone.now.flushed = zone.now.acknowledged;
                }
                has_ended
            }
            Op::Other => self.change_other(),
        }
    }

    fn change_other(&mut self) -> bool {
        let now = self.rig.now;
        if let Some(other) = self.other.take() {
            let is_begun = self.rig.device().delete_namespace(now, other).is_ok();
            self.rig.quiesce();
            return is_begun;
        }
        let config = crate::NamespaceConfig::new("other", [7; 16], 2, 1);
        // A deletion that failed has left the name.
        let Ok(id) = self.rig.device().create_namespace(now, &config) else { return false };
        self.rig.quiesce();
        self.other = Some(id);
        self.rig.device().pool().expect("it is open").namespaces().geometry(id).is_some()
    }

    fn submit(&mut self, operation: Operation) -> bool {
        self.rig.submit(TENANT, operation);
        let ended = self.rig.quiesce();
        let is_allowed = |status| matches!(status, Status::Success | Status::ZoneIsReadOnly);
        assert!(ended.iter().all(|completion| is_allowed(completion.status)), "{ended:?}");
        ended.iter().any(|completion| completion.status == Status::Success)
    }

    fn manage(&mut self, zone: u32, action: ZoneAction) -> bool {
        let start = u64::from(zone) * self.rig.zone_size(TENANT);
        self.submit(Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(start)) })
    }

    fn write(&mut self, zone: u32, blocks: u64) -> bool {
        let (capacity, state) = (self.capacity(), self.state(zone));
        let start = u64::from(zone) * self.rig.zone_size(TENANT);
        let own = &mut self.zones[zone as usize].now;
        let from = own.blocks.len() as u64;
        let end = (from + blocks).min(capacity);
        if !(state.is_active() || state == ZoneState::Empty) || end == from {
            return true;
        }
        let write = self.next_write;
        self.next_write += 1;
        own.blocks.resize(end as usize, write);
        let (mut data, mut metadata) = (Vec::new(), Vec::new());
        for block in from..end {
            let whole = BlockTag { tenant: TAG, zone: zone.into(), block, write }.to_block(512, 8);
            data.extend_from_slice(&whole.data);
            metadata.extend_from_slice(&whole.metadata);
        }
        let buffer = zonda_zoned::BlockBuffer { data: data.into(), metadata: metadata.into() };
        let payload = Payload::Bytes(Box::new(buffer));
        let operation = Operation::Write { start: Lba(start + from), blocks: Blocks(end - from), payload };
        let has_ended = self.submit(operation);
        if has_ended {
            self.zones[zone as usize].now.acknowledged = end;
        }
        has_ended
    }

    fn run(&mut self, history: &[Op]) {
        for op in history {
            if !self.act(*op) && self.rig.drive().completions_left == 0 {
                break;
            }
        }
    }

    fn found(&mut self, zone: u32) -> ZoneFound {
        let (capacity, state) = (self.capacity(), self.state(zone));
        let start = u64::from(zone) * self.rig.zone_size(TENANT);
        let table = self.rig.device().pool().expect("it is open").table(TENANT).expect("it exists");
        let pointer = state.is_active().then(|| table.zone(ZoneIndex(zone)).write_pointer_blocks.0);
        let mut blocks = Vec::new();
        for block in (0..capacity).filter(|_| state != ZoneState::Offline) {
            let ended = self.rig.execute(TENANT, Operation::Read { start: Lba(start + block), blocks: Blocks(1) });
            blocks.push(match ended.outcome {
                Outcome::Data(Payload::Bytes(buffer)) => BlockTag::of_block(&buffer.data, &buffer.metadata),
                _ => Content::Unreadable,
            });
        }
        ZoneFound { state, pointer, extension: None, blocks }
    }

    /// Compares all zones with what the host knows.
    fn verify(&mut self, crash: Crash, is_excused: bool) -> Result<(), String> {
        for zone in 0..ZONES {
            let found = self.found(zone);
            // What a cache has lost may be more than the slack of a group holds.
            let table = self.rig.device().pool().expect("it is open").table(TENANT).expect("it exists");
            let is_torn = table.zone(ZoneIndex(zone)).attributes.finished_by_controller;
            let is_excused = is_excused || is_torn || found.state == ZoneState::ReadOnly;
            self.zones[zone as usize]
                .adopt(&found, crash, TAG, zone.into(), is_excused)
                .map_err(|text| format!("zone {zone}: {text}"))?;
        }
        self.rig.check();
        Ok(())
    }
}

/// Cuts a history after each of its completions, with each way of losing the cache. Returns the number
/// of cases.
fn cut_everywhere(history: &[Op]) -> Result<u64, String> {
    let mut cases = 0;
    for style in 0..3 {
        for cut in 0.. {
            let mut testbed = Testbed::new();
            testbed.rig.drive().completions_left = cut;
            testbed.run(history);
            let was_cut = testbed.rig.drive().completions_left == 0;
            testbed.rig.mount_after(|drive| {
                drive.lose_power(|zone, flushed, written| match style {
                    0 => flushed,
                    1 => written,
                    _ => {
                        if zone.0 % 2 == 0 {
                            written
                        } else {
                            flushed
                        }
                    }
                });
            });
            let text = |error| format!("{history:?}, cut after {cut} completions, style {style}: {error}");
            testbed.verify(Crash::CacheLoss, false).map_err(text)?;
            // It continues from there.
            testbed.other = None;
            testbed.run(&[Op::Write(0), Op::Write(1), Op::Flush]);
            testbed.rig.mount_again();
            testbed.verify(Crash::PowerLoss, false).map_err(text)?;
            cases += 1;
            if !was_cut {
                break;
            }
        }
    }
    Ok(cases)
}

/// What is done to the drive after a history.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Block(u64, Damage),
    /// Blocks of both copies of the log.
    Blocks([u64; 2]),
    /// Another program resets a zone of a v-zone.
    Reset(u32),
    /// Two zones of v-zones are exchanged.
    Exchange(u32, u32),
    /// The whole drive is put back from an older copy.
    OldDrive,
}

/// Every harm to the metadata that a history leaves.
fn harms(testbed: &mut Testbed) -> Vec<Harm> {
    let mut harms = vec![Harm::OldDrive];
    let mut records: Vec<[Option<u64>; 2]> = Vec::new();
    for zone in 0..24 {
        let written = testbed.rig.write_pointer(ZoneIndex(zone));
        let last = if zone < LOG_ZONES { written } else { written.min(HEADER_BLOCKS) };
        for block in 0..last {
            let lba = u64::from(zone) * 32 + block;
            harms.extend([Damage::Flip, Damage::Unreadable].map(|damage| Harm::Block(lba, damage)));
            if zone < LOG_ZONES
                && let Some(sequence) = sequence_at(testbed, lba)
            {
                records.resize(records.len().max(sequence as usize + 1), [None; 2]);
                records[sequence as usize][zone as usize % 2] = Some(lba);
            }
        }
    }
    harms.extend(records.into_iter().filter_map(|pair| Some(Harm::Blocks([pair[0]?, pair[1]?]))));
    let zones: Vec<u32> = (0..ZONES).flat_map(|zone| testbed.rig.zones_of(TENANT, zone)).map(|zone| zone.0).collect();
    harms.extend(zones.iter().map(|zone| Harm::Reset(*zone)));
    // A full zone is active while it is written, which may be one too many.
    let mut zones = zones;
    zones.retain(|zone| testbed.rig.write_pointer(ZoneIndex(*zone)) < 24);
    for (place, zone) in zones.iter().enumerate() {
        harms.extend(zones[place + 1..].iter().map(|other| Harm::Exchange(*zone, *other)));
    }
    harms
}

/// The number of the block of records at `lba`.
fn sequence_at(testbed: &mut Testbed, lba: u64) -> Option<u64> {
    let buffer = testbed.rig.read_block_directly(lba);
    let (_, block) = LogBlock::open(&buffer.data).ok()?;
    (block.body == Body::Records).then_some(block.sequence)
}

/// Harms a drive after a history, and mounts the pool.
fn harm(history: &[Op], harm: Harm, bug: Option<SeededBug>) -> Result<(), String> {
    let mut testbed = Testbed::new();
    testbed.run(history);
    testbed.act(Op::Flush);
    let epoch = testbed.rig.device().pool().expect("it is open").epoch();
    let mut is_excused = true;
    let mut epoch_min = epoch;
    testbed.rig.drive().power_cycle();
    match harm {
        Harm::Block(lba, damage) => {
            testbed.rig.drive().damaged.insert(lba, damage);
            is_excused = lba >= u64::from(LOG_ZONES) * 32;
        }
        Harm::Blocks(lbas) => testbed.rig.drive().damaged.extend(lbas.map(|lba| (lba, Damage::Unreadable))),
        Harm::Reset(zone) => testbed.rig.reset_directly(ZoneIndex(zone)),
        Harm::Exchange(zone, other) => testbed.rig.exchange_directly(ZoneIndex(zone), ZoneIndex(other)),
        Harm::OldDrive => epoch_min = epoch + 1,
    }
    let text = |error| format!("{history:?}, {harm:?}: {error}");
    let refused = testbed.rig.try_mount_with_bug(epoch_min, bug);
    match (refused, harm) {
        (Some(_), Harm::Blocks(_) | Harm::OldDrive) => Ok(()),
        (Some(error), _) => Err(text(format!("the mount is refused: {error}"))),
        (None, Harm::OldDrive) => Err(text("an old copy is mounted".to_owned())),
        (None, _) => testbed.verify(Crash::PowerLoss, is_excused && !matches!(harm, Harm::Blocks(_))).map_err(text),
    }
}

/// Every harm after a history. Returns the number of cases.
fn harm_everything(history: &[Op], bug: Option<SeededBug>) -> Result<u64, String> {
    let mut testbed = Testbed::new();
    testbed.run(history);
    testbed.act(Op::Flush);
    let all = harms(&mut testbed);
    all.iter().try_for_each(|one| harm(history, *one, bug))?;
    Ok(all.len() as u64)
}

fn all_cases(length: usize) -> u64 {
    let histories = histories(length);
    let cases = histories.iter().map(|history| {
        let cuts = cut_everywhere(history).unwrap_or_else(|error| panic!("{error}"));
        cuts + harm_everything(history, None).unwrap_or_else(|error| panic!("{error}"))
    });
    let cases = cases.sum();
    println!("{cases} cases of {} histories", histories.len());
    cases
}

#[test]
fn no_cut_and_no_single_damage_after_one_operation_loses_what_was_acknowledged() {
    assert!(all_cases(1) > 300);
}

#[test]
#[ignore = "soak"]
fn soak_no_cut_and_no_single_damage_after_three_operations_loses_what_was_acknowledged() {
    assert!((2..4).map(all_cases).sum::<u64>() > 50_000);
}

#[test]
fn bugs_that_need_damage_are_found_by_histories_of_two_operations() {
    for bug in SeededBug::ENUMERATED {
        let all = (1..3).flat_map(histories);
        let found = all.into_iter().find_map(|history| harm_everything(&history, Some(bug)).err());
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
