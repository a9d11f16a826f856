//! The model of the contents: which versions each block may have.

use std::collections::BTreeSet;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 512;

/// Versions count from 1; 0 is an unwritten block.
pub(super) struct Ledger {
    blocks: Vec<BTreeSet<u32>>,
    last: u32,
}

impl Ledger {
    pub(super) fn new(blocks: u64) -> Ledger {
        Ledger { blocks: vec![BTreeSet::from([0]); blocks as usize], last: 0 }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Begins a write of these blocks: until it completes, each may have the new version or not.
    /// Returns its version and contents.
    pub(super) fn write(&mut self, start: u64, blocks: u64) -> (u32, Vec<u8>) {
        self.last += 1;
        let mut data = Vec::new();
        for lba in start..start + blocks {
            self.blocks[lba as usize].insert(self.last);
            data.extend(contents(lba, self.last));
        }
        (self.last, data)
    }

    /// The write was acknowledged.
    pub(super) fn acknowledge(&mut self, start: u64, blocks: u64, version: u32) {
        for lba in start..start + blocks {
            self.blocks[lba as usize].retain(|known| *known >= version);
        }
    }

    /// Checks that a read returned a version that the block may have. From then on it has that
    /// version.
    pub(super) fn read(&mut self, lba: u64, block: &[u8]) -> Result<(), String> {
        let found =
            version_of(lba, block).ok_or_else(|| format!("block {lba} has contents that were never written"))?;
        let known = &mut self.blocks[lba as usize];
        if !known.contains(&found) {
            return Err(format!("block {lba} has version {found}, expected one of {known:?}"));
        }
        *known = BTreeSet::from([found]);
        Ok(())
    }
}

pub(super) fn contents(lba: u64, version: u32) -> [u8; BLOCK_BYTES] {
    let mut block = [version as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[8..12].copy_from_slice(&version.to_le_bytes());
    block
}

pub(super) fn version_of(lba: u64, block: &[u8]) -> Option<u32> {
    if block.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u32::from_le_bytes(block.get(8..12)?.try_into().ok()?);
    (block == contents(lba, version)).then_some(version)
}
