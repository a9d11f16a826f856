//! Transitions between lives of a drive: creation, ends of lives, openings, and checks of the state
//! after them.

use zonda_image::testing::{Crash, Doubts, Ledger, Observed};
use zonda_image::{CheckReport, Counters, Files, Finding, ImageError, ImageFile, check, create, inspect};
use zonda_zoned::{Lba, Operation, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, fingerprint};

use super::damage::Overwritten;
use super::disk::{Disk, Faults};
use super::drive::Drive;
use super::run::{ImagesRun, MayFail, broken};
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Maximum number of file changes after which an opening or creation is interrupted.
const CHANGES_MAX: u64 = 24;
/// Maximum number of consecutive openings that fail or are interrupted.
const INTERRUPTS_MAX: u64 = 4;

/// How a life ended, and what was flushed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) crash: Crash,
    /// No command was in progress, and every acknowledged write was flushed, and recorded as
    /// flushed.
    pub(super) is_flushed: bool,
    /// No file operation was in progress.
    pub(super) is_idle: bool,
    /// File operations had failed.
    pub(super) had_faults: bool,
}

impl ImagesRun<'_> {
    /// Creates the image. Some creations are interrupted by a crash, and repeated unless the image
    /// can be opened.
    pub(super) fn create(&mut self) -> Result<(Disk, Stop), CheckError> {
        let spec = self.simulation.spec();
        let mut disk = Disk::new(self.simulation.root.fork("disk"));
        for _ in 0..INTERRUPTS_MAX {
            if !self.prng.chance(self.simulation.events.cut_creations_percent, 100) {
                break;
            }
            disk.changes_left = Some(1 + self.prng.below(CHANGES_MAX));
            let created = create(&spec, &mut disk);
            disk.changes_left = None;
            self.trace.log(self.now, || format!("a creation is interrupted: {}", describe_result(&created)));
            if self.prng.chance(1, 2) {
                disk.lose_power();
            }
            self.crashes += 1;
            match Drive::open(disk.clone(), self.bug) {
                Ok(drive) if drive.image.spec() == &spec => {
                    let stop = Stop { crash: Crash::Kill, is_flushed: true, is_idle: true, had_faults: false };
                    return Ok((drive.kill(), stop));
                }
                Err(refusal) if created.is_err() && is_incomplete(&refusal.1) => {}
                Ok(_) => return Err(refused("an incomplete image is opened, with another geometry".to_owned())),
                Err(refusal) => return Err(refused(format!("after an interrupted creation: {}", refusal.1))),
            }
            disk.set_length(ImageFile::Superblock, 0).expect("a file of the simulated disk can be truncated");
        }
        create(&spec, &mut disk).map_err(|error| refused(format!("the image cannot be created: {error}")))?;
        Ok((disk, Stop { crash: Crash::Close, is_flushed: true, is_idle: true, had_faults: false }))
    }

    /// Ends a life.
    pub(super) fn stop(&mut self) -> Result<(Disk, Stop, Option<Overwritten>), CheckError> {
        let had_faults = self.may_fail != MayFail::Nothing;
        let events = &self.simulation.events;
        let (kills, power_losses, mut closes) = (events.kills, events.power_losses, events.closes);
        if self.has_failed {
            closes = 0;
        }
        let is_full = self.drive().disk.faults.is_full && self.prng.chance(1, 2);
        if !self.has_failed && self.prng.chance(1, 4) {
            self.drain()?;
            if !self.has_failed {
                self.drive().disk.faults = Faults::default();
                self.check_running_drive()?;
            }
        }
        let all = kills + power_losses + closes;
        let choice = self.prng.below(all.max(1));
        let mut stop = Stop { crash: Crash::Kill, is_flushed: false, is_idle: false, had_faults };
        if all == 0 || choice >= kills + power_losses {
            let (disk, stop) = self.close(stop)?;
            return Ok((disk, stop, None));
        }
        if !had_faults && self.prng.chance(1, 3) {
            self.drain()?;
            stop.is_flushed = true;
            stop.is_idle = self.prng.chance(1, 2);
            // Otherwise the kill follows the completion of the flush.
            self.flush()?;
            if stop.is_idle {
                self.drain()?;
            }
        }
        self.crashes += 1;
        let overwritten = if choice < kills && !had_faults { self.overwrite_before_kill()? } else { None };
        if overwritten.is_some() {
            (stop.is_flushed, stop.is_idle) = (false, false);
        }
        let drive = self.drive.take().expect("the drive is open during a life");
        let mut disk = drive.kill();
        if let Some(block) = &overwritten {
            self.check_overwritten(block, &mut disk)?;
        }
        disk.faults = Faults { is_full, ..Faults::default() };
        if choice >= kills {
            disk.lose_power();
            stop = Stop { crash: Crash::PowerLoss, is_flushed: false, is_idle: false, ..stop };
        } else if disk.forget_failed_syncs() {
            stop = Stop { crash: Crash::PowerLoss, is_flushed: false, is_idle: false, ..stop };
        }
        self.trace.log(self.now, || describe_stop(stop).to_owned());
        Ok((disk, stop, overwritten))
    }

    /// Flushes, until the flush has ended.
    pub(super) fn flush(&mut self) -> Result<(), CheckError> {
        self.submit_own(Operation::Flush);
        self.take_completions()?;
        while self.ledger.outstanding() > 0 {
            if !self.step() {
                return Err(CheckError::new(FailureKind::Starved, None, "a flush never completes".to_owned()));
            }
            self.take_completions()?;
        }
        Ok(())
    }

    /// Shuts the drive down cleanly.
    fn close(&mut self, stop: Stop) -> Result<(Disk, Stop), CheckError> {
        self.drain()?;
        self.drive().disk.faults = Faults::default();
        self.drive().image.shutdown();
        self.drive().collect();
        while self.step() {}
        self.take_completions()?;
        let closed = self.drive().image.shutdown_result().cloned();
        let drive = self.drive.take().expect("the drive is open during a life");
        let counters = drive.image.counters();
        let mut disk = drive.kill();
        let stop = match closed {
            Some(Ok(())) => {
                self.counters = counters;
                Stop { crash: Crash::Close, is_flushed: true, is_idle: true, ..stop }
            }
            Some(Err(error)) if self.has_failed_sync => {
                self.trace.log(self.now, || format!("the clean shutdown failed: {error}"));
                Stop { crash: Crash::PowerLoss, ..stop }
            }
            other => return Err(refused(format!("the clean shutdown failed: {other:?}"))),
        };
        disk.forget_failed_syncs();
        self.trace.log(self.now, || describe_stop(stop).to_owned());
        Ok((disk, stop))
    }

    /// Opens the drive again, maybe after attempts that fail or are interrupted, and checks its
    /// state.
    pub(super) fn begin_life(&mut self, mut disk: Disk, mut stop: Stop) -> Result<(), CheckError> {
        let mut is_first = true;
        for _ in 0..INTERRUPTS_MAX {
            if disk.faults.is_full || self.prng.chance(self.simulation.events.faults_percent, 300) {
                disk = self.open_with_faults(disk, &mut stop)?;
            } else if self.prng.chance(self.simulation.events.cut_openings_percent, 100) {
                disk = self.interrupt_opening(disk, &mut stop);
            } else {
                break;
            }
            is_first = false;
        }
        disk.failed.clear();
        let inspected = if self.prng.chance(1, 4) { Some(inspect_and_check(&mut disk)?) } else { None };
        let mut drive = match Drive::open(disk, self.bug) {
            Ok(drive) => drive,
            Err(refusal) => return Err(refused(format!("after {}: {}", describe_stop(stop), refusal.1))),
        };
        let report = drive.report.clone();
        self.trace.log(self.now, || format!("opened: {report:?}"));
        if stop.crash == Crash::Close && is_first && !report.clean {
            return Err(refused("a cleanly shut down drive is not clean".to_owned()));
        }
        if let Some((zones, counters, _)) = &inspected
            && self.bug.is_none()
            && (drive.image.zones() != zones || drive.image.counters() != *counters)
        {
            let message = "zones or counters differ between inspection and opening".to_owned();
            return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        }
        self.check_counters(drive.image.counters(), stop)?;
        let reservations = drive.image.reservations().to_vec();
        let counters = drive.image.counters();
        let observed = drive.observe();
        self.drive = Some(drive);
        self.check_reservations(reservations)?;
        let finished: Vec<ZoneIndex> = if !is_first || stop.had_faults {
            (0..self.simulation.geometry.zone_count).map(ZoneIndex).collect()
        } else {
            report.finished_zones
        };
        self.check_state(&observed, stop.crash, &finished)?;
        (self.read_damage, self.lost_tag) = (None, None);
        if let Some((_, _, findings)) = inspected {
            self.check_findings(&observed, &findings)?;
        }
        self.hash_state(&observed);
        if let Some(old) = self.old.as_mut().filter(|_| is_first) {
            old.observed = Some(observed.clone());
        }
        self.counters = counters;
        self.may_fail = MayFail::Nothing;
        self.failed_zones.clear();
        self.failed_records = 0;
        self.failed_state_writes = 0;
        self.ledger = Ledger::new(observed.oracle(&self.simulation.geometry), &self.simulation.geometry);
        Ok(())
    }

    /// Interrupts an opening by a kill or a power loss.
    fn interrupt_opening(&mut self, mut disk: Disk, stop: &mut Stop) -> Disk {
        disk.changes_left = Some(1 + self.prng.below(CHANGES_MAX));
        let (mut disk, is_open) = match Drive::open(disk, self.bug) {
            Ok(drive) => (drive.kill(), true),
            Err(refusal) => (refusal.0, false),
        };
        disk.changes_left = None;
        self.crashes += 1;
        let is_power_loss = self.prng.chance(1, 2);
        if is_power_loss {
            disk.lose_power();
            // The state after an opening is durable when it returns.
            if !is_open && stop.crash == Crash::Kill {
                *stop = Stop { crash: Crash::PowerLoss, is_flushed: false, is_idle: false, ..*stop };
            }
        }
        self.trace.log(self.now, || {
            let how = if is_power_loss { "a power loss" } else { "a kill" };
            if is_open {
                format!("{how} right after an opening")
            } else {
                format!("an opening is interrupted by {how}")
            }
        });
        disk
    }

    /// Opens the drive while file operations fail, or the file system is full.
    fn open_with_faults(&mut self, mut disk: Disk, stop: &mut Stop) -> Result<Disk, CheckError> {
        let is_full = disk.faults.is_full;
        if !is_full {
            let files = [ImageFile::Superblock, ImageFile::State, ImageFile::Journal, ImageFile::Tags];
            let file = self.prng.chance(1, 2).then(|| *self.prng.pick(&files).expect("the list of files is not empty"));
            let mut one_in = |most: u64| if self.prng.chance(1, 2) { 0 } else { 1 + self.prng.below(most) };
            let (writes, syncs) = (one_in(6), one_in(6));
            let reads = if file.is_some() { one_in(6) } else { 0 };
            disk.faults = Faults { file, writes, syncs, reads, ..Faults::default() };
        }
        let (mut disk, error) = match Drive::open(disk, self.bug) {
            Ok(drive) => (drive.kill(), None),
            Err(refusal) => (refusal.0, Some(refusal.1)),
        };
        self.trace.log(self.now, || match &error {
            None => "an opening succeeds despite file faults".to_owned(),
            Some(error) => format!("an opening fails: {error}"),
        });
        let is_allowed = match &error {
            None => true,
            // An opening needs no space, unless contents are journaled and a power loss has undone an
            // allocation that was not synced.
            Some(ImageError::File { .. }) => !is_full || self.logs_contents() && stop.crash == Crash::PowerLoss,
            Some(_) => false,
        };
        if !is_allowed {
            let error = error.expect("a successful opening is always allowed");
            return Err(refused(format!("while file operations fail: {error}")));
        }
        self.faults += disk.failed.len() as u64;
        disk.faults = Faults::default();
        if disk.forget_failed_syncs() && stop.crash == Crash::Kill {
            *stop = Stop { crash: Crash::PowerLoss, is_flushed: false, is_idle: false, ..*stop };
        }
        Ok(disk)
    }

    /// Checks the state after a command failed because of a file operation; then the drive stops or
    /// continues. Returns whether it continues.
    pub(super) fn continue_after_failure(&mut self, faults: &mut Faults) -> Result<bool, CheckError> {
        self.drain()?;
        self.drive().disk.faults = Faults { is_full: faults.is_full, ..Faults::default() };
        self.check_running_drive()?;
        let continues = match self.may_fail {
            MayFail::OutOfSpace => self.prng.chance(5, 6),
            _ => self.prng.chance(1, 2),
        };
        if self.is_unrecoverable || !continues {
            return Ok(false);
        }
        // The oracle does not know which zones are open, so they are closed; after a flush the
        // ledger can start again.
        let close = Operation::ManageZones { action: ZoneAction::Close, target: ZoneTarget::All };
        for operation in [close, Operation::ReadChangedZones, Operation::Flush] {
            let status = self.drive().run(operation).status;
            if !status.is_success() {
                if self.has_failed_sync {
                    return Ok(false);
                }
                let message =
                    format!("file faults have ended, but a command of the idle drive completed with \"{status}\"");
                return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
            }
        }
        self.drive().disk.failed.clear();
        let observed = self.drive().observe();
        let doubts = Doubts { management: self.failed_records >= 2, degradations: self.failed_state_writes > 0 };
        self.ledger = self.ledger.renewed(observed.oracle(&self.simulation.geometry), doubts);
        self.has_failed = false;
        if faults.is_full && self.prng.chance(1, 3) {
            faults.is_full = false;
            self.trace.log(self.now, || "the file system has free space again".to_owned());
            if self.may_fail == MayFail::OutOfSpace {
                self.may_fail = MayFail::Nothing;
            }
        }
        if faults.once {
            *faults = Faults { is_full: faults.is_full, ..Faults::default() };
        }
        self.drive().disk.faults = *faults;
        Ok(true)
    }

    /// Degrades a zone.
    pub(super) fn degrade(&mut self) {
        let geometry = &self.simulation.geometry;
        let sequential = u64::from(geometry.zone_count - geometry.conventional_zone_count);
        let zone = ZoneIndex(geometry.conventional_zone_count + self.prng.below(sequential) as u32);
        let state = if self.prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
        self.trace.log(self.now, || format!("zone {zone} enters the state {state}"));
        self.ledger.degraded(zone, state);
        self.drive().image.degrade(zone, state);
        self.drive().collect();
    }

    /// Checks the state of a running, idle drive.
    fn check_running_drive(&mut self) -> Result<(), CheckError> {
        let observed = self.drive().observe();
        let all: Vec<ZoneIndex> = (0..self.simulation.geometry.zone_count).map(ZoneIndex).collect();
        let finished = if self.may_fail == MayFail::Nothing { &[][..] } else { &all };
        self.check_state(&observed, Crash::None, finished)?;
        self.hash_state(&observed);
        Ok(())
    }

    fn check_state(&mut self, observed: &Observed, crash: Crash, finished: &[ZoneIndex]) -> Result<(), CheckError> {
        if self.failed_records >= 2 {
            self.ledger.doubt_management();
        }
        for (zone, image) in (0..).map(ZoneIndex).zip(&observed.zones) {
            let checked = self.ledger.judge_zone(zone, image, crash, finished.contains(&zone));
            // A zone whose failed write could not be cleared is read only: only its contents are
            // checked. The state may be lost again in a crash, if its record failed too.
            if image.state == ZoneState::ReadOnly && checked.is_err() && self.may_fail == MayFail::Anything {
                self.failed_zones.insert(zone);
            }
            checked
                .or_else(|violation| if self.failed_zones.contains(&zone) { Ok(()) } else { Err(broken(violation)) })?;
        }
        for (lba, contents) in &observed.blocks {
            let zone = self.simulation.geometry.zone_of(*lba).expect("it was read");
            let is_lost = *contents == Err(Status::UnrecoveredReadError);
            if is_lost && self.may_fail == MayFail::Anything && self.ledger.has_failed_write(*lba) {
                // The write failed, and so did reading the result.
                self.is_unrecoverable = true;
                continue;
            }
            if is_lost && self.read_damage == Some(*lba) && crash == Crash::PowerLoss {
                // Its contents before are not accepted any more either.
                self.is_unrecoverable = true;
                continue;
            }
            if is_lost && self.is_overwrite_of_lost_tag_undone(*lba, crash) {
                self.is_unrecoverable = true;
                continue;
            }
            self.ledger.judge_block(*lba, contents, &observed.zones[zone.as_usize()], crash).map_err(broken)?;
        }
        Ok(())
    }

    fn hash_state(&mut self, observed: &Observed) {
        for image in &observed.zones {
            self.hash.mix(image.state as u64 ^ image.write_pointer_blocks.0 << 8);
        }
        for (_, contents) in &observed.blocks {
            self.hash.mix(contents.as_ref().map_or(1, |(data, metadata)| fingerprint(data, metadata)));
        }
    }

    fn check_counters(&self, found: Counters, stop: Stop) -> Result<(), CheckError> {
        let before = self.counters;
        let (is_less, is_other) = (
            found.host_written_blocks < before.host_written_blocks
                || found.padding_blocks < before.padding_blocks
                || found.host_read_blocks < before.host_read_blocks
                || found.erases < before.erases,
            stop.crash == Crash::Close && found != before,
        );
        if is_less || is_other {
            let message = format!("after {}: counters are {found:?}, before {before:?}", describe_stop(stop));
            return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }

    fn check_reservations(&mut self, found: Vec<u8>) -> Result<(), CheckError> {
        if found != self.reservations.now && !self.reservations.next.contains(&found) {
            let message =
                format!("the saved reservations ({} bytes) differ from those that were acknowledged", found.len());
            return Err(CheckError::new(FailureKind::LostWrite, None, message));
        }
        self.reservations.now = found;
        self.reservations.next.clear();
        self.reservations.is_changing = false;
        Ok(())
    }

    /// Checks that the offline check reports exactly the unreadable blocks. It has no seeded bugs,
    /// and is not compared with a drive that has one.
    pub(super) fn check_findings(&self, observed: &Observed, findings: &[Lba]) -> Result<(), CheckError> {
        let unreadable: Vec<Lba> = observed
            .blocks
            .iter()
            .filter(|(_, contents)| *contents == Err(Status::UnrecoveredReadError))
            .map(|(lba, _)| *lba)
            .collect();
        if unreadable != findings && self.bug.is_none() {
            let message = format!("unreadable blocks are {unreadable:?}, but a check reports {findings:?}");
            return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }
}

/// The results of an inspection and an offline check, neither of which changes files: zones,
/// counters, and damaged blocks.
pub(super) type Inspected = (zonda_zoned::zones::ZoneTable, Counters, Vec<Lba>);

pub(super) fn inspect_and_check(disk: &mut Disk) -> Result<Inspected, CheckError> {
    let failed = |error: ImageError| refused(format!("an image that can be opened cannot be inspected: {error}"));
    let inspection = inspect(disk).map_err(failed)?;
    let report = check(disk, &mut |_| {}).map_err(failed)?;
    Ok((inspection.zones, inspection.counters, damaged_blocks(&report)))
}

/// The damaged blocks that a check reports.
pub(super) fn damaged_blocks(report: &CheckReport) -> Vec<Lba> {
    let of_block = |finding: &Finding| match finding {
        Finding::Block { lba, .. } => Some(*lba),
        Finding::Copy { .. } | Finding::Later { .. } => None,
    };
    report.findings.iter().filter_map(of_block).collect()
}

/// The first copy of the superblock is not written, or not completely.
fn is_incomplete(error: &ImageError) -> bool {
    matches!(error, ImageError::NotAnImage | ImageError::Length { file: ImageFile::Superblock, .. })
}

pub(super) fn refused(message: String) -> CheckError {
    CheckError::new(FailureKind::MountFailed, None, message)
}

pub(super) fn describe_stop(stop: Stop) -> &'static str {
    match stop {
        Stop { crash: Crash::Kill, is_flushed: true, .. } => "a kill with everything flushed",
        Stop { crash: Crash::Kill, .. } => "a kill",
        Stop { crash: Crash::PowerLoss, .. } => "a power loss",
        Stop { crash: Crash::Close | Crash::None, .. } => "a clean shutdown",
    }
}

fn describe_result(result: &Result<(), ImageError>) -> String {
    result.as_ref().map_or_else(ImageError::to_string, |()| "it was complete".to_owned())
}
