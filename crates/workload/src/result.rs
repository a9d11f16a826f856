//! The results of a run, in the form that is also written as JSON.

use std::fmt;

use serde::{Serialize, Serializer};
use zonda_zoned::{Geometry, Lba, Operation, Status, ZoneAction, ZoneIndex, ZoneTarget};

use crate::LatencySummary;
use crate::limits::{CONSECUTIVE_ERRORS_MAX, REFUSAL_MAX_NS, VIRTUAL_TIME_MAX_NS};

/// The results of a run. Times are in virtual time, or in that of the clock of a live run, and
/// relative to the start of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The seed, which reproduces this run.
    pub seed: u64,
    /// From the start of the run to the end of its last job.
    pub elapsed_ns: u64,
    /// From the start of the run to the completion of its last command, including uncounted ones.
    pub drained_ns: u64,
    /// Completions before this are only in the time series.
    pub ramp_ns: u64,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobResult>,
    /// Blocks that were read and verified; `None` in a run that does not verify.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_blocks: Option<u64>,
    /// The time series, from the start of the run (ramp included) to the end of its last job.
    pub series: Vec<Sample>,
    /// Whether the series ends early, at [`crate::limits::SAMPLES_MAX`] samples, or
    /// [`crate::limits::JOB_SAMPLES_MAX`] samples times jobs.
    pub series_is_cut: bool,
}

/// The results of one job. They include completions while it was measured: from the end of the ramp
/// or the job's start, whichever is later, to the job's end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// The job's name.
    pub name: String,
    /// The job's operation, as in the file.
    pub operation: &'static str,
    /// When it started.
    pub started_ns: u64,
    /// When it ended: at its time limit or that of virtual time, or with its last completion.
    pub ended_ns: u64,
    /// How long it was measured.
    pub measured_ns: u64,
    /// Why it ended.
    pub ended_by: EndReason,
    /// One entry for each kind of operation that succeeded while it was measured.
    pub kinds: Vec<KindResult>,
    /// Commands that failed, in the whole run, including the ramp and the last completions after
    /// the end.
    pub errors: Vec<ErrorCount>,
    /// Blocks that did not match the last acknowledged write, in the whole run; `None` if there
    /// were none, or without verification. They fail the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify_errors: Option<VerifyErrors>,
}

/// Blocks with wrong contents that a job read, or that its appends misplaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyErrors {
    /// Their number.
    pub blocks: u64,
    /// The first of them.
    pub first: VerifyError,
}

/// A block with wrong contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyError {
    /// The block.
    pub lba: u64,
    /// Its zone.
    pub zone: u32,
    /// When the command completed that detected it.
    pub at_ns: u64,
    /// Its contents.
    #[serde(flatten)]
    pub found: Finding,
}

/// The contents found in place of the expected ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Finding {
    /// Zeros: an acknowledged write is missing.
    Zeros,
    /// An earlier write of the same block, or one of the zone before it was reset.
    OtherWrite {
        /// Its sequence number.
        sequence: u64,
    },
    /// A block that was written to another address.
    OtherBlock {
        /// That address.
        of_lba: u64,
    },
    /// A block of the run of which only the beginning is correct.
    Damaged,
    /// Bytes that this run has not written.
    Foreign,
    /// No bytes: the device keeps none.
    Nothing,
    /// An append returned an address outside its zone.
    Misplaced,
}

/// Results of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindResult {
    /// Which.
    pub kind: RequestKind,
    /// Requests that succeeded. A striped request is one.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Bytes in a second of measured time; 0 if no time passed.
    pub bandwidth_bytes_per_second: f64,
    /// Requests in a second of measured time; 0 if no time passed.
    pub iops: f64,
    /// From the first submission of a request to the device to its completion.
    pub latency: LatencySummary,
}

/// The number of failures of a kind of command with a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    /// The kind.
    pub kind: RequestKind,
    /// The status, as text.
    #[serde(serialize_with = "in_words")]
    pub status: Status,
    /// The number.
    pub count: u64,
}

/// One interval of the time series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Start of the interval.
    pub start_ns: u64,
    /// Length of the interval; the last one may be shorter.
    pub length_ns: u64,
    /// Its completions, job by job.
    pub jobs: Vec<JobSample>,
}

/// The completions of one job in one interval, all kinds of operations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobSample {
    /// Requests that succeeded.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Mean latency, 0 without requests.
    pub mean_latency_ns: u64,
    /// 99 % took at most this, exact to two digits; 0 without requests.
    pub p99_latency_ns: u64,
}

