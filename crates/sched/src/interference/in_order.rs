//! [`InOrder`]: the requests that wait while the table is not used, in the order of their arrival.

use std::collections::BTreeMap;

use super::entries::Entry;
use crate::{Accepts, RequestId};

/// As [`Fifo`](crate::Fifo): by number, and reads pass others that the device refuses.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    reads: BTreeMap<u64, (RequestId, Entry)>,
    others: BTreeMap<u64, (RequestId, Entry)>,
}

impl InOrder {
    pub(super) fn len(&self) -> usize {
        self.reads.len() + self.others.len()
    }

    pub(super) fn push(&mut self, id: RequestId, entry: Entry) {
        let queue = if entry.is_read { &mut self.reads } else { &mut self.others };
        let before = queue.insert(entry.number, (id, entry));
        assert!(before.is_none(), "two requests do not have one number");
    }

    pub(super) fn pop(&mut self, accepts: Accepts) -> Option<(RequestId, Entry)> {
        let read = self.reads.first_key_value().map(|(number, _)| *number);
        let other = self.others.first_key_value().map(|(number, _)| *number).filter(|_| accepts == Accepts::All);
        let queue = match (read, other) {
            (Some(read), Some(other)) if other < read => &mut self.others,
            (None, Some(_)) => &mut self.others,
            _ => &mut self.reads,
        };
        queue.pop_first().map(|(_, request)| request)
    }

    /// Removes all requests, in the order of their arrival.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RequestId, Entry)> + use<> {
        let mut all = std::mem::take(&mut self.reads);
        all.append(&mut self.others);
        all.into_values()
    }
}
