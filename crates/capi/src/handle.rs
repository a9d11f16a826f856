//! [`Namespace`]: the state of a handle.

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

/// How long closing waits for outstanding commands.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// How often to check whether a device has released memory, or has free slots.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Zone descriptors requested at a time; each has 64 bytes (Zoned Namespace Command Set 1.1, Figure
/// 37).
const DESCRIPTORS_AT_A_TIME: u32 = 4096;
const DESCRIPTOR_BYTES: u64 = 64;

/// An open namespace.
pub(crate) struct Namespace {
    link: Box<dyn Link>,
    geometry: Geometry,
    /// All commands whose result was not taken; the key is the token.
    commands: Slab<Entry>,
    completions: CompletionQueue,
    /// Completed, but the device has not released the caller's memory.
    unreleased: Vec<Completion>,
    /// Completed and ready to be taken, by token.
    ready: VecDeque<usize>,
    /// The maximum of outstanding commands.
    commands_max: usize,
    /// Something was submitted and not sent.
    is_unsent: bool,
    broken: Option<Failure>,
    process: u32,
}

enum Entry {
    /// Outstanding; its result goes to `zonda_wait`, or to the call that waits for this token.
    Pending(Pending),
    /// A report of zones; its completion is kept unchanged.
    Report,
    Ended(RawResult),
    Reported(Completion),
}

/// A link that has failed.
struct FailedLink;

impl Namespace {
    pub(crate) fn new(link: Box<dyn Link>, geometry: Geometry, commands_max: usize) -> Namespace {
        Namespace {
            link,
            geometry,
            commands: Slab::new(),
            completions: CompletionQueue::new(),
            unreleased: Vec::new(),
            ready: VecDeque::new(),
            commands_max,
            is_unsent: false,
            broken: None,
            process: std::process::id(),
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Checks whether the caller may use it now.
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

    /// Checks whether this thread may use it.
    pub(crate) fn check_thread(&self) -> Result<(), Failure> {
        self.link.check()
    }

    /// Checks whether this is the process that opened it.
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

    /// Submits a command.
    pub(crate) fn submit(&mut self, request: Request) -> Result<(), Failure> {
        let (operation, pending) = request.into_operation(&self.geometry)?;
        if self.commands.len() >= self.commands_max {
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

    /// Sends submitted commands.
    pub(crate) fn kick(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_unsent) {
            self.check_process()?;
            let result = self.link.kick();
            return self.noted(result);
        }
        Ok(())
    }

    /// Waits for `min` results or `deadline` (`None`: no deadline), and returns at most `max`.
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
            // A call that only polls must let the device make progress, too.
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

    /// Executes one command. Others may be outstanding.
    pub(crate) fn execute(&mut self, request: Request) -> Result<RawResult, Failure> {
        let (operation, pending) = request.into_operation(&self.geometry)?;
        match self.carry_out(Entry::Pending(pending), operation)? {
            Entry::Ended(result) => Ok(result),
            _ => unreachable!("a pending command ends with a result"),
        }
    }

    /// As `execute`; an error status becomes a [`Failure`].
    pub(crate) fn execute_checked(&mut self, request: Request) -> Result<RawResult, Failure> {
        let opcode = request.opcode;
        let lba = request.lba;
        let result = self.execute(request)?;
        match result.error {
            0 => Ok(result),
            error => Err(Failure::new(
                Errno::from_raw_os_error(error),
                format!("{} at LBA {lba} failed: {}", opcode.name(), text_of(result.status).to_string_lossy()),
                remedy_of(result.status),
            )),
        }
    }

    /// Reports zones from the one that contains the block `start` on.
    pub(crate) fn report(
        &mut self,
        mut start: Lba,
        filter: ReportFilter,
        max: u32,
        mut give: impl FnMut(&ZoneDescriptor),
    ) -> Result<u32, Failure> {
        // A report has a header as long as a descriptor, and is one transfer.
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
                let message = format!("Zone Management Receive at LBA {start} failed: {}", completion.status);
                return Err(Failure::new(errno, message, "use LBAs within the namespace"));
            }
            let Outcome::Report(report) = completion.outcome else {
                return Err(Failure::new(Errno::IO, "the device returned an invalid zone report", ""));
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

    /// Waits until no command is outstanding. All results are discarded.
    ///
    /// # Errors
    /// `ETIMEDOUT`: commands are still outstanding.
    pub(crate) fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + DRAIN_MAX;
        while self.broken.is_none() && self.ready.len() < self.commands.len() {
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    Errno::TIMEDOUT,
                    format!("timeout: commands still outstanding: {}", self.commands.len() - self.ready.len()),
                    "check that the server or the disk responds, and close again",
                ));
            }
            // A failure is recorded, and ends the loop: outstanding commands end with the link.
            let _ = self.sleep(Some(deadline));
        }
        Ok(())
    }

