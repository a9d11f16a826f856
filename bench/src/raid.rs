//! CPU time of a redundant volume on devices without latency.
//!
//! A RAID 5 volume of 3+1 on one thread, compared with the same requests to a single device: once
//! over members that store references to written data, which shows the CPU time of the volume
//! itself, and once over members that copy data, which adds the time of copying to both sides.
//! Times are CPU times; rounds alternate, and the median is reported. Each workload runs in a
//! process of its own: after other workloads, a request of 400 ns took up to 15% longer, depending
//! on the placement of tables by the allocator.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use zonda_isal::Isal;
use zonda_layers::Memory;
use zonda_raid::{Event, MemberIndex, Scheme, Volume, VolumeConfig, VolumeDevice};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Payload,
    Prng, Status, ZonedDevice,
};

use crate::host::{cpu_ns, median};
use crate::reference::ReferenceDevice;

const ROUNDS: usize = 31;
const REBUILDS: usize = 5;
/// Bytes that a round moves.
const ROUND_BYTES: u64 = 64 << 20;
pub(crate) const BLOCK_BYTES: u64 = 4096;
const QUEUE_DEPTH: usize = 32;
pub(crate) const MEMBERS: usize = 4;
/// Of each member.
const ZONES: u64 = 40;
const ZONE_BLOCKS: u64 = 4096;

/// One figure.
#[derive(Serialize, Deserialize)]
struct Figure {
    what: String,
    /// Whether members copy blocks or store references.
    members: String,
    request_bytes: u64,
    /// CPU time per request.
    volume_ns: f64,
    /// The same for a single member; absent if there is no comparison.
    device_ns: Option<f64>,
    volume_gb_s: f64,
}

/// A workload.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) what: &'static str,
    pub(crate) request_blocks: u64,
    pub(crate) writes: bool,
    pub(crate) is_random: bool,
    /// With a missing member.
    pub(crate) degraded: bool,
}

pub(crate) const SEQUENTIAL_WRITE: Load =
    Load { what: "sequential write", request_blocks: 32, writes: true, is_random: false, degraded: false };

const LOADS: [Load; 6] = [
    Load { what: "random write", request_blocks: 1, writes: true, is_random: true, degraded: false },
    SEQUENTIAL_WRITE,
    Load { what: "random read", request_blocks: 1, writes: false, is_random: true, degraded: false },
    Load { what: "sequential read", request_blocks: 32, writes: false, is_random: false, degraded: false },
    Load { what: "random read, a member missing", request_blocks: 1, writes: false, is_random: true, degraded: true },
    Load { what: "sequential write, a member missing", degraded: true, ..SEQUENTIAL_WRITE },
];

/// A device without latency.
pub(crate) trait Member: ZonedDevice + Sized {
    const BLOCKS_ARE: &'static str;

    fn make(geometry: Geometry) -> Self;

    /// Only writes follow, and no data is read again.
    fn forget(&mut self) {}
}

impl Member for Memory {
    const BLOCKS_ARE: &'static str = "copied";

    fn make(geometry: Geometry) -> Memory {
        Memory::new(geometry, u64::MAX)
    }
}

impl Member for ReferenceDevice {
    const BLOCKS_ARE: &'static str = "references";

    fn make(geometry: Geometry) -> ReferenceDevice {
        ReferenceDevice::new(geometry)
    }

    fn forget(&mut self) {
        ReferenceDevice::forget(self);
    }
}

/// The argument of the process of a workload, before the number of the workload.
pub(crate) const ONLY: &str = "--only=";

/// Runs all workloads, each in a process of its own, and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let mut figures: Vec<Figure> = Vec::new();
    for load in 0..2 * FIGURES {
        let figure = run_in_a_process(load);
        if !as_json {
            if load % FIGURES == 0 {
                show_heading(&figure);
            }
            show(&figure);
        }
        figures.push(figure);
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
    }
}

fn run_in_a_process(load: usize) -> Figure {
    let program = std::env::current_exe().expect("the executable has a path");
    let output = std::process::Command::new(program)
        .args(["raid", &format!("{ONLY}{load}")])
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("the executable can be started again");
    assert!(output.status.success(), "load {load} ended with {}", output.status);
    serde_json::from_slice(&output.stdout).expect("the program prints one figure")
}

