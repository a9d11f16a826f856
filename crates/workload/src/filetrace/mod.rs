//! Loads of file operations: traces of the requests of a storage engine to its file system, and
//! their replay.
//!
//! A trace is a list of [`TraceEntry`]: threads that create, append to, sync, close, read, rename
//! and delete files, and think in between. Its text form is in `docs/guide/file-traces.md`;
//! [`Trace::parse`] reads it, [`write_trace`] writes it. [`Preset`] generates five of them, typical
//! loads of databases. [`Replay`] executes a trace on a file store on any
//! [`ZonedDevice`](zonda_zoned::ZonedDevice), in virtual time, and measures its duration and the
//! space that the store needed ([`ReplayResult`]).
//!
//! Each thread has one operation in progress and continues when it has ended. Operations of several
//! threads on one file keep the order of the trace, except reads among themselves: so a trace that
//! can be executed line by line can be executed on any drive, whatever its speed.
//!
//! What is absent: files of this machine, contents (a trace has only lengths), and the drive.
//!
//! ```
//! use zonda_files::FilesConfig;
//! use zonda_workload::filetrace::{Replay, Trace};
//! use zonda_zoned::reference::ReferenceDevice;
//! use zonda_zoned::{Blocks, Geometry, Instant, PayloadKind};
//!
//! let trace = Trace::parse("zonda-file-trace 1\n0 create log short\n0 append log 8KiB\n0 sync log\n0 delete log\n")
//!     .expect("the trace is valid");
//! let zones = Blocks(256);
//! let geometry = Geometry { zone_size_blocks: zones, zone_capacity_blocks: zones, ..Geometry::tiny() };
//! let drive = ReferenceDevice::new(geometry, PayloadKind::None);
//! let config = FilesConfig { keeps: PayloadKind::None, ..FilesConfig::default() };
//! let replay = Replay::format(drive, config, Instant::ZERO).expect("the drive is large enough for a file store");
//! let (result, _drive) = replay.run(trace.entries());
//! assert!(result.end.is_complete(), "{}", result.end);
//! assert_eq!(result.entries, 4);
//! ```

mod check;
mod entry;
pub mod limits;
mod presets;
mod replay;
mod text;

pub use entry::{FileName, FileOperation, OperationKind, ThreadIndex, TraceEntry};
pub use presets::{Preset, PresetSize};
pub use replay::{KindSummary, Replay, ReplayResult, TraceEnd};
pub use text::{Entries, Trace, TraceFacts, write_trace};
