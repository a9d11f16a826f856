//! A zone that is written at its write pointer.

use zonda_zoned::ZoneState;

use super::Mismatch;
use crate::stamp::Contents;

/// Everything that was asked of one zone since it was last looked at.
#[derive(Clone, Debug)]
pub struct ZoneHistory {
    capacity: u64,
    /// From each reset to the next; never empty.
    lives: Vec<Life>,
}

/// A command that changes a zone for good, for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A write or append up to this offset.
    Write {
        /// Of the zone, by the number of resets.
        life: usize,
        /// Where it ends, in blocks of the zone.
        end: u64,
    },
    /// A finish.
    Finish {
        /// The life that it ends.
        life: usize,
    },
    /// A reset.
    Reset {
        /// The life that it begins.
        life: usize,
    },
}

/// A zone after a crash, as a host sees it.
#[derive(Clone, Debug)]
pub struct FoundZone {
    /// Its state.
    pub state: ZoneState,
    /// Its write pointer as an offset, where the state has one.
    pub pointer: Option<u64>,
    /// All its blocks.
    pub contents: Vec<Contents>,
}

#[derive(Clone, Debug, Default)]
struct Life {
    /// What was written, in order and without gaps.
    extents: Vec<(u64, Contents)>,
    submitted: u64,
    acknowledged: u64,
    finish: Wish,
    /// The reset that began it.
    reset: Wish,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    No,
    Submitted,
    Acknowledged,
}

impl ZoneHistory {
    /// A zone that was never written.
    #[must_use]
    pub fn new(capacity_blocks: u64) -> ZoneHistory {
        let life = Life { reset: Wish::Acknowledged, ..Life::default() };
        ZoneHistory { capacity: capacity_blocks, lives: vec![life] }
    }

    /// The write pointer once everything submitted has taken effect.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.now().submitted
    }

    /// Whether the zone is full then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.now().finish != Wish::No || self.now().submitted == self.capacity
    }

    /// Blocks that can still be written then.
    #[must_use]
    pub fn room(&self) -> u64 {
        if self.is_full() { 0 } else { self.capacity - self.now().submitted }
    }

    /// What a read of a block that is submitted now must return.
    #[must_use]
    pub fn expected(&self, block: u64) -> Contents {
        self.now().contents(block)
    }

    /// A write at the write pointer, or an append.
    ///
    /// # Panics
    /// When the zone has no room for it.
    pub fn write(&mut self, blocks: u64, contents: Contents) -> Change {
        assert!(blocks <= self.room(), "a zone is not written past its capacity");
        let life = self.now_mut();
        life.submitted += blocks;
        life.extents.push((life.submitted, contents));
        Change::Write { life: self.lives.len() - 1, end: self.now().submitted }
    }

    /// A finish.
    ///
    /// # Panics
    /// When the zone is full.
    pub fn finish(&mut self) -> Change {
        assert!(!self.is_full(), "a full zone is finished");
        self.now_mut().finish = Wish::Submitted;
        Change::Finish { life: self.lives.len() - 1 }
    }

    /// A reset.
    pub fn reset(&mut self) -> Change {
        self.lives.push(Life { reset: Wish::Submitted, ..Life::default() });
        Change::Reset { life: self.lives.len() - 1 }
    }

    /// A change was acknowledged.
    pub fn acknowledge(&mut self, change: Change) {
        match change {
            Change::Write { life, end } => self.lives[life].acknowledged = self.lives[life].acknowledged.max(end),
            Change::Finish { life } => self.lives[life].finish = Wish::Acknowledged,
            Change::Reset { life } => self.lives[life].reset = Wish::Acknowledged,
        }
    }

    /// Whether the zone may be found like this after a crash; if so, goes on from there: what was found must stay.
    ///
    /// # Errors
    /// What is not as it must be, in the life of the zone that comes nearest.
    ///
    /// # Panics
    /// When not all blocks of the zone were looked at.
    pub fn settle(&mut self, found: &FoundZone) -> Result<(), Mismatch> {
        assert_eq!(found.contents.len() as u64, self.capacity, "every block was looked at");
        // A life with something acknowledged has begun for good.
        let first = self.lives.iter().rposition(Life::has_begun).expect("the first life had begun");
        let mut nearest: Option<Mismatch> = None;
        for life in &self.lives[first..] {
            match life.matches(found, self.capacity) {
                Ok(pointer) => {
                    let settled = life.settled(pointer, found.state == ZoneState::Full);
                    self.lives = vec![settled];
                    return Ok(());
                }
                Err(mismatch) if nearest.as_ref().is_none_or(|nearest| nearest.block < mismatch.block) => {
                    nearest = Some(mismatch);
                }
                Err(_) => {}
            }
        }
        Err(nearest.expect("there is at least one life"))
    }

    fn now(&self) -> &Life {
        self.lives.last().expect("a zone has at least one life")
    }

    fn now_mut(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a zone has at least one life")
    }
}

