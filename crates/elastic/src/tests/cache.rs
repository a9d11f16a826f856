//! A drive with a volatile cache: what was flushed is there after any power loss, and nothing reads
//! as zeros that a host has written.

use std::collections::BTreeMap;

use zonda_zoned::{
    Blocks, CommandId, Completion, Duration, Lba, NamespaceId, Operation, Outcome, Payload, Prng, Status, ZoneAction,
    ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::rig::{Rig, bytes};

const TENANT: NamespaceId = NamespaceId(1);
const ZONES: u32 = 6;

/// What a host knows of a zone since its last reset.
#[derive(Clone, Debug, Default)]
struct Life {
    number: u64,
    submitted: u64,
    acknowledged: u64,
    flushed: u64,
    /// A finish was submitted, or acknowledged.
    finish: Option<bool>,
}

#[derive(Debug, Default)]
struct Zone {
    now: Life,
    /// Before a reset that is not acknowledged.
    before: Option<Life>,
}

#[derive(Debug)]
enum Flight {
    Write {
        zone: usize,
        life: u64,
        end: u64,
    },
    Finish {
        zone: usize,
    },
    Reset {
        zone: usize,
    },
    /// Acknowledged blocks of each zone, with their lives, when it was submitted.
    Flush(Vec<(u64, u64)>),
}

struct Host {
    rig: Rig,
    prng: Prng,
    zones: Vec<Zone>,
    flights: BTreeMap<CommandId, Flight>,
    torn: u64,
    /// A second tenant, which could use the spares of the first.
    other: Option<NamespaceId>,
    reclaims: u64,
}

fn content(zone: usize, life: u64, block: u64) -> u8 {
    1 + ((life * 67 + zone as u64 * 31 + block) % 251) as u8
}

impl Host {
    fn new(seed: u64) -> Host {
        let mut prng = Prng::new(seed).fork("elastic/cache");
        let mut rig = match prng.below(3) {
            0 => Rig::with_active_zones(8, 1),
            1 => Rig::with_active_zones(14, 2),
            _ => Rig::with_active_zones(32, 4),
        };
        rig.create("tenant", ZONES, 3);
        let has_other = rig.device().pool().unwrap().shape().width_max > 1;
        let other = has_other.then(|| rig.create("other", 3, 2));
        if prng.chance(1, 3) {
            rig.drive().depth = 1 + prng.below(3) as usize;
        }
        Host {
            rig,
            prng,
            zones: (0..ZONES).map(|_| Zone::default()).collect(),
            flights: BTreeMap::new(),
            torn: 0,
            other,
            reclaims: 0,
        }
    }

    fn submit(&mut self, flight: Flight, operation: Operation) {
        let id = self.rig.submit(TENANT, operation);
        self.flights.insert(id, flight);
    }

    fn act(&mut self) {
        let index = self.prng.below(ZONES.into()) as usize;
        let (size, capacity) = (self.rig.zone_size(TENANT), self.capacity());
        let table = self.rig.device().pool().unwrap().table(TENANT).unwrap();
        let (state, active) = (table.zone(ZoneIndex(index as u32)).state, table.active_zones());
        let start = Lba(index as u64 * size);
        let target = ZoneTarget::Zone(start);
        let zone = &mut self.zones[index];
        match self.prng.below(24) {
            0 if zone.before.is_none() && (state.is_active() || state == ZoneState::Full) => {
                let next = Life { number: zone.now.number + 1, ..Life::default() };
                zone.before = Some(std::mem::replace(&mut zone.now, next));
                self.submit(
                    Flight::Reset { zone: index },
                    Operation::ManageZones { action: ZoneAction::Reset, target },
                );
            }
            1 if state.is_active() => {
                zone.now.finish = Some(false);
                self.submit(
                    Flight::Finish { zone: index },
                    Operation::ManageZones { action: ZoneAction::Finish, target },
                );
            }
            2..=4 => {
                let floors = self.zones.iter().map(|zone| (zone.now.number, zone.now.acknowledged)).collect();
                self.submit(Flight::Flush(floors), Operation::Flush);
            }
            _ if state.is_active() || (state == ZoneState::Empty && active < 3) => {
                let (from, life) = (zone.now.submitted, zone.now.number);
                let end = (from + 1 + self.prng.below(8)).min(capacity);
                zone.now.submitted = end;
                let values: Vec<u8> = (from..end).map(|block| content(index, life, block)).collect();
                let operation = Operation::Write {
                    start: start + Blocks(from),
                    blocks: Blocks(end - from),
                    payload: bytes(&values),
                };
                self.submit(Flight::Write { zone: index, life, end }, operation);
            }
            _ => {}
        }
    }

    fn capacity(&mut self) -> u64 {
        self.rig.device().geometry(TENANT).zone_capacity_blocks.0
    }

    fn on_completion(&mut self, completion: &Completion) {
        // What the other tenant writes is not compared.
        let Some(flight) = self.flights.get(&completion.id) else { return };
        assert_eq!(completion.status, Status::Success, "{flight:?}");
        match self.flights.remove(&completion.id).expect("it was submitted") {
            Flight::Write { zone, life, end } => {
                let zone = &mut self.zones[zone];
                if zone.now.number == life {
                    zone.now.acknowledged = end;
                } else if let Some(before) = &mut zone.before {
                    before.acknowledged = end;
                }
            }
            Flight::Finish { zone } => {
                let zone = &mut self.zones[zone];
                let life = zone.before.as_mut().unwrap_or(&mut zone.now);
                life.finish = Some(true);
                life.flushed = life.acknowledged;
            }
            Flight::Reset { zone } => self.zones[zone].before = None,
            Flight::Flush(floors) => {
                for (zone, (life, blocks)) in self.zones.iter_mut().zip(floors) {
                    let lives = [Some(&mut zone.now), zone.before.as_mut()];
                    if let Some(own) = lives.into_iter().flatten().find(|own| own.number == life) {
                        own.flushed = own.flushed.max(blocks);
                    }
                }
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..self.prng.below(60) {
            for _ in 0..=self.prng.below(4) {
                self.act();
            }
            for completion in self.rig.quiesce() {
                self.on_completion(&completion);
            }
            self.rig.check();
        }
        if self.prng.chance(1, 2) {
            self.be_quiet();
        }
    }

    /// Seconds in which only the other tenant opens groups: those of the first are reclaimed.
    fn be_quiet(&mut self) {
        let Some(other) = self.other else { return };
        for _ in 0..5 {
            self.rig.now += Duration::from_secs(1);
            let target = ZoneTarget::Zone(Lba(0));
            self.rig.submit(other, Operation::ManageZones { action: ZoneAction::Reset, target });
            self.rig.submit(other, Operation::Write { start: Lba(0), blocks: Blocks(1), payload: bytes(&[7]) });
            for completion in self.rig.quiesce() {
                self.on_completion(&completion);
            }
            self.rig.check();
        }
    }

    /// Cuts the power while something is in flight, and loses what is in the cache, more of some
    /// zones than of others.
    fn lose_power(&mut self) {
        self.reclaims += self.rig.device().pool().unwrap().reclaimed_groups();
        let prng = &mut self.prng;
        let style = prng.below(4);
        self.rig.mount_after(|drive| {
            drive.lose_power(|_, flushed, written| match style {
                0 => flushed,
                1 => written,
                2 => {
                    if prng.chance(1, 2) {
                        written
                    } else {
                        flushed
                    }
                }
                _ => flushed + prng.below(written - flushed + 1),
            });
        });
        self.flights.clear();
        self.rig.check();
        for index in 0..ZONES as usize {
            self.compare(index);
        }
    }

    fn compare(&mut self, index: usize) {
        let capacity = self.capacity();
        let start = index as u64 * self.rig.zone_size(TENANT);
        let found = self.rig.device().pool().unwrap().table(TENANT).unwrap().zone(ZoneIndex(index as u32));
        let (state, pointer) = (found.state, found.write_pointer_blocks.0);
        // Cached rows that were lost may be more than the slack of a group holds.
        let is_torn = found.attributes.finished_by_controller;
        self.torn += u64::from(is_torn);
        let mut values = Vec::new();
        for block in 0..capacity {
            let outcome = self.rig.execute(TENANT, Operation::Read { start: Lba(start + block), blocks: Blocks(1) });
            let Outcome::Data(Payload::Bytes(buffer)) = outcome.outcome else { panic!("{outcome:?}") };
            values.push(buffer.data[0]);
        }
        let Zone { now, before } = std::mem::take(&mut self.zones[index]);
        let stands = |life: &Life| {
            let own = (0..capacity).take_while(|block| values[*block as usize] == content(index, life.number, *block));
            own.count() as u64
        };
        let is_possible = |life: &Life, is_old: bool| {
            let blocks = stands(life).min(life.submitted);
            let rest_is_zero = values[blocks as usize..].iter().all(|value| *value == 0);
            let is_enough = blocks >= life.flushed && rest_is_zero;
            match state {
                ZoneState::Empty => {
                    !is_old && blocks == 0 && is_enough && life.finish != Some(true)
                        || (is_old && life.flushed == 0 && life.finish != Some(true))
                }
                ZoneState::Closed => is_enough && blocks == pointer && life.finish != Some(true),
                ZoneState::Full if life.submitted == capacity && blocks == capacity => true,
                ZoneState::Full if is_torn => is_enough && blocks == pointer && life.finish != Some(true),
                ZoneState::Full => life.finish.is_some() && is_enough && blocks >= life.acknowledged,
                _ => false,
            }
        };
        let own = [Some((now.clone(), false)), before.clone().map(|life| (life, true))];
        let life = own.into_iter().flatten().find(|(life, is_old)| is_possible(life, *is_old));
        let Some((life, _)) = life else {
            panic!("zone {index} is {state} up to {pointer}, {now:?} or {before:?}: {values:?}")
        };
        let blocks = stands(&life).min(life.submitted);
        let (blocks, number) = if state == ZoneState::Empty { (0, now.number + 1) } else { (blocks, life.number) };
        let finish = (state == ZoneState::Full).then_some(true);
        let now = Life { number, submitted: blocks, acknowledged: blocks, flushed: blocks, finish };
        self.zones[index] = Zone { now, before: None };
    }
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    let (mut torn, mut reclaims) = (0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let mut host = Host::new(seed);
        for _ in 0..4 {
            let left = host.prng.below(1_200) as usize;
            let is_cut = host.prng.chance(3, 4);
            if is_cut {
                host.rig.drive().completions_left = left;
            }
            host.run();
            host.lose_power();
        }
        torn += host.torn;
        reclaims += host.reclaims;
    }
    println!("{torn} zones were finished, {reclaims} groups were reclaimed");
    assert!(reclaims > 20, "{reclaims} groups were reclaimed");
}

#[test]
fn what_was_flushed_survives_the_loss_of_a_volatile_cache() {
    run_seeds(0..200);
}

#[test]
#[ignore = "a minute for 5,000 seeds"]
fn soak_losses_of_a_volatile_cache() {
    run_seeds(1_000..6_000);
}
