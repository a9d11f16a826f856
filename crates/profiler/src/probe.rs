//! [`Probe`]: one measurement. Reads load some zones, as long as the target zone is read.
//!
//! The target has one read outstanding, as an ordinary reader. Where it shares a die or a channel
//! with a loaded zone, its reads wait for those of that zone; elsewhere they do not, as long as what
//! all zones share (the link to the host) is not full.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Duration, Geometry, Instant, NamespaceId, Operation, Prng, Status,
    ZoneIndex,
};

use crate::limits::COMMAND_TIMEOUT;

/// Which zones, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The zone whose reads are measured.
    pub(crate) target: ZoneIndex,
    /// The loaded zones.
    pub(crate) load: Vec<ZoneIndex>,
    pub(crate) shape: Shape,
}

/// How the zones of a probe are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Blocks of each read.
    pub(crate) blocks: Blocks,
    /// Reads of the target.
    pub(crate) target_reads: u32,
    /// Outstanding reads of the target.
    pub(crate) target_depth: u32,
    /// Outstanding reads of each loaded zone.
    pub(crate) load_depth: u32,
}

/// A successful probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The sum of the target's latencies without the slowest quarter: a single delayed read does not
    /// change it.
    pub(crate) latency: Duration,
    /// Until the last read of the target has completed.
    pub(crate) whole: Duration,
    /// Reads of all zones that have completed in that time.
    pub(crate) reads: u32,
}

/// A probe that ended otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeError {
    /// The zone whose command failed.
    pub(crate) zone: ZoneIndex,
    /// The status; `None` if the command did not complete in time.
    pub(crate) status: Option<Status>,
}

/// Carries out one probe at a time.
#[derive(Debug)]
pub(crate) struct ProbeRunner {
    namespace: NamespaceId,
    prng: Prng,
    next_id: u64,
    target: ZoneIndex,
    shape: Shape,
    /// First block of each zone of the probe, and its blocks with data.
    places: BTreeMap<ZoneIndex, (zonda_zoned::Lba, Blocks)>,
    /// Zones of reads that are not yet submitted, and whether it is a read of the target.
    queue: VecDeque<(ZoneIndex, bool)>,
    in_flight: BTreeMap<CommandId, Flight>,
    /// The device has refused a command, and nothing has completed since.
    is_refused: bool,
    is_active: bool,
    /// Reads of the target that were not yet queued.
    target_left: u32,
    submitted_at: Option<Instant>,
    latencies: Vec<Duration>,
    reads: u32,
    result: Option<Result<Reading, ProbeError>>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    zone: ZoneIndex,
    is_target: bool,
    submitted_at: Instant,
}

impl ProbeRunner {
    pub(crate) fn new(namespace: NamespaceId, prng: Prng) -> ProbeRunner {
        ProbeRunner {
            namespace,
            prng,
            next_id: 0,
            target: ZoneIndex(0),
            shape: Shape { blocks: Blocks(1), target_reads: 1, target_depth: 1, load_depth: 1 },
            places: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            is_refused: false,
            is_active: false,
            target_left: 0,
            submitted_at: None,
            latencies: Vec::new(),
            reads: 0,
            result: None,
        }
    }

    /// Whether a probe is in progress.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Begins a probe; `written` are the blocks of a zone that have data.
    pub(crate) fn start(&mut self, probe: &Probe, geometry: &Geometry, written: impl Fn(ZoneIndex) -> Blocks) {
        assert!(!self.is_active, "one probe at a time");
        (self.is_active, self.target, self.shape) = (true, probe.target, probe.shape);
        (self.submitted_at, self.reads, self.result) = (None, 0, None);
        self.latencies.clear();
        let zones = probe.load.iter().chain([&probe.target]);
        self.places = zones.map(|zone| (*zone, (geometry.zone_start(*zone), written(*zone)))).collect();
        for _ in 0..probe.shape.load_depth {
            self.queue.extend(probe.load.iter().map(|zone| (*zone, false)));
        }
        let first = probe.shape.target_depth.min(probe.shape.target_reads);
        self.queue.extend((0..first).map(|_| (probe.target, true)));
        self.target_left = probe.shape.target_reads - first;
    }

