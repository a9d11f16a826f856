//! The measurement: parts one after the other, each within its share of the time.

use zonda_profiler::{GroupTable, Profiler, ProfilerConfig, ProfilerEvent, ReportFailed, Strategy};
use zonda_sched::ZoneGroups;
use zonda_zoned::{Duration, Instant, NamespaceId, Prng};

use crate::finding::Finding;
use crate::limits::{FINISH_RUN_MAX, RUN_MAX, RUN_MIN, SCHEDULER_RUN_MAX};
use crate::plan::{Run, Shape};
use crate::zones::Zones;
use crate::{Kind, Missing, Part, Subject, managed, runs, scheduler};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time for all of it.
    pub budget: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// How far the characterisation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The part in progress.
    pub part: Part,
    /// The share of the budget that is used.
    pub share: f64,
    /// What is measured, in words.
    pub words: String,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// End with what is measured.
    Stop,
}

/// What a part has given.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSummary {
    /// The part.
    pub part: Part,
    /// The time that it took.
    pub elapsed_ns: u64,
    /// Loads with figures.
    pub measured: u32,
    /// Loads without, each with its reason.
    pub missing: u32,
    /// Why the part as a whole was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Missing>,
}

/// The conflict groups, and what the measurement shows of reads.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The table.
    pub table: GroupTable,
    /// Bytes of each read and the slowdown beside reads of the same zone, if it was calibrated.
    pub calibration: Option<(u64, f64)>,
}

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Characterisation {
    /// The loads.
    pub findings: Vec<Finding>,
    /// The conflict groups, if that part was not interrupted before its start.
    pub groups: Option<Groups>,
    /// The parts.
    pub parts: Vec<PartSummary>,
    /// The time of all of it.
    pub elapsed: Duration,
    /// Whether the user has ended it.
    pub is_interrupted: bool,
}

/// Measures a drive. `observe` is called between commands and decides whether to go on.
///
/// # Errors
/// The drive does not report its zones.
pub fn characterise(
    subject: &mut dyn Subject,
    options: &Options,
    observe: &mut dyn FnMut(&Progress) -> Control,
) -> Result<Characterisation, ReportFailed> {
    characterise_parts(subject, options, &Part::ALL, observe)
}

/// The same with these parts alone, for tests of a part.
pub(crate) fn characterise_parts(
    subject: &mut dyn Subject,
    options: &Options,
    parts: &[Part],
    observe: &mut dyn FnMut(&Progress) -> Control,
) -> Result<Characterisation, ReportFailed> {
    let started_at = subject.parts().1.now();
    let zones = Zones::choose(subject, Duration(options.budget.0 / 20));
    let work = Work {
        until: started_at + options.budget,
        started_at,
        budget: options.budget,
        seed: options.seed,
        zones,
        subject,
        observe,
        is_stopped: false,
        findings: Vec::new(),
        zone_groups: None,
    };
    work.run(parts)
}

/// A characterisation in progress.
pub(crate) struct Work<'a> {
    pub(crate) subject: &'a mut dyn Subject,
    observe: &'a mut dyn FnMut(&Progress) -> Control,
    pub(crate) zones: Zones,
    pub(crate) seed: u64,
    started_at: Instant,
    until: Instant,
    budget: Duration,
    is_stopped: bool,
    pub(crate) findings: Vec<Finding>,
    /// The conflict groups, if zones have some.
    pub(crate) zone_groups: Option<ZoneGroups>,
}

