//! Write-ahead logs (Table 5, A: WAL and OLTP logs).
//!
//! Four streams commit: an append of 4 to 16 KiB and a sync, repeatedly. A stream often begins a
//! new segment, and a checkpoint deletes all its segments except the newest. So many small files
//! are created and deleted, and a host that separates them finishes mostly empty zones. A fifth
//! thread writes large, long-lived files, like flushes and compactions of the same system: logs and
//! large files must not disturb each other. It uses a part of the drive's write rate, like a rate
//! limiter.

use std::collections::VecDeque;

use zonda_files::Lifetime;
use zonda_zoned::{Duration, Prng};

use super::PresetSize;
use super::script::{Script, interleaved};
use crate::filetrace::entry::{FileName, FileOperation, TraceEntry};

/// Log streams.
const STREAMS: u32 = 4;
/// The share of logs in sixteenths of all bytes, and its maximum: many small commits make a replay
/// long.
const LOG_SHARE: u64 = 4;
const LOG_BYTES_MAX: u64 = 192 << 20;
const COMMIT_BYTES_MIN: u64 = 4 << 10;
const COMMIT_BYTES_MAX: u64 = 16 << 10;
/// Segments of a stream from one checkpoint to the next.
const SEGMENTS_A_CHECKPOINT: usize = 6;
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
const BULK_BYTES_MAX: u64 = 64 << 20;
/// The bulk writer uses this fraction of a drive's write rate; it writes this many bytes, then it
/// waits.
const BULK_RATE_PART: u64 = 2;
const BULK_WRITE_BYTES: u64 = 256 << 10;
/// Files of the bulk writer that exist at one time.
const BULK_FILES: usize = 24;

pub(super) fn entries(size: PresetSize, prng: &Prng) -> Vec<TraceEntry> {
    let log_bytes = (size.part(16, u64::MAX) * LOG_SHARE).min(LOG_BYTES_MAX);
    let mut scripts: Vec<Script> = (0..STREAMS)
        .map(|stream| {
            stream_entries(size, log_bytes / u64::from(STREAMS), stream, &mut prng.fork(&format!("stream/{stream}")))
        })
        .collect();
    scripts.push(bulk_entries(size, size.bytes() - log_bytes, &mut prng.fork("bulk")));
    interleaved(scripts)
}

fn stream_entries(size: PresetSize, bytes: u64, stream: u32, prng: &mut Prng) -> Script {
    let segment_bytes = size.part(192, SEGMENT_BYTES_MAX).max(COMMIT_BYTES_MAX);
    let mut script = Script::default();
    let mut segments: Vec<FileName> = Vec::new();
    let mut left = bytes;
    for number in 0.. {
        if left == 0 {
            break;
        }
        let file = script.create(stream, &format!("log-{stream}-{number:04}"), Lifetime::Short);
        let mut remaining = segment_bytes.min(left);
        left -= remaining;
        while remaining > 0 {
            let random_bytes = COMMIT_BYTES_MIN + prng.below(COMMIT_BYTES_MAX - COMMIT_BYTES_MIN + 1);
            let bytes = random_bytes.min(remaining);
            script.append(stream, &file, bytes);
            script.sync(stream, &file);
            remaining -= bytes;
        }
        script.close(stream, &file);
        segments.push(file);
        if segments.len() == SEGMENTS_A_CHECKPOINT {
            let newest = segments.pop();
            segments.drain(..).for_each(|file| script.delete(stream, file));
            segments.extend(newest);
        }
    }
    script
}

fn bulk_entries(size: PresetSize, bytes: u64, prng: &mut Prng) -> Script {
    let most = size.part(48, BULK_BYTES_MAX);
    let least = most / 3;
    let mut script = Script::default();
    let mut files = VecDeque::new();
    let mut left = bytes;
    for number in 0.. {
        if left == 0 {
            break;
        }
        let file_bytes = (least + prng.below(most - least + 1)).min(left);
        left -= file_bytes;
        files.push_back(write_paced(&mut script, size, &format!("bulk-{number:04}"), file_bytes));
        if files.len() > BULK_FILES {
            let oldest = files.pop_front().expect("there are some");
            script.delete(STREAMS, oldest);
        }
    }
    script
}

fn write_paced(script: &mut Script, size: PresetSize, name: &str, bytes: u64) -> FileName {
    let file = script.create(STREAMS, name, Lifetime::NotSet);
    let mut left = bytes;
    while left > 0 {
        let length = left.min(BULK_WRITE_BYTES);
        script.append(STREAMS, &file, length);
        if let Some(rate) = size.write_rate_bytes_per_s {
            let time = Duration::of_transfer(length, rate.div_ceil(BULK_RATE_PART));
            script.add(STREAMS, FileOperation::Think { time });
        }
        left -= length;
    }
    script.close(STREAMS, &file);
    file
}
