//! Time to mount a pool after a crash, on a drive all of whose zones are in stripe groups.
//!
//! The drive has 40,704 zones, as the one of eZNS, in memory. Each v-zone is written and finished; some
//! stay open. A mount reads the log, the zones' states, and the headers of zones that are in use. The
//! baseline reads the same headers without a pool, one command at a time as the mount does.

use serde::Serialize;
use zonda_elastic::{ElasticDevice, Goal, NamespaceConfig, Pool, PoolId, PoolOptions};
use zonda_layers::Memory;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Instant, Lba, NamespaceId, Operation, Outcome, Payload, PayloadKind,
    QueueFull, Status, ZoneAction, ZoneTarget, ZonedDevice,
};

use crate::elastic::geometry;
use crate::host::{cpu_ns, median};

const ROUNDS: usize = 5;
const POOL: PoolId = PoolId([1; 16]);
/// Chunks count in whole.
const MEMORY_BYTES_MAX: u64 = 1 << 34;
/// V-zones that are open in the crash.
const OPEN: u32 = 8;
/// Physical zones of a v-zone, all in one group.
const CASES: [u32; 3] = [16, 4, 1];

#[derive(Serialize)]
struct Figure {
    zones_of_vzone: u32,
    vzones: u32,
    /// Zones of the drive in stripe groups.
    zones_in_use: u32,
    reads: u64,
    /// Median of the rounds.
    mount_ms: f64,
    /// The same reads without a pool.
    reads_alone_ms: f64,
}

/// Keeps the reads.
struct Recorded {
    device: Memory,
    reads: Vec<(Lba, Blocks)>,
}

impl ZonedDevice for Recorded {
    fn namespaces(&self) -> &zonda_zoned::Namespaces {
        self.device.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Operation::Read { start, blocks } = command.operation {
            self.reads.push((start, blocks));
        }
        self.device.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}

/// Polls until the pool is open.
fn start(drive: Recorded, goal: Goal) -> ElasticDevice<Recorded> {
    let mut device = ElasticDevice::new(drive, goal, PayloadKind::Bytes);
    let mut queue = CompletionQueue::new();
    while !device.pool().is_some_and(Pool::is_started) {
        device.poll(Instant(1), &mut queue);
        assert!(device.error().is_none(), "{:?}", device.error());
    }
    device
}

fn execute(device: &mut impl ZonedDevice, operation: Operation) -> Outcome {
    device.submit(Instant(1), Command::new(CommandId(0), NamespaceId::FIRST, operation)).expect("one at a time");
    let mut queue = CompletionQueue::new();
    loop {
        device.poll(Instant(1), &mut queue);
        if let Some(completion) = queue.pop() {
            assert_eq!(completion.status, Status::Success);
            return completion.outcome;
        }
    }
}

/// A drive all of whose promised zones are in groups of this width, after a crash; and its v-zones.
fn crashed(width: u32) -> (Recorded, u32) {
    let options = PoolOptions { zones_per_vzone: Some(width), width_max: Some(width), ..PoolOptions::default() };
    let drive = Recorded { device: Memory::new(geometry(), MEMORY_BYTES_MAX), reads: Vec::new() };
    let mut device = start(drive, Goal::Create { id: POOL, options });
    let vzones = device.pool().expect("it is open").shape().promised_max() / width;
    let config = NamespaceConfig::new("tenant", [1; 16], vzones, OPEN);
    device.create_namespace(Instant(1), &config).expect("the drive has room");
    while device.namespaces().geometry(NamespaceId::FIRST).is_none() {
        device.poll(Instant(1), &mut CompletionQueue::new());
    }
    let size = device.geometry(NamespaceId::FIRST).zone_size_blocks.0;
    let block = zonda_zoned::BlockBuffer { data: vec![7; 4096].into(), metadata: Vec::new().into() };
    for vzone in 0..vzones {
        let start = Lba(u64::from(vzone) * size);
        let payload = Payload::Bytes(Box::new(block.clone()));
        execute(&mut device, Operation::Write { start, blocks: Blocks(1), payload });
        if vzone + OPEN < vzones {
            execute(
                &mut device,
                Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(start) },
            );
        }
    }
    (device.into_drive(), vzones)
}

fn measure(width: u32) -> Figure {
    let (mut drive, vzones) = crashed(width);
    let (mut mounts, mut alone) = (Vec::new(), Vec::new());
    let (mut reads, mut zones_in_use) = (0, 0);
    for _ in 0..ROUNDS {
        drive.reads.clear();
        let before = cpu_ns();
        let device = start(drive, Goal::Mount { id: Some(POOL), epoch_min: 0 });
        mounts.push((cpu_ns() - before) as f64 / 1e6);
        zones_in_use = device.pool().expect("it is open").zone_counts().in_groups;
        drive = device.into_drive();
        let list = std::mem::take(&mut drive.reads);
        reads = list.len() as u64;
        let before = cpu_ns();
        for (start, blocks) in list {
            execute(&mut drive.device, Operation::Read { start, blocks });
        }
        alone.push((cpu_ns() - before) as f64 / 1e6);
    }
    Figure {
        zones_of_vzone: width,
        vzones,
        zones_in_use,
        reads,
        mount_ms: median(mounts),
        reads_alone_ms: median(alone),
    }
}

pub(crate) fn run_all(as_json: bool) {
    let figures: Vec<Figure> = CASES.iter().map(|width| measure(*width)).collect();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
        return;
    }
    println!(
        "{:<30} {:>8} {:>12} {:>8} {:>10} {:>12}",
        "mount of a pool", "v-zones", "zones in use", "reads", "ms", "reads alone"
    );
    for it in &figures {
        println!(
            "{:<30} {:>8} {:>12} {:>8} {:>10.1} {:>12.1}",
            format!("v-zones of {} zones", it.zones_of_vzone),
            it.vzones,
            it.zones_in_use,
            it.reads,
            it.mount_ms,
            it.reads_alone_ms
        );
    }
}
