//! [`VolumeDrive`]: a volume on its members, what it reports, and its end.

use std::collections::VecDeque;

use zonda_raid::{Event, Extent, FailReason, MemberIndex, MemberState, VolumeError, VolumeOn};
use zonda_ring::Bytes;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Outcome,
    QueueFull, Status, ZoneState, ZonedDevice,
};

use super::adopt::{Adoption, RequestId};
use super::directory::{LastState, VolumeDirectory, VolumeFile};
use super::lease::Lease;
use super::open::cannot_save;
use super::ranges::add_range;
use super::report::{ScrubSummary, VolumeReport, scrubbed_in_words, suspended_in_words};
use super::reservations::Kept;
use super::returns::{Absence, Returning};
use super::seat::Seat;
use super::spare_watch::SpareWatch;
use super::spares::Spare;
use crate::opening::OnRing;
use crate::{Drive, DriveError, DriveFacts};

/// When a volume is closed, what it does for itself (a rebuild, a scrub) gets so long to come to a good place. A mount finds its way from
/// any other, too.
const SETTLE_MAX: Duration = Duration(1_000_000_000);

/// Time between two attempts to write `volume.toml`.
pub(super) const SAVE_INTERVAL: Duration = Duration(10_000_000_000);

/// The same while hosts wait for it.
const SAVE_INTERVAL_WAITING: Duration = Duration(1_000_000_000);

/// Something that happened to a volume, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should do something about it.
    pub is_trouble: bool,
    /// What it is.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Just mounted: places are not filled yet.
    New,
    Open,
    /// No more commands come; at this time the volume is stopped where it is.
    Settling(Instant),
    /// Another owner has the volume; till this time it is waited for who that is.
    TakenOver(Instant),
    /// The volume stands still; its members end what is under way, and close.
    Closing,
}

/// A redundant volume as a drive of conventional zones.
pub struct VolumeDrive {
    pub(super) on: VolumeOn<Seat>,
    pub(super) directory: VolumeDirectory,
    pub(super) spares: Vec<Spare>,
    pub(super) spare_watch: SpareWatch,
    /// Devices that are to become a member or a spare.
    pub(super) adoptions: Vec<Adoption>,
    /// Requests that were answered later than they were asked.
    pub(super) answers: VecDeque<(RequestId, Result<VolumeReport, DriveError>)>,
    /// Requests that have failed members, and are answered when that is durable, or at this time.
    pub(super) failing: Vec<(Instant, RequestId)>,
    pub(super) next_request: u64,
    /// What distinguishes each member's device from all others; `None` where that is not known.
    pub(super) ids: Vec<Option<[u8; 16]>>,
    /// When `volume.toml`, which could not be written, is written again.
    pub(super) save_again_at: Option<Instant>,
    /// Members that have failed, and are looked for.
    pub(super) absent: Vec<Absence>,
    /// Members whose device is there again, and is looked at by the volume.
    pub(super) returning: Vec<Returning>,
    /// Members whose device was refused when it came back, as bits: that is said once.
    pub(super) refused: u32,
    /// What devices need that are opened later.
    pub(super) on_ring: Option<OnRing>,
    /// Devices that were taken out and are being closed.
    pub(super) leaving: Vec<Seat>,
    pub(super) notices: VecDeque<Notice>,
    /// Reports of zones: they need nothing of the members.
    reports: VecDeque<Completion>,
    pub(super) lease: Lease,
    /// The newest epoch of a superblock when the volume was opened.
    pub(super) opened_epoch: u64,
    pub(super) reservations: Kept,
    /// What has ended in an epoch that `volume.toml` does not have yet.
    held: CompletionQueue,
    /// Whether hosts wait until `volume.toml` can be written.
    is_held: bool,
    pub(super) last_scrub: Option<ScrubSummary>,
    /// What happened before the mount had ended.
    pub(super) early_events: VecDeque<Event>,
    /// No spare takes a member's place, and no member is taken back, unless that is asked for.
    pub(super) keeps_members: bool,
    /// Devices that could not be made durable at the end.
    pub(super) close_errors: Vec<String>,
    pub(super) phase: Phase,
}

