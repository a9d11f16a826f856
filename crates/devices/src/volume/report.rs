//! [`VolumeReport`]: the state of a volume, for operators.

use std::fmt;

use serde::{Deserialize, Serialize};
use zonda_raid::{FailReason, MemberIndex, MemberReport, MemberState};
use zonda_zoned::{Blocks, Lba, LbaRange, NamespaceId, ZonedDevice};

use super::VolumeDrive;
use super::directory::{Place, VolumeRates, WhyFailed};
use super::member_device::MemberDevice;
use super::spares::Spare;
use crate::Drive;

/// The maximum number of ranges of lost blocks in one report.
pub(super) const LOST_RANGES_MAX: usize = 4096;

/// The state of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// All members are active.
    #[default]
    Healthy,
    /// A member is missing, and not being replaced.
    Degraded,
    /// A member is being rebuilt.
    Rebuilding,
    /// More members are lost than the volume tolerates.
    Lost,
    /// Another server has reserved its members: every command fails.
    #[serde(rename = "taken over")]
    TakenOver,
    /// I/O waits for a needed member that does not respond, or that has no space to record the
    /// states of the members.
    Suspended,
    /// Blocks are lost: reads of them fail until they are written or trimmed. All others can be
    /// read and written.
    #[serde(rename = "data lost")]
    DataLost,
    /// It is not mounted, and cannot be until missing members are back.
    Incomplete,
}

impl fmt::Display for VolumeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            VolumeState::Healthy => "healthy",
            VolumeState::Degraded => "degraded",
            VolumeState::Rebuilding => "rebuilding",
            VolumeState::Lost => "lost",
            VolumeState::TakenOver => "taken over",
            VolumeState::Suspended => "suspended",
            VolumeState::DataLost => "data lost",
            VolumeState::Incomplete => "incomplete",
        })
    }
}

/// A snapshot of the state of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeReport {
    /// Whether it is mounted. If not, only name, array, scheme, state, epoch, size, members and
    /// spares are known.
    #[serde(default = "as_before")]
    pub mounted: bool,
    /// The name of the volume.
    pub name: String,
    /// The UUID of the volume.
    pub array: String,
    /// `RAID 5 (3+1)`.
    pub scheme: String,
    /// The state of the volume.
    pub state: VolumeState,
    /// Why a mount would be refused, if not only since members are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How many more members it can lose now.
    pub can_lose: u32,
    /// The newest known epoch: it counts mounts and changes of the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The size of the export.
    pub volume_bytes: u64,
    /// The capacity of the members: less than `volume_bytes` once too many of their zones are
    /// offline or read only.
    pub room_bytes: u64,
    /// Bytes of written and not deallocated blocks.
    pub live_bytes: u64,
    /// The members, in order.
    pub members: Vec<MemberSummary>,
    /// The paths and URLs of the spares, including those that cannot be reached.
    pub spares: Vec<String>,
    /// Spares that cannot be reached, and so cannot replace a member.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable_spares: Vec<String>,
    /// Unreachable spares that another host has reserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_spares: Vec<String>,
    /// Segments in use: groups of zones, one of each member.
    pub segments: u32,
    /// Free segments.
    pub free_segments: u32,
    /// Garbage collection begins below this number of free segments.
    pub low_segments: u32,
    /// Segments without the chunks of a member.
    pub degraded_segments: u32,
    /// Segments that cannot be reclaimed: they have blocks that cannot be read while a member is
    /// missing.
    pub unreadable_segments: u32,
    /// The rebuild in progress, in segments.
    pub rebuild: Option<Progress>,
    /// The scrub in progress, in segments.
    pub scrub: Option<Progress>,
    /// The result of the last scrub since the volume was opened.
    pub last_scrub: Option<ScrubSummary>,
    /// Bytes that hosts wrote since the volume was opened.
    pub host_write_bytes: u64,
    /// Bytes written to members: data, parity, padding, metadata, moved blocks.
    pub member_write_bytes: u64,
    /// Bytes that garbage collection has moved.
    pub relocated_bytes: u64,
    /// Blocks that were reconstructed from the rest of their stripe.
    pub reconstructed_blocks: u64,
    /// Blocks of members that were found damaged since the volume was opened, by any operation, and
    /// repaired.
    pub repaired_blocks: u64,
    /// Needed blocks that were found unreadable while a member is missing.
    pub unreadable_blocks: u64,
    /// Lost blocks: reads of them fail until they are written or trimmed. If the volume is not
    /// mounted, the number when it last was.
    pub lost_blocks: u64,
    /// Ranges of lost blocks, if requested ([`VolumeRequest::Lost`](super::VolumeRequest::Lost)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Vec<LostRange>>,
    /// Rate limits of background operations.
    pub rates: VolumeRates,
    /// Memory of the tables: the map, stripes, segments.
    pub table_bytes: u64,
}

