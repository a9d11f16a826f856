//! The oracle: which contents each logical block may have.
//!
//! Writes and trims are numbered in the order in which they were submitted: these are the versions
//! of the blocks they name. While a volume is up, a read returns the version that was the newest
//! when it was submitted. A crash leaves each block with the newest acknowledged version, or any
//! one submitted after it. Once a version was read after a mount, it stays.
//!
//! Where members have volatile caches, an acknowledgement guarantees less: a crash leaves the
//! newest version that was acknowledged when a completed flush was submitted, or any one submitted
//! after it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload,
    QueueFull, Status,
};

use super::{Promise, Request, Violation};

/// Smallest block size whose contents identify the block and its version.
pub const BLOCK_BYTES_MIN: usize = 16;
/// More versions than a volume ever has.
const VERSIONS_OF_A_SIDE: u64 = 1 << 32;

/// The possible contents of a volume, and the outstanding requests.
#[derive(Clone, Debug)]
pub struct Model {
    block_bytes: usize,
    blocks: Vec<Block>,
    pending: BTreeMap<CommandId, Pending>,
    next_id: u64,
    next_version: u64,
    ended: u64,
    /// More members are lost than the volume tolerates: requests may end with errors.
    pub is_lost: bool,
    /// Writes and trims may end for lack of space, but with no other error.
    pub may_be_full: bool,
    /// The newest epoch that the volume has reported: callers of mounts know it.
    pub newest_epoch: Option<u64>,
    refused: u64,
    /// First block and number of blocks of reads that have failed.
    failed_reads: Vec<(u64, u64)>,
    /// An acknowledged write is durable only after a flush.
    pub is_cache_volatile: bool,
}

/// One version of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockVersion {
    /// 0: the block was never written.
    version: u64,
    /// A trim: it reads as zeros.
    is_zeros: bool,
    /// More of it is damaged than the volume tolerates: reads of it may fail.
    is_lost: bool,
}

#[derive(Clone, Debug)]
struct Block {
    /// Older versions that a crash may restore: their replacements were not flushed.
    superseded: Vec<BlockVersion>,
    /// Its current version; several candidates after a crash, until it is read.
    current: Vec<BlockVersion>,
    /// Submitted later, in that order, and not acknowledged.
    in_flight: Vec<BlockVersion>,
    /// Submitted, and ended with an error: a crash may restore them.
    refused: Vec<BlockVersion>,
    /// Losses were accepted, and the block was not read since: it may be older than the
    /// acknowledged version.
    may_be_older: bool,
}

#[derive(Clone, Debug)]
enum Pending {
    Change {
        version: u64,
        ranges: Vec<(u64, u64)>,
        is_write: bool,
    },
    Read {
        start: u64,
        expected: Vec<Expected>,
    },
    Flush {
        /// For each block the version from which on it is durable afterwards.
        floors: Vec<u64>,
    },
}

/// What a read may return for a block.
#[derive(Clone, Debug)]
enum Expected {
    Newest(BlockVersion),
    /// One of these, and the next read may return another.
    Any(Vec<BlockVersion>),
    /// One of those that a crash may have left.
    AfterCrash(Vec<BlockVersion>),
}

impl Expected {
    fn may_fail(&self) -> bool {
        match self {
            Expected::Newest(candidate) => candidate.is_lost,
            Expected::Any(allowed) | Expected::AfterCrash(allowed) => allowed.iter().any(|candidate| candidate.is_lost),
        }
    }
}

impl Model {
    /// A volume that was never written.
    ///
    /// # Panics
    /// If blocks are too small for their number and version.
    #[must_use]
    pub fn new(volume_blocks: u64, block_bytes: usize) -> Model {
        assert!(block_bytes >= BLOCK_BYTES_MIN, "a block holds its number and its version");
        let blank = Block {
            superseded: Vec::new(),
            current: vec![BlockVersion { version: 0, is_zeros: true, is_lost: false }],
            in_flight: Vec::new(),
            refused: Vec::new(),
            may_be_older: false,
        };
        Model {
            block_bytes,
            blocks: vec![blank; volume_blocks as usize],
            pending: BTreeMap::new(),
            next_id: 1,
            next_version: 1,
            ended: 0,
            is_lost: false,
            may_be_full: false,
            newest_epoch: None,
            refused: 0,
            failed_reads: Vec::new(),
            is_cache_volatile: false,
        }
    }

