//! One served drive, and its queue of commands.
//!
//! The loop submits only a limited amount per iteration ([`Pace`]); further commands wait in a
//! [`FairQueue`]. So the next iteration starts soon, and commands of other hosts that arrive
//! meanwhile are queued fairly.

use std::collections::VecDeque;

use zonda_devices::{Drive, VolumeDrive};
use zonda_target::{FairQueue, Flow};
use zonda_zoned::{Command, CommandId, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull};

use crate::backing::Backing;
use crate::events;
use crate::meter::Meter;

/// The maximum that is taken from sockets, and submitted to drives, in one iteration of the loop,
/// in bytes as [`cost_of`] counts them: a drive in memory copies as much in some 0.1 ms.
pub(crate) const ITERATION_COST_MAX: u64 = 512 << 10;
/// The minimum, if that takes longer.
const ITERATION_COST_MIN: u64 = 16 << 10;
/// An iteration that takes longer reduces the allowance of the next ones. The first access to
/// memory, for instance, takes ten times as long as later ones.
const ITERATION_MAX: Duration = Duration::from_micros(300);
/// The same while several connections use the server: each waits for some iterations.
const SHARED_ITERATION_MAX: Duration = Duration::from_micros(60);
/// The cost of a refused command and those behind it that reads may pass. With more, reads wait as
/// well: what is held has left the fair queue, and a host that arrives later waits for it.
const HELD_COST_MAX: u64 = ITERATION_COST_MAX;
/// The cost of a command in addition to its data.
pub(crate) const COMMAND_COST: u64 = 4 << 10;

/// The submitters of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitter {
    /// The NVMe/TCP target.
    Target,
    /// The NBD server.
    Nbd,
}

/// A drive and its state in the server.
pub(crate) struct Served {
    backing: Backing,
    /// The namespace within the drive.
    namespace: NamespaceId,
    geometry: Geometry,
    /// Of the list of namespaces that the geometry is from.
    version: u64,
    /// Queued commands. Bounded by the queues of hosts and the requests of NBD clients.
    waiting: FairQueue<Waiting>,
    /// A read that the drive has refused: its queue is full.
    next: Option<Waiting>,
    /// A command other than a read that the drive has refused, and such commands behind it, which
    /// keep their order. Reads pass them.
    held: VecDeque<Waiting>,
    /// What may be submitted in this iteration of the loop, as [`cost_of`] counts it.
    pub(crate) allowance: u64,
    /// How often the scheduler had changed its mind about its conflict groups at the last look.
    table_changes: u64,
    /// Commands that fail: the drive is closing, or their connection was closed.
    pub(crate) refused: Vec<(Submitter, CommandId)>,
    /// The drive is saving reservations.
    pub(crate) is_saving: bool,
    pub(crate) close_phase: ClosePhase,
    /// It serves no namespace any more: it is closed, and then removed.
    pub(crate) is_retired: bool,
    pub(crate) meter: Meter,
    /// A description of its backing store.
    pub(crate) source: String,
    /// `none` or `profile`.
    pub(crate) timing: &'static str,
}

/// A queued command.
#[derive(Debug)]
struct Waiting {
    submitter: Submitter,
    flow: Flow,
    command: Command,
}

impl Waiting {
    fn is_read(&self) -> bool {
        matches!(self.command.operation, Operation::Read { .. })
    }
}

/// The progress of closing a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosePhase {
    /// It accepts commands.
    Open,
    /// It accepts no more commands, and completes outstanding ones.
    Draining,
    /// It is closing.
    Closing,
}

/// Adapts how much is taken from sockets, and submitted to drives, in one iteration of the loop.
#[derive(Debug)]
pub(crate) struct Pace {
    cost: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { cost: ITERATION_COST_MAX }
    }
}

impl Pace {
    /// Takes the duration of the last iteration, and returns the allowance of the next one.
    pub(crate) fn next(&mut self, took: Duration, is_shared: bool) -> u64 {
        let most = if is_shared { SHARED_ITERATION_MAX } else { ITERATION_MAX };
        let cost = if took > most {
            self.cost / 2
        } else if took.0 < most.0 / 2 {
            self.cost * 2
        } else {
            self.cost
        };
        self.cost = cost.clamp(ITERATION_COST_MIN, ITERATION_COST_MAX);
        self.cost
    }
}

