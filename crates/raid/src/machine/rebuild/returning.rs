//! Re-add of a failed member with its contents.
//!
//! Before it is a member again its zones are reported, and its superblocks and the headers of its
//! full zones are read; nothing is written to it. It is re-added only if its superblock is that of
//! this member, and older than its failure: a member that was used alone is refused, and so is one
//! whose newest superblock cannot be read, since then this is unknown. Then it joins as one that is
//! being rebuilt, and its zones are set aside for `catch_up.rs`.

use std::collections::VecDeque;

use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Instant, Operation, Outcome, Payload, Status, ZoneDescriptor, ZoneState,
};

use super::super::Volume;
use super::super::members::{MetadataLog, Work, is_dead, is_mirrored};
use super::RebuildStep;
use super::catch_up::{Aside, AsideStep};
use crate::event::Event;
use crate::format::{HEADER_COPIES, SegmentHeader, Superblock};
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX, REPORT_ZONES_MAX, RETURNED_ZONES_IN_FLIGHT_MAX};
use crate::shape::Stream;
use crate::sides::split_brain;
use crate::tables::{SegmentIndex, SegmentState};
use crate::{MemberIndex, Membership, SUPERBLOCKS_BACK_MAX, VolumeError};

/// A device that is checked before it is a member again.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) member: MemberIndex,
    zones: Vec<ZoneDescriptor>,
    logs: Vec<Log>,
    /// Zones whose headers are still to be read.
    unread: VecDeque<u32>,
    /// Commands in flight.
    pending: usize,
    /// Headers of full zones.
    headers: Vec<(u32, SegmentHeader)>,
}

/// One of its zones of superblocks.
#[derive(Debug)]
struct Log {
    state: ZoneState,
    written: u32,
    /// The last intact superblock, and its offset.
    found: Option<(u32, Superblock)>,
    failures: u8,
}

/// A read of a re-added member.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) enum ReturnStep {
    Report,
    Superblock { zone: u32, offset: u32 },
    Header { zone: u32 },
}

impl Volume {
    /// Re-adds a failed member with its contents: it catches up with what it missed, which takes
    /// less time than a rebuild. [`Event::Readded`] reports success, [`Event::ReaddRefused`] why it
    /// was refused; then nothing was written to it. Until [`Event::Rebuilt`] it is being rebuilt.
    ///
    /// # Errors
    /// If the volume is not ready, the member has not failed, or the device does not suit the
    /// volume; with a remedy.
    pub fn readd_member(&mut self, now: Instant, member: MemberIndex, geometry: Geometry) -> Result<(), VolumeError> {
        self.now = now;
        self.may_take(member, &geometry)?;
        if self.rebuild.returning.iter().any(|other| other.member == member) {
            let what = format!("member {} is being re-added already; wait until it is re-added or refused", member.0);
            return Err(VolumeError::Config(what));
        }
        if !self.spec.has_contents() {
            let what = "a volume without contents cannot re-add a member; replace it".to_owned();
            return Err(VolumeError::Config(what));
        }
        self.members[member].come_back(geometry);
        let returning = Returning {
            member,
            zones: Vec::new(),
            logs: Vec::new(),
            unread: VecDeque::new(),
            pending: 0,
            headers: Vec::new(),
        };
        self.rebuild.returning.push(returning);
        self.report_returning(member, 0);
        self.make_progress();
        Ok(())
    }

    /// The history of failures is reset: the caller re-adds the member nevertheless.
    pub fn forgive_flapping(&mut self, member: MemberIndex) {
        if self.members.get(member).is_some() {
            self.members[member].forgive_flapping();
        }
    }

    fn report_returning(&mut self, member: MemberIndex, zone: u32) {
        let report = self.members[member].report(zone, REPORT_ZONES_MAX);
        self.send_returning(member, ReturnStep::Report, report);
    }

