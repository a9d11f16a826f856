//! [`Paced`]: the contents of one device, the latencies of another.

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Namespaces, Operation, Outcome, Payload,
    QueueFull, Status, ZonedDevice,
};

use crate::limits::PACED_OUTSTANDING_MAX;
use crate::outstanding::Outstanding;

/// Gives a device the latencies of a model: every command is submitted to both, and completes when
/// both have completed it. Statuses, contents and zones are those of the device. Use it to serve a
/// drive in memory or in a file with the latencies of an SSD.
///
/// The model gets no payload. Its zones must have the same initial state as those of the device, or
/// it fails commands that succeed on the device; then only the latency of the failure counts, as it
/// does when the two differ after an error.
///
/// A command is submitted to the model first: if its queue is full, the command is refused before
/// it reaches the device. If the model accepts a command and the queue of the device is full, the
/// command is kept here, and further commands are refused until the device accepts it.
#[derive(Debug)]
pub struct Paced<D, M> {
    device: D,
    model: M,
    in_flight: Outstanding<Pair>,
    /// Accepted by the model, and not yet by the device.
    kept: Option<Command>,
    scratch: CompletionQueue,
}

/// A command in flight at both.
#[derive(Debug)]
struct Pair {
    id: CommandId,
    model_has_ended: bool,
    ended: Option<(Status, Outcome)>,
}