    /// The next command to submit.
    pub(crate) fn poll_command(&mut self, now: Instant) -> Option<Command> {
        if self.is_refused {
            return None;
        }
        let (zone, is_target) = self.queue.pop_front()?;
        let id = self.new_id();
        self.submitted_at.get_or_insert(now);
        self.in_flight.insert(id, Flight { zone, is_target, submitted_at: now });
        let (start, written) = self.places[&zone];
        let blocks = self.shape.blocks;
        // A random place, aligned to the size of reads.
        let place = self.prng.below((written.0 / blocks.0).max(1));
        let read = Operation::Read { start: start + Blocks(place * blocks.0), blocks };
        Some(Command::new(id, self.namespace, read).in_background())
    }

    /// An identifier that no other command of the machine has.
    pub(crate) fn new_id(&mut self) -> CommandId {
        self.next_id += 1;
        CommandId(self.next_id)
    }

    /// The device has refused the command: the zone is read again after the next completion.
    pub(crate) fn on_refused(&mut self, command: &Command) {
        let Flight { zone, is_target, .. } =
            self.in_flight.remove(&command.id).expect("only what was submitted is refused");
        self.queue.push_front((zone, is_target));
        self.is_refused = true;
    }

    /// A completion. Those of commands that timed out are ignored.
    pub(crate) fn on_completion(&mut self, now: Instant, completion: &Completion) {
        let Some(Flight { zone, is_target, submitted_at }) = self.in_flight.remove(&completion.id) else { return };
        self.is_refused = false;
        if self.result.is_some() {
            return;
        }
        if !completion.status.is_success() {
            self.end(Err(ProbeError { zone, status: Some(completion.status) }));
            return;
        }
        self.reads += 1;
        if !is_target {
            self.queue.push_back((zone, false));
            return;
        }
        self.latencies.push(now.since(submitted_at));
        if self.target_left > 0 {
            self.target_left -= 1;
            self.queue.push_front((zone, true));
        } else if self.latencies.len() == self.shape.target_reads as usize {
            self.latencies.sort_unstable();
            let counted = self.latencies.len() - self.latencies.len() / 4;
            let latency = self.latencies[..counted].iter().fold(Duration::ZERO, |sum, latency| sum + *latency);
            let whole = now.since(self.submitted_at.expect("the target was read"));
            self.end(Ok(Reading { latency, whole, reads: self.reads }));
        }
    }

    /// The result is known; what is in flight completes before the next probe.
    fn end(&mut self, result: Result<Reading, ProbeError>) {
        self.queue.clear();
        self.result.get_or_insert(result);
    }

    /// The result, once all commands have completed or one has timed out.
    pub(crate) fn take_result(&mut self, now: Instant) -> Option<Result<Reading, ProbeError>> {
        if !self.is_active {
            return None;
        }
        let is_late = self.deadline().is_some_and(|deadline| now >= deadline);
        if is_late && (self.result.is_none() || !self.in_flight.is_empty()) {
            // The oldest command is the one that has not completed in time.
            let oldest = self.in_flight.values().min_by_key(|flight| flight.submitted_at);
            let zone = oldest.map_or(self.target, |flight| flight.zone);
            self.result = Some(Err(ProbeError { zone, status: None }));
            self.queue.clear();
            self.in_flight.clear();
        }
        if self.result.is_none() || !self.in_flight.is_empty() {
            return None;
        }
        (self.is_active, self.is_refused) = (false, false);
        self.result.take()
    }

