//! The extents of a file.

use zonda_zoned::ZoneIndex;

/// Consecutive blocks of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) zone: ZoneIndex,
    /// First block within the zone.
    pub(crate) start: u32,
    pub(crate) blocks: u32,
    /// Bytes at the end of the last block that are not part of the file: less than a block.
    pub(crate) padding: u32,
}

/// A run, and the offset of its first byte in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) run: Run,
}

/// The extents of one file, without holes, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtentList {
    extents: Vec<Extent>,
    len_bytes: u64,
}

impl Run {
    /// Bytes of the file.
    pub(crate) fn bytes(&self, block_bytes: u32) -> u64 {
        u64::from(self.blocks) * u64::from(block_bytes) - u64::from(self.padding)
    }

    /// The block behind the last one.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.blocks
    }

    /// Whether `next` follows this run so that both can be merged.
    pub(crate) fn is_continued_by(&self, next: &Run) -> bool {
        self.zone == next.zone && self.padding == 0 && self.end() == next.start
    }

    /// The first `blocks` blocks, and the rest; `blocks` is less than the length of the run.
    fn split(&self, blocks: u32) -> (Run, Run) {
        let first = Run { blocks, padding: 0, ..*self };
        (first, Run { start: self.start + blocks, blocks: self.blocks - blocks, ..*self })
    }
}

impl ExtentList {
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.extents.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter()
    }

    /// The extents from the one that holds byte `offset`.
    pub(crate) fn extents_at(&self, offset: u64) -> impl Iterator<Item = &Extent> {
        let first = self.extents.partition_point(|extent| extent.offset <= offset);
        self.extents[first.saturating_sub(1)..].iter().filter(move |_| offset < self.len_bytes)
    }

    /// Adds a run at the end; returns whether it became a new extent.
    pub(crate) fn push(&mut self, run: Run, block_bytes: u32) -> bool {
        let offset = self.len_bytes;
        self.len_bytes += run.bytes(block_bytes);
        if let Some(last) = self.extents.last_mut()
            && last.run.is_continued_by(&run)
        {
            last.run.blocks += run.blocks;
            last.run.padding = run.padding;
            return false;
        }
        self.extents.push(Extent { offset, run });
        true
    }

    /// The runs that hold the bytes from `offset` on, where `offset` is the start of a block of an
    /// extent.
    pub(crate) fn runs_from(&self, offset: u64, block_bytes: u32) -> impl Iterator<Item = Run> {
        self.extents_at(offset).map(move |extent| {
            let inside = offset.saturating_sub(extent.offset);
            let blocks = (inside / u64::from(block_bytes)) as u32;
            if blocks == 0 { extent.run } else { extent.run.split(blocks).1 }
        })
    }

    /// Replaces the runs that hold the bytes from `offset` on by `run`, and returns them. `None`,
    /// without a change, if the file has no such bytes or they begin or end inside a block.
    pub(crate) fn replace(&mut self, offset: u64, run: Run, block_bytes: u32) -> Option<Vec<Run>> {
        let end = offset.checked_add(run.bytes(block_bytes)).filter(|&end| end <= self.len_bytes)?;
        let first = self.extents.partition_point(|extent| extent.offset <= offset).checked_sub(1)?;
        let last = self.extents.partition_point(|extent| extent.offset < end).checked_sub(1)?;
        let (head, _) = cut(&self.extents[first], offset, block_bytes)?;
        let (_, tail) = cut(&self.extents[last], end, block_bytes)?;
        let head_blocks = head.map_or(0, |run| run.blocks);
        let tail_blocks = tail.map_or(0, |run| run.blocks);
        let mut replaced: Vec<Run> = self.extents[first..=last].iter().map(|extent| extent.run).collect();
        if tail_blocks > 0 {
            let run = replaced.last_mut()?;
            *run = run.split(run.blocks - tail_blocks).0;
        }
        if head_blocks > 0 {
            let run = replaced.first_mut()?;
            *run = run.split(head_blocks).1;
        }
        let start = self.extents[first].offset;
        let pieces = [
            head.map(|run| Extent { offset: start, run }),
            Some(Extent { offset, run }),
            tail.map(|run| Extent { offset: end, run }),
        ];
        self.extents.splice(first..=last, pieces.into_iter().flatten());
        Some(replaced)
    }

    /// Asserts that offsets follow from lengths.
    pub(crate) fn check_invariants(&self, block_bytes: u32) {
        let mut offset = 0;
        for extent in &self.extents {
            assert_eq!(extent.offset, offset, "an extent begins where the one before it ends");
            assert!(extent.run.blocks > 0 && extent.run.padding < block_bytes, "{:?} holds bytes", extent.run);
            offset += extent.run.bytes(block_bytes);
        }
        assert_eq!(self.len_bytes, offset, "the extents are the whole file");
    }
}

