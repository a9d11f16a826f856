//! What a scheduler costs: processor time of a command that waits, under each policy, beside the
//! order of arrival in the same run.
//!
//! The device below completes commands at once and has few slots, so all of the difference is the
//! scheduler's.

use std::hint::black_box;

use serde::Serialize;
use zonda_layers::Null;
use zonda_sched::{
    ConflictGroup, Ezns, EznsConfig, Fifo, Interference, InterferenceConfig, MqDeadline, MqDeadlineConfig, Scheduled,
    Scheduler, Within, ZoneGroups,
};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Origin, Prng,
    TenantId, ZonedDevice,
};

use crate::host::{cpu_ns, median};

const ROUNDS: usize = 5;
const QUEUE_DEPTHS: [u64; 3] = [32, 256, 2048];
const COMMANDS: u64 = 200_000;
const IN_FLIGHT: usize = 16;
const ZONES: u32 = 1024;
const TENANTS: u64 = 8;

/// Policies, and for those with conflict groups the number of groups that zones are dealt to.
const CASES: [(&str, Option<u32>); 8] = [
    ("mq-deadline", None),
    ("ezns", None),
    ("interference", Some(1)),
    ("interference", Some(16)),
    ("interference", Some(128)),
    ("interference+ezns", Some(1)),
    ("interference+ezns", Some(16)),
    ("interference+ezns", Some(128)),
];

#[derive(Serialize)]
struct Figures {
    policy: &'static str,
    groups: Option<u32>,
    queue_depth: u64,
    /// A command without a scheduler's choice.
    none_ns: f64,
    policy_ns: f64,
    added_ns: f64,
    /// `policy_ns` over `none_ns`.
    ratio: f64,
}

fn drive() -> Null {
    let blocks = Blocks(96 * 256);
    Null::new(Geometry {
        block_size_bytes: 4096,
        zone_size_blocks: blocks,
        zone_capacity_blocks: blocks,
        zone_count: ZONES,
        ..Geometry::tiny()
    })
}

fn interference(within: Within, groups: Option<u32>) -> Box<dyn Scheduler> {
    let groups = groups.expect("a case of conflict groups has their number");
    let groups = ZoneGroups::new((0..ZONES).map(|zone| Some(ConflictGroup(zone % groups))));
    Box::new(Interference::new(InterferenceConfig { within, ..InterferenceConfig::new(groups) }))
}

fn scheduler(policy: &str, groups: Option<u32>) -> Box<dyn Scheduler> {
    match policy {
        "none" => Box::new(Fifo::default()),
        "mq-deadline" => Box::new(MqDeadline::new(MqDeadlineConfig::default())),
        "ezns" => Box::new(Ezns::new(EznsConfig::default())),
        "interference" => interference(Within::Fair, groups),
        _ => interference(Within::Ezns(EznsConfig::default()), groups),
    }
}

/// Nanoseconds of the processor for each random read.
fn measure(scheduler: Box<dyn Scheduler>, queue_depth: u64) -> f64 {
    let mut device = Scheduled::new(drive(), scheduler).with_in_flight_max(IN_FLIGHT);
    let mut prng = Prng::new(1);
    let mut completions = CompletionQueue::new();
    let (mut submitted, mut ended, mut now) = (0, 0, 1);
    let begin = cpu_ns();
    while ended < COMMANDS {
        while submitted < COMMANDS && submitted - ended < queue_depth {
            let start = Lba(prng.below(u64::from(ZONES)) * 96 * 256);
            let operation = Operation::Read { start, blocks: Blocks(1) };
            let origin = Origin { tenant: TenantId((submitted % TENANTS) as u16), ..Origin::default() };
            let command = Command::new(CommandId(submitted), NamespaceId::FIRST, operation).with_origin(origin);
            device.submit(Instant(now), command).expect("the queue is not full");
            submitted += 1;
        }
        now += 1000;
        device.poll(Instant(now), &mut completions);
        while let Some(completion) = completions.pop() {
            black_box(completion);
            ended += 1;
        }
    }
    (cpu_ns() - begin) as f64 / COMMANDS as f64
}

pub(crate) fn run_all(as_json: bool) {
    let mut all = Vec::new();
    for (policy, groups) in CASES {
        for queue_depth in QUEUE_DEPTHS {
            let (mut none, mut own) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                none.push(measure(scheduler("none", None), queue_depth));
                own.push(measure(scheduler(policy, groups), queue_depth));
            }
            let (none_ns, policy_ns) = (median(none), median(own));
            let (added_ns, ratio) = (policy_ns - none_ns, policy_ns / none_ns);
            all.push(Figures { policy, groups, queue_depth, none_ns, policy_ns, added_ns, ratio });
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&all).expect("figures are numbers and names"));
        return;
    }
    println!("sched: processor time of a command that waits, ns");
    println!("{:<20} {:>6} {:>5} {:>8} {:>8} {:>8} {:>8}", "", "groups", "QD", "none", "policy", "added", "ratio");
    for it in &all {
        println!(
            "{:<20} {:>6} {:>5} {:>8.0} {:>8.0} {:>8.0} {:>8.2}",
            it.policy,
            it.groups.map_or(String::new(), |groups| groups.to_string()),
            it.queue_depth,
            it.none_ns,
            it.policy_ns,
            it.added_ns,
            it.ratio
        );
    }
}
