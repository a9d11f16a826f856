//! The oracle: which contents each logical block may have.
//!
//! Writes and trims are numbered in the order in which they were submitted: these are the versions of the blocks they name. While
//! a volume is up, a read returns the version that was the newest when it was submitted. A crash leaves each block with the
//! newest version that was acknowledged, or any submitted after it. What is read after a mount, stays.
//!
//! Where members have volatile caches, an acknowledgement promises less: a crash leaves the newest version that was acknowledged
//! when a flush was submitted that has ended, or any submitted after it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload,
    QueueFull, Status,
};

use super::{Promise, Request, Violation};

/// Bytes of the smallest block whose contents say who it is.
pub const BLOCK_BYTES_MIN: usize = 16;
/// More versions than a volume is given.
const VERSIONS_OF_A_SIDE: u64 = 1 << 32;

/// What is known of a volume's contents, and the requests that have not ended.
#[derive(Clone, Debug)]
pub struct Model {
    block_bytes: usize,
    blocks: Vec<Block>,
    pending: BTreeMap<CommandId, Pending>,
    next_id: u64,
    next_version: u64,
    ended: u64,
    /// More members are lost than the volume can do without: requests may end with errors.
    pub is_lost: bool,
    /// Writes and trims may end for want of room, and nothing else with an error.
    pub may_be_full: bool,
    /// The newest epoch that the volume has told: who mounts it knows that.
    pub newest_epoch: Option<u64>,
    refused: u64,
    /// First block and blocks of reads that have failed.
    failed_reads: Vec<(u64, u64)>,
    /// What is acknowledged is durable only when it was flushed.
    pub is_cache_volatile: bool,
}

/// One version of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edition {
    /// 0 is the block that was never written.
    version: u64,
    /// A trim: it reads as zeros.
    is_zeros: bool,
    /// More of it is damaged than the volume tolerates: reads of it may fail.
    is_lost: bool,
}

#[derive(Clone, Debug)]
struct Block {
    /// Older than that, and a crash may bring them back: what replaces them was not flushed.
    olds: Vec<Edition>,
    /// What it has, in the order of versions; more than one after a crash, as long as nobody has looked.
    settled: Vec<Edition>,
    /// Submitted since, in that order, and not acknowledged.
    in_flight: Vec<Edition>,
    /// Submitted, and ended with an error: a crash may bring them back.
    refused: Vec<Edition>,
    /// Losses were accepted, and nobody has looked since: it may be older than what was acknowledged.
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

/// What a read may find in a block.
#[derive(Clone, Debug)]
enum Expected {
    Newest(Edition),
    /// One of these, and the next read another.
    Any(Vec<Edition>),
    /// One of those that a crash may have left.
    Settled(Vec<Edition>),
}

impl Expected {
    fn may_fail(&self) -> bool {
        match self {
            Expected::Newest(edition) => edition.is_lost,
            Expected::Any(editions) | Expected::Settled(editions) => editions.iter().any(|edition| edition.is_lost),
        }
    }
}

impl Model {
    /// A volume that nobody has written to.
    ///
    /// # Panics
    /// When blocks are too small to say who they are.
    #[must_use]
    pub fn new(volume_blocks: u64, block_bytes: usize) -> Model {
        assert!(block_bytes >= BLOCK_BYTES_MIN, "a block says its number and its version");
        let blank = Block {
            olds: Vec::new(),
            settled: vec![Edition { version: 0, is_zeros: true, is_lost: false }],
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

    /// Hands a request to the volume by way of `submit`. Says whether the volume had room for it.
    pub fn ask(&mut self, request: &Request, submit: impl FnOnce(Command) -> Result<(), QueueFull>) -> bool {
        let id = CommandId(self.next_id);
        let (operation, pending) = self.translate(request);
        if submit(Command { id, namespace: NamespaceId::FIRST, operation }).is_err() {
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
                    in_flight.push(Edition { version: *version, is_zeros, is_lost: false });
                }
            }
        }
        self.pending.insert(id, pending);
        true
    }

