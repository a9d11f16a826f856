//! The loop of a replay: start entries that may start, run the store, advance to the next
//! completion.

use std::collections::{BTreeSet, VecDeque};

use zonda_files::{Event, FileData, FileStoreDevice, Outcome, RequestId};
use zonda_zoned::{Duration, Instant, ZonedDevice};

use super::order::{Names, OrderPosition};
use super::result::{Record, ReplayResult, SpaceRecord, TraceEnd};
use crate::filetrace::entry::{FileOperation, ThreadIndex, TraceEntry};
use crate::filetrace::limits::LOOKAHEAD_ENTRIES;

pub(super) struct Run<D, I> {
    files: FileStoreDevice<D>,
    start: Instant,
    now: Instant,
    entries: I,
    /// Entries read so far.
    read: u64,
    /// Entries read and not started.
    waiting: usize,
    threads: Vec<Thread>,
    /// Threads in a think time, and its end.
    thinking: BTreeSet<(Instant, ThreadIndex)>,
    names: Names,
    record: Record,
    space: SpaceRecord,
    end: Option<TraceEnd>,
}

#[derive(Default)]
struct Thread {
    waiting: VecDeque<Waiting>,
    in_flight: Option<InFlight>,
}

/// An entry that was read.
struct Waiting {
    number: u64,
    operation: FileOperation,
    positions: [Option<OrderPosition>; 2],
}

/// An entry that was started.
struct InFlight {
    entry: Waiting,
    started: Instant,
}

impl<D: ZonedDevice, I: Iterator<Item = TraceEntry>> Run<D, I> {
    pub(super) fn new(files: FileStoreDevice<D>, start: Instant, sample: Duration, entries: I) -> Run<D, I> {
        Run {
            start,
            now: start,
            entries,
            read: 0,
            waiting: 0,
            threads: Vec::new(),
            thinking: BTreeSet::new(),
            names: Names::default(),
            record: Record::new(start),
            space: SpaceRecord::new(start, sample, files.store().usage()),
            end: None,
            files,
        }
    }

    pub(super) fn finished(mut self) -> (ReplayResult, D) {
        while self.end.is_none() {
            self.read_ahead();
            while self.start_eligible() {
                self.read_ahead();
            }
            self.files.run_once(self.now);
            if self.take_events() || self.end.is_some() {
                continue;
            }
            match self.next_moment() {
                Some(next) => self.advance(next),
                None => self.end = Some(self.standstill()),
            }
        }
        self.space.look(self.now, self.files.store().usage());
        self.drain();
        self.into_result()
    }

    /// Assigns entries to their threads, up to the end of the window.
    fn read_ahead(&mut self) {
        while self.waiting < LOOKAHEAD_ENTRIES {
            let Some(TraceEntry { thread, operation }) = self.entries.next() else { return };
            self.read += 1;
            let positions = self.names.positions(&operation);
            let place = thread.0 as usize;
            if place >= self.threads.len() {
                self.threads.resize_with(place + 1, Thread::default);
            }
            self.threads[place].waiting.push_back(Waiting { number: self.read, operation, positions });
            self.waiting += 1;
        }
    }

    /// Starts the next entry of each idle thread, if its order allows. Returns whether one of them
    /// has ended immediately, so that others may start now.
    fn start_eligible(&mut self) -> bool {
        let mut has_ended = false;
        for place in 0..self.threads.len() {
            while self.end.is_none() && self.threads[place].in_flight.is_none() {
                let thread = &mut self.threads[place];
                let Some(entry) = thread.waiting.front() else { break };
                if !entry.positions.iter().flatten().all(|position| self.names.may_start(position)) {
                    break;
                }
                let entry = thread.waiting.pop_front().expect("the queue is not empty");
                self.waiting -= 1;
                if !self.start(ThreadIndex(place as u32), entry) {
                    break;
                }
                has_ended = true;
            }
        }
        has_ended
    }

    /// Submits an entry to the store. Returns whether it has ended immediately.
    fn start(&mut self, thread: ThreadIndex, entry: Waiting) -> bool {
        let request = RequestId(u64::from(thread.0));
        let file = entry.positions[0].and_then(|position| self.names.file(position.name));
        let store = self.files.store_mut();
        match (&entry.operation, file) {
            (FileOperation::Create { file, lifetime }, _) => match store.create(file, *lifetime) {
                Ok(id) => {
                    let position = entry.positions[0].expect("a create names a file");
                    self.names.set_file(position.name, Some(id));
                    self.end_entry(&entry, self.now, 0);
                    return true;
                }
                Err(error) => {
                    self.end = Some(TraceEnd::of(entry.number, &error));
                    return false;
                }
            },
            (FileOperation::Think { time }, _) => {
                self.thinking.insert((self.now + *time, thread));
            }
            (FileOperation::Append { bytes, .. }, Some(file)) => {
                store.append(request, file, FileData::Length(*bytes));
            }
            (FileOperation::Sync { .. }, Some(file)) => store.sync(request, file),
            (FileOperation::Close { .. }, Some(file)) => store.close(request, file),
            (FileOperation::Read { offset_bytes, bytes, .. }, Some(file)) => {
                let bytes = u32::try_from(*bytes).expect("the trace's limit on a read is below this");
                store.read(request, file, *offset_bytes, bytes);
            }
            (FileOperation::Delete { file }, Some(_)) => store.delete(request, file),
            (FileOperation::Rename { file, to }, Some(_)) => store.rename(request, file, to),
            (operation, None) => {
                let message =
                    format!("cannot {} a file that does not exist: the trace was not checked", operation.kind());
                self.end = Some(TraceEnd::Failed { entry: entry.number, message });
                return false;
            }
        }
        self.threads[thread.0 as usize].in_flight = Some(InFlight { entry, started: self.now });
        false
    }

