//! Tables that are right, wrong, and right for a while.

use std::collections::BTreeMap;

use super::*;
use crate::{Fifo, TableReport};
use zonda_zoned::{Completion, Namespaces, Outcome, QueueFull, Status};

/// A drive that reads one request at a time in each of its groups.
struct Hidden {
    namespaces: Namespaces,
    group_of_zone: Vec<u32>,
    /// When each group is idle again.
    idle: BTreeMap<u32, Instant>,
    ends: BTreeMap<(Instant, u64), CommandId>,
    prng: Prng,
    submitted: u64,
}

const ZONES: u32 = 64;
/// How long a read takes, at least.
const READ: u64 = 80_000;

impl Hidden {
    fn new(group_of_zone: Vec<u32>) -> Hidden {
        let namespaces = Namespaces::single(geometry());
        let (idle, ends) = (BTreeMap::new(), BTreeMap::new());
        Hidden { namespaces, group_of_zone, idle, ends, prng: Prng::new(5), submitted: 0 }
    }
}

impl ZonedDevice for Hidden {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let Operation::Read { start, .. } = command.operation else { panic!("only reads are submitted") };
        let group = self.group_of_zone[(start.0 / ZONE_BLOCKS) as usize];
        let idle = self.idle.entry(group).or_default();
        *idle = now.max(*idle) + Duration(READ + self.prng.below(READ / 2));
        self.submitted += 1;
        self.ends.insert((*idle, self.submitted), command.id);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        while let Some(first) = self.ends.first_entry().filter(|first| first.key().0 <= now) {
            let (id, status) = (first.remove(), Status::Success);
            completions.push(Completion { id, status, outcome: Outcome::None });
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.ends.first_key_value().map(|(key, _)| key.0)
    }
}

/// Zone z is in group z modulo 8.
fn striped() -> Vec<u32> {
    (0..ZONES).map(|zone| zone % 8).collect()
}

/// The same number of zones in each group, in a random order.
fn shuffled(seed: u64) -> Vec<u32> {
    let mut groups = striped();
    let mut prng = Prng::new(seed).fork("shuffled");
    for place in (1..groups.len()).rev() {
        groups.swap(place, prng.below(place as u64 + 1) as usize);
    }
    groups
}

fn table(groups: &[u32]) -> Interference {
    let groups = ZoneGroups::new(groups.iter().map(|group| Some(ConflictGroup(*group))));
    Interference::new(InterferenceConfig::new(groups))
}

/// Bursts of reads of a group of zones, of several processes; the time for `reads` of them.
fn time(device: &mut Scheduled<Hidden>, reads: u64, prng: &mut Prng, now: &mut Instant) -> Duration {
    let begin = *now;
    let mut completions = CompletionQueue::new();
    let (mut submitted, mut ended) = (0, 0);
    while ended < reads {
        while submitted < reads && submitted - ended < 192 {
            let (burst, zone) = (1 + prng.below(24), prng.below(8));
            for _ in 0..burst {
                submitted += 1;
                // The zones of a burst are in one group of the striped drive.
                let zone = zone + 8 * prng.below(u64::from(ZONES / 8));
                device.submit(*now, read(submitted, zone, 1)).expect("the queue has slots");
            }
        }
        *now = device.next_timeout().expect("reads are in flight").max(*now);
        device.poll(*now, &mut completions);
        device.check_invariants();
        while completions.pop().is_some() {
            ended += 1;
        }
    }
    now.since(begin)
}

fn run(groups: Vec<u32>, scheduler: Box<dyn crate::Scheduler>, seed: u64) -> (Duration, Option<TableReport>) {
    let mut device = Scheduled::new(Hidden::new(groups), scheduler).with_in_flight_max(16);
    let elapsed = time(&mut device, 20_000, &mut Prng::new(seed), &mut Instant::ZERO.clone());
    (elapsed, device.table())
}

#[test]
fn a_right_table_is_confirmed_and_saves_time() {
    for seed in 0..5 {
        let (none, no_table) = run(striped(), Box::new(Fifo::default()), seed);
        let (own, table) = run(striped(), Box::new(table(&striped())), seed);
        assert_eq!((table.map(|table| (table.is_used, table.rejected)), no_table), (Some((true, 0)), None));
        assert!(own.0 * 3 < none.0 * 2, "{own} and {none}");
    }
}

#[test]
fn a_wrong_table_is_rejected_and_costs_at_most_what_none_costs() {
    for seed in 0..5 {
        let (none, _) = run(striped(), Box::new(Fifo::default()), seed);
        let (own, table) = run(striped(), Box::new(table(&shuffled(seed))), seed);
        let table = table.expect("it has a table");
        assert!(!table.is_used && table.rejected == 1 && table.restored == 0, "{table:?}");
        assert!(own.0 * 100 <= none.0 * 103, "{own} and {none}");
    }
}

#[test]
fn a_drive_without_groups_contradicts_any_table() {
    // All zones share one die.
    let (none, _) = run(vec![0; ZONES as usize], Box::new(Fifo::default()), 1);
    let (own, table) = run(vec![0; ZONES as usize], Box::new(table(&striped())), 1);
    assert!(table.is_some_and(|table| !table.is_used), "{table:?}");
    assert!(own.0 * 100 <= none.0 * 103, "{own} and {none}");
}

#[test]
fn groups_that_change_are_noticed_and_so_is_their_return() {
    let mut device = Scheduled::new(Hidden::new(striped()), Box::new(table(&striped()))).with_in_flight_max(16);
    let mut now = Instant::ZERO;
    let mut prng = Prng::new(1);
    let mut state = |device: &mut Scheduled<Hidden>, reads| {
        time(device, reads, &mut prng, &mut now);
        let table = device.table().expect("it has a table");
        (table.is_used, table.rejected, table.restored)
    };
    assert_eq!(state(&mut device, 20_000), (true, 0, 0));
    device.inner_mut().group_of_zone = shuffled(9);
    assert_eq!(state(&mut device, 300_000), (false, 1, 0), "noticed in a trial");
    device.inner_mut().group_of_zone = striped();
    assert_eq!(state(&mut device, 20_000), (true, 1, 1), "noticed at once: every release is a trial");
}

#[test]
fn a_scheduler_that_does_not_learn_keeps_its_table() {
    let config = InterferenceConfig {
        learns: false,
        ..InterferenceConfig::new(ZoneGroups::new(shuffled(1).into_iter().map(|group| Some(ConflictGroup(group)))))
    };
    let (_, table) = run(striped(), Box::new(Interference::new(config)), 1);
    assert!(table.is_some_and(|table| table.is_used && table.rejected == 0));
}
