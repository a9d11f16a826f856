//! Commands through every scheduler.

use std::collections::BTreeMap;

use zonda_layers::{Delay, DelayRule, Matcher, Memory, Null, When};
use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation,
    Payload, PayloadKind, Prng, QueueFull, Status, ZoneAction, ZoneTarget, ZonedDevice,
};

use crate::{
    ConflictGroup, Ezns, EznsConfig, Fifo, Interference, InterferenceConfig, MqDeadline, MqDeadlineConfig, Request,
    Scheduled, Scheduler, Within, ZoneGroups,
};

/// A device that refuses commands, as one with short queues does: writes while it has `writes` of
/// them in flight, and everything while it has `all` commands in flight.
pub(crate) struct Narrow<D> {
    inner: D,
    in_flight: BTreeMap<CommandId, bool>,
    writes: usize,
    all: usize,
}

impl<D: ZonedDevice> Narrow<D> {
    pub(crate) fn new(inner: D, writes: usize, all: usize) -> Narrow<D> {
        Narrow { inner, in_flight: BTreeMap::new(), writes, all }
    }
}

impl<D: ZonedDevice> ZonedDevice for Narrow<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let is_read = matches!(command.operation, Operation::Read { .. });
        let writes = self.in_flight.values().filter(|is_read| !**is_read).count();
        if self.in_flight.len() >= self.all || !is_read && writes >= self.writes {
            return Err(QueueFull(command));
        }
        self.in_flight.insert(command.id, is_read);
        self.inner.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.inner.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            self.in_flight.remove(&completion.id);
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

/// Of four zones three have a group.
fn groups() -> ZoneGroups {
    ZoneGroups::new((0..64).map(|zone| (zone % 4 != 3).then_some(ConflictGroup(zone % 4))))
}

pub(crate) fn schedulers() -> [Box<dyn Scheduler>; 7] {
    // Short times, so that requests expire.
    let eager = MqDeadlineConfig {
        read_expire: Duration(50),
        write_expire: Duration(200),
        fifo_batch: 2,
        aging: Duration(400),
        ..MqDeadlineConfig::default()
    };
    // Windows and tokens for the times of these devices, so that reads and writes are throttled.
    let tight = EznsConfig {
        read_latency_threshold: Duration(50),
        token_capacity_bytes: 1024,
        token_period: Duration(40),
        monitor_period: Duration(200),
        block_latency: Duration(400),
        background_period: Duration(300),
        ..EznsConfig::default()
    };
    [
        Box::new(Fifo::default()),
        Box::new(MqDeadline::new(MqDeadlineConfig::default())),
        Box::new(MqDeadline::new(eager)),
        Box::new(Ezns::new(EznsConfig::default())),
        Box::new(Ezns::new(tight.clone())),
        Box::new(Interference::new(InterferenceConfig::new(groups()))),
        Box::new(Interference::new(InterferenceConfig {
            within: Within::Ezns(tight),
            ..InterferenceConfig::new(groups())
        })),
    ]
}

fn command(id: u64, operation: Operation) -> Command {
    Command::new(CommandId(id), NamespaceId::FIRST, operation)
}

fn read(id: u64, start: u64) -> Command {
    command(id, Operation::Read { start: Lba(start), blocks: Blocks(1) })
}

fn write(id: u64, start: u64) -> Command {
    command(id, Operation::Write { start: Lba(start), blocks: Blocks(1), payload: Payload::None })
}

/// Every command takes 100 ns.
fn slow(geometry: Geometry) -> Delay<Null> {
    let rule =
        DelayRule { matches: Matcher::default(), when: When::Always, fixed: Duration(100), spread: Duration::ZERO };
    Delay::new(Null::new(geometry), vec![rule], Prng::new(1))
}

/// The commands that end until `now`, in their order.
fn polled(device: &mut impl ZonedDevice, now: u64) -> Vec<u64> {
    let mut completions = CompletionQueue::new();
    while let Some(at) = device.next_timeout().filter(|at| at.0 <= now) {
        device.poll(at, &mut completions);
    }
    std::iter::from_fn(|| completions.pop()).map(|completion| completion.id.0).collect()
}

