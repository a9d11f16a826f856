//! Device graphs as data, and experiments on them.
//!
//! A [`Node`] describes a device: a drive, a layer over a device, or a volume over devices. What a
//! drive is depends on the caller: its [`Factory`] builds or opens the drives, and
//! [`Node::build`] builds layers and volumes on them. A layer is checked against the geometry
//! below it ([`Node::with_layers`]).
//!
//! A TOML file describes an experiment: `[drive]` names a profile, changes values of it and adds
//! layers ([`DriveSpec`]); `[volume]` makes a volume of such drives ([`VolumeSpec`]), `[elastic]` a
//! pool of namespaces on one ([`ElasticSpec`]); `[run]` and `[[job]]` are the workload, as in
//! `zonda-workload`. [`Experiment::parse`] validates all of it,
//! so that [`Experiment::run`] cannot fail: it builds the device, fills it, runs the workload in
//! virtual time and returns an [`ExperimentResult`]. The same file and seed give the same result.
//! `docs/guide/stacks.md` is the reference.
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

mod built;
mod drive;
mod drive_series;
mod elastic;
mod experiment;
mod groups;
mod hints;
mod layer;
mod node;
mod prepare;
mod result;
mod series;
mod volume;

pub use built::Stack;
pub use drive::{Drive, DriveSpec};
pub use drive_series::DriveSample;
pub use elastic::{
    ActiveZones, ElasticNamespace, ElasticNamespaceSpec, ElasticSample, ElasticSpec, ElasticSummary, GroupCount,
};
pub use experiment::Experiment;
pub use layer::{
    DelaySpec, EffectSpec, FaultSpec, Layer, LayerSpec, PolicySpec, SchedulerSpec, SliceSpec, TraceSpec, WhenSpec,
    WithinSpec, ZonesSpec,
};
pub use node::{Factory, Node, VolumeNode};
pub use result::{
    DriveSummary, ExperimentResult, LayerResult, OperationCount, StateCount, TableResult, VolumeSummary, ZoneRange,
};
pub use volume::{GroupSpec, LevelSpec, MemberSpec, VictimSpec, VolumeSpec};
pub use zonda_ssd::description::{ErrorSource, FoundProfile, PayloadSpec, Profiles, SpecError as StackError};

/// Limits of stacks.
pub mod limits {
    /// Maximum number of layers over one drive or volume.
    pub const LAYERS_MAX: usize = 16;
    /// Maximum number of events that a trace layer keeps: a few hundred megabytes with the maximum
    /// number of layers.
    pub const TRACE_EVENTS_MAX: u32 = 1 << 18;
    /// Maximum number of samples of a drive, or of a pool, in one result; a longer run keeps every
    /// second, every fourth, ...
    pub const SERIES_SAMPLES_MAX: usize = 512;
}
