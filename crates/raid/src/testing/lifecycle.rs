//! Crashes and mounts, members that are replaced or re-added, and members that are out of date.

use zonda_zoned::{Completion, Duration, Instant};

use super::{Drive, Presence, Promise, Simulation, Violation};
use crate::{Event, MemberIndex, MemberReport, MemberState, Volume, VolumeError};

/// Maximum steps of a mount that is interrupted.
const STEPS_OF_MOUNT_MAX: u64 = 20_000;

/// Members that missed acknowledged writes: a mount must not treat them as active.
#[derive(Clone, Debug, Default)]
pub(super) struct Absent {
    /// As bits.
    pub(super) known: u32,
    /// Members that failed, and the first request after that: they have missed something once a
    /// change with that id or a later one completes.
    pub(super) failed_members: Vec<(MemberIndex, u64)>,
}

impl Simulation {
    /// Power loss: the volume is dropped, and drives keep what is durable. Removed and failing
    /// drives stay so.
    pub fn crash(&mut self) {
        self.drop_volume("power loss");
        self.model.crash();
        self.drives.iter_mut().for_each(Drive::crash);
    }

    /// Kill of the volume's program: the volume is dropped, and drives complete their commands.
    pub fn kill(&mut self) {
        self.drop_volume("program kill");
        self.model.kill();
        self.drives.iter_mut().for_each(Drive::complete_orphaned);
    }

    fn drop_volume(&mut self, why: &str) {
        let requests = self.model.in_flight();
        self.journal.trace(self.time(), || format!("{why}, with {requests} requests in flight"));
        self.journal.lost(self.time(), why);
        self.absent.failed_members.clear();
        self.events.clear();
    }

