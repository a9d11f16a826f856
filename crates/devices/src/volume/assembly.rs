//! [`Assembly`]: the open devices of a volume before it is mounted, and their superblocks.

use zonda_raid::{Agreement, Identity, MemberIndex, MemberState, Membership};
use zonda_ring::Ring;

use super::directory::{LastState, MISSING, Place, VOLUME_FILE, VolumeDirectory};
use super::gathering::gather;
use super::lost_members::is_half_elsewhere;
use super::member_device::{MemberDevice, release_acquired};
use super::open_files;
use super::outdated::must_be_newest;
use super::quorum::{is_last_owner, usable_elsewhere};
use super::spares::Spare;
use super::stale_reservations::take_stale_reservations;
use crate::probe::{Probed, describe};
use crate::{DriveError, Location};

/// An open device, and the result of its probe.
pub(super) struct ProbedDevice {
    pub(super) device: MemberDevice,
    pub(super) probed: Probed,
}

/// The devices that are listed in `volume.toml`.
pub(super) struct Assembly {
    pub(super) directory: VolumeDirectory,
    pub(super) array: [u8; 16],
    /// By member; `None` for those that are missing.
    pub(super) devices: Vec<Option<ProbedDevice>>,
    pub(super) spares: Vec<Spare>,
    /// Spares that could not be opened.
    pub(super) away_spares: Vec<Place>,
    /// The newest superblock of the volume, of the side that is mounted.
    pub(super) newest: Option<Box<Membership>>,
    /// The newest epoch of any superblock, including those of a side that was not chosen.
    pub(super) seen_epoch: u64,
    /// Warnings for the log.
    pub(super) notices: Vec<String>,
    /// Devices that were replaced by others.
    pub(super) closing: Vec<MemberDevice>,
    /// Spares that are members by their superblock: index of the spare, and of the member.
    misplaced: Vec<(usize, usize)>,
    /// Members that are other members by their superblock: from and to.
    swapped: Vec<(usize, usize)>,
    /// The operator has chosen a side.
    is_chosen: bool,
}

impl ProbedDevice {
    fn of((device, probed): (MemberDevice, Option<Probed>)) -> ProbedDevice {
        ProbedDevice { device, probed: probed.expect("it was probed") }
    }

    /// Describes the other volume of which the device is a member.
    fn foreign(&self, array: [u8; 16]) -> Option<String> {
        let is_own = self.probed.membership().is_some_and(|own| own.array == array);
        self.probed.identity.as_ref().filter(|_| !is_own).map(describe)
    }

    /// The index of the member that this device is by the newest superblock.
    fn member_of(&self, newest: &Membership) -> Option<usize> {
        member_of(self.probed.membership()?, newest)
    }

    /// Whether the newest superblock has this device as a member that has not failed.
    pub(super) fn is_known_to(&self, newest: Option<&Membership>) -> bool {
        newest.is_some_and(|newest| self.member_of(newest).is_some())
    }
}

/// The index of the member that the device with the superblock `own` is by the newest superblock.
pub(super) fn member_of(own: &Membership, newest: &Membership) -> Option<usize> {
    let known = newest.members.get(usize::from(own.member)).filter(|_| own.array == newest.array)?;
    (known.id == own.id() && known.state != MemberState::Failed).then_some(usize::from(own.member))
}

/// Whether the devices with these superblocks are enough active members of the volume.
pub(super) fn are_enough<'a>(own: impl Iterator<Item = &'a Membership>, newest: &Membership) -> bool {
    let active = own
        .filter_map(|own| member_of(own, newest))
        .filter(|at| newest.members[*at].state == MemberState::Active)
        .fold(0, |bits, at| bits | 1 << at);
    newest.scheme.is_some_and(|scheme| scheme.are_enough(active))
}

/// Whether this is the superblock of a member of another volume.
pub(super) fn is_of_other(identity: &Identity, array: [u8; 16]) -> bool {
    matches!(identity, Identity::Member(own) if own.array != array)
}

/// The notice for a member whose drive is used by another volume now.
fn in_another_volume(place: &Place, at: usize, other: &str) -> String {
    format!("{} is missing: the drive is {other}; zonda member replace --force uses it anyway", place.as_member(at))
}

