//! [`Slice`]: some zones of a device as a namespace of its own.

mod config;
mod judge;
#[cfg(test)]
mod random_tests;
mod survey;
#[cfg(test)]
mod tests;

pub use config::{SliceConfig, SliceError};

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::zones::{ZoneEffect, ZoneSnapshot, ZoneTable};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation, Outcome,
    PayloadKind, QueueFull, Status, ZoneAction, ZoneIndex, ZoneTarget, ZonedDevice,
};

use crate::limits::{SLICE_OUTSTANDING_MAX, SLICE_PARKED_MAX};
use crate::outstanding::Outstanding;
use judge::{Touched, Undo, Verdict};
use survey::Survey;

/// Zones `first..first + count` of a device as a namespace of its own, from block 0 on, with a share of the active, open
/// and ZRWA resources. Use it to give each of several tenants a part of one drive ([`crate::Shared`] below), or to keep
/// some zones of a drive for another purpose.
///
/// The slice keeps a table of its zones, and decides every command by it exactly as a drive of that size would: statuses,
/// limits, and the closing of an implicitly opened zone to make room, which it sends to the device as a Close of its
/// own. What passes is sent on under the device's addresses. Refusals and reports are answered here. Select All becomes
/// one command for each zone that it concerns, with one completion when all have ended. Nothing it sends names a zone
/// outside.
///
/// # What the device says counts
///
/// The table is read from the device at the start, and again for a zone whenever a command that changes it fails, or any
/// command ends with Zone Is Read Only or Zone Is Offline. Until the report is there, further commands wait in the slice
/// in their order; the error itself goes to the host at once. So the state after an injected or real failure is what the
/// device says it is. Commands taken between the failure and its completion were decided by the table as it was: such a
/// command may get the device's status instead of the slice's, and after a failed Reset, Finish or Close it may hold a
/// resource beyond the share until the report is there. A zone for which the share then has no active resource or ZRWA
/// left is shown as full, though nothing is done to it on the device: it can be read, and a Reset or a Finish mends
/// it ([`Slice::shown_full`] counts such cases). A zone for which there is no open resource left is closed.
///
/// A zone that becomes read only or offline by itself is noticed with the first command to it that fails, or when the
/// host reads the Changed Zone List: that reads all zones of the slice from the device, and leaves the device's own list
/// alone, which belongs to all its users. Reports show what has been noticed.
///
/// If the device fails a report [`SURVEY_ATTEMPTS_MAX`](crate::limits::SURVEY_ATTEMPTS_MAX) times over, the table stays as
/// it is for the commands that waited, and the next command begins with another try. If that is so at the start, the
/// commands end with [`Status::NamespaceNotReady`]. If it fails a Close of the slice's own, the next command begins with
/// a report of that zone. Until then the zone may be open on the device in excess of the share.
///
/// # Room
///
/// A read, a flush, a deallocation, or a write that closes no zone for room and does not fill an open zone, is handed back
/// unchanged when the device refuses it. Any other command is taken, and sent as soon as the device has room; until then
/// the slice hands every further command back.
pub struct Slice<D> {
    inner: D,
    namespace: NamespaceId,
    /// The first zone's place on the device.
    offset: Blocks,
    keeps: PayloadKind,
    zones: ZoneTable,
    /// What the device works on.
    outstanding: Outstanding<Pending>,
    /// What is decided, and has yet to be sent, in order: the rest of at most one command of the host, the reports of a
    /// survey and the closings that follow from it.
    outbox: VecDeque<(Pending, Operation)>,
    /// What came from the host while a survey was under way, and is yet to be decided.
    parked: VecDeque<Command>,
    ready: VecDeque<(Instant, Completion)>,
    groups: BTreeMap<u64, Group>,
    groups_made: u64,
    survey: Survey,
    started: bool,
    effects: Vec<ZoneEffect>,
    scratch: CompletionQueue,
}

/// Why a command was sent to the device.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// The host's own. `expected` is where an append must end up.
    Host { id: CommandId, touched: Touched, expected: Option<Lba> },
    /// One zone's part of a Select All.
    Part { group: u64, zone: ZoneIndex },
    /// A closing that the table decided on.
    Close { zone: ZoneIndex },
    /// A part of a survey.
    Report { first: ZoneIndex, count: u32, attempts: u32 },
}

/// A Select All under way.
#[derive(Debug)]
struct Group {
    id: CommandId,
    parts_left: usize,
    /// The first failure, if any.
    status: Status,
}

