//! One member: its state, its zones, its commands and its errors.

use zonda_zoned::{
    Blocks, Class, Command, Completion, Duration, Geometry, Instant, Lba, Operation, ReportFilter, Status, ZoneAction,
    ZoneDescriptor, ZoneIndex, ZoneState, ZoneTarget,
};

use super::commands::Commands;
use super::flapping::Flapping;
use super::log::{LogStep, MetadataLog, is_mirrored};
use super::zones::Zones;
use super::{Verdict, Work};
use crate::event::FailReason;
use crate::format::{MemberEntry, MemberState};
use crate::limits::{MEMBER_FAILURES_MAX, METADATA_ZONES, WRITE_ATTEMPTS_MAX};

/// Owns the state of one member device.
#[derive(Debug)]
pub(in crate::machine) struct Member {
    id: [u8; 16],
    geometry: Geometry,
    state: MemberState,
    /// The epoch since which it has this state.
    since_epoch: u64,
    /// The state in the superblocks.
    recorded: Option<MemberState>,
    /// It failed because the other side of a split brain was chosen.
    is_rejected: bool,
    /// Its own superblock is older than those of others.
    is_behind: bool,
    /// Why it has failed, since the mount.
    failed: Option<FailReason>,
    flapping: Flapping,
    zones: Zones,
    pub(super) log: MetadataLog,
    commands: Commands,
    errors: u64,
    /// Consecutive segments in which it failed.
    failures: u32,
    /// Failed finishes of zones since the last successful one.
    failed_finishes: u8,
    /// When a command last failed for lack of space.
    no_space_at: Option<Instant>,
}

/// A member lacks space for this long after the last command that failed for that reason: until
/// then other failed writes are a consequence, and no sign that the member has failed.
const NO_SPACE_TIME: Duration = Duration::from_secs(10);

impl Member {
    pub(in crate::machine) fn new(id: [u8; 16], geometry: Geometry) -> Member {
        Member {
            id,
            state: MemberState::Active,
            since_epoch: 1,
            recorded: None,
            is_rejected: false,
            is_behind: false,
            failed: None,
            flapping: Flapping::default(),
            zones: Zones::default(),
            log: MetadataLog::empty(&geometry),
            commands: Commands::default(),
            errors: 0,
            failures: 0,
            failed_finishes: 0,
            no_space_at: None,
            geometry,
        }
    }

    /// The same device for a new mount, with no command in flight; `None` of one that has failed.
    pub(in crate::machine) fn again(&self) -> Option<Member> {
        let commands = self.commands.successor();
        self.is_present().then(|| Member { commands, ..Member::new([0; 16], self.geometry.clone()) })
    }

    /// Another device replaces it, still in the failed state.
    pub(in crate::machine) fn replace(&mut self, id: [u8; 16], geometry: Geometry) {
        let (since_epoch, recorded, commands) = (self.since_epoch, self.recorded, self.commands.successor());
        *self = Member { state: MemberState::Failed, since_epoch, recorded, commands, ..Member::new(id, geometry) };
    }

    /// The device is empty, and joins; these are its zones.
    pub(in crate::machine) fn begin(&mut self, zones: &[ZoneDescriptor]) {
        for zone in METADATA_ZONES..self.geometry.zone_count {
            if is_dead(zones[zone as usize].state) {
                self.zones.retire_unused(zone, zones[zone as usize].state);
                self.zones.lost_offline(u32::from(zones[zone as usize].state == ZoneState::Offline));
            } else {
                self.zones.found_free(zone);
            }
        }
        self.resume_log(MetadataLog::empty(&self.geometry));
    }

    /// The same device returns, still in the failed state.
    pub(in crate::machine) fn come_back(&mut self, geometry: Geometry) {
        let (flapping, failed) = (std::mem::take(&mut self.flapping), self.failed);
        self.replace(self.id, geometry);
        (self.flapping, self.failed) = (flapping, failed);
    }

    /// The device joins with its contents: these are its zones, and its log. Zones with contents
    /// are unassigned.
    pub(in crate::machine) fn rejoin(&mut self, zones: &[ZoneDescriptor], log: MetadataLog, now: Instant) {
        self.resume_log(log);
        for (zone, descriptor) in (0..).zip(zones).skip(METADATA_ZONES as usize) {
            match descriptor.state {
                ZoneState::Offline => {
                    self.zones.retire(zone);
                    self.zones.lost_offline(1);
                }
                ZoneState::ReadOnly => self.zones.retire_unused(zone, descriptor.state),
                ZoneState::Empty => self.zones.found_free(zone),
                state if state.is_active() => self.zones.found_active(),
                _ => {}
            }
        }
        self.is_behind = true;
        self.failed = None;
        self.flapping.returned(now);
        self.state = MemberState::Rebuilding;
    }

