//! Results of an experiment: the figures of the workload, and the drive at the end.

use serde::Serialize;
use zonda_layers::{OperationKind, TraceCounters};
use zonda_raid::{Counters as VolumeCounters, MemberIndex, VolumeDevice};
use zonda_sched::TableReport;
use zonda_ssd::allocation::AllocationFacts;
use zonda_ssd::{Counters, Ssd, Utilisation, Wear};
use zonda_workload::RunResult;
use zonda_workload::lsm::StoreResult;
use zonda_zoned::{ZoneIndex, ZoneState, ZonedDevice};

use crate::{DriveSample, ElasticSummary};

/// The result of `zonda bench`; also the schema of its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentResult {
    /// Version of this layout; increases when a field changes its meaning.
    pub format: u32,
    /// The jobs' figures and the time series.
    pub run: RunResult,
    /// The result of the store, if the workload is one; then there are no jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreResult>,
    /// The result of the volume, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSummary>,
    /// The pool, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticSummary>,
    /// The counters of the drive over time, from the start of the run to the last completion.
    pub drive_series: Vec<DriveSample>,
    /// The drive at the end.
    pub drive: DriveSummary,
    /// The counters of the layers around the drive, innermost first.
    pub layers: Vec<LayerResult>,
}

/// The counters of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LayerResult {
    /// A layer that delays completions.
    Delay {
        /// Commands that match its rule.
        matched: u64,
        /// Matching commands that it delayed.
        struck: u64,
    },
    /// A layer that fails commands.
    Fault {
        /// Commands that match its rule.
        matched: u64,
        /// Matching commands that it failed.
        struck: u64,
    },
    /// A layer that records commands and completions.
    Trace {
        /// A hash of all events, in hexadecimal digits: equal for equal runs.
        hash: String,
        /// Commands by operation.
        operations: Vec<OperationCount>,
        /// The last events, a line each, the oldest first. Not in the JSON.
        #[serde(skip)]
        events: Vec<String>,
    },
    /// A layer that exposes a range of zones.
    Slice {
        /// Number of zones.
        zones: u32,
        /// Zones reported as full because the limits of the slice were exhausted.
        shown_full: u64,
    },
    /// A layer that reorders waiting commands.
    Scheduler {
        /// The name of the scheduler.
        policy: &'static str,
        /// Commands submitted to it.
        submitted: u64,
        /// Those that were not submitted to the device below at once.
        waited: u64,
        /// The most commands that waited at a time.
        waiting_max: u64,
        /// Writes that were merged into others.
        merged: u64,
        /// Its table of conflict groups; absent for a scheduler without.
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<TableResult>,
    },
}

/// What a scheduler has found about its table of conflict groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TableResult {
    /// The number of groups.
    pub groups: u32,
    /// Whether commands are ordered by it at the end.
    pub is_used: bool,
    /// How often the latencies of reads contradicted it.
    pub rejected: u64,
    /// How often they confirmed it after that.
    pub restored: u64,
}

impl From<TableReport> for TableResult {
    fn from(report: TableReport) -> TableResult {
        let TableReport { groups, is_used, rejected, restored } = report;
        TableResult { groups, is_used, rejected, restored }
    }
}

impl std::fmt::Display for TableResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.groups, self.rejected, self.is_used) {
            (0, ..) => f.write_str("no conflict groups"),
            (groups, 0, _) => write!(f, "{groups} conflict groups"),
            (groups, times, is_used) => {
                let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
                let state = if is_used { "used again" } else { "not used" };
                write!(f, "{groups} conflict groups, contradicted by latencies {times} and {state}")
            }
        }
    }
}

/// Commands of one operation that passed a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// The operation.
    pub operation: &'static str,
    /// Accepted by the device below.
    pub submitted: u64,
    /// Refused by the device below because its queue was full.
    pub refused: u64,
    /// Completed with a status other than success.
    pub failed: u64,
}

/// Figures of a volume at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeSummary {
    /// Number of members.
    pub members: u32,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Blocks written by hosts.
    pub host_blocks: u64,
    /// Blocks written to members: data, parity, padding, metadata, moved blocks.
    pub member_blocks: u64,
    /// Blocks of padding.
    pub padding_blocks: u64,
    /// Blocks moved by garbage collection.
    pub relocated_blocks: u64,
    /// Blocks written by hosts and by garbage collection, divided by those written by hosts.
    pub write_amplification: f64,
    /// Segments reclaimed.
    pub collected_segments: u64,
    /// Blocks reconstructed from their stripes.
    pub reconstructed_blocks: u64,
    /// Size of the map of logical blocks.
    pub map_bytes: u64,
    /// Current size of the compact stripe table.
    pub stripe_table_bytes: u64,
    /// Its size if all zones of all members were in segments for small requests.
    pub stripe_table_max_bytes: u64,
    /// Time from the start of the run to the end of the rebuild.
    pub rebuild_ns: Option<u64>,
    /// The member whose drive the result describes: the last that is present.
    pub drive_of_member: u32,
}

