//! A zone that is written at its write pointer.

use zonda_zoned::ZoneState;

use super::Mismatch;
use crate::stamp::Contents;

/// The commands to one zone since it was last verified.
#[derive(Clone, Debug)]
pub struct ZoneHistory {
    capacity: u64,
    /// From each reset to the next; never empty.
    lives: Vec<Life>,
}

/// A command that changes a zone durably, for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A write or append up to this offset.
    Write {
        /// The life of the zone, counted by resets.
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

/// The state of a zone after a crash.
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
    /// The writes, in order and without gaps.
    extents: Vec<(u64, Contents)>,
    submitted: u64,
    acknowledged: u64,
    finish: CommandState,
    /// The reset with which it began.
    reset: CommandState,
    /// A write has failed: none of the blocks that were not acknowledged has to be there.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CommandState {
    #[default]
    None,
    Submitted,
    Acknowledged,
    /// It may have happened.
    Failed,
}

impl ZoneHistory {
    /// A zone that was never written.
    #[must_use]
    pub fn new(capacity_blocks: u64) -> ZoneHistory {
        let life = Life { reset: CommandState::Acknowledged, ..Life::default() };
        ZoneHistory { capacity: capacity_blocks, lives: vec![life] }
    }

    /// The write pointer once all submitted commands have taken effect.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.now().submitted
    }

    /// Whether the zone is full then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.now().finish != CommandState::None || self.now().submitted == self.capacity
    }

    /// Whether it is not known what it holds then: the last reset has failed.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.now().reset == CommandState::Failed
    }

    /// Blocks that can still be written then.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        if self.is_full() { 0 } else { self.capacity - self.now().submitted }
    }

    /// The contents that a read submitted now must return.
    #[must_use]
    pub fn expected(&self, block: u64) -> Contents {
        self.now().contents(block)
    }

    /// A write at the write pointer, or an append.
    ///
    /// # Panics
    /// When it exceeds the capacity of the zone.
    pub fn write(&mut self, blocks: u64, contents: Contents) -> Change {
        assert!(blocks <= self.free_blocks(), "a zone is not written past its capacity");
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
        assert!(!self.is_full(), "a full zone cannot be finished");
        self.now_mut().finish = CommandState::Submitted;
        Change::Finish { life: self.lives.len() - 1 }
    }

    /// A reset.
    pub fn reset(&mut self) -> Change {
        self.lives.push(Life { reset: CommandState::Submitted, ..Life::default() });
        Change::Reset { life: self.lives.len() - 1 }
    }

    /// Records the acknowledgement of a change.
    pub fn acknowledge(&mut self, change: Change) {
        match change {
            Change::Write { life, end } => self.lives[life].acknowledged = self.lives[life].acknowledged.max(end),
            Change::Finish { life } if self.lives[life].reset == CommandState::Failed => {
                // It has finished an earlier life, if the reset has not happened.
                let lives = self.lives[..=life].iter_mut().filter(|life| life.finish == CommandState::None);
                lives.for_each(|life| life.finish = CommandState::Submitted);
            }
            Change::Finish { life } => self.lives[life].finish = CommandState::Acknowledged,
            Change::Reset { life } => self.lives[life].reset = CommandState::Acknowledged,
        }
    }

    /// Records the failure of a change. Returns whether it concerns the present life.
    pub fn fail(&mut self, change: Change) -> bool {
        let (Change::Write { life, .. } | Change::Finish { life } | Change::Reset { life }) = change;
        match change {
            Change::Write { .. } => self.lives[life].is_cut = true,
            Change::Finish { .. } => {}
            Change::Reset { .. } => self.lives[life].reset = CommandState::Failed,
        }
        life + 1 == self.lives.len()
    }

    /// Checks the state of the zone after a crash; if it is permitted, continues from it: it must
    /// not change from now on.
    ///
    /// # Errors
    /// The mismatch, in the life of the zone that matches best.
    ///
    /// # Panics
    /// When not all blocks of the zone were read.
    pub fn resume_from(&mut self, found: &FoundZone) -> Result<(), Mismatch> {
        assert_eq!(found.contents.len() as u64, self.capacity, "every block was verified");
        // A life with an acknowledged command has certainly begun.
        let first = self.lives.iter().rposition(Life::has_begun).expect("the first life had begun");
        let mut nearest: Option<Mismatch> = None;
        for life in &self.lives[first..] {
            match life.matches(found, self.capacity) {
                Ok(pointer) => {
                    let resumed = life.resumed(pointer, found.state == ZoneState::Full);
                    self.lives = vec![resumed];
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
        self.acknowledged > 0 || self.finish == CommandState::Acknowledged || self.reset == CommandState::Acknowledged
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
            // A full zone has no write pointer: it ends at the first block without written
            // contents.
            (ZoneState::Full, None) => {
                let differs = |&block: &u64| found.contents[block as usize] != self.contents(block);
                (0..self.submitted).find(differs).unwrap_or(self.submitted)
            }
            (state, pointer) => {
                let expected = "empty, closed or full, with the write pointer of that state";
                return Err(Mismatch::new(None, expected, of_state(state, pointer)));
            }
        };
        let is_whole = self.finish == CommandState::Acknowledged && !self.is_cut;
        let least = if is_whole { self.submitted } else { self.acknowledged };
        if !(least..=self.submitted).contains(&pointer) {
            // For the end of the zone, the block after it shows what is missing.
            let block = (pointer < self.submitted).then_some(pointer);
            let expected = format!("a write pointer of {least} to {}", self.submitted);
            let holds = block.map_or(String::new(), |block| format!(", then {}", found.contents[block as usize]));
            return Err(Mismatch::new(block, expected, format!("{}{holds}", of_state(found.state, Some(pointer)))));
        }
        // Written to the end or finished; a drive may also finish a zone for lack of resources.
        let may_be_full = self.finish != CommandState::None || self.submitted == capacity;
        let must_be_full = self.finish == CommandState::Acknowledged || self.acknowledged == capacity;
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

    /// The history of a zone that was found in this life.
    fn resumed(&self, pointer: u64, full: bool) -> Life {
        let mut extents: Vec<_> = self.extents.iter().copied().filter(|&(end, _)| end <= pointer).collect();
        if extents.last().map_or(0, |&(end, _)| end) < pointer {
            extents.push((pointer, self.contents(pointer - 1)));
        }
        let finish = if full { CommandState::Acknowledged } else { CommandState::None };
        let reset = CommandState::Acknowledged;
        Life { extents, submitted: pointer, acknowledged: pointer, finish, reset, is_cut: false }
    }
}

fn of_state(state: ZoneState, pointer: Option<u64>) -> String {
    pointer.map_or_else(|| state.to_string(), |pointer| format!("{state} with the write pointer at {pointer}"))
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
