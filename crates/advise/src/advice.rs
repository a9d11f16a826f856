//! The answer: what a drive's zones should be, and everything that was measured to find out.

use serde::Serialize;
use zonda_ssd::allocation::AllocationKind;
use zonda_workload::filetrace::Preset;

use crate::base::{Base, Changes};
use crate::candidate::Shape;
use crate::measure::Measurement;
use crate::plan::AdvicePlan;
use crate::published::{Guidance, ZoneClasses};
use crate::score::{Ranked, Weights, ranked};

/// Version of the layout of [`Advice`] as JSON.
const FORMAT: u32 = 1;

/// Advice on a drive for a load; this is also its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Version of this layout; goes up when a field changes its meaning.
    pub format: u32,
    /// The load, by its own name.
    pub load: String,
    /// What it stands for.
    pub load_title: String,
    /// The kind of load that it was judged as, if any.
    pub preset: Option<Preset>,
    /// How much each criterion counts, in hundredths: throughput, DLWA, space amplification, p99, mapping, elements to choose.
    pub weights: Weights,
    /// The profile.
    pub drive: String,
    /// Dies of the drive.
    pub dies: u32,
    /// From which the load and all times were drawn.
    pub seed: u64,
    /// Bytes that the load appends.
    pub load_bytes: u64,
    /// Bytes that each candidate's zones hold: the drive, or as much of it as the load could ever reach.
    pub capacity_bytes: u64,
    /// Limit on active zones of every candidate.
    pub active_zones_max: u32,
    /// The profile has no such limit.
    pub active_zones_assumed: bool,
    /// In words.
    pub paragraph: String,
    /// The choice as lines of a profile.
    pub settings: String,
    /// Host policy: occupancy from which on it finishes a zone that it needs room for.
    pub finish_threshold_percent: u8,
    /// What was published for this kind of load, and how ours compares.
    pub published: Option<Beside>,
    /// All candidates that carried the load out; the first is the choice.
    pub ranking: Vec<Ranked>,
    /// The best-ranked candidate with the profile's own zones, if those are among the shapes: its place in `ranking`.
    pub own: Option<usize>,
    /// Candidates that did not carry the load out.
    pub failed: Vec<Measurement>,
    /// Shapes of which there can be no drive.
    pub left_out: Vec<LeftOut>,
}

/// A shape that was not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Which.
    #[serde(flatten)]
    pub shape: Shape,
    /// Why.
    pub reason: String,
}

/// Published advice beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The row of the table.
    #[serde(flatten)]
    pub guidance: Guidance,
    /// Whether our choice is what it recommends.
    pub agrees: bool,
    /// The best-ranked candidate that is what it recommends, if there is one: its place in `ranking`.
    pub theirs: Option<usize>,
    /// How ours compares, in sentences.
    pub comparison: Vec<String>,
}

impl Advice {
    pub(crate) fn new(plan: &AdvicePlan<'_>, measurements: Vec<Measurement>) -> Advice {
        let (base, load) = (plan.base, plan.load);
        let weights = load.goal.weights;
        let ranking = ranked(&measurements, &weights);
        let failed = measurements.into_iter().filter(|measurement| measurement.figures.is_none()).collect();
        let choice = ranking.first().expect("a run came to its end").measurement.candidate;
        let own_shape = base.own_shape();
        let own = ranking.iter().position(|of| Some(of.measurement.candidate.shape) == own_shape);
        let (active_zones_max, active_zones_assumed) = base.active_zones();
        let mut advice = Advice {
            format: FORMAT,
            load: load.name.clone(),
            load_title: load.title.clone(),
            preset: load.goal.preset,
            weights,
            drive: base.profile().name.clone(),
            dies: base.profile().dies(),
            seed: plan.seed,
            load_bytes: load.bytes().0,
            capacity_bytes: plan.capacity_bytes,
            active_zones_max,
            active_zones_assumed,
            paragraph: String::new(),
            settings: settings(&base.changes(&choice.shape, base.capacity_bytes())),
            finish_threshold_percent: choice.finish_threshold_percent,
            published: None,
            ranking,
            own,
            failed,
            left_out: plan.left_out.clone(),
        };
        advice.paragraph = crate::words::paragraph(&advice);
        advice.published = load.goal.preset.map(|preset| advice.beside(Guidance::of(preset), base));
        advice
    }

    /// The candidate that is recommended.
    ///
    /// # Panics
    /// Never: there is advice only where a candidate carried the load out.
    #[must_use]
    pub fn choice(&self) -> &Ranked {
        self.ranking.first().expect("there is one")
    }

    /// The best-ranked candidate of each storage element, in the order of their ranks.
    #[must_use]
    pub fn best_of_each_element(&self) -> Vec<&Ranked> {
        let mut seen: Vec<AllocationKind> = Vec::new();
        let is_first = |of: &&Ranked| {
            let element = of.measurement.candidate.shape.element;
            let is_new = !seen.contains(&element);
            seen.push(element);
            is_new
        };
        self.ranking.iter().filter(is_first).collect()
    }

    /// The same settings as a table of a job file.
    #[must_use]
    pub fn drive_set(&self) -> String {
        self.settings
            .replace("[geometry]", "[drive.set.geometry]")
            .replace("[zones]", "[drive.set.zones]")
            .replace("[write_buffer]", "[drive.set.write_buffer]")
    }

    /// Sizes of zones among all shapes, those left out included.
    #[must_use]
    pub fn classes(&self) -> ZoneClasses {
        let ranked = self.ranking.iter().map(|of| &of.measurement.candidate.shape);
        let failed = self.failed.iter().map(|of| &of.candidate.shape);
        ZoneClasses::of_shapes(ranked.chain(failed))
    }

    fn beside(&self, guidance: &Guidance, base: &Base) -> Beside {
        let classes = self.classes();
        let is_theirs = |of: &Ranked| guidance.is_met_by(&of.measurement.candidate.shape, &classes);
        let theirs = self.ranking.iter().position(is_theirs);
        let agrees = theirs == Some(0);
        let comparison = crate::words::comparison(self, guidance, theirs, base);
        Beside { guidance: *guidance, agrees, theirs, comparison }
    }
}

/// Changes as lines of a profile: tables in the order in which their first key comes.
fn settings(changes: &Changes) -> String {
    let mut tables: Vec<(&str, String)> = Vec::new();
    for (key, value) in changes {
        let (table, name) = key.split_once('.').expect("every key is in a table");
        let line = format!("{name} = {value}\n");
        match tables.iter_mut().find(|(known, _)| *known == table) {
            Some((_, lines)) => *lines += &line,
            None => tables.push((table, line)),
        }
    }
    let tables: Vec<String> = tables.into_iter().map(|(table, lines)| format!("[{table}]\n{lines}")).collect();
    tables.join("\n")
}