    /// Records the reason of its failure.
    pub(in crate::machine) fn failed_for(&mut self, reason: FailReason) {
        self.failed = Some(reason);
    }

    /// Why it has failed, since the mount.
    pub(in crate::machine) fn failed(&self) -> Option<FailReason> {
        self.failed
    }

    /// Whether it has returned too often to be re-added again.
    pub(in crate::machine) fn has_returned_too_often(&self, now: Instant) -> bool {
        self.flapping.has_returned_too_often(now)
    }

    /// Resets the history of its failures.
    pub(in crate::machine) fn forgive_flapping(&mut self) {
        self.flapping.forgive();
    }

    #[inline]
    pub(super) fn answered(&mut self, now: Instant) {
        self.flapping.answered(now);
    }

    pub(super) fn unresponsive_since(&self, oldest: Instant) -> Instant {
        self.flapping.unresponsive_since(oldest)
    }

    pub(super) fn sample(&mut self, now: Instant, is_stalled: bool) {
        self.flapping.sample(now, is_stalled);
    }

    pub(super) fn stalls(&self) -> bool {
        self.flapping.stalls()
    }

    /// The unique id of the device.
    pub(in crate::machine) fn id(&self) -> [u8; 16] {
        self.id
    }

    /// A mount has found that its own superblock is older than those of others.
    pub(in crate::machine) fn set_behind(&mut self) {
        self.is_behind = true;
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// A mount has not found the member.
    pub(in crate::machine) fn set_absent(&mut self) {
        self.state = MemberState::Failed;
    }

    /// A mount adopts its state from the newest superblock.
    pub(in crate::machine) fn adopt(&mut self, known: &MemberEntry, state: MemberState) {
        self.id = known.id;
        self.since_epoch = known.since_epoch;
        self.recorded = Some(known.state);
        self.is_rejected = known.is_rejected;
        self.state = state;
    }

    /// A mount keeps the side of other members, and superblocks are to record that.
    pub(in crate::machine) fn reject(&mut self) {
        self.state = MemberState::Failed;
        self.recorded = None;
        self.is_rejected = true;
    }

    /// Whether it belongs to a rejected side of a split brain.
    pub(in crate::machine) fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// A mount continues its superblock log.
    pub(in crate::machine) fn resume_log(&mut self, log: MetadataLog) {
        self.zones.open_log(log.active_zones());
        self.log = log;
    }

    /// A superblock is to be written. A second zone becomes active for it where possible.
    pub(super) fn begin_superblock(&mut self) {
        self.is_behind = false;
        let may_open = self.may_activate(0);
        if self.log.begin(&self.geometry, may_open) {
            self.zones.open_log_mirror();
        }
    }

    /// The next step for the superblock.
    pub(super) fn next_of_superblock(&mut self) -> LogStep {
        self.log.next(&self.geometry)
    }

    /// It receives new stripes, and the old ones are rebuilt.
    pub(in crate::machine) fn begin_rebuild(&mut self) {
        self.is_rejected = false;
        self.state = MemberState::Rebuilding;
    }

    /// Its rebuild is complete.
    pub(in crate::machine) fn end_rebuild(&mut self) {
        self.state = MemberState::Active;
    }

    /// It cannot be used any more. Returns the purposes of its commands, which will not complete;
    /// `None` if it had failed before.
    pub(super) fn fail(&mut self) -> Option<Vec<Work>> {
        if self.state == MemberState::Failed {
            return None;
        }
        self.state = MemberState::Failed;
        self.zones = Zones::default();
        Some(self.commands.abandon())
    }

    /// Its state is written to the superblocks of an epoch.
    pub(super) fn record(&mut self, epoch: u64) {
        if self.has_unrecorded_state() {
            self.since_epoch = epoch;
            self.recorded = Some(self.state);
        }
    }

    /// Abandons its commands: nothing waits for them.
    pub(in crate::machine) fn abandon(&mut self) -> Vec<Work> {
        self.commands.abandon()
    }

    /// Queues a command, also for a device that is not a member yet.
    pub(in crate::machine) fn send(&mut self, work: Work, operation: Operation) {
        self.commands.send(work, work.class(), operation);
    }

    pub(super) fn send_as(&mut self, class: Class, work: Work, operation: Operation) {
        self.commands.send(work, class, operation);
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Command> {
        self.commands.poll(now)
    }

    pub(super) fn queue_full(&mut self, now: Instant, command: Command) {
        self.commands.queue_full(now, command);
    }

    pub(super) fn ended(&mut self, completion: &Completion) -> Option<Work> {
        self.commands.ended(completion)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.commands.is_blocked()
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.commands.has_waiting()
    }

    /// Whether all its commands have ended.
    pub(super) fn is_idle(&self) -> bool {
        self.commands.is_idle()
    }

    /// The purposes of outstanding commands.
    pub(in crate::machine) fn in_flight(&self) -> impl Iterator<Item = &Work> {
        self.commands.in_flight()
    }

    /// When the oldest command in flight times out.
    pub(in crate::machine) fn answer_due(&self, timeout: Duration) -> Option<Instant> {
        self.commands.answer_due(timeout)
    }

    /// Whether a command is in flight.
    pub(in crate::machine) fn has_in_flight(&self) -> bool {
        self.commands.answer_due(Duration(0)).is_some()
    }

    /// A free zone, which becomes active.
    pub(in crate::machine) fn take_zone(&mut self) -> Option<u32> {
        self.zones.take()
    }

    /// A mount found a zone without contents.
    pub(in crate::machine) fn found_free_zone(&mut self, zone: u32) {
        self.zones.found_free(zone);
    }

    /// A mount found an active zone.
    pub(in crate::machine) fn found_active_zone(&mut self) {
        self.zones.found_active();
    }

    /// A zone cannot be written any more.
    pub(in crate::machine) fn retire_zone(&mut self, zone: u32) {
        self.zones.retire(zone);
    }

    /// A zone without needed contents is in this state, in which it cannot be written any more.
    pub(in crate::machine) fn retire_unused_zone(&mut self, zone: u32, state: ZoneState) {
        self.zones.retire_unused(zone, state);
    }

    /// A zone is in this state: a free one that cannot be written is not free any more.
    pub(in crate::machine) fn found_dead_zone(&mut self, zone: u32, state: ZoneState) {
        if is_dead(state) {
            self.zones.retire_free(zone, state);
        }
    }

    /// Zones without needed contents are offline.
    pub(in crate::machine) fn lost_offline(&mut self, zones: u32) {
        self.zones.lost_offline(zones);
    }

    /// The number of these zones.
    pub(in crate::machine) fn offline_zones(&self) -> u32 {
        self.zones.offline_count()
    }

    /// Read-only zones without needed contents.
    pub(in crate::machine) fn read_only_zones(&self) -> Vec<u32> {
        self.zones.read_only().collect()
    }

    /// A zone needs no active resource any more.
    pub(in crate::machine) fn close_one_zone(&mut self) {
        self.zones.close_one();
    }

    /// The reset of a zone has ended.
    pub(in crate::machine) fn zone_reset_ended(&mut self, zone: u32, was_active: bool, status: Status) {
        self.zones.reset_ended(zone, was_active, status);
    }

    /// A command has failed.
    pub(in crate::machine) fn count_error(&mut self) {
        self.errors += 1;
    }

    /// A write, a finish or a reset has failed. Lack of space is no error of the member.
    pub(in crate::machine) fn count_write_error(&mut self, status: Status) {
        self.errors += u64::from(status != Status::CapacityExceeded && !self.lacks_space());
    }

    /// A command has failed for lack of space.
    pub(super) fn set_no_space(&mut self, now: Instant) {
        self.no_space_at = Some(now);
    }

    /// There is space again.
    pub(super) fn forget_no_space(&mut self) {
        self.no_space_at = None;
    }

    /// Whether commands have failed for lack of space until recently.
    pub(in crate::machine) fn lacks_space(&self) -> bool {
        self.no_space_at.is_some_and(|at| self.flapping.answered_at() < at + NO_SPACE_TIME)
    }

    /// It failed in another segment. Returns whether that is once too often.
    pub(in crate::machine) fn count_failure(&mut self) -> Verdict {
        self.failures += 1;
        if self.failures >= MEMBER_FAILURES_MAX { Verdict::Failed } else { Verdict::Usable }
    }

    /// The volume needs it: its next failure is one too many again.
    pub(super) fn expect_failure(&mut self) {
        self.failures = self.failures.min(MEMBER_FAILURES_MAX - 1);
        self.failed_finishes = 0;
    }

    /// A zone was the cause, not the member.
    pub(in crate::machine) fn excuse_failure(&mut self) {
        self.failures = self.failures.saturating_sub(1);
    }

    /// A chunk was written.
    pub(in crate::machine) fn forgive_failures(&mut self) {
        self.failures = 0;
    }

    /// A finish has succeeded.
    pub(in crate::machine) fn forgive_finishes(&mut self) {
        self.failed_finishes = 0;
    }

    /// A finish has failed, and its zone may still be active. Returns whether that is once too
    /// often.
    pub(in crate::machine) fn count_failed_finish(&mut self) -> Verdict {
        self.errors += 1;
        self.failed_finishes += 1;
        if self.failed_finishes == WRITE_ATTEMPTS_MAX { Verdict::Failed } else { Verdict::Usable }
    }

    pub(super) fn excuse_timeouts(&mut self, now: Instant, by: Duration) {
        self.commands.excuse_timeouts(now, by);
        self.flapping.excuse(by);
    }

    pub(in crate::machine) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The epoch since which it has its state.
    pub(in crate::machine) fn since_epoch(&self) -> u64 {
        self.since_epoch
    }

    pub(in crate::machine) fn state(&self) -> MemberState {
        self.state
    }

    /// Whether new stripes are written to it.
    pub(in crate::machine) fn is_present(&self) -> bool {
        self.state != MemberState::Failed
    }

    /// Whether it has failed, and had when this epoch began: it holds nothing that was written
    /// since.
    pub(in crate::machine) fn has_failed_by(&self, epoch: u64) -> bool {
        !self.is_present() && !self.has_unrecorded_state() && self.since_epoch <= epoch
    }

    /// Whether the superblocks record another state of it.
    pub(in crate::machine) fn has_unrecorded_state(&self) -> bool {
        self.recorded != Some(self.state)
    }

    pub(in crate::machine) fn errors(&self) -> u64 {
        self.errors
    }

    pub(in crate::machine) fn failures(&self) -> u32 {
        self.failures
    }

    pub(in crate::machine) fn free_zones(&self) -> u32 {
        self.zones.free_count()
    }

    pub(in crate::machine) fn retired_zones(&self) -> u32 {
        self.zones.retired_count()
    }

    pub(in crate::machine) fn active_zones(&self) -> u32 {
        self.zones.active()
    }

    /// Whether the maximum of zones is active, and none of them is of its log.
    pub(in crate::machine) fn lacks_zone_for_log(&self) -> bool {
        // One is counted for the log.
        self.log.is_idle() && self.geometry.max_active_zones.is_some_and(|max| self.zones.active() > max)
    }

    /// Zones of its log that are active.
    pub(in crate::machine) fn log_zones(&self) -> u32 {
        self.log.active_zones()
    }

    pub(in crate::machine) fn stuck_zones(&self) -> u32 {
        self.zones.stuck()
    }

    /// The free zones themselves, for checks.
    pub(in crate::machine) fn each_free_zone(&self) -> impl Iterator<Item = u32> + '_ {
        self.zones.free()
    }

    /// Zones for segments that can be written.
    pub(in crate::machine) fn zones_for_segments(&self) -> u32 {
        self.geometry.zone_count.saturating_sub(self.zones.retired_count() + METADATA_ZONES)
    }

    /// Whether another zone may become active besides those reserved for others.
    pub(in crate::machine) fn may_activate(&self, waiting: u32) -> bool {
        self.geometry.max_active_zones.is_none_or(|max| self.zones.active() + waiting < max)
    }

    /// Whether stuck zones leave the minimum that a volume needs: those of superblocks, one of
    /// hosts, one of relocation.
    pub(in crate::machine) fn has_active_to_spare(&self) -> bool {
        let needed = 3 + u32::from(is_mirrored(&self.geometry));
        self.geometry.max_active_zones.is_none_or(|max| self.zones.stuck() + needed <= max)
    }

    /// A block of a zone, counted from the zone's start.
    pub(in crate::machine) fn lba(&self, zone: u32, offset: u32) -> Lba {
        self.geometry.zone_start(ZoneIndex(zone)) + Blocks(u64::from(offset))
    }

    /// A management command for a zone.
    pub(in crate::machine) fn manage(&self, zone: u32, action: ZoneAction) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(self.lba(zone, 0)) }
    }

    /// A zone report that begins at this zone.
    pub(in crate::machine) fn report(&self, zone: u32, descriptors_max: u32) -> Operation {
        Operation::ReportZones {
            start: self.lba(zone, 0),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max,
        }
    }

    /// Its entry in superblocks.
    pub(super) fn entry(&self) -> MemberEntry {
        let is_rejected = self.is_rejected && self.state == MemberState::Failed;
        MemberEntry { id: self.id, state: self.state, since_epoch: self.since_epoch, is_rejected }
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        self.commands.check_invariants();
        if self.is_present() {
            self.zones.check_invariants(&self.geometry, self.log.is_idle());
        }
    }
}

/// Whether a zone can never be written again.
pub(in crate::machine) fn is_dead(state: ZoneState) -> bool {
    matches!(state, ZoneState::Offline | ZoneState::ReadOnly)
}
