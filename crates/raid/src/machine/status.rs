//! Status of a volume.

use super::Volume;
use super::start::Step;
use crate::MemberIndex;
use crate::event::FailReason;
use crate::format::MemberState;
use crate::tables::SegmentState;

/// Status of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Its members, in their order.
    pub members: Vec<MemberReport>,
    /// Blocks that hosts see.
    pub volume_blocks: u64,
    /// Blocks that fit the members: fewer than `volume_blocks` once too many zones are retired.
    /// Then writes may end with Capacity Exceeded when this many blocks hold contents.
    pub writable_blocks: u64,
    /// Blocks that hold contents.
    pub live_blocks: u64,
    /// Blocks that are lost: reads of them fail until they are written or trimmed.
    pub lost_blocks: u64,
    /// Segments that could be opened.
    pub free_segments: u32,
    /// Free segments below which garbage collection begins.
    pub low_segments: u32,
    /// Segments that hold something.
    pub segments: u32,
    /// Those of them that lack the chunks of a member.
    pub degraded_segments: u32,
    /// Segments with blocks that cannot be read while a member is missing. They cannot be reclaimed
    /// until the member returns, or these blocks are written or trimmed.
    pub unreadable_segments: u32,
    /// Bytes of the map of logical blocks.
    pub map_bytes: u64,
    /// Bytes of the compact stripe tables.
    pub stripe_table_bytes: u64,
    /// The maximum, with all zones of all members in segments for small requests: members x S x Z x
    /// ceil(log2 G) bits (ZapRAID, section 3.2).
    pub stripe_table_max_bytes: u64,
    /// Bytes of all tables of segments.
    pub segment_table_bytes: u64,
    /// Segments rebuilt and to be rebuilt, while a rebuild is in progress.
    pub rebuild: Option<(u32, u32)>,
    /// Segments scrubbed and to be scrubbed, while a scrub is in progress.
    pub scrub: Option<(u32, u32)>,
}

/// Status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its state.
    pub state: MemberState,
    /// Commands that have failed since the mount.
    pub errors: u64,
    /// Zones that can be written.
    pub free_zones: u32,
    /// Zones that cannot be used any more.
    pub retired_zones: u32,
    /// Why it has failed since the mount, if it has.
    pub failed: Option<FailReason>,
    /// Why I/O is suspended until it answers, if it is.
    pub suspended: Option<FailReason>,
    /// It has completed nothing for a second although commands are in flight, and has not timed out.
    pub is_stalled: bool,
    /// Commands have failed for lack of space until recently: writes to it are retried.
    pub lacks_space: bool,
    /// It has no space to record the states of the members: I/O waits for that.
    pub is_awaited_for_space: bool,
}

impl Volume {
    /// The status of the volume. Examines every segment.
    #[must_use]
    pub fn status(&self) -> VolumeStatus {
        let member = |(at, member): (MemberIndex, &super::members::Member)| MemberReport {
            state: member.state(),
            errors: member.errors(),
            free_zones: member.free_zones(),
            retired_zones: member.retired_zones(),
            failed: member.failed(),
            suspended: self.members.suspension_of(at),
            is_stalled: self.members.is_stalled(at),
            lacks_space: member.is_present() && member.lacks_space(),
            is_awaited_for_space: self.members.lacking_space_for_epoch() >> at.0 & 1 == 1,
        };
        let mut status = VolumeStatus {
            members: (0..).map(MemberIndex).zip(self.members.iter()).map(member).collect(),
            volume_blocks: self.map.blocks(),
            writable_blocks: self.space().writable_blocks(),
            live_blocks: 0,
            lost_blocks: self.lost_blocks(),
            free_segments: self.space().free_segments(),
            low_segments: self.space().low_segments(),
            segments: self.segments.len() as u32,
            degraded_segments: 0,
            unreadable_segments: 0,
            map_bytes: self.map.blocks() * size_of::<super::address::Address>() as u64,
            stripe_table_bytes: 0,
            stripe_table_max_bytes: self.stripe_table_max_bytes(),
            segment_table_bytes: 0,
            rebuild: self.rebuild_progress(),
            scrub: self.scrub_progress(),
        };
        for (_, segment) in self.segments.iter() {
            status.live_blocks += u64::from(segment.live_blocks);
            status.degraded_segments += u32::from(segment.lost != 0 && segment.state != SegmentState::Resetting);
            status.unreadable_segments += u32::from(segment.has_lost);
            status.stripe_table_bytes += segment.slots.bytes() as u64;
            status.segment_table_bytes += segment.table_bytes() as u64;
        }
        status
    }

