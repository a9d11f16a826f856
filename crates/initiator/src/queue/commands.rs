//! The table of a queue's outstanding commands, indexed by command identifier.

use bytes::{Bytes, BytesMut};
use zonda_nvme::tcp::zeros;
use zonda_zoned::{Instant, Key};

use crate::flights::Flight;
use crate::limits::QUEUE_DEPTH_MAX;

/// A command identifier (CID). Its low bits are an index in the table, the others a generation, so
/// that a late or duplicate response does not complete another command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cid(pub(super) u16);

/// Bits of a [`Cid`] that are the index.
const INDEX_BITS: u32 = 12;
const INDEX_MASK: u16 = (1 << INDEX_BITS) - 1;
const _: () = assert!(QUEUE_DEPTH_MAX <= INDEX_MASK);

/// Zeros that are sent in one piece.
const ZEROS_BYTES: u32 = 64 << 10;

/// The owner of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The step in progress.
    Procedure,
    /// The keep alive timer.
    KeepAlive,
    /// The asynchronous event request.
    AsyncEvent,
    /// A command of the user.
    Flight(Key<Flight>),
}

/// Data that goes to the controller.
#[derive(Clone, Debug)]
pub(crate) enum HostData {
    /// These bytes.
    Bytes(Bytes),
    /// So many zeros.
    Zeros(u32),
}

/// A command's data, as its submitter describes it.
#[derive(Clone, Debug)]
pub(crate) enum CommandData {
    /// No data.
    None,
    /// A buffer for data from the controller.
    ToHost(u32),
    /// Data for the controller.
    FromHost(HostData),
}

/// An R2T of the controller whose data has not been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) tag: u16,
    pub(super) length: u32,
}

/// The state of a command's data transfer.
#[derive(Debug)]
pub(super) enum Transfer {
    /// No data, or in-capsule data.
    None,
    /// Data from the controller.
    Receive(Received),
    /// Data that the controller solicits.
    Send { data: HostData, sent: u32, request: Option<Request> },
}

/// Data received from the controller.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) expected: u32,
    pub(super) received: u32,
    pub(super) damaged: bool,
    /// The data, if it came in one PDU.
    whole: Bytes,
    /// The data, if it came in several PDUs.
    assembled: BytesMut,
}

/// One outstanding command.
#[derive(Debug)]
pub(super) struct Slot {
    /// The identifier of its command, or of the next one.
    id: Cid,
    is_used: bool,
    pub(super) owner: Owner,
    pub(super) submitted: Instant,
    pub(super) transfer: Transfer,
}

/// All outstanding commands of a queue.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Vec<Slot>,
    /// The identifiers of the unused slots.
    free: Vec<Cid>,
}

impl Cid {
    fn index(self) -> usize {
        usize::from(self.0 & INDEX_MASK)
    }

    /// The identifier of the next command in the same slot.
    fn next_generation(self) -> Cid {
        Cid(self.0.wrapping_add(1 << INDEX_BITS))
    }
}

impl HostData {
    pub(crate) fn len(&self) -> u32 {
        match self {
            HostData::Bytes(bytes) => bytes.len() as u32,
            HostData::Zeros(length) => *length,
        }
    }

    /// The bytes `offset..offset + length` in pieces.
    pub(super) fn pieces(&self, offset: u32, length: u32) -> Pieces {
        match self {
            HostData::Bytes(bytes) => Pieces::One([bytes.slice(offset as usize..(offset + length) as usize)]),
            HostData::Zeros(_) => Pieces::Several(zeros(length as usize).collect()),
        }
    }

    /// All data in one piece, if that needs no copy.
    pub(super) fn one_piece(&self) -> Option<Bytes> {
        match self {
            HostData::Bytes(bytes) => Some(bytes.clone()),
            HostData::Zeros(length) if self.is_one_piece() => zeros(*length as usize).next(),
            HostData::Zeros(_) => None,
        }
    }

    /// Whether there is [`HostData::one_piece`].
    #[inline]
    pub(super) fn is_one_piece(&self) -> bool {
        match self {
            HostData::Bytes(_) => true,
            HostData::Zeros(length) => *length <= ZEROS_BYTES,
        }
    }
}

/// Pieces of data without a list where there is only one.
pub(super) enum Pieces {
    One([Bytes; 1]),
    Several(Vec<Bytes>),
}

impl Pieces {
    pub(super) fn as_slice(&self) -> &[Bytes] {
        match self {
            Pieces::One(one) => one,
            Pieces::Several(several) => several,
        }
    }
}

