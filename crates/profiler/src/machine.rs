//! [`Profiler`]: the state machine.

use std::collections::VecDeque;

use zonda_zoned::{
    Command, CommandId, Completion, Duration, Geometry, Instant, NamespaceId, Operation, Outcome, Prng, ReportFilter,
    Status, ZoneIndex,
};

use crate::calibration::{Calibrated, Calibration, Sizing};
use crate::knowledge::{Beside, Knowledge};
use crate::limits::{
    DOUBTFUL_CONFIDENCE_MAX, DOUBTFUL_ONE_IN, ONE_GROUP_ZONES, REPORT_ZONES_MAX, SEPARATION_GOOD, SEPARATION_MIN,
    SHAPES,
};
use crate::pairwise::Pairwise;
use crate::probe::{ProbeError, ProbeRunner, Reading};
use crate::samples::References;
use crate::search::Search;
use crate::{Effort, Evidence, GroupId, GroupTable, UnknownReason, Verdict, ZoneEntry};

/// How groups are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Zones are compared with many groups at once, the order of allocation is used, and each result
    /// has a confidence.
    #[default]
    Search,
    /// The published algorithm: each zone is compared with each group, once.
    Pairwise,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct ProfilerConfig {
    /// The namespace.
    pub namespace: NamespaceId,
    /// How groups are found.
    pub strategy: Strategy,
    /// The measurement ends after this time, with what it has found; `None` is no limit.
    pub budget: Option<Duration>,
    /// With [`Strategy::Search`], zones that are measured where the order of allocation predicts the
    /// others; `None` measures all.
    pub sample_zones: Option<u32>,
    /// The source of random numbers: which zones and blocks are read.
    pub prng: Prng,
}

/// Something that the owner may want to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProfilerEvent {
    /// The size of reads and the ratio of latencies were chosen: measurement begins.
    Calibrated {
        /// Bytes of each read.
        read_bytes: u64,
        /// How much slower zones are beside a loaded zone on the same hardware.
        slowdown: f64,
    },
    /// A zone of a new group was found.
    GroupFound(ZoneIndex),
    /// Commands to a zone failed; it is unknown from now on.
    ZoneLost(ZoneIndex, Option<Status>),
    /// Groups of the drive follow an order with this period.
    OrderFound(u32),
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Zones with a result.
    pub zones_done: u32,
    /// Zones to measure.
    pub zones: u32,
    /// Groups found so far.
    pub groups: u32,
    /// Probes so far.
    pub probes: u64,
}

/// Why nothing could be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportFailed(pub Status);

/// Measures which zones of a drive disturb each other.
#[derive(Debug)]
pub struct Profiler {
    config: ProfilerConfig,
    knowledge: Knowledge,
    runner: ProbeRunner,
    report: Option<CommandId>,
    stage: Stage,
    events: VecDeque<ProfilerEvent>,
    effort: Effort,
    started_at: Option<Instant>,
    now: Instant,
    best: Option<(usize, References)>,
}

#[derive(Debug)]
enum Stage {
    Report,
    Sizing(Sizing),
    Calibration(Calibration),
    Search(Box<Search>),
    Pairwise(Pairwise),
    Done(Result<Verdict, ReportFailed>),
}