    fn stripe_table_max_bytes(&self) -> u64 {
        let zones = self.members.iter().map(|member| u64::from(member.geometry().zone_count)).min().unwrap_or(0);
        let layout = &self.spec.shape.small;
        let bits = self.spec.members() as u64 * u64::from(layout.stripes) * zones * u64::from(layout.stripe_bits());
        bits.div_ceil(8)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.config.name
    }

    /// The unique id of the volume.
    #[must_use]
    pub fn array(&self) -> crate::ArrayId {
        self.spec.array
    }

    /// The state of a member.
    #[must_use]
    pub fn member_state(&self, member: MemberIndex) -> MemberState {
        self.members[member].state()
    }

    /// The newest epoch that all members of that time have recorded: it grows with every mount and
    /// every change of members. A caller that stores it can detect outdated members at a mount
    /// (`newest_epoch`).
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.members.durable_epoch()
    }

    /// The newest of these epochs in which a member's state has changed: until the caller has
    /// stored it, outdated members may be taken for the volume.
    #[must_use]
    pub fn changed_epoch(&self) -> u64 {
        self.members.changed_epoch()
    }

    /// Whether all remaining members have recorded which members failed, so that a mount knows it,
    /// too.
    #[must_use]
    pub fn is_epoch_durable(&self) -> bool {
        self.members.is_epoch_durable()
    }

    /// Its redundancy scheme.
    #[must_use]
    pub fn scheme(&self) -> crate::Scheme {
        self.spec.config.scheme
    }

    /// Sets the rates of rebuilds (writes) and scrubs (reads); `None`: unlimited.
    pub fn set_rates(&mut self, rebuild_blocks_per_second: Option<u64>, scrub_blocks_per_second: Option<u64>) {
        self.spec.config.tuning.rebuild_blocks_per_second = rebuild_blocks_per_second;
        self.spec.config.tuning.scrub_blocks_per_second = scrub_blocks_per_second;
    }

    /// The current parameters that can be changed with every mount.
    #[must_use]
    pub fn tuning(&self) -> &crate::Tuning {
        &self.spec.config.tuning
    }

    /// The number of arbitrary members that the volume tolerates to lose.
    #[must_use]
    pub fn code_tolerates(&self) -> usize {
        self.spec.code.tolerates()
    }

    /// The current step before the volume is ready, for a message; `None` once it is.
    #[must_use]
    pub fn starting(&self) -> Option<&'static str> {
        let super::Phase::Starting(start) = &self.phase else { return None };
        Some(match start.step {
            Step::ReportZones => "reporting zones",
            Step::Wipe => "resetting members",
            Step::ReadSuperblocks => "reading superblocks",
            Step::ReadHeaders => "reading segment headers",
            Step::ReadSegments => "reading segments",
            Step::ReadTombstones => "reading tombstones",
            Step::ReadLeaving => "reading segments pending reset",
            Step::WriteSuperblocks => "writing superblocks",
            Step::CloseSegments => "closing segments",
            Step::Reclaim => "reclaiming space",
            Step::MoveTorn => "rewriting incomplete stripes",
        })
    }

    /// Why the volume is lost, or could not be mounted; then every command ends with an error.
    #[must_use]
    pub fn failure(&self) -> Option<&crate::VolumeError> {
        match &self.phase {
            super::Phase::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Whether not all members hold their data.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.members.iter().any(|member| member.state() != MemberState::Active)
    }
}

impl FailReason {
    /// A word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailReason::Command => "by command",
            FailReason::Errors => "errors",
            FailReason::Timeout => "no answer",
            FailReason::Missing => "absent",
            FailReason::Flapping => "flapping",
        }
    }
}
