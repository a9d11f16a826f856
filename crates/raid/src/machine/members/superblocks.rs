//! The superblock log: the states of all members, in the first zones of each of them.
//!
//! The position on a member is managed by `log.rs`. A member has a superblock when one of its two
//! zones has it durably; one that can write it to neither has failed.
//!
//! A change of members is an epoch. Until all remaining ones have recorded it, no stripe counts
//! that was written without those that failed, and no segment is opened: a member that returns is
//! never taken for an up-to-date one.
//!
//! Members whose own superblock is older than the previous epoch get the new one after all others
//! have it: one that had an epoch which others never reached could not be distinguished from one
//! that was used alone.
//!
//! Each mount is an epoch, too, so that an older copy of a member is recognized by its own. If a
//! member cannot record it, the mount continues, and the epoch is abandoned: it does not count.
//!
//! Operations, in their order: [`begin_epoch`](Members::begin_epoch),
//! [`write_superblocks`](Members::write_superblocks), an event for each command that completes,
//! [`decided`](Members::decided).

use bytes::BytesMut;
use zonda_zoned::{Operation, Status, ZoneAction};

use super::log::LogStep;
use super::{Members, Verdict, Work};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::config::StreamShape;
use crate::event::Event;
use crate::format::{Superblock, VERSION};
use crate::machine::spec::Spec;
use crate::machine::stripes::StripeKey;
use crate::shape::{Layout, bits};

/// Owns the epoch, and the waiters until it is written.
#[derive(Debug)]
pub(super) struct Epochs {
    current: u64,
    /// The newest epoch that all members of that time have recorded.
    durable: u64,
    /// Sequence number of the last superblock.
    sequence: u64,
    /// The current epoch is still to be written.
    is_wanted: bool,
    /// It is the epoch of a mount, without changes of members.
    is_of_mount: bool,
    /// A member could not record it, and is not retried.
    is_abandoned: bool,
    /// Members that had no space for it, as bits: it waits until they have.
    lacking_space: u32,
    /// Whether an event has reported that.
    is_wait_reported: bool,
    /// Superblocks in flight.
    pending: u32,
    /// Members that get the epoch after all others have it, as bits.
    late: u32,
    /// Stripes that wait for the epoch only.
    waiting: Vec<StripeKey>,
}

impl Epochs {
    pub(super) fn new(current: u64, sequence: u64) -> Epochs {
        Epochs {
            current,
            durable: current,
            sequence,
            is_wanted: false,
            is_of_mount: false,
            is_abandoned: false,
            lacking_space: 0,
            is_wait_reported: false,
            pending: 0,
            late: 0,
            waiting: Vec::new(),
        }
    }

    /// A member has the superblock, or never will.
    fn ended(&mut self) {
        self.pending -= 1;
        self.count();
    }

    /// The epoch counts, if all remaining members have it.
    fn count(&mut self) {
        if self.is_durable() && !self.is_abandoned {
            self.durable = self.current;
        }
    }

    /// The superblocks are to be written, even if operations have to wait for that.
    fn require(&mut self) {
        self.is_wanted = true;
        self.is_of_mount = false;
    }

    /// Whether all remaining members have recorded the current states.
    fn is_durable(&self) -> bool {
        !self.is_wanted && self.pending == 0 && self.late == 0
    }
}

impl Members {
    /// The members have changed.
    pub(in crate::machine) fn begin_epoch(&mut self, spec: &Spec) {
        let is_loss = |member: &super::Member| !member.is_present() && member.has_unrecorded_state();
        if spec.has(SeededBug::ForgottenEpoch) && self.members.iter().any(is_loss) {
            return;
        }
        self.epochs.current += 1;
        for member in &mut self.members {
            member.record(self.epochs.current);
        }
        self.epochs.require();
    }

    /// A mount changes the media, and no member's state.
    pub(in crate::machine) fn begin_epoch_of_mount(&mut self, spec: &Spec) {
        self.begin_epoch(spec);
        self.epochs.is_of_mount = true;
    }

    /// All members that a mount found active have reached this epoch.
    pub(in crate::machine) fn have_reached(&mut self, epoch: u64) {
        self.epochs.durable = self.epochs.durable.min(epoch);
    }

