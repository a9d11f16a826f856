//! [`Stack`]: a device graph that was built.

use zonda_layers::{Delay, Fault, OperationKind, RuleCounters, Slice, Trace};
use zonda_raid::{MemberIndex, VolumeDevice};
use zonda_sched::{Scheduled, ScheduledCounters};
use zonda_zoned::{Command, CompletionQueue, Instant, NamespaceId, Namespaces, QueueFull, TenantId, ZonedDevice};

use crate::{LayerResult, OperationCount, TableResult};

/// A drive, or a layer or a volume over the devices below it.
pub enum Stack<D> {
    /// A drive.
    Drive(Box<D>),
    /// A layer that delays completions.
    Delay(Box<Delay<Stack<D>>>),
    /// A layer that fails commands.
    Fault(Box<Fault<Stack<D>>>),
    /// A layer that records commands and completions.
    Trace(Box<Trace<Stack<D>>>),
    /// A layer that exposes a range of zones.
    Slice(Box<Slice<Stack<D>>>),
    /// A layer that reorders waiting commands.
    Scheduled(Box<Scheduled<Stack<D>>>),
    /// A redundant volume.
    Volume(Box<VolumeDevice<Stack<D>>>),
}

/// Evaluates an expression for the device of any kind.
macro_rules! each {
    ($stack:expr, $device:ident => $value:expr) => {
        match $stack {
            Stack::Drive($device) => $value,
            Stack::Delay($device) => $value,
            Stack::Fault($device) => $value,
            Stack::Trace($device) => $value,
            Stack::Slice($device) => $value,
            Stack::Scheduled($device) => $value,
            Stack::Volume($device) => $value,
        }
    };
}

impl<D: ZonedDevice> Stack<D> {
    /// The drive at the bottom; of a volume that of the last member that is present.
    ///
    /// # Panics
    /// If all members of a volume were removed.
    #[must_use]
    pub fn drive(&self) -> &D {
        match self.base() {
            Stack::Drive(drive) => drive,
            base => {
                let volume = base.volume().expect("below layers is a drive or a volume");
                let members = (0..volume.volume().member_count() as u8).map(MemberIndex);
                members.rev().find_map(|member| volume.member(member)).expect("a volume has members").drive()
            }
        }
    }

    /// The volume below the layers, if it is one.
    #[must_use]
    pub fn volume(&self) -> Option<&VolumeDevice<Stack<D>>> {
        match self.base() {
            Stack::Volume(volume) => Some(volume),
            _ => None,
        }
    }

    /// The same, for management.
    pub fn volume_mut(&mut self) -> Option<&mut VolumeDevice<Stack<D>>> {
        match self {
            Stack::Volume(volume) => Some(volume),
            layer => layer.below_mut()?.volume_mut(),
        }
    }

    /// The outermost fault layer over the drive or volume, if there is one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault<Stack<D>>> {
        match self {
            Stack::Fault(fault) => Some(fault),
            layer => layer.below()?.fault(),
        }
    }

    /// The same, to abort the commands that it dropped.
    pub fn fault_mut(&mut self) -> Option<&mut Fault<Stack<D>>> {
        match self {
            Stack::Fault(fault) => Some(fault),
            layer => layer.below_mut()?.fault_mut(),
        }
    }

    /// Gives a tenant this share of the device in each scheduler over the drive or volume.
    pub fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        if let Stack::Scheduled(scheduled) = self {
            scheduled.set_weight(tenant, weight);
        }
        if let Some(below) = self.below_mut() {
            below.set_weight(tenant, weight);
        }
    }

    /// The counters of the layers over the drive or volume, innermost first.
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

    fn base(&self) -> &Stack<D> {
        let mut stack = self;
        while let Some(below) = stack.below() {
            stack = below;
        }
        stack
    }

    /// The device below a layer.
    fn below(&self) -> Option<&Stack<D>> {
        match self {
            Stack::Drive(_) | Stack::Volume(_) => None,
            Stack::Delay(delay) => Some(delay.inner()),
            Stack::Fault(fault) => Some(fault.inner()),
            Stack::Trace(trace) => Some(trace.inner()),
            Stack::Slice(slice) => Some(slice.inner()),
            Stack::Scheduled(scheduled) => Some(scheduled.inner()),
        }
    }

    fn below_mut(&mut self) -> Option<&mut Stack<D>> {
        match self {
            Stack::Drive(_) | Stack::Volume(_) => None,
            Stack::Delay(delay) => Some(delay.inner_mut()),
            Stack::Fault(fault) => Some(fault.inner_mut()),
            Stack::Trace(trace) => Some(trace.inner_mut()),
            Stack::Slice(slice) => Some(slice.inner_mut()),
            Stack::Scheduled(scheduled) => Some(scheduled.inner_mut()),
        }
    }

    fn result(&self) -> Option<LayerResult> {
        let of_rule = |counters: Vec<RuleCounters>| counters.first().copied().unwrap_or_default();
        match self {
            Stack::Drive(_) | Stack::Volume(_) => None,
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
            Stack::Scheduled(scheduled) => {
                let ScheduledCounters { submitted, waited, waiting_max, merged } = scheduled.counters();
                let policy = scheduled.scheduler_name();
                let table = scheduled.table().map(TableResult::from);
                Some(LayerResult::Scheduler { policy, submitted, waited, waiting_max, merged, table })
            }
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Stack<D> {
    fn namespaces(&self) -> &Namespaces {
        each!(self, device => device.namespaces())
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        each!(self, device => device.submit(now, command))
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        each!(self, device => device.poll(now, completions));
    }

    fn next_timeout(&self) -> Option<Instant> {
        each!(self, device => device.next_timeout())
    }
}
