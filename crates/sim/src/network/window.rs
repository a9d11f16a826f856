//! The zones of one host in a namespace that it may share with others.

use zonda_zoned::{Blocks, Geometry, Lba, LbaRange, Operation, Outcome, ZoneIndex, ZoneTarget};

/// Consecutive zones of a namespace; their host numbers them from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: ZoneIndex,
    pub(crate) count: u32,
    /// The first block, and the number of blocks.
    start: Lba,
    blocks: u64,
    is_whole: bool,
}

impl Window {
    pub(crate) fn new(namespace: &Geometry, first: ZoneIndex, count: u32) -> Window {
        Window {
            first,
            count,
            start: namespace.zone_start(first),
            blocks: namespace.zone_size_blocks.0 * u64::from(count),
            is_whole: count == namespace.zone_count,
        }
    }

    /// The geometry from the host's perspective.
    pub(crate) fn geometry(&self, namespace: &Geometry) -> Geometry {
        Geometry { zone_count: self.count, ..namespace.clone() }
    }

    pub(crate) fn out(&self, lba: Lba) -> Lba {
        self.start + Blocks(lba.0)
    }

    pub(crate) fn back(&self, lba: Lba) -> Lba {
        Lba(lba.0 - self.start.0)
    }

    /// Translates an operation for the target; `None` for one that would address zones of other
    /// hosts.
    pub(crate) fn operation_out(&self, operation: &Operation) -> Option<Operation> {
        if self.is_whole {
            return Some(operation.clone());
        }
        let inside = |start: Lba, blocks: Blocks| {
            let end = start.0.checked_add(blocks.0.max(1))?;
            (end <= self.blocks).then(|| self.out(start))
        };
        Some(match operation {
            Operation::Read { start, blocks } => Operation::Read { start: inside(*start, *blocks)?, blocks: *blocks },
            Operation::Write { start, blocks, payload } => {
                Operation::Write { start: inside(*start, *blocks)?, blocks: *blocks, payload: payload.clone() }
            }
            Operation::Append { zone_start, blocks, payload } => Operation::Append {
                zone_start: inside(*zone_start, Blocks(1))?,
                blocks: *blocks,
                payload: payload.clone(),
            },
            Operation::WriteZeroes { start, blocks } => {
                Operation::WriteZeroes { start: inside(*start, *blocks)?, blocks: *blocks }
            }
            Operation::Deallocate { ranges } => {
                let ranges: Option<Box<[LbaRange]>> = ranges
                    .iter()
                    .map(|range| Some(LbaRange { start: inside(range.start, range.blocks)?, blocks: range.blocks }))
                    .collect();
                Operation::Deallocate { ranges: ranges? }
            }
            Operation::ManageZones { action, target: ZoneTarget::Zone(lba) } => {
                Operation::ManageZones { action: action.clone(), target: ZoneTarget::Zone(inside(*lba, Blocks(1))?) }
            }
            Operation::ManageZones { target: ZoneTarget::All, .. } | Operation::ReportZones { .. } => return None,
            Operation::Flush | Operation::ReadChangedZones => operation.clone(),
        })
    }

    /// Translates an outcome to the host's addresses.
    pub(crate) fn outcome_back(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Appended(lba) if lba >= self.start => Outcome::Appended(self.back(lba)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_translated_to_the_window_and_never_leave_it() {
        let window = Window::new(&Geometry::tiny(), ZoneIndex(2), 2);
        let read = |start, blocks| Operation::Read { start: Lba(start), blocks: Blocks(blocks) };
        assert_eq!(window.operation_out(&read(3, 2)), Some(read(35, 2)));
        assert_eq!(window.operation_out(&read(31, 2)), None);
        assert_eq!(window.operation_out(&read(u64::MAX, 2)), None);
        assert_eq!(window.outcome_back(Outcome::Appended(Lba(33))), Outcome::Appended(Lba(1)));
        let whole = Window::new(&Geometry::tiny(), ZoneIndex(0), 8);
        assert_eq!(whole.operation_out(&read(500, 2)), Some(read(500, 2)));
    }
}