impl Served {
    /// Logs a change of the scheduler's mind about its conflict groups.
    pub(crate) fn log_table_change(&mut self) {
        let Some(table) = self.drive().scheduler().and_then(|facts| facts.table) else { return };
        let changes = table.rejected + table.restored;
        if std::mem::replace(&mut self.table_changes, changes) != changes {
            events::table_changed(&self.source, &table);
        }
    }

    pub(crate) fn new(backing: Backing, source: String, timing: &'static str) -> Served {
        let drive = backing.drive();
        let namespace = NamespaceId::FIRST;
        let (geometry, version) = (drive.geometry(namespace).clone(), drive.namespaces().version());
        Served {
            backing,
            namespace,
            geometry,
            version,
            waiting: FairQueue::default(),
            next: None,
            held: VecDeque::new(),
            table_changes: 0,
            allowance: ITERATION_COST_MAX,
            refused: Vec::new(),
            is_saving: false,
            close_phase: ClosePhase::Open,
            is_retired: false,
            meter: Meter::default(),
            source,
            timing,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The geometry, if it has changed since the last call. A drive that has lost its namespace
    /// fails commands itself.
    pub(crate) fn take_resized(&mut self) -> Option<&Geometry> {
        let namespaces = self.backing.drive().namespaces();
        if namespaces.version() == self.version {
            return None;
        }
        self.version = namespaces.version();
        self.geometry = namespaces.geometry(self.namespace).filter(|geometry| **geometry != self.geometry)?.clone();
        Some(&self.geometry)
    }

    pub(crate) fn drive(&self) -> &dyn Drive {
        self.backing.drive()
    }

    pub(crate) fn drive_mut(&mut self) -> &mut dyn Drive {
        self.backing.drive_mut()
    }

    /// The volume, if the drive is one.
    pub(crate) fn volume(&self) -> Option<&VolumeDrive> {
        self.backing.volume()
    }

    /// The same, for requests of operators.
    pub(crate) fn volume_mut(&mut self) -> Option<&mut VolumeDrive> {
        self.backing.volume_mut()
    }

    /// Commands outstanding at the drive, and queued ones.
    pub(crate) fn outstanding(&self) -> usize {
        self.meter.outstanding() + self.waiting.len() + self.held.len() + usize::from(self.next.is_some())
    }

    pub(crate) fn submit(&mut self, now: Instant, submitter: Submitter, flow: Flow, mut command: Command) {
        if self.close_phase != ClosePhase::Open {
            self.refused.push((submitter, command.id));
            return;
        }
        command.namespace = self.namespace;
        let cost = cost_of(&command, self.geometry.block_size_bytes);
        let waiting = Waiting { submitter, flow, command };
        if self.is_waiting() || self.allowance == 0 {
            self.waiting.push(flow, cost, waiting);
        } else {
            self.allowance = self.allowance.saturating_sub(cost);
            self.give(now, waiting);
        }
    }

    /// Whether commands are queued.
    pub(crate) fn is_waiting(&self) -> bool {
        self.next.is_some() || !self.held.is_empty() || !self.waiting.is_empty()
    }

    /// Submits a command to the drive. If it is refused, it is the first to be submitted later.
    fn give(&mut self, now: Instant, waiting: Waiting) {
        let Waiting { submitter, flow, mut command } = waiting;
        let id = command.id;
        let given = self.meter.started(now, submitter, &command, self.geometry.block_size_bytes);
        command.id = given;
        if let Err(QueueFull(mut command)) = self.drive_mut().submit(now, command) {
            self.meter.refused(given);
            command.id = id;
            let waiting = Waiting { submitter, flow, command };
            if waiting.is_read() {
                self.next = Some(waiting);
            } else {
                self.held.push_front(waiting);
            }
        }
    }

    /// Submits queued commands, as many as this iteration allows. Returns whether more could be
    /// submitted in the next one.
    pub(crate) fn submit_waiting(&mut self, now: Instant) -> bool {
        while let Some(first) = self.held.pop_front() {
            let left = self.held.len();
            self.give(now, first);
            if self.held.len() > left {
                break;
            }
        }
        if let Some(next) = self.next.take() {
            self.give(now, next);
        }
        let mut held_cost: u64 = self.held.iter().map(|held| self.cost_of(held)).sum();
        while self.next.is_none() && held_cost < HELD_COST_MAX && self.allowance > 0 {
            let Some((cost, waiting)) = self.waiting.pop() else { return false };
            let held = self.held.len();
            if held > 0 && !waiting.is_read() {
                self.held.push_back(waiting);
            } else {
                self.allowance = self.allowance.saturating_sub(cost);
                self.give(now, waiting);
            }
            held_cost += if self.held.len() > held { cost } else { 0 };
        }
        self.next.is_none() && held_cost < HELD_COST_MAX && !self.waiting.is_empty()
    }

    fn cost_of(&self, waiting: &Waiting) -> u64 {
        cost_of(&waiting.command, self.geometry.block_size_bytes)
    }

    /// Fails queued commands of a flow.
    pub(crate) fn abandon(&mut self, flow: Flow) {
        let next = self.next.take_if(|next| next.flow == flow);
        let (held, others) = std::mem::take(&mut self.held).into_iter().partition(|held| held.flow == flow);
        self.held = others;
        let held: VecDeque<Waiting> = held;
        let waiting = next.into_iter().chain(held).chain(self.waiting.remove(flow));
        self.refused.extend(waiting.map(|waiting| (waiting.submitter, waiting.command.id)));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.close_phase == ClosePhase::Closing && self.drive().is_closed()
    }

    /// Logs the warnings of a closed drive. Returns whether its data could not be made durable.
    pub(crate) fn log_close_error(&mut self) -> bool {
        while let Some(warning) = self.drive_mut().take_warning() {
            events::warning(&self.source, &warning);
        }
        let error = self.drive().close_error();
        error.iter().for_each(|error| events::warning(&self.source, error));
        error.is_some()
    }

    /// Continues closing. Most drives complete their commands first.
    pub(crate) fn advance_close(&mut self, now: Instant) {
        if self.close_phase == ClosePhase::Open {
            self.close_phase = ClosePhase::Draining;
            let waiting = self.next.take().into_iter().chain(self.held.drain(..)).chain(self.waiting.drain());
            self.refused.extend(waiting.map(|waiting| (waiting.submitter, waiting.command.id)));
        }
        let is_quiescent = self.meter.outstanding() == 0 && !self.is_saving;
        if self.close_phase == ClosePhase::Draining && (is_quiescent || self.drive().ends_commands_at_close()) {
            self.close_phase = ClosePhase::Closing;
            self.drive_mut().close(now);
        }
    }
}

/// The cost of a command, in bytes: its data, and a fixed amount.
fn cost_of(command: &Command, block_size_bytes: u32) -> u64 {
    let data = match command.operation {
        Operation::Read { .. } | Operation::Write { .. } | Operation::Append { .. } => {
            command.operation.blocks().bytes(block_size_bytes)
        }
        _ => 0,
    };
    COMMAND_COST + data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_iterations_reduce_the_allowance_and_short_ones_raise_it() {
        let mut pace = Pace::default();
        assert_eq!(pace.next(ITERATION_MAX, false), ITERATION_COST_MAX);
        assert_eq!(pace.next(ITERATION_MAX, true), ITERATION_COST_MAX / 2);
        assert_eq!(pace.next(SHARED_ITERATION_MAX, true), ITERATION_COST_MAX / 2, "neither long nor short");
        assert_eq!(pace.next(Duration::ZERO, true), ITERATION_COST_MAX);
        let long = ITERATION_MAX + Duration(1);
        let costs = [0; 6].map(|_| pace.next(long, false) >> 10);
        assert_eq!(costs, [256, 128, 64, 32, 16, 16]);
        let costs = [0; 6].map(|_| pace.next(Duration::ZERO, false) >> 10);
        assert_eq!(costs, [32, 64, 128, 256, 512, 512]);
    }
}
