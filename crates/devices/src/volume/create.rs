//! Creates volumes.

use std::path::Path;

use zonda_config::ByteSize;
use zonda_raid::{Scheme, Tuning, Volume, VolumeConfig};
use zonda_ring::Ring;
use zonda_zoned::ZonedDevice;

use super::adopt::Wipe;
use super::directory::{LastState, Place, VolumeDirectory, VolumeRates};
use super::drive::VolumeDrive;
use super::member_device::{MemberDevice, release_acquired};
use super::names::{Names, cannot_save};
use super::spares::Spare;
use super::start::{started, tuning};
use super::vacant::{must_be_different_drives, must_be_free};
use crate::opening::OnRing;
use crate::probe::Probe;
use crate::{Credentials, DriveError, Location, random};

/// If the block format of the members has no metadata, each chunk has a block of it: with chunks of
/// one block that would be half of the volume, with these it is a fifth.
const IN_BAND_UNIT_BLOCKS: u32 = 4;

/// Stripes in a group for small requests. Members are flushed between groups, of some megabytes.
const SMALL_GROUP_STRIPES: u32 = 1024;
/// Stripes in a group for large requests.
const LARGE_GROUP_STRIPES: u32 = 64;

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
                format!("{location} has conventional zones only: a volume needs sequential zones"),
                "name another drive, such as an image of profile zn540",
            ));
        }
        let probed = Probe::of_all(device.own_geometry()).thorough().run_on_member(device, ring)?;
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
    let member_devices: Vec<&MemberDevice> = opened.clone().take(new.members.len()).collect();
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
    for (spare, device) in new.spares.iter().zip(opened.skip(new.members.len())) {
        let suits = volume.must_suit(device.own_geometry());
        suits.map_err(|error| DriveError::new(format!("spare {spare}: {error}"), "name another drive as the spare"))?;
    }
    Ok((volume, ids))
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
