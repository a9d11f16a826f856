//! The published algorithm: Algorithm 1 of Bae et al., "What You Can't Forget: Exploiting
//! Parallelism for Zoned Namespaces" (HotStorage 2022).
//!
//! The bandwidths of the first zone beside each other zone give a threshold, halfway between the
//! largest and the smallest. Then each zone is compared with the baseline of each group, until one
//! of the pairs is below the threshold; a zone without such a pair is the baseline of a new group.

use zonda_zoned::ZoneIndex;

use crate::knowledge::Knowledge;
use crate::limits::PAIR_READS;
use crate::probe::{Probe, Reading, Shape};
use crate::{Evidence, GroupId, ZoneEntry};

/// The state of the algorithm.
#[derive(Debug)]
pub(crate) struct Pairwise {
    /// The zone that is visited, of the eligible ones.
    at: usize,
    /// The group that it is compared with.
    group: usize,
    /// Of the first loop: the smallest and largest bandwidth.
    extremes: Option<(f64, f64)>,
    threshold: Option<f64>,
}

impl Pairwise {
    pub(crate) fn new(knowledge: &mut Knowledge) -> Pairwise {
        let first = knowledge.eligible[0];
        let group = knowledge.add_group();
        knowledge.set_entry(first, ZoneEntry::Known { group, evidence: Evidence::Threshold });
        Pairwise { at: 1, group: 0, extremes: None, threshold: None }
    }

    /// Zones with a result.
    pub(crate) fn visited(&self) -> usize {
        if self.threshold.is_some() { self.at } else { 0 }
    }

    /// The next pair; `None` at the end.
    pub(crate) fn next(&mut self, knowledge: &Knowledge) -> Option<Probe> {
        loop {
            let Some(zone) = knowledge.eligible.get(self.at).copied() else {
                if self.threshold.is_some() {
                    return None;
                }
                let (least, most) = self.extremes?;
                self.threshold = Some((least + most) / 2.0);
                self.at = 1;
                continue;
            };
            let baseline = knowledge.groups.get(self.group).and_then(|group| group.baseline);
            let Some(baseline) = baseline.filter(|_| knowledge.is_readable(zone)) else {
                // The zone cannot be read, or no zone of the first group can.
                self.at += 1;
                continue;
            };
            let shape = Shape { target_reads: PAIR_READS, load_depth: 1, ..knowledge.shape };
            return Some(Probe { target: zone, load: vec![baseline], shape });
        }
    }

    /// The result of the pair; returns the zone if its group is known now, and whether it is new.
    pub(crate) fn take(&mut self, reading: Reading, knowledge: &mut Knowledge) -> Option<(ZoneIndex, bool)> {
        let bandwidth = f64::from(reading.reads) / reading.whole.0.max(1) as f64;
        let zone = knowledge.eligible[self.at];
        let Some(threshold) = self.threshold else {
            let (least, most) = self.extremes.unwrap_or((bandwidth, bandwidth));
            self.extremes = Some((least.min(bandwidth), most.max(bandwidth)));
            self.at += 1;
            return None;
        };
        let is_new = bandwidth >= threshold;
        if is_new && self.group + 1 < knowledge.groups.len() {
            self.group += 1;
            return None;
        }
        let group = if is_new { knowledge.add_group() } else { GroupId(self.group as u32) };
        knowledge.set_entry(zone, ZoneEntry::Known { group, evidence: Evidence::Threshold });
        self.next_zone();
        Some((zone, is_new))
    }

    /// A zone can no longer be read.
    pub(crate) fn on_lost_zone(&mut self, zone: ZoneIndex, knowledge: &Knowledge) {
        if knowledge.eligible.get(self.at) == Some(&zone) {
            self.next_zone();
        }
    }

    fn next_zone(&mut self) {
        self.at += 1;
        self.group = 0;
    }
}
