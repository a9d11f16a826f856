//! [`PoolNamespace`]: a namespace of a pool as a drive of its own.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use zonda_nvme::identify::NamespaceIdentity;
use zonda_ring::Bytes;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Instant, NamespaceId, Namespaces, QueueFull, ZoneState, ZonedDevice,
};

use super::shared::{OpenPool, UserId};
use crate::drive::visit_table;
use crate::{Drive, DriveError, DriveFacts, SchedulerFacts, SpaceFacts};

/// A namespace of an open pool, which appears as the first and only one of a drive. The pool is
/// closed with the last of its namespaces that are in use.
pub struct PoolNamespace {
    pool: Rc<RefCell<OpenPool>>,
    user: UserId,
    namespaces: Namespaces,
    /// Of the namespaces of the pool, when `namespaces` was updated.
    version: u64,
    identity: NamespaceIdentity,
    uuid: [u8; 16],
    /// The saved reservations of hosts.
    reservations: Bytes,
    /// The result of saving them, until it is taken.
    saved: Option<bool>,
}

impl PoolNamespace {
    /// A new user of this namespace, which exists.
    ///
    /// # Errors
    /// When its saved reservations cannot be read.
    pub(super) fn new(pool: &Rc<RefCell<OpenPool>>, namespace: NamespaceId) -> Result<PoolNamespace, DriveError> {
        let mut open = pool.borrow_mut();
        let config = open.pool().namespace_config(namespace).expect("the namespace exists");
        let reservations = open.load_reservations(&config.name, &config.uuid)?;
        let user = open.add_user(namespace);
        let geometry = open.device.geometry(namespace).clone();
        Ok(PoolNamespace {
            user,
            namespaces: Namespaces::single(geometry),
            version: open.device.namespaces().version(),
            identity: NamespaceIdentity { uuid: Some(config.uuid), ..NamespaceIdentity::default() },
            uuid: config.uuid,
            reservations,
            saved: None,
            pool: Rc::clone(pool),
        })
    }

    fn open(&self) -> Ref<'_, OpenPool> {
        self.pool.borrow()
    }

    fn open_mut(&self) -> RefMut<'_, OpenPool> {
        self.pool.borrow_mut()
    }

    /// Follows a namespace that was resized.
    fn follow(&mut self) {
        let open = self.pool.borrow();
        let all = open.device.namespaces();
        if all.version() != self.version {
            self.version = all.version();
            if let Some(geometry) = all.geometry(open.user(self.user).namespace) {
                self.namespaces.resize(NamespaceId::FIRST, geometry.clone());
            }
        }
    }
}

impl ZonedDevice for PoolNamespace {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.open_mut().submit(now, self.user, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut open = self.pool.borrow_mut();
        open.poll(now);
        let own = &mut open.user_mut(self.user).completions;
        while let Some(completion) = own.pop() {
            completions.push(completion);
        }
        drop(open);
        self.follow();
    }

    fn next_timeout(&self) -> Option<Instant> {
        let open = self.open();
        // Another user may have polled the completions of this one.
        if open.user(self.user).completions.is_empty() { open.next_timeout() } else { Some(Instant::ZERO) }
    }
}

impl Drive for PoolNamespace {
    fn facts(&self) -> DriveFacts {
        let open = self.open();
        let table = open.pool().table(open.user(self.user).namespace);
        table.map_or_else(DriveFacts::default, DriveFacts::of_zones)
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        let open = self.open();
        if let Some(table) = open.pool().table(open.user(self.user).namespace) {
            visit_table(table, visit);
        }
    }

    /// That of the drive of the pool, with the load of this tenant only.
    fn scheduler(&self) -> Option<SchedulerFacts> {
        let open = self.open();
        let mut facts = open.device.drive().scheduler_facts()?;
        let own = open.user(self.user).namespace.0;
        facts.loads.retain(|load| u32::from(load.tenant.0) == own);
        Some(facts)
    }

    /// Those of the drive of the pool: which namespace they concern is not known.
    fn media_errors(&self) -> u64 {
        self.open().device.drive().member().drive.media_errors()
    }

    fn space(&self) -> Option<SpaceFacts> {
        self.open().device.drive().member().drive.space()
    }

    fn identity(&self) -> Option<&NamespaceIdentity> {
        Some(&self.identity)
    }

    fn saved_reservations(&self) -> Option<Bytes> {
        Some(self.reservations.clone())
    }

    fn save_reservations(&mut self, now: Instant, bytes: Bytes) {
        let is_saved = self.open_mut().store_reservations(now, &self.uuid, &bytes);
        self.saved = Some(is_saved);
        if is_saved {
            self.reservations = bytes;
        }
    }

    fn take_reservations_saved(&mut self) -> Option<bool> {
        self.saved.take()
    }

    fn take_warning(&mut self) -> Option<String> {
        self.open_mut().take_warning()
    }

    fn ends_commands_at_close(&self) -> bool {
        self.open().is_lost()
    }

    fn close(&mut self, now: Instant) {
        self.open_mut().close_user(now, self.user);
    }

    fn is_closed(&self) -> bool {
        self.open().is_user_closed(self.user)
    }

    fn close_error(&self) -> Option<String> {
        self.open().close_error()
    }
}

impl Drop for PoolNamespace {
    fn drop(&mut self) {
        self.open_mut().remove_user(self.user);
    }
}
