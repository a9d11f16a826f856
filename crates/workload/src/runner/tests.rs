//! Runs on the oracle, which completes immediately, and on [`FixedLatency`].

use std::collections::BTreeMap;

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, Operation, Payload,
    PayloadKind, QueueFull, ZoneIndex, ZoneState, ZoneType, ZonedDevice,
};

use crate::{EndReason, JobResult, Plan, RequestKind, RunResult, Runner, parse_jobs};

mod any_jobs;
mod limits;
mod live;
mod paths;
mod timing;
mod verify;

/// The oracle with a latency for each command: one for management, one for the rest. Any number of
/// commands run at a time, up to `queue_slots`.
struct FixedLatency {
    oracle: ReferenceDevice,
    latency_ns: u64,
    management_latency_ns: u64,
    /// Latency of data commands to one zone, where it differs.
    slow_zone: Option<(ZoneIndex, u64)>,
    /// The latency of each data command by its number, where they differ.
    latency_by_number: Option<fn(u64) -> u64>,
    queue_slots: usize,
    waiting: BTreeMap<(Instant, u64), Completion>,
    taken: Vec<Command>,
}

impl FixedLatency {
    fn new(geometry: &Geometry, latency_ns: u64) -> FixedLatency {
        FixedLatency::keeping(PayloadKind::None, geometry, latency_ns)
    }

    fn keeping(keeps: PayloadKind, geometry: &Geometry, latency_ns: u64) -> FixedLatency {
        FixedLatency {
            oracle: ReferenceDevice::new(geometry.clone(), keeps),
            latency_ns,
            management_latency_ns: latency_ns,
            slow_zone: None,
            latency_by_number: None,
            queue_slots: usize::MAX,
            waiting: BTreeMap::new(),
            taken: Vec::new(),
        }
    }

    fn zone_of(&self, command: &Command) -> Option<ZoneIndex> {
        match &command.operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => {
                self.oracle.geometry(NamespaceId::FIRST).zone_of(*start)
            }
            Operation::Append { zone_start, .. } => self.oracle.geometry(NamespaceId::FIRST).zone_of(*zone_start),
            _ => None,
        }
    }
}

impl ZonedDevice for FixedLatency {
    fn namespaces(&self) -> &Namespaces {
        self.oracle.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.waiting.len() >= self.queue_slots {
            return Err(QueueFull(command));
        }
        let number = self.taken.len() as u64;
        let latency_ns = match (&command.operation, self.zone_of(&command), self.slow_zone) {
            (Operation::ManageZones { .. }, ..) => self.management_latency_ns,
            (_, Some(zone), Some((slow, latency_ns))) if zone == slow => latency_ns,
            _ => self.latency_by_number.map_or(self.latency_ns, |latency| latency(number)),
        };
        let completion = self.oracle.execute(&command);
        self.waiting.insert((Instant(now.0 + latency_ns), number), completion);
        self.taken.push(command);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= now
        {
            completions.push(entry.remove());
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}

/// Sixteen zones of 64 blocks of 4 KiB, 48 of them writable; 14 active.
fn drive() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(48),
        zone_count: 16,
        conventional_zone_count: 0,
        max_active_zones: Some(14),
        max_open_zones: Some(14),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(16),
        zrwa: None,
        read_across_zones: false,
        descriptor_extension_bytes: 0,
    }
}

/// The same with four conventional zones, which have no gap at their end.
fn drive_with_conventional_zones() -> Geometry {
    Geometry { zone_capacity_blocks: Blocks(64), conventional_zone_count: 4, ..drive() }
}

fn plan(geometry: &Geometry, text: &str) -> Plan {
    let (run, jobs) = parse_jobs(text).unwrap_or_else(|error| panic!("{error}"));
    Plan::new(&run, &jobs, geometry).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs jobs, after their prefill.
fn run_on(device: &mut FixedLatency, text: &str) -> RunResult {
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let plan = plan(&geometry, text);
    fill(&mut device.oracle, &plan);
    Runner::new(plan, PayloadKind::None, NamespaceId::FIRST).run(device, Instant(77), &mut |_| {})
}

fn run(latency_ns: u64, text: &str) -> RunResult {
    run_on(&mut FixedLatency::new(&drive(), latency_ns), text)
}

fn fill(oracle: &mut ReferenceDevice, plan: &Plan) {
    let geometry = oracle.geometry(NamespaceId::FIRST).clone();
    for (zone, blocks) in plan.prefill() {
        let start = geometry.zone_start(zone);
        for block in 0..blocks.0 {
            let operation =
                Operation::Write { start: start + Blocks(block), blocks: Blocks(1), payload: Payload::None };
            let command = Command::new(zonda_zoned::CommandId(0), NamespaceId::FIRST, operation);
            assert!(oracle.execute(&command).status.is_success());
        }
    }
}

/// States and write pointers, zone by zone; the pointer relative to the zone's start, `None`
/// without one.
fn zones(oracle: &mut ReferenceDevice) -> Vec<(ZoneState, Option<u64>)> {
    let operation = Operation::ReportZones {
        start: zonda_zoned::Lba(0),
        filter: zonda_zoned::ReportFilter::All,
        extended: false,
        partial: false,
        descriptors_max: u32::MAX,
    };
    let command = Command::new(zonda_zoned::CommandId(0), NamespaceId::FIRST, operation);
    let zonda_zoned::Outcome::Report(report) = oracle.execute(&command).outcome else { panic!("no report") };
    report.zones.iter().map(|zone| (zone.state, zone.write_pointer.map(|pointer| (pointer - zone.start).0))).collect()
}

fn operations(job: &JobResult, kind: RequestKind) -> u64 {
    job.kind(kind).map_or(0, |figures| figures.operations)
}

#[test]
fn zone_types_of_the_test_drives_are_as_documented() {
    drive().validate().unwrap();
    drive_with_conventional_zones().validate().unwrap();
    assert_eq!(drive_with_conventional_zones().zone_type(ZoneIndex(3)), ZoneType::Conventional);
}

#[test]
fn runs_of_one_seed_are_equal_and_of_two_seeds_differ() {
    let text = |seed: u64| {
        format!(
            "[run]\nseed = {seed}\ntime = \"20 ms\"\n\
             [[job]]\noperation = \"mix\"\nmix = {{ read = 2, append = 1 }}\nqueue_depth = 3\nzones = \"0..4\"\n\
             on_full = \"reset\"\n\
             [[job]]\noperation = \"randread\"\nzones = \"4..16\"\ndistribution = {{ zipf = 0.9 }}\nworkers = 2\n"
        )
    };
    let commands = |seed| {
        let mut device = FixedLatency::new(&drive(), 10_000);
        device.slow_zone = Some((ZoneIndex(5), 45_000));
        let result = run_on(&mut device, &text(seed));
        (result, device.taken)
    };
    let first = commands(7);
    assert_eq!(first, commands(7));
    assert_ne!(first.1, commands(8).1);
    assert!(first.0.jobs.iter().all(|job| job.ended_by == EndReason::Time && job.errors.is_empty()));
}
