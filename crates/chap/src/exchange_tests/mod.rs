//! Host and controller against each other.

use sha2::{Digest as _, Sha256};

use crate::message::MESSAGE_BYTES_MAX;
use crate::*;

mod hostile;

const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36";
const SUBSYSTEM_NQN: &str = "nqn.2014-08.org.example:drive";
const TRANSACTION: u16 = 0x1234;

/// Which of the two sides a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    OneWay,
    Bidirectional,
}
use Direction::{Bidirectional, OneWay};

fn host_secret() -> Secret {
    Secret::new(Some(Hash::Sha384), &(0..48).collect::<Vec<u8>>()).unwrap()
}

fn controller_secret() -> Secret {
    Secret::new(None, &(100..132).collect::<Vec<u8>>()).unwrap()
}

fn other_secret() -> Secret {
    Secret::new(None, &[0xaa; 32]).unwrap()
}

fn only(hash: Hash, group: Group) -> Policy {
    Policy::new(&[hash], &[group]).unwrap()
}

fn host_config(direction: Direction, policy: Policy) -> HostAuthConfig {
    HostAuthConfig {
        controller_secret: (direction == Bidirectional).then(controller_secret),
        policy,
        transaction: TRANSACTION,
        ..HostAuthConfig::new(HOST_NQN, SUBSYSTEM_NQN, host_secret())
    }
}

fn controller_config(policy: Policy) -> ControllerAuthConfig {
    ControllerAuthConfig {
        controller_secret: Some(controller_secret()),
        policy,
        ..ControllerAuthConfig::new(HOST_NQN, SUBSYSTEM_NQN, host_secret())
    }
}

/// An attacker's change of the message with this index, counted from AUTH_Negotiate.
type Change<'a> = (usize, &'a mut dyn FnMut(&mut Vec<u8>));

/// Both sides of one exchange.
struct Pair {
    host: HostAuth,
    controller: ControllerAuth,
}

impl Pair {
    fn new(host: HostAuthConfig, controller: ControllerAuthConfig) -> Pair {
        let host = HostAuth::new(host, Random::new([3; 32]));
        Pair { host, controller: ControllerAuth::new(controller, Random::new([4; 32])) }
    }

    fn of(direction: Direction, hash: Hash, group: Group) -> Pair {
        Pair::new(host_config(direction, only(hash, group)), controller_config(only(hash, group)))
    }

    /// Transfers messages until neither side has one left; returns them, and the first failure.
    fn run(&mut self, mut change: Option<Change<'_>>) -> (Vec<Vec<u8>>, Option<AuthFailure>) {
        let mut messages = Vec::new();
        let mut failure = None;
        for index in 0.. {
            let from_host = index % 2 == 0;
            let next = if from_host { self.host.message() } else { self.controller.message() };
            let Some(mut message) = next else { break };
            match &mut change {
                Some((changed, with)) if *changed == index => with(&mut message),
                _ => {}
            }
            messages.push(message.clone());
            let result = if from_host { self.controller.receive(&message) } else { self.host.receive(&message) };
            // What is sent after a failure only reports it.
            failure = failure.or(result.err());
        }
        (messages, failure)
    }

    fn both_authenticated(&self) -> bool {
        self.host.is_authenticated() && self.controller.is_authenticated()
    }
}

fn messages(direction: Direction, hash: Hash, group: Group) -> Vec<Vec<u8>> {
    Pair::of(direction, hash, group).run(None).0
}

/// A controller that has received the first `count` messages of the host in `messages`, and sent
/// its own.
fn controller_after(count: usize, messages: &[Vec<u8>], policy: Policy) -> ControllerAuth {
    let mut controller = ControllerAuth::new(controller_config(policy), Random::new([4; 32]));
    for message in messages.iter().step_by(2).take(count) {
        controller.receive(message).unwrap();
        controller.message();
    }
    controller
}

/// A host that has received the first `count` messages of the controller in `messages`, and sent
/// its own.
fn host_after(count: usize, messages: &[Vec<u8>], direction: Direction, policy: Policy) -> HostAuth {
    let mut host = HostAuth::new(host_config(direction, policy), Random::new([3; 32]));
    host.message();
    for message in messages.iter().skip(1).step_by(2).take(count) {
        host.receive(message).unwrap();
        host.message();
    }
    host
}

