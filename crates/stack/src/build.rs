//! The stack of a drive and its layers.

use zonda_layers::{Delay, Fault, OperationKind, RuleCounters, Slice, Trace};
use zonda_ssd::Ssd;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Instant, NamespaceId, Namespaces, Prng, QueueFull, Status, ZoneIndex, ZonedDevice,
};

use crate::layer::LayerPlan;
use crate::{Drive, LayerResult, OperationCount};

/// A drive, or a layer around the stack below it.
pub enum Stack {
    /// The drive.
    Drive(Box<Ssd>),
    /// A layer that delays completions.
    Delay(Box<Delay<Stack>>),
    /// A layer that fails commands.
    Fault(Box<Fault<Stack>>),
    /// A layer that records commands and completions.
    Trace(Box<Trace<Stack>>),
    /// A layer that exposes a range of zones.
    Slice(Box<Slice<Stack>>),
}

impl Drive {
    /// A new drive without layers, with all randomness from `prng`, and with filled zones.
    /// `prefill` uses zone numbers of the outermost layer.
    ///
    /// # Errors
    /// [`Status::TooManyActiveZones`] if more zones would be partly written than the drive allows.
    ///
    /// # Panics
    /// If a zone of `prefill` does not exist, is listed twice, or has a smaller capacity.
    pub fn power_on(&self, prng: &Prng, prefill: &[(ZoneIndex, Blocks)]) -> Result<Ssd, Status> {
        let mut drive = Ssd::new(self.profile(), self.keeps(), prng);
        for &(zone, blocks) in prefill {
            drive.prefill(self.zone_of_drive(zone), blocks)?;
        }
        Ok(drive)
    }

    /// A drive with all layers around it.
    #[must_use]
    pub fn stack(&self, drive: Ssd, prng: &Prng) -> Stack {
        let mut stack = Stack::Drive(Box::new(drive));
        for (index, layer) in self.layers.iter().enumerate() {
            let prng = prng.fork(&format!("layer/{index}"));
            stack = match layer {
                LayerPlan::Delay(rule) => Stack::Delay(Box::new(Delay::new(stack, vec![rule.clone()], prng))),
                LayerPlan::Fault(rule) => Stack::Fault(Box::new(Fault::new(stack, vec![rule.clone()], prng))),
                LayerPlan::Trace { events } => Stack::Trace(Box::new(Trace::with_capacity(stack, *events))),
                LayerPlan::Slice(config) => {
                    let slice = Slice::new(stack, *config).expect("the slice was checked against this geometry");
                    Stack::Slice(Box::new(slice))
                }
            };
        }
        stack
    }

    /// Whether there are layers.
    #[must_use]
    pub fn has_layers(&self) -> bool {
        !self.layers.is_empty()
    }
}

impl Stack {
    /// The drive at the bottom.
    #[must_use]
    pub fn drive(&self) -> &Ssd {
        let mut stack = self;
        loop {
            stack = match stack {
                Stack::Drive(drive) => return drive,
                below => below.below().expect("only the drive has nothing below it"),
            };
        }
    }

    /// The counters of the layers, innermost first.
    #[must_use]
    pub fn layer_results(&self) -> Vec<LayerResult> {
        let mut results = Vec::new();
        let mut stack = Some(self);
        while let Some(layer) = stack {
            results.extend(layer.result());
            stack = layer.below();
        }
        results.reverse();
        results
    }

    fn below(&self) -> Option<&Stack> {
        match self {
            Stack::Drive(_) => None,
            Stack::Delay(delay) => Some(delay.inner()),
            Stack::Fault(fault) => Some(fault.inner()),
            Stack::Trace(trace) => Some(trace.inner()),
            Stack::Slice(slice) => Some(slice.inner()),
        }
    }

    fn result(&self) -> Option<LayerResult> {
        let of_rule = |counters: Vec<RuleCounters>| counters.first().copied().unwrap_or_default();
        match self {
            Stack::Drive(_) => None,
            Stack::Delay(delay) => {
                let RuleCounters { matched, struck } = of_rule(delay.counters());
                Some(LayerResult::Delay { matched, struck })
            }
            Stack::Fault(fault) => {
                let RuleCounters { matched, struck } = of_rule(fault.counters());
                Some(LayerResult::Fault { matched, struck })
            }
            Stack::Trace(trace) => Some(LayerResult::Trace {
                hash: format!("{:016x}", trace.hash()),
                operations: OperationKind::ALL
                    .into_iter()
                    .map(|kind| OperationCount::of(kind, trace.counters(kind)))
                    .filter(|count| count.submitted + count.refused > 0)
                    .collect(),
                events: trace.events().map(ToString::to_string).collect(),
            }),
            Stack::Slice(slice) => {
                let geometry = slice.geometry(NamespaceId::FIRST);
                Some(LayerResult::Slice { zones: geometry.zone_count, shown_full: slice.shown_full() })
            }
        }
    }
}

impl ZonedDevice for Stack {
    fn namespaces(&self) -> &Namespaces {
        match self {
            Stack::Drive(drive) => drive.namespaces(),
            Stack::Delay(delay) => delay.namespaces(),
            Stack::Fault(fault) => fault.namespaces(),
            Stack::Trace(trace) => trace.namespaces(),
            Stack::Slice(slice) => slice.namespaces(),
        }
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        match self {
            Stack::Drive(drive) => drive.submit(now, command),
            Stack::Delay(delay) => delay.submit(now, command),
            Stack::Fault(fault) => fault.submit(now, command),
            Stack::Trace(trace) => trace.submit(now, command),
            Stack::Slice(slice) => slice.submit(now, command),
        }
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        match self {
            Stack::Drive(drive) => drive.poll(now, completions),
            Stack::Delay(delay) => delay.poll(now, completions),
            Stack::Fault(fault) => fault.poll(now, completions),
            Stack::Trace(trace) => trace.poll(now, completions),
            Stack::Slice(slice) => slice.poll(now, completions),
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Stack::Drive(drive) => drive.next_wakeup(),
            Stack::Delay(delay) => delay.next_wakeup(),
            Stack::Fault(fault) => fault.next_wakeup(),
            Stack::Trace(trace) => trace.next_wakeup(),
            Stack::Slice(slice) => slice.next_wakeup(),
        }
    }
}
