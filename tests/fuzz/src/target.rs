//! A target with hosts that send anything, and devices that store all data: it stays within its
//! limits, conforms to the protocol, and keeps nothing of closed connections.
//!
//! ```text
//! 0 initial state: 1..0 ready controllers, 3..2 their digests, 4 devices hold commands   1.. events, see event
//! ```

pub(crate) mod exports;
mod host;
mod requests;
mod testbed;

use zonda_nvme::Nqn;
use zonda_nvme::fabrics::{CONTROLLER_ID_DYNAMIC, Configuration, Property, PropertyCommand};
use zonda_nvme::tcp::Digests;
use zonda_target::DeviceHealth;
use zonda_zoned::{Duration, ZoneIndex, ZoneState};

use crate::Seed;
use crate::feed::{Feed, seed_of};
use testbed::{HOSTS, SUBSYSTEMS, Testbed};

/// Events of one input: more find nothing that another input does not.
const EVENTS_MAX: usize = 200;
/// Concurrent connections; the target's own limit may be lower.
const WIRES_MAX: usize = 8;
/// Longer than every timer of the target.
const VERY_LONG: Duration = Duration::from_secs(2 * 3600);

pub(crate) fn run(input: &[u8]) {
    finish(&mut play(input));
}

/// Runs the events of an input; returns the testbed after them.
fn play(input: &[u8]) -> Testbed {
    let mut feed = Feed::new(input);
    let start = feed.u8();
    let mut testbed = Testbed::new(seed_of(input));
    for _ in 0..start & 3 {
        ready_controller(&mut testbed, Digests::from_code(start >> 2 & 3));
    }
    testbed.hold = start & 0x10 != 0;
    for _ in 0..EVENTS_MAX {
        if feed.is_empty() {
            break;
        }
        event(&mut testbed, &mut feed);
    }
    testbed
}

/// A controller that is enabled, with one I/O queue.
fn ready_controller(testbed: &mut Testbed, digests: Digests) {
    // The second one belongs to another host.
    let name = HOSTS[testbed.controllers().len() / 2 % HOSTS.len()];
    let Some(admin) = testbed.open() else { return };
    testbed.host(admin, |host| host.initialize(digests, 0, 1));
    testbed.host(admin, |host| host.connect(0, CONTROLLER_ID_DYNAMIC, SUBSYSTEMS[0], name, 0, 5000));
    let on = Configuration::enabled(Configuration::CSS_ALL).0;
    testbed.host(admin, |host| host.send(PropertyCommand::set(Property::Configuration, on.into()).into()));
    let controller = testbed.wires[admin].host.controller_id;
    let Some(io) = testbed.open() else { return };
    testbed.host(io, |host| host.initialize(digests, 0, 1));
    testbed.host(io, |host| host.connect(1, controller, SUBSYSTEMS[0], name, 0, 0));
}

/// Runs one event.
fn event(testbed: &mut Testbed, feed: &mut Feed<'_>) {
    let kind = feed.below(20);
    if kind == 0 {
        if testbed.wires.len() < WIRES_MAX {
            testbed.open();
        }
        return;
    }
    if kind <= 14 {
        if testbed.wires.is_empty() {
            return;
        }
        let wire = feed.below(testbed.wires.len());
        of_a_host(testbed, wire, kind, feed);
        return;
    }
    match kind {
        15 => {
            let span = match feed.u8() {
                0 => testbed.until_timeout(),
                units => Duration::from_millis(u64::from(units) * 100),
            };
            testbed.pass(span);
        }
        16 => testbed.release(usize::from(feed.u8() >> 1), feed.u8() & 1 != 0),
        17 => testbed.hold = !testbed.hold,
        18 => of_a_device(testbed, feed),
        _ => {
            // Rare, since few events have an effect after it.
            if feed.u8() == 0xff {
                testbed.drain();
            }
        }
    }
}

