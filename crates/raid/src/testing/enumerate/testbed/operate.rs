//! Execution of operations.

use std::collections::VecDeque;

use zonda_zoned::Instant;

use super::super::history::CUT_REBUILD_COMMANDS;
use super::super::setup::VOLUME_BLOCKS;
use super::super::{Fault, Op};
use super::{Media, Mounted, Stop, Testbed, begin_mount};
use crate::testing::Request;
use crate::{MemberIndex, MemberState};

impl Testbed {
    /// Executes one operation completely.
    pub(in super::super) fn apply(&mut self, op: Op) -> Result<(), Stop> {
        match op {
            Op::Fail(member) => {
                let after = self.inactive() | 1 << member;
                if after == self.inactive() || after.count_ones() > self.setup.tolerates() {
                    return Err(Stop::Idle);
                }
                self.volume.fail_member(self.now, MemberIndex(member));
            }
            Op::Rebuild => self.replace()?,
            Op::RebuildCut => {
                self.replace()?;
                for _ in 0..CUT_REBUILD_COMMANDS {
                    self.step()?;
                }
                self.power_cut();
                self.remount()?;
            }
            Op::Readd => self.take_back()?,
            Op::ReaddCut(commands) => {
                self.take_back()?;
                for _ in 0..commands {
                    self.step()?;
                }
                self.power_cut();
                self.remount()?;
            }
            Op::Back => {
                self.stop_and_mount(0)?;
                self.quiesce()?;
                self.take_back()?;
            }
            Op::Scrub => self.volume.start_scrub(self.now),
            Op::Fill => {
                for start in (0..VOLUME_BLOCKS).step_by(2) {
                    self.request(&Request::Write { start, blocks: 2.min(VOLUME_BLOCKS - start) })?;
                    self.quiesce()?;
                }
            }
            Op::WriteCut(commands) => {
                Op::WriteBoth.requests().iter().try_for_each(|request| self.request(request))?;
                for _ in 0..commands {
                    self.step()?;
                }
                self.power_cut();
                self.remount()?;
            }
            Op::Remount => self.stop_and_mount(0)?,
            Op::Away(member) => {
                let after = self.inactive() | 1 << member;
                if after == self.inactive() || after.count_ones() > self.setup.tolerates() {
                    return Err(Stop::Idle);
                }
                self.stop_and_mount(1 << member)?;
            }
            Op::FlushFailing => {
                self.fails_flush = true;
                op.requests().iter().try_for_each(|request| self.request(request))?;
            }
            _ => op.requests().iter().try_for_each(|request| self.request(request))?,
        }
        self.quiesce()?;
        self.model.expect_idle()?;
        Ok(())
    }

    /// A power failure: no command in flight takes effect, and caches are lost.
    pub(in super::super) fn power_cut(&mut self) {
        self.model.crash();
        if self.setup.is_cache_volatile {
            for (media, states) in self.media.iter_mut().zip(&self.unflushed) {
                media.clone_from(&states[0]);
            }
        }
        self.media.iter_mut().for_each(Media::power_cycle);
        for (states, media) in self.unflushed.iter_mut().zip(&self.media) {
            *states = vec![media.clone()];
        }
    }

    /// Damages a block of a member while operations are in progress.
    pub(in super::super) fn damage(&mut self, fault: &Fault) {
        if let Fault::Block { member, lba, damage } = *fault {
            self.media[member].damage(lba, damage);
        }
    }

    fn stop_and_mount(&mut self, absent: u32) -> Result<(), Stop> {
        self.request(&Request::Flush)?;
        self.quiesce()?;
        self.model.kill();
        self.absent = absent;
        self.remount()
    }

    fn remount(&mut self) -> Result<(), Stop> {
        self.inactive_before = self.inactive() | self.absent;
        self.volume = begin_mount(self.setup, &self.media, &self.model, self.absent).map_err(Stop::Refused)?;
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.now = Instant::ZERO;
        match self.finish_mount()? {
            Mounted::Ready => Ok(()),
            Mounted::Refused(error) => Err(Stop::Refused(error)),
        }
    }

    fn take_back(&mut self) -> Result<(), Stop> {
        let members = self.volume.status().members;
        let failed: Vec<usize> = (0..members.len()).filter(|&at| members[at].state == MemberState::Failed).collect();
        if failed.is_empty() {
            return Err(Stop::Idle);
        }
        for at in failed {
            self.absent &= !(1 << at);
            // All commands that it received before it failed have completed.
            while let Some(command) = self.queues[at].pop_front() {
                self.media[at].execute(&command);
            }
            let member = MemberIndex(at as u8);
            self.volume.readd_member(self.now, member, self.setup.geometry()).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    fn replace(&mut self) -> Result<(), Stop> {
        let members = self.volume.status().members;
        let failed: Vec<usize> = (0..members.len()).filter(|&at| members[at].state == MemberState::Failed).collect();
        if failed.is_empty() {
            return Err(Stop::Idle);
        }
        for at in failed {
            self.replacements += 1;
            self.absent &= !(1 << at);
            self.media[at] = Media::empty(self.setup.geometry());
            self.unflushed[at] = vec![self.media[at].clone()];
            self.queues[at].clear();
            let id = [0x40 + self.replacements; 16];
            let member = MemberIndex(at as u8);
            self.volume.replace_member(self.now, member, self.setup.geometry(), id).map_err(Stop::Refused)?;
        }
        Ok(())
    }
}