impl VolumeDrive {
    pub(super) fn new(
        on: VolumeOn<Seat>,
        directory: VolumeDirectory,
        spares: Vec<Spare>,
        ids: Vec<Option<[u8; 16]>>,
    ) -> VolumeDrive {
        let mut drive = VolumeDrive {
            on,
            directory,
            spares,
            spare_watch: SpareWatch::default(),
            adoptions: Vec::new(),
            answers: VecDeque::new(),
            failing: Vec::new(),
            next_request: 0,
            ids,
            save_again_at: None,
            absent: Vec::new(),
            returning: Vec::new(),
            refused: 0,
            on_ring: None,
            leaving: Vec::new(),
            notices: VecDeque::new(),
            reports: VecDeque::new(),
            lease: Lease::default(),
            opened_epoch: 0,
            reservations: Kept::default(),
            held: CompletionQueue::new(),
            is_held: false,
            last_scrub: None,
            early_events: VecDeque::new(),
            keeps_members: false,
            close_errors: Vec::new(),
            phase: Phase::New,
        };
        for member in drive.members() {
            drive.on.member_mut(member).into_iter().for_each(Seat::hold_when_lost);
        }
        drive
    }

    /// A device comes to a member's place.
    pub(super) fn take_in(&mut self, member: MemberIndex, mut seat: Seat) {
        seat.hold_when_lost();
        self.on.replace(member, Some(seat));
    }

    /// What tells this volume from all others: a UUID.
    #[must_use]
    pub fn array(&self) -> [u8; 16] {
        self.on.volume().array()
    }