/// The state and counters of a drive.
#[derive(Clone, Debug, Serialize)]
pub struct DriveSummary {
    /// The profile's name.
    pub profile: String,
    /// The profile's title.
    pub title: String,
    /// Logical block size.
    pub block_size_bytes: u32,
    /// Zone capacity.
    pub zone_capacity_blocks: u64,
    /// Limit on active zones, if any.
    pub max_active_zones: Option<u32>,
    /// Limit on open zones, if any.
    pub max_open_zones: Option<u32>,
    /// Device-level write amplification.
    pub dlwa: f64,
    /// All counters.
    pub counters: Counters,
    /// Wear of the erase units.
    pub wear: Wear,
    /// The zones' storage elements.
    pub allocation: AllocationFacts,
    /// Busy times of the hardware.
    pub utilisation: Utilisation,
    /// Number of zones in each state.
    pub zones_by_state: Vec<StateCount>,
    /// Ranges of consecutive zones with the same state and write pointer offset.
    pub zones: Vec<ZoneRange>,
}

/// Zones in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The state, in words.
    pub state: String,
    /// Number of zones.
    pub zones: u32,
}

/// Consecutive zones with the same state and write pointer offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneRange {
    /// The first zone.
    pub first: u32,
    /// Number of zones.
    pub count: u32,
    /// Their state, in words.
    pub state: String,
    /// Blocks that the host wrote to each zone.
    pub written_blocks: u64,
}

impl ExperimentResult {
    /// Whether a job or the store failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.run.has_failed() || self.store.as_ref().is_some_and(StoreResult::has_failed)
    }
}

impl OperationCount {
    pub(crate) fn of(kind: OperationKind, counters: TraceCounters) -> OperationCount {
        let TraceCounters { submitted, refused, failed, .. } = counters;
        OperationCount { operation: kind.name(), submitted, refused, failed }
    }
}

impl VolumeSummary {
    pub(crate) fn of<D: ZonedDevice>(
        volume: &VolumeDevice<D>,
        before: VolumeCounters,
        rebuild_ns: Option<u64>,
    ) -> VolumeSummary {
        let counters = volume.volume().counters();
        let status = volume.volume().status();
        let host_blocks = counters.host_blocks - before.host_blocks;
        let relocated_blocks = counters.relocated_blocks - before.relocated_blocks;
        let block_bytes = u64::from(volume.volume().geometry().block_size_bytes);
        VolumeSummary {
            members: status.members.len() as u32,
            volume_bytes: status.volume_blocks * block_bytes,
            host_blocks,
            member_blocks: counters.member_blocks - before.member_blocks,
            padding_blocks: counters.padding_blocks - before.padding_blocks,
            relocated_blocks,
            write_amplification: (host_blocks + relocated_blocks) as f64 / host_blocks.max(1) as f64,
            collected_segments: counters.collected_segments - before.collected_segments,
            reconstructed_blocks: counters.reconstructed_blocks - before.reconstructed_blocks,
            map_bytes: status.map_bytes,
            stripe_table_bytes: status.stripe_table_bytes,
            stripe_table_max_bytes: status.stripe_table_max_bytes,
            rebuild_ns,
            drive_of_member: (0..status.members.len() as u32)
                .rev()
                .find(|member| volume.member(MemberIndex(*member as u8)).is_some())
                .expect("a volume that runs has a member"),
        }
    }
}

impl StateCount {
    /// The number of zones in each state, without states that do not occur.
    #[must_use]
    pub fn of(zones: &[ZoneRange]) -> Vec<StateCount> {
        let states = [ZoneState::NotWritePointer].into_iter().chain(ZoneState::SEQUENTIAL);
        let counts = states.map(|state| {
            let state = state.to_string();
            let zones = zones.iter().filter(|range| range.state == state).map(|range| range.count).sum();
            StateCount { state, zones }
        });
        counts.filter(|count| count.zones > 0).collect()
    }
}

impl DriveSummary {
    /// Summarizes a drive.
    #[must_use]
    pub fn of(drive: &Ssd) -> DriveSummary {
        let geometry = drive.geometry(zonda_zoned::NamespaceId::FIRST);
        let mut zones: Vec<ZoneRange> = Vec::new();
        for zone in (0..geometry.zone_count).map(ZoneIndex) {
            let view = drive.zone(zone);
            let (state, written_blocks) = (view.state.to_string(), view.written_blocks.0);
            match zones.last_mut() {
                Some(last) if last.state == state && last.written_blocks == written_blocks => last.count += 1,
                _ => zones.push(ZoneRange { first: zone.0, count: 1, state, written_blocks }),
            }
        }
        DriveSummary {
            profile: drive.profile().name.clone(),
            title: drive.profile().title.clone(),
            block_size_bytes: geometry.block_size_bytes,
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            dlwa: drive.counters().dlwa(),
            counters: drive.counters().clone(),
            wear: drive.wear(),
            allocation: drive.allocation(),
            utilisation: drive.utilisation(),
            zones_by_state: StateCount::of(&zones),
            zones,
        }
    }
}
