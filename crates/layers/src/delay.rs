//! [`Delay`]: delays completions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, Namespaces, Prng, QueueFull, ZonedDevice,
};

use crate::limits::DELAY_OUTSTANDING_MAX;
use crate::rules::RuleSet;
use crate::{Matcher, RuleCounters, When};

/// Delays completions by rules: a slow member of an array, jitter, a controller that pauses
/// sometimes, completions out of order. Use it to test how a layer above behaves with unusual
/// timing.
///
/// The inner device accepts every command at once, so that effects stay in the order of submission;
/// only the completions are later. Delays of all rules that strike add up. Completions due at the
/// same instant are in the order of the inner device.
pub struct Delay<D> {
    inner: D,
    delays: Vec<(Duration, Duration)>,
    rules: RuleSet,
    /// The delay of each command in flight that has one.
    command_delays: BTreeMap<CommandId, Duration>,
    held: BinaryHeap<Reverse<Held>>,
    sequence: u64,
    scratch: CompletionQueue,
}

/// Which completions are delayed, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayRule {
    /// The commands that the rule matches.
    pub matches: Matcher,
    /// Which of the matching commands it strikes.
    pub when: When,
    /// The fixed part of the delay.
    pub fixed: Duration,
    /// The random part of the delay, uniform from zero to this value.
    pub spread: Duration,
}

impl<D: ZonedDevice> Delay<D> {
    /// A layer over `inner` that delays by `rules`, with random numbers from `prng`.
    ///
    /// # Panics
    /// When a rule's `when` divides by zero, or names a namespace that `inner` does not have.
    #[must_use]
    pub fn new(inner: D, rules: Vec<DelayRule>, prng: Prng) -> Delay<D> {
        let mut rule_set = RuleSet::new(prng);
        let mut delays = Vec::with_capacity(rules.len());
        for DelayRule { matches, when, fixed, spread } in rules {
            let namespace = matches.namespace;
            rule_set.add(matches, when, inner.geometry(namespace));
            delays.push((fixed, spread));
        }
        Delay {
            inner,
            delays,
            rules: rule_set,
            command_delays: BTreeMap::new(),
            held: BinaryHeap::new(),
            sequence: 0,
            scratch: CompletionQueue::new(),
        }
    }

    /// How often each rule matched and struck, in the order of the rules.
    #[must_use]
    pub fn counters(&self) -> Vec<RuleCounters> {
        (0..self.rules.len()).map(|index| self.rules.counters(index)).collect()
    }

