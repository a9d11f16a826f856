//! Checks a volume without writing: its images and drives are opened read-only, of namespaces of servers
//! only zones are reported and blocks read, and what a mount and a scrub write stays in memory and is
//! discarded.

use std::path::Path;
use std::time;

use serde::{Deserialize, Serialize};
use zonda_isal::Isal;
use zonda_raid::{Event, Identity, MemberIndex, MemberState, Membership, MountOptions, Tuning, Volume, VolumeDevice};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{Blocks, CompletionQueue, Instant, Lba, NamespaceId, ZoneDescriptor, ZonedDevice};

use super::assembly::{are_enough, is_of_other};
use super::check_superblocks;
use super::directory::{LastState, Place, VolumeDirectory};
use super::identities::holder;
use super::look::in_use;
use super::names::Names;
use super::outdated::must_be_newest;
use super::report::{LostRange, Progress};
use super::reservations::ReservationStore;
use super::start::tuning;
use crate::look::Snapshot;
use crate::probe::describe;
use crate::{DriveError, Location};

/// Time between two reports of progress.
const PROGRESS_INTERVAL: time::Duration = time::Duration::from_millis(200);

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The volume's name.
    pub name: String,
    /// `RAID 5 (3+1)`; empty if it cannot be mounted.
    pub scheme: String,
    /// Why it cannot be mounted, and the remedy. Nothing was checked then.
    pub refusal: Option<(String, String)>,
    /// Its members.
    pub members: Vec<CheckedMember>,
    /// Blocks read from members, each counted once.
    pub blocks: u64,
    /// Damaged blocks of members, including headers and footers, each counted once: a scrub repairs
    /// them. Lost blocks are not included.
    pub wrong_blocks: u64,
    /// Needed blocks that cannot be read while a member is missing, and may be readable when it is
    /// back.
    pub unreadable_blocks: u64,
    /// Damaged blocks at the end of superblock zones, where the newest superblock may have been: the
    /// next assembly and a scrub write new superblocks behind them.
    #[serde(default)]
    pub damaged_superblocks: u64,
    /// Damaged superblocks that newer ones in the same zone supersede: they are not read any more.
    #[serde(default)]
    pub superseded_superblocks: u64,
    /// Blocks of the volume that are lost: reads of them fail.
    pub lost_blocks: u64,
    /// The ranges of these blocks.
    pub lost: Vec<LostRange>,
}

