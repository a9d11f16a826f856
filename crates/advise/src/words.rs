//! Advice in sentences.

use zonda_plot::text::{bytes, counted, duration, list, mebibytes, number};

use crate::advice::Advice;
use crate::base::Base;
use crate::candidate::Shape;
use crate::measure::Figures;
use crate::published::Guidance;
use crate::score::{Criterion, Ranked};

/// A part of a score that is worth a word.
const COST_MIN: f64 = 0.01;
/// Parts of a score that are named.
const COSTS_NAMED_MAX: usize = 2;
/// Figures this near count as the same in a sentence.
const SAME: f64 = 0.02;

/// A criterion's figure, with its unit.
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

/// The recommendation and why, in figures.
pub(crate) fn paragraph(advice: &Advice) -> String {
    let choice = advice.choice();
    let candidate = &choice.measurement.candidate;
    let policy = match choice.figures.has_met_the_limit() {
        true => format!("and let the host finish a zone from {}% occupancy on", candidate.finish_threshold_percent),
        false => "with any policy of FINISH: the limit on active zones was never in the way".to_owned(),
    };
    let mut sentences = vec![
        format!("For {} on {}: {}, {policy}.", advice.load, advice.drive, candidate.shape),
        format!("The load runs at {}.", measured(&choice.figures)),
    ];
    match advice.own {
        Some(own) if advice.ranking[own].measurement.candidate.shape == candidate.shape => {
            sentences.push("These are the profile's own zones.".to_owned());
        }
        Some(own) => sentences.push(against(&advice.ranking[own], "the profile's own zones")),
        None => {}
    }
    if let Some(second) = advice.ranking.get(1) {
        let name = second.measurement.candidate;
        sentences.push(match costs(second, choice).as_slice() {
            [] => format!("Next comes {name}: as good to within a hundredth, and not coarser."),
            costs => format!("Next comes {name}; against it speak {}.", list(costs)),
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

/// What another candidate comes to.
fn against(other: &Ranked, what: &str) -> String {
    format!(
        "With {what} ({}, in place {} of the ranking) it runs at {}.",
        other.measurement.candidate,
        other.rank,
        measured(&other.figures)
    )
}

/// What most speaks against a candidate beside another: `its DLWA (2.40 against 1.10)`.
fn costs(of: &Ranked, beside: &Ranked) -> Vec<String> {
    let mut costs: Vec<(f64, Criterion)> = Criterion::ALL
        .into_iter()
        .map(|criterion| (of.costs[criterion as usize] - beside.costs[criterion as usize], criterion))
        .filter(|(cost, _)| *cost >= COST_MIN)
        .collect();
    costs.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let in_words = |(_, criterion): &(f64, Criterion)| {
        let (theirs, ours) = (figure(*criterion, &of.figures), figure(*criterion, &beside.figures));
        format!("its {} ({theirs} against {ours})", criterion.name())
    };
    costs.iter().take(COSTS_NAMED_MAX).map(in_words).collect()
}

/// Ours beside the published advice: whether it is the same, and where not, which figures made the difference.
pub(crate) fn comparison(advice: &Advice, guidance: &Guidance, theirs: Option<usize>, base: &Base) -> Vec<String> {
    let choice = advice.choice();
    let shape = choice.measurement.candidate.shape;
    let mut sentences = Vec::new();
    let theirs = match theirs {
        Some(0) => return vec!["Our choice is of that kind.".to_owned()],
        Some(place) => &advice.ranking[place],
        None => {
            let reason = "No candidate of that kind was to be had on this flash, or carried the load out.";
            return vec![reason.to_owned()];
        }
    };
    let name = theirs.measurement.candidate;
    sentences.push(match costs(theirs, choice).as_slice() {
        [] => format!("The best candidate of that kind is {name}: as good to within a hundredth."),
        costs => format!(
            "The best candidate of that kind is {name}, in place {} of the ranking; against it speak {}.",
            theirs.rank,
            list(costs)
        ),
    });
    let in_favour = costs(choice, theirs);
    if !in_favour.is_empty() {
        sentences.push(format!("Against ours beside it speak {}.", list(&in_favour)));
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

/// Whether the published elements would have changed anything in our zones.
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
    let turn = base.turn_bytes(&sibling.measurement.candidate.shape);
    Some(format!(
        "In the same zones {element} comes to a DLWA of {:.2} too, and has {} to choose and {} to map where ours has {} and {}. \
         Pages go round the dies of a zone: once {} of a segment are written, every one of its elements holds data, so that \
         FINISH pads the whole segment whatever it is made of.",
        theirs.dlwa,
        counted(theirs.elements_per_zone, "element"),
        bytes(theirs.mapping_bytes),
        counted(choice.figures.elements_per_zone, "element"),
        bytes(choice.figures.mapping_bytes),
        bytes(turn.next_multiple_of(base.profile().geometry.block_size.0)),
    ))
}

/// A score, for a table.
#[must_use]
pub fn score(of: &Ranked) -> String {
    format!("{:.3}", of.score)
}

/// Bytes of mapping for a zone.
#[must_use]
pub fn mapping_per_zone(figures: &Figures) -> String {
    format!("{} B", number(figures.mapping_bytes_per_zone))
}
