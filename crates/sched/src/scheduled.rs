//! [`Scheduled`]: a device whose commands wait for a scheduler.

use std::collections::VecDeque;

use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, Key, Namespaces, QueueFull, Slab, TenantId,
    ZonedDevice,
};

use crate::limits::{IN_FLIGHT_MAX, WAITING_MAX};
use crate::order::Order;
use crate::{Accepts, GroupLoad, Outcome, Request, RequestId, RequestKind, Scheduler, TableReport, TenantLoad};

/// A device around another one, in which commands wait until a [`Scheduler`] releases them. It adds
/// no time: a command that may be released at once is submitted to the device below at once.
///
/// Verbs, in the order of a command's life: `submit` adds it, `release` submits it to the device
/// below, `poll` delivers its completion. A command takes effect when it is released.
pub struct Scheduled<D> {
    inner: D,
    scheduler: Box<dyn Scheduler>,
    order: Order,
    /// Absent while the device decides whether it accepts the command.
    in_flight: Slab<Option<Flight>>,
    in_flight_max: usize,
    /// Those in flight that are no reads, and how many there may be.
    writes_in_flight: usize,
    writes_max: usize,
    merges: bool,
    dispatch_time: Duration,
    /// When the host's processor may release the next command.
    dispatches_at: Instant,
    /// Whether a command may wait for that.
    is_dispatching: bool,
    /// What the device has refused since the last completion.
    accepts: Accepts,
    /// It has refused a read, too.
    is_full: bool,
    counters: ScheduledCounters,
    /// No command waits, and the scheduler, when it was last asked for one, was told of all that has
    /// ended: it need not be asked again.
    is_resolved: bool,
    /// The releases, if they are recorded.
    releases: Option<VecDeque<CommandId>>,
    /// Reused.
    freed: Vec<RequestId>,
    scratch: CompletionQueue,
}

/// What has passed a [`Scheduled`] device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduledCounters {
    /// Commands that were submitted.
    pub submitted: u64,
    /// Those that were not released at once.
    pub waited: u64,
    /// The most that waited at a time.
    pub waiting_max: u64,
    /// Writes that were merged into others.
    pub merged: u64,
}

#[derive(Debug)]
struct Flight {
    /// The identifier of the submitter.
    id: CommandId,
    /// The commands that were merged into it.
    merged: Vec<CommandId>,
    request: Request,
    released: Instant,
}

impl<D: ZonedDevice> Scheduled<D> {
    /// A device whose commands wait for `scheduler`.
    #[must_use]
    pub fn new(inner: D, scheduler: Box<dyn Scheduler>) -> Scheduled<D> {
        let writes_max = scheduler.slots_of_writes(IN_FLIGHT_MAX);
        Scheduled {
            inner,
            scheduler,
            order: Order::default(),
            in_flight: Slab::new(),
            in_flight_max: IN_FLIGHT_MAX,
            writes_in_flight: 0,
            writes_max,
            merges: false,
            dispatch_time: Duration::ZERO,
            dispatches_at: Instant::ZERO,
            is_dispatching: false,
            accepts: Accepts::All,
            is_full: false,
            is_resolved: true,
            counters: ScheduledCounters::default(),
            releases: None,
            freed: Vec::new(),
            scratch: CompletionQueue::new(),
        }
    }

    /// The same with at most so many commands in flight at the device below.
    ///
    /// # Panics
    /// For none: no command would ever be released.
    #[must_use]
    pub fn with_in_flight_max(self, in_flight_max: usize) -> Scheduled<D> {
        assert!(in_flight_max > 0, "at least one command is in flight");
        let writes_max = self.scheduler.slots_of_writes(in_flight_max);
        Scheduled { in_flight_max, writes_max, ..self }
    }

    /// The same with writes that wait merged into one, if they follow each other in a zone and have no
    /// contents that are stored: up to the largest transfer of the device. All of them get the
    /// completion of this one write.
    #[must_use]
    pub fn merging_writes(self) -> Scheduled<D> {
        Scheduled { merges: true, ..self }
    }

    /// The same, with a processor that takes this time for each command, merged ones included, one
    /// after the other.
    #[must_use]
    pub fn with_dispatch_time(self, dispatch_time: Duration) -> Scheduled<D> {
        Scheduled { dispatch_time, ..self }
    }

    /// Records releases from now on, for an oracle that follows them.
    #[must_use]
    pub fn recording_releases(self) -> Scheduled<D> {
        Scheduled { releases: Some(VecDeque::new()), ..self }
    }

    /// The next recorded release: the command took effect after those returned before.
    pub fn take_release(&mut self) -> Option<CommandId> {
        self.releases.as_mut().and_then(VecDeque::pop_front)
    }