/// The state of a member in a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedMember {
    /// Its number, from 0.
    pub member: u8,
    /// The path or URL of its device.
    pub at: String,
    /// `active`, `rebuilding`, `failed`, or `missing`: only active ones were read.
    pub state: String,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CheckReport {
    /// Whether every written block can be read, and no member that was read has a damaged block.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.refusal.is_none() && self.damage() == 0
    }

    fn damage(&self) -> u64 {
        self.wrong_blocks + self.unreadable_blocks + self.damaged_superblocks + self.lost_blocks
    }

    /// Reads all blocks of the volume in `path`, which must not be in use, and verifies their
    /// checksums and parity. **Nothing is written.** A member that is being rebuilt is not read.
    ///
    /// # Errors
    /// When there is no volume, it or one of its members is in use, or a member that is a namespace of
    /// a server cannot be read any more; with the remedy.
    pub fn of(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<CheckReport, DriveError> {
        let directory = VolumeDirectory::open_read_only(path)?;
        let (mut devices, members, refusal) = devices(&directory)?;
        let mut report = CheckReport { name: directory.file.name.clone(), members, ..CheckReport::default() };
        let Some(geometry) = devices.iter().flatten().map(|device| device.geometry(NamespaceId::FIRST)).next() else {
            return Ok(report.refused(&DriveError::new("cannot read any member", "restore its members")));
        };
        if let Some(error) = refusal.or_else(|| ReservationStore::of(&directory).err()) {
            return Ok(report.refused(&error));
        }
        let tuning = tuning(directory.file.reserve_percent, directory.file.rates, geometry.block_size_bytes);
        let tuning = Tuning { reads_unneeded: true, ..tuning };
        let geometries = |device: &Option<Snapshot>| Some(device.as_ref()?.geometry(NamespaceId::FIRST).clone());
        let options = MountOptions { newest_epoch: directory.file.epoch, ..MountOptions::of(directory.array()?) };
        let names = Names(&directory.file.member);
        let written: Vec<Vec<ZoneDescriptor>> =
            devices.iter_mut().map(|device| device.as_mut().map_or_else(Vec::new, Snapshot::zones)).collect();
        for (device, zones) in devices.iter_mut().zip(&written) {
            let Some(device) = device else { continue };
            let damage = check_superblocks::damage(device, zones);
            report.damaged_superblocks += damage.newest;
            report.superseded_superblocks += damage.superseded;
        }
        let mut volume = match Volume::mount(devices.iter().map(geometries).collect(), tuning, options) {
            Ok(volume) => volume,
            Err(error) => return Ok(report.refused(&names.describe(&error))),
        };
        if let Some(isal) = Isal::new() {
            volume.set_engine(Box::new(isal));
        }
        let mut checked = Checked {
            on: VolumeDevice::new(volume, devices),
            now: Instant::ZERO,
            completions: CompletionQueue::new(),
            names: directory.file.member.iter().map(Place::shown).collect(),
        };
        if let Err(error) = checked.mount(&names)? {
            return Ok(report.refused(&error));
        }
        checked.scrub(progress)?;
        let members = (0..).map(MemberIndex).zip(&written);
        report.blocks = members.filter_map(|(at, zones)| Some(checked.on.member(at)?.read_blocks(zones))).sum();
        let volume = checked.on.volume();
        let block_bytes = checked.on.geometry(NamespaceId::FIRST).block_size_bytes;
        for (member, found) in report.members.iter_mut().zip(volume.status().members) {
            if member.state == "active" && found.state != MemberState::Active {
                member.state = "failed".to_owned();
            }
        }
        report.scheme = volume.scheme().to_string();
        // Damage that the mount has found is included.
        let damage = volume.damage();
        report.wrong_blocks = damage.repaired + damage.damaged;
        report.unreadable_blocks = damage.unreadable;
        report.lost_blocks = volume.status().lost_blocks;
        report.lost = volume
            .lost(Lba(0))
            .map(|range| LostRange {
                lba: range.start.0,
                blocks: range.blocks.0,
                offset_bytes: Blocks(range.start.0).bytes(block_bytes),
            })
            .collect();
        Ok(report)
    }

    fn refused(mut self, error: &DriveError) -> CheckReport {
        self.refusal = Some((error.message.clone(), error.help.clone()));
        self
    }
}

/// Devices by member, the report of each, and why the mount would be refused.
type Devices = (Vec<Option<Snapshot>>, Vec<CheckedMember>, Option<DriveError>);

/// Opens the devices of the active members read-only.
fn devices(directory: &VolumeDirectory) -> Result<Devices, DriveError> {
    let array = directory.array()?;
    let (mut found, mut members) = (Vec::new(), Vec::new());
    for (at, place) in (0..).zip(&directory.file.member) {
        let opened = open(directory, array, at, place).and_then(|mut device| {
            match device.identity().filter(|_| place.is_free()) {
                Some(Identity::Member(own)) if own.array == array => Ok(device),
                // Its drive is used by another volume now.
                Some(other) => Err(DriveError::new(format!("the drive is {}", describe(&other)), "name another drive")),
                None => Ok(device),
            }
        });
        let (state, reason) = match &opened {
            Ok(_) => ("active", None),
            Err(error) if error.is_in_use && !place.is_free() => return Err(error.clone()),
            Err(error) => ("missing", Some(error.clone().of_member().to_string())),
        };
        members.push(CheckedMember { member: at, at: place.at.clone(), state: state.to_owned(), reason });
        found.push(opened.ok());
    }
    let own: Vec<Option<Membership>> = found
        .iter_mut()
        .map(|device| match device.as_mut()?.identity() {
            Some(Identity::Member(own)) if own.array == array => Some(*own),
            _ => None,
        })
        .collect();
    let newest = own.iter().flatten().reduce(|best, next| if next.is_newer_than(best) { next } else { best });
    let by_place: Vec<Option<&Membership>> = own.iter().map(Option::as_ref).collect();
    let refusal =
        newest.and_then(|newest| must_be_newest(&directory.file, &by_place, newest, newest.epoch, false).err());
    if newest.is_some_and(|newest| are_enough(own.iter().flatten(), newest)) {
        // A mount treats a drive of another volume as missing.
        for (device, member) in found.iter_mut().zip(&mut members) {
            let identity = device.as_mut().and_then(Snapshot::identity);
            if let Some(other) = identity.filter(|found| is_of_other(found, array)) {
                *device = None;
                (member.state, member.reason) =
                    ("missing".to_owned(), Some(format!("the drive is {}", describe(&other))));
            }
        }
    }
    for (at, (device, member)) in found.iter_mut().zip(&mut members).enumerate() {
        let known = newest.and_then(|newest| newest.members.get(at));
        let is_own = own[at].as_ref().zip(known).is_some_and(|(own, known)| own.id() == known.id);
        let is_joining = directory.file.member[at].state == Some(LastState::Joining);
        // A mount determines the same, but is not reached if the volume is refused.
        let has_failed = known.is_some_and(|known| known.state == MemberState::Failed) || !is_own && own[at].is_some();
        if device.is_some() && known.is_some() && has_failed {
            member.state = "failed".to_owned();
        }
        // A mount would begin to rebuild them, in as much memory as they have contents.
        let state = match known.map(|known| known.state) {
            Some(MemberState::Rebuilding) if is_own => "rebuilding",
            _ if is_joining && !is_own => "joining",
            _ => continue,
        };
        if device.take().is_some() {
            member.state = state.to_owned();
        }
    }
    Ok((found, members, refusal))
}

