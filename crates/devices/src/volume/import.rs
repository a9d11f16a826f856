//! Imports a volume whose directory is lost, or that comes from another machine: recreates its
//! `volume.toml` from the superblocks of its drives. Nothing else is written, and nothing is
//! mounted.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_raid::{Agreement, Identity, MemberIndex, MemberState, Membership, VolumeError};
use zonda_ring::{Ring, RingOptions};

use super::directory::{LastState, Place, VolumeDirectory, VolumeFile, is_volume, place_in, plain, uuid_of};
use super::identities::identity;
use super::import_search::find_images;
use super::import_takeover::{ImportTakeover, continued, suggest_takeover};
use super::member_device::refuse_volume;
use super::names::cannot_save;
use super::new_directory::refuse_occupied;
use super::takeover::TakenDrive;
use crate::look::Snapshot;
use crate::probe::describe;
use crate::random::uuid_text;
use crate::{Access, Credentials, DriveError, Location};

/// Maximum depth of the search for images.
const DEPTH_MAX: usize = 8;

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Drives, in any order: each must be a member.
    pub members: Vec<Location>,
    /// Directories to search for images; those that are not members of the volume are ignored.
    pub scan: Vec<PathBuf>,
    /// The UUID of the volume, if drives of several volumes are named or found.
    pub uuid: Option<String>,
    /// Imports even if the remaining drives do not have the newest epoch, or some cannot be used.
    pub force: bool,
    /// Writes nothing.
    pub dry_run: bool,
    /// Takes over members that servers of the volume left reserved, and reserves them for the
    /// directory that is written.
    pub take_over: bool,
    /// Credentials for members of servers; paths are relative to the program.
    pub credentials: Credentials,
}

/// The result of an import, or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// Whether `volume.toml` was written.
    pub written: bool,
    /// The name of the volume.
    pub name: String,
    /// The UUID of the volume.
    pub array: String,
    /// `RAID 5 (3+1)`.
    pub scheme: String,
    /// The newest epoch of any of the drives, or with force the one that enough of them have
    /// reached: `volume.toml` has it.
    pub epoch: u64,
    /// The newest epoch of the imported drives. If it is lower, the volume is out of date.
    pub found_epoch: u64,
    /// Its members, in their order.
    pub members: Vec<ImportedMember>,
    /// Members that were reserved, and their previous holders.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub taken: Vec<TakenDrive>,
    /// Drives that are ignored.
    pub ignored: Vec<IgnoredDrive>,
    /// Warnings for the operator before the volume is served.
    pub warnings: Vec<String>,
    /// The members split: the side to keep must be chosen when the volume is served.
    #[serde(default)]
    pub is_split: bool,
}

/// A member of an imported volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedMember {
    /// Its number, from 0.
    pub member: u8,
    /// The UUID of the device.
    pub id: String,
    /// Its location in `volume.toml`; absent if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `active`, `rebuilding` or `failed`, according to the newest superblock.
    pub state: String,
    /// The epoch of its own superblock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// A drive that an import ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredDrive {
    /// Its path or URL.
    pub at: String,
    /// Why it is ignored.
    pub reason: String,
}

/// A drive that is a member of a volume.
struct Candidate {
    location: Location,
    own: Membership,
    /// Whether the operator has named it, rather than a directory to search.
    is_named: bool,
}

/// The drives that were named or found.
struct Candidates {
    found: Vec<Candidate>,
    /// Images that were found, and are in use by another program.
    in_use: Vec<InUse>,
}

/// An image that is in use by another program.
struct InUse {
    location: Location,
    /// Its membership in a volume, if that can be read.
    own: Option<Membership>,
}

impl InUse {
    fn shown(&self) -> String {
        match &self.own {
            Some(own) => format!("{} (member {}, epoch {})", self.location, own.member, own.epoch),
            None => self.location.to_string(),
        }
    }
}

impl Candidate {
    fn shown(&self) -> String {
        format!("{} (member {}, epoch {})", self.location, self.own.member, self.own.epoch)
    }
}

