//! [`Slice`]: a range of zones of a device as a namespace.

mod config;
mod decide;
#[cfg(test)]
mod random_tests;
mod resync;
#[cfg(test)]
mod tests;

pub use config::{SliceConfig, SliceError};

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::zones::{ZoneEffect, ZoneSnapshot, ZoneTable};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Instant, Lba, NamespaceId, Namespaces, Operation, Origin,
    Outcome, PayloadKind, QueueFull, Status, ZoneAction, ZoneIndex, ZoneTarget, ZonedDevice,
};

use crate::limits::{SLICE_OUTSTANDING_MAX, SLICE_PARKED_MAX};
use crate::outstanding::Outstanding;
use decide::{Decision, Touched, Undo};
use resync::Resync;

/// Zones `first..first + count` of a device as a namespace that starts at block 0, with a share of
/// the active, open and ZRWA resources. Use it to give each of several tenants a part of one drive
/// (with [`crate::Shared`] below), or to reserve zones of a drive for another purpose.
///
/// The slice has a table of its zones, and processes every command by it exactly as a drive of that
/// size would: statuses, limits, and closing an implicitly opened zone to free an open resource,
/// for which it sends a Close of its own to the device. Commands are passed on with the device's
/// addresses. Errors and reports are completed by the slice. Select All becomes one command for
/// each affected zone, with one completion when all have completed. The slice never addresses zones
/// outside of its range.
///
/// # Resync with the device
///
/// The table is read from the device at the start, and again for a zone whenever a command that
/// changes it fails, or any command fails with Zone Is Read Only or Zone Is Offline. Until the
/// report arrives, further commands wait in the slice in order; the error is completed at once. So
/// the state after an injected or real failure is that of the device. Commands submitted between
/// the failure and its completion are processed with the previous table: such a command may
/// complete with the device's status instead of the slice's, and after a failed Reset, Finish or
/// Close it may use a resource beyond the share until the report arrives. A zone for which the
/// share then has no active resource or ZRWA is shown as full, without a change on the device: it
/// can be read, and a Reset or a Finish repairs it ([`Slice::shown_full`] counts such cases). A
/// zone for which no open resource is left is closed.
///
/// A degraded zone (read only or offline) is detected by the first command to it that fails, or
/// when the host reads the Changed Zone List: that resyncs all zones of the slice with the device,
/// and does not read the device's own list, which belongs to all its users. Reports show the
/// detected states.
///
/// If a report fails [`RESYNC_ATTEMPTS_MAX`](crate::limits::RESYNC_ATTEMPTS_MAX) times, the table
/// stays unchanged for the waiting commands, and the next command starts another attempt. At the
/// start, the commands fail with [`Status::NamespaceNotReady`] then. If a Close of the slice itself
/// fails, the next command starts with a report of that zone. Until then the zone may be open on
/// the device in excess of the share.
///
/// # Full queues
///
/// A read, a flush, a deallocation, or a write that neither closes another zone nor fills an open
/// zone, is returned unchanged if the device refuses it. Any other command is accepted, and sent as
/// soon as the device accepts it; until then the slice refuses every further command.
pub struct Slice<D> {
    inner: D,
    namespace: NamespaceId,
    /// The start of the first zone on the device.
    offset: Blocks,
    keeps: PayloadKind,
    namespaces: Namespaces,
    zones: ZoneTable,
    /// Commands in flight at the device.
    outstanding: Outstanding<Pending>,
    /// Commands that are still to be sent, in order: the rest of at most one command of the host,
    /// the reports of a resync and the closes that follow from it.
    outbox: VecDeque<(Pending, Command)>,
    /// Commands that the host submitted during a resync.
    parked: VecDeque<Command>,
    ready: VecDeque<(Instant, Completion)>,
    groups: BTreeMap<u64, Group>,
    groups_made: u64,
    resync: Resync,
    started: bool,
    effects: Vec<ZoneEffect>,
    scratch: CompletionQueue,
}

