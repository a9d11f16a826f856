//! A drive with constant service times, and a rig that submits commands and checks completions.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod elements;

use std::collections::BTreeMap;

use serde::Deserialize;
use zonda_config::{ByteSize, TimeSpan};
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::{Bandwidth, Profile};
use zonda_ssd::service_time::{BySize, ServiceTimeSpec};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Instant, Lba, LbaRange, NamespaceId, Operation, Outcome,
    Payload, PayloadKind, Prng, ZoneAction, ZoneIndex, ZoneTarget, ZonedDevice,
};

/// Blocks of 4 KiB in a page, a program unit and a zone of the drives here.
pub const PAGE: u64 = 4;
pub const UNIT: u64 = 12;
pub const CAPACITY: u64 = 384;
pub const KIB: u64 = 1024;

/// One microsecond, as all times of these tests are whole ones.
pub const fn us(microseconds: u64) -> TimeSpan {
    TimeSpan(microseconds * 1_000)
}

pub fn constant(microseconds: u64) -> ServiceTimeSpec {
    ServiceTimeSpec::constant(us(microseconds))
}

/// A constant time for every size.
pub fn always(microseconds: u64) -> BySize {
    distribution(&format!("x = [{{ time = {{ base = \"{microseconds} us\" }} }}]"))
}

fn distribution(text: &str) -> BySize {
    #[derive(Deserialize)]
    struct Holder {
        x: BySize,
    }
    toml::from_str::<Holder>(text).expect("a distribution in TOML").x
}

/// The built-in `tiny` as it is.
pub fn tiny() -> Profile {
    Profile::parse(builtin_text("tiny").expect("tiny is built in")).expect("and valid")
}

/// The built-in `tiny` with constant times: 40 us to sense 4 KiB and 50 us a page of 16 KiB, 16 us
/// to send a page over the channel and 4 us over the link, 600 us a program of 48 KiB, 3 ms an
/// erase, slices of 200 us. A read costs 1 us of the core and 5 us in parallel, a write 2 and 5, an
/// append 3 and 5. Zone `z` lies on die `z % 4` alone, die `d` is on channel `d % 2`; the buffer
/// has no cap.
pub fn drive_of_constants() -> Profile {
    let mut profile = tiny();
    let flash = &mut profile.flash;
    flash.read =
        distribution("x = [{ up_to = \"4 KiB\", time = { base = \"40 us\" } }, { time = { base = \"50 us\" } }]");
    flash.program = constant(600);
    flash.erase = constant(3_000);
    profile.channel.bandwidth = Bandwidth(1_024_000_000);
    profile.link.read_bandwidth = Bandwidth(4_096_000_000);
    profile.link.write_bandwidth = Bandwidth(4_096_000_000);
    profile.zones.parallelism = 1;
    profile.write_buffer.cap = None;
    profile.geometry.max_active_zones = None;
    profile.geometry.max_open_zones = None;
    profile
}

/// As [`drive_of_constants`], with zones over all four dies.
pub fn wide_drive() -> Profile {
    let mut profile = drive_of_constants();
    profile.zones.parallelism = 4;
    profile
}

/// As [`wide_drive`], all of it conventional.
pub fn conventional_drive() -> Profile {
    let mut profile = wide_drive();
    profile.geometry.zone_size = profile.geometry.zone_capacity;
    profile.geometry.conventional_zones = profile.geometry.zones;
    profile.geometry.zrwa = None;
    profile
}

pub fn kib(kibibytes: u64) -> ByteSize {
    ByteSize(kibibytes * KIB)
}

/// A drive and its submitter.
pub struct Rig {
    pub drive: Ssd,
    pub now: Instant,
    next_id: u64,
    ended: BTreeMap<u64, (Instant, Completion)>,
}

impl Rig {
    pub fn new(profile: &Profile) -> Rig {
        Rig::with(profile, PayloadKind::None, 1)
    }

    pub fn with(profile: &Profile, keeps: PayloadKind, seed: u64) -> Rig {
        Rig::of(Ssd::new(profile, keeps, &Prng::new(seed)))
    }

    pub fn of(drive: Ssd) -> Rig {
        Rig { drive, now: Instant::ZERO, next_id: 0, ended: BTreeMap::new() }
    }

