//! [`Model`]: a latency model of a drive, initialized to the state of that drive.

use zonda_image::Image;
use zonda_ssd::Ssd;
use zonda_ssd::allocation::{ElementTable, ElementTracker};
use zonda_ssd::profile::Profile;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, NamespaceId, Namespaces, Operation, PayloadKind,
    Prng, QueueFull, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::DriveError;

/// A simulated drive whose clock is ahead of that of its user, by the time that its preparation
/// took.
///
/// It has no contents. Where it disagrees with the drive that it models, only its latencies are
/// used: see [`zonda_layers::Paced`].
pub struct Model {
    ssd: Ssd,
    /// How far its clock is ahead.
    ahead: Duration,
}

impl Model {
    /// A drive of this profile, with zones written and finished as in `zones`, on storage elements
    /// with the wear and fill of `elements`, or on new ones. The time that this takes has elapsed
    /// for the model.
    ///
    /// # Panics
    /// When the elements are those of another profile.
    #[must_use]
    pub fn from_zones(profile: &Profile, zones: &ZoneTable, elements: Option<&ElementTable>, prng: &Prng) -> Model {
        let ssd = match elements {
            None => Ssd::new(profile, PayloadKind::None, prng),
            Some(table) => Ssd::with_elements(profile, PayloadKind::None, prng, table)
                .expect("the elements are those of the profile"),
        };
        let mut model = Model { ssd, ahead: Duration::ZERO };
        let first = zones.geometry().conventional_zone_count;
        let all: Vec<ZoneIndex> = (first..zones.geometry().zone_count).map(ZoneIndex).collect();
        // A zone is active until it is finished, so those that remain active come last.
        for &zone in all.iter().filter(|zone| !zones.zone(**zone).state.is_active()) {
            model.bring(zone, zones);
        }
        for &zone in all.iter().filter(|zone| zones.zone(**zone).state.is_active()) {
            model.bring(zone, zones);
        }
        model.ssd.forget_unclaimed_elements();
        model
    }

    /// The same for the drive of an image. Service times are random samples; a served drive does not
    /// need a particular seed.
    ///
    /// # Errors
    /// If its profile cannot be read.
    pub fn of_image(image: &Image, elements: Option<&ElementTracker>) -> Result<Model, DriveError> {
        let profile = Profile::parse(&image.spec().profile).map_err(|error| {
            DriveError::new(
                format!("cannot read the profile of the image: {error}"),
                "serve it with --timing none, or with the version of zonda that created it",
            )
        })?;
        let elements = elements.map(ElementTracker::table);
        Ok(Model::from_zones(&profile, image.zones(), elements.as_ref(), &Prng::new(1)))
    }

    /// Writes, finishes or degrades one zone.
    fn bring(&mut self, zone: ZoneIndex, zones: &ZoneTable) {
        let view = zones.zone(zone);
        let written = Blocks(view.written_blocks.0.max(view.write_pointer_blocks.0));
        if view.state == ZoneState::Empty {
            return;
        }
        // The drive enforces the same limits: only a zone with a ZRWA, which the model lacks, can
        // fail.
        if self.ssd.prefill(zone, written).is_err() {
            return;
        }
        match view.state {
            ZoneState::Full if written < zones.geometry().zone_capacity_blocks => self.finish(zone),
            ZoneState::ReadOnly | ZoneState::Offline => self.ssd.degrade(zone, view.state),
            _ => {}
        }
    }

    /// Finishes a zone, and advances the clock until that is complete.
    fn finish(&mut self, zone: ZoneIndex) {
        let target = ZoneTarget::Zone(self.ssd.geometry(NamespaceId::FIRST).zone_start(zone));
        let operation = Operation::ManageZones { action: ZoneAction::Finish, target };
        let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
        let mut now = Instant(self.ahead.0);
        self.ssd.submit(now, command).expect("an idle drive takes a command");
        let mut completions = CompletionQueue::new();
        while completions.is_empty() {
            now = self.ssd.next_timeout().expect("a command is in flight");
            self.ssd.poll(now, &mut completions);
        }
        self.ahead = now.since(Instant::ZERO);
    }

    fn own(&self, now: Instant) -> Instant {
        now + self.ahead
    }
}

impl ZonedDevice for Model {
    fn namespaces(&self) -> &Namespaces {
        self.ssd.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.ssd.submit(self.own(now), command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.ssd.poll(self.own(now), completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        // An event of its past that is still due, an erase for instance, is due at once.
        self.ssd.next_timeout().map(|at| Instant(at.0.saturating_sub(self.ahead.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::builtin_text;
    use zonda_zoned::Lba;

    #[test]
    fn a_model_has_the_zone_states_of_the_drive() {
        let profile = Profile::parse(builtin_text("zn540").expect("it is built in")).expect("it is valid");
        let geometry = profile.geometry();
        let mut zones = ZoneTable::new(geometry.clone());
        let start = |zone| geometry.zone_start(ZoneIndex(zone));
        let mut effects = Vec::new();
        for zone in 0..14 {
            zones.write(start(zone), Blocks(8), true).expect("so many may be active");
        }
        for zone in 0..3 {
            zones.manage(&ZoneAction::Finish, ZoneTarget::Zone(start(zone)), &mut effects).expect("it is open");
        }
        zones.degrade(ZoneIndex(3), ZoneState::ReadOnly);
        for zone in 20..24 {
            zones.write(start(zone), Blocks(8), true).expect("the finished zones released active resources");
        }
        let mut model = Model::from_zones(&profile, &zones, None, &Prng::new(1));
        for zone in (0..30).map(ZoneIndex) {
            let (expected, view) = (zones.zone(zone), model.ssd.zone(zone));
            assert_eq!(view.written_blocks, expected.written_blocks, "zone {zone}");
            let state = if expected.state.is_open() { ZoneState::Closed } else { expected.state };
            assert_eq!(view.state, state, "zone {zone}");
        }
        assert!(model.ahead > Duration::ZERO, "finishing takes time");
        let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
        let command = Command::new(CommandId(1), NamespaceId::FIRST, read);
        model.submit(Instant(5), command).expect("it is idle");
        let mut completions = CompletionQueue::new();
        let mut now = Instant(5);
        while completions.is_empty() {
            now = now.max(model.next_timeout().expect("a command is in flight"));
            model.poll(now, &mut completions);
        }
        assert!((10_000..1_000_000).contains(&now.0), "a read takes as long as ever: {now}");
    }
}
