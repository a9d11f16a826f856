//! The layers over a drive, rebuilt after every power loss.

use std::convert::Infallible;

use zonda_layers::{Fault, FaultEffect, Shared};
use zonda_ssd::Ssd;
use zonda_stack::{Factory, Layer, Node};
use zonda_zoned::{Command, CompletionQueue, Instant, Prng, QueueFull, ZonedDevice};

use crate::simulation::Simulation;

/// A device that is shared with the scenario, below layers.
pub(crate) type Device = Box<dyn ZonedDevice>;
/// Layers over it.
pub(crate) type Layers = zonda_stack::Stack<Device>;

/// The layers over a drive, with a handle on those up to the fault layer.
pub(crate) struct Stack {
    top: Layers,
    fault: Option<FaultLayer>,
}

/// The layers up to the fault layer, and the effects of its rules.
type FaultLayer = (Shared<Layers>, Vec<FaultEffect>);

/// Builds layers over one device. `label` names the random numbers of a layer.
struct Over<'a> {
    device: Option<Device>,
    label: &'a dyn Fn(usize, &Layer) -> String,
}

impl Factory<()> for Over<'_> {
    type Drive = Device;
    type Error = Infallible;

    fn drive(&mut self, (): &(), _prng: &Prng) -> Result<Device, Infallible> {
        Ok(self.device.take().expect("there is one device below the layers"))
    }

    fn layer_prng(&self, prng: &Prng, index: usize, layer: &Layer) -> Prng {
        prng.fork(&(self.label)(index, layer))
    }
}

/// Builds layers over a device, the lowest first. `label` names the random numbers of a layer.
pub(crate) fn build_layers(
    root: &Prng,
    layers: &[Layer],
    device: Device,
    label: &dyn Fn(usize, &Layer) -> String,
) -> Layers {
    let over = |below, layer: &Layer| Node::Layer(layer.clone(), Box::new(below));
    let node = layers.iter().fold(Node::Drive(()), over);
    let Ok(stack) = node.build(&mut Over { device: Some(device), label }, root);
    stack
}

impl Stack {
    /// Builds the layers. `life` counts power cycles: each has its own random numbers.
    pub(crate) fn new(simulation: &Simulation, drive: &Shared<Ssd>, life: u64) -> Stack {
        let (root, layers) = (&simulation.root, &simulation.layers[..]);
        let drive = Box::new(drive.clone());
        let place_of_fault = layers.iter().position(|layer| matches!(layer, Layer::Fault(_)));
        let (lower, upper) = layers.split_at(place_of_fault.map_or(layers.len(), |place| place + 1));
        let below = build_layers(root, lower, drive, &|index, _| format!("layer/{index}/{life}"));
        let Some(Layer::Fault(rules)) = place_of_fault.map(|place| &layers[place]) else {
            return Stack { top: below, fault: None };
        };
        let effects = rules.iter().map(|rule| rule.effect).collect();
        // The handle gives commands ids of its own: dropped ones are aborted in their order.
        let shared = Shared::new(below);
        let label = |index, _: &Layer| format!("layer/{}/{life}", lower.len() + index);
        let top = build_layers(root, upper, Box::new(shared.clone()), &label);
        Stack { top, fault: Some((shared, effects)) }
    }

    /// Submits a command; returns the fault injected on it, if any.
    pub(crate) fn submit(&mut self, now: Instant, command: Command) -> Result<Option<FaultEffect>, QueueFull> {
        let before = self.struck();
        self.top.submit(now, command)?;
        let after = self.struck();
        let struck = before.iter().zip(&after).position(|(before, after)| before != after);
        Ok(struck.map(|rule| self.fault.as_ref().expect("a fault was injected").1[rule]))
    }

    pub(crate) fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.top.poll(now, completions);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.top.next_timeout()
    }

    /// Aborts lost commands; returns their number.
    pub(crate) fn abort_dropped(&mut self, now: Instant) -> usize {
        let Some((layers, _)) = &self.fault else { return 0 };
        layers.with_inner_mut(|layers| layers.fault_mut().map_or(0, |fault| fault.abort_dropped(now)))
    }

    /// The number of faults that each rule of the fault layer has injected.
    fn struck(&self) -> Vec<u64> {
        let Some((layers, _)) = &self.fault else { return Vec::new() };
        let counters = layers.with_inner(|layers| layers.fault().map(Fault::counters)).unwrap_or_default();
        counters.iter().map(|counters| counters.struck).collect()
    }
}
