//! The write buffer: writes wait here for their program, and before it for space.
//!
//! Space is counted, not laid out. A waiting write is admitted in pieces as programs complete and
//! release space; the order is the profile's [`Admission`]. A group is a zone or a die, whichever
//! the cap counts.

use std::collections::{BTreeMap, VecDeque};

use zonda_config::ByteSize;

use crate::pending::CommandKey;
use crate::profile::{Admission, BufferSpec};

/// A write that waits, or part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) command: CommandKey,
    pub(crate) group: u32,
    pub(crate) left_bytes: u64,
}

/// A piece of a write that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) command: CommandKey,
    pub(crate) bytes: u64,
}

/// Writes that wait for space that no program in flight will release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    None,
    /// Writes of one group, at its cap.
    Group(u32),
    /// All of them.
    All,
}

/// The write buffer.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    capacity_bytes: u64,
    cap_bytes: u64,
    /// Bytes admitted while a reset holds back programs, at most: in all and of a group.
    reset_quota_bytes: u64,
    reset_quota_of_group_bytes: u64,
    /// The smallest piece that is admitted, unless less is left of its write.
    piece_bytes: u64,
    block_bytes: u64,
    admission: Admission,
    used_bytes: u64,
    used_by_group: Vec<u64>,
    /// Of the used bytes, those of transfers and programs in flight, which will be released.
    returning_bytes: u64,
    /// The same for each group, where there is a cap.
    returning_by_group: Vec<u64>,
    /// While a reset holds back programs: what was admitted since it began, by group.
    admitted_in_reset: Option<BTreeMap<u32, u64>>,
    /// A group found waiting at its cap, with no space of it about to be released.
    stalled_group: Option<u32>,
    queue: VecDeque<Waiting>,
    /// With [`Admission::RoundRobin`]: a queue for each group, and the group that was served last.
    queues: BTreeMap<u32, VecDeque<Waiting>>,
    last_group: u32,
}

impl WriteBuffer {
    pub(crate) fn new(spec: &BufferSpec, piece_bytes: u64, block_bytes: u64, groups: u32) -> Self {
        let groups = if spec.cap.is_some() { groups as usize } else { 0 };
        let limit = |size: Option<ByteSize>| size.map_or(u64::MAX, |size| size.0);
        WriteBuffer {
            capacity_bytes: spec.capacity.0,
            cap_bytes: limit(spec.cap),
            reset_quota_bytes: limit(spec.reset_quota),
            reset_quota_of_group_bytes: limit(spec.reset_quota_per_zone),
            admitted_in_reset: None,
            piece_bytes,
            block_bytes,
            admission: spec.admission,
            used_bytes: 0,
            used_by_group: vec![0; groups],
            returning_bytes: 0,
            returning_by_group: vec![0; groups],
            stalled_group: None,
            queue: VecDeque::new(),
            queues: BTreeMap::new(),
            last_group: 0,
        }
    }

    /// A write requests space. [`next_admitted`](Self::next_admitted) returns its pieces as they
    /// are admitted.
    pub(crate) fn ask(&mut self, waiting: Waiting) {
        match self.admission {
            Admission::RoundRobin => self.queues.entry(waiting.group).or_default().push_back(waiting),
            Admission::FirstCome | Admission::Strict => self.queue.push_back(waiting),
        }
    }

    /// A reset begins to hold back programs.
    pub(crate) fn begin_reset(&mut self) {
        self.admitted_in_reset = Some(BTreeMap::new());
    }

    pub(crate) fn end_reset(&mut self) {
        self.admitted_in_reset = None;
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.queue.is_empty() || !self.queues.is_empty()
    }

    /// Whether the latest write of this group, or part of it, still waits for space.
    pub(crate) fn keeps_waiting(&self, command: CommandKey, group: u32) -> bool {
        let queue = match self.admission {
            Admission::RoundRobin => self.queues.get(&group),
            Admission::FirstCome | Admission::Strict => Some(&self.queue),
        };
        queue.and_then(VecDeque::back).is_some_and(|last| last.command == command)
    }

