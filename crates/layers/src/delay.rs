//! [`Delay`]: holds back completions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Prng, QueueFull,
    ZonedDevice,
};

use crate::limits::DELAY_OUTSTANDING_MAX;
use crate::rules::RuleBook;
use crate::{Matcher, RuleCounters, When};

/// Holds back completions by rules: a slow member of an array, jitter, a controller that pauses now and then, completions
/// that overtake each other. Use it to see what a layer above does when time does not go its way.
///
/// The inner device takes every command at once, so that effects stay in the order of submission; only the news comes
/// later. Delays of all rules that strike add up. Two completions due at the same instant come in the order in which the
/// inner device gave them.
pub struct Delay<D> {
    inner: D,
    delays: Vec<(Duration, Duration)>,
    rules: RuleBook,
    /// The delay of each command under way that has one.
    drawn: BTreeMap<CommandId, Duration>,
    held: BinaryHeap<Reverse<Held>>,
    sequence: u64,
    scratch: CompletionQueue,
}

/// Which completions are held back, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayRule {
    /// The commands.
    pub matches: Matcher,
    /// Which of them.
    pub when: When,
    /// The span by which each is late.
    pub fixed: Duration,
    /// A further span, uniform from zero to this one.
    pub spread: Duration,
}

impl<D: ZonedDevice> Delay<D> {
    /// A layer over `inner` that delays by `rules`, with randomness of its own.
    ///
    /// # Panics
    /// When a rule's `when` divides by zero, or names a namespace that `inner` does not have.
    #[must_use]
    pub fn new(inner: D, rules: Vec<DelayRule>, prng: Prng) -> Delay<D> {
        let mut book = RuleBook::new(prng);
        let mut delays = Vec::with_capacity(rules.len());
        for DelayRule { matches, when, fixed, spread } in rules {
            let namespace = matches.namespace;
            book.add(matches, when, inner.geometry(namespace));
            delays.push((fixed, spread));
        }
        Delay {
            inner,
            delays,
            rules: book,
            drawn: BTreeMap::new(),
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

    /// The device inside. Completions held back are lost.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The device inside.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device inside. What is submitted to it directly must not be polled for here.
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
            let Reverse(held) = self.held.pop().expect("the heap was just looked into");
            completions.push(held.completion);
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Delay<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.inner.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.drawn.len() + self.held.len() >= DELAY_OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let delay = self.draw(&command);
        let id = command.id;
        if let Err(refused) = self.inner.submit(now, command) {
            self.rules.undo();
            return Err(refused);
        }
        if delay > Duration::ZERO {
            let previous = self.drawn.insert(id, delay);
            assert!(previous.is_none(), "command {id} is already under way");
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        // What was due earlier comes first; what the inner device ends now is held or passed on after it.
        self.release(now, completions);
        self.inner.poll(now, &mut self.scratch);
        while let Some(completion) = self.scratch.pop() {
            match self.drawn.remove(&completion.id) {
                None => completions.push(completion),
                Some(delay) => {
                    let due = now + delay;
                    self.held.push(Reverse(Held { due, sequence: self.sequence, completion }));
                    self.sequence += 1;
                }
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let own = self.held.peek().map(|Reverse(held)| held.due);
        crate::earlier(own, self.inner.next_wakeup())
    }
}

/// A completion in the heap, ordered by its instant and then by its place among those of the inner device.
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
    fn a_delayed_completion_comes_when_it_is_due_and_not_before() {
        let slow_zone = Matcher::default().in_zones(ZoneIndex(1)..ZoneIndex(2));
        let mut device = Delay::new(reference(), vec![rule(slow_zone, 50, 0)], Prng::new(1));
        device.submit(Instant(10), read(1, 16, 1)).unwrap();
        device.submit(Instant(10), read(2, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut device, Instant(10)), [2]);
        assert_eq!(device.next_wakeup(), Some(Instant(60)));
        assert_eq!(poll_ids(&mut device, Instant(59)), [0; 0]);
        assert_eq!(poll_ids(&mut device, Instant(60)), [1]);
        assert_eq!(device.next_wakeup(), None);
        assert_eq!(device.counters(), [RuleCounters { matched: 1, struck: 1 }]);
    }

    #[test]
    fn a_spread_makes_completions_overtake_each_other_and_loses_none() {
        let mut device = Delay::new(reference(), vec![rule(Matcher::default(), 10, 1_000)], Prng::new(3));
        for id in 0..32 {
            device.submit(Instant::ZERO, read(id, 0, 1)).unwrap();
        }
        let ended = run_until_idle(&mut device, Instant::ZERO);
        let order: Vec<u64> = ended.iter().map(|(_, completion)| completion.id.0).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..32).collect::<Vec<u64>>());
        assert_ne!(order, sorted, "nobody overtook");
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
    fn what_the_inner_device_refuses_is_handed_back_and_draws_nothing() {
        let inner = Narrow::new(reference(), 1);
        let mut device = Delay::new(inner, vec![rule(Matcher::default(), 10, 100)], Prng::new(3));
        device.submit(Instant::ZERO, read(1, 0, 1)).unwrap();
        assert_eq!(device.submit(Instant::ZERO, read(2, 0, 1)), Err(QueueFull(read(2, 0, 1))));
        assert_eq!(device.counters(), [RuleCounters { matched: 1, struck: 1 }]);
        // The inner device is free again before its completion is shown.
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
