//! Levels of volumes, and the member failures each tolerates.

use std::collections::BTreeSet;
use std::str::FromStr;

/// The redundancy level of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The value of `zonda volume create --level`.
    name: &'static str,
    members: usize,
    parity: usize,
}

/// Names of this program, and the levels: small volumes, so that most faults affect all members.
const LEVELS: [(&str, Level); 8] = [
    ("single", Level { name: "0", members: 1, parity: 0 }),
    ("raid0", Level { name: "0", members: 3, parity: 0 }),
    ("raid1", Level { name: "1", members: 2, parity: 1 }),
    ("raid1-3", Level { name: "1", members: 3, parity: 2 }),
    ("raid01", Level { name: "01", members: 4, parity: 1 }),
    ("raid4", Level { name: "4", members: 4, parity: 1 }),
    ("raid5", Level { name: "5", members: 4, parity: 1 }),
    ("raid6", Level { name: "6", members: 5, parity: 2 }),
];

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        let level = LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| *level);
        level.ok_or_else(|| format!("levels are {}", LEVELS.map(|(name, _)| name).join(", ")))
    }
}

impl Level {
    /// The value of `--level`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number of members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members
    }

    /// Whether all data are readable without these members. RAID 01 counts as the number that it
    /// can lose in any case.
    #[must_use]
    pub fn tolerates(&self, degraded: &BTreeSet<usize>) -> bool {
        degraded.len() <= self.parity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_tolerates_as_many_members_as_it_has_parity() {
        for (name, tolerated) in
            [("single", 0), ("raid1", 1), ("raid1-3", 2), ("raid01", 1), ("raid5", 1), ("raid6", 2)]
        {
            let level: Level = name.parse().unwrap();
            assert!(level.tolerates(&(0..tolerated).collect()), "{name}");
            assert!(!level.tolerates(&(0..=tolerated).collect()), "{name}");
        }
        assert!("raid7".parse::<Level>().unwrap_err().contains("raid1-3"));
    }
}