#[test]
fn every_hash_and_group_authenticates_both_sides() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            for direction in [OneWay, Bidirectional] {
                let mut pair = Pair::of(direction, hash, group);
                let (messages, failure) = pair.run(None);
                assert_eq!(failure, None, "{hash} {group} {direction:?}");
                assert!(pair.both_authenticated());
                assert_eq!(messages.len(), if direction == OneWay { 4 } else { 5 });
                assert!(messages.iter().all(|message| message.len() <= MESSAGE_BYTES_MAX));
                let agreement = Agreement { hash, group, bidirectional: direction == Bidirectional };
                assert_eq!(pair.host.agreement(), Some(agreement));
                assert_eq!(pair.controller.agreement(), Some(agreement));
            }
        }
    }
}

/// SHA-256 of all messages of a bidirectional exchange, by a second implementation in Python
/// (`hmac`, `hashlib`, `pow`) written from the byte maps: hash identifier, group identifier,
/// digest.
const TRANSCRIPTS: [(u8, u8, &str); 18] = [
    (1, 0, "6ec24cf7892c82209024c7677de39d20e155de94bfebf02f7ec48177fdf16b25"),
    (1, 1, "ecdfb93127ca7044f973fd429c5497474f28227fae018630f6090f348c2e85e5"),
    (1, 2, "297d03c768d1d461909141e032b5dad579908306871ddce99ad25df94bb08804"),
    (1, 3, "197ff11cbe1972ba0c43655364e56e557d4ba4c6e1e24f8347e363ef00411089"),
    (1, 4, "f0e1871b986774909b4c6cc41f6078246f7dac90dee8258b17be2ab32254cb26"),
    (1, 5, "34995cedbada10ddba16be9fac2c35c8c64e67bf39efb28aef527012c5078721"),
    (2, 0, "9458bd239a1341b8e0b95664fae7418b8dc373e4dd249d11da2b73991c75f5c8"),
    (2, 1, "945c54de0832081cfc3ca0cc24b85338f84741d9b925850baa25186a65230856"),
    (2, 2, "4ce9dbe9ab32c9b51be97b625d4499f4f7b3aab6e3764f25c293ba6061f92c6a"),
    (2, 3, "19a58f1360ca504c15456d5dd7a8fc6859510b27dc653f335c76ffef2970743a"),
    (2, 4, "b7494655998657f699f855254efa69b1fdb01022380afaae33c08e7199cdf289"),
    (2, 5, "2b0f893dfb2503a2b978a4de86e3c211207f0cdd0be76f8571d1c2b445a39e09"),
    (3, 0, "8b0b6a5995fa4c372df398f828ec434a964152268a90a55a8886a74535bb5d29"),
    (3, 1, "5a43cc78f5178deefb8d7dbdfaff26ddff500746d19ae8584362b67142d5b9df"),
    (3, 2, "0afe7a281d491b30f590d29bedd4db1ceb97692f4912a65121ac20998eb13050"),
    (3, 3, "a983d19ccfa051006be3a32688291d1a8a7c417a5b0adda82c501274370a9afc"),
    (3, 4, "f90d27aeac65d64727d2d35ebe09f301b85550a34c4d957fd21480b57c74a369"),
    (3, 5, "c86eec46096e767c0e4c655fc397782006b63307989bd598adc9b20a409c22ce"),
];

#[test]
fn the_messages_are_those_of_a_second_implementation() {
    for (hash, group, expected) in TRANSCRIPTS {
        let messages = messages(Bidirectional, Hash::from_id(hash).unwrap(), Group::from_id(group).unwrap());
        let digest: String = Sha256::digest(messages.concat()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, expected, "hash {hash}, group {group}");
    }
}

#[test]
fn the_controller_chooses_the_first_of_its_own_list_that_the_host_offers() {
    let host = Policy::new(&[Hash::Sha256, Hash::Sha384], &[Group::Null, Group::Ffdhe2048, Group::Ffdhe3072]).unwrap();
    let controller = Policy::new(&Hash::ALL, &[Group::Ffdhe8192, Group::Ffdhe3072, Group::Null]).unwrap();
    let mut pair = Pair::new(host_config(OneWay, host), controller_config(controller));
    assert_eq!(pair.run(None).1, None);
    let agreement = pair.controller.agreement().unwrap();
    assert_eq!((agreement.hash, agreement.group), (Hash::Sha384, Group::Ffdhe3072));
}

