//! [`Shared`]: several handles on one device.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Instant, Namespaces, QueueFull, ZonedDevice};

use crate::limits::{SHARED_HANDLE_OUTSTANDING_MAX, SHARED_OUTSTANDING_MAX};
use crate::outstanding::Outstanding;

/// A handle on a shared device: each clone is a device with its own command ids, and gets the
/// completions of its own commands. Use it below several [`crate::Slice`]s of one drive, or to
/// access a drive at the bottom of a stack.
///
/// A poll through any handle polls the device, and queues completions of other handles until they
/// poll. Handles may be polled with different instants; the device gets the latest. A handle whose
/// command was refused is woken after the next completion of any other, because it may have no
/// command in flight. Commands of a dropped handle complete unnoticed.
///
/// It does not isolate the zones of one handle from commands of another: that is the task of a
/// slice.
pub struct Shared<D> {
    core: Rc<RefCell<Core<D>>>,
    /// The device's namespaces when this handle was last used.
    namespaces: Namespaces,
    handle: u64,
}

/// The state that all handles share.
struct Core<D> {
    /// `None` once the last handle has taken the device.
    inner: Option<D>,
    now: Instant,
    outstanding: Outstanding<Owner>,
    inboxes: BTreeMap<u64, Inbox>,
    handles_made: u64,
    scratch: CompletionQueue,
}

/// The handle of a command, and its id there.
struct Owner {
    handle: u64,
    id: CommandId,
}

/// The queue of a handle.
#[derive(Default)]
struct Inbox {
    ready: VecDeque<(Instant, Completion)>,
    /// Commands that are submitted and whose completions are not yet polled for.
    outstanding: usize,
    /// A command was refused since the last completion of the device.
    refused: bool,
    retry_at: Option<Instant>,
}

impl<D: ZonedDevice> Shared<D> {
    /// The first handle on a device.
    #[must_use]
    pub fn new(inner: D) -> Shared<D> {
        let namespaces = inner.namespaces().clone();
        let core = Core {
            inner: Some(inner),
            now: Instant::ZERO,
            outstanding: Outstanding::new(SHARED_OUTSTANDING_MAX),
            inboxes: BTreeMap::from([(0, Inbox::default())]),
            handles_made: 1,
            scratch: CompletionQueue::new(),
        };
        Shared { core: Rc::new(RefCell::new(core)), namespaces, handle: 0 }
    }

    /// Takes the device, if this is the last handle, for example after the stack above was dropped.
    /// Completions that are not yet polled for are lost.
    ///
    /// # Errors
    /// Returns the handle while other handles exist.
    pub fn take_inner(self) -> Result<D, Shared<D>> {
        if Rc::strong_count(&self.core) > 1 {
            return Err(self);
        }
        let inner = self.core.borrow_mut().inner.take();
        Ok(inner.expect("only the last handle takes the device, and it is consumed"))
    }

    /// The number of handles, including this one.
    #[must_use]
    pub fn handles(&self) -> usize {
        Rc::strong_count(&self.core)
    }

    /// Runs a closure with the device. (A handle cannot return a reference as the other layers do.)
    pub fn with_inner<R>(&self, run: impl FnOnce(&D) -> R) -> R {
        run(self.core.borrow().device())
    }

    /// Runs a closure with the mutable device. Completions of commands submitted to it directly
    /// must not be polled for through a handle.
    pub fn with_inner_mut<R>(&self, run: impl FnOnce(&mut D) -> R) -> R {
        run(self.core.borrow_mut().device_mut())
    }
}

impl<D> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("handle", &self.handle).field("handles", &Rc::strong_count(&self.core)).finish()
    }
}

impl<D> Clone for Shared<D> {
    /// A further handle, without commands in flight.
    fn clone(&self) -> Shared<D> {
        let mut core = self.core.borrow_mut();
        let handle = core.handles_made;
        core.handles_made += 1;
        core.inboxes.insert(handle, Inbox::default());
        drop(core);
        Shared { core: Rc::clone(&self.core), namespaces: self.namespaces.clone(), handle }
    }
}

