//! Runs a candidate: a preconditioned drive, a file store on it, the workload.

use serde::Serialize;
use zonda_files::FilesConfig;
use zonda_ssd::{Counters, Ssd};
use zonda_stack::Drive;
use zonda_workload::filetrace::{OperationKind, Replay, ReplayResult, TraceEnd};
use zonda_zoned::{Instant, PayloadKind, Prng, ZoneIndex};

use crate::candidate::Candidate;
use crate::load::{Load, throughput, waited_for};

/// A run. Runs are independent and can be executed concurrently.
#[derive(Debug)]
pub struct Task<'a> {
    pub(crate) candidate: Candidate,
    pub(crate) drive: Drive,
    pub(crate) load: &'a Load<'a>,
    pub(crate) seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// How the replay ended.
    pub end: TraceEnd,
    /// The measurements, if it completed.
    pub figures: Option<Figures>,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Time until the last entry completed.
    pub elapsed_ns: u64,
    /// Throughput of the workload in bytes per second.
    pub throughput_bytes_per_s: f64,
    /// Device-level write amplification.
    pub dlwa: f64,
    /// (live + dead) / live, both averaged over time.
    pub space_amplification: f64,
    /// The operation that an application waits for.
    pub waited_for: &'static str,
    /// The mean of its latency.
    pub mean_ns: u64,
    /// The 99th percentile of its latency.
    pub p99_ns: u64,
    /// Bytes that the host wrote, including metadata.
    pub host_write_bytes: u64,
    /// Padding in elements of finished zones, in bytes.
    pub padding_bytes: u64,
    /// Erase units erased.
    pub erases: u64,
    /// Bytes erased per byte that the host wrote, without the remaining capacity of zones that are
    /// active at the end, which the next files use.
    pub wear: f64,
    /// Zones that the host finished before they were full.
    pub zone_finishes: u64,
    /// Zones that the host reset.
    pub zone_resets: u64,
    /// Files that share a zone with data of another lifetime.
    pub relaxed_matches: u64,
    /// Elements chosen when a zone is allocated; 1 for fixed zones.
    pub elements_per_zone: u64,
    /// Size of the mapping of zones to elements, for the drive as it was run.
    pub mapping_bytes: u64,
    /// Size of that mapping per zone.
    pub mapping_bytes_per_zone: f64,
}

impl Figures {
    /// Whether the limit on active zones was reached: a zone was finished or shared because of it.
    #[must_use]
    pub fn has_met_the_limit(&self) -> bool {
        self.zone_finishes + self.relaxed_matches > 0
    }
}

impl Task<'_> {
    /// The candidate.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Runs it. The same task gives the same measurement.
    #[must_use]
    pub fn measure(&self) -> Measurement {
        let geometry = self.drive.geometry();
        // A preconditioned drive: each erase unit was written once, and must be erased before it is
        // written again.
        let all_full: Vec<_> =
            (0..geometry.zone_count).map(|zone| (ZoneIndex(zone), geometry.zone_capacity_blocks)).collect();
        let prng = Prng::new(self.seed).fork("advise");
        let drive = self.drive.power_on(&prng, &all_full).expect("full zones are not active");
        let config = FilesConfig {
            keeps: PayloadKind::None,
            finish_threshold_percent: self.candidate.finish_threshold_percent,
            ..FilesConfig::default()
        };
        let replay = match Replay::format(drive, config, Instant::ZERO) {
            Ok(replay) => replay,
            Err(error) => {
                let end = TraceEnd::Failed { entry: 0, message: error.to_string() };
                return Measurement { candidate: self.candidate, end, figures: None };
            }
        };
        let before = replay.device().counters().clone();
        let (result, drive) = replay.run(self.load.entries());
        let figures = result.end.is_complete().then(|| self.figures(&before, &result, &drive));
        Measurement { candidate: self.candidate, end: result.end, figures }
    }

    fn figures(&self, before: &Counters, result: &ReplayResult, drive: &Ssd) -> Figures {
        let (after, preset) = (drive.counters(), self.load.goal.preset);
        let host_write_bytes = after.host_write_bytes - before.host_write_bytes;
        let device_write_bytes = after.device_write_bytes() - before.device_write_bytes();
        let waited_for = waited_for(preset, result);
        let latency = waited_for.and_then(|kind| result.kind(kind)).map_or_else(Default::default, |of| of.latency);
        let facts = drive.allocation();
        // Including erases of formatting: the workload fills the erased units.
        let erases = after.erases;
        let erased_bytes = (erases * drive.profile().flash.erase_unit.0).saturating_sub(self.to_be_filled_bytes(drive));
        let is_fixed = self.candidate.shape.is_fixed();
        Figures {
            elapsed_ns: result.elapsed_ns,
            throughput_bytes_per_s: throughput(preset, result),
            dlwa: (host_write_bytes + device_write_bytes) as f64 / host_write_bytes.max(1) as f64,
            space_amplification: result.space_amplification(),
            waited_for: waited_for.map_or("", OperationKind::name),
            mean_ns: latency.mean_ns,
            p99_ns: latency.p99_ns,
            host_write_bytes,
            padding_bytes: after.programmed_padding_bytes - before.programmed_padding_bytes,
            erases,
            wear: erased_bytes as f64 / host_write_bytes.max(1) as f64,
            zone_finishes: result.usage.zone_finishes,
            zone_resets: result.usage.zone_resets,
            relaxed_matches: result.usage.relaxed_matches,
            elements_per_zone: if is_fixed { 1 } else { u64::from(facts.elements_per_zone) },
            mapping_bytes: facts.mapping_bytes,
            mapping_bytes_per_zone: facts.mapping_bytes as f64 / f64::from(self.drive.geometry().zone_count),
        }
    }
}

impl Task<'_> {
    /// Remaining bytes in partly written erase units of active zones.
    fn to_be_filled_bytes(&self, drive: &Ssd) -> u64 {
        let (geometry, shape) = (self.drive.geometry(), &self.candidate.shape);
        let element_row_bytes = shape.zone_bytes / shape.segments * shape.element_rows();
        let active =
            (0..geometry.zone_count).map(|zone| drive.zone(ZoneIndex(zone))).filter(|zone| zone.state.is_active());
        let to_be_filled = active.map(|zone| {
            let written = zone.written_blocks.bytes(geometry.block_size_bytes);
            (written.next_multiple_of(element_row_bytes)).min(shape.zone_bytes) - written
        });
        to_be_filled.sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use zonda_ssd::allocation::AllocationKind;

    use super::*;
    use crate::candidate::Shape;

    /// A synthetic measurement of a zone of 256 MiB over 16 dies.
    pub(crate) fn measured(element: AllocationKind, change: impl FnOnce(&mut Figures)) -> Measurement {
        let shape = Shape { parallelism: 16, segments: 2, zone_bytes: 256 << 20, element };
        let mut figures = Figures {
            elapsed_ns: 8_000_000_000,
            throughput_bytes_per_s: 100e6,
            dlwa: 1.5,
            space_amplification: 1.2,
            waited_for: "sync",
            mean_ns: 500_000,
            p99_ns: 1_000_000,
            host_write_bytes: 1 << 30,
            padding_bytes: 1 << 29,
            erases: 200,
            wear: 1.5,
            zone_finishes: 10,
            zone_resets: 12,
            relaxed_matches: 3,
            elements_per_zone: 2,
            mapping_bytes: 128,
            mapping_bytes_per_zone: 2.0,
        };
        change(&mut figures);
        let candidate = Candidate { shape, finish_threshold_percent: 50 };
        Measurement { candidate, end: TraceEnd::Complete, figures: Some(figures) }
    }
}