#[test]
fn without_a_common_hash_or_group_the_host_gets_the_reason() {
    let cases = [
        (only(Hash::Sha512, Group::Null), AuthFailure::NoCommonHash, Explanation::HashNotUsable),
        (only(Hash::Sha256, Group::Ffdhe2048), AuthFailure::NoCommonGroup, Explanation::GroupNotUsable),
    ];
    for (policy, failure, explanation) in cases {
        let mut pair = Pair::new(host_config(OneWay, only(Hash::Sha256, Group::Null)), controller_config(policy));
        let negotiate = pair.host.message().unwrap();
        assert_eq!(pair.controller.receive(&negotiate), Err(failure));
        let message = pair.controller.message().unwrap();
        assert_eq!(message, [0x00, 0xf1, 0, 0, 0x34, 0x12, 1, explanation.code()]);
        assert_eq!(pair.host.receive(&message), Err(AuthFailure::Peer(explanation)));
        assert_eq!(pair.host.message(), None, "a failure gets no response");
        assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
    }
}

#[test]
fn a_host_with_another_secret_is_refused() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let mut config = host_config(Bidirectional, only(Hash::Sha256, group));
        config.host_secret = other_secret();
        let mut pair = Pair::new(config, controller_config(only(Hash::Sha256, group)));
        let (messages, failure) = pair.run(None);
        assert_eq!(failure, Some(AuthFailure::HostResponse));
        assert_eq!(messages[3], [0x00, 0xf1, 0, 0, 0x34, 0x12, 1, 1]);
        assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
    }
}

#[test]
fn a_controller_with_another_secret_is_refused() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let mut config = controller_config(only(Hash::Sha384, group));
        config.controller_secret = Some(other_secret());
        let mut pair = Pair::new(host_config(Bidirectional, only(Hash::Sha384, group)), config);
        let (messages, failure) = pair.run(None);
        assert_eq!(failure, Some(AuthFailure::ControllerResponse));
        assert_eq!(messages[4], [0x00, 0xf0, 0, 0, 0x34, 0x12, 1, 1]);
        assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
    }
}

#[test]
fn a_controller_without_a_secret_cannot_authenticate() {
    let mut config = controller_config(Policy::default());
    config.controller_secret = None;
    let mut pair = Pair::new(host_config(Bidirectional, Policy::default()), config);
    assert_eq!(pair.run(None).1, Some(AuthFailure::NoControllerSecret));
    assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
}

#[test]
fn a_controller_that_omits_its_response_is_refused() {
    let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Null);
    let failure = pair.run(Some((3, &mut |success1: &mut Vec<u8>| success1[8] = 0))).1;
    assert_eq!(failure, Some(AuthFailure::ControllerResponseMissing));
    assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
}

#[test]
fn other_nqns_fail_although_the_secrets_match() {
    let config = |host: &str, subsystem: &str| ControllerAuthConfig {
        policy: only(Hash::Sha256, Group::Null),
        ..ControllerAuthConfig::new(host, subsystem, controller_secret())
    };
    let other =
        [config("nqn.2014-08.org.example:other", SUBSYSTEM_NQN), config(HOST_NQN, "nqn.2014-08.org.example:other")];
    for controller in other {
        let mut host = host_config(OneWay, only(Hash::Sha256, Group::Null));
        host.host_secret = controller_secret(); // no transform: the NQNs are used only in the response
        assert_eq!(Pair::new(host, controller).run(None).1, Some(AuthFailure::HostResponse));
    }
}

#[test]
fn messages_of_one_exchange_are_refused_in_another() {
    let policy = only(Hash::Sha256, Group::Null);
    let recorded = messages(Bidirectional, Hash::Sha256, Group::Null);
    let mut controller = ControllerAuth::new(controller_config(policy.clone()), Random::new([5; 32]));
    controller.receive(&recorded[0]).unwrap();
    controller.message();
    assert_eq!(controller.receive(&recorded[2]), Err(AuthFailure::HostResponse));

    let mut host = HostAuth::new(host_config(Bidirectional, policy), Random::new([5; 32]));
    host.message();
    host.receive(&recorded[1]).unwrap();
    host.message();
    assert_eq!(host.receive(&recorded[3]), Err(AuthFailure::ControllerResponse));
}

