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
    /// `None` once the drive is missing and its requests have ended: its device file is closed, so that
    /// the drive can be opened again.
    queue: Option<Q>,
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
            queue: Some(queue),
            identity,
            notes: notes.into(),
            has_submitted: false,
            is_closing: false,
        }
    }

    /// The queue of a drive that is not missing.
    pub(super) fn queue(&self) -> &Q {
        self.queue.as_ref().expect("the drive is not missing")
    }

    #[cfg(test)]
    pub(super) fn has_no_queue(&self) -> bool {
        self.queue.is_none()
    }

    #[cfg(test)]
    pub(super) fn into_queue(self) -> Q {
        self.queue.expect("the drive is not missing")
    }

    #[cfg(test)]
    pub(super) fn queue_mut(&mut self) -> &mut Q {
        self.queue.as_mut().expect("the drive is not missing")
    }

    fn carry_out(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        while let Some(request) = self.machine.poll_effect() {
            queue.submit(request);
        }
        queue.flush();
    }

    fn work(&mut self) {
        self.carry_out();
        while let Some((id, result)) = self.queue.as_mut().and_then(Q::next) {
            self.machine.on_completion(id, result);
        }
        self.carry_out();
        if self.machine.is_removed() && !self.machine.has_requests() {
            self.queue = None;
        }
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

    fn can_vanish(&self) -> bool {
        true
    }

    fn is_disconnected(&self) -> bool {
        self.machine.is_removed()
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
