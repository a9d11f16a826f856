//! The shared namespaces of this process, and their owners.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::owner::Owner;
use crate::{DriveError, Location, NamespaceOptions};

/// The namespaces that are, or were, shared. They are few, so a list is enough.
static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

/// The slot of one namespace's owner.
pub(crate) struct Slot {
    key: Key,
    options: NamespaceOptions,
    /// Locked while the owner is started and while it is closed, so that an image is closed before
    /// it is reopened.
    owner: Mutex<Weak<Owner>>,
}

/// Identifies a namespace.
#[derive(PartialEq, Eq)]
enum Key {
    /// An image, or a drive of this machine.
    Local(PathBuf),
    Server(String),
}

/// The owner of a namespace, started if necessary.
pub(crate) fn owner(location: &Location, options: &NamespaceOptions) -> Result<(Arc<Slot>, Arc<Owner>), DriveError> {
    let slot = slot(location, options);
    let mut place = locked(&slot.owner);
    if let Some(owner) = place.upgrade() {
        drop(place);
        return Ok((slot, owner));
    }
    let owner = Arc::new(Owner::start(location, options)?);
    *place = Arc::downgrade(&owner);
    drop(place);
    Ok((slot, owner))
}

impl Slot {
    /// Closes a handle; the last one closes the namespace.
    pub(crate) fn release(&self, owner: Arc<Owner>) -> Result<(), DriveError> {
        let place = locked(&self.owner);
        let result = Arc::into_inner(owner).map_or(Ok(()), Owner::close);
        drop(place);
        result
    }

    fn is_for(&self, key: &Key, options: &NamespaceOptions) -> bool {
        if *key != self.key {
            return false;
        }
        let mine = &self.options;
        matches!(key, Key::Local(_))
            || mine.host_nqn == options.host_nqn
                && mine.secret == options.secret
                && mine.controller_secret == options.controller_secret
                && mine.digests == options.digests
                && mine.io_queues == options.io_queues
                && mine.queue_depth == options.queue_depth
    }
}

fn slot(location: &Location, options: &NamespaceOptions) -> Arc<Slot> {
    let key = match location {
        // A path without a canonical form cannot be opened either, which reports the error.
        Location::Image(path) | Location::Device(path) => {
            Key::Local(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
        }
        Location::NvmeTcp(url) => Key::Server(url.to_string()),
    };
    let mut slots = locked(&SLOTS);
    // Unused slots are removed, and their secrets with them.
    slots.retain(|slot| Arc::strong_count(slot) > 1);
    if let Some(slot) = slots.iter().find(|slot| slot.is_for(&key, options)) {
        return Arc::clone(slot);
    }
    let slot = Arc::new(Slot { key, options: options.clone(), owner: Mutex::default() });
    slots.push(Arc::clone(&slot));
    slot
}

/// Locks it, ignoring poisoning: no panic can leave it inconsistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