    /// Admits one piece, if there is space for one that may go first.
    #[inline]
    pub(crate) fn next_admitted(&mut self) -> Option<Admitted> {
        self.stalled_group = None;
        match self.admission {
            Admission::FirstCome => self.admit_first_that_fits(),
            Admission::Strict => self.admit_at(0),
            Admission::RoundRobin => self.admit_round_robin(),
        }
    }

    /// Reserves space unconditionally: data that were in a ZRWA are committed.
    pub(crate) fn take(&mut self, group: u32, bytes: u64) {
        self.used_bytes += bytes;
        if let Some(used) = self.used_by_group.get_mut(group as usize) {
            *used += bytes;
        }
    }

    /// Data have arrived and now wait for their unit to fill: their space is not about to be
    /// released.
    pub(crate) fn hold(&mut self, group: u32, bytes: u64) {
        self.returning_bytes -= bytes;
        if let Some(returning) = self.returning_by_group.get_mut(group as usize) {
            *returning -= bytes;
        }
    }

    /// Held data are to be programmed: their space will be released.
    pub(crate) fn will_return(&mut self, group: u32, bytes: u64) {
        self.returning_bytes += bytes;
        if let Some(returning) = self.returning_by_group.get_mut(group as usize) {
            *returning += bytes;
        }
    }

    /// A program has ended.
    #[inline]
    pub(crate) fn release(&mut self, group: u32, bytes: u64) {
        self.hold(group, bytes);
        self.used_bytes -= bytes;
        if let Some(used) = self.used_by_group.get_mut(group as usize) {
            *used -= bytes;
        }
    }