/// An event of a host on one of its connections.
fn of_a_host(testbed: &mut Testbed, wire: usize, kind: usize, feed: &mut Feed<'_>) {
    match kind {
        1 => {
            let (digests, alignment, r2t_max) = (feed.u8(), feed.pick(&[0, 1, 31, 32, 255]), feed.u16());
            testbed.host(wire, |host| host.initialize(Digests::from_code(digests), alignment, r2t_max.into()));
        }
        2 => {
            let queue = feed.pick(&[0, 1, 2, 3, 100, 0xffff]);
            let known = testbed.controllers();
            let controller = match feed.u8() {
                0 => CONTROLLER_ID_DYNAMIC,
                place if known.is_empty() => place.into(),
                place => known[usize::from(place) % known.len()],
            };
            let (subsystem, host_name) = (feed.pick(&SUBSYSTEMS), feed.pick(&HOSTS));
            let (attributes, timeout) = (feed.u8() & 0x0f, feed.pick(&[0, 1, 1000, 5000, u32::MAX]));
            testbed.host(wire, |host| host.connect(queue, controller, subsystem, host_name, attributes, timeout));
        }
        3 => {
            let (property, set, word) = (feed.u8(), feed.u8(), feed.u16());
            testbed.host(wire, |host| host.send(requests::property(property, set, word)));
        }
        4 | 5 => {
            let entry = requests::admin(feed);
            testbed.host(wire, |host| host.send(entry));
        }
        6..=9 => {
            let (entry, data) = requests::io(feed, kind == 6);
            let in_capsule = feed.u8() & 1 != 0;
            testbed.host(wire, |host| host.send_with(entry, data, in_capsule));
        }
        10 => {
            let how = feed.u8();
            let change = feed.u16();
            testbed.host(wire, |host| host.answer(how, change));
        }
        11 => {
            let bytes = feed.stretch(600).to_vec();
            testbed.raw(wire, bytes);
        }
        12 => {
            let changes = 1 + feed.below(4);
            let changes = feed.take(3 * changes).to_vec();
            testbed.wires[wire].changes.extend(changes);
        }
        13 => match feed.u8() & 3 {
            0 => testbed.thaw(wire, usize::MAX),
            1 => testbed.thaw(wire, feed.u16().into()),
            2 => testbed.wires[wire].frozen = true,
            _ => testbed.host(wire, |host| host.answers_r2ts = !host.answers_r2ts),
        },
        _ => match feed.u8() & 7 {
            0 => testbed.close_socket(wire),
            1 => testbed.host(wire, host::Host::disconnect),
            knowledge => testbed.host(wire, |host| host.authenticate(knowledge)),
        },
    }
}

fn of_a_device(testbed: &mut Testbed, feed: &mut Feed<'_>) {
    let device = feed.below(testbed.devices.len());
    match feed.u8() & 3 {
        0 => testbed.zones_changed(device),
        1 => {
            let spare_percent = feed.u8() % 101;
            let health = DeviceHealth { spare_percent, degraded: spare_percent < 50, ..DeviceHealth::default() };
            testbed.set_health(device, health);
        }
        2 => testbed.namespace_changed(device),
        _ => {
            let zone = ZoneIndex(u32::from(feed.u8() & 7));
            let state = if feed.u8() & 1 == 0 { ZoneState::ReadOnly } else { ZoneState::Offline };
            testbed.degrade(device, zone, state);
        }
    }
}

/// Disconnects all hosts, and checks that nothing is left.
fn finish(testbed: &mut Testbed) {
    while !testbed.wires.is_empty() {
        testbed.close_socket(0);
    }
    testbed.release(usize::MAX, false);
    testbed.pass(VERY_LONG);
    let left = testbed.target.statistics();
    assert_eq!(
        (left.connections, left.half_open, left.commands_at_devices),
        (0, 0, 0),
        "nothing is left of closed connections"
    );
    assert_eq!(left.controllers, 0, "no controller outlives its admin queue");
    testbed.drain();
    assert!(testbed.target.is_drained());
}

