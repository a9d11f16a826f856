//! What is tested, and how time passes for it.

use zonda_zoned::{
    Command, CompletionQueue, Geometry, Instant, NamespaceId, PayloadKind, QueueFull, ZoneIndex, ZoneState, ZonedDevice,
};

/// A device under test: [`ZonedDevice`], and what a test must do to it beside commands.
pub trait TestBackend: ZonedDevice {
    /// The time it is for the device. It never goes back.
    fn now(&mut self) -> Instant;

    /// Lets time pass until something may have happened: in virtual time to the next wakeup, in real time by a turn of the
    /// loop. The caller polls then.
    fn wait(&mut self);

    /// What the device keeps of what is written to it. Where nothing is kept, contents are not checked.
    fn keeps(&self) -> PayloadKind {
        PayloadKind::Bytes
    }

    /// The most commands that may be under way.
    fn queue_depth_max(&self) -> usize {
        16
    }

    /// Whether a command can be carried to the device at all: a wire format has no way to ask for nothing, say.
    fn carries(&self, _command: &Command) -> bool {
        true
    }

    /// Takes the power away and brings it back, or closes the device and opens it again, while nothing is under way. False
    /// if that cannot be done.
    fn power_cycle(&mut self) -> bool {
        false
    }

    /// Whether a zone that was opened and closed, and never written to, is still closed after a loss of power. A drive that
    /// keeps no record of opening finds it empty, which loses nothing.
    fn remembers_untouched_zones(&self) -> bool {
        true
    }

    /// Makes a zone read only or offline, as if its medium gave up. False if that cannot be done.
    fn degrade(&mut self, _zone: ZoneIndex, _to: ZoneState) -> bool {
        false
    }

    /// Asserts what must hold inside the device between two commands.
    fn check_invariants(&mut self) {}

    /// Commands of each random run.
    fn random_commands(&self) -> u64 {
        2_000
    }
}

/// Makes a backend of any device that runs in virtual time.
pub struct Virtual<D> {
    /// Gone only while power is.
    device: Option<D>,
    now: Instant,
    keeps: PayloadKind,
    power_cycle: Option<Box<dyn FnMut(D) -> D>>,
    degrade: Option<Degrade<D>>,
    check: Option<fn(&D)>,
}

type Degrade<D> = fn(&mut D, ZoneIndex, ZoneState);

impl<D: ZonedDevice> Virtual<D> {
    /// A device that keeps bytes.
    #[must_use]
    pub fn new(device: D) -> Virtual<D> {
        Virtual {
            device: Some(device),
            now: Instant::ZERO,
            keeps: PayloadKind::Bytes,
            power_cycle: None,
            degrade: None,
            check: None,
        }
    }

    /// The device keeps something else.
    #[must_use]
    pub fn keeping(self, keeps: PayloadKind) -> Virtual<D> {
        Virtual { keeps, ..self }
    }

    /// How its power goes and comes back.
    #[must_use]
    pub fn with_power_cycle(self, cycle: impl FnMut(D) -> D + 'static) -> Virtual<D> {
        Virtual { power_cycle: Some(Box::new(cycle)), ..self }
    }

    /// How the medium of a zone gives up.
    #[must_use]
    pub fn with_degrade(self, degrade: fn(&mut D, ZoneIndex, ZoneState)) -> Virtual<D> {
        Virtual { degrade: Some(degrade), ..self }
    }

    /// What must hold inside it.
    #[must_use]
    pub fn with_invariants(self, check: fn(&D)) -> Virtual<D> {
        Virtual { check: Some(check), ..self }
    }

    fn device(&self) -> &D {
        self.device.as_ref().expect("the power is on")
    }

    fn device_mut(&mut self) -> &mut D {
        self.device.as_mut().expect("the power is on")
    }
}

impl<D: ZonedDevice> ZonedDevice for Virtual<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.device().geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.device_mut().submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device_mut().poll(now, completions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.device().next_wakeup()
    }
}

impl<D: ZonedDevice> TestBackend for Virtual<D> {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn wait(&mut self) {
        self.now = self.now.max(self.device().next_wakeup().unwrap_or(self.now));
    }

    fn keeps(&self) -> PayloadKind {
        self.keeps
    }

    fn power_cycle(&mut self) -> bool {
        let Some(cycle) = &mut self.power_cycle else { return false };
        let device = self.device.take().expect("the power is on");
        self.device = Some(cycle(device));
        true
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