    /// When the probe fails if it is not over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.submitted_at.filter(|_| self.is_active).map(|at| at + COMMAND_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> ProbeRunner {
        let mut runner = ProbeRunner::new(NamespaceId::FIRST, Prng::new(1));
        let shape = Shape { blocks: Blocks(2), target_reads: 4, target_depth: 1, load_depth: 2 };
        let probe = Probe { target: ZoneIndex(3), load: vec![ZoneIndex(0), ZoneIndex(1)], shape };
        runner.start(&probe, &Geometry::tiny(), |_| Blocks(12));
        runner
    }

    fn submit_all(runner: &mut ProbeRunner, now: Instant) -> Vec<Command> {
        std::iter::from_fn(|| runner.poll_command(now)).collect()
    }

    fn complete(runner: &mut ProbeRunner, at: u64, command: &Command, status: Status) {
        runner.on_completion(Instant(at), &Completion::of(command.id, status));
    }

    fn zone_of(command: &Command) -> u64 {
        match command.operation {
            Operation::Read { start, blocks } => {
                assert!(start.0 % 16 + blocks.0 <= 12 && blocks == Blocks(2), "{command:?} is within the data");
                start.0 / 16
            }
            _ => panic!("{command:?} is not a read"),
        }
    }

    #[test]
    fn loaded_zones_are_read_again_until_the_target_is_done() {
        let mut runner = started();
        let first = submit_all(&mut runner, Instant(7));
        assert_eq!(first.iter().map(zone_of).collect::<Vec<_>>(), [0, 1, 0, 1, 3]);
        complete(&mut runner, 20, &first[1], Status::Success);
        complete(&mut runner, 20, &first[4], Status::Success);
        let second = submit_all(&mut runner, Instant(20));
        assert_eq!(second.iter().map(zone_of).collect::<Vec<_>>(), [3, 1], "the target does not wait for the load");
    }

    /// Completes the reads of the target after these times, then all others.
    fn reading(mut runner: ProbeRunner, latencies: [u64; 4]) -> Reading {
        let (mut now, mut others) = (100, Vec::new());
        for latency in latencies {
            let commands = submit_all(&mut runner, Instant(now));
            let (target, load): (Vec<_>, Vec<_>) = commands.into_iter().partition(|command| zone_of(command) == 3);
            others.extend(load);
            now += latency;
            complete(&mut runner, now, &target[0], Status::Success);
        }
        assert_eq!(runner.take_result(Instant(now)), None, "the load is in flight");
        others.iter().for_each(|command| complete(&mut runner, now + 5, command, Status::Success));
        runner.take_result(Instant(now + 5)).expect("all have completed").expect("without errors")
    }

    #[test]
    fn the_latency_ignores_the_slowest_read_of_four() {
        let expected = Reading { latency: Duration(60), whole: Duration(1060), reads: 4 };
        assert_eq!(reading(started(), [10, 1000, 20, 30]), expected);
    }

    #[test]
    fn an_error_ends_the_probe_after_what_is_in_flight() {
        let mut runner = started();
        let first = runner.poll_command(Instant(0)).unwrap();
        let second = runner.poll_command(Instant(0)).unwrap();
        complete(&mut runner, 5, &first, Status::UnrecoveredReadError);
        assert_eq!((runner.poll_command(Instant(5)), runner.take_result(Instant(5))), (None, None));
        complete(&mut runner, 9, &second, Status::Success);
        let error = ProbeError { zone: ZoneIndex(0), status: Some(Status::UnrecoveredReadError) };
        assert_eq!(runner.take_result(Instant(9)), Some(Err(error)));
    }

    #[test]
    fn a_command_that_does_not_complete_fails_the_probe_and_its_late_completion_is_ignored() {
        let mut runner = started();
        let commands = submit_all(&mut runner, Instant(0));
        let deadline = runner.deadline().unwrap();
        complete(&mut runner, 5, &commands[0], Status::Success);
        assert_eq!(runner.take_result(Instant(deadline.0 - 1)), None);
        assert_eq!(runner.take_result(deadline), Some(Err(ProbeError { zone: ZoneIndex(1), status: None })));
        complete(&mut runner, deadline.0 + 1, &commands[1], Status::Success);
        assert!(!runner.is_active());
    }

    #[test]
    fn a_refused_read_is_submitted_after_a_completion() {
        let mut runner = started();
        let first = runner.poll_command(Instant(0)).unwrap();
        let second = runner.poll_command(Instant(0)).unwrap();
        runner.on_refused(&second);
        assert_eq!(runner.poll_command(Instant(0)), None);
        complete(&mut runner, 3, &first, Status::Success);
        assert_eq!(zone_of(&runner.poll_command(Instant(3)).unwrap()), zone_of(&second));
    }
}
