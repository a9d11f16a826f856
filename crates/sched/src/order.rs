//! [`Order`]: the requests that wait, and which of them must wait for others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use zonda_zoned::{Blocks, Command, CommandId, NamespaceId, Operation, Payload, Slab};

use crate::{Request, RequestId, RequestKind};

/// Zones whose lists are kept although no request waits for them.
const IDLE_ZONES_MAX: usize = 256;

/// Waiting commands. One that waits for no other is free: a scheduler may release it.
#[derive(Debug, Default)]
pub(crate) struct Order {
    waiting: Slab<Waiting>,
    zones: BTreeMap<(NamespaceId, u32), Zone>,
    /// Zones in `zones` for which no request waits.
    idle_zones: usize,
    /// Requests that touch many zones.
    wide: Vec<RequestId>,
    submitted: u64,
    /// Reused.
    found: Vec<RequestId>,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    /// Absent while it is offered to the device.
    command: Option<Command>,
    /// The commands that were merged into it.
    merged: Vec<CommandId>,
    request: Request,
    /// Earlier requests that it waits for.
    blockers: u32,
    /// Later requests that wait for it.
    waiters: Vec<RequestId>,
}

/// The waiting requests of a zone. Reads do not wait for each other.
#[derive(Debug, Default)]
struct Zone {
    reads: Vec<RequestId>,
    others: Vec<RequestId>,
}

