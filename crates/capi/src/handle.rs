//! [`Namespace`]: what stands behind a handle.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use slab::Slab;
use zonda_zoned::{
    Blocks, Completion, CompletionQueue, Geometry, Lba, Operation, Outcome, ReportFilter, ZoneDescriptor,
};

use crate::command::{Pending, Request};
use crate::errno::{errno_of, remedy_of, text_of};
use crate::failure::Failure;
use crate::layout::RawResult;
use crate::link::Link;

/// How long commands under way may take to end when the namespace is closed.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// How long to wait before looking again whether a device has let go of memory, or has room.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Zone descriptors asked for at a time; each has 64 bytes (Zoned Namespace Command Set 1.1, Figure 37).
const DESCRIPTORS_AT_A_TIME: u32 = 4096;
const DESCRIPTOR_BYTES: u64 = 64;

/// A namespace that is open.
pub(crate) struct Namespace {
    link: Box<dyn Link>,
    geometry: Geometry,
    /// Every command whose result was not taken; the key is its token.
    commands: Slab<Entry>,
    completions: CompletionQueue,
    /// Ended, but the device still has the caller's memory.
    held: Vec<Completion>,
    /// Ended and ready, by token.
    ready: VecDeque<usize>,
    /// Commands that may be under way.
    room: usize,
    /// Something was submitted and not sent.
    is_unsent: bool,
    broken: Option<Failure>,
    process: u32,
}

enum Entry {
    /// Under way; its result goes to `zonda_wait`, or to who waits for this token.
    Pending(Pending),
    /// A report of zones; its completion is kept as it is.
    Report,
    Ended(RawResult),
    Reported(Completion),
}

/// No way to a namespace any more.
struct Gone;

impl Namespace {
    pub(crate) fn new(link: Box<dyn Link>, geometry: Geometry, room: usize) -> Namespace {
        Namespace {
            link,
            geometry,
            commands: Slab::new(),
            completions: CompletionQueue::new(),
            held: Vec::new(),
            ready: VecDeque::new(),
            room,
            is_unsent: false,
            broken: None,
            process: std::process::id(),
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the caller may use it now.
    ///
    /// # Errors
    /// From another thread than its own, after `fork`, and after it has failed.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.link.check()?;
        match &self.broken {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Whether this thread may use it.
    pub(crate) fn check_thread(&self) -> Result<(), Failure> {
        self.link.check()
    }

    /// Whether this is the process that opened it.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Failure::new(
            Errno::PERM,
            "the namespace was opened before the process was forked",
            "open it after fork(); fio: thread=1",
        ))
    }

    /// Commands whose results were not taken.
    pub(crate) fn outstanding(&self) -> usize {
        self.commands.len()
    }

    /// Takes a command.
    pub(crate) fn submit(&mut self, request: Request) -> Result<(), Failure> {
        let (operation, pending) = request.into_operation(&self.geometry)?;
        if self.commands.len() >= self.room {
            return Err(full());
        }
        let token = self.commands.insert(Entry::Pending(pending));
        match self.link.submit(token as u64, operation) {
            Ok(()) => {
                self.is_unsent = true;
                Ok(())
            }
            Err(_) => {
                self.commands.remove(token);
                Err(full())
            }
        }
    }

