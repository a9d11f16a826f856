//! Prepares zones for a run by commands, for devices that cannot be set up directly.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Lba, LiveClock, NamespaceId, Operation, Payload,
    PayloadKind, QueueFull, Status, ZoneAction, ZoneIndex, ZoneTarget, ZoneType, ZonedDevice,
};

use crate::Plan;
use crate::limits::{PREPARE_QUEUE_DEPTH, PREPARE_WRITE_BYTES_MAX, REFUSAL_MAX_NS};
use crate::stamp::{Stamp, Stamper};

/// Progress of the preparation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrepareProgress {
    /// Zones reset.
    pub zones_reset: u64,
    /// Zones to reset.
    pub zones_to_reset: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes to write.
    pub bytes_to_write: u64,
}

/// A zone that could not be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareError {
    /// The zone.
    pub zone: ZoneIndex,
    /// The failed operation: `reset`, `write` or `close`.
    pub operation: &'static str,
    /// Its status; [`Status::NamespaceNotReady`] also if the device accepted no command for
    /// [`REFUSAL_MAX_NS`].
    pub status: Status,
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {} cannot be prepared: {} failed with {}", self.zone, self.operation, self.status)
    }
}

impl std::error::Error for PrepareError {}

/// Brings the zones of a plan into the state that its [`Runner`](crate::Runner) expects: resets all
/// sequential zones that a job uses, writes those that [`Plan::prefill`] lists, and closes partly
/// written ones. **All data in these zones are lost.** Other zones are not changed; active ones
/// among them may leave too few resources.
///
/// If the device keeps bytes, they are those that a run of the same plan verifies
/// ([`Runner::prepared`](crate::Runner::prepared)); conventional zones that are not prefilled stay
/// as they are. `progress` is called after each completion.
///
/// # Errors
/// The first command that fails, after all commands in flight have ended.
///
/// # Panics
/// When the namespace has another geometry than the plan was made for, or the device completes a
/// command that it was not given.
pub fn prepare<D: ZonedDevice + ?Sized>(
    plan: &Plan,
    keeps: PayloadKind,
    namespace: NamespaceId,
    device: &mut D,
    clock: &mut dyn LiveClock,
    progress: &mut dyn FnMut(PrepareProgress),
) -> Result<(), PrepareError> {
    assert!(*device.geometry(namespace) == plan.geometry, "the plan was made for a device of another geometry");
    let mut preparation = Preparation::new(plan, keeps, namespace);
    // A host waits for the resets before it writes, and for the writes before it closes.
    for stage in [Stage::Reset, Stage::Write, Stage::Close] {
        preparation.carry_out(stage, device, clock, progress);
    }
    preparation.error.map_or(Ok(()), Err)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reset,
    Write,
    Close,
}

struct Preparation<'a> {
    plan: &'a Plan,
    stamper: Option<Stamper>,
    namespace: NamespaceId,
    to_reset: VecDeque<ZoneIndex>,
    /// Zones to write, the blocks to write, and the next of them. Partly written zones come last:
    /// each keeps an active resource, and one that becomes full needs one temporarily.
    to_write: VecDeque<(ZoneIndex, u64, u64)>,
    to_close: VecDeque<ZoneIndex>,
    write_blocks: u64,
    next_id: u64,
    in_flight: BTreeMap<CommandId, (ZoneIndex, &'static str, u64)>,
    /// A command that the device refused because its queue is full.
    held: Option<Command>,
    progress: PrepareProgress,
    error: Option<PrepareError>,
}

