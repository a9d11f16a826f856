//! [`Visit`]: the group of one zone, found with few probes.
//!
//! A zone is compared with the group that the order of allocation predicts; otherwise with half of
//! the groups at once, then with half of the half. Whatever the search has found is confirmed by
//! pairs, and a control beside other groups excludes zones that are slow everywhere.

use zonda_zoned::{Duration, ZoneIndex};

use crate::knowledge::Knowledge;
use crate::limits::{CONTROL_ZONES_MAX, EVIDENCE_CONTROL, EVIDENCE_HIGH, EVIDENCE_STEP, FALSE_ALARMS_MAX, TRIES_MAX};
use crate::probe::Probe;
use crate::{GroupId, UnknownReason};

/// A zone whose group is being measured.
#[derive(Debug)]
pub(crate) struct Visit {
    zone: ZoneIndex,
    /// Predicted groups that are not yet tried.
    predicted: Vec<GroupId>,
    /// Groups that the zone may belong to as far as pairs have shown.
    candidates: Vec<GroupId>,
    step: Step,
    test: Test,
    /// Groups that are still to be excluded once the alarm is false that is being narrowed down;
    /// `None` if the zone is not being compared with all groups.
    pending: Option<Vec<GroupId>>,
    /// Alarms of sets of groups of which none was the zone's.
    false_alarms: u32,
    effort: VisitEffort,
}

/// How a zone is compared with groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisitEffort {
    /// New groups are likely, so that all are excluded first.
    pub(crate) is_discovering: bool,
    /// Groups are excluded in pairs: sets have not decided before, or wrongly.
    pub(crate) is_pairwise: bool,
}

#[derive(Debug)]
enum Step {
    /// Beside the group that was predicted.
    Predicted(GroupId),
    /// Beside a part of the candidates.
    Narrow { from: Vec<GroupId>, part: Vec<GroupId> },
    /// Beside the one that is left.
    Confirm(GroupId),
    /// Beside others than its own group.
    Control { group: GroupId, evidence: f64, is_second: bool },
    /// Beside all groups, one part after the other.
    Exclude { part: Vec<GroupId>, rest: Vec<GroupId> },
    /// Beside itself.
    Own,
}

/// The result of a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum VisitEnd {
    /// The zone belongs to a group.
    Known { group: GroupId, confidence: f64 },
    /// It belongs to none of the groups so far.
    NewGroup { confidence: f64 },
    /// It is not known.
    Unknown(UnknownReason),
}

/// A probe that is repeated until it decides.
#[derive(Debug, Default)]
struct Test {
    load: Vec<ZoneIndex>,
    /// Positive: the target shares hardware with the load.
    evidence: f64,
    tries: u32,
    shared_at: f64,
    free_at: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Shared,
    Free,
    Undecided,
}

impl Test {
    fn new(load: Vec<ZoneIndex>, shared_at: f64, free_at: f64) -> Test {
        Test { load, evidence: 0.0, tries: 0, shared_at, free_at }
    }

    fn decision(&self) -> Option<Decision> {
        if self.evidence >= self.shared_at {
            Some(Decision::Shared)
        } else if self.evidence <= -self.free_at {
            Some(Decision::Free)
        } else {
            (self.tries >= TRIES_MAX).then_some(Decision::Undecided)
        }
    }
}

impl Visit {
    /// Begins with a zone; the predictions come most likely first.
    pub(crate) fn new(zone: ZoneIndex, predicted: Vec<GroupId>, effort: VisitEffort, knowledge: &Knowledge) -> Visit {
        let candidates = knowledge.live_groups();
        let predicted = predicted.into_iter().filter(|group| candidates.contains(group)).collect();
        let (step, test) = (Step::Own, Test::default());
        let (pending, false_alarms) = (None, 0);
        let mut visit = Visit { zone, predicted, candidates, step, test, pending, false_alarms, effort };
        visit.try_next_prediction(knowledge);
        visit
    }

    pub(crate) fn zone(&self) -> ZoneIndex {
        self.zone
    }

    pub(crate) fn probe(&self, knowledge: &Knowledge) -> Probe {
        knowledge.probe(self.zone, self.test.load.clone())
    }

