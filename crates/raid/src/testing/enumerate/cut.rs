//! What a loss of power leaves on the members.

use std::fmt;
use std::str::FromStr;

use super::media::Media;
use super::testbed::Point;

/// Where the power fails, and what that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// When everything has ended.
    End,
    /// It does not: what is damaged is scrubbed when everything has ended.
    Scrub,
    /// In the last operation, after so many commands of members.
    At(usize, Way),
}

/// What is left of commands that have not ended, and of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing of commands in flight, and everything of caches.
    Nothing,
    /// The first commands in flight, so many.
    Prefix(usize),
    /// The same, and the first block of the next one.
    Torn(usize),
    /// All commands in flight of one member.
    Only(usize),
    /// All commands in flight but those of one member.
    But(usize),
    /// All members are as they were at their last flush.
    Flushed,
    /// One member is as it was so many commands after its last flush.
    Back(usize, usize),
    /// All members but one are as they were at their last flush.
    FlushedBut(usize),
    /// A zone of a member is as it was at its last flush.
    Zone(usize, u32),
}

impl Way {
    /// All ways in which the power may fail at this moment.
    pub(super) fn all(point: &Point) -> Vec<Way> {
        let mut ways = vec![Way::Nothing];
        let members = point.media.len();
        let in_flight = point.in_flight.len();
        ways.extend((1..=in_flight).map(Way::Prefix));
        ways.extend((0..in_flight).filter(|&at| point.in_flight[at].1.operation.blocks().0 > 1).map(Way::Torn));
        if in_flight > 1 {
            ways.extend((0..members).flat_map(|at| [Way::Only(at), Way::But(at)]));
        }
        if point.unflushed.iter().any(|states| states.len() > 1) {
            ways.push(Way::Flushed);
            ways.extend((0..members).map(Way::FlushedBut));
        }
        for (at, states) in point.unflushed.iter().enumerate() {
            ways.extend((0..states.len().saturating_sub(1)).map(|back| Way::Back(at, back)));
            if states.len() > 2 {
                ways.extend(states[0].zones_unlike(&point.media[at]).into_iter().map(|zone| Way::Zone(at, zone)));
            }
        }
        ways
    }

    /// What is left on the members.
    pub(super) fn leaves(self, point: &Point) -> Option<Vec<Media>> {
        let mut media = point.media.clone();
        let states = |member: usize| point.unflushed.get(member);
        match self {
            Way::Nothing => {}
            Way::Prefix(count) => take_effect(&mut media, point, |at, _| at < count),
            Way::Torn(count) => {
                take_effect(&mut media, point, |at, _| at < count);
                let (member, command) = point.in_flight.get(count)?;
                media[*member].execute_first_block(command);
            }
            Way::Only(member) => take_effect(&mut media, point, |_, at| at == member),
            Way::But(member) => take_effect(&mut media, point, |_, at| at != member),
            Way::Flushed => {
                media = point.unflushed.iter().map(|states| states[0].clone()).collect();
            }
            Way::FlushedBut(member) => {
                media = point.unflushed.iter().map(|states| states[0].clone()).collect();
                *media.get_mut(member)? = point.media[member].clone();
            }
            Way::Back(member, back) => *media.get_mut(member)? = states(member)?.get(back)?.clone(),
            Way::Zone(member, zone) => media.get_mut(member)?.copy_zone(&states(member)?[0], zone),
        }
        // No more zones are active than may be.
        (media.len() == point.media.len() && media.iter().all(Media::is_possible)).then_some(())?;
        media.iter_mut().for_each(Media::power_cycle);
        Some(media)
    }

    /// A word for what kind of loss it is.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Way::Nothing | Way::Prefix(_) | Way::Only(_) | Way::But(_) => "crash",
            Way::Torn(_) => "torn",
            Way::Flushed | Way::Back(..) | Way::FlushedBut(_) | Way::Zone(..) => "cache lost",
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
        let (at, way) = match self {
            Cut::End => return f.write_str("end"),
            Cut::Scrub => return f.write_str("scrub"),
            Cut::At(at, way) => (at, way),
        };
        write!(f, "crash {at}")?;
        match way {
            Way::Nothing => Ok(()),
            Way::Prefix(count) => write!(f, " prefix {count}"),
            Way::Torn(count) => write!(f, " torn {count}"),
            Way::Only(member) => write!(f, " only {member}"),
            Way::But(member) => write!(f, " but {member}"),
            Way::Flushed => f.write_str(" flushed"),
            Way::FlushedBut(member) => write!(f, " flushedbut {member}"),
            Way::Back(member, back) => write!(f, " back {member} {back}"),
            Way::Zone(member, zone) => write!(f, " zone {member} {zone}"),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().map_err(|_| format!("\"{word}\" is no number in \"{text}\""));
        let (at, way) = match words[..] {
            ["end"] => return Ok(Cut::End),
            ["scrub"] => return Ok(Cut::Scrub),
            ["crash", at] => (at, Way::Nothing),
            ["crash", at, "prefix", count] => (at, Way::Prefix(number(count)?)),
            ["crash", at, "torn", count] => (at, Way::Torn(number(count)?)),
            ["crash", at, "only", member] => (at, Way::Only(number(member)?)),
            ["crash", at, "but", member] => (at, Way::But(number(member)?)),
            ["crash", at, "flushed"] => (at, Way::Flushed),
            ["crash", at, "flushedbut", member] => (at, Way::FlushedBut(number(member)?)),
            ["crash", at, "back", member, back] => (at, Way::Back(number(member)?, number(back)?)),
            ["crash", at, "zone", member, zone] => (at, Way::Zone(number(member)?, number(zone)? as u32)),
            _ => return Err(format!("no cut \"{text}\": end, crash 17, crash 17 prefix 2")),
        };
        Ok(Cut::At(number(at)?, way))
    }
}
