//! Reports the state of an unmounted volume from its superblocks; nothing is written.

use std::path::Path;

use zonda_initiator::Holder;
use zonda_raid::{Agreement, Identity, Level, MemberIndex, MemberState, Membership, VolumeError};
use zonda_ring::{Ring, RingOptions};

use super::assembly::{are_enough, member_of};
use super::directory::{LastState, MISSING, Place, VolumeDirectory};
use super::identities::{holder, identities};
use super::member_device::is_behind_server;
use super::names::Names;
use super::outdated::must_be_newest;
use super::owner::describe_holder;
use super::report::{MemberSummary, VolumeReport, VolumeState, last_failure};
use crate::DriveError;

impl VolumeReport {
    /// Reports the state of the volume in `path`, which must not be in use, from its superblocks.
    /// Nothing is written, and fields that only a mount determines have their defaults.
    ///
    /// # Errors
    /// When there is no volume, it or one of its members is in use, or no member can be read; with
    /// the remedy.
    pub fn inspect(path: &Path) -> Result<VolumeReport, DriveError> {
        let mut directory = VolumeDirectory::open_read_only(path)?;
        let array = directory.array()?;
        let ring = Ring::new(RingOptions::default()).map_err(|error| {
            DriveError::new(
                format!("cannot create the event loop: {error}"),
                "check the limit on open files (ulimit -n)",
            )
        })?;
        let is_elsewhere = |at: usize| directory.file.member[at].at != MISSING && directory.file.is_taken(at);
        let members = directory.file.member.iter().enumerate().filter(|(at, _)| !is_elsewhere(*at));
        let places: Vec<&Place> = members.map(|(_, place)| place).chain(&directory.file.spare).collect();
        let mut looked = identities(places.iter().map(|place| directory.access(place)).collect(), &ring).into_iter();
        let (mut found, mut missing, mut refusals) = (Vec::new(), None, Vec::new());
        // Whether the holder of members of servers is known, and members that cannot be reached.
        let (mut is_asked, mut unreachable) = (directory.is_last_host(), Vec::new());
        for (at, place) in directory.file.member.iter().enumerate() {
            if is_elsewhere(at) {
                found.push(None);
                continue;
            }
            let member = MemberIndex(at as u8);
            let access = directory.access(place).ok().filter(|access| is_behind_server(&access.location));
            match looked.next().expect("it was probed") {
                Ok(identity) => {
                    if let Some(access) = access.filter(|_| !is_asked && !place.is_free()) {
                        is_asked = true;
                        if let Some(holder) = holder(&access, &ring) {
                            return Err(in_use(&directory, array, at, holder));
                        }
                    }
                    let refusal = identity.as_ref().and_then(|identity| misfit(identity, array, member));
                    let is_other = matches!(refusal, Some(VolumeError::Foreign { .. } | VolumeError::Version { .. }));
                    if is_other && place.is_free() {
                        // A mount treats it as missing.
                        found.push(None);
                        continue;
                    }
                    // A joining device is wiped.
                    let refusal = refusal.filter(|_| place.state != Some(LastState::Joining));
                    refusals.extend(refusal.map(|refusal| (at, refusal)));
                    found.push(Some(identity));
                }
                Err(error) if error.is_in_use && !place.is_free() => {
                    let holder = access.and_then(|access| holder(&access, &ring));
                    return Err(holder.map_or(error, |holder| in_use(&directory, array, at, holder)));
                }
                Err(error) => {
                    if access.is_some() && !error.is_in_use {
                        unreachable.push(at);
                    }
                    let error = error.of_member();
                    missing.get_or_insert_with(|| format!("{} is missing: {error}", place.as_member(at)));
                    found.push(None);
                }
            }
        }
        let own = |identity: Option<&Identity>| match identity {
            Some(Identity::Member(own)) if own.array == array => Some((**own).clone()),
            _ => None,
        };
        let mut memberships: Vec<Option<Membership>> =
            found.iter().map(|identity| own(identity.as_ref().and_then(Option::as_ref))).collect();
        // Spares that have replaced a member, where volume.toml was not updated.
        let (mut spares, mut unreachable_spares, mut reserved_spares) = (Vec::new(), Vec::new(), Vec::new());
        for (place, looked) in directory.file.spare.iter().zip(looked) {
            let is_remote = directory.location(place).is_ok_and(|location| is_behind_server(&location));
            match looked {
                Ok(identity) => spares.extend(own(identity.as_ref())),
                Err(error) if is_remote => {
                    unreachable_spares.push(place.at.clone());
                    reserved_spares.extend(error.is_in_use.then(|| place.at.clone()));
                }
                Err(_) => {}
            }
        }
        // If members have changed since the file was written, a mount updates their entries.
        let moves = moves(&memberships, directory.file.epoch);
        for (from, _) in &moves {
            refusals.retain(|(at, _)| at != from);
        }
        move_all(&moves, &mut memberships, None);
        move_all(&moves, &mut found, None);
        move_all(&moves, &mut directory.file.member, Place::missing());
        for (_, to) in &moves {
            let place = &mut directory.file.member[*to];
            (place.state, place.failed) = (Some(LastState::Active), None);
        }
        let own: Vec<&Membership> = memberships.iter().flatten().chain(&spares).collect();
        let latest = own.iter().copied().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
        let names = Names(&directory.file.member);
        let mut split = None;
        let agreement = Agreement::of(&own, None, directory.file.epoch).unwrap_or_else(|error| {
            split = Some(names.describe(&error).message);
            None
        });
        let agreement = agreement.or_else(|| Some(Agreement { newest: latest?, rejected: Vec::new() }));
        let Some(agreement) = agreement else {
            let what = missing.unwrap_or_else(|| "none has a superblock of this volume".to_owned());
            return Err(DriveError::new(
                format!("cannot read any member of the volume; {what}"),
                "make its members reachable, or correct their locations in volume.toml",
            ));
        };
        let newest = agreement.newest;
        if are_enough(own.iter().copied(), newest) {
            // A mount treats a drive of another volume as missing.
            let (foreign, others): (Vec<_>, Vec<_>) =
                refusals.into_iter().partition(|(_, refusal)| matches!(refusal, VolumeError::Foreign { .. }));
            foreign.iter().for_each(|(at, _)| found[*at] = None);
            refusals = others;
        }
        let refusal = refusals.first().map(|(_, error)| names.describe(error).message);
        let mut refusal = refusal.or(split);
        let members = directory.file.member.iter().enumerate().map(|(at, place)| {
            let member = MemberIndex(at as u8);
            let known = newest.members.get(at);
            let is_known =
                |own: &&Membership| known.is_some_and(|known| own.member == member.0 && own.id() == known.id);
            let spare = spares.iter().position(|own| is_known(&own));
            let own = spare.map(|spare| &spares[spare]).or(memberships[at].as_ref());
            let own = own.filter(|own| own.member == member.0);
            let is_current = own
                .filter(is_known)
                .is_some_and(|own| !agreement.is_older_copy(member, (own.epoch, own.sequence), directory.file.epoch));
            let state = match known.map(|known| known.state) {
                _ if found[at].is_none() && spare.is_none() => "missing",
                Some(MemberState::Active) if is_current => "active",
                Some(MemberState::Rebuilding) if is_current => "rebuilding",
                _ if place.state == Some(LastState::Joining) => "joining",
                _ => "failed",
            };
            MemberSummary {
                member: at as u8,
                at: place.at.clone(),
                state: state.to_owned(),
                epoch: own.map(|own| own.epoch),
                failed: match state {
                    "failed" => last_failure(place).map(|reason| reason.name().to_owned()),
                    "missing" => unreachable.contains(&at).then(|| "cannot be reached".to_owned()),
                    _ => None,
                },
                ..MemberSummary::default()
            }
        });
        let members: Vec<MemberSummary> = members.collect();
        let by_place: Vec<Option<&Membership>> = memberships.iter().map(Option::as_ref).collect();
        let seen_epoch = latest.map_or(0, |latest| latest.epoch);
        let is_new = members.iter().any(|member| {
            let is_member = |own: &&Membership| own.member == member.member && member.state == "active";
            spares.iter().any(|own| is_member(&own))
        });
        if let Err(error) = must_be_newest(&directory.file, &by_place, newest, seen_epoch, is_new || !moves.is_empty())
        {
            refusal.get_or_insert(error.message);
        }
        let (state, can_lose) = judge(newest, &members, refusal.is_some());
        let lost_blocks = directory.file.lost_blocks.unwrap_or(0);
        let state = if lost_blocks > 0 && state != VolumeState::Incomplete { VolumeState::DataLost } else { state };
        Ok(VolumeReport {
            mounted: false,
            name: newest.name.clone(),
            array: directory.file.array.clone(),
            scheme: newest.scheme.map_or_else(|| "of an unknown level".to_owned(), |scheme| scheme.to_string()),
            state,
            refusal,
            can_lose,
            epoch: Some(newest.epoch),
            volume_bytes: newest.volume_blocks * u64::from(newest.block_size_bytes),
            members,
            lost_blocks,
            rates: directory.file.rates,
            spares: directory.file.spare.iter().map(|spare| spare.at.clone()).collect(),
            unreachable_spares,
            reserved_spares,
            ..VolumeReport::default()
        })
    }
}

