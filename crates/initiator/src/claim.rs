//! [`Claim`]: exclusive access to a namespace by an Exclusive Access reservation (NVMe Base 2.0,
//! section 8.19).
//!
//! A claim is made on every connection, before the zones are reported and before any command is
//! accepted. From then on the target refuses commands of other hosts, including reads; and once
//! another host has preempted this one, the commands of this one.

use std::fmt;

use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_zoned::Instant;

use crate::connecting::claiming::{holder_of, request_report, status_of, unregister};
use crate::procedure::Stage;
use crate::queue::Ended;
use crate::state::State;
use crate::{Initiator, QueueId};

/// The parameters of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key of this host. If a key with the same upper half is registered that is equal or
    /// greater, the next greater one is used.
    pub key: ReservationKey,
    /// Hosts whose reservation the claim preempts.
    pub preempts: Preempts,
}

/// Hosts whose reservation a claim preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempts {
    /// None: the claim fails if another host holds a reservation.
    NoHost,
    /// Hosts whose identifier starts with these bytes: usually earlier processes of this host.
    HostsLike([u8; 8]),
    /// Hosts whose key has this upper half, and hosts whose identifier starts with these bytes.
    KeysLike(u32, [u8; 8]),
    /// All hosts.
    AnyHost,
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
    /// The holder whose reservation was preempted.
    pub preempted: Option<Holder>,
}

/// This host has lost its reservation: commands failed with Reservation Conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// The present holder, if there is one, once the target has reported it.
    pub holder: Option<Holder>,
    /// Whether a report has been requested.
    is_requested: bool,
    /// Whether the report has been received.
    pub is_answered: bool,
}

impl Claim {
    /// Increases the key above these keys of other hosts, so that it is unique, and the greatest
    /// key is the newest.
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
    /// Whether the reservation of this holder is preempted.
    #[must_use]
    pub fn includes(&self, holder: &Holder) -> bool {
        let is_like = |first: &[u8; 8]| holder.host.0.starts_with(first);
        match self {
            Preempts::NoHost => false,
            Preempts::HostsLike(first) => is_like(first),
            Preempts::KeysLike(upper, first) => (holder.key.0 >> 32) as u32 == *upper || is_like(first),
            Preempts::AnyHost => true,
        }
    }
}

impl Conflict {
    /// A conflict with a reported holder.
    #[must_use]
    pub fn answered(holder: Option<Holder>) -> Conflict {
        Conflict { holder, is_requested: true, is_answered: true }
    }
}

impl Initiator {
    /// The claim on the present connection; `None` without a claim, or if the namespace does not
    /// support reservations.
    #[must_use]
    pub fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref()
    }

    /// Set once another host has preempted this one.
    #[must_use]
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref()
    }

    /// Releases the reservation, then shuts down. No command may be outstanding. Without a claim
    /// this is [`shut_down`](Initiator::shutdown).
    pub fn release_claim(&mut self, now: Instant) {
        let holds = self.state == State::Ready && self.claimed.is_some() && self.conflict.is_none();
        if !holds || self.flights.len() > 0 || !self.queues[1].has_free_slot() {
            self.shutdown(now);
            return;
        }
        self.lanes = None;
        self.stage = Stage::Releasing;
        unregister(now, &mut self.queues[1], self.config.namespace.0);
        self.step_changed(now);
    }

    /// A command failed with Reservation Conflict: requests a report of the holder.
    pub(crate) fn report_conflict(&mut self, now: Instant) {
        if self.config.claim.is_none() {
            return;
        }
        let conflict = self.conflict.get_or_insert_default();
        if !conflict.is_requested && self.queues[1].has_free_slot() {
            conflict.is_requested = true;
            request_report(now, &mut self.queues[1], self.config.namespace.0);
        }
    }

    /// A report after a conflict was received.
    pub(crate) fn holder_reported(&mut self, queue: QueueId, ended: &Ended) {
        if let Some(conflict) = self.conflict.as_mut().filter(|conflict| queue.0 == 1 && conflict.is_requested) {
            conflict.is_answered = true;
            conflict.holder = status_of(ended).ok().and_then(|status| holder_of(&status));
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host ")?;
        // As the UUID that host identifiers are.
        for (at, byte) in self.host.0.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
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
            let mut claim = Claim { key: key(7, 5), preempts: Preempts::NoHost };
            claim.outgrow(others.iter().copied());
            assert_eq!(claim.key, expected, "other keys: {others:?}");
        }
    }

    #[test]
    fn hosts_to_preempt_are_selected_by_host_identifier_or_key() {
        let mut host = HostId([9; 16]);
        host.0[0] = 1;
        let holder = Holder { host, key: ReservationKey(7 << 32 | 2) };
        let like = [1, 9, 9, 9, 9, 9, 9, 9];
        for (preempts, is_included) in [
            (Preempts::NoHost, false),
            (Preempts::HostsLike(like), true),
            (Preempts::HostsLike([9; 8]), false),
            (Preempts::KeysLike(7, [0; 8]), true),
            (Preempts::KeysLike(8, [0; 8]), false),
            (Preempts::KeysLike(8, like), true),
            (Preempts::AnyHost, true),
        ] {
            assert_eq!(preempts.includes(&holder), is_included, "{preempts:?}");
        }
    }
}
