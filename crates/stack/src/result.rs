//! What an experiment leaves: the load's figures, and the drive as it stands at the end.

use serde::Serialize;
use zonda_layers::{OperationKind, TraceCounters};
use zonda_ssd::allocation::AllocationFacts;
use zonda_ssd::{Counters, Ssd, Utilisation, Wear};
use zonda_workload::RunResult;
use zonda_workload::lsm::StoreResult;
use zonda_zoned::{ZoneIndex, ZoneState, ZonedDevice};

use crate::{DriveSample, VolumeSummary};

/// Everything `zonda bench` knows at the end of a run; this is also its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentResult {
    /// Version of this layout; goes up when a field changes its meaning.
    pub format: u32,
    /// The jobs' figures and the time series.
    pub run: RunResult,
    /// What a store measured, where the load is one; then there are no jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreResult>,
    /// What a volume of such drives has to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSummary>,
    /// The drive's counters as they went, from the start of the run to the last completion.
    pub drive_series: Vec<DriveSample>,
    /// The drive at the end.
    pub drive: DriveSummary,
    /// What the layers around it have seen, the innermost first.
    pub layers: Vec<LayerResult>,
}

/// What one layer has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LayerResult {
    /// A layer that holds back completions.
    Delay {
        /// Commands that it is about.
        matched: u64,
        /// Those of them that it delayed.
        struck: u64,
    },
    /// A layer that fails commands.
    Fault {
        /// Commands that it is about.
        matched: u64,
        /// Those of them that it made fail.
        struck: u64,
    },
    /// A layer that records.
    Trace {
        /// A hash of all events, in hexadecimal digits: equal for equal runs.
        hash: String,
        /// Commands by operation.
        operations: Vec<OperationCount>,
        /// The last events, a line each, the oldest first. Not in the JSON.
        #[serde(skip)]
        events: Vec<String>,
    },
    /// A layer that shows some zones.
    Slice {
        /// How many.
        zones: u32,
        /// Zones that it had to show as full because their share of resources was used up.
        shown_full: u64,
    },
}

/// Commands of one operation that passed a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// The operation.
    pub operation: &'static str,
    /// Taken by the device below.
    pub submitted: u64,
    /// Handed back for want of room.
    pub refused: u64,
    /// Ended with another status than success.
    pub failed: u64,
}

/// A drive at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct DriveSummary {
    /// The profile's name.
    pub profile: String,
    /// The profile's title.
    pub title: String,
    /// Logical block.
    pub block_size_bytes: u32,
    /// Of a zone, what can be written.
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
    /// How many zones are in each state.
    pub zones_by_state: Vec<StateCount>,
    /// Runs of neighbouring zones in the same state and equally full, in the order of the zones.
    pub zones: Vec<ZoneRange>,
}

/// Zones in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The state, in words.
    pub state: String,
    /// How many.
    pub zones: u32,
}

/// Neighbouring zones that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneRange {
    /// The first zone.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Their state, in words.
    pub state: String,
    /// Blocks the host wrote to each.
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

impl StateCount {
    /// How many zones are in each state; states without a zone are left out.
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
    /// What a drive has to show.
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