/// The order in which commands that were submitted at once are released, each when the one before
/// has ended.
fn releases(scheduler: Box<dyn Scheduler>, commands: Vec<Command>) -> Vec<u64> {
    let mut device = Scheduled::new(slow(Geometry::tiny()), scheduler).with_in_flight_max(1).recording_releases();
    for command in commands {
        device.submit(Instant::ZERO, command).unwrap();
    }
    while let Some(at) = device.next_timeout() {
        polled(&mut device, at.0);
        device.check_invariants();
    }
    std::iter::from_fn(|| device.take_release()).map(|id| id.0).collect()
}

/// A command that was submitted, until it is released and then until it ends.
struct Submitted {
    number: u64,
    command: Command,
    request: Request,
}

/// Random commands: each completes as the oracle says that executes them in the order of their
/// releases, and no command is released before one that it must wait for.
fn run(geometry: &Geometry, scheduler: Box<dyn Scheduler>, seed: u64) -> u64 {
    let root = Prng::new(seed);
    let mut prng = root.fork("run");
    let mut source = CommandSource::new(geometry, PayloadKind::Bytes, root.fork("commands"));
    let rule = DelayRule {
        matches: Matcher::default(),
        when: When::Always,
        fixed: Duration(10),
        spread: Duration(1 + prng.below(90)),
    };
    let memory = Memory::new(geometry.clone(), u64::MAX);
    let slots = [1 + prng.below(4) as usize, 1 + prng.below(12) as usize];
    let device = Narrow::new(Delay::new(memory, vec![rule], root.fork("delays")), slots[0], slots[1]);
    let mut device =
        Scheduled::new(device, scheduler).with_in_flight_max(1 + prng.below(16) as usize).recording_releases();
    let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut waiting: BTreeMap<CommandId, Submitted> = BTreeMap::new();
    let mut expected = BTreeMap::new();
    let (mut now, mut number, mut overtaken) = (Instant::ZERO, 0, 0);
    let depth = 1 + prng.below(48) as usize;
    let mut left = 400;
    while left > 0 || !waiting.is_empty() || !expected.is_empty() {
        if left > 0 && waiting.len() + expected.len() < depth && prng.chance(3, 4) {
            left -= 1;
            let mut command = source.next(&oracle);
            if prng.chance(1, 3) {
                command = command.in_background();
            }
            let request = Request::of(&command, geometry, now);
            number += 1;
            waiting.insert(command.id, Submitted { number, command: command.clone(), request });
            device.submit(now, command).expect("its queue is long");
        } else {
            now = now.max(device.next_timeout().unwrap_or(now));
            let mut completions = CompletionQueue::new();
            device.poll(now, &mut completions);
            overtaken += follow(&mut device, &mut oracle, &mut waiting, &mut expected);
            while let Some(completion) = completions.pop() {
                let wanted = expected.remove(&completion.id).expect("it was released before it completes");
                assert_eq!(completion, wanted, "seed {seed}");
            }
        }
        overtaken += follow(&mut device, &mut oracle, &mut waiting, &mut expected);
        device.check_invariants();
    }
    assert_eq!(device.next_timeout(), None, "an idle device waits for nothing");
    overtaken
}

/// Executes released commands on the oracle. Returns how many earlier commands they have overtaken.
fn follow<D: ZonedDevice>(
    device: &mut Scheduled<D>,
    oracle: &mut ReferenceDevice,
    waiting: &mut BTreeMap<CommandId, Submitted>,
    expected: &mut BTreeMap<CommandId, zonda_zoned::Completion>,
) -> u64 {
    let mut overtaken = 0;
    while let Some(id) = device.take_release() {
        let released = waiting.remove(&id).expect("a command is released once");
        for earlier in waiting.values().filter(|earlier| earlier.number < released.number) {
            let (later, earlier) = (&released.request, &earlier.request);
            assert!(!later.must_wait_for(earlier), "{later:?} was released before {earlier:?}");
            overtaken += 1;
        }
        expected.insert(id, oracle.execute(&released.command));
    }
    overtaken
}

