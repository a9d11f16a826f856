//! Mounts volumes.

use std::path::Path;

use zonda_raid::{MountOptions, Volume};
use zonda_ring::Ring;

use super::assembly::{Assembly, ProbedDevice};
use super::bugs::{OwnerBug, is_seeded};
use super::directory::{LastState, VolumeDirectory};
use super::drive::{Notice, VolumeDrive};
use super::manage::member_named;
use super::member_device::release_acquired;
use super::names::Names;
use super::reservations::ReservationStore;
use super::spares::Other;
use super::start::{started, tuning};
use crate::DriveError;
use crate::opening::OnRing;

/// What an operator accepts, once, of a volume whose mount is refused otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOpenOptions {
    /// Acknowledged writes are lost, and it is not known to which blocks: any block may then have
    /// older data than the last acknowledged write. Later mounts do not refuse these losses again.
    pub accepts_losses: bool,
    /// All members that are present are older than the volume according to `volume.toml`, or a
    /// needed member is an older copy: later writes are lost.
    pub accepts_older: bool,
    /// The volume has split: the side of this member is kept, members of the other side are treated
    /// as failed.
    pub accepts_side: Option<String>,
    /// Failed members are neither replaced by a spare nor re-added, except by request.
    pub keeps_members: bool,
}

impl VolumeOpenOptions {
    /// Whether anything is accepted.
    #[must_use]
    pub fn accepts_any(&self) -> bool {
        self.accepts_losses || self.accepts_older || self.accepts_side.is_some()
    }
}

impl VolumeDrive {
    /// Mounts the volume in `path`. Missing members are replaced by spares; without spares the
    /// volume is degraded.
    ///
    /// # Errors
    /// When there is no volume, it or one of its members is in use, or too many are missing; with
    /// the remedy.
    pub fn open(path: &Path, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        VolumeDrive::open_with(path, &VolumeOpenOptions::default(), ring)
    }

    /// Mounts the volume in `path` with options.
    ///
    /// # Errors
    /// As for [`open`](VolumeDrive::open), except for what the options accept.
    pub fn open_with(path: &Path, accepted: &VolumeOpenOptions, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        VolumeDrive::open_watched(path, accepted, ring, &mut |_| {})
    }

    /// Mounts the volume in `path` with options, and passes progress reports of a long mount to
    /// `watch`.
    ///
    /// # Errors
    /// As of [`open_with`](VolumeDrive::open_with).
    pub fn open_watched(
        path: &Path,
        accepted: &VolumeOpenOptions,
        ring: &Ring,
        watch: &mut dyn FnMut(Notice),
    ) -> Result<VolumeDrive, DriveError> {
        let directory = VolumeDirectory::open(path)?;
        let reservations = ReservationStore::of(&directory)?;
        let side =
            accepted.accepts_side.as_deref().map(|name| member_named(&directory.file.member, name)).transpose()?;
        let mut assembly = Assembly::open(directory, side, ring)?;
        let newest_epoch = if accepted.accepts_older {
            assembly.accept_older()
        } else if let Err(error) = assembly.must_be_newest() {
            assembly.release(ring);
            return Err(error);
        } else {
            assembly.directory.file.epoch
        };
        assembly.put_members_in_their_places();
        assembly.put_spares_in_their_places();
        let Assembly { directory, array, devices, spares, away_spares, newest, seen_epoch, notices, closing, .. } =
            assembly;
        let names = Names(&directory.file.member);
        let (mut member_devices, mut others) = (Vec::new(), Vec::new());
        for (candidate, place) in devices.into_iter().zip(&directory.file.member) {
            let is_joining = place.state == Some(LastState::Joining)
                && !candidate.as_ref().is_some_and(|candidate| candidate.is_known_to(newest.as_deref()));
            match candidate {
                // The device is wiped and rebuilt; the mount must not use its contents.
                Some(ProbedDevice { device, .. }) if is_joining => {
                    member_devices.push(None);
                    others.push(Some(Other::Joining(device)));
                }
                Some(ProbedDevice { device, probed }) => {
                    member_devices.push(Some(device));
                    others.push(probed.is_empty.then_some(Other::Empty));
                }
                None => {
                    member_devices.push(None);
                    others.push(None);
                }
            }
        }
        let block_bytes =
            member_devices.iter().flatten().map(|device| device.own_geometry().block_size_bytes).next().unwrap_or(4096);
        let tuning = tuning(directory.file.reserve_percent, directory.file.rates, block_bytes);
        let geometries =
            member_devices.iter().map(|device| device.as_ref().map(|device| device.own_geometry().clone())).collect();
        let options = MountOptions {
            newest_epoch,
            // If the member with this epoch is lost from here on, the others are not the whole
            // volume.
            seen_epoch: newest.as_deref().map(|newest| newest.epoch).filter(|_| !is_seeded(OwnerBug::NewestForgotten)),
            accepts_losses: accepted.accepts_losses,
            accepts_older: accepted.accepts_older,
            accepts_side: side,
            ..MountOptions::of(array)
        };
        let started = match Volume::mount(geometries, tuning, options) {
            Ok(volume) => started(volume, member_devices, &names, ring, watch),
            Err(error) => Err((names.describe(&error), member_devices)),
        };
        let (on, events) = match started {
            Ok(started) => started,
            Err((error, member_devices)) => {
                let others = others.into_iter().flatten().filter_map(Other::into_device);
                let spares = spares.into_iter().map(|spare| spare.device);
                release_acquired(member_devices.into_iter().flatten().chain(others).chain(spares).chain(closing), ring);
                return Err(error);
            }
        };
        let ids = match &newest {
            Some(newest) => newest.members.iter().map(|member| Some(member.id)).collect(),
            None => vec![None; directory.file.member.len()],
        };
        let mut drive = VolumeDrive::new(on, directory, spares, ids);
        drive.reservations = reservations;
        drive.early_events = events;
        drive.opened_epoch = seen_epoch;
        drive.keeps_members = accepted.keeps_members;
        notices.into_iter().for_each(|text| drive.notify(true, text));
        closing.into_iter().for_each(|device| drive.detach(device, ring.now()));
        let lost_blocks = drive.on.volume().status().lost_blocks;
        if lost_blocks > 0 {
            let count = if lost_blocks == 1 { "1 block".to_owned() } else { format!("{lost_blocks} blocks") };
            let text = format!(
                "data lost: {count} in total; reads of lost blocks fail until they are written or trimmed; list them \
                 with zonda volume status --lost while the volume is served, or with zonda volume check while it is not"
            );
            drive.notify(true, text);
        }
        drive.on_ring = Some(OnRing::of(ring));
        drive.watch_spares(ring.now(), away_spares);
        drive.fill_places(ring.now(), others);
        Ok(drive)
    }
}
