//! [`Paced`]: contents of one device, times of another.

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Operation, Outcome, Payload,
    QueueFull, Status, ZonedDevice,
};

use crate::limits::PACED_OUTSTANDING_MAX;
use crate::outstanding::Outstanding;

/// Gives a device the times of a model: every command goes to both, and is complete when both have completed it. What the
/// host sees is the device's: statuses, contents, zones. Use it to serve a drive that keeps its data in memory or in a
/// file, and is as slow as an SSD.
///
/// The model gets no payload. Its zones must be at the start as those of the device are, or it refuses commands that the
/// device takes; then only the time of the refusal counts, as it does when the two disagree after an error.
///
/// The model comes first: a command for which it has no room is handed back before the device sees it. A command that the
/// model took and the device has no room for is kept here, and everything else is handed back until the device takes it.
#[derive(Debug)]
pub struct Paced<D, M> {
    device: D,
    model: M,
    under_way: Outstanding<Pair>,
    /// Taken by the model, and not yet by the device.
    kept: Option<Command>,
    scratch: CompletionQueue,
}

/// A command with both.
#[derive(Debug)]
struct Pair {
    id: CommandId,
    model_has_ended: bool,
    ended: Option<(Status, Outcome)>,
}

impl<D: ZonedDevice, M: ZonedDevice> Paced<D, M> {
    /// `device` with the times of `model`.
    ///
    /// # Panics
    /// When the first namespaces of the two differ in geometry.
    #[must_use]
    pub fn new(device: D, model: M) -> Paced<D, M> {
        assert_eq!(
            device.geometry(NamespaceId::FIRST),
            model.geometry(NamespaceId::FIRST),
            "a device is paced by a model of the same geometry"
        );
        Paced {
            device,
            model,
            under_way: Outstanding::new(PACED_OUTSTANDING_MAX),
            kept: None,
            scratch: CompletionQueue::new(),
        }
    }

    /// The device that answers.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device that answers. What is submitted to it directly must not be polled for here.
    #[must_use]
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The model that tells times.
    #[must_use]
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model that tells times. What is submitted to it directly must not be polled for here.
    #[must_use]
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// Both. What was under way is lost.
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
            let pair = self.under_way.get_mut(own_id);
            note(pair, completion);
            if pair.model_has_ended && pair.ended.is_some() {
                let pair = self.under_way.remove(own_id);
                let (status, outcome) = pair.ended.expect("the device has just been seen to have ended it");
                completions.push(Completion { id: pair.id, status, outcome });
            }
        }
    }
}

impl<D: ZonedDevice, M: ZonedDevice> ZonedDevice for Paced<D, M> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.device.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.kept.is_some() || self.under_way.is_full() {
            return Err(QueueFull(command));
        }
        let id = command.id;
        let own_id = self.under_way.insert(Pair { id, model_has_ended: false, ended: None });
        let for_model =
            Command { id: own_id, namespace: command.namespace, operation: without_payload(&command.operation) };
        if self.model.submit(now, for_model).is_err() {
            self.under_way.remove(own_id);
            return Err(QueueFull(command));
        }
        if let Err(QueueFull(command)) = self.device.submit(now, Command { id: own_id, ..command }) {
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

    fn next_wakeup(&self) -> Option<Instant> {
        crate::earlier(self.device.next_wakeup(), self.model.next_wakeup())
    }
}

/// The same operation with nothing to write.
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
    fn answers_are_the_devices_at_any_depth_and_in_any_order_of_completion() {
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
                    now = now.max(paced.next_wakeup().expect("somebody is in the way"));
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
    fn a_command_that_the_model_has_no_room_for_is_handed_back_before_the_device_sees_it() {
        let mut paced = Paced::new(reference(), Narrow::new(slow(null(), 50), 1));
        paced.submit(Instant(0), write(1, 0, 4)).unwrap();
        assert_eq!(paced.submit(Instant(0), write(2, 4, 4)), Err(QueueFull(write(2, 4, 4))));
        run_until_idle(&mut paced, Instant(0));
        paced.submit(Instant(90), write(2, 4, 4)).unwrap();
        let ended = run_until_idle(&mut paced, Instant(90));
        assert_eq!(ended[0].1.status, Status::Success, "the device had not seen it before");
    }

    #[test]
    fn a_command_that_the_device_has_no_room_for_waits_here_and_keeps_its_place() {
        let mut paced = Paced::new(Narrow::new(slow(reference(), 50), 1), null());
        paced.submit(Instant(0), write(1, 0, 4)).unwrap();
        paced.submit(Instant(0), write(2, 4, 4)).unwrap();
        assert!(paced.submit(Instant(0), read(3, 0, 1)).is_err(), "nobody passes the one that waits");
        let ended = run_until_idle(&mut paced, Instant(0));
        let statuses: Vec<(u64, bool)> =
            ended.iter().map(|(_, ended)| (ended.id.0, ended.status.is_success())).collect();
        assert_eq!(statuses, [(1, true), (2, true)]);
    }

    #[test]
    fn of_a_model_that_fails_or_disagrees_only_the_time_counts() {
        let fails = FaultRule {
            matches: Matcher::operations(OperationSet::WRITES),
            when: When::Once,
            effect: FaultEffect::Fail(Status::WriteFault),
        };
        let mut paced = Paced::new(reference(), slow(Fault::new(null(), vec![fails], Prng::new(1)), 50));
        // The model has not written the first four blocks, and so takes no further ones.
        for (id, start) in [(1, 0), (2, 4)] {
            paced.submit(Instant(id * 100), write(id, start, 4)).unwrap();
            assert_eq!(poll_ids(&mut paced, Instant(id * 100)), [0; 0]);
            let ended = run_until_idle(&mut paced, Instant(id * 100));
            assert_eq!((ended[0].0, ended[0].1.status), (Instant(id * 100 + 50), Status::Success));
        }
    }

    #[test]
    #[should_panic(expected = "of the same geometry")]
    fn a_model_of_another_geometry_is_a_mistake() {
        let _ = Paced::new(reference(), Null::new(Geometry { zone_count: 9, ..Geometry::tiny() }));
    }
}
