//! Requests that pass are released as if they had waited.

use zonda_layers::{Delay, DelayRule, Matcher, Null, When};
use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{
    CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Origin, PayloadKind, Prng, StreamId, TenantId,
    ZonedDevice,
};

use crate::tests::{Narrow, schedulers};
use crate::{Accepts, ConflictGroup, Outcome, Request, RequestId, Scheduled, ScheduledCounters, Scheduler};

/// A scheduler under which every request is pushed.
struct Pushed(Box<dyn Scheduler>);

impl Scheduler for Pushed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn group(&self, request: &Request) -> Option<ConflictGroup> {
        self.0.group(request)
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        self.0.push(id, request);
    }

    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        self.0.pop(now, accepts)
    }

    fn put_back(&mut self, id: RequestId, request: &Request) {
        self.0.put_back(id, request);
    }

    fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        self.0.on_completion(now, request, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

/// What a device has done, and when.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Released(Instant, CommandId),
    Ended(Instant, Completion),
}

/// Random commands of a few tenants, of which few wait at a time.
fn history(geometry: &Geometry, scheduler: Box<dyn Scheduler>, seed: u64) -> (Vec<Seen>, ScheduledCounters) {
    let root = Prng::new(seed);
    let mut prng = root.fork("run");
    let mut source = CommandSource::new(geometry, PayloadKind::None, root.fork("commands"));
    let spread = Duration(1 + prng.below(90));
    let rule = DelayRule { matches: Matcher::default(), when: When::Always, fixed: Duration(10), spread };
    let slots = [1 + prng.below(3) as usize, 1 + prng.below(6) as usize];
    let delayed = Delay::new(Null::new(geometry.clone()), vec![rule], root.fork("delays"));
    let dispatch_time = Duration(prng.below(2) * 7);
    let mut device = Scheduled::new(Narrow::new(delayed, slots[0], slots[1]), scheduler)
        .with_in_flight_max(1 + prng.below(8) as usize)
        .with_dispatch_time(dispatch_time)
        .recording_releases();
    let oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::None);
    let mut seen = Vec::new();
    let (mut now, mut in_progress) = (Instant::ZERO, 0);
    let depth = 1 + prng.below(6);
    let mut left = 600;
    while left > 0 || in_progress > 0 {
        if left > 0 && in_progress < depth && prng.chance(3, 4) {
            (left, in_progress) = (left - 1, in_progress + 1);
            let origin = Origin {
                tenant: TenantId(prng.below(3) as u16),
                stream: StreamId(prng.below(3) as u32 * 256),
                stream_width: prng.below(3) as u8,
                ..Origin::default()
            };
            let command = source.next(&oracle).with_origin(origin);
            let command = if prng.chance(1, 6) { command.in_background() } else { command };
            device.submit(now, command).expect("its queue is long");
        } else {
            now = now.max(device.next_timeout().unwrap_or(now)) + Duration(prng.below(2) * prng.below(300));
            let mut completions = CompletionQueue::new();
            device.poll(now, &mut completions);
            while let Some(completion) = completions.pop() {
                in_progress -= 1;
                seen.push(Seen::Ended(now, completion));
            }
        }
        seen.extend(std::iter::from_fn(|| device.take_release()).map(|id| Seen::Released(now, id)));
        device.check_invariants();
    }
    (seen, device.counters())
}

#[test]
fn a_request_that_passes_is_released_as_if_it_had_been_pushed() {
    let mut geometries = Prng::new(11).fork("sched");
    for seed in 0..25 {
        let geometry = random_geometry(&mut geometries);
        for (passing, pushed) in schedulers().into_iter().zip(schedulers()) {
            let name = passing.name();
            let passing = history(&geometry, passing, seed);
            assert_eq!(passing, history(&geometry, Box::new(Pushed(pushed)), seed), "{name}, seed {seed}");
        }
    }
}
