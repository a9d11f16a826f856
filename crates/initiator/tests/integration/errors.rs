//! What a person is told when connecting fails, by zonda's target and by the network.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::world::{HOST, World, host_config, nqn, target_config};
use zonda_chap::{Group, Hash, Policy, Secret};
use zonda_initiator::{Event, InitiatorConfig, InitiatorError, QueueId, Reason, State, Step};
use zonda_nvme::StatusCode;
use zonda_target::{HostAccess, HostEntry, TargetConfig};
use zonda_zoned::{Blocks, Duration, Geometry, NamespaceId, Operation, Outcome, Status, ZoneIndex, ZoneState};

fn geometry() -> Geometry {
    Geometry { max_transfer_blocks: Blocks(16), max_append_blocks: Blocks(16), ..Geometry::tiny() }
}

fn open_target() -> TargetConfig {
    target_config(&[geometry()], HostAccess::Any)
}

fn failure(host: InitiatorConfig, target: TargetConfig) -> InitiatorError {
    match World::new(host, target, 1).connect() {
        State::Failed(error) => error.clone(),
        state => panic!("{state:?}"),
    }
}

fn secret(byte: u8) -> Secret {
    Secret::generate(Some(Hash::Sha256), [byte; 64])
}

fn guarded() -> TargetConfig {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: Some(secret(2)) };
    target_config(&[geometry()], HostAccess::Hosts(vec![entry]))
}

#[test]
fn a_wrong_subsystem_is_named() {
    let host = InitiatorConfig { subsystem_nqn: nqn("nqn.2014-08.org.example:other"), ..host_config() };
    let error = failure(host, open_target());
    assert_eq!(error.step, Step::ConnectQueue(QueueId::ADMIN));
    assert!(error.remedy().contains("no such subsystem"), "{error}");
}

#[test]
fn a_host_that_is_not_allowed_is_told_so() {
    let error = failure(host_config(), target_config(&[geometry()], HostAccess::Hosts(vec![])));
    assert!(matches!(error.reason, Reason::Status { status: StatusCode::CONNECT_INVALID_HOST, .. }), "{error}");
    assert!(error.is_permanent());
}

#[test]
fn a_missing_secret_and_a_wrong_one_are_told_apart() {
    let error = failure(host_config(), guarded());
    assert_eq!((error.step, error.reason), (Step::Authenticate(QueueId::ADMIN), Reason::SecretMissing));
    let error = failure(InitiatorConfig { host_secret: Some(secret(9)), ..host_config() }, guarded());
    assert!(error.remedy().contains("refuses this host's secret"), "{error}");
    assert!(error.is_permanent());
}

#[test]
fn a_controller_that_does_not_know_its_secret_is_not_trusted() {
    let host = InitiatorConfig { host_secret: Some(secret(1)), controller_secret: Some(secret(9)), ..host_config() };
    let error = failure(host, guarded());
    assert!(error.remedy().contains("does not know the controller secret"), "{error}");
}

#[test]
fn every_hash_and_group_authenticates() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048] {
            let policy = Policy::new(&[hash], &[group]).unwrap();
            let host = InitiatorConfig { host_secret: Some(secret(1)), policy, ..host_config() };
            World::connected(host, guarded(), 1);
        }
    }
}

#[test]
fn a_namespace_that_is_not_there_is_told_so() {
    let host = InitiatorConfig { namespace: NamespaceId(7), ..host_config() };
    let error = failure(host, open_target());
    assert_eq!((error.step, error.reason), (Step::IdentifyDescriptors, Reason::NoSuchNamespace));
}

#[test]
fn a_server_that_is_not_there_is_told_so() {
    let mut world = World::new(host_config(), open_target(), 1);
    world.crash();
    let State::Failed(error) = world.connect() else { panic!("nobody listens") };
    assert_eq!(error.step, Step::OpenConnection(QueueId::ADMIN));
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[test]
fn a_connection_that_takes_for_ever_times_out_in_its_step() {
    let mut world = World::new(host_config(), open_target(), 1);
    world.initiator.start(world.now);
    world.now = world.initiator.next_timeout().unwrap();
    world.initiator.timeout(world.now);
    let expected = InitiatorError { step: Step::OpenConnection(QueueId::ADMIN), reason: Reason::Timeout };
    assert_eq!(*world.initiator.state(), State::Failed(expected));
    assert_eq!(world.initiator.next_timeout(), None);
}

#[test]
fn a_configuration_that_cannot_be_is_refused_before_anything_is_sent() {
    let error = failure(InitiatorConfig { queue_depth: 0, ..host_config() }, open_target());
    assert_eq!(error.step, Step::Configure);
}

#[test]
fn more_queues_and_deeper_ones_than_the_target_has_are_cut_to_what_it_gives() {
    let mut target = open_target();
    target.limits.io_queues = 2;
    target.limits.queue_entries = 32;
    let host = InitiatorConfig { io_queues: 5, queue_depth: 1000, ..host_config() };
    let world = World::connected(host, target, 1);
    assert_eq!(world.events, [Event::Connected { io_queues: 2, queue_depth: 31 }]);
}

#[test]
fn an_idle_connection_stays_alive_with_and_without_keep_alive() {
    for keep_alive in [None, Some(Duration::from_secs(5))] {
        let mut world = World::connected(InitiatorConfig { keep_alive, ..host_config() }, open_target(), 1);
        world.wait(Duration::from_secs(600));
        assert_eq!(*world.initiator.state(), State::Ready);
        assert_eq!(world.initiator.next_timeout().is_some(), keep_alive.is_some());
    }
}

#[test]
fn zones_that_change_by_themselves_are_told_of_again_after_the_list_was_read() {
    let mut world = World::connected(host_config(), open_target(), 1);
    for zone in [3, 5] {
        world.events.clear();
        world.devices[0].degrade(ZoneIndex(zone), ZoneState::ReadOnly);
        let now = world.now;
        world.target.as_mut().unwrap().zones_changed(now, zonda_target::DeviceKey(0));
        world.settle();
        assert_eq!(world.events, [Event::ZonesChanged]);
        let operation = Operation::ReadChangedZones;
        let id = zonda_zoned::CommandId(1);
        world.submit(zonda_zoned::Command { id, namespace: NamespaceId::FIRST, operation });
        world.settle();
        let ended = world.completions.pop().unwrap();
        let Outcome::ChangedZones(list) = ended.outcome else { panic!("{ended:?}") };
        assert_eq!((ended.status, list.zones), (Status::Success, vec![ZoneIndex(zone)]));
    }
}

#[test]
fn a_shutdown_ends_what_is_under_way_and_can_be_followed_by_another_start() {
    let mut world = World::connected(host_config(), open_target(), 1);
    let operation = Operation::Flush;
    let id = zonda_zoned::CommandId(1);
    world.submit(zonda_zoned::Command { id, namespace: NamespaceId::FIRST, operation: operation.clone() });
    let now = world.now;
    world.initiator.shut_down(now);
    world.settle();
    assert_eq!(world.completions.pop().unwrap().status, Status::AbortedPowerLoss);
    assert_eq!((world.initiator.state(), world.queues()), (&State::Closed, vec![]));
    world.submit(zonda_zoned::Command { id, namespace: NamespaceId::FIRST, operation });
    world.settle();
    assert_eq!(world.completions.pop().unwrap().status, Status::NamespaceNotReady);
    assert_eq!(*world.connect(), State::Ready);
}
