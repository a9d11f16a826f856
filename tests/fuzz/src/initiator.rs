//! An initiator, or a discovery, against an untrusted controller: a real target, with an attacker
//! on the path that changes, drops, repeats and forges its bytes. Every command completes once,
//! whatever is received.
//!
//! ```text
//! 0 which side: 1..0 digests, 2 with secrets, 3 reconnects, 4 two I/O queues, 6..5 order, 7 discovery   1 namespace
//! 2.. events, see event
//! ```

mod net;

use zonda_chap::{Group, Hash, Policy};
use zonda_initiator::{Initiator, InitiatorConfig, Order};
use zonda_nvme::tcp::Digests;
use zonda_zoned::{Duration, NamespaceId};

use crate::Seed;
use crate::feed::{Feed, seed_of};
use crate::operations::operation;
use crate::shapes;
use crate::target::exports::{HOSTS, SUBSYSTEMS, secret};
use crate::target::name;
use net::{Attack, Machine, Net};

/// Events of one input.
const EVENTS_MAX: usize = 200;

pub(crate) fn run(input: &[u8]) {
    play(input).finish();
}

/// The events of an input, and the network after them.
fn play(input: &[u8]) -> Net {
    let mut feed = Feed::new(input);
    let (options, namespace) = (feed.u8(), feed.u8());
    let config = config(options, namespace, seed_of(input));
    let machine = if options & 0x80 == 0 { Machine::initiator(config) } else { Machine::discovery(config) };
    let mut net = Net::new(machine, seed_of(input));
    net.attacks = attacks(&mut feed);
    net.start();
    for _ in 0..EVENTS_MAX {
        if feed.is_empty() {
            break;
        }
        event(&mut net, &mut feed);
    }
    net
}

fn config(options: u8, namespace: u8, seed: [u8; 32]) -> InitiatorConfig {
    let subsystem = match options >> 2 & 0x21 {
        0x20 => SUBSYSTEMS[2],
        1 | 0x21 => SUBSYSTEMS[1],
        _ => SUBSYSTEMS[0],
    };
    let mut config = InitiatorConfig::new(name(HOSTS[0]), name(subsystem), seed);
    config.namespace = NamespaceId(u32::from(namespace % 5).max(1));
    config.digests = Digests::from_code(options & 3);
    if options & 4 != 0 {
        (config.host_secret, config.controller_secret) = (Some(secret(1)), Some(secret(2)));
    }
    // Without Diffie-Hellman, since an exponentiation takes more time than everything else
    // together.
    config.policy = Policy::new(&Hash::ALL, &[Group::Null]).expect("a valid policy");
    config.reconnect = (options & 8 != 0).then_some(Duration::from_millis(10));
    config.io_queues = 1 + u16::from(options >> 4 & 1);
    config.order = [None, Some(Order::Arrival), Some(Order::Completion), None][usize::from(options >> 5 & 3)];
    config.queue_depth = 16;
    config.transfer_bytes_max = 8192;
    config
}

/// The attacks, chosen before the first byte: each after so many bytes from the target.
fn attacks(feed: &mut Feed<'_>) -> Vec<(usize, Attack)> {
    let count = feed.below(8);
    let mut attacks = Vec::new();
    for _ in 0..count {
        let gap = usize::from(feed.u16() & 0x3fff);
        let attack = match feed.below(8) {
            0 | 1 => Attack::Set(feed.u8()),
            2 => Attack::Flip(feed.u8()),
            3 => Attack::Number(feed.array()),
            4 => Attack::Insert(feed.stretch(400).to_vec()),
            5 => Attack::Drop(feed.u8().into()),
            6 => Attack::Repeat(feed.u8().into()),
            _ => Attack::Cut,
        };
        attacks.push((gap, attack));
    }
    attacks
}

