//! What survives a power failure.

use std::fmt;
use std::str::FromStr;

use super::media::Media;
use super::testbed::Point;

/// When the power fails, and what survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// When all commands have completed.
    End,
    /// No power failure: damage is scrubbed when all commands have completed.
    Scrub,
    /// In the last operation, after this many commands of members.
    At(usize, CutKind),
}

/// What survives of commands in flight and of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutKind {
    /// Nothing of commands in flight, and all of the caches.
    Nothing,
    /// The first commands in flight, this many.
    Prefix(usize),
    /// The same, and the first block of the next command.
    Torn(usize),
    /// All commands in flight of one member.
    Only(usize),
    /// All commands in flight but those of one member.
    But(usize),
    /// All members revert to their last flush.
    Flushed,
    /// A member reverts to its state this many commands after its last flush.
    Back(usize, usize),
    /// All members but one revert to their last flush.
    FlushedBut(usize),
    /// A zone of a member reverts to its last flush.
    Zone(usize, u32),
}

impl CutKind {
    /// All kinds of power failures at this moment.
    pub(super) fn all(point: &Point) -> Vec<CutKind> {
        let mut kinds = vec![CutKind::Nothing];
        let members = point.media.len();
        let in_flight = point.in_flight.len();
        kinds.extend((1..=in_flight).map(CutKind::Prefix));
        kinds.extend((0..in_flight).filter(|&at| point.in_flight[at].1.operation.blocks().0 > 1).map(CutKind::Torn));
        if in_flight > 1 {
            kinds.extend((0..members).flat_map(|at| [CutKind::Only(at), CutKind::But(at)]));
        }
        if point.unflushed.iter().any(|states| states.len() > 1) {
            kinds.push(CutKind::Flushed);
            kinds.extend((0..members).map(CutKind::FlushedBut));
        }
        for (at, states) in point.unflushed.iter().enumerate() {
            kinds.extend((0..states.len().saturating_sub(1)).map(|back| CutKind::Back(at, back)));
            if states.len() > 2 {
                kinds.extend(states[0].zones_unlike(&point.media[at]).into_iter().map(|zone| CutKind::Zone(at, zone)));
            }
        }
        kinds
    }

    /// The media after the power failure.
    pub(super) fn surviving_media(self, point: &Point) -> Option<Vec<Media>> {
        let mut media = point.media.clone();
        let states = |member: usize| point.unflushed.get(member);
        match self {
            CutKind::Nothing => {}
            CutKind::Prefix(count) => take_effect(&mut media, point, |at, _| at < count),
            CutKind::Torn(count) => {
                take_effect(&mut media, point, |at, _| at < count);
                let (member, command) = point.in_flight.get(count)?;
                media[*member].execute_first_block(command);
            }
            CutKind::Only(member) => take_effect(&mut media, point, |_, at| at == member),
            CutKind::But(member) => take_effect(&mut media, point, |_, at| at != member),
            CutKind::Flushed => {
                media = point.unflushed.iter().map(|states| states[0].clone()).collect();
            }
            CutKind::FlushedBut(member) => {
                media = point.unflushed.iter().map(|states| states[0].clone()).collect();
                *media.get_mut(member)? = point.media[member].clone();
            }
            CutKind::Back(member, back) => *media.get_mut(member)? = states(member)?.get(back)?.clone(),
            CutKind::Zone(member, zone) => media.get_mut(member)?.copy_zone(&states(member)?[0], zone),
        }
        // Not more zones are active than allowed.
        (media.len() == point.media.len() && media.iter().all(Media::is_possible)).then_some(())?;
        media.iter_mut().for_each(Media::power_cycle);
        Some(media)
    }

    /// A word for the group of this kind.
    pub(super) fn group(self) -> &'static str {
        match self {
            CutKind::Nothing | CutKind::Prefix(_) | CutKind::Only(_) | CutKind::But(_) => "crash",
            CutKind::Torn(_) => "torn",
            CutKind::Flushed | CutKind::Back(..) | CutKind::FlushedBut(_) | CutKind::Zone(..) => "cache lost",
        }
    }
}

fn take_effect(media: &mut [Media], point: &Point, does: impl Fn(usize, usize) -> bool) {
    for (at, (member, command)) in point.in_flight.iter().enumerate() {
        if does(at, *member) {
            media[*member].execute(command);
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, kind) = match self {
            Cut::End => return f.write_str("end"),
            Cut::Scrub => return f.write_str("scrub"),
            Cut::At(at, kind) => (at, kind),
        };
        write!(f, "crash {at}")?;
        match kind {
            CutKind::Nothing => Ok(()),
            CutKind::Prefix(count) => write!(f, " prefix {count}"),
            CutKind::Torn(count) => write!(f, " torn {count}"),
            CutKind::Only(member) => write!(f, " only {member}"),
            CutKind::But(member) => write!(f, " but {member}"),
            CutKind::Flushed => f.write_str(" flushed"),
            CutKind::FlushedBut(member) => write!(f, " flushedbut {member}"),
            CutKind::Back(member, back) => write!(f, " back {member} {back}"),
            CutKind::Zone(member, zone) => write!(f, " zone {member} {zone}"),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().map_err(|_| format!("\"{word}\" in \"{text}\" is not a number"));
        let (at, kind) = match words[..] {
            ["end"] => return Ok(Cut::End),
            ["scrub"] => return Ok(Cut::Scrub),
            ["crash", at] => (at, CutKind::Nothing),
            ["crash", at, "prefix", count] => (at, CutKind::Prefix(number(count)?)),
            ["crash", at, "torn", count] => (at, CutKind::Torn(number(count)?)),
            ["crash", at, "only", member] => (at, CutKind::Only(number(member)?)),
            ["crash", at, "but", member] => (at, CutKind::But(number(member)?)),
            ["crash", at, "flushed"] => (at, CutKind::Flushed),
            ["crash", at, "flushedbut", member] => (at, CutKind::FlushedBut(number(member)?)),
            ["crash", at, "back", member, back] => (at, CutKind::Back(number(member)?, number(back)?)),
            ["crash", at, "zone", member, zone] => (at, CutKind::Zone(number(member)?, number(zone)? as u32)),
            _ => return Err(format!("unknown power failure \"{text}\"; expected end, crash 17 or crash 17 prefix 2")),
        };
        Ok(Cut::At(number(at)?, kind))
    }
}
