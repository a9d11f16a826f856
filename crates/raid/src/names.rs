//! Parsing and formatting of levels and schemes.

use std::fmt;
use std::str::FromStr;

use crate::config::{Level, Scheme};
use crate::error::VolumeError;

/// The names of each level; the first one is displayed.
const NAMES: [(Level, &[&str]); 7] = [
    (Level::Raid0, &["0", "raid0"]),
    (Level::Raid1, &["1", "raid1"]),
    (Level::Raid01, &["01", "raid01", "0+1"]),
    (Level::Raid4, &["4", "raid4"]),
    (Level::Raid5, &["5", "raid5"]),
    (Level::Raid6, &["6", "raid6"]),
    (Level::ReedSolomon, &["k+m", "rs"]),
];

impl FromStr for Level {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Level, VolumeError> {
        let found = NAMES.iter().find(|(_, names)| names.contains(&text));
        found.map(|(level, _)| *level).ok_or_else(|| {
            VolumeError::Config(format!(
                "unknown level \"{text}\"; expected 0, 1, 01, 4, 5, 6 or k+m (literally, with --parity M)"
            ))
        })
    }
}

impl fmt::Display for Level {
    /// `RAID 5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(level, _)| level == self).map_or("", |(_, names)| names[0]);
        if *self == Level::ReedSolomon { f.write_str("Reed-Solomon") } else { write!(f, "RAID {name}") }
    }
}

impl fmt::Display for Scheme {
    /// `RAID 5 (3+1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}+{})", self.level, self.data, self.parity)
    }
}

impl Scheme {
    /// The scheme for a level over this many members. The default level is RAID 0 for one member,
    /// RAID 1 for two, RAID 5 for more. `parity` sets the number of parity members or copies, where
    /// the level leaves a choice.
    ///
    /// If the level needs another number of members.
    /// When the level needs another number of members, and how many.
    pub fn over(members: usize, level: Option<Level>, parity: Option<u8>) -> Result<Scheme, VolumeError> {
        let refuse = |remedy: String| Err(VolumeError::Config(remedy));
        let Ok(count) = u8::try_from(members) else {
            return refuse(format!(
                "{members} members are too many; a volume has at most {}",
                crate::limits::MEMBERS_MAX
            ));
        };
        let level = level.unwrap_or(match (count, parity) {
            (0 | 1, None) => Level::Raid0,
            (2, None) => Level::Raid1,
            (_, None | Some(1)) => Level::Raid5,
            (_, Some(0)) => Level::Raid0,
            (_, Some(_)) => Level::ReedSolomon,
        });
        let least = match level {
            Level::Raid0 => 1,
            Level::Raid1 | Level::Raid01 | Level::ReedSolomon => 2,
            Level::Raid4 | Level::Raid5 => 3,
            Level::Raid6 => 4,
        };
        if count < least {
            return refuse(format!("{level} needs at least {least} members, not {count}"));
        }
        let own = match level {
            Level::Raid0 => 0,
            Level::Raid1 => count - 1,
            Level::Raid01 if count % 2 == 1 => {
                return refuse(format!("RAID 01 needs an even number of members, not {count}"));
            }
            Level::Raid01 => count / 2,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::ReedSolomon => parity.unwrap_or(1),
        };
        match parity {
            Some(wanted) if wanted != own => refuse(format!(
                "{level} over {count} members has {own} {} in each stripe, not {wanted}; omit --parity, or choose level k+m",
                match (level, own) {
                    (Level::Raid1 | Level::Raid01, 1) => "additional copy",
                    (Level::Raid1 | Level::Raid01, _) => "additional copies",
                    (_, 1) => "parity chunk",
                    _ => "parity chunks",
                }
            )),
            _ if own >= count => refuse(format!("with {own} of {count} members for parity none is left for data")),
            _ => Ok(Scheme { level, data: count - own, parity: own }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_written_as_it_is_shown() {
        for (level, names) in NAMES {
            for name in names {
                assert_eq!(name.parse(), Ok(level));
            }
        }
        assert!("7".parse::<Level>().is_err());
        assert_eq!(Scheme::raid5(3).to_string(), "RAID 5 (3+1)");
    }

    #[test]
    fn members_make_a_scheme() {
        let over = |members, level: &str, parity| {
            let level = (!level.is_empty()).then(|| level.parse().expect("it is one"));
            Scheme::over(members, level, parity).map(|scheme| (scheme.level, scheme.data, scheme.parity))
        };
        assert_eq!(over(1, "", None), Ok((Level::Raid0, 1, 0)));
        assert_eq!(over(2, "", None), Ok((Level::Raid1, 1, 1)));
        assert_eq!(over(4, "", None), Ok((Level::Raid5, 3, 1)));
        assert_eq!(over(6, "", Some(2)), Ok((Level::ReedSolomon, 4, 2)));
        assert_eq!(over(3, "1", None), Ok((Level::Raid1, 1, 2)));
        assert_eq!(over(4, "01", None), Ok((Level::Raid01, 2, 2)));
        assert_eq!(over(14, "k+m", Some(4)), Ok((Level::ReedSolomon, 10, 4)));
        for (members, level, parity) in
            [(2, "5", None), (3, "01", None), (4, "6", Some(1)), (3, "k+m", Some(3)), (0, "", None)]
        {
            let error = over(members, level, parity).expect_err("it cannot be").to_string();
            assert!(error.contains("member"), "{error}");
        }
    }
}
