//! A simple reference implementation of reservations (NVMe Base 2.0, sections 7.2 to 7.5 and 8.19).
//!
//! It shares no code with the target. Hosts are numbers; types and actions are their NVMe codes.

use std::collections::BTreeMap;
use std::fmt;

/// Registrants and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    /// GEN.
    pub(super) generation: u32,
    /// The key of each registrant.
    pub(super) keys: BTreeMap<usize, u64>,
    /// RTYPE, and the host that acquired it. With types 5 and 6 every registrant is a holder, and
    /// the host is zero without meaning.
    pub(super) held: Option<(u8, usize)>,
    /// PTPL.
    pub(super) persists: bool,
}

/// A request of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
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

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Response {
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

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}, ", self.generation)?;
        match self.held {
            None => write!(f, "no reservation")?,
            Some((kind @ (5 | 6), _)) => write!(f, "reservation type {kind} of all registrants")?,
            Some((kind, host)) => write!(f, "reservation type {kind} of host {host}")?,
        }
        for (host, key) in &self.keys {
            write!(f, ", host {host} with key {key}")?;
        }
        write!(f, ", PTPL {}", u8::from(self.persists))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Register { action, ignores_key, persist, current, new } => {
                let action = ["register", "unregister", "replace"][usize::from(*action)];
                let ignored = if *ignores_key { " (ignored)" } else { "" };
                write!(f, "{action} with key {current}{ignored}, new key {new}, CPTPL {persist}")
            }
            Request::Acquire { action, kind, current, preempted } => {
                let action = ["acquire", "preempt", "preempt and abort"][usize::from(*action)];
                write!(f, "{action} type {kind} with key {current}, preempted key {preempted}")
            }
            Request::Release { action, kind, current } => {
                let action = ["release", "clear"][usize::from(*action)];
                write!(f, "{action} type {kind} with key {current}")
            }
            Request::Report => write!(f, "report"),
            Request::Persist(persists) => write!(f, "set PTPL {}", u8::from(*persists)),
            Request::Read => write!(f, "read"),
            Request::Write => write!(f, "write"),
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Response::Success => write!(f, "success"),
            Response::Conflict => write!(f, "reservation conflict"),
            Response::Invalid => write!(f, "invalid field in command"),
            Response::WriteFault => write!(f, "write fault"),
            Response::Report { generation, kind, persists, registrants } => {
                write!(f, "a report of generation {generation}, type {kind}, PTPL {}", u8::from(*persists))?;
                for (host, (key, is_holder)) in registrants {
                    write!(f, ", host {host} with key {key}{}", if *is_holder { " (holder)" } else { "" })?;
                }
                Ok(())
            }
            Response::Other(status) => write!(f, "{status}"),
        }
    }
}

/// The access that a reservation of each type permits to the holder, to other registrants, and to
/// all other hosts (Figure 486): `r` read, `w` write.
const PERMITTED: [(u8, [&str; 3]); 6] = [
    (1, ["rw", "r", "r"]),
    (2, ["rw", "", ""]),
    (3, ["rw", "rw", "r"]),
    (4, ["rw", "rw", ""]),
    (5, ["rw", "rw", "r"]),
    (6, ["rw", "rw", ""]),
];

impl State {
    /// The state after a power loss.
    pub(super) fn after_power_loss(&self) -> State {
        if self.persists { self.clone() } else { State::default() }
    }

    /// Executes a command of a host: the next state, and the response. `keeps` is whether
    /// reservations can persist.
    pub(super) fn after(&self, host: usize, request: Request, keeps: bool) -> (State, Response) {
        let mut next = self.clone();
        let answer = match request {
            Request::Register { .. } => next.register(host, request, keeps),
            Request::Acquire { .. } => next.acquire(host, request),
            Request::Release { .. } => next.release(host, request),
            Request::Report => self.report(),
            Request::Persist(_) if !keeps => Response::Invalid,
            Request::Persist(persists) => {
                next.persists = persists;
                Response::Success
            }
            Request::Read => self.access(host, 'r'),
            Request::Write => self.access(host, 'w'),
        };
        if answer == Response::Success { (next, answer) } else { (self.clone(), answer) }
    }

    fn is_holder(&self, host: usize) -> bool {
        match self.held {
            None => false,
            Some((5 | 6, _)) => self.keys.contains_key(&host),
            Some((_, holder)) => holder == host,
        }
    }

    fn access(&self, host: usize, how: char) -> Response {
        let Some((kind, _)) = self.held else { return Response::Success };
        let (_, columns) = PERMITTED[usize::from(kind) - 1];
        let column = match host {
            _ if self.is_holder(host) => 0,
            _ if self.keys.contains_key(&host) => 1,
            _ => 2,
        };
        if columns[column].contains(how) { Response::Success } else { Response::Conflict }
    }

