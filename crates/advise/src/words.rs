//! Advice as text.

use zonda_plot::text::{bytes, counted, duration, list, mebibytes, number};

use crate::advice::Advice;
use crate::base::Base;
use crate::candidate::Shape;
use crate::measure::Figures;
use crate::published::Guidance;
use crate::score::{Criterion, Ranked};

/// Minimum contribution to a score that is mentioned.
const COST_MIN: f64 = 0.01;
/// Maximum number of contributions that are mentioned.
const COSTS_NAMED_MAX: usize = 2;
/// Relative difference below which figures count as equal in a sentence.
const SAME: f64 = 0.02;

/// The figure of a criterion with its unit.
#[must_use]
pub fn figure(criterion: Criterion, figures: &Figures) -> String {
    match criterion {
        Criterion::Throughput => format!("{} MiB/s", mebibytes(figures.throughput_bytes_per_s)),
        Criterion::Dlwa => format!("{:.2}", figures.dlwa),
        Criterion::Wear => format!("{:.2}", figures.wear),
        Criterion::SpaceAmplification => format!("{:.2}", figures.space_amplification),
        Criterion::Latency => duration(figures.mean_ns),
        Criterion::TailLatency => duration(figures.p99_ns),
        Criterion::Mapping => bytes(figures.mapping_bytes),
        Criterion::Allocation => figures.elements_per_zone.to_string(),
    }
}

/// The recommendation and its figures.
pub(crate) fn paragraph(advice: &Advice) -> String {
    let choice = advice.choice();
    let candidate = &choice.measurement.candidate;
    let policy = match choice.figures.has_met_the_limit() {
        true => format!(
            "with zones finished by the host at an occupancy of {}% or more",
            candidate.finish_threshold_percent
        ),
        false => "with any FINISH policy: the limit on active zones was never reached".to_owned(),
    };
    let mut sentences = vec![
        format!("For {} on {}: {}, {policy}.", advice.load, advice.drive, candidate.shape),
        format!("The workload runs at {}.", measured(&choice.figures)),
    ];
    match advice.own {
        Some(own) if advice.ranking[own].measurement.candidate.shape == candidate.shape => {
            sentences.push("These are the zones of the profile.".to_owned());
        }
        Some(own) => sentences.push(against(&advice.ranking[own], "the zones of the profile")),
        None => {}
    }
    if let Some(second) = advice.ranking.get(1) {
        let name = second.measurement.candidate;
        sentences.push(match costs(second, choice).as_slice() {
            [] => format!("Second is {name}: equal to within 1%, and not coarser."),
            costs => format!("Second is {name}; it is worse in {}.", list(costs)),
        });
    }
    sentences.join(" ")
}

/// `110 MiB/s with a DLWA of 1.04, ...`.
fn measured(figures: &Figures) -> String {
    let tail = match figures.waited_for {
        "" => String::new(),
        operation => {
            format!(
                " and latencies of {operation} of {} on average and {} at p99",
                duration(figures.mean_ns),
                duration(figures.p99_ns)
            )
        }
    };
    format!(
        "{} with a DLWA of {:.2}, a wear of {:.2}, a space amplification of {:.2}{tail}",
        figure(Criterion::Throughput, figures),
        figures.dlwa,
        figures.wear,
        figures.space_amplification
    )
}

/// The figures of another candidate.
fn against(other: &Ranked, what: &str) -> String {
    format!(
        "With {what} ({}, rank {}) it runs at {}.",
        other.measurement.candidate,
        other.rank,
        measured(&other.figures)
    )
}

/// The criteria in which a candidate is worse than another: `DLWA (2.40 against 1.10)`.
fn costs(of: &Ranked, other: &Ranked) -> Vec<String> {
    let mut costs: Vec<(f64, Criterion)> = Criterion::ALL
        .into_iter()
        .map(|criterion| (of.costs[criterion as usize] - other.costs[criterion as usize], criterion))
        .filter(|(cost, _)| *cost >= COST_MIN)
        .collect();
    costs.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let in_words = |(_, criterion): &(f64, Criterion)| {
        let (theirs, ours) = (figure(*criterion, &of.figures), figure(*criterion, &other.figures));
        // The tables have the mapping of a zone.
        let name = if *criterion == Criterion::Mapping { "mapping of the whole drive" } else { criterion.name() };
        format!("{name} ({theirs} against {ours})")
    };
    costs.iter().take(COSTS_NAMED_MAX).map(in_words).collect()
}

