//! Creates and mounts volumes.

use std::collections::VecDeque;
use std::path::Path;

use zonda_config::{ByteSize, Rate};
use zonda_isal::Isal;
use zonda_raid::{Event, MemberIndex, MountOptions, Scheme, Tuning, Volume, VolumeConfig, VolumeDevice};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, ZonedDevice};

use super::adopt::Wipe;
use super::assembly::{Assembly, ProbedDevice};
use super::bugs::{OwnerBug, is_seeded};
use super::directory::{LastState, Place, VOLUME_FILE, VolumeDirectory, VolumeRates};
use super::drive::{Notice, VolumeDrive};
use super::manage::member_named;
use super::member_device::{MemberDevice, release_acquired};
use super::names::Names;
use super::reservations::ReservationStore;
use super::spares::{Other, Spare};
use crate::opening::OnRing;
use crate::probe::{Probe, Probed, describe};
use crate::{Credentials, DriveError, Location, random};

/// If the block format of the members has no metadata, each chunk has a block of it: with chunks of
/// one block that would be half of the volume, with these it is a fifth.
const IN_BAND_UNIT_BLOCKS: u32 = 4;

/// Stripes in a group for small requests. Members are flushed between groups, of some megabytes.
const SMALL_GROUP_STRIPES: u32 = 1024;
/// Stripes in a group for large requests.
const LARGE_GROUP_STRIPES: u32 = 64;

/// Interval of progress reports of a long mount.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// The parameters of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its members, in order.
    pub members: Vec<Location>,
    /// Devices that replace members that fail.
    pub spares: Vec<Location>,
    /// The RAID level and geometry.
    pub scheme: Scheme,
    /// The size of the export; `None` is all space but the reserve.
    pub size: Option<ByteSize>,
    /// Space reserved for garbage collection, in percent.
    pub reserve_percent: u8,
    /// Blocks of a chunk in segments for small requests; `None` is 1, or 4 if the block format of
    /// the members has no metadata.
    pub small_unit_blocks: Option<u32>,
    /// Rate limits of background operations.
    pub rates: VolumeRates,
    /// Whether members and spares may be wiped if they are not empty.
    pub may_wipe: bool,
    /// Credentials for members and spares of servers; paths are relative to the program.
    pub credentials: Credentials,
}

impl NewVolume {
    /// A volume of these members, which must be empty: of all their space but the default reserve,
    /// without spares and credentials.
    #[must_use]
    pub fn over(members: Vec<Location>, scheme: Scheme) -> NewVolume {
        NewVolume {
            members,
            spares: Vec::new(),
            scheme,
            size: None,
            reserve_percent: Tuning::default().reserve_percent,
            small_unit_blocks: None,
            rates: VolumeRates::default(),
            may_wipe: false,
            credentials: Credentials::default(),
        }
    }
}

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
    /// Creates a volume in `path`, which must be empty, not exist, or have a volume whose creation
    /// was interrupted: that is then continued. Its members are wiped.
    ///
    /// # Errors
    /// When members are unsuitable, in use, or not empty without permission to wipe them; with the
    /// remedy. If nothing was written yet, the directory is as before; otherwise the same call
    /// continues.
    pub fn create(path: &Path, new: &NewVolume, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        let mut directory = VolumeDirectory::make(path, &random::uuid()?)?;
        let was_interrupted = directory.was_interrupted();
        directory.file.reserve_percent = new.reserve_percent;
        directory.file.rates = new.rates;
        let place = |location| directory.place(location).with_credentials(path, &new.credentials);
        let (members, spares) = (new.members.iter().map(place).collect(), new.spares.iter().map(place).collect());
        (directory.file.member, directory.file.spare) = (members, spares);
        directory.note_owner();
        let begun = begin(&directory, new, was_interrupted, ring).and_then(|begun| {
            // From here on members are written: the array is saved before, so that a repeated
            // command continues it.
            match directory.save().and_then(|()| directory.sync_name()) {
                Ok(()) => Ok(begun),
                Err(error) => {
                    release_acquired(
                        begun.member_devices.into_iter().chain(begun.spares.into_iter().map(|spare| spare.device)),
                        ring,
                    );
                    Err(cannot_save(&directory, &error))
                }
            }
        });
        let Begun { volume, member_devices, mut spares, ids } = match begun {
            Ok(begun) => begun,
            Err(error) => {
                if !was_interrupted {
                    directory.remove();
                }
                return Err(error);
            }
        };
        for spare in spares.iter_mut().filter(|spare| spare.is_of_volume) {
            wipe_superblocks(&mut spare.device, ring)?;
        }
        let spares = spares.into_iter().map(|CheckedSpare { place, device, .. }| Spare { place, device }).collect();
        let member_devices = member_devices.into_iter().map(Some).collect();
        let started = started(volume, member_devices, &Names(&directory.file.member), ring, &mut |_| {});
        let (on, _) = started.map_err(|(error, member_devices)| {
            release_acquired(member_devices.into_iter().flatten(), ring);
            error
        })?;
        directory.file.state = None;
        directory.file.member.iter_mut().for_each(|member| member.state = Some(LastState::Active));
        directory.save().map_err(|error| cannot_save(&directory, &error))?;
        let mut drive = VolumeDrive::new(on, directory, spares, ids.into_iter().map(Some).collect());
        drive.on_ring = Some(OnRing::of(ring));
        drive.fill_places(ring.now(), Vec::new());
        Ok(drive)
    }

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