    pub fn submit(&mut self, operation: Operation) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        self.drive.submit(self.now, command).expect("the queue of the drive is not full");
        id
    }

    pub fn lba(&self, zone: u32, block: u64) -> Lba {
        self.drive.geometry(NamespaceId::FIRST).zone_start(ZoneIndex(zone)) + Blocks(block)
    }

    pub fn write(&mut self, zone: u32, block: u64, blocks: u64) -> u64 {
        self.write_of(zone, block, blocks, Payload::None)
    }

    pub fn write_of(&mut self, zone: u32, block: u64, blocks: u64, payload: Payload) -> u64 {
        let start = self.lba(zone, block);
        self.submit(Operation::Write { start, blocks: Blocks(blocks), payload })
    }

    pub fn append(&mut self, zone: u32, blocks: u64) -> u64 {
        let zone_start = self.lba(zone, 0);
        self.submit(Operation::Append { zone_start, blocks: Blocks(blocks), payload: Payload::None })
    }

    pub fn write_zeroes(&mut self, zone: u32, block: u64, blocks: u64) -> u64 {
        let start = self.lba(zone, block);
        self.submit(Operation::WriteZeroes { start, blocks: Blocks(blocks) })
    }

    pub fn read(&mut self, zone: u32, block: u64, blocks: u64) -> u64 {
        let start = self.lba(zone, block);
        self.submit(Operation::Read { start, blocks: Blocks(blocks) })
    }

    pub fn deallocate(&mut self, zone: u32, block: u64, blocks: u64) -> u64 {
        let range = LbaRange { start: self.lba(zone, block), blocks: Blocks(blocks) };
        self.submit(Operation::Deallocate { ranges: [range].into() })
    }

    pub fn manage(&mut self, zone: u32, action: ZoneAction) -> u64 {
        let target = ZoneTarget::Zone(self.lba(zone, 0));
        self.submit(Operation::ManageZones { action, target })
    }

    pub fn reset(&mut self, zone: u32) -> u64 {
        self.manage(zone, ZoneAction::Reset)
    }

    pub fn finish(&mut self, zone: u32) -> u64 {
        self.manage(zone, ZoneAction::Finish)
    }

    pub fn prefill(&mut self, zone: u32, blocks: u64) {
        self.drive.prefill(ZoneIndex(zone), Blocks(blocks)).expect("there is an active resource for it");
    }

    /// Handles one instant; false when nothing is in flight.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.drive.next_timeout() else { return false };
        self.now = self.now.max(next);
        self.collect();
        true
    }

    fn collect(&mut self) {
        let mut completions = CompletionQueue::new();
        self.drive.poll(self.now, &mut completions);
        while let Some(completion) = completions.pop() {
            let before = self.ended.insert(completion.id.0, (self.now, completion));
            assert!(before.is_none(), "a command completes once");
        }
    }

    /// Runs until nothing is in flight, background work included.
    pub fn run(&mut self) {
        while self.step() {}
        assert_eq!(self.drive.outstanding(), 0, "nothing is in flight, but commands are outstanding");
        self.drive.check_invariants();
    }

    /// Runs up to and including an instant.
    pub fn run_until_us(&mut self, microseconds: u64) {
        let until = Instant(microseconds * 1_000);
        while self.drive.next_timeout().is_some_and(|next| next <= until) {
            self.step();
        }
        self.now = until;
        self.collect();
    }

    pub fn run_until_end_of(&mut self, id: u64) {
        while !self.has_ended(id) {
            assert!(self.step(), "command {id} waits for ever");
        }
    }

    pub fn has_ended(&self, id: u64) -> bool {
        self.ended.contains_key(&id)
    }

    /// When a command ended, in whole microseconds.
    pub fn end_us(&self, id: u64) -> u64 {
        let (at, completion) = self.ended.get(&id).expect("the command has ended");
        assert!(completion.status.is_success(), "{:?}", completion.status);
        assert_eq!(at.0 % 1_000, 0, "times of these tests are whole microseconds");
        at.0 / 1_000
    }

    pub fn end(&self, id: u64) -> Instant {
        self.ended[&id].0
    }

    pub fn completion(&self, id: u64) -> &Completion {
        &self.ended[&id].1
    }

    pub fn now_us(&self) -> u64 {
        self.now.0 / 1_000
    }

    /// Runs one command alone, and returns its latency.
    pub fn alone_us(&mut self, submit: impl FnOnce(&mut Rig) -> u64) -> u64 {
        self.run();
        let start = self.now_us();
        let id = submit(self);
        self.run_until_end_of(id);
        self.end_us(id) - start
    }

    /// The fingerprints that a read returns.
    pub fn prints(&mut self, start: Lba, blocks: u64) -> Vec<u64> {
        let id = self.submit(Operation::Read { start, blocks: Blocks(blocks) });
        self.run_until_end_of(id);
        match &self.completion(id).outcome {
            Outcome::Data(Payload::Fingerprints(prints)) => prints.to_vec(),
            other => panic!("a read of a store of fingerprints brings {other:?}"),
        }
    }
}