    fn report(&self) -> Response {
        Response::Report {
            generation: self.generation,
            kind: self.held.map_or(0, |(kind, _)| kind),
            persists: self.persists,
            registrants: self.keys.iter().map(|(&host, &key)| (host, (key, self.is_holder(host)))).collect(),
        }
    }

    fn register(&mut self, host: usize, request: Request, keeps: bool) -> Response {
        let Request::Register { action, ignores_key, persist, current, new } = request else {
            unreachable!("a Register")
        };
        if persist == 3 && !keeps {
            return Response::Invalid;
        }
        let own = self.keys.get(&host).copied();
        let is_allowed = own.is_some() && (ignores_key || own == Some(current));
        match action {
            0 | 2 if new == 0 => return Response::Invalid,
            0 if own.is_some_and(|own| own != new) => return Response::Conflict,
            1 | 2 if !is_allowed => return Response::Conflict,
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
        Response::Success
    }

    /// Removes a registration, and the reservation with the registration of its last holder.
    fn unregister(&mut self, host: usize) {
        let held = self.is_holder(host);
        self.keys.remove(&host);
        let is_shared = matches!(self.held, Some((5 | 6, _)));
        if held && (!is_shared || self.keys.is_empty()) {
            self.held = None;
        }
    }

    fn acquire(&mut self, host: usize, request: Request) -> Response {
        let Request::Acquire { action, kind, current, preempted } = request else { unreachable!("an Acquire") };
        if self.keys.get(&host) != Some(&current) {
            return Response::Conflict;
        }
        let new = Some((kind, if kind >= 5 { 0 } else { host }));
        if action == 0 {
            return match self.held {
                None => {
                    self.held = new;
                    Response::Success
                }
                Some((of, _)) if of == kind && self.is_holder(host) => Response::Success,
                Some(_) => Response::Conflict,
            };
        }
        // A preemption of the holder, by its key; key zero preempts all holders of an All
        // Registrants reservation.
        let is_of_holder = match self.held {
            None => false,
            Some((5 | 6, _)) => preempted == 0,
            Some((_, holder)) => self.keys[&holder] == preempted,
        };
        if is_of_holder {
            self.keys.retain(|&other, &mut key| other == host || (preempted != 0 && key != preempted));
            self.held = new;
        } else if preempted == 0 {
            return Response::Invalid;
        } else {
            let removed: Vec<usize> =
                self.keys.iter().filter(|(_, key)| **key == preempted).map(|(&other, _)| other).collect();
            if removed.is_empty() {
                return Response::Conflict;
            }
            removed.into_iter().for_each(|other| self.unregister(other));
        }
        self.generation += 1;
        Response::Success
    }

    fn release(&mut self, host: usize, request: Request) -> Response {
        let Request::Release { action, kind, current } = request else { unreachable!("a Release") };
        if self.keys.get(&host) != Some(&current) {
            return Response::Conflict;
        }
        if action == 1 {
            self.keys.clear();
            self.held = None;
            self.generation += 1;
            return Response::Success;
        }
        match self.held {
            Some((of, _)) if self.is_holder(host) && of != kind => Response::Invalid,
            Some(_) if self.is_holder(host) => {
                self.held = None;
                Response::Success
            }
            _ => Response::Success,
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
    fn a_reservation_permits_the_access_of_its_type() {
        let is_permitted = |kind, host, request| with(kind).after(host, request, true).1 == Response::Success;
        let table = (1..=6).map(|kind| {
            [0, 1, 2].map(|host| (is_permitted(kind, host, Request::Read), is_permitted(kind, host, Request::Write)))
        });
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
    fn preempting_the_holder_takes_the_reservation_and_preempting_others_removes_their_registrations() {
        let preempt = |preempted| Request::Acquire { action: 1, kind: 1, current: 2, preempted };
        let (taken, answer) = with(2).after(1, preempt(1), true);
        assert_eq!((answer, taken.held, taken.keys), (Response::Success, Some((1, 1)), BTreeMap::from([(1, 2)])));
        let (own, answer) = with(2).after(1, preempt(2), true);
        assert_eq!((answer, own.held, own.keys), (Response::Success, Some((2, 0)), BTreeMap::from([(0, 1)])));
        assert_eq!(with(2).after(1, preempt(0), true).1, Response::Invalid);
        assert_eq!(with(2).after(1, preempt(9), true).1, Response::Conflict);
        assert_eq!(with(6).after(1, preempt(0), true).0.keys, BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn a_power_loss_leaves_the_persistent_state() {
        let persists = State { persists: true, ..with(1) };
        assert_eq!((persists.after_power_loss(), with(1).after_power_loss()), (persists, State::default()));
    }
}