    /// Processes the store's events. Returns whether an entry has ended.
    fn take_events(&mut self) -> bool {
        let mut has_ended = false;
        while let Some(event) = self.files.poll_event() {
            match event {
                Event::Ready => {}
                Event::Failed(error) => {
                    let entry = self.first_in_flight();
                    self.end.get_or_insert_with(|| TraceEnd::of(entry, &error));
                }
                Event::Done { request, result } => {
                    let thread = &mut self.threads[request.0 as usize];
                    let InFlight { entry, started } = thread.in_flight.take().expect("each request was submitted once");
                    match result {
                        Ok(outcome) => self.end_entry(&entry, started, bytes_of(&entry.operation, &outcome)),
                        Err(error) => {
                            self.end.get_or_insert_with(|| TraceEnd::of(entry.number, &error));
                        }
                    }
                    has_ended = true;
                }
            }
        }
        has_ended
    }

    fn end_entry(&mut self, entry: &Waiting, started: Instant, bytes: u64) {
        match (&entry.operation, entry.positions) {
            (FileOperation::Delete { .. }, [Some(position), _]) => self.names.set_file(position.name, None),
            (FileOperation::Rename { .. }, [Some(from), Some(to)]) => {
                let file = self.names.file(from.name);
                self.names.set_file(from.name, None);
                self.names.set_file(to.name, file);
            }
            _ => {}
        }
        entry.positions.iter().flatten().for_each(|position| self.names.end(position));
        self.record.end(entry.operation.kind(), started, self.now, bytes);
    }

    /// The time of the next event.
    fn next_moment(&self) -> Option<Instant> {
        let timer = self.thinking.first().map(|(until, _)| *until);
        let next = [timer, self.files.next_timeout().filter(|_| self.is_at_work())];
        next.into_iter().flatten().min()
    }

    /// Whether a thread waits for the store.
    fn is_at_work(&self) -> bool {
        self.threads.iter().any(|thread| thread.in_flight.is_some())
    }

    fn advance(&mut self, next: Instant) {
        if self.space.is_due(next) {
            self.space.look(self.now, self.files.store().usage());
        }
        self.now = self.now.max(next);
        while let Some((until, thread)) = self.thinking.first().copied().filter(|(until, _)| *until <= self.now) {
            self.thinking.remove(&(until, thread));
            let in_flight =
                self.threads[thread.0 as usize].in_flight.take().expect("a thinking thread has an entry in progress");
            self.end_entry(&in_flight.entry, in_flight.started, 0);
        }
    }

    /// No event will follow: the trace is complete, or an entry waits forever.
    fn standstill(&self) -> TraceEnd {
        match self.is_at_work() || self.waiting > 0 {
            true => TraceEnd::Stalled { entry: self.first_in_flight() },
            false => TraceEnd::Complete,
        }
    }

    fn first_in_flight(&self) -> u64 {
        let numbers = self.threads.iter().filter_map(|thread| {
            let in_flight = thread.in_flight.as_ref().map(|in_flight| in_flight.entry.number);
            in_flight.or_else(|| thread.waiting.front().map(|entry| entry.number))
        });
        numbers.min().unwrap_or(self.read)
    }

    /// Waits for padding and resets in the background, so that the device's counters are complete.
    fn drain(&mut self) {
        while let Some(next) = self.files.next_timeout() {
            self.now = self.now.max(next);
            self.files.run_once(self.now);
            while self.files.poll_event().is_some() {}
        }
    }

    fn into_result(self) -> (ReplayResult, D) {
        let (live_bytes_mean, dead_bytes_mean) = self.space.means();
        let result = ReplayResult {
            end: self.end.expect("the loop sets it"),
            entries: self.record.entries,
            elapsed_ns: self.record.last_end.since(self.start).0,
            drained_ns: self.now.since(self.start).0,
            kinds: self.record.kinds(),
            usage: self.files.store().usage(),
            live_bytes_mean,
            dead_bytes_mean,
        };
        let (_, device) = self.files.into_parts();
        (result, device)
    }
}

/// The bytes that an operation has transferred.
fn bytes_of(operation: &FileOperation, outcome: &Outcome) -> u64 {
    match (operation, outcome) {
        (FileOperation::Read { .. }, Outcome::Length(bytes)) => *bytes,
        (FileOperation::Read { .. }, Outcome::Data(data)) => data.len() as u64,
        (FileOperation::Append { bytes, .. }, _) => *bytes,
        _ => 0,
    }
}
