//! [`Trace`]: records commands and completions.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Instant, Lba, NamespaceId, Namespaces,
    Operation, Outcome, Payload, QueueFull, Status, ZoneTarget, ZonedDevice, fingerprint,
};

use crate::OperationKind;
use crate::limits::{TRACE_EVENTS_DEFAULT, TRACE_OUTSTANDING_MAX};

/// Records every command and completion: the last ones as events, all of them in counters and in a
/// running hash. Use it to see the commands that a layer submits, and to compare two runs: the same
/// seed gives the same hash.
///
/// It does not delay or change anything. The text of an event is one line that begins with the
/// instant, so that traces can be sorted and compared.
pub struct Trace<D> {
    inner: D,
    events: VecDeque<TraceEvent>,
    capacity: usize,
    sink: Option<Sink>,
    in_flight: BTreeMap<CommandId, (Instant, OperationKind)>,
    counters: [TraceCounters; OperationKind::ALL.len()],
    hash: u64,
}

/// A callback for each event.
type Sink = Box<dyn FnMut(&TraceEvent)>;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The time of the event.
    pub at: Instant,
    /// The command.
    pub id: CommandId,
    /// The kind of its operation.
    pub operation: OperationKind,
    /// The kind of the event.
    pub kind: TraceKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// The device accepted the command.
    Submitted {
        /// The addressed namespace.
        namespace: NamespaceId,
        /// The addressed location in it.
        target: TraceTarget,
        /// Blocks read or written; 0 for other commands.
        blocks: Blocks,
    },
    /// The device refused the command because its queue was full.
    Refused,
    /// The command completed.
    Completed {
        /// The status.
        status: Status,
        /// The LBA of an append.
        appended: Option<Lba>,
        /// The time since its submission.
        latency: Duration,
    },
}

/// The location in a namespace that a command addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceTarget {
    /// None.
    Nowhere,
    /// The first block; of a deallocation, the first block of its first range.
    Lba(Lba),
    /// Select All.
    AllZones,
}

/// Counters of the commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounters {
    /// Commands accepted by the device.
    pub submitted: u64,
    /// Commands refused because the queue was full.
    pub refused: u64,
    /// Completed commands, with any status.
    pub completed: u64,
    /// Commands completed with an error.
    pub failed: u64,
    /// Blocks of the accepted commands.
    pub blocks: u64,
}

impl<D: ZonedDevice> Trace<D> {
    /// A trace that keeps the last [`TRACE_EVENTS_DEFAULT`] events.
    #[must_use]
    pub fn new(inner: D) -> Trace<D> {
        Trace::with_capacity(inner, TRACE_EVENTS_DEFAULT)
    }

    /// A trace that keeps the last `capacity` events; 0 keeps none, and leaves counters, hash and
    /// sink.
    #[must_use]
    pub fn with_capacity(inner: D, capacity: usize) -> Trace<D> {
        Trace {
            inner,
            events: VecDeque::new(),
            capacity,
            sink: None,
            in_flight: BTreeMap::new(),
            counters: [TraceCounters::default(); OperationKind::ALL.len()],
            hash: 0,
        }
    }

    /// Calls `sink` with each event as it happens.
    #[must_use]
    pub fn with_sink(self, sink: Box<dyn FnMut(&TraceEvent)>) -> Trace<D> {
        Trace { sink: Some(sink), ..self }
    }

    /// The last events, the oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &TraceEvent> {
        self.events.iter()
    }

    /// Counters of the commands of one kind.
    #[must_use]
    pub fn counters(&self, kind: OperationKind) -> TraceCounters {
        self.counters[kind as usize]
    }

    /// A hash of all events so far, their order, and the contents that were written and read. Equal
    /// for equal runs; equal for different runs with a probability of 2^-64.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The inner device.
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
    /// here.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn record(&mut self, event: TraceEvent) {
        self.mix(event.at.0);
        self.mix(event.id.0);
        self.mix(event.operation as u64);
        match event.kind {
            TraceKind::Submitted { namespace, target, blocks } => {
                self.mix(1);
                self.mix(u64::from(namespace.0));
                match target {
                    TraceTarget::Nowhere => self.mix(0),
                    TraceTarget::AllZones => self.mix(1),
                    TraceTarget::Lba(lba) => {
                        self.mix(2);
                        self.mix(lba.0);
                    }
                }
                self.mix(blocks.0);
            }
            TraceKind::Refused => self.mix(2),
            TraceKind::Completed { status, appended, latency } => {
                self.mix(3);
                self.mix(status as u64);
                self.mix(appended.map_or(u64::MAX, |lba| lba.0));
                self.mix(latency.0);
            }
        }
        if let Some(sink) = &mut self.sink {
            sink(&event);
        }
        if self.capacity == 0 {
            return;
        }
        if self.events.len() == self.capacity {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn mix(&mut self, word: u64) {
        self.hash = mixed(self.hash, word);
    }
}

