//! Volumes created and mounted.

use std::path::Path;

use zonda_config::{ByteSize, Rate};
use zonda_isal::Isal;
use zonda_raid::{MemberIndex, MountOptions, Scheme, Tuning, Volume, VolumeConfig, VolumeError, VolumeOn};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, ZonedDevice};

use super::directory::{Place, VolumeDirectory, VolumeRates};
use super::drive::{Spare, VolumeDrive};
use super::seat::Seat;
use crate::{DriveError, Location, random};

/// Where members have no metadata with their blocks, a block of it goes with each chunk: chunks of one block would halve the volume,
/// these take a fifth.
const IN_BAND_UNIT_BLOCKS: u32 = 4;

/// Members are flushed before the next group of stripes: with images a group is some megabytes, so that this is not what takes the time.
const SMALL_GROUP_STRIPES: u32 = 1024;
/// The same for large requests.
const LARGE_GROUP_STRIPES: u32 = 64;

/// What a volume is to be.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its members, in their order.
    pub members: Vec<Location>,
    /// Devices that take the place of members that fail.
    pub spares: Vec<Location>,
    /// How blocks are made redundant.
    pub scheme: Scheme,
    /// What hosts see; `None` is all but the reserve.
    pub size: Option<ByteSize>,
    /// Space kept back for garbage collection, in percent.
    pub reserve_percent: u8,
    /// Blocks of a chunk in segments for small requests; `None` is 1, or 4 where members have no metadata with their blocks.
    pub small_unit_blocks: Option<u32>,
    /// How fast it may work for itself.
    pub rates: VolumeRates,
    /// Whether what members and spares hold may go.
    pub may_wipe: bool,
}

impl VolumeDrive {
    /// Makes a volume in `path`, which must be empty or not there. Its members are wiped.
    ///
    /// # Errors
    /// When members do not suit, are in use, or hold something and may not be wiped; and what to do. The directory is then as before.
    pub fn create(path: &Path, new: &NewVolume, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        let array = random::uuid()?;
        let mut directory = VolumeDirectory::make(path, &array)?;
        directory.file.reserve_percent = new.reserve_percent;
        directory.file.rates = new.rates;
        directory.file.member = new.members.iter().map(|member| directory.place(member)).collect();
        directory.file.spare = new.spares.iter().map(|spare| directory.place(spare)).collect();
        match begin(&directory, array, new, ring) {
            Ok((on, spares)) => {
                let mut drive = VolumeDrive::new(on, directory, spares);
                drive.save();
                drive.fill_places(ring.now(), ring);
                Ok(drive)
            }
            Err(error) => {
                directory.remove();
                Err(error)
            }
        }
    }

    /// Mounts the volume in `path`. Members that are not there are done without, as far as the volume can; a spare takes their place.
    ///
    /// # Errors
    /// When there is none, it or one of its members is in use, or too many are missing; and what to do.
    pub fn open(path: &Path, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        let directory = VolumeDirectory::open(path)?;
        let array = directory.array()?;
        let (mut seats, mut absent) = (Vec::new(), Vec::new());
        for (at, place) in directory.file.member.iter().enumerate() {
            match directory.location(place).and_then(|location| Seat::open(&location, ring)) {
                Ok(seat) => seats.push(Some(seat)),
                // It may be well: that is for whoever has it to say.
                Err(error) if error.is_in_use => return Err(error),
                Err(error) => {
                    absent.push(format!("member {at} ({}) is not there: {error}", place.at));
                    seats.push(None);
                }
            }
        }
        let names = Names(&directory.file.member);
        if let Some(first) = absent.first().filter(|_| absent.len() == seats.len()) {
            return Err(DriveError::new(format!("none of the members is there; {first}"), "see where they have gone"));
        }
        let mut spares = Vec::new();
        for place in &directory.file.spare {
            match directory.location(place).and_then(|location| Seat::open(&location, ring)) {
                Ok(seat) => spares.push(Spare { place: place.clone(), seat }),
                Err(error) => absent.push(format!("the spare {} is not there: {error}", place.at)),
            }
        }
        let block_bytes =
            seats.iter().flatten().map(|seat| seat.own_geometry().block_size_bytes).next().unwrap_or(4096);
        let tuning = tuning(directory.file.reserve_percent, directory.file.rates, block_bytes);
        let geometries = seats.iter().map(|seat| seat.as_ref().map(|seat| seat.own_geometry().clone())).collect();
        let volume =
            Volume::mount(geometries, tuning, MountOptions::of(array)).map_err(|error| names.in_words(&error))?;
        let on = started(volume, seats, &names, ring)?;
        let mut drive = VolumeDrive::new(on, directory, spares);
        absent.into_iter().for_each(|text| drive.tell(true, text));
        drive.fill_places(ring.now(), ring);
        Ok(drive)
    }
}