impl ImportReport {
    /// Identifies the volume of these drives, and writes its `volume.toml` in `path`, which must be
    /// empty or not exist.
    ///
    /// # Errors
    /// When the drives are of several volumes, are the same member, are in use, are too few, or
    /// have split; with the remedy. Nothing is written then.
    pub fn of(path: &Path, options: &ImportOptions) -> Result<ImportReport, DriveError> {
        let continued = if options.take_over { continued(path)? } else { None };
        if continued.is_none() {
            refuse_occupied(path)?;
        }
        if continued.is_none() && is_volume(path) {
            let what = format!("the directory {} holds a volume whose creation was interrupted", path.display());
            return Err(DriveError::new(what, "choose another directory, or remove this one"));
        }
        let mut report = ImportReport::default();
        let ring = Ring::new(RingOptions::default()).map_err(|error| {
            DriveError::new(
                format!("cannot create the event loop: {error}"),
                "check the limit on open files (ulimit -n)",
            )
        })?;
        let takeover = options.take_over.then(|| ImportTakeover::new(options, &ring));
        let mut takeover = takeover.transpose()?;
        let candidates = candidates(options, &mut report.ignored, &mut takeover, &ring)?;
        let in_use = candidates.in_use;
        let candidates = report.of_one_volume(candidates.found, options).map_err(|error| and_in_use(error, &in_use))?;
        let view = report.choose(&candidates, options.force).map_err(|error| and_in_use(error, &in_use))?;
        must_not_be_in_use(view, &in_use, options.force)?;
        let file = report.fill(path, view, &candidates, options.force)?;
        if !options.dry_run {
            let is_new = continued.is_none();
            let mut directory = match continued {
                Some(directory) => directory.for_array(&view.array)?,
                None => VolumeDirectory::make(path, &view.array)?,
            };
            directory.import(file, options.take_over);
            let places = std::mem::take(&mut directory.file.member).into_iter();
            directory.file.member = places.map(|place| place.with_credentials(path, &options.credentials)).collect();
            let saved = directory.save().and_then(|()| directory.sync_name());
            if let Err(error) = saved {
                let error = cannot_save(&directory, &error);
                if is_new {
                    directory.remove();
                }
                return Err(error);
            }
            report.written = true;
        }
        if let Some(takeover) = takeover {
            let is_left_out = |location: &Location| report.ignored.iter().any(|one| one.at == location.to_string());
            let members = candidates.iter().map(|one| &one.location).filter(|location| !is_left_out(location));
            report.taken = takeover.finish(path, &members.cloned().collect::<Vec<_>>(), &ring)?;
        }
        Ok(report)
    }

    fn ignore(&mut self, location: &Location, reason: impl Into<String>) {
        self.ignored.push(IgnoredDrive { at: location.to_string(), reason: reason.into() });
    }

    /// The drives of the volume to import.
    fn of_one_volume(
        &mut self,
        candidates: Vec<Candidate>,
        options: &ImportOptions,
    ) -> Result<Vec<Candidate>, DriveError> {
        let wanted = options.uuid.as_deref().map(|text| {
            uuid_of(text)
                .ok_or_else(|| DriveError::new(format!("\"{text}\" is not a UUID"), "omit --uuid to list the volumes"))
        });
        let mut arrays: Vec<[u8; 16]> = candidates.iter().map(|one| one.own.array).collect();
        arrays.sort_unstable();
        arrays.dedup();
        let array = match (wanted.transpose()?, &arrays[..]) {
            (Some(array), _) if arrays.contains(&array) => array,
            (Some(array), _) => {
                let what = format!("none of the drives is a member of the volume {}", uuid_text(&array));
                return Err(DriveError::new(what, "omit --uuid to list the volumes"));
            }
            (None, [array]) => *array,
            (None, []) => {
                return Err(DriveError::new(
                    "no drive is a member of a volume",
                    "name its drives, or a directory to search",
                ));
            }
            (None, several) => return Err(several_volumes(several, &candidates)),
        };
        let (own, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| one.own.array == array);
        for other in others {
            self.ignore(&other.location, format!("it is {}", describe(&Identity::Member(Box::new(other.own)))));
        }
        Ok(own)
    }