    /// Mounts the present drives, except those `without`, as bits.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount(&mut self, without: u32) -> Result<(), Violation> {
        self.begin_mount(without)?;
        self.quiesce()?;
        if self.volume.is_ready() {
            return self.mounted();
        }
        Err(Violation::new(Promise::Mounts, format!("the volume cannot be mounted: {:?}", self.events)))
    }

    /// The same, but returns as soon as the volume is ready, before it is quiescent.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount_until_ready(&mut self, without: u32) -> Result<(), Violation> {
        self.begin_mount(without)?;
        for _ in 0..STEPS_OF_MOUNT_MAX {
            if self.volume.is_ready() {
                return self.mounted();
            }
            self.step_of_mount()?;
        }
        self.quiesce()?;
        if self.volume.is_ready() {
            return self.mounted();
        }
        Err(Violation::new(Promise::Mounts, format!("the volume cannot be mounted: {:?}", self.events)))
    }

    /// Mounts the present drives, and returns why that is refused, if it is.
    ///
    /// # Errors
    /// If the mount does not complete, or members are used that must not be.
    pub fn try_mount(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        self.may_be_refused = true;
        let ended = self.begin_mount_of(without).and_then(|refused| match refused {
            None => self.quiesce().map(|()| None),
            refused => Ok(refused),
        });
        self.may_be_refused = false;
        if let Some(error) = ended? {
            self.journal.trace(self.time(), || format!("the mount is refused: {error}"));
            return Ok(Some(error));
        }
        if self.volume.is_ready() {
            return self.mounted().map(|()| None);
        }
        match self.volume.failure() {
            Some(error) => Ok(Some(error.clone())),
            None => Err(Violation::new(Promise::Mounts, format!("the mount does not complete: {:?}", self.events))),
        }
    }

    /// The volume is mounted: members that are out of date must not be active.
    fn mounted(&mut self) -> Result<(), Violation> {
        self.model.mounted();
        let members = self.volume.status().members;
        let is_failed = |member: &MemberReport| member.state == MemberState::Failed;
        let failed =
            (0..).zip(&members).filter(|(_, member)| is_failed(member)).fold(0, |bits, (at, _)| bits | 1 << at);
        self.journal.trace(self.time(), || match failed {
            0 => "the volume is mounted".to_owned(),
            _ => format!("the volume is mounted without members {:?}", places(failed)),
        });
        // A member that was rebuilt since the mount began was not active at the mount.
        let rebuilt = self.events.iter().fold(0, |bits, event| match event {
            Event::Rebuilt { member } => bits | 1 << member.0,
            _ => bits,
        });
        let believed = self.absent.known & !failed & !rebuilt;
        if believed != 0 {
            let what = format!("members {:?} have missed writes and are treated as active", places(believed));
            return Err(Violation::new(Promise::Members, what));
        }
        self.absent.known = failed;
        Ok(())
    }

    /// Begins to mount, and loses power after at most `steps`.
    ///
    /// # Errors
    /// If it cannot be mounted, as far as that is known at once.
    pub fn mount_and_crash(&mut self, without: u32, steps: u64) -> Result<(), Violation> {
        self.begin_mount(without)?;
        for _ in 0..self.prng.below(steps + 1) {
            self.step_of_mount()?;
        }
        self.crash();
        Ok(())
    }

    /// The same, but the power fails when the mount has sent this many write commands to members,
    /// or is complete.
    ///
    /// # Errors
    /// If it cannot be mounted, as far as that is known at once.
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
            self.send_some();
            return Ok(());
        }
        self.step_drive().map(|_| ())
    }

    fn begin_mount(&mut self, without: u32) -> Result<(), Violation> {
        match self.begin_mount_of(without)? {
            None => Ok(()),
            Some(error) => Err(Violation::new(Promise::Mounts, format!("cannot begin to mount: {error}"))),
        }
    }

    /// Returns why no mount can begin.
    pub(super) fn begin_mount_of(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        let is_there = |at: usize, drive: &Drive| without >> at & 1 == 0 && drive.presence() == Presence::Present;
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
            self.volume.seed_bug(bug);
        }
        self.check_output().map(|()| None)
    }

    /// Begins a mount during which members may be lost, and runs it for this many steps.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn begin_lossy_mount(&mut self, steps: u64) -> Result<(), Violation> {
        self.may_be_refused = true;
        self.begin_mount(0)?;
        for _ in 0..steps {
            self.step_of_mount()?;
        }
        Ok(())
    }

    /// Continues the mount for `span` with the members that are left: it may be refused.
    ///
    /// # Errors
    /// As [`wait`](Simulation::wait).
    pub fn finish_lossy_mount(&mut self, span: Duration) -> Result<(), Violation> {
        self.wait(span)?;
        self.may_be_refused = false;
        Ok(())
    }

    /// Fails a member by command, unless it has failed.
    ///
    /// # Errors
    /// If the volume misbehaves.
    pub fn fail(&mut self, at: usize) -> Result<(), Violation> {
        if self.volume.status().members[at].state != MemberState::Failed {
            self.volume.fail_member(self.now, MemberIndex(at as u8));
            self.check_output()?;
        }
        Ok(())
    }

    /// Replaces a member by an empty device, and fails it first if necessary. Returns before the
    /// rebuild is complete.
    ///
    /// # Errors
    /// If the volume refuses it.
    pub fn replace(&mut self, at: usize) -> Result<(), Violation> {
        self.fail(at)?;
        let replaced = self.replace_failed(at)?;
        replaced.map_err(|error| Violation::new(Promise::Members, format!("cannot replace member {at}: {error}")))
    }

    /// Replaces a failed member by an empty device, if the volume accepts it.
    ///
    /// # Errors
    /// If the volume misbehaves.
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
        self.absent.failed_members.retain(|&(other, _)| other != member);
        self.journal.trace(self.time(), || format!("member {at} is replaced by an empty drive"));
        self.check_output().map(|()| Ok(()))
    }

    /// Re-adds a failed member with its contents. Returns before it has caught up.
    ///
    /// # Errors
    /// If the volume refuses it.
    pub fn readd(&mut self, at: usize) -> Result<(), Violation> {
        let member = MemberIndex(at as u8);
        let geometry = self.drives[at].geometry().clone();
        // Its former commands are orphaned.
        self.drives[at].complete_orphaned();
        self.absent.known &= !(1 << at);
        self.absent.failed_members.retain(|&(other, _)| other != member);
        self.journal.trace(self.time(), || format!("member {at} is re-added"));
        let taken = self.volume.readd_member(self.now, member, geometry);
        self.check_output()?;
        taken.map_err(|error| Violation::new(Promise::Members, format!("cannot re-add member {at}: {error}")))
    }

    /// Members that have failed, and that a mount certainly knows to have failed: something was
    /// acknowledged since.
    pub(super) fn known_absent(&self) -> u32 {
        self.absent.known
    }

    /// A member that failed before a completed change was submitted has missed it.
    pub(super) fn count_absent(&mut self, completion: &Completion) {
        if self.absent.failed_members.is_empty()
            || !completion.status.is_success()
            || !self.model.is_write(completion.id)
        {
            return;
        }
        let Absent { known, failed_members } = &mut self.absent;
        failed_members.retain(|&(member, first)| {
            let has_missed = completion.id.0 >= first;
            *known |= u32::from(has_missed) << member.0;
            !has_missed
        });
    }
}

/// The bits that are set.
fn places(bits: u32) -> Vec<u32> {
    (0..u32::BITS).filter(|at| bits >> at & 1 == 1).collect()
}
