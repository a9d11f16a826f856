//! Crashes and mounts, members that are replaced, and who of them must not be believed.

use zonda_zoned::{Completion, Duration, Instant};

use super::{Drive, Presence, Promise, Violation, World};
use crate::{Event, MemberIndex, MemberReport, MemberState, Volume, VolumeError};

/// Steps of a mount that is to be cut short, at most.
const STEPS_OF_MOUNT_MAX: u64 = 20_000;

/// Members that missed something that counts: a mount must not believe them.
#[derive(Clone, Debug, Default)]
pub(super) struct Absent {
    /// As bits.
    pub(super) known: u32,
    /// Members that were given up, and the first request after that: they have missed something once a change as late ends.
    pub(super) given_up: Vec<(MemberIndex, u64)>,
}

impl World {
    /// The power goes: the volume is gone, and drives keep what they keep. What was pulled or failing is as it was.
    pub fn crash(&mut self) {
        self.volume_is_gone("the power goes");
        self.model.crash();
        self.drives.iter_mut().for_each(Drive::crash);
    }

    /// The volume's program dies: the volume is gone, and drives end what they were given.
    pub fn die(&mut self) {
        self.volume_is_gone("the program dies");
        self.model.die();
        self.drives.iter_mut().for_each(Drive::finish_alone);
    }

    fn volume_is_gone(&mut self, why: &str) {
        let requests = self.model.under_way();
        self.journal.tell(self.time(), || format!("{why}, with {requests} requests under way"));
        self.journal.lost(self.time(), why);
        self.absent.given_up.clear();
        self.events.clear();
    }

