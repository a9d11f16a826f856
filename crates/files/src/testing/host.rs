//! Runs the model in this crate's own tests, where a violated guarantee fails the test.

use std::collections::BTreeMap;

use zonda_zoned::Prng;

use super::{Mix, Model, RecoveredFile};
use crate::{Event, FileId, FileStore, Outcome, RequestId};

/// The environment of a store under test.
pub(crate) trait Host {
    fn store(&mut self) -> &mut FileStore;
    fn prng(&mut self) -> &mut Prng;
    /// The oldest event that was not processed yet.
    fn next_event(&mut self) -> Option<Event>;
    /// Completes everything in flight.
    fn drain(&mut self);
}

/// A model, and the distribution of its requests.
pub(crate) struct Tester {
    pub(crate) model: Model,
    mix: Mix,
}

impl Tester {
    pub(crate) fn new(mix: Mix) -> Tester {
        Tester { model: Model::new(), mix }
    }

    /// Submits a random request.
    #[track_caller]
    pub(crate) fn request(&mut self, testbed: &mut impl Host) {
        let request = self.mix.random_request(&self.model, testbed.prng());
        kept(self.model.submit(testbed.store(), &request).map(drop));
        self.on_event(testbed);
    }

    /// Processes the events of requests that have ended.
    #[track_caller]
    pub(crate) fn on_event(&mut self, testbed: &mut impl Host) {
        while let Some(event) = testbed.next_event() {
            kept(self.model.on_event(testbed.store(), event));
        }
        kept(self.model.check_names(testbed.store()));
    }

    /// Asserts that every request has ended.
    #[track_caller]
    pub(crate) fn expect_idle(&self) {
        kept(self.model.expect_idle());
    }

    /// Compares the store with the model after a crash and a mount.
    #[track_caller]
    pub(crate) fn compare(&mut self, testbed: &mut impl Host) {
        let names: Vec<(String, FileId)> = testbed.store().names().map(|(name, id)| (name.to_owned(), id)).collect();
        let found: BTreeMap<String, RecoveredFile> = names
            .into_iter()
            .map(|(name, id)| (name, RecoveredFile { id, content: read_all(testbed, id), unread: Vec::new() }))
            .collect();
        kept(self.model.recover(found));
    }
}

#[track_caller]
fn kept(result: Result<(), super::Violation>) {
    if let Err(violation) = result {
        panic!("{:?}: {violation}", violation.promise);
    }
}

/// Reads a whole file through the store.
fn read_all(testbed: &mut impl Host, file: FileId) -> Vec<u8> {
    let length = testbed.store().len_bytes(file).expect("the file exists");
    testbed.store().read(RequestId(0), file, 0, length as u32);
    testbed.drain();
    match testbed.next_event() {
        Some(Event::Done { result: Ok(Outcome::Data(found)), .. }) => {
            assert_eq!(found.len() as u64, length);
            found.to_vec()
        }
        other => panic!("reading a file after a mount: {other:?}"),
    }
}
