//! What latencies look like on this drive: the size of reads, and the samples with which later
//! measurements are compared.

use zonda_zoned::{Blocks, Duration, ZoneIndex};

use crate::GroupId;
use crate::knowledge::{Beside, Knowledge};
use crate::limits::{
    CALIBRATION_SAMPLES, CALIBRATION_ZONES, READ_BYTES_MAX, READ_BYTES_MIN, SHAPES, SIZING_DEPTH, SIZING_PERCENT,
    SIZING_PROBES,
};
use crate::probe::{Probe, Reading, Shape};
use crate::samples::References;

/// Finds the smallest read with which a zone alone reaches its bandwidth. Smaller ones would find
/// zones that share a die, and miss those that share a channel which only large reads fill.
#[derive(Debug)]
pub(crate) struct Sizing {
    sizes: Vec<Blocks>,
    at: usize,
    times: Vec<Duration>,
    /// Bytes in a second, for each size.
    bandwidths: Vec<u64>,
}

impl Sizing {
    /// Sizes that the drive and the data of its zones allow.
    pub(crate) fn new(knowledge: &Knowledge) -> Sizing {
        let geometry = &knowledge.geometry;
        let block = u64::from(geometry.block_size_bytes);
        let most = knowledge.zones.iter().map(|record| record.written.0).max().unwrap_or(0);
        let largest = geometry
            .max_transfer_blocks
            .0
            .min(READ_BYTES_MAX / block)
            .min(most / crate::limits::READS_OF_ZONE_MIN)
            .max(1);
        let smallest = READ_BYTES_MIN.div_ceil(block).min(largest);
        let sizes = std::iter::successors(Some(smallest), |size| Some(size * 2)).take_while(|size| *size <= largest);
        Sizing { sizes: sizes.map(Blocks).collect(), at: 0, times: Vec::new(), bandwidths: Vec::new() }
    }

    pub(crate) fn next(&mut self, knowledge: &mut Knowledge) -> Option<Probe> {
        let blocks = *self.sizes.get(self.at)?;
        let largest = *self.sizes.last().expect("there is a size");
        let has_data = |zone: &ZoneIndex| knowledge.written(*zone) >= largest;
        let zones: Vec<ZoneIndex> = knowledge.eligible.iter().copied().filter(has_data).collect();
        let zone = (0..64).find_map(|_| {
            let zone = *knowledge.prng.pick(&zones)?;
            knowledge.is_readable(zone).then_some(zone)
        })?;
        let shape = Shape { blocks, target_reads: 2 * SIZING_DEPTH, target_depth: SIZING_DEPTH, load_depth: 0 };
        Some(Probe { target: zone, load: Vec::new(), shape })
    }

    pub(crate) fn take(&mut self, reading: Reading, block_size_bytes: u32) {
        self.times.push(reading.whole);
        if self.times.len() == SIZING_PROBES as usize {
            self.times.sort_unstable();
            let time = self.times[self.times.len() / 2].0.max(1);
            let bytes = self.sizes[self.at].bytes(block_size_bytes);
            self.bandwidths.push((u128::from(bytes) * 1_000_000_000 / u128::from(time)) as u64);
            self.times.clear();
            self.at += 1;
        }
    }

    /// The chosen size.
    pub(crate) fn size(&self) -> Option<Blocks> {
        let best = self.bandwidths.iter().max()?;
        let enough = |bandwidth: &u64| u128::from(*bandwidth) * 100 >= u128::from(*best) * u128::from(SIZING_PERCENT);
        let chosen = self.bandwidths.iter().position(enough)?;
        Some(self.sizes[chosen])
    }
}

/// Collects samples of zones that share hardware with loaded ones, and of zones that do not.
#[derive(Debug)]
pub(crate) struct Calibration {
    kind: Kind,
    wanted: usize,
    references: References,
    /// Zones of the first calibration.
    zones: Vec<ZoneIndex>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Zones alone, and zones that load themselves, with one of [`SHAPES`].
    Alone { attempt: usize },
    /// Zones beside this number of zones of known groups.
    Beside { count: u32, load_depth: u32 },
}

/// What a calibration has found.
#[derive(Debug)]
pub(crate) enum Calibrated {
    /// Of zones alone, with one of [`SHAPES`].
    Alone { attempt: usize, references: References },
    /// Of this number of loaded zones.
    Beside { count: u32, beside: Beside },
}

impl Calibration {
    /// The first one, which needs no groups.
    pub(crate) fn alone(attempt: usize, knowledge: &mut Knowledge) -> Calibration {
        let zones = (0..CALIBRATION_ZONES).filter_map(|_| knowledge.any_zone()).collect();
        let wanted = CALIBRATION_SAMPLES;
        Calibration { kind: Kind::Alone { attempt }, wanted, references: References::default(), zones }
    }

    /// With zones of known groups.
    pub(crate) fn beside(count: u32, load_depth: u32, wanted: usize) -> Calibration {
        let kind = Kind::Beside { count, load_depth };
        Calibration { kind, wanted, references: References::default(), zones: Vec::new() }
    }

    /// Whether the next sample is one of a zone that shares hardware.
    fn is_shared(&self) -> bool {
        self.references.shared.len() < self.references.free.len()
    }

    /// The next probe; `None` if there are enough samples, or no zones for more.
    pub(crate) fn next(&mut self, knowledge: &mut Knowledge) -> Option<Probe> {
        let is_shared = self.is_shared();
        if self.references.shared.len() >= self.wanted {
            return None;
        }
        match self.kind {
            Kind::Alone { attempt } => {
                let zones = &self.zones;
                let zone = (0..64).find_map(|_| {
                    let zone = *knowledge.prng.pick(zones)?;
                    knowledge.is_readable(zone).then_some(zone)
                })?;
                let (target_reads, load_depth) = SHAPES[attempt];
                let shape = Shape { target_reads, load_depth, ..knowledge.shape };
                Some(Probe { target: zone, load: if is_shared { vec![zone] } else { Vec::new() }, shape })
            }
            Kind::Beside { count, load_depth } => {
                let all = knowledge.live_groups();
                let count = count as usize;
                if all.len() < count + 1 {
                    return None;
                }
                // A zone that loads itself would show more than zones that share hardware.
                let several = knowledge.groups_of_several();
                let of_target = *knowledge.prng.pick(if is_shared { &several } else { &all })?;
                let others: Vec<GroupId> = all.iter().copied().filter(|group| *group != of_target).collect();
                let mut loaded = knowledge.random_groups(others, if is_shared { count - 1 } else { count });
                if is_shared {
                    loaded.push(of_target);
                }
                let target = knowledge.any_member(of_target)?;
                let load = knowledge.baselines(&loaded);
                Some(Probe { target, load, shape: Shape { load_depth, ..knowledge.shape } })
            }
        }
    }

    pub(crate) fn take(&mut self, reading: Reading) {
        let is_shared = self.is_shared();
        let samples = if is_shared { &mut self.references.shared } else { &mut self.references.free };
        samples.add(reading.latency);
    }

    /// The samples.
    pub(crate) fn finish(mut self) -> Calibrated {
        self.references.fit();
        let references = self.references;
        match self.kind {
            Kind::Alone { attempt } => Calibrated::Alone { attempt, references },
            Kind::Beside { count, load_depth } => {
                Calibrated::Beside { count, beside: Beside { references, load_depth } }
            }
        }
    }
}