    /// The superblock by which the volume is assembled: the newest valid one; with `force` the
    /// newest one of which enough members are found.
    fn choose<'a>(&mut self, candidates: &'a [Candidate], force: bool) -> Result<&'a Membership, DriveError> {
        let own: Vec<&Membership> = candidates.iter().map(|one| &one.own).collect();
        let newest = match Agreement::of(&own, None, None) {
            Ok(Some(agreement)) => agreement.newest,
            Err(error @ VolumeError::SplitBrain { .. }) if !force => return Err(split_brain(&error, candidates)),
            Err(VolumeError::SplitBrain { .. }) => {
                self.is_split = true;
                latest(&own)
            }
            Ok(None) | Err(_) => latest(&own),
        };
        self.epoch = newest.epoch;
        let is_enough = |view: &Membership, own: &[&Membership]| {
            view.scheme.is_some_and(|scheme| scheme.are_enough(active(view, own, view.epoch)))
        };
        let mut views: Vec<&Membership> = own.iter().copied().filter(|one| newest.is_newer_than(one)).collect();
        views.sort_by_key(|one| std::cmp::Reverse((one.epoch, one.sequence)));
        let older = |view: &&&Membership| {
            let as_old: Vec<&Membership> = own.iter().copied().filter(|one| !one.is_newer_than(view)).collect();
            is_enough(view, &as_old)
        };
        let reached = reached_apart(newest, &own).filter(|_| !is_enough(newest, &own));
        let has_older = views.iter().any(|view| older(&view));
        if !force && !is_enough(newest, &own) {
            return Err(too_few(newest, &own, reached.is_some() || has_older));
        }
        if let Some(reached) = reached {
            // An interrupted mount leaves the same state.
            (self.epoch, self.found_epoch) = (reached, reached);
            return Ok(newest);
        }
        let view = if is_enough(newest, &own) { Some(newest) } else { views.iter().find(older).copied() };
        let Some(view) = view else { return Err(too_few(newest, &own, false)) };
        self.found_epoch = view.epoch;
        Ok(view)
    }

    /// Assigns every drive to its member. Returns the contents of volume.toml for `directory`.
    fn fill(
        &mut self,
        directory: &Path,
        view: &Membership,
        candidates: &[Candidate],
        force: bool,
    ) -> Result<VolumeFile, DriveError> {
        self.name = view.name.clone();
        self.array = uuid_text(&view.array);
        self.scheme = view.scheme.map_or_else(|| "of an unknown level".to_owned(), |scheme| scheme.to_string());
        let is_older = view.epoch < self.epoch;
        let mut places = Vec::new();
        for (at, known) in (0_u8..).zip(&view.members) {
            let mut of_place: Vec<&Candidate> = candidates.iter().filter(|one| one.own.member == at).collect();
            // A mount would use the newest of them.
            let is_newer = |one: &&Candidate| is_older && one.own.is_newer_than(view);
            for newer in of_place.iter().filter(|one| is_newer(one)) {
                self.ignore(
                    &newer.location,
                    format!("it has epoch {}, of which too few members are found", newer.own.epoch),
                );
            }
            of_place.retain(|one| !is_newer(one));
            let (same, replaced): (Vec<&Candidate>, Vec<&Candidate>) =
                of_place.into_iter().partition(|one| one.own.id() == known.id);
            if same.len() == 1 && same[0].own.epoch < view.epoch && self.epoch < view.epoch {
                self.warnings.push(format!(
                    "{} has epoch {}, the newest one is {}: an assembly was interrupted before it updated this drive, or \
                     the drive is an older copy; in that case blocks written since read as older data, or as zeros",
                    same[0].location, same[0].own.epoch, view.epoch
                ));
            }
            if same.len() == 1 && is_older_copy(view, &same[0].own, self.epoch) {
                self.warnings.push(format!(
                    "{} is an older copy of member {at}: its epoch is {}, and the volume had reached {} with it; it \
                     is rebuilt or resynchronized when the volume is served",
                    same[0].location, same[0].own.epoch, view.epoch
                ));
            }
            let named: Vec<&Candidate> = same.iter().chain(&replaced).copied().filter(|one| one.is_named).collect();
            if same.len() > 1 || (named.len() > 1 && !force) {
                return Err(same_place(at, same.iter().chain(&replaced).copied(), same.len() > 1));
            }
            for one in &replaced {
                let reason = format!(
                    "another drive is member {at}: it was replaced after epoch {}, and its contents are out of date",
                    one.own.epoch
                );
                if one.is_named && !force {
                    let what = format!("{}: {reason}", one.location);
                    return Err(DriveError::new(what, "omit it; --force ignores it, too"));
                }
                self.ignore(&one.location, reason);
            }
            let found = same.first();
            let state = last_state(known.state);
            let place = found.map_or_else(Place::missing, |one| place_in(directory, &one.location));
            self.members.push(ImportedMember {
                member: at,
                id: uuid_text(&known.id),
                at: found.map(|_| place.at.clone()),
                state: state_name(known.state).to_owned(),
                epoch: found.map(|one| one.own.epoch),
            });
            places.push(Place { state: Some(state), ..place });
        }
        self.warn(view);
        let file = VolumeFile::new(self.name.clone(), self.array.clone());
        let enough = view.scheme.map(|scheme| usize::from(scheme.data));
        Ok(VolumeFile { epoch: Some(self.epoch), enough, member: places, ..file })
    }

    fn warn(&mut self, view: &Membership) {
        let away = self.members.iter().filter(|one| one.at.is_none() && one.state == "active");
        let away: Vec<String> = away.map(|one| format!("{} ({})", one.member, one.id)).collect();
        if !away.is_empty() {
            let (members, are, they_have) =
                if away.len() == 1 { ("member", "is", "it has") } else { ("members", "are", "they have") };
            self.warnings.push(format!(
                "{members} {}, active in epoch {}, {are} missing: if the volume was used without the imported drives, \
                 {they_have} a newer epoch, and later writes are not on the imported drives",
                away.join(", "),
                view.epoch
            ));
        }
        if self.found_epoch < self.epoch {
            self.warnings.push(format!(
                "out of date: the imported drives have epoch {}, the newest known epoch is {}; zonda serve refuses \
                 the volume without --accept-older, and writes since epoch {} are lost",
                self.found_epoch, self.epoch, self.found_epoch
            ));
        }
    }
}