impl Received {
    pub(super) fn new(expected: u32) -> Received {
        Received { expected, received: 0, damaged: false, whole: Bytes::new(), assembled: BytesMut::new() }
    }

    /// Adds the next bytes; the caller has checked that they fit.
    pub(super) fn add(&mut self, data: Bytes) {
        assert!(data.len() as u32 <= self.expected - self.received, "the length was checked");
        if self.received == 0 {
            self.received = data.len() as u32;
            self.whole = data;
            return;
        }
        if self.assembled.is_empty() {
            self.assembled.reserve(self.expected as usize);
            self.assembled.extend_from_slice(&std::mem::take(&mut self.whole));
        }
        self.received += data.len() as u32;
        self.assembled.extend_from_slice(&data);
    }

    pub(super) fn into_bytes(self) -> Bytes {
        if self.assembled.is_empty() { self.whole } else { self.assembled.freeze() }
    }
}

impl Commands {
    pub(super) fn new(depth: u16) -> Commands {
        assert!(depth <= QUEUE_DEPTH_MAX, "the depth of a queue was checked");
        Commands {
            slots: (0..depth)
                .map(|index| Slot {
                    id: Cid(index),
                    is_used: false,
                    owner: Owner::Procedure,
                    submitted: Instant::ZERO,
                    transfer: Transfer::None,
                })
                .collect(),
            free: (0..depth).rev().map(Cid).collect(),
        }
    }

    pub(super) fn has_free_slot(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Allocates a slot, and returns the command identifier.
    pub(super) fn insert(&mut self, now: Instant, owner: Owner, transfer: Transfer) -> Cid {
        let id = self.free.pop().expect("a free slot was checked before");
        let slot = &mut self.slots[id.index()];
        assert!(slot.id == id && !slot.is_used, "the identifier of a free slot is that of its next command");
        slot.is_used = true;
        slot.owner = owner;
        slot.submitted = now;
        slot.transfer = transfer;
        id
    }

    /// The outstanding command with an identifier.
    #[inline]
    pub(super) fn find(&mut self, id: Cid) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.index())?;
        (slot.is_used && slot.id == id).then_some(slot)
    }

    /// Removes a command that was found.
    #[inline]
    pub(super) fn remove(&mut self, id: Cid) -> (Owner, Transfer) {
        let slot = self.find(id).expect("the command was found before");
        slot.is_used = false;
        slot.id = id.next_generation();
        let ended = (slot.owner, std::mem::replace(&mut slot.transfer, Transfer::None));
        self.free.push(id.next_generation());
        ended
    }

    /// When the oldest command was submitted, except event requests, which may wait forever.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.slots
            .iter()
            .filter(|slot| slot.is_used && slot.owner != Owner::AsyncEvent)
            .map(|slot| slot.submitted)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_of_a_completed_command_is_not_found_when_its_slot_is_reused() {
        let mut commands = Commands::new(1);
        let first = commands.insert(Instant(1), Owner::KeepAlive, Transfer::None);
        assert!(!commands.has_free_slot());
        assert_eq!(commands.remove(first).0, Owner::KeepAlive);
        assert!(commands.find(first).is_none());
        let second = commands.insert(Instant(2), Owner::Procedure, Transfer::None);
        assert_ne!(first, second);
        assert!(commands.find(first).is_none());
        assert_eq!(commands.oldest(), Some(Instant(2)));
        assert!(commands.find(Cid(INDEX_MASK)).is_none());
    }

    #[test]
    fn data_in_one_pdu_is_not_copied_and_data_in_several_is_assembled() {
        let data = Bytes::from(vec![5; 100]);
        let mut received = Received::new(100);
        received.add(data.clone());
        assert_eq!(received.into_bytes().as_ptr(), data.as_ptr());
        let mut received = Received::new(100);
        for part in [0..10, 10..99, 99..100] {
            received.add(data.slice(part));
        }
        assert_eq!((received.received, received.into_bytes()), (100, data));
    }

    #[test]
    fn a_few_zeros_are_sent_in_one_piece() {
        assert_eq!(HostData::Zeros(4096).one_piece().map(|zeros| zeros.len()), Some(4096));
        assert_eq!(HostData::Zeros(ZEROS_BYTES).one_piece().map(|zeros| zeros.len()), Some(ZEROS_BYTES as usize));
        assert_eq!(HostData::Zeros(1 << 20).one_piece(), None);
        let pieces = HostData::Zeros(1 << 20).pieces(5, 200_000);
        assert_eq!(pieces.as_slice().iter().map(Bytes::len).sum::<usize>(), 200_000);
    }
}