    /// Where the volume's directory is.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// What has happened since this was last asked, the oldest first.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(super) fn tell(&mut self, is_trouble: bool, text: String) {
        self.notices.push_back(Notice { is_trouble, text });
    }

    /// A member in words: its number, and where it is.
    pub(super) fn shown(&self, member: MemberIndex) -> String {
        let place = self.directory.file.member.get(usize::from(member.0));
        format!("member {} ({})", member.0, place.map_or("unknown", |place| place.at.as_str()))
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        (0..self.on.volume().member_count() as u8).map(MemberIndex)
    }

    /// How many more members, whichever they are, the volume can do without now.
    pub(super) fn can_lose(&self) -> usize {
        let lost = self.members().filter(|member| self.state(*member) != MemberState::Active).count();
        self.on.volume().code_tolerates().saturating_sub(lost)
    }

    pub(super) fn state(&self, member: MemberIndex) -> MemberState {
        self.on.volume().member_state(member)
    }

    /// What a member that is given up brings with it: its device goes, and a spare comes.
    fn on_failure(&mut self, now: Instant, member: MemberIndex, reason: FailReason) {
        let shown = self.shown(member);
        let why = match reason {
            FailReason::Command => "somebody said so",
            FailReason::Errors => "its commands fail",
            FailReason::Silence => "it does not answer",
            FailReason::Absent => "it was not there, or is out of date",
            FailReason::Flapping => {
                "it fails and comes back, or stops answering for a while, again and again; zonda member re-add takes it back"
            }
        };
        self.note_failure(member, reason);
        let left = self.can_lose();
        self.tell(true, format!("{shown} is given up: {why}; the volume can lose {left} more"));
        if self.phase == Phase::Open {
            self.take_out(now, member);
            self.use_spare(now, member);
            self.look_for_absent(now);
        }
    }

    /// Writes down where the members are and how they were last. Where that fails the volume goes on, and it is tried again.
    pub(super) fn save(&mut self, now: Instant) {
        match self.directory.save() {
            Ok(()) => self.saved(),
            Err(error) => {
                if self.save_again_at.is_none() {
                    self.tell(true, cannot_save(&self.directory, &error).message);
                }
                let interval = if self.is_held { SAVE_INTERVAL_WAITING } else { SAVE_INTERVAL };
                self.save_again_at = Some(now + interval);
            }
        }
    }

    /// Writes down what an operator has asked for, before he is told that it is done. Where that fails the file is as `before`.
    pub(super) fn save_or_go_back(&mut self, before: VolumeFile) -> Result<(), DriveError> {
        match self.directory.save() {
            Ok(()) => {
                self.saved();
                Ok(())
            }
            Err(error) => {
                self.directory.file = before;
                Err(cannot_save(&self.directory, &error))
            }
        }
    }

    fn saved(&mut self) {
        if self.save_again_at.take().is_some() {
            self.tell(false, format!("{} is written again", super::VOLUME_FILE));
        }
    }

    /// The file is brought up to what is known of the members.
    pub(super) fn note_states(&mut self, now: Instant) {
        let before = self.directory.file.clone();
        let status = self.on.volume().status();
        for (member, report) in self.members().zip(status.members) {
            let may_be_joining = self.keeps_members || self.on.member(member).is_some();
            let place = &mut self.directory.file.member[usize::from(member.0)];
            place.state = Some(match report.state {
                MemberState::Active => LastState::Active,
                MemberState::Rebuilding => LastState::Rebuilding,
                // Only a device that was accepted may be wiped by the next start.
                MemberState::Failed if may_be_joining && place.state == Some(LastState::Joining) => LastState::Joining,
                MemberState::Failed => LastState::Failed,
            });
            if report.state != MemberState::Failed {
                place.failed = None;
            }
        }
        self.directory.file.lost_blocks = Some(status.lost_blocks).filter(|blocks| *blocks > 0);
        self.note_mount();
        // What members have reached that are away is not forgotten: it only grows.
        self.directory.file.epoch = self.directory.file.epoch.max(self.known_epoch());
        if self.directory.file != before {
            self.save(now);
        }
    }

    /// The newest epoch that is durable on the members; `None` if the volume is lost.
    pub(super) fn known_epoch(&self) -> Option<u64> {
        self.on.volume().is_ready().then(|| self.on.volume().epoch())
    }

    /// Whether `volume.toml` has the newest epoch in which a member's state has changed. That of the mount is for copies of members from
    /// before, which are rare: I/O does not wait for it.
    pub(super) fn is_epoch_saved(&self) -> bool {
        let volume = self.on.volume();
        !volume.is_ready() || Some(volume.changed_epoch()) <= self.directory.saved_epoch()
    }

    /// Hands out what has ended. If the epoch of it is not in the file, members that are out of date could be taken for the volume after the
    /// next start: hosts wait until it can be written.
    fn release(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let is_held = !self.is_epoch_saved();
        if is_held && !self.is_held {
            let file = super::VOLUME_FILE;
            self.tell(true, format!("I/O is suspended: members have changed, and {file} cannot be written"));
            self.save_again_at = Some(now + SAVE_INTERVAL_WAITING);
        } else if self.is_held && !is_held {
            self.tell(false, format!("I/O is resumed: {} is written", super::VOLUME_FILE));
        }
        self.is_held = is_held;
        while let Some(completion) = if is_held && self.phase == Phase::Open { None } else { self.held.pop() } {
            // At the end nothing is written any more: it may be there or not.
            let failed = Completion::of(completion.id, Status::InternalError);
            completions.push(if is_held { failed } else { completion });
        }
    }

    /// Whether hosts wait until `volume.toml` can be written.
    pub(super) fn is_waiting_for_file(&self) -> bool {
        self.is_held
    }

    /// Tries again what could not be written down.
    fn save_again(&mut self, now: Instant) {
        if self.phase == Phase::Open && self.save_again_at.is_some_and(|at| at <= now) {
            self.save(now);
            if self.save_again_at.is_none() {
                self.use_spares(now);
            }
        }
    }

    /// What the volume has to tell. Says whether there was anything.
    pub(super) fn on_events(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let phase = self.phase;
        // Ranges that follow each other are one.
        let mut lost: Vec<(u64, u64)> = Vec::new();
        while let Some(event) = self.early_events.pop_front().or_else(|| self.on.volume_mut().poll_event()) {
            moved = true;
            match event {
                Event::Ready | Event::Failed(VolumeError::TakenOver) => {}
                Event::Failed(error) => self.tell(true, format!("the volume is lost: {error}")),
                Event::MemberFailed { member, reason } => self.on_failure(now, member, reason),
                Event::Suspended { member, reason } => {
                    let shown = self.shown(member);
                    let why = suspended_in_words(reason);
                    let text = format!("I/O is suspended: {shown} {why}, and the volume cannot do without it");
                    self.tell(true, text);
                }
                Event::Resumed { member } => {
                    let text = format!("I/O is resumed: {} answers again", self.shown(member));
                    self.tell(false, text);
                }
                Event::OutOfRoom { member } => {
                    let text = format!(
                        "writes end with an error: there is no room for {}: free space where it is kept",
                        self.shown(member)
                    );
                    self.tell(true, text);
                }
                Event::RoomFound => self.tell(false, "there is room again: writes are taken".to_owned()),
                Event::Returned { member } => self.on_returned(now, member, None),
                Event::NotReturned { member, error } => self.on_returned(now, member, Some(&error)),
                Event::Rebuilt { member } => {
                    let text = format!("{} is rebuilt", self.shown(member));
                    self.tell(false, text);
                }
                Event::Lost { lba, blocks } => add_range(&mut lost, lba.0, lba.0 + blocks.0),
                Event::Scrubbed { blocks, mended, unreadable, lost, known_lost } => {
                    let summary = ScrubSummary { blocks, mended, unreadable, lost, known_lost };
                    self.last_scrub = Some(summary);
                    let text = scrubbed_in_words(&summary, self.on.volume().status().lost_blocks);
                    self.tell(mended + unreadable + lost > 0, text);
                }
            }
        }
        lost.into_iter().for_each(|range| self.tell_lost(range));
        if moved && phase != Phase::New {
            self.note_states(now);
        }
        moved
    }

    /// A command ends without having been taken.
    pub(super) fn refuse(&mut self, completion: Completion) {
        self.reports.push_back(completion);
    }

    /// Whether another owner has the volume.
    pub(super) fn is_taken_over(&self) -> bool {
        self.on.volume().failure() == Some(&VolumeError::TakenOver)
    }

    fn tell_lost(&mut self, (start, end): (u64, u64)) {
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let bytes = |lba| Blocks(lba).bytes(block_bytes);
        let text = format!(
            "data lost: blocks {start}..{end}, bytes {}..{} of the export; reads of them fail until they are written or trimmed",
            bytes(start),
            bytes(end),
        );
        self.tell(true, text);
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = &Seat> {
        let members = self.members().filter_map(|member| self.on.member(member));
        members.chain(self.spares.iter().map(|spare| &spare.seat)).chain(&self.leaving)
    }

    /// The way to the end.
    fn close_on(&mut self, now: Instant) {
        if let Phase::Settling(until) = self.phase
            && (now >= until || self.seats().all(Seat::is_idle))
        {
            self.phase = Phase::Closing;
            for member in self.members() {
                if self.awaits_connection(member) {
                    let shown = self.shown(member);
                    self.close_errors.push(format!("{shown} is not connected: what it had not flushed may be lost"));
                }
                self.take_out(now, member);
            }
            for spare in std::mem::take(&mut self.spares) {
                self.let_go(spare.seat, now);
            }
        }
    }
}

