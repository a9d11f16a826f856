//! Incidents: sequences of events that random faults hardly ever produce. See [`Incident`].
//!
//! Each begins and ends with a volume that is ready. Most begin with undamaged members. The faults
//! stay within what the volume tolerates, and then everything must be readable; or they exceed it,
//! and then reads may fail and mounts may be refused for a documented reason, and nothing else may
//! be wrong. At the end of an incident of the second kind members are replaced, and the volume is
//! scrubbed: what cannot be read then is lost, everything else must be readable from then on.
//!
//! | file | incident |
//! |---|---|
//! | `absences.rs` | too many members absent |
//! | `damage.rs` | unreadable blocks and damage beyond tolerance |
//! | `sides.rs` | split brain |
//! | `copies.rs` | old copies of members |
//! | `pauses.rs` | a needed member pauses |
//! | `shared.rs` | a failure of all members |
//! | `scrubs.rs` | losses after a scrub |
//! | `rebuilds.rs` | failures during a rebuild |

mod absences;
mod copies;
mod damage;
mod pauses;
mod rebuilds;
mod scrubs;
mod shared;
mod sides;

use zonda_zoned::Prng;

use super::{Drive, FaultBudget, Incident, Presence, Promise, SwarmRun, Violation};
use crate::{Event, MemberState, VolumeError};

impl SwarmRun {
    /// The incident after this round of load.
    pub(super) fn incidents(&mut self, round: u64) -> Result<(), Violation> {
        let due = self.swarm.hazards.incidents.clone().into_iter().filter(|(at, _)| *at == round);
        for (_, incident) in due {
            if self.is_over {
                break;
            }
            self.simulation.trace(|| format!("incident: {}", incident.name()));
            self.outcome.incidents += 1;
            let prng = &mut Prng::new(self.swarm.seed).fork(&format!("incident/{round}/{}", incident.name()));
            match incident {
                Incident::TooManyAbsent => self.too_many_absent(prng)?,
                Incident::UnreadableBlocks => self.unreadable_blocks(prng)?,
                Incident::Damage => self.damage_beyond_tolerance(prng)?,
                Incident::SplitBrain => self.split_brain(prng)?,
                Incident::OldCopies => self.old_copies(prng)?,
                Incident::NeededMemberPauses => self.needed_member_pauses(prng)?,
                Incident::SharedFailure => self.shared_failure(prng)?,
                Incident::LossAfterScrub => self.loss_after_scrub(prng, false)?,
                Incident::AbsenceAfterScrub => self.loss_after_scrub(prng, true)?,
                Incident::FailedRebuild => self.failed_rebuild(prng, false)?,
                Incident::DamagedRebuild => self.failed_rebuild(prng, true)?,
            }
            self.simulation.trace(|| format!("end of incident: {}", incident.name()));
        }
        Ok(())
    }

    fn members(&self) -> usize {
        self.simulation.drives.len()
    }

    fn all_members(&self) -> u32 {
        (1 << self.members()) - 1
    }

    /// Data chunks of a stripe: the volume cannot be mounted with fewer members.
    fn data_chunks(&self) -> usize {
        usize::from(self.swarm.config.scheme.data)
    }

