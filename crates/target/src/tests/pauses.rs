//! Pauses of a namespace: commands wait, and admin commands do not.

use bytes::Bytes;
use zonda_nvme::fabrics::{Configuration, Property};
use zonda_nvme::log::{ChangedZonePage, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::tcp::Digests;
use zonda_nvme::{SglDescriptor, StatusCode};
use zonda_zoned::{NamespaceId, ZoneIndex, ZoneState};

use super::admin::log;
use super::reservations::EXCLUSIVE;
use super::testbed::{SUBSYSTEM, Testbed, config, conventional, nqn, pattern, read, write, zoned};
use crate::{CloseReason, HostAccess};

const SUCCESS: StatusCode = StatusCode::SUCCESS;

impl Testbed {
    pub(super) fn pause(&mut self) {
        let now = self.now;
        self.change(|target| target.pause_namespace(now, &nqn(SUBSYSTEM), NamespaceId(1))).expect("it exists");
    }

    pub(super) fn unpause(&mut self) {
        let now = self.now;
        self.change(|target| target.resume_namespace(now, &nqn(SUBSYSTEM), NamespaceId(1))).expect("it exists");
    }

    fn is_quiescent(&self) -> bool {
        self.target.is_quiescent(&nqn(SUBSYSTEM), NamespaceId(1))
    }
}

#[test]
fn commands_wait_in_order_until_the_namespace_is_resumed_and_others_do_not() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let io = testbed.io();
    testbed.pause();
    testbed.pause();
    assert!(testbed.is_quiescent());
    testbed.submitted.clear();
    let writes: Vec<u16> = (0..3)
        .map(|i| {
            let (mut entry, data) = testbed.encoded(1, &write(i * 8, 8, i as u8));
            entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
            testbed.start(io, entry, &data)
        })
        .collect();
    let (entry, _) = testbed.encoded(1, &read(8, 8));
    let reading = testbed.start(io, entry, &Bytes::new());
    let solicited = testbed.start_write(io, 24, 8);
    assert_eq!(testbed.r2ts_received(io), 0, "data is not solicited");
    assert_eq!(testbed.operate(io, 2, &write(0, 8, 1)).status, SUCCESS);
    assert_eq!(testbed.submitted, ["write"], "of the other namespace");
    testbed.unpause();
    assert_eq!(testbed.submitted, ["write", "write", "write", "write", "read"]);
    for command in writes {
        assert_eq!(testbed.finish(io, command, Bytes::new()).status, SUCCESS, "sequential writes stay in order");
    }
    assert_eq!(testbed.finish(io, reading, Bytes::new()).data, pattern(8, 512, 1));
    assert_eq!(testbed.finish(io, solicited, pattern(8, 512, 9)).status, SUCCESS);
    testbed.unpause();
}

#[test]
fn a_namespace_is_quiescent_once_its_device_has_completed_all_steps_of_its_commands() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.hold = true;
    let (mut entry, data) = testbed.encoded(1, &write(0, 8, 1));
    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
    entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
    let command = testbed.start(io, entry, &data);
    let on_its_way = testbed.start_write(io, 8, 8);
    assert_eq!(testbed.r2ts_received(io), 1);
    testbed.pause();
    assert!(!testbed.is_quiescent());
    let (device, first) = testbed.held.pop_front().unwrap();
    testbed.complete(device, &first);
    testbed.run_until_idle();
    assert!(!testbed.is_quiescent(), "the flush of a write with FUA follows");
    testbed.release();
    assert!(testbed.is_quiescent());
    assert_eq!(testbed.finish(io, command, Bytes::new()).status, SUCCESS);
    // The host sends its data, and the write waits with it.
    let r2t = testbed.wire(io).pdus.pop_front();
    let Some(zonda_nvme::tcp::Pdu::ReadyToTransfer(r2t)) = r2t else { panic!("an R2T") };
    testbed.wire(io).writer.host_data(on_its_way, r2t.tag.get(), 0, &[pattern(8, 512, 2)], true);
    testbed.push(io);
    assert!(testbed.is_quiescent() && !testbed.answered(io, on_its_way));
    testbed.unpause();
    assert_eq!(testbed.finish(io, on_its_way, Bytes::new()).status, SUCCESS);
}

