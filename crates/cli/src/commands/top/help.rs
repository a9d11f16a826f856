//! The help that `?` shows.

use super::canvas::{BOLD, Canvas, PLAIN};

/// Keys, then figures.
const LINES: [(&str, &str); 21] = [
    ("q", "quit"),
    ("↑ ↓ ← → tab", "select a namespace"),
    ("s", "sort by bandwidth, IOPS, p99.9, or as configured"),
    ("d", "show the zones of the drive, or those of the selected namespace"),
    ("?", "show or close this help"),
    ("", ""),
    ("B/s, IOPS", "reads and writes (Zone Append, too) in the last interval"),
    ("p50, p99.9", "latency of these at the drive, from buckets of 1, 2 and 5"),
    ("active", "active zones, and the limit that hosts see"),
    ("groups", "stripe groups that can be written: 2x16 is two of width 16"),
    ("ess", "essentials: active zones of the drive that are always available"),
    ("spares", "64-8+16: 64 of its own, 8 lent to others, 16 leased from others"),
    ("used", "spares in stripe groups that can be written"),
    ("reads", "16/20: reads in flight of the window that the scheduler allows"),
    ("tokens", "bytes that the scheduler allows it to write"),
    ("▁▂█ ·", "outstanding commands of a conflict group, relative to the most"),
    ("", ""),
    ("a b c", "zones in groups of the namespaces of a pool; A: writable"),
    ("# + ~ ×", "log of the pool, reserved for groups, being reset, unusable"),
    ("▁▄█ _ ·", "how full a zone is; open or closed without data; empty"),
    ("green yellow", "open, closed; blue: full; red: offline; magenta: read only"),
];

pub(super) fn draw(canvas: &mut Canvas<'_>, top: u16, lines: u16) {
    for (line, (key, text)) in (top..top + lines).zip(LINES) {
        canvas.put(2, line, key, BOLD);
        canvas.put(16, line, text, PLAIN);
    }
}
