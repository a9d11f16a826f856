//! Derived parameters of a volume: the layout of zones, and which member holds which chunk of a
//! stripe.
//!
//! ```text
//! block 0            header, H times: twice in version 2, once in version 1
//!       H ..         data region: S slots of `unit_blocks`; a slot holds one chunk
//!       H + S x unit footer: what each block of the data region is
//! ```

use zonda_zoned::Geometry;

use crate::config::{Scheme, StreamShape, Tuning, VolumeConfig};
use crate::format::{HEADER_COPIES, OOB_BYTES, chunk_meta_entries_max, footer_entries_per_block};
use crate::limits::{METADATA_ZONES, MOUNT_SEGMENTS, RELOCATION_SEGMENTS};
use crate::{MemberIndex, VolumeError};

/// The kind of blocks that a segment receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    Small,
    Large,
    Relocation,
}

impl Stream {
    pub(crate) const ALL: [Stream; 3] = [Stream::Small, Stream::Large, Stream::Relocation];
}

/// Layout of a segment's zones. All values in blocks except `stripes` and `group_stripes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// H: copies of the header.
    pub(crate) header_blocks: u32,
    /// Blocks of a slot, its metadata block included.
    pub(crate) unit_blocks: u32,
    /// Metadata blocks at the start of each slot: 1 where metadata is in band.
    pub(crate) meta_blocks: u32,
    pub(crate) group_stripes: u32,
    /// S.
    pub(crate) stripes: u32,
    /// Blocks of the footer.
    pub(crate) footer_blocks: u32,
}

/// Shape of the whole volume.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) scheme: Scheme,
    pub(crate) block_bytes: usize,
    pub(crate) is_in_band: bool,
    /// New segments have single headers, whatever members support.
    pub(crate) has_single_headers: bool,
    /// Capacity of the smallest zone.
    pub(crate) zone_capacity_blocks: u32,
    pub(crate) small: Layout,
    pub(crate) large: Layout,
    /// Maximum blocks per command to a member.
    pub(crate) transfer_blocks: u32,
}

/// Known parameters of an existing volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Metadata is in band.
    pub(crate) is_in_band: bool,
    /// New segments have single headers.
    pub(crate) has_single_headers: bool,
}

/// A bit set of numbers below 32.
pub(crate) fn bits(numbers: impl IntoIterator<Item = usize>) -> u32 {
    numbers.into_iter().fold(0, |bits, number| bits | 1 << number)
}

impl Layout {
    fn new(
        shape: StreamShape,
        header_blocks: u32,
        is_in_band: bool,
        capacity: u32,
        block_bytes: u32,
    ) -> Option<Layout> {
        let StreamShape { unit_blocks, group_stripes } = shape;
        let meta_blocks = u32::from(is_in_band);
        let entries_per_block = footer_entries_per_block(block_bytes) as u32;
        let payload = unit_blocks.checked_sub(meta_blocks).filter(|&blocks| blocks > 0)?;
        let available = capacity.checked_sub(header_blocks)?;
        let footer = |stripes: u32| (u64::from(stripes) * u64::from(payload)).div_ceil(u64::from(entries_per_block));
        let mut stripes = available / unit_blocks;
        while u64::from(stripes) * u64::from(unit_blocks) + footer(stripes) > u64::from(available) {
            // The footer takes a few hundredths of a zone: stripes are removed in a few steps until
            // it fits.
            let excess = u64::from(stripes) * u64::from(unit_blocks) + footer(stripes) - u64::from(available);
            stripes -= (excess / (u64::from(unit_blocks) * 2)).max(1) as u32;
        }
        let group_stripes = group_stripes.min(stripes);
        let footer_blocks = footer(stripes) as u32;
        let layout = Layout { header_blocks, unit_blocks, meta_blocks, group_stripes, stripes, footer_blocks };
        (stripes > 0).then_some(layout)
    }

    /// Payload blocks of a slot: data, or parity of data.
    pub(crate) fn payload_blocks(&self) -> u32 {
        self.unit_blocks - self.meta_blocks
    }

    /// Offset of a slot from the start of its zone.
    pub(crate) fn slot_offset(&self, slot: u32) -> u32 {
        self.header_blocks + slot * self.unit_blocks
    }

    /// Offset of the footer from the start of the zone.
    pub(crate) fn footer_offset(&self) -> u32 {
        self.slot_offset(self.stripes)
    }