    /// Returns the inner device. Delayed completions are lost.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The inner device.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The inner device. Completions of commands submitted to it directly must not be polled for
    /// here.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn draw(&mut self, command: &Command) -> Duration {
        self.rules.begin();
        let mut total = Duration::ZERO;
        for (index, &(fixed, spread)) in self.delays.iter().enumerate() {
            if self.rules.strikes(index, command) {
                total += fixed;
                if spread > Duration::ZERO {
                    total += Duration(self.rules.prng().below(spread.0.saturating_add(1)));
                }
            }
        }
        total
    }

    fn release(&mut self, now: Instant, completions: &mut CompletionQueue) {
        while self.held.peek().is_some_and(|Reverse(held)| held.due <= now) {
            let Reverse(held) = self.held.pop().expect("the heap is not empty");
            completions.push(held.completion);
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Delay<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.command_delays.len() + self.held.len() >= DELAY_OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let delay = self.draw(&command);
        let id = command.id;
        if let Err(refused) = self.inner.submit(now, command) {
            self.rules.undo();
            return Err(refused);
        }
        if delay > Duration::ZERO {
            let previous = self.command_delays.insert(id, delay);
            assert!(previous.is_none(), "command {id} is already in flight");
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        // Completions that were due earlier come first; new completions of the inner device are
        // held or passed on after them.
        self.release(now, completions);
        self.inner.poll(now, &mut self.scratch);
        while let Some(completion) = self.scratch.pop() {
            match self.command_delays.remove(&completion.id) {
                None => completions.push(completion),
                Some(delay) => {
                    let due = now + delay;
                    self.held.push(Reverse(Held { due, sequence: self.sequence, completion }));
                    self.sequence += 1;
                }
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let own = self.held.peek().map(|Reverse(held)| held.due);
        crate::earlier(own, self.inner.next_timeout())
    }
}

/// A completion in the heap, ordered by its instant and then by the order of the inner device.
#[derive(Debug)]
struct Held {
    due: Instant,
    sequence: u64,
    completion: Completion,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::ZoneIndex;

    use super::*;
    use crate::OperationSet;
    use crate::testing::{Narrow, poll_ids, read, reference, run_until_idle, write};

    fn rule(matches: Matcher, fixed: u64, spread: u64) -> DelayRule {
        DelayRule { matches, when: When::Always, fixed: Duration(fixed), spread: Duration(spread) }
    }

    #[test]
    fn a_delayed_completion_arrives_exactly_when_it_is_due() {
        let slow_zone = Matcher::default().in_zones(ZoneIndex(1)..ZoneIndex(2));
        let mut device = Delay::new(reference(), vec![rule(slow_zone, 50, 0)], Prng::new(1));
        device.submit(Instant(10), read(1, 16, 1)).unwrap();
        device.submit(Instant(10), read(2, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut device, Instant(10)), [2]);
        assert_eq!(device.next_timeout(), Some(Instant(60)));
        assert_eq!(poll_ids(&mut device, Instant(59)), [0; 0]);
        assert_eq!(poll_ids(&mut device, Instant(60)), [1]);
        assert_eq!(device.next_timeout(), None);
        assert_eq!(device.counters(), [RuleCounters { matched: 1, struck: 1 }]);
    }

    #[test]
    fn a_spread_reorders_completions_and_loses_none() {
        let mut device = Delay::new(reference(), vec![rule(Matcher::default(), 10, 1_000)], Prng::new(3));
        for id in 0..32 {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
        }
        let ended = run_until_idle(&mut device, Instant::ZERO);
        let order: Vec<u64> = ended.iter().map(|(_, completion)| completion.id.0).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..32).collect::<Vec<u64>>());
        assert_ne!(order, sorted, "completions are reordered");
        assert!(ended.is_sorted_by_key(|(at, _)| *at));
        assert!(ended.iter().all(|(at, _)| (10..=1_010).contains(&at.0)), "{ended:?}");
    }

    #[test]
    fn completions_due_at_the_same_instant_keep_the_order_of_the_inner_device() {
        let mut device = Delay::new(reference(), vec![rule(Matcher::default(), 10, 0)], Prng::new(3));
        for id in [7, 3, 5] {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
        }
        device.poll(Instant::ZERO, &mut CompletionQueue::new());
        assert_eq!(poll_ids(&mut device, Instant(10)), [7, 3, 5]);
    }

    #[test]
    fn delays_of_several_rules_add_up() {
        let rules = vec![rule(Matcher::default(), 10, 0), rule(Matcher::operations(OperationSet::WRITES), 7, 0)];
        let mut device = Delay::new(reference(), rules, Prng::new(3));
        device.submit(Instant::ZERO, write(1, 0, 1)).unwrap();
        device.submit(Instant::ZERO, read(2, 0, 1)).unwrap();
        let ended = run_until_idle(&mut device, Instant::ZERO);
        let times: Vec<(u64, u64)> = ended.iter().map(|(at, completion)| (at.0, completion.id.0)).collect();
        assert_eq!(times, [(10, 2), (17, 1)]);
    }

    #[test]
    fn a_command_refused_by_the_inner_device_is_returned_and_uses_no_random_numbers() {
        let inner = Narrow::new(reference(), 1);
        let mut device = Delay::new(inner, vec![rule(Matcher::default(), 10, 100)], Prng::new(3));
        device.submit(Instant::ZERO, read(1, 0, 1)).unwrap();
        assert_eq!(device.submit(Instant::ZERO, read(2, 0, 1)), Err(QueueFull(read(2, 0, 1))));
        assert_eq!(device.counters(), [RuleCounters { matched: 1, struck: 1 }]);
        // The inner device accepts commands again before its completion is passed on.
        device.poll(Instant::ZERO, &mut CompletionQueue::new());
        device.submit(Instant::ZERO, read(2, 0, 1)).unwrap();
        assert_eq!(run_until_idle(&mut device, Instant::ZERO).len(), 2);
    }

    #[test]
    fn a_full_table_refuses_until_a_completion_is_released() {
        let mut device = Delay::new(reference(), vec![rule(Matcher::default(), 10, 0)], Prng::new(3));
        for id in 0..DELAY_OUTSTANDING_MAX as u64 {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
            device.poll(Instant::ZERO, &mut CompletionQueue::new());
        }
        let one_more = read(1 << 40, 0, 1);
        assert_eq!(device.submit(Instant(9), one_more.clone()), Err(QueueFull(one_more.clone())));
        assert_eq!(poll_ids(&mut device, Instant(10)).len(), DELAY_OUTSTANDING_MAX);
        device.submit(Instant(10), one_more).unwrap();
    }
}
