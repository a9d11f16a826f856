//! Members: what they are given, and what becomes of those that fail.

use std::collections::{BTreeSet, VecDeque};

use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Outcome,
    ReportFilter, Status, ZoneAction, ZoneDescriptor, ZoneIndex, ZoneTarget,
};

use super::rebuild::RebuildStep;
use super::start::{StartStep, is_dead};
use super::superblocks::MetadataLog;
use super::{Phase, Volume};
use crate::event::{Event, FailReason};
use crate::format::MemberState;
use crate::limits::{MEMBER_COMMANDS_MAX, METADATA_ZONES};
use crate::shape::bits;
use crate::tables::SegmentIndex;
use crate::{MemberIndex, VolumeError};

/// What a command under way is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Chunk {
        stripe: u32,
    },
    Header {
        segment: SegmentIndex,
    },
    Footer {
        segment: SegmentIndex,
        blocks: u32,
    },
    FinishZone {
        segment: SegmentIndex,
    },
    ResetZone {
        segment: SegmentIndex,
    },
    /// A report on a zone in which a write failed.
    Inspect {
        segment: SegmentIndex,
    },
    Fetch {
        fetch: u32,
    },
    /// A block that another one is computed from.
    Source {
        repair: u32,
        source: u8,
    },
    Flush,
    Superblock,
    SuperblockFlush,
    MetadataReset,
    Start(StartStep),
    /// Slots of a zone, for a rebuild or a scrub.
    Slots {
        piece: u32,
        slot: u32,
        count: u32,
    },
    Rebuild(RebuildStep),
}

#[derive(Debug)]
struct Given {
    work: Work,
    /// Distinguishes uses of one number.
    use_number: u32,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: [u8; 16],
    pub(super) geometry: Geometry,
    pub(super) state: MemberState,
    /// The epoch of its state.
    pub(super) since_epoch: u64,
    /// The state that the superblocks have.
    pub(super) recorded: Option<MemberState>,
    pub(super) free_zones: VecDeque<u32>,
    /// Zones that cannot be written any more.
    pub(super) retired_zones: BTreeSet<u32>,
    /// Zones with an active resource, those of superblocks included.
    pub(super) active_zones: u32,
    /// Those of them that nobody uses: they could not be reset, and may be active for ever.
    pub(super) stuck_zones: u32,
    pub(super) metadata: MetadataLog,
    outbox: VecDeque<Command>,
    given: Vec<Option<Given>>,
    free: Vec<u32>,
    under_way: usize,
    uses: u32,
    /// When each command was handed over, in that order; those that have ended are passed over.
    clock: VecDeque<(Instant, u64)>,
    /// The member has no room before the next completion.
    is_blocked: bool,
    /// Since when it has no room although nothing is under way: that is no better than silence.
    refused_since: Option<Instant>,
    pub(super) errors: u64,
    /// Segments in a row in which it failed.
    pub(super) failures: u32,
    /// Finishes of zones that have failed since the last one that did not.
    pub(super) failed_finishes: u8,
}

impl Member {
    pub(super) fn new(id: [u8; 16], geometry: Geometry) -> Member {
        Member {
            id,
            geometry,
            state: MemberState::Active,
            since_epoch: 1,
            recorded: None,
            free_zones: VecDeque::new(),
            retired_zones: BTreeSet::new(),
            active_zones: 0,
            stuck_zones: 0,
            metadata: MetadataLog::default(),
            outbox: VecDeque::new(),
            given: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            uses: 0,
            clock: VecDeque::new(),
            is_blocked: false,
            refused_since: None,
            errors: 0,
            failures: 0,
            failed_finishes: 0,
        }
    }

    /// Another device takes its place. What the old one still answers is told from what the new one does.
    pub(super) fn replace(&mut self, id: [u8; 16], geometry: Geometry) {
        let (since_epoch, recorded, uses) = (self.since_epoch, self.recorded, self.uses);
        *self = Member { state: MemberState::Failed, since_epoch, recorded, uses, ..Member::new(id, geometry) };
    }

    /// Whether it takes part in what is written from now on.
    pub(super) fn is_there(&self) -> bool {
        self.state != MemberState::Failed
    }

    /// Zones that are not for superblocks, and not worn out.
    pub(super) fn zones_for_segments(&self) -> u32 {
        self.geometry.zone_count.saturating_sub(self.retired_zones.len() as u32 + METADATA_ZONES)
    }

    /// Whether another zone may become active beside those that others wait for.
    pub(super) fn may_activate(&self, waiting: u32) -> bool {
        self.geometry.max_active_zones.is_none_or(|max| self.active_zones + waiting < max)
    }