impl Profiler {
    /// A measurement of a namespace of this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry, config: ProfilerConfig) -> Profiler {
        Profiler {
            knowledge: Knowledge::new(geometry.clone(), config.prng.fork("zones")),
            runner: ProbeRunner::new(config.namespace, config.prng.fork("blocks")),
            config,
            report: None,
            stage: Stage::Report,
            events: VecDeque::new(),
            effort: Effort::default(),
            started_at: None,
            now: Instant::ZERO,
            best: None,
        }
    }

    /// The next command to submit.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.now = now;
        self.started_at.get_or_insert(now);
        self.advance();
        let command = match self.stage {
            Stage::Report if self.report.is_none() => {
                let id = self.runner.new_id();
                self.report = Some(id);
                let first = ZoneIndex(self.knowledge.zones.len() as u32);
                let operation = Operation::ReportZones {
                    start: self.knowledge.geometry.zone_start(first),
                    filter: ReportFilter::All,
                    extended: false,
                    partial: true,
                    descriptors_max: REPORT_ZONES_MAX,
                };
                Some(Command::new(id, self.config.namespace, operation))
            }
            _ => self.runner.poll_command(now),
        };
        self.effort.commands += u64::from(command.is_some());
        command
    }

    /// The device has refused the command; it is returned by [`Profiler::poll_command`] again after
    /// the next completion.
    pub fn on_refused(&mut self, command: &Command) {
        self.effort.commands -= 1;
        if self.report == Some(command.id) {
            self.report = None;
        } else {
            self.runner.on_refused(command);
        }
    }

    /// A command has completed.
    pub fn on_completion(&mut self, now: Instant, completion: &Completion) {
        self.now = now;
        if self.report != Some(completion.id) {
            self.runner.on_completion(now, completion);
        } else {
            self.report = None;
            self.on_report(completion);
        }
        self.advance();
    }

    /// When [`Profiler::on_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.runner.deadline()
    }

    /// The time of [`Profiler::next_timeout`] has come.
    pub fn on_timeout(&mut self, now: Instant) {
        self.now = now;
        self.advance();
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ProfilerEvent> {
        self.events.pop_front()
    }

    /// Ends the measurement with what it has found, as if the time were over. Completions of reads
    /// in flight are ignored.
    pub fn shutdown(&mut self, now: Instant) {
        self.now = now;
        if !matches!(self.stage, Stage::Done(_)) {
            self.finish_search();
        }
    }

    /// How far the measurement is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let (done, zones) = match &self.stage {
            Stage::Search(search) => (search.visited(), search.zones()),
            Stage::Pairwise(pairwise) => (pairwise.visited(), self.knowledge.eligible.len()),
            _ => (0, self.knowledge.eligible.len()),
        };
        Progress {
            zones_done: done as u32,
            zones: zones as u32,
            groups: self.knowledge.groups.len() as u32,
            probes: self.effort.probes,
        }
    }

    /// The result, once the measurement is over.
    ///
    /// # Errors
    /// The drive did not report its zones.
    #[must_use]
    pub fn result(&self) -> Option<Result<GroupTable, ReportFailed>> {
        let Stage::Done(verdict) = self.stage else { return None };
        Some(verdict.map(|verdict| GroupTable {
            verdict,
            zones: self.knowledge.zones.iter().map(|zone| zone.entry).collect(),
            effort: self.effort,
        }))
    }

    fn on_report(&mut self, completion: &Completion) {
        let reported = match &completion.outcome {
            Outcome::Report(report) if completion.status.is_success() => &report.zones[..],
            _ => &[],
        };
        let missing = self.knowledge.geometry.zone_count as usize - self.knowledge.zones.len();
        self.knowledge.add_zones(&reported[..reported.len().min(missing)]);
        if reported.is_empty() {
            let status = if completion.status.is_success() { Status::InternalError } else { completion.status };
            self.finish(Err(ReportFailed(status)));
        } else if reported.len() >= missing {
            self.knowledge.choose_size(zonda_zoned::Blocks(1));
            self.stage = Stage::Sizing(Sizing::new(&self.knowledge));
        }
    }

    /// Takes results and begins probes until one is in flight.
    fn advance(&mut self) {
        loop {
            match self.runner.take_result(self.now) {
                Some(Ok(reading)) => self.on_reading(reading),
                Some(Err(error)) => self.on_probe_error(error),
                None => {}
            }
            if self.runner.is_active() || matches!(self.stage, Stage::Report | Stage::Done(_)) {
                return;
            }
            if self.is_over_budget() {
                self.finish_search();
                return;
            }
            let probe = match &mut self.stage {
                Stage::Sizing(sizing) => sizing.next(&mut self.knowledge),
                Stage::Calibration(calibration) => calibration.next(&mut self.knowledge),
                Stage::Search(search) => {
                    let had_rule = search.rule().is_some();
                    let probe = search.next(&mut self.knowledge);
                    if let (false, Some(rule)) = (had_rule, search.rule()) {
                        self.events.push_back(ProfilerEvent::OrderFound(rule.period() as u32));
                    }
                    probe
                }
                Stage::Pairwise(pairwise) => pairwise.next(&self.knowledge),
                Stage::Report | Stage::Done(_) => None,
            };
            let Some(probe) = probe else {
                self.next_stage();
                continue;
            };
            self.effort.probes += 1;
            let Knowledge { geometry, zones, .. } = &self.knowledge;
            self.runner.start(&probe, geometry, |zone| zones[zone.as_usize()].written);
            return;
        }
    }

    fn is_over_budget(&self) -> bool {
        let started_at = self.started_at.unwrap_or(self.now);
        self.config.budget.is_some_and(|budget| self.now >= started_at + budget)
    }

    fn on_reading(&mut self, reading: Reading) {
        let knowledge = &mut self.knowledge;
        let (zone, is_new) = match &mut self.stage {
            Stage::Sizing(sizing) => return sizing.take(reading, knowledge.geometry.block_size_bytes),
            Stage::Calibration(calibration) => return calibration.take(reading),
            Stage::Search(search) => match search.take(reading, knowledge) {
                Some(visited) => (visited.zone, visited.is_new_group),
                None => return,
            },
            Stage::Pairwise(pairwise) => match pairwise.take(reading, knowledge) {
                Some(result) => result,
                None => return,
            },
            Stage::Report | Stage::Done(_) => return,
        };
        if is_new {
            self.events.push_back(ProfilerEvent::GroupFound(zone));
        }
    }

    fn on_probe_error(&mut self, error: ProbeError) {
        if !self.knowledge.on_error(error) {
            return;
        }
        self.events.push_back(ProfilerEvent::ZoneLost(error.zone, error.status));
        match &mut self.stage {
            Stage::Search(search) => search.on_lost_zone(error.zone, &self.knowledge),
            Stage::Pairwise(pairwise) => pairwise.on_lost_zone(error.zone, &self.knowledge),
            _ => {}
        }
    }

    fn next_stage(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Report);
        match stage {
            Stage::Sizing(sizing) => match sizing.size() {
                Some(blocks) => {
                    self.knowledge.choose_size(blocks);
                    if self.knowledge.eligible.len() < 2 {
                        return self.finish(Ok(Verdict::NotMeasured));
                    }
                    self.knowledge.shape.blocks = blocks;
                    self.stage = match self.config.strategy {
                        Strategy::Search => Stage::Calibration(Calibration::alone(0, &mut self.knowledge)),
                        Strategy::Pairwise => Stage::Pairwise(Pairwise::new(&mut self.knowledge)),
                    };
                }
                None => self.finish(Ok(Verdict::NotMeasured)),
            },
            Stage::Calibration(calibration) => self.on_calibrated(calibration.finish()),
            stage @ (Stage::Search(_) | Stage::Pairwise(_)) => {
                self.stage = stage;
                self.finish_search();
            }
            stage @ (Stage::Report | Stage::Done(_)) => self.stage = stage,
        }
    }

    /// Uses the shortest load that separates zones alone from loaded ones, or the best.
    fn on_calibrated(&mut self, calibrated: Calibrated) {
        let Calibrated::Alone { attempt, references } = calibrated else {
            unreachable!("calibrations beside groups belong to the search")
        };
        if references.shared.len() == 0 {
            return self.finish(Ok(Verdict::NotMeasured));
        }
        let separation = references.separation();
        if self.best.as_ref().is_none_or(|(_, best)| separation > best.separation()) {
            self.best = Some((attempt, references));
        }
        if separation < SEPARATION_GOOD && attempt + 1 < SHAPES.len() {
            self.stage = Stage::Calibration(Calibration::alone(attempt + 1, &mut self.knowledge));
            return;
        }
        let (attempt, mut references) = self.best.take().expect("an attempt has just ended");
        if references.separation() < SEPARATION_MIN {
            return self.finish(Ok(Verdict::NoInterference));
        }
        let (target_reads, load_depth) = SHAPES[attempt];
        self.knowledge.shape.target_reads = target_reads;
        let geometry = &self.knowledge.geometry;
        let read_bytes = self.knowledge.shape.blocks.bytes(geometry.block_size_bytes);
        self.events.push_back(ProfilerEvent::Calibrated { read_bytes, slowdown: references.ratio() });
        self.knowledge.own_gap = references.gap();
        references.widen();
        self.knowledge.alone = references.clone();
        self.knowledge.beside.insert(1, Beside { references, load_depth });
        self.stage = Stage::Search(Box::new(Search::new(&mut self.knowledge, self.config.sample_zones)));
    }

    /// The end, because all zones are measured or the time is over.
    fn finish_search(&mut self) {
        if let Stage::Search(search) = &mut self.stage {
            search.finish(&self.knowledge);
        }
        if let Stage::Search(search) = &self.stage
            && let Some(rule) = search.rule()
            && let Some(confidence) = rule.confidence()
        {
            for zone in self.knowledge.eligible.clone() {
                let entry = &mut self.knowledge.zones[zone.as_usize()].entry;
                if *entry != ZoneEntry::Unknown(UnknownReason::NotMeasured) {
                    continue;
                }
                // Where the two predictions differ, neither is reliable.
                if let [group] = rule.predict(zone.as_usize(), &self.knowledge.known)[..] {
                    *entry = ZoneEntry::Known { group, evidence: Evidence::Inferred { confidence } };
                }
            }
        }
        self.limit_confidence();
        self.number_groups();
        let measured = self.knowledge.known.iter().flatten().count();
        let enough = ONE_GROUP_ZONES.min(self.knowledge.eligible.len()).max(2);
        let verdict = match self.knowledge.groups.len() as u32 {
            0 => Verdict::NotMeasured,
            // The other zones of a single group may have failed.
            1 if 2 * measured < enough => Verdict::NotMeasured,
            1 => Verdict::OneGroup,
            groups => Verdict::Groups { groups },
        };
        self.finish(Ok(verdict));
    }

    /// Measurements that do not fit together make all of them doubtful, and a group that is much
    /// smaller than others may be a part of one of them.
    fn limit_confidence(&mut self) {
        let knowledge = &mut self.knowledge;
        let undecided = [UnknownReason::Noise, UnknownReason::Contradiction, UnknownReason::SeveralGroups];
        let is_undecided = |entry: &ZoneEntry| undecided.iter().any(|reason| *entry == ZoneEntry::Unknown(*reason));
        let doubtful = knowledge.zones.iter().filter(|zone| is_undecided(&zone.entry)).count();
        let measured = knowledge.known.iter().flatten().count();
        let is_doubtful = doubtful * DOUBTFUL_ONE_IN > measured;
        let mut sizes: Vec<usize> = knowledge.groups.iter().map(|group| group.members.len()).collect();
        let of_group = sizes.clone();
        sizes.sort_unstable();
        let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        for zone in &mut knowledge.zones {
            if let ZoneEntry::Known { group, evidence: Evidence::Measured { confidence } } = &mut zone.entry
                && (is_doubtful || of_group[group.0 as usize] * 4 < median)
            {
                *confidence = confidence.min(DOUBTFUL_CONFIDENCE_MAX);
            }
        }
    }

    /// Numbers groups by their first zones, in whatever order they were found: the tables of two
    /// measurements can be compared. Groups whose zones were all lost are none.
    fn number_groups(&mut self) {
        let knowledge = &mut self.knowledge;
        let (mut numbers, mut next) = (vec![None; knowledge.groups.len()], 0);
        for zone in &mut knowledge.zones {
            if let ZoneEntry::Known { group, .. } = &mut zone.entry {
                let number = *numbers[group.0 as usize].get_or_insert(next);
                next = next.max(number + 1);
                *group = GroupId(number);
            }
        }
        let groups = std::mem::take(&mut knowledge.groups);
        let mut numbered: Vec<_> =
            numbers.into_iter().zip(groups).filter_map(|(number, group)| Some((number?, group))).collect();
        numbered.sort_by_key(|(number, _)| *number);
        knowledge.groups = numbered.into_iter().map(|(_, group)| group).collect();
    }

    fn finish(&mut self, verdict: Result<Verdict, ReportFailed>) {
        self.effort.elapsed = self.now.since(self.started_at.unwrap_or(self.now));
        self.stage = Stage::Done(verdict);
    }
}
