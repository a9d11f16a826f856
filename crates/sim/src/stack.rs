//! The stack of layers over a drive, rebuilt after every power loss.

use zonda_layers::{Delay, Fault, FaultEffect, FaultRule, Shared, Slice, Trace};
use zonda_ssd::Ssd;
use zonda_zoned::{Command, CompletionQueue, Instant, Prng, QueueFull, ZonedDevice};

use crate::simulation::{Layer, Simulation};

pub(crate) type Device = Box<dyn ZonedDevice>;

/// The layers over a drive, with a handle on the fault layer.
pub(crate) struct Stack {
    top: Device,
    fault: Option<FaultLayer>,
}

/// A fault layer, with its rules.
type FaultLayer = (Shared<Fault<Device>>, Vec<FaultRule>);

/// Builds layers over a drive, the lowest first; returns the top layer, and the fault layer if any.
pub(crate) fn build_layers(
    root: &Prng,
    layers: &[Layer],
    drive: &Shared<Ssd>,
    life: u64,
) -> (Device, Option<FaultLayer>) {
    let mut top: Device = Box::new(drive.clone());
    let mut fault = None;
    for (place, layer) in layers.iter().enumerate() {
        let prng = root.fork(&format!("layer/{place}/{life}"));
        top = match layer {
            Layer::Slice(config) => Box::new(Slice::new(top, *config).expect("the slice was checked")),
            Layer::Delay(rules) => Box::new(Delay::new(top, rules.clone(), prng)),
            Layer::Trace => Box::new(Trace::with_capacity(top, 0)),
            Layer::Fault(rules) => {
                let shared = Shared::new(Fault::new(top, rules.clone(), prng));
                fault = Some((shared.clone(), rules.clone()));
                Box::new(shared)
            }
        };
    }
    (top, fault)
}

impl Stack {
    /// Builds the layers. `life` counts power cycles: each has its own random numbers.
    pub(crate) fn new(simulation: &Simulation, drive: &Shared<Ssd>, life: u64) -> Stack {
        let (top, fault) = build_layers(&simulation.root, &simulation.layers, drive, life);
        Stack { top, fault }
    }

    /// Submits a command; returns the fault injected on it, if any.
    pub(crate) fn submit(&mut self, now: Instant, command: Command) -> Result<Option<FaultEffect>, QueueFull> {
        let before = self.struck();
        self.top.submit(now, command)?;
        let after = self.struck();
        let struck = before.iter().zip(&after).position(|(before, after)| before != after);
        Ok(struck.map(|rule| self.fault.as_ref().expect("a fault was injected").1[rule].effect))
    }

    pub(crate) fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.top.poll(now, completions);
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.top.next_wakeup()
    }

    /// Aborts lost commands; returns their number.
    pub(crate) fn abort_dropped(&mut self, now: Instant) -> usize {
        self.fault.as_ref().map_or(0, |(fault, _)| fault.with_inner_mut(|fault| fault.abort_dropped(now)))
    }

    /// The number of faults that each rule of the fault layer has injected.
    fn struck(&self) -> Vec<u64> {
        let Some((fault, _)) = &self.fault else { return Vec::new() };
        fault.with_inner(|fault| fault.counters().iter().map(|counters| counters.struck).collect())
    }
}
