//! [`Fault`]: fails, damages or drops commands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Instant, Namespaces, Operation, Outcome, Payload, Prng, QueueFull,
    Status, ZonedDevice,
};

use crate::limits::FAULT_OUTSTANDING_MAX;
use crate::rules::RuleSet;
use crate::{Matcher, RuleCounters, When};

/// Fails, damages or drops commands by rules. Use it to test that a layer above tolerates failing
/// writes, corrupt reads and lost commands.
///
/// The first rule that strikes at a command decides; later rules do not count it. Random numbers
/// are generated when a command is submitted, so that a run replays whatever the timing below.
pub struct Fault<D> {
    inner: D,
    effects: Vec<FaultEffect>,
    rules: RuleSet,
    /// How to alter the completion of each command that was passed on.
    altered: BTreeMap<CommandId, Alteration>,
    dropped: BTreeSet<CommandId>,
    ready: VecDeque<(Instant, Completion)>,
    scratch: CompletionQueue,
}

/// Which fault is injected, into which commands, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The commands that the rule matches.
    pub matches: Matcher,
    /// Which of the matching commands it strikes.
    pub when: When,
    /// The injected fault.
    pub effect: FaultEffect,
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The command completes with this status at the next poll, and never reaches the device.
    Fail(Status),
    /// The command reaches the device, and a successful completion is changed to this status: the
    /// command was executed, but the host is not notified of that.
    FailAfter(Status),
    /// A random bit of the data or fingerprints that a read returns is flipped. Strikes only at
    /// reads, whatever operations the rule names; has no effect on a device that stores no data.
    CorruptRead,
    /// The command neither reaches the device nor completes, until [`Fault::abort_dropped`].
    Drop,
    /// The command reaches the device, but its completion is lost, until [`Fault::abort_dropped`].
    DropAfter,
}

impl<D: ZonedDevice> Fault<D> {
    /// A layer over `inner` that injects faults by `rules`, with random numbers from `prng`.
    ///
    /// # Panics
    /// When a rule's `when` divides by zero, or names a namespace that `inner` does not have.
    #[must_use]
    pub fn new(inner: D, rules: Vec<FaultRule>, prng: Prng) -> Fault<D> {
        let mut rule_set = RuleSet::new(prng);
        let mut effects = Vec::with_capacity(rules.len());
        for FaultRule { matches, when, effect } in rules {
            let namespace = matches.namespace;
            rule_set.add(matches, when, inner.geometry(namespace));
            effects.push(effect);
        }
        Fault {
            inner,
            effects,
            rules: rule_set,
            altered: BTreeMap::new(),
            dropped: BTreeSet::new(),
            ready: VecDeque::new(),
            scratch: CompletionQueue::new(),
        }
    }

    /// How often each rule matched and struck, in the order of the rules.
    #[must_use]
    pub fn counters(&self) -> Vec<RuleCounters> {
        (0..self.rules.len()).map(|index| self.rules.counters(index)).collect()
    }

    /// The dropped commands that are not yet aborted, in the order of their ids.
    pub fn dropped(&self) -> impl Iterator<Item = CommandId> {
        self.dropped.iter().copied()
    }

    /// Completes every dropped command with [`Status::AbortRequested`] at the next poll, and
    /// returns their number.
    pub fn abort_dropped(&mut self, now: Instant) -> usize {
        let dropped = std::mem::take(&mut self.dropped);
        let count = dropped.len();
        self.ready.extend(dropped.into_iter().map(|id| (now, Completion::of(id, Status::AbortRequested))));
        count
    }

    /// Returns the inner device. Commands that were dropped or failed and not yet polled for are
    /// lost.
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

    fn decide(&mut self, command: &Command) -> Option<FaultEffect> {
        self.rules.begin();
        for (index, &effect) in self.effects.iter().enumerate() {
            let is_read = matches!(command.operation, Operation::Read { .. });
            if (is_read || effect != FaultEffect::CorruptRead) && self.rules.strikes(index, command) {
                return Some(effect);
            }
        }
        None
    }

