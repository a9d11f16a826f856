//! Counts of the requests to one export.

use super::snapshot::NbdRequestSnapshot;
use super::work::RequestKind;

/// Requests that were answered, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters([Counter; RequestKind::ALL.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    count: u64,
    errors: u64,
    bytes: u64,
}

impl Counters {
    pub(crate) fn answered(&mut self, kind: RequestKind, bytes: u64, succeeded: bool) {
        let counter = &mut self.0[kind as usize];
        counter.count += 1;
        if succeeded {
            counter.bytes += bytes;
        } else {
            counter.errors += 1;
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<NbdRequestSnapshot> {
        let kinds = RequestKind::ALL.into_iter().zip(&self.0).filter(|(_, counter)| counter.count > 0);
        kinds
            .map(|(kind, counter)| NbdRequestSnapshot {
                kind: kind.name().to_owned(),
                count: counter.count,
                errors: counter.errors,
                bytes: counter.bytes,
            })
            .collect()
    }
}