/// Compares our recommendation with the published one: whether they match, and if not, the figures
/// that differ.
pub(crate) fn comparison(advice: &Advice, guidance: &Guidance, theirs: Option<usize>, base: &Base) -> Vec<String> {
    let choice = advice.choice();
    let shape = choice.measurement.candidate.shape;
    let mut sentences = Vec::new();
    let theirs = match theirs {
        Some(0) => return vec!["Our recommendation matches it.".to_owned()],
        Some(place) => &advice.ranking[place],
        None => {
            let reason = "No candidate on this flash that matches it can be built and completes the workload.";
            return vec![reason.to_owned()];
        }
    };
    let name = theirs.measurement.candidate;
    sentences.push(match costs(theirs, choice).as_slice() {
        [] => format!("The best matching candidate is {name}: equal to within 1%."),
        costs => {
            format!("The best matching candidate is {name}, rank {}; it is worse in {}.", theirs.rank, list(costs))
        }
    });
    let in_favour = costs(choice, theirs);
    if !in_favour.is_empty() {
        sentences.push(format!("Our recommendation is worse in {}.", list(&in_favour)));
    }
    if !guidance.has_element(shape.element) {
        sentences.extend(about_elements(advice, guidance, base));
    }
    let classes = advice.classes();
    if classes.of(shape.zone_bytes) != guidance.zones {
        sentences.push(format!(
            "Among the candidates, zones of {} are {}.",
            zonda_config::ByteSize(shape.zone_bytes),
            classes.of(shape.zone_bytes).name()
        ));
    }
    sentences
}

/// The effect of the published elements with our zones.
fn about_elements(advice: &Advice, guidance: &Guidance, base: &Base) -> Option<String> {
    let choice = advice.choice();
    let ours = choice.measurement.candidate;
    let is_sibling = |of: &&Ranked| {
        let theirs = of.measurement.candidate;
        let same_zones = Shape { element: ours.shape.element, ..theirs.shape } == ours.shape;
        let same_policy = theirs.finish_threshold_percent == ours.finish_threshold_percent;
        same_zones && same_policy && guidance.has_element(theirs.shape.element)
    };
    let sibling = advice.ranking.iter().find(is_sibling)?;
    let (theirs, element) = (&sibling.figures, sibling.measurement.candidate.shape.element);
    let near = |one: f64, other: f64| (one / other - 1.0).abs() <= SAME;
    if !near(theirs.dlwa, choice.figures.dlwa) {
        return Some(format!(
            "With {element} in the same zones, DLWA is {:.2} against {:.2}.",
            theirs.dlwa, choice.figures.dlwa
        ));
    }
    let stripe = base.stripe_bytes(&sibling.measurement.candidate.shape);
    Some(format!(
        "In the same zones {element} has the same DLWA, {:.2}, with {} and {} of mapping (the table of the elements) per \
         zone; the recommended zones have {} and {}. Pages are striped over the dies of a zone, so each segment of a zone \
         (one erase block on each of its dies) has data in all its elements once {} of it are written: FINISH then pads the \
         whole segment with any element.",
        theirs.dlwa,
        counted(theirs.elements_per_zone, "element"),
        mapping_per_zone(theirs),
        counted(choice.figures.elements_per_zone, "element"),
        mapping_per_zone(&choice.figures),
        bytes(stripe.next_multiple_of(base.profile().geometry.block_size.0)),
    ))
}

/// A score, for a table.
#[must_use]
pub fn score(of: &Ranked) -> String {
    format!("{:.3}", of.score)
}

/// Size of the mapping per zone.
#[must_use]
pub fn mapping_per_zone(figures: &Figures) -> String {
    format!("{} B", number(figures.mapping_bytes_per_zone))
}
