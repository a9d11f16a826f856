//! Between two lives of a drive: creation, the ends of lives, openings, and what is seen after them.

use zonda_image::testing::{Crash, Ledger, Observed};
use zonda_image::{CheckReport, Counters, Files, Finding, ImageError, ImageFile, check, create, inspect};
use zonda_zoned::{Lba, Operation, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, fingerprint};

use super::disk::{Disk, Faults};
use super::drive::Drive;
use super::run::{ImagesRun, MayFail, broken};
use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// Changes of files within which an opening or a creation is cut short, at most.
const CHANGES_MAX: u64 = 24;
/// Openings that fail or are cut short, one after the other.
const CUTS_MAX: u64 = 4;

/// How a life ended, and what that says of what was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) crash: Crash,
    /// Nothing was in progress, and everything acknowledged was flushed, and noted as that.
    pub(super) is_rested: bool,
    /// No file operation was in progress either.
    pub(super) is_idle: bool,
    /// Files had failed.
    pub(super) had_faults: bool,
}

impl ImagesRun<'_> {
    /// Creates the image; now and then a crash cuts that short, and it is done again, unless the image can be opened.
    pub(super) fn create(&mut self) -> Result<(Disk, Stop), Trouble> {
        let spec = self.world.spec();
        let mut disk = Disk::new(self.world.root.fork("disk"));
        for _ in 0..CUTS_MAX {
            if !self.prng.chance(self.world.events.cut_creations_percent, 100) {
                break;
            }
            disk.changes_left = Some(1 + self.prng.below(CHANGES_MAX));
            let created = create(&spec, &mut disk);
            disk.changes_left = None;
            self.teller.tell(self.now, || format!("a creation is cut short: {}", told(&created)));
            if self.prng.chance(1, 2) {
                disk.lose_power();
            }
            self.crashes += 1;
            match Drive::open(disk.clone(), self.bug) {
                Ok(drive) if drive.image.spec() == &spec => {
                    let stop = Stop { crash: Crash::Kill, is_rested: true, is_idle: true, had_faults: false };
                    return Ok((drive.kill(), stop));
                }
                Err(refusal) if refusal.1 == ImageError::NotAnImage && created.is_err() => {}
                Ok(_) => return Err(refused("an image that was not created is opened with another shape".to_owned())),
                Err(refusal) => return Err(refused(format!("after a creation that was cut short: {}", refusal.1))),
            }
            disk.set_length(ImageFile::Superblock, 0).expect("no file of the simulated disk refuses a length");
        }
        create(&spec, &mut disk).map_err(|error| refused(format!("no image can be created: {error}")))?;
        Ok((disk, Stop { crash: Crash::Close, is_rested: true, is_idle: true, had_faults: false }))
    }

    /// Ends a life.
    pub(super) fn stop(&mut self) -> Result<(Disk, Stop), Trouble> {
        let had_faults = self.may_fail != MayFail::Nothing;
        let events = &self.world.events;
        let (kills, power_losses, mut closes) = (events.kills, events.power_losses, events.closes);
        if self.has_failed {
            closes = 0;
        }
        let is_full = self.drive().disk.faults.is_full && self.prng.chance(1, 2);
        if !self.has_failed && self.prng.chance(1, 4) {
            self.drain()?;
            if !self.has_failed {
                self.drive().disk.faults = Faults::default();
                self.look_at_running_drive()?;
            }
        }
        let all = kills + power_losses + closes;
        let choice = self.prng.below(all.max(1));
        let mut stop = Stop { crash: Crash::Kill, is_rested: false, is_idle: false, had_faults };
        if all == 0 || choice >= kills + power_losses {
            return self.close(stop);
        }
        if !had_faults && self.prng.chance(1, 3) {
            self.drain()?;
            self.flush();
            stop.is_rested = true;
            stop.is_idle = self.prng.chance(1, 2);
            if stop.is_idle {
                self.drain()?;
            }
            // Else the kill comes as soon as the flush has ended.
            self.take_completions()?;
            while self.ledger.outstanding() > 0 {
                if !self.step() {
                    return Err(Trouble::new(FailureKind::Starved, None, "a flush never ends".to_owned()));
                }
                self.take_completions()?;
            }
        }
        self.crashes += 1;
        let drive = self.drive.take().expect("a life has a drive");
        let mut disk = drive.kill();
        disk.faults = Faults { is_full, ..Faults::default() };
        if choice >= kills {
            disk.lose_power();
            stop = Stop { crash: Crash::PowerLoss, is_rested: false, is_idle: false, ..stop };
        } else if disk.forget_failed_syncs() {
            stop = Stop { crash: Crash::PowerLoss, is_rested: false, is_idle: false, ..stop };
        }
        self.teller.tell(self.now, || told_stop(stop).to_owned());
        Ok((disk, stop))
    }

    /// Shuts the drive down in order.
    fn close(&mut self, stop: Stop) -> Result<(Disk, Stop), Trouble> {
        self.drain()?;
        self.drive().disk.faults = Faults::default();
        self.drive().image.close();
        self.drive().collect();
        while self.step() {}
        self.take_completions()?;
        let closed = self.drive().image.closed().cloned();
        let drive = self.drive.take().expect("a life has a drive");
        let counters = drive.image.counters();
        let mut disk = drive.kill();
        let stop = match closed {
            Some(Ok(())) => {
                self.counters = counters;
                Stop { crash: Crash::Close, is_rested: true, is_idle: true, ..stop }
            }
            Some(Err(error)) if self.has_failed_sync => {
                self.teller.tell(self.now, || format!("the drive cannot be shut down in order: {error}"));
                Stop { crash: Crash::PowerLoss, ..stop }
            }
            other => return Err(refused(format!("the drive cannot be shut down in order: {other:?}"))),
        };
        disk.forget_failed_syncs();
        self.teller.tell(self.now, || told_stop(stop).to_owned());
        Ok((disk, stop))
    }

    /// Opens the drive again, perhaps after some attempts that fail or are cut short, and judges what is there.
    pub(super) fn begin_life(&mut self, mut disk: Disk, mut stop: Stop) -> Result<(), Trouble> {
        let mut is_first = true;
        for _ in 0..CUTS_MAX {
            if disk.faults.is_full || self.prng.chance(self.world.events.faults_percent, 300) {
                disk = self.fail_opening(disk, &mut stop)?;
            } else if self.prng.chance(self.world.events.cut_openings_percent, 100) {
                disk = self.cut_opening(disk, &mut stop);
            } else {
                break;
            }
            is_first = false;
        }
        disk.failed.clear();
        let looked = if self.prng.chance(1, 4) { Some(look(&mut disk)?) } else { None };
        let mut drive = match Drive::open(disk, self.bug) {
            Ok(drive) => drive,
            Err(refusal) => return Err(refused(format!("after {}: {}", told_stop(stop), refusal.1))),
        };
        let report = drive.report.clone();
        self.teller.tell(self.now, || format!("opened: {report:?}"));
        if stop.crash == Crash::Close && is_first && !report.clean {
            return Err(refused("a drive that was shut down in order is not clean".to_owned()));
        }
        if let Some((zones, counters, _)) = &looked
            && self.bug.is_none()
            && (drive.image.zones() != zones || drive.image.counters() != *counters)
        {
            let message = "what an inspection shows is not what the opening finds".to_owned();
            return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
        }
        self.judge_counters(drive.image.counters(), stop)?;
        let reservations = drive.image.reservations().to_vec();
        let counters = drive.image.counters();
        let observed = drive.observe();
        self.drive = Some(drive);
        self.judge_reservations(reservations)?;
        let finished: Vec<ZoneIndex> = if !is_first || stop.had_faults {
            (0..self.world.geometry.zone_count).map(ZoneIndex).collect()
        } else {
            report.finished_zones
        };
        self.judge(&observed, stop.crash, &finished)?;
        if let Some((_, _, findings)) = looked {
            self.judge_findings(&observed, &findings)?;
        }
        self.note(&observed);
        if let Some(old) = self.old.as_mut().filter(|_| is_first) {
            old.observed = Some(observed.clone());
        }
        self.counters = counters;
        self.may_fail = MayFail::Nothing;
        self.given_up.clear();
        self.ledger = Ledger::new(observed.oracle(&self.world.geometry), &self.world.geometry);
        Ok(())
    }

    /// An opening that is cut short by a kill or a loss of power.
    fn cut_opening(&mut self, mut disk: Disk, stop: &mut Stop) -> Disk {
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
            // What an opening has found is on the medium when it returns.
            if !is_open && stop.crash == Crash::Kill {
                *stop = Stop { crash: Crash::PowerLoss, is_rested: false, is_idle: false, ..*stop };
            }
        }
        self.teller.tell(self.now, || {
            let how = if is_power_loss { "a loss of power" } else { "a kill" };
            if is_open { format!("{how} right after an opening") } else { format!("an opening is cut short by {how}") }
        });
        disk
    }

    /// An opening in which files fail, or find no space.
    fn fail_opening(&mut self, mut disk: Disk, stop: &mut Stop) -> Result<Disk, Trouble> {
        let is_full = disk.faults.is_full;
        if !is_full {
            let files = [ImageFile::Superblock, ImageFile::State, ImageFile::Journal, ImageFile::Tags];
            let file = self.prng.chance(1, 2).then(|| *self.prng.pick(&files).expect("there are files"));
            let mut one_in = |most: u64| if self.prng.chance(1, 2) { 0 } else { 1 + self.prng.below(most) };
            let (writes, syncs) = (one_in(6), one_in(6));
            let reads = if file.is_some() { one_in(6) } else { 0 };
            disk.faults = Faults { file, writes, syncs, reads, ..Faults::default() };
        }
        let (mut disk, error) = match Drive::open(disk, self.bug) {
            Ok(drive) => (drive.kill(), None),
            Err(refusal) => (refusal.0, Some(refusal.1)),
        };
        self.teller.tell(self.now, || match &error {
            None => "an opening succeeds though files fail".to_owned(),
            Some(error) => format!("an opening fails: {error}"),
        });
        let is_due = match &error {
            None => true,
            // An opening needs no space.
            Some(ImageError::File { .. }) => !is_full,
            Some(_) => false,
        };
        if !is_due {
            let error = error.expect("an opening that succeeds is always right");
            return Err(refused(format!("where files fail for a while: {error}")));
        }
        self.faults += disk.failed.len() as u64;
        disk.faults = Faults::default();
        if disk.forget_failed_syncs() && stop.crash == Crash::Kill {
            *stop = Stop { crash: Crash::PowerLoss, is_rested: false, is_idle: false, ..*stop };
        }
        Ok(disk)
    }

    /// A command has failed because a file did: what is there now is judged; then the drive stops, or goes on. Returns whether it
    /// goes on.
    pub(super) fn go_on_after_failure(&mut self, faults: &mut Faults) -> Result<bool, Trouble> {
        self.drain()?;
        self.drive().disk.faults = Faults { is_full: faults.is_full, ..Faults::default() };
        self.look_at_running_drive()?;
        let goes_on = match self.may_fail {
            MayFail::ForWantOfSpace => self.prng.chance(5, 6),
            _ => self.prng.chance(1, 2),
        };
        if self.is_over || !goes_on {
            return Ok(false);
        }
        // The oracle cannot follow which zones were open; and what is flushed needs no books.
        let close = Operation::ManageZones { action: ZoneAction::Close, target: ZoneTarget::All };
        for operation in [close, Operation::ReadChangedZones, Operation::Flush] {
            let status = self.drive().run(operation).status;
            if !status.is_success() {
                if self.has_failed_sync {
                    return Ok(false);
                }
                let message =
                    format!("no file fails any more, and a drive at rest still ends commands with \"{status}\"");
                return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
            }
        }
        self.drive().disk.failed.clear();
        let observed = self.drive().observe();
        self.ledger = self.ledger.renewed(observed.oracle(&self.world.geometry));
        self.has_failed = false;
        if faults.is_full && self.prng.chance(1, 3) {
            faults.is_full = false;
            self.teller.tell(self.now, || "the file system has space again".to_owned());
            if self.may_fail == MayFail::ForWantOfSpace {
                self.may_fail = MayFail::Nothing;
            }
        }
        if faults.once {
            *faults = Faults { is_full: faults.is_full, ..Faults::default() };
        }
        self.drive().disk.faults = *faults;
        Ok(true)
    }

    /// The medium of a zone gives up.
    pub(super) fn degrade(&mut self) {
        let geometry = &self.world.geometry;
        let sequential = u64::from(geometry.zone_count - geometry.conventional_zone_count);
        let zone = ZoneIndex(geometry.conventional_zone_count + self.prng.below(sequential) as u32);
        let state = if self.prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
        self.teller.tell(self.now, || format!("zone {zone} becomes {state}"));
        self.ledger.degraded(zone, state);
        self.drive().image.degrade(zone, state);
        self.drive().collect();
    }

    /// Everything that a drive shows which runs, and has nothing to do.
    fn look_at_running_drive(&mut self) -> Result<(), Trouble> {
        let observed = self.drive().observe();
        let all: Vec<ZoneIndex> = (0..self.world.geometry.zone_count).map(ZoneIndex).collect();
        let finished = if self.may_fail == MayFail::Nothing { &[][..] } else { &all };
        self.judge(&observed, Crash::None, finished)?;
        self.note(&observed);
        Ok(())
    }

    fn judge(&mut self, observed: &Observed, crash: Crash, finished: &[ZoneIndex]) -> Result<(), Trouble> {
        for (zone, image) in (0..).map(ZoneIndex).zip(&observed.zones) {
            let judged = self.ledger.judge_zone(zone, image, crash, finished.contains(&zone));
            // A zone whose failed write could not be cleared away is read only: what it holds is judged, and no more.
            // That may be lost again in a crash, if its record failed too.
            if image.state == ZoneState::ReadOnly && judged.is_err() && self.may_fail == MayFail::Anything {
                self.given_up.insert(zone);
            }
            judged.or_else(|violation| if self.given_up.contains(&zone) { Ok(()) } else { Err(broken(violation)) })?;
        }
        for (lba, contents) in &observed.blocks {
            let zone = self.world.geometry.zone_of(*lba).expect("it was read");
            let is_lost = *contents == Err(Status::UnrecoveredReadError);
            if is_lost && self.may_fail == MayFail::Anything && self.ledger.has_failed_write(*lba) {
                // The write failed, and so did looking at what it left.
                self.is_over = true;
                continue;
            }
            self.ledger.judge_block(*lba, contents, &observed.zones[zone.as_usize()], crash).map_err(broken)?;
        }
        Ok(())
    }

    fn note(&mut self, observed: &Observed) {
        for image in &observed.zones {
            self.hash.mix(image.state as u64 ^ image.write_pointer_blocks.0 << 8);
        }
        for (_, contents) in &observed.blocks {
            self.hash.mix(contents.as_ref().map_or(1, |(data, metadata)| fingerprint(data, metadata)));
        }
    }

    fn judge_counters(&self, found: Counters, stop: Stop) -> Result<(), Trouble> {
        let before = self.counters;
        let (is_less, is_other) = (
            found.host_written_blocks < before.host_written_blocks
                || found.padding_blocks < before.padding_blocks
                || found.host_read_blocks < before.host_read_blocks
                || found.erases < before.erases,
            stop.crash == Crash::Close && found != before,
        );
        if is_less || is_other {
            let message = format!("after {}: counters are {found:?}, and were {before:?}", told_stop(stop));
            return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }

    fn judge_reservations(&mut self, found: Vec<u8>) -> Result<(), Trouble> {
        if found != self.kept.now && !self.kept.next.contains(&found) {
            let message = format!("{} other bytes are kept of reservations than were", found.len());
            return Err(Trouble::new(FailureKind::LostWrite, None, message));
        }
        self.kept.now = found;
        self.kept.next.clear();
        self.kept.is_changing = false;
        Ok(())
    }

    /// A check names the blocks that cannot be read, and no others. No bug is planted in checks and inspections: nothing is compared
    /// with them where one is planted in the drive.
    pub(super) fn judge_findings(&self, observed: &Observed, findings: &[Lba]) -> Result<(), Trouble> {
        let unreadable: Vec<Lba> = observed
            .blocks
            .iter()
            .filter(|(_, contents)| *contents == Err(Status::UnrecoveredReadError))
            .map(|(lba, _)| *lba)
            .collect();
        if unreadable != findings && self.bug.is_none() {
            let message = format!("blocks {unreadable:?} cannot be read, and a check names {findings:?}");
            return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }
}

/// What an inspection and a check say of files, neither of which changes them: zones, counters, and damaged blocks.
pub(super) type Looked = (zonda_zoned::zones::ZoneTable, Counters, Vec<Lba>);

pub(super) fn look(disk: &mut Disk) -> Result<Looked, Trouble> {
    let failed = |error: ImageError| refused(format!("an image that can be opened cannot be looked at: {error}"));
    let inspection = inspect(disk).map_err(failed)?;
    let report = check(disk, &mut |_| {}).map_err(failed)?;
    Ok((inspection.zones, inspection.counters, damaged_blocks(&report)))
}

/// The blocks that a check has found.
pub(super) fn damaged_blocks(report: &CheckReport) -> Vec<Lba> {
    let of_block = |finding: &Finding| match finding {
        Finding::Block { lba, .. } => Some(*lba),
        Finding::Copy { .. } | Finding::Later { .. } => None,
    };
    report.findings.iter().filter_map(of_block).collect()
}

pub(super) fn refused(message: String) -> Trouble {
    Trouble::new(FailureKind::MountFailed, None, message)
}

pub(super) fn told_stop(stop: Stop) -> &'static str {
    match stop {
        Stop { crash: Crash::Kill, is_rested: true, .. } => "a kill with everything flushed",
        Stop { crash: Crash::Kill, .. } => "a kill",
        Stop { crash: Crash::PowerLoss, .. } => "a loss of power",
        Stop { crash: Crash::Close | Crash::None, .. } => "a shutdown in order",
    }
}

fn told(result: &Result<(), ImageError>) -> String {
    result.as_ref().map_or_else(ImageError::to_string, |()| "it was done".to_owned())
}