    /// Submits a request to the volume by `submit`. Returns whether the volume accepted it.
    pub fn submit(&mut self, request: &Request, submit: impl FnOnce(Command) -> Result<(), QueueFull>) -> bool {
        let id = CommandId(self.next_id);
        let (operation, pending) = self.translate(request);
        if submit(Command::new(id, NamespaceId::FIRST, operation)).is_err() {
            return false;
        }
        self.next_id += 1;
        if let Pending::Change { version, ranges, is_write } = &pending {
            self.next_version += 1;
            let is_zeros = !is_write;
            for lba in ranges.iter().flat_map(|&(start, blocks)| start..start + blocks) {
                let in_flight = &mut self.blocks[lba as usize].in_flight;
                // Ranges of a trim may overlap.
                if in_flight.last().is_none_or(|last| last.version != *version) {
                    in_flight.push(BlockVersion { version: *version, is_zeros, is_lost: false });
                }
            }
        }
        self.pending.insert(id, pending);
        true
    }

    /// Checks the completion of a request.
    ///
    /// # Errors
    /// If the completion is wrong.
    pub fn on_completion(&mut self, completion: &Completion) -> Result<(), Violation> {
        let id = completion.id;
        let Some(pending) = self.pending.remove(&id) else {
            return Err(Violation::new(Promise::Ends, format!("request {} completes, but is not outstanding", id.0)));
        };
        self.ended += 1;
        if !completion.status.is_success() {
            return self.on_error(id, completion.status, &pending);
        }
        match pending {
            Pending::Flush { floors } => {
                for (block, floor) in self.blocks.iter_mut().zip(floors) {
                    block.superseded.retain(|candidate| candidate.version >= floor);
                }
            }
            Pending::Change { version, ranges, .. } => {
                for lba in ranges.into_iter().flat_map(|(start, blocks)| start..start + blocks) {
                    let Block { superseded, current, in_flight, refused, may_be_older } =
                        &mut self.blocks[lba as usize];
                    *may_be_older = false;
                    if !self.is_cache_volatile {
                        refused.retain(|candidate| candidate.version > version);
                    }
                    if let Some(at) = in_flight.iter().position(|candidate| candidate.version == version) {
                        let newest = in_flight[at];
                        let before = in_flight.drain(..=at).take(at);
                        if self.is_cache_volatile {
                            superseded.extend(current.extract_if(.., |candidate| candidate.version < version));
                            superseded.extend(before);
                        }
                        current.retain(|candidate| candidate.version > version);
                        current.insert(0, newest);
                    }
                }
            }
            Pending::Read { start, expected } => {
                let found = match &completion.outcome {
                    Outcome::Data(Payload::Bytes(buffer)) => buffer.data.clone(),
                    other => {
                        return Err(Violation::new(Promise::Answers, format!("read {} returns {other:?}", id.0)));
                    }
                };
                if found.len() != expected.len() * self.block_bytes {
                    let what = format!("read {} of {} blocks returns {} bytes", id.0, expected.len(), found.len());
                    return Err(Violation::new(Promise::Answers, what));
                }
                for ((lba, expected), found) in (start..).zip(expected).zip(found.chunks(self.block_bytes)) {
                    self.observe(id, lba, &expected, found)?;
                }
            }
        }
        Ok(())
    }

    /// A request has ended with an error.
    fn on_error(&mut self, id: CommandId, status: Status, pending: &Pending) -> Result<(), Violation> {
        let is_out_of_space = self.may_be_full && status == Status::CapacityExceeded;
        match pending {
            Pending::Change { version, ranges, .. } if self.is_lost || is_out_of_space => {
                self.refused += u64::from(is_out_of_space);
                for lba in ranges.iter().flat_map(|&(start, blocks)| start..start + blocks) {
                    // Some blocks of a request may have been written.
                    let Block { current, in_flight, refused, .. } = &mut self.blocks[lba as usize];
                    let ended: Vec<BlockVersion> =
                        in_flight.extract_if(.., |candidate| candidate.version == *version).collect();
                    current.extend(&ended);
                    refused.extend(ended);
                }
                Ok(())
            }
            Pending::Read { start, expected } if self.is_lost || expected.iter().any(Expected::may_fail) => {
                self.failed_reads.push((*start, expected.len() as u64));
                Ok(())
            }
            Pending::Flush { .. } if self.is_lost => Ok(()),
            _ => {
                let what = format!("request {} ends with \"{status}\": {pending:?}", id.0);
                Err(Violation::new(Promise::Answers, what))
            }
        }
    }

