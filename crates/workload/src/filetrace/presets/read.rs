//! Data written once and then read (Table 5, E: read-mostly).
//!
//! Two threads load files and close them. Then eight threads read: mostly single blocks at random
//! offsets of random files, and now and then a part of a file sequentially.

use zonda_files::Lifetime;
use zonda_zoned::Prng;

use super::PresetSize;
use super::script::{Script, interleaved};
use crate::filetrace::entry::{FileName, FileOperation, TraceEntry};

const LOADERS: u32 = 2;
/// The file that marks all others as loaded.
const LOADED: &str = "loaded";
const READERS: u32 = 8;
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The total size in files.
const FILES: u64 = 16;
/// Blocks read at random between two sequential runs.
const RANDOM_READS: u64 = 16;
const RANDOM_BYTES: u64 = 4 << 10;
/// A sequential run, and its requests.
const RUN_BYTES: u64 = 512 << 10;
const RUN_REQUEST_BYTES: u64 = 128 << 10;
/// Maximum number of rounds of random reads and a run, of all readers together.
const ROUNDS_MAX: u64 = 1600;

pub(super) fn entries(size: PresetSize, prng: &Prng) -> Vec<TraceEntry> {
    let file_bytes = size.part(FILES, FILE_BYTES_MAX);
    let mut files: Vec<FileName> = Vec::new();
    let loaders = (0..LOADERS).map(|thread| {
        let mut script = Script::default();
        for number in 0..FILES / u64::from(LOADERS) {
            let name = format!("data-{thread}-{number:03}");
            files.push(script.write_file(thread, &name, Lifetime::Extreme, file_bytes));
        }
        script
    });
    let mut entries = interleaved(loaders.collect());
    entries.extend(all_loaded().into_entries());
    let rounds = (size.bytes() / RUN_BYTES).min(ROUNDS_MAX) / u64::from(READERS);
    let readers = (0..READERS).map(|reader| {
        let mut prng = prng.fork(&format!("reader/{reader}"));
        reader_entries(LOADERS + reader, &files, file_bytes, rounds.max(1), &mut prng)
    });
    entries.extend(interleaved(readers.collect()));
    entries
}

/// A file that exists when every loader has finished: the last one creates it, and each renames it
/// for the one before.
fn all_loaded() -> Script {
    let mut script = Script::default();
    let name = |thread: u32| if thread == 0 { LOADED.to_owned() } else { format!("{LOADED}-{thread}") };
    let mut file = script.write_file(LOADERS - 1, &name(LOADERS - 1), Lifetime::Extreme, RANDOM_BYTES);
    for thread in (0..LOADERS - 1).rev() {
        let to: FileName = name(thread).into();
        script.add(thread, FileOperation::Rename { file, to: to.clone() });
        file = to;
    }
    script
}

fn reader_entries(thread: u32, files: &[FileName], file_bytes: u64, rounds: u64, prng: &mut Prng) -> Script {
    let mut script = Script::default();
    // A read waits for earlier changes of its file: no thread reads before everything is loaded.
    script.read(thread, &LOADED.into(), 0, RANDOM_BYTES);
    for _ in 0..rounds {
        for _ in 0..RANDOM_READS {
            let file = prng.pick(files).expect("there are files");
            let block = prng.below(file_bytes / RANDOM_BYTES);
            script.read(thread, file, block * RANDOM_BYTES, RANDOM_BYTES);
        }
        let file = prng.pick(files).expect("there are files");
        let runs = (file_bytes / RUN_BYTES).max(1);
        let start = prng.below(runs) * RUN_BYTES;
        for at in 0..RUN_BYTES / RUN_REQUEST_BYTES {
            script.read(thread, file, start + at * RUN_REQUEST_BYTES, RUN_REQUEST_BYTES);
        }
    }
    script
}
