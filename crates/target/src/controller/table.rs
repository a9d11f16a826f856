//! All controllers: their keys and identifiers, and the table of keep alive timers.

use std::collections::BTreeSet;

use zonda_zoned::{Duration, Instant};

use super::{Controller, ControllerKey};
use crate::effects::ConnectionId;
use crate::limits::Limits;
use crate::slots::Slots;
use crate::subsystems::SubsystemIndex;

/// The controllers of all subsystems and of the discovery service.
#[derive(Debug)]
pub(crate) struct Controllers {
    slots: Slots<ControllerKey, Controller>,
    /// When to check a keep alive timer, which may have been restarted since: at most one entry of
    /// each controller, that of its `keep_alive_deadline`.
    timers: BTreeSet<(Instant, ControllerKey)>,
    /// The controller identifier assigned last.
    last_id: u16,
}

impl Controllers {
    pub(crate) fn new() -> Controllers {
        Controllers { slots: Slots::new(), timers: BTreeSet::new(), last_id: 0 }
    }

    /// Adds a controller, and starts its keep alive timer.
    pub(super) fn insert(&mut self, now: Instant, controller: Controller) -> ControllerKey {
        assert!(controller.admin_queue().is_some(), "a controller is created by its admin queue, and ends with it");
        assert!(controller.keep_alive_deadline.is_none(), "only this table starts timers");
        let timeout = controller.keep_alive_timeout;
        let key = self.slots.insert(controller);
        self.set_keep_alive(now, key, timeout);
        key
    }

    /// Removes a controller, and its timer.
    pub(super) fn remove(&mut self, key: ControllerKey) -> Option<Controller> {
        let controller = self.slots.remove(key)?;
        if let Some(deadline) = controller.keep_alive_deadline {
            let was_running = self.timers.remove(&(deadline, key));
            assert!(was_running, "the timer of a controller is in the table, or it would expire after the controller");
        }
        Some(controller)
    }

    #[inline]
    pub(crate) fn get(&self, key: ControllerKey) -> Option<&Controller> {
        self.slots.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: ControllerKey) -> Option<&mut Controller> {
        self.slots.get_mut(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The present keys, for callers that change the table on the way.
    pub(crate) fn keys(&self) -> Vec<ControllerKey> {
        self.slots.keys()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ControllerKey, &Controller)> {
        self.slots.iter()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Controller> {
        self.slots.values()
    }

    /// The controller with an identifier (CNTLID).
    pub(super) fn find(&self, id: u16) -> Option<ControllerKey> {
        self.slots.iter().find(|(_, controller)| controller.id == id).map(|(key, _)| key)
    }

    /// The controllers of a subsystem, or of the discovery service (`None`).
    pub(crate) fn of(&self, subsystem: Option<SubsystemIndex>) -> impl Iterator<Item = &Controller> {
        self.slots.values().filter(move |controller| controller.subsystem == subsystem)
    }

    pub(crate) fn has_any_of(&self, subsystem: SubsystemIndex) -> bool {
        self.of(Some(subsystem)).next().is_some()
    }

    /// The unused controller identifier that has been free the longest.
    pub(super) fn next_id(&mut self) -> u16 {
        /// Identifiers from FFF0h on are reserved (NVMe Base 2.0, section 3.1.2).
        const LAST: u16 = 0xffef;
        loop {
            self.last_id = if self.last_id >= LAST { 1 } else { self.last_id + 1 };
            if self.find(self.last_id).is_none() {
                return self.last_id;
            }
        }
    }

    /// Restarts the keep alive timer: a command was received. The table of timers is updated when
    /// the old deadline expires.
    #[inline]
    pub(crate) fn note_activity(&mut self, now: Instant, key: ControllerKey) {
        if let Some(controller) = self.slots.get_mut(key) {
            controller.last_activity = now;
        }
    }

    /// Sets the keep alive timeout of a controller, and restarts its timer.
    pub(super) fn set_keep_alive(&mut self, now: Instant, key: ControllerKey, timeout: Option<Duration>) {
        let Some(controller) = self.slots.get_mut(key) else { return };
        controller.keep_alive_timeout = timeout;
        controller.last_activity = now;
        if let Some(old) = controller.keep_alive_deadline.take() {
            self.timers.remove(&(old, key));
        }
        if let Some(timeout) = timeout {
            let deadline = now + timeout;
            controller.keep_alive_deadline = Some(deadline);
            self.timers.insert((deadline, key));
        }
    }

    /// When to check a timer next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(deadline, _)| deadline)
    }

    /// Stops the first timer that has expired, and returns the admin queue of its controller.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<ConnectionId> {
        while let Some(&(deadline, key)) = self.timers.first()
            && deadline <= now
        {
            let controller = self.slots.get_mut(key).expect("a timer's controller exists");
            let timeout = controller.keep_alive_timeout.expect("a timer that runs has a timeout");
            self.timers.remove(&(deadline, key));
            let due = controller.last_activity + timeout;
            if due > now {
                controller.keep_alive_deadline = Some(due);
                self.timers.insert((due, key));
                continue;
            }
            controller.keep_alive_deadline = None;
            return Some(controller.admin_queue().expect("a controller has an admin queue"));
        }
        None
    }

    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self, limits: &Limits) {
        let discovery = self.of(None).count();
        assert!(self.len() - discovery <= limits.controllers, "controllers are within their limit");
        assert!(discovery <= limits.discovery_controllers, "discovery controllers are within their limit");
        let mut running = 0;
        let mut ids = BTreeSet::new();
        for (key, controller) in self.iter() {
            assert!(ids.insert(controller.id), "hosts name controllers by their identifier");
            assert!(controller.admin_queue().is_some(), "a controller ends with its admin queue");
            if let Some(deadline) = controller.keep_alive_deadline {
                assert!(controller.keep_alive_timeout.is_some(), "a timer that runs has a timeout");
                assert!(self.timers.contains(&(deadline, key)), "a timer that runs is in the table");
                running += 1;
            }
        }
        assert_eq!(running, self.timers.len(), "every entry of the table is a running timer");
    }
}
