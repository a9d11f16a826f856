//! Commands in flight, and the striped requests that some of them are parts of.

use zonda_zoned::{CommandId, Instant, ZoneIndex};

use crate::RequestKind;

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) worker: u32,
    pub(super) kind: RequestKind,
    pub(super) zone: ZoneIndex,
    /// The striped request it is a part of.
    pub(super) request: Option<u32>,
    /// Whether the zone counts it among its outstanding writes.
    pub(super) is_counted_in_zone: bool,
    /// The zone's epoch when it was issued.
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

/// All commands in flight. Ids are indices, reused when free.
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
        self.flights.entries.len() - self.flights.free.len()
    }

    #[inline]
    pub(super) fn begin(&mut self, flight: Flight) -> CommandId {
        CommandId(u64::from(self.flights.insert(flight)))
    }

    #[inline]
    pub(super) fn end(&mut self, id: CommandId) -> Flight {
        let flight = u32::try_from(id.0).ok().and_then(|index| self.flights.remove(index));
        flight.unwrap_or_else(|| panic!("the device completed command {id}, which is not outstanding"))
    }

    pub(super) fn begin_request(&mut self, worker: u32, kind: RequestKind, issued: Instant) -> u32 {
        let striped =
            Striped { worker, kind, issued, blocks: 0, parts_in_flight: 0, is_growing: true, has_failed: false };
        self.requests.insert(striped)
    }

    pub(super) fn add_part(&mut self, request: u32, blocks: u64, is_growing: bool) {
        let striped = self.striped(request);
        striped.blocks += blocks;
        striped.parts_in_flight += 1;
        striped.is_growing = is_growing;
    }

    pub(super) fn part_ended(&mut self, request: u32, is_success: bool) -> Striped {
        let striped = self.striped(request);
        striped.parts_in_flight -= 1;
        striped.has_failed |= !is_success;
        *striped
    }

    pub(super) fn stop_growing(&mut self, request: u32) -> Striped {
        let striped = self.striped(request);
        striped.is_growing = false;
        *striped
    }

    pub(super) fn end_request(&mut self, request: u32) {
        self.requests.remove(request);
    }

    fn striped(&mut self, request: u32) -> &mut Striped {
        self.requests.entries[request as usize].as_mut().expect("a request exists as long as its parts")
    }
}

/// Entries at stable indices.
#[derive(Debug)]
struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    fn insert(&mut self, entry: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(entry);
            return index;
        }
        self.entries.push(Some(entry));
        (self.entries.len() - 1) as u32
    }

    #[inline]
    fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(entry)
    }
}
