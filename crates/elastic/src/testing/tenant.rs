//! [`TenantZone`]: what a host knows about one of its zones, and which states it may find it in
//! after a crash.
//!
//! Each block names the tenant, its zone, its place and the write that it belongs to, so that data of
//! others, older data and zeros are told from what was written.

use zonda_zoned::{BlockBuffer, ZoneState};

/// How a pool stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Its program was killed; the drive kept its power.
    Kill,
    /// The drive has lost its power, and kept all that it had acknowledged.
    PowerLoss,
    /// The drive has lost its power, and what it had not flushed.
    CacheLoss,
}

/// What the contents of a block identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTag {
    /// The tenant, unique in a run.
    pub tenant: u64,
    /// Its zone.
    pub zone: u64,
    /// The block of the zone.
    pub block: u64,
    /// The write, unique in a run and not 0.
    pub write: u64,
}

/// What was found in the place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros.
    Zeros,
    /// A whole block.
    Tag(BlockTag),
    /// Something that no tenant wrote.
    Garbage,
    /// The block could not be read.
    Unreadable,
}

/// A zone as a host finds it after a crash.
#[derive(Clone, Debug)]
pub struct ZoneFound {
    /// Its state.
    pub state: ZoneState,
    /// Blocks before its write pointer, in states in which it is valid.
    pub pointer: Option<u64>,
    /// Its descriptor extension.
    pub extension: Option<u8>,
    /// Its blocks up to the capacity; none of an offline zone.
    pub blocks: Vec<Content>,
}

/// The zone between two resets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Counts the resets of the zone.
    pub number: u64,
    /// The write of each block that was submitted; 0 for zeros.
    pub blocks: Vec<u64>,
    /// Blocks that were acknowledged.
    pub acknowledged: u64,
    /// Blocks that were acknowledged before a flush that was acknowledged.
    pub flushed: u64,
    /// Writes were refused: of blocks that were not acknowledged, any number from the first on may stand.
    pub is_cut: bool,
    /// A Finish was submitted, or acknowledged.
    pub finish: Option<bool>,
    /// A descriptor extension was submitted, and whether it was acknowledged.
    pub extension: Option<(u8, bool)>,
}

/// What a host knows about one of its zones.
#[derive(Clone, Debug, Default)]
pub struct TenantZone {
    /// The present life.
    pub now: Life,
    /// The life before a Reset that was not acknowledged.
    pub before: Option<Life>,
    /// A write has failed: blocks that were not acknowledged may be missing.
    pub has_failed: bool,
    /// Nothing is submitted to it until the next mount.
    pub is_suspended: bool,
    /// Crashes in the present life.
    pub crashes: u32,
    /// Times that the pool was opened again in the present life, because the drive lacked space.
    pub reopenings: u32,
}

