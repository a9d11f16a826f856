//! `zonda lab compare`: compares published results with those of the model.

use serde::Serialize;
use zonda_lab::{Counts, PublishedResult, Row, SpreadSummary, Tally, Verdict, uncovered_results};

use super::{CompareArgs, pick};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units::{counted, significant};

/// The object of `--json`.
#[derive(Serialize)]
struct Comparison<'a> {
    results: &'a [Row],
    counts: Counts,
    uncovered: Vec<&'a PublishedResult>,
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let experiments = if args.what.is_empty() { pick::all() } else { pick::picked(&args.what)? };
    let measured = pick::measured(experiments, &args.how)?;
    measured.write_pages(&args.how.out)?;
    let rows: Vec<Row> =
        measured.experiments.iter().zip(&measured.outcomes).flat_map(|(of, outcome)| Row::all(of, outcome)).collect();
    if args.json {
        return print_json(&Comparison { results: &rows, counts: Counts::of(&rows), uncovered: uncovered_results() });
    }
    let screen = Screen::of_stdout();
    let mut text = format!("{}\n{}", table(&rows, screen), summary(&rows));
    let missing = uncovered_results();
    text += &format!("{} without an experiment\n", counted(missing.len() as u64, "published result"));
    if args.what.is_empty() && !missing.is_empty() {
        text += &format!("\n{}\n{}", screen.bold("Published results without an experiment"), list(&missing, screen));
    }
    print(&text)
}

/// The comparison as a table, followed by the reasons for deviations.
pub(super) fn table(rows: &[Row], screen: Screen) -> String {
    let columns = ["result", "unit", ">published", ">ours", ">error", ">within", "verdict", "spread", "basis"];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(&[
            row.id.clone(),
            row.unit.clone(),
            significant(row.published),
            row.ours.map_or_else(|| "-".to_owned(), significant),
            row.error.map_or_else(|| "-".to_owned(), |error| format!("{:+.1}%", error * 100.0)),
            if row.at_most || row.at_least { "bound".to_owned() } else { format!("{:.0}%", row.tolerance * 100.0) },
            match row.verdict {
                Verdict::Missed => "MISSED".to_owned(),
                verdict => verdict.name().to_owned(),
            },
            row.spread.as_ref().map_or_else(|| "-".to_owned(), spread),
            row.basis.name().to_owned(),
        ]);
    }
    let mut text = table.render_wide(0);
    for (title, verdict) in [("Fragile results", Verdict::Fragile), ("Reasons for deviations", Verdict::Missed)] {
        let of_verdict: Vec<&Row> = rows.iter().filter(|row| row.verdict == verdict).collect();
        if !of_verdict.is_empty() {
            text += &format!("\n{}\n", screen.bold(title));
        }
        for row in of_verdict {
            let note = if row.note.is_empty() { "unknown" } else { &row.note };
            text += &format!("  {}\n{}", row.id, screen.paragraph(note, 4));
        }
    }
    text
}

/// Minimum and maximum over seeds and open loads.
fn spread(spread: &SpreadSummary) -> String {
    let (low, high) = (significant(spread.low), significant(spread.high));
    let range = if low == high { low } else { format!("{low} to {high}") };
    if spread.stale { format!("{range}, stale") } else { range }
}

/// The number of results by verdict: those of papers by kind, and zonda's own.
pub(super) fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let (published, own): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.published_result);
    for (title, rows) in [("Published results", published), ("Results of other experiments", own)] {
        if rows.is_empty() {
            continue;
        }
        text += &format!("{title}: {}\n", tally(&Tally::of(rows.iter().copied())));
        for kind in ["device", "shape", "system"] {
            let of_kind = Tally::of(rows.iter().copied().filter(|row| row.kind == kind));
            if of_kind.all() > 0 {
                text += &format!("  {kind}: {}\n", tally(&of_kind));
            }
        }
    }
    text
}

fn tally(tally: &Tally) -> String {
    format!(
        "{} of {} met, {} fragile, {} missed; {} of {} predicted ones met",
        tally.met,
        tally.all(),
        tally.fragile,
        tally.missed,
        tally.predicted_met,
        tally.predicted
    )
}

fn list(results: &[&PublishedResult], screen: Screen) -> String {
    let line = |of: &&PublishedResult| screen.paragraph(&format!("{} ({}): {}", of.id, of.place, of.subject), 2);
    results.iter().map(line).collect()
}
