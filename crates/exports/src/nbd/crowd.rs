//! Who gives way when all places are taken.
//!
//! A client that has chosen an export may be a mounted disk that is quiet for days, so silence alone ends nothing. But places that
//! nobody uses must not keep others out. First goes who has chosen no export and said nothing for a second, or has just come from an
//! address that has very many; of several, the longest silent, because an honest client answers within milliseconds. Who waits for the
//! server is not silent. Then who has never asked for anything; then, for a newcomer from elsewhere, the longest idle client of the address
//! that has most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use zonda_zoned::Instant;

use super::limits::{CONNECTIONS_USUAL, HANDSHAKE_USUAL, UNUSED_MIN};

/// A place that is taken, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a, K> {
    pub(super) id: K,
    /// Where the client comes from, without its port.
    pub(super) address: &'a str,
    pub(super) is_half_open: bool,
    /// It has sent a request since it has chosen its export.
    pub(super) has_asked: bool,
    /// A request of it is under way.
    pub(super) is_busy: bool,
    /// What it has sent waits for the server: it is not silent.
    pub(super) waits: bool,
    /// When it connected, took a step of its handshake or asked last.
    pub(super) active_at: Instant,
}

/// The address of a peer: all clients of Unix sockets have one.
pub(super) fn address_of(peer: &str) -> &str {
    if peer.starts_with("unix client") { "unix" } else { peer.rsplit_once(':').map_or(peer, |(address, _)| address) }
}

