//! Reading blocks and tags with blocking calls, as they will be once the journal's contents are written again.

use crate::create::{sync, write};
use crate::format::layout::Layout;
use crate::format::tag::{TagCodec, Verdict};
use crate::load::{Loaded, Logged, read};
use crate::{Files, ImageError, ImageFile};

/// Blocks looked at in one go.
pub(crate) const CHUNK_BLOCKS: u64 = 1024;

/// The blocks of an image, read a chunk at a time.
pub(crate) struct Media<'a> {
    files: &'a mut dyn Files,
    layout: Layout,
    codec: TagCodec,
    zone_size: u64,
    logged: &'a [Logged],
}

/// Consecutive blocks of a zone and their tags.
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    pub(crate) tags: Vec<u8>,
    data: Data,
}

enum Data {
    /// Nothing is written here, so no data were read.
    Unread,
    Read(Vec<u8>),
    /// Where the system could not read some of it: `None` is a block that is lost.
    Pieces(Vec<Option<Vec<u8>>>),
}

impl<'a> Media<'a> {
    pub(crate) fn new(files: &'a mut dyn Files, loaded: &'a Loaded) -> Media<'a> {
        Media {
            files,
            layout: loaded.layout,
            codec: loaded.codec,
            zone_size: loaded.spec.geometry.zone_size_blocks.0,
            logged: &loaded.logged,
        }
    }

    /// Reads blocks from `first` up to `end`, at most [`CHUNK_BLOCKS`] of them.
    pub(crate) fn chunk(&mut self, zone: u32, first: u64, end: u64) -> Result<Chunk, ImageError> {
        let blocks = (end - first).min(CHUNK_BLOCKS);
        let Layout { tag_bytes, block_bytes, .. } = self.layout;
        let length = (blocks * tag_bytes) as usize;
        let mut tags = read(self.files, ImageFile::Tags, self.layout.tag_offset(zone, first), length)?;
        lay_over(&mut tags, tag_bytes, zone, first, self.logged, |logged| &logged.tags);
        if tags.iter().all(|&byte| byte == 0) {
            return Ok(Chunk { first, blocks, tags, data: Data::Unread });
        }
        let offset = self.layout.data_offset(zone, first);
        let data = match read(self.files, ImageFile::Data, offset, (blocks * block_bytes) as usize) {
            Ok(mut data) => {
                lay_over(&mut data, block_bytes, zone, first, self.logged, |logged| &logged.data);
                Data::Read(data)
            }
            Err(_) => Data::Pieces((0..blocks).map(|i| self.block(zone, first + i)).collect()),
        };
        Ok(Chunk { first, blocks, tags, data })
    }

    /// What the tag of a block in a chunk says.
    pub(crate) fn verdict(&self, chunk: &Chunk, zone: u32, generation: u32, block: u64) -> Verdict {
        let tag = chunk.tag(block, self.layout.tag_bytes);
        let lba = self.lba(zone, block);
        match chunk.data(block, self.layout.block_bytes) {
            Some(data) => self.codec.verify(tag, lba, generation, data),
            None => match self.codec.verify(tag, lba, generation, &[]) {
                Verdict::Data => Verdict::Mismatch,
                other => other,
            },
        }
    }

    /// A tag that fits a block as it is; `None` where the block cannot be read.
    pub(crate) fn accepted(&self, chunk: &Chunk, zone: u32, generation: u32, block: u64) -> Option<Vec<u8>> {
        let mut tag = chunk.tag(block, self.layout.tag_bytes).to_vec();
        let data = chunk.data(block, self.layout.block_bytes)?;
        self.codec.accept(&mut tag, self.lba(zone, block), generation, data);
        Some(tag)
    }

    fn lba(&self, zone: u32, block: u64) -> u64 {
        u64::from(zone) * self.zone_size + block
    }

    fn block(&mut self, zone: u32, block: u64) -> Option<Vec<u8>> {
        let bytes = self.layout.block_bytes;
        let offset = self.layout.data_offset(zone, block);
        let mut data = read(self.files, ImageFile::Data, offset, bytes as usize).ok()?;
        lay_over(&mut data, bytes, zone, block, self.logged, |logged| &logged.data);
        Some(data)
    }
}

impl Chunk {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.blocks
    }

    /// Whether no block of it was ever written.
    pub(crate) fn is_unwritten(&self) -> bool {
        matches!(self.data, Data::Unread)
    }

    pub(crate) fn tag(&self, block: u64, tag_bytes: u64) -> &[u8] {
        &self.tags[((block - self.first) * tag_bytes) as usize..][..tag_bytes as usize]
    }

    /// A block's data, or `None` where they are lost. Of a chunk without any tag, nothing.
    fn data(&self, block: u64, block_bytes: u64) -> Option<&[u8]> {
        let index = (block - self.first) as usize;
        match &self.data {
            Data::Unread => Some(&[]),
            Data::Read(data) => Some(&data[index * block_bytes as usize..][..block_bytes as usize]),
            Data::Pieces(pieces) => pieces[index].as_deref(),
        }
    }
}

/// Puts what the journal holds of a range over what was read of it. Later records go over earlier ones.
fn lay_over(bytes: &mut [u8], unit: u64, zone: u32, first: u64, logged: &[Logged], part: impl Fn(&Logged) -> &Vec<u8>) {
    let end = first + bytes.len() as u64 / unit;
    for record in logged.iter().filter(|logged| logged.zone == zone) {
        let source = part(record);
        let (from, to) = (first.max(record.first), end.min(record.first + record.blocks));
        if from >= to || source.is_empty() {
            continue;
        }
        let length = ((to - from) * unit) as usize;
        let source = &source[((from - record.first) * unit) as usize..][..length];
        bytes[((from - first) * unit) as usize..][..length].copy_from_slice(source);
    }
}

/// Writes the journal's contents to where they belong.
pub(crate) fn write_logged(files: &mut dyn Files, loaded: &Loaded) -> Result<(), ImageError> {
    for logged in &loaded.logged {
        if !logged.data.is_empty() {
            let offset = loaded.layout.data_offset(logged.zone, logged.first);
            write(files, ImageFile::Data, offset, &logged.data)?;
        }
        let offset = loaded.layout.tag_offset(logged.zone, logged.first);
        write(files, ImageFile::Tags, offset, &logged.tags)?;
    }
    Ok(())
}

/// Syncs blocks and tags.
pub(crate) fn sync_media(files: &mut dyn Files) -> Result<(), ImageError> {
    sync(files, ImageFile::Data)?;
    sync(files, ImageFile::Tags)
}
