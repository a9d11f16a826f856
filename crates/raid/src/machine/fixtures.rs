//! Components of a volume for unit tests of one owner: three members, RAID 5, no drives and no
//! hosts.

use zonda_zoned::{Blocks, CommandId, Completion, Geometry, Instant, Key, Outcome, Status};

use super::members::{Member, Members, MetadataLog, Verdict, Work};
use super::segments::Segments;
use super::spec::Spec;
use crate::limits::METADATA_ZONES;
use crate::{Level, MemberIndex, Scheme, StreamShape, Tuning, VolumeConfig};

/// Zones of each member.
pub(super) const ZONES: u32 = 24;

/// A key of this index, where an owner only stores keys of another.
pub(super) fn key<T>(index: u32) -> Key<T> {
    Key::of_command(CommandId(u64::from(index))).expect("keys have smaller indices")
}

/// A configuration with stripes of two blocks, groups of `group_stripes`.
pub(super) fn spec(group_stripes: u32, is_cache_volatile: bool) -> Spec {
    let mut config = config(1, group_stripes);
    config.tuning.is_cache_volatile = is_cache_volatile;
    spec_of(config)
}

/// The same with groups of one stripe, and other tuning.
pub(super) fn with_tuning(tune: impl FnOnce(&mut Tuning)) -> Spec {
    let mut config = config(1, 1);
    tune(&mut config.tuning);
    spec_of(config)
}

/// The same with chunks of `unit_blocks`.
pub(super) fn spec_of_units(unit_blocks: u32, group_stripes: u32) -> Spec {
    spec_of(config(unit_blocks, group_stripes))
}

fn spec_of(config: VolumeConfig) -> Spec {
    Spec::new(config, [7; 16], &vec![geometry(); 3], None).expect("the parts suit each other")
}

fn config(unit_blocks: u32, group_stripes: u32) -> VolumeConfig {
    let mut config = VolumeConfig::new("parts", Scheme { level: Level::Raid5, data: 2, parity: 1 });
    config.small = StreamShape { unit_blocks, group_stripes };
    config.large = StreamShape { unit_blocks, group_stripes };
    config.tuning.small_segments = 1;
    config.tuning.large_segments = 0;
    config
}

/// Its members, with all zones free.
pub(super) fn members(spec: &Spec) -> Members {
    let mut members = Members::new(spec.member_indices().map(|at| Member::new([at.0; 16], geometry())).collect());
    for member in spec.member_indices() {
        members[member].resume_log(MetadataLog::empty(&geometry()));
        (METADATA_ZONES..ZONES).for_each(|zone| members[member].found_free_zone(zone));
    }
    members
}

/// Takes the next command, and completes it with this status. Returns what it was for.
pub(super) fn end_next(members: &mut Members, member: MemberIndex, status: Status) -> Option<(Work, Completion)> {
    let command = members.poll_command(Instant::ZERO, member)?;
    let completion = Completion { id: command.id, status, outcome: Outcome::None };
    let work = members.ended(member, &completion).expect("it was in flight");
    Some((work, completion))
}

/// Completes all commands of segments, those of `bad` with an error, until none waits. Returns the
/// last verdict on `bad`.
pub(super) fn end_all(
    spec: &Spec,
    members: &mut Members,
    segments: &mut Segments,
    bad: Option<MemberIndex>,
) -> Verdict {
    let mut verdict = Verdict::Usable;
    while members.has_commands() {
        for member in spec.member_indices() {
            let status = if bad == Some(member) { Status::InternalError } else { Status::Success };
            let Some((work, _)) = end_next(members, member, status) else { continue };
            match work {
                Work::Header { segment } => segments.on_header(spec, members, segment),
                Work::Footer { segment, blocks } => segments.on_footer(spec, members, member, segment, blocks, status),
                Work::FinishZone { segment } => verdict = segments.on_finish(spec, members, member, segment, status),
                Work::ResetZone { segment } => verdict = segments.on_reset(spec, members, member, segment, status),
                other => panic!("segments send no {other:?}"),
            }
            if verdict == Verdict::Failed {
                return verdict;
            }
        }
    }
    segments.check_invariants(spec, members);
    members.check_invariants();
    verdict
}

fn geometry() -> Geometry {
    Geometry {
        block_size_bytes: 512,
        metadata_bytes: 64,
        zone_size_blocks: Blocks(16),
        zone_capacity_blocks: Blocks(16),
        zone_count: ZONES,
        conventional_zone_count: 0,
        max_active_zones: Some(6),
        max_open_zones: Some(6),
        max_transfer_blocks: Blocks(8),
        max_append_blocks: Blocks(8),
        zrwa: None,
        read_across_zones: false,
        descriptor_extension_bytes: 0,
    }
}
