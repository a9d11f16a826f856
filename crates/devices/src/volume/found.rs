//! [`Found`]: the devices of a volume before it is mounted, and what their superblocks say.

use zonda_raid::{Agreement, MemberIndex, MemberState, Membership};
use zonda_ring::Ring;

use super::directory::{LastState, MISSING, Place, VolumeDirectory};
use super::gathering::gather;
use super::left_behind::take_left_behind;
use super::outdated::must_be_newest;
use super::quorum::{is_last_owner, usable_elsewhere};
use super::seat::{Seat, give_back};
use super::spares::Spare;
use crate::DriveError;
use crate::probe::{Probed, in_words};

/// A device that is open.
pub(super) struct Device {
    pub(super) seat: Seat,
    pub(super) probed: Probed,
}

/// The devices that `volume.toml` names.
pub(super) struct Found {
    pub(super) directory: VolumeDirectory,
    pub(super) array: [u8; 16],
    /// In the places of the members; `None` for those that are missing.
    pub(super) devices: Vec<Option<Device>>,
    pub(super) spares: Vec<Spare>,
    /// Spares that cannot be opened.
    pub(super) away_spares: Vec<Place>,
    /// The newest superblock of the volume that counts.
    pub(super) newest: Option<Box<Membership>>,
    /// The newest epoch of a superblock, also of a side that was not chosen.
    pub(super) seen_epoch: u64,
    /// Notices for the operator.
    pub(super) told: Vec<String>,
    /// Devices in whose place there is another.
    pub(super) leaving: Vec<Seat>,
    /// Spares that the volume knows as members.
    misplaced: Vec<(usize, usize)>,
    /// Members that the volume knows as others, from and to.
    swapped: Vec<(usize, usize)>,
    /// The operator has chosen a side.
    is_chosen: bool,
}

impl Device {
    fn of((seat, probed): (Seat, Option<Probed>)) -> Device {
        Device { seat, probed: probed.expect("it was looked at") }
    }

    /// Of which other volume it is a member, in words.
    fn foreign(&self, array: [u8; 16]) -> Option<String> {
        let is_own = self.probed.membership().is_some_and(|own| own.array == array);
        self.probed.identity.as_ref().filter(|_| !is_own).map(in_words)
    }

    /// The place that the newest superblock gives it.
    fn member_of(&self, newest: &Membership) -> Option<usize> {
        member_of(self.probed.membership()?, newest)
    }

    /// Whether the volume's newest superblock has this device as a member that takes part.
    pub(super) fn is_known_to(&self, newest: Option<&Membership>) -> bool {
        newest.is_some_and(|newest| self.member_of(newest).is_some())
    }
}

/// The place that the newest superblock gives the device with this one.
pub(super) fn member_of(own: &Membership, newest: &Membership) -> Option<usize> {
    let known = newest.members.get(usize::from(own.member)).filter(|_| own.array == newest.array)?;
    (known.id == own.id() && known.state != MemberState::Failed).then_some(usize::from(own.member))
}

