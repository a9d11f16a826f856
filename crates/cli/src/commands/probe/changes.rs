//! What has changed between two reports, in words.

use zonda_characterise::Report;

use crate::output::Screen;
use crate::table::Table;
use crate::units;

pub(super) fn text(report: &Report, older: &Report, screen: Screen) -> String {
    let comparison = report.changes(older);
    let loads = units::counted(u64::from(comparison.compared), "load");
    let target = screen.bold(&report.conditions.target);
    if comparison.changes.is_empty() {
        return format!("{target}: {loads} compared, no change beyond noise\n");
    }
    let changes = units::counted(comparison.changes.len() as u64, "change");
    let mut table = Table::new(&["what", "quantity", ">before", ">after", ">change"]);
    for change in &comparison.changes {
        let ratio = change.ratio.map_or_else(String::new, |ratio| format!("{:+.1}%", (ratio - 1.0) * 100.0));
        table.row(&[change.subject.as_str(), change.quantity, &change.before, &change.after, &ratio]);
    }
    format!("{target}: {loads} compared, {changes} beyond noise\n\n{}", table.render(screen, 0))
}