/// Older servers, which do not report whether a volume is mounted, only report mounted volumes.
fn as_before() -> bool {
    true
}

/// A snapshot of the state of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberSummary {
    /// Its number, from 0.
    pub member: u8,
    /// The path or URL of its device.
    pub at: String,
    /// `active`, `suspended` (I/O waits for it), `rebuilding`, `joining` (being wiped before it is
    /// rebuilt), `returning` (being verified before it is re-added), `failed`; `missing` if the
    /// volume is not mounted.
    pub state: String,
    /// The epoch of its superblock, if the volume is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Why it has failed, if known: `by command`, `errors`, `no answer`, `absent`, `flapping`; for
    /// a missing namespace of a server, `cannot be reached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Why I/O is suspended until it responds, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Its file system is full: writes to the volume fail, and a rebuild or a scrub waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lacks_space: bool,
    /// Commands that have failed since the volume was opened, except for lack of space.
    pub errors: u64,
    /// Free zones.
    pub free_zones: u32,
    /// Zones that cannot be written any more.
    pub retired_zones: u32,
}

/// A range of lost blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// The first LBA.
    pub lba: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The offset in the export, in bytes.
    pub offset_bytes: u64,
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Completed units.
    pub done: u32,
    /// Total units.
    pub all: u32,
}

/// The result of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubSummary {
    /// Blocks that were read.
    pub blocks: u64,
    /// Damaged blocks of members that were repaired.
    pub repaired: u64,
    /// Damaged blocks of members that cannot be repaired while a member is missing.
    #[serde(default)]
    pub unreadable: u64,
    /// Damaged blocks of members that are lost.
    pub lost: u64,
    /// Blocks of the volume that were known to be lost before the scrub, and are still lost after
    /// it.
    #[serde(default)]
    pub known_lost: u64,
}

/// Describes why a member has failed.
fn why_failed(place: &Place, report: &MemberReport) -> Option<String> {
    let last = last_failure(place).filter(|_| report.state == MemberState::Failed);
    let reason = report.failed.filter(|_| report.state == MemberState::Failed);
    last.or(reason).map(|reason| reason.name().to_owned())
}

/// Why a member has failed, if that is saved in `volume.toml`.
pub(super) fn last_failure(place: &Place) -> Option<FailReason> {
    Some(match place.failed? {
        WhyFailed::Command => FailReason::Command,
        WhyFailed::Flapping => FailReason::Flapping,
    })
}

/// Describes why I/O waits for a member.
pub(super) fn describe_suspension(reason: FailReason) -> &'static str {
    match reason {
        FailReason::Timeout => "does not respond",
        _ => "fails its commands",
    }
}

/// The number with a comma every three digits.
fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Warns of losses that a mount has accepted: up to this number of blocks, or an unknown one (0).
pub(super) fn describe_accepted_losses(blocks: u64) -> String {
    let count = match blocks {
        0 => "an unknown number of blocks".to_owned(),
        1 => "up to 1 block".to_owned(),
        _ => format!("up to {} blocks", with_separators(blocks)),
    };
    format!(
        "losses accepted: the last writes of {count} are lost, and it is not known which: any block may have older \
         data; check the file system and compare with a backup"
    )
}

