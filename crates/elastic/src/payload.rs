//! Payloads of commands that touch several zones: cut for the zones, and put together again.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, Payload, PayloadKind, ZERO_FINGERPRINT};

/// Bytes of a block's data and metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockFormat {
    pub(crate) data_bytes: usize,
    pub(crate) metadata_bytes: usize,
}

/// The payload of a piece: the runs (offset in `payload`, blocks) one behind the other.
pub(crate) fn gather(payload: &Payload, runs: &[(u64, u64)], format: BlockFormat) -> Payload {
    let blocks: u64 = runs.iter().map(|(_, blocks)| blocks).sum();
    match payload {
        Payload::None => Payload::None,
        Payload::Fingerprints(prints) => {
            let mut own = Vec::with_capacity(blocks as usize);
            for (offset, blocks) in runs {
                own.extend_from_slice(&prints[*offset as usize..(offset + blocks) as usize]);
            }
            Payload::Fingerprints(own.into())
        }
        Payload::Bytes(buffer) => Payload::Bytes(Box::new(BlockBuffer {
            data: gather_bytes(&buffer.data, runs, format.data_bytes),
            metadata: gather_bytes(&buffer.metadata, runs, format.metadata_bytes),
        })),
    }
}

fn gather_bytes(bytes: &Bytes, runs: &[(u64, u64)], unit: usize) -> Bytes {
    let range = |(offset, blocks): &(u64, u64)| *offset as usize * unit..(offset + blocks) as usize * unit;
    if let [run] = runs {
        return bytes.slice(range(run));
    }
    let mut own = BytesMut::with_capacity(runs.iter().map(|(_, blocks)| *blocks as usize * unit).sum());
    runs.iter().for_each(|run| own.extend_from_slice(&bytes[range(run)]));
    own.freeze()
}

/// The blocks of a read, as they arrive. What never arrives reads as zeros.
#[derive(Debug)]
pub(crate) enum Assembly {
    Nothing,
    Fingerprints(Vec<u64>),
    Bytes {
        data: Vec<u8>,
        metadata: Vec<u8>,
    },
    /// The whole read was one piece.
    Whole(Payload),
}

impl Assembly {
    pub(crate) fn new(kind: PayloadKind, blocks: u64, format: BlockFormat) -> Assembly {
        let blocks = blocks as usize;
        match kind {
            PayloadKind::None => Assembly::Nothing,
            PayloadKind::Fingerprints => Assembly::Fingerprints(vec![ZERO_FINGERPRINT; blocks]),
            PayloadKind::Bytes => Assembly::Bytes {
                data: vec![0; blocks * format.data_bytes],
                metadata: vec![0; blocks * format.metadata_bytes],
            },
        }
    }

    /// Adds a piece: each run is its offset in the piece, its offset in the read, and its blocks.
    /// Returns false for a payload of another kind or size than the device's.
    #[must_use]
    pub(crate) fn add(
        &mut self,
        piece: &Payload,
        runs: impl Iterator<Item = (u64, u64, u64)>,
        format: BlockFormat,
    ) -> bool {
        match (self, piece) {
            (Assembly::Nothing, _) => true,
            (Assembly::Fingerprints(all), Payload::Fingerprints(prints)) => {
                for (from, to, blocks) in runs {
                    let Some(part) = prints.get(from as usize..(from + blocks) as usize) else { return false };
                    all[to as usize..(to + blocks) as usize].copy_from_slice(part);
                }
                true
            }
            (Assembly::Bytes { data, metadata }, Payload::Bytes(buffer)) => {
                for (from, to, blocks) in runs {
                    let parts = [
                        (&mut *data, &buffer.data, format.data_bytes),
                        (&mut *metadata, &buffer.metadata, format.metadata_bytes),
                    ];
                    for (all, part, unit) in parts {
                        let (from, to, length) = (from as usize * unit, to as usize * unit, blocks as usize * unit);
                        let Some(part) = part.get(from..from + length) else { return false };
                        all[to..to + length].copy_from_slice(part);
                    }
                }
                true
            }
            // A device may return nothing for blocks that were written without contents.
            (_, Payload::None) => true,
            _ => false,
        }
    }

    /// Blocks of a read whose contents are kept.
    pub(crate) fn blocks(&self, format: BlockFormat) -> Option<u64> {
        match self {
            Assembly::Nothing | Assembly::Whole(_) => None,
            Assembly::Fingerprints(prints) => Some(prints.len() as u64),
            Assembly::Bytes { data, .. } => Some((data.len() / format.data_bytes) as u64),
        }
    }

    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Assembly::Nothing => Payload::None,
            Assembly::Fingerprints(prints) => Payload::Fingerprints(prints.into()),
            Assembly::Bytes { data, metadata } => {
                Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
            }
            Assembly::Whole(payload) => payload,
        }
    }
}
