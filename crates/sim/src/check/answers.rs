//! Every completion is exactly what the oracle said when the command was taken.

use zonda_zoned::{Completion, Outcome, Payload};

use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// Holds a completion against what is expected of it.
pub(crate) fn check(name: &str, expected: &Completion, got: &Completion) -> Result<(), Trouble> {
    if expected == got {
        return Ok(());
    }
    let what = format!("command {} {name}", got.id);
    let message = if expected.status == got.status {
        format!("{what} brought {}, and must bring {}", tell(&got.outcome, &expected.outcome), {
            tell(&expected.outcome, &got.outcome)
        })
    } else {
        format!("{what} ended with \"{}\", and must end with \"{}\"", got.status, expected.status)
    };
    Err(Trouble::new(FailureKind::WrongAnswer, None, message))
}

/// What a command brought, as far as it differs from `other`.
fn tell(outcome: &Outcome, other: &Outcome) -> String {
    match (outcome, other) {
        (Outcome::None, _) => "nothing".to_owned(),
        (Outcome::Appended(lba), _) => format!("block {lba} as its place"),
        (Outcome::Data(Payload::Fingerprints(prints)), Outcome::Data(Payload::Fingerprints(others))) => {
            match prints.iter().zip(others).position(|(print, other)| print != other) {
                Some(place) => format!("{:016x} as its block {place}", prints[place]),
                None => format!("{} blocks", prints.len()),
            }
        }
        (Outcome::Data(Payload::Bytes(buffer)), Outcome::Data(Payload::Bytes(others))) => {
            let differs = buffer.data.iter().zip(&others.data).position(|(byte, other)| byte != other);
            match differs {
                Some(place) => format!("{:02x} as its byte {place}", buffer.data[place]),
                None => format!("{} bytes with other metadata or of another length", buffer.data.len()),
            }
        }
        (Outcome::Report(report), Outcome::Report(other)) => {
            let differs = report.zones.iter().zip(&other.zones).find(|(zone, other)| zone != other);
            match differs {
                Some((zone, _)) => format!("a report with {zone:?}"),
                None => format!("a report of {} zones of {}", report.zones.len(), report.matching_zones),
            }
        }
        (outcome, _) => format!("{outcome:?}"),
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Lba, Status};

    use super::*;

    #[test]
    fn a_wrong_answer_is_told_by_what_differs() {
        let completion = |status, outcome| Completion { id: CommandId(7), status, outcome };
        let message = |expected: Completion, got: Completion| check("append", &expected, &got).err().unwrap().message;
        let placed = |lba| completion(Status::Success, Outcome::Appended(Lba(lba)));
        assert!(check("append", &placed(4), &placed(4)).is_ok());
        assert_eq!(
            message(placed(4), placed(3)),
            "command 7 append brought block 3 as its place, and must bring block 4 as its place"
        );
        assert_eq!(
            message(placed(4), completion(Status::ZoneIsFull, Outcome::None)),
            "command 7 append ended with \"zone is full\", and must end with \"success\""
        );
        let data = |prints: &[u64]| completion(Status::Success, Outcome::Data(Payload::Fingerprints(prints.into())));
        assert_eq!(
            message(data(&[1, 2]), data(&[1, 0])),
            "command 7 append brought 0000000000000000 as its block 1, and must bring 0000000000000002 as its block 1"
        );
    }
}
