//! In-band authentication: both sides of one exchange, with an attacker between them that changes,
//! drops, repeats and forges messages. A side without the secret is never authenticated.
//!
//! ```text
//! 0 bits: 0 bidirectional, 1 the host has a wrong secret, 2 the controller has a wrong secret   1 hash and group
//! 2.. for each message the attack: see Attack
//! ```

use zonda_chap::message::MESSAGE_BYTES_MAX;
use zonda_chap::{ControllerAuth, ControllerAuthConfig, Group, Hash, HostAuth, HostAuthConfig, Policy, Random, Secret};

use crate::Seed;
use crate::feed::{Feed, seed_of};

const HOST: &str = "nqn.2014-08.org.example:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:drive";
const BIDIRECTIONAL: u8 = 1;
const FALSE_HOST: u8 = 2;
const FALSE_CONTROLLER: u8 = 4;
/// Messages of one run; an exchange has five.
const MESSAGES_MAX: usize = 24;

/// An attack on a message.
enum Attack<'a> {
    Pass,
    /// Offset and value, and so on.
    Change(&'a [u8]),
    Cut(u16),
    Lengthen(&'a [u8]),
    Replace(&'a [u8]),
    Repeat,
    Drop,
}

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (who, choice) = (feed.u8(), feed.u8());
    let policy = policy(choice);
    let seed = seed_of(input);
    let mut host = host(who, policy.clone(), seed);
    let mut controller = controller(who, policy, seed);
    let mut untouched = true;
    let mut from_host = true;
    for _ in 0..MESSAGES_MAX {
        let next = if from_host { host.message() } else { controller.message() };
        let Some(mut message) = next else {
            // Neither side has a message; the attacker may still inject one.
            if feed.is_empty() {
                break;
            }
            untouched = false;
            let forged = feed.stretch(MESSAGE_BYTES_MAX + 100);
            deliver(&mut host, &mut controller, from_host, forged);
            from_host = !from_host;
            continue;
        };
        assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", message.len());
        let attack = attack(&mut feed);
        untouched &= matches!(attack, Attack::Pass);
        let repeat = matches!(attack, Attack::Repeat);
        if !matches!(attack, Attack::Drop) {
            apply(&attack, &mut message);
            deliver(&mut host, &mut controller, from_host, &message);
        }
        if repeat {
            deliver(&mut host, &mut controller, from_host, &message);
        }
        from_host = !from_host;
    }
    let _ = (host.agreement(), controller.agreement());
    assert!(who & FALSE_HOST == 0 || !controller.is_authenticated(), "a host without the secret is authenticated");
    let is_asked = who & BIDIRECTIONAL != 0;
    assert!(
        who & FALSE_CONTROLLER == 0 || !is_asked || !host.is_authenticated(),
        "a controller without the secret is authenticated"
    );
    if untouched && who & (FALSE_HOST | FALSE_CONTROLLER) == 0 {
        assert!(
            host.is_authenticated() && controller.is_authenticated(),
            "without an attack both sides are authenticated"
        );
    }
}

fn deliver(host: &mut HostAuth, controller: &mut ControllerAuth, from_host: bool, message: &[u8]) {
    let result = if from_host { controller.receive(message) } else { host.receive(message) };
    if let Err(failure) = result {
        assert!(!failure.to_string().is_empty());
        let is_authenticated = if from_host { controller.is_authenticated() } else { host.is_authenticated() };
        assert!(!is_authenticated, "a failure authenticates no side");
    }
}

fn attack<'a>(feed: &mut Feed<'a>) -> Attack<'a> {
    match feed.below(8) {
        1 | 2 => {
            let changes = 1 + feed.below(6);
            Attack::Change(feed.take(3 * changes))
        }
        3 => Attack::Cut(feed.u16()),
        4 => Attack::Lengthen(feed.stretch(256)),
        5 => Attack::Replace(feed.stretch(MESSAGE_BYTES_MAX + 100)),
        6 => Attack::Repeat,
        7 => Attack::Drop,
        _ => Attack::Pass,
    }
}