/// Reads the superblocks of the drives that are named, and of those that are found.
fn candidates(
    options: &ImportOptions,
    ignored: &mut Vec<IgnoredDrive>,
    takeover: &mut Option<ImportTakeover>,
    ring: &Ring,
) -> Result<Candidates, DriveError> {
    let host = options.credentials.options()?;
    let access = |location: &Location| Access { location: location.clone(), options: host.clone() };
    let (mut found, mut in_use): (Vec<Candidate>, Vec<InUse>) = (Vec::new(), Vec::new());
    for location in &options.members {
        let absolute = absolute(location);
        if found.iter().any(|other| other.location == absolute) {
            return Err(DriveError::new(format!("{location} is named twice"), "name each drive once"));
        }
        refuse_volume(location)?;
        let looked = match takeover {
            Some(takeover) => takeover.look(&access(&absolute), ring),
            None => identity(&access(&absolute), ring).map_err(|error| suggest_takeover(&absolute, error)),
        };
        match looked? {
            Some(Identity::Member(own)) => found.push(Candidate { location: absolute, own: *own, is_named: true }),
            Some(other) => {
                let what = format!("{location} is {}", describe(&other));
                return Err(DriveError::new(what, "use the program that wrote it"));
            }
            None => {
                let what = format!("{location} is not a member of a volume: it has no superblock that can be read");
                return Err(DriveError::new(
                    what,
                    "omit it; zonda member replace adds drives once the volume is served",
                ));
            }
        }
    }
    for directory in &options.scan {
        let mut images = Vec::new();
        find_images(directory, DEPTH_MAX, &mut images)?;
        images.sort();
        for image in images {
            let location = absolute(&Location::Image(image));
            if found.iter().any(|other| other.location == location) {
                continue;
            }
            match identity(&access(&location), ring) {
                Ok(Some(Identity::Member(own))) => found.push(Candidate { location, own: *own, is_named: false }),
                Ok(Some(other)) => {
                    ignored
                        .push(IgnoredDrive { at: location.to_string(), reason: format!("it is {}", describe(&other)) });
                }
                Ok(None) => {
                    let reason = "it is not a member of a volume".to_owned();
                    ignored.push(IgnoredDrive { at: location.to_string(), reason });
                }
                Err(error) => {
                    ignored.push(IgnoredDrive { at: location.to_string(), reason: error.message });
                    if let (true, Location::Image(path)) = (error.is_in_use, &location) {
                        let own = match Snapshot::identity_in_use(path) {
                            Some(Identity::Member(own)) => Some(*own),
                            _ => None,
                        };
                        in_use.push(InUse { location, own });
                    }
                }
            }
        }
    }
    Ok(Candidates { found, in_use })
}