impl<D: ZonedDevice> Slice<D> {
    /// A slice of `inner`. The first poll or command begins with a survey of its zones; commands wait until it is done.
    ///
    /// # Errors
    /// [`SliceError`] when the device does not have what `config` asks for.
    ///
    /// # Panics
    /// When the device does not have the namespace.
    pub fn new(inner: D, config: SliceConfig) -> Result<Slice<D>, SliceError> {
        let device = inner.geometry(config.namespace);
        let geometry = config.geometry(device)?;
        let offset = device.zone_start(config.first) - Lba(0);
        let mut slice = Slice {
            namespace: config.namespace,
            offset,
            keeps: config.keeps,
            survey: Survey::new(&geometry),
            zones: ZoneTable::new(geometry),
            outstanding: Outstanding::new(SLICE_OUTSTANDING_MAX),
            outbox: VecDeque::new(),
            parked: VecDeque::new(),
            ready: VecDeque::new(),
            groups: BTreeMap::new(),
            groups_made: 0,
            started: false,
            effects: Vec::new(),
            scratch: CompletionQueue::new(),
            inner,
        };
        slice.survey_all();
        Ok(slice)
    }

    /// The zones as the slice knows them.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.zones
    }

    /// How many times a zone had to be shown as full because the share had nothing left for its real state.
    #[must_use]
    pub fn shown_full(&self) -> u64 {
        self.survey.shown_full
    }

    /// The device inside. What is under way is forgotten.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The device inside.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device inside. What is submitted to it directly must not be polled for here, and must leave the zones of the
    /// slice alone.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: ZonedDevice> ZonedDevice for Slice<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "a slice is one namespace");
        self.zones.geometry()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.survey_unknown();
        self.advance(now);
        if self.survey.is_under_way() {
            if self.parked.len() >= SLICE_PARKED_MAX {
                return Err(QueueFull(command));
            }
            self.parked.push_back(command);
            return Ok(());
        }
        if !self.parked.is_empty() {
            return Err(QueueFull(command));
        }
        self.take(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.hand_over(completions);
        let mut ended = std::mem::take(&mut self.scratch);
        self.inner.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            self.on_completion(now, completion, completions);
        }
        self.scratch = ended;
        self.advance(now);
        self.hand_over(completions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        let own = self.ready.front().map(|(at, _)| *at);
        crate::earlier(own, self.inner.next_wakeup())
    }
}

impl<D: ZonedDevice> Slice<D> {
    fn on_completion(&mut self, now: Instant, completion: Completion, completions: &mut CompletionQueue) {
        let Completion { id: own_id, status, mut outcome } = completion;
        match self.outstanding.remove(own_id) {
            Pending::Host { id, touched, expected } => {
                if !status.is_success() {
                    self.doubt(touched, status);
                }
                if let Outcome::Appended(lba) = &mut outcome {
                    *lba = self.slice_lba(*lba);
                    if expected != Some(*lba) {
                        self.doubt(touched, Status::InternalError);
                    }
                }
                completions.push(Completion { id, status, outcome });
            }
            Pending::Part { group, zone } => {
                if !status.is_success() {
                    self.doubt(Touched::Changed(zone, zone), status);
                }
                self.end_part(group, status, completions);
            }
            Pending::Close { zone } => {
                if !status.is_success() {
                    self.survey.unknown.push((zone, zone));
                }
            }
            Pending::Report { first, count, attempts } => {
                self.on_report(now, first, count, attempts, outcome);
            }
        }
    }

    /// Decides a command and sends it on, or answers it. The survey is done and nothing is parked before this command.
    fn take(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.ready.len() >= SLICE_OUTSTANDING_MAX || self.outstanding.is_full() || !self.outbox.is_empty() {
            return Err(QueueFull(command));
        }
        let Command { id, namespace, operation } = command;
        if namespace != NamespaceId::FIRST {
            self.answer(now, id, Err(Status::InvalidNamespace));
            return Ok(());
        }
        match self.judge(&operation) {
            Verdict::Answer(result) => self.answer(now, id, result),
            Verdict::Survey => {
                self.survey.changed_list_for = Some(id);
                self.survey_all();
                self.flush_outbox(now);
            }
            Verdict::Each => self.send_each(now, id, operation),
            Verdict::Pass { touched, expected, closed: Some(zone), .. } => {
                self.send_close(zone);
                self.send(Pending::Host { id, touched, expected }, operation);
                self.flush_outbox(now);
            }
            Verdict::Pass { touched, expected, closed: None, undo } => {
                return self.pass(now, Pending::Host { id, touched, expected }, id, operation, undo);
            }
        }
        Ok(())
    }

    /// Sends a command straight on. If the device refuses it, what the table has done is undone and the command handed
    /// back; what cannot be undone waits in the outbox instead.
    fn pass(
        &mut self,
        now: Instant,
        pending: Pending,
        id: CommandId,
        mut operation: Operation,
        undo: Undo,
    ) -> Result<(), QueueFull> {
        let offset = self.offset;
        relocate(&mut operation, |lba| lba + offset);
        let own_id = self.outstanding.insert(pending);
        let command = Command { id: own_id, namespace: self.namespace, operation };
        let Err(QueueFull(command)) = self.inner.submit(now, command) else { return Ok(()) };
        self.outstanding.remove(own_id);
        let mut operation = command.operation;
        match undo {
            Undo::Impossible => {
                self.outbox.push_back((pending, operation));
                return Ok(());
            }
            Undo::Nothing => {}
            Undo::Zone(zone, snapshot) => self.put_back(zone, &snapshot),
        }
        relocate(&mut operation, |lba| self.slice_lba(lba));
        Err(QueueFull(Command { id, namespace: NamespaceId::FIRST, operation }))
    }

