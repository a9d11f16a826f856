//! Numbers that follow from the members and the configuration: how a zone of a segment is divided, who holds what of a stripe.
//!
//! ```text
//! block 0            header, H times: twice in version 2, once in version 1
//!       H ..         data region: S slots of `unit_blocks`; a slot holds one chunk
//!       H + S x unit footer: what each block of the data region is
//! ```

use zonda_zoned::Geometry;

use crate::config::{Scheme, StreamShape, VolumeConfig};
use crate::format::{HEADER_COPIES, OOB_BYTES, chunk_meta_entries_max, footer_entries_per_block};
use crate::limits::METADATA_ZONES;
use crate::{MemberIndex, VolumeError};

/// What a segment takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    Small,
    Large,
    Relocation,
}

impl Stream {
    pub(crate) const ALL: [Stream; 3] = [Stream::Small, Stream::Large, Stream::Relocation];
}

/// How a zone of a segment is divided. All in blocks but `stripes` and `group_stripes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// H: copies of the header.
    pub(crate) header_blocks: u32,
    /// Of a slot, its metadata block included.
    pub(crate) unit_blocks: u32,
    /// At the start of each slot: 1 where metadata is in band.
    pub(crate) meta_blocks: u32,
    pub(crate) group_stripes: u32,
    /// S.
    pub(crate) stripes: u32,
    /// Of the footer.
    pub(crate) footer_blocks: u32,
}

/// The whole volume.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) scheme: Scheme,
    pub(crate) block_bytes: usize,
    pub(crate) is_in_band: bool,
    /// Headers of new segments stand once, whatever members could do.
    pub(crate) has_single_headers: bool,
    /// Of the smallest zone.
    pub(crate) zone_capacity_blocks: u32,
    pub(crate) small: Layout,
    pub(crate) large: Layout,
    /// Blocks of a command to a member, at most.
    pub(crate) transfer_blocks: u32,
}

/// What is known of a volume that exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Metadata is in band.
    pub(crate) is_in_band: bool,
    /// Headers of new segments stand once.
    pub(crate) has_single_headers: bool,
}

/// A set of numbers below 32, one bit each.
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
        let room = capacity.checked_sub(header_blocks)?;
        let footer = |stripes: u32| (u64::from(stripes) * u64::from(payload)).div_ceil(u64::from(entries_per_block));
        let mut stripes = room / unit_blocks;
        while u64::from(stripes) * u64::from(unit_blocks) + footer(stripes) > u64::from(room) {
            // The footer is some hundredths of a zone at most: what it does not fit into is given back in a few steps.
            let excess = u64::from(stripes) * u64::from(unit_blocks) + footer(stripes) - u64::from(room);
            stripes -= (excess / (u64::from(unit_blocks) * 2)).max(1) as u32;
        }
        let group_stripes = group_stripes.min(stripes);
        let footer_blocks = footer(stripes) as u32;
        let layout = Layout { header_blocks, unit_blocks, meta_blocks, group_stripes, stripes, footer_blocks };
        (stripes > 0).then_some(layout)
    }

    /// Blocks of a slot that hold data, or parity of data.
    pub(crate) fn payload_blocks(&self) -> u32 {
        self.unit_blocks - self.meta_blocks
    }

    /// A slot's first block, from the start of its zone.
    pub(crate) fn slot_offset(&self, slot: u32) -> u32 {
        self.header_blocks + slot * self.unit_blocks
    }

    /// The first block of the footer, from the start of the zone.
    pub(crate) fn footer_offset(&self) -> u32 {
        self.slot_offset(self.stripes)
    }

    /// Slot and block of its payload, of a block of the data region.
    pub(crate) fn place_of(&self, offset: u32) -> (u32, u32) {
        let from_start = offset - self.header_blocks;
        (from_start / self.unit_blocks, from_start % self.unit_blocks - self.meta_blocks)
    }

    /// Whether a block of a zone is payload of a slot, and not header, footer or metadata of a chunk.
    pub(crate) fn is_payload(&self, offset: u32) -> bool {
        (self.header_blocks..self.footer_offset()).contains(&offset)
            && (offset - self.header_blocks) % self.unit_blocks >= self.meta_blocks
    }

    /// Where a block of a slot's payload is, from the start of the zone.
    pub(crate) fn offset_of(&self, slot: u32, block: u32) -> u32 {
        self.slot_offset(slot) + self.meta_blocks + block
    }

    /// Blocks of payload in a zone.
    pub(crate) fn entries(&self) -> u32 {
        self.stripes * self.payload_blocks()
    }

    /// Which of a zone's blocks of payload this is.
    pub(crate) fn entry_of(&self, offset: u32) -> u32 {
        let (slot, block) = self.place_of(offset);
        slot * self.payload_blocks() + block
    }

    /// The other way round.
    pub(crate) fn offset_of_entry(&self, entry: u32) -> u32 {
        self.offset_of(entry / self.payload_blocks(), entry % self.payload_blocks())
    }

    /// First stripe (or slot) of a group, and the one behind its last.
    pub(crate) fn group_range(&self, stripe: u32) -> std::ops::Range<u32> {
        let first = stripe - stripe % self.group_stripes;
        first..(first + self.group_stripes).min(self.stripes)
    }

    /// Bits of a stripe's number within its group.
    pub(crate) fn stripe_bits(&self) -> u32 {
        u32::BITS - (self.group_stripes - 1).leading_zeros()
    }
}

