//! Every completion equals the oracle's completion of the same command.

use zonda_zoned::{Completion, Outcome, Payload};

use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Compares a completion with the expected one.
pub(crate) fn check(name: &str, expected: &Completion, got: &Completion) -> Result<(), CheckError> {
    if expected == got {
        return Ok(());
    }
    let command = format!("command {} {name}", got.id);
    let message = if expected.status == got.status {
        format!("{command} returned {}, expected {}", describe_outcome(&got.outcome, &expected.outcome), {
            describe_outcome(&expected.outcome, &got.outcome)
        })
    } else {
        format!("{command} completed with \"{}\", expected \"{}\"", got.status, expected.status)
    };
    Err(CheckError::new(FailureKind::WrongAnswer, None, message))
}

/// Describes an outcome by its difference from `other`.
fn describe_outcome(outcome: &Outcome, other: &Outcome) -> String {
    match (outcome, other) {
        (Outcome::None, _) => "no data".to_owned(),
        (Outcome::Appended(lba), _) => format!("LBA {lba}"),
        (Outcome::Data(Payload::Fingerprints(prints)), Outcome::Data(Payload::Fingerprints(others))) => {
            match prints.iter().zip(others).position(|(print, other)| print != other) {
                Some(place) => format!("{:016x} in block {place}", prints[place]),
                None => format!("{} blocks", prints.len()),
            }
        }
        (Outcome::Data(Payload::Bytes(buffer)), Outcome::Data(Payload::Bytes(others))) => {
            let differs = buffer.data.iter().zip(&others.data).position(|(byte, other)| byte != other);
            match differs {
                Some(place) => format!("{:02x} at byte {place}", buffer.data[place]),
                None => format!("{} bytes with different metadata or length", buffer.data.len()),
            }
        }
        (Outcome::Report(report), Outcome::Report(other)) => {
            let differs = report.zones.iter().zip(&other.zones).find(|(zone, other)| zone != other);
            match differs {
                Some((zone, _)) => format!("a report with {zone:?}"),
                None => format!("a report of {} of {} zones", report.zones.len(), report.matching_zones),
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
    fn the_error_shows_the_first_difference() {
        let completion = |status, outcome| Completion { id: CommandId(7), status, outcome };
        let message = |expected: Completion, got: Completion| check("append", &expected, &got).err().unwrap().message;
        let placed = |lba| completion(Status::Success, Outcome::Appended(Lba(lba)));
        assert!(check("append", &placed(4), &placed(4)).is_ok());
        assert_eq!(message(placed(4), placed(3)), "command 7 append returned LBA 3, expected LBA 4");
        assert_eq!(
            message(placed(4), completion(Status::ZoneIsFull, Outcome::None)),
            "command 7 append completed with \"zone is full\", expected \"success\""
        );
        let data = |prints: &[u64]| completion(Status::Success, Outcome::Data(Payload::Fingerprints(prints.into())));
        assert_eq!(
            message(data(&[1, 2]), data(&[1, 0])),
            "command 7 append returned 0000000000000000 in block 1, expected 0000000000000002 in block 1"
        );
    }
}
