//! Power losses while commands of several tenants are in flight: what was acknowledged is there.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_config::ByteSize;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation,
    Outcome, Payload, PayloadKind, Prng, ReportFilter, Status, ZoneAction, ZoneState, ZoneTarget, ZonedDevice,
};

use super::rig::ID;
use crate::{ElasticDevice, Goal, NamespaceConfig, Pool, PoolOptions};

const BLOCK_BYTES: usize = 512;

/// What a host knows of a zone.
#[derive(Clone, Debug, Default)]
struct Zone {
    /// Counts resets that were submitted.
    generation: u64,
    submitted: u64,
    acknowledged: u64,
    /// A finish was submitted, or acknowledged.
    finish: Option<bool>,
    /// What the zone was before a reset that is in flight.
    before_reset: Option<Box<Zone>>,
}

#[derive(Clone, Debug)]
enum Flight {
    Write { zone: usize, end: u64, generation: u64 },
    Finish { zone: usize },
    Reset { zone: usize },
    Read { zone: usize, start: u64, generation: u64 },
    Other,
}

struct Testbed {
    profile: Profile,
    device: Option<ElasticDevice<Ssd>>,
    now: Instant,
    prng: Prng,
    zones: BTreeMap<NamespaceId, Vec<Zone>>,
    flights: BTreeMap<u64, (NamespaceId, Flight)>,
    next_id: u64,
    writes: u64,
    /// Is only read for a while, so that its groups are reclaimed.
    quiet: Option<NamespaceId>,
    reclaims: u64,
}

/// A drive of small zones on single dies, and few active ones.
fn profile(active: u32, zone_count: u32) -> Profile {
    let mut profile = Profile::parse(zonda_profiles::builtin_text("tiny").unwrap()).unwrap();
    let geometry = Geometry {
        block_size_bytes: BLOCK_BYTES as u32,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(48),
        zone_count,
        max_active_zones: Some(active),
        max_open_zones: Some(active),
        descriptor_extension_bytes: 0,
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(16),
        ..Geometry::tiny()
    };
    profile.geometry = (&geometry).into();
    profile.flash.read_unit = ByteSize(512);
    profile.flash.program_unit = ByteSize(1024);
    profile.flash.erase_unit = ByteSize(4096);
    profile.zones.parallelism = 1;
    profile.write_buffer.capacity = ByteSize(64 * 1024);
    profile.write_buffer.cap = Some(ByteSize(4096));
    profile
}

