//! Loads on the model of the drive of the paper, with and without the scheduler.

use std::collections::BTreeMap;

use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, Lba, NamespaceId, Operation, Origin, Payload,
    PayloadKind, Prng, StreamId, TenantId, ZonedDevice,
};

use super::super::{Ezns, EznsConfig};
use crate::{Fifo, Scheduled, Scheduler};

const ZONE_BLOCKS: u64 = 96 * 256;
const BLOCK_BYTES: u64 = 4096;
const KIB: u64 = 1024;

/// A host that uses a stripe group: each of its requests is one command to each zone.
#[derive(Clone)]
struct Host {
    zones: Vec<u32>,
    is_reader: bool,
    request_bytes: u64,
    /// What a command reads or writes.
    command_bytes: u64,
    depth: usize,
    /// From one request to the next, if it has a pause.
    interval: Option<Duration>,
}

impl Host {
    fn reader(zones: std::ops::Range<u32>, request_kib: u64, depth: usize) -> Host {
        let zones: Vec<u32> = zones.collect();
        let request_bytes = request_kib * KIB;
        let command_bytes = request_bytes / zones.len() as u64;
        Host { zones, is_reader: true, request_bytes, command_bytes, depth, interval: None }
    }

    fn stripe(self, kib: u64) -> Host {
        Host { command_bytes: kib * KIB, ..self }
    }

    fn writer(zones: std::ops::Range<u32>, request_kib: u64, depth: usize) -> Host {
        Host { is_reader: false, ..Host::reader(zones, request_kib, depth) }
    }

    fn every(self, interval: Duration) -> Host {
        Host { interval: Some(interval), ..self }
    }
}

struct Running {
    host: Host,
    origin: Origin,
    /// The block in each zone at which the next request begins.
    next: u64,
    outstanding: usize,
    next_request: Instant,
    completed_bytes: u64,
}

struct Rig {
    device: Scheduled<Ssd>,
    hosts: Vec<Running>,
    /// The host and request of each command.
    commands: BTreeMap<CommandId, (usize, u64)>,
    /// Commands that each request waits for.
    requests: BTreeMap<u64, usize>,
    submitted: u64,
    now: Instant,
}

/// Blocks of each zone that readers read.
const READ_BLOCKS: u64 = 1024;

impl Rig {
    fn new(hosts: &[Host], scheduler: Box<dyn Scheduler>) -> Rig {
        let text = builtin_text("ezns-small").expect("a built-in profile");
        let text = text.replace("placement = \"round-robin\"", "placement = \"by-index\"");
        let profile = Profile::parse(&text).expect("it is valid");
        let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
        let mut now = Instant::ZERO;
        for host in hosts.iter().filter(|host| host.is_reader) {
            host.zones.iter().for_each(|zone| fill(&mut drive, *zone, &mut now));
        }
        let running = |(number, host): (usize, &Host)| Running {
            host: host.clone(),
            origin: Origin {
                tenant: TenantId::DEFAULT,
                stream: StreamId(number as u32),
                stream_width: host.zones.len() as u8,
                ..Origin::default()
            },
            next: 0,
            outstanding: 0,
            next_request: now,
            completed_bytes: 0,
        };
        Rig {
            hosts: hosts.iter().enumerate().map(running).collect(),
            device: Scheduled::new(drive, scheduler),
            commands: BTreeMap::new(),
            requests: BTreeMap::new(),
            submitted: 0,
            now,
        }
    }

    /// Runs for `time` and returns the bandwidth of each host in MiB/s.
    fn run(&mut self, time: Duration) -> Vec<u64> {
        let end = self.now + time;
        let before: Vec<u64> = self.hosts.iter().map(|host| host.completed_bytes).collect();
        let mut completions = CompletionQueue::new();
        while self.now < end {
            (0..self.hosts.len()).for_each(|host| self.submit(host));
            let next_request = self.hosts.iter().filter(|host| host.outstanding < host.host.depth);
            let next_request = next_request.map(|host| host.next_request);
            self.now =
                next_request.chain(self.device.next_timeout()).min().expect("a command is in flight").max(self.now);
            self.device.poll(self.now, &mut completions);
            while let Some(completion) = completions.pop() {
                assert!(completion.status.is_success(), "{completion:?}");
                self.complete(completion.id);
            }
        }
        self.device.check_invariants();
        let bytes = self.hosts.iter().zip(before).map(|(host, before)| host.completed_bytes - before);
        bytes.map(|bytes| (bytes * 1000 / (time.0 / 1_000_000)) >> 20).collect()
    }

