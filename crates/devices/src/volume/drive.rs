//! [`VolumeDrive`]: a volume on its members, what their failures set off, and its end.

use std::collections::VecDeque;

use zonda_raid::{Event, Extent, FailReason, MemberIndex, MemberState, VolumeOn};
use zonda_ring::Ring;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Outcome,
    QueueFull, Status, ZoneState, ZonedDevice,
};

use super::directory::{Place, VolumeDirectory};
use super::report::ScrubSummary;
use super::seat::Seat;
use crate::{Drive, DriveError, DriveFacts, random};

/// When a volume is closed, what it does for itself (a rebuild, a scrub) gets so long to come to a good place. A mount finds its way from
/// any other, too.
const SETTLE_MAX: Duration = Duration(1_000_000_000);

/// Something that happened to a volume, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should do something about it.
    pub is_trouble: bool,
    /// What it is.
    pub text: String,
}

/// A device that waits to take the place of a member that fails. It is open, and so nobody else's.
pub(super) struct Spare {
    pub(super) place: Place,
    pub(super) seat: Seat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Just mounted: places are not filled yet.
    New,
    Open,
    /// No more commands come; at this time the volume is stopped where it is.
    Settling(Instant),
    /// The volume stands still; its members end what is under way, and close.
    Closing,
}

/// A redundant volume as a drive of conventional zones.
pub struct VolumeDrive {
    pub(super) on: VolumeOn<Seat>,
    pub(super) directory: VolumeDirectory,
    pub(super) spares: Vec<Spare>,
    /// Devices that were taken out and are being closed.
    leaving: Vec<Seat>,
    pub(super) notices: VecDeque<Notice>,
    /// Reports of zones: they need nothing of the members.
    reports: VecDeque<Completion>,
    pub(super) last_scrub: Option<ScrubSummary>,
    phase: Phase,
}

impl VolumeDrive {
    pub(super) fn new(on: VolumeOn<Seat>, directory: VolumeDirectory, spares: Vec<Spare>) -> VolumeDrive {
        VolumeDrive {
            on,
            directory,
            spares,
            leaving: Vec::new(),
            notices: VecDeque::new(),
            reports: VecDeque::new(),
            last_scrub: None,
            phase: Phase::New,
        }
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
        let status = self.on.volume().status();
        let lost = status.members.iter().filter(|member| member.state != MemberState::Active).count();
        self.on.volume().code_tolerates().saturating_sub(lost)
    }

    pub(super) fn state(&self, member: MemberIndex) -> MemberState {
        self.on.volume().status().members[usize::from(member.0)].state
    }

    /// What a member that is given up brings with it: its device goes, and a spare comes.
    fn on_failure(&mut self, now: Instant, member: MemberIndex, reason: FailReason) {
        let shown = self.shown(member);
        let why = match reason {
            FailReason::Command => "somebody said so",
            FailReason::Errors => "its commands fail",
            FailReason::Silence => "it does not answer",
            FailReason::Absent => "it was not there, or is out of date",
        };
        let left = self.can_lose();
        self.tell(true, format!("{shown} is given up: {why}; the volume can lose {left} more"));
        if self.phase == Phase::Open {
            self.take_out(now, member);
            self.use_spare(now, member);
        }
    }

    /// Nobody needs this device any more.
    pub(super) fn let_go(&mut self, mut seat: Seat, now: Instant) {
        seat.close_on(now);
        self.leaving.push(seat);
    }

    pub(super) fn take_out(&mut self, now: Instant, member: MemberIndex) {
        if let Some(seat) = self.on.replace(member, None) {
            self.let_go(seat, now);
        }
    }

    /// The first spare that suits takes the place of a member that has failed.
    pub(super) fn use_spare(&mut self, now: Instant, member: MemberIndex) {
        while !self.spares.is_empty() && matches!(self.phase, Phase::New | Phase::Open) {
            let Spare { place, seat } = self.spares.remove(0);
            let at = place.at.clone();
            self.directory.file.spare.retain(|spare| spare.at != at);
            match self.put_in(now, member, place, seat) {
                Ok(()) => return self.tell(false, format!("the spare {at} takes the place of member {}", member.0)),
                Err(error) => {
                    self.tell(true, format!("the spare {at} cannot take the place of member {}: {error}", member.0));
                }
            }
        }
    }

