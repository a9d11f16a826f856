//! The outstanding requests of a queue: what each waits for, and the bytes that they hold.
//!
//! ```text
//! accepted --> memory --> data of the host --> device --> completed
//! ```
//!
//! A request waits for one thing at a time ([`Step`]), and skips what it does not need: a read needs
//! no data of the host, and memory for data in a capsule was admitted with the capsule. If its
//! namespace is paused, it waits for the end of the pause before it waits for memory, or before it
//! is submitted to the device.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::controller::ErrorLocation;
use crate::limits::Limits;

mod request;

pub(crate) use request::{Held, HostBytes, Request, Stage, Work};
use request::{Incoming, Step};

/// TTAG of a request: its place in [`Requests`]. Hosts return it with their data, so any value may
/// be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferTag(u16);

/// Outstanding requests of a queue, by transfer tag. The tag has the 16 bits of the wire, without a
/// generation: a host that returns an old one is refused unless the new request expects its data.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<TransferTag>,
    capacity: u16,
    /// Those that wait for memory, or for `solicited_bytes` to fall below its limit, in order.
    waiting: VecDeque<TransferTag>,
    /// Bytes that R2Ts have solicited, until the device has completed the command.
    solicited_bytes: usize,
    /// Of these, bytes that have not been received.
    missing_bytes: usize,
    /// Bytes for the host that commands in flight will return.
    expected_out_bytes: usize,
    /// See [`Request::scratch_bytes`].
    scratch_bytes: usize,
}

impl TransferTag {
    /// The tag that a host has sent, which may be of no request.
    #[inline]
    pub(crate) fn from_wire(tag: u16) -> TransferTag {
        TransferTag(tag)
    }

    #[inline]
    pub(crate) fn to_wire(self) -> u16 {
        self.0
    }
}

impl Requests {
    /// Sets how many commands the queue can hold. Slots are allocated when first needed.
    pub(crate) fn set_capacity(&mut self, entries: u16) {
        assert!(entries >= self.capacity, "outstanding requests keep their slots");
        self.capacity = entries;
    }

    /// Adds a request, unless the host has more outstanding than its queue has entries.
    #[inline]
    pub(crate) fn insert(&mut self, request: Request) -> Option<TransferTag> {
        if let Some(tag) = self.free.pop() {
            self.slots[usize::from(tag.0)] = Some(request);
            return Some(tag);
        }
        if self.slots.len() >= usize::from(self.capacity) {
            return None;
        }
        self.slots.push(Some(request));
        Some(TransferTag((self.slots.len() - 1) as u16))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tag: TransferTag) -> Option<&mut Request> {
        self.slots.get_mut(usize::from(tag.0))?.as_mut()
    }