    /// A request has ended.
    ///
    /// # Errors
    /// What is wrong with its end.
    pub fn hear(&mut self, completion: &Completion) -> Result<(), Violation> {
        let id = completion.id;
        let Some(pending) = self.pending.remove(&id) else {
            return Err(Violation::new(Promise::Ends, format!("request {} ends, and is not under way", id.0)));
        };
        self.ended += 1;
        if !completion.status.is_success() {
            return self.hear_error(id, completion.status, &pending);
        }
        match pending {
            Pending::Flush { floors } => {
                for (block, floor) in self.blocks.iter_mut().zip(floors) {
                    block.olds.retain(|edition| edition.version >= floor);
                }
            }
            Pending::Change { version, ranges, .. } => {
                for lba in ranges.into_iter().flat_map(|(start, blocks)| start..start + blocks) {
                    let Block { olds, settled, in_flight, refused, may_be_older } = &mut self.blocks[lba as usize];
                    *may_be_older = false;
                    if !self.is_cache_volatile {
                        refused.retain(|edition| edition.version > version);
                    }
                    if let Some(at) = in_flight.iter().position(|edition| edition.version == version) {
                        let newest = in_flight[at];
                        let before = in_flight.drain(..=at).take(at);
                        if self.is_cache_volatile {
                            olds.extend(settled.extract_if(.., |edition| edition.version < version));
                            olds.extend(before);
                        }
                        settled.retain(|edition| edition.version > version);
                        settled.insert(0, newest);
                    }
                }
            }
            Pending::Read { start, expected } => {
                let found = match &completion.outcome {
                    Outcome::Data(Payload::Bytes(buffer)) => buffer.data.clone(),
                    other => {
                        return Err(Violation::new(Promise::Answers, format!("read {} brings back {other:?}", id.0)));
                    }
                };
                if found.len() != expected.len() * self.block_bytes {
                    let what = format!("read {} of {} blocks brings back {} bytes", id.0, expected.len(), found.len());
                    return Err(Violation::new(Promise::Answers, what));
                }
                for ((lba, expected), found) in (start..).zip(expected).zip(found.chunks(self.block_bytes)) {
                    self.see(id, lba, &expected, found)?;
                }
            }
        }
        Ok(())
    }

