//! The search for groups with few probes: which zones are visited in which order, and when the
//! samples are taken again.

use std::collections::VecDeque;

use zonda_zoned::{Duration, ZoneIndex};

use crate::calibration::{Calibrated, Calibration};
use crate::knowledge::{Beside, Knowledge};
use crate::limits::{
    CALIBRATION_SAMPLES, DISCOVERY_ZONES, LOAD_ZONES_MAX, ONE_GROUP_ZONES, PAIR_GROUPS, PAIR_SAMPLES, SET_LOAD_DEPTHS,
    SET_SEPARATION_MIN,
};
use crate::probe::{Probe, Reading};
use crate::rule::Rule;
use crate::visit::{Visit, VisitEffort, VisitEnd};
use crate::{Evidence, GroupId, UnknownReason, ZoneEntry};

/// Visits zones: first random ones, then the first ones in their order, from which the order of
/// allocation is learned, then the others.
#[derive(Debug)]
pub(crate) struct Search {
    order: Vec<ZoneIndex>,
    at: usize,
    /// Where the random zones at the start end.
    random_end: usize,
    /// Zones since the last one of a new group.
    since_new: usize,
    visit: Option<Visit>,
    calibration: Option<Calibration>,
    due: VecDeque<Due>,
    has_pairs: bool,
    /// Larger sets do not show groups.
    has_largest: bool,
    has_final_samples: bool,
    rule: Option<Rule>,
    /// The order of allocation is searched for again at this place.
    next_rule_at: usize,
    /// The prediction that the current zone is checked against.
    predicted: Option<GroupId>,
    /// Zones to measure after the order of allocation is known; `None` is all.
    sample: Option<u32>,
    is_second_pass: bool,
}

/// A calibration that is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Loaded zones.
    count: u32,
    load_depth: u32,
    wanted: usize,
}

/// A zone with a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Visited {
    pub(crate) zone: ZoneIndex,
    pub(crate) is_new_group: bool,
}

impl Search {
    pub(crate) fn new(knowledge: &mut Knowledge, sample: Option<u32>) -> Search {
        let mut order = knowledge.eligible.clone();
        let random_end = order.len().min(ONE_GROUP_ZONES);
        for at in 0..random_end {
            let other = at + knowledge.prng.below((order.len() - at) as u64) as usize;
            order.swap(at, other);
        }
        order[random_end..].sort_unstable();
        Search {
            order,
            at: 0,
            random_end,
            since_new: 0,
            visit: None,
            calibration: None,
            due: VecDeque::new(),
            has_pairs: false,
            has_largest: false,
            has_final_samples: false,
            rule: None,
            next_rule_at: 0,
            predicted: None,
            sample,
            is_second_pass: false,
        }
    }

    /// Zones that are visited in all.
    pub(crate) fn zones(&self) -> usize {
        self.order.len()
    }

    /// Zones visited so far.
    pub(crate) fn visited(&self) -> usize {
        self.at.min(self.order.len())
    }

    /// All zones are visited that will be: groups that were dissolved are in no prediction.
    pub(crate) fn finish(&mut self, knowledge: &Knowledge) {
        if let Some(rule) = &mut self.rule {
            rule.refresh(&knowledge.known);
        }
    }

