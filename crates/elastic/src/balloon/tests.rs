use super::*;
use zonda_zoned::Prng;

const PLENTY: u32 = 256;

/// The default configuration of the paper: four namespaces of 16 active v-zones, 32 essentials and
/// 32 spares each.
fn default_of_the_paper() -> Balloon {
    let mut balloon = Balloon::new(128, 128, 16);
    (1..=4).for_each(|namespace| balloon.add(namespace, 1, 16));
    balloon
}

/// Opens and ends groups until the moving average has converged at so many active v-zones.
fn quiesce(balloon: &mut Balloon, namespace: u32, active: u32) {
    for _ in 0..400 {
        let grant = balloon.allocate(Instant(1), namespace, active, PLENTY).unwrap();
        balloon.release(namespace, grant);
    }
}

fn widths(balloon: &mut Balloon, now: Instant, namespace: u32, groups: u32) -> Vec<u32> {
    (0..groups).map(|_| balloon.allocate(now, namespace, groups, PLENTY).unwrap().width).collect()
}

#[test]
fn a_namespace_of_the_default_configuration_has_a_minimum_width_of_two() {
    let balloon = default_of_the_paper();
    for namespace in 1..=4 {
        let share = balloon.share(namespace);
        assert_eq!((share.essentials, share.spares_own, share.width_min), (32, 32, 2));
    }
}

/// eZNS, Figure 26: beside static v-zones of 4, overdriven ones have twice the width with four
/// writers, and the same with eight and sixteen.
#[test]
fn local_overdrive_shares_the_spares_of_a_namespace_among_its_writers() {
    for (writers, expected) in [(1, 16), (2, 16), (4, 8), (8, 4), (16, 4)] {
        let mut balloon = default_of_the_paper();
        quiesce(&mut balloon, 1, writers);
        assert_eq!(widths(&mut balloon, Instant(1), 1, writers), vec![expected; writers as usize], "{writers} writers");
        balloon.check_invariants();
    }
}

#[test]
fn without_spares_left_a_group_has_the_minimum_width() {
    let mut balloon = default_of_the_paper();
    quiesce(&mut balloon, 1, 1);
    assert_eq!(widths(&mut balloon, Instant(1), 1, 5), [16, 16, 4, 4, 2], "28 of the 32 spares are in the first two");
}

/// eZNS, Figure 24: NS1 and NS3 open v-zones, NS1 goes on and NS3 does not, NS2 never did: NS1 gets
/// what NS2 does not use, and NS3 keeps what is in its groups.
#[test]
fn spares_of_namespaces_that_open_nothing_go_to_those_that_do() {
    let mut balloon = Balloon::new(24, 24, 16);
    (1..=3).for_each(|namespace| balloon.add(namespace, 1, 4));
    assert_eq!((balloon.share(2).essentials, balloon.share(2).spares_own, balloon.share(2).width_min), (8, 8, 2));
    let mut held = widths(&mut balloon, Instant(1), 3, 2);
    assert_eq!(held.pop(), Some(4));
    for _ in 0..24 {
        let grant = balloon.allocate(Instant(2), 1, 2, PLENTY).unwrap();
        balloon.release(1, grant);
    }
    let used_by_3 = balloon.share(3).spares_used;
    balloon.redistribute(Instant(3), |_| 2);
    balloon.check_invariants();
    assert_eq!(balloon.share(2).spares_lent, 8, "it uses none of its own");
    assert_eq!(balloon.share(3).spares_lent, 8 - used_by_3, "what is in its groups stays");
    assert_eq!(balloon.share(1).spares_leased, 16 - used_by_3);
}

