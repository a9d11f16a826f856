//! Checks that the results of all hosts are linearizable, whichever server they used.

use std::collections::BTreeMap;

/// The zone of one value of a block: the interval in which the block certainly had it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// The first completion of an operation that wrote or read it; never, while its write is in
    /// flight and it was not read.
    first_end: u64,
    /// The last submission of one.
    last_begin: u64,
    /// While its write is in flight: submission and completion of reads that returned it. They
    /// count when the write succeeds: until then the value may be lost again.
    early_reads: Option<Vec<(u64, u64)>>,
}

impl Zone {
    fn was_read(&mut self, begun: u64, ended: u64) {
        self.first_end = self.first_end.min(ended);
        self.last_begin = self.last_begin.max(begun);
    }
}

const NEVER: u64 = u64::MAX;

/// Reads and writes of blocks, each write with a unique value. 0 is the value of an unwritten
/// block.
///
/// A history is linearizable if the zones of no two values of a block conflict (Gibbons and Korach,
/// "Testing Shared Memories", 1997). A failed write may take effect at any later time, or never.
pub(super) struct History {
    blocks: Vec<BTreeMap<u32, Zone>>,
    tick: u64,
}

impl History {
    pub(super) fn new(blocks: u64) -> History {
        let never_written = BTreeMap::from([(0, Zone { first_end: 0, last_begin: 0, early_reads: None })]);
        History { blocks: vec![never_written; blocks as usize], tick: 1 }
    }

    /// The next point in time.
    pub(super) fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    pub(super) fn write_begins(&mut self, lba: u64, value: u32, begun: u64) {
        let zone = Zone { first_end: NEVER, last_begin: begun, early_reads: Some(Vec::new()) };
        self.blocks[lba as usize].insert(value, zone);
    }

    pub(super) fn write_succeeds(&mut self, lba: u64, value: u32, ended: u64) -> Result<(), String> {
        let zone = self.blocks[lba as usize].get_mut(&value).expect("its write has begun");
        zone.first_end = zone.first_end.min(ended);
        for (begun, ended) in zone.early_reads.take().into_iter().flatten() {
            zone.was_read(begun, ended);
        }
        self.check(lba)
    }

    /// The write may take effect at any later time, or never.
    pub(super) fn write_fails(&mut self, lba: u64, value: u32) {
        self.blocks[lba as usize].get_mut(&value).expect("its write has begun").early_reads = None;
    }

    pub(super) fn read(&mut self, lba: u64, value: u32, begun: u64, ended: u64) -> Result<(), String> {
        let zone = self.blocks[lba as usize].get_mut(&value);
        let zone = zone.ok_or_else(|| format!("block {lba} has value {value}, which was never written to it"))?;
        match &mut zone.early_reads {
            Some(reads) => reads.push((begun, ended)),
            None => zone.was_read(begun, ended),
        }
        self.check(lba)
    }

    fn check(&self, lba: u64) -> Result<(), String> {
        let zones = self.blocks[lba as usize].iter().filter(|(_, zone)| zone.first_end != NEVER);
        let (forward, backward): (Vec<_>, Vec<_>) = zones.partition(|(_, zone)| zone.first_end < zone.last_begin);
        for (at, (value, zone)) in forward.iter().enumerate() {
            let overlaps = |other: &Zone| other.first_end < zone.last_begin && zone.first_end < other.last_begin;
            let meets = forward[at + 1..].iter().find(|(_, other)| overlaps(other));
            let holds = |other: &Zone| zone.first_end < other.last_begin && other.first_end < zone.last_begin;
            let inside = backward.iter().find(|(_, other)| holds(other));
            if let Some((other, _)) = meets.or(inside) {
                return Err(format!("block {lba} had value {value} before and after value {other}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(history: &mut History, value: u32, (begun, ended): (u64, u64)) {
        history.write_begins(0, value, begun);
        history.write_succeeds(0, value, ended).expect("no other value was read");
    }

    #[test]
    fn an_overwritten_value_must_not_be_read() {
        let mut history = History::new(1);
        written(&mut history, 1, (2, 3));
        written(&mut history, 2, (4, 5));
        assert!(history.read(0, 2, 6, 7).is_ok());
        let error = history.read(0, 1, 8, 9).expect_err("it was overwritten");
        assert_eq!(error, "block 0 had value 1 before and after value 2");
    }

    #[test]
    fn zeros_must_not_be_read_after_a_write_has_completed() {
        let mut history = History::new(1);
        written(&mut history, 1, (2, 3));
        assert!(history.read(0, 0, 4, 5).is_err());
    }

    #[test]
    fn a_read_concurrent_with_a_write_returns_either_value_and_the_old_one_later_only_if_the_write_is_lost() {
        let mut history = History::new(1);
        history.write_begins(0, 1, 2);
        assert!(history.read(0, 0, 3, 4).is_ok(), "it has not happened yet");
        assert!(history.read(0, 1, 5, 6).is_ok(), "now it has");
        assert!(history.read(0, 0, 7, 8).is_ok(), "it was lost");
        assert!(history.write_succeeds(0, 1, 9).is_err(), "it was not");
    }

    #[test]
    fn a_failed_write_may_take_effect_later_and_once() {
        let mut history = History::new(1);
        history.write_begins(0, 1, 2);
        history.write_fails(0, 1);
        written(&mut history, 2, (3, 4));
        assert!(history.read(0, 2, 5, 6).is_ok());
        assert!(history.read(0, 1, 7, 8).is_ok(), "it was late");
        assert!(history.read(0, 2, 9, 10).is_err());
    }

    #[test]
    fn a_value_of_another_block_is_wrong() {
        let mut history = History::new(2);
        written(&mut history, 1, (2, 3));
        assert!(history.read(1, 1, 4, 5).is_err());
    }
}
