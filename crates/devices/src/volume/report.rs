//! How a volume is, for those who look after it.

use std::fmt;

use serde::{Deserialize, Serialize};
use zonda_raid::{FailReason, MemberIndex, MemberReport, MemberState};
use zonda_zoned::{Blocks, Lba, LbaRange, NamespaceId, ZonedDevice};

use super::VolumeDrive;
use super::directory::{Place, VolumeRates, WhyFailed};
use super::spares::Spare;

/// Ranges of lost blocks in one answer.
pub(super) const LOST_RANGES_MAX: usize = 4096;

/// How a volume is as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// All members hold their part.
    #[default]
    Well,
    /// A member is missing, and nothing takes its place.
    Degraded,
    /// A member is being given its part.
    Rebuilding,
    /// More members are gone than the volume can do without.
    Lost,
    /// Another server has its members: every command ends with an error.
    #[serde(rename = "taken over")]
    TakenOver,
    /// Its I/O waits for a member that it cannot do without, and which does not answer.
    Suspended,
    /// Blocks are lost: reads of them fail until they are written or trimmed. All others can be read and written.
    #[serde(rename = "data lost")]
    DataLost,
    /// It is not mounted, and cannot be before members that are missing come back.
    Incomplete,
}

impl fmt::Display for VolumeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            VolumeState::Well => "well",
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

/// A volume at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeReport {
    /// Whether it is mounted. Else only name, array, scheme, state, epoch, size, members and spares are known.
    #[serde(default = "as_before")]
    pub mounted: bool,
    /// Its name.
    pub name: String,
    /// A UUID.
    pub array: String,
    /// `RAID 5 (3+1)`.
    pub scheme: String,
    /// How it is as a whole.
    pub state: VolumeState,
    /// Why a mount would refuse it, where that is more than that members are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How many more members it can do without now.
    pub can_lose: u32,
    /// The newest epoch that is known: it counts mounts and changes of the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What hosts see.
    pub volume_bytes: u64,
    /// What the members have room for: less than `volume_bytes` once too many of their zones are worn out.
    pub room_bytes: u64,
    /// What holds contents.
    pub live_bytes: u64,
    /// In their order.
    pub members: Vec<MemberSummary>,
    /// Where the devices are that wait for a member to fail, also those that cannot be reached.
    pub spares: Vec<String>,
    /// Those of them that cannot be reached: they take no member's place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable_spares: Vec<String>,
    /// Those of these that another host has reserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_spares: Vec<String>,
    /// Groups of zones, one of each member, that hold something.
    pub segments: u32,
    /// Those that could be opened.
    pub free_segments: u32,
    /// Below so many free ones garbage collection begins.
    pub low_segments: u32,
    /// Those that lack the chunks of a member.
    pub degraded_segments: u32,
    /// Segments that cannot be reclaimed: they hold blocks that cannot be read while a member is missing.
    pub unreadable_segments: u32,
    /// The rebuild under way, in segments.
    pub rebuild: Option<Progress>,
    /// The scrub under way, in segments.
    pub scrub: Option<Progress>,
    /// What the last scrub since the volume was opened has found.
    pub last_scrub: Option<ScrubSummary>,
    /// Bytes that hosts wrote since the volume was opened.
    pub host_write_bytes: u64,
    /// Bytes written to members: data, parity, padding, metadata, moved blocks.
    pub member_write_bytes: u64,
    /// Bytes that garbage collection has moved.
    pub relocated_bytes: u64,
    /// Blocks that were read out of the rest of their stripe.
    pub reconstructed_blocks: u64,
    /// Blocks of members that were found damaged since the volume was opened, and are repaired, whatever has found them.
    pub mended_blocks: u64,
    /// Blocks that are needed, and were found that cannot be read while a member is missing.
    pub unreadable_blocks: u64,
    /// Blocks that are lost: reads of them fail until they are written or trimmed. Where the volume is not mounted, as many as there were
    /// when it last was.
    pub lost_blocks: u64,
    /// Some of them, where they were asked for ([`VolumeRequest::Lost`](super::VolumeRequest::Lost)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Vec<LostRange>>,
    /// How fast it may work for itself.
    pub rates: VolumeRates,
    /// Memory of the tables: the map, stripes, segments.
    pub table_bytes: u64,
}

/// Servers that do not say whether a volume is mounted only have volumes that are.
fn as_before() -> bool {
    true
}

/// A member at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberSummary {
    /// Its number, from 0.
    pub member: u8,
    /// Where it is.
    pub at: String,
    /// `active`, `suspended` (I/O waits for it), `rebuilding`, `joining` (being wiped before it is rebuilt), `returning`
    /// (looked at before it is taken back), `failed`; `missing` where it is not mounted.
    pub state: String,
    /// The epoch of its superblock, where the volume is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Why it has failed, if it has, and that is known: `by command`, `errors`, `no answer`, `absent`, `flapping`; of one that is missing,
    /// `cannot be reached` where a server has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Why I/O is suspended until it answers, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Commands that have failed since the volume was opened.
    pub errors: u64,
    /// Zones that can be written.
    pub free_zones: u32,
    /// Zones that cannot be used any more.
    pub retired_zones: u32,
}

/// Blocks that are lost, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// The first of them, in logical blocks.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
    /// Where they begin in the export, in bytes.
    pub offset_bytes: u64,
}

