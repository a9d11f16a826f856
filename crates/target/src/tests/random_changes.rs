//! Random changes of the configuration, for the random tests of hosts.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::SglDescriptor;
use zonda_nvme::reservation::{
    AcquireAction, PersistChange, RegisterAction, ReleaseAction, ReservationCommand, ReservationType,
};
use zonda_zoned::{Geometry, NamespaceId, Prng};

use super::changes::{namespace, only, subsystem};
use super::testbed::{HOST, SUBSYSTEM, Testbed, conventional, nqn, zoned};
use crate::{ConnectionId, HostAccess, NamespaceOptions};

/// The key of every registrant.
const KEY: u64 = 5;

/// Draws changes; the identifiers of namespaces are 1 to 4.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// What hosts see is checked after each change.
    pub(super) checks_view: bool,
    others: u32,
}

impl Changes {
    pub(super) fn with_view() -> Changes {
        Changes { checks_view: true, ..Changes::default() }
    }

    /// Index of the subsystem that hosts use.
    #[allow(clippy::unused_self)] // Reads as a question to the changes.
    pub(super) fn subsystem(&self, testbed: &Testbed) -> usize {
        let subsystems = &testbed.target.config().subsystems;
        subsystems.iter().position(|it| it.nqn.as_str() == SUBSYSTEM).expect("it is added again at once")
    }

    /// One change, or the end of a save.
    pub(super) fn step(&mut self, testbed: &mut Testbed, prng: &mut Prng) {
        let (now, name) = (testbed.now, nqn(SUBSYSTEM));
        let id = NamespaceId(1 + prng.below(4) as u32);
        let zoned_or_not = if prng.chance(2, 3) { zoned() } else { conventional() };
        let saves = prng.chance(1, 2).then(Bytes::new);
        let options = NamespaceOptions { is_write_protected: prng.chance(1, 8), saved_reservations: saves };
        // Errors are part of the test: the namespace may not exist, or exist already.
        match prng.below(40) {
            0..=7 => {
                let device = testbed.device(&zoned_or_not);
                let config = namespace(id.0, device, &zoned_or_not);
                let _ = testbed.change(|target| target.add_namespace(now, &name, config, options));
            }
            8..=13 => {
                let _ = testbed.change(|target| target.remove_namespace(now, &name, id));
            }
            14..=19 => {
                let _ = testbed.change(|target| target.pause_namespace(now, &name, id));
            }
            20..=26 => {
                let _ = testbed.change(|target| target.resume_namespace(now, &name, id));
            }
            27..=28 => {
                let zone_count = 1 + prng.below(12) as u32;
                let before = testbed.geometry(id.0);
                let conventional_zone_count = if before.conventional_zone_count > 0 { zone_count } else { 0 };
                let geometry = Geometry { zone_count, conventional_zone_count, ..before };
                let _ = testbed.resize(id.0, &geometry);
            }
            29 => {
                // Hosts are cut off, and may connect again.
                let allowed = *prng.pick(&[HOST, "nqn.2024-01.org.example:unlisted"]).expect("one of two");
                testbed.set_hosts(only(&[allowed]));
                testbed.set_hosts(HostAccess::Any);
            }
            30 => {
                testbed.remove_subsystem(SUBSYSTEM);
                let device = testbed.device(&zoned());
                let config = subsystem(SUBSYSTEM, vec![namespace(id.0, device, &zoned())], HostAccess::Any);
                let options = BTreeMap::from([(id, options)]);
                testbed.change(|target| target.add_subsystem(now, config, options)).expect("the name is free");
            }
            31 => {
                // Another subsystem comes, and the oldest other one goes.
                self.others += 1;
                let other = subsystem(&format!("{SUBSYSTEM}-{}", self.others), vec![], HostAccess::Any);
                testbed.change(|target| target.add_subsystem(now, other, BTreeMap::new())).expect("a new name");
                let oldest = self.others.saturating_sub(3);
                let _ = testbed.change(|target| target.remove_subsystem(now, &nqn(&format!("{SUBSYSTEM}-{oldest}"))));
            }
            _ if !testbed.saving.is_empty() => testbed.complete_save(prng.chance(7, 8)),
            _ => {}
        }
    }

    /// Resumes all namespaces, and completes all saves.
    pub(super) fn finish(testbed: &mut Testbed) {
        for id in 1..=4 {
            let now = testbed.now;
            let _ = testbed.change(|target| target.resume_namespace(now, &nqn(SUBSYSTEM), NamespaceId(id)));
        }
        testbed.hold_saves = false;
        while !testbed.saving.is_empty() {
            testbed.complete_save(true);
        }
    }
}

/// Sends a reservation command, with its keys in the capsule or not.
pub(super) fn reserve(testbed: &mut Testbed, queue: ConnectionId, prng: &mut Prng) {
    let persist = *prng.pick(&[PersistChange::Keep, PersistChange::Set, PersistChange::Set]).expect("one of three");
    let kind = ReservationType::ExclusiveAccess;
    let command = match prng.below(6) {
        0..=2 => ReservationCommand::Register { action: RegisterAction::Register, ignores_key: true, persist },
        3 => ReservationCommand::Acquire { action: AcquireAction::Acquire, kind },
        4 => ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, kind },
        _ => ReservationCommand::Release { action: ReleaseAction::Release, kind_code: kind.code() },
    };
    let bytes = if matches!(command, ReservationCommand::Release { .. }) { 8 } else { 16 };
    let keys = Bytes::from([KEY.to_le_bytes(), KEY.to_le_bytes()].concat()).slice(..bytes);
    let mut entry = Testbed::entry_of(&command);
    entry.namespace = (1 + prng.below(4) as u32).into();
    let in_capsule = prng.chance(3, 4);
    let length = bytes as u32;
    entry.data_pointer =
        if in_capsule { SglDescriptor::in_capsule(0, length) } else { SglDescriptor::transport(length) };
    let capsule = if in_capsule { keys } else { Bytes::new() };
    testbed.start(queue, entry, &capsule);
}
