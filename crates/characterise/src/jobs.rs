//! Loads as jobs of the load generator, and the zones that each of them uses.

use zonda_config::{ByteSize, IndexSet, TimeSpan, unplaced};
use zonda_workload::{Fraction, JobOperation, JobSpec, OnFull, Prefill, RunSpec};
use zonda_zoned::{Blocks, Duration, Geometry, ZoneIndex};

use crate::limits::{INTERVALS, RAMP_PERCENT};
use crate::{Kind, Load};

/// Bytes that one writer could write in a second, from which the number of its zones follows.
const WRITER_BYTES_PER_SECOND: u64 = 8_000_000_000;
/// Zones that are finished in a run.
const FINISHED_ZONES: usize = 64;

/// A job, the zones that must be filled before, and those that it changes.
pub(crate) struct PlannedJob {
    pub(crate) spec: JobSpec,
    pub(crate) fills: Vec<(ZoneIndex, Blocks)>,
    pub(crate) changes: Vec<ZoneIndex>,
}

/// The settings of a run of this time. Without a ramp all commands count: those that manage zones
/// may be few.
pub(crate) fn run_spec(seed: u64, time: Duration, has_ramp: bool) -> RunSpec {
    let span = |nanoseconds: u64| Some(unplaced(TimeSpan(nanoseconds.max(1))));
    RunSpec {
        seed,
        ramp: span(time.0 * RAMP_PERCENT / 100).filter(|_| has_ramp && time.0 > 1),
        time: span(time.0),
        sample: span(time.0 / INTERVALS),
        verify: None,
    }
}

/// A job with the name of its place in the run.
fn job(place: usize, operation: JobOperation, zones: Vec<u32>) -> Option<JobSpec> {
    let mut spec = JobSpec::new(operation);
    spec.name = Some(unplaced(format!("load{place}")));
    spec.zones = Some(unplaced(IndexSet::list(zones).ok()?));
    Some(spec)
}

/// Random reads of zones that have data.
pub(crate) fn reads(
    place: usize,
    load: &Load,
    zones: &[(ZoneIndex, Blocks)],
    geometry: &Geometry,
) -> Option<PlannedJob> {
    let chosen = &zones[..zones.len().min(load.zones as usize)];
    let least = chosen.iter().map(|(_, blocks)| *blocks).min()?;
    let mut spec = job(place, JobOperation::Randread, chosen.iter().map(|(zone, _)| zone.0).collect())?;
    spec.block_size = Some(unplaced(ByteSize(load.size_bytes)));
    spec.queue_depth = Some(unplaced(load.queue_depth));
    let share = least.0 as f64 / geometry.zone_capacity_blocks.0 as f64;
    spec.prefill = Some(unplaced(Prefill(share)));
    (least.bytes(geometry.block_size_bytes) >= load.size_bytes).then_some(PlannedJob {
        spec,
        fills: Vec::new(),
        changes: Vec::new(),
    })
}

/// Writes or appends to empty zones, as many of which are taken as the time may need.
pub(crate) fn writes(
    place: usize,
    load: &Load,
    free: &mut &[ZoneIndex],
    most: usize,
    time: Duration,
    geometry: &Geometry,
) -> Option<PlannedJob> {
    let writers = load.zones as usize;
    let bytes = (u128::from(WRITER_BYTES_PER_SECOND) * u128::from(time.0) / 1_000_000_000) as u64;
    let of_writer = 1 + bytes / writers as u64 / geometry.zone_capacity_bytes().max(1);
    let wanted = (writers as u64).saturating_mul(of_writer) as usize;
    let zones = take(free, wanted.min(most / writers.max(1) * writers))?;
    writers_in(place, load, zones, OnFull::Next)
}

/// Writes that last as long as the run: each writer has a zone, and resets it when it is full.
pub(crate) fn lasting_writes(place: usize, load: &Load, free: &mut &[ZoneIndex], most: usize) -> Option<PlannedJob> {
    let zones = take(free, most.min(load.zones as usize))?;
    writers_in(place, load, zones, OnFull::Reset)
}

fn writers_in(place: usize, load: &Load, zones: Vec<ZoneIndex>, on_full: OnFull) -> Option<PlannedJob> {
    if zones.len() < load.zones as usize {
        return None;
    }
    let operation = if load.kind == Kind::Append { JobOperation::Append } else { JobOperation::Write };
    let mut spec = job(place, operation, zones.iter().map(|zone| zone.0).collect())?;
    spec.block_size = Some(unplaced(ByteSize(load.size_bytes)));
    spec.workers = Some(unplaced(load.zones));
    spec.queue_depth = Some(unplaced(load.queue_depth / load.zones));
    spec.on_full = Some(unplaced(on_full));
    Some(PlannedJob { spec, fills: zones.iter().map(|zone| (*zone, Blocks::ZERO)).collect(), changes: zones })
}

/// Finishes of zones with one block each.
pub(crate) fn finishes(place: usize, free: &mut &[ZoneIndex], most: usize, geometry: &Geometry) -> Option<PlannedJob> {
    let zones = take(free, FINISHED_ZONES.min(most))?;
    let mut spec = job(place, JobOperation::Write, zones.iter().map(|zone| zone.0).collect())?;
    spec.block_size = Some(unplaced(ByteSize(u64::from(geometry.block_size_bytes))));
    spec.finish_at = Some(unplaced(Fraction(1.0 / geometry.zone_capacity_blocks.0 as f64)));
    Some(PlannedJob { spec, fills: zones.iter().map(|zone| (*zone, Blocks::ZERO)).collect(), changes: zones })
}

/// Resets of zones that have this much data.
pub(crate) fn resets(
    place: usize,
    free: &mut &[ZoneIndex],
    most: usize,
    fill: Blocks,
    geometry: &Geometry,
) -> Option<PlannedJob> {
    let zones = take(free, most)?;
    let mut spec = job(place, JobOperation::Reset, zones.iter().map(|zone| zone.0).collect())?;
    spec.prefill = Some(unplaced(Prefill(fill.0 as f64 / geometry.zone_capacity_blocks.0 as f64)));
    Some(PlannedJob { spec, fills: zones.iter().map(|zone| (*zone, fill)).collect(), changes: zones })
}

fn take(free: &mut &[ZoneIndex], count: usize) -> Option<Vec<ZoneIndex>> {
    let (taken, rest) = free.split_at(count.min(free.len()));
    *free = rest;
    (!taken.is_empty()).then(|| taken.to_vec())
}
