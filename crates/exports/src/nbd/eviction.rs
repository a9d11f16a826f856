//! Chooses the connection to evict when all slots are in use.
//!
//! A client with an export may be a mounted disk that is idle for days, so idle time alone closes
//! no connection. But unused slots must not keep other clients out. First evicted are clients
//! without an export that have sent nothing for a second, or are from an address with very many
//! connections; of several, the one idle longest, because an honest client replies within
//! milliseconds. A client that waits for the server is not idle. Then clients that have never sent
//! a request; then, for a newcomer from another address, the client idle longest of the address
//! with the most connections.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use zonda_zoned::Instant;

use super::limits::{CONNECTIONS_USUAL, HANDSHAKE_USUAL, UNUSED_MIN};

/// A slot in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a, K> {
    pub(super) id: K,
    /// The address of the client, without its port.
    pub(super) address: &'a str,
    pub(super) is_half_open: bool,
    /// It has sent a request.
    pub(super) has_asked: bool,
    /// A request of it is in flight.
    pub(super) is_busy: bool,
    /// Bytes that it has sent wait for the server: it is not idle.
    pub(super) waits: bool,
    /// When it connected, made progress in its handshake, or sent a request last.
    pub(super) active_at: Instant,
}

/// The address of a peer: all clients of Unix sockets have one.
pub(super) fn address_of(peer: &str) -> &str {
    if peer.starts_with("unix client") { "unix" } else { peer.rsplit_once(':').map_or(peer, |(address, _)| address) }
}

