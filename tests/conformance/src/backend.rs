//! The device under test, and how its time advances.

use zonda_zoned::{
    Command, CommandId, CompletionQueue, Instant, Namespaces, PayloadKind, QueueFull, ZoneIndex, ZoneState, ZonedDevice,
};

/// A device under test: a [`ZonedDevice`], and operations of a test other than commands.
pub trait TestBackend: ZonedDevice {
    /// The device's present time, which is monotonic.
    fn now(&mut self) -> Instant;

    /// Advances time until something may have happened: in virtual time to the next wakeup, in real
    /// time by one iteration of the event loop. Then the caller polls.
    fn wait(&mut self);

    /// What the device stores of written data. If it stores nothing, contents are not checked.
    fn keeps(&self) -> PayloadKind {
        PayloadKind::Bytes
    }

    /// The most commands that may be in flight.
    fn queue_depth_max(&self) -> usize {
        16
    }

    /// Whether the command can be sent to the device at all: NVMe cannot encode zero blocks, for
    /// instance.
    fn carries(&self, _command: &Command) -> bool {
        true
    }

    /// Power cycles the device, or closes and reopens it, while no command is in flight. False if
    /// that is not supported.
    fn power_cycle(&mut self) -> bool {
        false
    }

    /// Whether a zone that was opened and closed, and never written to, is still closed after a
    /// power loss. A drive that does not record opening restores it as empty, which loses no data.
    fn remembers_untouched_zones(&self) -> bool {
        true
    }

    /// Whether blocks that are deallocated read as zeros, as the rules say. A drive that cannot guarantee
    /// that refuses deallocations of written blocks.
    fn deallocates(&self) -> bool {
        true
    }

    /// Makes a zone read only or offline, as if its medium failed. False if that is not supported.
    fn degrade(&mut self, _zone: ZoneIndex, _to: ZoneState) -> bool {
        false
    }

    /// Whether commands take effect in another order than that of their submission. Then
    /// [`take_release`](TestBackend::take_release) gives their order.
    fn has_releases(&self) -> bool {
        false
    }

    /// The command that took effect next.
    fn take_release(&mut self) -> Option<CommandId> {
        None
    }

    /// Checks the invariants of the device between two commands.
    fn check_invariants(&mut self) {}

    /// Commands of each random run.
    fn random_commands(&self) -> u64 {
        2_000
    }
}

/// A backend for any device that runs in virtual time.
pub struct Virtual<D> {
    /// Absent only during a power cycle.
    device: Option<D>,
    now: Instant,
    keeps: PayloadKind,
    power_cycle: Option<Box<dyn FnMut(D) -> D>>,
    degrade: Option<Degrade<D>>,
    check: Option<fn(&D)>,
    take_release: Option<fn(&mut D) -> Option<CommandId>>,
    forgets_untouched_zones: bool,
}

type Degrade<D> = fn(&mut D, ZoneIndex, ZoneState);

impl<D: ZonedDevice> Virtual<D> {
    /// A device that stores bytes.
    #[must_use]
    pub fn new(device: D) -> Virtual<D> {
        Virtual {
            device: Some(device),
            now: Instant::ZERO,
            keeps: PayloadKind::Bytes,
            power_cycle: None,
            degrade: None,
            check: None,
            take_release: None,
            forgets_untouched_zones: false,
        }
    }

    /// Sets what the device stores.
    #[must_use]
    pub fn keeping(self, keeps: PayloadKind) -> Virtual<D> {
        Virtual { keeps, ..self }
    }

    /// Sets how to power cycle the device.
    #[must_use]
    pub fn with_power_cycle(self, cycle: impl FnMut(D) -> D + 'static) -> Virtual<D> {
        Virtual { power_cycle: Some(Box::new(cycle)), ..self }
    }

    /// Sets how to make the medium of a zone fail.
    #[must_use]
    pub fn with_degrade(self, degrade: fn(&mut D, ZoneIndex, ZoneState)) -> Virtual<D> {
        Virtual { degrade: Some(degrade), ..self }
    }

    /// Sets the check of its invariants.
    #[must_use]
    pub fn with_invariants(self, check: fn(&D)) -> Virtual<D> {
        Virtual { check: Some(check), ..self }
    }

    /// A power cycle empties zones that were opened and closed, and never written to.
    #[must_use]
    pub fn forgetting_untouched_zones(self) -> Virtual<D> {
        Virtual { forgets_untouched_zones: true, ..self }
    }

    /// Sets how to ask for the command that took effect next.
    #[must_use]
    pub fn with_releases(self, take_release: fn(&mut D) -> Option<CommandId>) -> Virtual<D> {
        Virtual { take_release: Some(take_release), ..self }
    }

    fn device(&self) -> &D {
        self.device.as_ref().expect("the power is on")
    }

    fn device_mut(&mut self) -> &mut D {
        self.device.as_mut().expect("the power is on")
    }
}

impl<D: ZonedDevice> ZonedDevice for Virtual<D> {
    fn namespaces(&self) -> &Namespaces {
        self.device().namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.device_mut().submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device_mut().poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device().next_timeout()
    }
}

impl<D: ZonedDevice> TestBackend for Virtual<D> {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn wait(&mut self) {
        self.now = self.now.max(self.device().next_timeout().unwrap_or(self.now));
    }

    fn keeps(&self) -> PayloadKind {
        self.keeps
    }

    fn has_releases(&self) -> bool {
        self.take_release.is_some()
    }

    fn take_release(&mut self) -> Option<CommandId> {
        let take = self.take_release?;
        take(self.device_mut())
    }

    fn power_cycle(&mut self) -> bool {
        let Some(cycle) = &mut self.power_cycle else { return false };
        let device = self.device.take().expect("the power is on");
        self.device = Some(cycle(device));
        true
    }

    fn remembers_untouched_zones(&self) -> bool {
        !self.forgets_untouched_zones
    }

    fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) -> bool {
        let Some(degrade) = self.degrade else { return false };
        degrade(self.device_mut(), zone, to);
        true
    }

    fn check_invariants(&mut self) {
        if let Some(check) = self.check {
            check(self.device());
        }
    }
}