/// A workload by its number: those with members that store references come first.
pub(crate) fn run_one(load: usize) {
    let figure = if load < FIGURES { measured::<ReferenceDevice>(load) } else { measured::<Memory>(load - FIGURES) };
    println!("{}", serde_json::to_string(&figure).expect("figures are plain numbers"));
}

/// For each kind of members: the workloads, and a rebuild.
const FIGURES: usize = LOADS.len() + 1;

fn measured<D: Member>(load: usize) -> Figure {
    LOADS.get(load).map_or_else(rebuild::<D>, |load| measure::<D>(*load))
}

fn show_heading(figure: &Figure) {
    println!(
        "{:<32} {:>10} {:>12} {:>12} {:>8} {:>8}",
        format!("raid 5, 3+1; blocks are {}", figure.members),
        "request",
        "volume ns",
        "device ns",
        "ratio",
        "GB/s"
    );
}

fn show(figure: &Figure) {
    let (device, ratio) = match figure.device_ns {
        Some(device_ns) => (format!("{device_ns:.0}"), format!("{:.1}", figure.volume_ns / device_ns)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    println!(
        "{:<32} {:>6} KiB {:>12.0} {device:>12} {ratio:>8} {:>8.2}",
        figure.what,
        figure.request_bytes >> 10,
        figure.volume_ns,
        figure.volume_gb_s
    );
}

pub(crate) fn member() -> Geometry {
    Geometry {
        block_size_bytes: BLOCK_BYTES as u32,
        metadata_bytes: 64,
        zone_size_blocks: Blocks(ZONE_BLOCKS),
        zone_capacity_blocks: Blocks(ZONE_BLOCKS),
        zone_count: ZONES as u32,
        conventional_zone_count: 0,
        max_active_zones: Some(14),
        max_open_zones: Some(14),
        max_transfer_blocks: Blocks(256),
        max_append_blocks: Blocks(256),
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    }
}

fn new_volume<D: Member>() -> VolumeDevice<D> {
    let mut config = VolumeConfig::new("bench", Scheme::raid5(3));
    config.tuning.reserve_percent = 30;
    volume_of(config, &member())
}

/// A volume of empty members.
pub(crate) fn volume_of<D: Member>(config: VolumeConfig, geometry: &Geometry) -> VolumeDevice<D> {
    let ids: Vec<[u8; 16]> = (1..=MEMBERS as u8).map(|id| [id; 16]).collect();
    let mut volume =
        Volume::create(config, vec![geometry.clone(); MEMBERS], [1; 16], &ids, true).expect("the members are suitable");
    // As in a server.
    if let Some(isal) = Isal::new() {
        volume.set_engine(Box::new(isal));
    }
    started(volume, (0..MEMBERS).map(|_| Some(D::make(geometry.clone()))).collect())
}

/// A volume that accepts commands.
pub(crate) fn started<D: ZonedDevice>(volume: Volume, members: Vec<Option<D>>) -> VolumeDevice<D> {
    let mut volume = VolumeDevice::new(volume, members);
    volume.process(Instant::ZERO);
    assert!(volume.volume().is_ready(), "devices in memory complete immediately");
    volume
}

/// A device for conventional requests: all of its zones are conventional.
fn bare<D: Member>() -> D {
    let geometry = Geometry {
        conventional_zone_count: ZONES as u32,
        metadata_bytes: 0,
        max_active_zones: None,
        max_open_zones: None,
        ..member()
    };
    D::make(geometry)
}

fn measure<D: Member>(load: Load) -> Figure {
    let (mut volume, mut device) = (new_volume::<D>(), bare::<D>());
    let blocks = volume.volume().geometry().namespace_blocks().0.min(32 << 10);
    let mut prng = Prng::new(1);
    if load.writes {
        for member in (0..MEMBERS as u8).map(MemberIndex) {
            volume.member_mut(member).expect("the member exists").forget();
        }
        device.forget();
    }
    // Every zone once, so that the measurement causes no page faults.
    run(&mut volume, SEQUENTIAL_WRITE, blocks, ZONES * ZONE_BLOCKS * (MEMBERS as u64 - 1), &mut prng);
    run(&mut device, SEQUENTIAL_WRITE, blocks, blocks, &mut prng);
    if load.degraded {
        volume.volume_mut().fail_member(Instant::ZERO, MemberIndex(1));
        volume.process(Instant::ZERO);
    }
    let round_blocks = ROUND_BYTES / BLOCK_BYTES;
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        times[0].push(run(&mut volume, load, blocks, round_blocks, &mut prng));
        times[1].push(run(&mut device, load, blocks, round_blocks, &mut prng));
    }
    assert_eq!(volume.volume().counters().lost_blocks, 0, "discarded data was not read");
    let [volume_ns, device_ns] = times.map(median);
    let request_bytes = load.request_blocks * BLOCK_BYTES;
    Figure {
        what: load.what.to_owned(),
        members: D::BLOCKS_ARE.to_owned(),
        request_bytes,
        volume_ns,
        device_ns: Some(device_ns),
        volume_gb_s: request_bytes as f64 / volume_ns,
    }
}

/// Runs a workload over the first `blocks` of a device; returns CPU time per request in
/// nanoseconds.
pub(crate) fn run<D: ZonedDevice>(device: &mut D, load: Load, blocks: u64, round_blocks: u64, prng: &mut Prng) -> f64 {
    let data = Bytes::from(vec![0xa5; (load.request_blocks * BLOCK_BYTES) as usize]);
    let requests = round_blocks / load.request_blocks;
    let places = blocks / load.request_blocks;
    let mut completions = CompletionQueue::new();
    let (mut now, mut in_flight, mut ended) = (Instant::ZERO, 0, 0);
    let before = cpu_ns();
    for request in 0..requests {
        let place = if load.is_random { prng.below(places) } else { request % places };
        let (start, count) = (Lba(place * load.request_blocks), Blocks(load.request_blocks));
        let operation = if load.writes {
            let buffer = BlockBuffer { data: data.clone(), metadata: Bytes::new() };
            Operation::Write { start, blocks: count, payload: Payload::Bytes(Box::new(buffer)) }
        } else {
            Operation::Read { start, blocks: count }
        };
        let mut command = Command::new(CommandId(request), NamespaceId::FIRST, operation);
        in_flight += 1;
        loop {
            let refused = device.submit(now, command);
            if in_flight >= QUEUE_DEPTH || refused.is_err() {
                now = device.next_timeout().map_or(now, |next| next.max(now));
                device.poll(now, &mut completions);
                while let Some(completion) = completions.pop() {
                    assert_eq!(completion.status, Status::Success, "memory does not fail");
                    (in_flight, ended) = (in_flight - 1, ended + 1);
                }
            }
            match refused {
                Ok(()) => break,
                Err(full) => command = full.0,
            }
        }
    }
    while ended < requests {
        now = device.next_timeout().expect("a request has not ended").max(now);
        device.poll(now, &mut completions);
        while completions.pop().is_some() {
            ended += 1;
        }
    }
    (cpu_ns() - before) as f64 / requests as f64
}

/// Replaces a member of a full volume with an empty device; returns the bytes of the chunks of that
/// member.
fn rebuild<D: Member>() -> Figure {
    let mut times = Vec::new();
    let mut moved = 0;
    for _ in 0..REBUILDS {
        let mut volume = new_volume::<D>();
        let blocks = volume.volume().geometry().namespace_blocks().0;
        run(&mut volume, SEQUENTIAL_WRITE, blocks, blocks, &mut Prng::new(1));
        moved = blocks / 3 * BLOCK_BYTES;
        volume.volume_mut().fail_member(Instant::ZERO, MemberIndex(2));
        volume.replace(MemberIndex(2), Some(D::make(member())));
        let before = cpu_ns();
        volume
            .volume_mut()
            .replace_member(Instant::ZERO, MemberIndex(2), member(), [9; 16])
            .expect("the device is suitable");
        let mut now = Instant::ZERO;
        loop {
            volume.process(now);
            let is_done = std::iter::from_fn(|| volume.volume_mut().poll_event())
                .any(|event| matches!(event, Event::Rebuilt { .. }));
            if is_done {
                break;
            }
            now = volume.next_timeout().expect("a rebuild is in progress").max(now);
        }
        times.push((cpu_ns() - before) as f64);
    }
    let rebuild_ns = median(times);
    Figure {
        what: "rebuild of a member".to_owned(),
        members: D::BLOCKS_ARE.to_owned(),
        request_bytes: moved,
        volume_ns: rebuild_ns,
        device_ns: None,
        volume_gb_s: moved as f64 / rebuild_ns,
    }
}
