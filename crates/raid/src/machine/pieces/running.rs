//! The pieces in progress.

use std::ops::{Index, IndexMut};

use zonda_zoned::{Instant, Slab};

use super::super::members::{Members, Work};
use super::{Piece, PieceKey};
use crate::tables::SegmentIndex;

/// Owns the pieces that rebuild and scrub wait for. Their owner ends or abandons them; an abandoned
/// one is dropped with its last read.
#[derive(Debug)]
pub(in crate::machine) struct Pieces {
    pieces: Slab<Piece>,
}

impl Pieces {
    pub(in crate::machine) fn new() -> Pieces {
        Pieces { pieces: Slab::new() }
    }

    pub(super) fn begin(&mut self, piece: Piece) -> PieceKey {
        self.pieces.insert(piece)
    }

    pub(super) fn end(&mut self, key: PieceKey) -> Piece {
        let piece = self.pieces.remove(key);
        assert!(piece.pending == 0 && piece.retry_at.is_none(), "a piece ends after its last read");
        piece
    }

    /// The segments that they are read from.
    pub(in crate::machine) fn segments(&self) -> impl Iterator<Item = SegmentIndex> + '_ {
        self.pieces.iter().map(|(_, piece)| piece.segment)
    }

    /// When reads of them are retried.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.pieces.iter().filter_map(|(_, piece)| piece.retry_at).min()
    }

    /// Those that are due.
    pub(super) fn due(&self, now: Instant) -> Vec<PieceKey> {
        let is_due = |piece: &Piece| piece.retry_at.is_some_and(|at| at <= now);
        self.pieces.iter().filter(|(_, piece)| is_due(piece)).map(|(key, _)| key).collect()
    }

    /// Invariants between events: a piece waits for its reads, or for their retries, and would be
    /// forgotten otherwise.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(in crate::machine) fn check_invariants(&self, members: &Members) {
        for (key, piece) in self.pieces.iter() {
            let index = key.index();
            let is_of_it = |work: &&Work| matches!(work, Work::Slots { piece, .. } | Work::SlotBlock { piece, .. } if *piece == key);
            let reads = members.in_flight().filter(is_of_it).count() as u32;
            assert_eq!(piece.pending, reads + u32::from(piece.retry_at.is_some()), "what piece {index} waits for");
            assert!(piece.pending > 0, "piece {index} waits for something");
            assert!(
                piece.stripes.is_sorted_by(|one, next| one < next),
                "the stripes of piece {index} are in their order"
            );
        }
    }
}

impl Index<PieceKey> for Pieces {
    type Output = Piece;

    fn index(&self, key: PieceKey) -> &Piece {
        &self.pieces[key]
    }
}

impl IndexMut<PieceKey> for Pieces {
    fn index_mut(&mut self, key: PieceKey) -> &mut Piece {
        &mut self.pieces[key]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zonda_zoned::{Blocks, Lba, Operation, Status};

    use super::super::super::fixtures;
    use super::super::{Owner, Run};
    use super::*;
    use crate::MemberIndex;

    fn piece(pending: u32, retry_at: Option<Instant>) -> Piece {
        Piece {
            segment: SegmentIndex(3),
            run: Run { first: 4, count: 2, is_whole_groups: true },
            owner: Owner::Scrub,
            requested: 1,
            stripes: vec![4, 5],
            pending,
            retries: 1,
            failed: Vec::new(),
            retry_at,
            is_abandoned: false,
            singly: BTreeMap::new(),
            chunks: BTreeMap::new(),
        }
    }

    fn read(members: &mut Members, piece: PieceKey) {
        let operation = Operation::Read { start: Lba(40), blocks: Blocks(2) };
        members[MemberIndex(0)].send(Work::Slots { piece, slot: 4, count: 2 }, operation);
    }

    #[test]
    fn a_piece_waits_for_each_read_of_it_and_for_those_that_are_to_be_tried_again() {
        let mut members = fixtures::members(&fixtures::spec(1, false));
        let mut pieces = Pieces::new();
        let first = pieces.begin(piece(2, None));
        let second = pieces.begin(piece(1, Some(Instant(70))));
        let third = pieces.begin(piece(1, Some(Instant(60))));
        read(&mut members, first);
        read(&mut members, first);
        pieces.check_invariants(&members);
        assert_eq!(pieces.next_retry(), Some(Instant(60)));
        assert_eq!(pieces.due(Instant(59)), []);
        assert_eq!(pieces.due(Instant(70)), [second, third]);
        let (work, _) = fixtures::end_next(&mut members, MemberIndex(0), Status::Success).expect("a read");
        assert!(matches!(work, Work::Slots { piece, .. } if piece == first));
        pieces[first].pending -= 1;
        pieces.check_invariants(&members);
        assert_eq!(pieces.segments().collect::<Vec<_>>(), [SegmentIndex(3); 3]);
    }

    #[test]
    #[should_panic(expected = "what piece 0 waits for")]
    fn a_piece_with_a_missing_read_is_a_bug() {
        let members = fixtures::members(&fixtures::spec(1, false));
        let mut pieces = Pieces::new();
        pieces.begin(piece(1, None));
        pieces.check_invariants(&members);
    }
}