    /// Writes that wait for space that no program in flight will release, after no write was
    /// admitted.
    pub(crate) fn stall(&self) -> Stall {
        match self.stalled_group {
            // With the quota of a reset, writes wait for its end.
            _ if !self.is_waited_for() || self.admitted_in_reset.is_some() => Stall::None,
            _ if self.returning_bytes == 0 => Stall::All,
            Some(group) => Stall::Group(group),
            None => Stall::None,
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn space_for(&self, waiting: &Waiting) -> u64 {
        let group_used = self.used_by_group.get(waiting.group as usize).copied().unwrap_or(0);
        let returning = self.returning_by_group.get(waiting.group as usize).copied().unwrap_or(self.returning_bytes);
        let space = self.capacity_bytes.saturating_sub(self.used_bytes).min(self.cap_bytes.saturating_sub(group_used));
        let space = space.min(self.reset_quota()).min(self.reset_quota_of(waiting.group));
        let space = space - space % self.block_bytes;
        // Where no more space will be released, the remaining space must suffice.
        let is_last = self.returning_bytes == 0 || (returning == 0 && group_used + self.piece_bytes > self.cap_bytes);
        let least = if is_last { self.block_bytes } else { self.piece_bytes.min(waiting.left_bytes) };
        if space >= least { space.min(waiting.left_bytes) } else { 0 }
    }

    /// Bytes that the reset at work lets in.
    #[inline]
    fn reset_quota(&self) -> u64 {
        let Some(admitted) = &self.admitted_in_reset else { return u64::MAX };
        self.reset_quota_bytes.saturating_sub(admitted.values().sum())
    }

    /// The same of a group.
    #[inline]
    fn reset_quota_of(&self, group: u32) -> u64 {
        let Some(admitted) = &self.admitted_in_reset else { return u64::MAX };
        self.reset_quota_of_group_bytes.saturating_sub(admitted.get(&group).copied().unwrap_or(0))
    }

    fn admit_first_that_fits(&mut self) -> Option<Admitted> {
        let is_full = self.capacity_bytes <= self.used_bytes || self.reset_quota() == 0;
        if is_full || self.queue.is_empty() {
            return None;
        }
        // Behind a writer at its cap, only writers of other groups may pass: the order within a
        // group is preserved.
        let mut held_groups: Vec<u32> = Vec::new();
        for index in 0..self.queue.len() {
            let waiting = self.queue[index];
            if held_groups.contains(&waiting.group) {
                continue;
            }
            if self.space_for(&waiting) > 0 {
                return self.admit_at(index);
            }
            if !self.is_at_limit(waiting.group) {
                return None; // Blocked by the buffer as a whole: no write may pass.
            }
            self.note_if_stuck(waiting.group);
            held_groups.push(waiting.group);
        }
        None
    }

    /// Whether a group is at a limit of its own.
    fn is_at_limit(&self, group: u32) -> bool {
        let used = self.used_by_group.get(group as usize).copied().unwrap_or(0);
        used + self.piece_bytes > self.cap_bytes || self.reset_quota_of(group) < self.piece_bytes
    }

    /// A group waits at its cap.
    fn note_if_stuck(&mut self, group: u32) {
        let is_capped =
            self.used_by_group.get(group as usize).is_some_and(|used| used + self.piece_bytes > self.cap_bytes);
        if is_capped && self.returning_by_group[group as usize] == 0 && self.used_bytes < self.capacity_bytes {
            self.stalled_group = Some(group);
        }
    }

    fn admit_at(&mut self, index: usize) -> Option<Admitted> {
        let waiting = *self.queue.get(index)?;
        let bytes = self.space_for(&waiting);
        if bytes == 0 {
            return None;
        }
        let left_bytes = waiting.left_bytes - bytes;
        if left_bytes == 0 {
            self.queue.remove(index);
        } else {
            self.queue[index].left_bytes = left_bytes;
        }
        Some(self.let_in(waiting, bytes))
    }

    fn admit_round_robin(&mut self) -> Option<Admitted> {
        let after = self.queues.range(self.last_group + 1..).map(|(group, _)| *group);
        let groups: Vec<u32> = after.chain(self.queues.range(..=self.last_group).map(|(group, _)| *group)).collect();
        for group in groups {
            let queue = self.queues.get_mut(&group).expect("the group was listed");
            let waiting = *queue.front().expect("an empty queue is removed");
            let bytes = self.space_for(&waiting).min(self.piece_bytes);
            if bytes == 0 {
                self.note_if_stuck(group);
                continue;
            }
            let queue = self.queues.get_mut(&group).expect("the group was listed");
            if bytes == waiting.left_bytes {
                queue.pop_front();
            } else {
                queue[0].left_bytes -= bytes;
            }
            if queue.is_empty() {
                self.queues.remove(&group);
            }
            self.last_group = group;
            return Some(self.let_in(waiting, bytes));
        }
        None
    }

    fn let_in(&mut self, waiting: Waiting, bytes: u64) -> Admitted {
        self.take(waiting.group, bytes);
        self.will_return(waiting.group, bytes);
        if let Some(admitted) = &mut self.admitted_in_reset {
            *admitted.entry(waiting.group).or_default() += bytes;
        }
        Admitted { command: waiting.command, bytes }
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.returning_bytes <= self.used_bytes, "the space about to be released is in use");
        let grouped: u64 = self.used_by_group.iter().sum();
        assert!(self.used_by_group.is_empty() || grouped == self.used_bytes, "each byte in use belongs to a group");
        let returning: u64 = self.returning_by_group.iter().sum();
        let is_whole = self.used_by_group.is_empty() || returning == self.returning_bytes;
        assert!(is_whole, "each byte about to be released belongs to a group");
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Key};

    use super::*;
    use crate::profile::CapScope;

    fn buffer(admission: Admission, cap: Option<u64>) -> WriteBuffer {
        let spec = BufferSpec {
            capacity: ByteSize(100),
            cap: cap.map(ByteSize),
            cap_scope: CapScope::Zone,
            reset_quota: None,
            reset_quota_per_zone: None,
            admission,
            early_completion: true,
        };
        WriteBuffer::new(&spec, 10, 1, 4)
    }

    fn ask(buffer: &mut WriteBuffer, command: u64, group: u32, left_bytes: u64) {
        let command = Key::of_command(CommandId(command)).expect("it is small");
        buffer.ask(Waiting { command, group, left_bytes });
    }

    fn admitted(buffer: &mut WriteBuffer) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| buffer.next_admitted()).map(|piece| (piece.command.index(), piece.bytes)).collect()
    }

    #[test]
    fn a_write_larger_than_the_free_space_is_admitted_as_space_is_released() {
        let mut buffer = buffer(Admission::FirstCome, None);
        ask(&mut buffer, 1, 0, 130);
        assert_eq!(admitted(&mut buffer), [(1, 100)]);
        buffer.release(0, 5);
        assert_eq!(admitted(&mut buffer), [], "less than a piece");
        buffer.release(0, 5);
        assert_eq!(admitted(&mut buffer), [(1, 10)]);
        buffer.release(0, 50);
        assert_eq!(admitted(&mut buffer), [(1, 20)]);
        assert!(!buffer.is_waited_for());
    }

    #[test]
    fn first_come_lets_others_pass_a_writer_at_its_cap_and_strict_does_not() {
        for (admission, expected) in
            [(Admission::FirstCome, vec![(1, 30), (3, 20)]), (Admission::Strict, vec![(1, 30)])]
        {
            let mut buffer = buffer(admission, Some(30));
            ask(&mut buffer, 1, 0, 30);
            ask(&mut buffer, 2, 0, 10);
            ask(&mut buffer, 3, 1, 20);
            assert_eq!(admitted(&mut buffer), expected, "{admission:?}");
        }
    }

    #[test]
    fn while_a_reset_holds_back_programs_it_lets_in_its_quota_of_each_zone_and_of_all() {
        let mut buffer = buffer(Admission::FirstCome, None);
        (buffer.reset_quota_bytes, buffer.reset_quota_of_group_bytes) = (50, 30);
        buffer.begin_reset();
        ask(&mut buffer, 1, 0, 40);
        ask(&mut buffer, 2, 1, 40);
        assert_eq!(admitted(&mut buffer), [(1, 30), (2, 20)], "the quota of zone 0, then that of all");
        buffer.hold(0, 30);
        buffer.hold(1, 20);
        assert_eq!((admitted(&mut buffer), buffer.stall()), (vec![], Stall::None), "the reset will end");
        buffer.begin_reset();
        assert_eq!(admitted(&mut buffer), [(1, 10), (2, 20)], "the next reset has a quota of its own");
        buffer.end_reset();
        ask(&mut buffer, 3, 0, 20);
        assert_eq!(admitted(&mut buffer), [(3, 20)]);
    }

    #[test]
    fn no_write_passes_one_that_waits_for_the_whole_buffer() {
        let mut buffer = buffer(Admission::FirstCome, Some(90));
        ask(&mut buffer, 1, 0, 90);
        ask(&mut buffer, 2, 1, 8);
        assert_eq!(admitted(&mut buffer), [(1, 90), (2, 8)]);
        ask(&mut buffer, 3, 1, 20);
        ask(&mut buffer, 4, 2, 1);
        assert_eq!(admitted(&mut buffer), [], "2 bytes are left, and writer 3 is first");
    }

    #[test]
    fn round_robin_admits_one_piece_of_each_zone_in_turn() {
        let mut buffer = buffer(Admission::RoundRobin, None);
        ask(&mut buffer, 1, 1, 25);
        ask(&mut buffer, 2, 2, 10);
        ask(&mut buffer, 3, 1, 5);
        assert_eq!(admitted(&mut buffer), [(1, 10), (2, 10), (1, 10), (1, 5), (3, 5)]);
    }

    #[test]
    fn a_buffer_full_of_data_that_wait_for_more_is_stuck() {
        let mut buffer = buffer(Admission::FirstCome, None);
        ask(&mut buffer, 1, 0, 100);
        assert_eq!(admitted(&mut buffer), [(1, 100)]);
        ask(&mut buffer, 2, 1, 10);
        assert_eq!(buffer.stall(), Stall::None, "the data are still in transfer");
        buffer.hold(0, 100);
        assert_eq!(buffer.stall(), Stall::All);
        buffer.will_return(0, 40);
        assert_eq!(buffer.stall(), Stall::None);
    }

    #[test]
    fn a_group_at_its_cap_with_data_that_wait_for_more_stalls_regardless_of_others() {
        let mut buffer = buffer(Admission::FirstCome, Some(30));
        ask(&mut buffer, 1, 0, 30);
        ask(&mut buffer, 2, 1, 30);
        assert_eq!(admitted(&mut buffer), [(1, 30), (2, 30)]);
        ask(&mut buffer, 3, 0, 10);
        assert_eq!((admitted(&mut buffer), buffer.stall()), (vec![], Stall::None));
        buffer.hold(0, 30);
        assert_eq!((admitted(&mut buffer), buffer.stall()), (vec![], Stall::Group(0)));
    }
}
