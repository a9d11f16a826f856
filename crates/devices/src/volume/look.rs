//! A volume that is looked at without being mounted: its superblocks are read, nothing is written.

use std::path::Path;

use zonda_raid::{Agreement, Identity, Level, MemberState, Membership};
use zonda_ring::{Ring, RingOptions};

use super::directory::{LastState, VolumeDirectory};
use super::open::Names;
use super::report::{MemberSummary, VolumeReport, VolumeState, last_failure};
use crate::look::LookedAt;
use crate::probe::Probe;
use crate::{DriveError, Location, NamespaceOptions, Remote};

impl VolumeReport {
    /// What is known of the volume in `path` that no program uses, without mounting it: what its superblocks say. Nothing is written, and
    /// what only a mount finds out is left at its default.
    ///
    /// # Errors
    /// When there is no volume, it or one of its members is in use, or no member can be read; and what to do.
    pub fn look(path: &Path) -> Result<VolumeReport, DriveError> {
        let directory = VolumeDirectory::look(path)?;
        let array = directory.array()?;
        let ring = Ring::new(RingOptions::default()).map_err(|error| {
            DriveError::new(format!("cannot create the event loop: {error}"), "see how many files may be open")
        })?;
        let (mut found, mut missing) = (Vec::new(), None);
        for (at, place) in directory.file.member.iter().enumerate() {
            match directory.location(place).and_then(|location| identity(&location, &ring)) {
                Ok(identity) => found.push(Some(identity)),
                Err(error) if error.is_in_use => return Err(error),
                Err(error) => {
                    missing.get_or_insert_with(|| format!("member {at} ({}) is not there: {error}", place.at));
                    found.push(None);
                }
            }
        }
        let own = |identity: &Option<Option<Identity>>| match identity {
            Some(Some(Identity::Member(own))) if own.array == array => Some((**own).clone()),
            _ => None,
        };
        let memberships: Vec<Option<Membership>> = found.iter().map(own).collect();
        let own: Vec<&Membership> = memberships.iter().flatten().collect();
        let latest = own.iter().copied().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
        let (newest, mut refusal) = match Agreement::of(&own, None) {
            Ok(agreement) => (agreement.map(|agreement| agreement.newest).or(latest), None),
            Err(error) => (latest, Some(Names(&directory.file.member).in_words(&error).message)),
        };
        let Some(newest) = newest else {
            let what = missing.unwrap_or_else(|| "none of them has a superblock of this volume".to_owned());
            return Err(DriveError::new(format!("no member of the volume can be read; {what}"), "see volume.toml"));
        };
        let members = directory.file.member.iter().enumerate().map(|(at, place)| {
            let known = newest.members.get(at);
            let own = memberships[at].as_ref().filter(|own| usize::from(own.member) == at);
            let is_known = own.zip(known).is_some_and(|(own, known)| own.id() == known.id);
            let state = match known.map(|known| known.state) {
                _ if found[at].is_none() => "missing",
                Some(MemberState::Active) if is_known => "active",
                Some(MemberState::Rebuilding) if is_known => "rebuilding",
                _ if place.state == Some(LastState::Joining) => "joining",
                _ => "failed",
            };
            MemberSummary {
                member: at as u8,
                at: place.at.clone(),
                state: state.to_owned(),
                epoch: own.map(|own| own.epoch),
                failed: last_failure(place).map(|reason| reason.name().to_owned()).filter(|_| state == "failed"),
                ..MemberSummary::default()
            }
        });
        let members: Vec<MemberSummary> = members.collect();
        if let Some(reached) = directory.file.epoch.filter(|reached| *reached > newest.epoch && refusal.is_none()) {
            let epoch = newest.epoch;
            refusal = Some(format!(
                "the members that are present are out of date: the newest has epoch {epoch}, the volume has reached {reached}"
            ));
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
            spares: directory.file.spare.iter().map(|spare| spare.at.clone()).collect(),
            ..VolumeReport::default()
        })
    }
}

/// How the volume would be if it were mounted now.
fn judge(newest: &Membership, members: &[MemberSummary], is_refused: bool) -> (VolumeState, u32) {
    let count = |state| members.iter().filter(|member| member.state == state).count();
    let active = count("active");
    let Some(scheme) = newest.scheme else { return (VolumeState::Degraded, 0) };
    let away = newest.members.len() - active;
    // A mirror of a stripe can be lost with two members, and have all its blocks without half of them.
    let tolerates = if scheme.level == Level::Raid01 { 1 } else { usize::from(scheme.parity) };
    let state = if is_refused || active < usize::from(scheme.data) {
        VolumeState::Incomplete
    } else if count("rebuilding") + count("joining") > 0 {
        VolumeState::Rebuilding
    } else if away > 0 {
        VolumeState::Degraded
    } else {
        VolumeState::Well
    };
    (state, tolerates.saturating_sub(away) as u32)
}

/// Whose superblock a device has.
pub(super) fn identity(location: &Location, ring: &Ring) -> Result<Option<Identity>, DriveError> {
    match location {
        Location::Image(path) => Ok(LookedAt::open(path)?.identity()),
        Location::NvmeTcp(url) => {
            let mut remote = Remote::connect(url, &NamespaceOptions::default(), ring)?;
            let probe =
                Probe::of_superblock(zonda_zoned::ZonedDevice::geometry(&remote, zonda_zoned::NamespaceId::FIRST));
            Ok(probe.run(&mut remote, ring)?.identity)
        }
    }
}