impl<'a> Preparation<'a> {
    fn new(plan: &'a Plan, keeps: PayloadKind, namespace: NamespaceId) -> Preparation<'a> {
        let geometry = &plan.geometry;
        let is_sequential = |zone: &ZoneIndex| geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired;
        let to_reset: VecDeque<ZoneIndex> = plan.zones_used().into_iter().filter(is_sequential).collect();
        let mut prefill = plan.prefill();
        prefill.sort_by_key(|(_, blocks)| *blocks < geometry.zone_capacity_blocks);
        let to_close =
            prefill.iter().filter(|(zone, blocks)| is_sequential(zone) && *blocks < geometry.zone_capacity_blocks);
        let block_bytes = u64::from(geometry.block_size_bytes);
        let blocks: u64 = prefill.iter().map(|(_, blocks)| blocks.0).sum();
        Preparation {
            stamper: (keeps == PayloadKind::Bytes).then(|| Stamper::new(geometry, plan.seed)),
            namespace,
            to_close: to_close.map(|(zone, _)| *zone).collect(),
            write_blocks: (PREPARE_WRITE_BYTES_MAX / block_bytes).clamp(1, geometry.max_transfer_blocks.0),
            next_id: 0,
            in_flight: BTreeMap::new(),
            held: None,
            progress: PrepareProgress {
                zones_to_reset: to_reset.len() as u64,
                bytes_to_write: blocks * block_bytes,
                ..PrepareProgress::default()
            },
            error: None,
            to_write: prefill.into_iter().map(|(zone, blocks)| (zone, blocks.0, 0)).collect(),
            to_reset,
            plan,
        }
    }

    fn carry_out<D: ZonedDevice + ?Sized>(
        &mut self,
        stage: Stage,
        device: &mut D,
        clock: &mut dyn LiveClock,
        progress: &mut dyn FnMut(PrepareProgress),
    ) {
        let mut completions = CompletionQueue::new();
        let mut refused_since = None;
        loop {
            let now = clock.now();
            while let Some(command) = self.next_command(stage) {
                if let Err(QueueFull(command)) = device.submit(now, command) {
                    self.held = Some(command);
                    break;
                }
            }
            if self.in_flight.is_empty() {
                return;
            }
            let is_refused = self.held.is_some() && self.in_flight.len() == 1;
            refused_since = refused_since.or(Some(now)).filter(|_| is_refused);
            let timeout_at = refused_since.map(|since| since + Duration(REFUSAL_MAX_NS));
            clock.wait(timeout_at.into_iter().chain(device.next_timeout()).min());
            let now = clock.now();
            device.poll(now, &mut completions);
            while let Some(completion) = completions.pop() {
                self.ended(completion.id, completion.status);
                progress(self.progress);
            }
            if timeout_at.is_some_and(|end| now >= end)
                && let Some(command) = self.held.take()
            {
                self.ended(command.id, Status::NamespaceNotReady);
            }
        }
    }

    /// The next command of a stage, if there is one and it may be submitted now. After an error
    /// there is none.
    fn next_command(&mut self, stage: Stage) -> Option<Command> {
        if let Some(command) = self.held.take() {
            return Some(command);
        }
        if self.error.is_some() || self.in_flight.len() >= PREPARE_QUEUE_DEPTH {
            return None;
        }
        let (zone, name, blocks, operation) = match stage {
            Stage::Reset => {
                let zone = self.to_reset.pop_front()?;
                (zone, "reset", 0, self.manage(ZoneAction::Reset, zone))
            }
            Stage::Close => {
                let zone = self.to_close.pop_front()?;
                (zone, "close", 0, self.manage(ZoneAction::Close, zone))
            }
            Stage::Write => {
                let write_blocks = self.write_blocks;
                let (zone, to, next) = self.to_write.front_mut()?;
                let (zone, offset) = (*zone, *next);
                let blocks = write_blocks.min(*to - offset);
                *next += blocks;
                if *next == *to {
                    self.to_write.pop_front();
                }
                let start = self.plan.geometry.zone_start(zone) + Blocks(offset);
                let payload = self.payload(zone, start, blocks);
                (zone, "write", blocks, Operation::Write { start, blocks: Blocks(blocks), payload })
            }
        };
        let id = CommandId(self.next_id);
        self.next_id += 1;
        self.in_flight.insert(id, (zone, name, blocks));
        Some(Command::new(id, self.namespace, operation))
    }

    fn manage(&self, action: ZoneAction, zone: ZoneIndex) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(self.plan.geometry.zone_start(zone)) }
    }

    /// The payload that a verifier expects in prepared zones.
    fn payload(&self, zone: ZoneIndex, start: Lba, blocks: u64) -> Payload {
        let Some(stamper) = &self.stamper else { return Payload::None };
        let sequence = u64::from(self.plan.geometry.zone_type(zone) == ZoneType::Conventional);
        stamper.payload(blocks, |block| Stamp { lba: start + Blocks(block), sequence })
    }

    fn ended(&mut self, id: CommandId, status: Status) {
        let Some((zone, operation, blocks)) = self.in_flight.remove(&id) else {
            panic!("the device completed command {id}, which is not outstanding");
        };
        if !status.is_success() {
            self.error.get_or_insert(PrepareError { zone, operation, status });
            return;
        }
        self.progress.zones_reset += u64::from(operation == "reset");
        self.progress.bytes_written += blocks * u64::from(self.plan.geometry.block_size_bytes);
    }
}