impl ZonedDevice for VolumeDrive {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.on.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.is_taken_over() {
            self.refuse(Completion::of(command.id, Status::InternalError));
            return Ok(());
        }
        assert!(self.phase == Phase::Open, "a volume that is being closed takes no commands");
        let Operation::ReportZones { start, filter, extended, partial, descriptors_max } = command.operation else {
            if !self.lease.holds(now) {
                self.lease.hold(command);
                return Ok(());
            }
            return self.on.submit(now, command);
        };
        let zones = ZoneTable::new(self.on.geometry(command.namespace).clone());
        self.reports.push_back(match zones.report(start, filter, extended, partial, descriptors_max) {
            Ok(report) => {
                Completion { id: command.id, status: Status::Success, outcome: Outcome::Report(Box::new(report)) }
            }
            Err(status) => Completion::of(command.id, status),
        });
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.look_after_leaving(now);
        self.look_after_spares(now);
        self.look_again(now);
        self.adopt(now);
        self.save_again(now);
        self.reports.drain(..).for_each(|report| completions.push(report));
        if self.phase == Phase::Closing {
            return;
        }
        loop {
            self.on.poll(now, &mut self.held);
            let has_moved = self.look_for_conflicts(now) | self.keep_lease(now);
            let has_lost = self.look_for_lost_connections(now);
            // One that was paused may have been taken over: it neither calls spares nor writes the file before it knows.
            let may_act = self.phase != Phase::Open || self.lease.is_known(now);
            if !(has_moved | has_lost | (may_act && self.on_events(now))) {
                break;
            }
        }
        self.end_ownership(now);
        // Before hosts see what was acknowledged in a new epoch, the file knows of it.
        if self.known_epoch() > self.directory.file.epoch {
            self.note_states(now);
        }
        self.release(now, completions);
        self.answer_failures(now);
        self.close_on(now);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if !self.reports.is_empty() {
            return Some(Instant::ZERO);
        }
        let leaving = self.leaving.iter().filter_map(|seat| seat.next_wakeup());
        let phase = match self.phase {
            Phase::New | Phase::Open => self.on.next_wakeup(),
            Phase::Settling(until) => Some(self.on.next_wakeup().map_or(until, |at| at.min(until))),
            Phase::TakenOver(until) => Some(self.on.next_wakeup().map_or(until, |at| at.min(until))),
            Phase::Closing => None,
        };
        let lease = self.lease.next_wakeup().filter(|_| self.phase == Phase::Open);
        let adoptions = self.adoptions.iter().filter_map(Adoption::next_wakeup);
        let save = self.save_again_at.filter(|_| self.phase == Phase::Open);
        let failing = self.failing.iter().map(|(until, _)| *until);
        let others = self.next_look().into_iter().chain(self.next_spare_wakeup());
        leaving.chain(phase).chain(lease).chain(adoptions).chain(save).chain(failing).chain(others).min()
    }
}

