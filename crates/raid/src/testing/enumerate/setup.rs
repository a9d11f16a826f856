//! The smallest volumes.

use std::fmt;
use std::str::FromStr;

use zonda_zoned::{Blocks, Geometry};

use crate::{Level, METADATA_BYTES, Scheme, SeededBug, StreamShape, VolumeConfig};

/// Blocks of the volume.
pub(super) const VOLUME_BLOCKS: u64 = 5;
/// Levels by name, each with the minimum number of members.
const LEVELS: [(&str, Scheme); 6] = [
    ("single", Scheme { level: Level::Raid0, data: 1, parity: 0 }),
    ("raid0", Scheme { level: Level::Raid0, data: 2, parity: 0 }),
    ("raid1", Scheme { level: Level::Raid1, data: 1, parity: 1 }),
    ("raid5", Scheme { level: Level::Raid5, data: 2, parity: 1 }),
    ("raid6", Scheme { level: Level::Raid6, data: 2, parity: 2 }),
    ("raid10", Scheme { level: Level::Raid01, data: 2, parity: 2 }),
];

/// A small volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    level: usize,
    /// Whether members have no metadata bytes, so that the volume stores metadata in blocks.
    pub is_in_band: bool,
    /// Stripes of a group.
    pub group_stripes: u32,
    /// Whether members have volatile caches that a power failure discards.
    pub is_cache_volatile: bool,
    /// A seeded bug, to check whether it is found. Names do not include it.
    pub(super) bug: Option<SeededBug>,
    /// Whether mounts are given the newest epoch.
    pub(super) knows_epoch: bool,
    /// Whether mounts accept losses.
    pub(super) accepts_losses: bool,
}

impl Setup {
    /// All levels with metadata out of band and in band, members with power loss protection and
    /// without, and groups of these sizes.
    #[must_use]
    pub fn all(groups: &[u32]) -> Vec<Setup> {
        let mut all = Vec::new();
        for level in 0..LEVELS.len() {
            for is_in_band in [false, true] {
                for &group_stripes in groups {
                    for is_cache_volatile in [false, true] {
                        all.push(Setup::of(level, is_in_band, group_stripes, is_cache_volatile));
                    }
                }
            }
        }
        all
    }

    fn of(level: usize, is_in_band: bool, group_stripes: u32, is_cache_volatile: bool) -> Setup {
        let (knows_epoch, accepts_losses) = (true, false);
        Setup { level, is_in_band, group_stripes, is_cache_volatile, bug: None, knows_epoch, accepts_losses }
    }

    /// Whether all blocks can be computed from these members, as bits.
    pub(super) fn are_enough(&self, members: u32) -> bool {
        let Scheme { level, data, .. } = self.scheme();
        match level {
            Level::Raid01 => (0..data).all(|at| members >> at & 1 == 1 || members >> (at + data) & 1 == 1),
            _ => members.count_ones() >= u32::from(data),
        }
    }

    /// The same with a seeded bug.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bug(self, bug: SeededBug) -> Setup {
        Setup { bug: Some(bug), ..self }
    }

    /// The same setup, mounted without a known epoch.
    pub(super) fn without_known_epoch(self) -> Setup {
        Setup { knows_epoch: false, ..self }
    }

    /// The same setup, mounted with losses accepted.
    pub(super) fn accepting_losses(self) -> Setup {
        Setup { accepts_losses: true, ..self }
    }

    /// Its redundancy scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        LEVELS[self.level].1
    }

    /// The name of its level.
    #[must_use]
    pub fn level(&self) -> &'static str {
        LEVELS[self.level].0
    }

    /// The number of arbitrary members that it can lose.
    #[must_use]
    pub fn tolerates(&self) -> u32 {
        match self.scheme().level {
            Level::Raid01 => 1,
            _ => u32::from(self.scheme().parity),
        }
    }

    pub(super) fn config(&self) -> VolumeConfig {
        let mut config = VolumeConfig::new("enumerated", self.scheme());
        let unit_blocks = if self.is_in_band { 2 } else { 1 };
        config.small = StreamShape { unit_blocks, group_stripes: self.group_stripes };
        config.large = config.small;
        config.volume_blocks = Some(VOLUME_BLOCKS);
        config.tuning.large_segments = 0;
        config.tuning.scrub_blocks_per_second = None;
        config.tuning.is_cache_volatile = self.is_cache_volatile;
        config
    }

    /// A few stripes fill a zone.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            metadata_bytes: if self.is_in_band { 0 } else { METADATA_BYTES as u16 },
            zone_size_blocks: Blocks(8),
            zone_capacity_blocks: Blocks(if self.is_in_band { 8 } else { 6 }),
            zone_count: 14,
            max_active_zones: Some(5),
            max_open_zones: Some(5),
            descriptor_extension_bytes: 0,
            ..Geometry::tiny()
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metadata = if self.is_in_band { "inband" } else { "oob" };
        let cache = if self.is_cache_volatile { "volatile" } else { "plp" };
        write!(f, "{}/{metadata}/g{}/{cache}", self.level(), self.group_stripes)
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Setup, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [level, metadata, group, cache] = parts[..] else {
            return Err(format!("\"{text}\" is not level/metadata/group/cache, for example raid5/oob/g1/plp"));
        };
        let level = LEVELS.iter().position(|(name, _)| *name == level).ok_or(format!("unknown level \"{level}\""))?;
        let group = group.strip_prefix('g').and_then(|group| group.parse().ok()).filter(|&group| group > 0);
        let group = group.ok_or(format!("\"{text}\" has no group, for example g1"))?;
        Ok(Setup::of(level, one_of(metadata, ["oob", "inband"])?, group, one_of(cache, ["plp", "volatile"])?))
    }
}

/// Whether it is the second of two words.
fn one_of(word: &str, words: [&str; 2]) -> Result<bool, String> {
    let at = words.iter().position(|&other| other == word);
    at.map(|at| at == 1).ok_or(format!("\"{word}\" is neither {} nor {}", words[0], words[1]))
}
