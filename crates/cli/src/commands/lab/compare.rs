//! `zonda lab compare`: compares published results with those of the model.

use zonda_lab::Row;

use super::{CompareArgs, pick};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units::significant;

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let experiments = if args.what.is_empty() { pick::all() } else { pick::picked(&args.what)? };
    let measured = pick::measured(experiments, &args.how)?;
    measured.write_pages(&args.how.out)?;
    let rows: Vec<Row> =
        measured.experiments.iter().zip(&measured.outcomes).flat_map(|(of, outcome)| Row::all(of, outcome)).collect();
    if args.json {
        return print_json(&rows);
    }
    let screen = Screen::of_stdout();
    print(&format!("{}\n{}", table(&rows, screen), summary(&rows)))
}

/// The comparison as a table, followed by the reasons for deviations.
pub(super) fn table(rows: &[Row], screen: Screen) -> String {
    let columns = ["result", "unit", ">published", ">ours", ">error", ">within", "met", "basis"];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(&[
            row.id.clone(),
            row.unit.clone(),
            significant(row.published),
            row.ours.map_or_else(|| "-".to_owned(), significant),
            row.error.map_or_else(|| "-".to_owned(), |error| format!("{:+.1}%", error * 100.0)),
            if row.at_most || row.at_least { "bound".to_owned() } else { format!("{:.0}%", row.tolerance * 100.0) },
            if row.met { "yes" } else { "NO" }.to_owned(),
            row.basis.name().to_owned(),
        ]);
    }
    let mut text = table.render(screen, 0);
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.met).collect();
    if !missed.is_empty() {
        text += &format!("\n{}\n", screen.bold("Reasons for deviations"));
        for row in missed {
            let note = if row.note.is_empty() { "unknown" } else { &row.note };
            text += &format!("  {}\n{}", row.id, screen.paragraph(note, 4));
        }
    }
    text
}

/// The number of results met, by kind.
pub(super) fn summary(rows: &[Row]) -> String {
    let mut parts = Vec::new();
    for kind in ["device", "shape", "system"] {
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        if !of_kind.is_empty() {
            let met = of_kind.iter().filter(|row| row.met).count();
            let predicted = of_kind.iter().filter(|row| row.met && !row.fitted).count();
            parts.push(format!("{met} of {} {kind} results met, {predicted} of them predicted", of_kind.len()));
        }
    }
    format!("{}\n", parts.join("; "))
}
