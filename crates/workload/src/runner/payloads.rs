//! Payloads of writes: none, fingerprints, or bytes, depending on the device. All writes of a run
//! differ.

use zonda_zoned::{BlockBuffer, Geometry, Payload, PayloadKind, Prng};

/// Bytes of the pool beyond the largest write; each write uses another offset of it.
const POOL_SPARE_BYTES: usize = 1 << 16;

/// Generates payloads.
pub(super) struct Payloads {
    keeps: PayloadKind,
    block_size_bytes: usize,
    metadata_bytes: usize,
    prng: Prng,
    /// Random bytes; empty unless bytes are kept. A payload shares them and copies nothing.
    pool: BlockBuffer,
}

impl Payloads {
    pub(super) fn new(keeps: PayloadKind, geometry: &Geometry, blocks_max: u64, mut prng: Prng) -> Payloads {
        let (block_size_bytes, metadata_bytes) = (geometry.block_size_bytes as usize, geometry.metadata_bytes as usize);
        let mut random = |bytes: usize| -> Vec<u8> {
            let words = std::iter::repeat_with(|| prng.next_u64().to_le_bytes());
            words.take((bytes + POOL_SPARE_BYTES) / 8 + 1).flatten().collect()
        };
        let pool = match keeps {
            PayloadKind::Bytes => BlockBuffer {
                data: random(blocks_max as usize * block_size_bytes).into(),
                metadata: random(blocks_max as usize * metadata_bytes).into(),
            },
            _ => BlockBuffer::default(),
        };
        Payloads { keeps, block_size_bytes, metadata_bytes, prng, pool }
    }

    #[inline]
    pub(super) fn next(&mut self, blocks: u64) -> Payload {
        match self.keeps {
            PayloadKind::None => Payload::None,
            PayloadKind::Fingerprints => Payload::Fingerprints((0..blocks).map(|_| self.prng.next_u64() | 1).collect()),
            PayloadKind::Bytes => {
                let from = self.prng.below(POOL_SPARE_BYTES as u64) as usize;
                let (data, metadata) = (blocks as usize * self.block_size_bytes, blocks as usize * self.metadata_bytes);
                Payload::Bytes(Box::new(BlockBuffer {
                    data: self.pool.data.slice(from..from + data),
                    metadata: self.pool.metadata.slice(from..from + metadata),
                }))
            }
        }
    }
}