/// A spare of a new volume.
struct CheckedSpare {
    place: Place,
    device: MemberDevice,
    /// It has the superblock of another volume, which may be wiped.
    is_of_volume: bool,
}

/// A new volume that has written nothing yet.
struct Begun {
    volume: Volume,
    member_devices: Vec<MemberDevice>,
    spares: Vec<CheckedSpare>,
    ids: Vec<[u8; 16]>,
}

fn begin(
    directory: &VolumeDirectory,
    new: &NewVolume,
    was_interrupted: bool,
    ring: &Ring,
) -> Result<Begun, DriveError> {
    let mut opened = Vec::new();
    let checked = open_all(directory, new, was_interrupted, ring, &mut opened)
        .and_then(|()| planned(directory, new, opened.iter().map(|(device, _)| device)));
    match checked {
        Ok((volume, ids)) => {
            let spares = opened.split_off(new.members.len()).into_iter().zip(&directory.file.spare);
            let spares = spares.map(|((device, is_of_volume), place)| CheckedSpare {
                place: place.clone(),
                device,
                is_of_volume,
            });
            let spares = spares.collect();
            Ok(Begun { volume, member_devices: opened.into_iter().map(|(device, _)| device).collect(), spares, ids })
        }
        Err(error) => {
            release_acquired(opened.into_iter().map(|(device, _)| device), ring);
            Err(error)
        }
    }
}

/// Opens members, then spares, and determines whether each has the superblock of a volume. After an
/// error, `opened` has the devices that are open.
fn open_all(
    directory: &VolumeDirectory,
    new: &NewVolume,
    was_interrupted: bool,
    ring: &Ring,
    opened: &mut Vec<(MemberDevice, bool)>,
) -> Result<(), DriveError> {
    let array = directory.array()?;
    let places = directory.file.member.iter().chain(&directory.file.spare);
    for (location, place) in new.members.iter().chain(&new.spares).zip(places) {
        opened.push((MemberDevice::open(&directory.access(place)?, ring)?, false));
        let (device, is_of_volume) = opened.last_mut().expect("it was opened");
        if device.own_geometry().conventional_zone_count > 0 {
            return Err(DriveError::new(
                format!("{location} has conventional zones: drives of a volume have only sequential zones"),
                "name another drive, such as an image of profile zn540",
            ));
        }
        let probed = Probe::of_all(device.own_geometry()).run(device, ring)?;
        *is_of_volume = probed.identity.is_some();
        // Superblocks of an interrupted creation are not those of a volume.
        let is_own = was_interrupted && probed.membership().is_some_and(|found| found.array == array);
        if !new.may_wipe && !is_own {
            must_be_free(&location.to_string(), &probed)?;
        }
    }
    Ok(())
}