/// Who gives way to a newcomer from an address; `None`: nobody, and it is turned away.
pub(super) fn gives_way<K: Copy>(places: &[Place<'_, K>], newcomer: &str, now: Instant) -> Option<K> {
    let oldest = |suits: &dyn Fn(&Place<'_, K>) -> bool| {
        places.iter().filter(|place| suits(place)).min_by_key(|place| place.active_at).map(|place| place.id)
    };
    if let Some(slow) = oldest(&|place| place.is_half_open && !place.waits && place.active_at + HANDSHAKE_USUAL <= now)
    {
        return Some(slow);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for place in places {
        *counts.entry(place.address).or_default() += 1;
    }
    let own = counts.get(newcomer).copied().unwrap_or(0);
    let (&most, &count) = counts.iter().max_by_key(|&(_, &count)| count)?;
    // Of those that have just come, the longest silent of the address with the most places, if that has more than is usual: honest
    // clients begin without an export too, and several of one address are no crowd beside many addresses with one each.
    let size = |place: &Place<'_, K>| counts[place.address].max(CONNECTIONS_USUAL);
    let half_open = || places.iter().filter(|place| place.is_half_open);
    let crowd = half_open().max_by_key(|place| (size(place), !place.waits, Reverse(place.active_at)));
    if let Some(crowd) = crowd.filter(|crowd| size(crowd) > own) {
        return Some(crowd.id);
    }
    if own > 0
        && let Some(silent) = oldest(&|place| place.is_half_open && !place.waits && place.address == newcomer)
    {
        return Some(silent);
    }
    let is_from_elsewhere = 2 * (own + 1) <= count;
    let is_unused = |place: &Place<'_, K>| place.address == most && !place.has_asked && !place.is_busy;
    oldest(&|place| is_unused(place) && (is_from_elsewhere || place.active_at + UNUSED_MIN <= now))
        .or_else(|| oldest(&|place| is_from_elsewhere && place.address == most && !place.is_busy))
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Duration;

    use super::*;

    const NOW: Instant = Instant(1_000_000_000_000);

    fn place(id: usize, address: &str, idle: Duration) -> Place<'_, usize> {
        let active_at = Instant(NOW.0 - idle.as_nanos());
        Place { id, address, is_half_open: false, has_asked: true, is_busy: false, waits: false, active_at }
    }

    #[test]
    fn who_has_chosen_no_export_goes_first() {
        let long = Duration::from_secs(1000);
        let mut places = [place(0, "a", long), place(1, "a", long), place(2, "b", Duration::from_secs(1))];
        places[2].is_half_open = true;
        assert_eq!(gives_way(&places, "c", NOW), Some(2));
    }

    #[test]
    fn an_address_with_many_clients_crowds_out_its_own_and_never_one_that_has_just_come_from_elsewhere() {
        let of = |id: usize| if id == CONNECTIONS_USUAL { "b" } else { "a" };
        let mut places: Vec<_> =
            (0..=CONNECTIONS_USUAL).map(|id| place(id, of(id), Duration::from_millis(id as u64))).collect();
        let last = places.last_mut().expect("they are several");
        last.is_half_open = true;
        assert_eq!(gives_way(&places, "a", NOW), None);
        (places[0].is_half_open, places[1].is_half_open) = (true, true);
        assert_eq!(gives_way(&places, "a", NOW), Some(1));
        places.push(place(100, "a", Duration::ZERO));
        assert_eq!(gives_way(&places, "c", NOW), Some(1), "more than is usual");
        places[CONNECTIONS_USUAL].active_at = Instant(NOW.0 - HANDSHAKE_USUAL.as_nanos());
        assert_eq!(gives_way(&places, "a", NOW), Some(CONNECTIONS_USUAL), "an honest handshake does not take so long");
    }

    #[test]
    fn among_many_addresses_the_longest_silent_gives_way_and_not_the_one_with_two() {
        let names: Vec<String> = (0..20).map(|number| format!("192.0.2.{number}")).collect();
        let silent = |id: usize| Duration::from_millis(30 - id as u64);
        let mut places: Vec<_> = (0..20).map(|id| place(id, &names[id], silent(id))).collect();
        // An honest client came first, and again, and has just taken a step.
        places.push(place(20, "192.0.2.99", Duration::from_millis(2)));
        places.push(place(21, "192.0.2.99", Duration::from_millis(1)));
        places.iter_mut().for_each(|place| place.is_half_open = true);
        for newcomer in ["192.0.2.99", "192.0.2.3", "198.51.100.1"] {
            assert_eq!(gives_way(&places, newcomer, NOW), Some(0));
        }
        places[0].active_at = NOW;
        assert_eq!(gives_way(&places, "198.51.100.1", NOW), Some(1));
    }

    #[test]
    fn who_waits_for_the_server_gives_way_last_of_those_that_have_just_come() {
        let names: Vec<String> = (0..4).map(|number| format!("192.0.2.{number}")).collect();
        let mut places: Vec<_> =
            (0..4).map(|id| place(id, &names[id], Duration::from_millis(30 - id as u64))).collect();
        places.iter_mut().for_each(|place| place.is_half_open = true);
        places[0].waits = true;
        assert_eq!(gives_way(&places, "198.51.100.1", NOW), Some(1));
        // However long it waits.
        places[0].active_at = Instant(NOW.0 - 2 * HANDSHAKE_USUAL.as_nanos());
        assert_eq!(gives_way(&places, "198.51.100.1", NOW), Some(1));
        // Where all do, the table is not theirs for good.
        places.iter_mut().for_each(|place| place.waits = true);
        assert_eq!(gives_way(&places, "198.51.100.1", NOW), Some(0));
    }

    #[test]
    fn a_quiet_client_that_has_worked_gives_no_way_to_its_own_address_and_an_unused_one_does_after_a_while() {
        let mut places = [0, 1, 2].map(|id| place(id, "a", Duration::from_secs(100 + id as u64)));
        assert_eq!(gives_way(&places, "a", NOW), None);
        places[1].has_asked = false;
        assert_eq!(gives_way(&places, "a", NOW), Some(1));
        places[1].active_at = Instant(NOW.0 - UNUSED_MIN.as_nanos() + 1);
        assert_eq!(gives_way(&places, "a", NOW), None);
    }

    #[test]
    fn a_newcomer_from_elsewhere_takes_the_longest_idle_place_of_who_has_most() {
        let mut places =
            [0, 1, 2, 3].map(|id| place(id, if id == 3 { "b" } else { "a" }, Duration::from_secs(id as u64)));
        assert_eq!(gives_way(&places, "c", NOW), Some(2));
        places[0].has_asked = false;
        assert_eq!(gives_way(&places, "c", NOW), Some(0), "unused");
        for place in &mut places {
            place.is_busy = true;
        }
        assert_eq!(gives_way(&places, "c", NOW), None, "all of them work");
        assert_eq!(gives_way(&places[..2], "b", NOW), None);
    }

    #[test]
    fn unix_clients_are_one_address_and_others_have_no_port() {
        let addresses = ["unix client 7", "192.0.2.1:99", "[2001:db8::1]:99"].map(address_of);
        assert_eq!(addresses, ["unix", "192.0.2.1", "[2001:db8::1]"]);
    }
}