    /// The next measurement of the zone.
    pub(crate) fn take(&mut self, latency: Duration, knowledge: &mut Knowledge) -> Option<VisitEnd> {
        let references = knowledge.references(self.test.load.len());
        self.test.evidence += references.evidence(latency);
        self.test.tries += 1;
        let decision = self.test.decision()?;
        let noise = Some(VisitEnd::Unknown(UnknownReason::Noise));
        match (std::mem::replace(&mut self.step, Step::Own), decision) {
            (Step::Predicted(group) | Step::Confirm(group), Decision::Shared) => self.control(group, false, knowledge),
            (Step::Predicted(group), Decision::Free) => {
                self.candidates.retain(|candidate| *candidate != group);
                self.try_next_prediction(knowledge);
            }
            (Step::Predicted(_), Decision::Undecided) => self.try_next_prediction(knowledge),
            (Step::Narrow { part, .. }, Decision::Shared) => self.narrow(part, knowledge),
            (Step::Narrow { from, part }, Decision::Free) => {
                let rest = from.into_iter().filter(|group| !part.contains(group)).collect();
                self.narrow(rest, knowledge);
            }
            (Step::Confirm(_), Decision::Free) => match self.pending.take() {
                None => self.exclude(knowledge.live_groups(), knowledge),
                Some(_) if self.false_alarms == FALSE_ALARMS_MAX => {
                    return Some(VisitEnd::Unknown(UnknownReason::Contradiction));
                }
                // In other sets than before: what was slow by chance is among other groups then.
                Some(pending) => {
                    self.false_alarms += 1;
                    let count = pending.len();
                    let pending = knowledge.random_groups(pending, count);
                    self.exclude(pending, knowledge);
                }
            },
            (Step::Exclude { part, mut rest }, Decision::Shared) => {
                rest.extend(&part);
                self.pending = Some(rest);
                self.narrow(part, knowledge);
            }
            (Step::Exclude { rest, .. }, Decision::Free) => self.exclude(rest, knowledge),
            (Step::Own, Decision::Shared) => {
                return Some(VisitEnd::NewGroup { confidence: confidence(self.test.evidence) });
            }
            (Step::Own, Decision::Free) => return Some(VisitEnd::Unknown(UnknownReason::NotFromFlash)),
            (Step::Control { group, evidence, .. }, Decision::Free) => {
                return Some(VisitEnd::Known { group, confidence: confidence(evidence) });
            }
            // One of the other groups may have been slow by chance.
            (Step::Control { group, evidence, is_second: false }, Decision::Shared) => {
                self.test.evidence = evidence;
                self.control(group, true, knowledge);
            }
            (Step::Control { .. }, Decision::Shared) => {
                return Some(VisitEnd::Unknown(UnknownReason::SeveralGroups));
            }
            // A set that decides nothing may have zones that are slow by chance: a half of it is less
            // ambiguous.
            (Step::Narrow { from, part }, Decision::Undecided) if part.len() > 1 => {
                let half = part[..part.len() / 2].to_vec();
                self.compare(from, half, knowledge);
            }
            (Step::Exclude { mut part, rest }, Decision::Undecided) if part.len() > 1 => {
                let half = part.split_off(part.len() / 2);
                self.exclude_part(part, half.into_iter().chain(rest).collect(), knowledge);
            }
            (Step::Control { group, evidence, is_second: false }, Decision::Undecided) => {
                self.test.evidence = evidence;
                self.control(group, true, knowledge);
            }
            (_, Decision::Undecided) => return noise,
        }
        None
    }

    fn try_next_prediction(&mut self, knowledge: &Knowledge) {
        if self.predicted.is_empty() {
            self.search(knowledge);
            return;
        }
        let group = self.predicted.remove(0);
        self.step = Step::Predicted(group);
        self.test = Test::new(knowledge.baselines(&[group]), EVIDENCE_HIGH, EVIDENCE_STEP);
    }

    fn search(&mut self, knowledge: &Knowledge) {
        if self.effort.is_discovering {
            self.exclude(knowledge.live_groups(), knowledge);
        } else {
            self.narrow(self.candidates.clone(), knowledge);
        }
    }

    /// Half of the groups at once, as far as the drive allows.
    fn narrow(&mut self, from: Vec<GroupId>, knowledge: &Knowledge) {
        match from.len() {
            0 => self.exclude(knowledge.live_groups(), knowledge),
            1 => {
                let group = from[0];
                // A search that ends with a pair has measured it already.
                let load = knowledge.baselines(&[group]);
                let evidence = if self.test.load == load { self.test.evidence } else { 0.0 };
                self.step = Step::Confirm(group);
                self.test = Test { evidence, ..Test::new(load, EVIDENCE_HIGH, EVIDENCE_STEP) };
            }
            count => {
                let part = from[..set_size(count.div_ceil(2), knowledge)].to_vec();
                self.compare(from, part, knowledge);
            }
        }
    }

    /// Decides whether the group is in this part of the candidates.
    fn compare(&mut self, from: Vec<GroupId>, part: Vec<GroupId>, knowledge: &Knowledge) {
        self.test = Test::new(knowledge.baselines(&part), EVIDENCE_STEP, EVIDENCE_STEP);
        self.step = Step::Narrow { from, part };
    }

    fn exclude(&mut self, mut groups: Vec<GroupId>, knowledge: &Knowledge) {
        if groups.is_empty() {
            self.step = Step::Own;
            self.test = Test::new(vec![self.zone], EVIDENCE_HIGH, EVIDENCE_STEP);
            return;
        }
        let count = if self.effort.is_pairwise { 1 } else { set_size(groups.len(), knowledge) };
        let rest = groups.split_off(count);
        self.exclude_part(groups, rest, knowledge);
    }

    fn exclude_part(&mut self, part: Vec<GroupId>, rest: Vec<GroupId>, knowledge: &Knowledge) {
        self.test = Test::new(knowledge.baselines(&part), EVIDENCE_CONTROL, EVIDENCE_HIGH);
        self.step = Step::Exclude { part, rest };
    }

    fn control(&mut self, group: GroupId, is_second: bool, knowledge: &mut Knowledge) {
        let evidence = self.test.evidence;
        let mut others = knowledge.live_groups();
        others.retain(|other| *other != group);
        let count =
            if others.is_empty() { 0 } else { set_size(others.len().min(CONTROL_ZONES_MAX as usize), knowledge) };
        let others = knowledge.random_groups(others, count);
        self.step = Step::Control { group, evidence, is_second };
        // Without other groups, the zone alone is the control.
        self.test = Test::new(knowledge.baselines(&others), EVIDENCE_STEP, EVIDENCE_CONTROL);
    }
}

/// The largest calibrated number of zones up to this one.
fn set_size(count: usize, knowledge: &Knowledge) -> usize {
    let largest = (knowledge.largest_set() as usize).min(count);
    1 << largest.ilog2()
}

fn confidence(evidence: f64) -> f64 {
    1.0 - libm::exp(-evidence)
}
