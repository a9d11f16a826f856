//! One drive that is served, and the commands that wait for their turn.
//!
//! The loop gives drives only so much in one turn ([`Pace`]), and what is beyond that waits in a [`FairQueue`]. So the next turn
//! comes soon, and a command of another host that has come meanwhile has its place among those that wait.

use zonda_devices::Drive;
use zonda_target::{FairQueue, Flow};
use zonda_zoned::{Command, CommandId, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull};

use crate::meter::Meter;

/// What is taken from sockets, and given to drives, in one turn of the loop at most, in bytes as [`cost_of`] counts them: a drive in
/// memory copies as much in some 0.1 ms.
pub(crate) const TURN_COST_MAX: u64 = 512 << 10;
/// The least, where that takes longer.
const TURN_COST_MIN: u64 = 16 << 10;
/// A turn that takes longer has the next ones do less. Memory that is touched for the first time, for instance, takes ten times as long
/// as memory that was used before.
const TURN_MAX: Duration = Duration::from_micros(300);
/// The same while several connections use the server: each waits for some turns of the loop.
const SHARED_TURN_MAX: Duration = Duration::from_micros(60);
/// What a command costs beside its data.
pub(crate) const COMMAND_COST: u64 = 4 << 10;

/// Who gives a drive commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitter {
    /// The NVMe/TCP target.
    Target,
    /// The NBD server.
    Nbd,
}

/// A drive and what is known of it.
pub(crate) struct Served {
    pub(crate) drive: Box<dyn Drive>,
    /// The namespace within the drive.
    namespace: NamespaceId,
    geometry: Geometry,
    /// Commands that wait for their turn. As many as queues of hosts and requests of NBD clients hold.
    waiting: FairQueue<Waiting>,
    /// Its turn has come, and the drive had no room for it.
    next: Option<Waiting>,
    /// What may be given to the drive in this turn of the loop, as [`cost_of`] counts it.
    pub(crate) allowance: u64,
    /// Commands that came when the drive was to be closed, or waited then, or whose connection is gone: they fail.
    pub(crate) refused: Vec<(Submitter, CommandId)>,
    /// The drive is keeping reservations.
    pub(crate) is_keeping: bool,
    pub(crate) end: End,
    pub(crate) meter: Meter,
    /// Where its blocks are, in words.
    pub(crate) source: String,
    /// `none` or `profile`.
    pub(crate) timing: &'static str,
}

/// A command that waits.
#[derive(Debug)]
struct Waiting {
    submitter: Submitter,
    flow: Flow,
    command: Command,
}

/// How far a drive is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes commands.
    NotYet,
    /// It takes no commands any more, and ends those that it has.
    Draining,
    /// It was told to close.
    Closing,
}

/// How much is taken from sockets, and given to drives, in one turn of the loop.
#[derive(Debug)]
pub(crate) struct Pace {
    cost: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { cost: TURN_COST_MAX }
    }
}

impl Pace {
    /// A turn has taken so long: how much the next one does, for one connection or several.
    pub(crate) fn next(&mut self, took: Duration, is_shared: bool) -> u64 {
        let most = if is_shared { SHARED_TURN_MAX } else { TURN_MAX };
        let cost = if took > most {
            self.cost / 2
        } else if took.0 < most.0 / 2 {
            self.cost * 2
        } else {
            self.cost
        };
        self.cost = cost.clamp(TURN_COST_MIN, TURN_COST_MAX);
        self.cost
    }
}

impl Served {
    pub(crate) fn new(drive: Box<dyn Drive>, source: String, timing: &'static str) -> Served {
        let namespace = NamespaceId::FIRST;
        let geometry = drive.geometry(namespace).clone();
        Served {
            drive,
            namespace,
            geometry,
            waiting: FairQueue::default(),
            next: None,
            allowance: TURN_COST_MAX,
            refused: Vec::new(),
            is_keeping: false,
            end: End::NotYet,
            meter: Meter::default(),
            source,
            timing,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    /// Commands in the drive, and those that wait for it.
    pub(crate) fn outstanding(&self) -> usize {
        self.meter.outstanding() + self.waiting.len() + usize::from(self.next.is_some())
    }

    pub(crate) fn submit(&mut self, now: Instant, submitter: Submitter, flow: Flow, mut command: Command) {
        if self.end != End::NotYet {
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

    /// Whether commands wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.next.is_some() || !self.waiting.is_empty()
    }

    /// Gives the drive a command; one for which it has no room is the next.
    fn give(&mut self, now: Instant, waiting: Waiting) {
        let Waiting { submitter, flow, mut command } = waiting;
        let id = command.id;
        let given = self.meter.started(now, submitter, &command, self.geometry.block_size_bytes);
        command.id = given;
        if let Err(QueueFull(mut command)) = self.drive.submit(now, command) {
            self.meter.refused(given);
            command.id = id;
            self.next = Some(Waiting { submitter, flow, command });
        }
    }

    /// Gives the drive commands whose turn it is, as many as this turn of the loop allows. Returns whether more could be given in the
    /// next one.
    pub(crate) fn submit_waiting(&mut self, now: Instant) -> bool {
        if let Some(next) = self.next.take() {
            self.give(now, next);
        }
        while self.next.is_none() && self.allowance > 0 {
            let Some((cost, waiting)) = self.waiting.pop() else { return false };
            self.allowance = self.allowance.saturating_sub(cost);
            self.give(now, waiting);
        }
        self.next.is_none() && !self.waiting.is_empty()
    }

    /// Has commands of a flow fail that the drive has not been given.
    pub(crate) fn abandon(&mut self, flow: Flow) {
        let next = self.next.take_if(|next| next.flow == flow);
        let waiting = next.into_iter().chain(self.waiting.remove(flow));
        self.refused.extend(waiting.map(|waiting| (waiting.submitter, waiting.command.id)));
    }

    /// Goes on with closing. Commands that a volume holds for members that are away end with it; any other drive ends its own first.
    pub(crate) fn close_on(&mut self, now: Instant) {
        if self.end == End::NotYet {
            self.end = End::Draining;
            let waiting = self.next.take().into_iter().chain(self.waiting.drain());
            self.refused.extend(waiting.map(|waiting| (waiting.submitter, waiting.command.id)));
        }
        let is_at_rest = self.meter.outstanding() == 0 && !self.is_keeping;
        if self.end == End::Draining && (is_at_rest || self.drive.as_volume().is_some()) {
            self.end = End::Closing;
            self.drive.close(now);
        }
    }
}

/// What a command costs, in bytes: its data, and what any command takes.
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
    fn turns_that_take_long_have_the_next_ones_do_less_and_short_ones_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.next(TURN_MAX, false), TURN_COST_MAX);
        assert_eq!(pace.next(TURN_MAX, true), TURN_COST_MAX / 2);
        assert_eq!(pace.next(SHARED_TURN_MAX, true), TURN_COST_MAX / 2, "neither long nor short");
        assert_eq!(pace.next(Duration::ZERO, true), TURN_COST_MAX);
        let long = TURN_MAX + Duration(1);
        let costs = [0; 6].map(|_| pace.next(long, false) >> 10);
        assert_eq!(costs, [256, 128, 64, 32, 16, 16]);
        let costs = [0; 6].map(|_| pace.next(Duration::ZERO, false) >> 10);
        assert_eq!(costs, [32, 64, 128, 256, 512, 512]);
    }
}
