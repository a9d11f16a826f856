//! The namespace as a whole.

use zonda_zoned::{Blocks, Command, CommandId, CompletionQueue, NamespaceId, Operation, Outcome, Status};

use super::{Check, checks};
use crate::rig::{Rig, Stop, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        a_command_to_another_namespace_is_refused,
        a_new_device_has_no_changed_zones,
    ]
    .into()
}

pub(super) fn a_command_to_another_namespace_is_refused(rig: &mut Rig) -> Verdict {
    let operation = Operation::Read { start: rig.lba(0, 0), blocks: Blocks(1) };
    let command = Command::new(CommandId(1 << 40), NamespaceId(2), operation);
    if !rig.backend.carries(&command) {
        return Err(Stop::Skipped("the backend cannot encode such a command".to_owned()));
    }
    let now = rig.backend.now();
    ensure!(rig.backend.submit(now, command).is_ok(), "an idle device returned QueueFull");
    let mut completions = CompletionQueue::new();
    for _ in 0..1_000_000 {
        rig.backend.wait();
        let now = rig.backend.now();
        rig.backend.poll(now, &mut completions);
        if let Some(completion) = completions.pop() {
            let status = completion.status;
            ensure!(status == Status::InvalidNamespace, "it ended with \"{status}\"");
            return Ok(());
        }
    }
    Err(Stop::Failed("the command does not complete".to_owned()))
}

pub(super) fn a_new_device_has_no_changed_zones(rig: &mut Rig) -> Verdict {
    let outcome = rig.run(Operation::ReadChangedZones)?.outcome;
    ensure!(outcome == Outcome::ChangedZones(Box::default()), "{outcome:?}");
    Ok(())
}