impl<D: ZonedDevice> ZonedDevice for Trace<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.in_flight.len() >= TRACE_OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let (id, namespace) = (command.id, command.namespace);
        let operation = OperationKind::of(&command.operation);
        let (target, blocks) = (target_of(&command.operation), command.operation.blocks());
        let contents = match &command.operation {
            Operation::Write { payload, .. } | Operation::Append { payload, .. } => contents_of(payload),
            _ => 0,
        };
        let counters = &mut self.counters[operation as usize];
        if let Err(refused) = self.inner.submit(now, command) {
            counters.refused += 1;
            self.record(TraceEvent { at: now, id, operation, kind: TraceKind::Refused });
            return Err(refused);
        }
        counters.submitted += 1;
        counters.blocks = counters.blocks.wrapping_add(blocks.0);
        self.mix(contents);
        self.record(TraceEvent { at: now, id, operation, kind: TraceKind::Submitted { namespace, target, blocks } });
        let previous = self.in_flight.insert(id, (now, operation));
        assert!(previous.is_none(), "command {id} is already in flight");
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.inner.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            let Completion { id, status, ref outcome } = completion;
            let (taken, operation) =
                self.in_flight.remove(&id).unwrap_or_else(|| panic!("command {id} completed but was not in flight"));
            let counters = &mut self.counters[operation as usize];
            counters.completed += 1;
            counters.failed += u64::from(!status.is_success());
            let mut appended = None;
            match outcome {
                Outcome::None => {}
                Outcome::Appended(lba) => appended = Some(*lba),
                Outcome::Data(payload) => self.mix(contents_of(payload)),
                Outcome::Report(report) => {
                    self.mix(report.matching_zones);
                    for zone in &report.zones {
                        self.mix(zone.start.0);
                        self.mix(u64::from(zone.state.code()) << 8 | u64::from(zone.attributes.code()));
                        self.mix(zone.write_pointer.map_or(u64::MAX, |lba| lba.0));
                        self.mix(fingerprint(zone.extension.as_deref().unwrap_or_default(), &[]));
                    }
                }
                Outcome::ChangedZones(list) => {
                    self.mix(u64::from(list.overflowed));
                    for zone in &list.zones {
                        self.mix(u64::from(zone.0));
                    }
                }
            }
            let kind = TraceKind::Completed { status, appended, latency: now.since(taken) };
            self.record(TraceEvent { at: now, id, operation, kind });
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

impl fmt::Display for TraceEvent {
    /// `00000000.000001500 submitted #7 write lba 16 blocks 4`: the instant in seconds, padded so
    /// that lines sort by time as text; latencies in nanoseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceEvent { at, id, operation, kind } = self;
        write!(f, "{:08}.{:09} ", at.0 / 1_000_000_000, at.0 % 1_000_000_000)?;
        match kind {
            TraceKind::Submitted { namespace, target, blocks } => {
                write!(f, "submitted #{id} {operation}")?;
                if *namespace != NamespaceId::FIRST {
                    write!(f, " namespace {namespace}")?;
                }
                match target {
                    TraceTarget::Nowhere => {}
                    TraceTarget::Lba(lba) => write!(f, " lba {lba}")?,
                    TraceTarget::AllZones => write!(f, " all zones")?,
                }
                if *blocks > Blocks::ZERO {
                    write!(f, " blocks {blocks}")?;
                }
                Ok(())
            }
            TraceKind::Refused => write!(f, "refused   #{id} {operation}"),
            TraceKind::Completed { status, appended, latency } => {
                write!(f, "completed #{id} {operation}: {status}")?;
                if let Some(lba) = appended {
                    write!(f, " at lba {lba}")?;
                }
                write!(f, " after {} ns", latency.0)
            }
        }
    }
}

fn target_of(operation: &Operation) -> TraceTarget {
    match operation {
        Operation::Read { start, .. }
        | Operation::Write { start, .. }
        | Operation::Append { zone_start: start, .. }
        | Operation::WriteZeroes { start, .. }
        | Operation::ReportZones { start, .. }
        | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => TraceTarget::Lba(*start),
        Operation::Deallocate { ranges } => {
            ranges.first().map_or(TraceTarget::Nowhere, |range| TraceTarget::Lba(range.start))
        }
        Operation::ManageZones { target: ZoneTarget::All, .. } => TraceTarget::AllZones,
        Operation::Flush | Operation::ReadChangedZones => TraceTarget::Nowhere,
    }
}

fn contents_of(payload: &Payload) -> u64 {
    match payload {
        Payload::None => 0,
        Payload::Fingerprints(prints) => prints.iter().fold(1, |hash, &print| mixed(hash, print)),
        Payload::Bytes(buffer) => mixed(2, fingerprint(&buffer.data, &buffer.metadata)),
    }
}

