//! Advice on the terminal.

use zonda_advise::{Advice, Ranked, words};
use zonda_config::ByteSize;

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// The recommendation, the settings to paste, the ranking, and the comparison with published
/// results.
pub(super) fn text(advice: &Advice, top: Option<usize>, screen: Screen) -> String {
    let mut text = screen.paragraph(&advice.paragraph, 0);
    text += &assumptions(advice, screen);
    text += &format!("\n{}\n", screen.bold("Settings"));
    text += &indented(&advice.settings);
    text += &screen.paragraph("(in a job file: [drive.set.geometry] and [drive.set.zones])", 2);
    let (title, rows): (String, Vec<&Ranked>) = match top {
        Some(top) => {
            let rows: Vec<&Ranked> = advice.ranking.iter().take(top).collect();
            (format!("The {} best of {}", rows.len(), candidates(advice)), rows)
        }
        None => ("The best of each storage element".to_owned(), advice.best_of_each_element()),
    };
    text += &format!("\n{}\n{}", screen.bold(&title), table(&rows, screen));
    text + &published(advice, screen)
}

fn candidates(advice: &Advice) -> String {
    units::counted(advice.ranking.len() as u64, "candidate")
}

fn assumptions(advice: &Advice, screen: Screen) -> String {
    let mut sentences = Vec::new();
    if advice.active_zones_assumed {
        sentences.push(format!(
            "The profile has no limit on active zones; {} are assumed, the limit of a ZN540.",
            advice.active_zones_max
        ));
    }
    if let Some(first) = advice.failed.first() {
        let failed = units::counted(advice.failed.len() as u64, "candidate");
        sentences.push(format!("{failed} did not complete the workload: with {}, {}.", first.candidate, first.end));
    }
    if let Some(first) = advice.left_out.first() {
        let shapes = units::counted(advice.left_out.len() as u64, "shape");
        sentences.push(format!("{shapes} could not be built: {}: {}.", first.shape, first.reason));
    }
    if sentences.is_empty() { String::new() } else { screen.paragraph(&sentences.join(" "), 0) }
}

fn table(rows: &[&Ranked], screen: Screen) -> String {
    let mut table = Table::new(&[
        ">rank",
        "element",
        ">zone",
        ">dies",
        ">finish",
        ">DLWA",
        ">wear",
        ">space",
        ">MiB/s",
        ">mean",
        ">p99",
        ">padding",
        ">erases",
        ">elements",
        ">mapping",
    ]);
    for of in rows {
        let (candidate, figures) = (&of.measurement.candidate, &of.figures);
        table.row(&[
            of.rank.to_string(),
            candidate.shape.element.to_string(),
            ByteSize(candidate.shape.zone_bytes).to_string(),
            candidate.shape.parallelism.to_string(),
            format!("{}%", candidate.finish_threshold_percent),
            format!("{:.2}", figures.dlwa),
            format!("{:.2}", figures.wear),
            format!("{:.2}", figures.space_amplification),
            units::mib_per_second(figures.throughput_bytes_per_s),
            units::time(figures.mean_ns),
            units::time(figures.p99_ns),
            units::bytes(figures.padding_bytes),
            units::count(figures.erases),
            units::count(figures.elements_per_zone),
            words::mapping_per_zone(figures),
        ]);
    }
    let mut text = table.render_wide(2);
    let operation = rows.first().map_or("", |of| of.figures.waited_for);
    let waited_for =
        if operation.is_empty() { String::new() } else { format!("mean and p99: latency of {operation}; ") };
    text += &screen.paragraph(
        &format!(
            "({waited_for}wear: bytes erased per byte written; space: space amplification; elements and mapping: per \
             zone)"
        ),
        2,
    );
    text
}

fn published(advice: &Advice, screen: Screen) -> String {
    let Some(comparison) = &advice.published else {
        return screen.paragraph(
            "\nThe SilentZNS paper has no recommendation for custom traces; --workload selects the workload to compare with.",
            0,
        );
    };
    let mut text = format!("\n{}\n", screen.bold("What SilentZNS recommends (Table 5)"));
    text += &screen.paragraph(&format!("{}.", comparison.guidance.words), 2);
    text + &screen.paragraph(&comparison.comparison.join(" "), 2)
}

fn indented(lines: &str) -> String {
    lines.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect()
}
