//! Coalesces adjacent writes to one file into one operation.
//!
//! A host that fills a zone sends many small writes at once. Each costs a system call, and where
//! the kernel cannot complete it without blocking (ext4, tmpfs), a worker thread; coalesced, they
//! cost one.

use std::collections::HashMap;

use zonda_image::{FileCommandId, ImageFile};
use zonda_ring::Bytes;

/// Bytes of one coalesced write: enough to amortize the system call, and few enough that the first
/// write is not delayed for long.
const GATHERED_BYTES_MAX: u64 = 1 << 20;

/// A write as the image asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileWrite {
    pub(crate) id: FileCommandId,
    pub(crate) file: ImageFile,
    pub(crate) offset: u64,
    pub(crate) pieces: Vec<Bytes>,
}

/// The writes of one batch.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    runs: Vec<Run>,
    /// The run that ends at this offset and can be extended.
    ends: HashMap<(ImageFile, u64), usize>,
}

/// Writes in the order of their offsets, without gaps.
#[derive(Debug)]
struct Run {
    writes: Vec<FileWrite>,
    bytes: u64,
}

impl FileWrite {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl Gathering {
    /// Adds a write, which overlaps no other.
    pub(crate) fn add(&mut self, write: FileWrite) {
        let (file, bytes) = (write.file, write.bytes());
        let end = write.offset + bytes;
        let run = match self.ends.remove(&(file, write.offset)) {
            Some(run) if self.runs[run].bytes + bytes <= GATHERED_BYTES_MAX => {
                self.runs[run].writes.push(write);
                self.runs[run].bytes += bytes;
                run
            }
            _ => {
                self.runs.push(Run { writes: vec![write], bytes });
                self.runs.len() - 1
            }
        };
        self.ends.insert((file, end), run);
    }

    /// Removes all writes: those of each operation, in the order of their offsets.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Vec<FileWrite>> {
        self.ends.clear();
        self.runs.drain(..).map(|run| run.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(writes: &[(u64, ImageFile, u64, usize)]) -> Vec<Vec<u64>> {
        let mut gathering = Gathering::default();
        for &(id, file, offset, length) in writes {
            let pieces = vec![Bytes::from(vec![0; length])];
            gathering.add(FileWrite { id: FileCommandId(id), file, offset, pieces });
        }
        gathering.drain().map(|writes| writes.iter().map(|write| write.id.0).collect()).collect()
    }

    #[test]
    fn adjacent_writes_to_one_file_are_coalesced_despite_others_in_between() {
        let (data, tags) = (ImageFile::Data, ImageFile::Tags);
        let writes = [(1, data, 0, 8), (2, tags, 0, 2), (3, data, 8, 8), (4, tags, 2, 2), (5, data, 32, 8)];
        assert_eq!(tickets(&writes), [vec![1, 3], vec![2, 4], vec![5]]);
    }

    #[test]
    fn a_run_is_extended_at_its_end_only_and_within_its_limit() {
        let data = ImageFile::Data;
        assert_eq!(tickets(&[(1, data, 8, 8), (2, data, 0, 8)]), [[1], [2]]);
        let half = GATHERED_BYTES_MAX / 2;
        let writes = [0, 1, 2].map(|index| (index, data, index * half, half as usize));
        assert_eq!(tickets(&writes), [vec![0, 1], vec![2]]);
    }
}