impl Drive for VolumeDrive {
    fn facts(&self) -> DriveFacts {
        let status = self.on.volume().status();
        let zones = self.on.volume().geometry().zone_count;
        DriveFacts {
            zones_by_state: vec![(ZoneState::NotWritePointer, zones)],
            written_blocks: status.live_blocks,
            ..DriveFacts::default()
        }
    }

    fn extent(&self, start: Lba, most: Blocks) -> Extent {
        self.on.volume().extent(start, most)
    }

    /// Blocks of reads that failed, and failures inside the members.
    fn media_errors(&self) -> u64 {
        let inside: u64 = self.seats().map(|seat| seat.drive.media_errors()).sum();
        inside + self.on.volume().counters().unreadable_blocks
    }

    fn kept_reservations(&self) -> Option<Bytes> {
        Some(self.reservations.bytes())
    }

    fn keep_reservations(&mut self, _now: Instant, bytes: Bytes) {
        self.keep_for_hosts(bytes);
    }

    fn take_reservations_kept(&mut self) -> Option<bool> {
        self.reservations.take_ended()
    }

    fn take_trouble(&mut self) -> Option<String> {
        for member in self.members() {
            if let Some(trouble) = self.on.member_mut(member).and_then(|seat| seat.drive.take_trouble()) {
                return Some(format!("{}: {trouble}", self.shown(member)));
            }
        }
        None
    }

    fn close(&mut self, now: Instant) {
        if self.phase == Phase::Open {
            self.on.volume_mut().stop_scrub();
            self.abandon_adoptions(now);
            self.abandon_returns();
            self.abandon_failures();
            let refused: Vec<Completion> = self.lease.refuse_held(Status::NamespaceNotReady).collect();
            refused.into_iter().for_each(|completion| self.refuse(completion));
            if self.save_again_at.is_some() {
                self.save(now);
            }
            self.note_states(now);
            self.phase = Phase::Settling(now + SETTLE_MAX);
        }
    }

    fn close_error(&self) -> Option<String> {
        (!self.close_errors.is_empty()).then(|| self.close_errors.join("; "))
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Closing && self.leaving.is_empty()
    }

    fn as_volume(&self) -> Option<&VolumeDrive> {
        Some(self)
    }

    fn as_volume_mut(&mut self) -> Option<&mut VolumeDrive> {
        Some(self)
    }
}