/// The volume on the first of these devices, which writes nothing yet, and the identifiers of its
/// members.
fn planned<'a>(
    directory: &VolumeDirectory,
    new: &NewVolume,
    opened: impl Iterator<Item = &'a MemberDevice> + Clone,
) -> Result<(Volume, Vec<[u8; 16]>), DriveError> {
    let (names, array) = (Names(&directory.file.member), directory.array()?);
    let shown = new.members.iter().chain(&new.spares).map(ToString::to_string);
    must_be_different_drives(shown.zip(opened.clone()))?;
    let member_devices: Vec<&MemberDevice> = opened.take(new.members.len()).collect();
    let Some(first) = member_devices.first() else {
        return Err(DriveError::new("a volume needs members", "name at least one with --members"));
    };
    let block_bytes = first.own_geometry().block_size_bytes;
    let mut config = VolumeConfig::new(&directory.file.name, new.scheme);
    config.tuning = tuning(new.reserve_percent, new.rates, block_bytes);
    config.volume_blocks = new.size.map(|size| size.0 / u64::from(block_bytes));
    let has_metadata =
        member_devices.iter().all(|device| device.own_geometry().metadata_bytes as usize >= zonda_raid::METADATA_BYTES);
    config.small.unit_blocks = match new.small_unit_blocks {
        Some(blocks) => blocks,
        None if has_metadata => 1,
        None => IN_BAND_UNIT_BLOCKS,
    };
    config.small.group_stripes = SMALL_GROUP_STRIPES;
    let appended_blocks =
        member_devices.iter().map(|device| device.own_geometry().max_append_blocks.0).min().unwrap_or(0);
    if appended_blocks >= u64::from(config.large.unit_blocks) {
        config.large.group_stripes = LARGE_GROUP_STRIPES;
    }
    let ids = new.members.iter().map(|_| random::uuid()).collect::<Result<Vec<_>, _>>()?;
    let geometries = member_devices.iter().map(|device| device.own_geometry().clone()).collect();
    let volume = Volume::create(config, geometries, array, &ids, true).map_err(|error| names.describe(&error))?;
    Ok((volume, ids))
}

/// Refuses a device that is not empty; the error names the volume of which it is a member.
pub(super) fn must_be_free(shown: &str, probed: &Probed) -> Result<(), DriveError> {
    match &probed.identity {
        Some(identity) => Err(DriveError::new(
            format!("{shown} is not empty: it is {}", describe(identity)),
            "name another drive; if the directory of that volume is lost, recreate it with zonda volume import; if \
             that volume is no longer needed, --force wipes the drive",
        )),
        None if !probed.is_empty => Err(DriveError::new(
            format!("{shown} is not empty"),
            "name another drive, or use --force if its data is not needed: the drive is then wiped",
        )),
        None => Ok(()),
    }
}

/// Refuses a device that is not empty as a new drive of this volume.
pub(super) fn must_be_free_for(array: [u8; 16], text: &str, probed: &Probed) -> Result<(), DriveError> {
    if probed.membership().is_some_and(|own| own.array == array) {
        return Err(DriveError::new(
            format!("{text} is not empty: it is a failed or former member of this volume"),
            "name another drive; --force wipes this one",
        ));
    }
    must_be_free(text, probed)
}

/// Refuses one drive as two members: it would count twice as redundancy.
fn must_be_different_drives<'a>(named: impl Iterator<Item = (String, &'a MemberDevice)>) -> Result<(), DriveError> {
    let named: Vec<(String, &MemberDevice)> = named.collect();
    for (i, (name, device)) in named.iter().enumerate() {
        if let Some((earlier, _)) = named[..i].iter().find(|(_, earlier)| device.is_same_drive(earlier)) {
            return Err(DriveError::new(
                format!("{earlier} and {name} are the same drive: both have the same identifier"),
                "name each drive once; if one of the images is a copy of the other, create a new image instead: zonda drive \
                 create",
            ));
        }
    }
    Ok(())
}

