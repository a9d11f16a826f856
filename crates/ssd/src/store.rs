//! Sparse contents of blocks: bytes, fingerprints or nothing, by zone and block.

use bytes::BytesMut;
use zonda_zoned::{BlockBuffer, Payload, PayloadKind, ZERO_FINGERPRINT, ZoneIndex, fingerprint};

/// Blocks in one chunk of a zone's contents.
const CHUNK_BLOCKS: u64 = 64;

/// Contents of all zones.
#[derive(Debug)]
pub(crate) struct PayloadStore {
    kind: PayloadKind,
    block_bytes: usize,
    metadata_bytes: usize,
    zones: Vec<Option<ZoneContents>>,
}

/// Contents of one zone: chunks by number, absent where only zeros were written.
#[derive(Debug, Default)]
pub(crate) struct ZoneContents {
    chunks: Vec<Option<Chunk>>,
}

#[derive(Debug)]
enum Chunk {
    Fingerprints(Box<[u64]>),
    /// For each block its data, then its metadata.
    Bytes(Box<[u8]>),
}

/// The contents of one block, to be restored if its overwriting is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockContents {
    Fingerprint(u64),
    Bytes(Box<[u8]>),
}

impl PayloadStore {
    pub(crate) fn new(kind: PayloadKind, block_bytes: u32, metadata_bytes: u16, zones: u32) -> PayloadStore {
        let zones = if kind == PayloadKind::None { 0 } else { zones };
        PayloadStore {
            kind,
            block_bytes: block_bytes as usize,
            metadata_bytes: usize::from(metadata_bytes),
            zones: (0..zones).map(|_| None).collect(),
        }
    }

    pub(crate) fn kind(&self) -> PayloadKind {
        self.kind
    }

    /// Whether this store can store such a payload of so many blocks.
    pub(crate) fn takes(&self, payload: &Payload, blocks: u64) -> bool {
        let wrong_kind = self.kind == PayloadKind::Bytes && matches!(payload, Payload::Fingerprints(_));
        !wrong_kind && payload.fits(blocks, self.block_bytes as u32, self.metadata_bytes as u16)
    }

    /// Writes blocks of one zone, from `first` of its blocks. The first `skip` blocks of the
    /// payload belong elsewhere.
    pub(crate) fn write(&mut self, zone: ZoneIndex, first: u64, blocks: u64, payload: &Payload, skip: u64) {
        if self.kind == PayloadKind::None {
            return;
        }
        for i in 0..blocks {
            let (block, source) = (first + i, (skip + i) as usize);
            match payload {
                Payload::None => self.zero(zone, block),
                Payload::Fingerprints(prints) => self.set_print(zone, block, prints[source]),
                Payload::Bytes(buffer) => {
                    let data = &buffer.data[source * self.block_bytes..][..self.block_bytes];
                    let metadata = &buffer.metadata[source * self.metadata_bytes..][..self.metadata_bytes];
                    match self.kind {
                        PayloadKind::Bytes => self.set_bytes(zone, block, data, metadata),
                        _ => self.set_print(zone, block, fingerprint(data, metadata)),
                    }
                }
            }
        }
    }

    /// Makes one block read as zeros.
    pub(crate) fn zero(&mut self, zone: ZoneIndex, block: u64) {
        match self.kind {
            PayloadKind::None => {}
            PayloadKind::Fingerprints if self.print(zone, block) == ZERO_FINGERPRINT => {}
            PayloadKind::Fingerprints => self.set_print(zone, block, ZERO_FINGERPRINT),
            PayloadKind::Bytes if self.block(zone, block).is_none() => {}
            PayloadKind::Bytes => self.bytes_mut(zone, block).fill(0),
        }
    }