#[test]
fn random_commands_complete_as_in_an_oracle_that_follows_the_releases() {
    let mut geometries = Prng::new(7).fork("sched");
    let mut overtaken = [0; 7];
    for seed in 0..40 {
        let geometry = random_geometry(&mut geometries);
        for (place, scheduler) in schedulers().into_iter().enumerate() {
            overtaken[place] += run(&geometry, scheduler, seed);
        }
    }
    assert!(overtaken.iter().all(|count| *count > 100), "schedulers change the order: {overtaken:?}");
}

#[test]
fn without_a_scheduler_commands_are_released_in_the_order_of_their_arrival() {
    let commands = vec![write(1, 32), read(2, 0), write(3, 16), read(4, 17), write(5, 33)];
    assert_eq!(releases(Box::new(Fifo::default()), commands), [1, 2, 3, 4, 5]);
}

#[test]
fn a_refused_write_holds_up_no_read() {
    let mut device = Scheduled::new(Narrow::new(slow(Geometry::tiny()), 1, 4), Box::new(Fifo::default()));
    for command in [write(1, 0), write(2, 16), read(3, 0), read(4, 0), write(5, 32), read(6, 0), read(7, 0)] {
        device.submit(Instant::ZERO, command).unwrap();
    }
    assert_eq!(device.waiting(), 3, "a write, three reads, and then the queue is full");
    assert_eq!(polled(&mut device, 100), [1, 3, 4, 6]);
    assert_eq!(polled(&mut device, 200), [2, 7], "one write at a time");
    assert_eq!(polled(&mut device, 300), [5]);
    device.check_invariants();
}

#[test]
fn a_full_queue_refuses_commands_with_their_identifiers() {
    let mut device = Scheduled::new(slow(Geometry::tiny()), Box::new(Fifo::default())).with_in_flight_max(1);
    let mut id = 0;
    let refused = loop {
        id += 1;
        if let Err(QueueFull(refused)) = device.submit(Instant::ZERO, read(id, 0)) {
            break refused;
        }
    };
    assert_eq!((refused, id), (read(id, 0), crate::limits::WAITING_MAX as u64 + 2));
}

#[test]
fn a_command_to_a_namespace_that_does_not_exist_is_answered_by_the_device() {
    let mut device =
        Scheduled::new(Null::new(Geometry::tiny()), Box::new(MqDeadline::new(MqDeadlineConfig::default())));
    device.submit(Instant::ZERO, read(1, 0).with_namespace(NamespaceId(9))).unwrap();
    let mut completions = CompletionQueue::new();
    device.poll(Instant::ZERO, &mut completions);
    assert_eq!(completions.pop().map(|completion| completion.status), Some(Status::InvalidNamespace));
}

fn deadline(config: MqDeadlineConfig) -> Box<dyn Scheduler> {
    Box::new(MqDeadline::new(config))
}

#[test]
fn reads_go_before_writes_until_writes_have_been_passed_over_twice() {
    let config = MqDeadlineConfig { fifo_batch: 1, ..MqDeadlineConfig::default() };
    let commands = (0..5).map(|n| read(10 + n, n)).chain((0..3).map(|n| write(20 + n, 16 * n)));
    // The first read was released before others had arrived.
    let order = releases(deadline(config), commands.collect());
    assert_eq!(order, [10, 11, 12, 20, 13, 14, 21, 22]);
}

#[test]
fn a_batch_follows_the_order_of_blocks_from_the_last_position() {
    let commands = [40, 8, 50, 3, 60].map(|start| read(start, start)).to_vec();
    assert_eq!(releases(deadline(MqDeadlineConfig::default()), commands), [40, 50, 60, 8, 3]);
}

#[test]
fn a_request_that_has_expired_begins_the_next_batch() {
    let config = MqDeadlineConfig { fifo_batch: 1, read_expire: Duration(250), ..MqDeadlineConfig::default() };
    let commands = [40, 3, 50, 60, 70, 80].map(|start| read(start, start)).to_vec();
    // Those at 100 and 200 ns continue behind block 40; at 300 ns the one at block 3 has expired,
    // and so have all others.
    assert_eq!(releases(deadline(config), commands), [40, 50, 60, 3, 70, 80]);
}