/// Members whose index in the newest superblock differs from that in the file, if the file has an
/// older epoch: from and to.
fn moves(own: &[Option<Membership>], file_epoch: Option<u64>) -> Vec<(usize, usize)> {
    let newest = own.iter().flatten().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
    let Some(newest) = newest.filter(|newest| file_epoch < Some(newest.epoch)) else { return Vec::new() };
    let known_as = |at: usize| own.get(at).and_then(|own| member_of(own.as_ref()?, newest));
    let known = (0..own.len()).filter_map(|from| Some((from, known_as(from)?)));
    known.filter(|(from, to)| from != to && *to < own.len() && known_as(*to) != Some(*to)).collect()
}

/// Moves all elements simultaneously; `nothing` replaces them.
fn move_all<T: Clone>(moves: &[(usize, usize)], places: &mut [T], nothing: T) {
    let taken: Vec<T> = moves.iter().map(|(from, _)| std::mem::replace(&mut places[*from], nothing.clone())).collect();
    moves.iter().zip(taken).for_each(|((_, to), taken)| places[*to] = taken);
}

/// The error if another server has reserved the volume, and may have mounted it.
pub(super) fn in_use(directory: &VolumeDirectory, array: [u8; 16], at: usize, holder: Holder) -> DriveError {
    let (place, by) = (directory.file.member[at].shown(), describe_holder("volume", &array, &holder));
    let what = format!("the volume is in use: member {at} ({place}) is reserved by {by}");
    let help = format!(
        "run zonda volume status on that server; if it is lost for good or cannot be reached, take the volume over: \
         zonda volume takeover {}",
        directory.path().display()
    );
    DriveError::reserved(what, help, holder)
}