/// The connection to evict for a newcomer from an address; `None`: the newcomer is refused.
pub(super) fn choose_victim<K: Copy>(slots: &[Slot<'_, K>], newcomer: &str, now: Instant) -> Option<K> {
    let oldest = |suits: &dyn Fn(&Slot<'_, K>) -> bool| {
        slots.iter().filter(|slot| suits(slot)).min_by_key(|slot| slot.active_at).map(|slot| slot.id)
    };
    if let Some(slow) = oldest(&|slot| slot.is_half_open && !slot.waits && slot.active_at + HANDSHAKE_USUAL <= now) {
        return Some(slow);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for slot in slots {
        *counts.entry(slot.address).or_default() += 1;
    }
    let own = counts.get(newcomer).copied().unwrap_or(0);
    let (&most, &count) = counts.iter().max_by_key(|&(_, &count)| count)?;
    // Of new clients, the one idle longest of the address with the most slots, if that has more
    // than usual: honest clients start without an export too, and several of one address are
    // nothing unusual.
    let size = |slot: &Slot<'_, K>| counts[slot.address].max(CONNECTIONS_USUAL);
    let half_open = || slots.iter().filter(|slot| slot.is_half_open);
    let largest = half_open().max_by_key(|slot| (size(slot), !slot.waits, Reverse(slot.active_at)));
    if let Some(largest) = largest.filter(|largest| size(largest) > own) {
        return Some(largest.id);
    }
    if own > 0
        && let Some(silent) = oldest(&|slot| slot.is_half_open && !slot.waits && slot.address == newcomer)
    {
        return Some(silent);
    }
    let is_from_elsewhere = 2 * (own + 1) <= count;
    let is_unused = |slot: &Slot<'_, K>| slot.address == most && !slot.has_asked && !slot.is_busy;
    oldest(&|slot| is_unused(slot) && (is_from_elsewhere || slot.active_at + UNUSED_MIN <= now))
        .or_else(|| oldest(&|slot| is_from_elsewhere && slot.address == most && !slot.is_busy))
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Duration;

    use super::*;

    const NOW: Instant = Instant(1_000_000_000_000);

    fn slot(id: usize, address: &str, idle: Duration) -> Slot<'_, usize> {
        let active_at = Instant(NOW.0 - idle.as_nanos());
        Slot { id, address, is_half_open: false, has_asked: true, is_busy: false, waits: false, active_at }
    }

    #[test]
    fn clients_without_an_export_are_evicted_first() {
        let long = Duration::from_secs(1000);
        let mut slots = [slot(0, "a", long), slot(1, "a", long), slot(2, "b", Duration::from_secs(1))];
        slots[2].is_half_open = true;
        assert_eq!(choose_victim(&slots, "c", NOW), Some(2));
    }

    #[test]
    fn an_address_with_many_clients_evicts_its_own_and_no_new_one_of_another_address() {
        let of = |id: usize| if id == CONNECTIONS_USUAL { "b" } else { "a" };
        let mut slots: Vec<_> =
            (0..=CONNECTIONS_USUAL).map(|id| slot(id, of(id), Duration::from_millis(id as u64))).collect();
        let last = slots.last_mut().expect("there are several");
        last.is_half_open = true;
        assert_eq!(choose_victim(&slots, "a", NOW), None);
        (slots[0].is_half_open, slots[1].is_half_open) = (true, true);
        assert_eq!(choose_victim(&slots, "a", NOW), Some(1));
        slots.push(slot(100, "a", Duration::ZERO));
        assert_eq!(choose_victim(&slots, "c", NOW), Some(1), "more than is usual");
        slots[CONNECTIONS_USUAL].active_at = Instant(NOW.0 - HANDSHAKE_USUAL.as_nanos());
        assert_eq!(
            choose_victim(&slots, "a", NOW),
            Some(CONNECTIONS_USUAL),
            "an honest handshake does not take so long"
        );
    }

    #[test]
    fn among_many_addresses_the_one_idle_longest_is_evicted_and_not_the_one_with_two() {
        let names: Vec<String> = (0..20).map(|number| format!("192.0.2.{number}")).collect();
        let silent = |id: usize| Duration::from_millis(30 - id as u64);
        let mut slots: Vec<_> = (0..20).map(|id| slot(id, &names[id], silent(id))).collect();
        // An honest client connected first, and again, and has just made progress.
        slots.push(slot(20, "192.0.2.99", Duration::from_millis(2)));
        slots.push(slot(21, "192.0.2.99", Duration::from_millis(1)));
        slots.iter_mut().for_each(|slot| slot.is_half_open = true);
        for newcomer in ["192.0.2.99", "192.0.2.3", "198.51.100.1"] {
            assert_eq!(choose_victim(&slots, newcomer, NOW), Some(0));
        }
        slots[0].active_at = NOW;
        assert_eq!(choose_victim(&slots, "198.51.100.1", NOW), Some(1));
    }

    #[test]
    fn clients_that_wait_for_the_server_are_evicted_last_of_new_ones() {
        let names: Vec<String> = (0..4).map(|number| format!("192.0.2.{number}")).collect();
        let mut slots: Vec<_> = (0..4).map(|id| slot(id, &names[id], Duration::from_millis(30 - id as u64))).collect();
        slots.iter_mut().for_each(|slot| slot.is_half_open = true);
        slots[0].waits = true;
        assert_eq!(choose_victim(&slots, "198.51.100.1", NOW), Some(1));
        // Regardless of how long it waits.
        slots[0].active_at = Instant(NOW.0 - 2 * HANDSHAKE_USUAL.as_nanos());
        assert_eq!(choose_victim(&slots, "198.51.100.1", NOW), Some(1));
        // If all wait, one is evicted nevertheless.
        slots.iter_mut().for_each(|slot| slot.waits = true);
        assert_eq!(choose_victim(&slots, "198.51.100.1", NOW), Some(0));
    }

    #[test]
    fn for_the_same_address_only_unused_clients_are_evicted_after_a_while() {
        let mut slots = [0, 1, 2].map(|id| slot(id, "a", Duration::from_secs(100 + id as u64)));
        assert_eq!(choose_victim(&slots, "a", NOW), None);
        slots[1].has_asked = false;
        assert_eq!(choose_victim(&slots, "a", NOW), Some(1));
        slots[1].active_at = Instant(NOW.0 - UNUSED_MIN.as_nanos() + 1);
        assert_eq!(choose_victim(&slots, "a", NOW), None);
    }

    #[test]
    fn a_newcomer_of_another_address_takes_the_longest_idle_slot_of_the_largest() {
        let mut slots =
            [0, 1, 2, 3].map(|id| slot(id, if id == 3 { "b" } else { "a" }, Duration::from_secs(id as u64)));
        assert_eq!(choose_victim(&slots, "c", NOW), Some(2));
        slots[0].has_asked = false;
        assert_eq!(choose_victim(&slots, "c", NOW), Some(0), "unused");
        for slot in &mut slots {
            slot.is_busy = true;
        }
        assert_eq!(choose_victim(&slots, "c", NOW), None, "all of them are busy");
        assert_eq!(choose_victim(&slots[..2], "b", NOW), None);
    }

    #[test]
    fn unix_clients_are_one_address_and_others_have_no_port() {
        let addresses = ["unix client 7", "192.0.2.1:99", "[2001:db8::1]:99"].map(address_of);
        assert_eq!(addresses, ["unix", "192.0.2.1", "[2001:db8::1]"]);
    }
}