impl Zone {
    fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.others.is_empty()
    }

    fn of(&mut self, kind: RequestKind) -> &mut Vec<RequestId> {
        if kind == RequestKind::Read { &mut self.reads } else { &mut self.others }
    }
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn request(&self, id: RequestId) -> &Request {
        &self.waiting[id.0].request
    }

    /// The number of the next request.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.submitted += 1;
        self.submitted
    }

    /// Adds a command whose request has its number; returns whether it is free.
    pub(crate) fn insert(&mut self, command: Command, request: Request) -> (RequestId, bool) {
        let mut found = std::mem::take(&mut self.found);
        self.collect_earlier(&request, &mut found);
        found.retain(|earlier| request.must_wait_for(&self.waiting[earlier.0].request));
        let (kind, namespace) = (request.kind, request.namespace);
        let (zones, is_wide) = (request.zones.clone(), request.is_wide());
        let blockers = found.len() as u32;
        let waiting = Waiting { command: Some(command), merged: Vec::new(), request, blockers, waiters: Vec::new() };
        let id = RequestId(self.waiting.insert(waiting));
        for earlier in found.drain(..) {
            self.waiting[earlier.0].waiters.push(id);
        }
        self.found = found;
        if is_wide {
            self.wide.push(id);
        } else {
            for zone in zones {
                let queue = match self.zones.entry((namespace, zone)) {
                    Entry::Vacant(place) => place.insert(Zone::default()),
                    Entry::Occupied(place) => {
                        let queue = place.into_mut();
                        self.idle_zones -= usize::from(queue.is_idle());
                        queue
                    }
                };
                queue.of(kind).push(id);
            }
        }
        (id, self.waiting[id.0].blockers == 0)
    }

    /// Adds the blocks of a write to the waiting write that ends where it begins, if it would wait for
    /// this one alone, both have no contents that are stored, and together they have `blocks_max` at
    /// most.
    ///
    /// # Errors
    /// The command, if there is no such write.
    pub(crate) fn merge(&mut self, command: Command, request: &Request, blocks_max: Blocks) -> Result<(), Command> {
        let Operation::Write { blocks: more, payload: Payload::None, .. } = command.operation else {
            return Err(command);
        };
        let mut found = std::mem::take(&mut self.found);
        self.collect_earlier(request, &mut found);
        found.retain(|earlier| request.must_wait_for(&self.waiting[earlier.0].request));
        // Of several writes of a zone that wait, each waits for all before it: the last one has no waiters.
        let last = found.iter().copied().find(|earlier| self.waiting[earlier.0].waiters.is_empty());
        let is_alone = last.is_some_and(|last| {
            found.iter().all(|earlier| *earlier == last || self.waiting[earlier.0].waiters.contains(&last))
        });
        found.clear();
        self.found = found;
        let Some(last) = last.filter(|_| is_alone && request.zones.len() == 1) else { return Err(command) };
        let waiting = &mut self.waiting[last.0];
        let earlier = &mut waiting.request;
        let is_next = earlier.blocks.end == request.blocks.start && earlier.zones == request.zones;
        let Some(Operation::Write { blocks, payload: Payload::None, .. }) =
            waiting.command.as_mut().map(|command| &mut command.operation)
        else {
            return Err(command);
        };
        if !is_next || earlier.origin != request.origin || *blocks + more > blocks_max {
            return Err(command);
        }
        *blocks += more;
        earlier.blocks.end = request.blocks.end;
        earlier.bytes += request.bytes;
        waiting.merged.push(command.id);
        Ok(())
    }

    /// The waiting requests that a new one may have to wait for.
    fn collect_earlier(&self, request: &Request, found: &mut Vec<RequestId>) {
        if request.is_wide() {
            found.extend(self.waiting.iter().map(|(key, _)| RequestId(key)));
            return;
        }
        found.extend(&self.wide);
        for zone in request.zones.clone().filter_map(|zone| self.zones.get(&(request.namespace, zone))) {
            found.extend(&zone.others);
            if request.kind != RequestKind::Read {
                found.extend(&zone.reads);
            }
        }
        if request.zones.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
    }

    /// Takes the command of a free request, to offer it to the device.
    pub(crate) fn take_command(&mut self, id: RequestId) -> Command {
        let waiting = &mut self.waiting[id.0];
        assert_eq!(waiting.blockers, 0, "a request is released after those that it waits for");
        waiting.command.take().expect("a command is offered once at a time")
    }

    /// The device has refused the command: it waits on.
    pub(crate) fn put_back(&mut self, id: RequestId, command: Command) {
        self.waiting[id.0].command = Some(command);
    }

    /// The device has accepted the command, and its effect is taken: it does not wait any more.
    /// Requests that are free without it are added to `freed`. Returns the commands that were merged
    /// into it as well.
    pub(crate) fn remove(&mut self, id: RequestId, freed: &mut Vec<RequestId>) -> (Request, Vec<CommandId>) {
        let Waiting { command, merged, request, waiters, .. } = self.waiting.remove(id.0);
        assert!(command.is_none(), "what is removed was offered to the device");
        if request.is_wide() {
            remove_from(&mut self.wide, id);
        } else {
            for zone in request.zones.clone().map(|zone| (request.namespace, zone)) {
                let queue = self.zones.get_mut(&zone).expect("a waiting request is in the queues of its zones");
                remove_from(queue.of(request.kind), id);
                // The next command is often to the same zone, whose lists are kept for a while.
                self.idle_zones += usize::from(queue.is_idle());
            }
            if self.idle_zones > IDLE_ZONES_MAX {
                self.zones.retain(|_, queue| !queue.is_idle());
                self.idle_zones = 0;
            }
        }
        for waiter in waiters {
            let waiting = &mut self.waiting[waiter.0];
            waiting.blockers -= 1;
            if waiting.blockers == 0 {
                freed.push(waiter);
            }
        }
        (request, merged)
    }

    /// Checks that queues and requests agree.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn check_invariants(&self) {
        let waiters: usize = self.waiting.iter().map(|(_, waiting)| waiting.waiters.len()).sum();
        let blockers: usize = self.waiting.iter().map(|(_, waiting)| waiting.blockers as usize).sum();
        assert_eq!(waiters, blockers, "every request that waits is known to the one that it waits for");
        let queued: usize = self.zones.values().map(|zone| zone.reads.len() + zone.others.len()).sum();
        let narrow = self.waiting.iter().filter(|(_, waiting)| !waiting.request.is_wide());
        let expected: usize = narrow.map(|(_, waiting)| waiting.request.zones.len()).sum();
        assert_eq!(queued, expected, "a request is in the queue of each of its zones");
        let idle = self.zones.values().filter(|zone| zone.is_idle()).count();
        assert_eq!(idle, self.idle_zones, "idle zones are counted");
        assert!(idle <= IDLE_ZONES_MAX, "few of them are kept");
    }
}

/// The order of these lists does not matter: all in them are earlier than what is added later.
fn remove_from(list: &mut Vec<RequestId>, id: RequestId) {
    let place = list.iter().position(|other| *other == id);
    list.swap_remove(place.expect("a waiting request is in each of its lists"));
}