    fn send_returning(&mut self, member: MemberIndex, step: ReturnStep, operation: Operation) {
        if let Some(returning) = self.returning(member) {
            returning.pending += 1;
            // It is not a member of the volume yet.
            self.members[member].send(Work::Rebuild(RebuildStep::Return(step)), operation);
        }
    }

    fn read_returning(&mut self, member: MemberIndex, step: ReturnStep, (zone, offset): (u32, u32), blocks: u32) {
        let start = self.members[member].lba(zone, offset);
        self.send_returning(member, step, Operation::Read { start, blocks: Blocks(u64::from(blocks)) });
    }

    fn returning(&mut self, member: MemberIndex) -> Option<&mut Returning> {
        self.rebuild.returning.iter_mut().find(|other| other.member == member)
    }

    pub(super) fn on_returning(&mut self, member: MemberIndex, step: ReturnStep, status: Status, outcome: Outcome) {
        let Some(returning) = self.returning(member) else { return };
        returning.pending -= 1;
        match (step, outcome) {
            (ReturnStep::Report, Outcome::Report(report)) if status.is_success() && !report.zones.is_empty() => {
                returning.zones.extend(report.zones);
                let known = returning.zones.len() as u32;
                if known < self.members[member].geometry().zone_count {
                    return self.report_returning(member, known);
                }
                self.read_logs(member);
            }
            (ReturnStep::Report, _) => {
                let what = "its zones cannot be reported; check the health of the drive".to_owned();
                return self.refuse_return(member, VolumeError::Member { member, what });
            }
            (ReturnStep::Superblock { zone, offset }, outcome) => {
                self.on_log_read(member, (zone, offset), bytes_of(status, outcome).as_ref());
            }
            (ReturnStep::Header { zone }, outcome) => {
                self.on_returned_header(member, zone, bytes_of(status, outcome).as_ref());
            }
        }
        let Some(returning) = self.returning(member) else { return };
        if returning.pending > 0 {
            return;
        }
        if returning.logs.iter().any(|log| log.written > 0) && returning.unread.is_empty() {
            // Nothing was left to be read.
            self.rejoin(member);
        } else {
            self.read_returned_headers(member);
        }
    }

    /// Zones are reported: reads its superblocks, each log from its end.
    fn read_logs(&mut self, member: MemberIndex) {
        let Some(returning) = self.returning(member) else { return };
        let log =
            |zone: &ZoneDescriptor| Log { state: zone.state, written: written_blocks(zone), found: None, failures: 0 };
        returning.logs = returning.zones.iter().take(METADATA_ZONES as usize).map(log).collect();
        let written: Vec<u32> = returning.logs.iter().map(|log| log.written).collect();
        let zones = (0..).zip(&returning.zones).skip(METADATA_ZONES as usize);
        returning.unread = zones.filter(|(_, zone)| zone.state == ZoneState::Full).map(|(zone, _)| zone).collect();
        if written.iter().all(|&written| written == 0) {
            return self.refuse_return(member, no_superblock(member));
        }
        for (zone, written) in (0..).zip(written) {
            if let Some(offset) = written.checked_sub(1) {
                self.read_returning(member, ReturnStep::Superblock { zone, offset }, (zone, offset), 1);
            }
        }
    }

    fn on_log_read(&mut self, member: MemberIndex, (zone, offset): (u32, u32), buffer: Option<&BlockBuffer>) {
        let Some(returning) = self.returning(member) else { return };
        let log = &mut returning.logs[zone as usize];
        let next = match buffer {
            None => {
                log.failures += 1;
                if log.failures < READ_ATTEMPTS_MAX { Some(offset) } else { before(log.written, offset) }
            }
            Some(buffer) => match Superblock::read(&buffer.data) {
                Ok(superblock) => {
                    log.found = Some((offset, superblock));
                    None
                }
                Err(_) => before(log.written, offset),
            },
        };
        if let Some(next) = next {
            return self.read_returning(member, ReturnStep::Superblock { zone, offset: next }, (zone, next), 1);
        }
        if returning.pending == 0
            && let Err(error) = self.check_returning(member)
        {
            self.refuse_return(member, error);
        }
    }