    pub(crate) fn get(&self, tag: TransferTag) -> Option<&Request> {
        self.slots.get(usize::from(tag.0))?.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransferTag, &Request)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, request)| Some((TransferTag(index as u16), request.as_ref()?)))
    }

    /// Whether the device has a command of any of them.
    pub(crate) fn are_at_device(&self) -> bool {
        self.iter().any(|(_, request)| request.device_command().is_some())
    }

    /// Bytes for the host that commands in flight will return.
    #[inline]
    pub(crate) fn expected_out_bytes(&self) -> usize {
        self.expected_out_bytes
    }

    /// Bytes that R2Ts have solicited, until the device has completed the command.
    #[inline]
    pub(crate) fn solicited_bytes(&self) -> usize {
        self.solicited_bytes
    }

    /// Of these, bytes that have not been received.
    #[inline]
    pub(crate) fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }

    /// Bytes that are held besides those that requests will return.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.solicited_bytes + self.scratch_bytes
    }

    /// Whether any waits for memory.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first that waits for memory.
    #[inline]
    pub(crate) fn first_waiting(&self) -> Option<(TransferTag, &Request)> {
        let tag = *self.waiting.front()?;
        Some((tag, self.get(tag).expect("a request that waits has not ended")))
    }

    /// A request waits for memory, after those that do already.
    pub(crate) fn wait_for_memory(&mut self, tag: TransferTag) {
        let request = self.own(tag);
        assert!(request.step == Step::Running, "a request waits for one thing: {:?}", request.step);
        request.step = Step::Memory;
        self.waiting.push_back(tag);
    }

    /// A request that waits for memory does not any more.
    fn stop_waiting(&mut self, tag: TransferTag) {
        let place = self.waiting.iter().position(|&waiting| waiting == tag);
        self.waiting.remove(place.expect("a request that waits for memory is in the list"));
    }

    /// Memory for a request was admitted when its capsule was received.
    #[inline]
    pub(crate) fn start_at_once(&mut self, tag: TransferTag) {
        let request = self.own(tag);
        assert!(request.step == Step::Running && request.incoming.expected == 0, "all its data came in the capsule");
        assert!(request.expected_out_bytes == 0, "memory for data of the device has not been admitted");
        self.scratch_bytes += self.own(tag).scratch_bytes;
    }

    /// Memory for the first request that waits was admitted. If it has data from the host, it waits
    /// for that now, and the caller sends an R2T.
    #[inline]
    pub(crate) fn admit_first(&mut self) {
        let tag = self.waiting.pop_front().expect("memory is admitted to a request that waits");
        let request = self.own(tag);
        assert!(request.step == Step::Memory, "only requests that wait for memory are in the list");
        let incoming_bytes = request.incoming.expected as usize;
        request.solicited_bytes = incoming_bytes;
        request.step = if incoming_bytes > 0 { Step::Data } else { Step::Running };
        let (expected_out_bytes, scratch_bytes) = (request.expected_out_bytes, request.scratch_bytes);
        self.expected_out_bytes += expected_out_bytes;
        self.scratch_bytes += scratch_bytes;
        self.solicited_bytes += incoming_bytes;
        self.missing_bytes += incoming_bytes;
    }

    /// Data of a request was received; the caller has checked that it was solicited, and its offset.
    /// Returns all data with the last of it.
    #[inline]
    pub(crate) fn receive(&mut self, tag: TransferTag, data: Bytes, digest_failed: bool) -> Option<HostBytes> {
        self.missing_bytes -= data.len();
        let request = self.own(tag);
        assert!(request.step == Step::Data, "only solicited data is counted");
        let incoming = &mut request.incoming;
        incoming.digest_failed |= digest_failed;
        incoming.add(data);
        if incoming.received < incoming.expected {
            return None;
        }
        assert!(incoming.received == incoming.expected, "no more data is held than was admitted");
        request.step = Step::Running;
        Some(HostBytes { digest_failed: incoming.digest_failed, data: incoming.take() })
    }

    /// Lets a request wait until its namespace is resumed.
    pub(crate) fn hold(&mut self, tag: TransferTag, held: Held) {
        if self.own(tag).step == Step::Memory {
            assert!(held == Held::BeforeMemory, "a request that waits for memory has not started");
            self.stop_waiting(tag);
            self.own(tag).step = Step::Running;
        }
        let request = self.own(tag);
        assert!(request.step == Step::Running, "a request waits for one thing: {:?}", request.step);
        request.step = Step::Namespace(held);
    }

    /// The namespace of a request was resumed: returns its data if it has it all. Otherwise the
    /// request has to wait for memory.
    pub(crate) fn resume_held(&mut self, tag: TransferTag) -> Option<Bytes> {
        let request = self.own(tag);
        let Step::Namespace(held) = request.step else { unreachable!("only a request that was held is resumed") };
        request.step = Step::Running;
        match held {
            Held::WithData => Some(request.incoming.take()),
            Held::BeforeMemory => None,
        }
    }

    /// The namespace of a request was removed. Unless its data is on the way, the request waits for
    /// nothing more, and is to be ended: returns whether it is.
    pub(crate) fn remove_namespace(&mut self, tag: TransferTag, at: ErrorLocation) -> bool {
        let request = self.own(tag);
        request.work = Work::Removed(at);
        match request.step {
            Step::Data => return false,
            Step::Memory | Step::Namespace(Held::BeforeMemory) => {
                // Its memory has not been admitted.
                (request.expected_out_bytes, request.scratch_bytes) = (0, 0);
                if request.step == Step::Memory {
                    self.stop_waiting(tag);
                }
            }
            Step::Namespace(Held::WithData) => {}
            Step::Running | Step::Device(_) => unreachable!("commands at the device complete normally"),
        }
        self.own(tag).step = Step::Running;
        true
    }

    /// Removes a request, and frees its bytes.
    #[inline]
    pub(crate) fn remove(&mut self, tag: TransferTag) -> Option<Request> {
        let request = self.slots.get_mut(usize::from(tag.0))?.take()?;
        // Otherwise the device would complete a command of another request, or a list would name it.
        assert!(request.step == Step::Running, "a request that ends waits for nothing: {:?}", request.step);
        self.free.push(tag);
        self.solicited_bytes -= request.solicited_bytes;
        self.expected_out_bytes -= request.expected_out_bytes;
        self.scratch_bytes -= request.scratch_bytes;
        Some(request)
    }

    /// A request that this queue has.
    #[inline]
    fn own(&mut self, tag: TransferTag) -> &mut Request {
        self.get_mut(tag).expect("a request that makes progress is in the table")
    }

    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self, limits: &Limits) {
        let (mut solicited, mut expected_out, mut scratch, mut missing, mut waiting) = (0, 0, 0, 0, 0);
        for (tag, request) in self.iter() {
            assert!(request.step != Step::Running, "{tag:?} waits for something");
            solicited += request.solicited_bytes;
            if !matches!(request.step, Step::Memory | Step::Namespace(Held::BeforeMemory)) {
                expected_out += request.expected_out_bytes;
                scratch += request.scratch_bytes;
            }
            let Incoming { expected, received, .. } = request.incoming;
            assert!(received <= expected, "no more data than a command has, {tag:?}");
            if request.step == Step::Data {
                missing += (expected - received) as usize;
            }
            if request.step == Step::Memory {
                assert!(self.waiting.contains(&tag), "a request that waits for memory is in the list");
                waiting += 1;
            }
            if request.is_held() {
                assert!(matches!(request.work, Work::Io { .. }), "only I/O commands wait for a namespace");
            }
        }
        assert_eq!(waiting, self.waiting.len(), "every entry of the list waits for memory");
        assert_eq!(self.solicited_bytes, solicited, "solicited bytes are those of requests");
        assert_eq!(self.expected_out_bytes, expected_out, "expected bytes are those of requests");
        assert_eq!(self.scratch_bytes, scratch, "scratch bytes are those of requests");
        assert_eq!(self.missing_bytes, missing, "missing bytes are those of transfers");
        assert!(self.solicited_bytes <= limits.receive_bytes, "solicited bytes are within their limit");
        assert!(self.slots.len() <= usize::from(self.capacity), "no more requests than the queue has entries");
    }
}