    /// A device takes the place of a member that has failed; **all its zones are reset**. Where it cannot, it goes.
    pub(super) fn put_in(
        &mut self,
        now: Instant,
        member: MemberIndex,
        place: Place,
        seat: Seat,
    ) -> Result<(), DriveError> {
        let id = random::uuid()?;
        let geometry = seat.own_geometry().clone();
        self.take_out(now, member);
        self.on.replace(member, Some(seat));
        if let Err(error) = self.on.volume_mut().replace_member(now, member, geometry, id) {
            self.take_out(now, member);
            return Err(DriveError::new(error.to_string(), "give another drive"));
        }
        self.directory.file.member[usize::from(member.0)] = place;
        self.save();
        Ok(())
    }

    /// Writes down where the members are. Where that fails the volume goes on; the next start needs the file put right.
    pub(super) fn save(&mut self) {
        if let Err(error) = self.directory.save() {
            let path = self.directory.path().join(super::VOLUME_FILE);
            self.tell(true, format!("{} cannot be written: {error}", path.display()));
        }
    }

    /// What the volume has to tell. Says whether there was anything.
    fn on_events(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(event) = self.on.volume_mut().poll_event() {
            moved = true;
            match event {
                Event::Ready => {}
                Event::Failed(error) => self.tell(true, format!("the volume is lost: {error}")),
                Event::MemberFailed { member, reason } => self.on_failure(now, member, reason),
                Event::Suspended { member, reason } => {
                    let shown = self.shown(member);
                    let why = match reason {
                        FailReason::Silence => "does not answer",
                        _ => "fails its commands",
                    };
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
                Event::Rebuilt { member } => {
                    let text = format!("{} is rebuilt", self.shown(member));
                    self.tell(false, text);
                }
                Event::Lost { lba, blocks } => {
                    let end = lba.0 + blocks.0;
                    let text = format!("blocks {}..{end} are lost: reads of them fail until they are written", lba.0);
                    self.tell(true, text);
                }
                Event::Scrubbed { blocks, mended, lost } => {
                    self.last_scrub = Some(ScrubSummary { blocks, mended, lost });
                    let text = format!("scrubbed: {blocks} blocks were read, {mended} mended, {lost} are lost");
                    self.tell(mended + lost > 0, text);
                }
            }
        }
        moved
    }

    /// After the mount: members that have failed are replaced where a spare is at hand, or where an empty device was put in
    /// their place.
    pub(super) fn fill_places(&mut self, now: Instant, ring: &Ring) {
        self.on_events(now);
        for member in self.members() {
            if self.state(member) != MemberState::Failed {
                continue;
            }
            let mut seat = self.on.replace(member, None);
            let is_empty = seat.as_mut().is_some_and(|seat| seat.is_empty(ring).unwrap_or(false));
            match seat {
                Some(seat) if is_empty => {
                    let place = self.directory.file.member[usize::from(member.0)].clone();
                    let shown = self.shown(member);
                    match self.put_in(now, member, place, seat) {
                        Ok(()) => self.tell(false, format!("{shown} is empty: it is rebuilt")),
                        Err(error) => self.tell(true, format!("{shown} is empty and does not suit: {error}")),
                    }
                }
                seat => {
                    seat.into_iter().for_each(|seat| self.let_go(seat, now));
                    self.use_spare(now, member);
                }
            }
        }
        self.phase = Phase::Open;
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        let members = self.members().filter_map(|member| self.on.member(member));
        members.chain(self.spares.iter().map(|spare| &spare.seat)).chain(&self.leaving)
    }

    fn look_after_leaving(&mut self, now: Instant) {
        self.leaving.iter_mut().for_each(|seat| seat.close_on(now));
        self.leaving.retain(|seat| !(seat.is_idle() && seat.drive.is_closed()));
    }

    /// The way to the end.
    fn close_on(&mut self, now: Instant) {
        if let Phase::Settling(until) = self.phase
            && (now >= until || self.seats().all(Seat::is_idle))
        {
            self.phase = Phase::Closing;
            for member in self.members() {
                self.take_out(now, member);
            }
            self.leaving.extend(self.spares.drain(..).map(|spare| spare.seat));
        }
    }
}

impl ZonedDevice for VolumeDrive {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        self.on.geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(self.phase == Phase::Open, "a volume that is being closed takes no commands");
        let Operation::ReportZones { start, filter, extended, partial, descriptors_max } = command.operation else {
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
        self.reports.drain(..).for_each(|report| completions.push(report));
        if self.phase == Phase::Closing {
            return;
        }
        loop {
            self.on.poll(now, completions);
            if !self.on_events(now) {
                break;
            }
        }
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
            Phase::Closing => None,
        };
        leaving.chain(phase).min()
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
            self.phase = Phase::Settling(now + SETTLE_MAX);
        }
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