    /// The next epoch is newer than this one.
    pub(in crate::machine) fn skip_epochs(&mut self, reached: u64) {
        self.epochs.current = self.epochs.current.max(reached);
    }

    /// Rewrites the superblocks: their newest copies may be damaged.
    pub(in crate::machine) fn renew_superblocks(&mut self) {
        self.epochs.require();
    }

    /// Zones of these members, as bits, are offline, and nothing in them is needed any more:
    /// superblocks are to record that.
    pub(in crate::machine) fn count_offline(&mut self, members: u32) {
        for member in self.present().filter(|member| members >> member.0 & 1 == 1) {
            self[member].lost_offline(1);
            self.epochs.require();
        }
    }

    /// Writes the current epoch, if it is not written. Returns the members that cannot record it:
    /// they have failed.
    pub(in crate::machine) fn write_superblocks(&mut self, spec: &Spec) -> Vec<MemberIndex> {
        let mut failed = Vec::new();
        if self.epochs.is_wanted && self.epochs.pending == 0 {
            self.epochs.is_wanted = false;
            self.epochs.is_abandoned = false;
            self.epochs.sequence += 1;
            let behind = bits(self.present().filter(|&member| self[member].is_behind()).map(MemberIndex::as_usize));
            self.epochs.late = behind;
            self.write_superblocks_of(spec, self.present_bits() & !behind, &mut failed);
        }
        if self.epochs.late != 0 && !self.epochs.is_wanted && self.epochs.pending == 0 {
            let late = std::mem::take(&mut self.epochs.late) & self.present_bits();
            self.write_superblocks_of(spec, late, &mut failed);
            self.epochs.count();
        }
        failed
    }

    fn write_superblocks_of(&mut self, spec: &Spec, members: u32, failed: &mut Vec<MemberIndex>) {
        // All of them before the first one: it may complete at once, and is not the last then.
        self.epochs.pending += (self.present_bits() & members).count_ones();
        for member in self.present().filter(|member| members >> member.0 & 1 == 1) {
            self[member].begin_superblock();
            if self.continue_superblock(spec, member, Status::Success) == Verdict::Failed {
                failed.push(member);
            }
        }
    }

    /// A member returns with a superblock of this epoch and sequence: those that are written from
    /// now on are newer.
    pub(in crate::machine) fn saw_superblock(&mut self, epoch: u64, sequence: u64) {
        self.epochs.current = self.epochs.current.max(epoch);
        self.epochs.sequence = self.epochs.sequence.max(sequence);
    }

    /// The current superblock of a member.
    pub(in crate::machine) fn superblock_of(&self, spec: &Spec, member: MemberIndex) -> Superblock {
        self.superblock(spec, member)
    }

    /// Superblocks are written to the second zone of members that lack it, now that enough zones
    /// may be active.
    pub(in crate::machine) fn complete_logs(&mut self) {
        let lacks = |member: MemberIndex| self[member].may_activate(0) && self[member].log.lacks_mirror();
        self.epochs.is_wanted |= self.present().any(lacks);
    }

    /// A stripe that waits for the epoch only: until that is durable.
    pub(in crate::machine) fn wait_for_epoch(&mut self, stripe: StripeKey) {
        assert!(!self.epochs.is_durable(), "a stripe that waits for nothing would be forgotten");
        self.epochs.waiting.push(stripe);
    }

    /// Stripes that waited for an epoch that is durable now.
    pub(in crate::machine) fn decided(&mut self, spec: &Spec) -> Vec<StripeKey> {
        if !self.epochs.is_durable() {
            return Vec::new();
        }
        let mut waiting = std::mem::take(&mut self.epochs.waiting);
        if spec.has(SeededBug::ForgottenStripe) {
            waiting.pop();
        }
        waiting
    }

    pub(in crate::machine) fn on_metadata_reset(
        &mut self,
        spec: &Spec,
        member: MemberIndex,
        status: Status,
    ) -> Verdict {
        if status.is_success() {
            self[member].log.was_managed();
        }
        self.continue_after(spec, member, status)
    }

    pub(in crate::machine) fn on_superblock(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        if status.is_success() && spec.is_cache_volatile() {
            self.send(member, Work::SuperblockFlush, Operation::Flush);
            return Verdict::Usable;
        }
        if status.is_success() {
            self[member].log.was_written();
        }
        self.continue_after(spec, member, status)
    }