    /// Whether zones that are stuck leave what a volume cannot do without: one of superblocks, one of hosts, one of relocation.
    pub(super) fn has_active_to_spare(&self) -> bool {
        self.geometry.max_active_zones.is_none_or(|max| self.stuck_zones + 3 <= max)
    }

    /// An active zone was not reset: it is not used any more, and holds its resource unless its medium has given up.
    pub(super) fn reset_failed(&mut self, status: Status) {
        if matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline) {
            self.active_zones -= 1;
        } else {
            self.stuck_zones += 1;
        }
    }

    /// A block of a zone, counted from the zone's start.
    pub(super) fn lba(&self, zone: u32, offset: u32) -> Lba {
        self.geometry.zone_start(ZoneIndex(zone)) + Blocks(u64::from(offset))
    }

    /// A management command for a zone.
    pub(super) fn manage(&self, zone: u32, action: ZoneAction) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(self.lba(zone, 0)) }
    }

    /// A report on zones from this one on.
    pub(super) fn report(&self, zone: u32, descriptors_max: u32) -> Operation {
        Operation::ReportZones {
            start: self.lba(zone, 0),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max,
        }
    }

    /// It was emptied, and takes part from now on; these are its zones.
    pub(super) fn begin(&mut self, zones: &[ZoneDescriptor]) {
        for zone in METADATA_ZONES..self.geometry.zone_count {
            if is_dead(zones[zone as usize].state) {
                self.retired_zones.insert(zone);
            } else {
                self.free_zones.push_back(zone);
            }
        }
        self.metadata = MetadataLog::default();
        self.active_zones = 1;
    }

    pub(super) fn send(&mut self, work: Work, operation: Operation) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.given.push(None);
            self.given.len() as u32 - 1
        });
        self.uses = self.uses.wrapping_add(1);
        self.given[index as usize] = Some(Given { work, use_number: self.uses });
        self.under_way += 1;
        let id = CommandId(u64::from(self.uses) << 32 | u64::from(index));
        self.outbox.push_back(Command { id, namespace: NamespaceId::FIRST, operation });
    }

    /// The same device once more, of which nothing is under way: its commands are told from those before.
    pub(super) fn again(&self) -> Option<Member> {
        let uses = self.uses;
        self.is_there().then(|| Member { uses, ..Member::new([0; 16], self.geometry.clone()) })
    }

    /// What an ended command was for; `None` of one that nobody waits for any more.
    pub(super) fn ended(&mut self, completion: &Completion) -> Option<Work> {
        self.is_blocked = false;
        self.refused_since = None;
        let (index, use_number) = (completion.id.0 as u32, (completion.id.0 >> 32) as u32);
        let entry = self.given.get_mut(index as usize)?;
        if entry.as_ref().is_none_or(|given| given.use_number != use_number) {
            return None;
        }
        let given = entry.take()?;
        self.free.push(index);
        self.under_way -= 1;
        while self.clock.front().is_some_and(|&(_, id)| !self.is_under_way(id)) {
            self.clock.pop_front();
        }
        Some(given.work)
    }

    fn is_under_way(&self, id: u64) -> bool {
        let given = self.given.get(id as u32 as usize).and_then(Option::as_ref);
        given.is_some_and(|given| given.use_number == (id >> 32) as u32)
    }

    /// All that was under way: it will not end any more.
    pub(super) fn abandon(&mut self) -> Vec<Work> {
        self.outbox.clear();
        self.clock.clear();
        self.refused_since = None;
        self.free.clear();
        self.under_way = 0;
        self.given.drain(..).flatten().map(|given| given.work).collect()
    }

    pub(super) fn answer_due(&self, timeout: Duration) -> Option<Instant> {
        let unanswered = self.clock.front().map(|&(since, _)| since);
        unanswered.into_iter().chain(self.refused_since).min().map(|since| since + timeout)
    }
}

impl Volume {
    /// The next command for a member; to be submitted before the next one is asked for.
    pub fn poll_command(&mut self, now: Instant, member: MemberIndex) -> Option<Command> {
        if self.is_lost() {
            return None;
        }
        let member = &mut self.members[member.as_usize()];
        if member.is_blocked || member.under_way - member.outbox.len() >= MEMBER_COMMANDS_MAX {
            return None;
        }
        let command = member.outbox.pop_front()?;
        member.clock.push_back((now, command.id.0));
        Some(command)
    }

    /// Whether commands wait for members.
    pub(crate) fn has_commands(&self) -> bool {
        self.members.iter().any(|member| !member.outbox.is_empty())
    }

