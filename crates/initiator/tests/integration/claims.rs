//! Hosts that claim exclusive access to a namespace.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::testbed::{Testbed, host_config, target_config};
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

/// A host with a claim.
fn claiming(host_id: HostId, preempts: Preempts) -> InitiatorConfig {
    InitiatorConfig { host_id: Some(host_id), claim: Some(Claim { key: key(1), preempts }), ..host_config() }
}

/// A host without a claim.
fn unclaiming() -> InitiatorConfig {
    InitiatorConfig { host_id: Some(HostId([3; 16])), ..host_config() }
}

fn owned_by_first(seed: u64) -> Testbed {
    Testbed::connected(claiming(FIRST, Preempts::NoHost), target_config(&[geometry()], HostAccess::Any), seed)
}

fn status_of(testbed: &mut Testbed, operation: Operation) -> Status {
    testbed.submit(Command::new(CommandId(1), NamespaceId::FIRST, operation));
    testbed.run_until(|testbed| !testbed.completions.is_empty());
    testbed.completions.pop().unwrap().status
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
fn the_second_host_is_refused_and_changes_nothing() {
    let mut testbed = owned_by_first(1);
    assert_eq!(testbed.initiator.claimed().map(|claimed| (claimed.key, claimed.preempted)), Some((key(1), None)));
    let other = testbed.add_host(claiming(SECOND, Preempts::HostsLike([9; 8])));
    testbed.change_host(other);
    let (step, reason) = failed(testbed.connect());
    let Reason::Reserved(holder) = reason else { panic!("{reason:?}") };
    assert_eq!((step, holder.host, holder.key), (Step::ReportReservations, FIRST, key(1)));
    assert_eq!(holder.to_string(), "host 01010101-0101-0101-0101-010101010101 with key 0000000700000001h");
    testbed.change_host(other);
    assert_eq!(status_of(&mut testbed, write(0)), Status::Success);
    assert_eq!(testbed.initiator.conflict(), None);
}

#[test]
fn a_host_without_a_claim_can_neither_write_nor_report_zones() {
    let mut testbed = owned_by_first(2);
    let other = testbed.add_host(unclaiming());
    testbed.change_host(other);
    let (step, _) = failed(testbed.connect());
    assert_eq!(step, Step::SurveyZones);
    let State::Failed(error) = testbed.initiator.state() else { unreachable!("it has failed") };
    assert!(error.remedy().contains("the server of a volume"), "{error}");
}

#[test]
fn a_preempted_host_learns_the_new_holder_with_its_next_command_including_reads() {
    for (seed, operation) in [(3, read()), (4, write(1)), (5, Operation::Flush)] {
        let mut testbed = owned_by_first(seed);
        assert_eq!(status_of(&mut testbed, write(0)), Status::Success);
        let first = testbed.add_host(claiming(SECOND, Preempts::HostsLike([1; 8])));
        testbed.change_host(first);
        assert_eq!(*testbed.connect(), State::Ready);
        let claimed = *testbed.initiator.claimed().unwrap();
        assert_eq!(claimed.key, key(2), "the greatest key is the newest");
        assert_eq!(claimed.preempted.map(|holder| (holder.host, holder.key)), Some((FIRST, key(1))));
        testbed.change_host(first);
        assert_eq!(status_of(&mut testbed, operation), Status::ReservationConflict);
        testbed.run_until(|testbed| testbed.initiator.conflict().is_some_and(|conflict| conflict.is_answered));
        let holder = testbed.initiator.conflict().unwrap().holder.unwrap();
        assert_eq!((holder.host, holder.key), (SECOND, key(2)));
        // On a new connection its claim is refused.
        let queue = testbed.queues()[0];
        testbed.cut(queue);
        assert!(matches!(failed(testbed.connect()).1, Reason::Reserved(holder) if holder.host == SECOND));
        testbed.change_host(first);
        assert_eq!(status_of(&mut testbed, write(1)), Status::Success);
    }
}

#[test]
fn a_claim_survives_the_loss_of_its_connection() {
    let mut testbed = owned_by_first(6);
    let queue = testbed.queues()[1];
    testbed.cut(queue);
    let first = testbed.add_host(claiming(SECOND, Preempts::NoHost));
    testbed.change_host(first);
    assert!(
        matches!(failed(testbed.connect()).1, Reason::Reserved(_)),
        "the holder is disconnected, and its reservation is preempted all the same"
    );
    testbed.change_host(first);
    assert_eq!(*testbed.connect(), State::Ready);
    assert_eq!(testbed.initiator.claimed().unwrap().key, key(1));
    assert_eq!(status_of(&mut testbed, write(0)), Status::Success);
}

#[test]
fn any_host_can_claim_a_released_namespace() {
    let mut testbed = owned_by_first(7);
    testbed.initiator.release_claim(testbed.now);
    assert_eq!(*testbed.initiator.state(), State::Connecting(Step::Release));
    testbed.run_until(|testbed| *testbed.initiator.state() == State::Closed);
    testbed.run_until_idle();
    let other = testbed.add_host(claiming(SECOND, Preempts::NoHost));
    testbed.change_host(other);
    assert_eq!(*testbed.connect(), State::Ready);
    assert_eq!(testbed.initiator.claimed().unwrap().preempted, None);
}

#[test]
fn the_shutdown_ends_even_if_the_target_dies_before_the_release() {
    let mut testbed = owned_by_first(8);
    testbed.initiator.release_claim(testbed.now);
    testbed.crash();
    testbed.wait(Duration::from_secs(20));
    assert_eq!(*testbed.initiator.state(), State::Closed);
}

#[test]
fn of_two_hosts_that_preempt_at_the_same_time_one_gets_the_namespace() {
    let mut winners = [0; 2];
    for seed in 0..60 {
        let mut testbed = owned_by_first(seed);
        let preempts = Preempts::HostsLike([1; 8]);
        let hosts = testbed.add_host(claiming(SECOND, preempts));
        let first = testbed.add_host(claiming(HostId([4; 16]), preempts));
        testbed.change_host(hosts);
        // `hosts` now has the first owner, which stays paused.
        testbed.initiator.start(testbed.now);
        testbed.change_host(first);
        testbed.initiator.start(testbed.now);
        let is_over = |state: &State| !matches!(state, State::Connecting(_));
        for _ in 0..200_000 {
            for _ in 0..testbed.prng.below(20) {
                testbed.step();
            }
            if is_over(testbed.initiator.state()) && is_over(testbed.paused(first).state()) {
                break;
            }
            testbed.change_host(first);
        }
        let mut count = 0;
        for (at, initiator) in [&testbed.initiator, testbed.paused(first)].into_iter().enumerate() {
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
