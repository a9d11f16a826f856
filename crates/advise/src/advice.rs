//! Advice: the recommended zones of a drive, and all measurements.

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

/// Advice on a drive for a workload; also the schema of its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Version of this layout; increases when a field changes its meaning.
    pub format: u32,
    /// Name of the workload.
    pub load: String,
    /// Description of the workload.
    pub load_title: String,
    /// The preset whose weights were used, if any.
    pub preset: Option<Preset>,
    /// Weight of each criterion, in hundredths: throughput, DLWA, space amplification, p99,
    /// mapping, elements to choose.
    pub weights: Weights,
    /// The profile.
    pub drive: String,
    /// Dies of the drive.
    pub dies: u32,
    /// Seed of the workload and of all service times.
    pub seed: u64,
    /// Bytes that the workload appends.
    pub load_bytes: u64,
    /// Capacity of each candidate: the drive, or the part of it that the workload can use.
    pub capacity_bytes: u64,
    /// Limit on active zones of every candidate.
    pub active_zones_max: u32,
    /// Whether this limit is assumed, because the profile has none.
    pub active_zones_assumed: bool,
    /// The recommendation as text.
    pub paragraph: String,
    /// The choice as lines of a profile.
    pub settings: String,
    /// Host policy: minimum occupancy at which it finishes a zone to free an active resource.
    pub finish_threshold_percent: u8,
    /// The published recommendation for this workload, and a comparison.
    pub published: Option<PublishedComparison>,
    /// All candidates that completed the workload; the first is the recommendation.
    pub ranking: Vec<Ranked>,
    /// Index in `ranking` of the best candidate with the zones of the profile, if these are among
    /// the shapes.
    pub own: Option<usize>,
    /// Candidates that did not complete the workload.
    pub failed: Vec<Measurement>,
    /// Shapes that no drive can be built of.
    pub left_out: Vec<LeftOut>,
}

/// A shape that was not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// The shape.
    #[serde(flatten)]
    pub shape: Shape,
    /// The reason.
    pub reason: String,
}

/// Comparison with the published recommendation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedComparison {
    /// The row of the table.
    #[serde(flatten)]
    pub guidance: Guidance,
    /// Whether our recommendation matches it.
    pub agrees: bool,
    /// Index in `ranking` of the best candidate that matches it, if there is one.
    pub theirs: Option<usize>,
    /// The comparison, in sentences.
    pub comparison: Vec<String>,
}

impl Advice {
    pub(crate) fn new(plan: &AdvicePlan<'_>, measurements: Vec<Measurement>) -> Advice {
        let (base, load) = (plan.base, plan.load);
        let weights = load.goal.weights;
        let ranking = ranked(&measurements, &weights);
        let failed = measurements.into_iter().filter(|measurement| measurement.figures.is_none()).collect();
        let choice = ranking.first().expect("a run completed the workload").measurement.candidate;
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
        advice.published = load.goal.preset.map(|preset| advice.compared(Guidance::of(preset), base));
        advice
    }

    /// The candidate that is recommended.
    ///
    /// # Panics
    /// Never: advice exists only if a candidate completed the workload.
    #[must_use]
    pub fn choice(&self) -> &Ranked {
        self.ranking.first().expect("the ranking is not empty")
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

    /// Zone sizes of all shapes, including excluded ones.
    #[must_use]
    pub fn classes(&self) -> ZoneClasses {
        let ranked = self.ranking.iter().map(|of| &of.measurement.candidate.shape);
        let failed = self.failed.iter().map(|of| &of.candidate.shape);
        ZoneClasses::of_shapes(ranked.chain(failed))
    }

    fn compared(&self, guidance: &Guidance, base: &Base) -> PublishedComparison {
        let classes = self.classes();
        let is_theirs = |of: &Ranked| guidance.is_met_by(&of.measurement.candidate.shape, &classes);
        let theirs = self.ranking.iter().position(is_theirs);
        let agrees = theirs == Some(0);
        let comparison = crate::words::comparison(self, guidance, theirs, base);
        PublishedComparison { guidance: *guidance, agrees, theirs, comparison }
    }
}

/// Changes as lines of a profile: tables in the order of their first keys.
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
