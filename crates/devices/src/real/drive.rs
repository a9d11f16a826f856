//! [`RealDrive`]: the machine on the queue of a drive.

use std::collections::VecDeque;

use zonda_nvme::identify::NamespaceIdentity;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Command, CompletionQueue, Instant, Namespaces, QueueFull, ZoneState, ZonedDevice};

use super::{Abilities, Answer, Machine, RawError, Request, RequestId};
use crate::drive::visit_table;
use crate::{Drive, DriveFacts};

/// The queue of a drive: requests in, results out. It never blocks.
pub(crate) trait Queue {
    fn submit(&mut self, request: Request);

    /// Passes what was submitted to the drive.
    fn flush(&mut self) {}

    /// The next result.
    fn next(&mut self) -> Option<(RequestId, Result<Answer, RawError>)>;
}

/// What is known about a drive when it is opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) table: ZoneTable,
    pub(crate) abilities: Abilities,
    /// `None` for a drive without identifiers.
    pub(crate) identity: Option<NamespaceIdentity>,
    /// For the log.
    pub(crate) notes: Vec<String>,
}

/// A real drive.
pub(crate) struct RealDrive<Q> {
    pub(super) machine: Machine,
    pub(super) queue: Q,
    namespaces: Namespaces,
    identity: Option<NamespaceIdentity>,
    notes: VecDeque<String>,
    has_submitted: bool,
    is_closing: bool,
}

impl<Q: Queue> RealDrive<Q> {
    pub(crate) fn new(opened: Opened, queue: Q) -> RealDrive<Q> {
        let Opened { table, abilities, identity, notes } = opened;
        RealDrive {
            namespaces: Namespaces::single(table.geometry().clone()),
            machine: Machine::new(table, abilities),
            queue,
            identity,
            notes: notes.into(),
            has_submitted: false,
            is_closing: false,
        }
    }

    fn carry_out(&mut self) {
        while let Some(request) = self.machine.poll_effect() {
            self.queue.submit(request);
        }
        self.queue.flush();
    }

    fn work(&mut self) {
        self.carry_out();
        while let Some((id, result)) = self.queue.next() {
            self.machine.on_completion(id, result);
        }
        self.carry_out();
    }
}

impl<Q: Queue> ZonedDevice for RealDrive<Q> {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, _now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closing, "a drive that is being closed takes no commands");
        self.has_submitted = true;
        self.machine.submit(command)
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.has_submitted = false;
        self.work();
        self.machine.poll(completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        // The ring wakes the caller when a request has ended.
        (self.has_submitted || self.machine.has_news()).then_some(Instant::ZERO)
    }
}

impl<Q: Queue> Drive for RealDrive<Q> {
    fn facts(&self) -> DriveFacts {
        DriveFacts::of_zones(self.machine.table())
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        visit_table(self.machine.table(), visit);
    }

    fn media_errors(&self) -> u64 {
        self.machine.media_errors()
    }

    fn identity(&self) -> Option<&NamespaceIdentity> {
        self.identity.as_ref()
    }

    fn take_warning(&mut self) -> Option<String> {
        self.notes.pop_front().or_else(|| self.machine.take_warning())
    }

    fn close(&mut self, _now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.machine.shutdown();
            self.carry_out();
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closing && self.machine.is_idle()
    }

    fn close_error(&self) -> Option<String> {
        let error = self.machine.shutdown_result()?.as_ref().err()?;
        Some(format!("the last flush failed: {error}"))
    }
}