#[test]
fn a_message_sent_twice_fails_the_exchange() {
    let policy = only(Hash::Sha256, Group::Null);
    let recorded = messages(Bidirectional, Hash::Sha256, Group::Null);
    for (received, index) in [(1, 0), (2, 2)] {
        let mut controller = controller_after(received, &recorded, policy.clone());
        let failure = controller.receive(&recorded[index]).unwrap_err();
        assert_eq!(failure.explanation(), Explanation::IncorrectMessage);
        assert!(!controller.is_authenticated());
    }
    for (received, index) in [(1, 1), (2, 3)] {
        let mut host = host_after(received, &recorded, Bidirectional, policy.clone());
        let failure = host.receive(&recorded[index]).unwrap_err();
        assert_eq!(failure.explanation(), Explanation::IncorrectMessage);
        assert!(!host.is_authenticated());
    }
}

#[test]
fn a_reply_to_a_challenge_that_was_not_fetched_is_refused() {
    let recorded = messages(OneWay, Hash::Sha256, Group::Null);
    let mut controller = ControllerAuth::new(controller_config(only(Hash::Sha256, Group::Null)), Random::new([4; 32]));
    controller.receive(&recorded[0]).unwrap();
    assert!(matches!(
        controller.receive(&recorded[2]),
        Err(AuthFailure::UnexpectedMessage { auth_type: 1, auth_id: 2 })
    ));
    assert_eq!(controller.message().unwrap()[..2], [0x00, 0xf1]);
}

#[test]
fn a_challenge_before_the_negotiation_was_sent_is_refused() {
    let recorded = messages(OneWay, Hash::Sha256, Group::Null);
    let mut host = HostAuth::new(host_config(OneWay, only(Hash::Sha256, Group::Null)), Random::new([3; 32]));
    assert!(matches!(host.receive(&recorded[1]), Err(AuthFailure::UnexpectedMessage { auth_type: 1, auth_id: 1 })));
}

#[test]
fn a_failed_authentication_stays_failed() {
    let recorded = messages(OneWay, Hash::Sha256, Group::Null);
    let mut controller = ControllerAuth::new(controller_config(only(Hash::Sha256, Group::Null)), Random::new([4; 32]));
    assert!(controller.receive(&[]).is_err());
    assert_eq!(controller.message().unwrap(), [0x00, 0xf1, 0, 0, 0, 0, 1, 6]);
    for message in recorded.iter().step_by(2) {
        assert!(controller.receive(message).is_err());
        assert!(controller.message().is_some() && !controller.is_authenticated());
    }
}

#[test]
fn a_host_may_reauthenticate_and_is_not_authenticated_any_more_if_that_fails() {
    let policy = only(Hash::Sha256, Group::Null);
    let mut controller = ControllerAuth::new(controller_config(policy.clone()), Random::new([4; 32]));
    let mut sequences = Vec::new();
    for round in 0..3u8 {
        let mut config = host_config(OneWay, policy.clone());
        if round == 2 {
            config.host_secret = other_secret();
        }
        let mut host = HostAuth::new(config, Random::new([round; 32]));
        assert_eq!(controller.receive(&host.message().unwrap()), Ok(Step::Continue));
        assert_eq!(controller.is_authenticated(), round > 0, "an exchange in progress changes nothing");
        let challenge = controller.message().unwrap();
        sequences.push(u32::from_le_bytes(challenge[12..16].try_into().unwrap()));
        host.receive(&challenge).unwrap();
        assert_eq!(controller.receive(&host.message().unwrap()).is_ok(), round < 2);
        assert_eq!(controller.is_authenticated(), round < 2);
        controller.message();
    }
    assert_eq!([sequences[1] - 1, sequences[2] - 2], [sequences[0]; 2]);
}

#[test]
fn a_host_that_reports_a_failure_is_not_authenticated() {
    let recorded = messages(Bidirectional, Hash::Sha256, Group::Null);
    for received in 0..3 {
        let mut controller = controller_after(received, &recorded, only(Hash::Sha256, Group::Null));
        let failure2 = [0x00, 0xf0, 0, 0, 0x34, 0x12, 1, 5];
        assert_eq!(controller.receive(&failure2), Err(AuthFailure::Peer(Explanation::GroupNotUsable)));
        assert_eq!((controller.message(), controller.is_authenticated()), (None, false));
    }
}

/// Changes one field of message `index` of a bidirectional exchange without a group; returns the
/// failure.
fn changed(index: usize, offset: usize, bytes: &[u8]) -> Option<AuthFailure> {
    let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Null);
    let mut change = |message: &mut Vec<u8>| message[offset..offset + bytes.len()].copy_from_slice(bytes);
    let failure = pair.run(Some((index, &mut change))).1;
    assert!(failure.is_none() || !pair.both_authenticated());
    failure
}

