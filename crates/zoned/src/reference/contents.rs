//! The contents of blocks, one entry for each block. A block without an entry reads as zeros.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{BlockBuffer, Blocks, Geometry, Lba, Payload, PayloadKind, ZERO_FINGERPRINT, fingerprint};

/// The contents of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    block_size_bytes: u32,
    metadata_bytes: u16,
    store: Store,
}

#[derive(Clone, Debug)]
enum Store {
    None,
    Fingerprints(BTreeMap<Lba, u64>),
    /// Copies of the device share their blocks: checkers make a copy for each of very many cases.
    Bytes(BTreeMap<Lba, Arc<Block>>),
}

#[derive(Debug)]
struct Block {
    data: Bytes,
    metadata: Bytes,
    fingerprint: OnceLock<u64>,
}

impl Block {
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| fingerprint(&self.data, &self.metadata))
    }
}

impl Contents {
    pub(super) fn new(geometry: &Geometry, keeps: PayloadKind) -> Contents {
        Contents {
            block_size_bytes: geometry.block_size_bytes,
            metadata_bytes: geometry.metadata_bytes,
            store: match keeps {
                PayloadKind::None => Store::None,
                PayloadKind::Fingerprints => Store::Fingerprints(BTreeMap::new()),
                PayloadKind::Bytes => Store::Bytes(BTreeMap::new()),
            },
        }
    }

    /// Whether the payload fits the number of blocks, the format, and what is kept: no bytes can be
    /// made of fingerprints.
    pub(super) fn fits(&self, payload: &Payload, blocks: Blocks) -> bool {
        if matches!((&self.store, payload), (Store::Bytes(_), Payload::Fingerprints(_))) {
            return false;
        }
        payload.fits(blocks.0, self.block_size_bytes, self.metadata_bytes)
    }

    /// Replaces the contents of consecutive blocks by a payload that fits them.
    pub(super) fn replace(&mut self, start: Lba, blocks: Blocks, payload: &Payload) {
        if *payload == Payload::None {
            self.erase(start, start + blocks);
            return;
        }
        for i in 0..blocks.0 {
            let lba = start + Blocks(i);
            match (&mut self.store, payload) {
                (Store::None, _) => {}
                (Store::Fingerprints(prints), Payload::Fingerprints(payload)) => {
                    prints.insert(lba, payload[i as usize]);
                }
                (Store::Fingerprints(prints), Payload::Bytes(buffer)) => {
                    let data = nth_block(&buffer.data, i, self.block_size_bytes);
                    let metadata = nth_block(&buffer.metadata, i, u32::from(self.metadata_bytes));
                    prints.insert(lba, fingerprint(data, metadata));
                }
                (Store::Bytes(bytes), Payload::Bytes(buffer)) => {
                    let data = nth_block(&buffer.data, i, self.block_size_bytes);
                    let metadata = nth_block(&buffer.metadata, i, u32::from(self.metadata_bytes));
                    let (data, metadata) = (Bytes::copy_from_slice(data), Bytes::copy_from_slice(metadata));
                    bytes.insert(lba, Arc::new(Block { data, metadata, fingerprint: OnceLock::new() }));
                }
                (Store::Bytes(_), Payload::Fingerprints(_)) | (_, Payload::None) => {
                    unreachable!("a payload that does not fit is refused, and none at all is zeros")
                }
            }
        }
    }

    /// Makes the blocks from `start` up to, but not including, `end` read as zeros.
    pub(super) fn erase(&mut self, start: Lba, end: Lba) {
        match &mut self.store {
            Store::None => {}
            Store::Fingerprints(prints) => remove_range(prints, start, end),
            Store::Bytes(bytes) => remove_range(bytes, start, end),
        }
    }

    /// What consecutive blocks read as, in the kind that is kept.
    pub(super) fn read(&self, start: Lba, blocks: Blocks) -> Payload {
        let lbas = (0..blocks.0).map(|i| start + Blocks(i));
        match &self.store {
            Store::None => Payload::None,
            Store::Fingerprints(_) => Payload::Fingerprints(lbas.map(|lba| self.print(lba)).collect()),
            Store::Bytes(bytes) => {
                let mut data = Vec::with_capacity(blocks.0 as usize * self.block_size_bytes as usize);
                let mut metadata = Vec::with_capacity(blocks.0 as usize * usize::from(self.metadata_bytes));
                for lba in lbas {
                    if let Some(block) = bytes.get(&lba) {
                        data.extend_from_slice(&block.data);
                        metadata.extend_from_slice(&block.metadata);
                    } else {
                        data.resize(data.len() + self.block_size_bytes as usize, 0);
                        metadata.resize(metadata.len() + usize::from(self.metadata_bytes), 0);
                    }
                }
                Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
            }
        }
    }