impl<D: ZonedDevice, M: ZonedDevice> Paced<D, M> {
    /// `device` with the latencies of `model`.
    ///
    /// # Panics
    /// When the first namespaces of the two differ in geometry.
    #[must_use]
    pub fn new(device: D, model: M) -> Paced<D, M> {
        assert_eq!(
            device.geometry(NamespaceId::FIRST),
            model.geometry(NamespaceId::FIRST),
            "device and model must be of the same geometry"
        );
        Paced {
            device,
            model,
            in_flight: Outstanding::new(PACED_OUTSTANDING_MAX),
            kept: None,
            scratch: CompletionQueue::new(),
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device. Completions of commands submitted to it directly must not be polled for here.
    #[must_use]
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model. Completions of commands submitted to it directly must not be polled for here.
    #[must_use]
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// Returns both. Commands in flight are lost.
    #[must_use]
    pub fn into_inner(self) -> (D, M) {
        (self.device, self.model)
    }

    fn offer_kept(&mut self, now: Instant) {
        if let Some(command) = self.kept.take()
            && let Err(QueueFull(command)) = self.device.submit(now, command)
        {
            self.kept = Some(command);
        }
    }

    fn collect(&mut self, completions: &mut CompletionQueue, note: impl Fn(&mut Pair, Completion)) {
        while let Some(completion) = self.scratch.pop() {
            let own_id = completion.id;
            let pair = self.in_flight.get_mut(own_id);
            note(pair, completion);
            if pair.model_has_ended && pair.ended.is_some() {
                let pair = self.in_flight.remove(own_id);
                let (status, outcome) = pair.ended.expect("the device has completed it");
                completions.push(Completion { id: pair.id, status, outcome });
            }
        }
    }
}

impl<D: ZonedDevice, M: ZonedDevice> ZonedDevice for Paced<D, M> {
    fn namespaces(&self) -> &Namespaces {
        self.device.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.kept.is_some() || self.in_flight.is_full() {
            return Err(QueueFull(command));
        }
        let id = command.id;
        let own_id = self.in_flight.insert(Pair { id, model_has_ended: false, ended: None });
        let for_model =
            Command::new(own_id, command.namespace, without_payload(&command.operation)).with_origin(command.origin);
        if self.model.submit(now, for_model).is_err() {
            self.in_flight.remove(own_id);
            return Err(QueueFull(command));
        }
        if let Err(QueueFull(command)) = self.device.submit(now, command.with_id(own_id)) {
            self.kept = Some(command);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device.poll(now, &mut self.scratch);
        self.collect(completions, |pair, completion| pair.ended = Some((completion.status, completion.outcome)));
        self.offer_kept(now);
        self.model.poll(now, &mut self.scratch);
        self.collect(completions, |pair, _| pair.model_has_ended = true);
    }

    fn next_timeout(&self) -> Option<Instant> {
        crate::earlier(self.device.next_timeout(), self.model.next_timeout())
    }
}

/// The same operation without its payload.
fn without_payload(operation: &Operation) -> Operation {
    match operation {
        Operation::Write { start, blocks, .. } => {
            Operation::Write { start: *start, blocks: *blocks, payload: Payload::None }
        }
        Operation::Append { zone_start, blocks, .. } => {
            Operation::Append { zone_start: *zone_start, blocks: *blocks, payload: Payload::None }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
    use zonda_zoned::{Duration, PayloadKind, Prng};

    use super::*;
    use crate::testing::{Narrow, poll_all, poll_ids, read, reference, run_until_idle, write};
    use crate::{Delay, DelayRule, Fault, FaultEffect, FaultRule, Matcher, Null, OperationSet, When};
    use zonda_zoned::Geometry;

    fn slow<D: ZonedDevice>(inner: D, nanoseconds: u64) -> Delay<D> {
        let rule = DelayRule {
            matches: Matcher::default(),
            when: When::Always,
            fixed: Duration(nanoseconds),
            spread: Duration::ZERO,
        };
        Delay::new(inner, vec![rule], Prng::new(1))
    }

    fn null() -> Null {
        Null::new(Geometry::tiny())
    }

    #[test]
    fn a_command_completes_when_the_slower_of_the_two_has_completed_it() {
        for (device_ns, model_ns) in [(5, 70), (70, 5), (70, 70)] {
            let mut paced = Paced::new(slow(reference(), device_ns), slow(null(), model_ns));
            paced.submit(Instant(10), write(7, 0, 4)).unwrap();
            let ended = run_until_idle(&mut paced, Instant(10));
            let times: Vec<(u64, u64)> = ended.iter().map(|(at, completion)| (at.0, completion.id.0)).collect();
            assert_eq!(times, [(80, 7)], "{device_ns} and {model_ns}");
        }
    }

    #[test]
    fn outcomes_are_those_of_the_device_at_any_depth_and_order_of_completion() {
        let mut prng = Prng::new(9);
        for seed in 0..30 {
            let geometry = random_geometry(&mut prng);
            let keeps = PayloadKind::Bytes;
            let spread = DelayRule {
                matches: Matcher::default(),
                when: When::Always,
                fixed: Duration(100),
                spread: Duration(5_000),
            };
            let model = Delay::new(Null::new(geometry.clone()), vec![spread], Prng::new(seed));
            let device = slow(Narrow::new(ReferenceDevice::new(geometry.clone(), keeps), 3), 300);
            let mut paced = Paced::new(device, Narrow::new(model, 9));
            let mut oracle = ReferenceDevice::new(geometry.clone(), keeps);
            let mut source = CommandSource::new(&geometry, keeps, Prng::new(seed));
            let (mut expected, mut now, mut refusals) = (Vec::new(), Instant::ZERO, 0);
            for _ in 0..1_000 {
                let mut command = source.next(&oracle);
                expected.push(oracle.execute(&command));
                while let Err(QueueFull(back)) = paced.submit(now, command) {
                    command = back;
                    refusals += 1;
                    now = now.max(paced.next_timeout().expect("a command is in flight"));
                    check(&mut expected, poll_all(&mut paced, now));
                }
            }
            let rest = run_until_idle(&mut paced, now);
            check(&mut expected, rest.into_iter().map(|(_, completion)| completion).collect());
            assert!(expected.is_empty() && refusals > 0);
        }
    }

    fn check(expected: &mut Vec<Completion>, ended: Vec<Completion>) {
        for completion in ended {
            let place = expected.iter().position(|expected| expected.id == completion.id);
            assert_eq!(expected.remove(place.expect("a command completes once")), completion);
        }
    }

    #[test]
    fn a_command_refused_by_the_model_does_not_reach_the_device() {
        let mut paced = Paced::new(reference(), Narrow::new(slow(null(), 50), 1));
        paced.submit(Instant(0), write(1, 0, 4)).unwrap();
        assert_eq!(paced.submit(Instant(0), write(2, 4, 4)), Err(QueueFull(write(2, 4, 4))));
        run_until_idle(&mut paced, Instant(0));
        paced.submit(Instant(90), write(2, 4, 4)).unwrap();
        let ended = run_until_idle(&mut paced, Instant(90));
        assert_eq!(ended[0].1.status, Status::Success, "the command did not reach the device before");
    }

    #[test]
    fn a_command_refused_by_the_device_waits_and_keeps_its_place() {
        let mut paced = Paced::new(Narrow::new(slow(reference(), 50), 1), null());
        paced.submit(Instant(0), write(1, 0, 4)).unwrap();
        paced.submit(Instant(0), write(2, 4, 4)).unwrap();
        assert!(paced.submit(Instant(0), read(3, 0, 1)).is_err(), "no command overtakes the waiting one");
        let ended = run_until_idle(&mut paced, Instant(0));
        let statuses: Vec<(u64, bool)> =
            ended.iter().map(|(_, ended)| (ended.id.0, ended.status.is_success())).collect();
        assert_eq!(statuses, [(1, true), (2, true)]);
    }

    #[test]
    fn only_the_latency_of_a_failing_model_counts() {
        let fails = FaultRule {
            matches: Matcher::operations(OperationSet::WRITES),
            when: When::Once,
            effect: FaultEffect::Fail(Status::WriteFault),
        };
        let mut paced = Paced::new(reference(), slow(Fault::new(null(), vec![fails], Prng::new(1)), 50));
        // The model has not written the first four blocks, and so fails writes of further ones.
        for (id, start) in [(1, 0), (2, 4)] {
            paced.submit(Instant(id * 100), write(id, start, 4)).unwrap();
            assert_eq!(poll_ids(&mut paced, Instant(id * 100)), [0; 0]);
            let ended = run_until_idle(&mut paced, Instant(id * 100));
            assert_eq!((ended[0].0, ended[0].1.status), (Instant(id * 100 + 50), Status::Success));
        }
    }

    #[test]
    #[should_panic(expected = "of the same geometry")]
    fn a_model_of_another_geometry_panics() {
        let _ = Paced::new(reference(), Null::new(Geometry { zone_count: 9, ..Geometry::tiny() }));
    }
}
