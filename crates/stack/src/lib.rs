//! Experiments: a simulated drive, layers around it, and a workload, described in a file.
//!
//! A TOML file describes an experiment: `[drive]` names a profile, changes values of it and adds
//! layers ([`DriveSpec`]); `[run]` and `[[job]]` are the workload, as in `zonda-workload`.
//! [`Experiment::parse`] validates all of it, so that [`Experiment::run`] cannot fail: it builds
//! the drive, fills zones, runs the workload in virtual time and returns an [`ExperimentResult`].
//! The same file and seed give the same result. `docs/guide/stacks.md` is the reference.
//!
//! Not part of this crate: file access (the caller passes the text and the [`Profiles`]), clocks
//! and printing.
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
//! let experiment = Experiment::parse(text, &profiles).expect("the file is valid");
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

/// Limits of stacks.
pub mod limits {
    /// Maximum number of layers around one drive.
    pub const LAYERS_MAX: usize = 16;
    /// Maximum number of events that a trace layer keeps: a few hundred megabytes with the maximum
    /// number of layers.
    pub const TRACE_EVENTS_MAX: u32 = 1 << 18;
    /// Maximum number of samples of a drive in one result; a longer run keeps every second, every
    /// fourth, ...
    pub const DRIVE_SAMPLES_MAX: usize = 512;
}