    fn submit(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        let zone_blocks = host.host.request_bytes / BLOCK_BYTES / host.host.zones.len() as u64;
        while host.outstanding < host.host.depth && host.next_request <= self.now {
            host.outstanding += 1;
            if let Some(interval) = host.host.interval {
                host.next_request = self.now + interval;
            }
            self.submitted += 1;
            let request = self.submitted;
            self.requests.insert(request, (host.host.request_bytes / host.host.command_bytes) as usize);
            let limit = if host.host.is_reader { READ_BLOCKS } else { ZONE_BLOCKS };
            if host.next + zone_blocks > limit {
                assert!(host.host.is_reader, "the zones are long enough for the run");
                host.next = 0;
            }
            let blocks = host.host.command_bytes / BLOCK_BYTES;
            for offset in (0..zone_blocks).step_by(blocks as usize) {
                for zone in &host.host.zones {
                    self.submitted += 1;
                    let start = Lba(u64::from(*zone) * ZONE_BLOCKS + host.next + offset);
                    let blocks = Blocks(blocks);
                    let operation = match host.host.is_reader {
                        true => Operation::Read { start, blocks },
                        false => Operation::Write { start, blocks, payload: Payload::None },
                    };
                    let id = CommandId(self.submitted);
                    let command = Command::new(id, NamespaceId::FIRST, operation).with_origin(host.origin);
                    self.commands.insert(id, (number, request));
                    self.device.submit(self.now, command).expect("its queue is long");
                }
            }
            host.next += zone_blocks;
        }
    }

    fn complete(&mut self, id: CommandId) {
        let (number, request) = self.commands.remove(&id).expect("it was submitted");
        let left = self.requests.get_mut(&request).expect("its request is outstanding");
        *left -= 1;
        if *left == 0 {
            self.requests.remove(&request);
            let host = &mut self.hosts[number];
            host.outstanding -= 1;
            host.completed_bytes += host.host.request_bytes;
        }
    }
}

/// Writes the blocks of a zone that are read.
fn fill(drive: &mut Ssd, zone: u32, now: &mut Instant) {
    let mut completions = CompletionQueue::new();
    for part in 0..READ_BLOCKS / 256 {
        let start = Lba(u64::from(zone) * ZONE_BLOCKS + part * 256);
        let operation = Operation::Write { start, blocks: Blocks(256), payload: Payload::None };
        drive.submit(*now, Command::new(CommandId(part), NamespaceId::FIRST, operation)).expect("it is idle");
        while let Some(at) = drive.next_timeout() {
            *now = at;
            drive.poll(at, &mut completions);
        }
    }
}

fn ezns() -> Box<dyn Scheduler> {
    Box::new(Ezns::new(EznsConfig::default()))
}

fn none() -> Box<dyn Scheduler> {
    Box::new(Fifo::default())
}

fn run(hosts: &[Host], scheduler: Box<dyn Scheduler>, warm_up_millis: u64, millis: u64) -> Vec<u64> {
    let mut rig = Rig::new(hosts, scheduler);
    if warm_up_millis > 0 {
        rig.run(Duration::from_millis(warm_up_millis));
    }
    rig.run(Duration::from_millis(millis))
}

#[test]
fn a_writer_alone_is_as_fast_as_without_the_scheduler() {
    for (request_kib, width, depth) in [(4, 1, 1), (16, 1, 4), (512, 2, 1), (512, 8, 4), (2048, 64, 4)] {
        let host = [Host::writer(0..width, request_kib, depth)];
        let [without, with] = [none(), ezns()].map(|scheduler| run(&host, scheduler, 100, 600)[0]);
        assert!(with * 100 >= without * 97, "{request_kib} KiB, {width} zones, QD{depth}: {with} of {without} MiB/s");
    }
}