impl Assembly {
    /// Opens the devices that can be opened. If the volume has split, the `side` of this member is
    /// chosen.
    pub(super) fn open(
        mut directory: VolumeDirectory,
        side: Option<MemberIndex>,
        ring: &Ring,
    ) -> Result<Assembly, DriveError> {
        let array = directory.array()?;
        let (mut devices, mut notices) = (Vec::new(), Vec::new());
        let mut first: Option<DriveError> = None;
        let is_elsewhere = |directory: &VolumeDirectory, at: usize| {
            directory.file.member[at].at != MISSING && directory.file.is_taken(at)
        };
        let members = directory.file.member.iter().enumerate().filter(|(at, _)| !is_elsewhere(&directory, *at));
        let members: Vec<(usize, Place)> = members.map(|(at, place)| (at, place.clone())).collect();
        let places = members.iter().map(|(_, place)| place).chain(&directory.file.spare);
        open_files::must_suffice_for(places.clone().count())?;
        let mut opened = gather(places.map(|place| directory.access(place)).collect(), true, ring);
        notices.extend(take_stale_reservations(&mut directory, array, &members, &mut opened, ring));
        let mut opened = opened.into_iter().map(|gathered| gathered.map(ProbedDevice::of));
        for (at, place) in directory.file.member.iter().enumerate() {
            if is_elsewhere(&directory, at) {
                notices.push(format!("{} is missing: that drive is another member", place.as_member(at)));
                devices.push(None);
                continue;
            }
            match opened.next().expect("each device has a result") {
                Ok(candidate) => match candidate.foreign(array).filter(|_| place.is_free()) {
                    // Its drive is used by another volume now.
                    Some(foreign) => {
                        notices.push(in_another_volume(place, at, &foreign));
                        release_acquired([candidate.device], ring);
                        devices.push(None);
                    }
                    None => devices.push(Some(candidate)),
                },
                // The member is in use, and has not failed.
                Err(error)
                    if error.is_in_use && (!place.is_free() || is_half_elsewhere(&directory, &array, &error)) =>
                {
                    let open = devices.into_iter().flatten().chain(opened.flatten());
                    release_acquired(open.map(|candidate: ProbedDevice| candidate.device), ring);
                    return Err(reserved_by_other(&directory, at, error));
                }
                Err(error) => {
                    let error = error.of_member();
                    notices.push(format!("{} is missing: {error}", place.as_member(at)));
                    let message = format!("{} is missing: {}", place.as_member(at), error.message);
                    first.get_or_insert(DriveError { message, ..error });
                    devices.push(None);
                }
            }
        }
        if devices.iter().all(Option::is_none) {
            let first = first.or_else(|| Some(DriveError::new(notices.first()?.clone(), "check where the drives are")));
            let first =
                first.unwrap_or_else(|| DriveError::new("volume.toml lists none", "recreate it: zonda volume import"));
            release_acquired(opened.flatten().map(|candidate| candidate.device), ring);
            return Err(DriveError::new(
                format!("cannot open any member of the volume; {}", first.message),
                first.help,
            ));
        }
        let (mut spares, mut away_spares) = (Vec::new(), Vec::new());
        for (place, opened) in directory.file.spare.iter().zip(opened) {
            match opened {
                Ok(candidate) => spares.push((place.clone(), candidate)),
                Err(error) => {
                    notices.push(format!("the spare {} is missing: {error}", place.shown()));
                    away_spares.push(place.clone());
                }
            }
        }
        let granted = devices.iter().flatten().filter_map(|candidate| candidate.device.drive.claimed());
        let granted: Vec<_> = granted.collect();
        for claimed in &granted {
            directory.owner_mut().into_iter().for_each(|owner| owner.granted(claimed));
        }
        let has_remote = directory.note_owner();
        if has_remote {
            // Only commands that read an unmounted volume need it.
            let _ = directory.save();
        }
        notices.extend(unfenced(&directory, &devices));
        let known = devices.iter().flatten().chain(spares.iter().map(|(_, candidate)| candidate));
        let own = known.filter_map(|candidate| candidate.probed.membership()).filter(|found| found.array == array);
        let own: Vec<&Membership> = own.collect();
        let latest = own.iter().copied().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
        let seen_epoch = latest.map_or(0, |latest| latest.epoch);
        let newest = match Agreement::of(&own, side, directory.file.epoch) {
            Ok(Some(agreement)) => {
                notices.extend(describe_rejected(&directory, &agreement, &own));
                if let (Some(side), true) = (side, agreement.rejected.is_empty()) {
                    notices.push(format!(
                        "--keep-side {} has no effect: the members that are present are of one side. Missing \
                         members of another side are not rejected, and may be refused when they are back",
                        side.0
                    ));
                }
                Some(agreement.newest)
            }
            // The mount reports the error.
            Ok(None) | Err(_) => latest,
        };
        let newest = newest.map(|newest| Box::new(newest.clone()));
        if newest.as_deref().is_some_and(|newest| are_enough(own.iter().copied(), newest)) {
            drop(own);
            for (at, candidate) in devices.iter_mut().enumerate() {
                let other = candidate.as_ref().and_then(|candidate| candidate.probed.identity.as_ref());
                if let Some(other) = other.filter(|other| is_of_other(other, array)).map(describe) {
                    notices.push(in_another_volume(&directory.file.member[at], at, &other));
                    release_acquired(candidate.take().map(|candidate| candidate.device), ring);
                }
            }
        }
        let is_from_here = directory.owner().is_some_and(|owner| {
            let accepts = directory.file.accepts_missing && granted.iter().all(|claimed| owner.had(claimed));
            accepts || is_last_owner(&directory.file, owner, seen_epoch)
        });
        let others_may_use = newest.as_deref().filter(|_| has_remote && !is_from_here);
        let others_may_use = others_may_use.and_then(|newest| {
            let open = devices.iter().flatten().chain(spares.iter().map(|(_, candidate)| candidate));
            let here: Vec<usize> = open.filter_map(|candidate| candidate.member_of(newest)).collect();
            usable_elsewhere(newest, |at| here.contains(&at), 0)
        });
        if let Some(missing) = others_may_use {
            let error = may_be_used_elsewhere(&directory, &missing);
            let devices = devices.into_iter().flatten().chain(spares.into_iter().map(|(_, candidate)| candidate));
            release_acquired(devices.map(|candidate| candidate.device), ring);
            return Err(error);
        }
        let mut assembly = Assembly {
            directory,
            array,
            devices,
            spares: Vec::new(),
            away_spares,
            newest,
            seen_epoch,
            notices,
            closing: Vec::new(),
            misplaced: Vec::new(),
            swapped: Vec::new(),
            is_chosen: side.is_some(),
        };
        assembly.swapped = assembly.members_elsewhere();
        for (place, ProbedDevice { device, probed }) in spares {
            let same = |candidate: &Option<ProbedDevice>| {
                candidate.as_ref().is_some_and(|one| one.device.is_same_drive(&device))
            };
            if let Some(member) = assembly.devices.iter().position(same) {
                // It shares the reservation of the member, which must not be released.
                assembly.notices.push(format!(
                    "the spare {} is not used: it is member {member}, at another address",
                    place.shown()
                ));
                continue;
            }
            let is_own = probed.membership().is_some_and(|own| own.array == array);
            match &probed.identity {
                Some(identity) if !is_own => {
                    assembly.notices.push(format!(
                        "the spare {} is not used: it is {}; zonda volume spare add --force uses it anyway",
                        place.shown(),
                        describe(identity)
                    ));
                    // Its reservation would lock the other volume out of its member.
                    assembly.closing.push(device);
                }
                _ => {
                    let newest = assembly.newest.as_deref().zip(probed.membership());
                    let member = newest.and_then(|(newest, own)| member_of(own, newest));
                    let member = member.filter(|member| *member < assembly.devices.len());
                    assembly.misplaced.extend(member.map(|member| (assembly.spares.len(), member)));
                    assembly.spares.push(Spare { place, device });
                }
            }
        }
        Ok(assembly)
    }