#[test]
fn lent_spares_come_back_when_the_lender_opens_a_group_and_the_borrower_ends_its_own() {
    let mut balloon = default_of_the_paper();
    quiesce(&mut balloon, 4, 2);
    balloon.redistribute(Instant(2), |_| 2);
    assert_eq!(balloon.share(4).spares(), 128, "three namespaces lend all that they have");
    let groups: Vec<Grant> = (0..8).map(|_| balloon.allocate(Instant(3), 4, 2, PLENTY).unwrap()).collect();
    assert_eq!(groups.iter().map(|grant| grant.spares).sum::<u32>(), 8 * 14);
    let own = balloon.allocate(Instant(4), 1, 1, PLENTY).unwrap();
    assert_eq!(own.width, 2, "its essentials are there, and no spare is");
    balloon.redistribute(Instant(5), |_| 2);
    assert_eq!(balloon.share(1).spares_lent, 32 - 16, "what the borrower does not use comes back at once");
    balloon.check_invariants();
    balloon.release(4, groups[0]);
    assert_eq!(balloon.share(1).spares_lent, 2, "and the rest as groups end");
    balloon.release(4, groups[1]);
    assert_eq!(balloon.share(1).spares_lent, 0);
    balloon.check_invariants();
}

#[test]
fn a_namespace_whose_groups_are_written_for_long_keeps_the_spares_that_others_have_lent_to_it() {
    let mut balloon = default_of_the_paper();
    quiesce(&mut balloon, 4, 2);
    balloon.redistribute(Instant(2), |_| 2);
    let later = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let group = balloon.allocate(later(1), 4, 2, PLENTY).unwrap();
    for seconds in 2..10 {
        balloon.on_written(later(seconds), 4);
        balloon.redistribute(later(seconds), |_| 2);
        assert_eq!(balloon.share(4).spares(), 128, "after {seconds} s in the same group");
    }
    for seconds in 10..14 {
        balloon.redistribute(later(seconds), |_| 2);
    }
    assert_eq!(balloon.share(4).spares(), 32.max(group.spares), "nothing was written for four seconds");
    balloon.check_invariants();
}

#[test]
fn weights_divide_both_kinds_and_nothing_is_left_over() {
    let mut balloon = Balloon::new(8, 3, 1);
    assert!(balloon.can_add([(1, 4)]));
    balloon.add(1, 1, 2);
    assert!(balloon.can_add([(3, 4)]) && !balloon.can_add([(3, 8)]), "eight essentials are not enough for both");
    balloon.add(2, 3, 4);
    assert_eq!((balloon.share(1).essentials, balloon.share(2).essentials), (2, 6));
    balloon.check_invariants();
    assert_eq!(balloon.allocate(Instant(0), 2, 4, PLENTY).unwrap().width, 1, "a wider group gains nothing here");
    assert_eq!(balloon.allocate(Instant(0), 2, 4, 0), None);
}

#[test]
fn spares_are_neither_lost_nor_made_whatever_happens() {
    for seed in 0..50 {
        let mut prng = Prng::new(seed);
        let mut balloon = Balloon::new(1 + prng.below(64) as u32, prng.below(64) as u32, 1 << prng.below(5));
        let mut groups: Vec<(u32, Grant)> = Vec::new();
        let (mut next, mut now) = (1, Instant::ZERO);
        let mut members: Vec<u32> = Vec::new();
        for _ in 0..400 {
            now += Duration::from_millis(prng.below(700));
            match prng.below(8) {
                0 if members.len() < 6 => {
                    balloon.add(next, 1 + prng.below(4) as u32, 1 + prng.below(8) as u32);
                    members.push(next);
                    next += 1;
                }
                1 if members.len() > 2 => {
                    let gone = members.swap_remove(prng.below(members.len() as u64) as usize);
                    groups.retain(|(owner, grant)| {
                        if *owner == gone {
                            balloon.release(gone, *grant);
                        }
                        *owner != gone
                    });
                    balloon.remove(gone);
                }
                2..=4 => {
                    if let Some(namespace) = prng.pick(&members).copied() {
                        let zones_max = prng.below(32) as u32;
                        let grant = balloon.allocate(now, namespace, 1 + prng.below(8) as u32, zones_max);
                        assert_eq!(grant.is_some(), zones_max > 0, "essentials are never refused");
                        groups.extend(grant.map(|grant| (namespace, grant)));
                    }
                }
                5 => balloon.redistribute(now, |_| 3),
                _ if !groups.is_empty() => {
                    let (namespace, grant) = groups.swap_remove(prng.below(groups.len() as u64) as usize);
                    balloon.release(namespace, grant);
                }
                _ => {}
            }
            balloon.check_invariants();
        }
    }
}
