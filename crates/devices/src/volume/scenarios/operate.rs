//! The random operations of a run, and their expected results.

use std::fs;

use zonda_zoned::{Duration, Operation};

use super::run::{DRIVES, Run};
use crate::mock;
use crate::volume::{VOLUME_FILE, VolumeDrive, VolumeRequest};

/// Saved older copies of `volume.toml` of each volume.
const OLDER_MAX: usize = 4;

impl Run {
    /// Executes a random operation.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        let at = self.prng.below(self.volumes.len() as u64) as usize;
        if self.prng.chance(1, 6) {
            let steps = 1 + self.prng.below(40);
            self.log(format!("a crash comes in {steps} steps"));
            mock::crash_in(Some(steps));
        }
        if self.volumes[at].has_split {
            return Ok(());
        }
        if self.volumes[at].drive.is_some() { self.operate_open(at) } else { self.operate_closed(at) }
    }

    fn operate_open(&mut self, at: usize) -> Result<(), String> {
        match self.prng.below(20) {
            0..6 => self.write(at)?,
            6 => {
                self.log(format!("{}: flush", self.volumes[at].name));
                self.ask(at, vec![Operation::Flush])?;
            }
            7 => self.check(at)?,
            8..10 => {
                let member = self.prng.below(self.volumes[at].members.len() as u64).to_string();
                // A member that fails its commands may not have failed for the volume yet.
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
                self.log(format!("{}: close", self.volumes[at].name));
                self.close(at)?;
                self.keep_file(at);
            }
            _ => {
                self.log("the program is killed");
                self.reap();
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
        let result = answer.map_or_else(|error| error.message, |_| "done".to_owned());
        let line = format!("{}: {request:?}: {result}", self.volumes[at].name);
        self.log(line.replace(&self.directory("").display().to_string(), ""));
        if mock::has_crashed() {
            self.reap();
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

    /// A random drive, and whether it may be wiped: never one that a volume needs.
    fn any_drive(&mut self, at: usize) -> (usize, bool) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let name = format!("d{drive}");
        let is_needed = self.volumes.iter().enumerate().any(|(other, volume)| {
            let is_member = volume.members.iter().any(|(member, state)| *member == drive && state != "failed");
            // Failed members that are in the file of the other volume are not wiped, either.
            let files = std::iter::once(self.file_of(other)).chain(volume.newest.clone());
            is_member || (other != at && files.into_iter().any(|text| text.contains(&name)))
        });
        (drive, self.prng.chance(2, 3) && !is_needed && self.volumes[at].is_certain)
    }

    /// Makes the commands of a redundant member fail.
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
        self.log(format!("{}: d{drive} fails its commands", self.volumes[at].name));
        mock::set_failing(&self.path_of(drive), true);
        self.failing.push(drive);
    }

    fn move_drive(&mut self) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let is_away = !self.away.contains(&drive);
        if is_away && self.volumes.iter().any(|volume| volume.newest.is_some()) {
            // It may be the only member in an older file that has the newest epoch.
            return;
        }
        if is_away {
            self.away.push(drive);
        } else {
            self.away.retain(|other| *other != drive);
        }
        self.log(format!("d{drive} is {}", if is_away { "moved away" } else { "back" }));
        mock::set_away(&self.path_of(drive), is_away);
    }

    pub(super) fn repair(&mut self) {
        for drive in std::mem::take(&mut self.failing) {
            self.log(format!("d{drive} works again"));
            mock::set_failing(&self.path_of(drive), false);
        }
        for drive in std::mem::take(&mut self.away) {
            self.log(format!("d{drive} is back"));
            mock::set_away(&self.path_of(drive), false);
        }
    }

    /// Adds a drive that the other volume uses or may use to the spares in `volume.toml`.
    fn list_spare(&mut self, at: usize) {
        let drive = self.prng.below(DRIVES as u64) as usize;
        let text = self.file_of(at);
        if text.contains(&format!("\"../d{drive}\"")) || self.volumes[at].newest.is_some() {
            return;
        }
        self.log(format!("{}: d{drive} is listed as a spare", self.volumes[at].name));
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

    /// Replaces `volume.toml` by an older copy, or restores the newest one. An older copy must list
    /// a member that is up to date: otherwise nothing could show that the others are not.
    fn age_file(&mut self, at: usize) {
        let name = self.volumes[at].name;
        if let Some(newest) = self.volumes[at].newest.take() {
            self.set_file(at, &newest);
            return self.log(format!("{name}: {VOLUME_FILE} is the newest again"));
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
        self.log(format!("{name}: {VOLUME_FILE} is an older one"));
    }

    /// Opens a copy of the directory of an open volume, which must be refused.
    fn open_a_copy(&mut self, at: usize) -> Result<(), String> {
        let copy = self.directory("copy");
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).expect("there is space");
        fs::write(copy.join(VOLUME_FILE), self.file_of(at)).expect("there is space");
        self.log(format!("{}: a copy of it is opened", self.volumes[at].name));
        let opened = VolumeDrive::open(&copy, &self.ring);
        let is_open = opened.is_ok();
        drop(opened);
        if mock::has_crashed() {
            self.reap();
            return Ok(());
        }
        let has_device =
            self.volumes[at].members.iter().any(|(drive, state)| state != "failed" && !self.away.contains(drive));
        if is_open && has_device {
            return Err("a copy of the directory of a volume that is open has opened".to_owned());
        }
        Ok(())
    }

    /// Mounts a volume, and checks its contents. The mount may be refused only if a needed member
    /// is missing.
    pub(super) fn open(&mut self, at: usize) -> Result<(), String> {
        let name = self.volumes[at].name;
        let found = self.superblocks();
        self.log(format!("{name}: superblocks: {found}"));
        let opened = VolumeDrive::open(&self.directory(name), &self.ring);
        if mock::has_crashed() {
            drop(opened);
            self.log(format!("{name}: open"));
            self.volumes[at].is_certain = false;
            self.reap();
            if self.volumes[at].older.last() != Some(&self.file_of(at)) {
                // It has been written since.
                self.volumes[at].newest = None;
            }
            return Ok(());
        }
        let volume = match opened {
            Ok(volume) => volume,
            Err(error) => {
                self.log(format!("{name}: refused: {error}").replace(&self.directory("").display().to_string(), ""));
                self.volumes[at].has_split = self.volumes[at].may_split && error.message.starts_with("split brain");
                return if self.volumes[at].has_split || self.may_be_refused(at) {
                    Ok(())
                } else {
                    Err(format!("{name} is refused: {error}"))
                };
            }
        };
        let mut volume = volume;
        let notices: Vec<String> = std::iter::from_fn(|| volume.take_notice()).map(|notice| notice.text).collect();
        self.log(
            format!("{name}: open, {}", notices.join("; ")).replace(&self.directory("").display().to_string(), ""),
        );
        self.volumes[at].drive = Some(volume);
        let is_missing = !self.away.is_empty() || !self.failing.is_empty();
        self.volumes[at].may_split |= is_missing && !self.volumes[at].is_certain;
        // Its file is the newest one from now on.
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
        // After a crash in between, the members may have other drives.
        let has_missing = !self.away.is_empty() || !self.failing.is_empty() || (0..DRIVES).any(is_in_use);
        if volume.is_certain {
            lacking > volume.tolerates || volume.members.iter().any(|(drive, _)| is_in_use(*drive))
        } else {
            has_missing
        }
    }
}

/// Whether a drive is a member in a `volume.toml`.
fn is_member_in(text: &str, drive: usize) -> bool {
    let members = text.split("[[spare]]").next().unwrap_or(text);
    members.contains(&format!("\"../d{drive}\""))
}
