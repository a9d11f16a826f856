//! What a pool adds to a command: processor time of an elastic namespace, without and with the
//! scheduler of eZNS, beside the same commands to the bare device, in one run.
//!
//! The device only applies the zone rules, so all of the difference is the pool's: the tables, the
//! pieces of stripe groups, the order of completions, and the scheduler.

use std::hint::black_box;

use serde::Serialize;
use zonda_elastic::{ElasticDevice, Goal, NamespaceConfig, Pool, PoolId, PoolOptions};
use zonda_layers::Null;
use zonda_sched::{Ezns, EznsConfig, Scheduled};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Payload, PayloadKind,
    Prng, ZonedDevice,
};

use crate::host::{cpu_ns, median};

const ROUNDS: usize = 5;
const QUEUE_DEPTHS: [usize; 4] = [1, 8, 32, 128];
/// Commands of one round.
const COMMANDS: u64 = 400_000;
/// Zones that are read, or written in turn.
const ZONES: u64 = 8;

#[derive(Serialize)]
struct Figures {
    case: &'static str,
    queue_depth: usize,
    bare_ns: f64,
    elastic_ns: f64,
    elastic_ezns_ns: f64,
    added_ns: f64,
    added_with_ezns_ns: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// The drive of eZNS: 40,704 zones of 96 MiB, 256 of them active.
pub(crate) fn geometry() -> Geometry {
    let blocks = Blocks(96 * 256);
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: blocks,
        zone_capacity_blocks: blocks,
        zone_count: 40_704,
        max_active_zones: Some(256),
        max_open_zones: Some(256),
        max_transfer_blocks: Blocks(128),
        max_append_blocks: Blocks(128),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    }
}

fn drive() -> Null {
    Null::new(geometry())
}

/// A device of commands that end at once.
struct Rig<D> {
    device: D,
    /// Blocks from one zone to the next, and those that are used of each.
    zone_size_blocks: u64,
    used_blocks: u64,
    prng: Prng,
    now: Instant,
    next_id: u64,
    /// The next block of each zone that is written.
    pointers: [u64; ZONES as usize],
}

impl<D: ZonedDevice> Rig<D> {
    fn new(device: D) -> Rig<D> {
        let geometry = device.geometry(NamespaceId::FIRST).clone();
        let used_blocks = geometry.zone_capacity_blocks.0 / 8 * 8;
        let zone_size_blocks = geometry.zone_size_blocks.0;
        Rig {
            device,
            zone_size_blocks,
            used_blocks,
            prng: Prng::new(1),
            now: Instant(1),
            next_id: 0,
            pointers: [0; ZONES as usize],
        }
    }

    fn submit(&mut self, operation: Operation) {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let command = Command::new(id, NamespaceId::FIRST, operation);
        self.device.submit(self.now, command).expect("the queue is not full");
    }

    fn complete(&mut self) -> u64 {
        let mut queue = CompletionQueue::new();
        let mut ended = 0;
        loop {
            self.device.poll(self.now, &mut queue);
            if queue.is_empty() {
                return ended;
            }
            while let Some(completion) = queue.pop() {
                assert!(completion.status.is_success(), "{}", completion.status);
                ended += 1;
            }
        }
    }

    /// Waits until commands have completed: under a scheduler writes wait for tokens, which come with
    /// time.
    fn wait(&mut self) -> u64 {
        loop {
            match self.complete() {
                0 => self.now = self.device.next_timeout().expect("commands are in flight").max(self.now),
                ended => return ended,
            }
        }
    }

    /// Zones that can be read.
    fn fill(&mut self) {
        for zone in 0..ZONES {
            let start = Lba(zone * self.zone_size_blocks);
            self.submit(Operation::WriteZeroes { start, blocks: Blocks(self.used_blocks) });
            self.wait();
        }
    }

    fn next(&mut self, kind: Kind) -> Operation {
        match kind {
            Kind::Read => {
                let (zone, block) = (self.prng.below(ZONES), self.prng.below(self.used_blocks));
                Operation::Read { start: Lba(zone * self.zone_size_blocks + block), blocks: Blocks(1) }
            }
            Kind::Write => {
                let zone = self.next_id % ZONES;
                let block = &mut self.pointers[zone as usize];
                let start = Lba(zone * self.zone_size_blocks + *block);
                *block += 4;
                Operation::Write { start, blocks: Blocks(4), payload: Payload::None }
            }
        }
    }

    /// Nanoseconds of the processor for each command.
    fn measure(mut self, kind: Kind, queue_depth: usize) -> f64 {
        // As many writes as the zones have room for.
        let room = self.used_blocks / 4 * ZONES - ZONES;
        let commands = if kind == Kind::Write { COMMANDS.min(room) } else { COMMANDS };
        if kind == Kind::Read {
            self.fill();
        }
        let begin = cpu_ns();
        let (mut submitted, mut ended) = (0, 0);
        while ended < commands {
            while submitted < commands && submitted - ended < queue_depth as u64 {
                let operation = self.next(kind);
                self.submit(operation);
                submitted += 1;
            }
            ended += black_box(self.wait());
        }
        (cpu_ns() - begin) as f64 / commands as f64
    }
}

/// A pool with one namespace of 16 active v-zones of up to 16 zones.
fn pool<D: ZonedDevice>(drive: D) -> ElasticDevice<D> {
    let goal = Goal::Create { id: PoolId([1; 16]), options: PoolOptions::default() };
    let mut device = ElasticDevice::new(drive, goal, PayloadKind::None);
    let poll = |device: &mut ElasticDevice<D>| device.poll(Instant(1), &mut CompletionQueue::new());
    while !device.pool().is_some_and(Pool::is_started) {
        poll(&mut device);
    }
    let config = NamespaceConfig::new("tenant", [1; 16], 64, 16);
    device.create_namespace(Instant(1), &config).expect("the drive has room");
    while device.namespaces().geometry(NamespaceId::FIRST).is_none() {
        poll(&mut device);
    }
    device
}

pub(crate) fn run_all(as_json: bool) {
    let mut all = Vec::new();
    for (case, kind) in [("4 KiB random reads", Kind::Read), ("16 KiB writes to 8 zones", Kind::Write)] {
        for queue_depth in QUEUE_DEPTHS {
            let (mut bare, mut elastic, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                bare.push(Rig::new(drive()).measure(kind, queue_depth));
                elastic.push(Rig::new(pool(drive())).measure(kind, queue_depth));
                let scheduler = Box::new(Ezns::new(EznsConfig::default()));
                scheduled.push(Rig::new(pool(Scheduled::new(drive(), scheduler))).measure(kind, queue_depth));
            }
            let (bare_ns, elastic_ns, elastic_ezns_ns) = (median(bare), median(elastic), median(scheduled));
            all.push(Figures {
                case,
                queue_depth,
                bare_ns,
                elastic_ns,
                elastic_ezns_ns,
                added_ns: elastic_ns - bare_ns,
                added_with_ezns_ns: elastic_ezns_ns - bare_ns,
            });
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&all).expect("figures are numbers and names"));
        return;
    }
    println!("elastic: processor time of a command, ns");
    println!("{:<26} {:>3} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "QD", "bare", "elastic", "added", "+ ezns", "added");
    for it in &all {
        println!(
            "{:<26} {:>3} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0}",
            it.case, it.queue_depth, it.bare_ns, it.elastic_ns, it.added_ns, it.elastic_ezns_ns, it.added_with_ezns_ns
        );
    }
}
