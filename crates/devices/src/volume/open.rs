//! Volumes created and mounted.

use std::collections::VecDeque;
use std::path::Path;

use zonda_config::{ByteSize, Rate};
use zonda_isal::Isal;
use zonda_raid::{Event, MemberIndex, MountOptions, Scheme, Tuning, Volume, VolumeConfig, VolumeError, VolumeOn};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, ZonedDevice};

use super::adopt::Wipe;
use super::bugs::{OwnerBug, is_planted};
use super::directory::{LastState, Place, VOLUME_FILE, VolumeDirectory, VolumeRates};
use super::drive::{Notice, VolumeDrive};
use super::found::{Device, Found};
use super::manage::member_named;
use super::reservations::Kept;
use super::seat::{Seat, give_back};
use super::spares::{Other, Spare};
use crate::opening::OnRing;
use crate::probe::{Probe, Probed, in_words};
use crate::{Credentials, DriveError, Location, random};

/// Where members have no metadata with their blocks, a block of it goes with each chunk: chunks of one block would halve the volume,
/// these take a fifth.
const IN_BAND_UNIT_BLOCKS: u32 = 4;

/// Members are flushed before the next group of stripes: with images a group is some megabytes, so that this is not what takes the time.
const SMALL_GROUP_STRIPES: u32 = 1024;
/// The same for large requests.
const LARGE_GROUP_STRIPES: u32 = 64;

/// Time between two reports of a mount that takes long.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

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
    /// For members and spares that servers have; paths are seen from the program.
    pub credentials: Credentials,
}

