//! Reservations as the specification has them (NVMe Base 2.0, sections 7.2 to 7.5 and 8.19), slow and obvious.
//!
//! It shares no code with the target. Hosts are numbers, types and actions are the codes of the wire.

use std::collections::BTreeMap;

/// Registrants and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    /// GEN.
    pub(super) generation: u32,
    /// The key of each registrant.
    pub(super) keys: BTreeMap<usize, u64>,
    /// RTYPE, and the host that acquired it. With types 5 and 6 every registrant holds the reservation, and the host means
    /// nothing: it is zero.
    pub(super) held: Option<(u8, usize)>,
    /// PTPL.
    pub(super) persists: bool,
}

/// What a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Register {
        action: u8,
        ignores_key: bool,
        persist: u8,
        current: u64,
        new: u64,
    },
    Acquire {
        action: u8,
        kind: u8,
        current: u64,
        preempted: u64,
    },
    Release {
        action: u8,
        kind: u8,
        current: u64,
    },
    Report,
    /// Set Features: Reservation Persistence.
    Persist(bool),
    /// A command of the read group.
    Read,
    /// One of the write group.
    Write,
}

/// How that ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    Success,
    /// Reservation Conflict.
    Conflict,
    /// Invalid Field in Command.
    Invalid,
    /// The device could not make the change durable.
    WriteFault,
    /// A report: all but the controllers' identifiers.
    Report {
        generation: u32,
        kind: u8,
        persists: bool,
        /// By host: its key, and whether it holds the reservation.
        registrants: BTreeMap<usize, (u64, bool)>,
    },
    /// Any other status.
    Other(String),
}

/// What reading and writing a reservation of each type leaves to the holder, to other registrants, and to all other hosts
/// (Figure 486): `r` reads, `w` writes.
const PERMITTED: [(u8, [&str; 3]); 6] = [
    (1, ["rw", "r", "r"]),
    (2, ["rw", "", ""]),
    (3, ["rw", "rw", "r"]),
    (4, ["rw", "rw", ""]),
    (5, ["rw", "rw", "r"]),
    (6, ["rw", "rw", ""]),
];

impl State {
    /// What is left of it after a loss of power.
    pub(super) fn after_power_loss(&self) -> State {
        if self.persists { self.clone() } else { State::default() }
    }

    /// A command of a host: what follows from it, and its answer. `keeps` is whether the namespace can persist.
    pub(super) fn after(&self, host: usize, ask: Ask, keeps: bool) -> (State, Answer) {
        let mut next = self.clone();
        let answer = match ask {
            Ask::Register { .. } => next.register(host, ask, keeps),
            Ask::Acquire { .. } => next.acquire(host, ask),
            Ask::Release { .. } => next.release(host, ask),
            Ask::Report => self.report(),
            Ask::Persist(_) if !keeps => Answer::Invalid,
            Ask::Persist(persists) => {
                next.persists = persists;
                Answer::Success
            }
            Ask::Read => self.access(host, 'r'),
            Ask::Write => self.access(host, 'w'),
        };
        if answer == Answer::Success { (next, answer) } else { (self.clone(), answer) }
    }

    fn is_holder(&self, host: usize) -> bool {
        match self.held {
            None => false,
            Some((5 | 6, _)) => self.keys.contains_key(&host),
            Some((_, holder)) => holder == host,
        }
    }

    fn access(&self, host: usize, how: char) -> Answer {
        let Some((kind, _)) = self.held else { return Answer::Success };
        let (_, columns) = PERMITTED[usize::from(kind) - 1];
        let column = match host {
            _ if self.is_holder(host) => 0,
            _ if self.keys.contains_key(&host) => 1,
            _ => 2,
        };
        if columns[column].contains(how) { Answer::Success } else { Answer::Conflict }
    }

    fn report(&self) -> Answer {
        Answer::Report {
            generation: self.generation,
            kind: self.held.map_or(0, |(kind, _)| kind),
            persists: self.persists,
            registrants: self.keys.iter().map(|(&host, &key)| (host, (key, self.is_holder(host)))).collect(),
        }
    }

    fn register(&mut self, host: usize, ask: Ask, keeps: bool) -> Answer {
        let Ask::Register { action, ignores_key, persist, current, new } = ask else { unreachable!("a Register") };
        if persist == 3 && !keeps {
            return Answer::Invalid;
        }
        let own = self.keys.get(&host).copied();
        let knows = own.is_some() && (ignores_key || own == Some(current));
        match action {
            0 | 2 if new == 0 => return Answer::Invalid,
            0 if own.is_some_and(|own| own != new) => return Answer::Conflict,
            1 | 2 if !knows => return Answer::Conflict,
            0 | 2 => {
                self.keys.insert(host, new);
            }
            _ => self.unregister(host),
        }
        self.generation += 1;
        match persist {
            2 => self.persists = false,
            3 => self.persists = true,
            _ => {}
        }
        Answer::Success
    }