/// Why a command was sent to the device.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// A command of the host. `expected` is the expected LBA of an append.
    Host { id: CommandId, touched: Touched, expected: Option<Lba> },
    /// The part of a Select All for one zone.
    Part { group: u64, zone: ZoneIndex },
    /// A Close that frees an open resource.
    Close { zone: ZoneIndex },
    /// A report of a resync.
    Report { first: ZoneIndex, count: u32, attempts: u32 },
}

/// A Select All in progress.
#[derive(Debug)]
struct Group {
    id: CommandId,
    parts_left: usize,
    /// The first error, if any.
    status: Status,
}

impl<D: ZonedDevice> Slice<D> {
    /// A slice of `inner`. The first poll or command starts a resync of its zones; commands wait
    /// until it is complete.
    ///
    /// # Errors
    /// [`SliceError`] when `config` exceeds the device.
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
            resync: Resync::new(&geometry),
            namespaces: Namespaces::single(geometry.clone()),
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
        slice.resync_all();
        Ok(slice)
    }

    /// The zone table of the slice.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.zones
    }

    /// How often a zone had to be shown as full because the share had no resource for its real
    /// state.
    #[must_use]
    pub fn shown_full(&self) -> u64 {
        self.resync.shown_full
    }

    /// Returns the inner device. Commands in flight are lost.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// The inner device.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The inner device. Completions of commands submitted to it directly must not be polled for
    /// here, and they must not affect the zones of the slice.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: ZonedDevice> ZonedDevice for Slice<D> {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.resync_unknown();
        self.advance(now);
        if self.resync.is_in_flight() {
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

    fn next_timeout(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        let own = self.ready.front().map(|(at, _)| *at);
        crate::earlier(own, self.inner.next_timeout())
    }
}

impl<D: ZonedDevice> Slice<D> {
    fn on_completion(&mut self, now: Instant, completion: Completion, completions: &mut CompletionQueue) {
        let Completion { id: own_id, status, mut outcome } = completion;
        match self.outstanding.remove(own_id) {
            Pending::Host { id, touched, expected } => {
                if !status.is_success() {
                    self.invalidate(touched, status);
                }
                if let Outcome::Appended(lba) = &mut outcome {
                    *lba = self.slice_lba(*lba);
                    if expected != Some(*lba) {
                        self.invalidate(touched, Status::InternalError);
                    }
                }
                completions.push(Completion { id, status, outcome });
            }
            Pending::Part { group, zone } => {
                if !status.is_success() {
                    self.invalidate(Touched::Changed(zone, zone), status);
                }
                self.end_part(group, status, completions);
            }
            Pending::Close { zone } => {
                if !status.is_success() {
                    self.resync.unknown.push((zone, zone));
                }
            }
            Pending::Report { first, count, attempts } => {
                self.on_report(now, first, count, attempts, outcome);
            }
        }
    }

    /// Processes a command: sends it on, or completes it. No resync is in progress, and no earlier
    /// command is parked.
    fn take(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.ready.len() >= SLICE_OUTSTANDING_MAX || self.outstanding.is_full() || !self.outbox.is_empty() {
            return Err(QueueFull(command));
        }
        let (id, origin) = (command.id, command.origin);
        if command.namespace != NamespaceId::FIRST {
            self.answer(now, id, Err(Status::InvalidNamespace));
            return Ok(());
        }
        match self.decide(&command.operation) {
            Decision::Answer(result) => self.answer(now, id, result),
            Decision::Resync => {
                self.resync.changed_list_for = Some(id);
                self.resync_all();
                self.flush_outbox(now);
            }
            Decision::Each => self.send_each(now, command),
            Decision::Pass { touched, expected, closed: Some(zone), .. } => {
                self.send_close(origin, zone);
                self.send(Pending::Host { id, touched, expected }, origin, command.operation);
                self.flush_outbox(now);
            }
            Decision::Pass { touched, expected, closed: None, undo } => {
                return self.pass(now, Pending::Host { id, touched, expected }, command, undo);
            }
        }
        Ok(())
    }