/// The parts of an extent before byte `at` of the file, and from it on. `None` when `at` is inside
/// a block.
fn cut(extent: &Extent, at: u64, block_bytes: u32) -> Option<(Option<Run>, Option<Run>)> {
    let inside = at.checked_sub(extent.offset)?;
    if inside == 0 {
        return Some((None, Some(extent.run)));
    }
    if inside == extent.run.bytes(block_bytes) {
        return Some((Some(extent.run), None));
    }
    if !inside.is_multiple_of(u64::from(block_bytes)) {
        return None;
    }
    let blocks = inside / u64::from(block_bytes);
    if blocks >= u64::from(extent.run.blocks) {
        return None;
    }
    let (head, tail) = extent.run.split(blocks as u32);
    Some((Some(head), Some(tail)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u32 = 512;

    fn run(zone: u32, start: u32, blocks: u32, padding: u32) -> Run {
        Run { zone: ZoneIndex(zone), start, blocks, padding }
    }

    /// For each byte of the file: its zone, block, and offset in the block.
    fn bytes(list: &ExtentList) -> Vec<(u32, u32, u64)> {
        let place = |run: Run, byte: u64| (run.zone.0, run.start + (byte / 512) as u32, byte % 512);
        list.iter().flat_map(|extent| (0..extent.run.bytes(BLOCK)).map(move |byte| place(extent.run, byte))).collect()
    }

    #[test]
    fn consecutive_runs_become_one_extent_unless_padding_is_between() {
        let mut list = ExtentList::default();
        assert!(list.push(run(3, 0, 2, 0), BLOCK));
        assert!(!list.push(run(3, 2, 1, 12), BLOCK));
        assert!(list.push(run(3, 3, 1, 0), BLOCK));
        assert!(list.push(run(4, 4, 1, 0), BLOCK));
        assert_eq!((list.count(), list.len_bytes()), (3, 4 * 512 + 500));
        list.check_invariants(BLOCK);
    }

    #[test]
    fn a_byte_is_found_in_the_extent_that_holds_it() {
        let mut list = ExtentList::default();
        list.push(run(1, 0, 2, 100), BLOCK);
        list.push(run(2, 0, 1, 0), BLOCK);
        let zone = |offset| list.extents_at(offset).next().map(|extent| extent.run.zone.0);
        assert_eq!([zone(0), zone(923), zone(924), zone(1435)], [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(zone(1436), None);
    }

    #[test]
    fn an_offset_inside_a_block_or_behind_the_end_cannot_be_replaced() {
        let mut list = ExtentList::default();
        list.push(run(1, 0, 4, 10), BLOCK);
        let before = list.clone();
        assert_eq!(list.replace(100, run(2, 0, 1, 0), BLOCK), None);
        assert_eq!(list.replace(0, run(2, 0, 4, 0), BLOCK), None);
        assert_eq!(list.replace(0, run(2, 0, 2, 1), BLOCK), None);
        assert_eq!(list.replace(u64::MAX - 3, run(2, 0, 2, 0), BLOCK), None);
        assert_eq!(list, before);
    }

    proptest! {
        #[test]
        fn replaced_bytes_are_in_their_new_place_and_all_others_stay(
            runs in prop::collection::vec((0..3u32, 0..9u32, 1..5u32, 0..512u32), 1..6),
            pick in any::<u32>(), first in 0..5u32, count in 1..5u32,
        ) {
            let mut list = ExtentList::default();
            for (zone, start, blocks, padding) in runs {
                list.push(run(zone, start, blocks, padding), BLOCK);
            }
            let extent = *list.iter().nth(pick as usize % list.count()).unwrap();
            let first = first.min(extent.run.blocks - 1);
            let count = count.min(extent.run.blocks - first);
            let padding = if first + count == extent.run.blocks { extent.run.padding } else { 0 };
            let offset = extent.offset + u64::from(first) * 512;
            let before = bytes(&list);
            let new = run(9, 70, count, padding);
            let replaced = list.replace(offset, new, BLOCK).expect("whole blocks of one extent");
            list.check_invariants(BLOCK);
            prop_assert_eq!(replaced, vec![run(extent.run.zone.0, extent.run.start + first, count, padding)]);
            let after = bytes(&list);
            prop_assert_eq!(before.len(), after.len());
            let range = offset..offset + new.bytes(BLOCK);
            for (at, (old, now)) in before.iter().zip(&after).enumerate() {
                if range.contains(&(at as u64)) {
                    let inside = at as u64 - offset;
                    prop_assert_eq!(*now, (9, 70 + (inside / 512) as u32, inside % 512));
                } else {
                    prop_assert_eq!(now, old);
                }
            }
        }
    }
}