/// Refuses drives of the volume that are in use by another program: they may be newer than those
/// that are found, and that program uses the volume. So it may be with drives whose superblock
/// cannot be read.
fn must_not_be_in_use(view: &Membership, in_use: &[InUse], force: bool) -> Result<(), DriveError> {
    let may_be_own = |one: &&InUse| one.own.as_ref().map_or(!force, |own| own.array == view.array);
    let own: Vec<String> = in_use.iter().filter(may_be_own).map(InUse::shown).collect();
    if own.is_empty() {
        return Ok(());
    }
    Err(DriveError::in_use(
        format!("the volume may be in use: another program uses {}", own.join(", ")),
        "stop that program: it uses the directory of the volume, too; or name drives with --members instead of --scan",
    ))
}

/// Adds the drives that are in use by another program to an error: they may be the missing ones.
fn and_in_use(error: DriveError, in_use: &[InUse]) -> DriveError {
    if in_use.is_empty() {
        return error;
    }
    let shown: Vec<String> = in_use.iter().map(InUse::shown).collect();
    let message = format!("{}; in use by another program, and not read: {}", error.message, shown.join(", "));
    DriveError { message, is_in_use: true, ..error }
}

pub(super) fn absolute(location: &Location) -> Location {
    match location {
        Location::Image(path) => Location::Image(plain(&std::path::absolute(path).unwrap_or_else(|_| path.clone()))),
        other @ (Location::Device(_) | Location::NvmeTcp(_)) => other.clone(),
    }
}

fn latest<'a>(own: &[&'a Membership]) -> &'a Membership {
    let newer = |best: &'a Membership, next: &'a Membership| if next.is_newer_than(best) { next } else { best };
    own.iter().copied().reduce(newer).expect("a volume has been found by a member")
}

/// Whether a drive is an older copy of a member, which a mount treats as missing, given that the
/// volume is known to have `reached` an epoch.
fn is_older_copy(view: &Membership, one: &Membership, reached: u64) -> bool {
    let agreement = Agreement { newest: view, rejected: Vec::new() };
    agreement.is_older_copy(MemberIndex(one.member), (one.epoch, one.sequence), Some(reached))
}

/// The newest epoch that enough members have reached, of those that agree on the states of all
/// members with the newest superblock: its epoch is that of a mount, which may not have updated all
/// members.
fn reached_apart(newest: &Membership, own: &[&Membership]) -> Option<u64> {
    let agree: Vec<&Membership> = own.iter().copied().filter(|one| one.members == newest.members).collect();
    let scheme = newest.scheme?;
    let mut epochs: Vec<u64> = agree.iter().map(|one| one.epoch).collect();
    epochs.sort_unstable_by_key(|&epoch| std::cmp::Reverse(epoch));
    epochs.into_iter().find(|&epoch| scheme.are_enough(active(newest, &agree, epoch)))
}

/// The members that a superblock has as active and that are found, as bits, given that the volume
/// is known to have `reached` an epoch.
fn active(view: &Membership, own: &[&Membership], reached: u64) -> u32 {
    let is_found = |at: usize, id: [u8; 16]| {
        let is_meant = |one: &&Membership| usize::from(one.member) == at && one.id() == id;
        own.iter().copied().filter(|one| !is_older_copy(view, one, reached)).any(|one| is_meant(&one))
    };
    let is_active =
        |(at, known): &(usize, &zonda_raid::KnownMember)| known.state == MemberState::Active && is_found(*at, known.id);
    view.members.iter().enumerate().filter(is_active).fold(0, |bits, (at, _)| bits | 1 << at)
}