/// A kind of command that jobs issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Zone Append.
    Append,
    /// Zone Management Send, Reset.
    Reset,
    /// Zone Management Send, Finish.
    Finish,
    /// Zone Management Send, Open.
    Open,
    /// Zone Management Send, Close.
    Close,
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum EndReason {
    /// Its time limit, or that of the run, was reached.
    Time,
    /// It had transferred its `bytes`.
    Bytes,
    /// It had issued its `operations`.
    Operations,
    /// It had processed all its zones.
    ZonesDone,
    /// It reached a full zone, with `on_full = "stop"`.
    ZoneFull,
    /// [`crate::limits::CONSECUTIVE_ERRORS_MAX`] commands of one kind in a row failed.
    Errors {
        /// The last one with this.
        #[serde(serialize_with = "in_words")]
        status: Status,
    },
    /// The device completed [`crate::limits::STANDSTILL_COMPLETIONS_MAX`] commands at one instant,
    /// and only a time limit would have ended the job.
    TimeStoodStill,
    /// The run had taken [`crate::limits::VIRTUAL_TIME_MAX_NS`].
    ClockEnd,
    /// The device accepted no command for [`crate::limits::REFUSAL_MAX_NS`] of a live run.
    Refused,
}

fn in_words<S: Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(status)
}

impl JobResult {
    /// The results of one kind of operation, if any succeeded.
    #[must_use]
    pub fn kind(&self, kind: RequestKind) -> Option<&KindResult> {
        self.kinds.iter().find(|figures| figures.kind == kind)
    }

    /// The number of failed commands.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }
}

impl JobResult {
    /// Whether the job stopped on errors, all its commands failed, or a read returned wrong data.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let stopped = matches!(self.ended_by, EndReason::Errors { .. } | EndReason::Refused);
        stopped || (self.kinds.is_empty() && !self.errors.is_empty()) || self.verify_errors.is_some()
    }
}

impl RunResult {
    /// The result of a run without jobs.
    #[must_use]
    pub fn without_jobs(seed: u64, drained_ns: u64) -> RunResult {
        RunResult {
            seed,
            elapsed_ns: drained_ns,
            drained_ns,
            ramp_ns: 0,
            jobs: Vec::new(),
            verified_blocks: None,
            series: Vec::new(),
            series_is_cut: false,
        }
    }

    /// Whether any job has failed, and the run with it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.jobs.iter().any(JobResult::has_failed)
    }
}

impl Sample {
    /// Whether nothing completed.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.iter().all(|job| job.operations == 0 && job.errors == 0)
    }
}

impl RequestKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [RequestKind; 7] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Append,
        RequestKind::Reset,
        RequestKind::Finish,
        RequestKind::Open,
        RequestKind::Close,
    ];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Append => "append",
            RequestKind::Reset => "reset",
            RequestKind::Finish => "finish",
            RequestKind::Open => "open",
            RequestKind::Close => "close",
        }
    }

    /// The command for a zone as a whole.
    pub(crate) fn management(self, geometry: &Geometry, zone: ZoneIndex) -> Operation {
        let action = match self {
            RequestKind::Reset => ZoneAction::Reset,
            RequestKind::Finish => ZoneAction::Finish,
            RequestKind::Open => ZoneAction::Open { zrwa: false },
            RequestKind::Close => ZoneAction::Close,
            RequestKind::Read | RequestKind::Write | RequestKind::Append => {
                unreachable!("a {} transfers data and manages no zone", self.name())
            }
        };
        let start: Lba = geometry.zone_start(zone);
        Operation::ManageZones { action, target: ZoneTarget::Zone(start) }
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

// The texts below contain these numbers.
const _: () = assert!(CONSECUTIVE_ERRORS_MAX == 1000 && VIRTUAL_TIME_MAX_NS == 100 * 365 * 24 * 3600 * 1_000_000_000);
const _: () = assert!(REFUSAL_MAX_NS == 30 * 1_000_000_000);

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Time => f.pad("time limit reached"),
            EndReason::Bytes => f.pad("byte limit reached"),
            EndReason::Operations => f.pad("operation limit reached"),
            EndReason::ZonesDone => f.pad("all zones processed"),
            EndReason::ZoneFull => f.pad("a zone is full"),
            EndReason::Errors { status } => f.pad(&format!("1,000 commands in a row failed, the last with: {status}")),
            EndReason::TimeStoodStill => f.pad("time does not advance on this device"),
            EndReason::ClockEnd => f.pad("virtual time ends after 100 years"),
            EndReason::Refused => f.pad("the device accepted no command for 30 s"),
        }
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of zone {}: {}", self.lba, self.zone, self.found)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Zeros => f.pad("zeros, although a write was acknowledged"),
            Finding::OtherWrite { sequence } => f.pad(&format!("an earlier write, number {sequence}")),
            Finding::OtherBlock { of_lba } => f.pad(&format!("the data of block {of_lba}")),
            Finding::Damaged => f.pad("a damaged block"),
            Finding::Foreign => f.pad("data not written by this run"),
            Finding::Nothing => f.pad("no data returned"),
            Finding::Misplaced => f.pad("an append outside its zone"),
        }
    }
}