/// Adds a word to a hash: the order matters.
fn mixed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use zonda_zoned::{Prng, ZoneAction};

    use super::*;
    use crate::testing::{Narrow, command, poll_all, read, reference, run_one, write};
    use crate::{Delay, DelayRule, Matcher, When};

    fn lines<D: ZonedDevice>(trace: &Trace<D>) -> Vec<String> {
        trace.events().map(TraceEvent::to_string).collect()
    }

    #[test]
    fn the_lines_of_a_trace_sort_by_time() {
        let rule = DelayRule {
            matches: Matcher::default(),
            when: When::Always,
            fixed: Duration::from_micros(1_500),
            spread: Duration::ZERO,
        };
        let mut device = Trace::new(Narrow::new(Delay::new(reference(), vec![rule], Prng::new(1)), 2));
        let start = Instant(12_000_000_000);
        let append = Operation::Append { zone_start: Lba(16), blocks: Blocks(2), payload: Payload::None };
        let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
        device.submit(start, write(1, 0, 4)).unwrap();
        device.submit(start, command(2, append)).unwrap();
        device.submit(start, read(3, 0, 1)).unwrap_err();
        device.poll(start, &mut CompletionQueue::new());
        let done = device.next_timeout().unwrap();
        device.poll(done, &mut CompletionQueue::new());
        device.submit(done, write(4, 9, 1)).unwrap();
        device.submit(done, command(5, reset)).unwrap();
        device.poll(done, &mut CompletionQueue::new());
        device.poll(device.next_timeout().unwrap(), &mut CompletionQueue::new());
        let lines = lines(&device);
        assert_eq!(
            lines.join("\n"),
            "\
00000012.000000000 submitted #1 write lba 0 blocks 4
00000012.000000000 submitted #2 append lba 16 blocks 2
00000012.000000000 refused   #3 read
00000012.001500000 completed #1 write: success after 1500000 ns
00000012.001500000 completed #2 append: success at lba 16 after 1500000 ns
00000012.001500000 submitted #4 write lba 9 blocks 1
00000012.001500000 submitted #5 reset all zones
00000012.003000000 completed #4 write: zone invalid write after 1500000 ns
00000012.003000000 completed #5 reset: success after 1500000 ns"
        );
        assert!(lines.is_sorted_by_key(|line| &line[..18]));
    }

    #[test]
    fn counters_and_hash_continue_when_the_ring_is_full() {
        let mut device = Trace::with_capacity(reference(), 3);
        for id in 0..6 {
            run_one(&mut device, write(id, id * 2, 2));
        }
        run_one(&mut device, write(6, 11, 1));
        assert_eq!(device.events().len(), 3);
        assert_eq!(device.events().next().map(|event| event.id), Some(CommandId(5)), "the oldest of the last three");
        let expected = TraceCounters { submitted: 7, refused: 0, completed: 7, failed: 1, blocks: 13 };
        assert_eq!(device.counters(OperationKind::Write), expected);
        assert_eq!(device.counters(OperationKind::Read), TraceCounters::default());
    }

    #[test]
    fn the_hash_depends_on_order_time_and_contents() {
        let hash_of = |commands: &[Command], at: Instant| {
            let mut device = Trace::with_capacity(reference(), 0);
            for command in commands {
                device.submit(at, command.clone()).unwrap();
            }
            poll_all(&mut device, at);
            device.hash()
        };
        let run = [write(1, 0, 1), write(2, 16, 1), read(3, 0, 1)];
        let hash = hash_of(&run, Instant::ZERO);
        assert_eq!(hash_of(&run, Instant::ZERO), hash);
        assert_ne!(hash_of(&run, Instant(1)), hash);
        let [first, second, third] = run.clone();
        assert_ne!(hash_of(&[second, first, third], Instant::ZERO), hash);
        let [mut first, second, third] = run;
        let Operation::Write { payload, .. } = &mut first.operation else { unreachable!("it is a write") };
        *payload = Payload::None;
        assert_ne!(hash_of(&[first, second, third], Instant::ZERO), hash);
    }

    #[test]
    fn a_sink_sees_every_event_as_it_happens() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let writer = Rc::clone(&seen);
        let sink = Box::new(move |event: &TraceEvent| writer.borrow_mut().push(*event));
        let mut device = Trace::with_capacity(reference(), 1).with_sink(sink);
        run_one(&mut device, read(1, 0, 1));
        assert_eq!(seen.borrow().len(), 2);
        assert_eq!(seen.borrow().last(), device.events().last());
    }

    #[test]
    fn a_refused_command_is_returned() {
        let mut device = Trace::new(Narrow::new(reference(), 0));
        assert_eq!(device.submit(Instant::ZERO, write(1, 0, 4)), Err(QueueFull(write(1, 0, 4))));
        assert_eq!(device.counters(OperationKind::Write).refused, 1);
        assert_eq!(device.next_timeout(), None);
    }
}
