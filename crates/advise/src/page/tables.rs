//! Tables of candidates, and of weights.

use zonda_config::ByteSize;
use zonda_plot::text::{bytes, count, duration, escape, mebibytes, number};

use crate::advice::Advice;
use crate::score::{Criterion, Ranked};

/// Columns after the name, with their descriptions.
const FIGURES: [(&str, &str); 13] = [
    ("Score", "the sum of the costs; less is better"),
    ("DLWA", "bytes written to flash per byte that the host wrote"),
    ("Wear", "bytes erased per byte that the host wrote"),
    ("Space", "live and dead bytes divided by live ones"),
    ("MiB/s", "throughput"),
    ("Mean", "mean latency of the operation that an application waits for"),
    ("p99", "99% of those operations took at most this"),
    ("Padding", "bytes of padding in finished zones"),
    ("Erases", "erase units erased"),
    ("Finished", "zones finished before they were full"),
    ("Reset", "zones reset"),
    ("Elements", "elements chosen when a zone is allocated"),
    ("Mapping", "bytes of mapping per zone"),
];

/// The best of each storage element, with the contribution of each criterion to its score.
pub(super) fn best_of_each_element(advice: &Advice) -> String {
    let best = advice.best_of_each_element();
    let head: String = Criterion::ALL
        .iter()
        .map(|criterion| format!("<th scope=\"col\">{}</th>", capitalized(criterion.name())))
        .collect();
    let row = |of: &&Ranked| {
        let costs: String = of.costs.iter().map(|cost| format!("<td>{cost:.3}</td>")).collect();
        format!("<tr>{}<td>{}</td>{costs}</tr>\n", name(of), crate::words::score(of))
    };
    let rows: String = best.iter().map(row).collect();
    scroll(
        "Contribution of each criterion to the score of the best of each storage element",
        &format!(
            "<thead><tr><th scope=\"col\">Best of each element</th><th scope=\"col\">Score</th>{head}</tr></thead>\n\
             <tbody>\n{rows}</tbody>"
        ),
    )
}

/// Every candidate, in the order of the ranking.
pub(super) fn all(advice: &Advice) -> String {
    let head: String = FIGURES
        .iter()
        .map(|(name, title)| format!("<th scope=\"col\" title=\"{}\">{name}</th>", escape(title)))
        .collect();
    let rows: String = advice.ranking.iter().map(|of| format!("<tr>{}{}</tr>\n", name(of), cells(of))).collect();
    scroll(
        "All measurements",
        &format!("<thead><tr><th scope=\"col\">Candidate</th>{head}</tr></thead>\n<tbody>\n{rows}</tbody>"),
    )
}

/// Weight of each criterion.
pub(super) fn weights(advice: &Advice) -> String {
    let row = |criterion: &Criterion| {
        let weight = advice.weights.0[*criterion as usize];
        format!("<tr><th scope=\"row\">{}</th><td>{weight}%</td></tr>\n", capitalized(criterion.name()))
    };
    let rows: String = Criterion::ALL.iter().map(row).collect();
    format!(
        "<table class=\"numbers\"><thead><tr><th scope=\"col\">Criterion</th><th scope=\"col\">Weight</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table>\n"
    )
}

fn name(of: &Ranked) -> String {
    let candidate = &of.measurement.candidate;
    format!(
        "<th scope=\"row\">{}. {} <small>{} over {}, finish at {}%</small></th>",
        of.rank,
        candidate.shape.element,
        ByteSize(candidate.shape.zone_bytes),
        candidate.shape.parallelism,
        candidate.finish_threshold_percent
    )
}

fn cells(of: &Ranked) -> String {
    let figures = &of.figures;
    let cells = [
        crate::words::score(of),
        format!("{:.2}", figures.dlwa),
        format!("{:.2}", figures.wear),
        format!("{:.2}", figures.space_amplification),
        mebibytes(figures.throughput_bytes_per_s),
        duration(figures.mean_ns),
        duration(figures.p99_ns),
        bytes(figures.padding_bytes),
        count(figures.erases),
        count(figures.zone_finishes),
        count(figures.zone_resets),
        count(figures.elements_per_zone),
        format!("{} B", number(figures.mapping_bytes_per_zone)),
    ];
    cells.iter().map(|cell| format!("<td>{cell}</td>")).collect()
}

/// A table that scrolls horizontally on narrow pages.
fn scroll(label: &str, inside: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{label}\" tabindex=\"0\"><table class=\"numbers candidates\">\n\
         {inside}</table></div>\n"
    )
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