    pub(in crate::machine) fn on_superblock_flush(
        &mut self,
        spec: &Spec,
        member: MemberIndex,
        status: Status,
    ) -> Verdict {
        if !status.is_success() {
            return self.superblock_failed(spec, member, status);
        }
        self[member].log.was_written();
        self.continue_superblock(spec, member, status)
    }

    /// Members, as bits, that have no space to record the current states, for which I/O waits.
    pub(in crate::machine) fn lacking_space_for_epoch(&self) -> u32 {
        if self.epochs.is_durable() { 0 } else { self.epochs.lacking_space & self.present_bits() }
    }

    /// An event, if the current states have begun to wait for space, or were recorded after that.
    pub(in crate::machine) fn take_epoch_event(&mut self) -> Option<Event> {
        let lacking = self.lacking_space_for_epoch();
        if lacking != 0 && !self.epochs.is_wait_reported {
            self.epochs.is_wait_reported = true;
            return Some(Event::EpochWaits { member: MemberIndex(lacking.trailing_zeros() as u8) });
        }
        let is_over = self.epochs.is_durable() && std::mem::take(&mut self.epochs.is_wait_reported);
        is_over.then_some(Event::EpochRecorded)
    }

    /// Whether all remaining members have recorded the current states.
    pub(in crate::machine) fn is_epoch_durable(&self) -> bool {
        self.epochs.is_durable()
    }

    pub(in crate::machine) fn epoch(&self) -> u64 {
        self.epochs.current
    }

    /// Sequence number of the last superblock that was written.
    #[cfg(any(test, feature = "testing"))]
    pub(in crate::machine) fn superblock_sequence(&self) -> u64 {
        self.epochs.sequence
    }

    /// The newest epoch that all members of that time have recorded.
    pub(in crate::machine) fn durable_epoch(&self) -> u64 {
        self.epochs.durable
    }

    /// The newest of these in which a member's state has changed.
    pub(in crate::machine) fn changed_epoch(&self) -> u64 {
        let since = self.iter().map(super::Member::since_epoch).filter(|&since| since <= self.epochs.durable);
        since.max().unwrap_or(0)
    }

    /// A command of a member's log has completed: one zone that fails does not fail the member.
    fn continue_after(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        if !self[member].is_present() {
            self.epochs.ended();
            return Verdict::Usable;
        }
        if !status.is_success() {
            self[member].count_write_error(status);
            self[member].log.has_failed();
        }
        self.continue_superblock(spec, member, status)
    }

    /// A member that cannot record the members fails. One that the volume needs, or that is out of
    /// space, is retried; the epoch of a mount is abandoned instead.
    fn superblock_failed(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        let mut verdict = if self[member].lacks_space() { Verdict::Usable } else { self.verdict_of(status) };
        if verdict == Verdict::Usable || !self.can_spare(spec, member) {
            if self.epochs.is_of_mount {
                self.epochs.is_abandoned = true;
                verdict = Verdict::Usable;
            } else {
                self.epochs.is_wanted = true;
            }
            if self[member].lacks_space() && !self.epochs.is_abandoned {
                self.epochs.lacking_space |= 1 << member.0;
            }
            self[member].log.forgive();
        }
        self.epochs.ended();
        verdict
    }

    fn continue_superblock(&mut self, spec: &Spec, index: MemberIndex, status: Status) -> Verdict {
        match self[index].next_of_superblock() {
            LogStep::Reset { zone } => {
                let reset = self[index].manage(zone, ZoneAction::Reset);
                self.send(index, Work::MetadataReset, reset);
            }
            LogStep::Finish { zone } => {
                let finish = self[index].manage(zone, ZoneAction::Finish);
                self.send(index, Work::MetadataReset, finish);
            }
            LogStep::Write { zone, offset, copies } => {
                let metadata = spec.no_metadata(self[index].geometry(), copies);
                let mut blocks = BytesMut::zeroed(copies as usize * spec.shape.block_bytes);
                let written = if spec.has(SeededBug::SingleSuperblock) { 1 } else { copies as usize };
                for (behind, block) in (0..).zip(blocks.chunks_mut(spec.shape.block_bytes).rev()).take(written) {
                    Superblock { copies_behind: behind, ..self.superblock(spec, index) }.write(block);
                }
                let contents = (blocks.freeze(), metadata);
                self.write(spec, index, Work::Superblock, (zone, offset), copies, contents);
            }
            LogStep::Done => {
                self.epochs.lacking_space &= !(1 << index.0);
                self.epochs.ended();
            }
            LogStep::Failed => return self.superblock_failed(spec, index, status),
        }
        Verdict::Usable
    }

