//! A drive, what lies around it and what is done to it, described as data and carried out.
//!
//! One TOML file holds an experiment: `[drive]` names a profile, changes numbers of it and puts layers around the drive
//! ([`DriveSpec`]); `[run]` and `[[job]]` are the load, as in `zonda-workload`. [`Experiment::parse`] checks all of it, so
//! that [`Experiment::run`] cannot fail: it builds the drive, fills zones, runs the load in virtual time and returns an
//! [`ExperimentResult`]. The same file and seed give the same result. `docs/guide/stacks.md` is the reference.
//!
//! What is absent: files (the caller hands in the text and the [`Profiles`]), clocks, printing, and stacks of
//! several drives.
//!
//! ```
//! use zonda_stack::{Experiment, Profiles};
//!
//! let profiles = Profiles::without_files(zonda_profiles::BUILTIN);
//! let text = r#"
//! [drive]
//! profile = "tiny"
//! set = { "write_buffer.capacity" = "2 MiB" }
//!
//! [[drive.layer]]
//! kind = "delay"
//! fixed = "10 us"
//!
//! [[job]]
//! operation = "append"
//! zones = "0..2"
//! block_size = "16 KiB"
//! "#;
//! let experiment = Experiment::parse(text, &profiles).expect("the file is right");
//! let result = experiment.run(&mut |_| {});
//! assert_eq!(result.drive.counters.host_write_bytes, 2 * 1536 * 1024, "two zones are full");
//!
//! let error = Experiment::parse("[drive]\nprofile = \"tinny\"\n", &profiles).expect_err("there is no such profile");
//! assert!(error.error.help.expect("a remedy").starts_with("did you mean \"tiny\"?"));
//! ```
#![forbid(unsafe_code)]

mod build;
mod drive;
mod drive_series;
mod experiment;
mod layer;
mod result;
mod volume;

pub use build::Stack;
pub use drive::{Drive, DriveSpec};
pub use drive_series::DriveSample;
pub use experiment::Experiment;
pub use layer::{FaultSpec, LayerKind, LayerSpec, WhenSpec};
pub use result::{DriveSummary, ExperimentResult, LayerResult, OperationCount, StateCount, ZoneRange};
pub use volume::{GroupSpec, LevelSpec, SegmentWord, VictimSpec, VolumeSpec, VolumeSummary};
pub use zonda_ssd::description::{ErrorSource, FoundProfile, PayloadSpec, Profiles, SpecError as StackError};

/// Named bounds of stacks.
pub mod limits {
    /// Layers around one drive.
    pub const LAYERS_MAX: usize = 16;
    /// Events that a trace layer can keep: with as many layers as are allowed, some hundred megabytes.
    pub const TRACE_EVENTS_MAX: u32 = 1 << 18;
    /// Samples of a drive in one result; a longer run keeps every second, every fourth, ...
    pub const DRIVE_SAMPLES_MAX: usize = 512;
}