    /// The order of allocation, if the drive has one.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        self.rule.as_ref()
    }

    fn is_discovering(&self, knowledge: &Knowledge) -> bool {
        self.since_new < 2 * knowledge.groups.len() + DISCOVERY_ZONES
    }

    /// The next probe; `None` at the end.
    pub(crate) fn next(&mut self, knowledge: &mut Knowledge) -> Option<Probe> {
        loop {
            if let Some(calibration) = &mut self.calibration {
                if let Some(probe) = calibration.next(knowledge) {
                    return Some(probe);
                }
                let done = self.calibration.take().expect("it was just used");
                self.on_calibrated(done.finish(), knowledge);
            }
            if let Some(visit) = &self.visit {
                return Some(visit.probe(knowledge));
            }
            if let Some(due) = self.next_calibration(knowledge) {
                self.calibration = Some(Calibration::beside(due.count, due.load_depth, due.wanted));
                continue;
            }
            self.begin_visit(knowledge)?;
        }
    }

    /// Calibrations that more groups allow, or that are due because all groups are found.
    fn next_calibration(&mut self, knowledge: &Knowledge) -> Option<Due> {
        let groups = knowledge.groups.len() as u32;
        if !self.has_final_samples && self.has_pairs && !self.is_discovering(knowledge) {
            self.has_final_samples = true;
            self.due.extend(knowledge.beside.iter().map(|(count, beside)| {
                let wanted = if *count == 1 { PAIR_SAMPLES } else { CALIBRATION_SAMPLES };
                Due { count: *count, load_depth: beside.load_depth, wanted }
            }));
        }
        if let Some(due) = self.due.pop_front() {
            return Some(due);
        }
        let several = knowledge.groups_of_several().len();
        if groups < 2 || several < PAIR_GROUPS.min(groups as usize) {
            return None;
        }
        if !self.has_pairs {
            // From now on, pairs of different groups stand for zones alone.
            self.has_pairs = true;
            let load_depth = knowledge.beside.get(&1)?.load_depth;
            return Some(Due { count: 1, load_depth, wanted: CALIBRATION_SAMPLES });
        }
        let next = knowledge.largest_set() * 2;
        let is_useful = !self.has_largest && next <= LOAD_ZONES_MAX && groups >= 2 * next;
        is_useful.then_some(Due { count: next, load_depth: SET_LOAD_DEPTHS[0], wanted: CALIBRATION_SAMPLES })
    }

    fn on_calibrated(&mut self, calibrated: Calibrated, knowledge: &mut Knowledge) {
        let Calibrated::Beside { count, mut beside } = calibrated else { return };
        let Beside { references, load_depth } = &mut beside;
        let separation = references.separation();
        let is_complete = references.shared.len() >= CALIBRATION_SAMPLES;
        if is_complete && separation >= SET_SEPARATION_MIN {
            references.reach_to(knowledge.own_gap);
            knowledge.beside.insert(count, beside);
        } else if let Some(deeper) = SET_LOAD_DEPTHS.into_iter().find(|depth| is_complete && depth > load_depth) {
            self.due.push_front(Due { count, load_depth: deeper, wanted: CALIBRATION_SAMPLES });
        } else if count > 1 {
            // Sets have no gaps: a search halves them.
            self.has_largest = true;
            knowledge.beside.retain(|other, _| *other < count);
            self.due.retain(|due| due.count < count);
        }
    }

    fn begin_visit(&mut self, knowledge: &mut Knowledge) -> Option<()> {
        loop {
            self.learn_order(knowledge);
            if self.has_one_group(knowledge) {
                return None;
            }
            let is_over = self.has_enough() || self.at == self.order.len();
            if is_over {
                // The samples are taken again before the first visit of the second pass.
                return self.begin_second_pass(knowledge).then_some(());
            }
            let zone = self.order[self.at];
            if !knowledge.is_readable(zone) {
                self.at += 1;
                continue;
            }
            self.start(zone, knowledge);
            return Some(());
        }
    }

    fn start(&mut self, zone: ZoneIndex, knowledge: &Knowledge) {
        let predicted = self.rule.as_ref().map(|rule| rule.predict(zone.as_usize(), &knowledge.known));
        let predicted = predicted.unwrap_or_default();
        // Predictions of the second pass are not checked: some are of groups that were dissolved.
        self.predicted = predicted.first().copied().filter(|_| !self.is_second_pass);
        let effort = VisitEffort { is_discovering: self.is_discovering(knowledge), is_pairwise: self.is_second_pass };
        self.visit = Some(Visit::new(zone, predicted, effort, knowledge));
    }

    /// All random zones share the first group: more would show the same.
    fn has_one_group(&self, knowledge: &Knowledge) -> bool {
        !self.is_second_pass
            && self.at >= self.random_end
            && self.order.len() > self.random_end
            && knowledge.groups.len() < 2
    }

    /// Enough zones were measured, and the order of allocation predicts the others.
    fn has_enough(&self) -> bool {
        let is_reliable = self.rule.as_ref().is_some_and(|rule| rule.confidence().is_some());
        !self.is_second_pass
            && is_reliable
            && self.sample.is_some_and(|sample| self.at >= self.random_end + sample as usize)
    }

    /// Once all groups seem to be found, searches for the order of allocation, and then visits the
    /// other zones in random order, so that whenever the time is over, the measured zones are a
    /// random sample.
    fn learn_order(&mut self, knowledge: &mut Knowledge) {
        let is_due = self.rule.is_none() && self.at >= self.next_rule_at && self.at > self.random_end;
        if !is_due || self.is_discovering(knowledge) || self.at == self.order.len() {
            return;
        }
        let groups = knowledge.groups.len();
        self.next_rule_at = self.at + (groups / 2).max(DISCOVERY_ZONES);
        if self.at - self.random_end > 16 * groups + 64 {
            // Nothing repeats in many times the number of groups.
            self.next_rule_at = usize::MAX;
        }
        let end = self.order[self.at].as_usize();
        self.rule = Rule::find(&knowledge.known[..end], groups as u32);
        if self.rule.is_some() {
            for at in self.at..self.order.len() {
                let other = at + knowledge.prng.below((self.order.len() - at) as u64) as usize;
                self.order.swap(at, other);
            }
        }
    }

    /// Visits zones again that were undecided, and those of groups that are smaller than others:
    /// the samples are better now.
    fn begin_second_pass(&mut self, knowledge: &mut Knowledge) -> bool {
        if std::mem::replace(&mut self.is_second_pass, true) || !self.has_pairs {
            return false;
        }
        // A group that is found twice keeps the search for groups going; this ends it.
        self.since_new = usize::MAX / 2;
        let mut doubtful = knowledge.small_groups();
        doubtful.extend(self.rule.iter().flat_map(|rule| rule.duplicates(&knowledge.known)));
        doubtful.into_iter().for_each(|group| knowledge.dissolve(group));
        let is_open = |zone: &ZoneIndex| {
            let entry = knowledge.zones[zone.as_usize()].entry;
            let reasons = [UnknownReason::Noise, UnknownReason::Contradiction, UnknownReason::SeveralGroups];
            reasons.iter().any(|reason| entry == ZoneEntry::Unknown(*reason))
        };
        self.order = knowledge.eligible.iter().copied().filter(is_open).collect();
        (self.at, self.random_end) = (0, 0);
        !self.order.is_empty()
    }

    pub(crate) fn take(&mut self, reading: Reading, knowledge: &mut Knowledge) -> Option<Visited> {
        if let Some(calibration) = &mut self.calibration {
            calibration.take(reading);
            return None;
        }
        self.take_latency(reading.latency, knowledge)
    }

    fn take_latency(&mut self, latency: Duration, knowledge: &mut Knowledge) -> Option<Visited> {
        let visit = self.visit.as_mut().expect("a probe belongs to a visit");
        let (end, zone) = (visit.take(latency, knowledge)?, visit.zone());
        self.visit = None;
        self.at += 1;
        self.since_new += 1;
        let is_new_group = matches!(end, VisitEnd::NewGroup { .. });
        let entry = match end {
            VisitEnd::Known { group, confidence } => {
                ZoneEntry::Known { group, evidence: Evidence::Measured { confidence } }
            }
            VisitEnd::NewGroup { confidence } => {
                self.since_new = 0;
                ZoneEntry::Known { group: knowledge.add_group(), evidence: Evidence::Measured { confidence } }
            }
            VisitEnd::Unknown(reason) => ZoneEntry::Unknown(reason),
        };
        if let (Some(rule), Some(predicted), ZoneEntry::Known { group, .. }) = (&mut self.rule, self.predicted, entry) {
            rule.check(group == predicted);
        }
        knowledge.set_entry(zone, entry);
        Some(Visited { zone, is_new_group })
    }

    /// A zone can no longer be read.
    pub(crate) fn on_lost_zone(&mut self, zone: ZoneIndex, knowledge: &Knowledge) {
        if self.calibration.is_some() {
            return;
        }
        // If it was loaded, the visit needs another baseline.
        if let Some(visit) = self.visit.take().map(|visit| visit.zone()) {
            if visit == zone {
                self.at += 1;
            } else {
                self.start(visit, knowledge);
            }
        }
    }
}