    /// The fingerprint of one block.
    pub(super) fn print(&self, lba: Lba) -> u64 {
        match &self.store {
            Store::None => ZERO_FINGERPRINT,
            Store::Fingerprints(prints) => prints.get(&lba).copied().unwrap_or(ZERO_FINGERPRINT),
            Store::Bytes(bytes) => bytes.get(&lba).map_or(ZERO_FINGERPRINT, |block| block.fingerprint()),
        }
    }
}

fn nth_block(bytes: &[u8], i: u64, block_bytes: u32) -> &[u8] {
    let block_bytes = block_bytes as usize;
    let start = i as usize * block_bytes;
    &bytes[start..start + block_bytes]
}

fn remove_range<T>(map: &mut BTreeMap<Lba, T>, start: Lba, end: Lba) {
    let held: Vec<Lba> = map.range(start..end).map(|(lba, _)| *lba).collect();
    for lba in held {
        map.remove(&lba);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::reference::ReferenceDevice;
    use crate::reference::testing::{run, write_payload};
    use crate::{Operation, Outcome};

    fn two_blocks() -> BlockBuffer {
        let data: Vec<u8> = (0..1024u32).map(|i| (i % 251) as u8).collect();
        let metadata: Vec<u8> = (100..116).collect();
        BlockBuffer { data: data.into(), metadata: metadata.into() }
    }

    fn read(device: &mut ReferenceDevice, start: u64, blocks: u64) -> Payload {
        match run(device, Operation::Read { start: Lba(start), blocks: Blocks(blocks) }).outcome {
            Outcome::Data(payload) => payload,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_byte_store_returns_data_and_metadata_and_zeros_behind_them() {
        let mut device = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Bytes);
        let written = two_blocks();
        assert_eq!(write_payload(&mut device, 0, 2, Payload::Bytes(Box::new(written.clone()))), Status::Success);
        let Payload::Bytes(found) = read(&mut device, 1, 2) else { panic!("a byte store returns bytes") };
        assert_eq!(found.data[..512], written.data[512..]);
        assert_eq!(found.metadata[..8], written.metadata[8..]);
        assert_eq!((&found.data[512..], &found.metadata[8..]), (&[0; 512][..], &[0; 8][..]));
        assert_eq!(device.block(Lba(0)), fingerprint(&written.data[..512], &written.metadata[..8]));
    }

    #[test]
    fn a_byte_store_refuses_fingerprints() {
        let mut device = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Bytes);
        assert_eq!(write_payload(&mut device, 0, 1, Payload::Fingerprints(vec![7].into())), Status::InvalidField);
    }

    #[test]
    fn a_fingerprint_store_accepts_bytes_and_keeps_the_fingerprint_of_each_block() {
        let mut device = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Fingerprints);
        let written = two_blocks();
        write_payload(&mut device, 0, 2, Payload::Bytes(Box::new(written.clone())));
        let prints = [0, 1]
            .map(|i: usize| fingerprint(&written.data[i * 512..(i + 1) * 512], &written.metadata[i * 8..(i + 1) * 8]));
        assert_eq!(read(&mut device, 0, 2), Payload::Fingerprints(prints.into()));
    }

    #[test]
    fn a_store_that_keeps_nothing_accepts_any_payload_of_the_right_size() {
        let mut device = ReferenceDevice::new(Geometry::tiny(), PayloadKind::None);
        assert_eq!(write_payload(&mut device, 0, 1, Payload::Fingerprints(vec![7].into())), Status::Success);
        assert_eq!(write_payload(&mut device, 1, 2, Payload::Bytes(Box::new(two_blocks()))), Status::Success);
        assert_eq!(write_payload(&mut device, 3, 1, Payload::Fingerprints(vec![7, 8].into())), Status::InvalidField);
        assert_eq!(read(&mut device, 0, 3), Payload::None);
        assert_eq!(device.block(Lba(0)), ZERO_FINGERPRINT);
    }

    #[test]
    fn no_payload_is_stored_as_zeros() {
        for keeps in [PayloadKind::Fingerprints, PayloadKind::Bytes] {
            let mut device = ReferenceDevice::new(Geometry::tiny(), keeps);
            assert_eq!(write_payload(&mut device, 0, 1, Payload::None), Status::Success);
            assert_eq!(device.block(Lba(0)), ZERO_FINGERPRINT);
        }
    }
}
