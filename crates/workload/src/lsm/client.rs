//! Clients: each runs one operation at a time.

use zonda_zoned::Instant;

use super::entry::Key;
use super::keys::Operation;
use super::result::OperationKind;
use super::store::{Answer, Store};

/// A client and its current operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    current: Option<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    operation: Operation,
    started: Instant,
    /// The result of the get of a read-modify-write, when it has ended.
    got: Option<Answer>,
}

/// The next step after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The operation has ended.
    Ended { kind: OperationKind, started: Instant, found: Option<Answer> },
    /// Its second half begins, with its own CPU time.
    GoesOn,
}

impl Client {
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    pub(super) fn start(&mut self, now: Instant, operation: Operation) {
        assert!(self.is_idle(), "a client runs one operation at a time");
        self.current = Some(Current { operation, started: now, got: None });
    }

    /// The CPU time is over: submits the operation to the store.
    #[inline]
    pub(super) fn ask(&self, now: Instant, client: u32, store: &mut Store) -> Option<Answer> {
        let current = self.current.as_ref().expect("a client that computes has an operation");
        match current.operation {
            Operation::Put(key) => store.write(now, client, key, true),
            Operation::Delete(key) => store.write(now, client, key, false),
            Operation::Get(key) => store.get(client, key),
            Operation::Scan(key, keys) => store.scan(client, key, keys),
            Operation::ReadModifyWrite(key) => modify(current, now, client, key, store),
        }
    }

    /// Called when the store has answered.
    #[inline]
    pub(super) fn on_answer(&mut self, answer: Answer) -> Next {
        let current = self.current.as_mut().expect("an answer is to an operation");
        let kind = match current.operation {
            Operation::ReadModifyWrite(_) if current.got.is_none() => {
                current.got = Some(answer);
                return Next::GoesOn;
            }
            Operation::Put(_) => OperationKind::Put,
            Operation::Delete(_) => OperationKind::Delete,
            Operation::Get(_) => OperationKind::Get,
            Operation::Scan(..) => OperationKind::Scan,
            Operation::ReadModifyWrite(_) => OperationKind::ReadModifyWrite,
        };
        let Current { started, got, .. } = *current;
        self.current = None;
        Next::Ended { kind, started, found: got.or(Some(answer)) }
    }
}

fn modify(current: &Current, now: Instant, client: u32, key: Key, store: &mut Store) -> Option<Answer> {
    match current.got {
        None => store.get(client, key),
        Some(_) => store.write(now, client, key, true),
    }
}