    /// A member had no room for a command: it comes again from [`poll_command`](Volume::poll_command) after the next completion.
    pub fn on_queue_full(&mut self, member: MemberIndex, command: Command) {
        let now = self.now;
        let member = &mut self.members[member.as_usize()];
        if !member.is_under_way(command.id.0) {
            // It was given up meanwhile.
            return;
        }
        member.clock.retain(|&(_, id)| id != command.id.0);
        member.outbox.push_front(command);
        // With nothing under way there is no completion to wait for.
        member.is_blocked = member.under_way > member.outbox.len();
        if !member.is_blocked {
            member.refused_since.get_or_insert(now);
        }
    }

    /// Whether a member that had no room will end something, after which it is asked again.
    pub(crate) fn waits_for_completion(&self, member: MemberIndex) -> bool {
        self.members[member.as_usize()].is_blocked
    }

    /// How many members there are.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.spec.members()
    }

    /// Gives a member up, as if it had been pulled. What is under way on it counts as failed.
    pub fn fail_member(&mut self, now: Instant, member: MemberIndex) {
        self.now = now;
        if self.is_lost() {
            return;
        }
        self.give_up(member, FailReason::Command);
        self.settle();
    }

    pub(super) fn send(&mut self, member: MemberIndex, work: Work, operation: Operation) {
        debug_assert!(self.members[member.as_usize()].is_there(), "nothing is sent to a member that is gone");
        self.members[member.as_usize()].send(work, operation);
    }

    /// Members that take part in what is written.
    pub(super) fn present(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        let present = self.present_bits();
        (0..self.spec.members() as u8).filter(move |at| present >> at & 1 == 1).map(MemberIndex)
    }

    /// The same as bits.
    pub(super) fn present_bits(&self) -> u32 {
        bits((0..self.spec.members()).filter(|&at| self.members[at].is_there()))
    }

    /// A member cannot be used any more.
    pub(super) fn give_up(&mut self, index: MemberIndex, reason: FailReason) {
        self.stir();
        let member = &mut self.members[index.as_usize()];
        if member.state == MemberState::Failed {
            return;
        }
        member.state = MemberState::Failed;
        member.free_zones.clear();
        member.retired_zones.clear();
        (member.active_zones, member.stuck_zones) = (0, 0);
        self.events.push_back(Event::MemberFailed { member: index, reason });
        let abandoned = self.members[index.as_usize()].abandon();
        self.forget_zones_of(index);
        if !self.knows_its_scheme() {
            // A mount that has not read who belongs to it decides later.
        } else if !self.can_do_without() {
            let missing = self.missing();
            self.fail(VolumeError::TooManyMissing { tolerates: self.spec.code.tolerates(), missing });
        } else if self.writes_epochs() {
            self.begin_epoch();
        }
        self.stop_rebuild_of(index);
        // Their handlers run when the one that found the member out has run to its end.
        self.aborted.extend(abandoned.into_iter().map(|work| (index, work)));
    }

    pub(super) fn missing(&self) -> Vec<MemberIndex> {
        let is_missing = |at: &usize| !self.members[*at].is_there();
        (0..self.spec.members()).filter(is_missing).map(|at| MemberIndex(at as u8)).collect()
    }

    /// Whether stripes can be read without the members that are gone: with a mirror it matters which.
    pub(super) fn can_do_without(&self) -> bool {
        self.spec.are_enough(self.present_bits())
    }

    /// Whether the volume can do without a member that is there.
    pub(super) fn can_spare(&self, member: MemberIndex) -> bool {
        self.spec.are_enough(self.present_bits() & !(1 << member.0))
    }

    /// The volume is lost: every command ends with an error, once the handler that found out has run to its end.
    pub(super) fn fail(&mut self, error: VolumeError) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.phase = Phase::Failed(error.clone());
        self.events.push_back(Event::Failed(error));
    }

    /// Ends what was under way on members that were given up.
    pub(super) fn end_aborted(&mut self) {
        while let Some((member, work)) = self.aborted.pop_front() {
            let completion = Completion { id: CommandId(0), status: Status::InternalError, outcome: Outcome::None };
            self.dispatch(member, work, completion);
        }
    }

    pub(super) fn fail_silent_members(&mut self) {
        let timeout = self.spec.config.tuning.member_timeout;
        for member in self.present() {
            if self.members[member.as_usize()].answer_due(timeout).is_some_and(|due| due <= self.now) {
                self.give_up(member, FailReason::Silence);
            }
        }
        self.fail_silent_replacements();
    }
}