pub(crate) fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("valid NQN")
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name: &str, start: u8, events: &[&[u8]]| {
        seeds.push((name.to_owned(), [&[start][..], &events.concat()].concat()));
    };
    // A write, an append, a read, a compare and a zone report on the I/O queue, by R2T and in the
    // capsule.
    let io: [&[u8]; 5] = [
        &[7, 1, 1, 0, 0, 3, 0, 0],
        &[7, 1, 2, 0, 1, 3, 0, 0],
        &[7, 1, 0, 0, 0, 3, 0, 0],
        &[7, 1, 3, 0, 0, 3, 0, 0],
        &[7, 1, 9, 0, 0, 3, 0, 0],
    ];
    for digests in 0..4u8 {
        add(&format!("input-and-output-{digests}"), 1 | digests << 2, &io);
    }
    for operation in 0..16u8 {
        for in_capsule in 0..2u8 {
            add(&format!("operation-{operation}-{in_capsule}"), 1, &[&[7, 1, operation, 0, 1, 2, 0, in_capsule]]);
        }
    }
    for command in 0..10u8 {
        add(&format!("admin-{command}"), 1, &[&[4, 0, command, 1, 0, 0, 0], &[4, 0, command, 2, 2, 0, 0]]);
    }
    add("held-and-released", 0x11, &[io[0], io[2], &[16, 255, 1], &[16, 255, 0]]);
    // The last namespace can persist reservations: a persistent registration, the reservation, a
    // report, a preemption by another host, a release.
    let registers: [u8; 8] = [7, 1, 13, 3, 0, 0xc0, 1, 1];
    let acquires: [u8; 8] = [7, 1, 10, 3, 2, 0, 0x11, 1];
    let reports: [u8; 8] = [7, 1, 12, 3, 0, 7, 0, 0];
    let preempts: [&[u8]; 2] = [&[7, 3, 13, 3, 0, 0, 2, 1], &[7, 3, 10, 3, 4, 1, 0x21, 1]];
    let releases: [u8; 8] = [7, 3, 11, 3, 4, 0, 2, 1];
    let reserve: [&[u8]; 6] = [&registers, &acquires, &reports, preempts[0], preempts[1], &releases];
    add("reservations", 2, &reserve);
    add("reservations-held", 0x12, &[&registers, &acquires, &[16, 8, 0], preempts[0], &[16, 8, 1], &[16, 8, 0]]);
    add("frozen", 2, &[&[13, 1, 2], io[0], io[2], io[2], &[13, 1, 1, 0, 1], &[13, 1, 0]]);
    add("two-hosts-and-one-vanishes", 0x12, &[io[0], &[7, 3, 1, 0, 2, 3, 0, 0], &[14, 0, 0], &[16, 255, 0]]);
    add("slow-data", 1, &[&[13, 1, 3], io[0], &[10, 1, 0, 0, 0], &[10, 1, 1, 4, 0], &[10, 1, 2, 9, 0]]);
    add("time-passes", 1, &[&[15, 0], &[15, 0], &[15, 200]]);
    add("raw", 0, &[&[0], &[11, 0, 8, 0, 0, 0, 128, 0, 128, 0, 0, 0], &[15, 0]]);
    add("changed", 1, &[&[12, 1, 0, 0, 0, 6], io[0], &[12, 0, 1, 4, 0, 9, 70, 0, 1], &[4, 0, 0, 1, 0, 0, 0]]);
    add(
        "discovery",
        0,
        &[&[0], &[1, 0, 0, 0, 0, 0], &[2, 0, 0, 0, 2, 0, 0, 0], &[3, 0, 2, 1, 1, 0], &[4, 0, 1, 6, 0, 0, 0]],
    );
    for knowledge in 2..6u8 {
        let step: &[u8] = &[14, 0, knowledge];
        let connect: &[u8] = &[2, 0, 0, 0, 1, 0, 0, 2];
        add(
            &format!("authentication-{knowledge}"),
            0,
            &[&[0], &[1, 0, 0, 0, 0, 0], connect, step, step, step, step, step],
        );
    }
    add("devices", 1, &[&[4, 0, 5, 0, 0, 0, 0], &[18, 0, 3, 1, 0], &[18, 0, 0], &[18, 0, 1, 5], &[18, 1, 2]]);
    add("drain", 0x11, &[io[0], &[19, 255], &[16, 255, 0]]);
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testbed_after(name: &str) -> Testbed {
        let seeds = seeds();
        let (_, input) = seeds.iter().find(|(known, _)| known == name).expect("a known seed");
        play(input)
    }

    #[test]
    fn commands_of_seeds_reach_the_devices_and_complete() {
        for digests in 0..4 {
            let testbed = testbed_after(&format!("input-and-output-{digests}"));
            let found = testbed.target.statistics();
            assert_eq!((found.controllers_created, found.protocol_errors, found.connects_refused), (1, 0, 0));
            assert!(found.commands >= 6 && found.bytes_received > 0, "{found:?}");
        }
    }

    #[test]
    fn a_host_with_the_secret_is_authenticated_and_another_is_not() {
        for (knowledge, failures) in [(2, 0), (3, 0), (4, 1), (5, 1)] {
            let testbed = testbed_after(&format!("authentication-{knowledge}"));
            let found = testbed.target.statistics();
            assert_eq!(
                (found.controllers_created, found.authentication_failures),
                (1, failures),
                "{knowledge} {found:?}"
            );
        }
    }

    #[test]
    fn commands_that_devices_hold_stay_outstanding() {
        let testbed = testbed_after("drain");
        assert_eq!(testbed.target.statistics().protocol_errors, 0);
        let testbed = testbed_after("two-hosts-and-one-vanishes");
        assert_eq!(testbed.target.statistics().controllers_created, 2);
    }

    #[test]
    fn reservations_of_two_hosts_are_saved_and_a_failed_save_changes_nothing() {
        let testbed = testbed_after("reservations");
        let found = testbed.target.statistics();
        assert_eq!((found.errors, found.protocol_errors), (0, 0), "{found:?}");
        assert_eq!(testbed.target.reservation_changes(), 5, "two registrations, acquired, preempted, released");
        // The save of the acquisition fails at the device; those of the registrations before and
        // after it do not.
        let testbed = testbed_after("reservations-held");
        assert_eq!((testbed.target.reservation_changes(), testbed.target.statistics().errors), (2, 1));
    }
}
