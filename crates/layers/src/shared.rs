//! [`Shared`]: several owners of one device.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, ZonedDevice,
};

use crate::limits::{SHARED_HANDLE_OUTSTANDING_MAX, SHARED_OUTSTANDING_MAX};
use crate::outstanding::Outstanding;

/// A handle on a device that others have handles on too: each clone is a device of its own, with its own command ids, and
/// gets the completions of what it submitted. Use it below several [`crate::Slice`]s of one drive, or to keep a hand on
/// a drive that lies deep in a stack.
///
/// A poll through any handle moves the device, and puts completions for others aside until they poll. Handles may be
/// driven at different instants; the device sees the latest. A handle that was refused is woken after the next
/// completion of any other, because it may have none of its own to wait for. What a dropped handle left under way
/// completes unseen.
///
/// It does not keep one owner's commands from another's zones: that is the work of a slice.
pub struct Shared<D> {
    core: Rc<RefCell<Core<D>>>,
    geometries: Rc<[(NamespaceId, Geometry)]>,
    handle: u64,
}

/// What all handles share.
struct Core<D> {
    /// Gone once the last handle has taken it out.
    inner: Option<D>,
    now: Instant,
    outstanding: Outstanding<Owner>,
    inboxes: BTreeMap<u64, Inbox>,
    handles_made: u64,
    scratch: CompletionQueue,
}

/// Whose a command is, and what its owner calls it.
struct Owner {
    handle: u64,
    id: CommandId,
}

/// What waits for one handle.
#[derive(Default)]
struct Inbox {
    ready: VecDeque<(Instant, Completion)>,
    /// Submitted and not yet handed over.
    outstanding: usize,
    /// A command was handed back since the device last completed anything.
    refused: bool,
    retry_at: Option<Instant>,
}

impl<D: ZonedDevice> Shared<D> {
    /// The first handle on a device of one namespace.
    ///
    /// # Panics
    /// When the device has no [`NamespaceId::FIRST`].
    #[must_use]
    pub fn new(inner: D) -> Shared<D> {
        Shared::with_namespaces(inner, &[NamespaceId::FIRST])
    }

    /// The first handle on a device with these namespaces. Handles tell the geometry of these alone.
    ///
    /// # Panics
    /// When the device lacks one of them.
    #[must_use]
    pub fn with_namespaces(inner: D, namespaces: &[NamespaceId]) -> Shared<D> {
        let geometries = namespaces.iter().map(|&namespace| (namespace, inner.geometry(namespace).clone())).collect();
        let core = Core {
            inner: Some(inner),
            now: Instant::ZERO,
            outstanding: Outstanding::new(SHARED_OUTSTANDING_MAX),
            inboxes: BTreeMap::from([(0, Inbox::default())]),
            handles_made: 1,
            scratch: CompletionQueue::new(),
        };
        Shared { core: Rc::new(RefCell::new(core)), geometries, handle: 0 }
    }

    /// Takes the device out, if this is the last handle: pulls the drive out from under a stack that is gone. Completions
    /// not yet polled for are lost.
    ///
    /// # Errors
    /// Hands the handle back while there are others.
    pub fn take_inner(self) -> Result<D, Shared<D>> {
        if Rc::strong_count(&self.core) > 1 {
            return Err(self);
        }
        let inner = self.core.borrow_mut().inner.take();
        Ok(inner.expect("only the last handle takes the device, and it is consumed"))
    }

    /// How many handles there are, this one included.
    #[must_use]
    pub fn handles(&self) -> usize {
        Rc::strong_count(&self.core)
    }

    /// Looks at the device. (A handle cannot lend it out as the other layers do.)
    pub fn with_inner<R>(&self, look: impl FnOnce(&D) -> R) -> R {
        look(self.core.borrow().device())
    }

    /// Reaches into the device. What is submitted to it directly must not be polled for through a handle.
    pub fn with_inner_mut<R>(&self, reach: impl FnOnce(&mut D) -> R) -> R {
        reach(self.core.borrow_mut().device_mut())
    }
}

impl<D> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("handle", &self.handle).field("handles", &Rc::strong_count(&self.core)).finish()
    }
}

impl<D> Clone for Shared<D> {
    /// A further handle, with nothing under way.
    fn clone(&self) -> Shared<D> {
        let mut core = self.core.borrow_mut();
        let handle = core.handles_made;
        core.handles_made += 1;
        core.inboxes.insert(handle, Inbox::default());
        drop(core);
        Shared { core: Rc::clone(&self.core), geometries: Rc::clone(&self.geometries), handle }
    }
}