/// Opens the device of a member read-only.
fn open(directory: &VolumeDirectory, array: [u8; 16], at: u8, place: &Place) -> Result<Snapshot, DriveError> {
    let access = directory.access(place)?;
    match &access.location {
        Location::Image(path) => Snapshot::open(path),
        Location::Device(_) => Snapshot::open_drive(&access),
        Location::NvmeTcp(_) => Snapshot::open_drive(&access).map_err(|error| {
            // The server reports nothing of a namespace that another host has reserved.
            let holder = Ring::new(RingOptions::default()).ok().and_then(|ring| holder(&access, &ring));
            holder.map_or(error, |holder| in_use(directory, array, usize::from(at), holder))
        }),
    }
}

/// A volume whose devices are not written, with a simulated clock.
struct Checked {
    on: VolumeDevice<Snapshot>,
    now: Instant,
    completions: CompletionQueue,
    /// The paths and URLs of the members.
    names: Vec<String>,
}

impl Checked {
    /// Mounts the volume. The inner result is the error of the mount.
    fn mount(&mut self, names: &Names<'_>) -> Result<Result<(), DriveError>, DriveError> {
        loop {
            self.poll()?;
            if self.on.volume().is_ready() {
                return Ok(Ok(()));
            }
            if let Some(error) = self.on.volume().failure() {
                return Ok(Err(names.describe(error)));
            }
            self.advance()?;
        }
    }

    /// Scrubs the volume.
    fn scrub(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), DriveError> {
        self.on.volume_mut().start_scrub(self.now);
        let mut shown = time::Instant::now();
        loop {
            if self.poll()? {
                return Ok(());
            }
            if shown.elapsed() >= PROGRESS_INTERVAL {
                shown = time::Instant::now();
                if let Some((done, all)) = self.on.volume().status().scrub {
                    progress(Progress { done, all });
                }
            }
            self.advance()?;
        }
    }

    /// Makes progress without waiting. Returns whether a scrub has completed.
    fn poll(&mut self) -> Result<bool, DriveError> {
        self.on.poll(self.now, &mut self.completions);
        // Its blocks are not damaged: nothing is known of them.
        for at in 0..self.names.len() {
            if let Some(why) = self.on.member(MemberIndex(at as u8)).and_then(Snapshot::unusable) {
                let message = format!("the check has stopped: {} cannot be read any more: {why}", self.names[at]);
                return Err(DriveError::new(
                    message,
                    "check that its server runs and that no other server uses the volume",
                ));
            }
        }
        while let Some(event) = self.on.volume_mut().poll_event() {
            match event {
                Event::Scrubbed { .. } => return Ok(true),
                // There is no way to continue.
                Event::OutOfSpace { .. } | Event::Suspended { .. } => return Err(endless()),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Devices complete at once, so the volume can only wait for a time: sets the clock to it.
    fn advance(&mut self) -> Result<(), DriveError> {
        let next = self.on.next_timeout().ok_or_else(endless)?;
        self.now = self.now.max(next);
        Ok(())
    }
}

fn endless() -> DriveError {
    DriveError::new(
        "cannot complete the check: the writes of an assembly do not fit in memory, or a member cannot be written",
        "assemble the volume, and check and repair it with zonda volume scrub",
    )
}
