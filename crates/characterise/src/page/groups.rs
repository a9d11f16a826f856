//! Conflict groups as a picture: a square for each zone, in the shade of its group.

use zonda_plot::text::{counted, escape};

use crate::Report;

/// Zones in a row, and rows at most.
const COLUMNS: usize = 64;
const ROWS_MAX: usize = 32;
/// Side of a square and the distance of two, in pixels.
const SIDE: usize = 12;
const PITCH: usize = 14;
/// Space for the number of the first zone of a row.
const LEFT: usize = 56;

/// The verdict and the picture.
pub(super) fn picture(report: &Report) -> String {
    let Some(groups) = &report.groups else { return String::new() };
    let words = groups.words();
    let calibration = match (groups.read_bytes, groups.slowdown) {
        (Some(bytes), Some(slowdown)) => format!(
            " Reads of {} were used: a zone is {slowdown:.1} times slower beside its own reads.",
            zonda_plot::text::round_bytes(bytes)
        ),
        _ => String::new(),
    };
    let first = words[..1].to_uppercase() + &words[1..];
    let lead = format!("<p>{}.{}</p>\n", escape(&first), escape(&calibration));
    if groups.group_of_zone.is_empty() {
        return lead;
    }
    let zones = groups.group_of_zone.len();
    let columns = if groups.groups <= 16 { COLUMNS } else { row_of(groups.groups as usize) };
    let shown = zones.min(columns * ROWS_MAX);
    let mut squares = String::new();
    for (zone, group) in groups.group_of_zone[..shown].iter().enumerate() {
        let (column, row) = (zone % columns, zone / columns);
        if column == 0 {
            squares +=
                &format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{zone}</text>", LEFT - 8, row * PITCH + 10);
        }
        let (fill, title) = match group {
            Some(group) => (color(*group, groups.groups), format!("zone {zone}: group {group}")),
            None => ("none".to_owned(), format!("zone {zone}: unknown")),
        };
        let outline = if group.is_none() { " stroke=\"currentColor\" stroke-opacity=\"0.3\"" } else { "" };
        squares += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{SIDE}\" height=\"{SIDE}\" fill=\"{fill}\"{outline}><title>{title}</title></rect>\n",
            LEFT + column * PITCH,
            row * PITCH
        );
    }
    let (width, height) = (LEFT + columns * PITCH, shown.div_ceil(columns) * PITCH);
    let rest = if shown < zones {
        format!(
            "<p class=\"none\">The first {} of {}; groups.json has all.</p>\n",
            shown,
            counted(zones as u64, "zone")
        )
    } else {
        String::new()
    };
    format!(
        "{lead}<svg class=\"groups\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"Conflict group of each zone\">\n{squares}</svg>\n<p class=\"none\">A square is a zone; zones of one \
         colour delay each other. {} of {} zones have a group.</p>\n{rest}",
        groups.known_zones, zones
    )
}

/// As many columns as groups, or a part of them, so that repetitions stand below each other.
fn row_of(groups: usize) -> usize {
    (1..).map(|part| groups.div_ceil(part)).find(|columns| *columns <= COLUMNS).unwrap_or(COLUMNS)
}

/// Neighboring groups differ in hue; far ones in lightness as well.
fn color(group: u32, groups: u32) -> String {
    let hue = u64::from(group) * 360 / u64::from(groups.max(1));
    let lightness = 40 + 9 * (group % 3);
    format!("hsl({hue} 65% {lightness}%)")
}
