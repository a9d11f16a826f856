//! Bulk ingest and major compactions (Table 5, C).
//!
//! Two threads write large files, two each; then each merges its two with its earlier output,
//! reading and writing sequentially, and deletes the inputs. Few files are written at a time;
//! throughput matters.

use zonda_files::Lifetime;

use super::PresetSize;
use super::script::{Outputs, Script, SizedFile, interleaved};
use crate::filetrace::entry::TraceEntry;

const THREADS: u32 = 2;
/// Merges of a thread.
const ROUNDS: u32 = 2;
/// Files ingested for each merge.
const INGESTED: u32 = 2;
/// The total size in ingested files: in each thread, two rounds ingest two each and merge two, and
/// then four.
const PARTS: u64 = 20;
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(super) fn entries(size: PresetSize) -> Vec<TraceEntry> {
    interleaved((0..THREADS).map(|thread| thread_entries(size, thread)).collect())
}

fn thread_entries(size: PresetSize, thread: u32) -> Script {
    let file_bytes = size.part(PARTS, FILE_BYTES_MAX);
    let mut script = Script::default();
    let mut merged: Vec<SizedFile> = Vec::new();
    for round in 0..ROUNDS {
        for ingested in 0..INGESTED {
            let name = format!("ingest-{thread}-{round}-{ingested}");
            let file = script.write_file(thread, &name, Lifetime::Long, file_bytes);
            merged.push(SizedFile { file, bytes: file_bytes });
        }
        let mut number = 0;
        let mut name = || {
            number += 1;
            format!("merged-{thread}-{round}-{number}")
        };
        let lifetime = Lifetime::Extreme;
        // One output for each merge: a file of a last level.
        let bytes_max = file_bytes * u64::from(INGESTED) * u64::from(round + 1);
        let mut outputs = Outputs { name: &mut name, lifetime, bytes_max, kept: 1, of: 1 };
        merged = script.merge(thread, merged, &mut outputs);
    }
    script
}