#[test]
fn sixteen_busy_writers_fill_the_link_as_without_the_scheduler() {
    let hosts: Vec<Host> = (0..16).map(|n| Host::writer(8 * n..8 * n + 8, 512, 4)).collect();
    let total = |scheduler| run(&hosts, scheduler, 100, 200).iter().sum::<u64>();
    let (without, with) = (total(none()), total(ezns()));
    assert!(with * 100 >= without * 97, "{with} of {without} MiB/s");
}

/// Figure 29(b), scenario 1. Published: 35.7% more for each regular writer.
#[test]
fn a_busy_writer_of_two_zones_gives_way_to_sixteen_regular_writers_of_eight_zones() {
    let regular = |n: u32| Host::writer(8 * n..8 * n + 8, 512, 1).every(Duration::from_millis(5));
    let hosts: Vec<Host> = (0..16).map(regular).chain([Host::writer(128..130, 512, 1)]).collect();
    let [without, with] = [none(), ezns()].map(|scheduler| run(&hosts, scheduler, 500, 500));
    assert!(without[..16].iter().all(|bandwidth| (50..60).contains(bandwidth)), "{without:?}");
    assert!(with[..16].iter().all(|bandwidth| (97..=101).contains(bandwidth)), "512 KiB each 5 ms: {with:?}");
    assert!((50..66).contains(&with[16]) && (64..72).contains(&without[16]), "{with:?}, {without:?}");
}

/// Figure 29(b), scenario 3. Published: 24.7% more in all.
#[test]
fn a_busy_writer_on_dies_of_its_own_does_not_fill_the_buffer_of_all() {
    let wide = (0..15).map(|n| Host::writer(8 * n..8 * n + 8, 512, 1));
    let hosts: Vec<Host> = wide.chain([Host::writer(120..122, 512, 1)]).collect();
    let [without, with] = [none(), ezns()].map(|scheduler| run(&hosts, scheduler, 500, 300));
    let total = |bandwidths: &[u64]| bandwidths.iter().sum::<u64>();
    assert!((1200..1400).contains(&total(&without)), "{without:?}");
    assert!((3100..=3200).contains(&total(&with)), "the link: {with:?}");
}

#[test]
fn two_streams_on_the_same_dies_with_queue_depths_1_and_32_get_equal_bandwidth() {
    let hosts = [Host::reader(0..2, 128, 1).stripe(32), Host::reader(128..130, 128, 32).stripe(32)];
    let [without, with] = [none(), ezns()].map(|scheduler| run(&hosts, scheduler, 100, 300));
    assert!(without[1] > 20 * without[0], "{without:?}");
    assert!(with[0] * 100 > with[1] * 85, "{with:?}");
    assert!(with[0] + with[1] > (without[0] + without[1]) * 95 / 100, "{with:?}, {without:?}");
}

/// Figure 29(a), scenario 1. Published: 76 and 1,287 MiB/s without congestion control, 290 each with
/// it. In the model the dies are less congested: the reads of the wide stream share pages, and most take
/// less than the threshold.
#[test]
fn four_narrow_streams_at_queue_depth_1_get_four_times_the_bandwidth_beside_a_wide_one_at_32() {
    let narrow = |n: u32| Host::reader(2 * n..2 * n + 2, 128, 1).stripe(32);
    let hosts = [narrow(0), narrow(1), narrow(2), narrow(3), Host::reader(128..136, 128, 32).stripe(8)];
    let [without, with] = [none(), ezns()].map(|scheduler| run(&hosts, scheduler, 100, 300));
    assert!((0..4).all(|host| with[host] > 4 * without[host]), "{with:?}, {without:?}");
    assert!(with[4] * 4 < without[4] * 3, "{with:?}, {without:?}");
}