/// Describes the result of a scrub: each damaged block of a member is repaired, lost, or
/// unreadable. `lost_blocks` is the total number of lost blocks of the volume, including those that
/// were lost before.
pub(super) fn describe_scrub(scrub: &ScrubSummary, lost_blocks: u64) -> String {
    let ScrubSummary { blocks, repaired, unreadable, lost, known_lost } = scrub;
    let damaged = repaired + unreadable + lost;
    let blocks = match blocks {
        1 => "1 block".to_owned(),
        _ => format!("{} blocks", with_separators(*blocks)),
    };
    let mut text = format!("scrub complete: {blocks} read, {} damaged", with_separators(damaged));
    if damaged > 0 {
        text += &format!(" ({repaired} repaired, {lost} lost, {unreadable} unreadable while a member is missing)");
    }
    if lost_blocks > 0 {
        text += &format!("; lost blocks of the volume: {lost_blocks}");
    }
    if *known_lost > 0 {
        text += &format!(", known before: {known_lost}");
    }
    text
}

impl VolumeDrive {
    /// Passes the drive of each present member, with its number. For reports.
    pub fn visit_members(&self, visit: &mut dyn FnMut(u8, &dyn Drive)) {
        for member in self.members() {
            if let Some(device) = self.on.member(member) {
                visit(member.0, &*device.drive);
            }
        }
    }

    /// Reports the state of the volume. Iterates over all segments.
    #[must_use]
    pub fn report(&self) -> VolumeReport {
        let volume = self.on.volume();
        let (status, counters) = (volume.status(), volume.counters());
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let bytes = |blocks: u64| Blocks(blocks).bytes(block_bytes);
        let progress = |(done, all)| Progress { done, all };
        let count = |state| status.members.iter().filter(|member| member.state == state).count();
        let (failed, rebuilding) = (count(MemberState::Failed), count(MemberState::Rebuilding));
        let waits = (0..).map(MemberIndex).zip(&status.members);
        let waits: Vec<_> = waits.map(|(member, report)| self.why_io_waits(member, report)).collect();
        let state = if self.is_taken_over() {
            VolumeState::TakenOver
        } else if volume.failure().is_some() {
            VolumeState::Lost
        } else if self.is_waiting_for_file() || waits.iter().any(Option::is_some) {
            VolumeState::Suspended
        } else if status.lost_blocks > 0 {
            VolumeState::DataLost
        } else if rebuilding > 0 || status.rebuild.is_some() {
            VolumeState::Rebuilding
        } else if failed > 0 {
            VolumeState::Degraded
        } else {
            VolumeState::Healthy
        };
        let members = (0..).zip(&status.members).zip(&waits).map(|((member, report), waits)| MemberSummary {
            member,
            at: self.directory.file.member[usize::from(member)].at.clone(),
            state: match report.state {
                _ if waits.is_some() => "suspended",
                MemberState::Active => "active",
                MemberState::Rebuilding => "rebuilding",
                MemberState::Failed if self.is_returning(MemberIndex(member)) => "returning",
                // A device that is being wiped is not active yet.
                MemberState::Failed if self.on.member(MemberIndex(member)).is_some() => "joining",
                MemberState::Failed => "failed",
            }
            .to_owned(),
            epoch: None,
            failed: why_failed(&self.directory.file.member[usize::from(member)], report),
            suspended: waits.map(str::to_owned),
            errors: report.errors,
            free_zones: report.free_zones,
            retired_zones: report.retired_zones,
            lacks_space: self.lacks_space(MemberIndex(member), report),
        });
        let at_spare = |spare: &Spare| spare.place.at.clone();
        let unreachable_spares = || self.spare_watch.away.iter().map(|away| away.place.at.clone());
        VolumeReport {
            mounted: true,
            refusal: None,
            epoch: self.directory.file.epoch,
            name: volume.name().to_owned(),
            array: self.directory.file.array.clone(),
            scheme: volume.scheme().to_string(),
            state,
            can_lose: self.can_lose() as u32,
            volume_bytes: bytes(status.volume_blocks),
            room_bytes: bytes(status.writable_blocks),
            live_bytes: bytes(status.live_blocks),
            members: members.collect(),
            spares: self.spares.iter().map(at_spare).chain(unreachable_spares()).collect(),
            unreachable_spares: unreachable_spares().collect(),
            reserved_spares: self.spare_watch.reserved().collect(),
            segments: status.segments,
            free_segments: status.free_segments,
            low_segments: status.low_segments,
            degraded_segments: status.degraded_segments,
            unreadable_segments: status.unreadable_segments,
            rebuild: status.rebuild.map(progress),
            scrub: status.scrub.map(progress),
            last_scrub: self.last_scrub,
            host_write_bytes: bytes(counters.host_blocks),
            member_write_bytes: bytes(counters.member_blocks),
            relocated_bytes: bytes(counters.relocated_blocks),
            reconstructed_blocks: counters.reconstructed_blocks,
            repaired_blocks: volume.damage().repaired,
            unreadable_blocks: volume.damage().unreadable,
            lost_blocks: status.lost_blocks,
            lost: None,
            rates: self.directory.file.rates,
            table_bytes: status.map_bytes + status.stripe_table_bytes + status.segment_table_bytes,
        }
    }