    /// Mounts what is on the drives that are there, but for those `without`, as bits.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(&mut self, without: u32) -> Result<(), Violation> {
        self.begin_mount(without)?;
        self.rest()?;
        if self.volume.is_ready() {
            return self.mounted();
        }
        Err(Violation::new(Promise::Mounts, format!("the volume is not mounted: {:?}", self.events)))
    }

    /// The same, but hosts need not wait until the volume has come to rest.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount_in_haste(&mut self, without: u32) -> Result<(), Violation> {
        self.begin_mount(without)?;
        for _ in 0..STEPS_OF_MOUNT_MAX {
            if self.volume.is_ready() {
                return self.mounted();
            }
            self.step_of_mount()?;
        }
        self.rest()?;
        if self.volume.is_ready() {
            return self.mounted();
        }
        Err(Violation::new(Promise::Mounts, format!("the volume is not mounted: {:?}", self.events)))
    }

    /// Mounts what is there, and returns why that is refused, if it is.
    ///
    /// # Errors
    /// When the mount does not end, or is believed what must not be.
    pub fn try_mount(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        self.may_be_refused = true;
        let ended = self.begin_mount_of(without).and_then(|refused| match refused {
            None => self.rest().map(|()| None),
            refused => Ok(refused),
        });
        self.may_be_refused = false;
        if let Some(error) = ended? {
            self.journal.tell(self.time(), || format!("the mount is refused: {error}"));
            return Ok(Some(error));
        }
        if self.volume.is_ready() {
            return self.mounted().map(|()| None);
        }
        match self.volume.failure() {
            Some(error) => Ok(Some(error.clone())),
            None => Err(Violation::new(Promise::Mounts, format!("the mount does not end: {:?}", self.events))),
        }
    }

    /// The volume is mounted: whoever missed something is known to have missed it.
    fn mounted(&mut self) -> Result<(), Violation> {
        self.model.mounted();
        let members = self.volume.status().members;
        let is_failed = |member: &MemberReport| member.state == MemberState::Failed;
        let failed =
            (0..).zip(&members).filter(|(_, member)| is_failed(member)).fold(0, |bits, (at, _)| bits | 1 << at);
        self.journal.tell(self.time(), || match failed {
            0 => "the volume is mounted".to_owned(),
            _ => format!("the volume is mounted without members {:?}", places(failed)),
        });
        // What was rebuilt since the mount began was not believed.
        let rebuilt = self.events.iter().fold(0, |bits, event| match event {
            Event::Rebuilt { member } => bits | 1 << member.0,
            _ => bits,
        });
        let believed = self.absent.known & !failed & !rebuilt;
        if believed != 0 {
            let what =
                format!("members {:?} have missed what was written without them, and are believed", places(believed));
            return Err(Violation::new(Promise::Members, what));
        }
        self.absent.known = failed;
        Ok(())
    }

    /// Begins to mount, and loses the power after at most `steps`.
    ///
    /// # Errors
    /// When it cannot be mounted, for what is known at once.
    pub fn mount_and_crash(&mut self, without: u32, steps: u64) -> Result<(), Violation> {
        self.begin_mount(without)?;
        for _ in 0..self.prng.below(steps + 1) {
            self.step_of_mount()?;
        }
        self.crash();
        Ok(())
    }

    /// The same, but the power goes when the mount has written to members with so many commands, or is done.
    ///
    /// # Errors
    /// When it cannot be mounted, for what is known at once.
    pub fn mount_and_crash_in_writes(&mut self, without: u32, commands: u64) -> Result<(), Violation> {
        self.begin_mount(without)?;
        let (before, mut steps) = (self.writes(), STEPS_OF_MOUNT_MAX);
        while self.writes() - before < commands && !self.volume.is_ready() && steps > 0 {
            self.step_of_mount()?;
            steps -= 1;
        }
        self.crash();
        Ok(())
    }

    fn writes(&self) -> u64 {
        self.drives.iter().map(Drive::writes).sum()
    }

    fn step_of_mount(&mut self) -> Result<(), Violation> {
        if self.prng.chance(1, 2) {
            self.hand_out_some();
            return Ok(());
        }
        self.move_drive().map(|_| ())
    }

    fn begin_mount(&mut self, without: u32) -> Result<(), Violation> {
        match self.begin_mount_of(without)? {
            None => Ok(()),
            Some(error) => Err(Violation::new(Promise::Mounts, format!("no mount is begun: {error}"))),
        }
    }

    /// Says why no mount can be begun.
    pub(super) fn begin_mount_of(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        let is_there = |at: usize, drive: &Drive| without >> at & 1 == 0 && drive.presence() == Presence::There;
        let geometries =
            self.drives.iter().enumerate().map(|(at, drive)| is_there(at, drive).then(|| drive.geometry().clone()));
        let geometries: Vec<_> = geometries.collect();
        self.before = self.time();
        self.now = Instant::ZERO;
        match Volume::mount(geometries, self.config.tuning.clone(), self.options) {
            Ok(volume) => self.volume = volume,
            Err(error) => return Ok(Some(error)),
        }
        if let Some(bug) = self.bug {
            self.volume.plant(bug);
        }
        self.hear().map(|()| None)
    }

    /// Begins a mount during which members may be lost, and takes so many steps of it.
    ///
    /// # Errors
    /// When it cannot be begun.
    pub fn begin_lossy_mount(&mut self, steps: u64) -> Result<(), Violation> {
        self.may_be_refused = true;
        self.begin_mount(0)?;
        for _ in 0..steps {
            self.step_of_mount()?;
        }
        Ok(())
    }

    /// The mount goes on for so long with the members that are left: it may be refused.
    ///
    /// # Errors
    /// As [`wait`](World::wait).
    pub fn finish_lossy_mount(&mut self, span: Duration) -> Result<(), Violation> {
        self.wait(span)?;
        self.may_be_refused = false;
        Ok(())
    }

    /// Fails a member by command, if it has not failed.
    ///
    /// # Errors
    /// What is wrong with what comes of it.
    pub fn fail(&mut self, at: usize) -> Result<(), Violation> {
        if self.volume.status().members[at].state != MemberState::Failed {
            self.volume.fail_member(self.now, MemberIndex(at as u8));
            self.hear()?;
        }
        Ok(())
    }

    /// Puts an empty device in the place of a member, which is failed if it has not. It is not rebuilt when this returns.
    ///
    /// # Errors
    /// When the volume does not take it.
    pub fn replace(&mut self, at: usize) -> Result<(), Violation> {
        self.fail(at)?;
        let replaced = self.replace_failed(at)?;
        replaced.map_err(|error| Violation::new(Promise::Members, format!("member {at} is not replaced: {error}")))
    }

    /// Puts an empty device in the place of a member that has failed, if the volume takes it.
    ///
    /// # Errors
    /// What is wrong with what comes of it.
    pub fn replace_failed(&mut self, at: usize) -> Result<Result<(), VolumeError>, Violation> {
        let member = MemberIndex(at as u8);
        let geometry = self.drives[at].geometry().clone();
        let id = [0x41 + self.replacements as u8; 16];
        if let Err(error) = self.volume.replace_member(self.now, member, geometry, id) {
            return Ok(Err(error));
        }
        self.replacements += 1;
        let geometry = self.drives[at].geometry().clone();
        let drive = Drive::new(geometry, self.prng.fork(&format!("replacement/{}", self.replacements)));
        let is_volatile = self.config.tuning.is_cache_volatile;
        self.drives[at] = if is_volatile { drive.with_volatile_cache() } else { drive };
        self.absent.known &= !(1 << at);
        self.absent.given_up.retain(|&(other, _)| other != member);
        self.journal.tell(self.time(), || format!("member {at} is replaced by an empty drive"));
        self.hear().map(|()| Ok(()))
    }

    /// Takes a member back that has failed, with what it holds. It is not caught up when this returns.
    ///
    /// # Errors
    /// When the volume does not take it.
    pub fn readd(&mut self, at: usize) -> Result<(), Violation> {
        let member = MemberIndex(at as u8);
        let geometry = self.drives[at].geometry().clone();
        // Whoever gave it commands before is gone.
        self.drives[at].finish_alone();
        self.absent.known &= !(1 << at);
        self.absent.given_up.retain(|&(other, _)| other != member);
        self.journal.tell(self.time(), || format!("member {at} comes back"));
        let taken = self.volume.readd_member(self.now, member, geometry);
        self.hear()?;
        taken.map_err(|error| Violation::new(Promise::Members, format!("member {at} is not taken back: {error}")))
    }

    /// Members that have failed, and of which it is certain that a mount knows it: something was acknowledged since.
    pub(super) fn known_absent(&self) -> u32 {
        self.absent.known
    }

    /// Whoever was given up before a request was submitted that has changed something, has missed that.
    pub(super) fn count_absent(&mut self, completion: &Completion) {
        if self.absent.given_up.is_empty() || !completion.status.is_success() || !self.model.is_write(completion.id) {
            return;
        }
        let Absent { known, given_up } = &mut self.absent;
        given_up.retain(|&(member, first)| {
            let has_missed = completion.id.0 >= first;
            *known |= u32::from(has_missed) << member.0;
            !has_missed
        });
    }
}

/// Which bits are set.
fn places(bits: u32) -> Vec<u32> {
    (0..u32::BITS).filter(|at| bits >> at & 1 == 1).collect()
}
