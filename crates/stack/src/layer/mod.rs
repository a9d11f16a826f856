//! Layers: devices over a device.

mod check;
mod spec;

pub use spec::{
    DelaySpec, EffectSpec, FaultSpec, LayerSpec, PolicySpec, SchedulerSpec, SliceSpec, TraceSpec, WhenSpec, WithinSpec,
    ZonesSpec,
};

use std::sync::Arc;
use zonda_layers::{Delay, DelayRule, Fault, FaultRule, Slice, SliceConfig, SliceError, Trace};

use zonda_sched::{InterferenceConfig, Policy, Scheduled, ZoneGroups};
use zonda_zoned::{Duration, Geometry, NamespaceId, Prng, ZonedDevice};

use crate::Stack;

/// A layer that was checked against the geometry of the device below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Delays completions; the delays of several rules add up.
    Delay(Vec<DelayRule>),
    /// Fails commands; the first rule that strikes decides.
    Fault(Vec<FaultRule>),
    /// Records commands and completions, and keeps this many last events.
    Trace {
        /// Number of events.
        events: usize,
    },
    /// Exposes a range of zones as a namespace.
    Slice(SliceConfig),
    /// Reorders waiting commands.
    Scheduler {
        /// The order.
        policy: Policy,
        /// Commands in flight at the device below, at most.
        in_flight_max: usize,
        /// Whether writes that wait are merged.
        merges: bool,
        /// The time of the host's processor for each command.
        dispatch_time: Duration,
    },
}

impl Layer {
    /// The geometry of the layer over a device of this geometry.
    ///
    /// # Errors
    /// If the device does not have the zones or resources of a slice.
    pub fn geometry(&self, below: &Geometry) -> Result<Geometry, SliceError> {
        match self {
            Layer::Delay(_) | Layer::Fault(_) | Layer::Trace { .. } | Layer::Scheduler { .. } => Ok(below.clone()),
            Layer::Slice(config) => config.geometry(below),
        }
    }

    /// The zones and resources of a slice, if the layer is one.
    #[must_use]
    pub fn slice(&self) -> Option<&SliceConfig> {
        match self {
            Layer::Slice(config) => Some(config),
            _ => None,
        }
    }

    /// Whether it is a scheduler by conflict groups.
    pub(crate) fn uses_groups(&self) -> bool {
        matches!(self, Layer::Scheduler { policy: Policy::Interference(_), .. })
    }

    /// The layer over a device whose zones have these conflict groups. All of its random numbers are
    /// from `prng`.
    pub(crate) fn over<D: ZonedDevice>(&self, below: Stack<D>, prng: Prng, groups: ZoneGroups) -> Stack<D> {
        match self {
            Layer::Delay(rules) => Stack::Delay(Box::new(Delay::new(below, rules.clone(), prng))),
            Layer::Fault(rules) => Stack::Fault(Box::new(Fault::new(below, rules.clone(), prng))),
            Layer::Trace { events } => Stack::Trace(Box::new(Trace::with_capacity(below, *events))),
            Layer::Slice(config) => {
                let slice = Slice::new(below, *config).expect("the slice was checked against this geometry");
                Stack::Slice(Box::new(slice))
            }
            Layer::Scheduler { policy, in_flight_max, merges, dispatch_time } => {
                let drive = below.geometry(NamespaceId::FIRST);
                let scheduler = match policy {
                    Policy::Interference(config) => {
                        let config = InterferenceConfig { groups: Arc::new(groups), ..config.clone() };
                        Policy::Interference(config).scheduler(drive)
                    }
                    policy => policy.scheduler(drive),
                };
                let scheduled = Scheduled::new(below, scheduler)
                    .with_in_flight_max(*in_flight_max)
                    .with_dispatch_time(*dispatch_time);
                let scheduled = if *merges { scheduled.merging_writes() } else { scheduled };
                Stack::Scheduled(Box::new(scheduled))
            }
        }
    }
}