    /// Slot and payload block of a block of the data region.
    pub(crate) fn place_of(&self, offset: u32) -> (u32, u32) {
        let from_start = offset - self.header_blocks;
        (from_start / self.unit_blocks, from_start % self.unit_blocks - self.meta_blocks)
    }

    /// Whether a block of a zone is payload, and not a header, a footer or metadata of a chunk.
    pub(crate) fn is_payload(&self, offset: u32) -> bool {
        (self.header_blocks..self.footer_offset()).contains(&offset)
            && (offset - self.header_blocks) % self.unit_blocks >= self.meta_blocks
    }

    /// Offset of a payload block of a slot from the start of the zone.
    pub(crate) fn offset_of(&self, slot: u32, block: u32) -> u32 {
        self.slot_offset(slot) + self.meta_blocks + block
    }

    /// Payload blocks of a zone.
    pub(crate) fn entries(&self) -> u32 {
        self.stripes * self.payload_blocks()
    }

    /// Index of a payload block within its zone.
    pub(crate) fn entry_of(&self, offset: u32) -> u32 {
        let (slot, block) = self.place_of(offset);
        slot * self.payload_blocks() + block
    }

    /// The inverse of [`entry_of`](Self::entry_of).
    pub(crate) fn offset_of_entry(&self, entry: u32) -> u32 {
        self.offset_of(entry / self.payload_blocks(), entry % self.payload_blocks())
    }

    /// The stripes (or slots) of the group of a stripe.
    pub(crate) fn group_range(&self, stripe: u32) -> std::ops::Range<u32> {
        let first = stripe - stripe % self.group_stripes;
        first..(first + self.group_stripes).min(self.stripes)
    }

    /// Bits of a stripe's number within its group.
    pub(crate) fn stripe_bits(&self) -> u32 {
        u32::BITS - (self.group_stripes - 1).leading_zeros()
    }
}

/// The segments of a new volume that can hold data, of those that members with this many zones
/// have.
pub(crate) fn usable_segments(tuning: &Tuning, zones: u32) -> u32 {
    let zones = zones.saturating_sub(METADATA_ZONES);
    // Every stream may hold an open segment, and one that is being closed.
    let open = 2 * (u32::from(tuning.small_segments) + u32::from(tuning.large_segments) + 1);
    // With few zones: the open ones, and one more for hosts.
    let open = open.min(zones / 3).max(open / 2 + 1);
    let for_mounts = if tuning.has_contents { MOUNT_SEGMENTS } else { 0 };
    zones.saturating_sub(open + RELOCATION_SEGMENTS + for_mounts)
}

/// The error for members of which no zone is left for data.
pub(crate) fn too_few_zones(tuning: &Tuning, zones: u32) -> VolumeError {
    let least = (METADATA_ZONES..u32::MAX).find(|zones| usable_segments(tuning, *zones) > 0).unwrap_or(u32::MAX);
    VolumeError::Config(format!(
        "the smallest member has {zones} zones, and each member needs at least {least} zones; name drives with more \
         zones"
    ))
}

