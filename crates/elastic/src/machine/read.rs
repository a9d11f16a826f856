//! Blocks of a v-zone from the zones of its groups.

use std::ops::Range;

use zonda_zoned::{Blocks, Command, Key, Lba, LbaRange, Operation, Outcome, Status, ZoneIndex};

use super::{Host, HostResult, Op, Pool};
use crate::bug::SeededBug;
use crate::group::Piece;
use crate::payload::Assembly;
use crate::vzone::{Busy, VZone};

impl Pool {
    /// Submits a read of blocks that were submitted before. It ends its part when all have come.
    pub(super) fn issue_read(&mut self, namespace: u32, vzone: u32, host: Key<Host>, blocks: Range<u64>, at: u64) {
        // Where block 0 of the v-zone would stand in the read.
        let at = at.wrapping_sub(blocks.start);
        self.issue_pieces_of(namespace, vzone, host, blocks, |group, piece, start| {
            let operation = Operation::Read { start, blocks: Blocks(piece.blocks) };
            (Op::Read { host, namespace, vzone, group, piece, at }, operation)
        });
    }

    pub(super) fn issue_deallocate(&mut self, namespace: u32, vzone: u32, host: Key<Host>, blocks: Range<u64>) {
        self.issue_pieces_of(namespace, vzone, host, blocks, |_, piece, start| {
            let range = LbaRange { start, blocks: Blocks(piece.blocks) };
            (Op::Deallocate { host, namespace, vzone }, Operation::Deallocate { ranges: [range].into() })
        });
    }

    /// Submits a command for each piece of a part of a command, which ends with the last of these: from the
    /// group, the piece, and its first block on the drive. Blocks of a v-zone that were never submitted,
    /// as those behind a failed write, have no pieces.
    fn issue_pieces_of(
        &mut self,
        namespace: u32,
        vzone: u32,
        host: Key<Host>,
        blocks: Range<u64>,
        command: impl Fn(usize, Piece, Lba) -> (Op, Operation),
    ) {
        let mut pieces = std::mem::take(&mut self.scratch);
        let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while its v-zones are in use");
        let VZone { groups, issued, reads, .. } = &mut found.vzones[vzone as usize];
        let mut count = 0;
        for (index, group) in groups.iter().enumerate() {
            let range = blocks.start.max(group.blocks().start)..blocks.end.min(group.blocks().end).min(*issued);
            if range.is_empty() {
                continue;
            }
            group.pieces(range, &mut pieces);
            count += pieces.len() as u32;
            let origin = Pool::origin_of(namespace, group);
            for piece in pieces.iter().copied() {
                let start = Lba(self.drive.zone_start(ZoneIndex(piece.zone)).0 + piece.zone_block);
                let (op, operation) = command(index, piece, start);
                let id = self.ops.insert(op).into();
                self.outbox.push_back(Command::new(id, self.drive_namespace, operation).with_origin(origin));
            }
            pieces.clear();
        }
        *reads += count;
        self.scratch = pieces;
        if count == 0 {
            return self.end_part(host, Status::Success);
        }
        // The first piece takes the place of the part.
        self.hosts[host].parts += count - 1;
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
        } else if own.has_nothing_to_do() {
            return;
        }
        self.pump(namespace, vzone);
    }
}
