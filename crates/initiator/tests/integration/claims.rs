//! Hosts that claim a namespace for themselves alone.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::world::{World, host_config, target_config};
use zonda_initiator::{Claim, InitiatorConfig, Preempts, Reason, State, Step};
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_target::HostAccess;
use zonda_zoned::{Blocks, Command, CommandId, Duration, Geometry, Lba, NamespaceId, Operation, Payload, Status};

const FIRST: HostId = HostId([1; 16]);
const SECOND: HostId = HostId([2; 16]);

fn key(lower: u32) -> ReservationKey {
    ReservationKey(7 << 32 | u64::from(lower))
}

fn geometry() -> Geometry {
    Geometry { max_transfer_blocks: Blocks(16), max_append_blocks: Blocks(16), ..Geometry::tiny() }
}

/// A host that claims what it connects to.
fn claiming(host_id: HostId, preempts: Preempts) -> InitiatorConfig {
    InitiatorConfig { host_id: Some(host_id), claim: Some(Claim { key: key(1), preempts }), ..host_config() }
}

/// A host that claims nothing.
fn guest() -> InitiatorConfig {
    InitiatorConfig { host_id: Some(HostId([3; 16])), ..host_config() }
}

fn owned_by_first(seed: u64) -> World {
    World::connected(claiming(FIRST, Preempts::Nobody), target_config(&[geometry()], HostAccess::Any), seed)
}

fn status_of(world: &mut World, operation: Operation) -> Status {
    world.submit(Command { id: CommandId(1), namespace: NamespaceId::FIRST, operation });
    world.run_until(|world| !world.completions.is_empty());
    world.completions.pop().unwrap().status
}

fn write(start: u64) -> Operation {
    Operation::Write { start: Lba(start), blocks: Blocks(1), payload: Payload::None }
}

fn read() -> Operation {
    Operation::Read { start: Lba(0), blocks: Blocks(1) }
}

fn failed(state: &State) -> (Step, Reason) {
    let State::Failed(error) = state else { panic!("{state:?}") };
    (error.step, error.reason.clone())
}

#[test]
fn who_comes_second_is_refused_and_changes_nothing() {
    let mut world = owned_by_first(1);
    assert_eq!(world.initiator.claimed().map(|claimed| (claimed.key, claimed.preempted)), Some((key(1), None)));
    let other = world.add_host(claiming(SECOND, Preempts::HostsLike([9; 8])));
    world.change_host(other);
    let (step, reason) = failed(world.connect());
    let Reason::Reserved(holder) = reason else { panic!("{reason:?}") };
    assert_eq!((step, holder.host, holder.key), (Step::ReportReservations, FIRST, key(1)));
    assert_eq!(holder.to_string(), "host 01010101010101010101010101010101 with key 0000000700000001h");
    world.change_host(other);
    assert_eq!(status_of(&mut world, write(0)), Status::Success);
    assert_eq!(world.initiator.conflict(), None);
}

#[test]
fn a_host_that_claims_nothing_can_neither_write_nor_look_at_the_zones() {
    let mut world = owned_by_first(2);
    let other = world.add_host(guest());
    world.change_host(other);
    let (step, _) = failed(world.connect());
    assert_eq!(step, Step::SurveyZones);
    let State::Failed(error) = world.initiator.state() else { unreachable!("it has failed") };
    assert!(error.remedy().contains("servers of volumes"), "{error}");
}

