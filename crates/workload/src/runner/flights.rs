//! Commands in flight, and the striped requests that some of them are parts of.

use zonda_zoned::{CommandId, Instant, Key, Slab, ZoneIndex};

use crate::RequestKind;

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) worker: u32,
    pub(super) kind: RequestKind,
    pub(super) zone: ZoneIndex,
    /// The striped request it is a part of.
    pub(super) request: Option<Key<Striped>>,
    /// Whether the zone counts it among its outstanding writes.
    pub(super) is_counted_in_zone: bool,
    /// The zone's epoch when it was issued, if it is counted there.
    pub(super) epoch: u32,
    pub(super) blocks: u64,
    pub(super) issued: Instant,
}

/// A request of several commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Striped {
    pub(super) worker: u32,
    pub(super) kind: RequestKind,
    pub(super) issued: Instant,
    pub(super) blocks: u64,
    pub(super) parts_in_flight: u64,
    /// More parts will follow.
    pub(super) is_growing: bool,
    pub(super) has_failed: bool,
}

/// All commands in flight. Their identifiers are keys, reused when free.
#[derive(Debug, Default)]
pub(super) struct Flights {
    flights: Slab<Flight>,
    requests: Slab<Striped>,
}

impl Flights {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    #[inline]
    pub(super) fn begin(&mut self, flight: Flight) -> CommandId {
        CommandId::from(self.flights.insert(flight))
    }

    #[inline]
    pub(super) fn end(&mut self, id: CommandId) -> Flight {
        let flight = Key::of_command(id).and_then(|key| self.flights.take(key));
        flight.unwrap_or_else(|| panic!("the device completed command {id}, which is not outstanding"))
    }

    pub(super) fn begin_request(&mut self, worker: u32, kind: RequestKind, issued: Instant) -> Key<Striped> {
        let striped =
            Striped { worker, kind, issued, blocks: 0, parts_in_flight: 0, is_growing: true, has_failed: false };
        self.requests.insert(striped)
    }

    pub(super) fn add_part(&mut self, request: Key<Striped>, blocks: u64, is_growing: bool) {
        let striped = self.striped(request);
        striped.blocks += blocks;
        striped.parts_in_flight += 1;
        striped.is_growing = is_growing;
    }

    pub(super) fn part_ended(&mut self, request: Key<Striped>, is_success: bool) -> Striped {
        let striped = self.striped(request);
        striped.parts_in_flight -= 1;
        striped.has_failed |= !is_success;
        *striped
    }

    pub(super) fn stop_growing(&mut self, request: Key<Striped>) -> Striped {
        let striped = self.striped(request);
        striped.is_growing = false;
        *striped
    }

    pub(super) fn end_request(&mut self, request: Key<Striped>) {
        self.requests.remove(request);
    }

    fn striped(&mut self, request: Key<Striped>) -> &mut Striped {
        &mut self.requests[request]
    }
}