    /// Closes the devices without a mount, and releases the acquired reservations.
    pub(super) fn release(self, ring: &Ring) {
        let devices = self.devices.into_iter().flatten().map(|candidate| candidate.device);
        release_acquired(devices.chain(self.spares.into_iter().map(|spare| spare.device)).chain(self.closing), ring);
    }

    /// Members that are others by the newest superblock, if `volume.toml` is older than that. If it
    /// is not, an operator has mixed them up, which the mount refuses.
    fn members_elsewhere(&self) -> Vec<(usize, usize)> {
        let newest = self.newest.as_deref().filter(|newest| self.directory.file.epoch < Some(newest.epoch));
        let Some(newest) = newest else { return Vec::new() };
        let known_as =
            |candidate: &Option<ProbedDevice>| candidate.as_ref().and_then(|candidate| candidate.member_of(newest));
        let moves = self.devices.iter().enumerate().filter_map(|(from, candidate)| Some((from, known_as(candidate)?)));
        let is_in_place = |to: usize| self.devices.get(to).is_none_or(|candidate| known_as(candidate) == Some(to));
        moves.filter(|(from, to)| from != to && !is_in_place(*to)).collect()
    }

    /// Updates the entries of members that changed since `volume.toml`, which may be an older copy,
    /// was written.
    pub(super) fn put_members_in_their_places(&mut self) {
        let moves = std::mem::take(&mut self.swapped).into_iter().filter_map(|(from, to)| {
            let place = std::mem::replace(&mut self.directory.file.member[from], Place::missing());
            self.notices
                .push(format!("member {from} ({}) is member {to} now: {VOLUME_FILE} is updated", place.shown()));
            Some((to, self.devices[from].take()?, place))
        });
        for (to, candidate, place) in moves.collect::<Vec<_>>() {
            self.directory.file.member[to] = Place { state: Some(LastState::Active), failed: None, ..place };
            let before = self.devices[to].replace(candidate);
            self.closing.extend(before.map(|candidate| candidate.device));
        }
    }