impl<D> Drop for Shared<D> {
    fn drop(&mut self) {
        // While a panic of the device unwinds, the core is still borrowed: the inbox then goes with the core.
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.inboxes.remove(&self.handle);
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Shared<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        let found = self.geometries.iter().find(|(known, _)| *known == namespace);
        &found.unwrap_or_else(|| panic!("the shared device was given no namespace {namespace}")).1
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let mut core = self.core.borrow_mut();
        let now = core.advance(now);
        let id = command.id;
        let result =
            if core.outstanding.is_full() || core.inbox(self.handle).outstanding >= SHARED_HANDLE_OUTSTANDING_MAX {
                Err(QueueFull(command))
            } else {
                let own_id = core.outstanding.insert(Owner { handle: self.handle, id });
                core.device_mut().submit(now, Command { id: own_id, ..command }).map_err(|QueueFull(command)| {
                    core.outstanding.remove(own_id);
                    QueueFull(Command { id, ..command })
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
        let inbox = core.inbox(self.handle);
        inbox.retry_at = None;
        inbox.outstanding -= inbox.ready.len();
        for (_, completion) in inbox.ready.drain(..) {
            completions.push(completion);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let core = self.core.borrow();
        let inbox = &core.inboxes[&self.handle];
        let ready = inbox.ready.front().map(|(at, _)| *at);
        crate::earlier(crate::earlier(ready, inbox.retry_at), core.device().next_wakeup())
    }
}

impl<D> Core<D> {
    fn device(&self) -> &D {
        self.inner.as_ref().expect("a handle exists, so nobody has taken the device out")
    }

    fn device_mut(&mut self) -> &mut D {
        self.inner.as_mut().expect("a handle exists, so nobody has taken the device out")
    }

    fn inbox(&mut self, handle: u64) -> &mut Inbox {
        self.inboxes.get_mut(&handle).expect("a handle has its inbox for as long as it lives")
    }

    /// The device's clock: the latest instant that any handle has named.
    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}

impl<D: ZonedDevice> Core<D> {
    /// Polls the device, and hands what has ended to the inboxes.
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
    use zonda_zoned::{Duration, Prng, Status, reference::ReferenceDevice};

    #[test]
    fn each_handle_gets_the_completions_of_its_own_commands_under_its_own_ids() {
        let mut first = Shared::new(reference());
        let mut second = first.clone();
        first.submit(Instant(1), write(7, 0, 1)).unwrap();
        second.submit(Instant(1), read(7, 0, 1)).unwrap();
        second.submit(Instant(1), read(8, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut first, Instant(1)), [7]);
        assert_eq!(first.next_wakeup(), None);
        assert_eq!(second.next_wakeup(), Some(Instant(1)), "its completions were put aside");
        assert_eq!(poll_ids(&mut second, Instant(1)), [7, 8]);
        assert_eq!(second.next_wakeup(), None);
    }

    #[test]
    fn the_device_never_sees_time_go_back() {
        let delay =
            DelayRule { matches: Matcher::default(), when: When::Always, fixed: Duration(10), spread: Duration::ZERO };
        let mut first = Shared::new(Delay::new(reference(), vec![delay], Prng::new(1)));
        let mut second = first.clone();
        first.submit(Instant(100), read(1, 0, 1)).unwrap();
        first.poll(Instant(100), &mut CompletionQueue::new());
        second.submit(Instant(50), read(2, 0, 1)).unwrap();
        second.poll(Instant(50), &mut CompletionQueue::new());
        assert_eq!(poll_ids(&mut second, Instant(109)), [0; 0]);
        assert_eq!(poll_ids(&mut second, Instant(110)), [2], "taken at 100, as the device saw it");
        assert_eq!(poll_ids(&mut first, Instant(110)), [1]);
    }

    #[test]
    fn a_refused_handle_gets_its_command_back_and_is_woken_when_another_makes_room() {
        let mut first = Shared::new(Narrow::new(reference(), 1));
        let mut second = first.clone();
        first.submit(Instant(1), write(1, 0, 1)).unwrap();
        assert_eq!(second.submit(Instant(1), write(9, 1, 1)), Err(QueueFull(write(9, 1, 1))));
        assert_eq!(poll_ids(&mut first, Instant(3)), [1]);
        assert_eq!(second.next_wakeup(), Some(Instant(3)));
        assert_eq!(poll_ids(&mut second, Instant(3)), [0; 0]);
        assert_eq!(second.next_wakeup(), None);
        assert_eq!(run_one(&mut second, write(9, 1, 1)).status, Status::Success);
    }

    #[test]
    fn one_handle_that_never_polls_has_a_bound_of_its_own() {
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
    fn only_the_last_handle_takes_the_device_out() {
        let first = Shared::new(reference());
        let mut second = first.clone();
        second.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
        let first = first.take_inner().expect_err("there is another handle");
        drop(second);
        let mut device: ReferenceDevice = first.take_inner().expect("the other handle is gone");
        device.poll(Instant::ZERO, &mut CompletionQueue::new());
        assert_eq!(run_one(&mut device, write(1, 4, 4)).status, Status::Success, "the write had happened");
    }

    #[test]
    fn what_a_dropped_handle_left_under_way_disturbs_nobody() {
        let mut first = Shared::new(reference());
        let mut second = first.clone();
        second.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
        drop(second);
        first.submit(Instant::ZERO, read(1, 0, 1)).unwrap();
        assert_eq!(poll_ids(&mut first, Instant::ZERO), [1]);
        assert_eq!(first.handles(), 1);
    }
}
