//! Reads and writes of a drive of this machine, without and with registered buffers, in turns in one
//! run. The drive is a loop device on a file in memory, whose zones exist for zonda alone; everything
//! else is the code of real drives. It needs root, and util-linux for losetup.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command as Process;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tempfile::{NamedTempFile, TempPath};
use zonda_devices::{Drive, device_without_zones};
use zonda_ring::{Ring, RingOptions, limits};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Lba, NamespaceId, Operation, Payload, Prng,
};

use crate::host::median;

const ROUNDS: usize = 9;
const QUEUE_DEPTH: u64 = 32;
const ZONE_BLOCKS: u64 = 4096;
const ZONES: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

#[derive(Serialize)]
struct Figures {
    case: String,
    plain_ns: f64,
    registered_ns: f64,
    saved_ns: f64,
    saved_percent: f64,
    plain_per_second: f64,
    registered_per_second: f64,
}

/// A loop device, detached when it is dropped.
struct Loop {
    device: PathBuf,
    _file: TempPath,
}

impl Loop {
    /// `None` without the rights or the tools.
    fn new(bytes: u64) -> Option<Loop> {
        let file = NamedTempFile::new_in("/dev/shm").ok()?.into_temp_path();
        File::options().write(true).open(&file).and_then(|file| file.set_len(bytes)).ok()?;
        let found = Process::new("losetup").args(["--find", "--show", "--sector-size", "4096"]).arg(&file).output();
        let found = found.ok().filter(|output| output.status.success())?;
        let device = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
        Some(Loop { device, _file: file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Process::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

fn geometry() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(ZONE_BLOCKS),
        zone_capacity_blocks: Blocks(ZONE_BLOCKS),
        zone_count: ZONES,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(256),
        max_append_blocks: Blocks(256),
        ..Geometry::tiny()
    }
}

/// CPU time of the process in nanoseconds.
fn process_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time and time of one operation, in nanoseconds.
fn measure(device: &Loop, kind: Kind, blocks: u64, count: u64, registered_bytes: usize) -> (f64, f64) {
    let ring = Ring::new(RingOptions { registered_bytes, ..RingOptions::default() }).expect("an event loop");
    let mut drive = device_without_zones(&device.device, &geometry(), kind == Kind::Read, &ring).expect("it is there");
    let mut prng = Prng::new(1);
    // As in buffers of connections, the data of a write is not aligned.
    let data = Bytes::from(vec![7; blocks as usize * 4096 + 128]).slice(128..);
    let next = |prng: &mut Prng, number: u64| match kind {
        Kind::Read => {
            let start = Lba(prng.below(u64::from(ZONES) * ZONE_BLOCKS / blocks) * blocks);
            Operation::Read { start, blocks: Blocks(blocks) }
        }
        Kind::Write => {
            // As many zones as are written at once, and each one write at a time.
            let (zone, place) = (number % u64::from(ZONES), number / u64::from(ZONES));
            let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.clone(), metadata: Bytes::new() }));
            Operation::Write { start: Lba(zone * ZONE_BLOCKS + place * blocks), blocks: Blocks(blocks), payload }
        }
    };
    // The first operations register the buffers.
    run(&mut *drive, &ring, 0..QUEUE_DEPTH, |number| next(&mut prng, number));
    let (begin, cpu) = (ring.now(), process_ns());
    run(&mut *drive, &ring, QUEUE_DEPTH..count + QUEUE_DEPTH, |number| next(&mut prng, number));
    let (cpu, wall) = (process_ns() - cpu, ring.now().since(begin).as_nanos());
    assert_eq!(ring.registered_bytes(), registered_bytes, "the kernel has registered the buffers");
    (cpu as f64 / count as f64, wall as f64 / count as f64)
}

/// Executes operations, up to the queue depth at once.
fn run(drive: &mut dyn Drive, ring: &Ring, numbers: std::ops::Range<u64>, mut next: impl FnMut(u64) -> Operation) {
    let mut completions = CompletionQueue::new();
    let (mut submitted, mut ended) = (numbers.start, numbers.start);
    while ended < numbers.end {
        while submitted < numbers.end && submitted - ended < QUEUE_DEPTH {
            let command = Command::new(CommandId(submitted), NamespaceId::FIRST, next(submitted));
            drive.submit(ring.now(), command).expect("the queue is not full");
            submitted += 1;
        }
        drive.poll(ring.now(), &mut completions);
        if completions.is_empty() {
            ring.run_once(drive.next_timeout()).expect("the event loop runs");
        }
        while let Some(completion) = completions.pop() {
            assert!(completion.status.is_success(), "{}", completion.status);
            ended += 1;
        }
    }
}

pub(crate) fn run_all(as_json: bool) {
    let Some(device) = Loop::new(u64::from(ZONES) * ZONE_BLOCKS * 4096) else {
        println!("drive: not measured, there is no loop device (root and losetup are needed)");
        return;
    };
    // The file has its memory.
    measure(&device, Kind::Write, 32, u64::from(ZONES) * ZONE_BLOCKS / 32 - QUEUE_DEPTH, 0);
    let mut all = Vec::new();
    for (kind, blocks, count) in [
        (Kind::Read, 1, 100_000),
        (Kind::Read, 4, 60_000),
        (Kind::Read, 16, 30_000),
        (Kind::Read, 32, 20_000),
        (Kind::Write, 1, 60_000),
        (Kind::Write, 4, 30_000),
        (Kind::Write, 32, 4_000),
    ] {
        let (mut plain, mut registered) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(measure(&device, kind, blocks, count, 0));
            registered.push(measure(&device, kind, blocks, count, limits::REGISTERED_BYTES_DEFAULT));
        }
        let of = |all: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| median(all.iter().map(pick).collect());
        let (plain_ns, registered_ns) = (of(&plain, |it| it.0), of(&registered, |it| it.0));
        let name = if kind == Kind::Read { "reads" } else { "writes" };
        all.push(Figures {
            case: format!("{} KiB {name} of a drive of this machine", blocks * 4),
            plain_ns,
            registered_ns,
            saved_ns: plain_ns - registered_ns,
            saved_percent: 100.0 * (1.0 - registered_ns / plain_ns),
            plain_per_second: 1e9 / of(&plain, |it| it.1),
            registered_per_second: 1e9 / of(&registered, |it| it.1),
        });
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&all).expect("figures are numbers and names"));
        return;
    }
    println!("drive: CPU time of an operation with {QUEUE_DEPTH} outstanding, ns, and operations per second");
    println!(
        "{:<44} {:>8} {:>10} {:>8} {:>5} {:>9} {:>10}",
        "", "plain", "registered", "saved", "%", "plain/s", "reg./s"
    );
    for it in &all {
        println!(
            "{:<44} {:>8.0} {:>10.0} {:>8.0} {:>5.0} {:>9.0} {:>10.0}",
            it.case,
            it.plain_ns,
            it.registered_ns,
            it.saved_ns,
            it.saved_percent,
            it.plain_per_second,
            it.registered_per_second
        );
    }
}
