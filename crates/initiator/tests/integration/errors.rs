//! The errors when connecting fails, because of zonda's target or the network.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::testbed::{HOST, Testbed, host_config, nqn, target_config};
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
    match Testbed::new(host, target, 1).connect() {
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
fn a_host_that_is_not_allowed_gets_the_reason() {
    let error = failure(host_config(), target_config(&[geometry()], HostAccess::Hosts(vec![])));
    assert!(matches!(error.reason, Reason::Status { status: StatusCode::CONNECT_INVALID_HOST, .. }), "{error}");
    assert!(error.is_permanent());
}

#[test]
fn a_missing_secret_and_a_wrong_one_are_distinguished() {
    let error = failure(host_config(), guarded());
    assert_eq!((error.step, error.reason), (Step::Authenticate(QueueId::ADMIN), Reason::SecretMissing));
    let error = failure(InitiatorConfig { host_secret: Some(secret(9)), ..host_config() }, guarded());
    assert!(error.remedy().contains("rejected this host's secret"), "{error}");
    assert!(error.is_permanent());
}

#[test]
fn a_controller_with_a_wrong_secret_is_not_trusted() {
    let host = InitiatorConfig { host_secret: Some(secret(1)), controller_secret: Some(secret(9)), ..host_config() };
    let error = failure(host, guarded());
    assert!(error.remedy().contains("has a different controller secret"), "{error}");
}

#[test]
fn every_hash_and_group_authenticates() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048] {
            let policy = Policy::new(&[hash], &[group]).unwrap();
            let host = InitiatorConfig { host_secret: Some(secret(1)), policy, ..host_config() };
            Testbed::connected(host, guarded(), 1);
        }
    }
}

#[test]
fn a_missing_namespace_is_reported() {
    let host = InitiatorConfig { namespace: NamespaceId(7), ..host_config() };
    let error = failure(host, open_target());
    assert_eq!((error.step, error.reason), (Step::IdentifyDescriptors, Reason::NoSuchNamespace));
}

#[test]
fn a_refused_connection_is_reported() {
    let mut testbed = Testbed::new(host_config(), open_target(), 1);
    testbed.crash();
    let State::Failed(error) = testbed.connect() else { panic!("no server listens") };
    assert_eq!(error.step, Step::OpenConnection(QueueId::ADMIN));
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[test]
fn a_connection_that_hangs_times_out_in_its_step() {
    let mut testbed = Testbed::new(host_config(), open_target(), 1);
    testbed.initiator.start(testbed.now);
    testbed.now = testbed.initiator.next_timeout().unwrap();
    testbed.initiator.on_timeout(testbed.now);
    let expected = InitiatorError { step: Step::OpenConnection(QueueId::ADMIN), reason: Reason::Timeout };
    assert_eq!(*testbed.initiator.state(), State::Failed(expected));
    assert_eq!(testbed.initiator.next_timeout(), None);
}

#[test]
fn an_invalid_configuration_is_refused_before_anything_is_sent() {
    let error = failure(InitiatorConfig { queue_depth: 0, ..host_config() }, open_target());
    assert_eq!(error.step, Step::Configure);
}

#[test]
fn number_and_depth_of_queues_are_limited_to_those_of_the_target() {
    let mut target = open_target();
    target.limits.io_queues = 2;
    target.limits.queue_entries = 32;
    let host = InitiatorConfig { io_queues: 5, queue_depth: 1000, ..host_config() };
    let testbed = Testbed::connected(host, target, 1);
    assert_eq!(testbed.events, [Event::Connected { io_queues: 2, queue_depth: 31 }]);
}

#[test]
fn an_idle_connection_stays_alive_with_and_without_keep_alive() {
    for keep_alive in [None, Some(Duration::from_secs(5))] {
        let mut testbed = Testbed::connected(InitiatorConfig { keep_alive, ..host_config() }, open_target(), 1);
        testbed.wait(Duration::from_secs(600));
        assert_eq!(*testbed.initiator.state(), State::Ready);
        assert_eq!(testbed.initiator.next_timeout().is_some(), keep_alive.is_some());
    }
}

#[test]
fn changed_zones_are_reported_again_after_the_list_was_read() {
    let mut testbed = Testbed::connected(host_config(), open_target(), 1);
    for zone in [3, 5] {
        testbed.events.clear();
        testbed.devices[0].degrade(ZoneIndex(zone), ZoneState::ReadOnly);
        let now = testbed.now;
        testbed.target.as_mut().unwrap().on_zones_changed(now, zonda_target::DeviceKey(0));
        testbed.run_until_idle();
        assert_eq!(testbed.events, [Event::ZonesChanged]);
        let operation = Operation::ReadChangedZones;
        let id = zonda_zoned::CommandId(1);
        testbed.submit(zonda_zoned::Command::new(id, NamespaceId::FIRST, operation));
        testbed.run_until_idle();
        let ended = testbed.completions.pop().unwrap();
        let Outcome::ChangedZones(list) = ended.outcome else { panic!("{ended:?}") };
        assert_eq!((ended.status, list.zones), (Status::Success, vec![ZoneIndex(zone)]));
    }
}

#[test]
fn a_shutdown_ends_commands_in_flight_and_can_be_followed_by_another_start() {
    let mut testbed = Testbed::connected(host_config(), open_target(), 1);
    let operation = Operation::Flush;
    let id = zonda_zoned::CommandId(1);
    testbed.submit(zonda_zoned::Command::new(id, NamespaceId::FIRST, operation.clone()));
    let now = testbed.now;
    testbed.initiator.shutdown(now);
    testbed.run_until_idle();
    assert_eq!(testbed.completions.pop().unwrap().status, Status::AbortedPowerLoss);
    assert_eq!((testbed.initiator.state(), testbed.queues()), (&State::Closed, vec![]));
    testbed.submit(zonda_zoned::Command::new(id, NamespaceId::FIRST, operation));
    testbed.run_until_idle();
    assert_eq!(testbed.completions.pop().unwrap().status, Status::NamespaceNotReady);
    assert_eq!(*testbed.connect(), State::Ready);
}