    /// Sends a Select All as one command for each zone that it changed.
    fn send_each(&mut self, now: Instant, id: CommandId, operation: Operation) {
        let Operation::ManageZones { action, target: ZoneTarget::All } = operation else {
            unreachable!("only a Select All concerns each zone by itself")
        };
        let effects = std::mem::take(&mut self.effects);
        if effects.is_empty() {
            self.effects = effects;
            self.answer(now, id, Ok(Outcome::None));
            return;
        }
        let group = self.groups_made;
        self.groups_made += 1;
        self.groups.insert(group, Group { id, parts_left: effects.len(), status: Status::Success });
        for effect in &effects {
            let zone = effect.zone();
            let target = ZoneTarget::Zone(self.zones.geometry().zone_start(zone));
            self.send(Pending::Part { group, zone }, Operation::ManageZones { action: action.clone(), target });
        }
        self.effects = effects;
        self.flush_outbox(now);
    }

    fn end_part(&mut self, group: u64, status: Status, completions: &mut CompletionQueue) {
        let entry = self.groups.get_mut(&group).expect("a Select All lives until its last part has ended");
        entry.parts_left -= 1;
        if entry.status.is_success() {
            entry.status = status;
        }
        if entry.parts_left == 0 {
            let Group { id, status, .. } = self.groups.remove(&group).expect("it was there just now");
            completions.push(Completion::of(id, status));
        }
    }

    /// Puts a command, in the slice's addresses, at the end of what is to be sent.
    fn send(&mut self, pending: Pending, mut operation: Operation) {
        let offset = self.offset;
        relocate(&mut operation, |lba| lba + offset);
        self.outbox.push_back((pending, operation));
    }

    fn send_close(&mut self, zone: ZoneIndex) {
        let target = ZoneTarget::Zone(self.zones.geometry().zone_start(zone));
        self.send(Pending::Close { zone }, Operation::ManageZones { action: ZoneAction::Close, target });
    }

    /// Sends what is to be sent, and decides what is parked, as far as the device has room.
    fn advance(&mut self, now: Instant) {
        self.started = true;
        loop {
            self.flush_outbox(now);
            if self.survey.is_under_way() || !self.outbox.is_empty() {
                return;
            }
            let Some(command) = self.parked.pop_front() else { return };
            if let Err(QueueFull(command)) = self.take(now, command) {
                self.parked.push_front(command);
                return;
            }
        }
    }

    fn flush_outbox(&mut self, now: Instant) {
        while !self.outstanding.is_full() {
            let Some((pending, operation)) = self.outbox.pop_front() else { return };
            let id = self.outstanding.insert(pending);
            let command = Command { id, namespace: self.namespace, operation };
            if let Err(QueueFull(command)) = self.inner.submit(now, command) {
                self.outstanding.remove(id);
                self.outbox.push_front((pending, command.operation));
                return;
            }
        }
    }

    fn answer(&mut self, now: Instant, id: CommandId, result: Result<Outcome, Status>) {
        let completion = match result {
            Ok(outcome) => Completion { id, status: Status::Success, outcome },
            Err(status) => Completion::of(id, status),
        };
        self.ready.push_back((now, completion));
    }

    fn hand_over(&mut self, completions: &mut CompletionQueue) {
        for (_, completion) in self.ready.drain(..) {
            completions.push(completion);
        }
    }

    fn put_back(&mut self, zone: ZoneIndex, snapshot: &ZoneSnapshot) {
        let restored = self.zones.restore(zone, snapshot);
        assert!(restored, "zone {zone} held these resources a moment ago");
    }

    /// A block of the device as the slice calls it.
    fn slice_lba(&self, lba: Lba) -> Lba {
        let inside = lba.0.checked_sub(self.offset.0).map(Lba);
        let inside = inside.filter(|&lba| self.zones.geometry().zone_of(lba).is_some());
        inside.unwrap_or_else(|| panic!("block {lba} of the device is outside the slice"))
    }
}

/// Moves every address in an operation.
fn relocate(operation: &mut Operation, to: impl Fn(Lba) -> Lba) {
    match operation {
        Operation::Read { start, .. }
        | Operation::Write { start, .. }
        | Operation::Append { zone_start: start, .. }
        | Operation::WriteZeroes { start, .. }
        | Operation::ReportZones { start, .. }
        | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => *start = to(*start),
        Operation::Deallocate { ranges } => {
            for range in ranges {
                range.start = to(range.start);
            }
        }
        Operation::ManageZones { target: ZoneTarget::All, .. } => {
            unreachable!("a Select All is never sent on as such: it would reach zones outside")
        }
        Operation::Flush | Operation::ReadChangedZones => {}
    }
}