    /// Whether the other side of a split brain was chosen against a member: it cannot be re-added,
    /// only replaced.
    #[must_use]
    pub fn is_rejected(&self, member: MemberIndex) -> bool {
        self.members[member].is_rejected()
    }

    /// Checks that it is this member, and was not used since it failed.
    fn check_returning(&mut self, member: MemberIndex) -> Result<(), VolumeError> {
        let is_mirrored = is_mirrored(self.members[member].geometry());
        let Some(returning) = self.rebuild.returning.iter().find(|other| other.member == member) else { return Ok(()) };
        let refuse = |what: &str| Err(VolumeError::Member { member, what: what.to_owned() });
        let Some((current, found)) = returning.newest() else { return Err(no_superblock(member)) };
        if found.array != self.spec.array {
            return Err(VolumeError::Foreign { member, volume: found.name.clone() });
        }
        if found.member != member.0 {
            return refuse(&format!("it is member {} of this volume", found.member));
        }
        if found.members.get(member.as_usize()).is_none_or(|own| own.id != self.members[member].id()) {
            return refuse(
                "another device has replaced it since it failed; replace the member with it, which wipes it",
            );
        }
        if self.members[member].is_rejected() {
            return refuse(
                "the other side of a split brain was chosen against it, so its segments may differ from those of \
                 the volume; replace the member with it, which wipes it",
            );
        }
        let hides = |log: &Log| {
            let behind = log.found.as_ref().map(|(offset, found)| (log.written - 1 - offset, found.copies_behind));
            log.written > 0 && behind.is_none_or(|(behind, copies)| behind > u32::from(copies))
        };
        if hides(&returning.logs[current]) || !is_mirrored && returning.logs.iter().any(hides) {
            return refuse(
                "its newest superblock cannot be read, so it is not known whether it was used alone; replace the \
                 member with it, which wipes it",
            );
        }
        if returning.logs.iter().all(|log| is_dead(log.state)) {
            return refuse("its first zones, which hold the superblocks, cannot be written; use another drive");
        }
        let others: Vec<Superblock> =
            self.members.present().map(|other| self.members.superblock_of(&self.spec, other)).collect();
        let all: Vec<Membership> = others.iter().chain([found]).map(Membership::of).collect();
        split_brain(&all.iter().collect::<Vec<_>>(), Some(self.members.durable_epoch())).map_or(Ok(()), Err)
    }

    fn read_returned_headers(&mut self, member: MemberIndex) {
        let blocks = HEADER_COPIES.min(self.spec.shape.transfer_blocks);
        for _ in 0..RETURNED_ZONES_IN_FLIGHT_MAX {
            let Some(returning) = self.returning(member) else { return };
            let Some(zone) = returning.unread.pop_front() else { return };
            self.read_returning(member, ReturnStep::Header { zone }, (zone, 0), blocks);
        }
    }

    /// A zone without a readable header is not claimed.
    fn on_returned_header(&mut self, member: MemberIndex, zone: u32, buffer: Option<&BlockBuffer>) {
        let block_bytes = self.spec.shape.block_bytes;
        let Some(buffer) = buffer else { return };
        let mut blocks = buffer.data.chunks(block_bytes).map(|block| SegmentHeader::read(block).ok());
        let first = blocks.next().flatten();
        // In version 1 the second block is data.
        let is_second = |header: &SegmentHeader| {
            header.copies == HEADER_COPIES && header.zones.get(member.as_usize()) == Some(&Some(zone))
        };
        let header = first.or_else(|| blocks.next().flatten().filter(is_second));
        let array = self.spec.array;
        let header = header.filter(|header| header.array == array && header.member == member.0);
        if let (Some(returning), Some(header)) = (self.returning(member), header) {
            returning.headers.push((zone, header));
        }
    }