    /// A registration ends, and the reservation with that of its last holder.
    fn unregister(&mut self, host: usize) {
        let held = self.is_holder(host);
        self.keys.remove(&host);
        let is_shared = matches!(self.held, Some((5 | 6, _)));
        if held && (!is_shared || self.keys.is_empty()) {
            self.held = None;
        }
    }

    fn acquire(&mut self, host: usize, ask: Ask) -> Answer {
        let Ask::Acquire { action, kind, current, preempted } = ask else { unreachable!("an Acquire") };
        if self.keys.get(&host) != Some(&current) {
            return Answer::Conflict;
        }
        let new = Some((kind, if kind >= 5 { 0 } else { host }));
        if action == 0 {
            return match self.held {
                None => {
                    self.held = new;
                    Answer::Success
                }
                Some((of, _)) if of == kind && self.is_holder(host) => Answer::Success,
                Some(_) => Answer::Conflict,
            };
        }
        // A preemption of the holder, by its key; zero is the key of all who hold it together.
        let is_of_holder = match self.held {
            None => false,
            Some((5 | 6, _)) => preempted == 0,
            Some((_, holder)) => self.keys[&holder] == preempted,
        };
        if is_of_holder {
            self.keys.retain(|&other, &mut key| other == host || (preempted != 0 && key != preempted));
            self.held = new;
        } else if preempted == 0 {
            return Answer::Invalid;
        } else {
            let gone: Vec<usize> =
                self.keys.iter().filter(|(_, key)| **key == preempted).map(|(&other, _)| other).collect();
            if gone.is_empty() {
                return Answer::Conflict;
            }
            gone.into_iter().for_each(|other| self.unregister(other));
        }
        self.generation += 1;
        Answer::Success
    }

    fn release(&mut self, host: usize, ask: Ask) -> Answer {
        let Ask::Release { action, kind, current } = ask else { unreachable!("a Release") };
        if self.keys.get(&host) != Some(&current) {
            return Answer::Conflict;
        }
        if action == 1 {
            self.keys.clear();
            self.held = None;
            self.generation += 1;
            return Answer::Success;
        }
        match self.held {
            Some((of, _)) if self.is_holder(host) && of != kind => Answer::Invalid,
            Some(_) if self.is_holder(host) => {
                self.held = None;
                Answer::Success
            }
            _ => Answer::Success,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u8) -> State {
        State { keys: BTreeMap::from([(0, 1), (1, 2)]), held: Some((kind, 0)), ..State::default() }
    }

    #[test]
    fn a_reservation_leaves_to_others_what_its_type_says() {
        let may = |kind, host, ask| with(kind).after(host, ask, true).1 == Answer::Success;
        let table = (1..=6).map(|kind| [0, 1, 2].map(|host| (may(kind, host, Ask::Read), may(kind, host, Ask::Write))));
        let (all, reads, none) = ((true, true), (true, false), (false, false));
        let expected = [
            [all, reads, reads],
            [all, none, none],
            [all, all, reads],
            [all, all, none],
            [all, all, reads],
            [all, all, none],
        ];
        assert!(table.eq(expected));
    }

    #[test]
    fn a_preemption_of_the_holder_takes_the_reservation_and_one_of_others_their_registrations() {
        let preempt = |preempted| Ask::Acquire { action: 1, kind: 1, current: 2, preempted };
        let (taken, answer) = with(2).after(1, preempt(1), true);
        assert_eq!((answer, taken.held, taken.keys), (Answer::Success, Some((1, 1)), BTreeMap::from([(1, 2)])));
        let (own, answer) = with(2).after(1, preempt(2), true);
        assert_eq!((answer, own.held, own.keys), (Answer::Success, Some((2, 0)), BTreeMap::from([(0, 1)])));
        assert_eq!(with(2).after(1, preempt(0), true).1, Answer::Invalid);
        assert_eq!(with(2).after(1, preempt(9), true).1, Answer::Conflict);
        assert_eq!(with(6).after(1, preempt(0), true).0.keys, BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn a_loss_of_power_leaves_what_persists() {
        let persists = State { persists: true, ..with(1) };
        assert_eq!((persists.after_power_loss(), with(1).after_power_loss()), (persists, State::default()));
    }
}
