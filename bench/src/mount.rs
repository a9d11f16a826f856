//! Time to mount a volume after a crash, by the amount of data and the number of open segments.
//!
//! A RAID 5 volume of 3+1 over members in memory is filled, writes to all of its open segments, and
//! is dropped, as in a crash. The amount read by the mount is compared with a mount that reads
//! every block: footers describe full segments, and blocks are read only in open ones.

use serde::Serialize;
use zonda_layers::Memory;
use zonda_raid::{MemberIndex, MountOptions, Scheme, Tuning, Volume, VolumeConfig, VolumeDevice};
use zonda_zoned::{Command, CompletionQueue, Geometry, Instant, Namespaces, Operation, Prng, QueueFull, ZonedDevice};

use crate::host::{cpu_ns, median};
use crate::raid::{BLOCK_BYTES, Load, MEMBERS, Member, SEQUENTIAL_WRITE, member, run, started, volume_of};

const ROUNDS: u64 = 7;
/// Contents of the volume, and the number of open segments for small requests, the same as for
/// large ones.
const CASES: [(u64, u8); 5] = [(512, 1), (1024, 1), (2048, 1), (2048, 2), (2048, 4)];
/// Zones of each member in addition to those with contents.
const SPARE_ZONES: u64 = 40;

/// One figure.
#[derive(Serialize)]
struct Figure {
    contents_mib: u64,
    open_segments: u64,
    /// Median of the rounds.
    mount_ms: f64,
    /// Bytes that a mount reads of all members, on average.
    read_bytes: u64,
    /// Bytes written to them before.
    written_bytes: u64,
}

/// Counts the blocks that are read.
struct Counted {
    device: Memory,
    read_blocks: u64,
}

impl ZonedDevice for Counted {
    fn namespaces(&self) -> &Namespaces {
        self.device.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let blocks = if let Operation::Read { blocks, .. } = command.operation { blocks.0 } else { 0 };
        self.device.submit(now, command)?;
        self.read_blocks += blocks;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}

impl Member for Counted {
    const BLOCKS_ARE: &'static str = Memory::BLOCKS_ARE;

    fn make(geometry: Geometry) -> Counted {
        Counted { device: Memory::make(geometry), read_blocks: 0 }
    }
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    if !as_json {
        println!(
            "{:<32} {:>14} {:>10} {:>10} {:>10}",
            "mount of a raid 5, 3+1", "segments open", "ms", "reads MiB", "of all"
        );
    }
    let figures: Vec<Figure> = CASES
        .iter()
        .map(|&(contents_mib, open)| {
            let figure = measure(contents_mib, open);
            if !as_json {
                show(&figure);
            }
            figure
        })
        .collect();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
    }
}

fn show(figure: &Figure) {
    println!(
        "{:<32} {:>14} {:>10.1} {:>10.1} {:>9.1}%",
        format!("{} MiB of contents", figure.contents_mib),
        figure.open_segments,
        figure.mount_ms,
        figure.read_bytes as f64 / f64::from(1 << 20),
        100.0 * figure.read_bytes as f64 / figure.written_bytes as f64
    );
}

fn measure(contents_mib: u64, open: u8) -> Figure {
    let contents = contents_mib * (1 << 20) / BLOCK_BYTES;
    let zones = contents.div_ceil(segment_blocks()) + SPARE_ZONES;
    let geometry = Geometry { zone_count: zones as u32, ..member() };
    let tuning = Tuning { small_segments: open, large_segments: open, ..Tuning::default() };
    let mut times = Vec::new();
    let (mut read_blocks, mut written_blocks) = (0, 0);
    for seed in 0..ROUNDS {
        let (mut members, written) = crashed(&geometry, &tuning, contents, seed);
        written_blocks += written;
        members.iter_mut().flatten().for_each(|member| member.read_blocks = 0);
        let before = cpu_ns();
        let volume = Volume::mount(vec![Some(geometry.clone()); MEMBERS], tuning.clone(), MountOptions::default())
            .expect("the members are suitable");
        let volume = started(volume, members);
        times.push((cpu_ns() - before) as f64 / 1e6);
        let members = (0..MEMBERS as u8).map(MemberIndex);
        read_blocks += members.map(|member| volume.member(member).expect("the member exists").read_blocks).sum::<u64>();
    }
    Figure {
        contents_mib,
        open_segments: 2 * u64::from(open),
        mount_ms: median(times),
        read_bytes: read_blocks * BLOCK_BYTES / ROUNDS,
        written_bytes: written_blocks * BLOCK_BYTES / ROUNDS,
    }
}

fn segment_blocks() -> u64 {
    member().zone_capacity_blocks.0 * (MEMBERS as u64 - 1)
}

/// The members of a volume after a crash, and the number of blocks written to them.
fn crashed(geometry: &Geometry, tuning: &Tuning, contents: u64, seed: u64) -> (Vec<Option<Counted>>, u64) {
    let mut config = VolumeConfig::new("bench", Scheme::raid5(3));
    config.volume_blocks = Some(contents);
    config.tuning = tuning.clone();
    let mut volume: VolumeDevice<Counted> = volume_of(config, geometry);
    let mut prng = Prng::new(seed);
    run(&mut volume, SEQUENTIAL_WRITE, contents, contents, &mut prng);
    // Up to one segment for each open one, of both kinds.
    let most = u64::from(tuning.small_segments) * segment_blocks();
    for load in [Load { request_blocks: 1, is_random: true, ..SEQUENTIAL_WRITE }, SEQUENTIAL_WRITE] {
        let blocks = prng.below(most) / load.request_blocks * load.request_blocks;
        run(&mut volume, load, contents, blocks, &mut prng);
    }
    let written = volume.volume().counters().member_blocks;
    // The completions are discarded.
    (volume.into_parts().1, written)
}
