//! All members share a failure: the file system that they are on is full, their controller fails or answers nothing for a while.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};

/// Steps of load before, during and after the failure, at most.
const LOAD_STEPS: u64 = 200;
/// How long it takes, at most.
const SECONDS: u64 = 90;

impl SwarmRun {
    pub(super) fn shared_failure(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.make_whole()?;
        self.load(prng.below(LOAD_STEPS))?;
        let presences = [Presence::Full, Presence::Full, Presence::Failing, Presence::Paused];
        let presence = *prng.pick(&presences).expect("there are some");
        self.world.tell(|| format!("all members become {presence:?}"));
        self.world.model.may_be_full = presence == Presence::Full;
        self.world.model.is_lost = presence == Presence::Failing;
        // Those that the volume can do without are failed; of room each has as much as others leave it.
        self.world.suspects = if presence == Presence::Full { 0 } else { self.all_members() };
        self.world.drives.iter_mut().for_each(|drive| drive.set_presence(presence));
        self.load(LOAD_STEPS)?;
        if prng.chance(1, 2) {
            self.world.wait(Duration::from_secs(1 + prng.below(SECONDS)))?;
            self.load(prng.below(LOAD_STEPS))?;
        }
        self.world.tell(|| "all members are as before".to_owned());
        let is_up = prng.chance(2, 3);
        if is_up {
            self.make_present();
            self.world.rest()?;
            self.world.wait(Duration::from_secs(2))?;
            self.world.rest()?;
        } else {
            if presence == Presence::Paused {
                self.make_present();
            }
            self.stop(prng);
            self.make_present();
        }
        self.world.model.is_lost = false;
        self.world.model.may_be_full = false;
        if !is_up {
            self.mount(0)?;
        }
        self.world.read_all()?;
        self.hurt_are(self.inactive());
        // Writes are taken again.
        self.load(prng.below(LOAD_STEPS))?;
        self.world.rest()
    }
}