impl BlockTag {
    /// The block.
    #[must_use]
    pub fn to_block(self, data_bytes: usize, metadata_bytes: usize) -> BlockBuffer {
        let mut data = vec![self.write as u8 | 1; data_bytes];
        for (index, word) in [self.tenant, self.zone, self.block, self.write].into_iter().enumerate() {
            data[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        BlockBuffer { data: data.into(), metadata: vec![self.block as u8 | 1; metadata_bytes].into() }
    }

    /// What a block identifies.
    #[must_use]
    pub fn of_block(data: &[u8], metadata: &[u8]) -> Content {
        if data.iter().chain(metadata).all(|byte| *byte == 0) {
            return Content::Zeros;
        }
        let word = |index: usize| {
            data.get(index * 8..index * 8 + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let tag = BlockTag { tenant: word(0), zone: word(1), block: word(2), write: word(3) };
        let whole = tag.to_block(data.len(), metadata.len());
        if whole.data == data && whole.metadata == metadata { Content::Tag(tag) } else { Content::Garbage }
    }
}

impl Life {
    /// Whether `found` is what stands at `block`.
    fn is(&self, block: u64, found: Content, tenant: u64, zone: u64) -> bool {
        match (self.blocks[block as usize], found) {
            (_, Content::Unreadable) | (0, Content::Zeros) => true,
            (write, Content::Tag(tag)) => tag == BlockTag { tenant, zone, block, write },
            _ => false,
        }
    }

    /// Blocks that a crash must leave.
    fn floor(&self, crash: Crash) -> u64 {
        if crash == Crash::CacheLoss { self.flushed } else { self.acknowledged }
    }

    /// How many blocks of this life the zone holds, if the life explains it. `is_excused`: the pool may have
    /// finished the zone.
    fn explains(&self, found: &ZoneFound, crash: Crash, tenant: u64, zone: u64, is_excused: bool) -> Option<u64> {
        let capacity = found.blocks.len() as u64;
        let end = self.blocks.len() as u64;
        let is_extended = match self.extension {
            Some((byte, true)) => found.extension == Some(byte),
            Some((byte, false)) => found.extension.is_none_or(|other| other == byte),
            None => found.extension.is_none(),
        } || found.state == ZoneState::ReadOnly;
        let holds = |blocks: u64| {
            let (own, rest) = found.blocks.split_at(blocks as usize);
            own.iter().enumerate().all(|(block, found)| self.is(block as u64, *found, tenant, zone))
                && rest.iter().all(|found| matches!(found, Content::Zeros | Content::Unreadable))
        };
        let least = self.floor(crash);
        let blocks = match found.state {
            ZoneState::Empty => (least == 0 && self.finish != Some(true) && holds(0)).then_some(0),
            ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed => {
                let pointer = found.pointer?;
                let is_possible = (least..=end).contains(&pointer) && pointer < capacity && self.finish != Some(true);
                (is_possible && holds(pointer)).then_some(pointer)
            }
            ZoneState::Full => {
                // The loss of a cache may tear a group further than one jump repairs.
                let is_by_pool = (is_excused || crash == Crash::CacheLoss) && self.finish != Some(true);
                let is_possible = end == capacity || self.finish.is_some() || is_by_pool;
                let first = if self.is_cut || is_by_pool { least } else { end };
                (first..=end).rev().find(|blocks| is_possible && holds(*blocks))
            }
            // Where the write pointer of a zone below is not known, blocks may be missing between others.
            ZoneState::ReadOnly => {
                let is_own = |(block, found): (usize, &Content)| {
                    let is_written = block < self.blocks.len() && self.is(block as u64, *found, tenant, zone);
                    is_written || (block as u64 >= least && matches!(found, Content::Zeros | Content::Unreadable))
                };
                found.blocks.iter().enumerate().all(is_own).then_some(least)
            }
            ZoneState::Offline | ZoneState::NotWritePointer => None,
        };
        blocks.filter(|_| is_extended)
    }
}

impl TenantZone {
    /// Whether the host counts it as active.
    #[must_use]
    pub fn is_active(&self, capacity: u64) -> bool {
        let is_written = !self.now.blocks.is_empty() || self.now.extension.is_some();
        let is_ended = self.now.finish.is_some() || self.now.blocks.len() as u64 >= capacity;
        is_written && !is_ended && !self.has_failed && !self.is_suspended && self.before.is_none()
    }

    /// A Reset is submitted.
    pub fn begin_reset(&mut self) {
        let next = Life { number: self.now.number + 1, ..Life::default() };
        self.before = Some(std::mem::replace(&mut self.now, next));
        (self.crashes, self.reopenings) = (0, 0);
    }

    /// The life of this number, unless it has ended.
    pub fn life(&mut self, number: u64) -> Option<&mut Life> {
        [Some(&mut self.now), self.before.as_mut()].into_iter().flatten().find(|life| life.number == number)
    }

    /// Compares the zone with what a host finds after a crash, and continues from there. `is_excused`:
    /// zones of the drive below it have failed, or their blocks could not be read, or crashes have torn it more
    /// often than its last group has jumps.
    ///
    /// # Errors
    /// What no sequence of events explains.
    pub fn adopt(
        &mut self,
        found: &ZoneFound,
        crash: Crash,
        tenant: u64,
        zone: u64,
        is_excused: bool,
    ) -> Result<(), String> {
        let foreign = found.blocks.iter().position(|content| match content {
            Content::Tag(tag) => (tag.tenant, tag.zone) != (tenant, zone),
            Content::Garbage => true,
            _ => false,
        });
        if let Some(block) = foreign {
            return Err(format!("block {block} holds {:?}", found.blocks[block]));
        }
        self.crashes += 1;
        if found.state == ZoneState::Offline {
            self.is_suspended = true;
            return if is_excused {
                Ok(())
            } else {
                Err("the zone is offline, and none below it has failed".to_owned())
            };
        }
        if found.state == ZoneState::ReadOnly && !is_excused {
            return Err("the zone is read only, and none below it has failed".to_owned());
        }
        let lives: Vec<Life> = [Some(&self.now), self.before.as_ref()].into_iter().flatten().cloned().collect();
        let explained = lives.into_iter().find_map(|life| {
            let blocks = life.explains(found, crash, tenant, zone, is_excused)?;
            Some((life, blocks))
        });
        let Some((life, blocks)) = explained else { return Err(self.contradiction(found, crash)) };
        let was_read_only = found.state == ZoneState::ReadOnly;
        let flushed = if crash == Crash::Kill { life.flushed.min(blocks) } else { blocks };
        let is_empty = found.state == ZoneState::Empty;
        let number = if is_empty { self.now.number + 1 } else { life.number };
        let mut kept = life.blocks;
        kept.truncate(if was_read_only { kept.len() } else { blocks as usize });
        let extension = if was_read_only { life.extension.map(|it| it.0) } else { found.extension };
        *self = TenantZone {
            now: Life {
                number,
                blocks: kept,
                acknowledged: blocks,
                flushed,
                is_cut: false,
                finish: (found.state == ZoneState::Full).then_some(true),
                extension: extension.map(|byte| (byte, true)),
            },
            before: None,
            has_failed: was_read_only,
            is_suspended: was_read_only,
            crashes: if is_empty { 0 } else { self.crashes },
            reopenings: if is_empty { 0 } else { self.reopenings },
        };
        Ok(())
    }

    fn contradiction(&self, found: &ZoneFound, crash: Crash) -> String {
        let stands = found.blocks.iter().take_while(|content| matches!(content, Content::Tag(_))).count();
        let life = |life: &Life| {
            format!(
                "{} blocks submitted, {} acknowledged, {} flushed, finish {:?}, extension {:?}",
                life.blocks.len(),
                life.acknowledged,
                life.flushed,
                life.finish,
                life.extension
            )
        };
        let before = self.before.as_ref().map_or_else(String::new, |own| format!("; before the reset: {}", life(own)));
        format!(
            "{crash:?} left the zone {} at {:?} with extension {:?} and {stands} blocks from its start; {}{before}",
            found.state,
            found.pointer,
            found.extension,
            life(&self.now)
        )
    }
}