    /// The contents of consecutive blocks, given as pieces of zones.
    pub(crate) fn read(&self, pieces: impl Iterator<Item = (ZoneIndex, u64, u64)>) -> Payload {
        let each = |pieces: &mut dyn Iterator<Item = (ZoneIndex, u64, u64)>, f: &mut dyn FnMut(ZoneIndex, u64)| {
            pieces.for_each(|(zone, first, blocks)| (first..first + blocks).for_each(|block| f(zone, block)));
        };
        let mut pieces = pieces;
        match self.kind {
            PayloadKind::None => Payload::None,
            PayloadKind::Fingerprints => {
                let mut prints = Vec::new();
                each(&mut pieces, &mut |zone, block| prints.push(self.print(zone, block)));
                Payload::Fingerprints(prints.into())
            }
            PayloadKind::Bytes => {
                let (mut data, mut metadata) = (BytesMut::new(), BytesMut::new());
                each(&mut pieces, &mut |zone, block| match self.block(zone, block) {
                    Some(bytes) => {
                        data.extend_from_slice(&bytes[..self.block_bytes]);
                        metadata.extend_from_slice(&bytes[self.block_bytes..]);
                    }
                    None => {
                        data.resize(data.len() + self.block_bytes, 0);
                        metadata.resize(metadata.len() + self.metadata_bytes, 0);
                    }
                });
                Payload::Bytes(Box::new(BlockBuffer { data: data.freeze(), metadata: metadata.freeze() }))
            }
        }
    }

    /// Removes the contents of a zone, so that it reads as zeros.
    pub(crate) fn take(&mut self, zone: ZoneIndex) -> Option<ZoneContents> {
        self.zones.get_mut(zone.as_usize())?.take()
    }

    /// Restores what [`take`](Self::take) removed.
    pub(crate) fn put_back(&mut self, zone: ZoneIndex, contents: Option<ZoneContents>) {
        if let Some(place) = self.zones.get_mut(zone.as_usize()) {
            *place = contents;
        }
    }

    /// One block, to be restored later; `None` if this store stores nothing.
    pub(crate) fn save(&self, zone: ZoneIndex, block: u64) -> Option<BlockContents> {
        match self.kind {
            PayloadKind::None => None,
            PayloadKind::Fingerprints => Some(BlockContents::Fingerprint(self.print(zone, block))),
            PayloadKind::Bytes => {
                let zeros = || vec![0; self.block_bytes + self.metadata_bytes].into();
                Some(BlockContents::Bytes(self.block(zone, block).map_or_else(zeros, Into::into)))
            }
        }
    }

    /// Restores one block.
    pub(crate) fn restore(&mut self, zone: ZoneIndex, block: u64, contents: &BlockContents) {
        match contents {
            BlockContents::Fingerprint(print) => self.set_print(zone, block, *print),
            BlockContents::Bytes(bytes) => self.bytes_mut(zone, block).copy_from_slice(bytes),
        }
    }

    fn chunk(&self, zone: ZoneIndex, block: u64) -> Option<&Chunk> {
        self.zones.get(zone.as_usize())?.as_ref()?.chunks.get((block / CHUNK_BLOCKS) as usize)?.as_ref()
    }

    fn chunk_mut(&mut self, zone: ZoneIndex, block: u64) -> &mut Chunk {
        let index = (block / CHUNK_BLOCKS) as usize;
        let contents = self.zones[zone.as_usize()].get_or_insert_default();
        if contents.chunks.len() <= index {
            contents.chunks.resize_with(index + 1, || None);
        }
        let block_total = self.block_bytes + self.metadata_bytes;
        contents.chunks[index].get_or_insert_with(|| match self.kind {
            PayloadKind::Bytes => Chunk::Bytes(vec![0; CHUNK_BLOCKS as usize * block_total].into()),
            _ => Chunk::Fingerprints(vec![ZERO_FINGERPRINT; CHUNK_BLOCKS as usize].into()),
        })
    }

    fn print(&self, zone: ZoneIndex, block: u64) -> u64 {
        match self.chunk(zone, block) {
            Some(Chunk::Fingerprints(prints)) => prints[(block % CHUNK_BLOCKS) as usize],
            _ => ZERO_FINGERPRINT,
        }
    }