    /// The name of the scheduler.
    #[must_use]
    pub fn scheduler_name(&self) -> &'static str {
        self.scheduler.name()
    }

    /// From now on a tenant has this share of the device, relative to that of others.
    pub fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        self.scheduler.set_weight(tenant, weight);
    }

    /// The tenants with requests in progress, as the scheduler reports them.
    #[must_use]
    pub fn loads(&self) -> Vec<TenantLoad> {
        self.scheduler.loads()
    }

    /// The conflict groups with requests in progress, as the scheduler reports them.
    #[must_use]
    pub fn group_loads(&self) -> Vec<GroupLoad> {
        self.scheduler.group_loads()
    }

    /// What the scheduler has found about its table of conflict groups; `None` for one without.
    #[must_use]
    pub fn table(&self) -> Option<TableReport> {
        self.scheduler.table()
    }

    /// Commands that were released and have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What has passed so far.
    #[must_use]
    pub fn counters(&self) -> ScheduledCounters {
        self.counters
    }

    /// Commands that were submitted and not released.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.order.len()
    }

    /// The device below.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device below. Completions of commands submitted to it directly must not be polled for
    /// here.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Returns the device below. Commands that wait or are in flight are lost.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Checks that the owners of waiting commands agree.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        self.order.check_invariants();
        self.scheduler.check_invariants();
        assert!(self.scheduler.waiting() <= self.order.len(), "the scheduler has requests that wait");
        assert!(self.in_flight.len() <= self.in_flight_max, "a slot of the device is used once");
        let flights = self.in_flight.iter().filter_map(|(_, flight)| flight.as_ref());
        let writes = flights.filter(|flight| flight.request.kind != RequestKind::Read).count();
        assert_eq!(self.writes_in_flight, writes, "each request that is no read is counted once");
        let is_idle = self.in_flight.is_empty() && self.scheduler.next_timeout().is_none() && !self.is_refused();
        let is_idle = is_idle && !self.is_dispatching;
        assert!(!is_idle || self.order.len() == 0, "an idle device leaves no command waiting for ever");
    }

    fn is_refused(&self) -> bool {
        self.is_full || self.accepts == Accepts::Reads
    }

    /// Submits what the scheduler chooses to the device below.
    fn release(&mut self, now: Instant) {
        if self.is_resolved {
            self.is_dispatching = false;
            return;
        }
        self.release_until_busy(now);
        self.is_dispatching = now < self.dispatches_at && self.scheduler.waiting() > 0;
    }

    fn release_until_busy(&mut self, now: Instant) {
        while self.in_flight.len() < self.in_flight_max && !self.is_full && now >= self.dispatches_at {
            let Some(id) = self.scheduler.pop(now, self.accepted()) else {
                self.is_resolved = self.order.len() == 0;
                return;
            };
            let command = self.order.take_command(id);
            let own_id = command.id;
            match self.submit_below(now, command) {
                Ok(slot) => {
                    let (request, merged) = self.on_released(id, own_id);
                    self.on_submitted(slot, Flight { id: own_id, merged, request, released: now });
                }
                Err(QueueFull(command)) => {
                    self.order.put_back(id, command);
                    let request = self.order.request(id);
                    self.scheduler.put_back(id, request);
                    let kind = request.kind;
                    self.on_refused(kind);
                }
            }
        }
    }

    /// What the device accepts, and has slots for.
    fn accepted(&self) -> Accepts {
        if self.writes_in_flight < self.writes_max { self.accepts } else { Accepts::Reads }
    }

    /// Submits a command to the device below, with the number of its slot as identifier.
    fn submit_below(&mut self, now: Instant, command: Command) -> Result<Key<Option<Flight>>, QueueFull> {
        let own_id = command.id;
        let slot = self.in_flight.insert(None);
        match self.inner.submit(now, command.with_id(CommandId::from(slot))) {
            Ok(()) => Ok(slot),
            Err(QueueFull(command)) => {
                self.in_flight.remove(slot);
                Err(QueueFull(command.with_id(own_id)))
            }
        }
    }

    /// The device below has accepted a command in this slot.
    fn on_submitted(&mut self, slot: Key<Option<Flight>>, flight: Flight) {
        self.count_submitted(flight.released, 1 + flight.merged.len() as u64, flight.request.kind);
        self.in_flight[slot] = Some(flight);
    }

    /// So many commands, which are one request, were submitted to the device below.
    #[inline]
    fn count_submitted(&mut self, now: Instant, commands: u64, kind: RequestKind) {
        self.dispatches_at = now + self.dispatch_time * commands;
        self.writes_in_flight += usize::from(kind != RequestKind::Read);
    }

    /// What the device below does not accept until its next completion.
    fn on_refused(&mut self, kind: RequestKind) {
        self.accepts = Accepts::Reads;
        self.is_full = kind == RequestKind::Read;
    }

    /// Whether a command is released before it has a place among those that wait.
    fn passes(&mut self, now: Instant, request: &Request, is_last: bool) -> bool {
        let has_slot = self.in_flight.len() < self.in_flight_max && !self.is_refused() && now >= self.dispatches_at;
        let is_accepted = request.kind == RequestKind::Read || self.accepted() == Accepts::All;
        has_slot && is_accepted && self.order.len() == 0 && self.scheduler.pass(now, request, is_last)
    }

    /// Submits a command that passes to the device below. If that refuses it, it waits.
    fn release_passed(&mut self, now: Instant, command: Command, request: Request, is_last: bool) {
        let (own_id, kind) = (command.id, request.kind);
        let slot = self.in_flight.insert(Some(Flight { id: own_id, merged: Vec::new(), request, released: now }));
        if let Err(QueueFull(command)) = self.inner.submit(now, command.with_id(CommandId::from(slot))) {
            let request = self.in_flight.remove(slot).expect("it was just added").request;
            let (id, _) = self.order.insert(command.with_id(own_id), request);
            self.scheduler.put_back_passed(id, self.order.request(id));
            self.on_refused(kind);
            return self.release(now);
        }
        self.count_submitted(now, 1, kind);
        if let Some(releases) = &mut self.releases {
            releases.push_back(own_id);
        }
        // As `release` does where nothing waits.
        self.is_dispatching = false;
        self.is_resolved = is_last;
    }

    /// Merges a write into one that waits.
    fn merged(&mut self, command: Command, request: &Request) -> Result<(), Command> {
        match self.inner.namespaces().geometry(command.namespace) {
            Some(geometry) if !request.is_conventional => {
                self.order.merge(command, request, geometry.max_transfer_blocks)
            }
            _ => Err(command),
        }
    }

    fn on_released(&mut self, id: RequestId, own_id: CommandId) -> (Request, Vec<CommandId>) {
        let mut freed = std::mem::take(&mut self.freed);
        let (request, merged) = self.order.remove(id, &mut freed);
        for id in freed.drain(..) {
            self.scheduler.push(id, self.order.request(id));
        }
        self.freed = freed;
        if let Some(releases) = &mut self.releases {
            releases.push_back(own_id);
            releases.extend(&merged);
        }
        (request, merged)
    }
}