    /// Why I/O waits for a member, if it does.
    fn why_io_waits(&self, member: MemberIndex, report: &MemberReport) -> Option<&'static str> {
        let device = self.on.member(member);
        if self.is_taken_over() {
            None
        } else if device.is_some_and(MemberDevice::is_refused) || self.is_lost_to_other(member) {
            Some("is reserved by another host")
        } else if let Some(reason) = report.suspended {
            Some(describe_suspension(reason))
        } else {
            let is_lost = device.is_some_and(MemberDevice::is_awaited) || self.must_ask_about(member);
            if is_lost || report.is_stalled {
                Some("does not respond")
            } else {
                report.is_awaited_for_space.then_some("has no space left on its file system")
            }
        }
    }

    /// Whether a member has no space for writes. Of an image the file system is checked; a server
    /// reports it only by failing writes.
    fn lacks_space(&self, member: MemberIndex, report: &MemberReport) -> bool {
        let space = self.on.member(member).and_then(|device| device.drive.space());
        report.lacks_space && space.is_none_or(|space| space.is_full)
    }

    /// The first ranges of lost blocks from a logical block on, in ascending order.
    pub(super) fn lost(&self, from: u64) -> Vec<LostRange> {
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let range = |range: LbaRange| LostRange {
            lba: range.start.0,
            blocks: range.blocks.0,
            offset_bytes: Blocks(range.start.0).bytes(block_bytes),
        };
        self.on.volume().lost(Lba(from)).take(LOST_RANGES_MAX).map(range).collect()
    }

    /// Whether the volume has no background operation in progress: no rebuild, no scrub.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        let status = self.on.volume().status();
        let is_joining = (0..).zip(&status.members).any(|(member, report)| {
            report.state == MemberState::Rebuilding
                || (report.state == MemberState::Failed && self.on.member(MemberIndex(member)).is_some())
        });
        !is_joining && status.rebuild.is_none() && status.scrub.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_scrub_add_up() {
        let scrub = ScrubSummary { blocks: 900, repaired: 5, unreadable: 2, lost: 1, known_lost: 3 };
        let expected = "scrub complete: 900 blocks read, 8 damaged (5 repaired, 1 lost, 2 unreadable while a member \
                        is missing); lost blocks of the volume: 4, known before: 3";
        assert_eq!(describe_scrub(&scrub, 4), expected);
        let well = ScrubSummary { blocks: 900, ..ScrubSummary::default() };
        assert_eq!(describe_scrub(&well, 0), "scrub complete: 900 blocks read, 0 damaged");
    }
}
