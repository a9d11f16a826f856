//! Refuses requests to a volume that is not in use before it is assembled for them: assembling
//! writes to the members and increases the epoch, so that a missing member is out of date after it.

use std::path::Path;

use zonda_raid::{Identity, Membership};
use zonda_zoned::{Geometry, Instant};

use super::directory::{Place, VolumeDirectory};
use super::manage::{VolumeRequest, is_spare, location_of, member_named, spare_named};
use super::member_device::refuse_volume;
use super::names::Names;
use super::report::{MemberSummary, VolumeReport, VolumeState};
use super::vacant::must_be_free_for;
use crate::look::Snapshot;
use crate::probe::Probe;
use crate::{DriveError, Location};

impl VolumeRequest {
    /// Refuses what the assembled volume in `path` would refuse, as far as `volume.toml`, the
    /// superblocks and local images show it. **Nothing is written.** A request that passes can
    /// still be refused by the assembled volume.
    ///
    /// # Errors
    /// Why the request is refused, and the remedy.
    pub fn must_be_possible(&self, path: &Path) -> Result<(), DriveError> {
        // If it cannot be read, opening it fails, too, and reports why.
        let Ok(report) = VolumeReport::inspect(path) else { return Ok(()) };
        if report.state == VolumeState::Incomplete {
            return Ok(());
        }
        let Ok(directory) = VolumeDirectory::open_read_only(path) else { return Ok(()) };
        let volume = Unassembled { directory, report };
        match self {
            VolumeRequest::Fail { member } => volume.may_fail(member),
            VolumeRequest::Replace { member, with, may_wipe, .. } => {
                volume.must_have_failed(member, "fail it first: zonda member fail")?;
                volume.may_add(with, *may_wipe)
            }
            VolumeRequest::Readd { member } => volume.may_return(member),
            VolumeRequest::AddSpare { spare, may_wipe, .. } => volume.may_add(spare, *may_wipe),
            VolumeRequest::RemoveSpare { spare } => spare_named(&volume.directory.file.spare, spare).map(drop),
            VolumeRequest::Report
            | VolumeRequest::Lost { .. }
            | VolumeRequest::Scrub
            | VolumeRequest::StopScrub
            | VolumeRequest::Rates { .. } => Ok(()),
        }
    }
}

/// A volume that is not in use: its file, and what its superblocks report.
struct Unassembled {
    directory: VolumeDirectory,
    report: VolumeReport,
}

impl Unassembled {
    fn member(&self, name: &str) -> Result<(&Place, &MemberSummary, String), DriveError> {
        let member = member_named(&self.directory.file.member, name)?;
        let at = usize::from(member.0);
        let shown = Names(&self.directory.file.member).shown(member);
        Ok((&self.directory.file.member[at], &self.report.members[at], shown))
    }

    fn may_fail(&self, name: &str) -> Result<(), DriveError> {
        let (place, member, shown) = self.member(name)?;
        match member.state.as_str() {
            "failed" | "missing" if place.failed.is_some() => Err(failed_already(&shown)),
            "active" if self.report.can_lose == 0 => {
                Err(DriveError::new(format!("the volume cannot lose {shown}"), self.how_to_rebuild()))
            }
            _ => Ok(()),
        }
    }

