//! Configuration, layout and code of a volume. Owners read it; only management calls of the volume
//! change it.

use bytes::{Bytes, BytesMut};
use zonda_erasure::{Code, Engine, Portable};
use zonda_zoned::Geometry;

use super::start::{fit_streams, volume_geometry};
use crate::bug::{Seeded, SeededBug};
use crate::config::{Level, VolumeConfig};
use crate::format::{ArrayId, LostPlace, Tombstone, write_tombstones};
use crate::limits::MEMBERS_MAX;
use crate::shape::{Known, Shape};
use crate::{MemberIndex, VolumeError};

/// The specification of a volume. It has no state of the data path: I/O does not change it.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) shape: Shape,
    pub(super) config: VolumeConfig,
    pub(super) array: ArrayId,
    /// The geometry that hosts see.
    pub(super) geometry: Geometry,
    pub(super) code: Code,
    pub(super) engine: Box<dyn Engine>,
    /// A block of zeros.
    pub(super) zeros: Bytes,
    pub(super) seeded: Seeded,
}

impl Spec {
    /// `known`: the parameters of an existing volume.
    pub(super) fn new(
        mut config: VolumeConfig,
        array: ArrayId,
        geometries: &[Geometry],
        known: Option<Known>,
    ) -> Result<Spec, VolumeError> {
        if config.name.len() > crate::format::NAME_BYTES_MAX {
            return Err(VolumeError::Config("the name of a volume must have at most 64 bytes".to_owned()));
        }
        let shape = Shape::new(&config, geometries, known)?;
        fit_streams(&mut config, geometries);
        let (data, parity) = (usize::from(config.scheme.data), usize::from(config.scheme.parity));
        let code = if config.scheme.level == Level::Raid01 { Code::mirror(data) } else { Code::new(data, parity) };
        let code = code.map_err(|error| VolumeError::Config(error.to_string()))?;
        let geometry = volume_geometry(&config, &shape, geometries, known.is_none())?;
        let zeros = Bytes::from(vec![0; shape.block_bytes]);
        Ok(Spec { shape, config, array, geometry, code, engine: Box::new(Portable), zeros, seeded: Seeded::default() })
    }

    /// The number of members.
    pub(super) fn members(&self) -> usize {
        self.shape.members()
    }

    /// All members, whatever their state.
    pub(super) fn member_indices(&self) -> impl Iterator<Item = MemberIndex> + Clone + use<> {
        (0..self.shape.members() as u8).map(MemberIndex)
    }

    /// Blocks that hosts see.
    pub(super) fn volume_blocks(&self) -> u64 {
        self.geometry.namespace_blocks().0
    }

    pub(super) fn has_contents(&self) -> bool {
        self.config.tuning.has_contents
    }

    pub(super) fn is_cache_volatile(&self) -> bool {
        self.config.tuning.is_cache_volatile
    }

    /// Whether a bug is seeded.
    pub(super) fn has(&self, bug: SeededBug) -> bool {
        self.seeded.has(bug)
    }

    /// Whether the chunks on these members suffice to read a stripe.
    pub(super) fn is_stripe_decodable(&self, members: u32, number: u32) -> bool {
        self.code.is_decodable(self.shape.chunks_of(members, number))
    }

    /// Whether every stripe can be read from these members: for a mirror it matters which they are.
    pub(super) fn are_enough(&self, members: u32) -> bool {
        if self.shape.scheme.is_rotated() {
            members.count_ones() as usize >= self.shape.data()
        } else {
            self.code.is_decodable(members)
        }
    }

    /// Computes parity into `outputs`, chunk by chunk.
    pub(super) fn encode<'a>(&self, chunks: impl Iterator<Item = &'a [u8]>, outputs: &mut [u8]) {
        let (data, parity) = (self.code.data(), self.code.parity());
        let mut inputs: [&[u8]; MEMBERS_MAX] = [&[]; MEMBERS_MAX];
        inputs.iter_mut().zip(chunks).for_each(|(input, chunk)| *input = chunk);
        if self.has(SeededBug::WrongParity) {
            inputs[data - 1] = inputs[0];
        }
        let mut rest = outputs.chunks_exact_mut(inputs[0].len());
        let mut outputs: [&mut [u8]; MEMBERS_MAX] = std::array::from_fn(|_| rest.next().unwrap_or_default());
        self.code.encode(&*self.engine, &inputs[..data], &mut outputs[..parity]);
    }

    /// A block of tombstones; empty without contents.
    pub(super) fn tombstone_block(&self, ranges: &[Tombstone], places: &[LostPlace]) -> Bytes {
        if !self.has_contents() {
            return Bytes::new();
        }
        let mut out = BytesMut::zeroed(self.shape.block_bytes);
        write_tombstones(ranges, places, &mut out);
        out.freeze()
    }

    /// Metadata of blocks that have none of their own, on a member with this geometry.
    pub(super) fn no_metadata(&self, member: &Geometry, blocks: u32) -> Bytes {
        let each = usize::from(member.metadata_bytes);
        vec![0; if self.has_contents() { blocks as usize * each } else { 0 }].into()
    }
}