fn apply(attack: &Attack<'_>, message: &mut Vec<u8>) {
    match attack {
        Attack::Pass | Attack::Repeat | Attack::Drop => {}
        Attack::Change(changes) => {
            for change in changes.chunks_exact(3) {
                let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % message.len();
                message[offset] = change[2];
            }
        }
        Attack::Cut(length) => message.truncate(usize::from(*length) % message.len()),
        Attack::Lengthen(more) => message.extend_from_slice(more),
        Attack::Replace(other) => *message = other.to_vec(),
    }
}

/// Most inputs use no Diffie-Hellman group, since an exponentiation takes more time than everything
/// else together.
fn policy(choice: u8) -> Policy {
    let hashes: &[Hash] = match choice & 3 {
        0 => &[Hash::Sha256],
        1 => &[Hash::Sha384],
        2 => &[Hash::Sha512],
        _ => &Hash::ALL,
    };
    let groups: &[Group] = match choice >> 2 & 7 {
        7 => &[Group::Ffdhe2048],
        6 => &[Group::Null, Group::Ffdhe2048],
        _ => &[Group::Null],
    };
    Policy::new(hashes, groups).expect("a valid policy")
}

fn secret(byte: u8, transform: Option<Hash>) -> Secret {
    Secret::new(transform, &[byte; 48]).expect("a valid length")
}

fn host(who: u8, policy: Policy, seed: [u8; 32]) -> HostAuth {
    let own = if who & FALSE_HOST == 0 { 1 } else { 3 };
    let mut config = HostAuthConfig::new(HOST, SUBSYSTEM, secret(own, Some(Hash::Sha384)));
    config.controller_secret = (who & BIDIRECTIONAL != 0).then(|| secret(2, None));
    config.policy = policy;
    config.transaction = 0x1234;
    HostAuth::new(config, Random::new(seed.map(|byte| byte ^ 0x55)))
}

fn controller(who: u8, policy: Policy, seed: [u8; 32]) -> ControllerAuth {
    let mut config = ControllerAuthConfig::new(HOST, SUBSYSTEM, secret(1, Some(Hash::Sha384)));
    config.controller_secret = Some(secret(if who & FALSE_CONTROLLER == 0 { 2 } else { 4 }, None));
    config.policy = policy;
    ControllerAuth::new(config, Random::new(seed))
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for who in 0..8u8 {
        for choice in [who & 3, 28] {
            seeds.push((format!("untouched-{who}-{choice}"), vec![who, choice]));
        }
    }
    for index in 0..5 {
        let passed = vec![0; index];
        let with = |attack: &[u8]| [&[BIDIRECTIONAL, 3], &passed[..], attack].concat();
        seeds.push((format!("change-{index}"), with(&[1, 1, 8, 0, 1, 40, 0, 9])));
        seeds.push((format!("cut-{index}"), with(&[3, 20, 0])));
        seeds.push((format!("lengthen-{index}"), with(&[4, 4, 0, 1, 2, 3, 4])));
        seeds.push((format!("repeat-{index}"), with(&[6])));
        seeds.push((format!("drop-{index}"), with(&[7, 16, 0, 1, 0xf0, 0, 0, 0x34, 0x12, 1, 5])));
    }
    // Messages made up from nothing: one of each kind, with the exchange's transaction.
    for (kind, length) in [(0x00, 80), (0x01, 48), (0x02, 112), (0x03, 48), (0x04, 16), (0xf0, 8), (0xf1, 8)] {
        let common = u8::from(kind != 0x00 && kind < 0xf0);
        let mut message = vec![common, kind, 0, 0, 0x34, 0x12];
        message.resize(length, 1);
        seeds.push((format!("made-up-{kind:02x}"), [vec![0, 0, 5, length as u8, 0], message].concat()));
    }
    seeds
}