    fn superblock(&self, spec: &Spec, member: MemberIndex) -> Superblock {
        let shape =
            |layout: &Layout| StreamShape { unit_blocks: layout.unit_blocks, group_stripes: layout.group_stripes };
        Superblock {
            version: VERSION,
            copies_behind: 0,
            accepted_segment: self.accepted_segment,
            offline_zones: Some(self[member].offline_zones()),
            read_only_zones: self[member].read_only_zones(),
            has_single_headers: spec.shape.has_single_headers,
            array: spec.array,
            name: spec.config.name.clone(),
            epoch: self.epochs.current,
            sequence: self.epochs.sequence,
            block_size_bytes: spec.shape.block_bytes as u32,
            volume_blocks: spec.volume_blocks(),
            level: spec.shape.scheme.level.code(),
            data: spec.shape.scheme.data,
            parity: spec.shape.scheme.parity,
            is_in_band: spec.shape.is_in_band,
            small: shape(&spec.shape.small),
            large: shape(&spec.shape.large),
            member: member.0,
            members: self.members.iter().map(super::Member::entry).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{end_next, key, members, spec};
    use super::super::log::MetadataLog;
    use super::*;
    use crate::limits::METADATA_ZONES;

    #[test]
    fn stripes_wait_until_all_members_know_of_a_change() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        members.begin_epoch(&spec);
        members.wait_for_epoch(key(4));
        assert_eq!(members.write_superblocks(&spec), []);
        for member in spec.member_indices() {
            assert!(!members.is_epoch_durable() && members.decided(&spec).is_empty());
            for _ in 0..METADATA_ZONES {
                assert!(!members.is_epoch_durable() && members.durable_epoch() == 1);
                let (work, completion) = end_next(&mut members, member, Status::Success).expect("a superblock");
                assert!(matches!(work, Work::Superblock));
                assert_eq!(members.on_superblock(&spec, member, completion.status), Verdict::Usable);
            }
        }
        assert_eq!(members.durable_epoch(), 2);
        assert!(members.is_epoch_durable());
        assert_eq!((members.epoch(), members.decided(&spec)), (2, vec![key(4)]));
        members.check_invariants();
    }

    /// Writes superblocks, of which those of member 1 complete with a status. Returns the verdicts
    /// on the members.
    fn write_with(members: &mut Members, spec: &Spec, status_of_1: Status) -> Vec<Verdict> {
        assert_eq!(members.write_superblocks(spec), []);
        let mut verdicts = Vec::new();
        for member in spec.member_indices() {
            let status = if member.0 == 1 { status_of_1 } else { Status::Success };
            while end_next(members, member, status).is_some() {
                verdicts.push(members.on_superblock(spec, member, status));
            }
        }
        verdicts
    }

    #[test]
    fn the_epoch_of_a_mount_that_a_member_out_of_space_cannot_record_is_abandoned_and_does_not_count() {
        let spec = spec(1, false);
        for is_of_mount in [true, false] {
            let mut members = members(&spec);
            if is_of_mount {
                members.begin_epoch_of_mount(&spec);
            } else {
                members.begin_epoch(&spec);
            }
            let verdicts = write_with(&mut members, &spec, Status::CapacityExceeded);
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Usable), "{verdicts:?}");
            assert_eq!((members.is_epoch_durable(), members.durable_epoch()), (is_of_mount, 1));
            // There is space again, and members change.
            members.begin_epoch(&spec);
            write_with(&mut members, &spec, Status::Success);
            assert_eq!((members.is_epoch_durable(), members.durable_epoch()), (true, 3));
        }
    }

    #[test]
    fn an_epoch_counts_once_all_members_have_reached_it_that_a_mount_found_active() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        members.begin_epoch(&spec);
        write_with(&mut members, &spec, Status::Success);
        members.have_reached(1);
        assert_eq!((members.epoch(), members.durable_epoch()), (2, 1));
        members.begin_epoch_of_mount(&spec);
        write_with(&mut members, &spec, Status::Success);
        assert_eq!(members.durable_epoch(), 3);
    }

    #[test]
    fn a_member_that_cannot_write_its_superblock_has_failed_and_delays_no_other() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        members.begin_epoch(&spec);
        assert_eq!(members.write_superblocks(&spec), []);
        for member in spec.member_indices() {
            for zone in 0..METADATA_ZONES {
                let status = if member.0 == 1 { Status::InternalError } else { Status::Success };
                end_next(&mut members, member, status).expect("a superblock");
                let is_last = member.0 == 1 && zone + 1 == METADATA_ZONES;
                let expected = if is_last { Verdict::Failed } else { Verdict::Usable };
                assert_eq!(members.on_superblock(&spec, member, status), expected);
            }
        }
        assert!(members.is_epoch_durable());
    }

    #[test]
    fn an_epoch_that_the_first_member_cannot_record_at_all_counts_only_once_the_others_have_it() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        let first = MemberIndex(0);
        let log = MetadataLog::found(members[first].geometry(), [(0, true); 2], 0, [false; 2]);
        members[first].resume_log(log);
        members.begin_epoch(&spec);
        assert_eq!(members.write_superblocks(&spec), [first]);
        assert!(!members.is_epoch_durable());
        assert_eq!(members.durable_epoch(), 1, "no member has it");
    }

    #[test]
    fn a_member_that_is_behind_has_its_superblock_once_all_others_have_theirs_and_none_gets_a_second_one() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        let behind = MemberIndex(1);
        members[behind].set_behind();
        members.begin_epoch(&spec);
        for is_late in [false, true] {
            assert_eq!(members.write_superblocks(&spec), []);
            for member in spec.member_indices() {
                let mut written = 0;
                while end_next(&mut members, member, Status::Success).is_some() {
                    written += 1;
                    assert_eq!(members.on_superblock(&spec, member, Status::Success), Verdict::Usable);
                }
                let expected = if (member == behind) == is_late { METADATA_ZONES } else { 0 };
                assert_eq!(written, expected, "member {}", member.0);
            }
        }
        assert!(members.is_epoch_durable());
    }

    #[test]
    fn a_member_of_which_one_metadata_zone_fails_records_each_epoch_in_the_other() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        for statuses in [&[Status::InternalError, Status::Success][..], &[Status::Success]] {
            members.begin_epoch(&spec);
            assert_eq!(members.write_superblocks(&spec), []);
            for member in spec.member_indices() {
                let all = if member.0 == 1 { statuses } else { &[Status::Success; 2] };
                for &status in all {
                    end_next(&mut members, member, status).expect("a superblock");
                    assert_eq!(members.on_superblock(&spec, member, status), Verdict::Usable);
                }
            }
            assert!(members.is_epoch_durable());
        }
    }

    #[test]
    fn the_second_zone_of_a_log_is_written_once_another_zone_may_be_active() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        for member in spec.member_indices() {
            while members[member].may_activate(0) {
                members[member].take_zone().expect("there are free ones");
            }
        }
        let written = |members: &mut Members| {
            assert_eq!(members.write_superblocks(&spec), []);
            let mut written = Vec::new();
            for member in spec.member_indices() {
                let mut commands = 0;
                while end_next(members, member, Status::Success).is_some() {
                    commands += 1;
                    assert_eq!(members.on_superblock(&spec, member, Status::Success), Verdict::Usable);
                }
                written.push(commands);
            }
            assert!(members.is_epoch_durable());
            written
        };
        members.begin_epoch(&spec);
        assert_eq!(written(&mut members), [1; 3]);
        members.complete_logs();
        assert_eq!(written(&mut members), [0; 3], "no other zone may be active");
        spec.member_indices().for_each(|member| members[member].close_one_zone());
        members.complete_logs();
        assert_eq!(written(&mut members), [2; 3]);
        members.complete_logs();
        assert_eq!(written(&mut members), [0; 3], "both zones have it");
        assert!(spec.member_indices().all(|member| members[member].log_zones() == METADATA_ZONES));
    }
}
