//! The model at work in this crate's own tests, where a promise that is not kept ends the test.

use std::collections::BTreeMap;

use zonda_zoned::Prng;

use super::{FoundFile, Mix, Model};
use crate::{Event, FileId, FileStore, Outcome, RequestId};

/// Where a store is while it is tested.
pub(crate) trait Host {
    fn store(&mut self) -> &mut FileStore;
    fn prng(&mut self) -> &mut Prng;
    /// The oldest event that nobody has heard of.
    fn next_event(&mut self) -> Option<Event>;
    /// Lets everything end that is under way.
    fn rest(&mut self);
}

/// A model, and how its requests are drawn.
pub(crate) struct Tester {
    pub(crate) model: Model,
    mix: Mix,
}

impl Tester {
    pub(crate) fn new(mix: Mix) -> Tester {
        Tester { model: Model::new(), mix }
    }

    /// Asks for something, drawn by the world's generator.
    #[track_caller]
    pub(crate) fn request(&mut self, world: &mut impl Host) {
        let request = self.mix.draw(&self.model, world.prng());
        kept(self.model.ask(world.store(), &request).map(drop));
        self.hear(world);
    }

    /// Hears of the requests that have ended.
    #[track_caller]
    pub(crate) fn hear(&mut self, world: &mut impl Host) {
        while let Some(event) = world.next_event() {
            kept(self.model.hear(world.store(), event));
        }
        kept(self.model.check_names(world.store()));
    }

    /// Every request must have ended: nothing waits for ever.
    #[track_caller]
    pub(crate) fn expect_rest(&self) {
        kept(self.model.expect_rest());
    }

    /// After a crash and a mount.
    #[track_caller]
    pub(crate) fn compare(&mut self, world: &mut impl Host) {
        let names: Vec<(String, FileId)> = world.store().names().map(|(name, id)| (name.to_owned(), id)).collect();
        let found: BTreeMap<String, FoundFile> = names
            .into_iter()
            .map(|(name, id)| (name, FoundFile { id, content: read_all(world, id), unread: Vec::new() }))
            .collect();
        kept(self.model.found(found));
    }
}

#[track_caller]
fn kept(result: Result<(), super::Violation>) {
    if let Err(violation) = result {
        panic!("{:?}: {violation}", violation.promise);
    }
}

/// All of a file, through the store.
fn read_all(world: &mut impl Host, file: FileId) -> Vec<u8> {
    let length = world.store().len_bytes(file).expect("the file is there");
    world.store().read(RequestId(0), file, 0, length as u32);
    world.rest();
    match world.next_event() {
        Some(Event::Done { result: Ok(Outcome::Data(found)), .. }) => {
            assert_eq!(found.len() as u64, length);
            found.to_vec()
        }
        other => panic!("reading a file after a mount: {other:?}"),
    }
}