impl Work<'_> {
    fn run(mut self, parts: &[Part]) -> Result<Characterisation, ReportFailed> {
        let mut order = parts.to_vec();
        if order.len() > 1 && !self.zones.fills.is_empty() && self.subject.readable().is_empty() {
            // The zones of an empty drive have groups once they are filled for reads.
            order.swap(0, 1);
        }
        let (mut parts, mut groups) = (Vec::new(), None);
        for (place, &part) in order.iter().enumerate() {
            let begun_at = self.now();
            let weights: u64 =
                order[place..].iter().filter(|part| self.is_possible(**part)).map(|part| part.weight()).sum();
            let left = self.until.0.saturating_sub(begun_at.0);
            let time = Duration((u128::from(left) * u128::from(part.weight()) / u128::from(weights.max(1))) as u64);
            let before = self.findings.len();
            let reason = self.reason(part, left);
            if reason.is_none() {
                match part {
                    Part::Groups => {
                        let measured = self.measure_groups(time)?;
                        self.zone_groups = scheduler::zone_groups(&measured.table);
                        groups = Some(measured);
                    }
                    Part::Zones => managed::measure(&mut self, begun_at + time),
                    _ => self.measure_part(part, begun_at + time),
                }
            }
            let elapsed_ns = self.now().since(begun_at).0;
            let of_part = &self.findings[before..];
            let measured = of_part.iter().filter(|finding| finding.figures.is_some()).count() as u32;
            let missing = of_part.len() as u32 - measured;
            parts.push(PartSummary { part, elapsed_ns, measured, missing, reason });
        }
        parts.sort_by_key(|summary| summary.part);
        let elapsed = self.now().since(self.started_at);
        Ok(Characterisation { findings: self.findings, groups, parts, elapsed, is_interrupted: self.is_stopped })
    }

    fn is_possible(&self, part: Part) -> bool {
        !part.is_destructive() || !self.zones.write.is_empty()
    }

    fn is_conventional(&self) -> bool {
        let geometry = self.subject.geometry();
        geometry.conventional_zone_count == geometry.zone_count
    }

    /// Why a part is not measured at all.
    fn reason(&self, part: Part, left_ns: u64) -> Option<Missing> {
        match () {
            () if self.is_stopped => Some(Missing::Interrupted),
            () if !self.is_possible(part) && self.is_conventional() => {
                Some(Missing::NotSupported("all its zones are conventional".to_owned()))
            }
            () if !self.is_possible(part) => Some(Missing::ReadOnly),
            () if part == Part::Reads && self.zones.read.is_empty() => Some(Missing::NoData),
            () if left_ns == 0 => Some(Missing::NoTime),
            () => None,
        }
    }

    /// One of so many parts of the budget, in nanoseconds.
    pub(crate) fn budget_part(&self, one_in: u64) -> u64 {
        self.budget.0 / one_in
    }

    pub(crate) fn now(&mut self) -> Instant {
        self.subject.parts().1.now()
    }

    /// Reports progress. Returns whether to go on.
    pub(crate) fn goes_on(&mut self, part: Part, words: String) -> bool {
        let used = self.now().since(self.started_at);
        let share = used.0 as f64 / self.budget.0.max(1) as f64;
        if !self.is_stopped && (self.observe)(&Progress { part, share, words }) == Control::Stop {
            self.is_stopped = true;
        }
        !self.is_stopped
    }

    fn measure_groups(&mut self, time: Duration) -> Result<Groups, ReportFailed> {
        let geometry = self.subject.geometry().clone();
        let config = ProfilerConfig {
            namespace: NamespaceId::FIRST,
            strategy: Strategy::Search,
            budget: Some(time),
            sample_zones: None,
            prng: Prng::new(self.seed),
        };
        let mut profiler = Profiler::new(&geometry, config);
        let mut calibration = None;
        let (started_at, budget) = (self.started_at, self.budget);
        let (device, clock) = self.subject.parts();
        let (observe, is_stopped) = (&mut self.observe, &mut self.is_stopped);
        let table = zonda_profiler::run(&mut profiler, device, clock, &mut |profiler, now| {
            while let Some(event) = profiler.poll_event() {
                if let ProfilerEvent::Calibrated { read_bytes, slowdown } = event {
                    calibration = Some((read_bytes, slowdown));
                }
            }
            let progress = profiler.progress();
            let words = format!("{} of {} zones, {} groups", progress.zones_done, progress.zones, progress.groups);
            let share = now.since(started_at).0 as f64 / budget.0.max(1) as f64;
            if !*is_stopped && observe(&Progress { part: Part::Groups, share, words }) == Control::Stop {
                *is_stopped = true;
                profiler.shutdown(now);
            }
        })?;
        Ok(Groups { table, calibration })
    }

    /// The loads of a part, each in its share of the time that is left.
    fn measure_part(&mut self, part: Part, until: Instant) {
        let shape = self.shape();
        let runs = shape.runs(part);
        for (place, run) in runs.iter().enumerate() {
            if !self.goes_on(part, run.words()) {
                self.miss(run, &Missing::Interrupted);
                continue;
            }
            let weights: u64 = runs[place..].iter().map(Run::weight).sum();
            let left = until.0.saturating_sub(self.now().0);
            let time = Duration((u128::from(left) * u128::from(run.weight()) / u128::from(weights.max(1))) as u64);
            if Duration(left) < RUN_MIN {
                self.miss(run, &Missing::NoTime);
                continue;
            }
            // A short run is better than none, as long as there is time.
            let time = time.max(RUN_MIN);
            let is_slow = run.loads.iter().any(|load| load.kind == Kind::Finish);
            let time = time.min(match () {
                () if is_slow => FINISH_RUN_MAX,
                () if run.scheduler.is_some() => SCHEDULER_RUN_MAX,
                () => RUN_MAX,
            });
            if let Err(missing) = runs::measure(self, run, time) {
                self.miss(run, &missing);
            }
        }
    }

    pub(crate) fn miss(&mut self, run: &Run, missing: &Missing) {
        for (place, load) in run.loads.iter().enumerate() {
            let beside = run.loads.get(1 - place.min(1)).filter(|_| run.loads.len() > 1).copied();
            // Of two equal loads one stands for both.
            if place == 0 || beside != Some(*load) {
                let finding = Finding::new(run.part, *load, beside, Err(missing.clone()));
                self.findings.push(finding.behind(run.scheduler));
            }
        }
    }

    fn shape(&self) -> Shape {
        let geometry = self.subject.geometry().clone();
        let partial = self.zones.fills.iter().filter(|(_, blocks)| *blocks < geometry.zone_capacity_blocks).count();
        let open = geometry.max_open_zones.unwrap_or(u32::MAX).min(self.subject.active_max());
        let write_zones = open.saturating_sub(partial as u32).min(self.zones.write.len() as u32);
        let rates = [Part::Reads, Part::Writes].map(|part| {
            let of_part = self.findings.iter().filter(|finding| finding.part == part);
            let rates = of_part.filter_map(|finding| Some(finding.figures?.per_second));
            rates.reduce(f64::max).unwrap_or(f64::INFINITY)
        });
        let read_zones = self.zones.read.len() as u32;
        Shape { read_zones, write_zones, reset_fill: self.reset_fill(), rates, geometry }
    }

    /// Full zones, if enough of them can be filled for each run; otherwise zones with a part.
    fn reset_fill(&self) -> u32 {
        let capacity = self.subject.geometry().zone_capacity_blocks;
        let zones: Vec<_> = self.zones.write.iter().take(runs::RESET_ZONES_MIN).map(|zone| (*zone, capacity)).collect();
        let whole = self.subject.preparation(&zones);
        let affordable = Duration(self.budget.0 / runs::FILL_ONE_IN);
        if whole <= affordable { 100 } else { ((affordable.0 * 100 / whole.0.max(1)) as u32).clamp(1, 99) }
    }
}
