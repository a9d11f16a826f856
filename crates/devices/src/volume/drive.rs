//! [`VolumeDrive`]: a mounted volume on its members, from its events to its close.

use std::collections::VecDeque;

use zonda_nvme::identify::NamespaceIdentity;
use zonda_raid::{Event, Extent, FailReason, MemberIndex, MemberState, VolumeDevice, VolumeError};
use zonda_ring::Bytes;
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Duration, Instant, Lba, NamespaceId, Namespaces, Operation,
    QueueFull, Status, ZoneState, ZonedDevice,
};

use super::adopt::{Adoption, RequestId};
use super::directory::{FileState, LastState, VolumeDirectory, VolumeFile};
use super::lease::Lease;
use super::member_device::MemberDevice;
use super::names::cannot_save;
use super::ranges::add_range;
use super::report::{ScrubSummary, VolumeReport, describe_accepted_losses, describe_scrub, describe_suspension};
use super::reservations::ReservationStore;
use super::returns::{Absence, Returning};
use super::spare_watch::SpareWatch;
use super::spares::Spare;
use crate::opening::OnRing;
use crate::{Drive, DriveError, DriveFacts};

/// When a volume is closed, background operations (a rebuild, a scrub) have this long to quiesce.
/// After that they are stopped; a mount recovers from any state.
const QUIESCE_MAX: Duration = Duration(1_000_000_000);

/// Time between two attempts to write `volume.toml`.
pub(super) const SAVE_INTERVAL: Duration = Duration(10_000_000_000);

/// Time between two attempts while hosts wait for it.
pub(super) const SAVE_INTERVAL_WAITING: Duration = Duration(1_000_000_000);

/// An event of a volume, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning: an operator should act.
    pub is_warning: bool,
    /// The message.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Just mounted: failed members are not replaced yet.
    New,
    Open,
    /// No more commands are accepted; the volume quiesces until this time.
    Quiescing(Instant),
    /// Another owner has the volume; until this time the volume waits for its identity.
    TakenOver(Instant),
    /// The volume is stopped; its members complete their commands, and are closed.
    Closing,
}

/// A redundant volume as a drive of conventional zones.
pub struct VolumeDrive {
    pub(super) on: VolumeDevice<MemberDevice>,
    pub(super) directory: VolumeDirectory,
    pub(super) spares: Vec<Spare>,
    pub(super) spare_watch: SpareWatch,
    /// Devices that are being added as a member or a spare.
    pub(super) adoptions: Vec<Adoption>,
    /// Answers to asynchronous requests.
    pub(super) answers: VecDeque<(RequestId, Result<VolumeReport, DriveError>)>,
    /// Requests that have failed members: answered when that is durable, or at this deadline.
    pub(super) failing: Vec<(Instant, RequestId)>,
    pub(super) next_request: u64,
    /// The UUID of the device of each member; `None` if it is not known.
    pub(super) ids: Vec<Option<[u8; 16]>>,
    /// The globally unique identifiers of the last drive of each member, as far as they are known.
    pub(super) identities: Vec<Option<NamespaceIdentity>>,
    /// When to retry writing `volume.toml`.
    pub(super) save_again_at: Option<Instant>,
    /// Members that have failed, and that the volume tries to re-add.
    pub(super) absent: Vec<Absence>,
    /// Members whose device is back, and is being verified by the volume.
    pub(super) returning: Vec<Returning>,
    /// Members whose device was refused when it came back, as bits: that is logged once.
    pub(super) refused: u32,
    /// Members that were re-added with their contents, and are not rebuilt completely.
    pub(super) resynchronizing: u32,
    /// Handles of the ring for devices that are opened later.
    pub(super) on_ring: Option<OnRing>,
    /// Detached devices that are being closed.
    pub(super) closing: Vec<MemberDevice>,
    pub(super) notices: VecDeque<Notice>,
    /// Completions of zone reports, which need no member.
    reports: VecDeque<Completion>,
    pub(super) lease: Lease,
    /// The newest epoch of any superblock when the volume was opened.
    pub(super) opened_epoch: u64,
    pub(super) reservations: ReservationStore,
    /// Completions in an epoch that is not saved in `volume.toml` yet.
    pub(super) held: CompletionQueue,
    /// Whether completions are held until `volume.toml` can be written.
    pub(super) is_held: bool,
    pub(super) last_scrub: Option<ScrubSummary>,
    /// Events during the mount.
    pub(super) early_events: VecDeque<Event>,
    /// Failed members are neither replaced by a spare nor re-added, except by request.
    pub(super) keeps_members: bool,
    /// Errors of devices that could not be flushed and closed.
    pub(super) close_errors: Vec<String>,
    pub(super) phase: Phase,
}