impl Shape {
    /// `known`: the parameters of an existing volume.
    pub(crate) fn new(config: &VolumeConfig, members: &[Geometry], known: Option<Known>) -> Result<Shape, VolumeError> {
        config.scheme.validate()?;
        config.small.validate()?;
        config.large.validate()?;
        config.tuning.validate()?;
        let refuse = |remedy: String| Err(VolumeError::Config(remedy));
        if members.len() != config.scheme.members() {
            return refuse(format!("the level needs {} members, not {}", config.scheme.members(), members.len()));
        }
        let block_bytes = members[0].block_size_bytes;
        if members.iter().any(|member| member.block_size_bytes != block_bytes) {
            return refuse("all members must have the same block size".to_owned());
        }
        if let Some(member) = members.iter().position(|member| member.conventional_zone_count > 0) {
            return refuse(format!(
                "member {member} has conventional zones; name a drive that has only sequential zones in its place"
            ));
        }
        let active = members.iter().filter_map(|member| member.max_active_zones).min();
        if active.is_some_and(|active| active < 3) {
            return refuse(
                "each member needs at least 3 active zones, for superblocks, writes and relocation".to_owned(),
            );
        }
        let metadata_bytes = members.iter().map(|member| usize::from(member.metadata_bytes)).min().unwrap_or(0);
        // A block's metadata must be in the same place on all members, or parity could not be
        // computed.
        let is_in_band = known.map_or(metadata_bytes < OOB_BYTES, |known| known.is_in_band);
        if !is_in_band && metadata_bytes < OOB_BYTES {
            return refuse(format!(
                "all members need {OOB_BYTES} bytes of metadata per block, as when the volume was created"
            ));
        }
        let capacity = members.iter().map(|member| member.zone_capacity_blocks.0).min().unwrap_or(0);
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let transfer = members.iter().map(|member| member.max_transfer_blocks.0.min(1 << 16)).min().unwrap_or(1) as u32;
        let append = members.iter().map(|member| member.max_append_blocks.0.min(1 << 16)).min().unwrap_or(1) as u32;
        let entries_max = chunk_meta_entries_max(block_bytes) as u32;
        // The header is written in one command: otherwise a crash could leave half of it in a zone
        // that does not look interrupted.
        let has_single_headers = known.is_some_and(|known| known.has_single_headers);
        let header_blocks = if has_single_headers { 1 } else { HEADER_COPIES.min(transfer) };
        let layout = |wanted: StreamShape| {
            let limit = if wanted.group_stripes > 1 { append.min(transfer) } else { transfer };
            let least = if is_in_band { 2 } else { 1 };
            let limit = if is_in_band { limit.min(entries_max + 1) } else { limit };
            let unit_blocks = wanted.unit_blocks.max(least).min(limit);
            let wanted = StreamShape { unit_blocks, group_stripes: wanted.group_stripes };
            Layout::new(wanted, header_blocks, is_in_band, capacity, block_bytes).ok_or_else(|| {
                VolumeError::Config(format!(
                    "a zone of {capacity} blocks is too small for a header, a stripe of {unit_blocks} blocks and a \
                     footer"
                ))
            })
        };
        let (small, large) = (layout(config.small)?, layout(config.large)?);
        let zones = members.iter().map(|member| member.zone_count).min().unwrap_or(0);
        if zones < METADATA_ZONES + RELOCATION_SEGMENTS + 2 {
            return Err(too_few_zones(&config.tuning, zones));
        }
        Ok(Shape {
            scheme: config.scheme,
            block_bytes: block_bytes as usize,
            is_in_band,
            has_single_headers,
            zone_capacity_blocks: capacity,
            small,
            large,
            transfer_blocks: transfer,
        })
    }

    pub(crate) fn data(&self) -> usize {
        usize::from(self.scheme.data)
    }

    pub(crate) fn members(&self) -> usize {
        self.scheme.members()
    }

    pub(crate) fn layout(&self, stream: Stream) -> &Layout {
        match stream {
            Stream::Small => &self.small,
            Stream::Large | Stream::Relocation => &self.large,
        }
    }

    /// Data blocks of a stripe.
    pub(crate) fn stripe_blocks(&self, stream: Stream) -> usize {
        self.data() * self.layout(stream).payload_blocks() as usize
    }

    /// Data blocks of a segment, the smaller one of the two kinds.
    pub(crate) fn segment_blocks(&self) -> u64 {
        self.data_blocks(&self.small).min(self.data_blocks(&self.large))
    }

    /// Data blocks of a segment with this layout.
    pub(crate) fn data_blocks(&self, layout: &Layout) -> u64 {
        u64::from(layout.entries()) * self.data() as u64
    }

    /// The chunk of a stripe that a member holds: data chunks come first.
    pub(crate) fn chunk_of(&self, member: MemberIndex, stripe: u32) -> usize {
        let members = self.members();
        if self.scheme.is_rotated() {
            (member.as_usize() + members - stripe as usize % members) % members
        } else {
            member.as_usize()
        }
    }

    /// The chunks of a stripe that these members hold, both as bits.
    pub(crate) fn chunks_of(&self, members: u32, stripe: u32) -> u32 {
        let held = (0..self.members() as u8).filter(|member| members >> member & 1 == 1);
        bits(held.map(|member| self.chunk_of(MemberIndex(member), stripe)))
    }

    /// The member that holds a chunk of a stripe.
    pub(crate) fn member_of(&self, chunk: usize, stripe: u32) -> MemberIndex {
        let members = self.members();
        let shift = if self.scheme.is_rotated() { stripe as usize % members } else { 0 };
        MemberIndex(((chunk + shift) % members) as u8)
    }
}