fn begin(
    directory: &VolumeDirectory,
    array: [u8; 16],
    new: &NewVolume,
    ring: &Ring,
) -> Result<(VolumeOn<Seat>, Vec<Spare>), DriveError> {
    let names = Names(&directory.file.member);
    let open = |location: &Location| {
        let mut seat = Seat::open(location, ring)?;
        if !new.may_wipe && !seat.is_empty(ring)? {
            return Err(DriveError::new(
                format!("{location} is not empty"),
                "name another drive, or say --force if nobody needs what is on it: it is then gone",
            ));
        }
        Ok(seat)
    };
    let seats = new.members.iter().map(open).collect::<Result<Vec<Seat>, _>>()?;
    let spares = (new.spares.iter().zip(&directory.file.spare))
        .map(|(spare, place)| Ok(Spare { place: place.clone(), seat: open(spare)? }))
        .collect::<Result<Vec<Spare>, DriveError>>()?;
    let Some(first) = seats.first() else {
        return Err(DriveError::new("a volume needs members", "name at least one with --members"));
    };
    let block_bytes = first.own_geometry().block_size_bytes;
    let mut config = VolumeConfig::new(&directory.file.name, new.scheme);
    config.tuning = tuning(new.reserve_percent, new.rates, block_bytes);
    config.volume_blocks = new.size.map(|size| size.0 / u64::from(block_bytes));
    let has_metadata =
        seats.iter().all(|seat| seat.own_geometry().metadata_bytes as usize >= zonda_raid::METADATA_BYTES);
    config.small.unit_blocks = match new.small_unit_blocks {
        Some(blocks) => blocks,
        None if has_metadata => 1,
        None => IN_BAND_UNIT_BLOCKS,
    };
    config.small.group_stripes = SMALL_GROUP_STRIPES;
    let appended_blocks = seats.iter().map(|seat| seat.own_geometry().max_append_blocks.0).min().unwrap_or(0);
    if appended_blocks >= u64::from(config.large.unit_blocks) {
        config.large.group_stripes = LARGE_GROUP_STRIPES;
    }
    let ids = new.members.iter().map(|_| random::uuid()).collect::<Result<Vec<_>, _>>()?;
    let geometries = seats.iter().map(|seat| seat.own_geometry().clone()).collect();
    let volume = Volume::create(config, geometries, array, &ids, true).map_err(|error| names.in_words(&error))?;
    let on = started(volume, seats.into_iter().map(Some).collect(), &names, ring)?;
    Ok((on, spares))
}

/// Waits until the volume is ready.
fn started(
    mut volume: Volume,
    seats: Vec<Option<Seat>>,
    names: &Names<'_>,
    ring: &Ring,
) -> Result<VolumeOn<Seat>, DriveError> {
    if let Some(isal) = Isal::new() {
        volume.set_engine(Box::new(isal));
    }
    let mut on = VolumeOn::new(volume, seats);
    let mut completions = CompletionQueue::new();
    loop {
        on.poll(ring.now(), &mut completions);
        if on.volume().is_ready() {
            return Ok(on);
        }
        if let Some(error) = on.volume().failure() {
            return Err(names.in_words(error));
        }
        ring.turn(on.next_wakeup()).map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
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
        // Images keep what they acknowledge through the death of the program, and through a loss of power from a Flush on;
        // of remote namespaces nobody knows.
        is_cache_volatile: true,
        ..usual
    }
}

/// Where members are, for errors that have only their numbers.
struct Names<'a>(&'a [Place]);

impl Names<'_> {
    fn in_words(&self, error: &VolumeError) -> DriveError {
        let at = |member: &MemberIndex| match self.0.get(usize::from(member.0)) {
            Some(place) => place.at.clone(),
            None => format!("member {}", member.0),
        };
        match error {
            VolumeError::Foreign { member, volume } => DriveError::new(
                format!("{} belongs to another volume, which is named \"{volume}\"", at(member)),
                "see volume.toml: which drives are this volume's, and in which order",
            ),
            VolumeError::NoVolume { member } => DriveError::new(
                format!("{} holds no volume", at(member)),
                "see volume.toml: which drives are this volume's, and in which order",
            ),
            VolumeError::Version { member, .. } | VolumeError::Member { member, .. } => {
                DriveError::new(format!("{}: {error}", at(member)), "see volume.toml, and docs/guide/volumes.md")
            }
            VolumeError::TooManyMissing { tolerates, missing, rebuilding } => {
                let they = |members: &[MemberIndex], what: &str| {
                    let names: Vec<String> = members.iter().map(at).collect();
                    let verb = if names.len() == 1 { "is" } else { "are" };
                    (!names.is_empty()).then(|| format!("{} {verb} {what}", names.join(", ")))
                };
                let causes = [they(missing, "missing or out of date"), they(rebuilding, "not rebuilt yet")];
                let causes: Vec<String> = causes.into_iter().flatten().collect();
                DriveError::new(
                    format!("{}, and the volume can do without {tolerates}", causes.join(", ")),
                    "bring one of those that are missing back: what it holds is needed",
                )
            }
            VolumeError::UnidentifiedLosses { member, segment, blocks } => DriveError::new(
                format!(
                    "up to {blocks} blocks written last are lost, and it is not known which: segment {segment} is damaged on {}",
                    at(member)
                ),
                "bring back the drives that are missing, or accept the losses: any block may then be older than when it was \
                 last written, so check the file system and compare with a backup",
            ),
            VolumeError::OlderThanKnown { found, known } => DriveError::new(
                format!(
                    "the drives are out of date: they know epoch {found}, and the volume has reached epoch {known}"
                ),
                "bring back the drives that were active since",
            ),
            VolumeError::SplitBrain { newest, other } => {
                let side = |members: &[MemberIndex]| members.iter().map(at).collect::<Vec<String>>().join(", ");
                DriveError::new(
                    format!(
                        "split brain: {} and {} were each written to without the others",
                        side(newest),
                        side(other)
                    ),
                    "keep one side, and replace the drives of the other",
                )
            }
            VolumeError::Config(remedy) => DriveError::new("there is no such volume to be had", remedy.clone()),
        }
    }
}
