//! Power losses, process kills and zone degradations, and the mounts after them.

use zonda_files::{FileError, FileStore};
use zonda_layers::Shared;
use zonda_ssd::Ssd;
use zonda_zoned::{Duration, ZoneIndex, ZoneState};

use super::machine::Machine;
use super::run::{FilesRun, Stage};
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Maximum number of consecutive failed mounts, after which faults stop.
const FAILED_MOUNTS_MAX: u32 = 2;
/// Maximum number of consecutive lives without client requests that lengthen the next life.
const IDLE_LIVES_MAX: u64 = 20;

impl FilesRun<'_> {
    pub(super) fn schedule_all(&mut self) {
        self.schedule_power_loss();
        self.schedule_kill();
        self.schedule_degradation();
    }

    /// Injects the faults that are due.
    pub(super) fn inject_faults(&mut self) {
        if self.events >= self.next_power_loss {
            self.lose_power();
            self.schedule_power_loss();
        }
        if self.events >= self.next_kill {
            self.kill();
            self.schedule_kill();
        }
        if self.events >= self.next_degradation {
            self.degrade();
            self.schedule_degradation();
        }
    }

    /// Cuts power, restores it and mounts the store.
    pub(super) fn lose_power(&mut self) {
        self.power_losses += 1;
        self.log_end("power loss");
        let media = self.take_machine().into_drive().power_loss(&mut self.power_prng);
        self.now += Duration(self.power_prng.below(1_000_000_000));
        let prng = self.simulation.root.fork(&format!("life/{}", self.lives + 1));
        let drive = Ssd::power_on(&self.simulation.profile, media, &prng);
        drive.check_invariants();
        self.mount(Shared::new(drive));
    }

    /// Kills the store's process. The next mount waits until the drive has completed all commands:
    /// the effect of a command in flight could still be lost with the power.
    fn kill(&mut self) {
        self.power_losses += 1;
        self.log_end("process kill");
        self.remount();
    }

    /// Waits until the drive has completed all commands, and mounts the store again.
    fn remount(&mut self) {
        let (drive, now) = self.take_machine().drain(self.now);
        self.now = now;
        self.mount(drive);
    }

    /// Ends a life.
    fn take_machine(&mut self) -> Machine {
        let machine = self.machine.take().expect("power is on");
        self.faults += machine.injected_faults();
        machine
    }

    fn log_end(&mut self, what: &str) {
        let machine = self.machine.as_ref().expect("power is on");
        let (requests, commands) = (self.model.waiting(), machine.in_flight);
        self.trace.log(self.now, || format!("{what}, {requests} requests and {commands} commands in flight"));
        self.trace.requests_lost();
        self.clients.forget(self.now);
        self.watch.progress(self.now);
    }

    /// Mounts the store on the drive.
    fn mount(&mut self, drive: Shared<Ssd>) {
        self.lives += 1;
        let config = self.simulation.config_of(self.lives);
        let store = FileStore::mount(&self.simulation.geometry, config)
            .expect("geometry and configuration are valid, as for the format");
        self.start(drive, store);
        let faults = !self.is_quiescing && self.failed_mounts < FAILED_MOUNTS_MAX;
        self.machine().set_faults(faults);
    }

    /// Starts a store on a drive.
    pub(super) fn start(&mut self, drive: Shared<Ssd>, store: FileStore) {
        let mut store = if self.simulation.flushes { store.with_flushes() } else { store };
        if let Some(bug) = self.bug {
            store.seed_bug(bug);
        }
        self.machine = Some(Machine::new(self.simulation, drive, store, self.lives));
        self.stage = Stage::Starting;
    }

    /// Handles the end of a format or mount.
    pub(super) fn on_ready(&mut self) -> Result<(), CheckError> {
        self.failed_mounts = 0;
        if self.lives == 0 {
            self.stage = Stage::Working;
            return Ok(());
        }
        self.machine().set_faults(false);
        self.begin_verify(true)
    }

    /// Handles a failed mount, which is allowed if commands fail.
    pub(super) fn on_failed_start(&mut self, error: &FileError) -> Result<(), CheckError> {
        let may_fail = self.machine().has_faults() && matches!(error, FileError::Media { .. });
        if !may_fail {
            let message = format!("an existing store cannot be mounted: {error}");
            return Err(CheckError::new(FailureKind::MountFailed, None, message));
        }
        self.trace.log(self.now, || format!("mount failed: {error}"));
        self.failed_mounts += 1;
        self.remount();
        Ok(())
    }

    /// Degrades a zone. Of three metadata zones one may become read only: then another one is
    /// always available.
    fn degrade(&mut self) {
        let log = self.simulation.log_zones();
        let data: Vec<ZoneIndex> = (log.end..self.simulation.geometry.zone_count).map(ZoneIndex).collect();
        let drive = self.machine().drive.clone();
        let state = |zone: ZoneIndex| drive.with_inner(|drive| drive.zone(zone).state);
        let is_healthy = |zone: &&ZoneIndex| !matches!(state(**zone), ZoneState::ReadOnly | ZoneState::Offline);
        let (zone, to) = if log.len() == 3 && !self.has_weak_log && self.degradation_prng.chance(1, 6) {
            self.has_weak_log = true;
            (ZoneIndex(log.start + self.degradation_prng.below(3) as u32), ZoneState::ReadOnly)
        } else {
            // At least half of the zones stay healthy, or nothing would be left to test.
            if data.iter().filter(is_healthy).count() * 2 <= data.len() {
                return;
            }
            let to = if self.degradation_prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
            (*self.degradation_prng.pick(&data).expect("a drive has data zones"), to)
        };
        if state(zone) == ZoneState::Offline {
            return;
        }
        self.faults += 1;
        self.offline_zones += u64::from(to == ZoneState::Offline);
        drive.with_inner_mut(|drive| drive.degrade(zone, to));
        self.hash.mix(u64::from(zone.0) << 8 | u64::from(to.code()));
        self.trace.log(self.now, || format!("zone {zone} enters the state {to}"));
    }

    fn schedule_power_loss(&mut self) {
        let Some(every) = self.simulation.power_loss_every else { return };
        self.next_power_loss = self.events + 1 + self.events_until_next(every);
    }

    fn schedule_kill(&mut self) {
        self.next_kill = match self.simulation.death_every {
            Some(every) => self.events + 1 + self.events_until_next(every),
            None => u64::MAX,
        };
    }

    /// Events until the next end of a life: the more, the more lives ended before any client
    /// request. Otherwise a run with large files, whose mounts and reads take many events, would
    /// never end.
    fn events_until_next(&mut self, every: u64) -> u64 {
        let idle_lives = (self.lives - self.last_life_with_requests).min(IDLE_LIVES_MAX);
        self.power_prng.below((2 * every) << idle_lives)
    }

    fn schedule_degradation(&mut self) {
        let Some(every) = self.simulation.degradation_every else { return };
        self.next_degradation = self.events + 1 + self.degradation_prng.below(2 * every);
    }
}