    /// Sends what was submitted.
    pub(crate) fn kick(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_unsent) {
            self.check_process()?;
            let result = self.link.kick();
            return self.noted(result);
        }
        Ok(())
    }

    /// Waits for `min` results or `deadline` (`None`: for ever), and gives out at most `max`.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        max: usize,
        deadline: Option<Instant>,
        mut give: impl FnMut(RawResult),
    ) -> Result<usize, Failure> {
        self.harvest()?;
        let min = min.min(max).min(self.commands.len());
        if min == 0 && self.ready.is_empty() && !self.commands.is_empty() {
            // Whoever only looks must let the device go on, too.
            self.sleep(Some(Instant::now()))?;
        }
        while self.ready.len() < min {
            self.sleep(deadline)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        self.kick()?;
        let mut count = 0;
        while count < max {
            let Some(token) = self.ready.pop_front() else { break };
            let Entry::Ended(result) = self.commands.remove(token) else { unreachable!("a ready command has ended") };
            give(result);
            count += 1;
        }
        Ok(count)
    }

    /// Carries one command out. Others may be under way.
    pub(crate) fn execute(&mut self, request: Request) -> Result<RawResult, Failure> {
        let (operation, pending) = request.into_operation(&self.geometry)?;
        match self.carry_out(Entry::Pending(pending), operation)? {
            Entry::Ended(result) => Ok(result),
            _ => unreachable!("a pending command ends with a result"),
        }
    }

    /// As `execute`, with the result as a failure where it is one.
    pub(crate) fn execute_well(&mut self, request: Request) -> Result<RawResult, Failure> {
        let opcode = request.opcode;
        let lba = request.lba;
        let result = self.execute(request)?;
        match result.error {
            0 => Ok(result),
            error => Err(Failure::new(
                Errno::from_raw_os_error(error),
                format!("{opcode:?} at block {lba}: {}", text_of(result.status).to_string_lossy()),
                remedy_of(result.status),
            )),
        }
    }

    /// Zones from the one with the block `start` on.
    pub(crate) fn report(
        &mut self,
        mut start: Lba,
        filter: ReportFilter,
        max: u32,
        mut give: impl FnMut(&ZoneDescriptor),
    ) -> Result<u32, Failure> {
        // A report has a header as long as a descriptor, and goes through one transfer.
        let transfer_bytes = self.geometry.max_transfer_blocks.bytes(self.geometry.block_size_bytes);
        let most = (transfer_bytes / DESCRIPTOR_BYTES).clamp(2, u64::from(DESCRIPTORS_AT_A_TIME)) as u32 - 1;
        let end = Lba(0) + self.geometry.namespace_blocks();
        let mut count = 0;
        loop {
            let descriptors_max = most.min(max - count);
            let operation = Operation::ReportZones { start, filter, extended: false, partial: true, descriptors_max };
            let Entry::Reported(completion) = self.carry_out(Entry::Report, operation)? else {
                unreachable!("a report ends with a completion")
            };
            if let Some(errno) = errno_of(completion.status) {
                let message = format!("a report of the zones from block {start}: {}", completion.status);
                return Err(Failure::new(errno, message, "begin within the namespace"));
            }
            let Outcome::Report(report) = completion.outcome else {
                return Err(Failure::new(Errno::IO, "a report of zones without zones", ""));
            };
            let zones = &report.zones[..report.zones.len().min(descriptors_max as usize)];
            zones.iter().for_each(&mut give);
            count += zones.len() as u32;
            let Some(last) = zones.last() else { return Ok(count) };
            start = last.start + self.geometry.zone_size_blocks;
            if zones.len() < descriptors_max as usize || count == max || start >= end {
                return Ok(count);
            }
        }
    }

    /// Waits until nothing is under way. All results are lost.
    ///
    /// # Errors
    /// `ETIMEDOUT`: something still is.
    pub(crate) fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + DRAIN_MAX;
        while self.broken.is_none() && self.ready.len() < self.commands.len() {
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    Errno::TIMEDOUT,
                    format!("{} commands did not end in time", self.commands.len() - self.ready.len()),
                    "see whether the server or the disk still answers, and close again",
                ));
            }
            // A failure is noted, and ends the loop: what is under way ends with the link.
            let _ = self.sleep(Some(deadline));
        }
        Ok(())
    }

    /// Closes a namespace that was drained.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self.broken {
            Some(failure) => Err(failure),
            None => self.link.close(),
        }
    }

    fn carry_out(&mut self, entry: Entry, mut operation: Operation) -> Result<Entry, Failure> {
        let token = self.commands.insert(entry);
        while let Err(back) = self.link.submit(token as u64, operation) {
            operation = back;
            let result = self.sleep(Some(Instant::now() + LOOK_AGAIN));
            if let Err(failure) = result {
                self.commands.remove(token);
                return Err(failure);
            }
        }
        self.is_unsent = true;
        loop {
            if let Some(place) = self.ready.iter().position(|ready| *ready == token) {
                self.ready.remove(place);
                return Ok(self.commands.remove(token));
            }
            self.sleep(None)?;
        }
    }

    /// Takes in what has ended, without waiting.
    fn harvest(&mut self) -> Result<(), Failure> {
        let result = self.link.collect(&mut self.completions);
        self.take_in();
        self.noted(result)
    }

    /// Sends what was submitted, waits until something has happened or `until` has come, and takes in what has ended.
    fn sleep(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        let until = if self.held.is_empty() {
            until
        } else {
            let soon = Instant::now() + LOOK_AGAIN;
            Some(until.map_or(soon, |until| until.min(soon)))
        };
        self.check_process()?;
        self.is_unsent = false;
        let result = self.link.sleep(until, &mut self.completions);
        self.take_in();
        self.noted(result)
    }

    fn take_in(&mut self) {
        for completion in std::mem::take(&mut self.held) {
            self.end(completion);
        }
        while let Some(completion) = self.completions.pop() {
            self.end(completion);
        }
    }

    fn end(&mut self, completion: Completion) {
        let token = completion.id.0 as usize;
        let entry = self.commands.get_mut(token).expect("a command that ends was submitted");
        *entry = match entry {
            Entry::Pending(pending) if pending.is_released() => Entry::Ended(pending.end(completion)),
            Entry::Pending(_) => {
                self.held.push(completion);
                return;
            }
            Entry::Report => Entry::Reported(completion),
            Entry::Ended(_) | Entry::Reported(_) => unreachable!("a command ends once"),
        };
        self.ready.push_back(token);
    }

    /// Remembers a failure after which nothing works.
    fn noted(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result {
            self.give_up(failure.clone());
        }
        result
    }

    /// Lets go of the device, and with it of the caller's memory; from now on only closing works.
    pub(crate) fn give_up(&mut self, failure: Failure) {
        let link = std::mem::replace(&mut self.link, Box::new(Gone));
        // It may be in a state in which it cannot even be dropped; then it is left.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(link)));
        self.broken.get_or_insert(failure);
    }
}

impl Link for Gone {
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit(&mut self, _token: u64, operation: Operation) -> Result<(), Operation> {
        Err(operation)
    }

    fn kick(&mut self) -> Result<(), Failure> {
        Err(gone())
    }

    fn collect(&mut self, _ended: &mut CompletionQueue) -> Result<(), Failure> {
        Err(gone())
    }

    fn sleep(&mut self, _until: Option<Instant>, _ended: &mut CompletionQueue) -> Result<(), Failure> {
        Err(gone())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Err(gone())
    }
}

fn gone() -> Failure {
    Failure::new(Errno::IO, "the namespace has failed before", "see the first error")
}

/// The blocks that `bytes` are.
pub(crate) fn blocks_of(bytes: usize, geometry: &Geometry) -> Result<Blocks, Failure> {
    let size = geometry.block_size_bytes as usize;
    if bytes == 0 || !bytes.is_multiple_of(size) {
        return Err(Failure::invalid(
            format!("{bytes} bytes are no number of blocks"),
            format!("a multiple of {size} bytes, and not none"),
        ));
    }
    Ok(Blocks((bytes / size) as u64))
}

fn full() -> Failure {
    Failure::new(Errno::AGAIN, "as many commands are under way as there is room for", "call zonda_wait first")
}

#[cfg(test)]
mod tests;