    /// Closes a drained namespace.
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
            let result = self.sleep(Some(Instant::now() + POLL_INTERVAL));
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

    /// Processes completions, without waiting.
    fn harvest(&mut self) -> Result<(), Failure> {
        let result = self.link.collect(&mut self.completions);
        self.process_completions();
        self.noted(result)
    }

    /// Sends submitted commands, waits for an event or `until`, and processes completions.
    fn sleep(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        let until = if self.unreleased.is_empty() {
            until
        } else {
            let soon = Instant::now() + POLL_INTERVAL;
            Some(until.map_or(soon, |until| until.min(soon)))
        };
        self.check_process()?;
        self.is_unsent = false;
        let result = self.link.sleep(until, &mut self.completions);
        self.process_completions();
        self.noted(result)
    }

    fn process_completions(&mut self) {
        for completion in std::mem::take(&mut self.unreleased) {
            self.end(completion);
        }
        while let Some(completion) = self.completions.pop() {
            self.end(completion);
        }
    }

    fn end(&mut self, completion: Completion) {
        let token = completion.id.0 as usize;
        let entry = self.commands.get_mut(token).expect("a completed command was submitted");
        *entry = match entry {
            Entry::Pending(pending) if pending.is_released() => Entry::Ended(pending.end(completion)),
            Entry::Pending(_) => {
                self.unreleased.push(completion);
                return;
            }
            Entry::Report => Entry::Reported(completion),
            Entry::Ended(_) | Entry::Reported(_) => unreachable!("a command ends once"),
        };
        self.ready.push_back(token);
    }

    /// Records a fatal failure.
    fn noted(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result {
            self.fail(failure.clone());
        }
        result
    }

    /// Drops the link, and with it the references to the caller's memory; from now on only closing
    /// works.
    pub(crate) fn fail(&mut self, failure: Failure) {
        let link = std::mem::replace(&mut self.link, Box::new(FailedLink));
        // Dropping it may panic after a panic in it; then it is leaked.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(link)));
        self.broken.get_or_insert(failure);
    }
}

impl Link for FailedLink {
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit(&mut self, _token: u64, operation: Operation) -> Result<(), Operation> {
        Err(operation)
    }

    fn kick(&mut self) -> Result<(), Failure> {
        Err(link_failed())
    }

    fn collect(&mut self, _ended: &mut CompletionQueue) -> Result<(), Failure> {
        Err(link_failed())
    }

    fn sleep(&mut self, _until: Option<Instant>, _ended: &mut CompletionQueue) -> Result<(), Failure> {
        Err(link_failed())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Err(link_failed())
    }
}

fn link_failed() -> Failure {
    Failure::new(Errno::IO, "the namespace has failed", "see the first error, and open the namespace again")
}

/// Converts bytes to blocks.
pub(crate) fn blocks_of(bytes: usize, geometry: &Geometry) -> Result<Blocks, Failure> {
    let size = geometry.block_size_bytes as usize;
    if bytes == 0 || !bytes.is_multiple_of(size) {
        return Err(Failure::invalid(
            format!("{bytes} bytes are not a multiple of the block size"),
            format!("use a multiple of {size} bytes, greater than 0"),
        ));
    }
    Ok(Blocks((bytes / size) as u64))
}

fn full() -> Failure {
    Failure::new(Errno::AGAIN, "the queue is full", "call zonda_wait first")
}

#[cfg(test)]
mod tests;