#[test]
fn each_wrong_field_has_its_failure() {
    use AuthFailure::*;
    let wrong_transaction = Some(WrongTransaction { expected: TRANSACTION, actual: 0x1235 });
    // AUTH_Negotiate.
    assert_eq!(changed(0, 4, &[0x35]), Some(WrongTransaction { expected: TRANSACTION, actual: 0x1235 }));
    assert_eq!(changed(0, 6, &[1]), Some(ConcatenationNotOffered(1)));
    assert_eq!(changed(0, 7, &[0]), Some(WrongLength { expected: 8, actual: 72 }));
    assert_eq!(changed(0, 8, &[2]), Some(ProtocolNotOffered));
    assert_eq!(changed(0, 10, &[0]), Some(NoCommonHash));
    assert_eq!(changed(0, 10, &[31]), Some(TooManyIdentifiers(31)));
    assert_eq!(changed(0, 11, &[0]), Some(NoCommonGroup));
    assert_eq!(changed(0, 11, &[31]), Some(TooManyIdentifiers(31)));
    // Challenge.
    assert_eq!(changed(1, 4, &[0x35]), wrong_transaction);
    assert_eq!(changed(1, 6, &[48]), Some(WrongHashLength(48)));
    assert_eq!(changed(1, 8, &[2]), Some(HashNotOffered(2)), "known, but not offered");
    assert_eq!(changed(1, 8, &[9]), Some(HashNotOffered(9)));
    assert_eq!(changed(1, 9, &[1]), Some(GroupNotOffered(1)));
    assert_eq!(changed(1, 9, &[6]), Some(GroupNotOffered(6)));
    assert_eq!(changed(1, 10, &[1]), Some(WrongPublicLength(1)));
    assert_eq!(changed(1, 12, &[0, 0, 0, 0]), Some(HostResponse));
    // Reply.
    assert_eq!(changed(2, 4, &[0x35]), wrong_transaction);
    assert_eq!(changed(2, 6, &[64]), Some(WrongHashLength(64)));
    assert_eq!(changed(2, 8, &[2]), Some(WrongValidity(2)));
    assert_eq!(changed(2, 10, &[1]), Some(WrongLength { expected: 81, actual: 80 }));
    assert_eq!(changed(2, 12, &[0, 0, 0, 0]), Some(SequenceNumberZero));
    let c1 = messages(Bidirectional, Hash::Sha256, Group::Null)[1][16..48].to_vec();
    assert_eq!(changed(2, 48, &c1), Some(ReflectedChallenge));
    // Success1.
    assert_eq!(changed(3, 4, &[0x35]), wrong_transaction);
    assert_eq!(changed(3, 6, &[48]), Some(WrongHashLength(48)));
    assert_eq!(changed(3, 8, &[2]), Some(WrongValidity(2)));
    // Success2.
    assert_eq!(changed(4, 4, &[0x35]), wrong_transaction);
}

#[test]
fn a_response_without_a_challenge_is_refused() {
    let mut pair = Pair::of(OneWay, Hash::Sha256, Group::Null);
    let mut change = |success1: &mut Vec<u8>| {
        success1[8] = 1;
        success1.extend([0; 32]);
    };
    assert_eq!(pair.run(Some((3, &mut change))).1, Some(AuthFailure::WrongValidity(1)));
    assert!(!pair.host.is_authenticated());
}

#[test]
fn a_descriptor_of_another_protocol_is_skipped() {
    let mut pair = Pair::of(OneWay, Hash::Sha256, Group::Null);
    let mut change = |negotiate: &mut Vec<u8>| {
        let mut other = negotiate[8..].to_vec();
        other[0] = 2;
        negotiate.splice(8..8, other);
        negotiate[7] = 2;
    };
    assert_eq!(pair.run(Some((0, &mut change))).1, None);
    assert!(pair.both_authenticated());
}

#[test]
fn debug_output_contains_no_secret() {
    let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Ffdhe2048);
    let negotiate = pair.host.message().unwrap();
    pair.controller.receive(&negotiate).unwrap();
    let configs = (host_config(Bidirectional, Policy::default()), controller_config(Policy::default()));
    let text = format!("{:?} {:?} {configs:?}", pair.host, pair.controller);
    // Three bytes of each secret, as a list of numbers.
    assert!(!text.contains("1, 2, 3") && !text.contains("101, 102, 103"), "{text}");
    assert!(text.contains("Secret {") && text.contains("KeyPair {") && text.contains("Random(..)"));
}