/// Why a mount refuses the device of a member.
fn misfit(identity: &Identity, array: [u8; 16], member: MemberIndex) -> Option<VolumeError> {
    match identity {
        Identity::OtherVersion(found) => Some(VolumeError::Version { member, found: *found }),
        Identity::Member(own) if own.array != array => Some(VolumeError::Foreign { member, volume: own.name.clone() }),
        Identity::Member(own) if own.member != member.0 => {
            let what = format!("it is member {} of the volume \"{}\"; list it at that position", own.member, own.name);
            Some(VolumeError::Member { member, what })
        }
        Identity::Member(_) => None,
    }
}

/// The state that the volume would have if it were mounted now.
fn judge(newest: &Membership, members: &[MemberSummary], is_refused: bool) -> (VolumeState, u32) {
    let count = |state| members.iter().filter(|member| member.state == state).count();
    let bits =
        members.iter().filter(|member| member.state == "active").fold(0, |bits, member| bits | 1 << member.member);
    let active = count("active");
    let Some(scheme) = newest.scheme else { return (VolumeState::Degraded, 0) };
    let away = newest.members.len() - active;
    // RAID 0+1 can survive the loss of half of the members, but not of any two.
    let tolerates = if scheme.level == Level::Raid01 { 1 } else { usize::from(scheme.parity) };
    let state = if is_refused || !scheme.are_enough(bits) {
        VolumeState::Incomplete
    } else if count("rebuilding") + count("joining") > 0 {
        VolumeState::Rebuilding
    } else if away > 0 {
        VolumeState::Degraded
    } else {
        VolumeState::Healthy
    };
    (state, tolerates.saturating_sub(away) as u32)
}
