//! Discovery against zonda's target.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use crate::testbed::{HOST, SUBSYSTEM, nqn, target_config};
use bytes::Bytes;
use proptest::prelude::*;
use zonda_initiator::{Discovery, Effect, InitiatorConfig, InitiatorError, QueueId, Reason, Step};
use zonda_nvme::Nqn;
use zonda_nvme::discovery::SubsystemKind;
use zonda_nvme::tcp::Digests;
use zonda_target::{HostAccess, Portal, Target, TargetConfig};
use zonda_zoned::{Blocks, Geometry, Instant};

fn config() -> InitiatorConfig {
    InitiatorConfig::new(nqn(HOST), Nqn::discovery(), [7; 32])
}

/// Runs a discovery to its end, in chunks of a few bytes; `change` may change the bytes to the
/// host.
fn discover(
    config: InitiatorConfig,
    target: TargetConfig,
    change: impl Fn(usize, &mut Vec<u8>),
) -> Result<Vec<zonda_initiator::Discovered>, InitiatorError> {
    let mut target = Target::new(target).unwrap();
    let mut discovery = Discovery::new(config);
    let mut now = Instant(1);
    let mut connection = None;
    let mut chunks = 0;
    discovery.start(now);
    for _ in 0..10_000 {
        let mut moved = false;
        while let Some(effect) = discovery.poll_effect() {
            moved = true;
            match effect {
                Effect::Connect { queue } => {
                    connection = target.on_connect(now, 0, "192.0.2.9:1");
                    discovery.on_connect(now, queue);
                }
                Effect::Send { pieces, .. } => {
                    for byte in pieces.concat().chunks(7) {
                        target.on_bytes(now, connection.unwrap(), Bytes::copy_from_slice(byte));
                    }
                }
                Effect::Close { .. } => target.on_disconnect(now, connection.unwrap()),
                Effect::Event(event) => panic!("{event}"),
            }
        }
        while let Some(effect) = target.poll_effect() {
            match effect {
                zonda_target::Effect::Send { pieces, .. } => {
                    moved = true;
                    for chunk in pieces.concat().chunks(13) {
                        let mut chunk = chunk.to_vec();
                        change(chunks, &mut chunk);
                        chunks += 1;
                        target.on_sent(now, connection.unwrap(), chunk.len());
                        discovery.on_bytes(now, QueueId::ADMIN, chunk.into());
                    }
                }
                zonda_target::Effect::Close { .. } => discovery.on_disconnect(now, QueueId::ADMIN, "closed"),
                _ => {}
            }
        }
        if let Some(result) = discovery.result()
            && !moved
        {
            return result.clone();
        }
        if !moved {
            now = discovery.next_timeout().expect("a discovery ends");
            discovery.on_timeout(now);
        }
    }
    panic!("the discovery does not end: {}", discovery.step());
}

fn target() -> TargetConfig {
    let geometry = Geometry { max_transfer_blocks: Blocks(16), max_append_blocks: Blocks(16), ..Geometry::tiny() };
    let mut config = target_config(&[geometry], HostAccess::Any);
    for i in 0..7 {
        let mut other = config.subsystems[0].clone();
        other.nqn = nqn(&format!("{SUBSYSTEM}-{i}"));
        config.subsystems.push(other);
    }
    config.portals.push(Portal { address: "2001:db8::1".to_owned(), service: "4421".to_owned() });
    config
}

#[test]
fn every_subsystem_is_found_with_every_address() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let found = discover(InitiatorConfig { digests, ..config() }, target(), |_, _| {}).unwrap();
        let drives: Vec<_> = found.iter().filter(|it| it.kind == Some(SubsystemKind::Nvm)).collect();
        assert_eq!(drives.len(), 16);
        for i in 0..7 {
            let name = nqn(&format!("{SUBSYSTEM}-{i}"));
            let mut at: Vec<_> = drives.iter().filter(|it| it.subsystem_nqn == name).collect();
            at.sort_by(|a, b| a.service.cmp(&b.service));
            assert_eq!((&*at[0].address, &*at[0].service), ("192.0.2.1", "4420"));
            assert_eq!((&*at[1].address, &*at[1].service), ("2001:db8::1", "4421"));
        }
    }
}

#[test]
fn a_server_without_subsystems_has_none() {
    let found = discover(config(), TargetConfig { subsystems: vec![], ..target() }, |_, _| {}).unwrap();
    assert!(found.iter().all(|it| it.kind != Some(SubsystemKind::Nvm)));
}

#[test]
fn a_drive_is_not_a_discovery_service() {
    let error = discover(InitiatorConfig { subsystem_nqn: nqn(SUBSYSTEM), ..config() }, target(), |_, _| {});
    let error = error.expect_err("a drive has no discovery log");
    assert_eq!(error.step, Step::ReadDiscoveryLog);
    assert!(matches!(error.reason, Reason::Status { .. }));
}

#[test]
fn a_refused_connection_is_an_error_of_the_first_step() {
    let mut discovery = Discovery::new(config());
    discovery.start(Instant(1));
    assert_eq!(discovery.poll_effect(), Some(Effect::Connect { queue: QueueId::ADMIN }));
    discovery.on_disconnect(Instant(2), QueueId::ADMIN, "connection refused");
    let Some(Err(error)) = discovery.result() else { panic!("{:?}", discovery.result()) };
    assert_eq!(error.step, Step::OpenConnection(QueueId::ADMIN));
    assert_eq!((discovery.poll_effect(), discovery.next_timeout()), (None, None));
}

#[test]
fn only_the_first_disconnect_of_its_own_connection_ends_a_discovery() {
    let mut discovery = Discovery::new(config());
    discovery.start(Instant(1));
    discovery.on_disconnect(Instant(2), QueueId(1), "connection reset by peer");
    assert_eq!(discovery.result(), None, "a discovery has one queue");
    for why in ["connection refused", "broken pipe"] {
        discovery.on_disconnect(Instant(3), QueueId::ADMIN, why);
        let Some(Err(error)) = discovery.result() else { panic!("{:?}", discovery.result()) };
        let expected = Reason::Connection { queue: QueueId::ADMIN, why: "connection refused".to_owned() };
        assert_eq!(error.reason, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_changed_byte_anywhere_never_panics(place in 0..2500usize, byte in any::<u8>()) {
        let _ = discover(config(), target(), |chunk, bytes| {
            if chunk == place {
                let at = place % 13 % bytes.len();
                bytes[at] = byte;
            }
        });
    }
}