impl NewVolume {
    /// A volume over these members, which must be empty: of all their space but the usual reserve, without spares and credentials.
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

/// What an operator accepts of a volume that is not mounted otherwise, once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOpenOptions {
    /// Acknowledged blocks are lost of which it is not known which ones they are: any block may then have an older version than the one
    /// that was acknowledged. Later mounts do not refuse for those losses again.
    pub accepts_losses: bool,
    /// All members that are present are older than `volume.toml` knows the volume to be, or one that is needed is an older copy of itself:
    /// what was written since is lost.
    pub accepts_older: bool,
    /// Members were written to without each other: the side of this one is kept, those of the other side are treated as failed.
    pub accepts_side: Option<String>,
    /// Members stay as they are: no spare takes the place of one that has failed, and none is taken back, unless that is asked for.
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
    /// Makes a volume in `path`, which must be empty or not there, or hold a volume whose creation was interrupted: that is then
    /// continued. Its members are wiped.
    ///
    /// # Errors
    /// When members do not suit, are in use, or hold something and may not be wiped; and what to do. Where that is found before anything
    /// was written the directory is as before; else the same call continues.
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
            // From here on members are changed, and whoever repeats the command finds out which array they were changed for.
            match directory.save().and_then(|()| directory.sync_name()) {
                Ok(()) => Ok(begun),
                Err(error) => {
                    give_back(begun.seats.into_iter().chain(begun.spares.into_iter().map(|spare| spare.seat)), ring);
                    Err(cannot_save(&directory, &error))
                }
            }
        });
        let Begun { volume, seats, mut spares, ids } = match begun {
            Ok(begun) => begun,
            Err(error) => {
                if !was_interrupted {
                    directory.remove();
                }
                return Err(error);
            }
        };
        for spare in spares.iter_mut().filter(|spare| spare.is_of_volume) {
            wipe_superblocks(&mut spare.seat, ring)?;
        }
        let spares = spares.into_iter().map(|CheckedSpare { place, seat, .. }| Spare { place, seat }).collect();
        let seats = seats.into_iter().map(Some).collect();
        let started = started(volume, seats, &Names(&directory.file.member), ring, &mut |_| {});
        let (on, _) = started.map_err(|(error, seats)| {
            give_back(seats.into_iter().flatten(), ring);
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

    /// Mounts the volume in `path`. Members that are not there are done without, as far as the volume can; a spare takes their place.
    ///
    /// # Errors
    /// When there is none, it or one of its members is in use, or too many are missing; and what to do.
    pub fn open(path: &Path, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        VolumeDrive::open_with(path, &VolumeOpenOptions::default(), ring)
    }

    /// The same with what an operator accepts.
    ///
    /// # Errors
    /// As of [`open`](VolumeDrive::open), for what is not accepted.
    pub fn open_with(path: &Path, accepted: &VolumeOpenOptions, ring: &Ring) -> Result<VolumeDrive, DriveError> {
        VolumeDrive::open_watched(path, accepted, ring, &mut |_| {})
    }

    /// The same, for a caller that reports on a mount that takes long: how far it is, and what it waits for.
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
        let reservations = Kept::of(&directory)?;
        let side =
            accepted.accepts_side.as_deref().map(|name| member_named(&directory.file.member, name)).transpose()?;
        let mut found = Found::open(directory, side, ring)?;
        let newest_epoch = if accepted.accepts_older {
            found.accept_older()
        } else if let Err(error) = found.must_be_newest() {
            found.give_back(ring);
            return Err(error);
        } else {
            found.directory.file.epoch
        };
        found.put_members_in_their_places();
        found.put_spares_in_their_places();
        let Found { directory, array, devices, spares, away_spares, newest, seen_epoch, told, leaving, .. } = found;
        let names = Names(&directory.file.member);
        let (mut seats, mut others) = (Vec::new(), Vec::new());
        for (device, place) in devices.into_iter().zip(&directory.file.member) {
            let is_joining = place.state == Some(LastState::Joining)
                && !device.as_ref().is_some_and(|device| device.is_known_to(newest.as_deref()));
            match device {
                // It was to be wiped, and is; what it holds is not for the mount.
                Some(Device { seat, .. }) if is_joining => {
                    seats.push(None);
                    others.push(Some(Other::Joining(seat)));
                }
                Some(Device { seat, probed }) => {
                    seats.push(Some(seat));
                    others.push(probed.is_empty.then_some(Other::Empty));
                }
                None => {
                    seats.push(None);
                    others.push(None);
                }
            }
        }
        let block_bytes =
            seats.iter().flatten().map(|seat| seat.own_geometry().block_size_bytes).next().unwrap_or(4096);
        let tuning = tuning(directory.file.reserve_percent, directory.file.rates, block_bytes);
        let geometries = seats.iter().map(|seat| seat.as_ref().map(|seat| seat.own_geometry().clone())).collect();
        let options = MountOptions {
            newest_epoch,
            // The member that has it may be lost from here on: the others are not the volume then.
            seen_epoch: newest.as_deref().map(|newest| newest.epoch).filter(|_| !is_planted(OwnerBug::NewestForgotten)),
            accepts_losses: accepted.accepts_losses,
            accepts_older: accepted.accepts_older,
            accepts_side: side,
            ..MountOptions::of(array)
        };
        let started = match Volume::mount(geometries, tuning, options) {
            Ok(volume) => started(volume, seats, &names, ring, watch),
            Err(error) => Err((names.in_words(&error), seats)),
        };
        let (on, events) = match started {
            Ok(started) => started,
            Err((error, seats)) => {
                let others = others.into_iter().flatten().filter_map(Other::into_seat);
                let spares = spares.into_iter().map(|spare| spare.seat);
                give_back(seats.into_iter().flatten().chain(others).chain(spares).chain(leaving), ring);
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
        told.into_iter().for_each(|text| drive.tell(true, text));
        leaving.into_iter().for_each(|seat| drive.let_go(seat, ring.now()));
        let lost_blocks = drive.on.volume().status().lost_blocks;
        if lost_blocks > 0 {
            let text = format!(
                "data lost: {lost_blocks} in all; reads of these blocks fail until they are written or trimmed, and zonda volume status \
                 --lost lists them"
            );
            drive.tell(true, text);
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
    seat: Seat,
    /// It has the superblock of another volume, which nobody needs any more.
    is_of_volume: bool,
}

/// A new volume that has changed nothing yet.
struct Begun {
    volume: Volume,
    seats: Vec<Seat>,
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
        .and_then(|()| planned(directory, new, opened.iter().map(|(seat, _)| seat)));
    match checked {
        Ok((volume, ids)) => {
            let spares = opened.split_off(new.members.len()).into_iter().zip(&directory.file.spare);
            let spares =
                spares.map(|((seat, is_of_volume), place)| CheckedSpare { place: place.clone(), seat, is_of_volume });
            let spares = spares.collect();
            Ok(Begun { volume, seats: opened.into_iter().map(|(seat, _)| seat).collect(), spares, ids })
        }
        Err(error) => {
            give_back(opened.into_iter().map(|(seat, _)| seat), ring);
            Err(error)
        }
    }
}

/// Opens members, then spares, and says of each whether it has the superblock of a volume. What is open is there after an error, too.
fn open_all(
    directory: &VolumeDirectory,
    new: &NewVolume,
    was_interrupted: bool,
    ring: &Ring,
    opened: &mut Vec<(Seat, bool)>,
) -> Result<(), DriveError> {
    let array = directory.array()?;
    let places = directory.file.member.iter().chain(&directory.file.spare);
    for (location, place) in new.members.iter().chain(&new.spares).zip(places) {
        opened.push((Seat::open(&directory.access(place)?, ring)?, false));
        let (seat, is_of_volume) = opened.last_mut().expect("it was opened");
        let probed = Probe::of_all(seat.own_geometry()).run(seat, ring)?;
        *is_of_volume = probed.identity.is_some();
        // What an interrupted creation has written to its members is no volume.
        let is_own = was_interrupted && probed.membership().is_some_and(|found| found.array == array);
        if !new.may_wipe && !is_own {
            must_be_free(&location.to_string(), &probed)?;
        }
    }
    Ok(())
}

/// The volume over the first of these devices, which changes nothing yet, and the identifiers of its members.
fn planned<'a>(
    directory: &VolumeDirectory,
    new: &NewVolume,
    opened: impl Iterator<Item = &'a Seat> + Clone,
) -> Result<(Volume, Vec<[u8; 16]>), DriveError> {
    let (names, array) = (Names(&directory.file.member), directory.array()?);
    let shown = new.members.iter().chain(&new.spares).map(ToString::to_string);
    must_be_different_drives(shown.zip(opened.clone()))?;
    let seats: Vec<&Seat> = opened.take(new.members.len()).collect();
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
    Ok((volume, ids))
}

/// Refuses a device that holds something; says so of a member of a volume.
pub(super) fn must_be_free(shown: &str, probed: &Probed) -> Result<(), DriveError> {
    match &probed.identity {
        Some(identity) => Err(DriveError::new(
            format!("{shown} is not empty: it is {}", in_words(identity)),
            "name another drive; if the directory of that volume is lost, zonda volume import writes it again from its drives; --force wipes \
             the drive, if that volume is no longer needed",
        )),
        None if !probed.is_empty => Err(DriveError::new(
            format!("{shown} is not empty"),
            "name another drive, or say --force if nobody needs what is on it: it is then gone",
        )),
        None => Ok(()),
    }
}

/// One drive in two places of a volume is lost in both.
fn must_be_different_drives<'a>(named: impl Iterator<Item = (String, &'a Seat)>) -> Result<(), DriveError> {
    let named: Vec<(String, &Seat)> = named.collect();
    for (i, (name, seat)) in named.iter().enumerate() {
        if let Some((earlier, _)) = named[..i].iter().find(|(_, earlier)| seat.is_same_drive(earlier)) {
            return Err(DriveError::new(
                format!("{earlier} and {name} are the same drive: both have the same identifier"),
                "name each drive once",
            ));
        }
    }
    Ok(())
}

pub(super) fn cannot_save(directory: &VolumeDirectory, error: &std::io::Error) -> DriveError {
    let path = directory.path().join(VOLUME_FILE);
    DriveError::new(
        format!("{} cannot be written: {error}", path.display()),
        "make room on its file system, see who may write there, and try again",
    )
}

/// Resets the zones in which a device has superblocks of another volume. Waits for the device.
fn wipe_superblocks(seat: &mut Seat, ring: &Ring) -> Result<(), DriveError> {
    let mut wipe = Wipe::new(seat.own_geometry());
    loop {
        if let Some(result) = wipe.poll(seat, ring.now()) {
            return result;
        }
        ring.turn(seat.next_wakeup())
            .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
    }
}

/// Why a volume is not ready, and its members as far as they are to be given back.
type NotStarted = (DriveError, Vec<Option<Seat>>);

/// Waits until the volume is ready. Returns what has happened on the way, too.
fn started(
    mut volume: Volume,
    seats: Vec<Option<Seat>>,
    names: &Names<'_>,
    ring: &Ring,
    watch: &mut dyn FnMut(Notice),
) -> Result<(VolumeOn<Seat>, VecDeque<Event>), NotStarted> {
    if let Some(isal) = Isal::new() {
        volume.set_engine(Box::new(isal));
    }
    let mut on = VolumeOn::new(volume, seats);
    let (mut completions, mut events) = (CompletionQueue::new(), VecDeque::new());
    let began = ring.now();
    let mut told_at = began;
    loop {
        on.poll(ring.now(), &mut completions);
        while let Some(event) = on.volume_mut().poll_event() {
            if let Event::OutOfRoom { member } = &event {
                let text = format!(
                    "the mount waits: there is no space for {}: free space where it is kept",
                    names.shown(*member)
                );
                watch(Notice { is_trouble: true, text });
            }
            events.push_back(event);
        }
        if on.volume().is_ready() {
            return Ok((on, events));
        }
        if let Some(error) = on.volume().failure() {
            let error = names.in_words(error);
            return Err((error, on.into_parts().1));
        }
        let is_refused = |member: &MemberIndex| on.member(*member).is_some_and(Seat::is_refused);
        if let Some(member) = (0..names.0.len() as u8).map(MemberIndex).find(is_refused) {
            let what = format!("{} was taken over during the mount", names.shown(member));
            return Err((DriveError::new(what, "another server of the volume has been started: stop it"), Vec::new()));
        }
        let now = ring.now();
        if let Some(step) = on.volume().starting().filter(|_| now >= told_at + WATCH_INTERVAL) {
            told_at = now;
            let seconds = now.since(began).0 / 1_000_000_000;
            watch(Notice { is_trouble: false, text: format!("mounting for {seconds} s: {step}") });
        }
        let until = on.next_wakeup().map_or(told_at + WATCH_INTERVAL, |at| at.min(told_at + WATCH_INTERVAL));
        if let Err(error) = ring.turn(Some(until)) {
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
        // Images keep what they acknowledge through the death of the program, and through a loss of power from a Flush on;
        // of remote namespaces nobody knows.
        is_cache_volatile: true,
        ..usual
    }
}

/// Where members are, for errors that have only their numbers.
pub(super) struct Names<'a>(pub(super) &'a [Place]);

impl Names<'_> {
    /// A member in words: its number, and where it is.
    fn shown(&self, member: MemberIndex) -> String {
        let place = self.0.get(usize::from(member.0));
        format!("member {} ({})", member.0, place.map_or("unknown", |place| place.at.as_str()))
    }

    pub(super) fn in_words(&self, error: &VolumeError) -> DriveError {
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
                    "bring one of those that are missing back: what it holds is needed. If one is there and out of date, since its drive was \
                     restored from a copy, and there is nothing newer: zonda serve DIR --accept-older takes it as it is",
                )
            }
            VolumeError::UnidentifiedLosses { member, segment, blocks } => DriveError::new(
                format!(
                    "up to {blocks} blocks written last are lost, and it is not known which: segment {segment} is damaged on {}",
                    at(member)
                ),
                format!(
                    "bring back the drives that are missing; if there are none, zonda serve DIR --accept-losses mounts without these up \
                     to {blocks} blocks: any block of the volume may then be older than when it was last written, so check the file \
                     system and compare with a backup"
                ),
            ),
            VolumeError::OlderThanKnown { found, known } => DriveError::new(
                format!(
                    "the drives are out of date: they know epoch {found}, and the volume has reached epoch {known}"
                ),
                format!(
                    "bring back the drives that were active since; zonda serve DIR --accept-older goes on with epoch {found}, without what \
                     was written since"
                ),
            ),
            VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } => {
                let side = |members: &[MemberIndex]| members.iter().map(at).collect::<Vec<String>>().join(", ");
                DriveError::new(
                    format!(
                        "split brain: {} (epoch {newest_epoch}) and {} (epoch {other_epoch}) were each written to without the others",
                        side(newest),
                        side(other)
                    ),
                    "zonda serve DIR --accept-side MEMBER keeps the side of that member; the members of the other side are treated as \
                     failed, and what was written to them alone is not in the volume",
                )
            }
            VolumeError::TakenOver => DriveError::new(error.to_string(), "stop the other server"),
            VolumeError::Config(remedy) => DriveError::new("there is no such volume to be had", remedy.clone()),
        }
    }
}
