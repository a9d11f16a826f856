//! Results of a run on a simulated or an existing drive: the input of figures, pages and files.

use serde::Serialize;
use zonda_stack::{ExperimentResult, StateCount, ZoneRange};
use zonda_workload::lsm::StoreResult;
use zonda_workload::{JobResult, RunResult};
use zonda_zoned::{Geometry, ZoneDescriptor};

use crate::zone_map;

/// Version of the layout of [`LiveResult`].
const FORMAT: u32 = 1;

/// The result of a run in real time; also the schema of its JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LiveResult {
    /// Version of this layout; increases when a field changes its meaning.
    format: u32,
    /// Location of the namespace: a directory or a URL.
    pub(crate) target: String,
    /// The jobs' figures and the time series, in real time.
    pub(crate) run: RunResult,
    /// The namespace after the run.
    pub(crate) namespace: NamespaceSummary,
    /// CPU time of this process.
    pub(crate) client: ClientCost,
}

/// A namespace as it reports its zones.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NamespaceSummary {
    pub(crate) block_size_bytes: u32,
    /// Zone capacity.
    pub(crate) zone_capacity_blocks: u64,
    pub(crate) max_active_zones: Option<u32>,
    pub(crate) max_open_zones: Option<u32>,
    pub(crate) zones_by_state: Vec<StateCount>,
    /// Ranges of consecutive zones with the same state and write pointer offset. All blocks of a
    /// full zone count as written.
    pub(crate) zones: Vec<ZoneRange>,
}

/// CPU time that this process spent on a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClientCost {
    /// CPU time of all threads, user and system.
    pub(crate) cpu_ns: u64,
    /// Requests that completed in the run, including the ramp.
    pub(crate) requests: u64,
}

/// The result that figures and pages show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// A run in virtual time.
    Simulated(&'a ExperimentResult),
    /// A run in real time.
    Live(&'a LiveResult),
}

/// The zones at the end of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zones<'a> {
    pub(crate) block_size_bytes: u32,
    pub(crate) capacity_blocks: u64,
    pub(crate) max_active: Option<u32>,
    pub(crate) max_open: Option<u32>,
    pub(crate) by_state: &'a [StateCount],
    pub(crate) ranges: &'a [ZoneRange],
}

impl LiveResult {
    pub(crate) fn new(target: String, run: RunResult, namespace: NamespaceSummary, client: ClientCost) -> LiveResult {
        LiveResult { format: FORMAT, target, run, namespace, client }
    }
}

impl NamespaceSummary {
    /// Summarizes the descriptors of all zones.
    pub(crate) fn of(descriptors: &[ZoneDescriptor], geometry: &Geometry) -> NamespaceSummary {
        let zones = zone_map::of_descriptors(descriptors, geometry);
        NamespaceSummary {
            block_size_bytes: geometry.block_size_bytes,
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            zones_by_state: StateCount::of(&zones),
            zones,
        }
    }
}

impl ClientCost {
    /// Mean CPU time of a request; 0 without requests.
    pub(crate) fn per_request_ns(self) -> u64 {
        self.cpu_ns.checked_div(self.requests).unwrap_or(0)
    }
}

impl<'a> Subject<'a> {
    pub(crate) fn run(self) -> &'a RunResult {
        match self {
            Subject::Simulated(result) => &result.run,
            Subject::Live(result) => &result.run,
        }
    }

    /// The result of the key-value store, if the workload was one.
    pub(crate) fn store(self) -> Option<(&'a ExperimentResult, &'a StoreResult)> {
        match self {
            Subject::Simulated(result) => result.store.as_ref().map(|store| (result, store)),
            Subject::Live(_) => None,
        }
    }

    /// Whether a job or a store failed.
    pub(crate) fn has_failed(self) -> bool {
        match self {
            Subject::Simulated(result) => result.has_failed(),
            Subject::Live(result) => result.run.has_failed(),
        }
    }

    /// Version of the layout of the JSON.
    pub(crate) fn format(self) -> u32 {
        match self {
            Subject::Simulated(result) => result.format,
            Subject::Live(result) => result.format,
        }
    }

    /// Title of the page.
    pub(crate) fn title(self) -> &'a str {
        match self {
            Subject::Simulated(result) => &result.drive.title,
            Subject::Live(result) => &result.target,
        }
    }

    /// The clock of the run.
    pub(crate) fn kind_of_time(self) -> &'static str {
        match self {
            Subject::Simulated(_) => "virtual time",
            Subject::Live(_) => "real time",
        }
    }

    pub(crate) fn zones(self) -> Zones<'a> {
        match self {
            Subject::Simulated(ExperimentResult { drive, .. }) => Zones {
                block_size_bytes: drive.block_size_bytes,
                capacity_blocks: drive.zone_capacity_blocks,
                max_active: drive.max_active_zones,
                max_open: drive.max_open_zones,
                by_state: &drive.zones_by_state,
                ranges: &drive.zones,
            },
            Subject::Live(LiveResult { namespace, .. }) => Zones {
                block_size_bytes: namespace.block_size_bytes,
                capacity_blocks: namespace.zone_capacity_blocks,
                max_active: namespace.max_active_zones,
                max_open: namespace.max_open_zones,
                by_state: &namespace.zones_by_state,
                ranges: &namespace.zones,
            },
        }
    }
}

impl Zones<'_> {
    /// Number of zones.
    pub(crate) fn count(&self) -> u64 {
        self.by_state.iter().map(|of| u64::from(of.zones)).sum()
    }

    /// Zone capacity in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        u64::from(self.block_size_bytes).saturating_mul(self.capacity_blocks)
    }
}

/// Number of blocks of all jobs that failed verification.
pub(crate) fn wrong_blocks(jobs: &[JobResult]) -> u64 {
    jobs.iter().filter_map(|job| job.verify_errors.as_ref()).map(|wrong| wrong.blocks).sum()
}