fn contents(namespace: NamespaceId, zone: usize, generation: u64, block: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    for (index, word) in [u64::from(namespace.0), zone as u64, generation, block].into_iter().enumerate() {
        bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl Testbed {
    fn new(seed: u64) -> Testbed {
        let mut prng = Prng::new(seed).fork("elastic/crash");
        let active = [8, 14, 32][prng.below(3) as usize];
        let profile = profile(active, 120);
        let width = if active == 8 { 1 } else { 4 };
        // With few essentials groups have spares, which can be reclaimed.
        let essential_zones = prng.chance(1, 2).then_some(4);
        let options = PoolOptions { zones_per_vzone: Some(4), width_max: Some(width), essential_zones };
        let drive = Ssd::new(&profile, PayloadKind::Bytes, &prng.fork("drive"));
        let device = ElasticDevice::new(drive, Goal::Create { id: ID, options }, PayloadKind::Bytes);
        let mut testbed = Testbed {
            profile,
            device: Some(device),
            now: Instant(1),
            prng,
            zones: BTreeMap::new(),
            flights: BTreeMap::new(),
            next_id: 0,
            writes: 0,
            quiet: None,
            reclaims: 0,
        };
        testbed.run_until_open();
        for (name, zone_count) in [("a", 6), ("b", 5)] {
            let config = NamespaceConfig::new(name, [zone_count as u8; 16], zone_count, 2);
            let now = testbed.now;
            let id = testbed.device().create_namespace(now, &config).expect("there is room");
            testbed.zones.insert(id, vec![Zone::default(); zone_count as usize]);
        }
        while testbed.device().namespaces().iter().count() < 2 {
            testbed.step();
        }
        testbed
    }

    fn device(&mut self) -> &mut ElasticDevice<Ssd> {
        self.device.as_mut().expect("the power is on")
    }

    fn run_until_open(&mut self) {
        for _ in 0..100_000 {
            self.step();
            assert_eq!(self.device().error(), None);
            if self.device().pool().is_some_and(Pool::is_started) {
                return;
            }
        }
        panic!("the pool does not open");
    }

    /// Goes on to the next event.
    fn step(&mut self) {
        let mut queue = CompletionQueue::new();
        if let Some(at) = self.device().next_timeout() {
            self.now = self.now.max(at);
        }
        let now = self.now;
        self.device().poll(now, &mut queue);
        while let Some(completion) = queue.pop() {
            let (namespace, flight) = self.flights.remove(&completion.id.0).expect("it was submitted");
            self.on_completion(namespace, &flight, completion.status, completion.outcome);
        }
        if let Some(pool) = self.device().pool() {
            pool.check_invariants();
        }
    }

    fn on_completion(&mut self, namespace: NamespaceId, flight: &Flight, status: Status, outcome: Outcome) {
        let zones = self.zones.get_mut(&namespace).unwrap();
        assert_eq!(status, Status::Success, "{flight:?}");
        match *flight {
            Flight::Write { zone, end, generation } => {
                let zone = &mut zones[zone];
                let is_present = generation == zone.generation;
                let before = if is_present { zone } else { zone.before_reset.as_mut().unwrap() };
                assert!(end > before.acknowledged, "writes are acknowledged in their order");
                before.acknowledged = end;
            }
            Flight::Finish { zone } => zones[zone].finish = Some(true),
            Flight::Reset { zone } => zones[zone].before_reset = None,
            Flight::Read { zone, start, generation } => {
                let Outcome::Data(Payload::Bytes(buffer)) = outcome else { panic!("a read returns bytes") };
                for (index, block) in buffer.data.chunks(BLOCK_BYTES).enumerate() {
                    let expected = contents(namespace, zone, generation, start + index as u64);
                    let words: Vec<u64> =
                        block[..32].chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
                    let at = start + index as u64;
                    assert!(
                        block == expected,
                        "{namespace} zone {zone} block {at} of generation {generation}: {words:?}, {:?}",
                        zones[zone]
                    );
                }
            }
            Flight::Other => {}
        }
    }

    fn submit(&mut self, namespace: NamespaceId, flight: Flight, operation: Operation) {
        let id = self.next_id;
        self.next_id += 1;
        self.flights.insert(id, (namespace, flight));
        let now = self.now;
        self.device().submit(now, Command::new(CommandId(id), namespace, operation)).expect("the queue is not full");
    }

    /// A random command of a random tenant.
    fn act(&mut self) {
        let ids: Vec<NamespaceId> = self.zones.keys().copied().collect();
        let namespace = *self.prng.pick(&ids).unwrap();
        let geometry = self.device().geometry(namespace).clone();
        let (size, capacity) = (geometry.zone_size_blocks.0, geometry.zone_capacity_blocks.0);
        let index = self.prng.below(u64::from(geometry.zone_count)) as usize;
        let state =
            self.device().pool().unwrap().table(namespace).unwrap().zone(zonda_zoned::ZoneIndex(index as u32)).state;
        let active = self.device().pool().unwrap().table(namespace).unwrap().active_zones();
        let zone = self.zones[&namespace][index].clone();
        let start = Lba(index as u64 * size);
        let target = ZoneTarget::Zone(start);
        let is_quiet = self.quiet == Some(namespace);
        match if is_quiet { 3 } else { self.prng.below(20) } {
            0 if zone.before_reset.is_none() && zone.finish != Some(false) && state != ZoneState::Empty => {
                let own = &mut self.zones.get_mut(&namespace).unwrap()[index];
                let before = std::mem::take(own);
                own.generation = before.generation + 1;
                own.before_reset = Some(Box::new(before));
                let operation = Operation::ManageZones { action: ZoneAction::Reset, target };
                self.submit(namespace, Flight::Reset { zone: index }, operation);
            }
            1 if self.prng.chance(1, 3) && state.is_active() => {
                self.zones.get_mut(&namespace).unwrap()[index].finish = Some(false);
                let operation = Operation::ManageZones { action: ZoneAction::Finish, target };
                self.submit(namespace, Flight::Finish { zone: index }, operation);
            }
            2 => self.submit(namespace, Flight::Other, Operation::Flush),
            3..=7 if zone.submitted > 0 => {
                let from = self.prng.below(zone.submitted);
                let blocks = (1 + self.prng.below(16)).min(zone.submitted - from);
                let flight = Flight::Read { zone: index, start: from, generation: zone.generation };
                self.submit(namespace, flight, Operation::Read { start: start + Blocks(from), blocks: Blocks(blocks) });
            }
            _ if !is_quiet && (state.is_active() || (state == ZoneState::Empty && active < 2)) => {
                let left = capacity - zone.submitted;
                let blocks = (1 + self.prng.below(16)).min(left);
                let end = zone.submitted + blocks;
                let data: Vec<u8> = (zone.submitted..end)
                    .flat_map(|block| contents(namespace, index, zone.generation, block))
                    .collect();
                let buffer = BlockBuffer { data: data.into(), metadata: Bytes::new() };
                let payload = Payload::Bytes(Box::new(buffer));
                let operation = if self.prng.chance(1, 2) {
                    Operation::Append { zone_start: start, blocks: Blocks(blocks), payload }
                } else {
                    Operation::Write { start: start + Blocks(zone.submitted), blocks: Blocks(blocks), payload }
                };
                self.zones.get_mut(&namespace).unwrap()[index].submitted = end;
                self.writes += 1;
                self.submit(namespace, Flight::Write { zone: index, end, generation: zone.generation }, operation);
            }
            _ => {}
        }
    }

    /// Cuts the power, mounts the pool, now and then with another cut in between, and compares.
    fn cut(&mut self) {
        self.reclaims += self.device().pool().unwrap().reclaimed_groups();
        let mut drive = self.device.take().unwrap().into_drive();
        loop {
            let media = drive.power_loss(&mut self.prng);
            let drive_again = Ssd::power_on(&self.profile, media, &self.prng.fork("again"));
            let goal = Goal::Mount { id: Some(ID), epoch_min: 1 };
            self.device = Some(ElasticDevice::new(drive_again, goal, PayloadKind::Bytes));
            self.flights.clear();
            if self.prng.chance(1, 3) {
                for _ in 0..self.prng.below(300) {
                    self.step();
                }
                drive = self.device.take().unwrap().into_drive();
                continue;
            }
            break;
        }
        self.run_until_open();
        self.compare();
    }

    fn compare(&mut self) {
        for namespace in self.zones.keys().copied().collect::<Vec<_>>() {
            let size = self.device().geometry(namespace).zone_size_blocks.0;
            let capacity = self.device().geometry(namespace).zone_capacity_blocks.0;
            let operation = Operation::ReportZones {
                start: Lba(0),
                filter: ReportFilter::All,
                extended: false,
                partial: false,
                descriptors_max: 100,
            };
            let Outcome::Report(report) = self.execute(namespace, &operation) else { panic!("a report") };
            for (index, found) in report.zones.iter().enumerate() {
                let mut zone = self.zones[&namespace][index].clone();
                let written = match found.write_pointer {
                    Some(pointer) => pointer.0 - found.start.0,
                    None => u64::MAX,
                };
                let text = format!("zone {index}: {:?} {written}, {zone:?}", found.state);
                if let Some(before) = zone.before_reset.take()
                    && found.state != ZoneState::Empty
                {
                    // The reset has not happened, so nothing behind it has either, or it has, and something was written.
                    let is_before = self.first_block_is(namespace, index, before.generation);
                    if is_before {
                        zone = *before;
                    }
                }
                let readable = match found.state {
                    ZoneState::Empty => 0,
                    ZoneState::Full => {
                        assert!(zone.finish.is_some() || zone.submitted == capacity, "{text}");
                        zone.acknowledged
                    }
                    ZoneState::Closed => {
                        assert!(zone.finish != Some(true), "{text}");
                        assert!(written <= zone.submitted, "{text}");
                        written
                    }
                    _ => panic!("{text}"),
                };
                assert!(readable >= zone.acknowledged, "{text}");
                let mut block = 0;
                while block < readable {
                    let blocks = (readable - block).min(16);
                    let start = Lba(index as u64 * size + block);
                    let outcome = self.execute(namespace, &Operation::Read { start, blocks: Blocks(blocks) });
                    let flight = Flight::Read { zone: index, start: block, generation: zone.generation };
                    self.on_completion(namespace, &flight, Status::Success, outcome);
                    block += blocks;
                }
                let finish = if found.state == ZoneState::Full { Some(true) } else { None };
                let readable = if found.state == ZoneState::Full { zone.acknowledged } else { readable };
                let own = &mut self.zones.get_mut(&namespace).unwrap()[index];
                *own = Zone {
                    generation: zone.generation + u64::from(found.state == ZoneState::Empty),
                    submitted: readable,
                    acknowledged: readable,
                    finish,
                    before_reset: None,
                };
            }
        }
    }

    fn first_block_is(&mut self, namespace: NamespaceId, index: usize, generation: u64) -> bool {
        let size = self.device().geometry(namespace).zone_size_blocks.0;
        let start = Lba(index as u64 * size);
        let Outcome::Data(Payload::Bytes(buffer)) =
            self.execute(namespace, &Operation::Read { start, blocks: Blocks(1) })
        else {
            panic!("a read returns bytes")
        };
        buffer.data == contents(namespace, index, generation, 0)[..]
    }

    fn execute(&mut self, namespace: NamespaceId, operation: &Operation) -> Outcome {
        let id = CommandId(u64::MAX);
        let now = self.now;
        self.device().submit(now, Command::new(id, namespace, operation.clone())).expect("the queue is not full");
        for _ in 0..1_000_000 {
            let mut queue = CompletionQueue::new();
            if let Some(at) = self.device().next_timeout() {
                self.now = self.now.max(at);
            }
            let now = self.now;
            self.device().poll(now, &mut queue);
            if let Some(completion) = queue.pop() {
                assert_eq!(completion.status, Status::Success, "{operation:?}");
                return completion.outcome;
            }
        }
        panic!("{operation:?} does not end");
    }

    fn run(&mut self) {
        let ids: Vec<NamespaceId> = self.zones.keys().copied().collect();
        self.quiet = if self.prng.chance(1, 2) { self.prng.pick(&ids).copied() } else { None };
        for _ in 0..self.prng.below(400) {
            if self.quiet.is_some() && self.prng.chance(1, 8) {
                self.now += Duration::from_millis(300);
            }
            for _ in 0..self.prng.below(4) {
                if self.flights.len() < 12 {
                    self.act();
                }
            }
            self.step();
        }
    }

    /// Everything that was submitted ends.
    fn drain(&mut self) {
        for _ in 0..1_000_000 {
            if self.flights.is_empty() {
                return;
            }
            self.step();
        }
        panic!("commands do not end: {:?}", self.flights);
    }
}

/// Runs of six power losses each; returns the number of writes and of reclaimed groups.
fn run_seeds(seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut writes, mut reclaims) = (0, 0);
    for seed in seeds {
        // A failure shows the last of these.
        println!("seed {seed}");
        let mut testbed = Testbed::new(seed);
        for _ in 0..6 {
            testbed.run();
            if testbed.prng.chance(1, 4) {
                testbed.drain();
            }
            testbed.cut();
        }
        testbed.run();
        testbed.drain();
        writes += testbed.writes;
        reclaims += testbed.reclaims;
    }
    (writes, reclaims)
}

#[test]
fn what_was_acknowledged_is_there_after_any_power_loss() {
    let (writes, reclaims) = run_seeds(0..40);
    assert!(writes > 3_000 && reclaims > 3, "{writes} writes, {reclaims} reclaimed groups");
}

/// Both waited for ever with this seed: for the zones of the copy, and for the host to have its group.
#[test]
fn a_copy_and_a_host_do_not_wait_for_each_other() {
    assert!(run_seeds(1_776..1_777).0 > 0);
}

#[test]
#[ignore = "20 seconds for a thousand seeds"]
fn soak_power_losses() {
    let (writes, reclaims) = run_seeds(1_000..3_000);
    assert!(writes > 100_000 && reclaims > 200, "{writes} writes, {reclaims} reclaimed groups");
}