impl Shape {
    /// `known` is of a volume that exists.
    pub(crate) fn new(config: &VolumeConfig, members: &[Geometry], known: Option<Known>) -> Result<Shape, VolumeError> {
        config.scheme.validate()?;
        config.small.validate()?;
        config.large.validate()?;
        config.tuning.validate()?;
        let refuse = |remedy: String| Err(VolumeError::Config(remedy));
        if members.len() != config.scheme.members() {
            return refuse(format!("{} members are needed, {} were named", config.scheme.members(), members.len()));
        }
        let block_bytes = members[0].block_size_bytes;
        if members.iter().any(|member| member.block_size_bytes != block_bytes) {
            return refuse("all members must have blocks of one size".to_owned());
        }
        if let Some(member) = members.iter().position(|member| member.conventional_zone_count > 0) {
            return refuse(format!("member {member} has conventional zones: give a namespace without them"));
        }
        let active = members.iter().filter_map(|member| member.max_active_zones).min();
        if active.is_some_and(|active| active < 3) {
            return refuse("members need three active zones at least: superblocks, writes and relocation".to_owned());
        }
        let metadata_bytes = members.iter().map(|member| usize::from(member.metadata_bytes)).min().unwrap_or(0);
        // A block's metadata must be in one place on all members, or parity of it could not be made.
        let is_in_band = known.map_or(metadata_bytes < OOB_BYTES, |known| known.is_in_band);
        if !is_in_band && metadata_bytes < OOB_BYTES {
            return refuse(format!(
                "members must keep {OOB_BYTES} bytes of metadata with a block, as when the volume was created"
            ));
        }
        let capacity = members.iter().map(|member| member.zone_capacity_blocks.0).min().unwrap_or(0);
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let transfer = members.iter().map(|member| member.max_transfer_blocks.0.min(1 << 16)).min().unwrap_or(1) as u32;
        let append = members.iter().map(|member| member.max_append_blocks.0.min(1 << 16)).min().unwrap_or(1) as u32;
        let entries_max = chunk_meta_entries_max(block_bytes) as u32;
        // The header is written in one command, or a crash could leave half of it without the zone looking cut short.
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
                    "a zone of {capacity} blocks does not hold a header, a stripe of {unit_blocks} blocks and a footer"
                ))
            })
        };
        let (small, large) = (layout(config.small)?, layout(config.large)?);
        let zones = members.iter().map(|member| member.zone_count).min().unwrap_or(0);
        if zones < METADATA_ZONES + crate::limits::RELOCATION_SEGMENTS + 2 {
            return refuse(format!("members need more than {zones} zones"));
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

    /// Blocks of data in a stripe.
    pub(crate) fn stripe_blocks(&self, stream: Stream) -> usize {
        self.data() * self.layout(stream).payload_blocks() as usize
    }

    /// Blocks of data in a segment of the kind that holds fewer.
    pub(crate) fn segment_blocks(&self) -> u64 {
        self.data_blocks(&self.small).min(self.data_blocks(&self.large))
    }

    /// Blocks of data in a segment that is laid out so.
    pub(crate) fn data_blocks(&self, layout: &Layout) -> u64 {
        u64::from(layout.entries()) * self.data() as u64
    }

    /// Which chunk of a stripe a member holds: data chunks come first.
    pub(crate) fn chunk_of(&self, member: MemberIndex, stripe: u32) -> usize {
        let members = self.members();
        if self.scheme.is_rotated() {
            (member.as_usize() + members - stripe as usize % members) % members
        } else {
            member.as_usize()
        }
    }

    /// Which chunks of a stripe these members hold, as bits both.
    pub(crate) fn chunks_of(&self, members: u32, stripe: u32) -> u32 {
        let held = (0..self.members() as u8).filter(|member| members >> member & 1 == 1);
        bits(held.map(|member| self.chunk_of(MemberIndex(member), stripe)))
    }

    /// Which member holds a chunk of a stripe.
    pub(crate) fn member_of(&self, chunk: usize, stripe: u32) -> MemberIndex {
        let members = self.members();
        let shift = if self.scheme.is_rotated() { stripe as usize % members } else { 0 };
        MemberIndex(((chunk + shift) % members) as u8)
    }
}
