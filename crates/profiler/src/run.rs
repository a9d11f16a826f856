//! A measurement on a device, from its start to its end.

use zonda_zoned::{CompletionQueue, Instant, LiveClock, ZonedDevice};

use crate::{GroupTable, Profiler, ReportFailed};

/// Virtual time: it passes as soon as nothing else can happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualClock {
    /// The current time.
    pub now: Instant,
}

impl LiveClock for VirtualClock {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn wait(&mut self, until: Option<Instant>) {
        self.now = self.now.max(until.unwrap_or(self.now));
    }
}

/// Measures a device. `observe` is called whenever something has completed.
///
/// # Errors
/// The device does not report its zones.
pub fn run<D: ZonedDevice + ?Sized>(
    profiler: &mut Profiler,
    device: &mut D,
    clock: &mut dyn LiveClock,
    observe: &mut dyn FnMut(&mut Profiler, Instant),
) -> Result<GroupTable, ReportFailed> {
    let mut completions = CompletionQueue::new();
    loop {
        let now = clock.now();
        while let Some(command) = profiler.poll_command(now) {
            if let Err(refused) = device.submit(now, command) {
                profiler.on_refused(&refused.0);
                break;
            }
        }
        if let Some(result) = profiler.result() {
            return result;
        }
        clock.wait(device.next_timeout().into_iter().chain(profiler.next_timeout()).min());
        let now = clock.now();
        device.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            profiler.on_completion(now, &completion);
        }
        if profiler.next_timeout().is_some_and(|at| at <= now) {
            profiler.on_timeout(now);
        }
        observe(profiler, now);
    }
}