#[test]
fn a_sequential_zone_has_one_write_in_flight_and_other_zones_go_on() {
    let geometry = Geometry { max_open_zones: None, max_active_zones: None, ..Geometry::tiny() };
    let mut device = Scheduled::new(slow(geometry), deadline(MqDeadlineConfig::default()));
    for command in [write(1, 0), write(2, 1), write(3, 16), write(4, 2), write(5, 17)] {
        device.submit(Instant::ZERO, command).unwrap();
    }
    let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(32)) };
    device.submit(Instant::ZERO, command(6, reset)).unwrap();
    assert_eq!(polled(&mut device, 100), [1, 3, 6]);
    assert_eq!(polled(&mut device, 200), [5, 2], "the batch continues behind zone 1");
    assert_eq!(polled(&mut device, 300), [4]);
}

#[test]
fn background_requests_wait_for_all_others_but_not_longer_than_their_age_allows() {
    let foreground = |n| read(n, 0);
    let commands: Vec<Command> = (1..6).map(foreground).chain([read(9, 0).in_background()]).collect();
    assert_eq!(releases(deadline(MqDeadlineConfig::default()), commands.clone()), [1, 2, 3, 4, 5, 9]);
    let config = MqDeadlineConfig { aging: Duration(150), ..MqDeadlineConfig::default() };
    assert_eq!(releases(deadline(config), commands), [1, 2, 9, 3, 4, 5]);
}

#[test]
fn a_flush_waits_for_the_writes_before_it_and_reads_do_not_wait_for_it() {
    let commands = vec![write(1, 0), write(2, 1), command(3, Operation::Flush), read(4, 60), write(5, 16)];
    let config = MqDeadlineConfig { fifo_batch: 1, ..MqDeadlineConfig::default() };
    assert_eq!(releases(deadline(config), commands), [1, 4, 2, 3, 5]);
}

#[test]
fn writes_that_wait_for_their_zone_are_merged_up_to_the_largest_transfer() {
    let geometry = Geometry { max_transfer_blocks: Blocks(3), max_append_blocks: Blocks(3), ..Geometry::tiny() };
    let mut device = Scheduled::new(slow(geometry), deadline(MqDeadlineConfig::default())).merging_writes();
    let mut device_takes = |write: Command| device.submit(Instant::ZERO, write).unwrap();
    (0..6).for_each(|block| device_takes(write(block, block)));
    // Not the next block, and another zone.
    device_takes(write(6, 8));
    device_takes(write(7, 16));
    assert_eq!(device.counters().merged, 3, "blocks 2 and 3 with block 1, and 5 with 4: three are the most");
}

#[test]
fn all_merged_writes_end_with_the_one_that_they_were_merged_into() {
    let mut device = Scheduled::new(slow(Geometry::tiny()), deadline(MqDeadlineConfig::default())).merging_writes();
    (0..4).for_each(|block| device.submit(Instant::ZERO, write(block, block)).unwrap());
    assert_eq!(polled(&mut device, 100), [0]);
    assert_eq!(polled(&mut device, 199), [], "one write of the zone is in flight at a time");
    let mut ended = polled(&mut device, 200);
    ended.sort_unstable();
    assert_eq!((ended, device.counters().merged), (vec![1, 2, 3], 2));
    device.check_invariants();
}

#[test]
fn a_processor_releases_one_command_after_the_other() {
    let mut device =
        Scheduled::new(slow(Geometry::tiny()), deadline(MqDeadlineConfig::default())).with_dispatch_time(Duration(30));
    (0..3).for_each(|id| device.submit(Instant::ZERO, read(id, id)).unwrap());
    for (id, until) in [(0, 100), (1, 130), (2, 160)] {
        assert_eq!(polled(&mut device, until - 1), [], "read {id} was released {until} - 100 after the start");
        assert_eq!(polled(&mut device, until), [id]);
        device.check_invariants();
    }
}
