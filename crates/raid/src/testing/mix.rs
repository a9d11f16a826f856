//! Random requests of hosts.

use std::fmt;

use zonda_zoned::Prng;

/// A host request; contents are determined by the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read.
    Read {
        /// First block.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Write.
    Write {
        /// First block.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Write Zeroes.
    Zero {
        /// First block.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Deallocate: first block and number of blocks of each range.
    Trim(Vec<(u64, u64)>),
    /// Flush.
    Flush,
}

impl Request {
    /// Whether it concerns a block; a flush concerns all written ones.
    #[must_use]
    pub fn touches(&self, lba: u64) -> bool {
        let is_in = |&(start, blocks): &(u64, u64)| (start..start + blocks).contains(&lba);
        match self {
            Request::Read { start, blocks } | Request::Write { start, blocks } | Request::Zero { start, blocks } => {
                is_in(&(*start, *blocks))
            }
            Request::Trim(ranges) => ranges.iter().any(is_in),
            Request::Flush => true,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |blocks: u64| if blocks == 1 { "block" } else { "blocks" };
        match self {
            Request::Read { start, blocks } => write!(f, "read of {blocks} {} at {start}", unit(*blocks)),
            Request::Write { start, blocks } => write!(f, "write of {blocks} {} at {start}", unit(*blocks)),
            Request::Zero { start, blocks } => write!(f, "write of {blocks} {} of zeros at {start}", unit(*blocks)),
            Request::Trim(ranges) => {
                f.write_str("trim of")?;
                for (at, (start, blocks)) in ranges.iter().enumerate() {
                    write!(f, "{} {blocks} {} at {start}", if at > 0 { "," } else { "" }, unit(*blocks))?;
                }
                Ok(())
            }
            Request::Flush => f.write_str("flush"),
        }
    }
}

/// Weights of the kinds of requests, and their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Weight of reads.
    pub reads: u64,
    /// Weight of writes.
    pub writes: u64,
    /// Weight of trims, and of writes of zeros.
    pub trims: u64,
    /// Weight of flushes.
    pub flushes: u64,
    /// Maximum blocks of a small request.
    pub small_blocks_max: u64,
    /// Maximum blocks of a large request.
    pub large_blocks_max: u64,
    /// Percentage of large requests.
    pub large_percent: u64,
    /// Percentage of requests to a hot eighth of the blocks.
    pub hot_percent: u64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            reads: 8,
            writes: 10,
            trims: 1,
            flushes: 1,
            small_blocks_max: 3,
            large_blocks_max: 24,
            large_percent: 15,
            hot_percent: 50,
        }
    }
}

impl Mix {
    /// The next request to a volume of `volume_blocks`.
    pub fn generate(&self, prng: &mut Prng, volume_blocks: u64) -> Request {
        let choice = prng.below(self.reads + self.writes + self.trims + self.flushes);
        let (start, blocks) = self.range(prng, volume_blocks);
        if choice < self.reads {
            return Request::Read { start, blocks };
        }
        if choice < self.reads + self.writes {
            return Request::Write { start, blocks };
        }
        if choice >= self.reads + self.writes + self.trims {
            return Request::Flush;
        }
        if prng.chance(1, 3) {
            return Request::Zero { start, blocks };
        }
        // Ranges may overlap, and come in any order.
        let mut ranges = vec![(start, blocks)];
        while prng.chance(1, 3) && ranges.len() < 4 {
            ranges.push(self.range(prng, volume_blocks));
        }
        Request::Trim(ranges)
    }

    fn range(&self, prng: &mut Prng, volume_blocks: u64) -> (u64, u64) {
        let is_large = prng.chance(self.large_percent, 100);
        let most = if is_large { self.large_blocks_max } else { self.small_blocks_max };
        let area = if prng.chance(self.hot_percent, 100) { volume_blocks.div_ceil(8) } else { volume_blocks };
        let blocks = (1 + prng.below(most.max(1))).min(area);
        (prng.below(area - blocks + 1), blocks)
    }
}
