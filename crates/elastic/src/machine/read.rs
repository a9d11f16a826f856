//! Blocks of a v-zone from the zones of its groups.

use std::ops::Range;

use zonda_zoned::{Blocks, Key, LbaRange, Operation, Outcome, Status};

use super::{Host, HostResult, Op, Pool};
use crate::bug::SeededBug;
use crate::group::Piece;
use crate::payload::Assembly;
use crate::vzone::Busy;

impl Pool {
    /// Submits a read of blocks that were submitted before, and ends its part when all have come.
    pub(super) fn issue_read(&mut self, namespace: u32, vzone: u32, host: Key<Host>, blocks: Range<u64>, at: u64) {
        let mut pieces = self.pieces_of(namespace, vzone, &blocks);
        self.hosts[host].parts += pieces.len() as u32;
        self.vzone(namespace, vzone).reads += pieces.len() as u32;
        for (group, piece) in pieces.drain(..) {
            let origin = self.origin_of(namespace, vzone, group);
            let start = self.zone_lba(piece.zone, piece.zone_block);
            let operation = Operation::Read { start, blocks: Blocks(piece.blocks) };
            // Where the group's blocks of the read begin in it.
            let at = at.wrapping_sub(blocks.start);
            self.issue(Op::Read { host, namespace, vzone, group, piece, at }, operation, origin);
        }
        self.pieces_of_read = pieces;
        self.end_part(host, Status::Success);
    }

    pub(super) fn issue_deallocate(&mut self, namespace: u32, vzone: u32, host: Key<Host>, blocks: Range<u64>) {
        let mut pieces = self.pieces_of(namespace, vzone, &blocks);
        self.hosts[host].parts += pieces.len() as u32;
        self.vzone(namespace, vzone).reads += pieces.len() as u32;
        for (group, piece) in pieces.drain(..) {
            let origin = self.origin_of(namespace, vzone, group);
            let range = LbaRange { start: self.zone_lba(piece.zone, piece.zone_block), blocks: Blocks(piece.blocks) };
            let operation = Operation::Deallocate { ranges: [range].into() };
            self.issue(Op::Deallocate { host, namespace, vzone }, operation, origin);
        }
        self.pieces_of_read = pieces;
        self.end_part(host, Status::Success);
    }

    /// The pieces of a range, with their groups. Blocks of a v-zone that were never submitted, as
    /// those behind a failed write, have none.
    fn pieces_of(&mut self, namespace: u32, vzone: u32, blocks: &Range<u64>) -> Vec<(usize, Piece)> {
        let mut found = std::mem::take(&mut self.pieces_of_read);
        let mut pieces = std::mem::take(&mut self.scratch);
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        for (index, group) in own.groups.iter().enumerate() {
            let range = blocks.start.max(group.blocks().start)..blocks.end.min(group.blocks().end).min(own.issued);
            if range.start < range.end {
                group.pieces(range, &mut pieces);
                found.extend(pieces.drain(..).map(|piece| (index, piece)));
            }
        }
        self.scratch = pieces;
        found
    }

    /// A piece of a read has come; `at` is where block 0 of the v-zone would stand in the read.
    pub(super) fn on_piece_read(
        &mut self,
        host: Key<Host>,
        (namespace, vzone, group): (u32, u32, usize),
        piece: &Piece,
        at: u64,
        mut status: Status,
        outcome: Outcome,
    ) {
        if status.is_success() {
            let group = &self.namespaces[&namespace].vzones[vzone as usize].groups[group];
            let HostResult::Read(assembly) = &mut self.hosts[host].result else {
                unreachable!("the command is a read")
            };
            let Outcome::Data(payload) = outcome else { unreachable!("a successful read returns data") };
            let is_ok = match assembly.blocks(self.format) {
                Some(blocks) if blocks == piece.blocks && group.runs(piece).count() == 1 => {
                    *assembly = Assembly::Whole(payload);
                    true
                }
                _ => {
                    let runs =
                        group.runs(piece).map(|(offset, block, blocks)| (offset, block.wrapping_add(at), blocks));
                    assembly.add(&payload, runs, self.format)
                }
            };
            if !is_ok {
                status = Status::InternalError;
            }
        }
        if self.bug.has(SeededBug::UnreadableAsZeros) {
            status = Status::Success;
        }
        self.on_read_ended(host, namespace, vzone, status);
    }

    pub(super) fn on_read_ended(&mut self, host: Key<Host>, namespace: u32, vzone: u32, status: Status) {
        self.end_part(host, status);
        let own = self.vzone(namespace, vzone);
        own.reads -= 1;
        if own.busy == Some(Busy::Reclaim) {
            self.continue_reclaim();
        }
        self.pump(namespace, vzone);
    }
}