#[test]
fn the_host_that_is_preempted_hears_who_has_the_namespace_with_its_next_command_reads_too() {
    for (seed, operation) in [(3, read()), (4, write(1)), (5, Operation::Flush)] {
        let mut world = owned_by_first(seed);
        assert_eq!(status_of(&mut world, write(0)), Status::Success);
        let first = world.add_host(claiming(SECOND, Preempts::HostsLike([1; 8])));
        world.change_host(first);
        assert_eq!(*world.connect(), State::Ready);
        let claimed = *world.initiator.claimed().unwrap();
        assert_eq!(claimed.key, key(2), "the greatest key is the newest");
        assert_eq!(claimed.preempted.map(|holder| (holder.host, holder.key)), Some((FIRST, key(1))));
        world.change_host(first);
        assert_eq!(status_of(&mut world, operation), Status::ReservationConflict);
        world.run_until(|world| world.initiator.conflict().is_some_and(|conflict| conflict.is_answered));
        let holder = world.initiator.conflict().unwrap().holder.unwrap();
        assert_eq!((holder.host, holder.key), (SECOND, key(2)));
        // Over a new connection it is refused.
        let queue = world.queues()[0];
        world.cut(queue);
        assert!(matches!(failed(world.connect()).1, Reason::Reserved(holder) if holder.host == SECOND));
        world.change_host(first);
        assert_eq!(status_of(&mut world, write(1)), Status::Success);
    }
}

#[test]
fn a_claim_outlasts_its_connection_and_is_the_same_over_the_next_one() {
    let mut world = owned_by_first(6);
    let queue = world.queues()[1];
    world.cut(queue);
    let first = world.add_host(claiming(SECOND, Preempts::Nobody));
    world.change_host(first);
    assert!(matches!(failed(world.connect()).1, Reason::Reserved(_)), "nobody is there, and it is taken all the same");
    world.change_host(first);
    assert_eq!(*world.connect(), State::Ready);
    assert_eq!(world.initiator.claimed().unwrap().key, key(1));
    assert_eq!(status_of(&mut world, write(0)), Status::Success);
}

#[test]
fn a_namespace_that_was_given_back_is_anybodys() {
    let mut world = owned_by_first(7);
    world.initiator.give_back(world.now);
    assert_eq!(*world.initiator.state(), State::Connecting(Step::Release));
    world.run_until(|world| *world.initiator.state() == State::Closed);
    world.settle();
    let other = world.add_host(claiming(SECOND, Preempts::Nobody));
    world.change_host(other);
    assert_eq!(*world.connect(), State::Ready);
    assert_eq!(world.initiator.claimed().unwrap().preempted, None);
}

#[test]
fn a_target_that_dies_before_it_has_taken_the_reservation_back_ends_the_shutdown_all_the_same() {
    let mut world = owned_by_first(8);
    world.initiator.give_back(world.now);
    world.crash();
    world.wait(Duration::from_secs(20));
    assert_eq!(*world.initiator.state(), State::Closed);
}

#[test]
fn of_two_hosts_that_take_a_namespace_over_at_the_same_time_one_has_it() {
    let mut winners = [0; 2];
    for seed in 0..60 {
        let mut world = owned_by_first(seed);
        let preempts = Preempts::HostsLike([1; 8]);
        let hosts = world.add_host(claiming(SECOND, preempts));
        let first = world.add_host(claiming(HostId([4; 16]), preempts));
        world.change_host(hosts);
        // `hosts` is the first owner's now, and is left alone.
        world.initiator.start(world.now);
        world.change_host(first);
        world.initiator.start(world.now);
        let is_over = |state: &State| !matches!(state, State::Connecting(_));
        for _ in 0..200_000 {
            for _ in 0..world.prng.below(20) {
                world.turn();
            }
            if is_over(world.initiator.state()) && is_over(world.paused(first).state()) {
                break;
            }
            world.change_host(first);
        }
        let mut count = 0;
        for (at, initiator) in [&world.initiator, world.paused(first)].into_iter().enumerate() {
            match initiator.state() {
                State::Ready => {
                    count += 1;
                    winners[usize::from(initiator.host_id() == SECOND)] += 1;
                }
                state => assert!(matches!(failed(state).1, Reason::Reserved(_)), "host {at}: {state:?}"),
            }
        }
        assert_eq!(count, 1, "seed {seed}");
    }
    assert!(winners[0] > 0 && winners[1] > 0, "{winners:?}");
}
