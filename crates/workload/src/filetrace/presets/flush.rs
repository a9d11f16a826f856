//! Memtable flushes and partial compactions (Table 5, B).
//!
//! Four threads write files of some MiB to tens of MiB, all of similar lifetime. When a thread has
//! flushed six, it merges the older half into new files and deletes it: files are deleted in
//! batches. Files are contiguous, so that a host can finish a zone at the boundary of a file.

use zonda_files::Lifetime;
use zonda_zoned::Prng;

use super::PresetSize;
use super::script::{Outputs, Script, SizedFile, interleaved};
use crate::filetrace::entry::TraceEntry;

const THREADS: u32 = 4;
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files that a thread flushes before it merges half of them.
const FLUSHES: usize = 6;
/// Of eight bytes merged, the number still needed.
const KEPT_OF_EIGHT: u64 = 7;
/// Maximum number of files of a thread at one time: the oldest are deleted, as by a compaction of a
/// lower level.
const FILES_MAX: usize = 9;

pub(super) fn entries(size: PresetSize, prng: &Prng) -> Vec<TraceEntry> {
    let scripts = (0..THREADS).map(|thread| {
        let mut prng = prng.fork(&format!("thread/{thread}"));
        thread_entries(size, thread, &mut prng)
    });
    interleaved(scripts.collect())
}

fn thread_entries(size: PresetSize, thread: u32, prng: &mut Prng) -> Script {
    let most = size.part(64, FILE_BYTES_MAX);
    let least = (most / 8) >> 12 << 12;
    let mut script = Script::default();
    let mut files: Vec<SizedFile> = Vec::new();
    let mut left = size.bytes() / u64::from(THREADS);
    let mut number = 0;
    let mut name = || {
        number += 1;
        format!("sst-{thread}-{number:04}")
    };
    while left > 0 {
        let mut flushed = Vec::new();
        for _ in 0..FLUSHES {
            let bytes = (least + prng.below(most - least + 1)) >> 12 << 12;
            flushed.push(SizedFile { file: script.write_file(thread, &name(), Lifetime::Medium, bytes), bytes });
            left = left.saturating_sub(bytes);
        }
        let inputs: Vec<SizedFile> = flushed.drain(..FLUSHES / 2).collect();
        let mut outputs =
            Outputs { name: &mut name, lifetime: Lifetime::Medium, bytes_max: most, kept: KEPT_OF_EIGHT, of: 8 };
        let made = script.merge(thread, inputs, &mut outputs);
        left = left.saturating_sub(made.iter().map(|file| file.bytes).sum());
        files.extend(made.into_iter().chain(flushed));
        let excess = files.len().saturating_sub(FILES_MAX);
        files.drain(..excess).for_each(|file| script.delete(thread, file.file));
    }
    script
}
