//! Ranking of candidates.
//!
//! Each criterion of a candidate is compared with the best value of all candidates: its cost is the
//! logarithm of the ratio, so that a factor of two costs the same at any level. The score is the
//! weighted sum of the costs; less is better. `docs/guide/advise.md` gives a reason for each
//! weight.

use std::cmp::Ordering;

use serde::Serialize;
use zonda_workload::filetrace::Preset;

use crate::measure::{Figures, Measurement};

/// Scores within this distance of the best count as equal: the coarsest element is then chosen.
pub const TIE: f64 = 0.005;

/// Number of criteria.
pub const CRITERIA: usize = 8;

/// A criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// Bytes per second.
    Throughput,
    /// Device-level write amplification.
    Dlwa,
    /// Bytes erased per byte written: an element that is discarded nearly empty wears the flash
    /// like a full one.
    Wear,
    /// Live and dead bytes per live byte.
    SpaceAmplification,
    /// The mean latency of the operation that an application waits for. Each thread has one such
    /// operation outstanding, so that a stall of seconds is one latency among thousands, which
    /// affects the mean but maybe not the 99th percentile.
    Latency,
    /// The 99th percentile of that latency.
    TailLatency,
    /// Size of the mapping of zones to elements.
    Mapping,
    /// Elements chosen when a zone is allocated.
    Allocation,
}

impl Criterion {
    /// All of them.
    pub const ALL: [Criterion; CRITERIA] = [
        Criterion::Throughput,
        Criterion::Dlwa,
        Criterion::Wear,
        Criterion::SpaceAmplification,
        Criterion::Latency,
        Criterion::TailLatency,
        Criterion::Mapping,
        Criterion::Allocation,
    ];

    /// Its name in a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Criterion::Throughput => "throughput",
            Criterion::Dlwa => "DLWA",
            Criterion::Wear => "wear",
            Criterion::SpaceAmplification => "space amplification",
            Criterion::Latency => "mean latency",
            Criterion::TailLatency => "p99 latency",
            Criterion::Mapping => "mapping",
            Criterion::Allocation => "elements to choose",
        }
    }

    /// The figure, inverted if necessary so that less is better.
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Criterion::Throughput => 1.0 / figures.throughput_bytes_per_s.max(1.0),
            Criterion::Dlwa => figures.dlwa,
            Criterion::Wear => figures.wear,
            Criterion::SpaceAmplification => figures.space_amplification,
            Criterion::Latency => figures.mean_ns.max(1) as f64,
            Criterion::TailLatency => figures.p99_ns.max(1) as f64,
            Criterion::Mapping => figures.mapping_bytes.max(1) as f64,
            Criterion::Allocation => figures.elements_per_zone.max(1) as f64,
        }
    }
}

/// Weight of each criterion, in hundredths, in the order of [`Criterion::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Weights(pub [u32; CRITERIA]);

impl Weights {
    /// The weights of a preset, or of any other workload.
    #[must_use]
    pub const fn of(preset: Option<Preset>) -> Weights {
        // Throughput, DLWA, wear, space amplification, mean and p99 latency, mapping, elements to
        // choose.
        Weights(match preset {
            Some(Preset::Wal) => [10, 20, 15, 8, 30, 15, 1, 1],
            Some(Preset::Flush) => [35, 20, 15, 18, 5, 5, 1, 1],
            Some(Preset::Compaction) => [75, 10, 8, 5, 0, 0, 1, 1],
            Some(Preset::Mixed) => [15, 25, 20, 30, 4, 4, 1, 1],
            Some(Preset::Read) => [65, 3, 2, 0, 10, 15, 2, 3],
            None => [28, 20, 15, 20, 8, 7, 1, 1],
        })
    }

    /// As a share of one.
    #[must_use]
    pub fn share(&self, criterion: Criterion) -> f64 {
        f64::from(self.0[criterion as usize]) / 100.0
    }
}

/// A candidate with its score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// Its place, from 1.
    pub rank: u32,
    /// The measurement.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// The figures of the measurement.
    #[serde(skip)]
    pub figures: Figures,
    /// The sum of `costs`; less is better.
    pub score: f64,
    /// Contribution of each criterion to the score, in the order of [`Criterion::ALL`].
    pub costs: [f64; CRITERIA],
}

