//! Faults of members when a volume is mounted.

use std::fmt;
use std::str::FromStr;

use zonda_zoned::Lba;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A block of a member is damaged.
    Block {
        /// The member.
        member: usize,
        /// The block.
        lba: Lba,
        /// The kind of damage.
        damage: Damage,
    },
    /// A zone of a member is offline.
    Zone {
        /// The member.
        member: usize,
        /// The zone.
        zone: u32,
    },
    /// These members, as bits, are absent; the volume is mounted without them and written to; then
    /// they return.
    Absent(u32),
    /// The first members are absent, the volume is mounted without them and written to; then they
    /// return, and the second ones are absent.
    Swapped(u32, u32),
    /// Split brain: the volume is mounted without the first members and written to, and its earlier
    /// state without the second ones; then all are mounted together. The caller does not know the
    /// newest epoch.
    Split(u32, u32),
}

/// How a block is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// A bit of its first byte is flipped.
    Data,
    /// A bit of its metadata is flipped.
    Metadata,
    /// A bit in the middle of its data is flipped, and one of its metadata, if it has any.
    Both,
    /// It cannot be read.
    Unreadable,
}

impl Damage {
    /// The kinds of damage to blocks of a member.
    #[must_use]
    pub fn all(has_metadata: bool) -> &'static [Damage] {
        const ALL: [Damage; 4] = [Damage::Data, Damage::Both, Damage::Unreadable, Damage::Metadata];
        if has_metadata { &ALL } else { &ALL[..3] }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Damage::Data => "data",
            Damage::Metadata => "metadata",
            Damage::Both => "both",
            Damage::Unreadable => "unreadable",
        }
    }
}

impl Fault {
    /// The members that it affects, as bits.
    #[must_use]
    pub fn members(&self) -> u32 {
        match *self {
            Fault::Block { member, .. } | Fault::Zone { member, .. } => 1 << member,
            Fault::Absent(members) => members,
            Fault::Swapped(first, second) | Fault::Split(first, second) => first | second,
        }
    }
}

/// Members as a list.
pub(super) fn places(bits: u32) -> String {
    let places = (0..u32::BITS).filter(|at| bits >> at & 1 == 1).map(|at| at.to_string());
    places.collect::<Vec<_>>().join("+")
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Block { member, lba, damage } => write!(f, "flip {member}:{} {}", lba.0, damage.name()),
            Fault::Zone { member, zone } => write!(f, "offline {member}:{zone}"),
            Fault::Absent(members) => write!(f, "absent {}", places(*members)),
            Fault::Swapped(first, second) => write!(f, "swapped {} {}", places(*first), places(*second)),
            Fault::Split(first, second) => write!(f, "split {} {}", places(*first), places(*second)),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let fault = match words[..] {
            ["flip", place, damage] => block(place, damage),
            ["offline", place] => zone(place),
            ["absent", members] => bits(members).map(Fault::Absent),
            ["swapped", first, second] => bits(first).zip(bits(second)).map(|(a, b)| Fault::Swapped(a, b)),
            ["split", first, second] => bits(first).zip(bits(second)).map(|(a, b)| Fault::Split(a, b)),
            _ => None,
        };
        fault
            .ok_or(format!("unknown fault \"{text}\"; expected flip 2:37 data, offline 2:4, absent 0+1 or swapped 0 1"))
    }
}

fn block(place: &str, damage: &str) -> Option<Fault> {
    let (member, lba) = place.split_once(':')?;
    let damage = *Damage::all(true).iter().find(|other| other.name() == damage)?;
    Some(Fault::Block { member: member.parse().ok()?, lba: Lba(lba.parse().ok()?), damage })
}

fn zone(place: &str) -> Option<Fault> {
    let (member, zone) = place.split_once(':')?;
    Some(Fault::Zone { member: member.parse().ok()?, zone: zone.parse().ok()? })
}

fn bits(members: &str) -> Option<u32> {
    members.split('+').try_fold(0, |bits, member| {
        let member: u32 = member.parse().ok().filter(|&member| member < u32::BITS)?;
        Some(bits | 1 << member)
    })
}
