//! [`Fifo`]: no scheduling, as `none` in Linux.

use std::collections::BTreeMap;

use zonda_zoned::Instant;

use crate::{Accepts, Outcome, Request, RequestId, RequestKind, Scheduler};

/// Releases requests in the order of their arrival. While the device refuses writes, reads pass
/// them.
#[derive(Debug, Default)]
pub struct Fifo {
    reads: BTreeMap<u64, RequestId>,
    others: BTreeMap<u64, RequestId>,
}

impl Fifo {
    fn of(&mut self, request: &Request) -> &mut BTreeMap<u64, RequestId> {
        if request.kind == RequestKind::Read { &mut self.reads } else { &mut self.others }
    }
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        "none"
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        let before = self.of(request).insert(request.number, id);
        assert!(before.is_none(), "two requests do not have one number");
    }

    fn pop(&mut self, _now: Instant, accepts: Accepts) -> Option<RequestId> {
        let read = self.reads.first_key_value().map(|(place, _)| *place);
        let other = self.others.first_key_value().map(|(place, _)| *place).filter(|_| accepts == Accepts::All);
        let first = match (read, other) {
            (Some(read), Some(other)) if other < read => self.others.pop_first(),
            (Some(_), _) => self.reads.pop_first(),
            (None, Some(_)) => self.others.pop_first(),
            (None, None) => None,
        };
        first.map(|(_, id)| id)
    }

    fn put_back(&mut self, id: RequestId, request: &Request) {
        self.push(id, request);
    }

    fn pass(&mut self, _now: Instant, _request: &Request, _is_last: bool) -> bool {
        self.waiting() == 0
    }

    fn on_completion(&mut self, _now: Instant, _request: &Request, _outcome: Outcome) {}

    fn waiting(&self) -> usize {
        self.reads.len() + self.others.len()
    }
}