/// Scores every measurement with figures, and sorts them: the recommendation first, then by score.
///
/// The recommendation is the coarsest candidate within [`TIE`] of the best.
#[must_use]
pub fn ranked(measurements: &[Measurement], weights: &Weights) -> Vec<Ranked> {
    let complete: Vec<(&Measurement, &Figures)> =
        measurements.iter().filter_map(|measurement| Some((measurement, measurement.figures.as_ref()?))).collect();
    let best = Criterion::ALL
        .map(|criterion| complete.iter().map(|(_, figures)| criterion.of(figures)).fold(f64::INFINITY, f64::min));
    let mut ranked: Vec<Ranked> = complete
        .into_iter()
        .map(|(measurement, figures)| {
            let cost = |criterion: Criterion| {
                weights.share(criterion) * (criterion.of(figures) / best[criterion as usize]).ln().max(0.0)
            };
            let costs = Criterion::ALL.map(cost);
            let score = costs.iter().sum();
            Ranked { rank: 0, measurement: measurement.clone(), figures: figures.clone(), score, costs }
        })
        .collect();
    ranked.sort_by(|one, other| one.score.total_cmp(&other.score).then_with(|| coarser_first(one, other)));
    if let Some(least) = ranked.first().map(|first| first.score) {
        let tied = ranked.iter().take_while(|candidate| candidate.score <= least + TIE).count();
        let choice = (0..tied).min_by(|one, other| coarser_first(&ranked[*one], &ranked[*other])).expect("one is tied");
        ranked[..=choice].rotate_right(1);
    }
    (1..).zip(&mut ranked).for_each(|(rank, candidate)| candidate.rank = rank);
    ranked
}

/// Fewer elements per zone first, then larger zones, then a smaller mapping, then a later FINISH.
fn coarser_first(one: &Ranked, other: &Ranked) -> Ordering {
    let key = |candidate: &Ranked| {
        let (shape, figures) = (candidate.measurement.candidate.shape, &candidate.figures);
        let threshold = candidate.measurement.candidate.finish_threshold_percent;
        (figures.elements_per_zone, u64::MAX - shape.zone_bytes, figures.mapping_bytes, u8::MAX - threshold)
    };
    key(one).cmp(&key(other))
}

#[cfg(test)]
mod tests {
    use zonda_ssd::allocation::AllocationKind;

    use super::*;
    use crate::measure::tests::measured;

    fn order(measurements: &[Measurement], weights: &Weights) -> Vec<String> {
        ranked(measurements, weights).iter().map(|of| of.measurement.candidate.shape.element.to_string()).collect()
    }

    #[test]
    fn weights_of_every_load_add_up_to_a_hundred() {
        for preset in Preset::ALL.into_iter().map(Some).chain([None]) {
            assert_eq!(Weights::of(preset).0.iter().sum::<u32>(), 100, "{preset:?}");
        }
    }

    #[test]
    fn what_counts_decides() {
        let fast = measured(AllocationKind::Superblock, |figures| figures.throughput_bytes_per_s = 200e6);
        let gentle = measured(AllocationKind::Block, |figures| {
            figures.throughput_bytes_per_s = 100e6;
            figures.dlwa = 1.0;
        });
        let both = [gentle, fast];
        assert_eq!(order(&both, &Weights([100, 0, 0, 0, 0, 0, 0, 0])), ["superblock", "block"]);
        assert_eq!(order(&both, &Weights([10, 90, 0, 0, 0, 0, 0, 0])), ["block", "superblock"]);
    }

    #[test]
    fn a_cost_is_the_logarithm_of_the_ratio_to_the_best() {
        let one = measured(AllocationKind::Fixed, |figures| figures.dlwa = 2.0);
        let other = measured(AllocationKind::Block, |figures| figures.dlwa = 1.0);
        let ranked = ranked(&[one, other], &Weights([0, 100, 0, 0, 0, 0, 0, 0]));
        assert_eq!((ranked[0].score, ranked[1].rank), (0.0, 2));
        assert!((ranked[1].score - 2f64.ln()).abs() < 1e-12 && ranked[1].costs[1] == ranked[1].score);
    }

    #[test]
    fn of_equals_the_coarser_element_is_chosen() {
        let coarse = measured(AllocationKind::Superblock, |figures| {
            figures.elements_per_zone = 2;
            figures.dlwa = 1.003;
        });
        let fine = measured(AllocationKind::Block, |figures| {
            figures.elements_per_zone = 32;
            figures.dlwa = 1.0;
        });
        let weights = Weights([0, 100, 0, 0, 0, 0, 0, 0]);
        assert_eq!(order(&[fine.clone(), coarse.clone()], &weights), ["superblock", "block"]);
        let worse = measured(AllocationKind::Superblock, |figures| {
            figures.elements_per_zone = 2;
            figures.dlwa = 1.01;
        });
        assert_eq!(order(&[worse, fine], &weights), ["block", "superblock"]);
    }

    #[test]
    fn unfinished_measurements_have_no_rank() {
        let mut failed = measured(AllocationKind::Fixed, |_| {});
        failed.figures = None;
        let fine = measured(AllocationKind::Block, |_| {});
        assert_eq!(order(&[failed, fine], &Weights::of(None)), ["block"]);
        assert!(ranked(&[], &Weights::of(None)).is_empty());
    }
}
