//! Outstanding requests, and the events that report their results.

use std::collections::VecDeque;

use crate::limits::REQUESTS_MAX;
use crate::{Event, FileError, Outcome, RequestId};

/// Owns the number of outstanding requests, and the events. Every request ends with one event.
#[derive(Debug, Default)]
pub(super) struct Requests {
    outstanding: usize,
    events: VecDeque<Event>,
}

impl Requests {
    /// Begins a request, unless there are too many: then it has failed already.
    pub(super) fn begin(&mut self, request: RequestId) -> bool {
        if self.outstanding >= REQUESTS_MAX {
            self.refuse(request, FileError::TooManyRequests);
            return false;
        }
        self.outstanding += 1;
        true
    }

    /// A request fails before it has begun.
    pub(super) fn refuse(&mut self, request: RequestId, error: FileError) {
        self.notify(Event::Done { request, result: Err(error) });
    }

    /// Ends a request that has begun.
    pub(super) fn end(&mut self, request: RequestId, result: Result<Outcome, FileError>) {
        self.outstanding = self.outstanding.checked_sub(1).expect("only a request that has begun ends, once");
        self.notify(Event::Done { request, result });
    }

    /// Adds an event.
    pub(super) fn notify(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next event.
    pub(super) fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }
}