    /// A request has ended with an error.
    fn hear_error(&mut self, id: CommandId, status: Status, pending: &Pending) -> Result<(), Violation> {
        let has_no_room = self.may_be_full && status == Status::CapacityExceeded;
        match pending {
            Pending::Change { version, ranges, .. } if self.is_lost || has_no_room => {
                self.refused += u64::from(has_no_room);
                for lba in ranges.iter().flat_map(|&(start, blocks)| start..start + blocks) {
                    // Some blocks of a request may have been written.
                    let Block { settled, in_flight, refused, .. } = &mut self.blocks[lba as usize];
                    let ended: Vec<Edition> = in_flight.extract_if(.., |edition| edition.version == *version).collect();
                    settled.extend(&ended);
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

    /// The power has gone: what was under way will not end any more.
    pub fn crash(&mut self) {
        self.die();
        for Block { olds, settled, .. } in &mut self.blocks {
            olds.append(settled);
            std::mem::swap(olds, settled);
        }
    }

    /// The volume has gone, and the power has not: what was under way will not end any more.
    pub fn die(&mut self) {
        self.pending.clear();
        for Block { settled, in_flight, refused, .. } in &mut self.blocks {
            settled.append(refused);
            settled.append(in_flight);
        }
    }

    /// The volume is mounted: what it shows is durable.
    pub fn mounted(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.olds.clear());
    }

    /// Losses of which it is not known what they are were accepted: each block may be as it was at any time, until it is read.
    pub fn accept_losses(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.may_be_older = true);
    }

    /// These blocks are lost, and no others: reads of them may fail until they are written or trimmed. Nothing is under way.
    pub fn lose(&mut self, lost: &BTreeSet<u64>) {
        for (lba, Block { settled, olds, may_be_older, .. }) in (0..).zip(&mut self.blocks) {
            settled.iter_mut().chain(olds).for_each(|edition| edition.is_lost = lost.contains(&lba));
            *may_be_older = false;
        }
    }

    /// Whether reads of a block may fail.
    #[must_use]
    pub fn may_be_lost(&self, lba: u64) -> bool {
        let Block { olds, settled, .. } = &self.blocks[lba as usize];
        self.is_lost || olds.iter().chain(settled).any(|edition| edition.is_lost)
    }

    /// Reads that have failed since this was asked last: first block and blocks of each.
    pub fn take_failed_reads(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.failed_reads)
    }

    /// The same with versions that no other copy of this model will have: two sides of a volume are written to apart.
    #[must_use]
    pub fn of_other_side(&self) -> Model {
        Model { next_version: self.next_version + VERSIONS_OF_A_SIDE, ..self.clone() }
    }

    /// The number of the next request.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether a request that is under way is a write: a trim may find nothing to be trimmed.
    pub(super) fn is_write(&self, id: CommandId) -> bool {
        matches!(self.pending.get(&id), Some(Pending::Change { is_write: true, .. }))
    }

    /// The version of a block that these contents are, if they are one.
    pub(super) fn version_of(&self, lba: u64, found: &[u8]) -> Option<u64> {
        let version = u64::from_le_bytes(found.get(8..16)?.try_into().expect("eight bytes were taken"));
        let is_known = (1..self.next_version).contains(&version) && found == self.contents(lba, version);
        is_known.then_some(version)
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Requests that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Writes and trims that have ended for want of room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Blocks of the volume.
    #[must_use]
    pub fn volume_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Says that nothing is under way any more.
    ///
    /// # Errors
    /// When something is.
    pub fn expect_rest(&self) -> Result<(), Violation> {
        match self.pending.iter().next() {
            None => Ok(()),
            Some((id, pending)) => {
                let what =
                    format!("{} requests do not end, request {} among them: {pending:?}", self.pending.len(), id.0);
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
                let floor = |block: &Block| block.settled.iter().map(|edition| edition.version).min().unwrap_or(0);
                let floors = if self.is_cache_volatile { self.blocks.iter().map(floor).collect() } else { Vec::new() };
                (Operation::Flush, Pending::Flush { floors })
            }
        }
    }

    fn expected(&self, lba: u64) -> Expected {
        let block = &self.blocks[lba as usize];
        match block.in_flight.last() {
            // A part of a request may have failed before the rest of it has ended.
            Some(_) if self.may_be_full || self.is_lost => {
                Expected::Any(block.settled.iter().chain(&block.in_flight).copied().collect())
            }
            Some(newest) => Expected::Newest(*newest),
            None => Expected::Settled(block.settled.clone()),
        }
    }

    /// Somebody has looked at a block.
    fn see(&mut self, read: CommandId, lba: u64, expected: &Expected, found: &[u8]) -> Result<(), Violation> {
        let is_found = |edition: &Edition| {
            if edition.is_zeros {
                found.iter().all(|&byte| byte == 0)
            } else {
                found == self.contents(lba, edition.version)
            }
        };
        let editions = match expected {
            Expected::Newest(edition) => std::slice::from_ref(edition),
            Expected::Any(editions) | Expected::Settled(editions) => editions,
        };
        if self.blocks[lba as usize].may_be_older && matches!(expected, Expected::Settled(_)) {
            let is_zeros = found.iter().all(|&byte| byte == 0);
            let older = self.version_of(lba, found).or(is_zeros.then_some(0));
            let known = editions.iter().copied().find(is_found);
            if let Some(edition) = known.or(older.map(|version| Edition { version, is_zeros, is_lost: false })) {
                // What was read once stays.
                let block = &mut self.blocks[lba as usize];
                (block.settled, block.may_be_older) = (vec![edition], false);
                return Ok(());
            }
        }
        if !editions.iter().any(is_found) {
            let promise = if editions.len() > 1 { Promise::Durability } else { Promise::Contents };
            let (may, is) = (names(editions), what_is(found));
            let what = format!("block {lba} of read {} should have {may}, and has {is}", read.0);
            return Err(Violation::of_block(promise, lba, what));
        }
        let settled = &self.blocks[lba as usize].settled;
        if matches!(expected, Expected::Newest(_) | Expected::Any(_)) || !editions.contains(&settled[0]) {
            // It has been written since.
            return Ok(());
        }
        // What was submitted after the read, and has failed since, the read says nothing of.
        let stays = |edition: &Edition| is_found(edition) || !editions.contains(edition);
        let (kept, gone): (Vec<Edition>, Vec<Edition>) = settled.iter().copied().partition(stays);
        if kept.is_empty() {
            let (was, is) = (names(settled), what_is(found));
            let what = format!("block {lba} of read {} had {was} when it was read before, and has {is}", read.0);
            return Err(Violation::of_block(Promise::Durability, lba, what));
        }
        let block = &mut self.blocks[lba as usize];
        block.settled = kept;
        if self.is_cache_volatile && !block.refused.is_empty() {
            // It was a write that has failed which was read, and it is not flushed yet.
            block.olds.extend(gone);
        }
        Ok(())
    }

    /// A block's contents: who it is, its version, and bytes that follow from both.
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

fn names(editions: &[Edition]) -> String {
    let name = |edition: &Edition| match edition {
        Edition { version: 0, .. } => "zeros of no write".to_owned(),
        Edition { version, is_zeros: true, .. } => format!("zeros of trim {version}"),
        Edition { version, is_zeros: false, .. } => format!("version {version}"),
    };
    editions.iter().map(name).collect::<Vec<_>>().join(" or ")
}

/// What the contents of a block say of themselves.
fn what_is(found: &[u8]) -> String {
    if found.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let number = |at: usize| found[at..at + 8].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    format!("what begins as version {} of block {}", number(8), number(0))
}

#[cfg(test)]
mod tests;