/// How far something has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Done.
    pub done: u32,
    /// To be done in all.
    pub all: u32,
}

/// What a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubSummary {
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks of members that were damaged, and are repaired.
    pub mended: u64,
    /// Blocks of members that cannot be repaired while a member is missing.
    #[serde(default)]
    pub unreadable: u64,
    /// Blocks of members that were found damaged, and are lost.
    pub lost: u64,
    /// Blocks of the volume that were known to be lost when it began, and still were at its end.
    #[serde(default)]
    pub known_lost: u64,
}

/// Why a member has failed, in words.
fn why_failed(place: &Place, report: &MemberReport) -> Option<String> {
    let last = last_failure(place).filter(|_| report.state == MemberState::Failed);
    let reason = report.failed.filter(|_| report.state == MemberState::Failed);
    last.or(reason).map(|reason| reason.name().to_owned())
}

/// The same, as far as it outlasts the program.
pub(super) fn last_failure(place: &Place) -> Option<FailReason> {
    Some(match place.failed? {
        WhyFailed::Command => FailReason::Command,
        WhyFailed::Flapping => FailReason::Flapping,
    })
}

/// Why a member holds up I/O.
pub(super) fn suspended_in_words(reason: FailReason) -> &'static str {
    match reason {
        FailReason::Silence => "does not answer",
        _ => "fails its commands",
    }
}

/// What a scrub has found: each damaged block of a member is repaired, lost, or unreadable. `lost_blocks` of the volume are lost in all,
/// also those that were lost before.
pub(super) fn scrubbed_in_words(scrub: &ScrubSummary, lost_blocks: u64) -> String {
    let ScrubSummary { blocks, mended, unreadable, lost, known_lost } = scrub;
    let damaged = mended + unreadable + lost;
    let mut text = format!("scrubbed: {blocks} blocks were read, {damaged} were damaged");
    if damaged > 0 {
        text += &format!(": {mended} repaired, {lost} lost, {unreadable} unreadable while a member is missing");
    }
    if lost_blocks > 0 {
        text += &format!("; {lost_blocks} blocks of the volume are lost in all");
    }
    if *known_lost > 0 {
        text += &format!(", {known_lost} of them were known before");
    }
    text
}

impl VolumeDrive {
    /// How the volume is. Takes a look at every segment.
    #[must_use]
    pub fn report(&self) -> VolumeReport {
        let volume = self.on.volume();
        let (status, counters) = (volume.status(), volume.counters());
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let bytes = |blocks: u64| Blocks(blocks).bytes(block_bytes);
        let progress = |(done, all)| Progress { done, all };
        let count = |state| status.members.iter().filter(|member| member.state == state).count();
        let (failed, rebuilding) = (count(MemberState::Failed), count(MemberState::Rebuilding));
        let state = if self.is_taken_over() {
            VolumeState::TakenOver
        } else if volume.failure().is_some() {
            VolumeState::Lost
        } else if self.is_waiting_for_file() || status.members.iter().any(|member| member.suspended.is_some()) {
            VolumeState::Suspended
        } else if status.lost_blocks > 0 {
            VolumeState::DataLost
        } else if rebuilding > 0 || status.rebuild.is_some() {
            VolumeState::Rebuilding
        } else if failed > 0 {
            VolumeState::Degraded
        } else {
            VolumeState::Well
        };
        let members = (0..).zip(&status.members).map(|(member, report)| MemberSummary {
            member,
            at: self.directory.file.member[usize::from(member)].at.clone(),
            state: match report.state {
                _ if report.suspended.is_some() => "suspended",
                MemberState::Active => "active",
                MemberState::Rebuilding => "rebuilding",
                MemberState::Failed if self.is_returning(MemberIndex(member)) => "returning",
                // A device that is being emptied has not begun to take part.
                MemberState::Failed if self.on.member(MemberIndex(member)).is_some() => "joining",
                MemberState::Failed => "failed",
            }
            .to_owned(),
            epoch: None,
            failed: why_failed(&self.directory.file.member[usize::from(member)], report),
            suspended: report.suspended.map(|reason| suspended_in_words(reason).to_owned()),
            errors: report.errors,
            free_zones: report.free_zones,
            retired_zones: report.retired_zones,
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
            room_bytes: bytes(status.room_blocks),
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
            mended_blocks: volume.damage().repaired,
            unreadable_blocks: volume.damage().unreadable,
            lost_blocks: status.lost_blocks,
            lost: None,
            rates: self.directory.file.rates,
            table_bytes: status.map_bytes + status.stripe_table_bytes + status.segment_table_bytes,
        }
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

    /// Whether the volume has nothing to do for itself: no rebuild, no scrub.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
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
    fn what_a_scrub_has_found_adds_up() {
        let scrub = ScrubSummary { blocks: 900, mended: 5, unreadable: 2, lost: 1, known_lost: 3 };
        let expected = "scrubbed: 900 blocks were read, 8 were damaged: 5 repaired, 1 lost, 2 unreadable while a member is missing; 4 \
                        blocks of the volume are lost in all, 3 of them were known before";
        assert_eq!(scrubbed_in_words(&scrub, 4), expected);
        let well = ScrubSummary { blocks: 900, ..ScrubSummary::default() };
        assert_eq!(scrubbed_in_words(&well, 0), "scrubbed: 900 blocks were read, 0 were damaged");
    }
}
