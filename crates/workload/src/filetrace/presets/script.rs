//! Traces under construction.

use zonda_files::Lifetime;

use crate::filetrace::entry::{FileName, FileOperation, ThreadIndex, TraceEntry};

/// Bytes of one append or read of a file that is written or read sequentially.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

/// The entries of one thread, or of several in a valid order.
#[derive(Default)]
pub(super) struct Script {
    entries: Vec<TraceEntry>,
}

impl Script {
    pub(super) fn add(&mut self, thread: u32, operation: FileOperation) {
        self.entries.push(TraceEntry { thread: ThreadIndex(thread), operation });
    }

    /// A new file, open.
    pub(super) fn create(&mut self, thread: u32, name: &str, lifetime: Lifetime) -> FileName {
        let file: FileName = name.into();
        self.add(thread, FileOperation::Create { file: file.clone(), lifetime });
        file
    }

    pub(super) fn append(&mut self, thread: u32, file: &FileName, bytes: u64) {
        self.add(thread, FileOperation::Append { file: file.clone(), bytes });
    }

    pub(super) fn sync(&mut self, thread: u32, file: &FileName) {
        self.add(thread, FileOperation::Sync { file: file.clone() });
    }

    pub(super) fn close(&mut self, thread: u32, file: &FileName) {
        self.add(thread, FileOperation::Close { file: file.clone() });
    }

    pub(super) fn read(&mut self, thread: u32, file: &FileName, offset_bytes: u64, bytes: u64) {
        self.add(thread, FileOperation::Read { file: file.clone(), offset_bytes, bytes });
    }

    pub(super) fn delete(&mut self, thread: u32, file: FileName) {
        self.add(thread, FileOperation::Delete { file });
    }

    /// A whole file, written chunk by chunk and closed.
    pub(super) fn write_file(&mut self, thread: u32, name: &str, lifetime: Lifetime, bytes: u64) -> FileName {
        let file = self.create(thread, name, lifetime);
        chunks(bytes).for_each(|(_, length)| self.append(thread, &file, length));
        self.close(thread, &file);
        file
    }

    /// Merges files into new ones of at most `output_bytes`: reads a chunk, then writes as much;
    /// deletes the inputs at the end. Returns the new files. `kept` of `of` bytes are rewritten.
    pub(super) fn merge(&mut self, thread: u32, inputs: Vec<SizedFile>, outputs: &mut Outputs<'_>) -> Vec<SizedFile> {
        let mut made: Vec<SizedFile> = Vec::new();
        let mut owed = 0;
        for input in &inputs {
            for (offset, length) in chunks(input.bytes) {
                self.read(thread, &input.file, offset, length);
                owed += length * outputs.kept / outputs.of;
                while owed >= CHUNK_BYTES.min(outputs.bytes_max) {
                    let bytes = self.write_on(thread, &mut made, outputs, owed.min(CHUNK_BYTES));
                    owed -= bytes;
                }
            }
        }
        while owed > 0 {
            owed -= self.write_on(thread, &mut made, outputs, owed.min(CHUNK_BYTES));
        }
        if let Some(last) = made.last().filter(|last| last.bytes < outputs.bytes_max) {
            self.close(thread, &last.file);
        }
        inputs.into_iter().for_each(|input| self.delete(thread, input.file));
        made
    }

    /// Writes at most this many bytes to the open output, or to a new one; returns the number of
    /// bytes.
    fn write_on(&mut self, thread: u32, made: &mut Vec<SizedFile>, outputs: &mut Outputs<'_>, bytes: u64) -> u64 {
        if made.last().is_none_or(|last| last.bytes == outputs.bytes_max) {
            let file = self.create(thread, &(outputs.name)(), outputs.lifetime);
            made.push(SizedFile { file, bytes: 0 });
        }
        let last = made.last_mut().expect("the list is not empty");
        let bytes = bytes.min(outputs.bytes_max - last.bytes);
        last.bytes += bytes;
        let (file, is_full) = (last.file.clone(), last.bytes == outputs.bytes_max);
        self.append(thread, &file, bytes);
        if is_full {
            self.close(thread, &file);
        }
        bytes
    }

    pub(super) fn into_entries(self) -> Vec<TraceEntry> {
        self.entries
    }
}

/// A file and its length.
#[derive(Clone, Debug)]
pub(super) struct SizedFile {
    pub(super) file: FileName,
    pub(super) bytes: u64,
}

/// The outputs of a merge.
pub(super) struct Outputs<'a> {
    pub(super) name: &'a mut dyn FnMut() -> String,
    pub(super) lifetime: Lifetime,
    pub(super) bytes_max: u64,
    pub(super) kept: u64,
    pub(super) of: u64,
}

/// Offsets and lengths of the chunks of a file.
pub(super) fn chunks(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(CHUNK_BYTES)).map(move |at| (at * CHUNK_BYTES, CHUNK_BYTES.min(bytes - at * CHUNK_BYTES)))
}

/// Interleaves entries of threads that share no file evenly, each list in its order: the window of
/// a replay then contains the next entry of each thread.
pub(super) fn interleaved(scripts: Vec<Script>) -> Vec<TraceEntry> {
    let mut all: Vec<(u64, usize, TraceEntry)> = Vec::new();
    for (place, script) in scripts.into_iter().enumerate() {
        let count = script.entries.len() as u64;
        let share = |at: usize| (at as u64 * 2 + 1) * (1 << 32) / count;
        all.extend(script.entries.into_iter().enumerate().map(|(at, entry)| (share(at), place, entry)));
    }
    all.sort_by_key(|(share, place, _)| (*share, *place));
    all.into_iter().map(|(_, _, entry)| entry).collect()
}