fn last_state(state: MemberState) -> LastState {
    match state {
        MemberState::Active => LastState::Active,
        MemberState::Failed => LastState::Failed,
        MemberState::Rebuilding => LastState::Rebuilding,
    }
}

fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Active => "active",
        MemberState::Failed => "failed",
        MemberState::Rebuilding => "rebuilding",
    }
}

fn several_volumes(arrays: &[[u8; 16]], candidates: &[Candidate]) -> DriveError {
    let shown = |array: &[u8; 16]| {
        let of_it: Vec<&Candidate> = candidates.iter().filter(|one| one.own.array == *array).collect();
        let name = of_it.first().map_or("", |one| one.own.name.as_str());
        let drives: Vec<String> = of_it.iter().map(|one| one.shown()).collect();
        format!("\"{name}\" ({}): {}", uuid_text(array), drives.join(", "))
    };
    let volumes: Vec<String> = arrays.iter().map(shown).collect();
    DriveError::new(
        format!("the drives are of {} volumes: {}", arrays.len(), volumes.join("; ")),
        "choose one with --uuid, or name only its drives",
    )
}

fn same_place<'a>(member: u8, drives: impl Iterator<Item = &'a Candidate>, are_same: bool) -> DriveError {
    let drives: Vec<String> = drives.map(|one| format!("{} (epoch {})", one.location, one.own.epoch)).collect();
    let (why, help) = if are_same {
        ("they have the same id: one of them is a copy", "omit the copy")
    } else {
        ("one of them was replaced by the other", "omit the one with the older epoch; --force does so")
    };
    DriveError::new(format!("{} each claim to be member {member}: {why}", drives.join(" and ")), help)
}

/// The error for too few members; `force_helps` is set if --force accepts these.
fn too_few(newest: &Membership, own: &[&Membership], force_helps: bool) -> DriveError {
    let found = active(newest, own, newest.epoch);
    let lacking = |(at, known): (usize, &zonda_raid::KnownMember)| {
        let own = own.iter().find(|one| usize::from(one.member) == at && one.id() == known.id);
        let is_found = own.is_some();
        let how = match known.state {
            _ if found >> at & 1 == 1 => return None,
            MemberState::Active if let Some(own) = own => {
                format!("an older copy, or not updated by the last assembly: it has epoch {}", own.epoch)
            }
            MemberState::Rebuilding if is_found => "not rebuilt yet".to_owned(),
            MemberState::Failed if is_found => format!("failed since epoch {}", known.since_epoch),
            MemberState::Failed => format!("not found, and failed since epoch {}", known.since_epoch),
            _ => "not found".to_owned(),
        };
        Some(format!("{at} (id {}, {how})", uuid_text(&known.id)))
    };
    let lacking: Vec<String> = newest.members.iter().enumerate().filter_map(lacking).collect();
    let needed = newest.scheme.map_or(0, |scheme| scheme.data);
    DriveError::new(
        format!(
            "too few members: {} of {} are active in epoch {}, and the volume needs {needed}; missing: {}",
            found.count_ones(),
            newest.members.len(),
            newest.epoch,
            lacking.join(", ")
        ),
        if force_helps {
            "name the missing drives, too; --force accepts drives whose epochs differ only because the volume was \
             assembled, or goes back to an older epoch, which enough members have"
        } else {
            "name the missing drives, too"
        },
    )
}

fn split_brain(error: &VolumeError, candidates: &[Candidate]) -> DriveError {
    let VolumeError::SplitBrain { newest, other, .. } = error else {
        return DriveError::new(error.to_string(), "name other drives");
    };
    let side = |members: &[MemberIndex]| {
        let of_side = candidates.iter().filter(|one| members.contains(&MemberIndex(one.own.member)));
        of_side.map(Candidate::shown).collect::<Vec<String>>().join(", ")
    };
    DriveError::new(
        format!("split brain: {}, and {}, were each written to without the others", side(newest), side(other)),
        "name only the drives of the side to keep; or use --force, and choose the side with zonda serve DIR \
         --keep-side MEMBER",
    )
}