pub(super) fn cannot_save(directory: &VolumeDirectory, error: &std::io::Error) -> DriveError {
    let path = directory.path().join(VOLUME_FILE);
    DriveError::new(
        format!("cannot write {}: {error}", path.display()),
        "check the free space and permissions of its file system, and try again",
    )
}

/// Resets the zones in which a device has superblocks of another volume. Blocks on the device.
fn wipe_superblocks(device: &mut MemberDevice, ring: &Ring) -> Result<(), DriveError> {
    let mut wipe = Wipe::new(device.own_geometry());
    loop {
        if let Some(result) = wipe.poll(device, ring.now()) {
            return result;
        }
        ring.run_once(device.next_timeout())
            .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
    }
}

/// Why a volume is not ready, and those of its members whose reservations have to be released.
type NotStarted = (DriveError, Vec<Option<MemberDevice>>);

/// Waits until the volume is ready. Returns the events of the mount, too.
fn started(
    mut volume: Volume,
    member_devices: Vec<Option<MemberDevice>>,
    names: &Names<'_>,
    ring: &Ring,
    watch: &mut dyn FnMut(Notice),
) -> Result<(VolumeDevice<MemberDevice>, VecDeque<Event>), NotStarted> {
    if let Some(isal) = Isal::new() {
        volume.set_engine(Box::new(isal));
    }
    let mut on = VolumeDevice::new(volume, member_devices);
    let (mut completions, mut events) = (CompletionQueue::new(), VecDeque::new());
    let began = ring.now();
    let mut reported_at = began;
    loop {
        on.poll(ring.now(), &mut completions);
        while let Some(event) = on.volume_mut().poll_event() {
            if let Event::OutOfSpace { member } = &event {
                let text = format!(
                    "assembly waits: no space is left for {}: free space on its file system",
                    names.shown(*member)
                );
                watch(Notice { is_warning: true, text });
            }
            events.push_back(event);
        }
        if on.volume().is_ready() {
            return Ok((on, events));
        }
        if let Some(error) = on.volume().failure() {
            let error = names.describe(error);
            return Err((error, on.into_parts().1));
        }
        let is_refused = |member: &MemberIndex| on.member(*member).is_some_and(MemberDevice::is_refused);
        if let Some(member) = (0..names.0.len() as u8).map(MemberIndex).find(is_refused) {
            let what = format!("{} was taken over during assembly", names.shown(member));
            return Err((DriveError::new(what, "stop the other server of the volume"), Vec::new()));
        }
        let now = ring.now();
        if let Some(step) = on.volume().starting().filter(|_| now >= reported_at + WATCH_INTERVAL) {
            reported_at = now;
            let seconds = now.since(began).0 / 1_000_000_000;
            watch(Notice { is_warning: false, text: format!("assembling for {seconds} s: {step}") });
        }
        let until = on.next_timeout().map_or(reported_at + WATCH_INTERVAL, |at| at.min(reported_at + WATCH_INTERVAL));
        if let Err(error) = ring.run_once(Some(until)) {
            return Err((DriveError::new(format!("the event loop failed: {error}"), ""), Vec::new()));
        }
    }
}

pub(super) fn blocks_per_second(rate: Rate, block_bytes: u32) -> u64 {
    match rate {
        Rate::BytesPerSecond(bytes) => (bytes / u64::from(block_bytes)).max(1),
        Rate::OperationsPerSecond(blocks) => blocks,
    }
}

pub(super) fn tuning(reserve_percent: u8, rates: VolumeRates, block_bytes: u32) -> Tuning {
    let usual = Tuning::default();
    let scrub = rates.scrub.map(|rate| blocks_per_second(rate, block_bytes));
    Tuning {
        reserve_percent,
        rebuild_blocks_per_second: rates.rebuild.map(|rate| blocks_per_second(rate, block_bytes)),
        scrub_blocks_per_second: scrub.or(usual.scrub_blocks_per_second),
        // Acknowledged writes to images survive a crash of the program, and a loss of power after a
        // Flush; of remote namespaces it is not known.
        is_cache_volatile: true,
        ..usual
    }
}
