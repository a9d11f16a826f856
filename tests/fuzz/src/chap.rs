//! In-band authentication: both machines in one exchange, with a stranger between them who changes, drops, repeats and
//! makes up messages. Who does not know a secret is never taken for somebody who does.
//!
//! ```text
//! 0 who: 0 both prove themselves, 1 the host has a wrong secret, 2 the controller has one   1 hash and group
//! 2.. for each message what the stranger does: see Deed
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

/// What a stranger does to a message.
enum Deed<'a> {
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
            // Nobody has anything to say: the stranger may still.
            if feed.is_empty() {
                break;
            }
            untouched = false;
            let made_up = feed.stretch(MESSAGE_BYTES_MAX + 100);
            tell(&mut host, &mut controller, from_host, made_up);
            from_host = !from_host;
            continue;
        };
        assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", message.len());
        let deed = deed(&mut feed);
        untouched &= matches!(deed, Deed::Pass);
        let repeat = matches!(deed, Deed::Repeat);
        if !matches!(deed, Deed::Drop) {
            apply(&deed, &mut message);
            tell(&mut host, &mut controller, from_host, &message);
        }
        if repeat {
            tell(&mut host, &mut controller, from_host, &message);
        }
        from_host = !from_host;
    }
    let _ = (host.agreement(), controller.agreement());
    assert!(who & FALSE_HOST == 0 || !controller.is_authenticated(), "a host without the secret got in");
    let is_asked = who & BIDIRECTIONAL != 0;
    assert!(who & FALSE_CONTROLLER == 0 || !is_asked || !host.is_authenticated(), "a false controller is believed");
    if untouched && who & (FALSE_HOST | FALSE_CONTROLLER) == 0 {
        assert!(host.is_authenticated() && controller.is_authenticated(), "nobody was between them");
    }
}

fn tell(host: &mut HostAuth, controller: &mut ControllerAuth, from_host: bool, message: &[u8]) {
    let result = if from_host { controller.receive(message) } else { host.receive(message) };
    if let Err(failure) = result {
        assert!(!failure.to_string().is_empty());
        let is_authenticated = if from_host { controller.is_authenticated() } else { host.is_authenticated() };
        assert!(!is_authenticated, "nobody is authenticated by a failure");
    }
}

fn deed<'a>(feed: &mut Feed<'a>) -> Deed<'a> {
    match feed.below(8) {
        1 | 2 => {
            let changes = 1 + feed.below(6);
            Deed::Change(feed.take(3 * changes))
        }
        3 => Deed::Cut(feed.u16()),
        4 => Deed::Lengthen(feed.stretch(256)),
        5 => Deed::Replace(feed.stretch(MESSAGE_BYTES_MAX + 100)),
        6 => Deed::Repeat,
        7 => Deed::Drop,
        _ => Deed::Pass,
    }
}

fn apply(deed: &Deed<'_>, message: &mut Vec<u8>) {
    match deed {
        Deed::Pass | Deed::Repeat | Deed::Drop => {}
        Deed::Change(changes) => {
            for change in changes.chunks_exact(3) {
                let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % message.len();
                message[offset] = change[2];
            }
        }
        Deed::Cut(length) => message.truncate(usize::from(*length) % message.len()),
        Deed::Lengthen(more) => message.extend_from_slice(more),
        Deed::Replace(other) => *message = other.to_vec(),
    }
}

/// Most inputs go without an exponentiation, which costs more than everything else together.
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
    Policy::new(hashes, groups).expect("something of each, once")
}

fn secret(byte: u8, transform: Option<Hash>) -> Secret {
    Secret::new(transform, &[byte; 48]).expect("a length that secrets have")
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
        let with = |deed: &[u8]| [&[BIDIRECTIONAL, 3], &passed[..], deed].concat();
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
