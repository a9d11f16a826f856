//! What an operator asks of a volume.

use serde::{Deserialize, Serialize};
use zonda_config::Rate;
use zonda_raid::{MemberIndex, MemberState};
use zonda_ring::Ring;
use zonda_zoned::{NamespaceId, ZonedDevice};

use super::drive::Spare;
use super::open::{blocks_per_second, tuning};
use super::report::VolumeReport;
use super::seat::Seat;
use super::{VolumeDrive, directory::Place};
use crate::{DriveError, Location};

/// What is asked. Members are named by their number, by where they are, or by the last part of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum VolumeRequest {
    /// How it is.
    Report,
    /// A member is given up: nothing is read from it or written to it any more.
    Fail {
        /// Which one.
        member: String,
    },
    /// A device takes the place of a member that has failed; all its zones are reset.
    Replace {
        /// Whose place.
        member: String,
        /// Where the device is; paths are absolute, or seen from the program that has the volume.
        with: String,
        /// Whether what the device holds may go.
        may_wipe: bool,
    },
    /// A device waits for a member to fail.
    AddSpare {
        /// Where it is.
        spare: String,
        /// Whether what it holds may go.
        may_wipe: bool,
    },
    /// A spare is free again.
    RemoveSpare {
        /// Where it is.
        spare: String,
    },
    /// Everything is read and compared.
    Scrub,
    /// A scrub ends where it is.
    StopScrub,
    /// How fast the volume may work for itself from now on.
    Rates {
        /// A rebuild; absent: as fast as members are.
        rebuild: Option<Rate>,
        /// A scrub; absent: 64 MiB/s.
        scrub: Option<Rate>,
    },
}

impl VolumeDrive {
    /// Does what is asked, and says how the volume is then. What takes long goes on in the background.
    ///
    /// # Errors
    /// When it cannot be, and what to do. Nothing is changed then.
    pub fn manage(&mut self, request: &VolumeRequest, ring: &Ring) -> Result<VolumeReport, DriveError> {
        match request {
            VolumeRequest::Report => {}
            VolumeRequest::Fail { member } => self.fail(member, ring)?,
            VolumeRequest::Replace { member, with, may_wipe } => self.replace(member, with, *may_wipe, ring)?,
            VolumeRequest::AddSpare { spare, may_wipe } => self.add_spare(spare, *may_wipe, ring)?,
            VolumeRequest::RemoveSpare { spare } => self.remove_spare(spare, ring)?,
            VolumeRequest::Scrub => {
                self.last_scrub = None;
                self.on.volume_mut().start_scrub(ring.now());
            }
            VolumeRequest::StopScrub => self.on.volume_mut().stop_scrub(),
            VolumeRequest::Rates { rebuild, scrub } => self.set_rates(*rebuild, *scrub),
        }
        Ok(self.report())
    }

    fn fail(&mut self, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        if self.state(member) == MemberState::Failed {
            let error = format!("{} has failed already", self.shown(member));
            return Err(DriveError::new(error, "zonda member replace puts another drive in its place"));
        }
        let is_active = self.state(member) == MemberState::Active;
        if is_active && self.can_lose() == 0 {
            return Err(DriveError::new(
                format!("the volume cannot do without {}", self.shown(member)),
                "wait for the rebuild, or replace the members that have failed first",
            ));
        }
        self.on.volume_mut().fail_member(ring.now(), member);
        Ok(())
    }

    fn replace(&mut self, name: &str, with: &str, may_wipe: bool, ring: &Ring) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        if self.state(member) != MemberState::Failed {
            return Err(DriveError::new(
                format!("{} has not failed", self.shown(member)),
                "zonda member fail gives it up first",
            ));
        }
        // Its own old device may come back.
        self.take_out(ring.now(), member);
        let (place, seat) = self.free_device(with, may_wipe, ring)?;
        self.put_in(ring.now(), member, place, seat)
    }

    fn add_spare(&mut self, spare: &str, may_wipe: bool, ring: &Ring) -> Result<(), DriveError> {
        let (place, seat) = self.free_device(spare, may_wipe, ring)?;
        self.directory.file.spare.push(place.clone());
        self.spares.push(Spare { place, seat });
        self.save();
        for member in self.members() {
            if self.state(member) == MemberState::Failed && self.on.member(member).is_none() {
                self.use_spare(ring.now(), member);
            }
        }
        Ok(())
    }

    fn remove_spare(&mut self, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let Some(at) = self.spares.iter().position(|spare| is_named(&spare.place, name)) else {
            let spares: Vec<&str> = self.spares.iter().map(|spare| spare.place.at.as_str()).collect();
            let help =
                if spares.is_empty() { "it has none".to_owned() } else { format!("it has {}", spares.join(", ")) };
            return Err(DriveError::new(format!("the volume has no spare {name}"), help));
        };
        let Spare { place, seat } = self.spares.remove(at);
        self.directory.file.spare.retain(|spare| *spare != place);
        self.save();
        self.let_go(seat, ring.now());
        Ok(())
    }

    fn set_rates(&mut self, rebuild: Option<Rate>, scrub: Option<Rate>) {
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        self.directory.file.rates = super::VolumeRates { rebuild, scrub };
        let scrub = tuning(0, self.directory.file.rates, block_bytes).scrub_blocks_per_second;
        self.on.volume_mut().set_rates(rebuild.map(|rate| blocks_per_second(rate, block_bytes)), scrub);
        self.save();
    }

    /// A device that is nobody's.
    fn free_device(&self, text: &str, may_wipe: bool, ring: &Ring) -> Result<(Place, Seat), DriveError> {
        let location: Location = text.parse().map_err(|error: zonda_config::ConfigError| {
            DriveError::new(error.message, error.help.unwrap_or_default())
        })?;
        let mut seat = Seat::open(&location, ring)?;
        if !may_wipe && !seat.is_empty(ring)? {
            return Err(DriveError::new(
                format!("{text} is not empty"),
                "name another drive, or say --force if nobody needs what is on it: it is then gone",
            ));
        }
        Ok((self.directory.place(&location), seat))
    }

    fn member_named(&self, name: &str) -> Result<MemberIndex, DriveError> {
        let places = &self.directory.file.member;
        let number = name.parse().ok().filter(|number| *number < places.len());
        let named = || {
            let mut found = places.iter().enumerate().filter(|(_, place)| is_named(place, name)).map(|(at, _)| at);
            found.next().filter(|_| found.next().is_none())
        };
        number.or_else(named).map(|at| MemberIndex(at as u8)).ok_or_else(|| {
            let members: Vec<String> =
                places.iter().enumerate().map(|(at, place)| format!("{at} ({})", place.at)).collect();
            DriveError::new(format!("the volume has no member {name}"), format!("it has {}", members.join(", ")))
        })
    }
}

/// Whether somebody who says `name` means this place: all of it, or its last part.
fn is_named(place: &Place, name: &str) -> bool {
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
    place.at == name || (last(&place.at).is_some() && last(&place.at) == last(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_as_people_name_them() {
        let place = Place { at: "../drives/b".to_owned() };
        for name in ["../drives/b", "drives/b", "b", "b/"] {
            assert!(is_named(&place, name), "{name}");
        }
        for name in ["a", "drives", "", "bb"] {
            assert!(!is_named(&place, name), "{name}");
        }
    }
}
