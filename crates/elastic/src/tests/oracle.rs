//! A namespace beside the oracle.

use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{Command, CommandId, Completion, NamespaceId, PayloadKind, Prng, ZonedDevice};

use super::rig::Rig;

/// Random commands, `depth` at a time; now and then the power is cut while none is in flight.
pub(super) fn compare(rig: &mut Rig, namespace: NamespaceId, mut prng: Prng, depth: usize, commands: u64) {
    let geometry = rig.device().geometry(namespace).clone();
    let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, prng.fork("commands"));
    let mut expected: Vec<Completion> = Vec::new();
    for number in 0..commands {
        let command = source.next(&oracle);
        expected.push(oracle.execute(&command));
        let to = if command.namespace == NamespaceId::FIRST { namespace } else { NamespaceId(1 << 20) };
        let now = rig.now;
        let text = format!("{:?}", shortened(&command));
        rig.device().submit(now, command.with_namespace(to)).expect("the queue is not full");
        if expected.len() >= depth {
            for completion in rig.quiesce() {
                let place = expected.iter().position(|other| other.id == completion.id);
                let expected = expected.remove(place.expect("each command ends once"));
                assert!(completion == expected, "command {number} {text}: {completion:?}\n, expected {expected:?}");
            }
            assert!(expected.is_empty(), "all have ended");
            rig.check();
        }
        if expected.is_empty() && prng.chance(1, 300) {
            rig.mount_again();
            oracle.power_cycle();
            forget_untouched(&mut oracle);
        }
    }
}

/// A zone that was opened and closed, and never written, is empty after a mount.
fn forget_untouched(oracle: &mut ReferenceDevice) {
    let geometry = oracle.namespaces().geometry(NamespaceId::FIRST).expect("it has one").clone();
    for zone in (0..geometry.zone_count).map(zonda_zoned::ZoneIndex) {
        let descriptor = oracle.descriptor(zone);
        let is_untouched = descriptor.state == zonda_zoned::ZoneState::Closed
            && descriptor.write_pointer == Some(descriptor.start)
            && !descriptor.attributes.extension_valid;
        if is_untouched {
            let action = zonda_zoned::ZoneAction::Reset;
            let target = zonda_zoned::ZoneTarget::Zone(descriptor.start);
            let operation = zonda_zoned::Operation::ManageZones { action, target };
            oracle.execute(&Command::new(CommandId(u64::MAX), NamespaceId::FIRST, operation));
        }
    }
}

fn shortened(command: &Command) -> String {
    let text = format!("{:?}", command.operation);
    text.chars().take(160).collect()
}
