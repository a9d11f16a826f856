//! Losses of power, programs that die, zones that degrade; and the store that is mounted after that.

use zonda_files::{FileError, FileStore};
use zonda_layers::Shared;
use zonda_ssd::Ssd;
use zonda_zoned::{Duration, ZoneIndex, ZoneState};

use super::machine::Machine;
use super::run::{FilesRun, Stage};
use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// Mounts that may fail, one behind the other, before faults stop.
const FAILED_MOUNTS_MAX: u32 = 2;
/// Lives in which nobody worked, one behind the other, that make the next one longer.
const IN_VAIN_MAX: u64 = 20;

impl FilesRun<'_> {
    pub(super) fn schedule_all(&mut self) {
        self.schedule_power_loss();
        self.schedule_death();
        self.schedule_degradation();
    }

    /// The world does what is due.
    pub(super) fn interfere(&mut self) {
        if self.events >= self.next_power_loss {
            self.lose_power();
            self.schedule_power_loss();
        }
        if self.events >= self.next_death {
            self.die();
            self.schedule_death();
        }
        if self.events >= self.next_degradation {
            self.degrade();
            self.schedule_degradation();
        }
    }

    /// The power goes, and comes back.
    pub(super) fn lose_power(&mut self) {
        self.power_losses += 1;
        self.tell_end("the power goes");
        let media = self.take_machine().into_drive().power_loss(&mut self.power_prng);
        self.now += Duration(self.power_prng.below(1_000_000_000));
        let prng = self.world.root.fork(&format!("life/{}", self.lives + 1));
        let drive = Ssd::power_on(&self.world.profile, media, &prng);
        drive.check_invariants();
        self.mount(Shared::new(drive));
    }

    /// The store's program dies; the drive goes on. The next store comes when the drive has ended what it was given: what
    /// was seen of a command under way could still go with the power.
    fn die(&mut self) {
        self.power_losses += 1;
        self.tell_end("the program dies");
        self.mount_anew();
    }

    /// The drive ends what it was given, and another store comes.
    fn mount_anew(&mut self) {
        let (drive, now) = self.take_machine().drain(self.now);
        self.now = now;
        self.mount(drive);
    }

    /// The end of a life.
    fn take_machine(&mut self) -> Machine {
        let machine = self.machine.take().expect("the power is on");
        self.faults += machine.struck();
        machine
    }

    fn tell_end(&mut self, what: &str) {
        let machine = self.machine.as_ref().expect("the power is on");
        let (requests, commands) = (self.model.waiting(), machine.under_way);
        self.teller.tell(self.now, || format!("{what}, with {requests} requests and {commands} commands under way"));
        self.teller.requests_lost();
        self.clients.forget(self.now);
        self.watch.progress(self.now);
    }

    /// Mounts what is on the drive.
    fn mount(&mut self, drive: Shared<Ssd>) {
        self.lives += 1;
        let config = self.world.config_of(self.lives);
        let store = FileStore::mount(&self.world.geometry, config).expect("they suit, as when it was formatted");
        self.start(drive, store);
        let faults = !self.is_resting && self.failed_mounts < FAILED_MOUNTS_MAX;
        self.machine().set_faults(faults);
    }

    /// Puts a store on a drive.
    pub(super) fn start(&mut self, drive: Shared<Ssd>, store: FileStore) {
        let mut store = if self.world.flushes { store.with_flushes() } else { store };
        if let Some(bug) = self.bug {
            store.plant(bug);
        }
        self.machine = Some(Machine::new(self.world, drive, store, self.lives));
        self.stage = Stage::Starting;
    }

    /// The store is formatted or mounted.
    pub(super) fn on_ready(&mut self) -> Result<(), Trouble> {
        self.failed_mounts = 0;
        if self.lives == 0 {
            self.stage = Stage::Working;
            return Ok(());
        }
        self.machine().set_faults(false);
        self.begin_look(true)
    }

    /// A mount failed, which may be for commands that fail.
    pub(super) fn on_failed_start(&mut self, error: &FileError) -> Result<(), Trouble> {
        let may_fail = self.machine().has_faults() && matches!(error, FileError::Media { .. });
        if !may_fail {
            let message = format!("a store that was there cannot be mounted: {error}");
            return Err(Trouble::new(FailureKind::MountFailed, None, message));
        }
        self.teller.tell(self.now, || format!("a mount fails: {error}"));
        self.failed_mounts += 1;
        self.mount_anew();
        Ok(())
    }

    /// The medium of a zone gives up. Of metadata zones one may become read only where there are three: then there is always
    /// one to go on in.
    fn degrade(&mut self) {
        let log = self.world.log_zones();
        let data: Vec<ZoneIndex> = (log.end..self.world.geometry.zone_count).map(ZoneIndex).collect();
        let drive = self.machine().drive.clone();
        let state = |zone: ZoneIndex| drive.with_inner(|drive| drive.zone(zone).state);
        let is_healthy = |zone: &&ZoneIndex| !matches!(state(**zone), ZoneState::ReadOnly | ZoneState::Offline);
        let (zone, to) = if log.len() == 3 && !self.has_weak_log && self.degradation_prng.chance(1, 6) {
            self.has_weak_log = true;
            (ZoneIndex(log.start + self.degradation_prng.below(3) as u32), ZoneState::ReadOnly)
        } else {
            // Half of the zones stay as they are, or nothing would be left to test.
            if data.iter().filter(is_healthy).count() * 2 <= data.len() {
                return;
            }
            let to = if self.degradation_prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
            (*self.degradation_prng.pick(&data).expect("there are data zones"), to)
        };
        if state(zone) == ZoneState::Offline {
            return;
        }
        self.faults += 1;
        self.offline_zones += u64::from(to == ZoneState::Offline);
        drive.with_inner_mut(|drive| drive.degrade(zone, to));
        self.hash.mix(u64::from(zone.0) << 8 | u64::from(to.code()));
        self.teller.tell(self.now, || format!("zone {zone} becomes {to} by itself"));
    }

    fn schedule_power_loss(&mut self) {
        let Some(every) = self.world.power_loss_every else { return };
        self.next_power_loss = self.events + 1 + self.draw_until_next(every);
    }

    fn schedule_death(&mut self) {
        self.next_death = match self.world.death_every {
            Some(every) => self.events + 1 + self.draw_until_next(every),
            None => u64::MAX,
        };
    }

    /// Events until a store comes to its end again: the more, the longer none got to work. Mounting and reading large files
    /// takes many events, and there would never be an end to it.
    fn draw_until_next(&mut self, every: u64) -> u64 {
        let in_vain = (self.lives - self.last_worked).min(IN_VAIN_MAX);
        self.power_prng.below((2 * every) << in_vain)
    }

    fn schedule_degradation(&mut self) {
        let Some(every) = self.world.degradation_every else { return };
        self.next_degradation = self.events + 1 + self.degradation_prng.below(2 * every);
    }
}
