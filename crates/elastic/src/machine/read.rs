//! Blocks of a v-zone from the zones of its groups.

use std::ops::Range;

use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Key, Lba, LbaRange, Operation, Outcome, Payload, PayloadKind, Status,
    ZoneIndex,
};

use super::{Host, HostResult, Op, Pool};
use crate::bug::SeededBug;
use crate::group::Piece;
use crate::payload::Assembly;
use crate::vzone::{Busy, VZone};

impl Pool {
    /// Submits a read that is one piece of a v-zone with nothing to do: its command to the drive stands for
    /// it. Returns whether it is one.
    pub(super) fn read_directly(&mut self, id: CommandId, namespace: u32, start: Lba, blocks: Blocks) -> bool {
        let found = self.namespaces.get_mut(&namespace).expect("a listed namespace exists");
        let Some((zone, offset)) = found.table.locate_written(start, blocks) else { return false };
        let own = &mut found.vzones[zone.as_usize()];
        let range = offset..offset + blocks.0;
        if !own.has_nothing_to_do() || range.end > own.issued || self.bug.has(SeededBug::UnreadableAsZeros) {
            return false;
        }
        let Some(group) = own.groups.iter().find(|group| offset < group.blocks().end) else { return false };
        let Some(piece) = group.piece_of_stripe(&range) else { return false };
        own.reads += 1;
        self.direct_reads += 1;
        let origin = Pool::origin_of(namespace, group);
        let operation = Operation::Read { start: self.zone_lba(piece.zone, piece.zone_block), blocks };
        self.issue(Op::DirectRead { id, namespace, vzone: zone.0 }, operation, origin);
        true
    }

    pub(super) fn on_direct_read(
        &mut self,
        id: CommandId,
        namespace: u32,
        vzone: u32,
        status: Status,
        outcome: Outcome,
    ) {
        self.direct_reads -= 1;
        let outcome = match (status.is_success(), outcome) {
            (false, _) => Outcome::None,
            (true, Outcome::Data(_)) if self.kind == PayloadKind::None => Outcome::Data(Payload::None),
            (true, outcome @ Outcome::Data(_)) => outcome,
            (true, _) => unreachable!("a successful read returns data"),
        };
        self.completions.push(Completion { id, status, outcome });
        self.on_read_left(namespace, vzone);
    }

    /// Submits a read of blocks that were submitted before. It ends its part when all have come.
    pub(super) fn issue_read(&mut self, namespace: u32, vzone: u32, host: Key<Host>, blocks: Range<u64>, at: u64) {
        // Where block 0 of the v-zone would stand in the read.
        let at = at.wrapping_sub(blocks.start);
        self.issue_pieces_of(namespace, vzone, host, blocks, |group, piece, start| {
            let operation = Operation::Read { start, blocks: Blocks(piece.blocks) };
            (Op::Read { host, namespace, vzone, group: group as u32, piece, at }, operation)
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
        self.on_read_left(namespace, vzone);
    }

    /// A piece of a read or of a deallocation is not at the drive any more.
    fn on_read_left(&mut self, namespace: u32, vzone: u32) {
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