    /// Moves spares that replaced a member, where `volume.toml` was not updated, to the entry of
    /// that member.
    pub(super) fn put_spares_in_their_places(&mut self) {
        for (spare, member) in std::mem::take(&mut self.misplaced).into_iter().rev() {
            let Spare { place, device } = self.spares.remove(spare);
            let other = self.directory.file.member[member].shown();
            self.notices.push(format!(
                "the spare {} has replaced member {member} ({other}) before: {VOLUME_FILE} is updated",
                place.shown()
            ));
            self.directory.file.spare.retain(|listed| listed.at != place.at);
            self.directory.file.member[member] = Place { state: Some(LastState::Active), ..place };
            let probed = Probed {
                is_empty: false,
                identity: None,
                pool: None,
                remains: None,
                read_blocks: 0,
                zones: Vec::new(),
            };
            let before = self.devices[member].replace(ProbedDevice { device, probed });
            self.closing.extend(before.map(|candidate| candidate.device));
        }
    }

    /// The operator accepts members that are older than the volume. Returns the epoch from which
    /// the volume continues.
    pub(super) fn accept_older(&mut self) -> Option<u64> {
        let (Some(reached), Some(newest)) = (self.directory.file.epoch, self.newest.as_deref()) else {
            return self.directory.file.epoch;
        };
        if self.must_be_newest().is_ok() {
            return Some(reached);
        }
        self.notices.push(format!(
            "older members are accepted: the volume had reached epoch {reached}, these have epoch {}; later writes \
             are lost",
            newest.epoch
        ));
        // Other members may have continued in the same epoch.
        Some(reached.max(newest.epoch + 1))
    }

    /// Refuses members that are older than the volume: later writes are on others.
    pub(super) fn must_be_newest(&self) -> Result<(), DriveError> {
        let Some(newest) = self.newest.as_deref() else { return Ok(()) };
        let own: Vec<Option<&Membership>> =
            self.devices.iter().map(|candidate| candidate.as_ref()?.own(self.array)).collect();
        let is_new = !self.misplaced.is_empty() || !self.swapped.is_empty() || self.is_chosen;
        must_be_newest(&self.directory.file, &own, newest, self.seen_epoch, is_new)
    }
}

impl ProbedDevice {
    fn own(&self, array: [u8; 16]) -> Option<&Membership> {
        self.probed.membership().filter(|own| own.array == array)
    }
}

