//! Incidents: sequences of events that chance alone hardly ever brings about. See [`Incident`].
//!
//! Each begins with a volume that is ready, and ends with one. Most begin with one whose members are all whole. What is done stays
//! within what the volume tolerates, and then everything must be there; or it does not, and then reads may fail and mounts may be
//! refused for a reason that is documented, and nothing else may be wrong. At the end of an incident of the second kind members are
//! replaced, and the volume is scrubbed: what cannot be read then is lost, everything else must be there from then on.
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

use super::{Atlas, Drive, Incident, Presence, Promise, SwarmRun, Violation};
use crate::{Event, MemberState, VolumeError};

impl SwarmRun {
    /// What takes place after this round of load.
    pub(super) fn incidents(&mut self, round: u64) -> Result<(), Violation> {
        let due = self.swarm.hazards.incidents.clone().into_iter().filter(|(at, _)| *at == round);
        for (_, incident) in due {
            if self.is_over {
                break;
            }
            self.world.tell(|| format!("incident: {}", incident.name()));
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
            self.world.tell(|| format!("the incident is over: {}", incident.name()));
        }
        Ok(())
    }

    fn members(&self) -> usize {
        self.world.drives.len()
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
        let members = self.world.volume.status().members;
        let inactive = (0..).zip(&members).filter(|(_, member)| member.state != MemberState::Active);
        inactive.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// So many members of these, as bits; all of them if they are fewer.
    fn some_members(&self, prng: &mut Prng, of: u32, count: usize) -> u32 {
        let mut left = places(of);
        let count = count.min(left.len());
        (0..count).fold(0, |bits, _| bits | 1 << left.swap_remove(prng.below(left.len() as u64) as usize))
    }

    fn load(&mut self, steps: u64) -> Result<(), Violation> {
        for _ in 0..steps {
            self.steps += 1;
            self.world.step(self.swarm.calm)?;
        }
        Ok(())
    }

    fn make_present(&mut self) {
        self.world.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::There));
    }

    /// All members are active, and none is damaged.
    fn make_whole(&mut self) -> Result<(), Violation> {
        self.calm_down();
        self.make_present();
        self.world.rest()?;
        let is_hurt = self.atlas.as_ref().is_some_and(Atlas::is_hurt);
        if is_hurt && !self.is_healing {
            self.replace_suspects()?;
        }
        if self.is_healing || self.inactive() != 0 {
            self.world.suspects |= self.inactive();
            self.finish_healing()?;
        }
        (self.atlas, self.world.suspects) = (None, 0);
        Ok(())
    }

    /// These members, as bits, may have missed something or be damaged: nobody else is until they are replaced.
    fn hurt_are(&mut self, members: u32) {
        self.atlas = Some(Atlas::of_hurt(members, self.swarm.is_rough, self.swarm.blows));
        self.world.suspects = members;
    }

    /// The power fails, or the program dies. Members that pause or fail are there again first.
    fn stop(&mut self, prng: &mut Prng) {
        self.count();
        self.outcome.crashes += 1;
        let dies = self.swarm.has_deaths && prng.chance(1, 3);
        if dies || !self.swarm.has_power_losses {
            self.world.die();
        } else {
            self.world.crash();
        }
        self.calm_down();
    }

    fn mount(&mut self, without: u32) -> Result<(), Violation> {
        self.outcome.mounts += 1;
        self.world.mount(without)
    }

    /// Mounts, and says why that is refused. The reason must be one of those that are documented; what was in flight is lost then.
    fn try_mount(&mut self, without: u32) -> Result<Option<VolumeError>, Violation> {
        self.outcome.mounts += 1;
        let Some(error) = self.world.try_mount(without)? else { return Ok(None) };
        self.outcome.refused_mounts += 1;
        let is_documented = match &error {
            VolumeError::TooManyMissing { .. }
            | VolumeError::UnidentifiedLosses { .. }
            | VolumeError::OlderThanKnown { .. }
            | VolumeError::SplitBrain { .. }
            | VolumeError::NoVolume { .. } => true,
            VolumeError::Member { what, .. } => what.starts_with("its newest superblock cannot be read"),
            // With metadata in band, what is in a chunk behind a block that cannot be read is not read either.
            VolumeError::Config(what) => {
                self.has_no_members(without) || what.starts_with("the last stripes cannot be read")
            }
            _ => false,
        };
        if !is_documented {
            let what = format!("the mount is refused for a reason that is not documented: {error}");
            return Err(Violation::new(Promise::Mounts, what));
        }
        self.world.crash();
        Ok(Some(error))
    }

    fn has_no_members(&self, without: u32) -> bool {
        let is_there = |(at, drive): (usize, &Drive)| without >> at & 1 == 0 && drive.presence() == Presence::There;
        !self.world.drives.iter().enumerate().any(is_there)
    }

    /// Scrubs the volume. Returns how many blocks were repaired, how many are lost, and how many it says are unreadable still.
    fn scrub(&mut self) -> Result<(u64, u64, u64), Violation> {
        self.world.rest()?;
        self.world.events.retain(|event| !matches!(event, Event::Scrubbed { .. }));
        self.outcome.scrubs += 1;
        self.world.tell(|| "a scrub begins".to_owned());
        self.world.volume.start_scrub(self.world.now());
        self.world.hear()?;
        self.world.rest()?;
        let ended = self.world.events.iter().find_map(|event| match event {
            Event::Scrubbed { mended, lost, unreadable, .. } => Some((*mended, *lost, *unreadable)),
            _ => None,
        });
        ended.ok_or_else(|| {
            Violation::new(Promise::Ends, format!("a scrub does not end: {:?}", self.world.volume.status()))
        })
    }

    /// Scrubs the volume, and once more: the second time nothing may be found. Says whether nothing is left to be repaired: a volume that
    /// has no room to move what misdirected writes have hit says so, and is whole no more.
    fn scrub_twice(&mut self) -> Result<bool, Violation> {
        self.scrub()?;
        let (repaired, lost, unreadable) = self.scrub()?;
        if (repaired, lost) != (0, 0) {
            let what = format!("a second scrub in a row repairs {repaired} blocks, and finds {lost} that are lost");
            return Err(Violation::new(Promise::Contents, what));
        }
        Ok(unreadable == 0 || !self.swarm.hazards.misdirects_writes)
    }

    /// After damage beyond tolerance: members are replaced, the volume is scrubbed, and what cannot be read then is lost. From now on
    /// everything else is there again.
    fn settle_losses(&mut self) -> Result<(), Violation> {
        self.calm_down();
        self.make_present();
        self.world.rest()?;
        let inactive = self.inactive();
        if inactive != 0 {
            self.world.suspects = self.all_members();
            self.finish_healing()?;
            if self.is_over {
                return Ok(());
            }
        }
        self.world.suspects = self.all_members();
        self.scrub_twice()?;
        self.flush()?;
        let lost = self.world.read_each()?;
        let ranges = self.world.volume.lost(zonda_zoned::Lba(0));
        let listed = ranges.flat_map(|range| range.start.0..range.start.0 + range.blocks.0).collect();
        if lost != listed {
            let what = format!("reads of blocks {lost:?} fail, and blocks {listed:?} are listed as lost");
            return Err(Violation::new(Promise::Contents, what));
        }
        self.outcome.lost_blocks += lost.len() as u64;
        self.world.tell(|| format!("{} blocks are lost", lost.len()));
        self.world.model.lose(&lost);
        self.world.model.is_lost = false;
        // A member with one zone for superblocks fails when that is full.
        let hurt = (0..self.members()).filter(|&at| self.world.drives[at].lacks_metadata_zone());
        let hurt = hurt.fold(0_u32, |bits, at| bits | 1 << at);
        self.is_over |= hurt.count_ones() as usize > self.tolerates();
        if hurt == 0 {
            (self.atlas, self.world.suspects) = (None, 0);
        } else {
            self.hurt_are(hurt);
        }
        Ok(())
    }

    /// Everything ends, and is durable.
    fn flush(&mut self) -> Result<(), Violation> {
        self.world.rest()?;
        while !self.world.ask(&super::Request::Flush)? {
            self.world.rest()?;
        }
        self.world.rest()
    }
}

/// Which bits are set.
fn places(bits: u32) -> Vec<usize> {
    (0..u32::BITS as usize).filter(|at| bits >> at & 1 == 1).collect()
}