impl<D: ZonedDevice> ZonedDevice for Scheduled<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.order.len() >= WAITING_MAX {
            return Err(QueueFull(command));
        }
        let mut request = match self.inner.namespaces().geometry(command.namespace) {
            Some(geometry) => Request::of(&command, geometry, now),
            None => Request::to_nowhere(&command, now),
        };
        self.counters.submitted += 1;
        let before = self.order.len();
        let command = match self.merges {
            true => match self.merged(command, &request) {
                Ok(()) => {
                    self.counters.waited += 1;
                    self.counters.merged += 1;
                    return Ok(());
                }
                Err(command) => command,
            },
            false => command,
        };
        self.is_resolved = false;
        request.group = self.scheduler.group(&request);
        request.number = self.order.next_number();
        // Whether the scheduler would be asked for another one after it.
        let is_last = self.in_flight.len() + 1 < self.in_flight_max && self.dispatch_time == Duration::ZERO;
        if self.passes(now, &request, is_last) {
            self.release_passed(now, command, request, is_last);
        } else {
            let (id, is_free) = self.order.insert(command, request);
            if is_free {
                self.scheduler.push(id, self.order.request(id));
                self.release(now);
            }
        }
        self.counters.waited += u64::from(self.order.len() > before);
        self.counters.waiting_max = self.counters.waiting_max.max(self.order.len() as u64);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.inner.poll(now, &mut self.scratch);
        while let Some(completion) = self.scratch.pop() {
            let slot = Key::of_command(completion.id).expect("the device returns identifiers that it was given");
            let flight = self.in_flight[slot].as_mut().expect("it was accepted before it completes");
            let (id, merged) = (flight.id, std::mem::take(&mut flight.merged));
            self.writes_in_flight -= usize::from(flight.request.kind != RequestKind::Read);
            let outcome = Outcome { latency: now.since(flight.released), is_success: completion.status.is_success() };
            self.is_resolved = false;
            self.scheduler.on_completion(now, &flight.request, outcome);
            self.in_flight.discard(slot);
            if !merged.is_empty() {
                merged.into_iter().for_each(|id| completions.push(Completion { id, ..completion.clone() }));
            }
            completions.push(Completion { id, ..completion });
        }
        // A device may have refused a command with nothing in flight, so each poll tries again.
        (self.accepts, self.is_full) = (Accepts::All, false);
        self.release(now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        // A full device releases nothing before a completion.
        let has_slot = self.in_flight.len() < self.in_flight_max && !self.is_full;
        // A scheduler that waits for a time is asked again when the processor is free.
        let own = self.scheduler.next_timeout().map(|at| at.max(self.dispatches_at));
        let own = own.into_iter().chain(self.is_dispatching.then_some(self.dispatches_at)).min();
        let own = own.filter(|_| has_slot);
        self.inner.next_timeout().into_iter().chain(own).min()
    }
}