impl VolumeDrive {
    pub(super) fn new(
        on: VolumeDevice<MemberDevice>,
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
            identities: vec![None; ids.len()],
            ids,
            save_again_at: None,
            absent: Vec::new(),
            returning: Vec::new(),
            refused: 0,
            resynchronizing: 0,
            on_ring: None,
            closing: Vec::new(),
            notices: VecDeque::new(),
            reports: VecDeque::new(),
            lease: Lease::default(),
            opened_epoch: 0,
            reservations: ReservationStore::default(),
            held: CompletionQueue::new(),
            is_held: false,
            last_scrub: None,
            early_events: VecDeque::new(),
            keeps_members: false,
            close_errors: Vec::new(),
            phase: Phase::New,
        };
        for member in drive.members() {
            if let Some(device) = drive.on.replace(member, None) {
                drive.attach_member(member, device);
            }
        }
        drive
    }

    /// Sets the device of a member.
    pub(super) fn attach_member(&mut self, member: MemberIndex, mut device: MemberDevice) {
        device.hold_when_lost(self.has_halves());
        self.note_reserved(member, device.is_claimed());
        self.identities[usize::from(member.0)] = device.drive.identity().copied();
        let before = self.on.replace(member, Some(device));
        // Dropped here, it would not be flushed, and its reservation would lock out the new one.
        assert!(before.is_none(), "member {} has a device that was not detached", member.0);
    }

    /// The UUID of the volume.
    #[must_use]
    pub fn array(&self) -> [u8; 16] {
        self.on.volume().array()
    }

    /// The path of the directory of the volume.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Takes the oldest notice.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(super) fn notify(&mut self, is_warning: bool, text: String) {
        self.notices.push_back(Notice { is_warning, text });
    }

    /// Describes a member: its number and location.
    pub(super) fn shown(&self, member: MemberIndex) -> String {
        let place = self.directory.file.member.get(usize::from(member.0));
        place.map_or_else(|| format!("member {}", member.0), |place| place.as_member(member.0))
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        (0..self.on.volume().member_count() as u8).map(MemberIndex)
    }

    /// How many more members, whichever they are, the volume can lose now.
    pub(super) fn can_lose(&self) -> usize {
        let lost = self.members().filter(|member| self.state(*member) != MemberState::Active).count();
        self.on.volume().code_tolerates().saturating_sub(lost)
    }

    pub(super) fn state(&self, member: MemberIndex) -> MemberState {
        self.on.volume().member_state(member)
    }

    /// A member has failed: detaches its device, and replaces it by a spare.
    fn on_failure(&mut self, now: Instant, member: MemberIndex, reason: FailReason) {
        let shown = self.shown(member);
        let why = match reason {
            FailReason::Command => "by command",
            FailReason::Errors => "its commands have failed",
            FailReason::Timeout => "it does not respond",
            FailReason::Missing => "it is missing or out of date",
            FailReason::Flapping => {
                "it has failed and come back, or stopped responding, repeatedly; re-add it with zonda member re-add"
            }
        };
        self.note_failure(member, reason);
        self.resynchronizing &= !(1 << member.0);
        let left = self.can_lose();
        let members = match left {
            0 => "no more members".to_owned(),
            1 => "1 more member".to_owned(),
            _ => format!("{left} more members"),
        };
        self.notify(true, format!("{shown} has failed: {why}; the volume can lose {members}"));
        if self.phase == Phase::Open {
            self.detach_member(now, member);
            self.use_spare(now, member);
            self.look_for_absent(now);
        }
    }

    /// Saves `volume.toml`. If that fails, the volume continues, and saving is retried.
    pub(super) fn save(&mut self, now: Instant) {
        match self.directory.save() {
            Ok(()) => self.saved(),
            Err(error) => {
                if self.save_again_at.is_none() {
                    self.notify(true, cannot_save(&self.directory, &error).message);
                }
                let interval = if self.is_held { SAVE_INTERVAL_WAITING } else { SAVE_INTERVAL };
                self.save_again_at = Some(now + interval);
            }
        }
    }

    /// Saves the change of a request before it is answered. If that fails, the file is restored to
    /// `before`.
    pub(super) fn save_or_revert(&mut self, before: VolumeFile) -> Result<(), DriveError> {
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
            self.notify(false, format!("{} can be written again", super::VOLUME_FILE));
        }
    }

    /// Updates `volume.toml` with the present states of the members.
    pub(super) fn note_states(&mut self, now: Instant) {
        let before = self.directory.file.clone();
        // Of an import whose last step failed.
        self.directory.file.state.take_if(|state| *state == FileState::Importing);
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
        // The epoch never decreases: missing members may have reached a newer one.
        self.directory.file.epoch = self.directory.file.epoch.max(self.known_epoch());
        if self.directory.file != before {
            self.save(now);
        }
    }

    /// The newest epoch that is durable on the members; `None` if the volume has failed.
    pub(super) fn known_epoch(&self) -> Option<u64> {
        self.on.volume().is_ready().then(|| self.on.volume().epoch())
    }

    /// Retries to save `volume.toml`.
    fn save_again(&mut self, now: Instant) {
        if self.phase == Phase::Open && self.save_again_at.is_some_and(|at| at <= now) {
            self.save(now);
            if self.save_again_at.is_none() {
                self.use_spares(now);
            }
        }
    }

    /// Handles the events of the volume. Returns whether there were any.
    pub(super) fn on_events(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let phase = self.phase;
        // Adjacent ranges are merged.
        let mut lost: Vec<(u64, u64)> = Vec::new();
        while let Some(event) = self.early_events.pop_front().or_else(|| self.on.volume_mut().poll_event()) {
            moved = true;
            match event {
                Event::Ready | Event::Failed(VolumeError::TakenOver) => {}
                Event::Failed(error) => self.notify(true, format!("the volume is lost: {error}")),
                Event::MemberFailed { member, reason } => self.on_failure(now, member, reason),
                Event::Suspended { member, reason } => {
                    let shown = self.shown(member);
                    let why = describe_suspension(reason);
                    let text = format!("I/O is suspended: {shown} {why}, and the volume needs it");
                    self.notify(true, text);
                }
                Event::Resumed { member } => {
                    let text = format!("I/O is resumed: {} responds again", self.shown(member));
                    self.notify(false, text);
                }
                Event::OutOfSpace { member } => {
                    let text =
                        format!("writes fail: no space left for {}: free space on its file system", self.shown(member));
                    self.notify(true, text);
                }
                Event::SpaceAvailable => self.notify(false, "space is available again: writes succeed".to_owned()),
                Event::EpochWaits { member } => {
                    let text = format!(
                        "I/O is suspended: {} has no space left to record the states of the members: free space on its \
                         file system",
                        self.shown(member)
                    );
                    self.notify(true, text);
                }
                Event::EpochRecorded => {
                    self.notify(false, "I/O is resumed: the states of the members are recorded".to_owned());
                }
                Event::Readded { member } => self.on_returned(now, member, None),
                Event::ReaddRefused { member, error } => self.on_returned(now, member, Some(&error)),
                Event::Rebuilt { member } => {
                    let bit = 1 << member.0;
                    let how = if self.resynchronizing & bit == 0 { "rebuilt" } else { "resynchronized" };
                    self.resynchronizing &= !bit;
                    let text = format!("{} is {how}", self.shown(member));
                    self.notify(false, text);
                }
                Event::LossesAccepted { blocks } => self.notify(true, describe_accepted_losses(blocks)),
                Event::Lost { lba, blocks } => add_range(&mut lost, lba.0, lba.0 + blocks.0),
                Event::Scrubbed { blocks, repaired, unreadable, lost, known_lost } => {
                    let summary = ScrubSummary { blocks, repaired, unreadable, lost, known_lost };
                    self.last_scrub = Some(summary);
                    let text = describe_scrub(&summary, self.on.volume().status().lost_blocks);
                    self.notify(repaired + unreadable + lost > 0, text);
                }
            }
        }
        lost.into_iter().for_each(|range| self.notify_lost(range));
        if moved && phase != Phase::New {
            self.note_states(now);
        }
        moved
    }

    /// Completes a command without submitting it.
    pub(super) fn refuse(&mut self, completion: Completion) {
        self.reports.push_back(completion);
    }

    /// Whether another owner has the volume.
    pub(super) fn is_taken_over(&self) -> bool {
        self.on.volume().failure() == Some(&VolumeError::TakenOver)
    }

    fn notify_lost(&mut self, (start, end): (u64, u64)) {
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let bytes = |lba| Blocks(lba).bytes(block_bytes);
        let (first, last) = (bytes(start), bytes(end) - 1);
        let text = if end - start == 1 {
            format!(
                "data lost: block {start} (bytes {first} to {last} of the export); reads of it fail until it is \
                 written or trimmed"
            )
        } else {
            format!(
                "data lost: blocks {start} to {} (bytes {first} to {last} of the export); reads of them fail until \
                 they are written or trimmed",
                end - 1
            )
        };
        self.notify(true, text);
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = &MemberDevice> {
        let members = self.members().filter_map(|member| self.on.member(member));
        members.chain(self.spares.iter().map(|spare| &spare.device)).chain(&self.closing)
    }

    /// Continues to close the volume.
    fn close_on(&mut self, now: Instant) {
        if let Phase::Quiescing(until) = self.phase
            && (now >= until || self.devices().all(MemberDevice::is_idle))
        {
            self.phase = Phase::Closing;
            for member in self.members() {
                if self.on.member(member).is_some_and(MemberDevice::is_cut_off) {
                    let shown = self.shown(member);
                    self.close_errors
                        .push(format!("{shown} is not connected: writes that were not flushed may be lost"));
                }
                self.detach_member(now, member);
            }
            for spare in std::mem::take(&mut self.spares) {
                self.detach(spare.device, now);
            }
        }
    }
}