    /// All is read: it joins the volume.
    fn rejoin(&mut self, member: MemberIndex) {
        let Some(at) = self.rebuild.returning.iter().position(|other| other.member == member) else { return };
        let returning = self.rebuild.returning.remove(at);
        let Some((current, found)) = returning.newest() else { return };
        self.members.saw_superblock(found.epoch, found.sequence);
        let geometry = self.members[member].geometry();
        let zones = [0, 1].map(|zone| (returning.logs[zone].written, is_dead(returning.logs[zone].state)));
        let active = [0, 1].map(|zone| returning.logs[zone].state.is_active());
        let log = MetadataLog::found(geometry, zones, current as u32, active);
        let now = self.now;
        self.members[member].rejoin(&returning.zones, log, now);
        for (_, header) in &returning.headers {
            // New segments are distinguished from its old ones by their sequence numbers only.
            self.segments.saw_sequence(header.segment);
        }
        let mut headers = returning.headers.into_iter().collect::<std::collections::BTreeMap<_, _>>();
        for (zone, descriptor) in (0..).zip(&returning.zones).skip(METADATA_ZONES as usize) {
            if descriptor.state != ZoneState::Empty && !is_dead(descriptor.state) {
                self.rebuild.aside.push(Aside {
                    member,
                    zone,
                    is_active: descriptor.state.is_active(),
                    header: headers.remove(&zone),
                    step: AsideStep::Waiting,
                });
            }
        }
        self.members.begin_epoch(&self.spec);
        self.events.push_back(Event::Readded { member });
        self.begin_rebuild_of_joined();
    }

    /// The members that are present write to one that has joined, too, and it is rebuilt after
    /// those before it.
    pub(super) fn begin_rebuild_of_joined(&mut self) {
        // The next writes are to go to all members.
        let open: Vec<SegmentIndex> =
            Stream::ALL.iter().flat_map(|&stream| self.segments.open(stream)).copied().collect();
        let is_open =
            |index: &SegmentIndex| matches!(self.segments[*index].state, SegmentState::Opening | SegmentState::Open);
        let open: Vec<SegmentIndex> = open.into_iter().filter(is_open).collect();
        self.close_without(&open);
        if self.rebuild.member.is_none() {
            self.next_rebuild();
        }
    }

    /// Refuses the device. Nothing was written to it.
    pub(super) fn refuse_return(&mut self, member: MemberIndex, error: VolumeError) {
        self.rebuild.returning.retain(|other| other.member != member);
        // Its commands are abandoned.
        drop(self.members[member].abandon());
        self.events.push_back(Event::ReaddRefused { member, error });
    }
}

impl Returning {
    /// The log with the newest superblock, and that superblock.
    fn newest(&self) -> Option<(usize, &Superblock)> {
        let found = self.logs.iter().enumerate().filter_map(|(at, log)| Some((at, &log.found.as_ref()?.1)));
        found.max_by_key(|(_, found)| (found.epoch, found.sequence))
    }
}

fn no_superblock(member: MemberIndex) -> VolumeError {
    let what =
        "no valid superblock of this volume found: it was wiped, or is damaged; replace the member with it".to_owned();
    VolumeError::Member { member, what }
}

/// The previous block at the end of a log, as far as there may be a superblock.
fn before(written: u32, offset: u32) -> Option<u32> {
    (written - offset < SUPERBLOCKS_BACK_MAX).then_some(offset).and_then(|offset| offset.checked_sub(1))
}

fn written_blocks(zone: &ZoneDescriptor) -> u32 {
    match zone.state {
        ZoneState::Empty | ZoneState::Offline => 0,
        _ => zone.write_pointer.map_or(zone.capacity_blocks.0, |pointer| pointer.0 - zone.start.0) as u32,
    }
}

pub(super) fn bytes_of(status: Status, outcome: Outcome) -> Option<BlockBuffer> {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) if status.is_success() => Some(*buffer),
        _ => None,
    }
}