    fn set_print(&mut self, zone: ZoneIndex, block: u64, print: u64) {
        match self.chunk_mut(zone, block) {
            Chunk::Fingerprints(prints) => prints[(block % CHUNK_BLOCKS) as usize] = print,
            Chunk::Bytes(_) => unreachable!("a store keeps one kind of payload"),
        }
    }

    fn block(&self, zone: ZoneIndex, block: u64) -> Option<&[u8]> {
        let size = self.block_bytes + self.metadata_bytes;
        match self.chunk(zone, block)? {
            Chunk::Bytes(bytes) => Some(&bytes[(block % CHUNK_BLOCKS) as usize * size..][..size]),
            Chunk::Fingerprints(_) => None,
        }
    }

    fn bytes_mut(&mut self, zone: ZoneIndex, block: u64) -> &mut [u8] {
        let size = self.block_bytes + self.metadata_bytes;
        match self.chunk_mut(zone, block) {
            Chunk::Bytes(bytes) => &mut bytes[(block % CHUNK_BLOCKS) as usize * size..][..size],
            Chunk::Fingerprints(_) => unreachable!("a store keeps one kind of payload"),
        }
    }

    fn set_bytes(&mut self, zone: ZoneIndex, block: u64, data: &[u8], metadata: &[u8]) {
        let split = self.block_bytes;
        let bytes = self.bytes_mut(zone, block);
        bytes[..split].copy_from_slice(data);
        bytes[split..].copy_from_slice(metadata);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: ZoneIndex = ZoneIndex(1);

    fn bytes(fill: u8, blocks: usize) -> Payload {
        let buffer = BlockBuffer { data: vec![fill; 512 * blocks].into(), metadata: vec![fill; 8 * blocks].into() };
        Payload::Bytes(Box::new(buffer))
    }

    #[test]
    fn blocks_read_as_they_were_written_and_as_zeros_where_they_were_not() {
        let mut store = PayloadStore::new(PayloadKind::Bytes, 512, 8, 2);
        store.write(ZONE, 63, 2, &bytes(7, 2), 0);
        assert_eq!(store.read([(ZONE, 63, 2)].into_iter()), bytes(7, 2));
        let Payload::Bytes(read) = store.read([(ZONE, 62, 2), (ZoneIndex(0), 0, 1)].into_iter()) else { panic!() };
        assert_eq!((read.data[511], read.data[512], read.data[1024]), (0, 7, 0));
        assert_eq!((read.metadata[7], read.metadata[8], read.metadata[16]), (0, 7, 0));
    }

    #[test]
    fn a_fingerprint_store_keeps_the_fingerprints_of_bytes() {
        let mut store = PayloadStore::new(PayloadKind::Fingerprints, 512, 8, 2);
        store.write(ZONE, 5, 1, &bytes(7, 1), 0);
        let print = fingerprint(&[7; 512], &[7; 8]);
        assert_eq!(store.read([(ZONE, 4, 2)].into_iter()), Payload::Fingerprints(vec![0, print].into()));
    }

    #[test]
    fn contents_taken_out_can_be_put_back() {
        let mut store = PayloadStore::new(PayloadKind::Fingerprints, 512, 0, 2);
        store.write(ZONE, 0, 2, &Payload::Fingerprints(vec![3, 4].into()), 0);
        let contents = store.take(ZONE);
        assert_eq!(store.save(ZONE, 1), Some(BlockContents::Fingerprint(0)));
        store.put_back(ZONE, contents);
        assert_eq!(store.save(ZONE, 1), Some(BlockContents::Fingerprint(4)));
    }

    #[test]
    fn a_saved_block_is_restored_over_what_came_after_it() {
        let mut store = PayloadStore::new(PayloadKind::Bytes, 512, 8, 2);
        let before = store.save(ZONE, 9).unwrap();
        store.write(ZONE, 9, 1, &bytes(1, 1), 0);
        store.restore(ZONE, 9, &before);
        assert_eq!(store.read([(ZONE, 9, 1)].into_iter()), bytes(0, 1));
    }
}