impl Found {
    /// Opens what is there. Where members went on without each other, the `side` of this one counts.
    pub(super) fn open(
        mut directory: VolumeDirectory,
        side: Option<MemberIndex>,
        ring: &Ring,
    ) -> Result<Found, DriveError> {
        let array = directory.array()?;
        let (mut devices, mut told) = (Vec::new(), Vec::new());
        let mut first: Option<DriveError> = None;
        let is_elsewhere = |directory: &VolumeDirectory, at: usize| {
            directory.file.member[at].at != MISSING && directory.file.is_taken(at)
        };
        let members = directory.file.member.iter().enumerate().filter(|(at, _)| !is_elsewhere(&directory, *at));
        let members: Vec<(usize, Place)> = members.map(|(at, place)| (at, place.clone())).collect();
        let places = members.iter().map(|(_, place)| place).chain(&directory.file.spare);
        let mut opened = gather(places.map(|place| directory.access(place)).collect(), true, ring);
        told.extend(take_left_behind(&mut directory, array, &members, &mut opened, ring));
        let mut opened = opened.into_iter().map(|gathered| gathered.map(Device::of));
        for (at, place) in directory.file.member.iter().enumerate() {
            if is_elsewhere(&directory, at) {
                told.push(format!("member {at} ({}) is not there: another member is", place.at));
                devices.push(None);
                continue;
            }
            match opened.next().expect("it was gathered") {
                Ok(device) => match device.foreign(array).filter(|_| place.is_free()) {
                    // Its drive has been put to another use.
                    Some(foreign) => {
                        told.push(format!(
                            "member {at} ({}) is not there: the drive is {foreign}; zonda member replace --force takes it all the same",
                            place.at
                        ));
                        give_back([device.seat], ring);
                        devices.push(None);
                    }
                    None => devices.push(Some(device)),
                },
                // It may be well: that is for whoever uses it to say.
                Err(error) if error.is_in_use && !place.is_free() => {
                    let open = devices.into_iter().flatten().chain(opened.flatten());
                    give_back(open.map(|device: Device| device.seat), ring);
                    return Err(in_other_hands(&directory, at, error));
                }
                Err(error) => {
                    let error = error.of_member();
                    told.push(format!("member {at} ({}) is not there: {error}", place.at));
                    let message = format!("member {at} ({}) is not there: {}", place.at, error.message);
                    first.get_or_insert(DriveError { message, ..error });
                    devices.push(None);
                }
            }
        }
        if devices.iter().all(Option::is_none) {
            let first = first.or_else(|| Some(DriveError::new(told.first()?.clone(), "see where they have gone")));
            let first = first.unwrap_or_else(|| DriveError::new("there are none", "zonda volume import finds them"));
            give_back(opened.flatten().map(|device| device.seat), ring);
            return Err(DriveError::new(format!("none of the members is there; {}", first.message), first.help));
        }
        let (mut spares, mut away_spares) = (Vec::new(), Vec::new());
        for (place, opened) in directory.file.spare.iter().zip(opened) {
            match opened {
                Ok(device) => spares.push((place.clone(), device)),
                Err(error) => {
                    told.push(format!("the spare {} is not there: {error}", place.at));
                    away_spares.push(place.clone());
                }
            }
        }
        let granted = devices.iter().flatten().filter_map(|device| device.seat.drive.claimed());
        let granted: Vec<_> = granted.collect();
        for claimed in &granted {
            directory.owner_mut().into_iter().for_each(|owner| owner.granted(claimed));
        }
        let has_remote = directory.note_owner();
        if has_remote {
            // Only looks at the volume need it.
            let _ = directory.save();
        }
        told.extend(unfenced(&directory, &devices));
        let known = devices.iter().flatten().chain(spares.iter().map(|(_, device)| device));
        let own = known.filter_map(|device| device.probed.membership()).filter(|found| found.array == array);
        let own: Vec<&Membership> = own.collect();
        let latest = own.iter().copied().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
        let seen_epoch = latest.map_or(0, |latest| latest.epoch);
        let newest = match Agreement::of(&own, side, directory.file.epoch) {
            Ok(Some(agreement)) => {
                told.extend(rejected_in_words(&directory, &agreement, &own));
                if let (Some(side), true) = (side, agreement.rejected.is_empty()) {
                    told.push(format!(
                        "--accept-side {} has no effect: the members that are present are of one side. Those of another side that are \
                         missing are not rejected, and may be refused when they are back",
                        side.0
                    ));
                }
                Some(agreement.newest)
            }
            // The mount says what is wrong.
            Ok(None) | Err(_) => latest,
        };
        let newest = newest.map(|newest| Box::new(newest.clone()));
        let is_from_here = directory.owner().is_some_and(|owner| {
            let accepts = directory.file.accepts_missing && granted.iter().all(|claimed| owner.had(claimed));
            accepts || is_last_owner(&directory.file, owner, seen_epoch)
        });
        let others_may_use = newest.as_deref().filter(|_| has_remote && !is_from_here);
        let others_may_use = others_may_use.and_then(|newest| {
            let open = devices.iter().flatten().chain(spares.iter().map(|(_, device)| device));
            let here: Vec<usize> = open.filter_map(|device| device.member_of(newest)).collect();
            usable_elsewhere(newest, |at| here.contains(&at), 0)
        });
        if let Some(missing) = others_may_use {
            let error = may_be_used_elsewhere(&directory, &missing);
            let seats = devices.into_iter().flatten().chain(spares.into_iter().map(|(_, device)| device));
            give_back(seats.map(|device| device.seat), ring);
            return Err(error);
        }
        let mut found = Found {
            directory,
            array,
            devices,
            spares: Vec::new(),
            away_spares,
            newest,
            seen_epoch,
            told,
            leaving: Vec::new(),
            misplaced: Vec::new(),
            swapped: Vec::new(),
            is_chosen: side.is_some(),
        };
        found.swapped = found.members_elsewhere();
        for (place, Device { seat, probed }) in spares {
            let same = |device: &Option<Device>| device.as_ref().is_some_and(|one| one.seat.is_same_drive(&seat));
            if let Some(member) = found.devices.iter().position(same) {
                // Its reservation is that of the member, and is not given back.
                found
                    .told
                    .push(format!("the spare {} is not used: it is member {member}, under another name", place.at));
                continue;
            }
            let is_own = probed.membership().is_some_and(|own| own.array == array);
            match &probed.identity {
                Some(identity) if !is_own => {
                    found.told.push(format!(
                        "the spare {} is not used: it is {}; zonda volume spare add --force takes it all the same",
                        place.at,
                        in_words(identity)
                    ));
                    // Its reservation would keep the other volume from its member.
                    found.leaving.push(seat);
                }
                _ => {
                    let newest = found.newest.as_deref().zip(probed.membership());
                    let member = newest.and_then(|(newest, own)| member_of(own, newest));
                    let member = member.filter(|member| *member < found.devices.len());
                    found.misplaced.extend(member.map(|member| (found.spares.len(), member)));
                    found.spares.push(Spare { place, seat });
                }
            }
        }
        Ok(found)
    }