fn event(net: &mut Net, feed: &mut Feed<'_>) {
    match feed.below(16) {
        0..=8 => {
            let geometry = net.geometry().unwrap_or_else(shapes::zoned);
            let operation = operation(feed, &geometry);
            net.submit(operation);
        }
        9 => net.pass(match feed.u8() {
            0 => net.until_timeout(),
            units => Duration::from_millis(u64::from(units) * 50),
        }),
        10 => net.hold = !net.hold,
        11 => net.release(usize::from(feed.u8() >> 1), feed.u8() & 1 != 0),
        12 => {
            let (queue, bytes) = (feed.u8(), feed.stretch(400).to_vec());
            net.inject(queue.into(), bytes);
        }
        13 => net.disconnect(feed.u8().into()),
        14 => net.degrade(feed.u8()),
        _ => match feed.u8() {
            0xff => net.shutdown(),
            0xfe => net.refuse = !net.refuse,
            _ => net.start_again(),
        },
    }
}

impl Machine {
    fn initiator(config: InitiatorConfig) -> Machine {
        Machine::Initiator(Box::new(Initiator::new(config)))
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    // Every kind of operation in zones that an append has made active, and in others.
    let commands: Vec<u8> = (0..16u8).flat_map(|kind| [0, 0x10 | kind, kind % 4, kind % 3]).collect();
    let mut add = |name: String, head: &[u8], events: &[u8]| seeds.push((name, [head, events].concat()));
    for options in [0, 1, 2, 3, 4, 8, 0x10, 0x20, 0x40] {
        for namespace in 1..4 {
            add(format!("good-{options}-{namespace}"), &[options, namespace, 0], &commands);
        }
    }
    add("discovery".to_owned(), &[0x80, 0, 0], &[]);
    add("discovery-with-digests".to_owned(), &[0x83, 0, 0], &[]);
    // During each step of connecting, and after it.
    for gap in [2u16, 10, 136, 144, 150, 170, 250, 400, 1000, 3000, 5000, 9000, 13000] {
        let [low, high] = gap.to_le_bytes();
        add(format!("set-{gap}"), &[0, 1, 1, low, high, 0, 0xff], &commands);
        add(format!("discovery-set-{gap}"), &[0x80, 1, 1, low, high, 0, 0xff], &[]);
        add(format!("number-{gap}"), &[8, 1, 1, low, high, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x80], &commands);
        add(format!("drop-{gap}"), &[8, 1, 1, low, high, 5, 24], &[9, 0, 9, 0]);
    }
    let r2t = [9, 0, 24, 0, 24, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
    let response = [5, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    for (kind, pdu) in [("r2t", r2t), ("response", response)] {
        add(format!("made-up-{kind}"), &[0, 1, 0], &[&commands[..8], &[12, 1, 24, 0], &pdu].concat());
    }
    add("held-and-lost".to_owned(), &[8, 1, 0], &[&[10], &commands[..], &[13, 1, 9, 1, 11, 255, 0, 9, 0]].concat());
    add("degraded".to_owned(), &[0, 1, 0], &[14, 3, 14, 4, 0, 0x10, 3, 0]);
    add("shut-down".to_owned(), &[0, 1, 0], &[&commands[..8], &[15, 0xff, 15, 0], &commands[..8]].concat());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_without_attacks_connect_and_their_commands_succeed() {
        for (name, input) in seeds().iter().filter(|(name, _)| name.starts_with("good")) {
            let net = play(input);
            assert!(net.geometry().is_some(), "{name} did not connect: {}", net.description());
            assert!(net.succeeded >= 5, "{name}: {} commands succeeded", net.succeeded);
        }
    }

    #[test]
    fn a_discovery_without_attacks_finds_the_exported_subsystems() {
        let seeds = seeds();
        for (name, input) in seeds.iter().filter(|(name, _)| *name == "discovery" || *name == "discovery-with-digests")
        {
            let net = play(input);
            assert!(net.description().contains(SUBSYSTEMS[0]), "{name}: {}", net.description());
        }
    }
}
