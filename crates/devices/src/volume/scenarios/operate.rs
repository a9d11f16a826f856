//! What a seed does to the volumes, and what they may answer.

use std::fs;

use zonda_zoned::{Duration, Operation};

use super::run::{DRIVES, Run};
use crate::shelf;
use crate::volume::{VOLUME_FILE, VolumeDrive, VolumeRequest};

/// Copies of `volume.toml` that are kept of each volume.
const OLDER_MAX: usize = 4;

impl Run {
    /// One operation.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        let at = self.prng.below(self.volumes.len() as u64) as usize;
        if self.prng.chance(1, 6) {
            let steps = 1 + self.prng.below(40);
            self.tell(format!("a crash comes in {steps} steps"));
            shelf::crash_in(Some(steps));
        }
        if self.volumes[at].has_parted {
            return Ok(());
        }
        if self.volumes[at].drive.is_some() { self.operate_open(at) } else { self.operate_closed(at) }
    }

    fn operate_open(&mut self, at: usize) -> Result<(), String> {
        match self.prng.below(20) {
            0..6 => self.write(at)?,
            6 => {
                self.tell(format!("{}: flush", self.volumes[at].name));
                self.ask(at, vec![Operation::Flush])?;
            }
            7 => self.check(at)?,
            8..10 => {
                let member = self.prng.below(self.volumes[at].members.len() as u64).to_string();
                // A member that fails its commands is one more than the volume knows of.
                let members = &self.volumes[at].members;
                if !members.iter().any(|(drive, state)| state != "failed" && self.failing.contains(drive)) {
                    self.manage(at, &VolumeRequest::Fail { member });
                }
            }
            10..12 => self.replace(at),
            12..14 => {
                let (drive, may_wipe) = self.any_drive(at);
                let spare = self.path_of(drive).display().to_string();
                self.manage(at, &VolumeRequest::AddSpare { spare, may_wipe, credentials: Default::default() });
            }
            14 => {
                let spare = format!("d{}", self.prng.below(DRIVES as u64));
                self.manage(at, &VolumeRequest::RemoveSpare { spare });
            }
            15 => {
                let is_full = !self.volumes[at].is_full;
                self.set_full(at, is_full);
            }
            16 => self.break_drive(at),
            17 => self.open_a_copy(at)?,
            18 => {
                self.tell(format!("{}: close", self.volumes[at].name));
                self.close(at)?;
                self.keep_file(at);
            }
            _ => {
                self.tell("the program is killed");
                self.bury();
            }
        }
        if self.volumes[at].drive.is_some() {
            let time = Duration::from_micros(1 << self.prng.below(25));
            self.pump(time)?;
        }
        self.look(at);
        Ok(())
    }

    fn operate_closed(&mut self, at: usize) -> Result<(), String> {
        match self.prng.below(12) {
            0..6 => self.open(at)?,
            6 => self.move_drive(),
            7 => self.repair(),
            8 => self.age_file(at),
            9..11 => self.list_spare(at),
            _ => self.keep_file(at),
        }
        Ok(())
    }

    fn manage(&mut self, at: usize, request: &VolumeRequest) {
        let Some(volume) = self.volumes[at].drive.as_mut() else { return };
        let answer = volume.manage(request, &self.ring);
        let said = answer.map_or_else(|error| error.message, |_| "done".to_owned());
        let line = format!("{}: {request:?}: {said}", self.volumes[at].name);
        self.tell(line.replace(&self.directory("").display().to_string(), ""));
        if shelf::is_dead() {
            self.bury();
        }
    }

    fn replace(&mut self, at: usize) {
        let members = &self.volumes[at].members;
        let failed: Vec<usize> = (0..members.len()).filter(|member| members[*member].1 == "failed").collect();
        let Some(&member) = self.prng.pick(&failed) else { return };
        let (drive, may_wipe) = self.any_drive(at);
        let with = self.path_of(drive).display().to_string();
        self.manage(
            at,
            &VolumeRequest::Replace { member: member.to_string(), with, may_wipe, credentials: Default::default() },
        );
    }

    /// A drive, and whether it may be wiped: one that a volume needs never may, whatever the operator thinks.
    fn any_drive(&mut self, at: usize) -> (usize, bool) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let name = format!("d{drive}");
        let is_needed = self.volumes.iter().enumerate().any(|(other, volume)| {
            let is_member = volume.members.iter().any(|(member, state)| *member == drive && state != "failed");
            // Members that have failed are in the file, too: another operator may know better.
            let files = std::iter::once(self.file_of(other)).chain(volume.newest.clone());
            is_member || (other != at && files.into_iter().any(|text| text.contains(&name)))
        });
        (drive, self.prng.chance(2, 3) && !is_needed && self.volumes[at].is_certain)
    }

    /// A member's commands fail from now on, where the volume can do without it.
    fn break_drive(&mut self, at: usize) {
        let Some(report) = self.volumes[at].drive.as_ref().map(VolumeDrive::report) else { return };
        let members = self.volumes[at].members.iter().map(|(drive, _)| *drive).filter(|drive| *drive < DRIVES);
        let members: Vec<usize> = members.collect();
        let Some(&drive) = self.prng.pick(&members) else { return };
        if report.can_lose == 0
            || report.rebuild.is_some()
            || members.iter().any(|member| self.failing.contains(member))
        {
            return;
        }
        self.tell(format!("{}: d{drive} fails its commands", self.volumes[at].name));
        shelf::set_failing(&self.path_of(drive), true);
        self.failing.push(drive);
    }

    fn move_drive(&mut self) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let is_away = !self.away.contains(&drive);
        if is_away && self.volumes.iter().any(|volume| volume.newest.is_some()) {
            // It may be the only member left that an older file names and that knows better.
            return;
        }
        if is_away {
            self.away.push(drive);
        } else {
            self.away.retain(|other| *other != drive);
        }
        self.tell(format!("d{drive} is {}", if is_away { "moved away" } else { "back" }));
        shelf::set_away(&self.path_of(drive), is_away);
    }

    pub(super) fn repair(&mut self) {
        for drive in std::mem::take(&mut self.failing) {
            self.tell(format!("d{drive} works again"));
            shelf::set_failing(&self.path_of(drive), false);
        }
        for drive in std::mem::take(&mut self.away) {
            self.tell(format!("d{drive} is back"));
            shelf::set_away(&self.path_of(drive), false);
        }
    }

    /// A drive that the other volume has or may have is listed as a spare, too.
    fn list_spare(&mut self, at: usize) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let text = self.file_of(at);
        if text.contains(&format!("\"../d{drive}\"")) || self.volumes[at].newest.is_some() {
            return;
        }
        self.tell(format!("{}: d{drive} is listed as a spare", self.volumes[at].name));
        let text = text.replace("spare = []\n", "");
        self.set_file(at, &format!("{text}\n[[spare]]\nat = \"../d{drive}\"\n"));
    }

    fn keep_file(&mut self, at: usize) {
        let text = self.file_of(at);
        let older = &mut self.volumes[at].older;
        older.push(text);
        if older.len() > OLDER_MAX {
            older.remove(0);
        }
    }

    /// `volume.toml` goes back to an older copy; or back to the newest one. It never names only members that are out of date: what it
    /// says is then all that anybody knows.
    fn age_file(&mut self, at: usize) {
        let name = self.volumes[at].name;
        if let Some(newest) = self.volumes[at].newest.take() {
            self.set_file(at, &newest);
            return self.tell(format!("{name}: {VOLUME_FILE} is the newest again"));
        }
        if !self.volumes[at].is_certain {
            return;
        }
        let older = self.volumes[at].older.clone();
        let Some(text) = self.prng.pick(&older) else { return };
        let active = |(drive, state): &(usize, String)| {
            state == "active" && !self.away.contains(drive) && !self.failing.contains(drive)
        };
        let mut active = self.volumes[at].members.iter().filter(|member| active(member));
        if !active.any(|(drive, _)| is_member_in(text, *drive)) {
            return;
        }
        let newest = self.file_of(at);
        self.set_file(at, text);
        let text = text.clone();
        self.volumes[at].newest = Some(newest);
        self.volumes[at].older = vec![text];
        self.tell(format!("{name}: {VOLUME_FILE} is an older one"));
    }

    /// While a volume is open no copy of its directory opens.
    fn open_a_copy(&mut self, at: usize) -> Result<(), String> {
        let copy = self.directory("copy");
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("there is room");
        fs::write(copy.join(VOLUME_FILE), self.file_of(at)).expect("there is room");
        self.tell(format!("{}: a copy of it is opened", self.volumes[at].name));
        let opened = VolumeDrive::open(&copy, &self.ring);
        let is_open = opened.is_ok();
        drop(opened);
        if shelf::is_dead() {
            self.bury();
            return Ok(());
        }
        let has_device =
            self.volumes[at].members.iter().any(|(drive, state)| state != "failed" && !self.away.contains(drive));
        if is_open && has_device {
            return Err("a copy of the directory of a volume that is open has opened".to_owned());
        }
        Ok(())
    }

    /// Mounts a volume, and compares it with what was promised. It may be refused only if something that it needs is missing.
    pub(super) fn open(&mut self, at: usize) -> Result<(), String> {
        let name = self.volumes[at].name;
        let found = self.superblocks();
        self.tell(format!("{name}: superblocks: {found}"));
        let opened = VolumeDrive::open(&self.directory(name), &self.ring);
        if shelf::is_dead() {
            drop(opened);
            self.tell(format!("{name}: open"));
            self.volumes[at].is_certain = false;
            self.bury();
            if self.volumes[at].older.last() != Some(&self.file_of(at)) {
                // It has been written since.
                self.volumes[at].newest = None;
            }
            return Ok(());
        }
        let volume = match opened {
            Ok(volume) => volume,
            Err(error) => {
                self.tell(format!("{name}: refused: {error}").replace(&self.directory("").display().to_string(), ""));
                self.volumes[at].has_parted = self.volumes[at].may_part && error.message.starts_with("split brain");
                return if self.volumes[at].has_parted || self.may_be_refused(at) {
                    Ok(())
                } else {
                    Err(format!("{name} is refused: {error}"))
                };
            }
        };
        let mut volume = volume;
        let notices: Vec<String> = std::iter::from_fn(|| volume.take_notice()).map(|notice| notice.text).collect();
        self.tell(
            format!("{name}: open, {}", notices.join("; ")).replace(&self.directory("").display().to_string(), ""),
        );
        self.volumes[at].drive = Some(volume);
        let is_missing = !self.away.is_empty() || !self.failing.is_empty();
        self.volumes[at].may_part |= is_missing && !self.volumes[at].is_certain;
        // What it has written is the newest from now on.
        self.volumes[at].newest = None;
        self.look(at);
        self.check(at)
    }

    fn may_be_refused(&self, at: usize) -> bool {
        let volume = &self.volumes[at];
        if volume.newest.is_some() {
            return true;
        }
        let is_in_use = |drive: usize| {
            let others = self.volumes.iter().enumerate().filter(|(other, of)| *other != at && of.drive.is_some());
            let text = others.map(|(other, _)| self.file_of(other)).collect::<String>();
            text.contains(&format!("\"../d{drive}\""))
        };
        let is_missing = |drive: usize| self.away.contains(&drive) || self.failing.contains(&drive) || is_in_use(drive);
        let lacking = volume.members.iter().filter(|(drive, state)| state != "active" || is_missing(*drive)).count();
        // Where a crash came in between, others may be in their places.
        let has_missing = !self.away.is_empty() || !self.failing.is_empty() || (0..DRIVES).any(is_in_use);
        if volume.is_certain {
            lacking > volume.tolerates || volume.members.iter().any(|(drive, _)| is_in_use(*drive))
        } else {
            has_missing
        }
    }
}

/// Whether a `volume.toml` has a drive in the place of a member.
fn is_member_in(text: &str, drive: usize) -> bool {
    let members = text.split("[[spare]]").next().unwrap_or(text);
    members.contains(&format!("\"../d{drive}\""))
}