/// The error for a member that another host has reserved.
fn reserved_by_other(directory: &VolumeDirectory, at: usize, error: DriveError) -> DriveError {
    if let Some(other) = same_image(directory, at) {
        let shown = |at: usize| directory.file.member[at].as_member(at);
        let (first, second) = (at.min(other), at.max(other));
        return DriveError::new(
            format!("{} and {} are the same image: one of them is a symbolic link", shown(first), shown(second)),
            format!(
                "correct the link, or the locations in {}: each member has its own image",
                directory.path().join(VOLUME_FILE).display()
            ),
        );
    }
    let (Some(holder), Some(owner)) = (error.holder, directory.owner()) else { return error };
    let place = directory.file.member[at].shown();
    let what = format!("member {at} ({place}) is reserved by {}", owner.shown(&holder));
    let help = format!(
        "stop that server; if it is lost for good or cannot be reached, take the volume over: zonda volume takeover {}",
        directory.path().display()
    );
    DriveError::reserved(what, help, holder)
}

/// Another member whose location leads to the image of this one.
fn same_image(directory: &VolumeDirectory, at: usize) -> Option<usize> {
    let real = |at: usize| match directory.location(&directory.file.member[at]) {
        Ok(Location::Image(path)) => path.canonicalize().ok(),
        _ => None,
    };
    let own = real(at)?;
    (0..directory.file.member.len()).find(|other| *other != at && real(*other).as_ref() == Some(&own))
}

/// The error if another server may use the volume with the members that cannot be reached.
fn may_be_used_elsewhere(directory: &VolumeDirectory, missing: &[usize]) -> DriveError {
    let shown = |at: &usize| {
        format!("{at} ({})", directory.file.member.get(*at).map_or_else(|| "unknown".to_owned(), Place::shown))
    };
    let plural = if missing.len() == 1 { "" } else { "s" };
    let missing = missing.iter().map(shown).collect::<Vec<String>>().join(", ");
    DriveError::new(
        format!(
            "cannot reach member{plural} {missing}: another server may have assembled the volume with them since it was last \
             assembled from this directory, so that both would write to it"
        ),
        format!(
            "make them reachable from here; if no other server uses the volume: zonda volume takeover \
             --accept-missing {}",
            directory.path().display()
        ),
    )
}

/// Warnings about members whose servers do not support reservations.
fn unfenced(directory: &VolumeDirectory, devices: &[Option<ProbedDevice>]) -> Vec<String> {
    let is_open = |candidate: &Option<ProbedDevice>| {
        candidate.as_ref().is_some_and(|candidate| candidate.device.drive.is_remote() && !candidate.device.is_claimed())
    };
    let places = directory.file.member.iter().enumerate().zip(devices);
    let unfenced = places.filter(|(_, candidate)| is_open(candidate)).map(|((at, place), _)| (at, place.shown()));
    unfenced
        .map(|(at, place)| {
            format!(
                "member {at} ({place}) cannot be reserved: its server does not support reservations; allow only \
                     this volume to connect"
            )
        })
        .collect()
}

/// A warning about the members that were rejected with the other side.
fn describe_rejected(directory: &VolumeDirectory, agreement: &Agreement<'_>, own: &[&Membership]) -> Option<String> {
    let at = |member: usize| directory.file.member.get(member).map_or_else(|| "unknown".to_owned(), Place::shown);
    let shown = |member: &MemberIndex| {
        let known = own.iter().find(|one| one.member == member.0);
        let epoch = known.map_or_else(|| "missing".to_owned(), |one| format!("epoch {}", one.epoch));
        format!("{} ({}, {epoch})", member.0, at(usize::from(member.0)))
    };
    let rejected: Vec<String> = agreement.rejected.iter().map(shown).collect();
    (!rejected.is_empty()).then(|| {
        let epoch = agreement.newest.epoch;
        let (what, them, they_keep) = match rejected.as_slice() {
            [one] => (format!("member {one} is treated as failed"), "it", "It keeps its"),
            _ => (format!("members {} are treated as failed", rejected.join(", ")), "them", "They keep their"),
        };
        format!(
            "the side of epoch {epoch} is accepted; {what}: writes to {them} alone are not in the volume. {they_keep} \
             contents until zonda member replace --force adds {them} back"
        )
    })
}