#[test]
fn admin_commands_are_answered_without_the_device() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.pause();
    testbed.assert_view(admin);
    testbed.submitted.clear();
    testbed.devices[0].degrade(ZoneIndex(3), ZoneState::ReadOnly);
    let zones = |testbed: &mut Testbed| {
        let page = log(testbed, admin, GetLogPage::of(LogPage::ChangedZones, 4096), 1).data;
        ChangedZonePage::parse(&page).unwrap().list(&zoned()).unwrap().zones
    };
    assert_eq!((zones(&mut testbed), testbed.submitted.len()), (vec![], 0));
    // A shutdown flushes once the namespace is resumed.
    let on = Configuration::enabled(Configuration::CSS_ALL).0;
    testbed.set(admin, Property::Configuration, (on | 1 << 14).into());
    testbed.set(admin, Property::Configuration, on.into());
    testbed.set(admin, Property::Configuration, (on | 1 << 14).into());
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 3, 1, "in progress");
    assert!(testbed.submitted.is_empty());
    testbed.unpause();
    assert_eq!(testbed.submitted, ["flush"]);
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 3, 2, "complete");
    assert_eq!(zones(&mut testbed), [ZoneIndex(3)]);
    testbed.close_socket(io);
}

#[test]
fn a_full_queue_waits_and_leaves_nothing_behind_when_its_host_disconnects() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let [lost, kept] = [1, 2].map(|queue| testbed.io_with(controller, queue, Digests::NONE, 0));
    testbed.pause();
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    for _ in 0..32 {
        testbed.start(lost, entry, &Bytes::new());
    }
    let command = testbed.start(kept, entry, &Bytes::new());
    assert_eq!(testbed.target.first_namespace().held().count(), 33);
    testbed.close_socket(lost);
    assert_eq!(testbed.target.first_namespace().held().count(), 1);
    testbed.submitted.clear();
    testbed.unpause();
    assert_eq!(testbed.submitted, ["read"]);
    assert_eq!(testbed.finish(kept, command, Bytes::new()).status, SUCCESS);
    // More than the queue has entries is a protocol error, paused or not.
    testbed.pause();
    for _ in 0..33 {
        testbed.start(kept, entry, &Bytes::new());
    }
    assert!(matches!(testbed.closed.get(&kept), Some(CloseReason::Protocol(_))));
    // A controller that is removed does not wait for a flush.
    let on = Configuration::enabled(Configuration::CSS_ALL).0;
    testbed.set(admin, Property::Configuration, (on | 1 << 14).into());
    testbed.close_socket(admin);
    assert!(testbed.target.first_namespace().held_shutdowns().is_empty());
    testbed.submitted.clear();
    testbed.unpause();
    assert!(testbed.submitted.is_empty());
}

#[test]
fn commands_that_wait_for_a_namespace_end_when_it_is_removed() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.pause();
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    let reading = testbed.start(io, entry, &Bytes::new());
    let (mut entry, data) = testbed.encoded(1, &write(0, 8, 1));
    entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
    let writing = testbed.start(io, entry, &data);
    let on = Configuration::enabled(Configuration::CSS_ALL).0;
    testbed.set(admin, Property::Configuration, (on | 1 << 14).into());
    testbed.remove(1);
    for command in [reading, writing] {
        assert_eq!(testbed.finish(io, command, Bytes::new()).status, StatusCode::INVALID_NAMESPACE);
    }
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 3, 2, "the shutdown needs no flush any more");
    assert_eq!(testbed.removed.len(), 1);
    testbed.target.assert_nothing_waits();
}

#[test]
fn reservation_commands_wait_and_end_with_a_draining_target() {
    for drains in [false, true] {
        let mut testbed = Testbed::new();
        let host = testbed.host(1);
        testbed.register(host);
        testbed.pause();
        let command = zonda_nvme::reservation::ReservationCommand::Acquire {
            action: zonda_nvme::reservation::AcquireAction::Acquire,
            kind: EXCLUSIVE,
        };
        let keys = [u64::to_le_bytes(host.key), [0; 8]].concat();
        let mut entry = Testbed::entry_of(&command);
        entry.data_pointer = SglDescriptor::in_capsule(0, 16);
        let acquiring = testbed.start(host.io, entry, &keys.into());
        assert!(!testbed.answered(host.io, acquiring));
        assert_eq!(testbed.report(host, 4096).kind, None, "nothing has changed");
        if drains {
            let now = testbed.now;
            testbed.change(|target| target.shutdown(now));
            assert!(testbed.target.is_drained());
        } else {
            testbed.unpause();
        }
        let expected = if drains { StatusCode::COMMAND_INTERRUPTED } else { SUCCESS };
        assert_eq!(testbed.finish(host.io, acquiring, Bytes::new()).status, expected);
    }
}
