//! [`Claim`]: a namespace for one host alone, by an Exclusive Access reservation (NVMe Base 2.0, section 8.19).
//!
//! A claim is made before zones are looked at and before any command is taken, over every connection anew. From then on the
//! target refuses what other hosts send, reads too; and once another host has preempted this one, what this one sends.

use std::fmt;

use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_zoned::Instant;

use crate::connecting::claiming::{ask, holder_of, status_of, unregister};
use crate::procedure::Stage;
use crate::queue::Ended;
use crate::state::State;
use crate::{Initiator, QueueId};

/// What a host claims a namespace with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its key. Where a host with the same upper half has the same key or a greater one, the next greater is taken.
    pub key: ReservationKey,
    /// Whose reservation it takes over.
    pub preempts: Preempts,
}

/// Hosts whose reservation a claim takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempts {
    /// None: who comes second is refused.
    Nobody,
    /// Those whose identifier begins with these bytes: as a rule earlier lives of this one.
    HostsLike([u8; 8]),
    /// Those whose key has this upper half, and those whose identifier begins with these bytes.
    KeysLike(u32, [u8; 8]),
    /// All.
    Everybody,
}

/// A host that holds a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its identifier.
    pub host: HostId,
    /// Its key.
    pub key: ReservationKey,
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The key that this host has registered.
    pub key: ReservationKey,
    /// Who held the namespace before, and holds it no more.
    pub preempted: Option<Holder>,
}

/// The namespace is not this host's any more: commands were refused for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// Who holds it, once the target has said so, if anybody does.
    pub holder: Option<Holder>,
    /// Whether it has been asked for.
    is_asked: bool,
    /// Whether that has been answered.
    pub is_answered: bool,
}

impl Claim {
    /// Makes its key greater than these keys of other hosts: none is the same, and the greatest is the newest.
    pub fn outgrow(&mut self, others: impl Iterator<Item = ReservationKey>) {
        let upper = |key: u64| key >> 32;
        let greatest = others.map(|key| key.0).filter(|key| upper(*key) == upper(self.key.0)).max();
        if let Some(greatest) = greatest.filter(|greatest| *greatest >= self.key.0) {
            let lower = (greatest as u32).wrapping_add(1).max(1);
            self.key = ReservationKey(upper(self.key.0) << 32 | u64::from(lower));
        }
    }
}

impl Preempts {
    /// Whether the reservation of this host is taken over.
    #[must_use]
    pub fn includes(&self, holder: &Holder) -> bool {
        let is_like = |first: &[u8; 8]| holder.host.0.starts_with(first);
        match self {
            Preempts::Nobody => false,
            Preempts::HostsLike(first) => is_like(first),
            Preempts::KeysLike(upper, first) => (holder.key.0 >> 32) as u32 == *upper || is_like(first),
            Preempts::Everybody => true,
        }
    }
}

impl Conflict {
    /// A conflict of which it is known who holds the namespace.
    #[must_use]
    pub fn answered(holder: Option<Holder>) -> Conflict {
        Conflict { holder, is_asked: true, is_answered: true }
    }
}

impl Initiator {
    /// What was granted over the present connection; `None` where nothing was claimed, or the namespace knows no reservations.
    #[must_use]
    pub fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref()
    }

    /// Set once another host has taken the namespace over.
    #[must_use]
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref()
    }

    /// Gives the namespace back, then shuts down. Nothing may be outstanding. Without a claim this is
    /// [`shut_down`](Initiator::shut_down).
    pub fn give_back(&mut self, now: Instant) {
        let holds = self.state == State::Ready && self.claimed.is_some() && self.conflict.is_none();
        if !holds || self.flights.len() > 0 || !self.queues[1].has_room() {
            self.shut_down(now);
            return;
        }
        self.lanes = None;
        self.stage = Stage::Releasing;
        unregister(now, &mut self.queues[1], self.config.namespace.0);
        self.step_changed(now);
    }

    /// A command was refused for a reservation: whose is it?
    pub(crate) fn was_refused(&mut self, now: Instant) {
        if self.config.claim.is_none() {
            return;
        }
        let conflict = self.conflict.get_or_insert_default();
        if !conflict.is_asked && self.queues[1].has_room() {
            conflict.is_asked = true;
            ask(now, &mut self.queues[1], self.config.namespace.0);
        }
    }

    /// A report has come after commands were refused.
    pub(crate) fn holder_came(&mut self, queue: QueueId, ended: &Ended) {
        if let Some(conflict) = self.conflict.as_mut().filter(|conflict| queue.0 == 1 && conflict.is_asked) {
            conflict.is_answered = true;
            conflict.holder = status_of(ended).ok().and_then(|status| holder_of(&status));
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host ")?;
        self.host.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " with key {:016x}h", self.key.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_greater_than_all_others_of_its_upper_half() {
        let key = |upper: u64, lower: u32| ReservationKey(upper << 32 | u64::from(lower));
        for (others, expected) in [
            (vec![], key(7, 5)),
            (vec![key(7, 4)], key(7, 5)),
            (vec![key(7, 5)], key(7, 6)),
            (vec![key(7, 9), key(7, 3)], key(7, 10)),
            (vec![key(8, 9)], key(7, 5)),
            (vec![key(7, u32::MAX)], key(7, 1)),
        ] {
            let mut claim = Claim { key: key(7, 5), preempts: Preempts::Nobody };
            claim.outgrow(others.iter().copied());
            assert_eq!(claim.key, expected, "beside {others:?}");
        }
    }

    #[test]
    fn who_is_preempted_is_told_by_the_host_or_the_key() {
        let mut host = HostId([9; 16]);
        host.0[0] = 1;
        let holder = Holder { host, key: ReservationKey(7 << 32 | 2) };
        let like = [1, 9, 9, 9, 9, 9, 9, 9];
        for (preempts, is_included) in [
            (Preempts::Nobody, false),
            (Preempts::HostsLike(like), true),
            (Preempts::HostsLike([9; 8]), false),
            (Preempts::KeysLike(7, [0; 8]), true),
            (Preempts::KeysLike(8, [0; 8]), false),
            (Preempts::KeysLike(8, like), true),
            (Preempts::Everybody, true),
        ] {
            assert_eq!(preempts.includes(&holder), is_included, "{preempts:?}");
        }
    }
}