    /// Submits a command to the device. If the device refuses it, the table is reverted and the
    /// command returned; if the table cannot be reverted, the command waits in the outbox instead.
    fn pass(&mut self, now: Instant, pending: Pending, mut command: Command, undo: Undo) -> Result<(), QueueFull> {
        let (offset, id) = (self.offset, command.id);
        relocate(&mut command.operation, |lba| lba + offset);
        let own_id = self.outstanding.insert(pending);
        let command = command.with_id(own_id).with_namespace(self.namespace);
        let Err(QueueFull(mut command)) = self.inner.submit(now, command) else { return Ok(()) };
        self.outstanding.remove(own_id);
        match undo {
            Undo::Impossible => {
                self.outbox.push_back((pending, command));
                return Ok(());
            }
            Undo::Nothing => {}
            Undo::Zone(zone, snapshot) => self.put_back(zone, &snapshot),
        }
        relocate(&mut command.operation, |lba| self.slice_lba(lba));
        Err(QueueFull(command.with_id(id).with_namespace(NamespaceId::FIRST)))
    }

    /// Sends a Select All as one command for each zone that it changed.
    fn send_each(&mut self, now: Instant, command: Command) {
        let Command { id, origin, operation, .. } = command;
        let Operation::ManageZones { action, target: ZoneTarget::All } = operation else {
            unreachable!("only a Select All is split by zones")
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
            self.send(Pending::Part { group, zone }, origin, Operation::ManageZones { action: action.clone(), target });
        }
        self.effects = effects;
        self.flush_outbox(now);
    }

    fn end_part(&mut self, group: u64, status: Status, completions: &mut CompletionQueue) {
        let entry = self.groups.get_mut(&group).expect("a Select All is in progress until its last part has completed");
        entry.parts_left -= 1;
        if entry.status.is_success() {
            entry.status = status;
        }
        if entry.parts_left == 0 {
            let Group { id, status, .. } = self.groups.remove(&group).expect("it was just found");
            completions.push(Completion::of(id, status));
        }
    }

    /// Adds a command, with the slice's addresses, to the outbox. It gets its id when it is sent.
    fn send(&mut self, pending: Pending, origin: Origin, mut operation: Operation) {
        let offset = self.offset;
        relocate(&mut operation, |lba| lba + offset);
        let command = Command::new(CommandId(0), self.namespace, operation).with_origin(origin);
        self.outbox.push_back((pending, command));
    }

    fn send_close(&mut self, origin: Origin, zone: ZoneIndex) {
        let target = ZoneTarget::Zone(self.zones.geometry().zone_start(zone));
        self.send(Pending::Close { zone }, origin, Operation::ManageZones { action: ZoneAction::Close, target });
    }

    /// Sends commands of the outbox and processes parked commands, until the queue of the device is
    /// full.
    fn advance(&mut self, now: Instant) {
        self.started = true;
        loop {
            self.flush_outbox(now);
            if self.resync.is_in_flight() || !self.outbox.is_empty() {
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
            let Some((pending, command)) = self.outbox.pop_front() else { return };
            let id = self.outstanding.insert(pending);
            if let Err(QueueFull(command)) = self.inner.submit(now, command.with_id(id)) {
                self.outstanding.remove(id);
                self.outbox.push_front((pending, command));
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
        assert!(restored, "zone {zone} had these resources before");
    }

    /// Translates an LBA of the device to the slice.
    fn slice_lba(&self, lba: Lba) -> Lba {
        let inside = lba.0.checked_sub(self.offset.0).map(Lba);
        let inside = inside.filter(|&lba| self.zones.geometry().zone_of(lba).is_some());
        inside.unwrap_or_else(|| panic!("block {lba} of the device is outside the slice"))
    }
}

/// Translates every address of an operation.
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
            unreachable!("a Select All is never sent to the device: it would affect zones outside the slice")
        }
        Operation::Flush | Operation::ReadChangedZones => {}
    }
}