    /// How to make the volume redundant again.
    fn how_to_rebuild(&self) -> &'static str {
        let is_any = |state: &str| self.report.members.iter().any(|member| member.state == state);
        let has_spare = self.report.spares.iter().any(|at| !self.report.unreachable_spares.contains(at));
        if is_any("rebuilding") || is_any("joining") {
            "let the volume rebuild first: zonda volume status DIR --wait --assemble, or serve it with zonda serve DIR"
        } else if (is_any("failed") || is_any("missing")) && has_spare {
            "let the spare replace the failed member first: zonda volume status DIR --wait --assemble, or serve the \
             volume with zonda serve DIR"
        } else {
            CANNOT_LOSE
        }
    }

    fn must_have_failed(&self, name: &str, help: &str) -> Result<(), DriveError> {
        let (_, member, shown) = self.member(name)?;
        match member.state.as_str() {
            "active" => Err(DriveError::new(format!("{shown} has not failed"), help)),
            _ => Ok(()),
        }
    }

    fn may_return(&self, name: &str) -> Result<(), DriveError> {
        self.must_have_failed(name, "it need not be re-added")?;
        let (place, ..) = self.member(name)?;
        match self.directory.location(place)? {
            Location::Image(path) => Snapshot::open(&path).map(drop).map_err(DriveError::of_member),
            Location::Device(_) | Location::NvmeTcp(_) => Ok(()),
        }
    }

    fn may_add(&self, text: &str, may_wipe: bool) -> Result<(), DriveError> {
        let location = location_of(text)?;
        refuse_volume(&location)?;
        self.must_not_be_in_use(text, &location)?;
        let Location::Image(path) = location else { return Ok(()) };
        let mut image = Snapshot::open(&path)?;
        let probe = Probe::of_all(image.own_geometry());
        let Some(probed) = probe.run_at_once(&mut image, Instant::ZERO) else { return Ok(()) };
        let array = self.directory.array()?;
        if let Some((own, others)) = self.members_in_use(array) {
            let suits = own.must_suit(image.own_geometry(), &others);
            suits.map_err(|error| DriveError::new(error.to_string(), "name another drive"))?;
        }
        if may_wipe { Ok(()) } else { must_be_free_for(array, text, &probed) }
    }

    /// The superblock and the geometries of the members in use; no geometries unless all of them
    /// are images.
    fn members_in_use(&self, array: [u8; 16]) -> Option<(Membership, Vec<Geometry>)> {
        let members = self.directory.file.member.iter().zip(&self.report.members);
        let in_use: Vec<&Place> = members.filter(|(_, member)| is_in_use(member)).map(|(place, _)| place).collect();
        let opened = in_use.iter().filter_map(|place| match self.directory.location(place).ok()? {
            Location::Image(path) => Snapshot::open(&path).ok(),
            Location::Device(_) | Location::NvmeTcp(_) => None,
        });
        let mut images: Vec<Snapshot> = opened.collect();
        let own = images.iter_mut().find_map(|image| match image.identity()? {
            Identity::Member(own) if own.array == array => Some(*own),
            _ => None,
        })?;
        let is_complete = images.len() == in_use.len();
        let geometries = images.iter().filter(|_| is_complete).map(|image| image.own_geometry().clone());
        Some((own, geometries.collect()))
    }

    fn must_not_be_in_use(&self, text: &str, location: &Location) -> Result<(), DriveError> {
        let wanted = self.directory.place(location);
        let is_at = |place: &Place| {
            self.directory.location(place).is_ok_and(|other| self.directory.place(&other).at == wanted.at)
        };
        let members = self.directory.file.member.iter().zip(&self.report.members);
        if let Some((place, member)) = members.into_iter().find(|(place, member)| is_in_use(member) && is_at(place)) {
            let what = format!("{text} is {} of this volume", place.as_member(member.member));
            return Err(DriveError::new(what, "name another drive"));
        }
        if self.directory.file.spare.iter().any(is_at) { Err(is_spare(text)) } else { Ok(()) }
    }
}

fn is_in_use(member: &MemberSummary) -> bool {
    matches!(member.state.as_str(), "active" | "rebuilding")
}

/// The remedy if a volume cannot lose a member, and no rebuild can make it redundant.
pub(super) const CANNOT_LOSE: &str = "replace the members that have failed first: zonda member replace DIR MEMBER --with DRIVE; a volume without redundancy \
     cannot lose any";

pub(super) fn failed_already(shown: &str) -> DriveError {
    DriveError::new(
        format!("{shown} has failed already"),
        "re-add it with zonda member re-add, or replace it with zonda member replace",
    )
}