impl ZonedDevice for VolumeDrive {
    fn namespaces(&self) -> &Namespaces {
        self.on.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.is_taken_over() {
            self.refuse(Completion::of(command.id, Status::InternalError));
            return Ok(());
        }
        assert!(self.phase == Phase::Open, "a volume that is being closed takes no commands");
        if matches!(command.operation, Operation::ReportZones { .. })
            && let Some(report) = self.on.answer(&command)
        {
            self.reports.push_back(report);
            return Ok(());
        }
        if !self.lease.holds(now) {
            self.lease.hold(command);
            return Ok(());
        }
        self.on.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.poll_closing(now);
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
            // A program that was paused may have lost the volume: until it knows, it must neither
            // use spares nor write the file.
            let may_act = self.phase != Phase::Open || self.lease.is_known(now);
            if !(has_moved | has_lost | (may_act && self.on_events(now))) {
                break;
            }
        }
        self.end_ownership(now);
        // The file must have a new epoch before commands are completed in it.
        if self.known_epoch() > self.directory.file.epoch {
            self.note_states(now);
        }
        self.release(now, completions);
        self.answer_failures(now);
        self.close_on(now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        if !self.reports.is_empty() {
            return Some(Instant::ZERO);
        }
        let closing = self.closing.iter().filter_map(|device| device.next_timeout());
        let phase = match self.phase {
            Phase::New | Phase::Open => self.on.next_timeout(),
            Phase::Quiescing(until) => Some(self.on.next_timeout().map_or(until, |at| at.min(until))),
            Phase::TakenOver(until) => Some(self.on.next_timeout().map_or(until, |at| at.min(until))),
            Phase::Closing => None,
        };
        let lease = self.lease.next_timeout().filter(|_| self.phase == Phase::Open);
        let adoptions = self.adoptions.iter().filter_map(Adoption::next_timeout);
        let save = self.save_again_at.filter(|_| self.phase == Phase::Open);
        let failing = self.failing.iter().map(|(until, _)| *until);
        let others = self.next_look().into_iter().chain(self.next_spare_wakeup());
        closing.chain(phase).chain(lease).chain(adoptions).chain(save).chain(failing).chain(others).min()
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

    /// Media errors of the members, and blocks of failed reads.
    fn media_errors(&self) -> u64 {
        let inside: u64 = self.devices().map(|device| device.drive.media_errors()).sum();
        inside + self.on.volume().counters().unreadable_blocks
    }

    fn saved_reservations(&self) -> Option<Bytes> {
        Some(self.reservations.bytes())
    }

    fn save_reservations(&mut self, _now: Instant, bytes: Bytes) {
        self.store_reservations(bytes);
    }

    fn take_reservations_saved(&mut self) -> Option<bool> {
        self.reservations.take_ended()
    }

    fn take_warning(&mut self) -> Option<String> {
        for member in self.members() {
            if let Some(warning) = self.on.member_mut(member).and_then(MemberDevice::take_warning) {
                return Some(format!("{}: {warning}", self.shown(member)));
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
            self.phase = Phase::Quiescing(now + QUIESCE_MAX);
        }
    }

    fn close_error(&self) -> Option<String> {
        (!self.close_errors.is_empty()).then(|| self.close_errors.join("; "))
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Closing && self.closing.is_empty()
    }

    fn ends_commands_at_close(&self) -> bool {
        true
    }
}