impl<D> Drop for Shared<D> {
    fn drop(&mut self) {
        // While a panic of the device unwinds, the core is still borrowed: the inbox is dropped
        // with the core then.
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.inboxes.remove(&self.handle);
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Shared<D> {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let mut core = self.core.borrow_mut();
        core.refresh(&mut self.namespaces);
        let now = core.advance(now);
        let id = command.id;
        let result =
            if core.outstanding.is_full() || core.inbox(self.handle).outstanding >= SHARED_HANDLE_OUTSTANDING_MAX {
                Err(QueueFull(command))
            } else {
                let own_id = core.outstanding.insert(Owner { handle: self.handle, id });
                core.device_mut().submit(now, command.with_id(own_id)).map_err(|QueueFull(command)| {
                    core.outstanding.remove(own_id);
                    QueueFull(command.with_id(id))
                })
            };
        let inbox = core.inbox(self.handle);
        inbox.refused = result.is_err();
        inbox.outstanding += usize::from(result.is_ok());
        result
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut core = self.core.borrow_mut();
        let now = core.advance(now);
        core.collect(now);
        core.refresh(&mut self.namespaces);
        let inbox = core.inbox(self.handle);
        inbox.retry_at = None;
        inbox.outstanding -= inbox.ready.len();
        for (_, completion) in inbox.ready.drain(..) {
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let core = self.core.borrow();
        let inbox = &core.inboxes[&self.handle];
        let ready = inbox.ready.front().map(|(at, _)| *at);
        crate::earlier(crate::earlier(ready, inbox.retry_at), core.device().next_timeout())
    }
}

impl<D> Core<D> {
    fn device(&self) -> &D {
        self.inner.as_ref().expect("the device is not taken while a handle exists")
    }

    fn device_mut(&mut self) -> &mut D {
        self.inner.as_mut().expect("the device is not taken while a handle exists")
    }

    fn inbox(&mut self, handle: u64) -> &mut Inbox {
        self.inboxes.get_mut(&handle).expect("a handle has its inbox for as long as it lives")
    }

    /// The time of the device: the latest instant of any handle.
    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}

impl<D: ZonedDevice> Core<D> {
    /// Updates a handle's copy of the namespaces.
    fn refresh(&self, namespaces: &mut Namespaces) {
        let current = self.device().namespaces();
        if current.version() != namespaces.version() {
            namespaces.clone_from(current);
        }
    }

    /// Polls the device, and moves completions to the inboxes.
    fn collect(&mut self, now: Instant) {
        let mut ended = std::mem::take(&mut self.scratch);
        self.device_mut().poll(now, &mut ended);
        let anything = !ended.is_empty();
        while let Some(completion) = ended.pop() {
            let Owner { handle, id } = self.outstanding.remove(completion.id);
            if let Some(inbox) = self.inboxes.get_mut(&handle) {
                inbox.ready.push_back((now, Completion { id, ..completion }));
            }
        }
        self.scratch = ended;
        if anything {
            for inbox in self.inboxes.values_mut().filter(|inbox| inbox.refused) {
                inbox.refused = false;
                inbox.retry_at = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Narrow, poll_ids, read, reference, run_one, write};
    use crate::{Delay, DelayRule, Matcher, When};
    use zonda_zoned::{Duration, Geometry, Prng, Status, reference::ReferenceDevice};

    #[test]
    fn each_handle_gets_the_completions_of_its_own_commands_under_its_own_ids() {
        let mut first = Shared::new(reference());
        let mut second = first.clone();
        first.submit(Instant(1), write(7, 0, 1)).unwrap();
        second.submit(Instant(1), read(7, 0, 1)).unwrap();
        second.submit(Instant(1), read(8, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut first, Instant(1)), [7]);
        assert_eq!(first.next_timeout(), None);
        assert_eq!(second.next_timeout(), Some(Instant(1)), "its completion is queued");
        assert_eq!(poll_ids(&mut second, Instant(1)), [7, 8]);
        assert_eq!(second.next_timeout(), None);
    }

    #[test]
    fn the_time_of_the_device_is_monotonic() {
        let delay =
            DelayRule { matches: Matcher::default(), when: When::Always, fixed: Duration(10), spread: Duration::ZERO };
        let mut first = Shared::new(Delay::new(reference(), vec![delay], Prng::new(1)));
        let mut second = first.clone();
        first.submit(Instant(100), read(1, 0, 1)).unwrap();
        first.poll(Instant(100), &mut CompletionQueue::new());
        second.submit(Instant(50), read(2, 0, 1)).unwrap();
        second.poll(Instant(50), &mut CompletionQueue::new());
        assert_eq!(poll_ids(&mut second, Instant(109)), [0; 0]);
        assert_eq!(poll_ids(&mut second, Instant(110)), [2], "submitted at 100 in the time of the device");
        assert_eq!(poll_ids(&mut first, Instant(110)), [1]);
    }

    #[test]
    fn a_refused_handle_is_woken_when_a_slot_becomes_free() {
        let mut first = Shared::new(Narrow::new(reference(), 1));
        let mut second = first.clone();
        first.submit(Instant(1), write(1, 0, 1)).unwrap();
        assert_eq!(second.submit(Instant(1), write(9, 1, 1)), Err(QueueFull(write(9, 1, 1))));
        assert_eq!(poll_ids(&mut first, Instant(3)), [1]);
        assert_eq!(second.next_timeout(), Some(Instant(3)));
        assert_eq!(poll_ids(&mut second, Instant(3)), [0; 0]);
        assert_eq!(second.next_timeout(), None);
        assert_eq!(run_one(&mut second, write(9, 1, 1)).status, Status::Success);
    }

    #[test]
    fn a_handle_that_never_polls_has_its_own_limit() {
        let mut lazy = Shared::new(crate::Null::new(Geometry::tiny()));
        let mut busy = lazy.clone();
        let mut taken = 0;
        while lazy.submit(Instant::ZERO, read(taken, 0, 1)).is_ok() {
            taken += 1;
            busy.poll(Instant::ZERO, &mut CompletionQueue::new());
        }
        assert_eq!(taken, SHARED_HANDLE_OUTSTANDING_MAX as u64);
        assert_eq!(run_one(&mut busy, read(1, 0, 1)).status, Status::Success);
        assert_eq!(poll_ids(&mut lazy, Instant::ZERO).len(), SHARED_HANDLE_OUTSTANDING_MAX);
        lazy.submit(Instant::ZERO, read(0, 0, 1)).unwrap();
    }

    #[test]
    fn only_the_last_handle_takes_the_device() {
        let first = Shared::new(reference());
        let mut second = first.clone();
        second.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
        let first = first.take_inner().expect_err("another handle exists");
        drop(second);
        let mut device: ReferenceDevice = first.take_inner().expect("the other handle was dropped");
        device.poll(Instant::ZERO, &mut CompletionQueue::new());
        assert_eq!(run_one(&mut device, write(1, 4, 4)).status, Status::Success, "the write was executed");
    }

    #[test]
    fn commands_of_a_dropped_handle_do_not_affect_other_handles() {
        let mut first = Shared::new(reference());
        let mut second = first.clone();
        second.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
        drop(second);
        first.submit(Instant::ZERO, read(1, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut first, Instant::ZERO), [1]);
        assert_eq!(first.handles(), 1);
    }
}