    /// The volume is not mounted: what was reserved is given back.
    pub(super) fn give_back(self, ring: &Ring) {
        let devices = self.devices.into_iter().flatten().map(|device| device.seat);
        give_back(devices.chain(self.spares.into_iter().map(|spare| spare.seat)).chain(self.leaving), ring);
    }

    /// Members that are not in the place in which the newest superblock has them, if the file is older than that. Otherwise somebody has
    /// confused them, which the mount refuses.
    fn members_elsewhere(&self) -> Vec<(usize, usize)> {
        let newest = self.newest.as_deref().filter(|newest| self.directory.file.epoch < Some(newest.epoch));
        let Some(newest) = newest else { return Vec::new() };
        let known_as = |device: &Option<Device>| device.as_ref().and_then(|device| device.member_of(newest));
        let moves = self.devices.iter().enumerate().filter_map(|(from, device)| Some((from, known_as(device)?)));
        let is_there = |to: usize| self.devices.get(to).is_none_or(|device| known_as(device) == Some(to));
        moves.filter(|(from, to)| from != to && !is_there(*to)).collect()
    }

    /// Where members have changed since the file was written, each is put in the place that it has now: the file may be an older copy.
    pub(super) fn put_members_in_their_places(&mut self) {
        let moves = std::mem::take(&mut self.swapped).into_iter().filter_map(|(from, to)| {
            let place = std::mem::replace(&mut self.directory.file.member[from], Place::missing());
            self.told.push(format!("member {from} ({}) is member {to} now: it is put there", place.at));
            Some((to, self.devices[from].take()?, place))
        });
        for (to, device, place) in moves.collect::<Vec<_>>() {
            self.directory.file.member[to] = Place { state: Some(LastState::Active), failed: None, ..place };
            let before = self.devices[to].replace(device);
            self.leaving.extend(before.map(|device| device.seat));
        }
    }

    /// A spare that has stepped in before, and of which `volume.toml` does not know that, is the member that it became.
    pub(super) fn put_spares_in_their_places(&mut self) {
        for (spare, member) in std::mem::take(&mut self.misplaced).into_iter().rev() {
            let Spare { place, seat } = self.spares.remove(spare);
            let other = self.directory.file.member[member].at.clone();
            self.told.push(format!("the spare {} has taken the place of member {member} ({other}) before", place.at));
            self.directory.file.spare.retain(|listed| listed.at != place.at);
            self.directory.file.member[member] = Place { state: Some(LastState::Active), ..place };
            let probed = Probed { is_empty: false, identity: None, read_blocks: 0, zones: Vec::new() };
            let before = self.devices[member].replace(Device { seat, probed });
            self.leaving.extend(before.map(|device| device.seat));
        }
    }