impl Life {
    fn has_begun(&self) -> bool {
        self.acknowledged > 0 || self.finish == Wish::Acknowledged || self.reset == Wish::Acknowledged
    }

    fn contents(&self, block: u64) -> Contents {
        let place = self.extents.partition_point(|&(end, _)| end <= block);
        self.extents.get(place).map_or(Contents::Zeros, |&(_, contents)| contents)
    }

    /// The write pointer, if the zone may have stopped in this life.
    fn matches(&self, found: &FoundZone, capacity: u64) -> Result<u64, Mismatch> {
        let pointer = match (found.state, found.pointer) {
            (ZoneState::Empty, Some(0)) => 0,
            (ZoneState::Closed, Some(pointer)) if (1..capacity).contains(&pointer) => pointer,
            // A full zone has no write pointer: it ends where it no longer holds what was written.
            (ZoneState::Full, None) => {
                let differs = |&block: &u64| found.contents[block as usize] != self.contents(block);
                (0..self.submitted).find(differs).unwrap_or(self.submitted)
            }
            (state, pointer) => {
                let expected = "empty, closed or full, with the write pointer of that state";
                return Err(Mismatch::new(None, expected, of_state(state, pointer)));
            }
        };
        let least = if self.finish == Wish::Acknowledged { self.submitted } else { self.acknowledged };
        if !(least..=self.submitted).contains(&pointer) {
            // For the zone's end, the block behind it says what is missing.
            let block = (pointer < self.submitted).then_some(pointer);
            let expected = format!("a write pointer of {least} to {}", self.submitted);
            let holds = block.map_or(String::new(), |block| format!(", then {}", found.contents[block as usize]));
            return Err(Mismatch::new(block, expected, format!("{}{holds}", of_state(found.state, Some(pointer)))));
        }
        // Written to the end or finished; a drive may also fill up a zone that was about to be, for want of resources.
        let may_be_full = self.finish != Wish::No || self.submitted == capacity;
        let must_be_full = self.finish == Wish::Acknowledged || self.acknowledged == capacity;
        if must_be_full && found.state != ZoneState::Full || !may_be_full && found.state == ZoneState::Full {
            let expected = if must_be_full { "a full zone" } else { "a zone that is not full" };
            return Err(Mismatch::new(None, expected, of_state(found.state, Some(pointer))));
        }
        for (block, &contents) in (0..).zip(&found.contents) {
            let expected = if block < pointer { self.contents(block) } else { Contents::Zeros };
            if contents != expected {
                return Err(Mismatch::new(Some(block), expected, contents));
            }
        }
        Ok(pointer)
    }

    /// What is known of a zone that was found in this life.
    fn settled(&self, pointer: u64, full: bool) -> Life {
        let mut extents: Vec<_> = self.extents.iter().copied().filter(|&(end, _)| end <= pointer).collect();
        if extents.last().map_or(0, |&(end, _)| end) < pointer {
            extents.push((pointer, self.contents(pointer - 1)));
        }
        let finish = if full { Wish::Acknowledged } else { Wish::No };
        Life { extents, submitted: pointer, acknowledged: pointer, finish, reset: Wish::Acknowledged }
    }
}

fn of_state(state: ZoneState, pointer: Option<u64>) -> String {
    pointer.map_or_else(|| state.to_string(), |pointer| format!("{state} with the write pointer at {pointer}"))
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
