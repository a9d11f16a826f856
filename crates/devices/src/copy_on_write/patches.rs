//! [`Patches`]: an overlay of changes to a file, in memory.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The changes to a file: extents that do not overlap, by offset. An extent without bytes is zeros.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    extents: BTreeMap<u64, Extent>,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Extent {
    end: u64,
    bytes: Option<Bytes>,
}

impl Extent {
    /// The part from `from` to `to` of an extent that begins at `start`.
    fn part(&self, start: u64, from: u64, to: u64) -> Extent {
        let bytes = self.bytes.as_ref().map(|bytes| bytes.slice((from - start) as usize..(to - start) as usize));
        Extent { end: to, bytes }
    }
}

/// Overhead of an extent in memory: its entry in the map, and the reference count of its contents.
pub(crate) const EXTENT_BYTES: u64 = 128;

impl Patches {
    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes + self.extents.len() as u64 * EXTENT_BYTES
    }

    /// Writes at `offset`.
    pub(crate) fn write(&mut self, offset: u64, bytes: Bytes) {
        let end = offset + bytes.len() as u64;
        self.insert(offset, Extent { end, bytes: Some(bytes) });
    }

    /// The first offset at or after `offset` that has contents.
    pub(crate) fn next(&self, offset: u64) -> Option<u64> {
        let before = self.extents.range(..offset).next_back().filter(|(_, extent)| extent.end > offset);
        let mut from = before.into_iter().chain(self.extents.range(offset..));
        from.find(|(_, extent)| extent.bytes.is_some()).map(|(&start, _)| start.max(offset))
    }

    /// Writes zeros from `offset` to `end`, exclusive.
    pub(crate) fn zero(&mut self, offset: u64, end: u64) {
        self.insert(offset, Extent { end, bytes: None });
    }

    fn insert(&mut self, offset: u64, new: Extent) {
        if offset >= new.end {
            return;
        }
        let before = self.extents.range(..offset).next_back().filter(|(_, extent)| extent.end > offset);
        let first = before.map_or(offset, |(start, _)| *start);
        let overlapped: Vec<u64> = self.extents.range(first..new.end).map(|(start, _)| *start).collect();
        for start in overlapped {
            let Some(old) = self.extents.remove(&start) else { continue };
            self.bytes -= length_of(&old);
            if start < offset {
                self.add(start, old.part(start, start, offset));
            }
            if old.end > new.end {
                self.add(new.end, old.part(start, new.end, old.end));
            }
        }
        self.add(offset, new);
    }

    fn add(&mut self, offset: u64, extent: Extent) {
        self.bytes += length_of(&extent);
        self.extents.insert(offset, extent);
    }

    /// Applies the changes to a buffer that was read from the file at `offset`.
    pub(crate) fn apply(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (&start, extent) in self.extents.range(first..end) {
            let (from, to) = (start.max(offset), extent.end.min(end));
            if from >= to {
                continue;
            }
            let place = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            match &extent.part(start, from, to).bytes {
                Some(bytes) => place.copy_from_slice(bytes),
                None => place.fill(0),
            }
        }
    }
}

fn length_of(extent: &Extent) -> u64 {
    extent.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Prng;

    use super::*;

    #[test]
    fn overlapping_changes_read_as_the_last_one() {
        let mut prng = Prng::new(1);
        for _ in 0..200 {
            let mut plain: Vec<u8> = (0..64).map(|_| 0xff).collect();
            let mut patches = Patches::default();
            for number in 1..30 {
                let from = prng.below(64);
                let to = from + prng.below(65 - from);
                if prng.chance(1, 3) {
                    patches.zero(from, if to == 64 { u64::MAX } else { to });
                    plain[from as usize..to as usize].fill(0);
                } else {
                    patches.write(from, vec![number; (to - from) as usize].into());
                    plain[from as usize..to as usize].fill(number);
                }
                let at = prng.below(64) as usize;
                let mut read = vec![0xff; 64 - at];
                patches.apply(at as u64, &mut read);
                assert_eq!(read, plain[at..]);
                assert!(patches.bytes <= 64, "what is overwritten is freed");
                assert!(patches.memory_bytes() <= 64 + 64 * EXTENT_BYTES, "{} extents", patches.extents.len());
                let mut next = 0;
                let contents: Vec<u64> = std::iter::from_fn(|| {
                    let found = patches.next(next).filter(|&at| at < 64)?;
                    next = found + 1;
                    Some(found)
                })
                .collect();
                let written = |&at: &u64| plain[at as usize] != 0 && plain[at as usize] != 0xff;
                assert_eq!(contents, (0..64).filter(written).collect::<Vec<_>>());
            }
        }
    }
}