    fn alter(&mut self, mut completion: Completion, alteration: Alteration) -> Option<Completion> {
        match alteration {
            Alteration::Fail(status) if completion.status.is_success() => Some(Completion::of(completion.id, status)),
            Alteration::Fail(_) => Some(completion),
            Alteration::FlipBit(draw) => {
                if let Outcome::Data(payload) = &mut completion.outcome {
                    flip_bit(payload, draw);
                }
                Some(completion)
            }
            Alteration::Drop => {
                self.dropped.insert(completion.id);
                None
            }
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Fault<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.altered.len() + self.dropped.len() + self.ready.len() >= FAULT_OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let id = command.id;
        let alteration = match self.decide(&command) {
            Some(FaultEffect::Fail(status)) => {
                self.ready.push_back((now, Completion::of(id, status)));
                return Ok(());
            }
            Some(FaultEffect::Drop) => {
                self.dropped.insert(id);
                return Ok(());
            }
            Some(FaultEffect::FailAfter(status)) => Some(Alteration::Fail(status)),
            Some(FaultEffect::CorruptRead) => Some(Alteration::FlipBit(self.rules.prng().next_u64())),
            Some(FaultEffect::DropAfter) => Some(Alteration::Drop),
            None => None,
        };
        if let Err(refused) = self.inner.submit(now, command) {
            self.rules.undo();
            return Err(refused);
        }
        if let Some(alteration) = alteration {
            let previous = self.altered.insert(id, alteration);
            assert!(previous.is_none(), "command {id} is already in flight");
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        for (_, completion) in self.ready.drain(..) {
            completions.push(completion);
        }
        self.inner.poll(now, &mut self.scratch);
        while let Some(completion) = self.scratch.pop() {
            let shown = match self.altered.remove(&completion.id) {
                Some(alteration) => self.alter(completion, alteration),
                None => Some(completion),
            };
            if let Some(completion) = shown {
                completions.push(completion);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let own = self.ready.front().map(|(at, _)| *at);
        crate::earlier(own, self.inner.next_timeout())
    }
}

/// An alteration of a completion.
#[derive(Clone, Copy, Debug)]
enum Alteration {
    Fail(Status),
    FlipBit(u64),
    Drop,
}

/// Flips one bit of a payload, chosen by `draw`.
fn flip_bit(payload: &mut Payload, draw: u64) {
    match payload {
        Payload::None => {}
        Payload::Fingerprints(prints) => {
            if let Some(bit) = draw.checked_rem(prints.len() as u64 * 64) {
                prints[(bit / 64) as usize] ^= 1 << (bit % 64);
            }
        }
        Payload::Bytes(buffer) => {
            if let Some(bit) = draw.checked_rem(buffer.data.len() as u64 * 8) {
                let mut data = buffer.data.to_vec();
                data[(bit / 8) as usize] ^= 1 << (bit % 8);
                buffer.data = data.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{BlockBuffer, PayloadKind, ZoneIndex, reference::ReferenceDevice};

    use super::*;
    use crate::OperationSet;
    use crate::testing::{Narrow, command, poll_all, poll_ids, read, reference, run_one, write};
    use zonda_zoned::Geometry;

    fn fault(matches: Matcher, when: When, effect: FaultEffect) -> Fault<ReferenceDevice> {
        Fault::new(reference(), vec![FaultRule { matches, when, effect }], Prng::new(1))
    }

    fn writes() -> Matcher {
        Matcher::operations(OperationSet::WRITES)
    }

    #[test]
    fn a_failed_command_never_reaches_the_device() {
        let mut device = fault(writes(), When::Once, FaultEffect::Fail(Status::WriteFault));
        assert_eq!(run_one(&mut device, write(1, 0, 4)).status, Status::WriteFault);
        assert_eq!(run_one(&mut device, write(2, 0, 4)).status, Status::Success, "the write pointer had not moved");
        assert_eq!(device.counters(), [RuleCounters { matched: 2, struck: 1 }]);
    }

    #[test]
    fn a_command_that_fails_after_execution_has_taken_effect() {
        let mut device = fault(writes(), When::Once, FaultEffect::FailAfter(Status::InternalError));
        assert_eq!(run_one(&mut device, write(1, 0, 4)).status, Status::InternalError);
        assert_eq!(run_one(&mut device, write(2, 4, 4)).status, Status::Success, "the write pointer had moved");
    }

    #[test]
    fn an_error_of_the_device_is_passed_on() {
        let mut device = fault(writes(), When::Always, FaultEffect::FailAfter(Status::InternalError));
        assert_eq!(run_one(&mut device, write(1, 5, 1)).status, Status::ZoneInvalidWrite);
    }

    #[test]
    fn a_corrupt_read_differs_in_one_bit_and_a_second_read_is_correct() {
        let mut device = fault(Matcher::default(), When::Once, FaultEffect::CorruptRead);
        run_one(&mut device, write(1, 0, 4));
        let prints = |completion: Completion| match completion.outcome {
            Outcome::Data(Payload::Fingerprints(prints)) => prints,
            other => panic!("not fingerprints: {other:?}"),
        };
        let corrupt = prints(run_one(&mut device, read(2, 0, 4)));
        let sound = prints(run_one(&mut device, read(3, 0, 4)));
        let flipped: u32 = corrupt.iter().zip(&sound).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(device.counters(), [RuleCounters { matched: 2, struck: 1 }], "the rule does not match the write");
    }

    #[test]
    fn a_corrupt_read_of_bytes_differs_in_one_bit() {
        let inner = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Bytes);
        let rule = FaultRule { matches: Matcher::default(), when: When::Always, effect: FaultEffect::CorruptRead };
        let mut device = Fault::new(inner, vec![rule], Prng::new(1));
        let completion = run_one(&mut device, read(2, 0, 2));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { panic!("not bytes: {completion:?}") };
        let BlockBuffer { data, metadata } = *buffer;
        assert_eq!(data.iter().chain(&metadata).map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }

    #[test]
    fn a_dropped_command_completes_only_when_it_is_aborted() {
        let mut device = fault(writes(), When::Once, FaultEffect::Drop);
        device.submit(Instant(5), write(1, 0, 4)).unwrap();
        assert_eq!(device.next_timeout(), None);
        assert_eq!(poll_ids(&mut device, Instant(1_000_000)), [0; 0]);
        assert_eq!(device.dropped().collect::<Vec<_>>(), [CommandId(1)]);
        assert_eq!(device.abort_dropped(Instant(2_000_000)), 1);
        assert_eq!(device.next_timeout(), Some(Instant(2_000_000)));
        assert_eq!(poll_all(&mut device, Instant(2_000_000)), [Completion::of(CommandId(1), Status::AbortRequested)]);
        assert_eq!(run_one(&mut device, write(2, 0, 4)).status, Status::Success, "the command was not executed");
    }

    #[test]
    fn a_command_whose_completion_is_dropped_has_taken_effect() {
        let mut device = fault(writes(), When::Once, FaultEffect::DropAfter);
        device.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
        assert_eq!(poll_ids(&mut device, Instant::ZERO), [0; 0]);
        assert_eq!(device.abort_dropped(Instant::ZERO), 1);
        assert_eq!(poll_ids(&mut device, Instant::ZERO), [1]);
        assert_eq!(run_one(&mut device, write(2, 4, 4)).status, Status::Success);
    }

    #[test]
    fn the_first_rule_that_strikes_decides() {
        let rule = |when, status| FaultRule { matches: writes(), when, effect: FaultEffect::Fail(status) };
        let rules = vec![rule(When::Once, Status::WriteFault), rule(When::Always, Status::InternalError)];
        let mut device = Fault::new(reference(), rules, Prng::new(1));
        assert_eq!(run_one(&mut device, write(1, 0, 1)).status, Status::WriteFault);
        assert_eq!(run_one(&mut device, write(2, 0, 1)).status, Status::InternalError);
        assert_eq!(device.counters()[1], RuleCounters { matched: 1, struck: 1 });
    }

    #[test]
    fn a_rule_strikes_only_in_its_zones() {
        let zone_one = writes().in_zones(ZoneIndex(1)..ZoneIndex(2));
        let mut device = fault(zone_one, When::Always, FaultEffect::Fail(Status::WriteFault));
        assert_eq!(run_one(&mut device, write(1, 0, 1)).status, Status::Success);
        assert_eq!(run_one(&mut device, write(2, 16, 1)).status, Status::WriteFault);
    }

    #[test]
    fn a_command_refused_by_the_device_is_returned_and_uses_no_fault() {
        let rule = FaultRule {
            matches: writes(),
            when: When::EveryNth(2),
            effect: FaultEffect::FailAfter(Status::InternalError),
        };
        let mut device = Fault::new(Narrow::new(reference(), 1), vec![rule], Prng::new(1));
        device.submit(Instant::ZERO, write(1, 0, 1)).unwrap();
        for _ in 0..3 {
            assert_eq!(device.submit(Instant::ZERO, write(2, 1, 1)), Err(QueueFull(write(2, 1, 1))));
        }
        assert_eq!(poll_ids(&mut device, Instant::ZERO), [1]);
        assert_eq!(run_one(&mut device, write(2, 1, 1)).status, Status::InternalError);
        assert_eq!(device.counters(), [RuleCounters { matched: 2, struck: 1 }]);
    }

    #[test]
    fn dropped_commands_fill_the_table_until_they_are_aborted() {
        let mut device = fault(Matcher::default(), When::Always, FaultEffect::Drop);
        for id in 0..FAULT_OUTSTANDING_MAX as u64 {
            device.submit(Instant::ZERO, command(id, Operation::Flush)).unwrap();
        }
        let one_more = command(1 << 40, Operation::Flush);
        assert_eq!(device.submit(Instant::ZERO, one_more.clone()), Err(QueueFull(one_more.clone())));
        device.abort_dropped(Instant::ZERO);
        assert_eq!(poll_ids(&mut device, Instant::ZERO).len(), FAULT_OUTSTANDING_MAX);
        device.submit(Instant::ZERO, one_more).unwrap();
    }
}