    /// The operator goes on with members that are older than the volume. Returns the epoch that the volume goes on from.
    pub(super) fn accept_older(&mut self) -> Option<u64> {
        let (Some(reached), Some(newest)) = (self.directory.file.epoch, self.newest.as_deref()) else {
            return self.directory.file.epoch;
        };
        if self.must_be_newest().is_ok() {
            return Some(reached);
        }
        self.told.push(format!(
            "older members are accepted: the volume had reached epoch {reached}, these know epoch {}; what was written since is not in the \
             volume",
            newest.epoch
        ));
        // Others may have gone on in the same epoch.
        Some(reached.max(newest.epoch + 1))
    }

    /// Members that are older than the volume are not all of it: what was written since is on others.
    pub(super) fn must_be_newest(&self) -> Result<(), DriveError> {
        let Some(newest) = self.newest.as_deref() else { return Ok(()) };
        let own: Vec<Option<&Membership>> =
            self.devices.iter().map(|device| device.as_ref()?.own(self.array)).collect();
        let is_new = !self.misplaced.is_empty() || !self.swapped.is_empty() || self.is_chosen;
        must_be_newest(&self.directory.file, &own, newest, self.seen_epoch, is_new)
    }
}

impl Device {
    fn own(&self, array: [u8; 16]) -> Option<&Membership> {
        self.probed.membership().filter(|own| own.array == array)
    }
}

/// A member that another program or host has.
fn in_other_hands(directory: &VolumeDirectory, at: usize, error: DriveError) -> DriveError {
    let (Some(holder), Some(owner)) = (error.holder, directory.owner()) else { return error };
    let place = &directory.file.member[at].at;
    let what = format!("member {at} ({place}) is reserved by {}", owner.shown(&holder));
    let help = format!(
        "stop that server; if it has failed for good, or cannot be reached: zonda volume takeover {}",
        directory.path().display()
    );
    DriveError::reserved(what, help, holder)
}

/// Another server may use the volume with the members that are not reached.
fn may_be_used_elsewhere(directory: &VolumeDirectory, missing: &[usize]) -> DriveError {
    let shown = |at: &usize| format!("{at} ({})", directory.file.member.get(*at).map_or("unknown", |place| &place.at));
    let missing = missing.iter().map(shown).collect::<Vec<String>>().join(", ");
    DriveError::new(
        format!(
            "this directory is not known to be the one that the volume was last used from, and cannot ask members {missing}: another server may \
             use the volume with them"
        ),
        format!(
            "see that they can be reached from here; where no other server uses the volume: zonda volume takeover --accept-missing {}",
            directory.path().display()
        ),
    )
}

/// Members whose servers know no reservations.
fn unfenced(directory: &VolumeDirectory, devices: &[Option<Device>]) -> Vec<String> {
    let is_open = |device: &Option<Device>| {
        device.as_ref().is_some_and(|device| device.seat.drive.is_remote() && !device.seat.is_claimed())
    };
    let places = directory.file.member.iter().enumerate().zip(devices);
    let unfenced = places.filter(|(_, device)| is_open(device)).map(|((at, place), _)| (at, &place.at));
    unfenced
        .map(|(at, place)| {
            format!("member {at} ({place}) cannot be reserved: its server lets other hosts write to it; let only this volume connect there")
        })
        .collect()
}

/// What it costs that a side was chosen, for the log.
fn rejected_in_words(directory: &VolumeDirectory, agreement: &Agreement<'_>, own: &[&Membership]) -> Option<String> {
    let at = |member: usize| directory.file.member.get(member).map_or("unknown", |place| place.at.as_str());
    let shown = |member: &MemberIndex| {
        let known = own.iter().find(|one| one.member == member.0);
        let epoch = known.map_or_else(|| "missing".to_owned(), |one| format!("epoch {}", one.epoch));
        format!("{} ({}, {epoch})", member.0, at(usize::from(member.0)))
    };
    let rejected: Vec<String> = agreement.rejected.iter().map(shown).collect();
    (!rejected.is_empty()).then(|| {
        let epoch = agreement.newest.epoch;
        let rejected = rejected.join(", ");
        format!(
            "the side of epoch {epoch} is accepted; members {rejected} are treated as failed: what was written to them alone is not in \
             the volume. They keep it until zonda member replace --force puts them back"
        )
    })
}