    /// Power loss: outstanding requests never complete.
    pub fn crash(&mut self) {
        self.kill();
        for Block { superseded, current, .. } in &mut self.blocks {
            superseded.append(current);
            std::mem::swap(superseded, current);
        }
    }

    /// The volume was stopped without a power loss: outstanding requests never complete.
    pub fn kill(&mut self) {
        self.pending.clear();
        for Block { current, in_flight, refused, .. } in &mut self.blocks {
            current.append(refused);
            current.append(in_flight);
        }
    }

    /// The volume is mounted: what can be read is durable.
    pub fn mounted(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.superseded.clear());
    }

    /// Unidentified losses were accepted: each block may have any older version, until it is read.
    pub fn accept_losses(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.may_be_older = true);
    }

    /// Exactly these blocks are lost: reads of them may fail until they are written or trimmed.
    /// Nothing is in flight.
    pub fn lose(&mut self, lost: &BTreeSet<u64>) {
        for (lba, Block { current, superseded, may_be_older, .. }) in (0..).zip(&mut self.blocks) {
            current.iter_mut().chain(superseded).for_each(|candidate| candidate.is_lost = lost.contains(&lba));
            *may_be_older = false;
        }
    }

    /// Whether reads of a block may fail.
    #[must_use]
    pub fn may_be_lost(&self, lba: u64) -> bool {
        let Block { superseded, current, .. } = &self.blocks[lba as usize];
        self.is_lost || superseded.iter().chain(current).any(|candidate| candidate.is_lost)
    }

    /// Reads that have failed since the last call: first block and number of blocks of each.
    pub fn take_failed_reads(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.failed_reads)
    }

    /// A copy for the other side of a split brain, with versions that no other copy uses.
    #[must_use]
    pub fn of_other_side(&self) -> Model {
        Model { next_version: self.next_version + VERSIONS_OF_A_SIDE, ..self.clone() }
    }

    /// The number of the next request.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether an outstanding request is a write: a trim may find nothing to trim.
    pub(super) fn is_write(&self, id: CommandId) -> bool {
        matches!(self.pending.get(&id), Some(Pending::Change { is_write: true, .. }))
    }

    /// The version that these contents are, if they are valid.
    pub(super) fn version_of(&self, lba: u64, found: &[u8]) -> Option<u64> {
        let version = u64::from_le_bytes(found.get(8..16)?.try_into().expect("eight bytes were taken"));
        let is_known = (1..self.next_version).contains(&version) && found == self.contents(lba, version);
        is_known.then_some(version)
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Requests that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Writes and trims that have ended for lack of space.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Blocks of the volume.
    #[must_use]
    pub fn volume_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Checks that nothing is in flight.
    ///
    /// # Errors
    /// If a request is outstanding.
    pub fn expect_idle(&self) -> Result<(), Violation> {
        match self.pending.iter().next() {
            None => Ok(()),
            Some((id, pending)) => {
                let what = format!(
                    "{} requests do not complete, among them request {}: {pending:?}",
                    self.pending.len(),
                    id.0
                );
                Err(Violation::new(Promise::Ends, what))
            }
        }
    }

    fn translate(&self, request: &Request) -> (Operation, Pending) {
        let version = self.next_version;
        match request {
            Request::Read { start, blocks } => {
                let expected = (*start..start + blocks).map(|lba| self.expected(lba)).collect();
                let read = Operation::Read { start: Lba(*start), blocks: Blocks(*blocks) };
                (read, Pending::Read { start: *start, expected })
            }
            Request::Write { start, blocks } => {
                let mut data = Vec::with_capacity(*blocks as usize * self.block_bytes);
                (*start..start + blocks).for_each(|lba| data.extend(self.contents(lba, version)));
                let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: Bytes::new() }));
                let write = Operation::Write { start: Lba(*start), blocks: Blocks(*blocks), payload };
                (write, Pending::Change { version, ranges: vec![(*start, *blocks)], is_write: true })
            }
            Request::Zero { start, blocks } => {
                let zero = Operation::WriteZeroes { start: Lba(*start), blocks: Blocks(*blocks) };
                (zero, Pending::Change { version, ranges: vec![(*start, *blocks)], is_write: false })
            }
            Request::Trim(ranges) => {
                let named =
                    ranges.iter().map(|&(start, blocks)| LbaRange { start: Lba(start), blocks: Blocks(blocks) });
                let trim = Operation::Deallocate { ranges: named.collect() };
                (trim, Pending::Change { version, ranges: ranges.clone(), is_write: false })
            }
            Request::Flush => {
                let floor = |block: &Block| block.current.iter().map(|candidate| candidate.version).min().unwrap_or(0);
                let floors = if self.is_cache_volatile { self.blocks.iter().map(floor).collect() } else { Vec::new() };
                (Operation::Flush, Pending::Flush { floors })
            }
        }
    }

    fn expected(&self, lba: u64) -> Expected {
        let block = &self.blocks[lba as usize];
        match block.in_flight.last() {
            // A part of a request may fail before the rest has ended.
            Some(_) if self.may_be_full || self.is_lost => {
                Expected::Any(block.current.iter().chain(&block.in_flight).copied().collect())
            }
            Some(newest) => Expected::Newest(*newest),
            None => Expected::AfterCrash(block.current.clone()),
        }
    }

    /// A block was read.
    fn observe(&mut self, read: CommandId, lba: u64, expected: &Expected, found: &[u8]) -> Result<(), Violation> {
        let is_found = |candidate: &BlockVersion| {
            if candidate.is_zeros {
                found.iter().all(|&byte| byte == 0)
            } else {
                found == self.contents(lba, candidate.version)
            }
        };
        let allowed = match expected {
            Expected::Newest(candidate) => std::slice::from_ref(candidate),
            Expected::Any(allowed) | Expected::AfterCrash(allowed) => allowed,
        };
        if self.blocks[lba as usize].may_be_older && matches!(expected, Expected::AfterCrash(_)) {
            let is_zeros = found.iter().all(|&byte| byte == 0);
            let older = self.version_of(lba, found).or(is_zeros.then_some(0));
            let known = allowed.iter().copied().find(is_found);
            if let Some(candidate) = known.or(older.map(|version| BlockVersion { version, is_zeros, is_lost: false })) {
                // A version that was read once stays.
                let block = &mut self.blocks[lba as usize];
                (block.current, block.may_be_older) = (vec![candidate], false);
                return Ok(());
            }
        }
        if !allowed.iter().any(is_found) {
            let promise = if allowed.len() > 1 { Promise::Durability } else { Promise::Contents };
            let (may, is) = (names(allowed), what_is(found));
            let what = format!("block {lba} of read {} should have {may}, and has {is}", read.0);
            return Err(Violation::of_block(promise, lba, what));
        }
        let current = &self.blocks[lba as usize].current;
        if matches!(expected, Expected::Newest(_) | Expected::Any(_)) || !allowed.contains(&current[0]) {
            // It was written since.
            return Ok(());
        }
        // The read does not constrain versions that were submitted after it and have failed since.
        let stays = |candidate: &BlockVersion| is_found(candidate) || !allowed.contains(candidate);
        let (kept, gone): (Vec<BlockVersion>, Vec<BlockVersion>) = current.iter().copied().partition(stays);
        if kept.is_empty() {
            let (was, is) = (names(current), what_is(found));
            let what = format!("block {lba} of read {} had {was} when it was read before, and has {is}", read.0);
            return Err(Violation::of_block(Promise::Durability, lba, what));
        }
        let block = &mut self.blocks[lba as usize];
        block.current = kept;
        if self.is_cache_volatile && !block.refused.is_empty() {
            // The version that was read is a failed write, and is not flushed yet.
            block.superseded.extend(gone);
        }
        Ok(())
    }

    /// A block's contents: its number, its version, and bytes derived from both.
    fn contents(&self, lba: u64, version: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.block_bytes);
        bytes.extend_from_slice(&lba.to_le_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
        let mut word = (lba << 32 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while bytes.len() < self.block_bytes {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = word.rotate_left(9).wrapping_add(version);
        }
        bytes.truncate(self.block_bytes);
        bytes
    }
}

fn names(allowed: &[BlockVersion]) -> String {
    let name = |candidate: &BlockVersion| match candidate {
        BlockVersion { version: 0, .. } => "zeros of no write".to_owned(),
        BlockVersion { version, is_zeros: true, .. } => format!("zeros of trim {version}"),
        BlockVersion { version, is_zeros: false, .. } => format!("version {version}"),
    };
    allowed.iter().map(name).collect::<Vec<_>>().join(" or ")
}

/// What the contents of a block identify as.
fn what_is(found: &[u8]) -> String {
    if found.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let number = |at: usize| found[at..at + 8].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    format!("contents that begin like version {} of block {}", number(8), number(0))
}

#[cfg(test)]
mod tests;