    /// Members that are not active, as bits.
    fn inactive(&self) -> u32 {
        let members = self.simulation.volume.status().members;
        let inactive = (0..).zip(&members).filter(|(_, member)| member.state != MemberState::Active);
        inactive.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Random members of these, as bits; all of them if they are fewer than `count`.
    fn some_members(&self, prng: &mut Prng, of: u32, count: usize) -> u32 {
        let mut left = places(of);
        let count = count.min(left.len());
        (0..count).fold(0, |bits, _| bits | 1 << left.swap_remove(prng.below(left.len() as u64) as usize))
    }

    fn load(&mut self, steps: u64) -> Result<(), Violation> {
        for _ in 0..steps {
            self.steps += 1;
            self.simulation.step(self.swarm.calm)?;
        }
        Ok(())
    }

    fn make_present(&mut self) {
        self.simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Present));
    }

    /// Makes all members active and undamaged.
    fn repair_members(&mut self) -> Result<(), Violation> {
        self.clear_faults();
        self.make_present();
        self.simulation.quiesce()?;
        let may_have_damage = self.fault_budget.as_ref().is_some_and(FaultBudget::may_have_damage);
        if may_have_damage && !self.is_replacing {
            self.replace_suspects()?;
        }
        if self.is_replacing || self.inactive() != 0 {
            self.simulation.suspects |= self.inactive();
            self.finish_replacements()?;
        }
        (self.fault_budget, self.simulation.suspects) = (None, 0);
        Ok(())
    }

    /// These members, as bits, may be out of date or damaged: no others are until they are
    /// replaced.
    fn set_suspects(&mut self, members: u32) {
        self.fault_budget = Some(FaultBudget::of_damaged(members, self.swarm.is_rough, self.swarm.injected_faults));
        self.simulation.suspects = members;
    }

    /// A power loss, or a kill of the program. Members that pause or fail are present again first.
    fn stop(&mut self, prng: &mut Prng) {
        self.count();
        self.outcome.crashes += 1;
        let dies = self.swarm.has_deaths && prng.chance(1, 3);
        if dies || !self.swarm.has_power_losses {
            self.simulation.kill();
        } else {
            self.simulation.crash();
        }
        self.clear_faults();
    }

    fn mount(&mut self, without: u32) -> Result<(), Violation> {
        self.outcome.mounts += 1;
        self.simulation.mount(without)
    }

    /// Mounts, and returns why that is refused. The reason must be a documented one; requests in
    /// flight are lost then.
    fn try_mount(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        self.outcome.mounts += 1;
        let Some(error) = self.simulation.try_mount(without)? else { return Ok(None) };
        self.outcome.refused_mounts += 1;
        let is_documented = match &error {
            VolumeError::TooManyMissing { .. }
            | VolumeError::UnidentifiedLosses { .. }
            | VolumeError::OlderThanKnown { .. }
            | VolumeError::SplitBrain { .. }
            | VolumeError::NoVolume { .. } => true,
            VolumeError::Member { what, .. } => what.starts_with("its newest superblock cannot be read"),
            // With metadata in band, blocks of a chunk behind an unreadable one are not read
            // either.
            VolumeError::Config(what) => {
                self.has_no_members(without) || what.starts_with("the last stripes cannot be read")
            }
            _ => false,
        };
        if !is_documented {
            let what = format!("the mount is refused for an undocumented reason: {error}");
            return Err(Violation::new(Promise::Mounts, what));
        }
        self.simulation.crash();
        Ok(Some(error))
    }

    fn has_no_members(&self, without: u32) -> bool {
        let is_present = |(at, drive): (usize, &Drive)| without >> at & 1 == 0 && drive.presence() == Presence::Present;
        !self.simulation.drives.iter().enumerate().any(is_present)
    }

    /// Scrubs the volume. Returns the numbers of repaired, lost, and still unreadable blocks.
    fn scrub(&mut self) -> Result<(u64, u64, u64), Violation> {
        self.simulation.quiesce()?;
        self.simulation.events.retain(|event| !matches!(event, Event::Scrubbed { .. }));
        self.outcome.scrubs += 1;
        self.simulation.trace(|| "start of a scrub".to_owned());
        self.simulation.volume.start_scrub(self.simulation.now());
        self.simulation.check_output()?;
        self.simulation.quiesce()?;
        let ended = self.simulation.events.iter().find_map(|event| match event {
            Event::Scrubbed { repaired, lost, unreadable, .. } => Some((*repaired, *lost, *unreadable)),
            _ => None,
        });
        ended.ok_or_else(|| {
            Violation::new(Promise::Ends, format!("a scrub does not complete: {:?}", self.simulation.volume.status()))
        })
    }

    /// Scrubs the volume twice: the second scrub must find nothing. Returns whether nothing is left
    /// to be repaired: a volume that lacks space to move blocks hit by misdirected writes reports
    /// that, and stays damaged.
    fn scrub_twice(&mut self) -> Result<bool, Violation> {
        self.scrub()?;
        let (repaired, lost, unreadable) = self.scrub()?;
        if (repaired, lost) != (0, 0) {
            let what = format!("a second consecutive scrub repairs {repaired} blocks, and finds {lost} lost blocks");
            return Err(Violation::new(Promise::Contents, what));
        }
        Ok(unreadable == 0 || !self.swarm.hazards.misdirects_writes)
    }

    /// After damage beyond tolerance: members are replaced, the volume is scrubbed, and what cannot
    /// be read then is lost. From now on everything else must be readable.
    fn resolve_losses(&mut self) -> Result<(), Violation> {
        self.clear_faults();
        self.make_present();
        self.simulation.quiesce()?;
        let inactive = self.inactive();
        if inactive != 0 {
            self.simulation.suspects = self.all_members();
            self.finish_replacements()?;
            if self.is_over {
                return Ok(());
            }
        }
        self.simulation.suspects = self.all_members();
        self.scrub_twice()?;
        self.flush()?;
        let lost = self.simulation.read_each()?;
        let ranges = self.simulation.volume.lost(zonda_zoned::Lba(0));
        let listed = ranges.flat_map(|range| range.start.0..range.start.0 + range.blocks.0).collect();
        if lost != listed {
            let what = format!("reads of blocks {lost:?} fail, and blocks {listed:?} are listed as lost");
            return Err(Violation::new(Promise::Contents, what));
        }
        self.outcome.lost_blocks += lost.len() as u64;
        self.simulation.trace(|| format!("{} blocks are lost", lost.len()));
        self.simulation.model.lose(&lost);
        self.simulation.model.is_lost = false;
        // A member with one zone for superblocks fails when that is full.
        let damaged = (0..self.members()).filter(|&at| self.simulation.drives[at].lacks_metadata_zone());
        let damaged = damaged.fold(0_u32, |bits, at| bits | 1 << at);
        self.is_over |= damaged.count_ones() as usize > self.tolerates();
        if damaged == 0 {
            (self.fault_budget, self.simulation.suspects) = (None, 0);
        } else {
            self.set_suspects(damaged);
        }
        Ok(())
    }

    /// Everything completes, and is durable.
    fn flush(&mut self) -> Result<(), Violation> {
        self.simulation.quiesce()?;
        while !self.simulation.submit(&super::Request::Flush)? {
            self.simulation.quiesce()?;
        }
        self.simulation.quiesce()
    }
}

/// The bits that are set.
fn places(bits: u32) -> Vec<usize> {
    (0..u32::BITS as usize).filter(|at| bits >> at & 1 == 1).collect()
}
