//! All members share a failure: their file system is full, or their controller fails or does not
//! answer for a while.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};

/// Maximum steps of load before, during and after the failure.
const LOAD_STEPS: u64 = 200;
/// Maximum duration.
const SECONDS: u64 = 90;

impl SwarmRun {
    pub(super) fn shared_failure(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.repair_members()?;
        self.load(prng.below(LOAD_STEPS))?;
        let presences = [Presence::Full, Presence::Full, Presence::Failing, Presence::Paused];
        let presence = *prng.pick(&presences).expect("there are some");
        self.simulation.trace(|| format!("all members become {presence}"));
        self.simulation.model.may_be_full = presence == Presence::Full;
        self.simulation.model.is_lost = presence == Presence::Failing;
        // Members that the volume can spare are failed; free space depends on the others.
        self.simulation.suspects = if presence == Presence::Full { 0 } else { self.all_members() };
        self.simulation.drives.iter_mut().for_each(|drive| drive.set_presence(presence));
        self.load(LOAD_STEPS)?;
        if prng.chance(1, 2) {
            self.simulation.wait(Duration::from_secs(1 + prng.below(SECONDS)))?;
            self.load(prng.below(LOAD_STEPS))?;
        }
        self.simulation.trace(|| "all members work again".to_owned());
        let is_up = prng.chance(2, 3);
        if is_up {
            self.make_present();
            self.simulation.quiesce()?;
            self.simulation.wait(Duration::from_secs(2))?;
            self.simulation.quiesce()?;
        } else {
            if presence == Presence::Paused {
                self.make_present();
            }
            self.stop(prng);
            self.make_present();
        }
        self.simulation.model.is_lost = false;
        self.simulation.model.may_be_full = false;
        if !is_up {
            self.mount(0)?;
        }
        self.simulation.read_all()?;
        self.set_suspects(self.inactive());
        // Writes are accepted again.
        self.load(prng.below(LOAD_STEPS))?;
        self.simulation.quiesce()
    }
}
