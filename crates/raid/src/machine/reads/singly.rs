//! Blocks that could not be read in one command are read one by one, independently.

use bytes::BytesMut;
use zonda_zoned::{BlockBuffer, Blocks, Operation, Outcome, Payload, Status};

use super::super::members::{Members, Work};
use super::super::requests::Requests;
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::{Ended, FetchKey, Reads};

/// The blocks of a range, as they arrive.
#[derive(Debug)]
pub(in crate::machine) struct Singly {
    blocks: Vec<Single>,
    /// Reads in flight.
    pending: u32,
}

#[derive(Clone, Debug)]
enum Single {
    /// Not needed.
    Unrequested,
    Read(BlockBuffer),
    Failed(Status),
}

impl Singly {
    /// A range of blocks, of which these are to be read.
    pub(in crate::machine) fn of(blocks: u32, requested: u32) -> Singly {
        Singly { blocks: vec![Single::Unrequested; blocks as usize], pending: requested }
    }

    /// A read of a block has ended. Returns whether it was the last.
    pub(in crate::machine) fn add(&mut self, at: u32, status: Status, outcome: Outcome, block_bytes: usize) -> bool {
        self.blocks[at as usize] = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) if status.is_success() && buffer.data.len() == block_bytes => {
                Single::Read(*buffer)
            }
            _ if status.is_success() => Single::Failed(Status::InternalError),
            _ => Single::Failed(status),
        };
        self.pending -= 1;
        self.pending == 0
    }

    /// All blocks in a row, zeros where they could not be read; and the errors of these.
    pub(in crate::machine) fn into_buffer(
        self,
        block_bytes: usize,
        metadata_bytes: usize,
    ) -> (BlockBuffer, Vec<Option<Status>>) {
        let (mut data, mut metadata) = (BytesMut::new(), BytesMut::new());
        let mut failed = Vec::new();
        for (at, block) in (1..).zip(self.blocks) {
            failed.push(match block {
                Single::Unrequested => None,
                Single::Failed(status) => Some(status),
                Single::Read(buffer) => {
                    data.extend_from_slice(&buffer.data);
                    metadata.extend_from_slice(&buffer.metadata);
                    None
                }
            });
            data.resize(at * block_bytes, 0);
            metadata.resize(at * metadata_bytes, 0);
        }
        (BlockBuffer { data: data.freeze(), metadata: metadata.freeze() }, failed)
    }
}

impl Reads {
    /// Reads the blocks of a fetch one by one; of the blocks before them in their chunk only its
    /// metadata. Returns whether that is possible.
    pub(super) fn read_singly(&mut self, members: &mut Members, segments: &Segments, key: FetchKey, from: u32) -> bool {
        let fetch = &mut self.fetches[key];
        let place = fetch.place;
        // It may have gone offline meanwhile.
        let Some(zone) = segments[place.segment].zones[place.member.as_usize()] else { return false };
        let skip = place.offset - from;
        let wanted = (skip..skip + fetch.blocks).chain((skip > 0).then_some(0));
        let requested = fetch.blocks + u32::from(skip > 0);
        fetch.singly = Some(Box::new(Singly::of(skip + fetch.blocks, requested)));
        for at in wanted {
            let start = members[place.member].lba(zone, from + at);
            let read = Operation::Read { start, blocks: Blocks(1) };
            members.send(place.member, Work::FetchBlock { fetch: key, at }, read);
        }
        true
    }

    /// One of these reads has ended.
    #[expect(clippy::too_many_arguments, reason = "the owners that a read reaches, and what has come")]
    pub(in crate::machine) fn on_fetch_block(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        requests: &mut Requests,
        (key, at): (FetchKey, u32),
        status: Status,
        outcome: Outcome,
    ) -> Option<Ended> {
        let block_bytes = spec.shape.block_bytes;
        let fetch = &mut self.fetches[key];
        let place = fetch.place;
        let singly = fetch.singly.as_mut().expect("its blocks are read one by one");
        if !singly.add(at, status, outcome, block_bytes) {
            return None;
        }
        let singly = fetch.singly.take()?;
        let metadata_bytes = usize::from(members[place.member].geometry().metadata_bytes);
        let (buffer, failed) = singly.into_buffer(block_bytes, metadata_bytes);
        self.take_fetched(spec, members, segments, requests, key, Box::new(buffer), &failed)
    }
}
